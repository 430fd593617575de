//! Which copies of PGs go where, so that disks are equally full.
//!
//! Copies go, one by one, from an OSD that is fuller than another one to that one, where the rule allows it, the one first that
//! helps most. What is made small is the sum of load squared by capacity: it is least when all are equally full, or, where rules do
//! not allow that (hosts of different sizes), as equally as they can be, and every step makes it smaller, so that nothing goes back and forth.
//! When bytes are in balance, pools are spread by number, for PGs that are empty or busy have no bytes to tell.
//! Upstream: OSDMap::calc_pg_upmaps in src/osd/OSDMap.cc (there by number alone).

use super::model::{Change, Model};
use std::collections::BTreeSet;
use types::{OsdId, PgId};

/// OSDs that differ by no more than this part of their capacity are left alone: moving data costs more than it brings.
pub const MIN_GAP: f64 = 0.01;

/// A PG that moves an OSD by less than this part of the gap is not worth moving for its bytes.
const WORTH: f64 = 1.0 / 200.0;

/// How much may be done at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// `upmap_max_optimizations`: copies.
    pub moves: u64,
    /// `upmap_max_deviation`: by how many PGs of a pool an OSD may be off.
    pub deviation: f64,
    /// Objects that may be misplaced by it; one copy always may.
    pub objects: u64,
}

/// Moves copies in the model until nothing more is to be had or a limit is reached; the changes that make it so in the cluster.
pub fn optimize(model: &mut Model<'_>, limits: &Limits) -> Vec<Change> {
    let (mut moves, mut objects) = (0, 0);
    while moves < limits.moves {
        let room = if moves == 0 { u64::MAX } else { limits.objects.saturating_sub(objects) };
        let Some((pg, from, to)) = by_bytes(model, room).or_else(|| by_number(model, limits.deviation, room)) else { break };
        objects += model.pgs.get(&pg).map_or(0, |of| of.objects);
        model.move_copy(pg, from, to);
        moves += 1;
    }
    model.changes()
}

type Move = (PgId, OsdId, OsdId);

/// Every OSD that takes data or has some, the emptiest first.
fn by_fill(model: &Model<'_>) -> Vec<(f64, OsdId)> {
    let mut osds: Vec<(f64, OsdId)> = model.osds.iter().filter(|(_, o)| o.capacity > 0.0 || o.load > 0.0).map(|(id, _)| (model.fill(*id), *id)).collect();
    osds.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    osds
}

/// The best copy to take from the fullest OSD that has one to give.
fn by_bytes(model: &Model<'_>, room: u64) -> Option<Move> {
    let osds = by_fill(model);
    let emptiest = osds.first()?.0;
    let from = osds.iter().rev().take_while(|(fill, _)| fill - emptiest > MIN_GAP);
    from.map(|(_, id)| *id).find_map(|from| best_from(model, from, &osds, room))
}

fn best_from(model: &Model<'_>, from: OsdId, osds: &[(f64, OsdId)], room: u64) -> Option<Move> {
    let (own, fill) = (model.osds.get(&from)?, model.fill(from));
    let mut best: Option<(f64, Move)> = None;
    for pg in &own.pgs {
        let Some(of) = model.pgs.get(pg).filter(|of| of.movable && of.objects <= room) else { continue };
        for (_, to) in osds.iter().take_while(|(other, _)| fill - other > MIN_GAP && of.bytes >= (fill - other).min(1.0) * own.capacity * WORTH) {
            let gain = gain(model, from, *to, of.bytes);
            if gain > best.map_or(0.0, |(gain, _)| gain) && model.may_move(*pg, from, *to) {
                best = Some((gain, (*pg, from, *to)));
            }
        }
    }
    best.map(|(_, found)| found)
}

/// By how much the sum of load squared by capacity sinks if so many bytes go from one OSD to another.
fn gain(model: &Model<'_>, from: OsdId, to: OsdId, bytes: f64) -> f64 {
    let capacity = |osd: OsdId| model.osds.get(&osd).map_or(0.0, |o| o.capacity);
    match (capacity(from), capacity(to)) {
        (_, to) if to <= 0.0 => f64::NEG_INFINITY,
        // One that is to hold nothing gives all it has.
        (from, _) if from <= 0.0 => bytes,
        (a, b) => bytes * (2.0 * (model.fill(from) - model.fill(to)) - bytes * (1.0 / a + 1.0 / b)),
    }
}

/// A copy of a pool of which one OSD has too many PGs, or another one too few.
fn by_number(model: &Model<'_>, deviation: f64, room: u64) -> Option<Move> {
    let fills = by_fill(model);
    let ends = (fills.first()?.0, fills.last()?.0);
    model.pools.values().find_map(|pool| {
        let capacity = |osd: &OsdId| model.osds.get(osd).map_or(0.0, |o| o.capacity);
        let whole: f64 = pool.osds.iter().map(capacity).sum();
        let copies: f64 = pool.counts.values().sum();
        let over = |osd: &OsdId| pool.counts.get(osd).copied().unwrap_or(0.0) - copies * capacity(osd) / whole;
        let mut osds: Vec<(f64, OsdId)> = pool.osds.iter().map(|osd| (over(osd), *osd)).collect();
        osds.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let counts = pool.counts.keys().copied().collect::<BTreeSet<_>>();
        let pairs = osds.iter().rev().flat_map(|a| osds.iter().map(move |b| (*a, *b)));
        let off = pairs.filter(|((a, from), (b, _))| (*a > deviation || *b < -deviation) && a - b > 1.0 && counts.contains(from));
        off.map(|((_, from), (_, to))| (from, to)).find_map(|(from, to)| {
            let fewer = |osd: OsdId, by: f64| (pool.counts.get(&osd).copied().unwrap_or(0.0) + by).powi(2) / capacity(&osd);
            let sinks = fewer(from, 0.0) + fewer(to, 0.0) > fewer(from, -1.0) + fewer(to, 1.0);
            let own = model.osds.get(&from).filter(|_| sinks)?;
            let pgs = own.pgs.iter().filter(|pg| model.pools.get(&pg.pool).is_some_and(|p| std::ptr::eq(p, pool)));
            pgs.copied().find(|pg| model.pgs.get(pg).is_some_and(|of| of.objects <= room) && keeps_bytes(model, *pg, (from, to), ends) && model.may_move(*pg, from, to)).map(|pg| (pg, from, to))
        })
    })
}

/// True if the move gives nobody a reason to move bytes, back or on: it helps, or is not worth speaking of, or leaves one of the two
/// among the emptiest and the other among the fullest. `ends`: how full the emptiest and the fullest are.
fn keeps_bytes(model: &Model<'_>, pg: PgId, (from, to): (OsdId, OsdId), ends: (f64, f64)) -> bool {
    let Some(bytes) = model.pgs.get(&pg).map(|of| of.bytes) else { return false };
    let capacity = |osd: OsdId| model.osds.get(&osd).map_or(0.0, |o| o.capacity);
    let by = |osd: OsdId| bytes / capacity(osd);
    let small = by(from) < MIN_GAP * WORTH && by(to) < MIN_GAP * WORTH;
    let between = || model.fill(to) + by(to) - ends.0 <= MIN_GAP && ends.1 - (model.fill(from) - by(from)) <= MIN_GAP;
    gain(model, from, to, bytes) > 0.0 || small || between()
}

#[cfg(test)]
mod tests {
    use super::super::Step;
    use super::super::testing::*;
    use super::*;
    use crate::pgmap::PgMap;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::sync::Arc;
    use types::PoolId;
    use types::map::{OsdMap, PgPool};
    use types::pg::PgState;

    const WIDE: Limits = Limits { moves: 10, deviation: 5.0, objects: u64::MAX };

    /// Rounds until nothing is left to do; how many copies moved.
    fn balance(map: &mut OsdMap, pgs: &mut PgMap, limits: &Limits) -> usize {
        let mut moved = 0;
        for _ in 0..1000 {
            let changes = optimize(&mut Model::new(map, pgs, &BTreeSet::new()), limits);
            if changes.is_empty() {
                return moved;
            }
            moved += changes.len();
            changes.into_iter().for_each(|change| Step::Upmap(change).apply(map));
            settle(map, pgs);
        }
        panic!("it never ends");
    }

    #[test]
    fn unequal_disks_come_within_three_points_of_equally_full_and_every_rule_holds() {
        evens_out(|_| PgPool::replicated(3, 128, 0), 5 * GIB / 2);
    }

    /// Unequal disks, with one pool whose PGs hold so much each.
    fn evens_out(pool: impl FnOnce(&mut OsdMap) -> PgPool, bytes: u64) {
        let (mut map, mut pgs) = cluster(&[&[100, 200, 300], &[300, 100, 200], &[200, 300, 100]]);
        let pool = pool(&mut map);
        add_pool(&mut map, &mut pgs, 1, pool, || bytes);
        let before = worst(&map, &pgs);
        assert!(before > 10.0, "not worth a test: {before}");
        balance(&mut map, &mut pgs, &WIDE);
        assert!(worst(&map, &pgs) < 1.5, "{:?}", off(&map, &pgs));
        assert_rules_hold(&map);
    }

    #[test]
    fn random_clusters_with_pgs_of_unequal_weight_get_there_and_then_rest() {
        for seed in 0..30 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let hosts: Vec<Vec<u64>> = (0..rng.random_range(4..8)).map(|_| (0..rng.random_range(2..5)).map(|_| rng.random_range(2..8) * 100).collect()).collect();
            let (mut map, mut pgs) = cluster(&hosts.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let total: u64 = hosts.iter().flatten().sum();
            for id in 1..=2 {
                // Together 55% of all disks, in two copies.
                let each = total * GIB * 55 / 100 / 2 / 2 / 256;
                let mut bytes = ChaCha8Rng::seed_from_u64(seed * 7 + id as u64);
                add_pool(&mut map, &mut pgs, id, PgPool::replicated(2, 256, 0), || bytes.random_range(each / 2..each * 3 / 2));
            }
            let before = worst(&map, &pgs);
            balance(&mut map, &mut pgs, &WIDE);
            assert_rules_hold(&map);
            // A host of more than half of everything cannot be as full as the others.
            let largest = hosts.iter().map(|h| h.iter().sum::<u64>()).max().unwrap();
            let worst = worst(&map, &pgs);
            assert!(largest * 2 > total || worst < 3.0, "seed {seed}: {before} to {worst}, hosts {hosts:?}");
            assert_eq!(optimize(&mut Model::new(&map, &pgs, &BTreeSet::new()), &WIDE), []);
        }
    }

    #[test]
    fn where_hosts_differ_their_own_osds_are_equally_full() {
        let (mut map, mut pgs) = cluster(&[&[100, 100, 100], &[200, 200, 200], &[400, 400, 100]]);
        add_pool(&mut map, &mut pgs, 1, PgPool::replicated(3, 256, 0), || GIB / 2);
        balance(&mut map, &mut pgs, &WIDE);
        assert_rules_hold(&map);
        let model = Model::new(&map, &pgs, &BTreeSet::new());
        for host in [[0, 1, 2], [3, 4, 5], [6, 7, 8]] {
            let fills = host.map(|osd| model.fill(OsdId(osd)));
            assert!(fills.iter().all(|f| (f - fills[0]).abs() < 0.02), "{fills:?}");
        }
    }

    /// A pool of `k` + 1 chunks, each on a host of its own.
    fn chunks(map: &mut OsdMap, k: u8) -> PgPool {
        let mut crush = crush::CrushMap::clone(&map.crush);
        let rule = crush::SimpleRule { name: "ec", root: "default", failure_domain: "host", class: None, kind: crush::RuleKind::Erasure };
        let rule = crush.add_simple_rule(rule).unwrap();
        map.crush = Arc::new(crush);
        let profile = [("k", k.to_string()), ("m", "1".to_owned())].map(|(name, value)| (name.to_owned(), value));
        map.erasure_code_profiles.insert("p".to_owned(), profile.into());
        let pool_type = types::map::PoolType::ERASURE;
        PgPool { pool_type, erasure_code_profile: "p".to_owned(), ..PgPool::replicated(k + 1, 128, rule as u8) }
    }

    #[test]
    fn chunks_are_spread_by_their_bytes_and_keep_their_places() {
        evens_out(|map| chunks(map, 2), 5 * GIB);
    }

    #[test]
    fn a_place_that_nobody_has_is_no_osd_to_move_from_or_to() {
        let (mut map, mut pgs) = cluster(&[&[100, 200, 300], &[300, 100, 200], &[200, 300, 100]]);
        // Four chunks, three hosts.
        let pool = chunks(&mut map, 3);
        add_pool(&mut map, &mut pgs, 1, pool, || 5 * GIB);
        let holes = |map: &OsdMap| map.pgs(PoolId(1)).filter(|pg| map.pg_to_up_acting(*pg).up.contains(&OsdId::HOLE)).count();
        assert_eq!(holes(&map), 128);
        assert!(balance(&mut map, &mut pgs, &WIDE) > 0);
        assert_eq!(holes(&map), 128);
        assert!(map.pg_upmap_items.values().flatten().all(|(from, to)| *from != OsdId::HOLE && *to != OsdId::HOLE));
        assert!(Model::new(&map, &pgs, &BTreeSet::new()).osds.keys().all(|osd| *osd != OsdId::HOLE));
    }

    #[test]
    fn a_round_moves_no_more_than_it_may() {
        let (mut map, mut pgs) = cluster(&[&[100, 200, 300], &[300, 100, 200], &[200, 300, 100]]);
        add_pool(&mut map, &mut pgs, 1, PgPool::replicated(3, 128, 0), || 5 * GIB / 2);
        let changes = |limits: Limits| optimize(&mut Model::new(&map, &pgs, &BTreeSet::new()), &limits).len();
        assert_eq!(changes(Limits { moves: 4, ..WIDE }), 4);
        assert_eq!(changes(Limits { objects: 250, ..WIDE }), 2, "PGs have 100 objects");
        assert_eq!(changes(Limits { objects: 0, ..WIDE }), 1, "or nothing would ever move");
    }

    #[test]
    fn only_whole_pgs_of_settled_pools_that_are_asked_for_move() {
        let (mut map, mut pgs) = cluster(&[&[100, 200, 300], &[300, 100, 200], &[200, 300, 100]]);
        add_pool(&mut map, &mut pgs, 1, PgPool::replicated(3, 128, 0), || 5 * GIB / 2);
        let none = |map: &OsdMap, pgs: &PgMap, only: &[i64]| {
            let only = only.iter().map(|id| PoolId(*id)).collect();
            optimize(&mut Model::new(map, pgs, &only), &WIDE).is_empty()
        };
        assert!(!none(&map, &pgs, &[]) && !none(&map, &pgs, &[1]) && none(&map, &pgs, &[2]));
        let mut merging = map.clone();
        merging.pools.get_mut(&PoolId(1)).unwrap().pg_num_target = 64;
        assert!(none(&merging, &pgs, &[]));
        pgs.pgs.values_mut().for_each(|s| s.state = PgState::ACTIVE | PgState::DEGRADED);
        assert!(none(&map, &pgs, &[]));
    }

    #[test]
    fn empty_pools_are_spread_by_number_and_an_upmap_that_is_not_needed_any_more_goes() {
        let (mut map, mut pgs) = cluster(&[&[100; 3], &[100; 3], &[100; 3]]);
        add_pool(&mut map, &mut pgs, 1, PgPool::replicated(3, 96, 0), || 0);
        let exact = Limits { deviation: 1.0, ..WIDE };
        balance(&mut map, &mut pgs, &exact);
        let counts = Model::new(&map, &pgs, &BTreeSet::new()).pools[&PoolId(1)].counts.clone();
        assert!(counts.values().all(|n| (n - 32.0).abs() <= 1.0), "{counts:?}");
        assert_rules_hold(&map);
        // Somebody sends a copy away from where CRUSH has it: it comes back without leaving a trace.
        let (mut map, mut pgs) = cluster(&[&[100; 1], &[100; 1], &[100, 100]]);
        add_pool(&mut map, &mut pgs, 1, PgPool::replicated(3, 8, 0), || 5 * GIB);
        let on_two: Vec<PgId> = map.pgs(PoolId(1)).filter(|pg| map.pg_to_up_acting(*pg).up.contains(&OsdId(2))).collect();
        for pg in &on_two {
            map.pg_upmap_items.insert(*pg, vec![(OsdId(2), OsdId(3))]);
        }
        settle(&map, &mut pgs);
        balance(&mut map, &mut pgs, &WIDE);
        assert!(map.pg_upmap_items.len() < on_two.len() && map.pg_upmap_items.values().all(|items| !items.is_empty()));
    }

    #[test]
    fn device_classes_are_kept_and_balanced_each_by_itself() {
        let (mut map, mut pgs, rules) = two_classes();
        add_pool(&mut map, &mut pgs, 1, PgPool::replicated(3, 128, rules[0] as u8), || 2 * GIB);
        add_pool(&mut map, &mut pgs, 2, PgPool::replicated(3, 128, rules[1] as u8), || GIB / 2);
        balance(&mut map, &mut pgs, &WIDE);
        assert_rules_hold(&map);
        let model = Model::new(&map, &pgs, &BTreeSet::new());
        for class in [&[0, 1, 2, 5, 6, 7, 10, 11, 12][..], &[3, 4, 8, 9, 13, 14]] {
            let fills: Vec<f64> = class.iter().map(|osd| model.fill(OsdId(*osd))).collect();
            let (low, high) = fills.iter().fold((f64::MAX, 0.0f64), |(l, h), f| (l.min(*f), h.max(*f)));
            assert!(high - low < 0.05, "{fills:?}");
        }
    }
}
