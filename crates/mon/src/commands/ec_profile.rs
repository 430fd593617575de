//! `osd erasure-code-profile ...`, and what profiles mean for rules and pools.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::commands::crush::refuse;
use crate::commands::pool::default_rule;
use crate::reply::{Outcome, Reply};
use crush::{CrushMap, RuleKind, SimpleRule};
use ec::{Profile, ProfileError};
use serde_json::json;
use std::collections::BTreeMap;
use types::Errno;
use types::map::OsdMap;

pub const COMMANDS: &[Entry] = &[
    entry("osd erasure-code-profile ls", "osd", "r", ls),
    entry("osd erasure-code-profile get", "osd", "r", get),
    entry("osd erasure-code-profile set", "osd", "rw", set),
    entry("osd erasure-code-profile rm", "osd", "rw", rm),
];

/// What no two chunks share. Kept of a profile only if it was said.
pub const DOMAIN: &str = "crush-failure-domain";

type Pairs = BTreeMap<String, String>;

/// The profile that is called `default`, and whose words the others take over.
pub const DEFAULT_OPTION: &str = "osd_pool_default_erasure_code_profile";
/// Its own default.
const DEFAULT: &str = "plugin=jerasure technique=reed_sol_van k=2 m=2";

fn invalid(text: impl Into<String>) -> Reply {
    Reply::err(Errno::EINVAL, text)
}

fn refused(e: ProfileError) -> Reply {
    Reply::err(e.errno(), e.to_string())
}

fn ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let names: Vec<&String> = map.erasure_code_profiles.keys().collect();
    Ok(Reply::either(cmd.format, || names.iter().map(|n| format!("{n}\n")).collect(), || json!(names)))
}

fn get(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (map, name) = (ctx.osdmap(), cmd.text("name")?);
    let none = || Reply::err(Errno::ENOENT, format!("unknown erasure code profile '{name}'"));
    let mut profile = map.erasure_code_profiles.get(name).ok_or_else(none)?.clone();
    if profile.contains_key("crush-root") {
        // What holds for want of a word is said of a profile that was set.
        profile.entry(DOMAIN.to_owned()).or_insert_with(|| failure_domain(ctx, &map));
    }
    Ok(Reply::either(cmd.format, || profile.iter().map(|(k, v)| format!("{k}={v}\n")).collect(), || json!(profile)))
}

fn set(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, force) = (cmd.text("name")?, cmd.flag("force"));
    let map = ctx.osdmap();
    let mut pairs = given(ctx, &cmd.list("profile")?)?;
    if let Some(domain) = pairs.get(DOMAIN)
        && map.crush.type_id(domain).is_none()
    {
        return Err(invalid(format!("erasure-code-profile {} contains an invalid failure-domain \"{domain}\"", show(&pairs))));
    }
    if !pairs.contains_key("plugin") {
        return Err(invalid(format!("erasure-code-profile {} must contain a plugin entry", show(&pairs))));
    }
    let profile = Profile::parse(&pairs).map_err(refused)?;
    if !profile.stripe_unit.is_multiple_of(4096) && !force {
        return Err(invalid("stripe_unit should be a multiple of 4096 bytes for best performance.use --force to override this check"));
    }
    let domain = failure_domain(ctx, &map);
    let says_domain = pairs.get(DOMAIN).is_some_and(|domain| !domain.is_empty());
    Profile::fill(&mut pairs, &domain);
    if let Some(old) = map.erasure_code_profiles.get(name) {
        let mut old = old.clone();
        let said_domain = old.contains_key(DOMAIN);
        Profile::fill(&mut old, &domain);
        if old == pairs && said_domain >= says_domain {
            return Ok(Reply::ok());
        }
        if !force && old != pairs {
            let text = format!(
                "will not override erasure code profile {name} because the existing profile {} is different from the proposed profile {}",
                show(&old), show(&pairs)
            );
            return Err(Reply::err(Errno::EPERM, text));
        }
        // What is on the OSDs was coded as the profile said; only where chunks are to lie may change.
        let coding = |p: &Profile| (p.k, p.m, p.technique);
        if !Profile::parse(&old).is_ok_and(|old| coding(&old) == coding(&profile)) {
            check_unused(&map, name)?;
        }
    }
    if !says_domain {
        // So it goes with the cluster's (`raise.rs`).
        pairs.remove(DOMAIN);
    }
    ctx.state.osdmap.change().new_erasure_code_profiles.insert(name.to_owned(), pairs);
    Ok(Reply::ok())
}

fn rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (map, name) = (ctx.osdmap(), cmd.text("name")?);
    check_unused(&map, name)?;
    if !map.erasure_code_profiles.contains_key(name) {
        return Ok(Reply::status(format!("erasure-code-profile {name} does not exist")));
    }
    ctx.state.osdmap.change().old_erasure_code_profiles.push(name.to_owned());
    Ok(Reply::ok())
}

/// Refuses if a pool is of this profile.
fn check_unused(map: &OsdMap, name: &str) -> Result<(), Reply> {
    let users = map.pools.iter().filter(|(_, p)| p.is_erasure() && p.erasure_code_profile == name);
    let users: String = users.filter_map(|(id, _)| map.pool_name.get(id)).map(|pool| format!("{pool} ")).collect();
    match users.is_empty() {
        true => Ok(()),
        false => Err(Reply::err(Errno::EBUSY, format!("{users}pool(s) are using the erasure code profile '{name}'"))),
    }
}

/// What a command's words ask for: over the default profile, unless they name another plugin.
fn given(ctx: &Ctx<'_>, words: &[String]) -> Result<Pairs, Reply> {
    let mut all = default_of(ctx);
    let words: Pairs = words.iter().map(|word| pair(word)).collect();
    if let Some((old, new)) = words.keys().find_map(|key| Some((key, key.strip_prefix("ruleset-")?))) {
        return Err(invalid(format!("property '{old}' is no longer supported; try 'crush-{new}' instead")));
    }
    if words.get("plugin").is_some_and(|plugin| all.get("plugin") != Some(plugin)) {
        return Ok(words);
    }
    all.extend(words);
    Ok(all)
}

/// `k=2`
fn pair(word: &str) -> (String, String) {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    (key.to_owned(), value.to_owned())
}

/// The profile that [`DEFAULT_OPTION`] says, as JSON or in words.
pub fn default_pairs(option: Option<&str>) -> Pairs {
    let text = option.filter(|text| !text.trim().is_empty()).unwrap_or(DEFAULT);
    serde_json::from_str(text).unwrap_or_else(|_| text.split_whitespace().map(pair).collect())
}

/// The same as this cluster's options have it.
fn default_of(ctx: &Ctx<'_>) -> Pairs {
    default_pairs(ctx.env.option(ctx.state, DEFAULT_OPTION).as_deref())
}

/// `{k=2,m=1}`
fn show(pairs: &Pairs) -> String {
    let all: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", all.join(","))
}

/// What chunks are spread over if a profile does not say: what the cluster's replicated pools are spread over by themselves, so
/// that a pool of the default profile becomes whole on a single machine, too.
fn failure_domain(ctx: &Ctx<'_>, map: &OsdMap) -> String {
    default_rule(ctx, map).and_then(|rule| map.crush.rule_failure_domain(rule.into())).unwrap_or("host").to_owned()
}

/// The profile called `name`, read: with the cluster's failure domain and stripe unit where it does not say.
pub fn read(ctx: &Ctx<'_>, name: &str) -> Result<Profile, Reply> {
    let map = ctx.osdmap();
    let pairs = match map.erasure_code_profiles.get(name) {
        Some(pairs) => pairs.clone(),
        None if name == "default" => default_of(ctx),
        None => Pairs::new(),
    };
    if !pairs.contains_key("plugin") {
        let text = "cannot determine the erasure code plugin because there is no 'plugin' entry in the erasure_code_profile";
        return Err(invalid(format!("{text} {}", show(&pairs))));
    }
    let mut profile = Profile::parse(&pairs).map_err(refused)?;
    if profile.failure_domain.is_empty() {
        profile.failure_domain = failure_domain(ctx, &map);
    }
    if !pairs.contains_key("stripe_unit") {
        let unit = ctx.int_option("osd_pool_erasure_code_stripe_unit", i64::from(profile.stripe_unit));
        // Up to a whole number of the coder's words, as a plugin pads it.
        profile.stripe_unit = u32::try_from(unit.clamp(32, 1 << 30)).unwrap_or(4096).next_multiple_of(32);
    }
    Ok(profile)
}

/// Makes the profile `default` anew if a rule or a pool of it is made and somebody has removed it.
pub fn restore_default(ctx: &mut Ctx<'_>, name: &str) {
    if name == "default" && !ctx.osdmap().erasure_code_profiles.contains_key(name) {
        let pairs = default_of(ctx);
        ctx.state.osdmap.change().new_erasure_code_profiles.insert(name.to_owned(), pairs);
    }
}

/// Adds the rule of a profile's pools: one chunk in each failure domain, positions kept.
pub fn add_rule(crush: &mut CrushMap, name: &str, profile: &Profile) -> Result<u8, Reply> {
    let class = Some(profile.device_class.as_str()).filter(|c| !c.is_empty());
    let rule = SimpleRule { name, root: &profile.root, failure_domain: &profile.failure_domain, class, kind: RuleKind::Erasure };
    if let Some(class) = class.filter(|class| crush.class_id(class).is_none()) {
        return Err(invalid(format!("device class {class} does not exist")));
    }
    let number = crush.add_simple_rule(rule).map_err(refuse)?;
    crush.set_rule_max_size(number, (profile.k + profile.m) as u8).map_err(refuse)?;
    u8::try_from(number).map_err(|_| invalid("rule out of range"))
}
