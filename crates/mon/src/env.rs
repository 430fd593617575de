//! What a monitor is told at its start and never changes.

use crate::clocks::Clocks;
use crate::services::State;
use crate::services::config::Subject;
use std::collections::BTreeMap;
use types::map::MonMap;
use types::msg::internal_mon::MonRoom;
use types::{AddrVec, EntityKind, EntityName, Mono};

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

/// What the rest of the monitor must know of the quorum: as the leader has seen or told it.
#[derive(Debug, Clone)]
pub struct Quorum {
    /// Our own rank; `NO_RANK` without one.
    pub rank: usize,
    /// None while nobody is known to lead.
    pub leader: Option<usize>,
    /// Ranks of those that agree, in order; none while nobody leads.
    pub ranks: Vec<usize>,
    /// Raft's term, which operators see as the election epoch.
    pub term: u64,
    /// Since when it has been these.
    pub since: Mono,
    /// How far their clocks are apart; at the leader.
    pub clocks: Clocks,
    /// What the stores of monitors have of room, as they last said; at the leader of all, at the others of themselves.
    pub rooms: BTreeMap<String, MonRoom>,
}

impl Quorum {
    /// The rank of a monitor that the map does not name.
    pub const NO_RANK: usize = usize::MAX;

    /// The leader says who is with it.
    pub fn told(&mut self, leader: usize, term: u64, ranks: Vec<usize>, since: Mono) {
        let mut clocks = std::mem::take(&mut self.clocks);
        clocks.ask_soon();
        let rooms = std::mem::take(&mut self.rooms);
        *self = Quorum { rank: self.rank, leader: Some(leader), ranks, term, since, clocks, rooms };
    }

    /// Nobody leads.
    pub fn lost(&mut self, term: u64) {
        (self.leader, self.term) = (None, term);
        self.ranks.clear();
    }

    /// The names of those that agree.
    pub fn names<'a>(&self, map: &'a MonMap) -> Vec<&'a str> {
        self.ranks.iter().filter_map(|rank| map.ranks.get(*rank)).map(String::as_str).collect()
    }

    /// Ranks and names of those that do not.
    pub fn outside<'a>(&self, map: &'a MonMap) -> Vec<(usize, &'a str)> {
        let all = map.ranks.iter().enumerate().map(|(rank, name)| (rank, name.as_str()));
        all.filter(|(rank, _)| !self.ranks.contains(rank)).collect()
    }

    /// The leader's name; empty while nobody leads.
    pub fn leader_name<'a>(&self, map: &'a MonMap) -> &'a str {
        self.leader.and_then(|rank| map.ranks.get(rank)).map_or("", String::as_str)
    }

    /// The ranks as text.
    pub fn ranks_text(&self) -> String {
        self.ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
    }
}

impl Env {
    /// The monitor's entity name.
    pub fn entity(&self) -> EntityName {
        EntityName::new(EntityKind::MON, self.name.clone())
    }

    /// What `mon metadata` shows of this monitor.
    pub fn shown(&self) -> BTreeMap<String, String> {
        let mut all = self.metadata.clone();
        all.insert("addrs".into(), self.addrs.to_string());
        all.insert("hostname".into(), self.hostname.clone());
        all.insert("ceph_version".into(), crate::version::full());
        all.insert("ceph_version_short".into(), crate::version::short().into());
        all.insert("ceph_release".into(), crate::version::RELEASE.into());
        all
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
