//! One file system's metadata servers (`MDSMap`).
//!
//! Upstream: src/mds/MDSMap.{h,cc}, src/include/CompatSet.h.

use super::release::Release;
use crate::{AddrVec, Epoch, Utime};
use denc::{Bytes, Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::{BTreeMap, BTreeSet};

/// Named feature bits (`CompatSet::FeatureSet`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct FeatureSet {
    /// As encoded: without the lowest bit, which upstream always has in memory.
    pub mask: u64,
    pub names: BTreeMap<u64, String>,
}

impl FeatureSet {
    fn of(list: &[(u64, &str)]) -> Self {
        FeatureSet {
            mask: list.iter().fold(0, |mask, (id, _)| mask | 1 << id),
            names: list.iter().map(|(id, name)| (*id, (*name).to_owned())).collect(),
        }
    }
}

/// On-disk features that readers and writers must know (`CompatSet`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct CompatSet {
    pub compat: FeatureSet,
    pub ro_compat: FeatureSet,
    pub incompat: FeatureSet,
}

impl CompatSet {
    /// Of a new file system map in 16.2.
    pub fn mds_default() -> Self {
        CompatSet {
            incompat: FeatureSet::of(&[
                (1, "base v0.20"),
                (2, "client writeable ranges"),
                (3, "default file layouts on dirs"),
                (4, "dir inode in separate object"),
                (5, "mds uses versioned encoding"),
                (6, "dirfrag is stored in omap"),
                (8, "no anchor table"),
                (9, "file layout v2"),
                (10, "snaprealm v2"),
            ]),
            ..Self::default()
        }
    }
}

/// One daemon (`MDSMap::mds_info_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdsInfo {
    pub global_id: u64,
    pub name: String,
    /// -1: none.
    pub rank: i32,
    pub inc: i32,
    /// `CEPH_MDS_STATE_*`.
    pub state: i32,
    pub state_seq: u64,
    pub addrs: AddrVec,
    pub laggy_since: Utime,
    pub export_targets: BTreeSet<i32>,
    pub mds_features: u64,
    /// -1: any.
    pub join_fscid: i32,
    /// 1: frozen.
    pub flags: u64,
}

impl Default for MdsInfo {
    /// A standby without a name.
    fn default() -> Self {
        MdsInfo {
            global_id: 0,
            name: String::new(),
            rank: -1,
            inc: 0,
            state: -5,
            state_seq: 0,
            addrs: AddrVec::default(),
            laggy_since: Utime::ZERO,
            export_targets: BTreeSet::new(),
            mds_features: 0,
            join_fscid: -1,
            flags: 0,
        }
    }
}

impl Encode for MdsInfo {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(9, 4, |e| {
            e.put(&self.global_id).put(&self.name).put(&self.rank).put(&self.inc).put(&self.state);
            e.put(&self.state_seq).put(&self.addrs).put(&self.laggy_since);
            // Whom it used to stand by for: rank and name.
            e.put(&-1i32).put("").put(&self.export_targets).put(&self.mds_features).put(&self.join_fscid);
            e.put(&false).put(&self.flags);
        });
    }
}
impl Decode for MdsInfo {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("mds_info_t", 9, |v, d| {
            let mut m = MdsInfo::default();
            (m.global_id, m.name, m.rank, m.inc) = d.get()?;
            (m.state, m.state_seq, m.addrs, m.laggy_since) = d.get()?;
            let _standby_for: (i32, String) = d.get()?;
            m.export_targets = d.get()?;
            if v >= 5 {
                m.mds_features = d.get()?;
            }
            if v >= 6 {
                m.join_fscid = d.get()?;
            }
            if v >= 7 {
                let _standby_replay: bool = d.get()?;
            }
            if v >= 9 {
                m.flags = d.get()?;
            }
            Ok(m)
        })
    }
}

/// A file system's map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdsMap {
    pub epoch: Epoch,
    pub enabled: bool,
    pub fs_name: String,
    pub flags: u32,
    pub last_failure: Epoch,
    pub last_failure_osd_epoch: Epoch,
    pub created: Utime,
    pub modified: Utime,
    pub tableserver: i32,
    pub root: i32,
    /// Seconds.
    pub session_timeout: u32,
    /// Seconds.
    pub session_autoclose: u32,
    /// Bytes.
    pub max_file_size: u64,
    /// Bits, lowest first (`feature_bitset_t`).
    pub required_client_features: Bytes,
    pub data_pools: Vec<i64>,
    pub cas_pool: i64,
    pub metadata_pool: i64,
    pub max_mds: i32,
    pub old_max_mds: i32,
    pub standby_count_wanted: i32,
    pub balancer: String,
    /// Ranks in the cluster.
    pub in_: BTreeSet<i32>,
    pub failed: BTreeSet<i32>,
    pub stopped: BTreeSet<i32>,
    pub damaged: BTreeSet<i32>,
    /// Rank to daemon.
    pub up: BTreeMap<i32, u64>,
    pub mds_info: BTreeMap<u64, MdsInfo>,
    pub compat: CompatSet,
    pub ever_allowed_features: u8,
    pub explicitly_allowed_features: u8,
    pub inline_data_enabled: bool,
}

impl Default for MdsMap {
    fn default() -> Self {
        MdsMap {
            epoch: Epoch(0),
            enabled: false,
            fs_name: "cephfs".to_owned(),
            flags: 0x12,
            last_failure: Epoch(0),
            last_failure_osd_epoch: Epoch(0),
            created: Utime::ZERO,
            modified: Utime::ZERO,
            tableserver: 0,
            root: 0,
            session_timeout: 60,
            session_autoclose: 300,
            max_file_size: 1 << 40,
            required_client_features: Bytes::new(),
            data_pools: Vec::new(),
            cas_pool: -1,
            metadata_pool: -1,
            max_mds: 1,
            old_max_mds: 0,
            standby_count_wanted: -1,
            balancer: String::new(),
            in_: BTreeSet::new(),
            failed: BTreeSet::new(),
            stopped: BTreeSet::new(),
            damaged: BTreeSet::new(),
            up: BTreeMap::new(),
            mds_info: BTreeMap::new(),
            compat: CompatSet::default(),
            ever_allowed_features: 0,
            explicitly_allowed_features: 0,
            inline_data_enabled: false,
        }
    }
}

/// Version of the part that kernels do not read.
const EXTENDED: u16 = 16;

impl Encode for MdsMap {
    fn encode(&self, e: &mut Encoder) {
        // Incarnations by rank were dropped; old readers still want some.
        let inc: BTreeMap<i32, u32> = self.in_.iter().map(|rank| (*rank, self.epoch.0)).collect();
        e.envelope(5, 4, |e| {
            e.put(&self.epoch).put(&self.flags).put(&self.last_failure).put(&self.root);
            e.put(&self.session_timeout).put(&self.session_autoclose).put(&self.max_file_size).put(&self.max_mds);
            e.put(&self.mds_info).put(&self.data_pools).put(&self.cas_pool);
            e.put(&EXTENDED).put(&self.compat).put(&self.metadata_pool).put(&self.created).put(&self.modified);
            e.put(&self.tableserver).put(&self.in_).put(&inc).put(&self.up).put(&self.failed).put(&self.stopped);
            e.put(&self.last_failure_osd_epoch).put(&self.ever_allowed_features);
            e.put(&self.explicitly_allowed_features).put(&self.inline_data_enabled).put(&self.enabled);
            e.put(&self.fs_name).put(&self.damaged).put(&self.balancer).put(&self.standby_count_wanted);
            e.put(&self.old_max_mds).put(&Release::UNKNOWN).put(&self.required_client_features);
        });
    }
}
impl Decode for MdsMap {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("MDSMap", 5, |_, d| {
            let mut m = MdsMap::default();
            (m.epoch, m.flags, m.last_failure, m.root) = d.get()?;
            (m.session_timeout, m.session_autoclose, m.max_file_size, m.max_mds) = d.get()?;
            (m.mds_info, m.data_pools, m.cas_pool) = d.get()?;
            let extended: u16 = d.get()?;
            if extended < EXTENDED {
                return Err(DecodeError::Invalid("MDSMap from before 16.2"));
            }
            (m.compat, m.metadata_pool, m.created, m.modified) = d.get()?;
            (m.tableserver, m.in_) = d.get()?;
            let _inc: BTreeMap<i32, u32> = d.get()?;
            (m.up, m.failed, m.stopped, m.last_failure_osd_epoch) = d.get()?;
            (m.ever_allowed_features, m.explicitly_allowed_features, m.inline_data_enabled) = d.get()?;
            (m.enabled, m.fs_name, m.damaged, m.balancer) = d.get()?;
            (m.standby_count_wanted, m.old_max_mds) = d.get()?;
            let _min_compat_client: Release = d.get()?;
            m.required_client_features = d.get()?;
            Ok(m)
        })
    }
}
