//! Requests to objects and PGs, and their replies.

use super::target::{Target, is_paused, target_of};
use super::{Link, Objecter, ObjecterEvent};
use denc::BString;
use std::time::Duration;
use types::msg::osd::osd_flag;
use types::msg::{MOsdOp, MOsdOpReply, OpResult, OsdOp, RawMessage, WireMessage};
use types::{Errno, Mono, ObjectLocator, OsdId, PoolId, ReqId, Snap, Utime, features};

/// A request unanswered for so long makes us look for a newer map (`objecter_timeout`).
const STUCK: Duration = Duration::from_secs(10);

/// Operations on one object, or on one PG.
#[derive(Debug, Clone, PartialEq)]
pub struct OpRequest {
    pub pool: PoolId,
    pub nspace: BString,
    /// Locator key; empty to place by name.
    pub key: BString,
    /// Empty for an operation on a PG.
    pub oid: BString,
    /// One atomic transaction.
    pub ops: Vec<OsdOp>,
    /// `osd_flag`s: READ, WRITE and what the caller wants besides.
    pub flags: u32,
    pub snap: Snap,
    pub snap_seq: Snap,
    pub snaps: Vec<Snap>,
    /// When writes say they happened; zero for the moment they are sent.
    pub mtime: Utime,
    /// A PG by its seed, instead of an object.
    pub pg: Option<u32>,
}

impl OpRequest {
    /// Reads an object.
    pub fn read(pool: PoolId, nspace: impl Into<BString>, oid: impl Into<BString>, ops: Vec<OsdOp>) -> Self {
        OpRequest {
            pool,
            nspace: nspace.into(),
            key: BString::default(),
            oid: oid.into(),
            ops,
            flags: osd_flag::READ,
            snap: Snap::HEAD,
            snap_seq: Snap(0),
            snaps: Vec::new(),
            mtime: Utime::ZERO,
            pg: None,
        }
    }

    /// Changes an object.
    pub fn write(pool: PoolId, nspace: impl Into<BString>, oid: impl Into<BString>, ops: Vec<OsdOp>) -> Self {
        OpRequest { flags: osd_flag::WRITE, ..Self::read(pool, nspace, oid, ops) }
    }

    /// Reads from a PG, by its seed.
    pub fn pg(pool: PoolId, nspace: impl Into<BString>, seed: u32, ops: Vec<OsdOp>) -> Self {
        let flags = osd_flag::READ | osd_flag::IGNORE_OVERLAY;
        OpRequest { flags, pg: Some(seed), ..Self::read(pool, nspace, "", ops) }
    }

    fn locator(&self) -> ObjectLocator {
        ObjectLocator { key: self.key.clone(), nspace: self.nspace.clone(), ..ObjectLocator::pool(self.pool) }
    }
}

/// The one reply.
#[derive(Debug, Clone, PartialEq)]
pub struct OpReply {
    /// 0 or positive, or a negative errno.
    pub result: i32,
    /// What became of each operation; empty if the request never reached an OSD.
    pub ops: Vec<OpResult>,
    /// The object's version as users see it.
    pub user_version: u64,
}

impl OpReply {
    /// A failure found here.
    pub fn failed(errno: Errno) -> Self {
        OpReply { result: errno.wire(), ops: Vec::new(), user_version: 0 }
    }
}

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    User,
    /// A watch's registration, and its proof of life.
    Linger(u64),
    LingerPing(u64),
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct OpState {
    pub req: OpRequest,
    pub owner: Owner,
    pub target: Option<Target>,
    /// Waits for nothing but its reply.
    pub sent: bool,
    /// It was on its way when the map began to forbid it.
    pub halted: bool,
    /// The session it was last sent on.
    pub osd: Option<OsdId>,
    attempts: i32,
    since: Mono,
    mtime: Utime,
}

impl OpState {
    pub fn is_stuck(&self, now: Mono) -> bool {
        now - self.since > STUCK
    }
}

impl Objecter {
    /// Sends a request; `ObjecterEvent::Op` answers with the same number.
    pub fn submit(&mut self, link: &mut Link<'_>, req: OpRequest) -> u64 {
        self.submit_for(link, req, Owner::User)
    }

    pub(super) fn submit_for(&mut self, link: &mut Link<'_>, req: OpRequest, owner: Owner) -> u64 {
        let tid = self.next_tid();
        let mtime = if req.mtime.is_zero() { link.now.wall } else { req.mtime };
        let op =
            OpState { req, owner, target: None, sent: false, halted: false, osd: None, attempts: 0, since: link.now.mono, mtime };
        self.ops.insert(tid, op);
        self.arm_tick(link.now.mono);
        self.advance(link, tid);
        tid
    }

    /// Gives up on a request: no event will come. What it asked for may happen all the same.
    pub fn cancel(&mut self, tid: u64) {
        self.ops.remove(&tid);
    }

    /// Targets one request by the current map and sends it if it can be.
    pub(super) fn advance(&mut self, link: &mut Link<'_>, tid: u64) {
        let Some(map) = self.map.clone() else { return };
        let Some(op) = self.ops.get_mut(&tid) else { return };
        let Some(target) = target_of(&map, &op.req, &mut self.placed) else {
            return self.ask_whether_pool_exists(link, tid);
        };
        if op.target.as_ref() != Some(&target) {
            op.sent = false;
        }
        let primary = target.primary;
        op.target = Some(target);
        if op.sent {
            return;
        }
        let paused = is_paused(&map, &op.req);
        match primary {
            Some(osd) if !paused && map.is_up(osd) => self.send_op(link, tid, osd),
            // Nobody to send it to, or it must wait: a newer map will tell.
            _ => self.want_next_map(link),
        }
    }

    fn send_op(&mut self, link: &mut Link<'_>, tid: u64, osd: OsdId) {
        let Some(epoch) = self.map.as_ref().map(|m| m.epoch) else { return };
        let Some(conn) = self.open_session(link, osd) else { return };
        if self.is_held_back(osd, tid) {
            return;
        }
        let Some(op) = self.ops.get_mut(&tid) else { return };
        let Some(target) = &op.target else { return };
        let retry = op.attempts;
        op.attempts += 1;
        op.sent = true;
        op.osd = Some(osd);
        let mut flags = op.req.flags | osd_flag::ONDISK | osd_flag::KNOWN_REDIR;
        if retry > 0 {
            flags |= osd_flag::RETRY;
        }
        let message = MOsdOp {
            pgid: target.pg,
            hash: target.hash,
            epoch,
            flags,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: op.mtime,
            locator: op.req.locator(),
            oid: op.req.oid.clone(),
            ops: op.req.ops.clone(),
            snap: op.req.snap,
            snap_seq: op.req.snap_seq,
            snaps: op.req.snaps.clone(),
            retry,
            features: features::SUPPORTED,
        };
        let raw = RawMessage { tid, ..message.to_raw(features::SUPPORTED) };
        link.ep.send(link.now, conn, raw);
    }

    pub(super) fn handle_op_reply(&mut self, link: &mut Link<'_>, osd: OsdId, tid: u64, reply: MOsdOpReply) {
        let Some(op) = self.ops.get_mut(&tid) else { return };
        // An answer to an earlier attempt, or from an OSD that is no longer asked.
        let stale = reply.retry >= 0 && reply.retry != op.attempts - 1;
        if stale || op.osd != Some(osd) || !op.sent {
            return;
        }
        if let Some(redirect) = reply.redirect {
            op.req.pool = redirect.locator.pool;
            op.req.key = redirect.locator.key;
            op.req.nspace = redirect.locator.nspace;
            if !redirect.object.is_empty() {
                op.req.oid = redirect.object;
            }
            op.req.flags |= osd_flag::REDIRECTED | osd_flag::IGNORE_CACHE | osd_flag::IGNORE_OVERLAY;
            op.sent = false;
            return self.advance(link, tid);
        }
        if reply.result == Errno::EAGAIN.wire() {
            op.sent = false;
            op.req.flags &= !(osd_flag::BALANCE_READS | osd_flag::LOCALIZE_READS);
            return self.advance(link, tid);
        }
        let out = OpReply { result: reply.result, ops: reply.ops, user_version: reply.user_version };
        self.finish_op(tid, out);
    }

    pub(super) fn finish_op(&mut self, tid: u64, reply: OpReply) {
        let Some(op) = self.ops.remove(&tid) else { return };
        match op.owner {
            Owner::User => self.say(ObjecterEvent::Op { tid, reply }),
            Owner::Linger(cookie) => self.linger_registered(cookie, tid, &reply),
            Owner::LingerPing(cookie) => self.linger_pinged(cookie, &reply),
        }
    }
}
