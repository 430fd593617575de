//! Frames in and out, and how sockets and sessions end.

use super::{Endpoint, Timer};
use crate::conn::State;
use crate::frame::Tag;
use crate::sock::{Phase, Sock, Turn};
use crate::{Action, ConnId, Event, Fault, SockId};
use bytes::Bytes;
use denc::Encode;
use std::net::SocketAddr;
use std::time::Duration;
use types::Utime;
use types::msg::RawMessage;

/// A peer of a lossless session is told what has come at the latest after this: until then it keeps it, and would dial again
/// if the socket were lost.
const ACK_AFTER: Duration = Duration::from_secs(1);

impl Endpoint {
    /// Sends `msg` on an open session.
    pub(super) fn transmit(&mut self, sock: SockId, id: ConnId, msg: RawMessage) -> Result<(), Fault> {
        let (Some(s), Some(conn)) = (self.socks.get_mut(&sock), self.conns.get_mut(&id)) else { return Ok(()) };
        self.totals.sent += 1;
        conn.out_seq += 1;
        conn.high_seq = conn.high_seq.max(conn.out_seq);
        s.active = self.now.mono;
        s.tx.message(conn.out_seq, conn.acknowledge(), &msg)?;
        if !conn.lossy {
            conn.sent.push_back(msg);
        }
        self.mark_dirty(sock);
        Ok(())
    }

    pub(super) fn on_message(&mut self, sock: SockId, seq: u64, ack_seq: u64, msg: RawMessage) -> Result<(), Fault> {
        let Some(s) = self.socks.get_mut(&sock) else { return Ok(()) };
        if s.phase != Phase::Ready {
            return Err(Fault::OutOfPlace { tag: Tag::Message as u8, phase: s.phase.name() });
        }
        let id = s.conn;
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        let last = conn.in_seq;
        if !conn.lossy {
            conn.acknowledged(ack_seq);
        } else if seq <= last {
            return Err(Fault::OldMessage { seq, last });
        }
        // A gap is the sender's affair (kernel clients take messages back); a repeat was delivered already.
        if seq <= last {
            return Ok(());
        }
        conn.in_seq = seq;
        conn.unacked_bytes += (msg.front.len() + msg.middle.len() + msg.data.len()) as u64;
        if conn.owes_ack() && !s.dirty {
            s.dirty = true;
            self.dirty.push_back(sock);
        }
        let first = !conn.lossy && s.ack_at.is_none();
        if first {
            s.ack_at = Some(self.now.mono + ACK_AFTER);
            self.rearm_ready(sock);
        }
        self.totals.received += 1;
        self.events.push_back(Event::Message { conn: id, msg });
        Ok(())
    }

    pub(super) fn on_control(&mut self, sock: SockId, tag: Tag, payload: &Bytes) -> Result<(), Fault> {
        let Some(s) = self.socks.get(&sock) else { return Ok(()) };
        let (phase, dialled) = (s.phase, s.dialled);
        match (tag, phase) {
            (Tag::Hello, Phase::Hello) => self.on_hello(sock, payload),
            (Tag::AuthRequest, Phase::Auth(Turn::Request)) if !dialled => self.on_auth_request(sock, tag, payload),
            (Tag::AuthRequestMore, Phase::Auth(Turn::More)) if !dialled => self.on_auth_request(sock, tag, payload),
            (Tag::AuthBadMethod | Tag::AuthReplyMore | Tag::AuthDone, Phase::Auth(_)) if dialled => {
                self.on_auth_reply(sock, tag, payload)
            }
            (Tag::AuthSignature, Phase::Signature) => self.on_signature(sock, payload),
            (Tag::ClientIdent, Phase::ClientIdent) => self.on_client_ident(sock, denc::from_slice(payload)?),
            (Tag::SessionReconnect, Phase::ClientIdent) => self.on_reconnect(sock, denc::from_slice(payload)?),
            (Tag::ServerIdent, Phase::ServerIdent) => self.on_server_ident(sock, denc::from_slice(payload)?),
            (Tag::IdentMissingFeatures, Phase::ServerIdent) => {
                Err(Fault::MissingFeatures(denc::from_slice(payload)?))
            }
            (Tag::SessionReset, Phase::Reconnect) => self.on_session_reset(sock, denc::from_slice(payload)?),
            (Tag::SessionRetry, Phase::Reconnect) => self.on_retry(sock, denc::from_slice(payload)?),
            (Tag::SessionRetryGlobal, Phase::Reconnect) => self.on_retry_global(sock, denc::from_slice(payload)?),
            (Tag::SessionReconnectOk, Phase::Reconnect) => self.on_reconnect_ok(sock, denc::from_slice(payload)?),
            (Tag::Wait, Phase::ServerIdent | Phase::Reconnect) => self.on_wait(sock),
            (Tag::Keepalive2, Phase::Ready) => {
                let stamp: Utime = denc::from_slice(payload)?;
                self.say(sock, Tag::Keepalive2Ack, &stamp)
            }
            (Tag::Keepalive2Ack, Phase::Ready) => self.on_keepalive_ack(sock),
            (Tag::Ack, Phase::Ready) => self.on_ack(sock, denc::from_slice(payload)?),
            _ => Err(Fault::OutOfPlace { tag: tag as u8, phase: phase.name() }),
        }
    }

    fn on_keepalive_ack(&mut self, sock: SockId) -> Result<(), Fault> {
        if let Some(s) = self.socks.get_mut(&sock) {
            s.keepalive.unanswered_since = None;
            self.events.push_back(Event::KeepaliveAck { conn: s.conn });
        }
        Ok(())
    }

    fn on_ack(&mut self, sock: SockId, seq: u64) -> Result<(), Fault> {
        let conn = self.socks.get(&sock).and_then(|s| self.conns.get_mut(&s.conn));
        if let Some(conn) = conn.filter(|c| !c.lossy) {
            conn.acknowledged(seq);
        }
        Ok(())
    }

    pub(super) fn say<T: Encode>(&mut self, sock: SockId, tag: Tag, payload: &T) -> Result<(), Fault> {
        // Frames are read with Nautilus' features, whatever the session's are.
        self.say_raw(sock, tag, &denc::to_bytes(payload, u64::MAX))
    }

    pub(super) fn say_raw(&mut self, sock: SockId, tag: Tag, payload: &[u8]) -> Result<(), Fault> {
        let Some(s) = self.socks.get_mut(&sock) else { return Ok(()) };
        s.tx.control(tag, payload)?;
        let max = self.config.limits.handshake_bytes_max;
        if s.tx.recorded() > max {
            return Err(Fault::HandshakeTooLong(max));
        }
        self.mark_dirty(sock);
        Ok(())
    }

    pub(super) fn mark_dirty(&mut self, sock: SockId) {
        if let Some(s) = self.socks.get_mut(&sock)
            && !s.dirty
        {
            s.dirty = true;
            self.dirty.push_back(sock);
        }
    }

    /// What a socket has to transmit; an acknowledgement goes along where one is due and no message has carried it.
    pub(super) fn collect(&mut self, sock: SockId) -> Vec<Bytes> {
        let Some(s) = self.socks.get_mut(&sock) else { return Vec::new() };
        s.dirty = false;
        if s.phase == Phase::Ready
            && let Some(conn) = self.conns.get_mut(&s.conn).filter(|c| c.owes_ack())
            && let Err(why) = s.tx.control(Tag::Ack, &conn.acknowledge().to_le_bytes())
        {
            self.fault(sock, why);
            return Vec::new();
        }
        s.tx.take()
    }

    pub(super) fn set_phase(&mut self, sock: SockId, phase: Phase) {
        if let Some(s) = self.socks.get_mut(&sock) {
            s.phase = phase;
        }
    }

    /// Opens a socket for a session.
    pub(super) fn dial(&mut self, id: ConnId) {
        self.global_seq += 1;
        self.arm_redial(id, None);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(addr) = conn.target.sock else {
            conn.state = State::Standby;
            return;
        };
        let sock = SockId(self.next_sock);
        self.next_sock += 1;
        conn.state = State::Connecting;
        conn.global_seq = self.global_seq;
        conn.sock = Some(sock);
        self.add_dialled(id, sock, addr);
    }

    fn add_dialled(&mut self, id: ConnId, sock: SockId, addr: SocketAddr) {
        let kind = self.conns.get(&id).map(|c| c.peer_kind).unwrap_or_default();
        self.socks.insert(sock, Sock::new(id, true, addr, kind, self.now.mono));
        self.arm(sock, self.now.mono + self.config.timing.handshake);
        self.actions.push_back(Action::Dial { sock, addr });
    }

    /// Closes a socket after what it still has to say.
    pub(super) fn drop_sock(&mut self, sock: SockId) -> Option<Sock> {
        let mut s = self.socks.remove(&sock)?;
        self.timers.remove(&(s.timer, Timer::Sock(sock)));
        self.handshakes.remove(&(s.opened, sock));
        let bufs = s.tx.take();
        if !bufs.is_empty() {
            self.actions.push_back(Action::Transmit { sock, bufs });
        }
        self.actions.push_back(Action::Close { sock });
        Some(s)
    }

    /// Ends a session without a word.
    pub(super) fn forget(&mut self, id: ConnId) {
        self.arm_redial(id, None);
        if self.conns.remove(&id).is_some() {
            self.sessions.retain(|_, session| *session != id);
        }
    }

    /// Ends a socket; its session ends with it, waits, or dials again.
    pub(super) fn fault(&mut self, sock: SockId, why: Fault) {
        let Some(s) = self.drop_sock(sock) else { return };
        tracing::debug!(?sock, conn = ?s.conn, phase = s.phase.name(), %why, "socket ended");
        let Some(conn) = self.conns.get_mut(&s.conn) else { return };
        conn.sock = None;
        if conn.lossy || conn.state == State::Accepting {
            self.forget(s.conn);
            self.events.push_back(Event::Reset { conn: s.conn, why });
        } else {
            self.session_fault(s.conn, false);
        }
    }
}
