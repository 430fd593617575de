//! The structures of cephx. Most begin with a lone version byte instead of an envelope.

use crate::key::CryptoKey;
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use types::{EntityName, Utime};

/// Kinds of requests to a monitor.
pub mod request {
    pub const GET_AUTH_SESSION_KEY: u16 = 0x0100;
    pub const GET_PRINCIPAL_SESSION_KEY: u16 = 0x0200;
    pub const GET_ROTATING_KEY: u16 = 0x0400;
}

/// First byte of a first request to a monitor (`AUTH_MODE_MON`) and of an authorizer (`AUTH_MODE_AUTHORIZER`).
pub const MODE_MON: u8 = 10;
pub const MODE_AUTHORIZER: u8 = 1;

/// Defines a struct whose encoding is a version byte and its fields in order.
macro_rules! versioned {
    ($(#[$doc:meta])* $name:ident $version:literal { $($(#[$fdoc:meta])* $field:ident: $t:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name { $($(#[$fdoc])* pub $field: $t,)* }
        impl Encode for $name {
            fn encode(&self, e: &mut Encoder) {
                let version: u8 = $version;
                e.put(&version);
                $(e.put(&self.$field);)*
            }
        }
        impl Decode for $name {
            fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                let _version: u8 = d.get()?;
                Ok($name { $($field: d.get()?,)* })
            }
        }
    };
}

versioned!(/** The monitor's first answer. */ ServerChallenge 1 { challenge: u64, });
versioned!(/** A box for a service, opaque to its holder; `secret_id` says which rotating secret opens it. */
    TicketBlob 1 { secret_id: u64, blob: Bytes, });
versioned!(/** Which services' tickets are wanted, a mask of entity kinds. */ TicketRequest 1 { services: u32, });
versioned!(/** The client's half of a ticket. */ ServiceTicket 1 { session_key: CryptoKey, validity: Utime, });
versioned!(/** The service's half of a ticket. */ ServiceTicketInfo 1 { ticket: AuthTicket, session_key: CryptoKey, });
versioned!(/** A daemon's answer to a first authorizer. */ AuthorizeChallenge 1 { challenge: u64, });
versioned!(/** The front of an authorizer: in the clear. */
    AuthorizerHead 1 { global_id: u64, service: u32, ticket: TicketBlob, });
versioned!(/** What may be done, as the ticket carries it. `caps` is an encoded string, or empty. */
    CapsInfo 1 { allow_all: bool, caps: Bytes, });

impl TicketBlob {
    /// "I have none."
    pub fn none() -> Self {
        TicketBlob { secret_id: 0, blob: Bytes::new() }
    }
}

/// Who holds a ticket, until when, and what it may do (`AuthTicket`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthTicket {
    pub name: EntityName,
    pub global_id: u64,
    pub created: Utime,
    pub expires: Utime,
    pub caps: CapsInfo,
    pub flags: u32,
}

impl Encode for AuthTicket {
    fn encode(&self, e: &mut Encoder) {
        e.put(&2u8).put(&self.name).put(&self.global_id).put(&u64::MAX);
        e.put(&self.created).put(&self.expires).put(&self.caps).put(&self.flags);
    }
}
impl Decode for AuthTicket {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let version: u8 = d.get()?;
        let (name, global_id) = (d.get()?, d.get()?);
        if version >= 2 {
            let _auid: u64 = d.get()?;
        }
        Ok(AuthTicket { name, global_id, created: d.get()?, expires: d.get()?, caps: d.get()?, flags: d.get()? })
    }
}

impl AuthTicket {
    /// The capability text; empty when there is none.
    pub fn caps_text(&self) -> Result<String, DecodeError> {
        match (self.caps.allow_all, self.caps.caps.is_empty()) {
            (true, _) => Ok("allow *".to_owned()),
            (false, true) => Ok(String::new()),
            (false, false) => denc::from_slice(&self.caps.caps),
        }
    }
}

/// The proof (`CephXAuthenticate`). Version 2 added `services`; version 3 says that a reclaim always shows its ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticate {
    pub client_challenge: u64,
    pub proof: u64,
    pub old_ticket: TicketBlob,
    /// Services whose tickets are wanted in the same reply.
    pub services: u32,
}

impl Encode for Authenticate {
    fn encode(&self, e: &mut Encoder) {
        e.put(&3u8).put(&self.client_challenge).put(&self.proof).put(&self.old_ticket).put(&self.services);
    }
}
impl Decode for Authenticate {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let version: u8 = d.get()?;
        let (client_challenge, proof, old_ticket) = (d.get()?, d.get()?, d.get()?);
        let services = if version >= 2 { d.get()? } else { 0 };
        Ok(Authenticate { client_challenge, proof, old_ticket, services })
    }
}

/// The sealed part of an authorizer (`CephXAuthorize`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorize {
    pub nonce: u64,
    /// The challenge plus one, in the second round.
    pub answer: Option<u64>,
}

impl Encode for Authorize {
    fn encode(&self, e: &mut Encoder) {
        e.put(&2u8).put(&self.nonce).put(&self.answer.is_some()).put(&self.answer.unwrap_or(0));
    }
}
impl Decode for Authorize {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let version: u8 = d.get()?;
        let nonce = d.get()?;
        if version < 2 {
            return Ok(Authorize { nonce, answer: None });
        }
        let (has, answer): (bool, u64) = (d.get()?, d.get()?);
        Ok(Authorize { nonce, answer: has.then_some(answer) })
    }
}

/// A daemon's last word (`CephXAuthorizeReply`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizeReply {
    pub nonce_plus_one: u64,
    /// Empty in crc mode.
    pub connection_secret: Bytes,
}

impl Encode for AuthorizeReply {
    fn encode(&self, e: &mut Encoder) {
        let version: u8 = if self.connection_secret.is_empty() { 1 } else { 2 };
        e.put(&version).put(&self.nonce_plus_one);
        if version >= 2 {
            e.put(&self.connection_secret);
        }
    }
}
impl Decode for AuthorizeReply {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let version: u8 = d.get()?;
        let nonce_plus_one = d.get()?;
        let connection_secret = if version >= 2 { d.get()? } else { Bytes::new() };
        Ok(AuthorizeReply { nonce_plus_one, connection_secret })
    }
}

/// One ticket of a reply: who it is for, the sealed client's half, the (perhaps sealed) box for the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketGrant {
    pub service: u32,
    pub sealed_ticket: Bytes,
    pub blob_is_sealed: bool,
    pub blob: Bytes,
}

impl Encode for TicketGrant {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.service).put(&1u8).put(&self.sealed_ticket).put(&self.blob_is_sealed).put(&self.blob);
    }
}
impl Decode for TicketGrant {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let service = d.get()?;
        let _version: u8 = d.get()?;
        Ok(TicketGrant { service, sealed_ticket: d.get()?, blob_is_sealed: d.get()?, blob: d.get()? })
    }
}

versioned!(/** A reply's tickets. */ TicketReply 1 { grants: Vec<TicketGrant>, });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authenticate_is_as_long_as_on_the_wire() {
        // 36 bytes with the request's kind, as the reference observed.
        let m = Authenticate { client_challenge: 1, proof: 2, old_ticket: TicketBlob::none(), services: 0x35 };
        let bytes = denc::to_bytes(&m, 0);
        assert_eq!(bytes.len() + 2, 36);
        assert_eq!(denc::from_bytes::<Authenticate>(&bytes).unwrap(), m);
    }

    #[test]
    fn a_version_1_authenticate_asks_for_nothing_more() {
        let mut e = Encoder::new(0);
        e.put(&1u8).put(&1u64).put(&2u64).put(&TicketBlob::none());
        assert_eq!(denc::from_bytes::<Authenticate>(&e.finish()).unwrap().services, 0);
    }
}
