//! When a PG may recover or backfill: a slot of our own, then one of every copy that gets something.
//!
//! Room: osd core.   Owns: `Slots`, one per PG.   Hears: both reservers, copies' answers, time, operators.
//! Holds: what no client waits for moves only while all slots are held; what a client waits for moves at once. Slots are
//! asked for anew when recovery by log is over and backfill begins, for that is less urgent, and given back as soon as
//! nothing is left to be started: what is still on its way does not keep the next PG waiting.
//! Whoever waits for a copy's slot asks again from time to time: an answer may be lost with its session. A copy that lost
//! its session with the primary gives the slot to others: its primary may have given it back.
//! Upstream: doc/dev/osd_internals/backfill_reservation.rst; PeeringState::get_recovery_priority, get_backfill_priority.

use super::{Pg, Stage};
use crate::effects::{Cx, Durable};
use crate::reserver::SlotNews;
use std::collections::{BTreeSet, VecDeque};
use types::map::pool_opts::{PoolOptKey, PoolOptValue};
use types::msg::internal::OsdForceRecovery;
use types::msg::internal_osd::{PgBody, Round};
use types::pg::PgState;
use types::{OsdId, PgId};

/// How far the primary is.
#[derive(Debug, Default)]
enum Step {
    #[default]
    None,
    /// Waits for our own.
    Local,
    /// Waits for that of the first of these.
    Remote(VecDeque<OsdId>),
    Held,
}

/// A PG's slots.
#[derive(Debug, Default)]
pub(super) struct Slots {
    step: Step,
    /// They are for backfill.
    backfill: bool,
    /// Copies that were asked.
    asked: BTreeSet<OsdId>,
    /// An operator wants it before others.
    forced_recovery: bool,
    forced_backfill: bool,
    /// As a copy: whom to tell that its slot is granted.
    asker: Option<(OsdId, Round)>,
}

impl Slots {
    pub fn are_held(&self) -> bool {
        matches!(self.step, Step::Held)
    }
}

/// `OSD_RECOVERY_PRIORITY_FORCED`, `OSD_BACKFILL_PRIORITY_FORCED`.
const FORCED_RECOVERY: u8 = 255;
const FORCED_BACKFILL: u8 = 254;

/// What makes a PG urgent.
#[derive(Debug, Clone, Copy)]
struct Risk {
    backfill: bool,
    /// Whole copies, and how many there should be at least and in all.
    whole: usize,
    min_size: usize,
    acting: usize,
    size: usize,
    degraded: bool,
    pool_priority: i64,
}

impl Risk {
    fn priority(self) -> u8 {
        let (base, plus, most) = match self.backfill {
            false if self.degraded && self.whole < self.min_size => (220, self.min_size - self.whole, 253),
            false => (180, 0, 219),
            true if self.acting < self.min_size => (220, self.min_size - self.acting, 253),
            true if self.acting < self.size => (140, self.size - self.acting, 179),
            true if self.degraded => (140, 0, 179),
            true => (100, 0, 139),
        };
        (base + plus as i64 + self.pool_priority.clamp(-10, 10)).clamp(0, most) as u8
    }
}

impl Pg {
    /// Asks for slots if there is something to start, and gives them back if there is not.
    pub(super) fn settle_slots(&mut self, cx: &mut Cx<'_>, may: bool) {
        let backfill = self.recovery.is_backfill();
        let wanted = may && self.recovery.has_more();
        if !matches!(self.slots.step, Step::None) && (!wanted || self.slots.backfill != backfill) {
            self.release_slots(cx);
        }
        if wanted && matches!(self.slots.step, Step::None) {
            self.slots.backfill = backfill;
            self.slots.step = Step::Local;
            cx.sh.local_slots.request(self.id, self.slot_priority(cx));
        }
    }

    /// Gives up everything that is held or waited for as the primary.
    pub(super) fn release_slots(&mut self, cx: &mut Cx<'_>) {
        cx.sh.local_slots.cancel(self.id);
        for osd in std::mem::take(&mut self.slots.asked) {
            cx.send_pg(osd, self.id, self.round(), PgBody::ReleaseSlot, Durable::Now);
        }
        self.slots.step = Step::None;
    }

    /// The interval is over, here and with everybody.
    pub(super) fn drop_slots(&mut self, cx: &mut Cx<'_>) {
        cx.sh.local_slots.cancel(self.id);
        cx.sh.remote_slots.cancel(self.id);
        let s = &mut self.slots;
        *s = Slots { forced_recovery: s.forced_recovery, forced_backfill: s.forced_backfill, ..Slots::default() };
    }

    fn slot_priority(&self, cx: &Cx<'_>) -> u8 {
        let (m, backfill) = (&self.walk.mapping, self.slots.backfill);
        if self.slots.forced_recovery && !backfill {
            return FORCED_RECOVERY;
        }
        if self.slots.forced_backfill && backfill {
            return FORCED_BACKFILL;
        }
        let whole = |osd: &&OsdId| if **osd == m.primary { self.missing.is_empty() } else { self.recovery.lacks(**osd) == 0 };
        let pool = cx.sh.map.pool_by_id(self.id.pool);
        let pool_priority = match pool.and_then(|p| p.opts.get(PoolOptKey::RECOVERY_PRIORITY)) {
            Some(PoolOptValue::Int(n)) => *n,
            _ => 0,
        };
        let risk = Risk {
            backfill,
            whole: m.acting.iter().filter(whole).count(),
            min_size: m.min_size as usize,
            acting: m.acting.len(),
            size: m.size as usize,
            degraded: self.is_degraded(),
            pool_priority,
        };
        risk.priority()
    }

    /// News of our own slot.
    pub fn handle_local_slot(&mut self, cx: &mut Cx<'_>, news: SlotNews) {
        match (news, &self.slots.step) {
            (SlotNews::Granted, Step::Local) => {
                self.slots.step = Step::Remote(self.recovery.receivers().into_iter().collect());
                self.next_slot(cx);
            }
            (SlotNews::Granted, _) => {}
            (SlotNews::Preempted, _) => self.wait_again(cx),
        }
    }

    /// Asks the next copy, or begins.
    fn next_slot(&mut self, cx: &mut Cx<'_>) {
        let Step::Remote(left) = &self.slots.step else { return };
        let Some(osd) = left.front().copied() else {
            self.slots.step = Step::Held;
            return self.recover(cx);
        };
        self.slots.asked.insert(osd);
        let body = PgBody::ReserveSlot { priority: self.slot_priority(cx) };
        cx.send_pg(osd, self.id, self.round(), body, Durable::Now);
    }

    /// A copy grants its slot, or takes it back.
    pub(super) fn handle_slot_reserved(&mut self, cx: &mut Cx<'_>, from: OsdId, granted: bool) {
        if !self.slots.asked.contains(&from) {
            // It has not heard yet that we gave it back.
            return;
        }
        match (&mut self.slots.step, granted) {
            (Step::Remote(left), true) if left.front() == Some(&from) => {
                left.pop_front();
                self.next_slot(cx);
            }
            (_, true) => {}
            (_, false) => self.wait_again(cx),
        }
    }

    /// Somebody more urgent goes first.
    fn wait_again(&mut self, cx: &mut Cx<'_>) {
        self.release_slots(cx);
        self.recover(cx);
    }

    /// Asks again for a slot that we wait for.
    pub(super) fn ask_slot_again(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.stage, Stage::Active) {
            self.next_slot(cx);
        }
    }

    /// As a copy: the primary wants a slot.
    pub(super) fn handle_reserve_slot(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, priority: u8) {
        if matches!(self.stage, Stage::Follower { .. }) && from == self.walk.mapping.primary {
            self.slots.asker = Some((from, round));
            cx.sh.remote_slots.request(self.id, priority);
        }
    }

    /// As a copy: the primary is done with it, or may be.
    pub(super) fn handle_release_slot(&mut self, cx: &mut Cx<'_>, from: OsdId) {
        if self.slots.asker.take_if(|(asker, _)| *asker == from).is_some() {
            cx.sh.remote_slots.cancel(self.id);
        }
    }

    /// As a copy: news for the primary.
    pub fn handle_remote_slot(&mut self, cx: &mut Cx<'_>, news: SlotNews) {
        let Some((asker, round)) = self.slots.asker else { return cx.sh.remote_slots.cancel(self.id) };
        let body = PgBody::SlotReserved { granted: news == SlotNews::Granted };
        cx.send_pg(asker, self.id, round, body, Durable::Now);
    }

    /// An operator wants this PG before others, or not any more.
    pub fn force_recovery(&mut self, cx: &mut Cx<'_>, order: &OsdForceRecovery) {
        let to = !order.cancel;
        match order.backfill {
            true => self.slots.forced_backfill = to && !self.recovery.done,
            false => self.slots.forced_recovery = to && !self.recovery.done,
        }
        match self.slots.step {
            Step::None => {}
            // With its priority it changes its place.
            Step::Local | Step::Held => cx.sh.local_slots.request(self.id, self.slot_priority(cx)),
            Step::Remote(_) => {
                cx.sh.local_slots.request(self.id, self.slot_priority(cx));
                self.next_slot(cx);
            }
        }
    }

    /// Nothing is left to recover.
    pub(super) fn forget_force(&mut self) {
        (self.slots.forced_recovery, self.slots.forced_backfill) = (false, false);
    }

    pub(super) fn forced_state(&self) -> PgState {
        let bit = |set: bool, bit: PgState| if set { bit } else { PgState::UNKNOWN };
        bit(self.slots.forced_recovery, PgState::FORCED_RECOVERY) | bit(self.slots.forced_backfill, PgState::FORCED_BACKFILL)
    }

    /// Where it waits, for operators.
    pub(super) fn slots_line(&self) -> String {
        format!("{:?}", self.slots.step)
    }
}

/// What both reservers have to say is told to the PGs. True if there was anything.
pub(crate) fn tell_slots(cx: &mut Cx<'_>, pgs: &mut std::collections::BTreeMap<PgId, Pg>) -> bool {
    let (local, remote) = (cx.sh.local_slots.take_news(), cx.sh.remote_slots.take_news());
    let any = !local.is_empty() || !remote.is_empty();
    for (id, news) in local {
        match pgs.get_mut(&id) {
            Some(pg) => pg.handle_local_slot(cx, news),
            None => cx.sh.local_slots.cancel(id),
        }
    }
    for (id, news) in remote {
        match pgs.get_mut(&id) {
            Some(pg) => pg.handle_remote_slot(cx, news),
            None => cx.sh.remote_slots.cancel(id),
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: Risk = Risk { backfill: false, whole: 2, min_size: 2, acting: 3, size: 3, degraded: true, pool_priority: 0 };

    #[test]
    fn what_is_at_risk_goes_first() {
        assert_eq!(SOUND.priority(), 180);
        assert_eq!(Risk { whole: 1, ..SOUND }.priority(), 221);
        let backfill = Risk { backfill: true, ..SOUND };
        assert_eq!(backfill.priority(), 140);
        assert_eq!(Risk { degraded: false, ..backfill }.priority(), 100);
        assert_eq!(Risk { acting: 2, ..backfill }.priority(), 141);
        assert_eq!(Risk { acting: 1, ..backfill }.priority(), 221);
    }

    #[test]
    fn a_pools_priority_counts_within_its_kind() {
        assert_eq!(Risk { pool_priority: 10, ..SOUND }.priority(), 190);
        assert_eq!(Risk { pool_priority: -7, ..SOUND }.priority(), 173);
        assert_eq!(Risk { pool_priority: 99, ..SOUND }.priority(), 190);
    }
}
