//! A manager in its world: one endpoint, a monitor session, and the core.
//!
//! Room: node.   Owns: `MgrNode`.   Hears: `Input`.   Says: beacons and digests to monitors, replies to clients.
//! Holds: a figure of `osd.N` is taken only from a session that showed that name's ticket; a command is run only for
//! a session whose capabilities cover it.
//! Why: it may run in the monitor's process, but as a node of its own, so that it could as well run elsewhere.

mod maps;

use crate::gate::{Gate, Modes};
use crate::messenger::{network_actions, network_input, network_timers};
use crate::world::{Input, Node, World};
use ::mgr::{AutoscaleSettings, BalancerSettings, Mgr, MgrSettings};
use admin::command::{CommandError, Reply};
use admin::option::ConfigValues;
use admin::{Command, CommandSpec, socket};
use auth::caps::Ask;
use auth::{MgrCaps, Rwx};
use bytes::Bytes;
use client::{MonClient, MonClientConfig, MonClientEvent};
use maps::MapFollower;
use msgr::{Config, ConnId, Endpoint, Event};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::msg::internal::MgrBeacon;
use types::msg::{MCommandReply, MMgrCommandReply, MMgrConfigure, Message, RawMessage, WireMessage};
use types::pg::OsdPing;
use types::{AddrVec, EntityInst, EntityKind, Errno, Mono, Now, OsdId, features};

/// The least time between two digests: changes that come together are told together.
const DIGEST_PAUSE: Duration = Duration::from_millis(250);

/// After a change to a pool, how many periods of reports pass until the next: what OSDs said before it does not tell what moves
/// because of it.
const ADJUST_PAUSES: u32 = 2;

/// Everything a manager is told when it starts.
pub struct MgrNodeConfig {
    /// Where it listens; the caller binds it.
    pub addrs: AddrVec,
    pub mon: MonClientConfig,
    /// What stands in files and on the command line.
    pub options: ConfigValues,
    /// What `ceph mgr metadata` shows.
    pub metadata: BTreeMap<String, String>,
}

/// Who gave a command, and how he is answered.
#[derive(Debug, Clone, Copy)]
enum Asker {
    Mgr { conn: ConnId, tid: u64 },
    Tell { conn: ConnId, tid: u64 },
    Admin { id: u64 },
}

/// An answer that waits for the monitors to have done what the command comes to.
struct Held {
    asker: Asker,
    reply: Reply,
    /// Commands that they have not answered.
    open: BTreeSet<u64>,
}

/// One manager daemon.
pub struct MgrNode {
    endpoint: Endpoint,
    mon: MonClient,
    gate: Gate,
    mgr: Mgr,
    maps: MapFollower,
    options: ConfigValues,
    metadata: BTreeMap<String, String>,
    /// Sessions of service daemons.
    services: BTreeMap<ConnId, i64>,
    /// Where OSDs report from.
    osds: BTreeMap<OsdId, ConnId>,
    tick: Duration,
    next_tick: Mono,
    /// When the digest that is due may be sent.
    next_digest: Mono,
    changed: bool,
    /// When pools may be adjusted again.
    next_adjust: Mono,
    held: Vec<Held>,
    /// Answers for the admin socket.
    for_admin: Vec<(u64, Reply)>,
    stopped: Option<i32>,
}

impl MgrNode {
    /// A manager that looks for its monitors. `seed` makes its nonces and challenges: a secret.
    pub fn new(config: MgrNodeConfig, now: Now, seed: [u8; 32]) -> Self {
        let mut rng = ChaCha8Rng::from_seed(seed);
        let endpoint = Config::new(EntityKind::MGR, -1, config.addrs, features::SUPPORTED);
        let mut endpoint = Endpoint::new(endpoint, rand::Rng::random(&mut rng));
        let mut mon = MonClient::new(config.mon, rand::Rng::random(&mut rng));
        let gate = Gate::new(EntityKind::MGR, Modes::of(|name| config.options.str(name)), ChaCha8Rng::from_rng(&mut rng));
        mon.start(now, &mut endpoint);
        for what in ["mgrmap", "osdmap"] {
            mon.subscribe(now, &mut endpoint, what, 0, false);
        }
        let mut mgr = Mgr::new(settings(&config.options));
        mgr.set_own_config(mon.name().clone(), config.options.in_force());
        MgrNode {
            endpoint,
            mon,
            gate,
            mgr,
            maps: MapFollower::default(),
            tick: tick(&config.options),
            options: config.options,
            metadata: config.metadata,
            services: BTreeMap::new(),
            osds: BTreeMap::new(),
            next_tick: now.mono,
            next_digest: now.mono,
            changed: false,
            next_adjust: now.mono,
            held: Vec::new(),
            for_admin: Vec::new(),
            stopped: None,
        }
    }

    /// The core, for tools and tests that look at its state.
    pub fn mgr(&self) -> &Mgr {
        &self.mgr
    }

    fn pump(&mut self, now: Now) {
        loop {
            let mut idle = true;
            while let Some(event) = self.endpoint.poll_event() {
                idle = false;
                self.on_event(now, event);
            }
            while let Some(event) = self.mon.poll_event() {
                idle = false;
                self.on_mon(now, event);
            }
            if idle {
                return;
            }
        }
    }

    fn on_event(&mut self, now: Now, event: Event) {
        let Some(event) = self.mon.handle_event(now, &mut self.endpoint, event) else { return };
        let event = self.gate.handle(&mut self.endpoint, self.mon.secrets(), event);
        if self.gate.wants_secrets() {
            self.mon.refresh_secrets(now, &mut self.endpoint);
        }
        match event {
            Some(Event::Message { conn, msg }) => self.on_message(now, conn, msg),
            Some(Event::Reset { conn, .. }) => {
                self.osds.retain(|_, c| *c != conn);
                if let Some(gid) = self.services.remove(&conn) {
                    self.mgr.handle_session_lost(now, gid);
                    self.changed = true;
                }
            }
            _ => {}
        }
    }

    fn on_mon(&mut self, now: Now, event: MonClientEvent) {
        match event {
            MonClientEvent::Authenticated { global_id } => self.endpoint.set_num(global_id as i64),
            MonClientEvent::SessionOpened => self.next_tick = now.mono,
            MonClientEvent::OsdMap(m) => {
                let follow = self.maps.take(&m);
                if let Some(map) = follow.newer {
                    self.mgr.handle_osdmap(now, map);
                    // Monitors are told that we are ready as soon as we are.
                    self.next_tick = now.mono;
                    self.changed = true;
                }
                if let Some(start) = follow.ask_from {
                    self.mon.subscribe(now, &mut self.endpoint, "osdmap", start.0.into(), false);
                }
            }
            // Whoever has just become active has a digest to send.
            MonClientEvent::MgrMap(_) => self.changed = true,
            MonClientEvent::Config(config) => {
                self.options.replace_mon(&config);
                self.mgr.set_settings(settings(&self.options));
                self.mgr.set_own_config(self.mon.name().clone(), self.options.in_force());
                self.tick = tick(&self.options);
                self.gate.set_modes(Modes::of(|name| self.options.str(name)));
            }
            MonClientEvent::CommandReply { tid, result, status, .. } => self.on_mon_reply(now, tid, result, status),
            MonClientEvent::AuthFailed { errno } => tracing::error!("the monitors refuse us: {errno}"),
            _ => {}
        }
    }

    fn on_message(&mut self, now: Now, conn: ConnId, raw: RawMessage) {
        let msg = match Message::decode(&raw) {
            Ok(msg) => msg,
            Err(e) => return tracing::warn!(?conn, "{e}"),
        };
        // What a monitor passes on it has checked; the answer goes back the same way.
        if let (true, Message::MMgrCommand(m)) = (self.mon.conn() == Some(conn), &msg) {
            let reply = self.run(now, &m.cmd, |_, _| true);
            return self.answer(now, Asker::Mgr { conn, tid: raw.tid }, reply);
        }
        let Some(visitor) = self.gate.visitor(conn) else { return };
        let (name, gid) = (visitor.name.clone(), visitor.global_id as i64);
        match msg {
            Message::MgrStats(stats) => {
                let theirs = name.kind == EntityKind::OSD && name.id == stats.osd.to_string();
                if !theirs {
                    return tracing::warn!(%name, osd = %stats.osd, "reports for another");
                }
                self.osds.insert(stats.osd, conn);
                self.mgr.handle_stats(now, stats);
                self.changed = true;
            }
            Message::MMgrCommand(m) => {
                let reply = self.command(now, conn, &m.cmd);
                self.answer(now, Asker::Mgr { conn, tid: raw.tid }, reply);
            }
            Message::MCommand(m) => {
                let reply = self.command(now, conn, &m.cmd);
                self.answer(now, Asker::Tell { conn, tid: raw.tid }, reply);
            }
            Message::MMgrOpen(open) => {
                if open.service.is_some() {
                    self.services.insert(conn, gid);
                    self.mgr.handle_open(now, EntityInst { kind: name.kind, num: gid }, String::new(), open);
                    self.changed = true;
                }
                let period = self.mgr.settings().stats_period.as_secs() as u32;
                self.reply(now, conn, raw.tid, &MMgrConfigure { stats_period_s: period, stats_threshold: 5 });
            }
            Message::MMgrReport(report) => self.mgr.handle_report(now, report),
            Message::MMgrClose(close) => {
                self.mgr.handle_close(now, &close);
                self.reply(now, conn, raw.tid, &close);
            }
            other => tracing::debug!(%name, kind = other.name(), "not for a manager"),
        }
    }

    /// Runs a command of a session, if its capabilities cover it.
    fn command(&mut self, now: Now, conn: ConnId, cmd: &[String]) -> Reply {
        let visitor = self.gate.visitor(conn).cloned();
        self.run(now, cmd, |spec, texts| {
            let Some(visitor) = &visitor else { return false };
            let caps = visitor.caps.parse::<MgrCaps>().unwrap_or_default();
            let (prefix, first) = (prefix_of(spec), spec.sig.split(' ').next().unwrap_or_default());
            caps.is_capable(&Ask {
                name: &visitor.name,
                service: spec.module,
                // Commands of what are modules upstream are named after them.
                module: if spec.module == "mgr" { first } else { "" },
                command: &prefix,
                args: texts,
                needs: Rwx::of(spec.perm.contains('r'), spec.perm.contains('w'), spec.perm.contains('x')),
                addr: None,
            })
        })
    }

    fn run(&mut self, now: Now, cmd: &[String], allowed: impl Fn(&CommandSpec, &BTreeMap<String, String>) -> bool) -> Reply {
        let command = match Command::parse(cmd) {
            Ok(command) => command,
            Err(e) => return e.into(),
        };
        if command.prefix == "get_command_descriptions" {
            return Reply::output(Mgr::commands().describe(&[]));
        }
        let (spec, args) = match Mgr::resolve(&command) {
            Ok(found) => found,
            Err(e) => return e.into(),
        };
        if !allowed(spec, &args.texts()) {
            let text = "access denied: the key has no mgr capability for this command";
            return CommandError::new(Errno::EACCES, text).into();
        }
        if !self.mgr.is_ready() {
            return CommandError::new(Errno::EAGAIN, "the manager has no map yet; try again").into();
        }
        self.mgr.set_connected(self.osds.keys().copied().collect());
        let reply = self.mgr.run(now, &command, &args);
        self.send_orders(now);
        reply
    }

    fn send_orders(&mut self, now: Now) {
        for (osd, order) in self.mgr.take_orders() {
            if let Some(conn) = self.osds.get(&osd) {
                self.endpoint.send(now, *conn, order.to_raw(features::SUPPORTED));
            }
        }
    }

    /// Answers a command, when the monitors have done what it comes to.
    fn answer(&mut self, now: Now, asker: Asker, reply: Reply) {
        let orders = self.mgr.take_mon_orders();
        let open: BTreeSet<u64> = orders.into_iter().map(|order| self.mon.command(now, &mut self.endpoint, order, Bytes::new())).collect();
        match open.is_empty() {
            true => self.deliver(now, asker, reply),
            false => self.held.push(Held { asker, reply, open }),
        }
    }

    fn deliver(&mut self, now: Now, asker: Asker, reply: Reply) {
        let (result, status) = (reply.result, reply.status.clone().into());
        let data = Bytes::from(reply.output.clone()).into();
        match asker {
            Asker::Mgr { conn, tid } => self.reply(now, conn, tid, &MMgrCommandReply { result, status, data }),
            Asker::Tell { conn, tid } => self.reply(now, conn, tid, &MCommandReply { result, status, data }),
            Asker::Admin { id } => self.for_admin.push((id, reply)),
        }
    }

    /// The monitors have done something, or refused: the first refusal is the answer.
    fn on_mon_reply(&mut self, now: Now, tid: u64, result: i32, status: String) {
        let Some(at) = self.held.iter().position(|h| h.open.contains(&tid)) else {
            if result < 0 {
                tracing::warn!(result, status, "the monitors refuse a change");
            }
            return;
        };
        let held = &mut self.held[at];
        held.open.remove(&tid);
        if result < 0 && held.reply.result >= 0 {
            held.reply = Reply { result, status, output: Vec::new() };
        }
        if held.open.is_empty() {
            let held = self.held.swap_remove(at);
            self.deliver(now, held.asker, held.reply);
        }
    }

    fn reply(&mut self, now: Now, conn: ConnId, tid: u64, msg: &impl WireMessage) {
        let mut raw = msg.to_raw(features::SUPPORTED);
        raw.tid = tid;
        self.endpoint.send(now, conn, raw);
    }

    /// Whoever reaches the admin socket may do everything.
    fn on_admin(&mut self, now: Now, id: u64, request: &Bytes) {
        let whole = [request.as_ref(), &[0]].concat();
        let reply = match socket::request(&whole) {
            socket::Request::Version => Reply::output(socket::VERSION),
            socket::Request::Command(Ok(_)) => {
                let text = String::from_utf8_lossy(request).trim_end_matches('\0').to_string();
                self.run(now, &[text], |_, _| true)
            }
            socket::Request::Command(Err(e)) => e.into(),
            socket::Request::Incomplete => CommandError::invalid("invalid json").into(),
        };
        self.answer(now, Asker::Admin { id }, reply);
    }

    fn timers<W: World>(&mut self, world: &W) {
        let now = world.now();
        network_timers(&mut self.endpoint, world);
        if self.mon.next_timeout().is_some_and(|at| at <= now.mono) {
            self.mon.handle_timeout(now, &mut self.endpoint);
        }
        if now.mono >= self.next_tick {
            self.next_tick = now.mono + self.tick;
            self.mgr.handle_tick(now);
            self.send_orders(now);
            self.adjust_pgs(now);
            self.look_after_pools(now);
            self.send_beacon(now);
            self.changed = true;
        }
        if self.changed && now.mono >= self.next_digest {
            self.send_digest(now);
        }
    }

    /// Pools come to the number of PGs they are to have, by commands as an operator gives them.
    fn adjust_pgs(&mut self, now: Now) {
        if !self.may_report() || now.mono < self.next_adjust {
            return;
        }
        for step in self.mgr.adjust_pgs() {
            tracing::info!(command = step.command, "PGs are adjusted");
            self.mon.command(now, &mut self.endpoint, step.command, Bytes::new());
            if step.moves {
                self.next_adjust = now.mono + ADJUST_PAUSES * self.mgr.settings().stats_period;
            }
        }
    }

    /// The autoscaler and the balancer, each in its time.
    fn look_after_pools(&mut self, now: Now) {
        if !self.may_report() {
            return;
        }
        for order in self.mgr.autoscale_pgs(now).into_iter().chain(self.mgr.balance(now)) {
            tracing::info!(order, "pools are looked after");
            self.mon.command(now, &mut self.endpoint, order, Bytes::new());
        }
    }

    /// "We would be, or are, the manager."
    fn send_beacon(&mut self, now: Now) {
        let Some(fsid) = self.mon.monmap().map(|m| m.fsid).filter(|_| self.mon.is_open()) else { return };
        let beacon = MgrBeacon {
            gid: self.mon.global_id(),
            name: self.mon.name().id.clone(),
            fsid,
            addrs: self.endpoint.addrs().clone(),
            available: self.mgr.is_ready(),
            metadata: self.metadata.clone(),
        };
        self.mon.send(now, &mut self.endpoint, beacon.to_raw(features::SUPPORTED));
    }

    /// True while the monitors want to hear digests of us: a manager that stands by has nothing to wake up for.
    fn may_report(&self) -> bool {
        let active = self.mon.mgrmap().is_some_and(|m| m.active_gid != 0 && m.active_gid == self.mon.global_id());
        active && self.mon.is_open() && self.mgr.is_ready()
    }

    fn send_digest(&mut self, now: Now) {
        if !self.may_report() {
            return;
        }
        self.changed = false;
        self.next_digest = now.mono + DIGEST_PAUSE;
        let digest = self.mgr.digest(now).to_raw(features::SUPPORTED);
        self.mon.send(now, &mut self.endpoint, digest);
    }
}

/// The literal words of a signature.
fn prefix_of(spec: &CommandSpec) -> String {
    spec.sig.split(' ').take_while(|w| !w.contains(':')).collect::<Vec<_>>().join(" ")
}

fn settings(options: &ConfigValues) -> MgrSettings {
    // A ratio of 0 turns the warning off.
    let late = |interval, ratio| match options.f64(ratio) {
        r if r > 0.0 => options.f64(interval) * (1.0 + r),
        _ => 0.0,
    };
    let percent = |name| options.str(name).parse().unwrap_or(0);
    let grace = options.duration("osd_heartbeat_grace");
    MgrSettings {
        pg_stuck_threshold: options.duration("mon_pg_stuck_threshold"),
        health_max_detail: options.u64("mon_health_max_detail") as usize,
        max_pg_per_osd: options.u64("mon_max_pg_per_osd") as usize,
        warn_on_pool_no_app: options.bool("mon_warn_on_pool_no_app"),
        quota_warn_percent: percent("mon_pool_quota_warn_threshold"),
        quota_critical_percent: percent("mon_pool_quota_crit_threshold"),
        warn_num_repaired: options.u64("mon_osd_warn_num_repaired"),
        warn_on_misplaced: options.bool("mon_warn_on_misplaced"),
        object_skew: options.f64("mon_pg_warn_max_object_skew"),
        skewed_from: (options.i64("mon_pg_warn_min_pool_objects"), options.i64("mon_pg_warn_min_objects")),
        slow_ping_us: OsdPing::slow_from_us(options.f64("mon_warn_on_slow_ping_time"), options.f64("mon_warn_on_slow_ping_ratio"), grace),
        // Upstream counts the grace in minutes here.
        pings_valid: grace * 60,
        reporter_level: options.str("mon_osd_reporter_subtree_level").to_owned(),
        scrub_late_s: late("osd_scrub_max_interval", "mon_warn_pg_not_scrubbed_ratio"),
        deep_scrub_late_s: late("osd_deep_scrub_interval", "mon_warn_pg_not_deep_scrubbed_ratio"),
        stats_period: options.duration("mgr_stats_period"),
        max_creating_pgs: options.u64("mon_osd_max_creating_pgs"),
        max_misplaced_ratio: options.f64("target_max_misplaced_ratio"),
        aggressive_pg_changes: options.bool("mgr_debug_aggressive_pg_num_changes"),
        balancer: balancer_settings(options),
        autoscale: AutoscaleSettings {
            target_pg_per_osd: options.u64("mon_target_pg_per_osd"),
            sleep_interval: options.duration("mgr/pg_autoscaler/sleep_interval"),
            threshold: options.f64("mgr/pg_autoscaler/threshold"),
            off: options.bool("mgr/pg_autoscaler/noautoscale"),
        },
        reweight_max_change: options.f64("mon_reweight_max_change"),
        reweight_max_osds: options.i64("mon_reweight_max_osds"),
        reweight_min_pgs_per_osd: options.u64("mon_reweight_min_pgs_per_osd"),
        reweight_min_bytes_per_osd: options.u64("mon_reweight_min_bytes_per_osd"),
    }
}

fn balancer_settings(options: &ConfigValues) -> BalancerSettings {
    BalancerSettings {
        active: options.bool("mgr/balancer/active"),
        mode: options.str("mgr/balancer/mode"),
        pool_ids: ::mgr::pool_ids(&options.str("mgr/balancer/pool_ids")),
        sleep_interval: options.duration("mgr/balancer/sleep_interval"),
        upmap_max_optimizations: options.u64("mgr/balancer/upmap_max_optimizations"),
        upmap_max_deviation: options.u64("mgr/balancer/upmap_max_deviation"),
        crush_compat_max_iterations: options.u64("mgr/balancer/crush_compat_max_iterations"),
        crush_compat_step: options.f64("mgr/balancer/crush_compat_step"),
        begin_time: options.str("mgr/balancer/begin_time"),
        end_time: options.str("mgr/balancer/end_time"),
        begin_weekday: options.u64("mgr/balancer/begin_weekday"),
        end_weekday: options.u64("mgr/balancer/end_weekday"),
    }
}

fn tick(options: &ConfigValues) -> Duration {
    options.duration("mgr_tick_period").clamp(Duration::from_millis(100), Duration::from_secs(10))
}

impl<W: World> Node<W> for MgrNode {
    fn handle(&mut self, world: &mut W, input: Input) {
        match network_input(&mut self.endpoint, world, input) {
            Some(Input::Admin { id, request }) => self.on_admin(world.now(), id, &request),
            Some(Input::Stop) => self.stopped = Some(0),
            _ => {}
        }
        self.pump(world.now());
    }

    fn settle(&mut self, world: &mut W) {
        self.timers(world);
        self.pump(world.now());
        network_actions(&mut self.endpoint, world);
        for (id, reply) in std::mem::take(&mut self.for_admin) {
            // The world writes the length itself.
            world.admin_reply(id, Bytes::from(socket::reply(&reply)).slice(4..));
        }
        let digest = (self.changed && self.may_report()).then_some(self.next_digest.max(world.now().mono + Duration::from_millis(1)));
        if let Some(at) = [self.mon.next_timeout(), Some(self.next_tick), digest].into_iter().flatten().min() {
            world.wake_at(at);
        }
    }

    fn stopped(&self) -> Option<i32> {
        self.stopped
    }
}
