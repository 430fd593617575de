//! RocksDB as a `store::Kv`.
//!
//! Room: io.   Holds: `apply` writes to memtable and log buffer and does not wait for the disk while there is room in the
//! log; a flush writes the buffer and syncs it, so that one fdatasync serves all batches applied before. A monitor's log is
//! RocksDB's own, an object store's is `journal`.
//! Why these settings: see `base_options` and `Layout`.
//! Upstream: src/kv/RocksDBStore.cc.

mod crc;
mod flush;
mod journal;
mod moving;
mod options;
mod slow;
mod tables;

pub use flush::{Flushed, Flusher};
pub use admin::rocksdb::OptionError;
pub use journal::Label as JournalLabel;
pub use moving::{copy_database, copy_journal, sync_dir};
pub use options::Tuning;
pub use slow::{Slow, Usage, bytes_in};

use crate::patience::until_free;
use crate::sink::IoSink;
use bytes::Bytes;
use flush::Log;
use journal::{Journal, Walk, in_order_of_walk};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, BottommostLevelCompaction, Cache, ColumnFamilyDescriptor, CompactOptions, DB, DBCompressionType, DBPath, DBRawIterator, DBRecoveryMode,
    ErrorKind, Options, WriteBatch,
};
use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use slow::Levels;
use std::time::Instant;
use store::{IoId, Kv, KvBatch, KvError, KvFigures, KvSpace};
use tables::Tables;
use types::Errno;

/// Deletions of ranges with up to this many keys become single ones: a range tombstone slows every later read.
const SINGLE_DELETES_MAX: usize = 10_000;
/// The share of a memtable that its filter takes.
const MEMTABLE_BLOOM_RATIO: f64 = 0.02;

/// How keys are spread over column families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One family: a monitor's.
    Plain,
    /// The object store's: omap apart, for it is scanned and compacted differently; a journal instead of RocksDB's log,
    /// with a family for its root and one for the rows that it could not keep.
    ObjectStore,
}

/// How to open a database.
#[derive(Debug, Clone)]
pub struct RocksConfig {
    pub dir: PathBuf,
    /// An object store's journal, if it is not to be in `dir`: a file, or a block device.
    pub journal: Option<PathBuf>,
    /// Whose database it is, an OSD's uuid: a device that is somebody else's journal is refused.
    pub owner: [u8; 16],
    /// Where tables go that have no room in `dir`, where that is a small device.
    pub slow: Option<Slow>,
    pub layout: Layout,
    /// Make the database if there is none: for mkfs. A daemon that runs has one, and an engine that finds its `CURRENT`
    /// gone would begin anew over what is left.
    pub create: bool,
    /// What the operator has set, over our own settings.
    pub tuning: Tuning,
    /// Budget of the block cache in bytes (index and filter blocks included).
    pub cache_bytes: usize,
    /// Budget of the memtables in bytes, over all families, full ones that wait for their flush included.
    pub memtable_bytes: usize,
    /// Bytes of an object store's journal when it is made, a multiple of 4096.
    pub journal_bytes: u64,
    /// Count what the engine does: for measurements, it costs a little.
    pub statistics: bool,
}

/// Enough for twice the deferred writes that a store lets wait.
pub const JOURNAL_BYTES_MIN: u64 = 64 << 20;
/// 30,000 small writes from checkpoint to checkpoint: as many as fill a memtable.
pub const JOURNAL_BYTES_MAX: u64 = 256 << 20;

/// How large a journal ought to be for a device of so many bytes.
pub fn journal_bytes(device: u64) -> u64 {
    (device / 32 / 4096 * 4096).clamp(JOURNAL_BYTES_MIN, JOURNAL_BYTES_MAX)
}

/// Bytes that a device has for a journal; `None` if `path` is no device.
pub fn journal_room(path: &Path) -> std::io::Result<Option<u64>> {
    journal::device_room(path)
}


impl RocksConfig {
    /// An OSD's, or with `Layout::Plain` a monitor's, with budgets for a small node.
    pub fn new(dir: impl Into<PathBuf>, layout: Layout) -> Self {
        let memtable_bytes = if layout == Layout::Plain { 16 << 20 } else { 48 << 20 };
        RocksConfig {
            dir: dir.into(),
            journal: None,
            owner: [0; 16],
            slow: None,
            layout,
            create: true,
            tuning: Tuning::default(),
            cache_bytes: 8 << 20,
            memtable_bytes,
            journal_bytes: JOURNAL_BYTES_MIN,
            statistics: false,
        }
    }

    /// Where an object store's journal is.
    pub(crate) fn journal_path(&self) -> PathBuf {
        self.journal.clone().unwrap_or_else(|| self.dir.join("journal"))
    }

    /// Bytes in memtables from which on a journal's checkpoint is due: while one is written, another is filled.
    fn memtable_bytes_max(&self) -> u64 {
        self.tuning.gathered_bytes(self.layout).unwrap_or(self.memtable_bytes as u64 / 2)
    }
}

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0}: another process has it open (is the daemon running already?)")]
    InUse(PathBuf),
    #[error("{0}: no database, or a damaged one: its file CURRENT is missing")]
    Missing(PathBuf),
    #[error("{dir}: {source}")]
    Kv { dir: PathBuf, source: KvError },
    #[error("{path}: {source}")]
    Journal { path: PathBuf, source: std::io::Error },
    #[error(
        "{path}: frame {frame} is damaged or missing, but {why}: acknowledged writes are lost here. The other copies have \
         them: replace this OSD"
    )]
    JournalDamaged { path: PathBuf, frame: u64, why: &'static str },
    #[error("starting the flush thread: {0}")]
    Thread(std::io::Error),
}

/// A database. Dropping it waits for the flush under way.
pub struct RocksKv {
    tables: Tables,
    /// An object store's.
    journal: Option<Journal>,
    flusher: Flusher,
    thread: Option<JoinHandle<()>>,
    /// A database with a place of its own: where, and where the rest goes.
    slow: Option<(PathBuf, Slow)>,
    /// Where the engine counts, if it does.
    counting: Option<Options>,
    /// Of all tables.
    cache: Cache,
    cache_bytes: u64,
    config: RocksConfig,
    /// Look-ups that reached the engine and batches, and their nanoseconds.
    gets: Cell<(u64, u64)>,
    submits: (u64, u64),
}

impl RocksKv {
    /// Opens a database, or makes an empty one. Flushes are answered through `sink`.
    pub fn open(config: &RocksConfig, sink: impl IoSink + 'static) -> Result<Self, OpenError> {
        crc::check();
        let cache = Cache::new_lru_cache(config.cache_bytes);
        let (db, options) = until_free(|e| matches!(e, OpenError::InUse(_)), || open_db(config, &cache))?;
        let tables = Tables::new(Arc::new(db), config.layout);
        let journal = if config.layout.has_journal() { Some(Journal::open(&tables, config)?) } else { None };
        let log = match &journal {
            Some(journal) => Log::Journal(journal.shared()),
            None => Log::Engine(tables.db.clone()),
        };
        let (flusher, thread) = Flusher::start(log, sink).map_err(OpenError::Thread)?;
        let slow = config.slow.clone().map(|slow| (config.dir.clone(), slow));
        Ok(RocksKv {
            tables,
            journal,
            flusher,
            thread: Some(thread),
            slow,
            counting: config.statistics.then_some(options),
            cache,
            cache_bytes: config.cache_bytes as u64,
            config: config.clone(),
            gets: Cell::default(),
            submits: (0, 0),
        })
    }

    /// For an event loop that sees to flushes itself.
    pub fn flusher(&self) -> Flusher {
        self.flusher.clone()
    }

    /// Figures of the engine, family by family: `rocksdb.cfstats` and its like, by property name.
    pub fn property(&self, name: &str) -> String {
        let db = &self.tables.db;
        self.tables.families().into_iter().filter_map(|cf| db.property_value_cf(cf, name).ok().flatten()).collect()
    }

    /// Everything that the engine has counted, by its names; `None` if it was not told to.
    pub fn statistics(&self) -> Option<String> {
        self.counting.as_ref()?.get_statistics()
    }

    /// Bytes of memory in memtables, what waits to get there, and block cache.
    pub fn memory(&self) -> u64 {
        let db = &self.tables.db;
        let families = self.tables.families().into_iter();
        let memtables = families.filter_map(|cf| db.property_int_value_cf(cf, "rocksdb.cur-size-all-mem-tables").ok().flatten());
        let gathered = self.journal.as_ref().map_or(0, Journal::memory);
        gathered + memtables.sum::<u64>() + db.property_int_value("rocksdb.block-cache-usage").ok().flatten().unwrap_or(0)
    }

    /// Compacts every family into the first levels that hold it, in the database's own place: after it has moved to one for which
    /// levels are cut otherwise. With `rewrite` nothing stays in the slow place. Errors: the engine's; the database is as it was then.
    pub fn fit_levels(&self, rewrite: bool) -> Result<(), KvError> {
        let mut options = CompactOptions::default();
        options.set_change_level(true);
        options.set_target_level(-1);
        options.set_exclusive_manual_compaction(true);
        if rewrite {
            options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        }
        for family in self.tables.families() {
            self.tables.db.compact_range_cf_opt(family, None::<&[u8]>, None::<&[u8]>, &options);
        }
        self.tables.check_background()
    }

    fn apply_batch(&mut self, batch: &KvBatch) -> Result<(), KvError> {
        if let Some(journal) = &mut self.journal {
            return journal.apply(&self.tables, batch);
        }
        let mut out = WriteBatch::default();
        for (i, op) in batch.ops.iter().enumerate() {
            self.tables.add(&mut out, op, &batch.ops[..i])?;
        }
        self.tables.write(out)
    }

    /// Up to `limit` pairs of a range, from its lower end or its upper: what the database has, what it does not have yet, and the journal's rows.
    fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize, ascending: bool) -> Result<Vec<(Bytes, Bytes)>, KvError> {
        let cursor = self.tables.cursor(from, to);
        let Some(journal) = &self.journal else { return collect(cursor, Box::new(std::iter::empty()), limit, ascending) };
        let mut found = collect(cursor, journal.walk(from, to, ascending), limit, ascending)?;
        let before = found.len();
        let rows = journal.range(from, to);
        if ascending { found.extend(rows.take(limit)) } else { found.extend(rows.rev().take(limit)) }
        if before > 0 && found.len() > before {
            found.sort_unstable_by(|(a, _), (b, _)| in_order_of_walk(a, b, ascending));
            found.truncate(limit);
        }
        Ok(found)
    }
}

/// And the options that it was opened with.
fn open_db(config: &RocksConfig, cache: &Cache) -> Result<(DB, Options), OpenError> {
    let of_family = |name: &'static str| {
        let mut o = base_options(config, cache);
        config.tuning.apply(name, &mut o);
        if config.layout.has_journal() {
            leave_flushes_to_the_journal(config, &mut o);
        }
        o
    };
    let families = config.layout.families().iter().map(|name| ColumnFamilyDescriptor::new(*name, of_family(name)));
    let mut of_database = of_family("default");
    config.tuning.apply_to_database(&mut of_database).map_err(|e| open_error(config, e))?;
    if config.layout.has_journal() {
        leave_flushes_to_the_journal(config, &mut of_database);
    }
    if config.statistics {
        of_database.enable_statistics();
    }
    if let Some(slow) = &config.slow {
        let path = |dir: &PathBuf, bytes| DBPath::new(dir, bytes).map_err(|e| open_error(config, e));
        of_database.set_db_paths(&[path(&config.dir, levels(config, slow).target)?, path(&slow.dir, u64::MAX / 2)?]);
    }
    let db = DB::open_cf_descriptors(&of_database, &config.dir, families).map_err(|e| open_error(config, e))?;
    if config.tuning.compact_on_mount() {
        compact(&db, config.layout);
    }
    Ok((db, of_database))
}

fn compact(db: &DB, layout: Layout) {
    for family in layout.families().iter().filter_map(|name| db.cf_handle(name)) {
        db.compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
    }
}

/// How levels are cut where the database has a place of its own, and the journal may be in it.
fn levels(config: &RocksConfig, slow: &Slow) -> Levels {
    let beside = match &config.journal {
        Some(_) => 0,
        None => std::fs::metadata(config.journal_path()).map_or(config.journal_bytes, |m| m.len()),
    };
    Levels::of(slow.room, beside)
}

impl Layout {
    fn families(self) -> &'static [&'static str] {
        match self {
            Layout::Plain => &["default"],
            Layout::ObjectStore => &["default", "omap", "deferred", "journal"],
        }
    }

    fn family(self, first: Option<u8>) -> &'static str {
        match (self, first) {
            (Layout::ObjectStore, Some(b'M')) => "omap",
            _ => "default",
        }
    }

    /// Is the pair of this key one that a journal gathers? An object's, and a collection's.
    fn gathers(self, key: &[u8]) -> bool {
        self.has_journal() && matches!(key.first(), Some(b'O' | b'P'))
    }

    fn has_journal(self) -> bool {
        self == Layout::ObjectStore
    }
}

/// What the journal relies on, whatever the operator's options say: see `journal`.
fn leave_flushes_to_the_journal(config: &RocksConfig, o: &mut Options) {
    // More than there will ever be between two checkpoints. What is a share of it has to be a share of them.
    const NEVER: usize = 1 << 32;
    o.set_write_buffer_size(NEVER);
    o.set_db_write_buffer_size(0);
    o.set_memtable_prefix_bloom_ratio(MEMTABLE_BLOOM_RATIO * config.memtable_bytes_max() as f64 / NEVER as f64);
    o.set_arena_block_size(256 << 10);
    o.set_atomic_flush(true);
    o.set_min_write_buffer_number_to_merge(1);
    o.set_enable_pipelined_write(false);
    o.set_recycle_log_file_num(0);
}

fn base_options(config: &RocksConfig, cache: &Cache) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_bloom_filter(10.0, false);
    // Filters and indexes in pieces: whole, a table's filter takes 300 KB, and a small cache has shards of 512 KB, where
    // two of them drive each other out. Then every look-up reads one from disk.
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(4096);
    table.set_pin_top_level_index_and_filter(true);
    table.set_format_version(5);
    let mut o = Options::default();
    o.set_block_based_table_factory(&table);
    o.create_if_missing(config.create);
    // Earlier builds had fewer.
    o.create_missing_column_families(true);
    // The log leaves our hands only when we say so: one write and one sync for all batches of a flush.
    o.set_manual_wal_flush(true);
    // A recycled log file has its size already: fdatasync has no metadata to commit.
    o.set_recycle_log_file_num(4);
    // The log ends at the first record that is not whole: everything before it is a prefix of what was applied, which
    // is all the store relies on. AbsoluteConsistency would refuse to open after every power failure and
    // TolerateCorruptedTailRecords cannot live with recycled files; SkipAnyCorruptedRecords would leave holes.
    o.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    // Two memtables of a family may exist: one filling, one being flushed.
    o.set_max_write_buffer_number(3);
    o.set_write_buffer_size((config.memtable_bytes / 2).max(1 << 20));
    o.set_max_total_wal_size(2 * config.memtable_bytes as u64);
    o.set_allow_concurrent_memtable_write(false);
    // Every new object is looked for first: a filter of the memtable's keys says no without a walk through its list.
    o.set_memtable_prefix_bloom_ratio(MEMTABLE_BLOOM_RATIO);
    o.set_memtable_whole_key_filtering(true);
    o.set_compression_type(DBCompressionType::Lz4);
    o.set_level_compaction_dynamic_level_bytes(true);
    o.set_target_file_size_base(32 << 20);
    o.set_max_bytes_for_level_base(128 << 20);
    // Keys are hashes: every compaction of the first level rewrites all of the next. Eight files at a time, and that is half
    // as often; what they cost a look-up, their filters keep small.
    o.set_level_zero_file_num_compaction_trigger(8);
    o.set_max_background_jobs(2);
    o.set_max_open_files(512);
    if let Some(slow) = &config.slow {
        let levels = levels(config, slow);
        // The one does not go with the other.
        o.set_level_compaction_dynamic_level_bytes(false);
        o.set_max_bytes_for_level_base(levels.base);
        o.set_max_bytes_for_level_multiplier(slow::MULTIPLIER as f64);
        o.set_target_file_size_base(levels.table);
    }
    o.set_bytes_per_sync(1 << 20);
    o.set_keep_log_file_num(2);
    o.set_max_log_file_size(4 << 20);
    o.set_stats_dump_period_sec(0);
    o.set_stats_persist_period_sec(0);
    o
}

impl Kv for RocksKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        if let Some(known) = self.journal.as_ref().and_then(|journal| journal.get(key)) {
            return Ok(known);
        }
        let since = Instant::now();
        let found = self.tables.db.get_pinned_cf(self.tables.family(key), key).map_err(|e| kv_error("get", e))?;
        let (n, ns) = self.gets.get();
        self.gets.set((n + 1, ns + since.elapsed().as_nanos() as u64));
        Ok(found.map(|v| Bytes::copy_from_slice(&v)))
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>, KvError> {
        self.range(from, to, limit, true)
    }

    fn scan_reverse(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>, KvError> {
        self.range(from, to, limit, false)
    }

    fn apply(&mut self, batch: KvBatch) -> Result<(), KvError> {
        let since = Instant::now();
        let done = self.apply_batch(&batch);
        self.submits = (self.submits.0 + 1, self.submits.1 + since.elapsed().as_nanos() as u64);
        done
    }

    fn flush(&mut self, id: IoId) {
        self.flusher.request(id);
    }

    fn flush_sync(&mut self) -> Result<(), KvError> {
        self.flusher.flush_now()
    }

    fn space(&self) -> Option<KvSpace> {
        let (dir, slow) = self.slow.as_ref()?;
        let Usage { used, room, spilled } = slow.usage(dir);
        Some(KvSpace { used, total: room, spilled })
    }

    fn figures(&self) -> KvFigures {
        let db = &self.tables.db;
        let of_all = |name: &str| -> u64 {
            self.tables.families().into_iter().filter_map(|cf| db.property_int_value_cf(cf, name).ok().flatten()).sum()
        };
        let (log_bytes, log_bytes_max) = self.journal.as_ref().map_or((0, 0), Journal::used);
        let table_bytes = of_all("rocksdb.total-sst-files-size");
        let cache_bytes = db.property_int_value("rocksdb.block-cache-usage").ok().flatten().unwrap_or(0);
        KvFigures {
            gets: self.gets.get(),
            submits: self.submits,
            memtable_bytes: self.memory() - cache_bytes,
            cache_bytes,
            cache_bytes_max: self.cache_bytes,
            table_bytes,
            table_bytes_max: table_bytes + crate::block::room_of(&self.config.dir),
            log_bytes,
            log_bytes_max,
            files: db.live_files().map_or(0, |files| files.len() as u64),
            pending_compaction_bytes: of_all("rocksdb.estimate-pending-compaction-bytes"),
        }
    }

    fn set_memory(&mut self, cache_bytes: u64, memtable_bytes: u64) {
        if self.cache_bytes != cache_bytes {
            self.cache.set_capacity(cache_bytes as usize);
            self.cache_bytes = cache_bytes;
        }
        self.config.memtable_bytes = memtable_bytes as usize;
        if let Some(journal) = &mut self.journal {
            journal.memtable_bytes_max = self.config.memtable_bytes_max();
        }
    }

    fn approximate_size(&self, from: &[u8], to: &[u8]) -> u64 {
        let range = rocksdb::Range::new(from, to);
        self.tables.db.get_approximate_sizes_cf(self.tables.family(from), &[range]).iter().sum()
    }
}

impl Drop for RocksKv {
    fn drop(&mut self) {
        self.flusher.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        match &mut self.journal {
            // In order to stop in order; a failure here loses nothing that was promised.
            None => drop(self.tables.db.flush_wal(true)),
            Some(journal) => {
                if !journal.close(&self.tables) {
                    // RocksDB would flush its memtables as it closes.
                    std::mem::forget(self.tables.db.clone());
                }
            }
        }
    }
}

/// A key of the range, whose first byte tells the family.
fn prefix_of<'a>(from: Bound<&'a [u8]>, to: Bound<&'a [u8]>) -> &'a [u8] {
    match (from, to) {
        (Bound::Included(k) | Bound::Excluded(k), _) | (_, Bound::Included(k) | Bound::Excluded(k)) => k,
        _ => &[],
    }
}

/// Up to `limit` pairs of a cursor's range, from its lower end or its upper, and of what is newer than the database, `None` for what is deleted there.
fn collect(
    mut cursor: DBRawIterator<'_>,
    newer: Walk<'_>,
    limit: usize,
    ascending: bool,
) -> Result<Vec<(Bytes, Bytes)>, KvError> {
    if ascending { cursor.seek_to_first() } else { cursor.seek_to_last() }
    let mut newer = newer.peekable();
    let mut out = Vec::new();
    while out.len() < limit {
        let first = match (newer.peek(), cursor.key()) {
            (Some((key, _)), Some(older)) => in_order_of_walk(key, older, ascending),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => break,
        };
        match first {
            Ordering::Greater => out.extend(cursor.item().map(copied)),
            _ => out.extend(newer.next().and_then(|(key, value)| Some(copied((key, value?))))),
        }
        match first {
            Ordering::Less => {}
            _ if ascending => cursor.next(),
            _ => cursor.prev(),
        }
    }
    cursor.status().map_err(|e| kv_error("scan", e))?;
    Ok(out)
}

fn copied((key, value): (&[u8], &[u8])) -> (Bytes, Bytes) {
    (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))
}

fn kv_error(what: &'static str, e: rocksdb::Error) -> KvError {
    let detail = e.to_string();
    let errno = match e.kind() {
        ErrorKind::IOError if detail.contains("No space left") => Errno::ENOSPC,
        ErrorKind::Busy | ErrorKind::TryAgain => Errno::EBUSY,
        ErrorKind::InvalidArgument => Errno::EINVAL,
        _ => Errno::EIO,
    };
    KvError { what, detail, errno }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kv_error_io(what: &'static str, e: &std::io::Error) -> KvError {
    KvError { what, detail: e.to_string(), errno: e.raw_os_error().map_or(Errno::EIO, Errno) }
}

fn open_error(config: &RocksConfig, e: rocksdb::Error) -> OpenError {
    let text = e.to_string();
    if text.contains("LOCK") || text.contains("lock hold by current process") {
        return OpenError::InUse(config.dir.clone());
    }
    if text.contains("create_if_missing") {
        return OpenError::Missing(config.dir.clone());
    }
    OpenError::Kv { dir: config.dir.clone(), source: kv_error("open", e) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    type Answers = Receiver<(IoId, Result<Bytes, Errno>)>;

    fn open(dir: &std::path::Path) -> (RocksKv, Answers) {
        let (tx, rx) = channel();
        (RocksKv::open(&RocksConfig::new(dir, Layout::ObjectStore), tx).unwrap(), rx)
    }

    fn key(k: &str) -> Bytes {
        Bytes::copy_from_slice(k.as_bytes())
    }

    #[test]
    fn what_was_flushed_is_there_again() {
        let dir = crate::TempDir::new("kv");
        let (mut kv, answers) = open(dir.path());
        let mut b = KvBatch::default();
        for k in ["Oa", "Ob", "Oc", "Ma", "D0000000a"] {
            b.put(key(k), key("v"));
        }
        b.delete_range(key("Ob"), key("Oc"));
        kv.apply(b).unwrap();
        assert_eq!(kv.get(b"Ob").unwrap(), None);
        kv.flush(IoId(9));
        assert_eq!(answers.recv_timeout(Duration::from_secs(9)).unwrap(), (IoId(9), Ok(Bytes::new())));
        drop(kv);
        let (kv, _answers) = open(dir.path());
        let keys = |from: &[u8], to: &[u8]| -> Vec<Bytes> {
            kv.scan(Bound::Included(from), Bound::Excluded(to), 10).unwrap().into_iter().map(|p| p.0).collect()
        };
        assert_eq!(keys(b"O", b"P"), ["Oa", "Oc"]);
        assert_eq!(keys(b"D", b"E"), ["D0000000a"]);
        let back = kv.scan_reverse(Bound::Excluded(b"Oa"), Bound::Included(b"Oc"), 10).unwrap();
        assert_eq!(back, [(key("Oc"), key("v"))]);
    }

    #[test]
    fn a_range_is_deleted_as_of_its_place_in_the_batch() {
        let dir = crate::TempDir::new("kv-range");
        let (mut kv, _answers) = open(dir.path());
        let mut b = KvBatch::default();
        b.put(key("M1"), key("old"));
        b.delete_range(key("M"), key("N"));
        b.put(key("M2"), key("new"));
        kv.apply(b).unwrap();
        assert_eq!(kv.get(b"M1").unwrap(), None);
        assert_eq!(kv.get(b"M2").unwrap(), Some(key("new")));
    }

    #[test]
    fn ranges_without_a_key_between_their_ends_are_empty() {
        let dir = crate::TempDir::new("kv-ranges");
        let (mut kv, _answers) = open(dir.path());
        let mut b = KvBatch::default();
        b.put(key("D00000001"), key("v"));
        b.put(key("O1"), key("v"));
        kv.apply(b).unwrap();
        for k in [&b"D00000001"[..], b"O1"] {
            let n = |from, to| kv.scan(from, to, 9).unwrap().len();
            assert_eq!(n(Bound::Included(k), Bound::Included(k)), 1);
            assert_eq!(n(Bound::Included(k), Bound::Excluded(k)), 0);
            assert_eq!(n(Bound::Excluded(k), Bound::Included(k)), 0);
            assert_eq!(n(Bound::Excluded(k), Bound::Excluded(k)), 0);
            assert_eq!(n(Bound::Included(b"Z"), Bound::Excluded(k)), 0);
        }
    }

    #[test]
    fn a_second_opening_is_told_so() {
        let dir = crate::TempDir::new("kv-lock");
        let (_kv, _answers) = open(dir.path());
        let again = RocksKv::open(&RocksConfig::new(dir.path(), Layout::ObjectStore), channel().0);
        assert!(matches!(again, Err(OpenError::InUse(_))));
    }

    #[test]
    fn ceph_s_own_option_string_is_accepted_and_unknown_options_are_named() {
        let dir = crate::TempDir::new("kv-options");
        let mut config = RocksConfig::new(dir.path(), Layout::ObjectStore);
        let stock = admin::option::find("bluestore_rocksdb_options").unwrap().default;
        let families = "m(3) p(3,0-12) O(3,0-13)=block_cache={type=binned_lru} L=min_write_buffer_number_to_merge=32 P";
        config.tuning = Tuning::parse(stock, "compaction_threads=4,compact_on_mount=true", families).unwrap();
        assert!(RocksKv::open(&config, channel().0).is_ok());
        let e = Tuning::parse("compression=kNoCompression,no_such_thing=4", "", "").unwrap_err();
        assert!(e.to_string().contains("no_such_thing"), "{e}");
    }
}
