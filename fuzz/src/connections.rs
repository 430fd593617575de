//! Endpoints that meet bytes: one that accepts everyone, one that dialled.
//!
//! The input's first byte chooses how the rest is cut into chunks.

use bytes::Bytes;
use msgr::{Action, Config, Endpoint, Event, Limits, MODE_CRC, MODE_SECURE, Policy, SockId};
use std::net::SocketAddr;
use types::msg::RawMessage;
use types::{AddrKind, AddrVec, EntityAddr, EntityKind, Mono, Now};

const FEATURES: u64 = types::features::SUPPORTED;
const ACCEPTED: SockId = SockId(SockId::ACCEPTED);
const KEYS: [&[u8]; 2] = [b"", &[7; 40]];

fn at(ns: u64) -> Now {
    Now { mono: Mono(ns), ..Now::default() }
}

fn sock(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn addrs(port: u16) -> AddrVec {
    AddrVec(vec![EntityAddr::msgr2(sock(port), 1)])
}

fn osd() -> Endpoint {
    let limits = Limits { front_bytes_max: 4096, data_bytes_max: 4096, ..Limits::default() };
    let accept = vec![(EntityKind::OSD, Policy::LosslessPeer), (EntityKind::MDS, Policy::StatefulServer)];
    Endpoint::new(Config { limits, accept, ..Config::new(EntityKind::OSD, 0, addrs(1), FEATURES) }, 1)
}

fn client() -> Endpoint {
    let blank = AddrVec(vec![EntityAddr { kind: AddrKind::ANY, nonce: 5, sock: None }]);
    Endpoint::new(Config::new(EntityKind::CLIENT, -1, blank, FEATURES), 1)
}

/// Answers for an owner who trusts everyone; without keys, so that strangers get far.
fn own(e: &mut Endpoint, mode: u32) {
    let none = Bytes::new;
    let secret = Bytes::from_static(if mode == MODE_SECURE { KEYS[1] } else { KEYS[0] });
    while let Some(event) = e.poll_event() {
        match event {
            Event::AuthStart { conn } => e.auth_request(conn, 1, vec![MODE_CRC, MODE_SECURE], none()),
            Event::AuthReplyMore { conn, .. } => e.auth_request_more(conn, none()),
            Event::AuthDone { conn, .. } => e.auth_client_done(conn, none(), secret.clone()),
            Event::AuthRequest { conn, first: true, .. } => e.auth_reply_more(conn, none()),
            Event::AuthRequest { conn, .. } => e.auth_server_done(conn, 7, mode, none(), none(), secret.clone()),
            Event::Ready { conn, .. } => e.send(at(1), conn, RawMessage { kind: 1, tid: 9, ..RawMessage::default() }),
            _ => {}
        }
    }
}

fn play(e: &mut Endpoint, id: SockId, data: &[u8]) {
    let (&how, mut rest) = data.split_first().unwrap_or((&0, &[]));
    let (mode, step) = (if how & 1 == 1 { MODE_SECURE } else { MODE_CRC }, usize::from(how >> 1) + 1);
    own(e, mode);
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(step.min(rest.len()));
        rest = after;
        e.handle_bytes(at(1), id, Bytes::copy_from_slice(chunk));
        own(e, mode);
        while e.poll_action().is_some() {}
    }
    e.handle_timeout(at(u64::MAX / 2));
    e.handle_closed(at(u64::MAX / 2), id);
    own(e, mode);
}

pub fn acceptor(data: &[u8]) {
    let mut e = osd();
    e.handle_accepted(at(0), ACCEPTED, sock(9), sock(1));
    play(&mut e, ACCEPTED, data);
}

pub fn dialler(data: &[u8]) {
    let mut e = client();
    let policy = if data.len().is_multiple_of(2) { Policy::LossyClient } else { Policy::LosslessPeer };
    e.connect(at(0), EntityKind::OSD, &addrs(1), policy);
    let Some(Action::Dial { sock: id, .. }) = e.poll_action() else { return };
    e.handle_connected(at(0), id, sock(9));
    play(&mut e, id, data);
}

/// Hands what one says to the other; false if it says nothing.
fn carry(from: &mut Endpoint, to: &mut Endpoint, to_sock: SockId, mode: u32, said: &mut Vec<u8>) -> bool {
    own(from, mode);
    let before = said.len();
    while let Some(action) = from.poll_action() {
        let Action::Transmit { bufs, .. } = action else { continue };
        said.extend_from_slice(&bufs.concat());
        bufs.into_iter().for_each(|b| to.handle_bytes(at(1), to_sock, b));
    }
    said.len() > before
}

/// What each side of a whole conversation said.
fn recorded(mode: u32) -> [Vec<u8>; 2] {
    let (mut a, mut b) = (client(), osd());
    a.connect(at(0), EntityKind::OSD, &addrs(1), Policy::LosslessClient);
    let Some(Action::Dial { sock: id, .. }) = a.poll_action() else { return Default::default() };
    b.handle_accepted(at(0), ACCEPTED, sock(9), sock(1));
    a.handle_connected(at(0), id, sock(9));
    let mut said = [vec![mode as u8 - 1], vec![mode as u8 - 1]];
    loop {
        let quiet = !carry(&mut a, &mut b, ACCEPTED, mode, &mut said[0]) & !carry(&mut b, &mut a, id, mode, &mut said[1]);
        if quiet {
            return said;
        }
    }
}

pub fn acceptor_seeds() -> Vec<Vec<u8>> {
    [MODE_CRC, MODE_SECURE].map(|mode| recorded(mode)[0].clone()).into()
}

pub fn dialler_seeds() -> Vec<Vec<u8>> {
    [MODE_CRC, MODE_SECURE].map(|mode| recorded(mode)[1].clone()).into()
}
