//! `bluestore_rocksdb_options`: RocksDB's option strings as they are written for Ceph.
//!
//! The Rust binding has no door to RocksDB's own parser, so this is a table of what operators set in practice.

use rocksdb::{DBCompactionStyle, DBCompressionType, Options};

/// What is wrong with an option string.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("rocksdb option {0:?}: not one that can be set here")]
    Unknown(String),
    #[error("rocksdb option {name}: {value:?} is not {expected}")]
    BadValue { name: String, value: String, expected: &'static str },
    #[error("rocksdb options: {0:?} is not name=value")]
    Syntax(String),
    #[error("rocksdb option {0}: fixed, because commits rely on it")]
    Fixed(String),
}

/// Would `options` be accepted?
pub fn check_options(options: &str) -> Result<(), OptionError> {
    apply(options, &mut Options::default())
}

/// Sets every option of the string.
pub(super) fn apply(text: &str, o: &mut Options) -> Result<(), OptionError> {
    for item in text.split([',', ';']).map(str::trim).filter(|i| !i.is_empty()) {
        let (name, value) = item.split_once('=').ok_or_else(|| OptionError::Syntax(item.into()))?;
        set(o, &Item { name: name.trim(), value: value.trim() })?;
    }
    Ok(())
}

/// The operator's `write_buffer_size`, if he has set one: for a database whose memtables are not RocksDB's to flush.
pub(super) fn write_buffer_size(text: &str) -> Option<u64> {
    let mut items = text.split([',', ';']).rev().filter_map(|i| i.split_once('='));
    let (name, value) = items.find(|(name, _)| name.trim() == "write_buffer_size")?;
    Item { name, value: value.trim() }.u64().ok()
}

struct Item<'a> {
    name: &'a str,
    value: &'a str,
}

impl Item<'_> {
    fn bad(&self, expected: &'static str) -> OptionError {
        OptionError::BadValue { name: self.name.into(), value: self.value.into(), expected }
    }

    /// A number, with RocksDB's suffixes K, M, G, T.
    fn number(&self) -> Result<i64, OptionError> {
        let (digits, shift) = match self.value.char_indices().last() {
            Some((at, 'k' | 'K')) => (&self.value[..at], 10),
            Some((at, 'm' | 'M')) => (&self.value[..at], 20),
            Some((at, 'g' | 'G')) => (&self.value[..at], 30),
            Some((at, 't' | 'T')) => (&self.value[..at], 40),
            _ => (self.value, 0),
        };
        let n = digits.parse::<i64>().ok().and_then(|n| n.checked_mul(1 << shift));
        n.ok_or_else(|| self.bad("a number"))
    }

    fn int(&self) -> Result<i32, OptionError> {
        self.number()?.try_into().map_err(|_| self.bad("a number of 32 bits"))
    }

    fn u64(&self) -> Result<u64, OptionError> {
        self.number()?.try_into().map_err(|_| self.bad("a number of at least 0"))
    }

    fn usize(&self) -> Result<usize, OptionError> {
        Ok(self.u64()? as usize)
    }

    fn bool(&self) -> Result<bool, OptionError> {
        match self.value {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(self.bad("true or false")),
        }
    }

    fn compression(&self) -> Result<DBCompressionType, OptionError> {
        match self.value {
            "kNoCompression" => Ok(DBCompressionType::None),
            "kLZ4Compression" => Ok(DBCompressionType::Lz4),
            "kLZ4HCCompression" => Ok(DBCompressionType::Lz4hc),
            "kSnappyCompression" => Ok(DBCompressionType::Snappy),
            _ => Err(self.bad("a compression of this build (kNoCompression, kSnappyCompression, kLZ4Compression, kLZ4HCCompression)")),
        }
    }
}

fn set(o: &mut Options, i: &Item<'_>) -> Result<(), OptionError> {
    match i.name {
        "compression" => o.set_compression_type(i.compression()?),
        "bottommost_compression" => o.set_bottommost_compression_type(i.compression()?),
        "compaction_style" => o.set_compaction_style(match i.value {
            "kCompactionStyleLevel" => DBCompactionStyle::Level,
            "kCompactionStyleUniversal" => DBCompactionStyle::Universal,
            _ => return Err(i.bad("kCompactionStyleLevel or kCompactionStyleUniversal")),
        }),
        "write_buffer_size" => o.set_write_buffer_size(i.usize()?),
        "db_write_buffer_size" => o.set_db_write_buffer_size(i.usize()?),
        "max_write_buffer_number" => o.set_max_write_buffer_number(i.int()?),
        "min_write_buffer_number_to_merge" => o.set_min_write_buffer_number_to_merge(i.int()?),
        "recycle_log_file_num" => o.set_recycle_log_file_num(i.usize()?),
        "writable_file_max_buffer_size" => o.set_writable_file_max_buffer_size(i.u64()?),
        "compaction_readahead_size" => o.set_compaction_readahead_size(i.usize()?),
        #[allow(deprecated, reason = "what operators have written must go on working")]
        "max_background_compactions" => o.set_max_background_compactions(i.int()?),
        #[allow(deprecated, reason = "what operators have written must go on working")]
        "max_background_flushes" => o.set_max_background_flushes(i.int()?),
        "max_background_jobs" => o.set_max_background_jobs(i.int()?),
        "max_subcompactions" => o.set_max_subcompactions(i.u64()? as u32),
        "max_total_wal_size" => o.set_max_total_wal_size(i.u64()?),
        "max_open_files" => o.set_max_open_files(i.int()?),
        "bytes_per_sync" => o.set_bytes_per_sync(i.u64()?),
        "wal_bytes_per_sync" => o.set_wal_bytes_per_sync(i.u64()?),
        "max_bytes_for_level_base" => o.set_max_bytes_for_level_base(i.u64()?),
        "max_bytes_for_level_multiplier" => o.set_max_bytes_for_level_multiplier(f64::from(i.int()?)),
        "target_file_size_base" => o.set_target_file_size_base(i.u64()?),
        "target_file_size_multiplier" => o.set_target_file_size_multiplier(i.int()?),
        "level0_file_num_compaction_trigger" => o.set_level_zero_file_num_compaction_trigger(i.int()?),
        "level0_slowdown_writes_trigger" => o.set_level_zero_slowdown_writes_trigger(i.int()?),
        "level0_stop_writes_trigger" => o.set_level_zero_stop_writes_trigger(i.int()?),
        "num_levels" => o.set_num_levels(i.int()?),
        "level_compaction_dynamic_level_bytes" => o.set_level_compaction_dynamic_level_bytes(i.bool()?),
        "soft_pending_compaction_bytes_limit" => o.set_soft_pending_compaction_bytes_limit(i.usize()?),
        "hard_pending_compaction_bytes_limit" => o.set_hard_pending_compaction_bytes_limit(i.usize()?),
        "disable_auto_compactions" => o.set_disable_auto_compactions(i.bool()?),
        "optimize_filters_for_hits" => o.set_optimize_filters_for_hits(i.bool()?),
        "enable_pipelined_write" => o.set_enable_pipelined_write(i.bool()?),
        "use_direct_reads" => o.set_use_direct_reads(i.bool()?),
        "use_direct_io_for_flush_and_compaction" => o.set_use_direct_io_for_flush_and_compaction(i.bool()?),
        "keep_log_file_num" => o.set_keep_log_file_num(i.usize()?),
        "max_log_file_size" => o.set_max_log_file_size(i.usize()?),
        "stats_dump_period_sec" => o.set_stats_dump_period_sec(i.u64()? as u32),
        "arena_block_size" => o.set_arena_block_size(i.usize()?),
        "manual_wal_flush" | "wal_recovery_mode" | "unordered_write" | "avoid_flush_during_recovery" | "allow_mmap_writes" => {
            return Err(OptionError::Fixed(i.name.into()));
        }
        _ => return Err(OptionError::Unknown(i.name.into())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_buffer_size_counts() {
        assert_eq!(write_buffer_size("compression=kNoCompression"), None);
        assert_eq!(write_buffer_size("write_buffer_size=1M; write_buffer_size = 2M,max_open_files=5"), Some(2 << 20));
    }

    #[test]
    fn wrong_options_are_named() {
        assert_eq!(check_options("a=1"), Err(OptionError::Unknown("a".into())));
        assert_eq!(check_options("write_buffer_size"), Err(OptionError::Syntax("write_buffer_size".into())));
        assert!(matches!(check_options("write_buffer_size=many"), Err(OptionError::BadValue { .. })));
        assert!(matches!(check_options("write_buffer_size=-1"), Err(OptionError::BadValue { .. })));
        assert!(matches!(check_options("write_buffer_size=é"), Err(OptionError::BadValue { .. })));
        assert!(matches!(check_options("compression=kZSTD"), Err(OptionError::BadValue { .. })));
        assert!(matches!(check_options("manual_wal_flush=false"), Err(OptionError::Fixed(_))));
        assert_eq!(check_options(" write_buffer_size=64M; max_open_files=-1 ,"), Ok(()));
    }
}
