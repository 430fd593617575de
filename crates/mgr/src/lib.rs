//! The manager: what OSDs report, summed up; the commands that show it; the digest that monitors go by.
//!
//! Room: daemon core.   Owns: `Mgr`.   Hears: osdmaps, `MgrStats` of OSDs, service daemons, commands, time.
//! Says: `MgrDigest` for the monitors, steps of `pg_num` and `pgp_num`, replies.
//! Holds: a PG of the newest map is always listed, `unknown` until its primary has reported.
//! Upstream: src/mgr/{ClusterState,DaemonServer}.cc, src/mon/PGMap.cc, src/pybind/mgr/.
#![forbid(unsafe_code)]

mod adjust;
mod commands;
mod core;
mod digest;
mod health;
mod pgmap;
mod progress;
mod rates;
mod services;
mod show;

pub use crate::adjust::Adjustment;
pub use crate::core::{Mgr, MgrSettings};
pub use crate::pgmap::PgMap;
