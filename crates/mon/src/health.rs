//! Health: what is wrong, in Ceph's codes, computed from the services whenever someone asks.
//!
//! Upstream: src/mon/health_check.h, src/mon/HealthMonitor.cc, OSDMap::check_health.

use crate::clocks::{Clock, Clocks, text};
use crate::env::{Env, Quorum};
use crate::mon::Mon;
use crate::services::State;
use crate::services::health::Mute;
use crate::services::log::CLUSTER;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use store::Kv;
use types::map::{MonMap, OsdMap, PgPool};
use types::msg::LogPrio;
use types::{Now, OsdId};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Ok,
    Warn,
    Err,
}

impl Severity {
    /// `HEALTH_OK`, ...
    pub fn name(self) -> &'static str {
        match self {
            Severity::Ok => "HEALTH_OK",
            Severity::Warn => "HEALTH_WARN",
            Severity::Err => "HEALTH_ERR",
        }
    }

    fn short(self) -> &'static str {
        match self {
            Severity::Ok => "OK",
            Severity::Warn => "WRN",
            Severity::Err => "ERR",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub severity: Severity,
    pub summary: String,
    /// How many things are concerned.
    pub count: i64,
    pub detail: Vec<String>,
}

/// Checks by code.
pub type Checks = BTreeMap<String, Check>;

/// The checks as they were a second ago, to log what changes.
#[derive(Debug, Default)]
pub struct Watch {
    last: Checks,
    was_bad: bool,
}

/// Everything that is wrong now.
pub fn checks(state: &State, env: &Env, quorum: &Quorum, now: Now) -> Checks {
    let mut all = Checks::new();
    let map = &state.osdmap.map;
    mons_down(&state.monmap.map, quorum, &mut all);
    clocks_apart(state, env, quorum, &mut all);
    crate::room::checks(state, quorum, &mut all);
    osds_down(map, &mut all);
    osds_full(map, &mut all);
    flags(map, &mut all);
    pools(state, env, &mut all);
    pg_numbers(state, env, &mut all);
    never_out(state, env, &mut all);
    too_few_osds(state, env, &mut all);
    manager(state, now, &mut all);
    pgs_untold(state, &mut all);
    for report in state.mgr.digest.iter().flat_map(|d| &d.health) {
        let severity = if report.severity >= 2 { Severity::Err } else { Severity::Warn };
        let check = Check { severity, summary: report.summary.clone(), count: report.count, detail: report.detail.clone() };
        merge(&mut all, &report.code, check);
    }
    all
}

/// The manager's word, and ours where both see pools that are full: the monitor by their flags, the manager by thresholds of quotas.
fn merge(all: &mut Checks, code: &str, told: Check) {
    match all.get_mut(code).filter(|_| code == "POOL_FULL") {
        Some(ours) => {
            ours.severity = ours.severity.max(told.severity);
            ours.count += told.count;
            ours.summary = format!("{} pool(s) full", ours.count);
            ours.detail.extend(told.detail);
        }
        None => drop(all.insert(code.to_owned(), told)),
    }
}

pub(crate) fn add(all: &mut Checks, code: &str, severity: Severity, count: usize, summary: String, detail: Vec<String>) {
    all.insert(code.to_owned(), Check { severity, summary, count: count as i64, detail });
}

fn mons_down(map: &MonMap, quorum: &Quorum, all: &mut Checks) {
    let down = quorum.outside(map);
    if down.is_empty() {
        return;
    }
    let addrs = |name: &str| map.mon_info.get(name).map(|m| m.public_addrs.to_string()).unwrap_or_default();
    let line = |(rank, name): &(usize, &str)| format!("mon.{name} (rank {rank}) addr {} is down (out of quorum)", addrs(name));
    let summary = format!("{}/{} mons down, quorum {}", down.len(), map.ranks.len(), quorum.names(map).join(","));
    add(all, "MON_DOWN", Severity::Warn, down.len(), summary, down.iter().map(line).collect());
}

fn clocks_apart(state: &State, env: &Env, quorum: &Quorum, all: &mut Checks) {
    let apart = |(name, clock): (&String, &Clock)| Some((name.clone(), Clocks::complaint(clock, env, state)?, text(clock.latency)));
    let found: Vec<_> = quorum.clocks.seen.iter().filter_map(apart).collect();
    if found.is_empty() {
        return;
    }
    let names: Vec<String> = found.iter().map(|(name, ..)| format!("mon.{name}")).collect();
    let detail = found.iter().map(|(name, complaint, latency)| format!("mon.{name} {complaint} (latency {latency}s)")).collect();
    add(all, "MON_CLOCK_SKEW", Severity::Warn, found.len(), format!("clock skew detected on {}", names.join(", ")), detail);
}

fn osds_down(map: &OsdMap, all: &mut Checks) {
    let down: Vec<OsdId> = map.osds().filter(|o| map.is_down(*o) && map.is_in(*o)).collect();
    if down.is_empty() {
        return;
    }
    let path = |osd: &OsdId| map.crush.full_location(osd.0).into_iter().rev().map(|(t, n)| format!("{t}={n}")).collect::<Vec<_>>().join(",");
    let detail = down.iter().map(|o| format!("osd.{o} ({}) is down", path(o))).collect();
    add(all, "OSD_DOWN", Severity::Warn, down.len(), format!("{} osds down", down.len()), detail);
    for (kind, code_name) in map.crush.type_names.iter().filter(|(id, _)| **id > 0) {
        subtrees_down(map, *kind, code_name, all);
    }
}

/// Buckets of a type all of whose OSDs that are in are down.
fn subtrees_down(map: &OsdMap, kind: i32, name: &str, all: &mut Checks) {
    let mut detail = Vec::new();
    let mut osds = 0;
    for bucket in map.crush.iter_buckets().filter(|b| i32::from(b.kind) == kind && !map.crush.is_shadow(b.id)) {
        let inside: Vec<OsdId> = map.crush.leaves(bucket.id).into_iter().map(OsdId).filter(|o| map.exists(*o)).collect();
        if inside.is_empty() || inside.iter().any(|o| map.is_up(*o)) || !inside.iter().any(|o| map.is_in(*o)) {
            continue;
        }
        osds += inside.len();
        let place: Vec<String> = map.crush.full_location(bucket.id).into_iter().rev().map(|(t, n)| format!("{t}={n}")).collect();
        let called = map.crush.name(bucket.id).unwrap_or_default();
        detail.push(format!("{name} {called} ({}) ({} osds) is down", place.join(","), inside.len()));
    }
    if !detail.is_empty() {
        let plural = if detail.len() > 1 { "s" } else { "" };
        let summary = format!("{} {name}{plural} ({osds} osds) down", detail.len());
        add(all, &format!("OSD_{}_DOWN", name.to_uppercase()), Severity::Warn, detail.len(), summary, detail);
    }
}

fn osds_full(map: &OsdMap, all: &mut Checks) {
    let kinds = [
        (OsdMap::STATE_FULL, "OSD_FULL", "full", Severity::Err),
        (OsdMap::STATE_BACKFILLFULL, "OSD_BACKFILLFULL", "backfillfull", Severity::Warn),
        (OsdMap::STATE_NEARFULL, "OSD_NEARFULL", "nearfull", Severity::Warn),
    ];
    for (bit, code, word, severity) in kinds {
        let hit: Vec<OsdId> = map.osds().filter(|o| map.counts_as_full(*o, bit)).collect();
        if !hit.is_empty() {
            let article = if word == "nearfull" { "near full" } else if word == "backfillfull" { "backfill full" } else { word };
            let detail = hit.iter().map(|o| format!("osd.{o} is {article}")).collect();
            add(all, code, severity, hit.len(), format!("{} {word} osd(s)", hit.len()), detail);
        }
    }
    let mut detail = Vec::new();
    let pairs = [("nearfull", map.nearfull_ratio, "backfillfull", map.backfillfull_ratio), ("backfillfull", map.backfillfull_ratio, "full", map.full_ratio)];
    for (low, a, high, b) in pairs {
        if a > b {
            detail.push(format!("{high}_ratio ({b}) < {low}_ratio ({a}), increased"));
        }
    }
    if !detail.is_empty() {
        add(all, "OSD_OUT_OF_ORDER_FULL", Severity::Err, 0, "full ratio(s) out of order".into(), detail);
    }
}

fn flags(map: &OsdMap, all: &mut Checks) {
    let warn = OsdMap::FLAG_PAUSERD
        | OsdMap::FLAG_PAUSEWR
        | OsdMap::FLAG_PAUSEREC
        | OsdMap::FLAG_NOUP
        | OsdMap::FLAG_NODOWN
        | OsdMap::FLAG_NOIN
        | OsdMap::FLAG_NOOUT
        | OsdMap::FLAG_NOBACKFILL
        | OsdMap::FLAG_NORECOVER
        | OsdMap::FLAG_NOSCRUB
        | OsdMap::FLAG_NODEEP_SCRUB
        | OsdMap::FLAG_NOTIERAGENT
        | OsdMap::FLAG_NOSNAPTRIM
        | OsdMap::FLAG_NOREBALANCE
        | OsdMap::FLAG_FULL;
    if map.flags & warn != 0 {
        let names = types::map::osdmap::cluster_flags_string(map.flags & warn);
        add(all, "OSDMAP_FLAGS", Severity::Warn, names.split(',').count(), format!("{names} flag(s) set"), Vec::new());
    }
    let mut detail = Vec::new();
    for osd in map.osds() {
        push_flags(&mut detail, &format!("osd.{osd}"), map.state(osd));
    }
    for (node, bits) in &map.crush_node_flags {
        push_flags(&mut detail, map.crush.name(*node).unwrap_or("?"), *bits);
    }
    for (class, bits) in &map.device_class_flags {
        let name = map.crush.class_names.get(class).map_or("?", String::as_str);
        push_flags(&mut detail, &format!("device class '{name}'"), *bits);
    }
    if !detail.is_empty() {
        let summary = format!("{} OSDs or CRUSH {{nodes, device-classes}} have {{NOUP,NODOWN,NOIN,NOOUT}} flags set", detail.len());
        add(all, "OSD_FLAGS", Severity::Warn, detail.len(), summary, detail);
    }
}

fn push_flags(detail: &mut Vec<String>, who: &str, bits: u32) {
    let guards = [(OsdMap::STATE_NOUP, "noup"), (OsdMap::STATE_NODOWN, "nodown"), (OsdMap::STATE_NOIN, "noin"), (OsdMap::STATE_NOOUT, "noout")];
    let names: Vec<&str> = guards.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    if !names.is_empty() {
        detail.push(format!("{who} has flags {}", names.join(",")));
    }
}

fn pools(state: &State, env: &Env, all: &mut Checks) {
    let map = &state.osdmap.map;
    let name = |id| map.pool_name.get(id).map_or("?", String::as_str);
    let bare: Vec<String> =
        map.pools.iter().filter(|(_, p)| p.size == 1 && !p.is_erasure()).map(|(id, _)| format!("pool '{}' has no replicas configured", name(id))).collect();
    if !bare.is_empty() && env.bool(state, "mon_warn_on_pool_no_redundancy", true) {
        add(all, "POOL_NO_REDUNDANCY", Severity::Warn, bare.len(), format!("{} pool(s) have no replicas configured", bare.len()), bare);
    }
    let full = |flag: u64| map.pools.iter().filter(move |(_, p)| p.flags & flag != 0);
    let detail: Vec<String> = full(PgPool::FLAG_FULL)
        .map(|(id, p)| {
            let why = if p.has_flag(PgPool::FLAG_FULL_QUOTA) { "running out of quota" } else { "no space" };
            format!("pool '{}' is full ({why})", name(id))
        })
        .collect();
    if !detail.is_empty() {
        add(all, "POOL_FULL", Severity::Warn, detail.len(), format!("{} pool(s) full", detail.len()), detail);
    }
    for (flag, code, word) in [(PgPool::FLAG_BACKFILLFULL, "POOL_BACKFILLFULL", "backfillfull"), (PgPool::FLAG_NEARFULL, "POOL_NEARFULL", "nearfull")] {
        let detail: Vec<String> = full(flag).map(|(id, _)| format!("pool '{}' is {word}", name(id))).collect();
        if !detail.is_empty() {
            add(all, code, Severity::Warn, detail.len(), format!("{} pool(s) {word}", detail.len()), detail);
        }
    }
    unused_pools(state, env, all);
}

/// Pools whose placement groups are of unequal size, or lie where fewer of them would; and pools that are not scrubbed, which is nothing wrong.
fn pg_numbers(state: &State, env: &Env, all: &mut Checks) {
    let map = &state.osdmap.map;
    let pools = || map.pools.iter().map(|(id, pool)| (map.pool_name.get(id).map_or("?", String::as_str), pool));
    let uneven = pools().filter(|(_, pool)| !pool.pg_num_target.is_power_of_two());
    let detail: Vec<String> = uneven.map(|(name, pool)| format!("pool '{name}' pg_num {} is not a power of two", pool.pg_num_target)).collect();
    if !detail.is_empty() && env.bool(state, "mon_warn_on_pool_pg_num_not_power_of_two", true) {
        let summary = format!("{} pool(s) have non-power-of-two pg_num", detail.len());
        add(all, "POOL_PG_NUM_NOT_POWER_OF_TWO", Severity::Warn, detail.len(), summary, detail);
    }
    let fewer = pools().filter(|(_, pool)| pool.pgp_num_target < pool.pg_num_target);
    let detail: Vec<String> = fewer.map(|(name, pool)| format!("pool {name} pg_num {} > pgp_num {}", pool.pg_num_target, pool.pgp_num_target)).collect();
    if !detail.is_empty() {
        add(all, "SMALLER_PGP_NUM", Severity::Warn, detail.len(), format!("{} pools have pg_num > pgp_num", detail.len()), detail);
    }
    let flags = [(PgPool::FLAG_NOSCRUB, "noscrub"), (PgPool::FLAG_NODEEP_SCRUB, "nodeep-scrub")];
    let lines = pools().flat_map(|(name, pool)| flags.iter().filter(|(flag, _)| pool.has_flag(*flag)).map(move |(_, word)| format!("Pool {name} has {word} flag")));
    let detail: Vec<String> = lines.collect();
    if !detail.is_empty() {
        let set: Vec<&str> = flags.iter().filter(|(flag, _)| pools().any(|(_, pool)| pool.has_flag(*flag))).map(|(_, word)| *word).collect();
        add(all, "POOL_SCRUB_FLAGS", Severity::Ok, 0, format!("Some pool(s) have the {} flag(s) set", set.join(", ")), detail);
    }
}

/// An interval of 0 is like the flag `noout`, and harder to find.
fn never_out(state: &State, env: &Env, all: &mut Checks) {
    if env.bool(state, "mon_warn_on_osd_down_out_interval_zero", true) && env.seconds(state, "mon_osd_down_out_interval", 600).is_zero() {
        let what = format!("mon.{} has mon_osd_down_out_interval set to 0", env.name);
        add(all, "OSD_NO_DOWN_OUT_INTERVAL", Severity::Warn, 1, format!("mon {} has mon_osd_down_out_interval set to 0", env.name), vec![what]);
    }
}

/// Pools with data that nobody said what it is.
fn unused_pools(state: &State, env: &Env, all: &mut Checks) {
    let Some(digest) = state.mgr.digest.as_ref() else { return };
    if !env.bool(state, "mon_warn_on_pool_no_app", true) {
        return;
    }
    let map = &state.osdmap.map;
    let has_data = |id| digest.pools.get(id).is_some_and(|p| p.stat.stats.sum.num_objects > 0);
    let name = |id| map.pool_name.get(id).map_or("?", String::as_str);
    let mut detail: Vec<String> = (map.pools.iter())
        .filter(|(id, pool)| pool.application_metadata.is_empty() && has_data(id))
        .map(|(id, _)| format!("application not enabled on pool '{}'", name(id)))
        .collect();
    if detail.is_empty() {
        return;
    }
    let n = detail.len();
    detail.push(
        "use 'ceph osd pool application enable <pool-name> <app-name>', where <app-name> is 'cephfs', 'rbd', 'rgw', or \
         freeform for custom applications."
            .into(),
    );
    add(all, "POOL_APP_NOT_ENABLED", Severity::Warn, n, format!("application not enabled on {n} pool(s)"), detail);
}

fn too_few_osds(state: &State, env: &Env, all: &mut Checks) {
    let have = state.osdmap.map.num_osds() as i64;
    let want = env.int(state, "osd_pool_default_size", 3);
    if have < want && env.bool(state, "mon_warn_on_too_few_osds", true) {
        let summary = format!("OSD count {have} < osd_pool_default_size {want}");
        add(all, "TOO_FEW_OSDS", Severity::Warn, (want - have).max(0) as usize, summary, Vec::new());
    }
}

fn manager(state: &State, now: Now, all: &mut Checks) {
    let map = &state.mgr.map;
    if map.active_gid != 0 && map.available {
        return;
    }
    let since = if map.active_change.is_zero() { state.monmap.map.created } else { map.active_change };
    let for_long = now.wall.to_duration().saturating_sub(since.to_duration());
    let ever = !map.active_change.is_zero();
    // A new cluster, and one whose manager just restarts, are given time (`mon_mgr_mkfs_grace`, `mon_mgr_inactive_grace`).
    let severity = match () {
        () if !ever && for_long < Duration::from_secs(120) => return,
        () if ever && map.active_gid != 0 && for_long < Duration::from_secs(30) => return,
        () if ever && for_long > Duration::from_secs(60) => Severity::Err,
        () => Severity::Warn,
    };
    add(all, "MGR_DOWN", severity, 1, "no active mgr".into(), Vec::new());
}

/// PGs of which nobody has told us since we started: a monitor must not call well what it knows nothing of. Stock keeps
/// the digest over a restart, and says for seconds that PGs are active whose OSDs are dead.
fn pgs_untold(state: &State, all: &mut Checks) {
    let pgs: u32 = state.osdmap.map.pools.values().map(|p| p.pg_num).sum();
    if state.mgr.digest.is_none() && pgs > 0 {
        let plural = if pgs > 1 { "s" } else { "" };
        let summary = format!("Reduced data availability: {pgs} pg{plural} inactive");
        let detail = vec!["no manager has reported the state of any pg since this monitor started".into()];
        add(all, "PG_AVAILABILITY", Severity::Warn, pgs as usize, summary, detail);
    }
}

/// The worst of the checks that nobody muted.
pub fn overall(checks: &Checks, mutes: &BTreeMap<String, Mute>) -> Severity {
    checks.iter().filter(|(code, _)| !mutes.contains_key(*code)).map(|(_, c)| c.severity).max().unwrap_or(Severity::Ok)
}

/// `ceph health` in one line.
pub fn line(checks: &Checks, mutes: &BTreeMap<String, Mute>) -> String {
    let mut out = overall(checks, mutes).name().to_owned();
    let parts: Vec<&str> = checks.iter().filter(|(code, _)| !mutes.contains_key(*code)).map(|(_, c)| c.summary.as_str()).collect();
    if !parts.is_empty() {
        out += " ";
        out += &parts.join("; ");
    }
    if !mutes.is_empty() {
        let codes: Vec<&str> = mutes.keys().map(String::as_str).collect();
        out += if parts.is_empty() { " " } else { "; " };
        out += &format!("(muted: {})", codes.join(" "));
    }
    out
}

/// `ceph health detail`.
pub fn detail_text(checks: &Checks, mutes: &BTreeMap<String, Mute>) -> String {
    let mut out = line(checks, mutes) + "\n";
    for (code, check) in checks {
        let muted = match mutes.get(code) {
            None => "",
            Some(m) if m.sticky => "(MUTED, STICKY) ",
            Some(_) => "(MUTED) ",
        };
        out += &format!("{muted}[{}] {code}: {}\n", check.severity.short(), check.summary);
        check.detail.iter().for_each(|d| out += &format!("    {d}\n"));
    }
    out
}

/// The checks as JSON shows them.
pub fn json(checks: &Checks, mutes: &BTreeMap<String, Mute>, detail: bool) -> Value {
    let check = |(code, c): (&String, &Check)| {
        let mut v = Map::new();
        v.insert("severity".into(), c.severity.name().into());
        v.insert("summary".into(), json!({"message": c.summary, "count": c.count}));
        if detail {
            v.insert("detail".into(), c.detail.iter().map(|d| json!({"message": d})).collect());
        }
        v.insert("muted".into(), mutes.contains_key(code).into());
        (code.clone(), Value::Object(v))
    };
    let mute = |(code, m): (&String, &Mute)| {
        let mut v = Map::new();
        v.insert("code".into(), code.as_str().into());
        if !m.until.is_zero() {
            v.insert("ttl".into(), crate::text::stamp(m.until).into());
        }
        v.insert("sticky".into(), m.sticky.into());
        v.insert("summary".into(), m.summary.as_str().into());
        v.insert("count".into(), m.count.into());
        Value::Object(v)
    };
    json!({
        "status": overall(checks, mutes).name(),
        "checks": checks.iter().map(check).collect::<Map<_, _>>(),
        "mutes": mutes.iter().map(mute).collect::<Vec<_>>(),
    })
}

/// Logs what changed within the last second, and ends mutes that are over.
pub fn tick<K: Kv>(mon: &mut Mon<K>, now: Now) {
    let Some(state) = mon.state.as_mut() else { return };
    let checks = checks(state, &mon.env, &mon.quorum, now);
    let over: Vec<String> = (state.health.mutes.iter())
        .filter(|(code, m)| mute_is_over(m, checks.get(*code), now))
        .map(|(code, _)| code.clone())
        .collect();
    over.iter().for_each(|code| state.health.unmute(code, &mut mon.txn));
    let last = std::mem::replace(&mut mon.health.last, checks.clone());
    let mut lines = Vec::new();
    for (code, check) in &checks {
        let prio = match check.severity {
            Severity::Err => LogPrio::ERROR,
            Severity::Warn => LogPrio::WARN,
            Severity::Ok => LogPrio::INFO,
        };
        match last.get(code) {
            None => lines.push((prio, format!("Health check failed: {} ({code})", check.summary))),
            Some(old) if old.summary != check.summary || old.severity != check.severity => {
                lines.push((prio, format!("Health check update: {} ({code})", check.summary)));
            }
            Some(_) => {}
        }
    }
    for (code, old) in last.iter().filter(|(code, _)| !checks.contains_key(*code)) {
        lines.push((LogPrio::INFO, format!("Health check cleared: {code} (was: {})", old.summary)));
    }
    let bad = checks.values().any(|check| check.severity > Severity::Ok);
    if std::mem::replace(&mut mon.health.was_bad, bad) && !bad {
        lines.push((LogPrio::INFO, "Cluster is now healthy".into()));
    }
    lines.into_iter().for_each(|(prio, line)| mon.log(now, CLUSTER, prio, line));
}

fn mute_is_over(mute: &Mute, check: Option<&Check>, now: Now) -> bool {
    let expired = !mute.until.is_zero() && mute.until < now.wall;
    let cleared = !mute.sticky && check.is_none_or(|c| c.count > mute.count);
    expired || cleared
}
