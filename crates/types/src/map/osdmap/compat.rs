//! What a client must understand to use the map.
//!
//! Upstream: OSDMap::get_features, OSDMap::get_min_compat_client.

use super::OsdMap;
use super::mapping::find_rule;
use crate::features::{
    CEPHX_V2, CRUSH_CHOOSE_ARGS, CRUSH_TUNABLES, CRUSH_TUNABLES2, CRUSH_TUNABLES3, CRUSH_TUNABLES5, CRUSH_V2, CRUSH_V4,
    OSD_CACHEPOOL, OSD_PRIMARY_AFFINITY, OSDHASHPSPOOL, OSDMAP_PG_UPMAP, REEF_CLIENT,
};
use crate::map::{PgPool, Release};
use crush::{Alg, CrushMap, Op};

impl OsdMap {
    /// Feature bits that clients of this map need.
    pub fn client_features(&self) -> u64 {
        let mut f = crush_features(&self.crush);
        let mut need = |bits: u64, when: bool| f |= if when { bits } else { 0 };
        need(OSDMAP_PG_UPMAP, !self.pg_upmap.is_empty() || !self.pg_upmap_items.is_empty());
        // An older client would send to another primary.
        need(REEF_CLIENT, !self.pg_upmap_primaries.is_empty());
        for pool in self.pools.values() {
            need(OSDHASHPSPOOL, pool.has_flag(PgPool::FLAG_HASHPSPOOL));
            need(OSD_CACHEPOOL, !pool.tiers.is_empty() || pool.tier_of.0 >= 0);
            let Some(rule) = find_rule(&self.crush, pool).and_then(|number| self.crush.rule(number)) else { continue };
            for op in rule.steps.iter().filter_map(|step| step.op()) {
                match op {
                    Op::ChooseIndep | Op::ChooseleafIndep | Op::SetChooseTries | Op::SetChooseleafTries => {
                        need(CRUSH_V2, true);
                    }
                    Op::SetChooseleafVaryR => need(CRUSH_TUNABLES3, true),
                    Op::SetChooseleafStable => need(CRUSH_TUNABLES5, true),
                    _ => {}
                }
            }
        }
        need(OSD_PRIMARY_AFFINITY, self.osd_primary_affinity.iter().any(|a| *a != Self::AFFINITY_DEFAULT));
        need(CEPHX_V2, self.require_min_compat_client >= Release::NAUTILUS);
        f
    }

    /// The oldest release whose clients understand the map.
    pub fn min_compat_client(&self) -> Release {
        let f = self.client_features();
        let has = |bits: u64| f & bits == bits;
        match () {
            () if has(REEF_CLIENT) => Release::REEF,
            () if has(OSDMAP_PG_UPMAP) || has(CRUSH_CHOOSE_ARGS) => Release::LUMINOUS,
            () if has(CRUSH_TUNABLES5) => Release::JEWEL,
            () if has(CRUSH_V4) => Release::HAMMER,
            () if has(OSD_PRIMARY_AFFINITY) || has(CRUSH_TUNABLES3) || has(OSD_CACHEPOOL) => Release::FIREFLY,
            () if has(CRUSH_TUNABLES2) || has(OSDHASHPSPOOL) => Release(4),
            () => Release(1),
        }
    }
}

fn crush_features(crush: &CrushMap) -> u64 {
    let t = &crush.tunables;
    let legacy = (t.choose_local_tries, t.choose_local_fallback_tries, t.choose_total_tries) == (2, 5, 19);
    let needs = [
        (CRUSH_TUNABLES, !legacy),
        (CRUSH_TUNABLES2, t.chooseleaf_descend_once != 0),
        (CRUSH_TUNABLES3, t.chooseleaf_vary_r != 0),
        (CRUSH_TUNABLES5, t.chooseleaf_stable != 0),
        (CRUSH_V4, crush.iter_buckets().any(|b| matches!(b.alg, Alg::Straw2 { .. }))),
        (CRUSH_CHOOSE_ARGS, has_own_weight_sets(crush)),
    ];
    needs.into_iter().filter(|(_, when)| *when).fold(0, |f, (bits, _)| f | bits)
}

/// True unless there are no weight sets, or only the compat one with a single position: that one can be written into
/// the buckets for old readers.
fn has_own_weight_sets(crush: &CrushMap) -> bool {
    crush.choose_args.len() > 1
        || crush.choose_args.iter().any(|(pool, args)| {
            let compat = |arg: &crush::ChooseArg| arg.is_empty() || arg.weight_set.len() == 1 && arg.ids.is_empty();
            *pool != crush::COMPAT_WEIGHT_SET || !args.values().all(compat)
        })
}
