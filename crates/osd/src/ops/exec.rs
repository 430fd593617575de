//! The state of a running message: the stored object, and the message's changes so far.

use super::{Delta, Fetched, Halt, Limits, Plan, ReadKey, WatchAction, extent_of};
use crate::cls::{self, Call, Origin};
use crate::disk::Disk;
use crate::mutation::{Mutation, Step};
use crate::object::ObjectInfo;
use crate::snaps::Snaps;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use store::ReadData;
use types::msg::BufList;
use types::msg::osd::OpResult;
use types::msg::osd_op::{Op, OsdOp};
use types::{Errno, HObject, Now, ShardPgId, Utime};

/// What a message runs in.
pub struct Env<'a> {
    pub disk: &'a mut dyn Disk,
    pub coll: ShardPgId,
    pub obj: &'a HObject,
    pub now: Now,
    pub origin: Origin,
    pub limits: &'a Limits,
    pub rng: &'a mut ChaCha8Rng,
    pub fetched: &'a Fetched,
    /// What the next notify of this OSD will be called.
    pub notify_id: u64,
    /// What is known of the object's clones.
    pub snaps: &'a Snaps,
    /// True if the sender's session carries the watch with this cookie.
    pub watch_connected: &'a dyn Fn(u64) -> bool,
}

/// An operation's output, and its arguments if they changed (lengths that clients see).
#[derive(Default)]
pub(super) struct Output {
    pub data: BufList,
    pub op: Option<Op>,
}

/// A running message.
pub struct Exec<'a> {
    pub(super) env: Env<'a>,
    /// State as of now, the message's own changes included.
    pub(super) info: ObjectInfo,
    pub(super) exists: bool,
    /// Size before the message; `None`: there was no object, or this message removed it.
    pub(super) stored_size: Option<u64>,
    pub(super) mutation: Mutation,
    pub(super) user_modify: bool,
    pub(super) watch: Vec<WatchAction>,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    /// The user version a copy took over.
    pub(super) copied_version: Option<u64>,
    before: Option<u64>,
}

impl<'a> Exec<'a> {
    pub(super) fn new(env: Env<'a>, stored: Option<ObjectInfo>) -> Self {
        let stored_size = stored.as_ref().map(|i| i.size);
        Exec {
            env,
            exists: stored.is_some(),
            info: stored.unwrap_or_default(),
            stored_size,
            mutation: Mutation::default(),
            user_modify: false,
            watch: Vec::new(),
            bytes_read: 0,
            bytes_written: 0,
            copied_version: None,
            before: stored_size,
        }
    }

    /// Runs one operation.
    pub(super) fn run(&mut self, op: &OsdOp, out: &mut Output) -> Result<i32, Halt> {
        if op.op.writes() && !matches!(op.op, Op::Watch(_) | Op::Undirty | Op::CopyFrom(_) | Op::CopyFrom2(_)) {
            self.user_modify = true;
        }
        let done = match op.op {
            Op::Read(e) | Op::SyncRead(e) => self.op_read(op, e, out),
            Op::SparseRead(e) => self.op_sparse_read(op, e, out),
            Op::MapExt(e) => self.op_mapext(e, out),
            Op::Stat => self.op_stat(out),
            Op::Checksum(c) => self.op_checksum(op, c, out),
            Op::CmpExt(e) => self.op_cmpext(op, e),
            Op::AssertVer(v) => self.op_assert_ver(v.ver),
            Op::IsDirty => self.op_isdirty(out),
            Op::ListSnaps => self.op_list_snaps(out),
            Op::CopyGet(max) => self.op_copy_get(op, max, out),

            Op::GetXattr(x) => self.op_getxattr(op, x, out),
            Op::GetXattrs => self.op_getxattrs(out),
            // Stock answers 1 to a comparison that holds.
            Op::CmpXattr(x) => return self.op_cmpxattr(op, x).map(|()| 1),
            Op::SetXattr(x) => self.op_setxattr(op, x),
            Op::RmXattr(x) => self.op_rmxattr(op, x),

            Op::OmapGetKeys => self.op_omap_get_keys(op, out),
            Op::OmapGetVals => self.op_omap_get_vals(op, out),
            Op::OmapGetHeader => self.op_omap_get_header(out),
            Op::OmapGetValsByKeys => self.op_omap_get_by_keys(op, out),
            Op::OmapCmp => self.op_omap_cmp(op),
            Op::OmapSetVals => self.op_omap_set(op),
            Op::OmapSetHeader => self.op_omap_set_header(op),
            Op::OmapClear => self.op_omap_clear(),
            Op::OmapRmKeys => self.op_omap_rm(op),
            Op::OmapRmKeyRange => self.op_omap_rm_range(op),

            Op::Write(e) => self.op_write(op, e),
            Op::WriteFull(e) => self.op_writefull(op, e),
            Op::WriteSame(w) => self.op_writesame(op, w),
            Op::Append(e) => self.op_append(op, e),
            Op::Zero(e) => self.op_zero(e),
            Op::Truncate(e) => self.op_truncate(e),
            Op::TrimTrunc(e) => self.op_truncate(types::msg::osd_op::Extent { offset: e.truncate_size, ..e }),
            Op::Create => self.op_create(op),
            Op::Delete => self.delete(),
            Op::Rollback(snap) => self.op_rollback(snap),
            Op::SetAllocHint(h) => self.op_alloc_hint(h),
            Op::CopyFrom(c) => self.op_copy_from(op, c, false),
            Op::CopyFrom2(c) => self.op_copy_from(op, c, true),
            Op::StartSync | Op::Undirty => Ok(()),

            Op::Watch(w) => self.op_watch(w),
            Op::Notify(cookie) => self.op_notify(op, cookie, out),
            Op::NotifyAck(id) => self.op_notify_ack(op, id),
            Op::ListWatchers => self.op_list_watchers(out),

            Op::Call(c) => return self.op_call(op, c, out),
            // Cache tiers, tmaps and deduplication are not served.
            _ => Err(Errno::EOPNOTSUPP.into()),
        };
        done.map(|()| 0)
    }

    fn op_call(&mut self, op: &OsdOp, args: types::msg::osd_op::Call, out: &mut Output) -> Result<i32, Halt> {
        let (class, method, input) = op.call_parts(&args).map_err(|_| Errno::EINVAL)?;
        let method = cls::find(&class, &method)?;
        self.user_modify |= method.flags & cls::WR != 0;
        let mut buf = Vec::new();
        let mut call = Call::new(self, method.flags);
        let result = (method.run)(&mut call, &input, &mut buf);
        if call.overstepped() && !matches!(result, Err(Halt::Read(_))) {
            return Err(Errno::EIO.into());
        }
        out.data = bytes::Bytes::from(buf).into();
        result
    }

    /// The plan, once every operation ran.
    pub(super) fn finish(mut self, mut result: i32, mut results: Vec<OpResult>, returnvec: bool) -> Plan {
        let changes = result >= 0 && !self.mutation.is_empty();
        if changes {
            result = self.settle_outputs(result, &mut results, returnvec);
        }
        if result < 0 {
            self.mutation = Mutation::default();
            self.watch.clear();
        }
        let after = self.exists.then_some(self.info.size);
        let delta = Delta {
            objects: i64::from(after.is_some()) - i64::from(self.before.is_some()),
            bytes: after.unwrap_or(0) as i64 - self.before.unwrap_or(0) as i64,
        };
        Plan {
            result,
            results,
            mutation: self.mutation,
            info: self.info,
            exists: self.exists,
            delta,
            user_modify: self.user_modify,
            copied_version: self.copied_version,
            watch: self.watch,
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
        }
    }

    /// A write returns data only to those who ask for it, and only little: what it returned must be told again to a
    /// duplicate, so it is logged.
    fn settle_outputs(&self, result: i32, results: &mut [OpResult], returnvec: bool) -> i32 {
        if !returnvec {
            for r in results {
                r.rval = r.rval.min(0);
                r.outdata = BufList::default();
            }
            return 0;
        }
        let mut overall = result;
        for r in results.iter_mut().filter(|r| r.outdata.len() > self.env.limits.write_reply_max) {
            (r.rval, overall) = (Errno::EOVERFLOW.wire(), Errno::EOVERFLOW.wire());
            r.outdata = BufList::default();
        }
        overall
    }

    /// Extents of the stored object that the operation at hand and those after it will want.
    pub(super) fn reads_ahead(&self, first: ReadKey, rest: &[OsdOp]) -> Vec<ReadKey> {
        let mut keys = vec![first];
        for op in rest {
            let key = extent_of(&op.op).and_then(|e| {
                let (off, len) = self.visible(e);
                self.key(off, len, matches!(op.op, Op::SparseRead(_)))
            });
            keys.extend(key.filter(|k| !keys.contains(k) && !self.env.fetched.reads.contains_key(k)));
        }
        keys
    }

    /// A read of stored bytes, `None` if there are none in that range.
    fn key(&self, off: u64, len: u64, sparse: bool) -> Option<ReadKey> {
        let size = self.stored_size?;
        let len = len.min(size.saturating_sub(off));
        (len > 0).then_some(ReadKey { off, len, sparse })
    }

    /// Stored bytes, from what was fetched.
    pub(super) fn fetch(&mut self, off: u64, len: u64, sparse: bool) -> Result<ReadData, Halt> {
        let Some(key) = self.key(off, len, sparse) else {
            return Ok(ReadData::default());
        };
        match self.env.fetched.reads.get(&key) {
            None => Err(Halt::Read(key)),
            Some(Err(e)) => Err((*e).into()),
            Some(Ok(data)) => {
                self.bytes_read += data.data.len() as u64;
                Ok(data.clone())
            }
        }
    }

    /// ENOENT unless the object exists.
    pub(super) fn must_exist(&self) -> Result<(), Halt> {
        match self.exists {
            true => Ok(()),
            false => Err(Errno::ENOENT.into()),
        }
    }

    /// Creates the object if it does not exist.
    pub(super) fn create_if_new(&mut self) {
        if !self.exists {
            self.exists = true;
            self.info = ObjectInfo { truncate_seq: self.info.truncate_seq, truncate_size: self.info.truncate_size, ..Default::default() };
            self.mutation.push(Step::Touch);
        }
    }

    pub(crate) fn origin(&self) -> Origin {
        self.env.origin
    }

    pub(crate) fn now(&self) -> Now {
        self.env.now
    }

    pub(crate) fn random_base64(&mut self, len: usize) -> String {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        (0..len).map(|_| char::from(ALPHABET[self.env.rng.random_range(0..64)])).collect()
    }

    pub(crate) fn stat(&self) -> Result<(u64, Utime), Halt> {
        self.must_exist()?;
        Ok((self.info.size, self.info.mtime))
    }
}
