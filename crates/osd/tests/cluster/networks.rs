//! Two networks: what is noticed where only one of them is broken, and that nobody comes up behind a broken one.

use crate::append;
use crate::harness::{Cluster, Network};
use std::time::Duration;
use types::OsdId;
use types::msg::internal::FailureKind;

/// `osd_heartbeat_grace`, a turn of heartbeats, and a bit.
const NOTICED: Duration = Duration::from_secs(27);
const THIRD: OsdId = OsdId(2);

fn cluster(seed: u64) -> Cluster {
    let mut c = Cluster::new(seed, 3, 4);
    c.two_networks = true;
    for osd in (0..3).map(OsdId) {
        c.crash(osd);
        c.start(osd);
    }
    c.settle();
    assert_eq!(c.write("o", append("x")).result, 0);
    c.run_for(NOTICED);
    assert_eq!(c.reports, [], "all are well");
    c
}

/// Who has told what of the third one, once each.
fn said_of_third(c: &Cluster, kind: FailureKind) -> Vec<i32> {
    let mut who: Vec<i32> = c.reports.iter().filter(|r| r.target == THIRD && r.kind == kind).map(|r| r.reporter.0).collect();
    who.sort_unstable();
    who.dedup();
    who
}

#[test]
fn silence_on_either_network_is_reported_and_taken_back_when_it_is_over() {
    for (seed, network) in [(1200, Network::Cluster), (1201, Network::Public)] {
        let mut c = cluster(seed);
        c.lose(THIRD, Some(network));
        c.run_for(Duration::from_secs(15));
        assert_eq!(c.reports, [], "{network:?}: not before the grace is over");
        c.run_for(NOTICED);
        assert_eq!(said_of_third(&c, FailureKind::Silent), [0, 1], "{network:?}");
        assert!(said_of_third(&c, FailureKind::Alive).is_empty(), "{network:?}: the other network is no excuse");
        c.lose(THIRD, None);
        c.run_for(NOTICED);
        assert_eq!(said_of_third(&c, FailureKind::Alive), [0, 1], "{network:?}");
        c.reports.clear();
        c.run_for(NOTICED);
        assert_eq!(c.reports, [], "{network:?}");
    }
}

#[test]
fn who_was_marked_down_behind_a_broken_network_stays_down_until_it_is_whole() {
    for (seed, network) in [(1210, Network::Cluster), (1211, Network::Public)] {
        let mut c = cluster(seed);
        c.lose(THIRD, Some(network));
        c.call_down(THIRD);
        c.run_for(3 * NOTICED);
        assert!(c.map.is_down(THIRD), "{network:?}: up, to be marked down again");
        assert_eq!(c.write("o", append("y")).result, 0);
        c.lose(THIRD, None);
        c.run_for(Duration::from_secs(3));
        assert!(c.map.is_up(THIRD), "{network:?}");
        c.settle();
    }
}

#[test]
fn who_was_marked_down_for_nothing_is_up_again_at_once() {
    let mut c = cluster(1220);
    c.call_down(THIRD);
    c.run_for(Duration::from_secs(1));
    assert!(c.map.is_up(THIRD));
    c.settle();
}

#[test]
fn who_is_marked_down_again_and_again_ends() {
    let mut c = Cluster::with_options(1225, 3, 4, &[("osd_max_markdown_count", "2"), ("osd_max_markdown_period", "100")]);
    c.stopped = Some(Vec::new());
    c.settle();
    // Twice, and twice again when that is forgotten.
    for _ in 0..2 {
        (0..2).for_each(|_| {
            c.call_down(THIRD);
            c.run_for(Duration::from_secs(10));
            assert!(c.map.is_up(THIRD));
        });
        c.run_for(Duration::from_secs(110));
    }
    assert_eq!(c.stopped, Some(vec![]));
    for n in 0..3 {
        assert_eq!(c.stopped.as_ref().map(Vec::len), Some(0), "after {n}");
        c.call_down(THIRD);
        c.run_for(Duration::from_secs(10));
    }
    let (who, why) = &c.stopped.as_ref().unwrap()[0];
    assert_eq!(*who, THIRD);
    assert!(why.starts_with("osd.2 was marked down 3 > osd_max_markdown_count 2 times in last 100 seconds"), "{why}");
    assert!(c.map.is_down(THIRD), "it does not ask to be up any more");
}

/// The others may be dead themselves.
#[test]
fn addresses_that_refuse_connections_keep_nobody_down() {
    let mut c = cluster(1230);
    c.lose(THIRD, Some(Network::Cluster));
    c.call_down(THIRD);
    c.run_for(NOTICED);
    assert!(c.map.is_down(THIRD));
    (0..2).map(OsdId).for_each(|osd| c.refuse(THIRD, osd));
    c.run_for(Duration::from_secs(1));
    assert!(c.map.is_up(THIRD));
}

/// What answered at some time on one network, and at another on the other, is heard on neither.
#[test]
fn answers_of_long_ago_end_no_wait() {
    let mut c = cluster(1240);
    c.lose(THIRD, Some(Network::Public));
    c.call_down(THIRD);
    c.run_for(NOTICED);
    c.cut_off(THIRD);
    c.run_for(Duration::from_secs(15));
    c.lose(THIRD, Some(Network::Cluster));
    c.rejoin(THIRD);
    c.run_for(NOTICED);
    assert!(c.map.is_down(THIRD));
    c.lose(THIRD, None);
    c.run_for(Duration::from_secs(3));
    assert!(c.map.is_up(THIRD));
}

/// All others may have died without a word, and nobody is left who could say so.
#[test]
fn nobody_waits_for_ever_to_be_up_again() {
    let mut c = cluster(1250);
    c.lose(THIRD, Some(Network::Cluster));
    c.call_down(THIRD);
    c.run_for(Duration::from_secs(590));
    assert!(c.map.is_down(THIRD));
    c.run_for(Duration::from_secs(20));
    assert!(c.map.is_up(THIRD), "osd_max_markdown_period is over");
}

#[test]
fn who_stood_still_reports_nobody() {
    let mut c = cluster(1260);
    c.tick(Duration::from_secs(60));
    c.run_for(NOTICED);
    assert_eq!(c.reports, []);
}
