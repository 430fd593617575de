//! Watches and notifications: requests that go on after their reply, and are made again whenever their object's
//! primary changes.
//!
//! Holds: a watch that could not be kept is told of once, as an error, and is then gone at the OSD.
//! Upstream: Objecter::LingerOp.

use super::ops::{OpReply, OpRequest, Owner};
use super::target::{Target, target_of};
use super::{Link, Objecter, ObjecterEvent};
use bytes::Bytes;
use denc::Decoder;
use std::collections::BTreeMap;
use types::map::OsdMap;
use types::msg::osd::osd_flag;
use types::msg::osd_op::Watch;
use types::msg::{MPing, MWatchNotify, Op, OsdOp, WireMessage};
use types::{Errno, OsdId, features};

/// What happens on a watch, or to a notification.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// The watch holds.
    Watching,
    /// Somebody notified: answer with `notify_ack`.
    Notified { notify_id: u64, notifier: u64, payload: Bytes },
    /// The watch is lost (ENOTCONN, ETIMEDOUT, ENOENT, ...): what was notified since is lost too.
    Failed { errno: Errno },
    /// Our notification was answered by all or timed out for some.
    NotifyDone { result: i32, replies: Vec<(u64, u64, Bytes)>, timeouts: Vec<(u64, u64)> },
}

#[derive(Debug, Clone)]
enum Kind {
    Watch,
    Notify { notify_id: Option<u64>, early: Vec<MWatchNotify> },
}

#[derive(Debug)]
pub(super) struct Linger {
    kind: Kind,
    req: OpRequest,
    target: Option<Target>,
    /// The registration in flight.
    tid: Option<u64>,
    /// The registration answered well.
    registered: bool,
    /// Was registered once: further registrations are reconnects.
    known: bool,
    generation: u32,
    timeout_s: u32,
}

impl Objecter {
    /// Watches an object; `timeout_s` 0 is the OSD's default. Returns the cookie.
    pub fn watch(&mut self, link: &mut Link<'_>, req: OpRequest, timeout_s: u32) -> u64 {
        let req = OpRequest { flags: osd_flag::WRITE, ops: Vec::new(), ..req };
        self.add_linger(link, Kind::Watch, req, timeout_s)
    }

    /// Notifies the watchers of an object and gathers their answers. Returns the cookie.
    pub fn notify(&mut self, link: &mut Link<'_>, req: OpRequest, payload: &Bytes, timeout_s: u32) -> u64 {
        let mut op = OsdOp::from(Op::Notify(0));
        op.indata = denc::to_bytes(&(1u32, timeout_s, payload.clone()), 0).into();
        let req = OpRequest { flags: osd_flag::READ, ops: vec![op], ..req };
        self.add_linger(link, Kind::Notify { notify_id: None, early: Vec::new() }, req, timeout_s)
    }

    /// Answers a notification; the reply of the request means nothing.
    pub fn notify_ack(&mut self, link: &mut Link<'_>, cookie: u64, notify_id: u64, payload: &Bytes) -> Option<u64> {
        let base = self.lingers.get(&cookie)?.req.clone();
        let mut op = OsdOp::from(Op::NotifyAck(0));
        op.indata = denc::to_bytes(&(notify_id, cookie, payload.clone()), 0).into();
        Some(self.submit(link, OpRequest { flags: osd_flag::READ, ops: vec![op], ..base }))
    }

    /// Ends a watch: `ObjecterEvent::Op` answers with the number returned. `None` if there is no such watch.
    pub fn unwatch(&mut self, link: &mut Link<'_>, cookie: u64) -> Option<u64> {
        let linger = self.lingers.remove(&cookie)?;
        if let Some(tid) = linger.tid {
            self.cancel(tid);
        }
        let op = Op::Watch(Watch { cookie, op: Watch::UNWATCH, ..Watch::default() });
        Some(self.submit(link, OpRequest { ops: vec![op.into()], flags: osd_flag::WRITE, ..linger.req }))
    }

    fn add_linger(&mut self, link: &mut Link<'_>, kind: Kind, req: OpRequest, timeout_s: u32) -> u64 {
        let cookie = self.next_tid();
        let linger = Linger {
            kind,
            req,
            target: None,
            tid: None,
            registered: false,
            known: false,
            generation: 0,
            timeout_s,
        };
        self.lingers.insert(cookie, linger);
        self.register_linger(link, cookie);
        cookie
    }

    /// Registers every watch and notification that is not.
    pub(super) fn register_lingers(&mut self, link: &mut Link<'_>) {
        let waiting = |l: &Linger| l.tid.is_none() && !l.registered;
        let cookies: Vec<u64> = self.lingers.iter().filter(|(_, l)| waiting(l)).map(|(c, _)| *c).collect();
        for cookie in cookies {
            self.register_linger(link, cookie);
        }
    }

    fn register_linger(&mut self, link: &mut Link<'_>, cookie: u64) {
        let Some(linger) = self.lingers.get_mut(&cookie) else { return };
        let mut req = linger.req.clone();
        match &linger.kind {
            Kind::Watch => {
                let op = if linger.known { Watch::RECONNECT } else { Watch::WATCH };
                linger.generation += u32::from(linger.known);
                let generation = linger.generation;
                req.ops = vec![Op::Watch(Watch { cookie, ver: 0, op, generation, timeout_s: linger.timeout_s }).into()];
            }
            Kind::Notify { .. } => {
                for op in &mut req.ops {
                    op.op = Op::Notify(cookie);
                }
            }
        }
        let tid = self.submit_for(link, req, Owner::Linger(cookie));
        if let Some(linger) = self.lingers.get_mut(&cookie) {
            linger.tid = Some(tid);
        }
    }

    pub(super) fn linger_registered(&mut self, cookie: u64, tid: u64, reply: &OpReply) {
        let map = self.map.clone();
        let Some(linger) = self.lingers.get_mut(&cookie).filter(|l| l.tid == Some(tid)) else { return };
        linger.tid = None;
        if reply.result < 0 {
            return self.linger_failed(cookie, Errno(reply.result.saturating_neg()));
        }
        linger.registered = true;
        linger.target = map.and_then(|map| target_of(&map, &linger.req, &mut self.placed));
        match &mut linger.kind {
            Kind::Watch if !linger.known => {
                linger.known = true;
                self.say(ObjecterEvent::Watch { cookie, event: WatchEvent::Watching });
            }
            Kind::Watch => {}
            Kind::Notify { notify_id, early } => {
                let out = reply.ops.first().map(|op| op.outdata.contiguous()).unwrap_or_default();
                *notify_id = denc::from_slice(&out).ok();
                // Without watchers the completion comes before the reply.
                for m in std::mem::take(early) {
                    self.handle_watch_notify(m);
                }
            }
        }
    }

    fn linger_failed(&mut self, cookie: u64, errno: Errno) {
        let Some(linger) = self.lingers.remove(&cookie) else { return };
        let event = match linger.kind {
            Kind::Watch => WatchEvent::Failed { errno },
            Kind::Notify { .. } => {
                WatchEvent::NotifyDone { result: errno.wire(), replies: Vec::new(), timeouts: Vec::new() }
            }
        };
        self.say(ObjecterEvent::Watch { cookie, event });
    }

    pub(super) fn linger_pinged(&mut self, cookie: u64, reply: &OpReply) {
        if reply.result < 0 && self.lingers.get(&cookie).is_some_and(|l| l.registered) {
            self.linger_failed(cookie, Errno(reply.result.saturating_neg()));
        }
    }

    /// Proves every watch alive.
    pub(super) fn ping_watches(&mut self, link: &mut Link<'_>) {
        let alive = |l: &Linger| l.registered && matches!(l.kind, Kind::Watch);
        let watches: Vec<(u64, OpRequest, u32, Option<OsdId>)> = self
            .lingers
            .iter()
            .filter(|(_, l)| alive(l))
            .map(|(c, l)| (*c, l.req.clone(), l.generation, l.target.as_ref().and_then(|t| t.primary)))
            .collect();
        for (cookie, req, generation, osd) in watches {
            if let Some(conn) = osd.and_then(|osd| self.conn_to(osd)) {
                link.ep.send(link.now, conn, MPing {}.to_raw(features::SUPPORTED));
            }
            let pinging = self.ops.values().any(|op| op.owner == Owner::LingerPing(cookie));
            if !pinging {
                let op = Op::Watch(Watch { cookie, op: Watch::PING, generation, ..Watch::default() });
                let req = OpRequest { ops: vec![op.into()], flags: osd_flag::READ, ..req };
                self.submit_for(link, req, Owner::LingerPing(cookie));
            }
        }
    }

    pub(super) fn handle_watch_notify(&mut self, m: MWatchNotify) {
        let cookie = m.cookie;
        let Some(linger) = self.lingers.get_mut(&cookie) else { return };
        match (m.opcode, &mut linger.kind) {
            (MWatchNotify::NOTIFY, Kind::Watch) => {
                let event =
                    WatchEvent::Notified { notify_id: m.notify_id, notifier: m.notifier_gid, payload: m.payload };
                self.say(ObjecterEvent::Watch { cookie, event });
            }
            (MWatchNotify::DISCONNECT, Kind::Watch) => self.linger_failed(cookie, Errno::ENOTCONN),
            (MWatchNotify::COMPLETE, Kind::Notify { notify_id: None, early }) => early.push(m),
            (MWatchNotify::COMPLETE, Kind::Notify { notify_id: Some(id), .. }) if *id == m.notify_id => {
                self.lingers.remove(&cookie);
                let (replies, timeouts) = notify_replies(&m.data.contiguous());
                let event = WatchEvent::NotifyDone { result: m.result, replies, timeouts };
                self.say(ObjecterEvent::Watch { cookie, event });
            }
            _ => {}
        }
    }

    /// Marks what the new map sends elsewhere.
    pub(super) fn retarget_lingers(&mut self, map: &OsdMap, skips: bool) {
        for linger in self.lingers.values_mut().filter(|l| l.registered) {
            let target = target_of(map, &linger.req, &mut self.placed);
            if target != linger.target || skips {
                linger.target = target;
                linger.registered = false;
            }
        }
    }

    /// The session that carried them is gone.
    pub(super) fn lingers_lost(&mut self, osd: OsdId) {
        for linger in self.lingers.values_mut() {
            if linger.target.as_ref().and_then(|t| t.primary) == Some(osd) {
                linger.registered = false;
            }
        }
    }
}

/// Answers by (global id, cookie), and who did not answer.
type Replies = (Vec<(u64, u64, Bytes)>, Vec<(u64, u64)>);

fn notify_replies(data: &Bytes) -> Replies {
    let mut d = Decoder::shared(data);
    let replies: BTreeMap<(u64, u64), Bytes> = d.get().unwrap_or_default();
    let timeouts = d.get().unwrap_or_default();
    (replies.into_iter().map(|((gid, cookie), payload)| (gid, cookie, payload)).collect(), timeouts)
}
