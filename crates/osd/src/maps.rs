//! The maps an OSD has: the newest in memory, a stretch of older ones on disk, for itself to look back and for others to
//! catch up.
//!
//! Holds: maps are taken in order, each made durable after what the PGs noted because of it; so after a crash no PG
//! knows less than the newest map says.

use crate::disk::Disk;
use bytes::Bytes;
use denc::{BString, Decode, Encode};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Kv, KvError, META_COLL, Transaction};
use types::map::{OsdMap, OsdMapIncremental};
use types::msg::mon::MOsdMap;
use types::{Epoch, Errno, Utime};
use uuid::Uuid;

/// Maps dropped at a time, at least.
const TRIM_MIN: u32 = 10;
/// Maps in one message at most (`osd_map_message_max`).
const SHARE_MAX: u32 = 40;
const RANGE_ROW: &[u8] = b"maps";
const BORN_ROW: &[u8] = b"born";
/// Of a store that no map has had up yet.
pub(crate) const UNBORN: Epoch = Epoch(u32::MAX);
const FULL_ROW: u8 = b'f';
const INCREMENTAL_ROW: u8 = b'n';

/// The row `maps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Range {
    oldest: Epoch,
    newest: Epoch,
}

/// The maps of an OSD.
pub(crate) struct Maps {
    pub newest: Arc<OsdMap>,
    range: Range,
    /// The oldest that the monitors keep, as they said last: somebody's past may begin there.
    trimmed_to: Epoch,
}

fn key(kind: u8, epoch: Epoch) -> BString {
    let mut key = vec![kind];
    key.extend_from_slice(&epoch.0.to_be_bytes());
    key.into()
}

impl Maps {
    /// What is on disk; a map of epoch 0 if there is none yet.
    pub fn load(disk: &mut dyn Disk, fsid: Uuid) -> Result<Self, Errno> {
        let Some(raw) = disk.coll_get(META_COLL, RANGE_ROW)? else {
            let mut empty = OsdMap::new(fsid, Utime::ZERO);
            empty.epoch = Epoch(0);
            return Ok(Maps { newest: Arc::new(empty), range: Range::default(), trimmed_to: Epoch(0) });
        };
        let range: Range = denc::from_bytes(&raw).map_err(|_| Errno::EIO)?;
        let newest = full(disk, range.newest).ok_or(Errno::EIO)?;
        Ok(Maps { newest: Arc::new(newest), range, trimmed_to: Epoch(0) })
    }

    /// The oldest that the monitors keep, as they said last.
    pub fn kept_by_monitors(&self) -> Epoch {
        self.trimmed_to
    }

    /// Maps in memory, and how many bytes they take, about: those of the newest one's encoding.
    pub fn memory(&self) -> (u64, u64) {
        (1, denc::to_bytes(&*self.newest, types::features::SUPPORTED).len() as u64)
    }

    /// Epoch of the newest map.
    pub fn epoch(&self) -> Epoch {
        self.newest.epoch
    }

    /// Where maps are to be asked for from. An OSD without any asks from the first that the monitors still have, which
    /// they send whole: the past of the PGs it will hold is in those maps.
    pub fn wanted(&self) -> Epoch {
        self.epoch().next()
    }

    /// Epoch of the oldest map on disk.
    pub fn oldest(&self) -> Epoch {
        self.range.oldest
    }

    /// The maps of a message that come next, in order, as far as they go without a gap; and the transaction that keeps
    /// them. A gap is jumped only if the monitors have nothing in it any more: what happened there decides who may
    /// hold writes.
    pub fn take(&mut self, m: &MOsdMap, from_mon: bool) -> (Vec<Arc<OsdMap>>, Transaction) {
        if from_mon {
            self.trimmed_to = self.trimmed_to.max(m.oldest);
        }
        let mut txn = Transaction::new(META_COLL);
        let mut taken: Vec<Arc<OsdMap>> = Vec::new();
        while let Some((map, incremental)) = self.next(m) {
            let epoch = map.epoch;
            let gap = epoch.0 != self.newest.epoch.0 + 1;
            if let Some(raw) = incremental {
                txn.coll_set(key(INCREMENTAL_ROW, epoch), raw);
            }
            let raw = match m.full.get(&epoch) {
                Some(raw) => raw.clone(),
                None => denc::to_bytes(&map, types::features::SUPPORTED),
            };
            txn.coll_set(key(FULL_ROW, epoch), raw);
            if gap || self.range.oldest == Epoch(0) {
                self.forget(&mut txn, epoch);
            }
            self.range.newest = epoch;
            self.newest = Arc::new(map);
            taken.push(self.newest.clone());
        }
        let forget = self.trimmed_to.min(self.range.newest);
        // Without a new map the transaction is not submitted.
        if !taken.is_empty() && forget.0 >= self.range.oldest.0 + TRIM_MIN {
            self.forget(&mut txn, forget);
        }
        txn.coll_set(RANGE_ROW, denc::to_bytes(&self.range, 0));
        (taken, txn)
    }

    fn next(&self, m: &MOsdMap) -> Option<(OsdMap, Option<Bytes>)> {
        let next = self.newest.epoch.next();
        if self.newest.epoch > Epoch(0)
            && let Some(raw) = m.incremental.get(&next)
        {
            match self.apply(raw) {
                Ok(map) => return Some((map, Some(raw.clone()))),
                Err(e) => tracing::error!(epoch = %next, "an incremental map cannot be applied: {e}"),
            }
        }
        let (epoch, raw) = m.full.range(next..).next()?;
        if *epoch > next && self.newest.epoch > Epoch(0) && self.trimmed_to < *epoch {
            return None;
        }
        match denc::from_bytes::<OsdMap>(raw) {
            Ok(map) => Some((map, None)),
            Err(e) => {
                tracing::error!("a map cannot be read: {e}");
                None
            }
        }
    }

    fn apply(&self, raw: &Bytes) -> Result<OsdMap, String> {
        let inc: OsdMapIncremental = denc::from_bytes(raw).map_err(|e| e.to_string())?;
        let mut map = (*self.newest).clone();
        map.apply_incremental(&inc).map_err(|e| e.to_string())?;
        Ok(map)
    }

    /// Drops maps before `oldest`.
    fn forget(&mut self, txn: &mut Transaction, oldest: Epoch) {
        for kind in [FULL_ROW, INCREMENTAL_ROW] {
            txn.coll_rm_range(key(kind, self.range.oldest), key(kind, oldest));
        }
        self.range.oldest = oldest;
    }

    /// Every map on disk from `from` to before `to`, in order, given to `f`.
    pub fn replay(&self, disk: &mut dyn Disk, from: Epoch, to: Epoch, mut f: impl FnMut(&OsdMap)) {
        for epoch in from.max(self.range.oldest).0..to.0 {
            match full(disk, Epoch(epoch)) {
                Some(map) => f(&map),
                None => tracing::error!(epoch, "a map is not on disk"),
            }
        }
    }

    /// A message that brings somebody from `have` towards our newest.
    pub fn share(&self, disk: &mut dyn Disk, have: Epoch) -> MOsdMap {
        let mut m = MOsdMap {
            fsid: self.newest.fsid,
            incremental: BTreeMap::new(),
            full: BTreeMap::new(),
            oldest: self.range.oldest,
            newest: self.range.newest,
            gap_removed_snaps: BTreeMap::new(),
        };
        let newest = self.newest.epoch;
        if have > Epoch(0) && newest.0 - have.0.min(newest.0) <= SHARE_MAX {
            for epoch in have.0 + 1..=newest.0 {
                match row(disk, INCREMENTAL_ROW, Epoch(epoch)) {
                    Some(raw) => m.incremental.insert(Epoch(epoch), raw),
                    None => break,
                };
            }
        }
        if m.incremental.len() as u32 != newest.0.saturating_sub(have.0) {
            m.incremental.clear();
            m.full.extend(row(disk, FULL_ROW, newest).map(|raw| (newest, raw)));
        }
        m
    }
}

fn row(disk: &mut dyn Disk, kind: u8, epoch: Epoch) -> Option<Bytes> {
    disk.coll_get(META_COLL, &key(kind, epoch)).ok().flatten()
}

fn full(disk: &mut dyn Disk, epoch: Epoch) -> Option<OsdMap> {
    row(disk, FULL_ROW, epoch).and_then(|raw| denc::from_bytes(&raw).ok())
}

/// The epoch from which on a store has been in use. Older ones do not say: they are taken to have been from the beginning.
pub(crate) fn born(disk: &mut dyn Disk) -> Result<Epoch, Errno> {
    let raw = disk.coll_get(META_COLL, BORN_ROW)?;
    raw.map_or(Ok(Epoch(0)), |raw| denc::from_bytes(&raw).map_err(|_| Errno::EIO))
}

pub(crate) fn put_born(txn: &mut Transaction, born: Epoch) {
    txn.coll_set(BORN_ROW, denc::to_bytes(&born, 0));
}

/// Every map of a store that is not mounted: the full one, and the step that led to it where it was kept.
pub(crate) fn all(kv: &impl Kv) -> Result<BTreeMap<Epoch, (Bytes, Option<Bytes>)>, KvError> {
    let row = |key: &[u8]| store::coll_row(kv, META_COLL, key);
    let range = row(RANGE_ROW)?.and_then(|raw| denc::from_bytes::<Range>(&raw).ok()).unwrap_or_default();
    let mut maps = BTreeMap::new();
    for epoch in (range.oldest.0.max(1)..=range.newest.0).map(Epoch) {
        if let Some(full) = row(&key(FULL_ROW, epoch))? {
            maps.insert(epoch, (full, row(&key(INCREMENTAL_ROW, epoch))?));
        }
    }
    Ok(maps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(epoch: u32) -> Maps {
        let range = Range { oldest: Epoch(1), newest: Epoch(epoch) };
        Maps { newest: Arc::new(map(epoch)), range, trimmed_to: Epoch(0) }
    }

    fn map(epoch: u32) -> OsdMap {
        OsdMap { epoch: Epoch(epoch), ..OsdMap::new(Uuid::from_u128(7), Utime::ZERO) }
    }

    fn only(epoch: u32, oldest: u32) -> MOsdMap {
        MOsdMap {
            fsid: Uuid::from_u128(7),
            incremental: BTreeMap::new(),
            full: BTreeMap::from([(Epoch(epoch), map(epoch).publish())]),
            oldest: Epoch(oldest),
            newest: Epoch(epoch),
            gap_removed_snaps: BTreeMap::new(),
        }
    }

    #[test]
    fn a_gap_is_jumped_only_where_the_monitors_have_no_maps_any_more() {
        let mut maps = maps(5);
        // Another OSD's stretch of maps begins later, the monitors still have what is between.
        assert!(maps.take(&only(9, 9), false).0.is_empty());
        assert!(maps.take(&only(9, 1), true).0.is_empty());
        assert_eq!(maps.take(&only(9, 9), true).0.last().map(|m| m.epoch), Some(Epoch(9)));
    }

    #[test]
    fn maps_are_kept_as_long_as_the_monitors_keep_them() {
        let mut maps = maps(5);
        (6..900).for_each(|e| drop(maps.take(&only(e, 1), true)));
        assert_eq!(maps.oldest(), Epoch(1));
        maps.take(&only(900, 300), true);
        assert_eq!(maps.oldest(), Epoch(300));
    }
}
