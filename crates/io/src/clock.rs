//! The two clocks: monotonic for timers, wall for people.

use std::time::{Instant, SystemTime, UNIX_EPOCH};
use types::{Mono, Now, Utime};

/// Reads both clocks; monotonic time counts from the creation of this value.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts one second after zero, so that "zero" is always in the past.
    #[expect(clippy::new_without_default, reason = "creating a clock is an event, not a default")]
    pub fn new() -> Self {
        Clock { start: Instant::now() }
    }

    /// This moment.
    pub fn now(&self) -> Now {
        let mono = 1_000_000_000 + self.start.elapsed().as_nanos() as u64;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono: Mono(mono), wall: Utime::from_duration(wall) }
    }
}
