//! How many backfills there are at once, out of each OSD and into each.
//!
//! Upstream: doc/dev/osd_internals/backfill_reservation.rst.

use crate::append;
use crate::harness::Cluster;
use std::collections::BTreeMap;
use types::{OsdId, PgId};

/// An OSD of many PGs leaves the cluster; the most backfills at once out of any OSD, and into any.
fn most_at_once(seed: u64, max_backfills: &str) -> (usize, usize) {
    let options = [("osd_max_backfills", max_backfills), ("osd_backfill_scan_min", "4"), ("osd_backfill_scan_max", "8")];
    let mut c = Cluster::with_options(seed, 6, 32, &options);
    c.log_entries_max = 3;
    (0..6).for_each(|osd| c.crash(OsdId(osd)));
    (0..6).for_each(|osd| c.start(OsdId(osd)));
    c.settle();
    // Every log has forgotten how it began: whoever is new has to be filled.
    (0..640).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
    c.settle();
    [0, 1].iter().for_each(|osd| c.map.osd_weight[*osd] = 0);
    c.publish();
    let (mut most_out, mut most_in, mut waited) = (0, 0, 0);
    while !c.is_clean() {
        c.step();
        let (mut out, mut into): (BTreeMap<OsdId, usize>, BTreeMap<OsdId, usize>) = Default::default();
        for pg in c.pgs() {
            let m = c.map.pg_to_up_acting(pg);
            let holds = |pg: PgId| c.line_of(m.acting_primary, pg).ends_with("slots Held");
            waited += usize::from(c.state(pg).contains("backfill_wait"));
            if holds(pg) {
                *out.entry(m.acting_primary).or_default() += 1;
                m.up.iter().filter(|osd| !m.acting.contains(osd)).for_each(|osd| *into.entry(*osd).or_default() += 1);
            }
        }
        most_out = most_out.max(out.values().copied().max().unwrap_or_default());
        most_in = most_in.max(into.values().copied().max().unwrap_or_default());
    }
    assert!(waited > 0);
    c.invariant_copies_agree();
    (most_out, most_in)
}

#[test]
fn no_more_backfills_go_out_of_an_osd_or_into_one_than_it_may_have() {
    for seed in 1600..1603 {
        assert_eq!(most_at_once(seed, "1"), (1, 1), "seed {seed}");
        assert_eq!(most_at_once(seed, "2"), (2, 2), "seed {seed}");
    }
}
