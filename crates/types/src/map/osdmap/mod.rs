//! The OSDs, the pools, and where everything goes (`OSDMap`).
//!
//! Holds: the vectors indexed by OSD number are all `max_osd` long; a crc is that of the encoding we made or read.
//! Upstream: src/osd/OSDMap.{h,cc}.

mod apply;
mod codec;
mod compat;
mod dump;
mod flags;
mod inc_codec;
mod incremental;
mod info;
mod mapping;

pub use apply::ApplyError;
pub use codec::{MAP_FEATURES, SIGNIFICANT_FEATURES};
pub use dump::{print_osds, print_pg_osds};
pub(crate) use dump::settings;
pub use flags::{cluster_flag_by_name, cluster_flags_string, osd_state_names, CLUSTER_FLAGS, OSD_STATES};
pub use incremental::OsdMapIncremental;
pub use info::{OsdInfo, OsdXInfo};
pub use mapping::{UpActing, stable_mod};

use super::interval::SnapIntervals;
use super::pool::PgPool;
use super::release::Release;
use crate::{AddrVec, EntityAddr, Epoch, OsdId, PgId, PoolId, Utime};
use crush::CrushMap;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use uuid::Uuid;

/// An erasure-code profile: settings by name.
pub type EcProfile = BTreeMap<String, String>;

/// The map of the cluster's OSDs.
#[derive(Debug, Clone, PartialEq)]
pub struct OsdMap {
    pub fsid: Uuid,
    pub epoch: Epoch,
    pub created: Utime,
    pub modified: Utime,
    pub pools: BTreeMap<PoolId, PgPool>,
    pub pool_name: BTreeMap<PoolId, String>,
    /// The largest pool number ever given.
    pub pool_max: i32,
    /// `CEPH_OSDMAP_*`, see `CLUSTER_FLAGS`.
    pub flags: u32,
    /// OSD numbers are below this.
    pub max_osd: i32,
    /// `STATE_*` by OSD.
    pub osd_state: Vec<u32>,
    /// 16.16 fixed point by OSD: 0x10000 in, 0 out.
    pub osd_weight: Vec<u32>,
    /// Where clients reach each OSD.
    pub client_addrs: Vec<AddrVec>,
    /// Where OSDs reach each other.
    pub cluster_addrs: Vec<AddrVec>,
    pub hb_back_addrs: Vec<AddrVec>,
    pub hb_front_addrs: Vec<AddrVec>,
    /// Acting sets that the OSDs asked for; empty sets are not kept.
    pub pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    pub primary_temp: BTreeMap<PgId, OsdId>,
    /// 16.16 fixed point by OSD, 0x10000 by default; empty when no OSD differs.
    pub osd_primary_affinity: Vec<u32>,
    /// The hierarchy and the rules of placement.
    pub crush: Arc<CrushMap>,
    /// Counts changes of `crush`.
    pub crush_version: u32,
    pub erasure_code_profiles: BTreeMap<String, EcProfile>,
    /// Whole sets put in the place of CRUSH's answer.
    pub pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    /// (from, to) substitutions in CRUSH's answer.
    pub pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Which OSD of the set comes first, since 18.2: only maps of newer clusters have any.
    pub pg_upmap_primaries: BTreeMap<PgId, OsdId>,
    /// Snapshots removed in this epoch.
    pub new_removed_snaps: BTreeMap<PoolId, SnapIntervals>,
    /// Snapshots found purged in this epoch.
    pub new_purged_snaps: BTreeMap<PoolId, SnapIntervals>,
    pub last_up_change: Utime,
    pub last_in_change: Utime,

    pub osd_info: Vec<OsdInfo>,
    /// Address to the time its listing ends.
    pub blocklist: BTreeMap<EntityAddr, Utime>,
    /// Networks (type 4, the nonce is the prefix length) to the time their listing ends; since 16.2.11.
    pub range_blocklist: BTreeMap<EntityAddr, Utime>,
    pub cluster_snapshot_epoch: Epoch,
    pub cluster_snapshot: String,
    pub osd_uuid: Vec<Uuid>,
    pub osd_xinfo: Vec<OsdXInfo>,
    pub nearfull_ratio: f32,
    pub full_ratio: f32,
    pub backfillfull_ratio: f32,
    pub require_min_compat_client: Release,
    pub require_osd_release: Release,
    /// Removed snapshots not yet purged.
    pub removed_snaps_queue: BTreeMap<PoolId, SnapIntervals>,
    /// CRUSH node to `STATE_NOUP`.. flags.
    pub crush_node_flags: BTreeMap<i32, u32>,
    /// Device class id to `STATE_NOUP`.. flags.
    pub device_class_flags: BTreeMap<i32, u32>,
    pub stretch_mode_enabled: bool,
    pub stretch_bucket_count: u32,
    /// 0, or how many sites are left.
    pub degraded_stretch_mode: u32,
    pub recovering_stretch_mode: u32,
    pub stretch_mode_bucket: i32,

    /// crc32c of the encoding this map came from or was last encoded to; `None` for a map made by hand.
    pub crc: Option<u32>,
}

impl Default for OsdMap {
    /// Epoch 0 of nothing.
    fn default() -> Self {
        OsdMap {
            fsid: Uuid::nil(),
            epoch: Epoch(0),
            created: Utime::ZERO,
            modified: Utime::ZERO,
            pools: BTreeMap::new(),
            pool_name: BTreeMap::new(),
            pool_max: 0,
            flags: 0,
            max_osd: 0,
            osd_state: Vec::new(),
            osd_weight: Vec::new(),
            client_addrs: Vec::new(),
            cluster_addrs: Vec::new(),
            hb_back_addrs: Vec::new(),
            hb_front_addrs: Vec::new(),
            pg_temp: BTreeMap::new(),
            primary_temp: BTreeMap::new(),
            osd_primary_affinity: Vec::new(),
            crush: Arc::new(CrushMap::default()),
            crush_version: 1,
            erasure_code_profiles: BTreeMap::new(),
            pg_upmap: BTreeMap::new(),
            pg_upmap_items: BTreeMap::new(),
            pg_upmap_primaries: BTreeMap::new(),
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            last_up_change: Utime::ZERO,
            last_in_change: Utime::ZERO,
            osd_info: Vec::new(),
            blocklist: BTreeMap::new(),
            range_blocklist: BTreeMap::new(),
            cluster_snapshot_epoch: Epoch(0),
            cluster_snapshot: String::new(),
            osd_uuid: Vec::new(),
            osd_xinfo: Vec::new(),
            nearfull_ratio: 0.0,
            full_ratio: 0.0,
            backfillfull_ratio: 0.0,
            require_min_compat_client: Release::UNKNOWN,
            require_osd_release: Release::UNKNOWN,
            removed_snaps_queue: BTreeMap::new(),
            crush_node_flags: BTreeMap::new(),
            device_class_flags: BTreeMap::new(),
            stretch_mode_enabled: false,
            stretch_bucket_count: 0,
            degraded_stretch_mode: 0,
            recovering_stretch_mode: 0,
            stretch_mode_bucket: 0,
            crc: None,
        }
    }
}

/// From where on OSDs are full, as parts of their disks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FullRatios {
    pub nearfull: f32,
    pub backfillfull: f32,
    pub full: f32,
}

impl OsdMap {
    pub const STATE_EXISTS: u32 = 1 << 0;
    pub const STATE_UP: u32 = 1 << 1;
    pub const STATE_AUTOOUT: u32 = 1 << 2;
    pub const STATE_NEW: u32 = 1 << 3;
    pub const STATE_FULL: u32 = 1 << 4;
    pub const STATE_NEARFULL: u32 = 1 << 5;
    pub const STATE_BACKFILLFULL: u32 = 1 << 6;
    pub const STATE_DESTROYED: u32 = 1 << 7;
    pub const STATE_NOUP: u32 = 1 << 8;
    pub const STATE_NODOWN: u32 = 1 << 9;
    pub const STATE_NOIN: u32 = 1 << 10;
    pub const STATE_NOOUT: u32 = 1 << 11;
    pub const STATE_STOP: u32 = 1 << 12;

    /// No map of ours has more OSDs; ten times what monitors upstream allow unless told otherwise.
    pub const MAX_OSDS: i32 = 100_000;
    /// An OSD fully in.
    pub const WEIGHT_IN: u32 = 0x1_0000;
    /// An OSD that gets no data.
    pub const WEIGHT_OUT: u32 = 0;
    /// An OSD that never refuses to be primary.
    pub const AFFINITY_DEFAULT: u32 = 0x1_0000;

    pub const FLAG_NEARFULL: u32 = 1 << 0;
    pub const FLAG_FULL: u32 = 1 << 1;
    pub const FLAG_PAUSERD: u32 = 1 << 2;
    pub const FLAG_PAUSEWR: u32 = 1 << 3;
    pub const FLAG_PAUSEREC: u32 = 1 << 4;
    pub const FLAG_NOUP: u32 = 1 << 5;
    pub const FLAG_NODOWN: u32 = 1 << 6;
    pub const FLAG_NOOUT: u32 = 1 << 7;
    pub const FLAG_NOIN: u32 = 1 << 8;
    pub const FLAG_NOBACKFILL: u32 = 1 << 9;
    pub const FLAG_NORECOVER: u32 = 1 << 10;
    pub const FLAG_NOSCRUB: u32 = 1 << 11;
    pub const FLAG_NODEEP_SCRUB: u32 = 1 << 12;
    pub const FLAG_NOTIERAGENT: u32 = 1 << 13;
    pub const FLAG_NOREBALANCE: u32 = 1 << 14;
    pub const FLAG_SORTBITWISE: u32 = 1 << 15;
    pub const FLAG_REQUIRE_JEWEL: u32 = 1 << 16;
    pub const FLAG_REQUIRE_KRAKEN: u32 = 1 << 17;
    pub const FLAG_REQUIRE_LUMINOUS: u32 = 1 << 18;
    pub const FLAG_RECOVERY_DELETES: u32 = 1 << 19;
    pub const FLAG_PURGED_SNAPDIRS: u32 = 1 << 20;
    pub const FLAG_NOSNAPTRIM: u32 = 1 << 21;
    pub const FLAG_PGLOG_HARDLIMIT: u32 = 1 << 22;

    /// Epoch 0 of a new cluster, as a monitor of 16.2 starts it: no OSDs, no pools, the flags every new cluster has.
    pub fn new(fsid: Uuid, created: Utime) -> Self {
        OsdMap {
            fsid,
            created,
            modified: created,
            flags: Self::FLAG_SORTBITWISE
                | Self::FLAG_RECOVERY_DELETES
                | Self::FLAG_PURGED_SNAPDIRS
                | Self::FLAG_PGLOG_HARDLIMIT,
            nearfull_ratio: 0.85,
            full_ratio: 0.95,
            backfillfull_ratio: 0.90,
            require_min_compat_client: Release::LUMINOUS,
            require_osd_release: Release::PACIFIC,
            ..Self::default()
        }
    }

    /// The ratios as they count: none is below the one before it. 0: not set.
    pub fn full_ratios(&self) -> FullRatios {
        let backfillfull = self.backfillfull_ratio.max(self.nearfull_ratio);
        FullRatios { nearfull: self.nearfull_ratio, backfillfull, full: self.full_ratio.max(backfillfull) }
    }

    /// True if what an OSD's disk can take concerns anybody: one that is down or out takes nothing.
    pub fn counts_as_full(&self, osd: OsdId, level: u32) -> bool {
        self.state(osd) & level != 0 && self.is_up(osd) && self.is_in(osd)
    }

    /// Grows or shrinks everything indexed by OSD number.
    pub fn set_max_osd(&mut self, max_osd: i32) {
        let n = usize::try_from(max_osd).unwrap_or(0);
        self.max_osd = max_osd;
        self.osd_state.resize(n, 0);
        self.osd_weight.resize(n, Self::WEIGHT_OUT);
        self.osd_info.resize(n, OsdInfo::default());
        self.osd_xinfo.resize(n, OsdXInfo::default());
        self.osd_uuid.resize(n, Uuid::nil());
        for addrs in [
            &mut self.client_addrs,
            &mut self.cluster_addrs,
            &mut self.hb_back_addrs,
            &mut self.hb_front_addrs,
        ] {
            addrs.resize(n, AddrVec::default());
        }
        if !self.osd_primary_affinity.is_empty() {
            self.osd_primary_affinity.resize(n, Self::AFFINITY_DEFAULT);
        }
    }

    /// `STATE_*` bits; 0 for an OSD that is not there.
    pub fn state(&self, osd: OsdId) -> u32 {
        at(&self.osd_state, osd).copied().unwrap_or(0)
    }

    /// True if the OSD was created and not purged.
    pub fn exists(&self, osd: OsdId) -> bool {
        self.state(osd) & Self::STATE_EXISTS != 0
    }

    /// True if the OSD exists and runs.
    pub fn is_up(&self, osd: OsdId) -> bool {
        self.exists(osd) && self.state(osd) & Self::STATE_UP != 0
    }

    /// True if the OSD exists and does not run.
    pub fn is_down(&self, osd: OsdId) -> bool {
        !self.is_up(osd)
    }

    /// True if the OSD gets data.
    pub fn is_in(&self, osd: OsdId) -> bool {
        self.exists(osd) && self.weight(osd) != Self::WEIGHT_OUT
    }

    /// True if the OSD was destroyed and its number waits for a replacement.
    pub fn is_destroyed(&self, osd: OsdId) -> bool {
        self.exists(osd) && self.state(osd) & Self::STATE_DESTROYED != 0
    }

    /// 16.16 weight; 0 for an OSD that is not there.
    pub fn weight(&self, osd: OsdId) -> u32 {
        at(&self.osd_weight, osd).copied().unwrap_or(Self::WEIGHT_OUT)
    }

    /// 16.16 primary affinity.
    pub fn primary_affinity(&self, osd: OsdId) -> u32 {
        at(&self.osd_primary_affinity, osd).copied().unwrap_or(Self::AFFINITY_DEFAULT)
    }

    /// Every OSD that exists.
    pub fn osds(&self) -> impl Iterator<Item = OsdId> {
        (0..self.max_osd).map(OsdId).filter(|osd| self.exists(*osd))
    }

    /// Every OSD that is up.
    pub fn up_osds(&self) -> impl Iterator<Item = OsdId> {
        self.osds().filter(|osd| self.is_up(*osd))
    }

    /// How many OSDs exist.
    pub fn num_osds(&self) -> usize {
        self.osds().count()
    }

    /// How many OSDs are up.
    pub fn num_up_osds(&self) -> usize {
        self.up_osds().count()
    }

    /// How many OSDs are in.
    pub fn num_in_osds(&self) -> usize {
        self.osds().filter(|osd| self.is_in(*osd)).count()
    }

    /// Where clients reach the OSD.
    pub fn addrs(&self, osd: OsdId) -> Option<&AddrVec> {
        at(&self.client_addrs, osd)
    }

    /// Where other OSDs reach the OSD.
    pub fn cluster_addrs(&self, osd: OsdId) -> Option<&AddrVec> {
        at(&self.cluster_addrs, osd)
    }

    /// Where other OSDs send heartbeats on the cluster network.
    pub fn hb_back_addrs(&self, osd: OsdId) -> Option<&AddrVec> {
        at(&self.hb_back_addrs, osd)
    }

    /// Where other OSDs send heartbeats on the public network.
    pub fn hb_front_addrs(&self, osd: OsdId) -> Option<&AddrVec> {
        at(&self.hb_front_addrs, osd)
    }

    /// Epochs of the OSD's life.
    pub fn info(&self, osd: OsdId) -> Option<&OsdInfo> {
        at(&self.osd_info, osd)
    }

    /// What else is remembered of the OSD.
    pub fn xinfo(&self, osd: OsdId) -> Option<&OsdXInfo> {
        at(&self.osd_xinfo, osd)
    }

    /// The OSD's identity; nil for one that never had any.
    pub fn uuid(&self, osd: OsdId) -> Uuid {
        at(&self.osd_uuid, osd).copied().unwrap_or_default()
    }

    /// The OSD that has this identity.
    pub fn osd_by_uuid(&self, uuid: Uuid) -> Option<OsdId> {
        self.osds().find(|osd| self.uuid(*osd) == uuid)
    }

    /// True if `addr`, its whole host or a network it is in is blocklisted, whatever protocol it spoke.
    pub fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        let Some(sock) = addr.sock else { return false };
        let instance = addr.as_any();
        let host = EntityAddr { nonce: 0, sock: Some(SocketAddr::new(sock.ip(), 0)), ..instance };
        self.blocklist.contains_key(&instance)
            || self.blocklist.contains_key(&host)
            || self.range_blocklist.keys().any(|network| in_network(sock.ip(), network))
    }

    /// The pool called `name`.
    pub fn pool(&self, name: &str) -> Option<(PoolId, &PgPool)> {
        let id = self.pool_id(name)?;
        Some((id, self.pools.get(&id)?))
    }

    /// The number of the pool called `name`.
    pub fn pool_id(&self, name: &str) -> Option<PoolId> {
        self.pool_name.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
    }

    /// The pool of that number.
    pub fn pool_by_id(&self, id: PoolId) -> Option<&PgPool> {
        self.pools.get(&id)
    }

    /// True if every bit of the cluster-wide `flag` is set.
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag == flag
    }

    /// `noout,sortbitwise,...`.
    pub fn flags_string(&self) -> String {
        cluster_flags_string(self.flags)
    }
}

/// True if `ip` is in `network`, whose nonce is the length of its prefix in bits.
fn in_network(ip: IpAddr, network: &EntityAddr) -> bool {
    let same_prefix = |a: u128, b: u128, width: u32| {
        let bits = network.nonce.min(width);
        bits == 0 || (a ^ b) >> (width - bits) == 0
    };
    match (ip, network.sock.map(|s| s.ip())) {
        (IpAddr::V4(a), Some(IpAddr::V4(b))) => same_prefix(u32::from(a).into(), u32::from(b).into(), 32),
        (IpAddr::V6(a), Some(IpAddr::V6(b))) => same_prefix(a.into(), b.into(), 128),
        _ => false,
    }
}

/// The element of an OSD; `None` for numbers out of range.
fn at<T>(list: &[T], osd: OsdId) -> Option<&T> {
    list.get(usize::try_from(osd.0).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AddrKind;

    fn addr(text: &str, nonce: u32, kind: AddrKind) -> EntityAddr {
        EntityAddr { kind, nonce, sock: Some(text.parse().unwrap()) }
    }

    #[test]
    fn blocklists_name_instances_hosts_and_networks() {
        let mut map = OsdMap::default();
        let until = Utime { sec: 1, nsec: 0 };
        map.blocklist.insert(addr("10.0.0.1:99", 7, AddrKind::ANY), until);
        map.blocklist.insert(addr("10.0.0.2:0", 0, AddrKind::ANY), until);
        map.range_blocklist.insert(addr("10.1.0.0:0", 16, AddrKind::CIDR), until);
        map.range_blocklist.insert(addr("[fd00::]:0", 8, AddrKind::CIDR), until);
        for (text, nonce, listed) in [
            ("10.0.0.1:99", 7, true),
            ("10.0.0.1:99", 8, false),
            ("10.0.0.2:4711", 8, true),
            ("10.1.255.255:1", 8, true),
            ("10.2.0.0:1", 8, false),
            ("[fdff::1]:1", 8, true),
            ("[fe00::1]:1", 8, false),
        ] {
            assert_eq!(map.is_blocklisted(&addr(text, nonce, AddrKind::MSGR2)), listed, "{text}/{nonce}");
        }
        assert!(!map.is_blocklisted(&EntityAddr::default()));
    }

    #[test]
    fn osds_out_of_range_are_nobody() {
        let mut map = OsdMap::default();
        map.set_max_osd(2);
        for osd in [-1, 2, i32::MAX, i32::MIN] {
            assert!(!map.exists(OsdId(osd)) && !map.is_up(OsdId(osd)) && !map.is_in(OsdId(osd)));
            assert_eq!(map.addrs(OsdId(osd)), None);
        }
    }
}
