//! `mon ...`, `quorum_status`: the monitors themselves.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::Errno;
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
    entry("mon scrub", "mon", "rw", |_, _| Ok(Reply::ok())),
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
            fields.insert("quorum".into(), json!([ctx.quorum.rank]));
        }
        v
    };
    let reply = Reply::either(cmd.format, || map.print_plain(), value);
    Ok(Reply { status: format!("dumped monmap epoch {}", map.epoch), ..reply })
}

fn stat(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = &ctx.state.monmap.map;
    let name = &ctx.env.name;
    let (rank, leader) = (ctx.quorum.rank, ctx.quorum.leader);
    let text = || {
        format!(
            "{} removed_ranks: {{}}, election epoch {}, leader {leader} {name}, quorum {rank} {name}\n",
            map.print_summary(),
            ctx.quorum.term
        )
    };
    let value = || {
        json!({
            "epoch": map.epoch.0, "min_mon_release_name": map.min_mon_release.name(), "num_mons": map.mon_info.len(),
            "leader": name, "quorum": [{"rank": rank, "name": name}],
        })
    };
    Ok(Reply::either(cmd.format, text, value))
}

fn getmap(ctx: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    let status = format!("got monmap epoch {}", ctx.state.monmap.map.epoch);
    Ok(Reply { status, ..Reply::text(ctx.state.monmap.encoded()) })
}

fn own_metadata(ctx: &Ctx<'_>) -> BTreeMap<String, String> {
    let mut all = ctx.env.metadata.clone();
    all.insert("addrs".into(), ctx.env.addrs.to_string());
    all.insert("hostname".into(), ctx.env.hostname.clone());
    all.insert("ceph_version".into(), crate::version::full());
    all.insert("ceph_version_short".into(), crate::version::short().into());
    all.insert("ceph_release".into(), crate::version::RELEASE.into());
    all
}

fn metadata(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let own = own_metadata(ctx);
    match cmd.text("id")? {
        "" => {
            let mut v = Map::new();
            v.insert("name".into(), ctx.env.name.as_str().into());
            v.extend(own.into_iter().map(|(k, x)| (k, x.into())));
            Ok(Reply::json(cmd.format, &json!([v])))
        }
        id if id == ctx.env.name => Ok(Reply::json(cmd.format, &json!(own))),
        _ => Err(Reply::err(Errno::ENOENT, "requested mon not found")),
    }
}

fn count_metadata(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let own = own_metadata(ctx);
    Ok(Reply::json(cmd.format, &super::general::count_by([&own].into_iter(), cmd.text("property")?)))
}

fn versions(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let own = own_metadata(ctx);
    Ok(Reply::json(cmd.format, &super::general::count_by([&own].into_iter(), "ceph_version")))
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
    let left: Vec<&str> = [ctx.env.name.as_str()].into_iter().filter(|n| !ids.iter().any(|i| i == n)).collect();
    match left.len() >= map.min_quorum_size() {
        true => Ok(Reply::status(format!("quorum should be preserved ({}) after stopping [{}]", left.join(","), ids.join(",")))),
        false => {
            let text = format!("not enough monitors would be available ({}) after stopping mons [{}]", left.join(","), ids.join(","));
            Err(Reply::err(Errno::EBUSY, text))
        }
    }
}

fn ok_to_add_offline(ctx: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    let n = ctx.state.monmap.map.mon_info.len();
    // Only this one would be there of n + 1.
    match n.div_ceil(2) < 1 {
        true => Ok(Reply::status("adding another mon that is not yet online will not break quorum")),
        false => Err(Reply::err(Errno::EBUSY, "adding a monitor may break quorum (until that monitor starts)")),
    }
}

fn ok_to_rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let id = cmd.text("id")?;
    if ctx.state.monmap.map.rank_of(id).is_none() {
        return Ok(Reply::status(format!("mon.{id} does not exist; quorum will not be affected")));
    }
    Err(Reply::err(Errno::EBUSY, format!("removing mon.{id} would break quorum")))
}

fn add(_: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    Err(Reply::err(Errno::EOPNOTSUPP, "adding monitors is not available in this cluster yet"))
}

fn rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = cmd.text("name")?;
    match ctx.state.monmap.map.rank_of(name) {
        None => Ok(Reply::status(format!("mon.{name} does not exist or has already been removed"))),
        Some(_) => Err(Reply::err(Errno::EINVAL, format!("error: refusing removal of last monitor {name}"))),
    }
}

fn quorum_status(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let out = json!({
        "election_epoch": ctx.quorum.term,
        "quorum": [ctx.quorum.rank],
        "quorum_names": [ctx.env.name],
        "quorum_leader_name": ctx.env.name,
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
