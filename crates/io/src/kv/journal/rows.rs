//! The transient rows in memory: by table (deferred writes, the log of one PG) and number.
//!
//! Holds: rows of a table lie in the order of their numbers. They come at the end and go from the front, so that both cost
//! next to nothing, and a row takes 48 bytes beside its value.

use super::ring::Place;
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, Range};
use store::transient;

/// What `Row::frame` says of a row that the database has, or will have with the checkpoint that is under way.
const SPILLED: u64 = u64::MAX;

/// Transient rows, and where in the ring reading has to start for them.
pub struct Rows {
    tables: BTreeMap<u128, Table>,
    /// Some of the frames that are in the ring, oldest first.
    marks: VecDeque<Place>,
    /// Bytes from mark to mark.
    grain: u64,
}

struct Table {
    /// What its keys begin with; the number follows.
    prefix: Vec<u8>,
    rows: VecDeque<(u64, Row)>,
}

struct Row {
    value: Bytes,
    /// Number of the mark from which on reading finds it, or `SPILLED`.
    frame: u64,
}

/// Where the rows of a table sort among all.
fn place_of(prefix: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(prefix).for_each(|(to, from)| *to = *from);
    u128::from_be_bytes(bytes)
}

fn key_of(prefix: &[u8], number: u64) -> Vec<u8> {
    [prefix, &number.to_be_bytes()].concat()
}

impl Table {
    /// The indexes of the rows that are in the range.
    fn within(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Range<usize> {
        let before = |bound: &[u8], and_equal: bool| {
            let (head, tail) = bound.split_at(self.prefix.len().min(bound.len()));
            self.rows.partition_point(|(n, _)| match self.prefix[..].cmp(head).then_with(|| n.to_be_bytes()[..].cmp(tail)) {
                Ordering::Less => true,
                Ordering::Equal => and_equal,
                Ordering::Greater => false,
            })
        };
        let start = match from {
            Bound::Unbounded => 0,
            Bound::Included(k) => before(k, false),
            Bound::Excluded(k) => before(k, true),
        };
        let end = match to {
            Bound::Unbounded => self.rows.len(),
            Bound::Included(k) => before(k, true),
            Bound::Excluded(k) => before(k, false),
        };
        start..end.max(start)
    }

    fn at(&self, number: u64) -> Result<usize, usize> {
        match self.rows.back() {
            Some((last, _)) if *last >= number => self.rows.binary_search_by_key(&number, |(n, _)| *n),
            _ => Err(self.rows.len()),
        }
    }
}

impl Rows {
    /// None. `size`: that of the ring.
    pub fn new(size: u64) -> Self {
        Rows { tables: BTreeMap::new(), marks: VecDeque::new(), grain: size / 256 }
    }

    /// The row of a key that is one's.
    pub fn get(&self, key: &[u8]) -> Option<Bytes> {
        let (prefix, number) = transient(key)?;
        let table = self.tables.get(&place_of(prefix))?;
        let (_, row) = &table.rows[table.at(number).ok()?];
        Some(row.value.clone())
    }

    /// Sets a row that the ring has from `place` on; `None`: the database has it. Keys that are no row's are not for here.
    pub fn put(&mut self, key: &[u8], value: &Bytes, place: Option<Place>) {
        let Some((prefix, number)) = transient(key) else { return };
        // Deferred data the store has, too, and log entries the OSD.
        let row = Row { value: value.clone(), frame: place.map_or(SPILLED, |p| self.mark(p)) };
        let table = self.tables.entry(place_of(prefix));
        let table = table.or_insert_with(|| Table { prefix: prefix.to_vec(), rows: VecDeque::new() });
        match table.at(number) {
            Ok(i) => table.rows[i].1 = row,
            Err(i) => table.rows.insert(i, (number, row)),
        }
    }

    /// True if the database has this row, or will have.
    pub fn is_spilled(&self, key: &[u8]) -> bool {
        let found = transient(key).and_then(|(prefix, number)| Some((self.tables.get(&place_of(prefix))?, number)));
        found.is_some_and(|(table, number)| table.at(number).is_ok_and(|i| table.rows[i].1.frame == SPILLED))
    }

    /// Forgets a row, if there is one and `goes` is true of whether it is spilled.
    pub fn remove_if(&mut self, key: &[u8], goes: impl FnOnce(bool) -> bool) {
        if let Some((prefix, number)) = transient(key)
            && let Some(table) = self.tables.get_mut(&place_of(prefix))
            && let Ok(i) = table.at(number)
            && goes(table.rows[i].1.frame == SPILLED)
        {
            table.rows.remove(i);
        }
    }

    /// Forgets the rows of a range for which `goes` is true of their keys and of whether they are spilled.
    pub fn remove_range(&mut self, from: &[u8], to: &[u8], mut goes: impl FnMut(&[u8], bool) -> bool) {
        let (from, to) = (Bound::Included(from), Bound::Excluded(to));
        for (_, table) in self.tables.range_mut(tables_of(from, to)) {
            let within = table.within(from, to);
            if within.is_empty() {
                continue;
            }
            let mut i = 0..;
            let prefix = &table.prefix;
            table.rows.retain(|(n, row)| {
                let is_within = i.next().is_some_and(|i| within.contains(&i));
                !is_within || !goes(&key_of(prefix, *n), row.frame == SPILLED)
            });
        }
        self.tables.retain(|_, table| !table.rows.is_empty());
    }

    /// Pairs of the range, in ascending order.
    pub fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> impl DoubleEndedIterator<Item = (Bytes, Bytes)> {
        self.tables.range(tables_of(from, to)).flat_map(move |(_, table)| {
            let rows = table.rows.range(table.within(from, to));
            rows.map(|(n, row)| (key_of(&table.prefix, *n).into(), row.value.clone()))
        })
    }

    /// Takes the rows that reading finds only before `pos` for spilled, and hands them to `spill`. Returns from where on
    /// the others can be read; `last` if there are none.
    pub fn spill_before(&mut self, pos: u64, last: Place, mut spill: impl FnMut(&[u8], &[u8])) -> Place {
        let spilled = self.marks.iter().find(|mark| mark.pos >= pos).map_or(SPILLED, |mark| mark.seq);
        let mut first = SPILLED;
        for table in self.tables.values_mut() {
            for (n, row) in table.rows.iter_mut().filter(|(_, row)| row.frame != SPILLED) {
                if row.frame < spilled {
                    spill(&key_of(&table.prefix, *n), &row.value);
                    row.frame = SPILLED;
                } else {
                    first = first.min(row.frame);
                }
            }
        }
        while self.marks.front().is_some_and(|mark| mark.seq < first) {
            self.marks.pop_front();
        }
        self.marks.front().copied().unwrap_or(last)
    }

    /// The number of the last mark that is not behind `place`, which is where the ring ends now.
    fn mark(&mut self, place: Place) -> u64 {
        match self.marks.back() {
            Some(last) if place.pos < last.pos + self.grain => last.seq,
            _ => {
                self.marks.push_back(place);
                place.seq
            }
        }
    }
}

/// Where tables may lie that have rows in the range.
fn tables_of(from: Bound<&[u8]>, to: Bound<&[u8]>) -> (Bound<u128>, Bound<u128>) {
    let kind = |k: &[u8]| place_of(&k[..k.len().min(1)]);
    let from = match from {
        Bound::Included(k) | Bound::Excluded(k) => kind(k),
        Bound::Unbounded => 0,
    };
    let to = match to {
        Bound::Included(k) | Bound::Excluded(k) => place_of(k),
        Bound::Unbounded => u128::MAX,
    };
    // A map does not take a range that ends before it begins.
    (Bound::Included(from), if from <= to { Bound::Included(to) } else { Bound::Included(from) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::seq::{IndexedMutRandom, IndexedRandom};
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn some_key(rng: &mut ChaCha8Rng) -> Vec<u8> {
        let prefix = *[&b"D"[..], b"P0000000000001l", b"P0000000000002l", b"P\0\0\0\0\0\0\0\0\0\0\0\0\0l"].choose(rng).unwrap();
        key_of(prefix, *[0, 1, 2, 3, 254, 255, 256, u64::MAX].choose(rng).unwrap())
    }

    /// A row's key, or something near it.
    fn some_bound(rng: &mut ChaCha8Rng) -> Vec<u8> {
        let mut key = some_key(rng);
        match rng.random_range(0..4) {
            0 => key.truncate(rng.random_range(0..=key.len())),
            1 => key.push(0),
            2 => *key.choose_mut(rng).unwrap() = rng.random(),
            _ => {}
        }
        key
    }

    #[test]
    fn rows_are_what_a_map_of_their_keys_has() {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let (mut rows, mut model) = (Rows::new(1 << 20), BTreeMap::new());
        for seq in 1..20_000 {
            let (key, value) = (some_key(rng), Bytes::from(vec![rng.random::<u8>(); 3]));
            match rng.random_range(0..8) {
                0..4 => {
                    rows.put(&key, &value, Some(Place { pos: seq * 4096, seq, run: 7 }));
                    model.insert(key, (seq, value));
                }
                4 => {
                    rows.remove_if(&key, |_| true);
                    model.remove(&key);
                }
                5 => {
                    let (from, to) = (some_bound(rng), some_bound(rng));
                    rows.remove_range(&from, &to, |_, spilled| !spilled);
                    model.retain(|k, (seq, _)| *k < from || *k >= to || *seq == 0);
                }
                6 => {
                    let (from, to) = (some_bound(rng), some_bound(rng));
                    let mut bound = |k: Vec<u8>| match rng.random_range(0..3) {
                        0 => Bound::Included(k),
                        1 => Bound::Excluded(k),
                        _ => Bound::Unbounded,
                    };
                    let bounds = (bound(from), bound(to));
                    let is_in = |k: &Vec<u8>| std::ops::RangeBounds::contains(&bounds, k);
                    let wanted: Vec<_> = model.iter().filter(|(k, _)| is_in(k)).map(|(k, (_, v))| (k.clone(), v.clone())).collect();
                    let slices = (bounds.0.as_ref().map(|k| &k[..]), bounds.1.as_ref().map(|k| &k[..]));
                    let found: Vec<_> = rows.range(slices.0, slices.1).map(|(k, v)| (k.to_vec(), v)).collect();
                    assert_eq!(found, wanted);
                    let mut back: Vec<_> = rows.range(slices.0, slices.1).rev().map(|(k, v)| (k.to_vec(), v)).collect();
                    back.reverse();
                    assert_eq!(back, wanted);
                }
                _ if rng.random_ratio(1, 20) => {
                    let last = Place { pos: seq * 4096, seq, run: 7 };
                    let before = seq.saturating_sub(rng.random_range(0..400));
                    let mut spilled = Vec::new();
                    let start = rows.spill_before(before * 4096, last, |k, _| spilled.push(k.to_vec()));
                    for key in spilled {
                        model.get_mut(&key).unwrap().0 = 0;
                    }
                    let left = model.values().map(|(seq, _)| *seq).filter(|seq| *seq > 0).min();
                    assert!(left.is_none_or(|left| left >= before && left >= start.seq && start.seq >= before));
                }
                _ => assert_eq!(rows.get(&key), model.get(&key).map(|(_, v)| v.clone())),
            }
        }
    }
}
