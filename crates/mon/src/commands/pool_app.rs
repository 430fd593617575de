//! What a pool is for: the applications enabled on it.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use serde_json::{Map, Value, json};
use types::Errno;

pub const COMMANDS: &[Entry] = &[
    entry("osd pool application enable", "osd", "rw", enable),
    entry("osd pool application disable", "osd", "rw", disable),
    entry("osd pool application set", "osd", "rw", set),
    entry("osd pool application rm", "osd", "rw", rm),
    entry("osd pool application get", "osd", "r", get),
];

/// Most applications of a pool, keys of an application, and bytes of a name or value.
const APPS_MAX: usize = 4;
const KEYS_MAX: usize = 64;
const TEXT_MAX: usize = 128;

fn enable(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, app) = (cmd.text("pool")?, cmd.text("app")?);
    let (id, pool) = ctx.pool(name)?;
    let apps = &pool.application_metadata;
    if app.is_empty() {
        return Err(Reply::err(Errno::EINVAL, "application name not provided"));
    }
    if !apps.is_empty() && !apps.contains_key(app) && !cmd.flag("yes_i_really_mean_it") {
        let text = format!("Are you SURE? Pool '{name}' already has an enabled application; pass --yes-i-really-mean-it to proceed anyway");
        return Err(Reply::err(Errno::EPERM, text));
    }
    if !apps.contains_key(app) && apps.len() >= APPS_MAX {
        return Err(Reply::err(Errno::EINVAL, format!("too many enabled applications on pool '{name}'; max {APPS_MAX}")));
    }
    if app.len() > TEXT_MAX {
        return Err(Reply::err(Errno::EINVAL, format!("application name '{app}' too long; max length {TEXT_MAX}")));
    }
    if !apps.contains_key(app)
        && let Some(pool) = ctx.state.osdmap.change_pool(id)
    {
        pool.application_metadata.entry(app.to_owned()).or_default();
    }
    Ok(Reply::status(format!("enabled application '{app}' on pool '{name}'")))
}

fn disable(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, app) = (cmd.text("pool")?, cmd.text("app")?);
    let (id, pool) = ctx.pool(name)?;
    if !cmd.flag("yes_i_really_mean_it") {
        let text = "Are you SURE? Disabling an application within a pool might result in loss of application functionality; pass \
                    --yes-i-really-mean-it to proceed anyway";
        return Err(Reply::err(Errno::EPERM, text));
    }
    if !pool.application_metadata.contains_key(app) {
        return Ok(Reply::status(format!("application '{app}' is not enabled on pool '{name}'")));
    }
    if let Some(pool) = ctx.state.osdmap.change_pool(id) {
        pool.application_metadata.remove(app);
    }
    Ok(Reply::status(format!("disable application '{app}' on pool '{name}'")))
}

fn enabled_or_refuse(ctx: &Ctx<'_>, name: &str, app: &str) -> Result<types::PoolId, Reply> {
    let (id, pool) = ctx.pool(name)?;
    match pool.application_metadata.contains_key(app) {
        true => Ok(id),
        false => Err(Reply::err(Errno::ENOENT, format!("application '{app}' is not enabled on pool '{name}'"))),
    }
}

fn set(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, app, key, value) = (cmd.text("pool")?, cmd.text("app")?, cmd.text("key")?, cmd.text("value")?);
    let id = enabled_or_refuse(ctx, name, app)?;
    if key.is_empty() {
        return Err(Reply::err(Errno::EINVAL, "key not provided"));
    }
    if key.len() > TEXT_MAX || value.len() > TEXT_MAX {
        return Err(Reply::err(Errno::EINVAL, format!("key or value too long; max length {TEXT_MAX}")));
    }
    let Some(pool) = ctx.state.osdmap.change_pool(id) else { return Ok(Reply::ok()) };
    let keys = pool.application_metadata.entry(app.to_owned()).or_default();
    if !keys.contains_key(key) && keys.len() >= KEYS_MAX {
        return Err(Reply::err(Errno::EINVAL, format!("too many keys set for application '{app}' on pool '{name}'; max {KEYS_MAX}")));
    }
    keys.insert(key.to_owned(), value.to_owned());
    Ok(Reply::status(format!("set application '{app}' key '{key}' to '{value}' on pool '{name}'")))
}

fn rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, app, key) = (cmd.text("pool")?, cmd.text("app")?, cmd.text("key")?);
    let id = enabled_or_refuse(ctx, name, app)?;
    let there = ctx.pool(name)?.1.application_metadata.get(app).is_some_and(|keys| keys.contains_key(key));
    if !there {
        return Ok(Reply::status(format!("application '{app}' on pool '{name}' does not have key '{key}'")));
    }
    if let Some(keys) = ctx.state.osdmap.change_pool(id).and_then(|p| p.application_metadata.get_mut(app)) {
        keys.remove(key);
    }
    Ok(Reply::status(format!("removed application '{app}' key '{key}' on pool '{name}'")))
}

fn get(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, app, key) = (cmd.text("pool")?, cmd.text("app")?, cmd.text("key")?);
    if name.is_empty() {
        let map = ctx.osdmap();
        let all: Map<String, Value> = map.pool_name.iter().filter_map(|(id, n)| Some((n.clone(), json!(map.pools.get(id)?.application_metadata)))).collect();
        return Ok(Reply::json(cmd.format, &Value::Object(all)));
    }
    let (_, pool) = ctx.pool(name)?;
    let apps = &pool.application_metadata;
    if app.is_empty() {
        return Ok(Reply::json(cmd.format, &json!(apps)));
    }
    let none = || Reply::err(Errno::ENOENT, format!("pool '{name}' has no application '{app}'"));
    let keys = apps.get(app).ok_or_else(none)?;
    if key.is_empty() {
        return Ok(Reply::json(cmd.format, &json!(keys)));
    }
    let none = || Reply::err(Errno::ENOENT, format!("application '{app}' on pool '{name}' does not have key '{key}'"));
    Ok(Reply::text(format!("{}\n", keys.get(key).ok_or_else(none)?)))
}
