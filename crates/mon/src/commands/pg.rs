//! `pg repeer`: a PG peers anew.
//!
//! Upstream: OSDMonitor::prepare_command_impl in src/mon/OSDMonitor.cc.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use types::map::PgPool;
use types::{Errno, OsdId, PgId};

pub const COMMANDS: &[Entry] = &[entry("pg repeer", "osd", "rw", repeer)];

/// Another acting set begins a new interval; the PG then asks for the set that it wants.
fn repeer(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let text = cmd.text("pgid")?;
    let pg: PgId = text.parse().map_err(|()| Reply::err(Errno::EINVAL, format!("invalid pgid '{text}'")))?;
    let map = ctx.osdmap();
    if map.pool_by_id(pg.pool).is_none_or(|pool| pg.seed >= pool.pg_num) {
        return Err(Reply::err(Errno::ENOENT, format!("pg '{text}' does not exist")));
    }
    let mapping = map.pg_to_up_acting(pg);
    let primary = mapping.acting_primary;
    if !map.is_up(primary) {
        return Err(Reply::err(Errno::EAGAIN, "pg currently has no primary"));
    }
    let acting = mapping.acting.iter().filter(|osd| map.is_up(**osd)).count();
    let other = || map.osds().find(|osd| *osd != primary && map.is_up(*osd));
    let erasure = map.pool_by_id(pg.pool).is_some_and(PgPool::is_erasure);
    let alone = |osd: &OsdId| if *osd == primary { primary } else { OsdId::HOLE };
    let set: Vec<OsdId> = match acting {
        // A chunk is of use in its own place only.
        0 | 1 if erasure => return Err(Reply::err(Errno::EAGAIN, "not enough up OSDs in the acting set to force repeer")),
        _ if erasure => mapping.acting.iter().map(alone).collect(),
        0 | 1 => vec![primary, other().ok_or_else(|| Reply::err(Errno::EAGAIN, "not enough up OSDs in the cluster to force repeer"))?],
        _ => vec![primary],
    };
    ctx.state.osdmap.change().new_pg_temp.insert(pg, set);
    Ok(Reply::ok())
}
