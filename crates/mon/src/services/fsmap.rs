//! The file systems: none can be made yet, but clients ask for the maps.

use crate::txn::{self, StateError, Txn};
use bytes::Bytes;
use store::Kv;
use types::map::{FsMap, MdsMap};
use types::{Epoch, features};

const NAME: &str = "fsmap";

/// The FSMap.
pub struct FsMapService {
    pub map: FsMap,
}

impl FsMapService {
    pub fn load(kv: &impl Kv) -> Result<Self, StateError> {
        let map = txn::get(kv, NAME, "current")?.ok_or(StateError::Missing("fsmap"))?;
        Ok(FsMapService { map })
    }

    /// Publishes the first map: no file systems.
    pub fn create(txn: &mut Txn) -> Self {
        let map = FsMap { epoch: Epoch(1), ..FsMap::default() };
        txn.put(NAME, "current", denc::to_bytes(&map, features::SUPPORTED));
        FsMapService { map }
    }

    /// The map as clients get it.
    pub fn encoded_user(&self) -> Bytes {
        denc::to_bytes(&self.map.to_user(), features::SUPPORTED)
    }

    /// What a subscriber to `mdsmap` gets while there is no file system.
    pub fn encoded_mdsmap(&self) -> Bytes {
        denc::to_bytes(&MdsMap { epoch: self.map.epoch, ..MdsMap::default() }, features::SUPPORTED)
    }
}
