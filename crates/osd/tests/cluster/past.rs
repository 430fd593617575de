//! Which past a placement group waits for, and what becomes of writes that nobody was told of.
//!
//! Upstream: doc/dev/peering.rst; doc/dev/osd_internals/log_based_pg.rst.

use crate::append;
use crate::harness::{Cluster, POOL};
use rand::Rng;
use types::OsdId;
use types::msg::OsdOp;
use types::msg::osd::osd_flag;

/// A cluster of three with one PG that one copy is enough to serve; the primary comes first in the list.
fn of_three(seed: u64) -> (Cluster, [OsdId; 3]) {
    let mut c = Cluster::new(seed, 3, 1);
    c.map.pools.get_mut(&POOL).unwrap().min_size = 1;
    c.publish();
    c.settle();
    let acting = c.map.pg_to_up_acting(c.pgs()[0]).acting;
    (c, acting.try_into().unwrap())
}

#[test]
fn of_every_interval_that_may_have_been_written_one_member_has_to_be_there() {
    for seed in 1000..1010 {
        let (mut c, [a, b, third]) = of_three(seed);
        assert_eq!(c.write("o", append("all,")).result, 0);
        c.crash(a);
        assert_eq!(c.write("o", append("two,")).result, 0);
        c.crash(b);
        assert_eq!(c.write("o", append("one")).result, 0);
        c.crash(third);
        // Two that lack the last write make no quorum: the only one to have it is waited for.
        c.start(a);
        c.start(b);
        let read = c.submit(0, "o", osd_flag::READ, vec![OsdOp::read(0, 0)]);
        c.run(3000);
        assert!(c.state(c.pgs()[0]).starts_with("down"), "seed {seed}: {}", c.status());
        assert!(c.pending[&read].reply.is_none());
        c.start(third);
        assert_eq!(c.wait(read).ops[0].outdata.contiguous(), "all,two,one");
        c.settle();
        c.invariant_copies_agree();
    }
}

#[test]
fn who_is_removed_from_the_cluster_is_not_waited_for() {
    let (mut c, [a, b, third]) = of_three(1060);
    assert_eq!(c.write("o", append("all,")).result, 0);
    c.crash(a);
    c.crash(b);
    assert_eq!(c.write("o", append("one")).result, 0);
    c.crash(third);
    c.start(a);
    c.start(b);
    c.until_state(c.pgs()[0], "down");
    c.purge(third);
    assert_eq!(c.read("o"), b"all,");
    assert_eq!(c.write("o", append("more")).result, 0);
}

#[test]
fn an_interval_whose_primary_never_was_seen_alive_in_it_is_not_waited_for() {
    for seed in 1010..1020 {
        let (mut c, [a, b, third]) = of_three(seed);
        assert_eq!(c.write("o", append("all")).result, 0);
        // The map says that the third is alone, and it ends before it hears of that.
        c.crash(a);
        c.crash(b);
        c.publish();
        c.crash(third);
        c.publish();
        c.start(a);
        c.start(b);
        assert_eq!(c.read("o"), b"all", "seed {seed}");
        assert_eq!(c.write("o", append(",more")).result, 0);
        c.start(third);
        c.settle();
        c.invariant_copies_agree();
        assert_eq!(c.read("o"), b"all,more");
    }
}

#[test]
fn what_only_a_primary_wrote_that_others_left_behind_is_undone() {
    for seed in 1020..1050 {
        let (mut c, [primary, ..]) = of_three(seed);
        (0..6).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
        // It writes, changes and removes, and nobody but its own disk hears of it; then its client is gone.
        c.cut_off(primary);
        let delete = OsdOp::from(types::msg::Op::Delete);
        let ops = [("o0", append("lost")), ("o1", vec![delete]), ("new", append("lost")), ("o2", vec![OsdOp::truncate(0)])];
        let tids: Vec<u64> = ops.into_iter().map(|(name, ops)| c.submit(1, name, osd_flag::WRITE, ops)).collect();
        let steps = c.rng.random_range(100..400);
        c.run(steps);
        assert!(tids.iter().all(|tid| c.pending.remove(tid).unwrap().reply.is_none()));
        c.crash(primary);
        c.rejoin(primary);
        let others_write = seed % 2 == 0;
        if others_write {
            (3..6).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("y")).result, 0));
            assert_eq!(c.write("o0", append("y")).result, 0);
        } else {
            c.run(3000);
        }
        c.start(primary);
        c.settle();
        c.invariant_copies_agree();
        let of = |n: usize| if others_write && [0, 3, 4, 5].contains(&n) { "xy" } else { "x" };
        (0..6).for_each(|n| assert_eq!(c.read(&format!("o{n}")), of(n).as_bytes(), "o{n}, seed {seed}"));
        assert!(c.read("new").is_empty(), "seed {seed}");
        assert_eq!(c.scrub(true, false), "deep-scrub ok");
    }
}
