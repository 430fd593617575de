//! The map of monitors.

use crate::txn::{self, StateError, Txn};
use bytes::Bytes;
use denc::{Encode, Encoder};
use store::Kv;
use types::map::MonMap;
use types::{Utime, features};

const NAME: &str = "monmap";

/// The MonMap and its encoding.
pub struct MonMapService {
    pub map: MonMap,
    encoded: Bytes,
}

impl MonMapService {
    pub fn load(kv: &impl Kv) -> Result<Option<Self>, StateError> {
        let map: Option<MonMap> = txn::get(kv, NAME, "current")?;
        Ok(map.map(|map| MonMapService { encoded: encode(&map), map }))
    }

    /// Publishes the first map.
    pub fn create(mut map: MonMap, txn: &mut Txn) -> Self {
        map.epoch.0 = map.epoch.0.max(1);
        let encoded = encode(&map);
        txn.put(NAME, "current", encoded.clone());
        MonMapService { map, encoded }
    }

    /// Publishes `map` as the next epoch.
    pub fn replace(&mut self, mut map: MonMap, stamp: Utime, txn: &mut Txn) {
        map.epoch = self.map.epoch.next();
        map.last_changed = stamp;
        *self = Self::create(map, txn);
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
