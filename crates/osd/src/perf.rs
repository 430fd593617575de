//! Performance counters of an OSD, under upstream's names.
//!
//! Upstream: src/osd/osd_perf_counters.cc.

use admin::perf::{CounterSpec, Kind, PerfCounters, prio};
use qos::{DeviceModel, Io};
use std::time::Duration;
use store::DeviceUse;

macro_rules! counters {
    ($enum:ident $specs:ident: $($index:ident $name:literal $kind:ident $text:literal $(, $more:ident($($arg:expr),*))*;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy)]
        enum $enum { $($index),* }
        const $specs: &[CounterSpec] = &[$(CounterSpec::new($name, Kind::$kind, $text)$(.$more($($arg),*))*),*];
    };
}
counters! {
    Index SPECS:
    OpWip "op_wip" Gauge "Replication operations currently being processed (primary)";
    Op "op" Counter "Client operations", nick("ops", prio::CRITICAL);
    OpInBytes "op_in_bytes" Counter "Client operations total write size", bytes(), nick("wr", prio::INTERESTING);
    OpOutBytes "op_out_bytes" Counter "Client operations total read size", bytes(), nick("rd", prio::INTERESTING);
    OpLatency "op_latency" TimeAvg "Latency of client operations (including queue time)", nick("l", prio::CRITICAL);
    OpR "op_r" Counter "Client read operations";
    OpROutBytes "op_r_out_bytes" Counter "Client data read", bytes();
    OpRLatency "op_r_latency" TimeAvg "Latency of read operation (including queue time)";
    OpW "op_w" Counter "Client write operations";
    OpWInBytes "op_w_in_bytes" Counter "Client data written", bytes();
    OpWLatency "op_w_latency" TimeAvg "Latency of write operation (including queue time)";
    OpRw "op_rw" Counter "Client read-modify-write operations";
    OpRwInBytes "op_rw_in_bytes" Counter "Client read-modify-write operations write in", bytes();
    OpRwOutBytes "op_rw_out_bytes" Counter "Client read-modify-write operations read out", bytes();
    OpRwLatency "op_rw_latency" TimeAvg "Latency of read-modify-write operation (including queue time)";
    Subop "subop" Counter "Suboperations";
    SubopInBytes "subop_in_bytes" Counter "Suboperations total size", bytes();
    SubopW "subop_w" Counter "Replicated writes";
    SubopWInBytes "subop_w_in_bytes" Counter "Replicated written data size", bytes();
    SubopPush "subop_push" Counter "Suboperations push message";
    SubopPushInBytes "subop_push_in_bytes" Counter "Suboperations pushed size", bytes();
    RecoveryOps "recovery_ops" Counter "Started recovery operations", nick("rop", prio::INTERESTING);
    RecoveryBytes "recovery_bytes" Counter "recovery bytes", bytes(), nick("rbt", prio::INTERESTING);
    ScrubReadBytes "scrub_replicated_read_bytes" Counter "scrub replicated pool read bytes read", bytes();
    ScrubVerifiedBytes "scrub_replicated_verified_bytes" Counter "Bytes that a deep scrub need not read, other reads having verified them", bytes();
    Numpg "numpg" Gauge "Placement groups", nick("pgs", prio::USEFUL);
    NumpgPrimary "numpg_primary" Gauge "Placement groups for which this osd is primary";
    NumpgReplica "numpg_replica" Gauge "Placement groups for which this osd is replica";
    NumpgStray "numpg_stray" Gauge "Placement groups ready to be deleted from this osd";
    HeartbeatToPeers "heartbeat_to_peers" Gauge "Heartbeat peers we send to";
    MapMessages "map_messages" Counter "OSD map messages";
    MapEpochs "map_message_epochs" Counter "OSD map epochs";
    StatBytes "stat_bytes" Gauge "OSD size", bytes();
    StatBytesUsed "stat_bytes_used" Gauge "Used space", bytes();
    StatBytesAvail "stat_bytes_avail" Gauge "Available space", bytes();
}

counters! {
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
    ClientBytes "client_bytes" Counter "Their bytes", bytes();
    RecoveryBytesAtDevice "background_recovery_bytes" Counter "The same for recovery", bytes();
    BestEffortBytes "background_best_effort_bytes" Counter "The same for scrub, trimming, and copies that only move", bytes();
    ClientWaitingUs "client_waiting_us" Gauge "Microseconds of the device's time that wait for it for clients";
    RecoveryWaitingUs "background_recovery_waiting_us" Gauge "The same for recovery";
    BestEffortWaitingUs "background_best_effort_waiting_us" Gauge "The same for scrub, trimming, and copies that only move";
    OutstandingUs "outstanding_us" Gauge "Microseconds of its time that they will take";
}

/// The logger `device`: what the data device can do, learned from every I/O.
pub struct DevicePerf(pub PerfCounters);

impl Default for DevicePerf {
    fn default() -> Self {
        DevicePerf(PerfCounters::new("device", DEVICE_SPECS))
    }
}

impl DevicePerf {
    /// What is known now.
    pub fn set(&mut self, device: &DeviceModel, used: &DeviceUse) {
        const LARGE: u64 = 4 << 20;
        let mut set = |index: Device, value: u64| self.0.set(index as usize, value);
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
        [Device::ClientBytes, Device::RecoveryBytesAtDevice, Device::BestEffortBytes].into_iter().zip(used.bytes).for_each(|(index, n)| set(index, n));
    }
}

/// What a finished operation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpCost {
    pub reads: bool,
    pub writes: bool,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub latency: Duration,
}

/// The logger `osd`.
pub struct Perf(pub PerfCounters);

impl Default for Perf {
    fn default() -> Self {
        Perf(PerfCounters::new("osd", SPECS))
    }
}

impl Perf {
    /// A client's operation is answered.
    pub fn op_done(&mut self, c: OpCost) {
        let p = &mut self.0;
        p.inc(Index::Op as usize);
        p.add(Index::OpInBytes as usize, c.bytes_in);
        p.add(Index::OpOutBytes as usize, c.bytes_out);
        p.time(Index::OpLatency as usize, c.latency);
        match (c.reads, c.writes) {
            (true, true) => {
                p.inc(Index::OpRw as usize);
                p.add(Index::OpRwInBytes as usize, c.bytes_in);
                p.add(Index::OpRwOutBytes as usize, c.bytes_out);
                p.time(Index::OpRwLatency as usize, c.latency);
            }
            (_, true) => {
                p.inc(Index::OpW as usize);
                p.add(Index::OpWInBytes as usize, c.bytes_in);
                p.time(Index::OpWLatency as usize, c.latency);
            }
            _ => {
                p.inc(Index::OpR as usize);
                p.add(Index::OpROutBytes as usize, c.bytes_out);
                p.time(Index::OpRLatency as usize, c.latency);
            }
        }
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
