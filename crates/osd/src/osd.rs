//! The OSD as a whole: maps, sessions, and the PGs behind them.
//!
//! Room: osd core.   Owns: `Osd`.   Hears: messages by sender, store events, time, sessions.   Says: effects.
//! Holds: a message that speaks of a newer map waits for that map, in the order of its sender.

use crate::disk::Disk;
use crate::effects::{Cx, Durable, Effect, Peer, PgStep, SessionId, Shared, TxcRoute};
use crate::heartbeat::Heartbeats;
use crate::intake::{Intake, Share};
use crate::probation::Probation;
use crate::lease::Leases;
use crate::maps::{self, Maps};
use crate::ops::{self, Fetched, Limits};
use crate::perf::Perf;
use crate::pg::{ClientOp, Mapping, OpSource, Pg, Walk, advance_all};
use crate::reserver::Reserver;
use crate::sessions::{Session, SessionInfo, Sessions};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use store::{DeviceProfile, META_COLL, StoreEvent, Transaction};
use types::map::{OsdMap, PgPool};
use types::msg::internal_osd::{OsdSessionLost, PeerInfo, PgBody, RepOp, RepOpReply};
use types::msg::mon::MOsdMap;
use types::msg::osd::{MOsdBackoff, MOsdOp, MOsdOpReply, OpResult, osd_flag};
use types::msg::{BufList, Message};
use types::{AddrVec, Epoch, Errno, EntityInst, EntityKind, HObject, Mono, Now, OsdId, PgId, ReqId};
use uuid::Uuid;

/// Messages that wait for a map, at most; what is beyond is dropped and sent again by whoever sent it.
const WAITING_MAX: usize = 100_000;

/// Who an OSD is and how it behaves.
#[derive(Debug, Clone)]
pub struct OsdConfig {
    pub whoami: OsdId,
    pub fsid: Uuid,
    pub uuid: Uuid,
    /// What the map is to say of us.
    pub addrs: AddrVec,
    pub cluster_addrs: AddrVec,
    /// What `ceph osd metadata` shows.
    pub metadata: BTreeMap<String, String>,
    /// `hdd`, `ssd`, `nvme`; empty when unknown.
    pub device_class: String,
    /// Type to name.
    pub crush_location: BTreeMap<String, String>,
    pub limits: Limits,
    /// What the machine has.
    pub memory: crate::memory::HostMemory,
    /// `osd_min_pg_log_entries`.
    pub log_entries_max: usize,
    /// Options as file and command line set them.
    pub options: Option<admin::option::ConfigValues>,
}

/// An OSD.
pub struct Osd {
    pub(crate) config: OsdConfig,
    pub(crate) sh: Shared,
    pub(crate) maps: Maps,
    pub(crate) pgs: BTreeMap<PgId, Pg>,
    pub(crate) sessions: Sessions,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) probation: Probation,
    pub(crate) clock: crate::report::Clock,
    pub(crate) keep: crate::keep::Keep,
    /// The map by which the store was told how to behave, and whether the disk was slow; none if options have changed since.
    pub(crate) store_told: Option<(Epoch, bool)>,
    pub(crate) commands: crate::command::Commands,
    pub(crate) merging: crate::merging::Merging,
    pub(crate) slow: crate::slow::Slow,
    pub(crate) loggers: crate::loggers::Loggers,
    pub(crate) memory: crate::memory::Plan,
    /// The plan that the store has been told of.
    pub(crate) memory_told: Option<crate::memory::Plan>,
    pub(crate) capacity: crate::capacity::Capacity,
    pub(crate) device_busy: crate::device_report::Busy,
    /// Until then background work leaves the device to clients of its neighbours.
    pub(crate) yields_until: Mono,
    pub(crate) promise: crate::report::Promise,
    waiting: VecDeque<Waiting>,
    pub(crate) intake: Intake,
    /// OSDs whose session ended before it began.
    lost_peers: BTreeSet<OsdId>,
}

/// A message that waits for a map.
struct Waiting {
    epoch: Epoch,
    from: Peer,
    tid: u64,
    msg: Message,
    /// What it has of the intake, if a client asks.
    #[expect(dead_code, reason = "it counts for as long as it is here")]
    share: Option<Rc<Share>>,
}

/// Why an OSD cannot start from its store.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the store cannot be read: {0}")]
    Store(Errno),
    #[error("placement group {pg} cannot be read: {errno}")]
    Pg { pg: PgId, errno: Errno },
}

impl Osd {
    /// Reads what the store holds. `seed` makes its choices.
    pub fn load(config: OsdConfig, disk: &mut dyn Disk, seed: [u8; 32]) -> Result<Osd, LoadError> {
        let maps = Maps::load(disk, config.fsid).map_err(LoadError::Store)?;
        let mut pgs = BTreeMap::new();
        for (coll, _) in disk.collections() {
            let Some(id) = crate::pg::pg_of(coll) else { continue };
            let pg = Pg::load(disk, coll).map_err(|errno| LoadError::Pg { pg: id, errno })?;
            pgs.extend(pg.map(|pg| (id, pg)));
        }
        let keep = crate::keep::Keep::load(disk).map_err(LoadError::Store)?;
        let commands = crate::command::Commands::new(&config);
        let memory = crate::memory::Plan::new(&commands.config, config.memory, 1);
        let mut sh = Shared {
            whoami: config.whoami,
            map: maps.newest.clone(),
            limits: config.limits.clone(),
            striping: BTreeMap::new(),
            rng: ChaCha8Rng::from_seed(seed),
            perf: Perf::default(),
            device_perf: Default::default(),
            history: Default::default(),
            stats_seq: 0,
            booted: false,
            born: maps::born(disk).map_err(LoadError::Store)?,
            next_txc: 0,
            next_read: 0,
            next_op: 0,
            next_push: 0,
            next_notify: 1,
            next_scrub: 0,
            txcs: BTreeMap::new(),
            commit_latency: Default::default(),
            placing: BTreeMap::new(),
            placed: Default::default(),
            next_place: 0,
            reads: BTreeMap::new(),
            orphaned: Default::default(),
            alive_wanted: Epoch(0),
            recovery_active: 0,
            recovery_bytes: 0,
            recovery_max: commands.recovery_max(&config.device_class),
            recovery_max_alone: commands.recovery_max_alone(&config.device_class),
            client_seen: Mono::default(),
            merge_news: false,
            recovery_pace: Default::default(),
            recovery_flow: Default::default(),
            felt: Default::default(),
            disk_is_slow: false,
            way_is_slow: false,
            shares: crate::shares::shares(&commands.config),
            recovery_freed: false,
            removals: Default::default(),
            recount_budget: 0,
            squeezed: false,
            spaces: Default::default(),
            leases: Leases::new(commands.lease()),
            own_space: Default::default(),
            local_slots: Reserver::new(commands.max_backfills()),
            remote_slots: Reserver::new(commands.max_backfills()),
            scrub: crate::pg::ScrubOptions::new(&commands.config),
            scrubs_active: 0,
            trim: crate::pg::TrimOptions::new(&commands.config),
            trimming: Default::default(),
            clog_seq: 0,
            shards_repaired: 0,
            scan_min: 64,
            scan_max: 512,
            log_entries_max: config.log_entries_max,
            log_entries_degraded: config.log_entries_max,
            log_dups_tracked: commands.log_dups_tracked(),
        };
        sh.handle_map(maps.newest.clone());
        let mut osd = Osd {
            config,
            sh,
            maps,
            pgs,
            sessions: Sessions::new(),
            heartbeats: Heartbeats::default(),
            probation: Probation::default(),
            clock: Default::default(),
            keep,
            store_told: None,
            commands,
            merging: Default::default(),
            slow: Default::default(),
            loggers: Default::default(),
            memory,
            memory_told: None,
            capacity: Default::default(),
            device_busy: Default::default(),
            yields_until: Mono(0),
            promise: Default::default(),
            waiting: VecDeque::new(),
            intake: Intake::default(),
            lost_peers: BTreeSet::new(),
        };
        if osd.config.options.is_some() {
            osd.apply_options();
        }
        Ok(osd)
    }

    /// Begins: asks for maps from where ours end.
    pub fn start(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        self.sh.leases.start(now.mono);
        self.configure_store(disk);
        if !disk.collections().iter().any(|(c, _)| *c == META_COLL) {
            let mut txn = Transaction::new(META_COLL);
            txn.create_coll(0);
            self.sh.born = maps::UNBORN;
            maps::put_born(&mut txn, self.sh.born);
            Cx { now, disk, sh: &mut self.sh, fx }.submit(txn);
        }
        self.catch_up(now, disk, fx);
        fx.push(Effect::WantMaps { from: self.maps.wanted() });
    }

    /// A crash may have kept maps whose consequences for PGs it lost: they are walked again.
    fn catch_up(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        let Some(from) = self.pgs.values().map(|pg| pg.walk.since).min() else { return };
        let mut old: Option<OsdMap> = None;
        for epoch in from.max(self.maps.oldest()).0..=self.maps.epoch().0 {
            let mut map = None;
            self.maps.replay(disk, Epoch(epoch), Epoch(epoch + 1), |m| map = Some(m.clone()));
            let Some(map) = map else { continue };
            if let Some(old) = &old {
                let mut cx = Cx { now, disk: &mut *disk, sh: &mut self.sh, fx: &mut *fx };
                advance_all(&mut self.pgs, &mut cx, old, &map);
            }
            old = Some(map);
        }
    }

    /// A session with a client is open.
    pub fn open_session(&mut self, id: SessionId, info: SessionInfo) {
        self.sessions.insert(id, Session { info, epoch: Epoch(0) });
    }

    /// A session with a client is gone.
    pub fn close_session(&mut self, now: Now, disk: &mut dyn Disk, id: SessionId, fx: &mut Vec<Effect>) {
        if self.sessions.remove(&id).is_some() {
            let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
            self.pgs.values_mut().for_each(|pg| pg.handle_session_lost(&mut cx, id));
        }
    }

    /// A message from a client or another OSD.
    pub fn handle_message(&mut self, now: Now, disk: &mut dyn Disk, from: Peer, tid: u64, msg: Message, fx: &mut Vec<Effect>) {
        self.dispatch(now, disk, from, tid, msg, fx);
        self.loop_back(now, disk, fx);
    }

    /// Another OSD forgot its session with us, and did not restart: what was said on it may never have been heard.
    pub fn handle_peer_reset(&mut self, now: Now, disk: &mut dyn Disk, osd: OsdId, fx: &mut Vec<Effect>) {
        self.probation.handle_peer_lost(osd);
        let msg = OsdSessionLost { osd: self.sh.whoami };
        fx.push(Effect::Send { to: Peer::Osd(osd), tid: 0, msg: msg.into() });
        self.ask_peer_again(now, disk, osd, fx);
        self.loop_back(now, disk, fx);
    }

    /// The session with another OSD could not be had: soon it is tried again.
    pub fn handle_peer_lost(&mut self, osd: OsdId) {
        self.lost_peers.insert(osd);
        self.probation.handle_peer_lost(osd);
    }

    /// Maps from a monitor.
    pub fn handle_maps(&mut self, now: Now, disk: &mut dyn Disk, m: &MOsdMap, fx: &mut Vec<Effect>) {
        self.take_maps(now, disk, m, true, fx);
        self.loop_back(now, disk, fx);
    }

    /// The store has something to say.
    pub fn handle_store(&mut self, now: Now, disk: &mut dyn Disk, event: StoreEvent, fx: &mut Vec<Effect>) {
        match event {
            StoreEvent::Committed(txc) => {
                if let Some(took) = self.sh.commit_latency.committed(txc, now.mono) {
                    self.sh.perf.push_done(took);
                }
                if let Some(route) = self.sh.txcs.remove(&txc) {
                    self.committed(now, disk, route, fx);
                }
            }
            StoreEvent::ReadDone { id, result } => {
                if let Some(route) = self.sh.reads.remove(&id) {
                    let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
                    if let Some(pg) = self.pgs.get_mut(&route.pgid) {
                        pg.handle_read(&mut cx, id, route, result);
                    }
                }
            }
            StoreEvent::Placed { id, placed } => {
                self.sh.placed = placed;
                let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
                if let Some(m) = cx.sh.placing.remove(&id) {
                    with_pg(&mut self.pgs, m.pgid, |pg| pg.handle_peer(&mut cx, m));
                }
                let unwanted = std::mem::take(&mut cx.sh.placed);
                cx.disk.give_back(unwanted);
            }
            StoreEvent::ChecksumError { coll, obj, off, device_off, expected, actual } => {
                let (expected, actual) = (format_args!("{expected:#010x}"), format_args!("{actual:#010x}"));
                tracing::error!(%coll, object = ?obj, off, device_off, %expected, %actual, "wrong checksum on read");
                self.clock.read_errors += 1;
            }
            StoreEvent::Poisoned(e) => fx.push(Effect::Stop { why: format!("the store failed: {e}") }),
        }
        self.loop_back(now, disk, fx);
    }

    /// False while clients have asked for as much as they may at a time: who has just asked should not be listened to until
    /// some of it is answered (`osd_client_message_size_cap`, `osd_client_message_cap`).
    pub fn wants_requests(&self) -> bool {
        self.intake.has_room()
    }

    /// How the process's memory is: while it has much too much, no more is begun than has to be.
    pub fn note_pressure(&mut self, pressure: store::Pressure) {
        self.sh.squeezed = pressure == store::Pressure::Much;
        self.intake.squeezed = self.sh.squeezed;
    }

    /// Epoch of the newest map.
    pub fn epoch(&self) -> Epoch {
        self.maps.epoch()
    }

    /// The newest map.
    pub fn map(&self) -> &Arc<OsdMap> {
        &self.maps.newest
    }

    /// The state of a PG as this OSD has it; `None` if it holds no copy.
    pub fn pg_state(&self, pg: PgId) -> Option<types::pg::PgState> {
        self.pgs.get(&pg).map(Pg::state)
    }

    /// Objects and bytes of a PG as this OSD has counted them.
    pub fn pg_totals(&self, pg: PgId) -> Option<(i64, i64)> {
        self.pgs.get(&pg).map(|pg| (pg.totals.objects, pg.totals.bytes))
    }

    /// One line on where a PG stands here, for logs of simulations.
    pub fn pg_line(&self, pg: PgId) -> String {
        self.pgs.get(&pg).map_or_else(|| "absent".into(), Pg::line)
    }

    /// True if the map says that we are up, as the instance we are.
    pub fn is_booted(&self) -> bool {
        self.sh.booted
    }

    /// An option in force, as text. Panics for one that is not in the table.
    pub fn option(&self, name: &str) -> String {
        self.commands.config.str(name)
    }

    /// Tells the store how to behave, if maps or options have changed since, or what is known of the device.
    pub(crate) fn configure_store(&mut self, disk: &mut dyn Disk) {
        let told = Some((self.maps.epoch(), self.sh.disk_is_slow));
        if self.store_told == told {
            return;
        }
        self.store_told = told;
        let config = &self.commands.config;
        let mut facts = disk.facts();
        // A few flushes at the start say less than what it has done since.
        if self.sh.disk_is_slow && config.str("bluestore_debug_enforce_settings") == "default" {
            facts.profile = DeviceProfile::Hdd;
        }
        let tuning = crate::storing::tuning(config, facts.profile);
        let pools = crate::storing::pool_policies(config, facts.profile, &self.maps.newest);
        disk.configure(tuning, crate::storing::policy(config, facts.profile), pools);
        self.sh.device_perf.set_profile(&facts, &tuning);
    }

    fn committed(&mut self, now: Now, disk: &mut dyn Disk, route: TxcRoute, fx: &mut Vec<Effect>) {
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        match route {
            TxcRoute::Send { to, tid, msg } => cx.fx.push(Effect::Send { to, tid, msg: *msg }),
            TxcRoute::Subop(subop) => crate::slow::subop_committed(&mut cx, *subop),
            TxcRoute::Bench => self.bench_committed(now, disk, fx),
            TxcRoute::RepOp { pgid, interval, version } => {
                if let Some(pg) = self.pgs.get_mut(&pgid) {
                    pg.repop_committed(&mut cx, interval, version);
                }
            }
            TxcRoute::Pg { pgid, round, step } => {
                let removed = step == PgStep::Removed;
                if removed {
                    cx.sh.removals.batch_done();
                }
                let Some(pg) = self.pgs.get_mut(&pgid) else { return };
                pg.handle_step(&mut cx, round, step);
                if removed && pg.is_removed() {
                    self.pgs.remove(&pgid);
                    // The map may want it here again meanwhile.
                    self.create_pgs(now, disk, &[], fx);
                }
            }
        }
    }

    /// What we said to ourselves is heard at once.
    pub(crate) fn loop_back(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        let me = Peer::Osd(self.sh.whoami);
        if std::mem::take(&mut self.sh.recovery_freed) {
            let mut cx = Cx { now, disk: &mut *disk, sh: &mut self.sh, fx: &mut *fx };
            for pg in self.pgs.values_mut().filter(|pg| pg.waits_to_recover()) {
                if cx.sh.recovery_has_room(now.mono) {
                    pg.recover(&mut cx);
                }
            }
        }
        while let Some(pgid) = self.sh.removals.next() {
            let mut cx = Cx { now, disk: &mut *disk, sh: &mut self.sh, fx: &mut *fx };
            if let Some(pg) = self.pgs.get_mut(&pgid) {
                pg.remove_batch(&mut cx);
            }
        }
        if std::mem::take(&mut self.sh.merge_news) {
            self.tell_merges(now, disk, fx);
        }
        if std::mem::take(&mut self.sh.leases.renewed) {
            let mut cx = Cx { now, disk: &mut *disk, sh: &mut self.sh, fx: &mut *fx };
            self.pgs.values_mut().for_each(|pg| pg.handle_leases(&mut cx));
        }
        loop {
            let mut cx = Cx { now, disk: &mut *disk, sh: &mut self.sh, fx: &mut *fx };
            while crate::pg::tell_slots(&mut cx, &mut self.pgs) {}
            let own = |e: &Effect| matches!(e, Effect::Send { to, .. } if *to == me);
            let Some(at) = fx.iter().position(own) else { return };
            if let Effect::Send { tid, msg, .. } = fx.remove(at) {
                self.dispatch(now, disk, me, tid, msg, fx);
            }
        }
    }

    fn dispatch(&mut self, now: Now, disk: &mut dyn Disk, from: Peer, tid: u64, msg: Message, fx: &mut Vec<Effect>) {
        if let Some(epoch) = epoch_of(&msg)
            && epoch > self.maps.epoch()
        {
            return self.wait_for_map(now, epoch, from, tid, msg, fx);
        }
        if matches!(msg, Message::MOsdOp(_) | Message::RepOp(_)) {
            self.sh.client_seen = now.mono;
        }
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        match msg {
            Message::MOsdOp(m) => self.handle_op(now, disk, from, tid, m, fx),
            Message::RepOp(m) => with_pg(&mut self.pgs, m.pgid, |pg| pg.handle_repop(&mut cx, m)),
            Message::RepOpReply(m) => {
                cx.sh.spaces.note(m.osd, m.space);
                with_pg(&mut self.pgs, m.pgid, |pg| pg.handle_repop_reply(&mut cx, m))
            }
            Message::PgMessage(m) => match (self.pgs.get_mut(&m.pgid), &m.body) {
                (Some(pg), _) if pg.places_first(&mut cx, &m) => {}
                (Some(pg), _) => pg.handle_peer(&mut cx, m),
                // We hold nothing of it.
                (None, PgBody::Query) => {
                    let info = PeerInfo { born: cx.sh.born, ..PeerInfo::default() };
                    cx.send_pg(m.osd, m.pgid, m.round, PgBody::Info(info), Durable::Now);
                }
                (None, PgBody::Pull { object, .. }) => {
                    let body = PgBody::PullFailed { object: object.clone() };
                    cx.send_pg(m.osd, m.pgid, m.round, body, Durable::Now);
                }
                _ => {}
            },
            Message::ShardRead(m) => match self.pgs.get_mut(&m.pgid) {
                Some(pg) => pg.handle_shard_read(&mut cx, m),
                None => crate::pg::refuse_shard_read(&mut cx, &m),
            },
            Message::ShardReadReply(m) => with_pg(&mut self.pgs, m.pgid, |pg| pg.handle_shard_read_reply(&mut cx, m)),
            Message::OsdHeartbeat(m) => self.heartbeats.handle(&mut cx, m),
            Message::OsdPing(m) if m.is_reply => self.handle_ping_answer(now, disk, from, &m, fx),
            Message::OsdSessionLost(m) => self.ask_peer_again(now, disk, m.osd, fx),
            Message::MOsdOpReply(m) => {
                for pg in self.pgs.values_mut() {
                    if pg.handle_copy_reply(&mut cx, tid, &m) {
                        break;
                    }
                }
            }
            Message::MOsdMap(m) => self.take_maps(now, disk, &m, false, fx),
            Message::MOsdBackoff(m) => {
                if let (Peer::Session(session), MOsdBackoff::ACK_BLOCK) = (from, m.op) {
                    self.handle_backoff_ack(session, &m);
                }
            }
            // Of sessions with watches.
            Message::MPing(_) => {}
            other => tracing::debug!(?from, kind = other.name(), "not for an OSD"),
        }
    }

    /// A client has heard that it is to hold back. What it sent before is void, also what waits for a map here.
    fn handle_backoff_ack(&mut self, session: SessionId, m: &MOsdBackoff) {
        let id = m.pgid.pg;
        let Some(pg) = self.pgs.get_mut(&id) else { return };
        if pg.backoffs.handle_ack(session, m.id) {
            let is_void = |from: &Peer, msg: &Message| *from == Peer::Session(session) && matches!(msg, Message::MOsdOp(op) if op.pgid.pg == id);
            self.waiting.retain(|w| !is_void(&w.from, &w.msg));
        }
    }

    fn ask_peer_again(&mut self, now: Now, disk: &mut dyn Disk, osd: OsdId, fx: &mut Vec<Effect>) {
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        self.pgs.values_mut().for_each(|pg| pg.handle_peer_reset(&mut cx, osd));
    }

    fn wait_for_map(&mut self, now: Now, epoch: Epoch, from: Peer, tid: u64, msg: Message, fx: &mut Vec<Effect>) {
        fx.push(Effect::WantMaps { from: self.maps.wanted() });
        self.sh.perf.delayed_for_map();
        if self.waiting.len() < WAITING_MAX {
            let share = match (from, &msg) {
                (Peer::Session(_), Message::MOsdOp(m)) => Some(self.intake.admit(now.mono, m)),
                _ => None,
            };
            self.waiting.push_back(Waiting { epoch, from, tid, msg, share });
        }
    }

    fn take_maps(&mut self, now: Now, disk: &mut dyn Disk, m: &MOsdMap, from_mon: bool, fx: &mut Vec<Effect>) {
        let before = self.maps.newest.clone();
        let (taken, txn) = self.maps.take(m, from_mon);
        if taken.is_empty() {
            return;
        }
        self.sh.perf.maps(taken.len() as u64);
        self.sh.handle_map(self.maps.newest.clone());
        self.sh.spaces.handle_map(&self.sh.map);
        self.sh.leases.handle_map(self.sh.map.epoch);
        self.configure_store(disk);
        let was_booted = self.sh.booted;
        self.sh.booted = self.map_knows_us();
        self.note_birth(now, disk, fx);
        let since: BTreeMap<PgId, Epoch> = self.pgs.iter().map(|(id, pg)| (*id, pg.walk.since)).collect();
        let mut old = before.clone();
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        for map in &taken {
            advance_all(&mut self.pgs, &mut cx, &old, map);
            old = map.clone();
        }
        for (id, pg) in &mut self.pgs {
            match !was_booted && cx.sh.booted {
                true => pg.handle_maps(&mut cx, &before, Epoch(u32::MAX)),
                false => pg.handle_maps(&mut cx, &before, since.get(id).copied().unwrap_or_default()),
            }
        }
        // Before new ones are made: the map may want here again what has just gone.
        self.pgs.retain(|_, pg| !pg.is_removed());
        self.create_pgs(now, disk, &taken, fx);
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        cx.submit(txn);
        self.heartbeats.handle_map(&mut cx, &self.pgs);
        if was_booted && !self.sh.booted {
            self.handle_marked_down(now, fx);
        }
        if self.sh.booted {
            self.probation.end();
        }
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        self.probation.handle_map(&mut cx, &self.heartbeats.level, self.heartbeats.peers_min);
        match (was_booted, self.sh.booted) {
            (_, false) => self.ask_to_boot(now, disk, fx),
            // Until now the manager had no OSD of our name, or a dead one.
            (false, true) => self.send_stats(now, disk, fx),
            (true, true) => {}
        }
        for session in std::mem::take(&mut self.sh.orphaned) {
            self.share_map(disk, session, Epoch(0), fx);
        }
        self.wake_waiting(now, disk, fx);
    }

    /// The first map that has us up begins our store's life. That is durable before anything of a PG is.
    fn note_birth(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        if !self.sh.booted || self.sh.born != maps::UNBORN {
            return;
        }
        self.sh.born = self.maps.newest.info(self.sh.whoami).map(|i| i.up_from).unwrap_or_default();
        let mut txn = Transaction::new(META_COLL);
        maps::put_born(&mut txn, self.sh.born);
        Cx { now, disk, sh: &mut self.sh, fx }.submit(txn);
    }

    fn map_knows_us(&self) -> bool {
        let (map, me) = (&self.maps.newest, self.sh.whoami);
        map.is_up(me) && map.addrs(me).is_some_and(|a| a.msgr2() == self.config.addrs.msgr2())
    }

    /// Copies that the map wants here and that are not: new ones, with their past looked up in older maps: those on disk,
    /// and the newest ones, which may not be there yet.
    fn create_pgs(&mut self, now: Now, disk: &mut dyn Disk, newest: &[Arc<OsdMap>], fx: &mut Vec<Effect>) {
        let map = self.maps.newest.clone();
        let me = self.sh.whoami;
        let wanted = |id: &PgId| Mapping::of(&map, *id).is_some_and(|m| m.involves(me));
        let all = map.pools.keys().flat_map(|pool| map.pgs(*pool));
        let new: Vec<PgId> = all.filter(|id| !self.pgs.contains_key(id) && wanted(id)).collect();
        if new.is_empty() {
            return;
        }
        let mut walks: BTreeMap<PgId, Walk> = BTreeMap::new();
        let mut old: Option<OsdMap> = None;
        let first_needed = self.maps.oldest();
        let visit = |old: &mut Option<OsdMap>, m: &OsdMap, walks: &mut BTreeMap<PgId, Walk>| {
            for id in &new {
                let Some(mapping) = Mapping::of_ancestor(m, *id) else { continue };
                match (walks.get_mut(id), old.as_ref()) {
                    (Some(walk), Some(old)) => walk.step(old, m.epoch, mapping),
                    (_, old) => {
                        let cut = old.is_none() && m.epoch > Epoch(1);
                        walks.insert(*id, Walk::start(m, mapping, cut));
                    }
                }
            }
            *old = Some(m.clone());
        };
        let current = std::slice::from_ref(&map);
        let newest = if newest.is_empty() { current } else { newest };
        self.maps.replay(disk, first_needed, newest[0].epoch, |m| visit(&mut old, m, &mut walks));
        newest.iter().for_each(|m| visit(&mut old, m, &mut walks));
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        for (id, walk) in walks {
            let mut pg = Pg::new(id, walk);
            pg.start_interval(&mut cx);
            self.pgs.insert(id, pg);
        }
    }

    fn wake_waiting(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        let epoch = self.maps.epoch();
        let (due, rest): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|w| w.epoch <= epoch);
        self.waiting = rest;
        for Waiting { from, tid, msg, .. } in due {
            self.dispatch(now, disk, from, tid, msg, fx);
        }
        if !self.waiting.is_empty() {
            fx.push(Effect::WantMaps { from: self.maps.wanted() });
        }
    }

    /// A client's operation, or another OSD's on a client's behalf.
    fn handle_op(&mut self, now: Now, disk: &mut dyn Disk, from: Peer, tid: u64, m: MOsdOp, fx: &mut Vec<Effect>) {
        let map = self.maps.newest.clone();
        let source = match from {
            Peer::Session(id) => OpSource::Session(id),
            Peer::Osd(osd) => OpSource::Osd(osd),
            Peer::Front(_) | Peer::Mon | Peer::Mgr => return,
        };
        let origin = match from {
            Peer::Session(id) => {
                self.share_map(disk, id, m.epoch, fx);
                let Some(session) = self.sessions.get(&id) else { return };
                crate::cls::Origin { inst: session.info.inst, addr: session.info.addr }
            }
            _ => crate::cls::Origin { inst: osd_inst(source), ..Default::default() },
        };
        let Some(pool) = map.pool_by_id(m.pgid.pg.pool) else { return };
        if pool.raw_pg_to_pg(PgId { pool: m.pgid.pg.pool, seed: m.hash }) != m.pgid.pg {
            // The client placed it by another map; it will look again with ours.
            return;
        }
        let fails = matches!(from, Peer::Session(_)) && pool.has_flag(PgPool::FLAG_EIO);
        if fails && m.has_flag(osd_flag::SUPPORTSPOOLEIO) {
            // It answers itself, by the same map.
            return;
        }
        let refusal = match from {
            _ if fails => Some(Errno::EIO),
            Peer::Session(_) if map.is_blocklisted(&origin.addr) => Some(Errno::ESHUTDOWN),
            Peer::Session(id) if !self.sessions.get(&id).is_some_and(|s| s.may(&map, &m)) => Some(Errno::EPERM),
            _ => None,
        };
        let access = match refusal.map_or_else(|| ops::classify(&m.ops), Err) {
            Ok(access) => access,
            Err(e) => return fx.push(Effect::Send { to: from, tid, msg: refused(&m, map.epoch, e).into() }),
        };
        self.sh.next_op += 1;
        let reqid = match m.reqid.name == EntityInst::default() || m.reqid.tid == 0 {
            true => ReqId { name: origin.inst, tid, inc: m.reqid.inc },
            false => m.reqid,
        };
        // Whatever snapshot it is about, the live object decides what that shows, and whose turn it is.
        let object = HObject { snap: types::Snap::HEAD, ..m.hobject() };
        let op = ClientOp {
            id: self.sh.next_op,
            source,
            tid,
            reqid,
            origin,
            object,
            access,
            fetched: Fetched::default(),
            received: now.mono,
            marks: Default::default(),
            waited: false,
            trims: None,
            share: matches!(source, OpSource::Session(_)).then(|| self.intake.admit(now.mono, &m)),
            msg: Box::new(m),
        };
        let id = op.msg.pgid.pg;
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        with_pg(&mut self.pgs, id, |pg| pg.handle_op(&mut cx, op));
    }

    /// A client that sent with an old map is given what it lacks.
    fn share_map(&mut self, disk: &mut dyn Disk, id: SessionId, have: Epoch, fx: &mut Vec<Effect>) {
        let newest = self.maps.epoch();
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.epoch = session.epoch.max(have);
        if session.epoch < newest {
            let maps = self.maps.share(disk, session.epoch);
            session.epoch = newest;
            fx.push(Effect::Send { to: Peer::Session(id), tid: 0, msg: maps.into() });
        }
    }

    /// Gives another OSD the maps it lacks.
    pub(crate) fn share_map_with_osd(&mut self, disk: &mut dyn Disk, osd: OsdId, have: Epoch, fx: &mut Vec<Effect>) {
        let maps = self.maps.share(disk, have);
        fx.push(Effect::Send { to: Peer::Osd(osd), tid: 0, msg: maps.into() });
    }

    /// Time for a turn; see `next_timeout`.
    pub fn handle_timeout(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        for osd in std::mem::take(&mut self.lost_peers) {
            self.handle_peer_reset(now, disk, osd, fx);
        }
        self.tick(now, disk, fx);
        self.loop_back(now, disk, fx);
    }

    /// When `handle_timeout` wants to be called.
    pub fn next_timeout(&self) -> Option<Mono> {
        Some(self.clock.next_tick)
    }
}

fn with_pg(pgs: &mut BTreeMap<PgId, Pg>, id: PgId, f: impl FnOnce(&mut Pg)) {
    if let Some(pg) = pgs.get_mut(&id) {
        f(pg);
    }
}

fn osd_inst(source: OpSource) -> EntityInst {
    match source {
        OpSource::Osd(osd) => EntityInst { kind: EntityKind::OSD, num: osd.0.into() },
        _ => EntityInst::default(),
    }
}

/// The map a message was sent with, where that matters.
fn epoch_of(msg: &Message) -> Option<Epoch> {
    match msg {
        Message::MOsdOp(m) => Some(m.epoch),
        Message::RepOp(RepOp { epoch, .. }) | Message::RepOpReply(RepOpReply { epoch, .. }) => Some(*epoch),
        Message::PgMessage(m) => Some(m.epoch),
        Message::ShardRead(m) => Some(m.epoch),
        _ => None,
    }
}

fn refused(m: &MOsdOp, epoch: Epoch, e: Errno) -> MOsdOpReply {
    let blank = |o: &types::msg::osd_op::OsdOp| OpResult { op: o.op, flags: o.flags, rval: 0, outdata: BufList::default() };
    MOsdOpReply {
        oid: m.oid.clone(),
        pgid: m.pgid.pg,
        flags: m.flags | osd_flag::ONDISK,
        result: e.wire(),
        bad_replay_version: Default::default(),
        epoch,
        ops: m.ops.iter().map(blank).collect(),
        retry: m.retry,
        replay_version: Default::default(),
        user_version: 0,
        redirect: None,
    }
}
