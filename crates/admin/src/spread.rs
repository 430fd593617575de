//! How evenly PGs are spread over OSDs by number, and what another map would change: `osd utilization`, and the foresight
//! of `osd reweight-by-utilization`.
//!
//! Upstream: OSDMap::summarize_mapping_stats in src/osd/OSDMap.cc.

use crate::human::general;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use types::map::OsdMap;
use types::{OsdId, PoolId};

/// PGs by OSD, of those OSDs that are up and in.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// Now, and with the other map if there is one.
    counts: BTreeMap<OsdId, (u64, u64)>,
    /// Copies of PGs, and how many of them would be somewhere else.
    total: u64,
    moved: u64,
    compared: bool,
}

impl Spread {
    /// Of these pools, or all; `None` if no OSD is up and in.
    pub fn new(map: &OsdMap, other: Option<&OsdMap>, pools: &BTreeSet<PoolId>) -> Option<Self> {
        let counts = map.up_osds().filter(|osd| map.is_in(*osd)).map(|osd| (osd, (0, 0))).collect();
        let mut out = Spread { counts, total: 0, moved: 0, compared: other.is_some() };
        for (id, pool) in map.pools.iter().filter(|(id, _)| pools.is_empty() || pools.contains(id)) {
            out.total += u64::from(pool.pg_num) * u64::from(pool.size);
            for pg in map.pgs(*id) {
                let up = map.pg_to_up_acting(pg).up;
                up.iter().for_each(|osd| out.count(*osd, 1, 0));
                let Some(other) = other else { continue };
                let new = other.pg_to_up_acting(pg).up;
                new.iter().for_each(|osd| out.count(*osd, 0, 1));
                let stays = |at: usize, osd: &OsdId| if pool.is_erasure() { new.get(at) == Some(osd) } else { new.contains(osd) };
                out.moved += up.iter().enumerate().filter(|(at, osd)| !stays(*at, osd)).count() as u64;
            }
        }
        (!out.counts.is_empty()).then_some(out)
    }

    fn count(&mut self, osd: OsdId, now: u64, then: u64) {
        if let Some(n) = self.counts.get_mut(&osd) {
            *n = (n.0 + now, n.1 + then);
        }
    }

    fn average(&self) -> f64 {
        self.total as f64 / self.counts.len().max(1) as f64
    }

    fn deviation(&self, of: impl Fn(&(u64, u64)) -> u64) -> f64 {
        let squares: f64 = self.counts.values().map(|n| (of(n) as f64 - self.average()).powi(2)).sum();
        (squares / self.counts.len().max(1) as f64).sqrt()
    }

    /// What throwing PGs at random would give: a binomial's deviation.
    fn baseline(&self) -> f64 {
        (self.average() * (1.0 - 1.0 / self.counts.len().max(1) as f64)).sqrt()
    }

    /// The first OSD with the fewest, and the first with the most.
    fn ends(&self) -> [(&'static str, OsdId, (u64, u64)); 2] {
        let least = self.counts.iter().min_by_key(|(_, n)| n.0).map(|(osd, n)| (*osd, *n)).unwrap_or_default();
        let most = self.counts.iter().rev().max_by_key(|(_, n)| n.0).map(|(osd, n)| (*osd, *n)).unwrap_or_default();
        [("min", least.0, least.1), ("max", most.0, most.1)]
    }

    /// As it is printed.
    pub fn text(&self) -> String {
        // Figures are of single precision there.
        let short = |v: f64| general(f64::from(v as f32), 6);
        let then = |v: String| if self.compared { format!(" -> {v}") } else { String::new() };
        let mut out = String::new();
        if self.compared {
            let percent = self.moved as f64 * 100.0 / self.total.max(1) as f64;
            out += &format!("moved {} / {} ({}%)\n", self.moved, self.total, short(percent));
        }
        out += &format!("avg {}\nstddev {}", short(self.average()), short(self.deviation(|n| n.0)));
        out += &then(short(self.deviation(|n| n.1)));
        out += &format!(" (expected baseline {})\n", short(self.baseline()));
        for (name, osd, n) in self.ends() {
            let share = |n: u64| short(if self.total > 0 { n as f64 / self.average() } else { 0.0 });
            out += &format!("{name} osd.{osd} with {}{} pgs ({}{} * mean)\n", n.0, then(n.1.to_string()), share(n.0), then(share(n.1)));
        }
        out
    }

    /// The same as JSON.
    pub fn json(&self) -> Value {
        let mut out = Map::new();
        let mut put = |name: &str, value: Value| drop(out.insert(name.into(), value));
        if self.compared {
            put("moved_pgs", self.moved.into());
            put("total_pgs", self.total.into());
        }
        put("avg_pgs", self.average().into());
        put("std_dev", self.deviation(|n| n.0).into());
        put("expected_baseline_std_dev", self.baseline().into());
        if self.compared {
            put("new_std_dev", self.deviation(|n| n.1).into());
        }
        for (name, osd, n) in self.ends() {
            put(&format!("{name}_osd"), json!(osd.0));
            put(&format!("{name}_osd_pgs"), n.0.into());
            if self.compared {
                put(&format!("new_{name}_osd_pgs"), n.1.into());
            }
        }
        Value::Object(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_printed_as_stock_prints_them() {
        let counts = [(OsdId(0), (10, 12)), (OsdId(1), (14, 12))].into();
        let mut spread = Spread { counts, total: 24, moved: 3, compared: true };
        let wanted = "moved 3 / 24 (12.5%)\navg 12\nstddev 2 -> 0 (expected baseline 2.44949)\n\
                      min osd.0 with 10 -> 12 pgs (0.833333 -> 1 * mean)\nmax osd.1 with 14 -> 12 pgs (1.16667 -> 1 * mean)\n";
        assert_eq!(spread.text(), wanted);
        assert_eq!(spread.json()["new_max_osd_pgs"], 12);
        spread.compared = false;
        assert!(spread.text().starts_with("avg 12\nstddev 2 (expected") && spread.json().get("moved_pgs").is_none());
    }
}
