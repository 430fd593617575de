//! Monitors that come, go, and lose their disks.

use crate::three::Trio;
use serde_json::{Value, json};
use std::time::Duration;

const WHILE: Duration = Duration::from_secs(4);

impl Trio {
    fn quorum(&mut self, at: u64) -> Vec<String> {
        let out: Value = serde_json::from_str(&self.run(at, json!({"prefix": "quorum_status"}))).unwrap();
        let names = out["quorum_names"].as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_owned());
        assert_eq!(out["quorum"].as_array().unwrap().len(), names.len());
        names.collect()
    }

    fn result(&mut self, at: u64, command: Value) -> i32 {
        let session = self.client(at);
        self.ask(at, session, command);
        self.answer(at, session).expect("an answer").0
    }

    fn remove(&mut self, at: u64, name: &str) {
        self.run(at, json!({"prefix": "mon rm", "name": name}));
    }

    fn wipe(&mut self, id: u64) {
        self.kill(id, false);
        self.format(id);
    }
}

#[test]
fn a_newcomer_with_the_key_is_let_in_and_counts() {
    let mut trio = Trio::of(3);
    let leader = trio.leader();
    trio.set(leader, "old");
    trio.format(4);
    trio.start(4);
    trio.pass(WHILE);
    assert_eq!(trio.quorum(4), ["a", "b", "c", "d"]);
    assert_eq!(trio.get(4), "old");
    trio.set(4, "new");
    trio.pass(WHILE);
    assert_eq!(trio.applied(4), trio.applied(1));
    // It counts: with two of four gone nobody leads.
    let gone: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    gone.iter().for_each(|id| trio.kill(*id, false));
    trio.pass(WHILE);
    assert!(trio.leaders().is_empty());
    trio.start(gone[0]);
    trio.until_led(&[leader, 4, gone[0]]);
    assert_eq!(trio.get(4), "new");
}

#[test]
fn one_that_was_announced_is_waited_for() {
    let mut trio = Trio::of(1);
    trio.run(1, json!({"prefix": "mon add", "name": "b", "addr": "127.0.0.1:3301"}));
    // Upstream stands still from here on until the second one has come.
    trio.set(1, "meanwhile");
    assert_eq!(trio.quorum(1), ["a"]);
    assert_eq!(trio.result(1, json!({"prefix": "mon add", "name": "b", "addr": "127.0.0.1:3399"})), -17);
    assert_eq!(trio.result(1, json!({"prefix": "mon add", "name": "x", "addr": "127.0.0.1:3301"})), -17);
    trio.format(2);
    trio.start(2);
    trio.pass(WHILE);
    assert_eq!((trio.quorum(1), trio.get(2)), (vec!["a".to_owned(), "b".to_owned()], "meanwhile".to_owned()));
    // It said who its manager is while the first one was alone.
    assert_eq!(trio.result(1, json!({"prefix": "auth get", "entity": "mgr.b"})), 0);
}

#[test]
fn a_monitor_whose_disk_was_lost_comes_back_as_somebody_else() {
    let mut trio = Trio::of(3);
    let lost = (1..=3).find(|id| *id != trio.leader()).unwrap();
    for round in 0..3 {
        let leader = trio.leader();
        trio.set(leader, "x");
        trio.wipe(lost);
        trio.pass(Duration::from_secs(round));
        trio.start(lost);
        trio.pass(WHILE);
        assert_eq!(trio.quorum(lost), ["a", "b", "c"], "round {round}");
        assert_eq!(trio.applied(lost), trio.applied(leader));
    }
    // It counts again.
    let leader = trio.leader();
    let third = (1..=3).find(|id| ![lost, leader].contains(id)).unwrap();
    trio.kill(third, true);
    trio.set(lost, "two");
    assert_eq!(trio.get(leader), "two");
}

#[test]
fn an_empty_disk_alone_says_nothing_in_the_name_of_the_lost_one() {
    let mut trio = Trio::of(3);
    let leader = trio.leader();
    trio.set(leader, "kept");
    let [lost, away]: [u64; 2] = (1..=3).filter(|id| *id != leader).collect::<Vec<_>>().try_into().unwrap();
    trio.wipe(lost);
    trio.kill(away, true);
    trio.start(lost);
    // One of three has the state: nobody may lead, whatever the empty one would vote.
    trio.pass(3 * WHILE);
    assert!(trio.leaders().is_empty());
    trio.start(away);
    trio.until_led(&[leader, away]);
    trio.pass(WHILE);
    assert_eq!(trio.quorum(lost), ["a", "b", "c"]);
    assert_eq!(trio.get(lost), "kept");
}

#[test]
fn a_removed_monitor_ends_and_does_not_come_back_with_its_disk() {
    for leads in [false, true] {
        let mut trio = Trio::of(3);
        trio.set(1, "x");
        let leader = trio.leader();
        let gone = if leads { leader } else { leader % 3 + 1 };
        let name = char::from(b'a' + gone as u8 - 1).to_string();
        trio.remove(leader, &name);
        trio.pass(WHILE);
        assert!(trio.left.contains(&gone), "leader {leads}");
        assert!(trio.try_start(gone).is_err());
        let stays = gone % 3 + 1;
        assert_eq!(trio.quorum(stays).len(), 2);
        assert_eq!(trio.get(stays), "x");
        // Those that stay are a majority of two.
        trio.set(stays, "y");
        trio.format(gone);
        trio.start(gone);
        trio.pass(WHILE);
        assert_eq!(trio.quorum(gone).len(), 3);
        assert_eq!(trio.get(gone), "y");
    }
}

#[test]
fn one_that_was_away_while_it_was_removed_learns_of_it() {
    let mut trio = Trio::of(3);
    let leader = trio.leader();
    let (gone, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    trio.kill(gone, true);
    trio.pass(WHILE);
    let named = |id: u64| char::from(b'a' + id as u8 - 1).to_string();
    // Without the other one nobody could order anything.
    assert_eq!(trio.result(leader, json!({"prefix": "mon rm", "name": named(other)})), -16);
    trio.remove(leader, &named(gone));
    trio.pass(WHILE);
    trio.start(gone);
    trio.pass(WHILE);
    assert!(trio.left.contains(&gone));
    assert!(trio.try_start(gone).is_err());
    assert_eq!(trio.quorum(leader).len(), 2);
}

#[test]
fn members_change_while_one_is_away() {
    let mut trio = Trio::of(3);
    let leader = trio.leader();
    let away = leader % 3 + 1;
    trio.kill(away, false);
    trio.pass(WHILE);
    for id in [4, 5] {
        trio.format(id);
        trio.start(id);
        trio.pass(WHILE);
    }
    let old = (1..=3).find(|id| ![leader, away].contains(id)).unwrap();
    for gone in [old, leader] {
        let at = trio.leader();
        trio.remove(at, &char::from(b'a' + gone as u8 - 1).to_string());
        trio.pass(2 * WHILE);
    }
    trio.set(4, "later");
    trio.start(away);
    trio.pass(2 * WHILE);
    assert_eq!(trio.quorum(away).len(), 3);
    assert_eq!(trio.get(away), "later");
    assert_eq!(trio.applied(away), trio.applied(5));
}

#[test]
fn a_change_outlives_the_leader_that_began_it() {
    for after in 0..12 {
        let mut trio = Trio::of(3);
        let leader = trio.leader();
        trio.set(leader, "x");
        trio.format(4);
        trio.start(4);
        trio.pass(Duration::from_millis(after * 50));
        trio.kill(leader, after % 2 == 0);
        let rest: Vec<u64> = (1..=4).filter(|id| *id != leader).collect();
        trio.until_led(&rest);
        trio.start(leader);
        trio.pass(2 * WHILE);
        assert_eq!(trio.quorum(4), ["a", "b", "c", "d"], "after {after}");
        assert_eq!(trio.get(4), "x");
    }
}

#[test]
fn a_state_of_many_messages_reaches_a_newcomer() {
    let mut trio = Trio::of(1);
    let value = "v".repeat(60_000);
    // More than the log keeps: it takes a snapshot.
    for n in 0..180 {
        trio.run(1, json!({"prefix": "config-key set", "key": format!("large/{n}"), "val": value}));
    }
    trio.format(2);
    trio.start(2);
    trio.pass(WHILE);
    assert_eq!(trio.quorum(2), ["a", "b"]);
    assert_eq!(trio.applied(2), trio.applied(1));
    assert!(trio.longest < 5 << 20, "no message is longer than a part: {}", trio.longest);
}

#[test]
fn a_clock_that_is_wrong_is_seen_and_named() {
    let mut trio = Trio::of(3);
    let leader = trio.leader();
    let wrong = leader % 3 + 1;
    let name = char::from(b'a' + wrong as u8 - 1).to_string();
    let status = |trio: &mut Trio| -> Value { serde_json::from_str(&trio.run(leader, json!({"prefix": "time-sync-status"}))).unwrap() };
    let health = |trio: &mut Trio| trio.run(leader, json!({"prefix": "health", "detail": "detail"}));
    trio.pass(WHILE);
    assert_eq!(status(&mut trio)["time_skew_status"][&name]["health"], "HEALTH_OK");
    assert!(!health(&mut trio).contains("CLOCK"));
    trio.ahead.insert(wrong, 7);
    trio.pass(Duration::from_secs(301));
    let told = status(&mut trio);
    assert_eq!(told["time_skew_status"][&name]["details"], "clock skew 7s > max 0.05s", "{told}");
    assert_eq!(told["time_skew_status"].as_object().unwrap().len(), 3);
    let says = health(&mut trio);
    assert!(says.contains(&format!("MON_CLOCK_SKEW: clock skew detected on mon.{name}")), "{says}");
    assert!(says.contains(&format!("mon.{name} clock skew 7s > max 0.05s (latency 0s)")), "{says}");
    // It is looked at more often now.
    trio.ahead.clear();
    trio.pass(Duration::from_secs(32));
    assert!(!health(&mut trio).contains("CLOCK"));
}

/// A client that was fenced must not write again because somebody's clock is wrong.
#[test]
fn an_entry_of_the_blocklist_lasts_as_long_as_was_asked_for_whatever_clocks_say() {
    let mut trio = Trio::of(3);
    let leader = trio.leader();
    let add = |trio: &mut Trio, at, addr: &str, secs: f64| {
        trio.run(at, json!({"prefix": "osd blocklist", "blocklistop": "add", "addr": addr, "expire": secs}));
    };
    let listed = |trio: &mut Trio, at: u64, addr: &str| trio.run(at, json!({"prefix": "osd blocklist ls"})).contains(addr);
    add(&mut trio, leader, "10.0.0.1:0/1", 60.0);
    add(&mut trio, leader, "10.0.0.2:0/2", 600.0);
    // Every clock jumps, by a year and more.
    for id in 1..=3 {
        trio.ahead.insert(id, 40_000_000);
    }
    trio.pass(Duration::from_secs(50));
    assert!(listed(&mut trio, leader, "10.0.0.1"));
    trio.pass(Duration::from_secs(15));
    assert!(!listed(&mut trio, leader, "10.0.0.1"), "its time is over, by the steady clock");
    assert!(listed(&mut trio, leader, "10.0.0.2"));
    // A new leader cannot know how much has passed, and counts all of it.
    trio.pass(Duration::from_secs(400));
    trio.kill(leader, false);
    let rest: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    trio.until_led(&rest);
    let next = trio.leader();
    trio.pass(Duration::from_secs(580));
    assert!(listed(&mut trio, next, "10.0.0.2"));
    trio.pass(Duration::from_secs(30));
    assert!(!listed(&mut trio, next, "10.0.0.2"));
    // Made again just when it ends, it stays.
    for ms in (0..1500).step_by(5) {
        add(&mut trio, next, "10.0.0.3:0/3", 0.5);
        trio.pass(Duration::from_millis(ms));
        add(&mut trio, next, "10.0.0.3:0/3", 60.0);
        trio.pass(Duration::from_secs(3));
        assert!(listed(&mut trio, next, "10.0.0.3"), "after {ms} ms");
        trio.run(next, json!({"prefix": "osd blocklist clear"}));
        trio.pass(Duration::from_secs(1));
    }
    // A longer one is not made shorter.
    add(&mut trio, next, "10.0.0.4:0/4", 600.0);
    add(&mut trio, next, "10.0.0.4:0/4", 5.0);
    trio.pass(Duration::from_secs(60));
    assert!(listed(&mut trio, next, "10.0.0.4"));
}
