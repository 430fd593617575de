//! Snapshots as operations meet them: which object a read is about, and what a write is to be kept from.
//!
//! Whatever an operation's snapshot, it waits its turn, and for recovery, by the live object: that knows the clones.
//! Upstream: PrimaryLogPG::find_object_context, execute_ctx.

use super::{ClientOp, OpSource, Pg};
use crate::effects::Cx;
use crate::object::{INFO_ATTR, ObjectInfo, SNAPSET_ATTR};
use crate::snaps::{SnapContext, Snaps};
use bytes::Bytes;
use denc::Decode;
use types::map::SnapIntervals;
use types::msg::osd::osd_flag;
use types::msg::osd_op::Op;
use types::pg::{SeenAt, SnapSet};
use types::{Errno, HObject, Snap};

/// What an operation is about.
pub(super) enum Target {
    Object(HObject),
    /// There was none at its snapshot.
    Nothing,
    /// This clone has to be recovered first.
    Lacking(HObject),
}

/// How things stand before an operation.
pub(super) struct Before {
    /// What is stored of the live object; it may be a whiteout.
    pub head: Option<ObjectInfo>,
    pub snaps: Snaps,
    pub context: SnapContext,
    /// What the operation is about, and its state, `None` if it does not exist.
    pub target: HObject,
    pub stored: Option<ObjectInfo>,
}

impl Pg {
    /// True if the pool has ever had snapshots.
    pub(super) fn pool_has_snaps(&self, cx: &Cx<'_>) -> bool {
        cx.sh.map.pool_by_id(self.id.pool).is_some_and(|pool| pool.snap_seq > Snap(0))
    }

    /// Removed snapshots that are not trimmed everywhere yet.
    pub(super) fn removed_snaps<'a>(&self, cx: &'a Cx<'_>) -> Option<&'a SnapIntervals> {
        cx.sh.map.removed_snaps_queue.get(&self.id.pool)
    }

    /// What is stored of an object. EIO if it cannot be read.
    pub(super) fn load_info(&self, cx: &mut Cx<'_>, object: &HObject) -> Result<Option<ObjectInfo>, Errno> {
        match cx.disk.getattr(self.coll, object, INFO_ATTR) {
            Ok(raw) => decoded(&raw).map(Some),
            Err(Errno::ENOENT | Errno::ENODATA) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// What is stored of a live object, and of its clones.
    pub(super) fn load_head(&self, cx: &mut Cx<'_>, object: &HObject) -> Result<(Option<ObjectInfo>, Snaps), Errno> {
        let (info, set) = match cx.disk.getattr_pair(self.coll, object, [INFO_ATTR, SNAPSET_ATTR]) {
            Ok([Some(info), set]) => (info, set),
            Ok([None, _]) | Err(Errno::ENOENT) => return Ok((None, Snaps::default())),
            Err(e) => return Err(e),
        };
        let head = decoded(&info)?;
        let set: SnapSet = set.map_or(Ok(SnapSet::default()), |raw| decoded(&raw))?;
        // They hide clones: most objects have none, and every operation comes by here.
        let removed = if set.clones.is_empty() { None } else { self.removed_snaps(cx).cloned() };
        Ok((Some(head), Snaps { set, removed: removed.unwrap_or_default() }))
    }

    /// What an operation reads: the live object, or the clone that its snapshot shows. Also that a rollback is not kept from the
    /// clone it goes to.
    pub(super) fn target_of(&self, cx: &Cx<'_>, op: &ClientOp, snaps: &Snaps) -> Target {
        let named = |snap| HObject { snap, ..op.object.clone() };
        let goes_to = op.msg.ops.iter().filter_map(|o| match o.op {
            Op::Rollback(snap) => Some(snaps.seen_at(snap)),
            _ => None,
        });
        for seen in goes_to {
            if let SeenAt::Clone(clone) = seen && self.must_recover(cx.sh.whoami, &named(clone), op.access) {
                return Target::Lacking(named(clone));
            }
        }
        let seen = match op.msg.snap {
            Snap::HEAD | Snap::DIR => SeenAt::Head,
            snap if op.msg.has_flag(osd_flag::MAP_SNAP_CLONE) => snaps.set.named(snap),
            snap => snaps.seen_at(snap),
        };
        match seen {
            SeenAt::Head => Target::Object(op.object.clone()),
            SeenAt::Clone(clone) if self.must_recover(cx.sh.whoami, &named(clone), op.access) => Target::Lacking(named(clone)),
            SeenAt::Clone(clone) => Target::Object(named(clone)),
            SeenAt::Nothing => {
                tracing::trace!(osd = %cx.sh.whoami, pg = %self.id, snap = op.msg.snap.0, "nothing at that snapshot");
                Target::Nothing
            }
        }
    }

    /// The snapshots a write is to be kept from: the pool's where they are the operator's, else those the client names. What
    /// the PG does by itself concerns none.
    pub(super) fn context_of(&self, cx: &Cx<'_>, op: &ClientOp, snaps: &Snaps) -> SnapContext {
        let m = &op.msg;
        match cx.sh.map.pool_by_id(self.id.pool) {
            _ if !op.access.writes => SnapContext::default(),
            _ if op.source == OpSource::Own => SnapContext { seq: snaps.set.seq, snaps: Vec::new() },
            Some(pool) if pool.is_pool_snaps_mode() && !m.has_flag(osd_flag::ENFORCE_SNAPC) => SnapContext::of_pool(pool),
            _ => SnapContext::of_client(m.snap_seq, &m.snaps, self.removed_snaps(cx).unwrap_or(&SnapIntervals::default())),
        }
    }
}

fn decoded<T: Decode>(raw: &Bytes) -> Result<T, Errno> {
    denc::from_bytes(raw).map_err(|_| Errno::EIO)
}
