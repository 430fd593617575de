//! `mon ...`, `quorum_status`: the monitors themselves.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use types::{AddrKind, AddrVec, EntityAddr, Errno};
use types::map::monmap::MonFeatures;

pub const COMMANDS: &[Entry] = &[
    entry("mon dump", "mon", "r", dump),
    entry("mon stat", "mon", "r", stat),
    entry("mon getmap", "mon", "r", getmap),
    entry("mon metadata", "mon", "r", metadata),
    entry("mon count-metadata", "mon", "r", count_metadata),
    entry("mon versions", "mon", "r", versions),
    entry("mon feature ls", "mon", "r", feature_ls),
    entry("mon ok-to-stop", "mon", "r", ok_to_stop),
    entry("mon ok-to-add-offline", "mon", "r", ok_to_add_offline),
    entry("mon ok-to-rm", "mon", "r", ok_to_rm),
    entry("mon scrub", "mon", "rw", |_, _| Err(Reply::err(Errno::EOPNOTSUPP, "comparing the monitors' stores is not built in Cuttlebone"))),
    entry("mon add", "mon", "rw", add),
    entry("mon rm", "mon", "rw", rm),
    entry("mon remove", "mon", "rw", rm),
    entry("quorum_status", "mon", "r", quorum_status),
];

/// The monmap as `mon dump` shows it, without the quorum.
pub fn monmap_json(ctx: &Ctx<'_>) -> Value {
    ctx.state.monmap.map.dump_json()
}

fn dump(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.state.monmap.map.clone();
    let value = || {
        let mut v = map.dump_json();
        if let Some(fields) = v.as_object_mut() {
            fields.insert("quorum".into(), json!(ctx.quorum.ranks));
        }
        v
    };
    let reply = Reply::either(cmd.format, || map.print_plain(), value);
    Ok(Reply { status: format!("dumped monmap epoch {}", map.epoch), ..reply })
}

fn stat(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = &ctx.state.monmap.map;
    let quorum = &ctx.quorum;
    let (leader, name) = (quorum.leader.map_or(-1, |rank| rank as i64), quorum.leader_name(map));
    let text = || {
        format!(
            "{} removed_ranks: {{}}, election epoch {}, leader {leader} {name}, quorum {} {}\n",
            map.print_summary(),
            quorum.term,
            quorum.ranks_text(),
            quorum.names(map).join(",")
        )
    };
    let value = || {
        let members = quorum.ranks.iter().zip(quorum.names(map)).map(|(rank, name)| json!({"rank": rank, "name": name}));
        json!({
            "epoch": map.epoch.0, "min_mon_release_name": map.min_mon_release.name(), "num_mons": map.mon_info.len(),
            "leader": name, "quorum": members.collect::<Vec<_>>(),
        })
    };
    Ok(Reply::either(cmd.format, text, value))
}

fn getmap(ctx: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    let status = format!("got monmap epoch {}", ctx.state.monmap.map.epoch);
    Ok(Reply { status, ..Reply::text(ctx.state.monmap.encoded()) })
}

/// What is known of every member: of this one what it is now, of the others what they last said.
pub fn members_metadata<'a>(ctx: &'a Ctx<'_>) -> Vec<(&'a str, BTreeMap<String, String>)> {
    let of = |name: &String| match *name == ctx.env.name {
        true => Some(ctx.env.shown()),
        false => ctx.state.monmap.metadata.get(name).cloned(),
    };
    ctx.state.monmap.map.ranks.iter().filter_map(|name| Some((name.as_str(), of(name)?))).collect()
}

fn metadata(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let all = members_metadata(ctx);
    let id = cmd.text("id")?;
    if !id.is_empty() {
        let found = all.iter().find(|(name, _)| *name == id);
        let (_, metadata) = found.ok_or_else(|| Reply::err(Errno::ENOENT, "requested mon not found"))?;
        return Ok(Reply::json(cmd.format, &json!(metadata)));
    }
    let one = |(name, metadata): &(&str, BTreeMap<String, String>)| {
        let mut v = Map::new();
        v.insert("name".into(), (*name).into());
        v.extend(metadata.iter().map(|(k, x)| (k.clone(), x.as_str().into())));
        Value::Object(v)
    };
    Ok(Reply::json(cmd.format, &all.iter().map(one).collect()))
}

fn count_metadata(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let all = members_metadata(ctx);
    Ok(Reply::json(cmd.format, &super::general::count_by(all.iter().map(|(_, m)| m), cmd.text("property")?)))
}

fn versions(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let all = members_metadata(ctx);
    Ok(Reply::json(cmd.format, &super::general::count_by(all.iter().map(|(_, m)| m), "ceph_version")))
}

fn feature_ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = &ctx.state.monmap.map;
    let all = MonFeatures::PACIFIC.names();
    let (persistent, optional) = (map.persistent_features.names(), map.optional_features.names());
    let text = || {
        let list = |names: &[&str]| format!("[{}]", names.join(","));
        format!(
            "all features\n\tsupported: {0}\n\tpersistent: {0}\non current monmap (epoch {1})\n\tpersistent: {2}\n\trequired: {2}\n",
            list(&all),
            map.epoch,
            list(&persistent)
        )
    };
    let value = || {
        json!({
            "all": {"supported": all, "persistent": all},
            "monmap": {"persistent": persistent, "optional": optional, "required": persistent},
        })
    };
    Ok(Reply::either(cmd.format, text, value))
}

fn ok_to_stop(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let ids = cmd.list("ids")?;
    if ids.is_empty() {
        return Err(Reply::err(Errno::EINVAL, "unrecognized command"));
    }
    let map = &ctx.state.monmap.map;
    let left: Vec<&str> = ctx.quorum.names(map).into_iter().filter(|n| !ids.iter().any(|i| i == n)).collect();
    match left.len() >= map.min_quorum_size() {
        true => Ok(Reply::status(format!("quorum should be preserved ({}) after stopping [{}]", left.join(","), ids.join(",")))),
        false => {
            let text = format!("not enough monitors would be available ({}) after stopping mons [{}]", left.join(","), ids.join(","));
            Err(Reply::err(Errno::EBUSY, text))
        }
    }
}

fn ok_to_add_offline(ctx: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    // Those that agree now would have to be a majority of one more.
    let after = ctx.state.monmap.map.mon_info.len() + 1;
    let needed = after / 2 + 1;
    match ctx.quorum.ranks.len() >= needed {
        true => Ok(Reply::status("adding another mon that is not yet online will not break quorum")),
        false => Err(Reply::err(Errno::EBUSY, "adding a monitor may break quorum (until that monitor starts)")),
    }
}

fn ok_to_rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    would_stay(ctx, cmd.text("id")?)
}

/// Whether those that agree would still be enough without the monitor `id`.
fn would_stay(ctx: &Ctx<'_>, id: &str) -> Outcome {
    let map = &ctx.state.monmap.map;
    if map.rank_of(id).is_none() {
        return Ok(Reply::status(format!("mon.{id} does not exist; quorum will not be affected")));
    }
    let left: Vec<&str> = ctx.quorum.names(map).into_iter().filter(|name| *name != id).collect();
    let after = map.mon_info.len() - 1;
    let needed = after / 2 + 1;
    match left.len() >= needed {
        true => Ok(Reply::status(format!("quorum should be preserved ({}) after removing mon.{id}", left.join(",")))),
        false => Err(Reply::err(Errno::EBUSY, format!("removing mon.{id} would break quorum"))),
    }
}

/// An address as stock understands it: the well-known port of today means v2, that of old or none both.
fn parse_addr(text: &str) -> Option<AddrVec> {
    let text = text.split('/').next()?;
    let (kind, rest) = match text.split_once(':') {
        Some(("v1", rest)) => (AddrKind::LEGACY, rest),
        Some(("v2", rest)) => (AddrKind::MSGR2, rest),
        _ => (AddrKind::MSGR2, text),
    };
    let sock: SocketAddr = match rest.parse() {
        Ok(sock) => sock,
        Err(_) => SocketAddr::new(rest.trim_matches(['[', ']']).parse().ok()?, 0),
    };
    let addr = |kind, port| EntityAddr { kind, nonce: 0, sock: Some(SocketAddr::new(sock.ip(), port)) };
    Some(AddrVec(match sock.port() {
        0 | 6789 => vec![addr(AddrKind::MSGR2, 3300), addr(AddrKind::LEGACY, 6789)],
        port => vec![addr(kind, port)],
    }))
}

fn add(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, text) = (cmd.text("name")?, cmd.text("addr")?);
    let Some(addrs) = parse_addr(text) else {
        return Err(Reply::err(Errno::EINVAL, format!("addr {text}does not parse")));
    };
    let map = &ctx.state.monmap.map;
    if let Some(there) = map.mon_info.get(name) {
        return match there.public_addrs == addrs {
            true => Ok(Reply::status(format!("mon.{name} at {addrs} already exists"))),
            false => Err(Reply::err(Errno::EEXIST, format!("mon.{name} already exists at address {}", there.public_addrs))),
        };
    }
    if let Some(other) = addrs.0.iter().find_map(|a| map.by_addr(*a)) {
        return Err(Reply::err(Errno::EEXIST, format!("mon.{} already exists at address {addrs}", other.name)));
    }
    ctx.state.monmap.add(name, addrs.clone(), ctx.now.wall, ctx.txn);
    Ok(Reply::status(format!("adding mon.{name} at {addrs}")))
}

fn rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = cmd.text("name")?;
    let map = &ctx.state.monmap.map;
    let Some(info) = map.mon_info.get(name) else {
        return Ok(Reply::status(format!("mon.{name} does not exist or has already been removed")));
    };
    if map.mon_info.len() == 1 {
        return Err(Reply::err(Errno::EINVAL, format!("error: refusing removal of last monitor {name}")));
    }
    // Upstream goes on, and nobody can order anything afterwards.
    would_stay(ctx, name)?;
    let text = format!("removing mon.{name} at {}, there will be {} monitors", info.public_addrs, map.mon_info.len() - 1);
    ctx.state.monmap.remove(name, ctx.now.wall, ctx.txn);
    Ok(Reply::status(text))
}

fn quorum_status(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let out = json!({
        "election_epoch": ctx.quorum.term,
        "quorum": ctx.quorum.ranks,
        "quorum_names": ctx.quorum.names(&ctx.state.monmap.map),
        "quorum_leader_name": ctx.quorum.leader_name(&ctx.state.monmap.map),
        "quorum_age": (ctx.now.mono - ctx.quorum.since).as_secs(),
        "features": {
            "quorum_con": types::features::SUPPORTED.to_string(),
            "quorum_mon": ctx.state.monmap.map.persistent_features.names(),
        },
        "monmap": monmap_json(ctx),
    });
    // Compact unless asked for pretty, as upstream prints it.
    let format = if cmd.format == crate::reply::Format::JsonPretty { cmd.format } else { crate::reply::Format::Json };
    Ok(Reply::json(format, &out))
}
