//! Wires engines and daemons into one process: the glue runs in simulation exactly as it ships.
//!
//! Room: node. May touch: cores, the `World` trait, routing tables. Never decides about data.
#![forbid(unsafe_code)]

pub mod client;
pub mod gate;
pub mod messenger;
pub mod mgr;
pub mod mon;
pub mod osd;
pub mod world;

pub use client::ClientNode;
pub use gate::{Gate, Modes, Visitor};
pub use mgr::{MgrNode, MgrNodeConfig};
pub use mon::MonNode;
pub use osd::{OnConfig, OsdNode, OsdNodeConfig};
pub use world::{Input, Node, World};
