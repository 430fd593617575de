//! What operators see of every daemon: commands and their tables, options, counters, health.
//!
//! Room: ground floor. Values in, text out. Names, columns and blanks are Ceph's, for scripts read them; sentences are
//! ours.
//! Upstream: src/common/{cmdparse,config,Formatter,TextTable,perf_counters,admin_socket}.cc.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used))]

pub mod command;
pub mod conf;
pub mod health;
pub mod human;
pub mod json;
pub mod option;
pub mod perf;
pub mod rocksdb;
pub mod socket;
pub mod spread;
pub mod table;
pub mod tree;
pub mod usage;

pub use command::{Args, Command, CommandError, CommandSpec, CommandTable, Format};
pub use json::JsonWriter;
pub use table::{Align, TextTable};
