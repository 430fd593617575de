//! What clients may have under way at a time.

use crate::harness::Cluster;
use crate::append;
use std::time::Duration;
use types::OsdId;

fn cluster(seed: u64, options: &[(&str, &str)]) -> (Cluster, OsdId, OsdId) {
    let mut c = Cluster::with_options(seed, 3, 1, options);
    c.settle();
    let acting = c.map.pg_to_up_acting(c.pgs()[0]).acting;
    (c, acting[0], acting[1])
}

#[test]
fn who_has_asked_for_as_much_as_may_be_under_way_is_held_up_until_it_is_answered() {
    for options in [("osd_client_message_size_cap", "1000"), ("osd_client_message_cap", "2")] {
        let (mut c, primary, replica) = cluster(2400, &[options]);
        assert_eq!(c.write("before", append(&"x".repeat(5000))).result, 0);
        assert!(c.wants_requests(primary), "what is answered does not count");
        c.held.insert((primary, replica));
        let first = c.submit(0, "a", 0, append(&"x".repeat(600)));
        c.run_for(Duration::from_secs(1));
        assert!(c.wants_requests(primary));
        let second = c.submit(1, "b", 0, append(&"y".repeat(600)));
        c.run_for(Duration::from_secs(1));
        assert!(!c.wants_requests(primary), "{options:?}");
        assert!(c.wants_requests(replica), "nobody asked it");
        c.held.clear();
        assert_eq!((c.wait(first).result, c.wait(second).result), (0, 0));
        c.settle();
        assert!(c.wants_requests(primary));
    }
}

#[test]
fn what_a_restarted_placement_group_has_sent_away_does_not_count() {
    let (mut c, primary, replica) = cluster(2401, &[("osd_client_message_cap", "1")]);
    c.held.insert((primary, replica));
    let tid = c.submit(0, "a", 0, append("x"));
    c.run_for(Duration::from_secs(1));
    assert!(!c.wants_requests(primary));
    // The interval ends with the replica, and the write is done without it.
    c.crash(replica);
    c.held.clear();
    assert_eq!(c.wait(tid).result, 0);
    c.run_for(Duration::from_secs(1));
    assert!(c.wants_requests(primary));
}

/// What only a dead OSD has is waited for until an operator gives it up: nobody else is to wait for that.
#[test]
fn what_waits_for_long_does_not_count() {
    let (mut c, primary, replica) = cluster(2403, &[("osd_client_message_cap", "2")]);
    c.held.insert((primary, replica));
    let tids = ["a", "b"].map(|name| c.submit(0, name, 0, append("x")));
    c.run_for(Duration::from_secs(8));
    assert!(!c.wants_requests(primary));
    c.run_for(Duration::from_secs(4));
    assert!(c.wants_requests(primary));
    // Once, not twice.
    let third = c.submit(1, "c", 0, append("x"));
    c.run_for(Duration::from_secs(1));
    assert!(c.wants_requests(primary));
    c.held.clear();
    tids.into_iter().chain([third]).for_each(|tid| assert_eq!(c.wait(tid).result, 0));
    c.held.insert((primary, replica));
    let tids = ["a", "b"].map(|name| c.submit(0, name, 0, append("x")));
    c.run_for(Duration::from_secs(1));
    assert!(!c.wants_requests(primary), "as many as before");
    c.held.clear();
    tids.into_iter().for_each(|tid| assert_eq!(c.wait(tid).result, 0));
}

#[test]
fn bounds_of_zero_are_none() {
    let (mut c, primary, replica) = cluster(2402, &[("osd_client_message_size_cap", "0"), ("osd_client_message_cap", "0")]);
    c.held.insert((primary, replica));
    let tids: Vec<u64> = (0..300).map(|n| c.submit(n % 3, &format!("o{n}"), 0, append("x"))).collect();
    c.run_for(Duration::from_secs(3));
    assert!(c.wants_requests(primary));
    c.held.clear();
    tids.into_iter().for_each(|tid| assert_eq!(c.wait(tid).result, 0));
}
