//! Erasure-coded pools: their rules, what changes of them, and places that nobody has.

use crate::lab::{ADMIN, Lab};
use crate::{OPTIONS, three};
use mon::SessionId;
use serde_json::{Value, json};
use std::time::Duration;
use types::msg::internal::PgTempRequest;
use types::{Epoch, OsdId, PgId, PoolId};

const HOLE: i32 = OsdId::HOLE.0;

fn profile(lab: &mut Lab, name: &str, pairs: &[&str], force: bool) -> (i32, String) {
    let answer = lab.cmd(json!({"prefix": "osd erasure-code-profile set", "name": name, "profile": pairs, "force": force}));
    (answer.result, answer.status)
}

fn pool(lab: &mut Lab, command: Value) -> String {
    let mut all = json!({"prefix": "osd pool create", "pool_type": "erasure"});
    all.as_object_mut().unwrap().extend(command.as_object().unwrap().clone());
    lab.ok(all).status
}

fn set(lab: &mut Lab, pool: &str, var: &str, val: &str) -> (i32, String) {
    let answer = lab.cmd(json!({"prefix": "osd pool set", "pool": pool, "var": var, "val": val}));
    (answer.result, answer.status)
}

/// The up set of a PG, and its primary.
fn up(lab: &mut Lab, pg: &str) -> Vec<i32> {
    lab.json(json!({"prefix": "pg map", "pgid": pg}))["up"].as_array().unwrap().iter().map(|o| o.as_i64().unwrap() as i32).collect()
}

#[test]
fn a_pool_without_a_word_more_is_whole_on_one_machine() {
    let mut lab = three();
    lab.add_osd(3);
    assert_eq!(pool(&mut lab, json!({"pool": "e", "pg_num": 8})), "pool 'e' created");
    let pools = lab.json(json!({"prefix": "osd dump"}))["pools"].clone();
    assert_eq!((&pools[0]["size"], &pools[0]["min_size"], &pools[0]["stripe_width"]), (&json!(4), &json!(3), &json!(8192)));
    for seed in 0..8 {
        let mut osds = up(&mut lab, &format!("1.{seed}"));
        osds.sort_unstable();
        assert_eq!(osds, [0, 1, 2, 3]);
    }
    let line = lab.ok(json!({"prefix": "osd pool ls", "detail": "detail"})).out;
    assert!(line.starts_with("pool 1 'e' erasure profile default size 4 min_size 3 crush_rule 1 object_hash rjenkins pg_num 8 pgp_num 8 "), "{line}");
    // The profile says what it was, and the rule is over what the cluster's replicated rule is over.
    assert_eq!(lab.ok(json!({"prefix": "osd crush rule ls"})).out, "replicated_rule\nerasure-code\n");
    assert_eq!(lab.json(json!({"prefix": "osd crush rule dump", "name": "erasure-code"}))["steps"][3]["op"], "choose_indep");
}

#[test]
fn where_copies_are_on_different_hosts_chunks_are_too() {
    let mut lab = Lab::new(&[OPTIONS, &[("osd_crush_chooseleaf_type", "1")]].concat());
    for (osd, host) in [(0, "a"), (1, "a"), (2, "b"), (3, "b"), (4, "c"), (5, "c")] {
        lab.osds.0 = host;
        lab.add_osd(osd);
    }
    profile(&mut lab, "p21", &["k=2", "m=1"], false);
    assert!(lab.ok(json!({"prefix": "osd erasure-code-profile get", "name": "p21"})).out.contains("crush-failure-domain=host\n"));
    pool(&mut lab, json!({"pool": "e", "pg_num": 8, "erasure_code_profile": "p21"}));
    for seed in 0..8 {
        let mut hosts: Vec<i32> = up(&mut lab, &format!("1.{seed}")).iter().map(|osd| osd / 2).collect();
        hosts.sort_unstable();
        assert_eq!(hosts, [0, 1, 2]);
    }
}

#[test]
fn a_pool_is_made_with_its_rule_in_one_epoch_or_not_at_all() {
    let mut lab = three();
    profile(&mut lab, "p21", &["k=2", "m=1"], false);
    let epoch = |lab: &mut Lab| lab.json(json!({"prefix": "osd stat"}))["epoch"].as_u64().unwrap();
    let before = epoch(&mut lab);
    let many = json!({"prefix": "osd pool create", "pool": "e", "pg_num": 8, "pgp_num": 9, "pool_type": "erasure", "erasure_code_profile": "p21"});
    assert_eq!(lab.cmd(many).result, -34);
    assert_eq!((lab.ok(json!({"prefix": "osd crush rule ls"})).out.as_str(), epoch(&mut lab)), ("replicated_rule\n", before));
    pool(&mut lab, json!({"pool": "e", "pg_num": 8, "erasure_code_profile": "p21"}));
    assert_eq!((lab.ok(json!({"prefix": "osd crush rule ls"})).out.as_str(), epoch(&mut lab)), ("replicated_rule\ne\n", before + 1));
    let rule = lab.json(json!({"prefix": "osd crush rule dump", "name": "e"}));
    assert_eq!((&rule["type"], &rule["min_size"], &rule["max_size"]), (&json!(3), &json!(3), &json!(3)));
}

#[test]
fn the_default_kind_of_pool_can_be_erasure() {
    let mut lab = Lab::new(&[OPTIONS, &[("osd_pool_default_type", "erasure")]].concat());
    for osd in 0..4 {
        lab.add_osd(osd);
    }
    lab.ok(json!({"prefix": "osd pool create", "pool": "e", "pg_num": 8}));
    assert_eq!(lab.json(json!({"prefix": "osd dump"}))["pools"][0]["type"], 3);
}

#[test]
fn the_default_profile_is_what_the_option_says_and_comes_back_when_it_is_needed() {
    let option = ("osd_pool_default_erasure_code_profile", r#"{"plugin": "isa", "k": "2", "m": "1"}"#);
    let mut lab = Lab::new(&[OPTIONS, &[option]].concat());
    (0..3).for_each(|osd| assert_ne!(lab.add_osd(osd), ADMIN));
    let get = json!({"prefix": "osd erasure-code-profile get", "name": "default"});
    assert_eq!(lab.ok(get.clone()).out, "k=2\nm=1\nplugin=isa\n");
    lab.ok(json!({"prefix": "osd erasure-code-profile rm", "name": "default"}));
    assert_eq!(lab.cmd(get.clone()).result, -2);
    pool(&mut lab, json!({"pool": "e", "pg_num": 8}));
    assert_eq!(lab.ok(get).out, "k=2\nm=1\nplugin=isa\n");
    assert_eq!(lab.json(json!({"prefix": "osd dump"}))["pools"][0]["size"], 3);
    // Another plugin's profile does not take over the words of the default one.
    profile(&mut lab, "j", &["plugin=jerasure", "technique=cauchy_good"], false);
    assert!(lab.ok(json!({"prefix": "osd erasure-code-profile get", "name": "j"})).out.contains("k=7\nm=3\npacketsize=2048\n"));
}

#[test]
fn pgs_of_chunks_are_split_and_merged_as_others() {
    let mut lab = three();
    profile(&mut lab, "p21", &["k=2", "m=1"], false);
    pool(&mut lab, json!({"pool": "e", "pg_num": 8, "erasure_code_profile": "p21"}));
    assert_eq!(set(&mut lab, "e", "pg_num", "16").0, 0);
    // Taken back before it has happened.
    assert_eq!(set(&mut lab, "e", "pg_num", "8").0, 0);
    assert_eq!(set(&mut lab, "e", "pg_num", "4").0, 0);
    assert_eq!(set(&mut lab, "e", "pgp_num_actual", "7").0, 0);
    assert_eq!(set(&mut lab, "e", "pg_num_actual", "7").0, 0);
    let pool = lab.json(json!({"prefix": "osd dump"}))["pools"][0].clone();
    assert_eq!((&pool["pg_num"], &pool["pg_num_pending"], &pool["pg_num_target"]), (&json!(8), &json!(7), &json!(4)));
}

#[test]
fn how_the_data_of_a_pool_is_coded_does_not_change() {
    let mut lab = three();
    profile(&mut lab, "p21", &["k=2", "m=1"], false);
    pool(&mut lab, json!({"pool": "e", "pg_num": 8, "erasure_code_profile": "p21"}));
    let busy = (-16, "e pool(s) are using the erasure code profile 'p21'".to_owned());
    assert_eq!(profile(&mut lab, "p21", &["k=4", "m=2"], true), busy);
    assert_eq!(profile(&mut lab, "p21", &["k=2", "m=1", "technique=cauchy_good"], true), busy);
    assert_eq!(profile(&mut lab, "p21", &["k=2", "m=1", "crush-failure-domain=host"], true), (0, String::new()));
}

#[test]
fn a_place_that_nobody_has_is_none_everywhere() {
    let mut lab = three();
    let sessions: Vec<SessionId> = vec![SessionId(100), SessionId(101), SessionId(102)];
    profile(&mut lab, "p21", &["k=2", "m=1"], false);
    pool(&mut lab, json!({"pool": "e", "pg_num": 8, "erasure_code_profile": "p21"}));
    let before = up(&mut lab, "1.0");
    let text = |lab: &mut Lab| lab.ok(json!({"prefix": "osd map", "pool": "e", "object": "foo"})).out;
    assert!(!text(&mut lab).contains("NONE"));
    let pg = text(&mut lab).split(['(', ')']).nth(1).map(str::to_owned);
    lab.ok(json!({"prefix": "osd down", "ids": [before[0].to_string()]}));
    let now = up(&mut lab, "1.0");
    assert_eq!(now, [HOLE, before[1], before[2]], "{pg:?}");
    assert!(text(&mut lab).contains("NONE"), "{}", text(&mut lab));
    let map = lab.json(json!({"prefix": "osd map", "pool": "e", "object": "foo"}));
    assert_ne!(map["acting_primary"], HOLE);
    // OSDs ask for an acting set with such a place; for one that is nothing else they do not.
    let epoch = Epoch(lab.json(json!({"prefix": "osd stat"}))["epoch"].as_u64().unwrap() as u32);
    let mut ask = |osds: &[i32]| {
        let pg = PgId { pool: PoolId(1), seed: 3 };
        let pg_temp = [(pg, osds.iter().map(|osd| OsdId(*osd)).collect())].into();
        let who = OsdId(before[1]);
        lab.say(sessions[before[1] as usize], PgTempRequest { osd: who, epoch, pg_temp, forced: false });
        lab.pass(Duration::from_secs(2));
        lab.json(json!({"prefix": "osd dump"}))["pg_temp"].clone()
    };
    assert_eq!(ask(&[HOLE, HOLE, HOLE]), json!([]));
    assert_eq!(ask(&[HOLE, before[1], HOLE]), json!([{"pgid": "1.3", "osds": [HOLE, before[1], HOLE]}]));
    assert_eq!(ask(&[before[1]]), json!([{"pgid": "1.3", "osds": [before[1]]}]));
    assert_eq!(lab.raw_command(ADMIN, r#"{"prefix": "osd tree"}"#, b"").result, 0);
}

#[test]
fn a_pg_that_is_to_peer_anew_keeps_its_chunks_where_they_are() {
    let mut lab = three();
    profile(&mut lab, "p21", &["k=2", "m=1"], false);
    pool(&mut lab, json!({"pool": "e", "pg_num": 8, "erasure_code_profile": "p21"}));
    let before = up(&mut lab, "1.2");
    lab.ok(json!({"prefix": "pg repeer", "pgid": "1.2"}));
    let temp = lab.json(json!({"prefix": "osd dump"}))["pg_temp"].clone();
    assert_eq!(temp, json!([{"pgid": "1.2", "osds": [before[0], HOLE, HOLE]}]));
}
