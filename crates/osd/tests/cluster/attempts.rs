//! Peering that begins anew in the same interval, and questions that nobody has heard.

use crate::append;
use crate::harness::Cluster;
use types::OsdId;
use types::map::OsdMap;

#[test]
fn answers_to_an_earlier_attempt_at_peering_do_not_count() {
    for seed in 1400..1410 {
        let mut c = Cluster::new(seed, 4, 1);
        c.settle();
        c.append_to(0..5, "x");
        let pg = c.pgs()[0];
        let [primary, other, leaves]: [OsdId; 3] = c.map.pg_to_up_acting(pg).acting.try_into().unwrap();
        let comes = (0..4).map(OsdId).find(|osd| ![primary, other, leaves].contains(osd)).unwrap();
        // The PG moves and is not whole there: those it was with before are asked, too.
        c.map.flags |= OsdMap::FLAG_NORECOVER;
        c.map.osd_weight[leaves.0 as usize] = 0;
        c.publish();
        c.until_state(pg, "recovery_wait");
        assert_eq!(c.map.pg_to_up_acting(pg).acting, [primary, other, comes]);
        let waits = |c: &Cluster| c.line(primary).contains(&format!("GetInfo {{ waiting_for: {{{other:?}}} }}"));
        c.held.insert((other, primary));
        c.crash(comes);
        c.run(2000);
        assert!(waits(&c), "seed {seed}: {}", c.line(primary));
        // One of those that were asked is gone: it asks all others again, and one does not hear of that.
        c.held.insert((primary, other));
        c.crash(leaves);
        c.run(2000);
        c.held.remove(&(other, primary));
        c.run(500);
        assert!(waits(&c), "seed {seed}: {}", c.line(primary));
        c.held.clear();
        c.until_state(pg, "active");
        c.map.flags &= !OsdMap::FLAG_NORECOVER;
        c.publish();
        c.start(comes);
        c.start(leaves);
        c.settle();
        c.invariant_copies_agree();
        (0..5).for_each(|n| assert_eq!(c.read(&format!("o{n}")), b"x"));
    }
}

/// Monitors do not hear anything, and all OSDs know of a map in which others act.
fn unheard(seed: u64, change: impl FnOnce(&mut Cluster, &[OsdId])) -> Cluster {
    let mut c = Cluster::new(seed, 5, 1);
    c.settle();
    (0..100).for_each(|n| assert_eq!(c.write(&format!("o{}", n % 30), append("x")).result, 0));
    c.mon_is_deaf = true;
    let acting = c.map.pg_to_up_acting(c.pgs()[0]).acting;
    change(&mut c, &acting);
    c.publish();
    c.run(3000);
    assert!(c.state(c.pgs()[0]).contains("peering"), "{}", c.status());
    c.mon_is_deaf = false;
    c
}

fn everybody_renews_its_mon_session(c: &mut Cluster) {
    (0..5).map(OsdId).filter(|osd| c.is_running(*osd)).collect::<Vec<_>>().into_iter().for_each(|osd| c.renew_mon_session(osd));
}

#[test]
fn a_lost_request_to_be_noted_as_alive_is_repeated_on_the_next_session_with_a_monitor() {
    for seed in 1410..1415 {
        let mut c = unheard(seed, |c, acting| c.crash(acting[1]));
        let primary = c.primary(c.pgs()[0]);
        assert!(c.line(primary).contains("WaitUpThru"), "{}", c.line(primary));
        everybody_renews_its_mon_session(&mut c);
        c.until_state(c.pgs()[0], "active");
        assert_eq!(c.read("o1"), b"xxxx");
    }
}

fn out(c: &mut Cluster, acting: &[OsdId]) {
    acting[..2].iter().for_each(|osd| c.map.osd_weight[osd.0 as usize] = 0);
}

#[test]
fn a_lost_request_for_another_acting_set_is_repeated_on_the_next_session_with_a_monitor() {
    for seed in 1415..1420 {
        let mut c = unheard(seed, out);
        assert!(c.map.pg_temp.is_empty());
        everybody_renews_its_mon_session(&mut c);
        assert!(!c.map.pg_temp.is_empty(), "at once");
        c.settle();
        c.invariant_copies_agree();
    }
}

#[test]
fn a_lost_request_for_another_acting_set_is_repeated_after_a_while() {
    for seed in 1420..1425 {
        let mut c = unheard(seed, out);
        assert!(c.map.pg_temp.is_empty());
        c.settle();
        c.invariant_copies_agree();
    }
}
