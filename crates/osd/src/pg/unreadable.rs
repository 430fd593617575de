//! An object that the copy everybody is to equal cannot read: another copy takes that one's place.
//!
//! Room: osd core.   Hears: reads that failed while pushing, here or where we pull.
//! Holds: whoever takes the place went active in the same interval, so it has every acknowledged write; if there is
//! nobody, the PG says that it is incomplete instead of waiting for something that will not come.
//! Why not one object from here and one from there: each object may have another best copy; until somebody needs that,
//! the choice of copies has one rule.
//! Upstream: PrimaryLogPG::on_failed_pull, PGBackend::on_local_recover_fail.

use super::peering::{Step, choose_auth};
use super::{Pg, Stage};
use crate::effects::Cx;
use types::msg::internal_osd::PeerInfo;
use types::{HObject, OsdId};

impl Pg {
    /// The copy we pull from cannot read an object.
    pub(super) fn handle_pull_failed(&mut self, cx: &mut Cx<'_>, from: OsdId, object: HObject) {
        if let Stage::Peering(p) = &self.stage
            && p.auth == from
            && matches!(p.step, Step::RecoverSelf(_))
        {
            self.object_unreadable(cx, from, object);
        }
    }

    /// `osd`, perhaps this one, cannot read an object that others need: it lacks it from now on. Peering starts over if
    /// another copy can be the authoritative one.
    pub(super) fn object_unreadable(&mut self, cx: &mut Cx<'_>, osd: OsdId, object: HObject) {
        let (me, started) = (cx.sh.whoami, self.history.last_epoch_started);
        let Stage::Peering(p) = &mut self.stage else { return };
        if let Some(info) = p.infos.get_mut(&osd) {
            *info = PeerInfo { missing: info.missing + 1, ..info.clone() };
        }
        if choose_auth(&p.infos, me, started).is_none() {
            tracing::error!(pg = %self.id, %osd, object = ?object, "no other copy can replace one that cannot be read");
            p.step = Step::Incomplete;
            self.pushes = Default::default();
            return self.peering_stuck(cx);
        }
        tracing::warn!(pg = %self.id, %osd, object = ?object, "another copy is looked for");
        if osd == me {
            let mut txn = self.transaction();
            self.add_missing(&mut txn, object);
            cx.submit(txn);
        } else {
            self.unreadable.entry(osd).or_default().insert(object);
        }
        self.pushes = Default::default();
        self.start_peering(cx);
    }
}
