//! The journey of a transaction from submission to disk.
//!
//! Upstream: TransContext in src/os/bluestore/BlueStore.h, whose state names these are.

use crate::csum::Csum;
use crate::onode::{Block, Filled, Onode, PendCell, Segment};
use crate::packed::Packed;
use crate::{KvBatch, KvOp, Placed, Policy, TxcId};
use bytes::Bytes;
use qos::Class;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use types::{Mono, ShardPgId};

/// Where a transaction is; what an operator is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TxcState {
    /// Reads blocks that it writes only in part.
    Prepare,
    /// Its data is on the way to the device, or waits for the device's flush.
    AioWait,
    /// Everything it refers to is safe; an earlier transaction of the collection is not that far.
    IoDone,
    /// In the batch of this turn.
    KvQueued,
    /// Applied, waits for the database's flush.
    KvSubmitted,
}

/// A change of the database that a transaction will make.
pub(crate) enum Change {
    Kv(KvOp),
    /// Encoded when its pending checksums are known.
    LateOnode(Bytes, Box<Onode>),
    LateSegment(Bytes, Segment),
    /// Copies header and keys of one nid's omap to another's, as the former is at this place in the order.
    CopyOmap { from: u64, to: u64 },
}

impl Change {
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Change::Kv(KvOp::Put(key.into(), value.into()))
    }

    pub fn delete(key: impl Into<Bytes>) -> Self {
        Change::Kv(KvOp::Delete(key.into()))
    }

    pub fn delete_range(from: impl Into<Bytes>, to: impl Into<Bytes>) -> Self {
        Change::Kv(KvOp::DeleteRange(from.into(), to.into()))
    }

    /// The operation, as far as a reader of keys is concerned: values of late changes may lack checksums.
    pub fn peek(&self) -> Option<KvOp> {
        match self {
            Change::Kv(op) => Some(op.clone()),
            Change::LateOnode(key, onode) => Some(KvOp::Put(key.clone(), onode.to_value())),
            Change::LateSegment(key, seg) => Some(KvOp::Put(key.clone(), seg.to_value())),
            Change::CopyOmap { .. } => None,
        }
    }

    /// What it leaves of a key that belongs to no object: `None` if it does not touch it.
    pub fn row(&self, key: &[u8]) -> Option<Option<&Bytes>> {
        match self {
            Change::Kv(KvOp::Put(k, value)) if k == key => Some(Some(value)),
            Change::Kv(KvOp::Delete(k)) if k == key => Some(None),
            Change::Kv(KvOp::DeleteRange(from, to)) if *from <= *key && *to > *key => Some(None),
            _ => None,
        }
    }

    /// Encodes a change whose checksums are known by now. Not for `CopyOmap`.
    pub fn settle_into(self, batch: &mut KvBatch) {
        match self {
            Change::Kv(op) => batch.ops.push(op),
            Change::LateOnode(key, mut onode) => {
                onode.segs.iter_mut().for_each(settle_all);
                batch.put(key, onode.to_value());
            }
            Change::LateSegment(key, mut seg) => {
                settle_all(&mut seg);
                batch.put(key, seg.to_value());
            }
            Change::CopyOmap { .. } => unreachable!("the caller copies"),
        }
    }
}

fn settle_all(seg: &mut Segment) {
    seg.settle();
    assert!(seg.pend.is_empty(), "a checksum is written before it is known");
}

/// A block for the deferred record: where, and which write of it this is.
pub(crate) struct DeferredWrite {
    pub phys: u64,
    pub write: u64,
    pub content: Content,
}

/// What goes there.
pub(crate) enum Content {
    Ready(Bytes),
    Pend(Arc<PendCell>),
}

impl Content {
    /// The bytes. Panics while they are pending.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Content::Ready(data) => data,
            Content::Pend(cell) => &cell.filled.get().expect("applied before its content is known").data,
        }
    }
}

pub(crate) struct Txc {
    pub id: TxcId,
    pub coll: ShardPgId,
    /// Other collections that it makes or ends.
    pub others: Vec<ShardPgId>,
    pub state: TxcState,
    /// When it was submitted, and since when it is in its state.
    pub submitted: Mono,
    pub since: Mono,
    /// Since when it waits for room among the deferred writes, and how long it did.
    pub throttled: Option<Mono>,
    pub throttled_for: Duration,
    pub changes: Vec<Change>,
    /// On whose account its data is written.
    pub class: Class,
    /// Its data goes straight to free space.
    pub bulk: bool,
    /// How its data is written.
    pub policy: Policy,
    /// Format 1 cannot say what it changes.
    pub extended: bool,
    /// Where it is already, of each write that is still to be planned.
    pub placed: VecDeque<Placed>,
    /// Blocks that travel in the batch.
    pub deferred: Vec<DeferredWrite>,
    /// Seq of its deferred record; 0 if there is none.
    pub deferred_seq: u64,
    /// Blocks that are free once it is durable.
    pub freed: Vec<u64>,
    /// Onodes it pins.
    pub keys: Vec<Bytes>,
    /// The onode whose data is being planned.
    pub planning: Bytes,
    /// Device writes not answered.
    pub ios: u32,
    /// It has written to the device directly and no flush has covered that yet.
    pub unflushed: bool,
    /// Pending blocks not filled.
    pub pending: u32,
}

impl Txc {
    pub fn new(now: Mono, id: TxcId, coll: ShardPgId) -> Self {
        Txc {
            id,
            coll,
            others: Vec::new(),
            state: TxcState::Prepare,
            submitted: now,
            since: now,
            throttled: None,
            throttled_for: Duration::ZERO,
            changes: Vec::new(),
            class: Class::Client,
            bulk: false,
            policy: Policy::default(),
            extended: false,
            placed: VecDeque::new(),
            deferred: Vec::new(),
            deferred_seq: 0,
            freed: Vec::new(),
            keys: Vec::new(),
            planning: Bytes::new(),
            ios: 0,
            unflushed: false,
            pending: 0,
        }
    }
}

/// Where bytes of a pending block come from.
pub(crate) enum Source {
    Bytes(Bytes),
    /// As `Bytes`, but known to be wrong: what is made of it must stay unreadable.
    Bad(Bytes),
    /// Another pending block.
    Cell(Arc<PendCell>),
    /// The device; not read yet.
    Device(Block),
    /// A block of a compressed run that has to be read from the device.
    Packed(Arc<Packed>, u8),
    /// The device; being read.
    Reading,
}

impl Filled {
    /// As a source for other blocks.
    pub fn source(&self) -> Source {
        if self.bad { Source::Bad(self.data.clone()) } else { Source::Bytes(self.data.clone()) }
    }
}

/// `len` bytes of `from`, starting there at `from_at`, go to `at`.
pub(crate) struct Piece {
    pub at: usize,
    pub len: usize,
    pub from_at: usize,
    pub from: Source,
    /// They are added to what is there, bit by bit, and do not take its place.
    pub xor: bool,
}

/// A block that is being put together, later pieces over earlier ones, over zeros.
pub(crate) struct Pend {
    pub cell: Arc<PendCell>,
    pub class: Class,
    /// Internal number of the transaction that writes it.
    pub txc: u64,
    /// Key of the onode and offset in the object, for reports.
    pub key: Bytes,
    pub off: u64,
    pub phys: u64,
    pub csum: Csum,
    /// Its number among the writes through the log.
    pub write: u64,
    pub pieces: Vec<Piece>,
    /// Pieces that are `Cell` or `Reading`.
    pub missing: u32,
    /// Pending blocks that wait for this one.
    pub dependents: Vec<u64>,
}

/// Puts a block together. All pieces must be `Bytes` or `Bad`.
pub(crate) fn compose(phys: u64, csum: Csum, pieces: &[Piece]) -> Filled {
    let mut data = vec![0u8; crate::onode::BLOCK as usize];
    let mut bad = false;
    for p in pieces {
        let from = match &p.from {
            Source::Bytes(b) => b,
            Source::Bad(b) => {
                bad = true;
                b
            }
            _ => unreachable!("composed before its pieces are known"),
        };
        let (to, from) = (&mut data[p.at..p.at + p.len], &from[p.from_at..p.from_at + p.len]);
        match p.xor {
            true => to.iter_mut().zip(from).for_each(|(to, from)| *to ^= from),
            false => to.copy_from_slice(from),
        }
    }
    let block = if bad { Block::spoilt(phys, &data) } else { Block::of(phys, csum, &data) };
    Filled { data: data.into(), block, bad }
}
