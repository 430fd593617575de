//! Placement groups that lost too much, and begin anew on an operator's order.

use super::harness::{Cluster, POOL};
use std::time::Duration;
use types::msg::OsdOp;
use types::{Errno, OsdId};

/// An erasure-coded PG (2+1) with more objects than its log has entries, of which one shard is left: two OSDs are away, declared lost.
fn one_shard_left(seed: u64, objects: usize) -> Cluster {
    let logs = [("osd_min_pg_log_entries", "100"), ("osd_max_pg_log_entries", "100")];
    let mut c = Cluster::erasure_coded(seed, 3, 1, (2, 1), &logs);
    c.settle();
    for n in 0..objects {
        assert_eq!(c.write(&format!("o{n}"), vec![OsdOp::write_full(vec![n as u8; 100].into())]).result, 0);
    }
    c.settle();
    for osd in [1, 2].map(OsdId) {
        c.crash(osd);
    }
    for osd in [1, 2].map(OsdId) {
        c.declare_lost(osd);
    }
    c.until_state(c.pgs()[0], "incomplete");
    c
}

/// Gives the order in an interval that goes on.
fn give_up(c: &mut Cluster) {
    let pg = c.pgs()[0];
    c.run_for(Duration::from_secs(2));
    c.until_state(pg, "incomplete");
    c.order_create(pg);
    c.run_for(Duration::from_secs(2));
}

/// Nobody has any of the old objects, for clients or on a disk, and what is written is there whoever is away.
fn check_new(c: &mut Cluster) {
    let pg = c.pgs()[0];
    c.settle();
    assert_eq!(c.call("o3", types::msg::osd::osd_flag::READ, vec![OsdOp::read(0, 0)]).result, Errno::ENOENT.wire());
    assert_eq!(c.write("new", vec![OsdOp::write_full(vec![7; 100].into())]).result, 0);
    c.settle();
    c.invariant_copies_agree();
    for osd in (0..3).map(OsdId) {
        assert_eq!(c.stored(osd, pg), ["new"], "{osd}");
        c.crash(osd);
        assert_eq!(c.read("new"), [7; 100], "without {osd}");
        c.start(osd);
        c.settle();
    }
    assert_eq!((c.list(pg), c.totals(pg)), (vec!["new".to_owned()], (1, 100)));
}

#[test]
fn a_pg_begins_anew_with_empty_disks_for_those_that_are_lost() {
    let mut c = one_shard_left(2500, 300);
    for osd in [1, 2].map(OsdId) {
        c.replace_disk(osd);
        c.start(osd);
    }
    let pg = c.pgs()[0];
    give_up(&mut c);
    assert_ne!(c.state(pg), "creating");
    check_new(&mut c);
}

#[test]
fn copies_that_come_back_later_are_void() {
    for (seed, survivor_restarts) in [(2501, false), (2502, true)] {
        let mut c = one_shard_left(seed, 300);
        let pg = c.pgs()[0];
        c.order_create(pg);
        // Alone it can only be incomplete again.
        c.run_for(Duration::from_secs(2));
        assert!(c.state(pg).contains("incomplete") && c.stored(OsdId(0), pg).is_empty(), "{}", c.state(pg));
        if survivor_restarts {
            c.crash(OsdId(0));
            c.start(OsdId(0));
        }
        c.start(OsdId(1));
        c.run_for(Duration::from_secs(1));
        c.start(OsdId(2));
        check_new(&mut c);
    }
}

#[test]
fn a_pg_that_went_on_without_the_new_beginning_keeps_what_it_has() {
    let mut c = one_shard_left(2503, 300);
    let pg = c.pgs()[0];
    c.order_create(pg);
    c.run_for(Duration::from_secs(2));
    c.crash(OsdId(0));
    c.start(OsdId(1));
    c.start(OsdId(2));
    c.until_state(pg, "active");
    assert_eq!(c.write("later", vec![OsdOp::write_full(vec![9; 10].into())]).result, 0);
    c.start(OsdId(0));
    c.settle();
    c.invariant_copies_agree();
    for osd in (0..3).map(OsdId) {
        c.crash(osd);
        (0..300).step_by(29).for_each(|n| assert_eq!(c.read(&format!("o{n}")), vec![n as u8; 100], "o{n} without {osd}"));
        assert_eq!(c.read("later"), [9; 10]);
        c.start(osd);
        c.settle();
    }
}

#[test]
fn whoever_is_not_incomplete_keeps_what_it_has() {
    let mut c = Cluster::erasure_coded(2504, 3, 1, (2, 1), &[]);
    c.settle();
    assert_eq!(c.write("o", vec![OsdOp::write_full(vec![1; 10].into())]).result, 0);
    let pg = c.pgs()[0];
    c.order_create(pg);
    c.settle();
    c.crash(OsdId(1));
    c.order_create(pg);
    c.run_for(Duration::from_secs(1));
    assert_eq!(c.read("o"), [1; 10]);
    // Down: whoever is away may have what was written.
    c.crash(OsdId(2));
    c.until_state(pg, "down");
    c.order_create(pg);
    c.run_for(Duration::from_secs(1));
    c.start(OsdId(1));
    c.start(OsdId(2));
    c.settle();
    assert_eq!(c.read("o"), [1; 10]);
}

#[test]
fn an_order_is_void_when_the_interval_ends_before_all_is_deleted() {
    let mut c = one_shard_left(2505, 2000);
    let pg = c.pgs()[0];
    let held = c.stored(OsdId(0), pg).len();
    c.order_create(pg);
    assert_eq!(c.state(pg).split('+').next(), Some("creating"));
    while c.stored(OsdId(0), pg).len() == held {
        c.step();
    }
    // An interval begins.
    c.map.pools.get_mut(&POOL).unwrap().min_size = 3;
    c.publish();
    c.run_for(Duration::from_secs(2));
    let left = c.stored(OsdId(0), pg).len();
    assert!((1..held).contains(&left) && c.state(pg).contains("incomplete"), "{left} of {held} {}", c.state(pg));
    c.map.pools.get_mut(&POOL).unwrap().min_size = 2;
    for osd in [1, 2].map(OsdId) {
        c.replace_disk(osd);
        c.start(osd);
    }
    give_up(&mut c);
    check_new(&mut c);
}
