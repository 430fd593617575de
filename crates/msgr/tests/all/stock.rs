//! A stock monitor and a stock OSD as peers, over real sockets.
//!
//! Wants a running stock cluster, its directory in `STOCK_CEPH`: `make msgr-stock` starts one.

#![allow(clippy::disallowed_methods, reason = "the peer lives in real time")]

use auth::cephx::client::{Authorizer, CephxClient};
use auth::{CryptoKey, Keyring};
use bytes::Bytes;
use msgr::{Action, Config, ConnId, Endpoint, Event, MODE_CRC, MODE_SECURE, PeerInfo, Policy, SockId};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use types::map::OsdMap;
use types::msg::{MMonSubscribe, MOsdMap, RawMessage, SubscribeItem, WireMessage};
use types::{AddrKind, AddrVec, EntityAddr, EntityKind, EntityName, Mono, Now};

/// One thread, sockets polled with a short read timeout: slow and enough.
struct Shell {
    endpoint: Endpoint,
    socks: BTreeMap<SockId, TcpStream>,
    cephx: CephxClient,
    authorizers: BTreeMap<ConnId, Authorizer>,
    modes: Vec<u32>,
    rng: ChaCha8Rng,
    started: Instant,
    ready: BTreeMap<ConnId, PeerInfo>,
    messages: Vec<RawMessage>,
    acks: u32,
}

impl Shell {
    fn new(modes: Vec<u32>) -> Self {
        let dir = std::env::var("STOCK_CEPH").expect("STOCK_CEPH names a directory");
        let text = std::fs::read_to_string(format!("{dir}/keyring")).expect("a keyring");
        let name: EntityName = "client.admin".parse().expect("a name");
        let key: CryptoKey = text.parse::<Keyring>().expect("a keyring").key(&name).expect("its key").clone();
        let blank = AddrVec(vec![EntityAddr { kind: AddrKind::ANY, nonce: 4711, sock: None }]);
        let mut config = Config::new(EntityKind::CLIENT, -1, blank, types::features::SUPPORTED);
        config.timing.keepalive = vec![(EntityKind::MON, Duration::from_millis(300))];
        let services = [EntityKind::MON, EntityKind::OSD, EntityKind::MGR];
        Shell {
            endpoint: Endpoint::new(config, 1),
            socks: BTreeMap::new(),
            cephx: CephxClient::new(name, key, &services),
            authorizers: BTreeMap::new(),
            modes,
            rng: ChaCha8Rng::seed_from_u64(std::process::id().into()),
            started: Instant::now(),
            ready: BTreeMap::new(),
            messages: Vec::new(),
            acks: 0,
        }
    }

    fn now(&self) -> Now {
        Now { mono: Mono(self.started.elapsed().as_nanos() as u64 + 1), ..Now::default() }
    }

    fn run(&mut self, what: &str, done: impl Fn(&Shell) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !done(self) {
            assert!(Instant::now() < deadline, "{what} takes too long");
            self.turn();
        }
    }

    fn turn(&mut self) {
        loop {
            if let Some(action) = self.endpoint.poll_action() {
                self.act(action);
            } else if let Some(event) = self.endpoint.poll_event() {
                self.own(event);
            } else {
                break;
            }
        }
        let now = self.now();
        self.endpoint.handle_timeout(now);
        let mut buf = vec![0; 65536];
        for (sock, stream) in std::mem::take(&mut self.socks) {
            let now = self.now();
            match (&stream).read(&mut buf) {
                Ok(0) => self.endpoint.handle_closed(now, sock),
                Ok(n) => {
                    self.endpoint.handle_bytes(now, sock, Bytes::copy_from_slice(&buf[..n]));
                    self.socks.insert(sock, stream);
                }
                Err(_) => drop(self.socks.insert(sock, stream)),
            }
        }
    }

    fn act(&mut self, action: Action) {
        let now = self.now();
        match action {
            Action::Dial { sock, addr } => match TcpStream::connect(addr) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(Duration::from_millis(5))).expect("a timeout");
                    let local = stream.local_addr().expect("an address");
                    self.socks.insert(sock, stream);
                    self.endpoint.handle_connected(now, sock, local);
                }
                Err(_) => self.endpoint.handle_closed(now, sock),
            },
            Action::Transmit { sock, bufs } => {
                if let Some(mut stream) = self.socks.get(&sock) {
                    stream.write_all(&bufs.concat()).expect("written");
                }
            }
            Action::Close { sock } => drop(self.socks.remove(&sock)),
        }
    }

    fn own(&mut self, event: Event) {
        let now = self.now();
        let (cephx, e, rng) = (&mut self.cephx, &mut self.endpoint, &mut self.rng);
        match event {
            Event::AuthStart { conn } => {
                let payload = match self.authorizers.get(&conn) {
                    Some(authorizer) => authorizer.request(rng),
                    None => cephx.begin(),
                };
                e.auth_request(conn, 2, self.modes.clone(), payload);
            }
            Event::AuthReplyMore { conn, payload } => {
                let more = match self.authorizers.get(&conn) {
                    Some(authorizer) => authorizer.handle_more(&payload, rng),
                    None => cephx.handle_more(&payload, rng),
                };
                e.auth_request_more(conn, more.expect("a challenge"));
            }
            Event::AuthDone { conn, global_id, payload, .. } => {
                let keys = match self.authorizers.get(&conn) {
                    Some(authorizer) => authorizer.handle_done(&payload),
                    None => cephx.handle_done(now.mono, global_id, &payload),
                };
                let keys = keys.expect("keys");
                e.auth_client_done(conn, keys.session_key, keys.connection_secret);
            }
            Event::Ready { conn, peer } => drop(self.ready.insert(conn, peer)),
            Event::Message { msg, .. } => self.messages.push(msg),
            Event::KeepaliveAck { .. } => self.acks += 1,
            other => panic!("{other:?}"),
        }
    }
}

fn msgr2(port: u16, nonce: u32) -> AddrVec {
    AddrVec(vec![EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], port)), nonce)])
}

#[test]
#[ignore = "needs a stock cluster"]
fn a_stock_monitor_and_osd_open_sessions_and_answer_in_both_modes() {
    for mode in [MODE_CRC, MODE_SECURE] {
        let mut shell = Shell::new(vec![mode]);
        let mon = shell.endpoint.connect(shell.now(), EntityKind::MON, &msgr2(14300, 0), Policy::LossyClient);
        shell.run("the monitor's session", |s| s.ready.contains_key(&mon));
        let peer = shell.ready[&mon].clone();
        assert_eq!((peer.kind, peer.mode, peer.lossy), (EntityKind::MON, mode, true));
        assert_eq!(peer.global_id, shell.cephx.global_id());
        shell.run("a keepalive", |s| s.acks > 1);

        let mut want = MMonSubscribe::default();
        want.what.insert("osdmap".into(), SubscribeItem::default());
        shell.endpoint.send(shell.now(), mon, want.to_raw(peer.features));
        let is_map = |m: &RawMessage| m.kind == MOsdMap::KIND;
        shell.run("an osdmap", |s| s.messages.iter().any(is_map));
        let maps = shell.messages.iter().find(|m| is_map(m)).map(MOsdMap::from_raw).expect("one").expect("readable");
        let map: OsdMap = denc::from_bytes(maps.full.values().next_back().expect("a full map")).expect("a map");
        let addrs = map.client_addrs.first().expect("osd.0").clone();
        let osd = shell.endpoint.connect(shell.now(), EntityKind::OSD, &addrs, Policy::LossyClient);
        shell.authorizers.insert(osd, shell.cephx.authorizer(EntityKind::OSD, &mut shell.rng).expect("a ticket"));
        shell.run("the OSD's session", |s| s.ready.contains_key(&osd));
        assert_eq!((shell.ready[&osd].num, shell.ready[&osd].mode), (0, mode));
    }
}
