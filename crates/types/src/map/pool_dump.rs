//! A pool as `osd dump` and `osd pool ls detail` show it.
//!
//! Upstream: pg_pool_t::dump and its operator<< in src/osd/osd_types.cc.

use super::osdmap::settings;
use super::pool::{AutoscaleMode, HitSetParams, MergeMeta, PgPool, PoolSnap};
use super::pool_opts::PoolOptValue;
use crate::json::{array, float, general, Obj};
use serde_json::Value;

impl PgPool {
    /// Every field but number and name, which the map has.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        self.dump_placement(&mut o);
        self.dump_snaps(&mut o);
        self.dump_tiering(&mut o);
        o.put("stripe_width", self.stripe_width).put("expected_num_objects", self.expected_num_objects);
        o.put("fast_read", self.fast_read);
        let mut options = Obj::new();
        for (name, value) in self.opts.by_name() {
            match value {
                PoolOptValue::Str(s) => options.put(name, s.as_str()),
                PoolOptValue::Int(i) => options.put(name, *i),
                PoolOptValue::Double(d) => options.put(name, float(*d)),
            };
        }
        o.put("options", options);
        let applications = self.application_metadata.iter().map(|(name, s)| (name.as_str(), settings(s)));
        o.put("application_metadata", applications.collect::<Obj>());
        o.done()
    }

    fn dump_placement(&self, o: &mut Obj) {
        o.show("create_time", self.create_time).put("flags", self.flags).put("flags_names", self.flags_string());
        o.put("type", self.pool_type.0).put("size", self.size).put("min_size", self.min_size);
        o.put("crush_rule", self.crush_rule);
        o.put("peering_crush_bucket_count", self.peering_crush_bucket_count);
        o.put("peering_crush_bucket_target", self.peering_crush_bucket_target);
        o.put("peering_crush_bucket_barrier", self.peering_crush_bucket_barrier);
        o.put("peering_crush_bucket_mandatory_member", self.peering_crush_mandatory_member);
        o.put("object_hash", self.object_hash).put("pg_autoscale_mode", self.pg_autoscale_mode.name());
        o.put("pg_num", self.pg_num).put("pg_placement_num", self.pgp_num);
        o.put("pg_placement_num_target", self.pgp_num_target).put("pg_num_target", self.pg_num_target);
        o.put("pg_num_pending", self.pg_num_pending).put("last_pg_merge_meta", self.last_pg_merge_meta.dump_json());
        o.show("last_change", self.last_change).show("last_force_op_resend", self.last_force_op_resend);
        o.show("last_force_op_resend_prenautilus", self.last_force_op_resend_prenautilus);
        o.show("last_force_op_resend_preluminous", self.last_force_op_resend_preluminous);
        o.put("auid", self.auid);
    }

    fn dump_snaps(&self, o: &mut Obj) {
        o.put("snap_mode", if self.is_pool_snaps_mode() { "pool" } else { "selfmanaged" });
        o.put("snap_seq", self.snap_seq.0).put("snap_epoch", self.snap_epoch.0);
        o.put("pool_snaps", array(self.snaps.values().map(PoolSnap::dump_json)));
        o.show("removed_snaps", &self.removed_snaps);
        o.put("quota_max_bytes", self.quota_max_bytes).put("quota_max_objects", self.quota_max_objects);
    }

    fn dump_tiering(&self, o: &mut Obj) {
        o.put("tiers", array(self.tiers.iter().copied())).put("tier_of", self.tier_of.0);
        o.put("read_tier", self.read_tier.0).put("write_tier", self.write_tier.0);
        o.put("cache_mode", self.cache_mode_name());
        o.put("target_max_bytes", self.target_max_bytes).put("target_max_objects", self.target_max_objects);
        o.put("cache_target_dirty_ratio_micro", self.cache_target_dirty_ratio_micro);
        o.put("cache_target_dirty_high_ratio_micro", self.cache_target_dirty_high_ratio_micro);
        o.put("cache_target_full_ratio_micro", self.cache_target_full_ratio_micro);
        o.put("cache_min_flush_age", self.cache_min_flush_age).put("cache_min_evict_age", self.cache_min_evict_age);
        o.put("erasure_code_profile", self.erasure_code_profile.as_str());
        o.put("hit_set_params", self.hit_set_params.dump_json());
        o.put("hit_set_period", self.hit_set_period).put("hit_set_count", self.hit_set_count);
        o.put("use_gmt_hitset", self.use_gmt_hitset);
        o.put("min_read_recency_for_promote", self.min_read_recency_for_promote);
        o.put("min_write_recency_for_promote", self.min_write_recency_for_promote);
        o.put("hit_set_grade_decay_rate", self.hit_set_grade_decay_rate);
        o.put("hit_set_search_last_n", self.hit_set_search_last_n);
        o.put("grade_table", array(self.grade_table()));
    }

    /// Share of a hit set in an object's temperature, in millionths, newest first.
    fn grade_table(&self) -> Vec<u32> {
        let keep = 1.0 - f64::from(self.hit_set_grade_decay_rate) / 100.0;
        let mut grade = 1_000_000u32;
        // A stranger's count must not fill memory; no cluster keeps that many.
        let count = self.hit_set_count.min(100_000);
        (0..count)
            .map(|_| {
                grade = (f64::from(grade) * keep) as u32;
                grade
            })
            .collect()
    }

    /// One line, as `osd dump` has it behind number and name.
    pub fn print_plain(&self) -> String {
        let mut s = self.pool_type.name().to_owned();
        let mut add = |when: bool, text: String| s += if when { &text } else { "" };
        add(self.is_erasure(), format!(" profile {}", self.erasure_code_profile));
        add(true, format!(" size {} min_size {} crush_rule {}", self.size, self.min_size, self.crush_rule));
        add(true, format!(" object_hash {} pg_num {} pgp_num {}", self.hash_name(), self.pg_num, self.pgp_num));
        add(self.pg_num_target != self.pg_num, format!(" pg_num_target {}", self.pg_num_target));
        add(self.pgp_num_target != self.pgp_num, format!(" pgp_num_target {}", self.pgp_num_target));
        add(self.pg_num_pending != self.pg_num, format!(" pg_num_pending {}", self.pg_num_pending));
        let autoscale = self.pg_autoscale_mode;
        add(autoscale != AutoscaleMode(u8::MAX), format!(" autoscale_mode {}", autoscale.name()));
        add(true, format!(" last_change {}", self.last_change));
        let resend =
            [self.last_force_op_resend, self.last_force_op_resend_prenautilus, self.last_force_op_resend_preluminous];
        add(resend.iter().any(|e| e.0 != 0), format!(" lfor {}/{}/{}", resend[0], resend[1], resend[2]));
        add(self.auid != 0, format!(" owner {}", self.auid));
        add(self.flags != 0, format!(" flags {}", self.flags_string()));
        add(self.quota_max_bytes != 0, format!(" max_bytes {}", self.quota_max_bytes));
        add(self.quota_max_objects != 0, format!(" max_objects {}", self.quota_max_objects));
        s += &self.print_tiering();
        s += &format!(" stripe_width {}", self.stripe_width);
        let mut add = |when: bool, text: String| s += if when { &text } else { "" };
        add(self.expected_num_objects != 0, format!(" expected_num_objects {}", self.expected_num_objects));
        add(self.fast_read, " fast_read 1".to_owned());
        for (name, value) in self.opts.by_name() {
            let value = match value {
                PoolOptValue::Str(s) => s.clone(),
                PoolOptValue::Int(i) => i.to_string(),
                PoolOptValue::Double(d) => general(*d, 6),
            };
            add(true, format!(" {name} {value}"));
        }
        let applications: Vec<&str> = self.application_metadata.keys().map(String::as_str).collect();
        add(!applications.is_empty(), format!(" application {}", applications.join(",")));
        s
    }

    fn print_tiering(&self) -> String {
        let mut s = String::new();
        let mut add = |when: bool, text: String| s += if when { &text } else { "" };
        let tiers: Vec<String> = self.tiers.iter().map(u64::to_string).collect();
        add(!tiers.is_empty(), format!(" tiers {}", tiers.join(",")));
        add(self.tier_of.0 >= 0, format!(" tier_of {}", self.tier_of));
        add(self.read_tier.0 >= 0, format!(" read_tier {}", self.read_tier));
        add(self.write_tier.0 >= 0, format!(" write_tier {}", self.write_tier));
        add(self.cache_mode != 0, format!(" cache_mode {}", self.cache_mode_name()));
        add(self.target_max_bytes != 0, format!(" target_bytes {}", self.target_max_bytes));
        add(self.target_max_objects != 0, format!(" target_objects {}", self.target_max_objects));
        add(
            self.hit_set_params != HitSetParams::None,
            format!(
                " hit_set {} {}s x{} decay_rate {} search_last_n {}",
                self.hit_set_params.print_plain(),
                self.hit_set_period,
                self.hit_set_count,
                self.hit_set_grade_decay_rate,
                self.hit_set_search_last_n
            ),
        );
        let (read, write) = (self.min_read_recency_for_promote, self.min_write_recency_for_promote);
        add(read != 0, format!(" min_read_recency_for_promote {read}"));
        add(write != 0, format!(" min_write_recency_for_promote {write}"));
        s
    }

    fn hash_name(&self) -> &'static str {
        match self.object_hash {
            1 => "linux",
            Self::HASH_RJENKINS => "rjenkins",
            _ => "unknown",
        }
    }
}

impl MergeMeta {
    /// As a pool's dump shows it.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.show("source_pgid", self.source_pgid).put("ready_epoch", self.ready_epoch.0);
        o.put("last_epoch_started", self.last_epoch_started.0).put("last_epoch_clean", self.last_epoch_clean.0);
        o.show("source_version", self.source_version).show("target_version", self.target_version);
        o.done()
    }
}

impl PoolSnap {
    /// As a pool's dump shows it.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("snapid", self.snapid.0).show("stamp", self.stamp).put("name", self.name.as_str());
        o.done()
    }
}

impl HitSetParams {
    fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("type", self.name());
        if let HitSetParams::Bloom { fpp_micro, target_size, seed } = self {
            o.put("false_positive_probability", float(f64::from(*fpp_micro) / 1e6));
            o.put("target_size", *target_size).put("seed", *seed);
        }
        o.done()
    }

    fn name(&self) -> &'static str {
        match self {
            HitSetParams::None => "none",
            HitSetParams::ExplicitHash => "explicit_hash",
            HitSetParams::ExplicitObject => "explicit_object",
            HitSetParams::Bloom { .. } => "bloom",
        }
    }

    fn print_plain(&self) -> String {
        match self {
            HitSetParams::Bloom { fpp_micro, target_size, seed } => {
                let probability = general(f64::from(*fpp_micro) / 1e6, 6);
                format!("bloom{{false_positive_probability: {probability}, target_size: {target_size}, seed: {seed}}}")
            }
            other => other.name().to_owned(),
        }
    }
}
