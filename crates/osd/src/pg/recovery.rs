//! Making copies equal: the primary's own first, from the authoritative one, then everybody else's from the primary's.
//!
//! Holds: an object that is missing somewhere is copied whole; nothing is written meanwhile, so that a scan and a push
//! see the same state.

use super::backfill::Scan;
use super::merge::Merge;
use super::peering::Step;
use super::{Pg, Stage};
use crate::effects::{Cx, Durable, PgStep, TxcRoute};
use std::collections::{BTreeMap, BTreeSet};
use types::msg::internal_osd::{PeerInfo, PgBody};
use types::pg::{PgLogDup, PgLogEntry};
use types::{EVersion, HObject, OsdId};

/// Objects on their way at a time, per copy.
const WINDOW: usize = 16;

/// What a copy still lacks.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// Our own log is on its way to our disk: what we lack is known after that.
    merging: bool,
    pub todo: BTreeSet<HObject>,
    /// With the number of the push that counts, where we push.
    pub in_flight: BTreeMap<HObject, u64>,
    /// Whole here, and not yet on our disk.
    landing: BTreeSet<HObject>,
    /// Going through everything, because logs do not meet.
    pub scan: Option<Scan>,
    /// The authoritative log that makes the copy whole when the scan has ended.
    pub log: Option<AuthLog>,
}

/// The authoritative log as its holder sent it.
#[derive(Debug)]
pub(crate) struct AuthLog {
    pub info: PeerInfo,
    pub base: EVersion,
    pub entries: Vec<PgLogEntry>,
    pub dups: Vec<PgLogDup>,
}

impl Recovery {
    pub fn is_done(&self) -> bool {
        !self.merging && self.todo.is_empty() && self.in_flight.is_empty() && self.landing.is_empty() && self.scan.as_ref().is_none_or(Scan::is_done)
    }

    /// The next objects to move.
    pub fn next(&mut self) -> Vec<HObject> {
        let n = WINDOW.saturating_sub(self.in_flight.len());
        let next: Vec<HObject> = self.todo.iter().take(n).cloned().collect();
        for obj in &next {
            self.todo.remove(obj);
            self.in_flight.insert(obj.clone(), 0);
        }
        next
    }

    /// An object that was asked for is here.
    pub fn landed(&mut self, object: &HObject) {
        if let Some((object, _)) = self.in_flight.remove_entry(object) {
            self.landing.insert(object);
        }
    }

    /// What is on its way may be lost: it is to move again.
    pub fn again(&mut self) {
        self.todo.extend(std::mem::take(&mut self.in_flight).into_keys());
        self.scan.as_mut().map(Scan::again);
    }
}

/// Where another acting copy is.
#[derive(Debug)]
pub(crate) enum Target {
    /// It was sent a log and has not confirmed it.
    Merging,
    /// It was told to start over.
    Resetting,
    Recovering(Recovery),
    /// It was sent the log that makes it whole.
    Completing,
    Done,
}

impl Pg {
    /// The authoritative log has come.
    pub(super) fn handle_log(&mut self, cx: &mut Cx<'_>, from: OsdId, log: AuthLog) {
        let Stage::Peering(p) = &mut self.stage else { return };
        if !matches!(p.step, Step::GetLog) || from != p.auth {
            return;
        }
        let info = &log.info;
        if log.entries.last().map_or(log.base, |e| e.version) != info.last_update {
            return tracing::error!(pg = %self.id, %from, base = %log.base, head = %info.last_update, "a log that does not reach its head");
        }
        let overlaps = self.complete && self.log.head() >= info.log_tail && self.log.contains(log.base);
        if !overlaps && log.base > info.log_tail {
            // Ours was trimmed beyond where they part: it is replaced as a whole.
            let since = info.log_tail;
            return cx.send_pg(from, self.id, self.round(), PgBody::GetLog { since }, Durable::Now);
        }
        let merge = match overlaps {
            true => Merge { base: log.base, dups: log.dups, ..log_merge(&log.info, log.entries) },
            false => {
                let scan = Some(Scan::new(self.id, self.walk.mapping.pg_num));
                let merge = reset_merge(&log.info);
                p.step = Step::RecoverSelf(Recovery { scan, log: Some(log), merging: true, ..Recovery::default() });
                merge
            }
        };
        if overlaps && let Stage::Peering(p) = &mut self.stage {
            p.step = Step::RecoverSelf(Recovery { merging: true, ..Recovery::default() });
        }
        let txc = self.merge(cx, merge);
        let route = TxcRoute::Pg { pgid: self.id, round: self.round(), step: PgStep::SelfMerged };
        cx.sh.txcs.insert(txc, route);
    }

    /// Our log is the authoritative one and on our disk.
    pub(super) fn self_merged(&mut self, cx: &mut Cx<'_>) {
        let missing = self.missing.clone();
        let Stage::Peering(p) = &mut self.stage else { return };
        let Step::RecoverSelf(r) = &mut p.step else { return };
        (r.todo, r.merging) = (missing, false);
        self.drive_self(cx);
    }

    /// Ours is the authoritative copy: nothing to fetch.
    pub(super) fn recover_self(&mut self, cx: &mut Cx<'_>) {
        let Stage::Peering(p) = &mut self.stage else { return };
        p.step = Step::RecoverSelf(Recovery::default());
        self.drive_self(cx);
    }

    /// Goes on fetching what we lack.
    pub(super) fn drive_self(&mut self, cx: &mut Cx<'_>) {
        let round = self.round();
        let Stage::Peering(p) = &mut self.stage else { return };
        let auth = p.auth;
        let Step::RecoverSelf(r) = &mut p.step else { return };
        if r.merging {
            return;
        }
        for object in r.next() {
            cx.send_pg(auth, self.id, round, PgBody::Pull { object }, Durable::Now);
        }
        if let Some(begin) = r.scan.as_mut().and_then(|s| s.next_page(r.todo.len())) {
            let body = PgBody::Scan { begin, limit: Scan::PAGE };
            cx.send_pg(auth, self.id, round, body, Durable::Now);
        }
        if !r.is_done() {
            return;
        }
        match r.log.take() {
            None => self.recover_peers(cx),
            Some(log) => {
                (r.scan, r.merging) = (None, true);
                let txc = self.merge(cx, complete_merge(&log.info, log.entries, log.dups));
                let route = TxcRoute::Pg { pgid: self.id, round: self.round(), step: PgStep::SelfMerged };
                cx.sh.txcs.insert(txc, route);
            }
        }
    }

    /// An object we lacked is whole on our disk.
    pub(super) fn self_recovered(&mut self, cx: &mut Cx<'_>, object: &HObject) {
        let Stage::Peering(p) = &mut self.stage else { return };
        if let Step::RecoverSelf(r) = &mut p.step {
            r.landing.remove(object);
            self.drive_self(cx);
        }
    }

    /// Our copy is whole: every other acting copy is made equal to it.
    fn recover_peers(&mut self, cx: &mut Cx<'_>) {
        self.ask_up_thru(cx);
        let replicas: Vec<OsdId> = self.replicas(cx.sh.whoami).collect();
        let mut targets = BTreeMap::new();
        for osd in replicas {
            let Stage::Peering(p) = &self.stage else { return };
            let info = p.infos.get(&osd).cloned().unwrap_or_default();
            let (target, body) = self.first_step(&info);
            cx.send_pg(osd, self.id, self.round(), body, Durable::Now);
            targets.insert(osd, target);
        }
        let Stage::Peering(p) = &mut self.stage else { return };
        p.step = Step::RecoverPeers(targets);
        self.peers_done(cx);
    }

    /// By log if the logs meet, by scan if not.
    pub(super) fn first_step(&self, info: &PeerInfo) -> (Target, PgBody) {
        // A copy that holds nothing is a whole copy of the PG as it was when it began.
        let whole = info.complete || !info.exists;
        let base = self.log.base_for(info.last_update).filter(|_| whole);
        let mine = self.info();
        match base {
            Some(base) => {
                let dups = self.log.dups.before(info.remembers_from);
                let merge = Merge { base, dups, ..log_merge(&mine, self.log.after(base)) };
                (Target::Merging, merge.into())
            }
            None => (Target::Resetting, reset_merge(&mine).into()),
        }
    }

    /// The log that makes a copy whole at the end of its backfill.
    pub(super) fn last_step(&self) -> PgBody {
        complete_merge(&self.info(), self.log.after(self.log.tail), self.log.dups.before(u64::MAX)).into()
    }

    /// A copy has taken over what it was sent.
    pub(super) fn handle_merged(&mut self, cx: &mut Cx<'_>, from: OsdId, missing: Vec<HObject>) {
        let (id, pg_num) = (self.id, self.walk.mapping.pg_num);
        let mut todo = self.unreadable.get(&from).cloned().unwrap_or_default();
        let Some(target) = self.target(from) else { return };
        match target {
            Target::Merging => {
                todo.extend(missing);
                *target = Target::Recovering(Recovery { todo, ..Recovery::default() });
            }
            Target::Resetting => {
                let scan = Some(Scan::new(id, pg_num));
                *target = Target::Recovering(Recovery { todo, scan, ..Recovery::default() });
            }
            Target::Completing => *target = Target::Done,
            Target::Recovering(_) | Target::Done => return,
        }
        self.drive_peer(cx, from);
    }

    pub(super) fn target(&mut self, osd: OsdId) -> Option<&mut Target> {
        let Stage::Peering(p) = &mut self.stage else { return None };
        let Step::RecoverPeers(targets) = &mut p.step else { return None };
        targets.get_mut(&osd)
    }

    /// Goes on pushing what a copy lacks.
    pub(super) fn drive_peer(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        let (id, round) = (self.id, self.round());
        let Some(Target::Recovering(r)) = self.target(osd) else { return self.peers_done(cx) };
        let next = r.next();
        if let Some(begin) = r.scan.as_mut().and_then(|s| s.next_page(r.todo.len())) {
            cx.send_pg(osd, id, round, PgBody::Scan { begin, limit: Scan::PAGE }, Durable::Now);
        }
        let done = r.is_done();
        let backfilled = r.scan.is_some();
        for object in next {
            let push = self.start_push(cx, osd, round, object.clone());
            if self.round() != round {
                // It could not be read: peering looks for another copy.
                return;
            }
            if let Some(Target::Recovering(r)) = self.target(osd) {
                r.in_flight.insert(object, push);
            }
        }
        if done {
            let target = match backfilled {
                false => Target::Done,
                true => {
                    cx.send_pg(osd, id, round, self.last_step(), Durable::Now);
                    Target::Completing
                }
            };
            if let Some(slot) = self.target(osd) {
                *slot = target;
            }
        }
        self.peers_done(cx);
    }

    /// A copy has an object it lacked.
    pub(super) fn handle_pushed(&mut self, cx: &mut Cx<'_>, from: OsdId, object: &HObject, push: u64) {
        if let Some(Target::Recovering(r)) = self.target(from)
            && r.in_flight.get(object) == Some(&push)
        {
            r.in_flight.remove(object);
            self.drive_peer(cx, from);
        }
    }

    fn peers_done(&mut self, cx: &mut Cx<'_>) {
        let Stage::Peering(p) = &mut self.stage else { return };
        let Step::RecoverPeers(targets) = &p.step else { return };
        if !targets.values().all(|t| matches!(t, Target::Done)) {
            return;
        }
        if self.walk.mapping.acting.len() < usize::from(self.walk.mapping.min_size) {
            p.step = Step::Peered;
            return self.peering_stuck(cx);
        }
        p.step = Step::WaitUpThru;
        self.wait_up_thru(cx);
    }
}

fn log_merge(info: &PeerInfo, entries: Vec<PgLogEntry>) -> Merge {
    Merge {
        reset: false,
        base: info.log_tail,
        tail: info.log_tail,
        entries,
        totals: info.totals,
        last_user_version: info.last_user_version,
        complete: false,
        dups: Vec::new(),
    }
}

fn complete_merge(info: &PeerInfo, entries: Vec<PgLogEntry>, dups: Vec<PgLogDup>) -> Merge {
    Merge { complete: true, dups, ..log_merge(info, entries) }
}

fn reset_merge(info: &PeerInfo) -> Merge {
    Merge { reset: true, ..log_merge(info, Vec::new()) }
}

impl From<Merge> for PgBody {
    fn from(m: Merge) -> PgBody {
        PgBody::Merge {
            reset: m.reset,
            base: m.base,
            tail: m.tail,
            entries: m.entries,
            totals: m.totals,
            last_user_version: m.last_user_version,
            complete: m.complete,
            dups: m.dups,
        }
    }
}
