//! Taking a map one epoch further.

use super::codec::MAP_FEATURES;
use super::{OsdInfo, OsdMap, OsdMapIncremental, OsdXInfo};
use crate::map::Release;
use crate::{AddrVec, Epoch, OsdId};
use denc::{DecodeError, Encoder};
use std::sync::Arc;
use uuid::Uuid;

/// Why an incremental cannot be applied. The map is as it was before, except after `Crc`, which is only found at the
/// end: then it must be thrown away and fetched whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("the incremental is for cluster {theirs}, the map for {ours}")]
    OtherCluster { ours: Uuid, theirs: Uuid },
    #[error("an incremental to epoch {inc} does not follow epoch {map}")]
    OtherEpoch { map: Epoch, inc: Epoch },
    #[error("the incremental names osd.{0}, which is above max_osd")]
    NoSuchOsd(OsdId),
    #[error("max_osd {0} is beyond reason")]
    TooManyOsds(i32),
    #[error("what it carries cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("the map it leads to has crc {ours:#x}, not {theirs:#x}")]
    Crc { ours: u32, theirs: u32 },
}

impl OsdMap {
    /// Applies `inc` and verifies the checksum of the result, where it `is_verifiable`.
    pub fn apply_incremental(&mut self, inc: &OsdMapIncremental) -> Result<(), ApplyError> {
        self.apply_unchecked(inc)?;
        if inc.fullmap.is_some() {
            return Ok(());
        }
        if !inc.is_verifiable() {
            self.crc = Some(inc.full_crc).filter(|crc| *crc != 0);
            return Ok(());
        }
        let ours = self.encode_with_crc(&mut Encoder::new(MAP_FEATURES));
        self.crc = Some(ours);
        if ours == inc.full_crc { Ok(()) } else { Err(ApplyError::Crc { ours, theirs: inc.full_crc }) }
    }

    /// Applies `inc` without looking at checksums: what a monitor does with the step it is about to publish.
    pub fn apply_unchecked(&mut self, inc: &OsdMapIncremental) -> Result<(), ApplyError> {
        if inc.epoch != Epoch(self.epoch.0.wrapping_add(1)) {
            return Err(ApplyError::OtherEpoch { map: self.epoch, inc: inc.epoch });
        }
        if inc.epoch != Epoch(1) && inc.fsid != self.fsid {
            return Err(ApplyError::OtherCluster { ours: self.fsid, theirs: inc.fsid });
        }
        if let Some(full) = &inc.fullmap {
            *self = denc::from_bytes(full)?;
            return Ok(());
        }
        self.check_osds(inc)?;
        let crush = inc.crush.as_ref().map(denc::from_bytes).transpose()?;

        (self.fsid, self.epoch, self.modified) = (inc.fsid, inc.epoch, inc.modified);
        self.crc = None;
        self.apply_pools(inc);
        self.apply_osds(inc);
        self.apply_overrides(inc);
        self.apply_settings(inc);
        if let Some(crush) = crush {
            self.crush = Arc::new(crush);
            let counts = self.require_osd_release >= Release::LUMINOUS;
            self.crush_version = self.crush_version.wrapping_add(counts.into());
            self.device_class_flags.retain(|class, _| self.crush.class_names.contains_key(class));
        }
        Ok(())
    }

    /// Every OSD the incremental touches must fit the vectors as they will be.
    fn check_osds(&self, inc: &OsdMapIncremental) -> Result<(), ApplyError> {
        let max_osd = inc.new_max_osd.unwrap_or(self.max_osd);
        if max_osd > Self::MAX_OSDS {
            return Err(ApplyError::TooManyOsds(max_osd));
        }
        let touched = (inc.new_state.keys())
            .chain(inc.new_weight.keys())
            .chain(inc.new_primary_affinity.keys())
            .chain(inc.new_up_client.keys())
            .chain(inc.new_up_cluster.keys())
            .chain(inc.new_up_thru.keys())
            .chain(inc.new_last_clean_interval.keys())
            .chain(inc.new_lost.keys())
            .chain(inc.new_xinfo.keys())
            .chain(inc.new_uuid.keys());
        match touched.copied().find(|osd| osd.0 < 0 || osd.0 >= max_osd) {
            Some(osd) => Err(ApplyError::NoSuchOsd(osd)),
            None => Ok(()),
        }
    }

    fn apply_pools(&mut self, inc: &OsdMapIncremental) {
        if let Some(max) = inc.new_pool_max {
            self.pool_max = max as i32;
        }
        for (id, pool) in &inc.new_pools {
            let mut pool = pool.clone();
            pool.last_change = self.epoch;
            self.pools.insert(*id, pool);
        }
        self.new_removed_snaps = inc.new_removed_snaps.clone();
        self.new_purged_snaps = inc.new_purged_snaps.clone();
        for (id, snaps) in &inc.new_removed_snaps {
            self.removed_snaps_queue.entry(*id).or_default().union(snaps);
        }
        for (id, snaps) in &inc.new_purged_snaps {
            if let Some(queue) = self.removed_snaps_queue.get_mut(id) {
                queue.subtract(snaps);
            }
        }
        // Only pools whose last snapshot went in this step leave the queue, as upstream has it.
        self.removed_snaps_queue.retain(|id, queue| !queue.is_empty() || !inc.new_purged_snaps.contains_key(id));
        self.pool_name.extend(inc.new_pool_names.iter().map(|(id, name)| (*id, name.clone())));
        for id in &inc.old_pools {
            self.pools.remove(id);
            self.pool_name.remove(id);
        }
        inc.old_erasure_code_profiles.iter().for_each(|name| drop(self.erasure_code_profiles.remove(name)));
        self.erasure_code_profiles.extend(inc.new_erasure_code_profiles.clone());
    }

    fn apply_osds(&mut self, inc: &OsdMapIncremental) {
        if let Some(max) = inc.new_max_osd {
            self.set_max_osd(max);
        }
        for (osd, weight) in &inc.new_weight {
            set(&mut self.osd_weight, *osd, *weight);
            if *weight != Self::WEIGHT_OUT {
                change(&mut self.osd_state, *osd, |s| {
                    // Whoever is in exists: `osd new` says no more than NEW and a weight.
                    *s = (*s | Self::STATE_EXISTS) & !(Self::STATE_AUTOOUT | Self::STATE_NEW);
                });
                change(&mut self.osd_xinfo, *osd, |x| x.old_weight = 0);
            }
        }
        inc.new_primary_affinity.iter().for_each(|(osd, affinity)| self.set_primary_affinity(*osd, *affinity));
        inc.new_state.iter().for_each(|(osd, bits)| self.flip_state(*osd, *bits));
        for (osd, addrs) in &inc.new_up_client {
            let of = |map: &std::collections::BTreeMap<OsdId, AddrVec>| map.get(osd).cloned().unwrap_or_default();
            change(&mut self.osd_state, *osd, |s| {
                *s = (*s | Self::STATE_EXISTS | Self::STATE_UP) & !Self::STATE_STOP;
            });
            set(&mut self.client_addrs, *osd, addrs.clone());
            set(&mut self.hb_back_addrs, *osd, of(&inc.new_hb_back_up));
            set(&mut self.hb_front_addrs, *osd, of(&inc.new_hb_front_up));
            let epoch = self.epoch;
            change(&mut self.osd_info, *osd, |i| i.up_from = epoch);
        }
        inc.new_up_cluster.iter().for_each(|(osd, addrs)| set(&mut self.cluster_addrs, *osd, addrs.clone()));
        inc.new_up_thru.iter().for_each(|(osd, e)| change(&mut self.osd_info, *osd, |i| i.up_thru = *e));
        for (osd, (begin, end)) in &inc.new_last_clean_interval {
            change(&mut self.osd_info, *osd, |i| (i.last_clean_begin, i.last_clean_end) = (*begin, *end));
        }
        inc.new_lost.iter().for_each(|(osd, e)| change(&mut self.osd_info, *osd, |i| i.lost_at = *e));
        inc.new_xinfo.iter().for_each(|(osd, x)| set(&mut self.osd_xinfo, *osd, x.clone()));
        inc.new_uuid.iter().for_each(|(osd, uuid)| set(&mut self.osd_uuid, *osd, *uuid));
    }

    /// XORs state bits; taking `STATE_EXISTS` away forgets everything about the OSD.
    fn flip_state(&mut self, osd: OsdId, bits: u32) {
        let bits = if bits == 0 { Self::STATE_UP } else { bits };
        let was = self.state(osd);
        let (epoch, stamp) = (self.epoch, self.modified);
        if was & bits & Self::STATE_UP != 0 {
            change(&mut self.osd_info, osd, |i| i.down_at = epoch);
            change(&mut self.osd_xinfo, osd, |x| x.down_stamp = stamp);
        }
        if was & bits & Self::STATE_EXISTS == 0 {
            set(&mut self.osd_state, osd, was ^ bits);
            return;
        }
        set(&mut self.osd_uuid, osd, Uuid::nil());
        set(&mut self.osd_info, osd, OsdInfo::default());
        set(&mut self.osd_xinfo, osd, OsdXInfo::default());
        self.set_primary_affinity(osd, Self::AFFINITY_DEFAULT);
        for addrs in
            [&mut self.client_addrs, &mut self.cluster_addrs, &mut self.hb_front_addrs, &mut self.hb_back_addrs]
        {
            set(addrs, osd, AddrVec::default());
        }
        set(&mut self.osd_state, osd, 0);
    }

    /// The list of affinities comes into being with the first OSD that has one, even the default.
    pub fn set_primary_affinity(&mut self, osd: OsdId, affinity: u32) {
        if self.osd_primary_affinity.is_empty() {
            self.osd_primary_affinity = vec![Self::AFFINITY_DEFAULT; self.osd_state.len()];
        }
        set(&mut self.osd_primary_affinity, osd, affinity);
    }

    fn apply_overrides(&mut self, inc: &OsdMapIncremental) {
        for (pg, osds) in &inc.new_pg_temp {
            match osds.is_empty() {
                true => drop(self.pg_temp.remove(pg)),
                false => drop(self.pg_temp.insert(*pg, osds.clone())),
            }
        }
        for (pg, osd) in &inc.new_primary_temp {
            match *osd {
                OsdId::NONE => self.primary_temp.remove(pg),
                osd => self.primary_temp.insert(*pg, osd),
            };
        }
        self.pg_upmap.extend(inc.new_pg_upmap.clone());
        self.pg_upmap.retain(|pg, _| !inc.old_pg_upmap.contains(pg));
        self.pg_upmap_items.extend(inc.new_pg_upmap_items.clone());
        self.pg_upmap_items.retain(|pg, _| !inc.old_pg_upmap_items.contains(pg));
        self.pg_upmap_primaries.extend(&inc.new_pg_upmap_primary);
        self.pg_upmap_primaries.retain(|pg, _| !inc.old_pg_upmap_primary.contains(pg));
    }

    fn apply_settings(&mut self, inc: &OsdMapIncremental) {
        self.flags = inc.new_flags.unwrap_or(self.flags);
        if !inc.new_last_up_change.is_zero() {
            self.last_up_change = inc.new_last_up_change;
        }
        if !inc.new_last_in_change.is_zero() {
            self.last_in_change = inc.new_last_in_change;
        }
        // Upstream inserts: an address that is listed already keeps its end.
        for (addr, until) in &inc.new_blocklist {
            self.blocklist.entry(*addr).or_insert(*until);
        }
        self.blocklist.retain(|addr, _| !inc.old_blocklist.contains(addr));
        for (addr, until) in &inc.new_range_blocklist {
            self.range_blocklist.entry(*addr).or_insert(*until);
        }
        self.range_blocklist.retain(|addr, _| !inc.old_range_blocklist.contains(addr));
        self.crush_node_flags.extend(&inc.new_crush_node_flags);
        self.crush_node_flags.retain(|_, flags| *flags != 0);
        self.device_class_flags.extend(&inc.new_device_class_flags);
        self.device_class_flags.retain(|_, flags| *flags != 0);
        self.cluster_snapshot = inc.cluster_snapshot.clone();
        self.cluster_snapshot_epoch = if inc.cluster_snapshot.is_empty() { Epoch(0) } else { inc.epoch };
        self.nearfull_ratio = inc.new_nearfull_ratio.unwrap_or(self.nearfull_ratio);
        self.backfillfull_ratio = inc.new_backfillfull_ratio.unwrap_or(self.backfillfull_ratio);
        self.full_ratio = inc.new_full_ratio.unwrap_or(self.full_ratio);
        if let Some(release) = inc.new_require_min_compat_client.filter(|r| *r > Release::UNKNOWN) {
            self.require_min_compat_client = release;
        }
        if let Some(release) = inc.new_require_osd_release {
            self.require_osd_release = release;
            self.imply_flags();
        }
        if inc.change_stretch_mode {
            self.stretch_mode_enabled = inc.stretch_mode_enabled;
            self.stretch_bucket_count = inc.new_stretch_bucket_count;
            self.degraded_stretch_mode = inc.new_degraded_stretch_mode;
            self.recovering_stretch_mode = inc.new_recovering_stretch_mode;
            self.stretch_mode_bucket = inc.new_stretch_mode_bucket;
        }
    }
}

/// Replaces the element of an OSD; `check_osds` has made sure that it is there.
fn set<T>(list: &mut [T], osd: OsdId, value: T) {
    change(list, osd, |slot| *slot = value);
}

fn change<T>(list: &mut [T], osd: OsdId, edit: impl FnOnce(&mut T)) {
    if let Some(slot) = usize::try_from(osd.0).ok().and_then(|i| list.get_mut(i)) {
        edit(slot);
    }
}
