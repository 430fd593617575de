//! Endpoints that talk to each other over a network in memory.

mod net;

use bytes::Bytes;
use msgr::{Config, Event, Fault, MODE_CRC, MODE_SECURE, PeerInfo, Policy};
use net::{FEATURES, Net, addrs};
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
            assert_eq!(seen.addrs.to_string(), "[10.0.0.1:0/5]");
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
