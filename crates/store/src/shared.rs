//! How many objects refer to each block beyond the first. In memory only: mount counts what onodes refer to.
//!
//! Holds: for each region (32 MiB) with such blocks the count of each in binary, digit by digit: a bit map for a digit that some blocks have and some have not,
//! nothing for one that none or all have. So a terabyte of which everything is shared by two takes next to nothing, 32 MB if such blocks lie among
//! others, and 32 MB more each time the most that a block is shared by doubles. Counts are changed sixty-four at a time, as an adder does.
//! Why not a map by block: snapshots of 100 GB took a gigabyte of memory.

use crate::bits::{Bits, Words};
use crate::store::ById;

const REGION: u64 = 8192;
const WORDS: usize = REGION as usize / 64;

/// A digit of the counts of a region's blocks.
type Digit = Bits<WORDS>;

#[derive(Default)]
pub(crate) struct Shared {
    /// Digits by region, the least first; the last one is not clear.
    regions: ById<Vec<Digit>>,
}

impl Shared {
    /// True if no block is shared.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// True if several objects refer to a block.
    pub fn contains(&self, block: u64) -> bool {
        let (region, at, bit) = place(block);
        self.regions.get(&region).is_some_and(|digits| digits.iter().any(|digit| digit.word(at) & bit != 0))
    }

    /// One object more refers to each of `count` blocks from `first` on.
    pub fn add(&mut self, first: u64, count: u64) {
        let (mut block, end) = (first, first + count);
        while block < end {
            let (region, at, bit) = place(block);
            let here = (64 - block % 64).min(end - block);
            let ones = u64::MAX >> (64 - here);
            let digits = self.regions.entry(region).or_default();
            let mut carry = ones << bit.trailing_zeros();
            for digit in digits.iter_mut() {
                let both = digit.word(at) & carry;
                digit.flip(at, carry);
                carry = both;
            }
            if carry != 0 {
                digits.push(Digit::Clear);
                digits.last_mut().expect("just pushed").flip(at, carry);
            }
            block += here;
        }
    }

    /// One object less refers to a block; false if there is only one.
    pub fn remove(&mut self, block: u64) -> bool {
        let (region, at, bit) = place(block);
        let Some(digits) = self.regions.get_mut(&region) else { return false };
        // What is to be borrowed from is the lowest digit that is set.
        let Some(lowest) = digits.iter().position(|digit| digit.word(at) & bit != 0) else { return false };
        digits[..=lowest].iter_mut().for_each(|digit| digit.flip(at, bit));
        while digits.last().is_some_and(|digit| matches!(digit, Digit::Clear)) {
            digits.pop();
        }
        if digits.is_empty() {
            self.regions.remove(&region);
        }
        true
    }

    /// Regions with shared blocks, and bytes of memory.
    pub fn held(&self) -> (u64, u64) {
        let mixed = |digits: &Vec<Digit>| digits.iter().filter(|digit| matches!(digit, Digit::Mixed(_))).count() * size_of::<Words<WORDS>>();
        let each = |digits: &Vec<Digit>| size_of::<(u64, Vec<Digit>)>() + digits.capacity() * size_of::<Digit>() + mixed(digits);
        (self.regions.len() as u64, self.regions.values().map(each).sum::<usize>() as u64)
    }
}

fn place(block: u64) -> (u64, usize, u64) {
    let in_region = block % REGION;
    (block / REGION, (in_region / 64) as usize, 1 << (in_region % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::collections::BTreeMap;

    #[test]
    fn it_counts_as_a_map_does() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let blocks = 3 * REGION;
        let (mut shared, mut map) = (Shared::default(), BTreeMap::<u64, u32>::new());
        for round in 0..40_000 {
            let first = rng.random_range(0..blocks);
            // Grows, and goes away again.
            if rng.random_bool(if round < 20_000 { 0.6 } else { 0.1 }) {
                let count = rng.random_range(0..=300.min(blocks - first));
                shared.add(first, count);
                (first..first + count).for_each(|b| *map.entry(b).or_default() += 1);
            } else {
                for b in first..blocks.min(first + 400) {
                    let was = map.remove(&b).unwrap_or_default();
                    if was > 1 {
                        map.insert(b, was - 1);
                    }
                    assert_eq!(shared.remove(b), was > 0, "{b}");
                    if rng.random_bool(0.01) {
                        break;
                    }
                }
            }
            let b = rng.random_range(0..blocks);
            assert_eq!((shared.contains(b), shared.is_empty()), (map.contains_key(&b), map.is_empty()), "{b}");
        }
        for (b, n) in map {
            (0..n).for_each(|_| assert!(shared.remove(b)));
            assert!(!shared.contains(b) && !shared.remove(b));
        }
        assert!(shared.is_empty() && shared.held() == (0, 0));
    }

    #[test]
    fn what_is_shared_alike_takes_no_memory_by_the_block() {
        let terabyte = (1 << 40) / 4096;
        let mut shared = Shared::default();
        (0..3).for_each(|_| shared.add(0, terabyte));
        assert!(shared.held().1 < 4 << 20, "{:?}", shared.held());
        // A hole in each region.
        (0..terabyte).step_by(REGION as usize).for_each(|b| assert!(shared.remove(b + 5)));
        assert!((32 << 20..48 << 20).contains(&shared.held().1), "{:?}", shared.held());
    }
}
