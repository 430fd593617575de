//! One socket on its way from the banner to messages.

use crate::rx::Reader;
use crate::tx::Writer;
use crate::{ConnId, MODE_CRC};
use ring::hmac;
use std::net::SocketAddr;
use types::{EntityKind, Mono};

/// What a socket waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The world: the TCP connection.
    Dialling,
    Banner,
    Hello,
    /// The peer's move in authentication.
    Auth(Turn),
    /// The owner's move in authentication; what the peer sends meanwhile is kept, within bounds.
    Owner(Turn),
    Signature,
    /// Acceptor: CLIENT_IDENT or SESSION_RECONNECT.
    ClientIdent,
    /// Dialler: an answer to CLIENT_IDENT.
    ServerIdent,
    /// Dialler: an answer to SESSION_RECONNECT.
    Reconnect,
    Ready,
}

/// How far authentication is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// AUTH_REQUEST.
    Request,
    /// AUTH_REPLY_MORE and AUTH_REQUEST_MORE.
    More,
    /// AUTH_DONE has come; the keys are missing.
    Done,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Dialling => "dialling",
            Phase::Banner => "banner",
            Phase::Hello => "hello",
            Phase::Auth(_) => "auth",
            Phase::Owner(_) => "auth, owner's turn",
            Phase::Signature => "signature",
            Phase::ClientIdent => "client ident",
            Phase::ServerIdent => "server ident",
            Phase::Reconnect => "reconnect",
            Phase::Ready => "ready",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Sock {
    pub conn: ConnId,
    /// We opened it.
    pub dialled: bool,
    pub phase: Phase,
    pub rx: Reader,
    pub tx: Writer,
    pub peer: SocketAddr,
    pub opened: Mono,
    /// Last traffic in either direction.
    pub active: Mono,
    /// The socket's only timer, as it stands in the endpoint's table.
    pub timer: Mono,
    /// When a peer of a lossless session is told what has come, if no message has told it before.
    pub ack_at: Option<Mono>,
    /// In the endpoint's list of sockets with something to transmit.
    pub dirty: bool,
    pub peer_kind: EntityKind,
    pub auth: Auth,
    pub keepalive: Keepalive,
}

/// What authentication leaves behind.
#[derive(Debug, Default)]
pub(crate) struct Auth {
    pub attempts: u32,
    pub method: u32,
    pub modes: Vec<u32>,
    pub mode: u32,
    pub global_id: u64,
    /// Key and text of the signature the peer must show: every byte we sent it. `None`: it signs with zeros.
    pub expected: Option<(hmac::Key, Vec<u8>)>,
}

/// A dialler's keepalives.
#[derive(Debug, Default)]
pub(crate) struct Keepalive {
    pub next: Option<Mono>,
    pub unanswered_since: Option<Mono>,
}

impl Sock {
    pub fn new(conn: ConnId, dialled: bool, peer: SocketAddr, peer_kind: EntityKind, now: Mono) -> Self {
        Sock {
            conn,
            dialled,
            phase: if dialled { Phase::Dialling } else { Phase::Banner },
            rx: Reader::new(),
            tx: Writer::new(),
            peer,
            opened: now,
            active: now,
            timer: now,
            ack_at: None,
            dirty: false,
            peer_kind,
            auth: Auth { mode: MODE_CRC, ..Auth::default() },
            keepalive: Keepalive::default(),
        }
    }
}
