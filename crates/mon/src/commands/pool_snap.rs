//! Snapshots of pools: the operator's, and the numbers clients take for their own.
//!
//! Numbers are given once. What is removed is queued in the map until OSDs have trimmed what it left.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use types::map::{PgPool, PoolSnap};
use types::{Errno, PoolId, Snap};

pub const COMMANDS: &[Entry] =
    &[entry("osd pool mksnap", "osd", "rw", mksnap), entry("osd pool rmsnap", "osd", "rw", rmsnap)];

fn mksnap(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, snap) = (cmd.text("pool")?, cmd.text("snap")?);
    let (id, pool) = ctx.pool(name)?;
    if pool.snaps.values().any(|s| s.name == snap) {
        return Ok(Reply::status(format!("pool {name} snap {snap} already exists")));
    }
    create_snap(ctx, id, snap)?;
    Ok(Reply::status(format!("created pool {name} snap {snap}")))
}

fn rmsnap(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (name, snap) = (cmd.text("pool")?, cmd.text("snap")?);
    let (id, pool) = ctx.pool(name)?;
    if !pool.snaps.values().any(|s| s.name == snap) {
        return Ok(Reply::status(format!("pool {name} snap {snap} does not exist")));
    }
    remove_snap(ctx, id, snap)?;
    Ok(Reply::status(format!("removed pool {name} snap {snap}")))
}

/// Makes a snapshot of the whole pool; EINVAL where clients manage their own.
pub fn create_snap(ctx: &mut Ctx<'_>, id: PoolId, name: &str) -> Result<(), Reply> {
    let wall = ctx.now.wall;
    let pool = changeable(ctx, id, PgPool::FLAG_SELFMANAGED_SNAPS)?;
    let snapid = Snap(pool.snap_seq.0 + 1);
    pool.snap_seq = snapid;
    pool.flags |= PgPool::FLAG_POOL_SNAPS;
    pool.snaps.insert(snapid, PoolSnap { snapid, stamp: wall, name: name.to_owned() });
    pool.snap_epoch = pool.last_change;
    Ok(())
}

/// Removes a snapshot of the whole pool.
pub fn remove_snap(ctx: &mut Ctx<'_>, id: PoolId, name: &str) -> Result<(), Reply> {
    let pool = changeable(ctx, id, PgPool::FLAG_SELFMANAGED_SNAPS)?;
    let Some(snap) = pool.snaps.values().find(|s| s.name == name).map(|s| s.snapid) else {
        return Err(Reply::err(Errno::ENOENT, "no such snapshot"));
    };
    pool.snaps.remove(&snap);
    pool.snap_epoch = pool.last_change;
    ctx.state.osdmap.change().new_removed_snaps.entry(id).or_default().insert(snap.0, 1);
    Ok(())
}

/// Gives a client a number for a snapshot of its own.
pub fn allocate_snap(ctx: &mut Ctx<'_>, id: PoolId) -> Result<Snap, Reply> {
    let pool = changeable(ctx, id, PgPool::FLAG_POOL_SNAPS)?;
    pool.snap_seq = Snap(pool.snap_seq.0 + 1);
    pool.flags |= PgPool::FLAG_SELFMANAGED_SNAPS;
    pool.snap_epoch = pool.last_change;
    Ok(pool.snap_seq)
}

/// Takes a client's number back.
pub fn release_snap(ctx: &mut Ctx<'_>, id: PoolId, snap: Snap) -> Result<(), Reply> {
    let map = ctx.osdmap();
    if map.removed_snaps_queue.get(&id).is_some_and(|q| q.contains(snap.0)) {
        return Ok(());
    }
    let pool = changeable(ctx, id, PgPool::FLAG_POOL_SNAPS)?;
    if snap > pool.snap_seq || snap.0 == 0 {
        return Err(Reply::err(Errno::ENOENT, "no such snapshot"));
    }
    pool.snap_epoch = pool.last_change;
    ctx.state.osdmap.change().new_removed_snaps.entry(id).or_default().insert(snap.0, 1);
    Ok(())
}

fn changeable<'a>(ctx: &'a mut Ctx<'_>, id: PoolId, other_mode: u64) -> Result<&'a mut PgPool, Reply> {
    let none = || Reply::err(Errno::ENOENT, "no such pool");
    let mixed = ctx.osdmap().pools.get(&id).ok_or_else(none)?.has_flag(other_mode);
    if mixed {
        return Err(Reply::err(Errno::EINVAL, "pool and self-managed snapshots cannot be mixed in a pool"));
    }
    ctx.state.osdmap.change_pool(id).ok_or_else(none)
}
