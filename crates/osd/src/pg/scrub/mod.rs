//! Scrub: the copies of a PG are compared, part by part, and what is bad is told, and repaired if that is wanted.
//!
//! Room: osd core.   Owns: `Scrubs`, one per PG; the primary drives.   Hears: requests, time, descriptions of copies.
//! Holds: while a part is compared nobody writes to its objects, and writes to them from before are durable everywhere; so
//! all copies show one moment. A scrub begins and goes on only while no copy lacks anything: whatever a client's read
//! finds and repairs meanwhile has the part compared anew. A bad copy is given up only while a right one is at hand, and
//! its OSD has noted that on its disk before it is brought another: recovery does the rest, as for any missing object.
//! Why no preemption: a part of a deep scrub is a few MiB, so that a write waits a fraction of a second at most.
//! Upstream: src/osd/scrubber/, doc/dev/osd_internals/scrub.rst.

mod compare;
mod map;
mod report;
mod schedule;
mod snapsets;

pub(super) use map::Chunk;
pub(crate) use schedule::{NextScrub, ScrubOptions};

use super::{ClientOp, Pg, Stage};
use crate::effects::{Cx, Durable, ReadResult};
use crate::ops::{Access, pg_range};
use crate::snaps::are_of_one;
use compare::Inconsistent;
use map::Build;
use schedule::Schedule;
use snapsets::BadSnapSet;
use std::collections::{BTreeMap, BTreeSet};
use store::ReadId;
use types::msg::LogPrio;
use types::msg::internal_osd::{PgBody, Round, ScrubHistory, ScrubObject};
use types::pg::PgState;
use types::{EVersion, Errno, HObject, Mono, OsdId, Snap};

/// Bytes of objects that a deep scrub compares at a time: writes to them wait that long.
const CHUNK_BYTES: u64 = 8 << 20;
/// Objects with errors that are remembered per PG; all of them are counted.
const KEPT_MAX: usize = 10_000;

/// Everything about scrubs of a PG, here.
#[derive(Debug, Default)]
pub(super) struct Scrubs {
    /// Asked for, and not begun.
    wanted: Option<Wanted>,
    run: Option<Run>,
    build: Option<Build>,
    /// The primary may count on us: one of our `osd_max_scrubs` is its.
    reserved: bool,
    /// What the last scrub found, while we are the primary.
    found: Option<BTreeMap<HObject, Inconsistent>>,
    /// The same of objects and their clones.
    bad_sets: BTreeMap<HObject, BadSnapSet>,
    /// A repair left errors.
    repair_failed: bool,
    schedule: Schedule,
    /// Something that operators wait for has changed.
    pub news: bool,
}

/// What kind of scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Wanted {
    pub deep: bool,
    pub repair: bool,
    /// An operator wants it, or a repair that has to be looked at: neither hour nor flags matter.
    pub requested: bool,
    /// After a repair: are the errors gone?
    pub verifies: bool,
}

impl Wanted {
    /// The command that starts it.
    fn name(self) -> &'static str {
        match (self.repair, self.deep) {
            (true, _) => "repair",
            (_, true) => "deep-scrub",
            _ => "scrub",
        }
    }

    fn and(self, o: Wanted) -> Wanted {
        Wanted {
            deep: self.deep || o.deep,
            repair: self.repair || o.repair,
            requested: self.requested || o.requested,
            verifies: self.verifies || o.verifies,
        }
    }
}

/// A scrub under way, on its primary.
#[derive(Debug)]
struct Run {
    wanted: Wanted,
    /// What was read and right in so many seconds need not be read again.
    trust_s: u32,
    /// Names this run in reservations.
    number: u64,
    /// Names the part that is compared now.
    scrub: u64,
    /// Everything before it is compared.
    at: HObject,
    end: HObject,
    /// The part whose objects nobody may write to.
    chunk: Option<(HObject, HObject)>,
    step: Step,
    /// Operations that wait for it.
    blocked: Vec<u64>,
    maps: BTreeMap<OsdId, Vec<ScrubObject>>,
    /// An object in the part is being replaced: what was seen of it counts for nothing.
    disturbed: bool,
    /// What of ours turned out bad in this part, and is right elsewhere.
    own_bad: Vec<(HObject, EVersion)>,
    found: BTreeMap<HObject, Inconsistent>,
    bad_sets: BTreeMap<HObject, BadSnapSet>,
    shallow: u32,
    deep: u32,
    fixed_shallow: u32,
    fixed_deep: u32,
}

impl Run {
    /// True for an object of the part that is compared now.
    fn compares(&self, object: &HObject) -> bool {
        self.chunk.as_ref().is_some_and(|(begin, end)| begin <= object && object < end)
    }
}

#[derive(Debug)]
enum Step {
    /// Every copy's OSD has to agree; these have not answered.
    Reserve { waiting_for: BTreeSet<OsdId> },
    /// Between two parts.
    Next,
    /// Writes from before are on their way.
    Drain,
    /// Copies are being described.
    Maps,
    /// These were told that copies of theirs are bad, and have not noted it.
    Distrust { waiting_for: BTreeMap<OsdId, Vec<(HObject, EVersion)>> },
    /// Others have a turn.
    Yield { read: ReadId },
    /// `osd_scrub_sleep`.
    Sleep { until: Mono },
}

impl Pg {
    /// An operator, or a repair, wants a scrub as soon as the PG is clean.
    pub fn request_scrub(&mut self, wanted: Wanted) {
        let wanted = self.scrubs.wanted.map_or(wanted, |w| w.and(wanted));
        self.scrubs.wanted = Some(wanted);
        self.scrubs.schedule.look_now();
    }

    /// Time passes.
    pub(super) fn scrub_tick(&mut self, cx: &mut Cx<'_>) {
        if let Some(run) = &mut self.scrubs.run {
            if matches!(run.step, Step::Sleep { until } if until <= cx.now.mono) {
                run.step = Step::Next;
            }
            return;
        }
        if !self.scrubs.schedule.is_time_to_look(cx.now.mono) || !self.is_clean() {
            return;
        }
        if let Some(wanted) = self.scrubs.wanted.or_else(|| self.due_scrub(cx)) {
            self.start_scrub(cx, wanted);
        }
    }

    fn start_scrub(&mut self, cx: &mut Cx<'_>, wanted: Wanted) {
        if !cx.sh.take_scrub_slot() {
            return;
        }
        self.scrubs.wanted = None;
        let number = next_number(cx);
        let (at, end) = pg_range(self.id, self.walk.mapping.bits);
        let waiting_for: BTreeSet<OsdId> = self.replicas(cx.sh.whoami).collect();
        for osd in &waiting_for {
            cx.send_pg(*osd, self.id, self.round(), PgBody::ScrubReserve { scrub: number }, Durable::Now);
        }
        self.scrubs.run = Some(Run {
            wanted,
            trust_s: self.scrub_trust(cx, wanted),
            number,
            scrub: 0,
            at,
            end,
            chunk: None,
            step: Step::Reserve { waiting_for },
            blocked: Vec::new(),
            maps: BTreeMap::new(),
            disturbed: false,
            own_bad: Vec::new(),
            found: BTreeMap::new(),
            bad_sets: BTreeMap::new(),
            shallow: 0,
            deep: 0,
            fixed_shallow: 0,
            fixed_deep: 0,
        });
    }

    /// Goes on as far as it can. True if operations that waited run again.
    pub(super) fn drive_scrub(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut woken = false;
        loop {
            let Some(run) = &mut self.scrubs.run else { return woken };
            let goes_on = match &run.step {
                Step::Reserve { waiting_for } if waiting_for.is_empty() => {
                    run.step = Step::Next;
                    self.scrubs.news = true;
                    cx.clog(LogPrio::DEBUG, format!("{} {} starts", self.id, run.wanted.name()));
                    true
                }
                Step::Next if self.recovery.done => self.next_chunk(cx),
                Step::Drain => self.begin_chunk(cx),
                Step::Maps if run.maps.len() == self.walk.mapping.acting.len() => {
                    woken = true;
                    self.judge_chunk(cx)
                }
                Step::Distrust { waiting_for } if waiting_for.is_empty() => {
                    woken = true;
                    self.repair_chunk(cx)
                }
                _ => false,
            };
            if !goes_on {
                return woken;
            }
        }
    }

    /// Chooses the next part, and keeps writers off it.
    fn next_chunk(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(run) = &mut self.scrubs.run else { return false };
        if run.at >= run.end {
            self.finish_scrub(cx);
            return false;
        }
        let (coll, begin, deep) = (self.coll, run.at.clone(), run.wanted.deep);
        let end = run.end.clone();
        let (objects, mut next) = self.list(cx, &begin, &end, cx.sh.scrub.chunk_max);
        if next <= begin {
            return false;
        }
        let (mut bytes, mut last) = (0, None::<HObject>);
        for object in objects.into_iter().filter(|_| deep) {
            // Clones are compared with their object.
            if bytes >= CHUNK_BYTES && !last.as_ref().is_some_and(|last| are_of_one(last, &object)) {
                next = HObject { snap: Snap(0), ..object };
                break;
            }
            last = Some(object.clone());
            bytes += cx.disk.stat(coll, &object).map_or(0, |s| s.size);
        }
        let Some(run) = &mut self.scrubs.run else { return false };
        run.chunk = Some((begin, next));
        run.disturbed = false;
        run.step = Step::Drain;
        true
    }

    /// With no write on its way, every copy is described.
    fn begin_chunk(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(run) = &mut self.scrubs.run else { return false };
        let Some((begin, end)) = run.chunk.clone() else { return false };
        if self.repops.objects().any(|object| run.compares(object)) {
            return false;
        }
        run.scrub = next_number(cx);
        run.maps.clear();
        run.step = Step::Maps;
        let chunk = Chunk { scrub: run.scrub, begin, end, deep: run.wanted.deep, trust_s: run.trust_s };
        for osd in self.replicas(cx.sh.whoami).collect::<Vec<_>>() {
            self.ask_map(cx, osd, &chunk);
        }
        self.start_build(cx, cx.sh.whoami, self.round(), chunk);
        true
    }

    fn ask_map(&self, cx: &mut Cx<'_>, osd: OsdId, chunk: &Chunk) {
        let Chunk { scrub, begin, end, deep, trust_s } = chunk.clone();
        cx.send_pg(osd, self.id, self.round(), PgBody::Scrub { scrub, begin, end, deep, trust_s }, Durable::Now);
    }

    /// A copy of a part is described.
    pub(super) fn handle_scrub_map(&mut self, cx: &mut Cx<'_>, from: OsdId, scrub: u64, objects: Vec<ScrubObject>) {
        let expected = self.walk.mapping.acting.contains(&from);
        if let Some(run) = self.scrubs.run.as_mut().filter(|r| expected && r.scrub == scrub && matches!(r.step, Step::Maps)) {
            tracing::trace!(osd = %cx.sh.whoami, pg = %self.id, %from, objects = objects.len(), "scrub map");
            run.maps.insert(from, objects);
        }
    }

    /// Compares what all copies hold in a part.
    fn judge_chunk(&mut self, cx: &mut Cx<'_>) -> bool {
        let me = cx.sh.whoami;
        let Some(run) = &mut self.scrubs.run else { return false };
        let maps = std::mem::take(&mut run.maps);
        let striping = cx.sh.striping.get(&self.id.pool).cloned();
        if run.disturbed || !self.recovery.done {
            run.step = Step::Next;
            self.release_chunk(cx);
            return true;
        }
        let mut theirs: BTreeMap<OsdId, Vec<(HObject, EVersion)>> = BTreeMap::new();
        let bad_sets = maps.get(&me).map_or(Vec::new(), |ours| snapsets::check(ours));
        for bad in bad_sets {
            run.shallow += 1;
            cx.clog(LogPrio::ERROR, format!("{} {}", self.id, bad.line()));
            if run.bad_sets.len() < KEPT_MAX {
                run.bad_sets.insert(bad.object.clone(), bad);
            }
        }
        for found in compare::compare(me, maps, striping.as_deref()) {
            (run.shallow, run.deep) = (run.shallow + found.shallow, run.deep + found.deep);
            for line in report::lines(&found) {
                cx.clog(LogPrio::ERROR, format!("{} {line}", self.id));
            }
            if let Some(version) = found.wanted().filter(|_| run.wanted.repair) {
                (run.fixed_shallow, run.fixed_deep) = (run.fixed_shallow + found.shallow, run.fixed_deep + found.deep);
                for osd in &found.bad {
                    let bad = (found.object.clone(), version);
                    if *osd == me { run.own_bad.push(bad) } else { theirs.entry(*osd).or_default().push(bad) }
                }
            }
            if run.found.len() < KEPT_MAX {
                run.found.insert(found.object.clone(), found);
            }
        }
        if theirs.is_empty() && run.own_bad.is_empty() {
            self.end_chunk(cx);
            return false;
        }
        let scrub = run.scrub;
        for (osd, objects) in &theirs {
            let body = PgBody::Distrust { scrub, objects: objects.clone() };
            cx.send_pg(*osd, self.id, self.round(), body, Durable::Now);
        }
        if let Some(run) = &mut self.scrubs.run {
            run.step = Step::Distrust { waiting_for: theirs };
        }
        true
    }

    /// The primary has found copies of ours to be bad: we lack them from now on.
    pub(super) fn handle_distrust(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, scrub: u64, objects: Vec<(HObject, EVersion)>) {
        if !matches!(self.stage, Stage::Follower { active: true }) {
            return;
        }
        let mut txn = self.transaction();
        self.put_meta(&mut txn);
        for (object, version) in objects {
            self.expect_repair(object.clone());
            self.add_missing(&mut txn, object, version);
        }
        let txc = cx.submit(txn);
        cx.send_pg(from, self.id, round, PgBody::Distrusted { scrub }, Durable::After(txc));
    }

    /// A copy is noted as bad on its OSD's disk.
    pub(super) fn handle_distrusted(&mut self, from: OsdId, scrub: u64) {
        let Some(run) = self.scrubs.run.as_mut().filter(|r| r.scrub == scrub) else { return };
        let Step::Distrust { waiting_for } = &mut run.step else { return };
        let Some(objects) = waiting_for.remove(&from) else { return };
        self.figures.sums.num_objects_repaired += objects.len() as i64;
        self.recovery.also_lacks(from, objects);
    }

    /// Whoever has a bad copy has noted it: recovery replaces them.
    fn repair_chunk(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(run) = &mut self.scrubs.run else { return false };
        for (object, version) in std::mem::take(&mut run.own_bad) {
            self.expect_repair(object.clone());
            self.lose_own_copy(cx, object, version);
        }
        self.end_chunk(cx);
        self.recover(cx);
        false
    }

    /// A part is done with. Others come first before the next.
    fn end_chunk(&mut self, cx: &mut Cx<'_>) {
        let Some(run) = &mut self.scrubs.run else { return };
        if let Some((_, end)) = &run.chunk {
            run.at = end.clone();
        }
        let (at, sleep) = (run.at.clone(), cx.sh.scrub.sleep);
        self.release_chunk(cx);
        let step = match sleep.is_zero() {
            true => Step::Yield { read: self.scrub_read(cx, &at, 0, 0, None) },
            false => Step::Sleep { until: cx.now.mono + sleep },
        };
        if let Some(run) = &mut self.scrubs.run {
            run.step = step;
        }
    }

    /// Lets writers at a part again.
    fn release_chunk(&mut self, cx: &mut Cx<'_>) {
        let Some(run) = &mut self.scrubs.run else { return };
        run.chunk = None;
        for id in std::mem::take(&mut run.blocked) {
            self.resume(cx, id);
        }
    }

    /// A read of ours has ended.
    pub(super) fn scrub_read_done(&mut self, cx: &mut Cx<'_>, id: ReadId, result: ReadResult) {
        match &mut self.scrubs.run {
            Some(run) if matches!(run.step, Step::Yield { read } if read == id) => run.step = Step::Next,
            _ => self.build_read(cx, id, result),
        }
    }

    /// True if an operation would change what is being compared.
    pub(super) fn is_held_for_scrub(&self, object: &HObject, access: Access) -> bool {
        access.writes && self.scrubs.run.as_ref().is_some_and(|run| run.compares(object))
    }

    /// An operation waits until its part is compared.
    pub(super) fn wait_for_scrub(&mut self, mut op: ClientOp) {
        if let Some(run) = &mut self.scrubs.run {
            run.blocked.push(op.id);
        }
        op.fetched = Default::default();
        self.park(op);
    }

    /// An object is being replaced.
    pub(super) fn disturb_scrub(&mut self, object: &HObject) {
        if let Some(run) = &mut self.scrubs.run {
            run.disturbed |= run.compares(object);
        }
    }

    fn finish_scrub(&mut self, cx: &mut Cx<'_>) {
        let Some(run) = self.scrubs.run.take() else { return };
        self.release_reservations(cx);
        let (name, w) = (run.wanted.name(), run.wanted);
        let (found, fixed) = (run.shallow + run.deep, run.fixed_shallow + run.fixed_deep);
        let history = &mut self.history.scrubs;
        history.count += 1;
        (history.last_scrub, history.last_scrub_stamp) = (self.log.head(), cx.now.wall);
        history.shallow_errors = run.shallow - run.fixed_shallow;
        if w.deep {
            (history.last_deep_scrub, history.last_deep_scrub_stamp) = (history.last_scrub, cx.now.wall);
            history.deep_errors = run.deep - run.fixed_deep;
        }
        if history.errors() == 0 {
            history.last_clean_scrub_stamp = cx.now.wall;
        }
        self.scrubs.repair_failed = (w.repair || w.verifies) && history.errors() > 0;
        self.scrubs.bad_sets = run.bad_sets;
        self.keep_found(run.found, w.deep);
        match found {
            0 => cx.clog(LogPrio::DEBUG, format!("{} {name} ok", self.id)),
            _ if w.repair => cx.clog(LogPrio::ERROR, format!("{} {name} {found} errors, {fixed} fixed", self.id)),
            _ => cx.clog(LogPrio::ERROR, format!("{} {name} {found} errors", self.id)),
        }
        let auto = cx.sh.scrub.auto_repair && w.deep && !w.repair && !w.verifies;
        if auto && found > 0 && found <= cx.sh.scrub.auto_repair_errors {
            self.request_scrub(Wanted { deep: true, repair: true, requested: true, verifies: false });
        } else if fixed > 0 {
            self.request_scrub(Wanted { deep: w.deep, repair: false, requested: true, verifies: true });
        }
        self.scrubs.schedule.scrubbed();
        self.scrubs.news = true;
        self.store_meta(cx);
        self.say_started(cx);
    }

    /// What a scrub found is kept. One that does not read leaves alone what only reading tells.
    fn keep_found(&mut self, mut found: BTreeMap<HObject, Inconsistent>, deep: bool) {
        if !deep {
            let before = self.scrubs.found.take().unwrap_or_default();
            for (object, unread) in before.into_iter().filter(|(_, i)| i.deep > 0) {
                found.entry(object).or_insert(unread);
            }
        }
        self.scrubs.found = Some(found);
    }

    /// The interval is over.
    pub(super) fn drop_scrub(&mut self, cx: &mut Cx<'_>) {
        if let Some(run) = self.scrubs.run.take() {
            cx.sh.give_scrub_slot();
            if run.wanted.requested {
                self.request_scrub(run.wanted);
            }
        }
        if std::mem::take(&mut self.scrubs.reserved) {
            cx.sh.give_scrub_slot();
        }
        self.scrubs.build = None;
        if !self.is_primary(cx.sh.whoami) {
            (self.scrubs.wanted, self.scrubs.found, self.scrubs.repair_failed) = (None, None, false);
            self.scrubs.bad_sets.clear();
        }
    }

    /// The session with another OSD was lost, and what was on its way with it.
    pub(super) fn scrub_reset(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        if self.walk.mapping.primary == osd && std::mem::take(&mut self.scrubs.reserved) {
            // If it still wants to, it asks again.
            cx.sh.give_scrub_slot();
        }
        let (id, round) = (self.id, self.round());
        let replica = self.replicas(cx.sh.whoami).any(|o| o == osd);
        let Some(run) = self.scrubs.run.as_ref().filter(|_| replica) else { return };
        cx.send_pg(osd, id, round, PgBody::ScrubReserve { scrub: run.number }, Durable::Now);
        match (&run.step, &run.chunk) {
            (Step::Maps, Some((begin, end))) if !run.maps.contains_key(&osd) => {
                let chunk = Chunk { scrub: run.scrub, begin: begin.clone(), end: end.clone(), deep: run.wanted.deep, trust_s: run.trust_s };
                self.ask_map(cx, osd, &chunk);
            }
            (Step::Distrust { waiting_for }, _) => {
                if let Some(objects) = waiting_for.get(&osd) {
                    let body = PgBody::Distrust { scrub: run.scrub, objects: objects.clone() };
                    cx.send_pg(osd, id, round, body, Durable::Now);
                }
            }
            _ => {}
        }
    }

    /// The scrub under way, for operators.
    pub(super) fn scrubber(&self) -> serde_json::Value {
        report::under_way(&self.scrubs, self.walk.since)
    }

    /// What scrubs add to the PG's state.
    pub(super) fn scrub_state(&self) -> PgState {
        let mut state = PgState::UNKNOWN;
        if let Some(run) = self.scrubs.run.as_ref().filter(|r| !matches!(r.step, Step::Reserve { .. })) {
            state |= PgState::SCRUBBING;
            state |= if run.wanted.deep { PgState::DEEP_SCRUB } else { PgState::UNKNOWN };
            state |= if run.wanted.repair { PgState::REPAIR } else { PgState::UNKNOWN };
        }
        if self.history.scrubs.errors() > 0 {
            state |= PgState::INCONSISTENT;
        }
        if self.scrubs.repair_failed {
            state |= PgState::FAILED_REPAIR;
        }
        state
    }

    /// True if a scrub has found no good copy of an object as it is now.
    pub(super) fn is_bad_everywhere(&self, cx: &Cx<'_>, object: &HObject, version: EVersion) -> bool {
        let found = self.scrubs.found.as_ref().and_then(|found| found.get(object)).filter(|i| i.auth.is_none());
        let ours = found.and_then(|i| i.shards.get(&cx.sh.whoami)).and_then(|s| s.info.as_ref());
        ours.is_some_and(|info| info.version == version)
    }

    /// What a client's `list-inconsistent-obj` is told.
    pub(super) fn list_inconsistent(&self, cx: &Cx<'_>, input: &bytes::Bytes) -> Result<bytes::Bytes, Errno> {
        report::list(self.scrubs.found.as_ref(), &self.scrubs.bad_sets, self.walk.since, cx.sh.whoami, input)
    }

    /// A copy's word on the PG's past counts if it is newer.
    pub(super) fn learn_scrubs(&mut self, theirs: ScrubHistory) {
        let ours = &self.history.scrubs;
        if theirs.count > ours.count || ours.last_scrub_stamp.is_zero() {
            self.history.scrubs = theirs;
        }
    }
}

/// A number for a run or a part: in an interval it names no other.
fn next_number(cx: &mut Cx<'_>) -> u64 {
    cx.sh.next_scrub += 1;
    cx.sh.next_scrub
}
