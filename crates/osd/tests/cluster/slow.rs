//! What takes long is told of: how many, what they wait for, and a line for each.

use crate::append;
use crate::harness::Cluster;
use admin::command::Reply;
use serde_json::{Value, json};
use std::time::Duration;
use types::map::OsdMap;
use types::{Errno, OsdId, PgId};

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

fn ask(c: &mut Cluster, osd: OsdId, prefix: &str, more: Value) -> Reply {
    let mut command = json!({"prefix": prefix, "format": "json"});
    command.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let id = c.command(osd, command.to_string());
    c.command_replies.remove(&id).unwrap()
}

fn answer(c: &mut Cluster, osd: OsdId, prefix: &str, more: Value) -> Value {
    serde_json::from_slice(&ask(c, osd, prefix, more).output).unwrap()
}

fn blocked(c: &mut Cluster, osd: OsdId) -> Value {
    answer(c, osd, "dump_blocked_ops", json!({}))
}

fn lines(c: &Cluster) -> Vec<String> {
    c.said.iter().filter(|line| line.contains("slow request")).cloned().collect()
}

/// The stages of an operation by name.
fn events(op: &Value) -> Vec<String> {
    op["type_data"]["events"].as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap().to_owned()).collect()
}

fn waits_for(c: &Cluster, primary: OsdId) -> String {
    let mut replicas: Vec<OsdId> = c.map.pg_to_up_acting(c.pgs()[0]).acting;
    replicas.retain(|osd| *osd != primary);
    replicas.sort();
    format!("waiting for subops from {},{}", replicas[0], replicas[1])
}

#[test]
fn finished_operations_are_shown_with_their_stages_on_every_copy() {
    let (mut c, _, primary, replica) = cluster(1704);
    assert_eq!(c.write("o", append("x")).result, 0);
    let shown = answer(&mut c, primary, "dump_historic_ops", json!({}));
    let op = &shown["ops"][0];
    let passed = events(op);
    let wanted = ["initiated", "throttled", "header_read", "all_read", "dispatched", "queued_for_pg", "reached_pg", "started"];
    assert_eq!(passed[..8], wanted, "{op}");
    assert_eq!(passed[8], waits_for(&c, primary));
    let mut acks = passed[9..12].to_vec();
    acks.sort();
    assert_eq!(acks, ["op_commit", "sub_op_commit_rec", "sub_op_commit_rec"]);
    assert_eq!(passed[12..], ["commit_sent", "done"]);
    assert!(op["description"].as_str().unwrap().contains(":::o:head [append 0~1] snapc 0=[] "), "{op}");
    let times: Vec<&str> = op["type_data"]["events"].as_array().unwrap().iter().map(|e| e["time"].as_str().unwrap()).collect();
    assert!(times.is_sorted() && times[0] == op["initiated_at"], "{op}");
    let shown = answer(&mut c, replica, "dump_historic_ops", json!({}));
    let op = &shown["ops"][0];
    assert!(op["description"].as_str().unwrap().starts_with("osd_repop(client."), "{op}");
    assert!(op["description"].as_str().unwrap().contains(":::o:head v "), "{op}");
    assert_eq!(events(op)[6..], ["reached_pg", "started", "commit_sent", "done"]);
    assert_eq!(op["type_data"].get("client_info"), None);
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
    assert_eq!(shown["ops"][0]["type_data"]["flag_point"], "waiting for sub ops");
    assert_eq!(events(&shown["ops"][0])[6..], ["reached_pg", "started", &waits_for(&c, primary), "op_commit", "sub_op_commit_rec"]);
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

#[test]
fn operations_are_shown_with_who_wants_them_and_only_of_whom_was_asked_for() {
    let (mut c, _, primary, replica) = cluster(1702);
    for option in ["osd_op_history_slow_op_threshold", "osd_op_history_size"] {
        answer(&mut c, primary, "config set", json!({"var": option, "val": ["1"]}));
    }
    assert_eq!(c.write("quick", append("x")).result, 0);
    let nobody = answer(&mut c, primary, "dump_historic_slow_ops", json!({}));
    assert_eq!(nobody, json!({"num to keep": 20, "threshold to keep": 1, "Ops": []}), "the write was quick");
    c.held.insert((primary, replica));
    let tid = c.submit(0, "o", 0, append("x"));
    c.run_for(Duration::from_secs(3));
    let (ours, other) = (json!({"filterstr": ["127.0.0.1:10000"]}), json!({"filterstr": ["127.0.0.1:10001"]}));
    for (prefix, count) in [("dump_ops_in_flight", "num_ops"), ("ops", "num_ops"), ("dump_blocked_ops", "num_blocked_ops")] {
        assert_eq!(answer(&mut c, primary, prefix, ours.clone())[count], 1, "{prefix}");
        assert_eq!(answer(&mut c, primary, prefix, other.clone())[count], 0, "{prefix}");
    }
    c.held.clear();
    assert_eq!(c.wait(tid).result, 0);
    for (prefix, list) in [("dump_historic_ops", "ops"), ("dump_historic_ops_by_duration", "ops"), ("dump_historic_slow_ops", "Ops")] {
        let shown = answer(&mut c, primary, prefix, ours.clone());
        let op = &shown[list][0];
        assert!(op["description"].as_str().unwrap().contains(":::o:head "), "{prefix}: {shown}");
        assert!(op["duration"].as_f64().unwrap() >= 3.0 && shown[list].as_array().unwrap().len() == 1, "{prefix}: {shown}");
        let client = &op["type_data"]["client_info"];
        assert_eq!((op["type_data"]["flag_point"].as_str(), client["tid"].as_u64()), (Some("commit sent; apply or cleanup"), Some(tid)), "{prefix}: {shown}");
        assert!(client["client_addr"].as_str().unwrap().contains("127.0.0.1:10000"), "{prefix}: {shown}");
        assert_eq!(answer(&mut c, primary, prefix, other.clone())[list], json!([]), "{prefix}");
    }
}

#[test]
fn what_cannot_be_done_is_refused() {
    let (mut c, _, primary, _) = cluster(1703);
    for (prefix, more) in [("compact", json!({})), ("heap", json!({"heapcmd": "stats"}))] {
        let reply = ask(&mut c, primary, prefix, more);
        assert_eq!((reply.result, reply.output.len()), (Errno::EOPNOTSUPP.wire(), 0), "{prefix}");
        assert!(!reply.status.is_empty(), "{prefix}");
    }
}

#[test]
fn counters_go_back_to_zero_where_their_logger_is_named() {
    let (mut c, _, primary, _) = cluster(1704);
    assert_eq!(c.write("o", append("x")).result, 0);
    let writes = |c: &mut Cluster| answer(c, primary, "perf dump", json!({}))["osd"]["op_w"].as_u64().unwrap();
    assert_eq!(answer(&mut c, primary, "perf reset", json!({"var": "nope"})), json!({"error": "Not find: nope"}));
    assert_eq!(writes(&mut c), 1);
    assert_eq!(answer(&mut c, primary, "perf reset", json!({"var": "osd"})), json!({"success": "perf reset osd"}));
    assert_eq!(writes(&mut c), 0);
    assert_eq!(c.write("o", append("x")).result, 0);
    assert_eq!(answer(&mut c, primary, "perf reset", json!({"var": "all"})), json!({"success": "perf reset all"}));
    assert_eq!(writes(&mut c), 0);
}

#[test]
fn round_trips_are_listed_from_the_threshold_on() {
    let (mut c, _, primary, _) = cluster(1705);
    c.run_for(Duration::from_secs(15));
    let rows = |shown: &Value| shown["entries"].as_array().unwrap().len();
    let all = answer(&mut c, primary, "dump_osd_network", json!({"value": 0}));
    assert_eq!((rows(&all), &all["threshold"]), (2, &json!(0)));
    let slow = answer(&mut c, primary, "dump_osd_network", json!({}));
    assert_eq!((rows(&slow), &slow["threshold"]), (0, &json!(1000)), "a twentieth of the grace");
    let times: Vec<f64> = all["entries"].as_array().unwrap().iter().map(|e| e["last"].as_f64().unwrap()).collect();
    assert!(times[0] >= times[1], "{times:?}");
    let keys = |e: &Value| e.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let entry = &all["entries"][0];
    assert_eq!(keys(entry), ["last update", "stale", "from osd", "to osd", "interface", "average", "min", "max", "last"]);
    assert_eq!((&entry["from osd"], &entry["interface"], &entry["stale"]), (&json!(primary.0), &json!("back"), &json!(false)));
    c.run_for(Duration::from_secs(70));
    let later = answer(&mut c, primary, "dump_osd_network", json!({"value": 0}));
    let average = &later["entries"][0]["average"];
    assert!(average["1min"].as_f64().unwrap() > 0.0 && average["1min"] == average["15min"], "{later}");
    let told = &c.stats[&primary].stat.hb_pingtime;
    assert!(told.len() == 2 && told.values().all(|t| t.last_update_s > 0 && t.back_pingtime.0 > 0), "{told:?}");
    let beyond = 1 + later["entries"][0]["average"]["1min"].as_f64().unwrap() as i64;
    let none = answer(&mut c, primary, "dump_osd_network", json!({"value": beyond}));
    assert_eq!((rows(&none), &none["threshold"]), (0, &json!(beyond)));
}
