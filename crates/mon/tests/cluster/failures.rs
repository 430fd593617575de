//! Which OSDs are believed to be dead: a test per rule.

use crate::OPTIONS;
use crate::lab::{Lab, addrs};
use mon::SessionId;
use serde_json::{Value, json};
use std::time::Duration;
use types::msg::internal::{FailureKind, OsdFailure};
use types::{Epoch, OsdId};
use uuid::Uuid;

fn lab(osds: i32, more: &[(&str, &str)]) -> Lab {
    let mut lab = Lab::new(&[OPTIONS, more].concat());
    for i in 0..osds {
        lab.add_osd(i);
    }
    lab
}

/// `by` says that it has not heard of `target` for so long.
fn miss(lab: &mut Lab, by: i32, target: i32, silent: Duration) {
    let report = OsdFailure {
        reporter: OsdId(by),
        target: OsdId(target),
        target_addrs: addrs(6800 + target as u16 * 4, 1),
        failed_for_ms: silent.as_millis() as u64,
        epoch: Epoch(5),
        kind: FailureKind::Silent,
    };
    lab.say(SessionId(100 + by as u64), report);
}

fn miss_by_two(lab: &mut Lab, target: i32, seconds: u64) {
    for by in (0..).filter(|by| *by != target).take(2) {
        miss(lab, by, target, Duration::from_secs(seconds));
    }
    lab.pass(Duration::from_millis(100));
}

fn refuse(lab: &mut Lab, by: i32, target: i32) {
    let target_addrs = addrs(6800 + target as u16 * 4, 1);
    let report = OsdFailure { reporter: OsdId(by), target: OsdId(target), target_addrs, failed_for_ms: 1, epoch: Epoch(5), kind: FailureKind::Refused };
    lab.say(SessionId(100 + by as u64), report);
    lab.pass(Duration::from_millis(100));
}

fn stat(lab: &mut Lab, what: &str) -> u64 {
    lab.json(json!({"prefix": "osd stat"}))[what].as_u64().unwrap()
}

fn up(lab: &mut Lab) -> u64 {
    stat(lab, "num_up_osds")
}

fn xinfo(lab: &mut Lab, osd: usize) -> Value {
    lab.json(json!({"prefix": "osd dump"}))["osd_xinfo"][osd].clone()
}

#[test]
fn too_few_that_are_up_mark_nobody_down() {
    let mut lab = lab(5, &[("mon_osd_min_up_ratio", "0.5")]);
    (2..5).for_each(|osd| refuse(&mut lab, 0, osd));
    assert_eq!(up(&mut lab), 2, "three of five were up when the third went");
    refuse(&mut lab, 0, 1);
    miss(&mut lab, 0, 1, Duration::from_secs(60));
    lab.pass(Duration::from_secs(3));
    assert_eq!(up(&mut lab), 2);
}

#[test]
fn an_osd_goes_out_while_three_quarters_are_in() {
    let mut lab = lab(4, &[("mon_osd_down_out_interval", "5")]);
    (1..4).for_each(|osd| refuse(&mut lab, 0, osd));
    lab.pass(Duration::from_secs(20));
    assert_eq!((up(&mut lab), stat(&mut lab, "num_in_osds")), (1, 2));
}

#[test]
fn three_osds_are_enough_for_one_to_go_out() {
    let mut lab = lab(3, &[("mon_osd_down_out_interval", "5")]);
    refuse(&mut lab, 0, 2);
    lab.pass(Duration::from_secs(10));
    assert_eq!(stat(&mut lab, "num_in_osds"), 2);
}

#[test]
fn a_host_that_is_gone_as_a_whole_is_not_marked_out_if_the_limit_is_a_host() {
    let mut lab = lab(4, &[("mon_osd_down_out_interval", "10"), ("mon_osd_down_out_subtree_limit", "host"), ("mon_osd_min_in_ratio", "0.1")]);
    lab.osds.0 = "h2";
    for i in 4..6 {
        lab.add_osd(i);
    }
    refuse(&mut lab, 0, 4);
    refuse(&mut lab, 0, 5);
    lab.pass(Duration::from_secs(25));
    assert_eq!((up(&mut lab), stat(&mut lab, "num_in_osds")), (4, 6), "a switch, not disks");
    lab.boot_osd(4, 2);
    lab.pass(Duration::from_secs(2));
    assert_eq!(stat(&mut lab, "num_in_osds"), 6, "not at once when a part of it is back");
    lab.pass(Duration::from_secs(10));
    assert_eq!(stat(&mut lab, "num_in_osds"), 5);
}

#[test]
fn a_larger_unit_than_the_limit_counts_too() {
    // The limit is a rack and there is none: the root is larger.
    let mut lab = lab(3, &[("mon_osd_down_out_interval", "5"), ("mon_osd_min_up_ratio", "0"), ("mon_osd_min_in_ratio", "0")]);
    (1..3).for_each(|osd| refuse(&mut lab, 0, osd));
    lab.say(SessionId(100), types::msg::internal::OsdMarkMeDown { osd: OsdId(0), addrs: addrs(6800, 1), epoch: Epoch(3), ack_wanted: false });
    lab.pass(Duration::from_secs(20));
    assert_eq!((up(&mut lab), stat(&mut lab, "num_in_osds")), (0, 3));
}

#[test]
fn a_death_that_is_certain_is_noted() {
    let mut lab = lab(5, &[]);
    refuse(&mut lab, 0, 3);
    let stops = types::msg::internal::OsdMarkMeDown { osd: OsdId(4), addrs: addrs(6816, 1), epoch: Epoch(3), ack_wanted: false };
    lab.say(SessionId(104), stops);
    lab.pass(Duration::from_secs(1));
    miss_by_two(&mut lab, 2, 21);
    let info = |lab: &mut Lab, osd: usize| lab.json(json!({"prefix": "osd dump"}))["osds"][osd].clone();
    for osd in [3, 4] {
        let (dead, down_at) = (xinfo(&mut lab, osd)["dead_epoch"].clone(), info(&mut lab, osd)["down_at"].clone());
        assert!(dead.as_u64() > Some(0) && dead == down_at, "osd.{osd}: {dead} {down_at}");
    }
    assert_eq!((info(&mut lab, 2)["up"].clone(), xinfo(&mut lab, 2)["dead_epoch"].clone()), (json!(0), json!(0)), "one that is silent may be alive");
}

#[test]
fn an_osd_that_was_only_slow_is_waited_for_longer() {
    let mut lab = lab(3, &[]);
    miss_by_two(&mut lab, 2, 21);
    assert_eq!(up(&mut lab), 2);
    assert!(xinfo(&mut lab, 2)["down_stamp"].as_str().unwrap().starts_with("20"));
    lab.pass(Duration::from_secs(100));
    // The same process.
    lab.boot_osd(2, 1);
    let slow = xinfo(&mut lab, 2);
    assert!((slow["laggy_probability"].as_f64().unwrap() - 0.3).abs() < 0.01, "{slow}");
    assert_eq!(slow["laggy_interval"], 30, "{slow}");
    // 20 s, and 30 times 0.3 s.
    miss_by_two(&mut lab, 2, 25);
    assert_eq!(up(&mut lab), 3);
    lab.pass(Duration::from_secs(5));
    assert_eq!(up(&mut lab), 2, "looked at again when the time has come");
    let says = lab.ok(json!({"prefix": "log last", "num": 5})).out;
    assert!(says.contains(") (2 reporters from different osd after 29."), "{says}");
    // A new process has nothing to do with it; the past counts less.
    lab.boot_osd(2, 2);
    let after = xinfo(&mut lab, 2);
    assert!((after["laggy_probability"].as_f64().unwrap() - 0.21).abs() < 0.01, "{after}");
    assert_eq!(after["laggy_interval"], 21);
}

#[test]
fn reporters_that_were_slow_are_believed_later_and_nobody_is_if_the_option_is_off() {
    for (adjust, left) in [("true", 3), ("false", 2)] {
        let mut lab = lab(4, &[("mon_osd_adjust_heartbeat_grace", adjust)]);
        for slow in 0..2 {
            refuse(&mut lab, 3, slow);
        }
        lab.pass(Duration::from_secs(100));
        for i in 0..2 {
            lab.boot_osd(i, 1);
        }
        refuse(&mut lab, 0, 3);
        miss_by_two(&mut lab, 2, 25);
        assert_eq!(up(&mut lab), left);
    }
}

#[test]
fn the_grace_is_an_option_and_reports_that_are_not_repeated_are_forgotten() {
    let mut lab = lab(3, &[("osd_heartbeat_grace", "60")]);
    miss_by_two(&mut lab, 2, 35);
    lab.pass(Duration::from_secs(40));
    assert_eq!(up(&mut lab), 3, "they would have said it again");
    miss_by_two(&mut lab, 2, 61);
    assert_eq!(up(&mut lab), 2);
}

#[test]
fn an_operator_can_forbid_each_step() {
    let mut lab = lab(3, &[("mon_osd_down_out_interval", "5")]);
    lab.ok(json!({"prefix": "osd set", "key": "nodown"}));
    refuse(&mut lab, 0, 2);
    miss_by_two(&mut lab, 2, 30);
    assert_eq!(up(&mut lab), 3, "nodown");
    lab.ok(json!({"prefix": "osd unset", "key": "nodown"}));
    lab.ok(json!({"prefix": "osd set", "key": "noout"}));
    refuse(&mut lab, 0, 2);
    lab.pass(Duration::from_secs(10));
    assert_eq!((up(&mut lab), stat(&mut lab, "num_in_osds")), (2, 3), "noout");
    lab.ok(json!({"prefix": "osd unset", "key": "noout"}));
    lab.ok(json!({"prefix": "osd set", "key": "noup"}));
    lab.boot_osd(2, 2);
    assert_eq!(up(&mut lab), 2, "noup");
    lab.pass(Duration::from_secs(10));
    assert_eq!(stat(&mut lab, "num_in_osds"), 2);
    lab.ok(json!({"prefix": "osd unset", "key": "noup"}));
    lab.ok(json!({"prefix": "osd set", "key": "noin"}));
    lab.boot_osd(2, 2);
    assert_eq!((up(&mut lab), stat(&mut lab, "num_in_osds")), (3, 2), "noin");
}

/// A new one is in from `osd new` on, or one in the place of a destroyed one, whatever `noin` says of those that boot: so stock Pacific and Tentacle do.
#[test]
fn a_new_osd_is_in_before_it_boots() {
    let mut lab = lab(3, &[]);
    let counts = |lab: &mut Lab| (stat(lab, "num_osds"), up(lab), stat(lab, "num_in_osds"));
    let create = |lab: &mut Lab, id: i32| lab.ok(json!({"prefix": "osd new", "uuid": Uuid::from_u128(0x5000 + id as u128).to_string(), "id": id}));
    create(&mut lab, 3);
    assert_eq!(counts(&mut lab), (4, 3, 4));
    lab.ok(json!({"prefix": "osd set", "key": "noin"}));
    create(&mut lab, 4);
    assert_eq!(counts(&mut lab), (5, 3, 5));
    lab.boot_osd(4, 1);
    assert_eq!(counts(&mut lab), (5, 4, 5));
    lab.ok(json!({"prefix": "osd down", "ids": ["4"], "definitely_dead": true}));
    lab.ok(json!({"prefix": "osd destroy", "id": "osd.4", "yes_i_really_mean_it": true}));
    create(&mut lab, 4);
    assert_eq!(counts(&mut lab), (5, 3, 5), "in the place of one that was in");
}
