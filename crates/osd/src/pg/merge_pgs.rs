//! PGs become one: with fewer of them in the pool the objects of one belong to another. No object moves, for objects are found
//! by their hash; what changes is whose they are.
//!
//! Room: osd core.   Hears: the map with fewer PGs, wherever the PGs are: primary, replica, stray, being removed.
//! Holds: the monitors make that map only when both PGs were clean on the same OSDs, took no operations any more (`premerge`),
//! and told in which versions; so what every OSD has of both is whole exactly if its logs end there. The merged copy then has
//! everything, and is marked with the epoch of the merge; any other one is to be backfilled from the beginning, whatever
//! it holds. All of an OSD's copies change in one transaction; after a crash the maps are walked again, and whoever finds a
//! PG that the map does not have any more does it then.
//! Why the log begins anew: versions of two PGs do not compare. It begins behind a version that is newer than anything in either,
//! so a copy from before, wherever it turns up, ends before the log begins.
//! Why requests get new numbers: those of both are remembered in one list that is sorted by number. From their distance to
//! the end of their log the numbers follow, the same on every copy; they leave room for each other, so a merge makes
//! numbers jump.
//! Upstream: PG::merge_from, PeeringState::merge_from, OSD::advance_pg; pg_merge_meta_t.

use super::interval::{Interval, Mapping};
use super::log::PgLog;
use super::{Pg, Stage, Walk};
use crate::effects::Cx;
use crate::ops::split_bits;
use std::collections::{BTreeMap, BTreeSet};
use types::map::{MergeMeta, OsdMap};
use types::msg::internal_osd::{PgTotals, ScrubHistory};
use types::pg::{HashRange, PgLogDup, Shards};
use types::{EVersion, Epoch, HObject, PgId, Utime};

/// No request so many writes back is remembered beyond a merge.
const REACH: u64 = 1 << 20;

/// Where the log of two PGs that end in these versions begins when they are one.
pub(super) fn base(epoch: Epoch, source: EVersion, target: EVersion) -> EVersion {
    let newest = source.version.max(target.version);
    EVersion { epoch, version: newest + newest.min(REACH) + 2 }
}

/// The new number of a write: behind it those of the other PG with the same distance have room.
fn renumber(base: EVersion, head: EVersion, version: u64, is_source: bool) -> Option<u64> {
    let back = head.version.checked_sub(version).filter(|back| *back <= REACH)?;
    base.version.checked_sub(2 * back + u64::from(is_source))
}

/// The requests of both logs, by their new numbers.
fn requests(base: EVersion, source: &PgLog, target: &PgLog) -> Vec<PgLogDup> {
    let mut all: BTreeMap<u64, PgLogDup> = BTreeMap::new();
    for (log, is_source) in [(source, true), (target, false)] {
        for mut dup in log.requests() {
            if let Some(version) = renumber(base, log.head(), dup.version.version, is_source) {
                dup.version.version = version;
                all.insert(version, dup);
            }
        }
    }
    all.into_values().collect()
}

/// All copies of an OSD whose PGs the next map does not have become part of others. `shrunk` are PGs that get something.
pub(super) fn merge_all(pgs: &mut BTreeMap<PgId, Pg>, cx: &mut Cx<'_>, old: &OsdMap, new: &OsdMap, shrunk: BTreeSet<PgId>) {
    let ends = |pg: &Pg| pg.walk.since < new.epoch && new.pool_by_id(pg.id.pool).is_some_and(|p| pg.id.seed >= p.pg_num);
    let mut parts: BTreeMap<PgId, Vec<PgId>> = shrunk.iter().map(|target| (*target, Vec::new())).collect();
    for source in pgs.values().filter(|pg| ends(pg)) {
        if let Some(target) = new.raw_pg_to_pg(source.id) {
            parts.entry(target).or_default().push(source.id);
        }
    }
    for (id, sources) in parts {
        let target = pgs.remove(&id);
        let sources: Vec<Pg> = sources.into_iter().filter_map(|id| pgs.remove(&id)).collect();
        let target = match target {
            Some(mut merged) if merged.exists_on_disk && !shrunk.contains(&id) => {
                merged.absorb(cx, sources);
                pgs.insert(id, merged);
                continue;
            }
            other => other,
        };
        if let Some(pg) = merge(cx, id, target, sources, old, new) {
            pg.continue_removal(cx);
            pgs.insert(id, pg);
        }
    }
}

fn merge(cx: &mut Cx<'_>, id: PgId, target: Option<Pg>, sources: Vec<Pg>, old: &OsdMap, new: &OsdMap) -> Option<Pg> {
    let meta = new.pool_by_id(id.pool)?.last_pg_merge_meta.clone();
    let mut target = target.filter(|pg| pg.exists_on_disk);
    let mut sources: Vec<Pg> = sources.into_iter().filter(|pg| pg.exists_on_disk).collect();
    for pg in target.iter_mut().chain(&mut sources).filter(|pg| !matches!(pg.stage, Stage::Removing)) {
        // Clients send again to whoever has the object now.
        pg.walk.primary_since = Epoch(u32::MAX);
        pg.drop_interval_state(cx);
    }
    let whole = match (&target, &sources[..]) {
        (Some(target), [source]) => old.epoch.next() == new.epoch && is_whole(&meta, new.epoch, source, target),
        _ => false,
    };
    let heads = |pg: &Pg| pg.log.head();
    let newest = target.iter().chain(&sources).map(heads).max().unwrap_or_default();
    let base = if whole { base(new.epoch, meta.source_version, meta.target_version) } else { base(new.epoch, newest, newest) };
    let removing = target.iter().chain(&sources).all(|pg| matches!(pg.stage, Stage::Removing));
    let mut pg = match target {
        Some(pg) => pg,
        None => stand_in(id, sources.first()?, old, new)?,
    };
    tracing::debug!(osd = %cx.sh.whoami, pg = %id, epoch = %new.epoch, sources = ?sources.iter().map(|s| s.id).collect::<Vec<_>>(), whole, removing, %base, "merged");
    pg.stage = if removing { Stage::Removing } else { Stage::Follower { active: false } };
    pg.walk.since = pg.walk.since.max(new.epoch);
    pg.walk.primary_since = pg.walk.since;
    pg.own_shards = joined(old, &pg, &sources);
    let mut txn = pg.transaction();
    txn.set_coll_bits(pg.walk.mapping.bits);
    let remembered = match (&sources[..], whole) {
        ([source], true) => requests(base, &source.log, &pg.log),
        // What such a copy logged need not have happened.
        _ => Vec::new(),
    };
    for source in &sources {
        pg.take_over(source);
        txn.merge_coll(source.coll);
        // Everything in a whole copy is on every shard; what others have is compared.
        source.undo.iter().for_each(|(_, kept)| txn.remove(kept));
    }
    pg.clear_missing(&mut txn);
    pg.reset_log(&mut txn, base);
    let earliest = (base.version + 1).saturating_sub(cx.sh.log_dups_tracked);
    remembered.into_iter().filter(|d| d.version.version >= earliest).for_each(|d| pg.log.dups.push(d));
    pg.log.dups.put_all(&mut txn);
    match whole {
        true => {
            (pg.last_epoch_started, pg.history.last_epoch_started) = (new.epoch, new.epoch);
        }
        false => {
            (pg.last_backfill, pg.backfilled) = (HObject::min(), 0);
            pg.history.approximate = true;
        }
    }
    pg.put_meta(&mut txn);
    cx.submit(txn);
    Some(pg)
}

/// Which shards of erasure-coded objects a copy has that is made of these.
fn joined(old: &OsdMap, target: &Pg, sources: &[Pg]) -> Shards {
    let pg_num = old.pool_by_id(target.id.pool).map_or(0, |pool| pool.pg_num);
    let known = std::iter::once(target).chain(sources).filter(|pg| pg.id.seed < pg_num);
    let said = known.flat_map(|pg| {
        let hashes = HashRange::new(pg.id.seed, split_bits(pg.id, pg_num));
        pg.own_shards.parts().filter_map(move |(part, shard)| Some((part.common(hashes)?, shard)))
    });
    Shards::of_pg(target.hashes(), said)
}

/// A copy of the target where there was none.
fn stand_in(id: PgId, source: &Pg, old: &OsdMap, new: &OsdMap) -> Option<Pg> {
    let mut walk = Walk { mapping: Mapping::of(new, id)?, first: new.epoch, cut: false, ..source.walk.clone() };
    walk.past.push(source.walk.closed(old));
    let mut pg = Pg::new(id, walk);
    pg.last_epoch_started = source.last_epoch_started;
    pg.history = source.history;
    Some(pg)
}

/// True if nothing of either PG is lacking in what this OSD has of them.
fn is_whole(meta: &MergeMeta, epoch: Epoch, source: &Pg, target: &Pg) -> bool {
    let complete = |pg: &Pg| !matches!(pg.stage, Stage::Removing) && pg.is_complete() && pg.missing.is_empty();
    let ends = (source.log.head(), target.log.head()) == (meta.source_version, meta.target_version);
    meta.source_pgid == source.id && meta.ready_epoch == epoch && ends && complete(source) && complete(target)
}

impl Pg {
    /// Sources that were made anew after the merge, by a map from before it: a crash may keep the merge and not its map. There is nothing
    /// in them that is not in this copy.
    fn absorb(&mut self, cx: &mut Cx<'_>, sources: Vec<Pg>) {
        let mut txn = self.transaction();
        for mut source in sources {
            tracing::debug!(osd = %cx.sh.whoami, pg = %self.id, source = %source.id, "merged before");
            if !matches!(source.stage, Stage::Removing) {
                source.walk.primary_since = Epoch(u32::MAX);
                source.drop_interval_state(cx);
            }
            if source.exists_on_disk {
                txn.merge_coll(source.coll);
            }
        }
        cx.submit(txn);
    }

    /// What is known of a PG that becomes part of this one.
    fn take_over(&mut self, source: &Pg) {
        let t = &mut self.totals;
        let from = &source.totals;
        *t = PgTotals { objects: t.objects + from.objects, bytes: t.bytes + from.bytes, clones: t.clones + from.clones };
        // Rows that say which clones a snapshot shows went with the collection.
        self.trims.unindexed |= source.trims.unindexed || from.objects > 0;
        self.last_user_version = self.last_user_version.max(source.last_user_version);
        self.last_epoch_started = self.last_epoch_started.max(source.last_epoch_started);
        let (h, theirs) = (&mut self.history, &source.history);
        h.last_epoch_started = h.last_epoch_started.max(theirs.last_epoch_started);
        h.last_epoch_clean = h.last_epoch_clean.max(theirs.last_epoch_clean);
        h.approximate |= theirs.approximate;
        h.began_anew = h.began_anew.max(theirs.began_anew);
        h.scrubs = both_scrubbed(&h.scrubs, &theirs.scrubs);
        let new: Vec<Interval> = source.walk.past.iter().filter(|i| !self.walk.past.contains(i)).cloned().collect();
        self.walk.past.extend(new);
        self.walk.past.sort_by_key(|i| i.first);
    }
}

/// As scrubbed as the one that was less.
fn both_scrubbed(a: &ScrubHistory, b: &ScrubHistory) -> ScrubHistory {
    let errors = a.errors() + b.errors() > 0;
    let older = |a: Utime, b: Utime| match errors {
        // Which of them are still there the next scrub finds out, soon.
        true => Utime { sec: 1, nsec: 0 },
        false if a.is_zero() => b,
        false if b.is_zero() => a,
        false => a.min(b),
    };
    ScrubHistory {
        count: a.count.max(b.count) + 1,
        last_scrub_stamp: older(a.last_scrub_stamp, b.last_scrub_stamp),
        last_deep_scrub_stamp: older(a.last_deep_scrub_stamp, b.last_deep_scrub_stamp),
        last_clean_scrub_stamp: a.last_clean_scrub_stamp.min(b.last_clean_scrub_stamp),
        shallow_errors: a.shallow_errors.saturating_add(b.shallow_errors),
        deep_errors: a.deep_errors.saturating_add(b.deep_errors),
        ..*a
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::pg::{LogOp, PgLogEntry};
    use types::{EntityInst, EntityKind, ReqId};

    fn ev(epoch: u32, version: u64) -> EVersion {
        EVersion { epoch: Epoch(epoch), version }
    }

    fn reqid(client: i64, tid: u64) -> ReqId {
        ReqId { name: EntityInst { kind: EntityKind::CLIENT, num: client }, tid, inc: 0 }
    }

    fn log(client: i64, versions: std::ops::RangeInclusive<u64>, kept: u64) -> PgLog {
        let mut log = PgLog::default();
        for version in versions.clone() {
            log.push(PgLogEntry {
                op: LogOp::Modify,
                object: HObject { name: format!("o{version}").into(), ..HObject::min() },
                version: ev(3, version),
                prior_version: EVersion::default(),
                user_version: version,
                reqid: reqid(client, version),
                mtime: Utime::ZERO,
                result: 0,
                op_returns: vec![],
            });
        }
        log.trim_to(ev(3, versions.end() - kept), u64::MAX);
        log
    }

    #[test]
    fn the_log_begins_behind_everything_in_either() {
        for (source, target) in [(ev(0, 0), ev(0, 0)), (ev(9, 3), ev(4, 80)), (ev(4, 1 << 40), ev(9, 1))] {
            let base = base(Epoch(10), source, target);
            assert!(base > source && base > target && base.version > source.version.max(target.version));
            assert!(base.version <= source.version.max(target.version) + REACH + 2, "numbers last");
        }
    }

    #[test]
    fn every_request_of_both_is_known_with_what_it_was_answered_and_no_number_is_given_twice() {
        for (a, b) in [(1..=40, 1..=40), (1..=5, 1..=90), (30..=31, 1..=1), (5_000_000..=5_000_040, 1..=7)] {
            let (source, target) = (log(1, a.clone(), 1), log(2, b.clone(), 1));
            let base = base(Epoch(10), source.head(), target.head());
            let all = requests(base, &source, &target);
            assert_eq!(all.len() as u64, a.end() - a.start() + b.end() - b.start() + 2);
            let mut merged = PgLog::default();
            merged.reset(base);
            all.into_iter().for_each(|d| merged.dups.push(d));
            for (client, range) in [(1, a), (2, b)] {
                for tid in range {
                    assert_eq!(merged.find(&reqid(client, tid)).unwrap().user_version, tid);
                }
            }
            assert_eq!(merged.dups.before(u64::MAX).last().unwrap().version.version, base.version);
        }
    }

    #[test]
    fn a_copy_that_knows_less_gives_its_requests_the_same_numbers() {
        let target = log(2, 1..=9, 9);
        let (more, less) = (log(1, 1..=40, 20), log(1, 21..=40, 20));
        let base = base(Epoch(10), more.head(), target.head());
        let (more, less) = (requests(base, &more, &target), requests(base, &less, &target));
        assert!(less.len() < more.len() && less.iter().all(|d| more.contains(d)));
    }
}
