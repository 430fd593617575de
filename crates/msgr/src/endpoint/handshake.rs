//! Banner, HELLO and authentication, up to the signatures over both directions' raw bytes.
//!
//! Upstream: doc/dev/msgr2.rst "Hello", "Authentication"; ProtocolV2.cc (pre_auth).

use super::Endpoint;
use crate::control::{AuthBadMethod, AuthDone, AuthRequest, Hello};
use crate::frame::{REVISION_1, Tag};
use crate::sock::{Phase, Turn};
use crate::{ConnId, Event, Fault, MODE_CRC, MODE_SECURE, SockId, secure};
use bytes::Bytes;
use denc::{Encode, to_bytes};
use ring::hmac;
use types::{AddrKind, EntityAddr, EntityKind, Errno};

const SIGNATURE: usize = 32;

/// The owner's side.
impl Endpoint {
    /// Dialler: begins, or begins again after `AuthBad`; `modes` in order of preference.
    pub fn auth_request(&mut self, conn: ConnId, method: u32, modes: Vec<u32>, payload: Bytes) {
        let Some(sock) = self.owners_turn(conn, true, &[Turn::Request]) else { return };
        if let Some(s) = self.socks.get_mut(&sock) {
            s.auth.modes.clone_from(&modes);
        }
        self.answer(sock, Tag::AuthRequest, &AuthRequest { method, modes, payload }, Phase::Auth(Turn::More));
    }

    /// Dialler: answers `AuthReplyMore`.
    pub fn auth_request_more(&mut self, conn: ConnId, payload: Bytes) {
        if let Some(sock) = self.owners_turn(conn, true, &[Turn::More]) {
            self.answer(sock, Tag::AuthRequestMore, &payload, Phase::Auth(Turn::More));
        }
    }

    /// Dialler: answers `AuthDone` with the keys it holds. An empty `session_key` means no signatures (auth none);
    /// secure mode needs 40 bytes of `connection_secret`.
    pub fn auth_client_done(&mut self, conn: ConnId, session_key: Bytes, connection_secret: Bytes) {
        if let Some(sock) = self.owners_turn(conn, true, &[Turn::Done]) {
            self.sign(sock, &session_key, &connection_secret);
        }
    }

    /// Acceptor: answers `AuthRequest`, asking for more.
    pub fn auth_reply_more(&mut self, conn: ConnId, payload: Bytes) {
        if let Some(sock) = self.owners_turn(conn, false, &[Turn::Request, Turn::More]) {
            self.answer(sock, Tag::AuthReplyMore, &payload, Phase::Auth(Turn::More));
        }
    }

    /// Acceptor: accepts the peer as `global_id`, in `mode`; see `auth_client_done` for the keys.
    pub fn auth_server_done(
        &mut self,
        conn: ConnId,
        global_id: u64,
        mode: u32,
        payload: Bytes,
        session_key: Bytes,
        connection_secret: Bytes,
    ) {
        let Some(sock) = self.owners_turn(conn, false, &[Turn::Request, Turn::More]) else { return };
        let done = to_bytes(&AuthDone { global_id, mode, payload }, 0);
        if let Some(s) = self.socks.get_mut(&sock) {
            (s.auth.global_id, s.auth.mode) = (global_id, mode);
        }
        match self.say_raw(sock, Tag::AuthDone, &done) {
            Ok(()) => self.sign(sock, &session_key, &connection_secret),
            Err(why) => self.fault(sock, why),
        }
    }

    /// Acceptor: refuses; the peer may try again with one of `methods` and `modes`.
    pub fn auth_bad_method(&mut self, conn: ConnId, method: u32, result: Errno, methods: Vec<u32>, modes: Vec<u32>) {
        if let Some(sock) = self.owners_turn(conn, false, &[Turn::Request, Turn::More]) {
            let bad = AuthBadMethod { method, result: result.wire(), methods, modes };
            self.answer(sock, Tag::AuthBadMethod, &bad, Phase::Auth(Turn::Request));
        }
    }

    /// The socket of `conn`, if it waits for its owner to make one of these moves.
    fn owners_turn(&self, conn: ConnId, dialled: bool, turns: &[Turn]) -> Option<SockId> {
        let sock = self.conns.get(&conn)?.sock?;
        let s = self.socks.get(&sock)?;
        let due = s.dialled == dialled && matches!(s.phase, Phase::Owner(turn) if turns.contains(&turn));
        if !due {
            tracing::debug!(?conn, phase = s.phase.name(), "an answer nobody waits for");
        }
        due.then_some(sock)
    }

    fn answer<T: Encode>(&mut self, sock: SockId, tag: Tag, payload: &T, next: Phase) {
        self.set_phase(sock, next);
        match self.say(sock, tag, payload) {
            Ok(()) => self.pump(sock),
            Err(why) => self.fault(sock, why),
        }
    }

    fn sign(&mut self, sock: SockId, session_key: &[u8], secret: &[u8]) {
        match self.sign_handshake(sock, session_key, secret) {
            Ok(()) => self.pump(sock),
            Err(why) => self.fault(sock, why),
        }
    }

    /// Switches to the agreed mode and sends the signature over what was received so far.
    fn sign_handshake(&mut self, sock: SockId, session_key: &[u8], secret: &[u8]) -> Result<(), Fault> {
        let Some(s) = self.socks.get_mut(&sock) else { return Ok(()) };
        let (open, seal) = match s.auth.mode {
            MODE_SECURE => secure::ciphers(secret, s.dialled).map(|(rx, tx)| (Some(rx), Some(tx)))?,
            _ => (None, None),
        };
        let (received, sent) = (s.rx.authenticated(open), s.tx.authenticated(seal));
        let key = (!session_key.is_empty()).then(|| hmac::Key::new(hmac::HMAC_SHA256, session_key));
        let mut signature = [0; SIGNATURE];
        if let Some(key) = &key {
            signature.copy_from_slice(hmac::sign(key, &received).as_ref());
        }
        s.auth.expected = key.map(|key| (key, sent));
        s.phase = Phase::Signature;
        self.say_raw(sock, Tag::AuthSignature, &signature)
    }
}

/// The peer's side.
impl Endpoint {
    pub(super) fn say_banner(&mut self, sock: SockId) {
        if let Some(s) = self.socks.get_mut(&sock) {
            s.tx.banner(REVISION_1, 0);
        }
        self.mark_dirty(sock);
    }

    pub(super) fn on_banner(&mut self, sock: SockId, supported: u64, required: u64) -> Result<(), Fault> {
        if supported & REVISION_1 == 0 || required & !REVISION_1 != 0 {
            return Err(Fault::Revision { supported, required });
        }
        let Some(s) = self.socks.get_mut(&sock) else { return Ok(()) };
        s.phase = Phase::Hello;
        let dialled = self.conns.get(&s.conn).filter(|_| s.dialled).map(|c| c.target);
        let you = dialled.unwrap_or(EntityAddr::msgr2(s.peer, 0));
        self.say(sock, Tag::Hello, &Hello { kind: self.config.kind.0, you })
    }

    pub(super) fn on_hello(&mut self, sock: SockId, payload: &Bytes) -> Result<(), Fault> {
        let hello: Hello = denc::from_slice(payload)?;
        let Some(s) = self.socks.get_mut(&sock) else { return Ok(()) };
        if !s.dialled {
            s.peer_kind = EntityKind(hello.kind);
            s.phase = Phase::Auth(Turn::Request);
            return Ok(());
        }
        if s.peer_kind.0 != hello.kind {
            return Err(Fault::WrongKind { expected: s.peer_kind.0, found: hello.kind });
        }
        s.phase = Phase::Owner(Turn::Request);
        self.events.push_back(Event::AuthStart { conn: s.conn });
        self.learn_address(hello.you);
        Ok(())
    }

    /// A client has no address of its own until a peer names the one it comes from.
    fn learn_address(&mut self, seen: EntityAddr) {
        if !self.addrs.is_blank() {
            return;
        }
        if let Some(mut sock) = seen.sock {
            sock.set_port(0);
            let nonce = self.config.addrs.0.first().map_or(0, |a| a.nonce);
            self.addrs.0 = vec![EntityAddr { kind: AddrKind::ANY, nonce, sock: Some(sock) }];
        }
    }

    /// AUTH_REQUEST and AUTH_REQUEST_MORE, at an acceptor.
    pub(super) fn on_auth_request(&mut self, sock: SockId, tag: Tag, payload: &Bytes) -> Result<(), Fault> {
        let Some(s) = self.socks.get_mut(&sock) else { return Ok(()) };
        s.auth.attempts += 1;
        if s.auth.attempts > self.config.limits.auth_attempts_max {
            return Err(Fault::TooManyAttempts);
        }
        let first = tag == Tag::AuthRequest;
        let payload = match first {
            true => {
                let request: AuthRequest = denc::from_slice(payload)?;
                (s.auth.method, s.auth.modes) = (request.method, request.modes);
                request.payload
            }
            false => denc::from_slice(payload)?,
        };
        s.phase = Phase::Owner(if first { Turn::Request } else { Turn::More });
        let (conn, peer_kind) = (s.conn, s.peer_kind);
        let (method, modes) = (s.auth.method, s.auth.modes.clone());
        self.events.push_back(Event::AuthRequest { conn, first, method, modes, payload, peer_kind });
        Ok(())
    }

    /// What a server says of authentication, at a dialler.
    pub(super) fn on_auth_reply(&mut self, sock: SockId, tag: Tag, payload: &Bytes) -> Result<(), Fault> {
        let Some(s) = self.socks.get_mut(&sock) else { return Ok(()) };
        let conn = s.conn;
        s.auth.attempts += 1;
        if s.auth.attempts > self.config.limits.auth_attempts_max {
            return Err(Fault::TooManyAttempts);
        }
        let (turn, event) = match tag {
            Tag::AuthBadMethod => {
                let AuthBadMethod { method, result, methods, modes } = denc::from_slice(payload)?;
                (Turn::Request, Event::AuthBad { conn, method, result, methods, modes })
            }
            Tag::AuthDone => {
                let AuthDone { global_id, mode, payload } = denc::from_slice(payload)?;
                if !s.auth.modes.contains(&mode) || !matches!(mode, MODE_CRC | MODE_SECURE) {
                    return Err(Fault::BadMode(mode));
                }
                (s.auth.global_id, s.auth.mode) = (global_id, mode);
                (Turn::Done, Event::AuthDone { conn, global_id, mode, payload })
            }
            _ => (Turn::More, Event::AuthReplyMore { conn, payload: denc::from_slice(payload)? }),
        };
        s.phase = Phase::Owner(turn);
        self.events.push_back(event);
        Ok(())
    }

    pub(super) fn on_signature(&mut self, sock: SockId, payload: &Bytes) -> Result<(), Fault> {
        let Some(s) = self.socks.get_mut(&sock) else { return Ok(()) };
        let good = match s.auth.expected.take() {
            Some((key, sent)) => hmac::verify(&key, &sent, payload).is_ok(),
            None => payload[..] == [0; SIGNATURE],
        };
        match (good, s.dialled) {
            (false, _) => Err(Fault::Signature),
            (true, false) => {
                s.phase = Phase::ClientIdent;
                Ok(())
            }
            (true, true) => self.open_session(sock),
        }
    }
}
