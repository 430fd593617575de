//! All PGs and OSDs as they were last reported.
//!
//! Owns: `PgMap`.   Hears: maps and reports.
//! Holds: exactly the PGs of the newest map are listed; a report older than the one at hand changes nothing.
//! Upstream: src/mon/PGMap.{h,cc} (PGMap, PGMapUpdater).

use crate::parents::Parents;
use std::collections::{BTreeMap, BTreeSet};
use types::map::OsdMap;
use types::msg::internal::{ConfigInForce, MgrStats, PerfValue, SlowOps};
use types::pg::{ObjectStatSum, OsdStat, PgState, PgStat, PoolStat, StoreStatfs};
use types::{Epoch, Mono, Now, OsdId, PgId, PoolId, Utime};

/// What one OSD said last.
#[derive(Debug, Clone)]
pub struct OsdReport {
    pub at: Mono,
    pub stat: OsdStat,
    pub pools: BTreeMap<PoolId, StoreStatfs>,
    pub perf: BTreeMap<String, PerfValue>,
    /// The counters before, and when: for rates.
    pub perf_before: Option<(Mono, BTreeMap<String, PerfValue>)>,
    pub slow_ops: SlowOps,
    pub config: BTreeMap<String, ConfigInForce>,
}

impl OsdReport {
    /// How much counters grew per second, summed; 0 until there are two reports.
    pub fn rate(&self, counters: &[&str]) -> u64 {
        let Some((at, before)) = &self.perf_before else { return 0 };
        let sum = |perf: &BTreeMap<String, PerfValue>| -> u64 {
            let value = |name: &&str| match perf.get(*name) {
                Some(PerfValue::Int(n)) => *n,
                Some(PerfValue::Avg { count, .. }) => *count,
                None => 0,
            };
            counters.iter().map(value).sum()
        };
        let span = (self.at - *at).as_secs_f64();
        if span > 0.0 { (sum(&self.perf).saturating_sub(sum(before)) as f64 / span) as u64 } else { 0 }
    }
}

/// All PGs and OSDs as they were last reported.
#[derive(Debug, Clone, Default)]
pub struct PgMap {
    /// Counts changes.
    pub version: u64,
    pub stamp: Utime,
    pub epoch: Epoch,
    /// The first map we saw: PGs that came later are new.
    pub first_epoch: Epoch,
    pub pgs: BTreeMap<PgId, PgStat>,
    pub osds: BTreeMap<OsdId, OsdReport>,
    pub(crate) parents: Parents,
}

impl PgMap {
    /// Takes a new map: PGs come and go with their pools, and those whose primary is down are stale.
    pub fn handle_osdmap(&mut self, now: Now, map: &OsdMap) {
        self.epoch = map.epoch;
        if self.first_epoch.0 == 0 {
            self.first_epoch = map.epoch;
        }
        let wanted: BTreeSet<PgId> = map.pools.keys().flat_map(|pool| map.pgs(*pool)).collect();
        self.pgs.retain(|pg, _| wanted.contains(pg));
        for pg in wanted {
            self.pgs.entry(pg).or_insert_with(|| unknown_pg(map, pg));
        }
        self.osds.retain(|osd, _| map.exists(*osd));
        self.parents.retain(|osd| map.exists(osd));
        for stat in self.pgs.values_mut().filter(|s| s.state != PgState::UNKNOWN) {
            let stale = !map.is_up(stat.acting_primary);
            if stale && !stat.state.has(PgState::STALE) {
                stat.state |= PgState::STALE;
                stat.last_change = now.wall;
            }
        }
        self.touch(now);
    }

    /// Takes a report of an OSD.
    pub fn handle_stats(&mut self, now: Now, map: &OsdMap, stats: MgrStats) {
        if !map.exists(stats.osd) {
            return;
        }
        for (pg, stat) in stats.pgs {
            self.take_pg(map, pg, stat);
        }
        self.parents.take(now.mono, stats.osd, stats.device);
        let before = self.osds.remove(&stats.osd);
        let perf_before = before.as_ref().map(|b| (b.at, b.perf.clone()));
        let config = stats.config.or(before.map(|b| b.config)).unwrap_or_default();
        let report = OsdReport {
            at: now.mono,
            stat: stats.stat,
            pools: stats.pools,
            perf: stats.perf,
            perf_before,
            slow_ops: stats.slow_ops,
            config,
        };
        self.osds.insert(stats.osd, report);
        self.touch(now);
    }

    /// PGs that hold data of an OSD, by the acting sets.
    pub fn pgs_of_osd(&self, osd: OsdId) -> impl Iterator<Item = (&PgId, &PgStat)> {
        self.pgs.iter().filter(move |(_, s)| s.acting.contains(&osd) || s.up.contains(&osd))
    }

    /// How many PGs hold data of each OSD, or are to do so.
    pub fn by_osd(&self) -> BTreeMap<OsdId, u32> {
        let mut out = BTreeMap::new();
        for stat in self.pgs.values() {
            let osds: BTreeSet<OsdId> = stat.acting.iter().chain(&stat.up).copied().filter(|o| o.0 != crush::ITEM_NONE).collect();
            osds.into_iter().for_each(|osd| *out.entry(osd).or_default() += 1);
        }
        out
    }

    /// How many PGs an OSD holds.
    pub fn num_pgs_of(&self, osd: OsdId) -> usize {
        self.pgs.values().filter(|s| s.acting.contains(&osd)).count()
    }

    /// How many PGs an OSD is primary of.
    pub fn num_primary_pgs_of(&self, osd: OsdId) -> usize {
        self.pgs.values().filter(|s| s.acting_primary == osd).count()
    }

    /// True for a PG made since we follow the map that was never active: it is being made, nobody can miss it.
    pub fn is_new(&self, stat: &PgStat) -> bool {
        stat.last_active.is_zero() && stat.created > self.first_epoch
    }

    /// PGs by state.
    pub fn by_state(&self) -> BTreeMap<PgState, u32> {
        let mut out = BTreeMap::new();
        self.pgs.values().for_each(|s| *out.entry(s.state).or_default() += 1);
        out
    }

    /// The figures of a pool: its PGs', and what stores hold of it.
    pub fn pool(&self, pool: PoolId) -> PoolStat {
        let mut out = PoolStat::default();
        for stat in self.pgs.range(pgs_of(pool)).map(|(_, s)| s) {
            out.stats.sum.add(&stat.stats.sum);
            out.log_size += stat.log_size;
            out.ondisk_log_size += stat.ondisk_log_size;
            out.up += stat.up.len() as i32;
            out.acting += stat.acting.len() as i32;
        }
        for held in self.osds.values().filter_map(|o| o.pools.get(&pool)) {
            out.store.add(held);
            out.num_store_stats += 1;
        }
        out
    }

    /// PGs of a pool.
    pub fn pgs_of_pool(&self, pool: PoolId) -> impl Iterator<Item = (&PgId, &PgStat)> {
        self.pgs.range(pgs_of(pool))
    }

    /// The figures of all PGs together; stores' bytes are not among them, as upstream has it.
    pub fn sum(&self) -> PoolStat {
        let mut out = PoolStat::default();
        for stat in self.pgs.values() {
            out.stats.sum.add(&stat.stats.sum);
            out.log_size += stat.log_size;
            out.ondisk_log_size += stat.ondisk_log_size;
            out.up += stat.up.len() as i32;
            out.acting += stat.acting.len() as i32;
        }
        out
    }

    /// Counts of objects of all PGs together.
    pub fn object_sum(&self) -> ObjectStatSum {
        self.sum().stats.sum
    }

    /// An OSD's figures; those of one that is out do not count, as upstream has it.
    pub fn counted<'a>(&'a self, map: &'a OsdMap) -> impl Iterator<Item = (OsdId, &'a OsdReport)> {
        self.osds.iter().filter(|(osd, _)| map.is_in(**osd)).map(|(osd, report)| (*osd, report))
    }

    /// All OSDs' figures together.
    pub fn osd_sum(&self, map: &OsdMap) -> OsdStat {
        let mut out = OsdStat::default();
        for (_, report) in self.counted(map) {
            out.statfs.add(&report.stat.statfs);
            out.perf.commit_latency_ns += report.stat.perf.commit_latency_ns;
            out.perf.apply_latency_ns += report.stat.perf.apply_latency_ns;
            out.num_shards_repaired += report.stat.num_shards_repaired;
            out.num_pgs += report.stat.num_pgs;
            out.num_osds += 1;
            out.num_per_pool_osds += 1;
            out.num_per_pool_omap_osds += 1;
        }
        out
    }

    fn take_pg(&mut self, map: &OsdMap, pg: PgId, stat: PgStat) {
        let Some(known) = self.pgs.get_mut(&pg) else { return };
        let newer = (stat.reported_epoch, stat.reported_seq) > (known.reported_epoch, known.reported_seq);
        // A report of a primary that the map says is gone would make a stale PG look alive.
        if newer && map.is_up(stat.acting_primary) {
            let before = std::mem::replace(known, stat);
            remember(known, &before);
        }
    }

    fn touch(&mut self, now: Now) {
        self.version += 1;
        self.stamp = now.wall;
    }
}

/// A new primary knows only what it saw itself: when the PG was last well is kept from the one before.
fn remember(stat: &mut PgStat, before: &PgStat) {
    let moments = [
        (&mut stat.last_active, before.last_active),
        (&mut stat.last_clean, before.last_clean),
        (&mut stat.last_peered, before.last_peered),
        (&mut stat.last_fullsized, before.last_fullsized),
        (&mut stat.last_undegraded, before.last_undegraded),
        (&mut stat.last_unstale, before.last_unstale),
    ];
    for (moment, earlier) in moments {
        *moment = (*moment).max(earlier);
    }
}

fn pgs_of(pool: PoolId) -> std::ops::RangeInclusive<PgId> {
    PgId { pool, seed: 0 }..=PgId { pool, seed: u32::MAX }
}

/// A PG that nobody has reported, with the sets the map gives it.
fn unknown_pg(map: &OsdMap, pg: PgId) -> PgStat {
    let sets = map.pg_to_up_acting(pg);
    PgStat {
        state: PgState::UNKNOWN,
        created: map.epoch,
        last_epoch_clean: map.epoch,
        up: sets.up,
        up_primary: sets.up_primary,
        acting: sets.acting,
        acting_primary: sets.acting_primary,
        last_change: map.modified,
        ..PgStat::default()
    }
}
