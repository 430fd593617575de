//! `auth ...`: entities, keys, capabilities.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Format, Outcome, Reply};
use crate::services::auth::AuthService;
use auth::{EntityAuth, Keyring, MgrCaps, MonCaps, OsdCaps};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::{EntityKind, EntityName, Errno};

pub const COMMANDS: &[Entry] = &[
    entry("auth ls", "auth", "rx", ls),
    entry("auth list", "auth", "rx", ls),
    entry("auth get", "auth", "rx", get),
    entry("auth export", "auth", "rx", export),
    entry("auth get-key", "auth", "rx", get_key),
    entry("auth print-key", "auth", "rx", get_key),
    entry("auth print_key", "auth", "rx", get_key),
    entry("auth add", "auth", "rwx", add),
    entry("auth get-or-create", "auth", "rwx", get_or_create),
    entry("auth get-or-create-key", "auth", "rwx", get_or_create),
    entry("auth caps", "auth", "rwx", caps),
    entry("auth rm", "auth", "rwx", rm),
    entry("auth del", "auth", "rwx", rm),
    entry("auth import", "auth", "rwx", import),
    entry("fs authorize", "auth", "rwx", fs_authorize),
];

type Caps = BTreeMap<String, String>;

fn name_arg(cmd: &Cmd) -> Result<EntityName, Reply> {
    let text = cmd.text("entity")?;
    let name: EntityName = text.parse().map_err(|()| Reply::err(Errno::EINVAL, format!("invalid entity_auth {text}")))?;
    match name.id.is_empty() && name.kind != EntityKind::MON {
        true => Err(Reply::err(Errno::EINVAL, format!("invalid entity_auth {text}"))),
        false => Ok(name),
    }
}

/// The `caps` argument: pairs of service and text, each of which must make sense.
fn caps_arg(cmd: &Cmd) -> Result<Caps, Reply> {
    let words = cmd.list("caps")?;
    if words.len() % 2 != 0 {
        return Err(Reply::err(Errno::EINVAL, "bad capabilities request; odd number of arguments"));
    }
    let caps: Caps = words.chunks_exact(2).map(|p| (p[0].clone(), p[1].clone())).collect();
    check_caps(&caps)?;
    Ok(caps)
}

fn check_caps(caps: &Caps) -> Result<(), Reply> {
    for (service, text) in caps {
        let checked = match service.as_str() {
            "mon" => text.parse::<MonCaps>().map(drop).map_err(|e| e.to_string()),
            "osd" => text.parse::<OsdCaps>().map(drop).map_err(|e| e.to_string()),
            "mgr" => text.parse::<MgrCaps>().map(drop).map_err(|e| e.to_string()),
            "mds" => Ok(()),
            other => Err(format!("unknown cap type '{other}'")),
        };
        checked.map_err(|why| Reply::err(Errno::EINVAL, why))?;
    }
    Ok(())
}

fn entity_json(name: &EntityName, entity: &EntityAuth) -> Value {
    json!({"entity": name.to_string(), "key": entity.key.to_string(), "caps": entity.caps})
}

fn ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let text = || {
        let mut out = String::new();
        for (name, entity) in ctx.state.auth.listed() {
            out += &format!("{name}\n\tkey: {}\n", entity.key);
            entity.caps.iter().for_each(|(service, caps)| out += &format!("\tcaps: [{service}] {caps}\n"));
        }
        out
    };
    let value = || json!({"auth_dump": ctx.state.auth.listed().map(|(n, e)| entity_json(n, e)).collect::<Vec<_>>()});
    let mut reply = Reply::either(cmd.format, text, value);
    if cmd.format == Format::Plain {
        reply.status = "installed auth entries:\n".into();
    }
    Ok(reply)
}

fn one(ctx: &Ctx<'_>, cmd: &Cmd, status: impl FnOnce(&EntityName, &EntityAuth) -> String) -> Outcome {
    let name = name_arg(cmd)?;
    let none = || Reply::err(Errno::ENOENT, format!("failed to find {name} in keyring"));
    let entity = ctx.state.auth.get(&name).ok_or_else(none)?;
    let reply = Reply::either(cmd.format, || AuthService::keyring_text(&name, entity), || json!([entity_json(&name, entity)]));
    Ok(Reply { status: status(&name, entity), ..reply })
}

fn get(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    one(ctx, cmd, |name, _| format!("exported keyring for {name}"))
}

fn export(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    if !cmd.text("entity")?.is_empty() {
        return one(ctx, cmd, |_, entity| format!("export auth(key={})", entity.key));
    }
    let text = || ctx.state.auth.listed().map(|(n, e)| AuthService::keyring_text(n, e)).collect();
    let value = || ctx.state.auth.listed().map(|(n, e)| entity_json(n, e)).collect();
    Ok(Reply { status: "exported master keyring".into(), ..Reply::either(cmd.format, text, value) })
}

fn key_reply(cmd: &Cmd, entity: &EntityAuth) -> Reply {
    let key = entity.key.to_string();
    // Without a line's end: scripts take the output as it is.
    Reply::either(cmd.format, || key.clone(), || json!({"key": key}))
}

fn get_key(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = name_arg(cmd)?;
    let none = || Reply::err(Errno::ENOENT, format!("don't have {name}"));
    Ok(key_reply(cmd, ctx.state.auth.get(&name).ok_or_else(none)?))
}

/// The entity of that name in a keyring given on standard input; none without input.
fn from_input(cmd: &Cmd, name: &EntityName) -> Result<Option<EntityAuth>, Reply> {
    if cmd.input.is_empty() {
        return Ok(None);
    }
    let keyring = parse_keyring(cmd)?;
    let none = || Reply::err(Errno::ENOENT, format!("key for {name} not found in provided keyring"));
    keyring.get(name).cloned().map(Some).ok_or_else(none)
}

fn parse_keyring(cmd: &Cmd) -> Result<Keyring, Reply> {
    let text = std::str::from_utf8(&cmd.input).map_err(|_| Reply::err(Errno::EINVAL, "error decoding keyring"))?;
    let bad = |_| Reply::err(Errno::EINVAL, "error decoding keyring cannot parse buffer: Malformed input");
    text.parse().map_err(bad)
}

fn add(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = name_arg(cmd)?;
    let mut caps = caps_arg(cmd)?;
    let given = from_input(cmd, &name)?;
    if let Some(given) = &given
        && !given.caps.is_empty()
    {
        if !caps.is_empty() {
            return Err(Reply::err(Errno::EINVAL, "caps cannot be specified both in keyring and in command"));
        }
        caps = given.caps.clone();
        check_caps(&caps)?;
    }
    if let Some(old) = ctx.state.auth.get(&name) {
        if given.as_ref().is_some_and(|g| g.key.secret() != old.key.secret()) {
            return Err(Reply::err(Errno::EINVAL, format!("entity {name} exists but key does not match")));
        }
        if old.caps != caps {
            return Err(Reply::err(Errno::EINVAL, format!("entity {name} exists but caps do not match")));
        }
        return Ok(Reply::ok());
    }
    let key = given.map(|g| g.key).unwrap_or_else(|| AuthService::generate_key(ctx.now.wall, ctx.rng));
    ctx.state.auth.put(name.clone(), EntityAuth { key, caps }, ctx.txn);
    Ok(Reply::status(format!("added key for {name}")))
}

fn get_or_create(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = name_arg(cmd)?;
    let caps = caps_arg(cmd)?;
    let entity = match ctx.state.auth.get(&name) {
        Some(old) => {
            let differs = caps.iter().find(|(service, text)| old.caps.get(*service) != Some(text));
            if let Some((service, _)) = differs {
                return Err(Reply::err(Errno::EINVAL, format!("key for {name} exists but cap {service} does not match")));
            }
            old.clone()
        }
        None => {
            let entity = EntityAuth { key: AuthService::generate_key(ctx.now.wall, ctx.rng), caps };
            ctx.state.auth.put(name.clone(), entity.clone(), ctx.txn);
            entity
        }
    };
    if cmd.prefix == "auth get-or-create-key" {
        return Ok(key_reply(cmd, &entity));
    }
    let text = || format!("[{name}]\n\tkey = {}\n", entity.key);
    Ok(Reply::either(cmd.format, text, || json!([entity_json(&name, &entity)])))
}

fn caps(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = name_arg(cmd)?;
    let caps = caps_arg(cmd)?;
    let Some(old) = ctx.state.auth.get(&name) else {
        return Err(Reply::err(Errno::ENOENT, format!("couldn't find entry {name}")));
    };
    let entity = EntityAuth { key: old.key.clone(), caps };
    ctx.state.auth.put(name.clone(), entity, ctx.txn);
    Ok(Reply::status(format!("updated caps for {name}")))
}

fn rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = name_arg(cmd)?;
    if name.kind == EntityKind::MON && name.id.is_empty() {
        return Err(Reply::err(Errno::EPERM, "mon. is the monitors' own key and cannot be removed"));
    }
    if ctx.state.auth.get(&name).is_none() {
        return Ok(Reply::status(format!("entity {name} does not exist")));
    }
    ctx.state.auth.remove(&name, ctx.txn);
    Ok(Reply::status("updated"))
}

fn import(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    if cmd.input.is_empty() {
        return Err(Reply::err(Errno::EINVAL, "auth import: no data supplied"));
    }
    let keyring = parse_keyring(cmd)?;
    for entity in keyring.entries.values() {
        check_caps(&entity.caps)?;
    }
    for (name, entity) in keyring.entries {
        ctx.state.auth.put(name, entity, ctx.txn);
    }
    Ok(Reply::status("imported keyring"))
}

fn fs_authorize(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Err(Reply::err(Errno::ENOENT, format!("filesystem {} does not exist", cmd.text("filesystem")?)))
}
