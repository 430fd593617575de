//! A step from one epoch to the next (`OSDMap::Incremental`).

use super::{EcProfile, OsdXInfo};
use crate::map::{PgPool, Release, SnapIntervals};
use crate::{AddrVec, EntityAddr, Epoch, OsdId, PgId, PoolId, Utime};
use denc::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// What changes from epoch - 1 to `epoch`. Empty containers and `None` change nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OsdMapIncremental {
    pub fsid: Uuid,
    pub epoch: Epoch,
    pub modified: Utime,
    pub new_pool_max: Option<i64>,
    pub new_flags: Option<u32>,
    /// A whole encoded map, instead of everything below.
    pub fullmap: Option<Bytes>,
    /// A whole encoded CRUSH map.
    pub crush: Option<Bytes>,

    pub new_max_osd: Option<i32>,
    pub new_pools: BTreeMap<PoolId, PgPool>,
    pub new_pool_names: BTreeMap<PoolId, String>,
    pub old_pools: BTreeSet<PoolId>,
    /// Client addresses of OSDs that came up.
    pub new_up_client: BTreeMap<OsdId, AddrVec>,
    /// XORed onto the OSD's state; 0 means `STATE_UP`.
    pub new_state: BTreeMap<OsdId, u32>,
    pub new_weight: BTreeMap<OsdId, u32>,
    /// An empty set removes.
    pub new_pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// `OsdId::NONE` removes.
    pub new_primary_temp: BTreeMap<PgId, OsdId>,
    pub new_primary_affinity: BTreeMap<OsdId, u32>,
    pub new_erasure_code_profiles: BTreeMap<String, EcProfile>,
    pub old_erasure_code_profiles: Vec<String>,
    pub new_pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    pub old_pg_upmap: BTreeSet<PgId>,
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    pub old_pg_upmap_items: BTreeSet<PgId>,
    pub new_pg_upmap_primary: BTreeMap<PgId, OsdId>,
    pub old_pg_upmap_primary: BTreeSet<PgId>,
    pub new_removed_snaps: BTreeMap<PoolId, SnapIntervals>,
    pub new_purged_snaps: BTreeMap<PoolId, SnapIntervals>,
    pub new_last_up_change: Utime,
    pub new_last_in_change: Utime,

    pub new_hb_back_up: BTreeMap<OsdId, AddrVec>,
    pub new_up_thru: BTreeMap<OsdId, Epoch>,
    pub new_last_clean_interval: BTreeMap<OsdId, (Epoch, Epoch)>,
    pub new_lost: BTreeMap<OsdId, Epoch>,
    pub new_blocklist: BTreeMap<EntityAddr, Utime>,
    pub old_blocklist: Vec<EntityAddr>,
    pub new_range_blocklist: BTreeMap<EntityAddr, Utime>,
    pub old_range_blocklist: Vec<EntityAddr>,
    pub new_up_cluster: BTreeMap<OsdId, AddrVec>,
    pub cluster_snapshot: String,
    pub new_uuid: BTreeMap<OsdId, Uuid>,
    pub new_xinfo: BTreeMap<OsdId, OsdXInfo>,
    pub new_hb_front_up: BTreeMap<OsdId, AddrVec>,
    /// With which features the resulting map is encoded; ours is always `SIGNIFICANT_FEATURES`.
    pub encode_features: u64,
    pub new_nearfull_ratio: Option<f32>,
    pub new_full_ratio: Option<f32>,
    pub new_backfillfull_ratio: Option<f32>,
    pub new_require_min_compat_client: Option<Release>,
    pub new_require_osd_release: Option<Release>,
    pub new_crush_node_flags: BTreeMap<i32, u32>,
    pub new_device_class_flags: BTreeMap<i32, u32>,
    pub change_stretch_mode: bool,
    pub new_stretch_bucket_count: u32,
    pub new_degraded_stretch_mode: u32,
    pub new_recovering_stretch_mode: u32,
    pub new_stretch_mode_bucket: i32,
    pub stretch_mode_enabled: bool,

    /// crc32c of the full map this leads to; 0 until it is known.
    pub full_crc: u32,
    /// crc32c of this incremental's own encoding; `None` before it was encoded.
    pub inc_crc: Option<u32>,
    /// Version of the part for clients it was read from; `None` if it was made here.
    pub wire_version: Option<u8>,
}

impl OsdMapIncremental {
    /// True if it carries a checksum of the full map that our own encoding of that map must have. Newer releases
    /// encode more than we keep.
    pub fn is_verifiable(&self) -> bool {
        self.inc_crc.is_some()
            && self.full_crc != 0
            && self.encode_features == super::SIGNIFICANT_FEATURES
            && self.wire_version.is_none_or(|v| v == super::codec::INC_CLIENT_VERSION)
    }
}

impl OsdMapIncremental {
    /// An empty step to `epoch`.
    pub fn new(fsid: Uuid, epoch: Epoch, modified: Utime) -> Self {
        OsdMapIncremental { fsid, epoch, modified, encode_features: super::SIGNIFICANT_FEATURES, ..Self::default() }
    }
}
