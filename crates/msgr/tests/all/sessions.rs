//! Endpoints that talk to each other over a network in memory.



use bytes::Bytes;
use msgr::{Config, Event, Fault, MODE_CRC, MODE_SECURE, PeerInfo, Policy};
use crate::net::{FEATURES, Net, addrs, sock_addr};
use rand::Rng;
use types::msg::{BufList, RawMessage};
use types::{EntityKind, Now};

/// A message whose parts are of all sizes, as `tid` decides.
fn message(tid: u64) -> RawMessage {
    let part = |len: u64, seed: u64| Bytes::from((0..len).map(|i| (i * 7 + seed) as u8).collect::<Vec<_>>());
    let mut data = BufList::default();
    (0..tid % 3).for_each(|i| data.push(part((tid * 977) % 5000, i)));
    let (front, middle) = (part(tid * 31 % 1500, tid), part(tid % 4 * 17, tid));
    RawMessage { kind: 42, version: 8, compat: 3, priority: 63, tid, front, middle, data }
}

/// A message with every part, and few bytes for tests that try each of them.
fn tiny(tid: u64) -> RawMessage {
    let part = |text: &'static str| Bytes::from_static(text.as_bytes());
    let data = BufList::from(vec![part("some "), part("data")]);
    RawMessage { kind: 1, tid, front: part("front"), middle: part("middle"), data, ..RawMessage::default() }
}

fn flat(mut msg: RawMessage) -> RawMessage {
    msg.data = msg.data.contiguous().into();
    msg
}

fn messages(net: &Net, node: usize) -> Vec<RawMessage> {
    let message = |e: &Event| if let Event::Message { msg, .. } = e { Some(flat(msg.clone())) } else { None };
    net.nodes[node].events.iter().filter_map(message).collect()
}

fn peer(net: &Net, node: usize) -> PeerInfo {
    let peer = |e: &Event| if let Event::Ready { peer, .. } = e { Some(peer.clone()) } else { None };
    net.nodes[node].events.iter().find_map(peer).expect("ready")
}

#[test]
fn messages_of_all_shapes_arrive_whole_in_both_modes_and_any_chunks() {
    for mode in [MODE_CRC, MODE_SECURE] {
        for chunk in [1, 13, 4096, usize::MAX] {
            let mut net = Net::new(1);
            net.chunk = chunk;
            let (osd, client) = (net.daemon(EntityKind::OSD, 6800), net.client(5));
            net.nodes[osd].mode = mode;
            let now = net.now;
            let conn = net.nodes[client].endpoint.connect(now, EntityKind::OSD, &addrs(6800), Policy::LossyClient);
            (1..40).for_each(|tid| net.nodes[client].endpoint.send(now, conn, message(tid)));
            net.settle();
            assert_eq!(messages(&net, osd), (1..40).map(|tid| flat(message(tid))).collect::<Vec<_>>(), "{mode} {chunk}");
            let back = net.ready(osd)[0];
            (1..40).for_each(|tid| net.nodes[osd].endpoint.send(now, back, message(tid)));
            net.settle();
            assert_eq!(messages(&net, client).len(), 39);
            let (seen, seer) = (peer(&net, osd), peer(&net, client));
            assert_eq!((seen.kind, seen.num, seen.global_id, seen.mode, seen.lossy), (EntityKind::CLIENT, -1, 4123, mode, true));
            assert_eq!((seer.kind, seer.num, seer.features, seer.mode), (EntityKind::OSD, 6800, FEATURES, mode));
            assert_eq!(seen.addrs.to_string(), "10.0.0.1:0/5");
        }
    }
}

#[test]
fn a_signature_under_another_key_ends_the_socket_on_both_sides() {
    let mut net = Net::new(1);
    let (osd, client) = (net.daemon(EntityKind::OSD, 6800), net.client(5));
    net.nodes[client].key = Bytes::from_static(b"another");
    let now = net.now;
    net.nodes[client].endpoint.connect(now, EntityKind::OSD, &addrs(6800), Policy::LossyClient);
    net.settle();
    for node in [osd, client] {
        assert!(net.ready(node).is_empty());
        let why = |e: &Event| matches!(e, Event::Reset { why: Fault::Signature | Fault::Closed, .. });
        assert!(net.nodes[node].events.iter().any(why), "{:?}", net.nodes[node].events);
    }
}

#[test]
fn a_lossy_session_dies_with_its_socket() {
    let mut net = Net::new(1);
    let (osd, client) = (net.daemon(EntityKind::OSD, 6800), net.client(5));
    let now = net.now;
    let conn = net.nodes[client].endpoint.connect(now, EntityKind::OSD, &addrs(6800), Policy::LossyClient);
    net.settle();
    let end = *net.peers.keys().next().expect("a socket");
    net.cut(end);
    for node in [osd, client] {
        assert!(matches!(net.nodes[node].events.last(), Some(Event::Reset { why: Fault::Closed, .. })));
        assert_eq!(net.nodes[node].endpoint.session_count(), 0);
    }
    net.nodes[client].endpoint.send(now, conn, message(1));
    net.settle();
}

#[test]
fn a_dial_that_fails_resets_a_lossy_session() {
    let mut net = Net::new(1);
    let client = net.client(5);
    let now = net.now;
    let conn = net.nodes[client].endpoint.connect(now, EntityKind::OSD, &addrs(6801), Policy::LossyClient);
    net.settle();
    assert_eq!(net.nodes[client].events, [Event::Reset { conn, why: Fault::Closed }]);
}

#[test]
fn a_peer_without_required_features_is_told_and_refused() {
    let mut net = Net::new(1);
    let mut config = Config::new(EntityKind::OSD, 0, addrs(6800), FEATURES);
    config.features_required = 1 << 62;
    let (_, client) = (net.add(config, 6800), net.client(5));
    let now: Now = net.now;
    let conn = net.nodes[client].endpoint.connect(now, EntityKind::OSD, &addrs(6800), Policy::LossyClient);
    net.settle();
    assert_eq!(net.nodes[client].events, [Event::Reset { conn, why: Fault::MissingFeatures(1 << 62) }]);
}

/// Two OSDs that keep one lossless session between them.
fn peers(seed: u64, mode: u32) -> Net {
    let mut net = Net::new(seed);
    for port in [6800, 6801] {
        let mut config = Config::new(EntityKind::OSD, port.into(), addrs(port), FEATURES);
        config.accept = vec![(EntityKind::OSD, Policy::LosslessPeer)];
        let node = net.add(config, port);
        net.nodes[node].mode = mode;
    }
    net
}

/// An OSD that other OSDs reach elsewhere says so to them, and to nobody else: stock clients compare what it says of itself with the map.
#[test]
fn two_networks_have_one_identity_each() {
    let mut net = Net::new(1);
    for port in [6800, 6801] {
        let mut config = Config::new(EntityKind::OSD, port.into(), addrs(port), FEATURES);
        config.back_addrs = addrs(port + 1000);
        config.accept = vec![(EntityKind::OSD, Policy::LosslessPeer)];
        net.add(config, port);
    }
    let client = net.client(5);
    let now = net.now;
    let dial = |net: &mut Net, from: usize, kind, to: u16, policy| {
        let conn = net.nodes[from].endpoint.connect(now, kind, &addrs(to), policy);
        net.nodes[from].endpoint.send(now, conn, message(to.into()));
        net.settle();
    };
    let idents = |net: &mut Net, node: usize| {
        let all: Vec<(String, bool)> = std::mem::take(&mut net.nodes[node].events).into_iter().filter_map(|e| match e {
            Event::Ready { peer, .. } => Some((peer.addrs.to_string(), peer.lossy)),
            _ => None,
        }).collect();
        all
    };
    let ident = |port: u16, lossy: bool| vec![(addrs(port).to_string(), lossy)];
    dial(&mut net, client, EntityKind::OSD, 6801, Policy::LossyClient);
    assert_eq!(idents(&mut net, client), ident(6801, true));
    idents(&mut net, 1);
    // Pings over the public network.
    dial(&mut net, 0, EntityKind::OSD, 6801, Policy::LossyClient);
    assert_eq!((idents(&mut net, 0), idents(&mut net, 1)), (ident(6801, true), ident(6800, true)));
    // Both dial the other: one session.
    dial(&mut net, 0, EntityKind::OSD, 7801, Policy::LosslessPeer);
    assert_eq!((idents(&mut net, 0), idents(&mut net, 1)), (ident(7801, false), ident(7800, false)));
    dial(&mut net, 1, EntityKind::OSD, 7800, Policy::LosslessPeer);
    assert_eq!((idents(&mut net, 0), idents(&mut net, 1)), (vec![], vec![]));
    assert_eq!((net.nodes[0].endpoint.session_count(), net.nodes[1].endpoint.session_count()), (2, 3));
}

/// Sends `tid` from a node to the other, whichever of them opens the session.
fn send(net: &mut Net, from: usize, tid: u64) {
    send_msg(net, from, message(tid));
}

fn send_msg(net: &mut Net, from: usize, msg: RawMessage) {
    let (now, to) = (net.now, [6801, 6800][from]);
    let endpoint = &mut net.nodes[from].endpoint;
    let conn = endpoint.connect(now, EntityKind::OSD, &addrs(to), Policy::LosslessPeer);
    endpoint.send(now, conn, msg);
}

fn resets(net: &Net) -> usize {
    net.nodes.iter().flat_map(|n| &n.events).filter(|e| matches!(e, Event::Reset { why: Fault::SessionReset, .. })).count()
}

#[test]
fn a_session_that_loses_its_socket_in_silence_says_so_once_and_goes_on_when_there_is_something_to_say() {
    let mut net = peers(1, MODE_CRC);
    send(&mut net, 0, 1);
    net.run_until(10_000_000_000);
    let end = *net.peers.keys().next().expect("a socket");
    net.cut(end);
    net.run_until(60_000_000_000);
    for node in 0..2 {
        let told = net.nodes[node].events.iter().filter(|e| matches!(e, Event::Standby { .. })).count();
        assert_eq!((told, net.nodes[node].endpoint.session_count()), (1, 1));
    }
    send(&mut net, 1, 2);
    net.run_until(70_000_000_000);
    assert_eq!((net.received(0), net.received(1), resets(&net)), (vec![2], vec![1], 0));
}

#[test]
fn who_has_lost_its_socket_dials_at_once_then_soon_and_then_less_and_less_often() {
    let mut net = peers(1, MODE_CRC);
    send(&mut net, 0, 1);
    net.settle();
    send(&mut net, 0, 2);
    // It is gone, and nobody is at its address any more.
    net.nodes[1].addr = sock_addr(9);
    let end = *net.peers.keys().find(|end| end.0 == 0).expect("a socket");
    net.cut(end);
    let waits: Vec<u64> = (0..4).map(|_| {
        let (now, at) = (net.now.mono, net.nodes[0].endpoint.next_timeout().expect("it dials again"));
        net.now.mono = at;
        net.nodes[0].endpoint.handle_timeout(net.now);
        net.drain(0);
        (at - now).as_millis() as u64
    }).collect();
    assert_eq!(waits, [10, 200, 400, 800], "the first dial fails at once");
}

#[test]
fn what_comes_is_acknowledged_by_the_next_message_or_in_a_while_or_when_it_is_much() {
    const ACK: u64 = 32 + 8 + 4;
    let mut net = peers(1, MODE_CRC);
    (0..2).for_each(|from| send_msg(&mut net, from, tiny(1)));
    net.run_until(10_000_000_000);
    let from = |net: &mut Net, node: usize, n: u64| {
        let before = net.delivered;
        (0..n).for_each(|_| send_msg(net, node, tiny(2)));
        net.settle();
        net.delivered - before
    };
    let one = from(&mut net, 0, 1);
    assert_eq!(from(&mut net, 1, 1), one, "the answer says it");
    let before = net.delivered;
    net.run_until(20_000_000_000);
    assert_eq!(net.delivered - before, ACK, "and of the answer there is a word, once");
    assert_eq!(from(&mut net, 0, 63), 63 * one);
    assert_eq!(from(&mut net, 0, 1), one + ACK);
    let large = RawMessage { data: Bytes::from(vec![1; 300 << 10]).into(), ..tiny(3) };
    let before = net.delivered;
    send_msg(&mut net, 0, large);
    net.settle();
    assert_eq!(net.delivered - before, one - 9 + (300 << 10) + ACK);
    let before = net.delivered;
    net.run_until(60_000_000_000);
    assert_eq!(net.delivered, before, "nothing is owed");
}

#[test]
fn a_cut_at_every_byte_of_a_lossless_session_loses_and_repeats_nothing() {
    for mode in [MODE_CRC, MODE_SECURE] {
        let run = |cut| {
            let mut net = peers(1, mode);
            net.cut_after = cut;
            (1..=3).for_each(|tid| (0..2).for_each(|from| send_msg(&mut net, from, tiny(tid))));
            net.run_until(60_000_000_000);
            net
        };
        for cut in 0..run(None).delivered {
            let mut net = run(Some(cut));
            for node in 0..2 {
                assert_eq!(net.received(node), [1, 2, 3], "mode {mode}, node {node}, cut at {cut}");
            }
            assert_eq!((net.cuts, resets(&net)), (1, 0), "cut at {cut}");
        }
    }
}

#[test]
fn random_cuts_chunks_and_senders_lose_and_repeat_nothing() {
    for seed in 0..40 {
        let mut net = peers(seed, [MODE_CRC, MODE_SECURE][seed as usize % 2]);
        let mut sent = [0, 0];
        for _ in 0..40 {
            net.chunk = [1, 7, 100, 5000, usize::MAX][net.rng.random_range(0..5)];
            net.cut_after = Some(net.rng.random_range(0..20_000));
            for _ in 0..net.rng.random_range(0..5) {
                let from = net.rng.random_range(0..2);
                sent[from] += 1;
                send(&mut net, from, sent[from]);
            }
            if net.rng.random_bool(0.5) {
                net.settle();
            } else {
                let until = net.now.mono.0 + net.rng.random_range(0..2_000_000_000);
                net.run_until(until);
            }
        }
        net.cut_after = None;
        let until = net.now.mono.0 + 120_000_000_000;
        net.run_until(until);
        for node in 0..2 {
            assert_eq!(net.received(node), (1..=sent[1 - node]).collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(net.nodes[node].endpoint.session_count(), 1, "seed {seed}");
        }
        assert_eq!(resets(&net), 0, "seed {seed}");
    }
}

#[test]
fn a_peer_that_forgot_the_session_resets_it_and_a_new_one_begins() {
    let mut net = peers(1, MODE_CRC);
    send(&mut net, 0, 1);
    net.settle();
    assert_eq!(net.received(1), [1]);
    let conn = net.ready(1)[0];
    net.nodes[1].endpoint.close(conn);
    send(&mut net, 0, 2);
    net.settle();
    send(&mut net, 0, 3);
    net.run_until(60_000_000_000);
    assert_eq!(resets(&net), 1, "{:?}", net.nodes[0].events);
    send(&mut net, 0, 4);
    net.run_until(120_000_000_000);
    assert_eq!(net.received(1).last(), Some(&4));
}

#[test]
fn any_changed_byte_is_noticed_and_repaired_by_a_lossless_session() {
    for mode in [MODE_CRC, MODE_SECURE] {
        let run = |flip| {
            let mut net = peers(1, mode);
            net.flip_at = flip;
            (1..=4).for_each(|tid| send_msg(&mut net, 0, tiny(tid)));
            net.run_until(60_000_000_000);
            net
        };
        for flip in 0..run(None).delivered {
            let net = run(Some(flip));
            assert_eq!(messages(&net, 1), (1..=4).map(|tid| flat(tiny(tid))).collect::<Vec<_>>(), "mode {mode}, byte {flip}");
        }
    }
}

#[test]
fn a_checksum_that_data_came_with_is_sent_and_checked_and_what_arrives_has_one() {
    for (crc, arrives) in [(denc::crc32c(b"some data"), true), (denc::crc32c(b"some dat!"), false)] {
        let mut net = Net::new(1);
        let (osd, client) = (net.daemon(EntityKind::OSD, 6800), net.client(5));
        net.nodes[osd].mode = MODE_CRC;
        let now = net.now;
        let conn = net.nodes[client].endpoint.connect(now, EntityKind::OSD, &addrs(6800), Policy::LossyClient);
        let mut msg = tiny(1);
        msg.data.set_crc(crc);
        net.nodes[client].endpoint.send(now, conn, msg);
        net.settle();
        let events = &net.nodes[osd].events;
        let sums: Vec<_> = events.iter().filter_map(|e| if let Event::Message { msg, .. } = e { Some(msg.data.crc()) } else { None }).collect();
        assert_eq!(sums, if arrives { vec![Some(crc)] } else { vec![] });
        assert_eq!(events.iter().any(|e| matches!(e, Event::Reset { why: Fault::SegmentCrc, .. })), !arrives);
    }
}

#[test]
fn large_data_arrives_in_any_chunks_with_the_checksums_of_its_blocks() {
    let large = |len: usize| {
        let data: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
        RawMessage { data: Bytes::from(data).into(), ..tiny(1) }
    };
    // The second takes longer than the first to come, and is followed by a small one.
    for len in [4096, 8191, 8192, 200_000, 655_360, 700_123] {
        for chunk in [13, 5000, 65_536, 100_000, usize::MAX] {
            let mut net = peers(1, MODE_CRC);
            net.chunk = chunk;
            let sent = [tiny(7), large(len), tiny(8), large(len)];
            sent.iter().for_each(|msg| send_msg(&mut net, 0, msg.clone()));
            net.settle();
            assert_eq!(messages(&net, 1), sent.clone().map(flat), "{len} in {chunk}");
            for e in &net.nodes[1].events {
                let Event::Message { msg, .. } = e else { continue };
                let bytes = msg.data.contiguous();
                let blocks = if bytes.len() < 8192 { vec![] } else { bytes.chunks_exact(4096).map(denc::crc32c).collect() };
                assert_eq!((msg.data.crc(), msg.data.block_crcs()), (Some(denc::crc32c(&bytes)), &blocks[..]), "{len} in {chunk}");
            }
        }
    }
}

#[test]
fn of_large_data_under_way_is_told_once_where_it_begins_and_ends() {
    // Less is not worth it.
    for (len, times) in [(1_048_575, 0), (1_200_000, 2), (2_000_123, 2)] {
        let data: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
        let large = RawMessage { data: Bytes::from(data.clone()).into(), ..tiny(1) };
        for chunk in [999, 5000, 65_536, 100_000] {
            for mode in [MODE_CRC, MODE_SECURE] {
                let mut net = peers(1, mode);
                net.chunk = chunk;
                send_msg(&mut net, 0, tiny(6));
                net.settle();
                [large.clone(), tiny(7), large.clone()].into_iter().for_each(|msg| send_msg(&mut net, 0, msg));
                net.drain(0);
                // What begins in a chunk is not what begins a buffer of the sender's.
                net.pipes.values_mut().for_each(|pipe| *pipe = [pipe.drain(..).flatten().collect()].into());
                net.settle();
                assert_eq!((messages(&net, 1).len(), net.expected.len()), (4, if mode == MODE_CRC { times } else { 0 }), "{len} in {chunk}");
                for e in &net.expected {
                    assert!(net.brought[&e.end][e.data.start as usize..e.data.end as usize] == data, "{len} in {chunk}");
                }
            }
        }
    }
}

#[test]
fn a_changed_byte_of_large_data_is_noticed_however_it_comes() {
    let large = || RawMessage { data: Bytes::from(vec![7; 300_000]).into(), ..tiny(1) };
    for chunk in [5000, 100_000, usize::MAX] {
        for flip in (0..300_000).step_by(9973) {
            let mut net = peers(1, MODE_CRC);
            (net.chunk, net.flip_at) = (chunk, Some(2000 + flip));
            (0..2).for_each(|_| send_msg(&mut net, 0, large()));
            net.run_until(60_000_000_000);
            assert_eq!(messages(&net, 1), vec![flat(large()); 2], "byte {flip} in {chunk}");
            assert!(net.delivered > 850_000, "sent again: {}", net.delivered);
        }
    }
}

#[test]
fn any_changed_byte_ends_a_lossy_session_or_leaves_it_whole() {
    for mode in [MODE_CRC, MODE_SECURE] {
        for flip in 0..2000 {
            let mut net = Net::new(1);
            let (osd, client) = (net.daemon(EntityKind::OSD, 6800), net.client(5));
            net.nodes[osd].mode = mode;
            net.flip_at = Some(flip);
            let now = net.now;
            let conn = net.nodes[client].endpoint.connect(now, EntityKind::OSD, &addrs(6800), Policy::LossyClient);
            (1..=4).for_each(|tid| net.nodes[client].endpoint.send(now, conn, tiny(tid)));
            net.settle();
            let got = messages(&net, osd);
            let sent: Vec<_> = (1..=4).map(|tid| flat(tiny(tid))).collect();
            assert!(sent.starts_with(&got), "mode {mode}, byte {flip}");
            if flip < net.delivered && got.len() < 4 {
                let reset = |e: &Event| matches!(e, Event::Reset { .. });
                let waits = net.nodes[client].endpoint.next_timeout().is_some();
                assert!(net.nodes[client].events.iter().any(reset) || waits, "mode {mode}, byte {flip}");
            }
        }
    }
}

#[test]
fn keepalives_are_answered_and_a_mute_monitor_is_given_up() {
    let mut net = Net::new(1);
    let (mon, client) = (net.daemon(EntityKind::MON, 3300), net.client(5));
    let now = net.now;
    net.nodes[client].endpoint.connect(now, EntityKind::MON, &addrs(3300), Policy::LossyClient);
    net.run_until(65_000_000_000);
    let acks = |net: &Net| net.nodes[client].events.iter().filter(|e| matches!(e, Event::KeepaliveAck { .. })).count();
    assert_eq!((acks(&net), net.ready(mon).len()), (6, 1));
    // The monitor's machine vanishes: nothing arrives any more, nothing closes.
    net.peers.clear();
    net.pipes.clear();
    net.run_until(200_000_000_000);
    assert!(matches!(net.nodes[client].events.last(), Some(Event::Reset { why: Fault::KeepaliveTimeout, .. })));
}

#[test]
fn an_idle_accepted_socket_is_closed() {
    let mut net = Net::new(1);
    let (osd, client) = (net.daemon(EntityKind::OSD, 6800), net.client(5));
    let now = net.now;
    net.nodes[client].endpoint.connect(now, EntityKind::OSD, &addrs(6800), Policy::LossyClient);
    net.run_until(1_000_000_000_000);
    assert!(matches!(net.nodes[osd].events.last(), Some(Event::Reset { why: Fault::Idle, .. })));
    assert!(matches!(net.nodes[client].events.last(), Some(Event::Reset { why: Fault::Closed, .. })));
}
