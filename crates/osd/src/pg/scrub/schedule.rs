//! When a PG is scrubbed, and by whose leave: no OSD takes part in more than `osd_max_scrubs` at a time.
//!
//! Holds: reservations are refused, not queued, so that two primaries cannot wait for each other; whoever is refused
//! gives back what it has and asks again later.
//! Why no look at the machine's load: the core has no view of the machine, and a part of a scrub is short.
//! Upstream: src/osd/scrubber/osd_scrub_sched.cc, `osd_scrub_*` in src/common/options.cc.

use super::super::{Pg, Stage};
use super::{Step, Wanted};
use crate::effects::{Cx, Durable, Shared};
use admin::option::ConfigValues;
use rand::Rng;
use std::time::Duration;
use types::map::pool_opts::{PoolOptKey, PoolOptValue};
use types::map::{OsdMap, PgPool};
use types::msg::internal_osd::{PgBody, Round};
use types::{Mono, Now, OsdId, Utime};

/// Between two looks at whether a scrub is due.
const LOOK: Duration = Duration::from_secs(5);
/// After a refusal.
const RETRY: Duration = Duration::from_secs(5);

/// `osd_scrub_*` and their like.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScrubOptions {
    pub max: usize,
    pub chunk_max: usize,
    pub stride: u64,
    pub sleep: Duration,
    pub auto_repair: bool,
    pub auto_repair_errors: u32,
    /// `osd_scrub_during_recovery`
    during_recovery: bool,
    min_interval: f64,
    max_interval: f64,
    randomize: f64,
    deep_interval: f64,
    deep_randomize: f64,
    begin_hour: u64,
    end_hour: u64,
}

impl ScrubOptions {
    pub fn new(c: &ConfigValues) -> Self {
        ScrubOptions {
            max: c.i64("osd_max_scrubs").max(0) as usize,
            chunk_max: c.i64("osd_scrub_chunk_max").clamp(1, 1000) as usize,
            stride: c.u64("osd_deep_scrub_stride").clamp(4096, 4 << 20) / 4096 * 4096,
            sleep: Duration::try_from_secs_f64(c.f64("osd_scrub_sleep")).unwrap_or_default(),
            auto_repair: c.bool("osd_scrub_auto_repair"),
            auto_repair_errors: c.u64("osd_scrub_auto_repair_num_errors").min(u32::MAX.into()) as u32,
            during_recovery: c.bool("osd_scrub_during_recovery"),
            min_interval: c.f64("osd_scrub_min_interval"),
            max_interval: c.f64("osd_scrub_max_interval"),
            randomize: c.f64("osd_scrub_interval_randomize_ratio").max(0.0),
            deep_interval: c.f64("osd_deep_scrub_interval"),
            deep_randomize: c.f64("osd_deep_scrub_randomize_ratio"),
            begin_hour: c.i64("osd_scrub_begin_hour").max(0) as u64,
            end_hour: c.i64("osd_scrub_end_hour").max(0) as u64,
        }
    }

    /// True in the hours in which scrubs may begin by themselves.
    fn allows(&self, now: Utime) -> bool {
        let (begin, end, hour) = (self.begin_hour % 24, self.end_hour % 24, now.to_duration().as_secs() / 3600 % 24);
        match begin < end {
            true => (begin..end).contains(&hour),
            // Around midnight; equal hours are all day.
            false => begin == end || hour >= begin || hour < end,
        }
    }
}

impl Shared {
    /// One more scrub this OSD takes part in, if it may: recovery comes first.
    pub fn take_scrub_slot(&mut self) -> bool {
        let recovers = self.local_slots.is_held() || self.remote_slots.is_held();
        let free = self.scrubs_active < self.scrub.max && (self.scrub.during_recovery || !recovers);
        self.scrubs_active += usize::from(free);
        free
    }

    pub fn give_scrub_slot(&mut self) {
        self.scrubs_active -= 1;
    }
}

/// When to think of it next.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    look_at: Mono,
    /// How much of `osd_scrub_interval_randomize_ratio` this PG waits beyond the interval: drawn once per scrub.
    jitter: Option<f64>,
}

impl Schedule {
    pub fn look_now(&mut self) {
        self.look_at = Mono(0);
    }

    pub fn scrubbed(&mut self) {
        self.jitter = None;
    }

    pub fn is_time_to_look(&mut self, now: Mono) -> bool {
        let due = now >= self.look_at;
        if due {
            self.look_at = now + LOOK;
        }
        due
    }
}

/// Seconds since a stamp. One from well in the future was made by a clock that has been set since: that was too long ago, or
/// nothing would be scrubbed until the time comes again.
fn age(now: Utime, at: Utime) -> f64 {
    let (now, at) = (now.to_duration().as_secs_f64(), at.to_duration().as_secs_f64());
    if at > now + 60.0 { f64::INFINITY } else { (now - at).max(0.0) }
}

/// What a pool says of itself, or else the option.
fn interval(pool: &PgPool, key: PoolOptKey, otherwise: f64) -> f64 {
    match pool.opts.get(key) {
        Some(PoolOptValue::Double(s)) if *s > 0.0 => *s,
        _ => otherwise,
    }
}

/// Seconds between two scrubs of a pool's PGs, at least and at most.
fn intervals(pool: &PgPool, o: &ScrubOptions) -> (f64, f64) {
    (interval(pool, PoolOptKey::SCRUB_MIN_INTERVAL, o.min_interval), interval(pool, PoolOptKey::SCRUB_MAX_INTERVAL, o.max_interval))
}

/// When a PG is to be scrubbed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextScrub {
    /// Zero if somebody wants it now.
    pub at: Utime,
    /// From then on neither hour matters; zero: never.
    pub deadline: Utime,
    pub forced: bool,
}

impl Pg {
    /// A scrub of ours is under way.
    pub fn is_scrubbing(&self) -> bool {
        self.scrubs.run.is_some()
    }

    /// When there will be a scrub; `None` if the pool is gone.
    pub fn next_scrub(&self, now: Now, sh: &Shared) -> Option<NextScrub> {
        let pool = sh.map.pool_by_id(self.id.pool)?;
        let forced = self.scrubs.wanted.is_some_and(|w| w.requested);
        let (min, max) = intervals(pool, &sh.scrub);
        let last = self.history.scrubs.last_scrub_stamp.min(now.wall).to_duration();
        // What has not been drawn yet may be anything from nothing to all of it.
        let wait = min * (1.0 + sh.scrub.randomize * self.scrubs.schedule.jitter.unwrap_or(0.0));
        let after = |seconds: f64| Utime::from_duration(last + Duration::try_from_secs_f64(seconds).unwrap_or_default());
        Some(NextScrub { at: if forced { Utime::ZERO } else { after(wait) }, deadline: if max > 0.0 { after(max) } else { Utime::ZERO }, forced })
    }

    /// The scrub that is due by itself, if one is.
    pub(super) fn due_scrub(&mut self, cx: &mut Cx<'_>) -> Option<Wanted> {
        let pool = cx.sh.map.pool_by_id(self.id.pool)?;
        let off = |cluster, of_pool| cx.sh.map.has_flag(cluster) || pool.has_flag(of_pool);
        let no_scrub = off(OsdMap::FLAG_NOSCRUB, PgPool::FLAG_NOSCRUB);
        let no_deep = off(OsdMap::FLAG_NODEEP_SCRUB, PgPool::FLAG_NODEEP_SCRUB);
        let o = &cx.sh.scrub;
        let (min, max) = intervals(pool, o);
        let deep = interval(pool, PoolOptKey::DEEP_SCRUB_INTERVAL, o.deep_interval);
        let since = |at: Utime| age(cx.now.wall, at);
        let history = &self.history.scrubs;
        let is_late = max > 0.0 && since(history.last_scrub_stamp) > max;
        if no_scrub && no_deep || !(is_late || o.allows(cx.now.wall)) {
            return None;
        }
        let jitter = *self.scrubs.schedule.jitter.get_or_insert_with(|| cx.sh.rng.random_range(0.0..1.0));
        if since(history.last_scrub_stamp) < min * (1.0 + o.randomize * jitter) {
            return None;
        }
        let overdue = since(history.last_deep_scrub_stamp) >= deep;
        let deep = !no_deep && (overdue || no_scrub || cx.sh.rng.random_bool(o.deep_randomize.clamp(0.0, 1.0)));
        match no_scrub && !(deep && overdue) {
            true => None,
            false => Some(Wanted { deep, ..Wanted::default() }),
        }
    }

    /// Seconds for which a read counts toward a scrub: half the interval of deep ones, so that no block goes unread for more
    /// than one and a half. Whoever asks for a scrub wants everything read.
    pub(super) fn scrub_trust(&self, cx: &Cx<'_>, wanted: Wanted) -> u32 {
        match cx.sh.map.pool_by_id(self.id.pool) {
            Some(pool) if !wanted.requested => (interval(pool, PoolOptKey::DEEP_SCRUB_INTERVAL, cx.sh.scrub.deep_interval) / 2.0) as u32,
            _ => 0,
        }
    }

    /// A primary would scrub.
    pub(in crate::pg) fn handle_scrub_reserve(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, scrub: u64) {
        if !matches!(self.stage, Stage::Follower { active: true }) {
            return;
        }
        self.scrubs.reserved = self.scrubs.reserved || cx.sh.take_scrub_slot();
        let body = PgBody::ScrubReserved { scrub, granted: self.scrubs.reserved };
        cx.send_pg(from, self.id, round, body, Durable::Now);
    }

    /// A replica takes part, or not.
    pub(in crate::pg) fn handle_scrub_reserved(&mut self, cx: &mut Cx<'_>, from: OsdId, scrub: u64, granted: bool) {
        let Some(run) = self.scrubs.run.as_mut().filter(|r| r.number == scrub) else { return };
        match &mut run.step {
            Step::Reserve { waiting_for } if granted => drop(waiting_for.remove(&from)),
            Step::Reserve { .. } => self.give_up_scrub(cx),
            // It said yes before, and has taken on another since a session was lost: this one ends soon enough.
            _ => {}
        }
    }

    /// Somebody has no room: it is tried again in a while.
    fn give_up_scrub(&mut self, cx: &mut Cx<'_>) {
        let Some(run) = self.scrubs.run.take() else { return };
        self.release_reservations(cx);
        if run.wanted.requested {
            self.request_scrub(run.wanted);
        }
        let millis = cx.sh.rng.random_range(0..RETRY.as_millis() as u64);
        self.scrubs.schedule.look_at = cx.now.mono + RETRY / 2 + Duration::from_millis(millis);
    }

    pub(super) fn release_reservations(&mut self, cx: &mut Cx<'_>) {
        cx.sh.give_scrub_slot();
        for osd in self.replicas(cx.sh.whoami).collect::<Vec<_>>() {
            cx.send_pg(osd, self.id, self.round(), PgBody::ScrubRelease, Durable::Now);
        }
    }

    /// The primary has ended its scrub, or given it up.
    pub(in crate::pg) fn handle_scrub_release(&mut self, cx: &mut Cx<'_>) {
        self.scrubs.build = None;
        if std::mem::take(&mut self.scrubs.reserved) {
            cx.sh.give_scrub_slot();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: u32) -> Utime {
        Utime { sec: 86400 * 20_000 + hour * 3600 + 1800, nsec: 0 }
    }

    fn allowed(begin: u64, end: u64) -> Vec<u32> {
        let options = ScrubOptions { begin_hour: begin, end_hour: end, ..ScrubOptions::default() };
        (0..24).filter(|hour| options.allows(at(*hour))).collect()
    }

    #[test]
    fn hours_may_go_around_midnight_and_equal_ones_are_all_day() {
        assert_eq!(allowed(0, 0).len(), 24);
        assert_eq!(allowed(1, 4), [1, 2, 3]);
        assert_eq!(allowed(22, 2), [0, 1, 22, 23]);
    }

    #[test]
    fn a_stamp_of_a_clock_that_was_set_back_does_not_put_a_scrub_off() {
        assert_eq!(age(at(5), at(4)), 3600.0);
        assert_eq!(age(at(5), Utime { sec: at(5).sec + 2, nsec: 0 }), 0.0);
        assert_eq!(age(at(5), at(6)), f64::INFINITY);
    }
}
