//! Watchers and notifications of a PG's objects, as the primary keeps them in memory.
//!
//! Holds: who watches is in the object's info and survives; who is connected, and which notifications are open, is here
//! and is rebuilt by the clients, who watch again in every interval. A watcher that stays away longer than its timeout
//! is removed by a write of our own.
//! Upstream: src/osd/Watch.cc.

use super::op::Sender;
use super::{ClientOp, OpSource, Pg};
use crate::cls::Origin;
use crate::effects::{Cx, Durable, Peer, SessionId};
use crate::object::{ObjectInfo, WatcherKey};
use crate::ops::{WatchAction, classify};
use bytes::Bytes;
use denc::Encoder;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::msg::BufList;
use types::msg::osd::MWatchNotify;
use types::msg::osd_op::{Op, OsdOp, Watch};
use types::{EntityAddr, EntityInst, Errno, HObject, Mono, Now};

/// Watches and open notifications.
#[derive(Debug, Default)]
pub(super) struct Watches {
    by_key: BTreeMap<(HObject, WatcherKey), WatchState>,
    notifies: BTreeMap<u64, Notify>,
}

#[derive(Debug)]
struct WatchState {
    session: Option<SessionId>,
    addr: EntityAddr,
    timeout: Duration,
    /// Sends pings: silence counts even while the session is open.
    pings: bool,
    expires: Mono,
    /// Its removal is under way.
    expiring: bool,
}

#[derive(Debug)]
struct Notify {
    object: HObject,
    from: OpSource,
    notifier: EntityInst,
    cookie: u64,
    version: u64,
    payload: Bytes,
    deadline: Mono,
    waiting_for: BTreeSet<WatcherKey>,
    replies: BTreeMap<(u64, u64), Bytes>,
    missed: BTreeSet<(u64, u64)>,
}

impl Watches {
    /// True if `source` is where this watch is connected.
    pub fn is_connected(&self, obj: &HObject, cookie: u64, who: EntityInst, source: OpSource) -> bool {
        if self.by_key.is_empty() {
            return false;
        }
        let state = self.by_key.get(&(obj.clone(), WatcherKey { cookie, who }));
        state.is_some_and(|w| w.session.map(OpSource::Session) == Some(source))
    }

    /// A session is gone: its watches start to expire.
    pub fn disconnect_session(&mut self, now: Now, session: SessionId) {
        for w in self.by_key.values_mut().filter(|w| w.session == Some(session)) {
            w.session = None;
            w.expires = now.mono + w.timeout;
        }
    }

    /// Another is primary; clients connect again when they hear of it.
    pub fn drop_all(&mut self, orphaned: &mut BTreeSet<SessionId>) {
        orphaned.extend(self.by_key.values().filter_map(|w| w.session));
        *self = Watches::default();
    }

    /// (object, watcher, connected) of each watch.
    pub fn list(&self) -> impl Iterator<Item = (&HObject, WatcherKey, EntityAddr, Duration)> {
        self.by_key.iter().map(|((o, k), w)| (o, *k, w.addr, w.timeout))
    }

    fn of_object<'a>(&'a self, obj: &'a HObject) -> impl Iterator<Item = WatcherKey> + 'a {
        let lowest = WatcherKey { cookie: 0, who: EntityInst::default() };
        self.by_key.range((obj.clone(), lowest)..).map(|(k, _)| k).take_while(move |(o, _)| o == obj).map(|(_, k)| *k)
    }
}

impl Pg {
    /// Watchers that are recorded with an object and not known here yet are given their timeout to come back.
    pub(super) fn load_watches(&mut self, cx: &Cx<'_>, obj: &HObject, info: Option<&ObjectInfo>) {
        for (key, w) in info.iter().flat_map(|i| &i.watchers) {
            let timeout = Duration::from_secs(w.timeout_s.into());
            self.watches.by_key.entry((obj.clone(), *key)).or_insert(WatchState {
                session: None,
                addr: w.addr,
                timeout,
                pings: true,
                expires: cx.now.mono + timeout,
                expiring: false,
            });
        }
    }

    /// Does what a message's operations decided about watches.
    pub(super) fn apply_watch_actions(&mut self, cx: &mut Cx<'_>, sender: &Sender, obj: &HObject, actions: Vec<WatchAction>) {
        let key = |cookie| WatcherKey { cookie, who: sender.origin.inst };
        for action in actions {
            match action {
                WatchAction::Connect { cookie, info, pings } => {
                    let timeout = Duration::from_secs(info.timeout_s.into());
                    self.connect_watch(cx, sender, obj, key(cookie), info.addr, timeout, pings);
                }
                WatchAction::Ping { cookie } => {
                    if let Some(w) = self.watches.by_key.get_mut(&(obj.clone(), key(cookie))) {
                        w.expires = cx.now.mono + w.timeout;
                    }
                }
                WatchAction::Disconnect { cookie } => self.forget_watch(cx, obj, key(cookie), false),
                WatchAction::Notify { id, cookie, timeout_s, payload } => {
                    self.start_notify(cx, sender, obj, id, cookie, timeout_s, payload);
                }
                WatchAction::Ack { notify_id, cookie, reply } => {
                    self.ack_notify(cx, sender.origin.inst, obj, notify_id, cookie, reply);
                }
                WatchAction::ObjectDeleted => {
                    let all: Vec<WatcherKey> = self.watches.of_object(obj).collect();
                    all.into_iter().for_each(|key| self.forget_watch(cx, obj, key, true));
                }
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn connect_watch(
        &mut self,
        cx: &mut Cx<'_>,
        sender: &Sender,
        obj: &HObject,
        key: WatcherKey,
        addr: EntityAddr,
        timeout: Duration,
        pings: bool,
    ) {
        let OpSource::Session(session) = sender.source else { return };
        let expires = cx.now.mono + timeout;
        let state = WatchState { session: Some(session), addr, timeout, pings, expires, expiring: false };
        self.watches.by_key.insert((obj.clone(), key), state);
        // What it has not heard of while it was away.
        for (id, n) in self.watches.notifies.iter().filter(|(_, n)| n.object == *obj && n.waiting_for.contains(&key)) {
            cx.send(Peer::Session(session), 0, notification(*id, n, key.cookie), Durable::Now);
        }
    }

    /// A watch is no more; notifications do not wait for it any longer.
    fn forget_watch(&mut self, cx: &mut Cx<'_>, obj: &HObject, key: WatcherKey, tell: bool) {
        let gone = self.watches.by_key.remove(&(obj.clone(), key));
        if let Some(session) = gone.and_then(|w| w.session).filter(|_| tell) {
            let msg = MWatchNotify {
                opcode: MWatchNotify::DISCONNECT,
                cookie: key.cookie,
                version: 0,
                notify_id: 0,
                payload: Bytes::new(),
                result: 0,
                notifier_gid: 0,
                data: BufList::default(),
            };
            cx.send(Peer::Session(session), 0, msg, Durable::Now);
        }
        let open: Vec<u64> = self.watches.notifies.iter().filter(|(_, n)| n.object == *obj).map(|(id, _)| *id).collect();
        for id in open {
            if let Some(n) = self.watches.notifies.get_mut(&id)
                && n.waiting_for.remove(&key)
            {
                n.missed.insert((key.who.num as u64, key.cookie));
                self.maybe_complete(cx, id);
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn start_notify(&mut self, cx: &mut Cx<'_>, sender: &Sender, obj: &HObject, id: u64, cookie: u64, timeout_s: u32, payload: Bytes) {
        let waiting_for: BTreeSet<WatcherKey> = self.watches.of_object(obj).collect();
        let n = Notify {
            object: obj.clone(),
            from: sender.source,
            notifier: sender.origin.inst,
            cookie,
            version: sender.user_version,
            payload,
            deadline: cx.now.mono + Duration::from_secs(timeout_s.into()),
            waiting_for,
            replies: BTreeMap::new(),
            missed: BTreeSet::new(),
        };
        for key in &n.waiting_for {
            let session = self.watches.by_key.get(&(obj.clone(), *key)).and_then(|w| w.session);
            if let Some(session) = session {
                cx.send(Peer::Session(session), 0, notification(id, &n, key.cookie), Durable::Now);
            }
        }
        self.watches.notifies.insert(id, n);
        self.maybe_complete(cx, id);
    }

    fn ack_notify(&mut self, cx: &mut Cx<'_>, who: EntityInst, obj: &HObject, id: u64, cookie: Option<u64>, reply: Bytes) {
        let Some(n) = self.watches.notifies.get_mut(&id).filter(|n| n.object == *obj) else { return };
        let acked = |k: &WatcherKey| k.who == who && cookie.is_none_or(|c| c == k.cookie);
        let keys: Vec<WatcherKey> = n.waiting_for.iter().copied().filter(acked).collect();
        for key in keys {
            n.waiting_for.remove(&key);
            n.replies.insert((who.num as u64, key.cookie), reply.clone());
        }
        self.maybe_complete(cx, id);
    }

    /// Ends a notification that nobody is waited for any more.
    fn maybe_complete(&mut self, cx: &mut Cx<'_>, id: u64) {
        if self.watches.notifies.get(&id).is_none_or(|n| !n.waiting_for.is_empty()) {
            return;
        }
        let Some(n) = self.watches.notifies.remove(&id) else { return };
        let OpSource::Session(session) = n.from else { return };
        let mut data = Encoder::new(0);
        data.put(&n.replies).put(&n.missed);
        let msg = MWatchNotify {
            opcode: MWatchNotify::COMPLETE,
            cookie: n.cookie,
            version: n.version,
            notify_id: id,
            payload: Bytes::new(),
            result: if n.missed.is_empty() { 0 } else { Errno::ETIMEDOUT.wire() },
            notifier_gid: n.notifier.num as u64,
            data: data.finish().into(),
        };
        cx.send(Peer::Session(session), 0, msg, Durable::Now);
    }

    /// Ends what has run out of time.
    pub(super) fn expire_watches(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        let due: Vec<u64> = self.watches.notifies.iter().filter(|(_, n)| n.deadline <= now).map(|(id, _)| *id).collect();
        for id in due {
            if let Some(n) = self.watches.notifies.get_mut(&id) {
                let late = std::mem::take(&mut n.waiting_for);
                n.missed.extend(late.iter().map(|k| (k.who.num as u64, k.cookie)));
                self.maybe_complete(cx, id);
            }
        }
        let silent = |w: &WatchState| !w.expiring && w.expires <= now && (w.session.is_none() || w.pings);
        let due: Vec<(HObject, WatcherKey)> =
            self.watches.by_key.iter().filter(|(_, w)| silent(w)).map(|(k, _)| k.clone()).collect();
        for (obj, key) in due {
            self.expire_watch(cx, obj, key);
        }
    }

    /// Removes a watch as its client would have done.
    fn expire_watch(&mut self, cx: &mut Cx<'_>, obj: HObject, key: WatcherKey) {
        let Some(w) = self.watches.by_key.get_mut(&(obj.clone(), key)) else { return };
        w.expiring = true;
        let addr = w.addr;
        let args = Watch { op: Watch::UNWATCH, cookie: key.cookie, ..Watch::default() };
        let ops: Vec<OsdOp> = vec![Op::Watch(args).into()];
        let Ok(access) = classify(&ops) else { return };
        let op = ClientOp { origin: Origin { inst: key.who, addr }, ..self.own_op(cx, obj, ops, access) };
        self.queue.arrive(op);
    }

    /// Watches of blocklisted clients end at once.
    pub(super) fn watch_map(&mut self, cx: &mut Cx<'_>) {
        let map = cx.sh.map.clone();
        if map.blocklist.is_empty() {
            return;
        }
        let listed = |addr: &EntityAddr| map.is_blocklisted(addr);
        let due: Vec<(HObject, WatcherKey)> =
            self.watches.by_key.iter().filter(|(_, w)| !w.expiring && listed(&w.addr)).map(|(k, _)| k.clone()).collect();
        for (obj, key) in due {
            self.expire_watch(cx, obj, key);
        }
        self.pump(cx);
    }

    /// (object, watcher, address, timeout) of each watch known here.
    pub fn watchers(&self) -> impl Iterator<Item = (&HObject, WatcherKey, EntityAddr, Duration)> {
        self.watches.list()
    }
}

fn notification(id: u64, n: &Notify, cookie: u64) -> MWatchNotify {
    MWatchNotify {
        opcode: MWatchNotify::NOTIFY,
        cookie,
        version: n.version,
        notify_id: id,
        payload: n.payload.clone(),
        result: 0,
        notifier_gid: n.notifier.num as u64,
        data: BufList::default(),
    }
}
