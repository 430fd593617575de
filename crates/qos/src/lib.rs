//! Quality of service: who may use a device next.
//!
//! Room: engine.   Owns: [`Mclock`], the queues before a device, [`DeviceModel`], what the device can do, and [`Profile`], what each
//! class of work is promised.
//! Holds: knows no clock, no device and nobody's work: time, cost and class come in, what may start goes out.
//! Upstream: Gulati, Merchant, Varman: mClock: Handling Throughput Variability for Hypervisor IO Scheduling (OSDI 2010);
//! src/osd/scheduler/mClockScheduler.cc for classes and profiles.
#![forbid(unsafe_code)]

mod device;
mod mclock;
mod share;

pub use device::{Begun, DeviceModel, Io, NEAR, factor};
pub use mclock::{Mclock, Started};
pub use share::{Class, Profile, Share};
