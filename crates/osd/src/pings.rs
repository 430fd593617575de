//! How long heartbeats to a peer take on one of its networks: the last one, and over one, five and fifteen minutes.
//!
//! Upstream: HeartbeatInfo::hb_* in src/osd/OSD.h, OSD::handle_osd_ping.

use std::collections::VecDeque;
use std::time::Duration;
use types::{Mono, Now};

/// What is taken together, and how much of it is kept.
const MINUTE: Duration = Duration::from_secs(60);
const MINUTES: [usize; 3] = [1, 5, 15];

/// Round trips of a while, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RoundTrips {
    pub mean: u32,
    pub min: u32,
    pub max: u32,
}

/// Round trips on one network.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    /// The minute that is not over: when it began, how many there were, and their sum.
    since: Option<Mono>,
    count: u32,
    sum_us: u64,
    running: RoundTrips,
    /// The minutes before, the newest first.
    minutes: VecDeque<RoundTrips>,
    /// The last one, in microseconds.
    pub last_us: u32,
    /// When the last minute was over, in seconds of the wall clock; 0 if none was.
    pub updated_s: u32,
}

impl Pings {
    /// An answer has come to what was asked at `asked_ns` of our clock.
    pub fn note(&mut self, now: Now, asked_ns: u64) {
        let us = (now.mono.0.saturating_sub(asked_ns) / 1000) as u32;
        (self.last_us, self.count, self.sum_us) = (us, self.count + 1, self.sum_us + u64::from(us));
        let min = if self.count == 1 { us } else { self.running.min.min(us) };
        self.running = RoundTrips { mean: (self.sum_us / u64::from(self.count)) as u32, min, max: self.running.max.max(us) };
        if now.mono - *self.since.get_or_insert(now.mono) >= MINUTE {
            self.minutes.push_front(std::mem::take(&mut self.running));
            self.minutes.truncate(MINUTES[2]);
            (self.since, self.count, self.sum_us, self.updated_s) = (Some(now.mono), 0, 0, now.wall.sec);
        }
    }

    /// Over one, five and fifteen minutes; before the first of them is over, what there is of it.
    pub fn over(&self) -> [RoundTrips; 3] {
        let over = |n: usize| {
            let of = || self.minutes.iter().take(n);
            let count = of().count() as u64;
            match count {
                0 => self.running,
                _ => RoundTrips {
                    mean: (of().map(|m| u64::from(m.mean)).sum::<u64>() / count) as u32,
                    min: of().map(|m| m.min).min().unwrap_or(0),
                    max: of().map(|m| m.max).max().unwrap_or(0),
                },
            }
        };
        MINUTES.map(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Utime;

    #[test]
    fn minutes_are_taken_together() {
        let mut pings = Pings::default();
        let mut note = |s: u64, us: u64| {
            let now = Now { mono: Mono(s * 1_000_000_000), wall: Utime { sec: 1000 + s as u32, nsec: 0 } };
            pings.note(now, now.mono.0 - us * 1000);
            (pings.over(), pings.updated_s, pings.last_us)
        };
        let trips = |mean, min, max| RoundTrips { mean, min, max };
        assert_eq!(note(100, 300), ([trips(300, 300, 300); 3], 0, 300));
        (106..160).step_by(6).for_each(|s| _ = note(s, 100));
        // Ten of 100, one of 300.
        assert_eq!(note(160, 100), ([trips(118, 100, 300); 3], 1160, 100));
        // A minute is what is over.
        assert_eq!(note(166, 9000).0[0], trips(118, 100, 300));
        let mut last = Default::default();
        for minute in 0..20 {
            last = note(220 + 60 * minute, 1000 * (minute + 1));
        }
        // The first of them had the 9,000.
        assert_eq!(last.0, [trips(20_000, 20_000, 20_000), trips(18_000, 16_000, 20_000), trips(13_000, 6000, 20_000)]);
        assert_eq!((last.1, last.2), (1000 + 220 + 60 * 19, 20_000));
    }
}
