//! The monitor: sessions and services around one replicated log.
//!
//! Room: mon core.   Owns: `Mon`.
//! Hears: sessions, messages, peers, flushes, time.   Says: `Effect`s.
//! Holds: nothing leaves for a client that rests on a change the log has not committed. The services in memory run
//! ahead of the log; every answer waits for the last change proposed before it was made (`outbox`). Should this
//! member lose the lead, the answers are dropped with the sessions, and the services are read again from the kv.
//! Upstream: src/mon/Monitor.cc, src/mon/PaxosService.h.

use crate::env::{Env, Quorum};
use crate::raft::{Progress, Raft, RaftError};
use crate::services::State;
use crate::services::log::Author;
use crate::session::{Peer, Session, SessionId};
use crate::txn::{self, STATE_PREFIX, StateError, Txn};
use crate::{boot, health, publish, ticks};
use auth::ChaCha8Rng;
use auth::cephx::{Granted, MonAuth};
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;
use store::{IoId, Kv, KvBatch, KvError};
use types::msg::{LogPrio, Message};
use types::{Errno, Mono, Now};

/// Time between ticks of consensus; jittered by a quarter either way.
const RAFT_TICK: Duration = Duration::from_millis(100);
/// Time between looks at beacons, rotations and health.
const TICK: Duration = Duration::from_secs(1);
/// Changes of the osdmap that come closer than this to the last epoch are gathered into one.
const OSDMAP_DELAY: Duration = Duration::from_millis(50);

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
    /// Consensus with another member, by its number (rank + 1).
    Peer { to: u64, payload: Bytes },
    /// The store cannot be trusted any more: end the process.
    Fatal { reason: String },
}

/// Why a monitor could not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("this is not the directory of a monitor (run --mkfs first)")]
    NotFormatted,
    #[error("the monmap has no mon.{0}")]
    NotInMonMap(String),
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
    /// Inputs that came before this member led.
    waiting: Vec<Waiting>,
    outbox: VecDeque<(u64, Effect)>,
    effects: VecDeque<Effect>,
    proposed: u64,
    committed: u64,
    osdmap_at: Mono,
    raft_tick_at: Mono,
    tick_at: Mono,
    fatal: bool,
}

enum Waiting {
    Auth { session: SessionId, method: u32, modes: Vec<u32>, payload: Bytes },
    Message { session: SessionId, raw: types::msg::RawMessage },
}

impl<K: Kv> Mon<K> {
    /// Opens a monitor on what `mkfs` left in `kv`.
    pub fn open(env: Env, kv: K, now: Now, seed: u64) -> Result<Self, OpenError> {
        let monmap = match State::load(&kv)? {
            Some(state) => state.monmap.map,
            None => boot::read_monmap(&kv)?.ok_or(OpenError::NotFormatted)?,
        };
        let rank = monmap.rank_of(&env.name).ok_or_else(|| OpenError::NotInMonMap(env.name.clone()))?;
        let members: Vec<u64> = (1..=monmap.ranks.len() as u64).collect();
        let raft = Raft::open(&kv, rank as u64 + 1, &members)?;
        let mut mon = Mon {
            env,
            kv,
            raft,
            state: None,
            quorum: Quorum { rank, leader: rank, term: 0, since: now.mono, since_wall: now.wall },
            sessions: BTreeMap::new(),
            auths: BTreeMap::new(),
            proven: BTreeMap::new(),
            txn: Txn::default(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            osds: Default::default(),
            published: Default::default(),
            health: Default::default(),
            proxy: crate::proxy::Proxy::default(),
            waiting: Vec::new(),
            outbox: VecDeque::new(),
            effects: VecDeque::new(),
            proposed: 0,
            committed: 0,
            osdmap_at: Mono(0),
            raft_tick_at: now.mono + RAFT_TICK,
            tick_at: now.mono + TICK,
            fatal: false,
        };
        mon.settle(now);
        Ok(mon)
    }

    /// A step of a connection's authentication: `first` begins it, the others go on.
    pub fn handle_auth(&mut self, now: Now, session: SessionId, first: bool, method: u32, modes: &[u32], payload: Bytes) {
        if first {
            self.auths.remove(&session);
        }
        if self.state.is_none() {
            self.waiting.push(Waiting::Auth { session, method, modes: modes.to_vec(), payload });
        } else {
            self.answer_auth(now, session, method, modes, &payload);
        }
        self.settle(now);
    }

    /// A proven connection is open.
    pub fn handle_ready(&mut self, now: Now, session: SessionId, kind: types::EntityKind, addrs: types::AddrVec, features: u64) {
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
    pub fn handle_message(&mut self, now: Now, session: SessionId, raw: types::msg::RawMessage) {
        if self.state.is_none() {
            self.waiting.push(Waiting::Message { session, raw });
        } else {
            self.dispatch(now, session, &raw);
        }
        self.settle(now);
    }

    /// A connection is gone.
    pub fn handle_reset(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.auths.remove(&session);
        self.proven.remove(&session);
        self.drop_passed(session);
        self.waiting.retain(|w| !matches!(w, Waiting::Auth { session: s, .. } | Waiting::Message { session: s, .. } if *s == session));
        self.outbox.retain(|(_, e)| !matches!(e, Effect::Send { session: s, .. } if *s == session));
    }

    /// Consensus from another member.
    pub fn handle_peer(&mut self, now: Now, payload: &Bytes) {
        self.raft.handle_message(payload);
        self.settle(now);
    }

    /// The kv finished a flush.
    pub fn handle_io(&mut self, now: Now, io: IoId, result: Result<Bytes, Errno>) {
        if let Err(errno) = result {
            return self.fail(format!("the store could not be flushed: {errno}"));
        }
        for (to, payload) in self.raft.handle_flushed(io) {
            self.effects.push_back(Effect::Peer { to, payload });
        }
        self.settle(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Now) {
        if now.mono >= self.raft_tick_at {
            self.raft.handle_tick();
            let quarter = RAFT_TICK / 4;
            self.raft_tick_at = now.mono + (RAFT_TICK - quarter) + quarter.mul_f64(2.0 * self.rng.random::<f64>());
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
        let osdmap = self.state.as_ref().filter(|s| s.osdmap.is_dirty()).map(|_| self.osdmap_at + OSDMAP_DELAY);
        osdmap.into_iter().fold(self.raft_tick_at.min(self.tick_at), Mono::min)
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
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
        let seq = self.proposed + u64::from(!self.txn.is_empty());
        self.outbox.push_back((seq, effect));
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
            state.osdmap.publish(now, needed, &mut self.txn);
            self.osdmap_at = now.mono;
        }
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
            if self.state.as_ref().is_some_and(|s| s.osdmap.is_dirty()) && now.mono >= self.osdmap_at + OSDMAP_DELAY {
                self.publish_osdmap(now);
            }
            publish::run(self, now);
            self.propose();
            let mut moved = false;
            while let Some(progress) = self.raft.poll() {
                moved = true;
                if let Err(e) = self.progress(progress) {
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
            if self.state.is_none() && !moved {
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

    fn progress(&mut self, progress: Progress) -> Result<(), StateError> {
        let mut batch = KvBatch::default();
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
        batch.append(progress.batch);
        if !batch.is_empty() {
            self.kv.apply(batch)?;
        }
        if let Some(io) = progress.flush {
            self.kv.flush(io);
        }
        self.effects.extend(progress.messages.into_iter().map(|(to, payload)| Effect::Peer { to, payload }));
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
        if self.state.is_none() && ready {
            self.begin(now)?;
        } else if self.state.is_some() && !self.raft.is_leader() {
            self.end();
        }
        Ok(())
    }

    fn begin(&mut self, now: Now) -> Result<(), StateError> {
        let (leader, term) = (self.raft.leader().saturating_sub(1) as usize, self.raft.term());
        self.quorum = Quorum { leader, term, since: now.mono, since_wall: now.wall, ..self.quorum };
        self.osds = Default::default();
        self.published = Default::default();
        let state = match State::load(&self.kv)? {
            Some(state) => state,
            None => boot::create(&self.kv, &self.env, now, &mut self.rng, &mut self.txn)?,
        };
        let state = self.state.insert(state);
        state.auth.reserve_ids(&mut self.txn);
        state.auth.rotate(now.wall, &mut self.rng, &mut self.txn);
        let line = format!("mon.{} is new leader, mons {} in quorum (ranks {})", self.env.name, self.env.name, self.quorum.rank);
        self.log(now, crate::services::log::CLUSTER, LogPrio::INFO, line);
        Ok(())
    }

    fn end(&mut self) {
        self.state = None;
        self.txn = Txn::default();
        self.outbox.clear();
        for session in std::mem::take(&mut self.sessions).into_keys() {
            self.effects.push_back(Effect::Close { session });
        }
    }

    fn drain(&mut self) {
        while self.outbox.front().is_some_and(|(seq, _)| *seq <= self.committed) {
            self.effects.extend(self.outbox.pop_front().map(|(_, effect)| effect));
        }
    }

    fn replay_waiting(&mut self, now: Now) {
        if self.state.is_none() {
            return;
        }
        for input in std::mem::take(&mut self.waiting) {
            match input {
                Waiting::Auth { session, method, modes, payload } => self.answer_auth(now, session, method, &modes, &payload),
                Waiting::Message { session, raw } => self.dispatch(now, session, &raw),
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
