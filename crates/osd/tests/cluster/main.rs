//! Several OSD cores together: replication, peering and recovery under crashes, with every choice made by a seed.

mod harness;

use bytes::Bytes;
use harness::Cluster;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use types::OsdId;
use types::msg::OsdOp;
use types::msg::osd::osd_flag;

fn append(text: &str) -> Vec<OsdOp> {
    vec![OsdOp::append(Bytes::copy_from_slice(text.as_bytes()))]
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

/// Clients append tokens of their own to a few objects while OSDs crash and return. In the end every token that was
/// acknowledged is there, and none is there twice.
fn churn(seed: u64) {
    let mut c = Cluster::new(seed, 3, 4);
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
        if c.rng.random_ratio(1, 12) {
            let osd = OsdId(c.rng.random_range(0..3));
            c.crash(osd);
        }
        if c.rng.random_ratio(1, 6) {
            for osd in (0..3).map(OsdId) {
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
    for osd in (0..3).map(OsdId) {
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
    (100..100 + seeds).for_each(churn);
}
