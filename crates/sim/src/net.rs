//! The network: TCP connections with latency, cuts and partitions.
//!
//! Holds: what arrives on a connection arrives in order and unchanged; connections overtake each other at will.

use crate::host::HostId;
use bytes::Bytes;
use msgr::SockId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Delays of the simulated network, nanoseconds.
#[derive(Debug, Clone)]
pub struct NetModel {
    pub latency_ns: std::ops::Range<u64>,
    /// One chunk in so many is held up for `delay_ns`, and what follows it on its connection too.
    pub delay_one_in: u32,
    pub delay_ns: std::ops::Range<u64>,
}

impl Default for NetModel {
    fn default() -> Self {
        NetModel { latency_ns: 20_000..400_000, delay_one_in: 300, delay_ns: 1_000_000..50_000_000 }
    }
}

/// A connection's end: whose it is, in which life, and what they call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    pub host: HostId,
    pub life: u64,
    pub sock: SockId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(pub u64);

/// What travels.
#[derive(Debug)]
pub(crate) enum Packet {
    Data(Bytes),
    /// Nothing follows.
    End,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pub packets: VecDeque<Packet>,
    /// When the last packet in it arrives.
    pub last_arrival: u64,
}

#[derive(Debug)]
pub(crate) struct Link {
    /// Dialler, then acceptor.
    pub ends: [End; 2],
    /// `pipes[i]` leads to `ends[i]`.
    pub pipes: [Pipe; 2],
    pub way: Way,
    pub open: bool,
}

/// Every machine is in two networks: its listening port is in the public one, the port after it in the cluster's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    Public,
    Cluster,
}

impl Way {
    pub const BOTH: [Way; 2] = [Way::Public, Way::Cluster];
}

#[derive(Debug, Default)]
pub(crate) struct Net {
    pub links: BTreeMap<LinkId, Link>,
    pub by_end: BTreeMap<End, (LinkId, usize)>,
    /// Who does not read what arrives there.
    pub unread: BTreeSet<End>,
    /// Who is not heard by whom, and for how many reasons.
    blocked: BTreeMap<(HostId, HostId), u32>,
    /// Who is without which network, and for how many reasons.
    lost: BTreeMap<(HostId, Way), u32>,
    next: u64,
}

impl Net {
    pub fn add(&mut self, ends: [End; 2]) -> LinkId {
        let id = LinkId(self.next);
        self.next += 1;
        self.links.insert(id, Link { ends, pipes: Default::default(), way: Way::Public, open: false });
        self.by_end.insert(ends[0], (id, 0));
        id
    }

    pub fn remove(&mut self, id: LinkId) -> Option<Link> {
        let link = self.links.remove(&id)?;
        for end in &link.ends {
            self.by_end.remove(end);
            self.unread.remove(end);
        }
        Some(link)
    }

    pub fn links_of(&self, host: HostId) -> Vec<LinkId> {
        self.links.iter().filter(|(_, l)| l.ends.iter().any(|e| e.host == host)).map(|(id, _)| *id).collect()
    }

    /// The second hears nothing of the first any more.
    pub fn block(&mut self, from: HostId, to: HostId) {
        *self.blocked.entry((from, to)).or_default() += 1;
    }

    /// Takes one `block` back.
    pub fn unblock(&mut self, from: HostId, to: HostId) {
        take_back(&mut self.blocked, (from, to));
    }

    /// Nobody hears the host over that network any more, nor it anybody.
    pub fn lose(&mut self, host: HostId, way: Way) {
        *self.lost.entry((host, way)).or_default() += 1;
    }

    /// Takes one `lose` back.
    pub fn regain(&mut self, host: HostId, way: Way) {
        take_back(&mut self.lost, (host, way));
    }

    pub fn heal(&mut self) {
        self.blocked.clear();
        self.lost.clear();
    }

    pub fn blocked(&self, from: HostId, to: HostId, way: Way) -> bool {
        self.blocked.contains_key(&(from, to)) || [from, to].iter().any(|host| self.lost.contains_key(&(*host, way)))
    }
}

/// One reason less.
fn take_back<K: Ord>(reasons: &mut BTreeMap<K, u32>, key: K) {
    if let Some(n) = reasons.get_mut(&key) {
        *n -= 1;
        if *n == 0 {
            reasons.remove(&key);
        }
    }
}
