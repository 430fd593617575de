//! What clients feel of recovery: how long their requests take says how much may be on its way.
//!
//! Owns: [`Felt`].   Hears: how long each request took.   Says: how long an object on its way may take (`Flow`).
//! Why: recovery and clients meet in many places, the disk here, a disk elsewhere, a log, a core. What clients feel is the sum of them.

use std::time::Duration;
use types::Mono;

/// So many requests tell something, or as many as came in so long.
const ENOUGH: usize = 50;
const LONG: Duration = Duration::from_secs(2);

/// What is aimed at.
#[derive(Debug, PartialEq, Eq)]
struct Aim {
    /// Of a hundred requests all but one are to be answered within that, or within twice of what they take while nothing moves.
    goal: Duration,
    /// How long an object on its way may take, at least, at most, and until clients have been felt.
    least: Duration,
    most: Duration,
    first: Duration,
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const OF_SLOW: Aim = Aim { goal: ms(100), least: ms(50), most: ms(500), first: ms(100) };
/// With less there would be one object at a time, with all the work around each and a flush of its own (docs/decisions/2026-11-28-what-waits-for-a-quick-disk.md).
const OF_QUICK: Aim = Aim { goal: ms(4), least: ms(5), most: ms(24), first: ms(5) };

#[derive(Debug)]
pub(crate) struct Felt {
    /// Of requests since the last look.
    latencies: Vec<Duration>,
    looked: Mono,
    /// The 99th percentile while nothing moves, of most looks.
    alone: Duration,
    target: Duration,
    aim: &'static Aim,
}

impl Default for Felt {
    fn default() -> Self {
        Felt { latencies: Vec::new(), looked: Mono::default(), alone: Duration::ZERO, target: OF_QUICK.first, aim: &OF_QUICK }
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
        self.aim.goal.max(2 * self.alone)
    }

    /// Whether the disk is known to be slow.
    pub fn set_slow(&mut self, slow: bool) {
        let aim = if slow { &OF_SLOW } else { &OF_QUICK };
        if self.aim != aim {
            (self.aim, self.target) = (aim, aim.first);
        }
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
            // Towards the middle of them: a few requests make each, and one that waited for something else would tell of it for long.
            self.alone = match self.alone {
                Duration::ZERO => p99,
                less if less < p99 => p99.min(less * 9 / 8),
                more => p99.max(more * 7 / 8),
            };
            return;
        }
        self.target = match p99 {
            _ if denied => self.target * 2,
            much if much > self.goal() => self.target / 2,
            little if little < self.goal() / 2 => self.target * 2,
            _ => self.target * 9 / 8,
        };
        self.target = self.target.clamp(self.aim.least, self.aim.most);
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
            (0..9).for_each(|_| f.note(Duration::from_micros(100)));
            f.note(longest);
            f.look(Mono(second * 1_000_000_000), moves, denied);
        }
    }

    #[test]
    fn recovery_gives_way_while_clients_wait_and_takes_more_when_they_do_not() {
        for (slow, aim) in [(true, OF_SLOW), (false, OF_QUICK)] {
            let mut f = Felt::default();
            f.set_slow(slow);
            feel(&mut f, 10, 10, aim.goal / 20, false);
            assert_eq!((f.target(), f.goal()), (aim.first, aim.goal));
            feel(&mut f, 20, 10, aim.goal / 20, true);
            assert_eq!(f.target(), aim.most);
            feel(&mut f, 30, 20, aim.goal * 3 / 2, true);
            assert_eq!(f.target(), aim.least);
            feel(&mut f, 50, 4, aim.goal * 4 / 5, true);
            assert!(f.target() > aim.least && f.target() < 2 * aim.least);
        }
    }

    #[test]
    fn what_recovery_is_promised_it_takes_whatever_clients_feel() {
        let mut f = Felt::default();
        feel_denied(&mut f, 10, 20, ms(300), true, true);
        assert_eq!(f.target(), OF_QUICK.most);
    }

    #[test]
    fn whose_requests_are_slow_anyway_is_not_spared_for_that() {
        let mut f = Felt::default();
        f.set_slow(true);
        feel(&mut f, 10, 60, ms(300), false);
        assert!(f.goal() > ms(500));
        feel(&mut f, 70, 20, ms(400), true);
        assert!(f.target() > OF_SLOW.first);
    }

    #[test]
    fn one_request_that_waited_for_something_else_is_soon_forgotten() {
        let mut f = Felt::default();
        feel(&mut f, 10, 10, ms(5), false);
        for n in 0..20 {
            let longest = if n % 4 == 0 { ms(400) } else { ms(5) };
            feel(&mut f, 20 + n, 1, longest, false);
            assert!(f.goal() < ms(12), "{:?}", f.goal());
        }
        feel(&mut f, 40, 100, ms(50), false);
        assert_eq!(f.goal(), ms(100));
    }

    #[test]
    fn a_disk_that_turns_out_to_be_slow_has_more_time() {
        let mut f = Felt::default();
        feel(&mut f, 10, 20, ms(50), true);
        assert_eq!(f.target(), OF_QUICK.least);
        f.set_slow(true);
        assert_eq!((f.target(), f.goal()), (OF_SLOW.first, OF_SLOW.goal));
        feel(&mut f, 30, 1, ms(90), true);
        f.set_slow(true);
        assert!(f.target() > OF_SLOW.first, "it is told so again and again");
    }
}
