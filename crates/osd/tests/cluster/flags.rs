//! What an operator's flags stop, and what they do not.

use crate::harness::{Cluster, POOL};
use crate::{append, overrun_log};
use types::Errno;
use types::map::{OsdMap, PgPool};
use types::msg::OsdOp;
use types::msg::osd::osd_flag;

const NORECOVER: u32 = OsdMap::FLAG_NORECOVER;
const NOBACKFILL: u32 = OsdMap::FLAG_NOBACKFILL;
const NOREBALANCE: u32 = OsdMap::FLAG_NOREBALANCE;

/// What a copy needs that is not whole.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Needs {
    Recovery,
    Backfill,
    /// As many copies are whole as should be, not all where they should be.
    Move,
}

/// True if a copy becomes whole while these flags are set. It does when they are not any more.
fn heals(flags: u32, needs: Needs) -> bool {
    let mut c = Cluster::new(1100 + u64::from(flags), 4, 1);
    c.settle();
    (0..20).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
    let away = c.map.pg_to_up_acting(c.pgs()[0]).acting[1];
    if needs == Needs::Move {
        overrun_log(&mut c);
        c.map.osd_weight[away.0 as usize] = 0;
    } else {
        c.crash(away);
    }
    c.map.flags |= flags;
    c.publish();
    if needs == Needs::Backfill {
        overrun_log(&mut c);
    }
    if needs != Needs::Move {
        (0..20).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("y")).result, 0));
        c.start(away);
    }
    c.run(6000);
    let healed = c.state(c.pgs()[0]) == "active+clean";
    c.map.flags &= !flags;
    c.publish();
    c.settle();
    c.invariant_copies_agree();
    healed
}

#[test]
fn each_flag_stops_what_it_says_and_nothing_else() {
    let all = [Needs::Recovery, Needs::Backfill, Needs::Move];
    let healed = |flags| all.map(|needs| heals(flags, needs));
    assert_eq!(healed(0), [true, true, true]);
    assert_eq!(healed(NORECOVER), [false, false, false]);
    assert_eq!(healed(NOBACKFILL), [true, false, false]);
    assert_eq!(healed(NOREBALANCE), [true, true, false]);
}

#[test]
fn what_a_client_waits_for_is_recovered_whatever_flags_say() {
    let mut c = Cluster::new(1110, 3, 1);
    c.settle();
    assert_eq!(c.write("o", append("x")).result, 0);
    let primary = c.primary(c.pgs()[0]);
    c.crash(primary);
    assert_eq!(c.write("o", append("y")).result, 0);
    c.map.flags |= NORECOVER;
    c.publish();
    c.start(primary);
    assert_eq!(c.read("o"), b"xy");
}

#[test]
fn without_scrubs_none_comes_by_itself_and_those_that_are_ordered_do() {
    let options = [("osd_scrub_min_interval", "20"), ("osd_deep_scrub_interval", "10")];
    let mut c = Cluster::with_options(1111, 3, 1, &options);
    c.map.flags |= OsdMap::FLAG_NOSCRUB | OsdMap::FLAG_NODEEP_SCRUB;
    c.publish();
    c.settle();
    assert_eq!(c.write("o", append("x")).result, 0);
    let scrubs = |c: &Cluster| c.said.iter().filter(|line| line.contains("scrub")).count();
    c.run(40_000);
    assert_eq!(scrubs(&c), 0, "{:?}", c.said);
    assert_eq!(c.scrub(false, false), "scrub ok");
    let ordered = scrubs(&c);
    c.map.flags &= !OsdMap::FLAG_NODEEP_SCRUB;
    c.publish();
    c.run(40_000);
    assert!(scrubs(&c) > ordered && c.said[ordered..].iter().all(|line| line.contains("deep-scrub")), "{:?}", c.said);
}

#[test]
fn a_pool_that_is_to_fail_fails_and_then_goes_on() {
    let mut c = Cluster::new(1150, 3, 1);
    c.settle();
    assert_eq!(c.write("o", append("x")).result, 0);
    let set = |c: &mut Cluster, on: bool| {
        let pool = c.map.pools.get_mut(&POOL).unwrap();
        pool.flags = if on { pool.flags | PgPool::FLAG_EIO } else { pool.flags & !PgPool::FLAG_EIO };
        c.publish();
        c.settle();
    };
    set(&mut c, true);
    assert_eq!(c.write("o", append("y")).result, Errno::EIO.wire());
    assert_eq!(c.call("o", osd_flag::READ, vec![OsdOp::read(0, 0)]).result, Errno::EIO.wire());
    // A client that knows what the map says answers itself.
    let tid = c.submit(0, "o", osd_flag::WRITE | osd_flag::SUPPORTSPOOLEIO, append("z"));
    c.run(2000);
    assert!(c.pending[&tid].reply.is_none());
    set(&mut c, false);
    assert_eq!(c.write("o", append("!")).result, 0);
    assert_eq!(c.read("o"), b"x!");
}
