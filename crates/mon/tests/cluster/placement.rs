//! Exceptions from CRUSH's choice, device classes, new CRUSH maps, and pools that are to be large.

use crate::lab::{ADMIN, Lab};
use crate::three;
use serde_json::{Value, json};
use std::time::Duration;

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
