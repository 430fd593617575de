//! The client's side: proving a key, keeping tickets fresh, making authorizers.
//!
//! Owns: `CephxClient`, one per process; its tickets outlive connections, and prove its global id to the next monitor.
//! Upstream: src/auth/cephx/CephxClientHandler.cc, CephXTicketManager in src/auth/cephx/CephxProtocol.cc.

use super::proto::{
    Authenticate, Authorize, AuthorizeChallenge, AuthorizeReply, MODE_AUTHORIZER, MODE_MON,
    ServerChallenge, ServiceTicket, TicketBlob, TicketGrant, TicketReply, TicketRequest, request,
};
use super::seal::{Usage, open, open_next, proof, seal};
use super::secrets::RotatingSecrets;
use crate::key::{CryptoKey, KeyError};
use bytes::Bytes;
use denc::{DecodeError, Decoder, Encoder};
use rand::RngCore;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{EntityKind, EntityName, Errno, Mono};

/// Why a monitor's or a daemon's answer was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    #[error("malformed cephx reply: {0}")]
    Malformed(#[from] DecodeError),
    #[error("cephx reply: {0}")]
    Key(#[from] KeyError),
    /// The monitor said so inside its reply.
    #[error("cephx: {0}")]
    Refused(Errno),
    #[error("cephx reply of unknown kind {0:#x}")]
    UnknownKind(u16),
    /// The daemon does not know the session key it should.
    #[error("authorizer reply with a wrong nonce")]
    WrongNonce,
    #[error("no ticket for {0}")]
    NoTicket(&'static str),
}

/// Keys of a proven connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionKeys {
    pub session_key: Bytes,
    /// Empty in crc mode.
    pub connection_secret: Bytes,
}

/// What a MAuthReply brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    Tickets,
    Secrets(RotatingSecrets),
}

#[derive(Debug, Clone)]
struct Ticket {
    session_key: CryptoKey,
    blob: TicketBlob,
    expires: Mono,
    renew_at: Mono,
}

/// A key, the tickets it earned, and where the conversation with a monitor stands.
#[derive(Debug, Clone)]
pub struct CephxClient {
    name: EntityName,
    key: CryptoKey,
    /// Mask of entity kinds, without `auth`.
    services: u32,
    global_id: u64,
    challenge: u64,
    tickets: BTreeMap<u32, Ticket>,
}

const AUTH: u32 = EntityKind::AUTH.0 as u32;

impl CephxClient {
    /// `services`: whose tickets are wanted.
    pub fn new(name: EntityName, key: CryptoKey, services: &[EntityKind]) -> Self {
        let services = services.iter().fold(0, |mask, s| mask | u32::from(s.0)) & !AUTH;
        CephxClient { name, key, services, global_id: 0, challenge: 0, tickets: BTreeMap::new() }
    }

    pub fn name(&self) -> &EntityName {
        &self.name
    }

    /// 0 before the first authentication.
    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    /// Forgets tickets and global id: for when a monitor no longer accepts them.
    pub fn forget(&mut self) {
        self.global_id = 0;
        self.tickets.clear();
    }

    /// The payload of AUTH_REQUEST to a monitor.
    pub fn begin(&mut self) -> Bytes {
        // A global id can be kept only by showing its ticket.
        if !self.tickets.contains_key(&AUTH) {
            self.global_id = 0;
        }
        denc::to_bytes(&(MODE_MON, self.name.clone(), self.global_id), 0)
    }

    /// Answers AUTH_REPLY_MORE with the payload of AUTH_REQUEST_MORE.
    pub fn handle_more(&mut self, payload: &Bytes, rng: &mut ChaCha8Rng) -> Result<Bytes, ClientError> {
        self.challenge = denc::from_slice::<ServerChallenge>(payload)?.challenge;
        Ok(self.authenticate(rng))
    }

    /// Takes AUTH_DONE.
    pub fn handle_done(&mut self, now: Mono, global_id: u64, payload: &Bytes) -> Result<SessionKeys, ClientError> {
        self.global_id = global_id;
        let mut d = Decoder::shared(payload);
        match header(&mut d)? {
            request::GET_AUTH_SESSION_KEY => self.take_auth_reply(now, &mut d),
            other => Err(ClientError::UnknownKind(other)),
        }
    }

    /// Makes every service ticket due for renewal: a daemon refused one.
    pub fn distrust_tickets(&mut self) {
        for (_, ticket) in self.tickets.iter_mut().filter(|(service, _)| **service != AUTH) {
            ticket.renew_at = Mono(0);
        }
    }

    /// The payload of a MAuth message that renews what is due, `None` if nothing is.
    pub fn renewal(&self, now: Mono, rng: &mut ChaCha8Rng) -> Option<Bytes> {
        let auth = self.tickets.get(&AUTH)?;
        if now >= auth.renew_at {
            return Some(self.authenticate(rng));
        }
        let due = self.due(now);
        if due == 0 {
            return None;
        }
        let mut e = Encoder::new(0);
        e.put(&request::GET_PRINCIPAL_SESSION_KEY);
        let authorize = Authorize { nonce: rng.next_u64(), answer: None };
        e.put(&MODE_AUTHORIZER).put(&self.global_id).put(&AUTH).put(&auth.blob);
        e.put(&seal(&auth.session_key, Usage::Authorize, &authorize, rng)).put(&TicketRequest { services: due });
        Some(e.finish())
    }

    /// When `renewal` will next have something to say.
    pub fn next_renewal(&self) -> Option<Mono> {
        self.tickets.values().map(|t| t.renew_at).min()
    }

    /// The payload of a MAuth message that asks for this daemon's rotating secrets.
    pub fn rotating_request(&self) -> Bytes {
        denc::to_bytes(&request::GET_ROTATING_KEY, 0)
    }

    /// Takes the payload of a MAuthReply whose result is 0.
    pub fn handle_reply(&mut self, now: Mono, payload: &Bytes) -> Result<Renewed, ClientError> {
        let mut d = Decoder::shared(payload);
        match header(&mut d)? {
            request::GET_AUTH_SESSION_KEY => self.take_auth_reply(now, &mut d).map(|_| Renewed::Tickets),
            request::GET_PRINCIPAL_SESSION_KEY => {
                let principal = self.auth_ticket()?.session_key.clone();
                self.take_tickets(now, d.get()?, &principal)?;
                Ok(Renewed::Tickets)
            }
            request::GET_ROTATING_KEY => Ok(Renewed::Secrets(open_next(&self.key, Usage::RotatingSecret, &mut d)?)),
            other => Err(ClientError::UnknownKind(other)),
        }
    }

    /// True if there is a ticket for `service` that has not expired.
    pub fn has_ticket(&self, now: Mono, service: EntityKind) -> bool {
        self.tickets.get(&service.0.into()).is_some_and(|t| now < t.expires)
    }

    /// Proof for a daemon of kind `service`.
    pub fn authorizer(&self, service: EntityKind, rng: &mut ChaCha8Rng) -> Result<Authorizer, ClientError> {
        let ticket = self.tickets.get(&service.0.into()).ok_or(ClientError::NoTicket(service.name()))?;
        let mut e = Encoder::new(0);
        e.put(&MODE_AUTHORIZER).put(&self.global_id).put(&u32::from(service.0)).put(&ticket.blob);
        Ok(Authorizer { head: e.finish(), session_key: ticket.session_key.clone(), nonce: rng.next_u64() })
    }

    fn authenticate(&self, rng: &mut ChaCha8Rng) -> Bytes {
        let client_challenge = rng.next_u64();
        let old_ticket = self.tickets.get(&AUTH).map_or_else(TicketBlob::none, |t| t.blob.clone());
        let req = Authenticate {
            client_challenge,
            proof: proof(&self.key, self.challenge, client_challenge, rng),
            old_ticket,
            services: self.services | AUTH,
        };
        denc::to_bytes(&(request::GET_AUTH_SESSION_KEY, req), 0)
    }

    /// Services whose ticket is missing or ageing.
    fn due(&self, now: Mono) -> u32 {
        let bits = (0..32).map(|bit| 1u32 << bit).filter(|bit| self.services & bit != 0);
        bits.filter(|bit| self.tickets.get(bit).is_none_or(|t| now >= t.renew_at)).fold(0, |a, b| a | b)
    }

    fn auth_ticket(&self) -> Result<&Ticket, ClientError> {
        self.tickets.get(&AUTH).ok_or(ClientError::NoTicket("auth"))
    }

    fn take_auth_reply(&mut self, now: Mono, d: &mut Decoder<'_>) -> Result<SessionKeys, ClientError> {
        let key = self.key.clone();
        self.take_tickets(now, d.get()?, &key)?;
        let session_key = self.auth_ticket()?.session_key.clone();
        let mut keys =
            SessionKeys { session_key: Bytes::copy_from_slice(session_key.secret()), connection_secret: Bytes::new() };
        if !d.is_empty() {
            let (sealed, extra): (Bytes, Bytes) = (d.get()?, d.get()?);
            if !sealed.is_empty() {
                let mut d = Decoder::shared(&sealed);
                keys.connection_secret = open_next(&session_key, Usage::AuthConnectionSecret, &mut d)?;
            }
            if !extra.is_empty() {
                self.take_tickets(now, denc::from_slice(&extra)?, &session_key)?;
            }
        }
        Ok(keys)
    }

    fn take_tickets(&mut self, now: Mono, reply: TicketReply, principal: &CryptoKey) -> Result<(), ClientError> {
        for grant in reply.grants {
            let service = grant.service;
            let ticket = self.open_grant(now, grant, principal)?;
            // A service we do not know of may be a newer monitor's gift.
            if service == AUTH || self.services & service != 0 {
                self.tickets.insert(service, ticket);
            }
        }
        Ok(())
    }

    fn open_grant(&self, now: Mono, grant: TicketGrant, principal: &CryptoKey) -> Result<Ticket, ClientError> {
        let half: ServiceTicket = open(principal, Usage::TicketSessionKey, &grant.sealed_ticket)?;
        let blob: Bytes = match grant.blob_is_sealed {
            true => {
                let old = self.tickets.get(&grant.service).ok_or(ClientError::NoTicket("the id it reclaims"))?;
                open(&old.session_key, Usage::TicketBlob, &grant.blob)?
            }
            false => grant.blob,
        };
        let life = half.validity.to_duration();
        // Upstream renews when a quarter of the life is left; zero means that it does not end.
        let (expires, renew_at) = match life.is_zero() {
            true => (Mono(u64::MAX), Mono(u64::MAX)),
            false => (now + life, now + (life - Duration::from_secs(life.as_secs()) / 4)),
        };
        Ok(Ticket { session_key: half.session_key, blob: denc::from_slice(&blob)?, expires, renew_at })
    }
}

fn header(d: &mut Decoder<'_>) -> Result<u16, ClientError> {
    let (kind, status): (u16, i32) = (d.get()?, d.get()?);
    match status {
        0.. => Ok(kind),
        _ => Err(ClientError::Refused(Errno(status.saturating_neg()))),
    }
}

/// Proof for one connection to a daemon.
#[derive(Debug, Clone)]
pub struct Authorizer {
    head: Bytes,
    session_key: CryptoKey,
    nonce: u64,
}

impl Authorizer {
    /// The payload of AUTH_REQUEST.
    pub fn request(&self, rng: &mut ChaCha8Rng) -> Bytes {
        self.with_answer(None, rng)
    }

    /// Answers the daemon's challenge with the payload of AUTH_REQUEST_MORE.
    pub fn handle_more(&self, payload: &Bytes, rng: &mut ChaCha8Rng) -> Result<Bytes, ClientError> {
        let challenge: AuthorizeChallenge = open(&self.session_key, Usage::AuthorizeChallenge, payload)?;
        Ok(self.with_answer(Some(challenge.challenge.wrapping_add(1)), rng))
    }

    /// Takes AUTH_DONE; the daemon has proven itself too.
    pub fn handle_done(&self, payload: &Bytes) -> Result<SessionKeys, ClientError> {
        let reply: AuthorizeReply = open_next(&self.session_key, Usage::AuthorizeReply, &mut Decoder::shared(payload))?;
        if reply.nonce_plus_one != self.nonce.wrapping_add(1) {
            return Err(ClientError::WrongNonce);
        }
        Ok(SessionKeys {
            session_key: Bytes::copy_from_slice(self.session_key.secret()),
            connection_secret: reply.connection_secret,
        })
    }

    fn with_answer(&self, answer: Option<u64>, rng: &mut ChaCha8Rng) -> Bytes {
        let mut e = Encoder::new(0);
        e.raw(&self.head);
        e.put(&seal(&self.session_key, Usage::Authorize, &Authorize { nonce: self.nonce, answer }, rng));
        e.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cephx::proto::AuthorizerHead;
    use rand::SeedableRng;

    /// Conversations with stock daemons, by name of their parts.
    const RECORDED: [&str; 2] =
        [include_str!("../../testdata/handshake-16.2.15.txt"), include_str!("../../testdata/handshake-20.2.4.txt")];

    fn part<'a>(recorded: &'a str, name: &str) -> &'a str {
        recorded.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap()
    }

    fn bytes(recorded: &str, name: &str) -> Bytes {
        let hex = part(recorded, name);
        (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect::<Vec<_>>().into()
    }

    fn client(recorded: &str) -> CephxClient {
        let key = part(recorded, "key").parse().unwrap();
        CephxClient::new("client.vector".parse().unwrap(), key, &[EntityKind::MON, EntityKind::OSD, EntityKind::MGR])
    }

    #[test]
    fn a_proof_that_stock_accepted_is_the_proof_we_expect() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        for recorded in RECORDED {
            let challenge: ServerChallenge = denc::from_bytes(&bytes(recorded, "mon_challenge")).unwrap();
            let (kind, sent): (u16, Authenticate) = denc::from_bytes(&bytes(recorded, "mon_request")).unwrap();
            let key = part(recorded, "key").parse().unwrap();
            assert_eq!(kind, request::GET_AUTH_SESSION_KEY);
            assert_eq!(sent.proof, proof(&key, challenge.challenge, sent.client_challenge, &mut rng));
        }
    }

    #[test]
    fn what_stock_daemons_answered_opens() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        for recorded in RECORDED {
            let mut client = client(recorded);
            let gid = part(recorded, "gid").parse().unwrap();
            let keys = client.handle_done(Mono(0), gid, &bytes(recorded, "mon_done")).unwrap();
            assert_eq!(keys.connection_secret.len(), 64);
            for service in [EntityKind::MON, EntityKind::OSD, EntityKind::MGR] {
                assert!(client.has_ticket(Mono(0), service));
            }
            // The authorizer as it was sent: its nonce is known to whoever has the session key.
            let mut authorizer = client.authorizer(EntityKind::MGR, &mut rng).unwrap();
            let sent = bytes(recorded, "service_request");
            let mut d = Decoder::shared(&sent);
            let head: AuthorizerHead = d.get().unwrap();
            assert_eq!(denc::to_bytes(&head, 0), authorizer.head);
            let inside: Authorize = open_next(&authorizer.session_key, Usage::Authorize, &mut d).unwrap();
            authorizer.nonce = inside.nonce;
            let answer = authorizer.handle_more(&bytes(recorded, "service_challenge"), &mut rng).unwrap();
            assert_eq!(answer.len(), bytes(recorded, "service_answer").len());
            if client.key.kind() == crate::KeyKind::Aes {
                assert_eq!(answer, bytes(recorded, "service_answer"));
            }
            let keys = authorizer.handle_done(&bytes(recorded, "service_done")).unwrap();
            assert_eq!(keys.session_key, bytes(recorded, "session_key"));
            assert_eq!(keys.connection_secret, bytes(recorded, "connection_secret"));
        }
    }
}
