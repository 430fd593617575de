//! Who is connected, what they may do, and what they subscribed to.

use crate::cmd::Cmd;
use crate::commands::Entry;
use auth::caps::Ask;
use auth::{MonCaps, Rwx};
use std::collections::BTreeMap;
use types::msg::mon::SubscribeItem;
use types::msg::pool::{MPoolOp, pool_op};
use types::{AddrVec, EntityKind, EntityName, Mono};

/// A session's number: the connection's, given by whoever owns the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl SessionId {
    /// Sessions that stand for clients of other members are numbered from here.
    pub(crate) const REMOTE: u64 = 1 << 63;

    pub(crate) fn is_remote(self) -> bool {
        self.0 & Self::REMOTE != 0
    }
}

/// What is known of a peer once it has proven who it is.
#[derive(Debug, Clone)]
pub struct Peer {
    pub name: EntityName,
    pub global_id: u64,
    pub kind: EntityKind,
    pub addrs: AddrVec,
    pub features: u64,
    /// Its capabilities for `mon`, as text.
    pub caps: String,
}

/// One connected client or daemon.
pub struct Session {
    pub peer: Peer,
    pub caps: MonCaps,
    pub subs: BTreeMap<String, Sub>,
    pub hostname: String,
    pub since: Mono,
    /// Options last sent, so that an unchanged set is not sent again.
    pub last_config: Option<BTreeMap<String, String>>,
}

/// A subscription: the next version wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sub {
    pub next: u64,
    pub onetime: bool,
}

impl Session {
    /// A session of `peer`; capabilities that cannot be read allow nothing.
    pub fn new(peer: Peer, since: Mono) -> Self {
        let caps = peer.caps.parse().unwrap_or_default();
        Session { peer, caps, subs: BTreeMap::new(), hostname: String::new(), since, last_config: None }
    }

    /// Notes a subscription. A client that repeats one does not lose its place.
    pub fn subscribe(&mut self, what: &str, item: SubscribeItem) {
        self.subs.insert(what.to_owned(), Sub { next: item.start, onetime: item.onetime() });
    }

    /// True if the owner has the permissions `perm` (of `r`, `w`, `x`) for a service.
    pub fn may(&self, service: &str, perm: &str) -> bool {
        self.may_ask(service, "", &BTreeMap::new(), perm)
    }

    /// True if the owner may give this command; one that belongs to no service is everybody's.
    pub fn may_command(&self, entry: &Entry, cmd: &Cmd) -> bool {
        let args = cmd.named_texts().into_iter().collect();
        entry.perm.is_empty() || self.may_ask(entry.module, &cmd.prefix, &args, entry.perm)
    }

    /// True if the owner may change pools this way. Snapshots of a client's own are allowed as commands are.
    pub fn may_pool_op(&self, op: &MPoolOp) -> bool {
        let unmanaged = [pool_op::CREATE_UNMANAGED_SNAP, pool_op::DELETE_UNMANAGED_SNAP].contains(&op.op);
        self.may("osd", "rw") || unmanaged && self.may_ask("osd", "osd pool op unmanaged-snap", &BTreeMap::new(), "rw")
    }

    fn may_ask(&self, service: &str, command: &str, args: &BTreeMap<String, String>, perm: &str) -> bool {
        let needs = Rwx::of(perm.contains('r'), perm.contains('w'), perm.contains('x'));
        let addr = self.peer.addrs.0.iter().find_map(|a| a.sock).map(|s| s.ip());
        self.caps.is_capable(&Ask { name: &self.peer.name, service, module: "", command, args, needs, addr })
    }

    /// The session's owner as the audit log names it.
    pub fn audit_name(&self) -> String {
        let addr = self.peer.addrs.0.first().map(|a| a.as_any().to_string()).unwrap_or_default();
        format!("from='{}.{} {addr}' entity='{}'", self.peer.kind.name(), self.peer.global_id, self.peer.name)
    }
}
