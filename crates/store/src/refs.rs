//! Which blocks objects refer to, and whether all who refer to one say the same of it: for a check of a store, in bounded memory.
//!
//! Holds: two bits for each block, and for one window of the device at a time four bytes for each of its blocks. So who asks has to go through all
//! references once for each window in which something is shared.

use crate::onode::Block;
use crate::shared::Shared;
use foldhash::fast::FixedState;
use std::collections::BTreeSet;
use std::hash::BuildHasher;

#[derive(Default)]
pub(crate) struct Refs {
    used: Shared,
    /// Those that several references are to.
    again: Shared,
    /// Blocks in each of both.
    pub blocks: u64,
    pub shared: u64,
    /// In which windows of so many blocks something is shared.
    window_blocks: u64,
    windows: BTreeSet<u64>,
}

impl Refs {
    /// With windows of so many blocks, at least 1.
    pub fn new(window_blocks: u64) -> Refs {
        Refs { window_blocks, ..Refs::default() }
    }

    /// Something refers to the block. True if nothing did before.
    pub fn note(&mut self, phys: u64) -> bool {
        if !self.used.contains(phys) {
            self.used.add(phys, 1);
            self.blocks += 1;
            return true;
        }
        if !self.again.contains(phys) {
            self.again.add(phys, 1);
            self.shared += 1;
            self.windows.insert(phys / self.window_blocks);
        }
        false
    }

    /// One window after the other, of a device of so many blocks.
    pub fn windows(&self, blocks: u64) -> impl Iterator<Item = Window<'_>> {
        self.windows.iter().map(move |number| {
            let first = number * self.window_blocks;
            Window { refs: self, first, prints: vec![0; self.window_blocks.min(blocks - first) as usize] }
        })
    }
}

/// What is said of the shared blocks of a window.
pub(crate) struct Window<'a> {
    refs: &'a Refs,
    first: u64,
    /// Of what was said last of each; 0 if nothing was.
    prints: Vec<u32>,
}

impl Window<'_> {
    /// A reference to a block, as part of the compressed run that begins with the block `run` or of none (0). False if another one says something else of it.
    pub fn agrees(&mut self, block: &Block, run: u64) -> bool {
        let Some(print) = block.phys.checked_sub(self.first).and_then(|at| self.prints.get_mut(at as usize)) else { return true };
        if !self.refs.again.contains(block.phys) {
            return true;
        }
        let said = FixedState::with_seed(0).hash_one((block.crc, block.high, block.csum as u8, run)) as u32 | 1;
        let before = std::mem::replace(print, said);
        before == 0 || before == said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::collections::BTreeMap;

    /// Blocks whose references differ, and how many are shared, by windows of any size as by a map.
    #[test]
    fn windows_find_what_a_map_finds() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for _ in 0..50 {
            let blocks = rng.random_range(1..40_000);
            let all: Vec<(Block, u64)> = (0..rng.random_range(0..2000))
                .map(|_| {
                    let phys = rng.random_range(0..blocks.min(1500)) * (blocks / blocks.min(1500));
                    let odd = u32::from(rng.random_bool(0.01));
                    (Block { phys, crc: phys as u32 ^ odd, ..Block::default() }, u64::from(rng.random_bool(0.01)))
                })
                .collect();
            let (mut refs, mut map) = (Refs::new(rng.random_range(1..=blocks)), BTreeMap::<u64, Vec<(Block, u64)>>::new());
            for (block, run) in &all {
                let known = map.entry(block.phys).or_default();
                assert_eq!(refs.note(block.phys), known.is_empty());
                known.push((*block, *run));
            }
            assert_eq!((refs.blocks, refs.shared), (map.len() as u64, map.values().filter(|known| known.len() > 1).count() as u64));
            let mut found: Vec<u64> = Vec::new();
            for mut window in refs.windows(blocks) {
                found.extend(all.iter().filter(|(block, run)| !window.agrees(block, *run)).map(|(block, _)| block.phys));
            }
            let changes = |known: &Vec<(Block, u64)>| known.windows(2).filter(|pair| pair[0] != pair[1]).count();
            let mut wanted: Vec<u64> = map.iter().flat_map(|(phys, known)| vec![*phys; changes(known)]).collect();
            found.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(found, wanted);
        }
    }
}
