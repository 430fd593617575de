//! Per-second rates from counters that only grow.
//!
//! Owns: `Rates`, a few samples of every pool's counters.
//! Why: OSDs report every few seconds and not at once; the slope over a window longer than the period is steady.

use crate::pgmap::PgMap;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::pg::{IoRates, ObjectStatSum};
use types::{Mono, PoolId};

/// How far back a rate looks.
const WINDOW: Duration = Duration::from_secs(10);

type Sample = (Mono, BTreeMap<PoolId, ObjectStatSum>);

/// A few samples of every pool's counters.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    samples: VecDeque<Sample>,
}

impl Rates {
    /// Takes a sample and forgets those beyond the window, one excepted.
    pub fn sample(&mut self, now: Mono, pgs: &PgMap, pools: impl Iterator<Item = PoolId>) {
        let sums = pools.map(|pool| (pool, pgs.pool(pool).stats.sum)).collect();
        self.samples.push_back((now, sums));
        while self.samples.get(1).is_some_and(|(at, _)| now - *at >= WINDOW) {
            self.samples.pop_front();
        }
    }

    /// A pool's rates.
    pub fn pool(&self, pool: PoolId) -> IoRates {
        let (Some((from, before)), Some((to, after))) = (self.samples.front(), self.samples.back()) else {
            return IoRates::default();
        };
        let (Some(before), Some(after)) = (before.get(&pool), after.get(&pool)) else { return IoRates::default() };
        per_second(before, after, *to - *from)
    }

    /// All pools' rates together.
    pub fn total(&self) -> IoRates {
        let pools = self.samples.back().map(|(_, sums)| sums.keys()).into_iter().flatten();
        pools.map(|pool| self.pool(*pool)).fold(IoRates::default(), |sum, r| IoRates {
            read_bytes: sum.read_bytes + r.read_bytes,
            write_bytes: sum.write_bytes + r.write_bytes,
            read_ops: sum.read_ops + r.read_ops,
            write_ops: sum.write_ops + r.write_ops,
            recovering_objects: sum.recovering_objects + r.recovering_objects,
            recovering_bytes: sum.recovering_bytes + r.recovering_bytes,
            recovering_keys: sum.recovering_keys + r.recovering_keys,
        })
    }

    /// The time the rates are taken over.
    pub fn span(&self) -> Duration {
        match (self.samples.front(), self.samples.back()) {
            (Some((from, _)), Some((to, _))) => *to - *from,
            _ => Duration::ZERO,
        }
    }

    /// What was added over that time in a pool, for `pg dump delta`.
    pub fn delta(&self) -> ObjectStatSum {
        let mut out = ObjectStatSum::default();
        if let (Some((_, before)), Some((_, after))) = (self.samples.front(), self.samples.back()) {
            after.values().for_each(|s| out.add(s));
            before.values().for_each(|s| out.sub(s));
        }
        out
    }
}

/// A counter that went back, for an OSD lost it, has no rate.
fn per_second(before: &ObjectStatSum, after: &ObjectStatSum, span: Duration) -> IoRates {
    let span = span.as_secs_f64();
    if span <= 0.0 {
        return IoRates::default();
    }
    let rate = |a: i64, b: i64, scale: i64| ((b - a).max(0).saturating_mul(scale) as f64 / span) as u64;
    IoRates {
        read_bytes: rate(before.num_rd_kb, after.num_rd_kb, 1024),
        write_bytes: rate(before.num_wr_kb, after.num_wr_kb, 1024),
        read_ops: rate(before.num_rd, after.num_rd, 1),
        write_ops: rate(before.num_wr, after.num_wr, 1),
        recovering_objects: rate(before.num_objects_recovered, after.num_objects_recovered, 1),
        recovering_bytes: rate(before.num_bytes_recovered, after.num_bytes_recovered, 1),
        recovering_keys: rate(before.num_keys_recovered, after.num_keys_recovered, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_go_back_have_no_rate() {
        let before = ObjectStatSum { num_wr: 100, num_rd: 10, ..Default::default() };
        let after = ObjectStatSum { num_wr: 50, num_rd: 30, ..Default::default() };
        let rates = per_second(&before, &after, Duration::from_secs(10));
        assert_eq!((rates.write_ops, rates.read_ops), (0, 2));
        assert_eq!(per_second(&before, &after, Duration::ZERO), IoRates::default());
    }
}
