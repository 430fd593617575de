//! The store's state and its doors. What happens behind them: `plan` (a transaction becomes
//! changes), `write` (its data gets blocks), `load` (onodes come into memory), `commit` (they
//! become durable), `read`, `meta` (reads that need no device), `mount`, `fsck`.

use crate::alloc::Allocator;
use crate::budget::Budget;
use crate::block_cache::{BlockCache, BlockHasher};
use crate::onode_cache::{LOOKS, OnodeCache};
use crate::deferred::Deferred;
use crate::names::Names;
use crate::perf::StorePerf;
use crate::place::Placing;
use crate::queue::{DeviceQueue, Joined};
use crate::read::ReadOp;
use crate::shared::Shared;
use crate::txc::{Pend, Txc, TxcState};
use crate::unpack::{CompressedOf, Unpack};
use crate::verified::Verified;
use crate::*;
use bytes::Bytes;
use qos::Class;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::time::Duration;
use types::msg::BufList;
use types::{Errno, HObject, Mono, Now, PgId, PoolId, ShardPgId};

/// The collection for what belongs to the OSD itself (superblock, maps): pool -1, every hash (create it with 0 bits).
pub const META_COLL: ShardPgId = ShardPgId { pg: PgId { pool: PoolId(-1), seed: 0 }, shard: ShardPgId::NO_SHARD };

pub(crate) type ById<V> = HashMap<u64, V, BuildHasherDefault<BlockHasher>>;

/// One OSD's objects.
///
/// Objects of a collection are those of its pool (or of the pool's temporary twin, number -2 - pool) whose hash agrees
/// with the PG's seed in the collection's bits. Whoever drives a store calls `poll_event` until it returns `None` after
/// every turn in which it submitted, read, or handed in a completion: that is also when writing starts, so that what
/// was submitted in one turn shares one flush.
pub struct Store<D, K> {
    pub(crate) dev: D,
    pub(crate) kv: K,
    pub(crate) config: StoreConfig,
    pub(crate) facts: DeviceFacts,
    /// How data of pools is written that have a policy of their own.
    pub(crate) policies: BTreeMap<PoolId, Policy>,
    /// As it is, or will be, in the database.
    pub(crate) superblock: mount::Super,
    pub(crate) poisoned: Option<Errno>,
    pub(crate) events: VecDeque<StoreEvent>,

    // Space and names.
    pub(crate) alloc: Allocator,
    pub(crate) shared: Shared,
    pub(crate) compressed: CompressedOf,
    pub(crate) colls: BTreeMap<ShardPgId, u32>,
    pub(crate) onodes: OnodeCache,
    /// Every object that the database has, or will have, is in it.
    pub(crate) names: Names,
    pub(crate) cache: BlockCache,
    pub(crate) budget: Budget,
    pub(crate) verified: Verified,
    pub(crate) perf: StorePerf,
    /// Bytes of memory that the process had a moment ago; 0 if nobody said.
    pub(crate) resident: u64,
    pub(crate) nid_next: u64,
    pub(crate) stored: u64,

    // Transactions, by internal number.
    pub(crate) txcs: ById<Txc>,
    pub(crate) txc_next: u64,
    /// Those of a collection that are not in a batch yet, in order of submission; no entry for an empty queue.
    pub(crate) queues: BTreeMap<ShardPgId, VecDeque<u64>>,
    /// Collections that were split off others, with whose queue theirs is as long as that is not empty: what the new one
    /// does to objects comes after what the old one did to them.
    pub(crate) lanes: BTreeMap<ShardPgId, ShardPgId>,
    /// Direct writes on their way to the device, by first block.
    pub(crate) direct: BTreeMap<u64, BufList>,
    pub(crate) pends: BTreeMap<u64, Pend>,
    pub(crate) pend_next: u64,
    /// Compressed runs that are being read for blocks that are written in part, by first block.
    pub(crate) unpacks: BTreeMap<u64, Unpack>,
    /// This turn's batch, and whose changes are in it.
    pub(crate) batch: KvBatch,
    pub(crate) queued: Vec<u64>,
    /// Applied since the last database flush was started.
    pub(crate) applied: Vec<u64>,
    /// Database flushes in flight, oldest first, with what each covers beside what those before it do.
    pub(crate) flushing: VecDeque<Flush>,
    /// What a database flush took lately, queueing included.
    pub(crate) flush_took: Typical,
    /// When somebody last asked for something or an I/O ended.
    pub(crate) now: Mono,
    pub(crate) deferred: Deferred,
    /// Deferred bytes that there is memory for.
    pub(crate) deferred_most: u64,
    /// Data on its way to its place ahead of its transaction.
    pub(crate) placing: BTreeMap<PlaceId, Placing>,

    // I/O.
    pub(crate) queue: DeviceQueue,
    /// Whether the file system beneath runs full, and when that was looked at.
    pub(crate) tight_beneath: Option<(Mono, bool)>,
    pub(crate) io_next: u64,
    pub(crate) ios: ById<IoKind>,
    /// Who waits for the device flush after the one in flight, and for that one.
    pub(crate) dev_waiting: Vec<FlushFor>,
    pub(crate) dev_flushing: Option<Vec<FlushFor>>,
    pub(crate) dev_flush_since: Mono,
    pub(crate) reads: ById<ReadOp>,
    pub(crate) read_next: u64,
    /// Reads of objects with data in flight.
    pub(crate) reads_blocked: Vec<ReadOp>,
}

/// What an I/O was for.
pub(crate) enum IoKind {
    TxcWrite { txc: u64, first: u64 },
    Place(PlaceId),
    PendRead { pend: u64, piece: usize, block: onode::Block, attempts: u32 },
    /// `n` blocks of a compressed run, from its `at`-th on.
    Unpack { head: u64, at: usize, n: usize },
    DeferredWrite { bytes: u64 },
    /// Of a compressed run: from its `at`-th block on.
    Read { read: u64, part: usize, at: usize },
    Joined(Joined),
    DevFlush,
    KvFlush,
}

/// Bytes of a device that writes under way may take: sixteen of 4 MiB.
const RESERVE_LEAST: u64 = 64 << 20;
/// Bytes of a file system beneath a sparse file that are left to the database and the log on it.
const BENEATH_RESERVE: u64 = 128 << 20;

/// How a bulk transaction's data travels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bulk {
    /// On whose account it is written.
    pub class: Class,
    /// Where the data of each of its writes is already, in their order; an empty one is nowhere.
    pub placed: Vec<Placed>,
}

/// What something takes as a rule: about two of three take less. A mean would go by the few that met something else on the disk.
pub(crate) struct Typical(pub Duration);

impl Default for Typical {
    fn default() -> Self {
        Typical(Self::LEAST)
    }
}

impl Typical {
    /// A dozen steps from there to what a disk whose head moves takes.
    const LEAST: Duration = Duration::from_micros(500);

    pub fn learn(&mut self, took: Duration) {
        self.0 = if took > self.0 { self.0 * 5 / 4 } else { (self.0 * 8 / 9).max(Self::LEAST) };
    }
}

/// A flush of the database, and whose changes it covers.
pub(crate) struct Flush {
    pub id: IoId,
    pub since: Mono,
    pub txcs: Vec<u64>,
}

/// Who wants the device flushed.
pub(crate) enum FlushFor {
    Txc(u64),
    Place(PlaceId),
    DeferredBatch,
}

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// Takes in a transaction: in effect for metadata reads at once, `StoreEvent::Committed` when durable.
    /// Refused as a whole, with nothing done: ENOSPC, ENOENT (no such collection; cloning or moving nothing),
    /// EEXIST (collection), ENOTEMPTY (removing a collection with objects), EFBIG, EINVAL (an object that does not belong
    /// to the collection), EIO (poisoned).
    pub fn submit(&mut self, now: Now, txc: TxcId, txn: Transaction) -> Result<(), Errno> {
        self.now = now.mono;
        self.start(Txc::new(self.now, txc, txn.coll), txn)
    }

    /// The same on the account of a class of work: in its turn at the device.
    pub fn submit_as(&mut self, now: Now, txc: TxcId, txn: Transaction, class: Class) -> Result<(), Errno> {
        self.now = now.mono;
        self.start(Txc { class, ..Txc::new(self.now, txc, txn.coll) }, txn)
    }

    /// The same for much data that no client waits for, as recovery: it goes straight to free space, however small its pieces are, unless flushes are slow
    /// (`StoreConfig::bulk_flush_max`), or is there already. The log keeps the time short until a small write is durable, and has it written twice.
    pub fn submit_bulk(&mut self, now: Now, txc: TxcId, txn: Transaction, how: Bulk) -> Result<(), Errno> {
        self.now = now.mono;
        let Bulk { class, placed } = how;
        let bulk = self.is_log_quick();
        self.start(Txc { bulk, class, placed: placed.into(), ..Txc::new(self.now, txc, txn.coll) }, txn)
    }

    /// True if what need not go through the log had better not.
    pub(crate) fn is_log_quick(&self) -> bool {
        self.flush_took.0 < self.config.bulk_flush_max
    }

    fn start(&mut self, txc: Txc, txn: Transaction) -> Result<(), Errno> {
        self.check_alive()?;
        self.validate(&txn)?;
        let number = self.txc_next;
        self.txc_next += 1;
        let mut txc = self.plan(number, txc, txn)?;
        // More than there were writes.
        std::mem::take(&mut txc.placed).into_iter().for_each(|placed| self.give_back(placed));
        self.start_txc(number, txc);
        Ok(())
    }

    /// Reads data; answered by `StoreEvent::ReadDone`, at the next `poll_event` if everything is in memory.
    /// `len` may reach past the end.
    pub fn read(&mut self, id: ReadId, coll: ShardPgId, obj: &HObject, off: u64, len: u64, flags: ReadFlags) {
        let key = key::object(coll.shard, obj).into();
        flags.trust.into_iter().for_each(|trust| self.verified.want(trust));
        self.start_read(ReadOp::new(self.now, id, coll, key, off, len, flags));
    }

    /// The same, answered at once if everything is in memory. `None`: it goes on as with `read`.
    pub fn read_now(&mut self, id: ReadId, coll: ShardPgId, obj: &HObject, off: u64, len: u64, flags: ReadFlags) -> Option<ReadData> {
        self.read(id, coll, obj, off, len, flags);
        match self.events.pop_back() {
            Some(StoreEvent::ReadDone { id: done, result: Ok(data) }) if done == id => Some(data),
            other => {
                self.events.extend(other);
                None
            }
        }
    }

    /// A device or key-value I/O has ended.
    pub fn handle_io(&mut self, now: Now, id: IoId, result: Result<Bytes, Errno>) {
        let Some(kind) = self.ios.remove(&id.0) else { return };
        self.now = now.mono;
        self.queue.ended(self.now, id);
        match (kind, result) {
            (IoKind::Read { read, part, at }, result) => self.handle_read(now, read, (part, at), result),
            (IoKind::Unpack { head, at, n }, result) => self.handle_unpack_read(head, at, n, result),
            (IoKind::Joined(joined), result) => self.handle_joined(now, joined, result),
            (IoKind::PendRead { pend, piece, block, attempts }, result) => {
                self.handle_pend_read(pend, piece, block, attempts, result);
            }
            // A write or a flush that failed leaves us not knowing what the media hold.
            (_, Err(errno)) => self.poison(errno),
            (_, Ok(_)) if self.poisoned.is_some() => {}
            (IoKind::TxcWrite { txc, first }, Ok(_)) => self.handle_txc_written(txc, first),
            (IoKind::Place(id), Ok(_)) => self.handle_place_written(id),
            (IoKind::DeferredWrite { bytes }, Ok(_)) => self.handle_deferred_written(bytes),
            (IoKind::DevFlush, Ok(_)) => self.handle_dev_flushed(),
            (IoKind::KvFlush, Ok(_)) => self.handle_kv_flushed(id),
        }
    }

    /// Starts what is due, and takes the next thing the store has to say.
    pub fn poll_event(&mut self) -> Option<StoreEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        self.settle();
        self.events.pop_front()
    }

    /// True when nothing is in flight: `umount` loses nothing that was submitted.
    pub fn is_idle(&self) -> bool {
        self.txcs.is_empty() && self.placing.is_empty() && self.ios.is_empty() && self.batch.is_empty() && self.events.is_empty()
    }

    /// Transactions in flight, oldest first: (id, collection, state).
    pub fn in_flight(&self) -> Vec<(TxcId, ShardPgId, TxcState)> {
        let mut all: Vec<(&u64, &Txc)> = self.txcs.iter().collect();
        all.sort_by_key(|(number, _)| **number);
        all.into_iter().map(|(_, t)| (t.id, t.coll, t.state)).collect()
    }

    /// Gives device and engine back. What was not committed is lost; deferred writes stay in the log.
    pub fn umount(self) -> (D, K) {
        (self.dev, self.kv)
    }

    /// What the device was found to be; whoever opens a store measures.
    pub fn set_facts(&mut self, facts: DeviceFacts) {
        self.facts = facts;
        self.config.tune(Tuning::of(facts.profile));
    }

    pub fn facts(&self) -> DeviceFacts {
        self.facts
    }

    /// Changes what can be changed while it is open.
    pub fn tune(&mut self, tuning: Tuning) {
        self.config.tune(tuning);
        self.config.deferred_bytes_max = self.config.deferred_bytes_max.min(self.deferred_most);
        self.queue.depth_max = tuning.queue_depth_max.max(1);
    }

    /// Memory for data that is to be written; see `BlockDev::buffer`.
    pub fn buffer(&self, len: usize) -> Box<dyn crate::WriteBuffer> {
        self.dev.buffer(len)
    }

    /// What is in force of that.
    pub fn tuning(&self) -> Tuning {
        self.config.tuning()
    }

    /// Writes zeros to a free block and flushes it, waiting for that: for who measures, before anything else is asked of the device. `at`
    /// thousandths of the way through it, or behind that.
    pub fn try_flush(&mut self, at: u64) -> Result<(), Errno> {
        let block = self.alloc.free_from(self.alloc.blocks() / 1000 * at.min(999)).ok_or(Errno::ENOSPC)?;
        self.dev.write_sync(block * onode::BLOCK, &[0; onode::BLOCK as usize])
    }

    /// Has the engine's log flushed, waiting for that: the same for the device that the log is on.
    pub fn try_log_flush(&mut self) -> Result<(), KvError> {
        let mut batch = KvBatch::default();
        batch.put(key::SUPER, denc::to_bytes(&self.superblock, 0));
        self.kv.apply(batch)?;
        self.kv.flush_sync()
    }

    /// How data is written from now on: that of pools which are named, and that of all others.
    pub fn set_policies(&mut self, others: Policy, pools: BTreeMap<PoolId, Policy>) {
        self.config.policy = others;
        self.policies = pools;
    }

    pub(crate) fn policy_of(&self, pool: PoolId) -> Policy {
        self.policies.get(&pool).copied().unwrap_or(self.config.policy)
    }

    /// The process has so many bytes of memory: caches give way if that is too much.
    pub fn fit_memory(&mut self, resident: u64) -> Pressure {
        self.resident = resident;
        self.budget.fit(resident, self.config.memory_target)
    }

    /// The process has so many bytes of memory: what it has to spare is lent to the caches, or taken back. Called more often.
    pub fn lend_memory(&mut self, resident: u64) {
        let (onodes, data) = self.borrowed();
        self.budget.lend(resident, self.config.memory_target, onodes + data);
        self.fit_caches();
    }

    /// Has caches give what they have beyond what they may have now.
    pub(crate) fn fit_caches(&mut self) {
        let (onodes, _) = self.borrowed();
        let data = self.budget.of_data(self.config.data_cache_bytes, onodes);
        self.onodes.trim(self.budget.of_onodes(self.config.onode_cache_bytes), LOOKS);
        self.cache.limit(data);
    }

    /// What onodes have beyond their own budget, and data.
    fn borrowed(&self) -> (u64, u64) {
        let beyond = |held: u64, own: u64| held.saturating_sub(self.budget.of(own));
        (beyond(self.onodes.held().1, self.config.onode_cache_bytes), beyond(self.cache.held().1, self.config.data_cache_bytes))
    }

    /// Forgets what can be read again: objects that are not in use, and data, that in the page cache, too.
    pub fn drop_caches(&mut self) {
        self.dev.uncache(0, self.dev.size());
        // The first looks take away that something was used lately, the next what was packed then.
        for _ in 0..3 {
            self.onodes.trim(0, usize::MAX);
            self.cache.limit(0);
        }
    }

    /// What the process is to take from now on. Until this is called it is what `StoreConfig` says.
    pub fn set_memory(&mut self, memory: Memory) {
        let mut usual = StoreConfig::default();
        usual.tune(Tuning::of(self.facts.profile));
        let budgets = memory.budgets(&usual);
        let c = &mut self.config;
        (c.memory_target, c.onode_cache_bytes, c.data_cache_bytes) = (budgets.target, budgets.onodes, budgets.data);
        // Where there is enough memory, options have their say.
        self.deferred_most = if budgets.deferred < usual.deferred_bytes_max { budgets.deferred } else { u64::MAX };
        c.deferred_bytes_max = c.deferred_bytes_max.min(self.deferred_most);
        self.budget.keep(memory.cache_min, budgets.onodes + budgets.data);
        self.kv.set_memory(budgets.kv_cache, budgets.memtables);
    }

    /// How much is where; see `StatFs`.
    pub fn statfs(&self) -> StatFs {
        let block = onode::BLOCK;
        let size = |from: u8| self.kv.approximate_size(&[from], &[from + 1]);
        let mut compressed = Compressed::default();
        self.compressed.0.values().for_each(|c| compressed.add(c));
        StatFs {
            total: self.total(),
            available: self.available(),
            stored: self.stored,
            allocated: (self.alloc.blocks() - 1 - self.alloc.free()) * block,
            compressed,
            omap: size(key::OMAP),
            internal: size(key::OBJECT) + size(key::SEGMENT) + size(key::COLL_KEYS),
            kv: self.kv.space(),
        }
    }

    /// Bytes for data now: what is free on the device, and in the file system beneath it, less what is kept back. A
    /// system call at most.
    pub fn available(&self) -> u64 {
        let free = self.alloc.free().saturating_sub(self.reserve()) * onode::BLOCK;
        self.dev.room_beneath().map_or(free, |room| free.min(room.saturating_sub(BENEATH_RESERVE)))
    }

    /// Bytes in all.
    pub fn total(&self) -> u64 {
        self.alloc.blocks() * onode::BLOCK
    }

    /// The device, for whoever drives or measures it.
    pub fn dev_mut(&mut self) -> &mut D {
        &mut self.dev
    }

    /// The key-value engine, for whoever drives it.
    pub fn kv_mut(&mut self) -> &mut K {
        &mut self.kv
    }

    /// Blocks kept for what is on its way when the device becomes full: whoever orders writes goes by `available`, and a
    /// write it ordered for all its copies must not fail on one of them.
    pub(crate) fn reserve(&self) -> u64 {
        let blocks = self.alloc.blocks();
        let least = (RESERVE_LEAST / onode::BLOCK).min(blocks / 16);
        least.max(blocks * u64::from(self.config.reserve_per_mille) / 1000)
    }

    pub(crate) fn check_alive(&self) -> Result<(), Errno> {
        match self.poisoned {
            None => Ok(()),
            Some(_) => Err(Errno::EIO),
        }
    }

    /// From here on nothing is acknowledged.
    pub(crate) fn poison(&mut self, errno: Errno) {
        if self.poisoned.replace(errno).is_none() {
            self.events.retain(|e| !matches!(e, StoreEvent::Committed(_)));
            self.events.push_back(StoreEvent::Poisoned(errno));
        }
    }

    /// The value of a call to the engine; an error poisons the store.
    pub(crate) fn kv_ok<T>(&mut self, result: Result<T, KvError>) -> Result<T, Errno> {
        result.map_err(|e| {
            self.poison(e.errno);
            Errno::EIO
        })
    }

    /// A block is not any more what the device may have returned.
    pub(crate) fn unverify(&mut self, phys: u64) {
        self.verified.forget(phys, self.read_next);
    }

    /// Numbers an I/O.
    pub(crate) fn io(&mut self, kind: IoKind) -> IoId {
        self.io_next += 1;
        self.ios.insert(self.io_next, kind);
        IoId(self.io_next)
    }
}
