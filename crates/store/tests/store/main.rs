//! The store from outside, on a disk in memory.

mod compression;
mod crash;
mod every_crash;
mod faults;
mod fsck;
mod harness;
mod model;
mod page_cache;
mod place;
mod queue;
mod tuning;
mod verified;
