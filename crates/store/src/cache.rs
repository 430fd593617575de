//! Caches with a budget in bytes: the clock algorithm, which costs a flag per use instead of a list.

use crate::onode::{Block, Onode};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};

/// Onodes by database key. What is taken out must be put back: a transaction being planned owns its onodes.
#[derive(Default)]
pub(crate) struct OnodeCache {
    map: HashMap<Bytes, Box<Onode>, BuildHasherDefault<DefaultHasher>>,
    /// Every key of the map once, in the order of the clock's hand; keys taken out may linger.
    ring: VecDeque<Bytes>,
    bytes: u64,
}

impl OnodeCache {
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut Onode> {
        let onode = self.map.get_mut(key)?;
        onode.hot = true;
        Some(onode)
    }

    /// Takes an onode out for changing; the ring still knows it.
    pub fn take(&mut self, key: &[u8]) -> Option<(Bytes, Box<Onode>)> {
        let (key, onode) = self.map.remove_entry(key)?;
        self.bytes -= onode.memory;
        Some((key, onode))
    }

    /// Puts one back that `take` gave out.
    pub fn put_back(&mut self, key: Bytes, mut onode: Box<Onode>) {
        onode.hot = true;
        self.bytes += onode.memory;
        self.map.insert(key, onode);
    }

    /// As `put_back`, for one whose size may have changed.
    pub fn put_back_changed(&mut self, key: Bytes, mut onode: Box<Onode>) {
        onode.memory = onode.count_memory() + key.len() as u64;
        self.put_back(key, onode);
    }

    /// Adds one that was not in the cache.
    pub fn insert(&mut self, key: Bytes, onode: Box<Onode>) {
        self.ring.push_back(key.clone());
        self.put_back_changed(key, onode);
    }

    /// Drops what was not used lately until `budget` holds. Pinned onodes stay.
    pub fn trim(&mut self, budget: u64) {
        let mut looks = 2 * self.ring.len();
        while self.bytes > budget && looks > 0 {
            looks -= 1;
            let Some(key) = self.ring.pop_front() else { return };
            let Some(onode) = self.map.get_mut(&key) else { continue };
            if onode.hot || onode.pins > 0 {
                onode.hot = false;
                self.ring.push_back(key);
            } else {
                self.take(&key);
            }
        }
    }
}

/// Data blocks by device block number.
///
/// Holds: what is handed out has the checksum it is asked for by. Content that a read brought late, after its block was
/// written anew or given to another object, is therefore never taken for the block's.
#[derive(Default)]
pub(crate) struct BlockCache {
    map: HashMap<u64, Cached, BuildHasherDefault<BlockHasher>>,
    /// (block, ticket) in the order of the clock's hand; whose ticket is not the map's any more is stale.
    ring: VecDeque<(u64, u64)>,
    ticket: u64,
}

struct Cached {
    data: Bytes,
    crc: u32,
    hot: bool,
    ticket: u64,
}

/// Bytes a cached block is counted for.
const BLOCK_COST: u64 = 4096 + 128;

impl BlockCache {
    pub fn get(&mut self, block: Block) -> Option<Bytes> {
        let c = self.map.get_mut(&block.phys).filter(|c| c.crc == block.crc)?;
        c.hot = true;
        Some(c.data.clone())
    }

    /// `block.crc` must be the checksum of `data`.
    pub fn put(&mut self, block: Block, data: Bytes) {
        let Block { phys, crc } = block;
        if let Some(c) = self.map.get_mut(&phys) {
            (c.data, c.crc) = (data, crc);
            return;
        }
        self.ticket += 1;
        self.map.insert(phys, Cached { data, crc, hot: false, ticket: self.ticket });
        self.ring.push_back((phys, self.ticket));
    }

    pub fn forget(&mut self, phys: u64) {
        self.map.remove(&phys);
    }

    pub fn trim(&mut self, budget: u64) {
        let over = |map: usize| map as u64 * BLOCK_COST > budget;
        while over(self.map.len()) || self.ring.len() > 2 * self.map.len() + 64 {
            let Some((block, ticket)) = self.ring.pop_front() else { return };
            match self.map.get_mut(&block) {
                Some(c) if c.ticket == ticket => {
                    if std::mem::take(&mut c.hot) || !over(self.map.len()) {
                        self.ring.push_back((block, ticket));
                    } else {
                        self.map.remove(&block);
                    }
                }
                _ => {}
            }
        }
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
        Block { phys, crc: 0 }
    }

    #[test]
    fn the_block_cache_keeps_its_budget_and_what_is_used() {
        let mut c = BlockCache::default();
        for b in 0..1000 {
            c.put(block(b), Bytes::from_static(&[0; 16]));
            c.get(block(7));
            c.trim(100 * BLOCK_COST);
        }
        assert!(c.map.len() <= 100 && c.get(block(7)).is_some() && c.get(block(8)).is_none());
    }

    #[test]
    fn content_of_another_checksum_is_not_the_blocks() {
        let mut c = BlockCache::default();
        c.put(Block { phys: 3, crc: 1 }, Bytes::from_static(b"old"));
        assert_eq!(c.get(Block { phys: 3, crc: 2 }), None);
        c.put(Block { phys: 3, crc: 2 }, Bytes::from_static(b"new"));
        assert_eq!(c.get(Block { phys: 3, crc: 2 }), Some(Bytes::from_static(b"new")));
    }

    #[test]
    fn forgetting_does_not_let_the_ring_grow() {
        let mut c = BlockCache::default();
        for b in 0..10_000 {
            c.put(block(b % 3), Bytes::new());
            c.put(block(b), Bytes::new());
            c.forget(b);
            c.trim(100 * BLOCK_COST);
        }
        assert!(c.ring.len() < 200);
    }

    #[test]
    fn pinned_onodes_stay() {
        let mut c = OnodeCache::default();
        for i in 0..100u8 {
            let pins = u32::from(i == 5);
            c.insert(vec![i].into(), Box::new(Onode { pins, ..Onode::default() }));
        }
        c.trim(0);
        c.trim(0);
        assert!(c.get_mut(&[5]).is_some() && c.get_mut(&[6]).is_none());
    }
}
