//! `config-key ...`: the dictionary.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use crate::services::config::ChangeSet;
use crate::services::config_key::VALUE_MAX;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use types::Errno;

pub const COMMANDS: &[Entry] = &[
    entry("config-key get", "config-key", "r", get),
    entry("config-key set", "config-key", "rw", set),
    entry("config-key put", "config-key", "rw", set),
    entry("config-key rm", "config-key", "rw", rm),
    entry("config-key del", "config-key", "rw", rm),
    entry("config-key exists", "config-key", "r", exists),
    entry("config-key ls", "config-key", "r", ls),
    entry("config-key list", "config-key", "r", ls),
    entry("config-key dump", "config-key", "r", dump),
];

/// Keys that show the options' history, as upstream keeps it in the dictionary.
fn history(ctx: &Ctx<'_>) -> Vec<(String, Bytes)> {
    let mut all = Vec::new();
    for set in &ctx.state.config.history {
        let place = format!("config-history/{}/", set.version);
        all.push((place.clone(), head_of(set)));
        for (key, before, after) in &set.diffs {
            if let Some(old) = before {
                all.push((format!("{place}-{key}"), old.clone().into()));
            }
            if let Some(new) = after {
                all.push((format!("{place}+{key}"), new.clone().into()));
            }
        }
    }
    all
}

fn head_of(set: &ChangeSet) -> Bytes {
    denc::to_bytes(&(set.stamp, set.name.clone()), 0)
}

fn entries(ctx: &Ctx<'_>, prefix: &str) -> Vec<(String, Bytes)> {
    let stored = ctx.state.config_key.with_prefix(prefix).map(|(k, v)| (k.clone(), v.clone()));
    let mut all: Vec<(String, Bytes)> = stored.chain(history(ctx).into_iter().filter(|(k, _)| k.starts_with(prefix))).collect();
    all.sort();
    all
}

fn find(ctx: &Ctx<'_>, key: &str) -> Option<Bytes> {
    entries(ctx, key).into_iter().find(|(k, _)| k == key).map(|(_, v)| v)
}

fn get(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let value = find(ctx, cmd.text("key")?).ok_or_else(|| Reply::err(Errno::ENOENT, ""))?;
    Ok(Reply::text(value))
}

fn set(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let key = cmd.text("key")?;
    if key.is_empty() || key.starts_with("config-history/") {
        return Err(Reply::err(Errno::EPERM, format!("'{key}' cannot be set")));
    }
    let value = match cmd.str("val")? {
        Some(text) => Bytes::copy_from_slice(text.as_bytes()),
        None => cmd.input.clone(),
    };
    if value.len() > VALUE_MAX {
        let text = format!("error: entry size limited to {VALUE_MAX} bytes. Use 'mon config key max entry size' to manually adjust");
        return Err(Reply::err(Errno::EFBIG, text));
    }
    ctx.state.config_key.put(key, value, ctx.txn);
    Ok(Reply::status(format!("set {key}")))
}

fn rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let key = cmd.text("key")?;
    if ctx.state.config_key.get(key).is_some() {
        ctx.state.config_key.remove(key, ctx.txn);
    }
    Ok(Reply::status("key deleted"))
}

fn exists(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let key = cmd.text("key")?;
    match find(ctx, key) {
        Some(_) => Ok(Reply::status(format!("key '{key}' exists"))),
        None => Err(Reply::err(Errno::ENOENT, format!("key '{key}' doesn't exist"))),
    }
}

fn ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let keys: Vec<String> = entries(ctx, "").into_iter().map(|(k, _)| k).collect();
    Ok(Reply::json(cmd.format, &json!(keys)))
}

fn dump(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let shown = |v: &Bytes| match std::str::from_utf8(v) {
        Ok(text) if text.chars().all(|c| !c.is_control() || c.is_ascii_whitespace()) => Value::from(text),
        _ => format!("<<< binary blob of length {} >>>", v.len()).into(),
    };
    let all: Map<String, Value> = entries(ctx, cmd.text("key")?).into_iter().map(|(k, v)| (k, shown(&v))).collect();
    Ok(Reply::json(cmd.format, &Value::Object(all)))
}
