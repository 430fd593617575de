//! Which past a placement group waits for, and what becomes of writes that nobody was told of.
//!
//! Upstream: doc/dev/peering.rst; doc/dev/osd_internals/log_based_pg.rst.

use crate::harness::{Cluster, Network, POOL, session};
use crate::{append, overrun_log};
use rand::Rng;
use types::map::OsdMap;
use types::{Errno, OsdId, Utime};
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
        let writes = ["x", "y", "z"].map(|text| c.submit(1, "other", osd_flag::WRITE, append(text)));
        c.run(3000);
        assert!(c.state(c.pgs()[0]).starts_with("down"), "seed {seed}: {}", c.status());
        assert!(c.pending[&read].reply.is_none());
        assert!(c.blocks >= 2, "both clients were told to hold back");
        c.start(third);
        assert_eq!(c.wait(read).ops[0].outdata.contiguous(), "all,two,one");
        writes.into_iter().for_each(|write| assert_eq!(c.wait(write).result, 0));
        assert_eq!(c.read("other"), b"xyz", "seed {seed}");
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

/// `survivor` is all that is left of everything, with what was on its disk.
fn only(c: &mut Cluster, survivor: OsdId) {
    let others: Vec<OsdId> = (0..3).map(OsdId).filter(|osd| *osd != survivor).collect();
    (0..3).for_each(|osd| c.crash(OsdId(osd)));
    others.into_iter().for_each(|osd| c.declare_lost(osd));
    c.start(survivor);
}

#[test]
fn what_is_acknowledged_is_on_every_disk() {
    for seed in 2000..2150 {
        let (mut c, acting) = of_three(seed);
        // A disk is rarely slower than two others and the way to them.
        let survivor = acting[[0, 0, 0, 1, 2][seed as usize % 5]];
        assert_eq!(c.write("o", append("x")).result, 0);
        only(&mut c, survivor);
        assert_eq!(c.read("o"), b"x", "on {survivor}, seed {seed}");
    }
}

#[test]
fn what_is_clean_is_on_every_disk() {
    for seed in 1100..1140 {
        let (mut c, [.., third]) = of_three(seed);
        c.crash(third);
        if seed % 2 == 0 {
            overrun_log(&mut c);
        }
        (0..20).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
        c.start(third);
        while c.state(c.pgs()[0]) != "active+clean" {
            c.step();
        }
        only(&mut c, third);
        (0..20).for_each(|n| assert_eq!(c.read(&format!("o{n}")), b"x", "o{n}, seed {seed}"));
    }
}

#[test]
fn what_an_interval_that_is_over_has_sent_is_not_heard_any_more() {
    for seed in 1140..1160 {
        let (mut c, [primary, b, third]) = of_three(seed);
        assert_eq!(c.write("o", append("x")).result, 0);
        // Its writes are on their way to the others when these go on without it.
        c.cut_off(primary);
        let late = c.submit(1, "o", osd_flag::WRITE, append("late"));
        c.run(100);
        c.pending.remove(&late);
        c.call_down(primary);
        assert_eq!(c.write("o", append("y")).result, 0, "seed {seed}: {b} and {third} go on");
        c.rejoin(primary);
        c.settle();
        c.invariant_copies_agree();
        assert_eq!(c.read("o"), b"xy", "seed {seed}");
    }
}

#[test]
fn a_replica_drops_what_it_alone_knows_of_as_a_primary_does() {
    for seed in 1160..1180 {
        let (mut c, [a, b, third]) = of_three(seed);
        (0..4).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
        c.cut_off(third);
        let delete = OsdOp::from(types::msg::Op::Delete);
        let ops = [("o0", append("lost")), ("o1", vec![delete]), ("new", append("lost"))];
        let tids: Vec<u64> = ops.into_iter().map(|(name, ops)| c.submit(1, name, osd_flag::WRITE, ops)).collect();
        c.run(400);
        assert!(tids.iter().all(|tid| c.pending.remove(tid).unwrap().reply.is_none()), "the third has not answered");
        c.crash(a);
        c.crash(b);
        c.rejoin(third);
        assert_eq!(c.write("o0", append("y")).result, 0, "seed {seed}");
        c.start(b);
        c.start(a);
        c.settle();
        c.invariant_copies_agree();
        let contents: Vec<Vec<u8>> = ["o0", "o1", "new"].iter().map(|name| c.read(name)).collect();
        assert_eq!(contents, [&b"xy"[..], b"x", b""], "seed {seed}");
    }
}

#[test]
fn logs_are_not_trimmed_beyond_what_all_have() {
    let mut c = Cluster::new(1180, 3, 1);
    let all: Vec<OsdId> = (0..3).map(OsdId).collect();
    // From the next start on.
    c.log_entries_max = 5;
    for osd in all {
        c.crash(osd);
        c.start(osd);
        c.settle();
    }
    (0..30).for_each(|n| assert_eq!(c.write(&format!("o{}", n % 3), append("x")).result, 0));
    let [primary, .., third]: [OsdId; 3] = c.map.pg_to_up_acting(c.pgs()[0]).acting.try_into().unwrap();
    let tail = |c: &Cluster| c.line(primary).split_once('[').unwrap().1.split_once("..").unwrap().0.to_owned();
    let before = tail(&c);
    assert_ne!(before, "0'0", "it is trimmed at all: {}", c.line(primary));
    c.cut_off(third);
    let tids: Vec<u64> = (0..40).map(|n| c.submit(1, &format!("o{}", n % 3), osd_flag::WRITE, append("y"))).collect();
    c.run(600);
    assert!(tids.iter().all(|tid| c.pending[tid].reply.is_none()));
    let committed = 30 + 1;
    let number = |tail: &str| tail.split_once('\'').unwrap().1.parse::<u64>().unwrap();
    assert!(number(&tail(&c)) < committed, "{}", c.line(primary));
    c.rejoin(third);
    tids.into_iter().for_each(|tid| assert_eq!(c.wait(tid).result, 0));
    c.settle();
    c.invariant_copies_agree();
}

#[test]
fn an_older_interval_does_not_matter_once_a_newer_one_is_known_to_have_all_of_it() {
    for seed in 1190..1200 {
        let (mut c, [a, b, third]) = of_three(seed);
        assert_eq!(c.write("o", append("all,")).result, 0);
        c.crash(a);
        c.crash(b);
        assert_eq!(c.write("o", append("one")).result, 0);
        c.start(b);
        // The first to have it gives it to another, and goes; the one who comes back knows of neither.
        c.until_state(c.pgs()[0], "active");
        while c.read("o") != b"all,one" || c.line(b).contains("missing 1") {
            c.step();
        }
        c.run(2000);
        c.crash(third);
        c.start(a);
        assert_eq!(c.read("o"), b"all,one", "seed {seed}");
    }
}

#[test]
fn an_interval_with_too_few_to_be_written_is_not_waited_for() {
    for seed in 1200..1210 {
        let mut c = Cluster::new(seed, 3, 1);
        c.settle();
        let [a, b, third]: [OsdId; 3] = c.map.pg_to_up_acting(c.pgs()[0]).acting.try_into().unwrap();
        assert_eq!(c.write("o", append("all")).result, 0);
        c.crash(a);
        c.crash(b);
        c.until_state(c.pgs()[0], "peered");
        c.crash(third);
        c.start(a);
        c.start(b);
        assert_eq!(c.write("o", append(",more")).result, 0, "seed {seed}");
        assert_eq!(c.read("o"), b"all,more");
    }
}

#[test]
fn requests_keep_their_order_over_an_interval_with_the_same_primary() {
    for seed in 1210..1250 {
        let (mut c, [primary, b, third]) = of_three(seed);
        let tids: Vec<u64> = (0..6).map(|n| c.submit(1, "o", osd_flag::WRITE, append(&format!("{n},")))).collect();
        let steps = c.rng.random_range(0..40);
        c.run(steps);
        c.crash(if seed % 2 == 0 { b } else { third });
        tids.into_iter().for_each(|tid| assert_eq!(c.wait(tid).result, 0));
        assert_eq!(c.read("o"), b"0,1,2,3,4,5,", "seed {seed}, of {primary}");
    }
}

#[test]
fn a_copy_that_was_away_while_its_pg_moved_is_deleted_when_it_is_back() {
    for seed in 1250..1255 {
        let mut c = Cluster::new(seed, 4, 1);
        c.settle();
        (0..10).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
        let pg = c.pgs()[0];
        let stray = c.map.pg_to_up_acting(pg).acting[1];
        c.crash(stray);
        c.map.osd_weight[stray.0 as usize] = 0;
        c.publish();
        c.settle();
        c.start(stray);
        assert_eq!(c.stored(stray, pg).len(), 10);
        c.run(200);
        c.settle();
        c.run(2000);
        assert!(c.stored(stray, pg).is_empty(), "seed {seed}: {}", c.status());
    }
}

#[test]
fn a_pool_that_is_removed_is_deleted_everywhere_also_by_who_restarts_meanwhile() {
    let (mut c, [a, b, third]) = of_three(1260);
    (0..100).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
    let pg = c.pgs()[0];
    c.crash(third);
    c.map.pools.remove(&POOL);
    c.map.pool_name.remove(&POOL);
    c.publish();
    c.run(30);
    c.crash(b);
    c.start(b);
    c.start(third);
    c.run(3000);
    for osd in [a, b, third] {
        assert!(c.stored(osd, pg).is_empty(), "{osd}");
    }
}

#[test]
fn who_is_blocklisted_is_refused() {
    let (mut c, _) = of_three(1270);
    assert_eq!(c.write("o", append("x")).result, 0);
    let until = Utime { sec: 100_000, nsec: 0 };
    c.map.blocklist.insert(session(1).addr.as_any(), until);
    c.publish();
    c.settle();
    let tid = c.submit(1, "o", osd_flag::WRITE, append("y"));
    assert_eq!(c.wait(tid).result, Errno::ESHUTDOWN.wire());
    assert_eq!(c.read("o"), b"x", "others are served");
}

/// Whoever takes over what a client had, as RBD's exclusive lock is, relies on that.
#[test]
fn what_waited_when_its_client_was_blocklisted_is_refused() {
    let (mut c, [primary, ..]) = of_three(1280);
    assert_eq!(c.write("o", append("x")).result, 0);
    c.crash(primary);
    assert_eq!(c.write("o", append("y")).result, 0);
    c.map.flags |= OsdMap::FLAG_NORECOVER;
    c.publish();
    c.start(primary);
    let pg = c.pgs()[0];
    while c.primary(pg) != primary {
        c.step();
    }
    c.until_state(pg, "active");
    // It lacks the object, and gets it from nobody for a while.
    c.lose(primary, Some(Network::Cluster));
    let tid = c.submit(1, "o", osd_flag::WRITE, append("z"));
    c.run(50);
    assert!(c.pending[&tid].reply.is_none(), "nothing to wait for");
    c.map.blocklist.insert(session(1).addr.as_any(), Utime { sec: 100_000, nsec: 0 });
    c.publish();
    c.run(50);
    c.lose(primary, None);
    assert_eq!(c.wait(tid).result, Errno::ESHUTDOWN.wire());
    assert_eq!(c.read("o"), b"xy");
}
