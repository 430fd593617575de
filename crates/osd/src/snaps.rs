//! Snapshots of an object: when a write has to leave a clone behind, what is then known of the clones, and the index by which
//! a removed snapshot finds those it showed.
//!
//! Room: osd core; pure.
//! Holds: an object whose clones are not all gone has a live object, if only one that says that there is none (a whiteout): it
//! keeps the `SnapSet`. Whatever changes a clone changes that, and the index, in the same transaction.
//! The index: a row `s`, snapshot, clone in the PG's collection. There may be rows too many, of clones that are gone or that
//! the PG gave away: who follows one looks at the clone.
//! Upstream: PrimaryLogPG::make_writeable, _delete_oid, filter_snapc; SnapMapper.

use crate::mutation::{Mutation, Step};
use crate::object::{ObjectInfo, SNAPSET_ATTR};
use crate::ops::Plan;
use bytes::Bytes;
use denc::BString;
use store::{Op, Transaction};
use types::map::{PgPool, SnapIntervals};
use types::pg::{SeenAt, SnapSet};
use types::{HObject, Snap};

/// First byte of an index row's key.
pub(crate) const INDEX_ROW: u8 = b's';
/// The largest id a snapshot may have (`CEPH_MAXSNAP`).
const SNAP_MAX: Snap = Snap(u64::MAX - 2);

/// The snapshots a write is to be kept from, as whoever sent it, or the pool, says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapContext {
    pub seq: Snap,
    /// Newest first.
    pub snaps: Vec<Snap>,
}

impl Default for SnapContext {
    fn default() -> Self {
        SnapContext { seq: Snap(0), snaps: Vec::new() }
    }
}

impl SnapContext {
    /// That of a pool whose snapshots are the operator's.
    pub fn of_pool(pool: &PgPool) -> Self {
        SnapContext { seq: pool.snap_seq, snaps: pool.snaps.keys().rev().copied().collect() }
    }

    /// A client's, without what was removed meanwhile.
    pub fn of_client(seq: Snap, snaps: &[Snap], removed: &SnapIntervals) -> Self {
        SnapContext { seq, snaps: snaps.iter().copied().filter(|s| !removed.contains(s.0)).collect() }
    }

    /// True if it can be: ids fall, and none is newer than `seq`.
    pub fn is_valid(&self) -> bool {
        let falls = self.snaps.windows(2).all(|pair| pair[0] > pair[1] && pair[1] > Snap(0));
        self.seq <= SNAP_MAX && self.snaps.first().is_none_or(|newest| *newest <= self.seq) && falls
    }
}

/// What is known of an object's snapshots while a message runs.
#[derive(Debug, Clone, Default)]
pub struct Snaps {
    pub set: SnapSet,
    /// Snapshots that are removed, and still being trimmed.
    pub removed: SnapIntervals,
}

impl Snaps {
    /// What a snapshot shows.
    pub fn seen_at(&self, snap: Snap) -> SeenAt {
        match self.set.seen_at(snap) {
            SeenAt::Clone(_) if self.removed.contains(snap.0) => SeenAt::Nothing,
            seen => seen,
        }
    }
}

/// What a write does for snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Preserved {
    /// A clone is made first, which these snapshots show, newest first.
    pub clone: Option<(Snap, Vec<Snap>)>,
    /// To be stored with the object.
    pub set: Option<SnapSet>,
    /// The object goes, and its clones stay.
    pub whiteout: bool,
    /// Clones more.
    pub clones: i64,
}

/// Decides what a planned write does for snapshots. `before` is what is stored of the object, a whiteout included. What the
/// plan says of totals then counts clones and whiteouts, too.
pub(crate) fn preserve(old: &SnapSet, context: &SnapContext, before: Option<&ObjectInfo>, plan: &mut Plan) -> Preserved {
    let mut set = old.clone();
    let live = before.filter(|info| !info.is_whiteout());
    let size = live.map_or(0, |info| info.size);
    let newest = context.snaps.first().filter(|newest| **newest > set.seq);
    let clone = live.and(newest).map(|_| {
        let snaps: Vec<Snap> = context.snaps.iter().copied().take_while(|snap| *snap > set.seq).collect();
        (context.seq, snaps)
    });
    if let Some((id, snaps)) = &clone {
        let mut all = SnapIntervals::default();
        all.insert(0, size);
        set.clones.push(*id);
        set.clone_overlap.insert(*id, all);
        set.clone_size.insert(*id, size);
        set.clone_snaps.insert(*id, snaps.clone());
    }
    if let Some(shared) = set.clones.last().copied().and_then(|newest| set.clone_overlap.get_mut(&newest)) {
        let before = shared.len();
        shared.subtract(&modified(old, size, &plan.mutation));
        plan.delta.bytes += (before - shared.len()) as i64;
    }
    set.seq = set.seq.max(context.seq);
    let whiteout = !plan.exists && !set.clones.is_empty();
    let clones = i64::from(clone.is_some());
    plan.delta.objects = i64::from(plan.exists || whiteout) - i64::from(before.is_some()) + clones;
    let replaced = |step: &Step| matches!(step, Step::Remove | Step::BecomeClone { .. });
    let lost = before.is_none() || plan.mutation.steps.iter().any(replaced);
    let stored = (plan.exists || whiteout) && (set != *old || lost && set != SnapSet::default());
    Preserved { clone, set: stored.then_some(set), whiteout, clones }
}

/// Bytes of an object, `size` bytes long, that a write changes.
fn modified(set: &SnapSet, size: u64, mutation: &Mutation) -> SnapIntervals {
    let (mut changed, mut end) = (SnapIntervals::default(), size);
    for step in &mutation.steps {
        match step {
            Step::Write { off, data } => {
                changed.insert(*off, data.len() as u64);
                end = end.max(off + data.len() as u64);
            }
            Step::Zero { off, len } => {
                changed.insert(*off, *len);
                end = end.max(off + len);
            }
            Step::Truncate { size } => {
                changed.insert(*size, end.saturating_sub(*size));
                end = *size;
            }
            Step::Remove => {
                changed.insert(0, end);
                end = 0;
            }
            Step::BecomeClone { clone } => {
                let becomes = set.clone_size.get(clone).copied().unwrap_or(0);
                let mut differs = SnapIntervals::default();
                differs.insert(0, end.max(size).max(becomes));
                differs.subtract(&set.shared_with_head(*clone));
                changed.union(&differs);
                end = becomes;
            }
            _ => {}
        }
    }
    changed
}

impl Preserved {
    /// Puts what is to be stored of the clones behind a write's own steps.
    pub fn store_set(&self, mutation: &mut Mutation) {
        if let Some(set) = &self.set {
            mutation.push(Step::SetAttr { name: SNAPSET_ATTR.into(), value: denc::to_bytes(set, 0) });
        }
    }
}

/// The key of the row that says that a snapshot shows a clone.
pub(crate) fn index_key(snap: Snap, clone: &HObject) -> BString {
    [&index_start(snap)[..], &denc::to_bytes(clone, 0)].concat().into()
}

/// Where a snapshot's rows begin.
pub(crate) fn index_start(snap: Snap) -> Vec<u8> {
    [&[INDEX_ROW][..], &snap.0.to_be_bytes()].concat()
}

/// The snapshot and the clone that a row is about.
pub(crate) fn indexed(key: &[u8]) -> Option<(Snap, HObject)> {
    let (snap, clone) = key.strip_prefix(&[INDEX_ROW])?.split_first_chunk::<8>()?;
    Some((Snap(u64::from_be_bytes(*snap)), denc::from_slice(clone).ok()?))
}

/// Snapshots show a clone from now on.
pub(crate) fn index(txn: &mut Transaction, clone: &HObject, snaps: &[Snap]) {
    if !snaps.is_empty() {
        txn.ops.push(Op::CollSet { pairs: snaps.iter().map(|snap| (index_key(*snap, clone), Bytes::new())).collect() });
    }
}

/// Snapshots do not show a clone any more.
pub(crate) fn unindex(txn: &mut Transaction, clone: &HObject, snaps: &[Snap]) {
    if !snaps.is_empty() {
        txn.ops.push(Op::CollRm { keys: snaps.iter().map(|snap| index_key(*snap, clone)).collect() });
    }
}

/// Takes an object that came whole from elsewhere into the index, if it is a clone.
pub(crate) fn index_arrived(txn: &mut Transaction, object: &HObject, info: &ObjectInfo) {
    if object.snap < Snap::HEAD {
        index(txn, object, &info.snaps);
    }
}

/// True for names of the same object: the live one and its clones.
pub(crate) fn are_of_one(a: &HObject, b: &HObject) -> bool {
    (a.pool, a.hash, a.max) == (b.pool, b.hash, b.max) && a.name == b.name && a.nspace == b.nspace && a.key == b.key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Delta;
    use types::msg::BufList;

    fn context(seq: u64, snaps: &[u64]) -> SnapContext {
        SnapContext { seq: Snap(seq), snaps: snaps.iter().copied().map(Snap).collect() }
    }

    /// A write of 4 bytes at 2 to an object of 10, or its removal.
    fn plan(exists: bool) -> Plan {
        let data = BufList::from(Bytes::from_static(b"data"));
        let step = if exists { Step::Write { off: 2, data } } else { Step::Remove };
        Plan {
            result: 0,
            results: Vec::new(),
            mutation: Mutation { steps: vec![step] },
            info: ObjectInfo { size: 10, ..ObjectInfo::default() },
            exists,
            delta: Delta { objects: i64::from(exists) - 1, bytes: if exists { 0 } else { -10 } },
            user_modify: true,
            copied_version: None,
            watch: Vec::new(),
            bytes_read: 0,
            bytes_written: 4,
        }
    }

    #[test]
    fn a_context_is_valid_if_ids_fall_from_its_seq() {
        assert!(context(0, &[]).is_valid() && context(5, &[5, 3, 1]).is_valid() && context(7, &[5]).is_valid());
        assert!(!context(4, &[5]).is_valid() && !context(5, &[3, 3]).is_valid() && !context(5, &[3, 4]).is_valid());
        assert!(!context(5, &[3, 0]).is_valid() && !context(u64::MAX - 1, &[]).is_valid());
    }

    #[test]
    fn the_first_write_after_a_snapshot_leaves_a_clone() {
        let before = ObjectInfo { size: 10, ..ObjectInfo::default() };
        let mut first = plan(true);
        let kept = preserve(&SnapSet::default(), &context(3, &[3, 2]), Some(&before), &mut first);
        assert_eq!(kept.clone, Some((Snap(3), vec![Snap(3), Snap(2)])));
        assert_eq!((first.delta, kept.clones, kept.whiteout), (Delta { objects: 1, bytes: 4 }, 1, false));
        let set = kept.set.unwrap();
        assert_eq!((set.seq, set.clone_bytes(Snap(3))), (Snap(3), 4));
        let mut second = plan(true);
        let kept = preserve(&set, &context(3, &[3, 2]), Some(&before), &mut second);
        assert_eq!((kept.clone, kept.set, second.delta), (None, None, Delta { objects: 0, bytes: 0 }));
        let mut old = plan(true);
        assert_eq!(preserve(&set, &context(1, &[1]), Some(&before), &mut old).clone, None, "an old context makes none");
    }

    #[test]
    fn a_removed_object_with_clones_leaves_a_whiteout() {
        let before = ObjectInfo { size: 10, ..ObjectInfo::default() };
        let mut removal = plan(false);
        let kept = preserve(&SnapSet::default(), &context(3, &[3]), Some(&before), &mut removal);
        assert!(kept.whiteout && kept.clone.is_some() && kept.set.is_some());
        assert_eq!(removal.delta, Delta { objects: 1, bytes: 0 });
        let mut removal = plan(false);
        let kept = preserve(&SnapSet::default(), &context(3, &[]), Some(&before), &mut removal);
        assert_eq!((kept.whiteout, kept.set, removal.delta), (false, None, Delta { objects: -1, bytes: -10 }));
    }

    #[test]
    fn an_object_made_after_a_snapshot_is_not_seen_there() {
        let mut made = plan(true);
        made.delta = Delta { objects: 1, bytes: 10 };
        let kept = preserve(&SnapSet::default(), &context(3, &[3]), None, &mut made);
        let set = kept.set.unwrap();
        assert_eq!((kept.clone, set.seen_at(Snap(3)), set.seen_at(Snap(4))), (None, SeenAt::Nothing, SeenAt::Head));
        let whiteout = ObjectInfo { flags: ObjectInfo::WHITEOUT, ..ObjectInfo::default() };
        preserve(&set, &context(4, &[4, 3]), Some(&whiteout), &mut made);
        assert_eq!(made.delta.objects, 0, "there was an entry before");
    }

    #[test]
    fn rows_of_the_index_read_back_and_sort_by_snapshot() {
        let clone = HObject { name: "o".into(), snap: Snap(7), ..HObject::min() };
        assert_eq!(indexed(&index_key(Snap(5), &clone)), Some((Snap(5), clone.clone())));
        assert!(index_key(Snap(255), &clone) < index_key(Snap(256), &clone));
        assert_eq!(indexed(b"i"), None);
    }
}
