//! GetLog and GetMissing: every copy takes over the authoritative log, ours first, and says what it lacks then.
//!
//! Room: osd core.   Hears: logs, confirmations.
//! Holds: nothing is written and nothing is pushed meanwhile. Nobody takes over a log before it is durable where it comes
//! from: a crash would leave entries whose objects nobody has.
//! Upstream: PeeringState (GetLog, GetMissing).

use super::Pg;
use super::merge::Merge;
use super::peering::Step;
use crate::effects::{Cx, Durable, PgStep, TxcRoute};
use std::collections::BTreeSet;
use store::TxcId;
use types::msg::internal_osd::{PeerInfo, PgBody};
use types::pg::{PgLogDup, PgLogEntry};
use types::{EVersion, HObject, OsdId};

/// The authoritative log as its holder sent it.
#[derive(Debug)]
pub(crate) struct AuthLog {
    pub info: PeerInfo,
    pub base: EVersion,
    pub entries: Vec<PgLogEntry>,
    pub dups: Vec<PgLogDup>,
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
        let meets = self.log.contains(log.base) || log.entries.iter().any(|e| self.log.contains(e.version));
        if !meets && log.base > info.log_tail {
            // Where they part is further back.
            let since = info.log_tail;
            return cx.send_pg(from, self.id, self.round(), PgBody::GetLog { since }, Durable::Now);
        }
        if !meets {
            // Ours begins later than they part. It has to be backfilled, and may not act.
            tracing::error!(pg = %self.id, %from, tail = %self.log.tail, head = %self.log.head(), "our log does not meet the authoritative one");
            (self.last_backfill, self.backfilled) = (HObject::min(), 0);
            self.store_meta(cx);
            return self.start_peering(cx);
        }
        self.merging_self();
        self.history.approximate = log.info.history.approximate;
        let merge = Merge { base: log.base, dups: log.dups, shards: self.own_shards.clone(), ..log_merge(&log.info, log.entries) };
        let txc = self.merge(cx, merge);
        self.await_merge(cx, txc);
    }

    /// Ours is the authoritative log. What others take over of it must not be lost here.
    pub(super) fn keep_log(&mut self, cx: &mut Cx<'_>) {
        self.merging_self();
        let txc = self.store_meta(cx);
        self.await_merge(cx, txc);
    }

    fn merging_self(&mut self) {
        if let Some(p) = self.peering_mut() {
            p.step = Step::MergeSelf;
        }
    }

    fn await_merge(&mut self, cx: &mut Cx<'_>, txc: TxcId) {
        let route = TxcRoute::Pg { pgid: self.id, round: self.round(), step: PgStep::SelfMerged };
        cx.sh.txcs.insert(txc, route);
    }

    /// What we took over of the authoritative log is on our disk: every other copy takes it over from us.
    pub(super) fn self_merged(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.step_mut(), Some(Step::MergeSelf)) {
            return;
        }
        self.ask_up_thru(cx);
        let mut waiting_for = BTreeSet::new();
        for osd in self.replicas(cx.sh.whoami).collect::<Vec<_>>() {
            let begins_anew = self.send_merge(cx, osd);
            let has_nothing = |i: &PeerInfo| i.exists && i.last_backfill == HObject::min();
            let begins = begins_anew || self.peering().and_then(|p| p.infos.get(&osd)).is_some_and(has_nothing);
            match begins && self.is_outrun(osd) {
                true => self.recovery.note_merging(osd),
                false => drop(waiting_for.insert(osd)),
            }
        }
        if let Some(p) = self.peering_mut() {
            p.step = Step::MergePeers(waiting_for);
        }
        self.peers_merged(cx);
    }

    /// Sends a copy what it lacks of the log; all of it if the logs do not meet, and a backfill begins: true, then.
    fn send_merge(&self, cx: &mut Cx<'_>, osd: OsdId) -> bool {
        let info = self.peering().and_then(|p| p.infos.get(&osd)).cloned().unwrap_or_default();
        let mine = self.info(cx);
        let shards = self.shards.get(&osd).cloned().unwrap_or_default();
        // What it has of another shard is of no use.
        let has_other = !info.shards.is_empty() && !info.shards.is_same_of(self.hashes(), &shards);
        // Where the PG is active already, it was sent all of it before.
        let meets = !has_other && self.peering().is_some();
        let merge = match self.log.base_for(info.last_update).filter(|_| meets) {
            Some(base) => Merge { base, dups: self.log.dups.before(info.remembers_from), ..log_merge(&mine, self.log.after(base)) },
            None => Merge { reset: true, dups: self.log.dups.before(u64::MAX), ..log_merge(&mine, self.log.after(self.log.tail)) },
        };
        let begins_anew = merge.reset;
        cx.send_pg(osd, self.id, self.round(), Merge { shards, ..merge }.into(), Durable::Now);
        begins_anew
    }

    /// A copy has taken over what it was sent, and lacks these objects.
    pub(super) fn handle_merged(
        &mut self,
        cx: &mut Cx<'_>,
        from: OsdId,
        missing: Vec<(HObject, EVersion)>,
        last_backfill: HObject,
        backfilled: i64,
    ) {
        if self.recovery.is_merging(from) {
            self.recovery.note_backfill(from, last_backfill, backfilled);
            return self.recover(cx);
        }
        let Some(Step::MergePeers(waiting_for)) = self.step_mut() else { return };
        if !waiting_for.remove(&from) {
            return;
        }
        if !last_backfill.max && self.walk.mapping.acting.contains(&from) {
            // Its log turned out not to meet ours: it cannot act.
            return self.start_peering(cx);
        }
        self.recovery.note_missing(from, missing);
        if !last_backfill.max {
            self.recovery.note_backfill(from, last_backfill, backfilled);
        }
        self.peers_merged(cx);
    }

    /// The session with a copy was lost: what it was sent last is said again.
    pub(super) fn merge_peer_again(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        let waits = matches!(self.step_mut(), Some(Step::MergePeers(waiting_for)) if waiting_for.contains(&osd));
        if waits || self.recovery.is_merging(osd) {
            self.send_merge(cx, osd);
        }
    }

    fn peers_merged(&mut self, cx: &mut Cx<'_>) {
        if let Some(step) = self.step_mut()
            && matches!(step, Step::MergePeers(waiting_for) if waiting_for.is_empty())
        {
            *step = Step::WaitUpThru;
            self.wait_up_thru(cx);
        }
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
        dups: Vec::new(),
        shards: Default::default(),
    }
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
            dups: m.dups,
            shards: m.shards,
        }
    }
}
