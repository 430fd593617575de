//! Going active: every acting copy notes the interval on its disk, then the PG serves.
//!
//! Holds: before the first write of an interval the map says that its primary was alive in it, and every acting copy
//! carries its mark. So whoever peers later knows that the interval counts, and whom to ask.

use super::peering::Step;
use super::{Pg, Stage};
use crate::effects::{Cx, Durable, PgStep, TxcRoute};
use types::OsdId;
use types::msg::internal_osd::{PeerHistory, PgBody, Round};

impl Pg {
    pub(super) fn wait_up_thru(&mut self, cx: &mut Cx<'_>) {
        match self.up_thru_ok(cx) {
            true => self.activate(cx),
            false => self.ask_up_thru(cx),
        }
    }

    fn activate(&mut self, cx: &mut Cx<'_>) {
        let replicas = self.replicas(cx.sh.whoami).collect();
        let Stage::Peering(p) = &mut self.stage else { return };
        p.step = Step::Activating { waiting_for: replicas, local: false };
        self.last_epoch_started = self.walk.since;
        let mut txn = self.transaction();
        self.put_meta(&mut txn);
        let route = TxcRoute::Pg { pgid: self.id, round: self.round(), step: PgStep::SelfActivated };
        cx.submit_routed(txn, route);
        for osd in self.replicas(cx.sh.whoami).collect::<Vec<_>>() {
            let body = PgBody::Activate { history: self.history };
            cx.send_pg(osd, self.id, self.round(), body, Durable::Now);
        }
    }

    /// The primary starts the interval.
    pub(super) fn handle_activate(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, history: PeerHistory) {
        if !matches!(self.stage, Stage::Follower { .. }) {
            return;
        }
        self.stage = Stage::Follower { active: true };
        self.last_epoch_started = self.walk.since;
        self.learn_history(history);
        let mut txn = self.transaction();
        self.put_meta(&mut txn);
        let txc = cx.submit(txn);
        cx.send_pg(from, self.id, round, PgBody::Activated, Durable::After(txc));
    }

    pub(super) fn handle_activated(&mut self, cx: &mut Cx<'_>, from: OsdId) {
        if let Stage::Peering(p) = &mut self.stage
            && let Step::Activating { waiting_for, .. } = &mut p.step
        {
            waiting_for.remove(&from);
            self.maybe_active(cx);
        }
    }

    pub(super) fn self_activated(&mut self, cx: &mut Cx<'_>) {
        if let Stage::Peering(p) = &mut self.stage
            && let Step::Activating { local, .. } = &mut p.step
        {
            *local = true;
            self.maybe_active(cx);
        }
    }

    /// With every mark on its disk the PG serves.
    fn maybe_active(&mut self, cx: &mut Cx<'_>) {
        let Stage::Peering(p) = &self.stage else { return };
        if !matches!(&p.step, Step::Activating { waiting_for, local: true } if waiting_for.is_empty()) {
            return;
        }
        self.history.last_epoch_started = self.walk.since;
        if self.is_clean() {
            self.history.last_epoch_clean = self.walk.since;
            self.walk.past.clear();
        } else {
            let since = self.walk.since;
            self.walk.past.retain(|i| i.last >= since);
        }
        self.committed_to = self.log.head();
        tracing::debug!(osd = %cx.sh.whoami, pg = %self.id, since = %self.walk.since, head = %self.log.head(), "active");
        self.stage = Stage::Active;
        self.store_meta(cx);
        for osd in self.replicas(cx.sh.whoami).collect::<Vec<_>>() {
            let body = PgBody::Started { history: self.history };
            cx.send_pg(osd, self.id, self.round(), body, Durable::Now);
        }
        if self.is_clean() {
            self.remove_strays(cx);
        }
        self.figures.note_active(cx.now);
        self.backoffs.release_all(cx, self.coll);
        self.start_waiting(cx);
    }

    /// The PG serves; what came before this interval needs no remembering.
    pub(super) fn handle_started(&mut self, cx: &mut Cx<'_>, history: PeerHistory) {
        self.learn_history(history);
        let started = self.history.last_epoch_started;
        self.walk.past.retain(|i| i.last >= started);
        self.store_meta(cx);
    }

    fn learn_history(&mut self, h: PeerHistory) {
        self.history.last_epoch_started = self.history.last_epoch_started.max(h.last_epoch_started);
        self.history.last_epoch_clean = self.history.last_epoch_clean.max(h.last_epoch_clean);
    }

    /// True if an active PG has as many copies as the pool wants, where CRUSH wants them.
    pub(super) fn is_clean(&self) -> bool {
        let m = &self.walk.mapping;
        m.acting == m.up && m.acting.len() >= usize::from(m.size)
    }
}
