//! Who is next at the device.
//!
//! Owns: [`DeviceQueue`].   Holds: every read and write goes through it, in the order its class's share says; what is given to the device at a
//! time is little, for what the device has it does in an order of its own. Flushes do not wait: many wait for each. What is in memory costs
//! nothing, and the order of a collection's transactions is not touched: they become durable in the order they came.

use crate::store::ById;
use crate::{BlockDev, IoId, Kv, Store};
use qos::{Begun, Class, DeviceModel, Io, Mclock, Share};
use types::msg::BufList;
use types::{Mono, Now};

/// Device time that is handed to the device at once, nanoseconds, and how many I/Os at least: its own queue should never run
/// dry, and an elevator wants something to sort.
const AHEAD: u64 = 2_000_000;
const AHEAD_IOS: u64 = 4;
/// How many while nobody knows what they cost.
const UNKNOWN_IOS: u64 = 32;

/// What waits for the device.
pub(crate) enum Job {
    Read { off: u64, len: usize },
    Write { off: u64, data: BufList },
}

pub(crate) struct DeviceQueue {
    waiting: Mclock<Class, (IoId, Job)>,
    pub model: DeviceModel,
    begun: ById<Begun>,
    /// Reads and writes at the device, and what they cost. Flushes are none of its queue's affair.
    given: (u64, u64),
    /// How many it may have at most.
    pub depth_max: u64,
}

impl DeviceQueue {
    /// Everybody the same.
    pub fn new(depth_max: u64) -> Self {
        let mut waiting = Mclock::default();
        for class in Class::ALL {
            waiting.set_share(0, class, Share { reservation: 0, weight: 1, limit: None });
        }
        DeviceQueue { waiting, model: DeviceModel::default(), begun: ById::default(), given: (0, 0), depth_max: depth_max.max(1) }
    }

    fn has_room(&self) -> bool {
        let least = if self.model.is_learned() { AHEAD_IOS } else { UNKNOWN_IOS };
        (self.given.0 < least || self.given.1 < AHEAD) && self.given.0 < self.depth_max
    }

    fn started(&mut self, now: Mono, id: IoId, io: Io, bytes: u64) {
        let begun = self.model.started(now.0, io, bytes);
        if io != Io::Flush {
            self.given = (self.given.0 + 1, self.given.1 + begun.cost());
        }
        self.begun.insert(id.0, begun);
    }

    /// It has ended, well or not.
    pub fn ended(&mut self, now: Mono, id: IoId) {
        if let Some(begun) = self.begun.remove(&id.0) {
            if begun.io() != Io::Flush {
                self.given = (self.given.0 - 1, self.given.1 - begun.cost());
            }
            self.model.ended(now.0, begun);
            self.waiting.set_busy(self.model.busy());
        }
    }
}

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// Queues a read or a write of the device. It starts at the end of the turn, or when its turn comes.
    pub(crate) fn want(&mut self, class: Class, id: IoId, job: Job) {
        let cost = match &job {
            Job::Read { len, .. } => self.queue.model.cost(Io::Read, *len as u64),
            Job::Write { data, .. } => self.queue.model.cost(Io::Write, data.len() as u64),
        };
        assert!(self.queue.waiting.push(self.now.0, class, cost, (id, job)).is_ok(), "every class has a share");
    }

    /// A flush has been started.
    pub(crate) fn note_flush(&mut self, id: IoId) {
        self.queue.started(self.now, id, Io::Flush, 0);
    }

    /// Gives the device what it has room for.
    pub(crate) fn drive_device(&mut self) {
        while self.queue.has_room()
            && let Some(next) = self.queue.waiting.pop(self.now.0)
        {
            let (id, job) = next.job;
            match job {
                Job::Read { off, len } => {
                    self.queue.started(self.now, id, Io::Read, len as u64);
                    self.dev.read(id, off, len);
                }
                Job::Write { off, data } => {
                    self.queue.started(self.now, id, Io::Write, data.len() as u64);
                    self.dev.write(id, off, data);
                }
            }
        }
    }

    /// What a class of work gets of the device's time from now on. Until this is called all get the same.
    pub fn set_share(&mut self, now: Now, class: Class, share: Share) {
        self.now = self.now.max(now.mono);
        self.queue.waiting.set_share(self.now.0, class, share);
    }

    /// When a limit lets something start that waits for nothing else; the owner calls `handle_timeout` then.
    pub fn next_timeout(&self) -> Option<Mono> {
        self.queue.waiting.next_at().filter(|at| *at > self.now.0 && self.queue.has_room()).map(Mono)
    }

    /// Time has passed: called at the beginning of every turn, for what is begun in it counts from there.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = self.now.max(now.mono);
    }

    /// What the device can do, as far as it has shown.
    pub fn device(&self) -> &DeviceModel {
        &self.queue.model
    }
}
