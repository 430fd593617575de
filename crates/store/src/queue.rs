//! Who is next at the device.
//!
//! Owns: [`DeviceQueue`].   Holds: every read and write goes through it, in the order its class's share says; what is given to the device at a
//! time is little, for what the device has it does in an order of its own. Flushes do not wait: many wait for each. What is in memory costs
//! nothing, and the order of a collection's transactions is not touched: they become durable in the order they came.
//! Reads of one class that lie near each other are one read, where what lies between costs less than another I/O: on a disk whose head moves that is
//! what makes recovery and scrub quick.

use crate::onode::BLOCK;
use crate::store::{ById, IoKind};
use crate::{BlockDev, IoId, Kv, Store};
use bytes::Bytes;
use qos::{Begun, Class, DeviceModel, Io, Mclock, Share, Started};
use types::msg::BufList;
use types::{Errno, Mono, Now};

/// Device time that is handed to the device at once, nanoseconds, and how many I/Os at least: its own queue should never run
/// dry, and an elevator wants something to sort.
const AHEAD: u64 = 2_000_000;
const AHEAD_IOS: u64 = 4;
/// How many while nobody knows what they cost.
const UNKNOWN_IOS: u64 = 32;

/// The most that is read for nothing between two reads that are joined, bytes.
const BETWEEN: u64 = 512 << 10;

/// What waits for the device.
pub(crate) enum Job {
    /// `cached`: through the page cache.
    Read { off: u64, len: usize, cached: bool },
    /// One that was joined to others in vain: perhaps for a bad neighbour.
    ReadAlone { off: u64, len: usize },
    Write { off: u64, data: BufList },
}

impl Job {
    /// What and how much.
    fn io(&self) -> (Io, u64) {
        match self {
            Job::Read { len, .. } | Job::ReadAlone { len, .. } => (Io::Read, *len as u64),
            Job::Write { data, .. } => (Io::Write, data.len() as u64),
        }
    }

    /// The range of a read that others may join, if they take the same way.
    fn range(&self) -> Option<Range> {
        match self {
            Job::Read { off, len, cached } => Some(Range { off: *off, end: off + *len as u64, cached: *cached }),
            _ => None,
        }
    }
}

/// What a read asks the device for, and whether through the page cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    off: u64,
    end: u64,
    cached: bool,
}

impl Range {
    fn len(self) -> u64 {
        self.end - self.off
    }

    fn holds(self, other: Range) -> bool {
        self.off <= other.off && other.end <= self.end && self.cached == other.cached
    }
}

/// Reads that are one for the device.
pub(crate) struct Joined {
    class: Class,
    off: u64,
    /// Where each begins, and how long it is.
    parts: Vec<(IoId, u64, usize)>,
}

/// What each class of work has had of the device since the start, and flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceUse {
    /// Nanoseconds. While several are at the device, each has a part of the time as its costs are of theirs.
    pub time: [u64; 3],
    pub flush_time: u64,
    /// Of that, what I/Os had that were chosen while clients and recovery both had something waiting: what shares are about.
    pub contended: [u64; 3],
    /// I/Os that were given to the device, and their bytes.
    pub ios: [u64; 3],
    pub bytes: [u64; 3],
    /// What waits now, in nanoseconds of the device's time.
    pub waiting: [u64; 3],
    /// I/Os that wait now; those that are urgent apart.
    pub queued: [u64; 3],
    pub queued_urgent: u64,
    /// Reads that the page cache answered without the device, and their bytes.
    pub page_cache_hits: u64,
    pub page_cache_hit_bytes: u64,
}

/// Shares out the time that the device is busy.
#[derive(Default)]
struct Meter {
    used: DeviceUse,
    at: u64,
    /// What is at the device costs, by class; flushes last.
    cost: [u64; 4],
    /// The same of what was chosen while clients and recovery both had something waiting.
    contended: [u64; 3],
}

impl Meter {
    fn account(&mut self, now: u64) {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        let all: u64 = self.cost.iter().sum();
        let part = |cost: u64| (u128::from(passed) * u128::from(cost) / u128::from(all.max(1))) as u64;
        for i in 0..3 {
            self.used.time[i] += part(self.cost[i]);
            self.used.contended[i] += part(self.contended[i]);
        }
        self.used.flush_time += part(self.cost[3]);
    }
}

pub(crate) struct DeviceQueue {
    waiting: Mclock<Class, (IoId, Job)>,
    pub model: DeviceModel,
    /// What is at the device, whose it is, a place in `Meter::cost`, and whether it was chosen before others.
    begun: ById<(Begun, usize, bool)>,
    /// Reads and writes at the device, and what they cost. Flushes are none of its queue's affair.
    given: (u64, u64),
    /// How many it may have at most.
    pub depth_max: u64,
    meter: Meter,
    /// I/Os of 4 KiB in a second, as an option says: an operator's word, or what was learned here and told.
    capacity: Option<f64>,
}

impl DeviceQueue {
    /// Everybody the same.
    pub fn new(depth_max: u64) -> Self {
        let mut waiting = Mclock::default();
        for class in Class::ALL {
            waiting.set_share(0, class, Share { reservation: 0, weight: 1, limit: None });
        }
        DeviceQueue {
            waiting,
            model: DeviceModel::default(),
            begun: ById::default(),
            given: (0, 0),
            depth_max: depth_max.max(1),
            meter: Meter::default(),
            capacity: None,
        }
    }

    fn has_room(&self) -> bool {
        self.has_room_beyond(if self.model.is_learned() { AHEAD_IOS } else { UNKNOWN_IOS })
    }

    /// True if the device may have more, so many I/Os at least.
    fn has_room_beyond(&self, least: u64) -> bool {
        (self.given.0 < least || self.given.1 < AHEAD) && self.given.0 < self.depth_max
    }

    /// `class` is that of a read or a write; others waited when it was `chosen`.
    fn started(&mut self, now: Mono, id: IoId, class: Option<Class>, chosen: bool, (io, bytes): (Io, u64)) {
        self.meter.account(now.0);
        let begun = self.model.started(now.0, io, bytes);
        let whose = class.map_or(Class::ALL.len(), |class| class as usize);
        self.meter.cost[whose] += begun.cost();
        if class.is_some() {
            self.given = (self.given.0 + 1, self.given.1 + begun.cost());
            self.meter.used.ios[whose] += 1;
            self.meter.used.bytes[whose] += bytes;
            self.meter.contended[whose] += if chosen { begun.cost() } else { 0 };
        }
        self.begun.insert(id.0, (begun, whose, chosen));
    }

    /// It has ended, well or not.
    pub fn ended(&mut self, now: Mono, id: IoId) {
        if let Some((begun, whose, chosen)) = self.begun.remove(&id.0) {
            self.meter.account(now.0);
            self.meter.cost[whose] -= begun.cost();
            if begun.io() != Io::Flush {
                self.meter.contended[whose] -= if chosen { begun.cost() } else { 0 };
                self.given = (self.given.0 - 1, self.given.1 - begun.cost());
            }
            self.model.ended(now.0, begun);
            self.waiting.set_busy(self.model.busy());
        }
    }

    /// The page cache had what the device would have been asked for.
    pub fn spared(&mut self, bytes: u64) {
        self.meter.used.page_cache_hits += 1;
        self.meter.used.page_cache_hit_bytes += bytes;
    }

    /// True if clients and recovery both have something waiting.
    fn is_contended(&self) -> bool {
        [Class::Client, Class::Recovery].iter().all(|class| self.waiting.jobs(*class).next().is_some())
    }

    /// What an I/O counts for its class: what it costs, or would if the device did what an operator says it does.
    fn price(&self, (io, bytes): (Io, u64)) -> u64 {
        let cost = self.model.cost(io, bytes);
        match self.capacity {
            Some(iops) => (cost as f64 * self.model.exceeds(iops)) as u64,
            None => cost,
        }
    }

    /// What is to be given to the device next. Of what can wait no more than `AHEAD`, or one I/O: whoever comes meanwhile waits for that.
    fn next(&mut self, now: Mono) -> Option<Started<Class, (IoId, Job)>> {
        let may_idle = self.has_room_beyond(1);
        self.waiting.pop(now.0).or_else(|| if may_idle { self.waiting.pop_idle() } else { None })
    }

    /// The range that a read grows to by what waits near it, `most` bytes.
    fn grown(&self, class: Class, range: Range, most: u64) -> Range {
        let between = self.model.worth_reading(BETWEEN);
        let mut near: Vec<Range> = self.waiting.jobs(class).filter_map(|(_, job)| job.range()).collect();
        near.retain(|r| r.end.abs_diff(range.off) <= most && r.off.abs_diff(range.end) <= most && r.cached == range.cached);
        near.sort_unstable();
        let mut all = range;
        let mut take = |r: Range| {
            let both = Range { off: all.off.min(r.off), end: all.end.max(r.end), ..all };
            let gap = r.off.saturating_sub(all.end).max(all.off.saturating_sub(r.end));
            if gap <= between && both.len() <= most {
                all = both;
            }
        };
        let behind = near.partition_point(|r| r.off < range.off);
        near[behind..].iter().copied().for_each(&mut take);
        near[..behind].iter().rev().copied().for_each(&mut take);
        all
    }
}

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// Queues a read or a write of the device. It starts at the end of the turn, or when its turn comes.
    pub(crate) fn want(&mut self, class: Class, id: IoId, job: Job) {
        let cost = self.queue.price(job.io());
        assert!(self.queue.waiting.push(self.now.0, class, cost, (id, job)).is_ok(), "every class has a share");
    }

    /// Queues a write that nobody waits for. It starts when the device has nothing else to do, or when the log is pressed.
    pub(crate) fn want_later(&mut self, class: Class, id: IoId, job: Job) {
        let cost = self.queue.price(job.io());
        self.queue.waiting.push_idle(class, cost, (id, job));
    }

    /// A flush has been started.
    pub(crate) fn note_flush(&mut self, id: IoId) {
        self.queue.started(self.now, id, None, false, (Io::Flush, 0));
    }

    /// Gives the device what it has room for.
    pub(crate) fn drive_device(&mut self) {
        if self.log_is_pressed() {
            self.queue.waiting.hurry(self.now.0);
        }
        while self.queue.has_room() {
            let chosen = self.queue.is_contended();
            let Some(next) = self.queue.next(self.now) else { break };
            let class = next.class.unwrap_or_default();
            let (mut id, mut job) = next.job;
            if let Some(range) = job.range().filter(|_| self.config.joined_read_bytes > 0) {
                (id, job) = self.join(class, next.reserved, id, range);
            }
            self.queue.started(self.now, id, Some(class), chosen, job.io());
            match job {
                Job::Read { off, len, cached: true } => {
                    // What the page cache has in the middle would make several reads of it.
                    if len as u64 > BLOCK && self.queue.model.worth_reading(len as u64) == len as u64 {
                        self.dev.uncache(off, len as u64);
                    }
                    self.dev.read_cached(id, off, len);
                }
                Job::Read { off, len, .. } | Job::ReadAlone { off, len } => self.dev.read(id, off, len),
                Job::Write { off, data } => self.dev.write(id, off, data),
            }
        }
    }

    /// A read, with those that wait near it.
    fn join(&mut self, class: Class, reserved: bool, id: IoId, range: Range) -> (IoId, Job) {
        let all = self.queue.grown(class, range, self.config.joined_read_bytes);
        let job = Job::Read { off: all.off, len: all.len() as usize, cached: all.cached };
        let inside = |(_, job): &(IoId, Job)| job.range().is_some_and(|r| all.holds(r));
        if all == range && !self.queue.waiting.jobs(class).any(inside) {
            return (id, job);
        }
        let cost = |bytes| self.queue.price((Io::Read, bytes));
        let more = cost(all.len()) - cost(range.len());
        let joined = self.queue.waiting.join(self.now.0, class, reserved, more, inside);
        let first = (id, range.off, range.len() as usize);
        let others = joined.into_iter().filter_map(|(id, job)| job.range().map(|r| (id, r.off, r.len() as usize)));
        let parts = std::iter::once(first).chain(others).collect();
        (self.io(IoKind::Joined(Joined { class, off: all.off, parts })), job)
    }

    /// Several reads have been one: each has its part of it, or is tried by itself.
    pub(crate) fn handle_joined(&mut self, now: Now, joined: Joined, result: Result<Bytes, Errno>) {
        let wanted: usize = joined.parts.iter().map(|(.., len)| len).sum();
        for (id, off, len) in joined.parts {
            let at = (off - joined.off) as usize;
            match result.as_ref().ok().filter(|all| all.len() >= at + len) {
                // What was read for nothing is not kept for the sake of what was not.
                Some(all) if 2 * wanted < all.len() => self.handle_io(now, id, Ok(Bytes::copy_from_slice(&all[at..at + len]))),
                Some(all) => self.handle_io(now, id, Ok(all.slice(at..at + len))),
                None => self.want(joined.class, id, Job::ReadAlone { off, len }),
            }
        }
    }

    /// How many I/Os of 4 KiB the device is to be taken to do in a second where its time is divided; `None`, or about what it has shown: that.
    pub fn set_capacity(&mut self, iops: Option<f64>) {
        self.queue.capacity = iops.filter(|iops| *iops > 0.0);
    }

    /// What each class of work has had of the device.
    pub fn device_use(&self) -> DeviceUse {
        let waiting = Class::ALL.map(|class| self.queue.waiting.waiting(class).1);
        let queued = Class::ALL.map(|class| self.queue.waiting.class_len(class) as u64);
        DeviceUse { waiting, queued, queued_urgent: self.queue.waiting.urgent_len() as u64, ..self.queue.meter.used }
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
