//! Gives memory back that a busy time has left behind.
//!
//! Why: the C library keeps what is freed below the end of its heap, and after a burst of large messages that is a
//! fifth of a daemon's memory. Giving it back costs some milliseconds, so it waits until nobody is served.

use std::time::Duration;
use store::Pressure;
use types::Mono;

/// How often the traffic is looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// How often, while there is something to do, the kernel is asked what the process has. It costs a hundredth of a millisecond.
const GLANCE: Duration = Duration::from_millis(100);
/// A period with less traffic than this is quiet, in bytes.
const QUIET_BYTES: u64 = 256 << 10;
/// Traffic after which there is something to give back, in bytes.
const BUSY_BYTES: u64 = 16 << 20;

/// Between two times that memory is given back while somebody is served: when the process has more than it should, and when it
/// has much more.
const HURRY: Duration = Duration::from_secs(60);
const GREAT_HURRY: Duration = Duration::from_secs(3);

/// Bytes of a page of the kernel's; 0 if it does not say.
pub(crate) fn page_size() -> u64 {
    // SAFETY: only reads a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(page).unwrap_or(0)
}

/// Bytes of memory that this process has; 0 if the kernel does not say.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok().and_then(|s| s.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * page_size()
}

/// True if the pause since the `last` time is over; then this is the last time.
fn is_time_again(last: &mut Mono, now: Mono, pause: Duration) -> bool {
    let is_time = now >= *last + pause;
    if is_time {
        *last = now;
    }
    is_time
}

/// Decides when memory is given back.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    glanced_at: Mono,
    looked_at: Mono,
    /// Traffic at the last look, and when memory was last given back; in bytes since the start.
    seen: u64,
    trimmed: u64,
    hurried: Mono,
}

impl Heap {
    /// Called every turn; what the process has, in bytes, if it is time to ask that.
    pub fn glance(&mut self, now: Mono) -> Option<u64> {
        is_time_again(&mut self.glanced_at, now, GLANCE).then(resident)
    }

    /// Called then; true if it is time to look for memory that can be given back.
    pub fn is_time(&mut self, now: Mono) -> bool {
        is_time_again(&mut self.looked_at, now, PERIOD)
    }

    /// Called when it is time, with the traffic so far; true if what the C library has should be given back now.
    pub fn is_due(&mut self, traffic: u64) -> bool {
        let quiet = traffic - self.seen < QUIET_BYTES;
        self.seen = traffic;
        if !quiet || traffic - self.trimmed < BUSY_BYTES {
            return false;
        }
        self.trimmed = traffic;
        true
    }

    /// True if memory may be given back though somebody is served.
    pub fn may_hurry(&mut self, now: Mono, pressure: Pressure) -> bool {
        let pause = match pressure {
            Pressure::None => return false,
            Pressure::Some => HURRY,
            Pressure::Much => GREAT_HURRY,
        };
        is_time_again(&mut self.hurried, now, pause)
    }

    /// Gives back what is free.
    pub fn trim() {
        // SAFETY: touches only the allocator's own state, under its own locks.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::malloc_trim(0)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_a_burst_when_it_is_quiet() {
        let mut heap = Heap::default();
        let mut at = |ms: u64, traffic| heap.is_time(Mono(ms * 1_000_000)) && heap.is_due(traffic);
        assert!(!at(1000, 20 << 20), "busy");
        assert!(!at(1500, 20 << 20), "looked at a moment ago");
        assert!(at(2500, 20 << 20));
        assert!(!at(4000, 20 << 20), "nothing since");
        assert!(!at(9000, 21 << 20), "a little is not worth it");
        assert!(!at(10_000, 40 << 20));
        assert!(at(11_000, 40 << 20));
    }

    #[test]
    fn the_kernel_is_asked_ten_times_a_second_at_most() {
        let mut heap = Heap::default();
        let asked = (1000..2000).filter(|ms| heap.glance(Mono(ms * 1_000_000)).is_some()).count();
        assert_eq!(asked, 10);
        assert!(heap.glance(Mono(3_000_000_000)).is_some_and(|bytes| bytes > 100 << 10));
    }

    #[test]
    fn who_has_much_too_much_gives_back_more_often() {
        let mut heap = Heap::default();
        let mut may = |s: u64, pressure| heap.may_hurry(Mono(s * 1_000_000_000), pressure);
        assert!(!may(100, Pressure::None) && may(100, Pressure::Some));
        assert!(!may(110, Pressure::Some) && may(110, Pressure::Much) && !may(111, Pressure::Much) && may(114, Pressure::Much));
    }
}
