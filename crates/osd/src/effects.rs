//! What a turn of the core wants done, and what it may use meanwhile.

use crate::disk::Disk;
use crate::ops::Limits;
use crate::perf::{DevicePerf, Perf};
use crate::reserver::Reserver;
use crate::stripe::Striping;
use qos::{Class, Share};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::{Bulk, PlaceId, Placed, ReadData, ReadFlags, ReadId, Transaction, TxcId};
use types::map::OsdMap;
use types::msg::internal_osd::{DiskSpace, PgBody, PgMessage, Round, ShardRead};
use types::msg::mon::PaxosHeader;
use types::msg::{BufList, LogEntry, LogPrio, MLog, Message};
use types::{EntityInst, EntityKind, EntityName, Epoch, Errno, HObject, Mono, Now, OsdId, PgId, PoolId, ShardPgId};

/// A client's session, numbered by the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Who is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// Another OSD, or this one: its own messages come back to it.
    Osd(OsdId),
    /// Another OSD over the network that clients use, where there are two: nothing but pings goes there.
    Front(OsdId),
    Session(SessionId),
    Mon,
    Mgr,
}

/// A promise may not overtake the disk it rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    Now,
    After(TxcId),
}

/// Something for the node to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// `tid` goes into the message's header.
    Send { to: Peer, tid: u64, msg: Message },
    /// Ask the monitors for maps from this epoch on.
    WantMaps { from: Epoch },
    /// The answer to `handle_command`.
    CommandReply { id: u64, reply: admin::command::Reply },
    /// The daemon cannot go on.
    Stop { why: String },
}

/// What a finished transaction or read belongs to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TxcRoute {
    /// A client's write in a PG, by its version's number.
    RepOp { pgid: PgId, interval: Epoch, version: u64 },
    /// A block of `bench`.
    Bench,
    /// The primary's write, on a replica.
    Subop(Box<crate::stages::Subop>),
    /// A message that waited for it.
    Send { to: Peer, tid: u64, msg: Box<Message> },
    /// A PG's own next step.
    Pg { pgid: PgId, round: Round, step: PgStep },
}

/// Steps of a PG that wait for the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PgStep {
    /// Its own log is merged.
    SelfMerged,
    /// An object it lacked is whole.
    SelfRecovered(Vec<HObject>),
    /// Activation is on its own disk.
    SelfActivated,
    /// A batch of a removed copy is gone.
    Removed,
}

/// What a finished read belongs to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReadRoute {
    pub pgid: PgId,
    pub interval: Epoch,
    pub what: ReadFor,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ReadFor {
    /// The running operation with this number.
    Op(u64),
    /// A push to that OSD.
    Push { to: OsdId, object: HObject },
    /// A scrub's description of copies.
    Scrub,
    /// Our own shard, for what is put together under this number.
    Shard(ReadId),
    /// Our shard, for another OSD.
    Peer(Box<ShardRead>),
    /// An object that we lack, and that is computed out of other shards.
    Rebuild { object: HObject },
}

/// How long the store takes to make transactions durable, since the last report.
#[derive(Debug, Default)]
pub(crate) struct CommitLatency {
    /// The last says whether it is of what a peer has pushed.
    under_way: VecDeque<(TxcId, Mono, bool)>,
    count: u64,
    sum_ns: u64,
}

impl CommitLatency {
    fn submitted(&mut self, txc: TxcId, now: Mono, pushed: bool) {
        self.under_way.push_back((txc, now, pushed));
    }

    /// Transactions become durable in the order in which they were submitted. How long one of a push took.
    pub fn committed(&mut self, txc: TxcId, now: Mono) -> Option<Duration> {
        let mut push = None;
        while let Some((id, at, pushed)) = self.under_way.front().copied().filter(|(id, ..)| *id <= txc) {
            self.under_way.pop_front();
            if id == txc {
                self.count += 1;
                self.sum_ns += (now - at).as_nanos() as u64;
                push = pushed.then(|| now - at);
            }
        }
        push
    }

    /// The mean in nanoseconds; counting begins anew. 0 when nothing was committed.
    pub fn take_mean_ns(&mut self) -> u64 {
        let mean = self.sum_ns.checked_div(self.count).unwrap_or(0);
        (self.count, self.sum_ns) = (0, 0);
        mean
    }
}

/// What all PGs of an OSD share.
pub(crate) struct Shared {
    pub whoami: OsdId,
    pub map: Arc<OsdMap>,
    pub limits: Limits,
    pub rng: ChaCha8Rng,
    /// How objects of erasure-coded pools lie on shards.
    pub striping: BTreeMap<PoolId, Rc<Striping>>,
    pub perf: Perf,
    pub device_perf: DevicePerf,
    pub history: crate::command::History,
    pub stats_seq: u64,
    /// In the map, as ourselves: peering may start.
    pub booted: bool,
    /// The first epoch in which the map had us up with the store that we have; `UNBORN` before.
    pub born: Epoch,
    pub next_txc: u64,
    pub next_read: u64,
    pub next_op: u64,
    pub next_push: u64,
    pub next_notify: u32,
    pub next_scrub: u64,
    pub txcs: BTreeMap<TxcId, TxcRoute>,
    pub commit_latency: CommitLatency,
    /// Objects that came and are on their way to their places, and where those of the message in hand are.
    pub placing: BTreeMap<PlaceId, PgMessage>,
    pub placed: Placed,
    pub next_place: u64,
    pub reads: BTreeMap<ReadId, ReadRoute>,
    /// Sessions whose operations an interval took with it: with the new map they send them again.
    pub orphaned: std::collections::BTreeSet<SessionId>,
    /// Newest map that our `OsdAlive` asked for.
    pub alive_wanted: Epoch,
    /// Objects on their way to or from PGs whose primary we are, and their bytes.
    pub recovery_active: usize,
    pub recovery_bytes: u64,
    /// As many of them as may be at once (`osd_recovery_max_active`), and while no client asks for anything.
    pub recovery_max: usize,
    pub recovery_max_alone: usize,
    /// When a client's request last came, here or as a copy, or was answered.
    pub client_seen: Mono,
    pub recovery_pace: Pace,
    pub recovery_flow: crate::flow::Flow,
    pub felt: crate::felt::Felt,
    /// An I/O of our disk takes so long that what is on its way to others has to be much for it to be read in large pieces.
    pub disk_is_slow: bool,
    /// So does one of ours, or of another OSD, on the way of objects that move.
    pub way_is_slow: bool,
    /// What each class of work is promised of the device's time.
    pub shares: [Share; 3],
    /// A PG that waits to be merged is clean.
    pub merge_news: bool,
    /// One less is on its way: PGs may wait for that.
    pub recovery_freed: bool,
    pub removals: crate::pg::Removals,
    /// Objects that may still be counted in this turn of housekeeping.
    pub recount_budget: usize,
    /// The process has much too much memory: one object after the other.
    pub squeezed: bool,
    pub spaces: crate::space::Spaces,
    pub leases: crate::lease::Leases,
    /// Our own disk as it was a moment ago.
    pub own_space: std::cell::Cell<Option<(Mono, DiskSpace)>>,
    /// Who may recover as the primary, and who as a copy (`osd_max_backfills` each).
    pub local_slots: Reserver,
    pub remote_slots: Reserver,
    /// Objects that backfill looks at at once, at least and at most (`osd_backfill_scan_min`, `osd_backfill_scan_max`).
    pub scan_min: usize,
    pub scan_max: usize,
    /// Entries a PG log keeps (`osd_min_pg_log_entries`).
    pub log_entries_max: usize,
    /// The same while the PG has fewer whole copies than it should (`osd_target_pg_log_entries_per_osd`).
    pub log_entries_degraded: usize,
    pub scrub: crate::pg::ScrubOptions,
    /// Scrubs this OSD takes part in.
    pub scrubs_active: usize,
    pub trim: crate::pg::TrimOptions,
    /// PGs that trim clones.
    pub trimming: std::collections::BTreeSet<types::PgId>,
    /// Lines said to the cluster log so far.
    pub clog_seq: u64,
    /// Bad copies of objects that were replaced (`num_shards_repaired`).
    pub shards_repaired: u64,
    /// Writes whose requests a PG remembers, by its log and beyond it (`osd_pg_log_dups_tracked`).
    pub log_dups_tracked: u64,
}

/// The longest that recovery sleeps.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// Starts are given out with every tick, which may be late.
const SAVED_FOR: Duration = Duration::from_secs(1);

/// How often an object may start on its way (`osd_recovery_sleep`), on average from tick to tick.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// `None`: as often as it likes.
    every: Option<Duration>,
    /// Up to when starts have been given out, and how many of them are left.
    until: Mono,
    left: u32,
}

impl Pace {
    pub fn set(&mut self, every: Duration) {
        self.every = Some(every.min(SLEEP_MAX)).filter(|e| !e.is_zero());
    }

    /// Gives out what has become due; true if it is not as often as it likes.
    pub fn handle_tick(&mut self, now: Mono) -> bool {
        let Some(every) = self.every else { return false };
        // Nobody saves up for longer than from one tick to the next.
        self.until = self.until.max(Mono(now.0.saturating_sub(SAVED_FOR.max(every).as_nanos() as u64)));
        let due = u32::try_from((now - self.until).as_nanos() / every.as_nanos()).unwrap_or(u32::MAX);
        let most = 1 + (SAVED_FOR.as_nanos() / every.as_nanos()) as u32;
        self.left = self.left.saturating_add(due).min(most);
        self.until = self.until + every * due;
        true
    }

    fn may_start(&self) -> bool {
        self.every.is_none() || self.left > 0
    }
}

/// Bytes of objects on their way, beyond which none is started that no client waits for.
const RECOVERY_BYTES: u64 = 4 << 20;

/// An object on its way should arrive within that while no client asks for anything.
const ARRIVES_ALONE: Duration = Duration::from_millis(500);

/// Clients that have asked for nothing for so long have nothing to wait for.
const CLIENTS_GONE: Duration = Duration::from_secs(1);

impl Shared {
    /// A new map is in use.
    pub fn handle_map(&mut self, map: Arc<OsdMap>) {
        self.striping.retain(|pool, _| map.pools.contains_key(pool));
        for id in map.pools.iter().filter(|(_, pool)| pool.is_erasure()).map(|(id, _)| *id) {
            // What a pool's profile says does not change.
            if !self.striping.contains_key(&id) && let Some(striping) = Striping::of_pool(&map, id) {
                self.striping.insert(id, Rc::new(striping));
            }
        }
        self.map = map;
    }

    /// True if no client has asked for anything lately.
    pub fn is_alone(&self, now: Mono) -> bool {
        now - self.client_seen > CLIENTS_GONE
    }

    /// How long an object may be on its way, and how many may be at most whatever the way.
    fn recovery_limits(&self, now: Mono) -> (Duration, usize) {
        match (self.is_alone(now), self.way_is_slow) {
            (true, _) => (ARRIVES_ALONE, self.recovery_max_alone),
            (false, true) => (self.felt.target(), self.recovery_max_alone),
            (false, false) => (self.felt.target(), self.recovery_max),
        }
    }

    /// How long an object may be on its way, and how many may be now.
    pub fn recovery_bounds(&self, now: Mono) -> (Duration, usize) {
        let (within, max) = self.recovery_limits(now);
        let max = if self.squeezed { 1 } else { max };
        (within, max.min(self.recovery_flow.window()))
    }

    /// True if one more object may be on its way.
    pub fn recovery_has_room(&self, now: Mono) -> bool {
        let (_, max) = self.recovery_bounds(now);
        self.recovery_active < max && self.recovery_bytes < RECOVERY_BYTES && self.recovery_pace.may_start()
    }

    pub fn recovery_takes_off(&mut self, bytes: u64) {
        self.recovery_active += 1;
        self.recovery_pace.left = self.recovery_pace.left.saturating_sub(1);
        self.recovery_bytes += bytes;
    }

    /// An object that left at `since`, in so many parts one after the other, has arrived.
    pub fn recovery_arrived(&mut self, now: Mono, since: Mono, parts: u32) {
        let (target, max) = self.recovery_limits(now);
        self.recovery_flow.arrived(now, since, target * parts, self.recovery_active, max);
    }

    pub fn recovery_lands(&mut self, bytes: u64) {
        self.recovery_active -= 1;
        self.recovery_bytes -= bytes;
        self.recovery_freed = true;
    }
}

/// One turn of the core.
pub(crate) struct Cx<'a> {
    pub now: Now,
    pub disk: &'a mut dyn Disk,
    pub sh: &'a mut Shared,
    pub fx: &'a mut Vec<Effect>,
}

impl Cx<'_> {
    /// Sends a message, now or when a transaction is durable.
    pub fn send(&mut self, to: Peer, tid: u64, msg: impl Into<Message>, not_before: Durable) {
        let msg = msg.into();
        match not_before {
            Durable::Now => self.fx.push(Effect::Send { to, tid, msg }),
            Durable::After(txc) => {
                self.sh.txcs.insert(txc, TxcRoute::Send { to, tid, msg: Box::new(msg) });
            }
        }
    }

    /// Sends a PG's message to another OSD.
    pub fn send_pg(&mut self, to: OsdId, pgid: PgId, round: Round, body: PgBody, not_before: Durable) {
        self.send_pg_data(to, pgid, round, body, BufList::default(), not_before);
    }

    /// The same with data.
    pub fn send_pg_data(&mut self, to: OsdId, pgid: PgId, round: Round, body: PgBody, data: BufList, not_before: Durable) {
        let msg = PgMessage { pgid, epoch: self.sh.map.epoch, round, osd: self.sh.whoami, body, data };
        self.send(Peer::Osd(to), 0, msg, not_before);
    }

    /// Says something to operators: a line in the cluster log, which may be lost when the monitors are.
    pub fn clog(&mut self, prio: LogPrio, msg: String) {
        let sh = &mut *self.sh;
        sh.clog_seq += 1;
        let entry = LogEntry {
            name: EntityName::new(EntityKind::OSD, sh.whoami.to_string()),
            rank: EntityInst { kind: EntityKind::OSD, num: sh.whoami.0.into() },
            addrs: sh.map.addrs(sh.whoami).cloned().unwrap_or_default(),
            stamp: self.now.wall,
            seq: sh.clog_seq,
            prio,
            msg,
            channel: "cluster".into(),
        };
        let msg = MLog { paxos: PaxosHeader::default(), fsid: sh.map.fsid, entries: vec![entry] };
        self.send(Peer::Mon, 0, msg, Durable::Now);
    }

    /// Submits a transaction. A refusal is fatal: the core only submits what must succeed.
    pub fn submit(&mut self, txn: Transaction) -> TxcId {
        let txc = self.next_txc();
        let done = self.disk.submit(self.now, txc, txn);
        self.submitted(txc, done, false)
    }

    /// See `Store::submit_bulk`.
    pub fn submit_bulk(&mut self, txn: Transaction, how: Bulk) -> TxcId {
        let txc = self.next_txc();
        let done = self.disk.submit_bulk(self.now, txc, txn, how);
        self.submitted(txc, done, true)
    }

    /// Brings pieces of a message's data to their places; `handle_peer` gets it again when they are there. `false`: they go with their transaction.
    pub fn place(&mut self, class: Class, pieces: Vec<BufList>, m: &PgMessage) -> bool {
        self.sh.next_place += 1;
        let id = PlaceId(self.sh.next_place);
        let done = self.disk.place(self.now, id, class, m.pgid.pool, pieces);
        if done {
            self.sh.placing.insert(id, m.clone());
        }
        done
    }

    fn next_txc(&mut self) -> TxcId {
        self.sh.next_txc += 1;
        TxcId(self.sh.next_txc)
    }

    fn submitted(&mut self, txc: TxcId, done: Result<(), Errno>, pushed: bool) -> TxcId {
        self.sh.commit_latency.submitted(txc, self.now.mono, pushed);
        if let Err(e) = done {
            self.fx.push(Effect::Stop { why: format!("the store refuses a transaction: {e}") });
        }
        txc
    }

    /// Submits a transaction on the account of a class of work.
    pub fn submit_as(&mut self, class: Class, txn: Transaction, route: TxcRoute) {
        let txc = self.next_txc();
        let done = self.disk.submit_as(self.now, txc, txn, class);
        let txc = self.submitted(txc, done, false);
        self.route(txc, route);
    }

    /// Submits a transaction whose end a PG waits for.
    pub fn submit_routed(&mut self, txn: Transaction, route: TxcRoute) {
        let txc = self.submit(txn);
        self.route(txc, route);
    }

    /// What a PG waits for, from now on.
    pub fn route(&mut self, txc: TxcId, route: TxcRoute) {
        self.sh.txcs.insert(txc, route);
    }

    /// The id of a read that is to begin.
    pub fn next_read(&mut self) -> ReadId {
        self.sh.next_read += 1;
        ReadId(self.sh.next_read)
    }

    /// Starts a read whose end a PG waits for.
    pub fn read(&mut self, coll: ShardPgId, obj: &HObject, off: u64, len: u64, flags: ReadFlags, route: ReadRoute) -> ReadId {
        let id = self.next_read();
        self.sh.reads.insert(id, route);
        self.disk.read(id, coll, obj, off, len, flags);
        id
    }

    /// The same, if the data is not at hand.
    pub fn read_now(&mut self, coll: ShardPgId, obj: &HObject, off: u64, len: u64, flags: ReadFlags, route: ReadRoute) -> Result<ReadData, ReadId> {
        let id = self.next_read();
        self.disk.read_now(id, coll, obj, off, len, flags).ok_or_else(|| {
            self.sh.reads.insert(id, route);
            id
        })
    }
}

/// A finished read as PGs get it.
pub(crate) type ReadResult = Result<ReadData, Errno>;
