//! The monitor: sessions and services around one replicated log.
//!
//! Room: mon core.   Owns: `Mon`.
//! Hears: sessions, messages, peers, flushes, time.   Says: `Effect`s.
//! Holds: nothing leaves for a client that rests on a change the log has not committed. The services in memory run
//! ahead of the log; every answer waits for the last change proposed before it was made (`outbox`), and one that rests
//! on no change of its own for a majority's word that this member still leads. Should it lose the lead, the answers are
//! dropped with the sessions, and the services are read again from the kv.
//! Upstream: src/mon/Monitor.cc, src/mon/PaxosService.h.

use crate::env::{Env, Quorum};
use crate::raft::{Progress, Raft, RaftError};
use crate::services::State;
use crate::services::log::Author;
use crate::services::osdmap::{Publishing, Trim};
use crate::session::{Peer, Session, SessionId};
use crate::txn::{self, STATE_PREFIX, StateError, Txn};
use crate::members::Members;
use crate::pace::Pace;
use crate::relay::{PeerKeys, Relay};
use crate::{boot, health, publish, ticks};
use auth::ChaCha8Rng;
use auth::cephx::{Granted, MonAuth};
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;
use store::{IoId, Kv, KvBatch, KvError};
use types::msg::internal_mon::{PeerAnswer, PeerSays};
use types::msg::{LogPrio, Message, RawMessage};
use types::{AddrVec, EntityKind, Errno, Mono, Now};

/// Time between ticks of consensus; jittered by a quarter either way.
const RAFT_TICK: Duration = Duration::from_millis(100);
/// A member whose leader's session broke stands for election within this time, each after another part of it.
const STAND_WITHIN: Duration = Duration::from_millis(150);
/// One that finds itself without a leader lets one that there may be speak first.
const STAND_AFTER: Duration = Duration::from_millis(300);
/// Time between looks at beacons, rotations and health.
const TICK: Duration = Duration::from_secs(1);

/// What a monitor asks of the outside.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // They are taken one by one, never stored in numbers.
pub enum Effect {
    /// A message to a client or daemon; the tid is the request's, 0 if none.
    Send { session: SessionId, tid: u64, message: Message },
    /// An answer to AUTH_REQUEST or AUTH_REQUEST_MORE.
    AuthMore { session: SessionId, payload: Bytes },
    AuthDone { session: SessionId, mode: u32, granted: Box<Granted> },
    AuthBad { session: SessionId, method: u32, errno: Errno },
    /// Ends a session.
    Close { session: SessionId },
    /// A message the leader made for a client of ours.
    Pass { session: SessionId, message: RawMessage },
    /// Something to say to another monitor, on the session we opened to it. Without one it is dropped.
    Peer { to: String, says: PeerSays },
    /// An answer to another member, on the session it opened to us.
    PeerAnswer { link: SessionId, answer: PeerAnswer },
    /// The other monitors, and where each listens, are these now: keep a session to every one.
    Peers { all: BTreeMap<String, AddrVec> },
    /// This monitor has been removed: end the process in order.
    Leave,
    /// The store cannot be trusted any more: end the process.
    Fatal { reason: String },
}

impl Effect {
    /// The session it is for, if it is for one.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self {
            Effect::Send { session, .. }
            | Effect::AuthMore { session, .. }
            | Effect::AuthDone { session, .. }
            | Effect::AuthBad { session, .. }
            | Effect::Pass { session, .. }
            | Effect::Close { session } => Some(*session),
            Effect::Peer { .. } | Effect::PeerAnswer { .. } | Effect::Peers { .. } | Effect::Leave | Effect::Fatal { .. } => None,
        }
    }
}

/// Why a monitor could not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("this is not the directory of a monitor (run --mkfs first)")]
    NotFormatted,
    #[error("mon.{0} has been removed from the cluster; to add it again, format an empty directory (--mkfs)")]
    Removed(String),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Raft(#[from] RaftError),
}

impl From<KvError> for OpenError {
    fn from(e: KvError) -> Self {
        OpenError::State(e.into())
    }
}

/// One monitor.
pub struct Mon<K: Kv> {
    pub(crate) env: Env,
    pub(crate) kv: K,
    pub(crate) raft: Raft,
    /// The services; only while this member leads.
    pub(crate) state: Option<State>,
    pub(crate) quorum: Quorum,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) auths: BTreeMap<SessionId, MonAuth>,
    pub(crate) proven: BTreeMap<SessionId, Box<Granted>>,
    pub(crate) txn: Txn,
    pub(crate) rng: ChaCha8Rng,
    pub(crate) osds: crate::osds::Watch,
    pub(crate) published: publish::Versions,
    pub(crate) health: health::Watch,
    pub(crate) proxy: crate::proxy::Proxy,
    pub(crate) relay: Relay,
    pub(crate) peer_keys: PeerKeys,
    pub(crate) members: Members,
    pub(crate) keep: crate::keep::Keep,
    pub(crate) raise: crate::raise::Raise,
    /// Inputs that came while nobody was known to serve.
    waiting: Vec<Waiting>,
    outbox: VecDeque<Waits>,
    pub(crate) effects: VecDeque<Effect>,
    proposed: u64,
    committed: u64,
    /// Questions whether we still lead: asked, and answered.
    asked: u64,
    answered: u64,
    stand_at: Option<Mono>,
    /// When the osdmap's changes are published.
    pub(crate) pace: Pace,
    raft_tick_at: Mono,
    tick_at: Mono,
    /// Somebody else is to lead; until then, if nobody does, this member does not serve though it leads.
    pub(crate) no_lead_until: Mono,
    fatal: bool,
}

/// An answer, the change it waits for, and the question.
struct Waits {
    change: u64,
    question: u64,
    effect: Effect,
}

enum Waiting {
    Auth { session: SessionId, method: u32, modes: Vec<u32>, payload: Bytes },
    Message { session: SessionId, raw: types::msg::RawMessage },
}

impl<K: Kv> Mon<K> {
    /// Opens a monitor on what `mkfs` left in `kv`.
    pub fn open(env: Env, kv: K, now: Now, seed: u64) -> Result<Self, OpenError> {
        let monmap = boot::newest_monmap(&kv)?.ok_or(OpenError::NotFormatted)?;
        if crate::raft::was_removed(&kv)? {
            return Err(OpenError::Removed(env.name.clone()));
        }
        let rank = monmap.rank_of(&env.name).unwrap_or(Quorum::NO_RANK);
        let seat = boot::read_seat(&kv, &env.name)?;
        let raft = match &seat {
            Some(seat) => Raft::open(&kv, seat.id, &seat.founders)?,
            None => Raft::open(&kv, Members::NO_ID, &[])?,
        };
        let members = Members::new(seat.is_none());
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let peer_keys = PeerKeys::new(&boot::read_keyring(&kv)?, now, &mut rng).ok_or(OpenError::NotFormatted)?;
        let mut mon = Mon {
            env,
            kv,
            raft,
            state: None,
            quorum: Quorum { rank, leader: None, ranks: Vec::new(), term: 0, since: now.mono, clocks: Default::default(), rooms: Default::default() },
            sessions: BTreeMap::new(),
            auths: BTreeMap::new(),
            proven: BTreeMap::new(),
            txn: Txn::default(),
            rng,
            osds: Default::default(),
            published: Default::default(),
            health: Default::default(),
            proxy: crate::proxy::Proxy::default(),
            relay: Relay::default(),
            peer_keys,
            members,
            keep: Default::default(),
            raise: Default::default(),
            waiting: Vec::new(),
            outbox: VecDeque::new(),
            effects: VecDeque::new(),
            proposed: 0,
            committed: 0,
            asked: 0,
            answered: 0,
            stand_at: None,
            pace: Pace::default(),
            raft_tick_at: now.mono + RAFT_TICK,
            tick_at: now.mono + TICK,
            no_lead_until: Mono(0),
            fatal: false,
        };
        mon.read_members()?;
        mon.found(now);
        mon.settle(now);
        Ok(mon)
    }

    /// A step of a connection's authentication: `first` begins it, the others go on.
    pub fn handle_auth(&mut self, now: Now, session: SessionId, first: bool, method: u32, modes: &[u32], payload: Bytes) {
        self.relay_auth(now, session, first, method, modes, payload);
        self.settle(now);
    }

    pub(crate) fn handle_auth_here(&mut self, now: Now, session: SessionId, first: bool, method: u32, modes: &[u32], payload: Bytes) {
        if first {
            self.auths.remove(&session);
        }
        if self.state.is_some() {
            self.answer_auth(now, session, method, modes, &payload);
        } else if first {
            self.waiting.push(Waiting::Auth { session, method, modes: modes.to_vec(), payload });
        } else {
            // Whoever began this with it leads no more.
            self.effects.push_back(Effect::Close { session });
        }
    }

    /// A proven connection is open.
    pub fn handle_ready(&mut self, now: Now, session: SessionId, kind: EntityKind, addrs: AddrVec, features: u64) {
        if !self.relay_ready(now, session, kind, &addrs, features) {
            self.open_proven(now, session, kind, addrs, features);
        }
    }

    pub(crate) fn open_proven(&mut self, now: Now, session: SessionId, kind: EntityKind, addrs: AddrVec, features: u64) {
        let Some(granted) = self.proven.get(&session) else { return };
        let (name, global_id, caps) = (granted.name.clone(), granted.global_id, granted.mon_caps.clone());
        self.open_session(now, session, Peer { name, global_id, kind, addrs, features, caps });
    }

    /// Opens a session of somebody whom the caller vouches for: for tests and the simulation.
    pub fn handle_proven(&mut self, now: Now, session: SessionId, peer: Peer) {
        self.open_session(now, session, peer);
    }

    fn open_session(&mut self, now: Now, session: SessionId, peer: Peer) {
        self.sessions.insert(session, Session::new(peer, now.mono));
    }

    /// A message of a client or daemon.
    pub fn handle_message(&mut self, now: Now, session: SessionId, raw: RawMessage) {
        if let Some(raw) = self.relay_message(session, raw) {
            self.handle_message_here(now, session, raw);
        }
        self.settle(now);
    }

    pub(crate) fn handle_message_here(&mut self, now: Now, session: SessionId, raw: RawMessage) {
        if self.state.is_some() || self.is_relayed(session) {
            self.dispatch(now, session, &raw);
        } else {
            self.waiting.push(Waiting::Message { session, raw });
        }
    }

    /// A connection is gone.
    pub fn handle_reset(&mut self, session: SessionId) {
        self.relay_reset(session);
        self.forget_session(session);
    }

    pub(crate) fn forget_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.auths.remove(&session);
        self.proven.remove(&session);
        self.drop_passed(session);
        self.waiting.retain(|w| !matches!(w, Waiting::Auth { session: s, .. } | Waiting::Message { session: s, .. } if *s == session));
        self.outbox.retain(|w| w.effect.session() != Some(session));
    }

    /// The kv finished a flush.
    pub fn handle_io(&mut self, now: Now, io: IoId, result: Result<Bytes, Errno>) {
        if let Err(errno) = result {
            return self.fail(format!("the store could not be flushed: {errno}"));
        }
        let messages = self.raft.handle_flushed(io);
        self.send_consensus(messages);
        self.settle(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Now) {
        if now.mono >= self.raft_tick_at {
            let chance = self.rng.random();
            if self.members.has_seat() {
                self.raft.handle_tick(chance);
            }
            self.settle_members(now);
            self.follow_quorum(now);
            let quarter = RAFT_TICK / 4;
            self.raft_tick_at = now.mono + (RAFT_TICK - quarter) + quarter.mul_f64(2.0 * self.rng.random::<f64>());
        }
        if self.stand_at.is_some_and(|at| now.mono >= at) {
            self.stand_at = None;
            self.raft.stand();
        }
        if now.mono >= self.tick_at {
            self.tick_at = now.mono + TICK;
            if self.state.is_some() {
                ticks::run(self, now);
            }
        }
        self.settle(now);
    }

    /// When `handle_timeout` is due.
    pub fn next_timeout(&self) -> Mono {
        let osdmap = self.state.as_ref().filter(|s| s.osdmap.is_dirty()).map(|_| self.pace.due());
        osdmap.into_iter().chain(self.stand_at).fold(self.raft_tick_at.min(self.tick_at), Mono::min)
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        while let Some(effect) = self.effects.pop_front() {
            if let Some(effect) = self.route(effect) {
                return Some(effect);
            }
        }
        None
    }

    /// Stands for election soon, unless somebody leads by then.
    pub(crate) fn stand_soon(&mut self, now: Now) {
        if self.raft.leader() == 0 && !self.raft.is_alone() && self.members.has_seat() && self.stand_at.is_none() {
            let first = if self.quorum.leader.is_some() { Duration::ZERO } else { STAND_AFTER };
            self.stand_at = Some(now.mono + first + STAND_WITHIN.mul_f64(self.rng.random::<f64>()));
        }
    }

    /// True once this member leads and serves.
    pub fn is_serving(&self) -> bool {
        self.state.is_some()
    }

    /// The services, while this member leads.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// The store: for closing it in order.
    pub fn kv_mut(&mut self) -> &mut K {
        &mut self.kv
    }

    /// Queues a message behind every change made so far.
    pub(crate) fn send(&mut self, session: SessionId, tid: u64, message: impl Into<Message>) {
        let effect = Effect::Send { session, tid, message: message.into() };
        self.after_changes(effect);
    }

    /// Queues any effect behind every change made so far.
    pub(crate) fn after_changes(&mut self, effect: Effect) {
        let changing = !self.txn.is_empty();
        let change = self.proposed + u64::from(changing);
        // A majority that takes a change proposed after this says by it that we lead.
        let question = if changing || self.raft.is_alone() { 0 } else { self.asked + 1 };
        self.outbox.push_back(Waits { change, question, effect });
    }

    /// Adds a line to the cluster log.
    pub(crate) fn log(&mut self, now: Now, channel: &str, prio: LogPrio, msg: String) {
        let Some(state) = self.state.as_mut() else { return };
        let author = Author { name: &self.env.name, rank: self.quorum.rank, addrs: &self.env.addrs };
        state.log.say(&author, now.wall, channel, prio, msg, &mut self.txn);
    }

    /// Makes the changes gathered for the osdmap an epoch at once.
    pub(crate) fn publish_osdmap(&mut self, now: Now) {
        if let Some(state) = self.state.as_mut().filter(|s| s.osdmap.is_dirty()) {
            let needed = self.osds.maps_needed_from(&state.osdmap.map);
            let kept = self.env.int(state, "mon_min_osdmap_epochs", 500).clamp(1, i64::from(u32::MAX)) as u32;
            let primes = self.env.bool(state, "mon_osd_prime_pg_temp", true);
            state.osdmap.publish(now, Publishing { trim: Trim { needed, kept }, primes }, &mut self.txn);
            self.pace.publishes(now.mono);
        }
    }

    /// True if every change made so far has been agreed on.
    pub(crate) fn is_settled(&self) -> bool {
        self.txn.is_empty() && self.committed >= self.proposed
    }

    pub(crate) fn fail(&mut self, reason: String) {
        tracing::error!("{reason}");
        if !std::mem::replace(&mut self.fatal, true) {
            self.effects.push_back(Effect::Fatal { reason });
        }
    }

    /// Returns to a known state: changes proposed, the log driven as far as it goes, answers that may leave let go.
    pub(crate) fn settle(&mut self, now: Now) {
        loop {
            if self.state.as_ref().is_some_and(|s| s.osdmap.is_dirty()) && now.mono >= self.pace.due() {
                self.publish_osdmap(now);
            }
            publish::run(self, now);
            self.propose();
            self.ask_lead();
            let mut moved = false;
            while let Some(progress) = self.raft.poll() {
                moved = true;
                if let Err(e) = self.progress(now, progress) {
                    return self.fail(e.to_string());
                }
            }
            self.provide_snapshot();
            if let Err(e) = self.follow_role(now) {
                return self.fail(e.to_string());
            }
            self.drain();
            if !moved && self.txn.is_empty() && self.waiting.is_empty() {
                return;
            }
            if self.state.is_none() && !self.has_leader() && !moved {
                return;
            }
            self.replay_waiting(now);
        }
    }

    fn propose(&mut self) {
        if self.txn.is_empty() {
            return;
        }
        self.proposed += 1;
        let data = txn::encode_proposal(self.env.boot, self.proposed, &self.txn.take());
        if !self.raft.propose(data) {
            // The lead is lost; `follow_role` drops what rests on this.
            tracing::warn!("a change was refused by consensus: no longer the leader");
        }
    }

    fn ask_lead(&mut self) {
        if self.outbox.iter().any(|w| w.question > self.asked) {
            self.asked += 1;
            self.raft.ask_lead(self.asked);
        }
    }

    fn progress(&mut self, now: Now, progress: Progress) -> Result<(), StateError> {
        let mut batch = KvBatch::default();
        let removed = progress.removed;
        if let Some(snapshot) = progress.snapshot {
            install_snapshot(&snapshot, &mut batch)?;
        }
        for raw in progress.committed {
            let corrupt = |source| StateError::Corrupt { what: "a proposal".into(), source };
            let (boot, seq, changes) = txn::decode_proposal(&raw).map_err(corrupt)?;
            batch.append(changes);
            if boot == self.env.boot {
                self.committed = seq;
            }
        }
        self.keep.follow(&batch);
        let of_members = batch.ops.iter().any(crate::services::monmap::concerns);
        batch.append(progress.batch);
        if !batch.is_empty() {
            self.kv.apply(batch)?;
        }
        if of_members {
            self.read_members()?;
            self.take_joined(now);
        }
        if removed {
            self.leave();
        }
        if let Some(io) = progress.flush {
            self.kv.flush(io);
        }
        self.answered = self.answered.max(progress.reads.unwrap_or(0));
        self.send_consensus(progress.messages);
        Ok(())
    }

    fn provide_snapshot(&mut self) {
        if self.raft.wants_snapshot() {
            match read_snapshot(&self.kv) {
                Ok(data) => self.raft.provide_snapshot(data),
                Err(e) => self.fail(e.to_string()),
            }
        }
    }

    /// Begins or ends serving as consensus has it.
    fn follow_role(&mut self, now: Now) -> Result<(), StateError> {
        let ready = self.raft.leads_with_all_applied();
        if self.state.is_none() && ready && now.mono >= self.no_lead_until {
            self.begin(now)?;
        } else if self.state.is_some() && !self.raft.is_leader() {
            self.end();
        }
        if self.raft.leader() == 0 && self.quorum.leader.is_some() {
            self.quorum.lost(self.raft.term());
        }
        self.follow_leader();
        Ok(())
    }

    fn begin(&mut self, now: Now) -> Result<(), StateError> {
        tracing::info!("leads in term {}", self.raft.term());
        // What we proposed as an earlier leader is in the state, or lost for good.
        self.committed = self.proposed;
        self.osds = Default::default();
        self.keep = Default::default();
        self.published = Default::default();
        self.members.offer_again();
        let state = match State::load(&self.kv)? {
            Some(state) => state,
            None => boot::create(&self.kv, &self.env, now, &mut self.rng, &mut self.txn)?,
        };
        let state = self.state.insert(state);
        self.quorum.rank = state.monmap.map.rank_of(&self.env.name).unwrap_or(Quorum::NO_RANK);
        let ranks = self.members.ranks_of(&state.monmap, &self.raft.in_quorum());
        self.quorum.told(self.quorum.rank, self.raft.term(), ranks, now.mono);
        state.auth.reserve_ids(&mut self.txn);
        state.auth.rotate(now.wall, &mut self.rng, &mut self.txn);
        self.announce_quorum(now);
        self.take_joined(now);
        Ok(())
    }

    pub(crate) fn announce_quorum(&mut self, now: Now) {
        let Some(state) = &self.state else { return };
        let names = self.quorum.names(&state.monmap.map).join(",");
        let line = format!("mon.{} is new leader, mons {names} in quorum (ranks {})", self.env.name, self.quorum.ranks_text());
        self.log(now, crate::services::log::CLUSTER, LogPrio::INFO, line);
    }

    /// Serves no more.
    pub(crate) fn end(&mut self) {
        tracing::info!("leads no more");
        self.state = None;
        self.txn = Txn::default();
        self.outbox.clear();
        self.proxy = Default::default();
        let all = std::mem::take(&mut self.sessions).into_keys().chain(std::mem::take(&mut self.auths).into_keys());
        let all: BTreeSet<SessionId> = all.chain(std::mem::take(&mut self.proven).into_keys()).collect();
        self.effects.extend(all.into_iter().map(|session| Effect::Close { session }));
    }

    fn drain(&mut self) {
        while self.outbox.front().is_some_and(|w| w.change <= self.committed && w.question <= self.answered) {
            self.effects.extend(self.outbox.pop_front().map(|w| w.effect));
        }
    }

    fn replay_waiting(&mut self, now: Now) {
        let serves = self.state.is_some();
        if !serves && !self.has_leader() {
            return;
        }
        for input in std::mem::take(&mut self.waiting) {
            match input {
                Waiting::Auth { session, method, modes, payload } if serves || !session.is_remote() => {
                    self.relay_auth(now, session, true, method, &modes, payload);
                }
                Waiting::Message { session, raw } if serves => self.dispatch(now, session, &raw),
                // Whoever came to us as the leader has to go where it is now.
                Waiting::Auth { session, .. } | Waiting::Message { session, .. } => {
                    self.effects.push_back(Effect::Close { session });
                }
            }
        }
    }
}

fn state_bounds() -> (Vec<u8>, Vec<u8>) {
    (vec![STATE_PREFIX], vec![STATE_PREFIX + 1])
}

fn read_snapshot(kv: &impl Kv) -> Result<Bytes, StateError> {
    let (from, to) = state_bounds();
    let all = kv.scan(Bound::Included(&from[..]), Bound::Excluded(&to[..]), usize::MAX)?;
    Ok(denc::to_bytes(&all, 0))
}

fn install_snapshot(snapshot: &Bytes, batch: &mut KvBatch) -> Result<(), StateError> {
    let source = |source| StateError::Corrupt { what: "a snapshot".into(), source };
    let all: Vec<(Bytes, Bytes)> = denc::from_bytes(snapshot).map_err(source)?;
    let (from, to) = state_bounds();
    batch.delete_range(from, to);
    all.into_iter().for_each(|(k, v)| batch.put(k, v));
    Ok(())
}
