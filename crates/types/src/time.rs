//! Wall time as it is encoded, and monotonic time as timers use it.

use denc::{Decode, Encode};
use std::ops::{Add, Sub};
use std::time::Duration;

/// Wall-clock seconds and nanoseconds since 1970 (`utime_t`). For people and for clients, never for correctness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
pub struct Utime {
    pub sec: u32,
    pub nsec: u32,
}

impl Utime {
    pub const ZERO: Utime = Utime { sec: 0, nsec: 0 };

    /// From a time since 1970; later than 2106 wraps, as upstream's 32 bits do.
    pub fn from_duration(d: Duration) -> Self {
        Utime { sec: d.as_secs() as u32, nsec: d.subsec_nanos() }
    }

    /// The time since 1970.
    pub fn to_duration(self) -> Duration {
        Duration::new(self.sec.into(), self.nsec.min(999_999_999))
    }

    /// True for 0.0, "never" in most fields.
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

/// Monotonic nanoseconds since some moment of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(pub u64);

impl Add<Duration> for Mono {
    type Output = Mono;
    fn add(self, d: Duration) -> Mono {
        Mono(self.0.saturating_add(d.as_nanos() as u64))
    }
}

impl Sub for Mono {
    type Output = Duration;
    /// Time from `earlier` to `self`; zero when it is the other way round.
    fn sub(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The moment in which an input is handled; cores never ask a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    pub mono: Mono,
    pub wall: Utime,
}
