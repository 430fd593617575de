//! Copies that are being filled while others act: nobody waits for them, and nothing that was acknowledged hangs on them.

use crate::append;
use crate::harness::Cluster;
use rand::Rng;
use types::OsdId;
use types::msg::osd::osd_flag;

/// A PG whose last copy moves, a few objects at a time, from now on. Who fills, and who is filled.
fn moving(seed: u64, coded: bool) -> (Cluster, OsdId, OsdId) {
    let options = [("osd_recovery_max_active", "1"), ("osd_backfill_scan_min", "2"), ("osd_backfill_scan_max", "4")];
    let mut c = match coded {
        true => Cluster::erasure_coded(seed, 4, 1, (2, 1), &options),
        false => Cluster::with_options(seed, 4, 1, &options),
    };
    c.log_entries_max = 20;
    c.settle();
    (0..200).for_each(|n| assert_eq!(c.write(&format!("o{}", n % 30), append("x")).result, 0));
    let pg = c.pgs()[0];
    let acting = c.map.pg_to_up_acting(pg).acting;
    c.map.osd_weight[acting[2].0 as usize] = 0;
    c.publish();
    let filled = c.map.pg_to_up_acting(pg).up.into_iter().find(|osd| !acting.contains(osd)).expect("one is new");
    (c, acting[0], filled)
}

/// The same, under way, with all old copies acting.
fn filling(seed: u64, coded: bool) -> (Cluster, OsdId, OsdId) {
    let (mut c, primary, filled) = moving(seed, coded);
    let pg = c.pgs()[0];
    c.until_state(pg, "backfilling");
    let m = c.map.pg_to_up_acting(pg);
    assert_eq!((m.acting.len(), m.acting_primary, m.acting.contains(&filled)), (3, primary, false));
    (c, primary, filled)
}

#[test]
fn a_pg_serves_before_a_new_copy_has_taken_over_its_log() {
    for seed in 2060..2090 {
        let (mut c, primary, filled) = moving(seed, seed % 2 == 0);
        let pg = c.pgs()[0];
        let acts = |c: &Cluster| !c.map.pg_to_up_acting(pg).acting.contains(&filled);
        while !(acts(&c) && c.line(primary).contains("MergeSelf")) {
            c.step();
        }
        // Nothing comes to it, or nothing from it.
        let way = if seed % 3 == 0 { (filled, primary) } else { (primary, filled) };
        c.held.insert(way);
        assert_eq!(c.write("o1", append("y")).result, 0);
        assert!(c.state(pg).contains("active"), "{}", c.state(pg));
        c.run(seed as usize % 5 * 50);
        if seed % 5 > 0 {
            let (one, other) = if seed % 4 > 1 { (primary, filled) } else { (filled, primary) };
            c.lose_session(one, other);
        }
        c.held.clear();
        assert_eq!(c.write("o1", append("z")).result, 0);
        c.settle();
        c.invariant_copies_agree();
        assert!(c.map.pg_to_up_acting(pg).acting.contains(&filled));
        assert_eq!(c.read("o1"), b"xxxxxxxyz".as_slice());
    }
}

#[test]
fn writes_wait_for_those_who_act_and_not_for_who_is_being_filled() {
    for coded in [false, true] {
        let (mut c, primary, filled) = filling(2100, coded);
        c.held.insert((filled, primary));
        (0..64).for_each(|n| assert_eq!(c.write(&format!("o{}", n % 30), append("y")).result, 0, "{n}"));
        assert_eq!(c.read("o4"), b"xxxxxxxyy".as_slice(), "and whoever reads sees them");
        // However far behind it is, that is bounded.
        let next = c.submit(0, "o0", osd_flag::WRITE, append("z"));
        c.run(2000);
        assert!(c.pending[&next].reply.is_none());
        c.held.clear();
        assert_eq!(c.wait(next).result, 0);
        c.settle();
        c.invariant_copies_agree();
        assert_eq!(c.read("o0"), b"xxxxxxxyyyz".as_slice());
    }
}

/// Whoever was being filled may have all but the last writes when the primary ends, and has promised nothing.
#[test]
fn what_was_acknowledged_is_there_whoever_ends_while_a_copy_is_being_filled() {
    let mut behind = 0;
    for seed in 2110..2190 {
        let (mut c, primary, filled) = filling(seed, seed % 2 == 0);
        let mut texts = vec!["xxxxxxx".to_owned(); 20];
        texts.resize(30, "xxxxxx".into());
        while !c.line(filled).contains("last_backfill MAX") && !c.is_clean() {
            let n = c.rng.random_range(0..30);
            assert_eq!(c.write(&format!("o{n}"), append("y")).result, 0);
            texts[n].push('y');
        }
        // It hears nothing any more, and is told of these in vain.
        c.held.insert((primary, filled));
        for _ in 0..c.rng.random_range(1..5) {
            let n = c.rng.random_range(0..30);
            let tid = c.submit(0, &format!("o{n}"), osd_flag::WRITE, append("z"));
            c.run(400);
            match c.pending.get(&tid).is_some_and(|p| p.reply.is_some()) {
                true => (behind, texts[n]) = (behind + 1, texts[n].clone() + "z"),
                // It was filled, and is waited for: the write comes about some time.
                false => break,
            }
        }
        c.crash(primary);
        c.held.clear();
        c.run(300);
        c.start(primary);
        c.settle();
        c.invariant_copies_agree();
        for (n, text) in texts.iter().enumerate() {
            let found = String::from_utf8(c.read(&format!("o{n}"))).unwrap();
            assert!(found.starts_with(text.as_str()) && found.len() <= text.len() + 1, "seed {seed}: o{n} is {found}, {text} was written");
        }
    }
    assert!(behind > 20, "{behind} writes");
}
