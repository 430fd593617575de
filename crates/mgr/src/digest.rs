//! The digest: what monitors need to know of PGs and usage.

use crate::core::Mgr;
use crate::health;
use std::collections::BTreeMap;
use types::map::{OsdMap, PgPool, PoolType};
use types::msg::internal::MgrDigest;
use types::pg::{ObjectStatSum, PgState, PoolDigest, StoreStatfs};
use types::{Now, OsdId, PoolId};

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
