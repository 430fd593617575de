//! The manager: what OSDs report, summed up; the commands that show it; the digest that monitors go by.
//!
//! Room: daemon core.   Owns: `Mgr`.   Hears: osdmaps, `MgrStats` of OSDs, service daemons, commands, time.
//! Says: `MgrDigest` for the monitors, steps of `pg_num` and `pgp_num`, numbers of PGs and upmaps that should be, replies.
//! Holds: a PG of the newest map is always listed, `unknown` until its primary has reported.
//! Upstream: src/mgr/{ClusterState,DaemonServer}.cc, src/mon/PGMap.cc, src/pybind/mgr/.
#![forbid(unsafe_code)]

mod adjust;
mod autoscale;
mod balancer;
mod commands;
mod core;
mod digest;
mod health;
mod parents;
mod pgmap;
mod progress;
mod rates;
mod reweight;
mod services;
mod show;

pub use crate::adjust::Adjustment;
pub use crate::autoscale::AutoscaleSettings;
pub use crate::balancer::{BalancerSettings, pool_ids};
pub use crate::core::{Mgr, MgrSettings};
pub use crate::pgmap::PgMap;
