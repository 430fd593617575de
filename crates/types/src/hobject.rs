//! Object names and where they sort.
//!
//! Holds: objects sort by pool, then by the *bit-reversed* hash, then namespace, key, name, snap: a PG is a
//! contiguous range, and stays one when it splits.
//! Upstream: src/common/hobject.{h,cc}, src/osd/osd_types.h (object_locator_t).

use crate::id::PoolId;
use denc::{BString, Decode, DecodeError, Decoder, Encode, Encoder};
use std::cmp::Ordering;
use std::fmt;

/// A snapshot id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Snap(pub u64);

impl Snap {
    /// The live object (`CEPH_NOSNAP`).
    pub const HEAD: Snap = Snap(u64::MAX - 1);
    /// All clones of an object (`CEPH_SNAPDIR`).
    pub const DIR: Snap = Snap(u64::MAX);
}
impl Default for Snap {
    fn default() -> Self {
        Snap::HEAD
    }
}

/// An object of a pool, or the end of everything (`hobject_t`). What tells two apart most cheaply comes first, for they are compared so.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HObject {
    pub pool: PoolId,
    /// Placement hash of the locator key or the name.
    pub hash: u32,
    pub snap: Snap,
    pub nspace: BString,
    /// Locator key; empty when the name itself is hashed.
    pub key: BString,
    pub name: BString,
    /// Sorts after every object.
    pub max: bool,
}

impl HObject {
    /// Before every object: the cursor a listing starts from.
    pub fn min() -> Self {
        HObject {
            pool: PoolId(i64::MIN),
            hash: 0,
            nspace: BString::default(),
            key: BString::default(),
            name: BString::default(),
            snap: Snap(0),
            max: false,
        }
    }

    /// After every object.
    pub fn max() -> Self {
        HObject { max: true, ..Self::min() }
    }

    /// True for `min()`.
    pub fn is_min(&self) -> bool {
        *self == Self::min()
    }

    /// The hash with its bits reversed: what objects are sorted by.
    pub fn sort_hash(&self) -> u32 {
        self.hash.reverse_bits()
    }

    /// What decides the placement: the locator key where there is one.
    pub fn effective_key(&self) -> &BString {
        if self.key.is_empty() { &self.name } else { &self.key }
    }
}

impl fmt::Display for HObject {
    /// `1:4d1fa5a3:nspace:key:name:head`, as logs show it: pool, the hash as it sorts, names, snapshot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max {
            return f.write_str("MAX");
        }
        if self.is_min() {
            return f.write_str("MIN");
        }
        write!(f, "{}:{:08x}:{}:{}:{}:", self.pool, self.sort_hash(), self.nspace, self.key, self.name)?;
        match self.snap {
            Snap::HEAD => f.write_str("head"),
            Snap::DIR => f.write_str("snapdir"),
            Snap(id) => write!(f, "{id:x}"),
        }
    }
}

impl Default for HObject {
    /// The minimum.
    fn default() -> Self {
        HObject::min()
    }
}

impl Ord for HObject {
    fn cmp(&self, o: &Self) -> Ordering {
        let end = self.max.cmp(&o.max);
        if self.max || o.max {
            return end;
        }
        self.pool
            .cmp(&o.pool)
            .then_with(|| self.sort_hash().cmp(&o.sort_hash()))
            .then_with(|| self.nspace.cmp(&o.nspace))
            .then_with(|| self.effective_key().cmp(o.effective_key()))
            .then_with(|| self.name.cmp(&o.name))
            .then_with(|| self.snap.cmp(&o.snap))
            .then_with(|| self.key.cmp(&o.key))
    }
}
impl PartialOrd for HObject {
    fn partial_cmp(&self, o: &Self) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

impl Encode for HObject {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(4, 3, |e| {
            e.put(&self.key).put(&self.name).put(&self.snap).put(&self.hash);
            e.put(&self.max).put(&self.nspace).put(&self.pool);
        });
    }
}
impl Decode for HObject {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("hobject_t", 4, |v, d| {
            let key = if v >= 1 { d.get()? } else { BString::default() };
            let (name, snap, hash) = (d.get()?, d.get()?, d.get()?);
            let max = if v >= 2 { d.get()? } else { false };
            let (nspace, pool) = if v >= 4 { (d.get()?, d.get()?) } else { (BString::default(), PoolId(-1)) };
            let o = HObject { pool, hash, nspace, key, name, snap, max };
            // Older releases wrote the minimum with pool -1.
            let was_min = o.pool == PoolId(-1) && o.snap == Snap(0) && o.hash == 0 && !o.max && o.name.is_empty();
            Ok(if was_min { HObject::min() } else { o })
        })
    }
}

/// Where a request says its object is (`object_locator_t`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectLocator {
    pub pool: PoolId,
    pub key: BString,
    pub nspace: BString,
    /// Placement by this position instead of a name; -1: by name.
    pub hash: i64,
}

impl ObjectLocator {
    /// The pool's default namespace, placed by name.
    pub fn pool(pool: PoolId) -> Self {
        ObjectLocator { pool, key: BString::default(), nspace: BString::default(), hash: -1 }
    }
}
impl Encode for ObjectLocator {
    fn encode(&self, e: &mut Encoder) {
        // Only a position needs readers of version 6.
        let compat = if self.hash != -1 { 6 } else { 3 };
        e.envelope(6, compat, |e| {
            e.put(&self.pool).put(&-1i32).put(&self.key).put(&self.nspace).put(&self.hash);
        });
    }
}
impl Decode for ObjectLocator {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("object_locator_t", 6, |v, d| {
            let pool = if v < 2 { PoolId(d.get::<i32>()?.into()) } else { d.get()? };
            if v < 2 {
                let _preferred: i16 = d.get()?;
            } else {
                let _preferred: i32 = d.get()?;
            }
            let key = d.get()?;
            let nspace = if v >= 5 { d.get()? } else { BString::default() };
            let hash = if v >= 6 { d.get()? } else { -1 };
            Ok(ObjectLocator { pool, key, nspace, hash })
        })
    }
}
