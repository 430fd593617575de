//! From an object's name to the OSDs that serve it.
//!
//! Name → hash (object_to_pg) → placement group (`PgPool::raw_pg_to_pg`) → CRUSH → upmaps → up set → acting set.
//! Holds: same answer as stock, bit for bit.

use super::OsdMap;
use crate::map::PgPool;
use crate::{ObjectLocator, OsdId, PgId, PoolId};
use crush::{CrushMap, hash};

/// Who should serve a placement group, and who does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpActing {
    /// CRUSH's answer as it stands; `OsdId::HOLE` marks an empty place of an erasure-coded pool.
    pub up: Vec<OsdId>,
    /// `OsdId::NONE`: nobody.
    pub up_primary: OsdId,
    pub acting: Vec<OsdId>,
    pub acting_primary: OsdId,
}

impl PgPool {
    /// The placement hash of a name or locator key in a namespace.
    pub fn hash_key(&self, key: &[u8], nspace: &[u8]) -> u32 {
        if nspace.is_empty() {
            return hash::str_hash(self.object_hash, key);
        }
        hash::str_hash(self.object_hash, &[nspace, b"\x1f", key].concat())
    }

    /// The placement group that holds what hashes to `pg.seed`.
    pub fn raw_pg_to_pg(&self, pg: PgId) -> PgId {
        PgId { pool: pg.pool, seed: stable_mod(pg.seed, self.pg_num, self.pg_num_mask()) }
    }

    /// CRUSH's input for a placement group.
    pub fn raw_pg_to_pps(&self, pg: PgId) -> u32 {
        let seed = stable_mod(pg.seed, self.pgp_num, self.pgp_num_mask());
        match self.has_flag(Self::FLAG_HASHPSPOOL) {
            true => hash::rjenkins1_2(seed, pg.pool.0 as u32),
            // Pools of old clusters lie on top of each other.
            false => seed.wrapping_add(pg.pool.0 as u32),
        }
    }
}

/// `x` modulo `n` so that few values move when `n` grows (`ceph_stable_mod`); `mask` covers `n - 1`.
pub fn stable_mod(x: u32, n: u32, mask: u32) -> u32 {
    match x & mask {
        low if low < n => low,
        _ => x & (mask >> 1),
    }
}

impl OsdMap {
    /// The raw placement group of an object: its whole hash. `None` if there is no such pool.
    pub fn object_to_pg(&self, loc: &ObjectLocator, name: &[u8]) -> Option<PgId> {
        let pool = self.pools.get(&loc.pool)?;
        let seed = match u32::try_from(loc.hash) {
            Ok(position) => position,
            Err(_) if loc.key.is_empty() => pool.hash_key(name, &loc.nspace),
            Err(_) => pool.hash_key(&loc.key, &loc.nspace),
        };
        Some(PgId { pool: loc.pool, seed })
    }

    /// The placement group that holds what `raw` stands for. `None` if there is no such pool.
    pub fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId> {
        Some(self.pools.get(&raw.pool)?.raw_pg_to_pg(raw))
    }

    /// Up and acting sets. A pool or a placement group that does not exist has nobody.
    pub fn pg_to_up_acting(&self, pg: PgId) -> UpActing {
        let nobody = UpActing { up_primary: OsdId::NONE, acting_primary: OsdId::NONE, ..UpActing::default() };
        let Some(pool) = self.pools.get(&pg.pool).filter(|pool| pg.seed < pool.pg_num) else { return nobody };
        let (up, up_primary) = self.pg_to_up(pool, pg);
        let (mut acting, temp_primary) = self.temp_osds(pool, pg);
        let mut acting_primary = temp_primary.unwrap_or(OsdId::NONE);
        if acting.is_empty() {
            acting.clone_from(&up);
            if acting_primary == OsdId::NONE {
                acting_primary = up_primary;
            }
        }
        UpActing { up, up_primary, acting, acting_primary }
    }

    /// What CRUSH alone says, without OSDs that do not exist.
    pub fn pg_to_raw(&self, pool: &PgPool, pg: PgId) -> Vec<OsdId> {
        let size = usize::from(pool.size);
        let Some(rule) = find_rule(&self.crush, pool) else { return Vec::new() };
        let weights = self.crush.choose_args_for(pg.pool.0);
        let osds = self.crush.do_rule(rule, pool.raw_pg_to_pps(pg), size, &self.osd_weight, weights);
        self.filter(pool, osds.into_iter().map(OsdId), |osd| self.exists(osd))
    }

    /// CRUSH's answer with the operator's and the balancer's substitutions.
    pub fn pg_to_raw_upmap(&self, pool: &PgPool, pg: PgId) -> Vec<OsdId> {
        let mut raw = self.pg_to_raw(pool, pg);
        self.apply_upmap(pool.raw_pg_to_pg(pg), &mut raw);
        raw
    }

    fn pg_to_up(&self, pool: &PgPool, pg: PgId) -> (Vec<OsdId>, OsdId) {
        let raw = self.pg_to_raw_upmap(pool, pg);
        let mut up = self.filter(pool, raw.into_iter(), |osd| self.is_up(osd));
        let first = first_osd(&up).unwrap_or(OsdId::NONE);
        let primary = self.prefer_by_affinity(pool, pool.raw_pg_to_pps(pg), &mut up).unwrap_or(first);
        (up, primary)
    }

    /// Drops OSDs that fail `keep`: the others move up, or a hole stays where positions count.
    fn filter(&self, pool: &PgPool, osds: impl Iterator<Item = OsdId>, keep: impl Fn(OsdId) -> bool) -> Vec<OsdId> {
        match pool.can_shift_osds() {
            true => osds.filter(|osd| keep(*osd)).collect(),
            false => osds.map(|osd| if keep(osd) { osd } else { OsdId::HOLE }).collect(),
        }
    }

    /// True for an OSD of the map that is marked out; holes and unknown numbers are not.
    fn marked_out(&self, osd: OsdId) -> bool {
        (0..self.max_osd).contains(&osd.0) && self.weight(osd) == Self::WEIGHT_OUT
    }

    fn apply_upmap(&self, pg: PgId, raw: &mut Vec<OsdId>) {
        if let Some(set) = self.pg_upmap.get(&pg) {
            if set.iter().any(|osd| self.marked_out(*osd)) {
                return;
            }
            raw.clone_from(set);
        }
        self.substitute(self.pg_upmap_items.get(&pg).map_or(&[], Vec::as_slice), raw);
        let first = self.pg_upmap_primaries.get(&pg).and_then(|osd| raw.iter().position(|o| o == osd));
        if let Some(at) = first {
            raw.swap(0, at);
        }
    }

    /// Carries out the substitutions of a `pg_upmap_items`, one after the other: one that would put an OSD in twice, or one that
    /// is out, is left out.
    pub fn substitute(&self, items: &[(OsdId, OsdId)], raw: &mut [OsdId]) {
        for (from, to) in items {
            if raw.contains(to) || self.marked_out(*to) {
                continue;
            }
            if let Some(slot) = raw.iter_mut().find(|osd| *osd == from) {
                *slot = *to;
            }
        }
    }

    /// The primary that affinities choose, moved to the front where positions do not count. `None` if all OSDs have
    /// the default affinity, or there are none.
    fn prefer_by_affinity(&self, pool: &PgPool, seed: u32, osds: &mut [OsdId]) -> Option<OsdId> {
        let present = |osd: &&OsdId| **osd != OsdId::HOLE;
        osds.iter().filter(present).find(|osd| self.primary_affinity(**osd) != Self::AFFINITY_DEFAULT)?;
        // Each OSD turns down the share of its groups that its affinity says; who said no first is the last resort.
        let accepts = |osd: OsdId| {
            let affinity = self.primary_affinity(osd);
            affinity >= Self::AFFINITY_DEFAULT || hash::rjenkins1_2(seed, osd.0 as u32) >> 16 < affinity
        };
        let at = (osds.iter().position(|osd| *osd != OsdId::HOLE && accepts(*osd)))
            .or_else(|| osds.iter().position(|osd| *osd != OsdId::HOLE))?;
        let primary = osds.get(at).copied()?;
        if pool.can_shift_osds() {
            osds.get_mut(..=at)?.rotate_right(1);
        }
        Some(primary)
    }

    /// The set that the OSDs asked for until backfill is done, and its primary.
    fn temp_osds(&self, pool: &PgPool, pg: PgId) -> (Vec<OsdId>, Option<OsdId>) {
        let pg = pool.raw_pg_to_pg(pg);
        let temp = self.pg_temp.get(&pg).into_iter().flatten().copied();
        let temp = self.filter(pool, temp, |osd| self.is_up(osd));
        let primary = self.primary_temp.get(&pg).copied().or_else(|| first_osd(&temp));
        (temp, primary)
    }

    /// Every placement group of a pool.
    pub fn pgs(&self, pool: PoolId) -> impl Iterator<Item = PgId> + use<> {
        let n = self.pools.get(&pool).map_or(0, |p| p.pg_num);
        (0..n).map(move |seed| PgId { pool, seed })
    }
}

fn first_osd(osds: &[OsdId]) -> Option<OsdId> {
    osds.iter().copied().find(|osd| *osd != OsdId::HOLE)
}

/// The first rule made for the pool's rule number, type and size (`crush_find_rule`).
pub(super) fn find_rule(crush: &CrushMap, pool: &PgPool) -> Option<u32> {
    let fits = |rule: &crush::Rule| {
        rule.ruleset == pool.crush_rule
            && rule.kind == pool.pool_type.0
            && (rule.min_size..=rule.max_size).contains(&pool.size)
    };
    crush.iter_rules().find(|(_, rule)| fits(rule)).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_mod_keeps_most_values_when_a_group_splits() {
        for n in 1..200u32 {
            let mask = |n: u32| if n < 2 { 0 } else { u32::MAX >> (n - 1).leading_zeros() };
            let moved = (0..10_000).filter(|x| stable_mod(*x, n, mask(n)) != stable_mod(*x, n + 1, mask(n + 1)));
            for x in moved {
                assert_eq!(stable_mod(x, n + 1, mask(n + 1)), n, "only the new group gains");
            }
        }
    }

    #[test]
    fn an_upmapped_primary_comes_first_if_it_is_in_the_set() {
        let mut map = OsdMap::default();
        map.set_max_osd(4);
        map.osd_weight = vec![OsdMap::WEIGHT_IN; 4];
        let pg = PgId { pool: PoolId(1), seed: 0 };
        for (primary, expected) in [(2, [2, 1, 0]), (3, [0, 1, 2]), (0, [0, 1, 2])] {
            map.pg_upmap_primaries.insert(pg, OsdId(primary));
            let mut raw = vec![OsdId(0), OsdId(1), OsdId(2)];
            map.apply_upmap(pg, &mut raw);
            assert_eq!(raw, expected.map(OsdId));
        }
    }

    #[test]
    fn keys_and_namespaces_decide_over_names() {
        let mut map = OsdMap::default();
        map.pools.insert(PoolId(1), PgPool::replicated(3, 8, 0));
        let mut loc = ObjectLocator::pool(PoolId(1));
        let plain = map.object_to_pg(&loc, b"foo").unwrap();
        loc.key = "foo".into();
        assert_eq!(map.object_to_pg(&loc, b"bar").unwrap(), plain);
        loc.nspace = "ns".into();
        assert_ne!(map.object_to_pg(&loc, b"bar").unwrap(), plain);
        loc.hash = 77;
        assert_eq!(map.object_to_pg(&loc, b"bar").unwrap().seed, 77);
        assert_eq!(map.object_to_pg(&ObjectLocator::pool(PoolId(2)), b"bar"), None);
    }
}
