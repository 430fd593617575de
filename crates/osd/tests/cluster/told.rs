//! What OSDs tell each other of their copies: it is so still when power fails at that moment.
//!
//! Upstream: doc/dev/peering.rst; doc/dev/osd_internals/last_epoch_started.rst.

use crate::harness::{Cluster, POOL};
use crate::{append, overrun_log};
use rand::Rng;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use types::msg::internal_osd::{PeerHistory, PeerInfo, PgBody, PgMessage};
use types::msg::osd::osd_flag;
use types::{Epoch, OsdId, PgId};

/// A copy, by what a line says of it.
#[derive(Debug, PartialEq)]
struct Copy {
    log: String,
    started: Epoch,
    missing: u64,
    last_backfill: String,
}

impl Copy {
    fn of(line: &str) -> Option<Copy> {
        let word = |name: &str| line.split_once(name).map(|(_, rest)| rest.split(' ').next().unwrap().to_owned());
        let number = |name: &str| word(name).and_then(|n| n.parse().ok());
        let log = line.split_once(" les ")?.0.rsplit_once(' ')?.1.to_owned();
        let started = Epoch(number(" les ")? as u32);
        Some(Copy { log, started, missing: number(" missing ")?, last_backfill: word(" last_backfill ")? })
    }

    /// As it is in memory.
    fn now(c: &Cluster, osd: OsdId, pg: PgId) -> Option<Copy> {
        Copy::of(&c.line_of(osd, pg))
    }

    /// As its disk has promised to keep it.
    fn kept(c: &Cluster, osd: OsdId, pg: PgId) -> Option<Copy> {
        Copy::of(&c.line_after_power_cut(osd, pg))
    }

    /// Its newest entry.
    fn head(&self) -> &str {
        self.log.split_once("..").unwrap().1
    }

    fn is_as_told(&self, info: &PeerInfo) -> bool {
        let log = format!("[{}..{}]", info.log_tail, info.last_update);
        let whole = self.last_backfill == "MAX";
        (&self.log, self.started, self.missing, whole) == (&log, info.last_epoch_started, info.missing, info.last_backfill.max)
    }
}

/// What was heard so far.
#[derive(Default)]
struct Heard {
    /// Messages that were compared with what is kept, by what they say.
    told: BTreeMap<&'static str, usize>,
    /// How far the log reaches that others were to take over, by the attempt at peering.
    merged: BTreeMap<(PgId, Epoch, u32), String>,
    /// Attempts after which the PG serves.
    serve: BTreeSet<(PgId, Epoch, u32)>,
    /// The newest mark of each copy.
    started: BTreeMap<(PgId, OsdId), Epoch>,
    /// Who acts in an interval.
    acting: BTreeMap<(PgId, Epoch), Vec<OsdId>>,
}

impl Heard {
    fn hear(&mut self, c: &Cluster, from: OsdId, m: &PgMessage) {
        let (pg, line) = (m.pgid, c.line_of(from, m.pgid));
        let of_now = line.contains(&format!(" since {} ", m.round.interval));
        if !of_now || line.contains("ToDelete") {
            // The answer to a question from an earlier interval.
            return;
        }
        // Whatever log it takes over.
        let mark = Copy::of(&line).unwrap().started;
        let before = self.started.insert((pg, from), mark).unwrap_or_default();
        assert!(before <= mark, "osd.{from} noted {before}, and then {mark}");
        let list = line.split_once(" acting [").unwrap().1.split_once(']').unwrap().0;
        let acting = list.split(", ").filter_map(|n| n.parse().ok()).map(OsdId).collect();
        self.acting.insert((pg, m.round.interval), acting);
        let attempt = (pg, m.round.interval, m.round.number);
        let said = match &m.body {
            PgBody::Info(info) if info.exists => {
                self.history(c, pg, &info.history);
                let kept = Copy::kept(c, from, pg);
                assert!(kept.as_ref().is_some_and(|kept| kept.is_as_told(info)), "osd.{from} tells {info:?}, and keeps {kept:?}");
                "info"
            }
            PgBody::Log { info, .. } => {
                self.history(c, pg, &info.history);
                self.is_kept(c, from, pg, "log")
            }
            PgBody::Merge { .. } => {
                self.merged.insert(attempt, Copy::now(c, from, pg).unwrap().head().to_owned());
                self.is_kept(c, from, pg, "merge")
            }
            PgBody::Merged { .. } => self.is_kept(c, from, pg, "merged"),
            PgBody::Activate { history, serves } => {
                self.history(c, pg, history);
                if *serves {
                    self.serve.insert(attempt);
                }
                return;
            }
            PgBody::Activated => self.is_kept(c, from, pg, "activated"),
            PgBody::Backfilled { .. } => {
                // Objects of a page before may have come since: more is there than was told of.
                let (now, kept) = (Copy::now(c, from, pg).unwrap(), Copy::kept(c, from, pg).unwrap());
                let reached = |copy: &Copy| (copy.log.clone(), copy.started, copy.last_backfill.clone());
                assert_eq!(reached(&now), reached(&kept), "osd.{from} says 'backfilled' and does not keep it");
                assert!(now.missing <= kept.missing, "osd.{from}: {now:?}, {kept:?}");
                "backfilled"
            }
            PgBody::Started { history, .. } => {
                self.history(c, pg, history);
                // It says so first in the turn in which it goes active.
                let Some(head) = self.merged.remove(&attempt) else { return };
                for osd in &self.acting[&(pg, m.round.interval)] {
                    let kept = Copy::kept(c, *osd, pg).unwrap();
                    let marked = kept.started == m.round.interval || !self.serve.contains(&attempt);
                    assert!(marked && kept.head() == head, "{head} goes active in {}, and osd.{osd} keeps {kept:?}", m.round.interval);
                }
                "active"
            }
            _ => return,
        };
        *self.told.entry(said).or_default() += 1;
    }

    fn is_kept(&self, c: &Cluster, osd: OsdId, pg: PgId, what: &'static str) -> &'static str {
        let (now, kept) = (Copy::now(c, osd, pg), Copy::kept(c, osd, pg));
        assert_eq!(now, kept, "osd.{osd} says '{what}' and does not keep it");
        what
    }

    /// Whoever was to act in the interval that all are said to have gone active in has a mark of it, or of a newer one.
    fn history(&mut self, c: &Cluster, pg: PgId, h: &PeerHistory) {
        for osd in self.acting.get(&(pg, h.last_epoch_started)).into_iter().flatten() {
            let kept = Copy::kept(c, *osd, pg).unwrap();
            assert!(kept.started >= h.last_epoch_started, "{h:?} is told, and osd.{osd} keeps {kept:?}");
            *self.told.entry("history").or_default() += 1;
        }
    }
}

fn listen(c: &mut Cluster) -> Rc<RefCell<Heard>> {
    let heard = Rc::new(RefCell::new(Heard::default()));
    let ears = heard.clone();
    c.witness = Some(Box::new(move |c, from, _, m| ears.borrow_mut().hear(c, from, m)));
    heard
}

#[test]
fn what_an_osd_tells_of_its_copy_is_durable_and_a_pg_goes_active_with_log_and_mark_on_every_disk() {
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 1300..1330 {
        let mut c = Cluster::new(seed, 3, 2);
        let heard = listen(&mut c);
        c.settle();
        for round in 0..4 {
            // Writes are on their way to everybody when somebody is gone.
            let tids: Vec<u64> = (0..12).map(|n| c.submit(n % 4, &format!("o{n}"), osd_flag::WRITE, append("x"))).collect();
            let (osd, steps) = (OsdId(c.rng.random_range(0..3)), c.rng.random_range(0..60));
            c.run(steps);
            if round % 2 == 0 {
                c.crash(osd);
                let steps = c.rng.random_range(0..1000);
                c.run(steps);
                c.start(osd);
            } else {
                c.call_down(osd);
            }
            tids.into_iter().for_each(|tid| assert_eq!(c.wait(tid).result, 0));
            if round == 2 {
                c.settle();
            }
        }
        c.settle();
        c.invariant_copies_agree();
        heard.borrow().told.iter().for_each(|(said, n)| *told.entry(said).or_default() += n);
    }
    let all = ["info", "log", "merge", "merged", "activated", "active", "history"];
    assert!(all.iter().all(|said| told.get(said) > Some(&30)), "{told:?}");
}

#[test]
fn that_a_pg_went_active_is_history_only_when_every_acting_copy_has_noted_it() {
    for seed in 1340..1350 {
        let mut c = Cluster::new(seed, 3, 1);
        let heard = listen(&mut c);
        c.settle();
        c.append_to(0..5, "x");
        let [primary, other, third]: [OsdId; 3] = c.map.pg_to_up_acting(c.pgs()[0]).acting.try_into().unwrap();
        // An interval with the same copies: all but the third hear that the PG goes active in it.
        c.map.pools.get_mut(&POOL).unwrap().min_size = 1;
        c.publish();
        c.until_state(c.pgs()[0], "activating");
        c.held.insert((primary, third));
        let started = |c: &Cluster, osd| Copy::now(c, osd, c.pgs()[0]).unwrap().started;
        while started(&c, other) < started(&c, primary) {
            c.step();
        }
        c.run(200);
        assert!(started(&c, third) < started(&c, other), "seed {seed}");
        heard.borrow_mut().told.clear();
        c.crash(primary);
        c.held.clear();
        c.until_state(c.pgs()[0], "active");
        c.start(primary);
        c.settle();
        assert!(heard.borrow().told.get("history") > Some(&0));
        c.invariant_copies_agree();
    }
}

#[test]
fn how_far_a_backfill_has_come_is_durable_when_it_is_told() {
    for seed in 1330..1333 {
        let options = [("osd_backfill_scan_min", "4"), ("osd_backfill_scan_max", "8")];
        let mut c = Cluster::with_options(seed, 3, 1, &options);
        c.settle();
        c.append_to(0..60, "x");
        let away = c.map.pg_to_up_acting(c.pgs()[0]).acting[seed as usize % 3];
        c.crash(away);
        overrun_log(&mut c);
        c.append_to(0..60, "y");
        c.start(away);
        let heard = listen(&mut c);
        c.settle();
        c.invariant_copies_agree();
        assert!(heard.borrow().told.get("backfilled") > Some(&3), "{:?}", heard.borrow().told);
    }
}
