//! How long each entry of the blocklist lasts.
//!
//! The map says when an entry ends, by the wall clock of whoever led when it was made, and clients are shown that. But a fenced client
//! that may write again too early destroys what the fence was for, so no wall clock decides: the leader counts the time that was asked for
//! by its steady clock, and a new leader counts all of it anew.

use crate::txn::{self, StateError, Txn};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::Kv;
use types::{EntityAddr, Mono, Utime};

const NAME: &str = "osdmap";
const KEY: &str = "blocklist";

/// The entries' times.
#[derive(Debug, Default)]
pub struct Fences {
    /// What was asked for. Survives leaders.
    lasts: BTreeMap<EntityAddr, Utime>,
    /// Since when this leader has counted.
    since: BTreeMap<EntityAddr, Mono>,
}

impl Fences {
    pub fn load(kv: &impl Kv) -> Result<Self, StateError> {
        Ok(Fences { lasts: txn::get(kv, NAME, KEY)?.unwrap_or_default(), since: BTreeMap::new() })
    }

    /// An entry is made, or made again.
    pub fn set(&mut self, now: Mono, addr: EntityAddr, lasts: Duration, txn: &mut Txn) {
        self.lasts.insert(addr, Utime::from_duration(lasts));
        self.since.insert(addr, now);
        txn.put_encoded(NAME, KEY, &self.lasts);
    }

    /// Those of the entries there are whose time is over; entries that nobody knows the time of last `otherwise`.
    pub fn over(&mut self, now: Mono, there_are: &BTreeSet<EntityAddr>, otherwise: Duration, txn: &mut Txn) -> Vec<EntityAddr> {
        let known = self.lasts.len();
        self.lasts.retain(|addr, _| there_are.contains(addr));
        self.since.retain(|addr, _| there_are.contains(addr));
        if self.lasts.len() < known {
            txn.put_encoded(NAME, KEY, &self.lasts);
        }
        let mut is_over = |addr: &EntityAddr| {
            let lasts = self.lasts.get(addr).map_or(otherwise, |l| l.to_duration());
            now - *self.since.entry(*addr).or_insert(now) > lasts
        };
        there_are.iter().filter(|addr| is_over(addr)).copied().collect()
    }
}
