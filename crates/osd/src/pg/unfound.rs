//! Objects that nobody who is up can give, as operators are shown them.

use super::Pg;
use super::recovery::Source;
use crate::effects::Cx;
use admin::CommandError;
use serde_json::{Value, json};
use types::map::OsdMap;
use types::{HObject, OsdId};

/// Unfound objects listed at a time (`osd_command_max_records`).
const LISTED: usize = 256;

impl Pg {
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
    pub(super) fn might_have_unfound(&self, map: &OsdMap, whoami: OsdId, which: impl Fn(Source) -> bool) -> Vec<Value> {
        if self.recovery.unfound().is_empty() {
            return Vec::new();
        }
        let sources = self.sources(map, whoami).into_iter().filter(|(_, s)| which(*s));
        sources.map(|(osd, s)| json!({"osd": osd.0.to_string(), "status": s.words()})).collect()
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
