//! Which blocks of the device are free. In memory only: mount marks what onodes refer to.
//!
//! Holds: a bit map for each region (128 MiB) that is neither all free nor all used, nothing for the others, so that a
//! mostly empty or mostly full disk costs little. Searching goes on where the last search ended, small and large requests
//! each in their own place, so that small blocks gather and large runs stay whole.
//! Upstream: src/os/bluestore/BitmapAllocator.h, and src/os/bluestore/Allocator.h for the questions it must answer.

use crate::bits::Bits;

const REGION: u64 = 32768;
const WORDS: usize = REGION as usize / 64;
/// Requests of at least this many blocks search runs.
const LARGE: u64 = 16;

/// A region's blocks; a set bit is free.
type Region = Bits<WORDS>;

pub(crate) struct Allocator {
    regions: Vec<Region>,
    blocks: u64,
    free: u64,
    /// Where the next search for a small and a large request begins.
    small_at: u64,
    large_at: u64,
}

impl Allocator {
    /// All of `blocks` free but block 0, which is the label and stands for "hole".
    pub fn new(blocks: u64) -> Self {
        let regions = (0..blocks.div_ceil(REGION)).map(|_| Region::Set).collect();
        let mut a = Allocator { regions, blocks, free: blocks.next_multiple_of(REGION), small_at: 0, large_at: 0 };
        for b in blocks..blocks.next_multiple_of(REGION) {
            a.mark(b);
        }
        a.mark(0);
        a.large_at = blocks / 8;
        a
    }

    /// Blocks in all, the label included.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Free blocks.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Takes a particular block; false if it was taken, or is none of the device's.
    pub fn mark(&mut self, block: u64) -> bool {
        let Some(region) = self.regions.get_mut((block / REGION) as usize) else { return false };
        let (word, bit) = place(block);
        if region.word(word) & bit == 0 {
            return false;
        }
        region.flip(word, bit);
        self.free -= 1;
        true
    }

    /// Takes particular blocks, all of which are the device's; runs of those that were taken are shown.
    pub fn mark_run(&mut self, first: u64, count: u64, mut taken: impl FnMut(u64, u64)) {
        neighbours((first..first + count).filter(|block| !self.mark(*block))).for_each(|(first, count)| taken(first, count));
    }

    /// True if the block is taken (or none of the device's).
    pub fn is_used(&self, block: u64) -> bool {
        let (word, bit) = place(block);
        self.regions.get((block / REGION) as usize).is_none_or(|region| region.word(word) & bit == 0)
    }

    /// The first free block from one on, or of all.
    pub fn free_from(&self, at: u64) -> Option<u64> {
        self.next(at, true).or_else(|| self.next(0, true))
    }

    /// Gives a block back. Panics if it was free: two owners would follow.
    pub fn release(&mut self, block: u64) {
        assert!(block > 0 && block < self.blocks, "released block {block} is not on the device");
        let region = &mut self.regions[(block / REGION) as usize];
        let (word, bit) = place(block);
        assert!(region.word(word) & bit == 0, "block {block} is released twice");
        region.flip(word, bit);
        self.free += 1;
    }

    /// Takes `want` blocks, as (first, count) runs in the order found. The caller has made sure that so many are free.
    pub fn allocate(&mut self, want: u64) -> Vec<(u64, u64)> {
        assert!(want <= self.free, "{want} blocks wanted, {} free", self.free);
        let mut out = Vec::new();
        let mut left = want;
        if want >= LARGE {
            left -= self.gather(left, LARGE.min(want), true, &mut out);
        }
        while left > 0 {
            let got = self.gather(left, 1, false, &mut out);
            assert!(got > 0, "free blocks are counted but not found");
            left -= got;
        }
        out
    }

    /// Takes one block, next to the last small one if possible. The caller has made sure that one is free.
    pub fn allocate_one(&mut self) -> u64 {
        let found = self.next(self.small_at, true).or_else(|| self.next(0, true));
        let block = found.expect("the caller has made sure that a block is free");
        self.mark(block);
        self.small_at = block + 1;
        block
    }

    /// One search around the device for runs of at least `least` (the last may be shorter); returns how many it took.
    fn gather(&mut self, want: u64, least: u64, large: bool, out: &mut Vec<(u64, u64)>) -> u64 {
        let start = if large { self.large_at } else { self.small_at };
        let mut at = start;
        let mut taken = 0;
        let mut wrapped = false;
        while taken < want {
            let Some((first, len)) = self.next_run(at, want - taken) else {
                if wrapped {
                    break;
                }
                wrapped = true;
                at = 0;
                continue;
            };
            if wrapped && first >= start {
                break;
            }
            at = first + len;
            if len >= least.min(want - taken) {
                (first..first + len).for_each(|b| {
                    self.mark(b);
                });
                taken += len;
                match out.last_mut() {
                    Some(last) if last.0 + last.1 == first => last.1 += len,
                    _ => out.push((first, len)),
                }
            }
        }
        *(if large { &mut self.large_at } else { &mut self.small_at }) = at;
        taken
    }

    /// The first run of free blocks at or after `at`, cut to `max`.
    fn next_run(&self, at: u64, max: u64) -> Option<(u64, u64)> {
        let first = self.next(at, true)?;
        let end = self.next_within(first, first.saturating_add(max), false);
        Some((first, end - first))
    }

    fn next(&self, at: u64, free: bool) -> Option<u64> {
        let end = self.regions.len() as u64 * REGION;
        let found = self.next_within(at, end, free);
        (found < end).then_some(found)
    }

    /// The first block in `[at, end)` that is free or used as asked; `end` if there is none.
    fn next_within(&self, mut at: u64, end: u64, free: bool) -> u64 {
        while at < end {
            let Some(region) = self.regions.get((at / REGION) as usize) else { return at.min(end) };
            let bits = match (region, free) {
                (Region::Set, true) | (Region::Clear, false) => return at,
                (Region::Set, false) | (Region::Clear, true) => {
                    at = (at / REGION + 1) * REGION;
                    continue;
                }
                (Region::Mixed(bits), _) => bits,
            };
            let mut word = ((at % REGION) / 64) as usize;
            let mut mask = u64::MAX << (at % 64);
            let base = at / REGION * REGION;
            while word < WORDS {
                let w = if free { bits.words[word] } else { !bits.words[word] } & mask;
                if w != 0 {
                    return (base + word as u64 * 64 + u64::from(w.trailing_zeros())).min(end);
                }
                mask = u64::MAX;
                word += 1;
            }
            at = base + REGION;
        }
        end
    }
}

/// Runs of blocks that follow each other, as (first, count).
pub(crate) fn neighbours(blocks: impl Iterator<Item = u64>) -> impl Iterator<Item = (u64, u64)> {
    let mut blocks = blocks.peekable();
    std::iter::from_fn(move || {
        let first = blocks.next()?;
        // A damaged record may say any number.
        let mut end = first.saturating_add(1);
        while blocks.next_if_eq(&end).is_some() {
            end = end.saturating_add(1);
        }
        Some((first, end - first))
    })
}

fn place(block: u64) -> (usize, u64) {
    let in_region = block % REGION;
    ((in_region / 64) as usize, 1 << (in_region % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::collections::BTreeSet;

    #[test]
    fn random_requests_never_overlap_and_find_the_last_block() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let blocks = 2 * REGION + 1000;
        let mut a = Allocator::new(blocks);
        let mut held: Vec<u64> = Vec::new();
        let mut taken = BTreeSet::new();
        for _ in 0..2000 {
            let want = rng.random_range(1..200).min(a.free());
            for (first, n) in a.allocate(want) {
                for b in first..first + n {
                    assert!(b > 0 && b < blocks && taken.insert(b), "{b}");
                    held.push(b);
                }
            }
            while held.len() > 40_000 || (rng.random_bool(0.45) && !held.is_empty()) {
                let b = held.swap_remove(rng.random_range(0..held.len()));
                taken.remove(&b);
                a.release(b);
            }
            assert_eq!(a.free(), blocks - 1 - taken.len() as u64);
        }
        let left = a.free();
        assert_eq!(a.allocate(left).iter().map(|r| r.1).sum::<u64>(), left);
        assert_eq!(a.free(), 0);
    }

    #[test]
    fn a_large_request_on_an_empty_device_is_one_run() {
        let mut a = Allocator::new(10_000);
        assert_eq!(a.allocate(1024).len(), 1);
    }

    #[test]
    #[should_panic(expected = "released twice")]
    fn releasing_twice_is_our_fault() {
        let mut a = Allocator::new(100);
        a.allocate(50);
        a.release(3);
        a.release(3);
    }
}
