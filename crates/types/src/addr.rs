//! Network addresses (`entity_addr_t`, `entity_addrvec_t`) in their marked encoding.
//!
//! Peers without MSG_ADDR2 (before Nautilus) are not served; kernels that old need msgr v1, a later step.
//! Upstream: src/msg/msg_types.{h,cc}.

use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::cmp::Ordering;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Which protocol is spoken at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AddrKind(pub u32);

impl AddrKind {
    pub const NONE: Self = AddrKind(0);
    pub const LEGACY: Self = AddrKind(1);
    pub const MSGR2: Self = AddrKind(2);
    pub const ANY: Self = AddrKind(3);
    /// A network: the nonce is the prefix length (in blocklists only).
    pub const CIDR: Self = AddrKind(4);
}

/// An address with the nonce that tells one boot of a daemon from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EntityAddr {
    pub kind: AddrKind,
    pub nonce: u32,
    /// `None` is a blank address, encoded as 28 zeros.
    pub sock: Option<SocketAddr>,
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

impl EntityAddr {
    /// An msgr2 address.
    pub fn msgr2(sock: SocketAddr, nonce: u32) -> Self {
        EntityAddr { kind: AddrKind::MSGR2, nonce, sock: Some(sock) }
    }

    /// The address with type "any", as lists of watchers and blocklists show clients.
    pub fn as_any(self) -> Self {
        EntityAddr { kind: AddrKind::ANY, ..self }
    }
}

impl EntityAddr {
    /// The bytes upstream compares (its in-memory form, little-endian numbers and all): maps keyed by address, such as
    /// the blocklist, are encoded in this order.
    fn sort_key(&self) -> [u8; 36] {
        let mut key = [0; 36];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            for (slot, byte) in key.iter_mut().skip(at).zip(bytes) {
                *slot = *byte;
            }
            at += bytes.len();
        };
        put(&self.kind.0.to_le_bytes());
        put(&self.nonce.to_le_bytes());
        match self.sock {
            None => {}
            Some(SocketAddr::V4(a)) => {
                put(&AF_INET.to_le_bytes());
                put(&a.port().to_be_bytes());
                put(&a.ip().octets());
            }
            Some(SocketAddr::V6(a)) => {
                put(&AF_INET6.to_le_bytes());
                put(&a.port().to_be_bytes());
                put(&a.flowinfo().to_le_bytes());
                put(&a.ip().octets());
                put(&a.scope_id().to_le_bytes());
            }
        }
        key
    }
}
impl Ord for EntityAddr {
    fn cmp(&self, o: &Self) -> Ordering {
        self.sort_key().cmp(&o.sort_key())
    }
}
impl PartialOrd for EntityAddr {
    fn partial_cmp(&self, o: &Self) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

impl Encode for EntityAddr {
    fn encode(&self, e: &mut Encoder) {
        e.put(&1u8);
        e.envelope(1, 1, |e| {
            e.put(&self.kind.0).put(&self.nonce);
            e.nested(|e| match self.sock {
                // Upstream writes its whole union when there is no family.
                None => {
                    e.raw(&[0; 28]);
                }
                Some(SocketAddr::V4(a)) => {
                    e.put(&AF_INET).raw(&a.port().to_be_bytes()).raw(&a.ip().octets()).raw(&[0; 8]);
                }
                Some(SocketAddr::V6(a)) => {
                    e.put(&AF_INET6).raw(&a.port().to_be_bytes()).put(&a.flowinfo());
                    e.raw(&a.ip().octets()).put(&a.scope_id());
                }
            });
        });
    }
}
impl Decode for EntityAddr {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match d.get::<u8>()? {
            1 => d.envelope("entity_addr_t", 1, |_, d| {
                let kind = AddrKind(d.get()?);
                let nonce = d.get()?;
                Ok(EntityAddr { kind, nonce, sock: d.nested(sockaddr)? })
            }),
            // The form before Nautilus: three more marker bytes, nonce, a whole sockaddr_storage.
            0 => {
                d.raw(3)?;
                let nonce = d.get()?;
                let sock = sockaddr(&mut Decoder::new(d.raw(128)?))?;
                Ok(EntityAddr { kind: AddrKind::LEGACY, nonce, sock })
            }
            other => Err(DecodeError::BadTag { what: "entity_addr_t", tag: other.into() }),
        }
    }
}

fn sockaddr(d: &mut Decoder<'_>) -> Result<Option<SocketAddr>, DecodeError> {
    if d.is_empty() {
        return Ok(None);
    }
    match d.get::<u16>()? {
        0 => Ok(None),
        AF_INET => {
            let port = u16::from_be_bytes(d.array()?);
            Ok(Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(d.array::<4>()?)), port)))
        }
        AF_INET6 => {
            let port = u16::from_be_bytes(d.array()?);
            let flow = d.get()?;
            let ip = Ipv6Addr::from(d.array::<16>()?);
            Ok(Some(SocketAddr::V6(SocketAddrV6::new(ip, port, flow, d.get()?))))
        }
        _ => Err(DecodeError::Invalid("address family")),
    }
}

impl EntityAddr {
    /// Address and port without the kind of protocol.
    pub fn sock_string(&self) -> String {
        match self.sock {
            Some(sock) => sock.to_string(),
            None => "(unrecognized address family 0)".to_owned(),
        }
    }

    /// As maps showed addresses before there were kinds: `127.0.0.1:6800/1234`.
    pub fn legacy_string(&self) -> String {
        format!("{}/{}", self.sock_string(), self.nonce)
    }
}

impl fmt::Display for EntityAddr {
    /// As maps print it: `v2:127.0.0.1:6800/1234`; `-` when it is of no kind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.kind {
            AddrKind::NONE => return f.pad("-"),
            AddrKind::ANY => "",
            AddrKind::LEGACY => "v1:",
            AddrKind::MSGR2 => "v2:",
            AddrKind::CIDR => "cidr:",
            _ => "???:",
        };
        write!(f, "{prefix}{}", self.legacy_string())
    }
}

/// All addresses of one daemon.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AddrVec(pub Vec<EntityAddr>);

impl AddrVec {
    /// The address that msgr2 is spoken at.
    pub fn msgr2(&self) -> Option<EntityAddr> {
        self.0.iter().copied().find(|a| a.kind == AddrKind::MSGR2 && a.sock.is_some())
    }

    /// True if there is nothing to connect to.
    pub fn is_blank(&self) -> bool {
        self.0.iter().all(|a| a.sock.is_none())
    }
}
impl Encode for AddrVec {
    fn encode(&self, e: &mut Encoder) {
        e.put(&2u8).put(&self.0);
    }
}
impl Decode for AddrVec {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match d.clone().get::<u8>()? {
            2 => {
                d.get::<u8>()?;
                Ok(AddrVec(d.get()?))
            }
            _ => Ok(AddrVec(vec![d.get()?])),
        }
    }
}
impl AddrVec {
    /// The msgr v1 address, or the first, as maps showed it before there were several.
    pub fn legacy_string(&self) -> String {
        let legacy = self.0.iter().find(|a| a.kind == AddrKind::LEGACY);
        legacy.or(self.0.first()).copied().unwrap_or_default().legacy_string()
    }
}
impl fmt::Display for AddrVec {
    /// One address stands alone, several in brackets: `[v2:...,v1:...]`; none print nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(|a| a.to_string()).collect();
        match all.as_slice() {
            [] => Ok(()),
            [one] => f.write_str(one),
            many => write!(f, "[{}]", many.join(",")),
        }
    }
}
