//! Fewer placement groups: what the monitors take from whom.

use crate::lab::Lab;
use crate::three;
use mon::SessionId;
use serde_json::{Value, json};
use std::time::Duration;
use types::msg::internal::PgReadyToMerge;
use types::{EVersion, Epoch, OsdId, PgId, PoolId};

fn pool(lab: &mut Lab) -> Value {
    lab.json(json!({"prefix": "osd dump"}))["pools"][0].clone()
}

fn numbers(lab: &mut Lab) -> (u64, u64) {
    let p = pool(lab);
    (p["pg_num"].as_u64().unwrap(), p["pg_num_pending"].as_u64().unwrap())
}

fn set(lab: &mut Lab, var: &str, n: u32) -> (i32, String) {
    let answer = lab.cmd(json!({"prefix": "osd pool set", "pool": "p", "var": var, "val": n.to_string()}));
    lab.pass(Duration::from_millis(100));
    (answer.result, answer.status)
}

/// What the primary of the last two of eight groups would say.
fn word(lab: &mut Lab, ready: bool) -> (SessionId, PgReadyToMerge) {
    let mapped = lab.json(json!({"prefix": "pg map", "pgid": "1.7"}));
    let acting: Vec<OsdId> = mapped["acting"].as_array().unwrap().iter().map(|o| OsdId(o.as_i64().unwrap() as i32)).collect();
    let osd = acting[0];
    let message = PgReadyToMerge {
        osd,
        epoch: Epoch(9),
        source: PgId { pool: PoolId(1), seed: 7 },
        pool_changed: Epoch(pool(lab)["last_change"].as_str().unwrap().parse().unwrap()),
        ready,
        source_version: EVersion { epoch: Epoch(5), version: 11 },
        target_version: EVersion { epoch: Epoch(6), version: 7 },
        last_epoch_started: Epoch(8),
        last_epoch_clean: Epoch(8),
        acting,
    };
    (SessionId(100 + osd.0 as u64), message)
}

fn say(lab: &mut Lab, (session, message): (SessionId, PgReadyToMerge)) {
    lab.say(session, message);
    lab.pass(Duration::from_millis(200));
}

fn eight() -> Lab {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8}));
    lab.pass(Duration::from_millis(100));
    lab
}

#[test]
fn a_group_ends_when_its_osds_say_that_it_is_ready() {
    let mut lab = eight();
    assert_eq!(set(&mut lab, "pg_num", 4).0, 0);
    assert_eq!(set(&mut lab, "pg_num_actual", 7), (-22, "specified pg_num 7 < pgp_num 8".into()));
    assert_eq!(set(&mut lab, "pgp_num_actual", 4).0, 0);
    assert_eq!(set(&mut lab, "pg_num_actual", 6), (-22, "specified pg_num 6 < pg_num (8) - 1; only single pg decrease is currently supported".into()));
    let early = word(&mut lab, true);
    say(&mut lab, early);
    assert_eq!(numbers(&mut lab), (8, 8));
    assert_eq!(set(&mut lab, "pg_num_actual", 7).0, 0);
    assert_eq!(numbers(&mut lab), (8, 7));
    let ready = word(&mut lab, true);
    say(&mut lab, ready);
    assert_eq!(numbers(&mut lab), (7, 7));
    let meta = pool(&mut lab)["last_pg_merge_meta"].clone();
    assert_eq!((&meta["source_pgid"], &meta["source_version"], &meta["target_version"]), (&json!("1.7"), &json!("5'11"), &json!("6'7")));
    assert_eq!(meta["ready_epoch"].as_u64().unwrap().to_string(), pool(&mut lab)["last_change"].as_str().unwrap());
}

#[test]
fn what_is_not_ready_serves_again() {
    let mut lab = eight();
    set(&mut lab, "pgp_num_actual", 4);
    set(&mut lab, "pg_num_actual", 7);
    let not = word(&mut lab, false);
    say(&mut lab, not);
    assert_eq!(numbers(&mut lab), (8, 8));
}

#[test]
fn what_is_said_of_a_pool_that_has_changed_since_is_void_and_so_is_what_others_say() {
    let mut lab = eight();
    set(&mut lab, "pgp_num_actual", 4);
    set(&mut lab, "pg_num_actual", 7);
    let late = word(&mut lab, true);
    // Given up, and begun again: there may have been writes in between.
    set(&mut lab, "pg_num_actual", 9);
    set(&mut lab, "pg_num_actual", 8);
    say(&mut lab, late);
    assert_eq!(numbers(&mut lab), (9, 8));
    let mut lab = eight();
    set(&mut lab, "pgp_num_actual", 4);
    set(&mut lab, "pg_num_actual", 7);
    let (_, mut other) = word(&mut lab, true);
    other.osd = OsdId((other.osd.0 + 1) % 3);
    say(&mut lab, (SessionId(100 + other.osd.0 as u64), other));
    assert_eq!(numbers(&mut lab), (8, 7));
    let (session, mut elsewhere) = word(&mut lab, true);
    elsewhere.acting.truncate(2);
    say(&mut lab, (session, elsewhere));
    assert_eq!(numbers(&mut lab), (8, 7));
}
