//! The store's doors; the engine behind them is in the modules beside this one.

use crate::*;
use bytes::Bytes;
use denc::BString;
use std::collections::BTreeMap;
use std::ops::Bound;
use types::{Errno, HObject, Now, PgId, PoolId, ShardPgId};
use uuid::Uuid;

/// The collection for what belongs to the OSD itself (superblock, maps): pool -1, every hash (create it with 0 bits).
pub const META_COLL: ShardPgId = ShardPgId { pg: PgId { pool: PoolId(-1), seed: 0 }, shard: ShardPgId::NO_SHARD };

/// One OSD's objects.
///
/// Objects of a collection are those of its pool (or of the pool's temporary twin, number -2 - pool) whose hash agrees
/// with the PG's seed in the collection's bits. Whoever drives a store calls `poll_event` until it returns `None` after
/// every turn in which it submitted, read, or handed in a completion: that is also when writing starts, so that what
/// was submitted in one turn shares one flush.
pub struct Store<D, K> {
    dev: D,
    kv: K,
}

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// Makes an empty store. Fails if there is one.
    pub fn mkfs(dev: &mut D, kv: &mut K, fsid: Uuid, osd_uuid: Uuid, whoami: i32) -> Result<(), MkfsError> {
        todo!()
    }

    /// Opens a store, reading all its metadata once. `fsid` and `whoami`: what the caller believes to open.
    pub fn mount(dev: D, kv: K, config: StoreConfig, fsid: Uuid, whoami: i32) -> Result<Self, MountError> {
        todo!()
    }

    /// Takes in a transaction: in effect for metadata reads at once, `StoreEvent::Committed` when durable.
    /// Refused as a whole, with nothing done: ENOSPC, ENOENT (no such collection; cloning or moving nothing),
    /// EEXIST (collection), ENOTEMPTY (removing a collection with objects), EFBIG, EIO (poisoned).
    pub fn submit(&mut self, now: Now, txc: TxcId, txn: Transaction) -> Result<(), Errno> {
        todo!()
    }

    /// Reads data; answered by `StoreEvent::ReadDone`, at the next `poll_event` if everything is in memory.
    /// `len` may reach past the end.
    pub fn read(&mut self, id: ReadId, coll: ShardPgId, obj: &HObject, off: u64, len: u64, flags: ReadFlags) {
        todo!()
    }

    /// A device or key-value I/O has ended.
    pub fn handle_io(&mut self, now: Now, id: IoId, result: Result<Bytes, Errno>) {
        todo!()
    }

    /// Starts what is due, and takes the next thing the store has to say.
    pub fn poll_event(&mut self) -> Option<StoreEvent> {
        todo!()
    }

    pub fn exists(&mut self, coll: ShardPgId, obj: &HObject) -> Result<bool, Errno> {
        todo!()
    }

    /// ENOENT if there is no such object (here and below); EIO if the database cannot be read.
    pub fn stat(&mut self, coll: ShardPgId, obj: &HObject) -> Result<ObjectStat, Errno> {
        todo!()
    }

    /// ENODATA if the object has no such attribute.
    pub fn getattr(&mut self, coll: ShardPgId, obj: &HObject, name: &[u8]) -> Result<Bytes, Errno> {
        todo!()
    }

    pub fn getattrs(&mut self, coll: ShardPgId, obj: &HObject) -> Result<BTreeMap<BString, Bytes>, Errno> {
        todo!()
    }

    /// Empty if none was set.
    pub fn omap_get_header(&mut self, coll: ShardPgId, obj: &HObject) -> Result<Bytes, Errno> {
        todo!()
    }

    /// The pairs that exist among `keys`, in the order asked.
    pub fn omap_get_values(&mut self, coll: ShardPgId, obj: &HObject, keys: &[BString]) -> Result<Vec<(BString, Bytes)>, Errno> {
        todo!()
    }

    /// Up to `limit` pairs from `from` on, ascending.
    pub fn omap_list(&mut self, coll: ShardPgId, obj: &HObject, from: Bound<&[u8]>, limit: usize) -> Result<Vec<(BString, Bytes)>, Errno> {
        todo!()
    }

    /// Up to `limit` objects of the collection from `from` (included) to `to` (excluded), sorted, and where to go on:
    /// `to` itself when nothing is left.
    pub fn list(&mut self, coll: ShardPgId, from: &HObject, to: &HObject, limit: usize) -> Result<(Vec<HObject>, HObject), Errno> {
        todo!()
    }

    /// Every collection with its bits.
    pub fn collections(&self) -> Vec<(ShardPgId, u32)> {
        todo!()
    }

    /// A key of the collection itself; what is in flight is visible.
    pub fn coll_get(&mut self, coll: ShardPgId, key: &[u8]) -> Result<Option<Bytes>, Errno> {
        todo!()
    }

    /// Up to `limit` keys of the collection itself in `[from, to]` as bounded, ascending.
    pub fn coll_scan(&mut self, coll: ShardPgId, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<(BString, Bytes)>, Errno> {
        todo!()
    }

    pub fn statfs(&self) -> StatFs {
        todo!()
    }

    /// True when nothing is in flight: `umount` loses nothing that was submitted.
    pub fn is_idle(&self) -> bool {
        todo!()
    }

    /// Gives device and engine back. What was not committed is lost.
    pub fn umount(self) -> (D, K) {
        (self.dev, self.kv)
    }
}
