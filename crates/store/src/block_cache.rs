//! Data blocks within a budget in bytes: the clock algorithm over places in memory of their own.
//!
//! Why memory of their own: what a process has to spare goes to this cache, and has to be back with the kernel at once when somebody
//! else wants it. A block among small things that last would leave a hole.

use crate::csum::Csum;
use crate::onode::{BLOCK, Block};
use bytes::Bytes;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Blocks by device block number.
///
/// Holds: what is handed out has the checksum it is asked for by; what has none is not kept. Content that a read brought late, after its block was
/// written anew or given to another object, is therefore never taken for the block's.
#[derive(Default)]
pub(crate) struct BlockCache {
    places: HashMap<u64, u32, BuildHasherDefault<BlockHasher>>,
    /// The clock's hand goes through them in order.
    slots: Vec<Slot>,
    hand: usize,
    /// Slots that hold nothing.
    free: Vec<u32>,
    /// Content: `SLAB_BLOCKS` slots have theirs in one piece.
    slabs: Vec<Box<[u8]>>,
    slots_max: usize,
}

struct Slot {
    block: Block,
    len: u16,
    hot: bool,
}

/// The C library maps pieces of this size apart and unmaps them when they are freed.
const SLAB_BLOCKS: usize = 64;
const BLOCK_LEN: usize = BLOCK as usize;
/// Bytes a cached block is counted for.
const BLOCK_COST: u64 = BLOCK + 64;

/// A block's key: blocks of a compressed run are told apart by their place in it.
fn key(block: Block) -> u64 {
    block.phys | u64::from(block.at) << 56
}

impl BlockCache {
    pub fn get(&mut self, block: Block) -> Option<Bytes> {
        let at = self.find(block)?;
        Some(Bytes::copy_from_slice(self.content(at)))
    }

    /// Whether `get` would find it.
    pub fn has(&mut self, block: Block) -> bool {
        self.find(block).is_some()
    }

    fn find(&mut self, block: Block) -> Option<usize> {
        let at = *self.places.get(&key(block))? as usize;
        let kept = self.slots[at].block;
        // What was deferred came with a crc32c, whatever its own checksum is.
        if kept != block && (kept.csum == block.csum || block.csum == Csum::None || block.at > 0 || !block.is(self.content(at))) {
            return None;
        }
        let slot = &mut self.slots[at];
        (slot.block, slot.hot) = (block, true);
        Some(at)
    }

    fn content(&self, at: usize) -> &[u8] {
        let start = at % SLAB_BLOCKS * BLOCK_LEN;
        &self.slabs[at / SLAB_BLOCKS][start..start + usize::from(self.slots[at].len)]
    }

    /// The block's checksum must be that of `data`, which is no more than a block.
    pub fn put(&mut self, block: Block, data: &[u8]) {
        if block.csum == Csum::None || self.slots_max == 0 {
            return;
        }
        let key = key(block);
        let (at, hot) = match self.places.get(&key) {
            Some(&at) => (at as usize, self.slots[at as usize].hot),
            None => (self.vacate(), false),
        };
        let start = at % SLAB_BLOCKS * BLOCK_LEN;
        self.slabs[at / SLAB_BLOCKS][start..start + data.len()].copy_from_slice(data);
        self.slots[at] = Slot { block, len: data.len() as u16, hot };
        self.places.insert(key, at as u32);
    }

    /// A slot that holds nothing: a free one, a new one, or that of what was not used since the hand last came by.
    fn vacate(&mut self) -> usize {
        if let Some(at) = self.free.pop() {
            return at as usize;
        }
        let at = self.slots.len();
        if at < self.slots_max {
            if at == self.slabs.len() * SLAB_BLOCKS {
                self.slabs.push(vec![0; SLAB_BLOCKS * BLOCK_LEN].into_boxed_slice());
            }
            self.slots.push(Slot { block: Block::default(), len: 0, hot: false });
            return at;
        }
        loop {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            if !std::mem::take(&mut slot.hot) {
                self.places.remove(&key(slot.block));
                return at;
            }
        }
    }

    /// What is known of an uncompressed block is of no use any more.
    pub fn forget(&mut self, phys: u64) {
        if let Some(at) = self.places.remove(&phys) {
            self.slots[at as usize].hot = false;
            self.free.push(at);
        }
    }

    /// How many there are, and their bytes, with those of slots that are free.
    pub fn held(&self) -> (u64, u64) {
        (self.places.len() as u64, self.slots.len() as u64 * BLOCK_COST)
    }

    /// From now on it takes so many bytes at most. What has to go goes at once, used lately or not.
    pub fn limit(&mut self, budget: u64) {
        self.slots_max = usize::try_from(budget / BLOCK_COST).unwrap_or(usize::MAX);
        let max = self.slots_max;
        if self.slots.len() <= max {
            return;
        }
        for (at, slot) in self.slots.iter().enumerate().skip(max) {
            let key = key(slot.block);
            // A free slot's key may be another's by now.
            if self.places.get(&key).is_some_and(|&place| place as usize == at) {
                self.places.remove(&key);
            }
        }
        self.slots.truncate(max);
        self.free.retain(|&at| (at as usize) < max);
        self.slabs.truncate(max.div_ceil(SLAB_BLOCKS));
        self.hand = if self.hand < max { self.hand } else { 0 };
    }
}

/// Block numbers are no secret and come in runs: one multiplication spreads them.
#[derive(Default)]
pub(crate) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(b.into());
        }
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0 ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(phys: u64) -> Block {
        Block { phys, ..Block::default() }
    }

    fn of_blocks(blocks: u64) -> BlockCache {
        let mut c = BlockCache::default();
        c.limit(blocks * BLOCK_COST);
        c
    }

    #[test]
    fn it_keeps_its_budget_and_what_is_used() {
        let mut c = of_blocks(100);
        for b in 0..1000 {
            c.put(block(b), &[b as u8; 16]);
            assert!(b < 7 || c.has(block(7)));
        }
        assert_eq!(c.held(), (100, 100 * BLOCK_COST));
        assert_eq!((c.get(block(7)), c.get(block(8))), (Some(Bytes::from_static(&[7; 16])), None));
        let full = [5; BLOCK_LEN];
        c.put(block(7), &full);
        assert_eq!(c.get(block(7)).as_deref(), Some(&full[..]), "newer content of the same block");
    }

    #[test]
    fn content_of_another_checksum_is_not_the_blocks() {
        let mut c = of_blocks(10);
        c.put(Block { phys: 3, crc: 1, ..Block::default() }, b"old");
        assert_eq!(c.get(Block { phys: 3, crc: 2, ..Block::default() }), None);
        c.put(Block { phys: 3, crc: 2, ..Block::default() }, b"new");
        assert_eq!(c.get(Block { phys: 3, crc: 2, ..Block::default() }), Some(Bytes::from_static(b"new")));
    }

    #[test]
    fn a_forgotten_blocks_place_is_used_again() {
        let mut c = of_blocks(100);
        for b in 0..10_000 {
            c.put(block(b % 3), b"kept");
            c.put(block(b + 3), b"gone");
            c.forget(b + 3);
            c.forget(b + 3);
        }
        assert_eq!(c.held(), (3, 4 * BLOCK_COST));
        assert_eq!(c.get(block(2)), Some(Bytes::from_static(b"kept")));
    }

    #[test]
    fn less_is_given_back_at_once_and_what_stays_is_what_it_was() {
        let mut c = of_blocks(1000);
        let content = |b: u64| b.to_le_bytes();
        (0..1000).for_each(|b| c.put(block(b), &content(b)));
        c.forget(700);
        // It has another place now.
        c.put(block(2000), &content(2000));
        c.forget(5);
        c.put(block(700), &content(700));
        (0..1000).for_each(|b| _ = c.has(block(b)));
        for max in [650, 64, 63, 1, 0, 300] {
            c.limit(max * BLOCK_COST);
            assert!(c.held().0 <= max && c.held().1 <= max * BLOCK_COST && c.slabs.len() as u64 <= max.div_ceil(SLAB_BLOCKS as u64), "{max}");
            for b in (0..1000).chain([2000]) {
                assert!(c.get(block(b)).is_none_or(|data| data == content(b)[..]), "{b}");
            }
            (0..400).for_each(|b| c.put(block(b), &content(b)));
            assert!(c.held().0 >= max.min(400), "it fills again");
        }
    }
}
