//! `osd erasure-code-profile ...`: profiles are kept; pools of them are yet to be built.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use serde_json::json;
use std::collections::BTreeMap;
use types::Errno;

pub const COMMANDS: &[Entry] = &[
    entry("osd erasure-code-profile ls", "osd", "r", ls),
    entry("osd erasure-code-profile get", "osd", "r", get),
    entry("osd erasure-code-profile set", "osd", "rw", set),
    entry("osd erasure-code-profile rm", "osd", "rw", rm),
];

fn ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let names: Vec<&String> = map.erasure_code_profiles.keys().collect();
    Ok(Reply::either(cmd.format, || names.iter().map(|n| format!("{n}\n")).collect(), || json!(names)))
}

fn get(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (map, name) = (ctx.osdmap(), cmd.text("name")?);
    let none = || Reply::err(Errno::ENOENT, format!("unknown erasure code profile '{name}'"));
    let profile = map.erasure_code_profiles.get(name).ok_or_else(none)?;
    Ok(Reply::either(cmd.format, || profile.iter().map(|(k, v)| format!("{k}={v}\n")).collect(), || json!(profile)))
}

/// What a profile holds besides what was given.
const DEFAULTS: [(&str, &str); 9] = [
    ("crush-device-class", ""),
    ("crush-failure-domain", "host"),
    ("crush-root", "default"),
    ("jerasure-per-chunk-alignment", "false"),
    ("k", "2"),
    ("m", "1"),
    ("plugin", "jerasure"),
    ("technique", "reed_sol_van"),
    ("w", "8"),
];

fn set(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = cmd.text("name")?;
    let force = cmd.flag("force");
    let mut profile: BTreeMap<String, String> = DEFAULTS.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    for word in cmd.list("profile")? {
        let (key, value) = word.split_once('=').unwrap_or((&word, ""));
        profile.insert(key.to_owned(), value.to_owned());
    }
    let number = |key: &str| profile.get(key).and_then(|v| v.parse::<u32>().ok());
    match (number("k"), number("m")) {
        (Some(k), Some(m)) if k >= 2 && m >= 1 && k + m <= 256 => {}
        (Some(k), _) if k < 2 => return Err(Reply::err(Errno::EINVAL, format!("k={k} must be >= 2"))),
        (_, Some(0)) => return Err(Reply::err(Errno::EINVAL, "m=0 must be >= 1")),
        _ => return Err(Reply::err(Errno::EINVAL, "could not convert k or m to int")),
    }
    let map = ctx.osdmap();
    match map.erasure_code_profiles.get(name) {
        Some(old) if *old == profile => return Ok(Reply::ok()),
        Some(_) if !force => {
            let text = format!("will not override erasure code profile {name}: pass --force to do so");
            return Err(Reply::err(Errno::EPERM, text));
        }
        _ => {}
    }
    ctx.state.osdmap.change().new_erasure_code_profiles.insert(name.to_owned(), profile);
    Ok(Reply::ok())
}

fn rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (map, name) = (ctx.osdmap(), cmd.text("name")?);
    if map.pools.values().any(|p| p.erasure_code_profile == name) {
        return Err(Reply::err(Errno::EBUSY, format!("erasure-code-profile '{name}' is used by a pool")));
    }
    if !map.erasure_code_profiles.contains_key(name) {
        return Ok(Reply::status(format!("erasure-code-profile {name} does not exist")));
    }
    ctx.state.osdmap.change().old_erasure_code_profiles.push(name.to_owned());
    Ok(Reply::ok())
}
