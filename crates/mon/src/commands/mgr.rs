//! `mgr ...`: who manages.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::Errno;

pub const COMMANDS: &[Entry] = &[
    entry("mgr dump", "mgr", "r", dump),
    entry("mgr stat", "mgr", "r", stat),
    entry("mgr metadata", "mgr", "r", metadata),
    entry("mgr count-metadata", "mgr", "r", count_metadata),
    entry("mgr versions", "mgr", "r", versions),
    entry("mgr services", "mgr", "r", services),
    entry("mgr module ls", "mgr", "r", module_ls),
    entry("mgr module enable", "mgr", "rw", module_enable),
    entry("mgr module disable", "mgr", "rw", module_disable),
    entry("mgr fail", "mgr", "rw", fail),
];

/// The MgrMap, with the fields that upstream puts at its end.
pub fn dump_json(ctx: &Ctx<'_>) -> Value {
    ctx.state.mgr.map.dump_json()
}

fn dump(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::json(cmd.format, &dump_json(ctx)))
}

fn stat(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = &ctx.state.mgr.map;
    let out = json!({"epoch": map.epoch.0, "available": map.available, "active_name": map.active_name, "num_standby": map.standbys.len()});
    Ok(Reply::json(cmd.format, &out))
}

fn present<'a>(ctx: &'a Ctx<'_>) -> Vec<(&'a str, &'a BTreeMap<String, String>)> {
    let names = ctx.state.mgr.map.all_names();
    names.into_iter().filter_map(|name| Some((name, ctx.state.mgr.metadata.get(name)?))).collect()
}

fn metadata(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let all = present(ctx);
    let who = cmd.text("who")?;
    if !who.is_empty() {
        let none = || Reply::err(Errno::ENOENT, format!("mgr.{who} does not exist"));
        let (_, metadata) = all.iter().find(|(name, _)| *name == who).ok_or_else(none)?;
        return Ok(Reply::json(cmd.format, &json!(metadata)));
    }
    let one = |(name, metadata): &(&str, &BTreeMap<String, String>)| {
        let mut v = Map::new();
        v.insert("name".into(), (*name).into());
        v.extend(metadata.iter().map(|(k, x)| (k.clone(), x.as_str().into())));
        Value::Object(v)
    };
    Ok(Reply::json(cmd.format, &all.iter().map(one).collect()))
}

fn count_metadata(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let property = cmd.text("property")?;
    Ok(Reply::json(cmd.format, &super::general::count_by(present(ctx).into_iter().map(|(_, m)| m), property)))
}

fn versions(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::json(cmd.format, &super::general::count_by(present(ctx).into_iter().map(|(_, m)| m), "ceph_version")))
}

fn services(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::json(cmd.format, &json!(ctx.state.mgr.map.services)))
}

fn module_ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = &ctx.state.mgr.map;
    let always_on: Vec<&String> = map.always_on_modules.values().next_back().into_iter().flatten().collect();
    let enabled: Vec<&String> = map.modules.iter().filter(|m| !always_on.contains(m)).collect();
    let off = map.available_modules.iter().filter(|m| !map.modules.contains(&m.name) && !always_on.contains(&&m.name));
    let disabled: Vec<Value> = off.map(|m| m.dump_json()).collect();
    Ok(Reply::json(cmd.format, &json!({"always_on_modules": always_on, "enabled_modules": enabled, "disabled_modules": disabled})))
}

fn module_enable(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = cmd.text("module")?;
    let map = &ctx.state.mgr.map;
    if map.always_on_modules.values().any(|all| all.contains(name)) {
        return Ok(Reply::status(format!("module '{name}' is already enabled (always-on)")));
    }
    if map.modules.contains(name) {
        return Ok(Reply::status(format!("module '{name}' is already enabled")));
    }
    // Functions of our manager are built in: there is nothing to load.
    Err(Reply::err(Errno::ENOENT, format!("all mgr daemons do not support module '{name}', pass --force to force enablement")))
}

fn module_disable(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = cmd.text("module")?;
    let map = &ctx.state.mgr.map;
    if map.always_on_modules.values().any(|all| all.contains(name)) {
        return Err(Reply::err(Errno::EINVAL, format!("module '{name}' cannot be disabled (always-on)")));
    }
    if !map.modules.contains(name) {
        return Ok(Reply::status(format!("module '{name}' is already disabled")));
    }
    ctx.state.mgr.set_module(name, false, ctx.txn);
    Ok(Reply::ok())
}

fn fail(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = &ctx.state.mgr.map;
    let who = match cmd.text("who")? {
        "" if map.active_gid == 0 => return Err(Reply::err(Errno::ENOENT, "Currently no active mgr")),
        "" => map.active_name.clone(),
        who => who.to_owned(),
    };
    let by_gid = who.parse::<u64>().ok();
    if map.active_gid != 0 && (map.active_name == who || by_gid == Some(map.active_gid)) {
        ctx.state.mgr.fail_active(ctx.now, ctx.txn);
        return Ok(Reply::ok());
    }
    if map.standbys.iter().any(|(gid, s)| s.name == who || by_gid == Some(*gid)) {
        ctx.state.mgr.fail_standby(&who, ctx.txn);
        return Ok(Reply::ok());
    }
    Ok(Reply::status(format!("Daemon not found '{who}', already failed?")))
}
