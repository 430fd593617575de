//! Bad copies of objects: what one OSD cannot read it lacks from then on, and recovery brings it another copy.
//!
//! Room: osd core.   Owns: `Repairs`.   Hears: reads that failed, recovered objects.
//! Holds: a client is answered EIO only when it is certain that nobody else has the object; otherwise it waits, as for any
//! object that is missing. A copy is given up on disk too, so that after a crash it is not trusted again.
//! Why the whole object and not the block: recovery moves whole objects of one version, and bad blocks come in company.
//! Upstream: PrimaryLogPG::rep_repair_primary_object.

use super::Pg;
use crate::effects::Cx;
use std::collections::BTreeSet;
use types::HObject;
use types::msg::LogPrio;

/// What is being repaired here.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// Objects whose copy here was bad and is being replaced.
    own: BTreeSet<HObject>,
}

impl Pg {
    /// An operation cannot read its object here. True if another copy is being fetched: whoever reads it waits for that.
    pub(super) fn replace_bad_copy(&mut self, cx: &mut Cx<'_>, object: HObject) -> bool {
        let Some(version) = self.version_of(cx, &object) else { return false };
        // Whoever has it and is not up may come back: that is waited for.
        let nobody_else = self.walk.mapping.size == 1 || self.is_bad_everywhere(cx, &object, version);
        if nobody_else || self.missing.contains_key(&object) {
            cx.clog(LogPrio::ERROR, format!("{}: {object} cannot be read here, and nobody else has it", self.id));
            return false;
        }
        cx.clog(LogPrio::ERROR, format!("{}: {object} cannot be read here: another copy is fetched", self.id));
        self.expect_repair(object.clone());
        self.lose_own_copy(cx, object, version);
        self.recover(cx);
        true
    }

    /// A copy of ours is bad, and will be replaced.
    pub(super) fn expect_repair(&mut self, object: HObject) {
        self.repairs.own.insert(object);
    }

    /// An object that was missing is whole here.
    pub(super) fn note_repaired(&mut self, cx: &mut Cx<'_>, object: &HObject) {
        if self.repairs.own.remove(object) {
            cx.sh.shards_repaired += 1;
            // A replica's sums are never reported: its primary counts.
            self.figures.sums.num_objects_repaired += 1;
            cx.clog(LogPrio::INFO, format!("{}: {object} is whole here again", self.id));
        }
    }
}
