//! Backfill: a copy whose log does not meet the authoritative one is filled by going through all objects in hash order,
//! while the PG serves.
//!
//! Room: osd core.   Owns: `Backfill`, one per copy that is filled, on the primary.   Hears: pages of scans, confirmations.
//! Holds: a copy's `last_backfill` is durable there before anything rests on it. Before it the copy is like any other: it
//! gets every write, and what it lacks is missing and known to be, on its disk too. Behind it the copy gets log entries
//! only; nobody writes objects there, so that a page may be compared at leisure. The primary moves the cursor over a page,
//! and calls what differs missing, in one turn with its own look at the page: from then on recovery brings it, and writes
//! to it wait; writes to anything else before the cursor go there as to every copy.
//! Why pages move the cursor, not objects: pushes need no order among each other, blocked writes are one object's affair as
//! in recovery, and a restart goes on where the last page ended. The price is a row for each of a page's objects that
//! differ. What a copy kept from earlier is not sent again.
//! Where a copy's disk is too full to be filled, its objects behind the cursor are sifted: those that are old or that nobody
//! should have give their room back, and so does, from then on, what is written. Otherwise a disk whose copies are all to be
//! filled could be full of what they should not have, and none of them be filled for ever.
//! Upstream: doc/dev/osd_internals/log_based_pg.rst, backfill_reservation.rst; PrimaryLogPG::recover_backfill.

use super::{Pg, Stage};
use crate::effects::{Cx, Durable, Effect};
use crate::object::undo;
use crate::ops::pg_range;
use crate::snaps::are_of_one;
use std::collections::{BTreeMap, BTreeSet};
use types::msg::internal_osd::{PgBody, Round};
use types::{EVersion, HObject, OsdId, Snap};

/// A copy that is being filled.
#[derive(Debug)]
pub(super) struct Backfill {
    /// Everything before it is there, or missing and known to be.
    pub cursor: HObject,
    /// Objects of the PG before the cursor.
    pub objects: i64,
    step: Step,
    /// Objects to look at next time.
    page: usize,
    /// From the cursor to here the copy has nothing but what it should have, if sifting has begun.
    sifted: Option<HObject>,
}

#[derive(Debug)]
enum Step {
    /// Its log is on its way to it.
    Merging,
    Ready,
    /// It was asked for its objects up to here.
    Scanning(HObject),
    /// It was asked for its objects up to here, for want of room.
    Sifting(HObject),
    /// It was told of the cursor and what differs before it, and has not confirmed.
    Moving(Vec<(HObject, EVersion)>),
}

impl Backfill {
    pub fn new(cursor: HObject, objects: i64) -> Self {
        Backfill { cursor, objects, step: Step::Ready, page: 0, sifted: None }
    }

    /// One that begins with nothing, and has yet to say that it has taken over the log.
    pub fn merging() -> Self {
        Backfill { step: Step::Merging, ..Backfill::new(HObject::min(), 0) }
    }

    pub fn is_merging(&self) -> bool {
        matches!(self.step, Step::Merging)
    }

    /// True if the copy has no more to look at.
    pub fn is_done(&self) -> bool {
        self.cursor.max && matches!(self.step, Step::Ready)
    }

    /// True if the next page may be asked for.
    pub fn is_ready(&self) -> bool {
        !self.cursor.max && matches!(self.step, Step::Ready)
    }

    /// True if the copy is to keep nothing old behind the cursor.
    pub fn is_sifted(&self) -> bool {
        self.sifted.is_some()
    }
}

/// What a copy has to change to be as wanted: objects it lacks or has in another version, with the right one; objects it
/// has too many, without.
fn differences(wanted: Vec<(HObject, EVersion)>, held: Vec<(HObject, EVersion)>) -> Vec<(HObject, EVersion)> {
    let mut left: BTreeMap<HObject, EVersion> = held.into_iter().collect();
    let mut out = Vec::new();
    for (obj, version) in wanted {
        if left.remove(&obj) != Some(version) {
            out.push((obj, version));
        }
    }
    out.extend(left.into_keys().map(|obj| (obj, EVersion::default())));
    out
}

/// Objects of a copy that are not as wanted.
fn old_or_too_many(wanted: Vec<(HObject, EVersion)>, held: Vec<(HObject, EVersion)>) -> Vec<HObject> {
    let wanted: BTreeMap<HObject, EVersion> = wanted.into_iter().collect();
    held.into_iter().filter(|(obj, version)| wanted.get(obj) != Some(version)).map(|(obj, _)| obj).collect()
}

impl Pg {
    /// Objects of a range as the store lists them, and where the page ends: not between an object and its clones, those that it may
    /// have later included, so that whatever goes by pages has all or nothing of an object behind it.
    pub(super) fn list(&self, cx: &mut Cx<'_>, begin: &HObject, end: &HObject, limit: usize) -> (Vec<HObject>, HObject) {
        let (mut objects, next) = self.list_all(cx, begin, end, limit);
        objects.retain(|object| !undo::is(object));
        (objects, next)
    }

    /// The same with what waits beside objects.
    fn list_all(&self, cx: &mut Cx<'_>, begin: &HObject, end: &HObject, limit: usize) -> (Vec<HObject>, HObject) {
        let page = cx.disk.list(self.coll, begin, end, limit).and_then(|(mut objects, next)| {
            if next >= *end {
                return Ok((objects, next));
            }
            let whole = objects.partition_point(|o| !are_of_one(o, &next));
            if whole > 0 || objects.is_empty() {
                objects.truncate(whole);
                return Ok((objects, HObject { snap: Snap(0), ..next }.max(begin.clone())));
            }
            let past = HObject { snap: Snap::DIR, ..next };
            cx.disk.list(self.coll, begin, &past, usize::MAX).map(|(objects, _)| (objects, past.min(end.clone())))
        });
        page.unwrap_or_else(|e| {
            // Its metadata is gone: nothing it could say of this copy is worth hearing.
            cx.fx.push(Effect::Stop { why: format!("the objects of {} cannot be listed: {e}", self.id) });
            (Vec::new(), begin.clone())
        })
    }

    /// Objects of a range with the versions they should have; the range ends where the page does.
    fn page(&self, cx: &mut Cx<'_>, begin: &HObject, end: &HObject, limit: usize) -> (Vec<(HObject, EVersion)>, HObject) {
        let (objects, next) = self.list(cx, begin, end, limit);
        let stored = objects.into_iter().map(|o| {
            let version = self.version_of(cx, &o).unwrap_or_default();
            (o, version)
        });
        let mut versions: BTreeMap<HObject, EVersion> = stored.collect();
        if *begin < next {
            versions.extend(self.missing.range(begin..&next).map(|(o, v)| (o.clone(), *v)));
        }
        (versions.into_iter().collect(), next)
    }

    /// Looks at the next objects of a copy: as many as ours are in a page.
    pub(super) fn next_page(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        let Some(backfill) = self.recovery.backfills.get(&osd).filter(|b| b.is_ready()) else { return };
        let (begin, limit) = (backfill.cursor.clone(), backfill.page.clamp(cx.sh.scan_min, cx.sh.scan_max));
        self.ask_page(cx, osd, begin, limit, Step::Scanning);
    }

    /// Looks at the next objects of a copy whose disk is too full for it to be filled. False if it has nothing left to give
    /// back.
    pub(super) fn sift(&mut self, cx: &mut Cx<'_>, osd: OsdId) -> bool {
        let Some(backfill) = self.recovery.backfills.get_mut(&osd).filter(|b| b.is_ready()) else { return false };
        let begin = backfill.sifted.take().unwrap_or_else(HObject::min).max(backfill.cursor.clone());
        backfill.sifted = Some(begin.clone());
        if begin.max {
            return false;
        }
        self.ask_page(cx, osd, begin, cx.sh.scan_max, Step::Sifting);
        true
    }

    fn ask_page(&mut self, cx: &mut Cx<'_>, osd: OsdId, begin: HObject, limit: usize, step: impl FnOnce(HObject) -> Step) {
        let (_, pg_end) = pg_range(self.id, self.walk.mapping.bits);
        let (_, end) = self.list(cx, &begin, &pg_end, limit);
        if let Some(backfill) = self.recovery.backfills.get_mut(&osd) {
            backfill.step = step(end.clone());
        }
        let body = PgBody::Scan { begin, end, limit: limit as u32 };
        cx.send_pg(osd, self.id, self.round(), body, Durable::Now);
    }

    /// Lists a page for whoever compares.
    pub(super) fn send_scan(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round, begin: HObject, end: HObject, limit: u32) {
        let (objects, end) = self.page(cx, &begin, &end, limit as usize);
        let body = PgBody::Scanned { begin, end, objects };
        cx.send_pg(to, self.id, round, body, Durable::Now);
    }

    /// A page of a copy that was asked for.
    pub(super) fn handle_scanned(&mut self, cx: &mut Cx<'_>, from: OsdId, begin: HObject, end: HObject, theirs: Vec<(HObject, EVersion)>) {
        let Some(backfill) = self.recovery.backfills.get(&from) else { return };
        if begin >= end {
            return;
        }
        match &backfill.step {
            Step::Scanning(to) if backfill.cursor == begin && end <= *to => self.compare(cx, from, begin, end, theirs),
            Step::Sifting(to) if backfill.sifted.as_ref() == Some(&begin) && end <= *to => self.sifted(cx, from, begin, end, theirs),
            _ => {}
        }
    }

    /// Has what is old or too many removed. What we lack ourselves stays: it may be all that is left.
    fn sifted(&mut self, cx: &mut Cx<'_>, from: OsdId, begin: HObject, end: HObject, theirs: Vec<(HObject, EVersion)>) {
        let (ours, reached) = self.page(cx, &begin, &end, usize::MAX);
        if reached < end {
            return;
        }
        let lacked = |o: &HObject| self.missing.contains_key(o) || self.recovery.is_being_lost(o);
        let objects: Vec<HObject> = old_or_too_many(ours, theirs).into_iter().filter(|o| !lacked(o)).collect();
        let (_, pg_end) = pg_range(self.id, self.walk.mapping.bits);
        let Some(backfill) = self.recovery.backfills.get_mut(&from) else { return };
        backfill.sifted = Some(if end >= pg_end { HObject::max() } else { end });
        backfill.step = Step::Ready;
        if !objects.is_empty() {
            tracing::debug!(osd = %cx.sh.whoami, pg = %self.id, of = %from, objects = objects.len(), "gives back room");
            cx.send_pg(from, self.id, self.round(), PgBody::MakeRoom { objects }, Durable::Now);
        }
        self.recover(cx);
    }

    /// Compares a page of a copy with ours, and moves its cursor.
    fn compare(&mut self, cx: &mut Cx<'_>, from: OsdId, begin: HObject, end: HObject, theirs: Vec<(HObject, EVersion)>) {
        let (ours, reached) = self.page(cx, &begin, &end, usize::MAX);
        if reached < end {
            return;
        }
        let count = ours.len();
        let differ = differences(ours, theirs);
        let (_, pg_end) = pg_range(self.id, self.walk.mapping.bits);
        let (least, most) = (cx.sh.scan_min, cx.sh.scan_max);
        let Some(backfill) = self.recovery.backfills.get_mut(&from) else { return };
        backfill.cursor = if end >= pg_end { HObject::max() } else { end };
        backfill.objects += count as i64;
        // Where nothing differs it may as well look further at a time.
        backfill.page = if differ.is_empty() { (backfill.page.max(least) * 2).min(most) } else { least };
        backfill.step = Step::Moving(differ.clone());
        self.recovery.note_lacking(from, differ);
        self.send_backfill(cx, from);
    }

    fn send_backfill(&self, cx: &mut Cx<'_>, osd: OsdId) {
        let Some(backfill) = self.recovery.backfills.get(&osd) else { return };
        let Step::Moving(differ) = &backfill.step else { return };
        let body = PgBody::Backfill { end: backfill.cursor.clone(), differ: differ.clone(), objects: backfill.objects };
        cx.send_pg(osd, self.id, self.round(), body, Durable::Now);
    }

    /// Our backfill has come so far.
    pub(super) fn handle_backfill(
        &mut self,
        cx: &mut Cx<'_>,
        from: OsdId,
        round: Round,
        end: HObject,
        differ: Vec<(HObject, EVersion)>,
        objects: i64,
    ) {
        if !matches!(self.stage, Stage::Follower { active: true }) || from != self.walk.mapping.primary {
            return;
        }
        let mut txn = self.transaction();
        // It may be said again, after objects have come.
        if end > self.last_backfill {
            for (obj, version) in differ {
                let version = Some(version).filter(|v| *v != EVersion::default());
                self.follow(cx, &mut txn, obj, version);
            }
            (self.last_backfill, self.backfilled) = (end.clone(), objects);
        }
        self.put_meta(&mut txn);
        let txc = cx.submit(txn);
        cx.send_pg(from, self.id, round, PgBody::Backfilled { end }, Durable::After(txc));
    }

    /// A copy has noted its cursor and what it lacks before it: that is to move.
    pub(super) fn handle_backfilled(&mut self, cx: &mut Cx<'_>, from: OsdId, end: &HObject) {
        let Some(backfill) = self.recovery.backfills.get_mut(&from).filter(|b| b.cursor == *end) else { return };
        if !matches!(backfill.step, Step::Moving(_)) {
            return;
        }
        let Step::Moving(differ) = std::mem::replace(&mut backfill.step, Step::Ready) else { return };
        for (object, version) in differ {
            match version == EVersion::default() {
                true => self.no_longer_there(cx, from, &object),
                false => self.recovery.is_to_move(object),
            }
        }
        self.recover(cx);
    }

    /// The session with a copy was lost: what it was asked and told last is said again.
    pub(super) fn backfill_again(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        let Some(backfill) = self.recovery.backfills.get_mut(&osd) else { return };
        if matches!(backfill.step, Step::Scanning(_) | Step::Sifting(_)) {
            backfill.step = Step::Ready;
        }
        backfill.sifted = None;
        self.recovery.look_again(osd);
        self.send_backfill(cx, osd);
    }

    /// A write makes old what sifted copies have of its object.
    pub(super) fn sift_write(&self, cx: &mut Cx<'_>, behind: &BTreeSet<OsdId>, object: &HObject) {
        for osd in behind.iter().filter(|osd| self.recovery.backfills.get(osd).is_some_and(Backfill::is_sifted)) {
            cx.send_pg(*osd, self.id, self.round(), PgBody::MakeRoom { objects: vec![object.clone()] }, Durable::Now);
        }
    }

    /// The primary has these, not as they are here, and somebody needs the room.
    pub(super) fn handle_make_room(&mut self, cx: &mut Cx<'_>, from: OsdId, objects: Vec<HObject>) {
        if matches!(self.stage, Stage::Follower { active: true }) && from == self.walk.mapping.primary {
            self.give_room(cx, objects);
        }
    }

    /// Removes what is stored here of objects that we do not have as they should be: neither those that are missing, nor those
    /// behind our cursor. A push of one of them begins anew.
    pub(super) fn give_room(&mut self, cx: &mut Cx<'_>, objects: Vec<HObject>) {
        let mut txn = self.transaction();
        for object in objects {
            let whole = object < self.last_backfill && !self.missing.contains_key(&object);
            if !whole && cx.disk.stat(self.coll, &object).is_ok() {
                self.forget_incoming(&object);
                txn.remove(&object);
            }
        }
        if !txn.is_empty() {
            cx.submit(txn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Epoch;

    #[test]
    fn what_is_absent_or_old_is_to_become_as_wanted_and_what_is_too_many_to_go() {
        let obj = |name: &str| HObject { name: name.into(), ..HObject::min() };
        let ev = |version| EVersion { epoch: Epoch(1), version };
        let at = |name: &str, version| (obj(name), ev(version));
        let wanted = vec![at("same", 1), at("changed", 5), at("new", 2)];
        let held = vec![at("same", 1), at("changed", 4), at("deleted", 3)];
        let found: BTreeMap<HObject, EVersion> = differences(wanted, held).into_iter().collect();
        let expected = [at("changed", 5), at("new", 2), (obj("deleted"), EVersion::default())];
        assert_eq!(found, expected.into_iter().collect());
    }
}
