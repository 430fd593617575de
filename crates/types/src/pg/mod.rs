//! What is known of PGs, OSDs and pools: state, history, log, and the figures that are summed up.
//!
//! Types that stock software could meet keep its encoding (`PoolStat` reaches clients); the log is ours.
//! Upstream: src/osd/osd_types.{h,cc}.

mod dump;
mod info;
mod log;
mod shards;
mod snapset;
mod stat;
mod state;
mod usage;

pub use info::{HitSetHistory, HitSetInfo, PgHistory, PgInfo, PgShard};
pub use shards::{HashRange, Shards};
pub use snapset::{SeenAt, SnapSet};
pub use log::{LogOp, OpReturn, PgLogDup, PgLogEntry};
pub use stat::{ObjectStatCollection, ObjectStatSum, PgStat};
pub use state::PgState;
pub use usage::{IoRates, NetworkPing, OsdPing, OsdStat, PerfStat, PoolDigest, PoolStat, StoreStatfs};
