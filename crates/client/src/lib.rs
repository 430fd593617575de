//! Talking to a cluster as a client does: monitors, OSDs and the manager, of ours or of stock Ceph.
//!
//! Room: engine. `MonClient` is a part of every daemon and every native client, and shares its owner's `Endpoint`.
//! Holds: nothing here opens a socket or asks a clock; requests survive lost sessions and are answered once.
//! Upstream: src/mon/MonClient.cc, src/osdc/Objecter.cc, src/librados/.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

pub mod check;
mod core;
mod handle;
mod io;
mod listing;
pub mod lock;
pub mod mon;
pub mod objecter;

pub use crate::core::Client;
pub use handle::{CommandReply, Handle, Usage, Watch};
pub use io::{IoCtx, Omap, Watcher};
pub use listing::ListEntry;
pub use objecter::{Objecter, ObjecterEvent, OpReply, OpRequest, WatchEvent};
pub use mon::{MonClient, MonClientConfig, MonClientEvent};
