//! `World` as a simulated process sees it: it notes what the process wants, and the simulator does it afterwards.

use bytes::Bytes;
use msgr::SockId;
use node::World;
use std::net::SocketAddr;
use types::msg::{LogEntry, LogPrio};
use types::{Mono, Now};

/// What a process asked of the world.
#[derive(Debug)]
pub(crate) enum Effect {
    Dial { sock: SockId, to: SocketAddr },
    Transmit { sock: SockId, bufs: Vec<Bytes> },
    Close { sock: SockId },
    SetReading { sock: SockId, on: bool },
    Wake { at: Mono },
    AdminReply { id: u64, reply: Bytes },
    /// An error for the cluster log.
    Complain { what: String },
}

/// The world of one process.
#[derive(Debug, Default)]
pub struct SimWorld {
    pub(crate) now: Now,
    pub(crate) effects: Vec<Effect>,
}

impl World for SimWorld {
    fn now(&self) -> Now {
        self.now
    }

    fn dial(&mut self, sock: SockId, to: SocketAddr) {
        self.effects.push(Effect::Dial { sock, to });
    }

    fn transmit(&mut self, sock: SockId, bufs: Vec<Bytes>) {
        self.effects.push(Effect::Transmit { sock, bufs });
    }

    fn close(&mut self, sock: SockId) {
        self.effects.push(Effect::Close { sock });
    }

    fn set_reading(&mut self, sock: SockId, on: bool) {
        self.effects.push(Effect::SetReading { sock, on });
    }

    fn wake_at(&mut self, at: Mono) {
        self.effects.push(Effect::Wake { at });
    }

    fn hear(&mut self, entry: &LogEntry) {
        if entry.prio == LogPrio::ERROR {
            self.effects.push(Effect::Complain { what: entry.msg.clone() });
        }
    }

    fn admin_reply(&mut self, id: u64, reply: Bytes) {
        self.effects.push(Effect::AdminReply { id, reply });
    }
}
