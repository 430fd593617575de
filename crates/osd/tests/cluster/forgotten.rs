//! What an OSD does not know any more: maps that are gone, and what was on a disk that is empty now.

use crate::append;
use crate::harness::{Cluster, POOL};
use types::OsdId;
use types::msg::OsdOp;
use types::msg::osd::osd_flag;

/// An object was written on all, and again without one OSD, which is away; who else there is. The interval in which the others wrote has
/// begun in a map that nobody has any more.
fn with_a_gap_of_maps(seed: u64) -> (Cluster, OsdId, Vec<OsdId>) {
    let mut c = Cluster::new(seed, 4, 1);
    c.map.pools.get_mut(&POOL).unwrap().min_size = 1;
    c.publish();
    c.settle();
    assert_eq!(c.write("o", append("old,")).result, 0);
    let away = c.map.pg_to_up_acting(c.pgs()[0]).acting[0];
    let others = (0..4).map(OsdId).filter(|osd| *osd != away).collect();
    c.crash(away);
    c.map.osd_weight[away.0 as usize] = 0;
    c.settle();
    assert_eq!(c.write("o", append("new")).result, 0);
    (0..5).for_each(|_| c.publish());
    c.trim_maps();
    (c, away, others)
}

/// The PG is down until those are back who know what was written.
fn serves_only_with(c: &mut Cluster, others: &[OsdId], seed: u64) {
    let read = c.submit(0, "o", osd_flag::READ, vec![OsdOp::read(0, 0)]);
    c.run(2000);
    assert!(c.state(c.pgs()[0]).starts_with("down"), "seed {seed}: {}", c.status());
    others.iter().for_each(|osd| c.start(*osd));
    assert_eq!(c.wait(read).ops[0].outdata.contiguous(), "old,new", "seed {seed}");
    c.settle();
    c.invariant_copies_agree();
}

#[test]
fn whoever_lacks_maps_does_not_take_what_may_have_been_written_meanwhile_for_unwritten() {
    for (seed, replaced) in (841..851).zip([false, true].into_iter().cycle()) {
        let (mut c, away, others) = with_a_gap_of_maps(seed);
        c.settle();
        others.iter().for_each(|osd| c.crash(*osd));
        if replaced {
            c.replace_disk(away);
        }
        c.map.osd_weight[away.0 as usize] = 0x10000;
        c.publish();
        c.start(away);
        serves_only_with(&mut c, &others, seed);
    }
}

#[test]
fn a_restart_does_not_forget_what_may_have_been_written_in_a_gap_of_maps() {
    for seed in 851..861 {
        let (mut c, away, others) = with_a_gap_of_maps(seed);
        // It hears of the interval that others write in, and not how that began, and not from them; then it starts anew.
        others.iter().for_each(|osd| c.held.extend([(*osd, away), (away, *osd)]));
        c.start(away);
        c.run(1000);
        assert!(c.map.is_up(away) && c.is_running(away));
        c.crash(away);
        c.start(away);
        c.run(1000);
        others.iter().for_each(|osd| c.crash(*osd));
        c.held.clear();
        c.map.osd_weight[away.0 as usize] = 0x10000;
        c.publish();
        serves_only_with(&mut c, &others, seed);
    }
}

/// Everybody is down; all but the last come back, with empty disks under their old names.
fn emptied(seed: u64) -> Cluster {
    let mut c = Cluster::new(seed, 3, 4);
    c.settle();
    (0..20).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
    (0..3).for_each(|osd| c.crash(OsdId(osd)));
    (0..2).for_each(|osd| c.replace_disk(OsdId(osd)));
    (0..2).for_each(|osd| c.start(OsdId(osd)));
    c
}

#[test]
fn an_empty_disk_under_an_old_name_does_not_speak_for_what_was_there() {
    for seed in 830..840 {
        let mut c = emptied(seed);
        let reads: Vec<u64> = (0..20).map(|n| c.submit(0, &format!("o{n}"), osd_flag::READ, vec![OsdOp::read(0, 0)])).collect();
        c.run(3000);
        // Nor after another restart, when its disk is not empty any more.
        c.crash(OsdId(0));
        c.start(OsdId(0));
        c.run(3000);
        assert!(c.pgs().iter().all(|pg| c.state(*pg).starts_with("down")), "seed {seed}: {}", c.status());
        assert!(reads.iter().all(|tid| c.pending[tid].reply.is_none()), "seed {seed}");
        c.start(OsdId(2));
        c.settle();
        reads.iter().for_each(|tid| assert_eq!(c.wait(*tid).ops[0].outdata.contiguous(), "x", "seed {seed}"));
        c.invariant_copies_agree();
        // From now on they speak for what is there.
        c.crash(OsdId(2));
        assert_eq!(c.read("o1"), b"x");
    }
}

#[test]
fn behind_an_empty_disk_nothing_is_waited_for_that_is_declared_lost() {
    let mut c = emptied(840);
    c.run(3000);
    assert!(c.pgs().iter().all(|pg| c.state(*pg).starts_with("down")), "{}", c.status());
    c.declare_lost(OsdId(2));
    assert_eq!(c.call("o1", osd_flag::READ, vec![OsdOp::read(0, 0)]).result, types::Errno::ENOENT.wire());
}

#[test]
fn too_few_copies_fill_others_before_anybody_is_served() {
    let mut c = Cluster::with_options(810, 3, 1, &[("osd_recovery_max_active", "1")]);
    c.settle();
    (0..100).for_each(|n| assert_eq!(c.write(&format!("o{}", n % 30), append("x")).result, 0));
    c.crash(OsdId(0));
    (0..100).for_each(|n| assert_eq!(c.write(&format!("o{}", n % 30), append("y")).result, 0));
    // Of two whole copies one gets an empty disk.
    c.crash(OsdId(1));
    c.replace_disk(OsdId(1));
    c.start(OsdId(0));
    c.start(OsdId(1));
    let write = c.submit(0, "o1", osd_flag::WRITE, append("z"));
    c.until_state(c.pgs()[0], "peered");
    assert!(c.pending[&write].reply.is_none());
    c.settle();
    assert_eq!(c.wait(write).result, 0);
    c.invariant_copies_agree();
    assert!(c.read("o1").ends_with(b"yz"));
}
