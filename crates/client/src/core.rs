//! `Client`: a native client in one piece, for whoever owns sockets and a clock.
//!
//! Owns: the endpoint, the monitor client, the objecter, and the answers that handles wait for.
//! Holds: every call that reached the client is answered, or its handle learns that the client is gone.
//! Driving it: pass in what sockets and the clock say, call `handle_calls` when handles have called, then do what
//! `poll_action` says until it says nothing.

use crate::handle::{Answer, Call, CommandReply, Handle, Usage};
use crate::mon::{MonClient, MonClientConfig, MonClientEvent};
use crate::objecter::{Link, Objecter, ObjecterEvent, OpReply, WatchEvent};
use bytes::Bytes;
use futures_channel::{mpsc, oneshot};
use msgr::{Action, Config, Endpoint, SockId};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use types::map::OsdMap;
use types::{AddrKind, AddrVec, EntityAddr, EntityKind, Errno, Mono, Now, features};

/// A native client.
pub struct Client {
    ep: Endpoint,
    mon: MonClient,
    objecter: Objecter,
    calls: mpsc::UnboundedReceiver<Call>,
    /// Answers waited for, by the number of the request.
    ops: BTreeMap<u64, oneshot::Sender<OpReply>>,
    mon_commands: BTreeMap<u64, oneshot::Sender<CommandReply>>,
    questions: BTreeMap<u64, Answer>,
    watches: BTreeMap<u64, mpsc::UnboundedSender<WatchEvent>>,
    /// Who waits for the first map.
    connecting: Vec<oneshot::Sender<Result<Arc<OsdMap>, Errno>>>,
    /// Calls made before there was a map.
    early: Vec<Call>,
    config: BTreeMap<String, String>,
}

impl Client {
    /// A client and a handle to it. `nonce` tells this instance from others at the same address; `seed` must be secret;
    /// `wake` is called, on the caller's thread, whenever a handle has called.
    pub fn new(config: MonClientConfig, nonce: u32, seed: [u8; 32], wake: Arc<dyn Fn() + Send + Sync>) -> (Client, Handle) {
        let ours = AddrVec(vec![EntityAddr { kind: AddrKind::ANY, nonce, sock: None }]);
        let cookies = seed.iter().fold(0u64, |sum, byte| sum.rotate_left(8) ^ u64::from(*byte));
        let ep = Endpoint::new(Config::new(EntityKind::CLIENT, -1, ours, features::SUPPORTED), cookies);
        let (tx, rx) = mpsc::unbounded();
        let client = Client {
            ep,
            mon: MonClient::new(config, seed),
            objecter: Objecter::new(),
            calls: rx,
            ops: BTreeMap::new(),
            mon_commands: BTreeMap::new(),
            questions: BTreeMap::new(),
            watches: BTreeMap::new(),
            connecting: Vec::new(),
            early: Vec::new(),
            config: BTreeMap::new(),
        };
        (client, Handle::new(tx, wake))
    }

    /// Looks for a monitor.
    pub fn start(&mut self, now: Now) {
        self.mon.start(now, &mut self.ep);
        let (objecter, mut link) = self.parts(now);
        objecter.start(&mut link);
        self.settle(now);
    }

    /// A dial succeeded.
    pub fn handle_connected(&mut self, now: Now, sock: SockId, local: SocketAddr) {
        self.ep.handle_connected(now, sock, local);
        self.settle(now);
    }

    /// Bytes arrived.
    pub fn handle_bytes(&mut self, now: Now, sock: SockId, bytes: Bytes) {
        self.ep.handle_bytes(now, sock, bytes);
        self.settle(now);
    }

    /// A socket ended, or a dial failed.
    pub fn handle_closed(&mut self, now: Now, sock: SockId) {
        self.ep.handle_closed(now, sock);
        self.settle(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Now) {
        self.ep.handle_timeout(now);
        self.settle(now);
        self.mon.handle_timeout(now, &mut self.ep);
        let (objecter, mut link) = self.parts(now);
        objecter.handle_timeout(&mut link);
        self.settle(now);
    }

    /// When `handle_timeout` wants to be called.
    pub fn next_timeout(&self) -> Option<Mono> {
        [self.ep.next_timeout(), self.mon.next_timeout(), self.objecter.next_timeout()].into_iter().flatten().min()
    }

    /// The next thing the world is to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.ep.poll_action()
    }

    /// Takes the calls handles have made.
    pub fn handle_calls(&mut self, now: Now) {
        while let Ok(call) = self.calls.try_recv() {
            self.handle_call(now, call);
        }
        self.settle(now);
    }

    /// Closes every session.
    pub fn stop(&mut self) {
        self.ep.close_all();
    }

    fn parts(&mut self, now: Now) -> (&mut Objecter, Link<'_>) {
        (&mut self.objecter, Link { now, ep: &mut self.ep, mon: &mut self.mon })
    }

    /// Passes on what happened until nothing happens any more.
    fn settle(&mut self, now: Now) {
        loop {
            if let Some(event) = self.ep.poll_event() {
                if let Some(event) = self.mon.handle_event(now, &mut self.ep, event) {
                    let (objecter, mut link) = self.parts(now);
                    objecter.handle_event(&mut link, event);
                }
            } else if let Some(event) = self.mon.poll_event() {
                let (objecter, mut link) = self.parts(now);
                if let Some(event) = objecter.handle_mon_event(&mut link, event) {
                    self.handle_mon_event(event);
                }
            } else if let Some(event) = self.objecter.poll_event() {
                self.handle_objecter_event(now, event);
            } else {
                return;
            }
        }
    }

    fn handle_mon_event(&mut self, event: MonClientEvent) {
        match event {
            MonClientEvent::CommandReply { tid, result, status, output } => {
                if let Some(waiting) = self.mon_commands.remove(&tid) {
                    let _ = waiting.send(CommandReply { result, status, output });
                }
            }
            MonClientEvent::AuthFailed { errno } if self.objecter.map().is_none() => {
                self.connecting.drain(..).for_each(|waiting| drop(waiting.send(Err(errno))));
            }
            MonClientEvent::Config(config) => self.config = config,
            _ => {}
        }
    }

    fn handle_objecter_event(&mut self, now: Now, event: ObjecterEvent) {
        match event {
            ObjecterEvent::Map { .. } => self.map_changed(now),
            ObjecterEvent::Op { tid, reply } => {
                if let Some(waiting) = self.ops.remove(&tid) {
                    let _ = waiting.send(reply);
                }
            }
            ObjecterEvent::Watch { cookie, event } => {
                let over = matches!(event, WatchEvent::Failed { .. } | WatchEvent::NotifyDone { .. });
                if let Some(watch) = self.watches.get(&cookie) {
                    let _ = watch.unbounded_send(event);
                }
                if over {
                    self.watches.remove(&cookie);
                }
            }
            ObjecterEvent::Command { tid, result, status, output } => {
                if let Some(Answer::Command(waiting)) = self.questions.remove(&tid) {
                    let _ = waiting.send(CommandReply { result, status, output });
                }
            }
            ObjecterEvent::PoolOp { tid, result, data } => {
                if let Some(Answer::PoolOp(waiting)) = self.questions.remove(&tid) {
                    let _ = waiting.send((result, data.unwrap_or_default()));
                }
            }
            ObjecterEvent::Statfs { tid, kb, kb_used, kb_avail, objects } => {
                if let Some(Answer::Usage(waiting)) = self.questions.remove(&tid) {
                    let _ = waiting.send(Usage { kb, kb_used, kb_avail, objects });
                }
            }
            ObjecterEvent::PoolStats { tid, stats, .. } => {
                if let Some(Answer::PoolStats(waiting)) = self.questions.remove(&tid) {
                    let _ = waiting.send(stats);
                }
            }
            ObjecterEvent::Latest { tid } => {
                if let (Some(Answer::Map(waiting)), Some(map)) = (self.questions.remove(&tid), self.objecter.map()) {
                    let _ = waiting.send(map.clone());
                }
            }
        }
    }

    /// The first map lets waiting calls begin.
    fn map_changed(&mut self, now: Now) {
        if let Some(map) = self.objecter.map() {
            for waiting in self.connecting.drain(..) {
                let _ = waiting.send(Ok(map.clone()));
            }
        }
        for call in std::mem::take(&mut self.early) {
            self.handle_call(now, call);
        }
    }

    fn handle_call(&mut self, now: Now, call: Call) {
        if self.objecter.map().is_none() && !matches!(call, Call::Connect(_) | Call::MonCommand { .. }) {
            return self.early.push(call);
        }
        let mut link = Link { now, ep: &mut self.ep, mon: &mut self.mon };
        let objecter = &mut self.objecter;
        match call {
            Call::Connect(waiting) => match objecter.map() {
                Some(map) => drop(waiting.send(Ok(map.clone()))),
                None => self.connecting.push(waiting),
            },
            Call::Op { request, reply } => {
                let tid = objecter.submit(&mut link, request);
                self.ops.insert(tid, reply);
            }
            Call::Watch { request, timeout_s, events, cookie } => {
                let id = objecter.watch(&mut link, request, timeout_s);
                self.watches.insert(id, events);
                let _ = cookie.send(id);
            }
            Call::Notify { request, payload, timeout_s, events } => {
                let id = objecter.notify(&mut link, request, &payload, timeout_s);
                self.watches.insert(id, events);
            }
            Call::NotifyAck { cookie, notify_id, payload } => {
                objecter.notify_ack(&mut link, cookie, notify_id, &payload);
            }
            Call::Unwatch { cookie, reply } => {
                self.watches.remove(&cookie);
                match objecter.unwatch(&mut link, cookie) {
                    Some(tid) => drop(self.ops.insert(tid, reply)),
                    None => drop(reply.send(OpReply::failed(Errno::ENOTCONN))),
                }
            }
            Call::MonCommand { json, input, reply } => {
                let tid = self.mon.command(now, &mut self.ep, json, input);
                self.mon_commands.insert(tid, reply);
            }
            Call::OsdCommand { osd, json, input, reply } => {
                let tid = objecter.osd_command(&mut link, osd, json, input);
                self.questions.insert(tid, Answer::Command(reply));
            }
            Call::MgrCommand { json, input, tell, reply } => {
                let tid = objecter.mgr_command(&mut link, json, input, tell);
                self.questions.insert(tid, Answer::Command(reply));
            }
            Call::PoolOp { pool, op, name, snap, reply } => {
                let tid = objecter.pool_op(&mut link, pool, op, &name, snap);
                self.questions.insert(tid, Answer::PoolOp(reply));
            }
            Call::Usage { pool, reply } => {
                let tid = objecter.statfs(&mut link, pool);
                self.questions.insert(tid, Answer::Usage(reply));
            }
            Call::PoolStats { pools, reply } => {
                let tid = objecter.pool_stats(&mut link, pools);
                self.questions.insert(tid, Answer::PoolStats(reply));
            }
            Call::LatestMap(reply) => {
                let tid = objecter.wait_for_latest_map(&mut link);
                self.questions.insert(tid, Answer::Map(reply));
            }
            Call::Map(reply) => {
                if let Some(map) = objecter.map() {
                    let _ = reply.send(map.clone());
                }
            }
            Call::Identity(reply) => drop(reply.send((self.mon.first_global_id(), self.ep.addrs().clone()))),
        }
    }
}
