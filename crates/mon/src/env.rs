//! What a monitor is told at its start and never changes.

use crate::services::State;
use crate::services::config::Subject;
use std::collections::BTreeMap;
use types::{AddrVec, EntityKind, EntityName, Mono, Utime};

/// Who this monitor is and what its configuration file says.
#[derive(Debug, Clone)]
pub struct Env {
    /// The id: `a` of `mon.a`.
    pub name: String,
    /// Where it listens.
    pub addrs: AddrVec,
    pub hostname: String,
    /// Options from the configuration file and the command line, by canonical name (`mon_allow_pool_delete`).
    pub options: BTreeMap<String, String>,
    /// What `ceph mon metadata` shows.
    pub metadata: BTreeMap<String, String>,
    /// Tells this boot of this monitor from all others: proposals are signed with it.
    pub boot: u64,
}

/// What the rest of the monitor must know of the quorum.
#[derive(Debug, Clone, Copy)]
pub struct Quorum {
    /// Our own rank.
    pub rank: usize,
    pub leader: usize,
    /// Raft's term, which operators see as the election epoch.
    pub term: u64,
    /// When this leader began to serve.
    pub since: Mono,
    pub since_wall: Utime,
}

impl Env {
    /// The monitor's entity name.
    pub fn entity(&self) -> EntityName {
        EntityName::new(EntityKind::MON, self.name.clone())
    }

    /// An option of this monitor: the file overrules the monitors' database, the database the default.
    pub fn option(&self, state: &State, name: &str) -> Option<String> {
        let own = self.options.get(name).cloned();
        own.or_else(|| state.config.get(&Subject::mon(&self.name), name))
            .or_else(|| admin::option::find(name).map(|o| o.default_for(true)))
    }

    /// A whole-number option.
    pub fn int(&self, state: &State, name: &str, default: i64) -> i64 {
        self.option(state, name).and_then(|v| v.trim().parse().ok()).unwrap_or(default)
    }

    /// A fraction.
    pub fn float(&self, state: &State, name: &str, default: f64) -> f64 {
        self.option(state, name).and_then(|v| v.trim().parse().ok()).unwrap_or(default)
    }

    /// A switch.
    pub fn bool(&self, state: &State, name: &str, default: bool) -> bool {
        match self.option(state, name).as_deref() {
            Some("true" | "1" | "yes" | "on") => true,
            Some("false" | "0" | "no" | "off") => false,
            _ => default,
        }
    }

    /// An option in seconds.
    pub fn seconds(&self, state: &State, name: &str, default: u64) -> std::time::Duration {
        let text = self.option(state, name);
        let value = text.and_then(|v| v.trim().parse::<f64>().ok()).filter(|v| v.is_finite() && *v >= 0.0);
        std::time::Duration::from_secs_f64(value.unwrap_or(default as f64).min(1e9))
    }
}
