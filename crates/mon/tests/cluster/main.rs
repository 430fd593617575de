//! A monitor from its first start to a cluster of three OSDs, seen through commands and messages.

mod erasure;
mod failures;
mod lab;
mod members;
mod merges;
mod placement;
mod recover;
mod stock_answers;
mod three;

use lab::{ADMIN, Lab, addrs};
use mon::SessionId;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use types::msg::Message;
use types::msg::internal::{FailureKind, MgrBeacon, MgrDigest, OsdAlive, OsdBeacon, OsdCapacity, OsdFailure, OsdMarkMeDown, PgTempRequest};
use types::pg::{OsdStat, PgState, PoolDigest};
use types::{Epoch, OsdId, PgId, PoolId};

const OPTIONS: &[(&str, &str)] = &[("mon_allow_pool_delete", "true"), ("osd_pool_default_size", "3"), ("osd_pool_default_pg_autoscale_mode", "off")];

fn three() -> Lab {
    let mut lab = Lab::new(OPTIONS);
    for i in 0..3 {
        lab.add_osd(i);
    }
    lab
}

#[test]
fn a_new_cluster_answers_before_any_time_has_passed() {
    let mut lab = Lab::new(OPTIONS);
    assert!(lab.mon.is_serving());
    assert_eq!(lab.ok(json!({"prefix": "fsid"})).out, "00000000-0000-0000-0000-000000001234\n");
    let health = lab.ok(json!({"prefix": "health"})).out;
    assert_eq!(health, "HEALTH_WARN OSD count 0 < osd_pool_default_size 3\n");
}

#[test]
fn three_osds_boot_into_a_healthy_cluster() {
    let mut lab = three();
    assert!(lab.ok(json!({"prefix": "osd stat"})).out.starts_with("3 osds: 3 up (since"));
    assert_eq!(lab.ok(json!({"prefix": "health"})).out, "HEALTH_OK\n");
    let tree = lab.ok(json!({"prefix": "osd tree"})).out;
    let expected = "\
ID  CLASS  WEIGHT   TYPE NAME      STATUS  REWEIGHT  PRI-AFF
-1         0.02939  root default                            
-2         0.02939      host h1                             
 0    ssd  0.00980          osd.0      up   1.00000  1.00000
 1    ssd  0.00980          osd.1      up   1.00000  1.00000
 2    ssd  0.00980          osd.2      up   1.00000  1.00000
";
    assert_eq!(tree, expected);
}

#[test]
fn a_pool_has_its_epoch_when_the_command_returns() {
    let mut lab = three();
    let before = lab.json(json!({"prefix": "osd stat"}))["epoch"].as_u64().unwrap();
    assert_eq!(lab.ok(json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8})).status, "pool 'p' created");
    assert_eq!(lab.ok(json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8})).status, "pool 'p' already exists");
    assert_eq!(lab.json(json!({"prefix": "osd stat"}))["epoch"].as_u64().unwrap(), before + 1);
    let text = lab.ok(json!({"prefix": "osd map", "pool": "p", "object": "foo"})).out;
    assert!(text.contains("object 'foo' -> pg 1.7fc1f406 (1.6) -> up (["), "{text}");
}

#[test]
fn subscribers_hear_of_every_epoch_in_order() {
    let mut lab = three();
    lab.subscribe(ADMIN, "osdmap", 0, 0);
    let Some((_, _, Message::MOsdMap(first))) = lab.mail.pop_back() else { panic!("no map") };
    assert_eq!(first.full.len(), 1);
    let mut newest = first.newest;
    for name in ["a", "b", "c"] {
        lab.ok(json!({"prefix": "osd pool create", "pool": name}));
        let map = lab.mail.iter().find_map(|(_, _, m)| if let Message::MOsdMap(m) = m { Some(m.clone()) } else { None }).expect("an update");
        assert_eq!(map.incremental.keys().copied().collect::<Vec<_>>(), [newest.next()]);
        newest = newest.next();
    }
}

#[test]
fn what_was_answered_survives_a_crash() {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p"}));
    lab.ok(json!({"prefix": "config set", "who": "osd", "name": "osd_max_backfills", "value": "2"}));
    let key = lab.ok(json!({"prefix": "auth get-or-create-key", "entity": "client.x", "caps": ["mon", "allow r"]})).out;
    let dump = lab.ok(json!({"prefix": "osd dump"})).out;
    let mut lab = lab.restart(OPTIONS);
    assert_eq!(lab.ok(json!({"prefix": "osd dump"})).out, dump);
    assert_eq!(lab.ok(json!({"prefix": "auth get-key", "entity": "client.x"})).out, key);
    assert_eq!(lab.ok(json!({"prefix": "config get", "who": "osd.0", "key": "osd_max_backfills"})).out, "2\n");
}

#[test]
fn the_same_inputs_give_the_same_effects() {
    let run = || {
        let mut lab = three();
        lab.ok(json!({"prefix": "osd pool create", "pool": "p"}));
        lab.pass(Duration::from_secs(5));
        lab.trace
    };
    assert_eq!(run(), run());
}

/// Epochs that monitors still have, when `beacon` was heard of three OSDs in epoch 60 of about 120.
fn epochs_kept(beacon: impl Fn(i32, Epoch, &mut BTreeMap<PgId, Epoch>) -> bool) -> u32 {
    let options = [OPTIONS, &[("mon_min_osdmap_epochs", "20")]].concat();
    let mut lab = Lab::new(&options);
    let sessions: Vec<SessionId> = (0..3).map(|i| lab.add_osd(i)).collect();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p", "pg_num": 4}));
    let epochs = |lab: &mut Lab, until: u64| {
        while lab.json(json!({"prefix": "osd stat"}))["epoch"].as_u64().unwrap() < until {
            lab.ok(json!({"prefix": "osd set", "key": "noout"}));
            lab.ok(json!({"prefix": "osd unset", "key": "noout"}));
        }
    };
    epochs(&mut lab, 60);
    for (osd, session) in (0..).zip(sessions) {
        let epoch = Epoch(60);
        let mut last_epoch_clean: BTreeMap<PgId, Epoch> = (0..4).filter(|seed| seed % 3 == osd as u32).map(|seed| (PgId { pool: PoolId(1), seed }, epoch)).collect();
        if beacon(osd, epoch, &mut last_epoch_clean) {
            lab.say(session, OsdBeacon { osd: OsdId(osd), epoch, last_epoch_clean });
        }
    }
    epochs(&mut lab, 120);
    lab.subscribe(ADMIN, "osdmap", 0, 0);
    let map = lab.mail.iter().find_map(|(_, _, m)| if let Message::MOsdMap(m) = m { Some(m.clone()) } else { None }).expect("a map");
    map.newest.0 - map.oldest.0 + 1
}

#[test]
fn what_an_osd_has_learned_of_its_disk_is_an_option_unless_an_operator_has_said_something() {
    let mut lab = Lab::new(OPTIONS);
    let sessions: Vec<SessionId> = (0..2).map(|i| lab.add_osd(i)).collect();
    let option = "osd_mclock_max_capacity_iops_hdd";
    let value = |lab: &mut Lab, osd: &str| lab.json(json!({"prefix": "config get", "who": osd, "key": option}))[option].clone();
    let says = |lab: &mut Lab, osd: i32, iops: u64| {
        let msg = OsdCapacity { osd: OsdId(osd), rotational: true, iops_thousandths: 1000 * iops };
        lab.say(sessions[osd as usize], msg);
    };
    says(&mut lab, 0, 75);
    assert_eq!(value(&mut lab, "osd.0"), json!("75.000000"));
    says(&mut lab, 0, 110);
    assert_eq!(value(&mut lab, "osd.0"), json!("110.000000"));
    // Nobody speaks for another.
    lab.say(sessions[1], OsdCapacity { osd: OsdId(0), rotational: true, iops_thousandths: 1 });
    assert_eq!(value(&mut lab, "osd.0"), json!("110.000000"));
    lab.ok(json!({"prefix": "config set", "who": "osd.0", "name": option, "value": "200"}));
    says(&mut lab, 0, 75);
    assert_eq!(value(&mut lab, "osd.0"), json!("200.000000"));
    // What is said of all OSDs is said of each.
    lab.ok(json!({"prefix": "config set", "who": "osd", "name": option, "value": "300"}));
    says(&mut lab, 1, 75);
    assert_eq!(value(&mut lab, "osd.1"), json!("300.000000"));
    lab.ok(json!({"prefix": "config rm", "who": "osd", "name": option}));
    lab.ok(json!({"prefix": "config rm", "who": "osd.0", "name": option}));
    (0..2).for_each(|osd| says(&mut lab, osd, 80));
    assert_eq!((value(&mut lab, "osd.0"), value(&mut lab, "osd.1")), (json!("80.000000"), json!("80.000000")));
}

#[test]
fn maps_are_dropped_as_soon_as_nobody_needs_them() {
    assert!((60..75).contains(&epochs_kept(|_, _, _| true)));
    let unclean = |_: i32, epoch: Epoch, pgs: &mut BTreeMap<PgId, Epoch>| {
        pgs.entry(PgId { pool: PoolId(1), seed: 2 }).and_modify(|clean| *clean = Epoch(epoch.0 - 30));
        true
    };
    assert!((90..105).contains(&epochs_kept(unclean)), "a placement group was last clean long ago");
    assert!(epochs_kept(|osd, _, _| osd != 1) >= 120, "nobody knows what an OSD has");
    let silent = |_: i32, _: Epoch, pgs: &mut BTreeMap<PgId, Epoch>| {
        pgs.remove(&PgId { pool: PoolId(1), seed: 3 });
        true
    };
    assert!(epochs_kept(silent) >= 120, "nobody knows of a placement group");
}

#[test]
fn up_thru_is_noted_of_who_is_up_and_not_beyond_the_map() {
    let mut lab = Lab::new(OPTIONS);
    let sessions: Vec<SessionId> = (0..3).map(|i| lab.add_osd(i)).collect();
    let up_thru = |lab: &mut Lab, osd: usize| {
        lab.pass(Duration::from_secs(2));
        lab.json(json!({"prefix": "osd dump"}))["osds"][osd]["up_thru"].as_u64().unwrap()
    };
    let epoch = |lab: &mut Lab| Epoch(lab.json(json!({"prefix": "osd stat"}))["epoch"].as_u64().unwrap() as u32);
    let alive = |osd: i32, epoch: Epoch, want: Epoch| OsdAlive { osd: OsdId(osd), epoch, want };
    let now = epoch(&mut lab);
    lab.say(sessions[0], alive(0, now, now));
    let noted = up_thru(&mut lab, 0);
    assert!(noted >= u64::from(now.0) && noted <= u64::from(epoch(&mut lab).0), "{noted}");
    // An older wish changes nothing, nor does one of who is down or of somebody else.
    let before = epoch(&mut lab);
    lab.say(sessions[0], alive(0, now, Epoch(1)));
    lab.say(sessions[0], alive(1, now, now));
    assert_eq!((up_thru(&mut lab, 0), up_thru(&mut lab, 1)), (noted, 0));
    assert_eq!(epoch(&mut lab), before);
    lab.ok(json!({"prefix": "osd down", "ids": ["2"]}));
    let now = epoch(&mut lab);
    lab.say(sessions[2], alive(2, now, now));
    assert_eq!(up_thru(&mut lab, 2), 0);
    // What nobody has made yet cannot have been lived in.
    lab.say(sessions[1], alive(1, now, Epoch(now.0 + 1000)));
    assert!(up_thru(&mut lab, 1) <= u64::from(epoch(&mut lab).0));
}

#[test]
fn an_acting_set_that_is_asked_for_is_granted_and_taken_back() {
    let mut lab = Lab::new(OPTIONS);
    let sessions: Vec<SessionId> = (0..3).map(|i| lab.add_osd(i)).collect();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p", "pg_num": 4}));
    let mut ask = |seed: u32, osds: &[i32]| {
        let epoch = Epoch(lab.json(json!({"prefix": "osd stat"}))["epoch"].as_u64().unwrap() as u32);
        let pg_temp = [(PgId { pool: PoolId(1), seed }, osds.iter().map(|osd| OsdId(*osd)).collect())].into();
        lab.say(sessions[0], PgTempRequest { osd: OsdId(0), epoch, pg_temp, forced: false });
        lab.pass(Duration::from_secs(2));
        lab.json(json!({"prefix": "osd dump"}))["pg_temp"].clone()
    };
    assert_eq!(ask(2, &[1, 0]), json!([{"pgid": "1.2", "osds": [1, 0]}]));
    assert_eq!(ask(3, &[1, 7]), json!([{"pgid": "1.2", "osds": [1, 0]}]), "there is no osd.7");
    assert_eq!(ask(4, &[1, 0]), json!([{"pgid": "1.2", "osds": [1, 0]}]), "there is no such PG");
    assert_eq!(ask(2, &[]), json!([]));
    // The PG of whoever acts from the last epoch on waits for no other one.
    let primary = lab.json(json!({"prefix": "pg map", "pgid": "1.2"}))["acting"][0].as_u64().unwrap();
    let dump = lab.json(json!({"prefix": "osd dump"}));
    assert_eq!(dump["osds"][primary as usize]["up_thru"], dump["epoch"]);
}

#[test]
fn what_a_pg_waits_for_is_published_soon_after_the_last_epoch() {
    let mut lab = Lab::new(OPTIONS);
    let sessions: Vec<SessionId> = (0..3).map(|i| lab.add_osd(i)).collect();
    lab.pass(Duration::from_secs(2));
    let before = lab.json(json!({"prefix": "osd stat"}))["epoch"].as_u64().unwrap() as u32;
    lab.subscribe(sessions[0], "osdmap", 1, 0);
    // Not by a command: each has what waits published first.
    let newest = |lab: &Lab| lab.mail.iter().filter_map(|(_, _, m)| if let Message::MOsdMap(m) = m { Some(m.newest.0) } else { None }).max();
    lab.ok(json!({"prefix": "osd down", "ids": ["2"]}));
    assert_eq!(newest(&lab), Some(before + 1));
    let now = Epoch(before + 1);
    lab.say(sessions[0], OsdAlive { osd: OsdId(0), epoch: now, want: now });
    assert_eq!(newest(&lab), Some(before + 1));
    lab.pass(Duration::from_millis(25));
    assert_eq!(newest(&lab), Some(before + 2));
    // The next one keeps its distance.
    lab.say(sessions[1], OsdAlive { osd: OsdId(1), epoch: now, want: now });
    lab.pass(Duration::from_millis(25));
    assert_eq!(newest(&lab), Some(before + 2));
    lab.pass(Duration::from_millis(25));
    assert_eq!(newest(&lab), Some(before + 3));
}

#[test]
fn an_osd_that_two_others_miss_goes_down_and_later_out() {
    let options = [OPTIONS, &[("mon_osd_down_out_interval", "5"), ("mon_osd_min_in_ratio", "0.1"), ("mon_osd_down_out_subtree_limit", "rack")]].concat();
    let mut lab = Lab::new(&options);
    let sessions: Vec<SessionId> = (0..3).map(|i| lab.add_osd(i)).collect();
    let report = |by: i32| OsdFailure {
        reporter: OsdId(by),
        target: OsdId(2),
        target_addrs: addrs(6808, 1),
        failed_for_ms: 20_000,
        epoch: Epoch(5),
        kind: FailureKind::Silent,
    };
    lab.say(sessions[0], report(0));
    lab.pass(Duration::from_millis(100));
    assert_eq!(lab.json(json!({"prefix": "osd stat"}))["num_up_osds"], 3, "one reporter is not enough");
    lab.say(sessions[1], report(1));
    lab.pass(Duration::from_millis(100));
    assert_eq!(lab.json(json!({"prefix": "osd stat"}))["num_up_osds"], 2);
    assert!(lab.ok(json!({"prefix": "health", "detail": "detail"})).out.contains("[WRN] OSD_DOWN: 1 osds down\n    osd.2 (root=default,host=h1) is down\n"));
    lab.pass(Duration::from_secs(8));
    assert_eq!(lab.json(json!({"prefix": "osd stat"}))["num_in_osds"], 2);
    lab.boot_osd(2, 2);
    let stat = lab.json(json!({"prefix": "osd stat"}));
    assert_eq!((&stat["num_up_osds"], &stat["num_in_osds"]), (&json!(3), &json!(3)), "it came back in");
}

#[test]
fn an_osd_that_leaves_in_order_is_down_before_it_is_answered() {
    let mut lab = three();
    lab.mail.clear();
    lab.say(SessionId(101), OsdMarkMeDown { osd: OsdId(1), addrs: addrs(6804, 1), epoch: Epoch(3), ack_wanted: true });
    let acked = lab.mail.iter().any(|(s, _, m)| *s == SessionId(101) && matches!(m, Message::OsdMarkMeDownAck(_)));
    assert!(acked);
    assert_eq!(lab.json(json!({"prefix": "osd stat"}))["num_up_osds"], 2);
}

#[test]
fn capabilities_are_enforced() {
    let mut lab = three();
    let reader = SessionId(50);
    lab.join(reader, "client.reader", "allow r");
    assert_eq!(lab.raw_command(reader, r#"{"prefix":"osd tree"}"#, b"").result, 0);
    let denied = lab.raw_command(reader, r#"{"prefix":"osd pool create","pool":"x"}"#, b"");
    assert_eq!((denied.result, denied.status.as_str()), (-13, "access denied"));
    assert_eq!(lab.raw_command(reader, r#"{"prefix":"auth ls"}"#, b"").result, -13);
    let nobody = SessionId(51);
    lab.join(nobody, "client.nobody", "");
    assert_eq!(lab.raw_command(nobody, r#"{"prefix":"status"}"#, b"").result, -13);
}

#[test]
fn nonsense_is_answered_and_changes_nothing() {
    let mut lab = three();
    assert_eq!(lab.raw_command(ADMIN, "{\"prefix\": \"osd pool set\", \"var\": \"a\": \"5\"}", b"").result, -22);
    assert_eq!(lab.cmd(json!({"prefix": "nosuch command"})).status, "command not known");
    assert_eq!(lab.cmd(json!({"prefix": "osd find", "id": 77})).status, "osd.77 does not exist");
    assert_eq!(lab.cmd(json!({"prefix": "config set", "who": "osd", "name": "nosuchoption", "value": "1"})).result, -22);
}

#[test]
fn a_second_boot_of_an_osd_is_seen_as_down_and_up() {
    let mut lab = three();
    let epoch = lab.json(json!({"prefix": "osd stat"}))["epoch"].as_u64().unwrap();
    lab.boot_osd(0, 2);
    assert_eq!(lab.json(json!({"prefix": "osd stat"}))["epoch"].as_u64().unwrap(), epoch + 2);
}

#[test]
fn an_osd_nobody_made_does_not_boot() {
    let mut lab = three();
    lab.boot_osd(9, 1);
    assert_eq!(lab.json(json!({"prefix": "osd stat"}))["num_osds"], 3);
}

#[test]
fn tell_speaks_to_the_monitor_itself() {
    let mut lab = three();
    assert!(lab.tell(json!({"prefix": "version"})).out.contains("\"release\": \"pacific\""));
    assert_eq!(lab.tell(json!({"prefix": "config set", "var": "mon_max_pg_per_osd", "val": ["9"]})).result, 0);
    assert!(lab.tell(json!({"prefix": "config get", "var": "mon_max_pg_per_osd"})).out.contains("\"9\""));
    assert_eq!(lab.tell(json!({"prefix": "injectargs", "injected_args": ["--nosuch=1"]})).result, -22);
}

#[test]
fn the_admin_socket_answers_as_tell_does() {
    let mut lab = three();
    let reply = lab.mon.handle_admin(lab.now, b"{\"prefix\": \"mon_status\"}");
    assert!(String::from_utf8_lossy(&reply).contains("\"state\": \"leader\""));
    let error = lab.mon.handle_admin(lab.now, b"{\"prefix\": \"nosuch\"}");
    assert_eq!(&error[..], b"ERROR: (22) Invalid argument\nunknown command prefix nosuch\n");
    assert!(lab.mon.handle_admin(lab.now, b"garbage").ends_with(b"invalid json\n"));
}

#[test]
fn pool_operations_name_the_epoch_their_client_waits_for() {
    use types::msg::pool::{MPoolOp, pool_op};
    let mut lab = three();
    let op = |op, pool, name: &str, snap| MPoolOp { paxos: Default::default(), fsid: uuid::Uuid::from_u128(0x1234), pool, op, snap: types::Snap(snap), name: name.into(), crush_rule: -1 };
    let ask = |lab: &mut Lab, op| {
        lab.mail.clear();
        lab.say(ADMIN, op);
        lab.mail.iter().find_map(|(_, _, m)| if let Message::MPoolOpReply(r) = m { Some(r.clone()) } else { None }).expect("a reply")
    };
    let made = ask(&mut lab, op(pool_op::CREATE, 0, "p", 0));
    assert_eq!((made.result, u64::from(made.epoch.0)), (0, lab.json(json!({"prefix": "osd stat"}))["epoch"].as_u64().unwrap()));
    assert_eq!(ask(&mut lab, op(pool_op::CREATE, 0, "p", 0)).result, -17);
    let first = ask(&mut lab, op(pool_op::CREATE_UNMANAGED_SNAP, 1, "", 0));
    assert_eq!(first.data.as_deref(), Some(&1u64.to_le_bytes()[..]));
    let second = ask(&mut lab, op(pool_op::CREATE_UNMANAGED_SNAP, 1, "", 0));
    assert_eq!(second.data.as_deref(), Some(&2u64.to_le_bytes()[..]));
    assert_eq!(ask(&mut lab, op(pool_op::DELETE_UNMANAGED_SNAP, 1, "", 1)).result, 0);
    assert_eq!(ask(&mut lab, op(pool_op::CREATE_SNAP, 1, "s", 0)).result, -22, "the two kinds do not mix");
    assert_eq!(ask(&mut lab, op(pool_op::DELETE, 1, "", 0)).result, 0);
    assert_eq!(lab.ok(json!({"prefix": "osd pool ls"})).out, "");
}

#[test]
fn options_reach_those_they_are_for() {
    let mut lab = three();
    lab.mail.clear();
    lab.subscribe(SessionId(100), "config", 0, 0);
    assert!(matches!(lab.mail.back(), Some((_, _, Message::MConfig(c))) if c.config.is_empty()), "an empty one is sent too");
    lab.ok(json!({"prefix": "config set", "who": "osd/class:ssd", "name": "osd_max_backfills", "value": "4"}));
    let pushed = lab.mail.iter().find_map(|(s, _, m)| if let (SessionId(100), Message::MConfig(c)) = (s, m) { Some(c.config.clone()) } else { None });
    assert_eq!(pushed.unwrap()["osd_max_backfills"], "4");
    lab.ok(json!({"prefix": "config set", "who": "mon", "name": "mon_max_pg_per_osd", "value": "300"}));
    assert!(!lab.mail.iter().any(|(s, _, _)| *s == SessionId(100)), "what does not concern it is not sent");
}

#[test]
fn watchers_of_the_log_hear_what_happens_from_now_on() {
    let mut lab = three();
    lab.subscribe(ADMIN, "log-info", 0, 0);
    assert!(lab.mail.iter().all(|(_, _, m)| !matches!(m, Message::MLog(_))));
    lab.ok(json!({"prefix": "log", "logtext": ["hello", "world"]}));
    let heard = lab.mail.iter().any(|(_, _, m)| matches!(m, Message::MLog(l) if l.entries.iter().any(|e| e.msg == "hello world")));
    assert!(heard);
}

#[test]
fn mutes_silence_a_check_until_it_gets_worse() {
    let mut lab = Lab::new(OPTIONS);
    lab.ok(json!({"prefix": "health mute", "code": "TOO_FEW_OSDS"}));
    assert_eq!(lab.ok(json!({"prefix": "health"})).out, "HEALTH_OK (muted: TOO_FEW_OSDS)\n");
    lab.ok(json!({"prefix": "health unmute", "code": "TOO_FEW_OSDS"}));
    assert_eq!(lab.cmd(json!({"prefix": "health mute", "code": "NOPE"})).result, -2);
}

#[test]
fn osds_are_purged_with_their_keys_and_places() {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd down", "ids": ["2"]}));
    assert_eq!(lab.cmd(json!({"prefix": "osd purge-actual", "id": 2})).result, -1);
    let purged = lab.ok(json!({"prefix": "osd purge", "id": 2, "yes_i_really_mean_it": true}));
    assert_eq!(purged.status, "purged osd.2");
    assert_eq!(lab.ok(json!({"prefix": "osd ls"})).out, "0\n1\n");
    assert!(!lab.ok(json!({"prefix": "osd tree"})).out.contains("osd.2"));
}

#[test]
fn an_osd_that_is_needed_is_removed_only_by_force() {
    let mut lab = three();
    for id in [1, 2] {
        lab.ok(json!({"prefix": "osd down", "ids": [id.to_string()]}));
    }
    let refused = |lab: &mut Lab, id: i32, result: i32, why: &str| {
        for prefix in ["osd destroy", "osd purge"] {
            let answer = lab.cmd(json!({"prefix": prefix, "id": id}));
            assert_eq!(answer.result, result, "{prefix} {id}: {}", answer.status);
            assert!(answer.status.contains(why) && answer.status.contains("--force"), "{}", answer.status);
        }
    };
    refused(&mut lab, 2, -11, "no manager");
    let mgr = manager(&mut lab);
    let (clean, degraded) = (PgState::ACTIVE | PgState::CLEAN, PgState::ACTIVE | PgState::DEGRADED);
    let say = |lab: &mut Lab, states: &[(PgState, u32)], by_osd: &[(i32, u32)]| {
        let pgs_by_state = states.iter().map(|(s, n)| (s.0, *n)).collect();
        let pgs_by_osd = Some(by_osd.iter().map(|(o, n)| (OsdId(*o), *n)).collect());
        let osds = [(OsdId(0), OsdStat { num_pgs: 3, ..OsdStat::default() })].into();
        let digest = digest(lab);
        lab.say(mgr, MgrDigest { pgs_by_state, pgs_by_osd, osds, ..digest });
    };
    say(&mut lab, &[(clean, 7), (PgState::UNKNOWN, 1)], &[]);
    refused(&mut lab, 2, -11, "1 pgs");
    say(&mut lab, &[(clean, 8)], &[(2, 5)]);
    refused(&mut lab, 2, -16, "5 pgs");
    say(&mut lab, &[(clean, 7), (degraded, 1)], &[(1, 5)]);
    refused(&mut lab, 2, -11, "reports nothing");
    refused(&mut lab, 0, -16, "still holds");
    assert_eq!(lab.ok(json!({"prefix": "osd purge", "id": 2, "force": true})).status, "purged osd.2");
    say(&mut lab, &[(clean, 8)], &[(0, 8)]);
    assert_eq!(lab.ok(json!({"prefix": "osd destroy", "id": 1})).status, "destroyed osd.1");
    assert_eq!(lab.cmd(json!({"prefix": "osd destroy", "id": 7})).result, -2);
    assert_eq!(lab.ok(json!({"prefix": "osd purge", "id": 7})).status, "purged osd.7");
    let up = lab.cmd(json!({"prefix": "osd purge", "id": 0, "yes_i_really_mean_it": true}));
    assert_eq!((up.result, up.status.as_str()), (-16, "osd.0 is not `down`."));
}

#[test]
fn what_cannot_be_done_is_refused() {
    let mut lab = three();
    let scrub = lab.cmd(json!({"prefix": "mon scrub"}));
    assert_eq!((scrub.result, scrub.status.is_empty()), (-95, false));
    for prefix in ["compact", "log reopen"] {
        let told = lab.tell(json!({"prefix": prefix}));
        assert_eq!((told.result, told.status.is_empty()), (-95, false), "{prefix}");
    }
}

#[test]
fn a_pg_peers_anew_with_its_primary_alone() {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p", "pg_num": 2}));
    let map = |lab: &mut Lab| lab.json(json!({"prefix": "pg map", "pgid": "1.1"}));
    let before = map(&mut lab);
    lab.ok(json!({"prefix": "pg repeer", "pgid": "1.1"}));
    lab.pass(Duration::from_secs(1));
    let after = map(&mut lab);
    assert_eq!((&after["acting"], &after["up"]), (&json!([before["acting"][0]]), &before["up"]), "{before} {after}");
    // A set of one changes by another.
    lab.ok(json!({"prefix": "pg repeer", "pgid": "1.1"}));
    lab.pass(Duration::from_secs(1));
    let third = map(&mut lab);
    assert_eq!((third["acting"].as_array().unwrap().len(), &third["acting"][0]), (2, &before["acting"][0]), "{third}");
    assert_eq!(lab.cmd(json!({"prefix": "pg repeer", "pgid": "1.2"})).result, -2);
    assert_eq!(lab.cmd(json!({"prefix": "pg repeer", "pgid": "7.0"})).result, -2);
    for id in ["0", "1", "2"] {
        lab.ok(json!({"prefix": "osd down", "ids": [id]}));
    }
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.cmd(json!({"prefix": "pg repeer", "pgid": "1.1"})).result, -11);
}

#[test]
fn a_monitor_tells_of_the_room_that_its_store_has() {
    let mut lab = three();
    let disk = |lab: &mut Lab, percent, bytes| {
        lab.mon.handle_room(percent, bytes);
        lab.settle();
        let health = lab.ok(json!({"prefix": "health", "detail": "detail"})).out;
        health.lines().skip(1).map(|line| format!("{}\n", line.trim())).collect::<String>()
    };
    assert_eq!(disk(&mut lab, 31, 1 << 30), "");
    assert_eq!(disk(&mut lab, 30, 1 << 30), "[WRN] MON_DISK_LOW: mon a is low on available space\nmon.a has 30% avail\n");
    assert_eq!(disk(&mut lab, 5, 1 << 30), "[ERR] MON_DISK_CRIT: mon a is very low on available space\nmon.a has 5% avail\n");
    let big = "[WRN] MON_DISK_BIG: mon a is using a lot of disk space\nmon.a is 15 GiB >= mon_data_size_warn (15 GiB)\n";
    assert_eq!(disk(&mut lab, 31, 15 << 30), big);
    for (option, value) in [("mon_data_avail_warn", "20"), ("mon_data_size_warn", "17179869184")] {
        lab.ok(json!({"prefix": "config set", "who": "mon", "name": option, "value": value}));
    }
    assert_eq!(disk(&mut lab, 21, 15 << 30), "");
    // Its own file overrules the database.
    let (disk_of_before, fsid) = (lab.disk, lab.fsid);
    let mut lab = Lab::on(disk_of_before, fsid, &[("mon_data_avail_warn", "21"), ("mon_data_size_warn", "14G")]);
    let told = disk(&mut lab, 21, 15 << 30);
    assert!(told.contains("MON_DISK_LOW") && told.contains("mon.a is 15 GiB >= mon_data_size_warn (14 GiB)"), "{told}");
}

#[test]
fn a_pool_that_is_full_for_monitor_and_manager_is_told_of_once() {
    use types::msg::internal::HealthReport;
    let mut lab = three();
    for pool in ["p", "q"] {
        lab.ok(json!({"prefix": "osd pool create", "pool": pool}));
        lab.ok(json!({"prefix": "osd pool set-quota", "pool": pool, "field": "max_objects", "val": "10"}));
    }
    let mgr = manager(&mut lab);
    let mut pool = PoolDigest::default();
    pool.stat.stats.sum.num_objects = 10;
    let near = HealthReport { code: "POOL_FULL".into(), severity: 2, summary: "1 pools full".into(), count: 1, detail: vec!["pool 'q' has 9 objects (max 10)".into()] };
    let digest = digest(&lab);
    lab.say(mgr, MgrDigest { pools: [(types::PoolId(1), pool)].into(), health: vec![near], ..digest });
    lab.pass(Duration::from_secs(2));
    let health = lab.ok(json!({"prefix": "health", "detail": "detail"})).out;
    let both = "[ERR] POOL_FULL: 2 pool(s) full\n    pool 'p' is full (running out of quota)\n    pool 'q' has 9 objects (max 10)\n";
    assert!(health.contains(both), "{health}");
}

#[test]
fn numbers_of_placement_groups_and_scrub_flags_of_pools_are_told_of() {
    let mut lab = three();
    let health = |lab: &mut Lab| lab.ok(json!({"prefix": "health", "detail": "detail"})).out;
    lab.ok(json!({"prefix": "osd pool create", "pool": "p", "pg_num": 12, "autoscale_mode": "off"}));
    let told = health(&mut lab);
    assert!(told.contains("[WRN] POOL_PG_NUM_NOT_POWER_OF_TWO: 1 pool(s) have non-power-of-two pg_num\n    pool 'p' pg_num 12 is not a power of two\n"), "{told}");
    lab.ok(json!({"prefix": "config set", "who": "mon", "name": "mon_warn_on_pool_pg_num_not_power_of_two", "value": "false"}));
    lab.ok(json!({"prefix": "osd pool set", "pool": "p", "var": "pgp_num", "val": "8"}));
    let told = health(&mut lab);
    assert!(!told.contains("POWER_OF_TWO") && told.contains("[WRN] SMALLER_PGP_NUM: 1 pools have pg_num > pgp_num\n    pool p pg_num 12 > pgp_num 8\n"), "{told}");
    for flag in ["noscrub", "nodeep-scrub"] {
        lab.ok(json!({"prefix": "osd pool set", "pool": "p", "var": flag, "val": "1"}));
    }
    let told = health(&mut lab);
    let both = "[OK] POOL_SCRUB_FLAGS: Some pool(s) have the noscrub, nodeep-scrub flag(s) set\n    Pool p has noscrub flag\n    Pool p has nodeep-scrub flag\n";
    assert!(told.contains(both), "{told}");
    lab.ok(json!({"prefix": "config set", "who": "mon", "name": "mon_osd_down_out_interval", "value": "0"}));
    let told = health(&mut lab);
    assert!(told.contains("OSD_NO_DOWN_OUT_INTERVAL: mon a has mon_osd_down_out_interval set to 0\n    mon.a has mon_osd_down_out_interval set to 0\n"), "{told}");
}

#[test]
fn osds_and_their_pools_are_full_in_one_epoch() {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p"}));
    let mgr = manager(&mut lab);
    let mut stat = OsdStat::default();
    (stat.statfs.total, stat.statfs.available) = (100, 1);
    let osds = (0..3).map(|osd| (OsdId(osd), stat.clone())).collect();
    let digest = digest(&lab);
    let epoch = |lab: &mut Lab| lab.json(json!({"prefix": "osd dump"}))["epoch"].as_u64().expect("a number");
    let before = epoch(&mut lab);
    lab.say(mgr, MgrDigest { osds, ..digest });
    while epoch(&mut lab) == before {
        lab.pass(Duration::from_millis(100));
    }
    assert_eq!(epoch(&mut lab), before + 1);
    let health = lab.ok(json!({"prefix": "health", "detail": "detail"})).out;
    assert!(health.contains("OSD_FULL: 3 full osd(s)"), "{health}");
    assert!(health.contains("POOL_FULL: 1 pool(s) full\n    pool 'p' is full (no space)"), "{health}");
}

/// A manager that is available.
fn manager(lab: &mut Lab) -> SessionId {
    let mgr = SessionId(70);
    lab.join(mgr, "mgr.x", "allow profile mgr");
    let beacon = MgrBeacon { gid: 4070, name: "x".into(), fsid: lab.fsid, addrs: addrs(6900, 1), available: true, metadata: Default::default() };
    lab.say(mgr, beacon);
    assert_eq!(lab.json(json!({"prefix": "mgr stat"}))["available"], true);
    mgr
}

/// What it says of a cluster of which it knows nothing.
fn digest(lab: &Lab) -> MgrDigest {
    MgrDigest {
        epoch: Epoch(5),
        stamp: lab.now.wall,
        pgs_by_state: Default::default(),
        pools: Default::default(),
        osds: Default::default(),
        classes: Default::default(),
        total: Default::default(),
        io: Default::default(),
        health: Vec::new(),
        progress: Vec::new(),
        services: Default::default(),
        pgs_by_osd: Some(Default::default()),
        purged_snaps: Default::default(),
    }
}

#[test]
fn removed_snapshots_leave_the_map_when_the_manager_says_that_nothing_is_left_of_them() {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p"}));
    for snap in ["a", "b", "c"] {
        lab.ok(json!({"prefix": "osd pool mksnap", "pool": "p", "snap": snap}));
        lab.ok(json!({"prefix": "osd pool rmsnap", "pool": "p", "snap": snap}));
    }
    let queue = |lab: &mut Lab| lab.json(json!({"prefix": "osd dump"}))["removed_snaps_queue"].clone();
    assert_eq!(queue(&mut lab), json!([{"pool": 1, "snaps": [{"begin": 1, "length": 3}]}]));
    let mgr = manager(&mut lab);
    let digest = digest(&lab);
    // Also of one that nobody has removed.
    let purged_snaps = [(types::PoolId(1), types::map::SnapIntervals([(2, 7)].into()))].into();
    lab.say(mgr, MgrDigest { purged_snaps, ..digest });
    lab.pass(Duration::from_secs(2));
    assert_eq!(queue(&mut lab), json!([{"pool": 1, "snaps": [{"begin": 1, "length": 1}]}]));
}

#[test]
fn a_quota_that_is_reached_fills_its_pool() {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p"}));
    lab.ok(json!({"prefix": "osd pool set-quota", "pool": "p", "field": "max_objects", "val": "10"}));
    let mgr = manager(&mut lab);
    let mut pool = PoolDigest::default();
    pool.stat.stats.sum.num_objects = 10;
    let digest = digest(&lab);
    lab.say(mgr, MgrDigest { pools: [(types::PoolId(1), pool)].into(), ..digest });
    lab.pass(Duration::from_secs(2));
    let health = lab.ok(json!({"prefix": "health", "detail": "detail"})).out;
    assert!(health.contains("POOL_FULL: 1 pool(s) full\n    pool 'p' is full (running out of quota)"), "{health}");
    assert!(health.contains("POOL_APP_NOT_ENABLED"), "{health}");
}

#[test]
fn the_managers_commands_are_passed_on_and_answered() {
    use types::msg::internal::MgrBeacon;
    use types::msg::{MMgrCommandReply, MMonCommand, Message, WireMessage};
    let mut lab = three();
    let none = lab.cmd(json!({"prefix": "pg stat"}));
    assert_eq!((none.result, none.status.as_str()), (-11, "no manager is active"));
    let mgr = SessionId(70);
    lab.join(mgr, "mgr.x", "allow profile mgr");
    let beacon = MgrBeacon { gid: 4070, name: "x".into(), fsid: lab.fsid, addrs: addrs(6900, 1), available: true, metadata: Default::default() };
    lab.say(mgr, beacon);
    let ask = |lab: &mut Lab| {
        lab.mail.clear();
        let cmd = vec![r#"{"prefix":"pg stat"}"#.to_owned()];
        lab.say(ADMIN, MMonCommand { paxos: Default::default(), fsid: lab.fsid, cmd, data: Default::default() });
        let passed = lab.mail.iter().find(|(s, _, m)| *s == mgr && matches!(m, Message::MMgrCommand(_)));
        passed.map(|(_, tid, _)| *tid).expect("the manager is asked")
    };
    let acked = |lab: &Lab| {
        lab.mail.iter().rev().find_map(|(s, _, m)| match m {
            Message::MMonCommandAck(ack) if *s == ADMIN => Some((ack.result, ack.data.contiguous())),
            _ => None,
        })
    };
    let tid = ask(&mut lab);
    let reply = MMgrCommandReply { result: 0, status: "".into(), data: bytes::Bytes::from_static(b"9 pgs").into() };
    let mut raw = reply.to_raw(types::features::SUPPORTED);
    raw.tid = tid;
    lab.mon.handle_message(lab.now, mgr, raw);
    lab.settle();
    assert_eq!(acked(&lab), Some((0, bytes::Bytes::from_static(b"9 pgs"))));
    // One that goes away owes its answers.
    ask(&mut lab);
    lab.mon.handle_reset(mgr);
    lab.pass(Duration::from_millis(500));
    assert_eq!(acked(&lab).map(|(result, _)| result), Some(-11));
}

#[test]
fn the_managers_commands_need_a_capability() {
    let mut lab = three();
    let reader = SessionId(71);
    lab.join(reader, "client.ro", "allow service config r");
    assert_eq!(lab.raw_command(reader, r#"{"prefix":"pg stat"}"#, b"").result, -13);
}

#[test]
fn a_pg_is_mapped_without_a_manager() {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8}));
    let mapped = lab.json(json!({"prefix": "pg map", "pgid": "1.0"}));
    assert_eq!((&mapped["pgid"], mapped["up"].as_array().map(Vec::len)), (&json!("1.0"), Some(3)));
    assert_eq!(lab.cmd(json!({"prefix": "pg map", "pgid": "9.0"})).result, -2);
    assert_eq!(lab.cmd(json!({"prefix": "pg map", "pgid": "x"})).result, -22);
}

#[test]
fn the_number_of_pgs_is_a_target_and_grows_by_the_managers_steps() {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8}));
    let set = |lab: &mut Lab, var: &str, n: u32| lab.cmd(json!({"prefix": "osd pool set", "pool": "p", "var": var, "val": n.to_string()}));
    let numbers = |lab: &mut Lab| {
        let pool = lab.json(json!({"prefix": "osd dump"}))["pools"][0].clone();
        ["pg_num", "pg_num_target", "pg_placement_num", "pg_placement_num_target"].map(|field| pool[field].as_u64().unwrap())
    };
    assert_eq!(set(&mut lab, "pg_num", 16).status, "set pool 1 pg_num to 16");
    assert_eq!(numbers(&mut lab), [8, 16, 8, 16]);
    let early = set(&mut lab, "pgp_num_actual", 12);
    assert_eq!((early.result, early.status.as_str()), (-22, "specified pgp_num 12 > pg_num 8"));
    assert_eq!(set(&mut lab, "pg_num_actual", 16).result, 0);
    assert_eq!(set(&mut lab, "pgp_num_actual", 12).result, 0);
    assert_eq!(numbers(&mut lab), [16, 16, 12, 16]);
    // Whoever sets pgp_num otherwise keeps it.
    assert_eq!(set(&mut lab, "pgp_num", 10).result, 0);
    assert_eq!(set(&mut lab, "pg_num", 20).result, 0);
    assert_eq!(numbers(&mut lab), [16, 20, 12, 10]);
    assert_eq!(set(&mut lab, "pgp_num", 21).status, "specified pgp_num 21 > pg_num 20");
    // Fewer are a target, too; places are given up first.
    assert_eq!((set(&mut lab, "pg_num", 4).result, set(&mut lab, "pg_num_actual", 4).result), (0, -22));
    assert_eq!(numbers(&mut lab), [16, 4, 12, 10]);
    // What was not begun can be taken back.
    assert_eq!(set(&mut lab, "pg_num", 16).result, 0);
    assert_eq!(set(&mut lab, "pg_num", 2000).result, -34);
    lab.ok(json!({"prefix": "osd pool set", "pool": "p", "var": "nopgchange", "val": "true"}));
    assert_eq!((set(&mut lab, "pg_num", 32).result, set(&mut lab, "pgp_num", 16).result), (-1, -1));
}

#[test]
fn an_osd_cannot_speak_for_another() {
    let mut lab = three();
    lab.say(SessionId(100), OsdMarkMeDown { osd: OsdId(1), addrs: addrs(6804, 1), epoch: Epoch(3), ack_wanted: false });
    let refused = OsdFailure { reporter: OsdId(1), target: OsdId(2), target_addrs: addrs(6808, 1), failed_for_ms: 1, epoch: Epoch(3), kind: FailureKind::Refused };
    lab.say(SessionId(100), refused);
    lab.pass(Duration::from_millis(200));
    assert_eq!(lab.json(json!({"prefix": "osd stat"}))["num_up_osds"], 3);
}

#[test]
fn random_messages_leave_the_monitor_as_it_was() {
    use rand::{Rng, SeedableRng};
    let mut lab = three();
    let before = lab.ok(json!({"prefix": "osd dump"})).out;
    let mut rng = auth::ChaCha8Rng::seed_from_u64(11);
    for _ in 0..3000 {
        let kind = *[4u16, 5, 13, 15, 17, 19, 41, 48, 49, 50, 52, 58, 97, 0x7000, 0x7002, 0x7003, 0x7005, 0x7006, 0x7011, 0x7012].get(rng.random_range(0..20)).unwrap();
        let front: Vec<u8> = (0..rng.random_range(0..120)).map(|_| rng.random::<u8>() & 3).collect();
        let raw = types::msg::RawMessage { kind, version: rng.random_range(0..9), compat: 1, front: front.into(), ..Default::default() };
        let session = if rng.random() { ADMIN } else { SessionId(101) };
        lab.mon.handle_message(lab.now, session, raw);
        lab.settle();
    }
    assert_eq!(lab.ok(json!({"prefix": "osd dump"})).out, before);
}
