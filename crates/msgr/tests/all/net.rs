//! A network in memory for any number of endpoints: seeded, in order, in chunks of any size, with cuts.

use bytes::Bytes;
use msgr::{Action, Config, ConnId, Endpoint, Event, SockId};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use types::{AddrKind, AddrVec, EntityAddr, EntityKind, Errno, Mono, Now, Utime};

pub const SECRET: &[u8] = &[7; 40];
pub const KEY: &[u8] = b"session key";
pub const FEATURES: u64 = 0x3f01cfbdfffdffff;

/// Which endpoint, and which of its sockets.
pub type End = (usize, SockId);

pub struct Node {
    pub endpoint: Endpoint,
    pub addr: SocketAddr,
    pub back: Option<SocketAddr>,
    /// Everything its owner was told, except authentication.
    pub events: Vec<Event>,
    /// The mode it grants peers that connect.
    pub mode: u32,
    /// Keys it hands its endpoint.
    pub key: Bytes,
}

/// Data that an endpoint said it expects.
pub struct Expected {
    pub end: End,
    /// Where it said the data would be in what comes.
    pub data: Range<u64>,
}

pub struct Net {
    pub nodes: Vec<Node>,
    /// Bytes under way to an end.
    pub pipes: BTreeMap<End, VecDeque<Bytes>>,
    pub peers: BTreeMap<End, End>,
    pub now: Now,
    pub rng: ChaCha8Rng,
    /// The largest chunk delivered at once.
    pub chunk: usize,
    /// Bytes still delivered before the next cut of the socket they travel on.
    pub cut_after: Option<u64>,
    pub cuts: u64,
    /// Changes a byte at this position of everything delivered.
    pub flip_at: Option<u64>,
    pub delivered: u64,
    /// Everything delivered.
    pub brought: BTreeMap<End, Vec<u8>>,
    pub expected: Vec<Expected>,
    next_accepted: u64,
}

/// An address with a nonce, for a daemon.
pub fn addrs(port: u16) -> AddrVec {
    AddrVec(vec![EntityAddr::msgr2(sock_addr(port), u32::from(port))])
}

/// What a client has for an address.
pub fn blank(nonce: u32) -> AddrVec {
    AddrVec(vec![EntityAddr { kind: AddrKind::ANY, nonce, sock: None }])
}

pub fn sock_addr(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

impl Net {
    pub fn new(seed: u64) -> Self {
        Net {
            nodes: Vec::new(),
            pipes: BTreeMap::new(),
            peers: BTreeMap::new(),
            now: Now { mono: Mono(1), wall: Utime { sec: 1_700_000_000, nsec: 0 } },
            rng: ChaCha8Rng::seed_from_u64(seed),
            chunk: usize::MAX,
            cut_after: None,
            cuts: 0,
            flip_at: None,
            delivered: 0,
            brought: BTreeMap::new(),
            expected: Vec::new(),
            next_accepted: 0,
        }
    }

    pub fn add(&mut self, config: Config, port: u16) -> usize {
        let back = config.back_addrs.msgr2().and_then(|a| a.sock);
        let endpoint = Endpoint::new(config, u64::from(port));
        let key = Bytes::from_static(KEY);
        self.nodes.push(Node { endpoint, addr: sock_addr(port), back, events: Vec::new(), mode: msgr::MODE_CRC, key });
        self.nodes.len() - 1
    }

    /// A daemon of `kind`.
    pub fn daemon(&mut self, kind: EntityKind, port: u16) -> usize {
        self.add(Config::new(kind, port.into(), addrs(port), FEATURES), port)
    }

    pub fn client(&mut self, nonce: u16) -> usize {
        self.add(Config::new(EntityKind::CLIENT, -1, blank(nonce.into()), FEATURES), nonce)
    }

    /// Runs until nothing moves; timers do not fire.
    pub fn settle(&mut self) {
        loop {
            for node in 0..self.nodes.len() {
                self.drain(node);
            }
            let ready: Vec<End> = self.pipes.iter().filter(|(_, q)| !q.is_empty()).map(|(e, _)| *e).collect();
            if ready.is_empty() {
                return;
            }
            let end = ready[self.rng.random_range(0..ready.len())];
            self.deliver(end);
        }
    }

    /// Runs until nothing moves and no timer is due before `until` (nanoseconds).
    pub fn run_until(&mut self, until: u64) {
        loop {
            self.settle();
            let next = self.nodes.iter().filter_map(|n| n.endpoint.next_timeout()).min();
            let Some(at) = next.filter(|at| at.0 <= until) else { return };
            self.now.mono = self.now.mono.max(at);
            for node in 0..self.nodes.len() {
                let now = self.now;
                self.nodes[node].endpoint.handle_timeout(now);
                self.drain(node);
            }
        }
    }

    pub fn deliver(&mut self, end: End) {
        let Some(queue) = self.pipes.get_mut(&end) else { return };
        let Some(front) = queue.front_mut() else { return };
        let mut n = front.len().min(self.chunk);
        if let Some(left) = self.cut_after {
            n = n.min(left as usize);
            self.cut_after = Some(left - n as u64);
        }
        let mut bytes = front.split_to(n);
        if front.is_empty() {
            queue.pop_front();
        }
        if let Some(at) = self.flip_at.filter(|at| (self.delivered..self.delivered + n as u64).contains(at)) {
            let mut changed = bytes.to_vec();
            changed[(at - self.delivered) as usize] ^= 1 << (at % 8);
            bytes = changed.into();
        }
        self.delivered += n as u64;
        let now = self.now;
        if n > 0 {
            self.brought.entry(end).or_default().extend_from_slice(&bytes);
            self.nodes[end.0].endpoint.handle_bytes(now, end.1, bytes);
            let expected = self.nodes[end.0].endpoint.expected(end.1);
            self.expected.extend(expected.map(|data| Expected { end, data }));
            self.drain(end.0);
        }
        if self.cut_after == Some(0) {
            self.cut_after = None;
            self.cut(end);
        }
    }

    /// Ends a socket for both.
    pub fn cut(&mut self, end: End) {
        self.cuts += 1;
        let other = self.peers.get(&end).copied();
        for e in [Some(end), other].into_iter().flatten() {
            self.pipes.remove(&e);
            self.peers.remove(&e);
            let now = self.now;
            self.nodes[e.0].endpoint.handle_closed(now, e.1);
            self.drain(e.0);
        }
    }

    pub fn drain(&mut self, node: usize) {
        loop {
            if let Some(action) = self.nodes[node].endpoint.poll_action() {
                self.act(node, action);
            } else if let Some(event) = self.nodes[node].endpoint.poll_event() {
                self.own(node, event);
            } else {
                return;
            }
        }
    }

    fn act(&mut self, node: usize, action: Action) {
        let now = self.now;
        match action {
            Action::Dial { sock, addr } => {
                let local = self.nodes[node].addr;
                let Some(to) = self.nodes.iter().position(|n| n.addr == addr || n.back == Some(addr)) else {
                    return self.nodes[node].endpoint.handle_closed(now, sock);
                };
                let accepted = SockId(SockId::ACCEPTED | self.next_accepted);
                self.next_accepted += 1;
                let (a, b) = ((node, sock), (to, accepted));
                self.pipes.extend([(a, VecDeque::new()), (b, VecDeque::new())]);
                self.peers.extend([(a, b), (b, a)]);
                self.nodes[to].endpoint.handle_accepted(now, accepted, local, addr);
                self.nodes[node].endpoint.handle_connected(now, sock, local);
                self.drain(to);
            }
            Action::Transmit { sock, bufs } => {
                let pipe = self.peers.get(&(node, sock)).copied().and_then(|e| self.pipes.get_mut(&e));
                if let Some(pipe) = pipe {
                    pipe.extend(bufs);
                }
            }
            Action::Close { sock } => {
                let end = (node, sock);
                self.pipes.remove(&end);
                if let Some(other) = self.peers.remove(&end) {
                    // What is under way still arrives, then the end.
                    for bytes in self.pipes.remove(&other).unwrap_or_default() {
                        self.nodes[other.0].endpoint.handle_bytes(now, other.1, bytes);
                        self.drain(other.0);
                    }
                    self.peers.remove(&other);
                    self.nodes[other.0].endpoint.handle_closed(now, other.1);
                    self.drain(other.0);
                }
            }
        }
    }

    /// Authentication as a friendly owner does it: one round of more, then done.
    fn own(&mut self, node: usize, event: Event) {
        let n = &mut self.nodes[node];
        let (key, secret) = (n.key.clone(), Bytes::from_static(SECRET));
        let e = &mut n.endpoint;
        match event {
            Event::AuthStart { conn } => e.auth_request(conn, 2, vec![2, 1], Bytes::from_static(b"hello")),
            Event::AuthReplyMore { conn, .. } => e.auth_request_more(conn, Bytes::from_static(b"proof")),
            Event::AuthDone { conn, .. } => e.auth_client_done(conn, key, secret),
            Event::AuthRequest { conn, first: true, method: 2, .. } => {
                e.auth_reply_more(conn, Bytes::from_static(b"challenge"));
            }
            Event::AuthRequest { conn, first: true, method, .. } => {
                e.auth_bad_method(conn, method, Errno::EOPNOTSUPP, vec![2], vec![2, 1]);
            }
            Event::AuthRequest { conn, .. } => {
                e.auth_server_done(conn, 4123, n.mode, Bytes::from_static(b"welcome"), key, secret);
            }
            other => n.events.push(other),
        }
    }

    /// Tids of the messages a node was given, and clears them.
    pub fn received(&mut self, node: usize) -> Vec<u64> {
        let events = std::mem::take(&mut self.nodes[node].events);
        let tids = |e: &Event| if let Event::Message { msg, .. } = e { Some(msg.tid) } else { None };
        let got = events.iter().filter_map(tids).collect();
        self.nodes[node].events = events.into_iter().filter(|e| tids(e).is_none()).collect();
        got
    }

    /// The sessions a node has heard are ready.
    pub fn ready(&self, node: usize) -> Vec<ConnId> {
        let ready = |e: &Event| if let Event::Ready { conn, .. } = e { Some(*conn) } else { None };
        self.nodes[node].events.iter().filter_map(ready).collect()
    }
}
