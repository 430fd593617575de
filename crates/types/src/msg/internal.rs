//! Messages between our daemons that no client sees: OSD to monitor, OSD to manager, manager to monitor.
//!
//! Ours, not Ceph's: kinds from 0x7000. A field that comes later is marked `since` the header version that brought it.

use super::message;
use crate::map::{MergeMeta, SnapIntervals};
use crate::pg::{IoRates, OsdStat, PgStat, PoolDigest, StoreStatfs};
use crate::{AddrVec, EVersion, Epoch, OsdId, PgId, PoolId, Utime};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::BTreeMap;
use uuid::Uuid;

message! {
    /// An OSD asks to be marked up.
    OsdBoot = 0x7000, v 1, c 1, p 127 {
        osd: OsdId,
        fsid: Uuid,
        /// The OSD's own id: a directory of another incarnation of this number is refused by it.
        uuid: Uuid,
        public_addrs: AddrVec,
        cluster_addrs: AddrVec,
        hb_back_addrs: AddrVec,
        hb_front_addrs: AddrVec,
        /// Epoch of the newest map the OSD had when it started.
        boot_epoch: Epoch,
        /// What `ceph osd metadata` shows.
        metadata: BTreeMap<String, String>,
        size_bytes: u64,
        /// `hdd`, `ssd`, `nvme`; empty when unknown.
        device_class: String,
        /// Type to name: `host` to `a`, `root` to `default`.
        crush_location: BTreeMap<String, String>,
    }
}
message! {
    /// An OSD wants the map to say that it was alive in `want`, before it goes active.
    OsdAlive = 0x7001, v 1, c 1, p 127 { osd: OsdId, epoch: Epoch, want: Epoch, }
}
message! {
    /// An OSD reports another one that answers no heartbeats.
    OsdFailure = 0x7002, v 1, c 1, p 127 {
        reporter: OsdId,
        target: OsdId,
        /// The target's addresses as the reporter knows them: a report about an earlier boot is void.
        target_addrs: AddrVec,
        failed_for_ms: u64,
        epoch: Epoch,
        kind: FailureKind,
    }
}
message! {
    /// An OSD that is stopping asks to be marked down at once.
    OsdMarkMeDown = 0x7003, v 1, c 1, p 127 { osd: OsdId, addrs: AddrVec, epoch: Epoch, ack_wanted: bool, }
}
message! {
    /// The map says so now.
    OsdMarkMeDownAck = 0x7004, v 1, c 1, p 196 { osd: OsdId, epoch: Epoch, }
}
message! {
    /// An OSD is alive and has maps up to `epoch`.
    OsdBeacon = 0x7005, v 2, c 2, p 127 {
        osd: OsdId,
        epoch: Epoch,
        /// The newest epoch in which it knows a PG to have been clean, for each whose primary it is.
        last_epoch_clean: BTreeMap<PgId, Epoch>,
    }
}
message! {
    /// Primaries ask for another acting set while they backfill; an empty one ends it.
    PgTempRequest = 0x7006, v 1, c 1, p 127 {
        osd: OsdId,
        epoch: Epoch,
        pg_temp: BTreeMap<PgId, Vec<OsdId>>,
        forced: bool,
    }
}
message! {
    /// The primary of two PGs that are to become one: both are clean on the same OSDs and take no operations; or they will not come to
    /// that soon. Void with a pool that has changed since.
    PgReadyToMerge = 0x7007, v 1, c 1, p 127 {
        osd: OsdId,
        epoch: Epoch,
        /// The PG that ends.
        source: PgId,
        /// `last_change` of the pool.
        pool_changed: Epoch,
        ready: bool,
        source_version: EVersion,
        target_version: EVersion,
        last_epoch_started: Epoch,
        last_epoch_clean: Epoch,
        acting: Vec<OsdId>,
    }
}

impl PgReadyToMerge {
    /// What the pool remembers of the merge, if its map of `epoch` makes it.
    pub fn meta(&self, epoch: Epoch) -> MergeMeta {
        MergeMeta {
            source_pgid: self.source,
            ready_epoch: epoch,
            last_epoch_started: self.last_epoch_started,
            last_epoch_clean: self.last_epoch_clean,
            source_version: self.source_version,
            target_version: self.target_version,
        }
    }
}
message! {
    /// What an OSD's data device has turned out to do, in thousandths of an I/O of 4 KiB a second: kept as an option, unless an operator has set that.
    OsdCapacity = 0x7008, v 1, c 1, p 127 { osd: OsdId, rotational: bool, iops_thousandths: u64, }
}
message! {
    /// An OSD's figures, every period. Per-PG statistics come from the primary.
    MgrStats = 0x7010, v 2, c 1, p 127 {
        osd: OsdId,
        fsid: Uuid,
        epoch: Epoch,
        stat: OsdStat,
        /// What the OSD's store holds of each pool, all its copies.
        pools: BTreeMap<PoolId, StoreStatfs>,
        pgs: BTreeMap<PgId, PgStat>,
        perf: BTreeMap<String, PerfValue>,
        slow_ops: SlowOps,
        /// Every option whose value is not the default; absent when unchanged since the last report.
        config: Option<BTreeMap<String, ConfigInForce>>,
        device: DeviceReport = since 2,
    }
}
message! {
    /// What the monitor needs to know of PGs and usage, from the active manager.
    MgrDigest = 0x7011, v 3, c 1, p 127 {
        /// The osdmap it was made with.
        epoch: Epoch,
        stamp: Utime,
        /// PGs by state bits; those nobody reported have state `unknown`, 0.
        pgs_by_state: BTreeMap<u64, u32>,
        pools: BTreeMap<PoolId, PoolDigest>,
        osds: BTreeMap<OsdId, OsdStat>,
        /// Sums over OSDs that are in, per device class.
        classes: BTreeMap<String, StoreStatfs>,
        total: StoreStatfs,
        /// Over all pools.
        io: IoRates,
        health: Vec<HealthReport>,
        progress: Vec<ProgressReport>,
        /// Service name, daemon name, and what it says of itself.
        services: BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>,
        /// How many PGs have an OSD among those that act, or that should.
        pgs_by_osd: Option<BTreeMap<OsdId, u32>> = since 2,
        /// Removed snapshots that no PG of their pool has anything of.
        purged_snaps: BTreeMap<PoolId, SnapIntervals> = since 3,
    }
}
message! {
    /// A manager is alive and would be, or is, active.
    MgrBeacon = 0x7012, v 1, c 1, p 127 {
        gid: u64,
        name: String,
        fsid: Uuid,
        addrs: AddrVec,
        /// It has the maps and answers commands.
        available: bool,
        metadata: BTreeMap<String, String>,
    }
}

message! {
    /// An operator wants these PGs scrubbed; from the manager to their primary.
    OsdScrub = 0x7013, v 1, c 1, p 127 { pgs: Vec<PgId>, deep: bool, repair: bool, }
}

message! {
    /// What the monitors know beside the osdmaps, for an OSD to keep: all that is left should every monitor be lost.
    /// Its encoding is also the row on the OSD's disk.
    MonCopy = 0x7014, v 1, c 1, p 63 { copy: KeptState, }
}

/// The monitors' state as OSDs keep it. A newer one replaces an older one: by generation, then by index.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct KeptState {
    /// How often the monitors were rebuilt from OSDs.
    pub generation: u64,
    /// Consensus had come so far.
    pub index: u64,
    /// Keys and values that anybody may read.
    pub open: Bytes,
    /// Keys of entities and the like, encrypted with a key derived from that of `mon.`.
    pub sealed: Bytes,
}

impl KeptState {
    /// True if it says more than another one.
    pub fn is_newer_than(&self, other: &KeptState) -> bool {
        (self.generation, self.index) > (other.generation, other.index)
    }
}

message! {
    /// An operator wants these PGs recovered or backfilled before others, or not any more; from the manager to their primary.
    OsdForceRecovery = 0x7015, v 1, c 1, p 127 { pgs: Vec<PgId>, backfill: bool, cancel: bool, }
}

message! {
    /// Clients of devices that have a controller, or a disk, in common with the OSD's are held back by it: for some seconds it gives background
    /// work no more of its device than clients are not promised. From the manager, again and again while it is so.
    OsdYield = 0x7016, v 1, c 1, p 127 { seconds: u32, }
}

message! {
    /// An operator gives up what is left of an incomplete PG: it begins anew with nothing in it. From the manager to its primary.
    OsdForceCreate = 0x7017, v 1, c 1, p 127 { pgid: PgId, }
}

/// What a report says of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum FailureKind {
    /// It answers again: earlier reports are withdrawn.
    #[denc(tag = 0)]
    Alive,
    /// No heartbeat within the grace.
    #[denc(tag = 1)]
    Silent,
    /// Its address refuses connections: it is certainly gone.
    #[denc(tag = 2)]
    Refused,
}

/// One performance counter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum PerfValue {
    /// A count or gauge.
    #[denc(tag = 1)]
    Int(u64),
    /// A running average: how many, and their sum in the counter's unit (nanoseconds for times).
    #[denc(tag = 2)]
    Avg { count: u64, sum: u64 },
}

/// Requests that have waited longer than `osd_op_complaint_time`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct SlowOps {
    pub count: u32,
    pub oldest_ms: u64,
    /// How many of them wait for what.
    #[denc(since = 2)]
    pub stages: BTreeMap<String, u32>,
}

/// What an OSD has learned of its data device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct DeviceReport {
    /// The node that has it.
    pub host: String,
    /// What other devices may have a part in, too, the nearest first: `disk sda`, `controller 0000:00:14.0`.
    pub parents: Vec<String>,
    /// Thousandths of the last seconds in which it was busy; absent while figures are guesses.
    pub busy: Option<u16>,
    /// Of that, what clients had.
    pub clients: u16,
    /// I/Os of 4 KiB in a second.
    pub read_iops: u64,
    pub write_iops: u64,
    /// Bytes in a second, 4 MiB at a time.
    pub read_bytes: u64,
    pub write_bytes: u64,
}

/// An option's value and where it comes from: `file`, `mon`, `override`, `cmdline`, ...
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ConfigInForce {
    pub value: String,
    pub source: String,
    /// Sources that are overruled by it with what they say, the nearest first.
    pub overrides: Vec<(String, String)>,
}

/// A health check as it travels (`health_check_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct HealthReport {
    pub code: String,
    /// 1 warning, 2 error.
    pub severity: u8,
    pub summary: String,
    pub count: i64,
    pub detail: Vec<String>,
}

/// Something long that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ProgressReport {
    pub id: String,
    pub message: String,
    /// In millionths.
    pub done_ppm: u32,
    pub started: Utime,
    /// Seconds left, once they can be told.
    pub left_s: Option<u64>,
    pub add_to_ceph_s: bool,
}

#[cfg(test)]
mod tests {
    use super::super::tests::round_trip;
    use super::*;
    use crate::pg::PerfStat;

    #[test]
    fn reports_read_back() {
        round_trip(&MgrStats {
            osd: OsdId(1),
            fsid: Uuid::nil(),
            epoch: Epoch(3),
            stat: OsdStat { perf: PerfStat { commit_latency_ns: 812_345, apply_latency_ns: 1 }, ..OsdStat::default() },
            pools: BTreeMap::from([(PoolId(1), StoreStatfs::default())]),
            pgs: BTreeMap::from([(PgId::default(), PgStat::default())]),
            perf: BTreeMap::from([("osd.op".into(), PerfValue::Avg { count: 1, sum: 2 })]),
            slow_ops: SlowOps::default(),
            config: Some(BTreeMap::from([("osd_max_backfills".into(), ConfigInForce::default())])),
            device: DeviceReport { host: "n1".into(), parents: vec!["disk sda".into()], busy: Some(900), ..DeviceReport::default() },
        });
        round_trip(&MgrDigest {
            epoch: Epoch(3),
            stamp: Utime::ZERO,
            pgs_by_state: BTreeMap::from([(6, 8)]),
            pools: BTreeMap::from([(PoolId(1), PoolDigest::default())]),
            osds: BTreeMap::new(),
            classes: BTreeMap::new(),
            total: StoreStatfs::default(),
            io: IoRates::default(),
            health: vec![HealthReport::default()],
            progress: vec![ProgressReport::default()],
            services: BTreeMap::new(),
            pgs_by_osd: Some(BTreeMap::from([(OsdId(1), 8)])),
            purged_snaps: BTreeMap::from([(PoolId(1), SnapIntervals([(3, 2)].into()))]),
        });
    }

    #[test]
    fn a_failure_says_of_what_kind() {
        round_trip(&OsdFailure {
            reporter: OsdId(1),
            target: OsdId(2),
            target_addrs: AddrVec::default(),
            failed_for_ms: 20_000,
            epoch: Epoch(9),
            kind: FailureKind::Silent,
        });
    }
}
