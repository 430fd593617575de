//! The interpreter of a message's operations: a pure function of the operations and the object.
//!
//! Room: osd core.   Says: a `Plan`, or which bytes it needs first.
//! Holds: nothing is changed here. The operations of a message see the object as it was before the message (existence
//! and size excepted), an error in any of them leaves no change at all, and running them again with more bytes at hand
//! gives the same plan.
//! Why run again instead of suspending: a suspended half-run would hold half a transaction; most messages read nothing
//! or exactly one extent, so the second run costs a microsecond.
//! Upstream: PrimaryLogPG::do_osd_ops (src/osd/PrimaryLogPG.cc) for what each operation means.

mod attr;
mod classify;
mod compare;
mod copy;
mod exec;
mod list;
mod omap;
mod read;
mod watch;
mod write;

pub use classify::{Access, classify};
pub use copy::{CopyCursor, CopyData, CopySource};
pub use exec::{Env, Exec};
pub use list::{is_filtered, list_page, pg_range, split_bits};
pub use watch::WatchAction;

use crate::mutation::Mutation;
use crate::object::ObjectInfo;
use std::collections::BTreeMap;
use store::ReadData;
use types::Errno;
use types::msg::osd::OpResult;
use types::msg::osd_op::{Op, OsdOp, op_flag};

/// Limits on what clients may store, with their option's name and default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// `osd_max_object_size`, bytes.
    pub object_size_max: u64,
    /// `osd_max_object_name_len`, bytes.
    pub name_len_max: usize,
    /// `osd_max_object_namespace_len`, bytes.
    pub nspace_len_max: usize,
    /// `osd_max_attr_size`, bytes; 0 is no limit.
    pub attr_size_max: u32,
    /// `osd_max_attr_name_len`, bytes.
    pub attr_name_len_max: u32,
    /// `osd_max_omap_entries_per_request`.
    pub omap_entries_max: u64,
    /// `osd_max_omap_bytes_per_request`.
    pub omap_bytes_max: usize,
    /// `osd_max_write_op_reply_len`, bytes.
    pub write_reply_max: usize,
    /// `osd_max_write_size`, bytes.
    pub write_size_max: usize,
    /// `osd_failsafe_full_ratio`, parts per thousand.
    pub failsafe_full_per_mille: u32,
    /// `osd_client_watch_timeout`, seconds.
    pub watch_timeout_s: u32,
    /// `osd_default_notify_timeout`, seconds.
    pub notify_timeout_s: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            object_size_max: 128 << 20,
            name_len_max: 2048,
            nspace_len_max: 256,
            attr_size_max: 0,
            attr_name_len_max: 100,
            omap_entries_max: 1024,
            omap_bytes_max: 1 << 30,
            write_reply_max: 64,
            write_size_max: 90 << 20,
            failsafe_full_per_mille: 970,
            watch_timeout_s: 30,
            notify_timeout_s: 30,
        }
    }
}

/// Why an operation did not finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    Errno(Errno),
    /// A result of the operation's own that fails the message: negative, below every errno.
    Code(i32),
    /// Bytes that have to be read first.
    Read(ReadKey),
    /// An object that has to be fetched from its own PG first.
    Copy(CopySource),
}

impl From<Errno> for Halt {
    fn from(e: Errno) -> Self {
        Halt::Errno(e)
    }
}

/// One extent of the stored object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadKey {
    pub off: u64,
    /// Not 0, and not past the end.
    pub len: u64,
    /// Runs instead of zeros.
    pub sparse: bool,
}

/// What was fetched for a message so far.
#[derive(Debug, Clone, Default)]
pub struct Fetched {
    pub reads: BTreeMap<ReadKey, Result<ReadData, Errno>>,
    pub copy: Option<Result<CopyData, Errno>>,
}

/// How a PG's totals change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delta {
    pub objects: i64,
    pub bytes: i64,
}

/// What a message does, decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The message's result: 0, negative, or what a reading operation returned.
    pub result: i32,
    /// One per operation; those after a failure carry 0 and nothing.
    pub results: Vec<OpResult>,
    /// Not empty only if the message succeeded and changes something.
    pub mutation: Mutation,
    /// The object's state afterwards; versions and mtime are filled in by the PG.
    pub info: ObjectInfo,
    pub exists: bool,
    pub delta: Delta,
    /// The change counts for clients (watches do not).
    pub user_modify: bool,
    /// The object takes over this user version: it is a copy.
    pub copied_version: Option<u64>,
    pub watch: Vec<WatchAction>,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// What came of running a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Plan(Box<Plan>),
    /// Run again with these.
    NeedReads(Vec<ReadKey>),
    NeedCopy(CopySource),
}

/// Runs a message's operations on an object. `stored` is the object's state, `None` if it does not exist.
pub fn execute(env: Env<'_>, ops: &[OsdOp], stored: Option<ObjectInfo>, returnvec: bool) -> Outcome {
    let mut exec = Exec::new(env, stored);
    let mut results: Vec<OpResult> = Vec::with_capacity(ops.len());
    // A message without operations is a mistake, says stock.
    let mut result = if ops.is_empty() { Errno::EINVAL.wire() } else { 0 };
    for (i, op) in ops.iter().enumerate() {
        let mut out = exec::Output::default();
        let rval = match exec.run(op, &mut out) {
            Ok(rval) => rval,
            Err(Halt::Read(key)) => return Outcome::NeedReads(exec.reads_ahead(key, &ops[i + 1..])),
            Err(Halt::Copy(source)) => return Outcome::NeedCopy(source),
            Err(Halt::Errno(e)) => e.wire(),
            Err(Halt::Code(code)) => code,
        };
        results.push(OpResult { op: out.op.unwrap_or(op.op), flags: op.flags, rval, outdata: out.data });
        if rval < 0 && op.flags & op_flag::FAILOK == 0 {
            result = rval;
            break;
        }
        // The last operation's word counts: a comparison that held before a read leaves no trace.
        result = rval.max(0);
    }
    results.extend(ops[results.len()..].iter().map(blank_result));
    Outcome::Plan(Box::new(exec.finish(result, results, returnvec)))
}

fn blank_result(op: &OsdOp) -> OpResult {
    OpResult { op: op.op, flags: op.flags, rval: 0, outdata: Default::default() }
}

/// True if the operation's argument is an extent with a truncation in it.
fn extent_of(op: &Op) -> Option<types::msg::osd_op::Extent> {
    match op {
        Op::Read(e) | Op::SyncRead(e) | Op::SparseRead(e) | Op::CmpExt(e) => Some(*e),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
