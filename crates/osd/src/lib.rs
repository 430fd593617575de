//! The object storage daemon's core: placement groups as state machines, and what they do with clients' operations.
//!
//! Room: osd core.   Owns: `Osd`.   Hears: messages, committed transactions, finished reads, maps, time.
//! Says: `Effect`s; submits to and reads from the store through `Disk`.
//! Holds: a client is told of a write only when every acting OSD has it on stable storage; what a read returns is
//! durable; nothing here knows sockets, threads or clocks.
//! Upstream: src/osd/.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used))]

mod capacity;
pub mod cls;
mod command;
mod device_report;
pub mod disk;
mod effects;
mod felt;
mod flow;
mod heartbeat;
mod intake;
pub mod keep;
mod lease;
mod loggers;
mod maps;
mod memory;
mod merging;
pub mod mutation;
pub mod object;
pub mod ops;
mod osd;
pub mod perf;
mod pings;
mod pg;
mod probation;
mod report;
mod reserver;
mod sessions;
mod shares;
mod slow;
mod snaps;
mod space;
mod stages;
mod storing;
mod stripe;

pub use effects::{Effect, Peer, SessionId};
pub use loggers::Traffic;
pub use memory::HostMemory;
pub use osd::{LoadError, Osd, OsdConfig};
pub use sessions::SessionInfo;
pub use snaps::Snaps;
