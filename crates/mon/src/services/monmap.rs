//! The map of monitors.

use crate::txn::{self, StateError, Txn};
use bytes::Bytes;
use denc::{Decode, Encode, Encoder};
use std::collections::BTreeMap;
use store::{Kv, KvOp};
use types::map::MonMap;
use types::{AddrVec, Utime, features};

pub(crate) const NAME: &str = "monmap";

/// Who is who in consensus: an id belongs to one disk of a monitor, and is given once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct MemberIds {
    /// By name; 0 until the monitor has come.
    pub ids: BTreeMap<String, u64>,
    /// The highest id that was given.
    pub last: u64,
    /// Consensus began with the ids from 1 to this one.
    pub founders: u64,
}

impl MemberIds {
    /// Those of a group that begins, or began before ids were kept: rank + 1.
    pub fn founding(map: &MonMap) -> Self {
        let count = map.ranks.len() as u64;
        MemberIds { ids: map.ranks.iter().cloned().zip(1..).collect(), last: count, founders: count }
    }

    /// Whose disk has this id.
    pub fn name_of(&self, id: u64) -> Option<&str> {
        self.ids.iter().find(|(_, i)| **i == id).map(|(name, _)| name.as_str())
    }
}

/// The MonMap and its encoding, and what members say of themselves.
pub struct MonMapService {
    pub map: MonMap,
    pub members: MemberIds,
    /// What `ceph mon metadata` shows, by name; of a monitor that is alone, nothing.
    pub metadata: BTreeMap<String, BTreeMap<String, String>>,
    encoded: Bytes,
}

impl MonMapService {
    pub fn load(kv: &impl Kv) -> Result<Option<Self>, StateError> {
        let map: Option<MonMap> = txn::get(kv, NAME, "current")?;
        let metadata = txn::get(kv, NAME, "metadata")?.unwrap_or_default();
        let Some(map) = map else { return Ok(None) };
        let members = txn::get(kv, NAME, "members")?.unwrap_or_else(|| MemberIds::founding(&map));
        Ok(Some(MonMapService { encoded: encode(&map), map, members, metadata }))
    }

    /// Publishes the first map, of a group that its monitors found.
    pub fn create(mut map: MonMap, txn: &mut Txn) -> Self {
        map.epoch.0 = map.epoch.0.max(1);
        let members = MemberIds::founding(&map);
        txn.put_encoded(NAME, "members", &members);
        let out = MonMapService { encoded: encode(&map), map, members, metadata: BTreeMap::new() };
        txn.put(NAME, "current", out.encoded.clone());
        out
    }

    /// Changes who is who in consensus.
    pub fn change_members(&mut self, txn: &mut Txn, change: impl FnOnce(&mut MemberIds)) {
        change(&mut self.members);
        txn.put_encoded(NAME, "members", &self.members);
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
        self.encoded = encode(&map);
        txn.put(NAME, "current", self.encoded.clone());
        if self.metadata.keys().any(|name| map.rank_of(name).is_none()) {
            self.metadata.retain(|name, _| map.rank_of(name).is_some());
            txn.put_encoded(NAME, "metadata", &self.metadata);
        }
        self.map = map;
    }

    /// Adds a monitor that has not come yet.
    pub fn add(&mut self, name: &str, addrs: AddrVec, stamp: Utime, txn: &mut Txn) {
        let mut map = self.map.clone();
        map.removed_ranks.clear();
        map.add(name, addrs);
        self.replace(map, stamp, txn);
        self.change_members(txn, |m| m.ids.extend([(name.to_owned(), 0)]));
    }

    /// Removes a monitor.
    pub fn remove(&mut self, name: &str, stamp: Utime, txn: &mut Txn) {
        let mut map = self.map.clone();
        map.removed_ranks = map.rank_of(name).map(|rank| rank as u32).into_iter().collect();
        map.remove(name);
        self.replace(map, stamp, txn);
        self.change_members(txn, |m| m.ids.retain(|known, _| known != name));
    }

    /// The encoding every client of today reads.
    pub fn encoded(&self) -> Bytes {
        self.encoded.clone()
    }
}

/// True if a change may be one of the monitors.
pub(crate) fn concerns(op: &KvOp) -> bool {
    let prefix = txn::state_key(NAME, "");
    match op {
        KvOp::Put(key, _) | KvOp::Delete(key) => key.starts_with(&prefix),
        // A snapshot takes everything away first.
        KvOp::DeleteRange(from, _) => from.len() <= prefix.len() && prefix.starts_with(from),
    }
}

fn encode(map: &MonMap) -> Bytes {
    let mut e = Encoder::new(features::SUPPORTED);
    map.encode(&mut e);
    e.finish()
}
