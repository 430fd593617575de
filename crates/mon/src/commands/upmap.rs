//! Exceptions from CRUSH's choice: `osd pg-upmap`, `pg-upmap-items`, `pg-upmap-primary`.
//!
//! As upstream has it, what a rule does not allow is accepted here and dropped with the next epoch (`services::upmaps`).

use super::osd::parse_osd;
use super::osd_set::pgid;
use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use types::map::{PgPool, Release};
use types::{Errno, OsdId, PgId};

pub const COMMANDS: &[Entry] = &[
    entry("osd pg-upmap", "osd", "rw", set),
    entry("osd rm-pg-upmap", "osd", "rw", rm),
    entry("osd pg-upmap-items", "osd", "rw", set_items),
    entry("osd rm-pg-upmap-items", "osd", "rw", rm_items),
    entry("osd pg-upmap-primary", "osd", "rw", set_primary),
    entry("osd rm-pg-upmap-primary", "osd", "rw", rm_primary),
];

fn invalid(text: impl Into<String>) -> Reply {
    Reply::err(Errno::EINVAL, text)
}

/// The PG a command names, and its pool, if all clients understand such exceptions.
fn target(ctx: &Ctx<'_>, cmd: &Cmd, least: Release, what: &str) -> Result<(PgId, PgPool), Reply> {
    let map = ctx.osdmap();
    let oldest = map.require_min_compat_client;
    if oldest < least {
        let text = format!(
            "min_compat_client {oldest} < {least}, which is required for {what}. Try 'ceph osd set-require-min-compat-client {least}' before \
             using the new interface"
        );
        return Err(Reply::err(Errno::EPERM, text));
    }
    let pg = pgid(ctx, cmd)?;
    let pool = map.pools.get(&pg.pool).ok_or_else(|| Reply::err(Errno::ENOENT, format!("pg {pg} does not exist")))?;
    Ok((pg, pool.clone()))
}

/// OSDs as they are given; one may be the number that stands for none.
fn ids(ctx: &Ctx<'_>, cmd: &Cmd) -> Result<Vec<OsdId>, Reply> {
    let map = ctx.osdmap();
    let one = |text: &String| match parse_osd(text) {
        Some(osd) if osd == OsdId::HOLE || map.exists(osd) => Ok(osd),
        Some(osd) => Err(Reply::err(Errno::ENOENT, format!("osd.{osd} does not exist"))),
        None => Err(invalid(format!("unable to parse 'id' value(s) '{text}'"))),
    };
    cmd.list("id")?.iter().map(one).collect()
}

fn join(osds: &[OsdId]) -> String {
    osds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn set(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (pg, pool) = target(ctx, cmd, Release::LUMINOUS, "pg-upmap")?;
    let given = ids(ctx, cmd)?;
    if given.len() < usize::from(pool.min_size) {
        return Err(invalid(format!("num of osds ({}) < pool min size ({})", given.len(), pool.min_size)));
    }
    if given.len() > usize::from(pool.size) {
        return Err(invalid(format!("num of osds ({}) > pool size ({})", given.len(), pool.size)));
    }
    let (mut osds, mut status) = (Vec::new(), String::new());
    for osd in given {
        match osd != OsdId::HOLE && osds.contains(&osd) {
            true => status += &format!("osd.{osd} already exists, "),
            false => osds.push(osd),
        }
    }
    if osds.is_empty() {
        return Err(invalid("no valid upmap items(pairs) is specified"));
    }
    status += &format!("set {pg} pg_upmap mapping to [{}]", join(&osds));
    ctx.state.osdmap.change().new_pg_upmap.insert(pg, osds);
    Ok(Reply::status(status))
}

fn rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (pg, _) = target(ctx, cmd, Release::LUMINOUS, "pg-upmap")?;
    if ctx.osdmap().pg_upmap.contains_key(&pg) {
        ctx.state.osdmap.change().old_pg_upmap.insert(pg);
    }
    Ok(Reply::status(format!("clear {pg} pg_upmap mapping")))
}

fn set_items(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (pg, pool) = target(ctx, cmd, Release::LUMINOUS, "pg-upmap")?;
    let given = ids(ctx, cmd)?;
    if given.len() % 2 != 0 {
        return Err(invalid("you must specify pairs of osd ids to be remapped"));
    }
    if given.len() / 2 > usize::from(pool.size) {
        return Err(invalid(format!("num of osd pairs ({}) > pool size ({})", given.len() / 2, pool.size)));
    }
    let (mut items, mut status) = (Vec::new(), String::new());
    for pair in given.chunks_exact(2).map(|p| (p[0], p[1])) {
        let (from, to) = pair;
        match pair {
            _ if from == to => status += &format!("from osd.{from} == to osd.{to}, "),
            _ if items.contains(&pair) => status += &format!("osd.{from} -> osd.{to} already exists, "),
            _ => items.push(pair),
        }
    }
    if items.is_empty() {
        return Err(invalid(format!("{status}no valid upmap items(pairs) is specified")));
    }
    let shown: Vec<String> = items.iter().map(|(a, b)| format!("{a}->{b}")).collect();
    status += &format!("set {pg} pg_upmap_items mapping to [{}]", shown.join(","));
    ctx.state.osdmap.change().new_pg_upmap_items.insert(pg, items);
    Ok(Reply::status(status))
}

fn rm_items(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (pg, _) = target(ctx, cmd, Release::LUMINOUS, "pg-upmap")?;
    if ctx.osdmap().pg_upmap_items.contains_key(&pg) {
        ctx.state.osdmap.change().old_pg_upmap_items.insert(pg);
    }
    Ok(Reply::status(format!("clear {pg} pg_upmap_items mapping")))
}

/// Another of the acting OSDs becomes primary.
fn set_primary(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (pg, pool) = target(ctx, cmd, Release::REEF, "pg-upmap-primary")?;
    if pool.is_erasure() {
        return Err(invalid("pg-upmap-primary is only supported for replicated pools"));
    }
    let osd = ids(ctx, cmd)?.first().copied().ok_or_else(|| invalid("invalid osd id value"))?;
    let sets = ctx.osdmap().pg_to_up_acting(pg);
    if sets.acting_primary == osd {
        return Err(invalid(format!("osd.{osd} is already primary for pg {pg}")));
    }
    if !sets.acting.contains(&osd) {
        return Err(invalid(format!("osd.{osd} is not in acting set for pg {pg}")));
    }
    ctx.state.osdmap.change().new_pg_upmap_primary.insert(pg, osd);
    Ok(Reply::status(format!("set {pg} pg_upmap_primary mapping to osd.{osd}")))
}

fn rm_primary(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (pg, _) = target(ctx, cmd, Release::REEF, "pg-upmap-primary")?;
    if ctx.osdmap().pg_upmap_primaries.contains_key(&pg) {
        ctx.state.osdmap.change().old_pg_upmap_primary.insert(pg);
    }
    Ok(Reply::status(format!("clear {pg} pg_upmap_primary mapping")))
}
