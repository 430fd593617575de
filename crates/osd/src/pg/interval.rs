//! Intervals: spans of epochs with one acting set. A PG's past is the list of those in which it may have been written.
//!
//! Upstream: PastIntervals (src/osd/osd_types.cc), is_new_interval.

use crate::ops::split_bits;
use crate::stripe;
use denc::{Decode, Encode};
use types::map::OsdMap;
use types::{Epoch, OsdId, PgId};

/// Who holds a PG by one map, and the pool's numbers that matter to peering.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    pub up: Vec<OsdId>,
    pub up_primary: OsdId,
    pub acting: Vec<OsdId>,
    pub primary: OsdId,
    pub size: u8,
    pub min_size: u8,
    /// Copies that make an object: 1, or as many as there are data chunks.
    pub need: u8,
    /// How many low bits of the hash the PG's objects share: more after a split, fewer after a merge.
    pub bits: u32,
    /// It is about to end in another PG, or another one in it: no operation runs in the meantime.
    pub premerge: bool,
}

impl Mapping {
    /// The PG's mapping; `None` if there is no such PG.
    pub fn of(map: &OsdMap, pg: PgId) -> Option<Self> {
        let pool = map.pool_by_id(pg.pool).filter(|p| pg.seed < p.pg_num)?;
        let m = map.pg_to_up_acting(pg);
        // Which shard a copy is of it knows itself: places do not count.
        let present = |osds: Vec<OsdId>| osds.into_iter().filter(|osd| *osd != OsdId::HOLE).collect();
        Some(Mapping {
            up: present(m.up),
            up_primary: m.up_primary,
            acting: present(m.acting),
            primary: m.acting_primary,
            size: pool.size,
            min_size: pool.min_size,
            need: stripe::copies_needed(map, pool),
            bits: split_bits(pg, pool.pg_num),
            premerge: pool.merging().is_some_and(|(source, target)| pg.seed == source || pg.seed == target),
        })
    }

    /// The mapping of the PG that has what is in `pg`, or will be: itself, or as long as there are too few PGs, the one
    /// that it is split off. `None` if there is no such pool.
    pub fn of_ancestor(map: &OsdMap, pg: PgId) -> Option<Self> {
        let pool = map.pool_by_id(pg.pool)?;
        Mapping::of(map, pool.raw_pg_to_pg(pg))
    }

    /// True if `osd` has a part in the PG now.
    pub fn involves(&self, osd: OsdId) -> bool {
        self.up.contains(&osd) || self.acting.contains(&osd)
    }
}

/// A past interval.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Interval {
    pub first: Epoch,
    pub last: Epoch,
    pub acting: Vec<OsdId>,
    /// The PG may have served writes: they may be on any of the acting OSDs and nowhere else.
    pub maybe_rw: bool,
}


/// Walks maps in order and keeps the intervals of one PG.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Walk {
    /// The epoch in which the PG first existed, as far as the maps go back.
    pub created: Epoch,
    pub since: Epoch,
    /// How long the primary has been the same. Clients whose primary stays do not send again.
    pub primary_since: Epoch,
    /// The same of those that should hold it.
    pub up_since: Epoch,
    pub past: Vec<Interval>,
    pub mapping: Mapping,
    /// The first epoch of the current interval that is known: `since`, or where maps go on after a gap.
    pub first: Epoch,
    /// Maps from before `first` are not known: the interval may have begun earlier, and been written, whatever `up_thru` says.
    pub cut: bool,
}

impl Walk {
    /// Starts with the first map that has the PG; `cut` if it is the first map there is, and not the first of all.
    pub fn start(map: &OsdMap, mapping: Mapping, cut: bool) -> Self {
        Walk { created: map.epoch, since: map.epoch, primary_since: map.epoch, up_since: map.epoch, past: Vec::new(), mapping, first: map.epoch, cut }
    }

    /// The current interval, if `map` was its last.
    pub fn closed(&self, map: &OsdMap) -> Interval {
        let (m, first) = (&self.mapping, self.first);
        let thru = map.info(m.primary).is_some_and(|i| i.up_from <= first && i.up_thru >= first);
        let maybe_rw = (thru || self.cut) && m.acting.len() >= usize::from(m.min_size);
        Interval { first, last: map.epoch, acting: m.acting.clone(), maybe_rw }
    }

    /// Goes from `old` to the next map. Where maps between them are gone, what happened there is not known: neither how the
    /// old interval went on nor how the new one began. It does not matter, for monitors drop maps only from before a
    /// PG was last clean: whoever had everything then is in the mapping that comes next.
    pub fn step(&mut self, old: &OsdMap, epoch: Epoch, mapping: Mapping) {
        let gap = epoch != old.epoch.next();
        if mapping != self.mapping || gap {
            self.cut |= gap;
            self.past.push(self.closed(old));
            (self.first, self.cut) = (epoch, gap);
        }
        if mapping != self.mapping {
            self.since = epoch;
            if mapping.primary != self.mapping.primary {
                self.primary_since = epoch;
            }
            if mapping.up != self.mapping.up {
                self.up_since = epoch;
            }
            self.mapping = mapping;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Utime;

    /// A map in which all of three OSDs are up from epoch 5 on, and were seen alive in `up_thru`.
    fn map(epoch: u32, up_thru: u32) -> OsdMap {
        let mut map = OsdMap::new(uuid::Uuid::nil(), Utime::ZERO);
        map.set_max_osd(3);
        map.epoch = Epoch(epoch);
        map.osd_info.iter_mut().for_each(|i| (i.up_from, i.up_thru) = (Epoch(5), Epoch(up_thru)));
        map
    }

    fn mapping() -> Mapping {
        let osds = vec![OsdId(0), OsdId(1)];
        Mapping { up: osds.clone(), up_primary: OsdId(0), acting: osds, primary: OsdId(0), size: 3, min_size: 2, need: 1, bits: 4, premerge: false }
    }

    fn walk() -> Walk {
        Walk::start(&map(10, 10), mapping(), false)
    }

    #[test]
    fn whatever_matters_to_clients_or_peers_begins_an_interval() {
        let changes: [fn(&mut Mapping); 8] = [
            |m| m.up.push(OsdId(2)),
            |m| m.up_primary = OsdId(1),
            |m| m.acting.reverse(),
            |m| m.primary = OsdId(1),
            |m| m.size = 2,
            |m| m.min_size = 1,
            |m| m.bits = 5,
            |m| m.premerge = true,
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let (mut walk, mut next) = (walk(), mapping());
            walk.step(&map(10, 10), Epoch(11), mapping());
            assert_eq!((walk.since, walk.past.len()), (Epoch(10), 0), "nothing has changed");
            change(&mut next);
            walk.step(&map(11, 10), Epoch(12), next.clone());
            assert_eq!((walk.since, walk.first, walk.cut, &walk.mapping), (Epoch(12), Epoch(12), false, &next), "{n}");
            let past = Interval { first: Epoch(10), last: Epoch(11), acting: mapping().acting, maybe_rw: true };
            assert_eq!(walk.past, [past], "{n}");
            assert_eq!(walk.primary_since, if next.primary == OsdId(0) { Epoch(10) } else { Epoch(12) });
        }
    }

    #[test]
    fn an_interval_may_have_been_written_if_its_primary_was_seen_alive_in_it_with_enough_others() {
        assert!(walk().closed(&map(20, 10)).maybe_rw);
        assert!(!walk().closed(&map(20, 9)).maybe_rw, "it was not seen alive in it");
        let mut booted = map(20, 20);
        booted.osd_info[0].up_from = Epoch(12);
        assert!(!walk().closed(&booted).maybe_rw, "it is another life of its");
        let alone = Mapping { acting: vec![OsdId(0)], ..mapping() };
        assert!(!Walk { mapping: alone, ..walk() }.closed(&map(20, 10)).maybe_rw, "too few");
    }

    #[test]
    fn what_lies_in_a_gap_may_have_been_written() {
        let mut walk = walk();
        walk.step(&map(12, 9), Epoch(50), mapping());
        assert_eq!((walk.since, walk.first, walk.cut), (Epoch(10), Epoch(50), true), "for peers it is the same interval");
        walk.step(&map(60, 9), Epoch(61), Mapping { size: 2, ..mapping() });
        let span = |i: &Interval| (i.first.0, i.last.0, i.maybe_rw);
        assert_eq!(walk.past.iter().map(span).collect::<Vec<_>>(), [(10, 12, true), (50, 60, true)]);
        walk.step(&map(61, 9), Epoch(62), mapping());
        assert_eq!(walk.past.last().map(span), Some((61, 61, false)), "this one is known");
    }
}
