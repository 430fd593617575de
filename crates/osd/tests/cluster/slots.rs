//! How many PGs recover at once, out of each OSD and into each, and which of them first.
//!
//! Upstream: doc/dev/osd_internals/backfill_reservation.rst, recovery_reservation.rst.

use crate::append;
use crate::harness::{Cluster, POOL};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use types::msg::internal_osd::PgBody;
use types::{OsdId, PgId};

/// Who has lost a slot to somebody more urgent hears of it a few steps later.
const MOMENT: usize = 16;

/// An OSD of many PGs leaves the cluster; the most backfills at once out of any OSD, and into any.
fn most_at_once(seed: u64, max_backfills: &str) -> (usize, usize) {
    let options = [("osd_max_backfills", max_backfills), ("osd_backfill_scan_min", "4"), ("osd_backfill_scan_max", "8")];
    let mut c = Cluster::with_options(seed, 6, 32, &options);
    c.log_entries_max = 3;
    (0..6).for_each(|osd| c.crash(OsdId(osd)));
    (0..6).for_each(|osd| c.start(OsdId(osd)));
    c.settle();
    // Every log has forgotten how it began: whoever is new has to be filled.
    (0..640).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
    c.settle();
    [0, 1].iter().for_each(|osd| c.map.osd_weight[*osd] = 0);
    c.publish();
    let (mut most_out, mut most_in, mut waited) = (0, 0, 0);
    let mut lately: VecDeque<(usize, usize)> = VecDeque::new();
    while !c.is_clean() {
        c.step();
        let (mut out, mut into): (BTreeMap<OsdId, usize>, BTreeMap<OsdId, usize>) = Default::default();
        for pg in c.pgs() {
            let m = c.map.pg_to_up_acting(pg);
            let holds = |pg: PgId| c.line_of(m.acting_primary, pg).ends_with("slots Held");
            waited += usize::from(c.state(pg).contains("backfill_wait"));
            if holds(pg) {
                *out.entry(m.acting_primary).or_default() += 1;
                m.up.iter().filter(|osd| !m.acting.contains(osd)).for_each(|osd| *into.entry(*osd).or_default() += 1);
            }
        }
        let most = |of: BTreeMap<OsdId, usize>| of.into_values().max().unwrap_or_default();
        lately.push_back((most(out), most(into)));
        if lately.len() > MOMENT {
            lately.pop_front();
            most_out = most_out.max(lately.iter().map(|(out, _)| *out).min().unwrap_or_default());
            most_in = most_in.max(lately.iter().map(|(_, into)| *into).min().unwrap_or_default());
        }
    }
    assert!(waited > 0);
    c.invariant_copies_agree();
    (most_out, most_in)
}

#[test]
fn no_more_backfills_go_out_of_an_osd_or_into_one_than_it_may_have() {
    for seed in 1600..1603 {
        assert_eq!(most_at_once(seed, "1"), (1, 1), "seed {seed}");
        assert_eq!(most_at_once(seed, "2"), (2, 2), "seed {seed}");
    }
}

/// A cluster of many PGs and OSDs that recover one PG at a time; `away` comes back to many writes.
fn behind(seed: u64, osds: i32, away: &[i32], overrun: bool) -> Cluster {
    let options = [("osd_max_backfills", "1"), ("osd_recovery_max_active", "1"), ("osd_backfill_scan_min", "4"), ("osd_backfill_scan_max", "8")];
    let mut c = Cluster::with_options(seed, osds, 16, &options);
    c.map.pools.get_mut(&POOL).unwrap().min_size = 1;
    c.log_entries_max = if overrun { 3 } else { 1000 };
    (0..osds).for_each(|osd| c.crash(OsdId(osd)));
    (0..osds).for_each(|osd| c.start(OsdId(osd)));
    c.settle();
    away.iter().for_each(|osd| c.crash(OsdId(*osd)));
    c.append_to(0..320, "x");
    away.iter().for_each(|osd| c.start(OsdId(*osd)));
    while !away.iter().all(|osd| c.map.is_up(OsdId(*osd))) {
        c.step();
    }
    c
}

/// Where a PG's primary is with its slots.
fn slots(c: &Cluster, pg: PgId) -> String {
    let line = c.line_of(c.primary(pg), pg);
    line.rsplit_once(", slots ").map(|(_, slots)| slots.to_owned()).unwrap_or_default()
}

/// How many objects a PG's copies lack, as its primary's line tells it.
fn lack(c: &Cluster, pg: PgId) -> String {
    let line = c.line_of(c.primary(pg), pg);
    line.split_once("others lack ").and_then(|(_, rest)| rest.split_once("}, ")).map(|(lack, _)| lack.to_owned()).unwrap_or_default()
}

#[test]
fn a_primary_takes_its_own_slot_first_then_those_of_others_in_ascending_order() {
    for seed in 1610..1620 {
        let mut c = behind(seed, 6, &[1, 3, 4], false);
        // By PG and primary: whose slots it has asked for since it gave up the last, and which of them it was granted.
        let mut asked: BTreeMap<(PgId, OsdId), Vec<OsdId>> = BTreeMap::new();
        let mut granted: BTreeSet<(PgId, OsdId, OsdId)> = BTreeSet::new();
        let (most, pairs) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (most_seen, pairs_seen) = (most.clone(), pairs.clone());
        c.witness = Some(Box::new(move |c, from, to, m| match &m.body {
            PgBody::ReserveSlot { .. } => {
                let ours = |pg: &PgId| c.primary(*pg) == from && !["", "None", "Local"].contains(&slots(c, *pg).as_str());
                most_seen.set(most_seen.get().max(c.pgs().iter().filter(|pg| ours(pg)).count()));
                let before = asked.entry((m.pgid, from)).or_default();
                let Some(last) = before.last().copied().filter(|last| *last != to) else { return before.push(to) };
                assert!(last < to, "seed {seed}: {} asks osd.{to} behind osd.{last}", m.pgid);
                assert!(granted.contains(&(m.pgid, from, last)), "seed {seed}: {} asks osd.{to} and was not granted that of osd.{last}", m.pgid);
                pairs_seen.set(pairs_seen.get() + 1);
                before.push(to);
            }
            PgBody::SlotReserved { granted: true } => drop(granted.insert((m.pgid, to, from))),
            PgBody::ReleaseSlot => {
                asked.remove(&(m.pgid, from));
                granted.retain(|(pg, primary, _)| (*pg, *primary) != (m.pgid, from));
            }
            // Another interval.
            PgBody::Query => {
                asked.remove(&(m.pgid, from));
                granted.retain(|(pg, ..)| *pg != m.pgid);
            }
            _ => {}
        }));
        c.settle();
        assert!(pairs.get() > 0, "seed {seed}: nobody needs two");
        assert_eq!(most.get(), 1, "seed {seed}: of each OSD one PG asks others");
    }
}

/// A PG is forced that has the same primary as the one whose turn it is, or another: that one has to stop. False if there are
/// never such two, or that was over too soon to tell.
fn forced(seed: u64, overrun: bool, same_primary: bool) -> bool {
    let mut c = behind(seed, 3, &[2], overrun);
    // Those of the others, which all need a slot of osd.2.
    let all: Vec<PgId> = c.pgs().into_iter().filter(|pg| c.map.pg_to_up_acting(*pg).up_primary != OsdId(2)).collect();
    let waits = |c: &Cluster, pg: PgId| c.state(pg).contains("_wait");
    let holds = |c: &Cluster, pg: PgId| slots(c, pg) == "Held";
    let pair = |c: &Cluster| {
        let held = all.iter().find(|pg| holds(c, **pg))?;
        let fits = |pg: &&PgId| waits(c, **pg) && (c.primary(**pg) == c.primary(*held)) == same_primary;
        Some((*held, *all.iter().rev().find(fits)?))
    };
    let (held, first) = loop {
        if let Some(pair) = pair(&c) {
            break pair;
        }
        if c.is_clean() {
            return false;
        }
        c.step();
    };
    c.order_force(c.primary(first), &[first], overrun);
    for _ in 0..20_000 {
        if holds(&c, first) {
            break;
        }
        c.step();
        // One of another primary may, until that hears that its slot is somebody else's.
        let overtakes = all.iter().find(|pg| ![first, held].contains(pg) && c.primary(**pg) == c.primary(first) && holds(&c, **pg));
        assert_eq!(overtakes, None, "seed {seed}: {}", c.status());
    }
    assert!(holds(&c, first), "seed {seed}: {first} never begins: {}", c.status());
    // What is on its way arrives; then it stands still.
    while !waits(&c, held) {
        if c.state(held) == "active+clean" {
            return false;
        }
        assert!(holds(&c, first), "seed {seed}: both go on: {}", c.status());
        c.step();
    }
    let (before, mut steps) = (lack(&c, held), 0);
    while holds(&c, first) {
        assert_eq!((waits(&c, held), lack(&c, held)), (true, before.clone()), "seed {seed}: it goes on without a slot");
        steps += 1;
        c.step();
    }
    for _ in 0..20_000 {
        if !waits(&c, held) {
            break;
        }
        c.step();
    }
    assert!(!waits(&c, held), "seed {seed}: {held} never goes on: {}", c.status());
    c.settle();
    c.invariant_copies_agree();
    steps > 30
}

#[test]
fn what_is_forced_goes_first_and_who_loses_its_slot_stops_and_asks_again() {
    for overrun in [false, true] {
        for same_primary in [true, false] {
            let tried = (1630..1640).filter(|seed| forced(*seed, overrun, same_primary)).count();
            assert!(tried >= 5, "{tried} times, overrun {overrun}, same primary {same_primary}");
        }
    }
}
