//! Disks: how long I/O takes. What a crash leaves of it is `store::mem`'s affair.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use store::IoId;
use store::mem::{MemDisk, MemIo};

/// Latencies of simulated disks, nanoseconds.
#[derive(Debug, Clone)]
pub struct DiskModel {
    pub io_ns: std::ops::Range<u64>,
    pub flush_ns: std::ops::Range<u64>,
    /// One in so many takes `stall_ns`.
    pub stall_one_in: u32,
    pub stall_ns: u64,
}

impl Default for DiskModel {
    fn default() -> Self {
        DiskModel { io_ns: 20_000..300_000, flush_ns: 200_000..3_000_000, stall_one_in: 500, stall_ns: 80_000_000 }
    }
}

impl DiskModel {
    pub(crate) fn latency(&self, io: MemIo, rng: &mut ChaCha8Rng) -> u64 {
        if rng.random_ratio(1, self.stall_one_in) {
            return self.stall_ns;
        }
        match io {
            MemIo::Read(_) | MemIo::Write(_) => rng.random_range(self.io_ns.clone()),
            MemIo::DevFlush | MemIo::KvFlush | MemIo::KvRead => rng.random_range(self.flush_ns.clone()),
        }
    }
}

/// A disk and which of its I/O is already on the way to completion.
pub(crate) struct SimDisk {
    pub medium: MemDisk,
    /// Everything takes so many times as long.
    pub slow: u64,
    started: BTreeSet<IoId>,
}

impl SimDisk {
    pub fn new(medium: MemDisk) -> Self {
        SimDisk { medium, slow: 1, started: BTreeSet::new() }
    }

    /// I/O that has been asked for since the last call.
    pub fn start(&mut self) -> Vec<(IoId, MemIo)> {
        let mut pending = self.medium.pending();
        pending.retain(|(id, _)| self.started.insert(*id));
        pending
    }

    /// Lets an I/O end; `None` if a crash was faster.
    pub fn complete(&mut self, id: IoId) -> Option<Result<bytes::Bytes, types::Errno>> {
        self.started.remove(&id).then(|| self.medium.complete(id))
    }

    /// The process died: its I/O is not in flight any more. With the power gone too, the medium tears.
    pub fn crash(&mut self, rng: &mut ChaCha8Rng) {
        self.started.clear();
        self.medium.crash(rng);
    }
}
