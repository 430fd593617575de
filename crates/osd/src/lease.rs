//! Leases on reads: a primary answers clients only as long as every other acting OSD has promised not to start anything
//! without it.
//!
//! Room: osd core.   Owns: `Leases`, one for the OSD.   Hears: heartbeats, maps.
//! Holds: whoever peers in a newer interval hears from a member of the older one how long its last promises hold, and
//! lets that time pass (`pg/readable.rs`); so nothing is written anywhere while an OSD that knows of no newer interval may
//! still read. A promise counts from when it was asked for with the one who asked, and from when that was heard with the
//! one who gave it: clocks only need to run equally fast.
//! Why between OSDs and not for each PG: heartbeats go between the very same pairs, and one answer serves all PGs. In
//! return it says how far the giver knows the maps: of those PGs that have moved on since, it promises nothing.
//! Upstream: doc/dev/osd_internals/stale_read.rst; osd_pool_default_read_lease_ratio.

use std::collections::BTreeMap;
use std::time::Duration;
use types::{Epoch, Mono, OsdId};

/// Promises given and held.
#[derive(Debug)]
pub(crate) struct Leases {
    /// How long one is asked for: `osd_pool_default_read_lease_ratio` of `osd_heartbeat_grace`.
    pub lasts: Duration,
    /// What was promised in an earlier life is forgotten; it ended when it was due after this moment at the latest.
    started: Mono,
    given: BTreeMap<OsdId, Mono>,
    held: BTreeMap<OsdId, Held>,
    /// Nothing is held any more: the map may say that we are dead.
    stopped: bool,
    /// Clients wait for a promise: everybody is to be asked again soon.
    pub wanted: bool,
    /// Some promise came: clients may go on.
    pub renewed: bool,
}

/// Another OSD's promise to us.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    until: Mono,
    /// A promise by one who knows newer maps than we: it counts when we know them, too.
    later: Option<(Epoch, Mono)>,
}

/// The longest promise given, whoever asks for more.
const LONGEST: Duration = Duration::from_secs(600);

impl Leases {
    /// Of an OSD that starts now.
    pub fn new(lasts: Duration) -> Self {
        Leases {
            lasts,
            started: Mono(0),
            given: BTreeMap::new(),
            held: BTreeMap::new(),
            stopped: false,
            wanted: false,
            renewed: false,
        }
    }

    /// The process begins.
    pub fn start(&mut self, now: Mono) {
        self.started = now;
    }

    /// `osd` asks for a promise that lasts so long; says how long the one lasts that it gets.
    pub fn give(&mut self, now: Mono, osd: OsdId, lasts: Duration) -> Duration {
        let lasts = lasts.min(LONGEST);
        let until = self.given.entry(osd).or_default();
        *until = (*until).max(now + lasts);
        lasts
    }

    /// How long `osd` may still read by what it was promised here, in this life or an earlier one.
    pub fn remains(&self, now: Mono, osd: OsdId) -> Duration {
        let given = self.given.get(&osd).copied().unwrap_or_default();
        given.max(self.started + self.lasts) - now
    }

    /// `osd`, which knows the maps up to `theirs`, has promised something until then; we know them up to `ours`.
    pub fn hold(&mut self, osd: OsdId, theirs: Epoch, ours: Epoch, until: Mono) {
        let held = self.held.entry(osd).or_default();
        match theirs <= ours {
            true => held.until = held.until.max(until),
            false => held.later = Some((theirs, until)),
        }
        self.renewed |= theirs <= ours;
    }

    /// We know the maps up to `ours`.
    pub fn handle_map(&mut self, ours: Epoch) {
        for held in self.held.values_mut() {
            if let Some((_, until)) = held.later.take_if(|(theirs, _)| *theirs <= ours) {
                held.until = held.until.max(until);
                self.renewed = true;
            }
        }
    }

    /// True if all of `others` have promised.
    pub fn are_held(&self, now: Mono, mut others: impl Iterator<Item = OsdId>) -> bool {
        !self.stopped && others.all(|osd| self.held.get(&osd).is_some_and(|h| now < h.until))
    }

    /// We tell others that we are dead: clients get no answers that depend on it any more.
    pub fn stop(&mut self) {
        self.stopped = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const LASTS: Duration = Duration::from_secs(16);

    fn at(seconds: u64) -> Mono {
        Mono(seconds * S)
    }

    fn holds(leases: &Leases, seconds: u64, osds: &[i32]) -> bool {
        leases.are_held(at(seconds), osds.iter().map(|o| OsdId(*o)))
    }

    #[test]
    fn a_promise_of_each_is_needed_and_ends() {
        let mut leases = Leases::new(LASTS);
        leases.hold(OsdId(1), Epoch(5), Epoch(5), at(16));
        assert!(holds(&leases, 15, &[1]) && holds(&leases, 15, &[]) && !holds(&leases, 15, &[1, 2]));
        assert!(!holds(&leases, 16, &[1]));
        leases.hold(OsdId(1), Epoch(5), Epoch(5), at(12));
        assert!(holds(&leases, 15, &[1]), "an older answer takes nothing back");
        leases.stop();
        assert!(!holds(&leases, 1, &[]));
    }

    #[test]
    fn what_is_promised_by_a_newer_map_counts_when_that_is_known() {
        let mut leases = Leases::new(LASTS);
        leases.hold(OsdId(1), Epoch(7), Epoch(5), at(16));
        assert!(!holds(&leases, 1, &[1]));
        leases.handle_map(Epoch(6));
        assert!(!holds(&leases, 1, &[1]) && !leases.renewed);
        leases.handle_map(Epoch(8));
        assert!(holds(&leases, 1, &[1]) && leases.renewed);
    }

    #[test]
    fn the_giver_counts_from_when_it_gave_and_after_a_start_from_that() {
        let mut leases = Leases::new(LASTS);
        leases.start(at(100));
        assert_eq!(leases.remains(at(104), OsdId(3)), Duration::from_secs(12), "an earlier life may have promised until then");
        assert_eq!(leases.give(at(110), OsdId(3), LASTS), LASTS);
        assert_eq!(leases.remains(at(120), OsdId(3)), Duration::from_secs(6));
        assert_eq!(leases.remains(at(120), OsdId(4)), Duration::ZERO);
        assert_eq!(leases.give(at(120), OsdId(3), Duration::MAX), LONGEST);
    }
}
