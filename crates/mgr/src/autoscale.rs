//! How many PGs pools should have, by what they hold and are said to come to hold.
//!
//! Every OSD has a budget of PGs (`mon_target_pg_per_osd`), and a pool gets as much of its OSDs' budget as it has of their bytes. Pools
//! that are `bulk` share what the others leave. Numbers are powers of two, and only one that is off by a factor (`threshold`) is changed.
//! Pools whose rules share OSDs (a device class, and all of them) share these OSDs' budget; upstream leaves such pools alone.
//! Upstream: src/pybind/mgr/pg_autoscaler/module.py.

use crate::core::{Mgr, MgrSettings};
use crate::digest::raw_used_rate;
use crate::pgmap::PgMap;
use admin::health::{HealthMap, Severity};
use admin::human::narrow;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::map::{AutoscaleMode, OsdMap, PgPool, PoolOptKey, PoolOptValue};
use types::{Now, PoolId};

/// PGs a pool has at least, if it is not said otherwise (`pg_num_min`).
const PG_NUM_MIN: u32 = 32;

/// Options of the autoscaler.
#[derive(Debug, Clone, PartialEq)]
pub struct AutoscaleSettings {
    /// `mon_target_pg_per_osd`.
    pub target_pg_per_osd: u64,
    /// `mgr/pg_autoscaler/sleep_interval`.
    pub sleep_interval: Duration,
    /// `mgr/pg_autoscaler/threshold`.
    pub threshold: f64,
    /// `mgr/pg_autoscaler/noautoscale`.
    pub off: bool,
}

impl Default for AutoscaleSettings {
    fn default() -> Self {
        AutoscaleSettings { target_pg_per_osd: 100, sleep_interval: Duration::from_secs(60), threshold: 3.0, off: false }
    }
}

/// What one pool should have, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub pool: PoolId,
    pub root: i32,
    pub mode: AutoscaleMode,
    pub pg_num_target: u32,
    pub logical_used: u64,
    pub target_bytes: u64,
    pub raw_used_rate: f64,
    /// Bytes of the disks that the pool's rule takes from.
    pub capacity: u64,
    pub actual_raw_used: f64,
    pub raw_used: f64,
    pub actual_capacity_ratio: f64,
    pub capacity_ratio: f64,
    pub target_ratio: f64,
    pub effective_target_ratio: f64,
    pub ideal: f64,
    pub final_pg_num: u32,
    /// The number is so far off that it should be changed.
    pub off: bool,
    pub bias: f64,
    pub bulk: bool,
}

impl Target {
    /// True if it is changed by itself.
    pub fn would_adjust(&self) -> bool {
        self.off && self.mode == AutoscaleMode::ON
    }

    /// A member of `osd pool autoscale-status`.
    pub fn json(&self, name: &str) -> Value {
        json!({
            "actual_capacity_ratio": self.actual_capacity_ratio, "actual_raw_used": self.actual_raw_used, "bias": self.bias, "bulk": self.bulk,
            "capacity_ratio": self.capacity_ratio, "crush_root_id": self.root, "effective_target_ratio": self.effective_target_ratio,
            "logical_used": self.logical_used, "pg_autoscale_mode": self.mode.name(), "pg_num_final": self.final_pg_num,
            "pg_num_ideal": self.ideal as u64, "pg_num_target": self.pg_num_target, "pool_id": self.pool.0, "pool_name": name,
            "raw_used": self.raw_used, "raw_used_rate": self.raw_used_rate, "subtree_capacity": self.capacity,
            "target_bytes": self.target_bytes, "target_ratio": self.target_ratio, "would_adjust": self.would_adjust(),
        })
    }
}

impl Mgr {
    /// What pools should have.
    pub(crate) fn autoscale_targets(&self) -> Vec<Target> {
        targets(&self.settings().autoscale, self.osdmap(), self.pgs())
    }

    /// What the autoscaler has to say to the monitors now, by itself.
    pub fn autoscale_pgs(&mut self, now: Now) -> Vec<String> {
        let settings = &self.settings().autoscale;
        if settings.off || now.mono < self.next_autoscale {
            return Vec::new();
        }
        self.next_autoscale = now.mono + settings.sleep_interval;
        let map = self.osdmap_arc();
        let mut orders = Vec::new();
        for target in self.autoscale_targets().iter().filter(|t| t.would_adjust()) {
            let Some(pool) = map.pools.get(&target.pool).filter(|p| !p.has_flag(PgPool::FLAG_NOPGCHANGE)) else { continue };
            self.progress.pgs_ordered(now, target.pool, pool.pg_num, target.final_pg_num);
            let value = target.final_pg_num.to_string();
            orders.push(json!({"prefix": "osd pool set", "pool": self.pool_name(target.pool), "var": "pg_num", "val": value}).to_string());
        }
        orders
    }
}

/// One pool on its way.
struct Share<'a> {
    pool: &'a PgPool,
    /// Every OSD its rule takes from.
    osds: BTreeSet<i32>,
    /// All pools that share OSDs with it, directly or by others, have the same.
    group: usize,
    /// Bytes over capacity, or what was said that it will be.
    ratio: f64,
    target: Target,
}

/// What pools should have: those that are not `bulk` first.
pub fn targets(settings: &AutoscaleSettings, map: &OsdMap, pgs: &PgMap) -> Vec<Target> {
    let mut shares: Vec<Share> = map.pools.iter().filter_map(|(id, pool)| share(map, pgs, *id, pool)).collect();
    let groups = group(&mut shares);
    for share in &mut shares {
        let declared = &groups[share.group];
        let effective = declared.effective(share.target.target_ratio, share.target.capacity);
        share.target.effective_target_ratio = effective;
        share.ratio = (share.target.raw_used / share.target.capacity as f64).max(effective);
        share.target.capacity_ratio = share.ratio;
    }
    let per_osd = settings.target_pg_per_osd as f64;
    let mut left: Vec<f64> = groups.iter().map(|g| g.osds.len() as f64 * per_osd).collect();
    let mut unserved: Vec<usize> = groups.iter().map(|g| g.pools).collect();
    // What is left of the group's budget, as far as it is this pool's OSDs'.
    let own = |left: &[f64], s: &Share| left[s.group] * s.osds.len() as f64 / groups[s.group].osds.len().max(1) as f64;
    let mut done = Vec::new();
    for s in shares.iter().filter(|s| !s.target.bulk) {
        let used = s.ratio * own(&left, s);
        left[s.group] -= used.trunc();
        unserved[s.group] -= 1;
        done.push(finish(settings, s, s.ratio, used));
    }
    let mut even = Vec::new();
    for s in shares.iter().filter(|s| s.target.bulk) {
        if s.ratio <= 1.0 / unserved[s.group] as f64 {
            even.push(s);
            continue;
        }
        let used = s.ratio * own(&left, s);
        left[s.group] -= used.trunc();
        unserved[s.group] -= 1;
        done.push(finish(settings, s, s.ratio, used));
    }
    for s in even {
        let ratio = 1.0 / unserved[s.group] as f64;
        done.push(finish(settings, s, ratio, ratio * own(&left, s)));
    }
    done
}

fn finish(settings: &AutoscaleSettings, s: &Share, ratio: f64, budget: f64) -> Target {
    let option = |key| number(s.pool, key).map(|n| n as u32);
    let ideal = budget / f64::from(s.pool.size.max(1)) * s.target.bias;
    let least = option(PoolOptKey::PG_NUM_MIN).unwrap_or(PG_NUM_MIN);
    let n = nearest_power_of_two(ideal).max(least);
    let n = option(PoolOptKey::PG_NUM_MAX).filter(|most| *most > 0).map_or(n, |most| n.min(most));
    let (now, wanted) = (f64::from(s.pool.pg_num_target), f64::from(n));
    let off = (wanted > now * settings.threshold || wanted < now / settings.threshold) && (0.0..=1.0).contains(&ratio);
    Target { ideal, final_pg_num: n, off, ..s.target.clone() }
}

fn number(pool: &PgPool, key: PoolOptKey) -> Option<f64> {
    match pool.opts.get(key)? {
        PoolOptValue::Int(n) => Some((*n).max(0) as f64),
        PoolOptValue::Double(d) => Some(*d),
        PoolOptValue::Str(_) => None,
    }
}

/// A pool's bytes; `None` if its rule takes from no disk that is known.
fn share<'a>(map: &OsdMap, pgs: &PgMap, id: PoolId, pool: &'a PgPool) -> Option<Share<'a>> {
    let takes = map.crush.takes(pool.crush_rule.into());
    let osds: BTreeSet<i32> = takes.iter().flat_map(|take| map.crush.leaves(*take)).collect();
    let capacity: u64 = pgs.counted(map).filter(|(osd, _)| osds.contains(&osd.0)).map(|(_, r)| r.stat.statfs.total).sum();
    if capacity == 0 {
        return None;
    }
    let rate = raw_used_rate(map, pool);
    let logical_used = pgs.pool(id).stats.sum.num_bytes.max(0) as u64;
    let target_ratio = number(pool, PoolOptKey::TARGET_SIZE_RATIO).unwrap_or(0.0);
    // The ratio is the one that counts where both are given.
    let target_bytes = number(pool, PoolOptKey::TARGET_SIZE_BYTES).filter(|_| target_ratio == 0.0).unwrap_or(0.0) as u64;
    let (actual, raw) = (logical_used as f64 * rate, logical_used.max(target_bytes) as f64 * rate);
    let target = Target {
        pool: id,
        root: takes.into_iter().next().unwrap_or(0),
        mode: pool.pg_autoscale_mode,
        pg_num_target: pool.pg_num_target,
        logical_used,
        target_bytes,
        raw_used_rate: rate,
        capacity,
        actual_raw_used: actual,
        raw_used: raw,
        actual_capacity_ratio: actual / capacity as f64,
        capacity_ratio: 0.0,
        target_ratio,
        effective_target_ratio: 0.0,
        ideal: 0.0,
        final_pg_num: pool.pg_num_target,
        off: false,
        bias: number(pool, PoolOptKey::PG_AUTOSCALE_BIAS).unwrap_or(1.0),
        bulk: pool.has_flag(PgPool::FLAG_BULK),
    };
    Some(Share { pool, osds, group: 0, ratio: 0.0, target })
}

/// Pools that share OSDs.
#[derive(Default)]
struct Group {
    osds: BTreeSet<i32>,
    pools: usize,
    target_ratio: f64,
    /// With copies.
    target_bytes: f64,
}

impl Group {
    /// A target ratio against those of other pools, and without what was promised to others in bytes.
    fn effective(&self, ratio: f64, capacity: u64) -> f64 {
        let ratio = if self.target_ratio > 0.0 { ratio / self.target_ratio } else { ratio };
        match self.target_bytes > 0.0 && capacity > 0 {
            true => ratio * (1.0 - (self.target_bytes / capacity as f64).min(1.0)),
            false => ratio,
        }
    }
}

/// Tells every pool its group.
fn group(shares: &mut [Share<'_>]) -> Vec<Group> {
    let mut sets: Vec<BTreeSet<i32>> = Vec::new();
    for share in shares.iter() {
        let (with, mut without): (Vec<_>, Vec<_>) = std::mem::take(&mut sets).into_iter().partition(|set| !set.is_disjoint(&share.osds));
        without.push(with.into_iter().flatten().chain(share.osds.iter().copied()).collect());
        sets = without;
    }
    let mut groups: Vec<Group> = sets.into_iter().map(|osds| Group { osds, ..Group::default() }).collect();
    for share in shares.iter_mut() {
        share.group = groups.iter().position(|g| !g.osds.is_disjoint(&share.osds)).unwrap_or(0);
        let group = &mut groups[share.group];
        group.pools += 1;
        group.target_ratio += share.target.target_ratio;
        group.target_bytes += share.target.target_bytes as f64 * share.target.raw_used_rate;
    }
    groups
}

fn nearest_power_of_two(n: f64) -> u32 {
    let whole = n.clamp(0.0, 1_048_576.0) as u32;
    if whole == 0 {
        return 0;
    }
    let above = whole.next_power_of_two();
    let below = above / 2;
    if f64::from(above) - n > n - f64::from(below) { below } else { above }
}

/// What is wrong with the numbers of PGs.
pub fn checks(settings: &MgrSettings, map: &OsdMap, pgs: &PgMap, out: &mut HealthMap) {
    let name = |id: PoolId| map.pool_name.get(&id).map_or("", String::as_str);
    let targets = targets(&settings.autoscale, map, pgs);
    let warned = targets.iter().filter(|t| t.off && t.mode == AutoscaleMode::WARN && !settings.autoscale.off);
    let (few, many): (Vec<&Target>, Vec<&Target>) = warned.partition(|t| t.final_pg_num > t.pg_num_target);
    let detail = |t: &&Target| format!("Pool {} has {} placement groups, should have {}", name(t.pool), t.pg_num_target, t.final_pg_num);
    for (code, what, of) in [("POOL_TOO_FEW_PGS", "few", few), ("POOL_TOO_MANY_PGS", "many", many)] {
        if !of.is_empty() {
            let text = format!("{} pools have too {what} placement groups", of.len());
            out.add(code, Severity::Warn, text, of.len() as i64, of.iter().map(detail).collect());
        }
    }
    let both = |pool: &PgPool| number(pool, PoolOptKey::TARGET_SIZE_RATIO) > Some(0.0) && number(pool, PoolOptKey::TARGET_SIZE_BYTES) > Some(0.0);
    let both: Vec<String> = map.pools.iter().filter(|(_, p)| both(p)).map(|(id, _)| format!("Pool {} has target_size_bytes and target_size_ratio set", name(*id))).collect();
    if !both.is_empty() {
        let text = format!("{} pools have both target_size_bytes and target_size_ratio set", both.len());
        out.add("POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO", Severity::Warn, text, both.len() as i64, both);
    }
    let over = overcommitted(&targets, &name);
    if !over.is_empty() {
        let text = format!("{} subtrees have overcommitted pool target_size_bytes", over.len());
        out.add("POOL_TARGET_SIZE_BYTES_OVERCOMMITTED", Severity::Warn, text, over.len() as i64, over);
    }
}

/// Roots of which more was promised than there is.
fn overcommitted<'a>(targets: &[Target], name: &dyn Fn(PoolId) -> &'a str) -> Vec<String> {
    let mut roots: BTreeMap<i32, Vec<&Target>> = BTreeMap::new();
    targets.iter().for_each(|t| roots.entry(t.root).or_default().push(t));
    let list = |of: &mut dyn Iterator<Item = &&Target>| format!("[{}]", of.map(|t| format!("'{}'", name(t.pool))).collect::<Vec<_>>().join(", "));
    let mut out = Vec::new();
    for of in roots.values() {
        let capacity = of.iter().map(|t| t.capacity).max().unwrap_or(0) as f64;
        let promised: f64 = of.iter().map(|t| t.target_bytes as f64 * t.raw_used_rate).sum();
        let total: f64 = of.iter().map(|t| t.actual_raw_used.max(t.target_bytes as f64 * t.raw_used_rate)).sum();
        if promised > 0.0 && total > capacity {
            let by = list(&mut of.iter().filter(|t| t.target_bytes > 0));
            let (all, times, promised) = (list(&mut of.iter()), total / capacity, narrow(promised as u64, 5, 1024));
            out.push(format!("Pools {all} overcommit available storage by {times:.3}x due to target_size_bytes {promised} on pools {by}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pgmap::OsdReport;
    use std::sync::Arc;
    use types::msg::internal::SlowOps;
    use types::pg::{OsdStat, PgStat};
    use types::{Mono, OsdId, PgId, Utime};

    const GIB: i64 = 1 << 30;

    /// Nine OSDs of 100 GiB on three hosts, one of each three nvme; rule 1 takes only these.
    fn cluster() -> (OsdMap, PgMap) {
        let mut map = OsdMap::new(Default::default(), Utime::ZERO);
        map.set_max_osd(9);
        let (mut crush, mut pgs) = (crush::CrushMap::build_default(&[], "host").unwrap(), PgMap::default());
        for osd in 0..9 {
            let place = crush::parse_location([format!("host=h{}", osd / 3), "root=default".to_owned()]).unwrap();
            crush.create_or_move_item(osd, 6400, &format!("osd.{osd}"), &place).unwrap();
            crush.set_device_class(osd, if osd % 3 == 0 { "nvme" } else { "hdd" }).unwrap();
            map.osd_state[osd as usize] = OsdMap::STATE_EXISTS | OsdMap::STATE_UP;
            map.osd_weight[osd as usize] = OsdMap::WEIGHT_IN;
            let mut stat = OsdStat::default();
            stat.statfs.total = 100 * GIB as u64;
            let (perf, pools, config) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            let report = OsdReport { at: Mono(0), stat, pools, perf, perf_before: None, slow_ops: SlowOps::default(), config };
            pgs.osds.insert(OsdId(osd), report);
        }
        let nvme = crush::SimpleRule { name: "nvme", root: "default", failure_domain: "host", class: Some("nvme"), kind: crush::RuleKind::Replicated };
        crush.add_simple_rule(nvme).unwrap();
        map.crush = Arc::new(crush);
        (map, pgs)
    }

    /// A pool of 32 PGs that holds so much.
    fn add(map: &mut OsdMap, pgs: &mut PgMap, id: i64, rule: u8, gib: i64, change: impl FnOnce(&mut PgPool)) {
        let mut pool = PgPool::replicated(3, 32, rule);
        change(&mut pool);
        map.pools.insert(PoolId(id), pool);
        map.pool_name.insert(PoolId(id), format!("p{id}"));
        let mut stat = PgStat::default();
        stat.stats.sum.num_bytes = gib * GIB;
        pgs.pgs.insert(PgId { pool: PoolId(id), seed: 0 }, stat);
    }

    fn wanted(map: &OsdMap, pgs: &PgMap) -> Vec<(i64, u32, bool)> {
        targets(&AutoscaleSettings::default(), map, pgs).iter().map(|t| (t.pool.0, t.final_pg_num, t.would_adjust())).collect()
    }

    fn opt(pool: &mut PgPool, key: PoolOptKey, value: PoolOptValue) {
        pool.opts.0.insert(key, value);
    }

    #[test]
    fn a_pool_gets_its_share_of_the_budget_by_what_it_holds() {
        let (mut map, mut pgs) = cluster();
        add(&mut map, &mut pgs, 1, 0, 0, |_| ());
        assert_eq!(wanted(&map, &pgs), [(1, 32, false)], "empty");
        let (mut map, mut pgs) = cluster();
        add(&mut map, &mut pgs, 1, 0, 150, |_| ());
        assert_eq!(wanted(&map, &pgs), [(1, 128, true)], "half of 900, three copies: 150");
        let (mut map, mut pgs) = cluster();
        add(&mut map, &mut pgs, 1, 0, 150, |p| opt(p, PoolOptKey::PG_NUM_MAX, PoolOptValue::Int(64)));
        assert_eq!(wanted(&map, &pgs), [(1, 64, false)], "not off by more than three");
        let (mut map, mut pgs) = cluster();
        add(&mut map, &mut pgs, 1, 0, 150, |p| p.pg_autoscale_mode = AutoscaleMode::OFF);
        assert_eq!(wanted(&map, &pgs), [(1, 128, false)]);
    }

    #[test]
    fn bulk_pools_share_what_others_leave_and_ratios_speak_for_the_future() {
        let (mut map, mut pgs) = cluster();
        add(&mut map, &mut pgs, 1, 0, 0, |p| p.flags |= PgPool::FLAG_BULK);
        assert_eq!(wanted(&map, &pgs), [(1, 256, true)], "all 900, three copies: 300");
        add(&mut map, &mut pgs, 2, 0, 0, |p| p.flags |= PgPool::FLAG_BULK);
        assert_eq!(wanted(&map, &pgs), [(1, 128, true), (2, 128, true)]);
        let (mut map, mut pgs) = cluster();
        add(&mut map, &mut pgs, 1, 0, 0, |p| opt(p, PoolOptKey::TARGET_SIZE_RATIO, PoolOptValue::Double(3.0)));
        add(&mut map, &mut pgs, 2, 0, 0, |p| opt(p, PoolOptKey::TARGET_SIZE_RATIO, PoolOptValue::Double(1.0)));
        let ratios: Vec<f64> = targets(&AutoscaleSettings::default(), &map, &pgs).iter().map(|t| t.effective_target_ratio).collect();
        assert_eq!(ratios, [0.75, 0.25]);
    }

    #[test]
    fn pools_of_a_class_and_of_all_share_a_budget() {
        let (mut map, mut pgs) = cluster();
        add(&mut map, &mut pgs, 1, 0, 0, |_| ());
        add(&mut map, &mut pgs, 2, 1, 0, |p| p.flags |= PgPool::FLAG_BULK);
        assert_eq!(wanted(&map, &pgs), [(1, 32, false), (2, 128, true)], "three nvme OSDs, 300 PGs, three copies");
    }

    #[test]
    fn chunks_take_less_room_than_copies() {
        let (mut map, mut pgs) = cluster();
        let profile = [("k", "2"), ("m", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        map.erasure_code_profiles.insert("p".to_owned(), profile.into());
        let erasure = |p: &mut PgPool| (p.pool_type, p.erasure_code_profile) = (types::map::PoolType::ERASURE, "p".to_owned());
        add(&mut map, &mut pgs, 1, 0, 300, erasure);
        let target = targets(&AutoscaleSettings::default(), &map, &pgs).remove(0);
        assert_eq!((target.raw_used_rate, target.capacity_ratio, target.final_pg_num), (1.5, 0.5, 128));
        let (mut map, mut pgs) = cluster();
        let large = |p: &mut PgPool| (p.pg_num, p.pg_num_target) = (1024, 1024);
        add(&mut map, &mut pgs, 1, 0, 0, large);
        add(&mut map, &mut pgs, 2, 0, 0, |p| {
            large(p);
            erasure(p);
        });
        assert_eq!(wanted(&map, &pgs), [(1, 32, true), (2, 32, true)]);
    }

    #[test]
    fn health_tells_of_pools_that_are_only_warned_of_and_of_promises_that_cannot_be_kept() {
        let (mut map, mut pgs) = cluster();
        add(&mut map, &mut pgs, 1, 0, 150, |p| p.pg_autoscale_mode = AutoscaleMode::WARN);
        add(&mut map, &mut pgs, 2, 0, 0, |p| {
            opt(p, PoolOptKey::TARGET_SIZE_BYTES, PoolOptValue::Int(400 * GIB));
            opt(p, PoolOptKey::TARGET_SIZE_RATIO, PoolOptValue::Double(0.0));
        });
        let mut out = HealthMap::default();
        checks(&MgrSettings::default(), &map, &pgs, &mut out);
        let reports = format!("{:?}", out.reports());
        assert!(reports.contains("POOL_TOO_FEW_PGS") && reports.contains("Pool p1 has 32 placement groups, should have 128"), "{reports}");
        let over = "Pools ['p1', 'p2'] overcommit available storage by 1.833x due to target_size_bytes";
        assert!(reports.contains("POOL_TARGET_SIZE_BYTES_OVERCOMMITTED") && reports.contains(over), "{reports}");
        assert!(!reports.contains("BYTES_AND_RATIO"));
    }

    #[test]
    fn powers_of_two_are_the_nearest() {
        assert_eq!([0.0, 1.0, 5.0, 6.5, 97.0, 95.0, 100.0].map(nearest_power_of_two), [0, 1, 4, 8, 128, 64, 128]);
    }
}
