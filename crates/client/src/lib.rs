//! Talking to a cluster as a client does: monitors, OSDs and the manager, of ours or of stock Ceph.
//!
//! Room: engine. `MonClient` is a part of every daemon and every native client, and shares its owner's `Endpoint`.
//! Holds: nothing here opens a socket or asks a clock; requests survive lost sessions and are answered once.
//! Upstream: src/mon/MonClient.cc, src/osdc/Objecter.cc, src/librados/.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

pub mod mon;

pub use mon::{MonClient, MonClientConfig, MonClientEvent};
