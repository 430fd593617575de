//! Copies of PGs of erasure-coded pools: which shards each of them has, and how a write that did not reach enough of them is taken back.
//!
//! A copy is a shard from the beginning to its end, whatever place it has in the acting set: CRUSH may change places without moving anything.
//! Where PGs became one that were different shards on the same OSD, it is as many as they were, each of the objects of one of them.
//! The primary gives shards to copies that have none, as it tells them the log (`getmissing.rs`).
//! What a write changes of an object is kept first, in the same transaction, by sharing its blocks: the attributes and what is overwritten, or a
//! clone of it where more than that changes. It waits in an object beside it (`object::undo`) until the write is on every shard. A copy that
//! has to drop a write puts back what was there. So a write that is on too few shards to be read destroys nothing.
//!
//! Holds: of any interval in which the PG may have been written, what was acknowledged is in the log of each of its copies; so the copy whose
//! log is the shortest has all of it, and what others have beyond it they can take back.
//! Why not the newest log, as for whole copies: what its last writes left may be there on fewer shards than it takes.
//! Upstream: doc/dev/osd_internals/erasure_coding/ecbackend.rst; ECBackend (rollback), PeeringState::find_best_info.

use super::Pg;
use crate::disk::Disk;
use crate::effects::{Cx, Durable};
use crate::object::{INFO_ATTR, ObjectInfo, SHARD_ATTR, undo};
use crate::snaps::index_arrived;
use crate::mutation::Mutation;
use bytes::Bytes;
use denc::BString;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{BLOCK, Transaction};
use types::msg::internal_osd::{PeerInfo, PgBody};
use types::pg::{HashRange, LogOp, PgLogEntry, Shards};
use types::{EVersion, Errno, HObject, OsdId};

/// Which shards each copy of a PG has from now on: whoever has one keeps it, unless a better copy has the same.
pub(super) fn assign(count: u8, pg: HashRange, acting: &[OsdId], up: &[OsdId], infos: &BTreeMap<OsdId, PeerInfo>) -> BTreeMap<OsdId, Shards> {
    let tables: Vec<&Shards> = infos.values().filter(|i| i.exists).map(|i| &i.shards).collect();
    let mut given: BTreeMap<OsdId, Vec<(HashRange, u8)>> = BTreeMap::new();
    for piece in pg.pieces(&tables) {
        let mut shards = BTreeMap::new();
        give(count, piece, acting, infos, &mut shards);
        give(count, piece, up, infos, &mut shards);
        for (osd, shard) in shards {
            given.entry(osd).or_default().push((piece, shard));
        }
    }
    given.into_iter().map(|(osd, given)| (osd, Shards::of_pg(pg, given))).collect()
}

/// Gives each of a set a shard of its own, of objects none of which has another than the rest.
fn give(count: u8, of: HashRange, set: &[OsdId], infos: &BTreeMap<OsdId, PeerInfo>, shards: &mut BTreeMap<OsdId, u8>) {
    let mut taken: BTreeSet<u8> = set.iter().filter_map(|osd| shards.get(osd).copied()).collect();
    let mut rest: Vec<OsdId> = set.iter().filter(|osd| !shards.contains_key(osd)).copied().collect();
    let quality = |osd: &OsdId| infos.get(osd).map(|i| (i.is_whole(), i.last_update));
    rest.sort_by_key(|osd| (std::cmp::Reverse(quality(osd)), *osd));
    rest.retain(|osd| {
        let has = infos.get(osd).filter(|i| i.exists).and_then(|i| i.shards.of(of.seed)).filter(|shard| *shard < count);
        let keeps = has.filter(|shard| taken.insert(*shard));
        shards.extend(keeps.map(|shard| (*osd, shard)));
        keeps.is_none()
    });
    let free: Vec<u8> = (0..count).filter(|shard| !taken.contains(shard)).collect();
    shards.extend(rest.into_iter().zip(free));
}

impl Pg {
    /// True for a copy that has shards of objects.
    pub(super) fn is_coded(&self) -> bool {
        !self.own_shards.is_empty()
    }

    /// Whose hashes are the PG's.
    pub(super) fn hashes(&self) -> HashRange {
        HashRange::new(self.id.seed, self.walk.mapping.bits)
    }

    /// Which shard of an object our copy has.
    pub(super) fn own_shard(&self, object: &HObject) -> Option<u8> {
        self.own_shards.of(object.hash)
    }

    /// On the primary: which shard of an object a copy has.
    pub(super) fn shard_at(&self, osd: OsdId, object: &HObject) -> Option<u8> {
        self.shards.get(&osd)?.of(object.hash)
    }

    /// Gives every copy its shards, ours too, by what all said of themselves.
    pub(super) fn assign_shards(&mut self, cx: &Cx<'_>) {
        let Some(striping) = cx.sh.striping.get(&self.id.pool) else { return };
        let Some(p) = self.peering() else { return };
        let m = &self.walk.mapping;
        let mut shards = assign(striping.shards() as u8, self.hashes(), &m.acting, &m.up, &p.infos);
        for (osd, info) in p.infos.iter().filter(|(_, info)| info.exists && !info.shards.is_empty()) {
            shards.entry(*osd).or_insert_with(|| info.shards.clone());
        }
        self.own_shards = shards.get(&cx.sh.whoami).cloned().unwrap_or_default();
        self.shards = shards;
    }

    /// Adds to a transaction what says whose shard an object is.
    pub(super) fn tag(&self, txn: &mut Transaction, object: &HObject) {
        if let Some(shard) = self.own_shard(object) {
            txn.set_attr(object, SHARD_ATTR, Bytes::copy_from_slice(&[shard]));
        }
    }

    /// Every attribute of an object but what says whose shard it is: as every copy has them.
    pub(super) fn attrs_of(&self, cx: &mut Cx<'_>, object: &HObject) -> Result<Vec<(BString, Bytes)>, Errno> {
        let attrs = cx.disk.getattrs(self.coll, object)?;
        Ok(attrs.into_iter().filter(|(name, _)| name != SHARD_ATTR).collect())
    }

    /// True if what is stored of an object is what a copy of our shard has.
    pub(super) fn is_of_our_shard(&self, cx: &mut Cx<'_>, object: &HObject) -> bool {
        let Some(shard) = self.own_shard(object) else { return !self.is_coded() };
        cx.disk.getattr(self.coll, object, SHARD_ATTR).is_ok_and(|tag| tag[..] == [shard])
    }

    /// Keeps what entries' objects are before they change; the last is what the mutation is about.
    pub(super) fn keep_undo<'a>(
        &mut self,
        cx: &mut Cx<'_>,
        txn: &mut Transaction,
        before: impl Iterator<Item = &'a PgLogEntry>,
        (entry, mutation): (&PgLogEntry, &Mutation),
    ) {
        if !self.is_coded() {
            return;
        }
        for clone in before.filter(|e| changes_what_was(e)) {
            self.keep_one(cx, txn, clone, None);
        }
        if changes_what_was(entry) {
            self.keep_one(cx, txn, entry, mutation.overwritten().map(whole_blocks));
        }
    }

    /// Keeps an object, or these parts of it and its attributes.
    fn keep_one(&mut self, cx: &mut Cx<'_>, txn: &mut Transaction, entry: &PgLogEntry, parts: Option<Vec<(u64, u64)>>) {
        let (object, kept) = (&entry.object, undo::of(&entry.object, entry.version.version));
        let Ok(stat) = cx.disk.stat(self.coll, object) else { return };
        match (parts, cx.disk.getattrs(self.coll, object)) {
            (Some(parts), Ok(attrs)) => {
                let note = denc::to_bytes(&(stat.size, parts.clone()), 0);
                txn.touch(&kept);
                packed(&parts).for_each(|(at, off, len)| txn.clone_range(object, &kept, off, len, at));
                txn.set_attrs(&kept, attrs.into_iter().chain([(undo::PARTS.into(), note)]).collect());
            }
            _ => txn.clone_obj(object, &kept),
        }
        self.undo.push_back((entry.version, kept));
    }

    /// Makes an object again what was kept of it. False if that cannot be read.
    fn put_back(&self, cx: &mut Cx<'_>, txn: &mut Transaction, object: &HObject, kept: &HObject) -> bool {
        let Ok(mut attrs) = cx.disk.getattrs(self.coll, kept) else { return false };
        if let Some(info) = attrs.get(&BString::from(INFO_ATTR)).and_then(|raw| denc::from_bytes::<ObjectInfo>(raw).ok()) {
            // Snapshots that show a clone find it again.
            index_arrived(txn, object, &info);
        }
        match attrs.remove(&BString::from(undo::PARTS)).map(|note| denc::from_bytes::<(u64, Vec<(u64, u64)>)>(&note)) {
            None => txn.clone_obj(kept, object),
            Some(Err(_)) => return false,
            Some(Ok((size, parts))) => {
                packed(&parts).for_each(|(at, off, len)| txn.clone_range(kept, object, at, len, off));
                txn.truncate(object, size);
                txn.rm_attrs(object);
                txn.set_attrs(object, attrs.into_iter().collect());
            }
        }
        txn.remove(kept);
        true
    }

    /// Writes up to here are on every shard, and will not be taken back.
    pub(super) fn settle(&mut self, txn: &mut Transaction, to: EVersion) {
        let settled = self.undo.partition_point(|(version, _)| *version <= to);
        self.undo.drain(..settled).for_each(|(_, kept)| txn.remove(&kept));
    }

    /// With nobody writing, other copies hear that everything is settled; in each interval anew, for they may have missed it, or have kept more
    /// than we did.
    pub(super) fn settle_idle(&mut self, cx: &mut Cx<'_>) {
        let to = self.committed_to;
        if !self.is_coded() || self.settled == to || self.undo.back().is_some_and(|(version, _)| *version > to) {
            return;
        }
        self.settled = to;
        for osd in self.replicas(cx.sh.whoami).collect::<Vec<_>>() {
            cx.send_pg(osd, self.id, self.round(), PgBody::Settled { to }, Durable::Now);
        }
        self.settle_now(cx, to);
    }

    pub(super) fn settle_now(&mut self, cx: &mut Cx<'_>, to: EVersion) {
        let mut txn = self.transaction();
        self.settle(&mut txn, to);
        if !txn.is_empty() {
            cx.submit(txn);
        }
    }

    /// Takes back writes that our log drops, newest first. Says which objects are in which version with that; zero: absent.
    pub(super) fn take_back(&mut self, cx: &mut Cx<'_>, txn: &mut Transaction, divergent: &[PgLogEntry]) -> BTreeMap<HObject, EVersion> {
        let mut back = BTreeMap::new();
        if !self.is_coded() {
            return back;
        }
        let mut broken = BTreeSet::new();
        for entry in divergent {
            let kept = match self.undo.back() {
                Some((version, _)) if *version == entry.version => self.undo.pop_back().map(|(_, kept)| kept),
                _ => None,
            };
            let is_made = can_be_undone(entry) && entry.prior_version == EVersion::default();
            match kept {
                _ if entry.op == LogOp::Error => {}
                Some(kept) if self.put_back(cx, txn, &entry.object, &kept) => {
                    back.insert(entry.object.clone(), entry.prior_version);
                }
                None if is_made => {
                    txn.remove(&entry.object);
                    back.insert(entry.object.clone(), EVersion::default());
                }
                Some(_) | None => drop(broken.insert(entry.object.clone())),
            }
        }
        back.retain(|object, _| !broken.contains(object) && !self.missing.contains_key(object));
        back
    }

    /// Finds what waits beside objects, after a restart.
    pub(super) fn load_undo(&mut self, disk: &mut dyn Disk) {
        if !self.is_coded() {
            return;
        }
        let kept = self.log.iter().filter(can_be_undone).map(|e| (e.version, undo::of(&e.object, e.version.version)));
        self.undo = kept.filter(|(_, kept)| disk.stat(self.coll, kept).is_ok()).collect();
    }

    /// What waits beside objects that are another PG's now is its.
    pub(super) fn part_undo(&mut self, is_theirs: impl Fn(&HObject) -> bool) -> VecDeque<(EVersion, HObject)> {
        let (theirs, ours) = std::mem::take(&mut self.undo).into_iter().partition(|(_, kept)| is_theirs(kept));
        self.undo = ours;
        theirs
    }
}

/// What the store shares without copying, around ranges.
fn whole_blocks(parts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let around = |(off, len): (u64, u64)| (off / BLOCK * BLOCK, (off + len).next_multiple_of(BLOCK) - off / BLOCK * BLOCK);
    parts.into_iter().map(around).collect()
}

/// Where parts are kept: one behind the other, for a small object costs the store less than a long one with holes. Of each: its place there, from
/// where it is, and how much.
fn packed(parts: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
    parts.iter().scan(0, |end, (off, len)| {
        let at = *end;
        *end += len;
        Some((at, *off, *len))
    })
}

/// True for a write to an object that was there before.
fn changes_what_was(entry: &PgLogEntry) -> bool {
    can_be_undone(entry) && entry.prior_version != EVersion::default()
}

/// True for a write whose object was as the log says before.
fn can_be_undone(entry: &PgLogEntry) -> bool {
    matches!(entry.op, LogOp::Modify | LogOp::Delete | LogOp::Clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Epoch;

    const PG: HashRange = HashRange { seed: 1, bits: 1 };

    fn info(shard: Option<u8>, whole: bool, version: u64) -> PeerInfo {
        let last_backfill = if whole { HObject::max() } else { HObject::min() };
        PeerInfo { exists: true, shards: shard.map(Shards::all).unwrap_or_default(), last_backfill, last_update: EVersion { epoch: Epoch(1), version }, ..PeerInfo::default() }
    }

    fn osds(list: &[i32]) -> Vec<OsdId> {
        list.iter().map(|o| OsdId(*o)).collect()
    }

    fn given(acting: &[i32], up: &[i32], infos: &[(i32, PeerInfo)]) -> Vec<(i32, u8)> {
        let infos = infos.iter().cloned().map(|(osd, i)| (OsdId(osd), i)).collect();
        assign(3, PG, &osds(acting), &osds(up), &infos).into_iter().map(|(osd, shards)| (osd.0, shards.only().unwrap())).collect()
    }

    #[test]
    fn new_copies_get_the_shards_that_are_free() {
        assert_eq!(given(&[4, 7, 5], &[4, 7, 5], &[]), [(4, 0), (5, 1), (7, 2)]);
        assert_eq!(given(&[4, 7, 5], &[4, 7, 5], &[(7, info(Some(0), true, 3))]), [(4, 1), (5, 2), (7, 0)]);
    }

    #[test]
    fn whoever_takes_anothers_place_gets_its_shard() {
        let held = [(0, info(Some(0), true, 9)), (1, info(Some(1), true, 9)), (2, info(Some(2), true, 9))];
        assert_eq!(given(&[0, 1, 2], &[5, 1, 2], &held), [(0, 0), (1, 1), (2, 2), (5, 0)]);
        // Places change without anything being moved.
        assert_eq!(given(&[2, 0, 1], &[2, 0, 1], &held), [(0, 0), (1, 1), (2, 2)]);
    }

    #[test]
    fn of_two_with_the_same_shard_the_better_one_keeps_it() {
        let held = [(0, info(Some(0), true, 9)), (1, info(Some(1), true, 9)), (2, info(Some(0), false, 4))];
        assert_eq!(given(&[0, 1], &[0, 1, 2], &held), [(0, 0), (1, 1), (2, 2)]);
    }

    #[test]
    fn of_what_was_merged_every_part_is_given_by_itself() {
        let (low, high) = (HashRange::new(1, 2), HashRange::new(3, 2));
        let both = |a, b| PeerInfo { shards: Shards::of_pg(PG, [(low, a), (high, b)]), ..info(None, true, 9) };
        let held: BTreeMap<OsdId, PeerInfo> = [(0, both(0, 1)), (1, both(1, 0)), (2, both(2, 2))].map(|(osd, i)| (OsdId(osd), i)).into();
        let kept = assign(3, PG, &osds(&[2, 0, 1]), &osds(&[2, 0, 1]), &held);
        assert!(held.iter().all(|(osd, info)| kept[osd] == info.shards), "{kept:?}");
        // Another OSD takes one's place, and what that was in each part.
        let given = assign(3, PG, &osds(&[1, 2]), &osds(&[7, 1, 2]), &held);
        assert_eq!(given[&OsdId(7)], held[&OsdId(0)].shards);
        assert_eq!(given[&OsdId(1)], held[&OsdId(1)].shards);
    }
}
