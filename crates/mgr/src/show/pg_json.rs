//! PGs, pools and OSDs as `pg dump -f json` has them.
//!
//! Upstream: object_stat_sum_t::dump, pg_stat_t::dump, osd_stat_t::dump in src/osd/osd_types.cc.

use crate::core::Mgr;
use admin::human::timestamp;
use serde_json::{Map, Value, json};
use types::json::Obj;
use types::pg::{OsdPing, OsdStat, PgStat, PoolStat, StoreStatfs};
use types::{OsdId, PgId, PoolId, Utime};

/// A store's bytes.
pub fn statfs(s: &StoreStatfs) -> Value {
    json!({
        "total": s.total, "available": s.available, "internally_reserved": s.internally_reserved,
        "allocated": s.allocated, "data_stored": s.data_stored, "data_compressed": s.data_compressed,
        "data_compressed_allocated": s.data_compressed_allocated,
        "data_compressed_original": s.data_compressed_original, "omap_allocated": s.omap_allocated,
        "internal_metadata": s.internal_metadata,
    })
}

/// A pool's figures without its number.
pub fn pool_stat(s: &PoolStat) -> Map<String, Value> {
    let out = json!({
        "stat_sum": s.stats.sum.dump_json(), "store_stats": statfs(&s.store), "log_size": s.log_size,
        "ondisk_log_size": s.ondisk_log_size, "up": s.up, "acting": s.acting, "num_store_stats": s.num_store_stats,
    });
    into_map(out)
}

/// An OSD's figures without its number.
pub fn osd_stat(s: &OsdStat) -> Map<String, Value> {
    let f = &s.statfs;
    let alert = |(osd, alerts): (&i32, &std::collections::BTreeMap<String, String>)| {
        json!({"osd": osd, "alerts": alerts.iter().map(|(k, v)| json!({"alert": k, "message": v})).collect::<Vec<_>>()})
    };
    let ping = |(osd, times): (&i32, &OsdPing)| {
        let updated = Utime { sec: times.last_update_s, nsec: 0 };
        json!({"osd": osd, "last update": updated.ctime(), "interfaces": times.networks().map(|network| network.dump_json().done()).collect::<Vec<_>>()})
    };
    let out = json!({
        "up_from": s.up_from.0, "seq": s.seq, "num_pgs": s.num_pgs, "num_osds": s.num_osds,
        "num_per_pool_osds": s.num_per_pool_osds, "num_per_pool_omap_osds": s.num_per_pool_omap_osds,
        "kb": f.total >> 10, "kb_used": f.used_raw() >> 10, "kb_used_data": f.allocated >> 10,
        "kb_used_omap": f.omap_allocated >> 10, "kb_used_meta": f.internal_metadata >> 10,
        "kb_avail": f.available >> 10, "statfs": statfs(f), "hb_peers": s.hb_peers,
        "snap_trim_queue_len": s.snap_trim_queue_len, "num_snap_trimming": s.num_snap_trimming,
        "num_shards_repaired": s.num_shards_repaired,
        "op_queue_age_hist": {"histogram": s.op_queue_age_hist, "upper_bound": 1u64 << s.op_queue_age_hist.len().min(62)},
        "perf_stat": perf(s), "alerts": s.alerts.iter().map(alert).collect::<Vec<_>>(), "network_ping_times": s.hb_pingtime.iter().map(ping).collect::<Vec<_>>(),
    });
    into_map(out)
}

/// An OSD's latencies.
pub fn perf(s: &OsdStat) -> Value {
    json!({
        "commit_latency_ms": s.perf.commit_latency_ns / 1_000_000,
        "apply_latency_ms": s.perf.apply_latency_ns / 1_000_000,
        "commit_latency_ns": s.perf.commit_latency_ns, "apply_latency_ns": s.perf.apply_latency_ns,
    })
}

/// A PG, whole.
pub fn pg(id: &PgId, s: &PgStat) -> Value {
    let mut out = Obj::new();
    out.show("pgid", id).extend(s.dump_json());
    out.done()
}

/// A PG's state and sets.
pub fn pg_brief(id: &PgId, s: &PgStat) -> Value {
    json!({
        "pgid": id.to_string(), "state": s.state.to_string(), "up": s.up.iter().map(|o| o.0).collect::<Vec<_>>(),
        "acting": s.acting.iter().map(|o| o.0).collect::<Vec<_>>(), "up_primary": s.up_primary.0,
        "acting_primary": s.acting_primary.0,
    })
}

impl Mgr {
    /// `pg_stats` of `pg dump`.
    pub(crate) fn pg_stats_json(&self) -> Value {
        self.pgs().pgs.iter().map(|(id, s)| pg(id, s)).collect()
    }

    /// `pool_stats`.
    pub(crate) fn pool_stats_json(&self) -> Value {
        let pool = |id: &PoolId| {
            let mut out = into_map(json!({"poolid": id.0, "num_pg": self.pgs().pgs_of_pool(*id).count()}));
            out.extend(pool_stat(&self.pgs().pool(*id)));
            Value::Object(out)
        };
        self.osdmap().pools.keys().map(pool).collect()
    }

    /// `osd_stats`.
    pub(crate) fn osd_stats_json(&self) -> Value {
        let osd = |(id, report): (&OsdId, &crate::pgmap::OsdReport)| {
            let mut out = into_map(json!({"osd": id.0}));
            out.extend(osd_stat(&report.stat));
            Value::Object(out)
        };
        self.pgs().osds.iter().map(osd).collect()
    }

    /// `pool_statfs`.
    pub(crate) fn pool_statfs_json(&self) -> Value {
        let held = |pool: &PoolId| {
            let pool = *pool;
            self.pgs().osds.iter().filter_map(move |(osd, report)| {
                let mut out = into_map(json!({"poolid": pool.0, "osd": osd.0}));
                out.extend(into_map(statfs(report.pools.get(&pool)?)));
                Some(Value::Object(out))
            })
        };
        self.osdmap().pools.keys().flat_map(held).collect()
    }

    /// `pg_stats_delta`.
    pub(crate) fn delta_json(&self) -> Value {
        let mut delta = PoolStat::default();
        delta.stats.sum = self.rates().delta();
        let mut out = pool_stat(&delta);
        out.insert("stamp_delta".into(), format!("{:.6}", self.rates().span().as_secs_f64()).into());
        Value::Object(out)
    }

    /// The sums at the head of `pg dump`.
    pub(crate) fn basic_json(&self) -> Map<String, Value> {
        let pgs = self.pgs();
        into_map(json!({
            "version": pgs.version, "stamp": timestamp(pgs.stamp), "last_osdmap_epoch": pgs.epoch.0,
            "last_pg_scan": pgs.epoch.0, "pg_stats_sum": pool_stat(&pgs.sum()),
            "osd_stats_sum": osd_stat(&pgs.osd_sum(self.osdmap())), "pg_stats_delta": self.delta_json(),
        }))
    }
}

/// The members of an object.
pub fn into_map(v: Value) -> Map<String, Value> {
    match v {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
