//! What an operator measures: counters under stock's names, histograms, memory, and the benchmark of a store.

use crate::append;
use crate::harness::Cluster;
use serde_json::{Value, json};
use std::time::Duration;
use types::OsdId;

fn cluster(seed: u64) -> (Cluster, OsdId, OsdId) {
    let mut c = Cluster::with_options(seed, 3, 1, &[]);
    c.settle();
    let acting = c.map.pg_to_up_acting(c.pgs()[0]).acting;
    (c, acting[0], acting[1])
}

fn ask(c: &mut Cluster, osd: OsdId, prefix: &str, more: Value) -> Result<Value, String> {
    let mut command = json!({"prefix": prefix, "format": "json"});
    command.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let id = c.command(osd, command.to_string());
    for _ in 0..600 {
        if let Some(reply) = c.command_replies.remove(&id) {
            return if reply.result == 0 { Ok(serde_json::from_slice(&reply.output).unwrap_or(Value::Null)) } else { Err(reply.status) };
        }
        c.run_for(Duration::from_millis(100));
    }
    panic!("{prefix} is not answered");
}

fn perf(c: &mut Cluster, osd: OsdId) -> Value {
    ask(c, osd, "perf dump", json!({})).unwrap()
}

/// Of each logger counters that scripts and dashboards look at.
const STOCK: [(&str, &str); 8] = [
    (
        "osd",
        "op_wip op op_in_bytes op_out_bytes op_latency op_process_latency op_prepare_latency op_r op_r_out_bytes op_r_latency \
         op_r_process_latency op_r_prepare_latency op_w op_w_in_bytes op_w_latency op_w_process_latency op_w_prepare_latency op_rw \
         op_rw_in_bytes op_rw_out_bytes op_rw_latency op_rw_process_latency op_rw_prepare_latency op_before_dequeue_op_lat subop \
         subop_in_bytes subop_latency subop_w subop_w_in_bytes subop_w_latency subop_pull subop_push subop_push_in_bytes \
         subop_push_latency pull push push_out_bytes recovery_ops recovery_bytes numpg numpg_primary numpg_replica numpg_stray \
         numpg_removing heartbeat_to_peers map_messages map_message_epochs messages_delayed_for_map stat_bytes stat_bytes_used \
         stat_bytes_avail copyfrom",
    ),
    (
        "bluestore",
        "kv_flush_lat kv_commit_lat kv_sync_lat state_prepare_lat state_aio_wait_lat state_io_done_lat state_kv_queued_lat \
         state_kv_commiting_lat throttle_lat commit_lat read_lat read_wait_aio_lat deferred_write_ops deferred_write_bytes \
         bluestore_allocated bluestore_stored bluestore_compressed bluestore_onodes onode_hits onode_misses bluestore_buffer_bytes \
         bluestore_write_big bluestore_write_small bluestore_write_deferred bluestore_txc",
    ),
    ("rocksdb", "get get_latency submit_latency submit_sync_latency"),
    ("bluefs", "db_total_bytes db_used_bytes wal_total_bytes wal_used_bytes slow_total_bytes slow_used_bytes num_files"),
    ("AsyncMessenger::Worker-0", "msgr_recv_messages msgr_send_messages msgr_recv_bytes msgr_send_bytes msgr_created_connections"),
    ("throttle-osd_client_bytes", "val max"),
    (
        "mclock-shard-queue-0",
        "mclock_immediate_queue_len mclock_client_queue_len mclock_recovery_queue_len mclock_best_effort_queue_len mclock_all_type_queue_len",
    ),
    ("bluestore-pricache", "target_bytes mapped_bytes cache_bytes"),
];

#[test]
fn counters_have_stock_s_names_and_count() {
    let (mut c, primary, replica) = cluster(1800);
    assert_eq!(c.write("o", append("0123456789")).result, 0);
    let shown = perf(&mut c, primary);
    for (logger, names) in STOCK {
        for name in names.split_whitespace() {
            assert!(shown[logger].get(name).is_some(), "{logger}.{name}");
        }
    }
    let osd = &shown["osd"];
    assert_eq!((&osd["op_w"], &osd["op_w_in_bytes"], &osd["op_w_latency"]["avgcount"]), (&json!(1), &json!(10), &json!(1)));
    assert!(osd["op_w_process_latency"]["sum"].as_f64() <= osd["op_w_latency"]["sum"].as_f64());
    assert!(osd["op_w_prepare_latency"]["sum"].as_f64() <= osd["op_w_process_latency"]["sum"].as_f64());
    let other = perf(&mut c, replica);
    assert_eq!((&other["osd"]["subop_w"], &other["osd"]["subop_w_latency"]["avgcount"]), (&json!(1), &json!(1)));
    assert!(other["bluestore"]["bluestore_txc"].as_u64() > Some(0) && other["bluestore"]["commit_lat"]["avgcount"] == other["bluestore"]["bluestore_txc"]);
    let one = ask(&mut c, primary, "perf dump", json!({"logger": "osd", "counter": "op_w"})).unwrap();
    assert_eq!(one, json!({"osd": {"op_w": 1}}));
    let shown = ask(&mut c, primary, "perf histogram dump", json!({"logger": "osd"})).unwrap();
    let cells = &shown["osd"]["op_w_latency_in_bytes_histogram"]["values"];
    assert_eq!(cells.as_array().unwrap().iter().map(|row| row[1].as_u64().unwrap()).sum::<u64>(), 1, "of less than 512 bytes");
    for name in ["op_r_latency_out_bytes_histogram", "op_rw_latency_in_bytes_histogram", "op_rw_latency_out_bytes_histogram"] {
        assert_eq!(shown["osd"][name]["axes"].as_array().map(Vec::len), Some(2), "{name}");
    }
    assert_eq!(ask(&mut c, primary, "perf reset", json!({"var": "bluestore"})).unwrap(), json!({"success": "perf reset bluestore"}));
    let shown = perf(&mut c, primary);
    assert_eq!((&shown["bluestore"]["bluestore_txc"], &shown["osd"]["op_w"]), (&json!(0), &json!(1)), "that logger alone");
    assert_eq!(ask(&mut c, primary, "perf reset", json!({"var": "nope"})).unwrap(), json!({"error": "Not find: nope"}));
}

#[test]
fn what_a_primary_lacks_all_who_have_it_give() {
    let mut c = Cluster::with_options(1810, 3, 1, &[]);
    c.settle();
    let [primary, others @ ..] = &c.map.pg_to_up_acting(c.pgs()[0]).acting[..] else { panic!() };
    let (primary, others) = (*primary, others.to_vec());
    c.crash(primary);
    c.run_for(Duration::from_secs(10));
    (0..40).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
    c.start(primary);
    c.settle();
    let given: Vec<u64> = others.iter().map(|osd| perf(&mut c, *osd)["osd"]["subop_pull"].as_u64().unwrap()).collect();
    assert!(c.is_clean() && given.iter().sum::<u64>() >= 40 && given.iter().all(|n| *n >= 10), "{given:?}");
}

#[test]
fn who_moves_objects_beside_a_slow_disk_is_patient() {
    for slow in [false, true] {
        let mut c = Cluster::with_options(1811, 3, 1, &[("osd_recovery_sleep", "0.2")]);
        c.settle();
        let [primary, other, away] = c.map.pg_to_up_acting(c.pgs()[0]).acting[..] else { panic!() };
        if slow {
            ask(&mut c, other, "config set", json!({"var": "osd_mclock_max_capacity_iops_ssd", "val": ["75"]})).unwrap();
        }
        c.crash(away);
        c.run_for(Duration::from_secs(10));
        (0..40).for_each(|n| assert_eq!(c.write(&format!("o{n}"), append("x")).result, 0));
        c.start(away);
        c.until_state(c.pgs()[0], "recovering");
        c.run_for(Duration::from_secs(3));
        // A client, or nobody would have to be minded.
        assert_eq!(c.write("o0", append("y")).result, 0);
        let shown = perf(&mut c, primary)["recovery"].clone();
        let (way, within) = if slow { (1, 100_000) } else { (0, 5_000) };
        assert_eq!([&shown["slow_way"], &shown["arrive_within_us"], &shown["without_clients"]], [way, within, 0], "{shown}");
        assert!(!c.is_clean() && shown["objects_max"].as_u64() > Some(0), "{shown}");
        c.settle();
        let shown = perf(&mut c, primary)["recovery"].clone();
        assert_eq!([&shown["slow_way"], &shown["objects_active"]], [0, 0], "{shown}");
    }
}

#[test]
fn memory_is_told_in_stock_s_pools() {
    let (mut c, primary, _) = cluster(1801);
    assert_eq!(c.write("o", append("x")).result, 0);
    let shown = ask(&mut c, primary, "dump_mempools", json!({})).unwrap();
    let pools = shown["mempool"]["by_pool"].as_object().unwrap();
    assert_eq!(pools.len(), 29);
    let names = "bloom_filter bluestore_alloc bluestore_cache_data bluestore_cache_onode bluestore_txc bluestore_writing_deferred buffer_anon osd \
                 osd_pglog osdmap unittest_2";
    names.split_whitespace().for_each(|name| assert!(pools.contains_key(name), "{name}"));
    assert_eq!(pools["osd_pglog"]["items"], 1);
    let sum = |what: &str| pools.values().map(|p| p[what].as_u64().unwrap()).sum::<u64>();
    assert_eq!((&shown["mempool"]["total"]["items"], &shown["mempool"]["total"]["bytes"]), (&json!(sum("items")), &json!(sum("bytes"))));
    assert!(ask(&mut c, primary, "cache status", json!({})).unwrap()["bluestore_onode"].as_u64() > Some(0));
    ask(&mut c, primary, "cache drop", json!({})).unwrap();
    assert_eq!(ask(&mut c, primary, "cache status", json!({})).unwrap(), json!({"object_ctx": 0, "bluestore_onode": 0, "bluestore_buffers": 0}));
    assert!(ask(&mut c, primary, "dump_pg_recovery_stats", json!({})).is_err());
}

#[test]
fn a_benchmark_writes_what_it_says_and_leaves_nothing() {
    let (mut c, primary, _) = cluster(1802);
    c.run_for(Duration::from_secs(1));
    let before = perf(&mut c, primary)["bluestore"].clone();
    for (args, written) in [
        (json!({"count": 409_600, "size": 4096}), 409_600),
        (json!({"count": 40_960, "size": 4096, "object_size": 65_536, "object_num": 3}), 40_960),
        (json!({"count": 1, "size": 4096}), 1),
    ] {
        let result = ask(&mut c, primary, "bench", args.clone()).unwrap();
        assert_eq!((&result["bytes_written"], &result["blocksize"]), (&json!(written), &json!(4096)), "{args}");
        assert!(["elapsed_sec", "bytes_per_sec", "iops"].iter().all(|key| result[key].as_f64() > Some(0.0)), "{result}");
    }
    let after = perf(&mut c, primary)["bluestore"].clone();
    let grown = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
    assert!(grown("bluestore_write_small_bytes") >= 409_600 + 40_960 + 3 * 65_536, "{after}");
    assert_eq!(after["bluestore_stored"], before["bluestore_stored"], "its objects are gone");
    for wrong in [json!({"count": 1u64 << 40, "size": 4096}), json!({"size": 1 << 30}), json!({"size": 0}), json!({"object_num": -1, "object_size": 4})] {
        assert!(ask(&mut c, primary, "bench", wrong.clone()).is_err(), "{wrong}");
    }
}
