//! File systems as clients are told of them (`FSMapUser`).
//!
//! Upstream: src/mds/FSMapUser.{h,cc}.

use crate::Epoch;
use denc::{Decode, Encode};

/// A file system's id and name (`FSMapUser::fs_info_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct FsInfo {
    /// File system cluster id (`fs_cluster_id_t`).
    pub cid: i32,
    pub name: String,
}

/// The file systems by name.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct FsMapUser {
    pub epoch: Epoch,
    /// The one that clients without a choice mount; -1: none.
    pub legacy_client_fscid: i32,
    pub filesystems: Vec<FsInfo>,
}

impl Default for FsMapUser {
    fn default() -> Self {
        FsMapUser { epoch: Epoch(0), legacy_client_fscid: -1, filesystems: Vec::new() }
    }
}
