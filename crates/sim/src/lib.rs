//! The pretend World: a whole cluster on one thread, where a seed decides everything.
//!
//! Room: sim. May touch everything through public doors; production code does not know that it is simulated.
//! Owns: time, the network, the disks and the power of every process. The nodes are those that ship.
//! Holds: a seed gives the same run, byte for byte: `Sim::log` hashes everything that happened.
//! How to use: `make sim` runs new seeds, `make sim SEED=7` replays one, prints what happened, and shrinks it if it fails.
#![forbid(unsafe_code)]

pub mod checks;
mod cluster;
mod disk;
mod history;
mod host;
mod log;
mod model;
mod net;
mod program;
mod scenario;
mod shrink;
mod sim;
mod snapper;
mod trial;
mod workload;
mod world;

pub use cluster::{Cluster, POOL, Plan};
pub use disk::DiskModel;
pub use host::{Boot, HostId};
pub use log::Log;
pub use history::History;
pub use model::Model;
pub use net::NetModel;
pub use program::{Clock, Program};
pub use scenario::{Fault, Planned, Scenario};
pub use shrink::{Less, shrink};
pub use sim::{Complaint, Sim, Tunables};
pub use trial::{Outcome, Trial};
pub use workload::{Workload, read_everything};
pub use world::SimWorld;
