//! Writes to a full cluster, pool or disk: who may, who is told no, and who waits.
//!
//! Holds: what frees space always passes; a disk is never filled to where the store itself would fail, whoever insists.
//! Clients hold back, and send again, for what the map says; of what it does not say, they know nothing. A disk may be
//! full for a moment in which no map comes: then we hold the write.
//! Upstream: PrimaryLogPG::prepare_transaction and do_op; there such a write is dropped and its client waits for ever.

use super::{ClientOp, Pg};
use crate::effects::Cx;
use crate::mutation::Step;
use crate::ops::Plan;
use types::map::{OsdMap, PgPool};
use types::msg::osd::osd_flag;
use types::{EntityKind, Errno};

/// What becomes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Go,
    Fail(Errno),
    /// No answer: the client holds back until the map says that there is room, then sends again.
    Drop,
    /// Nobody has told the client: it is to be judged again soon.
    Wait,
}

/// What is full.
#[derive(Debug, Clone, Copy, Default)]
struct Full {
    cluster: bool,
    pool: bool,
    /// The pool is full because its quota is.
    quota: bool,
    /// A disk that would take it, beyond `osd_failsafe_full_ratio`.
    disk: bool,
}

/// Judges a planned write.
pub(super) fn judge(cx: &Cx<'_>, pg: &Pg, op: &ClientOp, plan: &Plan) -> Verdict {
    let grows = plan.delta.bytes > 0 || plan.delta.objects > 0;
    let pool = cx.sh.map.pool_by_id(op.object.pool);
    let has = |flag| pool.is_some_and(|p| p.has_flag(flag));
    let full = Full {
        cluster: cx.sh.map.has_flag(OsdMap::FLAG_FULL),
        pool: has(PgPool::FLAG_FULL),
        quota: has(PgPool::FLAG_FULL_QUOTA),
        disk: is_disk_full(cx, pg, op, plan),
    };
    let forces = op.msg.has_flag(osd_flag::FULL_FORCE) || op.origin.inst.kind == EntityKind::MDS;
    verdict(full, grows, forces, op.msg.has_flag(osd_flag::FULL_TRY))
}

/// True if a disk that is to take it is fuller than the map can know yet. Data takes space also where the object does not
/// grow: in a hole, or until what it replaces is free. Attributes and omaps may still change, for that may be how a client
/// removes things, until nothing is left at all.
fn is_disk_full(cx: &Cx<'_>, pg: &Pg, op: &ClientOp, plan: &Plan) -> bool {
    let steps = &plan.mutation.steps;
    let data = plan.delta.bytes > 0 || plan.delta.objects > 0 || steps.iter().any(|s| matches!(s, Step::Write { .. }));
    let more = |s: &Step| matches!(s, Step::SetAttr { .. } | Step::OmapSet { .. } | Step::OmapSetHeader { .. });
    let takers = || pg.writers_of(cx.sh.whoami, &op.object);
    match data {
        true => takers().any(|osd| cx.is_failsafe_full(osd)),
        false => steps.iter().any(more) && takers().any(|osd| cx.is_exhausted(osd)),
    }
}

fn verdict(full: Full, grows: bool, forces: bool, tries: bool) -> Verdict {
    let closed = grows && !forces && (full.cluster || full.pool);
    if !full.disk && !closed {
        return Verdict::Go;
    }
    match tries || forces {
        true if full.quota => Verdict::Fail(Errno::EDQUOT),
        true => Verdict::Fail(Errno::ENOSPC),
        false if full.cluster || full.pool => Verdict::Drop,
        false => Verdict::Wait,
    }
}

impl Pg {
    /// A disk has no room for a write: it is judged again in a moment, and what comes for the object waits behind it.
    pub(super) fn wait_for_room(&mut self, mut op: ClientOp) {
        op.fetched = Default::default();
        self.short_of_room.insert(op.id);
        self.park(op);
    }

    /// Time passes.
    pub(super) fn look_for_room(&mut self, cx: &mut Cx<'_>) {
        for id in std::mem::take(&mut self.short_of_room) {
            self.resume(cx, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: Full = Full { cluster: false, pool: true, quota: false, disk: false };
    const QUOTA: Full = Full { quota: true, ..POOL };
    const CLUSTER: Full = Full { cluster: true, pool: false, quota: false, disk: false };
    const DISK: Full = Full { cluster: false, pool: false, quota: false, disk: true };

    #[test]
    fn while_there_is_room_everything_passes() {
        assert_eq!(verdict(Full::default(), true, false, false), Verdict::Go);
    }

    #[test]
    fn what_does_not_grow_passes_always() {
        for full in [POOL, QUOTA, CLUSTER] {
            assert_eq!(verdict(full, false, false, false), Verdict::Go);
        }
    }

    #[test]
    fn a_write_that_grows_waits_for_room() {
        for full in [POOL, QUOTA, CLUSTER] {
            assert_eq!(verdict(full, true, false, false), Verdict::Drop);
        }
        for grows in [false, true] {
            assert_eq!(verdict(DISK, grows, false, false), Verdict::Wait);
            assert_eq!(verdict(Full { disk: true, ..CLUSTER }, grows, false, false), Verdict::Drop, "its client has been told");
        }
    }

    #[test]
    fn whoever_would_rather_know_is_told_why() {
        for full in [POOL, CLUSTER, DISK] {
            assert_eq!(verdict(full, true, false, true), Verdict::Fail(Errno::ENOSPC));
        }
        assert_eq!(verdict(QUOTA, true, false, true), Verdict::Fail(Errno::EDQUOT));
    }

    #[test]
    fn force_passes_a_full_pool_and_cluster_but_not_a_full_disk() {
        for full in [POOL, QUOTA, CLUSTER] {
            assert_eq!(verdict(full, true, true, false), Verdict::Go);
        }
        assert_eq!(verdict(DISK, true, true, false), Verdict::Fail(Errno::ENOSPC));
    }
}
