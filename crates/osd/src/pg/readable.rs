//! Who may read: clients of this PG, as long as its leases hold; and earlier primaries, until theirs are over.
//!
//! Holds: no interval goes active while the primary of an earlier one may answer reads and know nothing of it. Whatever
//! went active, therefore, needs no question about what was before.
//! Upstream: doc/dev/osd_internals/stale_read.rst; there a PG is active and waits, here it waits before it goes active.

use super::peering::Step;
use super::{Pg, Stage};
use crate::effects::Cx;
use std::time::Duration;
use types::map::OsdMap;
use types::{Epoch, Mono, OsdId};

/// A promise as infos tell of it, in milliseconds, rounded up.
fn millis(left: Duration) -> u32 {
    left.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(u32::MAX)
}

/// The last epoch of which it is known that whoever ran as `osd` before it, and perhaps in it, reads no more: it started anew, or
/// it is gone and somebody is certain of that.
fn silent_since(map: &OsdMap, osd: OsdId) -> Epoch {
    let dead = map.xinfo(osd).map(|x| x.dead_epoch).unwrap_or_default();
    map.info(osd).map_or(dead, |i| dead.max(i.up_from).max(i.lost_at))
}

impl Pg {
    /// True if what is read here is what was written last: no other OSD may have taken over.
    pub(super) fn is_readable(&self, cx: &Cx<'_>) -> bool {
        let others = self.walk.mapping.acting.iter().copied().filter(|osd| *osd != cx.sh.whoami);
        cx.sh.leases.are_held(cx.now.mono, others)
    }

    /// How long those who once acted may still read by what this OSD has promised them.
    pub(super) fn promised(&self, cx: &Cx<'_>) -> Vec<(OsdId, u32)> {
        let mut osds: Vec<OsdId> = self.walk.past.iter().flat_map(|i| i.acting.iter().copied()).filter(|o| *o != cx.sh.whoami).collect();
        osds.sort_unstable();
        osds.dedup();
        let left = osds.into_iter().map(|osd| (osd, millis(cx.sh.leases.remains(cx.now.mono, osd))));
        left.filter(|(_, ms)| *ms > 0).collect()
    }

    /// When the last of those who may not know of this interval reads no more.
    fn unread_from(&self, cx: &Cx<'_>) -> Mono {
        let Some(p) = self.peering() else { return Mono(0) };
        let mut until = Mono(0);
        for past in self.rw_intervals(self.history.last_epoch_started) {
            let unaware = |osd: &&OsdId| !p.infos.contains_key(osd) && silent_since(&cx.sh.map, **osd) <= past.last;
            for reader in past.acting.iter().filter(unaware) {
                // It read as long as all of them let it.
                let givers = past.acting.iter().filter(|osd| p.infos.get(osd).is_some_and(|i| i.exists));
                let ends = givers.map(|osd| p.promises.get(&(*osd, *reader)).copied().unwrap_or_default());
                until = until.max(ends.min().unwrap_or(p.began + cx.sh.leases.lasts));
            }
        }
        until
    }

    /// Goes active when nobody else can be read any more.
    pub(super) fn wait_unread(&mut self, cx: &mut Cx<'_>) {
        let until = self.unread_from(cx);
        if !self.serves() || until <= cx.now.mono {
            return self.activate(cx);
        }
        tracing::debug!(osd = %cx.sh.whoami, pg = %self.id, since = %self.walk.since, left = ?(until - cx.now.mono), "somebody may still be read");
        if let Some(step) = self.step_mut() {
            *step = Step::WaitUnread { until };
        }
    }

    /// Time passes, or promises have come.
    pub(super) fn wait_unread_again(&mut self, cx: &mut Cx<'_>) {
        if matches!(&self.stage, Stage::Peering(p) if matches!(p.step, Step::WaitUnread { until } if until <= cx.now.mono)) {
            self.wait_unread(cx);
        }
    }
}
