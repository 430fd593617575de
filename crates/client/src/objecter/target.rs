//! Where a request goes, by the map.

use super::ops::OpRequest;
use std::collections::BTreeMap;
use types::map::{OsdMap, UpActing};
use types::{ObjectLocator, OsdId, PgId, ShardPgId};

/// CRUSH's answers for the map in force: asked once per PG, not once per request.
pub type Placed = BTreeMap<PgId, UpActing>;

/// A request's PG and who serves it. A difference in any field means that the request must be sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The object's full placement hash.
    pub hash: u32,
    pub pg: ShardPgId,
    pub primary: Option<OsdId>,
    acting: Vec<OsdId>,
    up: Vec<OsdId>,
    size: u8,
    min_size: u8,
    pg_num: u32,
}

/// The target of `req`; `None` if its pool does not exist.
pub fn target_of(map: &OsdMap, req: &OpRequest, cache: &mut Placed) -> Option<Target> {
    let pool = map.pool_by_id(req.pool)?;
    let raw = match req.pg {
        Some(seed) => PgId { pool: req.pool, seed },
        None => {
            let locator =
                ObjectLocator { key: req.key.clone(), nspace: req.nspace.clone(), ..ObjectLocator::pool(req.pool) };
            map.object_to_pg(&locator, &req.oid)?
        }
    };
    let pg = map.raw_pg_to_pg(raw)?;
    let placed = cache.entry(pg).or_insert_with(|| map.pg_to_up_acting(pg));
    let primary = (placed.acting_primary.0 >= 0).then_some(placed.acting_primary);
    let shard = match pool.is_erasure() {
        true => placed.acting.iter().position(|osd| Some(*osd) == primary).map_or(ShardPgId::NO_SHARD, |i| i as i8),
        false => ShardPgId::NO_SHARD,
    };
    Some(Target {
        hash: raw.seed,
        pg: ShardPgId { pg, shard },
        primary,
        acting: placed.acting.clone(),
        up: placed.up.clone(),
        size: pool.size,
        min_size: pool.min_size,
        pg_num: pool.pg_num,
    })
}

/// True while the map forbids what the request does.
pub fn is_paused(map: &OsdMap, req: &OpRequest) -> bool {
    use types::map::PgPool;
    use types::msg::osd::osd_flag;
    let writes = req.flags & osd_flag::WRITE != 0;
    let insists = req.flags & (osd_flag::FULL_TRY | osd_flag::FULL_FORCE) != 0;
    let pool_full = map.pool_by_id(req.pool).is_some_and(|p| p.has_flag(PgPool::FLAG_FULL));
    let full = (pool_full || map.has_flag(OsdMap::FLAG_FULL)) && !insists;
    let reads = req.flags & osd_flag::READ != 0;
    (reads && map.has_flag(OsdMap::FLAG_PAUSERD)) || (writes && (full || map.has_flag(OsdMap::FLAG_PAUSEWR)))
}
