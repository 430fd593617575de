//! PGs are merged while clients write and OSDs fail: nothing is lost, nothing is done twice, and every copy is the same.

use super::append;
use crate::harness::{Cluster, POOL};
use crate::split::{names, set_pgs};
use bytes::Bytes;
use rand::Rng;
use std::collections::BTreeMap;
use std::time::Duration;
use types::msg::OsdOp;
use types::msg::osd::osd_flag;
use types::{OsdId, PgId};

/// What a manager does: fewer places, then the last PG is to end.
fn begin_merge(c: &mut Cluster) {
    let next = c.map.epoch.next();
    let pool = c.map.pools.get_mut(&POOL).unwrap();
    if pool.pg_num == 1 || pool.pg_num_pending < pool.pg_num {
        return;
    }
    pool.pgp_num = pool.pgp_num.min(pool.pg_num - 1);
    pool.pg_num_pending = pool.pg_num - 1;
    pool.last_change = next;
    c.publish();
}

fn pg_num(c: &Cluster) -> u32 {
    c.map.pools[&POOL].pg_num
}

/// Until there are so few.
fn merge_to(c: &mut Cluster, n: u32) {
    for _ in 0..400 {
        if pg_num(c) == n {
            return;
        }
        begin_merge(c);
        c.run(600);
    }
    panic!("never {n}: {}", c.status());
}

#[test]
fn a_merge_moves_no_object_and_loses_none() {
    let mut c = Cluster::new(61, 4, 13);
    c.settle();
    for n in 0..60 {
        assert_eq!(c.write(&format!("o{n}"), append(&format!("value {n}"))).result, 0);
    }
    for pgs in [12, 8, 5, 2, 1] {
        merge_to(&mut c, pgs);
        c.settle();
        let mut listed = names(&mut c);
        listed.sort();
        let mut wanted: Vec<String> = (0..60).map(|n| format!("o{n}")).collect();
        wanted.sort();
        assert_eq!(listed, wanted, "{pgs}");
        for n in 0..60 {
            assert_eq!(c.read(&format!("o{n}")), format!("value {n}").into_bytes());
        }
        let objects: i64 = c.pgs().into_iter().map(|pg| c.totals(pg).0).sum();
        assert_eq!(objects, 60, "{pgs}");
        c.invariant_copies_agree();
    }
    assert_eq!(c.merges, 12);
}

#[test]
fn a_pair_that_is_clean_is_merged_without_copying_anything() {
    let mut c = Cluster::new(62, 3, 2);
    c.settle();
    c.append_to(0..20, "x");
    c.settle();
    begin_merge(&mut c);
    for _ in 0..100_000 {
        assert!(c.pushes().is_empty());
        if pg_num(&c) == 1 && c.is_clean() {
            break;
        }
        c.step();
    }
    assert_eq!((pg_num(&c), c.is_clean(), c.bounces), (1, true, 0));
}

/// A pool of shards whose PGs have them in different order on the same OSDs.
fn jumbled(seed: u64, osds: i32, pgs: u32, shape: (u8, u8)) -> Cluster {
    let mut c = Cluster::erasure_coded(seed, osds, pgs, shape, &[]);
    // Whoever comes first gets the first shard: each PG has its own history of who was away when there was nothing in it yet.
    c.settle();
    for away in 0..osds {
        c.crash(OsdId(away));
        c.run(300);
        let more = c.map.pools[&POOL].pg_num + 1;
        set_pgs(&mut c, more, more);
        c.run(600);
        c.start(OsdId(away));
        c.settle();
    }
    c
}

#[test]
fn pgs_that_are_different_shards_on_the_same_osds_are_merged_and_split_again() {
    for (seed, shape, osds) in [(70, (2, 1), 3), (71, (2, 2), 5), (72, (4, 2), 7)] {
        let mut c = jumbled(seed, osds, 5, shape);
        for n in 0..60 {
            assert_eq!(c.write(&format!("o{n}"), append(&format!("value {n}"))).result, 0);
        }
        c.settle();
        let mut mixed = 0;
        let all = pg_num(&c);
        for pgs in [all - 3, 4, 1, 3, 8, 2] {
            match pgs < pg_num(&c) {
                true => merge_to(&mut c, pgs),
                false => set_pgs(&mut c, pgs, pgs),
            }
            c.settle();
            mixed += c.mixed_copies();
            for n in 0..60 {
                assert_eq!(c.read(&format!("o{n}")), format!("value {n}").into_bytes(), "{shape:?} {pgs}");
                assert_eq!(c.write(&format!("o{n}"), append("+")).result, 0);
                assert_eq!(c.write(&format!("o{n}"), vec![OsdOp::write_full(format!("value {n}").into_bytes().into())]).result, 0);
            }
            c.settle();
            c.invariant_copies_agree();
        }
        assert!(mixed > 0, "{shape:?}: all PGs had their shards in the same order");
        // Each is away once, and comes back; one loses its disk, and gets all of it again.
        for osd in (0..osds).map(OsdId) {
            c.crash(osd);
            (0..60).for_each(|n| assert_eq!(c.read(&format!("o{n}")), format!("value {n}").into_bytes(), "{shape:?} without {osd}"));
            assert_eq!(c.write("o7", append("!")).result, 0);
            assert_eq!(c.write("o7", vec![OsdOp::write_full("value 7".into())]).result, 0);
            c.start(osd);
            c.settle();
        }
        c.crash(OsdId(1));
        c.replace_disk(OsdId(1));
        c.start(OsdId(1));
        c.settle();
        c.invariant_copies_agree();
        c.crash(OsdId(2));
        (0..60).for_each(|n| assert_eq!(c.read(&format!("o{n}")), format!("value {n}").into_bytes(), "{shape:?} from the new disk"));
    }
}

#[test]
fn a_request_is_known_to_the_pg_that_took_its_object_over() {
    let mut c = Cluster::new(63, 3, 8);
    c.settle();
    let mut done = Vec::new();
    // More than a log keeps: some are known beyond it only.
    for n in 0..300 {
        let tid = c.submit(0, &format!("o{}", n % 10), osd_flag::WRITE, append("x"));
        let op = c.pending[&tid].op.clone();
        assert_eq!(c.wait(tid).result, 0);
        done.push(op);
    }
    for pgs in [7, 1] {
        merge_to(&mut c, pgs);
        c.settle();
        for op in &done {
            assert_eq!(c.repeat(op).result, 0);
        }
        for n in 0..10 {
            assert_eq!(c.read(&format!("o{n}")), vec![b'x'; 30]);
        }
        c.invariant_copies_agree();
    }
}

#[test]
fn operations_wait_while_a_pair_gets_ready_and_go_on_when_it_does_not() {
    let mut c = Cluster::new(64, 3, 2);
    c.settle();
    c.append_to(0..10, "1");
    c.crash(OsdId(2));
    c.run(300);
    begin_merge(&mut c);
    c.until_state(PgId { pool: POOL, seed: 0 }, "premerge");
    let open: Vec<u64> = (0..10).map(|n| c.submit(0, &format!("o{n}"), osd_flag::WRITE, append("2"))).collect();
    c.run(50);
    assert!(open.iter().all(|tid| c.pending[tid].reply.is_none()));
    // With a copy less it is not clean: after a while the pair serves again.
    for tid in open {
        assert_eq!(c.wait(tid).result, 0);
    }
    assert_eq!((pg_num(&c), c.merges, c.bounces), (2, 0, 1));
    c.start(OsdId(2));
    c.settle();
    merge_to(&mut c, 1);
    c.settle();
    (0..10).for_each(|n| assert_eq!(c.read(&format!("o{n}")), b"12"));
    c.invariant_copies_agree();
}

#[test]
fn an_osd_that_slept_through_a_merge_is_backfilled() {
    for seed in 0..20 {
        let mut c = Cluster::new(6500 + seed, 4, 4);
        c.settle();
        c.append_to(0..12, "1");
        let away = OsdId((seed % 4) as i32);
        c.crash(away);
        c.append_to(0..6, "2");
        // Without it nothing is clean before it is out.
        c.map.osd_weight[away.0 as usize] = 0;
        c.publish();
        c.settle();
        merge_to(&mut c, 2);
        c.append_to(3..9, "3");
        if seed % 2 == 0 {
            set_pgs(&mut c, 5, 5);
            c.run(200);
        }
        c.map.osd_weight[away.0 as usize] = 0x10000;
        c.start(away);
        c.settle();
        c.invariant_copies_agree();
        let of = |n| [&b"1"[..], if n < 6 { b"2" } else { b"" }, if (3..9).contains(&n) { b"3" } else { b"" }].concat();
        (0..12).for_each(|n| assert_eq!(c.read(&format!("o{n}")), of(n), "{seed} {n}"));
        let mut listed = names(&mut c);
        listed.sort();
        listed.dedup();
        assert_eq!(listed.len(), 12);
    }
}

#[test]
fn whoever_misses_the_merge_by_a_crash_makes_it_when_it_starts() {
    for seed in 0..30 {
        let mut c = Cluster::new(6600 + seed, 3, 4);
        c.settle();
        c.append_to(0..20, "x");
        begin_merge(&mut c);
        while c.merges == 0 {
            c.step();
        }
        let steps = c.rng.random_range(0..30);
        c.run(steps);
        (0..3).for_each(|osd| c.crash(OsdId(osd)));
        (0..3).for_each(|osd| c.start(OsdId(osd)));
        c.settle();
        assert_eq!(pg_num(&c), 3);
        (0..20).for_each(|n| assert_eq!(c.read(&format!("o{n}")), b"x", "{seed}"));
        c.invariant_copies_agree();
    }
}

/// Random crashes, lost sessions, writes, splits and merges; a write that was answered is there once, whatever the PG it was sent to.
#[test]
fn what_was_acknowledged_survives_merges_splits_and_crashes() {
    let seeds = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let mut merges = 0;
    for seed in first..first + seeds {
        merges += run(seed);
    }
    assert!(merges >= seeds as u32 / 2, "{merges}");
    println!("{merges} merges in {seeds} seeds");
}

fn run(seed: u64) -> u32 {
    let osds = 3 + (seed / 3 % 3) as i32;
    let (pgs, seed_of) = (2 + (seed % 7) as u32, seed ^ 0x6d65_7267);
    // Every third has a pool of shards.
    let mut c = match (seed % 3, osds) {
        (2, 3) => Cluster::erasure_coded(seed_of, osds, pgs, (2, 1), &[]),
        (2, _) => Cluster::erasure_coded(seed_of, osds, pgs, (2, 2), &[]),
        _ => Cluster::new(seed_of, osds, pgs),
    };
    c.log_entries_max = [20, 5, 100][seed as usize % 3];
    c.settle();
    let (mut expected, mut open, mut done): (BTreeMap<String, Vec<String>>, Vec<u64>, Vec<_>) = Default::default();
    for round in 0..80 {
        let name = format!("o{}", c.rng.random_range(0..12));
        let text = format!("<{round}>");
        let tid = c.submit(0, &name, osd_flag::WRITE, vec![OsdOp::append(Bytes::copy_from_slice(text.as_bytes()))]);
        done.push(c.pending[&tid].op.clone());
        open.push(tid);
        expected.entry(name).or_default().push(text);
        let steps = c.rng.random_range(0..100);
        c.run(steps);
        match c.rng.random_range(0..14) {
            0 => {
                let pool = &c.map.pools[&POOL];
                let (pgs, pgps) = (pool.pg_num, pool.pgp_num);
                let pgs = (pgs + c.rng.random_range(0..=2)).min(12);
                let pgps = c.rng.random_range(pgps..=pgs);
                set_pgs(&mut c, pgs, pgps);
            }
            1 | 2 => {
                let osd = OsdId(c.rng.random_range(0..osds));
                match c.is_running(osd) {
                    true => c.crash(osd),
                    false => c.start(osd),
                }
            }
            3 => c.lose_some_session(),
            4 => c.tick(Duration::from_secs(1)),
            5..=8 => begin_merge(&mut c),
            _ => {}
        }
    }
    (0..osds).map(OsdId).filter(|osd| !c.is_running(*osd)).collect::<Vec<_>>().into_iter().for_each(|osd| c.start(osd));
    for tid in open {
        assert_eq!(c.wait(tid).result, 0, "seed {seed}");
    }
    let merges_under_faults = c.merges;
    c.settle_merges();
    c.settle();
    let again = c.rng.random_range(1..=pg_num(&c));
    merge_to(&mut c, again);
    c.settle();
    for op in &done {
        assert_eq!(c.repeat(op).result, 0, "seed {seed}");
    }
    c.invariant_copies_agree();
    for (name, texts) in expected {
        let found = String::from_utf8(c.read(&name)).unwrap();
        for text in &texts {
            assert_eq!(found.matches(text.as_str()).count(), 1, "seed {seed}: {name} {text}: {found}");
        }
    }
    merges_under_faults
}
