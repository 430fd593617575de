//! What an endpoint is told about itself, its peers and its limits.

use std::time::Duration;
use types::{AddrVec, EntityKind};

/// How a session treats a lost socket (`Messenger::Policy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// We dial; the session dies with its socket.
    LossyClient,
    /// We dial, and dial again at once; every message arrives once.
    LosslessClient,
    /// Either side dials, whoever has something to send; every message arrives once.
    LosslessPeer,
    /// We accept; the session dies with its socket.
    StatelessServer,
    /// We accept, and wait for the peer to come back; every message arrives once.
    StatefulServer,
}

impl Policy {
    /// The session dies with its socket.
    pub fn lossy(self) -> bool {
        matches!(self, Policy::LossyClient | Policy::StatelessServer)
    }

    /// Never dials.
    pub(crate) fn server(self) -> bool {
        matches!(self, Policy::StatelessServer | Policy::StatefulServer)
    }

    /// Without a socket and with nothing to send, stays so.
    pub(crate) fn standby(self) -> bool {
        matches!(self, Policy::LosslessPeer | Policy::StatefulServer)
    }
}

/// Bounds on what a peer can make us keep.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of one control frame.
    pub control_bytes_max: u32,
    /// Bytes received, and bytes sent, until authentication is done.
    pub handshake_bytes_max: usize,
    /// Accepted sockets without a session; the oldest gives way to the next.
    pub handshakes_max: usize,
    /// Requests a peer may make on one socket until it is authenticated.
    pub auth_attempts_max: u32,
    pub front_bytes_max: u32,
    pub middle_bytes_max: u32,
    pub data_bytes_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            control_bytes_max: 64 << 10,
            handshake_bytes_max: 128 << 10,
            handshakes_max: 1024,
            auth_attempts_max: 16,
            front_bytes_max: 64 << 20,
            middle_bytes_max: 1 << 20,
            data_bytes_max: 128 << 20,
        }
    }
}

/// Timeouts and intervals.
#[derive(Debug, Clone)]
pub struct Timing {
    /// From dial or accept to the open session (`ms_connection_ready_timeout`).
    pub handshake: Duration,
    /// An accepted lossy socket without traffic is closed (`ms_connection_idle_timeout`).
    pub idle: Duration,
    /// Wait before a lossless session dials for the third time (`ms_initial_backoff`; for the second time it waits less); doubles up to `backoff_max`.
    pub backoff_first: Duration,
    /// Longest wait before dialling again (`ms_max_backoff`).
    pub backoff_max: Duration,
    /// Dialled sessions with these kinds of peers send keepalives this often.
    pub keepalive: Vec<(EntityKind, Duration)>,
    /// A keepalive unanswered for so long ends the session (`mon_client_ping_timeout`).
    pub keepalive_grace: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(900),
            backoff_first: Duration::from_millis(200),
            backoff_max: Duration::from_secs(15),
            keepalive: vec![(EntityKind::MON, Duration::from_secs(10))],
            keepalive_grace: Duration::from_secs(30),
        }
    }
}

/// Who we are and how we deal with whom.
#[derive(Debug, Clone)]
pub struct Config {
    /// Announced in HELLO.
    pub kind: EntityKind,
    /// Announced when identifying: mon rank, OSD id, global id; -1 for a client that has none yet.
    pub num: i64,
    /// Where we can be reached. A client gives one blank address with its nonce and learns the rest from its sockets.
    pub addrs: AddrVec,
    /// Where peers of our own kind reach us ([`Policy::LosslessPeer`]), if that is elsewhere: an OSD's cluster network.
    pub back_addrs: AddrVec,
    /// 64-bit cluster features we have.
    pub features_supported: u64,
    /// Cluster features a peer must have; the marked address encoding (bit 59) is always among them.
    pub features_required: u64,
    /// How sessions that peers of a kind open are treated; [`Policy::StatelessServer`] for kinds not listed.
    pub accept: Vec<(EntityKind, Policy)>,
    pub limits: Limits,
    pub timing: Timing,
}

impl Config {
    /// A `kind` at `addrs` with number `num`; default limits, no features required, stateless sessions for all.
    pub fn new(kind: EntityKind, num: i64, addrs: AddrVec, features_supported: u64) -> Self {
        Config {
            kind,
            num,
            addrs,
            back_addrs: AddrVec::default(),
            features_supported,
            features_required: 0,
            accept: Vec::new(),
            limits: Limits::default(),
            timing: Timing::default(),
        }
    }

    pub(crate) fn accept_policy(&self, kind: EntityKind) -> Policy {
        self.accept.iter().find(|(k, _)| *k == kind).map_or(Policy::StatelessServer, |(_, p)| *p)
    }

    pub(crate) fn keepalive_every(&self, kind: EntityKind) -> Option<Duration> {
        self.timing.keepalive.iter().find(|(k, _)| *k == kind).map(|(_, every)| *every)
    }
}
