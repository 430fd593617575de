//! `osd pool stats` and `osd pool autoscale-status`.
//!
//! Upstream: src/mon/PGMap.cc (process_pg_map_command, osd pool stats), src/pybind/mgr/pg_autoscaler/module.py.

use crate::core::Mgr;
use admin::TextTable;
use admin::human::narrow;
use admin::usage;
use serde_json::{Value, json};
use types::PoolId;

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

    /// What numbers of PGs pools have and should have; new ones are shown where they would be set.
    pub(crate) fn autoscale_text(&self) -> String {
        let mut t = TextTable::new().left("POOL");
        let columns = [
            "SIZE", "TARGET SIZE", "RATE", "RAW CAPACITY", "RATIO", "TARGET RATIO", "EFFECTIVE RATIO", "BIAS", "PG_NUM",
            "NEW PG_NUM",
        ];
        t = columns.iter().fold(t, |t, name| t.right(name)).left("AUTOSCALE").left("BULK");
        let some = |there: bool, text: String| if there { text } else { String::new() };
        for p in self.autoscale_targets() {
            t.row([
                self.pool_name(p.pool).to_string(),
                narrow(p.logical_used, 6, 1024),
                some(p.target_bytes > 0, narrow(p.target_bytes, 6, 1024)),
                float(p.raw_used_rate),
                narrow(p.capacity, 6, 1024),
                format!("{:.4}", p.capacity_ratio),
                some(p.target_ratio > 0.0, format!("{:.4}", p.target_ratio)),
                some(p.effective_target_ratio > 0.0, format!("{:.4}", p.effective_target_ratio)),
                float(p.bias),
                p.pg_num_target.to_string(),
                some(p.would_adjust(), p.final_pg_num.to_string()),
                p.mode.name().into(),
                if p.bulk { "True" } else { "False" }.into(),
            ]);
        }
        // The stock table pads every column to its right, the last one too.
        t.render().lines().map(|line| format!("{line}  \n")).collect()
    }

    /// The same as JSON.
    pub(crate) fn autoscale_json(&self) -> Value {
        self.autoscale_targets().iter().map(|t| t.json(self.pool_name(t.pool))).collect()
    }

    /// A pool's name; empty for one that is not in the map.
    pub(crate) fn pool_name(&self, id: PoolId) -> &str {
        self.osdmap().pool_name.get(&id).map_or("", String::as_str)
    }
}

/// With a fraction, if only a zero.
fn float(v: f64) -> String {
    format!("{v:?}")
}
