//! `osd pool get`.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use crate::text::short_float;
use serde_json::{Map, Value};
use types::map::{OsdMap, PgPool, PoolOptKey, PoolOptValue};
use types::{Errno, PoolId};

pub const COMMANDS: &[Entry] = &[entry("osd pool get", "osd", "r", get)];

/// Every variable, in the order `all` prints them.
const VARS: &[&str] = &[
    "size", "min_size", "pg_num", "pgp_num", "crush_rule", "hashpspool", "allow_ec_overwrites", "nodelete", "nopgchange", "nosizechange",
    "write_fadvise_dontneed", "noscrub", "nodeep-scrub", "hit_set_type", "hit_set_period", "hit_set_count", "hit_set_fpp",
    "use_gmt_hitset", "target_max_objects", "target_max_bytes", "cache_target_dirty_ratio",
    "cache_target_dirty_high_ratio", "cache_target_full_ratio", "cache_min_flush_age", "cache_min_evict_age",
    "erasure_code_profile", "min_read_recency_for_promote", "min_write_recency_for_promote",
    "fast_read", "hit_set_grade_decay_rate", "hit_set_search_last_n", "scrub_min_interval", "scrub_max_interval",
    "deep_scrub_interval", "recovery_priority", "recovery_op_priority", "scrub_priority", "compression_mode",
    "compression_algorithm", "compression_required_ratio", "compression_max_blob_size", "compression_min_blob_size",
    "csum_type", "csum_max_block", "csum_min_block", "fingerprint_algorithm", "pg_autoscale_mode", "pg_num_min", "pg_num_max",
    "target_size_bytes", "target_size_ratio", "pg_autoscale_bias", "dedup_tier", "dedup_chunk_algorithm",
    "dedup_cdc_chunk_size", "bulk", "eio",
];

/// Variables of cache tiers.
const TIER_VARS: &[&str] = &[
    "hit_set_type", "hit_set_period", "hit_set_count", "hit_set_fpp", "target_max_objects", "target_max_bytes",
    "cache_target_dirty_ratio", "cache_target_dirty_high_ratio", "cache_target_full_ratio", "cache_min_flush_age",
    "cache_min_evict_age", "min_read_recency_for_promote", "min_write_recency_for_promote", "hit_set_grade_decay_rate",
    "hit_set_search_last_n",
];
const ERASURE_VARS: &[&str] = &["erasure_code_profile", "allow_ec_overwrites"];

fn get(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, var) = (cmd.text("pool")?, cmd.text("var")?);
    let (id, pool) = ctx.pool(name)?;
    let map = ctx.osdmap();
    if var == "all" {
        let applies = |v: &&&str| !TIER_VARS.contains(v) && (pool.is_erasure() || !ERASURE_VARS.contains(v)) && **v != "eio";
        let all: Vec<(&str, Value)> = VARS.iter().filter(applies).filter_map(|v| Some((*v, value(&map, &pool, v)?))).collect();
        return Ok(render(cmd, name, id, &all));
    }
    if !VARS.contains(&var) {
        return Err(Reply::err(Errno::EINVAL, format!("pool '{name}': invalid variable: '{var}'")));
    }
    if TIER_VARS.contains(&var) {
        return Err(Reply::err(Errno::EACCES, format!("pool '{name}' is not a tier pool: variable not applicable")));
    }
    if ERASURE_VARS.contains(&var) && !pool.is_erasure() {
        return Err(Reply::err(Errno::EACCES, format!("pool '{name}' is not a erasure pool: variable not applicable")));
    }
    let none = || Reply::err(Errno::ENOENT, format!("option '{var}' is not set on pool '{name}'"));
    let value = value(&map, &pool, var).ok_or_else(none)?;
    Ok(render(cmd, name, id, &[(var, value)]))
}

fn render(cmd: &Cmd, pool: &str, id: PoolId, all: &[(&str, Value)]) -> Reply {
    let shown = |v: &Value| match v {
        Value::String(s) => s.clone(),
        Value::Number(n) if n.is_f64() => short_float(n.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    };
    let text = || {
        let line = |(var, v): &(&str, Value)| match (*var, v) {
            ("use_gmt_hitset", Value::Bool(b)) => format!("{var}: {}\n", u8::from(*b)),
            _ => format!("{var}: {}\n", shown(v)),
        };
        all.iter().map(line).collect()
    };
    let value = || {
        let mut out = Map::new();
        out.insert("pool".into(), pool.into());
        out.insert("pool_id".into(), id.0.into());
        out.extend(all.iter().map(|(var, v)| ((*var).to_owned(), v.clone())));
        Value::Object(out)
    };
    Reply::either(cmd.format, text, value)
}

/// The value of a variable; `None` for settings that were not given.
fn value(map: &OsdMap, pool: &PgPool, var: &str) -> Option<Value> {
    if let Some(flag) = flag_of(var) {
        return Some(pool.has_flag(flag).into());
    }
    Some(match var {
        "size" => pool.size.into(),
        "min_size" => pool.min_size.into(),
        "pg_num" => pool.pg_num.into(),
        "pgp_num" => pool.pgp_num.into(),
        "crush_rule" => map.crush.rule_name(pool.crush_rule.into()).map_or_else(|| pool.crush_rule.to_string(), str::to_owned).into(),
        "use_gmt_hitset" => pool.use_gmt_hitset.into(),
        "fast_read" => u8::from(pool.fast_read).into(),
        "pg_autoscale_mode" => pool.pg_autoscale_mode.name().into(),
        "erasure_code_profile" => pool.erasure_code_profile.as_str().into(),
        "allow_ec_overwrites" => pool.has_flag(PgPool::FLAG_EC_OVERWRITES).into(),
        _ => {
            let (key, _) = PoolOptKey::from_name(var)?;
            match pool.opts.get(key)? {
                PoolOptValue::Int(i) => (*i).into(),
                PoolOptValue::Str(s) => s.as_str().into(),
                PoolOptValue::Double(d) => Value::from(*d),
            }
        }
    })
}

/// The flag behind a variable that is one.
pub fn flag_of(var: &str) -> Option<u64> {
    Some(match var {
        "hashpspool" => PgPool::FLAG_HASHPSPOOL,
        "nodelete" => PgPool::FLAG_NODELETE,
        "nopgchange" => PgPool::FLAG_NOPGCHANGE,
        "nosizechange" => PgPool::FLAG_NOSIZECHANGE,
        "write_fadvise_dontneed" => PgPool::FLAG_WRITE_FADVISE_DONTNEED,
        "noscrub" => PgPool::FLAG_NOSCRUB,
        "nodeep-scrub" => PgPool::FLAG_NODEEP_SCRUB,
        "bulk" => PgPool::FLAG_BULK,
        "eio" => PgPool::FLAG_EIO,
        _ => return None,
    })
}
