//! What takes long is told of: how many, what they wait for, and a line for each.

use crate::append;
use crate::harness::Cluster;
use std::time::Duration;
use types::map::OsdMap;
use types::{OsdId, PgId};

fn cluster(seed: u64) -> (Cluster, PgId, OsdId, OsdId) {
    let mut c = Cluster::with_options(seed, 3, 1, &[("osd_op_complaint_time", "2"), ("osd_op_log_threshold", "2")]);
    c.settle();
    let pg = c.pgs()[0];
    let acting = c.map.pg_to_up_acting(pg).acting;
    (c, pg, acting[0], acting[1])
}

/// What the manager was last told by an OSD.
fn told(c: &Cluster, osd: OsdId) -> (u32, Vec<(String, u32)>) {
    let slow = &c.stats[&osd].slow_ops;
    (slow.count, slow.stages.clone().into_iter().collect())
}

fn blocked(c: &mut Cluster, osd: OsdId) -> serde_json::Value {
    let id = c.command(osd, r#"{"prefix": "dump_blocked_ops", "format": "json"}"#.into());
    serde_json::from_slice(&c.command_replies[&id].output).unwrap()
}

fn lines(c: &Cluster) -> Vec<String> {
    c.said.iter().filter(|line| line.contains("slow request")).cloned().collect()
}

#[test]
fn a_write_that_a_copy_does_not_confirm_is_told_of_with_what_it_waits_for() {
    let (mut c, _, primary, replica) = cluster(1700);
    c.held.insert((primary, replica));
    let tid = c.submit(0, "o", 0, append("x"));
    c.run_for(Duration::from_secs(1));
    assert_eq!(blocked(&mut c, primary)["num_blocked_ops"], 0);
    c.run_for(Duration::from_secs(8));
    assert_eq!(told(&c, primary), (1, vec![("wait_repop".into(), 1)]));
    assert!(c.stats[&primary].slow_ops.oldest_ms >= 2000);
    let shown = blocked(&mut c, primary);
    assert_eq!((shown["num_blocked_ops"].as_u64(), shown["complaint_time"].as_u64()), (Some(1), Some(2)));
    assert_eq!(shown["ops"][0]["type_data"]["flag_point"], "wait_repop");
    assert!(shown["ops"][0]["description"].as_str().unwrap().starts_with("osd_op(client."), "{shown}");
    // Once, however long it takes.
    c.run_for(Duration::from_secs(8));
    let said = lines(&c);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("slow request osd_op(client.") && said[0].ends_with("currently wait_repop"), "{said:?}");
    c.held.clear();
    assert_eq!(c.wait(tid).result, 0);
    c.run_for(Duration::from_secs(8));
    assert_eq!(told(&c, primary), (0, vec![]));
}

#[test]
fn who_waits_for_an_object_that_a_copy_lacks_says_so() {
    let (mut c, pg, primary, replica) = cluster(1701);
    assert_eq!(c.write("o", append("x")).result, 0);
    c.crash(replica);
    c.publish();
    assert_eq!(c.write("o", append("y")).result, 0);
    c.map.flags |= OsdMap::FLAG_NORECOVER;
    c.publish();
    c.start(replica);
    c.run(3000);
    assert_eq!(c.state(pg), "active+recovery_wait+degraded");
    c.held.insert((primary, replica));
    let writes: Vec<u64> = (0..4).map(|_| c.submit(0, "o", 0, append("z"))).collect();
    c.run_for(Duration::from_secs(9));
    assert_eq!(told(&c, primary), (4, vec![("waiting for degraded object".into(), 1), ("waiting for rw locks".into(), 3)]));
    let said = lines(&c);
    assert_eq!((said.len(), said[2].as_str()), (3, "2 more slow requests"), "{said:?}");
    c.held.clear();
    writes.into_iter().for_each(|tid| assert_eq!(c.wait(tid).result, 0));
}
