//! Snapshots: what they show stays as it was, whatever is written, whoever fails, however PGs are divided; and what removed ones
//! leave goes.

use super::append;
use crate::harness::{Cluster, POOL};
use crate::split::{names, set_pgs};
use bytes::Bytes;
use rand::Rng;
use std::collections::BTreeMap;
use types::map::PgPool;
use types::msg::osd::osd_flag;
use types::msg::{Op, OsdOp};
use types::pg::PgStat;
use types::{OsdId, Snap};

const ENOENT: i32 = -2;
const EINVAL: i32 = -22;
const EOLDSNAPC: i32 = -85;

/// The next snapshot: writes leave it alone from now on.
fn take(c: &mut Cluster) -> Snap {
    let snap = Snap(c.kept.0.0 + 1);
    c.kept.0 = snap;
    c.kept.1.insert(0, snap);
    let pool = c.map.pools.get_mut(&POOL).unwrap();
    pool.snap_seq = snap;
    pool.flags |= PgPool::FLAG_SELFMANAGED_SNAPS;
    c.publish();
    snap
}

/// A snapshot is removed.
fn remove(c: &mut Cluster, snap: Snap) {
    c.kept.1.retain(|s| *s != snap);
    c.map.removed_snaps_queue.entry(POOL).or_default().insert(snap.0, 1);
    c.publish();
}

fn read_at(c: &mut Cluster, name: &str, snap: Snap) -> Vec<u8> {
    c.at = snap;
    let found = c.read(name);
    c.at = Snap::HEAD;
    found
}

fn write_full(c: &mut Cluster, name: &str, text: &str) {
    let data = Bytes::copy_from_slice(text.as_bytes());
    assert_eq!(c.write(name, vec![OsdOp::write_full(data)]).result, 0);
}

/// Everything that OSDs store of the pool, clones and whiteouts included.
fn stored(c: &mut Cluster, osd: i32) -> usize {
    let pgs = c.pgs();
    pgs.into_iter().map(|pg| c.stored(OsdId(osd), pg).len()).sum()
}

/// What primaries last reported.
fn reports(c: &Cluster) -> Vec<PgStat> {
    c.stats.values().flat_map(|s| s.pgs.values().cloned()).collect()
}

#[test]
fn a_snapshot_shows_what_was() {
    let mut c = Cluster::new(2001, 3, 1);
    c.settle();
    write_full(&mut c, "o", "first");
    let one = take(&mut c);
    assert_eq!(read_at(&mut c, "o", one), b"first", "nothing was written since");
    write_full(&mut c, "o", "second");
    write_full(&mut c, "new", "x");
    let two = take(&mut c);
    assert_eq!(c.write("o", append("!")).result, 0);
    assert_eq!(c.write("o", vec![Op::Delete.into()]).result, 0);
    let seen = [one, two, Snap::HEAD].map(|snap| read_at(&mut c, "o", snap));
    assert_eq!(seen, [b"first".to_vec(), b"second".to_vec(), Vec::new()]);
    assert_eq!((read_at(&mut c, "new", one), read_at(&mut c, "new", two)), (vec![], b"x".to_vec()));
    assert_eq!(names(&mut c), ["new"], "clones and whiteouts are nobody's objects");
    assert_eq!(c.write("o", vec![Op::Delete.into()]).result, ENOENT);
    assert_eq!(c.write("o", vec![OsdOp::create(true)]).result, 0, "it is not there");
    c.invariant_copies_agree();
}

#[test]
fn an_object_goes_back_to_a_snapshot_with_everything_it_had() {
    let mut c = Cluster::new(2002, 3, 1);
    c.settle();
    let key = denc::to_bytes(&BTreeMap::from([(denc::BString::from("k"), Bytes::from("v"))]), 0);
    write_full(&mut c, "o", "first");
    assert_eq!(c.write("o", vec![OsdOp::setxattr(b"x", b"1"), OsdOp::with(Op::OmapSetVals, key)]).result, 0);
    let one = take(&mut c);
    assert_eq!(c.write("o", vec![OsdOp::setxattr(b"x", b"2"), Op::OmapClear.into(), append("longer").remove(0)]).result, 0);
    let two = take(&mut c);
    assert_eq!(c.write("o", vec![Op::Rollback(one).into()]).result, 0);
    let omap = denc::to_bytes(&(denc::BString::default(), 9u64, denc::BString::default()), 0);
    let reply = c.call("o", osd_flag::READ, vec![OsdOp::read(0, 0), OsdOp::getxattr(b"x"), OsdOp::with(Op::OmapGetVals, omap)]);
    let out: Vec<Bytes> = reply.ops.iter().map(|o| o.outdata.contiguous()).collect();
    assert_eq!((&out[0][..], &out[1][..], out[2][0]), (&b"first"[..], &b"1"[..], 1));
    assert_eq!(read_at(&mut c, "o", two), b"firstlonger");
    // Where there was nothing, there is nothing again; where nothing was written since, nothing happens.
    write_full(&mut c, "late", "x");
    assert_eq!(c.write("late", vec![Op::Rollback(two).into()]).result, 0);
    assert_eq!(c.call("late", osd_flag::READ, vec![Op::Stat.into()]).result, ENOENT);
    let three = take(&mut c);
    assert_eq!(c.write("o", vec![Op::Rollback(three).into()]).result, 0);
    assert_eq!((c.read("o"), read_at(&mut c, "o", three)), (b"first".to_vec(), b"first".to_vec()));
    c.invariant_copies_agree();
}

#[test]
fn contexts_that_cannot_be_are_refused_and_old_ones_where_that_is_asked_for() {
    let mut c = Cluster::new(2003, 3, 1);
    c.settle();
    c.kept = (Snap(5), vec![Snap(5), Snap(3)]);
    write_full(&mut c, "o", "x");
    c.kept = (Snap(4), vec![Snap(5)]);
    assert_eq!(c.write("o", append("y")).result, EINVAL);
    c.kept = (Snap(4), vec![Snap(3), Snap(4)]);
    assert_eq!(c.write("o", append("y")).result, EINVAL);
    c.kept = (Snap(3), vec![Snap(3)]);
    assert_eq!(c.call("o", osd_flag::WRITE | osd_flag::ORDERSNAP, append("y")).result, EOLDSNAPC);
    assert_eq!(c.write("o", append("y")).result, 0, "else an old one makes no clone");
    assert_eq!(read_at(&mut c, "o", Snap(6)), b"xy");
    c.at = Snap(4);
    assert_eq!(c.call("o", osd_flag::READ, vec![Op::ListSnaps.into()]).result, EINVAL);
    c.at = Snap::DIR;
    assert_eq!(c.call("o", osd_flag::READ, vec![Op::Stat.into()]).result, EINVAL);
    assert_eq!(c.call("o", osd_flag::READ, vec![Op::ListSnaps.into()]).result, 0);
}

#[test]
fn what_removed_snapshots_leave_goes_and_nothing_else() {
    let mut c = Cluster::new(2004, 3, 4);
    c.settle();
    for n in 0..30 {
        write_full(&mut c, &format!("o{n}"), &format!("{n} at first"));
    }
    let one = take(&mut c);
    let two = take(&mut c);
    for n in 0..30 {
        write_full(&mut c, &format!("o{n}"), "then");
    }
    let three = take(&mut c);
    for n in 0..10 {
        assert_eq!(c.write(&format!("o{n}"), vec![Op::Delete.into()]).result, 0);
    }
    assert_eq!(stored(&mut c, 0), 30 + 30 + 10);
    remove(&mut c, two);
    c.settle();
    assert_eq!(stored(&mut c, 0), 70, "another snapshot shows the same clones");
    assert_eq!(read_at(&mut c, "o3", two), b"");
    assert_eq!(read_at(&mut c, "o3", one), b"3 at first");
    remove(&mut c, one);
    c.settle();
    assert_eq!(stored(&mut c, 0), 40);
    assert_eq!(read_at(&mut c, "o3", three), b"then");
    remove(&mut c, three);
    c.settle();
    assert_eq!(stored(&mut c, 0), 20, "whiteouts go with the last clone");
    c.run_for(std::time::Duration::from_secs(10));
    let reports = reports(&c);
    assert_eq!(reports.len(), 4);
    for report in reports {
        assert_eq!((report.snaptrimq_len, report.stats.sum.num_object_clones), (0, 0), "{:?}", report.state);
        assert!((1..=3).all(|snap| report.purged_snaps.contains(snap)));
    }
    c.invariant_copies_agree();
}

#[test]
fn clones_survive_what_objects_survive() {
    for seed in 2010..2018 {
        let mut c = Cluster::new(seed, 4, 2);
        c.log_entries_max = [20, 5][(seed % 2) as usize];
        c.settle();
        let mut shown: BTreeMap<(Snap, String), String> = BTreeMap::new();
        let mut now: BTreeMap<String, String> = BTreeMap::new();
        for round in 0..8 {
            let victim = OsdId(c.rng.random_range(0..4));
            if c.is_running(victim) {
                c.crash(victim);
            }
            for n in 0..12 {
                let name = format!("o{}", c.rng.random_range(0..16));
                let text = format!("{round} {n}");
                write_full(&mut c, &name, &text);
                now.insert(name, text);
            }
            let snap = take(&mut c);
            shown.extend(now.iter().map(|(name, text)| ((snap, name.clone()), text.clone())));
            if round % 3 == 2 {
                let gone = c.kept.1[c.rng.random_range(0..c.kept.1.len())];
                remove(&mut c, gone);
                shown.retain(|(snap, _), _| *snap != gone);
            }
            c.start(victim);
            if round % 4 == 3 {
                c.settle();
            }
            if round == 4 {
                set_pgs(&mut c, 5, 5);
            }
        }
        c.settle();
        for ((snap, name), text) in &shown {
            assert_eq!(read_at(&mut c, name, *snap), text.as_bytes(), "{seed}: {name} at {snap:?}");
        }
        c.invariant_copies_agree();
        for snap in c.kept.1.clone() {
            remove(&mut c, snap);
        }
        c.settle();
        for osd in 0..4 {
            let objects: Vec<String> = c.pgs().into_iter().flat_map(|pg| c.stored(OsdId(osd), pg)).collect();
            let names: std::collections::BTreeSet<&String> = objects.iter().collect();
            assert_eq!(names.len(), objects.len(), "{seed}: clones are left at osd.{osd}");
        }
        assert_eq!(c.scrub(true, false), "deep-scrub ok");
    }
}
