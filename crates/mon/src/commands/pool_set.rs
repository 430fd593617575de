//! `osd pool set`.

use super::pool::{check_pg_num, check_pgs_per_osd, check_rule};
use super::pool_get::flag_of;
use super::{Ctx, Entry, entry, pool_erasure};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use crate::units::{self, Scale};
use types::map::pool_opts::PoolOptKind;
use types::map::{AutoscaleMode, PgPool, PoolOptKey, PoolOptValue};
use types::{Errno, PoolId};

pub const COMMANDS: &[Entry] = &[entry("osd pool set", "osd", "rw", set)];

const COMPRESSION_MODES: [&str; 4] = ["none", "passive", "aggressive", "force"];
const COMPRESSION_ALGORITHMS: [&str; 5] = ["none", "snappy", "zlib", "zstd", "lz4"];
const CSUM_TYPES: [&str; 7] = ["default", "none", "xxhash32", "xxhash64", "crc32c", "crc32c_16", "crc32c_8"];

fn invalid(text: impl Into<String>) -> Reply {
    Reply::err(Errno::EINVAL, text)
}

fn set(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, var) = (cmd.text("pool")?, cmd.text("var")?);
    let val = cmd.list("val")?.into_iter().next().unwrap_or_default();
    let (id, pool) = ctx.pool(name)?;
    let sure = cmd.flag("yes_i_really_mean_it");
    match var {
        "size" => set_size(ctx, id, &pool, &val, sure)?,
        "min_size" => set_min_size(ctx, id, &pool, &val)?,
        "pg_num" => set_pg_num(ctx, id, &pool, &val)?,
        "pg_num_actual" => set_pg_num_actual(ctx, id, &pool, &val)?,
        "pgp_num" | "pgp_num_actual" => set_pgp_num(ctx, id, &pool, &val, var == "pgp_num_actual")?,
        "crush_rule" => set_rule(ctx, id, &pool, &val)?,
        "pg_autoscale_mode" => {
            let mode = AutoscaleMode::from_name(&val).ok_or_else(|| invalid(format!("specified invalid mode {val}")))?;
            change(ctx, id, |p| p.pg_autoscale_mode = mode);
        }
        "allow_ec_overwrites" => set_overwrites(ctx, id, &pool, &val)?,
        "fast_read" if !pool.is_erasure() => return Err(invalid("fast read is not supported in replication pool")),
        "fast_read" => {
            let on = units::parse_bool(&val).ok_or_else(|| invalid("expecting value 'true', 'false', '0', or '1'"))?;
            change(ctx, id, |p| p.fast_read = on);
        }
        "use_gmt_hitset" => {
            let on = units::parse_bool(&val).ok_or_else(|| invalid("expecting value 'true', 'false', '0', or '1'"))?;
            change(ctx, id, |p| p.use_gmt_hitset = on);
        }
        _ if flag_of(var).is_some() => set_flag(ctx, id, &pool, var, &val, sure)?,
        _ if is_tier_var(var) => return Err(Reply::err(Errno::EACCES, "(13) Permission denied")),
        _ if PoolOptKey::from_name(var).is_some() => return set_option(ctx, id, var, &val),
        _ => return Err(invalid(format!("unrecognized variable '{var}'"))),
    }
    Ok(Reply::status(format!("set pool {id} {var} to {val}")))
}

fn is_tier_var(var: &str) -> bool {
    var.starts_with("hit_set_") || var.starts_with("cache_") || var.starts_with("target_max_") || var.ends_with("_recency_for_promote")
}

fn change(ctx: &mut Ctx<'_>, id: PoolId, f: impl FnOnce(&mut PgPool)) {
    if let Some(pool) = ctx.state.osdmap.change_pool(id) {
        f(pool);
    }
}

fn int(val: &str) -> Result<i64, Reply> {
    val.parse().map_err(|_| invalid(format!("error parsing integer value '{val}': Expected option value to be integer, got '{val}'")))
}

fn set_size(ctx: &mut Ctx<'_>, id: PoolId, pool: &PgPool, val: &str, sure: bool) -> Result<(), Reply> {
    if pool.has_flag(PgPool::FLAG_NOSIZECHANGE) {
        return Err(Reply::err(Errno::EPERM, "pool size change is disabled; you must unset nosizechange flag for the pool first"));
    }
    if pool.is_erasure() {
        return Err(Reply::err(Errno::EOPNOTSUPP, "can not change the size of an erasure-coded pool"));
    }
    let n = int(val)?;
    if !(1..=10).contains(&n) {
        return Err(invalid("pool size must be between 1 and 10"));
    }
    if n == 1 {
        if !ctx.bool_option("mon_allow_pool_size_one", false) {
            return Err(Reply::err(Errno::EPERM, "configuring pool size as 1 is disabled by default."));
        }
        if !sure {
            let text = "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY CERTAIN* that is \
                        what you want, pass the flag --yes-i-really-mean-it.";
            return Err(Reply::err(Errno::EPERM, text));
        }
    }
    check_rule(&ctx.osdmap().crush, pool.crush_rule, pool.pool_type, n as u8)?;
    if n > i64::from(pool.size) {
        check_pgs_per_osd(ctx, Some(id), pool.pg_num.into(), n)?;
    }
    let size = n as u8;
    let old_size = pool.size;
    let default = ctx.int_option("osd_pool_default_min_size", 0);
    change(ctx, id, |p| {
        p.size = size;
        // A new size takes its own idea of how many copies are enough.
        if size != old_size {
            p.min_size = if default > 0 { (default as u8).min(size) } else { size - size / 2 };
        }
    });
    Ok(())
}

fn set_min_size(ctx: &mut Ctx<'_>, id: PoolId, pool: &PgPool, val: &str) -> Result<(), Reply> {
    if pool.has_flag(PgPool::FLAG_NOSIZECHANGE) {
        return Err(Reply::err(Errno::EPERM, "pool min size change is disabled; you must unset nosizechange flag for the pool first"));
    }
    let n = int(val)?;
    let least = if pool.is_erasure() { pool_erasure::least_min_size(ctx, pool)? } else { 1 };
    if !(least..=i64::from(pool.size)).contains(&n) {
        return Err(invalid(format!("pool min_size must be between {least} and size, which is set to {}", pool.size)));
    }
    change(ctx, id, |p| p.min_size = n as u8);
    Ok(())
}

fn may_change_pgs(pool: &PgPool, var: &str) -> Result<(), Reply> {
    match pool.has_flag(PgPool::FLAG_NOPGCHANGE) {
        true => Err(Reply::err(Errno::EPERM, format!("pool {var} change is disabled; you must unset nopgchange flag for the pool first"))),
        false => Ok(()),
    }
}

/// How many PGs the pool is to have: the manager takes it there. `pgp_num` follows as long as it was not set by itself.
fn set_pg_num(ctx: &mut Ctx<'_>, id: PoolId, pool: &PgPool, val: &str) -> Result<(), Reply> {
    may_change_pgs(pool, "pg_num")?;
    let n = int(val)?;
    if n == i64::from(pool.pg_num_target) {
        return Ok(());
    }
    check_pg_num(ctx, n)?;
    if n > i64::from(pool.pg_num_target) {
        check_pgs_per_osd(ctx, Some(id), n, pool.size.into())?;
    }
    change(ctx, id, |p| {
        if p.pg_num_target == p.pgp_num_target {
            p.pgp_num_target = n as u32;
        }
        p.pg_num_target = n as u32;
    });
    Ok(())
}

/// The manager's next step towards `pg_num`: PGs are split now; or the last one is to end, when its OSDs say that it is ready.
fn set_pg_num_actual(ctx: &mut Ctx<'_>, id: PoolId, pool: &PgPool, val: &str) -> Result<(), Reply> {
    let n = int(val)?;
    if n == i64::from(pool.pg_num) {
        return Ok(());
    }
    check_pg_num(ctx, n)?;
    let epoch = ctx.osdmap().epoch.next();
    if n < i64::from(pool.pg_num) {
        if n < i64::from(pool.pgp_num) {
            return Err(invalid(format!("specified pg_num {n} < pgp_num {}", pool.pgp_num)));
        }
        if n < i64::from(pool.pg_num) - 1 {
            let text = format!("specified pg_num {n} < pg_num ({}) - 1; only single pg decrease is currently supported", pool.pg_num);
            return Err(invalid(text));
        }
        if pool.pg_num_pending != n as u32 {
            change(ctx, id, |p| {
                p.pg_num_pending = n as u32;
                // Clients of before Nautilus do not know that this begins an interval.
                (p.last_force_op_resend_prenautilus, p.last_force_op_resend_preluminous) = (epoch, epoch);
            });
        }
        return Ok(());
    }
    change(ctx, id, |p| {
        (p.pg_num, p.pg_num_pending) = (n as u32, n as u32);
        // Clients of before Luminous do not know that a split begins an interval.
        p.last_force_op_resend_preluminous = epoch;
    });
    Ok(())
}

fn set_pgp_num(ctx: &mut Ctx<'_>, id: PoolId, pool: &PgPool, val: &str, actual: bool) -> Result<(), Reply> {
    may_change_pgs(pool, "pgp_num")?;
    let n = int(val)?;
    if n < 1 {
        return Err(invalid(format!("specified pgp_num must > 0, but you set to {n}")));
    }
    let most = if actual { pool.pg_num } else { pool.pg_num_target };
    if n > i64::from(most) {
        return Err(invalid(format!("specified pgp_num {n} > pg_num {most}")));
    }
    if actual && n > i64::from(pool.pg_num_pending) {
        return Err(invalid(format!("specified pgp_num {n} > pg_num_pending {}", pool.pg_num_pending)));
    }
    change(ctx, id, |p| match actual {
        true => p.pgp_num = n as u32,
        false => p.pgp_num_target = n as u32,
    });
    Ok(())
}

fn set_rule(ctx: &mut Ctx<'_>, id: PoolId, pool: &PgPool, val: &str) -> Result<(), Reply> {
    let crush = ctx.osdmap().crush.clone();
    let rule = crush.rule_id(val).and_then(|r| u8::try_from(r).ok());
    let rule = rule.ok_or_else(|| Reply::err(Errno::ENOENT, format!("crush rule {val} does not exist")))?;
    check_rule(&crush, rule, pool.pool_type, pool.size)?;
    change(ctx, id, |p| p.crush_rule = rule);
    Ok(())
}

fn set_overwrites(ctx: &mut Ctx<'_>, id: PoolId, pool: &PgPool, val: &str) -> Result<(), Reply> {
    if !pool.is_erasure() {
        return Err(invalid("ec overwrites can only be enabled for an erasure coded pool"));
    }
    match units::parse_bool(val) {
        Some(true) => change(ctx, id, |p| p.flags |= PgPool::FLAG_EC_OVERWRITES),
        Some(false) => return Err(invalid("ec overwrites cannot be disabled once enabled")),
        None => return Err(invalid("expecting value 'true', 'false', '0', or '1'")),
    }
    Ok(())
}

fn set_flag(ctx: &mut Ctx<'_>, id: PoolId, pool: &PgPool, var: &str, val: &str, sure: bool) -> Result<(), Reply> {
    let on = units::parse_bool(val).ok_or_else(|| invalid("expecting value 'true', 'false', '0', or '1'"))?;
    let Some(flag) = flag_of(var) else { return Ok(()) };
    if var == "hashpspool" && pool.has_flag(flag) != on && !sure {
        let text = "are you SURE?  this will remap all placement groups in this pool, this triggers large data movement, pass \
                    --yes-i-really-mean-it if you really do.";
        return Err(Reply::err(Errno::EPERM, text));
    }
    change(ctx, id, |p| p.flags = if on { p.flags | flag } else { p.flags & !flag });
    Ok(())
}

fn set_option(ctx: &mut Ctx<'_>, id: PoolId, var: &str, val: &str) -> Outcome {
    let Some(pool) = ctx.state.osdmap.map.pools.get(&id) else { return Ok(Reply::ok()) };
    let limit = match var {
        "pg_num_min" if int(val).is_ok_and(|n| n > i64::from(pool.pg_num_target)) => Some(">"),
        "pg_num_max" if int(val).is_ok_and(|n| n > 0 && n < i64::from(pool.pg_num_target)) => Some("<"),
        _ => None,
    };
    if let Some(sign) = limit {
        return Err(invalid(format!("specified {var} {val} {sign} pg_num {}", pool.pg_num_target)));
    }
    let mut changed = pool.clone();
    let unset = set_opt(&mut changed, var, val)?;
    let opts = changed.opts;
    change(ctx, id, |p| p.opts = opts);
    match unset {
        true => Ok(Reply::status(format!("unset pool {id} {var}"))),
        false => Ok(Reply::status(format!("set pool {id} {var} to {val}"))),
    }
}

/// Gives a pool a setting; `0` and `unset` take it away. True if it did that.
pub fn set_opt(pool: &mut PgPool, var: &str, val: &str) -> Result<bool, Reply> {
    let (key, kind) = PoolOptKey::from_name(var).ok_or_else(|| invalid(format!("unrecognized variable '{var}'")))?;
    check_opt(var, val)?;
    let number = |what: &str| invalid(format!("error parsing {what} value '{val}'"));
    let value = match kind {
        PoolOptKind::Str => Some(PoolOptValue::Str(val.to_owned())).filter(|_| val != "unset"),
        PoolOptKind::Int if var == "csum_type" => {
            let at = CSUM_TYPES.iter().position(|t| *t == val);
            let n = if val == "unset" { 0 } else { at.ok_or_else(|| number("csum_type"))? as i64 };
            Some(PoolOptValue::Int(n)).filter(|_| n != 0)
        }
        PoolOptKind::Int => {
            let n = match var {
                "recovery_priority" => int(val)?,
                _ => units::parse(val, Scale::Binary).map_err(|e| invalid(format!("error parsing integer value '{val}': {e}")))? as i64,
            };
            Some(PoolOptValue::Int(n)).filter(|_| n != 0)
        }
        PoolOptKind::Double => {
            let d: f64 = val.parse().map_err(|_| number("floating point"))?;
            if !d.is_finite() || d < 0.0 {
                return Err(number("floating point"));
            }
            Some(PoolOptValue::Double(d)).filter(|_| d != 0.0)
        }
    };
    Ok(match value {
        Some(value) => {
            pool.opts.0.insert(key, value);
            false
        }
        None => {
            pool.opts.0.remove(&key);
            true
        }
    })
}

fn check_opt(var: &str, val: &str) -> Result<(), Reply> {
    match var {
        "compression_mode" if !COMPRESSION_MODES.contains(&val) && val != "unset" => {
            Err(invalid(format!("unrecognized compression mode '{val}'")))
        }
        "compression_algorithm" if !COMPRESSION_ALGORITHMS.contains(&val) && val != "unset" => {
            Err(invalid(format!("unrecognized compression_algorithm '{val}'")))
        }
        "recovery_priority" if !(-10..=10).contains(&int(val)?) => Err(invalid("pool recovery_priority must be between -10 and 10")),
        "pg_autoscale_bias" if val.parse::<f64>().is_ok_and(|v| !(0.0..=1000.0).contains(&v)) => {
            Err(invalid("pg_autoscale_bias must be between 0 and 1000"))
        }
        _ => Ok(()),
    }
}
