//! Deleting a copy that nobody needs: of a PG that moved elsewhere, or of a pool that is gone.
//!
//! It waits for everybody: PGs take turns, one batch of all of them is under way, and a batch is soon done with.

use super::{Pg, Stage};
use crate::effects::{Cx, Durable, PgStep, TxcRoute};
use store::Transaction;
use std::collections::VecDeque;
use types::msg::internal_osd::PgBody;
use types::{HObject, PgId};

/// Objects deleted per transaction: they are looked up one by one, and clients wait meanwhile.
const BATCH: usize = 32;

/// Whose batch is next.
#[derive(Debug, Default)]
pub struct Removals {
    under_way: bool,
    waiting: VecDeque<PgId>,
}

impl Removals {
    fn join(&mut self, pg: PgId) {
        if !self.waiting.contains(&pg) {
            self.waiting.push_back(pg);
        }
    }

    /// Whose turn it is, if nobody has one.
    pub fn next(&mut self) -> Option<PgId> {
        if self.under_way { None } else { self.waiting.pop_front() }
    }

    /// A batch is on stable storage, whatever has become of its PG.
    pub fn batch_done(&mut self) {
        self.under_way = false;
    }
}

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
        self.removed_to = HObject::min();
        self.continue_removal(cx);
    }

    /// True if there is something left to delete.
    fn has_to_go(&self) -> bool {
        self.is_removing() && self.exists_on_disk
    }

    /// Waits for its turn to delete what there is left.
    pub(super) fn continue_removal(&self, cx: &mut Cx<'_>) {
        if self.has_to_go() {
            cx.sh.removals.join(self.id);
        }
    }

    /// Deletes a batch, or the collection when it is empty. True removal is seen by `is_removed`.
    pub fn remove_batch(&mut self, cx: &mut Cx<'_>) {
        if !self.has_to_go() {
            return;
        }
        // From where the last one ended: the engine would walk over everything that was deleted before.
        let mut from = std::mem::replace(&mut self.removed_to, HObject::min());
        let objects = loop {
            match cx.disk.list(self.coll, &from, &HObject::max(), BATCH) {
                Ok((objects, _)) if objects.is_empty() && from != HObject::min() => from = HObject::min(),
                Ok((objects, _)) => break objects,
                Err(e) => return tracing::error!(pg = %self.id, "cannot be removed: {e}"),
            }
        };
        let mut txn = Transaction::new(self.coll);
        if objects.is_empty() {
            txn.remove_coll();
            self.exists_on_disk = false;
        } else {
            // A copy half gone must not be taken for one.
            self.put_meta(&mut txn);
            objects.iter().for_each(|o| txn.remove(o));
            self.removed_to = objects[objects.len() - 1].clone();
        }
        let route = TxcRoute::Pg { pgid: self.id, round: self.round(), step: PgStep::Removed };
        cx.sh.removals.under_way = true;
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
        self.is_removing() && !self.exists_on_disk && self.anew.is_none()
    }
}
