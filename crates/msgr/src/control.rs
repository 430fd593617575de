//! Payloads of the control frames that have more than one field.
//!
//! Upstream: src/msg/async/frames_v2.h.

use bytes::Bytes;
use denc::{Decode, Encode};
use types::{AddrVec, EntityAddr};

/// Flag of both idents: the session dies with its socket (`CEPH_MSG_CONNECT_LOSSY`).
pub(crate) const LOSSY: u64 = 1;
/// Whoever speaks msgr2 reads marked addresses (`CEPH_FEATURE_MSG_ADDR2`).
pub(crate) const REQUIRED: u64 = 1 << 59;

#[derive(Debug, PartialEq, Encode, Decode)]
pub(crate) struct Hello {
    pub kind: u8,
    /// The address of the reader as the writer sees it.
    pub you: EntityAddr,
}

#[derive(Debug, PartialEq, Encode, Decode)]
pub(crate) struct AuthRequest {
    pub method: u32,
    pub modes: Vec<u32>,
    pub payload: Bytes,
}

#[derive(Debug, PartialEq, Encode, Decode)]
pub(crate) struct AuthBadMethod {
    pub method: u32,
    pub result: i32,
    pub methods: Vec<u32>,
    pub modes: Vec<u32>,
}

#[derive(Debug, PartialEq, Encode, Decode)]
pub(crate) struct AuthDone {
    pub global_id: u64,
    pub mode: u32,
    pub payload: Bytes,
}

#[derive(Debug, PartialEq, Encode, Decode)]
pub(crate) struct ClientIdent {
    pub addrs: AddrVec,
    pub target: EntityAddr,
    pub num: i64,
    pub global_seq: u64,
    pub supported: u64,
    pub required: u64,
    pub flags: u64,
    pub cookie: u64,
}

#[derive(Debug, PartialEq, Encode, Decode)]
pub(crate) struct ServerIdent {
    pub addrs: AddrVec,
    pub num: i64,
    pub global_seq: u64,
    pub supported: u64,
    pub required: u64,
    pub flags: u64,
    pub cookie: u64,
}

#[derive(Debug, PartialEq, Encode, Decode)]
pub(crate) struct Reconnect {
    pub addrs: AddrVec,
    pub client_cookie: u64,
    pub server_cookie: u64,
    pub global_seq: u64,
    pub connect_seq: u64,
    /// The last message the sender has seen.
    pub msg_seq: u64,
}
