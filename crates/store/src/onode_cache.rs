//! Objects' onodes within a budget in bytes: the clock algorithm, which costs a flag per use instead of a list.

use crate::onode::Onode;
use bytes::Bytes;
use indexmap::IndexMap;
use foldhash::fast::FixedState;

/// Onodes by database key. What is taken out must be put back: a transaction being planned owns its onodes.
///
/// Most of them are kept packed, as the database has them: that takes half the memory, and to unpack one costs a
/// thirtieth of asking the database.
#[derive(Default)]
pub(crate) struct OnodeCache {
    /// The clock's hand goes through the places in order.
    map: IndexMap<Bytes, Place, FixedState>,
    hand: usize,
    bytes: u64,
    /// Those of `bytes` that are not packed.
    live_bytes: u64,
    /// Counts the calls of `trim`, which ends a turn of the store.
    turn: u64,
}

enum Place {
    /// Taken out.
    Out,
    Live(Box<Onode>),
    /// Not used since it was packed.
    Packed(Box<[u8]>),
}

/// Onodes that are looked at in a turn of the store: a budget that has become much less is kept some turns later, and nobody waits for that.
pub(crate) const LOOKS: usize = 4096;
/// Onodes are packed when those that are not take more than this part of the budget.
const LIVE_SHARE: u64 = 4;
/// What a packed onode takes beside key and value: the place, the key's counter, what the allocator adds.
const PACKED_COST: usize = 144;

impl OnodeCache {
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut Onode> {
        let at = self.map.get_index_of(key)?;
        self.unpack(at);
        match self.map.get_index_mut(at) {
            Some((_, Place::Live(onode))) => {
                onode.use_in(self.turn);
                Some(onode)
            }
            _ => None,
        }
    }

    /// As `get_mut`, for bookkeeping on what is pinned: that is no use.
    pub fn peek_mut(&mut self, key: &[u8]) -> Option<&mut Onode> {
        match self.map.get_mut(key)? {
            Place::Live(onode) => Some(onode),
            Place::Out | Place::Packed(_) => None,
        }
    }

    /// Takes an onode out for changing; its place stays.
    pub fn take(&mut self, key: &[u8]) -> Option<(Bytes, Box<Onode>)> {
        let at = self.map.get_index_of(key)?;
        self.unpack(at);
        let (key, place) = self.map.get_index_mut(at)?;
        match std::mem::replace(place, Place::Out) {
            Place::Live(mut onode) => {
                onode.use_in(self.turn);
                self.bytes -= onode.memory;
                self.live_bytes -= onode.memory;
                Some((key.clone(), onode))
            }
            out => {
                *place = out;
                None
            }
        }
    }

    /// Puts one back that `take` gave out.
    pub fn put_back(&mut self, key: Bytes, onode: Box<Onode>) {
        self.bytes += onode.memory;
        self.live_bytes += onode.memory;
        self.map.insert(key, Place::Live(onode));
    }

    /// As `put_back`, for one whose size may have changed.
    pub fn put_back_changed(&mut self, key: Bytes, mut onode: Box<Onode>) {
        onode.memory = onode.count_memory() + key.len() as u64;
        self.put_back(key, onode);
    }

    /// Adds one that was not in the cache. What is used in this turn only goes when the hand first comes by.
    pub fn insert(&mut self, key: Bytes, mut onode: Box<Onode>) {
        (onode.used, onode.hot) = (self.turn, false);
        self.put_back_changed(key, onode);
    }

    /// How many there are, and their bytes.
    pub fn held(&self) -> (u64, u64) {
        (self.map.len() as u64, self.bytes)
    }

    /// Packs what was not used lately until most of the cache is packed, and drops what was not used since until
    /// `budget` holds, or so many were looked at. Pinned onodes stay as they are.
    pub fn trim(&mut self, budget: u64, looks: usize) {
        self.turn += 1;
        let mut looks = looks.min(2 * self.map.len());
        while (self.bytes > budget || self.live_bytes > budget / LIVE_SHARE) && looks > 0 {
            looks -= 1;
            if self.hand >= self.map.len() {
                self.hand = 0;
            }
            let Some((key, place)) = self.map.get_index_mut(self.hand) else { return };
            let full = self.bytes > budget;
            match place {
                Place::Live(onode) if onode.hot || onode.pins > 0 => onode.hot = false,
                Place::Live(onode) => {
                    self.bytes -= onode.memory;
                    self.live_bytes -= onode.memory;
                    match onode.pack() {
                        Some(packed) => {
                            self.bytes += packed_memory(key, &packed);
                            *place = Place::Packed(packed);
                        }
                        None => {
                            self.drop_at_hand();
                            continue;
                        }
                    }
                }
                Place::Packed(packed) if full => {
                    self.bytes -= packed_memory(key, packed);
                    self.drop_at_hand();
                    continue;
                }
                Place::Packed(_) | Place::Out => {}
            }
            self.hand += 1;
        }
    }

    /// The last one comes here, and is looked at next.
    fn drop_at_hand(&mut self) {
        self.map.swap_remove_index(self.hand);
    }

    fn unpack(&mut self, at: usize) {
        let Some((key, place)) = self.map.get_index_mut(at) else { return };
        let Place::Packed(packed) = place else { return };
        self.bytes -= packed_memory(key, packed);
        let value = Bytes::from(std::mem::take(packed));
        let mut onode = Box::new(Onode::from_value(&value).expect("what was packed here unpacks"));
        // It was used before, so that it is not a passer-by.
        (onode.used, onode.hot) = (self.turn, true);
        onode.memory = onode.count_memory() + key.len() as u64;
        self.bytes += onode.memory;
        self.live_bytes += onode.memory;
        *place = Place::Live(onode);
    }
}

fn packed_memory(key: &Bytes, packed: &[u8]) -> u64 {
    (PACKED_COST + key.len() + packed.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onode::Block;

    #[test]
    fn onodes_used_in_several_turns_outlive_those_used_in_one() {
        let mut c = OnodeCache::default();
        let key = |i: u16| Bytes::copy_from_slice(&i.to_be_bytes());
        let budget = 20 * (Onode::default().count_memory() + 2);
        for i in 0..1000 {
            c.insert(key(i), Box::default());
            // As a write does: looks, and takes it out to change it.
            c.get_mut(&key(i)).unwrap();
            let (k, onode) = c.take(&key(i)).unwrap();
            assert!(c.get_mut(&k).is_none() && c.take(&k).is_none());
            c.put_back_changed(k, onode);
            if let Some(kept) = c.get_mut(&key(3)) {
                kept.size = 7;
            }
            c.trim(budget, LOOKS);
            assert!(c.bytes <= budget);
            assert_counted(&c);
        }
        assert!(c.get_mut(&key(3)).is_some_and(|o| o.size == 7), "it was used all the time");
        assert!(c.get_mut(&key(999)).is_some() && c.get_mut(&key(900)).is_none());
    }

    /// What the cache says it takes is what its places add up to.
    fn assert_counted(c: &OnodeCache) {
        let (mut live, mut packed) = (0, 0);
        for (key, place) in &c.map {
            match place {
                Place::Live(onode) => live += onode.memory,
                Place::Packed(value) => packed += packed_memory(key, value),
                Place::Out => {}
            }
        }
        assert_eq!((c.live_bytes, c.bytes), (live, live + packed));
    }

    /// An onode of one block, as the database has it.
    fn stored(nid: u64) -> Box<Onode> {
        let mut onode = Onode { exists: true, stored: true, complete: true, nid, size: 4096, mapped: 1, ..Onode::default() };
        onode.segs.get_mut(0).unwrap().set(0, Block { phys: nid + 1, crc: 7, ..Block::default() });
        Box::new(onode)
    }

    #[test]
    fn what_is_in_the_database_is_packed_first_and_unpacked_when_used() {
        let mut c = OnodeCache::default();
        let budget = 100 * stored(0).count_memory();
        let key = |i: u64| Bytes::copy_from_slice(&i.to_be_bytes());
        for i in 0..150 {
            c.insert(key(i), stored(i));
            c.trim(budget, LOOKS);
            assert_counted(&c);
        }
        assert_eq!(c.map.len(), 150, "packed, more have room than live");
        assert!(c.live_bytes <= budget / LIVE_SHARE && c.peek_mut(&key(0)).is_none());
        for i in 0..150 {
            let (k, onode) = c.take(&key(i)).unwrap();
            assert_eq!((onode.nid, onode.segs.get(0).unwrap().get(0)), (i, Block { phys: i + 1, crc: 7, ..Block::default() }));
            assert!(onode.exists && onode.stored && onode.complete);
            c.put_back(k, onode);
            c.trim(budget, LOOKS);
            assert_counted(&c);
        }
        assert_eq!(c.map.len(), 150);
        (0..1000).for_each(|_| c.trim(0, LOOKS));
        assert!(c.map.is_empty() && c.bytes == 0);
    }

    #[test]
    fn a_budget_that_has_become_much_less_is_kept_little_by_little() {
        let mut c = OnodeCache::default();
        for i in 0..1000u64 {
            c.insert(Bytes::copy_from_slice(&i.to_be_bytes()), stored(i));
        }
        // Each is packed first.
        for left in [1000, 900, 800] {
            c.trim(0, 100);
            assert!(c.map.len() >= left, "{left}");
        }
        (0..30).for_each(|_| c.trim(0, 100));
        assert!(c.map.is_empty());
    }

    #[test]
    fn pinned_onodes_stay() {
        let mut c = OnodeCache::default();
        for i in 0..100u8 {
            let pins = u32::from(i == 5);
            c.insert(vec![i].into(), Box::new(Onode { pins, ..Onode::default() }));
        }
        c.trim(0, LOOKS);
        c.trim(0, LOOKS);
        assert!(c.get_mut(&[5]).is_some() && c.get_mut(&[6]).is_none());
    }
}
