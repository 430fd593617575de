//! All file systems and metadata servers (`FSMap`), as the monitors keep them.
//!
//! Upstream: src/mds/FSMap.{h,cc}.

use super::fsmap_user::{FsInfo, FsMapUser};
use super::mdsmap::{CompatSet, MdsInfo, MdsMap};
use crate::Epoch;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::{BTreeMap, BTreeSet};

/// Another cluster that mirrors a file system (`ClusterInfo`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ClusterInfo {
    pub client_name: String,
    pub cluster_name: String,
    pub fs_name: String,
}

/// A mirroring peer (`Peer`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct MirrorPeer {
    pub uuid: String,
    pub remote: ClusterInfo,
}

/// Mirroring of a file system (`MirrorInfo`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct MirrorInfo {
    pub mirrored: bool,
    pub peers: BTreeSet<MirrorPeer>,
}

/// A file system (`Filesystem`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filesystem {
    pub fscid: i32,
    pub mds_map: MdsMap,
    pub mirror_info: MirrorInfo,
}

impl Encode for Filesystem {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(2, 1, |e| {
            e.put(&self.fscid).nested(|e| self.mds_map.encode(e));
            e.put(&self.mirror_info);
        });
    }
}
impl Decode for Filesystem {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("Filesystem", 2, |v, d| {
            let fscid = d.get()?;
            let mds_map = d.nested(MdsMap::decode)?;
            let mirror_info = if v >= 2 { d.get()? } else { MirrorInfo::default() };
            Ok(Filesystem { fscid, mds_map, mirror_info })
        })
    }
}

/// All file systems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsMap {
    pub epoch: Epoch,
    pub next_filesystem_id: u64,
    pub legacy_client_fscid: i32,
    pub compat: CompatSet,
    pub enable_multiple: bool,
    pub filesystems: BTreeMap<i32, Filesystem>,
    /// Daemon's gid to its file system; -1 for standbys.
    pub mds_roles: BTreeMap<u64, i32>,
    pub standby_daemons: BTreeMap<u64, MdsInfo>,
    pub standby_epochs: BTreeMap<u64, Epoch>,
    pub ever_enabled_multiple: bool,
}

impl Default for FsMap {
    fn default() -> Self {
        FsMap {
            epoch: Epoch(0),
            next_filesystem_id: 1,
            legacy_client_fscid: -1,
            compat: CompatSet::mds_default(),
            enable_multiple: true,
            filesystems: BTreeMap::new(),
            mds_roles: BTreeMap::new(),
            standby_daemons: BTreeMap::new(),
            standby_epochs: BTreeMap::new(),
            ever_enabled_multiple: true,
        }
    }
}

impl FsMap {
    /// What clients are told of it.
    pub fn to_user(&self) -> FsMapUser {
        let info = |fs: &Filesystem| FsInfo { cid: fs.fscid, name: fs.mds_map.fs_name.clone() };
        FsMapUser {
            epoch: self.epoch,
            legacy_client_fscid: self.legacy_client_fscid,
            filesystems: self.filesystems.values().map(info).collect(),
        }
    }
}

impl Encode for FsMap {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(7, 6, |e| {
            e.put(&self.epoch).put(&self.next_filesystem_id).put(&self.legacy_client_fscid);
            e.put(&self.compat).put(&self.enable_multiple);
            e.count(self.filesystems.len());
            self.filesystems.values().for_each(|fs| fs.encode(e));
            e.put(&self.mds_roles).put(&self.standby_daemons).put(&self.standby_epochs);
            e.put(&self.ever_enabled_multiple);
        });
    }
}
impl Decode for FsMap {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("FSMap", 7, |v, d| {
            if v < 7 {
                return Err(DecodeError::Invalid("FSMap from before 16.2"));
            }
            let mut m = FsMap::default();
            (m.epoch, m.next_filesystem_id, m.legacy_client_fscid) = d.get()?;
            (m.compat, m.enable_multiple) = d.get()?;
            let list: Vec<Filesystem> = d.get()?;
            m.filesystems = list.into_iter().map(|fs| (fs.fscid, fs)).collect();
            (m.mds_roles, m.standby_daemons, m.standby_epochs, m.ever_enabled_multiple) = d.get()?;
            Ok(m)
        })
    }
}
