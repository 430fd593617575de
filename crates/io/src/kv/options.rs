//! What the options that operators set do to RocksDB. Which there are: `admin::rocksdb`.

use super::Layout;
use admin::rocksdb::{FamilyDef, Home, OptionError, Setting, Value, parse, parse_families};
use rocksdb::{CompactionPri, DBCompactionStyle, DBCompressionType, Env, Options};

/// Everything that an operator has said of a database.
#[derive(Debug, Clone, Default)]
pub struct Tuning {
    settings: Vec<Setting>,
    families: Vec<FamilyDef>,
}

impl Tuning {
    /// `bluestore_rocksdb_options`, what is to be added to it (`..._annex`), and `bluestore_rocksdb_cfs`.
    pub fn parse(options: &str, annex: &str, families: &str) -> Result<Self, OptionError> {
        let mut settings = parse(options)?;
        settings.extend(parse(annex)?);
        Ok(Tuning { settings, families: parse_families(families)? })
    }

    /// What is said of families without being of use: shards, caches of their own, keys that do not exist here. For the log.
    pub fn unused(&self) -> Vec<String> {
        let mut out = Vec::new();
        for def in &self.families {
            match def.home {
                Home::Nowhere => out.push(format!("{}: no such keys here", def.prefix)),
                _ if def.shards > 1 => out.push(format!("{}: one family instead of {} shards", def.prefix, def.shards)),
                _ => {}
            }
            out.extend(def.ignored.iter().map(|option| format!("{}: {option}", def.prefix)));
        }
        out
    }

    /// Sets what is said of every family, then what is said of this one.
    pub(super) fn apply(&self, family: &str, o: &mut Options) {
        self.of_family(family).for_each(|s| set(o, s));
    }

    /// Sets what is said of the database as a whole.
    pub(super) fn apply_to_database(&self, o: &mut Options) -> Result<(), rocksdb::Error> {
        self.settings.iter().for_each(|s| set(o, s));
        let mut env = None;
        for (name, high) in [("compaction_threads", false), ("flusher_threads", true)] {
            if let Some(n) = int(&self.settings, name) {
                let env: &mut Env = match &mut env {
                    Some(env) => env,
                    None => env.insert(Env::new()?),
                };
                let n = n.clamp(1, 256) as i32;
                if high { env.set_high_priority_background_threads(n) } else { env.set_low_priority_background_threads(n) }
            }
        }
        if let Some(env) = env {
            o.set_env(&env);
        }
        Ok(())
    }

    /// Is the database to be compacted as it is opened?
    pub(super) fn compact_on_mount(&self) -> bool {
        let last = self.settings.iter().rev().find(|s| s.name == "compact_on_mount");
        last.is_some_and(|s| s.value == Value::Bool(true))
    }

    /// Bytes that are gathered before they go to disk: for a database whose memtables are not RocksDB's to flush, what
    /// `write_buffer_size` times `min_write_buffer_number_to_merge` is to one whose are. `None`: nobody has set a size.
    pub(super) fn gathered_bytes(&self, layout: Layout) -> Option<u64> {
        let of = |name| layout.families().iter().filter_map(|f| int_of(self.of_family(f), name)).max();
        let size = of("write_buffer_size")?;
        Some((size.max(0) as u64).saturating_mul(of("min_write_buffer_number_to_merge").unwrap_or(1).max(1) as u64))
    }

    fn of_family(&self, family: &str) -> impl Iterator<Item = &Setting> {
        let defs = self.families.iter().filter(move |def| family_of(def.home) == Some(family));
        self.settings.iter().chain(defs.flat_map(|def| &def.options))
    }
}

fn family_of(home: Home) -> Option<&'static str> {
    match home {
        Home::Objects => Some("default"),
        Home::Omap => Some("omap"),
        Home::Deferred => Some("deferred"),
        Home::Nowhere => None,
    }
}

fn int(settings: &[Setting], name: &str) -> Option<i64> {
    int_of(settings.iter(), name)
}

fn int_of<'a>(settings: impl Iterator<Item = &'a Setting>, name: &str) -> Option<i64> {
    let last = settings.filter(|s| s.name == name).last()?;
    match last.value {
        Value::Int(n) => Some(n),
        _ => None,
    }
}

fn compression(word: &str) -> DBCompressionType {
    match word {
        "kSnappyCompression" => DBCompressionType::Snappy,
        "kLZ4Compression" => DBCompressionType::Lz4,
        "kLZ4HCCompression" => DBCompressionType::Lz4hc,
        _ => DBCompressionType::None,
    }
}

fn set(o: &mut Options, setting: &Setting) {
    match setting.value {
        Value::Int(n) => set_int(o, setting.name, n),
        Value::Bool(yes) => set_bool(o, setting.name, yes),
        Value::Float(f) if setting.name == "max_bytes_for_level_multiplier" => o.set_max_bytes_for_level_multiplier(f),
        Value::Float(f) => o.set_memtable_prefix_bloom_ratio(f),
        Value::Word(word) => set_word(o, setting.name, word),
        Value::Words(ref words) => o.set_compression_per_level(&words.iter().map(|w| compression(w)).collect::<Vec<_>>()),
    }
}

fn set_word(o: &mut Options, name: &str, word: &str) {
    match (name, word) {
        ("compression", _) => o.set_compression_type(compression(word)),
        ("bottommost_compression", _) => o.set_bottommost_compression_type(compression(word)),
        (_, "kCompactionStyleUniversal") => o.set_compaction_style(DBCompactionStyle::Universal),
        (_, "kByCompensatedSize") => o.set_compaction_pri(CompactionPri::ByCompensatedSize),
        (_, "kOldestLargestSeqFirst") => o.set_compaction_pri(CompactionPri::OldestLargestSeqFirst),
        (_, "kOldestSmallestSeqFirst") => o.set_compaction_pri(CompactionPri::OldestSmallestSeqFirst),
        (_, "kMinOverlappingRatio") => o.set_compaction_pri(CompactionPri::MinOverlappingRatio),
        _ => o.set_compaction_style(DBCompactionStyle::Level),
    }
}

fn set_bool(o: &mut Options, name: &str, yes: bool) {
    match name {
        "use_direct_reads" => o.set_use_direct_reads(yes),
        "use_direct_io_for_flush_and_compaction" => o.set_use_direct_io_for_flush_and_compaction(yes),
        "use_fsync" => o.set_use_fsync(yes),
        "use_adaptive_mutex" => o.set_use_adaptive_mutex(yes),
        "advise_random_on_open" => o.set_advise_random_on_open(yes),
        "allow_mmap_reads" => o.set_allow_mmap_reads(yes),
        "paranoid_checks" => o.set_paranoid_checks(yes),
        "skip_stats_update_on_db_open" => o.set_skip_stats_update_on_db_open(yes),
        "allow_concurrent_memtable_write" => o.set_allow_concurrent_memtable_write(yes),
        "enable_write_thread_adaptive_yield" => o.set_enable_write_thread_adaptive_yield(yes),
        "enable_pipelined_write" => o.set_enable_pipelined_write(yes),
        "dump_malloc_stats" => o.set_dump_malloc_stats(yes),
        "memtable_whole_key_filtering" => o.set_memtable_whole_key_filtering(yes),
        "level_compaction_dynamic_level_bytes" => o.set_level_compaction_dynamic_level_bytes(yes),
        "disable_auto_compactions" => o.set_disable_auto_compactions(yes),
        "optimize_filters_for_hits" => o.set_optimize_filters_for_hits(yes),
        "report_bg_io_stats" => o.set_report_bg_io_stats(yes),
        // What can only be as it is, and what `Tuning` sees to.
        _ => {}
    }
}

fn set_int(o: &mut Options, name: &str, n: i64) {
    let (int, size, unsigned) = (n as i32, n as usize, n as u64);
    match name {
        "max_background_jobs" => o.set_max_background_jobs(int),
        #[allow(deprecated, reason = "what operators have written must go on working")]
        "max_background_compactions" => o.set_max_background_compactions(int),
        #[allow(deprecated, reason = "what operators have written must go on working")]
        "max_background_flushes" => o.set_max_background_flushes(int),
        "max_subcompactions" => o.set_max_subcompactions(n.clamp(1, 64) as u32),
        "max_open_files" => o.set_max_open_files(int),
        "max_file_opening_threads" => o.set_max_file_opening_threads(int),
        "max_total_wal_size" => o.set_max_total_wal_size(unsigned),
        "max_manifest_file_size" => o.set_max_manifest_file_size(size),
        "manifest_preallocation_size" => o.set_manifest_preallocation_size(size),
        "recycle_log_file_num" => o.set_recycle_log_file_num(size),
        "keep_log_file_num" => o.set_keep_log_file_num(size.max(1)),
        "max_log_file_size" => o.set_max_log_file_size(size),
        "log_file_time_to_roll" => o.set_log_file_time_to_roll(size),
        "bytes_per_sync" => o.set_bytes_per_sync(unsigned),
        "wal_bytes_per_sync" => o.set_wal_bytes_per_sync(unsigned),
        "writable_file_max_buffer_size" => o.set_writable_file_max_buffer_size(unsigned),
        "compaction_readahead_size" => o.set_compaction_readahead_size(size),
        "stats_dump_period_sec" => o.set_stats_dump_period_sec(n.min(u32::MAX.into()) as u32),
        "stats_persist_period_sec" => o.set_stats_persist_period_sec(n.min(u32::MAX.into()) as u32),
        "delete_obsolete_files_period_micros" => o.set_delete_obsolete_files_period_micros(unsigned),
        "table_cache_numshardbits" => o.set_table_cache_num_shard_bits(int),
        "WAL_ttl_seconds" => o.set_wal_ttl_seconds(unsigned),
        "WAL_size_limit_MB" => o.set_wal_size_limit_mb(unsigned),
        "write_buffer_size" => o.set_write_buffer_size(size),
        "max_write_buffer_number" => o.set_max_write_buffer_number(int),
        "min_write_buffer_number_to_merge" => o.set_min_write_buffer_number_to_merge(int),
        "max_write_buffer_size_to_maintain" => o.set_max_write_buffer_size_to_maintain(n),
        "arena_block_size" => o.set_arena_block_size(size),
        "memtable_huge_page_size" => o.set_memtable_huge_page_size(size),
        "num_levels" => o.set_num_levels(int),
        "level0_file_num_compaction_trigger" => o.set_level_zero_file_num_compaction_trigger(int),
        "level0_slowdown_writes_trigger" => o.set_level_zero_slowdown_writes_trigger(int),
        "level0_stop_writes_trigger" => o.set_level_zero_stop_writes_trigger(int),
        "max_bytes_for_level_base" => o.set_max_bytes_for_level_base(unsigned),
        "target_file_size_base" => o.set_target_file_size_base(unsigned),
        "target_file_size_multiplier" => o.set_target_file_size_multiplier(int),
        "max_compaction_bytes" => o.set_max_compaction_bytes(unsigned),
        "periodic_compaction_seconds" => o.set_periodic_compaction_seconds(unsigned),
        "soft_pending_compaction_bytes_limit" => o.set_soft_pending_compaction_bytes_limit(size),
        "hard_pending_compaction_bytes_limit" => o.set_hard_pending_compaction_bytes_limit(size),
        "bloom_locality" => o.set_bloom_locality(n.min(u32::MAX.into()) as u32),
        "max_sequential_skip_in_iterations" => o.set_max_sequential_skip_in_iterations(unsigned),
        "max_successive_merges" => o.set_max_successive_merges(size),
        // Threads, and what can only be 0: `Tuning` sees to them.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(options: &str, families: &str) -> Option<u64> {
        Tuning::parse(options, "", families).unwrap().gathered_bytes(Layout::ObjectStore)
    }

    #[test]
    fn what_is_gathered_is_a_buffer_s_size_times_how_many_are_merged() {
        assert_eq!(gathered("compression=kNoCompression,min_write_buffer_number_to_merge=4", ""), None);
        assert_eq!(gathered("write_buffer_size=1M; write_buffer_size = 2M,max_open_files=5", ""), Some(2 << 20));
        assert_eq!(gathered("write_buffer_size=16M,min_write_buffer_number_to_merge=8", ""), Some(128 << 20));
        assert_eq!(gathered("write_buffer_size=16M", "O=min_write_buffer_number_to_merge=4 m"), Some(64 << 20));
    }

    #[test]
    fn the_annex_wins_and_what_is_of_no_use_is_told() {
        let t = Tuning::parse("write_buffer_size=1M", "write_buffer_size=4M", "m(3) O(2)=block_cache={type=binned_lru} X L").unwrap();
        assert_eq!(t.gathered_bytes(Layout::ObjectStore), Some(4 << 20));
        assert_eq!(
            t.unused(),
            ["m: one family instead of 3 shards", "O: one family instead of 2 shards", "O: block_cache={type=binned_lru}", "X: no such keys here"]
        );
        assert!(Tuning::parse("", "bogus=1", "").is_err());
        assert!(!t.compact_on_mount() && Tuning::parse("compact_on_mount=true", "", "").unwrap().compact_on_mount());
    }

    /// RocksDB's own file of options shows what it was given.
    #[test]
    fn options_reach_the_family_they_are_meant_for() {
        let dir = crate::TempDir::new("kv-reach");
        let mut config = super::super::RocksConfig::new(dir.path(), Layout::ObjectStore);
        config.tuning = Tuning::parse(
            "compression=kNoCompression,max_open_files=77,max_bytes_for_level_multiplier=6,compaction_pri=kOldestLargestSeqFirst,compaction_threads=3",
            "level0_file_num_compaction_trigger=5",
            "m=compression=kSnappyCompression",
        )
        .unwrap();
        drop(super::super::RocksKv::open(&config, std::sync::mpsc::channel().0).unwrap());
        let files = std::fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().path());
        let newest = files.filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("OPTIONS-")).max().unwrap();
        let text = std::fs::read_to_string(newest).unwrap();
        let section = |name: &str| text.split("[CFOptions ").find(|s| s.starts_with(&format!("\"{name}\""))).unwrap().to_owned();
        assert!(text.contains("max_open_files=77"));
        for (family, has) in [("default", "compression=kNoCompression"), ("omap", "compression=kSnappyCompression")] {
            let s = section(family);
            assert!(s.contains(&format!("\n  {has}\n")), "{family}: {s}");
            assert!(s.contains("level0_file_num_compaction_trigger=5") && s.contains("compaction_pri=kOldestLargestSeqFirst"));
            assert!(s.contains("max_bytes_for_level_multiplier=6."));
        }
    }
}
