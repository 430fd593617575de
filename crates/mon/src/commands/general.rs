//! The cluster as a whole: its id, state, versions, features.

use super::{Ctx, Entry, entry};
use crate::clocks::{Clock, Clocks};
use crate::cmd::Cmd;
use crate::reply::{Format, Outcome, Reply};
use crate::text;
use crate::{health, version};
use admin::usage;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::map::OsdMap;
use types::pg::{ObjectStatSum, PgState};
use types::{EntityKind, Utime};

pub const COMMANDS: &[Entry] = &[
    entry("fsid", "mon", "r", fsid),
    entry("status", "mon", "r", status),
    entry("version", "mon", "r", version),
    entry("versions", "mon", "r", versions),
    entry("features", "mon", "r", features),
    entry("report", "mon", "r", report),
    entry("node ls", "mon", "r", node_ls),
    entry("time-sync-status", "mon", "r", time_sync_status),
    entry("service dump", "mgr", "r", service_dump),
    entry("service status", "mgr", "r", service_status),
    entry("get_command_descriptions", "", "", get_command_descriptions),
];

fn get_command_descriptions(_: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    Ok(Reply::text(super::specs::mon_descriptions()))
}

fn fsid(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let fsid = ctx.state.monmap.map.fsid.to_string();
    Ok(Reply::either(cmd.format, || format!("{fsid}\n"), || json!({"fsid": fsid})))
}

fn status(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::either(cmd.format, || status_text(ctx), || status_json(ctx)))
}

/// `ceph -s`.
pub fn status_text(ctx: &Ctx<'_>) -> String {
    let checks = health::checks(ctx.state, ctx.env, &ctx.quorum, ctx.now);
    let mutes = &ctx.state.health.mutes;
    let mut out = format!("  cluster:\n    id:     {}\n", ctx.state.monmap.map.fsid);
    out += &format!("    health: {}\n", health::overall(&checks, mutes).name());
    for (_, check) in checks.iter().filter(|(code, _)| !mutes.contains_key(*code)) {
        out += &format!("            {}\n", check.summary);
    }
    if !mutes.is_empty() {
        out += &format!("            (muted: {})\n", mutes.keys().map(String::as_str).collect::<Vec<_>>().join(" "));
    }
    out += " \n  services:\n";
    let map = ctx.osdmap();
    let mut lines = vec![("mon", mon_line(ctx)), ("mgr", mgr_line(ctx)), ("osd", osd_line(&map, ctx.now.wall))];
    for (service, daemons) in ctx.state.mgr.digest.iter().flat_map(|d| &d.services) {
        lines.push((service, format!("{} daemons active", daemons.len())));
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, line) in lines {
        let gap = " ".repeat(width - name.len());
        out += &format!("    {name}: {gap}{}\n", line.replace('\n', &format!("\n      {}", " ".repeat(width))));
    }
    out += " \n  data:\n";
    out += &data_text(ctx);
    out += &io_text(ctx);
    out += &progress_text(ctx);
    out += " \n";
    out
}

fn mon_line(ctx: &Ctx<'_>) -> String {
    let map = &ctx.state.monmap.map;
    let (quorum, age) = (ctx.quorum.names(map).join(","), text::age(ctx.now.mono - ctx.quorum.since));
    let outside: Vec<&str> = ctx.quorum.outside(map).into_iter().map(|(_, name)| name).collect();
    let missing = if outside.is_empty() { String::new() } else { format!(", out of quorum: {}", outside.join(", ")) };
    format!("{} daemons, quorum {quorum} (age {age}){missing}", map.mon_info.len())
}

fn mgr_line(ctx: &Ctx<'_>) -> String {
    let map = &ctx.state.mgr.map;
    if map.active_gid == 0 {
        return "no daemons active".into();
    }
    let state = if map.available { "active" } else { "active, starting" };
    let since = text::age(since(ctx.now.wall, map.active_change));
    let mut out = format!("{}({state}, since {since})", map.active_name);
    if !map.standbys.is_empty() {
        let names: Vec<&str> = map.standbys.values().map(|s| s.name.as_str()).collect();
        out += &format!(", standbys: {}", names.join(", "));
    }
    out
}

/// `3 osds: 3 up (since 2m), 3 in (since 2m)` and what else is to be said of them.
pub fn osd_line(map: &OsdMap, now: Utime) -> String {
    let mut out = osd_counts(map, now);
    let remapped = remapped_pgs(map);
    if remapped > 0 {
        out += &format!("; {remapped} remapped pgs");
    }
    let shown = shown_flags(map);
    if !shown.is_empty() {
        out += &format!("\nflags {shown}");
    }
    out
}

/// The part of `osd stat` that counts.
pub fn osd_counts(map: &OsdMap, now: Utime) -> String {
    let age = |at: Utime| if at.is_zero() { String::new() } else { format!(" (since {})", text::age(since(now, at))) };
    let (n, up, in_) = (map.num_osds(), map.num_up_osds(), map.num_in_osds());
    format!("{n} osds: {up} up{}, {in_} in{}", age(map.last_up_change), age(map.last_in_change))
}

/// Flags worth showing: not those every cluster has.
pub fn shown_flags(map: &OsdMap) -> String {
    let usual = OsdMap::FLAG_SORTBITWISE | OsdMap::FLAG_RECOVERY_DELETES | OsdMap::FLAG_PURGED_SNAPDIRS | OsdMap::FLAG_PGLOG_HARDLIMIT;
    types::map::osdmap::cluster_flags_string(map.flags & !usual)
}

/// PGs whose acting set is not the one CRUSH wants.
pub fn remapped_pgs(map: &OsdMap) -> usize {
    map.pg_temp.len()
}

fn since(now: Utime, at: Utime) -> std::time::Duration {
    now.to_duration().saturating_sub(at.to_duration())
}

/// All PGs of the map, and how many are in which state; those that no manager told us of are unknown.
pub(super) fn pg_counts(ctx: &Ctx<'_>) -> (u64, BTreeMap<String, u64>) {
    let total: u64 = ctx.osdmap().pools.values().map(|p| u64::from(p.pg_num)).sum();
    let mut states: BTreeMap<String, u64> = BTreeMap::new();
    for (bits, n) in ctx.state.mgr.digest.iter().flat_map(|d| &d.pgs_by_state) {
        *states.entry(PgState(*bits).to_string()).or_default() += u64::from(*n);
    }
    let untold = total.saturating_sub(states.values().sum());
    if untold > 0 {
        *states.entry(PgState::UNKNOWN.to_string()).or_default() += untold;
    }
    (total, states)
}

/// How many PGs are unknown, and how many are known and not active.
fn pgs_not_serving(states: &BTreeMap<String, u64>) -> (u64, u64) {
    let count = |f: fn(&str) -> bool| states.iter().filter(|(s, _)| f(s)).map(|(_, n)| n).sum::<u64>();
    (count(|s| s == "unknown"), count(|s| !s.contains("active") && s != "unknown"))
}

pub(super) fn object_sums(ctx: &Ctx<'_>) -> ObjectStatSum {
    let mut sum = ObjectStatSum::default();
    ctx.state.mgr.digest.iter().flat_map(|d| d.pools.values()).for_each(|p| sum.add(&p.stat.stats.sum));
    sum
}

fn data_text(ctx: &Ctx<'_>) -> String {
    let (pgs, states) = pg_counts(ctx);
    let sum = object_sums(ctx);
    let total = ctx.state.mgr.digest.as_ref().map(|d| d.total).unwrap_or_default();
    let mut out = format!("    pools:   {} pools, {pgs} pgs\n", ctx.osdmap().pools.len());
    out += &format!("    objects: {} objects, {}\n", text::si(sum.num_objects.max(0) as u64), text::bytes(sum.num_bytes.max(0) as u64));
    out += &format!(
        "    usage:   {} used, {} / {} avail\n",
        text::bytes(total.used_raw()),
        text::bytes(total.available),
        text::bytes(total.total)
    );
    out += "    pgs:     ";
    let mut lines = trouble_lines(&sum, pgs, &states);
    let mut by_count: Vec<_> = states.into_iter().filter(|(_, n)| *n > 0).collect();
    by_count.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| b.0.cmp(&a.0)));
    let width = by_count.iter().map(|(_, n)| n.to_string().len()).max().unwrap_or(0);
    lines.extend(by_count.iter().map(|(state, n)| format!("{n:<width$} {state}")));
    out += &lines.join("\n             ");
    out.push('\n');
    out
}

fn trouble_lines(sum: &ObjectStatSum, pgs: u64, states: &BTreeMap<String, u64>) -> Vec<String> {
    let mut lines = Vec::new();
    let percent = |n: u64, of: u64| 100.0 * n as f64 / of.max(1) as f64;
    let (unknown, inactive) = pgs_not_serving(states);
    if unknown > 0 && pgs > 0 {
        lines.push(format!("{:.3}% pgs unknown", percent(unknown, pgs)));
    }
    if inactive > 0 && pgs > 0 {
        lines.push(format!("{:.3}% pgs not active", percent(inactive, pgs)));
    }
    lines.extend(usage::recovery_lines(sum));
    lines
}

fn io_text(ctx: &Ctx<'_>) -> String {
    let Some(io) = ctx.state.mgr.digest.as_ref().map(|d| d.io) else { return String::new() };
    let (client, recovery) = (usage::client_io_line(&io), usage::recovery_io_line(&io));
    if client.is_none() && recovery.is_none() {
        return String::new();
    }
    let mut out = " \n  io:\n".to_owned();
    client.iter().for_each(|line| out += &format!("    client:   {line}\n"));
    recovery.iter().for_each(|line| out += &format!("    recovery: {line}\n"));
    out
}

/// What is under way: each event is two lines, the second a bar.
fn progress_text(ctx: &Ctx<'_>) -> String {
    let events = ctx.state.mgr.digest.iter().flat_map(|d| &d.progress).filter(|p| p.add_to_ceph_s);
    let lines: String = events.map(|p| format!("    {}\n", p.message)).collect();
    if lines.is_empty() { lines } else { format!(" \n  progress:\n{lines}") }
}

fn status_json(ctx: &Ctx<'_>) -> Value {
    let checks = health::checks(ctx.state, ctx.env, &ctx.quorum, ctx.now);
    let map = ctx.osdmap();
    let mgr = &ctx.state.mgr.map;
    json!({
        "fsid": ctx.state.monmap.map.fsid.to_string(),
        "health": health::json(&checks, &ctx.state.health.mutes, false),
        "election_epoch": ctx.quorum.term,
        "quorum": ctx.quorum.ranks,
        "quorum_names": ctx.quorum.names(&ctx.state.monmap.map),
        "quorum_age": (ctx.now.mono - ctx.quorum.since).as_secs(),
        "monmap": {
            "epoch": ctx.state.monmap.map.epoch.0,
            "min_mon_release_name": ctx.state.monmap.map.min_mon_release.name(),
            "num_mons": ctx.state.monmap.map.mon_info.len(),
        },
        "osdmap": osd_stat_json(&map),
        "pgmap": pgmap_json(ctx),
        "fsmap": {"epoch": ctx.state.fsmap.map.epoch.0, "by_rank": [], "up:standby": 0},
        "mgrmap": {
            "available": mgr.available,
            "num_standbys": mgr.standbys.len(),
            "modules": mgr.modules,
            "services": mgr.services,
        },
        "servicemap": service_map(ctx),
        "progress_events": progress(ctx),
    })
}

/// `osd stat -f json`.
pub fn osd_stat_json(map: &OsdMap) -> Value {
    json!({
        "epoch": map.epoch.0,
        "num_osds": map.num_osds(),
        "num_up_osds": map.num_up_osds(),
        "osd_up_since": map.last_up_change.sec,
        "num_in_osds": map.num_in_osds(),
        "osd_in_since": map.last_in_change.sec,
        "num_remapped_pgs": remapped_pgs(map),
    })
}

fn pgmap_json(ctx: &Ctx<'_>) -> Value {
    let (pgs, states) = pg_counts(ctx);
    let sum = object_sums(ctx);
    let digest = ctx.state.mgr.digest.as_ref();
    let total = digest.map(|d| d.total).unwrap_or_default();
    let by_state: Vec<Value> = states.iter().filter(|(_, n)| **n > 0).map(|(s, n)| json!({"state_name": s, "count": n})).collect();
    let mut out = json!({
        "pgs_by_state": by_state,
        "num_pgs": pgs,
        "num_pools": ctx.osdmap().pools.len(),
        "num_objects": sum.num_objects,
        "data_bytes": sum.num_bytes,
        "bytes_used": total.used_raw(),
        "bytes_avail": total.available,
        "bytes_total": total.total,
    });
    let Some(fields) = out.as_object_mut() else { return out };
    let (unknown, inactive) = pgs_not_serving(&states);
    for (name, n) in [("unknown_pgs_ratio", unknown), ("inactive_pgs_ratio", inactive)] {
        if n > 0 {
            fields.insert(name.into(), (n as f64 / pgs as f64).into());
        }
    }
    fields.extend(usage::recovery_json(&sum));
    if let Some(io) = digest.map(|d| d.io) {
        fields.extend(usage::recovery_io_json(&io));
        fields.extend(usage::client_io_json(&io));
    }
    out
}

fn progress(ctx: &Ctx<'_>) -> Value {
    let events = ctx.state.mgr.digest.iter().flat_map(|d| &d.progress);
    let event = |p: &types::msg::internal::ProgressReport| {
        let v = json!({"message": p.message, "progress": f64::from(p.done_ppm) / 1e6, "add_to_ceph_s": p.add_to_ceph_s});
        (p.id.clone(), v)
    };
    Value::Object(events.map(event).collect())
}

fn service_map(ctx: &Ctx<'_>) -> Value {
    let digest = ctx.state.mgr.digest.as_ref();
    let services: Map<String, Value> = (digest.iter().flat_map(|d| &d.services))
        .map(|(service, daemons)| {
            let daemons: Map<String, Value> = daemons.iter().map(|(name, m)| (name.clone(), json!({"metadata": m}))).collect();
            (service.clone(), json!({"daemons": daemons}))
        })
        .collect();
    let stamp = digest.map_or(ctx.state.monmap.map.created, |d| d.stamp);
    json!({"epoch": 1, "modified": text::stamp(stamp), "services": services})
}

fn service_dump(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::json(cmd.format, &service_map(ctx)))
}

fn service_status(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::json(cmd.format, &service_map(ctx)["services"]))
}

/// How many of `all` there are of each version.
pub fn count_by<'a>(all: impl Iterator<Item = &'a BTreeMap<String, String>>, property: &str) -> Value {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for metadata in all {
        let value = metadata.get(property).cloned().unwrap_or_else(|| "unknown".into());
        *counts.entry(value).or_default() += 1;
    }
    json!(counts)
}

fn version(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::either(cmd.format, || version::full() + "\n", || json!({"version": version::full()})))
}

fn versions(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let mons: Vec<_> = super::mon::members_metadata(ctx).into_iter().map(|(_, m)| m).collect();
    let osds: Vec<_> = ctx.osdmap().up_osds().filter_map(|o| ctx.state.osdmap.metadata.get(&o)).collect();
    let mgr = ctx.state.mgr.metadata.get(&ctx.state.mgr.map.active_name);
    let v = "ceph_version";
    let all = osds.iter().copied().chain(mgr).chain(&mons);
    let out = json!({
        "mon": count_by(mons.iter(), v),
        "mgr": count_by(mgr.into_iter(), v),
        "osd": count_by(osds.iter().copied(), v),
        "mds": {},
        "overall": count_by(all, v),
    });
    Ok(Reply::json(cmd.format, &out))
}

fn features(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::json(cmd.format, &feature_map(ctx)))
}

/// Who is connected, by kind and features.
pub(super) fn feature_map(ctx: &Ctx<'_>) -> Value {
    let mut kinds: BTreeMap<EntityKind, BTreeMap<u64, u64>> = BTreeMap::new();
    kinds.entry(EntityKind::MON).or_default().insert(types::features::SUPPORTED, ctx.quorum.ranks.len() as u64);
    for session in ctx.sessions.values() {
        *kinds.entry(session.peer.kind).or_default().entry(session.peer.features).or_default() += 1;
    }
    let rows = |groups: &BTreeMap<u64, u64>| -> Vec<Value> {
        let row = |(f, n): (&u64, &u64)| json!({"features": format!("{f:#x}"), "release": release_of(*f), "num": n});
        groups.iter().map(row).collect()
    };
    let order = [EntityKind::MON, EntityKind::MDS, EntityKind::OSD, EntityKind::CLIENT, EntityKind::MGR];
    let out: Map<String, Value> = (order.iter())
        .filter_map(|kind| Some((kind.name().to_owned(), rows(kinds.get(kind)?).into())))
        .collect();
    Value::Object(out)
}

/// The oldest release with these features, as far as upstream tells them apart.
pub(super) fn release_of(features: u64) -> &'static str {
    if features & types::features::SERVER_LUMINOUS == types::features::SERVER_LUMINOUS { "luminous" } else { "jewel" }
}

fn node_ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let host = |m: Option<&BTreeMap<String, String>>| m.and_then(|m| m.get("hostname")).cloned().unwrap_or_default();
    let mut osds: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for osd in ctx.osdmap().osds() {
        osds.entry(host(ctx.state.osdmap.metadata.get(&osd))).or_default().push(osd.0);
    }
    let mut mons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, metadata) in super::mon::members_metadata(ctx) {
        mons.entry(host(Some(&metadata))).or_default().push(name);
    }
    let mon = json!(mons);
    let mut mgrs: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in ctx.state.mgr.map.all_names() {
        mgrs.entry(host(ctx.state.mgr.metadata.get(name))).or_default().push(name);
    }
    let mgr = json!(mgrs);
    let out = match cmd.text("type")? {
        "" | "all" => json!({"mon": mon, "osd": osds, "mgr": mgr}),
        "mon" => mon,
        "osd" => json!(osds),
        "mgr" => mgr,
        _ => json!({}),
    };
    Ok(Reply::json(cmd.format, &out))
}

fn time_sync_status(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let clocks = &ctx.quorum.clocks;
    let mut out = Map::new();
    let one = |(name, clock): (&String, &Clock)| {
        let complaint = Clocks::complaint(clock, ctx.env, ctx.state);
        let health = if complaint.is_some() { "HEALTH_WARN" } else { "HEALTH_OK" };
        let mut v = json!({"skew": clock.skew, "latency": clock.latency, "health": health});
        if let (Some(details), Some(fields)) = (complaint, v.as_object_mut()) {
            fields.insert("details".into(), details.into());
        }
        (name.clone(), v)
    };
    // One that is alone has nobody to compare with.
    if clocks.seen.len() > 1 {
        out.insert("time_skew_status".into(), Value::Object(clocks.seen.iter().map(one).collect()));
    }
    out.insert("timechecks".into(), json!({"epoch": ctx.quorum.term, "round": clocks.round, "round_status": "finished"}));
    Ok(Reply::json(cmd.format, &Value::Object(out)))
}

fn report(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let checks = health::checks(ctx.state, ctx.env, &ctx.quorum, ctx.now);
    let map = ctx.osdmap();
    let osd_metadata: Vec<Value> = ctx.state.osdmap.metadata.iter().map(|(id, m)| super::osd::metadata_json(*id, m)).collect();
    let (pgs, states) = pg_counts(ctx);
    let out = json!({
        "cluster_fingerprint": ctx.state.monmap.map.fsid.to_string(),
        "version": version::short(),
        "commit": version::COMMIT,
        "timestamp": text::stamp(ctx.now.wall),
        "tag": "",
        "health": health::json(&checks, &ctx.state.health.mutes, true),
        "monmap_first_committed": 1,
        "monmap_last_committed": ctx.state.monmap.map.epoch.0,
        "monmap": super::mon::monmap_json(ctx),
        "quorum": ctx.quorum.ranks,
        "osdmap_first_committed": ctx.state.osdmap.first.0,
        "osdmap_last_committed": map.epoch.0,
        "osdmap": map.dump_json(),
        "osd_metadata": osd_metadata,
        "crushmap": map.crush.dump_json(),
        "mgrmap": super::mgr::dump_json(ctx),
        "num_pg": pgs,
        "num_pg_states": states,
        "paxos": {"first_committed": ctx.log_range.0, "last_committed": ctx.log_range.1},
    });
    let body = crate::reply::render_json(if cmd.format == Format::Json { Format::Json } else { Format::JsonPretty }, &out);
    // Upstream prints the crc so that reports sent by mail can be checked.
    let crc = denc::crc32c_append(!0, body.as_bytes()) ^ !0;
    Ok(Reply { status: format!("report {crc}"), ..Reply::text(body) })
}
