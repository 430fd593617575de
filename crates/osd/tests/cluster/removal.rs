//! Copies that are deleted while somebody comes back, and orders to delete that come late.
//!
//! Upstream: doc/dev/osd_internals/osd_internals.rst, pg_removal.rst.

use crate::harness::{Cluster, POOL};
use rand::Rng;
use std::cell::Cell;
use std::rc::Rc;
use types::msg::internal_osd::PgBody;
use types::{OsdId, PgId};

const OBJECTS: usize = 400;

/// Four OSDs, and a PG whose log reaches back to its beginning; the one of its copies that is going to leave.
fn of_four(seed: u64) -> (Cluster, PgId, OsdId) {
    let mut c = Cluster::new(seed, 4, 1);
    c.log_entries_max = 100_000;
    (0..4).for_each(|osd| c.crash(OsdId(osd)));
    (0..4).for_each(|osd| c.start(OsdId(osd)));
    c.settle();
    c.append_to(0..OBJECTS, "x");
    let pg = c.pgs()[0];
    let leaves = c.map.pg_to_up_acting(pg).acting[1 + seed as usize % 2];
    (c, pg, leaves)
}

fn weigh(c: &mut Cluster, osd: OsdId, weight: u32) {
    c.map.osd_weight[osd.0 as usize] = weight;
    c.publish();
}

#[test]
fn a_copy_that_is_half_deleted_when_power_fails_does_not_pass_for_a_whole_one() {
    let mut halves = 0;
    for seed in 1500..1516 {
        let (mut c, pg, leaves) = of_four(seed);
        weigh(&mut c, leaves, 0);
        let left = c.rng.random_range(50..OBJECTS);
        while c.stored(leaves, pg).len() > left {
            c.step();
        }
        c.crash(leaves);
        weigh(&mut c, leaves, 0x10000);
        c.start(leaves);
        halves += usize::from((1..OBJECTS).contains(&c.stored(leaves, pg).len()));
        c.append_to(0..20, "y");
        c.settle();
        assert!(c.map.pg_to_up_acting(pg).acting.contains(&leaves));
        c.invariant_copies_agree();
        assert_eq!(c.stored(leaves, pg).len(), OBJECTS, "seed {seed}");
    }
    assert!(halves >= 8, "{halves}");
}

#[test]
fn an_order_to_delete_that_comes_late_does_not_hit_a_copy_that_is_wanted_again() {
    for seed in 1520..1524 {
        let (mut c, pg, leaves) = of_four(seed);
        let primary = c.primary(pg);
        let ordered = Rc::new(Cell::new(false));
        let heard = ordered.clone();
        c.witness = Some(Box::new(move |_, _, _, m| heard.set(heard.get() || matches!(m.body, PgBody::Remove))));
        weigh(&mut c, leaves, 0);
        for _ in 0..100_000 {
            if ordered.get() {
                break;
            }
            c.step();
        }
        assert!(ordered.get());
        c.held.insert((primary, leaves));
        weigh(&mut c, leaves, 0x10000);
        c.run(1000);
        c.held.clear();
        for _ in 0..1000 {
            c.step();
            assert!(!c.line(leaves).contains("ToDelete"), "seed {seed}");
        }
        c.settle();
        assert_eq!(c.stored(leaves, pg).len(), OBJECTS);
        c.invariant_copies_agree();
    }
}

#[test]
fn copies_that_are_deleted_take_turns() {
    let mut c = Cluster::new(1530, 3, 8);
    c.append_to(0..OBJECTS, "x");
    c.settle();
    let (pgs, osd) = (c.pgs(), OsdId(0));
    let held = |c: &mut Cluster| -> Vec<usize> { pgs.iter().map(|pg| c.stored(osd, *pg).len()).collect() };
    let before = held(&mut c);
    c.stuck_disk = Some(osd);
    c.map.pools.remove(&POOL);
    c.map.pool_name.remove(&POOL);
    c.publish();
    c.run(3000);
    assert!(pgs.iter().all(|pg| c.line_of(osd, *pg).contains("ToDelete")), "{}", c.line_of(osd, pgs[0]));
    let now = held(&mut c);
    let gone: Vec<usize> = before.iter().zip(&now).filter(|(a, b)| a != b).map(|(a, b)| a - b).collect();
    assert!(gone.len() == 1 && gone[0] <= 32, "{before:?} {now:?}");
    c.stuck_disk = None;
    c.run(3000);
    assert_eq!(held(&mut c).iter().sum::<usize>(), 0, "{}", c.line_of(osd, pgs[0]));
}
