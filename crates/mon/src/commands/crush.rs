//! `osd crush ...`: the hierarchy, its weights, device classes and tunables.

use super::osd::parse_osd;
use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::placement::pending_crush;
use crate::reply::{Outcome, Reply};
use crate::text::short_float;
use crush::{CrushError, CrushMap, Profile, parse_location};
use serde_json::json;
use std::collections::BTreeMap;
use types::Errno;
use types::map::OsdMap;

pub const COMMANDS: &[Entry] = &[
    entry("osd getcrushmap", "osd", "r", getcrushmap),
    entry("osd setcrushmap", "osd", "rw", setcrushmap),
    entry("osd crush set-all-straw-buckets-to-straw2", "osd", "rw", |_, _| Ok(Reply::ok())),
    entry("osd crush dump", "osd", "r", dump),
    entry("osd crush ls", "osd", "r", ls),
    entry("osd crush add-bucket", "osd", "rw", add_bucket),
    entry("osd crush rename-bucket", "osd", "rw", rename_bucket),
    entry("osd crush add", "osd", "rw", add),
    entry("osd crush set", "osd", "rw", set),
    entry("osd crush create-or-move", "osd", "rw", create_or_move),
    entry("osd crush move", "osd", "rw", move_),
    entry("osd crush link", "osd", "rw", link),
    entry("osd crush unlink", "osd", "rw", |c, m| remove(c, m, true)),
    entry("osd crush rm", "osd", "rw", |c, m| remove(c, m, false)),
    entry("osd crush remove", "osd", "rw", |c, m| remove(c, m, false)),
    entry("osd crush swap-bucket", "osd", "rw", swap_bucket),
    entry("osd crush reweight", "osd", "rw", reweight),
    entry("osd crush reweight-all", "osd", "rw", reweight_all),
    entry("osd crush reweight-subtree", "osd", "rw", reweight_subtree),
    entry("osd crush set-device-class", "osd", "rw", set_class),
    entry("osd crush rm-device-class", "osd", "rw", rm_class),
    entry("osd crush get-device-class", "osd", "r", get_class),
    entry("osd crush class ls", "osd", "r", class_ls),
    entry("osd crush class ls-osd", "osd", "r", class_ls_osd),
    entry("osd crush class rename", "osd", "rw", class_rename),
    entry("osd crush class create", "osd", "rw", class_create),
    entry("osd crush class rm", "osd", "rw", class_rm),
    entry("osd crush show-tunables", "osd", "r", show_tunables),
    entry("osd crush tunables", "osd", "rw", tunables),
    entry("osd crush get-tunable", "osd", "r", get_tunable),
    entry("osd crush set-tunable", "osd", "rw", set_tunable),
    entry("osd crush weight-set ls", "osd", "r", weight_set_ls),
    entry("osd crush weight-set dump", "osd", "r", weight_set_dump),
    entry("osd crush weight-set create", "osd", "rw", weight_set_create),
    entry("osd crush weight-set create-compat", "osd", "rw", weight_set_create_compat),
    entry("osd crush weight-set rm", "osd", "rw", weight_set_rm),
    entry("osd crush weight-set rm-compat", "osd", "rw", weight_set_rm_compat),
    entry("osd crush weight-set reweight", "osd", "rw", weight_set_reweight),
    entry("osd crush weight-set reweight-compat", "osd", "rw", weight_set_reweight_compat),
];

/// A refusal of the hierarchy as a reply.
pub fn refuse(e: CrushError) -> Reply {
    Reply { result: e.errno(), ..Reply::status(e.to_string()) }
}

/// Changes the CRUSH map in the next epoch, if `f` says it changed it.
pub fn edit<T>(ctx: &mut Ctx<'_>, f: impl FnOnce(&mut CrushMap) -> Result<(bool, T), Reply>) -> Result<T, Reply> {
    let mut crush = CrushMap::clone(&pending_crush(&ctx.state.osdmap));
    let (changed, out) = f(&mut crush)?;
    if changed {
        crush.check_shape().map_err(|e| Reply::err(Errno::EINVAL, format!("the crush map would be out of shape: {e:?}")))?;
        ctx.state.osdmap.set_crush(&crush);
    }
    Ok(out)
}

fn fixed(weight: f64) -> Result<u32, Reply> {
    if !weight.is_finite() || !(0.0..=65_535.0).contains(&weight) {
        return Err(Reply::err(Errno::EINVAL, format!("weight {} out of range", short_float(weight))));
    }
    Ok((weight * 65536.0) as u32)
}

fn weight_arg(cmd: &Cmd) -> Result<f64, Reply> {
    cmd.float("weight")?.ok_or_else(|| Reply::err(Errno::EINVAL, "unable to parse weight value"))
}

type Location = BTreeMap<String, String>;

fn location_arg(cmd: &Cmd) -> Result<Location, Reply> {
    parse_location(cmd.list("args")?).ok_or_else(|| Reply::err(Errno::EINVAL, "unable to parse location: use type=name"))
}

/// `{host=a,root=default}`
fn show(place: &Location) -> String {
    let all: Vec<String> = place.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", all.join(","))
}

/// The OSD an `id` argument names; it must exist in the osdmap.
fn osd_arg(ctx: &Ctx<'_>, cmd: &Cmd) -> Result<i32, Reply> {
    let osd = super::osd::id_arg(cmd)?;
    match ctx.osdmap().exists(osd) {
        true => Ok(osd.0),
        false => Err(Reply::err(Errno::ENOENT, format!("osd.{osd} does not exist. Create it before updating the crush map"))),
    }
}

fn item_arg(ctx: &Ctx<'_>, name: &str) -> Result<i32, Reply> {
    let crush = pending_crush(&ctx.state.osdmap);
    crush.item(name).ok_or_else(|| Reply::err(Errno::ENOENT, format!("item {name} does not exist")))
}

fn getcrushmap(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = super::osd::map_of_epoch(ctx, cmd)?;
    let raw = denc::to_bytes(&*map.crush, types::features::SUPPORTED);
    Ok(Reply { status: map.crush_version.to_string(), ..Reply::text(raw) })
}

fn setcrushmap(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    if let Some(prior) = cmd.int("prior_version")?
        && prior != i64::from(map.crush_version)
    {
        if prior == i64::from(map.crush_version) - 1 && denc::to_bytes(&*map.crush, types::features::SUPPORTED) == cmd.input {
            return Ok(Reply::status(map.crush_version.to_string()));
        }
        return Err(Reply::err(Errno::EPERM, format!("prior_version {prior} != crush version {}", map.crush_version)));
    }
    let crush: CrushMap = denc::from_bytes(&cmd.input).map_err(|e| Reply::err(Errno::EINVAL, format!("Failed to parse crushmap: {e}")))?;
    crush.check_shape().map_err(|e| Reply::err(Errno::EINVAL, format!("Failed to parse crushmap: {e}")))?;
    check_rules(&map, &crush)?;
    if crush.max_devices > map.max_osd.max(0) && crush.iter_buckets().flat_map(|b| &b.items).any(|i| *i >= map.max_osd) {
        return Err(Reply::err(Errno::EINVAL, format!("crushmap max_devices {} > osdmap max_osd {}", crush.max_devices, map.max_osd)));
    }
    if ctx.bool_option("mon_osd_crush_smoke_test", true) {
        smoke_test(&map, &crush)?;
    }
    ctx.state.osdmap.set_crush(&crush);
    Ok(Reply::status((map.crush_version + 1).to_string()))
}

/// Every rule is numbered as it says, and those that pools use are there and fit.
fn check_rules(map: &OsdMap, crush: &CrushMap) -> Result<(), Reply> {
    let invalid = |text: String| Err(Reply::err(Errno::EINVAL, text));
    if crush.iter_rules().any(|(number, rule)| u32::from(rule.ruleset) != number) {
        return invalid("crush maps with ruleset != ruleid are no longer allowed".into());
    }
    for (id, pool) in &map.pools {
        let (number, size) = (pool.crush_rule, pool.size);
        let Some(rule) = crush.rule(number.into()) else {
            return invalid(format!("pool {id} references crush_rule {number} but it is not present"));
        };
        if rule.kind != pool.pool_type.0 {
            return invalid(format!("pool {id} type does not match rule {number}"));
        }
        if !(rule.min_size..=rule.max_size).contains(&size) {
            let (least, most) = (rule.min_size, rule.max_size);
            return invalid(format!("pool {id} size {size} does not fall within rule {number} min_size {least} and max_size {most}"));
        }
    }
    Ok(())
}

/// Inputs that a new map is tried with, as many as upstream tries.
const SMOKE_INPUTS: u32 = 51;

/// Tries a map: no pool that finds enough OSDs for itself now may find too few for every input.
fn smoke_test(map: &OsdMap, crush: &CrushMap) -> Result<(), Reply> {
    for (id, pool) in &map.pools {
        let found = |with: &CrushMap| {
            let found = |x| with.do_rule(pool.crush_rule.into(), x, pool.size.into(), &map.osd_weight, with.choose_args_for(id.0));
            (0..SMOKE_INPUTS).map(|x| found(x).into_iter().filter(|osd| *osd != crush::ITEM_NONE).count()).max().unwrap_or(0)
        };
        let (now, then) = (found(&map.crush), found(crush));
        if then < usize::from(pool.min_size) && now >= usize::from(pool.min_size) {
            let text = format!(
                "crush smoke test failed with {}: rule {} finds {then} OSDs at most for pool {id}, whose min_size is {} \
                 (mon_osd_crush_smoke_test = false accepts it nevertheless)",
                Errno::EINVAL.wire(), pool.crush_rule, pool.min_size
            );
            return Err(Reply::err(Errno::EINVAL, text));
        }
    }
    Ok(())
}

fn dump(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::json(cmd.format, &ctx.osdmap().crush.dump_json()))
}

fn ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let crush = ctx.osdmap().crush.clone();
    let node = cmd.text("node")?;
    let id = crush.item(node).ok_or_else(|| Reply::err(Errno::ENOENT, format!("node '{node}' does not exist")))?;
    let name = |item: &i32| crush.name(*item).map_or_else(|| format!("osd.{item}"), str::to_owned);
    let names: Vec<String> = match crush.bucket(id) {
        Some(bucket) => bucket.items.iter().map(name).collect(),
        None => vec![node.to_owned()],
    };
    Ok(Reply::either(cmd.format, || names.iter().map(|n| format!("{n}\n")).collect(), || json!(names)))
}

fn add_bucket(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, kind, place) = (cmd.text("name")?, cmd.text("type")?, location_arg(cmd)?);
    edit(ctx, |crush| {
        if crush.item(name).is_some() {
            return Ok((false, Reply::status(format!("bucket '{name}' already exists"))));
        }
        let type_id = crush.type_id(kind).ok_or_else(|| Reply::err(Errno::EINVAL, format!("type '{kind}' does not exist")))?;
        if type_id == 0 {
            return Err(Reply::err(Errno::EINVAL, format!("type '{kind}' is for devices, not buckets")));
        }
        let id = crush.add_bucket(None, name, None, type_id as u16, &[]).map_err(refuse)?;
        if place.is_empty() {
            return Ok((true, Reply::status(format!("added bucket {name} type {kind} to crush map"))));
        }
        crush.move_bucket(id, &place).map_err(refuse)?;
        Ok((true, Reply::status(format!("added bucket {name} type {kind} to location {}", show(&place)))))
    })
}

fn rename_bucket(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (from, to) = (cmd.text("srcname")?, cmd.text("dstname")?);
    edit(ctx, |crush| match (crush.item(from), crush.item(to)) {
        (None, Some(_)) => Ok((false, Reply::status(format!("already renamed to '{to}'")))),
        (None, None) => Err(Reply::err(Errno::ENOENT, format!("srcname = '{from}' does not exist"))),
        (Some(id), _) if id >= 0 => Err(Reply::err(Errno::ENOTDIR, format!("srcname = '{from}' is not a bucket"))),
        (Some(_), Some(_)) => Err(Reply::err(Errno::EEXIST, format!("dstname = '{to}' already exists"))),
        (Some(_), None) => {
            crush.rename_item(from, to).map_err(refuse)?;
            Ok((true, Reply::status(format!("renamed bucket {from} into {to}"))))
        }
    })
}

fn add(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (osd, weight, place) = (osd_arg(ctx, cmd)?, weight_arg(cmd)?, location_arg(cmd)?);
    let name = format!("osd.{osd}");
    let fixed = fixed(weight)?;
    edit(ctx, |crush| {
        let changed = crush.update_item(osd, fixed, &name, &place).map_err(refuse)?;
        let status = format!("add item id {osd} name '{name}' weight {} at location {} to crush map", short_float(weight), show(&place));
        Ok((changed, Reply::status(status)))
    })
}

/// `osd crush set` with an OSD; without one it is `osd setcrushmap`.
fn set(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    if matches!(cmd.int("id"), Ok(None)) {
        return setcrushmap(ctx, cmd);
    }
    let (osd, weight, place) = (osd_arg(ctx, cmd)?, weight_arg(cmd)?, location_arg(cmd)?);
    let name = format!("osd.{osd}");
    let fixed = fixed(weight)?;
    edit(ctx, |crush| {
        if !crush.item_exists(osd) {
            return Err(Reply::err(Errno::ENOENT, format!("unable to set item id {osd} name '{name}' weight {} at location {}: does not exist", short_float(weight), show(&place))));
        }
        let changed = crush.update_item(osd, fixed, &name, &place).map_err(refuse)?;
        let status = format!("set item id {osd} name '{name}' weight {} at location {} to crush map", short_float(weight), show(&place));
        Ok((changed, Reply::status(status)))
    })
}

fn create_or_move(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (osd, weight, place) = (osd_arg(ctx, cmd)?, weight_arg(cmd)?, location_arg(cmd)?);
    let name = format!("osd.{osd}");
    let fixed = fixed(weight)?;
    edit(ctx, |crush| {
        let changed = crush.create_or_move_item(osd, fixed, &name, &place).map_err(refuse)?;
        let status = format!("create-or-move updating item name '{name}' weight {} at location {} to crush map", short_float(weight), show(&place));
        Ok((changed, Reply::status(status)))
    })
}

/// True if the item stands where the location says.
fn stands_at(crush: &CrushMap, id: i32, place: &Location) -> bool {
    let above: Location = crush.full_location(id).into_iter().collect();
    let lowest = place.iter().min_by_key(|(kind, _)| crush.type_id(kind).unwrap_or(i32::MAX));
    let parent = crush.parent(id).and_then(|b| crush.name(b.id));
    place.iter().all(|(kind, name)| above.get(kind) == Some(name)) && lowest.is_some_and(|(_, name)| parent == Some(name))
}

fn move_(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, place) = (cmd.text("name")?, location_arg(cmd)?);
    let id = item_arg(ctx, name)?;
    edit(ctx, |crush| {
        if stands_at(crush, id, &place) {
            return Ok((false, Reply::status(format!("no need to move item id {id} name '{name}' to location {} in crush map", show(&place)))));
        }
        match id >= 0 {
            true => crush.create_or_move_item(id, 0, name, &place).map(drop),
            false => crush.move_bucket(id, &place),
        }
        .map_err(refuse)?;
        Ok((true, Reply::status(format!("moved item id {id} name '{name}' to location {} in crush map", show(&place)))))
    })
}

fn link(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, place) = (cmd.text("name")?, location_arg(cmd)?);
    let id = item_arg(ctx, name)?;
    edit(ctx, |crush| {
        if stands_at(crush, id, &place) {
            return Ok((false, Reply::status(format!("no need to move item id {id} name '{name}' to location {} in crush map", show(&place)))));
        }
        crush.link_bucket(id, &place).map_err(refuse)?;
        Ok((true, Reply::status(format!("linked item id {id} name '{name}' to location {} in crush map", show(&place)))))
    })
}

fn remove(ctx: &mut Ctx<'_>, cmd: &Cmd, unlink_only: bool) -> Outcome {
    let (name, ancestor) = (cmd.text("name")?, cmd.text("ancestor")?);
    let crush = pending_crush(&ctx.state.osdmap);
    let Some(id) = crush.item(name) else {
        return Ok(Reply::status(format!("device '{name}' does not appear in the crush map")));
    };
    let under = match ancestor {
        "" => None,
        name => Some(crush.item(name).ok_or_else(|| {
            Reply::err(Errno::ENOENT, format!("ancestor item '{name}' does not appear in the crush map"))
        })?),
    };
    edit(ctx, |crush| {
        match under {
            None => crush.remove_item(id, unlink_only),
            Some(root) => crush.remove_item_under(id, root, unlink_only),
        }
        .map_err(refuse)?;
        let what = if unlink_only { "unlinked" } else { "removed" };
        Ok((true, Reply::status(format!("{what} item id {id} name '{name}' from crush map"))))
    })
}

fn swap_bucket(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (source, dest) = (cmd.text("source")?, cmd.text("dest")?);
    let (a, b) = (item_arg(ctx, source)?, item_arg(ctx, dest)?);
    if !cmd.flag("yes_i_really_mean_it") {
        return Err(Reply::err(Errno::EPERM, "this can move much data; pass --yes-i-really-mean-it if that is what you want"));
    }
    edit(ctx, |crush| {
        crush.swap_buckets(a, b).map_err(refuse)?;
        Ok((true, Reply::status(format!("swapped bucket of {source} to {dest}"))))
    })
}

fn reweight(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, weight) = (cmd.text("name")?, weight_arg(cmd)?);
    let fixed = fixed(weight)?;
    edit(ctx, |crush| {
        let none = || Reply::err(Errno::ENOENT, format!("device '{name}' does not appear in the crush map"));
        let id = crush.item(name).ok_or_else(none)?;
        if id < 0 {
            return Err(Reply::err(Errno::EINVAL, format!("device '{name}' is not a leaf in the crush map")));
        }
        crush.reweight_item(id, fixed, true).map_err(refuse)?;
        Ok((true, Reply::status(format!("reweighted item id {id} name '{name}' to {} in crush map", short_float(weight)))))
    })
}

fn reweight_all(ctx: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    edit(ctx, |crush| {
        crush.reweight_all().map_err(refuse)?;
        Ok((true, Reply::status("reweighted crush hierarchy")))
    })
}

fn reweight_subtree(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, weight) = (cmd.text("name")?, weight_arg(cmd)?);
    let fixed = fixed(weight)?;
    edit(ctx, |crush| {
        let none = || Reply::err(Errno::ENOENT, format!("device '{name}' does not appear in the crush map"));
        let id = crush.item(name).ok_or_else(none)?;
        if id >= 0 {
            return Err(Reply::err(Errno::EINVAL, format!("device '{name}' is not a subtree in the crush map")));
        }
        crush.reweight_subtree(id, fixed, true).map_err(refuse)?;
        Ok((true, Reply::status(format!("reweighted subtree id {id} name '{name}' to {} in crush map", short_float(weight)))))
    })
}

/// OSDs of an `ids` argument, and complaints about those that do not exist.
fn ids(ctx: &Ctx<'_>, cmd: &Cmd) -> Result<(Vec<i32>, String), Reply> {
    let (osds, complaints) = super::osd_life::osds_arg(ctx, cmd)?;
    Ok((osds.into_iter().map(|o| o.0).collect(), complaints))
}

fn join(ids: &[i32]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn set_class(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let class = cmd.text("class")?;
    let (osds, complaints) = ids(ctx, cmd)?;
    edit(ctx, |crush| {
        let mut changed = false;
        for osd in &osds {
            changed |= crush.set_device_class(*osd, class).map_err(refuse)?;
        }
        Ok((changed, Reply::status(format!("{complaints}set osd(s) {} to class '{class}'", join(&osds)))))
    })
}

fn rm_class(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (osds, complaints) = ids(ctx, cmd)?;
    edit(ctx, |crush| {
        let (mut changed, mut had, mut bare) = (false, Vec::new(), String::new());
        for osd in &osds {
            if crush.remove_device_class(*osd).map_err(refuse)? {
                changed = true;
                had.push(*osd);
            } else {
                bare += &format!("osd.{osd} belongs to no class, ");
            }
        }
        Ok((changed, Reply::status(format!("{complaints}{bare}done removing class of osd(s): {}", join(&had)))))
    })
}

fn get_class(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (osds, _) = ids(ctx, cmd)?;
    let crush = ctx.osdmap().crush.clone();
    let class = |osd: &i32| crush.item_class(*osd).unwrap_or("").to_owned();
    let text = || osds.iter().map(class).filter(|c| !c.is_empty()).collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ") + "\n";
    Ok(Reply::either(cmd.format, text, || osds.iter().map(|o| json!({"osd": o, "device_class": class(o)})).collect()))
}

fn class_ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let names: Vec<String> = ctx.osdmap().crush.class_names.values().cloned().collect();
    Ok(Reply::json(cmd.format, &json!(names)))
}

fn class_ls_osd(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let osds = ctx.osdmap().crush.osds_of_class(cmd.text("class")?);
    Ok(Reply::either(cmd.format, || osds.iter().map(|o| format!("{o}\n")).collect(), || json!(osds)))
}

fn class_create(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let class = cmd.text("class")?;
    edit(ctx, |crush| match crush.create_class(class).map_err(refuse)? {
        (_, false) => Ok((false, Reply::status(format!("class '{class}' already exists")))),
        (id, true) => Ok((true, Reply::status(format!("created class {class} with id {id} to crush map")))),
    })
}

fn class_rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let class = cmd.text("class")?;
    let map = ctx.osdmap();
    if map.crush.class_id(class).is_none() {
        return Ok(Reply::ok());
    }
    let rules: Vec<String> = map.crush.rules_of_class(class).into_iter().filter_map(|n| map.crush.rule_name(n)).map(|name| format!("'{name}'")).collect();
    if !rules.is_empty() {
        return Err(Reply::err(Errno::EBUSY, format!("class '{class}' still referenced by crush_rule(s): {}", rules.join(","))));
    }
    let of_class = |p: &&String| map.erasure_code_profiles.get(*p).and_then(|p| p.get("crush-device-class")).is_some_and(|c| c == class);
    let profiles: Vec<String> = map.erasure_code_profiles.keys().filter(of_class).cloned().collect();
    if !profiles.is_empty() {
        let text = format!("class '{class}' is still referenced by erasure-code-profile(s): {}", profiles.join(","));
        return Err(Reply::err(Errno::EBUSY, text));
    }
    edit(ctx, |crush| {
        let id = crush.remove_class(class).map_err(refuse)?;
        Ok((true, Reply::status(format!("removed class {class} with id {id} from crush map"))))
    })
}

fn class_rename(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (from, to) = (cmd.text("srcname")?, cmd.text("dstname")?);
    edit(ctx, |crush| match (crush.class_id(from), crush.class_id(to)) {
        (None, Some(_)) => Ok((false, Reply::status(format!("already renamed to '{to}'")))),
        _ => {
            crush.rename_class(from, to).map_err(refuse)?;
            Ok((true, Reply::status(format!("rename device class '{from}' to '{to}'"))))
        }
    })
}

fn show_tunables(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::json(cmd.format, &ctx.osdmap().crush.dump_tunables()))
}

fn tunables(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = cmd.text("profile")?;
    let profile = Profile::parse(name).ok_or_else(|| Reply::err(Errno::EINVAL, format!("unrecognized profile '{name}'")))?;
    edit(ctx, |crush| {
        crush.tunables.set_profile(profile);
        Ok((true, Reply::status(format!("adjusted tunables profile to {name}"))))
    })
}

fn get_tunable(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = cmd.text("tunable")?;
    if name != "straw_calc_version" {
        return Err(Reply::err(Errno::EINVAL, format!("unrecognized tunable '{name}'")));
    }
    let value = ctx.osdmap().crush.tunables.straw_calc_version;
    Ok(Reply::either(cmd.format, || format!("{value}\n"), || json!({name: value})))
}

fn set_tunable(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = cmd.text("tunable")?;
    let value = cmd.int("value")?.and_then(|v| u8::try_from(v).ok()).filter(|v| *v <= 2);
    let (true, Some(value)) = (name == "straw_calc_version", value) else {
        return Err(Reply::err(Errno::EINVAL, format!("unrecognized tunable '{name}' or value out of range")));
    };
    edit(ctx, |crush| {
        crush.tunables.straw_calc_version = value;
        Ok((true, Reply::status(format!("adjusted tunable {name} to {value}"))))
    })
}

/// The weight set a command names by its pool.
fn set_of_pool(ctx: &Ctx<'_>, cmd: &Cmd) -> Result<i64, Reply> {
    Ok(ctx.pool(cmd.text("pool")?)?.0.0)
}

fn set_name(ctx: &Ctx<'_>, set: i64) -> String {
    match set {
        crush::COMPAT_WEIGHT_SET => "(compat)".into(),
        id => ctx.osdmap().pool_name.get(&types::PoolId(id)).cloned().unwrap_or_else(|| id.to_string()),
    }
}

fn weight_set_ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let names: Vec<String> = ctx.osdmap().crush.choose_args.keys().map(|id| set_name(ctx, *id)).collect();
    Ok(Reply::either(cmd.format, || names.iter().map(|n| format!("{n}\n")).collect(), || json!(names)))
}

fn weight_set_dump(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::json(cmd.format, &ctx.osdmap().crush.dump_json()["choose_args"]))
}

fn create_set(ctx: &mut Ctx<'_>, set: i64, positions: usize) -> Outcome {
    edit(ctx, |crush| {
        if crush.choose_args.contains_key(&set) {
            return Ok((false, Reply::ok()));
        }
        crush.create_weight_set(set, positions).map_err(refuse)?;
        Ok((true, Reply::ok()))
    })
}

fn weight_set_create(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (id, pool) = ctx.pool(cmd.text("pool")?)?;
    let positions = if cmd.text("mode")? == "positional" { usize::from(pool.size) } else { 1 };
    create_set(ctx, id.0, positions)
}

fn weight_set_create_compat(ctx: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    create_set(ctx, crush::COMPAT_WEIGHT_SET, 1)
}

fn remove_set(ctx: &mut Ctx<'_>, set: i64) -> Outcome {
    edit(ctx, |crush| Ok((crush.remove_weight_set(set), Reply::ok())))
}

fn weight_set_rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let set = set_of_pool(ctx, cmd)?;
    remove_set(ctx, set)
}

fn weight_set_rm_compat(ctx: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    remove_set(ctx, crush::COMPAT_WEIGHT_SET)
}

fn reweight_set(ctx: &mut Ctx<'_>, cmd: &Cmd, set: i64) -> Outcome {
    let item = cmd.text("item")?;
    let id = match parse_osd(item) {
        Some(osd) => osd.0,
        None => item_arg(ctx, item)?,
    };
    let texts = cmd.list("weight")?;
    let parse = |t: &String| t.parse::<f64>().map_err(|_| Reply::err(Errno::EINVAL, format!("unable to parse weight '{t}'"))).and_then(fixed);
    let weights: Vec<u32> = texts.iter().map(parse).collect::<Result<_, _>>()?;
    edit(ctx, |crush| {
        crush.reweight_in_weight_set(set, id, &weights).map_err(refuse)?;
        Ok((true, Reply::ok()))
    })
}

fn weight_set_reweight(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let set = set_of_pool(ctx, cmd)?;
    reweight_set(ctx, cmd, set)
}

fn weight_set_reweight_compat(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    reweight_set(ctx, cmd, crush::COMPAT_WEIGHT_SET)
}
