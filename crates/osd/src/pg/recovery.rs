//! Recovery: with the PG active, what copies lack is brought to them, object by object; first what their logs told of, then
//! what backfill finds.
//!
//! Room: osd core.   Owns: `Recovery`, one per interval on the primary.   Hears: pushes, their ends, refusals, strays.
//! Holds: an object that some copy is known to lack is not written; one that ours lacks is not read. So a push carries the
//! only version there is, and ops on other objects need not know of it. The primary pulls what it lacks and then pushes;
//! whatever clients wait for goes first. An object that nobody who is up can give is unfound: counted, and looked for
//! again with every copy that shows up.
//! Objects on their way are counted per OSD, and their bytes: a PG that holds the only slot may have all of them on their
//! way, so that the pipe is full whoever's turn it is. Which PGs may have some is for slots to say.
//! Upstream: PrimaryLogPG::start_recovery_ops, MissingLoc; doc/dev/osd_internals/log_based_pg.rst.

mod lost;

pub(super) use lost::Source;

use super::backfill::Backfill;
use super::gather::{Ask, Want};
use super::push::PART_BYTES;
use super::{ClientOp, Pg, Stage};
use crate::effects::{Cx, Durable, ReadFor};
use crate::ops::Access;
use bytes::Bytes;
use denc::BString;
use qos::Class;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::map::OsdMap;
use types::msg::LogPrio;
use types::msg::internal_osd::PgBody;
use types::{EVersion, HObject, Mono, OsdId};

/// Objects that clients wait for, on their way at a time per PG beyond what the OSD may move besides.
const URGENT_WINDOW: usize = 64;

/// What acting copies lack, and what is being done about it.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Every copy has everything.
    pub done: bool,
    /// Every copy will have, with the writes that are on their way: from now on they wait for all copies.
    pub whole: bool,
    /// What each other copy lacks, as far as is known; where something is to be removed, without a version.
    peers: BTreeMap<OsdId, BTreeMap<HObject, EVersion>>,
    /// Copies that are being filled.
    pub backfills: BTreeMap<OsdId, Backfill>,
    /// What logs told of has not all been moved: backfill waits.
    by_log: bool,
    /// OSDs outside the acting set with a copy, perhaps old, perhaps of what nobody else has; copies under backfill among
    /// them. They are the last to be asked, for the very version that is wanted, which is the same wherever it is stored.
    holders: BTreeSet<OsdId>,
    /// Who was asked for an object in vain.
    refused: BTreeMap<HObject, BTreeSet<OsdId>>,
    /// Objects to move.
    todo: BTreeSet<HObject>,
    /// Those of them that clients wait for, in the order in which they were asked for.
    urgent: VecDeque<HObject>,
    /// Objects that are still being written: they move when that is durable.
    held: BTreeSet<HObject>,
    /// Objects that nobody can give.
    unfound: BTreeSet<HObject>,
    /// OSDs outside the acting set that have nothing, and those that were asked whether they have.
    empty: BTreeSet<OsdId>,
    asked: BTreeSet<OsdId>,
    /// Unfound objects that the operator gives up, and those on their way to the disks as that.
    marking: Option<lost::Marking>,
    losing: BTreeSet<HObject>,
    /// Objects that those who lack them have no room for.
    no_room: BTreeSet<HObject>,
    /// Who is too full for objects, and who is too full to be filled further.
    full: BTreeSet<OsdId>,
    backfill_full: BTreeSet<OsdId>,
    flights: BTreeMap<HObject, Flight>,
    /// Operations that wait for an object, in order.
    waiting: BTreeMap<HObject, Vec<u64>>,
    /// Listings that look at what we may lack.
    pub listings: Vec<ClientOp>,
    /// There is more to do than the OSD may do now.
    waits_for_room: bool,
}

/// An object on its way.
#[derive(Debug)]
struct Flight {
    leg: Leg,
    /// What it counts among the bytes on their way: of each large object one part is.
    bytes: u64,
    /// Of the whole object, once that is known.
    size: u64,
    since: Mono,
}

#[derive(Debug)]
enum Leg {
    /// To us.
    Pull { from: OsdId },
    /// Whole here, and not yet on our disk.
    Landing,
    /// To those who lack it, each with the number of the push that counts.
    Push(BTreeMap<OsdId, u64>),
}

impl Recovery {
    /// A copy has taken over the log; this is what it lacks.
    pub fn note_missing(&mut self, osd: OsdId, missing: Vec<(HObject, EVersion)>) {
        self.peers.insert(osd, missing.into_iter().collect());
    }

    /// A copy has to be filled from here on.
    pub fn note_backfill(&mut self, osd: OsdId, cursor: HObject, objects: i64) {
        self.backfills.insert(osd, Backfill::new(cursor, objects));
    }

    /// A copy has to be filled from the beginning, and was sent the log: nobody waits for it to take that over.
    pub fn note_merging(&mut self, osd: OsdId) {
        self.note_missing(osd, Vec::new());
        self.backfills.insert(osd, Backfill::merging());
    }

    /// True if a copy has yet to say that it has taken over the log, while others go on.
    pub fn is_merging(&self, osd: OsdId) -> bool {
        self.backfills.get(&osd).is_some_and(Backfill::is_merging)
    }

    /// A copy that is being filled lacks these, and will say so of itself.
    pub fn note_lacking(&mut self, osd: OsdId, differ: Vec<(HObject, EVersion)>) {
        self.peers.entry(osd).or_default().extend(differ);
    }

    /// An object is about to be written: these copies are not filled so far, and get the log entry only.
    pub fn note_write(&mut self, object: &HObject, objects: i64) -> BTreeSet<OsdId> {
        let mut behind = BTreeSet::new();
        for (osd, backfill) in &mut self.backfills {
            match *object < backfill.cursor {
                true => backfill.objects += objects,
                false => drop(behind.insert(*osd)),
            }
        }
        behind
    }

    /// An object can be moved from now on.
    pub fn is_to_move(&mut self, object: HObject) {
        if self.flights.contains_key(&object) {
            return;
        }
        if self.waiting.contains_key(&object) {
            self.urgent.push_back(object.clone());
        }
        self.todo.insert(object);
    }

    /// Copies that may have an object as it should be: acting ones that have, then whoever else may.
    pub fn givers_of<'a>(&'a self, object: &'a HObject) -> impl Iterator<Item = OsdId> + 'a {
        let refused = move |osd: &OsdId| self.refused.get(object).is_some_and(|by| by.contains(osd));
        let acting = self.peers.keys().filter(move |osd| self.is_whole_at(**osd, object));
        let others = self.holders.iter().filter(move |osd| !self.is_whole_at(**osd, object));
        acting.chain(others).filter(move |osd| !refused(osd)).copied()
    }

    /// Somebody did not have an object that it was to have.
    pub fn note_failed(&mut self, osd: OsdId, object: &HObject, version: EVersion) {
        match self.is_whole_at(osd, object) {
            true => self.also_lacks(osd, vec![(object.clone(), version)]),
            false => drop(self.refused.entry(object.clone()).or_default().insert(osd)),
        }
    }

    /// A copy turns out to lack these as well.
    pub fn also_lacks(&mut self, osd: OsdId, objects: Vec<(HObject, EVersion)>) {
        self.todo.extend(objects.iter().map(|(object, _)| object.clone()));
        self.peers.entry(osd).or_default().extend(objects);
        self.done = false;
    }

    /// An OSD outside the acting set has a copy.
    pub fn note_holder(&mut self, osd: OsdId) {
        self.holders.insert(osd);
    }

    /// Peering begins anew in the same interval.
    pub fn restart(&mut self) {
        *self = Recovery { holders: std::mem::take(&mut self.holders), ..Recovery::default() };
    }

    /// Objects on their way.
    pub fn is_waited_for(&self, object: &HObject) -> bool {
        self.waiting.contains_key(object)
    }

    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// True if copying objects follows from a scan.
    pub fn is_backfill(&self) -> bool {
        !self.by_log && !self.backfills.is_empty()
    }

    pub fn unfound(&self) -> &BTreeSet<HObject> {
        &self.unfound
    }

    /// Objects that some copy lacks.
    pub fn lacking(&self, here: &BTreeMap<HObject, EVersion>) -> usize {
        here.keys().chain(self.peers.values().flat_map(BTreeMap::keys)).collect::<BTreeSet<_>>().len()
    }

    /// Where it stands, for operators.
    pub fn summary(&self) -> String {
        let lacking: BTreeMap<i32, usize> = self.peers.iter().map(|(osd, m)| (osd.0, m.len())).collect();
        format!(
            "others lack {lacking:?}, backfills {:?}, {} to move, {} held, {} on their way, {} unfound, {} waited for, no room for {}, outside {:?}",
            self.backfills.iter().map(|(osd, b)| (osd.0, b)).collect::<Vec<_>>(),
            self.todo.len(),
            self.held.len(),
            self.flights.len(),
            self.unfound.len(),
            self.waiting.len(),
            self.no_room.len(),
            self.holders.iter().map(|o| o.0).collect::<Vec<_>>()
        )
    }

    /// True if a write to this object goes to a copy as its log entry only.
    pub fn is_behind(&self, osd: OsdId, object: &HObject) -> bool {
        self.backfills.get(&osd).is_some_and(|b| *object >= b.cursor)
    }

    /// True if there is something to be started besides what clients wait for.
    pub fn has_more(&self) -> bool {
        let open = |(osd, b): (&OsdId, &Backfill)| self.is_its_turn(*osd) && !b.is_done() && !self.backfill_full.contains(osd);
        !self.todo.is_empty() || self.backfills.iter().any(open)
    }

    /// True if a copy may be looked at behind its cursor: what logs told of has been moved, or waits for the room that is there.
    fn is_its_turn(&self, osd: OsdId) -> bool {
        !self.by_log || self.full.contains(&osd)
    }

    /// Copies that something is to be brought to.
    pub fn receivers(&self) -> BTreeSet<OsdId> {
        let lacking = self.peers.iter().filter(|(_, m)| !m.is_empty()).map(|(osd, _)| *osd);
        let filled = self.backfills.iter().filter(|(_, b)| !self.by_log && !b.is_done()).map(|(osd, _)| *osd);
        lacking.chain(filled).collect()
    }

    /// True if nothing more can be done before somebody has room.
    pub fn waits_for_space(&self) -> bool {
        self.flights.is_empty() && self.todo.is_empty() && !(self.full.is_empty() && self.backfill_full.is_empty())
    }

    /// What is known of an OSD being too full to be filled does not count any more.
    pub fn look_again(&mut self, osd: OsdId) {
        self.backfill_full.remove(&osd);
    }

    /// Whoever lacks an object has no room for it.
    fn note_no_room(&mut self, object: HObject, full: impl IntoIterator<Item = OsdId>) {
        self.no_room.insert(object);
        self.full.extend(full);
    }

    /// True if nothing can be done before somebody shows up.
    pub fn is_stuck(&self) -> bool {
        let filled = self.backfills.values().all(Backfill::is_done);
        !self.done && !self.unfound.is_empty() && self.flights.is_empty() && self.todo.is_empty() && self.no_room.is_empty() && filled
    }

    /// Copies of objects that acting OSDs lack, ours aside.
    pub fn missing_copies(&self) -> usize {
        self.peers.values().map(BTreeMap::len).sum()
    }

    /// How many objects a copy is known to lack.
    pub fn lacks(&self, osd: OsdId) -> usize {
        self.peers.get(&osd).map_or(0, BTreeMap::len)
    }

    /// What is on its way, in upstream's shape (PrimaryLogPG::dump_recovery_info), objects by name only.
    pub fn progress(&self, is_coded: bool) -> Value {
        let names = |objects: Vec<&HObject>| objects.into_iter().map(HObject::to_string).collect::<Vec<_>>();
        let mut pulls: BTreeMap<OsdId, Vec<&HObject>> = BTreeMap::new();
        let (mut pushes, mut ops) = (Vec::new(), Vec::new());
        for (object, flight) in &self.flights {
            let mut waits_for = Vec::new();
            match &flight.leg {
                Leg::Pull { from } => pulls.entry(*from).or_default().push(object),
                Leg::Landing => {}
                Leg::Push(to) => {
                    waits_for = to.keys().map(OsdId::to_string).collect();
                    let to: Vec<Value> = waits_for.iter().map(|osd| json!({"pushing_to": osd})).collect();
                    pushes.push(json!({"pushing": object.to_string(), "pushing_to": to}));
                }
            }
            ops.push(json!({"hoid": object.to_string(), "waiting_on_pushes": waits_for}));
        }
        let pulled = |(from, objects): (OsdId, Vec<&HObject>)| json!({"pull_from": from.to_string(), "pulls": names(objects)});
        let backend = match is_coded {
            true => json!({"recovery_ops": ops, "read_ops": []}),
            false => json!({"pull_from_peer": pulls.into_iter().map(pulled).collect::<Vec<_>>(), "pushing": pushes}),
        };
        let filled = self.backfills.iter().filter(|(_, b)| !b.cursor.max);
        let behind = filled.clone().map(|(_, b)| &b.cursor).min();
        let interval = |begin: &HObject| json!({"begin": begin.to_string(), "end": HObject::max().to_string(), "objects": []});
        let moving = |object: &&HObject| behind.is_some_and(|cursor| *object >= cursor);
        json!({
            "backfill_targets": self.backfills.keys().map(OsdId::to_string).collect::<Vec<_>>(),
            "waiting_on_backfill": [],
            "last_backfill_started": behind.map_or_else(|| HObject::min().to_string(), HObject::to_string),
            "backfill_info": behind.map_or_else(|| json!({"begin": "MIN", "end": "MIN", "objects": []}), interval),
            "peer_backfill_info": filled.flat_map(|(osd, b)| [osd.to_string().into(), interval(&b.cursor)]).collect::<Vec<Value>>(),
            "backfills_in_flight": names(self.flights.keys().filter(moving).collect()),
            "recovering": names(self.flights.keys().collect()),
            "pg_backend": backend,
        })
    }

    /// The oldest of the versions that a copy lacks.
    pub fn oldest_lacked(&self, osd: OsdId) -> Option<EVersion> {
        self.peers.get(&osd).and_then(|lacks| lacks.values().min().copied())
    }

    /// True if a copy has this object as it should be.
    pub fn is_whole_at(&self, osd: OsdId, object: &HObject) -> bool {
        self.peers.get(&osd).is_some_and(|m| !m.contains_key(object))
            && self.backfills.get(&osd).is_none_or(|b| *object < b.cursor)
    }

    /// Whether this operation waits for an object, be it a clone.
    pub fn is_waited_for_by(&self, op: &ClientOp) -> bool {
        self.waiting.values().any(|ids| ids.contains(&op.id))
    }

    /// Objects that were to be pulled from `osd`, or are being pushed there.
    fn flights_with(&self, osd: OsdId) -> Vec<HObject> {
        let with = |f: &Flight| match &f.leg {
            Leg::Pull { from } => *from == osd,
            Leg::Landing => false,
            Leg::Push(to) => to.contains_key(&osd),
        };
        self.flights.iter().filter(|(_, f)| with(f)).map(|(o, _)| o.clone()).collect()
    }

    /// The next object to move: one that clients wait for if there is, any other if there is room.
    fn next(&mut self, room: bool, others_max: usize) -> Option<HObject> {
        while self.flights.len() < others_max + URGENT_WINDOW && let Some(object) = self.urgent.pop_front() {
            if self.todo.remove(&object) {
                return Some(object);
            }
        }
        room.then(|| self.todo.pop_first()).flatten()
    }

    /// True if `from` is to give us this object.
    pub fn expects(&self, object: &HObject, from: OsdId) -> bool {
        matches!(self.leg(object), Some(Leg::Pull { from: asked }) if *asked == from)
    }

    /// The last part of a pulled object came.
    pub fn landed(&mut self, object: &HObject, size: u64) {
        if let Some(flight) = self.flights.get_mut(object) {
            (flight.leg, flight.size) = (Leg::Landing, size);
        }
    }

    fn leg(&self, object: &HObject) -> Option<&Leg> {
        self.flights.get(object).map(|f| &f.leg)
    }

    /// The copies an object is on its way to, each with the push that counts.
    fn pushes_of(&mut self, object: &HObject) -> Option<&mut BTreeMap<OsdId, u64>> {
        match self.flights.get_mut(object) {
            Some(Flight { leg: Leg::Push(to), .. }) => Some(to),
            _ => None,
        }
    }
}

/// Whose turn it is with an object, of so many.
pub(super) fn turn_of(object: &HObject, of: usize) -> usize {
    // The low bits are the PG's.
    object.hash.reverse_bits() as usize % of
}

impl Pg {
    /// Objects of its are on their way, or would be if the OSD had room for more.
    pub fn is_moving(&self) -> bool {
        !self.recovery.flights.is_empty() || self.waits_to_recover()
    }

    /// True if there is more to move than the OSD had room for.
    pub fn waits_to_recover(&self) -> bool {
        self.recovery.waits_for_room
    }

    /// The PG is active: what is missing anywhere is to move.
    pub(super) fn start_recovery(&mut self, cx: &mut Cx<'_>) {
        let r = &mut self.recovery;
        r.holders.retain(|osd| cx.sh.map.is_up(*osd));
        r.by_log = true;
        r.todo = self.missing.keys().chain(r.peers.values().flat_map(BTreeMap::keys)).cloned().collect();
        if !r.todo.is_empty() {
            tracing::debug!(osd = %cx.sh.whoami, pg = %self.id, here = self.missing.len(), elsewhere = r.missing_copies(), "recovery starts");
        }
        self.recover(cx);
    }

    /// Moves what may be moved now.
    pub fn recover(&mut self, cx: &mut Cx<'_>) {
        if self.recovery.done || !matches!(self.stage, Stage::Active) {
            return;
        }
        let may = !self.is_forbidden(cx);
        self.settle_slots(cx, may);
        while let Some(object) = self.recovery.next(self.slots.are_held() && cx.sh.recovery_has_room(cx.now.mono), cx.sh.recovery_max_alone) {
            self.recover_object(cx, object);
        }
        let r = &mut self.recovery;
        r.by_log &= !r.todo.is_empty() || !r.held.is_empty() || !r.flights.is_empty() || !r.no_room.is_empty();
        r.waits_for_room = !r.todo.is_empty() && self.slots.are_held();
        // From here on it may be backfill, or nothing that could be started.
        let may = !self.is_forbidden(cx);
        self.settle_slots(cx, may);
        let r = &self.recovery;
        if r.todo.len() < cx.sh.scan_min && self.slots.are_held() {
            let ready = r.backfills.iter().filter(|(osd, b)| r.is_its_turn(**osd) && b.is_ready());
            let (full, ready): (Vec<OsdId>, Vec<OsdId>) = ready.map(|(osd, _)| *osd).partition(|osd| r.by_log || cx.is_backfill_full(*osd));
            for osd in full {
                if !self.sift(cx, osd) {
                    self.recovery.backfill_full.insert(osd);
                }
            }
            for osd in ready {
                self.next_page(cx, osd);
            }
            // Who waits for room keeps nobody waiting: others may be those who give it back.
            self.settle_slots(cx, may);
        }
        let r = &mut self.recovery;
        let whole = self.missing.is_empty() && r.peers.values().all(BTreeMap::is_empty) && r.backfills.values().all(Backfill::is_done);
        r.whole = whole && r.flights.is_empty() && r.losing.is_empty();
        if !r.whole {
            return self.ask_for_unfound(cx);
        }
        self.repops.wait_for_all();
        if !self.repops.is_anybody_behind() {
            self.recovery.done = true;
            self.recovered(cx);
        }
    }

    /// True if an operator's flags stop what is being done now: `norecover` stops backfills, too (upstream: OSDService::_recover_now).
    fn is_forbidden(&self, cx: &Cx<'_>) -> bool {
        let more = match self.recovery.is_backfill() {
            true if !self.is_degraded() => OsdMap::FLAG_NOBACKFILL | OsdMap::FLAG_NOREBALANCE,
            true => OsdMap::FLAG_NOBACKFILL,
            false => 0,
        };
        cx.sh.map.flags & (OsdMap::FLAG_NORECOVER | more) != 0
    }

    /// True if the PG has fewer whole copies than it should, not only copies in the wrong places.
    pub(super) fn is_degraded(&self) -> bool {
        let m = &self.walk.mapping;
        m.acting.len() < usize::from(m.size) || self.lacks_objects()
    }

    /// True if an acting copy is not whole.
    pub(super) fn lacks_objects(&self) -> bool {
        !self.missing.is_empty() || self.walk.mapping.acting.iter().any(|o| self.recovery.lacks(*o) > 0)
    }

    fn recover_object(&mut self, cx: &mut Cx<'_>, object: HObject) {
        let round = self.round();
        if self.recovery.is_being_lost(&object) {
            // It moves, or need not, when that is durable.
            return;
        }
        if self.queue.last_write(&object).is_some() {
            self.recovery.held.insert(object);
            return;
        }
        if self.is_short_of_shards(cx.sh.whoami, &object) {
            tracing::warn!(osd = %cx.sh.whoami, pg = %self.id, object = ?object.name, "too few shards are left");
            self.recovery.unfound.insert(object);
            return;
        }
        if let Some(version) = self.missing.get(&object).copied() {
            let Some(from) = self.source_of(&object) else {
                tracing::warn!(osd = %cx.sh.whoami, pg = %self.id, object = ?object.name, %version, "nobody has it");
                self.recovery.unfound.insert(object);
                return;
            };
            if cx.is_failsafe_full(cx.sh.whoami) {
                self.give_room(cx, vec![object.clone()]);
                return self.recovery.note_no_room(object, [cx.sh.whoami]);
            }
            if self.is_coded() {
                return self.rebuild(cx, object, version);
            }
            cx.sh.perf.pull_sent();
            cx.send_pg(from, self.id, round, PgBody::Pull { object: object.clone(), version }, Durable::Now);
            let bytes = self.usual_size();
            return self.take_off(cx, object, Flight { leg: Leg::Pull { from }, bytes, size: 0, since: cx.now.mono });
        }
        let lacks = |m: &BTreeMap<HObject, EVersion>| m.get(&object).is_some_and(|v| *v != EVersion::default());
        let lacking = self.recovery.peers.iter().filter(|(_, m)| lacks(m));
        let (full, lacking): (Vec<OsdId>, Vec<OsdId>) = lacking.map(|(osd, _)| *osd).partition(|osd| cx.is_failsafe_full(*osd));
        if lacking.is_empty() && !full.is_empty() {
            // What they have of it is old, and its room as good as what they lack: two copies may need each other's.
            for osd in &full {
                cx.send_pg(*osd, self.id, round, PgBody::MakeRoom { objects: vec![object.clone()] }, Durable::Now);
            }
            return self.recovery.note_no_room(object, full);
        }
        let (mut pushes, mut bytes, mut size) = (BTreeMap::new(), 0, 0);
        for osd in lacking {
            match self.start_push(cx, osd, round, object.clone()) {
                Ok((push, of)) => {
                    pushes.insert(osd, push);
                    (size, bytes) = (of, bytes + of.min(PART_BYTES));
                }
                Err(_) => return self.own_copy_unreadable(cx, object),
            };
        }
        if !pushes.is_empty() {
            self.take_off(cx, object, Flight { leg: Leg::Push(pushes), bytes, size, since: cx.now.mono });
        }
    }

    /// How large objects of this PG are: that of one we lack is not known.
    fn usual_size(&self) -> u64 {
        let mean = (self.totals.bytes / self.totals.objects.max(1)).max(0) as u64;
        mean.min(PART_BYTES)
    }

    /// Who may give us an object: an acting copy that has it, else whoever else may. All of them that have it give their part: one disk
    /// would have all the work, and its own besides.
    fn source_of(&self, object: &HObject) -> Option<OsdId> {
        let givers: Vec<OsdId> = self.recovery.givers_of(object).collect();
        // Acting ones come first; where there are none, all others are alike.
        let acting = givers.iter().filter(|osd| self.recovery.is_whole_at(**osd, object)).count();
        let equal = if acting > 0 { acting } else { givers.len() };
        (equal > 0).then(|| givers[turn_of(object, equal)])
    }

    /// Computes our shard of an object out of others. What describes it comes first.
    fn rebuild(&mut self, cx: &mut Cx<'_>, object: HObject, version: EVersion) {
        let (from, bytes) = (cx.sh.whoami, self.usual_size());
        self.take_off(cx, object.clone(), Flight { leg: Leg::Pull { from }, bytes, size: 0, since: cx.now.mono });
        let (read, what) = (cx.next_read(), ReadFor::Rebuild { object: object.clone() });
        self.gather(cx, read, Ask { object, version, want: Want::Attrs, class: Class::Recovery, what });
    }

    /// An object that we lack is described: it is pushed to ourselves.
    pub(super) fn rebuild_described(&mut self, cx: &mut Cx<'_>, object: HObject, attrs: Vec<(BString, Bytes)>) {
        let me = cx.sh.whoami;
        if self.recovery.expects(&object, me) && self.push_described(cx, me, self.round(), object.clone(), attrs).is_err() {
            self.rebuild_failed(cx, object);
        }
    }

    /// Nobody can describe an object that we lack.
    pub(super) fn rebuild_failed(&mut self, cx: &mut Cx<'_>, object: HObject) {
        if self.recovery.expects(&object, cx.sh.whoami) {
            self.move_again(cx, object);
            self.recover(cx);
        }
    }

    fn take_off(&mut self, cx: &mut Cx<'_>, object: HObject, flight: Flight) {
        cx.sh.recovery_takes_off(flight.bytes);
        if let Some(old) = self.recovery.flights.insert(object, flight) {
            cx.sh.recovery_lands(old.bytes);
        }
    }

    fn touch_down(&mut self, cx: &mut Cx<'_>, object: &HObject) {
        if let Some(flight) = self.recovery.flights.remove(object) {
            let parts = flight.size.div_ceil(PART_BYTES).max(1) as u32;
            cx.sh.recovery_arrived(cx.now.mono, flight.since, parts);
            cx.sh.recovery_lands(flight.bytes);
        }
    }

    /// The interval is over.
    pub(super) fn drop_recovery(&mut self, cx: &mut Cx<'_>) -> Vec<ClientOp> {
        let old = std::mem::take(&mut self.recovery);
        cx.fx.extend(old.marking_interrupted());
        for flight in old.flights.values() {
            cx.sh.recovery_lands(flight.bytes);
        }
        old.listings
    }

    /// An object has to move again.
    pub(super) fn move_again(&mut self, cx: &mut Cx<'_>, object: HObject) {
        self.touch_down(cx, &object);
        if self.recovery.waiting.contains_key(&object) {
            self.recovery.urgent.push_back(object.clone());
        }
        self.recovery.todo.insert(object);
    }

    /// An object on its way has arrived somewhere.
    fn note_copied(&mut self, object: &HObject) {
        let size = self.recovery.flights.get(object).map_or(0, |f| f.size);
        self.figures.sums.num_objects_recovered += 1;
        self.figures.sums.num_bytes_recovered += size as i64;
    }

    /// Objects we lacked are whole on our disk.
    pub(super) fn self_recovered(&mut self, cx: &mut Cx<'_>, objects: &[HObject]) {
        for object in objects {
            self.one_recovered(cx, object);
        }
        self.list_if_whole(cx);
        self.recover(cx);
    }

    /// Listings that look into objects go on when we have all of them.
    fn list_if_whole(&mut self, cx: &mut Cx<'_>) {
        if self.missing.is_empty() && !self.recovery.flights.values().any(|f| matches!(f.leg, Leg::Landing)) {
            for op in std::mem::take(&mut self.recovery.listings) {
                self.run_listing(cx, op);
            }
        }
    }

    fn one_recovered(&mut self, cx: &mut Cx<'_>, object: &HObject) {
        if !matches!(self.recovery.leg(object), Some(Leg::Landing)) {
            return;
        }
        self.note_copied(object);
        self.touch_down(cx, object);
        self.recovery.refused.remove(object);
        self.note_repaired(cx, object);
        if self.recovery.peers.values().any(|m| m.contains_key(object)) {
            self.move_again(cx, object.clone());
        }
        self.wake_waiting_for(cx, object);
    }

    /// A copy has objects it lacked.
    pub(super) fn handle_pushed(&mut self, cx: &mut Cx<'_>, from: OsdId, pushed: &[(HObject, u64)]) {
        for (object, push) in pushed {
            self.one_pushed(cx, from, object, *push);
        }
        self.recover(cx);
    }

    fn one_pushed(&mut self, cx: &mut Cx<'_>, from: OsdId, object: &HObject, push: u64) {
        let Some(to) = self.recovery.pushes_of(object) else { return };
        if to.get(&from) != Some(&push) {
            return;
        }
        to.remove(&from);
        let landed = to.is_empty();
        // It may say so before the last part: it had the object.
        self.drop_push(from, object);
        if let Some(missing) = self.recovery.peers.get_mut(&from) {
            missing.remove(object);
        }
        self.note_copied(object);
        if landed {
            self.touch_down(cx, object);
            if self.recovery.peers.values().any(|m| m.contains_key(object)) {
                self.move_again(cx, object.clone());
            }
            self.wake_waiting_for(cx, object);
        }
    }

    /// A copy has no room for an object.
    pub(super) fn handle_too_full(&mut self, cx: &mut Cx<'_>, from: OsdId, object: HObject, push: u64) {
        cx.sh.spaces.note_full(from);
        let Some(to) = self.recovery.pushes_of(&object) else { return };
        if to.get(&from) != Some(&push) {
            return;
        }
        to.remove(&from);
        let over = to.is_empty();
        self.drop_push(from, &object);
        if over {
            self.move_again(cx, object);
            self.recover(cx);
        }
    }

    /// We have no room for an object that we asked for.
    pub(super) fn no_room_for_pull(&mut self, cx: &mut Cx<'_>, object: HObject) {
        self.touch_down(cx, &object);
        self.recovery.note_no_room(object, [cx.sh.whoami]);
        self.recover(cx);
    }

    /// Goes on if somebody who was too full is not any more.
    pub(super) fn recover_into_space(&mut self, cx: &mut Cx<'_>) {
        let r = &mut self.recovery;
        let room = r.full.iter().any(|osd| !cx.is_failsafe_full(*osd)) || r.backfill_full.iter().any(|osd| !cx.is_backfill_full(*osd));
        if !room || !matches!(self.stage, Stage::Active) {
            return;
        }
        (r.full, r.backfill_full) = Default::default();
        for object in std::mem::take(&mut r.no_room) {
            r.is_to_move(object);
        }
        self.recover(cx);
    }

    /// Whoever we asked for an object cannot give it.
    pub(super) fn handle_pull_failed(&mut self, cx: &mut Cx<'_>, from: OsdId, object: HObject) {
        if !self.recovery.expects(&object, from) {
            return;
        }
        let covered = self.recovery.backfills.get(&from).is_none_or(|b| object < b.cursor);
        if let (true, Some(lacks), Some(version)) = (covered, self.recovery.peers.get_mut(&from), self.missing.get(&object)) {
            // It has marked it as missing, too.
            lacks.insert(object.clone(), *version);
        }
        self.recovery.refused.entry(object.clone()).or_default().insert(from);
        self.move_again(cx, object);
        self.recover(cx);
    }

    /// What we were to push we cannot read: from now on we lack it, and it is looked for elsewhere.
    pub(super) fn own_copy_unreadable(&mut self, cx: &mut Cx<'_>, object: HObject) {
        let wanted = self.recovery.peers.values().filter_map(|m| m.get(&object)).find(|v| **v != EVersion::default()).copied();
        let Some(version) = wanted else { return };
        cx.clog(LogPrio::ERROR, format!("{}: {object} cannot be read here to be copied: another copy is looked for", self.id));
        self.lose_own_copy(cx, object, version);
    }

    /// From now on we lack an object that we had, and recovery goes on, or begins anew.
    pub(super) fn lose_own_copy(&mut self, cx: &mut Cx<'_>, object: HObject, version: EVersion) {
        self.drop_pushes(&object);
        self.disturb_scrub(&object);
        let mut txn = self.transaction();
        self.add_missing(&mut txn, object.clone(), version);
        cx.submit(txn);
        // Whoever is reading it would read while it is replaced.
        let readers = self.running.values_mut().filter(|r| r.object == object && !r.reads.is_empty());
        for running in readers {
            running.reads.clear();
            running.op.fetched = Default::default();
            self.recovery.waiting.entry(object.clone()).or_default().push(running.op.id);
        }
        self.recovery.done = false;
        self.move_again(cx, object);
    }

    /// An OSD outside the acting set offers its copy.
    pub(super) fn handle_holder(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        self.recovery.note_holder(osd);
        self.recovery.refused.values_mut().for_each(|by| {
            by.remove(&osd);
        });
        if !matches!(self.stage, Stage::Active) {
            return;
        }
        for object in self.recovery.flights_with(osd) {
            self.move_again(cx, object);
        }
        for object in std::mem::take(&mut self.recovery.unfound) {
            self.move_again(cx, object);
        }
        self.recover(cx);
    }

    /// A new map of the same interval: OSDs outside the acting set may be gone.
    pub(super) fn recovery_map(&mut self, cx: &mut Cx<'_>, old: &OsdMap) {
        let up_from = |map: &OsdMap, osd| map.info(osd).map(|i| i.up_from);
        let stays = |osd: &OsdId| cx.sh.map.is_up(*osd) && up_from(old, *osd) == up_from(&cx.sh.map, *osd);
        let gone: Vec<OsdId> = self.recovery.holders.iter().filter(|o| !stays(o)).copied().collect();
        self.forget_answers(|osd| !stays(osd));
        for osd in &gone {
            self.recovery.holders.remove(osd);
            for object in self.recovery.flights_with(*osd) {
                self.move_again(cx, object);
            }
        }
        // Flags may have changed, too.
        self.recover(cx);
    }

    /// A copy has removed what nobody should have.
    pub(super) fn no_longer_there(&mut self, cx: &mut Cx<'_>, osd: OsdId, object: &HObject) {
        if let Some(lacking) = self.recovery.peers.get_mut(&osd) {
            lacking.remove(object);
        }
        self.wake_waiting_for(cx, object);
    }

    /// A write is durable everywhere. True if its object can move because of that.
    pub(super) fn release_held(&mut self, object: &HObject) -> bool {
        // Hardly ever is anything held: that is asked first, for every write comes by here.
        if !self.recovery.held.contains(object) || self.queue.last_write(object).is_some() {
            return false;
        }
        self.recovery.held.remove(object);
        self.recovery.is_to_move(object.clone());
        true
    }

    /// The session with another OSD was lost, and what was on its way with it.
    pub(super) fn recovery_reset(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        self.drop_pushes_to(osd);
        for object in self.recovery.flights_with(osd) {
            self.drop_pushes(&object);
            self.move_again(cx, object);
        }
        self.forget_answers(|o| *o == osd);
        self.ask_older(cx, |o| *o == osd);
        self.recover(cx);
    }

    /// True if an operation has to wait: our copy of its object is not whole, or another one is not that it changes.
    pub(super) fn must_recover(&self, whoami: OsdId, object: &HObject, access: Access) -> bool {
        if self.recovery.done {
            return false;
        }
        let landing = || matches!(self.recovery.leg(object), Some(Leg::Landing));
        let degraded = || self.recovery.peers.values().any(|m| m.contains_key(object));
        let short = || self.is_short_of_shards(whoami, object);
        self.missing.contains_key(object) || landing() || self.recovery.is_being_lost(object) || access.writes && degraded() || short()
    }

    /// An operation waits for its object or a clone of it, which moves before all others.
    pub(super) fn wait_for_recovery(&mut self, cx: &mut Cx<'_>, mut op: ClientOp, object: HObject) {
        op.fetched = Default::default();
        op.waited = true;
        let waiting = self.recovery.waiting.entry(object.clone()).or_default();
        waiting.push(op.id);
        if waiting.len() == 1 {
            self.recovery.urgent.push_back(object);
        }
        self.park(op);
        self.recover(cx);
    }

    fn wake_waiting_for(&mut self, cx: &mut Cx<'_>, object: &HObject) {
        for id in self.recovery.waiting.remove(object).unwrap_or_default() {
            self.resume(cx, id);
        }
    }
}
