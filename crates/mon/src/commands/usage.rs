//! `df` and `osd utilization`: how full and how even the cluster is.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use crate::text::{self, Left, Right};
use admin::spread::Spread;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use types::Errno;
use types::map::PgPool;
use types::pg::{PoolDigest, StoreStatfs};

pub const COMMANDS: &[Entry] = &[entry("df", "mon", "r", df), entry("osd utilization", "osd", "r", utilization)];

/// Bytes that users stored in a pool: the sum over copies divided by their number.
pub fn stored_bytes(pool: &PoolDigest) -> u64 {
    let sum = &pool.stat.stats.sum;
    let rate = if pool.raw_used_rate > 0.0 { pool.raw_used_rate } else { 1.0 };
    match pool.stat.num_store_stats > 0 {
        true => ((pool.stat.store.data_stored.max(0) + pool.stat.store.omap_allocated.max(0)) as f64 / rate) as u64,
        false => sum.num_bytes.max(0) as u64,
    }
}

/// Raw bytes a pool occupies, all its copies.
fn used_bytes(pool: &PoolDigest) -> u64 {
    match pool.stat.num_store_stats > 0 {
        true => (pool.stat.store.allocated.max(0) + pool.stat.store.omap_allocated.max(0)) as u64,
        false => (pool.stat.stats.sum.num_bytes.max(0) as f64 * pool.raw_used_rate.max(1.0)) as u64,
    }
}

fn percent(ratio: f64) -> String {
    text::percent(ratio * 100.0)
}

fn df(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let detail = cmd.text("detail")? == "detail";
    Ok(Reply::either(cmd.format, || df_text(ctx, detail), || df_json(ctx, detail)))
}

fn df_text(ctx: &Ctx<'_>, detail: bool) -> String {
    let digest = ctx.state.mgr.digest.as_ref();
    let mut raw = text::table(&[("CLASS", Left, Left), ("SIZE", Right, Right), ("AVAIL", Right, Right), ("USED", Right, Right), ("RAW USED", Right, Right), ("%RAW USED", Right, Right)]);
    let mut row = |name: &str, s: &StoreStatfs| {
        raw.row([name.to_owned(), text::bytes(s.total), text::bytes(s.available), text::bytes(s.used()), text::bytes(s.used_raw()), percent(s.used_raw_ratio())]);
    };
    digest.iter().flat_map(|d| &d.classes).for_each(|(class, s)| row(class, s));
    row("TOTAL", &digest.map(|d| d.total).unwrap_or_default());
    let mut columns = vec![("POOL", Left, Left), ("ID", Right, Right), ("PGS", Right, Right), ("STORED", Right, Right)];
    if detail {
        columns.extend([("(DATA)", Right, Right), ("(OMAP)", Right, Right)]);
    }
    columns.extend([("OBJECTS", Right, Right), ("USED", Right, Right)]);
    if detail {
        columns.extend([("(DATA)", Right, Right), ("(OMAP)", Right, Right)]);
    }
    columns.extend([("%USED", Right, Right), ("MAX AVAIL", Right, Right)]);
    if detail {
        let more = ["QUOTA OBJECTS", "QUOTA BYTES", "DIRTY", "USED COMPR", "UNDER COMPR"];
        columns.extend(more.map(|name| (name, Right, Right)));
    }
    let mut pools = text::table(&columns);
    let map = ctx.osdmap();
    let blank = PoolDigest::default();
    for (id, name) in &map.pool_name {
        let Some(pool) = map.pools.get(id) else { continue };
        let d = digest.and_then(|d| d.pools.get(id)).unwrap_or(&blank);
        pools.row(pool_row(name, id.0, pool, d, detail));
    }
    format!("--- RAW STORAGE ---\n{} \n--- POOLS ---\n{}", raw.render(), pools.render())
}

fn pool_row(name: &str, id: i64, pool: &PgPool, d: &PoolDigest, detail: bool) -> Vec<String> {
    let rate = if d.raw_used_rate > 0.0 { d.raw_used_rate } else { 1.0 };
    let store = &d.stat.store;
    let (data, omap) = (store.data_stored.max(0) as f64 / rate, store.omap_allocated.max(0) as f64 / rate);
    let mut row = vec![name.to_owned(), id.to_string(), pool.pg_num.to_string(), text::bytes(stored_bytes(d))];
    if detail {
        row.extend([text::bytes(data as u64), text::bytes(omap as u64)]);
    }
    row.extend([text::si(d.stat.stats.sum.num_objects.max(0) as u64), text::bytes(used_bytes(d))]);
    if detail {
        row.extend([text::bytes(store.allocated.max(0) as u64), text::bytes(store.omap_allocated.max(0) as u64)]);
    }
    row.extend([percent(used_ratio(d)), text::bytes(d.max_avail)]);
    if detail {
        let quota = |v: u64, f: fn(u64) -> String| if v == 0 { "N/A".to_owned() } else { f(v) };
        row.push(quota(pool.quota_max_objects, text::si));
        row.push(quota(pool.quota_max_bytes, text::bytes));
        row.push("N/A".into());
        row.push(text::bytes(store.data_compressed_allocated.max(0) as u64));
        row.push(text::bytes(store.data_compressed_original.max(0) as u64));
    }
    row
}

/// Used of what the pool could use in all.
fn used_ratio(d: &PoolDigest) -> f64 {
    let rate = if d.raw_used_rate > 0.0 { d.raw_used_rate } else { 1.0 };
    let used = used_bytes(d) as f64;
    let all = used + d.max_avail as f64 * rate;
    if all > 0.0 { used / all } else { 0.0 }
}

fn raw_json(s: &StoreStatfs) -> Map<String, Value> {
    let mut v = Map::new();
    v.insert("total_bytes".into(), s.total.into());
    v.insert("total_avail_bytes".into(), s.available.into());
    v.insert("total_used_bytes".into(), s.used().into());
    v.insert("total_used_raw_bytes".into(), s.used_raw().into());
    v.insert("total_used_raw_ratio".into(), Value::from(s.used_raw_ratio()));
    v
}

fn df_json(ctx: &Ctx<'_>, detail: bool) -> Value {
    let digest = ctx.state.mgr.digest.as_ref();
    let map = ctx.osdmap();
    let mut stats = raw_json(&digest.map(|d| d.total).unwrap_or_default());
    let osds = digest.map_or(0, |d| d.osds.len());
    for name in ["num_osds", "num_per_pool_osds", "num_per_pool_omap_osds"] {
        stats.insert(name.into(), osds.into());
    }
    let classes: Map<String, Value> = digest.iter().flat_map(|d| &d.classes).map(|(c, s)| (c.clone(), raw_json(s).into())).collect();
    let blank = PoolDigest::default();
    let pool = |(id, name): (&types::PoolId, &String)| {
        let d = digest.and_then(|d| d.pools.get(id)).unwrap_or(&blank);
        let stats = pool_json(map.pools.get(id)?, d, detail);
        Some(json!({"name": name, "id": id.0, "stats": stats}))
    };
    let pools: Vec<Value> = map.pool_name.iter().filter_map(pool).collect();
    json!({"stats": stats, "stats_by_class": classes, "pools": pools})
}

fn pool_json(pool: &PgPool, d: &PoolDigest, detail: bool) -> Value {
    let rate = if d.raw_used_rate > 0.0 { d.raw_used_rate } else { 1.0 };
    let (sum, store) = (&d.stat.stats.sum, &d.stat.store);
    let mut v = Map::new();
    let mut put = |k: &str, value: Value| drop(v.insert(k.to_owned(), value));
    put("stored", stored_bytes(d).into());
    if detail {
        put("stored_data", ((store.data_stored.max(0) as f64 / rate) as u64).into());
        put("stored_omap", ((store.omap_allocated.max(0) as f64 / rate) as u64).into());
    }
    put("objects", sum.num_objects.into());
    put("kb_used", used_bytes(d).div_ceil(1024).into());
    put("bytes_used", used_bytes(d).into());
    if detail {
        put("data_bytes_used", store.allocated.into());
        put("omap_bytes_used", store.omap_allocated.into());
    }
    put("percent_used", Value::from(used_ratio(d)));
    put("max_avail", d.max_avail.into());
    if detail {
        put("quota_objects", pool.quota_max_objects.into());
        put("quota_bytes", pool.quota_max_bytes.into());
        put("dirty", 0.into());
        put("rd", sum.num_rd.into());
        put("rd_bytes", (sum.num_rd_kb * 1024).into());
        put("wr", sum.num_wr.into());
        put("wr_bytes", (sum.num_wr_kb * 1024).into());
        put("compress_bytes_used", store.data_compressed_allocated.into());
        put("compress_under_bytes", store.data_compressed_original.into());
        put("stored_raw", ((stored_bytes(d) as f64 * rate) as u64).into());
        put("avail_raw", ((d.max_avail as f64 * rate) as u64).into());
    }
    Value::Object(v)
}

fn utilization(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let spread = Spread::new(&map, None, &BTreeSet::new()).ok_or_else(|| Reply::err(Errno::EINVAL, ""))?;
    Ok(Reply::either(cmd.format, || spread.text(), || spread.json()))
}
