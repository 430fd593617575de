//! Flags, ratios, weights: what operators set on the osdmap.

use super::osd::{existing_arg, parse_osd};
use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use crate::text;
use std::collections::BTreeMap;
use std::time::Duration;
use types::map::{OsdMap, Release};
use types::{AddrKind, EntityAddr, EntityKind, Errno, OsdId, PgId};

pub const COMMANDS: &[Entry] = &[
    entry("osd set", "osd", "rw", set),
    entry("osd unset", "osd", "rw", unset),
    entry("osd pause", "osd", "rw", |c, _| pause(c, true)),
    entry("osd unpause", "osd", "rw", |c, _| pause(c, false)),
    entry("osd set-full-ratio", "osd", "rw", |c, m| ratio(c, m, "set-full-ratio")),
    entry("osd set-nearfull-ratio", "osd", "rw", |c, m| ratio(c, m, "set-nearfull-ratio")),
    entry("osd set-backfillfull-ratio", "osd", "rw", |c, m| ratio(c, m, "set-backfillfull-ratio")),
    entry("osd set-require-min-compat-client", "osd", "rw", set_min_compat_client),
    entry("osd require-osd-release", "osd", "rw", require_osd_release),
    entry("osd setmaxosd", "osd", "rw", setmaxosd),
    entry("osd reweight", "osd", "rw", reweight),
    entry("osd reweightn", "osd", "rw", reweightn),
    entry("osd primary-affinity", "osd", "rw", primary_affinity),
    entry("osd blocklist", "osd", "rw", blocklist),
    entry("osd blacklist", "osd", "rw", blocklist),
    entry("osd blocklist clear", "osd", "rw", blocklist_clear),
    entry("osd blacklist clear", "osd", "rw", blocklist_clear),
    entry("osd set-group", "osd", "rw", |c, m| group(c, m, true)),
    entry("osd unset-group", "osd", "rw", |c, m| group(c, m, false)),
    entry("osd add-noup", "osd", "rw", |c, m| guard(c, m, OsdMap::STATE_NOUP, true)),
    entry("osd add-nodown", "osd", "rw", |c, m| guard(c, m, OsdMap::STATE_NODOWN, true)),
    entry("osd add-noin", "osd", "rw", |c, m| guard(c, m, OsdMap::STATE_NOIN, true)),
    entry("osd add-noout", "osd", "rw", |c, m| guard(c, m, OsdMap::STATE_NOOUT, true)),
    entry("osd rm-noup", "osd", "rw", |c, m| guard(c, m, OsdMap::STATE_NOUP, false)),
    entry("osd rm-nodown", "osd", "rw", |c, m| guard(c, m, OsdMap::STATE_NODOWN, false)),
    entry("osd rm-noin", "osd", "rw", |c, m| guard(c, m, OsdMap::STATE_NOIN, false)),
    entry("osd rm-noout", "osd", "rw", |c, m| guard(c, m, OsdMap::STATE_NOOUT, false)),
    entry("osd pg-temp", "osd", "rw", pg_temp),
    entry("osd primary-temp", "osd", "rw", primary_temp),
];

/// Flags of the map that a command may turn on and off.
fn settable(key: &str) -> Option<u32> {
    Some(match key {
        "pause" => OsdMap::FLAG_PAUSERD | OsdMap::FLAG_PAUSEWR,
        "noup" => OsdMap::FLAG_NOUP,
        "nodown" => OsdMap::FLAG_NODOWN,
        "noout" => OsdMap::FLAG_NOOUT,
        "noin" => OsdMap::FLAG_NOIN,
        "nobackfill" => OsdMap::FLAG_NOBACKFILL,
        "norebalance" => OsdMap::FLAG_NOREBALANCE,
        "norecover" => OsdMap::FLAG_NORECOVER,
        "noscrub" => OsdMap::FLAG_NOSCRUB,
        "nodeep-scrub" => OsdMap::FLAG_NODEEP_SCRUB,
        "notieragent" => OsdMap::FLAG_NOTIERAGENT,
        "nosnaptrim" => OsdMap::FLAG_NOSNAPTRIM,
        "pglog_hardlimit" => OsdMap::FLAG_PGLOG_HARDLIMIT,
        _ => return None,
    })
}

fn flag_of(cmd: &Cmd) -> Result<(u32, String), Reply> {
    let key = cmd.text("key")?;
    let flag = settable(key).ok_or_else(|| Reply::err(Errno::EINVAL, format!("unrecognized flag '{key}'")))?;
    Ok((flag, types::map::osdmap::cluster_flags_string(flag)))
}

fn set(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    // Flags every cluster of this release has.
    if ["sortbitwise", "recovery_deletes", "require_jewel_osds", "require_kraken_osds"].contains(&cmd.text("key")?) {
        return Ok(Reply::status(format!("{} is set", cmd.text("key")?)));
    }
    let (flag, name) = flag_of(cmd)?;
    let flags = ctx.osdmap().flags;
    if flags & flag != flag {
        ctx.state.osdmap.change().new_flags = Some(flags | flag);
    }
    Ok(Reply::status(format!("{name} is set")))
}

fn unset(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (flag, name) = flag_of(cmd)?;
    if flag == OsdMap::FLAG_PGLOG_HARDLIMIT {
        return Err(Reply::err(Errno::EINVAL, format!("unrecognized flag '{}'", cmd.text("key")?)));
    }
    let flags = ctx.osdmap().flags;
    if flags & flag != 0 {
        ctx.state.osdmap.change().new_flags = Some(flags & !flag);
    }
    Ok(Reply::status(format!("{name} is unset")))
}

/// `osd pause` and `osd unpause`: old names of a flag.
fn pause(ctx: &mut Ctx<'_>, on: bool) -> Outcome {
    let (bits, flags) = (OsdMap::FLAG_PAUSERD | OsdMap::FLAG_PAUSEWR, ctx.osdmap().flags);
    let wanted = if on { flags | bits } else { flags & !bits };
    if wanted != flags {
        ctx.state.osdmap.change().new_flags = Some(wanted);
    }
    let name = types::map::osdmap::cluster_flags_string(bits);
    Ok(Reply::status(format!("{name} is {}", if on { "set" } else { "unset" })))
}

fn ratio(ctx: &mut Ctx<'_>, cmd: &Cmd, which: &str) -> Outcome {
    let ratio = cmd.float("ratio")?.ok_or_else(|| Reply::err(Errno::EINVAL, "unable to parse 'ratio' value"))?;
    if !(0.0..=1.0).contains(&ratio) {
        return Err(Reply::err(Errno::EINVAL, "ratio must be between 0.0 and 1.0"));
    }
    let inc = ctx.state.osdmap.change();
    let field = match which {
        "set-full-ratio" => &mut inc.new_full_ratio,
        "set-nearfull-ratio" => &mut inc.new_nearfull_ratio,
        _ => &mut inc.new_backfillfull_ratio,
    };
    *field = Some(ratio as f32);
    Ok(Reply::status(format!("osd {which} {}", text::short_float(ratio))))
}

fn set_min_compat_client(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let version = cmd.text("version")?;
    let release = Release::from_name(version).ok_or_else(|| Reply::err(Errno::EINVAL, format!("version {version} is not recognized")))?;
    let needed = ctx.osdmap().min_compat_client();
    if release < needed {
        let text = format!("osdmap current utilizes features that require {needed}; cannot set require_min_compat_client below that to {release}");
        return Err(Reply::err(Errno::EPERM, text));
    }
    let older = older_than(ctx, release);
    if !older.is_empty() && !cmd.flag("yes_i_really_mean_it") {
        let text = format!("cannot set require_min_compat_client to {version}: {}; add --yes-i-really-mean-it to do it anyway", older.join("; "));
        return Err(Reply::err(Errno::EPERM, text));
    }
    ctx.state.osdmap.change().new_require_min_compat_client = Some(release);
    Ok(Reply::status(format!("set require_min_compat_client to {version}")))
}

/// Clients that lack what a release has, as operators are told of them.
fn older_than(ctx: &Ctx<'_>, release: Release) -> Vec<String> {
    let needs = types::features::of_release(release);
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    for peer in ctx.sessions.values().map(|s| &s.peer).filter(|p| p.kind == EntityKind::CLIENT && needs & !p.features != 0) {
        *counts.entry(peer.features).or_default() += 1;
    }
    let line = |(features, n): (&u64, &u32)| {
        let looks = super::general::release_of(*features);
        format!("{n} connected client(s) look like {looks} (missing 0x{:x})", needs & !features)
    };
    counts.iter().map(line).collect()
}

fn require_osd_release(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = cmd.text("release")?;
    let release = Release::from_name(name).ok_or_else(|| Reply::err(Errno::EINVAL, format!("unrecognized release {name}")))?;
    let now = ctx.osdmap().require_osd_release;
    if release == now {
        return Ok(Reply::ok());
    }
    if release < now {
        return Err(Reply::err(Errno::EPERM, "require_osd_release cannot be lowered once it has been set"));
    }
    Err(Reply::err(Errno::EPERM, "not all up OSDs have this release's feature"))
}

fn setmaxosd(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let newmax = cmd.int("newmax")?.filter(|n| *n >= 0).ok_or_else(|| Reply::err(Errno::EINVAL, "unable to parse 'newmax' value"))?;
    if newmax > ctx.int_option("mon_max_osd", 10_000) {
        let max = ctx.int_option("mon_max_osd", 10_000);
        return Err(Reply::err(Errno::ERANGE, format!("cannot set max_osd to {newmax} which is > conf.mon_max_osd ({max})")));
    }
    let map = ctx.osdmap();
    if let Some(osd) = map.osds().find(|o| i64::from(o.0) >= newmax) {
        let text = format!("cannot shrink max_osd to {newmax} because osd.{osd} (and possibly others) still in use");
        return Err(Reply::err(Errno::EBUSY, text));
    }
    ctx.state.osdmap.change().new_max_osd = Some(newmax as i32);
    Ok(Reply::status(format!("set new max_osd = {newmax}")))
}

/// A weight from 0 to `most` in 16.16 fixed point.
fn fixed(weight: f64) -> u32 {
    (weight * 65536.0) as u32
}

fn reweight(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let weight = cmd.float("weight")?.ok_or_else(|| Reply::err(Errno::EINVAL, "unable to parse weight value"))?;
    if !(0.0..=1.0).contains(&weight) {
        return Err(Reply::err(Errno::EINVAL, format!("weight {} is not between 0 and 1", text::short_float(weight))));
    }
    let osd = existing_arg(ctx, cmd)?;
    ctx.state.osdmap.change().new_weight.insert(osd, fixed(weight));
    Ok(Reply::status(format!("reweighted osd.{osd} to {} ({:x})", text::short_float(weight), fixed(weight))))
}

fn reweightn(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let bad = || Reply::err(Errno::EINVAL, "unable to parse 'weights' value");
    let weights: serde_json::Map<String, serde_json::Value> = serde_json::from_str(cmd.text("weights")?).map_err(|_| bad())?;
    let map = ctx.osdmap();
    let mut parsed = Vec::new();
    for (name, value) in &weights {
        let osd = parse_osd(name).filter(|o| map.exists(*o)).ok_or_else(bad)?;
        let value = value.as_u64().or_else(|| value.as_str().and_then(|s| s.parse().ok())).ok_or_else(bad)?;
        parsed.push((osd, u32::try_from(value).map_err(|_| bad())?));
    }
    ctx.state.osdmap.change().new_weight.extend(parsed);
    Ok(Reply::status(format!("reweighted {} OSDs", weights.len())))
}

fn primary_affinity(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let weight = cmd.float("weight")?.ok_or_else(|| Reply::err(Errno::EINVAL, "unable to parse 'weight' value"))?;
    if !(0.0..=1.0).contains(&weight) {
        return Err(Reply::err(Errno::EINVAL, "weight must be >= 0.0 and <= 1.0"));
    }
    let osd = existing_arg(ctx, cmd)?;
    let value = fixed(weight);
    ctx.state.osdmap.change().new_primary_affinity.insert(osd, value);
    // Upstream means to print the value in hex, and prints the manipulators' numbers around it.
    Ok(Reply::status(format!("set osd.{osd} primary-affinity to {} (8{value}2)", text::short_float(weight))))
}

/// An address as clients write it: `1.2.3.4:0/123`, with or without `v1:`, `v2:`, port and nonce.
pub fn parse_addr(text: &str) -> Option<EntityAddr> {
    let bare = text.trim_start_matches("v1:").trim_start_matches("v2:").trim_start_matches("any:");
    let (sock, nonce) = bare.split_once('/').unwrap_or((bare, "0"));
    let sock = sock.parse().ok().or_else(|| Some(std::net::SocketAddr::new(sock.parse().ok()?, 0)))?;
    Some(EntityAddr { kind: AddrKind::ANY, nonce: nonce.parse().ok()?, sock: Some(sock) })
}

fn blocklist(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let op = match cmd.str("blocklistop")? {
        Some(op) => op,
        None => cmd.text("blacklistop")?,
    };
    let addr_text = cmd.text("addr")?;
    let addr = parse_addr(addr_text).ok_or_else(|| Reply::err(Errno::EINVAL, format!("unable to parse address {addr_text}")))?;
    let listed = ctx.state.osdmap.blocklisted().contains(&addr);
    match op {
        "add" => {
            let default = ctx.env.seconds(ctx.state, "mon_osd_blocklist_default_expire", 3600);
            let secs = cmd.float("expire")?.filter(|s| *s >= 0.0).map_or(default, |s| Duration::from_secs_f64(s.min(1e9)));
            let until = ctx.state.osdmap.blocklist(ctx.now, addr, secs, ctx.txn);
            let secs = text::short_float(secs.as_secs_f64());
            Ok(Reply::status(format!("blocklisting {addr} until {} ({secs} sec)", text::stamp(until))))
        }
        "rm" if listed => {
            ctx.state.osdmap.unblocklist(addr);
            Ok(Reply::status(format!("un-blocklisting {addr}")))
        }
        "rm" => Ok(Reply::status(format!("{addr} isn't blocklisted"))),
        _ => Err(Reply::err(Errno::EINVAL, format!("unrecognized operation '{op}'"))),
    }
}

fn blocklist_clear(ctx: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    for addr in ctx.state.osdmap.blocklisted() {
        ctx.state.osdmap.unblocklist(addr);
    }
    Ok(Reply::status(" removed all blocklist entries"))
}

fn guard_bits(flags: &str) -> Result<u32, Reply> {
    flags.split(',').try_fold(0, |bits, name| {
        let bit = match name {
            "noup" => OsdMap::STATE_NOUP,
            "nodown" => OsdMap::STATE_NODOWN,
            "noin" => OsdMap::STATE_NOIN,
            "noout" => OsdMap::STATE_NOOUT,
            _ => return Err(Reply::err(Errno::EINVAL, format!("unrecognized flag(s): {name}"))),
        };
        Ok(bits | bit)
    })
}

/// Guards of OSDs, CRUSH buckets and device classes.
fn group(ctx: &mut Ctx<'_>, cmd: &Cmd, on: bool) -> Outcome {
    let bits = guard_bits(cmd.text("flags")?)?;
    let map = ctx.osdmap();
    let apply = |old: u32| if on { old | bits } else { old & !bits };
    for who in cmd.list("who")? {
        if let Some(osd) = parse_osd(&who).filter(|o| map.exists(*o)) {
            set_guard(ctx, osd, bits, on);
        } else if ["any", "all", "*"].contains(&who.as_str()) {
            map.osds().for_each(|osd| set_guard(ctx, osd, bits, on));
        } else if let Some(class) = map.crush.class_id(&who) {
            let new = apply(map.device_class_flags.get(&class).copied().unwrap_or(0));
            ctx.state.osdmap.change().new_device_class_flags.insert(class, new);
        } else if let Some(node) = map.crush.item(&who).filter(|id| *id < 0) {
            let new = apply(map.crush_node_flags.get(&node).copied().unwrap_or(0));
            ctx.state.osdmap.change().new_crush_node_flags.insert(node, new);
        } else {
            return Err(Reply::err(Errno::EINVAL, format!("unable to parse osd id or crush node or device class: \"{who}\". ")));
        }
    }
    Ok(Reply::ok())
}

fn set_guard(ctx: &mut Ctx<'_>, osd: OsdId, bits: u32, on: bool) {
    let (set, clear) = if on { (bits, 0) } else { (0, bits) };
    ctx.state.osdmap.change_state(osd, set, clear);
}

fn guard(ctx: &mut Ctx<'_>, cmd: &Cmd, bit: u32, on: bool) -> Outcome {
    let (osds, complaints) = super::osd_life::osds_arg(ctx, cmd)?;
    osds.into_iter().for_each(|osd| set_guard(ctx, osd, bit, on));
    Ok(Reply::status(complaints))
}

pub(super) fn pgid(ctx: &Ctx<'_>, cmd: &Cmd) -> Result<PgId, Reply> {
    let text = cmd.text("pgid")?;
    let pg: PgId = text.parse().map_err(|()| Reply::err(Errno::EINVAL, format!("invalid pgid '{text}'")))?;
    let map = ctx.osdmap();
    match map.pools.get(&pg.pool).is_some_and(|p| pg.seed < p.pg_num) {
        true => Ok(pg),
        false => Err(Reply::err(Errno::ENOENT, format!("pgid '{pg}' does not exist"))),
    }
}

fn osd_list(ctx: &Ctx<'_>, cmd: &Cmd) -> Result<Vec<OsdId>, Reply> {
    let map = ctx.osdmap();
    let one = |text: &String| match parse_osd(text) {
        Some(osd) if map.exists(osd) => Ok(osd),
        Some(osd) => Err(Reply::err(Errno::ENOENT, format!("osd.{osd} does not exist"))),
        None => Err(Reply::err(Errno::EINVAL, format!("unable to parse osd id value '{text}'"))),
    };
    cmd.list("id")?.iter().map(one).collect()
}

fn join(osds: &[OsdId]) -> String {
    osds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn pg_temp(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (pg, osds) = (pgid(ctx, cmd)?, osd_list(ctx, cmd)?);
    let status = format!("set {pg} pg_temp mapping to [{}]", join(&osds));
    ctx.state.osdmap.change().new_pg_temp.insert(pg, osds);
    Ok(Reply::status(status))
}

fn primary_temp(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let pg = pgid(ctx, cmd)?;
    let osd = osd_list(ctx, cmd)?.first().copied().unwrap_or(OsdId::NONE);
    ctx.state.osdmap.change().new_primary_temp.insert(pg, osd);
    Ok(Reply::status(format!("set {pg} primary_temp mapping to {osd}")))
}
