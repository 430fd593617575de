//! Reads by clients and OSDs that have not heard that others took over.

use crate::harness::Cluster;
use osd::SessionId;
use std::time::Duration;
use types::msg::OsdOp;
use types::msg::osd::osd_flag;
use types::{Epoch, Mono, OsdId};

/// `osd_pool_default_read_lease_ratio` of `osd_heartbeat_grace`, by default.
const LEASE: Duration = Duration::from_secs(16);

/// A settled cluster of one PG that holds "old", its primary, and the map's epoch.
fn cluster(seed: u64) -> (Cluster, OsdId, Epoch) {
    let mut c = Cluster::new(seed, 3, 1);
    c.settle();
    assert_eq!(c.write("o", full("old")).result, 0);
    let (primary, epoch) = (c.primary(c.pgs()[0]), c.map.epoch);
    (c, primary, epoch)
}

fn full(text: &str) -> Vec<OsdOp> {
    vec![OsdOp::write_full(text.as_bytes().to_vec().into())]
}

fn passed(c: &Cluster, since: Mono) -> Duration {
    c.now.mono - since
}

#[test]
fn a_primary_that_is_cut_off_answers_no_read_once_others_write_without_it() {
    for seed in 100..130 {
        let (mut c, primary, epoch) = cluster(seed);
        c.cut_off(primary);
        let since = c.now.mono;
        c.call_down(primary);
        let write = c.submit(0, "o", osd_flag::WRITE, full("new"));
        let mut read = c.read_stale(primary, epoch, "o");
        let (mut answered, mut done) = (0, None);
        while passed(&c, since) < 3 * LEASE {
            c.step();
            done = done.or_else(|| c.pending[&write].reply.is_some().then_some(passed(&c, since)));
            if c.pending[&read].reply.is_some() {
                assert!(done.is_none(), "seed {seed}: a stale read is answered after the write was");
                answered += 1;
                c.pending.remove(&read);
                read = c.read_stale(primary, epoch, "o");
            }
        }
        assert!(answered > 0, "seed {seed}: nothing was read while the lease lasted");
        let done = done.unwrap_or_else(|| panic!("seed {seed}: the write is never answered: {}", c.status()));
        assert!(done > LEASE / 2, "seed {seed}: after {done:?} the lease cannot have been over");
        assert!(c.line(primary).contains("laggy"), "seed {seed}: {}", c.line(primary));
        c.pending.remove(&read);
        c.rejoin(primary);
        c.settle();
        assert_eq!(c.read("o"), b"new");
    }
}

#[test]
fn nobody_waits_for_the_lease_of_a_primary_that_is_known_to_be_dead() {
    for seed in 200..210 {
        let (mut c, primary, _) = cluster(seed);
        let since = c.now.mono;
        c.crash(primary);
        assert_eq!(c.write("o", full("new")).result, 0);
        assert!(passed(&c, since) < LEASE / 4, "seed {seed}: {:?}", passed(&c, since));
    }
}

#[test]
fn nobody_waits_for_the_lease_of_a_primary_that_hears_it_is_down() {
    for seed in 300..310 {
        let (mut c, primary, _) = cluster(seed);
        let since = c.now.mono;
        c.call_down(primary);
        assert_eq!(c.write("o", full("new")).result, 0);
        assert!(passed(&c, since) < LEASE / 2, "seed {seed}: {:?}", passed(&c, since));
    }
}

#[test]
fn reads_wait_for_a_lease_and_go_on_with_it() {
    let (mut c, primary, _) = cluster(400);
    c.cut_off(primary);
    let since = c.now.mono;
    while passed(&c, since) < LEASE + Duration::from_secs(7) {
        c.step();
    }
    let read = c.submit(0, "o", osd_flag::READ, vec![OsdOp::read(0, 0)]);
    c.run(3000);
    assert!(c.pending[&read].reply.is_none(), "nobody has promised anything for long");
    c.rejoin(primary);
    assert_eq!(c.wait(read).ops[0].outdata.contiguous().to_vec(), b"old");
}

#[test]
fn whoever_comes_with_an_old_map_is_given_the_newest_once() {
    let (mut c, primary, epoch) = cluster(410);
    (0..3).for_each(|_| c.publish());
    c.settle();
    let newest = c.map.epoch;
    let given = |c: &mut Cluster| {
        let read = c.read_stale(primary, epoch, "o");
        assert_eq!(c.wait(read).result, 0);
        std::mem::take(&mut c.maps_given).into_iter().filter(|(client, _)| *client == SessionId(1)).map(|(_, epoch)| epoch).collect::<Vec<_>>()
    };
    assert_eq!(given(&mut c).last(), Some(&newest));
    assert_eq!(given(&mut c), [], "it has them");
    c.publish();
    c.settle();
    assert_eq!(given(&mut c).last(), Some(&newest.next()));
    // An OSD that monitors forgot.
    c.publish_but_to(primary);
    c.run_for(Duration::from_secs(20));
    assert_eq!(c.stats[&primary].epoch, c.map.epoch);
}

#[test]
fn promises_of_an_earlier_life_count_until_they_must_be_over() {
    for seed in 500..510 {
        let (mut c, primary, epoch) = cluster(seed);
        c.cut_off(primary);
        let others: Vec<OsdId> = (0..3).map(OsdId).filter(|o| *o != primary).collect();
        others.iter().for_each(|o| c.crash(*o));
        others.iter().for_each(|o| c.start(*o));
        c.call_down(primary);
        let write = c.submit(0, "o", osd_flag::WRITE, full("new"));
        let mut read = c.read_stale(primary, epoch, "o");
        let since = c.now.mono;
        while passed(&c, since) < 3 * LEASE {
            c.step();
            if c.pending[&read].reply.is_some() {
                assert!(c.pending[&write].reply.is_none(), "seed {seed}: a stale read is answered after the write was");
                c.pending.remove(&read);
                read = c.read_stale(primary, epoch, "o");
            }
        }
        assert!(c.pending[&write].reply.is_some(), "seed {seed}: {}", c.status());
    }
}
