//! POOLOP: what librados does to pools without a command.

use crate::commands::{Ctx, pool, pool_snap};
use crate::mon::Mon;
use crate::reply::Reply;
use crate::session::SessionId;
use bytes::Bytes;
use store::Kv;
use types::map::PoolType;
use types::msg::RawMessage;
use types::msg::pool::{MPoolOp, MPoolOpReply, pool_op};
use types::{Errno, Now, PoolId};

impl<K: Kv> Mon<K> {
    pub(crate) fn handle_pool_op(&mut self, now: Now, session: SessionId, raw: &RawMessage, op: &MPoolOp) {
        let Some(state) = self.state.as_ref() else { return };
        let (fsid, ours) = (state.monmap.map.fsid, op.fsid == state.monmap.map.fsid);
        let allowed = self.sessions.get(&session).is_some_and(|s| s.may_pool_op(op));
        let mut data = None;
        let result = match () {
            () if !ours => -Errno::EINVAL.0,
            () if !allowed => -Errno::EPERM.0,
            () => {
                let outcome = self.with_ctx(now, Some(session), |ctx| run(ctx, op).map(|d| {
                    data = d;
                    Reply::ok()
                }));
                outcome.unwrap_or_else(|refused| refused).result
            }
        };
        // The reply names the epoch the client will wait for: it must exist.
        self.publish_osdmap(now);
        let epoch = self.state.as_ref().map_or(Default::default(), |s| s.osdmap.map.epoch);
        self.send(session, raw.tid, MPoolOpReply { paxos: op.paxos, fsid, result, epoch, data });
    }
}

fn run(ctx: &mut Ctx<'_>, op: &MPoolOp) -> Result<Option<Bytes>, Reply> {
    let id = PoolId(op.pool.into());
    match op.op {
        pool_op::CREATE => create(ctx, op).map(|()| None),
        pool_op::DELETE => match ctx.osdmap().pools.get(&id) {
            Some(found) => pool::remove(ctx, id, &found.clone()).map(|()| None),
            None => Ok(None),
        },
        pool_op::CREATE_SNAP => {
            let there = ctx.osdmap().pools.get(&id).is_some_and(|p| p.snaps.values().any(|s| s.name == op.name));
            if there {
                return Err(Reply::err(Errno::EEXIST, ""));
            }
            pool_snap::create_snap(ctx, id, &op.name).map(|()| None)
        }
        pool_op::DELETE_SNAP => pool_snap::remove_snap(ctx, id, &op.name).map(|()| None),
        pool_op::CREATE_UNMANAGED_SNAP => {
            let snap = pool_snap::allocate_snap(ctx, id)?;
            Ok(Some(denc::to_bytes(&snap, 0)))
        }
        pool_op::DELETE_UNMANAGED_SNAP => pool_snap::release_snap(ctx, id, op.snap).map(|()| None),
        _ => Err(Reply::err(Errno::EINVAL, "")),
    }
}

fn create(ctx: &mut Ctx<'_>, op: &MPoolOp) -> Result<(), Reply> {
    if ctx.osdmap().pool_id(&op.name).is_some() {
        return Err(Reply::err(Errno::EEXIST, ""));
    }
    let rule = match u8::try_from(op.crush_rule) {
        Ok(rule) if ctx.osdmap().crush.rule(rule.into()).is_some() => rule,
        Ok(_) => return Err(Reply::err(Errno::ENOENT, "")),
        Err(_) => ctx.osdmap().crush.iter_rules().find(|(_, r)| r.kind == 1).map_or(0, |(n, _)| n as u8),
    };
    let sizes = pool::replicated_sizes(ctx, None)?;
    let new = pool::plan(ctx, &op.name, 0, 0, rule, sizes)?;
    pool::check_rule(&ctx.osdmap().crush, rule, PoolType::REPLICATED, sizes.size)?;
    let pool = pool::blank(ctx, &new);
    pool::insert(ctx, &op.name, pool);
    Ok(())
}
