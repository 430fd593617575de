//! The store from outside, on a disk in memory.

mod compression;
mod crash;
mod every_crash;
mod faults;
mod harness;
mod model;
mod place;
mod queue;
mod tuning;
mod verified;
