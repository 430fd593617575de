//! `MonClient`: one session with some monitor, found by hunting, kept with tickets, and all that goes over it.
//!
//! Owns: the mon session, cephx, subscriptions, pending commands and version questions; and the client's side of
//! authentication on sessions to other daemons (`dial_service`).
//! Hears: every event of the endpoint; gives back what is not its own.
//! Says: `MonClientEvent`s.
//! Holds: a command or version question is answered once, over however many sessions; what a lost session took with
//! it that is not tracked here (`send`), the owner sends again on `SessionOpened`.
//! Upstream: src/mon/MonClient.cc.

mod dial;
mod requests;
mod session;
mod subs;

use crate::mon::dial::Dials;
use crate::mon::requests::Requests;
use crate::mon::session::Session;
use crate::mon::subs::Subscriptions;
use auth::cephx::{CephxClient, RotatingSecrets};
use auth::{ChaCha8Rng, CryptoKey, mode};
use bytes::Bytes;
use msgr::{ConnId, Endpoint, Event};
use rand::SeedableRng;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::map::{MgrMap, MonMap};
use types::msg::{MFsMapUser, MMdsMap, MOsdMap, RawMessage};
use types::{AddrVec, EntityKind, EntityName, Errno, Mono, Now};

/// Who we are, where the monitors may be, what we need of them.
#[derive(Debug, Clone)]
pub struct MonClientConfig {
    pub name: EntityName,
    pub key: CryptoKey,
    /// `mon_host`: used until a MonMap is known.
    pub mon_addrs: Vec<AddrVec>,
    /// The monitor in whose process we live, if any, as the monitor map has it: after a session the first to be asked again. Where another one
    /// could stand still with our session, this one stands still with us.
    pub near: Option<AddrVec>,
    /// Whose tickets we want.
    pub services: Vec<EntityKind>,
    /// Connection modes to monitors and the manager, preferred first.
    pub mon_modes: Vec<u32>,
    /// Connection modes to other daemons.
    pub service_modes: Vec<u32>,
    /// A daemon that verifies authorizers: it needs its service's rotating secrets.
    pub wants_secrets: bool,
    /// Sent with subscriptions, for `config` masks.
    pub hostname: String,
    /// How long one monitor is given to answer before the next is tried; grows by half with every round.
    pub hunt_interval: Duration,
    pub hunt_interval_max: Duration,
}

impl MonClientConfig {
    /// Stock's defaults: tickets for all services, secure to monitors, crc to the others.
    pub fn new(name: EntityName, key: CryptoKey, mon_addrs: Vec<AddrVec>) -> Self {
        let daemon = [EntityKind::OSD, EntityKind::MDS, EntityKind::MGR].contains(&name.kind);
        MonClientConfig {
            name,
            key,
            mon_addrs,
            near: None,
            services: vec![EntityKind::MON, EntityKind::OSD, EntityKind::MGR],
            mon_modes: vec![mode::SECURE, mode::CRC],
            service_modes: vec![mode::CRC, mode::SECURE],
            wants_secrets: daemon,
            hostname: String::new(),
            hunt_interval: Duration::from_secs(3),
            hunt_interval_max: Duration::from_secs(30),
        }
    }
}

/// What the owner is told.
#[derive(Debug, Clone, PartialEq)]
pub enum MonClientEvent {
    /// A session with a monitor is open: send again what was sent with `send` and not answered.
    SessionOpened,
    /// The session is gone; another is being looked for.
    SessionLost,
    /// Tickets are at hand. The first time, and after every re-authentication.
    Authenticated { global_id: u64 },
    /// A monitor refused us; the hunt goes on, slowly. EACCES: wrong key, unknown name, no `mon` capability.
    AuthFailed { errno: Errno },
    MonMap(MonMap),
    /// Incrementals and full maps, encoded; the subscription has moved past them.
    OsdMap(MOsdMap),
    MgrMap(Box<MgrMap>),
    MdsMap(MMdsMap),
    FsMapUser(MFsMapUser),
    /// Options in force for us.
    Config(BTreeMap<String, String>),
    /// The answer to `command`; `status` is text for standard error, `output` for standard output.
    CommandReply { tid: u64, result: i32, status: String, output: Bytes },
    /// The answer to `get_version`.
    Version { handle: u64, version: u64, oldest: u64 },
    /// This daemon's rotating secrets, new or renewed.
    RotatingSecrets(RotatingSecrets),
    /// A daemon refused us for good; its session is closed.
    ServiceRefused { conn: ConnId, kind: EntityKind, errno: Errno },
}

/// A client of the monitors.
pub struct MonClient {
    config: MonClientConfig,
    rng: ChaCha8Rng,
    cephx: CephxClient,
    session: Session,
    monmap: Option<MonMap>,
    mgrmap: Option<MgrMap>,
    subs: Subscriptions,
    requests: Requests,
    dials: Dials,
    secrets: Option<RotatingSecrets>,
    /// When to ask for secrets again.
    secrets_at: Option<Mono>,
    /// When they were asked for last.
    secrets_asked: Mono,
    /// When to look for tickets to renew.
    renew_at: Option<Mono>,
    /// What a client calls itself for good: a request that is sent again must be known as the same, even where a monitor has given
    /// us another id meanwhile (src/librados/RadosClient.cc names its messenger once).
    first_global_id: Option<u64>,
    events: VecDeque<MonClientEvent>,
}

impl MonClient {
    /// What sessions that begin from now on are, preferred first: to monitors and the manager, and to others. Empty lists change nothing.
    pub fn set_modes(&mut self, mon: Vec<u32>, service: Vec<u32>) {
        let keep = |new: Vec<u32>, old: &mut Vec<u32>| if !new.is_empty() { *old = new };
        keep(mon, &mut self.config.mon_modes);
        keep(service, &mut self.config.service_modes);
    }

    /// A client that has not begun; `start` begins. `seed` makes its choices, nonces and challenges: a secret.
    pub fn new(config: MonClientConfig, seed: [u8; 32]) -> Self {
        let cephx = CephxClient::new(config.name.clone(), config.key.clone(), &config.services);
        let mut subs = Subscriptions::default();
        subs.want("monmap", 0, false);
        subs.want("config", 0, false);
        MonClient {
            session: Session::new(config.hunt_interval),
            config,
            rng: ChaCha8Rng::from_seed(seed),
            cephx,
            monmap: None,
            mgrmap: None,
            subs,
            requests: Requests::default(),
            dials: Dials::default(),
            secrets: None,
            secrets_at: None,
            secrets_asked: Mono(0),
            renew_at: None,
            first_global_id: None,
            events: VecDeque::new(),
        }
    }

    /// Looks for a monitor.
    pub fn start(&mut self, now: Now, ep: &mut Endpoint) {
        self.hunt(now, ep);
    }

    /// The next thing the owner is to know.
    pub fn poll_event(&mut self) -> Option<MonClientEvent> {
        self.events.pop_front()
    }

    /// Takes an event of the endpoint; what is not for the monitor client comes back.
    pub fn handle_event(&mut self, now: Now, ep: &mut Endpoint, event: Event) -> Option<Event> {
        if self.session.conn() == Some(event.conn()) {
            return self.handle_mon_event(now, ep, event);
        }
        if self.dials.contains(event.conn()) {
            return self.handle_dial_event(ep, event);
        }
        Some(event)
    }

    /// When `handle_timeout` wants to be called.
    pub fn next_timeout(&self) -> Option<Mono> {
        [self.session.deadline(), self.renew_at, self.secrets_at].into_iter().flatten().min()
    }

    /// Time has passed: hunts on, renews tickets and secrets.
    pub fn handle_timeout(&mut self, now: Now, ep: &mut Endpoint) {
        if self.session.deadline().is_some_and(|at| at <= now.mono) {
            self.hunt(now, ep);
        }
        if self.renew_at.is_some_and(|at| at <= now.mono) {
            self.renew(now, ep);
        }
        if self.secrets_at.is_some_and(|at| at <= now.mono) {
            self.ask_for_secrets(now, ep);
        }
    }

    /// Wants versions of `what` from `start` on, once or for as long as the session lasts.
    pub fn subscribe(&mut self, now: Now, ep: &mut Endpoint, what: &str, start: u64, onetime: bool) {
        if self.subs.want(what, start, onetime) {
            self.send_subscriptions(now, ep);
        }
    }

    /// Wants no more of `what`.
    pub fn unsubscribe(&mut self, what: &str) {
        self.subs.forget(what);
    }

    /// Sends a message to the monitor, now or when there is a session. One that was sent is not sent again.
    pub fn send(&mut self, now: Now, ep: &mut Endpoint, msg: RawMessage) {
        match self.session.ready() {
            Some(conn) => ep.send(now, conn, msg),
            None => self.requests.queue(msg),
        }
    }

    /// Runs a command given as JSON text; `CommandReply` answers with the same number.
    pub fn command(&mut self, now: Now, ep: &mut Endpoint, json: String, input: Bytes) -> u64 {
        let fsid = self.monmap.as_ref().map(|m| m.fsid);
        let (tid, msg) = self.requests.command(fsid, json, input);
        if let Some(msg) = msg {
            self.send_if_open(now, ep, msg);
        }
        tid
    }

    /// Gives up on a command: its answer will not be told.
    pub fn cancel_command(&mut self, tid: u64) {
        self.requests.cancel_command(tid);
    }

    /// Asks for the newest version of `osdmap`, `mgrmap`, ...; `Version` answers with the same handle.
    pub fn get_version(&mut self, now: Now, ep: &mut Endpoint, what: &str) -> u64 {
        let (handle, msg) = self.requests.get_version(what);
        self.send_if_open(now, ep, msg);
        handle
    }

    /// Opens a session to another daemon; its authentication is handled here, with a ticket for `kind`.
    pub fn dial_service(
        &mut self,
        now: Now,
        ep: &mut Endpoint,
        kind: EntityKind,
        addrs: &AddrVec,
        policy: msgr::Policy,
    ) -> ConnId {
        let conn = ep.connect(now, kind, addrs, policy);
        self.dials.add(conn, kind, policy.lossy());
        conn
    }

    /// A lossless session that a daemon of that kind opened: when we dial it, its authentication is handled here, too.
    pub fn own_service(&mut self, conn: ConnId, kind: EntityKind) {
        self.dials.add(conn, kind, false);
    }

    /// Drops what is remembered of a session opened with `dial_service` that its owner closed.
    pub fn forget_service(&mut self, conn: ConnId) {
        self.dials.remove(conn);
    }

    /// The monitors, once known.
    pub fn monmap(&self) -> Option<&MonMap> {
        self.monmap.as_ref()
    }

    /// The active manager, if `mgrmap` is subscribed to.
    pub fn mgrmap(&self) -> Option<&MgrMap> {
        self.mgrmap.as_ref()
    }

    /// Our name.
    pub fn name(&self) -> &EntityName {
        &self.config.name
    }

    /// The global id of the first session, which we go by for good; 0 until authenticated.
    pub fn first_global_id(&self) -> u64 {
        self.first_global_id.unwrap_or_default()
    }

    /// The global id of the newest session; 0 until authenticated.
    pub fn global_id(&self) -> u64 {
        self.cephx.global_id()
    }

    /// True while a session with a monitor is open.
    pub fn is_open(&self) -> bool {
        self.session.ready().is_some()
    }

    /// The session with the monitor, open or not.
    pub fn conn(&self) -> Option<ConnId> {
        self.session.conn()
    }

    /// The rotating secrets last fetched.
    pub fn secrets(&self) -> Option<&RotatingSecrets> {
        self.secrets.as_ref()
    }

    /// Asks for the rotating secrets now, unless that was a moment ago: an authorizer named one we do not have.
    pub fn refresh_secrets(&mut self, now: Now, ep: &mut Endpoint) {
        if now.mono >= self.secrets_asked + session::SECRETS_RETRY {
            self.ask_for_secrets(now, ep);
        }
    }

    fn send_if_open(&mut self, now: Now, ep: &mut Endpoint, msg: RawMessage) {
        if let Some(conn) = self.session.ready() {
            ep.send(now, conn, msg);
        }
    }

    fn say(&mut self, event: MonClientEvent) {
        self.events.push_back(event);
    }
}
