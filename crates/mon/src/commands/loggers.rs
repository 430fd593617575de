//! `perf dump` of a monitor: the cluster's figures as it has them, and its own.
//!
//! Upstream: Monitor::init and ClusterLogger in src/mon/Monitor.cc, src/mon/Monitor.h (`l_cluster_*`, `l_mon_*`).

use super::Ctx;
use super::general::{object_sums, pg_counts};
use admin::perf::{PerfCounters, prio};
use types::OsdId;

admin::counters! {
    Cluster CLUSTER:
    NumMon "num_mon" Gauge "Monitors";
    NumMonQuorum "num_mon_quorum" Gauge "Monitors in the quorum";
    NumOsd "num_osd" Gauge "OSDs";
    NumOsdUp "num_osd_up" Gauge "OSDs that are up";
    NumOsdIn "num_osd_in" Gauge "OSDs that are in";
    OsdEpoch "osd_epoch" Gauge "Epoch of the osdmap";
    OsdBytes "osd_bytes" Gauge "Bytes that all OSDs can hold", nick("", prio::CRITICAL), bytes();
    OsdBytesUsed "osd_bytes_used" Gauge "Bytes of them that are used", nick("", prio::CRITICAL), bytes();
    OsdBytesAvail "osd_bytes_avail" Gauge "Bytes of them that are free", nick("", prio::CRITICAL), bytes();
    NumPool "num_pool" Gauge "Pools";
    NumPg "num_pg" Gauge "Placement groups";
    NumPgActiveClean "num_pg_active_clean" Gauge "Placement groups that are active and clean";
    NumPgActive "num_pg_active" Gauge "Placement groups that are active";
    NumPgPeering "num_pg_peering" Gauge "Placement groups that peer";
    NumObject "num_object" Gauge "Objects";
    NumObjectDegraded "num_object_degraded" Gauge "Copies that are missing";
    NumObjectMisplaced "num_object_misplaced" Gauge "Copies that are not where they belong";
    NumObjectUnfound "num_object_unfound" Gauge "Objects of which no good copy is known";
    NumBytes "num_bytes" Gauge "Bytes of all objects", bytes();
}

admin::counters! {
    Own OWN:
    NumSessions "num_sessions" Gauge "Open sessions";
    ElectionTerm "election_call" Gauge "Elections so far: the term that the monitors are in";
}

/// The loggers, made for the one who asks: everything in them is known elsewhere.
pub(super) fn of(ctx: &Ctx<'_>) -> [PerfCounters; 2] {
    let map = ctx.osdmap();
    let osds: Vec<OsdId> = map.osds().collect();
    let (pgs, states) = pg_counts(ctx);
    let in_state = |part: &dyn Fn(&str) -> bool| states.iter().filter(|(s, _)| part(s)).map(|(_, n)| n).sum::<u64>();
    let total = ctx.state.mgr.digest.as_ref().map(|d| d.total).unwrap_or_default();
    let sums = object_sums(ctx);
    let count = |n: i64| n.max(0) as u64;
    let mut cluster = PerfCounters::new("cluster", CLUSTER);
    for (index, value) in [
        (Cluster::NumMon, ctx.state.monmap.map.mon_info.len() as u64),
        (Cluster::NumMonQuorum, ctx.quorum.ranks.len() as u64),
        (Cluster::NumOsd, osds.len() as u64),
        (Cluster::NumOsdUp, osds.iter().filter(|osd| map.is_up(**osd)).count() as u64),
        (Cluster::NumOsdIn, osds.iter().filter(|osd| map.is_in(**osd)).count() as u64),
        (Cluster::OsdEpoch, map.epoch.0.into()),
        (Cluster::OsdBytes, total.total),
        (Cluster::OsdBytesUsed, total.used_raw()),
        (Cluster::OsdBytesAvail, total.available),
        (Cluster::NumPool, map.pools.len() as u64),
        (Cluster::NumPg, pgs),
        (Cluster::NumPgActiveClean, in_state(&|s| s.contains("active") && s.contains("clean"))),
        (Cluster::NumPgActive, in_state(&|s| s.contains("active"))),
        (Cluster::NumPgPeering, in_state(&|s| s.contains("peering"))),
        (Cluster::NumObject, count(sums.num_objects)),
        (Cluster::NumObjectDegraded, count(sums.num_objects_degraded)),
        (Cluster::NumObjectMisplaced, count(sums.num_objects_misplaced)),
        (Cluster::NumObjectUnfound, count(sums.num_objects_unfound)),
        (Cluster::NumBytes, count(sums.num_bytes)),
    ] {
        cluster.set(index as usize, value);
    }
    let mut own = PerfCounters::new("mon", OWN);
    own.set(Own::NumSessions as usize, ctx.sessions.len() as u64);
    own.set(Own::ElectionTerm as usize, ctx.quorum.term);
    [cluster, own]
}
