//! A process: its node while it runs, its disk while it does not.

use crate::disk::SimDisk;
use crate::world::SimWorld;
use node::{Input, Node};
use std::net::SocketAddr;
use store::mem::MemDisk;
use types::{Mono, Now, Utime};

/// A simulated process and the machine it has to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub usize);

/// What a process finds when it starts.
pub struct Boot<'a> {
    /// Different in every start of every process.
    pub nonce: u32,
    /// For every generator of chance the process needs.
    pub seed: u64,
    /// Where it listens, if it does.
    pub addr: SocketAddr,
    /// Where it listens in the cluster's network.
    pub cluster_addr: SocketAddr,
    /// Its disk; crashes happen to it between starts.
    pub disk: &'a MemDisk,
    pub now: Now,
}

pub(crate) type Start = Box<dyn FnMut(Boot<'_>) -> Box<dyn Node<SimWorld>>>;

pub(crate) struct Host {
    pub name: String,
    pub addr: SocketAddr,
    pub listens: bool,
    pub start: Start,
    pub node: Option<Box<dyn Node<SimWorld>>>,
    pub world: SimWorld,
    pub disk: SimDisk,
    /// Counts starts: what was meant for an earlier life is dropped.
    pub life: u64,
    pub inbox: Vec<Input>,
    pub busy_until: u64,
    /// A run is scheduled.
    pub awake: bool,
    /// The earliest wake-up it has asked for, in simulated time.
    pub wake: Option<u64>,
    /// Its monotonic clock minus simulated time.
    pub mono_offset: u64,
    /// Its wall clock minus simulated time, nanoseconds.
    pub wall_skew: i64,
}

/// Simulated time 0 on wall clocks.
const WALL_START_S: u64 = 1_763_000_000;
/// The last second that they can show, but for a month that a run may take.
const WALL_END_S: u64 = u32::MAX as u64 - 30 * 86_400;

impl Host {
    pub fn cluster_addr(&self) -> SocketAddr {
        SocketAddr::new(self.addr.ip(), self.addr.port() + 1)
    }

    /// Its wall clock jumps; before 1970 and after 2106 there is nothing to jump to.
    pub fn set_clock(&mut self, ns: u64, by_s: i64) {
        let true_ns = (WALL_START_S * 1_000_000_000 + ns) as i64;
        let skew = self.wall_skew.saturating_add(by_s.saturating_mul(1_000_000_000));
        self.wall_skew = skew.clamp(-true_ns, WALL_END_S as i64 * 1_000_000_000 - true_ns);
    }

    pub fn now(&self, ns: u64) -> Now {
        let wall = (WALL_START_S * 1_000_000_000 + ns).saturating_add_signed(self.wall_skew);
        Now {
            mono: Mono(ns + self.mono_offset),
            wall: Utime { sec: (wall / 1_000_000_000) as u32, nsec: (wall % 1_000_000_000) as u32 },
        }
    }
}
