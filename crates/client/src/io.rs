//! Objects of one pool, as `librados` offers them.
//!
//! Upstream: src/librados/IoCtxImpl.cc, src/osdc/Objecter.h (ObjectOperation).

use crate::handle::{Handle, Watch, check};
use crate::objecter::{OpReply, OpRequest, WatchEvent};
use bytes::Bytes;
use denc::{BString, Decode, DecodeError, Decoder};
use std::collections::{BTreeMap, BTreeSet};
use types::msg::osd::osd_flag;
use types::msg::pool::pool_op;
use types::msg::{Op, OsdOp};
use types::{EntityAddr, EntityInst, Errno, PoolId, Snap, Utime};

/// Objects of a pool, in one namespace.
#[derive(Clone)]
pub struct IoCtx {
    pub(crate) handle: Handle,
    pool: PoolId,
    pub(crate) nspace: BString,
    key: BString,
    snap: Snap,
    /// What writes are kept from: the newest snapshot there ever was, and those that there are, newest first.
    kept: (Snap, Vec<Snap>),
    /// With every write.
    flags: u32,
}

/// Who watches an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watcher {
    pub name: EntityInst,
    pub cookie: u64,
    pub timeout_s: u32,
    pub addr: EntityAddr,
}

impl Decode for Watcher {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("watch_item_t", 2, |v, d| {
            let (name, cookie, timeout_s) = (d.get()?, d.get()?, d.get()?);
            Ok(Watcher { name, cookie, timeout_s, addr: if v >= 2 { d.get()? } else { EntityAddr::default() } })
        })
    }
}

/// Texts of keys by key.
pub type Omap = BTreeMap<BString, Bytes>;

impl IoCtx {
    pub(crate) fn new(handle: Handle, pool: PoolId) -> Self {
        IoCtx { handle, pool, nspace: BString::default(), key: BString::default(), snap: Snap::HEAD, kept: (Snap(0), Vec::new()), flags: 0 }
    }

    /// The same pool, another namespace.
    pub fn namespace(&self, nspace: impl Into<BString>) -> IoCtx {
        IoCtx { nspace: nspace.into(), ..self.clone() }
    }

    /// Objects placed by `key` instead of their names.
    pub fn locator_key(&self, key: impl Into<BString>) -> IoCtx {
        IoCtx { key: key.into(), ..self.clone() }
    }

    /// Reads see this snapshot.
    pub fn at_snap(&self, snap: Snap) -> IoCtx {
        IoCtx { snap, ..self.clone() }
    }

    /// Writes leave these snapshots, newest first, as they are; `seq` is the newest there ever was
    /// (`rados_ioctx_selfmanaged_snap_set_write_ctx`).
    pub fn keeping(&self, seq: Snap, snaps: Vec<Snap>) -> IoCtx {
        IoCtx { kept: (seq, snaps), ..self.clone() }
    }

    /// A number for a snapshot that only clients know of.
    pub async fn create_snap(&self) -> Result<Snap, Errno> {
        let id = self.handle.pool_op(self.pool, pool_op::CREATE_UNMANAGED_SNAP, "", Snap(0)).await?;
        denc::from_bytes(&id).map_err(|_| Errno::EIO)
    }

    /// Such a snapshot is not needed any more.
    pub async fn remove_snap(&self, snap: Snap) -> Result<(), Errno> {
        self.handle.pool_op(self.pool, pool_op::DELETE_UNMANAGED_SNAP, "", snap).await.map(drop)
    }

    /// The object becomes what it was at a snapshot.
    pub async fn rollback(&self, oid: &[u8], snap: Snap) -> Result<(), Errno> {
        self.write_one(oid, Op::Rollback(snap).into()).await
    }

    /// Writes that find no room fail with ENOSPC or EDQUOT, and do not wait for it (`rados_set_pool_full_try`).
    pub fn full_try(&self) -> IoCtx {
        IoCtx { flags: self.flags | osd_flag::FULL_TRY, ..self.clone() }
    }

    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// Runs operations that read, as one.
    pub async fn read_ops(&self, oid: &[u8], ops: Vec<OsdOp>, flags: u32) -> Result<OpReply, Errno> {
        let request = OpRequest::read(self.pool, self.nspace.clone(), oid, ops);
        self.run(OpRequest { flags: request.flags | flags, snap: self.snap, ..request }).await
    }

    /// Runs operations that write, as one atomic transaction.
    pub async fn write_ops(&self, oid: &[u8], ops: Vec<OsdOp>, flags: u32) -> Result<OpReply, Errno> {
        let request = OpRequest::write(self.pool, self.nspace.clone(), oid, ops);
        let (snap_seq, snaps) = self.kept.clone();
        self.run(OpRequest { flags: request.flags | flags | self.flags, snap_seq, snaps, ..request }).await
    }

    async fn run(&self, request: OpRequest) -> Result<OpReply, Errno> {
        let reply = self.handle.submit(OpRequest { key: self.key.clone(), ..request }).await?;
        check(reply.result)?;
        Ok(reply)
    }

    async fn write_one(&self, oid: &[u8], op: OsdOp) -> Result<(), Errno> {
        self.write_ops(oid, vec![op], 0).await.map(drop)
    }

    async fn read_one(&self, oid: &[u8], op: OsdOp) -> Result<Bytes, Errno> {
        let reply = self.read_ops(oid, vec![op], 0).await?;
        let op = reply.ops.first().ok_or(Errno::EIO)?;
        check(op.rval)?;
        Ok(op.outdata.contiguous())
    }

    async fn read_value<T: Decode>(&self, oid: &[u8], op: OsdOp) -> Result<T, Errno> {
        denc::from_slice(&self.read_one(oid, op).await?).map_err(|_| Errno::EIO)
    }

    /// Makes `data` the object's whole content.
    pub async fn write_full(&self, oid: &[u8], data: Bytes) -> Result<(), Errno> {
        self.write_one(oid, OsdOp::write_full(data)).await
    }

    /// Writes `data` at `offset`.
    pub async fn write(&self, oid: &[u8], offset: u64, data: Bytes) -> Result<(), Errno> {
        self.write_one(oid, OsdOp::write(offset, data)).await
    }

    /// Appends `data`.
    pub async fn append(&self, oid: &[u8], data: Bytes) -> Result<(), Errno> {
        self.write_one(oid, OsdOp::append(data)).await
    }

    /// Zeroes an extent.
    pub async fn zero(&self, oid: &[u8], offset: u64, length: u64) -> Result<(), Errno> {
        self.write_one(oid, OsdOp::zero(offset, length)).await
    }

    /// Cuts or extends to `size` bytes.
    pub async fn truncate(&self, oid: &[u8], size: u64) -> Result<(), Errno> {
        self.write_one(oid, OsdOp::truncate(size)).await
    }

    /// Creates the object; EEXIST if it is there and `exclusive`.
    pub async fn create(&self, oid: &[u8], exclusive: bool) -> Result<(), Errno> {
        self.write_one(oid, OsdOp::create(exclusive)).await
    }

    /// Removes the object.
    pub async fn remove(&self, oid: &[u8]) -> Result<(), Errno> {
        self.write_one(oid, Op::Delete.into()).await
    }

    /// Up to `length` bytes at `offset`; fewer at the end. `length` 0 is everything.
    pub async fn read(&self, oid: &[u8], offset: u64, length: u64) -> Result<Bytes, Errno> {
        self.read_one(oid, OsdOp::read(offset, length)).await
    }

    /// Size and modification time.
    pub async fn stat(&self, oid: &[u8]) -> Result<(u64, Utime), Errno> {
        self.read_value(oid, Op::Stat.into()).await
    }

    /// Sets an xattr.
    pub async fn setxattr(&self, oid: &[u8], name: &[u8], value: &[u8]) -> Result<(), Errno> {
        self.write_one(oid, OsdOp::setxattr(name, value)).await
    }

    /// An xattr; ENODATA if there is none.
    pub async fn getxattr(&self, oid: &[u8], name: &[u8]) -> Result<Bytes, Errno> {
        self.read_one(oid, OsdOp::getxattr(name)).await
    }

    /// Removes an xattr.
    pub async fn rmxattr(&self, oid: &[u8], name: &[u8]) -> Result<(), Errno> {
        self.write_one(oid, OsdOp::rmxattr(name)).await
    }

    /// All xattrs.
    pub async fn getxattrs(&self, oid: &[u8]) -> Result<Omap, Errno> {
        self.read_value(oid, Op::GetXattrs.into()).await
    }

    /// Sets omap values.
    pub async fn omap_set(&self, oid: &[u8], values: &Omap) -> Result<(), Errno> {
        self.write_one(oid, OsdOp::with(Op::OmapSetVals, denc::to_bytes(values, 0))).await
    }

    /// Up to `max` omap values after the key `after`, of keys that begin with `prefix`; true if there are more.
    pub async fn omap_page(&self, oid: &[u8], after: &[u8], prefix: &[u8], max: u64) -> Result<(Omap, bool), Errno> {
        let args = denc::to_bytes(&(BString::from(after), max, BString::from(prefix)), 0);
        self.read_value(oid, OsdOp::with(Op::OmapGetVals, args)).await
    }

    /// Up to `max` omap keys after `after`; true if there are more.
    pub async fn omap_keys_page(&self, oid: &[u8], after: &[u8], max: u64) -> Result<(BTreeSet<BString>, bool), Errno> {
        let args = denc::to_bytes(&(BString::from(after), max), 0);
        self.read_value(oid, OsdOp::with(Op::OmapGetKeys, args)).await
    }

    /// The whole omap, page by page.
    pub async fn omap_all(&self, oid: &[u8]) -> Result<Omap, Errno> {
        let mut all = Omap::new();
        loop {
            let after = all.keys().next_back().cloned().unwrap_or_default();
            let (page, more) = self.omap_page(oid, &after, b"", 1024).await?;
            let end = page.is_empty() || !more;
            all.extend(page);
            if end {
                return Ok(all);
            }
        }
    }

    /// The values of those keys that exist.
    pub async fn omap_by_keys(&self, oid: &[u8], keys: &BTreeSet<BString>) -> Result<Omap, Errno> {
        self.read_value(oid, OsdOp::with(Op::OmapGetValsByKeys, denc::to_bytes(keys, 0))).await
    }

    /// Removes omap keys.
    pub async fn omap_rm_keys(&self, oid: &[u8], keys: &BTreeSet<BString>) -> Result<(), Errno> {
        self.write_one(oid, OsdOp::with(Op::OmapRmKeys, denc::to_bytes(keys, 0))).await
    }

    /// Removes the whole omap, header included.
    pub async fn omap_clear(&self, oid: &[u8]) -> Result<(), Errno> {
        self.write_one(oid, Op::OmapClear.into()).await
    }

    /// Sets the omap header.
    pub async fn omap_set_header(&self, oid: &[u8], header: Bytes) -> Result<(), Errno> {
        self.write_one(oid, OsdOp::with(Op::OmapSetHeader, header)).await
    }

    /// The omap header.
    pub async fn omap_header(&self, oid: &[u8]) -> Result<Bytes, Errno> {
        self.read_one(oid, Op::OmapGetHeader.into()).await
    }

    /// Calls a method of an object class that reads.
    pub async fn exec(&self, oid: &[u8], class: &str, method: &str, input: &[u8]) -> Result<Bytes, Errno> {
        self.read_one(oid, OsdOp::call(class, method, input)).await
    }

    /// Calls a method of an object class that writes; what it returns besides a result is lost, as it must be when a
    /// repetition is answered from the log.
    pub async fn exec_write(&self, oid: &[u8], class: &str, method: &str, input: &[u8]) -> Result<(), Errno> {
        self.write_one(oid, OsdOp::call(class, method, input)).await
    }

    /// Watches an object; `timeout_s` 0 is the OSD's default.
    pub async fn watch(&self, oid: &[u8], timeout_s: u32) -> Result<Watch, Errno> {
        self.handle.watch(self.linger_request(oid), timeout_s).await
    }

    /// Notifies the watchers of an object and waits for their answers, at most `timeout_s`.
    pub async fn notify(&self, oid: &[u8], payload: Bytes, timeout_s: u32) -> Result<WatchEvent, Errno> {
        self.handle.notify(self.linger_request(oid), payload, timeout_s).await
    }

    fn linger_request(&self, oid: &[u8]) -> OpRequest {
        let request = OpRequest::read(self.pool, self.nspace.clone(), oid, Vec::new());
        OpRequest { key: self.key.clone(), ..request }
    }

    /// Who watches an object.
    pub async fn watchers(&self, oid: &[u8]) -> Result<Vec<Watcher>, Errno> {
        let out = self.read_one(oid, Op::ListWatchers.into()).await?;
        let mut d = Decoder::shared(&out);
        d.envelope("obj_list_watch_response_t", 2, |_, d| d.get()).map_err(|_| Errno::EIO)
    }

    /// Removes an object even when the cluster is full.
    pub async fn remove_when_full(&self, oid: &[u8]) -> Result<(), Errno> {
        self.write_ops(oid, vec![Op::Delete.into()], osd_flag::FULL_TRY).await.map(drop)
    }
}
