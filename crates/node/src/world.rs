//! What a node may ask of the outside, and what the outside tells it.
//!
//! Room: node.   Says: bytes to sockets, wake-ups, admin replies.   Hears: `Input`.
//! Why: crate `io` implements `World` with sockets and clocks, crate `sim` with a seed; a node cannot tell which.
//! Block devices and key-value stores are not here: they belong to the store, and only their completions pass by.

use bytes::Bytes;
use msgr::SockId;
use std::net::SocketAddr;
use std::ops::Range;
use store::Pressure;
use types::msg::LogEntry;
use types::{Errno, Mono, Now};

/// The outside of one daemon. Calls never block and never call back; answers arrive as `Input`.
pub trait World {
    /// The moment of the input being handled.
    fn now(&self) -> Now;
    /// Opens a TCP connection; answered by `Connected` or `Closed`.
    fn dial(&mut self, sock: SockId, to: SocketAddr);
    /// Queues bytes on a socket in order; sent when the node has settled. Unknown sockets are ignored.
    fn transmit(&mut self, sock: SockId, bufs: Vec<Bytes>);
    /// Sends what is queued, then closes. No `Closed` follows.
    fn close(&mut self, sock: SockId);
    /// Whether to read from a socket. While not, nothing but its end is heard of it, and who sends over it is held up.
    fn set_reading(&mut self, sock: SockId, on: bool);
    /// Of all that a socket brings, from its first byte on, these are data whose blocks of 4 KiB had better be aligned. A wish, for speed.
    fn expect(&mut self, _sock: SockId, _data: Range<u64>) {}
    /// Asks for a `Wake` no later than soon after `at`; the earliest request counts, one wake-up answers all.
    fn wake_at(&mut self, at: Mono);
    /// Answers an admin-socket request.
    fn admin_reply(&mut self, id: u64, reply: Bytes);
    /// Hears what a daemon tells the cluster log, which may never get there.
    fn hear(&mut self, _entry: &LogEntry) {}
}

/// What the world tells a node.
#[derive(Debug)]
pub enum Input {
    /// Somebody connected to the port we listen on.
    Accepted { sock: SockId, peer: SocketAddr, local: SocketAddr },
    /// A dialled connection is open.
    Connected { sock: SockId, local: SocketAddr },
    Bytes { sock: SockId, data: Bytes },
    /// A socket is gone: refused, reset, or closed by the peer.
    Closed { sock: SockId, refused: bool },
    /// A block device or key-value store finished what the store asked for; ids are the store's own.
    Io { id: u64, result: Result<Bytes, Errno> },
    /// One request of the admin socket, without its terminator.
    Admin { id: u64, request: Bytes },
    /// The time asked for has come (or the world felt like it).
    Wake,
    /// The operator wants the daemon to end in order: say goodbye, flush, then report `stopped`.
    Stop,
}

impl Input {
    /// The connection it is about.
    pub fn sock(&self) -> Option<SockId> {
        match self {
            Input::Accepted { sock, .. } | Input::Connected { sock, .. } | Input::Bytes { sock, .. } | Input::Closed { sock, .. } => Some(*sock),
            Input::Io { .. } | Input::Admin { .. } | Input::Wake | Input::Stop => None,
        }
    }
}

/// A daemon as the event loop sees it.
pub trait Node<W: World> {
    /// Handles one input to its end: every action it causes has been given to `world` on return.
    fn handle(&mut self, world: &mut W, input: Input);

    /// Called when a batch of inputs has been handled and before the world sends anything: the place for work that
    /// one pass over many inputs makes cheaper (group commit, vectored sends).
    fn settle(&mut self, world: &mut W);

    /// About once a second while the daemon is busy: the bytes of memory that its process has. While there is pressure, what it does
    /// not use any more should go back to the kernel.
    fn fit_memory(&mut self, _resident: u64) -> Pressure {
        Pressure::None
    }

    /// Called more often than `fit_memory`, with the same: what is not needed may be lent to somebody who gives it back at once.
    fn lend_memory(&mut self, _resident: u64) {}

    /// `Some(code)` once the daemon has ended; the loop leaves with it as the process's exit code.
    fn stopped(&self) -> Option<i32>;
}
