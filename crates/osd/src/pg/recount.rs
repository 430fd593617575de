//! Counting a PG's objects after a split, which only guessed how many went where, and after unfound ones were given up.
//!
//! Room: osd core, primary.   Owns: `Recount`.   Hears: time.
//! Holds: what is written to objects already counted counts, and what is written to others will be counted; so the sum is
//! exact when the end is reached, whatever clients do meanwhile.
//! Why not on every copy: a copy's totals are its primary's, from the next write or peering on. Until then it has its own doubts
//! (`approximate`), and counts if it comes to be the primary.

use super::{Pg, Stage};
use crate::effects::Cx;
use crate::ops::pg_range;
use types::{HObject, Snap};
use types::msg::internal_osd::PgTotals;

/// Objects of all PGs together that are counted per turn of housekeeping, twice a second.
pub(crate) const BUDGET: usize = 2000;

/// A count under way.
#[derive(Debug)]
pub(super) struct Recount {
    cursor: HObject,
    totals: PgTotals,
}

impl Pg {
    /// Counts on, as far as the budget goes.
    pub(super) fn recount(&mut self, cx: &mut Cx<'_>) {
        let ready = self.history.approximate && matches!(self.stage, Stage::Active) && self.missing.is_empty();
        if !ready || cx.sh.recount_budget == 0 {
            return;
        }
        let (start, end) = pg_range(self.id, self.walk.mapping.bits);
        let mut count = self.recounting.take().unwrap_or(Recount { cursor: start, totals: PgTotals::default() });
        let (objects, next) = self.list(cx, &count.cursor, &end, cx.sh.recount_budget);
        cx.sh.recount_budget -= objects.len().min(cx.sh.recount_budget);
        for object in &objects {
            count.totals.objects += 1;
            match object.snap < Snap::HEAD {
                true => count.totals.clones += 1,
                false => count.totals.bytes += self.bytes_of(cx, object),
            }
        }
        count.cursor = next;
        if count.cursor < end {
            self.recounting = Some(count);
            return;
        }
        tracing::debug!(osd = %cx.sh.whoami, pg = %self.id, before = ?self.totals, now = ?count.totals, "counted");
        self.totals = count.totals;
        self.history.approximate = false;
        let mut txn = self.transaction();
        self.put_totals(&mut txn);
        self.put_meta(&mut txn);
        cx.submit(txn);
    }

    /// Bytes of a live object, and those that its clones have for themselves.
    fn bytes_of(&self, cx: &mut Cx<'_>, object: &HObject) -> i64 {
        match self.load_head(cx, object) {
            Ok((Some(head), snaps)) => (head.size + snaps.set.all_clone_bytes()) as i64,
            _ => 0,
        }
    }

    /// A write changes the totals by so much.
    pub(super) fn recount_write(&mut self, object: &HObject, totals: &PgTotals) {
        let before = self.totals;
        if let Some(count) = self.recounting.as_mut().filter(|c| *object < c.cursor) {
            count.totals.objects += totals.objects - before.objects;
            count.totals.bytes += totals.bytes - before.bytes;
            count.totals.clones += totals.clones - before.clones;
        }
    }
}
