//! PGs are split while clients write and OSDs fail: nothing is lost, nothing is done twice, and every copy is the same.

use super::append;
use crate::harness::{Cluster, POOL};
use bytes::Bytes;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::msg::OsdOp;
use types::msg::osd::osd_flag;
use types::{OsdId, PgId};

pub fn set_pgs(c: &mut Cluster, pg_num: u32, pgp_num: u32) {
    let pool = c.map.pools.get_mut(&POOL).unwrap();
    (pool.pg_num, pool.pg_num_pending, pool.pg_num_target) = (pg_num, pg_num, pg_num);
    (pool.pgp_num, pool.pgp_num_target) = (pgp_num, pgp_num);
    pool.last_change = c.map.epoch.next();
    c.publish();
}

pub fn names(c: &mut Cluster) -> Vec<String> {
    let pgs: Vec<PgId> = c.pgs();
    pgs.into_iter().flat_map(|pg| c.list(pg)).collect()
}

#[test]
fn a_split_moves_no_object_and_loses_none() {
    let mut c = Cluster::new(51, 3, 2);
    c.settle();
    for n in 0..60 {
        assert_eq!(c.write(&format!("o{n}"), append(&format!("value {n}"))).result, 0);
    }
    for (pgs, pgps) in [(4, 2), (5, 5), (16, 5), (33, 33)] {
        set_pgs(&mut c, pgs, pgps);
        c.settle();
        let mut listed = names(&mut c);
        listed.sort();
        let mut wanted: Vec<String> = (0..60).map(|n| format!("o{n}")).collect();
        wanted.sort();
        assert_eq!(listed, wanted, "{pgs}");
        for n in 0..60 {
            assert_eq!(c.read(&format!("o{n}")), format!("value {n}").into_bytes());
        }
        c.invariant_copies_agree();
    }
}

#[test]
fn a_request_is_known_to_the_child_that_has_its_object() {
    let mut c = Cluster::new(52, 3, 1);
    c.settle();
    let mut done = Vec::new();
    // More than a log keeps: some are known beyond it only.
    for n in 0..150 {
        let tid = c.submit(0, &format!("o{}", n % 10), osd_flag::WRITE, append("x"));
        let op = c.pending[&tid].op.clone();
        assert_eq!(c.wait(tid).result, 0);
        done.push(op);
    }
    set_pgs(&mut c, 8, 8);
    c.settle();
    for op in done {
        assert_eq!(c.send_again(op).result, 0);
    }
    for n in 0..10 {
        assert_eq!(c.read(&format!("o{n}")), vec![b'x'; 15]);
    }
    c.invariant_copies_agree();
}

#[test]
fn an_osd_that_was_away_splits_what_it_has_when_it_hears_of_it() {
    let mut c = Cluster::new(53, 3, 1);
    c.settle();
    c.append_to(0..12, "1");
    c.crash(OsdId(2));
    c.append_to(0..6, "2");
    set_pgs(&mut c, 2, 1);
    c.append_to(3..9, "3");
    set_pgs(&mut c, 7, 1);
    c.run(300);
    c.start(OsdId(2));
    c.settle();
    c.invariant_copies_agree();
    let of = |n| [&b"1"[..], if n < 6 { b"2" } else { b"" }, if (3..9).contains(&n) { b"3" } else { b"" }].concat();
    (0..12).for_each(|n| assert_eq!(c.read(&format!("o{n}")), of(n), "{n}"));
}

#[test]
fn a_backfill_goes_on_in_every_child_where_it_stood() {
    for seed in 0..12 {
        let mut c = Cluster::with_options(5400 + seed, 3, 1, &[("osd_backfill_scan_min", "2"), ("osd_backfill_scan_max", "2")]);
        c.settle();
        c.append_to(0..40, "old");
        c.crash(OsdId(1));
        for n in 0..80 {
            assert_eq!(c.write(&format!("o{}", n % 50), append("new")).result, 0);
        }
        c.start(OsdId(1));
        c.until_state(PgId { pool: POOL, seed: 0 }, "backfilling");
        let steps = c.rng.random_range(0..400);
        c.run(steps);
        set_pgs(&mut c, 4, 1);
        if seed % 3 == 0 {
            c.crash(OsdId(1));
            c.start(OsdId(1));
        }
        c.settle();
        c.invariant_copies_agree();
        for n in 0..50 {
            let times = if n < 30 { 2 } else { 1 };
            let old = if n < 40 { "old" } else { "" };
            assert_eq!(c.read(&format!("o{n}")), format!("{old}{}", "new".repeat(times)).into_bytes(), "{seed} {n}");
        }
    }
}

#[test]
fn totals_are_counted_after_a_split() {
    let mut c = Cluster::new(55, 3, 1);
    c.settle();
    for n in 0..50usize {
        assert_eq!(c.write(&format!("o{n}"), vec![OsdOp::write_full(vec![1; n * 10].into())]).result, 0);
    }
    set_pgs(&mut c, 4, 4);
    for n in 0..50usize {
        assert_eq!(c.write(&format!("o{n}"), vec![OsdOp::write_full(vec![2; n * 20].into())]).result, 0);
    }
    c.settle();
    (0..4).for_each(|_| c.tick(Duration::from_secs(1)));
    let by_pg: BTreeMap<PgId, usize> = c.pgs().into_iter().map(|pg| (pg, c.list(pg).len())).collect();
    let found: BTreeMap<PgId, usize> = c.pgs().into_iter().map(|pg| (pg, c.totals(pg).0 as usize)).collect();
    assert_eq!(found, by_pg);
    let bytes: i64 = c.pgs().into_iter().map(|pg| c.totals(pg).1).sum();
    assert_eq!(bytes, (0..50).map(|n| n * 20).sum::<i64>());
}

/// Random crashes, lost sessions, writes and splits; a write that was answered is there once, whatever the PG it was sent to.
#[test]
fn what_was_acknowledged_survives_splits_and_crashes() {
    let seeds = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds {
        run(seed);
    }
}

fn run(seed: u64) {
    let osds = 3 + (seed % 3) as i32;
    let mut c = Cluster::new(seed, osds, 1 + (seed % 4) as u32);
    c.log_entries_max = [20, 5, 100][seed as usize % 3];
    c.settle();
    let (mut expected, mut open): (BTreeMap<String, Vec<String>>, Vec<u64>) = Default::default();
    let mut unsure: BTreeSet<String> = BTreeSet::new();
    for round in 0..60 {
        let name = format!("o{}", c.rng.random_range(0..12));
        let text = format!("<{round}>");
        let tid = c.submit(0, &name, osd_flag::WRITE, vec![OsdOp::append(Bytes::copy_from_slice(text.as_bytes()))]);
        open.push(tid);
        expected.entry(name).or_default().push(text);
        let steps = c.rng.random_range(0..60);
        c.run(steps);
        match c.rng.random_range(0..10) {
            0 => {
                let pool = &c.map.pools[&POOL];
                let (pgs, pgps) = (pool.pg_num, pool.pgp_num);
                let pgs = (pgs + c.rng.random_range(0..=pgs)).min(20);
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
            _ => {}
        }
    }
    (0..osds).map(OsdId).filter(|osd| !c.is_running(*osd)).collect::<Vec<_>>().into_iter().for_each(|osd| c.start(osd));
    for tid in open {
        if c.wait(tid).result != 0 {
            unsure.insert(format!("{tid}"));
        }
    }
    assert!(unsure.is_empty(), "seed {seed}: {unsure:?}");
    c.settle();
    c.invariant_copies_agree();
    for (name, texts) in expected {
        let found = String::from_utf8(c.read(&name)).unwrap();
        for text in &texts {
            assert_eq!(found.matches(text.as_str()).count(), 1, "seed {seed}: {name} {text}: {found}");
        }
    }
}
