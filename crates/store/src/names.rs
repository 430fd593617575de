//! Which objects there cannot be: spares most looks into the database for what is new.
//!
//! Owns: [`Names`], layers of Bloom filters over the keys of objects, each twice as large as all before.   Holds: a key that was ever noted
//! since mount is never said to be absent. Removed objects stay in it until the next mount; beyond its budget it gives up, and the
//! database is asked as without it.
//! Why: whoever writes new objects asks for each whether it is there. RocksDB answers out of a filter of its own for each of a dozen tables.

use foldhash::fast::FixedState;
use std::hash::BuildHasher;

/// Keys the first layer takes.
const FIRST_KEYS: usize = 16 << 10;
/// Bits for each key; with `PROBES` of them set, one in sixty absent keys is taken for one that may be there.
const BITS_PER_KEY: usize = 10;
const PROBES: u32 = 5;
/// Bits of a block: a cache line, so that a look costs one miss a layer.
const BLOCK_BITS: usize = 512;
/// Layers are made up to here, 5 MB in all: four million keys.
const LAYERS_MAX: usize = 8;

type Block = [u64; BLOCK_BITS / 64];

#[derive(Default)]
pub(crate) struct Names {
    /// `None`: there were too many.
    layers: Option<Vec<Layer>>,
    hasher: FixedState,
}

struct Layer {
    blocks: Vec<Block>,
    /// Keys it still takes.
    room: usize,
}

impl Names {
    /// Knows that there is nothing.
    pub fn empty() -> Self {
        Names { layers: Some(Vec::new()), ..Names::default() }
    }

    /// A key is there, or will be.
    pub fn note(&mut self, key: &[u8]) {
        let hash = self.hasher.hash_one(key);
        let Some(layers) = &mut self.layers else { return };
        if layers.iter().any(|layer| layer.has(hash)) {
            return;
        }
        if layers.last().is_none_or(|last| last.room == 0) {
            if layers.len() == LAYERS_MAX {
                self.layers = None;
                return;
            }
            layers.push(Layer::new(FIRST_KEYS << layers.len()));
        }
        if let Some(last) = layers.last_mut() {
            last.add(hash);
        }
    }

    /// True if no such key was noted. The newest layer is the largest, and asked first.
    pub fn lacks(&self, key: &[u8]) -> bool {
        let hash = self.hasher.hash_one(key);
        self.layers.as_ref().is_some_and(|layers| !layers.iter().rev().any(|layer| layer.has(hash)))
    }
}

impl Layer {
    fn new(keys: usize) -> Self {
        let blocks = vec![[0; BLOCK_BITS / 64]; (keys * BITS_PER_KEY).div_ceil(BLOCK_BITS)];
        Layer { blocks, room: keys }
    }

    fn block(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.blocks.len() as u128) >> 64) as usize
    }

    fn has(&self, hash: u64) -> bool {
        self.blocks.get(self.block(hash)).is_some_and(|block| probes(hash).all(|(word, bit)| block[word] & bit != 0))
    }

    fn add(&mut self, hash: u64) {
        let at = self.block(hash);
        if let Some(block) = self.blocks.get_mut(at) {
            probes(hash).for_each(|(word, bit)| block[word] |= bit);
        }
        self.room -= 1;
    }
}

/// Bits of a block, from another mix of the hash than the one its place is taken from.
fn probes(hash: u64) -> impl Iterator<Item = (usize, u64)> {
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..PROBES).map(move |i| {
        let bit = (mixed >> (9 * i)) as usize % BLOCK_BITS;
        (bit / 64, 1 << (bit % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_never_absent_and_little_else_is_taken_for_it() {
        let mut names = Names::empty();
        let key = |i: u32| i.to_be_bytes();
        assert!(names.lacks(&key(0)));
        (0..100_000).for_each(|i| names.note(&key(i)));
        assert!(!(0..100_000).any(|i| names.lacks(&key(i))));
        let mistaken = (1_000_000..1_100_000).filter(|i| !names.lacks(&key(*i))).count();
        assert!(mistaken < 5_000, "{mistaken} of 100,000");
    }

    #[test]
    fn the_same_key_again_takes_no_room() {
        let mut names = Names::empty();
        (0..10 * FIRST_KEYS).for_each(|_| names.note(b"one"));
        assert_eq!(names.layers.map(|l| (l.len(), l[0].room)), Some((1, FIRST_KEYS - 1)));
    }

    #[test]
    fn with_too_many_nothing_is_said_to_be_absent() {
        let mut names = Names::empty();
        names.layers = Some((0..LAYERS_MAX).map(|_| Layer { room: 0, ..Layer::new(1) }).collect());
        names.note(b"one too many");
        assert!(!names.lacks(b"another") && names.layers.is_none());
    }
}
