//! Pairs written since the last checkpoint, which the database takes over at the next.
//!
//! Why: RocksDB's skip list costs a missed cache line at each of a dozen levels, a hash table one or two; and of a pair that
//! is written again and again only the last value gets there. What is taken over comes in the order of its keys: then
//! each insert goes on where the one before ended, and costs a third.
//! Holds: of a key, the newest value is in `recent`, else in `frozen`, else in the database. Whoever walks through the
//! database's keys has it take everything over first.

use super::super::tables::Tables;
use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};
use rocksdb::WriteBatch;
use std::hash::BuildHasher;
use store::KvError;

/// Memory is taken in pieces of this.
const PIECE: usize = 256 << 10;
/// `Pair::value` of a key that is deleted.
const GONE: u32 = u32::MAX;

/// What is there beside the database.
#[derive(Default)]
pub struct Gathered {
    recent: Pairs,
    /// What the checkpoint that is under way takes over.
    frozen: Option<Frozen>,
}

struct Frozen {
    pairs: Pairs,
    /// In the order of keys.
    order: Vec<Pair>,
    /// So many of them the database has.
    taken: usize,
}

/// A map of keys to values or deletions.
#[derive(Default)]
struct Pairs {
    table: HashTable<Pair>,
    hasher: DefaultHashBuilder,
    pieces: Vec<Vec<u8>>,
}

/// Where a key and, behind it, its value are.
#[derive(Clone, Copy)]
struct Pair {
    hash: u64,
    piece: u32,
    offset: u32,
    key: u32,
    /// Bytes of the value, or `GONE`.
    value: u32,
    /// Bytes there are for a value.
    room: u32,
}

impl Gathered {
    /// Sets or deletes a key.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.recent.put(key, value);
    }

    /// The newest value of a key, `Some(None)` if it is deleted; `None` if the database knows.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let found = self.recent.get(key).or_else(|| self.frozen.as_ref()?.pairs.get(key));
        found.map(|value| value.map(Bytes::copy_from_slice))
    }

    /// Bytes of memory since the last `freeze`.
    pub fn recent_bytes(&self) -> u64 {
        self.recent.bytes()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        let frozen = |f: &Frozen| f.pairs.bytes() + (f.order.capacity() * size_of::<Pair>()) as u64;
        self.recent.bytes() + self.frozen.as_ref().map_or(0, frozen)
    }

    /// Prepares what has been gathered so far for `take_over`.
    pub fn freeze(&mut self) {
        debug_assert!(self.frozen.is_none());
        let pairs = std::mem::take(&mut self.recent);
        let order = pairs.in_order();
        self.frozen = Some(Frozen { pairs, order, taken: 0 });
    }

    /// Frozen pairs that the database does not have.
    pub fn left(&self) -> u64 {
        self.frozen.as_ref().map_or(0, |f| f.order.len() - f.taken) as u64
    }

    /// Puts up to so many of the frozen pairs into the database; true if it has all of them.
    pub fn take_over(&mut self, tables: &Tables, max: usize) -> Result<bool, KvError> {
        let Some(frozen) = &mut self.frozen else { return Ok(true) };
        let left = &frozen.order[frozen.taken..];
        let now = &left[..left.len().min(max)];
        if !now.is_empty() {
            let mut out = WriteBatch::default();
            for pair in now {
                let key = frozen.pairs.key(pair);
                match frozen.pairs.value(pair) {
                    Some(value) => out.put_cf(tables.family(key), key, value),
                    None => out.delete_cf(tables.family(key), key),
                }
            }
            tables.write(out)?;
            frozen.taken += now.len();
        }
        let all = frozen.taken == frozen.order.len();
        if all {
            self.frozen = None;
        }
        Ok(all)
    }

    /// Puts everything into the database.
    pub fn take_over_all(&mut self, tables: &Tables) -> Result<(), KvError> {
        self.take_over(tables, usize::MAX)?;
        self.freeze();
        self.take_over(tables, usize::MAX)?;
        Ok(())
    }
}

impl Pairs {
    fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let hash = self.hasher.hash_one(key);
        let pair = self.table.find(hash, |p| p.hash == hash && self.key(p) == key)?;
        Some(self.value(pair))
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        let hash = self.hasher.hash_one(key);
        let len = value.map_or(GONE, |v| v.len() as u32);
        let bytes = value.unwrap_or_default();
        let Pairs { table, pieces, .. } = self;
        match table.find_mut(hash, |p| p.hash == hash && key_in(pieces, p) == key) {
            Some(pair) if bytes.len() <= pair.room as usize => {
                let at = pair.offset as usize + pair.key as usize;
                pieces[pair.piece as usize][at..at + bytes.len()].copy_from_slice(bytes);
                pair.value = len;
            }
            Some(pair) => *pair = store(pieces, hash, key, bytes, len),
            None => {
                let pair = store(pieces, hash, key, bytes, len);
                table.insert_unique(hash, pair, |p| p.hash);
            }
        }
    }

    fn key(&self, pair: &Pair) -> &[u8] {
        key_in(&self.pieces, pair)
    }

    fn value(&self, pair: &Pair) -> Option<&[u8]> {
        let at = pair.offset as usize + pair.key as usize;
        (pair.value != GONE).then(|| &self.pieces[pair.piece as usize][at..at + pair.value as usize])
    }

    fn bytes(&self) -> u64 {
        let pieces: usize = self.pieces.iter().map(Vec::capacity).sum();
        (pieces + self.table.capacity() * (size_of::<Pair>() + 1)) as u64
    }

    fn in_order(&self) -> Vec<Pair> {
        // An object's key has its hash among these: few comparisons have to look any further.
        let head = |p: &Pair| {
            let mut head = [0; 16];
            head.iter_mut().zip(self.key(p)).for_each(|(to, from)| *to = *from);
            u128::from_be_bytes(head)
        };
        let mut order: Vec<(u128, Pair)> = self.table.iter().map(|p| (head(p), *p)).collect();
        order.sort_unstable_by(|(a, p), (b, q)| a.cmp(b).then_with(|| self.key(p).cmp(self.key(q))));
        order.into_iter().map(|(_, p)| p).collect()
    }
}

fn key_in<'a>(pieces: &'a [Vec<u8>], pair: &Pair) -> &'a [u8] {
    &pieces[pair.piece as usize][pair.offset as usize..][..pair.key as usize]
}

/// Stores a key and a value behind everything else.
fn store(pieces: &mut Vec<Vec<u8>>, hash: u64, key: &[u8], bytes: &[u8], value: u32) -> Pair {
    let len = key.len() + bytes.len();
    if pieces.last().is_none_or(|p| p.capacity() - p.len() < len) {
        pieces.push(Vec::with_capacity(len.max(PIECE)));
    }
    let piece = pieces.len() - 1;
    let into = &mut pieces[piece];
    let offset = into.len() as u32;
    into.extend_from_slice(key);
    into.extend_from_slice(bytes);
    Pair { hash, piece: piece as u32, offset, key: key.len() as u32, value, room: bytes.len() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::collections::BTreeMap;

    #[test]
    fn pairs_are_a_map_and_come_in_the_order_of_their_keys() {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let (mut pairs, mut model) = (Pairs::default(), BTreeMap::new());
        for _ in 0..50_000 {
            // Some are alike in more bytes than are compared first.
            let key = format!("{}{}", ["O", "P", "Oooooooooooooooooooo"][rng.random_range(0..3)], rng.random_range(0..3000)).into_bytes();
            let len = if rng.random_ratio(1, 2000) { 2 * PIECE } else { rng.random_range(0..600) };
            let value = rng.random_bool(0.8).then(|| vec![rng.random::<u8>(); len]);
            match rng.random_range(0..3) {
                0 => assert_eq!(pairs.get(&key), model.get(&key).map(|v: &Option<Vec<u8>>| v.as_deref())),
                _ => {
                    pairs.put(&key, value.as_deref());
                    model.insert(key, value);
                }
            }
        }
        let found: Vec<_> = pairs.in_order().iter().map(|p| (pairs.key(p).to_vec(), pairs.value(p).map(<[u8]>::to_vec))).collect();
        assert!(found.iter().any(|(_, v)| v.is_none()) && pairs.pieces.len() > 10);
        assert_eq!(found, model.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_value_no_longer_than_the_one_before_takes_no_memory() {
        let mut pairs = Pairs::default();
        pairs.put(b"k", Some(&[1; 300]));
        let bytes = pairs.bytes();
        for n in 0..10_000u32 {
            pairs.put(b"k", Some(&n.to_le_bytes()));
            pairs.put(b"k", None);
            pairs.put(b"k", Some(&[2; 300]));
        }
        assert_eq!((pairs.bytes(), pairs.get(b"k")), (bytes, Some(Some(&[2; 300][..]))));
    }
}
