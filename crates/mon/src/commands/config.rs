//! `config ...`: options kept by the monitors.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::publish::subject;
use crate::reply::{Outcome, Reply};
use crate::services::config::{ChangeSet, Subject, Target};
use crate::text::{self, Left, stamp};
use admin::TextTable;
use admin::option::{self, OptionSpec};
use serde_json::{Map, Value, json};
use types::{EntityName, Errno};

pub const COMMANDS: &[Entry] = &[
    entry("config set", "config", "rw", set),
    entry("config rm", "config", "rw", rm),
    entry("config get", "config", "r", get),
    entry("config dump", "config", "r", dump),
    entry("config help", "config", "r", help),
    entry("config ls", "config", "r", ls),
    entry("config log", "config", "r", log),
    entry("config reset", "config", "rw", reset),
    entry("config assimilate-conf", "config", "rw", assimilate),
    entry("config generate-minimal-conf", "config", "r", minimal_conf),
];

fn target_arg(text: &str) -> Result<Target, Reply> {
    Target::parse(text).ok_or_else(|| Reply::err(Errno::EINVAL, format!("unrecognized config target '{text}'")))
}

/// The option, its value as it is kept, and what there is to say about setting it.
fn check(name: &str, value: &str) -> Result<(&'static OptionSpec, String, String), Reply> {
    let spec = option::known(name).map_err(|e| Reply::err(e.errno, e.status))?;
    if spec.no_mon_update() {
        return Err(Reply::err(Errno::EINVAL, format!("{name} is special and cannot be stored by the mon")));
    }
    let value = spec.normalize(value).map_err(|e| Reply::err(e.errno, e.status))?;
    Ok((spec, value, spec.notice().unwrap_or_default()))
}

fn set(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (who, name) = (cmd.text("who")?, option::canonical(cmd.text("name")?));
    let text = cmd.list("value")?.into_iter().next().unwrap_or_default();
    let target = target_arg(who)?;
    let (value, notice) = match check(&name, &text) {
        Ok((_, value, notice)) => (value, left_to_scheduler(ctx, &target, &name).unwrap_or(notice)),
        // `--force` keeps options that only other releases know.
        Err(refused) if !cmd.flag("force") => return Err(refused),
        Err(_) => (text, String::new()),
    };
    ctx.state.config.change(ctx.now.wall, "", vec![(target.key(&name), Some(value))], ctx.txn);
    Ok(Reply::status(notice))
}

/// Why it changes nothing for whom it is set: there, the scheduler decides in its place.
fn left_to_scheduler(ctx: &Ctx<'_>, target: &Target, name: &str) -> Option<String> {
    // Of several OSDs those are asked that nothing is set for by name.
    let one = target.section.parse().unwrap_or_else(|_| EntityName::new(types::EntityKind::OSD, ""));
    let resolved = ctx.state.config.resolve(&subject(&ctx.osdmap(), &one));
    let get = |name: &str| resolved.get(name).map(|(value, _)| value.clone()).or_else(|| Some(option::find(name)?.default_for(true)));
    option::left_to_scheduler(name, |name| get(name).unwrap_or_default())
}

fn rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let target = target_arg(cmd.text("who")?)?;
    let key = target.key(&option::canonical(cmd.text("name")?));
    ctx.state.config.change(ctx.now.wall, "", vec![(key, None)], ctx.txn);
    Ok(Reply::ok())
}

fn who_arg(ctx: &Ctx<'_>, cmd: &Cmd) -> Result<Subject, Reply> {
    let text = cmd.text("who")?;
    let name: EntityName = match (text.parse(), types::EntityKind::from_name(text)) {
        (Ok(name), _) => name,
        (_, Some(kind)) => EntityName::new(kind, ""),
        _ => return Err(Reply::err(Errno::EINVAL, format!("unrecognized entity '{text}'"))),
    };
    Ok(subject(&ctx.osdmap(), &name))
}

fn get(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let who = who_arg(ctx, cmd)?;
    let resolved = ctx.state.config.resolve(&who);
    if let Some(key) = cmd.str("key")? {
        let name = option::canonical(key);
        let spec = option::find(&name);
        let value = match (key, resolved.get(&name), spec) {
            ("fsid", _, _) => ctx.state.monmap.map.fsid.to_string(),
            (_, Some((value, _)), _) => value.clone(),
            (_, None, Some(spec)) => spec.default_for(who.name.kind != types::EntityKind::CLIENT),
            _ => return Err(Reply::err(Errno::ENOENT, format!("unrecognized key '{key}'"))),
        };
        return Ok(Reply::either(cmd.format, || format!("{value}\n"), || json!({name: value})));
    }
    let text = || {
        let mut t = table();
        resolved.iter().for_each(|(name, (value, target))| t.row(row(target, name, value, &target.section)));
        t.render()
    };
    let value = || {
        let one = |(name, (value, target)): (&String, &(String, Target))| {
            let mut mask = Map::new();
            if let Some((kind, place)) = &target.location {
                mask.insert(kind.clone(), place.as_str().into());
            }
            if let Some(class) = &target.class {
                mask.insert("device_class".into(), class.as_str().into());
            }
            (name.clone(), json!({"value": value, "section": target.section, "mask": mask, "can_update_at_runtime": runtime(name)}))
        };
        Value::Object(resolved.iter().map(one).collect())
    };
    Ok(Reply::either(cmd.format, text, value))
}

fn runtime(name: &str) -> bool {
    option::find(name).is_none_or(|o| o.runtime)
}

fn level(name: &str) -> &'static str {
    option::find(name).map_or("unknown", |o| o.level.name())
}

fn table() -> TextTable {
    text::table(&["WHO", "MASK", "LEVEL", "OPTION", "VALUE", "RO"].map(|c| (c, Left, Left)))
}

fn row(target: &Target, name: &str, value: &str, who: &str) -> [String; 6] {
    let ro = if runtime(name) { "" } else { "*" };
    [who.into(), target.mask(), level(name).into(), name.into(), value.into(), ro.into()]
}

fn dump(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let all: Vec<_> = ctx.state.config.entries().collect();
    let text = || {
        let mut t = table();
        for (target, name, value) in &all {
            // Indented by how special the section is.
            let depth = match target.section.as_str() {
                "global" => 0,
                s if !s.contains('.') => 1,
                _ => 2,
            };
            t.row(row(target, name, value, &format!("{}{}", "  ".repeat(depth), target.section)));
        }
        t.render()
    };
    let value = || {
        let one = |(target, name, value): &&(Target, String, String)| {
            let mut v = json!({
                "section": target.section, "name": name, "value": value, "level": level(name),
                "can_update_at_runtime": runtime(name), "mask": target.mask(),
            });
            if let Some(fields) = v.as_object_mut() {
                if let Some((kind, place)) = &target.location {
                    fields.insert("location_type".into(), kind.as_str().into());
                    fields.insert("location_value".into(), place.as_str().into());
                }
                if let Some(class) = &target.class {
                    fields.insert("device_class".into(), class.as_str().into());
                }
            }
            v
        };
        all.iter().map(one).collect()
    };
    Ok(Reply::either(cmd.format, text, value))
}

fn help(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = option::canonical(cmd.text("key")?);
    let spec = option::find(&name).ok_or_else(|| Reply::err(Errno::ENOENT, ""))?;
    Ok(Reply::either(cmd.format, || spec.text(), || spec.json()))
}

fn ls(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let names: Vec<&str> = option::all().into_iter().map(|o| o.name).collect();
    Ok(Reply::either(cmd.format, || names.iter().map(|n| format!("{n}\n")).collect(), || json!(names)))
}

fn log(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let num = cmd.int("num")?.filter(|n| *n > 0).unwrap_or(10) as usize;
    let history = &ctx.state.config.history;
    let first = ChangeSet { version: 1, ..ChangeSet::default() };
    let begins = history.first().is_none_or(|h| h.version == 2);
    let sets: Vec<&ChangeSet> = history.iter().rev().chain(Some(&first).filter(|_| begins)).take(num).collect();
    let text = || {
        let mut out = String::new();
        for set in &sets {
            let name = if set.name.is_empty() { String::new() } else { format!("{} ", set.name) };
            out += &format!("--- {} --- {} --- {name}\n", set.version, stamp(set.stamp)).replace("---  \n", "---\n").replace("--- \n", "---\n");
            for (key, before, after) in &set.diffs {
                before.iter().for_each(|v| out += &format!("- {key} = {v}\n"));
                after.iter().for_each(|v| out += &format!("+ {key} = {v}\n"));
            }
        }
        out
    };
    let value = || {
        let change = |(key, before, after): &(String, Option<String>, Option<String>)| {
            let mut v = Map::new();
            v.insert("name".into(), key.as_str().into());
            before.iter().for_each(|b| drop(v.insert("previous_value".into(), b.as_str().into())));
            after.iter().for_each(|a| drop(v.insert("new_value".into(), a.as_str().into())));
            Value::Object(v)
        };
        let one = |set: &&ChangeSet| {
            json!({"version": set.version, "timestamp": stamp(set.stamp), "name": set.name, "changes": set.diffs.iter().map(change).collect::<Vec<_>>()})
        };
        sets.iter().map(one).collect()
    };
    Ok(Reply::either(cmd.format, text, value))
}

fn reset(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let version = cmd.int("num")?.ok_or_else(|| Reply::err(Errno::EINVAL, "must specify what to revert to"))?;
    let newest = ctx.state.config.version();
    let version = u64::try_from(version).ok().filter(|v| (1..=newest).contains(v));
    let version = version.ok_or_else(|| Reply::err(Errno::EINVAL, format!("must specify a valid historical version to revert to (see 'ceph config log' for a list of available configuration historical versions), up to {newest}")))?;
    let back = ctx.state.config.changes_back_to(version);
    let name = format!("reset to {version}");
    ctx.state.config.change(ctx.now.wall, &name, back, ctx.txn);
    Ok(Reply::ok())
}

/// Takes a ceph.conf apart: what can be kept here is, the rest comes back.
fn assimilate(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let text = String::from_utf8_lossy(&cmd.input).into_owned();
    let (mut section, mut rest, mut changes) = (String::from("global"), Vec::new(), Vec::new());
    let mut rest_section = None;
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name.trim().to_owned();
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            return Err(Reply::err(Errno::EINVAL, "failed to parse config file"));
        };
        let (name, value) = (option::canonical(name.trim()), value.trim());
        match (Target::parse(&section), check(&name, value)) {
            (Some(target), Ok((_, value, _))) => changes.push((target.key(&name), Some(value))),
            _ => {
                if rest_section.as_ref() != Some(&section) {
                    rest.push(format!("[{section}]\n"));
                    rest_section = Some(section.clone());
                }
                rest.push(format!("\t{name} = {value}\n"));
            }
        }
    }
    ctx.state.config.change(ctx.now.wall, "assimilate-conf", changes, ctx.txn);
    Ok(Reply::text(rest.concat()))
}

fn minimal_conf(ctx: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    let map = &ctx.state.monmap.map;
    let hosts: Vec<String> = map.ranks.iter().filter_map(|n| map.mon_info.get(n)).map(|m| m.public_addrs.to_string()).collect();
    let out = format!("# minimal ceph.conf for {0}\n[global]\n\tfsid = {0}\n\tmon_host = {1}\n", map.fsid, hosts.join(" "));
    Ok(Reply::text(out))
}
