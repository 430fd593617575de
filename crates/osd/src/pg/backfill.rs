//! Backfill: what a copy lacks is found by going through all objects, when its log no longer meets the authoritative one.
//!
//! Holds: until the last object is compared the copy says it is not complete, on its disk too. Then it has the log, and
//! what differed is missing, like after a merge: copying it is recovery's, with the PG active.
//! Why not upstream's `last_backfill`: only names and versions are compared while the PG is blocked; objects that a
//! copy kept from earlier count at once, in whatever order they came; and one rule says which object waits for what.
//! The price is a row and some memory for each object that has to move.

use super::getmissing::Target;
use super::peering::Step;
use super::Pg;
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
    /// What has to change on the copy that is brought up to date.
    pub differ: Vec<(HObject, EVersion)>,
}

impl Scan {
    /// Objects compared at a time.
    pub const PAGE: u32 = 256;

    pub fn new(pg: PgId, pg_num: u32) -> Self {
        let (at, end) = pg_range(pg, pg_num);
        Scan { at, end, asked: false, differ: Vec::new() }
    }

    pub fn is_done(&self) -> bool {
        self.at >= self.end
    }

    /// Where the next page begins, if it is time for one.
    pub fn next_page(&mut self) -> Option<HObject> {
        if self.asked || self.is_done() {
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

    fn took(&mut self, end: HObject, differ: Vec<(HObject, EVersion)>) {
        (self.at, self.asked) = (end, false);
        self.differ.extend(differ);
    }
}

/// What a copy has to change to be as wanted: objects it lacks or has in another version, with the right one; objects it
/// has too many, without.
fn differences(wanted: Vec<(HObject, EVersion)>, held: Vec<(HObject, EVersion)>) -> Vec<(HObject, EVersion)> {
    let mut left: BTreeMap<HObject, EVersion> = held.into_iter().collect();
    let mut out = Vec::new();
    for (obj, version) in wanted {
        if left.remove(&obj) != Some(version) {
            out.push((obj, version));
        }
    }
    out.extend(left.into_keys().map(|obj| (obj, EVersion::default())));
    out
}

impl Pg {
    /// Objects of a range with the versions they should have; the range ends where the page does.
    fn page(&self, cx: &mut Cx<'_>, begin: &HObject, end: &HObject, limit: usize) -> (Vec<(HObject, EVersion)>, HObject) {
        let (objects, next) = match cx.disk.list(self.coll, begin, end, limit) {
            Ok(page) => page,
            Err(e) => {
                // Its metadata is gone: nothing it could say of this copy is worth hearing.
                cx.fx.push(Effect::Stop { why: format!("the objects of {} cannot be listed: {e}", self.id) });
                return (Vec::new(), begin.clone());
            }
        };
        let stored = objects.into_iter().map(|o| {
            let version = self.version_of(cx, &o).unwrap_or_default();
            (o, version)
        });
        let mut versions: BTreeMap<HObject, EVersion> = stored.collect();
        if *begin < next {
            versions.extend(self.missing.range(begin..&next).map(|(o, v)| (o.clone(), *v)));
        }
        (versions.into_iter().collect(), next)
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
        if begin >= end {
            return;
        }
        let (ours, reached) = self.page(cx, &begin, &end, usize::MAX);
        if reached < end {
            return;
        }
        if let Some(Step::MergeSelf(m)) = self.step_mut() {
            if let Some(scan) = m.scan.as_mut().filter(|s| s.expects(&begin)) {
                scan.took(end, differences(theirs, ours));
            }
            return self.drive_self(cx);
        }
        if let Some(Target::Scanning(scan)) = self.target(from) {
            if scan.expects(&begin) {
                scan.took(end, differences(ours, theirs));
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
    fn what_is_absent_or_old_is_to_become_as_wanted_and_what_is_too_many_to_go() {
        let obj = |name: &str| HObject { name: name.into(), ..HObject::min() };
        let ev = |version| EVersion { epoch: Epoch(1), version };
        let at = |name: &str, version| (obj(name), ev(version));
        let wanted = vec![at("same", 1), at("changed", 5), at("new", 2)];
        let held = vec![at("same", 1), at("changed", 4), at("deleted", 3)];
        let found: BTreeMap<HObject, EVersion> = differences(wanted, held).into_iter().collect();
        let expected = [at("changed", 5), at("new", 2), (obj("deleted"), EVersion::default())];
        assert_eq!(found, expected.into_iter().collect());
    }
}
