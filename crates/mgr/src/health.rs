//! What is wrong with PGs, and with OSDs as only they can know.
//!
//! A PG that does not serve is told at once, for then HEALTH_OK would be a lie; only of a new pool's PGs, which nobody
//! uses yet, and of copies too few that lose nothing it is told when it lasts.
//! One whose clients wait for a lease (`laggy`) does not serve either; upstream says nothing of it.
//! Upstream: PGMap::get_health_checks in src/mon/PGMap.cc; SLOW_OPS in src/mgr/DaemonServer.cc.

use crate::core::MgrSettings;
use crate::parents::Limit;
use crate::pgmap::PgMap;
use admin::health::{HealthMap, Severity};
use admin::human::age_between;
use std::collections::{BTreeMap, BTreeSet};
use types::map::{OsdMap, PgPool};
use types::msg::internal::SlowOps;
use types::pg::{NetworkPing, OsdPing, PgState, PgStat};
use types::{Now, OsdId, PgId, Utime};

/// What follows from a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Consequence {
    Unavailable,
    Degraded,
    BackfillFull,
    Damaged,
    RecoveryFull,
}

impl Consequence {
    fn check(self) -> (&'static str, Severity, &'static str) {
        match self {
            Self::Unavailable => ("PG_AVAILABILITY", Severity::Warn, "Reduced data availability: "),
            Self::Degraded => ("PG_DEGRADED", Severity::Warn, "Degraded data redundancy: "),
            Self::BackfillFull => ("PG_BACKFILL_FULL", Severity::Warn, "Backfill waits for space: "),
            Self::Damaged => ("PG_DAMAGED", Severity::Err, "Possible data damage: "),
            Self::RecoveryFull => ("PG_RECOVERY_FULL", Severity::Err, "Full OSDs hold recovery up: "),
        }
    }
}

struct Rule {
    state: PgState,
    /// The state's absence is the trouble.
    inverted: bool,
    consequence: Consequence,
    /// When the PG was last well, for states that may pass by themselves.
    well: Option<fn(&PgStat) -> Utime>,
    /// Counts also before it has lasted, unless the PG is new.
    at_once: bool,
}

const fn at_once(state: PgState, consequence: Consequence) -> Rule {
    Rule { state, inverted: false, consequence, well: None, at_once: true }
}

const fn unless_new(state: PgState, well: fn(&PgStat) -> Utime) -> Rule {
    Rule { state, inverted: false, consequence: Consequence::Unavailable, well: Some(well), at_once: true }
}

const fn when_stuck(state: PgState, consequence: Consequence, well: fn(&PgStat) -> Utime) -> Rule {
    Rule { state, inverted: false, consequence, well: Some(well), at_once: false }
}

/// In the order of the states' bits, which is the order in which a summary names them.
const RULES: &[Rule] = &[
    Rule { inverted: true, ..unless_new(PgState::ACTIVE, |s| s.last_active) },
    at_once(PgState::DOWN, Consequence::Unavailable),
    at_once(PgState::RECOVERY_UNFOUND, Consequence::Damaged),
    at_once(PgState::BACKFILL_UNFOUND, Consequence::Damaged),
    at_once(PgState::DEGRADED, Consequence::Degraded),
    at_once(PgState::INCONSISTENT, Consequence::Damaged),
    unless_new(PgState::PEERING, |s| s.last_peered),
    at_once(PgState::INCOMPLETE, Consequence::Unavailable),
    unless_new(PgState::STALE, |s| s.last_unstale),
    at_once(PgState::BACKFILL_TOOFULL, Consequence::BackfillFull),
    when_stuck(PgState::UNDERSIZED, Consequence::Degraded, |s| s.last_fullsized),
    at_once(PgState::RECOVERY_TOOFULL, Consequence::RecoveryFull),
    at_once(PgState::SNAPTRIM_ERROR, Consequence::Damaged),
    at_once(PgState::LAGGY, Consequence::Unavailable),
];

impl Rule {
    fn name(&self) -> String {
        if self.inverted { "inactive".into() } else { self.state.to_string() }
    }

    fn applies(&self, stat: &PgStat, cutoff: Utime, is_new: bool) -> bool {
        stat.state.has(self.state) != self.inverted && ((self.at_once && !is_new) || self.is_stuck(stat, cutoff))
    }

    fn is_stuck(&self, stat: &PgStat, cutoff: Utime) -> bool {
        match self.well.map(|well| well(stat)) {
            None => true,
            Some(never) if never.is_zero() => stat.last_change < cutoff,
            Some(well) => well < cutoff,
        }
    }

    fn detail(&self, now: Now, cutoff: Utime, pg: PgId, stat: &PgStat) -> String {
        let acting = types::map::osdmap::print_osds(&stat.acting);
        let Some(well) = self.well.map(|well| well(stat)).filter(|_| self.is_stuck(stat, cutoff)) else {
            let unfound = match stat.stats.sum.num_objects_unfound {
                0 => String::new(),
                n => format!(", {n} unfound"),
            };
            return format!("pg {pg} is {}, acting {acting}{unfound}", stat.state);
        };
        let since = match well.is_zero() {
            true => "since forever".to_string(),
            false => format!("for {}", age_between(now.wall, well)),
        };
        format!("pg {pg} is stuck {} {since}, current state {}, last acting {acting}", self.name(), stat.state)
    }
}

#[derive(Default)]
struct Cause {
    states: Vec<(String, i64)>,
    detail: BTreeMap<PgId, String>,
}

/// Everything wrong that the manager can see.
pub fn checks(now: Now, settings: &MgrSettings, map: &OsdMap, pgs: &PgMap) -> HealthMap {
    let mut out = HealthMap::default();
    pg_checks(now, settings, pgs, &mut out);
    object_checks(settings, map, pgs, &mut out);
    skewed_pools(settings, map, pgs, &mut out);
    count_checks(settings, map, pgs, &mut out);
    scrub_checks(now, settings, pgs, &mut out);
    repair_checks(settings, map, pgs, &mut out);
    slow_ops(pgs, &mut out);
    slow_pings(now, settings, map, pgs, &mut out);
    let limits = pgs.parents.limits(now.mono);
    alerts(pgs, &limits, &mut out);
    controllers(&limits, &mut out);
    quota_checks(settings, map, pgs, &mut out);
    crate::autoscale::checks(settings, map, pgs, &mut out);
    if settings.warn_on_pool_no_app {
        pools_without_application(map, pgs, &mut out);
    }
    out
}

fn pg_checks(now: Now, settings: &MgrSettings, pgs: &PgMap, out: &mut HealthMap) {
    let cutoff = Utime::from_duration(now.wall.to_duration().saturating_sub(settings.pg_stuck_threshold));
    let mut causes: BTreeMap<Consequence, Cause> = BTreeMap::new();
    for rule in RULES {
        let hit: Vec<_> = pgs.pgs.iter().filter(|(_, s)| rule.applies(s, cutoff, pgs.is_new(s))).collect();
        if hit.is_empty() {
            continue;
        }
        let cause = causes.entry(rule.consequence).or_default();
        cause.states.push((rule.name(), hit.len() as i64));
        for (pg, stat) in hit {
            if cause.detail.len() < settings.health_max_detail {
                cause.detail.insert(*pg, rule.detail(now, cutoff, *pg, stat));
            }
        }
    }
    let degraded = admin::usage::recovery_lines(&pgs.object_sum());
    for (consequence, cause) in causes {
        let (code, severity, title) = consequence.check();
        let objects = degraded.iter().filter(|l| consequence == Consequence::Degraded && l.contains("degraded"));
        let states = cause.states.iter().map(|(name, n)| format!("{n} {} {name}", if *n > 1 { "pgs" } else { "pg" }));
        let text = objects.cloned().chain(states).collect::<Vec<_>>().join(", ");
        let count = cause.states.iter().map(|(_, n)| n).sum();
        out.add(code, severity, format!("{title}{text}"), count, cause.detail.into_values().collect());
    }
}

fn object_checks(settings: &MgrSettings, map: &OsdMap, pgs: &PgMap, out: &mut HealthMap) {
    let sum = pgs.object_sum();
    if settings.warn_on_misplaced && sum.num_objects_misplaced > 0 && sum.num_object_copies > 0 {
        let ratio = sum.num_objects_misplaced as f64 / sum.num_object_copies as f64 * 100.0;
        let text = format!("{}/{} objects misplaced ({ratio:.3}%)", sum.num_objects_misplaced, sum.num_object_copies);
        out.add("OBJECT_MISPLACED", Severity::Warn, text, sum.num_objects_misplaced, vec![]);
    }
    if sum.num_scrub_errors > 0 {
        let text = format!("{} scrub errors", sum.num_scrub_errors);
        out.add("OSD_SCRUB_ERRORS", Severity::Err, text, sum.num_scrub_errors, vec![]);
    }
    if sum.num_objects_unfound > 0 && sum.num_objects > 0 {
        let ratio = sum.num_objects_unfound as f64 / sum.num_objects as f64 * 100.0;
        let text = format!("{}/{} objects unfound ({ratio:.3}%)", sum.num_objects_unfound, sum.num_objects);
        let unfound = pgs.pgs.iter().filter(|(_, s)| s.stats.sum.num_objects_unfound > 0);
        let detail = unfound.map(|(pg, s)| format!("pg {pg} has {} unfound objects", s.stats.sum.num_objects_unfound));
        out.add("OBJECT_UNFOUND", Severity::Warn, text, sum.num_objects_unfound, detail.collect());
    }
    if sum.num_large_omap_objects > 0 {
        let text = format!("{} large omap objects", sum.num_large_omap_objects);
        let pools = map.pool_name.iter().map(|(id, name)| (pgs.pool(*id).stats.sum.num_large_omap_objects, name));
        let detail = pools.filter(|(n, _)| *n > 0).map(|(n, name)| format!("{n} large objects found in pool '{name}'"));
        out.add("LARGE_OMAP_OBJECTS", Severity::Warn, text, sum.num_large_omap_objects, detail.collect());
    }
}

/// Pools with many more objects in a PG than there are on average: they have too few.
fn skewed_pools(settings: &MgrSettings, map: &OsdMap, pgs: &PgMap, out: &mut HealthMap) {
    let (least_of_pool, least) = settings.skewed_from;
    let all = pgs.object_sum().num_objects;
    let average = all / (pgs.pgs.len() as i64).max(1);
    if settings.object_skew <= 0.0 || average <= 0 || all < least {
        return;
    }
    let skewed = map.pools.iter().filter_map(|(id, pool)| {
        let objects = pgs.pool(*id).stats.sum.num_objects;
        let each = objects / i64::from(pool.pg_num_target.max(1));
        let ratio = each as f64 / average as f64;
        let name = map.pool_name.get(id).map_or("", String::as_str);
        let line = || format!("pool {name} objects per pg ({each}) is more than {} times cluster average ({average})", types::json::general(ratio, 6));
        (objects >= least_of_pool && ratio > settings.object_skew).then(line)
    });
    let detail: Vec<String> = skewed.collect();
    if !detail.is_empty() {
        let text = format!("{} pools have many more objects per pg than average", detail.len());
        out.add("MANY_OBJECTS_PER_PG", Severity::Warn, text, detail.len() as i64, detail);
    }
}

fn count_checks(settings: &MgrSettings, map: &OsdMap, pgs: &PgMap, out: &mut HealthMap) {
    let num_in = map.num_in_osds();
    if num_in == 0 {
        return;
    }
    let copies: usize = pgs.pgs.values().map(|s| s.up.len()).sum();
    let per_osd = copies.max(pgs.pgs.len()) / num_in;
    let most = settings.max_pg_per_osd;
    if most > 0 && per_osd > most {
        let text = format!("too many PGs per OSD ({per_osd} > max {most})");
        out.add("TOO_MANY_PGS", Severity::Warn, text, (per_osd - most) as i64, vec![]);
    }
}

/// PGs whose copies nobody has compared for longer than is usual.
fn scrub_checks(now: Now, settings: &MgrSettings, pgs: &PgMap, out: &mut HealthMap) {
    type Check = (&'static str, &'static str, fn(&PgStat) -> Utime, f64);
    let checks: [Check; 2] = [
        ("PG_NOT_SCRUBBED", "scrubbed", |s| s.last_scrub_stamp, settings.scrub_late_s),
        ("PG_NOT_DEEP_SCRUBBED", "deep-scrubbed", |s| s.last_deep_scrub_stamp, settings.deep_scrub_late_s),
    ];
    for (code, what, last, late_s) in checks {
        let age = |at: Utime| now.wall.to_duration().saturating_sub(at.to_duration()).as_secs_f64();
        let late = |s: &PgStat| late_s > 0.0 && !last(s).is_zero() && age(last(s)) > late_s;
        let found: Vec<_> = pgs.pgs.iter().filter(|(_, s)| late(s)).collect();
        if found.is_empty() {
            continue;
        }
        let detail = found.iter().take(settings.health_max_detail).map(|(pg, s)| format!("pg {pg} not {what} since {}", last(s)));
        let (count, detail) = (found.len() as i64, detail.collect());
        out.add(code, Severity::Warn, format!("{count} pgs not {what} in time"), count, detail);
    }
}

/// Disks that are losing what they hold, though nobody has noticed yet.
fn repair_checks(settings: &MgrSettings, map: &OsdMap, pgs: &PgMap, out: &mut HealthMap) {
    let many = |r: &crate::pgmap::OsdReport| settings.warn_num_repaired > 0 && r.stat.num_shards_repaired > settings.warn_num_repaired;
    let found = pgs.counted(map).filter(|(_, r)| many(r));
    let detail: Vec<String> = found.map(|(osd, r)| format!("osd.{osd} had {} reads repaired", r.stat.num_shards_repaired)).collect();
    if !detail.is_empty() {
        let count = detail.len() as i64;
        out.add("OSD_TOO_MANY_REPAIRS", Severity::Warn, format!("Too many repaired reads on {count} OSDs"), count, detail);
    }
}

fn slow_ops(pgs: &PgMap, out: &mut HealthMap) {
    let slow: Vec<_> = pgs.osds.iter().filter(|(_, r)| r.slow_ops.count > 0).collect();
    if slow.is_empty() {
        return;
    }
    let count: i64 = slow.iter().map(|(_, r)| i64::from(r.slow_ops.count)).sum();
    let oldest = slow.iter().map(|(_, r)| r.slow_ops.oldest_ms).max().unwrap_or(0) / 1000;
    let names: Vec<String> = slow.iter().map(|(osd, _)| format!("osd.{osd}")).collect();
    let who = match names.as_slice() {
        [one] => format!("{one} has slow ops"),
        many => format!("daemons [{}] have slow ops.", many.join(",")),
    };
    let text = format!("{count} slow ops, oldest one blocked for {oldest} sec, {who}");
    let stages = |of: &SlowOps| of.stages.iter().map(|(stage, n)| format!("{n} {stage}")).collect::<Vec<_>>().join(", ");
    let detail = slow.iter().filter(|(_, r)| !r.slow_ops.stages.is_empty()).map(|(osd, r)| format!("osd.{osd}: {}", stages(&r.slow_ops)));
    out.add("SLOW_OPS", Severity::Warn, text, count, detail.collect());
}

/// Networks on which heartbeats are slow, the slowest first.
fn slow_pings(now: Now, settings: &MgrSettings, map: &OsdMap, pgs: &PgMap, out: &mut HealthMap) {
    const LINES_MAX: usize = 10;
    let is_valid = |times: &OsdPing| u64::from(now.wall.sec.saturating_sub(times.last_update_s)) <= settings.pings_valid.as_secs();
    let all = pgs.osds.iter().flat_map(|(from, report)| report.stat.hb_pingtime.iter().map(move |(to, times)| (*from, OsdId(*to), times)));
    let all = all.filter(|(.., times)| is_valid(times)).flat_map(|(from, to, times)| times.networks().map(move |network| (network, from, to)));
    let (mut back, mut front) = (Vec::new(), Vec::new());
    for slow in all.filter(|(network, ..)| settings.slow_ping_us > 0 && u64::from(network.longest_us()) > settings.slow_ping_us) {
        if slow.0.interface == "back" { back.push(slow) } else { front.push(slow) }
    }
    let ms = |network: &NetworkPing| format!("{}.{:03}", network.longest_us() / 1000, network.longest_us() % 1000);
    let place = |osd: OsdId| {
        let above = map.crush.full_location(osd.0).into_iter().filter(|(kind, _)| kind != "root" && *kind != settings.reporter_level);
        let names: BTreeSet<String> = above.map(|(_, name)| name).collect();
        let down = if map.is_up(osd) { "" } else { " (down)" };
        format!("osd.{osd} [{}]{down}", names.into_iter().collect::<Vec<_>>().join(","))
    };
    for (code, interface, mut slow) in [("OSD_SLOW_PING_TIME_BACK", "back", back), ("OSD_SLOW_PING_TIME_FRONT", "front", front)] {
        slow.sort_by_key(|(network, from, to)| std::cmp::Reverse((network.longest_us(), *from, *to)));
        let Some((longest, ..)) = slow.first() else { continue };
        let line = |(network, from, to): &(NetworkPing, OsdId, OsdId)| {
            let (one, five, fifteen) = network.average;
            let improving = if one < five && five < fifteen { " possibly improving" } else { "" };
            format!("Slow OSD heartbeats on {interface} from {} to {} {} msec{improving}", place(*from), place(*to), ms(network))
        };
        let mut detail: Vec<String> = slow.iter().take(LINES_MAX).map(line).collect();
        if slow.len() > LINES_MAX {
            detail.push("Truncated long network list.  `ceph tell osd.* dump_osd_network` has all of it".into());
        }
        out.add(code, Severity::Warn, format!("Slow OSD heartbeats on {interface} (longest {}ms)", ms(longest)), slow.len() as i64, detail);
    }
}

/// What OSDs' stores complain of, by name.
fn alerts(pgs: &PgMap, limits: &[Limit], out: &mut HealthMap) {
    let mut by_name: BTreeMap<&String, Vec<String>> = BTreeMap::new();
    for (osd, report) in &pgs.osds {
        for (name, text) in report.stat.alerts.values().flatten() {
            let shared = if name == "OSD_CAPACITY_MISMATCH" { shared_with(*osd, limits) } else { String::new() };
            by_name.entry(name).or_default().push(format!("osd.{osd} {text}{shared}"));
        }
    }
    for (name, detail) in by_name {
        let title = match name.as_str() {
            "BLUESTORE_SPURIOUS_READ_ERRORS" => "reported read errors".to_string(),
            "OSD_SLOW_FLUSH" => "have devices that are slow at flushes".to_string(),
            "OSD_CAPACITY_MISMATCH" => "have a disk that does twice or half of what is configured".to_string(),
            "BLUEFS_SPILLOVER" => "experiencing BlueFS spillover".to_string(),
            other => format!("reported {}", other.to_lowercase().replace('_', " ")),
        };
        out.add(name, Severity::Warn, format!("{} OSD(s) {title}", detail.len()), detail.len() as i64, detail);
    }
}

/// Whom an OSD's device is held back by.
fn shared_with(osd: OsdId, limits: &[Limit]) -> String {
    let of = |l: &Limit| format!("; it shares {} with {}: {}", l.parent, Limit::names(l.osds.iter().copied().filter(|o| *o != osd)), l.figures());
    limits.iter().filter(|l| l.osds.contains(&osd)).map(of).collect()
}

/// Disks that hold each other back, each of which could do more.
fn controllers(limits: &[Limit], out: &mut HealthMap) {
    let of = |l: &Limit| format!("{} of host {} has {}: {}", l.parent, l.host, Limit::names(l.osds.iter().copied()), l.figures());
    let detail: Vec<String> = limits.iter().filter(|l| l.is_controller).map(of).collect();
    if !detail.is_empty() {
        out.add("OSD_SHARED_CONTROLLER", Severity::Warn, format!("{} controller(s) hold back the disks behind them", detail.len()), detail.len() as i64, detail);
    }
}

/// Pools that come near to their quotas; of those that have reached them the monitor tells.
fn quota_checks(settings: &MgrSettings, map: &OsdMap, pgs: &PgMap, out: &mut HealthMap) {
    let beyond = |used: u64, max: u64, percent: i64| percent > 0 && used as f64 >= max as f64 * percent as f64 / 100.0;
    let (mut full, mut near) = (Quotas::default(), Quotas::default());
    for (id, pool) in map.pools.iter().filter(|(_, pool)| pool.flags & PgPool::FLAG_FULL_QUOTA == 0) {
        let sum = pgs.pool(*id).stats.sum;
        let (objects, bytes) = (sum.num_objects.max(0) as u64, sum.num_bytes.max(0) as u64);
        let quotas = [
            (objects, pool.quota_max_objects, format!("{objects} objects (max {})", pool.quota_max_objects)),
            (bytes, pool.quota_max_bytes, format!("{} (max {})", admin::human::bytes(bytes), admin::human::bytes(pool.quota_max_bytes))),
        ];
        for (used, max, text) in quotas {
            if max == 0 || used >= max {
                continue;
            }
            let list = if beyond(used, max, settings.quota_critical_percent) {
                &mut full
            } else if beyond(used, max, settings.quota_warn_percent) {
                &mut near
            } else {
                continue;
            };
            list.pools.insert(*id);
            list.detail.push(format!("pool '{}' has {text}", map.pool_name.get(id).map_or("", String::as_str)));
        }
    }
    for (list, code, severity, word) in [(full, "POOL_FULL", Severity::Err, "full"), (near, "POOL_NEAR_FULL", Severity::Warn, "nearfull")] {
        let count = list.pools.len();
        if count > 0 {
            out.add(code, severity, format!("{count} pools {word}"), count as i64, list.detail);
        }
    }
}

/// Pools of one kind, and a line for each of their quotas.
#[derive(Default)]
struct Quotas {
    pools: BTreeSet<types::PoolId>,
    detail: Vec<String>,
}

fn pools_without_application(map: &OsdMap, pgs: &PgMap, out: &mut HealthMap) {
    let unused = |(id, pool): (&types::PoolId, &types::map::PgPool)| {
        let used = pgs.pool(*id).stats.sum.num_objects > 0;
        (used && pool.application_metadata.is_empty())
            .then(|| format!("application not enabled on pool '{}'", map.pool_name.get(id).map_or("", String::as_str)))
    };
    let mut detail: Vec<String> = map.pools.iter().filter_map(unused).collect();
    if detail.is_empty() {
        return;
    }
    let count = detail.len() as i64;
    detail.push("say what a pool is for with 'ceph osd pool application enable <pool-name> <app-name>': 'cephfs', 'rbd', 'rgw' or a name of your own".into());
    let text = format!("{count} pool(s) do not have an application enabled");
    out.add("POOL_APP_NOT_ENABLED", Severity::Warn, text, count, detail);
}
