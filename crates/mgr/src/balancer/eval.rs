//! How evenly data is spread, as one number: 0 is even, and it stays below 1.
//!
//! For every root that pools take from, OSDs that hold more than their share of PGs, objects or bytes count, each by how far
//! (the error function of the excess) and by its share. The score is the mean of all three over all roots.
//! Upstream: calc_eval, Eval in src/pybind/mgr/balancer/module.py.

use crate::pgmap::PgMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use types::map::OsdMap;
use types::pg::PgStat;
use types::{OsdId, PgId, PoolId};

const METRICS: [&str; 3] = ["pgs", "objects", "bytes"];

/// One figure of each metric.
type Figures = [f64; 3];
type ByOsd = BTreeMap<OsdId, Figures>;

/// One root.
#[derive(Debug, Clone, Default, PartialEq)]
struct Root {
    /// The share that every OSD is to have.
    target: BTreeMap<OsdId, f64>,
    count: ByOsd,
    total: Figures,
}

/// The spread of data in a map.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Eval {
    roots: BTreeMap<String, Root>,
    pools: BTreeMap<String, ByOsd>,
}

impl Eval {
    /// Of the pools in `only`, or of all.
    pub fn new(map: &OsdMap, pgs: &PgMap, only: &BTreeSet<PoolId>) -> Self {
        let mut out = Eval::default();
        let pools: Vec<_> = map.pools.iter().filter(|(id, _)| only.is_empty() || only.contains(id)).collect();
        for take in pools.iter().flat_map(|(_, pool)| map.crush.takes(pool.crush_rule.into())) {
            let name = map.crush.name(take).unwrap_or_default().to_owned();
            out.roots.entry(name).or_insert_with(|| Root::new(map, take));
        }
        for (id, pool) in pools {
            let takes: Vec<String> = map.crush.takes(pool.crush_rule.into()).into_iter().filter_map(|t| map.crush.name(t)).map(str::to_owned).collect();
            let name = map.pool_name.get(id).cloned().unwrap_or_default();
            for (pg, stat) in pgs.pgs_of_pool(*id) {
                out.add(map, &name, &takes, *pg, stat);
            }
        }
        out
    }

    fn add(&mut self, map: &OsdMap, pool: &str, takes: &[String], pg: PgId, stat: &PgStat) {
        let figures = [1.0, stat.stats.sum.num_objects as f64, stat.stats.sum.num_bytes as f64];
        for osd in map.pg_to_up_acting(pg).up.into_iter().filter(|osd| *osd != OsdId::HOLE) {
            add(self.pools.entry(pool.to_owned()).or_default().entry(osd).or_default(), figures);
            let root = takes.iter().find(|name| self.roots.get(*name).is_some_and(|r| r.target.contains_key(&osd)));
            if let Some(root) = root.and_then(|name| self.roots.get_mut(name)) {
                add(root.count.entry(osd).or_default(), figures);
                add(&mut root.total, figures);
            }
        }
    }

    /// The score over all roots.
    pub fn score(&self) -> f64 {
        let sum: f64 = self.roots.values().flat_map(|root| (0..3).map(|m| root.stats(m).score)).sum();
        sum / (3 * self.roots.len().max(1)) as f64
    }

    /// What `balancer eval` prints; everything that went into it if `verbose`.
    pub fn show(&self, what: &str, verbose: bool) -> String {
        let score = format!("score {:.6} (lower is better)\n", self.score());
        if !verbose {
            return format!("{what} {score}");
        }
        let of_roots = |f: &dyn Fn(&Root) -> String| dict(self.roots.iter().map(|(name, root)| (quoted(name), f(root))));
        let of_pools = |f: &dyn Fn(&ByOsd) -> String| dict(self.pools.iter().map(|(name, by_osd)| (quoted(name), f(by_osd))));
        let pool_total = |by_osd: &ByOsd| by_osd.values().fold(Figures::default(), |mut sum, f| {
            add(&mut sum, *f);
            sum
        });
        let scores = |root: &Root| dict(METRICS.iter().enumerate().map(|(m, name)| (quoted(name), float(root.stats(m).score))));
        [
            format!("{what}\n"),
            format!("target_by_root {}\n", of_roots(&|root| by_osd(root.target.iter().map(|(osd, share)| (*osd, *share))))),
            format!("actual_by_pool {}\n", of_pools(&|p| metrics(p, &pool_total(p)))),
            format!("actual_by_root {}\n", of_roots(&|root| metrics(&root.count, &root.total))),
            format!("count_by_pool {}\n", of_pools(&|p| metrics(p, &[1.0; 3]))),
            format!("count_by_root {}\n", of_roots(&|root| metrics(&root.count, &[1.0; 3]))),
            format!("total_by_pool {}\n", of_pools(&|p| totals(&pool_total(p)))),
            format!("total_by_root {}\n", of_roots(&|root| totals(&root.total))),
            format!("stats_by_root {}\n", of_roots(&|root| dict(METRICS.iter().enumerate().map(|(m, name)| (quoted(name), root.stats(m).show()))))),
            "score_by_pool {}\n".to_owned(),
            format!("score_by_root {}\n", of_roots(&scores)),
            score,
        ]
        .concat()
    }
}

fn add(sum: &mut Figures, more: Figures) {
    sum.iter_mut().zip(more).for_each(|(a, b)| *a += b);
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Stats {
    max: f64,
    min: f64,
    avg: f64,
    stddev: f64,
    sum_weight: f64,
    score: f64,
}

impl Stats {
    fn show(&self) -> String {
        let fields = [("max", self.max), ("min", self.min), ("avg", self.avg), ("stddev", self.stddev), ("sum_weight", self.sum_weight), ("score", self.score)];
        dict(fields.into_iter().map(|(name, v)| (quoted(name), float(v))))
    }
}

impl Root {
    fn new(map: &OsdMap, take: i32) -> Self {
        let weight = |osd: &i32| f64::from(map.crush.item_weight(*osd).unwrap_or(0)) * f64::from(map.weight(OsdId(*osd)));
        let weights: BTreeMap<OsdId, f64> = map.crush.leaves(take).iter().map(|osd| (OsdId(*osd), weight(osd))).filter(|(_, w)| *w > 0.0).collect();
        let sum: f64 = weights.values().sum();
        let count = weights.keys().map(|osd| (*osd, Figures::default())).collect();
        Root { target: weights.into_iter().map(|(osd, w)| (osd, w / sum)).collect(), count, total: Figures::default() }
    }

    fn stats(&self, metric: usize) -> Stats {
        if self.total[metric] == 0.0 {
            return Stats::default();
        }
        let num = self.target.len().max(1) as f64;
        let mut out = Stats { avg: self.total[metric] / num, min: f64::INFINITY, ..Stats::default() };
        let mut squares = 0.0;
        for (osd, figures) in &self.count {
            let (count, share) = (figures[metric], self.target.get(osd).copied().unwrap_or(0.0));
            let adjusted = if share > 0.0 { count / share / num } else { 0.0 };
            if adjusted > out.avg {
                out.score += share * erf((adjusted - out.avg) / out.avg / 2f64.sqrt());
                out.sum_weight += share;
            }
            squares += (out.avg - adjusted).powi(2);
            (out.max, out.min) = (out.max.max(count), out.min.min(count));
        }
        out.stddev = (squares / (num - 1.0).max(1.0)).sqrt();
        out.score /= out.sum_weight.max(1.0);
        out
    }
}

/// The error function, to 1.2e-7 (Numerical Recipes' Chebyshev fit of its complement).
fn erf(x: f64) -> f64 {
    const C: [f64; 10] = [
        -1.265_512_23, 1.000_023_68, 0.374_091_96, 0.096_784_18, -0.186_288_06, 0.278_868_07, -1.135_203_98, 1.488_515_87, -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x.abs());
    let poly = C.iter().rev().fold(0.0, |sum, c| sum * t + c);
    let complement = t * (poly - x * x).exp();
    if x >= 0.0 { 1.0 - complement } else { complement - 1.0 }
}

/// As a script language that stock's module is written in prints such things.
fn dict(entries: impl Iterator<Item = (String, String)>) -> String {
    let entries: Vec<String> = entries.map(|(k, v)| format!("{k}: {v}")).collect();
    format!("{{{}}}", entries.join(", "))
}

fn quoted(text: impl Display) -> String {
    format!("'{text}'")
}

fn float(v: f64) -> String {
    format!("{v:?}")
}

fn by_osd(values: impl Iterator<Item = (OsdId, f64)>) -> String {
    dict(values.map(|(osd, v)| (osd.to_string(), float(v))))
}

/// Each metric's figures by OSD, as parts of `of`.
fn metrics(by: &ByOsd, of: &Figures) -> String {
    let metric = |m: usize| by_osd(by.iter().map(|(osd, figures)| (*osd, figures[m] / of[m].max(1.0))));
    dict(METRICS.iter().enumerate().map(|(m, name)| (quoted(name), metric(m))))
}

fn totals(total: &Figures) -> String {
    dict(METRICS.iter().zip(total).map(|(name, v)| (quoted(name), format!("{v:.0}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_is_right() {
        for (x, wanted) in [(0.0, 0.0), (0.5, 0.520_499_878), (1.0, 0.842_700_793), (2.0, 0.995_322_265), (-1.0, -0.842_700_793)] {
            assert!((erf(x) - wanted).abs() < 2e-7, "{x}: {}", erf(x));
        }
    }

    #[test]
    fn an_even_root_scores_nothing_and_an_uneven_one_by_its_excess() {
        let root = |counts: [f64; 2]| {
            let target = BTreeMap::from([(OsdId(0), 0.5), (OsdId(1), 0.5)]);
            let count: ByOsd = (0..2).map(|osd| (OsdId(osd), [counts[osd as usize], 0.0, 0.0])).collect();
            Root { target, count, total: [counts[0] + counts[1], 0.0, 0.0] }
        };
        assert_eq!(root([8.0, 8.0]).stats(0).score, 0.0);
        let uneven = root([12.0, 4.0]).stats(0);
        assert!((uneven.score - 0.5 * erf(0.5 / 2f64.sqrt())).abs() < 1e-12 && uneven.max == 12.0 && uneven.min == 4.0);
        let eval = Eval { roots: [("default".to_owned(), root([12.0, 4.0]))].into(), pools: BTreeMap::new() };
        assert_eq!(eval.show("current cluster", false), "current cluster score 0.063821 (lower is better)\n");
        assert!(eval.show("current cluster", true).contains("target_by_root {'default': {0: 0.5, 1: 0.5}}\n"));
    }
}
