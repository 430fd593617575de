//! PGs, pools and OSDs as `pg dump -f json` has them.
//!
//! Upstream: object_stat_sum_t::dump, pg_stat_t::dump, osd_stat_t::dump in src/osd/osd_types.cc.

use crate::core::Mgr;
use admin::human::timestamp;
use serde_json::{Map, Value, json};
use types::pg::{ObjectStatSum, OsdStat, PgStat, PoolStat, StoreStatfs};
use types::{OsdId, PgId, PoolId};

/// The order in which upstream prints the sums, which is not that in which it stores them; (field, name printed).
const SUM_ORDER: &[(&str, &str)] = &[
    ("num_bytes", "num_bytes"),
    ("num_objects", "num_objects"),
    ("num_object_clones", "num_object_clones"),
    ("num_object_copies", "num_object_copies"),
    ("num_objects_missing_on_primary", "num_objects_missing_on_primary"),
    ("num_objects_missing", "num_objects_missing"),
    ("num_objects_degraded", "num_objects_degraded"),
    ("num_objects_misplaced", "num_objects_misplaced"),
    ("num_objects_unfound", "num_objects_unfound"),
    ("num_objects_dirty", "num_objects_dirty"),
    ("num_whiteouts", "num_whiteouts"),
    ("num_rd", "num_read"),
    ("num_rd_kb", "num_read_kb"),
    ("num_wr", "num_write"),
    ("num_wr_kb", "num_write_kb"),
    ("num_scrub_errors", "num_scrub_errors"),
    ("num_shallow_scrub_errors", "num_shallow_scrub_errors"),
    ("num_deep_scrub_errors", "num_deep_scrub_errors"),
    ("num_objects_recovered", "num_objects_recovered"),
    ("num_bytes_recovered", "num_bytes_recovered"),
    ("num_keys_recovered", "num_keys_recovered"),
    ("num_objects_omap", "num_objects_omap"),
    ("num_objects_hit_set_archive", "num_objects_hit_set_archive"),
    ("num_bytes_hit_set_archive", "num_bytes_hit_set_archive"),
    ("num_flush", "num_flush"),
    ("num_flush_kb", "num_flush_kb"),
    ("num_evict", "num_evict"),
    ("num_evict_kb", "num_evict_kb"),
    ("num_promote", "num_promote"),
    ("num_flush_mode_high", "num_flush_mode_high"),
    ("num_flush_mode_low", "num_flush_mode_low"),
    ("num_evict_mode_some", "num_evict_mode_some"),
    ("num_evict_mode_full", "num_evict_mode_full"),
    ("num_objects_pinned", "num_objects_pinned"),
    ("num_legacy_snapsets", "num_legacy_snapsets"),
    ("num_large_omap_objects", "num_large_omap_objects"),
    ("num_objects_manifest", "num_objects_manifest"),
    ("num_omap_bytes", "num_omap_bytes"),
    ("num_omap_keys", "num_omap_keys"),
    ("num_objects_repaired", "num_objects_repaired"),
];

/// Counts over objects.
pub fn stat_sum(sum: &ObjectStatSum) -> Value {
    let fields = sum.fields();
    let value = |name: &str| fields.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v);
    Value::Object(SUM_ORDER.iter().map(|(field, name)| (name.to_string(), value(field).into())).collect())
}

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
        "stat_sum": stat_sum(&s.stats.sum), "store_stats": statfs(&s.store), "log_size": s.log_size,
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
    let out = json!({
        "up_from": s.up_from.0, "seq": s.seq, "num_pgs": s.num_pgs, "num_osds": s.num_osds,
        "num_per_pool_osds": s.num_per_pool_osds, "num_per_pool_omap_osds": s.num_per_pool_omap_osds,
        "kb": f.total >> 10, "kb_used": f.used_raw() >> 10, "kb_used_data": f.allocated >> 10,
        "kb_used_omap": f.omap_allocated >> 10, "kb_used_meta": f.internal_metadata >> 10,
        "kb_avail": f.available >> 10, "statfs": statfs(f), "hb_peers": s.hb_peers,
        "snap_trim_queue_len": s.snap_trim_queue_len, "num_snap_trimming": s.num_snap_trimming,
        "num_shards_repaired": s.num_shards_repaired,
        "op_queue_age_hist": {"histogram": s.op_queue_age_hist, "upper_bound": 1u64 << s.op_queue_age_hist.len().min(62)},
        "perf_stat": perf(s), "alerts": s.alerts.iter().map(alert).collect::<Vec<_>>(), "network_ping_times": [],
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
    let osds = |list: &[OsdId]| list.iter().map(|o| o.0).collect::<Vec<_>>();
    let locations = s.object_location_counts.iter().map(|(shards, n)| {
        let names: Vec<String> = shards.iter().map(ToString::to_string).collect();
        json!({"shards": names.join(","), "objects": n})
    });
    let mut out = json!({
        "pgid": id.to_string(), "version": s.version.to_string(), "reported_seq": s.reported_seq,
        "reported_epoch": s.reported_epoch.0, "state": s.state.to_string(),
    });
    let stamps = [
        ("last_fresh", s.last_fresh),
        ("last_change", s.last_change),
        ("last_active", s.last_active),
        ("last_peered", s.last_peered),
        ("last_clean", s.last_clean),
        ("last_became_active", s.last_became_active),
        ("last_became_peered", s.last_became_peered),
        ("last_unstale", s.last_unstale),
        ("last_undegraded", s.last_undegraded),
        ("last_fullsized", s.last_fullsized),
    ];
    for (name, stamp) in stamps {
        out[name] = timestamp(stamp).into();
    }
    let rest = json!({
        "mapping_epoch": s.mapping_epoch.0, "log_start": s.log_start.to_string(),
        "ondisk_log_start": s.ondisk_log_start.to_string(), "created": s.created.0,
        "last_epoch_clean": s.last_epoch_clean.0, "parent": s.parent.to_string(),
        "parent_split_bits": s.parent_split_bits, "last_scrub": s.last_scrub.to_string(),
        "last_scrub_stamp": timestamp(s.last_scrub_stamp), "last_deep_scrub": s.last_deep_scrub.to_string(),
        "last_deep_scrub_stamp": timestamp(s.last_deep_scrub_stamp),
        "last_clean_scrub_stamp": timestamp(s.last_clean_scrub_stamp), "log_size": s.log_size,
        "ondisk_log_size": s.ondisk_log_size, "stats_invalid": s.stats_invalid,
        "dirty_stats_invalid": s.dirty_stats_invalid, "omap_stats_invalid": s.omap_stats_invalid,
        "hitset_stats_invalid": s.hitset_stats_invalid, "hitset_bytes_stats_invalid": s.hitset_bytes_stats_invalid,
        "pin_stats_invalid": s.pin_stats_invalid, "manifest_stats_invalid": s.manifest_stats_invalid,
        "snaptrimq_len": s.snaptrimq_len, "stat_sum": stat_sum(&s.stats.sum), "up": osds(&s.up),
        "acting": osds(&s.acting), "avail_no_missing": s.avail_no_missing.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "object_location_counts": locations.collect::<Vec<_>>(), "blocked_by": osds(&s.blocked_by),
        "up_primary": s.up_primary.0, "acting_primary": s.acting_primary.0,
        "purged_snaps": s.purged_snaps.0.iter().map(|(start, length)| json!({"start": start, "length": length})).collect::<Vec<_>>(),
    });
    let mut out = into_map(out);
    out.extend(into_map(rest));
    Value::Object(out)
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
