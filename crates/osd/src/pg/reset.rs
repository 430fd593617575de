//! A session with another OSD was lost and the OSD was not: what was on its way, there or back, is said again.
//!
//! Room: osd core.   Hears: that a peer forgot our session, or says that we forgot its.
//! Holds: whoever waits asks again, so the side that answers keeps no list of answers; whatever comes twice because of
//! that changes nothing the second time.
//! Why not a new interval: nothing is wrong with the copies, and no map will come.
//! Upstream: OSD::ms_handle_reset and ProtocolV2::reset_session; there the map soon marks such an OSD down.

use super::peering::Step;
use super::{Pg, Stage};
use crate::effects::{Cx, Durable};
use types::OsdId;
use types::msg::internal_osd::PgBody;

impl Pg {
    /// Says again to `osd`, and asks it again, what may be lost.
    pub fn handle_peer_reset(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        match &self.stage {
            Stage::Removing => return,
            Stage::Follower { .. } if osd == self.walk.mapping.primary => {
                self.handle_release_slot(cx, osd);
                self.drop_pushes_to(osd);
                self.offer_stray(cx)
            }
            Stage::Follower { .. } => {}
            Stage::Peering(_) => self.peering_reset(cx, osd),
            Stage::Active if self.replicas(cx.sh.whoami).any(|o| o == osd) => {
                if self.is_outrun(osd) {
                    // It may not have begun.
                    self.merge_peer_again(cx, osd);
                    self.send_activate(cx, osd);
                }
                self.say_started_to(cx, osd);
                self.backfill_again(cx, osd);
                self.resend_repops(cx, osd);
                self.recovery_reset(cx, osd);
            }
            Stage::Active => self.recovery_reset(cx, osd),
        }
        self.gather_reset(cx, osd);
        self.scrub_reset(cx, osd);
        self.ask_copies_again(cx);
    }

    fn peering_reset(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        let (id, round) = (self.id, self.round());
        self.merge_peer_again(cx, osd);
        let is_outrun = self.is_outrun(osd) && self.replicas(cx.sh.whoami).any(|o| o == osd);
        let Stage::Peering(p) = &mut self.stage else { return };
        match &mut p.step {
            Step::GetInfo { waiting_for } if waiting_for.contains(&osd) => {
                cx.send_pg(osd, id, round, PgBody::Query, Durable::Now);
            }
            Step::GetLog if p.auth == osd => self.get_log(cx, osd),
            Step::Activating { waiting_for, .. } if is_outrun || waiting_for.contains(&osd) => self.send_activate(cx, osd),
            _ => {}
        }
    }
}
