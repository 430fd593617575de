//! The client among scripted monitors and OSDs: what it does when they die, refuse, hold back or contradict themselves.

mod lab;
mod osd;

use auth::mode;
use bytes::Bytes;
use client::{Client, Handle, IoCtx};
use lab::Lab;
use osd::Mood;
use types::map::OsdMap;
use types::msg::osd::osd_flag;
use types::msg::osd_op::Watch;
use types::{EntityKind, Errno, OsdId};

fn data(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// A lab with a client that is connected and has its pool open.
fn connected() -> (Lab, Client, Handle, IoCtx) {
    let mut lab = Lab::new();
    let (mut client, handle) = lab.client(|_| {});
    lab.run(&mut client, handle.connect()).unwrap();
    let io = lab.run(&mut client, handle.pool("p")).unwrap();
    (lab, client, handle, io)
}

#[test]
fn a_dead_monitor_is_passed_over() {
    let mut lab = Lab::new();
    lab.mons[0].alive = false;
    for modes in [vec![mode::CRC], vec![mode::SECURE]] {
        let (mut client, handle) = lab.client(|config| config.mon_modes = modes);
        let map = lab.run(&mut client, handle.connect()).unwrap();
        assert_eq!(map.epoch, lab.epoch());
    }
}

#[test]
fn a_wrong_key_is_told_and_not_waited_out() {
    let mut lab = Lab::new();
    let (mut client, handle) = lab.client(|config| config.key = "AQCoiQBr6K7mARAAo2Vn/C6GJPUEn22yFX0T/w==".parse().unwrap());
    assert_eq!(lab.run(&mut client, handle.connect()).unwrap_err(), Errno::EACCES);
}

#[test]
fn the_global_id_survives_the_loss_of_a_monitor() {
    let mut lab = Lab::new();
    let (mut client, handle) = lab.client(|_| {});
    lab.run(&mut client, handle.connect()).unwrap();
    let (before, _) = lab.run(&mut client, handle.identity()).unwrap();
    let serving = lab.mons.iter().position(|m| m.sessions() > 0).unwrap();
    lab.mons[serving].alive = false;
    lab.cut(&mut client);
    let reply = lab.run(&mut client, handle.mon_command("{\"prefix\":\"x\"}", Bytes::new())).unwrap();
    assert_eq!(reply.result, 0);
    assert!(lab.mons[1 - serving].sessions() > 0);
    assert_eq!(lab.run(&mut client, handle.identity()).unwrap().0, before);
}

/// A manager has its monitor in its own process.
#[test]
fn whoever_lives_with_a_monitor_goes_back_to_it_after_its_session_and_elsewhere_only_if_it_is_gone() {
    let mut lab = Lab::new();
    let (mut client, handle) = lab.client(|config| config.near = config.mon_addrs.get(1).cloned());
    for _ in 0..4 {
        lab.run(&mut client, handle.mon_command("{\"prefix\":\"x\"}", Bytes::new())).unwrap();
        assert_eq!((lab.mons[0].sessions(), lab.mons[1].sessions()), (0, 1));
        lab.cut(&mut client);
    }
    lab.mons[1].alive = false;
    lab.cut(&mut client);
    lab.run(&mut client, handle.mon_command("{\"prefix\":\"x\"}", Bytes::new())).unwrap();
    assert_eq!(lab.mons[0].sessions(), 1);
}

#[test]
fn requests_survive_a_lost_session_in_their_order() {
    let (mut lab, mut client, _, io) = connected();
    let primary = lab.primary_of("o");
    lab.osds[primary].mood = Mood::Silent;
    let mut writes: Vec<_> = (0..5).map(|i| Box::pin(io.append(b"o", Bytes::from(vec![b'0' + i])))).collect();
    lab.idle(&mut client, &mut writes);
    assert_eq!(lab.osds[primary].seen.len(), 5);
    lab.osds[primary].mood = Mood::Serve;
    lab.cut(&mut client);
    for write in writes {
        lab.run(&mut client, write).unwrap();
    }
    let again = &lab.osds[primary].seen[5..];
    assert!(again.iter().all(|m| m.retry == 1 && m.has_flag(osd_flag::RETRY)));
    assert_eq!(lab.run(&mut client, io.read(b"o", 0, 0)).unwrap(), data("01234"));
}

#[test]
fn a_new_primary_gets_what_the_old_one_did_not_answer() {
    let (mut lab, mut client, _, io) = connected();
    let old = lab.primary_of("o");
    lab.osds[old].mood = Mood::Silent;
    let mut write = vec![Box::pin(io.write_full(b"o", data("x")))];
    lab.idle(&mut client, &mut write);
    lab.change_map(|inc| inc.new_state = [(OsdId(old as i32), OsdMap::STATE_UP)].into());
    lab.run(&mut client, write.remove(0)).unwrap();
    let new = lab.primary_of("o");
    assert_ne!(old, new);
    assert_eq!(lab.osds[new].seen.len(), 1);
}

#[test]
fn what_a_full_cluster_may_have_dropped_is_sent_again_when_there_is_room() {
    let (mut lab, mut client, _, io) = connected();
    let primary = lab.primary_of("o");
    // The OSD knew before the client that the cluster is full.
    lab.osds[primary].mood = Mood::Silent;
    let mut writes: Vec<_> = ["1", "2"].into_iter().map(|text| Box::pin(io.append(b"o", data(text)))).collect();
    let mut reads = vec![Box::pin(io.read(b"o", 0, 0))];
    lab.idle(&mut client, &mut writes);
    lab.idle(&mut client, &mut reads);
    assert_eq!(lab.osds[primary].seen.len(), 3);
    lab.osds[primary].mood = Mood::Serve;
    lab.change_map(|inc| inc.new_flags = Some(OsdMap::FLAG_FULL));
    lab.idle(&mut client, &mut writes);
    assert_eq!(lab.osds[primary].seen.len(), 3, "writes wait for room");
    lab.change_map(|inc| inc.new_flags = Some(0));
    for write in writes {
        lab.run(&mut client, write).unwrap();
    }
    assert_eq!(lab.osds[primary].seen.len(), 5, "reads were not held back, and are not sent again");
    assert_eq!(lab.run(&mut client, io.read(b"o", 0, 0)).unwrap(), data("12"));
}

#[test]
fn an_answer_to_an_earlier_attempt_of_a_request_does_not_count() {
    let (mut lab, mut client, _, io) = connected();
    let primary = lab.primary_of("o");
    lab.osds[primary].mood = Mood::Silent;
    let mut write = vec![Box::pin(io.append(b"o", data("x")))];
    lab.idle(&mut client, &mut write);
    // A full cluster may have dropped it: it goes there again.
    for flags in [OsdMap::FLAG_FULL, 0] {
        lab.change_map(|inc| inc.new_flags = Some(flags));
        // It asks for a newer map when nothing comes.
        lab.pass(&mut client, 15);
    }
    assert_eq!(lab.osds[primary].seen.iter().map(|op| op.retry).collect::<Vec<_>>(), [0, 1]);
    let now = lab.now;
    lab.osds[primary].answer(now, 0);
    lab.idle(&mut client, &mut write);
    let now = lab.now;
    lab.osds[primary].answer(now, 1);
    lab.run(&mut client, write.remove(0)).unwrap();
}

#[test]
fn the_end_of_a_session_ends_its_backoffs() {
    let (mut lab, mut client, _, io) = connected();
    let primary = lab.primary_of("o");
    lab.osds[primary].mood = Mood::HoldBack;
    let mut write = vec![Box::pin(io.append(b"o", data("x")))];
    lab.idle(&mut client, &mut write);
    assert_eq!(lab.osds[primary].backoffs_acked, 1);
    // Nobody will lift it.
    lab.osds[primary].mood = Mood::Serve;
    lab.cut(&mut client);
    lab.run(&mut client, write.remove(0)).unwrap();
}

#[test]
fn a_map_that_does_not_add_up_is_fetched_whole() {
    let mut lab = Lab::new();
    let (mut client, handle) = lab.client(|_| {});
    lab.run(&mut client, handle.connect()).unwrap();
    lab.change_map(|inc| inc.new_flags = Some(OsdMap::FLAG_NOOUT));
    lab.damage_newest_incremental();
    let map = lab.run(&mut client, handle.latest_map()).unwrap();
    assert_eq!(map.epoch, lab.epoch());
    assert!(map.has_flag(OsdMap::FLAG_NOOUT));
    assert!(lab.mons.iter().any(|m| m.full_maps_given > 1));
}

#[test]
fn incrementals_are_followed_one_by_one() {
    let mut lab = Lab::new();
    let (mut client, handle) = lab.client(|_| {});
    lab.run(&mut client, handle.connect()).unwrap();
    let given = |lab: &Lab| lab.mons.iter().map(|m| m.full_maps_given).sum::<u32>();
    let before = given(&lab);
    for flags in [OsdMap::FLAG_NOOUT, OsdMap::FLAG_NODOWN, OsdMap::FLAG_NOUP] {
        lab.change_map(|inc| inc.new_flags = Some(flags));
    }
    let map = lab.run(&mut client, handle.latest_map()).unwrap();
    assert!(map.has_flag(OsdMap::FLAG_NOUP));
    assert_eq!(given(&lab), before);
}

#[test]
fn a_backoff_holds_requests_until_it_is_lifted() {
    let (mut lab, mut client, _, io) = connected();
    let primary = lab.primary_of("o");
    lab.osds[primary].mood = Mood::HoldBack;
    let mut writes = vec![Box::pin(io.append(b"o", data("1")))];
    lab.idle(&mut client, &mut writes);
    writes.push(Box::pin(io.append(b"o", data("2"))));
    lab.idle(&mut client, &mut writes);
    assert_eq!(lab.osds[primary].seen.len(), 1, "the second waits here");
    assert_eq!(lab.osds[primary].backoffs_acked, 1);
    lab.osds[primary].mood = Mood::Serve;
    let now = lab.now;
    lab.osds[primary].lift(now);
    for write in writes {
        lab.run(&mut client, write).unwrap();
    }
    assert_eq!(lab.run(&mut client, io.read(b"o", 0, 0)).unwrap(), data("12"));
}

#[test]
fn a_paused_cluster_holds_writes_and_lets_reads_pass() {
    let (mut lab, mut client, handle, io) = connected();
    lab.run(&mut client, io.write_full(b"o", data("x"))).unwrap();
    lab.change_map(|inc| inc.new_flags = Some(OsdMap::FLAG_PAUSEWR));
    lab.run(&mut client, handle.latest_map()).unwrap();
    let mut write = vec![Box::pin(io.write_full(b"o", data("y")))];
    lab.idle(&mut client, &mut write);
    assert_eq!(lab.run(&mut client, io.read(b"o", 0, 0)).unwrap(), data("x"));
    lab.change_map(|inc| inc.new_flags = Some(0));
    lab.run(&mut client, write.remove(0)).unwrap();
    assert_eq!(lab.run(&mut client, io.read(b"o", 0, 0)).unwrap(), data("y"));
}

#[test]
fn a_ticket_under_a_past_secret_is_renewed_and_the_request_passes() {
    let (mut lab, mut client, _, io) = connected();
    lab.rotate_away(EntityKind::OSD);
    lab.run(&mut client, io.write_full(b"o", data("x"))).unwrap();
    let primary = lab.primary_of("o");
    assert!(lab.osds[primary].refused > 0);
}

#[test]
fn whose_ticket_for_renewals_is_under_a_past_secret_shows_his_key_again() {
    let (mut lab, mut client, _, io) = connected();
    [EntityKind::AUTH, EntityKind::OSD].into_iter().for_each(|service| lab.rotate_away(service));
    lab.run(&mut client, io.write_full(b"o", data("x"))).unwrap();
}

/// Its requests must be known as the same.
#[test]
fn who_is_given_another_global_id_keeps_its_name() {
    let (mut lab, mut client, handle, io) = connected();
    let primary = lab.primary_of("o");
    lab.osds[primary].mood = Mood::Silent;
    let mut write = vec![Box::pin(io.append(b"o", data("x")))];
    lab.idle(&mut client, &mut write);
    [EntityKind::AUTH, EntityKind::OSD].into_iter().for_each(|service| lab.rotate_away(service));
    lab.osds[primary].mood = Mood::Serve;
    lab.cut(&mut client);
    lab.run(&mut client, write.remove(0)).unwrap();
    let osd = &lab.osds[primary];
    assert_ne!(osd.global_ids[0], osd.global_ids[1]);
    assert_eq!(osd.numbers, [osd.global_ids[0] as i64; 2]);
    assert_eq!(lab.run(&mut client, handle.identity()).unwrap().0, lab.osds[primary].global_ids[0]);
}

#[test]
fn an_osd_that_refuses_us_is_tried_until_it_lets_us_in() {
    let (mut lab, mut client, _, io) = connected();
    let primary = lab.primary_of("o");
    lab.osds[primary].mood = Mood::Refuse;
    let mut write = vec![Box::pin(io.write_full(b"o", data("x")))];
    lab.idle(&mut client, &mut write);
    lab.pass(&mut client, 30);
    let refused = lab.osds[primary].refused;
    // Three attempts are one dial; the dials become rare.
    assert!((6..60).contains(&refused), "{refused}");
    lab.osds[primary].mood = Mood::Serve;
    lab.run(&mut client, write.remove(0)).unwrap();
}

#[test]
fn a_watch_is_kept_over_a_lost_session() {
    let (mut lab, mut client, _, io) = connected();
    lab.run(&mut client, io.write_full(b"o", data("x"))).unwrap();
    let watch = lab.run(&mut client, io.watch(b"o", 0)).unwrap();
    lab.cut(&mut client);
    lab.pass(&mut client, 20);
    let primary = lab.primary_of("o");
    let watches: Vec<u8> = lab.osds[primary].watch_ops.clone();
    assert_eq!(watches.first(), Some(&Watch::WATCH));
    assert!(watches.contains(&Watch::RECONNECT) && watches.contains(&Watch::PING), "{watches:?}");
    lab.run(&mut client, watch.unwatch()).unwrap();
    assert_eq!(lab.osds[primary].watch_ops.last(), Some(&Watch::UNWATCH));
}

#[test]
fn a_pool_that_never_was_is_enoent_and_one_to_come_is_waited_for() {
    let mut lab = Lab::new();
    let (mut client, handle) = lab.client(|_| {});
    lab.run(&mut client, handle.connect()).unwrap();
    let gone = handle.pool_by_id(types::PoolId(99));
    assert_eq!(lab.run(&mut client, gone.write_full(b"o", data("x"))).unwrap_err(), Errno::ENOENT);
    lab.add_pool(7, "q");
    let io = handle.pool_by_id(types::PoolId(7));
    lab.run(&mut client, io.write_full(b"o", data("x"))).unwrap();
}
