//! Going active: every acting copy notes the interval on its disk, then the PG serves.
//!
//! With too few copies to serve it only recovers, and leaves no marks: nothing can be acknowledged in such an interval.
//!
//! Holds: before the first write of an interval the map says that its primary was alive in it, and every acting copy
//! carries its mark. So whoever peers later knows that the interval counts, and whom to ask. What came before is kept in
//! mind until every acting copy has every object: until then a copy from an earlier interval may be the only one.
//! What a copy notes of an interval in which it went active is a promise: it has everything that was acknowledged there. One
//! that is filled while enough others act is not waited for, and notes it when it has everything, for from then on it is.

use super::peering::Step;
use super::{Pg, Stage};
use crate::effects::{Cx, Durable, PgStep, TxcRoute};
use types::OsdId;
use types::msg::internal_osd::{PeerHistory, PgBody, Round};

impl Pg {
    pub(super) fn wait_up_thru(&mut self, cx: &mut Cx<'_>) {
        match self.up_thru_ok(cx) {
            true => self.wait_unread(cx),
            false => self.ask_up_thru(cx),
        }
    }

    pub(super) fn activate(&mut self, cx: &mut Cx<'_>) {
        let waiting_for = self.replicas(cx.sh.whoami).filter(|osd| !self.is_outrun(*osd)).collect();
        let Stage::Peering(p) = &mut self.stage else { return };
        p.step = Step::Activating { waiting_for, local: false };
        let serves = self.serves();
        if serves {
            self.last_epoch_started = self.walk.since;
        }
        let mut txn = self.transaction();
        self.put_meta(&mut txn);
        let route = TxcRoute::Pg { pgid: self.id, round: self.round(), step: PgStep::SelfActivated };
        cx.submit_routed(txn, route);
        self.replicas(cx.sh.whoami).for_each(|osd| self.send_activate(cx, osd));
    }

    pub(super) fn send_activate(&self, cx: &mut Cx<'_>, osd: OsdId) {
        let body = PgBody::Activate { history: self.history, serves: self.serves() };
        cx.send_pg(osd, self.id, self.round(), body, Durable::Now);
    }

    /// The primary starts the interval.
    pub(super) fn handle_activate(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, history: PeerHistory, serves: bool) {
        if !matches!(self.stage, Stage::Follower { .. }) {
            return;
        }
        self.stage = Stage::Follower { active: true };
        // A copy that writes do not wait for is in the interval when it has all of them: see `handle_started`.
        if serves && !self.is_outrun(cx.sh.whoami) {
            self.last_epoch_started = self.walk.since;
        }
        self.learn_history(history);
        // Our totals are the primary's now. Later ones, if nobody writes, we do not hear of: then we would have to count, too.
        self.history.approximate = history.approximate;
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

    /// With every mark on its disk the PG serves, if there are copies enough.
    fn maybe_active(&mut self, cx: &mut Cx<'_>) {
        let Stage::Peering(p) = &self.stage else { return };
        if !matches!(&p.step, Step::Activating { waiting_for, local: true } if waiting_for.is_empty()) {
            return;
        }
        let serves = self.serves();
        if serves {
            self.history.last_epoch_started = self.walk.since;
        }
        let Stage::Peering(p) = &self.stage else { return };
        let outside = |osd: &&OsdId| !self.walk.mapping.acting.contains(osd);
        let holders = p.infos.iter().filter(|(_, i)| i.exists).map(|(osd, _)| osd).filter(outside);
        for osd in holders.copied().collect::<Vec<_>>() {
            self.recovery.note_holder(osd);
        }
        let Stage::Peering(p) = &self.stage else { return };
        for osd in p.infos.iter().filter(|(_, i)| !i.exists).map(|(osd, _)| *osd).collect::<Vec<_>>() {
            self.recovery.note_empty(osd);
        }
        self.committed_to = self.log.head();
        tracing::debug!(osd = %cx.sh.whoami, pg = %self.id, since = %self.walk.since, head = %self.log.head(), serves, "active");
        self.stage = Stage::Active;
        if serves {
            self.figures.note_active(cx.now);
        }
        if self.history.scrubs.last_scrub_stamp.is_zero() {
            // Until the first scrub, the PG's beginning counts.
            let (s, now) = (&mut self.history.scrubs, cx.now.wall);
            (s.last_scrub_stamp, s.last_deep_scrub_stamp, s.last_clean_scrub_stamp) = (now, now, now);
        }
        self.start_recovery(cx);
        if !self.recovery.done {
            self.store_meta(cx);
            self.say_started(cx);
        }
        if !serves {
            return self.back_off_waiting(cx);
        }
        self.backoffs.release_all(cx);
        if self.takes_ops() {
            self.start_waiting(cx);
        }
    }

    /// Every copy has everything: what came before this interval needs no remembering, and those whom CRUSH wants can act.
    pub(super) fn recovered(&mut self, cx: &mut Cx<'_>) {
        tracing::debug!(osd = %cx.sh.whoami, pg = %self.id, since = %self.walk.since, "recovered");
        self.told_whole = self.walk.since;
        self.forget_force();
        let whole = self.replicas(cx.sh.whoami).chain([cx.sh.whoami]).collect();
        let want = self.wanted_acting(cx, &whole, cx.sh.whoami, |osd| (self.shards.get(&osd), Default::default()));
        self.ask_acting(cx, want);
        if self.is_clean() {
            self.history.last_epoch_clean = self.walk.since;
            self.walk.past.clear();
        } else if self.serves() {
            let since = self.walk.since;
            self.walk.past.retain(|i| i.last >= since);
        }
        self.store_meta(cx);
        self.say_started(cx);
        if self.is_clean() {
            self.remove_strays(cx);
            cx.sh.merge_news |= self.walk.mapping.premerge;
        }
    }

    pub(super) fn say_started(&self, cx: &mut Cx<'_>) {
        for osd in self.replicas(cx.sh.whoami) {
            self.say_started_to(cx, osd);
        }
    }

    pub(super) fn say_started_to(&self, cx: &mut Cx<'_>, osd: OsdId) {
        let body = PgBody::Started { history: self.history, recovered: self.recovery.done };
        cx.send_pg(osd, self.id, self.round(), body, Durable::Now);
    }

    /// The PG serves; when it is recovered, what came before this interval needs no remembering.
    pub(super) fn handle_started(&mut self, cx: &mut Cx<'_>, history: PeerHistory, recovered: bool) {
        self.learn_history(history);
        if recovered && self.serves() {
            self.last_epoch_started = self.walk.since;
        }
        if recovered {
            let started = self.history.last_epoch_started;
            self.walk.past.retain(|i| i.last >= started);
        }
        self.store_meta(cx);
    }

    fn learn_history(&mut self, h: PeerHistory) {
        self.history.last_epoch_started = self.history.last_epoch_started.max(h.last_epoch_started);
        self.history.last_epoch_clean = self.history.last_epoch_clean.max(h.last_epoch_clean);
        self.history.approximate |= h.approximate;
        self.history.began_anew = h.began_anew;
        self.learn_scrubs(h.scrubs);
    }

    /// True if an active PG has as many copies as the pool wants, none lacks anything, and CRUSH has nobody better.
    pub(super) fn is_clean(&self) -> bool {
        let m = &self.walk.mapping;
        self.recovery.done && self.acting_asked.is_none() && m.acting.len() >= usize::from(m.size) && self.serves()
    }
}
