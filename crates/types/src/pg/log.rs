//! Entries of the PG log: what each write did, in order; and what is left of them when they are gone.
//!
//! Entries have an encoding of our own, for only our OSDs read them; `PgLogDup` has stock's.

use crate::{EVersion, HObject, ReqId, Utime};
use bytes::Bytes;
use denc::{Decode, Encode};

/// What a write did to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum LogOp {
    #[denc(tag = 1)]
    Modify,
    #[denc(tag = 2)]
    Clone,
    #[denc(tag = 3)]
    Delete,
    /// The object's newest content is lost: an older one stands.
    #[denc(tag = 4)]
    LostRevert,
    #[denc(tag = 5)]
    LostDelete,
    #[denc(tag = 6)]
    LostMark,
    /// Nothing is known of the object any more but its version.
    #[denc(tag = 7)]
    Promote,
    /// Nothing changed; a request failed, and its answer must stay the same when it is sent again.
    #[denc(tag = 9)]
    Error,
}

/// One entry (`pg_log_entry_t`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 2)]
pub struct PgLogEntry {
    pub op: LogOp,
    pub object: HObject,
    pub version: EVersion,
    /// The object's version before.
    pub prior_version: EVersion,
    /// The object's version as users see it.
    pub user_version: u64,
    /// Whose write it was: a resent request is known by it.
    pub reqid: ReqId,
    pub mtime: Utime,
    /// What the client was told.
    pub result: i32,
    /// What each operation returned, if the client asked for it.
    pub op_returns: Vec<OpReturn>,
}

/// What one operation of a request returned (`pg_log_op_return_item_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct OpReturn {
    pub rval: i32,
    pub output: Bytes,
}

/// What is remembered of a request when its log entry is gone: enough to answer it again (`pg_log_dup_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct PgLogDup {
    pub reqid: ReqId,
    pub version: EVersion,
    pub user_version: u64,
    pub result: i32,
    #[denc(since = 2)]
    pub op_returns: Vec<OpReturn>,
}

impl From<PgLogEntry> for PgLogDup {
    fn from(e: PgLogEntry) -> Self {
        let PgLogEntry { reqid, version, user_version, result, op_returns, .. } = e;
        PgLogDup { reqid, version, user_version, result, op_returns }
    }
}
