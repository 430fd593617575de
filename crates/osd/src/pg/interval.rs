//! Intervals: spans of epochs with one acting set. A PG's past is the list of those in which it may have been written.
//!
//! Upstream: PastIntervals (src/osd/osd_types.cc), is_new_interval.

use crate::ops::split_bits;
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
        Some(Mapping {
            up: m.up,
            up_primary: m.up_primary,
            acting: m.acting,
            primary: m.acting_primary,
            size: pool.size,
            min_size: pool.min_size,
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
    pub past: Vec<Interval>,
    pub mapping: Mapping,
    /// Maps from before the current interval are not known: it may have begun earlier, and been written, whatever `up_thru` says.
    pub cut: bool,
}

impl Walk {
    /// Starts with the first map that has the PG; `cut` if it is the first map there is, and not the first of all.
    pub fn start(map: &OsdMap, mapping: Mapping, cut: bool) -> Self {
        Walk { created: map.epoch, since: map.epoch, primary_since: map.epoch, past: Vec::new(), mapping, cut }
    }

    /// The current interval, if `map` was its last.
    pub fn closed(&self, map: &OsdMap) -> Interval {
        let (m, first) = (&self.mapping, self.since);
        let thru = map.info(m.primary).is_some_and(|i| i.up_from <= first && i.up_thru >= first);
        let maybe_rw = (thru || self.cut) && m.acting.len() >= usize::from(m.min_size);
        Interval { first, last: map.epoch, acting: m.acting.clone(), maybe_rw }
    }

    /// Goes from `old` to the next map. Where maps between them are gone, what happened there is not known: neither how the
    /// old interval went on nor how the new one began. It does not matter, for monitors drop maps only from before a
    /// PG was last clean: whoever had everything then is in the mapping that comes next.
    pub fn step(&mut self, old: &OsdMap, epoch: Epoch, mapping: Mapping) {
        let gap = epoch != old.epoch.next();
        self.cut |= gap;
        if mapping != self.mapping {
            self.past.push(self.closed(old));
            self.cut = gap;
            self.since = epoch;
            if mapping.primary != self.mapping.primary {
                self.primary_since = epoch;
            }
            self.mapping = mapping;
        }
    }
}
