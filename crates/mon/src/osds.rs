//! The life of OSDs: booting, being missed, being marked down and out. What is believed when is in `failures`.
//!
//! Upstream: src/mon/OSDMonitor.cc (prepare_boot, check_failure, tick).

use crate::mon::Mon;
use crate::services::State;
use crate::services::log::CLUSTER;
use crate::session::SessionId;
use std::collections::BTreeMap;
use std::time::Duration;
use store::Kv;
use types::map::{OsdMap, PgPool};
use types::msg::LogPrio;
use types::msg::internal::{
    FailureKind, OsdAlive, OsdBeacon, OsdBoot, OsdCapacity, OsdFailure, OsdMarkMeDown, OsdMarkMeDownAck, PgReadyToMerge, PgTempRequest,
};
use types::{EntityKind, EntityName, Epoch, Mono, Now, OsdId, PgId};

/// What a change is called, in `config log` too, that keeps what an OSD has learned of its device.
const LEARNED: &str = "learned";

/// What is known of OSDs that the map does not say; lost with the lead, and learned again.
#[derive(Debug, Default)]
pub struct Watch {
    beacons: BTreeMap<OsdId, Mono>,
    pub(crate) down_since: BTreeMap<OsdId, Mono>,
    /// Target to reporter to (when, how long it was silent then).
    pub(crate) failures: BTreeMap<OsdId, BTreeMap<OsdId, (Mono, Duration)>>,
    /// The newest map each OSD has said to have.
    epochs: BTreeMap<OsdId, Epoch>,
    /// The newest epoch in which each PG is known to have been clean.
    last_epoch_clean: BTreeMap<PgId, Epoch>,
}

impl Watch {
    /// The oldest epoch that somebody may need: to learn who held a PG since it was last whole, or what happened since it was
    /// last here. As long as a PG or an OSD was not heard of, all of them; an OSD that is gone for good has to be removed.
    /// Upstream: LastEpochClean in OSDMonitor.cc.
    pub fn maps_needed_from(&self, map: &OsdMap) -> Epoch {
        let known = |epoch: Option<&Epoch>| epoch.copied().unwrap_or(Epoch(0));
        let of_osds = map.osds().map(|osd| known(self.epochs.get(&osd)));
        let of_pgs = map.pools.keys().flat_map(|pool| map.pgs(*pool)).map(|pg| known(self.last_epoch_clean.get(&pg)));
        of_osds.chain(of_pgs).min().unwrap_or(map.epoch)
    }

    /// What was true of a PG once stays so, whoever says it, and however late.
    fn note_beacon(&mut self, now: Mono, beacon: &OsdBeacon, map: &OsdMap) {
        self.beacons.insert(beacon.osd, now);
        self.epochs.insert(beacon.osd, beacon.epoch);
        for (pg, epoch) in &beacon.last_epoch_clean {
            let known = self.last_epoch_clean.entry(*pg).or_default();
            *known = (*known).max(*epoch);
        }
        self.last_epoch_clean.retain(|pg, _| map.pool_by_id(pg.pool).is_some_and(|pool| pg.seed < pool.pg_num));
    }
}

impl<K: Kv> Mon<K> {
    pub(crate) fn handle_osd_boot(&mut self, now: Now, session: SessionId, boot: OsdBoot) {
        let Some(state) = self.state.as_mut() else { return };
        let osd = boot.osd;
        if let Err(why) = may_boot(state, &boot) {
            tracing::warn!("osd.{osd} may not boot: {why}");
            return self.log(now, CLUSTER, LogPrio::WARN, format!("osd.{osd} may not boot: {why}"));
        }
        let map = &state.osdmap.map;
        if map.is_up(osd) && map.addrs(osd) == Some(&boot.public_addrs) && map.uuid(osd) == boot.uuid {
            // It has not heard of the epoch that answers its first request.
            if let Some(s) = self.sessions.get_mut(&session) {
                s.subs.entry("osdmap".into()).and_modify(|sub| sub.next = sub.next.min(u64::from(boot.boot_epoch.0).max(1)));
            }
            return crate::publish::serve(self, session, false);
        }
        if map.is_up(osd) {
            // The earlier boot must be seen to end: who waits for it learns so from an epoch of its own.
            state.osdmap.change_state(osd, 0, OsdMap::STATE_UP);
            self.publish_osdmap(now);
        }
        self.mark_booted(now, &boot);
        self.osds.forget(osd);
        self.osds.beacons.insert(osd, now.mono);
        self.log(now, CLUSTER, LogPrio::INFO, format!("osd.{osd} {} boot", boot.public_addrs));
    }

    fn mark_booted(&mut self, now: Now, boot: &OsdBoot) {
        let osd = boot.osd;
        let mut xinfo = self.laggy_history(now, boot);
        let Some(state) = self.state.as_mut() else { return };
        let auto_new = self.env.bool(state, "mon_osd_auto_mark_new_in", true);
        let auto_out = self.env.bool(state, "mon_osd_auto_mark_auto_out_in", true);
        let auto_any = self.env.bool(state, "mon_osd_auto_mark_in", false);
        let place = self.env.bool(state, "osd_crush_update_on_start", true);
        let map = state.osdmap.map.clone();
        if osd.0 >= map.max_osd {
            state.osdmap.change().new_max_osd = Some(osd.0 + 1);
        }
        let was = map.state(osd);
        let inc = state.osdmap.change();
        inc.new_up_client.insert(osd, boot.public_addrs.clone());
        inc.new_up_cluster.insert(osd, boot.cluster_addrs.clone());
        inc.new_hb_back_up.insert(osd, boot.hb_back_addrs.clone());
        inc.new_hb_front_up.insert(osd, boot.hb_front_addrs.clone());
        inc.new_uuid.insert(osd, boot.uuid);
        xinfo.features = types::features::SUPPORTED;
        let is_new = !map.exists(osd) || was & OsdMap::STATE_NEW != 0;
        let comes_in = auto_any || (auto_out && was & OsdMap::STATE_AUTOOUT != 0) || (auto_new && is_new);
        if comes_in && !map.has_flag(OsdMap::FLAG_NOIN) && was & OsdMap::STATE_NOIN == 0 {
            let weight = if xinfo.old_weight > 0 { xinfo.old_weight } else { OsdMap::WEIGHT_IN };
            xinfo.old_weight = 0;
            inc.new_weight.insert(osd, weight);
        }
        inc.new_xinfo.insert(osd, xinfo);
        if place {
            crate::placement::place_booting(&mut state.osdmap, osd, boot.size_bytes, &boot.device_class, &boot.crush_location);
        }
        state.osdmap.set_metadata(osd, Some(boot.metadata.clone()), &mut self.txn);
    }

    pub(crate) fn handle_osd_alive(&mut self, now: Now, alive: &OsdAlive) {
        let Some(state) = self.state.as_mut() else { return };
        let map = state.osdmap.map.clone();
        let want = Epoch(alive.want.0.max(alive.epoch.0).min(map.epoch.0));
        if map.is_up(alive.osd) && map.info(alive.osd).is_some_and(|i| i.up_thru < want) {
            state.osdmap.change().new_up_thru.insert(alive.osd, want);
            self.pace.waits(now.mono);
        }
    }

    pub(crate) fn handle_osd_beacon(&mut self, now: Now, beacon: &OsdBeacon) {
        let Some(state) = self.state.as_ref() else { return };
        self.osds.note_beacon(now.mono, beacon, &state.osdmap.map);
    }

    /// Keeps what an OSD's device can do as an option of that OSD, where no operator has said anything: stock OSDs set it by a command of theirs.
    pub(crate) fn handle_osd_capacity(&mut self, now: Now, m: &OsdCapacity) {
        let Some(state) = self.state.as_mut() else { return };
        let option = if m.rotational { "osd_mclock_max_capacity_iops_hdd" } else { "osd_mclock_max_capacity_iops_ssd" };
        let name = EntityName::new(EntityKind::OSD, m.osd.to_string());
        let key = format!("{name}/{option}");
        let resolved = state.config.resolve(&crate::publish::subject(&state.osdmap.map, &name));
        let an_operators = resolved.contains_key(option) && !state.config.was_set_by(&key, LEARNED);
        if !an_operators {
            let value = format!("{:.6}", m.iops_thousandths as f64 / 1000.0);
            state.config.change(now.wall, LEARNED, vec![(key, Some(value))], &mut self.txn);
        }
    }

    pub(crate) fn handle_mark_me_down(&mut self, now: Now, session: SessionId, tid: u64, request: &OsdMarkMeDown) {
        let Some(state) = &self.state else { return };
        let osd = request.osd;
        let map = &state.osdmap.map;
        if map.is_up(osd) && map.addrs(osd) == Some(&request.addrs) && self.may_go_down(osd) {
            self.mark_down(now, osd, format!("osd.{osd} marked itself down"));
            self.note_dead(osd);
            self.publish_osdmap(now);
        }
        if request.ack_wanted {
            let epoch = self.state.as_ref().map_or(Epoch(0), |s| s.osdmap.map.epoch);
            self.send(session, tid, OsdMarkMeDownAck { osd, epoch });
        }
    }

    pub(crate) fn handle_osd_failure(&mut self, now: Now, report: &OsdFailure) {
        let Some(state) = &self.state else { return };
        let map = state.osdmap.map.clone();
        let (target, reporter) = (report.target, report.reporter);
        let current = map.is_up(target) && map.addrs(target) == Some(&report.target_addrs) && map.is_up(reporter);
        if !current || target == reporter {
            return;
        }
        match report.kind {
            FailureKind::Alive => {
                if let Some(reports) = self.osds.failures.get_mut(&target) {
                    reports.remove(&reporter);
                }
            }
            FailureKind::Refused if self.may_go_down(target) => {
                self.mark_down(now, target, format!("osd.{target} failed (connection refused reported by osd.{reporter})"));
                self.note_dead(target);
            }
            FailureKind::Silent | FailureKind::Refused => {
                let silent = Duration::from_millis(report.failed_for_ms);
                self.osds.failures.entry(target).or_default().insert(reporter, (now.mono, silent));
                self.judge_failure(now, target);
            }
        }
    }

    pub(crate) fn handle_pg_temp(&mut self, now: Now, request: &PgTempRequest) {
        let Some(state) = self.state.as_mut() else { return };
        let map = state.osdmap.map.clone();
        for (pg, osds) in &request.pg_temp {
            let pool = state.osdmap.pending_pool(pg.pool).or(map.pools.get(&pg.pool));
            let known = pool.is_some_and(|pool| pg.seed < pool.pg_num);
            let same = map.pg_temp.get(pg).map_or(osds.is_empty(), |now| now == osds);
            let erasure = pool.is_some_and(PgPool::is_erasure);
            // Chunks have places: one that nobody has stays empty.
            let exist = osds.iter().all(|o| map.exists(*o) || (erasure && *o == OsdId::HOLE));
            let somebody = osds.is_empty() || osds.iter().any(|o| *o != OsdId::HOLE);
            if known && exist && somebody && (!same || request.forced) {
                state.osdmap.set_acting(*pg, osds.clone());
                if !osds.is_empty() {
                    // Whoever gives its place back serves until then.
                    self.pace.waits(now.mono);
                }
            }
        }
        // Whoever asks for an acting set is alive in this epoch.
        if map.info(request.osd).is_some_and(|i| i.up_thru < request.epoch && request.epoch <= map.epoch) && map.is_up(request.osd) {
            state.osdmap.change().new_up_thru.insert(request.osd, request.epoch);
        }
    }

    /// Two PGs are ready to become one; or they will not be soon, and go on as they are. What is said of a pool that has changed since
    /// is void: between two changes of a pool its PGs that wait to be merged stay as they were told to be.
    pub(crate) fn handle_ready_to_merge(&mut self, now: Now, m: &PgReadyToMerge) {
        let Some(state) = self.state.as_mut() else { return };
        let map = state.osdmap.map.clone();
        let Some(pool) = map.pools.get(&m.source.pool) else { return };
        let Some((source, target)) = pool.merging() else { return };
        let changes = state.osdmap.pending_pool(m.source.pool).is_some();
        if source != m.source.seed || pool.last_change != m.pool_changed || changes {
            return;
        }
        let target = PgId { seed: target, ..m.source };
        let [s, t] = [m.source, target].map(|pg| map.pg_to_up_acting(pg));
        let same = [&s, &t].iter().all(|a| a.acting == m.acting && a.acting_primary == m.osd);
        if m.ready && !same {
            return;
        }
        let epoch = state.osdmap.change().epoch;
        if let Some(p) = state.osdmap.change_pool(m.source.pool) {
            (p.last_force_op_resend_prenautilus, p.last_force_op_resend_preluminous) = (epoch, epoch);
            p.pg_num_pending = if m.ready { source } else { p.pg_num };
            if m.ready {
                p.pg_num = source;
                p.last_pg_merge_meta = m.meta(epoch);
            }
        }
        if m.ready {
            let inc = state.osdmap.change();
            if map.pg_temp.contains_key(&m.source) || inc.new_pg_temp.contains_key(&m.source) {
                inc.new_pg_temp.insert(m.source, Vec::new());
            }
            if map.primary_temp.contains_key(&m.source) {
                inc.new_primary_temp.insert(m.source, OsdId::NONE);
            }
            inc.old_pg_upmap.extend(map.pg_upmap.keys().filter(|pg| **pg == m.source));
            inc.old_pg_upmap_items.extend(map.pg_upmap_items.keys().filter(|pg| **pg == m.source));
        } else {
            self.log(now, CLUSTER, LogPrio::INFO, format!("pg {} and {target} are not ready to be merged: they serve again", m.source));
        }
    }

    /// Silent OSDs go down, and those down for long go out.
    pub(crate) fn tick_osds(&mut self, now: Now) {
        let Some(state) = &self.state else { return };
        let map = state.osdmap.map.clone();
        let silence = self.env.seconds(state, "mon_osd_report_timeout", 900);
        let until_out = self.env.seconds(state, "mon_osd_down_out_interval", 600);
        for osd in map.up_osds() {
            self.osds.down_since.remove(&osd);
            let last = *self.osds.beacons.entry(osd).or_insert(now.mono);
            if now.mono - last > silence && self.may_go_down(osd) {
                let line = format!("osd.{osd} marked down after no beacon for {:.6} seconds", (now.mono - last).as_secs_f64());
                self.mark_down(now, osd, line);
            }
        }
        self.judge_failures(now);
        for osd in map.osds().filter(|o| map.is_down(*o) && map.is_in(*o)) {
            let since = *self.osds.down_since.entry(osd).or_insert(now.mono);
            let waited = now.mono - since;
            if until_out.is_zero() || waited < until_out + self.patience_with_absent(osd, waited) || !self.may_go_out(osd) {
                continue;
            }
            // What all stands behind one switch is not moved; nor at once when the first of it is back.
            if self.is_whole_subtree_down(osd) {
                self.osds.down_since.insert(osd, now.mono);
            } else {
                self.mark_out(now, osd, waited);
            }
        }
    }

    fn mark_out(&mut self, now: Now, osd: OsdId, waited: Duration) {
        let Some(state) = self.state.as_mut() else { return };
        let map = state.osdmap.map.clone();
        let mut xinfo = state.osdmap.pending_xinfo(osd);
        xinfo.old_weight = map.weight(osd);
        state.osdmap.change_state(osd, OsdMap::STATE_AUTOOUT, 0);
        let inc = state.osdmap.change();
        inc.new_weight.insert(osd, OsdMap::WEIGHT_OUT);
        inc.new_xinfo.insert(osd, xinfo);
        self.osds.down_since.remove(&osd);
        self.log(now, CLUSTER, LogPrio::INFO, format!("Marking osd.{osd} out (has been down for {} seconds)", waited.as_secs()));
    }

    /// Whoever goes down in the next epoch is known to answer nobody any more: others need not wait for its leases.
    fn note_dead(&mut self, osd: OsdId) {
        let Some(state) = self.state.as_mut() else { return };
        let mut xinfo = state.osdmap.pending_xinfo(osd);
        xinfo.dead_epoch = state.osdmap.map.epoch.next();
        state.osdmap.change().new_xinfo.insert(osd, xinfo);
    }

    pub(crate) fn mark_down(&mut self, now: Now, osd: OsdId, why: String) {
        let Some(state) = self.state.as_mut() else { return };
        state.osdmap.change_state(osd, 0, OsdMap::STATE_UP);
        self.osds.forget(osd);
        self.osds.down_since.insert(osd, now.mono);
        self.log(now, CLUSTER, LogPrio::INFO, why);
    }
}

impl Watch {
    fn forget(&mut self, osd: OsdId) {
        self.beacons.remove(&osd);
        self.failures.remove(&osd);
        for reports in self.failures.values_mut() {
            reports.remove(&osd);
        }
        self.down_since.remove(&osd);
    }
}

fn may_boot(state: &State, boot: &OsdBoot) -> Result<(), String> {
    let map = &state.osdmap.map;
    let osd = boot.osd;
    if boot.fsid != map.fsid {
        return Err(format!("it belongs to cluster {}", boot.fsid));
    }
    if osd.0 < 0 || !map.exists(osd) {
        return Err("nobody made it with `ceph osd new`".into());
    }
    let known = map.uuid(osd);
    if !known.is_nil() && known != boot.uuid {
        return Err(format!("its id {} is not the {known} of the map", boot.uuid));
    }
    if map.is_destroyed(osd) {
        return Err("it was destroyed".into());
    }
    if map.has_flag(OsdMap::FLAG_NOUP) || group_flags(map, osd) & OsdMap::STATE_NOUP != 0 {
        return Err("noup is set".into());
    }
    if let Some(listed) = boot.public_addrs.0.iter().find(|a| map.blocklist.contains_key(a)) {
        return Err(format!("{listed} is blocklisted"));
    }
    Ok(())
}

/// noup, nodown, noin, noout of an OSD: its own, its device class's, and those of the buckets above it.
pub fn group_flags(map: &OsdMap, osd: OsdId) -> u32 {
    let class = map.crush.class_of.get(&osd.0).and_then(|c| map.device_class_flags.get(c)).copied().unwrap_or(0);
    let above = map.crush.full_location(osd.0).into_iter().filter_map(|(_, name)| map.crush.item(&name));
    let nodes = above.filter_map(|id| map.crush_node_flags.get(&id).copied()).fold(0, |a, b| a | b);
    map.state(osd) | class | nodes
}
