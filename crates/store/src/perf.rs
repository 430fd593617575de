//! What a store counts, under upstream's names, and what it holds in memory.
//!
//! Holds: what is bumped as work is done costs an addition or two; the rest is asked for when somebody looks.
//! Upstream: the perf counters in src/os/bluestore/BlueStore.cc, src/os/bluestore/BlueFS.cc, src/kv/RocksDBStore.cc.

use crate::txc::{Txc, TxcState};
use crate::{BlockDev, Kv, Store, onode};
use admin::perf::{PerfCounters, prio};
use std::time::Duration;
use types::Mono;

admin::counters! {
    Index SPECS:
    KvFlushLat "kv_flush_lat" TimeAvg "Flush of the data device before a commit", nick("fl_l", prio::INTERESTING);
    KvCommitLat "kv_commit_lat" TimeAvg "Flush of the database's log", nick("", prio::DEBUG);
    KvSyncLat "kv_sync_lat" TimeAvg "Flushes that a commit waited for, together", nick("ks_l", prio::INTERESTING);
    StatePrepareLat "state_prepare_lat" TimeAvg "From submission until a transaction's data writes are under way", nick("", prio::DEBUG);
    StateAioWaitLat "state_aio_wait_lat" TimeAvg "Until its data is on the device", nick("io_l", prio::INTERESTING);
    StateIoDoneLat "state_io_done_lat" TimeAvg "Until the transactions before it in its collection are as far", nick("", prio::DEBUG);
    StateKvQueuedLat "state_kv_queued_lat" TimeAvg "Until it is given to the journal", nick("", prio::DEBUG);
    StateKvCommitingLat "state_kv_commiting_lat" TimeAvg "Until the journal has it for certain", nick("", prio::DEBUG);
    ThrottleLat "throttle_lat" TimeAvg "Average wait for room among the deferred writes", nick("th_l", prio::CRITICAL);
    CommitLat "commit_lat" TimeAvg "From a transaction's submission until it was durable", nick("c_l", prio::CRITICAL);
    ReadLat "read_lat" TimeAvg "From a read's request to its data", nick("r_l", prio::CRITICAL);
    ReadWaitAioLat "read_wait_aio_lat" TimeAvg "Average latency of reads that the device was asked for", nick("", prio::DEBUG);
    WritePadBytes "write_pad_bytes" Counter "Zeros written to fill blocks", bytes(), nick("", prio::DEBUG);
    DeferredWriteOps "deferred_write_ops" Counter "Blocks brought to their places after the journal had them", nick("", prio::DEBUG);
    DeferredWriteBytes "deferred_write_bytes" Counter "Bytes in them", bytes(), nick("def", prio::DEBUG);
    WritePenaltyReadOps "write_penalty_read_ops" Counter "Blocks that had to be read because they were overwritten in part", nick("", prio::DEBUG);
    Allocated "bluestore_allocated" Gauge "Bytes of the device in use", nick("", prio::DEBUG);
    Stored "bluestore_stored" Gauge "Bytes that objects hold", nick("", prio::DEBUG);
    Compressed "bluestore_compressed" Gauge "Bytes of compressed data", bytes(), nick("c", prio::USEFUL);
    CompressedAllocated "bluestore_compressed_allocated" Gauge "Bytes of the device that compressed data takes", bytes(), nick("c_a", prio::USEFUL);
    CompressedOriginal "bluestore_compressed_original" Gauge "Bytes that compressed data was made of", bytes(), nick("c_o", prio::USEFUL);
    Onodes "bluestore_onodes" Gauge "Objects' descriptions in memory", nick("", prio::DEBUG);
    OnodeHits "onode_hits" Counter "Looks for an object that found it in memory", nick("o_ht", prio::USEFUL);
    OnodeMisses "onode_misses" Counter "Looks that had to ask the database", nick("o_ms", prio::USEFUL);
    Buffers "bluestore_buffers" Gauge "Blocks in the cache", nick("", prio::DEBUG);
    BufferBytes "bluestore_buffer_bytes" Gauge "Bytes in the cache", bytes(), nick("", prio::DEBUG);
    BufferHitBytes "bluestore_buffer_hit_bytes" Counter "Bytes of reads that came from the cache", bytes(), nick("", prio::DEBUG);
    BufferMissBytes "bluestore_buffer_miss_bytes" Counter "Bytes of reads that came from the device", bytes(), nick("", prio::DEBUG);
    WriteBig "bluestore_write_big" Counter "Writes of whole blocks to free space", nick("", prio::DEBUG);
    WriteBigBytes "bluestore_write_big_bytes" Counter "Bytes in them", bytes(), nick("", prio::DEBUG);
    WriteBigBlobs "bluestore_write_big_blobs" Counter "Runs of blocks that they went to", nick("", prio::DEBUG);
    WriteSmall "bluestore_write_small" Counter "Small writes, block by block", nick("", prio::DEBUG);
    WriteSmallBytes "bluestore_write_small_bytes" Counter "Bytes in them", bytes(), nick("", prio::DEBUG);
    WriteDeferred "bluestore_write_deferred" Counter "Transactions whose data went to the journal first", nick("", prio::DEBUG);
    WriteDeferredBytes "bluestore_write_deferred_bytes" Counter "Bytes of such data", nick("", prio::DEBUG);
    WriteSmallPreRead "bluestore_write_small_pre_read" Counter "Small writes that needed what the block held before", nick("", prio::DEBUG);
    Txcs "bluestore_txc" Counter "Transactions that are durable", nick("", prio::DEBUG);
    ReadEio "bluestore_read_eio" Counter "Reads that ended in EIO", nick("", prio::DEBUG);
    ReadsWithRetries "bluestore_reads_with_retries" Counter "Reads that were tried again since a checksum did not fit", nick("", prio::DEBUG);
}

admin::counters! {
    Rocks ROCKS_SPECS:
    Get "get" Counter "Look-ups in the database", nick("", prio::DEBUG);
    GetLatency "get_latency" TimeAvg "How long a look-up takes", nick("", prio::DEBUG);
    SubmitLatency "submit_latency" TimeAvg "How long giving the database a batch takes", nick("", prio::DEBUG);
    SubmitSyncLatency "submit_sync_latency" TimeAvg "How long it takes until a batch is flushed", nick("", prio::DEBUG);
    MemtableBytes "memtable_bytes" Gauge "Memory in memtables and in what waits to get there", bytes(), nick("", prio::DEBUG);
    CacheBytes "block_cache_bytes" Gauge "Memory in the block cache", bytes(), nick("", prio::DEBUG);
    PendingCompaction "pending_compaction_bytes" Gauge "Bytes that compaction has still to rewrite, about", bytes(), nick("", prio::DEBUG);
}

admin::counters! {
    Bluefs BLUEFS_SPECS:
    DbTotal "db_total_bytes" Gauge "Size of the device that the database is on", bytes(), nick("b", prio::USEFUL);
    DbUsed "db_used_bytes" Gauge "What the database takes of it", bytes(), nick("u", prio::USEFUL);
    WalTotal "wal_total_bytes" Gauge "Size of the journal's device", bytes(), nick("walb", prio::USEFUL);
    WalUsed "wal_used_bytes" Gauge "What the journal takes of it", bytes(), nick("walu", prio::USEFUL);
    SlowTotal "slow_total_bytes" Gauge "Size of the device that the database spills over to", bytes(), nick("slob", prio::USEFUL);
    SlowUsed "slow_used_bytes" Gauge "What has spilled over", bytes(), nick("slou", prio::USEFUL);
    NumFiles "num_files" Gauge "Files of the database", nick("f", prio::USEFUL);
}

admin::counters! {
    Throttle THROTTLE_SPECS:
    Val "val" Gauge "What is taken of it now", nick("", prio::DEBUG);
    Max "max" Gauge "What may be taken at most", nick("", prio::DEBUG);
}

admin::counters! {
    Pricache CACHE_SPECS:
    Target "target_bytes" Gauge "Memory that the process is to stay below", bytes(), nick("t", prio::INTERESTING);
    Mapped "mapped_bytes" Gauge "Memory that the process has", bytes(), nick("m", prio::INTERESTING);
    CacheBytes "cache_bytes" Gauge "Memory that caches may have", bytes(), nick("c", prio::INTERESTING);
}

/// The loggers of a store.
pub(crate) struct StorePerf {
    bluestore: PerfCounters,
    rocksdb: PerfCounters,
    bluefs: PerfCounters,
    deferred: PerfCounters,
    pricache: PerfCounters,
}

impl Default for StorePerf {
    fn default() -> Self {
        StorePerf {
            bluestore: PerfCounters::new("bluestore", SPECS),
            rocksdb: PerfCounters::new("rocksdb", ROCKS_SPECS),
            bluefs: PerfCounters::new("bluefs", BLUEFS_SPECS),
            deferred: PerfCounters::new("throttle-bluestore_throttle_deferred_bytes", THROTTLE_SPECS),
            pricache: PerfCounters::new("bluestore-pricache", CACHE_SPECS),
        }
    }
}

impl StorePerf {
    /// A transaction has left a state in which it was so long.
    pub fn left(&mut self, state: TxcState, took: Duration) {
        let index = match state {
            TxcState::Prepare => Index::StatePrepareLat,
            TxcState::AioWait => Index::StateAioWaitLat,
            TxcState::IoDone => Index::StateIoDoneLat,
            TxcState::KvQueued => Index::StateKvQueuedLat,
            TxcState::KvSubmitted => Index::StateKvCommitingLat,
        };
        self.bluestore.time(index as usize, took);
    }

    /// A transaction is durable; it waited so long for room among the deferred writes, if it had to.
    pub fn committed(&mut self, took: Duration, throttled: Duration) {
        self.bluestore.inc(Index::Txcs as usize);
        self.bluestore.time(Index::CommitLat as usize, took);
        self.bluestore.time(Index::ThrottleLat as usize, throttled);
    }

    pub fn dev_flushed(&mut self, took: Duration) {
        self.bluestore.time(Index::KvFlushLat as usize, took);
        self.bluestore.time(Index::KvSyncLat as usize, took);
    }

    pub fn kv_flushed(&mut self, took: Duration) {
        self.bluestore.time(Index::KvCommitLat as usize, took);
        self.bluestore.time(Index::KvSyncLat as usize, took);
        self.rocksdb.time(Rocks::SubmitSyncLatency as usize, took);
    }

    pub fn onode_hit(&mut self) {
        self.bluestore.inc(Index::OnodeHits as usize);
    }

    pub fn onode_missed(&mut self) {
        self.bluestore.inc(Index::OnodeMisses as usize);
    }

    /// Blocks straight to free space: one run of so many bytes, `pad` of them beyond what was written.
    pub fn wrote_big(&mut self, bytes: u64, pad: u64, runs: u64) {
        self.bluestore.inc(Index::WriteBig as usize);
        self.bluestore.add(Index::WriteBigBytes as usize, bytes);
        self.bluestore.add(Index::WriteBigBlobs as usize, runs);
        self.bluestore.add(Index::WritePadBytes as usize, pad);
    }

    /// A block, or a part of one, through the log.
    pub fn wrote_small(&mut self, bytes: u64, over_old: bool) {
        self.bluestore.inc(Index::WriteSmall as usize);
        self.bluestore.add(Index::WriteSmallBytes as usize, bytes);
        self.bluestore.add(Index::WriteSmallPreRead as usize, over_old.into());
    }

    /// A record of so many bytes in the log that have to reach their place later.
    pub fn deferred(&mut self, bytes: u64) {
        for (ops, sum) in [(Index::DeferredWriteOps, Index::DeferredWriteBytes), (Index::WriteDeferred, Index::WriteDeferredBytes)] {
            self.bluestore.inc(ops as usize);
            self.bluestore.add(sum as usize, bytes);
        }
    }

    /// The device is read because a block is written in part.
    pub fn penalty_read(&mut self) {
        self.bluestore.inc(Index::WritePenaltyReadOps as usize);
    }

    /// A read is planned: so many bytes of it are in memory, so many are not.
    pub fn read_planned(&mut self, hit: u64, miss: u64) {
        self.bluestore.add(Index::BufferHitBytes as usize, hit);
        self.bluestore.add(Index::BufferMissBytes as usize, miss);
    }

    /// A read is answered.
    pub fn read_done(&mut self, took: Duration, device: bool, retried: bool, failed: bool) {
        self.bluestore.time(Index::ReadLat as usize, took);
        if device {
            self.bluestore.time(Index::ReadWaitAioLat as usize, took);
        }
        self.bluestore.add(Index::ReadsWithRetries as usize, retried.into());
        self.bluestore.add(Index::ReadEio as usize, failed.into());
    }
}

impl Txc {
    /// It is in this state from now on.
    pub fn enter(&mut self, state: TxcState, now: Mono, perf: &mut StorePerf) {
        if self.state != state {
            perf.left(self.state, now - self.since);
            (self.state, self.since) = (state, now);
        }
    }
}

/// What a store holds in memory: how many of each, and their bytes, about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreMemory {
    pub onodes: (u64, u64),
    pub data: (u64, u64),
    pub transactions: (u64, u64),
    /// Blocks that have to reach their place.
    pub deferred: (u64, u64),
    /// Writes on their way to the device.
    pub writing: (u64, u64),
    /// What is known of the device's blocks: which are free, and how many objects refer to each.
    pub alloc: (u64, u64),
}

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// What is in memory.
    pub fn memory(&self) -> StoreMemory {
        let transactions = self.txcs.len() as u64;
        let shared = self.shared.held();
        StoreMemory {
            onodes: self.onodes.held(),
            data: self.cache.held(),
            transactions: (transactions, transactions * size_of::<Txc>() as u64),
            deferred: (self.deferred.blocks.len() as u64, self.deferred.blocks.len() as u64 * onode::BLOCK),
            writing: (self.direct.len() as u64, self.direct.values().map(|list| list.len() as u64).sum()),
            alloc: (1 + shared.0, self.alloc.blocks() / 8 + shared.1),
        }
    }

    /// The loggers, with the figures of this moment.
    pub fn perf(&mut self) -> Vec<&mut PerfCounters> {
        let (held, statfs, kv) = (self.memory(), self.statfs(), self.kv.figures());
        let p = &mut self.perf;
        let mut set = |index: Index, value: u64| p.bluestore.set(index as usize, value);
        set(Index::Allocated, statfs.allocated);
        set(Index::Stored, statfs.stored);
        set(Index::Onodes, held.onodes.0);
        set(Index::Buffers, held.data.0);
        set(Index::BufferBytes, held.data.0 * onode::BLOCK);
        p.rocksdb.mirror(Rocks::Get as usize, kv.gets.0);
        p.rocksdb.mirror_mean(Rocks::GetLatency as usize, kv.gets.0, kv.gets.1);
        p.rocksdb.mirror_mean(Rocks::SubmitLatency as usize, kv.submits.0, kv.submits.1);
        let mut set = |index: Rocks, value: u64| p.rocksdb.set(index as usize, value);
        set(Rocks::MemtableBytes, kv.memtable_bytes);
        set(Rocks::CacheBytes, kv.cache_bytes);
        set(Rocks::PendingCompaction, kv.pending_compaction_bytes);
        let mut set = |index: Bluefs, value: u64| p.bluefs.set(index as usize, value);
        set(Bluefs::DbTotal, kv.table_bytes_max);
        set(Bluefs::DbUsed, kv.table_bytes);
        set(Bluefs::WalTotal, kv.log_bytes_max);
        set(Bluefs::WalUsed, kv.log_bytes);
        set(Bluefs::NumFiles, kv.files);
        p.deferred.set(Throttle::Val as usize, self.deferred.total_bytes());
        p.deferred.set(Throttle::Max as usize, self.config.deferred_bytes_max);
        let caches = self.budget.of(self.config.onode_cache_bytes) + self.budget.of_data(self.config.data_cache_bytes, 0) + kv.cache_bytes_max;
        p.pricache.set(Pricache::Target as usize, self.config.memory_target);
        p.pricache.set(Pricache::Mapped as usize, self.resident);
        p.pricache.set(Pricache::CacheBytes as usize, caches);
        vec![&mut p.bluestore, &mut p.rocksdb, &mut p.bluefs, &mut p.deferred, &mut p.pricache]
    }
}
