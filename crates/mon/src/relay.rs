//! Members among themselves: sessions between monitors, and clients of those that do not lead.
//!
//! Owns: `Relay`. A member that does not lead keeps no state in memory and decides nothing: every step of its clients,
//! their authentication included, goes to the leader, where each of them has a session as if it had come there, and what
//! the leader says to that session comes back. So a client is told the same wherever it asks, and nothing but what the
//! leader may say. Rejected: answers and subscriptions from each member's own applied state. They would spare the leader
//! the copies of maps, and need a second way for everything, leases for reads, and a way to route replies.
//! Holds: a client's session here ends when the leader changes, or the session with it breaks: it comes again, to the
//! member that leads then or through one that knows it. With nobody leading, who comes waits.
//! Only commands to one monitor (`tell`, the admin socket) are answered here, from what this member has applied.
//! Upstream: Monitor::forward_request_leader in src/mon/Monitor.cc.

use crate::boot::{self, Seat};
use crate::env::Quorum;
use crate::members::Hello;
use crate::mon::{Effect, Mon};
use crate::services::State;
use crate::session::{Peer, Session, SessionId};
use crate::txn::Txn;
use auth::cephx::{Granted, KeyStore, MonAuth, Reply, RotatingSecrets, TicketPolicy};
use auth::{ChaCha8Rng, CryptoKey, EntityAuth, KeyKind, Keyring, method, mode};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::Kv;
use types::msg::internal_mon::{PeerAnswer, PeerSays, Proven};
use types::msg::{MCommand, RawMessage, WireMessage, internal_mon};
use types::{AddrVec, EntityKind, EntityName, Errno, Mono, Now, features};

/// Longer messages of consensus travel in parts: snapshots of the state have no bound that a frame could have.
const PART_BYTES: usize = 4 << 20;
const PARTS_BYTES_MAX: usize = 4 << 30;

/// Whom we have sessions with, and whose clients' steps go where.
#[derive(Default)]
pub(crate) struct Relay {
    /// Members to which our session is open.
    links: BTreeSet<String>,
    /// The leader our clients' steps go to.
    to: Option<String>,
    /// Our clients at the leader, with what it told us of each once proven.
    clients: BTreeMap<SessionId, Option<Peer>>,
    /// Sessions other members opened to us.
    accepted: BTreeSet<SessionId>,
    /// At the leader: clients of others, by the session that carries them and their number there.
    here: BTreeMap<(SessionId, u64), SessionId>,
    there: BTreeMap<SessionId, (SessionId, u64)>,
    last: u64,
    /// Who the others have said they are.
    joined: BTreeMap<String, Joined>,
    /// What has come of a long message, by the session it comes on.
    parts: BTreeMap<SessionId, BytesMut>,
    auths: BTreeMap<SessionId, MonAuth>,
    proven: BTreeSet<SessionId>,
}

struct Joined {
    metadata: BTreeMap<String, String>,
    keyring: Keyring,
}

/// Where a client's step is to be done.
enum Place {
    Here,
    At(String),
    /// Nobody serves, as far as we know.
    Nowhere,
}

/// What monitors prove themselves to each other with: the key of `mon.`, known before there is any state.
pub(crate) struct PeerKeys {
    entity: EntityAuth,
    /// Seals tickets that nobody will ever show: sessions between monitors are not renewed.
    secrets: RotatingSecrets,
}

impl PeerKeys {
    pub(crate) fn new(keyring: &Keyring, now: Now, rng: &mut ChaCha8Rng) -> Option<Self> {
        let entity = keyring.get(&EntityName::monitors())?.clone();
        let mut secrets = RotatingSecrets::default();
        secrets.rotate(now.wall, Duration::from_secs(3600), KeyKind::Aes, rng);
        Some(PeerKeys { entity, secrets })
    }
}

impl KeyStore for PeerKeys {
    fn entity(&self, name: &EntityName) -> Option<EntityAuth> {
        (*name == EntityName::monitors()).then(|| self.entity.clone())
    }

    fn secrets(&self, _: EntityKind) -> Option<&RotatingSecrets> {
        Some(&self.secrets)
    }
}

/// For whoever owns the sessions between members.
impl<K: Kv> Mon<K> {
    /// This monitor's id in consensus, as the others know it.
    pub fn id(&self) -> u64 {
        if self.members.has_seat() { self.raft.id() } else { 0 }
    }

    /// This monitor's rank, once the map names it.
    pub fn rank(&self) -> Option<usize> {
        Some(self.quorum.rank).filter(|rank| *rank != Quorum::NO_RANK)
    }

    /// The key monitors show each other.
    pub fn peer_key(&self) -> CryptoKey {
        self.peer_keys.entity.key.clone()
    }

    /// Our session to another monitor has opened, or is gone.
    pub fn handle_link(&mut self, now: Now, name: &str, open: bool) {
        if open {
            self.relay.links.insert(name.to_owned());
            for says in [self.hello(), self.introduction()] {
                self.effects.push_back(Effect::Peer { to: name.to_owned(), says });
            }
            self.stand_soon(now);
        } else if self.relay.links.remove(name) {
            for id in self.members.ids_of(name) {
                self.raft.handle_unreachable(id);
                // Most likely its process has died: what takes a whole election timeout else takes a moment.
                if self.raft.forget_leader(id) {
                    self.stand_soon(now);
                }
            }
        }
        self.settle(now);
    }

    /// A step of the authentication of somebody who says that it is a monitor: it must know the monitors' key.
    pub fn handle_peer_auth(&mut self, now: Now, session: SessionId, first: bool, how: u32, modes: &[u32], payload: &Bytes) {
        if first {
            self.relay.auths.remove(&session);
        }
        let effect = match self.peer_auth_step(now, session, how, modes, payload) {
            Ok(effect) => effect,
            Err(errno) => {
                self.relay.auths.remove(&session);
                Effect::AuthBad { session, method: how, errno }
            }
        };
        self.effects.push_back(effect);
    }

    fn peer_auth_step(&mut self, now: Now, session: SessionId, how: u32, modes: &[u32], payload: &Bytes) -> Result<Effect, Errno> {
        // Keys and passwords pass here: never in the clear.
        if how != method::CEPHX || !modes.contains(&mode::SECURE) {
            return Err(Errno::EOPNOTSUPP);
        }
        let Some(auth) = self.relay.auths.get_mut(&session) else {
            let (auth, payload) = MonAuth::begin(payload, || Some(1), &mut self.rng)?;
            self.relay.auths.insert(session, auth);
            return Ok(Effect::AuthMore { session, payload });
        };
        match auth.proceed(payload, mode::SECURE, &self.peer_keys, &TicketPolicy::default(), now.wall, &mut self.rng) {
            Reply::More(payload) => Ok(Effect::AuthMore { session, payload }),
            Reply::Bad(errno) => Err(errno),
            Reply::Done(granted) => {
                self.relay.auths.remove(&session);
                self.relay.proven.insert(session);
                Ok(Effect::AuthDone { session, mode: mode::SECURE, granted })
            }
        }
    }

    /// What another member says on the session it opened to us.
    pub fn handle_peer(&mut self, now: Now, link: SessionId, from: u64, says: PeerSays) {
        if !self.relay.accepted.contains(&link) {
            return tracing::warn!("session {} speaks as a monitor and is none", link.0);
        }
        match says {
            PeerSays::Consensus { message } => self.hear_consensus(&message),
            PeerSays::Clock { asked } => {
                self.effects.push_back(Effect::PeerAnswer { link, answer: PeerAnswer::Clock { asked, wall: now.wall } });
            }
            PeerSays::Room { name, room } => drop(self.quorum.rooms.insert(name, room)),
            PeerSays::Part { part, last } => self.hear_part(link, &part, last),
            PeerSays::Hello { name, id, born, addrs } => self.handle_hello(now, link, Hello { name, id, born, addrs }),
            PeerSays::Joined { name, metadata, keyring } => {
                let keyring = keyring.parse().unwrap_or_default();
                self.relay.joined.insert(name, Joined { metadata, keyring });
                self.take_joined(now);
            }
            PeerSays::Quorum { term, ranks, age_ms } => {
                if self.raft.leader() == from && self.raft.term() == term {
                    let since = Mono(now.mono.0.saturating_sub(age_ms.saturating_mul(1_000_000)));
                    let ranks = ranks.into_iter().map(|r| r as usize).collect();
                    if let Some(rank) = self.members.rank_of_id(from) {
                        self.quorum.told(rank, term, ranks, since);
                    }
                }
            }
            PeerSays::Auth { session, first, method, modes, payload } => {
                if first {
                    self.drop_remote(link, session);
                }
                let known = self.relay.here.get(&(link, session)).copied();
                match known {
                    _ if !self.raft.is_leader() => self.refuse_remote(link, session),
                    None if !first => self.refuse_remote(link, session),
                    known => {
                        let id = known.unwrap_or_else(|| self.add_remote(link, session));
                        self.handle_auth_here(now, id, first, method, &modes, payload);
                    }
                }
            }
            PeerSays::Ready { session, kind, addrs, features } => match self.relay.here.get(&(link, session)).copied() {
                Some(id) => self.open_proven(now, id, EntityKind(kind), addrs, features),
                None => self.refuse_remote(link, session),
            },
            PeerSays::Message { session, message } => match self.relay.here.get(&(link, session)).copied() {
                Some(id) => self.handle_message_here(now, id, message),
                None => self.refuse_remote(link, session),
            },
            PeerSays::Reset { session } => self.drop_remote(link, session),
        }
        self.settle(now);
    }

    /// What the leader answers for one of our clients.
    pub fn handle_peer_answer(&mut self, now: Now, from: &str, answer: PeerAnswer) {
        let session = match &answer {
            PeerAnswer::Welcome { id, founders } => return self.handle_welcome(now, Seat { id: *id, founders: founders.clone() }),
            PeerAnswer::Removed => return self.handle_removed(from),
            PeerAnswer::Clock { asked, wall } => return self.handle_clock(now, from, *asked, *wall),
            PeerAnswer::Send { session, .. }
            | PeerAnswer::AuthMore { session, .. }
            | PeerAnswer::AuthDone { session, .. }
            | PeerAnswer::AuthBad { session, .. }
            | PeerAnswer::Close { session } => SessionId(*session),
        };
        if self.relay.to.as_deref() != Some(from) {
            return;
        }
        let Some(client) = self.relay.clients.get_mut(&session) else { return };
        let effect = match answer {
            PeerAnswer::Send { message, .. } => Effect::Pass { session, message },
            PeerAnswer::AuthMore { payload, .. } => Effect::AuthMore { session, payload },
            PeerAnswer::AuthDone { mode, who, .. } => {
                *client = Some(Peer {
                    name: who.name.clone(),
                    global_id: who.global_id,
                    kind: who.name.kind,
                    addrs: AddrVec::default(),
                    features: 0,
                    caps: who.mon_caps.clone(),
                });
                Effect::AuthDone { session, mode, granted: Box::new(granted(who)) }
            }
            PeerAnswer::AuthBad { method, errno, .. } => Effect::AuthBad { session, method, errno: Errno(errno) },
            PeerAnswer::Close { .. } => {
                self.relay.clients.remove(&session);
                self.sessions.remove(&session);
                Effect::Close { session }
            }
            PeerAnswer::Welcome { .. } | PeerAnswer::Removed | PeerAnswer::Clock { .. } => return,
        };
        self.effects.push_back(effect);
        self.settle(now);
    }
}

/// Clients of ours.
impl<K: Kv> Mon<K> {
    fn place(&self) -> Place {
        match &self.relay.to {
            _ if self.state.is_some() => Place::Here,
            Some(leader) => Place::At(leader.clone()),
            None => Place::Nowhere,
        }
    }

    /// A client's step of authentication. Of one that is not the first we must have seen the others go the same way.
    pub(crate) fn relay_auth(&mut self, now: Now, session: SessionId, first: bool, method: u32, modes: &[u32], payload: Bytes) {
        match self.place() {
            Place::At(leader) if first || self.relay.clients.contains_key(&session) => {
                self.relay.clients.insert(session, None);
                let says = PeerSays::Auth { session: session.0, first, method, modes: modes.to_vec(), payload };
                self.effects.push_back(Effect::Peer { to: leader, says });
            }
            Place::At(_) => self.effects.push_back(Effect::Close { session }),
            Place::Here | Place::Nowhere => self.handle_auth_here(now, session, first, method, modes, payload),
        }
    }

    /// A session is open: true if it is a client of ours at the leader, or another monitor's.
    pub(crate) fn relay_ready(&mut self, now: Now, session: SessionId, kind: EntityKind, addrs: &AddrVec, features: u64) -> bool {
        if self.relay.proven.remove(&session) {
            return self.relay.accepted.insert(session);
        }
        let (Some(client), Some(leader)) = (self.relay.clients.get_mut(&session), self.relay.to.clone()) else { return false };
        if let Some(peer) = client.take() {
            let peer = Peer { kind, addrs: addrs.clone(), features, ..peer };
            self.sessions.insert(session, Session::new(peer, now.mono));
        }
        let says = PeerSays::Ready { session: session.0, kind: kind.0, addrs: addrs.clone(), features };
        self.effects.push_back(Effect::Peer { to: leader, says });
        true
    }

    /// Passes a client's message on; gives back what is to be handled here.
    pub(crate) fn relay_message(&mut self, session: SessionId, raw: RawMessage) -> Option<RawMessage> {
        let leader = self.relay.to.clone().filter(|_| self.relay.clients.contains_key(&session));
        match leader {
            // For this monitor alone.
            Some(_) if raw.kind == MCommand::KIND => Some(raw),
            Some(to) => {
                let says = PeerSays::Message { session: session.0, message: raw };
                self.effects.push_back(Effect::Peer { to, says });
                None
            }
            None => Some(raw),
        }
    }

    /// Monitors to which our session is open.
    pub(crate) fn linked(&self) -> Vec<String> {
        self.relay.links.iter().cloned().collect()
    }

    /// True if clients' steps can go to a leader elsewhere.
    pub(crate) fn has_leader(&self) -> bool {
        self.relay.to.is_some()
    }

    /// True if the session is a client of ours at the leader.
    pub(crate) fn is_relayed(&self, session: SessionId) -> bool {
        self.relay.clients.contains_key(&session)
    }

    /// A session is gone.
    pub(crate) fn relay_reset(&mut self, session: SessionId) {
        self.relay.auths.remove(&session);
        self.relay.proven.remove(&session);
        self.relay.parts.remove(&session);
        if self.relay.accepted.remove(&session) {
            self.forget_hello(session);
            let remote: Vec<u64> = self.relay.here.keys().filter(|(link, _)| *link == session).map(|(_, id)| *id).collect();
            remote.into_iter().for_each(|id| self.drop_remote(session, id));
        }
        if self.relay.clients.remove(&session).is_some()
            && let Some(to) = self.relay.to.clone()
        {
            self.effects.push_back(Effect::Peer { to, says: PeerSays::Reset { session: session.0 } });
        }
    }

    /// Lets clients' steps go to whoever leads now; those at somebody else have to come again.
    pub(crate) fn follow_leader(&mut self) {
        let leader = self.members.name_of(self.raft.leader());
        let to = leader.filter(|name| !self.raft.is_leader() && self.relay.links.contains(*name)).map(str::to_owned);
        if to == self.relay.to {
            return;
        }
        match &to {
            Some(to) => tracing::info!("follows mon.{to}"),
            None => tracing::info!("follows nobody"),
        }
        let old = std::mem::replace(&mut self.relay.to, to);
        for session in std::mem::take(&mut self.relay.clients).into_keys() {
            self.sessions.remove(&session);
            self.effects.push_back(Effect::Close { session });
            if let Some(old) = &old {
                self.effects.push_back(Effect::Peer { to: old.clone(), says: PeerSays::Reset { session: session.0 } });
            }
        }
    }
}

/// Clients of others, at the leader.
impl<K: Kv> Mon<K> {
    fn add_remote(&mut self, link: SessionId, session: u64) -> SessionId {
        self.relay.last += 1;
        let id = SessionId(SessionId::REMOTE | self.relay.last);
        self.relay.here.insert((link, session), id);
        self.relay.there.insert(id, (link, session));
        id
    }

    fn drop_remote(&mut self, link: SessionId, session: u64) {
        if let Some(id) = self.relay.here.remove(&(link, session)) {
            self.relay.there.remove(&id);
            self.forget_session(id);
        }
    }

    fn refuse_remote(&mut self, link: SessionId, session: u64) {
        self.effects.push_back(Effect::PeerAnswer { link, answer: PeerAnswer::Close { session } });
    }

    /// Sends an effect for a client of another member there; `None` if that client is gone.
    pub(crate) fn route(&mut self, effect: Effect) -> Option<Effect> {
        let Some(id) = effect.session().filter(|id| id.is_remote()) else { return Some(effect) };
        let (link, session) = *self.relay.there.get(&id)?;
        let answer = match effect {
            Effect::Send { tid, message, .. } => {
                let message = RawMessage { tid, ..message.to_raw(features::SUPPORTED) };
                PeerAnswer::Send { session, message }
            }
            Effect::AuthMore { payload, .. } => PeerAnswer::AuthMore { session, payload },
            Effect::AuthDone { mode, granted, .. } => PeerAnswer::AuthDone { session, mode, who: proven(*granted) },
            Effect::AuthBad { method, errno, .. } => PeerAnswer::AuthBad { session, method, errno: errno.0 },
            Effect::Close { .. } => {
                self.relay.here.remove(&(link, session));
                self.relay.there.remove(&id);
                PeerAnswer::Close { session }
            }
            other => return Some(other),
        };
        Some(Effect::PeerAnswer { link, answer })
    }
}

/// Who is who.
impl<K: Kv> Mon<K> {
    fn introduction(&self) -> PeerSays {
        let keyring = boot::own_managers(&self.kv).map(|k| k.to_string()).unwrap_or_default();
        PeerSays::Joined { name: self.env.name.clone(), metadata: self.env.shown(), keyring }
    }

    /// While we lead: remembers for good who the others are, and lets the managers that live with them in.
    pub(crate) fn take_joined(&mut self, now: Now) {
        // They say so once, when consensus may not have let them in yet.
        let alone = self.raft.is_alone() && self.relay.joined.is_empty();
        let Some(state) = self.state.as_mut().filter(|_| !alone) else { return };
        state.monmap.set_metadata(&self.env.name, self.env.shown(), &mut self.txn);
        for (name, joined) in &self.relay.joined {
            if state.monmap.map.rank_of(name).is_none() {
                continue;
            }
            state.monmap.set_metadata(name, joined.metadata.clone(), &mut self.txn);
            let managers = joined.keyring.entries.iter().filter(|(name, _)| name.kind == EntityKind::MGR);
            for (name, entity) in managers {
                // A monitor that lost its disk has a new key for its manager.
                let known = state.auth.get(name);
                if known.is_none_or(|known| known.key != entity.key) {
                    let caps = known.map_or(&entity.caps, |known| &known.caps).clone();
                    state.auth.put(name.clone(), EntityAuth { key: entity.key.clone(), caps }, &mut self.txn);
                }
            }
        }
        self.tell_quorum(now);
    }

    /// The leader looks who is with it, and tells the others.
    pub(crate) fn follow_quorum(&mut self, now: Now) {
        let Some(state) = &self.state else { return };
        self.quorum.rank = state.monmap.map.rank_of(&self.env.name).unwrap_or(Quorum::NO_RANK);
        let ranks = self.members.ranks_of(&state.monmap, &self.raft.in_quorum());
        if ranks == self.quorum.ranks && self.quorum.leader == Some(self.quorum.rank) {
            return;
        }
        let (rank, term) = (self.quorum.rank, self.raft.term());
        tracing::info!("the quorum is now ranks {ranks:?}");
        self.quorum.told(rank, term, ranks, now.mono);
        self.announce_quorum(now);
        self.tell_quorum(now);
    }

    fn tell_quorum(&mut self, now: Now) {
        let age_ms = (now.mono - self.quorum.since).as_millis() as u64;
        let ranks: Vec<u32> = self.quorum.ranks.iter().map(|r| *r as u32).collect();
        for to in self.relay.links.clone() {
            let says = PeerSays::Quorum { term: self.quorum.term, ranks: ranks.clone(), age_ms };
            self.effects.push_back(Effect::Peer { to, says });
        }
    }

    /// Consensus for the others. What cannot be sent is lost, and consensus is told so.
    pub(crate) fn send_consensus(&mut self, messages: Vec<(u64, Bytes)>) {
        for (id, message) in messages {
            let Some(to) = self.members.name_of(id).filter(|name| self.relay.links.contains(*name)).map(str::to_owned) else {
                self.raft.handle_unsent(id);
                continue;
            };
            if message.len() <= PART_BYTES {
                self.effects.push_back(Effect::Peer { to, says: PeerSays::Consensus { message } });
                continue;
            }
            let parts = message.len().div_ceil(PART_BYTES);
            for n in 0..parts {
                let part = message.slice(n * PART_BYTES..message.len().min((n + 1) * PART_BYTES));
                self.effects.push_back(Effect::Peer { to: to.clone(), says: PeerSays::Part { part, last: n + 1 == parts } });
            }
        }
    }

    fn hear_consensus(&mut self, message: &Bytes) {
        if self.members.has_seat() {
            self.raft.handle_message(message);
        }
    }

    fn hear_part(&mut self, link: SessionId, part: &Bytes, last: bool) {
        let so_far = self.relay.parts.entry(link).or_default();
        if so_far.len() + part.len() > PARTS_BYTES_MAX {
            tracing::warn!("a message of more than {PARTS_BYTES_MAX} bytes is dropped");
            so_far.clear();
            return;
        }
        so_far.extend_from_slice(part);
        if last && let Some(whole) = self.relay.parts.remove(&link) {
            self.hear_consensus(&whole.freeze());
        }
    }

    /// What this member has applied; before there is anything, what it would begin with.
    pub(crate) fn applied_state(&mut self, now: Now) -> Result<State, crate::txn::StateError> {
        match State::load(&self.kv)? {
            Some(state) => Ok(state),
            None => boot::create(&self.kv, &self.env, now, &mut self.rng, &mut Txn::default()),
        }
    }
}

fn proven(granted: Granted) -> Proven {
    let Granted { name, global_id, payload, session_key, connection_secret, mon_caps } = granted;
    Proven { name, global_id, payload, session_key, connection_secret, mon_caps }
}

fn granted(who: internal_mon::Proven) -> Granted {
    let Proven { name, global_id, payload, session_key, connection_secret, mon_caps } = who;
    Granted { name, global_id, payload, session_key, connection_secret, mon_caps }
}
