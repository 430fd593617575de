//! What is said of a PG to operators.
//!
//! Upstream: doc/rados/operations/pg-states.rst; doc/rados/troubleshooting/troubleshooting-pg.rst.

use crate::{append, overrun_log};
use crate::harness::{Cluster, POOL};
use crate::lost::{ask, unfound};
use std::time::Duration;
use types::OsdId;

#[test]
fn with_fewer_copies_than_it_should_have_it_is_undersized() {
    let mut c = Cluster::new(1800, 3, 1);
    c.settle();
    let (pg, others) = (c.pgs()[0], |c: &Cluster| c.map.pg_to_up_acting(c.pgs()[0]).acting[1..].to_vec());
    let away = others(&c)[0];
    c.crash(away);
    c.until_state(pg, "undersized");
    c.until_state(pg, "active");
    assert_eq!(c.state(pg), "active+undersized", "it is empty: nothing is degraded");
    assert_eq!(c.write("o", append("x")).result, 0);
    assert_eq!(c.state(pg), "active+undersized+degraded");
    let last = others(&c)[0];
    c.crash(last);
    c.until_state(pg, "peered");
    assert_eq!(c.state(pg), "undersized+degraded+peered");
    c.start(last);
    c.start(away);
    c.settle();
    assert_eq!(c.state(pg), "active+clean");
    // More copies are wanted than there are OSDs.
    c.map.pools.get_mut(&POOL).unwrap().size = 4;
    c.publish();
    c.until_state(pg, "undersized");
    c.until_state(pg, "active");
    assert_eq!(c.state(pg), "active+undersized+degraded");
}

#[test]
fn where_unfound_objects_keep_a_copy_from_being_filled_it_is_backfill_unfound() {
    for seed in 1810..1815 {
        let mut c = unfound(seed);
        let pg = c.pgs()[0];
        overrun_log(&mut c);
        [1, 2].into_iter().for_each(|osd| c.replace_disk(OsdId(osd)));
        c.start(OsdId(1));
        c.start(OsdId(2));
        c.until_state(pg, "backfill_unfound");
        assert!(!c.state(pg).contains("recovery"), "{}", c.state(pg));
    }
}

#[test]
fn query_and_reports_name_those_that_a_pg_waits_for() {
    for seed in 1820..1825 {
        let mut c = Cluster::new(seed, 3, 1);
        c.map.pools.get_mut(&POOL).unwrap().min_size = 1;
        c.publish();
        c.settle();
        let pg = c.pgs()[0];
        let [a, b, third]: [OsdId; 3] = c.map.pg_to_up_acting(pg).acting.try_into().unwrap();
        let blocked_by = |c: &mut Cluster| {
            c.run_for(Duration::from_secs(20));
            let primary = c.primary(pg);
            let detail = ask(c, primary, "query")["recovery_state"][0]["detail"].as_str().unwrap().to_owned();
            (detail, c.stats[&primary].pgs[&pg].blocked_by.clone())
        };
        assert_eq!(blocked_by(&mut c), (String::new(), vec![]));
        // One of those that are asked does not answer.
        c.held.insert((b, a));
        c.crash(third);
        assert_eq!(blocked_by(&mut c), (format!("GetInfo {{ waiting_for: {{{b:?}}} }}"), vec![b]));
        c.held.clear();
        c.until_state(pg, "active");
        // Nor does one that is to take over a log.
        c.start(third);
        while !c.line(a).contains("MergePeers") {
            c.step();
        }
        c.held.insert((b, a));
        assert_eq!(blocked_by(&mut c), (format!("MergePeers({{{b:?}}})"), vec![b]));
        c.held.clear();
        c.settle();
        // The only one that may have the last writes is away.
        c.crash(a);
        c.crash(b);
        assert_eq!(c.write("o", append("x")).result, 0);
        c.crash(third);
        c.start(a);
        c.start(b);
        c.until_state(pg, "down");
        assert_eq!(blocked_by(&mut c), (format!("Down {{ blocked_by: {{{third:?}}} }}"), vec![third]));
        // What operators and their guides look for (troubleshooting-pg).
        let primary = c.primary(pg);
        let states = ask(&mut c, primary, "query")["recovery_state"].take();
        let names: Vec<&str> = states.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["Started/Primary/Peering/Down", "Started/Primary/Peering", "Started"]);
        let peering = &states[1];
        assert_eq!(peering["blocked"], "peering is blocked due to down osds");
        assert_eq!(peering["down_osds_we_would_probe"], serde_json::json!([third.0]));
        assert_eq!((&peering["peering_blocked_by"][0]["osd"], &peering["peering_blocked_by"][0]["current_lost_at"]), (&third.0.into(), &0.into()));
        let intervals = peering["past_intervals"][0]["intervals"].as_array().unwrap();
        assert!(intervals.iter().any(|i| i["acting"] == third.to_string()), "{intervals:?}");
    }
}
