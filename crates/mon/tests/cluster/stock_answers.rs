//! The answers of a stock 16.2.15 cluster of three OSDs to a sequence of commands, asked of ours.
//!
//! `data/stock_16_2_answers.jsonl` holds result, status and (where it names no time or address) output of each, in
//! order: what one command leaves behind, the next one meets.

use crate::lab::Lab;
use serde_json::Value;

const OPTIONS: &[(&str, &str)] = &[
    ("mon_allow_pool_delete", "true"),
    ("mon_allow_pool_size_one", "true"),
    ("osd_pool_default_pg_autoscale_mode", "off"),
];

#[test]
fn every_answer_is_that_of_stock() {
    let mut lab = Lab::new(OPTIONS);
    lab.osds = ("vm", "hdd", 4 << 30);
    for i in 0..3 {
        lab.add_osd(i);
    }
    // The pool that a stock manager makes by itself.
    lab.ok(serde_json::json!({"prefix": "osd pool create", "pool": "device_health_metrics", "pg_num": 1}));
    let mut wrong = Vec::new();
    for line in include_str!("../data/stock_16_2_answers.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let answer = lab.cmd(case["cmd"].clone());
        let same_status = case["status"].as_str().is_none_or(|s| s == answer.status);
        let same_out = case["out"].as_str().is_none_or(|o| o == answer.out.trim_end_matches('\n'));
        if case["result"] != answer.result || !same_status || !same_out {
            wrong.push(format!("{line}\n  got {} {:?}\n{}", answer.result, answer.status, answer.out));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
