//! A PG as `ceph pg <pgid> query` shows it.

use super::Pg;
use serde_json::{Value, json};
use types::{Epoch, Mono};

impl Pg {
    /// Everything that tells where the PG stands.
    pub fn query(&self, epoch: Epoch) -> Value {
        let m = &self.walk.mapping;
        let osds = |list: &[types::OsdId]| list.iter().map(|o| o.0).collect::<Vec<_>>();
        let past: Vec<Value> = self
            .walk
            .past
            .iter()
            .map(|i| json!({"first": i.first.0, "last": i.last.0, "maybe_went_rw": i.maybe_rw, "acting": osds(&i.acting)}))
            .collect();
        json!({
            "state": self.state().to_string(),
            "epoch": epoch.0,
            "up": osds(&m.up),
            "acting": osds(&m.acting),
            "info": {
                "pgid": self.id.to_string(),
                "last_update": self.log.head().to_string(),
                "last_complete": if self.missing.is_empty() { self.log.head() } else { self.log.tail }.to_string(),
                "log_tail": self.log.tail.to_string(),
                "last_user_version": self.last_user_version,
                "last_backfill": cursor(&self.last_backfill),
                "history": {
                    "epoch_created": self.history.epoch_created.0,
                    "last_epoch_started": self.history.last_epoch_started.0,
                    "last_epoch_clean": self.history.last_epoch_clean.0,
                    "same_interval_since": self.walk.since.0,
                },
                "stats": {
                    "version": self.log.head().to_string(),
                    "state": self.state().to_string(),
                    "log_size": self.log.len(),
                    "log_dups_size": self.log.dups.len(),
                    "up": osds(&m.up),
                    "acting": osds(&m.acting),
                    "up_primary": m.up_primary.0,
                    "acting_primary": m.primary.0,
                    "stat_sum": {
                        "num_objects": self.totals.objects,
                        "num_bytes": self.totals.bytes,
                        "num_objects_missing_on_primary": self.missing.len(),
                        "num_objects_unfound": self.recovery.unfound().len(),
                    },
                },
                "last_epoch_started": self.last_epoch_started.0,
            },
            "past_intervals": past,
            "recovery_state": [{"name": self.stage_name(), "detail": self.stage_detail()}],
        })
    }

    /// Writes that are not durable everywhere yet.
    pub fn writes_in_flight(&self, now: Mono) -> Vec<Value> {
        let one = |(version, obj, since, stage): (types::EVersion, &types::HObject, Mono, &'static str)| {
            json!({
                "description": format!("write {version} {}", obj.name),
                "age": (now - since).as_secs_f64(),
                "duration": (now - since).as_secs_f64(),
                "type_data": {"flag_point": stage},
            })
        };
        self.repops.in_flight().map(one).collect()
    }

    /// When each unfinished operation arrived.
    pub fn ages(&self) -> Vec<Mono> {
        let waiting = self.ops_in_flight().map(|(op, _)| op.received);
        waiting.chain(self.repops.in_flight().map(|(_, _, since, _)| since)).collect()
    }

    fn stage_name(&self) -> &'static str {
        match &self.stage {
            super::Stage::Active => "Started/Primary/Active",
            super::Stage::Peering(_) => "Started/Primary/Peering",
            super::Stage::Follower { active: true } => "Started/ReplicaActive",
            super::Stage::Follower { active: false } => "Started/Stray",
            super::Stage::Removing => "Started/ToDelete",
        }
    }

    /// `ceph pg <pgid> list_unfound`.
    pub fn list_unfound(&self) -> Value {
        let one = |obj: &types::HObject| {
            json!({
                "oid": {"oid": obj.name.to_string(), "key": obj.key.to_string(), "snapid": -2, "hash": obj.hash,
                    "max": 0, "pool": obj.pool.0, "namespace": obj.nspace.to_string()},
                "need": self.missing.get(obj).map(ToString::to_string),
                "have": "0'0", "flags": "none", "clean_regions": "clean_offsets: [], clean_omap: 0, new_object: 1",
                "locations": [],
            })
        };
        let unfound = self.recovery.unfound();
        let objects: Vec<Value> = unfound.iter().map(one).collect();
        json!({"num_missing": self.missing.len(), "num_unfound": unfound.len(), "objects": objects,
            "state": if unfound.is_empty() { "NotRecovering" } else { "ActiveRecovery" }, "available_might_have_unfound": true,
            "might_have_unfound": [], "more": false})
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
            cursor(&self.last_backfill),
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

/// An object as a place in the order of all, in Ceph's words.
fn cursor(obj: &types::HObject) -> String {
    match (obj.max, obj.is_min()) {
        (true, _) => "MAX".into(),
        (_, true) => "MIN".into(),
        _ => format!("{}:{:08x}:{}:{}:{}:head", obj.pool.0, obj.sort_hash(), obj.nspace, obj.key, obj.name),
    }
}
