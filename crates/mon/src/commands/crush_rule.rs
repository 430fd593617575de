//! `osd crush rule ...`.

use super::crush::{edit, refuse};
use super::{Ctx, Entry, ec_profile, entry};
use crate::cmd::Cmd;
use crate::placement::pending_crush;
use crate::reply::{Outcome, Reply};
use crush::{RuleKind, SimpleRule};
use serde_json::json;
use types::Errno;

pub const COMMANDS: &[Entry] = &[
    entry("osd crush rule ls", "osd", "r", ls),
    entry("osd crush rule list", "osd", "r", ls),
    entry("osd crush rule ls-by-class", "osd", "r", ls_by_class),
    entry("osd crush rule dump", "osd", "r", dump),
    entry("osd crush rule create-simple", "osd", "rw", create_replicated),
    entry("osd crush rule create-replicated", "osd", "rw", create_replicated),
    entry("osd crush rule create-erasure", "osd", "rw", create_erasure),
    entry("osd crush rule rm", "osd", "rw", rm),
    entry("osd crush rule rename", "osd", "rw", rename),
];

fn names(cmd: &Cmd, names: &[String]) -> Reply {
    Reply::either(cmd.format, || names.iter().map(|n| format!("{n}\n")).collect(), || json!(names))
}

fn ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let crush = ctx.osdmap().crush.clone();
    let all: Vec<String> = crush.iter_rules().filter_map(|(n, _)| crush.rule_name(n).map(str::to_owned)).collect();
    Ok(names(cmd, &all))
}

fn ls_by_class(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let crush = ctx.osdmap().crush.clone();
    let class = cmd.text("class")?;
    if crush.class_id(class).is_none() {
        return Err(Reply::err(Errno::ENOENT, format!("failed to get rules by class '{class}'")));
    }
    let all: Vec<String> = crush.rules_of_class(class).into_iter().filter_map(|n| crush.rule_name(n).map(str::to_owned)).collect();
    Ok(names(cmd, &all))
}

fn dump(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let crush = ctx.osdmap().crush.clone();
    let name = cmd.text("name")?;
    if name.is_empty() {
        return Ok(Reply::json(cmd.format, &crush.dump_rules()));
    }
    let found = crush.rule_id(name).and_then(|n| Some((n, crush.rule(n)?)));
    let (n, rule) = found.ok_or_else(|| Reply::err(Errno::ENOENT, format!("unknown crush rule '{name}'")))?;
    Ok(Reply::json(cmd.format, &crush.dump_rule(n, rule)))
}

fn create_replicated(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, root, kind, class) = (cmd.text("name")?, cmd.text("root")?, cmd.text("type")?, cmd.text("class")?);
    edit(ctx, |crush| {
        if crush.rule_id(name).is_some() {
            return Ok((false, Reply::status(format!("rule {name} already exists"))));
        }
        if !class.is_empty() && crush.class_id(class).is_none() {
            return Err(Reply::err(Errno::EINVAL, format!("device class {class} does not exist")));
        }
        let class = Some(class).filter(|c| !c.is_empty());
        crush.add_simple_rule(SimpleRule { name, root, failure_domain: kind, class, kind: RuleKind::Replicated }).map_err(refuse)?;
        Ok((true, Reply::ok()))
    })
}

fn create_erasure(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, profile) = (cmd.text("name")?, cmd.text("profile")?);
    let profile_name = if profile.is_empty() { "default" } else { profile };
    if pending_crush(&ctx.state.osdmap).rule_id(name).is_some() {
        return Ok(Reply::status(format!("rule {name} already exists")));
    }
    let profile = ec_profile::read(ctx, profile_name)?;
    let made = edit(ctx, |crush| {
        let number = ec_profile::add_rule(crush, name, &profile)?;
        Ok((true, Reply::status(format!("created rule {name} at {number}"))))
    })?;
    ec_profile::restore_default(ctx, profile_name);
    Ok(made)
}

fn rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = cmd.text("name")?;
    let map = ctx.osdmap();
    let Some(rule) = map.crush.rule_id(name) else { return Ok(Reply::status(format!("rule {name} does not exist"))) };
    if super::pool::rule_in_use(&map, rule) {
        return Err(Reply::err(Errno::EBUSY, format!("crush ruleset {name} {rule} is in use")));
    }
    edit(ctx, |crush| {
        crush.remove_rule(rule).map_err(refuse)?;
        Ok((true, Reply::ok()))
    })
}

fn rename(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (from, to) = (cmd.text("srcname")?, cmd.text("dstname")?);
    edit(ctx, |crush| match (crush.rule_id(from), crush.rule_id(to)) {
        (None, Some(_)) => Ok((false, Reply::status(format!("already renamed to '{to}'")))),
        (None, None) => Err(Reply::err(Errno::ENOENT, format!("unknown crush rule '{from}'"))),
        (Some(_), Some(_)) => Err(Reply::err(Errno::EEXIST, format!("dstname '{to}' already exists"))),
        (Some(_), None) => {
            crush.rename_rule(from, to).map_err(refuse)?;
            Ok((true, Reply::ok()))
        }
    })
}
