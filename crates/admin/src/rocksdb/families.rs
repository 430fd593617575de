//! `bluestore_rocksdb_cfs`: which keys go into which column family, and with which options.
//!
//! `m(3) p(3,0-12) O(3,0-13)=block_cache={type=binned_lru} L P`: prefixes of BlueStore's keys, with the number of shards, the part of
//! the key that is hashed, and options. Our database has its own families; what is said of a prefix is said of the family that
//! its keys are in here. Nothing here is split into shards: one number more to get wrong, and compactions are small.

use super::{OptionError, Setting, items, setting};

/// Where keys of a prefix of BlueStore's lie here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Home {
    /// Family `default`: objects, collections, the superblock.
    Objects,
    /// Family `omap`.
    Omap,
    /// Family `deferred`: deferred writes, and logs of placement groups, both in the journal for most of their lives.
    Deferred,
    /// We keep no such keys.
    Nowhere,
}

/// What is said of a prefix.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyDef {
    /// `O`, `m`.
    pub prefix: String,
    /// Shards that were asked for.
    pub shards: u32,
    pub home: Home,
    pub options: Vec<Setting>,
    /// Options that are about BlueStore's own caches: accepted, without effect.
    pub ignored: Vec<String>,
}

/// Every definition, in order. Errors name what cannot be understood.
pub fn parse_families(text: &str) -> Result<Vec<FamilyDef>, OptionError> {
    text.split_whitespace().map(family).collect()
}

fn family(text: &str) -> Result<FamilyDef, OptionError> {
    let bad = || OptionError::Family(text.into());
    let name_end = text.find(['(', '=']).unwrap_or(text.len());
    let (prefix, rest) = text.split_at(name_end);
    let (shards, rest) = match rest.strip_prefix('(') {
        Some(inside) => {
            let (inside, rest) = inside.split_once(')').ok_or_else(bad)?;
            (shards(inside).ok_or_else(bad)?, rest)
        }
        None => (1, rest),
    };
    let options = match rest.strip_prefix('=') {
        Some(options) => options,
        None if rest.is_empty() => "",
        None => return Err(bad()),
    };
    let home = home(prefix).ok_or_else(|| OptionError::UnknownFamily(prefix.into()))?;
    let (mut set, mut ignored) = (Vec::new(), Vec::new());
    for item in items(options) {
        // One cache is shared by all families.
        match item.split_once('=') {
            Some(("block_cache", _)) => ignored.push(item.to_owned()),
            _ => set.push(setting(item, true)?),
        }
    }
    Ok(FamilyDef { prefix: prefix.into(), shards, home, options: set, ignored })
}

/// `3`, or `3,0-12`: shards, and which part of a key to hash.
fn shards(text: &str) -> Option<u32> {
    let (count, range) = text.split_once(',').map_or((text, None), |(count, range)| (count, Some(range)));
    if let Some(range) = range {
        let (from, to) = range.split_once('-')?;
        let from: u32 = from.trim().parse().ok()?;
        if !to.trim().is_empty() && to.trim().parse::<u32>().ok()? < from {
            return None;
        }
    }
    count.trim().parse().ok().filter(|n| *n > 0)
}

/// BlueStore's prefixes: O objects, S the superblock, T statistics, C collections, M, m, p omap, P that of placement groups,
/// L deferred writes, B, b and X what only BlueStore keeps.
fn home(prefix: &str) -> Option<Home> {
    match prefix {
        "O" | "S" | "C" | "default" => Some(Home::Objects),
        "M" | "m" | "p" => Some(Home::Omap),
        "L" | "P" => Some(Home::Deferred),
        "T" | "B" | "b" | "X" => Some(Home::Nowhere),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Value;
    use super::*;

    #[test]
    fn stock_s_definitions_find_their_families() {
        let defs = parse_families("m(3) p(3,0-12) O(3,0-13)=block_cache={type=binned_lru} L=min_write_buffer_number_to_merge=32 P").unwrap();
        let seen: Vec<_> = defs.iter().map(|d| (d.prefix.as_str(), d.shards, d.home)).collect();
        assert_eq!(seen, [("m", 3, Home::Omap), ("p", 3, Home::Omap), ("O", 3, Home::Objects), ("L", 1, Home::Deferred), ("P", 1, Home::Deferred)]);
        assert_eq!(defs[2].ignored, ["block_cache={type=binned_lru}"]);
        assert_eq!(defs[3].options, [Setting { name: "min_write_buffer_number_to_merge", value: Value::Int(32) }]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(parse_families("Q(3)"), Err(OptionError::UnknownFamily("Q".into())));
        for bad in ["O(3", "O(0)", "O(3,5-2)", "O(3)x", "O(a)"] {
            assert_eq!(parse_families(bad), Err(OptionError::Family(bad.into())));
        }
        assert_eq!(parse_families("O=max_open_files=3"), Err(OptionError::NotOfAFamily("max_open_files".into())));
        assert_eq!(parse_families("O=bogus=3"), Err(OptionError::Unknown("bogus".into())));
    }
}
