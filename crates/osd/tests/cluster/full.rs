//! Disks that are full of what they should not have, and lack room for what they should.

use crate::harness::Cluster;
use types::msg::{Op, OsdOp};
use types::{OsdId, PgId};

const SIZE: usize = 800_000;

fn write(c: &mut Cluster, name: &str, bytes: usize) {
    assert_eq!(c.write(name, vec![OsdOp::write_full(vec![name.len() as u8; bytes].into())]).result, 0, "{name}");
}

/// Names of `count` new objects in a PG.
fn names_in(c: &Cluster, pg: PgId, prefix: &str, count: usize) -> Vec<String> {
    (0..).map(|n| format!("{prefix}{n}")).filter(|name| c.pg_of(name) == pg).take(count).collect()
}

/// While an OSD is away, one PG shrinks (its objects go, or become small) and the other one grows by as much: what the OSD still has of
/// the one and what it lacks of the other do not fit on its disk together.
fn change_places(log_entries_max: usize, shrinks: usize, removed: bool) -> Cluster {
    let mut c = Cluster::with_options(880 + shrinks as u64, 3, 2, &[("osd_max_backfills", "1")]);
    c.log_entries_max = log_entries_max;
    (0..3).for_each(|osd| c.crash(OsdId(osd)));
    (0..3).for_each(|osd| c.start(OsdId(osd)));
    c.settle();
    let pgs = c.pgs();
    let (small, large) = (pgs[shrinks], pgs[1 - shrinks]);
    let old = names_in(&c, small, "old", 35);
    old.iter().for_each(|name| write(&mut c, name, SIZE));
    let stays = names_in(&c, large, "stays", 33);
    stays.iter().for_each(|name| write(&mut c, name, SIZE));
    c.crash(OsdId(2));
    for name in &old {
        match removed {
            true => assert_eq!(c.write(name, vec![Op::Delete.into()]).result, 0),
            false => write(&mut c, name, 5000),
        }
    }
    names_in(&c, large, "new", 35).iter().for_each(|name| write(&mut c, name, SIZE));
    c.start(OsdId(2));
    c
}

#[test]
fn a_full_disk_gives_up_what_is_old_when_it_is_backfilled() {
    for (shrinks, removed) in [(0, true), (1, true), (0, false), (1, false)] {
        let mut c = change_places(10, shrinks, removed);
        c.settle();
        c.invariant_copies_agree();
    }
}

#[test]
fn a_full_disk_gives_up_what_is_old_when_it_recovers() {
    for shrinks in 0..2 {
        let mut c = change_places(100_000, shrinks, false);
        c.settle();
        c.invariant_copies_agree();
    }
}

#[test]
fn as_long_as_a_disk_is_too_full_to_be_filled_what_becomes_old_on_it_goes() {
    let mut c = Cluster::new(890, 3, 1);
    c.log_entries_max = 10;
    (0..3).for_each(|osd| c.crash(OsdId(osd)));
    (0..3).for_each(|osd| c.start(OsdId(osd)));
    c.settle();
    let (pg, away) = (c.pgs()[0], OsdId(2));
    (0..40).for_each(|n| write(&mut c, &format!("o{n}"), 9000));
    c.crash(away);
    (0..15).for_each(|n| write(&mut c, &format!("o{n}"), 8000));
    (15..30).for_each(|n| assert_eq!(c.write(&format!("o{n}"), vec![Op::Delete.into()]).result, 0));
    let ratios = (c.map.nearfull_ratio, c.map.backfillfull_ratio);
    (c.map.nearfull_ratio, c.map.backfillfull_ratio) = (0.000_1, 0.000_1);
    c.start(away);
    c.until_state(pg, "backfill_toofull");
    c.run(100);
    let left = |c: &mut Cluster| c.stored(away, pg).into_iter().collect::<std::collections::BTreeSet<_>>();
    let names = |numbers: std::ops::Range<u32>| numbers.map(|n| format!("o{n}")).collect();
    assert_eq!(left(&mut c), names(30..40));
    (30..33).for_each(|n| write(&mut c, &format!("o{n}"), 7000));
    (33..35).for_each(|n| assert_eq!(c.write(&format!("o{n}"), vec![Op::Delete.into()]).result, 0));
    c.run(100);
    assert_eq!(left(&mut c), names(35..40));
    // Also what the message was lost for.
    let primary = c.primary(pg);
    let write = c.submit(0, "o35", types::msg::osd::osd_flag::WRITE, vec![OsdOp::write_full(vec![3; 7000].into())]);
    for _ in 0..30 {
        c.step();
        c.lose_session(primary, away);
    }
    c.wait(write);
    c.run(2000);
    assert_eq!(left(&mut c), names(36..40));
    (c.map.nearfull_ratio, c.map.backfillfull_ratio) = ratios;
    c.publish();
    c.settle();
    c.invariant_copies_agree();
}

/// Sets the ratios of nearly full, too full for backfill and full; those of before.
fn set_ratios(c: &mut Cluster, [near, backfill, full]: [f32; 3]) -> [f32; 3] {
    use std::mem::replace;
    [replace(&mut c.map.nearfull_ratio, near), replace(&mut c.map.backfillfull_ratio, backfill), replace(&mut c.map.full_ratio, full)]
}

/// An OSD comes back to a disk that counts as full, and everything is done that can be; the ratios of before.
fn start_full(c: &mut Cluster, osd: OsdId, pg: PgId) -> [f32; 3] {
    let before = set_ratios(c, [0.000_1; 3]);
    c.start(osd);
    c.until_state(pg, "recovery_toofull");
    c.run(5000);
    before
}

#[test]
fn recovery_that_finds_no_room_says_so_until_there_is_some() {
    for seed in 891..897 {
        let mut c = Cluster::with_options(seed, 3, 1, &[("osd_failsafe_full_ratio", "0.001")]);
        c.settle();
        let pg = c.pgs()[0];
        let away = c.map.pg_to_up_acting(pg).acting[seed as usize % 3];
        c.crash(away);
        (0..10).for_each(|n| write(&mut c, &format!("o{n}"), 9000));
        let ratios = start_full(&mut c, away, pg);
        let state = c.state(pg);
        assert_eq!(state, "active+recovery_toofull+degraded", "seed {seed}");
        set_ratios(&mut c, ratios);
        c.publish();
        c.settle();
        c.invariant_copies_agree();
    }
}

/// A copy that is half filled comes back to a full disk and lacks what was written before its cursor meanwhile: what is behind the cursor
/// gives its room all the same.
#[test]
fn what_is_old_behind_the_cursor_goes_while_what_is_before_it_has_no_room() {
    let options = [("osd_failsafe_full_ratio", "0.001"), ("osd_backfill_scan_min", "4"), ("osd_backfill_scan_max", "4")];
    for seed in 898..904 {
        let mut c = Cluster::with_options(seed, 3, 1, &options);
        c.log_entries_max = 10;
        (0..3).for_each(|osd| c.crash(OsdId(osd)));
        (0..3).for_each(|osd| c.start(OsdId(osd)));
        c.settle();
        let pg = c.pgs()[0];
        (0..60).for_each(|n| write(&mut c, &format!("o{n}"), 9000));
        let away = c.map.pg_to_up_acting(pg).acting[1 + seed as usize % 2];
        c.crash(away);
        (0..30).for_each(|n| assert_eq!(c.write(&format!("o{n}"), vec![Op::Delete.into()]).result, 0));
        c.start(away);
        let is_half_filled = |c: &Cluster| c.line_of(away, pg).contains(" last_backfill 1:");
        while !is_half_filled(&c) {
            c.step();
        }
        // Until that is on its disk.
        c.run(30);
        assert!(is_half_filled(&c), "seed {seed}");
        c.crash(away);
        let primary = c.primary(pg);
        c.stored(primary, pg)[..2].iter().for_each(|name| write(&mut c, name, 5000));
        let ratios = start_full(&mut c, away, pg);
        assert!(c.line_of(away, pg).contains(" missing 2 "), "seed {seed}: {}", c.line_of(away, pg));
        let deleted = |name: &String| name[1..].parse::<u32>().is_ok_and(|n| n < 30);
        let left: Vec<String> = c.stored(away, pg).into_iter().filter(deleted).collect();
        assert_eq!(left, [""; 0], "seed {seed}");
        set_ratios(&mut c, ratios);
        c.publish();
        c.settle();
        c.invariant_copies_agree();
    }
}
