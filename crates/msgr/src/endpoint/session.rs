//! Sessions: who identifies as whom, which socket serves which session, and what is sent again.
//!
//! Upstream: doc/dev/msgr2.rst "Message flow handshake"; ProtocolV2.cc (handle_client_ident and after).

use super::Endpoint;
use crate::conn::{Conn, State};
use crate::control::{ClientIdent, LOSSY, REQUIRED, Reconnect, ServerIdent};
use crate::frame::Tag;
use crate::sock::Phase;
use crate::{ConnId, Event, Fault, PeerInfo, SockId};
use rand::Rng;
use std::time::Duration;
use types::EntityAddr;

/// A session that was open dials at once when it loses its socket, then after so long at most.
const SOON: Duration = Duration::from_millis(10);

/// The dialler's side.
impl Endpoint {
    /// Authentication is over: asks for a new session, or for the one there was.
    pub(super) fn open_session(&mut self, sock: SockId) -> Result<(), Fault> {
        let conn = self.socks.get(&sock).and_then(|s| self.conns.get(&s.conn));
        match conn.is_some_and(|c| c.server_cookie != 0) {
            false => self.say_client_ident(sock),
            true => self.say_reconnect(sock),
        }
    }

    fn say_client_ident(&mut self, sock: SockId) -> Result<(), Fault> {
        self.set_phase(sock, Phase::ServerIdent);
        let fresh = self.rng.random_range(1..u64::MAX);
        let Some(conn) = self.socks.get(&sock).and_then(|s| self.conns.get_mut(&s.conn)) else { return Ok(()) };
        if !conn.lossy && conn.client_cookie == 0 {
            conn.client_cookie = fresh;
        }
        let Some(conn) = self.socks.get(&sock).and_then(|s| self.conns.get(&s.conn)) else { return Ok(()) };
        let ident = ClientIdent {
            addrs: self.own_addrs(conn.back).clone(),
            target: conn.target,
            num: self.config.num,
            global_seq: conn.global_seq,
            supported: self.config.features_supported,
            required: self.config.features_required | REQUIRED,
            flags: if conn.lossy { LOSSY } else { 0 },
            cookie: conn.client_cookie,
        };
        self.say(sock, Tag::ClientIdent, &ident)
    }

    fn say_reconnect(&mut self, sock: SockId) -> Result<(), Fault> {
        self.set_phase(sock, Phase::Reconnect);
        let Some(conn) = self.socks.get(&sock).and_then(|s| self.conns.get(&s.conn)) else { return Ok(()) };
        let reconnect = Reconnect {
            addrs: self.own_addrs(conn.back).clone(),
            client_cookie: conn.client_cookie,
            server_cookie: conn.server_cookie,
            global_seq: conn.global_seq,
            connect_seq: conn.connect_seq,
            msg_seq: conn.in_seq,
        };
        self.say(sock, Tag::SessionReconnect, &reconnect)
    }

    pub(super) fn on_server_ident(&mut self, sock: SockId, ident: ServerIdent) -> Result<(), Fault> {
        let Some(s) = self.socks.get(&sock) else { return Ok(()) };
        let Some(conn) = self.conns.get_mut(&s.conn) else { return Ok(()) };
        if !ident.addrs.0.contains(&conn.target) {
            return Err(Fault::WrongAddress);
        }
        let missing = self.config.features_required & !ident.supported;
        if missing != 0 {
            return Err(Fault::MissingFeatures(missing));
        }
        conn.server_cookie = ident.cookie;
        conn.peer_addrs = ident.addrs;
        conn.peer_num = ident.num;
        conn.features = ident.supported & self.config.features_supported;
        conn.peer_global_seq = ident.global_seq;
        conn.lossy = ident.flags & LOSSY != 0;
        conn.begin();
        let (id, lossy) = (s.conn, conn.lossy);
        if lossy {
            self.sessions.retain(|_, session| *session != id);
        }
        self.ready(sock, true)
    }

    pub(super) fn on_session_reset(&mut self, sock: SockId, full: bool) -> Result<(), Fault> {
        let Some(id) = self.socks.get(&sock).map(|s| s.conn) else { return Ok(()) };
        if full {
            self.reset_session(id);
        } else if let Some(conn) = self.conns.get_mut(&id) {
            conn.server_cookie = 0;
            conn.connect_seq = 0;
        }
        self.say_client_ident(sock)
    }

    pub(super) fn on_retry(&mut self, sock: SockId, connect_seq: u64) -> Result<(), Fault> {
        if let Some(conn) = self.socks.get(&sock).and_then(|s| self.conns.get_mut(&s.conn)) {
            conn.connect_seq = connect_seq.saturating_add(1);
        }
        self.say_reconnect(sock)
    }

    pub(super) fn on_retry_global(&mut self, sock: SockId, global_seq: u64) -> Result<(), Fault> {
        self.global_seq = self.global_seq.max(global_seq).saturating_add(1);
        if let Some(conn) = self.socks.get(&sock).and_then(|s| self.conns.get_mut(&s.conn)) {
            conn.global_seq = self.global_seq;
        }
        self.say_reconnect(sock)
    }

    pub(super) fn on_reconnect_ok(&mut self, sock: SockId, msg_seq: u64) -> Result<(), Fault> {
        if let Some(conn) = self.socks.get(&sock).and_then(|s| self.conns.get_mut(&s.conn)) {
            conn.requeued_acknowledged(msg_seq);
        }
        self.ready(sock, false)
    }

    /// The peer is dialling us as well, and its socket is the one that stays.
    pub(super) fn on_wait(&mut self, sock: SockId) -> Result<(), Fault> {
        let Some(s) = self.drop_sock(sock) else { return Ok(()) };
        match self.conns.get_mut(&s.conn) {
            Some(conn) if conn.lossy => {
                self.forget(s.conn);
                self.events.push_back(Event::Reset { conn: s.conn, why: Fault::Superseded });
            }
            Some(conn) => {
                conn.sock = None;
                self.session_fault(s.conn, true);
            }
            None => {}
        }
        Ok(())
    }
}

/// The acceptor's side.
impl Endpoint {
    pub(super) fn on_client_ident(&mut self, sock: SockId, ident: ClientIdent) -> Result<(), Fault> {
        let blank = ident.addrs.0.first().is_none_or(|a| *a == EntityAddr::default());
        let back = !self.addrs.0.contains(&ident.target);
        if blank || !self.own_addrs(back).0.contains(&ident.target) {
            return Err(Fault::WrongAddress);
        }
        let missing = (self.config.features_required | REQUIRED) & !ident.supported;
        if missing != 0 {
            self.say(sock, Tag::IdentMissingFeatures, &missing)?;
            return Err(Fault::MissingFeatures(missing));
        }
        let Some(s) = self.socks.get(&sock) else { return Ok(()) };
        let (id, kind) = (s.conn, s.peer_kind);
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        conn.peer_kind = kind;
        conn.back = back;
        conn.policy = self.config.accept_policy(kind);
        conn.lossy = conn.policy.lossy() || ident.flags & LOSSY != 0;
        conn.target = ident.addrs.msgr2().unwrap_or_default();
        conn.features = ident.supported & self.config.features_supported;
        conn.peer_num = ident.num;
        conn.client_cookie = ident.cookie;
        conn.peer_global_seq = ident.global_seq;
        let key = Conn::key(&ident.addrs).filter(|_| !conn.lossy);
        conn.peer_addrs = ident.addrs;
        match key.and_then(|key| self.sessions.get(&key).copied()) {
            Some(known) => self.ident_meets_session(sock, known),
            None => self.say_server_ident(sock),
        }
    }

    /// A peer we have a session with asks for a new one.
    fn ident_meets_session(&mut self, sock: SockId, known: ConnId) -> Result<(), Fault> {
        let new = self.socks.get(&sock).and_then(|s| self.conns.get(&s.conn));
        let (Some(new), Some(old)) = (new, self.conns.get(&known)) else { return Ok(()) };
        if old.peer_global_seq > new.peer_global_seq {
            return Err(Fault::Stale);
        }
        let forgotten = old.server_cookie != 0 && old.client_cookie != 0 && old.client_cookie != new.client_cookie;
        let resumed = old.client_cookie == new.client_cookie;
        let quiet = matches!(old.state, State::Ready | State::Standby);
        if !forgotten && !resumed && !quiet && self.ours_wins(known) {
            return self.ask_to_wait(sock, known);
        }
        if forgotten {
            self.reset_session(known);
        }
        if let Some(from) = self.socks.get(&sock).map(|s| s.conn) {
            self.adopt(from, known);
        }
        self.take_over(sock, known);
        self.say_server_ident(sock)
    }

    /// Two sockets race for one session: the one dialled towards the lower address wins.
    fn ours_wins(&self, known: ConnId) -> bool {
        let Some(conn) = self.conns.get(&known) else { return false };
        !conn.policy.server() && Conn::key(&conn.peer_addrs) > Conn::key(self.own_addrs(conn.back))
    }

    fn ask_to_wait(&mut self, sock: SockId, known: ConnId) -> Result<(), Fault> {
        self.say_raw(sock, Tag::Wait, &[])?;
        match self.conns.get(&known).map(|c| c.state) {
            Some(State::Standby) => self.leave_standby(known),
            Some(State::Backoff) => self.dial(known),
            _ => {}
        }
        Err(Fault::Stale)
    }

    /// Copies what a new ident said from the conn it arrived on to the session it is for.
    fn adopt(&mut self, from: ConnId, known: ConnId) {
        let Some(new) = self.conns.get(&from) else { return };
        let (cookie, num, features, gs) = (new.client_cookie, new.peer_num, new.features, new.peer_global_seq);
        let (addrs, target, back) = (new.peer_addrs.clone(), new.target, new.back);
        if let Some(old) = self.conns.get_mut(&known) {
            (old.client_cookie, old.peer_num, old.features, old.peer_global_seq) = (cookie, num, features, gs);
            (old.peer_addrs, old.target, old.back) = (addrs, target, back);
        }
    }

    /// Gives the session `known` the socket that was accepted as another.
    fn take_over(&mut self, sock: SockId, known: ConnId) {
        let Some(s) = self.socks.get_mut(&sock) else { return };
        let from = std::mem::replace(&mut s.conn, known);
        self.forget(from);
        if let Some(old) = self.conns.get_mut(&known).and_then(|c| c.sock.replace(sock)) {
            self.drop_sock(old);
        }
        self.arm_redial(known, None);
        if let Some(conn) = self.conns.get_mut(&known) {
            conn.requeue();
        }
        self.events.push_back(Event::Replaced { conn: from, by: known });
    }

    fn say_server_ident(&mut self, sock: SockId) -> Result<(), Fault> {
        let cookie = self.rng.random_range(1..u64::MAX);
        let Some(s) = self.socks.get(&sock) else { return Ok(()) };
        let Some(conn) = self.conns.get_mut(&s.conn) else { return Ok(()) };
        self.global_seq += 1;
        conn.server_cookie = if conn.lossy { 0 } else { cookie };
        conn.begin();
        if let Some(key) = Conn::key(&conn.peer_addrs).filter(|_| !conn.lossy) {
            self.sessions.insert(key, s.conn);
        }
        let Some(conn) = self.conns.get(&s.conn) else { return Ok(()) };
        let ident = ServerIdent {
            addrs: self.own_addrs(conn.back).clone(),
            num: self.config.num,
            global_seq: self.global_seq,
            supported: self.config.features_supported,
            required: self.config.features_required | REQUIRED,
            flags: if conn.lossy { LOSSY } else { 0 },
            cookie: conn.server_cookie,
        };
        self.say(sock, Tag::ServerIdent, &ident)?;
        self.ready(sock, true)
    }

    /// A peer wants its session back.
    pub(super) fn on_reconnect(&mut self, sock: SockId, r: Reconnect) -> Result<(), Fault> {
        let known = Conn::key(&r.addrs).and_then(|key| self.sessions.get(&key)).copied();
        let Some((known, old)) = known.and_then(|id| Some((id, self.conns.get(&id)?))) else {
            return self.say(sock, Tag::SessionReset, &true);
        };
        let (global_seq, connect_seq) = (old.peer_global_seq, old.connect_seq);
        if old.client_cookie == r.client_cookie && old.server_cookie == 0 {
            // We asked, it answered, and the answer was lost: now it shall ask.
            return self.say(sock, Tag::SessionReset, &false);
        }
        if (old.client_cookie, old.server_cookie) != (r.client_cookie, r.server_cookie) {
            return self.say(sock, Tag::SessionReset, &true);
        }
        if global_seq > r.global_seq {
            return self.say(sock, Tag::SessionRetryGlobal, &global_seq);
        }
        if connect_seq > r.connect_seq {
            return self.say(sock, Tag::SessionRetry, &connect_seq);
        }
        if connect_seq == r.connect_seq && self.ours_wins(known) {
            return self.ask_to_wait(sock, known);
        }
        self.take_over(sock, known);
        let Some(conn) = self.conns.get_mut(&known) else { return Ok(()) };
        conn.connect_seq = r.connect_seq;
        conn.peer_global_seq = r.global_seq;
        conn.requeued_acknowledged(r.msg_seq);
        let in_seq = conn.acknowledge();
        self.say(sock, Tag::SessionReconnectOk, &in_seq)?;
        self.ready(sock, false)
    }
}

/// Both sides.
impl Endpoint {
    /// The socket's session is open; what waited is sent.
    fn ready(&mut self, sock: SockId, new: bool) -> Result<(), Fault> {
        let Some(s) = self.socks.get_mut(&sock) else { return Ok(()) };
        s.phase = Phase::Ready;
        let id = s.conn;
        self.handshakes.remove(&(s.opened, sock));
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        conn.state = State::Ready;
        conn.backoff = Duration::ZERO;
        if new {
            let peer = PeerInfo {
                kind: conn.peer_kind,
                addrs: conn.peer_addrs.clone(),
                num: conn.peer_num,
                global_id: s.auth.global_id,
                features: conn.features,
                lossy: conn.lossy,
                mode: s.auth.mode,
            };
            self.events.push_back(Event::Ready { conn: id, peer });
        }
        for msg in std::mem::take(&mut conn.queue) {
            self.transmit(sock, id, msg)?;
        }
        self.watch_ready(sock);
        Ok(())
    }

    /// Forgets a session whose peer has forgotten it, and says so.
    fn reset_session(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.reset();
            self.events.push_back(Event::Reset { conn: id, why: Fault::SessionReset });
        }
    }

    /// A lossless session has lost its socket; `wait`: because the peer's is on its way.
    pub(super) fn session_fault(&mut self, id: ConnId, wait: bool) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let was = conn.state;
        conn.requeue();
        if conn.policy.server() || (conn.policy.standby() && conn.queue.is_empty() && !wait) {
            conn.state = State::Standby;
            if was == State::Ready && !conn.policy.server() {
                self.events.push_back(Event::Standby { conn: id });
            }
            return;
        }
        if conn.server_cookie != 0 {
            conn.connect_seq += 1;
        }
        if was == State::Ready {
            return self.dial(id);
        }
        let timing = &self.config.timing;
        conn.backoff = match wait {
            true => timing.backoff_max,
            // The first dial may have met a process that dies: its sockets are not all closed at once.
            false if conn.backoff.is_zero() => timing.backoff_first.min(SOON),
            false => (conn.backoff * 2).clamp(timing.backoff_first, timing.backoff_max),
        };
        conn.state = State::Backoff;
        let at = self.now.mono + conn.backoff;
        self.arm_redial(id, Some(at));
    }

    /// There is something to send after all.
    pub(super) fn leave_standby(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id).filter(|c| !c.policy.server()) else { return };
        if conn.server_cookie != 0 {
            conn.connect_seq += 1;
        }
        self.dial(id);
    }
}
