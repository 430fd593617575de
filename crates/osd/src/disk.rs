//! The store as the core sees it: a door narrow enough to pass as `&mut dyn`.
//!
//! Room: osd core.   Holds: what is submitted is at once visible to every metadata call, so a turn may plan on it; what
//! is *said* of it waits for `Committed`.
//! Why not an effect: a turn often submits two writes to one object, and the second one is planned on the first.

use admin::perf::PerfCounters;
use bytes::Bytes;
use denc::BString;
use qos::{Class, DeviceModel, Share};
use std::collections::BTreeMap;
use std::ops::Bound;
use store::{
    BlockDev, Bulk, Compressed, DeviceFacts, DeviceUse, Kv, Memory, ObjectStat, PlaceId, Placed, Policy, ReadData, ReadFlags, ReadId, StatFs, Store, StoreMemory, Transaction, Tuning,
    TxcId, WriteBuffer,
};
use types::msg::BufList;
use types::{Errno, HObject, Now, PoolId, ShardPgId};

/// See `store::Store` for what each call promises.
#[allow(missing_docs)]
pub trait Disk {
    fn submit(&mut self, now: Now, txc: TxcId, txn: Transaction) -> Result<(), Errno>;
    fn submit_bulk(&mut self, now: Now, txc: TxcId, txn: Transaction, how: Bulk) -> Result<(), Errno>;
    fn submit_as(&mut self, now: Now, txc: TxcId, txn: Transaction, class: Class) -> Result<(), Errno>;
    fn place(&mut self, now: Now, id: PlaceId, class: Class, pool: PoolId, pieces: Vec<BufList>) -> bool;
    fn give_back(&mut self, placed: Placed);
    fn read(&mut self, id: ReadId, coll: ShardPgId, obj: &HObject, off: u64, len: u64, flags: ReadFlags);
    fn read_now(&mut self, id: ReadId, coll: ShardPgId, obj: &HObject, off: u64, len: u64, flags: ReadFlags) -> Option<ReadData>;
    fn stat(&mut self, coll: ShardPgId, obj: &HObject) -> Result<ObjectStat, Errno>;
    fn getattr(&mut self, coll: ShardPgId, obj: &HObject, name: &[u8]) -> Result<Bytes, Errno>;
    fn getattr_pair(&mut self, coll: ShardPgId, obj: &HObject, names: [&[u8]; 2]) -> Result<[Option<Bytes>; 2], Errno>;
    fn getattrs(&mut self, coll: ShardPgId, obj: &HObject) -> Result<BTreeMap<BString, Bytes>, Errno>;
    fn omap_get_header(&mut self, coll: ShardPgId, obj: &HObject) -> Result<Bytes, Errno>;
    fn omap_get_values(&mut self, coll: ShardPgId, obj: &HObject, keys: &[BString]) -> Result<Pairs, Errno>;
    fn omap_list(&mut self, coll: ShardPgId, obj: &HObject, from: Bound<&[u8]>, limit: usize) -> Result<Pairs, Errno>;
    fn list(&mut self, coll: ShardPgId, from: &HObject, to: &HObject, limit: usize)
    -> Result<(Vec<HObject>, HObject), Errno>;
    fn collections(&self) -> Vec<(ShardPgId, u32)>;
    fn coll_get(&mut self, coll: ShardPgId, key: &[u8]) -> Result<Option<Bytes>, Errno>;
    fn coll_scan(&mut self, coll: ShardPgId, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Pairs, Errno>;
    fn statfs(&self) -> StatFs;
    /// Bytes available for data, and bytes in all: the two cheap ones of `statfs`.
    fn space(&self) -> (u64, u64);
    fn set_share(&mut self, now: Now, class: Class, share: Share);
    fn set_capacity(&mut self, iops: Option<f64>);
    /// See `Store::device`.
    fn device(&self) -> &DeviceModel;
    fn facts(&self) -> DeviceFacts;
    fn compressed(&self) -> &BTreeMap<PoolId, Compressed>;
    /// See `Store::tune` and `Store::set_policies`.
    fn configure(&mut self, tuning: Tuning, others: Policy, pools: BTreeMap<PoolId, Policy>);
    fn set_memory(&mut self, memory: Memory);
    fn memory(&self) -> StoreMemory;
    fn drop_caches(&mut self);
    fn perf(&mut self) -> Vec<&mut PerfCounters>;
    fn device_use(&self) -> DeviceUse;
    /// See `BlockDev::buffer`.
    fn buffer(&self, len: usize) -> Box<dyn WriteBuffer>;
}

/// Keys with their values, ascending.
pub type Pairs = Vec<(BString, Bytes)>;

impl<D: BlockDev, K: Kv> Disk for Store<D, K> {
    fn submit(&mut self, now: Now, txc: TxcId, txn: Transaction) -> Result<(), Errno> {
        Store::submit(self, now, txc, txn)
    }
    fn submit_bulk(&mut self, now: Now, txc: TxcId, txn: Transaction, how: Bulk) -> Result<(), Errno> {
        Store::submit_bulk(self, now, txc, txn, how)
    }
    fn place(&mut self, now: Now, id: PlaceId, class: Class, pool: PoolId, pieces: Vec<BufList>) -> bool {
        Store::place(self, now, id, class, pool, pieces)
    }
    fn give_back(&mut self, placed: Placed) {
        Store::give_back(self, placed);
    }
    fn submit_as(&mut self, now: Now, txc: TxcId, txn: Transaction, class: Class) -> Result<(), Errno> {
        Store::submit_as(self, now, txc, txn, class)
    }
    fn read(&mut self, id: ReadId, coll: ShardPgId, obj: &HObject, off: u64, len: u64, flags: ReadFlags) {
        Store::read(self, id, coll, obj, off, len, flags);
    }
    fn read_now(&mut self, id: ReadId, coll: ShardPgId, obj: &HObject, off: u64, len: u64, flags: ReadFlags) -> Option<ReadData> {
        Store::read_now(self, id, coll, obj, off, len, flags)
    }
    fn stat(&mut self, coll: ShardPgId, obj: &HObject) -> Result<ObjectStat, Errno> {
        Store::stat(self, coll, obj)
    }
    fn getattr(&mut self, coll: ShardPgId, obj: &HObject, name: &[u8]) -> Result<Bytes, Errno> {
        Store::getattr(self, coll, obj, name)
    }
    fn getattr_pair(&mut self, coll: ShardPgId, obj: &HObject, names: [&[u8]; 2]) -> Result<[Option<Bytes>; 2], Errno> {
        Store::getattr_pair(self, coll, obj, names)
    }
    fn getattrs(&mut self, coll: ShardPgId, obj: &HObject) -> Result<BTreeMap<BString, Bytes>, Errno> {
        Store::getattrs(self, coll, obj)
    }
    fn omap_get_header(&mut self, coll: ShardPgId, obj: &HObject) -> Result<Bytes, Errno> {
        Store::omap_get_header(self, coll, obj)
    }
    fn omap_get_values(&mut self, coll: ShardPgId, obj: &HObject, keys: &[BString]) -> Result<Pairs, Errno> {
        Store::omap_get_values(self, coll, obj, keys)
    }
    fn omap_list(&mut self, coll: ShardPgId, obj: &HObject, from: Bound<&[u8]>, limit: usize) -> Result<Pairs, Errno> {
        Store::omap_list(self, coll, obj, from, limit)
    }
    fn list(
        &mut self,
        coll: ShardPgId,
        from: &HObject,
        to: &HObject,
        limit: usize,
    ) -> Result<(Vec<HObject>, HObject), Errno> {
        Store::list(self, coll, from, to, limit)
    }
    fn collections(&self) -> Vec<(ShardPgId, u32)> {
        Store::collections(self)
    }
    fn coll_get(&mut self, coll: ShardPgId, key: &[u8]) -> Result<Option<Bytes>, Errno> {
        Store::coll_get(self, coll, key)
    }
    fn coll_scan(&mut self, coll: ShardPgId, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Pairs, Errno> {
        Store::coll_scan(self, coll, from, to, limit)
    }
    fn statfs(&self) -> StatFs {
        Store::statfs(self)
    }
    fn space(&self) -> (u64, u64) {
        (self.available(), self.total())
    }
    fn set_share(&mut self, now: Now, class: Class, share: Share) {
        Store::set_share(self, now, class, share);
    }
    fn set_capacity(&mut self, iops: Option<f64>) {
        Store::set_capacity(self, iops);
    }
    fn device(&self) -> &DeviceModel {
        Store::device(self)
    }
    fn facts(&self) -> DeviceFacts {
        Store::facts(self)
    }
    fn compressed(&self) -> &BTreeMap<PoolId, Compressed> {
        Store::compressed(self)
    }
    fn configure(&mut self, tuning: Tuning, others: Policy, pools: BTreeMap<PoolId, Policy>) {
        self.tune(tuning);
        self.set_policies(others, pools);
    }
    fn set_memory(&mut self, memory: Memory) {
        Store::set_memory(self, memory);
    }
    fn memory(&self) -> StoreMemory {
        Store::memory(self)
    }
    fn drop_caches(&mut self) {
        Store::drop_caches(self);
    }
    fn perf(&mut self) -> Vec<&mut PerfCounters> {
        Store::perf(self)
    }
    fn device_use(&self) -> DeviceUse {
        Store::device_use(self)
    }
    fn buffer(&self, len: usize) -> Box<dyn WriteBuffer> {
        Store::buffer(self, len)
    }
}
