//! How long each entry of the blocklist lasts.
//!
//! The map says when an entry ends, by the wall clock of whoever led when it was made, and clients are shown that. But a fenced client
//! that may write again too early destroys what the fence was for, so no wall clock decides: the leader counts the time that was asked for
//! by its steady clock, and a new leader counts all of it anew.

use crate::txn::{self, StateError, Txn};
use std::collections::BTreeMap;
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

    /// An entry is made, or made again: what is longer counts.
    pub fn set(&mut self, now: Mono, addr: EntityAddr, lasts: Duration, txn: &mut Txn) {
        let left = |old: &Utime| old.to_duration().saturating_sub(self.since.get(&addr).map_or(Duration::ZERO, |since| now - *since));
        if self.lasts.get(&addr).is_some_and(|old| left(old) > lasts) {
            return;
        }
        self.lasts.insert(addr, Utime::from_duration(lasts));
        self.since.insert(addr, now);
        txn.put_encoded(NAME, KEY, &self.lasts);
    }

    /// Those of the entries there are whose time is over. With each comes how long it lasts if nobody has said so: it was made by an earlier
    /// build, or what was said is lost.
    pub fn over(&mut self, now: Mono, there_are: &BTreeMap<EntityAddr, Duration>, txn: &mut Txn) -> Vec<EntityAddr> {
        let known = self.lasts.len();
        self.lasts.retain(|addr, _| there_are.contains_key(addr));
        self.since.retain(|addr, _| there_are.contains_key(addr));
        if self.lasts.len() < known {
            txn.put_encoded(NAME, KEY, &self.lasts);
        }
        let mut is_over = |addr: &EntityAddr, otherwise: Duration| {
            let lasts = self.lasts.get(addr).map_or(otherwise, |l| l.to_duration());
            now - *self.since.entry(*addr).or_insert(now) > lasts
        };
        there_are.iter().filter(|(addr, otherwise)| is_over(addr, **otherwise)).map(|(addr, _)| *addr).collect()
    }
}
