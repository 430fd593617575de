//! GetLog and GetMissing: every acting copy takes over the authoritative log, ours first, and says what it lacks then.
//!
//! Room: osd core.   Owns: `MergeSelf`, `Target`.   Hears: logs, confirmations, pages of scans.
//! Holds: nothing is written and nothing is pushed meanwhile, so that a scan sees one state. Nobody takes over a log
//! before it is durable where it comes from: a crash would leave entries whose objects nobody has.
//! Upstream: PeeringState (GetLog, GetMissing).

use super::Pg;
use super::backfill::Scan;
use super::merge::Merge;
use super::peering::Step;
use crate::effects::{Cx, Durable, PgStep, TxcRoute};
use std::collections::BTreeMap;
use store::TxcId;
use types::msg::internal_osd::{PeerInfo, PgBody};
use types::pg::{PgLogDup, PgLogEntry};
use types::{EVersion, HObject, OsdId};

/// Our own copy on its way to the authoritative log.
#[derive(Debug, Default)]
pub(crate) struct MergeSelf {
    /// A log is on its way to our disk: what we lack is known after that.
    merging: bool,
    /// Going through everything, because logs do not meet.
    pub scan: Option<Scan>,
    /// The authoritative log that makes the copy complete when the scan has ended.
    log: Option<AuthLog>,
}

/// The authoritative log as its holder sent it.
#[derive(Debug)]
pub(crate) struct AuthLog {
    pub info: PeerInfo,
    pub base: EVersion,
    pub entries: Vec<PgLogEntry>,
    pub dups: Vec<PgLogDup>,
}

/// Where another acting copy is.
#[derive(Debug)]
pub(crate) enum Target {
    /// It was sent a log and has not confirmed it.
    Merging,
    /// It was told to start over.
    Resetting,
    Scanning(Scan),
    /// It was sent the log that makes it complete, and what it lacks.
    Completing(Vec<(HObject, EVersion)>),
    /// It has our log.
    Merged,
}

impl Pg {
    /// The authoritative log has come.
    pub(super) fn handle_log(&mut self, cx: &mut Cx<'_>, from: OsdId, log: AuthLog) {
        let Some(p) = self.peering_mut() else { return };
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
        let (step, merge) = match overlaps {
            true => (MergeSelf::default(), Merge { base: log.base, dups: log.dups, ..log_merge(&log.info, log.entries) }),
            false => {
                self.recovery.found_by_scan(cx.sh.whoami);
                let merge = reset_merge(&log.info);
                let scan = Some(Scan::new(self.id, self.walk.mapping.pg_num));
                (MergeSelf { scan, log: Some(log), ..MergeSelf::default() }, merge)
            }
        };
        if let Some(p) = self.peering_mut() {
            p.step = Step::MergeSelf(MergeSelf { merging: true, ..step });
        }
        let txc = self.merge(cx, merge);
        self.await_merge(cx, txc);
    }

    /// Ours is the authoritative log. What others take over of it must not be lost here.
    pub(super) fn keep_log(&mut self, cx: &mut Cx<'_>) {
        if let Some(p) = self.peering_mut() {
            p.step = Step::MergeSelf(MergeSelf { merging: true, ..MergeSelf::default() });
        }
        let txc = self.store_meta(cx);
        self.await_merge(cx, txc);
    }

    fn await_merge(&mut self, cx: &mut Cx<'_>, txc: TxcId) {
        let route = TxcRoute::Pg { pgid: self.id, round: self.round(), step: PgStep::SelfMerged };
        cx.sh.txcs.insert(txc, route);
    }

    /// What we took over of the authoritative log is on our disk.
    pub(super) fn self_merged(&mut self, cx: &mut Cx<'_>) {
        if let Some(Step::MergeSelf(m)) = self.step_mut() {
            m.merging = false;
            self.drive_self(cx);
        }
    }

    /// Goes on comparing our copy with the authoritative one, if it must be.
    pub(super) fn drive_self(&mut self, cx: &mut Cx<'_>) {
        let (id, round) = (self.id, self.round());
        let Some(p) = self.peering_mut() else { return };
        let auth = p.auth;
        let Step::MergeSelf(m) = &mut p.step else { return };
        if m.merging {
            return;
        }
        if let Some(begin) = m.scan.as_mut().and_then(Scan::next_page) {
            return cx.send_pg(auth, id, round, PgBody::Scan { begin, limit: Scan::PAGE }, Durable::Now);
        }
        if m.scan.as_ref().is_some_and(|s| !s.is_done()) {
            return;
        }
        match (m.scan.take(), m.log.take()) {
            (Some(scan), Some(log)) => {
                m.merging = true;
                let txc = self.merge(cx, complete_merge(&log.info, log.entries, log.dups, scan.differ));
                self.await_merge(cx, txc);
            }
            _ => self.merge_peers(cx),
        }
    }

    /// Our log is the authoritative one: every other acting copy takes it over.
    fn merge_peers(&mut self, cx: &mut Cx<'_>) {
        self.ask_up_thru(cx);
        let replicas: Vec<OsdId> = self.replicas(cx.sh.whoami).collect();
        let mut targets = BTreeMap::new();
        for osd in replicas {
            let Some(p) = self.peering() else { return };
            let info = p.infos.get(&osd).cloned().unwrap_or_default();
            let (target, body) = self.first_step(&info);
            cx.send_pg(osd, self.id, self.round(), body, Durable::Now);
            targets.insert(osd, target);
        }
        if let Some(p) = self.peering_mut() {
            p.step = Step::MergePeers(targets);
        }
        self.peers_merged(cx);
    }

    /// By log if the logs meet, by scan if not.
    fn first_step(&self, info: &PeerInfo) -> (Target, PgBody) {
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

    /// The log that makes a copy complete at the end of its scan.
    fn last_step(&self, differ: Vec<(HObject, EVersion)>) -> PgBody {
        complete_merge(&self.info(), self.log.after(self.log.tail), self.log.dups.before(u64::MAX), differ).into()
    }

    /// A copy has taken over what it was sent, and lacks these objects.
    pub(super) fn handle_merged(&mut self, cx: &mut Cx<'_>, from: OsdId, missing: Vec<(HObject, EVersion)>) {
        let (id, pg_num) = (self.id, self.walk.mapping.pg_num);
        let Some(target) = self.target(from) else { return };
        match target {
            Target::Merging => *target = Target::Merged,
            Target::Resetting => {
                *target = Target::Scanning(Scan::new(id, pg_num));
                return self.drive_peer(cx, from);
            }
            Target::Completing(_) => {
                *target = Target::Merged;
                self.recovery.found_by_scan(from);
            }
            Target::Scanning(_) | Target::Merged => return,
        }
        self.recovery.note_missing(from, missing);
        self.peers_merged(cx);
    }

    pub(super) fn target(&mut self, osd: OsdId) -> Option<&mut Target> {
        match self.step_mut()? {
            Step::MergePeers(targets) => targets.get_mut(&osd),
            _ => None,
        }
    }

    /// Goes on comparing a copy with ours.
    pub(super) fn drive_peer(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        let (id, round) = (self.id, self.round());
        let Some(target) = self.target(osd) else { return };
        let Target::Scanning(scan) = target else { return };
        if let Some(begin) = scan.next_page() {
            return cx.send_pg(osd, id, round, PgBody::Scan { begin, limit: Scan::PAGE }, Durable::Now);
        }
        if scan.is_done() {
            let differ = std::mem::take(&mut scan.differ);
            *target = Target::Completing(differ.clone());
            cx.send_pg(osd, id, round, self.last_step(differ), Durable::Now);
        }
    }

    /// The session with a copy was lost: what it was sent last is said again.
    pub(super) fn merge_peer_again(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        let info = self.peering().and_then(|p| p.infos.get(&osd)).cloned().unwrap_or_default();
        let body = match self.target(osd) {
            Some(Target::Merging | Target::Resetting) => self.first_step(&info).1,
            Some(Target::Completing(differ)) => {
                let differ = differ.clone();
                self.last_step(differ)
            }
            Some(Target::Scanning(scan)) => {
                scan.again();
                return self.drive_peer(cx, osd);
            }
            Some(Target::Merged) | None => return,
        };
        cx.send_pg(osd, self.id, self.round(), body, Durable::Now);
    }

    fn peers_merged(&mut self, cx: &mut Cx<'_>) {
        let enough = self.walk.mapping.acting.len() >= usize::from(self.walk.mapping.min_size);
        let Some(p) = self.peering_mut() else { return };
        let Step::MergePeers(targets) = &p.step else { return };
        if !targets.values().all(|t| matches!(t, Target::Merged)) {
            return;
        }
        if !enough {
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
        differ: Vec::new(),
    }
}

fn complete_merge(info: &PeerInfo, entries: Vec<PgLogEntry>, dups: Vec<PgLogDup>, differ: Vec<(HObject, EVersion)>) -> Merge {
    Merge { complete: true, dups, differ, ..log_merge(info, entries) }
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
            differ: m.differ,
        }
    }
}
