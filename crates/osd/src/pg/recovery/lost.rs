//! Unfound objects: who may still have them, and giving them up when the operator says so.
//!
//! Room: osd core.   Owns: `Marking`, at most one per PG, on the primary.   Hears: `mark_unfound_lost`, what copies hold.
//! Holds: nothing is given up while somebody who may have it has not been asked, or is down and not declared lost. Giving up
//! is a write like any other, in the log and durable on every acting copy before anybody is answered: a copy that comes
//! back with what was given up finds a newer entry in the log, and drops it.
//! A revert makes the newest content that a copy holds the object's content again, under a new version: copies that hold
//! it keep it, others lack it from then on, and recovery brings it to them.
//! Why objects are counted again (`recount`): how large one was that nobody has is not known.
//! Upstream: PrimaryLogPG::mark_all_unfound_lost, PeeringState::all_unfound_are_queried_or_lost, MissingLoc.

use super::{Pg, Recovery, Stage};
use crate::effects::{Cx, Durable, Effect};
use crate::mutation::{Mutation, Step};
use crate::object::{INFO_ATTR, ObjectInfo};
use crate::pg::repop::Write;
use admin::CommandError;
use admin::command::Reply;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::Transaction;
use types::map::OsdMap;
use types::msg::LogPrio;
use types::msg::internal_osd::{PgBody, Round};
use types::pg::{LogOp, PgLogEntry};
use types::{EVersion, Errno, HObject, OsdId, ReqId, Snap};

/// What an OSD that may have unfound objects said of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pg) enum Source {
    Probed,
    Querying,
    Down,
    /// It is gone, by the operator's word.
    Lost,
    NotQueried,
}

impl Source {
    /// The words of `ceph pg <pgid> query`.
    pub fn words(self) -> &'static str {
        match self {
            Source::Probed => "already probed",
            Source::Querying => "querying",
            Source::Down | Source::Lost => "osd is down",
            Source::NotQueried => "not queried",
        }
    }
}

/// Objects that are being given up.
#[derive(Debug)]
pub(super) struct Marking {
    /// The command that waits for its answer.
    command: u64,
    revert: bool,
    /// What was unfound when it came. Of what becomes so later nobody was asked what older content there is, and perhaps somebody
    /// who has it has died since.
    objects: BTreeSet<HObject>,
    /// Copies that have not said what older content they hold.
    waiting_for: BTreeSet<OsdId>,
    /// Per object: the newest older content that was told of, and who holds it.
    older: BTreeMap<HObject, Older>,
    /// How many were given up, and the last write that says so.
    written: Option<(usize, EVersion)>,
}

#[derive(Debug)]
struct Older {
    info: ObjectInfo,
    holders: BTreeSet<OsdId>,
}

impl Recovery {
    /// The answer that a command waits for in vain when an interval ends.
    pub(super) fn marking_interrupted(&self) -> Option<Effect> {
        let reply = CommandError::new(Errno::EAGAIN, "the pg began a new interval meanwhile; see what is unfound, and try again").into();
        self.marking.as_ref().map(|m| Effect::CommandReply { id: m.command, reply })
    }

    /// True while that is on its way to the disks that an object is given up.
    pub(in crate::pg) fn is_being_lost(&self, object: &HObject) -> bool {
        self.losing.contains(object)
    }

    /// An OSD outside the acting set has nothing of this PG.
    pub(in crate::pg) fn note_empty(&mut self, osd: OsdId) {
        self.empty.insert(osd);
    }

    fn source(&self, map: &OsdMap, osd: OsdId) -> Source {
        let refused = || self.unfound.iter().all(|object| self.refused.get(object).is_some_and(|by| by.contains(&osd)));
        let info = map.info(osd);
        match () {
            () if map.is_up(osd) && self.has_answered(osd) || refused() => Source::Probed,
            () if !map.exists(osd) || info.is_some_and(|i| i.lost_at > i.up_from) => Source::Lost,
            () if !map.is_up(osd) => Source::Down,
            () if self.asked.contains(&osd) => Source::Querying,
            () => Source::NotQueried,
        }
    }

    /// Whoever has a copy was asked for each unfound object before it was called that.
    fn has_answered(&self, osd: OsdId) -> bool {
        self.peers.contains_key(&osd) || self.holders.contains(&osd) || self.empty.contains(&osd)
    }
}

impl Pg {
    /// OSDs that may have what is unfound here, and what came of asking them.
    pub(in crate::pg) fn sources(&self, map: &OsdMap, whoami: OsdId) -> BTreeMap<OsdId, Source> {
        let (m, r) = (&self.walk.mapping, &self.recovery);
        let past = self.walk.past.iter().flat_map(|i| &i.acting);
        let all = past.chain(&m.up).chain(&m.acting).chain(&r.holders);
        all.filter(|osd| **osd != whoami && osd.0 >= 0).map(|osd| (*osd, r.source(map, *osd))).collect()
    }

    /// Asks whoever may have what is unfound and has not said anything yet: it may be new to the PG's past.
    pub(super) fn ask_for_unfound(&mut self, cx: &mut Cx<'_>) {
        if self.recovery.unfound.is_empty() {
            return;
        }
        let sources = self.sources(&cx.sh.map, cx.sh.whoami);
        for (osd, _) in sources.into_iter().filter(|(_, s)| *s == Source::NotQueried) {
            self.recovery.asked.insert(osd);
            cx.send_pg(osd, self.id, self.round(), PgBody::Query, Durable::Now);
        }
    }

    /// OSDs that are not up any more, or not as they were, have said nothing; and what they were asked is lost.
    pub(super) fn forget_answers(&mut self, gone: impl Fn(&OsdId) -> bool) {
        self.recovery.empty.retain(|osd| !gone(osd));
        self.recovery.asked.retain(|osd| !gone(osd));
    }

    /// `ceph pg <pgid> mark_unfound_lost`. Without a reply there will be one later.
    pub fn mark_unfound_lost(&mut self, cx: &mut Cx<'_>, command: u64, revert: bool) -> Result<Option<Reply>, CommandError> {
        let refuse = |errno, text: &str| Err(CommandError::new(errno, text));
        if !self.is_primary(cx.sh.whoami) {
            return refuse(Errno::EROFS, "not primary");
        }
        let unfound = self.recovery.unfound.len();
        if unfound == 0 {
            return Ok(Some(Reply::status("pg has no unfound objects")));
        }
        if self.recovery.marking.is_some() {
            return refuse(Errno::EBUSY, "unfound objects of this pg are being marked already");
        }
        if revert && self.is_coded() {
            return refuse(Errno::EINVAL, "mode must be 'delete' for ec pool");
        }
        if !self.serves() {
            return refuse(Errno::EAGAIN, "pg has fewer than min_size copies: nothing can be written");
        }
        if !self.takes_ops() {
            return refuse(Errno::EAGAIN, "pg is about to be merged: nothing can be written");
        }
        let sources = self.sources(&cx.sh.map, cx.sh.whoami);
        if !sources.values().all(|s| matches!(s, Source::Probed | Source::Lost)) {
            let text = format!("pg has {unfound} unfound objects but we haven't probed all sources, not marking lost");
            return refuse(Errno::EINVAL, &text);
        }
        let waiting_for = if revert { self.replicas(cx.sh.whoami).collect() } else { BTreeSet::new() };
        let objects = self.recovery.unfound.clone();
        let held = if revert { self.older_copies(cx, objects.iter().cloned().collect()) } else { Vec::new() };
        self.recovery.marking = Some(Marking { command, revert, objects, waiting_for, older: BTreeMap::new(), written: None });
        if revert {
            self.note_older(cx.sh.whoami, held);
        }
        self.ask_older(cx, |_| true);
        self.maybe_give_up(cx);
        Ok(None)
    }

    /// Asks copies what they hold of the objects that nobody has as they should be.
    pub(super) fn ask_older(&self, cx: &mut Cx<'_>, whom: impl Fn(&OsdId) -> bool) {
        let Some(marking) = &self.recovery.marking else { return };
        let objects: Vec<HObject> = marking.objects.iter().cloned().collect();
        for osd in marking.waiting_for.iter().filter(|osd| whom(osd)) {
            cx.send_pg(*osd, self.id, self.round(), PgBody::AskOlder { objects: objects.clone() }, Durable::Now);
        }
    }

    /// What we hold of objects that we lack as they should be. What is stored in the very version that is missing cannot
    /// be read, and half an object has no version.
    fn older_copies(&self, cx: &mut Cx<'_>, objects: Vec<HObject>) -> Vec<(HObject, Bytes)> {
        let mut held = Vec::new();
        for object in objects.into_iter().filter(|o| *o < self.last_backfill) {
            let Some(wanted) = self.missing.get(&object) else { continue };
            let Ok(raw) = cx.disk.getattr(self.coll, &object, INFO_ATTR) else { continue };
            if denc::from_bytes::<ObjectInfo>(&raw).is_ok_and(|info| info.version != *wanted) {
                held.push((object, raw));
            }
        }
        held
    }

    /// The primary wants to know what we hold of objects that nobody has as they should be.
    pub(in crate::pg) fn handle_ask_older(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, objects: Vec<HObject>) {
        if matches!(self.stage, Stage::Follower { active: true }) {
            let held = self.older_copies(cx, objects);
            cx.send_pg(from, self.id, round, PgBody::Older { held }, Durable::Now);
        }
    }

    /// A copy says what it holds of objects that nobody has as they should be.
    pub(in crate::pg) fn handle_older(&mut self, cx: &mut Cx<'_>, from: OsdId, held: Vec<(HObject, Bytes)>) {
        let waits = self.recovery.marking.as_mut().is_some_and(|m| m.waiting_for.remove(&from));
        if waits {
            self.note_older(from, held);
            self.maybe_give_up(cx);
        }
    }

    fn note_older(&mut self, from: OsdId, held: Vec<(HObject, Bytes)>) {
        let Some(marking) = &mut self.recovery.marking else { return };
        for (object, raw) in held {
            let Ok(info) = denc::from_bytes::<ObjectInfo>(&raw) else { continue };
            let known = marking.older.get(&object).map(|o| o.info.version).unwrap_or_default();
            if info.version > known {
                marking.older.insert(object, Older { info, holders: BTreeSet::from([from]) });
            } else if info.version == known
                && let Some(older) = marking.older.get_mut(&object)
            {
                older.holders.insert(from);
            }
        }
    }

    /// With every answer here, what was unfound and still is, is written off.
    fn maybe_give_up(&mut self, cx: &mut Cx<'_>) {
        let ready = self.recovery.marking.as_mut().filter(|m| m.waiting_for.is_empty() && m.written.is_none());
        let Some(marking) = ready else { return };
        let mut older = std::mem::take(&mut marking.older);
        let revert = marking.revert;
        let (unfound, later): (BTreeSet<HObject>, _) =
            std::mem::take(&mut self.recovery.unfound).into_iter().partition(|object| marking.objects.contains(object));
        self.recovery.unfound = later;
        let count = unfound.len();
        for object in unfound {
            let older = older.remove(&object).filter(|_| revert);
            tracing::warn!(pg = %self.id, object = ?object.name, to = ?older.as_ref().map(|o| o.info.version), "unfound, and given up");
            self.give_up(cx, object, older);
        }
        let head = self.log.head();
        let Some(marking) = &mut self.recovery.marking else { return };
        marking.written = Some((count, head));
        if count == 0 {
            // Somebody came who has it all.
            self.marked(cx);
        }
    }

    /// Writes off what the newest write made of an object.
    fn give_up(&mut self, cx: &mut Cx<'_>, object: HObject, older: Option<Older>) {
        self.disturb_scrub(&object);
        let version = self.next_version(cx);
        let user_version = self.last_user_version + 1;
        let entry = PgLogEntry {
            op: if older.is_some() { LogOp::LostRevert } else { LogOp::LostDelete },
            object: object.clone(),
            version,
            prior_version: self.missing.get(&object).copied().or_else(|| self.version_of(cx, &object)).unwrap_or_default(),
            user_version,
            reqid: ReqId::default(),
            mtime: cx.now.wall,
            result: 0,
            op_returns: Vec::new(),
        };
        let mut mutation = Mutation::default();
        let mut totals = self.totals;
        let whole: BTreeSet<OsdId> = match older {
            None => {
                mutation.push(Step::Remove);
                totals.objects -= 1;
                totals.clones -= i64::from(object.snap < Snap::HEAD);
                self.replicas(cx.sh.whoami).collect()
            }
            Some(Older { info, holders }) => {
                let info = ObjectInfo { version, prior_version: info.version, user_version, ..info };
                mutation.push(Step::SetAttr { name: INFO_ATTR.into(), value: denc::to_bytes(&info, types::features::SUPPORTED) });
                holders
            }
        };
        for osd in self.replicas(cx.sh.whoami).collect::<Vec<_>>() {
            let behind = self.recovery.is_behind(osd, &object);
            let Some(lacks) = self.recovery.peers.get_mut(&osd) else { continue };
            match whole.contains(&osd) || behind {
                true => drop(lacks.remove(&object)),
                false => drop(lacks.insert(object.clone(), version)),
            }
        }
        self.recovery.refused.remove(&object);
        self.recovery.losing.insert(object);
        self.start_write(cx, Write { before: Vec::new(), entry, mutation, totals, answer: None, watch: None, shards: None });
    }

    /// What giving up an object changes on a copy: it is gone; or, if the copy holds what it is to be again, it has that
    /// under the new version; or the copy lacks it.
    pub(in crate::pg) fn put_lost(&mut self, cx: &mut Cx<'_>, txn: &mut Transaction, entry: &PgLogEntry, mutation: Mutation) {
        let object = &entry.object;
        let again = mutation.steps.iter().find_map(|step| match step {
            Step::SetAttr { value, .. } => denc::from_bytes::<ObjectInfo>(value).ok(),
            _ => None,
        });
        let keeps = match again {
            None => true,
            Some(info) => {
                let readable = self.missing.get(object) != Some(&info.prior_version);
                readable && self.version_of(cx, object) == Some(info.prior_version)
            }
        };
        if keeps {
            mutation.into_transaction(txn, object);
            self.drop_missing(txn, object);
        } else {
            self.add_missing(txn, object.clone(), entry.version);
        }
    }

    /// That an object is given up is on every disk: whoever waits for it goes on, and what has to be copied is.
    pub(in crate::pg) fn lost_committed(&mut self, cx: &mut Cx<'_>, object: &HObject, version: EVersion) {
        if self.recovery.losing.remove(object) {
            if self.missing.contains_key(object) || self.recovery.peers.values().any(|m| m.contains_key(object)) {
                self.recovery.is_to_move(object.clone());
            }
            self.wake_waiting_for(cx, object);
            self.list_if_whole(cx);
        }
        if self.recovery.marking.as_ref().is_some_and(|m| m.written.is_some_and(|(_, last)| last == version)) {
            self.marked(cx);
        }
    }

    fn marked(&mut self, cx: &mut Cx<'_>) {
        let Some(Marking { command, written: Some((count, _)), .. }) = self.recovery.marking.take() else { return };
        let said = format!("pg has {count} objects unfound and apparently lost marking");
        cx.clog(LogPrio::INFO, format!("{}: {said}", self.id));
        cx.fx.push(Effect::CommandReply { id: command, reply: Reply::status(said) });
    }
}
