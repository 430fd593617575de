//! A daemon's side: authorizers, in two rounds.
//!
//! Owns: `ServiceAuth`, one per accepted connection until it is proven.
//! Holds: an authorizer without the answer to *this* connection's challenge proves nothing: it may be a replay.
//! Upstream: cephx_verify_authorizer in src/auth/cephx/CephxProtocol.cc.

use super::proto::{Authorize, AuthorizeChallenge, AuthorizeReply, AuthorizerHead, MODE_AUTHORIZER, ServiceTicketInfo};
use super::seal::{Usage, open, open_next, seal};
use crate::key::CryptoKey;
use crate::mode;
use bytes::Bytes;
use denc::Decoder;
use rand::RngCore;
use rand_chacha::ChaCha8Rng;
use types::{EntityKind, EntityName, Errno};

/// What to answer with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceReply {
    /// AUTH_REPLY_MORE with this payload.
    More(Bytes),
    /// AUTH_DONE.
    Done(Box<ServiceSession>),
    /// AUTH_BAD_METHOD with this result.
    Bad(Errno),
}

/// A proven peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSession {
    pub name: EntityName,
    pub global_id: u64,
    /// Its capabilities for this service, as text; empty if it has none.
    pub caps: String,
    /// AUTH_DONE's payload.
    pub payload: Bytes,
    /// Signs the handshake.
    pub session_key: Bytes,
    /// Keys the secure mode; empty in crc mode.
    pub connection_secret: Bytes,
}

/// The verifying half of one connection.
#[derive(Debug, Clone)]
pub struct ServiceAuth {
    service: EntityKind,
    challenge: Option<u64>,
}

impl ServiceAuth {
    /// For a daemon of kind `service`.
    pub fn new(service: EntityKind) -> Self {
        ServiceAuth { service, challenge: None }
    }

    /// Answers AUTH_REQUEST or AUTH_REQUEST_MORE. `con_mode` is the mode AUTH_DONE will announce; `secret` finds a
    /// rotating secret by its id.
    pub fn handle(
        &mut self,
        payload: &Bytes,
        con_mode: u32,
        secret: impl Fn(u64) -> Option<CryptoKey>,
        rng: &mut ChaCha8Rng,
    ) -> ServiceReply {
        self.verify(payload, con_mode, secret, rng).unwrap_or(ServiceReply::Bad(Errno::EACCES))
    }

    /// `None`: not proven, and no reason is told.
    fn verify(
        &mut self,
        payload: &Bytes,
        con_mode: u32,
        secret: impl Fn(u64) -> Option<CryptoKey>,
        rng: &mut ChaCha8Rng,
    ) -> Option<ServiceReply> {
        if payload.first() != Some(&MODE_AUTHORIZER) {
            return None;
        }
        let mut d = Decoder::shared(payload);
        let head: AuthorizerHead = d.get().ok()?;
        if head.service != u32::from(self.service.0) {
            return None;
        }
        let key = secret(head.ticket.secret_id)?;
        let info: ServiceTicketInfo = open(&key, Usage::TicketInfo, &head.ticket.blob).ok()?;
        if info.ticket.global_id != head.global_id {
            return None;
        }
        let request: Authorize = open_next(&info.session_key, Usage::Authorize, &mut d).ok()?;
        match (self.challenge, request.answer) {
            (None, _) => Some(self.challenge(&info, rng)),
            (Some(challenge), Some(answer)) if answer == challenge.wrapping_add(1) => accept(&info, &request, con_mode, rng),
            _ => None,
        }
    }

    fn challenge(&mut self, info: &ServiceTicketInfo, rng: &mut ChaCha8Rng) -> ServiceReply {
        let challenge = rng.next_u64();
        self.challenge = Some(challenge);
        let challenge = AuthorizeChallenge { challenge };
        ServiceReply::More(seal(&info.session_key, Usage::AuthorizeChallenge, &challenge, rng))
    }
}

fn accept(info: &ServiceTicketInfo, request: &Authorize, con_mode: u32, rng: &mut ChaCha8Rng) -> Option<ServiceReply> {
    let mut secret = vec![0; mode::secret_len(con_mode)];
    rng.fill_bytes(&mut secret);
    let connection_secret = Bytes::from(secret);
    let reply = AuthorizeReply {
        nonce_plus_one: request.nonce.wrapping_add(1),
        connection_secret: connection_secret.clone(),
    };
    let sealed = seal(&info.session_key, Usage::AuthorizeReply, &reply, rng);
    Some(ServiceReply::Done(Box::new(ServiceSession {
        name: info.ticket.name.clone(),
        global_id: info.ticket.global_id,
        caps: info.ticket.caps_text().ok()?,
        payload: denc::to_bytes(&sealed, 0),
        session_key: Bytes::copy_from_slice(info.session_key.secret()),
        connection_secret,
    })))
}
