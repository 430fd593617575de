//! What happens once a second.

use crate::health;
use crate::mon::Mon;
use crate::services::log::CLUSTER;
use crate::services::osdmap::OsdMapService;
use crate::session::SessionId;
use store::Kv;
use types::map::{OsdMap, PgPool};
use types::msg::LogPrio;
use types::msg::internal::{MgrBeacon, MgrDigest};
use types::{Now, OsdId, PoolId};

/// Looks after everything that time changes.
pub fn run<K: Kv>(mon: &mut Mon<K>, now: Now) {
    let Some(state) = mon.state.as_mut() else { return };
    state.auth.reserve_ids(&mut mon.txn);
    state.auth.rotate(now.wall, &mut mon.rng, &mut mon.txn);
    state.mgr.handle_tick(now, &mut mon.txn);
    let default = mon.env.seconds(state, "mon_osd_blocklist_default_expire", 3600);
    state.osdmap.expire_blocklist(now.mono, default, &mut mon.txn);
    mon.tick_osds(now);
    mon.tick_clocks(now);
    follow_usage(mon);
    crate::raise::tick(mon, now);
    health::tick(mon, now);
    mon.tick_keep(now);
}

impl<K: Kv> Mon<K> {
    pub(crate) fn handle_mgr_beacon(&mut self, now: Now, beacon: MgrBeacon) {
        let Some(state) = self.state.as_mut().filter(|s| s.monmap.map.fsid == beacon.fsid) else { return };
        let (was, was_available) = (state.mgr.map.active_gid, state.mgr.map.available);
        let at_leader = beacon.name == self.env.name;
        state.mgr.handle_beacon(now, &beacon, at_leader, &mut self.txn);
        let (is, available) = (state.mgr.map.active_gid, state.mgr.map.available);
        if was != is {
            self.log(now, CLUSTER, LogPrio::INFO, format!("Activating manager daemon {}", beacon.name));
        }
        if available && !was_available {
            self.log(now, CLUSTER, LogPrio::INFO, format!("Manager daemon {} is now available", beacon.name));
        }
    }

    pub(crate) fn handle_mgr_digest(&mut self, session: SessionId, digest: MgrDigest) {
        let Some(state) = self.state.as_mut() else { return };
        let from_active = self.sessions.get(&session).is_some_and(|s| s.peer.name.id == state.mgr.map.active_name);
        if from_active {
            state.mgr.digest = Some(digest);
            follow_usage(self);
            purge_snaps(self);
        }
    }
}

/// Snapshots that are purged in one step of the map (upstream: `mon_max_snap_prune_per_epoch`).
const SNAPS_PURGED: u64 = 100;

/// Lets the map say how full OSDs and pools are, by what the manager last reported.
fn follow_usage<K: Kv>(mon: &mut Mon<K>) {
    let Some(state) = mon.state.as_mut() else { return };
    let Some(digest) = state.mgr.digest.as_ref() else { return };
    let osdmap = &mut state.osdmap;
    let map = osdmap.map.clone();
    let ratios = map.full_ratios();
    let levels = [
        (OsdMap::STATE_FULL, ratios.full),
        (OsdMap::STATE_BACKFILLFULL, ratios.backfillfull),
        (OsdMap::STATE_NEARFULL, ratios.nearfull),
    ];
    let all = OsdMap::STATE_FULL | OsdMap::STATE_BACKFILLFULL | OsdMap::STATE_NEARFULL;
    for (osd, stat) in digest.osds.iter().filter(|(o, _)| map.is_up(**o)) {
        let used = stat.statfs.used_raw_ratio();
        let level = levels.iter().find(|(_, ratio)| *ratio > 0.0 && used >= f64::from(*ratio)).map_or(0, |(bit, _)| *bit);
        osdmap.change_state(*osd, level, all & !level);
    }
    for (id, pool) in &map.pools {
        let flags = full_flags(osdmap, pool, digest, *id);
        let ours = PgPool::FLAG_FULL | PgPool::FLAG_FULL_QUOTA | PgPool::FLAG_NEARFULL | PgPool::FLAG_BACKFILLFULL;
        let flags_now = osdmap.pending_pool(*id).map_or(pool.flags, |p| p.flags);
        if flags_now & ours != flags
            && let Some(pool) = osdmap.change_pool(*id)
        {
            pool.flags = pool.flags & !ours | flags;
        }
    }
}

/// Lets the map forget removed snapshots that are trimmed everywhere, some at a time: every map lists those of its step.
fn purge_snaps<K: Kv>(mon: &mut Mon<K>) {
    let Some(state) = mon.state.as_mut() else { return };
    let Some(digest) = state.mgr.digest.as_ref() else { return };
    let mut left = SNAPS_PURGED;
    for (id, purged) in &digest.purged_snaps {
        let Some(queue) = state.osdmap.map.removed_snaps_queue.get(id) else { continue };
        for (start, len) in purged.intersection(queue).0 {
            let now = len.min(left);
            left -= now;
            if now > 0 {
                state.osdmap.change().new_purged_snaps.entry(*id).or_default().insert(start, now);
            }
        }
    }
}

/// The flags that say a pool takes no (or soon no) more data: by its quota, or by an OSD of its rule as the next epoch will
/// have it, so that no epoch has full OSDs whose pools are not full (`OSDMonitor::encode_pending`).
fn full_flags(osdmap: &OsdMapService, pool: &PgPool, digest: &MgrDigest, id: PoolId) -> u64 {
    let mut flags = 0;
    let sum = digest.pools.get(&id).map(|p| &p.stat.stats.sum);
    let over = |used: Option<i64>, limit: u64| limit > 0 && used.is_some_and(|u| u.max(0) as u64 >= limit);
    if over(sum.map(|s| s.num_bytes), pool.quota_max_bytes) || over(sum.map(|s| s.num_objects), pool.quota_max_objects) {
        flags |= PgPool::FLAG_FULL | PgPool::FLAG_FULL_QUOTA;
    }
    let rule = pool.crush_rule.into();
    let crush = &osdmap.map.crush;
    let osds: Vec<OsdId> = crush.takes(rule).into_iter().flat_map(|take| crush.leaves(take)).map(OsdId).collect();
    let any = |bit: u32| osds.iter().any(|o| osdmap.map.is_up(*o) && osdmap.map.is_in(*o) && osdmap.pending_state(*o) & bit != 0);
    match () {
        () if any(OsdMap::STATE_FULL) => flags | PgPool::FLAG_FULL,
        () if any(OsdMap::STATE_BACKFILLFULL) => flags | PgPool::FLAG_BACKFILLFULL,
        () if any(OsdMap::STATE_NEARFULL) => flags | PgPool::FLAG_NEARFULL,
        () => flags,
    }
}
