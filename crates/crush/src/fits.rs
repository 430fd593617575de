//! Whether a rule allows a set of OSDs that it did not choose itself: an upmap, or a balancer's idea.
//!
//! A rule is one or more segments (take, choose ..., emit). Of each choose step an OSD is in one bucket of that type: its group.
//! Holds: what `do_rule` gives is allowed, for every map and input.
//! Upstream: verify_upmap in src/crush/CrushWrapper.cc.

use crate::{CrushMap, ITEM_NONE, Op};
use std::collections::{BTreeMap, BTreeSet};

/// What a rule asks of a set of OSDs, looked up once for many questions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleFit {
    segments: Vec<Segment>,
}

/// From a take step to its emit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Segment {
    /// Of each choose step how many: 0 or below is that many fewer than the pool has copies.
    levels: Vec<i32>,
    /// Every OSD below the item taken, with its bucket (or itself) of each choose step's type.
    groups: BTreeMap<i32, Vec<i32>>,
}

impl CrushMap {
    /// What a rule asks; `None` if there is no such rule.
    pub fn rule_fit(&self, rule: u32) -> Option<RuleFit> {
        let (mut fit, mut root, mut kinds) = (RuleFit::default(), None, Vec::new());
        for step in &self.rule(rule)?.steps {
            match step.op() {
                Some(Op::Take) => (root, kinds) = (Some(step.arg1), Vec::new()),
                Some(Op::ChooseFirstn | Op::ChooseIndep | Op::ChooseleafFirstn | Op::ChooseleafIndep) => kinds.push((step.arg1, step.arg2)),
                Some(Op::Emit) => fit.segments.extend(root.take().map(|root| self.segment(root, &std::mem::take(&mut kinds)))),
                _ => {}
            }
        }
        Some(fit)
    }

    fn segment(&self, root: i32, kinds: &[(i32, i32)]) -> Segment {
        let mut groups: BTreeMap<i32, Vec<i32>> = self.leaves(root).into_iter().map(|osd| (osd, Vec::new())).collect();
        for (_, kind) in kinds {
            let mut of = BTreeMap::new();
            for item in self.children_of_type(root, *kind, true) {
                for osd in self.leaves(item) {
                    of.entry(osd).or_insert(item);
                }
            }
            // An OSD that is in no such bucket cannot be chosen.
            groups.retain(|osd, path| of.get(osd).map(|group| path.push(*group)).is_some());
        }
        Segment { levels: kinds.iter().map(|(n, _)| *n).collect(), groups }
    }
}

impl RuleFit {
    /// Every OSD that the rule may choose, whatever its weight.
    pub fn osds(&self) -> BTreeSet<i32> {
        self.segments.iter().flat_map(|s| s.groups.keys().copied()).collect()
    }

    /// True if these OSDs, in this order, could be the rule's choice for a pool of `size` copies. `ITEM_NONE` is a place that is
    /// not filled.
    pub fn allows(&self, osds: &[i32], size: usize) -> bool {
        osds.len() <= size && allowed(&self.segments, osds, size)
    }
}

/// True if the first segments' share of `osds`, and that of the others, are allowed: a segment may have found fewer than it should.
fn allowed(segments: &[Segment], osds: &[i32], size: usize) -> bool {
    let Some((first, rest)) = segments.split_first() else { return osds.is_empty() };
    let most = first.width(size).min(osds.len());
    (0..=most).rev().any(|n| {
        let (own, others) = osds.split_at(n);
        first.allows(own, size) && allowed(rest, others, size)
    })
}

impl Segment {
    fn many(&self, n: i32, size: usize) -> usize {
        if n > 0 { n as usize } else { size.saturating_sub(n.unsigned_abs() as usize) }
    }

    fn width(&self, size: usize) -> usize {
        self.levels.iter().fold(1usize, |width, n| width.saturating_mul(self.many(*n, size))).min(size)
    }

    fn allows(&self, osds: &[i32], size: usize) -> bool {
        let present = || osds.iter().filter(|osd| **osd != ITEM_NONE);
        let paths: Vec<&[i32]> = present().filter_map(|osd| self.groups.get(osd)).map(Vec::as_slice).collect();
        if paths.len() < present().count() {
            return false;
        }
        // Nothing twice: no OSD, and of the last step's buckets none.
        let distinct: BTreeSet<&[i32]> = paths.iter().copied().collect();
        distinct.len() == paths.len() && self.levels.iter().enumerate().all(|(level, n)| few_enough(&distinct, level, self.many(*n, size)))
    }
}

/// True if under no bucket of the step before there are more than `most` of this step's.
fn few_enough(paths: &BTreeSet<&[i32]>, level: usize, most: usize) -> bool {
    let mut below: BTreeMap<&[i32], BTreeSet<i32>> = BTreeMap::new();
    for path in paths {
        if let (Some(above), Some(group)) = (path.get(..level), path.get(level)) {
            below.entry(above).or_default().insert(*group);
        }
    }
    below.values().all(|groups| groups.len() <= most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rule, RuleKind, SimpleRule, Step, parse_location};

    /// Two racks of two hosts of three OSDs; the first OSD of each host is nvme, the others ssd.
    fn map() -> CrushMap {
        let mut map = CrushMap::build_default(&[], "host").unwrap();
        for osd in 0..12 {
            let place = [format!("host=h{}", osd / 3), format!("rack=r{}", osd / 6), "root=default".to_owned()];
            map.create_or_move_item(osd, crate::ONE, &format!("osd.{osd}"), &parse_location(place).unwrap()).unwrap();
            map.set_device_class(osd, if osd % 3 == 0 { "nvme" } else { "ssd" }).unwrap();
        }
        map
    }

    fn put(map: &mut CrushMap, name: &str, steps: &[(Op, i32, i32)]) -> RuleFit {
        let steps = steps.iter().map(|(op, a, b)| Step::new(*op, *a, *b)).collect();
        let n = map.rules.len() as u32;
        map.put_rule(n, name, Rule { ruleset: n as u8, kind: 1, min_size: 1, max_size: 10, steps }).unwrap();
        map.rule_fit(n).unwrap()
    }

    #[test]
    fn copies_have_to_be_on_different_hosts_and_of_the_class() {
        let mut map = map();
        let hosts = map.rule_fit(0).unwrap();
        assert!(hosts.allows(&[0, 4, 8], 3));
        assert!(!hosts.allows(&[0, 1, 8], 3), "two on one host");
        assert!(!hosts.allows(&[0, 4, 8, 11], 3), "more than there are copies");
        assert!(!hosts.allows(&[0, 4, 99], 3));
        assert!(hosts.allows(&[0, ITEM_NONE, 4], 3));
        let rule = SimpleRule { name: "nvme", root: "default", failure_domain: "host", class: Some("nvme"), kind: RuleKind::Replicated };
        let rule = map.add_simple_rule(rule).unwrap();
        let nvme = map.rule_fit(rule).unwrap();
        assert!(nvme.allows(&[0, 3, 9], 3) && !nvme.allows(&[0, 3, 8], 3));
        assert_eq!(nvme.osds(), BTreeSet::from([0, 3, 6, 9]));
    }

    #[test]
    fn every_level_and_every_segment_counts() {
        let mut map = map();
        let (root, rack, host) = (map.item("default").unwrap(), map.type_id("rack").unwrap(), map.type_id("host").unwrap());
        let two_by_two = put(&mut map, "two", &[(Op::Take, root, 0), (Op::ChooseFirstn, 2, rack), (Op::ChooseleafFirstn, 2, host), (Op::Emit, 0, 0)]);
        assert!(two_by_two.allows(&[0, 3, 6, 9], 4));
        assert!(!two_by_two.allows(&[0, 1, 6, 9], 4));
        let one_rack = put(&mut map, "one", &[(Op::Take, root, 0), (Op::ChooseFirstn, 1, rack), (Op::ChooseleafFirstn, 0, host), (Op::Emit, 0, 0)]);
        assert!(one_rack.allows(&[0, 3], 2) && !one_rack.allows(&[0, 6], 2));
        let (nvme, ssd) = (map.item("default~nvme").unwrap(), map.item("default~ssd").unwrap());
        let mixed = [
            (Op::Take, nvme, 0), (Op::ChooseleafFirstn, 1, host), (Op::Emit, 0, 0),
            (Op::Take, ssd, 0), (Op::ChooseleafFirstn, -1, host), (Op::Emit, 0, 0),
        ];
        let mixed = put(&mut map, "mixed", &mixed);
        assert!(mixed.allows(&[0, 4, 7], 3) && mixed.allows(&[0, 1, 4], 3), "upstream's rule does not compare segments either");
        assert!(!mixed.allows(&[1, 4, 7], 3) && !mixed.allows(&[0, 3, 7], 3));
        assert!(mixed.allows(&[4, 7], 3), "a segment that found nothing");
    }

    #[test]
    fn what_the_rule_itself_chooses_is_allowed() {
        let mut map = map();
        let (root, rack, host) = (map.item("default").unwrap(), map.type_id("rack").unwrap(), map.type_id("host").unwrap());
        put(&mut map, "two", &[(Op::Take, root, 0), (Op::ChooseFirstn, 2, rack), (Op::ChooseleafFirstn, 2, host), (Op::Emit, 0, 0)]);
        let weights = [crate::ONE; 12];
        for rule in 0..map.rules.len() as u32 {
            let fit = map.rule_fit(rule).unwrap();
            for (x, size) in (0..500).flat_map(|x| [(x, 2), (x, 3), (x, 4)]) {
                let chosen = map.do_rule(rule, x, size, &weights, None);
                assert!(fit.allows(&chosen, size), "rule {rule}, x {x}: {chosen:?}");
            }
        }
        assert_eq!(map.rule_fit(77), None);
    }
}
