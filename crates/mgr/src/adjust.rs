//! Steps by which pools come to the number of PGs they are to have.
//!
//! Room: daemon core.   Hears: the map and what OSDs report.   Says: commands for the monitors, as upstream's manager does.
//! Holds: PGs are split only while every PG of the pool is active or peered; data moves (`pgp_num`) only while nothing is
//! degraded or inactive and little is misplaced, and by a step that misplaces little. PGs are merged one by one, the last one first, when
//! it has no place of its own any more, and it and the one it becomes part of are clean on the same OSDs.
//! Why here: monitors do not know how PGs are.
//! Upstream: DaemonServer::adjust_pgs.

use crate::core::{Mgr, MgrSettings};
use crate::pgmap::PgMap;
use serde_json::json;
use types::map::{OsdMap, PgPool};
use types::{PgId, PoolId};
use types::pg::PgState;

/// A step, as a command for the monitors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adjustment {
    pub command: String,
    /// It makes PGs or moves data: what OSDs said before does not tell of what follows from it. A merge does neither, and OSDs see for
    /// themselves whether the PGs are ready.
    pub moves: bool,
}

impl Mgr {
    /// What is to be done now.
    pub fn adjust_pgs(&self) -> Vec<Adjustment> {
        let map = self.osdmap();
        let command = |(pool, var, n): (PoolId, &str, u32)| {
            let name = map.pool_name.get(&pool)?;
            let moves = var != "pg_num_actual" || map.pools.get(&pool).is_none_or(|p| n > p.pg_num);
            let command = json!({"prefix": "osd pool set", "pool": name, "var": var, "val": n.to_string()}).to_string();
            Some(Adjustment { command, moves })
        };
        let steps = steps(self.settings(), map, self.pgs()).into_iter().filter_map(command);
        steps.chain(upmaps_in_the_way(map)).collect()
    }
}

/// An operator's exceptions for PGs that are to be merged: with them the two would never be on the same OSDs.
fn upmaps_in_the_way(map: &OsdMap) -> Vec<Adjustment> {
    let mut out = Vec::new();
    for (id, pool) in map.pools.iter().filter(|(_, p)| p.pg_num_target < p.pg_num && p.pg_num_pending == p.pg_num) {
        let next = PgPool { pg_num_pending: pool.pg_num.saturating_sub(1), ..pool.clone() };
        for seed in next.merging().into_iter().flat_map(|(source, target)| [source, target]) {
            let pg = PgId { pool: *id, seed };
            let found = [("osd rm-pg-upmap", map.pg_upmap.contains_key(&pg)), ("osd rm-pg-upmap-items", map.pg_upmap_items.contains_key(&pg))];
            for (prefix, _) in found.into_iter().filter(|(_, is)| *is) {
                out.push(Adjustment { command: json!({"prefix": prefix, "pgid": pg.to_string()}).to_string(), moves: true });
            }
        }
    }
    out
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
        if pool.pg_num_target < pool.pg_num && may_merge(pgs, *id, pool) {
            out.push((*id, "pg_num_actual", pool.pg_num - 1));
            continue;
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

/// True if the last PG of a pool may end in another one now.
fn may_merge(pgs: &PgMap, id: PoolId, pool: &PgPool) -> bool {
    let ended = PgPool { pg_num_pending: pool.pg_num.saturating_sub(1), ..pool.clone() };
    let Some((source, target)) = ended.merging().filter(|_| pool.pg_num == pool.pg_num_pending && pool.pg_num > pool.pgp_num) else {
        return false;
    };
    let stat = |seed| pgs.pgs.get(&PgId { pool: id, seed }).filter(|s| s.state.has(PgState::ACTIVE | PgState::CLEAN));
    matches!((stat(source), stat(target)), (Some(s), Some(t)) if s.acting == t.acting)
}

/// The next `pgp_num` of a pool, if it is to have another one now.
fn next_pgp_num(settings: &MgrSettings, pgs: &PgMap, id: PoolId, pool: &PgPool) -> Option<u32> {
    let target = pool.pgp_num_target.min(pool.pg_num_pending).min(pool.pg_num_target);
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
    let next = target.clamp(pool.pgp_num.saturating_sub(step).max(1), pool.pgp_num.saturating_add(step));
    // Not far ahead of merges, where both numbers go together: OSDs would get many PGs that are to be merged.
    let together = pool.pgp_num_target == pool.pg_num_target && pool.pgp_num_target < pool.pg_num;
    let ahead = 8.max((f64::from(pool.pg_num) * most) as u32);
    let next = if together { next.max(pool.pg_num.saturating_sub(ahead)) } else { next };
    (next != pool.pgp_num).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
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
            (p.pg_num, p.pg_num_pending) = (32, 32);
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
            (p.pg_num, p.pg_num_pending) = (32, 32);
        };
        let (map, mut pgs) = cluster(split, 8000);
        pgs.pgs.get_mut(&PgId { pool: POOL, seed: 3 }).unwrap().stats.sum.num_objects_degraded = 1;
        assert_eq!(steps(&MgrSettings::default(), &map, &pgs), []);
        let hasty = MgrSettings { aggressive_pg_changes: true, ..MgrSettings::default() };
        assert_eq!(steps(&hasty, &map, &pgs), [(POOL, "pgp_num_actual", 32)]);
    }

    fn to_4(p: &mut PgPool) {
        (p.pg_num_target, p.pgp_num_target) = (4, 4);
    }

    #[test]
    fn data_moves_before_pgs_are_merged_and_these_one_by_one_where_they_are_clean_together() {
        let settings = MgrSettings::default();
        let (map, pgs) = cluster(to_4, 8000);
        assert_eq!(steps(&settings, &map, &pgs), [(POOL, "pgp_num_actual", 7)]);
        let moved = |p: &mut PgPool| {
            to_4(p);
            p.pgp_num = 4;
        };
        let (map, mut pgs) = cluster(moved, 8000);
        assert_eq!(steps(&settings, &map, &pgs), [(POOL, "pg_num_actual", 7)]);
        let pg = |seed| PgId { pool: POOL, seed };
        pgs.pgs.get_mut(&pg(3)).unwrap().acting = vec![types::OsdId(1)];
        assert_eq!(steps(&settings, &map, &pgs), [], "elsewhere");
        pgs.pgs.get_mut(&pg(7)).unwrap().acting = vec![types::OsdId(1)];
        pgs.pgs.get_mut(&pg(7)).unwrap().state = PgState::ACTIVE;
        assert_eq!(steps(&settings, &map, &pgs), [], "not clean");
        let (map, pgs) = cluster(
            |p| {
                moved(p);
                p.pg_num_pending = 7;
            },
            8000,
        );
        assert_eq!(steps(&settings, &map, &pgs), [], "one is under way");
    }

    #[test]
    fn exceptions_for_what_is_to_be_merged_are_taken_back() {
        let (mut map, _) = cluster(to_4, 8000);
        for seed in [2, 3, 7] {
            map.pg_upmap_items.insert(PgId { pool: POOL, seed }, vec![(types::OsdId(1), types::OsdId(2))]);
        }
        let commands: Vec<String> = upmaps_in_the_way(&map).into_iter().map(|a| a.command).collect();
        let expected = |pg: &str| json!({"prefix": "osd rm-pg-upmap-items", "pgid": pg}).to_string();
        assert_eq!(commands, [expected("1.7"), expected("1.3")]);
        let (mut map, _) = cluster(|_| {}, 8000);
        map.pg_upmap.insert(PgId { pool: POOL, seed: 7 }, vec![types::OsdId(1)]);
        assert_eq!(upmaps_in_the_way(&map), []);
    }

    #[test]
    fn places_are_given_up_only_a_little_ahead_of_merges() {
        let hundred = |p: &mut PgPool| {
            (p.pg_num, p.pg_num_pending, p.pgp_num) = (100, 100, 92);
            (p.pg_num_target, p.pgp_num_target) = (10, 10);
        };
        let (map, mut pgs) = cluster(hundred, 8000);
        pgs.pgs.get_mut(&PgId { pool: POOL, seed: 99 }).unwrap().state = PgState::ACTIVE;
        assert_eq!(steps(&MgrSettings::default(), &map, &pgs), []);
        let wide = MgrSettings { max_misplaced_ratio: 1.0, ..MgrSettings::default() };
        assert_eq!(steps(&wide, &map, &pgs), [(POOL, "pgp_num_actual", 42)]);
    }

    #[test]
    fn a_pool_that_is_as_it_should_be_is_left_alone() {
        let (map, pgs) = cluster(|_| {}, 8000);
        assert_eq!(steps(&MgrSettings::default(), &map, &pgs), []);
    }
}
