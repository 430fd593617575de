//! Weights in the compat weight set, so that disks are equally full: for clusters whose clients do not understand upmaps.
//!
//! Step by step OSDs that are fuller than all together get less weight and emptier ones more, each by how far it is off; CRUSH says what a step does. The best
//! step counts, as long as no more is misplaced by it than may be; one that makes it worse is tried again half as large. As with upmaps, what is made
//! small is the sum of load squared by capacity.
//! Upstream: do_crush_compat in src/pybind/mgr/balancer/module.py (there by the number of PGs first).

use super::Step;
use super::model::{Model, Osd, Pg};
use super::upmap::MIN_GAP;
use crate::pgmap::PgMap;
use std::collections::{BTreeMap, BTreeSet};
use types::map::OsdMap;
use types::{OsdId, PgId};

/// A weight changes by no more than this factor in a step.
const MAX_FACTOR: f64 = 2.0;
/// Steps that are smaller change nothing any more.
const MIN_STEP: f64 = 0.05;
/// What is left of the imbalance must be less than this part of it, or it is not worth moving anything.
const WORTH: f64 = 0.95;

/// How far it may go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// `crush_compat_max_iterations`: steps that are tried.
    pub iterations: u64,
    /// `crush_compat_step`: the part of the way to the weight that seems right, 0 to 1.
    pub step: f64,
    /// Copies of objects that may be misplaced by it.
    pub objects: u64,
}

type Weights = BTreeMap<OsdId, u32>;

/// Weights, and what CRUSH makes of them.
struct Trial {
    weights: Weights,
    pgs: BTreeMap<PgId, Pg>,
    osds: BTreeMap<OsdId, Osd>,
    /// OSDs that share data, directly or through others.
    groups: Vec<BTreeSet<OsdId>>,
}

/// What has to be done; nothing if all are equally full, or as equally as weights can make it.
pub fn optimize(map: &OsdMap, pgs: &PgMap, limits: &Limits) -> Vec<Step> {
    let mut base = map.clone();
    let makes = (!map.crush.choose_args.contains_key(&crush::COMPAT_WEIGHT_SET)).then_some(Step::MakeWeightSet);
    makes.iter().for_each(|step| step.apply(&mut base));
    let had: Weights = base.osds().filter_map(|osd| Some((osd, base.crush.weight_in_weight_set(crush::COMPAT_WEIGHT_SET, osd.0)?))).collect();
    let first = Trial::new(&base, pgs, had);
    let (mut better, mut step): (Option<Trial>, f64) = (None, limits.step);
    for _ in 0..limits.iterations {
        let best = better.as_ref().unwrap_or(&first);
        if best.is_even() || step < MIN_STEP {
            break;
        }
        let trial = Trial::of_weights(&base, pgs, best.next(step));
        let fits = trial.misplaced_from(&first) <= limits.objects;
        match () {
            () if fits && trial.excess() < best.excess() => better = Some(trial),
            () if !fits && better.is_some() => break,
            () => step /= 2.0,
        }
    }
    let Some(best) = better.filter(|best| best.excess() < first.excess() * WORTH) else { return Vec::new() };
    let changed = best.weights.into_iter().filter(|(osd, weight)| first.weights.get(osd) != Some(weight));
    makes.into_iter().chain(changed.map(|(osd, weight)| Step::Weight(osd, weight))).collect()
}

impl Trial {
    /// Of a map that has these weights.
    fn new(map: &OsdMap, pgs: &PgMap, weights: Weights) -> Self {
        let model = Model::new(map, pgs, &BTreeSet::new());
        let mut groups: Vec<BTreeSet<OsdId>> = Vec::new();
        for pool in model.pools.values() {
            let (mut joined, apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(|group: &BTreeSet<OsdId>| !group.is_disjoint(&pool.osds));
            joined.push(pool.osds.clone());
            groups = apart;
            groups.push(joined.into_iter().flatten().collect());
        }
        Trial { weights, pgs: model.pgs, osds: model.osds, groups }
    }

    /// Of a map that would have them.
    fn of_weights(map: &OsdMap, pgs: &PgMap, weights: Weights) -> Self {
        let mut changed = map.clone();
        weights.iter().for_each(|(osd, weight)| Step::Weight(*osd, *weight).apply(&mut changed));
        Trial::new(&changed, pgs, weights)
    }

    /// Load and capacity; those of a group have some.
    fn of(&self, osd: &OsdId) -> (f64, f64) {
        self.osds.get(osd).map_or((0.0, 0.0), |of| (of.load, of.capacity))
    }

    fn fill(&self, osd: &OsdId) -> f64 {
        self.osds.get(osd).map_or(0.0, Osd::fill)
    }

    /// How full a group is, all together.
    fn mean(&self, group: &BTreeSet<OsdId>) -> f64 {
        let (load, capacity) = group.iter().map(|osd| self.of(osd)).fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        load / capacity.max(1.0)
    }

    /// By how much the sum of load squared by capacity is more than it would be if all were equally full.
    fn excess(&self) -> f64 {
        let of_group = |group: &BTreeSet<OsdId>| {
            let mean = self.mean(group);
            group.iter().map(|osd| self.of(osd)).map(|(load, capacity)| capacity * (load / capacity - mean).powi(2)).sum::<f64>()
        };
        self.groups.iter().map(of_group).sum()
    }

    /// True if no OSD is fuller than another one by more than is worth moving data for.
    fn is_even(&self) -> bool {
        self.groups.iter().all(|group| {
            let fills = group.iter().map(|osd| self.fill(osd));
            let (low, high) = fills.fold((f64::INFINITY, 0.0f64), |(low, high), fill| (low.min(fill), high.max(fill)));
            high - low <= MIN_GAP
        })
    }

    /// Copies of objects that are elsewhere than they were.
    fn misplaced_from(&self, before: &Trial) -> u64 {
        let moved = |(pg, of): (&PgId, &Pg)| {
            let was = before.pgs.get(pg).map_or(&[][..], |of| &of.placed);
            of.objects * of.placed.iter().filter(|osd| !was.contains(osd)).count() as u64
        };
        self.pgs.iter().map(moved).sum()
    }

    /// Weights a part of the way to those that seem right; of a group together they stay what they were.
    fn next(&self, step: f64) -> Weights {
        let mut out = self.weights.clone();
        for group in &self.groups {
            let mean = self.mean(group);
            let own: Vec<(OsdId, f64)> = group.iter().filter_map(|osd| Some((*osd, f64::from(*self.weights.get(osd)?)))).collect();
            let wanted = |(osd, weight): &(OsdId, f64)| {
                let fill = self.fill(osd);
                let factor = if fill > 0.0 { (mean / fill).clamp(1.0 / MAX_FACTOR, MAX_FACTOR) } else { MAX_FACTOR };
                (*osd, weight * (1.0 + step * (factor - 1.0)))
            };
            let new: Vec<(OsdId, f64)> = own.iter().map(wanted).collect();
            let sum = |weights: &[(OsdId, f64)]| weights.iter().map(|(_, weight)| weight).sum::<f64>();
            let scale = sum(&own) / sum(&new).max(1.0);
            out.extend(new.into_iter().map(|(osd, weight)| (osd, (weight * scale).round().max(1.0) as u32)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use types::map::PgPool;

    const WIDE: Limits = Limits { iterations: 25, step: 0.5, objects: u64::MAX };

    /// Disks of which each host has the same, in other places.
    fn uneven() -> (OsdMap, PgMap) {
        let (mut map, mut pgs) = cluster(&[&[100, 200, 300], &[300, 100, 200], &[200, 300, 100]]);
        add_pool(&mut map, &mut pgs, 1, PgPool::replicated(3, 256, 0), || 5 * GIB / 4);
        (map, pgs)
    }

    fn apply(map: &mut OsdMap, pgs: &mut PgMap, steps: &[Step]) {
        steps.iter().for_each(|step| step.apply(map));
        settle(map, pgs);
    }

    #[test]
    fn weights_bring_disks_within_three_points_of_equally_full_and_then_rest() {
        let (mut map, mut pgs) = uneven();
        let before = worst(&map, &pgs);
        assert!(before > 5.0, "not worth a test: {before}");
        for _ in 0..50 {
            let steps = optimize(&map, &pgs, &WIDE);
            if steps.is_empty() {
                break;
            }
            apply(&mut map, &mut pgs, &steps);
        }
        assert_eq!(optimize(&map, &pgs, &WIDE), []);
        assert!(worst(&map, &pgs) < 3.0, "{before}: {:?}", off(&map, &pgs));
        assert_rules_hold(&map);
        assert!(map.pg_upmap_items.is_empty());
        let weight = |osd| map.crush.item_weight(osd).unwrap();
        assert_eq!([weight(0), weight(1), weight(2)], [6400, 12800, 19200], "weights themselves stay the disks' sizes");
    }

    #[test]
    fn the_set_is_made_once_and_a_round_misplaces_no_more_than_it_may() {
        let (mut map, mut pgs) = uneven();
        let narrow = Limits { objects: 256 * 3 * 100 / 20, ..WIDE };
        let steps = optimize(&map, &pgs, &narrow);
        assert_eq!(steps[0], Step::MakeWeightSet);
        let (was, before) = (map.clone(), worst(&map, &pgs));
        apply(&mut map, &mut pgs, &steps);
        let moved: usize = map.pgs(types::PoolId(1)).map(|pg| map.pg_to_up_acting(pg).up.iter().filter(|osd| !was.pg_to_up_acting(pg).up.contains(osd)).count()).sum();
        assert!(moved > 0 && moved <= 256 * 3 / 20, "{moved} of 768 copies");
        assert!(worst(&map, &pgs) < before);
        let more = optimize(&map, &pgs, &narrow);
        assert!(!more.is_empty() && !more.contains(&Step::MakeWeightSet), "{more:?}");
        assert_eq!(optimize(&map, &pgs, &Limits { objects: 0, ..WIDE }), []);
    }

    #[test]
    fn classes_are_balanced_each_by_itself() {
        let (mut map, mut pgs, rules) = two_classes();
        // Half full, and a tenth.
        add_pool(&mut map, &mut pgs, 1, PgPool::replicated(3, 256, rules[0] as u8), || GIB * 6 / 5);
        add_pool(&mut map, &mut pgs, 2, PgPool::replicated(3, 256, rules[1] as u8), || GIB / 12);
        let trial = |map: &OsdMap, pgs: &PgMap| Trial::new(map, pgs, Weights::new()).excess();
        let before = trial(&map, &pgs);
        let steps = optimize(&map, &pgs, &WIDE);
        apply(&mut map, &mut pgs, &steps);
        assert!(trial(&map, &pgs) < before / 2.0, "{before}: {}", trial(&map, &pgs));
        let sum = |class: &[i32]| class.iter().map(|osd| f64::from(map.crush.weight_in_weight_set(crush::COMPAT_WEIGHT_SET, *osd).unwrap())).sum::<f64>();
        assert!((sum(&[3, 4, 8, 9, 13, 14]) / (600.0 * 64.0) - 1.0).abs() < 0.01, "no class gets another one's weight");
    }
}
