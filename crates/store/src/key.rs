//! Keys of the database: bytes that sort as what they name.
//!
//! Upstream has the same problem and another answer: src/os/bluestore/BlueStore.cc, "object key".

use bytes::Bytes;
use denc::BString;
use types::{HObject, PgId, PoolId, ShardPgId, Snap};

pub(crate) const SUPER: &[u8] = b"Ssuper";
pub(crate) const COLL: u8 = b'C';
pub(crate) const COLL_KEYS: u8 = b'P';
pub(crate) const OBJECT: u8 = b'O';
pub(crate) const SEGMENT: u8 = b'X';
pub(crate) const OMAP: u8 = b'M';
pub(crate) const DEFERRED: u8 = b'D';

const BEFORE: u8 = 1;
const EQUAL: u8 = 2;
const AFTER: u8 = 3;

fn put_i64(k: &mut Vec<u8>, v: i64) {
    k.extend_from_slice(&((v as u64) ^ (1 << 63)).to_be_bytes());
}

fn put_shard(k: &mut Vec<u8>, shard: i8) {
    k.push((shard as u8) ^ 0x80);
}

fn put_str(k: &mut Vec<u8>, s: &[u8]) {
    for &b in s {
        k.push(b);
        if b == 0 {
            k.push(0xff);
        }
    }
    k.extend_from_slice(&[0, 1]);
}

fn put_coll(k: &mut Vec<u8>, c: ShardPgId) {
    put_shard(k, c.shard);
    put_i64(k, c.pg.pool.0);
    k.extend_from_slice(&c.pg.seed.to_be_bytes());
}

/// `C` coll.
pub(crate) fn coll(c: ShardPgId) -> Vec<u8> {
    let mut k = vec![COLL];
    put_coll(&mut k, c);
    k
}

/// The collection of a `C` key.
pub(crate) fn parse_coll(key: &[u8]) -> Option<ShardPgId> {
    let mut r = Reader(key.strip_prefix(&[COLL])?);
    let shard = r.shard()?;
    let pool = r.i64()?;
    let seed = r.u32()?;
    Some(ShardPgId { pg: PgId { pool: PoolId(pool), seed }, shard })
}

/// `P` coll key.
pub(crate) fn coll_key(c: ShardPgId, key: &[u8]) -> Vec<u8> {
    let mut k = Vec::with_capacity(14 + key.len());
    k.push(COLL_KEYS);
    put_coll(&mut k, c);
    k.extend_from_slice(key);
    k
}

/// The first key behind all `P` keys of the collection.
pub(crate) fn coll_keys_end(c: ShardPgId) -> Vec<u8> {
    successor(coll_key(c, b""))
}

/// Bytes in front of the collection's own key in a `P` key.
pub(crate) const COLL_KEY_PREFIX: usize = 14;

/// The first byte of those keys of a collection that are rows of a log: numbered, written in order, and soon deleted again. An engine may keep their values as
/// they are given until then, so they should have memory of their own.
pub const LOG_ROW: u8 = b'l';

/// Bytes of a row's number, at the end of its key.
const ROW_NUMBER: usize = 8;

/// The table and the number of a row that comes and goes: deferred writes, and rows of a collection's log. An engine may
/// keep them in its own log and in memory. `None` for keys of anything else.
pub fn transient(key: &[u8]) -> Option<(&[u8], u64)> {
    let (table, number) = key.split_last_chunk::<ROW_NUMBER>()?;
    let is_row = match table {
        [DEFERRED] => true,
        [COLL_KEYS, .., LOG_ROW] => table.len() == COLL_KEY_PREFIX + 1,
        _ => false,
    };
    is_row.then(|| (table, u64::from_be_bytes(*number)))
}

/// Bytes that `key_part` returns at most.
pub const KEY_PART_MAX: usize = COLL_KEY_PREFIX;

/// What keys are told apart by so that a walk through those of a placement group comes by few others: of a collection's own keys the collection, of objects'
/// all before and with the first byte of the hash. Keys that begin alike here are neighbours.
pub fn key_part(key: &[u8]) -> &[u8] {
    let len = match key.first() {
        Some(&COLL_KEYS) => COLL_KEY_PREFIX,
        _ => COLL_KEY_PREFIX - 3,
    };
    &key[..len.min(key.len())]
}

/// `O` object.
pub(crate) fn object(shard: i8, o: &HObject) -> Vec<u8> {
    let mut k = Vec::with_capacity(32 + o.nspace.len() + o.key.len() + o.name.len());
    k.push(OBJECT);
    put_shard(&mut k, shard);
    if o.max {
        k.push(0xff);
        k.extend_from_slice(&[0xff; 8]);
        return k;
    }
    put_i64(&mut k, o.pool.0);
    k.extend_from_slice(&o.sort_hash().to_be_bytes());
    put_str(&mut k, &o.nspace);
    let effective = o.effective_key();
    put_str(&mut k, effective);
    match o.name.cmp(effective) {
        std::cmp::Ordering::Less => k.push(BEFORE),
        std::cmp::Ordering::Equal => k.push(EQUAL),
        std::cmp::Ordering::Greater => k.push(AFTER),
    }
    if o.name != *effective {
        put_str(&mut k, &o.name);
    }
    k.extend_from_slice(&o.snap.0.to_be_bytes());
    k.push(u8::from(!o.key.is_empty()));
    k
}

/// The first possible `O` key of a pool from a reversed hash on; a hash of 2^32 means past the pool.
pub(crate) fn object_bound(shard: i8, pool: i64, sort_hash: u64) -> Vec<u8> {
    let mut k = vec![OBJECT];
    put_shard(&mut k, shard);
    put_i64(&mut k, pool);
    match u32::try_from(sort_hash) {
        Ok(h) => k.extend_from_slice(&h.to_be_bytes()),
        Err(_) => return successor(k),
    }
    k
}

/// The shard and the object of an `O` key.
pub(crate) fn parse_object(key: &[u8]) -> Option<(i8, HObject)> {
    let mut r = Reader(key.strip_prefix(&[OBJECT])?);
    let shard = r.shard()?;
    let pool = PoolId(r.i64()?);
    let hash = r.u32()?.reverse_bits();
    let nspace = r.string()?;
    let effective = r.string()?;
    let name = match r.u8()? {
        EQUAL => effective.clone(),
        BEFORE | AFTER => r.string()?,
        _ => return None,
    };
    let snap = Snap(r.u64()?);
    let key = if r.u8()? == 1 { effective } else { BString::default() };
    r.0.is_empty().then_some((shard, HObject { pool, hash, nspace, key, name, snap, max: false }))
}

/// The pool to which an `O` key's object belongs, be it as one of its temporary twin's.
pub(crate) fn object_pool(key: &[u8]) -> Option<PoolId> {
    let mut r = Reader(key.strip_prefix(&[OBJECT])?);
    r.shard()?;
    let pool = r.i64()?;
    Some(PoolId(if pool < -1 { pool.wrapping_neg() - 2 } else { pool }))
}

/// `X` nid segment.
pub(crate) fn segment(nid: u64, seg: u32) -> Vec<u8> {
    let mut k = Vec::with_capacity(13);
    k.push(SEGMENT);
    k.extend_from_slice(&nid.to_be_bytes());
    k.extend_from_slice(&seg.to_be_bytes());
    k
}

/// nid and segment of an `X` key.
pub(crate) fn parse_segment(key: &[u8]) -> Option<(u64, u32)> {
    let mut r = Reader(key.strip_prefix(&[SEGMENT])?);
    Some((r.u64()?, r.u32()?))
}

/// `M` nid 0.
pub(crate) fn omap_header(nid: u64) -> Vec<u8> {
    let mut k = Vec::with_capacity(10);
    k.push(OMAP);
    k.extend_from_slice(&nid.to_be_bytes());
    k.push(0);
    k
}

/// `M` nid 1 key.
pub(crate) fn omap(nid: u64, key: &[u8]) -> Vec<u8> {
    let mut k = Vec::with_capacity(OMAP_KEY_PREFIX + key.len());
    k.push(OMAP);
    k.extend_from_slice(&nid.to_be_bytes());
    k.push(1);
    k.extend_from_slice(key);
    k
}

/// The first key behind everything of the nid's omap.
pub(crate) fn omap_end(nid: u64) -> Vec<u8> {
    let mut k = Vec::with_capacity(10);
    k.push(OMAP);
    k.extend_from_slice(&nid.to_be_bytes());
    k.push(2);
    k
}

/// nid of an `M` key.
pub(crate) fn parse_omap(key: &[u8]) -> Option<u64> {
    Reader(key.strip_prefix(&[OMAP])?).u64()
}

/// Bytes in front of the user's key in an `M` key.
pub(crate) const OMAP_KEY_PREFIX: usize = 10;

/// `D` seq.
pub(crate) fn deferred(seq: u64) -> Bytes {
    let mut k = Vec::with_capacity(9);
    k.push(DEFERRED);
    k.extend_from_slice(&seq.to_be_bytes());
    k.into()
}

/// seq of a `D` key.
pub(crate) fn parse_deferred(key: &[u8]) -> Option<u64> {
    Reader(key.strip_prefix(&[DEFERRED])?).u64()
}

/// The smallest key greater than every key that starts with `k`, which does not end in a run of 0xff to its front.
pub(crate) fn successor(mut k: Vec<u8>) -> Vec<u8> {
    while let Some(last) = k.pop() {
        if last < 0xff {
            k.push(last + 1);
            break;
        }
    }
    k
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }
    fn shard(&mut self) -> Option<i8> {
        self.u8().map(|b| (b ^ 0x80) as i8)
    }
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
    fn i64(&mut self) -> Option<i64> {
        self.u64().map(|v| (v ^ (1 << 63)) as i64)
    }
    fn string(&mut self) -> Option<BString> {
        let mut out = Vec::new();
        loop {
            match (self.u8()?, self.0) {
                (0, [0xff, rest @ ..]) => {
                    out.push(0);
                    self.0 = rest;
                }
                (0, [1, rest @ ..]) => {
                    self.0 = rest;
                    return Some(out.into());
                }
                (0, _) => return None,
                (b, _) => out.push(b),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn random_object(rng: &mut ChaCha8Rng) -> HObject {
        let words: [&[u8]; 9] = [b"", b"a", b"a\0", b"a\0\xff", b"a\x01", b"ab", b"b", b"\xff", b"\0\x01"];
        let mut word = || BString::from(*words.choose(rng).unwrap());
        let (nspace, key, name) = (word(), word(), word());
        HObject {
            pool: PoolId(rng.random_range(-3..3)),
            hash: rng.random_range(0..4) | rng.random_range(0..2) << 31,
            nspace,
            key,
            name,
            snap: *[Snap(1), Snap(2), Snap::HEAD, Snap::DIR].choose(rng).unwrap(),
            max: false,
        }
    }

    #[test]
    fn object_keys_sort_as_objects_and_read_back() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let objects: Vec<HObject> = (0..600).map(|_| random_object(&mut rng)).collect();
        for a in &objects {
            let key = object(-1, a);
            assert_eq!(parse_object(&key), Some((-1, a.clone())));
            assert!(key < object(-1, &HObject::max()) && key > object(-1, &HObject::min()));
            for b in &objects {
                assert_eq!(key.cmp(&object(-1, b)), a.cmp(b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn cut_keys_are_refused() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for _ in 0..200 {
            let key = object(3, &random_object(&mut rng));
            for n in 0..key.len() {
                assert_eq!(parse_object(&key[..n]), None);
            }
        }
    }
}
