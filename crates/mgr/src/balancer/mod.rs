//! The balancer: plans, what it did last, and when it acts by itself.
//!
//! Room: daemon core.   Owns: `Balancer`.   Says: `pg-upmap-items` or weights of the compat weight set, for the monitors.
//! Holds: nothing is moved while PGs are unknown, inactive or degraded, or more is misplaced than may be.
//! Where to look: `model` is the cluster as it sees it, `upmap` which copies move, `compat` which weights change, `eval` how even things are.
//! Upstream: src/pybind/mgr/balancer/module.py.

pub mod compat;
pub mod eval;
pub mod model;
#[cfg(test)]
mod testing;
pub mod upmap;

use crate::core::{Mgr, MgrSettings};
use crate::pgmap::PgMap;
use model::{Change, Model};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use types::map::OsdMap;
use types::pg::PgState;
use types::{Errno, Mono, Now, OsdId, PoolId, Utime};

/// Options of the balancer (`mgr/balancer/...`).
#[derive(Debug, Clone, PartialEq)]
pub struct BalancerSettings {
    pub active: bool,
    /// `upmap`, `crush-compat` or `none`.
    pub mode: String,
    /// Pools it is limited to; none for all.
    pub pool_ids: BTreeSet<PoolId>,
    pub sleep_interval: Duration,
    pub upmap_max_optimizations: u64,
    pub upmap_max_deviation: u64,
    pub crush_compat_max_iterations: u64,
    /// More than 0, less than 1.
    pub crush_compat_step: f64,
    /// From and to when it may act by itself: `HHMM`, in UTC.
    pub begin_time: String,
    pub end_time: String,
    /// From and to which day of the week, 0 for Sunday.
    pub begin_weekday: u64,
    pub end_weekday: u64,
}

impl Default for BalancerSettings {
    fn default() -> Self {
        BalancerSettings {
            active: true,
            mode: "upmap".into(),
            pool_ids: BTreeSet::new(),
            sleep_interval: Duration::from_secs(60),
            upmap_max_optimizations: 10,
            upmap_max_deviation: 5,
            crush_compat_max_iterations: 25,
            crush_compat_step: 0.5,
            begin_time: "0000".into(),
            end_time: "2400".into(),
            begin_weekday: 0,
            end_weekday: 7,
        }
    }
}

impl BalancerSettings {
    /// True if it may act by itself at this time.
    pub fn permits(&self, now: Utime) -> bool {
        let (day, minutes) = (u64::from(now.sec) / 86_400, u64::from(now.sec) / 60 % 1440);
        let time = format!("{:02}{:02}", minutes / 60, minutes % 60);
        // The first day of all was a Thursday.
        let weekday = (day + 4) % 7;
        within(&time, &self.begin_time, &self.end_time) && within(&weekday, &self.begin_weekday, &self.end_weekday)
    }
}

/// Pools as the option has them: numbers, with commas between them.
pub fn pool_ids(text: &str) -> BTreeSet<PoolId> {
    text.split(',').filter_map(|id| id.trim().parse().ok()).map(PoolId).collect()
}

/// True from the first to before the second, over the end of the range if the second is less.
fn within<T: PartialOrd>(at: &T, begin: &T, end: &T) -> bool {
    if begin <= end { begin <= at && at < end } else { begin <= at || at < end }
}

/// A plan that can be looked at before it is carried out.
#[derive(Debug, Clone)]
pub struct Plan {
    pub mode: String,
    /// Pools by name; none for all.
    pub pools: Vec<String>,
    pub map: Arc<OsdMap>,
    pub steps: Vec<Step>,
}

/// One order to the monitors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Upmap(Change),
    /// The compat weight set, with the weights of the buckets.
    MakeWeightSet,
    /// An OSD's weight in it, in 65,536ths.
    Weight(OsdId, u32),
}

impl Step {
    /// What the order does to a map.
    pub fn apply(&self, map: &mut OsdMap) {
        match self {
            Step::Upmap(Change { pg, items }) if items.is_empty() => drop(map.pg_upmap_items.remove(pg)),
            Step::Upmap(Change { pg, items }) => drop(map.pg_upmap_items.insert(*pg, items.clone())),
            // What a map does not take, monitors refuse.
            Step::MakeWeightSet => drop(Arc::make_mut(&mut map.crush).create_weight_set(crush::COMPAT_WEIGHT_SET, 1)),
            Step::Weight(osd, weight) => drop(Arc::make_mut(&mut map.crush).reweight_in_weight_set(crush::COMPAT_WEIGHT_SET, osd.0, &[*weight])),
        }
    }

    /// The order.
    pub fn command(&self) -> String {
        match self {
            Step::Upmap(Change { pg, items }) if items.is_empty() => json!({"prefix": "osd rm-pg-upmap-items", "pgid": pg.to_string(), "format": "json"}),
            Step::Upmap(Change { pg, items }) => {
                let ids: Vec<i32> = items.iter().flat_map(|(from, to)| [from.0, to.0]).collect();
                json!({"prefix": "osd pg-upmap-items", "pgid": pg.to_string(), "id": ids, "format": "json"})
            }
            Step::MakeWeightSet => json!({"prefix": "osd crush weight-set create-compat", "format": "json"}),
            Step::Weight(osd, weight) => {
                json!({"prefix": "osd crush weight-set reweight-compat", "item": format!("osd.{osd}"), "weight": [as_float(*weight)], "format": "json"})
            }
        }
        .to_string()
    }

    /// The order as an operator would type it.
    pub fn typed(&self) -> String {
        match self {
            Step::Upmap(Change { pg, items }) if items.is_empty() => format!("ceph osd rm-pg-upmap-items {pg}"),
            Step::Upmap(Change { pg, items }) => {
                let ids: Vec<String> = items.iter().flat_map(|(from, to)| [from.to_string(), to.to_string()]).collect();
                format!("ceph osd pg-upmap-items {pg} {}", ids.join(" "))
            }
            Step::MakeWeightSet => "ceph osd crush weight-set create-compat".to_owned(),
            Step::Weight(osd, weight) => format!("ceph osd crush weight-set reweight-compat osd.{osd} {:.6}", as_float(*weight)),
        }
    }
}

fn as_float(weight: u32) -> f64 {
    f64::from(weight) / f64::from(crush::ONE)
}

/// What the balancer remembers.
#[derive(Debug, Clone, Default)]
pub struct Balancer {
    pub plans: BTreeMap<String, Plan>,
    pub last_started: Option<Utime>,
    pub result: String,
    pub no_optimization_needed: bool,
    next_run: Mono,
}

const SUCCESS: &str = "Optimization plan created successfully";
const NOTHING_TO_DO: &str = "Unable to find further optimization, or pool(s) pg_num is decreasing, or distribution is already perfect";
const NOTHING_FOUND: &str = "Unable to find further optimization, change balancer mode and retry might help";

impl Mgr {
    /// What the balancer has to say to the monitors now, by itself.
    pub fn balance(&mut self, now: Now) -> Vec<String> {
        let settings = self.settings().balancer.clone();
        if !settings.active || !settings.permits(now.wall) || now.mono < self.balancer.next_run {
            return Vec::new();
        }
        self.balancer.next_run = now.mono + settings.sleep_interval;
        let name = |id: &PoolId| self.osdmap().pool_name.get(id).cloned();
        let pools: Vec<String> = settings.pool_ids.iter().filter_map(name).collect();
        // Only of pools that are gone: all others would be more than was asked for.
        if pools.is_empty() && !settings.pool_ids.is_empty() {
            return Vec::new();
        }
        let plan = self.optimize(now, &pools);
        plan.map_or(Vec::new(), |plan| plan.steps.iter().map(Step::command).collect())
    }

    /// Has the balancer look again at once: an operator changed how it is to work.
    pub fn wake_balancer(&mut self, now: Now) {
        self.balancer.next_run = now.mono;
    }

    /// Makes a plan for these pools, or says why there is none.
    pub(crate) fn optimize(&mut self, now: Now, pools: &[String]) -> Result<Plan, (Errno, String)> {
        self.balancer.last_started = Some(now.wall);
        let plan = plan(self.settings(), self.osdmap_arc(), self.pgs(), pools);
        self.balancer.no_optimization_needed = matches!(&plan, Err((Errno::EALREADY, _)));
        self.balancer.result = match &plan {
            Ok(_) => SUCCESS.to_owned(),
            Err((_, why)) => why.clone(),
        };
        plan
    }

    /// `balancer status`.
    pub(crate) fn balancer_status(&self) -> Value {
        let (b, settings) = (&self.balancer, &self.settings().balancer);
        json!({
            "active": settings.active,
            // Nobody here has a clock to measure it with: a manager's turn takes no time, as it sees it.
            "last_optimize_duration": "",
            "last_optimize_started": b.last_started.map_or(String::new(), asctime), "mode": settings.mode,
            "no_optimization_needed": b.no_optimization_needed, "optimize_result": b.result,
            "plans": b.plans.keys().collect::<Vec<_>>(),
        })
    }
}

fn plan(settings: &MgrSettings, map: Arc<OsdMap>, pgs: &PgMap, pools: &[String]) -> Result<Plan, (Errno, String)> {
    let objects = may_act(settings, pgs)?;
    let options = &settings.balancer;
    if options.mode == "none" {
        return Err((Errno::ENOEXEC, "Please do \"ceph balancer mode\" to choose a valid mode first".into()));
    }
    if map.pools.is_empty() {
        return Err((Errno::ENOENT, "No pools available".into()));
    }
    let only: BTreeSet<PoolId> = pools.iter().filter_map(|name| map.pool_id(name)).collect();
    let steps: Vec<Step> = match options.mode.as_str() {
        "upmap" => {
            let limits = upmap::Limits { moves: options.upmap_max_optimizations, deviation: options.upmap_max_deviation as f64, objects };
            upmap::optimize(&mut Model::new(&map, pgs, &only), &limits).into_iter().map(Step::Upmap).collect()
        }
        "crush-compat" => {
            let limits = compat::Limits { iterations: options.crush_compat_max_iterations, step: options.crush_compat_step, objects };
            compat::optimize(&map, pgs, &limits)
        }
        other => return Err((Errno::EINVAL, format!("Unrecognized mode {other}"))),
    };
    if steps.is_empty() {
        // As in src/pybind/mgr/balancer/module.py: the one is as good as it gets, the other gave up.
        return Err(if options.mode == "upmap" { (Errno::EALREADY, NOTHING_TO_DO.into()) } else { (Errno::EDOM, NOTHING_FOUND.into()) });
    }
    Ok(Plan { mode: options.mode.clone(), pools: pools.to_vec(), map, steps })
}

/// How many objects may be misplaced more, if anything may be.
fn may_act(settings: &MgrSettings, pgs: &PgMap) -> Result<u64, (Errno, String)> {
    let again = |text: String| Err((Errno::EAGAIN, format!("{text}; try again later")));
    let part = |n: usize| n as f64 / pgs.pgs.len().max(1) as f64;
    let count = |test: fn(PgState) -> bool| part(pgs.pgs.values().filter(|s| test(s.state)).count());
    let sum = pgs.object_sum();
    let ratio = |n: i64| if sum.num_object_copies > 0 { n as f64 / sum.num_object_copies as f64 } else { 0.0 };
    let unknown = count(|state| state == PgState::UNKNOWN);
    let inactive = count(|state| !state.has(PgState::ACTIVE));
    let (degraded, misplaced, most) = (ratio(sum.num_objects_degraded), ratio(sum.num_objects_misplaced), settings.max_misplaced_ratio);
    match () {
        () if unknown > 0.0 => again(format!("Some PGs ({unknown:.6}) are unknown")),
        () if degraded > 0.0 => again(format!("Some objects ({degraded:.6}) are degraded")),
        () if inactive > 0.0 => again(format!("Some PGs ({inactive:.6}) are inactive")),
        () if misplaced >= most => again(format!("Too many objects ({misplaced:.6} > {most:.6}) are misplaced")),
        () => Ok(((most - misplaced) * sum.num_object_copies.max(0) as f64) as u64),
    }
}

/// `Tue Nov 24 20:03:29 2026`, in UTC.
fn asctime(t: Utime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let stamp = admin::human::timestamp_z(t);
    let number = |from: usize, to: usize| stamp.get(from..to).and_then(|text| text.parse::<usize>().ok()).unwrap_or(1);
    let day = DAYS[(t.sec / 86_400 % 7) as usize];
    let month = MONTHS[(number(5, 7).max(1) - 1).min(11)];
    format!("{day} {month} {:>2} {} {}", number(8, 10), stamp.get(11..19).unwrap_or_default(), stamp.get(..4).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tuesday, 2026-11-24, 20:03:29.
    const EVENING: Utime = Utime { sec: 1_795_550_609, nsec: 0 };

    #[test]
    fn it_keeps_to_its_hours_and_days() {
        let from_to = |begin: &str, end: &str| BalancerSettings { begin_time: begin.into(), end_time: end.into(), ..Default::default() };
        assert!(BalancerSettings::default().permits(EVENING));
        assert!(from_to("2000", "2100").permits(EVENING) && !from_to("2004", "2100").permits(EVENING));
        assert!(from_to("2000", "0600").permits(EVENING) && !from_to("2200", "0600").permits(EVENING), "over midnight");
        let days = |begin_weekday, end_weekday| BalancerSettings { begin_weekday, end_weekday, ..Default::default() }.permits(EVENING);
        assert!(days(2, 3) && !days(3, 7) && days(6, 3) && !days(6, 2));
    }

    #[test]
    fn times_are_printed_as_stock_prints_them() {
        assert_eq!(asctime(EVENING), "Tue Nov 24 20:03:29 2026");
    }
}
