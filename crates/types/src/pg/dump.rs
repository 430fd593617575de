//! A PG and its figures as `pg dump` and `pg query` show them.
//!
//! Upstream: object_stat_sum_t::dump, pg_stat_t::dump, pg_history_t::dump, pg_info_t::dump in src/osd/osd_types.cc.

use super::{HitSetHistory, HitSetInfo, ObjectStatSum, PgHistory, PgInfo, PgShard, PgStat};
use crate::OsdId;
use crate::json::{Obj, array, float};
use crate::map::SnapIntervals;
use serde_json::Value;

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

fn osds(list: &[OsdId]) -> Value {
    array(list.iter().map(|osd| osd.0))
}

fn purged(snaps: &SnapIntervals) -> Value {
    array(snaps.0.iter().map(|(start, length)| {
        let mut o = Obj::new();
        o.put("start", format!("{start:x}")).put("length", format!("{length:x}"));
        o.done()
    }))
}

impl ObjectStatSum {
    /// Every count, by the name that is printed.
    pub fn dump_json(&self) -> Value {
        let fields = self.fields();
        let value = |name: &str| fields.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v);
        SUM_ORDER.iter().map(|(field, name)| (*name, value(field))).collect::<Obj>().done()
    }
}

impl PgStat {
    /// Everything but the PG's name, which it does not hold.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.show("version", self.version).put("reported_seq", self.reported_seq).put("reported_epoch", self.reported_epoch.0);
        o.show("state", self.state);
        self.dump_moments(&mut o);
        o.put("mapping_epoch", self.mapping_epoch.0);
        o.show("log_start", self.log_start).show("ondisk_log_start", self.ondisk_log_start);
        o.put("created", self.created.0).put("last_epoch_clean", self.last_epoch_clean.0);
        o.show("parent", self.parent).put("parent_split_bits", self.parent_split_bits);
        o.show("last_scrub", self.last_scrub).show("last_scrub_stamp", self.last_scrub_stamp);
        o.show("last_deep_scrub", self.last_deep_scrub).show("last_deep_scrub_stamp", self.last_deep_scrub_stamp);
        o.show("last_clean_scrub_stamp", self.last_clean_scrub_stamp);
        o.put("log_size", self.log_size).put("ondisk_log_size", self.ondisk_log_size);
        self.dump_doubts(&mut o);
        o.put("snaptrimq_len", self.snaptrimq_len).put("stat_sum", self.stats.sum.dump_json());
        o.put("up", osds(&self.up)).put("acting", osds(&self.acting));
        o.put("avail_no_missing", array(self.avail_no_missing.iter().map(PgShard::to_string)));
        o.put("object_location_counts", array(self.object_location_counts.iter().map(|(shards, n)| {
            let names: Vec<String> = shards.iter().map(PgShard::to_string).collect();
            let mut o = Obj::new();
            o.put("shards", names.join(",")).put("objects", *n);
            o.done()
        })));
        o.put("blocked_by", osds(&self.blocked_by)).put("up_primary", self.up_primary.0).put("acting_primary", self.acting_primary.0);
        o.put("purged_snaps", purged(&self.purged_snaps));
        o.done()
    }

    fn dump_moments(&self, o: &mut Obj) {
        o.show("last_fresh", self.last_fresh).show("last_change", self.last_change);
        o.show("last_active", self.last_active).show("last_peered", self.last_peered).show("last_clean", self.last_clean);
        o.show("last_became_active", self.last_became_active).show("last_became_peered", self.last_became_peered);
        o.show("last_unstale", self.last_unstale).show("last_undegraded", self.last_undegraded);
        o.show("last_fullsized", self.last_fullsized);
    }

    fn dump_doubts(&self, o: &mut Obj) {
        o.put("stats_invalid", self.stats_invalid).put("dirty_stats_invalid", self.dirty_stats_invalid);
        o.put("omap_stats_invalid", self.omap_stats_invalid).put("hitset_stats_invalid", self.hitset_stats_invalid);
        o.put("hitset_bytes_stats_invalid", self.hitset_bytes_stats_invalid).put("pin_stats_invalid", self.pin_stats_invalid);
        o.put("manifest_stats_invalid", self.manifest_stats_invalid);
    }
}

impl PgHistory {
    /// Every field.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("epoch_created", self.epoch_created.0).put("epoch_pool_created", self.epoch_pool_created.0);
        o.put("last_epoch_started", self.last_epoch_started.0).put("last_interval_started", self.last_interval_started.0);
        o.put("last_epoch_clean", self.last_epoch_clean.0).put("last_interval_clean", self.last_interval_clean.0);
        o.put("last_epoch_split", self.last_epoch_split.0).put("last_epoch_marked_full", self.last_epoch_marked_full.0);
        o.put("same_up_since", self.same_up_since.0).put("same_interval_since", self.same_interval_since.0);
        o.put("same_primary_since", self.same_primary_since.0);
        o.show("last_scrub", self.last_scrub).show("last_scrub_stamp", self.last_scrub_stamp);
        o.show("last_deep_scrub", self.last_deep_scrub).show("last_deep_scrub_stamp", self.last_deep_scrub_stamp);
        o.show("last_clean_scrub_stamp", self.last_clean_scrub_stamp);
        o.put("prior_readable_until_ub", float(self.prior_readable_until_ub.to_duration().as_secs_f64()));
        o.done()
    }
}

impl HitSetInfo {
    fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.show("begin", self.begin).show("end", self.end).show("version", self.version).put("using_gmt", self.using_gmt);
        o.done()
    }
}

impl HitSetHistory {
    fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.show("current_last_update", self.current_last_update);
        o.put("history", array(self.history.iter().map(HitSetInfo::dump_json)));
        o.done()
    }
}

impl PgInfo {
    /// Every field that upstream prints.
    pub fn dump_json(&self) -> Value {
        let empty = self.last_update.version == 0;
        let mut o = Obj::new();
        o.show("pgid", self.pgid).show("last_update", self.last_update).show("last_complete", self.last_complete);
        o.show("log_tail", self.log_tail).put("last_user_version", self.last_user_version).show("last_backfill", &self.last_backfill);
        o.put("purged_snaps", purged(&self.purged_snaps)).put("history", self.history.dump_json());
        o.put("stats", self.stats.dump_json());
        o.put("empty", i32::from(empty)).put("dne", i32::from(self.history.epoch_created.0 == 0));
        o.put("incomplete", i32::from(!self.last_backfill.max)).put("last_epoch_started", self.last_epoch_started.0);
        o.put("hit_set_history", self.hit_set.dump_json());
        o.done()
    }
}
