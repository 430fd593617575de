//! Pools whose objects lie on shards.

use super::{append, change_all, check_changed, churn_of};
use crate::harness::{Cluster, POOL};
use bytes::Bytes;
use rand::Rng;
use types::OsdId;
use types::map::PgPool;
use types::msg::osd::osd_flag;
use types::msg::{Op, OsdOp};
use types::msg::osd_op::Extent;

const SHAPES: [(u8, u8); 4] = [(2, 1), (2, 2), (4, 2), (3, 2)];

fn extent(offset: u64, length: u64) -> Extent {
    Extent { offset, length, ..Extent::default() }
}

fn write_at(offset: u64, text: &[u8]) -> Vec<OsdOp> {
    vec![OsdOp::with(Op::Write(extent(offset, text.len() as u64)), Bytes::copy_from_slice(text))]
}

/// Each OSD is away once; what is there is read without it.
fn each_away(c: &mut Cluster, osds: i32, check: impl Fn(&mut Cluster)) {
    for osd in (0..osds).map(OsdId) {
        c.crash(osd);
        check(c);
        c.start(osd);
        c.settle();
    }
}

#[test]
fn what_is_written_is_read_whoever_is_away() {
    for (k, m) in SHAPES {
        let osds = i32::from(k + m);
        let mut c = Cluster::erasure_coded(1, osds, 4, (k, m), &[]);
        c.settle();
        for n in 0..12 {
            assert_eq!(c.write(&format!("o{n}"), vec![OsdOp::write_full(vec![n as u8; 10 * n].into())]).result, 0, "{k}+{m}");
        }
        let check = |c: &mut Cluster| (0..12).for_each(|n| assert_eq!(c.read(&format!("o{n}")), vec![n as u8; 10 * n], "{k}+{m} o{n}"));
        check(&mut c);
        c.settle();
        c.invariant_copies_agree();
        each_away(&mut c, osds, check);
    }
}

#[test]
fn any_change_of_bytes_is_one_of_all_shards() {
    for (seed, (k, m)) in (10..).zip(SHAPES) {
        let osds = i32::from(k + m);
        let mut c = Cluster::erasure_coded(seed, osds, 2, (k, m), &[]);
        c.settle();
        let mut object: Vec<u8> = Vec::new();
        for n in 0..60u8 {
            let (off, len) = (c.rng.random_range(0..120usize), c.rng.random_range(1..40usize));
            let ops = match c.rng.random_range(0..8) {
                0 => {
                    object.resize(off, 0);
                    vec![Op::Truncate(extent(off as u64, 0)).into()]
                }
                1 => {
                    // Zeros up to the end are a truncation.
                    match off + len < object.len() {
                        true => object[off..off + len].fill(0),
                        false => object.truncate(off.min(object.len())),
                    }
                    vec![Op::Zero(extent(off as u64, len as u64)).into()]
                }
                2 => {
                    object.extend(vec![n; len]);
                    vec![OsdOp::append(vec![n; len].into())]
                }
                _ => {
                    object.resize(object.len().max(off + len), 0);
                    object[off..off + len].fill(n);
                    write_at(off as u64, &vec![n; len])
                }
            };
            if n == 0 {
                assert_eq!(c.write("o", vec![Op::Create.into()]).result, 0);
            }
            assert_eq!(c.write("o", ops).result, 0);
            if n % 7 == 0 {
                assert_eq!(c.read("o"), object);
            }
        }
        c.settle();
        c.invariant_copies_agree();
        each_away(&mut c, osds, |c| assert_eq!(c.read("o"), object, "{k}+{m}"));
    }
}

#[test]
fn acknowledged_appends_are_there_once_whatever_crashes() {
    let seeds = std::env::var("OSD_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
    for seed in 3000..3000 + seeds {
        let (k, m) = SHAPES[seed as usize % SHAPES.len()];
        let osds = i32::from(k + m) + seed as i32 % 2;
        churn_of(Cluster::erasure_coded(seed, osds, 4, (k, m), &[]), osds, seed, seed % 3 == 0);
    }
}

#[test]
fn what_a_disk_has_lost_is_read_of_all_others_in_turn() {
    let mut c = Cluster::erasure_coded(30, 6, 1, (3, 3), &[]);
    c.settle();
    // So large that it goes to its place at once.
    (0..60).for_each(|n| assert_eq!(c.write(&format!("o{n}"), vec![OsdOp::write_full(vec![n; 192 << 10].into())]).result, 0));
    let primary = c.primary(c.pgs()[0]);
    let others: Vec<OsdId> = (0..6).map(OsdId).filter(|osd| *osd != primary).collect();
    // Nothing is in memory any more.
    for osd in &others {
        c.crash(*osd);
        c.start(*osd);
        c.settle();
    }
    let before: Vec<u64> = others.iter().map(|osd| c.read_bytes(*osd)).collect();
    c.crash(others[2]);
    c.replace_disk(others[2]);
    c.start(others[2]);
    c.settle();
    let read: Vec<u64> = others.iter().zip(before).map(|(osd, before)| c.read_bytes(*osd) - before).collect();
    let (sum, fewest) = (read.iter().sum::<u64>(), read.iter().enumerate().filter(|(i, _)| *i != 2).map(|(_, bytes)| *bytes).min().unwrap());
    assert!(c.is_clean() && sum > 0 && fewest >= sum / 8, "{read:?}");
}

#[test]
fn whoever_was_away_gets_its_shards_by_log_or_by_scan() {
    for (seed, writes) in [(20, 10), (21, 200)] {
        let mut c = Cluster::erasure_coded(seed, 4, 1, (2, 2), &[]);
        c.settle();
        (0..20).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("before")).result, 0));
        c.crash(OsdId(1));
        (0..writes).for_each(|n| assert_eq!(c.write(&format!("o{}", n % 20), append("y")).result, 0));
        c.start(OsdId(1));
        c.settle();
        c.invariant_copies_agree();
        for away in [0, 2, 3].map(OsdId) {
            c.crash(away);
            (0..10).for_each(|n| assert!(c.read(&format!("o{n}")).starts_with(b"beforey")));
            c.start(away);
            c.settle();
        }
    }
}

fn filled(seed: u64, osds: i32, shape: (u8, u8)) -> Cluster {
    let mut c = Cluster::erasure_coded(seed, osds, 1, shape, &[]);
    c.settle();
    for n in 0..20u8 {
        assert_eq!(c.write(&format!("o{n}"), vec![OsdOp::write_full(vec![n; 70_001].into())]).result, 0);
    }
    c
}

fn check_filled(c: &mut Cluster) {
    (0..20u8).for_each(|n| assert!(c.read(&format!("o{n}")) == vec![n; 70_001], "o{n}"));
}

#[test]
fn bad_blocks_of_as_many_shards_as_may_be_lost_are_computed_anew() {
    for primary_too in [false, true] {
        let mut c = filled(30, 4, (2, 2));
        let pg = c.pgs()[0];
        let acting = c.map.pg_to_up_acting(pg).acting;
        let bad = if primary_too { [acting[0], acting[2]] } else { [acting[1], acting[3]] };
        bad.into_iter().for_each(|osd| c.rot(osd));
        bad.into_iter().for_each(|osd| c.rot_and_restart(osd));
        check_filled(&mut c);
        assert_eq!(c.write("o3", write_at(5000, b"changed")).result, 0);
        c.settle();
        let mut wanted = vec![3; 70_001];
        wanted[5000..5007].copy_from_slice(b"changed");
        assert!(c.read("o3") == wanted);
    }
}

#[test]
fn a_deep_scrub_finds_bad_shards_and_a_repair_mends_them() {
    let mut c = filled(31, 3, (2, 1));
    assert_eq!(c.scrub(false, false), "scrub ok");
    assert_eq!(c.scrub(true, false), "deep-scrub ok");
    let pg = c.pgs()[0];
    let acting = c.map.pg_to_up_acting(pg).acting;
    c.rot_and_restart(acting[1]);
    assert_eq!(c.scrub(true, false), "deep-scrub 20 errors");
    let said = c.scrub(true, true);
    assert!(said.starts_with("repair 20 errors"), "{said}");
    c.settle();
    assert_eq!(c.scrub(true, false), "deep-scrub ok");
    c.crash(acting[0]);
    check_filled(&mut c);
}

#[test]
fn what_too_few_shards_have_is_unfound_until_one_more_comes() {
    let mut c = filled(32, 3, (2, 1));
    let pg = c.pgs()[0];
    let acting = c.map.pg_to_up_acting(pg).acting;
    c.crash(acting[2]);
    (0..10).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("y")).result, 0));
    c.start(acting[2]);
    c.run(100);
    // Whoever has the newest writes besides the primary goes before all of them are copied.
    c.crash(acting[1]);
    c.run(5000);
    c.start(acting[1]);
    c.settle();
    c.invariant_copies_agree();
    (0..10u8).for_each(|n| assert!(c.read(&format!("o{n}")) == [vec![n; 70_001], b"y".to_vec()].concat()));
}

#[test]
fn shards_move_with_their_places_while_clients_go_on() {
    let options = [("osd_recovery_max_active", "1"), ("osd_backfill_scan_min", "4"), ("osd_backfill_scan_max", "8")];
    for seed in 40..48 {
        let (k, m) = SHAPES[seed as usize % 4];
        let osds = i32::from(k + m) + 2;
        let mut c = Cluster::erasure_coded(seed, osds, 1, (k, m), &options);
        c.log_entries_max = 20;
        c.settle();
        (0..200).for_each(|n| assert_eq!(c.write(&format!("o{}", n % 80), append("x")).result, 0));
        let pg = c.pgs()[0];
        let acting = c.map.pg_to_up_acting(pg).acting;
        acting[..2].iter().for_each(|osd| c.map.osd_weight[osd.0 as usize] = 0);
        c.publish();
        c.until_state(pg, "backfilling");
        assert!(!c.state(pg).contains("degraded"), "{}", c.state(pg));
        change_all(&mut c);
        c.settle();
        c.invariant_copies_agree();
        let m = c.map.pg_to_up_acting(pg);
        assert_eq!(m.acting, m.up);
        each_away(&mut c, osds, |c| check_changed(c, seed));
    }
}

#[test]
fn without_overwrites_there_are_only_appends_of_stripes() {
    const EOPNOTSUPP: i32 = -95;
    let mut c = Cluster::erasure_coded(50, 3, 1, (2, 1), &[]);
    c.map.pools.get_mut(&POOL).unwrap().flags &= !PgPool::FLAG_EC_OVERWRITES;
    c.publish();
    c.settle();
    assert_eq!(c.write("o", append("8 bytes.")).result, 0);
    assert_eq!(c.write("o", append("and more")).result, 0);
    assert_eq!(c.write("o", write_at(3, b"x")).result, EOPNOTSUPP);
    assert_eq!(c.write("o", vec![Op::Truncate(extent(3, 0)).into()]).result, EOPNOTSUPP);
    assert_eq!(c.read("o"), b"8 bytes.and more");
    assert_eq!(c.write("o", vec![OsdOp::write_full(Bytes::from_static(b"odd"))]).result, 0);
    assert_eq!(c.write("o", append("never")).result, EOPNOTSUPP);
    assert_eq!(c.read("o"), b"odd");
}

#[test]
fn omaps_are_refused_and_attributes_kept() {
    const EOPNOTSUPP: i32 = -95;
    let mut c = filled(51, 3, (2, 1));
    let pairs: std::collections::BTreeMap<denc::BString, Bytes> = [("k".into(), "v".into())].into();
    assert_eq!(c.write("o1", vec![OsdOp::with(Op::OmapSetVals, denc::to_bytes(&pairs, 0))]).result, EOPNOTSUPP);
    let name = types::msg::osd_op::Xattr { name_len: 1, value_len: 3, ..Default::default() };
    assert_eq!(c.write("o1", vec![OsdOp::with(Op::SetXattr(name), Bytes::from_static(b"avwx"))]).result, 0);
    let get = types::msg::osd_op::Xattr { name_len: 1, ..Default::default() };
    each_away(&mut c, 3, |c| {
        let reply = c.call("o1", osd_flag::READ, vec![OsdOp::with(Op::GetXattr(get), Bytes::from_static(b"a"))]);
        assert_eq!((reply.result >= 0, &reply.ops[0].outdata.contiguous()[..]), (true, &b"vwx"[..]));
    });
    check_filled(&mut c);
}

#[test]
fn nothing_waits_beside_objects_once_writes_are_settled() {
    let mut c = filled(52, 3, (2, 1));
    let pg = c.pgs()[0];
    (0..10).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("y")).result, 0));
    c.run_for(std::time::Duration::from_secs(5));
    c.settle();
    (0..3).for_each(|osd| assert_eq!(c.stored(OsdId(osd), pg).len(), 20));
}

#[test]
fn of_two_copies_of_a_shard_the_one_stays_that_was_written_while_the_other_was_away() {
    for seed in 60..72 {
        let mut c = Cluster::erasure_coded(seed, 4, 1, (2, 1), &[]);
        c.settle();
        let pg = c.pgs()[0];
        let acting = c.map.pg_to_up_acting(pg).acting;
        let (away, dies) = (acting[seed as usize % 3], acting[(seed as usize + 1) % 3]);
        // The fourth takes the shard of the one that goes.
        c.crash(away);
        c.map.osd_weight[away.0 as usize] = 0;
        c.publish();
        c.settle();
        (0..10).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("written meanwhile")).result, 0));
        c.settle();
        // It comes back, into the place of one that dies.
        c.map.osd_weight[away.0 as usize] = 0x10000;
        c.map.osd_weight[dies.0 as usize] = 0;
        c.crash(dies);
        c.start(away);
        c.settle();
        c.invariant_copies_agree();
        (0..10).for_each(|n| assert_eq!(c.read(&format!("o{n}")), b"written meanwhile", "seed {seed}"));
    }
}
