//! Steps by which pools come to the number of PGs they are to have.
//!
//! Room: daemon core.   Hears: the map and what OSDs report.   Says: commands for the monitors, as upstream's manager does.
//! Holds: PGs are split only while every PG of the pool is active or peered; data moves (`pgp_num`) only while nothing is
//! degraded or inactive and little is misplaced, and by a step that misplaces little.
//! Why here: monitors do not know how PGs are.
//! Upstream: DaemonServer::adjust_pgs.

use crate::core::{Mgr, MgrSettings};
use crate::pgmap::PgMap;
use serde_json::json;
use types::map::{OsdMap, PgPool};
use types::PoolId;
use types::pg::PgState;

impl Mgr {
    /// What is to be done now, as commands for the monitors.
    pub fn adjust_pgs(&self) -> Vec<String> {
        let map = self.osdmap();
        let command = |(pool, var, n): (PoolId, &str, u32)| {
            let name = map.pool_name.get(&pool)?;
            Some(json!({"prefix": "osd pool set", "pool": name, "var": var, "val": n.to_string()}).to_string())
        };
        steps(self.settings(), map, self.pgs()).into_iter().filter_map(command).collect()
    }
}

fn steps(settings: &MgrSettings, map: &OsdMap, pgs: &PgMap) -> Vec<(PoolId, &'static str, u32)> {
    let new = |state: PgState| state == PgState::UNKNOWN || state.has(PgState::CREATING);
    let being_made = pgs.pgs.values().filter(|s| new(s.state)).count();
    let mut left = (settings.max_creating_pgs as usize).max(1).saturating_sub(being_made) as u32;
    let mut out = Vec::new();
    for (id, pool) in &map.pools {
        if left == 0 {
            break;
        }
        if pool.pg_num_target > pool.pg_num && all_active(pgs, *id) {
            let add = left.min(pool.pg_num_target - pool.pg_num);
            left -= add;
            out.push((*id, "pg_num_actual", pool.pg_num + add));
        }
        if let Some(n) = next_pgp_num(settings, pgs, *id, pool) {
            out.push((*id, "pgp_num_actual", n));
        }
    }
    out
}

fn all_active(pgs: &PgMap, pool: PoolId) -> bool {
    let serves = |state: PgState| state.has(PgState::ACTIVE) || state.has(PgState::PEERED);
    pgs.pgs_of_pool(pool).all(|(_, s)| serves(s.state))
}

/// The next `pgp_num` of a pool, if it is to have another one now.
fn next_pgp_num(settings: &MgrSettings, pgs: &PgMap, id: PoolId, pool: &PgPool) -> Option<u32> {
    let target = pool.pgp_num_target.min(pool.pg_num);
    if target == pool.pgp_num {
        return None;
    }
    let sum = pgs.object_sum();
    let ratio = |part: i64| if sum.num_object_copies > 0 { part as f64 / sum.num_object_copies as f64 } else { 0.0 };
    let troubled = sum.num_objects_degraded > 0 || pgs.pgs.values().any(|s| !s.state.has(PgState::ACTIVE));
    let (misplaced, most) = (ratio(sum.num_objects_misplaced), settings.max_misplaced_ratio);
    let objects = pgs.pool(id).stats.sum.num_objects;
    if settings.aggressive_pg_changes {
        return Some(target);
    }
    if troubled || misplaced > most {
        return None;
    }
    if target > pool.pgp_num && objects <= i64::from(pool.pgp_num_target) {
        return Some(target);
    }
    // Half of what may be misplaced at most: objects may be spread unevenly.
    let room = (most - misplaced).min(most / 2.0);
    let step = ((f64::from(pool.pg_num) * room) as u32).max(1);
    Some(target.clamp(pool.pgp_num.saturating_sub(step).max(1), pool.pgp_num.saturating_add(step)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PgId;
    use types::pg::PgStat;

    const POOL: PoolId = PoolId(1);

    /// A pool of 8 PGs with so many objects, all well.
    fn cluster(change: impl Fn(&mut PgPool), objects: i64) -> (OsdMap, PgMap) {
        let mut map = OsdMap::default();
        let mut pool = PgPool::replicated(3, 8, 0);
        change(&mut pool);
        map.pools.insert(POOL, pool);
        map.pool_name.insert(POOL, "p".into());
        let mut pgs = PgMap::default();
        for seed in 0..map.pools[&POOL].pg_num {
            let mut stat = PgStat { state: PgState::ACTIVE | PgState::CLEAN, ..PgStat::default() };
            (stat.stats.sum.num_objects, stat.stats.sum.num_object_copies) = (objects / 8, objects / 8 * 3);
            pgs.pgs.insert(PgId { pool: POOL, seed }, stat);
        }
        (map, pgs)
    }

    fn to_32(p: &mut PgPool) {
        (p.pg_num_target, p.pgp_num_target) = (32, 32);
    }

    #[test]
    fn pgs_are_split_at_once_while_all_are_active_and_then_data_moves_in_small_steps() {
        let settings = MgrSettings::default();
        let (map, mut pgs) = cluster(to_32, 8000);
        assert_eq!(steps(&settings, &map, &pgs), [(POOL, "pg_num_actual", 32)]);
        pgs.pgs.get_mut(&PgId { pool: POOL, seed: 3 }).unwrap().state = PgState::PEERING;
        assert_eq!(steps(&settings, &map, &pgs), []);
        let split = |p: &mut PgPool| {
            to_32(p);
            p.pg_num = 32;
        };
        let (map, mut pgs) = cluster(split, 8000);
        assert_eq!(steps(&settings, &map, &pgs), [(POOL, "pgp_num_actual", 9)]);
        pgs.pgs.get_mut(&PgId { pool: POOL, seed: 3 }).unwrap().stats.sum.num_objects_misplaced = 9000;
        assert_eq!(steps(&settings, &map, &pgs), []);
        // Where there is nothing to move it is done at once.
        let (map, pgs) = cluster(split, 8);
        assert_eq!(steps(&settings, &map, &pgs), [(POOL, "pgp_num_actual", 32)]);
    }

    #[test]
    fn no_more_pgs_are_made_at_once_than_may_be() {
        let (map, pgs) = cluster(to_32, 8000);
        let few = MgrSettings { max_creating_pgs: 5, ..MgrSettings::default() };
        assert_eq!(steps(&few, &map, &pgs), [(POOL, "pg_num_actual", 13)]);
    }

    #[test]
    fn data_does_not_move_while_something_is_degraded_unless_the_operator_insists() {
        let split = |p: &mut PgPool| {
            to_32(p);
            p.pg_num = 32;
        };
        let (map, mut pgs) = cluster(split, 8000);
        pgs.pgs.get_mut(&PgId { pool: POOL, seed: 3 }).unwrap().stats.sum.num_objects_degraded = 1;
        assert_eq!(steps(&MgrSettings::default(), &map, &pgs), []);
        let hasty = MgrSettings { aggressive_pg_changes: true, ..MgrSettings::default() };
        assert_eq!(steps(&hasty, &map, &pgs), [(POOL, "pgp_num_actual", 32)]);
    }

    #[test]
    fn a_pool_that_is_as_it_should_be_is_left_alone() {
        let (map, pgs) = cluster(|_| {}, 8000);
        assert_eq!(steps(&MgrSettings::default(), &map, &pgs), []);
    }
}
