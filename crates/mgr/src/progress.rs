//! What is under way: recovery, and pools that the autoscaler gives another number of PGs; how far it has come, and when it will be done if it goes on
//! like this.
//!
//! Progress of recovery is told in copies of objects that are not yet where they belong, each of which costs something beside its
//! bytes, against the most there was since it began. What a copy and a byte cost by the clock is learned from what was done in the last
//! half of the time; the finish is told from that, and not at all while nothing moves. It is that of the primary that needs longest: who has done its part
//! may leave the others what they lacked, or may not, for each reads from its own disk; which it is is learned each time one is done. How far the finish is off is
//! measured in the tests.
//! Upstream: src/pybind/mgr/progress/module.py (GlobalRecoveryEvent), PgAdjustmentProgress in src/pybind/mgr/pg_autoscaler/module.py.

use crate::pgmap::PgMap;
use admin::human::age;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::map::OsdMap;
use types::msg::internal::ProgressReport;
use types::pg::{PgStat, PgState};
use types::{Mono, Now, OsdId, PoolId, Utime};

/// Completed events that are remembered.
const COMPLETED_MAX: usize = 20;

/// Width of the bar, brackets included.
const BAR: usize = 30;

const MOVING: [PgState; 4] =
    [PgState::RECOVERING, PgState::RECOVERY_WAIT, PgState::BACKFILLING, PgState::BACKFILL_WAIT];

/// Bytes that are moved in the time that a copy costs beside its bytes, where that is not known better.
const COPY_COST: f64 = 65_536.0;
/// How much that counts beside what was measured, where both copies and bytes tell something.
const TRUST: f64 = 0.02;

/// A primary has this part of an equal share at least: one that returned from elsewhere begins with few objects at a time.
const LEAST: f64 = 0.75;
/// When one is left, what was expected of it counts as much as what it has done in this part of the window.
const DOUBT: f64 = 4.0;

/// The pace is taken over half of the time since recovery began, but over no more than the last ten minutes.
const WINDOW_MAX: Duration = Duration::from_secs(600);
/// Nothing is told before this: all OSDs have reported then.
const WINDOW_MIN: Duration = Duration::from_secs(5);
/// Work that has not changed for so long stands still.
const STANDS_STILL: Duration = Duration::from_secs(15);
/// An order that no map shows after so long was not carried out.
const NOT_HEARD: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
struct Recovery {
    started: Now,
    /// The most that was left since it began.
    most: f64,
    /// What was left, each time that changed.
    left: VecDeque<(Mono, Left)>,
    /// Since when a primary has been at it without a pause.
    at_it: BTreeMap<OsdId, Mono>,
    /// When a primary was last done.
    one_done: Mono,
    /// Then, until it is seen what the others gain by it.
    gone: Option<Gone>,
}

/// One primary has done its part.
#[derive(Debug, Clone)]
struct Gone {
    /// What those that go on had left.
    others: BTreeMap<OsdId, f64>,
    /// What they did in a second until then, and what all did.
    pace: f64,
    all: f64,
}

/// What is left to do.
#[derive(Debug, Clone, PartialEq, Default)]
struct Left {
    all: Work,
    /// Of that, what each primary has to see to, and whether it is at it.
    of: BTreeMap<OsdId, (Work, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Work {
    copies: f64,
    /// In `COPY_COST`.
    bytes: f64,
}

/// A pool on its way to another number of PGs.
#[derive(Debug, Clone)]
struct PgChange {
    started: Now,
    from: u32,
    to: u32,
    /// PGs it has now.
    pgs: u32,
    /// A map has shown the order.
    heard: bool,
}

/// One thing under way, as it is shown.
struct Event {
    id: String,
    message: String,
    refs: Value,
    started: Now,
    /// 0 to 1.
    done: f64,
    /// Seconds.
    left: Option<u64>,
}

#[derive(Debug, Clone)]
struct Completed {
    id: String,
    message: String,
    refs: Value,
    started: Utime,
    finished: Utime,
}

/// What is under way, and was.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    recovery: Option<Recovery>,
    pools: BTreeMap<PoolId, PgChange>,
    completed: Vec<Completed>,
    /// Of the pace of primaries that have done their part the others get so much: 0 where each reads from its own disk, 1 where all push to the same one. Learned
    /// from each that is done. As long as nothing is known the finish is one that is kept.
    gains: f64,
}

impl Progress {
    /// Looks at PGs once per tick.
    pub fn handle_tick(&mut self, now: Now, map: &OsdMap, pgs: &PgMap) {
        self.look_at_recovery(now, pgs);
        let over: Vec<PoolId> = self.pools.iter_mut().filter_map(|(id, change)| change.is_over(now.mono, map, *id).then_some(*id)).collect();
        for id in over {
            if let Some(change) = self.pools.remove(&id).filter(|change| change.heard) {
                self.complete(change.event(id, now.mono), now.wall);
            }
        }
    }

    fn look_at_recovery(&mut self, now: Now, pgs: &PgMap) {
        let left = Left::of(pgs);
        let moving = pgs.pgs.values().any(|s| MOVING.iter().any(|m| s.state.has(*m)));
        match &mut self.recovery {
            None if moving && left.all.copies > 0.0 => {
                self.recovery = Some(Recovery { started: now, most: left.all.sum(), left: [(now.mono, left)].into(), at_it: BTreeMap::new(), one_done: now.mono, gone: None });
            }
            Some(r) if left.all.copies > 0.0 && moving => {
                if let Some(gained) = r.handle_tick(now.mono, left) {
                    self.gains = (self.gains + gained) / 2.0;
                }
            }
            Some(r) if left.all.copies == 0.0 => {
                let event = r.event(now.mono, self.gains);
                self.recovery = None;
                self.complete(event, now.wall);
            }
            // Nothing moves any more: what is left waits for an OSD, and that is no progress.
            Some(_) if !moving => self.recovery = None,
            _ => {}
        }
    }

    /// The autoscaler has ordered another number of PGs.
    pub fn pgs_ordered(&mut self, now: Now, pool: PoolId, from: u32, to: u32) {
        self.pools.insert(pool, PgChange { started: now, from, to, pgs: from, heard: false });
    }

    fn complete(&mut self, event: Event, now: Utime) {
        let Event { id, message, refs, started, .. } = event;
        self.completed.push(Completed { id, message, refs, started: started.wall, finished: now });
        let surplus = self.completed.len().saturating_sub(COMPLETED_MAX);
        self.completed.drain(..surplus);
    }

    /// Forgets what was.
    pub fn clear(&mut self) {
        *self = Progress { gains: self.gains, ..Progress::default() };
    }

    fn events(&self, now: Mono) -> impl Iterator<Item = Event> {
        let pools = self.pools.iter().filter(|(_, change)| change.heard).map(move |(id, change)| change.event(*id, now));
        self.recovery.iter().map(move |r| r.event(now, self.gains)).chain(pools)
    }

    /// What is under way, for the digest.
    pub fn reports(&self, now: Mono) -> Vec<ProgressReport> {
        let report = |event: Event| ProgressReport {
            message: event.text(now, 6),
            done_ppm: (event.done * 1e6) as u32,
            started: event.started.wall,
            left_s: event.left,
            add_to_ceph_s: true,
            id: event.id,
        };
        self.events(now).map(report).collect()
    }

    /// `progress`; `None` when nothing is under way.
    pub fn text(&self, now: Mono) -> Option<String> {
        let lines: Vec<String> = self.events(now).map(|event| event.text(now, 4) + "\n").collect();
        (!lines.is_empty()).then(|| lines.concat())
    }

    /// `progress json`.
    pub fn json(&self, now: Mono) -> Value {
        let event = |e: Event| {
            json!({
                "id": e.id, "message": e.message, "duration": age((now - e.started.mono).as_nanos()), "refs": e.refs, "progress": e.done,
                "started_at": e.started.wall.sec, "finished_at": null, "add_to_ceph_s": true, "time_remaining": e.left,
            })
        };
        let done = |c: &Completed| {
            json!({
                "id": c.id, "message": c.message, "refs": c.refs, "progress": 1.0, "started_at": c.started.sec, "finished_at": c.finished.sec,
                "add_to_ceph_s": true,
            })
        };
        json!({
            "completed": self.completed.iter().map(done).collect::<Vec<_>>(),
            "events": self.events(now).map(event).collect::<Vec<_>>(),
        })
    }
}

impl PgChange {
    /// Looks whether it is over, or was never heard of.
    fn is_over(&mut self, now: Mono, map: &OsdMap, id: PoolId) -> bool {
        let Some(pool) = map.pools.get(&id) else { return true };
        self.pgs = pool.pg_num;
        self.heard |= pool.pg_num_target == self.to;
        if self.heard { pool.pg_num == pool.pg_num_target } else { now - self.started.mono >= NOT_HEARD }
    }

    fn event(&self, pool: PoolId, now: Mono) -> Event {
        let way = if self.from < self.to { "increasing" } else { "decreasing" };
        let done = f64::from(self.from.abs_diff(self.pgs)) / f64::from(self.from.abs_diff(self.to).max(1));
        let took = (now - self.started.mono).as_secs_f64();
        Event {
            id: format!("pg-autoscaler-{pool}-{}", self.started.wall.sec),
            message: format!("PG autoscaler {way} pool {pool} PGs from {} to {}", self.from, self.to),
            refs: json!([["pool", pool.0]]),
            started: self.started,
            done: done.min(1.0),
            left: (done > 0.0).then(|| (took / done * (1.0 - done)).max(0.0) as u64),
        }
    }
}

impl Left {
    fn of(pgs: &PgMap) -> Left {
        let mut left = Left::default();
        for pg in pgs.pgs.values() {
            let work = Work::of(pg);
            if work.copies > 0.0 {
                left.all.add(work);
                let (of, is_at_it) = left.of.entry(pg.acting_primary).or_default();
                of.add(work);
                *is_at_it |= pg.state.has(PgState::RECOVERING) || pg.state.has(PgState::BACKFILLING);
            }
        }
        left
    }

    /// What a primary has left.
    fn of_primary(&self, primary: &OsdId) -> f64 {
        self.of.get(primary).map_or(0.0, |(work, _)| work.sum())
    }
}

impl Work {
    fn of(pg: &PgStat) -> Work {
        let sum = &pg.stats.sum;
        let copies = (sum.num_objects_degraded + sum.num_objects_misplaced).max(0) as f64;
        let size = sum.num_bytes.max(0) as f64 / sum.num_objects.max(1) as f64;
        Work { copies, bytes: copies * size / COPY_COST }
    }

    fn add(&mut self, more: Work) {
        self.copies += more.copies;
        self.bytes += more.bytes;
    }

    fn sum(self) -> f64 {
        self.copies + self.bytes
    }
}

impl Recovery {
    fn event(&self, now: Mono, gains: f64) -> Event {
        Event {
            id: format!("global-recovery-{}", self.started.wall.sec),
            message: "Global Recovery Event".to_owned(),
            refs: json!(["global"]),
            started: self.started,
            done: self.done(),
            left: self.seconds_left(now, gains),
        }
    }

    /// What others have gained since one was done, as in `Progress::gains`, when that has been seen.
    fn handle_tick(&mut self, now: Mono, left: Left) -> Option<f64> {
        if left.all.sum() > self.most {
            // More turned up: what was done until now says little.
            self.most = left.all.sum();
            self.left.clear();
        }
        self.at_it.retain(|primary, _| left.of.get(primary).is_some_and(|(_, is_at_it)| *is_at_it));
        for (primary, _) in left.of.iter().filter(|(_, (_, is_at_it))| *is_at_it) {
            self.at_it.entry(*primary).or_insert(now);
        }
        if self.left.back().is_some_and(|(_, was)| was.of.keys().any(|primary| !left.of.contains_key(primary))) {
            self.one_done = now;
            self.gone = self.goes_on(now, &left);
        }
        if self.left.back().is_none_or(|(at, was)| *was != left || now - *at >= STANDS_STILL) {
            self.left.push_back((now, left));
        }
        let mut window = ((now - self.started.mono) / 2).clamp(WINDOW_MIN, WINDOW_MAX);
        // How quick the others are since one was done has been seen: what it did before is no part of their pace.
        let since_done = now - self.one_done;
        let mut gained = None;
        if since_done >= WINDOW_MIN.max(window / 4) {
            window = window.min(since_done);
            gained = self.gained(since_done);
        }
        while self.left.get(1).is_some_and(|(at, _)| now - *at >= window) {
            self.left.pop_front();
        }
        gained
    }

    /// True if a primary has been at it since `from`, without a pause: of who has waited for its turn it is not known how quick it is.
    fn was_at_it(&self, primary: &OsdId, from: &Mono) -> bool {
        self.at_it.get(primary).is_some_and(|since| since <= from)
    }

    /// How quick those are that go on without one, and all have been; `None` if that is not known.
    fn goes_on(&self, now: Mono, left: &Left) -> Option<Gone> {
        let (from, before) = self.left.front().filter(|(from, _)| now - *from >= WINDOW_MIN)?;
        let passed = (now - *from).as_secs_f64();
        let busy = left.of.keys().filter(|primary| self.was_at_it(primary, from));
        let others: BTreeMap<OsdId, f64> = busy.map(|primary| (*primary, left.of_primary(primary))).collect();
        let pace = others.iter().map(|(primary, left)| before.of_primary(primary) - left).sum::<f64>() / passed;
        Some(Gone { others, pace, all: (before.all.sum() - left.all.sum()) / passed })
    }

    /// One was done so long ago: what have the others gained?
    fn gained(&mut self, passed: Duration) -> Option<f64> {
        let gone = self.gone.take().filter(|gone| gone.pace > 0.0 && gone.all > gone.pace)?;
        let (_, now) = self.left.back()?;
        let pace = gone.others.iter().map(|(primary, had)| had - now.of_primary(primary)).sum::<f64>() / passed.as_secs_f64();
        Some(((pace - gone.pace) / (gone.all - gone.pace)).clamp(0.0, 1.0))
    }

    fn done(&self) -> f64 {
        1.0 - self.left.back().map_or(self.most, |(_, left)| left.all.sum()) / self.most
    }

    fn seconds_left(&self, now: Mono, gains: f64) -> Option<u64> {
        let ((from, before), (to, left)) = (self.left.front()?, self.left.back()?);
        if *to - *from < WINDOW_MIN || left.all.sum() >= before.all.sum() {
            return None;
        }
        let (copy, byte) = self.costs(*from, &before.all)?;
        let seconds = |work: &Work| copy * work.copies + byte * work.bytes;
        let all = seconds(&left.all);
        let done = seconds(&before.all) - all;
        let equal = 1.0 / left.of.len() as f64;
        let doubt = (*to - *from).as_secs_f64() / DOUBT;
        let alone = self.left.iter().find(|(at, _)| left.of.len() == 1 && *at >= self.one_done && at > from).map(|(at, then)| ((*to - *at).as_secs_f64(), then));
        let busy = left.of.iter().filter(|(primary, _)| self.was_at_it(primary, from));
        let longest = busy.filter_map(|(primary, (work, _))| {
            let own = seconds(work);
            let part = (seconds(&before.of.get(primary)?.0) - own) / done;
            // Who did next to nothing of late had to wait for something. The longer it has been alone, the more it is what it has done since.
            let expected = (1.0 - gains) * part.max(equal * LEAST) + gains * equal.max(own / all);
            let (since, done) = alone.and_then(|(since, then)| Some((since, seconds(&then.of.get(primary)?.0) - own))).unwrap_or_default();
            Some(own * (doubt + since) / (expected * doubt + done.max(0.0)))
        });
        let seconds = longest.fold(all, f64::max) - (now - *to).as_secs_f64();
        Some(seconds.max(0.0).round() as u64)
    }

    /// Seconds that a copy costs, and its bytes: such that they come nearest to what was done in the window (least squares),
    /// none of them below zero, and equal as far as nothing else is known.
    fn costs(&self, from: Mono, before: &Work) -> Option<(f64, f64)> {
        let (mut cc, mut cb, mut bb, mut ct, mut bt) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (at, left) in &self.left {
            let (c, b, t) = (before.copies - left.all.copies, before.bytes - left.all.bytes, (*at - from).as_secs_f64());
            (cc, cb, bb) = (cc + c * c, cb + c * b, bb + b * b);
            (ct, bt) = (ct + c * t, bt + b * t);
        }
        let trust = TRUST * (cc + bb);
        let (cc, cb, bb) = (cc + trust, cb - trust, bb + trust);
        let both = cc * bb - cb * cb;
        let (copy, byte) = ((ct * bb - bt * cb) / both, (bt * cc - ct * cb) / both);
        let found = match () {
            () if both <= 0.0 => return None,
            () if copy < 0.0 => (0.0, bt / bb),
            () if byte < 0.0 => (ct / cc, 0.0),
            () => (copy, byte),
        };
        Some(found)
    }
}

impl Event {
    /// Two lines: what, and a bar after `indent` blanks.
    fn text(&self, now: Mono, indent: usize) -> String {
        let inner = BAR - 2;
        let filled = ((self.done * inner as f64) as usize).min(inner);
        let remaining = self.left.map(|s| format!(" (remaining: {})", age(Duration::from_secs(s).as_nanos())));
        format!(
            "{} ({})\n{}[{}{}]{}",
            self.message,
            age((now - self.started.mono).as_nanos()),
            " ".repeat(indent),
            "=".repeat(filled),
            ".".repeat(inner - filled),
            remaining.unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use types::PgId;
    use types::map::PgPool;

    fn at(sec: u64) -> Now {
        Now { mono: Mono(sec * 1_000_000_000), wall: Utime { sec: sec as u32, nsec: 0 } }
    }

    fn pgs(degraded: i64, state: PgState) -> PgMap {
        let mut stat = PgStat { state, ..PgStat::default() };
        stat.stats.sum.num_objects_degraded = degraded;
        PgMap { pgs: [(PgId::default(), stat)].into(), ..PgMap::default() }
    }

    #[test]
    fn recovery_shows_how_far_it_is_and_when_it_ends() {
        let mut p = Progress::default();
        p.handle_tick(at(10), &OsdMap::default(), &pgs(100, PgState::ACTIVE | PgState::RECOVERING));
        assert_eq!(p.reports(at(10).mono)[0].left_s, None);
        p.handle_tick(at(15), &OsdMap::default(), &pgs(50, PgState::ACTIVE | PgState::RECOVERING));
        let wanted = "Global Recovery Event (5s)\n    [==============..............] (remaining: 5s)\n";
        assert_eq!(p.text(at(15).mono).unwrap(), wanted);
        p.handle_tick(at(20), &OsdMap::default(), &pgs(0, PgState::ACTIVE | PgState::CLEAN));
        assert_eq!((p.text(at(20).mono), p.json(at(20).mono)["completed"].as_array().unwrap().len()), (None, 1));
    }

    #[test]
    fn what_does_not_move_has_no_finish() {
        let mut p = Progress::default();
        for s in 10..60 {
            p.handle_tick(at(s), &OsdMap::default(), &pgs(100, PgState::ACTIVE | PgState::RECOVERY_WAIT));
        }
        assert_eq!(p.reports(at(60).mono)[0].left_s, None);
    }

    /// A recovery of 64 PGs in random order, one in eight of which has large objects, two PGs at a time; an object costs
    /// `copy` seconds and its bytes at so many a second, on a disk that is up to twice as slow from one second to the next; three
    /// OSDs report every two seconds, each in its own. Returns by how much the finish that was told was off, as a part of what was
    /// really left, at each moment when more than ten seconds were.
    fn errors(seed: u64, copy: f64, bytes: f64) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut real: Vec<PgStat> = (0..64).map(|_| {
            let acting_primary = OsdId(rng.random_range(0..3));
            let mut stat = PgStat { state: PgState::ACTIVE | PgState::BACKFILLING, acting_primary, ..PgStat::default() };
            let sum = &mut stat.stats.sum;
            let large = rng.random_bool(0.125);
            sum.num_objects = if large { rng.random_range(20..60) } else { rng.random_range(300..900) };
            sum.num_bytes = sum.num_objects * if large { 4 << 20 } else { 16 << 10 };
            sum.num_objects_misplaced = sum.num_objects;
            stat
        }).collect();
        let order: Vec<usize> = (0..64).map(|i| i * 29 % 64).collect();
        let mut seen = PgMap { pgs: real.iter().enumerate().map(|(i, s)| (id(i), s.clone())).collect(), ..PgMap::default() };
        let (mut p, mut told, mut left) = (Progress::default(), Vec::new(), 0.0);
        let mut s = 0;
        while real.iter().any(|s| s.stats.sum.num_objects_misplaced > 0) {
            p.handle_tick(at(s), &OsdMap::default(), &seen);
            told.push(p.reports(at(s).mono).first().and_then(|r| r.left_s));
            s += 1;
            left += rng.random_range(0.5..1.0);
            while left > 0.0 {
                let waits = |i: &&usize| real[**i].stats.sum.num_objects_misplaced > 0;
                let two: Vec<usize> = order.iter().filter(waits).take(2).copied().collect();
                let Some(i) = two.get(rng.random_range(0..two.len().max(1))) else { break };
                let sum = &mut real[*i].stats.sum;
                sum.num_objects_misplaced -= 1;
                left -= copy + (sum.num_bytes / sum.num_objects) as f64 / bytes;
            }
            let waits = |i: &&usize| real[**i].stats.sum.num_objects_misplaced > 0;
            let two: Vec<usize> = order.iter().filter(waits).take(2).copied().collect();
            for (i, stat) in real.iter_mut().enumerate().filter(|(i, _)| (s + *i as u64 % 3).is_multiple_of(2)) {
                stat.state = PgState::ACTIVE | if two.contains(&i) { PgState::BACKFILLING } else { PgState::BACKFILL_WAIT };
                seen.pgs.insert(id(i), stat.clone());
            }
        }
        let told = told.into_iter().enumerate().filter_map(|(at, told)| Some((told? as f64, s as f64 - at as f64)));
        told.filter(|(_, left)| *left > 10.0).map(|(told, left)| (told - left).abs() / left).collect()
    }

    fn id(i: usize) -> PgId {
        PgId { pool: PoolId(1), seed: i as u32 }
    }

    #[test]
    fn the_finish_is_honest() {
        // By disks; by a pace and by a slow network, where nobody can tell what large objects take before one has come.
        for (copy, bytes, most) in [(0.001, 1e8, 0.12), (0.004, 3e7, 0.15), (0.003, 1e12, 0.3), (0.0, 3e7, 0.3)] {
            let mut all: Vec<f64> = (0..40).flat_map(|seed| errors(seed, copy, bytes)).collect();
            all.sort_by(f64::total_cmp);
            let part = |of: f64| all[(all.len() as f64 * of) as usize];
            println!("{} times told: off by {:.2} in the median, {:.2} in one of ten, {:.2} in one of a hundred", all.len(), part(0.5), part(0.9), part(0.99));
            assert!(all.len() > 40 * 40 && part(0.5) < most && part(0.9) < 3.0 * most, "{copy} {bytes}");
        }
    }

    /// Three primaries, some with more than others, which all move something at all times. Each reads from a disk of its own, quicker and slower as in `errors`, or
    /// all push to the same one, where all have an equal part of it. Returns by how much the finish that was told was off, below zero if it was too early, as a part of
    /// what was left, while more than four seconds were.
    fn errors_of_primaries(p: &mut Progress, rng: &mut ChaCha8Rng, own_disks: bool) -> Vec<f64> {
        let mut left: [i64; 3] = [5000, 2000, 1000].map(|most| rng.random_range(most / 2..=most));
        let (mut told, mut s) = (Vec::new(), 0);
        let mut seen = PgMap::default();
        while left.iter().any(|left| *left > 0) {
            for (i, left) in left.iter().enumerate().filter(|(i, _)| (s + *i as u64).is_multiple_of(2)) {
                let mut stat = pgs(*left, PgState::ACTIVE | PgState::RECOVERING).pgs.remove(&PgId::default()).unwrap();
                stat.acting_primary = OsdId(i as i32);
                seen.pgs.insert(id(i), stat);
            }
            p.handle_tick(at(s), &OsdMap::default(), &seen);
            told.push(p.reports(at(s).mono).first().and_then(|r| r.left_s));
            s += 1;
            let moving = left.iter().filter(|left| **left > 0).count() as i64;
            let disk = rng.random_range(120..240);
            for left in &mut left {
                let moved = if own_disks { rng.random_range(40..80) } else { disk / moving };
                *left = (*left - moved).max(0);
            }
        }
        p.handle_tick(at(s), &OsdMap::default(), &PgMap::default());
        let told = told.into_iter().enumerate().filter_map(|(at, told)| Some((told? as f64, (s - at as u64) as f64)));
        told.filter(|(_, left)| *left > 4.0).map(|(told, left)| (told - left) / left).collect()
    }

    #[test]
    fn the_finish_is_one_that_is_kept_and_near_once_it_is_known_what_primaries_leave_each_other() {
        for own_disks in [true, false] {
            let (mut first, mut later) = (Vec::new(), Vec::new());
            for seed in 0..40 {
                let (mut p, mut rng) = (Progress::default(), ChaCha8Rng::seed_from_u64(seed));
                first.extend(errors_of_primaries(&mut p, &mut rng, own_disks));
                (0..2).for_each(|_| drop(errors_of_primaries(&mut p, &mut rng, own_disks)));
                later.extend(errors_of_primaries(&mut p, &mut rng, own_disks).into_iter().map(f64::abs));
            }
            [&mut first, &mut later].into_iter().for_each(|all| all.sort_by(f64::total_cmp));
            let part = |all: &[f64], of: f64| all[(all.len() as f64 * of) as usize];
            println!("own disks: {own_disks}; {} times told; the first time one of ten is {:.2} too early or more, half {:.2}, one of ten {:.2} too late; later off by {:.2} in the median, {:.2} in one of ten",
                first.len(), part(&first, 0.1), part(&first, 0.5), part(&first, 0.9), part(&later, 0.5), part(&later, 0.9));
            assert!(first.len() > 40 * 20 && part(&first, 0.1) > -0.25, "{own_disks}");
            assert!(part(&later, 0.5) < 0.2 && part(&later, 0.9) < 0.5, "{own_disks}");
        }
    }

    #[test]
    fn a_pool_that_gets_more_pgs_shows_how_many_it_has() {
        let (pool, mut map, mut p) = (PoolId(7), OsdMap::default(), Progress::default());
        let mut pgs = |p: &mut Progress, sec: u64, pg_num: u32, pg_num_target: u32| {
            map.pools.insert(pool, PgPool { pg_num_target, ..PgPool::replicated(3, pg_num, 0) });
            p.handle_tick(at(sec), &map, &PgMap::default());
        };
        p.pgs_ordered(at(10), pool, 32, 128);
        pgs(&mut p, 11, 32, 32);
        assert_eq!(p.text(at(11).mono), None, "no map shows the order");
        pgs(&mut p, 20, 80, 128);
        let wanted = "PG autoscaler increasing pool 7 PGs from 32 to 128 (10s)\n    [==============..............] (remaining: 10s)\n";
        assert_eq!(p.text(at(20).mono).unwrap(), wanted);
        pgs(&mut p, 30, 128, 128);
        assert_eq!(p.text(at(30).mono), None);
        assert_eq!(p.json(at(30).mono)["completed"][0]["refs"], json!([["pool", 7]]));
        // One that was never carried out.
        p.pgs_ordered(at(40), pool, 128, 32);
        pgs(&mut p, 100, 128, 128);
        pgs(&mut p, 101, 128, 32);
        assert_eq!((p.text(at(101).mono), p.json(at(101).mono)["completed"].as_array().unwrap().len()), (None, 1));
    }

    #[test]
    fn what_waits_for_an_osd_is_not_progress() {
        let mut p = Progress::default();
        p.handle_tick(at(10), &OsdMap::default(), &pgs(100, PgState::ACTIVE | PgState::UNDERSIZED | PgState::DEGRADED));
        assert_eq!(p.text(at(10).mono), None);
    }
}
