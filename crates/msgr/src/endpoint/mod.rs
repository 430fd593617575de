//! The endpoint: every socket and session of one daemon or client.

mod handshake;
mod session;
mod timer;
mod traffic;

use crate::conn::{Conn, State};
use crate::rx::Incoming;
use crate::sock::{Phase, Sock};
use crate::{Action, Config, ConnId, Event, Fault, Policy, SockId};
use bytes::Bytes;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use timer::Timer;
use types::msg::RawMessage;
use types::{AddrVec, EntityAddr, EntityKind, Mono, Now};

/// All connections of one daemon or client. After every call collect actions and events until there are none.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    /// Our own addresses: configured, or learned from what peers say of us.
    addrs: AddrVec,
    rng: ChaCha8Rng,
    /// The moment of the latest input.
    now: Now,
    socks: BTreeMap<SockId, Sock>,
    conns: BTreeMap<ConnId, Conn>,
    /// Lossless sessions by the peer's address.
    sessions: BTreeMap<EntityAddr, ConnId>,
    /// Accepted sockets without a session, oldest first.
    handshakes: BTreeSet<(Mono, SockId)>,
    timers: BTreeSet<(Mono, Timer)>,
    /// Sockets with something to transmit or to acknowledge.
    dirty: VecDeque<SockId>,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
    /// Counts the sockets we dial and the sessions we accept.
    global_seq: u64,
    next_sock: u64,
    next_conn: u64,
    totals: Totals,
}

/// What an endpoint has done since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    pub received: u64,
    pub sent: u64,
    /// Bytes on the wire, of whatever is in them.
    pub bytes_received: u64,
    pub bytes_sent: u64,
    /// Connections dialled and accepted.
    pub connections: u64,
}

impl Endpoint {
    /// An endpoint without connections; `rng_seed` decides its cookies.
    pub fn new(config: Config, rng_seed: u64) -> Self {
        Endpoint {
            addrs: config.addrs.clone(),
            config,
            rng: ChaCha8Rng::seed_from_u64(rng_seed),
            now: Now::default(),
            socks: BTreeMap::new(),
            conns: BTreeMap::new(),
            sessions: BTreeMap::new(),
            handshakes: BTreeSet::new(),
            timers: BTreeSet::new(),
            dirty: VecDeque::new(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
            global_seq: 0,
            totals: Totals::default(),
            next_sock: 1,
            next_conn: 1,
        }
    }

    /// Changes the number we introduce ourselves with, for a client that learned its global id.
    pub fn set_num(&mut self, num: i64) {
        self.config.num = num;
    }

    /// Changes the addresses we introduce ourselves with, for a daemon that has just bound its port.
    pub fn set_addrs(&mut self, addrs: AddrVec) {
        self.addrs = addrs.clone();
        self.config.addrs = addrs;
    }

    /// Changes the cluster features a peer must have from now on.
    pub fn set_features_required(&mut self, features: u64) {
        self.config.features_required = features;
    }

    /// Opens a session with the daemon at `addrs`. A lossless one that exists already, whichever side opened it, is
    /// returned instead. Messages may be sent at once; they wait for the session.
    pub fn connect(&mut self, now: Now, peer_kind: EntityKind, addrs: &AddrVec, policy: Policy) -> ConnId {
        self.now = now;
        let target = addrs.msgr2();
        let known = target.filter(|_| !policy.lossy()).and_then(|t| self.sessions.get(&t));
        if let Some(&id) = known {
            return id;
        }
        let id = self.new_conn_id();
        let Some(target) = target else {
            self.events.push_back(Event::Reset { conn: id, why: Fault::NoAddress });
            return id;
        };
        let mut conn = Conn::new(State::Connecting, policy, peer_kind, target, addrs.clone());
        conn.back = policy == Policy::LosslessPeer;
        self.conns.insert(id, conn);
        if !policy.lossy() {
            self.sessions.insert(target, id);
        }
        self.dial(id);
        id
    }

    /// Sends `msg`, or keeps it until the session is open. For a session that is gone it does nothing.
    pub fn send(&mut self, now: Now, id: ConnId, msg: RawMessage) {
        self.now = now;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match (conn.state, conn.sock) {
            (State::Ready, Some(sock)) => {
                if let Err(why) = self.transmit(sock, id, msg) {
                    self.fault(sock, why);
                }
            }
            (state, _) => {
                conn.queue.push_back(msg);
                if state == State::Standby {
                    self.leave_standby(id);
                }
            }
        }
    }

    /// Ends a session and its socket, without an event. What was sent is still transmitted, what waits is dropped.
    pub fn close(&mut self, id: ConnId) {
        if let Some(sock) = self.conns.get(&id).and_then(|c| c.sock) {
            self.drop_sock(sock);
        }
        self.forget(id);
    }

    /// Closes every session, as a daemon does that goes down.
    pub fn close_all(&mut self) {
        let all: Vec<ConnId> = self.conns.keys().copied().collect();
        all.into_iter().for_each(|id| self.close(id));
    }

    /// A peer's connection was accepted.
    pub fn handle_accepted(&mut self, now: Now, sock: SockId, peer: SocketAddr, _local: SocketAddr) {
        self.now = now;
        let id = self.new_conn_id();
        let kind = EntityKind::default();
        let mut conn =
            Conn::new(State::Accepting, Policy::StatelessServer, kind, EntityAddr::default(), AddrVec::default());
        conn.sock = Some(sock);
        self.conns.insert(id, conn);
        self.socks.insert(sock, Sock::new(id, false, peer, kind, now.mono));
        self.handshakes.insert((now.mono, sock));
        self.arm(sock, now.mono + self.config.timing.handshake);
        self.say_banner(sock);
        if self.handshakes.len() > self.config.limits.handshakes_max
            && let Some(&(_, oldest)) = self.handshakes.first()
        {
            self.fault(oldest, Fault::TooManyHandshakes);
        }
    }

    /// A dial succeeded.
    pub fn handle_connected(&mut self, now: Now, sock: SockId, _local: SocketAddr) {
        self.now = now;
        if let Some(s) = self.socks.get_mut(&sock).filter(|s| s.phase == Phase::Dialling) {
            s.phase = Phase::Banner;
            self.say_banner(sock);
        }
    }

    /// Bytes arrived, in pieces of any size.
    pub fn handle_bytes(&mut self, now: Now, sock: SockId, bytes: Bytes) {
        self.now = now;
        if let Some(s) = self.socks.get_mut(&sock) {
            s.active = now.mono;
            self.totals.bytes_received += bytes.len() as u64;
            s.rx.push(bytes);
            self.pump(sock);
        }
    }

    /// Said once of each message with much data that has begun to come: which bytes are data of all that this socket brings, from its first on. Whoever has them lie
    /// at multiples of `BLOCK_BYTES` from where they begin has the blocks of an object aligned; nobody need.
    pub fn expected(&mut self, sock: SockId) -> Option<Range<u64>> {
        self.socks.get_mut(&sock).filter(|s| s.phase == Phase::Ready)?.rx.expected()
    }

    /// A socket ended, or a dial failed.
    pub fn handle_closed(&mut self, now: Now, sock: SockId) {
        self.now = now;
        if let Some(s) = self.socks.get_mut(&sock) {
            // Nobody is there to read it.
            s.tx.take();
            self.fault(sock, Fault::Closed);
        }
    }

    /// The next thing the world is to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        while let Some(sock) = self.dirty.pop_front() {
            let bufs = self.collect(sock);
            if !bufs.is_empty() {
                self.totals.bytes_sent += bufs.iter().map(|b| b.len() as u64).sum::<u64>();
                return Some(Action::Transmit { sock, bufs });
            }
            // Acknowledging may have ended the socket.
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
        }
        None
    }

    /// The next thing the owner is to know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Our addresses as peers are told.
    pub fn addrs(&self) -> &AddrVec {
        &self.addrs
    }

    /// Who we are in a session.
    fn own_addrs(&self, back: bool) -> &AddrVec {
        if back && !self.config.back_addrs.is_blank() { &self.config.back_addrs } else { &self.addrs }
    }

    /// The socket that a session has now.
    pub fn sock_of(&self, id: ConnId) -> Option<SockId> {
        self.conns.get(&id)?.sock
    }

    /// Sessions in any state, for status reports.
    pub fn session_count(&self) -> usize {
        self.conns.len()
    }

    /// What was done since the beginning.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn new_conn_id(&mut self) -> ConnId {
        let id = ConnId(self.next_conn);
        self.next_conn += 1;
        self.totals.connections += 1;
        id
    }

    /// Handles every whole frame a socket has.
    fn pump(&mut self, sock: SockId) {
        if let Err(why) = self.pump_frames(sock) {
            self.fault(sock, why);
        }
    }

    fn pump_frames(&mut self, sock: SockId) -> Result<(), Fault> {
        while let Some(s) = self.socks.get_mut(&sock) {
            if s.phase != Phase::Ready {
                let max = self.config.limits.handshake_bytes_max;
                if s.rx.recorded() + s.rx.buffered() > max {
                    return Err(Fault::HandshakeTooLong(max));
                }
                if matches!(s.phase, Phase::Owner(_)) {
                    return Ok(());
                }
            }
            match s.rx.next(&self.config.limits)? {
                None => return Ok(()),
                Some(Incoming::Message { seq, ack_seq, msg }) => self.on_message(sock, seq, ack_seq, msg)?,
                Some(Incoming::Control(tag, payload)) => self.on_control(sock, tag, &payload)?,
                Some(Incoming::Banner { supported, required }) => self.on_banner(sock, supported, required)?,
                Some(Incoming::Aborted) => {}
            }
        }
        Ok(())
    }
}
