//! Backfill: bring a copy up to date by going through all objects, when its log no longer meets the authoritative one.
//!
//! Holds: until the last object is compared the copy says it is not complete, on its disk too.
//! Why by whole ranges and blocking: see peering.

use super::peering::Step;
use super::recovery::Target;
use super::{Pg, Stage};
use crate::effects::{Cx, Durable, Effect};
use crate::ops::pg_range;
use std::collections::BTreeMap;
use types::msg::internal_osd::{PgBody, Round};
use types::{EVersion, HObject, OsdId, PgId};

/// How far the comparison of two copies has come.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Everything before it is compared.
    at: HObject,
    end: HObject,
    /// A page was asked for.
    asked: bool,
}

impl Scan {
    /// Objects compared at a time.
    pub const PAGE: u32 = 256;
    /// The next page waits until less than this is left to move.
    const LOW_WATER: usize = 64;

    pub fn new(pg: PgId, pg_num: u32) -> Self {
        let (at, end) = pg_range(pg, pg_num);
        Scan { at, end, asked: false }
    }

    pub fn is_done(&self) -> bool {
        self.at >= self.end
    }

    /// Where the next page begins, if it is time for one.
    pub fn next_page(&mut self, todo: usize) -> Option<HObject> {
        if self.asked || self.is_done() || todo >= Self::LOW_WATER {
            return None;
        }
        self.asked = true;
        Some(self.at.clone())
    }

    /// The answer to the page that was asked for may be lost.
    pub fn again(&mut self) {
        self.asked = false;
    }

    /// True for the page that was asked for.
    fn expects(&self, begin: &HObject) -> bool {
        self.asked && self.at == *begin
    }

    fn took(&mut self, end: HObject) {
        (self.at, self.asked) = (end, false);
    }
}

/// What two copies differ in: objects that one of them lacks or has in another version.
fn differences(ours: Vec<(HObject, EVersion)>, theirs: Vec<(HObject, EVersion)>) -> Vec<HObject> {
    let mut left: BTreeMap<HObject, EVersion> = ours.into_iter().collect();
    let mut out = Vec::new();
    for (obj, version) in theirs {
        if left.remove(&obj) != Some(version) {
            out.push(obj);
        }
    }
    out.extend(left.into_keys());
    out
}

impl Pg {
    /// Objects of a range with their versions; the range ends where the page does.
    fn page(&self, cx: &mut Cx<'_>, begin: &HObject, end: &HObject, limit: usize) -> (Vec<(HObject, EVersion)>, HObject) {
        let (objects, next) = match cx.disk.list(self.coll, begin, end, limit) {
            Ok(page) => page,
            Err(e) => {
                // Its metadata is gone: nothing it could say of this copy is worth hearing.
                cx.fx.push(Effect::Stop { why: format!("the objects of {} cannot be listed: {e}", self.id) });
                return (Vec::new(), begin.clone());
            }
        };
        let versions = objects.into_iter().map(|o| {
            let version = self.version_of(cx, &o).unwrap_or_default();
            (o, version)
        });
        (versions.collect(), next)
    }

    /// Lists a page for whoever compares.
    pub(super) fn send_scan(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round, begin: HObject, limit: u32) {
        let (_, pg_end) = pg_range(self.id, self.walk.mapping.pg_num);
        let (objects, end) = self.page(cx, &begin, &pg_end, limit as usize);
        let body = PgBody::Scanned { begin, end, objects };
        cx.send_pg(to, self.id, round, body, Durable::Now);
    }

    /// Compares a page of another copy with ours: of the authoritative copy, or of one we bring up to date.
    pub(super) fn handle_scanned(&mut self, cx: &mut Cx<'_>, from: OsdId, begin: HObject, end: HObject, theirs: Vec<(HObject, EVersion)>) {
        let (ours, reached) = self.page(cx, &begin, &end, usize::MAX);
        if reached < end {
            return;
        }
        let differ = differences(ours, theirs);
        let Stage::Peering(p) = &mut self.stage else { return };
        if let Step::RecoverSelf(r) = &mut p.step {
            if let Some(scan) = r.scan.as_mut().filter(|s| s.expects(&begin)) {
                scan.took(end);
                r.todo.extend(differ);
            }
            return self.drive_self(cx);
        }
        if let Some(Target::Recovering(r)) = self.target(from) {
            if let Some(scan) = r.scan.as_mut().filter(|s| s.expects(&begin)) {
                scan.took(end);
                r.todo.extend(differ);
            }
            self.drive_peer(cx, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Epoch;

    #[test]
    fn what_is_absent_old_or_extra_differs() {
        let obj = |name: &str| HObject { name: name.into(), ..HObject::min() };
        let at = |name: &str, version| (obj(name), EVersion { epoch: Epoch(1), version });
        let ours = vec![at("same", 1), at("changed", 5), at("new", 2)];
        let theirs = vec![at("same", 1), at("changed", 4), at("deleted", 3)];
        let mut found = differences(ours, theirs);
        found.sort();
        let mut expected = vec![obj("changed"), obj("deleted"), obj("new")];
        expected.sort();
        assert_eq!(found, expected);
    }
}
