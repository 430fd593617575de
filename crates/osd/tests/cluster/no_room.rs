//! Writes to disks without room, of which no map says anything.

use crate::harness::Cluster;
use types::msg::{Op, OsdOp};
use types::msg::osd::osd_flag;

const SIZE: usize = 4 << 20;

fn filled(with: u8) -> Vec<OsdOp> {
    vec![OsdOp::write_full(vec![with; SIZE].into())]
}

/// A cluster of one PG whose disks have room for nothing; the number of objects that fill it, and a write that waits.
fn full_cluster(seed: u64) -> (Cluster, u8, u64) {
    let mut c = Cluster::new(seed, 3, 1);
    c.settle();
    for n in 0..100 {
        let write = c.submit(0, &format!("o{n}"), osd_flag::WRITE, filled(n));
        (0..2_000).for_each(|_| c.step());
        if c.pending[&write].reply.is_none() {
            return (c, n, write);
        }
        assert_eq!(c.wait(write).result, 0);
    }
    panic!("a hundred objects of {SIZE} bytes fit on a small disk");
}

#[test]
fn a_write_that_finds_no_room_is_done_when_there_is() {
    for seed in 400..404 {
        let (mut c, objects, write) = full_cluster(seed);
        assert!(objects > 5, "seed {seed}");
        let behind = c.submit(0, &format!("o{objects}"), osd_flag::READ, vec![OsdOp::read(0, 1)]);
        (0..2_000).for_each(|_| c.step());
        assert!(c.pending[&write].reply.is_none() && c.pending[&behind].reply.is_none(), "seed {seed}");
        assert_eq!(c.read("o0"), vec![0; SIZE], "others are read");
        assert_eq!(c.write("o1", vec![Op::Delete.into()]).result, 0);
        assert_eq!((c.wait(write).result, c.wait(behind).result), (0, 0), "seed {seed}");
        assert_eq!(c.read(&format!("o{objects}")), vec![objects; SIZE]);
        c.invariant_copies_agree();
    }
}

#[test]
fn a_write_that_waits_for_room_survives_its_primary_and_a_change_of_the_others() {
    for seed in 410..416 {
        let (mut c, objects, write) = full_cluster(seed);
        let primary = c.primary(c.pgs()[0]);
        let down = if seed % 2 == 0 { primary } else { c.map.pg_to_up_acting(c.pgs()[0]).acting[1] };
        c.crash(down);
        (0..5_000).for_each(|_| c.step());
        c.start(down);
        c.settle();
        assert!(c.pending[&write].reply.is_none(), "seed {seed}");
        assert_eq!(c.write("o1", vec![Op::Delete.into()]).result, 0);
        assert_eq!(c.wait(write).result, 0, "seed {seed}");
        assert_eq!(c.read(&format!("o{objects}")), vec![objects; SIZE]);
        c.invariant_copies_agree();
    }
}
