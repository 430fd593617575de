//! A session: what survives a socket, if anything does.
//!
//! Upstream: the session half of ProtocolV2 (src/msg/async/ProtocolV2.h), doc/dev/msgr2.rst "Message flow handshake".

use crate::{Policy, SockId};
use std::collections::VecDeque;
use std::time::Duration;
use types::msg::RawMessage;
use types::{AddrVec, EntityAddr, EntityKind, Mono};

/// Messages, and bytes of them, after which the peer is told that they have come, unless a message of ours has told it.
/// Until then it keeps them. A frame of its own for each would wake the peer for nothing: peers answer each other.
const UNACKED_MAX: u64 = 64;
const UNACKED_BYTES_MAX: u64 = 256 << 10;

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Lossless, without a socket and in no hurry.
    Standby,
    /// Lossless, without a socket, dialling again at `Conn::redial_at`.
    Backoff,
    /// A dialled socket on its way to a session.
    Connecting,
    /// An accepted socket that has not said which session it is for.
    Accepting,
    Ready,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub state: State,
    pub policy: Policy,
    /// The policy's word until the server's ident overrules it.
    pub lossy: bool,
    pub peer_kind: EntityKind,
    /// Where to dial; also what the peer must say it is.
    pub target: EntityAddr,
    pub peer_addrs: AddrVec,
    /// Goes to the addresses that only peers of our own kind use.
    pub back: bool,
    pub peer_num: i64,
    pub features: u64,
    pub sock: Option<SockId>,
    /// Chosen by whichever side sent CLIENT_IDENT; 0 before that and in lossy sessions.
    pub client_cookie: u64,
    /// Chosen by whichever side sent SERVER_IDENT; 0 means there is no session to come back to.
    pub server_cookie: u64,
    /// Counts the sockets of one session.
    pub connect_seq: u64,
    /// Counts our sockets: the one this session dialled last.
    pub global_seq: u64,
    /// The peer's global_seq of the socket seen last.
    pub peer_global_seq: u64,
    /// Seq of the last message received.
    pub in_seq: u64,
    /// Seq of the last message sent.
    pub out_seq: u64,
    /// The highest seq this session has given out; after a requeue `out_seq` is lower.
    pub high_seq: u64,
    /// Seq of the last message received that the peer was told of.
    pub acked_seq: u64,
    /// Bytes of messages received since.
    pub unacked_bytes: u64,
    /// Lossless: sent, not acknowledged; seqs end with `out_seq` and have no gaps.
    pub sent: VecDeque<RawMessage>,
    /// Not sent yet.
    pub queue: VecDeque<RawMessage>,
    pub backoff: Duration,
    pub redial_at: Option<Mono>,
}

impl Conn {
    pub fn new(state: State, policy: Policy, peer_kind: EntityKind, target: EntityAddr, addrs: AddrVec) -> Self {
        Conn {
            state,
            policy,
            lossy: policy.lossy(),
            peer_kind,
            target,
            peer_addrs: addrs,
            back: false,
            peer_num: -1,
            features: 0,
            sock: None,
            client_cookie: 0,
            server_cookie: 0,
            connect_seq: 0,
            global_seq: 0,
            peer_global_seq: 0,
            in_seq: 0,
            out_seq: 0,
            high_seq: 0,
            acked_seq: 0,
            unacked_bytes: 0,
            sent: VecDeque::new(),
            queue: VecDeque::new(),
            backoff: Duration::ZERO,
            redial_at: None,
        }
    }

    /// What lossless sessions are found by: the address the peer listens at, or the one it bears.
    pub fn key(addrs: &AddrVec) -> Option<EntityAddr> {
        addrs.msgr2().or_else(|| addrs.0.first().copied())
    }

    /// The peer keeps so much that it has to be told what has come.
    pub fn owes_ack(&self) -> bool {
        !self.lossy && (self.in_seq - self.acked_seq >= UNACKED_MAX || self.unacked_bytes >= UNACKED_BYTES_MAX)
    }

    /// The peer is being told that everything received so far has come.
    pub fn acknowledge(&mut self) -> u64 {
        (self.acked_seq, self.unacked_bytes) = (self.in_seq, 0);
        self.in_seq
    }

    /// Drops what the peer has seen.
    pub fn acknowledged(&mut self, seq: u64) {
        let first = self.out_seq + 1 - self.sent.len() as u64;
        let n = seq.saturating_add(1).saturating_sub(first).min(self.sent.len() as u64);
        self.sent.drain(..n as usize);
    }

    /// Puts what is not acknowledged back in front of the queue, to be sent again under the same seqs.
    pub fn requeue(&mut self) {
        self.out_seq -= self.sent.len() as u64;
        while let Some(msg) = self.sent.pop_back() {
            self.queue.push_front(msg);
        }
    }

    /// After `requeue`: drops what the peer has seen, up to `seq`.
    pub fn requeued_acknowledged(&mut self, seq: u64) {
        let n = seq.min(self.high_seq).saturating_sub(self.out_seq).min(self.queue.len() as u64);
        self.queue.drain(..n as usize);
        self.out_seq += n;
    }

    /// A new session begins: what waits is numbered from 1, by both sides.
    pub fn begin(&mut self) {
        self.requeue();
        (self.in_seq, self.out_seq, self.high_seq) = (0, 0, 0);
        self.acknowledge();
        self.connect_seq = 0;
    }

    /// Forgets the session and everything undelivered.
    pub fn reset(&mut self) {
        self.sent.clear();
        self.queue.clear();
        (self.in_seq, self.out_seq, self.high_seq) = (0, 0, 0);
        self.acknowledge();
        (self.client_cookie, self.server_cookie) = (0, 0);
        (self.connect_seq, self.peer_global_seq) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn() -> Conn {
        let blank = EntityAddr::default();
        let mut c = Conn::new(State::Ready, Policy::LosslessPeer, EntityKind::OSD, blank, AddrVec::default());
        c.sent = (1..=5).map(|tid| RawMessage { tid, ..RawMessage::default() }).collect();
        (c.out_seq, c.high_seq) = (5, 5);
        c
    }

    #[test]
    fn an_ack_drops_what_it_covers_and_no_more() {
        let mut c = conn();
        c.acknowledged(2);
        assert_eq!(c.sent.front().map(|m| m.tid), Some(3));
        c.acknowledged(1);
        assert_eq!(c.sent.len(), 3);
        c.acknowledged(u64::MAX - 1);
        assert!(c.sent.is_empty());
    }

    #[test]
    fn a_replay_starts_behind_what_the_peer_has_seen_and_keeps_its_seqs() {
        let mut c = conn();
        c.acknowledged(1);
        c.requeue();
        assert_eq!((c.out_seq, c.queue.len()), (1, 4));
        c.requeued_acknowledged(3);
        assert_eq!((c.out_seq, c.queue.front().map(|m| m.tid)), (3, Some(4)));
    }
}
