//! Wall time as it is encoded, and monotonic time as timers use it.

use denc::{Decode, Encode};
use std::fmt;
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

impl Utime {
    /// Year, month, day, hour, minute, second in UTC.
    fn civil(self) -> (i64, u32, u32, u32, u32, u32) {
        let (days, rest) = (i64::from(self.sec / 86_400), self.sec % 86_400);
        // Days since 0000-03-01, in 400-year eras: leap days fall at the end of a year.
        let z = days + 719_468;
        let (era, doe) = (z / 146_097, z % 146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
        let year = yoe + era * 400 + i64::from(month <= 2);
        (year, month as u32, day as u32, rest / 3600, rest / 60 % 60, rest % 60)
    }

    fn stamp(self, zone: &str) -> String {
        let usec = self.nsec / 1000;
        // Less than ten years: a duration.
        if self.sec < 60 * 60 * 24 * 365 * 10 {
            return format!("{}.{usec:06}", self.sec);
        }
        let (y, mo, d, h, mi, s) = self.civil();
        format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{usec:06}{zone}")
    }

    /// As C's `ctime` has it, in UTC: `Sat Nov 28 18:07:02 2026`.
    pub fn ctime(self) -> String {
        const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (y, mo, d, h, mi, s) = self.civil();
        let (day, month) = (DAYS[self.sec as usize / 86_400 % 7], MONTHS[mo as usize - 1]);
        format!("{day} {month} {d:>2} {h:02}:{mi:02}:{s:02} {y}")
    }

    /// As UTC with a `Z` (`gmtime` upstream).
    pub fn gmt(self) -> String {
        self.stamp("Z")
    }
}

impl fmt::Display for Utime {
    /// `2026-11-20T17:53:11.000000+0000`; daemons of ours run on UTC. Times before 1980 print as seconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.stamp("+0000"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_s_time_has_a_day_of_the_week() {
        for (sec, text) in [(0, "Thu Jan  1 00:00:00 1970"), (1_795_889_222, "Sat Nov 28 18:07:02 2026"), (951_827_696, "Tue Feb 29 12:34:56 2000")] {
            assert_eq!(Utime { sec, nsec: 0 }.ctime(), text);
        }
    }

    #[test]
    fn times_print_as_dates_and_durations_as_seconds() {
        let at = |sec, nsec| Utime { sec, nsec };
        assert_eq!(at(1_600_000_000, 123_456_789).to_string(), "2020-09-13T12:26:40.123456+0000");
        assert_eq!(at(951_782_400, 0).gmt(), "2000-02-29T00:00:00.000000Z");
        assert_eq!(at(u32::MAX, 0).gmt(), "2106-02-07T06:28:15.000000Z");
        assert_eq!(at(30, 5_000).to_string(), "30.000005");
        assert_eq!(Utime::ZERO.to_string(), "0.000000");
    }
}
