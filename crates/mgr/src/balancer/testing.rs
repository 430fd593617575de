//! Clusters for the balancer's tests.

use super::model::Model;
use crate::pgmap::{OsdReport, PgMap};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::map::{OsdMap, PgPool};
use types::msg::internal::SlowOps;
use types::pg::{OsdStat, PgState, PgStat};
use types::{Mono, OsdId, PgId, PoolId, Utime};

pub const GIB: u64 = 1 << 30;

/// Hosts of OSDs of these sizes, in GiB, all up and in; CRUSH weights are their sizes.
pub fn cluster(hosts: &[&[u64]]) -> (OsdMap, PgMap) {
    let sizes: Vec<u64> = hosts.iter().flat_map(|h| h.iter().copied()).collect();
    let mut map = OsdMap::new(Default::default(), Utime::ZERO);
    map.set_max_osd(sizes.len() as i32);
    let mut crush = crush::CrushMap::build_default(&[], "host").unwrap();
    let (mut osd, mut pgs) = (0, PgMap::default());
    for (n, host) in hosts.iter().enumerate() {
        for size in *host {
            let place = crush::parse_location([format!("host=h{n}"), "root=default".to_owned()]).unwrap();
            crush.create_or_move_item(osd, (size * 64) as u32, &format!("osd.{osd}"), &place).unwrap();
            map.osd_state[osd as usize] = OsdMap::STATE_EXISTS | OsdMap::STATE_UP;
            map.osd_weight[osd as usize] = OsdMap::WEIGHT_IN;
            pgs.osds.insert(OsdId(osd), report(size * GIB));
            osd += 1;
        }
    }
    map.crush = Arc::new(crush);
    (map, pgs)
}

/// Three hosts with OSDs of two classes, and the rules for each: OSDs whose number leaves less than 3 when divided by 5 are `hdd`, the others `nvme`.
pub fn two_classes() -> (OsdMap, PgMap, [u32; 2]) {
    let (mut map, pgs) = cluster(&[&[100, 200, 300, 50, 150], &[300, 100, 200, 150, 50], &[200, 300, 100, 50, 150]]);
    let mut crush = crush::CrushMap::clone(&map.crush);
    for osd in 0..15 {
        crush.set_device_class(osd, if osd % 5 < 3 { "hdd" } else { "nvme" }).unwrap();
    }
    let rule = |class| crush::SimpleRule { name: class, root: "default", failure_domain: "host", class: Some(class), kind: crush::RuleKind::Replicated };
    let rules = ["hdd", "nvme"].map(|class| crush.add_simple_rule(rule(class)).unwrap());
    map.crush = Arc::new(crush);
    (map, pgs, rules)
}

fn report(total: u64) -> OsdReport {
    let mut stat = OsdStat::default();
    (stat.statfs.total, stat.statfs.available) = (total, total);
    let (perf, pools, config) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    OsdReport { at: Mono(0), stat, pools, perf, perf_before: None, slow_ops: SlowOps::default(), config }
}

/// A pool whose PGs hold what `bytes` says, all clean.
pub fn add_pool(map: &mut OsdMap, pgs: &mut PgMap, id: i64, pool: PgPool, mut bytes: impl FnMut() -> u64) {
    let n = pool.pg_num;
    map.pools.insert(PoolId(id), pool);
    for pg in (0..n).map(|seed| PgId { pool: PoolId(id), seed }) {
        let mut stat = PgStat { state: PgState::ACTIVE | PgState::CLEAN, ..PgStat::default() };
        (stat.stats.sum.num_bytes, stat.stats.sum.num_objects) = (bytes() as i64, 100);
        pgs.pgs.insert(pg, stat);
    }
    settle(map, pgs);
}

/// All data is where the map says.
pub fn settle(map: &OsdMap, pgs: &mut PgMap) {
    for (pg, stat) in &mut pgs.pgs {
        let sets = map.pg_to_up_acting(*pg);
        (stat.up, stat.acting) = (sets.up, sets.acting);
    }
}

/// How full every OSD is against all together, in points.
pub fn off(map: &OsdMap, pgs: &PgMap) -> Vec<f64> {
    let model = Model::new(map, pgs, &BTreeSet::new());
    let all = model.osds.values();
    let mean = all.clone().map(|o| o.load).sum::<f64>() / all.map(|o| o.capacity).sum::<f64>();
    model.osds.keys().map(|osd| (model.fill(*osd) - mean).abs() * 100.0).collect()
}

pub fn worst(map: &OsdMap, pgs: &PgMap) -> f64 {
    off(map, pgs).into_iter().fold(0.0, f64::max)
}

pub fn assert_rules_hold(map: &OsdMap) {
    for (id, pool) in &map.pools {
        let fit = map.crush.rule_fit(pool.crush_rule.into()).unwrap();
        for pg in map.pgs(*id) {
            let up: Vec<i32> = map.pg_to_up_acting(pg).up.iter().map(|o| o.0).collect();
            assert!(up.len() == usize::from(pool.size) && fit.allows(&up, pool.size.into()), "{pg}: {up:?}");
        }
    }
}
