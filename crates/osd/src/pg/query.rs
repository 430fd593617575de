//! A PG as `ceph pg <pgid> query` shows it.
//!
//! Upstream: PeeringState::dump_peering_state and what its states answer to QueryState (src/osd/PeeringState.cc), PgScrubber::dump.

use super::peering::{Peering, Step};
use super::{Pg, Stage};
use crate::effects::Cx;
use crate::slow::Unfinished;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use types::json::Obj;
use types::map::OsdMap;
use types::msg::internal_osd::{PeerHistory, PeerInfo};
use types::pg::{ObjectStatCollection, ObjectStatSum, PgHistory, PgInfo, PgShard, PgStat};
use types::{EVersion, Epoch, HObject, Mono, Now, OsdId, ShardPgId, Utime};

impl Pg {
    /// Everything that tells where the PG stands.
    pub fn query(&self, cx: &Cx<'_>) -> Value {
        let (now, map, whoami) = (cx.now, &cx.sh.map, cx.sh.whoami);
        let places = map.pg_to_up_acting(self.id);
        let osds = |list: &[OsdId]| list.iter().map(|o| o.0).collect::<Vec<_>>();
        let shard = |osd: OsdId| self.shard(&places.acting, osd).to_string();
        let (info, peers) = (self.info_here(now, map, self.shard(&places.acting, whoami)), self.peer_infos(whoami));
        let mut to_trim = self.removed_snaps(cx).cloned().unwrap_or_default();
        to_trim.subtract(&self.trims.purged);
        let mut out = json!({
            "snap_trimq": to_trim.to_string(), "snap_trimq_len": self.trims.left,
            "state": self.state().to_string(), "epoch": map.epoch.0, "up": osds(&places.up), "acting": osds(&places.acting),
        });
        if !self.recovery.backfills.is_empty() {
            out["backfill_targets"] = self.recovery.backfills.keys().map(|osd| shard(*osd)).collect();
        }
        if matches!(self.stage, Stage::Active) {
            out["acting_recovery_backfill"] = self.served(whoami).into_iter().map(shard).collect();
        }
        out["info"] = info.dump_json();
        let described = |(osd, info): (OsdId, PgInfo)| {
            let mut peer = Obj::new();
            peer.put("peer", shard(osd)).extend(info.dump_json());
            peer.done()
        };
        out["peer_info"] = peers.into_iter().map(described).collect();
        out["recovery_state"] = self.recovery_states(now, map, whoami).into();
        if matches!(self.stage, Stage::Active) {
            out["scrubber"] = self.scrubber();
        }
        out["agent_state"] = json!({});
        out
    }

    /// Where a copy has its place, if that matters.
    fn shard(&self, acting: &[OsdId], osd: OsdId) -> PgShard {
        let place = acting.iter().position(|o| *o == osd).filter(|_| self.is_coded());
        PgShard { osd, shard: place.map_or(ShardPgId::NO_SHARD, |n| n as i8) }
    }

    /// Whoever the primary keeps up to date, it among them.
    fn served(&self, whoami: OsdId) -> BTreeSet<OsdId> {
        let acting = self.walk.mapping.acting.iter();
        acting.chain(self.recovery.backfills.keys()).copied().chain([whoami]).collect()
    }

    /// Our copy.
    fn info_here(&self, now: Now, map: &OsdMap, place: PgShard) -> PgInfo {
        PgInfo {
            last_update: self.log.head(),
            last_complete: self.complete_to(self.missing.values().min().copied()),
            log_tail: self.log.tail,
            stats: self.stats(now, map),
            history: self.past(&self.history, self.unread_for(now.mono)),
            purged_snaps: self.trims.purged.clone(),
            last_epoch_started: self.last_epoch_started,
            last_interval_started: self.last_epoch_started,
            last_user_version: self.last_user_version,
            last_backfill: self.last_backfill.clone(),
            ..PgInfo::new(ShardPgId { pg: self.id, shard: place.shard })
        }
    }

    /// What the primary knows of the others' copies, in its words while it asks.
    fn peer_infos(&self, whoami: OsdId) -> Vec<(OsdId, PgInfo)> {
        match &self.stage {
            Stage::Peering(p) => p.infos.iter().filter(|(osd, _)| **osd != whoami).map(|(osd, info)| (*osd, self.told(info))).collect(),
            Stage::Active => self.served(whoami).into_iter().filter(|osd| *osd != whoami).map(|osd| (osd, self.known_of(osd))).collect(),
            Stage::Follower { .. } | Stage::Removing => Vec::new(),
        }
    }

    /// A copy by its own description.
    fn told(&self, info: &PeerInfo) -> PgInfo {
        let blank = PgInfo::new(ShardPgId { pg: self.id, shard: ShardPgId::NO_SHARD });
        if !info.exists {
            return blank;
        }
        let objects = if info.last_backfill.max { info.totals.objects } else { info.backfilled };
        PgInfo {
            last_update: info.last_update,
            last_complete: if info.missing == 0 { info.last_update } else { info.log_tail },
            log_tail: info.log_tail,
            stats: counted(info.last_update, objects, info.missing as i64),
            history: self.past(&info.history, Duration::ZERO),
            last_epoch_started: info.last_epoch_started,
            last_interval_started: info.last_epoch_started,
            last_user_version: info.last_user_version,
            last_backfill: info.last_backfill.clone(),
            ..blank
        }
    }

    /// A copy that has taken over our log.
    fn known_of(&self, osd: OsdId) -> PgInfo {
        let lacks = self.recovery.lacks(osd) as i64;
        let filled = self.recovery.backfills.get(&osd);
        PgInfo {
            last_update: self.log.head(),
            last_complete: self.complete_to(self.recovery.oldest_lacked(osd)),
            log_tail: self.log.tail,
            stats: counted(self.log.head(), filled.map_or(self.totals.objects, |b| b.objects), lacks),
            history: self.past(&self.history, Duration::ZERO),
            last_epoch_started: self.walk.since,
            last_interval_started: self.walk.since,
            last_user_version: self.last_user_version,
            last_backfill: filled.map_or_else(HObject::max, |b| b.cursor.clone()),
            ..PgInfo::new(ShardPgId { pg: self.id, shard: ShardPgId::NO_SHARD })
        }
    }

    /// The newest version up to which nothing is lacking, if this is the oldest that is.
    fn complete_to(&self, lacking: Option<EVersion>) -> EVersion {
        let Some(lacking) = lacking else { return self.log.head() };
        self.log.iter().map(|e| e.version).take_while(|v| *v < lacking).last().unwrap_or(self.log.tail)
    }

    /// How long the primary of an earlier interval may still be read.
    fn unread_for(&self, now: Mono) -> Duration {
        match self.peering().map(|p| &p.step) {
            Some(Step::WaitUnread { until }) => *until - now,
            _ => Duration::ZERO,
        }
    }

    fn past(&self, known: &PeerHistory, unread: Duration) -> PgHistory {
        let (w, s) = (&self.walk, known.scrubs);
        PgHistory {
            epoch_created: known.epoch_created,
            epoch_pool_created: known.epoch_created,
            last_epoch_started: known.last_epoch_started,
            last_interval_started: known.last_epoch_started,
            last_epoch_clean: known.last_epoch_clean,
            last_interval_clean: known.last_epoch_clean,
            last_epoch_split: Epoch(0),
            last_epoch_marked_full: Epoch(0),
            same_interval_since: w.since,
            same_up_since: w.up_since,
            // While PGs are merged no operation counts as sent to this primary.
            same_primary_since: w.primary_since.min(w.since),
            last_scrub: s.last_scrub,
            last_scrub_stamp: s.last_scrub_stamp,
            last_deep_scrub: s.last_deep_scrub,
            last_deep_scrub_stamp: s.last_deep_scrub_stamp,
            last_clean_scrub_stamp: s.last_clean_scrub_stamp,
            prior_readable_until_ub: Utime::from_duration(unread),
        }
    }

    /// The innermost state first; with `detail`, which upstream does not have, in words of our own.
    fn recovery_states(&self, now: Now, map: &OsdMap, whoami: OsdId) -> Vec<Value> {
        let f = &self.figures;
        let mut states = match &self.stage {
            Stage::Active => vec![json!({
                "name": self.stage_name(), "enter_time": f.became_active.to_string(),
                "might_have_unfound": self.might_have_unfound(map, whoami, |_| true),
                "recovery_progress": self.recovery.progress(self.is_coded()),
            })],
            Stage::Peering(p) => {
                let since = Utime::from_duration(now.wall.to_duration().saturating_sub(now.mono - p.began));
                let step = step(p, since);
                // Its last steps belong to what comes after it.
                if step["name"] == "Started/Primary/Active" { vec![step] } else { vec![step, self.peering_state(p, since, map)] }
            }
            Stage::Follower { .. } | Stage::Removing => vec![json!({"name": self.stage_name(), "enter_time": f.interval_began.to_string()})],
        };
        if let Some(state) = states.first_mut() {
            state["detail"] = self.stage_detail().into();
        }
        states.push(json!({"name": "Started", "enter_time": f.interval_began.to_string()}));
        states
    }

    fn peering_state(&self, p: &Peering, since: Utime, map: &OsdMap) -> Value {
        let past: BTreeSet<OsdId> = self.rw_intervals(Epoch(0)).flat_map(|i| i.acting.iter().copied()).collect();
        let down: Vec<i32> = past.iter().filter(|osd| !map.is_up(**osd)).map(|osd| osd.0).collect();
        let comma = |osds: &[OsdId]| osds.iter().map(OsdId::to_string).collect::<Vec<_>>().join(",");
        let interval = |i: &super::interval::Interval| json!({"first": i.first.to_string(), "last": i.last.to_string(), "acting": comma(&i.acting)});
        let intervals: Vec<Value> = self.rw_intervals(Epoch(0)).map(interval).collect();
        let first = self.walk.past.first().map_or(Epoch(0), |i| i.first);
        let last = self.walk.past.last().map_or(Epoch(0), |i| i.last);
        let mut out = json!({
            "name": self.stage_name(), "enter_time": since.to_string(),
            "past_intervals": [{
                "first": first.to_string(), "last": last.to_string(),
                "all_participants": past.iter().map(|osd| json!({"osd": osd.0})).collect::<Vec<_>>(), "intervals": intervals,
            }],
            "probing_osds": p.probed().filter(|osd| map.is_up(**osd)).map(OsdId::to_string).collect::<Vec<_>>(),
        });
        let blocked = match p.step {
            Step::Down { .. } => p.blocked_by(),
            _ => Vec::new(),
        };
        if !blocked.is_empty() {
            out["blocked"] = "peering is blocked due to down osds".into();
        }
        let waited = |osd: &OsdId| {
            let lost = map.info(*osd).map_or(0, |i| i.lost_at.0);
            json!({"osd": osd.0, "current_lost_at": lost, "comment": "starting or marking this osd lost may let us proceed"})
        };
        out["down_osds_we_would_probe"] = down.into();
        out["peering_blocked_by"] = blocked.iter().map(waited).collect();
        out
    }

    /// Every operation that has not ended.
    pub fn unfinished(&self, whoami: OsdId) -> impl Iterator<Item = Unfinished<'_>> {
        let ops = self.ops_in_flight().map(|(op, stage)| Unfinished::of_client(op, stage));
        let peers = move |u| Unfinished { peers: self.peers_line(whoami), ..u };
        ops.chain(self.repops.in_flight()).map(peers)
    }

    fn stage_name(&self) -> &'static str {
        match &self.stage {
            super::Stage::Active => "Started/Primary/Active",
            super::Stage::Peering(_) => "Started/Primary/Peering",
            super::Stage::Follower { active: true } => "Started/ReplicaActive",
            super::Stage::Follower { active: false } => "Started/Stray",
            super::Stage::Removing => "Started/ToDelete/Deleting",
        }
    }

    /// Everything that matters on one line.
    pub fn line(&self) -> String {
        let m = &self.walk.mapping;
        format!(
            "{} since {} acting {:?} {} [{}..{}] les {} missing {} last_backfill {} {}",
            self.stage_name(),
            self.walk.since,
            m.acting.iter().map(|o| o.0).collect::<Vec<_>>(),
            self.state(),
            self.log.tail,
            self.log.head(),
            self.last_epoch_started,
            self.missing.len(),
            self.last_backfill,
            self.stage_detail()
        )
    }

    fn stage_detail(&self) -> String {
        match &self.stage {
            super::Stage::Peering(p) => format!("{:?}", p.step),
            super::Stage::Active if !self.recovery.done => format!("{}, slots {}", self.recovery.summary(), self.slots_line()),
            _ => String::new(),
        }
    }
}

/// What peering is at.
fn step(p: &Peering, since: Utime) -> Value {
    let asked = |osds: &BTreeSet<OsdId>| osds.iter().map(|osd| json!({"osd": osd.to_string()})).collect::<Vec<_>>();
    let (name, key, value) = match &p.step {
        Step::GetInfo { waiting_for } => ("Peering/GetInfo", "requested_info_from", asked(waiting_for).into()),
        Step::Down { .. } => ("Peering/Down", "comment", "not enough up instances of this PG to go active".into()),
        Step::Incomplete => ("Peering/Incomplete", "comment", "not enough complete instances of this PG".into()),
        Step::WaitActing => ("Peering/WaitActingChange", "comment", "waiting for pg acting set to change".into()),
        Step::GetLog | Step::MergeSelf => ("Peering/GetLog", "auth_log_shard", p.auth.to_string().into()),
        Step::MergePeers(waiting_for) => ("Peering/GetMissing", "peer_missing_requested", asked(waiting_for).into()),
        Step::WaitUpThru => ("Peering/WaitUpThru", "comment", "waiting for osdmap to reflect a new up_thru for this osd".into()),
        Step::WaitUnread { .. } => ("Active", "comment", "waiting until no primary of before is read any more".into()),
        Step::Activating { .. } => ("Active", "comment", Value::from("activating")),
    };
    json!({"name": format!("Started/Primary/{name}"), "enter_time": since.to_string(), key: value})
}

/// The figures of a copy that are known elsewhere.
fn counted(version: EVersion, num_objects: i64, num_objects_missing: i64) -> PgStat {
    let sum = ObjectStatSum { num_objects, num_objects_missing, ..ObjectStatSum::default() };
    PgStat { version, stats: ObjectStatCollection { sum }, ..PgStat::default() }
}
