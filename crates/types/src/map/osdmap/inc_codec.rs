//! The incremental's encoding: like the full map's, and with the checksum of the map it leads to.

use super::codec::{INC_CLIENT_VERSION, MAP_FEATURES, decode_checked, encode_checked};
use super::{OsdMap, OsdMapIncremental};
use crate::map::Release;
use denc::{Bytes, Decode, DecodeError, Decoder, Encode, Encoder};

/// "No change" of a release.
const NO_RELEASE: Release = Release(0xff);

impl OsdMapIncremental {
    /// The encoding and its checksum.
    pub fn encode_with_crc(&self, e: &mut Encoder) -> u32 {
        encode_checked(e, |e| {
            e.envelope(self.client_version(), 1, |e| self.encode_client(e));
            e.envelope(self.osd_only_version(), 1, |e| self.encode_osd_only(e));
            let at = e.len();
            e.put(&0u32).put(&self.full_crc);
            at
        })
    }

    /// Both encodings a monitor publishes: the full map `next` that this incremental leads to, and the incremental
    /// with the checksums of both. `next` is what `apply_incremental` made.
    pub fn publish(&mut self, next: &mut OsdMap) -> (Bytes, Bytes) {
        let full = next.publish();
        self.full_crc = next.crc.unwrap_or(0);
        let mut e = Encoder::new(MAP_FEATURES);
        self.inc_crc = Some(self.encode_with_crc(&mut e));
        (full, e.finish())
    }

    fn client_version(&self) -> u8 {
        let primaries = !self.new_pg_upmap_primary.is_empty() || !self.old_pg_upmap_primary.is_empty();
        INC_CLIENT_VERSION + u8::from(primaries)
    }

    fn osd_only_version(&self) -> u8 {
        match self.new_range_blocklist.is_empty() && self.old_range_blocklist.is_empty() {
            false => 11,
            true if self.change_stretch_mode => 10,
            true => 9,
        }
    }

    fn encode_client(&self, e: &mut Encoder) {
        let blob = |b: &Option<Bytes>| b.clone().unwrap_or_default();
        e.put(&self.fsid).put(&self.epoch).put(&self.modified);
        e.put(&self.new_pool_max.unwrap_or(-1)).put(&self.new_flags.map_or(-1, |f| f as i32));
        e.put(&blob(&self.fullmap)).put(&blob(&self.crush)).put(&self.new_max_osd.unwrap_or(-1));
        e.put(&self.new_pools).put(&self.new_pool_names).put(&self.old_pools).put(&self.new_up_client);
        e.put(&self.new_state).put(&self.new_weight).put(&self.new_pg_temp).put(&self.new_primary_temp);
        e.put(&self.new_primary_affinity).put(&self.new_erasure_code_profiles).put(&self.old_erasure_code_profiles);
        e.put(&self.new_pg_upmap).put(&self.old_pg_upmap).put(&self.new_pg_upmap_items).put(&self.old_pg_upmap_items);
        e.put(&self.new_removed_snaps).put(&self.new_purged_snaps);
        e.put(&self.new_last_up_change).put(&self.new_last_in_change);
        if self.client_version() > INC_CLIENT_VERSION {
            e.put(&self.new_pg_upmap_primary).put(&self.old_pg_upmap_primary);
        }
    }

    fn encode_osd_only(&self, e: &mut Encoder) {
        let ratio = |r: Option<f32>| r.unwrap_or(-1.0);
        e.put(&self.new_hb_back_up).put(&self.new_up_thru).put(&self.new_last_clean_interval).put(&self.new_lost);
        e.put(&self.new_blocklist).put(&self.old_blocklist).put(&self.new_up_cluster).put(&self.cluster_snapshot);
        e.put(&self.new_uuid).put(&self.new_xinfo).put(&self.new_hb_front_up).put(&self.encode_features);
        e.put(&ratio(self.new_nearfull_ratio)).put(&ratio(self.new_full_ratio));
        e.put(&ratio(self.new_backfillfull_ratio));
        e.put(&self.new_require_min_compat_client.unwrap_or(NO_RELEASE));
        e.put(&self.new_require_osd_release.unwrap_or(NO_RELEASE));
        e.put(&self.new_crush_node_flags).put(&self.new_device_class_flags);
        if self.osd_only_version() >= 10 {
            e.put(&self.change_stretch_mode).put(&self.new_stretch_bucket_count);
            e.put(&self.new_degraded_stretch_mode).put(&self.new_recovering_stretch_mode);
            e.put(&self.new_stretch_mode_bucket).put(&self.stretch_mode_enabled);
        }
        if self.osd_only_version() >= 11 {
            e.put(&self.new_range_blocklist).put(&self.old_range_blocklist);
        }
    }

    fn decode_client(&mut self, v: u8, d: &mut Decoder<'_>) -> Result<(), DecodeError> {
        if v < 7 {
            return Err(DecodeError::Invalid("OSDMap::Incremental from before 14.2"));
        }
        self.wire_version = Some(v);
        let blob = |b: Bytes| Some(b).filter(|b| !b.is_empty());
        (self.fsid, self.epoch, self.modified) = d.get()?;
        self.new_pool_max = Some(d.get::<i64>()?).filter(|max| *max != -1);
        self.new_flags = Some(d.get::<i32>()?).filter(|f| *f >= 0).map(|f| f as u32);
        (self.fullmap, self.crush) = (blob(d.get()?), blob(d.get()?));
        self.new_max_osd = Some(d.get::<i32>()?).filter(|max| *max >= 0);
        (self.new_pools, self.new_pool_names, self.old_pools, self.new_up_client) = d.get()?;
        (self.new_state, self.new_weight, self.new_pg_temp, self.new_primary_temp) = d.get()?;
        (self.new_primary_affinity, self.new_erasure_code_profiles, self.old_erasure_code_profiles) = d.get()?;
        (self.new_pg_upmap, self.old_pg_upmap, self.new_pg_upmap_items, self.old_pg_upmap_items) = d.get()?;
        (self.new_removed_snaps, self.new_purged_snaps) = d.get()?;
        if v >= 8 {
            (self.new_last_up_change, self.new_last_in_change) = d.get()?;
        }
        if v > INC_CLIENT_VERSION {
            (self.new_pg_upmap_primary, self.old_pg_upmap_primary) = d.get()?;
        }
        Ok(())
    }

    fn decode_osd_only(&mut self, v: u8, d: &mut Decoder<'_>) -> Result<(), DecodeError> {
        if v < 7 {
            return Err(DecodeError::Invalid("OSDMap::Incremental from before 14.2"));
        }
        let ratio = |r: f32| Some(r).filter(|r| *r >= 0.0);
        let release = |r: Release| Some(r).filter(|r| *r != NO_RELEASE);
        (self.new_hb_back_up, self.new_up_thru, self.new_last_clean_interval, self.new_lost) = d.get()?;
        (self.new_blocklist, self.old_blocklist, self.new_up_cluster, self.cluster_snapshot) = d.get()?;
        (self.new_uuid, self.new_xinfo, self.new_hb_front_up, self.encode_features) = d.get()?;
        self.new_nearfull_ratio = ratio(d.get()?);
        self.new_full_ratio = ratio(d.get()?);
        self.new_backfillfull_ratio = ratio(d.get()?);
        self.new_require_min_compat_client = release(d.get()?);
        self.new_require_osd_release = release(d.get()?);
        if v >= 8 {
            self.new_crush_node_flags = d.get()?;
        }
        if v >= 9 {
            self.new_device_class_flags = d.get()?;
        }
        if v >= 10 {
            (self.change_stretch_mode, self.new_stretch_bucket_count) = d.get()?;
            (self.new_degraded_stretch_mode, self.new_recovering_stretch_mode) = d.get()?;
            (self.new_stretch_mode_bucket, self.stretch_mode_enabled) = d.get()?;
        }
        if v >= 11 {
            (self.new_range_blocklist, self.old_range_blocklist) = d.get()?;
        }
        Ok(())
    }
}

impl Encode for OsdMapIncremental {
    fn encode(&self, e: &mut Encoder) {
        self.encode_with_crc(e);
    }
}
impl Decode for OsdMapIncremental {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut inc = OsdMapIncremental::default();
        let mut full_crc = 0;
        inc.inc_crc = decode_checked("OSDMap::Incremental", d, |d| {
            d.envelope("OSDMap::Incremental", INC_CLIENT_VERSION + 1, |v, d| inc.decode_client(v, d))?;
            d.envelope("OSDMap::Incremental", 11, |v, d| inc.decode_osd_only(v, d))?;
            // Behind our own checksum stands the one of the full map; maps of version 7 end here.
            let mut tail = d.clone();
            if tail.remaining() >= 8 {
                let (_own, full): (u32, u32) = tail.get()?;
                full_crc = full;
            }
            Ok(())
        })?;
        inc.full_crc = full_crc;
        Ok(inc)
    }
}
