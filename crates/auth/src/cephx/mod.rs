//! cephx: proving a key without sending it, and tickets that other daemons believe.
//!
//! A client proves its key to a monitor and gets an *auth ticket*, with it *service tickets*: each a box only the
//! service can open (`ServiceTicketInfo`, under a rotating secret) and a session key only the client can. An
//! *authorizer* shows the box to a daemon and proves the session key against a challenge.
//! Upstream: src/auth/cephx/; doc/dev/cephx_protocol.rst.

pub mod client;
mod proto;
mod seal;
pub mod secrets;
pub mod server;
pub mod service;

pub use client::{Authorizer, CephxClient, ClientError, Renewed, SessionKeys};
pub use proto::{AuthTicket, ServiceTicketInfo, TicketBlob, request};
pub use secrets::{ExpiringKey, RotatingSecrets};
pub use server::{Granted, KeyStore, MonAuth, Reply, TicketPolicy};
pub use service::{ServiceAuth, ServiceReply, ServiceSession};
