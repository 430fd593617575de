//! What happens when nothing happens: handshake deadlines, idle sockets, keepalives, and dialling again.

use super::Endpoint;
use crate::conn::State;
use crate::frame::Tag;
use crate::sock::Phase;
use crate::{ConnId, Fault, SockId};
use types::{Mono, Now};

/// Whose time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Sock(SockId),
    Redial(ConnId),
}

impl Endpoint {
    /// When `handle_timeout` wants to be called.
    pub fn next_timeout(&self) -> Option<Mono> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        while let Some((_, timer)) = self.timers.first().copied().filter(|(at, _)| *at <= now.mono) {
            self.timers.pop_first();
            match timer {
                Timer::Sock(sock) => self.sock_timeout(sock),
                Timer::Redial(conn) => self.redial_timeout(conn),
            }
        }
    }

    /// Sets a socket's only timer.
    pub(super) fn arm(&mut self, sock: SockId, at: Mono) {
        if let Some(s) = self.socks.get_mut(&sock) {
            self.timers.remove(&(s.timer, Timer::Sock(sock)));
            s.timer = at;
            self.timers.insert((at, Timer::Sock(sock)));
        }
    }

    /// Sets or clears the time a session dials again.
    pub(super) fn arm_redial(&mut self, id: ConnId, at: Option<Mono>) {
        if let Some(conn) = self.conns.get_mut(&id) {
            if let Some(old) = std::mem::replace(&mut conn.redial_at, at) {
                self.timers.remove(&(old, Timer::Redial(id)));
            }
            self.timers.extend(at.map(|at| (at, Timer::Redial(id))));
        }
    }

    /// Starts the keepalives and the idle watch of a socket whose session is open.
    pub(super) fn watch_ready(&mut self, sock: SockId) {
        let now = self.now.mono;
        if let Some(s) = self.socks.get_mut(&sock) {
            let every = self.config.keepalive_every(s.peer_kind).filter(|_| s.dialled);
            s.keepalive.next = every.map(|every| now + every);
        }
        self.rearm_ready(sock);
    }

    pub(super) fn rearm_ready(&mut self, sock: SockId) {
        let Some(s) = self.socks.get(&sock) else { return };
        let idle = (!s.dialled).then_some(s.active + self.config.timing.idle);
        let grace = s.keepalive.unanswered_since.map(|t| t + self.config.timing.keepalive_grace);
        if let Some(at) = [idle, s.keepalive.next, grace, s.ack_at].into_iter().flatten().min() {
            self.arm(sock, at);
        } else {
            self.timers.remove(&(s.timer, Timer::Sock(sock)));
        }
    }

    fn sock_timeout(&mut self, sock: SockId) {
        let Some(s) = self.socks.get(&sock) else { return };
        if s.phase != Phase::Ready {
            return self.fault(sock, Fault::HandshakeTimeout);
        }
        let now = self.now.mono;
        let timing = &self.config.timing;
        let mute = s.keepalive.unanswered_since.is_some_and(|t| now >= t + timing.keepalive_grace);
        if mute {
            return self.fault(sock, Fault::KeepaliveTimeout);
        }
        let lossy = self.conns.get(&s.conn).is_none_or(|c| c.lossy);
        if !s.dialled && lossy && now >= s.active + timing.idle {
            return self.fault(sock, Fault::Idle);
        }
        if let Err(why) = self.acknowledge_late(sock).and_then(|()| self.keep_alive(sock)) {
            return self.fault(sock, why);
        }
        self.rearm_ready(sock);
    }

    /// Nothing has been said for a while that would have acknowledged what came.
    fn acknowledge_late(&mut self, sock: SockId) -> Result<(), Fault> {
        let now = self.now.mono;
        let Some(s) = self.socks.get_mut(&sock).filter(|s| s.ack_at.is_some_and(|at| now >= at)) else { return Ok(()) };
        s.ack_at = None;
        let Some(conn) = self.conns.get_mut(&s.conn).filter(|c| c.acked_seq < c.in_seq) else { return Ok(()) };
        let seq = conn.acknowledge();
        self.say(sock, Tag::Ack, &seq)
    }

    fn keep_alive(&mut self, sock: SockId) -> Result<(), Fault> {
        let Now { mono, wall } = self.now;
        let Some(s) = self.socks.get_mut(&sock) else { return Ok(()) };
        if !s.dialled {
            // A lossless session's quiet socket: look again later.
            s.active = mono;
            return Ok(());
        }
        let every = self.config.keepalive_every(s.peer_kind);
        if let (Some(next), Some(every)) = (s.keepalive.next, every)
            && mono >= next
        {
            s.keepalive.next = Some(mono + every);
            s.keepalive.unanswered_since.get_or_insert(mono);
            self.say(sock, Tag::Keepalive2, &wall)?;
        }
        Ok(())
    }

    fn redial_timeout(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.redial_at = None;
        if conn.state == State::Backoff {
            self.dial(id);
        }
    }
}
