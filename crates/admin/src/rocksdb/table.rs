//! The options that RocksDB takes here, and those that it must not be given.

/// What an option is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Database,
    Family,
}

/// An option.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    pub name: &'static str,
    pub scope: Scope,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// 32 bits, with a sign.
    Int,
    Uint,
    Float,
    Bool,
    /// One of these; and how to say so.
    Word(&'static [&'static str], &'static str),
    /// Any of these, with colons between them.
    Words(&'static [&'static str], &'static str),
    /// As it is anyway, or refused for this reason.
    Only(bool, &'static str),
    /// 0, or refused.
    Zero(&'static str),
    /// Refused.
    Never(&'static str),
}

pub(super) fn find(name: &str) -> Option<&'static Spec> {
    NAMES.iter().find(|s| s.name == name)
}

const COMPRESSIONS: &[&str] = &["kNoCompression", "kSnappyCompression", "kLZ4Compression", "kLZ4HCCompression"];
const A_COMPRESSION: &str = "a compression of this build (kNoCompression, kSnappyCompression, kLZ4Compression, kLZ4HCCompression)";
const COMPRESSION: Kind = Kind::Word(COMPRESSIONS, A_COMPRESSION);

const JOURNAL: &str = "the OSD's own journal stands in for RocksDB's log, and commits rely on how it does";
const FLUSHES: &str = "memtables are flushed by the OSD's checkpoints only, all together; set write_buffer_size and min_write_buffer_number_to_merge";
const PLACES: &str = "where things lie is said when the OSD is made: cuttlebone osd create --db, --wal";

const fn db(name: &'static str, kind: Kind) -> Spec {
    Spec { name, scope: Scope::Database, kind }
}

const fn cf(name: &'static str, kind: Kind) -> Spec {
    Spec { name, scope: Scope::Family, kind }
}

/// Every option that is known.
pub const NAMES: &[Spec] = &[
    // Ceph's own, which RocksDB does not know.
    db("compaction_threads", Kind::Int),
    db("flusher_threads", Kind::Int),
    db("compact_on_mount", Kind::Bool),
    db("disableWAL", Kind::Only(false, JOURNAL)),
    // Of the database.
    db("max_background_jobs", Kind::Int),
    db("max_background_compactions", Kind::Int),
    db("max_background_flushes", Kind::Int),
    db("max_subcompactions", Kind::Uint),
    db("max_open_files", Kind::Int),
    db("max_file_opening_threads", Kind::Int),
    db("max_total_wal_size", Kind::Uint),
    db("max_manifest_file_size", Kind::Uint),
    db("manifest_preallocation_size", Kind::Uint),
    db("recycle_log_file_num", Kind::Uint),
    db("keep_log_file_num", Kind::Uint),
    db("max_log_file_size", Kind::Uint),
    db("log_file_time_to_roll", Kind::Uint),
    db("bytes_per_sync", Kind::Uint),
    db("wal_bytes_per_sync", Kind::Uint),
    db("writable_file_max_buffer_size", Kind::Uint),
    db("compaction_readahead_size", Kind::Uint),
    db("use_direct_reads", Kind::Bool),
    db("use_direct_io_for_flush_and_compaction", Kind::Bool),
    db("use_fsync", Kind::Bool),
    db("use_adaptive_mutex", Kind::Bool),
    db("advise_random_on_open", Kind::Bool),
    db("allow_mmap_reads", Kind::Bool),
    db("paranoid_checks", Kind::Bool),
    db("stats_dump_period_sec", Kind::Uint),
    db("stats_persist_period_sec", Kind::Uint),
    db("delete_obsolete_files_period_micros", Kind::Uint),
    db("table_cache_numshardbits", Kind::Int),
    db("skip_stats_update_on_db_open", Kind::Bool),
    db("skip_checking_sst_file_sizes_on_db_open", Kind::Bool),
    db("allow_concurrent_memtable_write", Kind::Bool),
    db("enable_write_thread_adaptive_yield", Kind::Bool),
    db("enable_pipelined_write", Kind::Bool),
    db("dump_malloc_stats", Kind::Bool),
    db("WAL_ttl_seconds", Kind::Uint),
    db("WAL_size_limit_MB", Kind::Uint),
    db("atomic_flush", Kind::Only(true, FLUSHES)),
    db("manual_wal_flush", Kind::Never(JOURNAL)),
    db("wal_recovery_mode", Kind::Never(JOURNAL)),
    db("unordered_write", Kind::Only(false, JOURNAL)),
    db("two_write_queues", Kind::Only(false, JOURNAL)),
    db("allow_2pc", Kind::Only(false, JOURNAL)),
    db("avoid_flush_during_recovery", Kind::Never(FLUSHES)),
    db("avoid_flush_during_shutdown", Kind::Never(FLUSHES)),
    db("allow_mmap_writes", Kind::Only(false, JOURNAL)),
    db("db_write_buffer_size", Kind::Zero(FLUSHES)),
    db("wal_dir", Kind::Never(PLACES)),
    db("db_paths", Kind::Never(PLACES)),
    db("db_log_dir", Kind::Never(PLACES)),
    db("create_if_missing", Kind::Never("cuttlebone osd --mkfs makes the database, and nothing else may")),
    // Of a family.
    cf("write_buffer_size", Kind::Uint),
    cf("max_write_buffer_number", Kind::Int),
    cf("min_write_buffer_number_to_merge", Kind::Int),
    cf("max_write_buffer_size_to_maintain", Kind::Int),
    cf("arena_block_size", Kind::Uint),
    cf("memtable_prefix_bloom_size_ratio", Kind::Float),
    cf("memtable_whole_key_filtering", Kind::Bool),
    cf("memtable_huge_page_size", Kind::Uint),
    cf("compression", COMPRESSION),
    cf("bottommost_compression", COMPRESSION),
    cf("compression_per_level", Kind::Words(COMPRESSIONS, A_COMPRESSION)),
    cf("compaction_style", Kind::Word(&["kCompactionStyleLevel", "kCompactionStyleUniversal"], "kCompactionStyleLevel or kCompactionStyleUniversal")),
    cf(
        "compaction_pri",
        Kind::Word(
            &["kByCompensatedSize", "kOldestLargestSeqFirst", "kOldestSmallestSeqFirst", "kMinOverlappingRatio"],
            "one of kByCompensatedSize, kOldestLargestSeqFirst, kOldestSmallestSeqFirst, kMinOverlappingRatio",
        ),
    ),
    cf("num_levels", Kind::Int),
    cf("level_compaction_dynamic_level_bytes", Kind::Bool),
    cf("level0_file_num_compaction_trigger", Kind::Int),
    cf("level0_slowdown_writes_trigger", Kind::Int),
    cf("level0_stop_writes_trigger", Kind::Int),
    cf("max_bytes_for_level_base", Kind::Uint),
    cf("max_bytes_for_level_multiplier", Kind::Float),
    cf("target_file_size_base", Kind::Uint),
    cf("target_file_size_multiplier", Kind::Int),
    cf("max_compaction_bytes", Kind::Uint),
    cf("periodic_compaction_seconds", Kind::Uint),
    cf("soft_pending_compaction_bytes_limit", Kind::Uint),
    cf("hard_pending_compaction_bytes_limit", Kind::Uint),
    cf("disable_auto_compactions", Kind::Bool),
    cf("optimize_filters_for_hits", Kind::Bool),
    cf("report_bg_io_stats", Kind::Bool),
    cf("bloom_locality", Kind::Uint),
    cf("max_sequential_skip_in_iterations", Kind::Uint),
    cf("max_successive_merges", Kind::Uint),
    cf("inplace_update_support", Kind::Only(false, "values have to stay as they were written until a checkpoint is over")),
];
