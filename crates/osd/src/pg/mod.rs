//! A placement group on one OSD: its copy, its log, its part in the acting set.
//!
//! Room: osd core.   Owns: `Pg`.   Hears: clients' operations, replicas, peers, maps, the disk.
//! Holds: a write is acknowledged when every acting copy has it on stable storage, and every copy that is being
//! backfilled; the PG serves only after all of them have the authoritative log and every acting one knows which objects it
//! lacks; what an interval left unfinished is dropped at its end, and clients send it again.
//! Upstream: doc/dev/osd_internals/, src/osd/PG.cc, PeeringState.cc, PrimaryLogPG.cc.

mod acting;
mod activate;
mod anew;
mod backfill;
mod backoff;
mod copy;
mod dup_run;
mod dups;
mod full;
mod gather;
mod getmissing;
mod interval;
mod log;
mod merge;
mod merge_pgs;
mod meta;
mod op;
mod peering;
mod push;
mod query;
mod queue;
mod readable;
mod recount;
mod recovery;
mod remove;
mod repair;
mod repop;
mod reset;
mod scrub;
mod shards;
mod slots;
mod snaps;
mod split;
mod stats;
mod trim;
mod unfound;
mod watch;

pub(crate) use backoff::Backoffs;
pub(crate) use gather::refuse_shard_read;
pub(crate) use interval::{Mapping, Walk};
pub(crate) use meta::pg_of;
pub(crate) use op::{ClientOp, OpSource};
pub(crate) use unfound::offset;
pub(crate) use repop::write_of_row;
pub(crate) use recount::BUDGET as RECOUNT_BUDGET;
pub(crate) use remove::Removals;
pub(crate) use scrub::{NextScrub, ScrubOptions, Wanted};
pub(crate) use slots::tell_slots;
pub(crate) use split::advance_all;
pub(crate) use stats::PgFigures;
pub(crate) use trim::TrimOptions;

use crate::effects::{Cx, Durable, PgStep, ReadFor, ReadResult, ReadRoute, SessionId};
use copy::Copies;
use log::PgLog;
use peering::Peering;
use queue::Queue;
use recovery::Recovery;
use repop::RepOps;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::ReadId;
use types::map::OsdMap;
use types::msg::internal_osd::{PeerHistory, PeerInfo, PgBody, PgMessage, PgTotals, Round};
use types::pg::Shards;
use types::{EVersion, Epoch, HObject, OsdId, PgId, ShardPgId};
use watch::Watches;

/// Where the PG is in its interval.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Not the primary: waits for what the primary wants.
    Follower {
        /// The primary has activated us in this interval.
        active: bool,
    },
    Peering(Box<Peering>),
    /// Primary, serving.
    Active,
    /// The copy is being deleted.
    Removing,
}

/// One OSD's copy of a placement group.
pub(crate) struct Pg {
    pub id: PgId,
    pub coll: ShardPgId,
    /// Of an erasure-coded pool: which shards of its objects this copy has, once that is decided.
    pub own_shards: Shards,
    /// On the primary: which ones every copy has.
    shards: BTreeMap<OsdId, Shards>,
    /// What waits beside objects for their writes to be settled, oldest first.
    undo: VecDeque<(EVersion, HObject)>,
    /// Other copies have been told in this interval that writes up to here are settled.
    settled: EVersion,
    gathers: gather::Gathers,
    /// The current interval and those before it that still matter.
    pub walk: Walk,
    /// The interval in which this copy last went active.
    pub last_epoch_started: Epoch,
    pub history: PeerHistory,
    /// Objects before it are stored as the log says, or are missing and known to be; of those behind it nothing is known.
    /// `max` while no backfill is under way.
    pub last_backfill: HObject,
    /// What was deleted of a copy that goes lay before it.
    removed_to: HObject,
    /// Objects before `last_backfill`, while that is not `max`.
    pub backfilled: i64,
    pub log: PgLog,
    /// Objects known to be absent or old in this copy, with the write they should be at.
    pub missing: BTreeMap<HObject, EVersion>,
    pub totals: PgTotals,
    pub last_user_version: u64,
    /// Every acting copy has this on stable storage.
    pub committed_to: EVersion,
    /// The last interval of which every copy was told that it has everything: in that, writes wait for all of them.
    pub told_whole: Epoch,
    pub stage: Stage,
    /// Counts attempts at peering as the primary.
    round: u32,
    pub figures: PgFigures,
    /// Rows not yet stored since the last `store_meta`.
    exists_on_disk: bool,
    /// Maps were missing on the way: that is to be remembered, also if nothing else has changed.
    meets_gap: bool,
    queue: Queue,
    running: BTreeMap<u64, Running>,
    repops: RepOps,
    /// Operations that wait for the PG to become active.
    pub waiting: VecDeque<ClientOp>,
    /// They wait because a lease is over.
    laggy: bool,
    /// Running operations that wait for room on a disk.
    short_of_room: BTreeSet<u64>,
    pub backoffs: Backoffs,
    watches: Watches,
    copies: Copies,
    pushes: push::Pushes,
    recovery: Recovery,
    slots: slots::Slots,
    repairs: repair::Repairs,
    scrubs: scrub::Scrubs,
    recounting: Option<recount::Recount>,
    trims: trim::Trims,
    /// The acting set the monitors were asked for, and when.
    acting_asked: Option<(Vec<OsdId>, types::Mono)>,
    /// Strays whose copies are to be removed when the PG is clean.
    strays: BTreeSet<OsdId>,
    /// While it is removed: an empty copy follows.
    anew: Option<anew::Anew>,
}

/// An operation that waits for data.
struct Running {
    op: ClientOp,
    /// What is read: the operation's object, or a clone of it.
    object: HObject,
    reads: BTreeMap<ReadId, crate::ops::ReadKey>,
    /// What was known when it began, if nothing of that changes until it has read: it changes nothing.
    before: Option<Box<snaps::Before>>,
}

impl Pg {
    /// A copy with nothing in it.
    pub fn new(id: PgId, walk: Walk) -> Self {
        let history = PeerHistory { epoch_created: walk.created, ..PeerHistory::default() };
        Pg {
            id,
            coll: ShardPgId::whole(id),
            own_shards: Shards::default(),
            shards: BTreeMap::new(),
            undo: VecDeque::new(),
            settled: EVersion::default(),
            gathers: gather::Gathers::default(),
            walk,
            last_epoch_started: Epoch(0),
            history,
            last_backfill: HObject::max(),
            removed_to: HObject::min(),
            backfilled: 0,
            log: PgLog::default(),
            missing: BTreeMap::new(),
            totals: PgTotals::default(),
            last_user_version: 0,
            committed_to: EVersion::default(),
            told_whole: Epoch(0),
            stage: Stage::Follower { active: false },
            round: 0,
            figures: PgFigures::default(),
            exists_on_disk: false,
            meets_gap: false,
            queue: Queue::default(),
            running: BTreeMap::new(),
            repops: RepOps::default(),
            waiting: VecDeque::new(),
            laggy: false,
            short_of_room: BTreeSet::new(),
            backoffs: Backoffs::default(),
            watches: Watches::default(),
            copies: Copies::default(),
            pushes: push::Pushes::default(),
            recovery: Recovery::default(),
            slots: slots::Slots::default(),
            repairs: repair::Repairs::default(),
            scrubs: scrub::Scrubs::default(),
            recounting: None,
            trims: trim::Trims::default(),
            acting_asked: None,
            strays: BTreeSet::new(),
            anew: None,
        }
    }

    /// Goes from one map to the next; `handle_maps` follows when all that came are walked. A pool that is gone leaves
    /// the walk where it is, and so does a map from before the interval: a crash may have kept more of the PG than of
    /// the maps.
    pub fn advance(&mut self, old: &OsdMap, new: &OsdMap) {
        if new.epoch <= self.walk.since {
            return;
        }
        if let Some(mapping) = Mapping::of(new, self.id) {
            let first = self.walk.first;
            self.walk.step(old, new.epoch, mapping);
            self.meets_gap |= self.walk.cut && self.walk.first != first;
        }
    }

    /// New maps were walked. `old` is the map from before them, `since` the interval of that time.
    pub fn handle_maps(&mut self, cx: &mut Cx<'_>, old: &OsdMap, since: Epoch) {
        // A PG that ended in another one went with the map that says so: its objects are the other's, and not to be removed.
        let is_gone = cx.sh.map.pool_by_id(self.id.pool).is_none();
        if !is_gone && Mapping::of(&cx.sh.map, self.id).is_none() {
            return tracing::error!(pg = %self.id, epoch = %cx.sh.map.epoch, "there is no such PG");
        }
        if std::mem::take(&mut self.meets_gap) && self.exists_on_disk {
            self.store_meta(cx);
        }
        if matches!(self.stage, Stage::Removing) {
            if !is_gone && self.anew.is_some() && self.walk.since == since {
                return;
            }
            self.anew = None;
            if !is_gone && self.walk.mapping.involves(cx.sh.whoami) {
                self.stop_removal(cx);
            }
            return;
        }
        if is_gone {
            return self.start_removal(cx);
        }
        if self.walk.since != since {
            return self.start_interval(cx);
        }
        match &self.stage {
            Stage::Peering(_) => self.peering_map(cx, old),
            Stage::Active => {
                self.gather_map(cx);
                self.recovery_map(cx, old);
                self.acting_map(cx);
                if self.takes_ops() {
                    self.watch_map(cx);
                }
            }
            _ => {}
        }
        self.ask_copies_again(cx);
    }

    /// Begins the current interval: at a new mapping, and when the OSD has booted.
    pub fn start_interval(&mut self, cx: &mut Cx<'_>) {
        self.drop_interval_state(cx);
        self.store_meta(cx);
        let me = cx.sh.whoami;
        self.stage = Stage::Follower { active: false };
        self.figures.note_interval(cx.now, self.walk.since);
        let (acting, past) = (&self.walk.mapping.acting, &self.walk.past);
        tracing::debug!(osd = %me, pg = %self.id, since = %self.walk.since, ?acting, ?past, head = %self.log.head(), "interval");
        if !cx.sh.booted {
            return;
        }
        if self.walk.mapping.primary == me {
            return self.start_peering(cx);
        }
        self.offer_stray(cx);
    }

    /// A stray offers what it has; it may be the only one who has it.
    fn offer_stray(&mut self, cx: &mut Cx<'_>) {
        let (offers, primary) = (!self.walk.mapping.acting.contains(&cx.sh.whoami), self.walk.mapping.primary);
        if offers && primary.0 >= 0 {
            self.send_info(cx, primary, Round { number: 0, ..self.round() });
        }
    }

    /// Describes our copy when that is durable: others will take over a log that we are the only one to have, and look
    /// for its objects here.
    fn send_info(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round) {
        let info = PgBody::Info(self.info(cx));
        let not_before = match self.stage {
            Stage::Removing => Durable::Now,
            _ => Durable::After(self.store_meta(cx)),
        };
        cx.send_pg(to, self.id, round, info, not_before);
    }

    /// A message from another OSD about this PG, sent in our interval (or from outside of it, when it is a question).
    pub fn handle_peer(&mut self, cx: &mut Cx<'_>, m: PgMessage) {
        let (from, round) = (m.osd, m.round);
        let late = self.is_primary(cx.sh.whoami) && round != self.round();
        match m.body {
            PgBody::Query => return self.send_info(cx, from, round),
            PgBody::Void { began } if round.interval == self.walk.since => return self.handle_void(cx, from, round, began),
            PgBody::Pull { object, .. } if matches!(self.stage, Stage::Removing) => {
                return cx.send_pg(from, self.id, round, PgBody::PullFailed { object }, Durable::Now);
            }
            _ if round.interval != self.walk.since || matches!(self.stage, Stage::Removing) => return,
            PgBody::Info(info) => self.handle_info(cx, from, late, info),
            _ if late => return,
            PgBody::Remove if !self.walk.mapping.involves(cx.sh.whoami) => return self.start_removal(cx),
            PgBody::GetLog { since } => self.send_log(cx, from, round, since),
            PgBody::Pull { object, version } => self.handle_pull(cx, from, round, object, version),
            PgBody::Scan { begin, end, limit } => self.send_scan(cx, from, round, begin, end, limit),
            PgBody::Log { info, base, entries, dups } => self.handle_log(cx, from, getmissing::AuthLog { info, base, entries, dups }),
            PgBody::Merge { reset, base, tail, entries, totals, last_user_version, dups, shards } => {
                let merge = merge::Merge { reset, base, tail, entries, totals, last_user_version, dups, shards };
                self.handle_merge(cx, from, round, merge)
            }
            PgBody::Merged { missing, last_backfill, backfilled } => self.handle_merged(cx, from, missing, last_backfill, backfilled),
            PgBody::Scanned { begin, end, objects } => self.handle_scanned(cx, from, begin, end, objects),
            PgBody::Push(parts) => self.handle_push(cx, from, round, parts, m.data),
            PgBody::Pushed(pushed) => self.handle_pushed(cx, from, &pushed),
            PgBody::PartTaken { object, push, seq } => self.handle_part_taken(cx, from, object, push, seq),
            PgBody::Activate { history, serves } => self.handle_activate(cx, from, round, history, serves),
            PgBody::Activated => self.handle_activated(cx, from),
            PgBody::Started { history, recovered } => self.handle_started(cx, history, recovered),
            PgBody::Trim { to } => self.handle_trim(cx, to),
            PgBody::Settled { to } => self.settle_now(cx, to),
            PgBody::PullFailed { object } => self.handle_pull_failed(cx, from, object),
            PgBody::TooFull { object, push } => self.handle_too_full(cx, from, object, push),
            PgBody::MakeRoom { objects } => self.handle_make_room(cx, from, objects),
            PgBody::ReserveSlot { priority } => self.handle_reserve_slot(cx, from, round, priority),
            PgBody::SlotReserved { granted } => self.handle_slot_reserved(cx, from, granted),
            PgBody::ReleaseSlot => self.handle_release_slot(cx, from),
            PgBody::Scrub { scrub, begin, end, deep, trust_s } => {
                self.start_build(cx, from, round, scrub::Chunk { scrub, begin, end, deep, trust_s });
            }
            PgBody::ScrubMap { scrub, objects } => self.handle_scrub_map(cx, from, scrub, objects),
            PgBody::Distrust { scrub, objects } => self.handle_distrust(cx, from, round, scrub, objects),
            PgBody::Distrusted { scrub } => self.handle_distrusted(from, scrub),
            PgBody::ScrubReserve { scrub } => self.handle_scrub_reserve(cx, from, round, scrub),
            PgBody::ScrubReserved { scrub, granted } => self.handle_scrub_reserved(cx, from, scrub, granted),
            PgBody::ScrubRelease => self.handle_scrub_release(cx),
            PgBody::Backfill { end, differ, objects } => self.handle_backfill(cx, from, round, end, differ, objects),
            PgBody::Backfilled { end } => self.handle_backfilled(cx, from, &end),
            PgBody::AskOlder { objects } => self.handle_ask_older(cx, from, round, objects),
            PgBody::Older { held } => self.handle_older(cx, from, held),
            PgBody::Remove | PgBody::Void { .. } => {}
        }
        self.pump(cx);
    }

    /// A step of ours is on stable storage.
    pub fn handle_step(&mut self, cx: &mut Cx<'_>, round: Round, step: PgStep) {
        if matches!(step, PgStep::Removed) {
            self.continue_removal(cx);
            return self.emptied(cx);
        }
        if round != self.round() {
            return;
        }
        match step {
            PgStep::SelfMerged => self.self_merged(cx),
            PgStep::SelfRecovered(objects) => self.self_recovered(cx, &objects),
            PgStep::SelfActivated => self.self_activated(cx),
            PgStep::Removed => {}
        }
        self.pump(cx);
    }

    /// A read has ended.
    pub fn handle_read(&mut self, cx: &mut Cx<'_>, id: ReadId, route: ReadRoute, result: ReadResult) {
        match route.what {
            ReadFor::Push { to, object } => self.push_read(cx, id, to, object, result),
            ReadFor::Op(op) if route.interval == self.walk.since => self.op_read(cx, op, id, result),
            ReadFor::Scrub if route.interval == self.walk.since => self.scrub_read_done(cx, id, result),
            ReadFor::Shard(gather) => self.own_shard_read(cx, gather, result),
            ReadFor::Peer(m) => self.peer_read(cx, *m, result),
            ReadFor::Op(_) | ReadFor::Scrub | ReadFor::Rebuild { .. } => {}
        }
        self.pump(cx);
    }

    /// A session with a monitor is open: what the last one may have swallowed is said again.
    pub fn handle_mon_session(&mut self, cx: &mut Cx<'_>) {
        if matches!(&self.stage, Stage::Peering(p) if matches!(p.step, peering::Step::WaitUpThru | peering::Step::MergePeers(_))) {
            self.ask_up_thru(cx);
        }
        self.ask_acting_again(cx, std::time::Duration::ZERO);
    }

    /// Time passes: watches expire, notifications end.
    pub fn handle_tick(&mut self, cx: &mut Cx<'_>) {
        self.ask_acting_again(cx, acting::PATIENCE);
        self.recover_into_space(cx);
        self.ask_slot_again(cx);
        self.recount(cx);
        self.wait_unread_again(cx);
        if matches!(self.stage, Stage::Active) && self.takes_ops() {
            self.expire_watches(cx);
            self.scrub_tick(cx);
            self.trim(cx);
            self.look_for_room(cx);
            self.shorten_log(cx);
            self.settle_idle(cx);
            self.pump(cx);
        }
    }

    /// A client's session is gone.
    pub fn handle_session_lost(&mut self, cx: &mut Cx<'_>, session: SessionId) {
        self.backoffs.forget_session(session);
        self.watches.disconnect_session(cx.now, session);
        let gone = |op: &ClientOp| op.source == OpSource::Session(session);
        self.waiting.retain(|op| !gone(op));
    }

    /// What peers are told of this copy.
    pub fn info(&self, cx: &Cx<'_>) -> PeerInfo {
        PeerInfo {
            exists: true,
            last_update: self.log.head(),
            log_tail: self.log.tail,
            last_epoch_started: self.last_epoch_started,
            history: self.history,
            last_backfill: self.last_backfill.clone(),
            backfilled: self.backfilled,
            missing: self.missing.len() as u64,
            last_user_version: self.last_user_version,
            totals: self.totals,
            remembers_from: self.log.remembers_from(),
            promised: self.promised(cx),
            born: cx.sh.born,
            shards: self.own_shards.clone(),
        }
    }

    /// The attempt at peering that is under way, or that led to where the PG is.
    fn round(&self) -> Round {
        Round { interval: self.walk.since, number: self.round }
    }

    /// True if this OSD orders the PG's writes.
    pub fn is_primary(&self, whoami: OsdId) -> bool {
        self.walk.mapping.primary == whoami
    }

    /// OSDs, this one among them, that take the data of a write to an object.
    pub(super) fn writers_of<'a>(&'a self, whoami: OsdId, object: &'a HObject) -> impl Iterator<Item = OsdId> + 'a {
        let behind = move |osd: &OsdId| self.recovery.is_behind(*osd, object);
        std::iter::once(whoami).chain(self.replicas(whoami).filter(move |osd| !behind(osd)))
    }

    /// OSDs but this one that follow every write: those acting, and those that are backfilled.
    fn replicas(&self, whoami: OsdId) -> impl Iterator<Item = OsdId> + '_ {
        let m = &self.walk.mapping;
        let filled = m.up.iter().filter(|o| !m.acting.contains(o));
        m.acting.iter().chain(filled).copied().filter(move |o| *o != whoami)
    }

    /// True for a copy that is only being filled, where as many act as the pool wants: nobody waits for it.
    pub(super) fn is_outrun(&self, osd: OsdId) -> bool {
        let m = &self.walk.mapping;
        m.acting.len() >= usize::from(m.size) && !m.acting.contains(&osd)
    }

    /// True if there are enough copies to serve clients. Copies that are being backfilled do not count.
    pub(super) fn serves(&self) -> bool {
        let m = &self.walk.mapping;
        m.acting.len() >= usize::from(m.min_size)
    }

    /// True if clients' operations may run once the PG is active: not while it waits to be merged.
    pub(super) fn takes_ops(&self) -> bool {
        self.serves() && !self.walk.mapping.premerge
    }

    /// True if, as the primary, nothing of it is lacking anywhere and nothing will change: it may become part of another PG or take
    /// another one in.
    pub fn is_ready_to_merge(&self, whoami: OsdId) -> bool {
        let m = &self.walk.mapping;
        m.premerge && m.primary == whoami && m.up == m.acting && matches!(self.stage, Stage::Active) && self.is_clean() && self.missing.is_empty()
    }

    /// True if no backfill of this copy is under way.
    pub fn is_complete(&self) -> bool {
        self.last_backfill.max
    }

    /// Bytes of objects held here, as far as is known.
    pub fn bytes_held(&self) -> i64 {
        // Of a shard it is as much less as there are data chunks.
        let bytes = self.totals.bytes / i64::from(self.walk.mapping.need.max(1));
        match self.is_complete() || self.totals.objects <= 0 {
            true => bytes,
            false => (bytes as i128 * self.backfilled as i128 / self.totals.objects as i128) as i64,
        }
    }

    /// Objects that clients' operations are at work on.
    pub fn objects_in_use(&self) -> usize {
        self.queue.len()
    }

    /// True if it is being removed from this OSD.
    pub fn is_removing(&self) -> bool {
        matches!(self.stage, Stage::Removing)
    }

    /// The next write's version.
    fn next_version(&self, cx: &Cx<'_>) -> EVersion {
        EVersion { epoch: cx.sh.map.epoch, version: self.log.head().version + 1 }
    }

    /// Forgets everything that belongs to the interval that ended. As long as we stay the primary, clients do not send
    /// again: what they wait for is started over when the PG is active, and duplicates of what was logged are answered
    /// from the log. When another is primary they do, as soon as they have the map.
    fn drop_interval_state(&mut self, cx: &mut Cx<'_>) {
        self.backoffs.release_all(cx);
        self.laggy = false;
        self.short_of_room.clear();
        self.drop_scrub(cx);
        let running = std::mem::take(&mut self.running).into_values().map(|r| r.op);
        let queued = std::mem::take(&mut self.queue).into_ops();
        let repops = std::mem::take(&mut self.repops).into_ops();
        let listings = self.drop_recovery(cx);
        self.drop_slots(cx);
        let mut ops: VecDeque<ClientOp> = repops.chain(running).chain(queued).chain(listings).chain(std::mem::take(&mut self.waiting)).collect();
        let primary = self.is_primary(cx.sh.whoami);
        let stays = |op: &ClientOp| primary && op.msg.epoch >= self.walk.primary_since;
        let gone = ops.iter().filter(|op| !stays(op)).map(|op| op.source);
        cx.sh.orphaned.extend(gone.filter_map(|s| if let OpSource::Session(s) = s { Some(s) } else { None }));
        ops.retain(|op| op.source != OpSource::Own && stays(op));
        ops.iter_mut().for_each(|op| op.fetched = Default::default());
        self.waiting = ops;
        if !primary || self.walk.primary_since == self.walk.since {
            self.watches.drop_all(&mut cx.sh.orphaned);
        }
        self.copies = Copies::default();
        self.gathers = gather::Gathers::default();
        self.pushes = push::Pushes::default();
        self.repairs = repair::Repairs::default();
        self.recounting = None;
        self.drop_trims(cx);
        self.strays.clear();
        self.acting_asked = None;
        (self.committed_to, self.settled) = Default::default();
    }
}
