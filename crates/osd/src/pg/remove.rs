//! Deleting a copy that nobody needs: of a PG that moved elsewhere, or of a pool that is gone.

use super::{Pg, Stage};
use crate::effects::{Cx, Durable, PgStep, TxcRoute};
use store::Transaction;
use types::HObject;
use types::msg::internal_osd::PgBody;

/// Objects deleted per transaction.
const BATCH: usize = 128;

impl Pg {
    /// The PG is whole without them: strays may delete their copies.
    pub(super) fn remove_strays(&mut self, cx: &mut Cx<'_>) {
        if self.walk.mapping.premerge {
            // They offer themselves again.
            return;
        }
        for osd in std::mem::take(&mut self.strays) {
            cx.send_pg(osd, self.id, self.round(), PgBody::Remove, Durable::Now);
        }
    }

    pub(super) fn start_removal(&mut self, cx: &mut Cx<'_>) {
        self.drop_interval_state(cx);
        self.stage = Stage::Removing;
        self.last_backfill = HObject::min();
        self.continue_removal(cx);
    }

    /// Deletes a batch, or the collection when it is empty. True removal is seen by `is_removed`.
    pub(super) fn continue_removal(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.stage, Stage::Removing) || !self.exists_on_disk {
            return;
        }
        let objects = match cx.disk.list(self.coll, &HObject::min(), &HObject::max(), BATCH) {
            Ok((objects, _)) => objects,
            Err(e) => return tracing::error!(pg = %self.id, "cannot be removed: {e}"),
        };
        let mut txn = Transaction::new(self.coll);
        if objects.is_empty() {
            txn.remove_coll();
            self.exists_on_disk = false;
        } else {
            // A copy half gone must not be taken for one.
            self.put_meta(&mut txn);
            objects.iter().for_each(|o| txn.remove(o));
        }
        let route = TxcRoute::Pg { pgid: self.id, round: self.round(), step: PgStep::Removed };
        cx.submit_routed(txn, route);
    }

    /// The copy is wanted again: what is left of it is filled by a backfill from the beginning, which also deletes what
    /// should not be there. To wait for the rest to go would hold up the PG for as long as that takes.
    pub(super) fn stop_removal(&mut self, cx: &mut Cx<'_>) {
        if self.is_removed() {
            return;
        }
        let mut txn = self.transaction();
        self.clear_missing(&mut txn);
        cx.submit(txn);
        (self.last_backfill, self.backfilled) = (HObject::min(), 0);
        self.start_interval(cx);
    }

    /// True if nothing of it is left, on disk or in flight.
    pub fn is_removed(&self) -> bool {
        matches!(self.stage, Stage::Removing) && !self.exists_on_disk && self.anew.is_none()
    }
}
