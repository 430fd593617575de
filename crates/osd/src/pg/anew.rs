//! A placement group that has lost too much begins anew, with nothing in it, on an operator's order (`osd force-create-pg`).
//!
//! Room: osd core.   Hears: the order, passed on by the manager; the primary's word that a copy is void.
//! Holds: only a PG that is incomplete begins anew, and an order that is not carried out when its interval ends is void: somebody may
//! have come back with what was lacking. From when the primary's new copy is durable, the copies of before are void wherever they come
//! from, unless the PG went active with them later: of two beginnings that counts with which the newer thing happened, a beginning or an
//! interval that went active. Void copies are deleted before they take part again, so none of their objects comes back.
//! Why not as stock does (an operator removes what is left of every copy with the daemons stopped, then gives the order): what the
//! order means is the same, and a copy that is overlooked, because its OSD is away, is not taken for one later.

use super::peering::Step;
use super::{Pg, Stage};
use crate::effects::{Cx, Durable};
use types::msg::internal_osd::{PeerHistory, PeerInfo, PgBody, Round};
use types::{Epoch, OsdId};

/// This copy is deleted, to be an empty one of a PG that begins anew.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anew {
    /// When the PG began, or 0: it has never begun anew.
    pub began: Epoch,
    /// The primary that waits for it.
    pub told_by: Option<(OsdId, Round)>,
}

/// What decides between two beginnings of a PG: when something last happened with the one that a copy is of.
fn weight(info: &PeerInfo) -> (Epoch, Epoch) {
    (info.last_epoch_started.max(info.history.began_anew), info.history.began_anew)
}

impl Pg {
    /// As the primary of an incomplete PG: give up whatever is left of it. False if it is not one.
    pub fn force_create(&mut self, cx: &mut Cx<'_>) -> bool {
        let is_incomplete = matches!(self.peering().map(|p| &p.step), Some(Step::Incomplete));
        if is_incomplete {
            tracing::warn!(osd = %cx.sh.whoami, pg = %self.id, "an operator gives up what is left: the PG begins anew");
            self.begin_anew(cx, Anew { began: cx.sh.map.epoch, told_by: None });
        }
        is_incomplete
    }

    /// Deletes this copy; an empty one takes its place.
    fn begin_anew(&mut self, cx: &mut Cx<'_>, anew: Anew) {
        self.anew = Some(anew);
        self.start_removal(cx);
    }

    /// Our copy is of a beginning that does not count.
    pub(super) fn handle_void(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, began: Epoch) {
        let anew = Anew { began, told_by: Some((from, round)) };
        match self.stage {
            // The primary asks again.
            Stage::Removing if self.anew.is_some() => self.anew = Some(anew),
            Stage::Follower { active: false } if self.history.began_anew == began => self.send_info(cx, from, round),
            Stage::Follower { active: false } => self.begin_anew(cx, anew),
            _ => {}
        }
    }

    /// Nothing is left of the old copy.
    pub(super) fn emptied(&mut self, cx: &mut Cx<'_>) {
        let Some(anew) = self.anew.take_if(|_| !self.exists_on_disk) else { return };
        self.watches.drop_all(&mut cx.sh.orphaned);
        let empty = Pg::new(self.id, std::mem::take(&mut self.walk));
        let old = std::mem::replace(self, empty);
        (self.round, self.figures, self.waiting, self.backoffs) = (old.round, old.figures, old.waiting, old.backoffs);
        self.history = PeerHistory { epoch_created: anew.began.max(self.walk.created), began_anew: anew.began, ..PeerHistory::default() };
        self.forget_before(anew.began);
        self.start_interval(cx);
        if let Some((primary, round)) = anew.told_by {
            self.send_info(cx, primary, round);
        }
    }

    /// Nothing of what was written before this epoch is wanted any more.
    fn forget_before(&mut self, began: Epoch) {
        self.walk.past.retain(|i| i.last >= began);
    }

    /// With every copy's description here: those of a beginning that does not count are told so, and asked for anew. True if peering has
    /// to wait for that.
    pub(super) fn waits_for_void_copies(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(p) = self.peering() else { return false };
        let Some(began) = p.infos.values().filter(|i| i.exists).max_by_key(|i| weight(i)).map(|i| i.history.began_anew) else { return false };
        if self.history.began_anew != began {
            self.begin_anew(cx, Anew { began, told_by: None });
            return true;
        }
        let (inside, outside): (Vec<OsdId>, Vec<OsdId>) =
            p.infos.iter().filter(|(_, i)| self.is_void(i)).map(|(osd, _)| *osd).partition(|osd| self.walk.mapping.involves(*osd));
        self.forget_before(began);
        for osd in &inside {
            cx.send_pg(*osd, self.id, self.round(), PgBody::Void { began }, Durable::Now);
        }
        let Some(p) = self.peering_mut() else { return false };
        for osd in outside {
            if let Some(info) = p.infos.get_mut(&osd) {
                *info = PeerInfo { born: info.born, ..PeerInfo::default() };
            }
        }
        if inside.is_empty() {
            return false;
        }
        p.step = Step::GetInfo { waiting_for: inside.into_iter().collect() };
        true
    }

    /// True for a copy that is of another beginning than ours.
    pub(super) fn is_void(&self, info: &PeerInfo) -> bool {
        info.exists && info.history.began_anew != self.history.began_anew
    }
}
