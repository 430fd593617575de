//! How full OSDs and pools are, and how busy.

use super::stat::{ObjectStatCollection, ObjectStatSum};
use crate::json::{Obj, float};
use crate::{Epoch, features};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

macro_rules! statfs {
    ($($(#[$doc:meta])* $name:ident: $ty:ty,)*) => {
        /// Bytes of a store, or of a pool's part in it (`store_statfs_t`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
        #[denc(v = 1, compat = 1)]
        pub struct StoreStatfs { $($(#[$doc])* pub $name: $ty,)* }

        impl StoreStatfs {
            /// Adds another store's bytes.
            pub fn add(&mut self, o: &Self) {
                $(self.$name = self.$name.saturating_add(o.$name);)*
            }
        }
    };
}
statfs! {
    total: u64,
    available: u64,
    internally_reserved: u64,
    /// Given to data, in allocation units.
    allocated: i64,
    /// What users wrote.
    data_stored: i64,
    data_compressed: i64,
    data_compressed_allocated: i64,
    data_compressed_original: i64,
    omap_allocated: i64,
    internal_metadata: i64,
}

impl StoreStatfs {
    /// Bytes not available, whatever for.
    pub fn used_raw(&self) -> u64 {
        self.total.saturating_sub(self.available)
    }

    /// Bytes used, without what the store keeps back for itself.
    pub fn used(&self) -> u64 {
        self.used_raw().saturating_sub(self.internally_reserved)
    }

    /// Used of total, 0 to 1; 0 when nothing is known.
    pub fn used_raw_ratio(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.used_raw() as f64 / self.total as f64 }
    }
}

/// A store's latencies (`objectstore_perf_stat_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerfStat {
    pub commit_latency_ns: u64,
    pub apply_latency_ns: u64,
}
impl Encode for PerfStat {
    fn encode(&self, e: &mut Encoder) {
        if e.has(features::OS_PERF_STAT_NS) {
            return e.envelope(2, 2, |e| {
                e.put(&self.commit_latency_ns).put(&self.apply_latency_ns);
            });
        }
        let ms = |ns: u64| (ns / 1_000_000) as u32;
        e.envelope(1, 1, |e| {
            e.put(&ms(self.commit_latency_ns)).put(&ms(self.apply_latency_ns));
        });
    }
}
impl Decode for PerfStat {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("objectstore_perf_stat_t", 2, |v, d| {
            let ns = |d: &mut Decoder<'_>| match v {
                1 => Ok(u64::from(d.get::<u32>()?) * 1_000_000),
                _ => d.get::<u64>(),
            };
            Ok(PerfStat { commit_latency_ns: ns(d)?, apply_latency_ns: ns(d)? })
        })
    }
}

/// Heartbeat times to a peer, in microseconds, over 1, 5 and 15 minutes (`osd_stat_t::Interfaces`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct OsdPing {
    pub last_update_s: u32,
    pub back_pingtime: (u32, u32, u32),
    pub back_min: (u32, u32, u32),
    pub back_max: (u32, u32, u32),
    pub back_last: u32,
    pub front_pingtime: (u32, u32, u32),
    pub front_min: (u32, u32, u32),
    pub front_max: (u32, u32, u32),
    pub front_last: u32,
}

/// The same of one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkPing {
    /// `back` or `front`.
    pub interface: &'static str,
    pub average: (u32, u32, u32),
    pub min: (u32, u32, u32),
    pub max: (u32, u32, u32),
    pub last: u32,
}

impl OsdPing {
    /// Microseconds from which on heartbeats are slow: `mon_warn_on_slow_ping_time` in milliseconds, or where that is 0 `mon_warn_on_slow_ping_ratio` of
    /// `osd_heartbeat_grace`. 0: they never are.
    pub fn slow_from_us(ms: f64, ratio: f64, grace: Duration) -> u64 {
        if ms > 0.0 { (ms * 1000.0) as u64 } else { (grace.as_micros() as f64 * ratio.max(0.0)) as u64 }
    }

    /// The cluster network, and the public one if it is another.
    pub fn networks(&self) -> impl Iterator<Item = NetworkPing> {
        let back = NetworkPing { interface: "back", average: self.back_pingtime, min: self.back_min, max: self.back_max, last: self.back_last };
        let front = NetworkPing { interface: "front", average: self.front_pingtime, min: self.front_min, max: self.front_max, last: self.front_last };
        [back].into_iter().chain((front.last > 0).then_some(front))
    }
}

impl NetworkPing {
    /// The longest of the three averages: by this a network is slow.
    pub fn longest_us(&self) -> u32 {
        self.average.0.max(self.average.1).max(self.average.2)
    }

    /// As `pg dump` shows it, in milliseconds.
    pub fn dump_json(&self) -> Obj {
        let ms = |us: u32| float(f64::from(us) / 1000.0);
        let three = |of: (u32, u32, u32)| json!({"1min": ms(of.0), "5min": ms(of.1), "15min": ms(of.2)});
        let mut out = Obj::new();
        out.put("interface", self.interface).put("average", three(self.average)).put("min", three(self.min)).put("max", three(self.max)).put("last", ms(self.last));
        out
    }
}

/// An OSD's figures (`osd_stat_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdStat {
    pub statfs: StoreStatfs,
    pub hb_peers: Vec<i32>,
    pub snap_trim_queue_len: i32,
    pub num_snap_trimming: i32,
    pub num_shards_repaired: u64,
    /// Ages of queued operations: counts by powers of two of milliseconds.
    pub op_queue_age_hist: Vec<i32>,
    pub perf: PerfStat,
    /// Per OSD, alert name to text.
    pub alerts: BTreeMap<i32, BTreeMap<String, String>>,
    pub up_from: Epoch,
    pub seq: u64,
    pub num_pgs: u32,
    /// How many OSDs this is the sum of, and how many of them count usage per pool, and omap per pool.
    pub num_osds: u32,
    pub num_per_pool_osds: u32,
    pub num_per_pool_omap_osds: u32,
    pub hb_pingtime: BTreeMap<i32, OsdPing>,
}

impl Encode for OsdStat {
    fn encode(&self, e: &mut Encoder) {
        let s = &self.statfs;
        e.envelope(14, 2, |e| {
            e.put(&(s.total >> 10)).put(&(s.used_raw() >> 10)).put(&(s.available >> 10));
            e.put(&self.snap_trim_queue_len).put(&self.num_snap_trimming).put(&self.hb_peers).put(&0u32);
            e.envelope(1, 1, |e| {
                e.put(&self.op_queue_age_hist);
            });
            e.put(&self.perf).put(&self.up_from).put(&self.seq).put(&self.num_pgs);
            e.put(&(s.allocated >> 10)).put(&(s.omap_allocated >> 10)).put(&(s.internal_metadata >> 10)).put(s);
            e.put(&self.alerts).put(&self.num_shards_repaired).put(&self.num_osds).put(&self.num_per_pool_osds);
            e.put(&self.num_per_pool_omap_osds).put(&self.hb_pingtime);
        });
    }
}
impl Decode for OsdStat {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("osd_stat_t", 14, |v, d| {
            if v < 9 {
                return Err(DecodeError::Invalid("osd_stat_t from before Nautilus"));
            }
            let (_, _, _): (u64, u64, u64) = d.get()?;
            let mut out = OsdStat {
                snap_trim_queue_len: d.get()?,
                num_snap_trimming: d.get()?,
                hb_peers: d.get()?,
                ..OsdStat::default()
            };
            let _hb_out: Vec<i32> = d.get()?;
            out.op_queue_age_hist = d.envelope("pow2_hist_t", 1, |_, d| d.get())?;
            (out.perf, out.up_from, out.seq, out.num_pgs) = d.get()?;
            let (_, _, _): (i64, i64, i64) = d.get()?;
            out.statfs = d.get()?;
            if v >= 10 {
                out.alerts = d.get()?;
            }
            if v >= 11 {
                out.num_shards_repaired = d.get()?;
            }
            if v >= 12 {
                (out.num_osds, out.num_per_pool_osds) = d.get()?;
            }
            if v >= 13 {
                out.num_per_pool_omap_osds = d.get()?;
            }
            if v >= 14 {
                out.hb_pingtime = d.get()?;
            }
            Ok(out)
        })
    }
}

/// A pool's figures (`pool_stat_t`), as GETPOOLSTATS gives them to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStat {
    pub stats: ObjectStatCollection,
    /// What all stores hold of it, all copies.
    pub store: StoreStatfs,
    pub log_size: i64,
    pub ondisk_log_size: i64,
    /// Copies, by the map and in fact.
    pub up: i32,
    pub acting: i32,
    /// How many stores `store` is the sum of.
    pub num_store_stats: i32,
}

impl PoolStat {
    /// Adds another part's figures.
    pub fn add(&mut self, o: &Self) {
        self.stats.sum.add(&o.stats.sum);
        self.store.add(&o.store);
        self.log_size += o.log_size;
        self.ondisk_log_size += o.ondisk_log_size;
        self.up += o.up;
        self.acting += o.acting;
        self.num_store_stats += o.num_store_stats;
    }
}
impl Encode for PoolStat {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(7, 5, |e| {
            e.put(&self.stats).put(&self.log_size).put(&self.ondisk_log_size).put(&self.up).put(&self.acting);
            e.put(&self.store).put(&self.num_store_stats);
        });
    }
}
impl Decode for PoolStat {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("pool_stat_t", 7, |v, d| {
            let mut out = PoolStat {
                stats: d.get()?,
                log_size: d.get()?,
                ondisk_log_size: d.get()?,
                ..PoolStat::default()
            };
            if v >= 6 {
                (out.up, out.acting) = d.get()?;
            }
            if v >= 7 {
                (out.store, out.num_store_stats) = d.get()?;
            }
            Ok(out)
        })
    }
}

/// Per second, over the last few reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct IoRates {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub read_ops: u64,
    pub write_ops: u64,
    pub recovering_objects: u64,
    pub recovering_bytes: u64,
    pub recovering_keys: u64,
}

/// A pool in the manager's digest.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct PoolDigest {
    pub stat: PoolStat,
    /// PGs that reported.
    pub num_pgs: u32,
    pub io: IoRates,
    /// The figures of unclean PGs alone, for degraded and misplaced ratios.
    pub unclean: ObjectStatSum,
    /// How many bytes could still be stored, before copies are counted.
    pub max_avail: u64,
    /// Raw bytes per stored byte.
    pub raw_used_rate: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_reach_peers_of_our_mask_in_milliseconds() {
        let stat = PerfStat { commit_latency_ns: 3_000_000, apply_latency_ns: 4_000_000 };
        let bytes = denc::to_bytes(&stat, features::SUPPORTED);
        assert_eq!(bytes[..], [1, 1, 8, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
        assert_eq!(denc::from_bytes::<PerfStat>(&bytes).unwrap(), stat);
    }

    #[test]
    fn pool_figures_add_up() {
        let mut a = PoolStat { up: 3, num_store_stats: 1, ..Default::default() };
        a.add(&a.clone());
        assert_eq!((a.up, a.num_store_stats), (6, 2));
        assert_eq!(denc::from_bytes::<PoolStat>(&denc::to_bytes(&a, 0)).unwrap(), a);
    }
}
