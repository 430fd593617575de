//! The map of monitors.

use crate::txn::{self, StateError, Txn};
use bytes::Bytes;
use denc::{Encode, Encoder};
use std::collections::BTreeMap;
use store::Kv;
use types::map::MonMap;
use types::{Utime, features};

const NAME: &str = "monmap";

/// The MonMap and its encoding, and what members say of themselves.
pub struct MonMapService {
    pub map: MonMap,
    /// What `ceph mon metadata` shows, by name; of a monitor that is alone, nothing.
    pub metadata: BTreeMap<String, BTreeMap<String, String>>,
    encoded: Bytes,
}

impl MonMapService {
    pub fn load(kv: &impl Kv) -> Result<Option<Self>, StateError> {
        let map: Option<MonMap> = txn::get(kv, NAME, "current")?;
        let metadata = txn::get(kv, NAME, "metadata")?.unwrap_or_default();
        Ok(map.map(|map| MonMapService { encoded: encode(&map), map, metadata }))
    }

    /// Publishes the first map.
    pub fn create(mut map: MonMap, txn: &mut Txn) -> Self {
        map.epoch.0 = map.epoch.0.max(1);
        let encoded = encode(&map);
        txn.put(NAME, "current", encoded.clone());
        MonMapService { map, encoded, metadata: BTreeMap::new() }
    }

    /// Remembers what a member says of itself.
    pub fn set_metadata(&mut self, name: &str, metadata: BTreeMap<String, String>, txn: &mut Txn) {
        if self.map.rank_of(name).is_some() && self.metadata.get(name) != Some(&metadata) {
            self.metadata.insert(name.to_owned(), metadata);
            txn.put_encoded(NAME, "metadata", &self.metadata);
        }
    }

    /// Publishes `map` as the next epoch.
    pub fn replace(&mut self, mut map: MonMap, stamp: Utime, txn: &mut Txn) {
        map.epoch = self.map.epoch.next();
        map.last_changed = stamp;
        let metadata = std::mem::take(&mut self.metadata);
        *self = MonMapService { metadata, ..Self::create(map, txn) };
    }

    /// The encoding every client of today reads.
    pub fn encoded(&self) -> Bytes {
        self.encoded.clone()
    }
}

fn encode(map: &MonMap) -> Bytes {
    let mut e = Encoder::new(features::SUPPORTED);
    map.encode(&mut e);
    e.finish()
}
