//! Exceptions from CRUSH's choice, device classes, new CRUSH maps, and pools that are to be large.

use crate::lab::{ADMIN, Lab};
use crate::{digest, manager, three};
use serde_json::{Value, json};
use std::time::Duration;
use types::msg::internal::MgrDigest;
use types::pg::{OsdStat, PgState, PoolDigest, StoreStatfs};
use types::{OsdId, PoolId};

fn with_pool() -> Lab {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8, "size": 2}));
    lab.pass(Duration::from_millis(100));
    lab
}

/// What a command is refused with.
fn refused(lab: &mut Lab, command: Value) -> (i32, String) {
    let answer = lab.cmd(command);
    lab.pass(Duration::from_millis(100));
    (answer.result, answer.status)
}

/// The OSDs of a PG, and the one that is not among them.
fn placed(lab: &mut Lab, pg: &str) -> (Vec<i64>, i64) {
    let up: Vec<i64> = lab.json(json!({"prefix": "pg map", "pgid": pg}))["up"].as_array().unwrap().iter().map(|o| o.as_i64().unwrap()).collect();
    let other = (0..3).find(|osd| !up.contains(osd)).unwrap();
    (up, other)
}

#[test]
fn upmaps_are_checked_as_stock_checks_them() {
    let mut lab = with_pool();
    let (up, other) = placed(&mut lab, "1.3");
    let items = |ids: &[i64]| json!({"prefix": "osd pg-upmap-items", "pgid": "1.3", "id": ids});
    assert_eq!(refused(&mut lab, items(&[up[0]])), (-22, "you must specify pairs of osd ids to be remapped".into()));
    assert_eq!(refused(&mut lab, items(&[0, 1, 0, 2, 1, 2])), (-22, "num of osd pairs (3) > pool size (2)".into()));
    assert_eq!(refused(&mut lab, items(&[up[0], 77])), (-2, "osd.77 does not exist".into()));
    let same = format!("from osd.{0} == to osd.{0}, no valid upmap items(pairs) is specified", up[0]);
    assert_eq!(refused(&mut lab, items(&[up[0], up[0]])), (-22, same));
    let whole = |ids: &[i64]| json!({"prefix": "osd pg-upmap", "pgid": "1.3", "id": ids});
    assert_eq!(refused(&mut lab, whole(&[0, 1, 2])), (-22, "num of osds (3) > pool size (2)".into()));
    assert_eq!(refused(&mut lab, items(&[up[0], other])), (0, format!("set 1.3 pg_upmap_items mapping to [{}->{other}]", up[0])));
    assert_eq!(placed(&mut lab, "1.3").0, [other, up[1]]);
    // An OSD that is out takes nothing: the exception goes with it.
    lab.ok(json!({"prefix": "osd out", "ids": [other.to_string()]}));
    lab.pass(Duration::from_millis(200));
    assert_eq!(lab.json(json!({"prefix": "osd dump"}))["pg_upmap_items"], json!([]));
}

#[test]
fn who_has_the_data_goes_on_acting_in_the_epoch_that_moves_it() {
    for primes in [true, false] {
        let mut lab = with_pool();
        lab.ok(json!({"prefix": "config set", "who": "mon", "name": "mon_osd_prime_pg_temp", "value": primes.to_string()}));
        lab.ok(json!({"prefix": "osd out", "ids": ["2"]}));
        lab.pass(Duration::from_millis(200));
        // No OSD here moves anything, nor says so: what was kept then is not given up.
        let before = lab.json(json!({"prefix": "osd dump"}));
        lab.ok(json!({"prefix": "osd pool create", "pool": "q", "pg_num": 8, "size": 2}));
        lab.pass(Duration::from_millis(200));
        let placed = |lab: &mut Lab| -> Vec<Value> { (0..8).map(|n| lab.json(json!({"prefix": "pg map", "pgid": format!("2.{n}")}))).collect() };
        let was = placed(&mut lab);
        lab.ok(json!({"prefix": "osd in", "ids": ["2"]}));
        lab.pass(Duration::from_millis(200));
        let (is, dump) = (placed(&mut lab), lab.json(json!({"prefix": "osd dump"})));
        assert_eq!(dump["epoch"].as_u64().unwrap(), before["epoch"].as_u64().unwrap() + 2);
        let moved = |n: &usize| was[*n]["up"] != is[*n]["up"];
        assert!((0..8).any(|n| moved(&n)), "{is:?}");
        for n in (0..8).filter(moved) {
            let acts = if primes { &was[n]["acting"] } else { &is[n]["up"] };
            assert_eq!(is[n]["acting"], *acts);
            let primary = is[n]["acting"][0].as_u64().unwrap() as usize;
            assert_eq!(dump["osds"][primary]["up_thru"] == dump["epoch"], primes, "nothing more is waited for");
        }
    }
}

#[test]
fn a_primary_is_mapped_only_where_all_clients_understand_it() {
    let mut lab = with_pool();
    let (up, other) = placed(&mut lab, "1.3");
    let primary = |id: i64| json!({"prefix": "osd pg-upmap-primary", "pgid": "1.3", "id": id});
    let text = "min_compat_client luminous < reef, which is required for pg-upmap-primary. Try 'ceph osd set-require-min-compat-client reef' \
                before using the new interface";
    assert_eq!(refused(&mut lab, primary(up[1])), (-1, text.into()));
    lab.ok(json!({"prefix": "osd set-require-min-compat-client", "version": "reef", "yes_i_really_mean_it": true}));
    assert_eq!(refused(&mut lab, primary(up[0])), (-22, format!("osd.{} is already primary for pg 1.3", up[0])));
    assert_eq!(refused(&mut lab, primary(other)), (-22, format!("osd.{other} is not in acting set for pg 1.3")));
    assert_eq!(refused(&mut lab, primary(up[1])), (0, format!("set 1.3 pg_upmap_primary mapping to osd.{}", up[1])));
    assert_eq!(placed(&mut lab, "1.3").0, [up[1], up[0]]);
    let text = "osdmap current utilizes features that require reef; cannot set require_min_compat_client below that to luminous";
    assert_eq!(refused(&mut lab, json!({"prefix": "osd set-require-min-compat-client", "version": "luminous"})), (-1, text.into()));
    assert_eq!(refused(&mut lab, json!({"prefix": "osd rm-pg-upmap-primary", "pgid": "1.3"})).0, 0);
    assert_eq!(placed(&mut lab, "1.3").0, up);
}

#[test]
fn classes_are_made_and_removed_but_not_under_a_rule() {
    let mut lab = with_pool();
    let class = |what: &str, name: &str| json!({"prefix": format!("osd crush class {what}"), "class": name});
    assert_eq!(refused(&mut lab, class("create", "tape")).0, 0);
    assert_eq!(refused(&mut lab, class("create", "tape")), (0, "class 'tape' already exists".into()));
    assert!(lab.json(json!({"prefix": "osd crush class ls"})).as_array().unwrap().contains(&json!("tape")));
    let used = lab.json(json!({"prefix": "osd crush get-device-class", "ids": ["0"]}))[0]["device_class"].as_str().unwrap().to_owned();
    lab.ok(json!({"prefix": "osd crush rule create-replicated", "name": "only", "root": "default", "type": "osd", "class": used}));
    assert_eq!(refused(&mut lab, class("rm", &used)), (-16, format!("class '{used}' still referenced by crush_rule(s): 'only'")));
    lab.ok(json!({"prefix": "osd crush rule rm", "name": "only"}));
    assert_eq!(refused(&mut lab, class("rm", &used)).0, 0);
    assert_eq!(lab.json(json!({"prefix": "osd crush get-device-class", "ids": ["0"]}))[0]["device_class"], "");
}

#[test]
fn a_bulk_pool_begins_with_its_osds_budget() {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd pool create", "pool": "large", "bulk": true, "autoscale_mode": "on"}));
    lab.ok(json!({"prefix": "osd pool create", "pool": "small"}));
    lab.pass(Duration::from_millis(100));
    let get = |lab: &mut Lab, pool: &str, var: &str| lab.json(json!({"prefix": "osd pool get", "pool": pool, "var": var}))[var].clone();
    assert_eq!((get(&mut lab, "large", "pg_num"), get(&mut lab, "large", "bulk")), (json!(64), json!(true)), "300 PGs in three copies");
    assert_eq!((get(&mut lab, "small", "pg_num"), get(&mut lab, "small", "bulk")), (json!(32), json!(false)));
    let set = |var: &str, val: &str| json!({"prefix": "osd pool set", "pool": "small", "var": var, "val": val});
    assert_eq!(refused(&mut lab, set("pg_num_min", "64")), (-22, "specified pg_num_min 64 > pg_num 32".into()));
    assert_eq!(refused(&mut lab, set("pg_num_max", "16")), (-22, "specified pg_num_max 16 < pg_num 32".into()));
    assert_eq!(refused(&mut lab, set("bulk", "true")).0, 0);
    assert_eq!(get(&mut lab, "small", "bulk"), json!(true));
}

#[test]
fn a_crush_map_with_which_a_pool_finds_nothing_is_not_taken() {
    let mut lab = with_pool();
    let mut map = crush::CrushMap::build_default(&[(0, "h", crush::ONE), (1, "h", crush::ONE), (2, "h", crush::ONE)], "osd").unwrap();
    let set = |lab: &mut Lab, map: &crush::CrushMap| {
        let raw = denc::to_bytes(map, types::features::SUPPORTED);
        let answer = lab.raw_command(ADMIN, r#"{"prefix": "osd setcrushmap"}"#, &raw);
        (answer.result, answer.status)
    };
    assert_eq!(set(&mut lab, &map).0, 0);
    map = crush::CrushMap::build_default(&[], "osd").unwrap();
    let (result, status) = set(&mut lab, &map);
    assert!(result == -22 && status.starts_with("crush smoke test failed with -22: rule 0 finds 0 OSDs at most for pool 1"), "{status}");
    map.rules[0] = None;
    assert_eq!(set(&mut lab, &map), (-22, "pool 1 references crush_rule 0 but it is not present".into()));
}

/// A cluster of one host to which two come, with a pool of three copies, and a manager that says how it is.
fn on_three_hosts(state: PgState, osd_bytes: u64) -> Lab {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8}));
    let mgr = manager(&mut lab);
    lab.ok(json!({"prefix": "config set", "who": "mon", "name": "mon_crush_raise_rule_after", "value": "10"}));
    for (osd, host) in [(3, "h2"), (4, "h3")] {
        lab.osds.0 = host;
        lab.add_osd(osd);
    }
    let mut pool = PoolDigest { raw_used_rate: 3.0, ..PoolDigest::default() };
    pool.stat.stats.sum.num_bytes = 1 << 30;
    let stat = OsdStat { statfs: StoreStatfs { total: osd_bytes, available: osd_bytes, ..Default::default() }, ..Default::default() };
    let said = MgrDigest { pgs_by_state: [(state.0, 8)].into(), pools: [(PoolId(1), pool)].into(), osds: (0..5).map(|o| (OsdId(o), stat.clone())).collect(), ..digest(&lab) };
    lab.say(mgr, said);
    lab
}

fn first_rule(lab: &mut Lab) -> Value {
    lab.json(json!({"prefix": "osd crush rule dump", "name": "replicated_rule"}))["steps"][1].clone()
}

const CLEAN: PgState = PgState(PgState::ACTIVE.0 | PgState::CLEAN.0);

#[test]
fn the_first_rule_is_raised_to_hosts_when_it_has_been_said() {
    let mut lab = on_three_hosts(CLEAN, 10 << 30);
    lab.pass(Duration::from_secs(2));
    let said = lab.ok(json!({"prefix": "log last", "num": 20})).out;
    assert!(said.contains("will spread copies over hosts instead of OSDs in 10 seconds, for there are enough of them (h1, h2, h3)"), "{said}");
    lab.pass(Duration::from_secs(7));
    assert_eq!(first_rule(&mut lab), json!({"op": "choose_firstn", "num": 0, "type": "osd"}));
    lab.pass(Duration::from_secs(3));
    assert_eq!(first_rule(&mut lab), json!({"op": "chooseleaf_firstn", "num": 0, "type": "host"}));
    for seed in 0..8 {
        let up = lab.json(json!({"prefix": "pg map", "pgid": format!("1.{seed}")}))["up"].clone();
        assert!(up.as_array().unwrap().iter().filter(|osd| osd.as_i64().unwrap() < 3).count() == 1, "1.{seed} {up}");
    }
    let said = lab.ok(json!({"prefix": "log last", "num": 20})).out;
    assert!(said.contains("spreads copies over hosts from now on") && said.matches("copies of placement groups").count() == 2, "{said}");
}

#[test]
fn rules_of_chunks_are_raised_with_it_where_nobody_said_what_chunks_may_share() {
    let mut lab = on_three_hosts(CLEAN, 10 << 30);
    let create = |lab: &mut Lab, pool: &str, profile: &[&str]| {
        lab.ok(json!({"prefix": "osd erasure-code-profile set", "name": pool, "profile": profile}));
        lab.ok(json!({"prefix": "osd pool create", "pool": pool, "pg_num": 8, "pool_type": "erasure", "erasure_code_profile": pool}));
    };
    create(&mut lab, "silent", &["k=2", "m=1"]);
    create(&mut lab, "said", &["k=2", "m=1", "crush-failure-domain=osd"]);
    create(&mut lab, "wide", &["k=2", "m=2"]);
    // Said later, though it changes nothing yet.
    create(&mut lab, "pinned", &["k=2", "m=1"]);
    lab.ok(json!({"prefix": "osd erasure-code-profile set", "name": "pinned", "profile": ["k=2", "m=1", "crush-failure-domain=osd"]}));
    let profile = |lab: &mut Lab, name: &str| lab.ok(json!({"prefix": "osd erasure-code-profile get", "name": name})).out;
    assert!(profile(&mut lab, "silent").contains("crush-failure-domain=osd\n"));
    lab.pass(Duration::from_secs(25));
    let chosen = |lab: &mut Lab, rule: &str| {
        let steps = lab.json(json!({"prefix": "osd crush rule dump", "name": rule}))["steps"].clone();
        steps.as_array().unwrap().iter().find_map(|step| Some((step["op"].as_str()?.to_owned(), step["type"].as_str()?.to_owned()))).unwrap()
    };
    let (osd, host) = (("choose_indep".to_owned(), "osd".to_owned()), ("chooseleaf_indep".to_owned(), "host".to_owned()));
    assert_eq!([chosen(&mut lab, "silent"), chosen(&mut lab, "said"), chosen(&mut lab, "wide")], [host, osd.clone(), osd.clone()], "three hosts");
    assert_eq!(chosen(&mut lab, "pinned"), osd);
    assert!(profile(&mut lab, "silent").contains("crush-failure-domain=host\n") && profile(&mut lab, "said").contains("crush-failure-domain=osd\n"));
    let said = lab.ok(json!({"prefix": "log last", "num": 20})).out;
    assert!(said.contains("the CRUSH rule silent spreads copies over hosts from now on") && !said.contains("rule wide"), "{said}");
}

#[test]
fn the_first_rule_stays_where_something_speaks_against_hosts() {
    type Against = fn(&mut Lab);
    let against: [(&str, PgState, u64, Against); 6] = [
        ("pinned", CLEAN, 10 << 30, |lab| drop(lab.ok(json!({"prefix": "config set", "who": "mon", "name": "mon_crush_raise_rule", "value": "false"})))),
        ("degraded", PgState(CLEAN.0 | PgState::DEGRADED.0), 10 << 30, |_| ()),
        ("no room on the hosts that came", CLEAN, 1 << 30, |_| ()),
        ("a host that left", CLEAN, 10 << 30, |lab| drop(lab.ok(json!({"prefix": "osd out", "ids": ["4"]})))),
        ("a pool of four copies", CLEAN, 10 << 30, |lab| drop(lab.ok(json!({"prefix": "osd pool set", "pool": "p", "var": "size", "val": "4"})))),
        ("an operator's rule", CLEAN, 10 << 30, |lab| {
            lab.ok(json!({"prefix": "osd crush rule rename", "srcname": "replicated_rule", "dstname": "mine"}));
            lab.ok(json!({"prefix": "osd crush rule create-replicated", "name": "replicated_rule", "root": "default", "type": "osd", "class": "ssd"}));
        }),
    ];
    for (why, state, bytes, act) in against {
        let mut lab = on_three_hosts(state, bytes);
        act(&mut lab);
        lab.pass(Duration::from_secs(25));
        assert_eq!(first_rule(&mut lab)["op"], "choose_firstn", "{why}");
    }
}
