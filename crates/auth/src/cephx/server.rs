//! The monitor's side: challenge, proof, tickets.
//!
//! Owns: `MonAuth`, one per connection, from AUTH_REQUEST until the session ends: renewals come through MAuth messages.
//! Holds: a client keeps an old global id only by showing an auth ticket for it under its own name (insecure reclaim,
//! `auth_allow_insecure_global_id_reclaim`, is never allowed).
//! Upstream: src/auth/cephx/CephxServiceHandler.cc, src/auth/cephx/CephxKeyServer.cc, Monitor::handle_auth_request.

use super::proto::{
    AuthTicket, Authenticate, AuthorizerHead, Authorize, CapsInfo, MODE_MON, ServerChallenge, ServiceTicket,
    ServiceTicketInfo, TicketBlob, TicketGrant, TicketReply, TicketRequest, request,
};
use super::seal::{Usage, open, open_next, proof, seal};
use super::secrets::{RotatingSecrets, later};
use crate::key::{CryptoKey, KeyError};
use crate::keyring::EntityAuth;
use crate::mode;
use bytes::Bytes;
use denc::{Decoder, Encoder};
use rand::{Rng, RngCore};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;
use types::{EntityKind, EntityName, Errno, Utime};

/// The monitors' key database.
pub trait KeyStore {
    /// Key and capabilities of `name`.
    fn entity(&self, name: &EntityName) -> Option<EntityAuth>;
    /// The rotating secrets of a service: `auth`, `mon`, `osd`, `mds`, `mgr`.
    fn secrets(&self, service: EntityKind) -> Option<&RotatingSecrets>;
}

/// How long tickets live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TicketPolicy {
    /// `auth_mon_ticket_ttl`
    pub auth_ttl: Duration,
    /// `auth_service_ticket_ttl`
    pub service_ttl: Duration,
}

impl Default for TicketPolicy {
    fn default() -> Self {
        TicketPolicy { auth_ttl: Duration::from_secs(72 * 3600), service_ttl: Duration::from_secs(3600) }
    }
}

/// What to answer a step with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// AUTH_REPLY_MORE with this payload.
    More(Bytes),
    /// AUTH_DONE.
    Done(Box<Granted>),
    /// AUTH_BAD_METHOD with this result.
    Bad(Errno),
}

/// A proven client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    pub name: EntityName,
    pub global_id: u64,
    /// AUTH_DONE's payload.
    pub payload: Bytes,
    /// Signs the handshake.
    pub session_key: Bytes,
    /// Keys the secure mode; empty in crc mode.
    pub connection_secret: Bytes,
    /// The client's capabilities for `mon`.
    pub mon_caps: String,
}

/// The server's half of one mon connection's authentication.
#[derive(Debug, Clone)]
pub struct MonAuth {
    name: EntityName,
    global_id: u64,
    /// The client came with `global_id` and must prove it was its own.
    reclaims: bool,
    challenge: u64,
}

impl MonAuth {
    /// Answers a first AUTH_REQUEST. `allocate` gives a fresh global id, `None` if there is none to give now (EBUSY:
    /// the client tries again).
    pub fn begin(
        payload: &Bytes,
        allocate: impl FnOnce() -> Option<u64>,
        rng: &mut ChaCha8Rng,
    ) -> Result<(MonAuth, Bytes), Errno> {
        let mut d = Decoder::shared(payload);
        let mut parse = || Ok::<_, denc::DecodeError>((d.get::<u8>()?, d.get::<EntityName>()?, d.get::<u64>()?));
        let (auth_mode, name, claimed) = parse().map_err(|_| Errno::EACCES)?;
        if auth_mode != MODE_MON {
            return Err(Errno::EACCES);
        }
        let reclaims = claimed != 0;
        let global_id = if reclaims { claimed } else { allocate().ok_or(Errno::EBUSY)? };
        let challenge = rng.random_range(1..=u64::MAX);
        let auth = MonAuth { name, global_id, reclaims, challenge };
        Ok((auth, denc::to_bytes(&ServerChallenge { challenge }, 0)))
    }

    /// Who this connection says it is.
    pub fn name(&self) -> &EntityName {
        &self.name
    }

    /// Its global id; proven only after `Reply::Done`.
    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    /// Answers AUTH_REQUEST_MORE. `con_mode` is the mode AUTH_DONE will announce.
    pub fn proceed(
        &mut self,
        payload: &Bytes,
        con_mode: u32,
        store: &dyn KeyStore,
        policy: &TicketPolicy,
        now: Utime,
        rng: &mut ChaCha8Rng,
    ) -> Reply {
        let mut d = Decoder::shared(payload);
        match d.get::<u16>() {
            Ok(request::GET_AUTH_SESSION_KEY) => {}
            Ok(_) => return Reply::Bad(Errno::EINVAL),
            Err(_) => return Reply::Bad(Errno::EPERM),
        }
        let mut secret = vec![0; mode::secret_len(con_mode)];
        rng.fill_bytes(&mut secret);
        let mut at = Issuer { store, policy, now, rng };
        match self.authenticate(&mut d, Some(secret.into()), &mut at) {
            Ok(granted) => Reply::Done(Box::new(granted)),
            Err(errno) => Reply::Bad(errno),
        }
    }

    /// Answers a MAuth message on an open session: fresh tickets, or a daemon's rotating secrets. The result and the
    /// payload go into MAuthReply.
    pub fn handle_message(
        &mut self,
        payload: &Bytes,
        store: &dyn KeyStore,
        policy: &TicketPolicy,
        now: Utime,
        rng: &mut ChaCha8Rng,
    ) -> Result<Bytes, Errno> {
        let mut d = Decoder::shared(payload);
        let kind: u16 = d.get().map_err(|_| Errno::EPERM)?;
        let mut at = Issuer { store, policy, now, rng };
        match kind {
            request::GET_AUTH_SESSION_KEY => Ok(self.authenticate(&mut d, None, &mut at)?.payload),
            request::GET_PRINCIPAL_SESSION_KEY => service_tickets(&mut d, &mut at),
            request::GET_ROTATING_KEY => self.rotating_secrets(&mut at),
            _ => Err(Errno::EINVAL),
        }
    }

    fn authenticate(&mut self, d: &mut Decoder<'_>, secret: Option<Bytes>, at: &mut Issuer<'_>) -> Result<Granted, Errno> {
        let req: Authenticate = d.get().map_err(|_| Errno::EPERM)?;
        let entity = at.store.entity(&self.name).ok_or(Errno::EACCES)?;
        if req.proof != proof(&entity.key, self.challenge, req.client_challenge, at.rng) {
            return Err(Errno::EACCES);
        }
        let old = self.check_reclaim(&req.old_ticket, at.store)?;
        let mon_caps = entity.caps.get("mon").filter(|caps| !caps.is_empty()).ok_or(Errno::EACCES)?.clone();
        // From here the id is this client's: a repetition on this session need not show a ticket again.
        self.reclaims = false;

        let session_key = CryptoKey::generate(entity.key.kind(), at.now, at.rng);
        let ticket = at.ticket(&self.name, self.global_id, at.policy.auth_ttl);
        let grant = at.grant(EntityKind::AUTH, ticket.clone(), &session_key, &entity.key, at.policy.auth_ttl);
        let mut grant = grant.ok_or(Errno::EIO)?;
        if let Some(old) = old {
            grant.blob = seal(&old.session_key, Usage::TicketBlob, &grant.blob, at.rng);
            grant.blob_is_sealed = true;
        }
        let mut e = reply_header(request::GET_AUTH_SESSION_KEY);
        e.put(&TicketReply { grants: vec![grant] });
        if req.services != 0 {
            put_connection_secret(&mut e, secret.as_ref(), &session_key, at.rng);
            let grants = at.service_grants(req.services, &ticket, &session_key, &entity);
            e.nested(|e| {
                if !grants.is_empty() {
                    e.put(&TicketReply { grants });
                }
            });
        }
        Ok(Granted {
            name: self.name.clone(),
            global_id: self.global_id,
            payload: e.finish(),
            session_key: Bytes::copy_from_slice(session_key.secret()),
            connection_secret: secret.filter(|_| req.services != 0).unwrap_or_default(),
            mon_caps,
        })
    }

    /// The old auth ticket, if it lets the client keep its global id. A fresh id needs none.
    fn check_reclaim(&self, blob: &TicketBlob, store: &dyn KeyStore) -> Result<Option<ServiceTicketInfo>, Errno> {
        if !self.reclaims {
            return Ok(None);
        }
        let old = open_ticket(EntityKind::AUTH, blob, store).ok_or(Errno::EACCES)?;
        match old.ticket.global_id == self.global_id && old.ticket.name == self.name {
            true => Ok(Some(old)),
            false => Err(Errno::EACCES),
        }
    }

    fn rotating_secrets(&self, at: &mut Issuer<'_>) -> Result<Bytes, Errno> {
        // Only a service's own daemons know its secrets; `auth` and `mon` secrets never leave the monitors.
        if ![EntityKind::OSD, EntityKind::MDS, EntityKind::MGR].contains(&self.name.kind) {
            return Err(Errno::EACCES);
        }
        let entity = at.store.entity(&self.name).ok_or(Errno::EACCES)?;
        let secrets = at.store.secrets(self.name.kind).ok_or(Errno::EACCES)?;
        let mut e = reply_header(request::GET_ROTATING_KEY);
        e.put(&seal(&entity.key, Usage::RotatingSecret, secrets, at.rng));
        Ok(e.finish())
    }
}

/// What issuing a ticket needs.
struct Issuer<'a> {
    store: &'a dyn KeyStore,
    policy: &'a TicketPolicy,
    now: Utime,
    rng: &'a mut ChaCha8Rng,
}

impl Issuer<'_> {
    fn ticket(&self, name: &EntityName, global_id: u64, ttl: Duration) -> AuthTicket {
        let caps = CapsInfo { allow_all: false, caps: Bytes::new() };
        AuthTicket { name: name.clone(), global_id, created: self.now, expires: later(self.now, ttl), caps, flags: 0 }
    }

    /// A ticket for `service`: the client's half under `principal`, the box under the service's current secret.
    fn grant(
        &mut self,
        service: EntityKind,
        ticket: AuthTicket,
        session_key: &CryptoKey,
        principal: &CryptoKey,
        ttl: Duration,
    ) -> Option<TicketGrant> {
        let (secret_id, secret) = self.store.secrets(service)?.for_sealing(self.now)?;
        let info = ServiceTicketInfo { ticket, session_key: session_key.clone() };
        let blob = seal(secret, Usage::TicketInfo, &info, self.rng);
        let half = ServiceTicket { session_key: session_key.clone(), validity: Utime::from_duration(ttl) };
        Some(TicketGrant {
            service: service.0.into(),
            sealed_ticket: seal(principal, Usage::TicketSessionKey, &half, self.rng),
            blob_is_sealed: false,
            blob: denc::to_bytes(&TicketBlob { secret_id, blob }, 0),
        })
    }

    /// Tickets for every service of the mask that has secrets; services nobody knows are passed over.
    fn service_grants(&mut self, mask: u32, parent: &AuthTicket, principal: &CryptoKey, entity: &EntityAuth) -> Vec<TicketGrant> {
        let mut grants = Vec::new();
        // The auth ticket was granted before, perhaps sealed with the old session key: a second one would replace it.
        let wanted = |s: &EntityKind| mask & u32::from(s.0) != 0 && *s != EntityKind::AUTH;
        for service in (0..8).map(|bit| EntityKind(1 << bit)).filter(wanted) {
            let ttl = self.policy.service_ttl;
            let mut ticket = self.ticket(&parent.name, parent.global_id, ttl);
            if service != EntityKind::MON {
                ticket.caps.caps = entity.caps.get(service.name()).map_or_else(Bytes::new, |text| denc::to_bytes(text, 0));
            }
            let session_key = CryptoKey::generate(principal.kind(), self.now, self.rng);
            grants.extend(self.grant(service, ticket, &session_key, principal, ttl));
        }
        grants
    }
}

fn service_tickets(d: &mut Decoder<'_>, at: &mut Issuer<'_>) -> Result<Bytes, Errno> {
    let head: AuthorizerHead = d.get().map_err(|_| Errno::EACCES)?;
    let info = open_ticket(EntityKind::AUTH, &head.ticket, at.store).ok_or(Errno::EACCES)?;
    if head.service != u32::from(EntityKind::AUTH.0) || info.ticket.global_id != head.global_id {
        return Err(Errno::EACCES);
    }
    let _proof: Authorize =
        open_next(&info.session_key, Usage::Authorize, d).map_err(|_: KeyError| Errno::EACCES)?;
    let wanted: TicketRequest = d.get().map_err(|_| Errno::EPERM)?;
    // The entity may have been removed, or its caps changed, since its auth ticket was issued.
    let entity = at.store.entity(&info.ticket.name).ok_or(Errno::EACCES)?;
    let grants = at.service_grants(wanted.services, &info.ticket, &info.session_key, &entity);
    if grants.is_empty() && wanted.services != 0 {
        return Err(Errno::EACCES);
    }
    let mut e = reply_header(request::GET_PRINCIPAL_SESSION_KEY);
    e.put(&TicketReply { grants });
    Ok(e.finish())
}

fn open_ticket(service: EntityKind, blob: &TicketBlob, store: &dyn KeyStore) -> Option<ServiceTicketInfo> {
    let secret = store.secrets(service)?.get(blob.secret_id)?;
    open(secret, Usage::TicketInfo, &blob.blob).ok()
}

fn reply_header(kind: u16) -> Encoder {
    let mut e = Encoder::new(0);
    e.put(&kind).put(&0i32);
    e
}

/// A blob holding the length-prefixed sealed secret; an empty blob when the reply goes through a message.
fn put_connection_secret(e: &mut Encoder, secret: Option<&Bytes>, session_key: &CryptoKey, rng: &mut ChaCha8Rng) {
    e.nested(|e| {
        if let Some(secret) = secret {
            e.put(&seal(session_key, Usage::AuthConnectionSecret, secret, rng));
        }
    });
}
