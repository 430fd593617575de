//! The cluster as the balancer sees it: what every PG weighs, what every OSD can hold, and what rules allow.
//!
//! Owns: `Model`, a pure function of the map and of what OSDs reported; moves of PGs are tried out on it.
//! Holds: a PG's place in the model is what the map gives with `changes()` applied to it.

use crate::digest::raw_used_rate;
use crate::pgmap::{OsdReport, PgMap};
use crush::RuleFit;
use std::collections::{BTreeMap, BTreeSet};
use types::map::{OsdMap, PgPool};
use types::pg::{PgState, PgStat};
use types::{OsdId, PgId, PoolId};

/// What a PG needs on disk if it is empty: the balance of empty PGs is that of their number.
const EMPTY_PG_BYTES: f64 = 1.0;

/// One placement group.
#[derive(Debug, Clone)]
pub struct Pg {
    /// CRUSH's own choice.
    raw: Vec<OsdId>,
    /// The choice with upmaps.
    pub placed: Vec<OsdId>,
    /// Bytes of one copy on disk.
    pub bytes: f64,
    pub objects: u64,
    /// It is whole, and of a pool that is to be balanced.
    pub movable: bool,
}

/// One OSD.
#[derive(Debug, Clone, Default)]
pub struct Osd {
    /// Bytes it is to hold when the cluster is full; 0 if it is to hold none.
    pub capacity: f64,
    pub load: f64,
    pub pgs: BTreeSet<PgId>,
}

impl Osd {
    /// How full it is to be, as a part; infinite for one that is to hold nothing and holds something.
    pub fn fill(&self) -> f64 {
        if self.capacity > 0.0 { self.load / self.capacity } else if self.load > 0.0 { f64::INFINITY } else { 0.0 }
    }
}

/// One pool.
#[derive(Debug, Clone)]
pub struct Pool {
    size: usize,
    fit: RuleFit,
    /// OSDs of its rule that take data.
    pub osds: BTreeSet<OsdId>,
    /// PGs of it on every OSD.
    pub counts: BTreeMap<OsdId, f64>,
}

/// The cluster.
#[derive(Debug, Clone)]
pub struct Model<'a> {
    map: &'a OsdMap,
    pub pgs: BTreeMap<PgId, Pg>,
    pub osds: BTreeMap<OsdId, Osd>,
    pub pools: BTreeMap<PoolId, Pool>,
    changed: BTreeSet<PgId>,
}

/// A change of one PG's upmap; none given takes it away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub pg: PgId,
    pub items: Vec<(OsdId, OsdId)>,
}

impl<'a> Model<'a> {
    /// All PGs count, those of the pools in `only` may move; of all if it is empty.
    pub fn new(map: &'a OsdMap, stats: &PgMap, only: &BTreeSet<PoolId>) -> Self {
        let mut model = Model { map, pgs: BTreeMap::new(), osds: capacities(map, stats), pools: BTreeMap::new(), changed: BTreeSet::new() };
        for (id, pool) in &map.pools {
            let Some(fit) = map.crush.rule_fit(pool.crush_rule.into()) else { continue };
            let osds = fit.osds().into_iter().map(OsdId).filter(|osd| model.osds.get(osd).is_some_and(|o| o.capacity > 0.0)).collect();
            model.pools.insert(*id, Pool { size: pool.size.into(), fit, osds, counts: BTreeMap::new() });
            let settled = (only.is_empty() || only.contains(id)) && is_settled(pool);
            let on_disk = on_disk_per_byte(map, stats, *id, pool);
            for (pg, stat) in stats.pgs_of_pool(*id) {
                model.add_pg(pool, *pg, stat, settled, on_disk);
            }
        }
        model
    }

    fn add_pg(&mut self, pool: &PgPool, pg: PgId, stat: &PgStat, settled: bool, on_disk: f64) {
        let (raw, placed) = (self.map.pg_to_raw(pool, pg), self.map.pg_to_raw_upmap(pool, pg));
        let sum = &stat.stats.sum;
        let bytes = EMPTY_PG_BYTES + sum.num_bytes.saturating_add(sum.num_omap_bytes).max(0) as f64 * on_disk;
        let movable = settled && stat.state.has(PgState::ACTIVE | PgState::CLEAN) && !self.map.pg_upmap.contains_key(&pg);
        for osd in placed.iter().filter(|osd| **osd != OsdId::HOLE) {
            self.put(pg, *osd, bytes, 1.0);
        }
        self.pgs.insert(pg, Pg { raw, placed, bytes, objects: sum.num_objects.max(0) as u64, movable });
    }

    fn put(&mut self, pg: PgId, osd: OsdId, bytes: f64, sign: f64) {
        let of = self.osds.entry(osd).or_default();
        of.load += sign * bytes;
        if sign > 0.0 { of.pgs.insert(pg) } else { of.pgs.remove(&pg) };
        if let Some(pool) = self.pools.get_mut(&pg.pool) {
            *pool.counts.entry(osd).or_default() += sign;
        }
    }

    /// How full an OSD is to be; 0 for one that there is not.
    pub fn fill(&self, osd: OsdId) -> f64 {
        self.osds.get(&osd).map_or(0.0, Osd::fill)
    }

    /// True if the rule of its pool lets a PG's copy go from one OSD to another.
    pub fn may_move(&self, pg: PgId, from: OsdId, to: OsdId) -> bool {
        let (Some(of), Some(pool)) = (self.pgs.get(&pg), self.pools.get(&pg.pool)) else { return false };
        if !of.movable || !pool.osds.contains(&to) || !self.map.is_up(to) || of.placed.contains(&to) {
            return false;
        }
        let wanted = replaced(&of.placed, from, to);
        let mut got = of.raw.clone();
        self.map.substitute(&items(&of.raw, &wanted), &mut got);
        let ids: Vec<i32> = wanted.iter().map(|osd| osd.0).collect();
        got == wanted && pool.fit.allows(&ids, pool.size)
    }

    /// Moves it.
    pub fn move_copy(&mut self, pg: PgId, from: OsdId, to: OsdId) {
        let Some(of) = self.pgs.get_mut(&pg) else { return };
        of.placed = replaced(&of.placed, from, to);
        let bytes = of.bytes;
        self.put(pg, from, bytes, -1.0);
        self.put(pg, to, bytes, 1.0);
        self.changed.insert(pg);
    }

    /// What is to be said to the monitors: the upmap of every PG that was moved.
    pub fn changes(&self) -> Vec<Change> {
        let change = |pg: &PgId| {
            let of = self.pgs.get(pg)?;
            let items = items(&of.raw, &of.placed);
            let now = self.map.pg_upmap_items.get(pg).map_or(&[][..], Vec::as_slice);
            (items != now).then_some(Change { pg: *pg, items })
        };
        self.changed.iter().filter_map(change).collect()
    }
}

/// A pool whose number of PGs is where it is to be: upmaps of PGs that split or merge are in the way.
fn is_settled(pool: &PgPool) -> bool {
    pool.pg_num == pool.pg_num_target && pool.pgp_num == pool.pg_num && pool.pg_num_pending == pool.pg_num
}

/// The substitutions that lead from one set to another.
fn items(raw: &[OsdId], wanted: &[OsdId]) -> Vec<(OsdId, OsdId)> {
    raw.iter().zip(wanted).filter(|(from, to)| from != to).map(|(from, to)| (*from, *to)).collect()
}

fn replaced(set: &[OsdId], from: OsdId, to: OsdId) -> Vec<OsdId> {
    set.iter().map(|osd| if *osd == from { to } else { *osd }).collect()
}

/// Bytes that one copy, or chunk, of a byte takes on disk: what stores say they gave to the pool, of what PGs say they hold.
fn on_disk_per_byte(map: &OsdMap, stats: &PgMap, id: PoolId, pool: &PgPool) -> f64 {
    let there = |s: &PgStat| s.acting.iter().filter(|osd| **osd != OsdId::HOLE).count() as f64;
    let copies: f64 = stats.pgs_of_pool(id).map(|(_, s)| s.stats.sum.num_bytes.max(0) as f64 * there(s)).sum();
    let given: f64 = stats.osds.values().filter_map(|o| o.pools.get(&id)).map(|s| s.allocated.max(0) as f64).sum();
    match copies > 0.0 && given > 0.0 {
        // While copies move, stores hold some twice.
        true => (given / copies).clamp(0.05, 20.0),
        false => raw_used_rate(map, pool) / f64::from(pool.size.max(1)),
    }
}

/// What every OSD can hold: its disk, as far as it is weighted in. A CRUSH weight that is not the disk's size is what an operator wants.
fn capacities(map: &OsdMap, stats: &PgMap) -> BTreeMap<OsdId, Osd> {
    const TIB: f64 = (1u64 << 40) as f64;
    let (mut out, mut sizes, mut weighted) = (BTreeMap::new(), 0.0, 0.0);
    for osd in map.osds() {
        let weight = f64::from(map.crush.item_weight(osd.0).unwrap_or(0)) / f64::from(crush::ONE) * TIB;
        let size = stats.osds.get(&osd).map_or(0.0, |r| r.stat.statfs.total as f64);
        // Weights have four decimals of a TiB.
        let is_size = (weight - size).abs() <= (size * 0.05).max(TIB / 9_999.0) && weight > 0.0 && size > 0.0;
        let capacity = if is_size { size } else { weight } * f64::from(map.weight(osd)) / f64::from(OsdMap::WEIGHT_IN);
        (sizes, weighted) = if size > 0.0 && capacity > 0.0 { (sizes + size, weighted + capacity) } else { (sizes, weighted) };
        out.insert(osd, Osd { capacity, load: stats.osds.get(&osd).map_or(0.0, of_no_pool), pgs: BTreeSet::new() });
    }
    // In whatever unit weights are: all disks together are what they are.
    if sizes > 0.0 && weighted > 0.0 {
        out.values_mut().for_each(|o: &mut Osd| o.capacity *= sizes / weighted);
    }
    out
}

/// Bytes of a disk that are in use for no pool: what is set aside for the journal and for metadata, which no move of a PG takes along.
fn of_no_pool(report: &OsdReport) -> f64 {
    let of_pools: i64 = report.pools.values().map(|held| held.allocated.max(0).saturating_add(held.omap_allocated.max(0))).sum();
    report.stat.statfs.used_raw().saturating_sub(of_pools.max(0) as u64) as f64
}
