//! Every logger of an OSD that `perf dump` shows, and what it holds in memory, by upstream's pools.
//!
//! Room: osd core.   Owns: the loggers whose figures others keep.   Holds: those are set when somebody asks.
//! Upstream: src/common/Throttle.cc, src/msg/async/Stack.h, src/include/mempool.h.

use crate::disk::Disk;
use crate::osd::Osd;
use crate::perf::DevicePerf;
use admin::Args;
use admin::perf::{PerfCounters, Print, prio};
use serde_json::{Map, Value, json};
use std::time::Duration;
use types::Mono;

admin::counters! {
    Messenger MESSENGER_SPECS:
    Received "msgr_recv_messages" Counter "Messages received", nick("", prio::DEBUG);
    Sent "msgr_send_messages" Counter "Messages sent", nick("", prio::DEBUG);
    BytesReceived "msgr_recv_bytes" Counter "Bytes received", bytes(), nick("", prio::DEBUG);
    BytesSent "msgr_send_bytes" Counter "Bytes sent", bytes(), nick("", prio::DEBUG);
    Created "msgr_created_connections" Counter "Connections made since the start", nick("", prio::DEBUG);
    Open "msgr_active_connections" Gauge "Connections there are", nick("", prio::DEBUG);
}

admin::counters! {
    Throttle THROTTLE_SPECS:
    Val "val" Gauge "What is taken of it now", nick("", prio::DEBUG);
    Max "max" Gauge "What may be taken at most", nick("", prio::DEBUG);
}

admin::counters! {
    Recovery RECOVERY_SPECS:
    Active "objects_active" Gauge "Objects on their way to or from placement groups that this OSD leads";
    Most "objects_max" Gauge "As many as may be at once: fewer while they take longer than arrive_within_us";
    Within "arrive_within_us" Gauge "Microseconds that an object should take at most: less while clients wait for longer than client_goal_us";
    Goal "client_goal_us" Gauge "Microseconds within which 99 of 100 requests of clients are to be answered meanwhile";
    Alone "without_clients" Gauge "1 while no client asks for anything: then recovery need not mind them";
    SlowWay "slow_way" Gauge "1 if a disk is slow on which objects lie that move, or are to lie";
}

/// What the daemon's messenger has done since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    pub received: u64,
    pub sent: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub created: u64,
    /// Connections that there are now.
    pub open: u64,
}

/// Loggers whose figures are kept elsewhere.
pub(crate) struct Loggers {
    messenger: PerfCounters,
    client_bytes: PerfCounters,
    client_messages: PerfCounters,
    recovery: PerfCounters,
}

impl Default for Loggers {
    fn default() -> Self {
        Loggers {
            // All of it is one thread's.
            messenger: PerfCounters::new("AsyncMessenger::Worker-0", MESSENGER_SPECS),
            client_bytes: PerfCounters::new("throttle-osd_client_bytes", THROTTLE_SPECS),
            client_messages: PerfCounters::new("throttle-osd_client_messages", THROTTLE_SPECS),
            recovery: PerfCounters::new("recovery", RECOVERY_SPECS),
        }
    }
}

/// The pools in upstream's order.
const POOLS: [&str; 29] = [
    "bloom_filter",
    "bluestore_alloc",
    "bluestore_cache_data",
    "bluestore_cache_onode",
    "bluestore_cache_meta",
    "bluestore_cache_other",
    "bluestore_Buffer",
    "bluestore_Extent",
    "bluestore_Blob",
    "bluestore_SharedBlob",
    "bluestore_inline_bl",
    "bluestore_fsck",
    "bluestore_txc",
    "bluestore_writing_deferred",
    "bluestore_writing",
    "bluefs",
    "bluefs_file_reader",
    "bluefs_file_writer",
    "buffer_anon",
    "buffer_meta",
    "osd",
    "osd_mapbl",
    "osd_pglog",
    "osdmap",
    "osdmap_mapping",
    "pgmap",
    "mds_co",
    "unittest_1",
    "unittest_2",
];

impl Osd {
    /// What the messenger has done: told before every command.
    pub fn note_traffic(&mut self, t: Traffic) {
        let m = &mut self.loggers.messenger;
        let counts = [
            (Messenger::Received, t.received),
            (Messenger::Sent, t.sent),
            (Messenger::BytesReceived, t.bytes_received),
            (Messenger::BytesSent, t.bytes_sent),
            (Messenger::Created, t.created),
        ];
        counts.into_iter().for_each(|(index, total)| m.mirror(index as usize, total));
        m.set(Messenger::Open as usize, t.open);
    }

    /// All loggers, as of now.
    fn loggers<'a>(&'a mut self, now: Mono, disk: &'a mut dyn Disk) -> Vec<&'a mut PerfCounters> {
        let (bytes, requests) = self.intake.taken();
        let l = &mut self.loggers;
        let (within, most) = self.sh.recovery_bounds(now);
        let us = |time: Duration| time.as_micros() as u64;
        let figures = [
            (Recovery::Active, self.sh.recovery_active as u64),
            (Recovery::Most, most as u64),
            (Recovery::Within, us(within)),
            (Recovery::Goal, us(self.sh.felt.goal())),
            (Recovery::Alone, self.sh.is_alone(now).into()),
            (Recovery::SlowWay, self.sh.way_is_slow.into()),
        ];
        figures.into_iter().for_each(|(index, figure)| l.recovery.set(index as usize, figure));
        for (logger, val, max) in [(&mut l.client_bytes, bytes, self.intake.bytes_max), (&mut l.client_messages, requests, self.intake.requests_max)] {
            logger.set(Throttle::Val as usize, val);
            logger.set(Throttle::Max as usize, max);
        }
        self.sh.device_perf.set(disk.device(), &disk.device_use());
        let DevicePerf { device, queue } = &mut self.sh.device_perf;
        let mut all = vec![&mut self.sh.perf.0, device, queue, &mut l.messenger, &mut l.client_bytes, &mut l.client_messages, &mut l.recovery];
        all.extend(disk.perf());
        all
    }

    /// `perf dump` and its relatives.
    pub(crate) fn print_perf(&mut self, now: Mono, disk: &mut dyn Disk, print: Print, args: &Args, pretty: bool) -> String {
        let loggers = self.loggers(now, disk);
        let loggers: Vec<&PerfCounters> = loggers.iter().map(|l| &**l).collect();
        print(&loggers, args.str("logger"), args.str("counter"), pretty)
    }

    /// `dump_objectstore_kv_stats`: the database's loggers alone.
    pub(crate) fn print_kv(&self, disk: &mut dyn Disk, pretty: bool) -> String {
        let loggers = disk.perf();
        let of_kv: Vec<&PerfCounters> = loggers.iter().map(|l| &**l).filter(|l| matches!(l.name(), "rocksdb" | "bluefs")).collect();
        admin::perf::dump(&of_kv, None, None, pretty)
    }

    /// `cache status`: objects in use by clients, onodes, and bytes of data.
    pub(crate) fn cache_status(&self, disk: &dyn Disk) -> Value {
        let held = disk.memory();
        let in_use: usize = self.pgs.values().map(crate::pg::Pg::objects_in_use).sum();
        json!({"object_ctx": in_use, "bluestore_onode": held.onodes.0, "bluestore_buffers": held.data.1})
    }

    /// Zeroes the counters of the logger `name`, or of all. One that there is not is told of as stock does: without an errno.
    pub(crate) fn perf_reset(&mut self, now: Mono, disk: &mut dyn Disk, name: &str) -> Value {
        let loggers = self.loggers(now, disk);
        let mut meant: Vec<_> = loggers.into_iter().filter(|logger| name == "all" || name == logger.name()).collect();
        if meant.is_empty() {
            return json!({"error": format!("Not find: {name}")});
        }
        meant.iter_mut().for_each(|logger| logger.reset());
        json!({"success": format!("perf reset {name}")})
    }

    /// `dump_mempools`: what is counted, in pools by upstream's names; those that do not exist here are empty. The database's
    /// memory is in none of them, as upstream: `perf dump rocksdb` has it.
    pub(crate) fn dump_mempools(&self, disk: &dyn Disk) -> Value {
        let held = disk.memory();
        let logs = self.pgs.values().map(|pg| (pg.log.len() + pg.log.dups.len(), pg.log.bytes() + pg.log.dups.memory()));
        let logs = logs.fold((0, 0), |(n, sum), (entries, bytes)| (n + entries as u64, sum + bytes as u64));
        let (bytes, requests) = self.intake.taken();
        let known = [
            ("bluestore_alloc", held.alloc),
            ("bluestore_cache_data", held.data),
            ("bluestore_cache_onode", held.onodes),
            ("bluestore_txc", held.transactions),
            ("bluestore_writing_deferred", held.deferred),
            ("bluestore_writing", held.writing),
            ("buffer_anon", (requests, bytes)),
            ("osd", (self.pgs.len() as u64, (self.pgs.len() * size_of::<crate::pg::Pg>()) as u64)),
            ("osd_pglog", logs),
            ("osdmap", self.maps.memory()),
        ];
        let of = |pool: &str| known.iter().find(|(name, _)| *name == pool).map_or((0, 0), |(_, held)| *held);
        let show = |(items, bytes): (u64, u64)| json!({"items": items, "bytes": bytes});
        let pools: Map<String, Value> = POOLS.iter().map(|pool| ((*pool).to_owned(), show(of(pool)))).collect();
        let total = known.iter().fold((0, 0), |(n, sum), (_, (items, bytes))| (n + items, sum + bytes));
        json!({"mempool": {"by_pool": pools, "total": show(total)}})
    }
}
