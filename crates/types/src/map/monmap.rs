//! The monitors (`MonMap`).
//!
//! Upstream: src/mon/MonMap.{h,cc}.

use super::release::Release;
use crate::json::{Obj, array};
use crate::{AddrVec, EntityAddr, Epoch, Utime};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// One monitor (`mon_info_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonInfo {
    /// `foo` of `mon.foo`.
    pub name: String,
    pub public_addrs: AddrVec,
    /// Lower is preferred by clients.
    pub priority: u16,
    pub weight: u16,
    pub crush_loc: BTreeMap<String, String>,
}

impl Encode for MonInfo {
    fn encode(&self, e: &mut Encoder) {
        let compat = if self.crush_loc.is_empty() { 1 } else { 4 };
        e.envelope(5, compat, |e| {
            e.put(&self.name).put(&self.public_addrs).put(&self.priority).put(&self.weight).put(&self.crush_loc);
        });
    }
}
impl Decode for MonInfo {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("mon_info_t", 5, |v, d| {
            Ok(MonInfo {
                name: d.get()?,
                public_addrs: d.get()?,
                priority: if v >= 2 { d.get()? } else { 0 },
                weight: if v >= 4 { d.get()? } else { 0 },
                crush_loc: if v >= 5 { d.get()? } else { BTreeMap::new() },
            })
        })
    }
}

/// How a leader is chosen; shown to operators, ours is Raft's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ElectionStrategy(pub u8);

impl ElectionStrategy {
    pub const CLASSIC: Self = ElectionStrategy(1);
    pub const DISALLOW: Self = ElectionStrategy(2);
    pub const CONNECTIVITY: Self = ElectionStrategy(3);
}
impl Default for ElectionStrategy {
    fn default() -> Self {
        Self::CLASSIC
    }
}

/// Feature bits of monitors (`mon_feature_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct MonFeatures(pub u64);

impl MonFeatures {
    /// Bits and names, as 16.2 prints them.
    pub const NAMES: [(u64, &'static str); 8] = [
        (1 << 0, "kraken"),
        (1 << 1, "luminous"),
        (1 << 2, "mimic"),
        (1 << 3, "osdmap-prune"),
        (1 << 4, "nautilus"),
        (1 << 5, "octopus"),
        (1 << 6, "pacific"),
        (1 << 7, "elector-pinging"),
    ];
    /// What monitors of 16.2 hold for good.
    pub const PACIFIC: MonFeatures = MonFeatures(0xff);
}

/// The monitors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonMap {
    pub fsid: Uuid,
    pub epoch: Epoch,
    pub last_changed: Utime,
    pub created: Utime,
    pub persistent_features: MonFeatures,
    pub optional_features: MonFeatures,
    /// By name.
    pub mon_info: BTreeMap<String, MonInfo>,
    /// Names by rank.
    pub ranks: Vec<String>,
    pub min_mon_release: Release,
    pub removed_ranks: BTreeSet<u32>,
    pub strategy: ElectionStrategy,
    pub disallowed_leaders: BTreeSet<String>,
    pub stretch_mode_enabled: bool,
    pub tiebreaker_mon: String,
    pub stretch_marked_down_mons: BTreeSet<String>,
}

impl MonMap {
    /// An empty map of a new cluster.
    pub fn new(fsid: Uuid, created: Utime) -> Self {
        MonMap {
            fsid,
            created,
            last_changed: created,
            persistent_features: MonFeatures::PACIFIC,
            min_mon_release: Release::PACIFIC,
            ..Self::default()
        }
    }

    /// Adds a monitor, with the last rank.
    pub fn add(&mut self, name: &str, public_addrs: AddrVec) {
        let info = MonInfo { name: name.to_owned(), public_addrs, ..MonInfo::default() };
        if self.mon_info.insert(name.to_owned(), info).is_none() {
            self.ranks.push(name.to_owned());
        }
    }

    /// Removes a monitor; those behind it move up one rank.
    pub fn remove(&mut self, name: &str) {
        self.mon_info.remove(name);
        self.ranks.retain(|n| n != name);
    }

    /// The rank of the monitor called `name`.
    pub fn rank_of(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|n| n == name)
    }

    /// The monitor of that rank.
    pub fn by_rank(&self, rank: usize) -> Option<&MonInfo> {
        self.mon_info.get(self.ranks.get(rank)?)
    }

    /// The monitor that owns `addr`, nonces aside.
    pub fn by_addr(&self, addr: EntityAddr) -> Option<&MonInfo> {
        self.mon_info.values().find(|m| m.public_addrs.0.iter().any(|a| a.kind == addr.kind && a.sock == addr.sock))
    }

    /// How many monitors make a quorum.
    pub fn min_quorum_size(&self) -> usize {
        self.mon_info.len() / 2 + 1
    }
}

impl Encode for MonMap {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(9, 6, |e| {
            e.put(&self.fsid).put(&self.epoch).put(&self.last_changed).put(&self.created);
            e.put(&self.persistent_features).put(&self.optional_features).put(&self.mon_info).put(&self.ranks);
            e.put(&self.min_mon_release).put(&self.removed_ranks).put(&self.strategy).put(&self.disallowed_leaders);
            e.put(&self.stretch_mode_enabled).put(&self.tiebreaker_mon).put(&self.stretch_marked_down_mons);
        });
    }
}
impl Decode for MonMap {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("MonMap", 9, |v, d| {
            if v < 6 {
                return Err(DecodeError::Invalid("MonMap from before 14.2"));
            }
            let mut m = MonMap::default();
            (m.fsid, m.epoch, m.last_changed, m.created) = d.get()?;
            (m.persistent_features, m.optional_features, m.mon_info, m.ranks) = d.get()?;
            if v >= 7 {
                m.min_mon_release = d.get()?;
            }
            if v >= 8 {
                (m.removed_ranks, m.strategy, m.disallowed_leaders) = d.get()?;
            }
            if v >= 9 {
                (m.stretch_mode_enabled, m.tiebreaker_mon, m.stretch_marked_down_mons) = d.get()?;
            }
            Ok(m)
        })
    }
}

impl MonMap {
    /// `mon dump -f json`, without what the monitor adds of the quorum.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("epoch", self.epoch.0).show("fsid", self.fsid);
        o.put("modified", self.last_changed.gmt()).put("created", self.created.gmt());
        o.put("min_mon_release", self.min_mon_release.0).show("min_mon_release_name", self.min_mon_release);
        o.put("election_strategy", self.strategy.0);
        // The colons and blanks are upstream's.
        o.put("disallowed_leaders: ", joined(&self.disallowed_leaders));
        o.put("stretch_mode", self.stretch_mode_enabled).put("tiebreaker_mon", self.tiebreaker_mon.as_str());
        o.put("removed_ranks: ", joined(&self.removed_ranks));
        let mut features = Obj::new();
        features.put("persistent", array(self.persistent_features.names()));
        features.put("optional", array(self.optional_features.names()));
        o.put("features", features);
        let mons = self.ranks.iter().enumerate().filter_map(|(rank, name)| Some((rank, self.mon_info.get(name)?)));
        o.put("mons", array(mons.map(|(rank, mon)| mon.dump_json(rank))));
        o.done()
    }

    /// `mon dump` in plain text.
    pub fn print_plain(&self) -> String {
        let mut s = format!("epoch {}\nfsid {}\n", self.epoch, self.fsid);
        s += &format!("last_changed {}\ncreated {}\n", self.last_changed, self.created);
        s += &format!("min_mon_release {} ({})\n", self.min_mon_release.0, self.min_mon_release);
        s += &format!("election_strategy: {}\n", self.strategy.0);
        if !self.disallowed_leaders.is_empty() {
            s += &format!("disallowed_leaders {}\n", joined(&self.disallowed_leaders));
        }
        for (rank, name) in self.ranks.iter().enumerate() {
            let Some(mon) = self.mon_info.get(name) else { continue };
            s += &format!("{rank}: {} mon.{name}", mon.public_addrs);
            if !mon.crush_loc.is_empty() {
                s += &format!("; crush_location {}", braced(&mon.crush_loc));
            }
            s += "\n";
        }
        s
    }

    /// `e1: 1 mons at {a=v2:127.0.0.1:3300/0}`, the beginning of `mon stat`.
    pub fn print_summary(&self) -> String {
        let mons: Vec<String> = self.mon_info.iter().map(|(name, m)| format!("{name}={}", m.public_addrs)).collect();
        format!("e{}: {} mons at {{{}}}", self.epoch, mons.len(), mons.join(","))
    }
}

impl MonInfo {
    fn dump_json(&self, rank: usize) -> Value {
        let mut o = Obj::new();
        o.put("rank", rank).put("name", self.name.as_str()).put("public_addrs", self.public_addrs.dump_json());
        o.put("addr", self.public_addrs.legacy_string()).put("public_addr", self.public_addrs.legacy_string());
        o.put("priority", self.priority).put("weight", self.weight).put("crush_location", braced(&self.crush_loc));
        o.done()
    }
}

impl MonFeatures {
    /// Names of the bits that are set; `unknown` for those without.
    pub fn names(self) -> Vec<&'static str> {
        let name = |bit: u64| Self::NAMES.iter().find(|(b, _)| *b == bit).map_or("unknown", |(_, name)| *name);
        (0..64).map(|i| 1 << i).filter(|bit| self.0 & bit != 0).map(name).collect()
    }
}

/// `a,b`.
fn joined<T: ToString>(items: &BTreeSet<T>) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// `{a=1,b=2}`.
fn braced(map: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = map.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", pairs.join(","))
}
