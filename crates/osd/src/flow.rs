//! How many objects may be on their way at a time: as many as arrive within a while.
//!
//! Why: whatever is slowest on the way, the disk here, the disk there, the log there, what is on its way queues before it, and a client's write
//! to the same PG becomes durable behind what came before. No disk need be asked for that: the way says how long it is.

use std::time::Duration;
use types::Mono;

/// What begins with so many finds out soon what the way can take.
const BEGIN: usize = 16;

#[derive(Debug)]
pub(crate) struct Flow {
    window: usize,
    /// Arrivals since it last became wider.
    arrivals: usize,
    /// What left before says nothing of the window as it is now.
    narrowed: Mono,
}

impl Default for Flow {
    fn default() -> Self {
        Flow { window: BEGIN, arrivals: 0, narrowed: Mono::default() }
    }
}

impl Flow {
    /// Objects that may be on their way.
    pub fn window(&self) -> usize {
        self.window
    }

    /// One that left at `since` has arrived, and should take no longer than `target`; so many were on their way, and `max` may be whatever the way.
    pub fn arrived(&mut self, now: Mono, since: Mono, target: Duration, active: usize, max: usize) {
        let took = now - since;
        if took > target {
            if since >= self.narrowed {
                let fits = self.window as u128 * target.as_nanos() / took.as_nanos().max(1);
                self.window = (fits as usize).max(self.window / 2).max(1);
                (self.narrowed, self.arrivals) = (now, 0);
            }
        } else if 2 * active > self.window && self.window < max {
            // They leave in batches: so wide a window is one that was full a moment ago.
            self.arrivals += 1;
            // Doubled with every round while there is much room, then one by one.
            if took < target / 2 || self.arrivals >= self.window {
                self.window += 1;
                self.arrivals = 0;
            }
        }
        self.window = self.window.min(max.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(100);

    /// A way that takes one object at a time for so long: what the window comes to, and the longest that an object then takes, in milliseconds.
    fn settle(flow: &mut Flow, each: Duration, max: usize) -> (usize, u64) {
        let (mut now, mut under_way, mut longest) = (Mono(1), std::collections::VecDeque::new(), 0);
        for n in 0..2000 {
            while under_way.len() < flow.window() {
                under_way.push_back(now);
            }
            now = now + each;
            let since = under_way.pop_front().unwrap();
            flow.arrived(now, since, TARGET, under_way.len() + 1, max);
            if n > 1000 {
                longest = longest.max((now - since).as_millis() as u64);
            }
        }
        (flow.window(), longest)
    }

    #[test]
    fn what_is_slow_has_little_on_its_way_and_what_is_fast_all_it_may() {
        let mut flow = Flow::default();
        assert_eq!(settle(&mut flow, Duration::from_micros(100), 64).0, 64);
        let (window, longest) = settle(&mut flow, Duration::from_millis(13), 64);
        assert!((4..=8).contains(&window) && longest <= 120, "{window}, {longest} ms");
        // Each takes longer than is wanted by itself: one at a time.
        assert_eq!(settle(&mut flow, Duration::from_millis(300), 64).0, 1);
        assert_eq!(settle(&mut flow, Duration::from_micros(100), 256).0, 256);
        assert_eq!(settle(&mut flow, Duration::from_micros(100), 3).0, 3);
    }

    #[test]
    fn one_stall_halves_it_once() {
        let mut flow = Flow::default();
        settle(&mut flow, Duration::from_micros(100), 64);
        let stalled = Mono(1 << 40);
        for _ in 0..64 {
            flow.arrived(stalled + 10 * TARGET, stalled, TARGET, 64, 64);
        }
        assert_eq!(flow.window(), 32);
    }
}
