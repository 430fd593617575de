//! What clients feel of recovery: how long their requests take says how much may be on its way.
//!
//! Owns: [`Felt`].   Hears: how long each request took.   Says: how long an object on its way may take (`Flow`).
//! Why: recovery and clients meet in many places, the disk here, a disk elsewhere, a log, a core. What clients feel is the sum of them.

use std::time::Duration;
use types::Mono;

/// So many requests tell something, or as many as came in so long.
const ENOUGH: usize = 50;
const LONG: Duration = Duration::from_secs(2);
/// Of a hundred requests all but one are to be answered within that, or within twice of what they take while nothing moves.
const GOAL: Duration = Duration::from_millis(100);
/// How long an object on its way may take, at least, at most, and until clients have been felt.
const LEAST: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_millis(500);
const FIRST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Felt {
    /// Of requests since the last look.
    latencies: Vec<Duration>,
    looked: Mono,
    /// The 99th percentile while nothing moves.
    alone: Duration,
    target: Duration,
}

impl Default for Felt {
    fn default() -> Self {
        Felt { latencies: Vec::new(), looked: Mono::default(), alone: Duration::ZERO, target: FIRST }
    }
}

impl Felt {
    /// A request was answered.
    pub fn note(&mut self, latency: Duration) {
        // What is beyond is no better known by more of them.
        if self.latencies.len() < 64 * ENOUGH {
            self.latencies.push(latency);
        }
    }

    /// How long an object on its way may take.
    pub fn target(&self) -> Duration {
        self.target
    }

    /// What clients are to feel at most: the 99th percentile.
    pub fn goal(&self) -> Duration {
        GOAL.max(2 * self.alone)
    }

    /// Looks at what was noted, now and then. `moves`: objects were on their way. `denied`: recovery has had less of our disk than it is promised, and then it
    /// gives way to nobody.
    pub fn look(&mut self, now: Mono, moves: bool, denied: bool) {
        let n = self.latencies.len();
        if n == 0 || n < ENOUGH && now - self.looked < LONG {
            return;
        }
        self.looked = now;
        let (_, p99, _) = self.latencies.select_nth_unstable((n * 99).div_ceil(100) - 1);
        let p99 = *p99;
        self.latencies.clear();
        if !moves {
            self.alone = if self.alone.is_zero() { p99 } else { (self.alone * 3 + p99) / 4 };
            return;
        }
        self.target = match p99 {
            _ if denied => self.target * 2,
            much if much > self.goal() => self.target / 2,
            little if little < self.goal() / 2 => self.target * 2,
            _ => self.target * 9 / 8,
        };
        self.target = self.target.clamp(LEAST, MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many seconds of ten requests each, one of which takes `longest`.
    fn feel(f: &mut Felt, from: u64, seconds: u64, longest: Duration, moves: bool) {
        feel_denied(f, from, seconds, longest, moves, false);
    }

    fn feel_denied(f: &mut Felt, from: u64, seconds: u64, longest: Duration, moves: bool, denied: bool) {
        for second in from..from + seconds {
            (0..9).for_each(|_| f.note(Duration::from_millis(1)));
            f.note(longest);
            f.look(Mono(second * 1_000_000_000), moves, denied);
        }
    }

    #[test]
    fn recovery_gives_way_while_clients_wait_and_takes_more_when_they_do_not() {
        let ms = Duration::from_millis;
        let mut f = Felt::default();
        feel(&mut f, 10, 10, ms(5), false);
        assert_eq!((f.target(), f.goal()), (FIRST, GOAL));
        feel(&mut f, 20, 10, ms(5), true);
        assert_eq!(f.target(), MOST);
        feel(&mut f, 30, 20, ms(150), true);
        assert_eq!(f.target(), LEAST);
        feel(&mut f, 50, 4, ms(80), true);
        assert!(f.target() > LEAST && f.target() < FIRST);
    }

    #[test]
    fn what_recovery_is_promised_it_takes_whatever_clients_feel() {
        let mut f = Felt::default();
        feel_denied(&mut f, 10, 20, Duration::from_millis(300), true, true);
        assert_eq!(f.target(), MOST);
    }

    #[test]
    fn whose_requests_are_slow_anyway_is_not_spared_for_that() {
        let mut f = Felt::default();
        feel(&mut f, 10, 60, Duration::from_millis(300), false);
        assert!(f.goal() > Duration::from_millis(500));
        feel(&mut f, 70, 20, Duration::from_millis(400), true);
        assert!(f.target() > FIRST);
    }
}
