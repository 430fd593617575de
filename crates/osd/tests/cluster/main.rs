//! Several OSD cores together: replication, peering and recovery under crashes, with every choice made by a seed.

mod anew;
mod attempts;
mod backoffs;
mod erasure;
mod filling;
mod flags;
mod forgotten;
mod full;
mod harness;
mod intake;
mod leases;
mod loggers;
mod lost;
mod merge;
mod networks;
mod no_room;
mod past;
mod removal;
mod scrub;
mod slots;
mod slow;
mod snapshots;
mod split;
mod told;
mod words;

use bytes::Bytes;
use harness::Cluster;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{OsdId, PgId};
use types::msg::{Op, OsdOp};
use types::msg::osd::osd_flag;

fn append(text: &str) -> Vec<OsdOp> {
    vec![OsdOp::append(Bytes::copy_from_slice(text.as_bytes()))]
}

#[test]
fn a_pg_that_is_told_to_peer_anew_asks_for_the_set_that_it_wants() {
    for (seed, others) in [(1900, 0), (1901, 1)] {
        let mut c = Cluster::new(seed, 4, 1);
        c.settle();
        assert_eq!(c.write("o", append("x")).result, 0);
        let pg = c.pgs()[0];
        let before = c.map.pg_to_up_acting(pg).acting;
        // As `pg repeer` does: the primary alone, or with somebody who has nothing.
        let stranger = (0..4).map(OsdId).find(|osd| !before.contains(osd)).unwrap();
        c.map.pg_temp.insert(pg, [before[0], stranger].into_iter().take(1 + others).collect());
        c.publish();
        c.settle();
        assert_eq!(c.map.pg_to_up_acting(pg).acting, before);
        assert!(c.map.pg_temp.is_empty());
        assert_eq!(c.write("o", append("y")).result, 0);
        assert_eq!(c.read("o"), b"xy");
        c.invariant_copies_agree();
    }
}

#[test]
fn a_new_cluster_becomes_clean_and_keeps_what_is_written() {
    let mut c = Cluster::new(1, 3, 8);
    c.settle();
    for n in 0..20 {
        let reply = c.write(&format!("o{n}"), vec![OsdOp::write_full(vec![n as u8; 5000].into())]);
        assert_eq!(reply.result, 0);
    }
    for n in 0..20 {
        assert_eq!(c.read(&format!("o{n}")), vec![n as u8; 5000]);
    }
    c.settle();
    c.invariant_copies_agree();
}

#[test]
fn everything_survives_a_power_cut_of_all() {
    let mut c = Cluster::new(2, 3, 4);
    c.settle();
    for n in 0..30 {
        assert_eq!(c.write(&format!("o{n}"), append(&format!("value {n}"))).result, 0);
    }
    for osd in 0..3 {
        c.crash(OsdId(osd));
    }
    for osd in 0..3 {
        c.start(OsdId(osd));
    }
    c.settle();
    for n in 0..30 {
        assert_eq!(c.read(&format!("o{n}")), format!("value {n}").into_bytes());
    }
    c.invariant_copies_agree();
}

#[test]
fn an_osd_that_was_away_is_brought_up_to_date_by_log() {
    let mut c = Cluster::new(3, 3, 4);
    c.settle();
    assert_eq!(c.write("before", append("1")).result, 0);
    assert_eq!(c.write("deleted", append("1")).result, 0);
    c.crash(OsdId(2));
    for n in 0..10 {
        assert_eq!(c.write(&format!("o{n}"), append("while away")).result, 0);
    }
    assert_eq!(c.write("before", append("2")).result, 0);
    assert_eq!(c.write("deleted", vec![types::msg::Op::Delete.into()]).result, 0);
    c.start(OsdId(2));
    c.settle();
    c.invariant_copies_agree();
    assert_eq!(c.read("before"), b"12");
    assert_eq!(c.read("deleted"), b"");
}

#[test]
fn an_osd_that_was_away_for_too_long_is_backfilled() {
    let mut c = Cluster::new(4, 3, 1);
    c.settle();
    for n in 0..20 {
        assert_eq!(c.write(&format!("old{n}"), append("x")).result, 0);
    }
    c.crash(OsdId(1));
    // Far more than a log keeps.
    for n in 0..200 {
        assert_eq!(c.write(&format!("new{}", n % 40), append("y")).result, 0);
    }
    assert_eq!(c.write("old3", vec![types::msg::Op::Delete.into()]).result, 0);
    c.start(OsdId(1));
    c.settle();
    c.invariant_copies_agree();
    assert_eq!(c.read("new0"), b"yyyyy");
}

#[test]
fn a_backfilled_primary_knows_the_requests_that_others_did() {
    let mut c = Cluster::new(6, 3, 1);
    c.settle();
    for osd in (0..3).map(OsdId) {
        c.crash(osd);
        for n in 0..200 {
            assert_eq!(c.write(&format!("o{}", n % 40), append("y")).result, 0);
        }
        let tid = c.submit(0, "last", osd_flag::WRITE, append(&format!("<{osd}>")));
        let op = c.pending[&tid].op.clone();
        assert_eq!(c.wait(tid).result, 0);
        c.start(osd);
        c.settle();
        assert_eq!(c.send_again(op).result, 0);
        c.invariant_copies_agree();
    }
    assert_eq!(c.read("last"), b"<0><1><2>");
}

#[test]
fn an_osd_that_gets_a_pg_and_many_maps_at_once_knows_when_its_interval_began() {
    let mut c = Cluster::new(7, 4, 1);
    c.settle();
    let acting = c.map.pg_to_up_acting(c.pgs()[0]).acting;
    let spare = (0..4).map(OsdId).find(|o| !acting.contains(o)).expect("three of four");
    c.crash(spare);
    c.map.osd_weight[acting[1].0 as usize] = 0;
    c.crash(acting[1]);
    assert_eq!(c.write("o", append("while two are away")).result, 0);
    c.crash(acting[2]);
    c.run(200);
    c.start(acting[2]);
    c.run(200);
    c.start(spare);
    while !c.map.is_up(spare) {
        c.step();
    }
    c.publish_unheard_by(spare);
    c.settle();
    c.invariant_copies_agree();
    assert_eq!(c.read("o"), b"while two are away");
}

#[test]
fn a_copy_that_is_wanted_again_while_it_is_being_removed_is_filled() {
    let mut interrupted = 0;
    for seed in 0..3 {
        let mut c = Cluster::new(600 + seed, 4, 1);
        for n in 0..12_000 {
            assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0);
        }
        c.settle();
        let acting = c.map.pg_to_up_acting(c.pgs()[0]).acting;
        let leaves = acting[seed as usize];
        c.map.osd_weight[leaves.0 as usize] = 0;
        c.publish();
        for _ in 0..400_000 {
            if c.line(leaves).contains("ToDelete") {
                break;
            }
            c.step();
        }
        c.run(seed as usize);
        interrupted += u32::from(c.line(leaves).contains("ToDelete"));
        c.map.osd_weight[leaves.0 as usize] = 0x10000;
        c.publish();
        c.append_to(0..20, "y");
        c.settle();
        assert!(c.map.pg_to_up_acting(c.pgs()[0]).acting.contains(&leaves));
        c.invariant_copies_agree();
    }
    assert_eq!(interrupted, 3);
}

#[test]
fn with_too_few_copies_nothing_is_served() {
    let mut c = Cluster::new(5, 3, 1);
    c.settle();
    c.crash(OsdId(0));
    c.crash(OsdId(1));
    let tid = c.submit(0, "o", osd_flag::WRITE, append("x"));
    c.run(5000);
    assert!(c.pending[&tid].reply.is_none());
    c.start(OsdId(0));
    assert_eq!(c.wait(tid).result, 0);
}

/// An append whose answer the client keeps, with its operation for later.
fn appended(c: &mut Cluster, name: &str, text: &str) -> (types::msg::MOsdOp, types::msg::MOsdOpReply) {
    let tid = c.submit(0, name, osd_flag::WRITE | osd_flag::RETURNVEC, append(text));
    let op = c.pending[&tid].op.clone();
    (op, c.wait(tid))
}

/// Far more writes than a log keeps.
fn overrun_log(c: &mut Cluster) {
    (0..300).for_each(|n| assert_eq!(c.write(&format!("other{}", n % 7), append(".")).result, 0));
}

/// Entries of a copy's log, as its line tells them: `[tail..head]`.
fn log_len(c: &Cluster, osd: OsdId, pg: PgId) -> u64 {
    let line = c.line_of(osd, pg);
    let number = |version: &str| version.split_once('\'').unwrap().1.parse::<u64>().unwrap();
    let (tail, head) = line.split(['[', ']']).find_map(|part| part.split_once("..")).unwrap();
    number(head) - number(tail)
}

#[test]
fn whoever_is_away_for_more_writes_than_a_log_keeps_finds_them_in_the_log() {
    let mut c = Cluster::new(1800, 3, 1);
    c.logs_grow = true;
    (0..3).map(OsdId).for_each(|osd| c.crash(osd));
    (0..3).map(OsdId).for_each(|osd| c.start(osd));
    c.settle();
    let pg = c.pgs()[0];
    let acting = c.map.pg_to_up_acting(pg).acting;
    (0..100).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
    assert!(log_len(&c, acting[0], pg) < 60, "{}", c.line_of(acting[0], pg));
    c.crash(acting[1]);
    c.publish();
    overrun_log(&mut c);
    assert!(log_len(&c, acting[0], pg) >= 300);
    c.start(acting[1]);
    while !c.is_clean() {
        c.step();
        assert!(!c.state(pg).contains("backfill"), "{}", c.state(pg));
    }
    c.settle();
    c.invariant_copies_agree();
    // Nobody needs them any more, and nobody writes.
    c.run_for(std::time::Duration::from_secs(5));
    acting.iter().for_each(|osd| assert!(log_len(&c, *osd, pg) < 60, "{}", c.line_of(*osd, pg)));
    overrun_log(&mut c);
    acting.into_iter().for_each(|osd| assert!(log_len(&c, osd, pg) < 60, "{}", c.line_of(osd, pg)));
}

fn same_answer(a: &types::msg::MOsdOpReply, b: &types::msg::MOsdOpReply) -> bool {
    (a.result, &a.ops, a.replay_version, a.user_version) == (b.result, &b.ops, b.replay_version, b.user_version)
}

#[test]
fn a_request_resent_long_after_its_log_entry_is_gone_is_answered_as_it_was() {
    let mut c = Cluster::new(6, 3, 1);
    c.settle();
    let (op, first) = appended(&mut c, "o", "once");
    overrun_log(&mut c);
    let again = c.repeat(&op);
    assert!(same_answer(&first, &again), "{first:?} {again:?}");
    assert_eq!(c.read("o"), b"once");
}

#[test]
fn what_is_remembered_survives_a_restart_of_all() {
    let mut c = Cluster::new(7, 3, 1);
    c.settle();
    let (op, first) = appended(&mut c, "o", "once");
    overrun_log(&mut c);
    (0..3).for_each(|osd| c.crash(OsdId(osd)));
    (0..3).for_each(|osd| c.start(OsdId(osd)));
    c.settle();
    assert!(same_answer(&first, &c.repeat(&op)));
    overrun_log(&mut c);
    assert!(same_answer(&first, &c.repeat(&op)));
    assert_eq!(c.read("o"), b"once");
}

#[test]
fn a_primary_that_was_backfilled_knows_the_requests_it_never_saw() {
    for away in 0..3 {
        let mut c = Cluster::new(8, 3, 1);
        c.settle();
        c.crash(OsdId(away));
        let (op, first) = appended(&mut c, "o", "once");
        overrun_log(&mut c);
        let (recent, answer) = appended(&mut c, "recent", "once");
        c.start(OsdId(away));
        c.settle();
        assert!(same_answer(&answer, &c.repeat(&recent)), "osd.{away}");
        // Whoever was away is primary of the only PG in one of the three runs: the others go.
        assert!(same_answer(&first, &c.repeat(&op)), "osd.{away}");
        for other in (0..3).filter(|o| *o != away) {
            c.crash(OsdId(other));
            assert!(same_answer(&first, &c.repeat(&op)), "osd.{away} without osd.{other}");
            c.start(OsdId(other));
            c.settle();
        }
        assert_eq!(c.read("o"), b"once");
    }
}

#[test]
fn a_copy_that_comes_back_by_log_keeps_what_it_remembers() {
    let mut c = Cluster::new(9, 3, 1);
    c.settle();
    let (op, first) = appended(&mut c, "o", "once");
    overrun_log(&mut c);
    for osd in (0..3).map(OsdId) {
        c.crash(osd);
        (0..10).for_each(|n| assert_eq!(c.write(&format!("other{n}"), append(".")).result, 0));
        c.start(osd);
        c.settle();
        assert!(same_answer(&first, &c.repeat(&op)), "{osd}");
    }
    assert_eq!(c.read("o"), b"once");
}

#[test]
fn as_many_writes_are_remembered_as_the_option_says() {
    let mut c = Cluster::with_options(10, 3, 1, &[("osd_pg_log_dups_tracked", "0")]);
    c.settle();
    let (op, first) = appended(&mut c, "o", "x");
    assert!(same_answer(&first, &c.repeat(&op)), "the log itself still knows it");
    overrun_log(&mut c);
    assert!(!same_answer(&first, &c.repeat(&op)));
    assert_eq!(c.read("o"), b"xx", "nothing was to be remembered");
}

/// A write that changes nothing, one after which it would, and both sent again.
fn changes_nothing_and_never_will(exists: bool, write: OsdOp, result: i32, then: OsdOp) {
    let lose_primary = |c: &mut Cluster| c.crash(c.primary(c.pgs()[0]));
    for forget in [|_: &mut Cluster| {}, overrun_log, lose_primary] {
        let mut c = Cluster::new(11, 3, 1);
        c.settle();
        if exists {
            assert_eq!(c.write("o", append("x")).result, 0);
        }
        let [first, second] = [write.clone(), then.clone()].map(|op| {
            let tid = c.submit(0, "o", osd_flag::WRITE, vec![op]);
            (c.pending[&tid].op.clone(), c.wait(tid))
        });
        assert_eq!((first.1.result, second.1.result), (result, 0));
        let read = |c: &mut Cluster| c.call("o", osd_flag::READ, vec![OsdOp::read(0, 0)]);
        let before = read(&mut c);
        forget(&mut c);
        for (op, answer) in [&first, &second] {
            let again = c.repeat(op);
            assert_eq!((again.result, again.user_version), (answer.result, answer.user_version));
        }
        let after = read(&mut c);
        assert_eq!((before.result, before.ops), (after.result, after.ops));
        if let Some(away) = (0..3).map(OsdId).find(|osd| !c.is_running(*osd)) {
            c.start(away);
        }
        c.settle();
        c.invariant_copies_agree();
    }
}

#[test]
fn a_write_that_failed_fails_again_when_it_is_sent_again() {
    changes_nothing_and_never_will(true, OsdOp::create(true), -17, OsdOp::from(types::msg::Op::Delete));
    changes_nothing_and_never_will(false, OsdOp::from(types::msg::Op::Delete), -2, append("abcdef").remove(0));
}

#[test]
fn of_what_a_write_that_changed_nothing_has_read_little_is_remembered() {
    let mut c = Cluster::new(12, 3, 1);
    c.settle();
    assert_eq!(c.write("o", append(&"x".repeat(100_000))).result, 0);
    let mut twice = |last: OsdOp| {
        let tid = c.submit(0, "o", osd_flag::WRITE | osd_flag::READ | osd_flag::RETURNVEC, vec![OsdOp::read(0, 0), last]);
        let (op, first) = (c.pending[&tid].op.clone(), c.wait(tid));
        let again = c.repeat(&op);
        assert_eq!(first.result, again.result);
        (first.result, [first, again].map(|reply| reply.ops[0].outdata.len()))
    };
    assert_eq!(twice(OsdOp::create(true)), (-17, [100_000, 0]), "logs do not keep what was read on the way");
    assert_eq!(twice(OsdOp::zero(200_000, 10)), (0, [100_000, 100_000]), "what succeeded is done again if its answer is long");
}

#[test]
fn a_write_that_found_nothing_to_do_does_nothing_when_it_is_sent_again() {
    changes_nothing_and_never_will(false, OsdOp::truncate(3), 0, append("abcdef").remove(0));
}

#[test]
fn a_request_that_comes_twice_while_it_is_in_flight_is_done_once() {
    for seed in 0..20 {
        let mut c = Cluster::new(200 + seed, 3, 1);
        c.settle();
        let tid = c.submit(0, "o", osd_flag::WRITE, append("once"));
        for _ in 0..3 {
            let steps = c.rng.random_range(0..8);
            c.run(steps);
            c.stutter(tid);
        }
        assert_eq!(c.wait(tid).result, 0);
        assert_eq!(c.read("o"), b"once");
    }
}

#[test]
fn a_write_under_way_on_a_lost_session_is_sent_again_and_done_once() {
    for seed in 0..30 {
        let mut c = Cluster::new(300 + seed, 3, 1);
        c.settle();
        let tids: Vec<u64> = (0..5).map(|n| c.submit(n % 4, "o", osd_flag::WRITE, append(&format!("<{n}>")))).collect();
        for _ in 0..4 {
            let steps = c.rng.random_range(0..15);
            c.run(steps);
            c.lose_some_session();
        }
        tids.into_iter().for_each(|tid| assert_eq!(c.wait(tid).result, 0));
        let content = String::from_utf8(c.read("o")).unwrap();
        (0..5).for_each(|n| assert_eq!(content.matches(&format!("<{n}>")).count(), 1, "seed {seed}: {content}"));
        c.settle();
        c.invariant_copies_agree();
    }
}

/// OSDs come back and are brought up to date, by log or by scan, while sessions are lost all the time.
fn recovery_over_bad_sessions(seed: u64, overrun: bool) {
    let mut c = Cluster::new(seed, 3, 1);
    c.settle();
    let big = |n: u8| Bytes::from((0..2_500_000u32).map(|i| (i >> 8) as u8 ^ n).collect::<Vec<u8>>());
    let pairs = |n: u8| -> BTreeMap<denc::BString, Bytes> {
        (0..1200u32).map(|i| (format!("k{i:05}").as_str().into(), vec![n; 3].into())).collect()
    };
    let omap = |n: u8| OsdOp::with(Op::OmapSetVals, denc::to_bytes(&pairs(n), 0));
    let fill = |c: &mut Cluster, n: u8| {
        for name in ["a", "b", "c"] {
            assert_eq!(c.write(name, vec![OsdOp::write_full(big(n)), omap(n)]).result, 0);
        }
    };
    fill(&mut c, 1);
    let away = OsdId((seed % 3) as i32);
    c.crash(away);
    fill(&mut c, 2);
    if overrun {
        overrun_log(&mut c);
    }
    c.start(away);
    for _ in 0..25 {
        let steps = c.rng.random_range(0..40);
        c.run(steps);
        c.lose_some_session();
    }
    c.settle();
    for name in ["a", "b", "c"] {
        assert!(c.read(name) == big(2), "seed {seed}: {name}");
    }
    c.invariant_copies_agree();
}

/// An OSD comes back and lacks an object that the first who is to push it cannot read.
fn recovery_over_a_bad_read(seed: u64, away: i32) {
    let mut c = Cluster::new(seed, 3, 1);
    c.settle();
    let pg = c.pgs()[0];
    let content = Bytes::from(vec![7; 300_000]);
    assert_eq!(c.write("o", vec![OsdOp::write_full(Bytes::from(vec![1; 1000]))]).result, 0);
    c.crash(OsdId(away));
    assert_eq!(c.write("o", vec![OsdOp::write_full(content.clone())]).result, 0);
    // Nothing is in anybody's cache.
    let others: Vec<OsdId> = (0..3).map(OsdId).filter(|o| o.0 != away).collect();
    others.iter().for_each(|o| c.crash(*o));
    others.iter().for_each(|o| c.start(*o));
    assert_eq!(c.write("other", append("x")).result, 0);
    let first = c.primary(pg);
    c.fail_reads(first, 8);
    c.start(OsdId(away));
    c.settle();
    assert!(c.reads_to_fail(first) < 8, "seed {seed}, osd.{away} was away");
    c.fail_reads(first, 0);
    assert!(c.read("o") == content, "seed {seed}, osd.{away} was away");
    c.invariant_copies_agree();
}

#[test]
fn what_one_copy_cannot_read_another_one_pushes() {
    (600..610).for_each(|seed| (0..3).for_each(|away| recovery_over_a_bad_read(seed, away)));
}

#[test]
fn recovery_goes_on_when_sessions_are_lost() {
    (400..410).for_each(|seed| recovery_over_bad_sessions(seed, false));
}

#[test]
fn backfill_goes_on_when_sessions_are_lost() {
    (500..510).for_each(|seed| recovery_over_bad_sessions(seed, true));
}

/// One PG of which `away` was away while `count` objects were written; by log, or with logs that do not reach so far.
fn recovering(seed: u64, away: i32, count: u32, overrun: bool) -> Cluster {
    let log = if overrun { "20" } else { "100000" };
    let mut c = Cluster::with_options(seed, 3, 1, &[("osd_recovery_max_active", "2")]);
    c.log_entries_max = log.parse().unwrap();
    (0..3).for_each(|osd| c.crash(OsdId(osd)));
    (0..3).for_each(|osd| c.start(OsdId(osd)));
    c.settle();
    c.write("old", append("old"));
    c.crash(OsdId(away));
    let writes = if overrun { count.max(200) } else { count };
    let x = || vec![OsdOp::write_full("x".into())];
    (0..writes).for_each(|n| assert_eq!(c.write(&format!("o{}", n % count), x()).result, 0));
    c.start(OsdId(away));
    c.until_state(c.pgs()[0], if overrun { "backfilling" } else { "recovering" });
    c
}

/// Seconds from when an OSD that lacks 60 objects is back until all is clean.
fn recovery_takes(sleep: &str) -> f64 {
    let mut c = Cluster::with_options(770, 3, 1, &[("osd_recovery_sleep", sleep), ("osd_min_pg_log_entries", "100"), ("osd_max_pg_log_entries", "100")]);
    c.settle();
    c.crash(OsdId(1));
    c.append_to(0..60, "x");
    c.start(OsdId(1));
    // By log, which keeps more than the harness says.
    c.until_state(c.pgs()[0], "recovering");
    let began = c.now.mono;
    while !c.is_clean() {
        c.step();
    }
    (c.now.mono - began).as_secs_f64()
}

#[test]
fn recovery_sleeps_as_configured() {
    let (none, some, more) = (recovery_takes("0"), recovery_takes("0.2"), recovery_takes("0.7"));
    // Ten starts may have been saved up for, then two.
    assert!((9.0..14.0).contains(&some) && (39.0..46.0).contains(&more) && none < 9.0, "{none} {some} {more}");
}

/// While a copy is brought up to date clients read and write: objects that are whole everywhere, objects that are not,
/// those that were asked for first, and new ones. None of them waits for the end.
fn clients_are_served(seed: u64, away: i32, overrun: bool) {
    let mut c = recovering(seed, away, 250, overrun);
    let pg = c.pgs()[0];
    let primary_lacks = c.primary(pg) == OsdId(away);
    let served = |c: &mut Cluster, what: &str| {
        let state = c.state(pg);
        assert!(state.contains("degraded") && !state.contains("clean"), "{what} waits for the end: {state}, seed {seed}, osd.{away}");
    };
    assert_eq!(c.write("old", append(",new")).result, 0);
    served(&mut c, "a write to what is whole");
    assert_eq!(c.read("old"), b"old,new");
    assert_eq!(c.read("o249"), b"x");
    served(&mut c, "a read of what a copy lacks");
    assert_eq!(c.write("o200", append("y")).result, 0);
    assert_eq!(c.read("o200"), b"xy");
    served(&mut c, "a write to what a copy lacks");
    assert_eq!(c.write("o150", vec![Op::Delete.into()]).result, 0);
    assert_eq!(c.read("o150"), b"");
    served(&mut c, "a removal of what a copy lacks");
    assert_eq!(c.write("new", append("z")).result, 0);
    served(&mut c, "a new object");
    let mut names = c.list(pg);
    if primary_lacks {
        served(&mut c, "a listing");
    }
    names.sort();
    let mut expected: Vec<String> = (0..250).filter(|n| *n != 150).map(|n| format!("o{n}")).chain(["old".into(), "new".into()]).collect();
    expected.sort();
    assert_eq!(names, expected, "seed {seed}, osd.{away}");
    c.settle();
    c.invariant_copies_agree();
}

#[test]
fn clients_are_served_while_a_copy_recovers() {
    (700..704).for_each(|seed| (0..3).for_each(|away| clients_are_served(seed, away, false)));
}

#[test]
fn clients_are_served_while_a_copy_is_backfilled() {
    (710..714).for_each(|seed| (0..3).for_each(|away| clients_are_served(seed, away, true)));
}

#[test]
fn operations_on_an_object_that_is_missing_keep_their_order() {
    for seed in 720..730 {
        let mut c = recovering(seed, (seed % 3) as i32, 60, seed % 2 == 0);
        let tids: Vec<u64> = (0..6).map(|n| c.submit(0, "o59", osd_flag::WRITE, append(&format!("<{n}>")))).collect();
        let read = c.submit(0, "o59", osd_flag::READ, vec![OsdOp::read(0, 0)]);
        let reply = c.wait(read);
        assert_eq!(reply.ops[0].outdata.contiguous(), "x<0><1><2><3><4><5>".as_bytes(), "seed {seed}");
        tids.into_iter().for_each(|tid| assert_eq!(c.wait(tid).result, 0));
        c.settle();
        c.invariant_copies_agree();
    }
}

#[test]
fn what_nobody_has_is_unfound_until_somebody_comes_who_has_it() {
    for seed in 740..745 {
        let mut c = recovering(seed, 0, 150, false);
        c.map.pools.get_mut(&harness::POOL).unwrap().min_size = 1;
        let pg = c.pgs()[0];
        // It has to hear that everybody is active; else it does not dare to be alone.
        c.run(100);
        c.crash(OsdId(1));
        c.crash(OsdId(2));
        c.until_state(pg, "recovery_unfound");
        assert_eq!(c.write("old", append(",alone")).result, 0, "other objects are served");
        let reads: Vec<u64> = (0..60).map(|n| c.submit(0, &format!("o{n}"), osd_flag::READ, vec![OsdOp::read(0, 0)])).collect();
        let write = c.submit(1, "o59", osd_flag::WRITE, append("y"));
        c.run(3000);
        let open = reads.iter().filter(|tid| c.pending[tid].reply.is_none()).count();
        assert!(0 < open && open < 60, "seed {seed}");
        c.start(OsdId(1));
        for tid in reads {
            let reply = c.wait(tid);
            assert_eq!(reply.result, 0);
        }
        assert_eq!(c.wait(write).result, 0);
        c.start(OsdId(2));
        c.settle();
        c.invariant_copies_agree();
        assert_eq!(c.read("o59"), b"xy");
        assert_eq!(c.read("old"), b"old,alone");
    }
}

#[test]
fn what_only_an_osd_outside_the_acting_set_has_is_fetched_there() {
    for seed in 750..760 {
        let mut c = Cluster::with_options(seed, 4, 1, &[("osd_recovery_max_active", "1")]);
        c.map.pools.get_mut(&harness::POOL).unwrap().min_size = 1;
        c.settle();
        let acting = c.map.pg_to_up_acting(c.pgs()[0]).acting;
        c.crash(acting[0]);
        c.crash(acting[1]);
        (0..40).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("alone")).result, 0));
        // Whoever was alone moves out of the set as soon as the others know the log.
        c.start(acting[0]);
        let pg = c.pgs()[0];
        while !(c.map.is_up(acting[0]) && c.state(pg).contains("active+") && !c.state(pg).contains("clean")) {
            c.step();
        }
        c.map.osd_weight[acting[2].0 as usize] = 0;
        c.publish();
        c.start(acting[1]);
        c.settle();
        c.invariant_copies_agree();
        (0..40).for_each(|n| assert_eq!(c.read(&format!("o{n}")), b"alone", "seed {seed}"));
    }
}

#[test]
fn no_more_is_on_its_way_at_once_than_an_osd_may_recover() {
    let mut c = Cluster::with_options(760, 3, 8, &[("osd_recovery_max_active", "1")]);
    c.settle();
    c.crash(OsdId(1));
    (0..200).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
    c.start(OsdId(1));
    let (mut seen, mut waited) = (0, 0);
    while !c.is_clean() {
        c.step();
        // One of each primary.
        let pushed: usize = c.pushes().iter().map(Vec::len).sum();
        assert!(pushed <= 3, "{pushed}");
        seen += pushed;
        waited += c.pgs().iter().filter(|pg| c.state(**pg).contains("_wait")).count();
    }
    assert!(seen > 0 && waited > 0, "{seen} {waited}");
    c.invariant_copies_agree();
}

/// Objects in messages at a time while an OSD gets what it lacks, at most; clients may read meanwhile. What is sent to that OSD waits every now and
/// then, until all that may be on its way is.
fn most_pushes(beside_a_client: bool) -> usize {
    let mut c = Cluster::new(763, 3, 1);
    c.settle();
    c.crash(OsdId(1));
    c.append_to(0..4000, "x");
    c.run_for(Duration::from_secs(5));
    c.start(OsdId(1));
    let (mut most, mut read) = (0, c.now.mono);
    while !c.is_clean() {
        if beside_a_client && c.now.mono - read > Duration::from_millis(100) {
            read = c.now.mono;
            for n in 0..30 {
                c.submit(n % 3, &format!("o{n}"), osd_flag::READ, vec![OsdOp::read(0, 0)]);
            }
        }
        c.run(200);
        c.held = [0, 2].map(|from| (OsdId(from), OsdId(1))).into();
        c.run(100);
        most = most.max(c.pushes().iter().map(Vec::len).sum());
        c.held.clear();
    }
    most
}

#[test]
fn where_no_client_asks_for_anything_more_is_on_its_way() {
    let (beside, alone) = (most_pushes(true), most_pushes(false));
    // Of a disk that has shown itself to be slow a few more than 64, if clients do not mind.
    assert!(2 * beside < alone && alone > 64, "{beside} {alone}");
}

#[test]
fn small_objects_move_in_company() {
    for away in 0..3 {
        let mut c = Cluster::new(761, 3, 1);
        c.settle();
        c.crash(OsdId(away));
        (0..200).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
        c.start(OsdId(away));
        let mut most = 0;
        while !c.is_clean() {
            c.step();
            most = most.max(c.pushes().iter().map(Vec::len).max().unwrap_or_default());
        }
        assert!((8..=16).contains(&most), "{most} objects in a message, osd.{away}");
        c.invariant_copies_agree();
    }
}

#[test]
fn of_a_large_object_one_part_is_on_its_way_at_a_time() {
    for away in 0..3 {
        let mut c = Cluster::new(762, 3, 1);
        c.settle();
        c.crash(OsdId(away));
        let large = Bytes::from(vec![7; 4_500_000]);
        ["a", "b"].iter().for_each(|name| assert_eq!(c.write(name, vec![OsdOp::write_full(large.clone())]).result, 0));
        c.start(OsdId(away));
        let mut seen = 0;
        while !c.is_clean() {
            c.step();
            let parts: Vec<_> = c.pushes().into_iter().flatten().collect();
            let objects: BTreeSet<_> = parts.iter().cloned().collect();
            assert_eq!(parts.len(), objects.len(), "osd.{away}");
            seen += parts.len();
        }
        assert!(seen > 0);
        assert!(c.read("a") == large);
        c.invariant_copies_agree();
    }
}

#[test]
fn recovery_goes_on_behind_restarts_of_everybody() {
    for seed in 770..790 {
        let mut c = recovering(seed, (seed % 3) as i32, 80, seed % 2 == 0);
        for _ in 0..6 {
            let osd = OsdId(c.rng.random_range(0..3));
            c.crash(osd);
            let steps = c.rng.random_range(0..400);
            c.run(steps);
            let n = c.rng.random_range(0..80);
            let tid = c.submit(0, &format!("o{n}"), osd_flag::WRITE, append(""));
            c.start(osd);
            c.run(steps);
            if c.rng.random_ratio(1, 2) {
                c.lose_some_session();
            }
            assert_eq!(c.wait(tid).result, 0);
        }
        c.settle();
        c.invariant_copies_agree();
        (0..80).for_each(|n| assert_eq!(c.read(&format!("o{n}")), b"x", "seed {seed}"));
    }
}

/// Clients append tokens of their own to a few objects while OSDs crash and return. In the end every token that was
/// acknowledged is there, and none is there twice.
fn churn(c: Cluster, seed: u64, sessions: bool) {
    churn_of(c, 3, seed, sessions);
}

fn churn_of(mut c: Cluster, osds: i32, seed: u64, sessions: bool) {
    c.settle();
    let mut acked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut open: BTreeMap<u64, (String, String)> = BTreeMap::new();
    for n in 0..120 {
        let object = format!("o{}", c.rng.random_range(0..6));
        let token = format!("<{n}>");
        let client = c.rng.random_range(0..4);
        let tid = c.submit(client, &object, osd_flag::WRITE, append(&token));
        open.insert(tid, (object, token));
        let steps = c.rng.random_range(0..60);
        c.run(steps);
        if sessions && c.rng.random_ratio(1, 3) {
            c.lose_some_session();
        }
        if c.rng.random_ratio(1, 12) {
            let osd = OsdId(c.rng.random_range(0..osds));
            c.crash(osd);
        }
        if c.rng.random_ratio(1, 6) {
            for osd in (0..osds).map(OsdId) {
                if !c.is_running(osd) {
                    c.start(osd);
                    break;
                }
            }
        }
        open.retain(|tid, (object, token)| {
            let done = c.pending[tid].reply.as_ref().map(|r| r.result);
            assert!(done.is_none_or(|r| r == 0), "{done:?}");
            if done.is_some() {
                acked.entry(object.clone()).or_default().insert(token.clone());
            }
            done.is_none()
        });
    }
    for osd in (0..osds).map(OsdId) {
        if !c.is_running(osd) {
            c.start(osd);
        }
    }
    for (tid, (object, token)) in open {
        assert_eq!(c.wait(tid).result, 0);
        acked.entry(object).or_default().insert(token);
    }
    c.settle();
    c.invariant_copies_agree();
    for (object, tokens) in acked {
        let content = String::from_utf8(c.read(&object)).unwrap();
        for token in &tokens {
            assert_eq!(content.matches(token.as_str()).count(), 1, "seed {seed}: {token} in {object}: {content}");
        }
        assert_eq!(content.matches('<').count(), tokens.len(), "seed {seed}: {object}: {content}");
    }
}

#[test]
fn acknowledged_appends_are_there_once_whatever_crashes() {
    let seeds = std::env::var("OSD_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    (100..100 + seeds).for_each(|seed| churn(Cluster::new(seed, 3, 4), seed, false));
}

#[test]
fn acknowledged_appends_are_there_once_whatever_crashes_and_whoever_forgets() {
    let seeds = std::env::var("OSD_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    (1000..1000 + seeds).for_each(|seed| churn(Cluster::new(seed, 3, 4), seed, true));
}

/// A cluster of five whose one PG moves from three OSDs to three with two new ones among them; its log is short.
fn moving(seed: u64) -> (Cluster, PgId) {
    let options = [("osd_recovery_max_active", "1"), ("osd_backfill_scan_min", "4"), ("osd_backfill_scan_max", "8")];
    let mut c = Cluster::with_options(seed, 5, 1, &options);
    c.log_entries_max = 20;
    c.settle();
    (0..200).for_each(|n| assert_eq!(c.write(&format!("o{}", n % 80), append("x")).result, 0));
    let pg = c.pgs()[0];
    let acting = c.map.pg_to_up_acting(pg).acting;
    for osd in &acting[..2] {
        c.map.osd_weight[osd.0 as usize] = 0;
    }
    c.publish();
    c.until_state(pg, "backfilling");
    (c, pg)
}

/// Objects `o0` to `o79` are appended to, every seventh is removed, and as many new ones are made.
fn change_all(c: &mut Cluster) {
    for n in 0..80 {
        assert_eq!(c.write(&format!("o{n}"), if n % 7 == 0 { vec![Op::Delete.into()] } else { append("y") }).result, 0);
        assert_eq!(c.write(&format!("new{n}"), append("z")).result, 0);
    }
}

/// What that made of objects that began with an x.
fn check_changed(c: &mut Cluster, seed: u64) {
    for n in 0..80 {
        let read = c.read(&format!("o{n}"));
        assert_eq!(read.starts_with(b"x") && read.ends_with(b"xy"), n % 7 != 0, "o{n}, seed {seed}");
        assert_eq!(c.read(&format!("new{n}")), b"z");
    }
}

#[test]
fn whoever_held_a_pg_serves_it_until_those_are_filled_to_whom_it_moves() {
    for seed in 770..775 {
        let (mut c, pg) = moving(seed);
        let m = c.map.pg_to_up_acting(pg);
        assert_eq!(m.acting.len(), 3);
        assert_ne!(m.acting, m.up);
        let state = c.state(pg);
        assert_eq!(state, "active+remapped+backfilling", "nothing is degraded, seed {seed}");
        // Behind the cursor and before it, old and new, and gone.
        change_all(&mut c);
        c.settle();
        assert_eq!(c.map.pg_to_up_acting(pg).acting, m.up);
        assert!(c.map.pg_temp.is_empty());
        c.invariant_copies_agree();
        check_changed(&mut c, seed);
    }
}

#[test]
fn a_backfill_goes_on_whoever_is_interrupted_and_loses_nothing() {
    for seed in 780..800 {
        let (mut c, pg) = moving(seed);
        for round in 0..6 {
            c.run(150);
            let m = c.map.pg_to_up_acting(pg);
            let target = m.up.iter().find(|o| !m.acting.contains(o));
            let Some(victim) = [Some(m.acting_primary), target.copied()][round % 2].filter(|o| c.is_running(*o)) else { break };
            c.crash(victim);
            c.write(&format!("o{round}"), append("w"));
            c.start(victim);
        }
        c.settle();
        c.invariant_copies_agree();
        (6..80).for_each(|n| assert!(c.read(&format!("o{n}")).starts_with(b"xx"), "o{n}, seed {seed}"));
    }
}

#[test]
fn copies_half_filled_never_serve_alone_and_those_that_are_whole_lose_nothing() {
    for seed in 800..806 {
        let (mut c, pg) = moving(seed);
        let m = c.map.pg_to_up_acting(pg);
        c.map.pools.get_mut(&harness::POOL).unwrap().min_size = 1;
        c.publish();
        c.until_state(pg, "active");
        m.acting.iter().for_each(|o| c.crash(*o));
        c.run(3000);
        let state = c.state(pg);
        assert!(state.contains("down") || state.contains("incomplete"), "{state}, seed {seed}");
        let read = c.submit(0, "o1", osd_flag::READ, vec![OsdOp::read(0, 0)]);
        c.run(2000);
        assert!(c.pending[&read].reply.is_none(), "seed {seed}");
        // One of those that were whole is enough, and the half filled may stay away.
        m.up.iter().filter(|o| !m.acting.contains(o)).for_each(|o| c.crash(*o));
        c.start(m.acting[0]);
        assert_eq!(c.wait(read).result, 0);
        (0..80).for_each(|n| assert!(c.read(&format!("o{n}")).starts_with(b"xx"), "o{n}, seed {seed}"));
        let all: Vec<OsdId> = (0..5).map(OsdId).filter(|o| !c.is_running(*o)).collect();
        all.into_iter().for_each(|o| c.start(o));
        c.settle();
        c.invariant_copies_agree();
    }
}
