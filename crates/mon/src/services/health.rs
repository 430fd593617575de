//! Silenced health checks. The checks themselves are computed whenever someone asks: see `crate::health`.

use crate::txn::{self, StateError, Txn};
use denc::{Decode, Encode};
use std::collections::BTreeMap;
use store::Kv;
use types::Utime;

const NAME: &str = "health";

/// A muted check (`health_mute_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Mute {
    /// When it ends; zero for never.
    pub until: Utime,
    /// It stays when the check clears.
    pub sticky: bool,
    pub summary: String,
    pub count: i64,
}

/// Mutes by code.
#[derive(Debug, Default)]
pub struct HealthService {
    pub mutes: BTreeMap<String, Mute>,
}

impl HealthService {
    pub fn load(kv: &impl Kv) -> Result<Self, StateError> {
        Ok(HealthService { mutes: txn::get(kv, NAME, "mutes")?.unwrap_or_default() })
    }

    pub fn mute(&mut self, code: &str, mute: Mute, txn: &mut Txn) {
        self.mutes.insert(code.to_owned(), mute);
        txn.put_encoded(NAME, "mutes", &self.mutes);
    }

    pub fn unmute(&mut self, code: &str, txn: &mut Txn) {
        if self.mutes.remove(code).is_some() {
            txn.put_encoded(NAME, "mutes", &self.mutes);
        }
    }
}
