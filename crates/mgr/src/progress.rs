//! What is under way: recovery, how far it has come, and when it will be done if it goes on like this.
//!
//! Progress counts copies of objects that are not yet where they belong, against the most there were since it began.
//! The finish is told from the rate of the last seconds, and not at all while nothing moves.
//! Upstream: src/pybind/mgr/progress/module.py (GlobalRecoveryEvent).

use crate::pgmap::PgMap;
use admin::human::age;
use serde_json::{Value, json};
use std::time::Duration;
use types::msg::internal::ProgressReport;
use types::pg::PgState;
use types::{Mono, Now, Utime};

/// Completed events that are remembered.
const COMPLETED_MAX: usize = 20;

/// Width of the bar, brackets included.
const BAR: usize = 30;

const MOVING: [PgState; 4] =
    [PgState::RECOVERING, PgState::RECOVERY_WAIT, PgState::BACKFILLING, PgState::BACKFILL_WAIT];

#[derive(Debug, Clone)]
struct Recovery {
    started: Now,
    /// The most copies that were out of place since it began, and how many are now.
    most: i64,
    left: i64,
}

#[derive(Debug, Clone)]
struct Completed {
    started: Utime,
    finished: Utime,
}

/// What is under way, and was.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    recovery: Option<Recovery>,
    completed: Vec<Completed>,
}

impl Progress {
    /// Looks at PGs once per tick.
    pub fn handle_tick(&mut self, now: Now, pgs: &PgMap) {
        let sum = pgs.object_sum();
        let left = sum.num_objects_degraded + sum.num_objects_misplaced;
        let moving = pgs.pgs.values().any(|s| MOVING.iter().any(|m| s.state.has(*m)));
        match &mut self.recovery {
            None if moving && left > 0 => self.recovery = Some(Recovery { started: now, most: left, left }),
            Some(r) if left > 0 && moving => (r.most, r.left) = (r.most.max(left), left),
            Some(r) if left == 0 => {
                self.completed.push(Completed { started: r.started.wall, finished: now.wall });
                let surplus = self.completed.len().saturating_sub(COMPLETED_MAX);
                self.completed.drain(..surplus);
                self.recovery = None;
            }
            // Nothing moves any more: what is left waits for an OSD, and that is no progress.
            Some(_) if !moving => self.recovery = None,
            _ => {}
        }
    }

    /// Forgets what was.
    pub fn clear(&mut self) {
        *self = Progress::default();
    }

    /// What is under way, for the digest. `rate` is in copies per second.
    pub fn reports(&self, now: Mono, rate: u64) -> Vec<ProgressReport> {
        let report = |r: &Recovery| ProgressReport {
            id: format!("global-recovery-{}", r.started.wall.sec),
            message: text(r, now, rate, 6),
            done_ppm: (r.done() * 1e6) as u32,
            started: r.started.wall,
            left_s: r.seconds_left(rate),
            add_to_ceph_s: true,
        };
        self.recovery.iter().map(report).collect()
    }

    /// `progress`; `None` when nothing is under way.
    pub fn text(&self, now: Mono, rate: u64) -> Option<String> {
        self.recovery.as_ref().map(|r| text(r, now, rate, 4) + "\n")
    }

    /// `progress json`.
    pub fn json(&self, now: Mono, rate: u64) -> Value {
        let event = |r: &Recovery| {
            json!({
                "id": format!("global-recovery-{}", r.started.wall.sec), "message": "Global Recovery Event",
                "duration": age((now - r.started.mono).as_nanos()), "refs": ["global"], "progress": r.done(),
                "started_at": r.started.wall.sec, "finished_at": null, "add_to_ceph_s": true,
                "time_remaining": r.seconds_left(rate),
            })
        };
        let done = |c: &Completed| {
            json!({
                "id": format!("global-recovery-{}", c.started.sec), "message": "Global Recovery Event",
                "refs": ["global"], "progress": 1.0, "started_at": c.started.sec, "finished_at": c.finished.sec,
                "add_to_ceph_s": true,
            })
        };
        json!({
            "completed": self.completed.iter().map(done).collect::<Vec<_>>(),
            "events": self.recovery.iter().map(event).collect::<Vec<_>>(),
        })
    }
}

impl Recovery {
    fn done(&self) -> f64 {
        1.0 - self.left as f64 / self.most.max(1) as f64
    }

    fn seconds_left(&self, rate: u64) -> Option<u64> {
        (self.left as u64).checked_div(rate)
    }
}

/// Two lines: what, and a bar after `indent` blanks.
fn text(r: &Recovery, now: Mono, rate: u64, indent: usize) -> String {
    let inner = BAR - 2;
    let filled = ((r.done() * inner as f64) as usize).min(inner);
    let remaining = r.seconds_left(rate).map(|s| format!(" (remaining: {})", age(Duration::from_secs(s).as_nanos())));
    format!(
        "Global Recovery Event ({})\n{}[{}{}]{}",
        age((now - r.started.mono).as_nanos()),
        " ".repeat(indent),
        "=".repeat(filled),
        ".".repeat(inner - filled),
        remaining.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PgId;
    use types::pg::PgStat;

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
        p.handle_tick(at(10), &pgs(100, PgState::ACTIVE | PgState::RECOVERING));
        p.handle_tick(at(15), &pgs(50, PgState::ACTIVE | PgState::RECOVERING));
        let wanted = "Global Recovery Event (5s)\n    [==============..............] (remaining: 25s)\n";
        assert_eq!(p.text(at(15).mono, 2).unwrap(), wanted);
        assert_eq!(p.reports(at(15).mono, 0)[0].left_s, None);
        p.handle_tick(at(20), &pgs(0, PgState::ACTIVE | PgState::CLEAN));
        assert_eq!((p.text(at(20).mono, 0), p.json(at(20).mono, 0)["completed"].as_array().unwrap().len()), (None, 1));
    }

    #[test]
    fn what_waits_for_an_osd_is_not_progress() {
        let mut p = Progress::default();
        p.handle_tick(at(10), &pgs(100, PgState::ACTIVE | PgState::UNDERSIZED | PgState::DEGRADED));
        assert_eq!(p.text(at(10).mono, 0), None);
    }
}
