//! `osd reweight-by-utilization`, `reweight-by-pg` and their dry runs: the weights of OSDs that are too full go down, and up again
//! where there is room.
//!
//! Upstream: reweight::by_utilization in src/mon/PGMap.cc.

use crate::core::Mgr;
use crate::pgmap::PgMap;
use admin::human::general;
use admin::spread::Spread;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use types::map::OsdMap;
use types::{Errno, OsdId, PoolId};

/// What was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// An OSD counts as too full from this percentage of the average on.
    pub overload: i64,
    pub max_change: f64,
    pub max_osds: i64,
    /// Count PGs, of `pools` (none for all), and not bytes.
    pub by_pg: bool,
    pub pools: BTreeSet<PoolId>,
    pub no_increasing: bool,
}

/// What would change.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    request: Request,
    average: f64,
    overload: f64,
    /// In the order in which they are decided: OSD, weight, new weight.
    pub weights: Vec<(OsdId, u32, u32)>,
    spread: Spread,
}

/// The least that there has to be for averages to mean something.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Least {
    /// `mon_reweight_min_pgs_per_osd`.
    pub pgs_per_osd: u64,
    /// `mon_reweight_min_bytes_per_osd`.
    pub bytes_per_osd: u64,
}

impl Mgr {
    /// What a request comes to.
    pub(crate) fn reweight(&self, request: Request) -> Result<Outcome, (Errno, String)> {
        let settings = self.settings();
        let least = Least { pgs_per_osd: settings.reweight_min_pgs_per_osd, bytes_per_osd: settings.reweight_min_bytes_per_osd };
        plan(self.osdmap(), self.pgs(), request, least)
    }
}

/// What a request comes to. Errors: the reason why there is nothing to go by.
pub fn plan(map: &OsdMap, pgs: &PgMap, request: Request, least: Least) -> Result<Outcome, (Errno, String)> {
    if request.overload <= 100 {
        let text = "You must give a percentage higher than 100. The reweighting threshold will be calculated as <average-utilization> times \
                    <input-percentage>. For example, an argument of 200 would reweight OSDs which are twice as utilized as the average OSD.\n";
        return Err((Errno::EINVAL, text.into()));
    }
    let (average, mut used) = if request.by_pg { by_pg(map, pgs, &request.pools, least)? } else { by_bytes(map, pgs, least)? };
    // The one that is furthest off comes first.
    used.sort_by(|a, b| (b.1 - average).abs().total_cmp(&(a.1 - average).abs()).then(a.0.cmp(&b.0)));
    let overload = average * request.overload as f64 / 100.0;
    let most = (request.max_change * f64::from(OsdMap::WEIGHT_IN)) as u32;
    let change = |(osd, used): &(OsdId, f64)| {
        let weight = map.weight(*osd);
        let wanted = (average / used * f64::from(weight)) as u32;
        match weight {
            0 => None,
            _ if *used >= overload => Some((*osd, weight, if weight > most { wanted.max(weight - most) } else { wanted })),
            _ if request.no_increasing || *used > average => None,
            _ => Some((*osd, weight, wanted.min(weight.saturating_add(most)).min(OsdMap::WEIGHT_IN))).filter(|(_, old, new)| new > old),
        }
    };
    let weights: Vec<_> = used.iter().filter_map(change).take(usize::try_from(request.max_osds).unwrap_or(0)).collect();
    let mut next = map.clone();
    for (osd, _, weight) in &weights {
        if let Some(slot) = usize::try_from(osd.0).ok().and_then(|at| next.osd_weight.get_mut(at)) {
            *slot = *weight;
        }
    }
    let spread = Spread::new(map, Some(&next), &request.pools).ok_or_else(|| (Errno::EDOM, "Refusing to reweight: no OSD is up and in!\n".to_owned()))?;
    Ok(Outcome { request, average, overload, weights, spread })
}

type Used = (f64, Vec<(OsdId, f64)>);

/// Copies per CRUSH weight, on average and by OSD.
fn by_pg(map: &OsdMap, pgs: &PgMap, pools: &BTreeSet<PoolId>, least: Least) -> Result<Used, (Errno, String)> {
    let weight = |osd: OsdId| f64::from(map.crush.item_weight(osd.0).unwrap_or(0)) / f64::from(crush::ONE);
    let mut counts: BTreeMap<OsdId, u64> = BTreeMap::new();
    for (_, stat) in pgs.pgs.iter().filter(|(pg, _)| pools.is_empty() || pools.contains(&pg.pool)) {
        for osd in stat.acting.iter().filter(|osd| map.exists(**osd) && weight(**osd) > 0.0) {
            *counts.entry(*osd).or_default() += 1;
        }
    }
    let (copies, osds) = (counts.values().sum::<u64>(), counts.len() as u64);
    if osds == 0 || copies / osds < least.pgs_per_osd {
        return Err((Errno::EDOM, format!("Refusing to reweight: we only have {copies} PGs across {osds} osds!\n")));
    }
    let sum: f64 = counts.keys().map(|osd| weight(*osd)).sum();
    Ok((copies as f64 / sum, counts.into_iter().map(|(osd, n)| (osd, n as f64 / weight(osd))).collect()))
}

/// How full OSDs are, together and each.
fn by_bytes(map: &OsdMap, pgs: &PgMap, least: Least) -> Result<Used, (Errno, String)> {
    let sum = pgs.osd_sum(map).statfs;
    let osds = pgs.osds.len().max(1) as u64;
    let few = |bytes: u64, used: &str| Err((Errno::EDOM, format!("Refusing to reweight: we only have {} kb{used} across all osds!\n", bytes >> 10)));
    if sum.total / osds < least.bytes_per_osd {
        return few(sum.total, "");
    }
    if sum.used_raw() / osds < least.bytes_per_osd {
        return few(sum.used_raw(), " used");
    }
    let used = pgs.osds.iter().filter(|(_, r)| r.stat.statfs.total > 0);
    Ok((sum.used_raw_ratio(), used.map(|(osd, r)| (*osd, r.stat.statfs.used_raw_ratio())).collect()))
}

fn part(weight: u32) -> f64 {
    f64::from(weight) / f64::from(OsdMap::WEIGHT_IN)
}

impl Outcome {
    /// As it is printed.
    pub fn text(&self) -> String {
        let line = |(osd, old, new): &(OsdId, u32, u32)| format!("osd.{osd} weight {:.4} -> {:.4}\n", part(*old), part(*new));
        format!(
            "{}\noload {}\nmax_change {}\nmax_change_osds {}\naverage_utilization {:.4}\noverload_utilization {:.4}\n{}",
            self.spread.text(),
            self.request.overload,
            general(self.request.max_change, 6),
            self.request.max_osds,
            self.average,
            self.overload,
            self.weights.iter().map(line).collect::<String>()
        )
    }

    /// The same as JSON.
    pub fn json(&self) -> Value {
        let one = |(osd, old, new): &(OsdId, u32, u32)| json!({"osd": osd.0, "weight": part(*old), "new_weight": part(*new)});
        json!({
            "overload_min": self.request.overload, "max_change": self.request.max_change, "max_change_osds": self.request.max_osds,
            "average_utilization": self.average, "overload_utilization": self.overload,
            "reweights": self.weights.iter().map(one).collect::<Vec<_>>(), "utilization": self.spread.json(),
        })
    }

    /// The command that makes it so.
    pub fn order(&self) -> String {
        let weights: BTreeMap<String, String> = self.weights.iter().map(|(osd, _, new)| (osd.to_string(), new.to_string())).collect();
        json!({"prefix": "osd reweightn", "weights": json!(weights).to_string()}).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pgmap::OsdReport;
    use std::sync::Arc;
    use types::map::PgPool;
    use types::msg::internal::SlowOps;
    use types::pg::{OsdStat, PgStat};
    use types::{Mono, PgId, Utime};

    const GIB: u64 = 1 << 30;
    const LEAST: Least = Least { pgs_per_osd: 10, bytes_per_osd: 100 << 20 };

    /// Four OSDs of 100 GiB, so full (in GiB), with a pool of 64 PGs.
    fn cluster(used: [u64; 4]) -> (OsdMap, PgMap) {
        let mut map = OsdMap::new(Default::default(), Utime::ZERO);
        map.set_max_osd(4);
        map.crush = Arc::new(crush::CrushMap::build_default(&[(0, "a", 6400), (1, "b", 6400), (2, "c", 6400), (3, "d", 6400)], "osd").unwrap());
        map.pools.insert(PoolId(1), PgPool::replicated(2, 64, 0));
        let mut pgs = PgMap::default();
        for (osd, used) in used.into_iter().enumerate() {
            map.osd_state[osd] = OsdMap::STATE_EXISTS | OsdMap::STATE_UP;
            map.osd_weight[osd] = OsdMap::WEIGHT_IN;
            let mut stat = OsdStat::default();
            (stat.statfs.total, stat.statfs.available) = (100 * GIB, (100 - used) * GIB);
            let (perf, pools, config) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            let report = OsdReport { at: Mono(0), stat, pools, perf, perf_before: None, slow_ops: SlowOps::default(), config };
            pgs.osds.insert(OsdId(osd as i32), report);
        }
        for pg in map.pgs(PoolId(1)) {
            pgs.pgs.insert(pg, PgStat { acting: map.pg_to_up_acting(pg).acting, ..PgStat::default() });
        }
        (map, pgs)
    }

    fn request() -> Request {
        Request { overload: 120, max_change: 0.05, max_osds: 4, by_pg: false, pools: BTreeSet::new(), no_increasing: false }
    }

    #[test]
    fn full_osds_go_down_by_no_more_than_they_may_and_others_up_to_one() {
        let (mut map, pgs) = cluster([90, 60, 40, 10]);
        map.osd_weight[3] = OsdMap::WEIGHT_IN / 2;
        let out = plan(&map, &pgs, request(), LEAST).unwrap();
        assert_eq!(out.weights.iter().map(|(osd, ..)| osd.0).collect::<Vec<_>>(), [0, 3, 1], "the furthest off first");
        assert_eq!(out.weights[0], (OsdId(0), 0x10000, 0x10000 - 3276));
        assert_eq!(out.weights[1], (OsdId(3), 0x8000, 0x8000 + 3276), "osd.2 is at one");
        let text = out.text();
        assert!(text.starts_with("moved "), "{text}");
        assert!(text.contains("\n\noload 120\nmax_change 0.05\nmax_change_osds 4\naverage_utilization 0.5000\noverload_utilization 0.6000\nosd.0 weight 1.0000 -> 0.9500\n"), "{text}");
        assert_eq!(out.order(), r#"{"prefix":"osd reweightn","weights":"{\"0\":\"62260\",\"1\":\"62260\",\"3\":\"36044\"}"}"#);
        let down = plan(&map, &pgs, Request { no_increasing: true, max_osds: 1, ..request() }, LEAST).unwrap();
        assert_eq!(down.weights.len(), 1);
        assert_eq!(down.json()["reweights"][0]["osd"], 0);
    }

    #[test]
    fn averages_of_nothing_are_refused() {
        let (map, pgs) = cluster([0, 0, 0, 0]);
        let why = |request: Request| plan(&map, &pgs, request, LEAST).unwrap_err();
        assert_eq!(why(request()), (Errno::EDOM, "Refusing to reweight: we only have 0 kb used across all osds!\n".into()));
        assert_eq!(why(Request { overload: 100, ..request() }).0, Errno::EINVAL);
        let other = BTreeSet::from([PoolId(9)]);
        assert_eq!(why(Request { by_pg: true, pools: other, ..request() }).1, "Refusing to reweight: we only have 0 PGs across 0 osds!\n");
    }

    #[test]
    fn by_pg_counts_copies() {
        let (map, mut pgs) = cluster([0, 0, 0, 0]);
        for seed in 0..48 {
            pgs.pgs.get_mut(&PgId { pool: PoolId(1), seed }).unwrap().acting = vec![OsdId(0), OsdId(1)];
        }
        let out = plan(&map, &pgs, Request { by_pg: true, ..request() }, LEAST).unwrap();
        let lowered: BTreeSet<i32> = out.weights.iter().filter(|(_, old, new)| new < old).map(|(osd, ..)| osd.0).collect();
        assert_eq!(lowered, BTreeSet::from([0, 1]));
    }
}
