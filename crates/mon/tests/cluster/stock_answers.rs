//! The answers of a stock 16.2.15 cluster of three OSDs to sequences of commands, asked of ours.
//!
//! Each line of `data/*.jsonl` holds a command, the result, the status and (where it names no time, key or address)
//! the output, in order: what one command leaves behind, the next one meets.

use crate::lab::{ADMIN, Lab};
use serde_json::{Value, json};

const OPTIONS: &[(&str, &str)] = &[
    ("mon_allow_pool_delete", "true"),
    ("mon_allow_pool_size_one", "true"),
    ("osd_pool_default_pg_autoscale_mode", "off"),
];

fn three_like_stock() -> Lab {
    let mut lab = Lab::new(OPTIONS);
    lab.osds = ("vm", "hdd", 4 << 30);
    for i in 0..3 {
        lab.add_osd(i);
    }
    // The pool that a stock manager makes by itself.
    lab.ok(json!({"prefix": "osd pool create", "pool": "device_health_metrics", "pg_num": 1}));
    lab
}

fn replay(cases: &str) {
    let mut lab = three_like_stock();
    let mut wrong = Vec::new();
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let input = case["input"].as_str().unwrap_or("").as_bytes();
        let answer = lab.raw_command(ADMIN, &case["cmd"].to_string(), input);
        let same_status = case["status"].as_str().is_none_or(|s| s == answer.status);
        let same_out = case["out"].as_str().is_none_or(|o| o == answer.out.trim_end_matches('\n'));
        if case["result"] != answer.result || !same_status || !same_out {
            wrong.push(format!("{line}\n  got {} {:?}\n{}", answer.result, answer.status, answer.out));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn osds_pools_and_crush_are_answered_as_stock_answers() {
    replay(include_str!("../data/stock_16_2_osd.jsonl"));
}

#[test]
fn keys_options_and_the_cluster_are_answered_as_stock_answers() {
    replay(include_str!("../data/stock_16_2_cluster.jsonl"));
}

#[test]
fn erasure_codes_are_answered_as_stock_answers() {
    replay(include_str!("../data/stock_16_2_erasure.jsonl"));
}
