//! Where data is to move, those who have it go on acting (`pg_temp`) in the very epoch that moves it. Else the new ones would act, find that they have
//! nothing, and ask for the others: two changes of hands, and clients stand still in both.
//!
//! Upstream: OSDMonitor::prime_pg_temp in src/mon/OSDMonitor.cc (`mon_osd_prime_pg_temp`).

use std::collections::BTreeSet;
use types::map::{OsdMap, OsdMapIncremental, PgPool};
use types::{OsdId, PgId};

/// With more PGs than that none is looked at: it would take the monitor too long.
const PGS_MAX: u32 = 32_768;

/// True if a step may move data while everybody who has it is up.
pub fn may_matter(step: &OsdMapIncremental) -> bool {
    let upmaps = !step.new_pg_upmap.is_empty() || !step.new_pg_upmap_items.is_empty() || !step.old_pg_upmap.is_empty() || !step.old_pg_upmap_items.is_empty();
    upmaps || step.crush.is_some() || !step.new_weight.is_empty() || !step.new_up_client.is_empty() || !step.new_pools.is_empty()
}

/// Adds to `step`, which leads from `map` to `next`, who goes on acting, and returns of which PGs.
pub fn keep_acting(map: &OsdMap, next: &OsdMap, step: &mut OsdMapIncremental) -> BTreeSet<PgId> {
    let mut kept = BTreeSet::new();
    if next.pools.values().map(|pool| pool.pg_num).sum::<u32>() > PGS_MAX {
        return kept;
    }
    for (id, pool) in &next.pools {
        let Some(was) = map.pools.get(id).filter(|was| was.size == pool.size) else { continue };
        for seed in 0..was.pg_num.min(pool.pg_num) {
            let pg = PgId { pool: *id, seed };
            let merges = pool.merging().is_some_and(|(source, target)| seed == source || seed == target);
            if merges || step.new_pg_temp.contains_key(&pg) {
                continue;
            }
            if let Some(acting) = goes_on(map, next, pool, pg) {
                step.new_pg_temp.insert(pg, acting);
                kept.insert(pg);
            }
        }
    }
    kept
}

/// Who acts now, if somebody new would, though they are as many as are wanted, and stay.
fn goes_on(map: &OsdMap, next: &OsdMap, pool: &PgPool, pg: PgId) -> Option<Vec<OsdId>> {
    let (now, then) = (map.pg_to_up_acting(pg).acting, next.pg_to_up_acting(pg).acting);
    // Chunks have places: to change them is to move.
    let moves = if pool.is_erasure() { now != then } else { then.iter().any(|osd| !now.contains(osd)) };
    let stay = now.len() == usize::from(pool.size) && now.iter().all(|osd| next.is_up(*osd));
    (moves && stay).then_some(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use types::{Epoch, PoolId, Utime};

    const PGS: u32 = 32;

    /// Five OSDs, of which the last is out; a pool of three copies.
    fn map() -> OsdMap {
        let mut map = OsdMap::new(Default::default(), Utime::ZERO);
        map.epoch = Epoch(1);
        map.set_max_osd(5);
        let osds: Vec<(i32, &str, u32)> = (0..5).map(|osd| (osd, "a", 0x10000)).collect();
        map.crush = Arc::new(crush::CrushMap::build_default(&osds, "osd").unwrap());
        for osd in 0..5 {
            map.osd_state[osd] = OsdMap::STATE_EXISTS | OsdMap::STATE_UP;
            map.osd_weight[osd] = if osd < 4 { OsdMap::WEIGHT_IN } else { OsdMap::WEIGHT_OUT };
        }
        map.pools.insert(PoolId(1), PgPool::replicated(3, PGS, 0));
        map
    }

    /// The map after a step, and what was kept in it.
    fn step(map: &OsdMap, change: impl FnOnce(&mut OsdMapIncremental)) -> (OsdMap, BTreeSet<PgId>) {
        let mut inc = OsdMapIncremental::new(map.fsid, map.epoch.next(), Utime::ZERO);
        change(&mut inc);
        let mut next = map.clone();
        next.apply_unchecked(&inc).unwrap();
        let kept = keep_acting(map, &next, &mut inc);
        let mut next = map.clone();
        next.apply_unchecked(&inc).unwrap();
        (next, kept)
    }

    fn comes_in(inc: &mut OsdMapIncremental) {
        inc.new_weight.insert(OsdId(4), OsdMap::WEIGHT_IN);
    }

    fn pgs() -> impl Iterator<Item = PgId> {
        (0..PGS).map(|seed| PgId { pool: PoolId(1), seed })
    }

    #[test]
    fn who_has_the_data_goes_on_acting() {
        let map = map();
        let (next, kept) = step(&map, comes_in);
        assert!(kept.len() > 5, "{kept:?}");
        for pg in pgs() {
            let (was, is) = (map.pg_to_up_acting(pg), next.pg_to_up_acting(pg));
            assert_eq!(kept.contains(&pg), is.up.contains(&OsdId(4)), "{pg}");
            if kept.contains(&pg) {
                assert_eq!((is.acting, is.acting_primary), (was.acting, was.acting_primary), "{pg}");
            }
        }
        assert!(step(&next, |_| {}).1.is_empty(), "it is kept once");
    }

    #[test]
    fn an_order_alone_moves_nothing() {
        let map = map();
        let (next, kept) = step(&map, |inc| inc.new_primary_affinity.extend((0..2).map(|osd| (OsdId(osd), 0))));
        assert!(pgs().any(|pg| map.pg_to_up_acting(pg).acting != next.pg_to_up_acting(pg).acting));
        assert!(kept.is_empty(), "{kept:?}");
    }

    #[test]
    fn who_dies_or_is_asked_to_give_its_place_up_does_not_go_on() {
        let map = map();
        let dies = OsdId(0);
        let (next, kept) = step(&map, |inc| {
            comes_in(inc);
            inc.new_state.insert(dies, OsdMap::STATE_UP);
        });
        assert!(!kept.is_empty());
        assert!(pgs().all(|pg| !next.pg_to_up_acting(pg).acting.contains(&dies)));
        // Two of three act: whoever comes is wanted at once.
        let (_, kept) = step(&next, |inc| {
            inc.new_weight.insert(dies, OsdMap::WEIGHT_OUT);
        });
        let short = |pg: &PgId| next.pg_to_up_acting(*pg).acting.len() < 3;
        assert!(pgs().any(|pg| short(&pg)) && !kept.iter().any(short), "{kept:?}");
        let (moved, kept) = step(&map, comes_in);
        let given = *kept.first().unwrap();
        let (next, kept) = step(&moved, |inc| drop(inc.new_pg_temp.insert(given, Vec::new())));
        assert!(kept.is_empty() && next.pg_to_up_acting(given).acting == next.pg_to_up_acting(given).up);
    }
}
