//! What is known of an object's clones: which snapshots each of them shows, and which of its bytes are still those of its
//! successor. Kept with the live object, in the attribute `snapset`, in stock's encoding.
//!
//! Upstream: SnapSet (src/osd/osd_types.h), doc/dev/osd_internals/snaps.rst.

use crate::Snap;
use crate::map::SnapIntervals;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;

/// The clones of an object (`SnapSet`). Holds: each clone has an overlap, a size and its snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapSet {
    /// The newest snapshot that a write of the object knew of: to later ones the live object stands as it is.
    pub seq: Snap,
    /// Obsolete; empty.
    pub snaps: Vec<Snap>,
    /// Ascending. A clone is called after the newest snapshot there was when it was made.
    pub clones: Vec<Snap>,
    /// Bytes of each clone that are the same in the next newer one, or in the live object: offset to length.
    pub clone_overlap: BTreeMap<Snap, SnapIntervals>,
    /// Bytes.
    pub clone_size: BTreeMap<Snap, u64>,
    /// The snapshots that show each clone, newest first.
    pub clone_snaps: BTreeMap<Snap, Vec<Snap>>,
}

impl Default for SnapSet {
    fn default() -> Self {
        SnapSet {
            seq: Snap(0),
            snaps: Vec::new(),
            clones: Vec::new(),
            clone_overlap: BTreeMap::new(),
            clone_size: BTreeMap::new(),
            clone_snaps: BTreeMap::new(),
        }
    }
}

/// What a snapshot shows of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenAt {
    /// The live object, if there is one.
    Head,
    /// This clone.
    Clone(Snap),
    /// There was no object then, or the snapshot is gone.
    Nothing,
}

impl SnapSet {
    /// What a snapshot shows.
    pub fn seen_at(&self, snap: Snap) -> SeenAt {
        if snap > self.seq {
            return SeenAt::Head;
        }
        match self.clones.iter().find(|clone| **clone >= snap) {
            Some(clone) if self.snaps_of(*clone).contains(&snap) => SeenAt::Clone(*clone),
            _ => SeenAt::Nothing,
        }
    }

    /// What a clone's own name stands for (`MAP_SNAP_CLONE`).
    pub fn named(&self, clone: Snap) -> SeenAt {
        match clone > self.seq {
            true => SeenAt::Head,
            false if self.clones.contains(&clone) => SeenAt::Clone(clone),
            false => SeenAt::Nothing,
        }
    }

    /// The snapshots that show a clone, newest first.
    pub fn snaps_of(&self, clone: Snap) -> &[Snap] {
        self.clone_snaps.get(&clone).map_or(&[], Vec::as_slice)
    }

    /// Bytes that a clone has for itself.
    pub fn clone_bytes(&self, clone: Snap) -> u64 {
        let size = self.clone_size.get(&clone).copied().unwrap_or(0);
        size.saturating_sub(self.clone_overlap.get(&clone).map_or(0, SnapIntervals::len))
    }

    /// Bytes that all clones have for themselves.
    pub fn all_clone_bytes(&self) -> u64 {
        self.clones.iter().map(|clone| self.clone_bytes(*clone)).sum()
    }

    /// Bytes of a clone that the live object still has.
    pub fn shared_with_head(&self, clone: Snap) -> SnapIntervals {
        let mut newer = self.clone_overlap.range(clone..).map(|(_, overlap)| overlap);
        let first = newer.next().cloned().unwrap_or_default();
        newer.fold(first, |shared, overlap| shared.intersection(overlap))
    }

    /// A clone is gone: what the one before it shared with it and with the next, it shares with the next.
    pub fn forget(&mut self, clone: Snap) {
        let gone = self.clone_overlap.remove(&clone).unwrap_or_default();
        if let Some((_, older)) = self.clone_overlap.range_mut(..clone).next_back() {
            *older = older.intersection(&gone);
        }
        self.clones.retain(|c| *c != clone);
        self.clone_size.remove(&clone);
        self.clone_snaps.remove(&clone);
    }
}

impl Encode for SnapSet {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(3, 2, |e| {
            // There is always a live object, be it one that says that there is none.
            e.put(&self.seq).put(&true).put(&self.snaps).put(&self.clones);
            e.put(&self.clone_overlap).put(&self.clone_size).put(&self.clone_snaps);
        });
    }
}

impl Decode for SnapSet {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("SnapSet", 3, |v, d| {
            let seq = d.get()?;
            let _head_exists: u8 = d.get()?;
            let (snaps, clones) = (d.get()?, d.get()?);
            let (clone_overlap, clone_size) = (d.get()?, d.get()?);
            let clone_snaps = if v >= 3 { d.get()? } else { BTreeMap::new() };
            Ok(SnapSet { seq, snaps, clones, clone_overlap, clone_size, clone_snaps })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(of: &[(u64, u64)]) -> SnapIntervals {
        let mut runs = SnapIntervals::default();
        of.iter().for_each(|(start, len)| runs.insert(*start, *len));
        runs
    }

    /// Clone 4 shows snapshots 2 and 4, clone 9 shows 7; 5 to 6 and 8 to 9 were removed, or there was nothing.
    fn sample() -> SnapSet {
        SnapSet {
            seq: Snap(9),
            clones: vec![Snap(4), Snap(9)],
            clone_overlap: [(Snap(4), runs(&[(0, 6)])), (Snap(9), runs(&[(4, 8)]))].into(),
            clone_size: [(Snap(4), 10), (Snap(9), 12)].into(),
            clone_snaps: [(Snap(4), vec![Snap(4), Snap(2)]), (Snap(9), vec![Snap(7)])].into(),
            ..SnapSet::default()
        }
    }

    #[test]
    fn a_snapshot_shows_the_clone_that_was_made_after_it() {
        let set = sample();
        let seen: Vec<SeenAt> = (1..=10).map(|snap| set.seen_at(Snap(snap))).collect();
        use SeenAt::{Clone, Head, Nothing};
        let (four, nine) = (Clone(Snap(4)), Clone(Snap(9)));
        assert_eq!(seen, [Nothing, four, Nothing, four, Nothing, Nothing, nine, Nothing, Nothing, Head]);
        assert_eq!((set.named(Snap(9)), set.named(Snap(7)), set.named(Snap(10))), (nine, Nothing, Head));
    }

    #[test]
    fn bytes_are_counted_where_they_differ_from_what_is_newer() {
        let mut set = sample();
        assert_eq!((set.clone_bytes(Snap(4)), set.clone_bytes(Snap(9)), set.all_clone_bytes()), (4, 4, 8));
        assert_eq!(set.shared_with_head(Snap(4)), runs(&[(4, 2)]));
        set.forget(Snap(9));
        assert_eq!((set.clones.as_slice(), set.clone_bytes(Snap(4))), ([Snap(4)].as_slice(), 8));
        set.forget(Snap(4));
        assert_eq!(set, SnapSet { seq: Snap(9), ..SnapSet::default() });
    }

    #[test]
    fn it_reads_back() {
        let set = sample();
        assert_eq!(denc::from_bytes::<SnapSet>(&denc::to_bytes(&set, 0)).unwrap(), set);
    }
}
