//! Exceptions from CRUSH's choice that make no sense any more go: their PG is gone or about to be merged, an OSD has left the rule's tree or
//! is weighted out, the rule does not allow the set, or CRUSH says the same by itself.
//!
//! Upstream: OSDMap::check_pg_upmaps, clean_pg_upmaps in src/osd/OSDMap.cc.

use crush::RuleFit;
use std::collections::{BTreeMap, BTreeSet};
use types::map::{OsdMap, OsdMapIncremental, PgPool};
use types::{OsdId, PgId};

/// True if a step may make an exception senseless, or brings one.
pub fn may_matter(step: &OsdMapIncremental) -> bool {
    let new = !step.new_pg_upmap.is_empty() || !step.new_pg_upmap_items.is_empty() || !step.new_pg_upmap_primary.is_empty();
    new || step.crush.is_some() || !step.new_pools.is_empty() || !step.old_pools.is_empty() || !step.new_weight.is_empty() || !step.new_state.is_empty()
}

/// Adds to `step`, which leads from `map` to `next`, what takes senseless exceptions away. True if there were any.
pub fn clean(map: &OsdMap, next: &OsdMap, step: &mut OsdMapIncremental) -> bool {
    let pgs: BTreeSet<PgId> = next.pg_upmap.keys().chain(next.pg_upmap_items.keys()).copied().collect();
    let mut rules: BTreeMap<u8, Rule> = BTreeMap::new();
    let mut any = false;
    for pg in pgs {
        match verdict(next, pg, &mut rules) {
            Verdict::Keep => continue,
            Verdict::Drop => drop_of(map, pg, step),
            Verdict::Only(items) => drop(step.new_pg_upmap_items.insert(pg, items)),
        }
        any = true;
    }
    for (pg, osd) in &next.pg_upmap_primaries {
        let there = next.pools.get(&pg.pool).is_some_and(|pool| pg.seed < pool.pg_num_pending && next.pg_to_raw_upmap(pool, *pg).contains(osd));
        if !there {
            any = true;
            step.new_pg_upmap_primary.remove(pg);
            if map.pg_upmap_primaries.contains_key(pg) {
                step.old_pg_upmap_primary.insert(*pg);
            }
        }
    }
    any
}

enum Verdict {
    Keep,
    Drop,
    /// Of the substitutions only these do something.
    Only(Vec<(OsdId, OsdId)>),
}

/// What a pool's rule asks, and which of its OSDs take data.
struct Rule {
    fit: RuleFit,
    weighted: BTreeSet<i32>,
}

impl Rule {
    fn of(map: &OsdMap, rule: u8) -> Rule {
        let shares = map.crush.rule_shares(rule.into());
        let weighted = shares.into_iter().filter(|(osd, share)| *share > 0.0 && map.weight(OsdId(*osd)) > 0).map(|(osd, _)| osd).collect();
        Rule { fit: map.crush.rule_fit(rule.into()).unwrap_or_default(), weighted }
    }
}

fn verdict(map: &OsdMap, pg: PgId, rules: &mut BTreeMap<u8, Rule>) -> Verdict {
    let Some(pool) = map.pools.get(&pg.pool).filter(|pool| pg.seed < pool.pg_num_pending && !is_merging(pool, pg)) else { return Verdict::Drop };
    let rule = rules.entry(pool.crush_rule).or_insert_with(|| Rule::of(map, pool.crush_rule));
    let (raw, placed) = (map.pg_to_raw(pool, pg), map.pg_to_raw_upmap(pool, pg));
    let ids: Vec<i32> = placed.iter().map(|osd| osd.0).collect();
    let present = || ids.iter().filter(|id| **id != OsdId::HOLE.0);
    if !rule.fit.allows(&ids, pool.size.into()) || !present().all(|id| rule.weighted.contains(id)) {
        return Verdict::Drop;
    }
    if map.pg_upmap.get(&pg) == Some(&raw) {
        return Verdict::Drop;
    }
    let Some(items) = map.pg_upmap_items.get(&pg) else { return Verdict::Keep };
    let base = map.pg_upmap.get(&pg).unwrap_or(&raw);
    let out = |osd: &OsdId| *osd != OsdId::HOLE && (0..map.max_osd).contains(&osd.0) && map.weight(*osd) == 0;
    let useful: Vec<_> = items.iter().filter(|(from, to)| base.contains(from) && !out(to)).copied().collect();
    match useful.len() {
        0 => Verdict::Drop,
        n if n < items.len() => Verdict::Only(useful),
        _ => Verdict::Keep,
    }
}

fn is_merging(pool: &PgPool, pg: PgId) -> bool {
    pool.merging().is_some_and(|(source, target)| pg.seed == source || pg.seed == target)
}

fn drop_of(map: &OsdMap, pg: PgId, step: &mut OsdMapIncremental) {
    step.new_pg_upmap.remove(&pg);
    step.new_pg_upmap_items.remove(&pg);
    if map.pg_upmap.contains_key(&pg) {
        step.old_pg_upmap.insert(pg);
    }
    if map.pg_upmap_items.contains_key(&pg) {
        step.old_pg_upmap_items.insert(pg);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use types::{Epoch, PoolId, Utime};

    /// Three hosts of two OSDs, a pool of three copies.
    fn map() -> OsdMap {
        let mut map = OsdMap::new(Default::default(), Utime::ZERO);
        map.epoch = Epoch(1);
        map.set_max_osd(6);
        let names = ["a", "a", "b", "b", "c", "c"];
        let osds: Vec<(i32, &str, u32)> = (0..6).map(|osd| (osd, names[osd as usize], 0x10000)).collect();
        map.crush = Arc::new(crush::CrushMap::build_default(&osds, "host").unwrap());
        for osd in 0..6 {
            map.osd_state[osd] = OsdMap::STATE_EXISTS | OsdMap::STATE_UP;
            map.osd_weight[osd] = OsdMap::WEIGHT_IN;
        }
        map.pools.insert(PoolId(1), PgPool::replicated(3, 8, 0));
        map
    }

    const PG: PgId = PgId { pool: PoolId(1), seed: 3 };

    fn sibling(osd: OsdId) -> OsdId {
        OsdId(osd.0 ^ 1)
    }

    /// The map after a step, and the step as it was cleaned.
    fn step(map: &OsdMap, change: impl FnOnce(&mut OsdMapIncremental)) -> (OsdMap, OsdMapIncremental) {
        let mut inc = OsdMapIncremental::new(map.fsid, map.epoch.next(), Utime::ZERO);
        change(&mut inc);
        assert!(may_matter(&inc));
        let apply = |inc: &OsdMapIncremental| {
            let mut next = map.clone();
            next.apply_unchecked(inc).unwrap();
            next
        };
        let next = apply(&inc);
        if clean(map, &next, &mut inc) {
            assert!(!clean(map, &apply(&inc), &mut inc.clone()), "one look is enough");
        }
        (apply(&inc), inc)
    }

    #[test]
    fn what_the_rule_allows_stays_until_an_osd_goes_and_the_rest_never_comes() {
        let map = map();
        let first = map.pg_to_up_acting(PG).up[0];
        let good = vec![(first, sibling(first))];
        let (next, _) = step(&map, |inc| drop(inc.new_pg_upmap_items.insert(PG, good.clone())));
        assert_eq!(next.pg_upmap_items.get(&PG), Some(&good));
        let second = map.pg_to_up_acting(PG).up[1];
        let (bad, inc) = step(&map, |inc| drop(inc.new_pg_upmap_items.insert(PG, vec![(first, sibling(second))])));
        assert!(bad.pg_upmap_items.is_empty() && inc.new_pg_upmap_items.is_empty(), "two on one host");
        let (out, _) = step(&next, |inc| { inc.new_weight.insert(sibling(first), 0); });
        assert!(out.pg_upmap_items.is_empty());
        let (same, _) = step(&next, |inc| { inc.new_weight.insert(second, 0x8000); });
        assert_eq!(same.pg_upmap_items.len(), 1);
    }

    #[test]
    fn a_crush_change_takes_what_breaks_the_rule() {
        let map = map();
        let first = map.pg_to_up_acting(PG).up[0];
        let (next, _) = step(&map, |inc| drop(inc.new_pg_upmap_items.insert(PG, vec![(first, sibling(first))])));
        let mut crush = crush::CrushMap::clone(&next.crush);
        let elsewhere = crush::parse_location(["root=default", "host=d"]).unwrap();
        crush.create_or_move_item(sibling(first).0, 0x10000, &format!("osd.{}", sibling(first)), &elsewhere).unwrap();
        crush.reweight_item(sibling(first).0, 0, true).unwrap();
        let (gone, _) = step(&next, |inc| inc.crush = Some(denc::to_bytes(&crush, types::features::SUPPORTED)));
        assert!(gone.pg_upmap_items.is_empty(), "weighted out");
    }

    #[test]
    fn what_crush_says_by_itself_and_what_does_nothing_goes() {
        let map = map();
        let up = map.pg_to_up_acting(PG).up;
        let (next, _) = step(&map, |inc| drop(inc.new_pg_upmap.insert(PG, up.clone())));
        assert!(next.pg_upmap.is_empty());
        let (next, _) = step(&map, |inc| drop(inc.new_pg_upmap_items.insert(PG, vec![(up[0], sibling(up[0])), (sibling(up[1]), up[1])])));
        assert_eq!(next.pg_upmap_items.get(&PG), Some(&vec![(up[0], sibling(up[0]))]));
        let (next, _) = step(&next, |inc| drop(inc.new_pools.insert(PoolId(1), PgPool { pg_num_pending: 3, ..PgPool::replicated(3, 8, 0) })));
        assert!(next.pg_upmap_items.is_empty(), "it is about to be merged");
    }

    #[test]
    fn a_primary_that_is_not_in_the_set_goes() {
        let map = map();
        let up = map.pg_to_up_acting(PG).up;
        let (next, _) = step(&map, |inc| { inc.new_pg_upmap_primary.insert(PG, up[2]); });
        assert_eq!(next.pg_to_up_acting(PG).up_primary, up[2]);
        let (gone, _) = step(&next, |inc| { inc.new_weight.insert(up[2], 0); });
        assert!(gone.pg_upmap_primaries.is_empty());
    }
}
