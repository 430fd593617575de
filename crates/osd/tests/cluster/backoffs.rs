//! Backoffs, and the sessions that they belong to.
//!
//! Upstream: doc/dev/rados-client-protocol.rst.

use crate::append;
use crate::harness::Cluster;
use types::OsdId;
use types::msg::osd::osd_flag;

/// Only the primary of three is there, which is too few to serve; and the others.
fn primary_alone(seed: u64) -> (Cluster, Vec<OsdId>) {
    let mut c = Cluster::new(seed, 3, 1);
    c.settle();
    let primary = c.primary(c.pgs()[0]);
    let others: Vec<OsdId> = (0..3).map(OsdId).filter(|osd| *osd != primary).collect();
    others.iter().for_each(|osd| c.crash(*osd));
    c.run(500);
    (c, others)
}

#[test]
fn the_end_of_a_session_ends_its_backoffs() {
    for seed in 1700..1710 {
        let (mut c, others) = primary_alone(seed);
        let write = c.submit(1, "o", osd_flag::WRITE, append("x"));
        while c.blocks == 0 {
            c.step();
        }
        // The client does not get to say that it has heard. What it sends on its next session is held back anew, or served.
        c.renew_sessions(1);
        if seed % 2 == 0 {
            c.run(500);
            assert_eq!(c.blocks, 2, "seed {seed}");
            c.renew_sessions(1);
        }
        c.clients_are_far = true;
        others.iter().for_each(|osd| c.start(*osd));
        c.until_state(c.pgs()[0], "active");
        c.clients_are_far = false;
        assert_eq!(c.wait(write).result, 0);
        assert_eq!(c.read("o"), b"x", "seed {seed}");
    }
}

#[test]
fn a_backoff_does_not_make_operations_change_places() {
    for seed in 780..800 {
        let (mut c, others) = primary_alone(seed);
        let sent: Vec<u64> = ["one,", "two,", "three"].iter().map(|text| c.submit(1, "o", osd_flag::WRITE, append(text))).collect();
        // The first one is sent back, the others are on their way; before they come the PG serves again.
        while c.blocks == 0 {
            c.step();
        }
        c.clients_are_far = true;
        others.iter().for_each(|osd| c.start(*osd));
        c.until_state(c.pgs()[0], "active");
        c.clients_are_far = false;
        sent.iter().for_each(|tid| assert_eq!(c.wait(*tid).result, 0));
        assert_eq!(c.read("o"), b"one,two,three", "seed {seed}");
    }
}

#[test]
fn what_waits_for_a_map_when_its_client_is_told_to_hold_back_does_not_change_places() {
    for seed in 800..840 {
        let (mut c, others) = primary_alone(seed);
        let mut sent = vec![c.submit(1, "o", osd_flag::WRITE, append("one,"))];
        // The client hears of a map sooner than the OSD; that comes to it with the one that brings the others back.
        let primary = c.primary(c.pgs()[0]);
        c.publish_but_to(primary);
        sent.push(c.submit(1, "o", osd_flag::WRITE, append("two")));
        while c.blocks == 0 {
            c.step();
        }
        others.iter().for_each(|osd| c.start(*osd));
        sent.iter().for_each(|tid| assert_eq!(c.wait(*tid).result, 0));
        assert_eq!(c.read("o"), b"one,two", "seed {seed}");
    }
}
