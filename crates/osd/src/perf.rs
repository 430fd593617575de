//! Performance counters of an OSD, under upstream's names.
//!
//! Upstream: src/osd/osd_perf_counters.cc.

use crate::stages::{Mark, Marks};
use admin::perf::{Histogram, PerfCounters, prio};
use qos::{DeviceModel, Io};
use std::time::Duration;
use store::{DeviceFacts, DeviceProfile, DeviceUse, Tuning};

admin::counters! {
    Index SPECS:
    OpWip "op_wip" Gauge "Clients' operations that this OSD has begun and not answered";
    Op "op" Counter "Clients' operations answered", nick("ops", prio::CRITICAL);
    OpInBytes "op_in_bytes" Counter "Bytes that clients sent in them", bytes(), nick("wr", prio::INTERESTING);
    OpOutBytes "op_out_bytes" Counter "Bytes that were sent back", bytes(), nick("rd", prio::INTERESTING);
    OpLatency "op_latency" TimeAvg "From an operation's arrival to its answer", nick("l", 9);
    OpProcessLatency "op_process_latency" TimeAvg "From when a PG took an operation to its answer";
    OpPrepareLatency "op_prepare_latency" TimeAvg "From when a PG took an operation until it was carried out, without the wait for disks and copies";
    OpR "op_r" Counter "Operations that only read";
    OpROutBytes "op_r_out_bytes" Counter "Bytes that they were answered with", bytes();
    OpRLatency "op_r_latency" TimeAvg "op_latency of operations that only read";
    OpRProcessLatency "op_r_process_latency" TimeAvg "op_process_latency of operations that only read";
    OpRPrepareLatency "op_r_prepare_latency" TimeAvg "op_prepare_latency of operations that only read";
    OpW "op_w" Counter "Operations that only write";
    OpWInBytes "op_w_in_bytes" Counter "Bytes that they brought", bytes();
    OpWLatency "op_w_latency" TimeAvg "op_latency of operations that only write";
    OpWProcessLatency "op_w_process_latency" TimeAvg "op_process_latency of operations that only write";
    OpWPrepareLatency "op_w_prepare_latency" TimeAvg "op_prepare_latency of operations that only write";
    OpRw "op_rw" Counter "Operations that read and write";
    OpRwInBytes "op_rw_in_bytes" Counter "Bytes that they brought", bytes();
    OpRwOutBytes "op_rw_out_bytes" Counter "Bytes that they were answered with", bytes();
    OpRwLatency "op_rw_latency" TimeAvg "op_latency of operations that read and write";
    OpRwProcessLatency "op_rw_process_latency" TimeAvg "op_process_latency of operations that read and write";
    OpRwPrepareLatency "op_rw_prepare_latency" TimeAvg "op_prepare_latency of operations that read and write";
    OpBeforeDequeue "op_before_dequeue_op_lat" TimeAvg "Time that operations waited until their PG took them", nick("", prio::DEBUG);
    Subop "subop" Counter "Requests of other OSDs: copies of writes, pulls and pushes", nick("", prio::DEBUG);
    SubopInBytes "subop_in_bytes" Counter "Bytes that they brought", bytes(), nick("", prio::DEBUG);
    SubopLatency "subop_latency" TimeAvg "From such a request's arrival to its answer", nick("", prio::DEBUG);
    SubopW "subop_w" Counter "Writes that a primary passed on to us", nick("", prio::DEBUG);
    SubopWInBytes "subop_w_in_bytes" Counter "Bytes in them", bytes(), nick("", prio::DEBUG);
    SubopWLatency "subop_w_latency" TimeAvg "From such a write's arrival until it was durable here", nick("", prio::DEBUG);
    SubopPull "subop_pull" Counter "Objects that other OSDs asked us for", nick("", prio::DEBUG);
    SubopPush "subop_push" Counter "Messages with objects that recovery brought us", nick("", prio::DEBUG);
    SubopPushInBytes "subop_push_in_bytes" Counter "Bytes in them", bytes(), nick("", prio::DEBUG);
    SubopPushLatency "subop_push_latency" TimeAvg "From such a message's arrival until its objects were durable here", nick("", prio::DEBUG);
    Pull "pull" Counter "Objects that we asked others for", nick("", prio::DEBUG);
    Push "push" Counter "Messages with objects that recovery sent others", nick("", prio::DEBUG);
    PushOutBytes "push_out_bytes" Counter "Bytes in them", bytes(), nick("", prio::DEBUG);
    RecoveryOps "recovery_ops" Counter "Objects that recovery has begun to copy", nick("rop", prio::INTERESTING);
    RecoveryBytes "recovery_bytes" Counter "Bytes in them", bytes(), nick("rbt", prio::INTERESTING);
    ScrubReadBytes "scrub_replicated_read_bytes" Counter "Bytes that scrubs of replicated pools have read", bytes();
    ScrubVerifiedBytes "scrub_replicated_verified_bytes" Counter "Bytes that a deep scrub need not read, other reads having verified them", bytes();
    Numpg "numpg" Gauge "Placement groups that have something here", nick("pgs", prio::USEFUL);
    NumpgPrimary "numpg_primary" Gauge "Those this OSD leads", nick("", prio::DEBUG);
    NumpgReplica "numpg_replica" Gauge "Those that it follows in", nick("", prio::DEBUG);
    NumpgStray "numpg_stray" Gauge "Those the map does not give it any more", nick("", prio::DEBUG);
    NumpgRemoving "numpg_removing" Gauge "Those that are being deleted here", nick("pgsr", prio::USEFUL);
    HeartbeatToPeers "heartbeat_to_peers" Gauge "OSDs that are pinged", nick("", prio::DEBUG);
    MapMessages "map_messages" Counter "Messages that brought osdmaps", nick("", prio::DEBUG);
    MapEpochs "map_message_epochs" Counter "Epochs in them", nick("", prio::DEBUG);
    DelayedForMap "messages_delayed_for_map" Counter "Requests that had to wait for a newer map", nick("", prio::DEBUG);
    StatBytes "stat_bytes" Gauge "What the data device holds at most", bytes(), nick("size", prio::USEFUL);
    StatBytesUsed "stat_bytes_used" Gauge "Of that, what is taken", bytes(), nick("used", prio::USEFUL);
    StatBytesAvail "stat_bytes_avail" Gauge "Of that, what is free", bytes(), nick("", prio::DEBUG);
    CopyFrom "copyfrom" Counter "copy-from operations carried out", nick("", prio::DEBUG);
}

admin::counters! {
    Device DEVICE_SPECS:
    Learned "learned" Gauge "1 when the device has shown what it can do, 0 while the rest is a guess";
    ReadIops "read_iops" Gauge "Reads of 4 KiB that the device does in a second when it is kept busy", nick("rio", prio::INTERESTING);
    WriteIops "write_iops" Gauge "The same of writes", nick("wio", prio::INTERESTING);
    ReadBytes "read_bytes_per_second" Gauge "Bytes that it reads in a second, 4 MiB at a time", bytes();
    WriteBytes "write_bytes_per_second" Gauge "The same of writes", bytes();
    FlushUs "flush_us" Gauge "Microseconds of its time that a flush costs";
    Depth "depth" Gauge "I/Os that it works on at once";
    UnderWay "under_way" Gauge "I/Os that it has been given and that have not ended";
    ClientUs "client_us" Counter "Microseconds of the device's time that clients had: of a time in which several had it, each a part";
    RecoveryUs "background_recovery_us" Counter "The same of recovery";
    BestEffortUs "background_best_effort_us" Counter "The same of scrub, trimming, and copies that only move";
    FlushesUs "flushes_us" Counter "The same of flushes";
    ClientContendedUs "client_contended_us" Counter "Of client_us, what I/Os had that were chosen while clients and recovery both had something waiting";
    RecoveryContendedUs "background_recovery_contended_us" Counter "The same of background_recovery_us";
    BestEffortContendedUs "background_best_effort_contended_us" Counter "The same of background_best_effort_us";
    ClientIos "client_ios" Counter "I/Os that the device was given for clients";
    RecoveryIos "background_recovery_ios" Counter "The same for recovery";
    BestEffortIos "background_best_effort_ios" Counter "The same for scrub, trimming, and copies that only move";
    ClientData "client_bytes" Counter "Their bytes", bytes();
    RecoveryData "background_recovery_bytes" Counter "The same for recovery", bytes();
    BestEffortData "background_best_effort_bytes" Counter "The same for scrub, trimming, and copies that only move", bytes();
    PageCacheHits "page_cache_hits" Counter "Reads of clients that the system's page cache answered without the device";
    PageCacheHitBytes "page_cache_hit_bytes" Counter "Their bytes", bytes();
    ClientWaitingUs "client_waiting_us" Gauge "Microseconds of the device's time that wait for it for clients";
    RecoveryWaitingUs "background_recovery_waiting_us" Gauge "The same for recovery";
    BestEffortWaitingUs "background_best_effort_waiting_us" Gauge "The same for scrub, trimming, and copies that only move";
    OutstandingUs "outstanding_us" Gauge "Microseconds of its time that they will take";
    Hdd "profile_hdd" Gauge "1 if it is used as a disk whose head moves, 0 if as flash";
    FirstFlushUs "flush_at_start_us" Gauge "Microseconds that a block written and flushed took when the OSD was started";
    FirstLogFlushUs "journal_flush_at_start_us" Gauge "The same of the journal";
    PreferDeferred "prefer_deferred_bytes" Gauge "Writes up to so many bytes go through the journal", bytes();
    DeferredMax "deferred_bytes_max" Gauge "Bytes that may be in the journal alone before writes wait", bytes();
    Readahead "readahead_bytes" Gauge "Bytes that are read behind what was asked for by who reads on", bytes();
    DepthMax "queue_depth_max" Gauge "Reads and writes that it is given at once at most";
}

admin::counters! {
    Queue QUEUE_SPECS:
    Immediate "mclock_immediate_queue_len" Gauge "I/Os that are urgent and wait for the device";
    Client "mclock_client_queue_len" Gauge "I/Os that wait for it for clients";
    Recovery "mclock_recovery_queue_len" Gauge "The same for recovery";
    BestEffort "mclock_best_effort_queue_len" Gauge "The same for scrub, trimming, and copies that only move";
    All "mclock_all_type_queue_len" Gauge "All that wait for it";
}

/// The logger `device`: what the data device can do, learned from every I/O. And `mclock-shard-queue-0`, of the one queue before it, as upstream has for each of its
/// (src/osd/scheduler/mClockScheduler.cc since Reef): there of requests, here of I/Os.
pub struct DevicePerf {
    pub device: PerfCounters,
    pub queue: PerfCounters,
}

impl Default for DevicePerf {
    fn default() -> Self {
        DevicePerf { device: PerfCounters::new("device", DEVICE_SPECS), queue: PerfCounters::new("mclock-shard-queue-0", QUEUE_SPECS) }
    }
}

impl DevicePerf {
    /// What is known now.
    pub fn set(&mut self, device: &DeviceModel, used: &DeviceUse) {
        const LARGE: u64 = 4 << 20;
        let mut set = |index: Device, value: u64| self.device.set(index as usize, value);
        set(Device::Learned, device.is_learned().into());
        set(Device::ReadIops, device.per_second(Io::Read, 4096) as u64);
        set(Device::WriteIops, device.per_second(Io::Write, 4096) as u64);
        set(Device::ReadBytes, (device.per_second(Io::Read, LARGE) * LARGE as f64) as u64);
        set(Device::WriteBytes, (device.per_second(Io::Write, LARGE) * LARGE as f64) as u64);
        set(Device::FlushUs, device.cost(Io::Flush, 0) / 1000);
        set(Device::Depth, device.depth().round() as u64);
        set(Device::UnderWay, device.under_way());
        set(Device::OutstandingUs, device.outstanding() / 1000);
        let times = [Device::ClientUs, Device::RecoveryUs, Device::BestEffortUs].into_iter().zip(used.time);
        times.chain([(Device::FlushesUs, used.flush_time)]).for_each(|(index, time)| set(index, time / 1000));
        let contended = [Device::ClientContendedUs, Device::RecoveryContendedUs, Device::BestEffortContendedUs].into_iter().zip(used.contended);
        contended.for_each(|(index, time)| set(index, time / 1000));
        let waiting = [Device::ClientWaitingUs, Device::RecoveryWaitingUs, Device::BestEffortWaitingUs].into_iter().zip(used.waiting);
        waiting.for_each(|(index, time)| set(index, time / 1000));
        [Device::ClientIos, Device::RecoveryIos, Device::BestEffortIos].into_iter().zip(used.ios).for_each(|(index, n)| set(index, n));
        [Device::ClientData, Device::RecoveryData, Device::BestEffortData].into_iter().zip(used.bytes).for_each(|(index, n)| set(index, n));
        set(Device::PageCacheHits, used.page_cache_hits);
        set(Device::PageCacheHitBytes, used.page_cache_hit_bytes);
        let queued = [Queue::Client, Queue::Recovery, Queue::BestEffort].into_iter().zip(used.queued).chain([(Queue::Immediate, used.queued_urgent)]);
        let all = used.queued.iter().sum::<u64>() + used.queued_urgent;
        queued.chain([(Queue::All, all)]).for_each(|(index, n)| self.queue.set(index as usize, n));
    }
}

impl DevicePerf {
    /// What it was found to be, and what follows from that and from options.
    pub fn set_profile(&mut self, facts: &DeviceFacts, tuning: &Tuning) {
        let mut set = |index: Device, value: u64| self.device.set(index as usize, value);
        let us = |took: Option<Duration>| took.map_or(0, |took| took.as_micros() as u64);
        set(Device::Hdd, u64::from(facts.profile == DeviceProfile::Hdd));
        set(Device::FirstFlushUs, us(facts.flush));
        set(Device::FirstLogFlushUs, us(facts.log_flush));
        set(Device::PreferDeferred, tuning.prefer_deferred_size.into());
        set(Device::DeferredMax, tuning.deferred_bytes_max);
        set(Device::Readahead, tuning.readahead_bytes.into());
        set(Device::DepthMax, tuning.queue_depth_max);
    }
}

/// What a finished operation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpCost {
    pub reads: bool,
    pub writes: bool,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// From when it came until it was answered.
    pub latency: Duration,
    /// Of that, until its PG took it.
    pub queued: Duration,
    /// From then on until it ran with everything it needs.
    pub prepare: Duration,
}

impl OpCost {
    /// The same with what its stages tell.
    pub(crate) fn with_stages(self, marks: &Marks, latency: Duration) -> Self {
        let queued = marks.when(Mark::ReachedPg).unwrap_or_default();
        let ran = marks.when(Mark::WaitsForSubops).or(marks.when(Mark::Started)).unwrap_or(latency);
        OpCost { queued, prepare: ran.saturating_sub(queued), ..self }
    }
}

/// The counters of one kind of operation; histograms by index, of the bytes that went out if it says so.
struct Kind {
    ops: Index,
    bytes_in: Option<Index>,
    bytes_out: Option<Index>,
    latency: Index,
    process: Index,
    prepare: Index,
    histograms: &'static [(usize, bool)],
}

const R: Kind = Kind {
    ops: Index::OpR,
    bytes_in: None,
    bytes_out: Some(Index::OpROutBytes),
    latency: Index::OpRLatency,
    process: Index::OpRProcessLatency,
    prepare: Index::OpRPrepareLatency,
    histograms: &[(0, true)],
};
const W: Kind = Kind {
    ops: Index::OpW,
    bytes_in: Some(Index::OpWInBytes),
    bytes_out: None,
    latency: Index::OpWLatency,
    process: Index::OpWProcessLatency,
    prepare: Index::OpWPrepareLatency,
    histograms: &[(1, false)],
};
const RW: Kind = Kind {
    ops: Index::OpRw,
    bytes_in: Some(Index::OpRwInBytes),
    bytes_out: Some(Index::OpRwOutBytes),
    latency: Index::OpRwLatency,
    process: Index::OpRwProcessLatency,
    prepare: Index::OpRwPrepareLatency,
    histograms: &[(2, false), (3, true)],
};

/// The logger `osd`.
pub struct Perf(pub PerfCounters);

impl Default for Perf {
    fn default() -> Self {
        let of = |name, what| Histogram::new(name, what);
        Perf(PerfCounters::new("osd", SPECS).with_histograms(vec![
            of("op_r_latency_out_bytes_histogram", "Histogram of operation latency (including queue time) + data read"),
            of("op_w_latency_in_bytes_histogram", "Histogram of operation latency (including queue time) + data written"),
            of("op_rw_latency_in_bytes_histogram", "Histogram of rw operation latency (including queue time) + data written"),
            of("op_rw_latency_out_bytes_histogram", "Histogram of rw operation latency (including queue time) + data read"),
        ]))
    }
}

impl Perf {
    /// A client's operation is answered.
    pub fn op_done(&mut self, c: OpCost) {
        let p = &mut self.0;
        let process = c.latency.saturating_sub(c.queued);
        p.inc(Index::Op as usize);
        p.add(Index::OpInBytes as usize, c.bytes_in);
        p.add(Index::OpOutBytes as usize, c.bytes_out);
        p.time(Index::OpLatency as usize, c.latency);
        p.time(Index::OpProcessLatency as usize, process);
        p.time(Index::OpPrepareLatency as usize, c.prepare);
        p.time(Index::OpBeforeDequeue as usize, c.queued);
        let kind = match (c.reads, c.writes) {
            (true, true) => RW,
            (_, true) => W,
            _ => R,
        };
        p.inc(kind.ops as usize);
        kind.bytes_in.into_iter().for_each(|index| p.add(index as usize, c.bytes_in));
        kind.bytes_out.into_iter().for_each(|index| p.add(index as usize, c.bytes_out));
        p.time(kind.latency as usize, c.latency);
        p.time(kind.process as usize, process);
        p.time(kind.prepare as usize, c.prepare);
        let ns = c.latency.as_nanos() as u64;
        for (at, out) in kind.histograms {
            if let Some(h) = p.histogram(*at) {
                h.add(ns, if *out { c.bytes_out } else { c.bytes_in });
            }
        }
    }

    /// A replica's part in a write is durable.
    pub fn subop_done(&mut self, took: Duration) {
        self.0.time(Index::SubopLatency as usize, took);
        self.0.time(Index::SubopWLatency as usize, took);
    }

    /// What a peer has pushed is durable here.
    pub fn push_done(&mut self, took: Duration) {
        self.0.time(Index::SubopPushLatency as usize, took);
    }

    /// A peer asks for an object.
    pub fn pull_received(&mut self) {
        self.0.inc(Index::Subop as usize);
        self.0.inc(Index::SubopPull as usize);
    }

    /// A peer is asked for an object.
    pub fn pull_sent(&mut self) {
        self.0.inc(Index::Pull as usize);
    }

    /// A message with so many bytes of objects goes to a peer.
    pub fn push_sent(&mut self, bytes: u64) {
        self.0.inc(Index::Push as usize);
        self.0.add(Index::PushOutBytes as usize, bytes);
    }

    /// A message waits for a map.
    pub fn delayed_for_map(&mut self) {
        self.0.inc(Index::DelayedForMap as usize);
    }

    /// An object is being copied from another one.
    pub fn copy_from(&mut self) {
        self.0.inc(Index::CopyFrom as usize);
    }

    /// A replica's write of so many bytes was taken in.
    pub fn subop_w(&mut self, bytes: u64) {
        let p = &mut self.0;
        p.inc(Index::Subop as usize);
        p.add(Index::SubopInBytes as usize, bytes);
        p.inc(Index::SubopW as usize);
        p.add(Index::SubopWInBytes as usize, bytes);
    }

    /// A part of an object arrived from a peer.
    pub fn push_received(&mut self, bytes: u64) {
        self.0.inc(Index::Subop as usize);
        self.0.add(Index::SubopInBytes as usize, bytes);
        self.0.inc(Index::SubopPush as usize);
        self.0.add(Index::SubopPushInBytes as usize, bytes);
    }

    /// An object is being sent to a peer.
    pub fn recovery_op(&mut self, bytes: u64) {
        self.0.inc(Index::RecoveryOps as usize);
        self.0.add(Index::RecoveryBytes as usize, bytes);
    }

    /// A scrub has read a part of an object, and trusts other reads for the rest.
    pub fn scrub_read(&mut self, read: u64, trusted: u64) {
        self.0.add(Index::ScrubReadBytes as usize, read);
        self.0.add(Index::ScrubVerifiedBytes as usize, trusted);
    }

    /// Writes that are not durable everywhere yet.
    pub fn set_op_wip(&mut self, n: u64) {
        self.0.set(Index::OpWip as usize, n);
    }

    /// Copies held: all, as primary, as replica, as stray.
    pub fn set_pgs(&mut self, primary: u64, replica: u64, stray: u64) {
        self.0.set(Index::Numpg as usize, primary + replica + stray);
        self.0.set(Index::NumpgPrimary as usize, primary);
        self.0.set(Index::NumpgReplica as usize, replica);
        self.0.set(Index::NumpgStray as usize, stray);
    }

    /// Copies that are being removed.
    pub fn set_pgs_removing(&mut self, n: u64) {
        self.0.set(Index::NumpgRemoving as usize, n);
    }

    /// Peers that are asked for signs of life.
    pub fn set_heartbeat_peers(&mut self, n: u64) {
        self.0.set(Index::HeartbeatToPeers as usize, n);
    }

    /// A message with maps.
    pub fn maps(&mut self, epochs: u64) {
        self.0.inc(Index::MapMessages as usize);
        self.0.add(Index::MapEpochs as usize, epochs);
    }

    /// How full the store is, in bytes.
    pub fn set_space(&mut self, total: u64, available: u64) {
        self.0.set(Index::StatBytes as usize, total);
        self.0.set(Index::StatBytesUsed as usize, total.saturating_sub(available));
        self.0.set(Index::StatBytesAvail as usize, available);
    }
}
