//! What a message costs in this crate: two endpoints in memory, a 4 KiB write and its reply at a time.
//!
//! `cargo run --release -p msgr --example throughput`

#![allow(clippy::disallowed_methods, reason = "it measures")]

use bytes::Bytes;
use msgr::{Action, Config, ConnId, Endpoint, Event, MODE_CRC, MODE_SECURE, Policy, SockId};
use std::net::SocketAddr;
use std::time::Instant;
use types::msg::RawMessage;
use types::{AddrKind, AddrVec, EntityAddr, EntityKind, Now};

const ROUNDS: u32 = 300_000;
const FEATURES: u64 = 1 << 59;

fn addr() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 6800))
}

struct Pair {
    ends: [Endpoint; 2],
    socks: [SockId; 2],
    ready: [Option<ConnId>; 2],
    received: [u32; 2],
    mode: u32,
}

impl Pair {
    /// Moves everything in flight; bytes travel as one buffer per transmit, as a socket would hand them over.
    fn settle(&mut self) {
        let mut quiet = false;
        while !quiet {
            quiet = true;
            for i in 0..2 {
                while let Some(event) = self.ends[i].poll_event() {
                    self.own(i, event);
                }
                while let Some(action) = self.ends[i].poll_action() {
                    quiet = false;
                    if let Action::Transmit { bufs, .. } = action {
                        let data = Bytes::from(bufs.concat());
                        self.ends[1 - i].handle_bytes(Now::default(), self.socks[1 - i], data);
                    }
                }
            }
        }
    }

    fn own(&mut self, i: usize, event: Event) {
        let (e, none, secret) = (&mut self.ends[i], Bytes::new(), Bytes::from_static(&[7; 40]));
        match event {
            Event::AuthStart { conn } => e.auth_request(conn, 1, vec![1, 2], none),
            Event::AuthDone { conn, .. } => e.auth_client_done(conn, none, secret),
            Event::AuthRequest { conn, .. } => e.auth_server_done(conn, 1, self.mode, none.clone(), none, secret),
            Event::Ready { conn, .. } => self.ready[i] = Some(conn),
            Event::Message { .. } => self.received[i] += 1,
            _ => {}
        }
    }
}

fn main() {
    for mode in [MODE_CRC, MODE_SECURE] {
        let blank = AddrVec(vec![EntityAddr { kind: AddrKind::ANY, nonce: 1, sock: None }]);
        let osd = AddrVec(vec![EntityAddr::msgr2(addr(), 1)]);
        let mut client = Endpoint::new(Config::new(EntityKind::CLIENT, -1, blank, FEATURES), 1);
        let mut server = Endpoint::new(Config::new(EntityKind::OSD, 0, osd.clone(), FEATURES), 2);
        let (now, accepted) = (Now::default(), SockId(SockId::ACCEPTED));
        client.connect(now, EntityKind::OSD, &osd, Policy::LossyClient);
        let Some(Action::Dial { sock, .. }) = client.poll_action() else { return };
        server.handle_accepted(now, accepted, addr(), addr());
        client.handle_connected(now, sock, addr());
        let ends = [client, server];
        let mut pair = Pair { ends, socks: [sock, accepted], ready: [None; 2], received: [0; 2], mode };
        pair.settle();
        let (Some(there), Some(back)) = (pair.ready[0], pair.ready[1]) else { return };
        let (front, data) = (Bytes::from(vec![1; 250]), Bytes::from(vec![2; 4096]));
        let write = RawMessage { kind: 42, front, data: data.into(), ..RawMessage::default() };
        let reply = RawMessage { kind: 43, front: Bytes::from(vec![1; 150]), ..RawMessage::default() };
        let start = Instant::now();
        for _ in 0..ROUNDS {
            pair.ends[0].send(now, there, write.clone());
            pair.settle();
            pair.ends[1].send(now, back, reply.clone());
            pair.settle();
        }
        let each = start.elapsed() / ROUNDS;
        println!("mode {mode}: {each:?} for a 4 KiB write and its reply, both ends, {:?} received", pair.received);
    }
}
