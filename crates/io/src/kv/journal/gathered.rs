//! Pairs written since the last checkpoint, which the database takes over at the next.
//!
//! Why: RocksDB's skip list costs a missed cache line at each of a dozen levels, a hash table one or two; and of a pair that
//! is written again and again only the last value gets there. What is taken over comes in the order of its keys: then
//! each insert goes on where the one before ended, and costs a third.
//! Holds: of a key, the newest value is in `recent`, else in `frozen`, else in the database. Whoever walks through the
//! database's keys walks through these beside them.

use super::super::tables::Tables;
use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};
use rocksdb::WriteBatch;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::{Bound, RangeBounds};
use store::{KEY_PART_MAX, KvError, key_part};

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
    /// Where the keys are, by the part of all keys that they belong to.
    parts: BTreeMap<[u8; KEY_PART_MAX], Vec<KeyAt>>,
}

/// Where a key is. It stays there.
#[derive(Clone, Copy)]
struct KeyAt {
    piece: u32,
    offset: u32,
    len: u32,
}

/// Pairs in order, `None` for what is deleted.
pub type Walk<'a> = Box<dyn Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + 'a>;

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

    /// What is gathered of a range, from its lower end or its upper, the newest of each key.
    pub fn walk(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, ascending: bool) -> Walk<'_> {
        let recent = self.recent.walk(from, to, ascending);
        match &self.frozen {
            Some(frozen) => Box::new(Merged { newer: recent.peekable(), older: frozen.walk(from, to, ascending).peekable(), ascending }),
            None => recent,
        }
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
        let mut pairs = std::mem::take(&mut self.recent);
        let order = pairs.in_order();
        pairs.parts.clear();
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

impl Frozen {
    fn walk(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, ascending: bool) -> Walk<'_> {
        let begin = self.order.partition_point(|p| is_below(self.pairs.key(p), from));
        let end = self.order.partition_point(|p| !is_above(self.pairs.key(p), to)).max(begin);
        let pairs = self.order[begin..end].iter().map(|p| (self.pairs.key(p), self.pairs.value(p)));
        if ascending { Box::new(pairs) } else { Box::new(pairs.rev()) }
    }
}

/// Two walks as one; where both have a key, the newer counts.
struct Merged<'a> {
    newer: std::iter::Peekable<Walk<'a>>,
    older: std::iter::Peekable<Walk<'a>>,
    ascending: bool,
}

impl<'a> Iterator for Merged<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let (Some((newer, _)), Some((older, _))) = (self.newer.peek(), self.older.peek()) else {
            return self.newer.next().or_else(|| self.older.next());
        };
        match in_order_of_walk(newer, older, self.ascending) {
            Ordering::Less => self.newer.next(),
            Ordering::Greater => self.older.next(),
            Ordering::Equal => {
                self.older.next();
                self.newer.next()
            }
        }
    }
}

/// Which of two keys a walk comes to first.
pub fn in_order_of_walk(a: &[u8], b: &[u8], ascending: bool) -> Ordering {
    if ascending { a.cmp(b) } else { b.cmp(a) }
}

fn is_below(key: &[u8], from: Bound<&[u8]>) -> bool {
    match from {
        Bound::Included(from) => key < from,
        Bound::Excluded(from) => key <= from,
        Bound::Unbounded => false,
    }
}

fn is_above(key: &[u8], to: Bound<&[u8]>) -> bool {
    match to {
        Bound::Included(to) => key > to,
        Bound::Excluded(to) => key >= to,
        Bound::Unbounded => false,
    }
}

/// The part of all keys that a key belongs to. Parts are in the order of their keys.
fn part_of(key: &[u8]) -> [u8; KEY_PART_MAX] {
    let mut part = [0; KEY_PART_MAX];
    part.iter_mut().zip(key_part(key)).for_each(|(to, from)| *to = *from);
    part
}

impl Pairs {
    /// Part by part: what nobody comes to is not put in order.
    fn walk(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, ascending: bool) -> Walk<'_> {
        // Where a range ends in a part, others of its keys may be in the range.
        let whole = |end: Bound<&[u8]>| match end {
            Bound::Included(key) | Bound::Excluded(key) => Bound::Included(part_of(key)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let ends = (whole(from), whole(to));
        if matches!(ends, (Bound::Included(from), Bound::Included(to)) if from > to) {
            return Box::new(std::iter::empty());
        }
        let (from, to) = (from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec));
        let in_order = move |(_, part): (_, &'_ Vec<KeyAt>)| {
            let range = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
            let is_inside = |key: &&[u8]| RangeBounds::<[u8]>::contains(&range, *key);
            let mut keys: Vec<&[u8]> = part.iter().map(|at| bytes_at(&self.pieces, at)).filter(is_inside).collect();
            keys.sort_unstable_by(|a, b| in_order_of_walk(a, b, ascending));
            keys.into_iter().filter_map(move |key| Some((key, self.get(key)?)))
        };
        let parts = self.parts.range(ends);
        if ascending { Box::new(parts.flat_map(in_order)) } else { Box::new(parts.rev().flat_map(in_order)) }
    }

    fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let hash = self.hasher.hash_one(key);
        let pair = self.table.find(hash, |p| p.hash == hash && self.key(p) == key)?;
        Some(self.value(pair))
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        let hash = self.hasher.hash_one(key);
        let len = value.map_or(GONE, |v| v.len() as u32);
        let bytes = value.unwrap_or_default();
        let Pairs { table, pieces, parts, .. } = self;
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
                parts.entry(part_of(key)).or_default().push(KeyAt { piece: pair.piece, offset: pair.offset, len: pair.key });
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
        // Vectors that double have a third of their room free on average.
        let keys = self.table.len() * size_of::<KeyAt>() * 4 / 3;
        (pieces + keys + self.table.capacity() * (size_of::<Pair>() + 1)) as u64
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
    bytes_at(pieces, &KeyAt { piece: pair.piece, offset: pair.offset, len: pair.key })
}

fn bytes_at<'a>(pieces: &'a [Vec<u8>], at: &KeyAt) -> &'a [u8] {
    &pieces[at.piece as usize][at.offset as usize..][..at.len as usize]
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
    use rand::seq::IndexedRandom;
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
    fn whoever_walks_through_finds_what_is_newest_in_the_order_of_keys() {
        let rng = &mut ChaCha8Rng::seed_from_u64(2);
        let (mut gathered, mut model) = (Gathered::default(), BTreeMap::new());
        let key = |rng: &mut ChaCha8Rng| {
            let mut key = vec![*b"OP".choose(rng).unwrap()];
            // Few that differ in what a part is told by, and behind it.
            let len = rng.random_range(1..20);
            key.extend((1..len).map(|at| if matches!(at, 9..12 | 16..) { rng.random_range(0..3u8) } else { 1 }));
            key
        };
        for n in 0..3000 {
            let (k, value) = (key(rng), rng.random_bool(0.8).then(|| vec![rng.random::<u8>()]));
            gathered.put(&k, value.as_deref());
            model.insert(k, value);
            if n == 1500 {
                gathered.freeze();
            }
            let mut end = || match rng.random_range(0..3) {
                0 => Bound::Included(key(rng)),
                1 => Bound::Excluded(key(rng)),
                _ => Bound::Unbounded,
            };
            let (from, to) = (end(), end());
            let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
            let inside = |k: &[u8]| RangeBounds::<[u8]>::contains(&(from, to), k);
            let mut expected: Vec<_> = model.iter().filter(|(k, _)| inside(k)).map(|(k, v)| (&k[..], v.as_deref())).collect();
            assert_eq!(gathered.walk(from, to, true).collect::<Vec<_>>(), expected);
            expected.reverse();
            assert_eq!(gathered.walk(from, to, false).collect::<Vec<_>>(), expected);
        }
        assert!(model.len() > 500 && gathered.frozen.is_some());
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
