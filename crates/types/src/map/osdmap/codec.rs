//! The map's encoding: a part for clients, a part for OSDs, a checksum.
//!
//! Holds: the crc32c (seed -1) covers everything but its own four bytes.

use super::OsdMap;
use crate::map::Release;
use crate::{AddrVec, EntityAddr, PoolId, Utime};
use crush::CrushMap;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::sync::Arc;
use std::collections::BTreeMap;

/// The features whose encoding of the map this is: what a 16.2 cluster has.
pub const MAP_FEATURES: u64 = crate::features::SUPPORTED;
/// Those of them that make a difference to the encoding, as every incremental names them (`SIGNIFICANT_FEATURES`).
pub const SIGNIFICANT_FEATURES: u64 = 0x0f00_0880_1021_2a04;
/// Version of the incremental's part for clients that we write.
pub(super) const INC_CLIENT_VERSION: u8 = 8;

/// Runs `body` in the outer envelope, then patches in the checksum of all but itself, which `body` left room for:
/// it returns where. `tail` bytes of the envelope follow the checksum.
pub(super) fn encode_checked(e: &mut Encoder, body: impl FnOnce(&mut Encoder) -> usize) -> u32 {
    let start = e.len();
    let mut at = 0;
    e.envelope(8, 7, |e| at = body(e));
    let bytes = e.as_slice();
    let front = bytes.get(start..at).unwrap_or_default();
    let tail = bytes.get(at + 4..).unwrap_or_default();
    let crc = ceph_crc(ceph_crc(u32::MAX, front), tail);
    e.patch_u32(at, crc);
    crc
}

/// crc32c as upstream runs it: the seed is the register itself, and nothing is inverted at the end.
pub(super) fn ceph_crc(seed: u32, bytes: &[u8]) -> u32 {
    !denc::crc32c_append(!seed, bytes)
}

impl OsdMap {
    /// The encoding and its checksum.
    pub fn encode_with_crc(&self, e: &mut Encoder) -> u32 {
        encode_checked(e, |e| {
            e.envelope(if self.pg_upmap_primaries.is_empty() { 9 } else { 10 }, 1, |e| self.encode_client(e));
            e.envelope(self.osd_only_version(), 1, |e| self.encode_osd_only(e));
            let at = e.len();
            e.put(&0u32);
            at
        })
    }

    /// The map as published: encoded, with its checksum noted in `self.crc`.
    pub fn publish(&mut self) -> denc::Bytes {
        let mut e = Encoder::new(MAP_FEATURES);
        self.crc = Some(self.encode_with_crc(&mut e));
        e.finish()
    }

    /// As old as what is in it allows: 16.2 does the same.
    fn osd_only_version(&self) -> u8 {
        match (self.range_blocklist.is_empty(), self.stretch_mode_enabled) {
            (false, _) => 11,
            (true, true) => 10,
            (true, false) => 9,
        }
    }

    fn encode_client(&self, e: &mut Encoder) {
        e.put(&self.fsid).put(&self.epoch).put(&self.created).put(&self.modified);
        e.put(&self.pools).put(&self.pool_name).put(&self.pool_max).put(&self.flags);
        e.put(&self.max_osd).put(&self.osd_state).put(&self.osd_weight).put(&self.client_addrs);
        e.put(&self.pg_temp).put(&self.primary_temp).put(&self.osd_primary_affinity);
        e.blob(&denc::to_bytes(&*self.crush, MAP_FEATURES)).put(&self.erasure_code_profiles);
        e.put(&self.pg_upmap).put(&self.pg_upmap_items);
        e.put(&self.crush_version).put(&self.new_removed_snaps).put(&self.new_purged_snaps);
        e.put(&self.last_up_change).put(&self.last_in_change);
        if !self.pg_upmap_primaries.is_empty() {
            e.put(&self.pg_upmap_primaries);
        }
    }

    fn encode_osd_only(&self, e: &mut Encoder) {
        e.put(&self.hb_back_addrs).put(&self.osd_info).put(&self.blocklist).put(&self.cluster_addrs);
        e.put(&self.cluster_snapshot_epoch).put(&self.cluster_snapshot).put(&self.osd_uuid).put(&self.osd_xinfo);
        e.put(&self.hb_front_addrs).put(&self.nearfull_ratio).put(&self.full_ratio).put(&self.backfillfull_ratio);
        e.put(&self.require_min_compat_client).put(&self.require_osd_release).put(&self.removed_snaps_queue);
        e.put(&self.crush_node_flags).put(&self.device_class_flags);
        if self.osd_only_version() >= 10 {
            e.put(&self.stretch_mode_enabled).put(&self.stretch_bucket_count).put(&self.degraded_stretch_mode);
            e.put(&self.recovering_stretch_mode).put(&self.stretch_mode_bucket);
        }
        if self.osd_only_version() >= 11 {
            e.put(&self.range_blocklist);
        }
    }

    fn decode_client(&mut self, v: u8, d: &mut Decoder<'_>) -> Result<(), DecodeError> {
        if v < 8 {
            return Err(DecodeError::Invalid("OSDMap from before 14.2"));
        }
        (self.fsid, self.epoch, self.created, self.modified) = d.get()?;
        (self.pools, self.pool_name, self.pool_max, self.flags) = d.get()?;
        (self.max_osd, self.osd_state, self.osd_weight, self.client_addrs) = d.get()?;
        (self.pg_temp, self.primary_temp, self.osd_primary_affinity) = d.get()?;
        self.crush = Arc::new(d.nested(CrushMap::decode)?);
        self.erasure_code_profiles = d.get()?;
        (self.pg_upmap, self.pg_upmap_items, self.crush_version) = d.get()?;
        (self.new_removed_snaps, self.new_purged_snaps) = d.get()?;
        if v >= 9 {
            (self.last_up_change, self.last_in_change) = d.get()?;
        }
        if v >= 10 {
            self.pg_upmap_primaries = d.get()?;
        }
        Ok(())
    }

    fn decode_osd_only(&mut self, v: u8, d: &mut Decoder<'_>) -> Result<(), DecodeError> {
        if v < 7 {
            return Err(DecodeError::Invalid("OSDMap from before 14.2"));
        }
        let blocklist: BTreeMap<EntityAddr, Utime>;
        (self.hb_back_addrs, self.osd_info, blocklist, self.cluster_addrs) = d.get()?;
        self.blocklist = blocklist;
        (self.cluster_snapshot_epoch, self.cluster_snapshot, self.osd_uuid, self.osd_xinfo) = d.get()?;
        (self.hb_front_addrs, self.nearfull_ratio, self.full_ratio, self.backfillfull_ratio) = d.get()?;
        (self.require_min_compat_client, self.require_osd_release, self.removed_snaps_queue) = d.get()?;
        if v >= 8 {
            self.crush_node_flags = d.get()?;
        }
        if v >= 9 {
            self.device_class_flags = d.get()?;
        }
        if v >= 10 {
            (self.stretch_mode_enabled, self.stretch_bucket_count, self.degraded_stretch_mode) = d.get()?;
            (self.recovering_stretch_mode, self.stretch_mode_bucket) = d.get()?;
        }
        if v >= 11 {
            self.range_blocklist = d.get()?;
        }
        Ok(())
    }

    /// Flags that a release implies, as every reader upstream sets them.
    pub(super) fn imply_flags(&mut self) {
        if self.require_osd_release >= Release::NAUTILUS {
            self.flags |= Self::FLAG_PGLOG_HARDLIMIT;
        }
        if self.require_osd_release >= Release::LUMINOUS {
            self.flags &= !(Self::FLAG_REQUIRE_JEWEL | Self::FLAG_REQUIRE_KRAKEN | Self::FLAG_REQUIRE_LUMINOUS);
            self.flags |= Self::FLAG_RECOVERY_DELETES;
        }
    }

    /// Everything indexed by OSD number must be as long as `max_osd` says, or queries would disagree.
    fn check_lengths(&self) -> Result<(), DecodeError> {
        let n = usize::try_from(self.max_osd).map_err(|_| DecodeError::Invalid("OSDMap: max_osd"))?;
        let addrs = |list: &Vec<AddrVec>| list.len() == n;
        let affinity = self.osd_primary_affinity.len();
        let all = self.osd_state.len() == n
            && self.osd_weight.len() == n
            && self.osd_info.len() == n
            && self.osd_xinfo.len() == n
            && self.osd_uuid.len() == n
            && (affinity == 0 || affinity == n)
            && addrs(&self.client_addrs)
            && addrs(&self.cluster_addrs)
            && addrs(&self.hb_back_addrs)
            && addrs(&self.hb_front_addrs);
        let pools = self.pools.keys().all(|id| *id > PoolId(-1));
        if all && pools { Ok(()) } else { Err(DecodeError::Invalid("OSDMap: vectors differ in length from max_osd")) }
    }
}

impl Encode for OsdMap {
    fn encode(&self, e: &mut Encoder) {
        self.encode_with_crc(e);
    }
}

/// Reads an outer envelope whose body ends in a checksum: `body` is given what precedes the checksum and leaves
/// nothing but it and `tail` bytes unread. Gives the stored checksum.
pub(super) fn decode_checked(
    what: &'static str,
    d: &mut Decoder<'_>,
    body: impl FnOnce(&mut Decoder<'_>) -> Result<(), DecodeError>,
) -> Result<Option<u32>, DecodeError> {
    let whole = d.clone();
    let version = d.clone().get::<u8>()?;
    if version < 7 {
        return Err(DecodeError::Invalid("a map from before 0.77"));
    }
    let mut left = 0;
    d.envelope(what, 8, |_, d| {
        body(d)?;
        left = d.remaining();
        Ok(())
    })?;
    if version < 8 {
        return Ok(None);
    }
    // The checksum is the first thing `body` left.
    let end = whole.remaining() - d.remaining();
    let mut all = whole;
    let bytes = all.raw(end)?;
    let at = end - left;
    let (front, rest) = bytes.split_at(at);
    let mut rest = Decoder::new(rest);
    let stored: u32 = rest.get()?;
    if ceph_crc(ceph_crc(u32::MAX, front), rest.rest()) != stored {
        return Err(DecodeError::Invalid("a map with a wrong checksum"));
    }
    Ok(Some(stored))
}

impl Decode for OsdMap {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut m = OsdMap::default();
        m.crc = decode_checked("OSDMap", d, |d| {
            // Newer parts only append; clients upstream accept any version whose compat is 1.
            d.envelope("OSDMap", 10, |v, d| m.decode_client(v, d))?;
            d.envelope("OSDMap", 11, |v, d| m.decode_osd_only(v, d))
        })?;
        m.imply_flags();
        m.check_lengths()?;
        Ok(m)
    }
}
