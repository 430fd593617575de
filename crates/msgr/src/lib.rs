//! msgr 2.1 as one pure state machine: every connection of a daemon or a client.
//!
//! Room: an engine that has never met an operating system. Bytes, accepted and closed sockets and the time come in
//! through `handle_*`; dials, vectored writes and closes come out of `poll_action`, sessions and messages out of
//! `poll_event`. Authentication is the owner's: the endpoint asks, carries the answers, checks the signatures.
//! Holds: a lossless session delivers every message once and in order across any number of sockets; bytes that break
//! the protocol close their socket with a typed [`Fault`] and reach nobody. What has come is acknowledged by the next message, or
//! after a second, or when it is much: until then who sent it keeps it.
//! Upstream: doc/dev/msgr2.rst, src/msg/async/{frames_v2,ProtocolV2,crypto_onwire}.*.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

mod config;
mod conn;
mod control;
mod endpoint;
mod event;
mod fault;
mod frame;
mod rx;
mod secure;
mod sock;
mod tx;

pub use config::{Config, Limits, Policy, Timing};
pub use endpoint::Endpoint;
pub use event::{Action, ConnId, Event, PeerInfo, SockId};
pub use fault::Fault;

/// Connection mode: plain, guarded by checksums (`CEPH_CON_MODE_CRC`).
pub const MODE_CRC: u32 = 1;
/// Connection mode: AES-128-GCM (`CEPH_CON_MODE_SECURE`).
pub const MODE_SECURE: u32 = 2;
