//! What a stranger may send, and what becomes of it.



use bytes::Bytes;
use msgr::{Action, Config, Endpoint, Event, Fault, Limits, Policy, SockId};
use crate::net::{FEATURES, Net, addrs, sock_addr};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use types::{EntityKind, Mono, Now};

const SOCK: SockId = SockId(SockId::ACCEPTED);

fn at(ns: u64) -> Now {
    Now { mono: Mono(ns), ..Now::default() }
}

/// An OSD with one accepted socket.
fn osd(limits: Limits) -> Endpoint {
    let config = Config { limits, ..Config::new(EntityKind::OSD, 0, addrs(6800), FEATURES) };
    let mut e = Endpoint::new(config, 1);
    e.handle_accepted(at(0), SOCK, sock_addr(1), sock_addr(6800));
    e
}

fn end(e: &mut Endpoint) -> Option<Fault> {
    let mut closed = false;
    while let Some(action) = e.poll_action() {
        closed |= matches!(action, Action::Close { .. });
    }
    let why = std::iter::from_fn(|| e.poll_event()).find_map(|ev| match ev {
        Event::Reset { why, .. } => Some(why),
        _ => None,
    });
    assert_eq!(closed, why.is_some(), "a socket closes exactly when its session ends");
    why
}

#[test]
fn another_protocols_greeting_is_refused_at_its_first_byte() {
    for greeting in ["G", "ceph v027", "\u{16}\u{3}", "ceph v2\nxx"] {
        let mut e = osd(Limits::default());
        e.handle_bytes(at(1), SOCK, Bytes::copy_from_slice(greeting.as_bytes()));
        assert_eq!(end(&mut e), Some(Fault::Banner), "{greeting:?}");
    }
}

#[test]
fn a_peer_of_another_revision_is_refused() {
    let mut e = osd(Limits::default());
    e.handle_bytes(at(1), SOCK, Bytes::from_static(b"ceph v2\n\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"));
    assert_eq!(end(&mut e), Some(Fault::Revision { supported: 0, required: 0 }));
}

#[test]
fn a_handshake_that_stalls_is_given_up_at_its_deadline() {
    let mut e = osd(Limits::default());
    e.handle_bytes(at(1), SOCK, Bytes::from_static(b"ceph"));
    let deadline = e.next_timeout().expect("a deadline");
    e.handle_timeout(at(deadline.0));
    assert_eq!(end(&mut e), Some(Fault::HandshakeTimeout));
    assert_eq!((e.session_count(), e.next_timeout()), (0, None));
}

#[test]
fn handshakes_at_once_are_bounded_and_the_oldest_gives_way() {
    let mut e = osd(Limits { handshakes_max: 3, ..Limits::default() });
    for i in 1..=3 {
        e.handle_accepted(at(i), SockId(SockId::ACCEPTED | i), sock_addr(1), sock_addr(6800));
    }
    let closed: Vec<_> = std::iter::from_fn(|| e.poll_action()).filter(|a| matches!(a, Action::Close { .. })).collect();
    assert_eq!((closed, e.session_count()), (vec![Action::Close { sock: SOCK }], 3));
}

/// What a well-behaved client sends a server that never answers in kind: recorded, then cut, changed and repeated.
fn client_bytes() -> Vec<u8> {
    let mut net = Net::new(1);
    let (_, client) = (net.daemon(EntityKind::OSD, 6800), net.client(5));
    let now = net.now;
    let conn = net.nodes[client].endpoint.connect(now, EntityKind::OSD, &addrs(6800), Policy::LossyClient);
    net.nodes[client].endpoint.send(now, conn, types::msg::RawMessage { kind: 1, tid: 1, ..Default::default() });
    let mut bytes = Vec::new();
    loop {
        (0..2).for_each(|node| net.drain(node));
        let Some((&e, queue)) = net.pipes.iter().find(|(_, q)| !q.is_empty()) else { return bytes };
        if e.0 == 0 {
            queue.iter().for_each(|b| bytes.extend_from_slice(b));
        }
        let n = queue.len();
        (0..n).for_each(|_| net.deliver(e));
    }
}

/// Plays bytes to an OSD that accepts everyone.
fn play(bytes: &[u8], chunks: &mut ChaCha8Rng) -> (Endpoint, Vec<Event>) {
    let (mut e, mut events) = (osd(Limits::default()), Vec::new());
    let mut rest = bytes;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunks.random_range(1..=rest.len()));
        rest = after;
        e.handle_bytes(at(1), SOCK, Bytes::copy_from_slice(chunk));
        while let Some(event) = e.poll_event() {
            let none = Bytes::new();
            match event {
                Event::AuthRequest { conn, first: true, .. } => e.auth_reply_more(conn, none),
                Event::AuthRequest { conn, .. } => {
                    e.auth_server_done(conn, 1, msgr::MODE_CRC, none.clone(), none.clone(), none);
                }
                other => events.push(other),
            }
        }
        while e.poll_action().is_some() {}
    }
    (e, events)
}

#[test]
fn every_truncation_waits_or_ends_and_never_yields_a_message() {
    let bytes = client_bytes();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for n in 0..bytes.len() {
        let (_, events) = play(&bytes[..n], &mut rng);
        assert!(!events.iter().any(|e| matches!(e, Event::Message { .. })), "{n}");
    }
}

#[test]
fn changed_repeated_and_shuffled_bytes_never_panic_and_end_the_socket() {
    let bytes = client_bytes();
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for _ in 0..3000 {
        let mut bad = bytes.clone();
        for _ in 0..rng.random_range(1..4) {
            let (a, b) = (rng.random_range(0..bad.len()), rng.random_range(0..bad.len()));
            match rng.random_range(0..3) {
                0 => bad[a] = rng.random(),
                1 => bad.extend_from_within(a.min(b)..a.max(b)),
                _ => bad[a.min(b)..].rotate_left(a.max(b) - a.min(b)),
            }
        }
        let (mut e, events) = play(&bad, &mut rng);
        e.handle_timeout(at(20_000_000_000));
        assert!(events.len() < 10);
    }
}

#[test]
fn what_is_sent_ahead_of_authentication_is_bounded() {
    let mut e = osd(Limits { handshake_bytes_max: 4096, ..Limits::default() });
    let bytes = client_bytes();
    // Banner, HELLO, AUTH_REQUEST; the owner thinks about the request while the peer keeps sending.
    e.handle_bytes(at(1), SOCK, bytes[..160].to_vec().into());
    assert!(matches!(e.poll_event(), Some(Event::AuthRequest { .. })), "the request is in the first 160 bytes");
    for _ in 0..50 {
        e.handle_bytes(at(2), SOCK, vec![0; 100].into());
    }
    assert_eq!(end(&mut e), Some(Fault::HandshakeTooLong(4096)));
}
