//! The pretend World: a whole cluster on one thread, where a seed decides everything.
//!
//! Room: sim. May touch everything through public doors; production code does not know that it is simulated.
//! Owns: time, the network, the disks and the power of every process. The nodes are those that ship.
//! Holds: a seed gives the same run, byte for byte: `Sim::log` hashes everything that happened.
//! How to use: `SEED=7 cargo test -p sim --release` replays one seed and prints what happened; `SEEDS=1000` runs more.
#![forbid(unsafe_code)]

mod program;
mod cluster;
mod disk;
mod host;
mod log;
mod model;
mod net;
mod sim;
mod workload;
mod world;

pub use program::{Clock, Program};
pub use cluster::{Cluster, POOL, Plan};
pub use disk::DiskModel;
pub use host::{Boot, HostId};
pub use log::Log;
pub use model::Model;
pub use net::NetModel;
pub use sim::{Sim, Tunables};
pub use workload::{Workload, read_everything};
pub use world::SimWorld;
