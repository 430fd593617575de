//! Objects that nobody has, and that the operator gives up.

use super::harness::{Cluster, POOL};
use super::append;
use rand::Rng;
use serde_json::Value;
use types::msg::OsdOp;
use types::msg::osd::osd_flag;
use types::{Errno, OsdId};

/// One OSD is left that knows of writes whose objects are with two others, which died: new objects, an older one that was
/// appended to, and one that was removed and made anew.
pub(crate) fn unfound(seed: u64) -> Cluster {
    let mut c = Cluster::with_options(seed, 3, 1, &[("osd_recovery_max_active", "1")]);
    c.map.pools.get_mut(&POOL).unwrap().min_size = 1;
    c.settle();
    c.append_to(0..40, "old");
    c.settle();
    c.crash(OsdId(0));
    for n in (0..80).filter(|n| n % 2 == 1) {
        assert_eq!(c.write(&format!("o{n}"), append(",and much newer")).result, 0);
    }
    c.start(OsdId(0));
    c.until_state(c.pgs()[0], "recovering");
    // It has to hear that everybody is active; else it does not dare to be alone.
    c.run(100);
    c.crash(OsdId(1));
    c.crash(OsdId(2));
    c.until_state(c.pgs()[0], "recovery_unfound");
    c
}

fn mark(c: &mut Cluster, how: &str) -> u64 {
    let pg = c.pgs()[0];
    c.command(c.primary(pg), format!(r#"{{"prefix":"pg","pgid":"{pg}","cmd":"mark_unfound_lost","mulcmd":"{how}"}}"#))
}

pub(crate) fn ask(c: &mut Cluster, osd: OsdId, what: &str) -> Value {
    let pg = c.pgs()[0];
    let id = c.command(osd, format!(r#"{{"prefix":"pg","pgid":"{pg}","cmd":"{what}","format":"json"}}"#));
    serde_json::from_slice(&c.command_replies.remove(&id).unwrap().output).unwrap()
}

/// Objects that the PG's primary calls unfound.
fn names_unfound(c: &mut Cluster) -> Vec<String> {
    let primary = c.primary(c.pgs()[0]);
    names(&ask(c, primary, "list_unfound"))
}

fn names(list: &Value) -> Vec<String> {
    list["objects"].as_array().unwrap().iter().map(|o| o["oid"]["oid"].as_str().unwrap().to_owned()).collect()
}

/// What the PG says of its size is the sum of what clients read.
fn invariant_totals(c: &mut Cluster) {
    let pg = c.pgs()[0];
    c.tick(std::time::Duration::from_secs(1));
    let (primary, names) = (c.primary(pg), c.list(pg));
    let bytes: usize = names.iter().map(|name| c.read(name).len()).sum();
    let sum = &ask(c, primary, "query")["info"]["stats"]["stat_sum"];
    assert_eq!((sum["num_objects"].as_u64(), sum["num_bytes"].as_u64()), (Some(names.len() as u64), Some(bytes as u64)));
}

#[test]
fn what_may_still_come_back_is_not_given_up() {
    let mut c = unfound(900);
    let list = ask(&mut c, OsdId(0), "list_unfound");
    let count = names(&list).len();
    assert!(count > 1 && list["num_unfound"] == count, "{list}");
    let sources = |list: &Value| list["might_have_unfound"].as_array().unwrap().iter().map(|s| format!("{} {}", s["osd"], s["status"])).collect::<Vec<_>>();
    assert_eq!(sources(&list), [r#""1" "osd is down""#, r#""2" "osd is down""#]);
    for lost in [1, 2] {
        let id = mark(&mut c, "delete");
        let reply = c.command_replies.remove(&id).unwrap();
        let text = format!("pg has {count} unfound objects but we haven't probed all sources, not marking lost");
        assert_eq!((reply.result, reply.status), (Errno::EINVAL.wire(), text));
        c.declare_lost(OsdId(lost));
        c.run(100);
    }
    let id = mark(&mut c, "delete");
    c.run(500);
    let text = format!("pg has {count} objects unfound and apparently lost marking");
    assert_eq!((c.command_replies[&id].result, &c.command_replies[&id].status), (0, &text));
    let id = mark(&mut c, "delete");
    assert_eq!(c.command_replies[&id].status, "pg has no unfound objects");
    assert_eq!(names(&ask(&mut c, OsdId(0), "list_unfound")), [""; 0]);
}

#[test]
fn what_is_deleted_is_gone_wherever_it_was() {
    for seed in 910..920 {
        let mut c = unfound(seed);
        let gone = names(&ask(&mut c, OsdId(0), "list_unfound"));
        let reads: Vec<u64> = gone.iter().map(|name| c.submit(0, name, osd_flag::READ, vec![OsdOp::read(0, 0)])).collect();
        let writes: Vec<u64> = gone.iter().take(3).map(|name| c.submit(1, name, osd_flag::WRITE, append("again"))).collect();
        c.run(1000);
        assert!(reads.iter().chain(&writes).all(|tid| c.pending[tid].reply.is_none()), "they wait");
        if seed % 2 == 0 {
            // Whoever has them all the same comes back later, and does not bring them back.
            [1, 2].into_iter().for_each(|osd| c.declare_lost(OsdId(osd)));
            c.run(200);
        } else {
            [1, 2].into_iter().for_each(|osd| c.replace_disk(OsdId(osd)));
            c.start(OsdId(1));
            c.start(OsdId(2));
            c.run(3000);
        }
        let id = mark(&mut c, "delete");
        for _ in 0..3000 {
            c.step();
        }
        assert_eq!(c.command_replies.get(&id).map(|r| r.result), Some(0), "seed {seed}: {:?} {}", c.command_replies.get(&id), c.status());
        reads.into_iter().skip(3).for_each(|tid| assert_eq!(c.wait(tid).result, Errno::ENOENT.wire()));
        writes.into_iter().for_each(|tid| assert_eq!(c.wait(tid).result, 0));
        for osd in [OsdId(1), OsdId(2)].into_iter().filter(|_| seed % 2 == 0) {
            c.start(osd);
        }
        c.settle();
        c.invariant_copies_agree();
        let there = c.list(c.pgs()[0]);
        assert!(gone.iter().skip(3).all(|name| !there.contains(name)));
        gone.iter().take(3).for_each(|name| assert_eq!(c.read(name), b"again"));
        assert_eq!(c.read("o0"), b"old");
        invariant_totals(&mut c);
        assert_eq!(c.scrub(true, false), "deep-scrub ok");
    }
}

#[test]
fn what_is_reverted_is_what_it_was_before_or_forgotten() {
    for seed in 930..940 {
        let mut c = unfound(seed);
        let gone = names(&ask(&mut c, OsdId(0), "list_unfound"));
        let number = |name: &String| name[1..].parse::<u32>().unwrap();
        let (older, new): (Vec<String>, Vec<String>) = gone.into_iter().partition(|name| number(name) < 40);
        assert!(!older.is_empty() && !new.is_empty(), "seed {seed}");
        let read = c.submit(0, &older[0], osd_flag::READ, vec![OsdOp::read(0, 0)]);
        c.declare_lost(OsdId(1));
        c.replace_disk(OsdId(2));
        c.start(OsdId(2));
        // A new disk takes part, or is being filled meanwhile.
        let steps = c.rng.random_range(3000..9000);
        c.run(steps);
        let id = mark(&mut c, "revert");
        c.run(4000);
        assert_eq!(c.command_replies.get(&id).map(|r| r.result), Some(0), "seed {seed}: {:?} {}", c.command_replies.get(&id), c.status());
        assert_eq!(c.wait(read).ops[0].outdata.contiguous(), "old".as_bytes());
        // What was given up comes back, under a version that nobody wants any more.
        c.start(OsdId(1));
        c.settle();
        c.invariant_copies_agree();
        older.iter().for_each(|name| assert_eq!(c.read(name), b"old", "seed {seed} {name}"));
        let there = c.list(c.pgs()[0]);
        assert!(new.iter().all(|name| !there.contains(name)), "seed {seed}");
        invariant_totals(&mut c);
        assert_eq!(c.scrub(true, false), "deep-scrub ok");
        assert_eq!(c.write(&older[0], append(",again")).result, 0);
        assert_eq!(c.read(&older[0]), b"old,again");
    }
}

#[test]
fn giving_up_survives_crashes_of_everybody_and_lost_sessions() {
    for seed in 950..980 {
        let mut c = unfound(seed);
        let gone = names(&ask(&mut c, OsdId(0), "list_unfound"));
        [1, 2].into_iter().for_each(|osd| c.replace_disk(OsdId(osd)));
        [1, 2].into_iter().for_each(|osd| c.start(OsdId(osd)));
        let how = if seed % 2 == 0 { "delete" } else { "revert" };
        let mut rounds = 0;
        while c.state(c.pgs()[0]) != "active+clean" {
            rounds += 1;
            assert!(rounds < 60, "seed {seed}: {}", c.status());
            let pg = c.pgs()[0];
            if c.state(pg).contains("unfound") {
                mark(&mut c, how);
                let steps = c.rng.random_range(0..60);
                c.run(steps);
                let osd = OsdId(c.rng.random_range(0..3));
                match c.rng.random_range(0..6) {
                    0..3 if rounds < 8 => {
                        c.crash(osd);
                        let steps = c.rng.random_range(0..100);
                        c.run(steps);
                        c.start(osd);
                    }
                    3 | 4 => c.lose_some_session(),
                    _ => {}
                }
            }
            c.tick(std::time::Duration::from_secs(5));
            c.run(3000);
        }
        c.settle();
        c.invariant_copies_agree();
        let there = c.list(c.pgs()[0]);
        for name in &gone {
            let older = how == "revert" && name[1..].parse::<u32>().unwrap() < 40;
            assert_eq!(there.contains(name), older, "seed {seed} {name}");
            if older {
                assert_eq!(c.read(name), b"old");
            }
        }
        invariant_totals(&mut c);
    }
}

#[test]
fn what_becomes_unfound_meanwhile_is_not_given_up_with_the_rest() {
    for seed in 950..960 {
        let mut c = Cluster::with_options(seed, 3, 1, &[("osd_recovery_max_active", "1")]);
        c.settle();
        let names: Vec<String> = (0..30).map(|n| format!("o{n}")).collect();
        // Long enough to go to their place on the disk at once.
        let content = |b: u8| OsdOp::write_full(vec![b; 70_000].into());
        names.iter().for_each(|name| assert_eq!(c.write(name, vec![content(1)]).result, 0));
        c.settle();
        let pg = c.pgs()[0];
        let away = (0..3).map(OsdId).find(|osd| *osd != c.primary(pg)).unwrap();
        c.crash(away);
        names.iter().for_each(|name| assert_eq!(c.write(name, vec![content(2)]).result, 0));
        for osd in (0..3).map(OsdId).filter(|osd| *osd != away) {
            c.crash(osd);
            c.rot(osd);
            c.start(osd);
        }
        c.start(away);
        // Each is found to be unfound by itself, and given up as soon as it is.
        let mut given_up = 0;
        for _ in 0..20_000 {
            c.run(20);
            let state = c.state(pg);
            if state.contains("active") && !names_unfound(&mut c).is_empty() {
                mark(&mut c, "revert");
                given_up += 1;
            }
            if given_up > 0 && c.is_clean() {
                break;
            }
        }
        c.settle();
        c.invariant_copies_agree();
        let absent: Vec<&String> = names.iter().filter(|name| c.read(name) != vec![1; 70_000]).collect();
        assert_eq!(absent, Vec::<&String>::new(), "seed {seed}: somebody has older content of all of them");
    }
}
