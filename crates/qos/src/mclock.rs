//! The queues before one device, and who is next.
//!
//! Owns: [`Mclock`].   Says: what may start now, or when something may.
//! Holds: whoever has a reservation gets it, nobody exceeds a limit where the device is busy, what is left is divided by weight, and a twentieth of
//! what reservations take goes to who has none though they would take everything: costs are estimates, and who has no reservation
//! would starve whenever they are too low. What can wait goes when no class has anything that may start.

use crate::Share;
use std::collections::{BTreeMap, VecDeque};

/// How much of its reservation a class may make up for when it was denied: longer ago is forgotten, or one that waited
/// behind a device that stood still would have it alone afterwards. Nanoseconds.
const CATCH_UP: u64 = 200_000_000;
/// The same of what its limit allows, when its turn came late.
const LIMIT_SLACK: u64 = 50_000_000;
/// What reservations take is divided by this: so much goes by weight at least, to who has none.
const BY_WEIGHT: u64 = 20;
/// A device that is busy for less than this part of what a limit allows is not kept busy by who is limited, whatever costs are taken for:
/// thousandths of the limit.
const BUSY: u64 = 800;
/// What is urgent goes before everything else until it has taken this much of the device's time, thousandths.
const URGENT: u64 = 250;

/// What starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started<C, T> {
    /// `None`: it was urgent.
    pub class: Option<C>,
    /// It was its reservation's turn, not its weight's.
    pub reserved: bool,
    /// Device time that it is expected to take, nanoseconds.
    pub cost: u64,
    pub job: T,
}

/// Work that waits for a device, by class `C`, each class in the order it came.
///
/// Times are nanoseconds of one clock that only goes on; costs are nanoseconds of the device's time, above 0. How many jobs
/// are at the device at once is its owner's affair: it asks for the next one when the device has room.
#[derive(Debug, Clone)]
pub struct Mclock<C, T> {
    classes: BTreeMap<C, Queue<T>>,
    urgent: VecDeque<(u64, T)>,
    /// What can wait, and whose it is.
    idle: VecDeque<(C, u64, T)>,
    /// What is urgent has taken its part until then.
    urgent_until: u64,
    /// Cost per weight that whoever was last served by weight had been served: where a class begins that was idle.
    progress: u64,
    /// Cost that is to go to who has no reservation because others' took their part.
    owed: u64,
    /// Thousandths of the time that the device is busy.
    busy: u16,
}

#[derive(Debug, Clone)]
struct Queue<T> {
    share: Share,
    jobs: VecDeque<(u64, T)>,
    /// When its reservation entitles it to its first job.
    reserved_at: u64,
    /// When its limit does.
    limited_until: u64,
    /// Cost it was served per weight, on the scale of `Mclock::progress`.
    progress: u64,
}

impl<T> Queue<T> {
    fn may(&self, now: u64, busy: u16) -> bool {
        !self.jobs.is_empty() && (self.limited_until <= now || !self.is_limited(busy))
    }

    /// True if its limit has a meaning.
    fn is_limited(&self, busy: u16) -> bool {
        self.share.limit.is_some_and(|limit| u64::from(busy) * 1000 >= u64::from(limit) * BUSY)
    }

    fn is_due(&self, now: u64) -> bool {
        self.share.reservation > 0 && self.reserved_at <= now
    }

    /// Counts a job for limit and weight.
    fn charge(&mut self, now: u64, busy: u16, cost: u64) {
        if let Some(limit) = self.share.limit.filter(|_| self.is_limited(busy)) {
            self.limited_until = self.limited_until.max(now.saturating_sub(LIMIT_SLACK)).saturating_add(stretched(cost, limit.into()));
        }
        self.progress = self.progress.saturating_add(cost / u64::from(self.share.weight.max(1)));
    }

    /// Takes the first job, and counts it for limit and weight.
    fn take(&mut self, now: u64, busy: u16) -> Option<(u64, T)> {
        let (cost, job) = self.jobs.pop_front()?;
        self.charge(now, busy, cost);
        Some((cost, job))
    }
}

/// How long a class with `thousandths` of the device's time takes for a job of this cost.
fn stretched(cost: u64, thousandths: u64) -> u64 {
    cost.saturating_mul(1000) / thousandths.max(1)
}

impl<C: Ord + Copy, T> Default for Mclock<C, T> {
    fn default() -> Self {
        Mclock { classes: BTreeMap::new(), urgent: VecDeque::new(), idle: VecDeque::new(), urgent_until: 0, progress: 0, owed: 0, busy: 1000 }
    }
}

impl<C: Ord + Copy, T> Mclock<C, T> {
    /// From now on, `class` has this share; what waits stays.
    pub fn set_share(&mut self, now: u64, class: C, share: Share) {
        let progress = self.least_progress();
        let new = || Queue { share, jobs: VecDeque::new(), reserved_at: now, limited_until: 0, progress };
        let queue = self.classes.entry(class).or_insert_with(new);
        if queue.share != share {
            queue.share = share;
            // What it was denied or granted by its old share is no measure of the new one.
            (queue.reserved_at, queue.limited_until, queue.progress) = (now, 0, progress);
        }
    }

    /// How much of the time the device has been busy lately, thousandths. Until this is called it is taken to be always so.
    ///
    /// Limits bind only while the device is about as busy as they allow: where costs are taken for too high, they would leave it idle for ever, and
    /// nothing would ever show what it can do.
    pub fn set_busy(&mut self, thousandths: u16) {
        self.busy = thousandths;
    }

    /// How far whoever waits has come at least; with nobody there, whoever was served last.
    fn least_progress(&self) -> u64 {
        self.classes.values().filter(|q| !q.jobs.is_empty()).map(|q| q.progress).min().unwrap_or(self.progress)
    }

    /// Whose reservation's turn it is, and when it was first: of those that may have something the one most behind.
    fn due(&self, now: u64) -> Option<(C, u64)> {
        let due = self.classes.iter().filter(|(_, q)| q.may(now, self.busy) && q.is_due(now));
        due.map(|(class, q)| (*class, q.reserved_at)).min_by_key(|(_, at)| *at)
    }

    /// Where the reservation of one begins that had nothing waiting: at the same as of whoever is most behind.
    fn most_behind(&self, now: u64) -> u64 {
        self.due(now).map_or(now, |(_, at)| at.max(now.saturating_sub(CATCH_UP)))
    }

    /// Forgets a class, and returns what waited there.
    pub fn remove_class(&mut self, class: C) -> Vec<T> {
        self.classes.remove(&class).into_iter().flat_map(|q| q.jobs).map(|(_, job)| job).collect()
    }

    /// Queues a job of `class`, or returns it when no share was set for that.
    pub fn push(&mut self, now: u64, class: C, cost: u64, job: T) -> Result<(), T> {
        let begins = self.classes.get(&class).is_some_and(|q| q.jobs.is_empty()).then(|| (self.most_behind(now), self.least_progress()));
        let Some(queue) = self.classes.get_mut(&class) else { return Err(job) };
        if let Some((reserved, progress)) = begins {
            // Idleness earns nothing, and to have had nothing left for a moment costs nothing where all are behind.
            queue.reserved_at = queue.reserved_at.max(reserved);
            queue.progress = queue.progress.max(progress);
        }
        queue.jobs.push_back((cost.max(1), job));
        Ok(())
    }

    /// Queues what goes before all classes while it takes no more than a quarter of the device's time.
    pub fn push_urgent(&mut self, cost: u64, job: T) {
        self.urgent.push_back((cost.max(1), job));
    }

    /// Queues what nobody waits for, however long it takes: it costs its class nothing unless that begins to wait for it (`hurry`).
    pub fn push_idle(&mut self, class: C, cost: u64, job: T) {
        self.idle.push_back((class, cost, job));
    }

    /// Takes what can wait, for when `pop` has nothing.
    pub fn pop_idle(&mut self) -> Option<Started<C, T>> {
        let (class, cost, job) = self.idle.pop_front()?;
        Some(Started { class: Some(class), reserved: false, cost, job })
    }

    /// What could wait cannot any more: it goes with its class.
    pub fn hurry(&mut self, now: u64) {
        for (class, cost, job) in std::mem::take(&mut self.idle) {
            if let Err(job) = self.push(now, class, cost, job) {
                self.idle.push_back((class, cost, job));
            }
        }
    }

    /// Takes the job that is to start next; `None`: nothing waits, or limits forbid it (`next_at`).
    pub fn pop(&mut self, now: u64) -> Option<Started<C, T>> {
        if self.urgent_until <= now
            && let Some(started) = self.pop_urgent(now)
        {
            return Some(started);
        }
        let due = self.due(now).map(|(class, _)| class);
        // Who has a reservation does not starve while others' are served: its turn comes.
        let has_turn = |q: &Queue<T>| q.may(now, self.busy) && (due.is_none() || q.share.reservation == 0);
        let by_weight = self.classes.iter().filter(|(_, q)| has_turn(q)).min_by_key(|(_, q)| q.progress);
        let by_weight = by_weight.map(|(c, q)| (*c, q.jobs.front().map_or(0, |(cost, _)| *cost)));
        match (due, by_weight) {
            (Some(due), Some((_, cost))) if cost > self.owed => {
                let reserved = self.classes.get(&due).and_then(|q| q.jobs.front()).map_or(0, |(cost, _)| *cost);
                self.owed = self.owed.saturating_add(reserved / BY_WEIGHT);
                self.pop_reserved(now, due)
            }
            (Some(due), None) => self.pop_reserved(now, due),
            (_, Some((class, _))) => self.pop_by_weight(now, class),
            (None, None) => self.pop_urgent(now),
        }
    }

    fn pop_urgent(&mut self, now: u64) -> Option<Started<C, T>> {
        let (cost, job) = self.urgent.pop_front()?;
        self.urgent_until = self.urgent_until.max(now).saturating_add(stretched(cost, URGENT));
        Some(Started { class: None, reserved: false, cost, job })
    }

    fn pop_reserved(&mut self, now: u64, class: C) -> Option<Started<C, T>> {
        let denied = now.saturating_sub(CATCH_UP).saturating_sub(self.classes.get(&class)?.reserved_at);
        if denied > 0 {
            // It is the one most behind. All are forgiven the same, so that a device too slow for all is divided as reserved.
            for queue in self.classes.values_mut() {
                queue.reserved_at = queue.reserved_at.max(now.min(queue.reserved_at.saturating_add(denied)));
            }
        }
        let queue = self.classes.get_mut(&class)?;
        let (cost, job) = queue.take(now, self.busy)?;
        queue.reserved_at = queue.reserved_at.saturating_add(stretched(cost, queue.share.reservation.into()));
        Some(Started { class: Some(class), reserved: true, cost, job })
    }

    fn pop_by_weight(&mut self, now: u64, class: C) -> Option<Started<C, T>> {
        let progress = self.classes.get(&class)?.progress;
        self.progress = self.progress.max(progress);
        for queue in self.classes.values_mut().filter(|q| !q.may(now, self.busy)) {
            // What a limit denies is not owed.
            queue.progress = queue.progress.max(progress);
        }
        let queue = self.classes.get_mut(&class)?;
        let (cost, job) = queue.take(now, self.busy)?;
        self.owed = self.owed.saturating_sub(cost);
        Some(Started { class: Some(class), reserved: false, cost, job })
    }

    /// Jobs of a class that wait, in their order.
    pub fn jobs(&self, class: C) -> impl Iterator<Item = &T> {
        self.classes.get(&class).into_iter().flat_map(|q| q.jobs.iter().map(|(_, job)| job))
    }

    /// Takes jobs that are done together with one that `pop` has just returned (`reserved` as it said), though their turn is later; the class pays
    /// `more` for them.
    pub fn join(&mut self, now: u64, class: C, reserved: bool, more: u64, mut is_joined: impl FnMut(&T) -> bool) -> Vec<T> {
        let Some(queue) = self.classes.get_mut(&class) else { return Vec::new() };
        let (joined, rest): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut queue.jobs).into_iter().partition(|(_, job)| is_joined(job));
        queue.jobs = rest;
        queue.charge(now, self.busy, more);
        match reserved {
            true => queue.reserved_at = queue.reserved_at.saturating_add(stretched(more, queue.share.reservation.into())),
            false => self.owed = self.owed.saturating_sub(more),
        }
        joined.into_iter().map(|(_, job)| job).collect()
    }

    /// When to ask again if `pop` returned nothing; `None`: not before something is queued.
    pub fn next_at(&self) -> Option<u64> {
        self.classes.values().filter(|q| !q.jobs.is_empty()).map(|q| q.limited_until).min()
    }

    /// Jobs that wait.
    pub fn len(&self) -> usize {
        self.urgent.len() + self.idle.len() + self.classes.values().map(|q| q.jobs.len()).sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.idle.is_empty() && self.classes.values().all(|q| q.jobs.is_empty())
    }

    /// Jobs that are urgent and wait.
    pub fn urgent_len(&self) -> usize {
        self.urgent.len()
    }

    /// Jobs of a class that wait, with those that can wait.
    pub fn class_len(&self, class: C) -> usize {
        self.classes.get(&class).map_or(0, |q| q.jobs.len()) + self.idle.iter().filter(|(whose, ..)| *whose == class).count()
    }

    /// Jobs of a class that wait, and what they cost together, nanoseconds.
    pub fn waiting(&self, class: C) -> (usize, u64) {
        self.classes.get(&class).map_or((0, 0), |q| (q.jobs.len(), q.jobs.iter().map(|(cost, _)| cost).sum()))
    }

    /// Drops the jobs that `keep` refuses.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.urgent.retain(|(_, job)| keep(job));
        self.idle.retain(|(.., job)| keep(job));
        for queue in self.classes.values_mut() {
            queue.jobs.retain(|(_, job)| keep(job));
        }
    }
}
