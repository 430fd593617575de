//! Questions about OSDs and the osdmap.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use crate::services::osdmap::full_key;
use crate::text::{self, Left, Right};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::map::OsdMap;
use types::map::osdmap::{print_osds, print_pg_osds};
use types::{AddrVec, EntityAddr, Epoch, Errno, ObjectLocator, OsdId, PgId};

pub const COMMANDS: &[Entry] = &[
    entry("osd stat", "osd", "r", stat),
    entry("osd ls", "osd", "r", ls),
    entry("osd getmap", "osd", "r", getmap),
    entry("osd getmaxosd", "osd", "r", getmaxosd),
    entry("osd lspools", "osd", "r", lspools),
    entry("osd find", "osd", "r", find),
    entry("osd metadata", "osd", "r", metadata),
    entry("osd last-stat-seq", "osd", "r", last_stat_seq),
    entry("osd count-metadata", "osd", "r", count_metadata),
    entry("osd versions", "osd", "r", versions),
    entry("osd numa-status", "osd", "r", numa_status),
    entry("osd map", "osd", "r", map_object),
    entry("pg map", "pg", "r", map_pg),
    entry("osd blocklist ls", "osd", "r", blocklist_ls),
    entry("osd blacklist ls", "osd", "r", blocklist_ls),
    entry("osd get-require-min-compat-client", "osd", "r", min_compat_client),
    entry("osd ls-tree", "osd", "r", ls_tree),
];

/// The map of the epoch a command names, or the newest.
pub fn map_of_epoch(ctx: &Ctx<'_>, cmd: &Cmd) -> Result<Arc<OsdMap>, Reply> {
    let newest = ctx.osdmap();
    let Some(epoch) = cmd.int("epoch")?.filter(|e| *e > 0 && *e != i64::from(newest.epoch.0)) else {
        return Ok(newest);
    };
    let none = || Reply::err(Errno::ENOENT, format!("there is no map for epoch {epoch}"));
    let raw = full_of(ctx, Epoch(u32::try_from(epoch).map_err(|_| none())?)).ok_or_else(none)?;
    denc::from_bytes(&raw).map(Arc::new).map_err(|e| Reply::err(Errno::EIO, e.to_string()))
}

fn full_of(ctx: &Ctx<'_>, epoch: Epoch) -> Option<bytes::Bytes> {
    ctx.state.osdmap.recent_full(epoch).or_else(|| (ctx.read)(&full_key(epoch)))
}

/// An OSD's number from an argument: an integer, `3` or `osd.3`.
pub fn parse_osd(text: &str) -> Option<OsdId> {
    let digits = text.strip_prefix("osd.").unwrap_or(text);
    digits.parse::<i32>().ok().filter(|id| *id >= 0).map(OsdId)
}

/// The `id` argument as a number of an OSD that may or may not exist.
pub fn id_arg(cmd: &Cmd) -> Result<OsdId, Reply> {
    match cmd.int("id") {
        Ok(Some(id)) if (0..=i64::from(i32::MAX)).contains(&id) => Ok(OsdId(id as i32)),
        Ok(Some(_)) => Err(Reply::err(Errno::EINVAL, "unable to parse osd id value")),
        Ok(None) => Err(Reply::err(Errno::EINVAL, "unable to parse osd id value ''")),
        Err(bad) => cmd.str("id").ok().flatten().and_then(parse_osd).ok_or(bad),
    }
}

/// The same, refused unless the OSD exists.
pub fn existing_arg(ctx: &Ctx<'_>, cmd: &Cmd) -> Result<OsdId, Reply> {
    let osd = id_arg(cmd)?;
    match ctx.osdmap().exists(osd) {
        true => Ok(osd),
        false => Err(Reply::err(Errno::ENOENT, format!("osd.{osd} does not exist"))),
    }
}

/// Addresses as JSON shows them: `{"addrvec": [{"type": "v2", ...}]}`.
pub fn addrs_json(addrs: &AddrVec) -> Value {
    json!({"addrvec": addrs.0.iter().map(addr_json).collect::<Vec<_>>()})
}

fn addr_json(a: &EntityAddr) -> Value {
    let kind = ["none", "v1", "v2", "any"].get(a.kind.0 as usize).copied().unwrap_or("???");
    let addr = a.sock.map_or_else(|| "-".to_owned(), |s| s.to_string());
    json!({"type": kind, "addr": addr, "nonce": a.nonce})
}

fn stat(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let text = || {
        let mut out = format!("{}; epoch: e{}\n", super::general::osd_counts(&map, ctx.now.wall), map.epoch);
        let flags = super::general::shown_flags(&map);
        if !flags.is_empty() {
            out += &format!("flags {flags}\n");
        }
        out
    };
    Ok(Reply::either(cmd.format, text, || super::general::osd_stat_json(&map)))
}

fn ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = map_of_epoch(ctx, cmd)?;
    let ids: Vec<i32> = map.osds().map(|o| o.0).collect();
    Ok(Reply::either(cmd.format, || lines(&ids), || json!(ids)))
}

fn ls_tree(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = map_of_epoch(ctx, cmd)?;
    let name = cmd.text("name")?;
    let root = map.crush.item(name).ok_or_else(|| Reply::err(Errno::ENOENT, format!("\"{name}\" does not exist")))?;
    let ids: Vec<i32> = map.crush.leaves(root).into_iter().filter(|o| map.exists(OsdId(*o))).collect();
    Ok(Reply::either(cmd.format, || lines(&ids), || json!(ids)))
}

fn lines(ids: &[i32]) -> String {
    ids.iter().map(|id| format!("{id}\n")).collect()
}

fn getmap(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = map_of_epoch(ctx, cmd)?;
    let raw = full_of(ctx, map.epoch).ok_or_else(|| Reply::err(Errno::ENOENT, format!("there is no map for epoch {}", map.epoch)))?;
    Ok(Reply { status: format!("got osdmap epoch {}", map.epoch), ..Reply::text(raw) })
}

fn getmaxosd(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = map_of_epoch(ctx, cmd)?;
    let text = || format!("max_osd = {} in epoch {}\n", map.max_osd, map.epoch);
    Ok(Reply::either(cmd.format, text, || json!({"epoch": map.epoch.0, "max_osd": map.max_osd})))
}

fn lspools(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let text = || map.pool_name.iter().map(|(id, name)| format!("{id} {name}\n")).collect();
    let value = || map.pool_name.iter().map(|(id, name)| json!({"poolnum": id.0, "poolname": name})).collect();
    Ok(Reply::either(cmd.format, text, value))
}

fn find(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let osd = existing_arg(ctx, cmd)?;
    let map = ctx.osdmap();
    let mut out = Map::new();
    out.insert("osd".into(), osd.0.into());
    out.insert("addrs".into(), addrs_json(map.addrs(osd).unwrap_or(&AddrVec::default())));
    out.insert("osd_fsid".into(), map.uuid(osd).to_string().into());
    let metadata = ctx.state.osdmap.metadata.get(&osd);
    for (from, to) in [("hostname", "host"), ("container_name", "container_name"), ("pod_name", "pod_name"), ("pod_namespace", "pod_namespace")] {
        if let Some(value) = metadata.and_then(|m| m.get(from)) {
            out.insert(to.into(), value.as_str().into());
        }
    }
    out.insert("crush_location".into(), json!(crate::placement::location(&map, osd)));
    Ok(Reply::json(cmd.format, &Value::Object(out)))
}

/// What an OSD says of itself, its number first.
pub fn metadata_json(osd: OsdId, metadata: &BTreeMap<String, String>) -> Value {
    let mut out = Map::new();
    out.insert("id".into(), osd.0.into());
    out.extend(metadata.iter().map(|(k, v)| (k.clone(), v.as_str().into())));
    Value::Object(out)
}

/// Which of an OSD's reports has come last; 0 for one that sent none. `ceph tell osd.N flush_pg_stats` says which to wait for.
fn last_stat_seq(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let osd = id_arg(cmd)?;
    let seq = ctx.state.mgr.digest.as_ref().and_then(|d| d.osds.get(&osd)).map_or(0, |stat| stat.seq);
    Ok(Reply::either(cmd.format, || format!("{seq}\n"), || json!(seq)))
}

fn metadata(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let blank = BTreeMap::new();
    let of = |osd: OsdId, ctx: &Ctx<'_>| metadata_json(osd, ctx.state.osdmap.metadata.get(&osd).unwrap_or(&blank));
    let has_id = cmd.int("id").map_or(true, |id| id.is_some());
    let out = match has_id {
        true => {
            let osd = existing_arg(ctx, cmd)?;
            of(osd, ctx)
        }
        false => ctx.osdmap().osds().map(|o| of(o, ctx)).collect(),
    };
    Ok(Reply::json(cmd.format, &out))
}

fn count_metadata(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let property = cmd.text("property")?;
    let map = ctx.osdmap();
    let all = map.osds().filter_map(|o| ctx.state.osdmap.metadata.get(&o));
    Ok(Reply::json(cmd.format, &super::general::count_by(all, property)))
}

fn versions(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let all = map.up_osds().filter_map(|o| ctx.state.osdmap.metadata.get(&o));
    Ok(Reply::json(cmd.format, &super::general::count_by(all, "ceph_version")))
}

fn numa_status(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let host = |o: OsdId| ctx.state.osdmap.metadata.get(&o).and_then(|m| m.get("hostname")).cloned().unwrap_or_default();
    let text = || {
        let mut t = text::table(&[("OSD", Left, Right), ("HOST", Left, Left), ("NETWORK", Right, Right), ("STORAGE", Right, Right), ("AFFINITY", Right, Right), ("CPUS", Left, Left)]);
        map.up_osds().for_each(|o| t.row([o.to_string(), host(o), "-".into(), "-".into(), "-".into(), "-".into()]));
        t.render()
    };
    Ok(Reply::either(cmd.format, text, || map.up_osds().map(|o| json!({"osd": o.0, "host": host(o)})).collect()))
}

fn map_object(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = map_of_epoch(ctx, cmd)?;
    let (pool_name, object, nspace) = (cmd.text("pool")?, cmd.text("object")?, cmd.text("nspace")?);
    let pool = map.pool_id(pool_name).ok_or_else(|| Reply::err(Errno::ENOENT, format!("pool {pool_name} does not exist")))?;
    let locator = ObjectLocator { nspace: nspace.into(), ..ObjectLocator::pool(pool) };
    let raw = map.object_to_pg(&locator, object.as_bytes()).ok_or_else(|| Reply::err(Errno::ENOENT, "no such pool"))?;
    let pg = map.raw_pg_to_pg(raw).unwrap_or(raw);
    let to = map.pg_to_up_acting(pg);
    let full_name = if nspace.is_empty() { object.to_owned() } else { format!("{nspace}/{object}") };
    let text = || {
        format!(
            "osdmap e{} pool '{pool_name}' ({pool}) object '{full_name}' -> pg {raw} ({pg}) -> up ({}, p{}) acting ({}, p{})\n",
            map.epoch,
            print_pg_osds(&to.up),
            to.up_primary,
            print_pg_osds(&to.acting),
            to.acting_primary
        )
    };
    let ids = |v: &[OsdId]| v.iter().map(|o| o.0).collect::<Vec<_>>();
    let value = || {
        json!({
            "epoch": map.epoch.0, "pool": pool_name, "pool_id": pool.0, "objname": full_name,
            "raw_pgid": raw.to_string(), "pgid": pg.to_string(), "up": ids(&to.up), "up_primary": to.up_primary.0,
            "acting": ids(&to.acting), "acting_primary": to.acting_primary.0,
        })
    };
    Ok(Reply::either(cmd.format, text, value))
}

/// Which OSDs a PG is on; the PG named may be one of before a split, by its full hash.
fn map_pg(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let text = cmd.text("pgid")?;
    let raw: PgId = text.parse().map_err(|()| Reply::err(Errno::EINVAL, format!("invalid pgid '{text}'")))?;
    let none = || Reply::err(Errno::ENOENT, format!("pg {raw} does not exist"));
    let pg = map.raw_pg_to_pg(raw).ok_or_else(none)?;
    let to = map.pg_to_up_acting(pg);
    let ids = |v: &[OsdId]| v.iter().map(|o| o.0).collect::<Vec<_>>();
    let text = || format!("osdmap e{} pg {raw} ({pg}) -> up {} acting {}\n", map.epoch, print_osds(&to.up), print_osds(&to.acting));
    let value = || {
        json!({
            "epoch": map.epoch.0, "raw_pgid": raw.to_string(), "pgid": pg.to_string(), "up": ids(&to.up), "acting": ids(&to.acting),
        })
    };
    Ok(Reply::either(cmd.format, text, value))
}

fn blocklist_ls(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let all = &map.blocklist;
    let text = || all.iter().map(|(a, until)| format!("{} {}\n", a.as_any(), text::stamp(*until))).collect();
    let value = || all.iter().map(|(a, until)| json!({"addr": a.as_any().to_string(), "until": text::stamp(*until)})).collect();
    let mut reply = Reply::either(cmd.format, text, value);
    reply.status = format!("listed {} entries", all.len());
    Ok(reply)
}

fn min_compat_client(ctx: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    let name = ctx.osdmap().require_min_compat_client.name();
    // Upstream has no JSON for it.
    Ok(Reply::text(format!("{name}\n")))
}
