//! Bad blocks: found by reads, by recovery and by scrubs, and repaired from other copies.

use crate::harness::Cluster;
use bytes::Bytes;
use rand::Rng;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::msg::internal_osd::PgBody;
use types::msg::osd::osd_flag;
use types::msg::{Op, OsdOp};
use types::{Errno, OsdId};

fn filled(seed: u64, osds: i32) -> Cluster {
    let mut c = Cluster::new(seed, osds, 1);
    c.settle();
    for n in 0..20u8 {
        assert_eq!(c.write(&format!("o{n}"), vec![OsdOp::write_full(vec![n; 70_000].into())]).result, 0);
    }
    c
}

#[test]
fn a_client_gets_what_the_primary_cannot_read_from_another_copy() {
    let mut c = filled(31, 3);
    c.rot_and_restart(c.primary(c.pgs()[0]));
    for n in 0..20u8 {
        assert_eq!(c.read(&format!("o{n}")), vec![n; 70_000]);
    }
    c.settle();
    c.invariant_copies_agree();
    let said = c.said.iter().filter(|line| line.contains("cannot be read here: another copy is fetched")).count();
    assert_eq!(said, 20, "{:?}", c.said);
}

#[test]
fn with_two_bad_copies_the_third_serves_and_repairs_both() {
    let mut c = filled(32, 3);
    let acting = c.map.pg_to_up_acting(c.pgs()[0]).acting;
    c.rot_and_restart(acting[1]);
    c.rot_and_restart(acting[0]);
    for n in 0..20u8 {
        assert_eq!(c.read(&format!("o{n}")), vec![n; 70_000]);
    }
    c.settle();
    c.invariant_copies_agree();
}

#[test]
fn a_write_beside_a_bad_block_is_repaired_too() {
    let mut c = filled(33, 3);
    c.rot_and_restart(c.primary(c.pgs()[0]));
    let change = OsdOp::write(5000, Bytes::from_static(b"changed"));
    assert_eq!(c.write("o3", vec![change]).result, 0);
    let mut wanted = vec![3; 70_000];
    wanted[5000..5007].copy_from_slice(b"changed");
    assert_eq!(c.read("o3"), wanted);
    c.settle();
    assert_eq!(c.read("o4"), vec![4; 70_000]);
}

#[test]
fn what_no_copy_can_read_is_not_made_up() {
    let mut c = filled(34, 3);
    for osd in (0..3).map(OsdId) {
        c.rot_and_restart(osd);
    }
    let tid = c.submit(0, "o3", osd_flag::READ, vec![OsdOp::read(0, 0)]);
    for _ in 0..5000 {
        c.step();
        let reply = c.pending[&tid].reply.as_ref();
        assert!(reply.is_none_or(|r| r.result < 0), "{reply:?}");
    }
    let primary = c.primary(c.pgs()[0]);
    assert!(c.line(primary).contains("1 unfound"), "{}", c.line(primary));
}

/// Runs until the PG's state is this.
fn until_whole_state(c: &mut Cluster, state: &str) {
    for _ in 0..200_000 {
        if c.state(c.pgs()[0]) == state {
            return;
        }
        c.step();
    }
    panic!("never {state}, but {}", c.state(c.pgs()[0]));
}

#[test]
fn scrubs_of_a_healthy_pg_find_nothing() {
    let mut c = filled(40, 3);
    assert_eq!(c.scrub(false, false), "scrub ok");
    assert_eq!(c.scrub(true, false), "deep-scrub ok");
    assert_eq!(c.scrub(true, true), "repair ok");
    c.settle();
}

#[test]
fn objects_with_much_of_everything_are_scrubbed() {
    let mut c = filled(45, 3);
    let pairs: BTreeMap<denc::BString, Bytes> = (0..1500).map(|i| (format!("key{i:05}").into(), vec![i as u8; 20].into())).collect();
    assert_eq!(c.write("o3", vec![OsdOp::with(Op::OmapSetVals, denc::to_bytes(&pairs, 0))]).result, 0);
    assert_eq!(c.write("o4", vec![OsdOp::write(3_000_001, vec![1; 5].into())]).result, 0, "it has a hole");
    assert_eq!(c.scrub(true, false), "deep-scrub ok");
}

#[test]
fn a_deep_scrub_finds_bad_blocks_and_a_repair_mends_them() {
    for (seed, copy) in [(41, 0), (42, 1), (43, 2)] {
        let mut c = filled(seed, 3);
        let acting = c.map.pg_to_up_acting(c.pgs()[0]).acting;
        c.rot_and_restart(acting[copy]);
        assert_eq!(c.scrub(false, false), "scrub ok", "names and sizes are right");
        assert_eq!(c.scrub(true, false), "deep-scrub 20 errors");
        until_whole_state(&mut c, "active+clean+inconsistent");
        // Once every copy has heard of it and noted it, OSDs may restart: what is wrong stays known.
        (0..2000).for_each(|_| c.step());
        c.crash(acting[0]);
        c.start(acting[0]);
        until_whole_state(&mut c, "active+clean+inconsistent");
        assert_eq!(c.scrub(true, true), "repair 20 errors, 20 fixed");
        c.settle();
        assert_eq!(c.scrub(true, false), "deep-scrub ok");
        for n in 0..20u8 {
            assert_eq!(c.read(&format!("o{n}")), vec![n; 70_000]);
        }
        c.invariant_copies_agree();
    }
}

#[test]
fn what_is_bad_everywhere_stays_an_error() {
    let mut c = filled(44, 3);
    for osd in (0..3).map(OsdId) {
        c.rot_and_restart(osd);
    }
    assert_eq!(c.scrub(true, true), "repair 60 errors, 0 fixed");
    until_whole_state(&mut c, "active+clean+inconsistent+failed_repair");
    let reply = c.call("o3", osd_flag::READ, vec![OsdOp::read(0, 0)]);
    assert_eq!(reply.result, -5, "nobody has it, and that is known");
    // Written anew, it is right again.
    for n in 0..20u8 {
        assert_eq!(c.write(&format!("o{n}"), vec![OsdOp::write_full(vec![n + 1; 9000].into())]).result, 0);
    }
    assert_eq!(c.scrub(true, false), "deep-scrub ok");
    c.settle();
}

#[test]
fn writes_go_on_beside_scrubs_and_sessions_may_be_lost() {
    for seed in 50..80 {
        let mut c = filled(seed, 3);
        let acting = c.map.pg_to_up_acting(c.pgs()[0]).acting;
        c.rot_and_restart(acting[seed as usize % 3]);
        let mut tids = Vec::new();
        for round in 0..40u8 {
            if round % 10 == 0 {
                c.order_scrub(acting[0], true, round >= 10);
            }
            let ops = vec![OsdOp::append(Bytes::from(vec![round; 100]))];
            tids.push(c.submit(u64::from(round % 4), &format!("o{}", round % 20), osd_flag::WRITE, ops));
            for _ in 0..round * 5 {
                c.step();
            }
            if round % 8 == 5 {
                c.lose_some_session();
            }
        }
        for tid in tids {
            assert_eq!(c.wait(tid).result, 0);
        }
        until_whole_state(&mut c, "active+clean");
        assert_eq!(c.scrub(true, true).split(' ').next(), Some("repair"));
        until_whole_state(&mut c, "active+clean");
        c.settle();
        for n in 0..20u8 {
            let wanted = [vec![n; 70_000], vec![n; 100], vec![n + 20; 100]].concat();
            assert_eq!(c.read(&format!("o{n}")), wanted, "seed {seed}");
        }
        c.invariant_copies_agree();
    }
}

#[test]
fn a_write_to_what_is_being_scrubbed_waits_and_reads_do_not() {
    for seed in 300..310 {
        let mut c = filled(seed, 3);
        let acting = c.map.pg_to_up_acting(c.pgs()[0]).acting;
        let described = Rc::new(Cell::new(false));
        let asked = described.clone();
        c.witness = Some(Box::new(move |_, _, _, m| asked.set(asked.get() || matches!(m.body, PgBody::Scrub { .. }))));
        c.order_scrub(acting[0], false, false);
        while !described.get() {
            c.step();
        }
        // A copy is being described, and what it says does not arrive; what is said to it does.
        c.held.insert((acting[1], acting[0]));
        let write = c.submit(1, "new", osd_flag::WRITE, vec![OsdOp::append(Bytes::from_static(b"x"))]);
        c.run_for(Duration::from_secs(3));
        assert_eq!(c.read("o4"), vec![4; 70_000], "it is served");
        for osd in &acting {
            assert!(!c.stored(*osd, c.pgs()[0]).contains(&"new".to_owned()), "seed {seed}: osd.{osd} has been written to");
        }
        c.held.clear();
        assert_eq!(c.wait(write).result, 0);
        assert_eq!(c.read("new"), b"x");
        c.settle();
        assert_eq!(said_of_scrubs(&c).last().map(String::as_str), Some("scrub ok"));
    }
}

/// How scrubs of the only PG have ended.
fn said_of_scrubs(c: &Cluster) -> Vec<String> {
    let of_pg = format!("{} ", c.pgs()[0]);
    c.said.iter().filter_map(|line| line.strip_prefix(&of_pg)).filter(|word| !word.ends_with("starts")).map(str::to_owned).collect()
}

#[test]
fn scrubs_beside_writes_find_nothing_in_healthy_copies() {
    let (mut ended, mut wrong) = (0, BTreeMap::new());
    for seed in 320..360u64 {
        // Many parts, so that one of them is nearly always compared; large objects take a while to be read.
        let large = seed >= 350;
        let size = if large { 70_000 } else { 9000 };
        let mut c = Cluster::with_options(seed, 3, 1, &[("osd_scrub_chunk_max", "4")]);
        c.settle();
        (0..12).filter(|_| large).for_each(|n| assert_eq!(c.write(&format!("o{n}"), vec![OsdOp::write_full(vec![n; size].into())]).result, 0));
        let primary = c.primary(c.pgs()[0]);
        let mut tids = Vec::new();
        for round in 0..300u32 {
            if said_of_scrubs(&c).len() == c.said.iter().filter(|line| line.ends_with("starts")).count() {
                c.order_scrub(primary, round % 3 > 0, round % 3 == 2);
            }
            let pairs: BTreeMap<denc::BString, Bytes> = [(format!("key{round}").into(), Bytes::from_static(b"value"))].into();
            let ops = match c.rng.random_range(0..10) {
                0 => vec![Op::Delete.into()],
                1 => vec![OsdOp::with(Op::OmapSetVals, denc::to_bytes(&pairs, 0))],
                2 => vec![OsdOp::write_full(vec![round as u8; size].into())],
                3..6 if large => vec![OsdOp::write(u64::from(round) * 200, vec![round as u8; 9000].into())],
                _ => vec![OsdOp::append(Bytes::from(vec![round as u8; 100]))],
            };
            let (client, object, steps) = (c.rng.random_range(0..4), c.rng.random_range(0..12), c.rng.random_range(0..30));
            tids.push(c.submit(client, &format!("o{object}"), osd_flag::WRITE, ops));
            c.run(steps);
            if seed % 2 == 0 && round % 40 == 39 {
                c.lose_some_session();
            }
        }
        for tid in tids {
            let result = c.wait(tid).result;
            assert!(result == 0 || result == Errno::ENOENT.wire(), "{result}");
        }
        c.settle();
        let said = said_of_scrubs(&c);
        ended += said.len();
        wrong.extend(said.into_iter().filter(|word| !word.ends_with(" ok")).map(|word| (seed, word)));
        c.invariant_copies_agree();
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(ended > 150, "{ended} scrubs");
}

#[test]
fn scrubs_come_by_themselves_and_repair_if_they_may() {
    let options = [
        ("osd_scrub_min_interval", "20"),
        ("osd_deep_scrub_interval", "10"),
        ("osd_scrub_auto_repair", "true"),
        ("osd_scrub_auto_repair_num_errors", "100"),
    ];
    let mut c = Cluster::with_options(90, 3, 4, &options);
    c.settle();
    for n in 0..20u8 {
        assert_eq!(c.write(&format!("o{n}"), vec![OsdOp::write_full(vec![n; 70_000].into())]).result, 0);
    }
    c.crash(OsdId(1));
    c.rot(OsdId(1));
    c.start(OsdId(1));
    c.settle();
    for _ in 0..100_000 {
        c.step();
    }
    let fixed = c.said.iter().filter(|line| line.contains("fixed")).count();
    let ok = c.said.iter().filter(|line| line.ends_with("deep-scrub ok")).count();
    assert!(fixed >= 4 && ok >= 4, "{fixed} repairs, {ok} without error");
    c.settle();
}

/// What `filled_with` has written: whole blocks, past the log.
const ON_DEVICE: u64 = 20 * 18 * 4096;

/// Runs until that time.
fn until(c: &mut Cluster, s: u64) {
    while c.now.mono.0 < s * 1_000_000_000 {
        c.step();
    }
}

/// Waits for a scrub that comes by itself: how it ended, and what each OSD's device has read meanwhile.
fn next_deep_scrub(c: &mut Cluster) -> (String, Vec<u64>) {
    let read = |c: &Cluster| -> Vec<u64> { c.map.pg_to_up_acting(c.pgs()[0]).acting.into_iter().map(|osd| c.read_bytes(osd)).collect() };
    let (said, before) = (c.said.len(), read(c));
    for _ in 0..400_000 {
        let end = |line: &&String| line.contains(" deep-scrub ") && !line.ends_with("starts");
        if let Some(line) = c.said[said..].iter().find(end) {
            let word = line.split_once(' ').unwrap().1.to_owned();
            return (word, read(c).iter().zip(before).map(|(now, before)| now - before).collect());
        }
        c.step();
    }
    panic!("no scrub comes: {}", c.line(c.primary(c.pgs()[0])));
}

fn filled_with(seed: u64, options: &[(&str, &str)]) -> Cluster {
    let mut c = Cluster::with_options(seed, 3, 1, options);
    c.settle();
    for n in 0..20u8 {
        assert_eq!(c.write(&format!("o{n}"), vec![OsdOp::write_full(vec![n; 70_000].into())]).result, 0);
    }
    c
}

#[test]
fn what_clients_have_read_a_deep_scrub_need_not_read_again() {
    let options = [("osd_scrub_min_interval", "20"), ("osd_deep_scrub_interval", "200"), ("osd_deep_scrub_randomize_ratio", "0")];
    let mut c = filled_with(91, &options);
    until(&mut c, 180);
    for n in 0..20u8 {
        assert_eq!(c.read(&format!("o{n}")), vec![n; 70_000]);
    }
    // Each copy by itself: nobody has read the others'.
    assert_eq!(next_deep_scrub(&mut c), ("deep-scrub ok".into(), vec![0, ON_DEVICE, ON_DEVICE]));
    let primary = c.primary(c.pgs()[0]);
    let id = c.command(primary, r#"{"prefix": "perf dump"}"#.into());
    let dump = String::from_utf8_lossy(&c.command_replies.remove(&id).unwrap().output).replace(' ', "");
    assert!(dump.contains(&format!("\"scrub_replicated_verified_bytes\":{ON_DEVICE}")), "{dump}");
    // Half an interval later that is too long ago.
    let now = c.now.mono.0 / 1_000_000_000;
    until(&mut c, now + 180);
    for n in 0..10u8 {
        assert_eq!(c.read(&format!("o{n}")), vec![n; 70_000]);
    }
    c.rot(primary);
    assert_eq!(next_deep_scrub(&mut c).0, "deep-scrub 10 errors", "what nobody has read is found");
    assert_eq!(c.scrub(true, false), "deep-scrub 20 errors", "who asks for a scrub has everything read");
    assert_eq!(c.scrub(true, true), "repair 20 errors, 20 fixed");
    c.settle();
}

#[test]
fn what_a_scrub_has_read_another_need_not_read_again_until_it_was_long_ago() {
    // Every scrub is deep, and they come several times as often as blocks have to be read.
    let options = [("osd_scrub_min_interval", "20"), ("osd_deep_scrub_interval", "200"), ("osd_deep_scrub_randomize_ratio", "1")];
    let mut c = filled_with(92, &options);
    let (all, mut reads, mut skips) = (vec![ON_DEVICE; 3], 0, 0);
    while c.now.mono.0 < 1_000_000_000_000 {
        match next_deep_scrub(&mut c) {
            (word, read) if word == "deep-scrub ok" && read == all => reads += 1,
            (word, read) if word == "deep-scrub ok" && read == [0; 3] => skips += 1,
            other => panic!("{other:?}"),
        }
    }
    // Half of the interval each reading counts, and then up to 35 s pass.
    assert!((7..=11).contains(&reads) && skips > 15, "{reads} {skips}");
    assert_eq!(c.scrub(true, false), "deep-scrub ok");
    let before = c.read_bytes(OsdId(0));
    assert_eq!(c.scrub(true, false), "deep-scrub ok");
    assert_eq!(c.read_bytes(OsdId(0)) - before, ON_DEVICE, "who asks for it has everything read");
}

#[test]
fn a_scrub_that_is_late_waits_for_no_hour() {
    // It is the first hour of the day.
    let options = [("osd_scrub_begin_hour", "5"), ("osd_scrub_end_hour", "6"), ("osd_scrub_min_interval", "20"), ("osd_scrub_max_interval", "80")];
    let mut c = filled_with(93, &options);
    let begun = |c: &Cluster| c.said.iter().any(|line| line.ends_with("scrub starts"));
    until(&mut c, 75);
    assert!(!begun(&c));
    until(&mut c, 130);
    assert!(begun(&c));
}

/// Scrubs that began while something recovered, and all.
fn scrubs_beside_recovery(during_recovery: &str) -> (usize, usize) {
    let (mut beside, mut all) = (0, 0);
    for seed in 100..145 {
        let mut c = Cluster::with_options(seed, 3, 8, &[("osd_scrub_during_recovery", during_recovery)]);
        c.settle();
        c.crash(OsdId(2));
        c.run(200);
        c.append_to(0..800, "while it is away");
        c.start(OsdId(2));
        while !c.is_clean() {
            (0..2).for_each(|osd| c.order_scrub(OsdId(osd), false, false));
            let recovers = c.pgs().iter().any(|pg| ["recovering", "backfilling"].iter().any(|word| c.state(*pg).contains(word)));
            let said = c.said.len();
            c.run(5);
            let begun = c.said[said..].iter().filter(|line| line.ends_with("scrub starts")).count();
            (beside, all) = (beside + if recovers { begun } else { 0 }, all + begun);
        }
    }
    (beside, all)
}

#[test]
fn recovery_comes_before_scrubs() {
    let (with, without) = (scrubs_beside_recovery("true"), scrubs_beside_recovery("false"));
    // Between two PGs' turns nobody recovers for a moment.
    assert!(with.0 >= 15 && with.0 > 4 * without.0, "{with:?} {without:?}");
}
