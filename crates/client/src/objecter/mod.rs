//! `Objecter`: requests to objects, sent to whichever OSD the map names, again and again until one reply comes.
//!
//! Owns: the OSD map, requests in flight, sessions with OSDs and the manager, watches, questions to the monitors.
//! Hears: events of the endpoint and of the monitor client that concern it.
//! Says: `ObjecterEvent`s.
//! Holds: a request is answered once; requests to one object reach its primary in the order they were made; a request
//! blocked by a backoff, a full or paused cluster waits and is not lost.
//! Upstream: src/osdc/Objecter.cc.

mod linger;
mod maps;
mod ops;
mod questions;
mod session;
mod target;

pub use linger::WatchEvent;
pub use ops::{OpReply, OpRequest};

use crate::mon::{MonClient, MonClientEvent};
use bytes::Bytes;
use linger::Linger;
use msgr::{ConnId, Endpoint, Event};
use ops::OpState;
use questions::Question;
use session::OsdSession;
use target::Placed;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use types::map::OsdMap;
use types::msg::RawMessage;
use types::pg::PoolStat;
use types::{Epoch, Mono, Now, OsdId};

/// What a request needs besides the objecter itself.
pub struct Link<'a> {
    pub now: Now,
    pub ep: &'a mut Endpoint,
    pub mon: &'a mut MonClient,
}

/// What the owner is told. Numbers are those the asking method returned.
#[derive(Debug, Clone, PartialEq)]
pub enum ObjecterEvent {
    /// A newer map is in force.
    Map { epoch: Epoch },
    Op { tid: u64, reply: OpReply },
    /// A watch, or a notification sent with `notify`, by its cookie.
    Watch { cookie: u64, event: WatchEvent },
    /// The answer to `osd_command` or `mgr_command`.
    Command { tid: u64, result: i32, status: String, output: Bytes },
    /// The answer to a pool operation; the map shows its effect.
    PoolOp { tid: u64, result: i32, data: Option<Bytes> },
    Statfs { tid: u64, kb: u64, kb_used: u64, kb_avail: u64, objects: u64 },
    PoolStats { tid: u64, stats: BTreeMap<String, PoolStat>, per_pool: bool },
    /// `wait_for_latest_map`: the map is as new as the monitor's was.
    Latest { tid: u64 },
}

/// How often watches are proven alive, and stuck requests looked at.
const TICK: Duration = Duration::from_secs(5);

/// Requests to objects.
pub struct Objecter {
    map: Option<Arc<OsdMap>>,
    last_tid: u64,
    ops: BTreeMap<u64, OpState>,
    sessions: BTreeMap<OsdId, OsdSession>,
    conns: BTreeMap<ConnId, OsdId>,
    lingers: BTreeMap<u64, Linger>,
    questions: BTreeMap<u64, Question>,
    /// Monitor's handle of a version question to the request that asked it.
    versions: BTreeMap<u64, u64>,
    placed: Placed,
    mgr: Option<ConnId>,
    tick_at: Option<Mono>,
    events: VecDeque<ObjecterEvent>,
}

impl Default for Objecter {
    fn default() -> Self {
        Self::new()
    }
}

impl Objecter {
    /// Without a map; `start` asks for it.
    pub fn new() -> Self {
        Objecter {
            map: None,
            last_tid: 0,
            ops: BTreeMap::new(),
            sessions: BTreeMap::new(),
            conns: BTreeMap::new(),
            lingers: BTreeMap::new(),
            questions: BTreeMap::new(),
            versions: BTreeMap::new(),
            placed: Placed::new(),
            mgr: None,
            tick_at: None,
            events: VecDeque::new(),
        }
    }

    /// Subscribes to the maps.
    pub fn start(&mut self, link: &mut Link<'_>) {
        link.mon.subscribe(link.now, link.ep, "mgrmap", 0, false);
        link.mon.subscribe(link.now, link.ep, "osdmap", 0, true);
    }

    /// The map in force.
    pub fn map(&self) -> Option<&Arc<OsdMap>> {
        self.map.as_ref()
    }

    /// Requests that are not answered yet.
    pub fn ops_in_flight(&self) -> usize {
        self.ops.len()
    }

    /// The next thing the owner is to know.
    pub fn poll_event(&mut self) -> Option<ObjecterEvent> {
        self.events.pop_front()
    }

    /// Takes an event of the monitor client; what is not for the objecter comes back.
    pub fn handle_mon_event(&mut self, link: &mut Link<'_>, event: MonClientEvent) -> Option<MonClientEvent> {
        match event {
            MonClientEvent::OsdMap(m) => self.take_maps(link, &m),
            MonClientEvent::Version { handle, version, .. } if self.versions.contains_key(&handle) => {
                self.take_version(link, handle, version);
            }
            MonClientEvent::SessionOpened => {
                self.ask_again(link);
                return Some(event);
            }
            MonClientEvent::MgrMap(_) => {
                self.follow_manager(link);
                return Some(event);
            }
            // Not the end of anything: it may not have heard of a new secret yet. As stock does, we go on trying.
            MonClientEvent::ServiceRefused { conn, errno, .. } if self.conns.contains_key(&conn) => {
                tracing::warn!(osd = ?self.conns.get(&conn), "refuses us: {errno}");
                self.osd_lost(link, conn);
            }
            MonClientEvent::ServiceRefused { conn, errno, .. } if self.mgr == Some(conn) => {
                tracing::warn!("the manager refuses us: {errno}");
                self.mgr_lost(link);
            }
            other => return Some(other),
        }
        None
    }

    /// Takes an event of the endpoint that the monitor client gave back.
    pub fn handle_event(&mut self, link: &mut Link<'_>, event: Event) -> Option<Event> {
        match event {
            Event::Message { conn, msg } => self.handle_message(link, conn, msg).map(|msg| Event::Message { conn, msg }),
            Event::Ready { conn, .. } if self.conns.contains_key(&conn) => {
                self.osd_ready(conn);
                None
            }
            Event::Reset { conn, .. } if self.conns.contains_key(&conn) => {
                self.osd_lost(link, conn);
                None
            }
            Event::Reset { conn, .. } if self.mgr == Some(conn) => {
                self.mgr_lost(link);
                None
            }
            Event::Ready { conn, .. } | Event::KeepaliveAck { conn } if self.mgr == Some(conn) => None,
            Event::KeepaliveAck { conn } if self.conns.contains_key(&conn) => None,
            other => Some(other),
        }
    }

    /// When `handle_timeout` wants to be called.
    pub fn next_timeout(&self) -> Option<Mono> {
        let reopen = self.sessions.values().filter_map(|s| s.reopen_at).min();
        [self.tick_at, reopen].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, link: &mut Link<'_>) {
        self.reopen_sessions(link);
        if self.tick_at.is_some_and(|at| at <= link.now.mono) {
            self.tick_at = None;
            self.ping_watches(link);
            self.ask_manager_again(link);
            self.ask_osds_again(link);
            if self.ops.values().any(|op| op.is_stuck(link.now.mono)) {
                self.want_next_map(link);
            }
            self.arm_tick(link.now.mono);
        }
    }

    fn arm_tick(&mut self, now: Mono) {
        let idle = self.ops.is_empty() && self.lingers.is_empty() && self.questions.is_empty();
        if self.tick_at.is_none() && !idle {
            self.tick_at = Some(now + TICK);
        }
    }

    fn next_tid(&mut self) -> u64 {
        self.last_tid += 1;
        self.last_tid
    }

    fn say(&mut self, event: ObjecterEvent) {
        self.events.push_back(event);
    }

    fn handle_message(&mut self, link: &mut Link<'_>, conn: ConnId, msg: RawMessage) -> Option<RawMessage> {
        if link.mon.conn() == Some(conn) {
            return self.handle_answer(link, msg);
        }
        if self.mgr == Some(conn) {
            return self.handle_command_reply(msg);
        }
        match self.conns.get(&conn).copied() {
            Some(osd) => self.handle_osd_message(link, osd, msg),
            None => Some(msg),
        }
    }
}
