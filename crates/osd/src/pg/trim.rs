//! Trimming: clones that only removed snapshots showed go, the others forget those snapshots; then the snapshots are purged.
//!
//! Room: osd core.   Owns: `Trims`, on the primary.   Hears: time, maps, the end of its own writes.
//! Holds: a clone is trimmed by a write like any other, which every copy logs and which waits its turn at the live object;
//! `osd_pg_max_concurrent_snap_trims` of them are under way in a PG, and `osd_max_trimming_pgs` PGs of an OSD trim at a time. It is
//! done only while the PG is clean. A snapshot is called purged when the index has no clone left that it shows.
//! What is purged is kept in memory: another primary finds out by itself, for an index without rows is quickly read.
//! Upstream: PrimaryLogPG::trim_object, SnapTrimmer.

use super::op::ClientOp;
use super::repop::Write;
use super::{Pg, Stage};
use crate::effects::Cx;
use crate::mutation::{Mutation, Step};
use crate::object::{INFO_ATTR, ObjectInfo, undo};
use crate::ops::{Access, pg_range};
use crate::snaps::{self, Preserved};
use admin::option::ConfigValues;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;
use store::Transaction;
use types::map::{OsdMap, SnapIntervals};
use types::msg::LogPrio;
use types::msg::internal_osd::PgTotals;
use types::pg::{LogOp, PgLogEntry, PgState, SnapSet};
use types::{HObject, Mono, ReqId, Snap};

/// Objects that are looked at per turn of housekeeping while the index is made anew.
const REINDEX_PAGE: usize = 500;

/// What operators say of trimming.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrimOptions {
    /// `osd_snap_trim_sleep`: between one clone and the next of a PG.
    sleep: Duration,
    /// `osd_pg_max_concurrent_snap_trims`
    at_once: usize,
    /// `osd_max_trimming_pgs`
    pgs: usize,
}

impl TrimOptions {
    pub fn new(c: &ConfigValues) -> Self {
        TrimOptions {
            sleep: Duration::try_from_secs_f64(c.f64("osd_snap_trim_sleep")).unwrap_or_default(),
            at_once: c.u64("osd_pg_max_concurrent_snap_trims").clamp(1, 1000) as usize,
            pgs: c.u64("osd_max_trimming_pgs").max(1) as usize,
        }
    }
}

/// Trimming in a PG.
#[derive(Debug, Default)]
pub(super) struct Trims {
    /// The index lacks clones that came with other PGs.
    pub unindexed: bool,
    reindexed_to: Option<HObject>,
    /// Removed snapshots that show nothing here any more, and that the map does not know as purged.
    pub purged: SnapIntervals,
    /// How many removed snapshots are left to trim.
    pub left: u64,
    /// The snapshot whose clones are looked up, and the last row seen.
    at: Option<(Snap, Option<denc::BString>)>,
    under_way: BTreeSet<HObject>,
    not_before: Mono,
    /// It is one of those of its OSD that trim, or waits to be one.
    active: bool,
    waits: bool,
    /// A snapshot whose clones cannot be trimmed.
    stuck: SnapIntervals,
    /// A write has ended.
    pub ended: bool,
}

/// The next clone that a snapshot shows.
enum NextClone {
    Clone(HObject),
    None,
    Unreadable,
}

impl Pg {
    /// Goes on trimming as far as it may.
    pub(super) fn trim(&mut self, cx: &mut Cx<'_>) {
        self.trims.ended = false;
        let removed = self.removed_snaps(cx).cloned().unwrap_or_default();
        self.trims.purged = self.trims.purged.intersection(&removed);
        let mut left = removed;
        left.subtract(&self.trims.purged);
        self.trims.left = left.len();
        left.subtract(&self.trims.stuck);
        let clean = matches!(self.stage, Stage::Active) && self.is_clean() && self.takes_ops();
        if left.is_empty() || !clean || cx.sh.map.has_flag(OsdMap::FLAG_NOSNAPTRIM) {
            return self.rest(cx);
        }
        let room = cx.sh.trimming.contains(&self.id) || cx.sh.trimming.len() < cx.sh.trim.pgs;
        self.trims.waits = !room;
        if !room {
            return;
        }
        cx.sh.trimming.insert(self.id);
        self.trims.active = true;
        if self.trims.unindexed {
            return self.reindex(cx);
        }
        self.trim_clones(cx, left);
    }

    /// There is nothing to trim, or it must not be: once what is under way has ended, another PG of the OSD may.
    fn rest(&mut self, cx: &mut Cx<'_>) {
        self.trims.waits = false;
        if self.trims.under_way.is_empty() {
            (self.trims.at, self.trims.active) = (None, false);
            cx.sh.trimming.remove(&self.id);
        }
    }

    fn trim_clones(&mut self, cx: &mut Cx<'_>, mut left: SnapIntervals) {
        while self.trims.under_way.len() < cx.sh.trim.at_once && self.trims.not_before <= cx.now.mono {
            let first = left.0.keys().next().map(|first| (Snap(*first), None));
            let known = self.trims.at.take().filter(|(snap, _)| left.contains(snap.0));
            let Some((snap, after)) = known.or(first) else { return self.rest(cx) };
            let from_start = after.is_none();
            match self.next_clone(cx, snap, after) {
                NextClone::Clone(clone) => self.start_trim(cx, clone),
                NextClone::Unreadable => {
                    left.remove(snap.0, 1);
                    self.trims.stuck.insert(snap.0, 1);
                }
                // Those under way are looked at once more when they are done.
                NextClone::None if !self.trims.under_way.is_empty() => return self.trims.at = Some((snap, None)),
                NextClone::None if from_start => {
                    tracing::debug!(osd = %cx.sh.whoami, pg = %self.id, snap = snap.0, "trimmed");
                    left.remove(snap.0, 1);
                    self.trims.purged.insert(snap.0, 1);
                    self.trims.left = self.trims.left.saturating_sub(1);
                }
                NextClone::None => self.trims.at = Some((snap, None)),
            }
        }
    }

    /// Reads on in the index, and notes how far.
    fn next_clone(&mut self, cx: &mut Cx<'_>, snap: Snap, after: Option<denc::BString>) -> NextClone {
        let (start, end) = (snaps::index_start(snap), snaps::index_start(Snap(snap.0 + 1)));
        loop {
            let from = match &self.trims.at {
                Some((_, Some(row))) => Bound::Excluded(row.to_vec()),
                _ => match &after {
                    Some(row) => Bound::Excluded(row.to_vec()),
                    None => Bound::Included(start.clone()),
                },
            };
            let rows = cx.disk.coll_scan(self.coll, from.as_ref().map(Vec::as_slice), Bound::Excluded(end.as_slice()), 1);
            let Ok(rows) = rows else {
                cx.clog(LogPrio::ERROR, format!("{}: the clones of snapshot {:x} cannot be looked up", self.id, snap.0));
                return NextClone::Unreadable;
            };
            let Some((row, _)) = rows.into_iter().next() else { return NextClone::None };
            let clone = snaps::indexed(&row).map(|(_, clone)| clone);
            self.trims.at = Some((snap, Some(row.clone())));
            match clone {
                Some(clone) if self.trims.under_way.contains(&clone) => {}
                Some(clone) if self.shows(cx, &clone, snap) => return NextClone::Clone(clone),
                // A row too many.
                _ => self.drop_row(cx, row),
            }
        }
    }

    /// True if a clone is here and a snapshot shows it. Rows of what a split has given away are left.
    fn shows(&self, cx: &mut Cx<'_>, clone: &HObject, snap: Snap) -> bool {
        let (start, end) = pg_range(self.id, self.walk.mapping.bits);
        if *clone < start || *clone >= end {
            return false;
        }
        // What cannot be read is for the write to meet.
        self.load_info(cx, clone).map_or(true, |info| info.is_some_and(|info| info.snaps.contains(&snap)))
    }

    fn drop_row(&mut self, cx: &mut Cx<'_>, row: denc::BString) {
        let mut txn = self.transaction();
        txn.coll_rm(row);
        cx.submit(txn);
    }

    /// Looks through all objects for clones, once after PGs were split or merged.
    fn reindex(&mut self, cx: &mut Cx<'_>) {
        let (start, end) = pg_range(self.id, self.walk.mapping.bits);
        let from = self.trims.reindexed_to.take().unwrap_or(start);
        let Ok((objects, next)) = cx.disk.list(self.coll, &from, &end, REINDEX_PAGE) else { return };
        let mut txn: Transaction = self.transaction();
        for object in objects.iter().filter(|o| o.snap < Snap::HEAD && !undo::is(o)) {
            if let Ok(Some(info)) = self.load_info(cx, object) {
                snaps::index_arrived(&mut txn, object, &info);
            }
        }
        match next < end {
            true => self.trims.reindexed_to = Some(next),
            false => {
                self.trims.unindexed = false;
                self.put_meta(&mut txn);
            }
        }
        if !txn.is_empty() {
            cx.submit(txn);
        }
    }

    fn start_trim(&mut self, cx: &mut Cx<'_>, clone: HObject) {
        self.trims.not_before = cx.now.mono + cx.sh.trim.sleep;
        let object = HObject { snap: Snap::HEAD, ..clone.clone() };
        let access = Access { reads: true, writes: true, ..Access::default() };
        let op = ClientOp { waited: true, trims: Some(clone.snap), ..self.own_op(cx, object, Vec::new(), access) };
        self.trims.under_way.insert(clone);
        self.queue.arrive(op);
    }

    /// It is a clone's turn to be trimmed.
    pub(super) fn run_trim(&mut self, cx: &mut Cx<'_>, op: ClientOp, clone: Snap) {
        let object = HObject { snap: clone, ..op.object.clone() };
        if self.must_recover(cx.sh.whoami, &object, op.access) {
            return self.wait_for_recovery(cx, op, object);
        }
        let loaded = self.load_head(cx, &op.object).and_then(|(head, snaps)| Ok((head, snaps, self.load_info(cx, &object)?)));
        let (head, set, info) = match loaded {
            Ok((Some(head), snaps, Some(info))) if snaps.set.clones.contains(&clone) => (head, snaps.set, info),
            Ok(_) => return self.cannot_trim(cx, op, &object, "the object does not know it"),
            Err(e) => return self.cannot_trim(cx, op, &object, e.text()),
        };
        let removed = self.removed_snaps(cx).cloned().unwrap_or_default();
        let (gone, left): (Vec<Snap>, Vec<Snap>) = set.snaps_of(clone).iter().partition(|snap| removed.contains(snap.0));
        if gone.is_empty() {
            self.trims.under_way.remove(&object);
            return self.queue.leave(&op.object, op.access);
        }
        let write = self.trim_write(cx, (head, set), (clone, info), gone, left, op);
        self.submit(cx, write);
    }

    /// What trimming a clone changes: the clone, and what its object knows of it.
    fn trim_write(
        &mut self,
        cx: &Cx<'_>,
        (mut head, mut set): (ObjectInfo, SnapSet),
        (clone, info): (Snap, ObjectInfo),
        gone: Vec<Snap>,
        left: Vec<Snap>,
        op: ClientOp,
    ) -> Write {
        let mut version = self.next_version(cx);
        let mut mutation = Mutation::default();
        let mut totals = self.totals;
        let mtime = cx.now.wall;
        let entry = |kind, object: HObject, version, prior_version| PgLogEntry {
            op: kind,
            object,
            version,
            prior_version,
            user_version: 0,
            reqid: ReqId::default(),
            mtime,
            result: 0,
            op_returns: Vec::new(),
        };
        mutation.push(Step::Unshow { clone, snaps: gone });
        let object = HObject { snap: clone, ..op.object.clone() };
        let before = entry(if left.is_empty() { LogOp::Delete } else { LogOp::Modify }, object, version, info.version);
        match left.is_empty() {
            true => {
                mutation.push(Step::RemoveClone { clone });
                let bytes = set.all_clone_bytes() as i64;
                set.forget(clone);
                let freed = set.all_clone_bytes() as i64 - bytes;
                totals = PgTotals { objects: totals.objects - 1, bytes: totals.bytes + freed, clones: totals.clones - 1 };
            }
            false => {
                let info = ObjectInfo { version, prior_version: info.version, snaps: left.clone(), ..info };
                mutation.push(Step::SetCloneInfo { clone, info: denc::to_bytes(&info, types::features::SUPPORTED) });
                set.clone_snaps.insert(clone, left);
            }
        }
        version.version += 1;
        let prior = head.version;
        let ends = head.is_whiteout() && set.clones.is_empty();
        if ends {
            mutation.push(Step::Remove);
            totals.objects -= 1;
        } else {
            (head.version, head.prior_version) = (version, prior);
            mutation.push(Step::SetAttr { name: INFO_ATTR.into(), value: denc::to_bytes(&head, types::features::SUPPORTED) });
            Preserved { clone: None, set: Some(set), whiteout: false, clones: 0 }.store_set(&mut mutation);
        }
        let entry = entry(if ends { LogOp::Delete } else { LogOp::Modify }, op.object.clone(), version, prior);
        self.figures.sums.num_wr += 1;
        let reply = self.reply(cx, &op, 0, Vec::new(), version, 0);
        Write { before: vec![before], entry, mutation, totals, answer: Some((reply, op)), watch: None, shards: None }
    }

    fn cannot_trim(&mut self, cx: &mut Cx<'_>, op: ClientOp, object: &HObject, why: &str) {
        cx.clog(LogPrio::ERROR, format!("{}: {object} cannot be trimmed: {why}", self.id));
        if let Some((snap, _)) = &self.trims.at {
            self.trims.stuck.insert(snap.0, 1);
        }
        self.trims.under_way.remove(object);
        self.queue.leave(&op.object, op.access);
    }

    /// A write of ours is durable everywhere.
    pub(super) fn trimmed(&mut self, op: &ClientOp) {
        if let Some(clone) = op.trims {
            self.trims.under_way.remove(&HObject { snap: clone, ..op.object.clone() });
            self.trims.ended = true;
        }
    }

    /// The interval is over.
    pub(super) fn drop_trims(&mut self, cx: &mut Cx<'_>) {
        cx.sh.trimming.remove(&self.id);
        self.trims = Trims { unindexed: self.trims.unindexed, ..Trims::default() };
    }

    /// What trimming adds to the PG's state.
    pub(super) fn trim_state(&self) -> PgState {
        let stuck = if self.trims.stuck.is_empty() { PgState::UNKNOWN } else { PgState::SNAPTRIM_ERROR };
        match (self.trims.active, self.trims.waits) {
            (true, _) => stuck | PgState::SNAPTRIM,
            (_, true) => stuck | PgState::SNAPTRIM_WAIT,
            _ => stuck,
        }
    }
}
