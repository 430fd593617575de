//! An OSD in its world: one endpoint for clients, monitors, manager and other OSDs; the core; its store.
//!
//! Room: node.   Owns: `OsdNode`.   Hears: `Input`.   Says: bytes, wake-ups, admin replies.
//! Holds: nothing is decided here about data; whoever speaks as `osd.N` has shown that name's ticket or was dialled at
//! the address the map gives it.

use crate::gate::{Gate, Modes};
use crate::messenger::{carry_out, network_timers};
use crate::world::{Input, Node, World};
use admin::command::Reply;
use admin::{Command, socket};
use auth::{OsdCaps, mode};
use bytes::Bytes;
use client::{MonClient, MonClientConfig, MonClientEvent};
use msgr::{Action, Config, ConnId, Endpoint, Event, Fault, PeerInfo, Policy, SockId};
use osd::{Effect, LoadError, Osd, OsdConfig, Peer, SessionId, SessionInfo};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use store::{BlockDev, IoId, Kv, Pressure, Store};
use types::msg::internal_osd::OsdPing;
use types::msg::{MCommand, MCommandReply, Message, RawMessage};
use types::{AddrVec, EntityAddr, EntityKind, Errno, Mono, Now, OsdId, features};

/// How long a stopping OSD waits for the map to say that it is down.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Everything an OSD process is told when it starts.
pub struct OsdNodeConfig {
    pub osd: OsdConfig,
    pub mon: MonClientConfig,
}

/// One OSD daemon.
pub struct OsdNode<D: BlockDev, K: Kv> {
    endpoint: Endpoint,
    mon: MonClient,
    gate: Gate,
    osd: Osd,
    store: Store<D, K>,
    effects: Vec<Effect>,
    /// Empty.
    spare_effects: Vec<Effect>,
    peers: Peers,
    mgr: Option<(AddrVec, ConnId)>,
    commands: BTreeMap<u64, Asker>,
    next_command: u64,
    subscribed: bool,
    /// Clients' sockets that are not read from.
    held_up: BTreeSet<SockId>,
    stopping: Option<Mono>,
    stopped: Option<i32>,
    on_config: Option<OnConfig>,
}

/// Somebody who wants to hear what the monitors say of options: every option that is set for this daemon.
pub type OnConfig = Box<dyn FnMut(&BTreeMap<String, String>)>;

/// Sessions with other OSDs.
#[derive(Default)]
struct Peers {
    by_osd: BTreeMap<OsdId, (AddrVec, ConnId)>,
    /// Connections of ours for pings over the public network, where OSDs have one of their own.
    fronts: BTreeMap<OsdId, (AddrVec, ConnId)>,
    /// Theirs to us, too. Who came over the public network is `Peer::Front`.
    by_conn: BTreeMap<ConnId, Peer>,
    /// Sockets being dialled: if they are refused, the OSD there is gone.
    dials: BTreeMap<SockId, SocketAddr>,
}

/// Who waits for a command's answer.
enum Asker {
    Session { conn: ConnId, tid: u64 },
    Admin { id: u64 },
}

impl<D: BlockDev, K: Kv> OsdNode<D, K> {
    /// An OSD on its mounted store; it listens where `config.osd.addrs` and `cluster_addrs` say, which the caller binds.
    pub fn new(config: OsdNodeConfig, mut store: Store<D, K>, now: Now, seed: [u8; 32]) -> Result<Self, LoadError> {
        let mut rng = ChaCha8Rng::from_seed(seed);
        let mut endpoint = Config::new(
            EntityKind::OSD,
            config.osd.whoami.0.into(),
            config.osd.addrs.clone(),
            features::SUPPORTED,
        );
        endpoint.back_addrs = config.osd.cluster_addrs.clone();
        endpoint.accept = vec![(EntityKind::OSD, Policy::LosslessPeer)];
        let mut endpoint = Endpoint::new(endpoint, rand::Rng::random(&mut rng));
        let mut osd = Osd::load(config.osd, &mut store, rand::Rng::random(&mut rng))?;
        let mut mon = MonClient::new(config.mon, rand::Rng::random(&mut rng));
        let gate = Gate::new(EntityKind::OSD, Modes::default(), ChaCha8Rng::from_rng(&mut rng));
        mon.start(now, &mut endpoint);
        mon.subscribe(now, &mut endpoint, "mgrmap", 0, false);
        let mut effects = Vec::new();
        osd.start(now, &mut store, &mut effects);
        let mut node = OsdNode {
            endpoint,
            mon,
            gate,
            osd,
            store,
            effects,
            spare_effects: Vec::new(),
            peers: Peers::default(),
            mgr: None,
            commands: BTreeMap::new(),
            next_command: 1,
            subscribed: false,
            held_up: BTreeSet::new(),
            stopping: None,
            stopped: None,
            on_config: None,
        };
        node.follow_modes();
        Ok(node)
    }

    /// Sessions that begin from now on are as options say.
    fn follow_modes(&mut self) {
        let modes = Modes::of(|name| self.osd.option(name));
        let to_mon = mode::parse(&self.osd.option("ms_mon_client_mode")).unwrap_or_default();
        self.mon.set_modes(to_mon, modes.daemons.clone());
        self.gate.set_modes(modes);
    }

    /// Has somebody told whatever the monitors say of options from now on.
    pub fn on_config(&mut self, hear: OnConfig) {
        self.on_config = Some(hear);
    }

    /// The core, for tools and tests that look at its state.
    pub fn osd(&self) -> &Osd {
        &self.osd
    }

    /// Gives the store back: what a simulated daemon is started from again.
    pub fn into_store(self) -> Store<D, K> {
        self.store
    }

    /// Handles everything there is to handle until nobody has anything to say.
    fn pump<W: World>(&mut self, world: &mut W) {
        let now = world.now();
        loop {
            let mut idle = true;
            while let Some(event) = self.endpoint.poll_event() {
                idle = false;
                let sender = if let Event::Message { conn, .. } = &event { Some(*conn) } else { None };
                self.on_event(now, event);
                if let Some(conn) = sender.filter(|_| !self.osd.wants_requests()) {
                    self.hold_up(world, conn);
                }
            }
            while let Some(event) = self.mon.poll_event() {
                idle = false;
                self.on_mon(now, event);
            }
            if !self.effects.is_empty() {
                idle = false;
                // Its memory is used again: there are effects in every turn.
                let mut effects = std::mem::replace(&mut self.effects, std::mem::take(&mut self.spare_effects));
                effects.drain(..).for_each(|effect| self.on_effect(world, effect));
                self.spare_effects = effects;
            }
            if idle {
                return;
            }
        }
    }

    /// A client has sent as much as may be under way, or more: for now it is not read from.
    fn hold_up<W: World>(&mut self, world: &mut W, conn: ConnId) {
        let is_client = self.gate.visitor(conn).is_some_and(|v| v.name.kind != EntityKind::OSD);
        if let Some(sock) = self.endpoint.sock_of(conn).filter(|_| is_client)
            && self.held_up.insert(sock)
        {
            world.set_reading(sock, false);
        }
    }

    fn on_event(&mut self, now: Now, event: Event) {
        let Some(event) = self.mon.handle_event(now, &mut self.endpoint, event) else { return };
        let event = self.gate.handle(&mut self.endpoint, self.mon.secrets(), event);
        if self.gate.wants_secrets() {
            self.mon.refresh_secrets(now, &mut self.endpoint);
        }
        let Some(event) = event else { return };
        match event {
            Event::Ready { conn, peer } => self.on_ready(conn, peer),
            Event::Message { conn, msg } => self.on_message(now, conn, msg),
            Event::Reset { conn, why } => self.on_reset(now, conn, why),
            // Is it there? A connection that is refused tells at once what heartbeats would in a while.
            Event::Standby { conn } => {
                if let Some(peer @ Peer::Osd(_)) = self.peers.by_conn.get(&conn).copied() {
                    self.send(now, peer, 0, &OsdPing { is_reply: false, mono_ns: now.mono.0 }.into());
                }
            }
            _ => {}
        }
    }

    /// A session is open. Those we dialled are known already.
    fn on_ready(&mut self, conn: ConnId, peer: PeerInfo) {
        let Some(visitor) = self.gate.visitor(conn) else { return };
        if visitor.name.kind == EntityKind::OSD {
            if let Ok(id) = visitor.name.id.parse().map(OsdId) {
                self.peers.by_conn.insert(conn, if peer.lossy { Peer::Front(id) } else { Peer::Osd(id) });
                if !peer.lossy {
                    // It may be we who dial it when it loses its socket.
                    self.mon.own_service(conn, EntityKind::OSD);
                }
            }
            return;
        }
        self.peers.by_conn.remove(&conn);
        let caps = visitor.caps.parse::<OsdCaps>().unwrap_or_default();
        let info = SessionInfo {
            name: visitor.name.clone(),
            inst: visitor.inst(&peer),
            addr: peer.addrs.0.first().copied().unwrap_or_default(),
            caps,
        };
        self.osd.open_session(SessionId(conn.0), info);
    }

    fn on_reset(&mut self, now: Now, conn: ConnId, why: Fault) {
        if let Some(Peer::Front(_)) = self.peers.by_conn.get(&conn) {
            self.peers.by_conn.remove(&conn);
            return self.peers.fronts.retain(|_, (_, c)| *c != conn);
        }
        if let Some(Peer::Osd(osd)) = self.peers.by_conn.get(&conn).copied() {
            if why == Fault::SessionReset {
                tracing::warn!(%osd, "forgot our session: what was under way is said again");
                return self.osd.handle_peer_reset(now, &mut self.store, osd, &mut self.effects);
            }
            self.osd.handle_peer_lost(osd);
            self.peers.by_conn.remove(&conn);
            self.peers.by_osd.retain(|_, (_, c)| *c != conn);
            return;
        }
        if self.mgr.as_ref().is_some_and(|(_, c)| *c == conn) {
            self.mgr = None;
            return;
        }
        self.commands.retain(|_, asker| !matches!(asker, Asker::Session { conn: c, .. } if *c == conn));
        self.osd.close_session(now, &mut self.store, SessionId(conn.0), &mut self.effects);
    }

    fn on_message(&mut self, now: Now, conn: ConnId, raw: RawMessage) {
        let msg = match Message::decode(&raw) {
            Ok(msg) => msg,
            Err(e) => {
                tracing::warn!(?conn, "{e}");
                return;
            }
        };
        let from = match self.peers.by_conn.get(&conn) {
            Some(osd) => *osd,
            None if self.mgr.as_ref().is_some_and(|(_, c)| *c == conn) => {
                match msg {
                    Message::OsdScrub(order) => self.osd.handle_scrub_order(&order),
                    Message::OsdYield(order) => self.osd.handle_yield(now, &order),
                    Message::OsdForceCreate(order) => {
                        self.osd.handle_force_create(now, &mut self.store, order.pgid, &mut self.effects);
                    }
                    Message::OsdForceRecovery(order) => {
                        self.osd.handle_force_order(now, &mut self.store, &order, &mut self.effects);
                    }
                    _ => {}
                }
                return;
            }
            None if self.mon.conn() == Some(conn) && matches!(msg, Message::MonCopy(_)) => {
                if let Message::MonCopy(m) = msg {
                    self.osd.handle_mon_copy(now, &mut self.store, m.copy, &mut self.effects);
                }
                return;
            }
            // What else a monitor says, its word that we are down, stands in the next map too.
            None if self.mon.conn() == Some(conn) => return,
            None => Peer::Session(SessionId(conn.0)),
        };
        match (from, msg) {
            // Over the connection it came on: the map may say that the asker is down.
            (Peer::Osd(_) | Peer::Front(_), Message::OsdPing(m)) if !m.is_reply => {
                let answer = Message::from(OsdPing { is_reply: true, ..m });
                self.endpoint.send(now, conn, answer.to_raw(features::SUPPORTED));
            }
            (Peer::Front(osd), msg) if !matches!(msg, Message::OsdPing(_)) => tracing::warn!(%osd, kind = msg.name(), "not over the public network"),
            (Peer::Session(_), Message::MCommand(m)) => self.on_command(now, conn, raw.tid, &m),
            (Peer::Session(_), msg) if !is_clients(&msg) => tracing::warn!(?conn, kind = msg.name(), "not from a client"),
            (from, msg) => self.osd.handle_message(now, &mut self.store, from, raw.tid, msg, &mut self.effects),
        }
    }

    fn on_mon(&mut self, now: Now, event: MonClientEvent) {
        match event {
            MonClientEvent::OsdMap(m) => self.osd.handle_maps(now, &mut self.store, &m, &mut self.effects),
            MonClientEvent::SessionOpened => self.osd.handle_mon_session(now, &mut self.store, &mut self.effects),
            MonClientEvent::Config(config) => {
                self.osd.handle_config(&config);
                self.follow_modes();
                if let Some(hear) = &mut self.on_config {
                    hear(&config);
                }
            }
            MonClientEvent::MgrMap(map) => {
                if let Some((_, conn)) = self.mgr.take_if(|(addrs, _)| *addrs != map.active_addrs) {
                    self.endpoint.close(conn);
                    self.mon.forget_service(conn);
                }
                if self.mgr.is_none() && !map.active_addrs.is_blank() {
                    self.osd.handle_manager(now, &mut self.store, &mut self.effects);
                }
            }
            MonClientEvent::AuthFailed { errno } => tracing::error!("the monitors refuse us: {errno}"),
            MonClientEvent::ServiceRefused { conn, kind, errno } => {
                tracing::error!(kind = kind.name(), "refuses us: {errno}");
                self.on_reset(now, conn, Fault::Closed);
            }
            _ => {}
        }
    }

    fn on_effect<W: World>(&mut self, world: &mut W, effect: Effect) {
        let now = world.now();
        match effect {
            Effect::Send { to, tid, msg } => {
                if let Message::MLog(log) = &msg {
                    log.entries.iter().for_each(|entry| world.hear(entry));
                }
                self.send(now, to, tid, &msg);
            }
            Effect::WantMaps { from } => {
                // The subscription goes on for good; the monitor client remembers how far it has come.
                if !std::mem::replace(&mut self.subscribed, true) {
                    self.mon.subscribe(now, &mut self.endpoint, "osdmap", from.0.into(), false);
                }
            }
            Effect::CommandReply { id, reply } => self.answer(world, id, reply),
            Effect::Stop { why } => {
                tracing::error!("ending: {why}");
                self.stopped = Some(1);
            }
        }
    }

    fn send(&mut self, now: Now, to: Peer, tid: u64, msg: &Message) {
        let mut raw = msg.to_raw(features::SUPPORTED);
        raw.tid = tid;
        match to {
            Peer::Session(SessionId(conn)) => self.endpoint.send(now, ConnId(conn), raw),
            Peer::Mon => self.mon.send(now, &mut self.endpoint, raw),
            Peer::Osd(osd) | Peer::Front(osd) => {
                if let Some(conn) = self.osd_conn(now, osd, to == Peer::Front(osd)) {
                    self.endpoint.send(now, conn, raw);
                }
            }
            Peer::Mgr => {
                if let Some(conn) = self.mgr_conn(now) {
                    self.endpoint.send(now, conn, raw);
                }
            }
        }
    }

    /// The session with an OSD at its current address, or the connection for pings over the public network.
    fn osd_conn(&mut self, now: Now, osd: OsdId, front: bool) -> Option<ConnId> {
        let map = self.osd.map();
        let (addrs, conns, policy, peer) = match front {
            false => (map.cluster_addrs(osd), &mut self.peers.by_osd, Policy::LosslessPeer, Peer::Osd(osd)),
            true => (map.hb_front_addrs(osd), &mut self.peers.fronts, Policy::LossyClient, Peer::Front(osd)),
        };
        let addrs = addrs.filter(|_| map.is_up(osd))?;
        match conns.get(&osd) {
            Some((known, conn)) if known == addrs => return Some(*conn),
            Some((_, conn)) => {
                self.endpoint.close(*conn);
                self.mon.forget_service(*conn);
                self.gate.forget(*conn);
                self.peers.by_conn.remove(conn);
            }
            None => {}
        }
        let conn = self.mon.dial_service(now, &mut self.endpoint, EntityKind::OSD, addrs, policy);
        conns.insert(osd, (addrs.clone(), conn));
        self.peers.by_conn.insert(conn, peer);
        Some(conn)
    }

    fn mgr_conn(&mut self, now: Now) -> Option<ConnId> {
        if let Some((_, conn)) = &self.mgr {
            return Some(*conn);
        }
        let addrs = self.mon.mgrmap().filter(|m| !m.active_addrs.is_blank())?.active_addrs.clone();
        let conn = self.mon.dial_service(now, &mut self.endpoint, EntityKind::MGR, &addrs, Policy::LossyClient);
        self.mgr = Some((addrs, conn));
        Some(conn)
    }

    fn on_command(&mut self, now: Now, conn: ConnId, tid: u64, m: &MCommand) {
        self.next_command += 1;
        let id = self.next_command;
        self.commands.insert(id, Asker::Session { conn, tid });
        let allowed = self.gate.visitor(conn).is_some_and(|v| v.caps.parse::<OsdCaps>().is_ok_and(|c| c.allows_all()));
        let command = match allowed {
            true => Command::parse(&m.cmd),
            false => Err(admin::CommandError::new(Errno::EPERM, "")),
        };
        self.run_command(now, id, command);
    }

    fn run_command(&mut self, now: Now, id: u64, command: Result<Command, admin::CommandError>) {
        let (totals, open) = (self.endpoint.totals(), self.endpoint.session_count());
        self.osd.note_traffic(osd::Traffic {
            received: totals.received,
            sent: totals.sent,
            bytes_received: totals.bytes_received,
            bytes_sent: totals.bytes_sent,
            created: totals.connections,
            open: open as u64,
        });
        match command {
            Ok(command) => self.osd.handle_command(now, &mut self.store, id, &command, &mut self.effects),
            Err(e) => self.effects.push(Effect::CommandReply { id, reply: e.into() }),
        }
    }

    fn on_admin<W: World>(&mut self, world: &mut W, id: u64, request: &Bytes) {
        // The world gives us the request without its terminator.
        let whole = [request.as_ref(), &[0]].concat();
        let raw = if request.len() == 4 && request.first() == Some(&0) { request.as_ref() } else { &whole };
        match socket::request(raw) {
            socket::Request::Version => {
                let reply = Reply::output(socket::VERSION);
                world.admin_reply(id, payload(&reply));
            }
            socket::Request::Command(command) => {
                self.next_command += 1;
                self.commands.insert(self.next_command, Asker::Admin { id });
                self.run_command(world.now(), self.next_command, command);
            }
            socket::Request::Incomplete => {
                let reply = Reply::from(admin::CommandError::invalid("invalid json"));
                world.admin_reply(id, payload(&reply));
            }
        }
    }

    fn answer<W: World>(&mut self, world: &mut W, id: u64, reply: Reply) {
        match self.commands.remove(&id) {
            Some(Asker::Admin { id }) => world.admin_reply(id, payload(&reply)),
            Some(Asker::Session { conn, tid }) => {
                let data = Bytes::from(reply.output).into();
                let msg = MCommandReply { result: reply.result, status: reply.status.into(), data };
                let mut raw = types::msg::WireMessage::to_raw(&msg, features::SUPPORTED);
                raw.tid = tid;
                self.endpoint.send(world.now(), conn, raw);
            }
            None => {}
        }
    }

    fn on_network<W: World>(&mut self, world: &mut W, input: Input) {
        let now = world.now();
        match input {
            Input::Accepted { sock, peer, local } => self.endpoint.handle_accepted(now, sock, peer, local),
            Input::Connected { sock, local } => {
                self.peers.dials.remove(&sock);
                self.endpoint.handle_connected(now, sock, local);
            }
            Input::Bytes { sock, data } => {
                self.endpoint.handle_bytes(now, sock, data);
                // What is written as it lies need not be copied for the device.
                if let Some(data) = self.endpoint.expected(sock) {
                    world.expect(sock, data);
                }
            }
            Input::Closed { sock, refused } => {
                let dialled = self.peers.dials.remove(&sock);
                if let Some(osd) = dialled.filter(|_| refused).and_then(|addr| self.osd_at(addr)) {
                    self.osd.handle_peer_refused(now, &mut self.store, osd, &mut self.effects);
                }
                self.endpoint.handle_closed(now, sock);
            }
            Input::Io { id, result } => self.store.handle_io(now, IoId(id), result),
            Input::Admin { id, request } => self.on_admin(world, id, &request),
            Input::Stop => {
                if self.stopping.is_none() {
                    self.stopping = Some(now.mono + STOP_PATIENCE);
                    if !self.osd.prepare_stop(&mut self.effects) {
                        self.stopped = Some(0);
                    }
                }
            }
            Input::Wake => {}
        }
    }

    /// The OSD that the map says is at an address.
    fn osd_at(&self, addr: SocketAddr) -> Option<OsdId> {
        let at = |a: &EntityAddr| a.sock == Some(addr);
        let all = self.peers.by_osd.iter().chain(&self.peers.fronts);
        let mut there = all.filter(|(_, (addrs, _))| addrs.0.iter().any(at));
        there.next().map(|(osd, _)| *osd)
    }

    fn timers<W: World>(&mut self, world: &W) {
        let now = world.now();
        network_timers(&mut self.endpoint, world);
        if self.mon.next_timeout().is_some_and(|at| at <= now.mono) {
            self.mon.handle_timeout(now, &mut self.endpoint);
        }
        self.store.handle_timeout(now);
        if self.osd.next_timeout().is_some_and(|at| at <= now.mono) {
            self.osd.handle_timeout(now, &mut self.store, &mut self.effects);
        }
    }

    fn actions<W: World>(&mut self, world: &mut W) {
        while let Some(action) = self.endpoint.poll_action() {
            match &action {
                Action::Dial { sock, addr } => drop(self.peers.dials.insert(*sock, *addr)),
                Action::Close { sock } => drop(self.peers.dials.remove(sock)),
                Action::Transmit { .. } => {}
            }
            carry_out(world, action);
        }
        let times = [self.endpoint.next_timeout(), self.mon.next_timeout(), self.osd.next_timeout(), self.store.next_timeout(), self.stopping];
        if let Some(at) = times.into_iter().flatten().min() {
            world.wake_at(at);
        }
    }

    /// A stopping OSD ends when the map says it is down, or it has waited long enough, and its store is at rest.
    fn maybe_stopped(&mut self, now: Now) {
        let Some(deadline) = self.stopping else { return };
        let said = !self.osd.is_booted() || now.mono >= deadline;
        if said && (self.store.is_idle() || now.mono >= deadline + STOP_PATIENCE) {
            self.stopped = Some(0);
        }
    }
}

/// A reply as the world wants it: it writes the length itself.
fn payload(reply: &Reply) -> Bytes {
    Bytes::from(socket::reply(reply)).slice(4..)
}

/// What clients may send to an OSD.
fn is_clients(msg: &Message) -> bool {
    matches!(msg, Message::MOsdOp(_) | Message::MOsdBackoff(_) | Message::MPing(_))
}

impl<W: World, D: BlockDev, K: Kv> Node<W> for OsdNode<D, K> {
    fn handle(&mut self, world: &mut W, input: Input) {
        self.on_network(world, input);
        self.timers(world);
        self.pump(world);
    }

    /// The store is asked here and not after every input: what a batch of inputs submitted shares one flush.
    fn settle(&mut self, world: &mut W) {
        loop {
            self.pump(world);
            let Some(event) = self.store.poll_event() else { break };
            self.osd.handle_store(world.now(), &mut self.store, event, &mut self.effects);
        }
        if self.stopped.is_some_and(|code| code != 0) {
            // The store failed, perhaps in the middle of this turn: what was said since may rest on what could not be read.
            return;
        }
        if !self.held_up.is_empty() && self.osd.wants_requests() {
            std::mem::take(&mut self.held_up).into_iter().for_each(|sock| world.set_reading(sock, true));
        }
        self.actions(world);
        self.maybe_stopped(world.now());
    }

    fn lend_memory(&mut self, resident: u64) {
        self.store.lend_memory(resident);
    }

    fn fit_memory(&mut self, resident: u64) -> Pressure {
        let pressure = self.store.fit_memory(resident);
        self.osd.note_pressure(pressure);
        pressure
    }

    fn stopped(&self) -> Option<i32> {
        self.stopped
    }
}
