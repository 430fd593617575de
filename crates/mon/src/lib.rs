//! The monitor: the cluster's maps as replicated state.
//!
//! Room: mon core. A state machine without I/O: `Mon` hears sessions, messages, flushes and time, and says `Effect`s.
//! Holds: a client is told of nothing that the replicated log has not committed.
//! Where to look: `mon` is the machine, `raft` its consensus, `members` who they are, `relay` members among themselves, `services` the state, `commands` what operators order,
//! `osds` the life of OSDs, `publish` the subscriptions, `health` what is wrong.
//! Upstream: src/mon/.
#![forbid(unsafe_code)]

pub mod boot;
mod clocks;
mod cmd;
mod commands;
pub mod env;
mod failures;
mod health;
mod keep;
mod login;
mod members;
mod messages;
mod mon;
mod osds;
mod pace;
mod placement;
mod pool_ops;
mod proxy;
mod publish;
pub mod raft;
mod raise;
pub mod recover;
mod relay;
mod reply;
mod room;
pub mod services;
mod session;
mod text;
mod ticks;
mod txn;
mod units;
mod version;

pub use boot::{MkfsError, mkfs};
pub use env::Env;
pub use mon::{Effect, Mon, OpenError};
pub use placement::weight_of_size;
pub use session::{Peer, SessionId};
