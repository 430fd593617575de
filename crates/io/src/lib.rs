//! The real world: sockets, clocks, signals, block devices and RocksDB.
//!
//! Room: io. I move bytes and report completions; I know no protocol.
#![allow(clippy::disallowed_methods, reason = "this is the outside that the others must not touch")]

pub mod clock;
pub mod event_loop;
pub mod sockets;

pub use clock::Clock;
pub use event_loop::{Completions, EventLoop, EventLoopConfig};
