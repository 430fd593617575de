//! `osd pool stats` and `osd pool autoscale-status`.
//!
//! Upstream: src/mon/PGMap.cc (process_pg_map_command, osd pool stats), src/pybind/mgr/pg_autoscaler/module.py.

use crate::core::Mgr;
use crate::digest::raw_used_rate;
use admin::TextTable;
use admin::human::narrow;
use admin::usage;
use serde_json::{Value, json};
use types::PoolId;
use types::map::PgPool;

impl Mgr {
    /// What goes on in pools, as paragraphs.
    pub(crate) fn pool_stats_text(&self, pools: &[PoolId]) -> String {
        let paragraph = |id: &PoolId| {
            let (sum, io) = (self.pgs().pool(*id).stats.sum, self.rates().pool(*id));
            let mut lines = usage::recovery_lines(&sum);
            lines.extend(usage::recovery_io_line(&io).map(|line| format!("recovery io {line}")));
            lines.extend(usage::client_io_line(&io).map(|line| format!("client io {line}")));
            if lines.is_empty() {
                lines.push("nothing is going on".into());
            }
            format!("pool {} id {id}\n  {}\n\n", self.pool_name(*id), lines.join("\n  "))
        };
        pools.iter().map(paragraph).collect()
    }

    /// The same as JSON.
    pub(crate) fn pool_stats_io_json(&self, pools: &[PoolId]) -> Value {
        let pool = |id: &PoolId| {
            let (sum, io) = (self.pgs().pool(*id).stats.sum, self.rates().pool(*id));
            json!({
                "pool_name": self.pool_name(*id), "pool_id": id.0, "recovery": usage::recovery_json(&sum),
                "recovery_rate": usage::recovery_io_json(&io), "client_io_rate": usage::client_io_json(&io),
            })
        };
        pools.iter().map(pool).collect()
    }

    /// PG counts of pools. Nothing adjusts them here, so that there is never a new count to show.
    pub(crate) fn autoscale_text(&self) -> String {
        let mut t = TextTable::new().left("POOL");
        let columns = [
            "SIZE", "TARGET SIZE", "RATE", "RAW CAPACITY", "RATIO", "TARGET RATIO", "EFFECTIVE RATIO", "BIAS", "PG_NUM",
            "NEW PG_NUM",
        ];
        t = columns.iter().fold(t, |t, name| t.right(name)).left("AUTOSCALE").left("BULK");
        for (id, pool) in &self.osdmap().pools {
            let (stored, rate, capacity) = self.pool_shape(*id, pool);
            t.row([
                self.pool_name(*id).to_string(),
                narrow(stored, 6, 1024),
                String::new(),
                format!("{rate:.1}"),
                narrow(capacity, 6, 1024),
                format!("{:.4}", ratio(stored as f64 * rate, capacity)),
                String::new(),
                String::new(),
                "1.0".into(),
                pool.pg_num_target.to_string(),
                String::new(),
                pool.pg_autoscale_mode.name().into(),
                "False".into(),
            ]);
        }
        // The stock table pads every column to its right, the last one too.
        t.render().lines().map(|line| format!("{line}  \n")).collect()
    }

    /// The same as JSON.
    pub(crate) fn autoscale_json(&self) -> Value {
        let pool = |(id, pool): (&PoolId, &PgPool)| {
            let (stored, rate, capacity) = self.pool_shape(*id, pool);
            let raw = stored as f64 * rate;
            json!({
                "actual_capacity_ratio": ratio(raw, capacity), "actual_raw_used": raw, "bias": 1.0, "bulk": false,
                "capacity_ratio": ratio(raw, capacity), "crush_root_id": self.root_of(pool),
                "effective_target_ratio": 0.0, "logical_used": stored,
                "pg_autoscale_mode": pool.pg_autoscale_mode.name(), "pg_num_final": pool.pg_num_target,
                "pg_num_ideal": pool.pg_num_target, "pg_num_target": pool.pg_num_target, "pool_id": id.0,
                "pool_name": self.pool_name(*id), "raw_used": raw, "raw_used_rate": rate,
                "subtree_capacity": capacity, "target_bytes": 0, "target_ratio": 0.0, "would_adjust": false,
            })
        };
        self.osdmap().pools.iter().map(pool).collect()
    }

    /// A pool's name; empty for one that is not in the map.
    pub(crate) fn pool_name(&self, id: PoolId) -> &str {
        self.osdmap().pool_name.get(&id).map_or("", String::as_str)
    }

    /// Bytes stored, raw bytes per stored byte, raw bytes of the OSDs the pool's rule may use.
    fn pool_shape(&self, id: PoolId, pool: &PgPool) -> (u64, f64, u64) {
        let stored = self.pgs().pool(id).stats.sum.num_bytes.max(0) as u64;
        let shares = self.osdmap().crush.rule_shares(pool.crush_rule.into());
        let osds = self.pgs().counted(self.osdmap()).filter(|(osd, _)| shares.contains_key(&osd.0));
        (stored, raw_used_rate(self.osdmap(), pool), osds.map(|(_, r)| r.stat.statfs.total).sum())
    }

    fn root_of(&self, pool: &PgPool) -> i32 {
        self.osdmap().crush.takes(pool.crush_rule.into()).into_iter().next().unwrap_or(0)
    }
}

fn ratio(part: f64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part / whole as f64 }
}
