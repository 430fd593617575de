//! The door of an OSD or a manager: who comes in has shown a ticket.
//!
//! Room: node.   Owns: `Gate`, the authentication of accepted sessions and who each of them is.
//! Hears: msgr events.   Says: answers to the endpoint.
//! Holds: a session known here has proven its ticket with the answer to our own challenge.

use auth::cephx::{RotatingSecrets, ServiceAuth, ServiceReply};
use auth::mode;
use msgr::{ConnId, Endpoint, Event, PeerInfo};
use rand_chacha::ChaCha8Rng;
use std::cell::Cell;
use std::collections::BTreeMap;
use types::{EntityInst, EntityKind, EntityName, Errno};

const METHOD_CEPHX: u32 = 2;

/// Who a session belongs to, as its ticket says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visitor {
    pub name: EntityName,
    pub global_id: u64,
    /// Capabilities for this kind of daemon, as text.
    pub caps: String,
}

impl Visitor {
    /// As what its requests are known. Not by the ticket's global id: a client that was given another one goes on under the first, and
    /// sends what was under way again (`ProtocolV2::handle_client_ident` in src/msg/async/ProtocolV2.cc).
    pub fn inst(&self, peer: &PeerInfo) -> EntityInst {
        EntityInst { kind: self.name.kind, num: peer.num }
    }
}

/// What somebody shows who wants in.
struct Request<'a> {
    conn: ConnId,
    /// The kind he says he is of.
    says: EntityKind,
    method: u32,
    modes: &'a [u32],
    payload: &'a bytes::Bytes,
}

/// What sessions may be, crc or secure: the peer's first choice among these is taken. Stock clients ask for crc at OSDs and for secure at
/// monitors and managers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modes {
    /// Of daemons (`ms_cluster_mode`), preferred first.
    pub daemons: Vec<u32>,
    /// Of everybody else (`ms_service_mode`).
    pub clients: Vec<u32>,
}

impl Default for Modes {
    fn default() -> Self {
        Modes { daemons: vec![mode::CRC, mode::SECURE], clients: vec![mode::CRC, mode::SECURE] }
    }
}

impl Modes {
    /// As the options say; one that says nothing leaves both.
    pub fn of(option: impl Fn(&str) -> String) -> Self {
        let all = Modes::default();
        let of = |name, all| mode::parse(&option(name)).ok().filter(|modes| !modes.is_empty()).unwrap_or(all);
        Modes { daemons: of("ms_cluster_mode", all.daemons), clients: of("ms_service_mode", all.clients) }
    }

    fn of_kind(&self, kind: EntityKind) -> &[u32] {
        let is_daemon = [EntityKind::MON, EntityKind::OSD, EntityKind::MDS, EntityKind::MGR].contains(&kind);
        if is_daemon { &self.daemons } else { &self.clients }
    }
}

/// Authentication of everyone who connects to this daemon.
pub struct Gate {
    service: EntityKind,
    modes: Modes,
    rng: ChaCha8Rng,
    arriving: BTreeMap<ConnId, ServiceAuth>,
    visitors: BTreeMap<ConnId, Visitor>,
    /// Somebody came with a ticket under a secret newer than ours.
    lacks_secret: bool,
}

impl Gate {
    /// The gate of a daemon of kind `service`.
    pub fn new(service: EntityKind, modes: Modes, rng: ChaCha8Rng) -> Self {
        Gate { service, modes, rng, arriving: BTreeMap::new(), visitors: BTreeMap::new(), lacks_secret: false }
    }

    /// For sessions that begin from now on.
    pub fn set_modes(&mut self, modes: Modes) {
        self.modes = modes;
    }

    /// Who is at the other end of an accepted session.
    pub fn visitor(&self, conn: ConnId) -> Option<&Visitor> {
        self.visitors.get(&conn)
    }

    /// Answers what concerns authentication and keeps track of sessions; returns the events that are the daemon's.
    /// `Ready` and `Reset` are always returned.
    pub fn handle(&mut self, endpoint: &mut Endpoint, secrets: Option<&RotatingSecrets>, event: Event) -> Option<Event> {
        match event {
            Event::AuthRequest { conn, method, modes, payload, peer_kind, .. } => {
                self.answer(endpoint, secrets, Request { conn, says: peer_kind, method, modes: &modes, payload: &payload });
                None
            }
            Event::Replaced { conn, by } => {
                if let Some(visitor) = self.visitors.remove(&conn) {
                    self.visitors.insert(by, visitor);
                }
                None
            }
            Event::Reset { conn, why } => {
                self.arriving.remove(&conn);
                // A lossless session goes on under the same number, and with the same owner.
                if why != msgr::Fault::SessionReset {
                    self.visitors.remove(&conn);
                }
                Some(Event::Reset { conn, why })
            }
            other => Some(other),
        }
    }

    /// True, once, after somebody came with a ticket that only newer secrets than ours can open.
    pub fn wants_secrets(&mut self) -> bool {
        std::mem::take(&mut self.lacks_secret)
    }

    /// Drops what is known of a session that its owner closed.
    pub fn forget(&mut self, conn: ConnId) {
        self.arriving.remove(&conn);
        self.visitors.remove(&conn);
    }

    fn answer(&mut self, endpoint: &mut Endpoint, secrets: Option<&RotatingSecrets>, request: Request<'_>) {
        let Request { conn, says, method, modes, payload } = request;
        let Some(secrets) = secrets.filter(|s| s.current().is_some()) else {
            // Fresh from its start a daemon cannot tell friends from strangers: who is sent away so comes back later,
            // while a refusal would tell a client that its key is no good.
            return endpoint.close(conn);
        };
        let allowed = self.modes.of_kind(says).to_vec();
        let offered = modes.iter().copied().find(|m| allowed.contains(m));
        let (METHOD_CEPHX, Some(mode)) = (method, offered) else {
            return endpoint.auth_bad_method(conn, method, Errno::EOPNOTSUPP, vec![METHOD_CEPHX], allowed);
        };
        let service = self.service;
        let auth = self.arriving.entry(conn).or_insert_with(|| ServiceAuth::new(service));
        let newer = Cell::new(false);
        let secret = |id| {
            newer.set(id > secrets.newest);
            secrets.get(id).cloned()
        };
        match auth.handle(payload, mode, secret, &mut self.rng) {
            ServiceReply::More(payload) => endpoint.auth_reply_more(conn, payload),
            // What kind somebody says to be decides which sessions he may take over: an OSD's he must not with a client's ticket.
            ServiceReply::Done(session) if says == EntityKind::OSD && session.name.kind != EntityKind::OSD => {
                tracing::warn!(name = %session.name, "says that it is an OSD");
                self.arriving.remove(&conn);
                endpoint.auth_bad_method(conn, method, Errno::EACCES, vec![METHOD_CEPHX], allowed);
            }
            // Nor does it get him what only daemons may.
            ServiceReply::Done(session) if !self.modes.of_kind(session.name.kind).contains(&mode) => {
                self.arriving.remove(&conn);
                endpoint.auth_bad_method(conn, method, Errno::EOPNOTSUPP, vec![METHOD_CEPHX], self.modes.of_kind(session.name.kind).to_vec());
            }
            ServiceReply::Done(session) => {
                self.arriving.remove(&conn);
                let visitor = Visitor { name: session.name, global_id: session.global_id, caps: session.caps };
                self.visitors.insert(conn, visitor);
                endpoint.auth_server_done(conn, session.global_id, mode, session.payload, session.session_key, session.connection_secret);
            }
            ServiceReply::Bad(_) if newer.get() => {
                // A monitor whose clock jumped, or an operator, has replaced the secrets: it is we who are behind.
                self.arriving.remove(&conn);
                self.lacks_secret = true;
                endpoint.close(conn);
            }
            ServiceReply::Bad(errno) => {
                self.arriving.remove(&conn);
                endpoint.auth_bad_method(conn, method, errno, vec![METHOD_CEPHX], allowed);
            }
        }
    }
}
