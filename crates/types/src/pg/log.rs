//! Entries of the PG log: what each write did, in order. Our own encoding: only our OSDs read it.

use crate::{EVersion, HObject, ReqId, Utime};
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
#[denc(v = 1, compat = 1)]
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
    /// What the client was told, and each operation's return value.
    pub result: i32,
    pub op_results: Vec<i32>,
}
