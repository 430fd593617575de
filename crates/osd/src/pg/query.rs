//! A PG as `ceph pg <pgid> query` shows it.

use super::Pg;
use crate::effects::Cx;
use crate::pg::recovery::Source;
use crate::slow::Unfinished;
use admin::CommandError;
use serde_json::{Value, json};
use types::map::OsdMap;
use types::{HObject, OsdId};

/// Unfound objects listed at a time (`osd_command_max_records`).
const LISTED: usize = 256;

impl Pg {
    /// Everything that tells where the PG stands.
    pub fn query(&self, map: &OsdMap, whoami: OsdId) -> Value {
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
            "epoch": map.epoch.0,
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
            "recovery_state": [{"name": self.stage_name(), "detail": self.stage_detail(),
                "might_have_unfound": self.might_have_unfound(map, whoami, |_| true)}],
        })
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
            super::Stage::Removing => "Started/ToDelete",
        }
    }

    /// `ceph pg <pgid> list_unfound`: those behind `offset`, so many at a time.
    pub fn list_unfound(&self, cx: &mut Cx<'_>, offset: HObject) -> Value {
        let unfound = self.recovery.unfound();
        let mut behind = unfound.range((std::ops::Bound::Excluded(offset), std::ops::Bound::Unbounded));
        let objects: Vec<Value> = behind
            .by_ref()
            .take(LISTED)
            .map(|obj| {
                let need = self.missing.get(obj).copied().unwrap_or_default();
                let have = self.version_of(cx, obj).filter(|v| *v != need).unwrap_or_default();
                json!({
                    "oid": {"oid": obj.name.to_string(), "key": obj.key.to_string(), "snapid": -2, "hash": obj.hash,
                        "max": 0, "pool": obj.pool.0, "namespace": obj.nspace.to_string()},
                    "need": need.to_string(), "have": have.to_string(), "flags": "none",
                    "clean_regions": "clean_offsets: [], clean_omap: 0, new_object: 1", "locations": [],
                })
            })
            .collect();
        let knows = matches!(self.stage, super::Stage::Active);
        let state = match &self.stage {
            super::Stage::Active if unfound.is_empty() => "NotRecovering",
            super::Stage::Active => "NotBackfilling",
            super::Stage::Peering(_) => "Peering",
            _ => "Started",
        };
        let mut listed = json!({"num_missing": self.recovery.lacking(&self.missing), "num_unfound": unfound.len(), "objects": objects,
            "state": state, "available_might_have_unfound": knows});
        if knows {
            // Whoever was asked already is of no interest here.
            listed["might_have_unfound"] = self.might_have_unfound(&cx.sh.map, cx.sh.whoami, |s| s != Source::Probed).into();
        }
        listed["more"] = behind.next().is_some().into();
        listed
    }

    /// OSDs that may have what is unfound.
    fn might_have_unfound(&self, map: &OsdMap, whoami: OsdId, which: impl Fn(Source) -> bool) -> Vec<Value> {
        if self.recovery.unfound().is_empty() {
            return Vec::new();
        }
        let sources = self.sources(map, whoami).into_iter().filter(|(_, s)| which(*s));
        sources.map(|(osd, s)| json!({"osd": osd.0.to_string(), "status": s.words()})).collect()
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

/// Where a listing is to go on: an object as one of its answers shows it.
pub(crate) fn offset(json: &str) -> Result<HObject, CommandError> {
    let bad = |e: &dyn std::fmt::Display| CommandError::invalid(format!("error parsing offset: {e}"));
    let v: Value = serde_json::from_str(json).map_err(|e| bad(&e))?;
    let text = |key: &str| v.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (hash, pool) = (v.get("hash").and_then(Value::as_u64), v.get("pool").and_then(Value::as_i64));
    let (Some(hash), Some(pool)) = (hash.and_then(|h| u32::try_from(h).ok()), pool) else {
        return Err(bad(&"no hash or no pool"));
    };
    Ok(HObject {
        pool: types::PoolId(pool),
        hash,
        nspace: text("namespace").into(),
        key: text("key").into(),
        name: text("oid").into(),
        snap: types::Snap::HEAD,
        max: false,
    })
}

/// An object as a place in the order of all, in Ceph's words.
fn cursor(obj: &types::HObject) -> String {
    match (obj.max, obj.is_min()) {
        (true, _) => "MAX".into(),
        (_, true) => "MIN".into(),
        _ => format!("{}:{:08x}:{}:{}:{}:head", obj.pool.0, obj.sort_hash(), obj.nspace, obj.key, obj.name),
    }
}
