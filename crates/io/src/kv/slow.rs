//! A database on a device of its own, and where its tables go when that is full.
//!
//! RocksDB gives whole levels to one of two directories (`db_paths`): those that fit into the first one's size, the others to the
//! second. Its levels of fixed sizes, ten times as large each, would leave most of many devices empty (a level that does not fit as a whole
//! goes to the slow place); so levels are cut to the device: as many as fit, and the last of them ends where the device does.
//! Families do not know of each other, so each of the two large ones may take half.
//!
//! RocksDB notes with each table which of the two it is in, and must not be opened without the second while there is one in it: whoever
//! takes the slow place away has `RocksKv::fit_levels` empty it first.
//! Upstream: RocksDB's LevelCompactionBuilder::GetPathId; what BlueFS does for Ceph.

use std::io;
use std::path::{Path, PathBuf};

/// Where a database's tables go that have no room in its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slow {
    pub dir: PathBuf,
    /// Bytes that the database's own directory may take.
    pub room: u64,
}

/// How much lies where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of the database in its own place, and how many it may have there.
    pub used: u64,
    pub room: u64,
    /// Bytes in the slow place.
    pub spilled: u64,
}

/// The same of a level's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Levels {
    /// Bytes of the first level.
    pub base: u64,
    pub table: u64,
    /// Bytes of one family in its own place.
    pub target: u64,
}

/// Between levels.
pub(super) const MULTIPLIER: u64 = 10;
/// No first level is smaller.
const BASE_MIN: u64 = 8 << 20;
/// Larger, and there is room for another level.
const BASE_MAX: u64 = 512 << 20;
const TABLE_MAX: u64 = 32 << 20;

impl Levels {
    /// For a place of so many bytes, of which `beside` are taken by something else. A tenth, or 64 MiB, stays free: compactions write before they
    /// delete.
    pub(super) fn of(room: u64, beside: u64) -> Levels {
        let room = room.saturating_sub(beside);
        let target = room.saturating_sub((room / 10).max((64 << 20).min(room / 4))) / 2;
        // The level without order counts as much as the first one.
        let (mut parts, mut last) = (2, 1);
        while target / parts > BASE_MAX {
            last *= MULTIPLIER;
            parts += last;
        }
        let base = (target / parts).max(BASE_MIN);
        Levels { base, table: (base / 4).min(TABLE_MAX), target }
    }
}

/// Bytes of a directory's files. One that goes away meanwhile counts for nothing.
pub fn bytes_in(dir: &Path) -> io::Result<u64> {
    let files = std::fs::read_dir(dir)?.filter_map(|file| file.ok()?.metadata().ok());
    Ok(files.filter(|m| m.is_file()).map(|m| m.len()).sum())
}

impl Slow {
    /// What lies where, for the database in `dir`. A directory that cannot be read counts as empty.
    pub(super) fn usage(&self, dir: &Path) -> Usage {
        Usage { used: bytes_in(dir).unwrap_or(0), room: self.room, spilled: bytes_in(&self.dir).unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As RocksDB reckons: which levels fit.
    fn levels_that_fit(l: Levels) -> (u32, u64) {
        let (mut left, mut size, mut n) = (l.target, l.base, 0);
        while size <= left {
            left -= size;
            size *= if n > 0 { MULTIPLIER } else { 1 };
            n += 1;
        }
        (n, left)
    }

    #[test]
    fn levels_end_where_the_device_does() {
        for gib in [1, 2, 4, 10, 30, 60, 100, 300, 1000] {
            let l = Levels::of(gib << 30, 256 << 20);
            let (n, left) = levels_that_fit(l);
            assert!(n >= 2 && left < l.target / 50 + 4096, "{gib} GiB: {n} levels of {l:?}, {left} bytes left");
            assert!(2 * l.target < gib << 30);
        }
    }

    #[test]
    fn a_place_too_small_for_one_level_has_none() {
        let l = Levels::of(80 << 20, 64 << 20);
        assert_eq!((l.base, levels_that_fit(l).0), (BASE_MIN, 0));
        assert_eq!(Levels::of(1, 2).target, 0);
    }
}
