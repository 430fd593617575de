//! A replicated dictionary that others keep things in: dashboards, certificates, disk encryption keys.

use crate::txn::{self, StateError, Txn};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::Kv;

const NAME: &str = "config-key";

/// Largest value in bytes (`mon_config_key_max_entry_size`).
pub const VALUE_MAX: usize = 65_536;

/// Keys and values.
pub struct ConfigKeyService {
    entries: BTreeMap<String, Bytes>,
}

impl ConfigKeyService {
    pub fn load(kv: &impl Kv) -> Result<Self, StateError> {
        let all = txn::scan(kv, NAME, b"")?;
        let entries = all.into_iter().map(|(k, v)| (String::from_utf8_lossy(&k).into_owned(), v)).collect();
        Ok(ConfigKeyService { entries })
    }

    /// Nothing yet.
    pub fn empty() -> Self {
        ConfigKeyService { entries: BTreeMap::new() }
    }

    pub fn put(&mut self, key: &str, value: Bytes, txn: &mut Txn) {
        txn.put(NAME, key, value.clone());
        self.entries.insert(key.to_owned(), value);
    }

    /// Removes a key; false if it was not there.
    pub fn remove(&mut self, key: &str, txn: &mut Txn) -> bool {
        txn.delete(NAME, key);
        self.entries.remove(key).is_some()
    }

    pub fn get(&self, key: &str) -> Option<&Bytes> {
        self.entries.get(key)
    }

    /// Entries whose key starts with `prefix`.
    pub fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Bytes)> {
        self.entries.range(prefix.to_owned()..).take_while(move |(k, _)| k.starts_with(prefix))
    }
}
