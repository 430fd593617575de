//! How much memory the daemon takes: what the operator says, or what this machine allows.
//!
//! Room: osd core.   Owns: the target.   Says: budgets to the store, a bound for requests under way, entries of PG logs.
//! Holds: what the operator says goes before what is measured; nothing is below what the store can work with.
//! Upstream: osd_memory_target, osd_memory_target_cgroup_limit_ratio, and osd_memory_target_autotune, which upstream's manager
//! works out and each OSD for itself here.

use admin::option::ConfigValues;
use store::{MEMORY_LEAST, Memory};
use types::OsdId;
use types::map::OsdMap;

/// What the machine has, in bytes; 0 where that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostMemory {
    pub total: u64,
    /// What the control group may have.
    pub limit: u64,
}

/// Of a machine's memory its OSDs get that much together (`mgr/cephadm/autotune_memory_target_ratio`).
const AUTOTUNED: f64 = 0.7;
/// Of the target requests of clients may take so much while they are under way.
const REQUESTS: u64 = 4;

/// Why the target is what it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Wanted {
    /// Nobody said anything, and there is enough for what we take by ourselves.
    Usual,
    Set(u64),
    /// A part of what the control group may have.
    Limited(u64),
    /// The OSD's part of the machine.
    Autotuned(u64),
}

impl Wanted {
    pub fn new(c: &ConfigValues, host: HostMemory, osds_here: u64) -> Self {
        let most = if host.limit > 0 { host.limit.min(host.total.max(1)) } else { host.total };
        if c.bool("osd_memory_target_autotune") && most > 0 {
            return Wanted::Autotuned((most as f64 * AUTOTUNED) as u64 / osds_here.max(1));
        }
        if c.is_set("osd_memory_target") {
            return Wanted::Set(c.u64("osd_memory_target"));
        }
        let limited = (host.limit as f64 * c.f64("osd_memory_target_cgroup_limit_ratio").clamp(0.0, 1.0)) as u64;
        if limited > 0 && limited < c.u64("osd_memory_target") { Wanted::Limited(limited) } else { Wanted::Usual }
    }

    /// Bytes, as far as they are possible; `None` for what the store takes by itself.
    pub fn target(self) -> Option<u64> {
        match self {
            Wanted::Usual => None,
            Wanted::Set(bytes) | Wanted::Limited(bytes) | Wanted::Autotuned(bytes) => Some(bytes.max(MEMORY_LEAST)),
        }
    }

    /// What is to be said of a target that is not possible.
    pub fn complaint(self) -> Option<String> {
        let (bytes, why) = match self {
            Wanted::Usual => return None,
            Wanted::Set(bytes) => (bytes, "osd_memory_target"),
            Wanted::Limited(bytes) => (bytes, "the control group's limit, by osd_memory_target_cgroup_limit_ratio"),
            Wanted::Autotuned(bytes) => (bytes, "osd_memory_target_autotune"),
        };
        (bytes < MEMORY_LEAST).then(|| too_little(why, bytes))
    }
}

/// A target that is below what is possible.
pub(crate) fn too_little(why: &str, bytes: u64) -> String {
    format!("{why} is {bytes} bytes: with less than {} MiB an OSD cannot work, and it takes that much", MEMORY_LEAST >> 20)
}

/// What follows from a target, in force.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub wanted: Wanted,
    /// Of all caches of the store; `None` to leave them alone.
    pub memory: Option<Memory>,
    /// Bytes of requests that may be under way, of those that `osd_client_message_size_cap` allows.
    pub requests: u64,
    /// Parts of a thousand of the log entries that are kept for whoever is away.
    pub log_share: usize,
}

impl Plan {
    pub fn new(c: &ConfigValues, host: HostMemory, osds_here: u64) -> Self {
        let wanted = Wanted::new(c, host, osds_here);
        let usual = store::StoreConfig::default().memory_target;
        let target = wanted.target().unwrap_or(usual);
        let cache_min = if c.is_set("osd_memory_cache_min") { c.u64("osd_memory_cache_min") } else { 0 };
        let most = target / REQUESTS;
        let requests = match c.u64("osd_client_message_size_cap") {
            0 => most,
            cap => cap.min(most),
        };
        let is_plain = wanted == Wanted::Usual && cache_min == 0;
        Plan {
            wanted,
            memory: (!is_plain).then_some(Memory { target, cache_min }),
            requests,
            log_share: (target.min(usual) * 1000 / usual) as usize,
        }
    }
}

/// How many OSDs are under the same host as this one, itself included.
pub(crate) fn osds_here(map: &OsdMap, me: OsdId) -> u64 {
    let host = map.crush.type_id("host").and_then(|kind| map.crush.parent_of_type(me.0, kind, None));
    host.map_or(1, |host| map.crush.leaves(host).len().max(1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::option::Source;
    use types::{EntityKind, EntityName};

    const GB: u64 = 1 << 30;

    fn config(set: &[(&str, &str)]) -> ConfigValues {
        let mut c = ConfigValues::new(EntityName::new(EntityKind::OSD, "0"), "ceph", "host");
        set.iter().for_each(|(name, value)| c.set(name, Source::Override, value).unwrap());
        c
    }

    #[test]
    fn what_an_operator_says_goes_before_what_the_machine_allows() {
        let host = HostMemory { total: 8 * GB, limit: 0 };
        assert_eq!(Wanted::new(&config(&[]), host, 2), Wanted::Usual);
        assert_eq!(Wanted::new(&config(&[("osd_memory_target", "1G")]), host, 2), Wanted::Set(GB));
        let small = HostMemory { total: 8 * GB, limit: 120 << 20 };
        assert_eq!(Wanted::new(&config(&[]), small, 2), Wanted::Limited(96 << 20));
        assert_eq!(Wanted::new(&config(&[("osd_memory_target", "1G")]), small, 2), Wanted::Set(GB));
        assert_eq!(Wanted::new(&config(&[("osd_memory_target_cgroup_limit_ratio", "0")]), small, 2), Wanted::Usual);
        let Wanted::Autotuned(each) = Wanted::new(&config(&[("osd_memory_target_autotune", "true")]), host, 2) else { panic!() };
        assert_eq!(each / (1 << 20), 2867, "seven tenths, by two");
    }

    #[test]
    fn less_than_possible_is_told_of_and_not_done() {
        let plan = Plan::new(&config(&[("osd_memory_target", "64M")]), HostMemory::default(), 1);
        assert_eq!(plan.memory, Some(Memory { target: MEMORY_LEAST, cache_min: 0 }));
        assert_eq!((plan.requests, plan.log_share), (24 << 20, 750));
        let said = plan.wanted.complaint().unwrap();
        assert!(said.starts_with("osd_memory_target is 67108864 bytes: with less than 96 MiB"), "{said}");
        assert_eq!(Plan::new(&config(&[("osd_memory_target", "200M")]), HostMemory::default(), 1).wanted.complaint(), None);
    }

    #[test]
    fn requests_take_no_more_than_a_part_of_it() {
        let requests = |set: &[(&str, &str)]| Plan::new(&config(set), HostMemory::default(), 1).requests;
        assert_eq!(requests(&[]), 32 << 20);
        assert_eq!(requests(&[("osd_client_message_size_cap", "1M")]), 1 << 20);
        assert_eq!(requests(&[("osd_client_message_size_cap", "0")]), 32 << 20);
        assert_eq!(requests(&[("osd_memory_target", "4G")]), 500 << 20, "upstream's");
    }

    #[test]
    fn nothing_said_leaves_the_store_alone() {
        assert_eq!(Plan::new(&config(&[]), HostMemory { total: 8 * GB, limit: 8 * GB }, 1).memory, None);
        let kept = Plan::new(&config(&[("osd_memory_cache_min", "128M")]), HostMemory::default(), 1).memory;
        assert_eq!(kept, Some(Memory { target: 128 << 20, cache_min: 128 << 20 }));
    }
}
