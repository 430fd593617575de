//! RocksDB's options as operators write them for Ceph: `bluestore_rocksdb_options`, its annex, and column families.
//!
//! Room: ground floor; what an option does to RocksDB is `io::kv`'s. Why a table of our own: the monitor is to refuse a wrong one at
//! `config set`, and links no RocksDB; and the Rust binding of RocksDB has no door to its parser of strings.
//! Upstream: src/kv/RocksDBStore.cc (names that are Ceph's own, how strings are cut), RocksDB's options/{db,cf}_options.cc.

mod families;
mod table;

pub use families::{FamilyDef, Home, parse_families};
pub use table::{NAMES, Scope};

use table::Kind;

/// What is wrong with an option string.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("rocksdb option {0:?}: not one that can be set here")]
    Unknown(String),
    #[error("rocksdb option {name}: {value:?} is not {expected}")]
    BadValue { name: String, value: String, expected: &'static str },
    #[error("rocksdb options: {0:?} is not name=value")]
    Syntax(String),
    #[error("rocksdb option {name}={value}: refused, {why}")]
    Refused { name: String, value: String, why: &'static str },
    #[error("rocksdb option {0}: one of the whole database, not of a column family")]
    NotOfAFamily(String),
    #[error("column families: {0:?} is not a name with shards and options")]
    Family(String),
    #[error("column families: {0:?} is no prefix of BlueStore's")]
    UnknownFamily(String),
}

/// An option that was given a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    pub name: &'static str,
    pub value: Value,
}

/// What an option's value can be.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Int(i64),
    Float(f64),
    Bool(bool),
    /// One of the words that the option knows.
    Word(&'static str),
    /// Several of them, or none.
    Words(Vec<&'static str>),
}

/// Every option of a string, in its order: `name=value`, separated by commas, semicolons or new lines. Errors name the option.
pub fn parse(text: &str) -> Result<Vec<Setting>, OptionError> {
    items(text).into_iter().map(|item| setting(item, false)).collect()
}

/// The same as a check of an option's value.
pub fn check(text: &str) -> Result<(), String> {
    parse(text).map(drop).map_err(|e| e.to_string())
}

/// The same of `bluestore_rocksdb_cfs`.
pub fn check_families(text: &str) -> Result<(), String> {
    parse_families(text).map(drop).map_err(|e| e.to_string())
}

/// What stands between separators outside of braces.
fn items(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let apart = text.split(move |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth <= 0 && matches!(c, ',' | ';' | '\n')
    });
    apart.map(str::trim).filter(|i| !i.is_empty()).collect()
}

fn setting(item: &str, of_family: bool) -> Result<Setting, OptionError> {
    let (name, value) = item.split_once('=').ok_or_else(|| OptionError::Syntax(item.into()))?;
    let (name, value) = (name.trim(), value.trim());
    let spec = table::find(name).ok_or_else(|| OptionError::Unknown(name.into()))?;
    if of_family && spec.scope == Scope::Database {
        return Err(OptionError::NotOfAFamily(name.into()));
    }
    let bad = |expected| OptionError::BadValue { name: name.into(), value: value.into(), expected };
    let value = match spec.kind {
        Kind::Int => number(value).filter(|n| i32::try_from(*n).is_ok()).map(Value::Int).ok_or_else(|| bad("a number of 32 bits"))?,
        Kind::Uint => number(value).filter(|n| *n >= 0).map(Value::Int).ok_or_else(|| bad("a number of at least 0"))?,
        Kind::Float => value.parse().ok().filter(|f: &f64| f.is_finite()).map(Value::Float).ok_or_else(|| bad("a number"))?,
        Kind::Bool => boolean(value).map(Value::Bool).ok_or_else(|| bad("true or false"))?,
        Kind::Word(words, expected) => Value::Word(word(words, value).ok_or_else(|| bad(expected))?),
        Kind::Words(words, expected) => {
            let each = value.split(':').filter(|w| !w.is_empty()).map(|w| word(words, w));
            Value::Words(each.collect::<Option<_>>().ok_or_else(|| bad(expected))?)
        }
        Kind::Only(only, why) if boolean(value) != Some(only) => {
            return Err(OptionError::Refused { name: name.into(), value: value.into(), why });
        }
        Kind::Only(only, _) => Value::Bool(only),
        Kind::Zero(why) if number(value) != Some(0) => {
            return Err(OptionError::Refused { name: name.into(), value: value.into(), why });
        }
        Kind::Zero(_) => Value::Int(0),
        Kind::Never(why) => return Err(OptionError::Refused { name: name.into(), value: value.into(), why }),
    };
    Ok(Setting { name: spec.name, value })
}

/// A number with RocksDB's suffixes: K, M, G, T, behind which anything may stand, as it may there (`2MB`).
fn number(text: &str) -> Option<i64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let shift = match unit.chars().next() {
        None => 0,
        Some('k' | 'K') => 10,
        Some('m' | 'M') => 20,
        Some('g' | 'G') => 30,
        Some('t' | 'T') => 40,
        Some(_) => return None,
    };
    if !matches!(unit.get(1..).unwrap_or("").to_ascii_lowercase().as_str(), "" | "b" | "ib") {
        return None;
    }
    digits.parse::<i64>().ok()?.checked_mul(1 << shift)
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

fn word(words: &[&'static str], text: &str) -> Option<&'static str> {
    words.iter().find(|w| **w == text).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOCK: &str = "compression=kNoCompression,max_write_buffer_number=4,min_write_buffer_number_to_merge=1,\
        recycle_log_file_num=4,write_buffer_size=268435456,writable_file_max_buffer_size=0,compaction_readahead_size=2097152,\
        max_background_compactions=2,max_total_wal_size=1073741824";
    const ALTERNATE: &str = "compression=kLZ4Compression,max_write_buffer_number=64,min_write_buffer_number_to_merge=6,\
        compaction_style=kCompactionStyleLevel,write_buffer_size=16777216,max_background_jobs=4,level0_file_num_compaction_trigger=8,\
        max_bytes_for_level_base=1073741824,max_bytes_for_level_multiplier=8,compaction_readahead_size=2MB,\
        max_total_wal_size=1073741824,writable_file_max_buffer_size=0";
    const OLD_FAVOURITE: &str = "compression=kNoCompression,max_write_buffer_number=32,min_write_buffer_number_to_merge=2,\
        recycle_log_file_num=32,compaction_style=kCompactionStyleLevel,write_buffer_size=67108864,target_file_size_base=67108864,\
        max_background_compactions=31,level0_file_num_compaction_trigger=8,level0_slowdown_writes_trigger=32,\
        level0_stop_writes_trigger=64,max_bytes_for_level_base=536870912,compaction_threads=32,max_bytes_for_level_multiplier=8,\
        flusher_threads=8,compaction_readahead_size=2MB";

    #[test]
    fn what_operators_share_is_understood() {
        for text in [STOCK, ALTERNATE, OLD_FAVOURITE, "", " write_buffer_size=64M; max_open_files=-1 ,", "disableWAL=false\natomic_flush=true"] {
            parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        }
        assert_eq!(parse("compaction_readahead_size=2MB").unwrap()[0].value, Value::Int(2 << 20));
        assert_eq!(
            parse("compression_per_level=kNoCompression:kLZ4Compression").unwrap()[0].value,
            Value::Words(vec!["kNoCompression", "kLZ4Compression"])
        );
    }

    #[test]
    fn wrong_options_are_named() {
        assert_eq!(parse("a=1"), Err(OptionError::Unknown("a".into())));
        assert_eq!(parse("write_buffer_size"), Err(OptionError::Syntax("write_buffer_size".into())));
        for bad in ["write_buffer_size=many", "write_buffer_size=-1", "write_buffer_size=é", "write_buffer_size=2Mx", "compression=kZSTD", "num_levels=5G"] {
            assert!(matches!(parse(bad), Err(OptionError::BadValue { .. })), "{bad}");
        }
        for unsafe_ in ["manual_wal_flush=false", "disableWAL=true", "atomic_flush=false", "db_write_buffer_size=1G", "wal_dir=/x", "unordered_write=true"] {
            let e = parse(unsafe_).unwrap_err();
            assert!(matches!(e, OptionError::Refused { .. }) && e.to_string().contains(unsafe_), "{e}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = NAMES.iter().map(|s| s.name).collect();
        let before = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), before);
    }
}
