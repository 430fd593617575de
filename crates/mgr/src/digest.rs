//! The digest: what monitors need to know of PGs and usage.

use crate::core::Mgr;
use crate::health;
use crate::pgmap::PgMap;
use std::collections::BTreeMap;
use types::map::{OsdMap, PgPool, PoolType, SnapIntervals};
use types::msg::internal::MgrDigest;
use types::pg::{ObjectStatSum, PgState, PoolDigest, StoreStatfs};
use types::{Epoch, Now, OsdId, PoolId};

impl Mgr {
    /// The digest of this moment.
    pub fn digest(&self, now: Now) -> MgrDigest {
        let (map, pgs) = (self.osdmap(), self.pgs());
        MgrDigest {
            epoch: map.epoch,
            stamp: now.wall,
            pgs_by_state: pgs.by_state().into_iter().map(|(state, n)| (state.0, n)).collect(),
            pools: map.pools.iter().map(|(id, pool)| (*id, self.pool_digest(*id, pool))).collect(),
            osds: pgs.osds.iter().map(|(osd, report)| (*osd, report.stat.clone())).collect(),
            classes: self.usage_by_class(),
            total: pgs.osd_sum(map).statfs,
            io: self.rates().total(),
            health: health::checks(now, self.settings(), map, pgs).reports(),
            progress: self.progress.reports(now.mono),
            services: self.services().daemons.iter().map(|(service, daemons)| {
                (service.clone(), daemons.iter().map(|(name, d)| (name.clone(), d.metadata.clone())).collect())
            }).collect(),
            pgs_by_osd: Some(pgs.by_osd()),
            purged_snaps: map.removed_snaps_queue.keys().map(|id| (*id, purged_snaps(map, pgs, *id))).filter(|(_, snaps)| !snaps.is_empty()).collect(),
        }
    }

    fn pool_digest(&self, id: PoolId, pool: &PgPool) -> PoolDigest {
        let mut unclean = ObjectStatSum::default();
        let known = self.pgs().pgs_of_pool(id).filter(|(_, s)| s.state != PgState::UNKNOWN);
        let num_pgs = known.inspect(|(_, s)| if !s.state.has(PgState::CLEAN) { unclean.add(&s.stats.sum) }).count();
        let rate = raw_used_rate(self.osdmap(), pool);
        PoolDigest {
            stat: self.pgs().pool(id),
            num_pgs: num_pgs as u32,
            io: self.rates().pool(id),
            unclean,
            max_avail: (self.rule_avail(pool.crush_rule.into()) as f64 / rate) as u64,
            raw_used_rate: rate,
        }
    }

    /// Raw bytes that could still be written through a rule before its fullest OSD is full.
    pub(crate) fn rule_avail(&self, rule: u32) -> u64 {
        let map = self.osdmap();
        let shares = map.crush.rule_shares(rule);
        let avail = shares.iter().filter(|(_, share)| **share > 0.0).filter_map(|(osd, share)| {
            let stat = &self.pgs().osds.get(&OsdId(*osd))?.stat.statfs;
            let kept_back = (stat.total >> 10) as f64 * (1.0 - f64::from(map.full_ratio));
            let free = ((stat.available >> 10) as f64 - kept_back).max(0.0) * 1024.0;
            (stat.total > 0).then_some((free / f64::from(*share)) as u64)
        });
        avail.min().unwrap_or(0)
    }

    fn usage_by_class(&self) -> BTreeMap<String, StoreStatfs> {
        let mut out: BTreeMap<String, StoreStatfs> = BTreeMap::new();
        for (osd, report) in self.pgs().counted(self.osdmap()) {
            let class = self.osdmap().crush.item_class(osd.0).unwrap_or_default();
            out.entry(class.to_string()).or_default().add(&report.stat.statfs);
        }
        out
    }
}

/// Removed snapshots that every PG of a pool has trimmed. What a PG said before the last merge does not count: another one may have
/// become part of it since.
fn purged_snaps(map: &OsdMap, pgs: &PgMap, id: PoolId) -> SnapIntervals {
    let merged = map.pools.get(&id).map_or(Epoch(0), |pool| pool.last_pg_merge_meta.ready_epoch);
    let mut purged = map.removed_snaps_queue.get(&id).cloned().unwrap_or_default();
    for (_, stat) in pgs.pgs_of_pool(id) {
        let knows = stat.state != PgState::UNKNOWN && stat.reported_epoch >= merged;
        purged = if knows { purged.intersection(&stat.purged_snaps) } else { SnapIntervals::default() };
    }
    purged
}

/// Raw bytes per stored byte: copies, or (k+m)/k.
pub(crate) fn raw_used_rate(map: &OsdMap, pool: &PgPool) -> f64 {
    if pool.pool_type != PoolType::ERASURE {
        return f64::from(pool.size.max(1));
    }
    let profile = map.erasure_code_profiles.get(&pool.erasure_code_profile);
    let number = |name: &str| profile.and_then(|p| p.get(name)).and_then(|s| s.parse::<f64>().ok());
    match (number("k"), number("m")) {
        (Some(k), Some(m)) if k > 0.0 => (k + m) / k,
        _ => f64::from(pool.size.max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PgId;
    use types::pg::PgStat;

    const POOL: PoolId = PoolId(1);

    #[test]
    fn a_snapshot_is_purged_when_every_pg_says_so_and_has_said_so_since_the_last_merge() {
        let runs = |of: &[(u64, u64)]| SnapIntervals(of.iter().copied().collect());
        let mut map = OsdMap::default();
        map.pools.insert(POOL, PgPool::replicated(3, 2, 0));
        map.removed_snaps_queue.insert(POOL, runs(&[(3, 4)]));
        let stat = |epoch, purged: &[(u64, u64)]| PgStat {
            state: PgState::ACTIVE,
            reported_epoch: Epoch(epoch),
            purged_snaps: runs(purged),
            ..PgStat::default()
        };
        let purged = |map: &OsdMap, stats: [PgStat; 2]| {
            let pgs = (0..).zip(stats).map(|(seed, stat)| (PgId { pool: POOL, seed }, stat)).collect();
            purged_snaps(map, &PgMap { pgs, ..PgMap::default() }, POOL)
        };
        assert_eq!(purged(&map, [stat(5, &[(2, 3)]), stat(5, &[(4, 9)])]), runs(&[(4, 1)]));
        assert!(purged(&map, [stat(5, &[(3, 4)]), PgStat::default()]).is_empty(), "of one nothing is known");
        if let Some(pool) = map.pools.get_mut(&POOL) {
            pool.last_pg_merge_meta.ready_epoch = Epoch(6);
        }
        assert!(purged(&map, [stat(5, &[(3, 4)]), stat(7, &[(3, 4)])]).is_empty(), "one has not heard of the merge");
    }
}
