//! What goes in and out of an endpoint besides bytes.

use crate::Fault;
use bytes::Bytes;
use std::net::SocketAddr;
use types::msg::RawMessage;
use types::{AddrVec, EntityKind};

/// One TCP connection. The endpoint numbers those it dials; whoever accepts sets [`SockId::ACCEPTED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SockId(pub u64);

impl SockId {
    /// The bit that keeps accepted sockets apart from dialled ones.
    pub const ACCEPTED: u64 = 1 << 63;
}

/// A session as its owner sees it; a lossless one outlives its sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// What the world is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Open a TCP connection and report `handle_connected` or `handle_closed`.
    Dial { sock: SockId, addr: SocketAddr },
    /// Write the pieces as one run, in order, after everything transmitted before.
    Transmit { sock: SockId, bufs: Vec<Bytes> },
    /// Write what was transmitted so far, then close. Nothing reported about `sock` from here on is heard.
    Close { sock: SockId },
}

/// Who is at the other end of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInfo {
    pub kind: EntityKind,
    pub addrs: AddrVec,
    /// The number it introduced itself with: mon rank, OSD id, global id; -1 for a client that has none yet.
    pub num: i64,
    /// The id authentication gave it (seen by an acceptor) or us (seen by a dialler).
    pub global_id: u64,
    /// 64-bit cluster features both ends have.
    pub features: u64,
    /// The session dies with its socket.
    pub lossy: bool,
    /// `MODE_CRC` or `MODE_SECURE`.
    pub mode: u32,
}

/// What the owner is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Dialler: time for `auth_request`.
    AuthStart { conn: ConnId },
    /// Dialler: the server goes on; answer with `auth_request_more`.
    AuthReplyMore { conn: ConnId, payload: Bytes },
    /// Dialler: accepted, if `payload` convinces; answer with `auth_client_done` or `close`.
    AuthDone { conn: ConnId, global_id: u64, mode: u32, payload: Bytes },
    /// Dialler: refused; `result` is a negative errno. Try again with `auth_request`, or `close`.
    AuthBad { conn: ConnId, method: u32, result: i32, methods: Vec<u32>, modes: Vec<u32> },
    /// Acceptor: answer with `auth_reply_more`, `auth_server_done`, `auth_bad_method` or `close`. `first` is false
    /// for the answers to `auth_reply_more`, which repeat the method and modes of the request.
    AuthRequest { conn: ConnId, first: bool, method: u32, modes: Vec<u32>, payload: Bytes, peer_kind: EntityKind },
    /// Acceptor: what was authenticated as `conn` is a new socket of the session `by`; `conn` is no more. What the
    /// owner learned about `conn` now holds for `by`.
    Replaced { conn: ConnId, by: ConnId },
    /// A new session is open. A lossless session says so again only after a `Reset`, not after every socket.
    Ready { conn: ConnId, peer: PeerInfo },
    Message { conn: ConnId, msg: RawMessage },
    /// The peer answered a keepalive.
    KeepaliveAck { conn: ConnId },
    /// An open session between peers has lost its socket, and stays without one until somebody has something to say. Whether
    /// the peer is still there only shows when it is dialled.
    Standby { conn: ConnId },
    /// Before `Ready`, and for lossy sessions: `conn` is gone for good. For an open lossless session
    /// (`why` is [`Fault::SessionReset`]): the peer forgot it, what was not delivered is lost, the same `conn` goes on
    /// with a new session and another `Ready`.
    Reset { conn: ConnId, why: Fault },
}

impl Event {
    /// The session it is about.
    pub fn conn(&self) -> ConnId {
        match self {
            Event::AuthStart { conn }
            | Event::AuthReplyMore { conn, .. }
            | Event::AuthDone { conn, .. }
            | Event::AuthBad { conn, .. }
            | Event::AuthRequest { conn, .. }
            | Event::Replaced { conn, .. }
            | Event::Ready { conn, .. }
            | Event::Message { conn, .. }
            | Event::KeepaliveAck { conn }
            | Event::Standby { conn }
            | Event::Reset { conn, .. } => *conn,
        }
    }
}
