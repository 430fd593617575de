//! Which shard a copy of a PG has of each object of an erasure-coded pool.
//!
//! It is one shard for all of them, until PGs are merged whose copies on the same OSD are different shards: from then on it goes by the object's
//! hash, that is by the PG it once was in.
//! Holds: parts are disjoint. Of two tables that say the same of every hash of a PG, both are equal once they are `within` it.

use denc::{Decode, Encode};

/// Objects whose hash ends in the low `bits` bits of `seed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct HashRange {
    pub seed: u32,
    /// From 0, all objects, to 32.
    pub bits: u8,
}

impl HashRange {
    pub const ALL: HashRange = HashRange { seed: 0, bits: 0 };

    /// As PGs have them.
    pub fn new(seed: u32, bits: u32) -> HashRange {
        HashRange { seed, bits: bits.min(32) as u8 }
    }

    fn mask(self) -> u32 {
        1u32.checked_shl(self.bits.into()).map_or(u32::MAX, |end| end - 1)
    }

    /// True if an object with this hash is in it.
    pub fn contains(self, hash: u32) -> bool {
        (hash ^ self.seed) & self.mask() == 0
    }

    /// True if everything of the other range is in this one, and more.
    fn is_wider_than(self, other: HashRange) -> bool {
        self.bits < other.bits && self.contains(other.seed)
    }

    /// What is in both: one of the two, or nothing.
    pub fn common(self, other: HashRange) -> Option<HashRange> {
        let (wide, narrow) = if self.bits <= other.bits { (self, other) } else { (other, self) };
        wide.contains(narrow.seed).then_some(narrow)
    }

    /// The range that has one bit less.
    fn parent(self) -> HashRange {
        let wide = HashRange { bits: self.bits.saturating_sub(1), ..self };
        HashRange { seed: self.seed & wide.mask(), ..wide }
    }

    /// The other half of its parent.
    fn sibling(self) -> Option<HashRange> {
        self.parent().halves()?.into_iter().find(|half| *half != self)
    }

    fn halves(self) -> Option<[HashRange; 2]> {
        let high = 1u32.checked_shl(self.bits.into())?;
        let bits = self.bits + 1;
        Some([HashRange { bits, ..self }, HashRange { seed: self.seed | high, bits }])
    }

    /// This range in pieces of which each is in no more than one part of each table.
    pub fn pieces(self, tables: &[&Shards]) -> Vec<HashRange> {
        let mut pieces = Vec::new();
        let mut todo = vec![self];
        while let Some(piece) = todo.pop() {
            let is_parted = tables.iter().flat_map(|t| &t.0).any(|(part, _)| piece.is_wider_than(*part));
            match piece.halves().filter(|_| is_parted) {
                Some(halves) => todo.extend(halves),
                None => pieces.push(piece),
            }
        }
        pieces
    }
}

/// Smallest ranges first.
fn order((range, _): &(HashRange, u8)) -> (std::cmp::Reverse<u8>, u32) {
    (std::cmp::Reverse(range.bits), range.seed)
}

/// Which shard a copy has of which objects.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Shards(Vec<(HashRange, u8)>);

impl Shards {
    /// The same of every object.
    pub fn all(shard: u8) -> Shards {
        Shards(vec![(HashRange::ALL, shard)])
    }

    /// What is said of a PG, put together from what is said of ranges. Where these overlap the first counts.
    pub fn of_pg(pg: HashRange, said: impl IntoIterator<Item = (HashRange, u8)>) -> Shards {
        let mut parts: Vec<(HashRange, u8)> = Vec::new();
        for (range, shard) in said {
            let Some(range) = range.common(pg).filter(|range| range.bits <= 32) else { continue };
            if parts.iter().all(|(part, _)| part.common(range).is_none()) {
                parts.push((range, shard));
            }
        }
        // Halves of the same shard are one, from the smallest on.
        parts.sort_by_key(order);
        let mut at = 0;
        while let Some((range, shard)) = parts.get(at).copied() {
            let sibling = range.sibling().filter(|_| range.bits > pg.bits);
            match sibling.and_then(|sibling| parts.iter().position(|part| *part == (sibling, shard))) {
                Some(sibling) => {
                    // It is further on, where its own turn is still to come.
                    parts.remove(sibling);
                    parts.remove(at);
                    let whole = (range.parent(), shard);
                    parts.insert(parts.partition_point(|part| order(part) < order(&whole)), whole);
                }
                None => at += 1,
            }
        }
        match parts[..] {
            [(range, shard)] if range.bits <= pg.bits => Shards::all(shard),
            _ => Shards(parts),
        }
    }

    /// What it says of the objects of a PG.
    pub fn within(&self, pg: HashRange) -> Shards {
        Shards::of_pg(pg, self.parts())
    }

    /// True if both say the same of the objects of a PG.
    pub fn is_same_of(&self, pg: HashRange, other: &Shards) -> bool {
        self.within(pg) == other.within(pg)
    }

    /// What it says.
    pub fn parts(&self) -> impl Iterator<Item = (HashRange, u8)> + '_ {
        self.0.iter().copied()
    }

    /// True if no shard was given to the copy, or whole objects are in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The shard of objects with this hash.
    pub fn of(&self, hash: u32) -> Option<u8> {
        self.0.iter().find(|(part, _)| part.contains(hash)).map(|(_, shard)| *shard)
    }

    /// The one shard of every object.
    pub fn only(&self) -> Option<u8> {
        match self.0[..] {
            [(HashRange::ALL, shard)] => Some(shard),
            _ => None,
        }
    }

    /// True if of some object both are the same shard.
    pub fn clash(&self, other: &Shards) -> bool {
        self.parts().any(|(part, shard)| other.parts().any(|(range, theirs)| shard == theirs && part.common(range).is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(seed: u32, bits: u32) -> HashRange {
        HashRange::new(seed, bits)
    }

    #[test]
    fn what_was_merged_says_of_each_object_what_was_said_of_it_before() {
        let (pg, low, high) = (range(1, 1), range(1, 2), range(3, 2));
        let merged = Shards::of_pg(pg, [(low, 0), (high, 2)]);
        assert_eq!([1, 3, 5, 7, 2].map(|hash| merged.of(hash)), [Some(0), Some(2), Some(0), Some(2), None]);
        assert_eq!((merged.only(), merged.within(low), merged.within(high)), (None, Shards::all(0), Shards::all(2)));
        let same = Shards::of_pg(pg, [(low, 1), (high, 1)]);
        assert_eq!(same, Shards::all(1));
    }

    #[test]
    fn tables_that_say_the_same_are_equal() {
        let pg = range(0, 1);
        let quarters = [(range(0, 3), 1), (range(4, 3), 1), (range(2, 3), 0), (range(6, 3), 1)];
        let tables: Vec<Shards> = (0..4).map(|turn| Shards::of_pg(pg, quarters.iter().cycle().skip(turn).take(4).copied())).collect();
        assert!(tables.iter().all(|t| *t == tables[0]), "{tables:?}");
        assert_eq!(tables[0].parts().count(), 3);
        assert!(Shards::all(1).is_same_of(range(0, 3), &tables[0]) && !Shards::all(1).is_same_of(range(0, 2), &Shards::all(0)));
        let finer = tables[0].parts().flat_map(|(part, shard)| part.halves().unwrap().map(|half| (half, shard)));
        assert_eq!(Shards::of_pg(pg, finer), tables[0]);
    }

    #[test]
    fn half_of_a_pg_is_not_all_of_it() {
        let half = Shards::of_pg(range(0, 0), [(range(1, 1), 2)]);
        assert_eq!((half.of(0), half.of(1), half.only()), (None, Some(2), None));
        assert_eq!(half.within(range(1, 1)), Shards::all(2));
        assert!(half.within(range(0, 1)).is_empty());
    }

    #[test]
    fn copies_clash_where_both_are_the_same_shard() {
        let one = Shards::of_pg(range(0, 0), [(range(0, 1), 0), (range(1, 1), 1)]);
        let other = Shards::of_pg(range(0, 0), [(range(0, 1), 1), (range(1, 1), 0)]);
        assert!(!one.clash(&other) && one.clash(&Shards::all(0)) && one.clash(&one) && !one.clash(&Shards::all(2)));
        assert!(!one.clash(&Shards::default()));
    }

    #[test]
    fn pieces_are_in_one_part_of_each_table_and_make_the_whole() {
        let pg = range(2, 2);
        let one = Shards::of_pg(pg, [(range(2, 3), 0), (range(6, 3), 1)]);
        let other = Shards::of_pg(pg, [(range(2, 3), 0), (range(6, 4), 1), (range(14, 4), 2)]);
        let pieces = pg.pieces(&[&one, &other, &Shards::all(1)]);
        assert_eq!(pieces.len(), 3);
        for hash in (0..1000u32).map(|n| n.wrapping_mul(2_654_435_761)) {
            assert_eq!(pieces.iter().filter(|p| p.contains(hash)).count(), usize::from(pg.contains(hash)));
        }
    }

    #[test]
    fn a_strangers_table_harms_nothing() {
        let odd = Shards(vec![(HashRange { seed: u32::MAX, bits: 255 }, 9), (HashRange { seed: 5, bits: 32 }, 200), (HashRange { seed: 9, bits: 0 }, 1)]);
        assert_eq!(odd.of(5), Some(200));
        assert!(HashRange::ALL.pieces(&[&odd]).len() < 100);
        odd.within(range(1, 1)).within(range(1, 32));
        Shards::of_pg(range(0, 0), odd.parts());
    }
}
