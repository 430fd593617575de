//! Pools are made, listed, renamed and removed.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use crush::CrushMap;
use serde_json::{Value, json};
use types::map::{AutoscaleMode, OsdMap, PgPool, PoolType};
use types::{Errno, PoolId};

pub const COMMANDS: &[Entry] = &[
    entry("osd pool create", "osd", "rw", create),
    entry("osd pool ls", "osd", "r", ls),
    entry("osd pool rm", "osd", "rw", rm),
    entry("osd pool delete", "osd", "rw", rm),
    entry("osd pool rename", "osd", "rw", rename),
    entry("osd pool set-quota", "osd", "rw", set_quota),
    entry("osd pool get-quota", "osd", "r", get_quota),
];

/// What a new pool is to be.
pub struct NewPool {
    pub pg_num: u32,
    pub pgp_num: u32,
    pub rule: u8,
    pub size: u8,
    pub min_size: u8,
}

/// How many OSDs hold a placement group, and how many are enough to serve it.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub size: u8,
    pub min_size: u8,
}

fn invalid(text: impl Into<String>) -> Reply {
    Reply::err(Errno::EINVAL, text)
}

fn create(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = cmd.text("pool")?;
    let kind = match cmd.text("pool_type")? {
        "" => ctx.env.option(ctx.state, "osd_pool_default_type").unwrap_or_else(|| "replicated".into()),
        given => given.to_owned(),
    };
    if let Ok((_, pool)) = ctx.pool(name) {
        return match pool.pool_type.name() == kind {
            true => Ok(Reply::status(format!("pool '{name}' already exists"))),
            false => Err(invalid(format!("pool '{name}' cannot change to type {kind}"))),
        };
    }
    match kind.as_str() {
        "replicated" => create_replicated(ctx, cmd, name)?,
        "erasure" => super::pool_erasure::create(ctx, cmd, name)?,
        other => return Err(invalid(format!("unknown pool type '{other}'"))),
    }
    Ok(Reply::status(format!("pool '{name}' created")))
}

fn create_replicated(ctx: &mut Ctx<'_>, cmd: &Cmd, name: &str) -> Result<(), Reply> {
    if cmd.int("fast_read")?.is_some_and(|on| on > 0) {
        return Err(invalid("'fast_read' can only apply to erasure coding pool"));
    }
    // For replicated pools the word in the profile's place is the rule's name.
    let rule_name = match cmd.text("rule")? {
        "" => cmd.text("erasure_code_profile")?,
        given => given,
    };
    let map = ctx.osdmap();
    let rule = rule_arg(ctx, &map, rule_name)?;
    let sizes = replicated_sizes(ctx, cmd.int("size")?.filter(|s| *s > 0))?;
    let pg_num = pg_num_arg(ctx, cmd, &map.crush, rule, sizes.size)?;
    let new = plan(ctx, name, pg_num, cmd.int("pgp_num")?.unwrap_or(0), rule, sizes)?;
    check_rule(&map.crush, rule, PoolType::REPLICATED, sizes.size)?;
    let pool = make(ctx, &new, cmd)?;
    insert(ctx, name, pool);
    Ok(())
}

/// The number of PGs that a command asks for, 0 for the default. A pool that is to be large begins with more.
pub fn pg_num_arg(ctx: &Ctx<'_>, cmd: &Cmd, crush: &CrushMap, rule: u8, size: u8) -> Result<i64, Reply> {
    Ok(match cmd.int("pg_num")?.unwrap_or(0) {
        0 if cmd.flag("bulk") && autoscale_mode(ctx, cmd)? == AutoscaleMode::ON => bulk_pg_num(ctx, crush, rule, size.into()),
        given => given,
    })
}

/// The number of the replicated rule that a pool without one gets.
pub fn default_rule(ctx: &Ctx<'_>, map: &OsdMap) -> Option<u8> {
    let configured = ctx.int_option("osd_pool_default_crush_rule", -1);
    let first = map.crush.iter_rules().find(|(_, r)| r.kind == 1).map(|(n, _)| n);
    let chosen = u32::try_from(configured).ok().filter(|n| map.crush.rule(*n).is_some()).or(first);
    chosen.and_then(|n| u8::try_from(n).ok())
}

/// The number of the rule a pool is to use; the default one if none is named.
fn rule_arg(ctx: &Ctx<'_>, map: &OsdMap, name: &str) -> Result<u8, Reply> {
    if name.is_empty() {
        let none = || Reply::err(Errno::ENOENT, "no suitable CRUSH rule exists, check 'osd pool default crush *' config options");
        return default_rule(ctx, map).ok_or_else(none);
    }
    named_rule(&map.crush, name)
}

/// The number of the rule called `name`.
pub fn named_rule(crush: &CrushMap, name: &str) -> Result<u8, Reply> {
    let rule = crush.rule_id(name).ok_or_else(|| Reply::err(Errno::ENOENT, format!("specified rule {name} doesn't exist")))?;
    u8::try_from(rule).map_err(|_| invalid("rule out of range"))
}

/// Refuses a rule that is not made for pools of this type and size (`CrushWrapper::check_crush_rule`).
pub fn check_rule(crush: &CrushMap, rule: u8, kind: PoolType, size: u8) -> Result<(), Reply> {
    match crush.rule(rule.into()).filter(|r| r.kind == kind.0) {
        None => Err(invalid("(22) Invalid argument")),
        Some(rule) if size < rule.min_size => Err(invalid("pool size is smaller than the crush rule min size")),
        Some(rule) if size > rule.max_size => Err(invalid("pool size is bigger than the crush rule max size")),
        Some(_) => Ok(()),
    }
}

/// Sizes of a replicated pool of `size` copies, or of the default.
pub fn replicated_sizes(ctx: &Ctx<'_>, size: Option<i64>) -> Result<Sizes, Reply> {
    let size = size.unwrap_or_else(|| ctx.int_option("osd_pool_default_size", 3)).clamp(1, 255);
    if size == 1 && !ctx.bool_option("mon_allow_pool_size_one", false) {
        return Err(Reply::err(Errno::EPERM, "configuring pool size as 1 is disabled by default."));
    }
    let min_size = match ctx.int_option("osd_pool_default_min_size", 0) {
        0 => size - size / 2,
        given => given.clamp(1, size),
    };
    Ok(Sizes { size: size as u8, min_size: min_size as u8 })
}

/// Checks names and numbers, and fills in the defaults.
pub fn plan(ctx: &Ctx<'_>, name: &str, pg_num: i64, pgp_num: i64, rule: u8, sizes: Sizes) -> Result<NewPool, Reply> {
    if name.is_empty() {
        return Err(invalid("(22) Invalid argument"));
    }
    let pg_num = if pg_num == 0 { ctx.int_option("osd_pool_default_pg_num", 32) } else { pg_num };
    let pgp_num = match (pgp_num, ctx.int_option("osd_pool_default_pgp_num", 0)) {
        (0, 0) => pg_num,
        (0, default) => default.min(pg_num),
        (given, _) => given,
    };
    check_pg_num(ctx, pg_num)?;
    if pgp_num > pg_num || pgp_num < 1 {
        let text = format!("'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this case is {pg_num}");
        return Err(Reply::err(Errno::ERANGE, text));
    }
    check_pgs_per_osd(ctx, None, pg_num, sizes.size.into())?;
    Ok(NewPool { pg_num: pg_num as u32, pgp_num: pgp_num as u32, rule, size: sizes.size, min_size: sizes.min_size })
}

/// Refuses numbers of PGs that no pool may have.
pub fn check_pg_num(ctx: &Ctx<'_>, pg_num: i64) -> Result<(), Reply> {
    let most = ctx.int_option("mon_max_pool_pg_num", 65_536);
    if pg_num < 1 || pg_num > most {
        let text = format!(
            "'pg_num' must be greater than 0 and less than or equal to {most} (you may adjust 'mon max pool pg num' for higher values)"
        );
        return Err(Reply::err(Errno::ERANGE, text));
    }
    Ok(())
}

/// Refuses to put more PGs on an OSD than `mon_max_pg_per_osd`, on average. `pool`: the one that is to change.
pub fn check_pgs_per_osd(ctx: &Ctx<'_>, pool: Option<PoolId>, pg_num: i64, size: i64) -> Result<(), Reply> {
    let map = ctx.osdmap();
    let most = ctx.int_option("mon_max_pg_per_osd", 250);
    let osds = map.num_in_osds().max(3) as i64;
    let others: i64 = map.pools.iter().filter(|(id, _)| Some(**id) != pool).map(|(_, p)| i64::from(p.pg_num_target) * i64::from(p.size)).sum();
    let projected = others + pg_num * size;
    if most > 0 && projected / osds > most {
        let target = pool.map_or_else(String::new, |id| format!("pool id {id} "));
        let text = format!(
            "{target}pg_num {pg_num} size {size} would mean {projected} total pgs, which exceeds max {} (mon_max_pg_per_osd {most} * num_in_osds {osds})",
            most * osds
        );
        return Err(Reply::err(Errno::ERANGE, text));
    }
    Ok(())
}

/// A pool as planned, with the settings that a command gives it.
pub fn make(ctx: &Ctx<'_>, new: &NewPool, cmd: &Cmd) -> Result<PgPool, Reply> {
    let mut pool = blank(ctx, new);
    pool.pg_autoscale_mode = autoscale_mode(ctx, cmd)?;
    if cmd.flag("bulk") {
        pool.flags |= PgPool::FLAG_BULK;
    }
    pool.expected_num_objects = cmd.int("expected_num_objects")?.unwrap_or(0).max(0) as u64;
    if let Some(v) = cmd.int("pg_num_min")? {
        super::pool_set::set_opt(&mut pool, "pg_num_min", &v.to_string())?;
    }
    if let Some(v) = cmd.int("pg_num_max")? {
        super::pool_set::set_opt(&mut pool, "pg_num_max", &v.to_string())?;
    }
    if let Some(v) = cmd.int("target_size_bytes")? {
        super::pool_set::set_opt(&mut pool, "target_size_bytes", &v.to_string())?;
    }
    if let Some(v) = cmd.float("target_size_ratio")? {
        super::pool_set::set_opt(&mut pool, "target_size_ratio", &v.to_string())?;
    }
    Ok(pool)
}

fn autoscale_mode(ctx: &Ctx<'_>, cmd: &Cmd) -> Result<AutoscaleMode, Reply> {
    let mode = match cmd.text("autoscale_mode")? {
        "" => ctx.env.option(ctx.state, "osd_pool_default_pg_autoscale_mode").unwrap_or_else(|| "on".into()),
        given => given.to_owned(),
    };
    Ok(AutoscaleMode::from_name(&mode).unwrap_or(AutoscaleMode::OFF))
}

/// PGs that a pool which is to be large begins with: its OSDs' budget, with other such pools; the autoscaler goes on from there.
fn bulk_pg_num(ctx: &Ctx<'_>, crush: &CrushMap, rule: u8, size: i64) -> i64 {
    let map = ctx.osdmap();
    let of = |rule: u8| crush.rule_shares(rule.into()).into_keys().collect::<std::collections::BTreeSet<i32>>();
    let osds = of(rule);
    let others = map.pools.values().filter(|p| p.has_flag(PgPool::FLAG_BULK) && !of(p.crush_rule).is_disjoint(&osds)).count() as i64;
    let share = osds.len() as i64 * ctx.int_option("mon_target_pg_per_osd", 100) / size.max(1) / (1 + others);
    // The power of two below it: what is there already has its PGs, too.
    share.max(0).checked_ilog2().map_or(0, |bits| 1i64 << bits.min(16)).max(ctx.int_option("osd_pool_default_pg_num", 32))
}

/// A pool as planned, with the flags new pools get by default.
pub fn blank(ctx: &Ctx<'_>, new: &NewPool) -> PgPool {
    let mut pool = PgPool::replicated(new.size, new.pg_num, new.rule);
    pool.min_size = new.min_size;
    pool.create_time = ctx.now.wall;
    (pool.pgp_num, pool.pgp_num_target) = (new.pgp_num, new.pgp_num);
    for (option, flag) in [
        ("osd_pool_default_flag_nodelete", PgPool::FLAG_NODELETE),
        ("osd_pool_default_flag_nopgchange", PgPool::FLAG_NOPGCHANGE),
        ("osd_pool_default_flag_nosizechange", PgPool::FLAG_NOSIZECHANGE),
    ] {
        if ctx.bool_option(option, false) {
            pool.flags |= flag;
        }
    }
    pool
}

/// Puts a pool into the next epoch under the next number.
pub fn insert(ctx: &mut Ctx<'_>, name: &str, mut pool: PgPool) -> PoolId {
    let map = ctx.osdmap();
    let id = PoolId(i64::from(map.pool_max) + 1);
    let inc = ctx.state.osdmap.change();
    pool.last_change = inc.epoch;
    inc.new_pool_max = Some(id.0);
    inc.new_pools.insert(id, pool);
    inc.new_pool_names.insert(id, name.to_owned());
    id
}

fn ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    if cmd.text("detail")? == "detail" {
        let value = || {
            let pool = |(id, pool): (&PoolId, &PgPool)| {
                let mut v = map.dump_pool(*id, pool);
                // The listing calls the number by another name than the dump.
                if let Some(fields) = v.as_object_mut() {
                    let rest: serde_json::Map<String, Value> = std::mem::take(fields);
                    fields.insert("pool_id".into(), id.0.into());
                    fields.extend(rest.into_iter().filter(|(k, _)| k != "pool"));
                }
                v
            };
            map.pools.iter().map(pool).collect()
        };
        return Ok(Reply::either(cmd.format, || map.print_pools(), value));
    }
    let names: Vec<&String> = map.pool_name.values().collect();
    Ok(Reply::either(cmd.format, || names.iter().map(|n| format!("{n}\n")).collect(), || json!(names)))
}

fn rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, again) = (cmd.text("pool")?, cmd.text("pool2")?);
    let Ok((id, pool)) = ctx.pool(name) else { return Ok(Reply::status(format!("pool '{name}' does not exist"))) };
    let sure = cmd.flag("yes_i_really_really_mean_it") || cmd.flag("yes_i_really_really_mean_it_not_faking");
    if again != name || !sure {
        let text = format!(
            "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool {name}.  If you are *ABSOLUTELY CERTAIN* that is what \
             you want, pass the pool name *twice*, followed by --yes-i-really-really-mean-it."
        );
        return Err(Reply::err(Errno::EPERM, text));
    }
    remove(ctx, id, &pool)?;
    Ok(Reply::status(format!("pool '{name}' removed")))
}

/// Takes a pool and everything that names it out of the map, if that is allowed.
pub fn remove(ctx: &mut Ctx<'_>, id: PoolId, pool: &PgPool) -> Result<(), Reply> {
    if !ctx.bool_option("mon_allow_pool_delete", false) {
        let text = "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before you can destroy a pool";
        return Err(Reply::err(Errno::EPERM, text));
    }
    if pool.has_flag(PgPool::FLAG_NODELETE) {
        return Err(Reply::err(Errno::EPERM, "pool deletion is disabled; you must unset nodelete flag for the pool first"));
    }
    let map = ctx.osdmap();
    let inc = ctx.state.osdmap.change();
    inc.old_pools.insert(id);
    inc.new_pg_temp.extend(map.pg_temp.keys().filter(|pg| pg.pool == id).map(|pg| (*pg, Vec::new())));
    inc.new_primary_temp.extend(map.primary_temp.keys().filter(|pg| pg.pool == id).map(|pg| (*pg, types::OsdId::NONE)));
    inc.old_pg_upmap.extend(map.pg_upmap.keys().filter(|pg| pg.pool == id));
    inc.old_pg_upmap_items.extend(map.pg_upmap_items.keys().filter(|pg| pg.pool == id));
    inc.old_pg_upmap_primary.extend(map.pg_upmap_primaries.keys().filter(|pg| pg.pool == id));
    Ok(())
}

fn rename(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (from, to) = (cmd.text("srcpool")?, cmd.text("destpool")?);
    let map = ctx.osdmap();
    match (map.pool_id(from), map.pool_id(to)) {
        (None, Some(_)) => Ok(Reply::status(format!("pool '{from}' does not exist; pool '{to}' does -- assuming successful rename"))),
        (None, None) => Err(Reply::err(Errno::ENOENT, format!("unrecognized pool '{from}'"))),
        (Some(_), Some(_)) => Err(Reply::err(Errno::EEXIST, format!("pool '{to}' already exists"))),
        (Some(_), None) if to.is_empty() => Err(invalid("(22) Invalid argument")),
        (Some(id), None) => {
            ctx.state.osdmap.change().new_pool_names.insert(id, to.to_owned());
            ctx.state.osdmap.change_pool(id);
            Ok(Reply::status(format!("pool '{from}' renamed to '{to}'")))
        }
    }
}

fn set_quota(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, field, text) = (cmd.text("pool")?, cmd.text("field")?, cmd.text("val")?);
    let (id, _) = ctx.pool(name)?;
    let parse = |scale| crate::units::parse(text, scale).map_err(|why| invalid(format!("error parsing value '{text}': {why}")));
    let value = match field {
        "max_objects" => parse(crate::units::Scale::Decimal)?,
        "max_bytes" => parse(crate::units::Scale::Binary)?,
        other => return Err(invalid(format!("unrecognized field '{other}'; should be one of 'max_bytes', 'max_objects'"))),
    };
    if let Some(pool) = ctx.state.osdmap.change_pool(id) {
        match field {
            "max_objects" => pool.quota_max_objects = value,
            _ => pool.quota_max_bytes = value,
        }
    }
    Ok(Reply::status(format!("set-quota {field} = {value} for pool {name}")))
}

fn get_quota(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = cmd.text("pool")?;
    let (id, pool) = ctx.pool(name)?;
    let sum = ctx.state.mgr.digest.as_ref().and_then(|d| d.pools.get(&id)).map(|p| p.stat.stats.sum).unwrap_or_default();
    let limit = |max: u64, unit: &str, now: i64, shown: String| match max {
        0 => "N/A".to_owned(),
        _ => format!("{shown}{unit}  (current num {}: {now} {})", unit_name(unit), unit_name(unit)),
    };
    let text = || {
        format!(
            "quotas for pool '{name}':\n  max objects: {}\n  max bytes  : {}\n",
            limit(pool.quota_max_objects, " objects", sum.num_objects, crate::text::si(pool.quota_max_objects)),
            limit(pool.quota_max_bytes, "", sum.num_bytes, crate::text::bytes(pool.quota_max_bytes)),
        )
    };
    let value = || {
        json!({
            "pool_name": name, "pool_id": id.0, "quota_max_objects": pool.quota_max_objects,
            "current_num_objects": sum.num_objects, "quota_max_bytes": pool.quota_max_bytes, "current_num_bytes": sum.num_bytes,
        })
    };
    Ok(Reply::either(cmd.format, text, value))
}

fn unit_name(unit: &str) -> &str {
    if unit.is_empty() { "bytes" } else { unit.trim() }
}

/// Whether any pool uses a CRUSH rule.
pub fn rule_in_use(map: &OsdMap, rule: u32) -> bool {
    map.pools.values().any(|p| u32::from(p.crush_rule) == rule)
}
