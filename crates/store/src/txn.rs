//! Transactions: what to write, all of it or nothing.
//!
//! Upstream: src/os/Transaction.h.

use crate::buf::Cutter;
use bytes::Bytes;
use denc::{BString, Decode, DecodeError, Encode};
use types::msg::BufList;
use types::{HObject, ShardPgId};

/// An object of a transaction: its place in `Transaction::objects`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct ObjIdx(pub u32);

/// How an object will be used (`set_alloc_hint`); kept with it, returned by `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct AllocHint {
    /// Bytes.
    pub expected_object_size: u64,
    /// Bytes.
    pub expected_write_size: u64,
    /// `CEPH_OSD_ALLOC_HINT_FLAG_*`.
    pub flags: u32,
}

impl AllocHint {
    /// Bits of `flags` (`CEPH_OSD_ALLOC_HINT_FLAG_*`) that count here.
    pub const RANDOM_WRITE: u32 = 2;
    pub const SEQUENTIAL_READ: u32 = 4;
    pub const RANDOM_READ: u32 = 8;
    pub const APPEND_ONLY: u32 = 16;
    pub const IMMUTABLE: u32 = 32;
    pub const COMPRESSIBLE: u32 = 256;
    pub const INCOMPRESSIBLE: u32 = 512;
}

/// One step. Steps on an object that does not exist create it where they add something (`Touch`, `Write`, `Xor`, `Zero`,
/// `Truncate`, `SetAttrs`, `OmapSet`, `OmapSetHeader`, `SetAllocHint`, the target of a clone) and do nothing where
/// they take something away. Cloning or moving what does not exist refuses the whole transaction with ENOENT.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Op {
    #[denc(tag = 1)]
    Touch(ObjIdx),
    /// Extends the object if needed; what lies between reads as zeros.
    #[denc(tag = 2)]
    Write { obj: ObjIdx, off: u64, data: BufList },
    /// The range reads as zeros and gives its space back; extends the object if needed.
    #[denc(tag = 3)]
    Zero { obj: ObjIdx, off: u64, len: u64 },
    /// Sets the size: cuts, or extends with a hole.
    #[denc(tag = 4)]
    Truncate { obj: ObjIdx, size: u64 },
    /// Data, attributes, omap: all of it.
    #[denc(tag = 5)]
    Remove(ObjIdx),
    #[denc(tag = 6)]
    SetAttrs { obj: ObjIdx, attrs: Vec<(BString, Bytes)> },
    #[denc(tag = 7)]
    RmAttr { obj: ObjIdx, name: BString },
    #[denc(tag = 8)]
    RmAttrs(ObjIdx),
    /// `to` becomes a copy of `from`: data (shared until written), attributes, omap. What `to` was is gone.
    #[denc(tag = 9)]
    Clone { from: ObjIdx, to: ObjIdx },
    /// Copies a range of data over `to`'s; past the end of `from` nothing is copied.
    #[denc(tag = 10)]
    CloneRange { from: ObjIdx, to: ObjIdx, from_off: u64, len: u64, to_off: u64 },
    /// Gives the object another name in the same collection; what was there is gone.
    #[denc(tag = 11)]
    Rename { from: ObjIdx, to: ObjIdx },
    #[denc(tag = 12)]
    OmapSet { obj: ObjIdx, pairs: Vec<(BString, Bytes)> },
    #[denc(tag = 13)]
    OmapRm { obj: ObjIdx, keys: Vec<BString> },
    /// Keys from `from` (included) to `to` (excluded).
    #[denc(tag = 14)]
    OmapRmRange { obj: ObjIdx, from: BString, to: BString },
    /// Keys and header.
    #[denc(tag = 15)]
    OmapClear(ObjIdx),
    #[denc(tag = 16)]
    OmapSetHeader { obj: ObjIdx, header: Bytes },
    #[denc(tag = 17)]
    SetAllocHint { obj: ObjIdx, hint: AllocHint },
    /// The collection holds objects whose hash agrees with the PG's seed in the low `bits` bits.
    #[denc(tag = 18)]
    CreateColl { bits: u32 },
    /// The collection and its own keys. It must hold no objects (else ENOTEMPTY).
    #[denc(tag = 19)]
    RemoveColl,
    /// Changes how many bits of the hash the collection goes by: after a split its other half belongs to the
    /// collection that is created for it.
    #[denc(tag = 20)]
    SetCollBits { bits: u32 },
    /// Keys of the collection itself (pg info, pg log, ...). Those that begin with `l` are a log's: the engine keeps
    /// them in memory.
    #[denc(tag = 21)]
    CollSet { pairs: Vec<(BString, Bytes)> },
    #[denc(tag = 22)]
    CollRm { keys: Vec<BString> },
    /// Keys from `from` (included) to `to` (excluded).
    #[denc(tag = 23)]
    CollRmRange { from: BString, to: BString },
    /// As `Touch`, for an object that does not exist. As the first step of a transaction it spares the look into the
    /// database: the caller answers for there being no such object.
    #[denc(tag = 24)]
    Create(ObjIdx),
    /// The steps behind it are another collection's own, which the first of them makes. After all steps on objects. For a
    /// collection that is split: objects that the new one takes over from the old one stay in order.
    #[denc(tag = 25)]
    On { coll: ShardPgId },
    /// Another collection ends, with its own keys; its objects are this one's, whose bits must be such that it holds them.
    /// What the other one still has to do to them comes first.
    #[denc(tag = 26)]
    MergeColl { from: ShardPgId },
    /// Data becomes the sum of what is there and this, bit by bit; where nothing is there are zeros. Extends the object if needed.
    #[denc(tag = 27)]
    Xor { obj: ObjIdx, off: u64, data: BufList },
}

/// A list of steps on one collection that happen all or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Transaction {
    pub coll: ShardPgId,
    /// Every object the steps speak of, once.
    pub objects: Vec<HObject>,
    pub ops: Vec<Op>,
}

impl Transaction {
    /// Does nothing yet.
    pub fn new(coll: ShardPgId) -> Self {
        Transaction { coll, objects: Vec::new(), ops: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// For the wire: everything but the written data, and the data, not copied.
    pub fn to_wire(&self) -> (Bytes, BufList) {
        let mut bare = Transaction { coll: self.coll, objects: self.objects.clone(), ops: Vec::with_capacity(self.ops.len()) };
        let (mut lengths, mut all) = (Vec::new(), BufList::default());
        for op in &self.ops {
            bare.ops.push(match op {
                Op::Write { obj, off, data } => {
                    lengths.push(data.len() as u32);
                    all.append(data.clone());
                    Op::Write { obj: *obj, off: *off, data: BufList::default() }
                }
                other => other.clone(),
            });
        }
        (denc::to_bytes(&(bare, lengths), 0), all)
    }

    /// The transaction that `to_wire` took apart; it shares `data`.
    pub fn from_wire(bare: &Bytes, data: &BufList) -> Result<Self, DecodeError> {
        let (mut txn, lengths): (Transaction, Vec<u32>) = denc::from_bytes(bare)?;
        let mut left = data.len();
        let mut cutter = Cutter::new(data.clone());
        let mut lengths = lengths.into_iter();
        for op in &mut txn.ops {
            let indices_ok = std::cell::Cell::new(true);
            op.for_each_obj(|o| indices_ok.set(indices_ok.get() && (o.0 as usize) < txn.objects.len()));
            if !indices_ok.get() {
                return Err(DecodeError::Invalid("transaction: object index"));
            }
            if let Op::Write { data, .. } = op {
                let n = lengths.next().ok_or(DecodeError::Invalid("transaction: data lengths"))? as usize;
                left = left.checked_sub(n).ok_or(DecodeError::Short { wanted: n, left })?;
                *data = cutter.take(n);
            }
        }
        if left > 0 { Err(DecodeError::Trailing(left)) } else { Ok(txn) }
    }

    /// The index of an object, for pushing an `Op` by hand.
    pub fn obj(&mut self, obj: &HObject) -> ObjIdx {
        // A transaction speaks of one or two objects: looking from the end finds them at once.
        let at = self.objects.iter().rposition(|o| o == obj).unwrap_or_else(|| {
            self.objects.push(obj.clone());
            self.objects.len() - 1
        });
        ObjIdx(at as u32)
    }

    /// Appends the steps of another transaction on the same collection.
    pub fn append(&mut self, other: Transaction) {
        assert_eq!(self.coll, other.coll, "a transaction has one collection");
        let places: Vec<ObjIdx> = other.objects.iter().map(|o| self.obj(o)).collect();
        let place = |o: &mut ObjIdx| *o = places[o.0 as usize];
        for mut op in other.ops {
            op.for_each_obj(place);
            self.ops.push(op);
        }
    }

    pub fn touch(&mut self, obj: &HObject) {
        let obj = self.obj(obj);
        self.ops.push(Op::Touch(obj));
    }

    /// See `Op::Create`.
    pub fn create(&mut self, obj: &HObject) {
        let obj = self.obj(obj);
        self.ops.push(Op::Create(obj));
    }

    pub fn write(&mut self, obj: &HObject, off: u64, data: impl Into<BufList>) {
        let obj = self.obj(obj);
        self.ops.push(Op::Write { obj, off, data: data.into() });
    }

    pub fn xor(&mut self, obj: &HObject, off: u64, data: impl Into<BufList>) {
        let obj = self.obj(obj);
        self.ops.push(Op::Xor { obj, off, data: data.into() });
    }

    pub fn zero(&mut self, obj: &HObject, off: u64, len: u64) {
        let obj = self.obj(obj);
        self.ops.push(Op::Zero { obj, off, len });
    }

    pub fn truncate(&mut self, obj: &HObject, size: u64) {
        let obj = self.obj(obj);
        self.ops.push(Op::Truncate { obj, size });
    }

    pub fn remove(&mut self, obj: &HObject) {
        let obj = self.obj(obj);
        self.ops.push(Op::Remove(obj));
    }

    pub fn set_attr(&mut self, obj: &HObject, name: impl Into<BString>, value: impl Into<Bytes>) {
        let obj = self.obj(obj);
        self.ops.push(Op::SetAttrs { obj, attrs: vec![(name.into(), value.into())] });
    }

    pub fn set_attrs(&mut self, obj: &HObject, attrs: Vec<(BString, Bytes)>) {
        let obj = self.obj(obj);
        self.ops.push(Op::SetAttrs { obj, attrs });
    }

    pub fn rm_attr(&mut self, obj: &HObject, name: impl Into<BString>) {
        let obj = self.obj(obj);
        self.ops.push(Op::RmAttr { obj, name: name.into() });
    }

    pub fn rm_attrs(&mut self, obj: &HObject) {
        let obj = self.obj(obj);
        self.ops.push(Op::RmAttrs(obj));
    }

    pub fn clone_obj(&mut self, from: &HObject, to: &HObject) {
        let (from, to) = (self.obj(from), self.obj(to));
        self.ops.push(Op::Clone { from, to });
    }

    pub fn clone_range(&mut self, from: &HObject, to: &HObject, from_off: u64, len: u64, to_off: u64) {
        let (from, to) = (self.obj(from), self.obj(to));
        self.ops.push(Op::CloneRange { from, to, from_off, len, to_off });
    }

    pub fn rename(&mut self, from: &HObject, to: &HObject) {
        let (from, to) = (self.obj(from), self.obj(to));
        self.ops.push(Op::Rename { from, to });
    }

    pub fn omap_set(&mut self, obj: &HObject, pairs: Vec<(BString, Bytes)>) {
        let obj = self.obj(obj);
        self.ops.push(Op::OmapSet { obj, pairs });
    }

    pub fn omap_rm(&mut self, obj: &HObject, keys: Vec<BString>) {
        let obj = self.obj(obj);
        self.ops.push(Op::OmapRm { obj, keys });
    }

    pub fn omap_rm_range(&mut self, obj: &HObject, from: impl Into<BString>, to: impl Into<BString>) {
        let obj = self.obj(obj);
        self.ops.push(Op::OmapRmRange { obj, from: from.into(), to: to.into() });
    }

    pub fn omap_clear(&mut self, obj: &HObject) {
        let obj = self.obj(obj);
        self.ops.push(Op::OmapClear(obj));
    }

    pub fn omap_set_header(&mut self, obj: &HObject, header: impl Into<Bytes>) {
        let obj = self.obj(obj);
        self.ops.push(Op::OmapSetHeader { obj, header: header.into() });
    }

    pub fn set_alloc_hint(&mut self, obj: &HObject, hint: AllocHint) {
        let obj = self.obj(obj);
        self.ops.push(Op::SetAllocHint { obj, hint });
    }

    pub fn create_coll(&mut self, bits: u32) {
        self.ops.push(Op::CreateColl { bits });
    }

    pub fn remove_coll(&mut self) {
        self.ops.push(Op::RemoveColl);
    }

    pub fn set_coll_bits(&mut self, bits: u32) {
        self.ops.push(Op::SetCollBits { bits });
    }

    /// See `Op::MergeColl`.
    pub fn merge_coll(&mut self, from: ShardPgId) {
        self.ops.push(Op::MergeColl { from });
    }

    pub fn coll_set(&mut self, key: impl Into<BString>, value: impl Into<Bytes>) {
        self.ops.push(Op::CollSet { pairs: vec![(key.into(), value.into())] });
    }

    pub fn coll_rm(&mut self, key: impl Into<BString>) {
        self.ops.push(Op::CollRm { keys: vec![key.into()] });
    }

    /// The steps that follow are `coll`'s own.
    pub fn on(&mut self, coll: ShardPgId) {
        self.ops.push(Op::On { coll });
    }

    pub fn coll_rm_range(&mut self, from: impl Into<BString>, to: impl Into<BString>) {
        self.ops.push(Op::CollRmRange { from: from.into(), to: to.into() });
    }
}

impl Op {
    /// Shows every object index of the step to `f`, which may change it.
    fn for_each_obj(&mut self, mut f: impl FnMut(&mut ObjIdx)) {
        match self {
            Op::Touch(obj) | Op::Create(obj) | Op::Remove(obj) | Op::RmAttrs(obj) | Op::OmapClear(obj) => f(obj),
            Op::Write { obj, .. }
            | Op::Xor { obj, .. }
            | Op::Zero { obj, .. }
            | Op::Truncate { obj, .. }
            | Op::SetAttrs { obj, .. }
            | Op::RmAttr { obj, .. }
            | Op::OmapSet { obj, .. }
            | Op::OmapRm { obj, .. }
            | Op::OmapRmRange { obj, .. }
            | Op::OmapSetHeader { obj, .. }
            | Op::SetAllocHint { obj, .. } => f(obj),
            Op::Clone { from, to } | Op::CloneRange { from, to, .. } | Op::Rename { from, to } => {
                f(from);
                f(to);
            }
            Op::CreateColl { .. }
            | Op::RemoveColl
            | Op::SetCollBits { .. }
            | Op::CollSet { .. }
            | Op::CollRm { .. }
            | Op::CollRmRange { .. }
            | Op::On { .. }
            | Op::MergeColl { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{PgId, PoolId};

    fn sample() -> Transaction {
        let a = HObject { pool: PoolId(1), name: "a".into(), ..HObject::min() };
        let b = HObject { name: "b".into(), ..a.clone() };
        let mut t = Transaction::new(ShardPgId::whole(PgId { pool: PoolId(1), seed: 0 }));
        t.create_coll(0);
        t.write(&a, 5, Bytes::from_static(b"hello"));
        t.write(&b, 0, BufList::from(vec![Bytes::from_static(b"wor"), Bytes::from_static(b"ld")]));
        t.set_attr(&a, "_", Bytes::from_static(b"x"));
        t.clone_range(&a, &b, 1, 2, 3);
        t.omap_set(&b, vec![("k".into(), Bytes::from_static(b"v"))]);
        t.coll_rm_range("a", "b");
        t
    }

    #[test]
    fn transactions_travel_with_their_data_beside_them() {
        let t = sample();
        let (bare, data) = t.to_wire();
        assert_eq!(data.contiguous(), "helloworld");
        let back = Transaction::from_wire(&bare, &data.contiguous().into()).unwrap();
        assert_eq!(back.to_wire().1.contiguous(), "helloworld");
        assert_eq!((back.ops.len(), back.objects), (t.ops.len(), t.objects));
    }

    #[test]
    fn damaged_transactions_are_refused() {
        let (bare, data) = sample().to_wire();
        for n in 0..bare.len() {
            assert!(Transaction::from_wire(&bare.slice(..n), &data).is_err());
            let mut b = bare.to_vec();
            b[n] ^= 0x55;
            let _ = Transaction::from_wire(&b.into(), &data);
        }
        assert!(Transaction::from_wire(&bare, &BufList::default()).is_err());
    }
}
