//! How full disks are: ours, and those of the OSDs that we order writes for or push to.
//!
//! Room: osd core.   Owns: `Spaces`.   Hears: heartbeats, confirmations of writes, refusals of pushes.
//! Holds: what an OSD says of its disk counts until it says something else or is down; of whom nothing is known there is
//! room. Why not the map alone: it learns of a full disk through the manager and a majority of monitors, seconds later,
//! and a replica cannot refuse a write that its primary has ordered.
//! Upstream: OSDService::check_failsafe_full, check_backfill_full; osd_failsafe_full_ratio.

use crate::effects::Cx;
use std::collections::BTreeMap;
use std::time::Duration;
use types::OsdId;
use types::map::OsdMap;
use types::msg::internal_osd::DiskSpace;

/// How old what we know of our own disk may be. To ask costs a system call, and what small writes use meanwhile is little
/// beside what the store keeps back; what others push is counted.
const MOMENT: Duration = Duration::from_millis(10);

/// What other OSDs said last of their disks.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    peers: BTreeMap<OsdId, DiskSpace>,
}

impl Spaces {
    pub fn note(&mut self, osd: OsdId, space: DiskSpace) {
        self.peers.insert(osd, space);
    }

    /// It has refused something for want of room, by whatever limit of its own.
    pub fn note_full(&mut self, osd: OsdId) {
        self.note(osd, DiskSpace { available: 0, total: 1 });
    }

    /// An OSD that is down may come back with another disk.
    pub fn handle_map(&mut self, map: &OsdMap) {
        self.peers.retain(|osd, _| map.is_up(*osd));
    }
}

impl Cx<'_> {
    /// Our own disk, as of a moment ago.
    pub fn own_space(&self) -> DiskSpace {
        if let Some((at, space)) = self.sh.own_space.get()
            && self.now.mono - at < MOMENT
        {
            return space;
        }
        let (available, total) = self.disk.space();
        let space = DiskSpace { available: available.min(total), total };
        self.sh.own_space.set(Some((self.now.mono, space)));
        space
    }

    /// So many bytes more of our own disk are as good as used: much can arrive in a moment.
    pub fn take_space(&mut self, bytes: u64) {
        if let Some((at, mut space)) = self.sh.own_space.get() {
            space.available = space.available.saturating_sub(bytes);
            self.sh.own_space.set(Some((at, space)));
        }
    }

    fn space_of(&self, osd: OsdId) -> DiskSpace {
        match osd == self.sh.whoami {
            true => self.own_space(),
            false => self.sh.spaces.peers.get(&osd).copied().unwrap_or_default(),
        }
    }

    /// Fuller than data may make it (`osd_failsafe_full_ratio`): what is ordered now might not fit, and a store that cannot
    /// do what it was told ends its daemon.
    pub fn is_failsafe_full(&self, osd: OsdId) -> bool {
        let failsafe = f64::from(self.sh.limits.failsafe_full_per_mille) / 1000.0;
        self.space_of(osd).is_used_to(failsafe.max(self.sh.map.full_ratios().full.into()))
    }

    /// True if not even attributes and omaps may grow: what is left is for freeing space.
    pub fn is_exhausted(&self, osd: OsdId) -> bool {
        self.space_of(osd).is_used_to(1.0)
    }

    /// Too full to be filled further by backfill (`backfillfull_ratio`).
    pub fn is_backfill_full(&self, osd: OsdId) -> bool {
        let ratio = self.sh.map.full_ratios().backfillfull;
        ratio > 0.0 && self.space_of(osd).is_used_to(ratio.into()) || self.is_failsafe_full(osd)
    }
}
