//! What an OSD tells monitors and manager of its own accord: boots, beacons, figures; and the clock behind it.

use crate::disk::Disk;
use crate::effects::{Cx, Effect, Peer};
use crate::osd::Osd;
use crate::pg::Wanted;
use qos::{Class, Io};
use store::KvSpace;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::msg::internal::{MgrStats, OsdBeacon, OsdBoot, OsdCapacity, OsdForceRecovery, OsdMarkMeDown, OsdScrub, OsdYield};
use types::msg::internal_osd::OsdPing;
use store::Compressed;
use store::Memory;
use types::msg::LogPrio;
use types::pg::{OsdStat, PerfStat, PgStat, StoreStatfs};
use types::{Epoch, Mono, Now, OsdId, PgId, PoolId};

/// Between two turns of housekeeping.
const TICK: Duration = Duration::from_millis(500);
/// `mgr_stats_period`.
const STATS_PERIOD: Duration = Duration::from_secs(5);
/// While copies move: an operator looks at how far they are.
const STATS_PERIOD_MOVING: Duration = Duration::from_secs(2);
/// `osd_beacon_report_interval` is 300 s upstream; ours also keeps the monitors' idea of our map fresh.
const BEACON_PERIOD: Duration = Duration::from_secs(60);
/// Thousandths of the time from which on a disk is busy.
const BUSY: u16 = 800;
/// Between two requests to be marked up.
const BOOT_PAUSE: Duration = Duration::from_secs(5);

/// When what is due.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    pub next_tick: Mono,
    next_stats: Mono,
    next_beacon: Mono,
    boot_asked: Option<Mono>,
    /// Reads that failed their checksum since the start.
    pub read_errors: u64,
    stopping: bool,
    pub markdowns: Markdowns,
}

/// Whether recovery gets what it is promised of our disk.
#[derive(Debug, Default)]
pub(crate) struct Promise {
    /// When that was last looked at, and what recovery had had until then, nanoseconds.
    looked: Mono,
    had: u64,
}

impl Promise {
    /// True if our disk was busy since the last look, and recovery had less than so many thousandths of the time.
    fn is_denied(&mut self, now: Mono, disk: &dyn Disk, promised: u16) -> bool {
        let had = disk.device_use().time[Class::Recovery as usize];
        let (passed, more) = ((now - self.looked).as_nanos() as u64, had.saturating_sub(self.had));
        (self.looked, self.had) = (now, had);
        let is_busy = disk.device().is_learned() && disk.device().busy() >= BUSY;
        is_busy && more.saturating_mul(1000) < passed.saturating_mul(promised.into())
    }
}

/// When the map said that we were down though we ran.
#[derive(Debug, Default)]
pub(crate) struct Markdowns {
    at: VecDeque<Mono>,
    /// How many within what time are too many; none is too many without.
    pub limit: Option<(usize, Duration)>,
}

impl Markdowns {
    /// Notes one; says why we should end, if it was one too many.
    fn note(&mut self, now: Mono, me: OsdId) -> Option<String> {
        let (most, period) = self.limit?;
        self.at.push_back(now);
        self.at.retain(|at| now - *at <= period);
        let n = self.at.len();
        (n > most).then(|| format!("osd.{me} was marked down {n} > osd_max_markdown_count {most} times in last {} seconds, shutting down", period.as_secs()))
    }
}

impl Osd {
    /// Asks the monitors to mark us up, not too often.
    pub(crate) fn ask_to_boot(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        let soon = self.clock.boot_asked.is_some_and(|at| now.mono - at < BOOT_PAUSE);
        // Without any map we do not know whether the cluster wants us at all.
        if soon || self.maps.epoch() == Epoch(0) || self.clock.stopping || !self.probation.is_over(now.mono) {
            return;
        }
        self.clock.boot_asked = Some(now.mono);
        let c = &self.config;
        let msg = OsdBoot {
            osd: c.whoami,
            fsid: c.fsid,
            uuid: c.uuid,
            public_addrs: c.addrs.clone(),
            cluster_addrs: c.cluster_addrs.clone(),
            hb_back_addrs: c.cluster_addrs.clone(),
            hb_front_addrs: c.addrs.clone(),
            boot_epoch: self.maps.epoch(),
            metadata: c.metadata.clone(),
            size_bytes: disk.statfs().total,
            device_class: c.device_class.clone(),
            crush_location: c.crush_location.clone(),
        };
        fx.push(Effect::Send { to: Peer::Mon, tid: 0, msg: msg.into() });
    }

    /// A session with a monitor is open: the last one may have taken requests with it.
    pub fn handle_mon_session(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        self.clock.boot_asked = None;
        self.sh.alive_wanted = Epoch(0);
        self.tell_merges_again();
        if !self.sh.booted {
            self.ask_to_boot(now, disk, fx);
        }
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        self.pgs.values_mut().for_each(|pg| pg.handle_mon_session(&mut cx));
    }

    /// An OSD's address refuses connections.
    pub fn handle_peer_refused(&mut self, now: Now, disk: &mut dyn Disk, osd: OsdId, fx: &mut Vec<Effect>) {
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        self.heartbeats.handle_refused(&mut cx, osd);
        self.probation.handle_refused(osd);
    }

    /// Somebody has heard us over one of our networks.
    pub(crate) fn handle_ping_answer(&mut self, now: Now, disk: &mut dyn Disk, from: Peer, m: &OsdPing, fx: &mut Vec<Effect>) {
        if let Peer::Front(osd) = from {
            self.heartbeats.handle_front(&mut Cx { now, disk, sh: &mut self.sh, fx }, osd, m);
        }
        self.probation.handle_answer(now.mono, from);
        if !self.sh.booted {
            self.ask_to_boot(now, disk, fx);
        }
    }

    /// The map says that we are down. Who is marked down again and again while it runs keeps everybody peering: its network
    /// or its disk is at fault, and it ends, for somebody to look.
    pub(crate) fn handle_marked_down(&mut self, now: Now, fx: &mut Vec<Effect>) {
        if self.clock.stopping {
            return;
        }
        self.probation.begin(now.mono);
        if let Some(why) = self.clock.markdowns.note(now.mono, self.sh.whoami) {
            self.prepare_stop(fx);
            fx.push(Effect::Stop { why });
        }
    }

    /// The operator wants us to stop: the map is to say so before clients notice. False if nobody is to be told: whatever is
    /// durable is, and connections that are refused tell others.
    pub fn prepare_stop(&mut self, fx: &mut Vec<Effect>) -> bool {
        self.clock.stopping = true;
        if !self.commands.says_that_it_stops() {
            return false;
        }
        if !self.sh.booted {
            return true;
        }
        self.sh.leases.stop();
        let (osd, addrs, epoch) = (self.config.whoami, self.config.addrs.clone(), self.maps.epoch());
        let msg = OsdMarkMeDown { osd, addrs, epoch, ack_wanted: true };
        fx.push(Effect::Send { to: Peer::Mon, tid: 0, msg: msg.into() });
        true
    }

    pub(crate) fn tick(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        if now.mono < self.clock.next_tick {
            return;
        }
        self.clock.next_tick = now.mono + TICK;
        self.intake.handle_tick(now.mono);
        let yields = now.mono < self.yields_until;
        for (class, share) in Class::ALL.into_iter().zip(crate::shares::beside_clients(self.sh.shares, yields)) {
            disk.set_share(now, class, share);
        }
        self.look_at_device(now, disk, fx);
        let denied = self.promise.is_denied(now.mono, disk, self.sh.shares[Class::Recovery as usize].reservation);
        self.sh.way_is_slow = self.sh.disk_is_slow || self.moves_by_slow_disks();
        self.sh.felt.set_slow(self.sh.way_is_slow);
        self.sh.felt.look(now.mono, self.sh.recovery_active > 0, denied);
        self.configure_store(disk);
        self.tell_memory(now, disk, fx);
        if !self.sh.booted {
            self.ask_to_boot(now, disk, fx);
        }
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        cx.sh.recovery_freed |= cx.sh.recovery_pace.handle_tick(now.mono);
        cx.sh.recount_budget = crate::pg::RECOUNT_BUDGET;
        self.pgs.values_mut().for_each(|pg| pg.handle_tick(&mut cx));
        self.tell_merges(now, disk, fx);
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        self.heartbeats.tick(&mut cx);
        self.probation.tick(&mut cx);
        for (osd, epoch) in std::mem::take(&mut self.heartbeats.behind) {
            self.share_map_with_osd(disk, osd, epoch, fx);
        }
        if now.mono >= self.clock.next_beacon && self.sh.booted {
            self.clock.next_beacon = now.mono + BEACON_PERIOD;
            self.send_beacon(fx);
        }
        self.sh.log_entries_degraded = self.commands.log_entries_degraded(self.sh.log_entries_max, self.pgs.len(), &self.memory);
        // A PG that has changed is told of at once: operators wait for `active+clean`.
        let me = self.sh.whoami;
        let news = self.sh.booted && self.pgs.values().any(|pg| pg.is_primary(me) && pg.has_news());
        if now.mono >= self.clock.next_stats || news {
            let moves = self.pgs.values().any(|pg| pg.is_primary(me) && pg.is_moving());
            self.clock.next_stats = now.mono + if moves { STATS_PERIOD_MOVING } else { STATS_PERIOD };
            self.complain(now, disk, fx);
            self.send_stats(now, disk, fx);
        }
    }

    /// The store works with what the options say of memory.
    fn tell_memory(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        if self.memory_told == Some(self.memory) {
            return;
        }
        let told = self.memory_told.replace(self.memory);
        if self.memory.memory.is_some() || told.is_some_and(|plan| plan.memory.is_some()) {
            let usual = Memory { target: store::StoreConfig::default().memory_target, cache_min: 0 };
            let memory = self.memory.memory.unwrap_or(usual);
            disk.set_memory(memory);
            tracing::info!(target = memory.target, wanted = ?self.memory.wanted, "bytes of memory to stay below");
        }
        if let Some(why) = self.memory.wanted.complaint() {
            Cx { now, disk, sh: &mut self.sh, fx }.clog(LogPrio::WARN, why);
        }
    }

    /// Whether objects of a PG of ours are on their way, or wait to be, and one of its OSDs says that its disk is slow. Who came back with nothing to tell of its own
    /// disk would else wait for one object at a time.
    fn moves_by_slow_disks(&self) -> bool {
        let slow: Vec<OsdId> = self.heartbeats.slow_disks().collect();
        let mut ours = self.pgs.values().filter(|pg| pg.is_primary(self.sh.whoami) && pg.is_moving());
        !slow.is_empty() && ours.any(|pg| slow.iter().any(|osd| pg.walk.mapping.involves(*osd)))
    }

    /// What the device can do, for monitors and the queue before it.
    fn look_at_device(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        let class = &self.config.device_class;
        let configured = crate::capacity::configured(&self.commands.config, class);
        disk.set_capacity(configured);
        let device = disk.device();
        self.sh.disk_is_slow = crate::capacity::is_slow(device, disk.facts().profile, configured, self.sh.disk_is_slow);
        if let Some(iops) = self.capacity.look(now.mono, device.capacity(configured), configured, crate::capacity::option(class)) {
            let (osd, rotational) = (self.sh.whoami, class == "hdd");
            let msg = OsdCapacity { osd, rotational, iops_thousandths: (iops * 1000.0) as u64 };
            fx.push(Effect::Send { to: Peer::Mon, tid: 0, msg: msg.into() });
        }
    }

    pub(crate) fn send_beacon(&self, fx: &mut Vec<Effect>) {
        let (osd, epoch) = (self.sh.whoami, self.maps.epoch());
        let primaries = self.pgs.iter().filter(|(_, pg)| pg.is_primary(osd));
        let last_epoch_clean = primaries.map(|(id, pg)| (*id, pg.last_epoch_clean(epoch))).collect();
        let msg = OsdBeacon { osd, epoch, last_epoch_clean };
        fx.push(Effect::Send { to: Peer::Mon, tid: 0, msg: msg.into() });
    }

    /// The manager passes on that PGs of ours are to be scrubbed.
    pub fn handle_scrub_order(&mut self, order: &OsdScrub) {
        let me = self.sh.whoami;
        // A repair has to know what can be read.
        let wanted = Wanted { deep: order.deep || order.repair, repair: order.repair, requested: true, verifies: false };
        for id in &order.pgs {
            if let Some(pg) = self.pgs.get_mut(id).filter(|pg| pg.is_primary(me)) {
                pg.request_scrub(wanted);
            }
        }
    }

    /// The manager passes on which PGs of ours are to recover before others.
    pub fn handle_force_order(&mut self, now: Now, disk: &mut dyn Disk, order: &OsdForceRecovery, fx: &mut Vec<Effect>) {
        let mut cx = Cx { now, disk: &mut *disk, sh: &mut self.sh, fx: &mut *fx };
        for id in &order.pgs {
            if let Some(pg) = self.pgs.get_mut(id).filter(|pg| pg.is_primary(cx.sh.whoami)) {
                pg.force_recovery(&mut cx, order);
            }
        }
        self.loop_back(now, disk, fx);
    }

    /// An operator gives up what is left of one of our PGs.
    pub fn handle_force_create(&mut self, now: Now, disk: &mut dyn Disk, pgid: PgId, fx: &mut Vec<Effect>) {
        let mut cx = Cx { now, disk: &mut *disk, sh: &mut self.sh, fx: &mut *fx };
        let pg = self.pgs.get_mut(&pgid).filter(|pg| pg.is_primary(cx.sh.whoami));
        if !pg.is_some_and(|pg| pg.force_create(&mut cx)) {
            tracing::warn!(pg = %pgid, "is not incomplete here: it does not begin anew");
        }
        self.loop_back(now, disk, fx);
    }

    /// Clients of neighbours of our device wait for it.
    pub fn handle_yield(&mut self, now: Now, order: &OsdYield) {
        self.yields_until = now.mono + Duration::from_secs(order.seconds.into());
    }

    /// There is a manager who knows nothing of us yet.
    pub fn handle_manager(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        if self.sh.booted {
            self.send_stats(now, disk, fx);
        }
    }

    pub(crate) fn send_stats(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        let stats = self.mgr_stats(now, disk);
        fx.push(Effect::Send { to: Peer::Mgr, tid: 0, msg: stats.into() });
    }

    /// What the store complains of, by the names of health checks. `kv`: how the database's own device fills.
    fn alerts(&self, disk: &dyn Disk, kv: Option<KvSpace>) -> BTreeMap<String, String> {
        let mut out: BTreeMap<String, String> = slow_flush(disk).into_iter().collect();
        out.extend(self.capacity.alert.iter().map(|(name, text)| ((*name).into(), text.clone())));
        if let Some(kv) = kv.filter(|kv| kv.spilled > 0 && self.commands.config.bool("bluestore_warn_on_bluefs_spillover")) {
            let size = |n| admin::human::bytes(n);
            let text = format!("spilled over {} metadata from 'db' device ({} used of {}) to slow device", size(kv.spilled), size(kv.used), size(kv.total));
            out.insert("BLUEFS_SPILLOVER".into(), text);
        }
        out
    }

    fn mgr_stats(&mut self, now: Now, disk: &dyn Disk) -> MgrStats {
        let (me, epoch, map) = (self.sh.whoami, self.maps.epoch(), self.maps.newest.clone());
        let mut pgs: BTreeMap<PgId, PgStat> = BTreeMap::new();
        let mut pools: BTreeMap<PoolId, StoreStatfs> = BTreeMap::new();
        let (mut primary, mut replica, mut stray) = (0u64, 0u64, 0u64);
        self.sh.perf.set_pgs_removing(self.pgs.values().filter(|pg| pg.is_removing()).count() as u64);
        for (id, pg) in &mut self.pgs {
            let held = pools.entry(id.pool).or_default();
            held.data_stored += pg.bytes_held();
            held.allocated += pg.bytes_held();
            match (pg.is_primary(me), pg.walk.mapping.involves(me)) {
                (true, _) => {
                    primary += 1;
                    pgs.insert(*id, pg.report(now, &map));
                }
                (_, true) => replica += 1,
                _ => stray += 1,
            }
        }
        for (pool, compressed) in disk.compressed() {
            let held = pools.entry(*pool).or_default();
            put_compressed(held, compressed);
            // What is compressed takes less than it has.
            held.allocated = (held.allocated - (compressed.original - compressed.allocated) as i64).max(held.data_compressed_allocated);
        }
        self.sh.perf.set_pgs(primary, replica, stray);
        let fs = disk.statfs();
        self.sh.perf.set_space(fs.total, fs.available);
        let mut statfs = StoreStatfs {
            total: fs.total,
            available: fs.available,
            internally_reserved: 0,
            allocated: fs.allocated as i64,
            data_stored: fs.stored as i64,
            omap_allocated: fs.omap as i64,
            internal_metadata: fs.internal as i64,
            ..StoreStatfs::default()
        };
        put_compressed(&mut statfs, &fs.compressed);
        let alerts = self.alerts(disk, fs.kv);
        let mut hb_pingtime = self.heartbeats.ping_times();
        hb_pingtime.retain(|_, times| times.last_update_s > 0);
        let commit = self.sh.commit_latency.take_mean_ns();
        let stat = OsdStat {
            // What is durable can be read: there is no second moment to tell of.
            perf: PerfStat { commit_latency_ns: commit, apply_latency_ns: commit },
            statfs,
            hb_peers: self.heartbeats.peers().map(|osd| osd.0).collect(),
            hb_pingtime,
            num_pgs: (primary + replica + stray) as u32,
            num_osds: 1,
            num_per_pool_osds: 1,
            num_per_pool_omap_osds: 1,
            num_shards_repaired: self.sh.shards_repaired,
            alerts: if alerts.is_empty() { BTreeMap::new() } else { BTreeMap::from([(me.0, alerts)]) },
            seq: self.sh.stats_seq,
            up_from: self.maps.newest.info(me).map(|i| i.up_from).unwrap_or_default(),
            ..OsdStat::default()
        };
        let mut perf = BTreeMap::new();
        self.sh.perf.0.report(&mut perf);
        let device = self.device_busy.report(now.mono, &self.config.metadata, disk.device(), &disk.device_use());
        MgrStats {
            osd: me,
            fsid: self.config.fsid,
            epoch,
            stat,
            pools,
            pgs,
            perf,
            slow_ops: self.slow_ops(now),
            config: Some(self.commands.config_in_force()),
            device,
        }
    }
}

fn put_compressed(statfs: &mut StoreStatfs, compressed: &Compressed) {
    statfs.data_compressed = compressed.stored as i64;
    statfs.data_compressed_allocated = compressed.allocated as i64;
    statfs.data_compressed_original = compressed.original as i64;
}

/// The data device is slow at flushes: code and text of the health check.
fn slow_flush(disk: &dyn Disk) -> Option<(String, String)> {
    let (facts, device) = (disk.facts(), disk.device());
    let learned = device.is_learned().then(|| Duration::from_nanos(device.cost(Io::Flush, 0)));
    let took = facts.flush.filter(|_| facts.is_slow_still(learned))?;
    let text = format!("flushes of its data device take {:.1} ms", took.as_secs_f64() * 1000.0);
    Some(("OSD_SLOW_FLUSH".to_owned(), text))
}
