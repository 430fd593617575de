//! What clients have asked for and has not been answered: within bounds, for it is in memory.
//!
//! Room: osd core.   Owns: `Intake`.   Says: whether clients should be listened to.
//! Holds: a request counts from the moment it is decoded until nothing of it is left, but not for longer than `STUCK`: what waits
//! for an object that is nowhere, or was asked by a client that is gone, must not keep everybody else waiting.
//! Upstream: client_byte_throttler and client_msg_throttler in src/ceph_osd.cc, and osd_backoff_on_unfound, which we have not.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;
use types::Mono;
use types::msg::osd::MOsdOp;

const STUCK: Duration = Duration::from_secs(10);

/// What may be under way at a time, and what is.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// `osd_client_message_size_cap`, or what `osd_memory_target` leaves for requests; 0 for no bound.
    pub bytes_max: u64,
    /// `osd_client_message_cap`; 0 for no bound.
    pub requests_max: u64,
    /// The process has much too much memory: one after the other.
    pub squeezed: bool,
    taken: Rc<Taken>,
    /// In the order they came. Of those behind the first some may be gone.
    shares: VecDeque<(Mono, Weak<Share>)>,
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
    given_back: Cell<bool>,
}

impl Intake {
    /// Counts a request.
    pub fn admit(&mut self, now: Mono, m: &MOsdOp) -> Rc<Share> {
        self.forget_gone();
        let bytes = m.ops.iter().map(|o| o.indata.len() as u64).sum();
        self.taken.bytes.update(|n| n + bytes);
        self.taken.requests.update(|n| n + 1);
        let share = Rc::new(Share { bytes, of: self.taken.clone(), given_back: Cell::new(false) });
        self.shares.push_back((now, Rc::downgrade(&share)));
        share
    }

    /// False while as much is under way as may be.
    pub fn has_room(&self) -> bool {
        let below = |taken: &Cell<u64>, max: u64| max == 0 || taken.get() < max;
        let bytes_max = if self.squeezed { 1 } else { self.bytes_max };
        below(&self.taken.bytes, bytes_max) && below(&self.taken.requests, self.requests_max)
    }

    /// Bytes and requests under way.
    pub fn taken(&self) -> (u64, u64) {
        (self.taken.bytes.get(), self.taken.requests.get())
    }

    /// What has been under way for too long does not count any more.
    pub fn handle_tick(&mut self, now: Mono) {
        while self.shares.front().is_some_and(|(since, _)| now - *since > STUCK) {
            if let Some(share) = self.shares.pop_front().and_then(|(_, share)| share.upgrade()) {
                share.give_back();
            }
        }
        self.forget_gone();
    }

    fn forget_gone(&mut self) {
        while self.shares.front().is_some_and(|(_, share)| share.strong_count() == 0) {
            self.shares.pop_front();
        }
    }
}

impl Share {
    fn give_back(&self) {
        if !self.given_back.replace(true) {
            self.of.bytes.update(|n| n - self.bytes);
            self.of.requests.update(|n| n - 1);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back();
    }
}
