//! Clones without an object that knows them, and objects whose clones are not there.
//!
//! Holds: a part that is compared has all clones of its objects. What is wrong here no copy can mend: it is told, not repaired.
//! Upstream: PrimaryLogPG::scrub_snapshot_metadata; inconsistent_snapset_t (src/include/rados/rados_types.hpp).

use crate::object::{INFO_ATTR, ObjectInfo, SNAPSET_ATTR};
use crate::snaps::are_of_one;
use bytes::Bytes;
use denc::Encoder;
use types::msg::internal_osd::ScrubObject;
use types::pg::SnapSet;
use types::{HObject, Snap};

/// `inconsistent_snapset_t`
mod error {
    pub const SNAPSET_CORRUPTED: u64 = 1 << 1;
    pub const CLONE_MISSING: u64 = 1 << 2;
    pub const SNAP_ERROR: u64 = 1 << 3;
    pub const HEADLESS_CLONE: u64 = 1 << 5;
    pub const SIZE_MISMATCH: u64 = 1 << 6;
    pub const EXTRA_CLONES: u64 = 1 << 9;
}

/// An object whose clones and what is known of them do not agree.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::pg) struct BadSnapSet {
    /// The live object.
    pub object: HObject,
    pub errors: u64,
    /// Clones that are there and not known, and known ones that are not there.
    pub extra: Vec<Snap>,
    pub missing: Vec<Snap>,
    /// What is stored.
    raw: Bytes,
}

impl BadSnapSet {
    /// What is wrong, in words.
    pub fn line(&self) -> String {
        let words = [
            (error::SNAPSET_CORRUPTED, "its snapset says nothing"),
            (error::CLONE_MISSING, "clones are missing"),
            (error::SNAP_ERROR, "clones are of other snapshots than it says"),
            (error::HEADLESS_CLONE, "clones are without their object"),
            (error::SIZE_MISMATCH, "clones are not as long as it says"),
            (error::EXTRA_CLONES, "there are clones it does not know"),
        ];
        let what: Vec<&str> = words.iter().filter(|(bit, _)| self.errors & bit != 0).map(|(_, text)| *text).collect();
        format!("{}: {}", self.object, what.join(", "))
    }

    /// As `rados list-inconsistent-snapset` reads it.
    pub fn encode(&self) -> Bytes {
        let mut e = Encoder::new(types::features::SUPPORTED);
        e.envelope(2, 1, |e| {
            e.put(&self.errors);
            e.envelope(1, 1, |e| {
                let o = &self.object;
                e.put(&o.name).put(&o.nspace).put(&o.key).put(&o.snap);
            });
            e.put(&self.extra).put(&self.missing).put(&self.raw);
        });
        e.finish()
    }
}

/// Looks at a part of a copy, in order.
pub(in crate::pg) fn check(objects: &[ScrubObject]) -> Vec<BadSnapSet> {
    objects.chunk_by(|a, b| are_of_one(&a.object, &b.object)).filter_map(check_one).collect()
}

fn attr<'a>(of: &'a ScrubObject, name: &[u8]) -> Option<&'a Bytes> {
    of.attrs.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
}

/// The clones of an object, and the object.
fn check_one(family: &[ScrubObject]) -> Option<BadSnapSet> {
    let (heads, clones): (Vec<&ScrubObject>, Vec<&ScrubObject>) = family.iter().partition(|o| o.object.snap == Snap::HEAD);
    let head = heads.first();
    let raw = head.and_then(|head| attr(head, SNAPSET_ATTR));
    let set = raw.map(|raw| denc::from_bytes::<SnapSet>(raw).ok());
    let object = HObject { snap: Snap::HEAD, ..family.first()?.object.clone() };
    let mut bad = BadSnapSet { object, errors: 0, extra: Vec::new(), missing: Vec::new(), raw: raw.cloned().unwrap_or_default() };
    let set = match (head, set) {
        (_, Some(Some(set))) => set,
        (_, Some(None)) => {
            bad.errors |= error::SNAPSET_CORRUPTED;
            return Some(bad);
        }
        (_, None) => SnapSet::default(),
    };
    let there = |clone: &Snap| clones.iter().any(|c| c.object.snap == *clone);
    bad.missing = set.clones.iter().copied().filter(|clone| !there(clone)).collect();
    bad.extra = clones.iter().map(|c| c.object.snap).filter(|clone| !set.clones.contains(clone)).collect();
    for clone in clones.iter().filter(|c| set.clones.contains(&c.object.snap)) {
        let snap = clone.object.snap;
        let info = attr(clone, INFO_ATTR).and_then(|raw| denc::from_bytes::<ObjectInfo>(raw).ok());
        // What is stored of it is compared with that elsewhere: it may be a shard.
        let size = info.as_ref().map_or(clone.size, |info| info.size);
        let snaps_differ = info.is_some_and(|info| info.snaps != set.snaps_of(snap));
        bad.errors |= if snaps_differ { error::SNAP_ERROR } else { 0 };
        bad.errors |= if set.clone_size.get(&snap) != Some(&size) { error::SIZE_MISMATCH } else { 0 };
    }
    bad.errors |= if bad.missing.is_empty() { 0 } else { error::CLONE_MISSING };
    bad.errors |= match (bad.extra.is_empty(), head) {
        (true, _) => 0,
        (false, Some(_)) => error::EXTRA_CLONES,
        (false, None) => error::HEADLESS_CLONE,
    };
    (bad.errors != 0).then_some(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Object `o` at these clones, each 3 bytes long and of its own snapshot.
    fn family(clones: &[u64], set: Option<SnapSet>) -> Vec<ScrubObject> {
        let named = |snap| HObject { name: "o".into(), snap, ..HObject::min() };
        let info = |snaps| denc::to_bytes(&ObjectInfo { size: 3, snaps, ..ObjectInfo::default() }, 0);
        let clone = |id: &u64| ScrubObject {
            object: named(Snap(*id)),
            size: 3,
            attrs: vec![(INFO_ATTR.into(), info(vec![Snap(*id)]))],
            ..ScrubObject::default()
        };
        let head = set.map(|set| ScrubObject {
            object: named(Snap::HEAD),
            attrs: vec![(SNAPSET_ATTR.into(), denc::to_bytes(&set, 0))],
            ..ScrubObject::default()
        });
        clones.iter().map(clone).chain(head).collect()
    }

    fn knows(clones: &[u64]) -> Option<SnapSet> {
        let mut set = SnapSet { seq: Snap(9), ..SnapSet::default() };
        for clone in clones.iter().copied().map(Snap) {
            set.clones.push(clone);
            set.clone_size.insert(clone, 3);
            set.clone_snaps.insert(clone, vec![clone]);
        }
        Some(set)
    }

    #[test]
    fn an_object_and_its_clones_have_to_know_each_other() {
        let errors = |clones: &[u64], set| check(&family(clones, set)).first().map_or(0, |bad| bad.errors);
        assert_eq!(errors(&[2, 4], knows(&[2, 4])), 0);
        assert_eq!(errors(&[], knows(&[])), 0);
        assert_eq!(errors(&[2], knows(&[2, 4])), error::CLONE_MISSING);
        assert_eq!(errors(&[2, 4], knows(&[4])), error::EXTRA_CLONES);
        assert_eq!(errors(&[2, 4], None), error::HEADLESS_CLONE);
        let mut other = knows(&[2]);
        other.iter_mut().for_each(|set| drop(set.clone_snaps.insert(Snap(2), vec![Snap(1)])));
        assert_eq!(errors(&[2], other), error::SNAP_ERROR);
        let mut longer = knows(&[2]);
        longer.iter_mut().for_each(|set| set.clone_size = [(Snap(2), 4)].into());
        assert_eq!(errors(&[2], longer), error::SIZE_MISMATCH);
    }

    #[test]
    fn what_is_stored_of_each_object_is_looked_at_by_itself() {
        let mut all = family(&[2], knows(&[2]));
        let other = family(&[3], None);
        all.extend(other.into_iter().map(|o| ScrubObject { object: HObject { name: "p".into(), ..o.object }, ..o }));
        let bad = check(&all);
        assert_eq!((bad.len(), bad[0].extra.as_slice()), (1, [Snap(3)].as_slice()));
    }
}
