//! What the device has returned lately with the right checksum: a scrub that may trust that need not read it again.
//!
//! Holds: a block is noted only if the device was asked for it after it was last written. Its note goes as soon as it is
//! to be written in place, becomes free, or is found to be bad; what is allocated was free, so it has none.
//! In memory only: after a restart everything is read again, which is safe.

use crate::Trust;
use crate::store::ById;
use std::collections::VecDeque;
use types::Mono;

/// Blocks of a region.
const REGION: u64 = 64;
/// A read that was under way while a block of a region of the same remainder lost its note is not believed.
const SIEVE: usize = 1024;
const SECOND: u64 = 1_000_000_000;

pub(crate) struct Verified {
    regions: ById<Region>,
    regions_max: usize,
    /// Regions with their `since`, in that order; stale where the region says otherwise.
    order: VecDeque<(u64, u32)>,
    /// The first read, by number, that was started after a note went.
    lost: Vec<u64>,
    /// Nobody has a use for notes of more seconds: what the last scrub asked for.
    wanted_s: u32,
}

struct Region {
    /// A bit for each block.
    blocks: u64,
    /// All of them were read then or later, in seconds.
    since: u32,
}

/// Blocks that lie side by side on the device.
fn regions(first: u64, count: u64) -> impl Iterator<Item = (u64, u64)> {
    (first / REGION..(first + count).div_ceil(REGION)).map(move |region| {
        let (from, to) = (first.max(region * REGION), (first + count).min((region + 1) * REGION));
        (region, u64::MAX >> (REGION - (to - from)) << (from % REGION))
    })
}

impl Verified {
    pub fn new(regions_max: usize) -> Self {
        Verified { regions: ById::default(), regions_max, order: VecDeque::new(), lost: vec![0; SIEVE], wanted_s: u32::MAX }
    }

    /// The device has answered the read of this number, and all was right.
    pub fn note(&mut self, read: u64, now: Mono, first: u64, count: u64) {
        let now = (now.0 / SECOND) as u32;
        for (region, blocks) in regions(first, count) {
            if self.lost[region as usize % SIEVE] > read {
                continue;
            }
            match self.regions.get_mut(&region) {
                // Notes that nobody has a use for would make newer ones as old as they are.
                Some(r) if now.saturating_sub(r.since) <= self.wanted_s && r.blocks & !blocks != 0 => r.blocks |= blocks,
                Some(r) if r.since == now => r.blocks = blocks,
                _ => {
                    self.regions.insert(region, Region { blocks, since: now });
                    self.order.push_back((region, now));
                }
            }
        }
        self.trim();
    }

    /// A block is not what it was. `read_next` will be the number of the next read.
    pub fn forget(&mut self, block: u64, read_next: u64) {
        self.lost[(block / REGION) as usize % SIEVE] = read_next;
        if let Some(r) = self.regions.get_mut(&(block / REGION)) {
            r.blocks &= !(1 << (block % REGION));
        }
    }

    /// True if a note of the block, or of another one that is kept in the same place, went after the read of this number had begun.
    pub fn is_lost(&self, read: u64, block: u64) -> bool {
        self.lost[(block / REGION) as usize % SIEVE] > read
    }

    /// A scrub asks.
    pub fn want(&mut self, trust: Trust) {
        self.wanted_s = trust.age_s;
    }

    /// True if the block was read and right, not too long ago.
    pub fn is_known(&self, block: u64, trust: Trust) -> bool {
        // A note's time was rounded down: it is never taken for younger than it is.
        let since = trust.now.0.saturating_sub(u64::from(trust.age_s) * SECOND).div_ceil(SECOND);
        let region = self.regions.get(&(block / REGION)).filter(|r| u64::from(r.since) >= since);
        region.is_some_and(|r| r.blocks >> (block % REGION) & 1 == 1)
    }

    /// The oldest go first.
    fn trim(&mut self) {
        let Verified { regions, order, .. } = self;
        let is_live = |regions: &ById<Region>, (region, since)| regions.get(&region).is_some_and(|r| r.since == since);
        while regions.len() > self.regions_max {
            let Some(oldest) = order.pop_front() else { return };
            if is_live(regions, oldest) {
                regions.remove(&oldest.0);
            }
        }
        if order.len() > 2 * regions.len() + 64 {
            order.retain(|o| is_live(regions, *o));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Mono {
        Mono(s * SECOND)
    }

    /// Trusts what is not older than that.
    fn since(s: u64) -> Trust {
        Trust { now: at(100_000), age_s: 100_000 - s as u32 }
    }

    #[test]
    fn runs_are_cut_at_the_edges_of_regions() {
        assert_eq!(regions(0, 64).collect::<Vec<_>>(), [(0, u64::MAX)]);
        assert_eq!(regions(3, 1).collect::<Vec<_>>(), [(0, 8)]);
        assert_eq!(regions(62, 68).collect::<Vec<_>>(), [(0, 3 << 62), (1, u64::MAX), (2, 3)]);
    }

    #[test]
    fn notes_are_as_old_as_the_oldest_of_their_region() {
        let mut v = Verified::new(10);
        v.note(1, at(10), 0, 4);
        v.note(2, at(20), 4, 1);
        assert!(v.is_known(4, since(10)) && !v.is_known(4, since(11)) && !v.is_known(5, since(0)));
        let later = Trust { now: Mono(at(15).0 + 1), age_s: 5 };
        assert!(v.is_known(4, Trust { now: at(15), ..later }) && !v.is_known(4, later), "a fraction of a second counts");
        // All that is noted is read again: it is as new as that.
        v.note(3, at(30), 0, 8);
        assert!(v.is_known(0, since(30)) && v.is_known(7, since(30)));
        // What is too old for scrubs does not make new notes old.
        v.want(Trust { now: at(31), age_s: 10 });
        v.note(4, at(40), 2, 1);
        assert!(v.is_known(2, since(30)) && v.is_known(3, since(30)));
        v.note(5, at(41), 2, 1);
        assert!(v.is_known(2, since(41)) && !v.is_known(3, since(0)));
    }

    #[test]
    fn a_read_from_before_a_note_went_brings_it_not_back() {
        let mut v = Verified::new(10);
        v.note(1, at(1), 0, 3);
        v.forget(1, 7);
        assert!(v.is_known(0, since(1)) && !v.is_known(1, since(1)) && v.is_known(2, since(1)));
        v.note(6, at(2), 1, 1);
        assert!(!v.is_known(1, since(0)));
        v.note(7, at(2), 1, 1);
        assert!(v.is_known(1, since(1)));
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_and_the_order_does_not_grow() {
        let mut v = Verified::new(8);
        for s in 0..10_000 {
            v.note(s, at(s), s % 5 * REGION, 1);
            v.note(s, at(s), (s % 20) * REGION, REGION);
            assert!(v.regions.len() <= 8 && v.order.len() <= 2 * 8 + 64 + 2);
        }
        assert!(v.is_known(19 * REGION, since(9999)) && !v.is_known(9 * REGION, since(0)));
        let mut off = Verified::new(0);
        off.note(1, at(1), 0, 64);
        assert!(!off.is_known(0, since(0)) && off.order.is_empty());
    }
}
