//! RocksDB as a `store::Kv`.
//!
//! Room: io.   Holds: `apply` writes to memtable and log buffer and never waits for the disk; a flush writes the buffer
//! and syncs it, so that one fdatasync serves all batches applied before.
//! Why these settings: see `base_options` and `Layout`.
//! Upstream: src/kv/RocksDBStore.cc.

mod crc;
mod flush;
mod options;

pub use flush::{Flushed, Flusher};
pub use options::{OptionError, check_options};

use crate::sink::IoSink;
use crate::patience::until_free;
use bytes::Bytes;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRawIterator, DBRecoveryMode,
    ErrorKind, Options, ReadOptions, WriteBatch, WriteOptions,
};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use store::{IoId, Kv, KvBatch, KvError, KvOp};
use types::Errno;

/// Deletions of ranges with up to this many keys become single ones: a range tombstone slows every later read.
const SINGLE_DELETES_MAX: usize = 10_000;

/// How keys are spread over column families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One family: a monitor's.
    Plain,
    /// The object store's: omap apart, for it is scanned and compacted differently; deferred writes apart, with a
    /// memtable that outlives them, so that a flush writes only their tombstones.
    ObjectStore,
}

/// How to open a database.
#[derive(Debug, Clone)]
pub struct RocksConfig {
    pub dir: PathBuf,
    /// Directory for the log, if it is to be on another device.
    pub wal_dir: Option<PathBuf>,
    pub layout: Layout,
    /// Make the database if there is none: for mkfs. A daemon that runs has one, and an engine that finds its `CURRENT`
    /// gone would begin anew over what is left.
    pub create: bool,
    /// `bluestore_rocksdb_options`: `name=value`, separated by commas or semicolons, over our own settings.
    pub options: String,
    /// Budget of the block cache in bytes (index and filter blocks included).
    pub cache_bytes: usize,
    /// Budget of the memtables in bytes, over all families, full ones that wait for their flush included.
    pub memtable_bytes: usize,
}

impl RocksConfig {
    /// An OSD's, or with `Layout::Plain` a monitor's, with budgets for a small node.
    pub fn new(dir: impl Into<PathBuf>, layout: Layout) -> Self {
        let memtable_bytes = if layout == Layout::Plain { 16 << 20 } else { 48 << 20 };
        RocksConfig { dir: dir.into(), wal_dir: None, layout, create: true, options: String::new(), cache_bytes: 16 << 20, memtable_bytes }
    }
}

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error("{0}: another process has it open (is the daemon running already?)")]
    InUse(PathBuf),
    #[error("{0}: no database, or a damaged one: its file CURRENT is missing")]
    Missing(PathBuf),
    #[error("{dir}: {source}")]
    Kv { dir: PathBuf, source: KvError },
    #[error("starting the flush thread: {0}")]
    Thread(std::io::Error),
}

/// A database. Dropping it waits for the flush under way.
pub struct RocksKv {
    db: Arc<DB>,
    layout: Layout,
    write_options: WriteOptions,
    flusher: Flusher,
    thread: Option<JoinHandle<()>>,
}

impl RocksKv {
    /// Opens a database, or makes an empty one. Flushes are answered through `sink`.
    pub fn open(config: &RocksConfig, sink: impl IoSink + 'static) -> Result<Self, OpenError> {
        crc::check();
        let db = until_free(|e| matches!(e, OpenError::InUse(_)), || open_db(config))?;
        let db = Arc::new(db);
        let (flusher, thread) = Flusher::start(db.clone(), sink).map_err(OpenError::Thread)?;
        let mut write_options = WriteOptions::default();
        write_options.set_sync(false);
        Ok(RocksKv { db, layout: config.layout, write_options, flusher, thread: Some(thread) })
    }

    /// For an event loop that sees to flushes itself.
    pub fn flusher(&self) -> Flusher {
        self.flusher.clone()
    }

    /// Figures of the engine, family by family: `rocksdb.cfstats` and its like, by property name.
    pub fn property(&self, name: &str) -> String {
        let families = self.layout.families().iter().filter_map(|(family, _)| self.db.cf_handle(family));
        families.filter_map(|cf| self.db.property_value_cf(cf, name).ok().flatten()).collect()
    }

    /// Bytes of memory in memtables and block cache.
    pub fn memory(&self) -> u64 {
        let of = |name: &str| self.db.property_int_value(name).ok().flatten().unwrap_or(0);
        let memtables: u64 = self
            .layout
            .families()
            .iter()
            .filter_map(|(name, _)| self.db.cf_handle(name))
            .filter_map(|cf| self.db.property_int_value_cf(cf, "rocksdb.cur-size-all-mem-tables").ok().flatten())
            .sum();
        memtables + of("rocksdb.block-cache-usage")
    }

    fn family(&self, key: &[u8]) -> &ColumnFamily {
        let name = self.layout.family(key.first().copied());
        self.db.cf_handle(name).expect("every family was opened")
    }

    /// A cursor over a range, not yet placed.
    fn cursor(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> DBRawIterator<'_> {
        let mut o = ReadOptions::default();
        match from {
            Bound::Included(k) => o.set_iterate_lower_bound(k),
            Bound::Excluded(k) => o.set_iterate_lower_bound(after(k)),
            Bound::Unbounded => {}
        }
        match to {
            Bound::Included(k) => o.set_iterate_upper_bound(after(k)),
            Bound::Excluded(k) => o.set_iterate_upper_bound(k),
            Bound::Unbounded => {}
        }
        let key = match (from, to) {
            (Bound::Included(k) | Bound::Excluded(k), _) | (_, Bound::Included(k) | Bound::Excluded(k)) => k,
            _ => &[],
        };
        self.db.raw_iterator_cf_opt(self.family(key), o)
    }

    /// Deletes `[from, to)` as of this place in the batch; `earlier` are the batch's operations before it.
    fn delete_range(&self, out: &mut WriteBatch, from: &[u8], to: &[u8], earlier: &[KvOp]) -> Result<(), KvError> {
        let family = self.family(from);
        if from >= to {
            return Ok(());
        }
        if self.layout == Layout::ObjectStore && from.first() == Some(&b'D') {
            // Deferred records are only read at mount: nothing is slowed, and a whole batch goes with one tombstone.
            out.delete_range_cf(family, from, to);
            return Ok(());
        }
        let mut cursor = self.cursor(Bound::Included(from), Bound::Excluded(to));
        cursor.seek_to_first();
        let mut n = 0;
        while let Some(key) = cursor.key() {
            if n == SINGLE_DELETES_MAX {
                out.delete_range_cf(family, from, to);
                return Ok(());
            }
            out.delete_cf(family, key);
            n += 1;
            cursor.next();
        }
        cursor.status().map_err(|e| kv_error("scan", e))?;
        for op in earlier {
            if let KvOp::Put(k, _) = op
                && &k[..] >= from
                && &k[..] < to
            {
                out.delete_cf(family, k);
            }
        }
        Ok(())
    }
}

fn open_db(config: &RocksConfig) -> Result<DB, OpenError> {
    let cache = Cache::new_lru_cache(config.cache_bytes);
    let mut db_options = base_options(config, &cache, 1);
    options::apply(&config.options, &mut db_options)?;
    if let Some(dir) = &config.wal_dir {
        db_options.set_wal_dir(dir);
    }
    let mut families = Vec::new();
    for (name, share) in config.layout.families() {
        let mut o = base_options(config, &cache, *share);
        options::apply(&config.options, &mut o)?;
        families.push(ColumnFamilyDescriptor::new(*name, o));
    }
    DB::open_cf_descriptors(&db_options, &config.dir, families).map_err(|e| open_error(config, e))
}

impl Layout {
    /// Families with their share of the memtable budget, in sixteenths.
    fn families(self) -> &'static [(&'static str, usize)] {
        match self {
            Layout::Plain => &[("default", 16)],
            Layout::ObjectStore => &[("default", 6), ("omap", 2), ("deferred", 8)],
        }
    }

    fn family(self, first: Option<u8>) -> &'static str {
        match (self, first) {
            (Layout::ObjectStore, Some(b'M')) => "omap",
            (Layout::ObjectStore, Some(b'D')) => "deferred",
            _ => "default",
        }
    }
}

fn base_options(config: &RocksConfig, cache: &Cache, share: usize) -> Options {
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
    o.create_missing_column_families(config.create);
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
    o.set_write_buffer_size((config.memtable_bytes / 16 * share / 2).max(1 << 20));
    o.set_max_total_wal_size(2 * config.memtable_bytes as u64);
    o.set_allow_concurrent_memtable_write(false);
    // Every new object is looked for first: a filter of the memtable's keys says no without a walk through its list.
    o.set_memtable_prefix_bloom_ratio(0.02);
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
    o.set_bytes_per_sync(1 << 20);
    o.set_keep_log_file_num(2);
    o.set_max_log_file_size(4 << 20);
    o.set_stats_dump_period_sec(0);
    o.set_stats_persist_period_sec(0);
    o
}

impl Kv for RocksKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        let found = self.db.get_pinned_cf(self.family(key), key).map_err(|e| kv_error("get", e))?;
        Ok(found.map(|v| Bytes::copy_from_slice(&v)))
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>, KvError> {
        let mut cursor = self.cursor(from, to);
        cursor.seek_to_first();
        collect(cursor, limit, DBRawIterator::next)
    }

    fn scan_reverse(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>, KvError> {
        let mut cursor = self.cursor(from, to);
        cursor.seek_to_last();
        collect(cursor, limit, DBRawIterator::prev)
    }

    fn apply(&mut self, batch: KvBatch) -> Result<(), KvError> {
        let bytes: usize = batch.ops.iter().map(op_bytes).sum();
        let mut out = WriteBatch::with_capacity_bytes(bytes);
        for (i, op) in batch.ops.iter().enumerate() {
            match op {
                KvOp::Put(k, v) => out.put_cf(self.family(k), k, v),
                KvOp::Delete(k) => out.delete_cf(self.family(k), k),
                KvOp::DeleteRange(from, to) => self.delete_range(&mut out, from, to, &batch.ops[..i])?,
            }
        }
        self.db.write_opt(out, &self.write_options).map_err(|e| kv_error("write", e))
    }

    fn flush(&mut self, id: IoId) {
        self.flusher.request(id);
    }

    fn flush_sync(&mut self) -> Result<(), KvError> {
        self.db.flush_wal(true).map_err(|e| kv_error("flush", e))
    }

    fn approximate_size(&self, from: &[u8], to: &[u8]) -> u64 {
        let range = rocksdb::Range::new(from, to);
        self.db.get_approximate_sizes_cf(self.family(from), &[range]).iter().sum()
    }
}

impl Drop for RocksKv {
    fn drop(&mut self) {
        self.flusher.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // In order to stop in order; a failure here loses nothing that was promised.
        let _ = self.db.flush_wal(true);
    }
}

fn op_bytes(op: &KvOp) -> usize {
    // Tag, family and two lengths.
    12 + match op {
        KvOp::Put(k, v) => k.len() + v.len(),
        KvOp::Delete(k) => k.len(),
        KvOp::DeleteRange(from, to) => from.len() + to.len(),
    }
}

fn collect<'a>(
    mut cursor: DBRawIterator<'a>,
    limit: usize,
    step: impl Fn(&mut DBRawIterator<'a>),
) -> Result<Vec<(Bytes, Bytes)>, KvError> {
    let mut out = Vec::new();
    while out.len() < limit
        && let Some((k, v)) = cursor.item()
    {
        out.push((Bytes::copy_from_slice(k), Bytes::copy_from_slice(v)));
        step(&mut cursor);
    }
    cursor.status().map_err(|e| kv_error("scan", e))?;
    Ok(out)
}

/// The smallest key behind this one.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
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
        for k in ["Oa", "Ob", "Oc", "Ma", "Da"] {
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
        assert_eq!(keys(b"D", b"E"), ["Da"]);
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
        config.options = "compression=kNoCompression,max_write_buffer_number=4,min_write_buffer_number_to_merge=1,\
            recycle_log_file_num=4,write_buffer_size=268435456,writable_file_max_buffer_size=0,\
            compaction_readahead_size=2097152,max_background_compactions=2,max_total_wal_size=1073741824"
            .into();
        assert!(RocksKv::open(&config, channel().0).is_ok());
        config.options = "compression=kNoCompression,no_such_thing=4".into();
        let Err(e) = RocksKv::open(&config, channel().0) else { panic!("accepted") };
        assert!(e.to_string().contains("no_such_thing"), "{e}");
    }
}
