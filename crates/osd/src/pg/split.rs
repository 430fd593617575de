//! A PG is split: with more PGs in the pool some of its objects belong to others. No object moves, for objects are found
//! by their hash; what changes is whose they are.
//!
//! Room: osd core.   Hears: the map with more PGs, wherever the PG is: primary, replica, stray, being removed.
//! Holds: every copy is split by itself at the same epoch, which begins an interval for parent and children; each part is to its
//! objects what the parent was: log, missing set, backfill cursor, past intervals. Parent and children change in one
//! transaction, so that an object belongs to exactly one PG at every crash.
//! Why gaps in logs: entries keep their numbers, so logs of copies compare as those of the parent would have. Were entries
//! left out, a copy whose last write went to another child would look older than it is, or have a tail behind its head.
//! Why totals are guessed: to count is to list every object, which takes longer than an OSD may be silent. `recount`
//! does it when the PG serves.
//! Upstream: OSD::split_pgs, PG::split_into, PeeringState::split_into, PGLog::split_into.

use super::interval::Mapping;
use super::{Pg, Stage, Walk};
use crate::effects::Cx;
use crate::ops::pg_range;
use std::collections::{BTreeMap, BTreeSet};
use types::map::OsdMap;
use types::msg::internal_osd::PgTotals;
use types::{HObject, PgId, Utime};

/// All copies of an OSD go from one map to the next; those that are split become more, those that are merged fewer.
pub(crate) fn advance_all(pgs: &mut BTreeMap<PgId, Pg>, cx: &mut Cx<'_>, old: &OsdMap, new: &OsdMap) {
    let (mut split, mut shrunk) = (Vec::new(), BTreeSet::new());
    for pg in pgs.values_mut() {
        let bits = pg.walk.mapping.bits;
        pg.advance(old, new);
        if pg.walk.mapping.bits > bits {
            split.push((pg.id, bits));
        } else if pg.walk.mapping.bits < bits {
            shrunk.insert(pg.id);
        }
    }
    super::merge_pgs::merge_all(pgs, cx, old, new, shrunk);
    for (id, bits) in split {
        let pg_num = new.pool_by_id(id.pool).map_or(0, |p| p.pg_num);
        let children: Vec<PgId> = children_of(id, bits, pg_num).filter(|child| !pgs.contains_key(child)).collect();
        let Some(parent) = pgs.get_mut(&id) else { continue };
        for child in parent.split(cx, bits, &children, new) {
            child.continue_removal(cx);
            pgs.insert(child.id, child);
        }
    }
}

/// PGs that get something of what `parent` had when its objects shared `bits` bits.
fn children_of(parent: PgId, bits: u32, pg_num: u32) -> impl Iterator<Item = PgId> {
    let step = 1usize.checked_shl(bits).unwrap_or(usize::MAX);
    (parent.seed..pg_num).step_by(step).skip(1).map(move |seed| PgId { seed, ..parent })
}

/// What a part of a PG may have of a sum, going by its share of the hashes.
fn share(sum: i64, bits_more: u32) -> i64 {
    sum >> bits_more.min(63)
}

impl Pg {
    /// Keeps what is still this PG's by `map`, and makes a copy of each child. Operations are dropped: clients send again to
    /// whoever has the object now.
    fn split(&mut self, cx: &mut Cx<'_>, bits: u32, children: &[PgId], map: &OsdMap) -> Vec<Pg> {
        let Some(pool) = map.pool_by_id(self.id.pool) else { return Vec::new() };
        let removing = matches!(self.stage, Stage::Removing);
        if removing && !self.exists_on_disk {
            return Vec::new();
        }
        tracing::debug!(osd = %cx.sh.whoami, pg = %self.id, epoch = %map.epoch, ?children, "split");
        self.walk.primary_since = self.walk.since;
        if !removing {
            self.drop_interval_state(cx);
            self.stage = Stage::Follower { active: false };
        }
        let id = self.id.pool;
        let home = |o: &HObject| pool.raw_pg_to_pg(PgId { pool: id, seed: o.hash });
        let whole = self.totals;
        let mut parts: Vec<Pg> = children.iter().filter_map(|id| self.child(*id, bits, map, home)).collect();
        for part in &mut parts {
            part.undo = self.part_undo(|o| home(o) == part.id);
        }
        self.log = self.log.part(|o| home(o) == self.id);
        self.own_shards = self.own_shards.within(self.hashes());
        let gone: Vec<HObject> = self.missing.keys().filter(|o| home(o) != self.id).cloned().collect();
        let given = |of: fn(&PgTotals) -> i64| parts.iter().map(|p| of(&p.totals)).sum::<i64>();
        self.totals = PgTotals {
            objects: whole.objects - given(|t| t.objects),
            bytes: whole.bytes - given(|t| t.bytes),
            clones: whole.clones - given(|t| t.clones),
        };
        self.note_split(&whole);
        let mut txn = self.transaction();
        txn.set_coll_bits(self.walk.mapping.bits);
        gone.iter().for_each(|o| self.drop_missing(&mut txn, o));
        self.put_log(&mut txn);
        self.pass_cursor(whole.objects);
        self.put_meta(&mut txn);
        for child in &mut parts {
            txn.on(child.coll);
            txn.create_coll(child.walk.mapping.bits);
            child.exists_on_disk = true;
            child.put_log(&mut txn);
            child.put_missing(&mut txn);
            child.log.dups.put_all(&mut txn);
            child.put_meta(&mut txn);
        }
        cx.submit(txn);
        parts
    }

    fn child(&self, id: PgId, bits: u32, map: &OsdMap, home: impl Fn(&HObject) -> PgId) -> Option<Pg> {
        let mapping = Mapping::of(map, id)?;
        let more = mapping.bits.saturating_sub(bits);
        let mut child = Pg::new(id, Walk { mapping, ..self.walk.clone() });
        child.last_epoch_started = self.last_epoch_started;
        child.history = self.history;
        child.history.epoch_created = map.epoch;
        child.last_backfill = self.last_backfill.clone();
        child.backfilled = self.backfilled;
        child.own_shards = self.own_shards.within(child.hashes());
        child.log = self.log.part(|o| home(o) == id);
        child.missing = self.missing.iter().filter(|(o, _)| home(o) == id).map(|(o, v)| (o.clone(), *v)).collect();
        let part = |sum| share(sum, more);
        child.totals = PgTotals { objects: part(self.totals.objects), bytes: part(self.totals.bytes), clones: part(self.totals.clones) };
        // Rows that say which clones a snapshot shows stay where they are.
        child.trims.unindexed = self.trims.unindexed || self.totals.objects > 0;
        child.last_user_version = self.last_user_version;
        child.note_split(&self.totals);
        child.pass_cursor(self.totals.objects);
        if matches!(self.stage, Stage::Removing) {
            child.stage = Stage::Removing;
        }
        Some(child)
    }

    /// What is only roughly known of a part.
    fn note_split(&mut self, whole: &PgTotals) {
        self.history.approximate |= *whole != PgTotals::default();
        let scrubs = &mut self.history.scrubs;
        if scrubs.errors() > 0 {
            // Whose they are the next scrub finds out, soon.
            let long_ago = Utime { sec: 1, nsec: 0 };
            (scrubs.last_scrub_stamp, scrubs.last_deep_scrub_stamp) = (long_ago, long_ago);
        }
    }

    /// A cursor of the whole stands before this part, in it, or behind it: behind it, the part is whole.
    fn pass_cursor(&mut self, whole: i64) {
        if self.is_complete() || matches!(self.stage, Stage::Removing) {
            return;
        }
        let (start, end) = pg_range(self.id, self.walk.mapping.bits);
        if self.last_backfill >= end {
            (self.last_backfill, self.backfilled) = (HObject::max(), 0);
        } else if self.last_backfill <= start {
            self.backfilled = 0;
        } else {
            let part = self.totals.objects as f64 / whole.max(1) as f64;
            self.backfilled = (self.backfilled as f64 * part) as i64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::split_bits;
    use types::PoolId;

    #[test]
    fn every_child_has_one_parent_and_every_hash_the_parent_that_had_it() {
        let pg = |seed| PgId { pool: PoolId(1), seed };
        let numbers = [1u32, 2, 3, 4, 5, 8, 12, 13, 32, 33];
        for (old, new) in numbers.iter().flat_map(|old| numbers.iter().map(move |new| (*old, *new))).filter(|(old, new)| old < new) {
            let pool = |n| types::map::PgPool::replicated(3, n, 0);
            let mut seen: BTreeSet<PgId> = (0..old).map(pg).collect();
            for parent in (0..old).map(pg) {
                let bits = split_bits(parent, old);
                for child in children_of(parent, bits, new) {
                    assert!(seen.insert(child), "{old} to {new}: {child} twice");
                    assert_eq!(pool(old).raw_pg_to_pg(child), parent, "{old} to {new}");
                    assert!(split_bits(child, new) > bits && split_bits(parent, new) > bits);
                }
            }
            assert_eq!(seen, (0..new).map(pg).collect(), "{old} to {new}");
            for hash in (0..2000u32).map(|n| n.wrapping_mul(2_654_435_761)) {
                let (before, after) = (pool(old).raw_pg_to_pg(pg(hash)), pool(new).raw_pg_to_pg(pg(hash)));
                assert_eq!(pool(old).raw_pg_to_pg(after), before);
            }
        }
    }
}
