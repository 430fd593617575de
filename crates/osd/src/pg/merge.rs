//! Taking over another copy's log: what diverged is void, what is new is missing until it is pushed.
//!
//! Holds: log and missing rows change in one transaction, so that a copy never claims an object it does not have. What is
//! not missing is stored in the version that the log says, up to where a backfill has come.

use super::log::{LogRow, consequences, row_key};
use super::{Pg, Stage};
use crate::effects::{Cx, Durable};
use crate::object::{INFO_ATTR, ObjectInfo};
use store::{Transaction, TxcId};
use types::msg::internal_osd::{PgBody, PgTotals, Round};
use types::pg::{PgLogDup, PgLogEntry, Shards};
use types::{EVersion, HObject, OsdId};

/// The authoritative log, or the part of it that a copy needs.
#[derive(Debug)]
pub(super) struct Merge {
    /// It is the whole log. Nothing here counts until the backfill that begins now comes to it.
    pub reset: bool,
    pub base: EVersion,
    pub tail: EVersion,
    pub entries: Vec<PgLogEntry>,
    pub totals: PgTotals,
    pub last_user_version: u64,
    /// Requests from before those this copy remembers.
    pub dups: Vec<PgLogDup>,
    /// Which shards the copy has from now on.
    pub shards: Shards,
}

impl Pg {
    /// The primary's word on what our log is.
    pub(super) fn handle_merge(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, merge: Merge) {
        let txc = match self.stage {
            Stage::Follower { active: false } => self.merge(cx, merge),
            // It was done: the primary, which has gone on meanwhile, has not heard of it.
            Stage::Follower { active: true } => self.store_meta(cx),
            _ => return,
        };
        let missing = self.missing.iter().map(|(o, v)| (o.clone(), *v)).collect();
        let body = PgBody::Merged { missing, last_backfill: self.last_backfill.clone(), backfilled: self.backfilled };
        cx.send_pg(from, self.id, round, body, Durable::After(txc));
    }

    /// Makes a log ours.
    pub(super) fn merge(&mut self, cx: &mut Cx<'_>, merge: Merge) -> TxcId {
        let mut txn = self.transaction();
        let was_other = self.is_coded() && !self.own_shards.is_same_of(self.hashes(), &merge.shards);
        self.own_shards = merge.shards;
        let met = self.log.contains(merge.base) || merge.entries.iter().any(|e| self.log.contains(e.version));
        if merge.reset || !met || was_other {
            (self.last_backfill, self.backfilled) = (HObject::min(), 0);
            self.clear_missing(&mut txn);
            self.reset_log(&mut txn, if merge.reset { merge.tail } else { merge.base });
            self.append(&mut txn, merge.entries, merge.totals);
        } else {
            self.merge_entries(cx, &mut txn, merge.base, merge.entries, merge.totals);
        }
        let remembered = self.log.dups.push_older(merge.dups, self.log.tail.version + 1);
        self.log.dups.put_rows(&mut txn, &remembered);
        if self.totals != merge.totals {
            self.totals = merge.totals;
            self.put_totals(&mut txn);
        }
        self.last_user_version = self.last_user_version.max(merge.last_user_version);
        self.put_meta(&mut txn);
        cx.submit(txn)
    }

    fn merge_entries(&mut self, cx: &mut Cx<'_>, txn: &mut Transaction, base: EVersion, mut entries: Vec<PgLogEntry>, totals: PgTotals) {
        // Logs that share a version agree on everything before it. The same may come twice when a session is lost.
        let known = entries.iter().rposition(|e| self.log.contains(e.version)).map_or(0, |at| at + 1);
        let base = entries.drain(..known).next_back().map_or(base, |e| e.version);
        let divergent = self.log.rewind(base);
        if let (Some(newest), Some(oldest)) = (divergent.first(), divergent.last()) {
            txn.coll_rm_range(row_key(oldest.version.version), row_key(newest.version.version + 1));
        }
        let back = self.take_back(cx, txn, &divergent);
        let mut changed = consequences(&divergent, &entries);
        changed.retain(|obj, _| *obj < self.last_backfill);
        for (obj, version) in changed {
            if back.get(&obj) != Some(&version.unwrap_or_default()) {
                self.follow(cx, txn, obj, version);
            }
        }
        self.append(txn, entries, totals);
    }

    /// An object is to be absent, or what `version` made of it: it is missing if it is not that already. What is marked
    /// missing in the very version that is stored cannot be read, and stays so.
    pub(super) fn follow(&mut self, cx: &mut Cx<'_>, txn: &mut Transaction, obj: HObject, version: Option<EVersion>) {
        match version {
            None => {
                txn.remove(&obj);
                self.drop_missing(txn, &obj);
            }
            Some(v) if self.missing.get(&obj) == Some(&v) => {}
            Some(v) if self.version_of(cx, &obj) == Some(v) => self.drop_missing(txn, &obj),
            Some(v) => self.add_missing(txn, obj, v),
        }
    }

    fn append(&mut self, txn: &mut Transaction, entries: Vec<PgLogEntry>, totals: PgTotals) {
        let tail = self.log.tail;
        for entry in entries.into_iter().filter(|e| e.version > tail) {
            let row = LogRow::new(entry, totals);
            self.log.write_row(txn, &row.entry, &denc::to_bytes(&row, 0));
        }
    }

    /// The version of an object as stored here; none where it is of another shard than our copy.
    pub(super) fn version_of(&self, cx: &mut Cx<'_>, obj: &HObject) -> Option<EVersion> {
        let raw = cx.disk.getattr(self.coll, obj, INFO_ATTR).ok()?;
        denc::from_bytes::<ObjectInfo>(&raw).ok().map(|i| i.version).filter(|_| self.is_of_our_shard(cx, obj))
    }
}
