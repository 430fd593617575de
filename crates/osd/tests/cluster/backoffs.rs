//! Backoffs, and the sessions that they belong to.
//!
//! Upstream: doc/dev/rados-client-protocol.rst.

use crate::append;
use crate::harness::Cluster;
use types::OsdId;
use types::msg::osd::osd_flag;

#[test]
fn the_end_of_a_session_ends_its_backoffs() {
    for seed in 1700..1710 {
        let mut c = Cluster::new(seed, 3, 1);
        c.settle();
        let primary = c.primary(c.pgs()[0]);
        let others: Vec<OsdId> = (0..3).map(OsdId).filter(|osd| *osd != primary).collect();
        others.iter().for_each(|osd| c.crash(*osd));
        c.run(500);
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
