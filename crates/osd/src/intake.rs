//! What clients have asked for and has not been answered: within bounds, for it is in memory.
//!
//! Room: osd core.   Owns: `Intake`.   Says: whether clients should be listened to.
//! Holds: a request counts from the moment it is taken in until the last trace of it is gone.
//! Upstream: client_byte_throttler and client_msg_throttler in src/ceph_osd.cc.

use std::cell::Cell;
use std::rc::Rc;
use types::msg::osd::MOsdOp;

/// What may be under way at a time, and what is.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// `osd_client_message_size_cap`; 0 for no bound.
    pub bytes_max: u64,
    /// `osd_client_message_cap`; 0 for no bound.
    pub requests_max: u64,
    taken: Rc<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    bytes: Cell<u64>,
    requests: Cell<u64>,
}

/// A request's share of the intake, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    bytes: u64,
    of: Rc<Taken>,
}

impl Intake {
    /// Counts a request.
    pub fn admit(&self, m: &MOsdOp) -> Rc<Share> {
        let bytes = m.ops.iter().map(|o| o.indata.len() as u64).sum();
        self.taken.bytes.set(self.taken.bytes.get() + bytes);
        self.taken.requests.set(self.taken.requests.get() + 1);
        Rc::new(Share { bytes, of: self.taken.clone() })
    }

    /// False while as much is under way as may be.
    pub fn has_room(&self) -> bool {
        let below = |taken: &Cell<u64>, max: u64| max == 0 || taken.get() < max;
        below(&self.taken.bytes, self.bytes_max) && below(&self.taken.requests, self.requests_max)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.bytes.set(self.of.bytes.get() - self.bytes);
        self.of.requests.set(self.of.requests.get() - 1);
    }
}
