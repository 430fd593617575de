//! A client's operation from arrival to answer.

use super::full::Verdict;
use super::gather::{Ask, Want};
use super::repop::Write;
use super::snaps::{Before, Target};
use super::{Pg, Running, Stage};
use crate::cls::Origin;
use crate::command::Finished;
use crate::effects::{Cx, Durable, Peer, ReadFor, ReadResult, ReadRoute, SessionId};
use crate::intake::Share;
use crate::mutation::{Mutation, Step};
use crate::object::{INFO_ATTR, ObjectInfo, undo};
use crate::ops::{self, Access, Env, Fetched, Outcome, Plan, ReadKey, WatchAction};
use crate::perf::OpCost;
use crate::snaps::{self, Preserved};
use crate::stages::{self, Mark, Marks};
use crate::stripe::{Encoded, check_appends};
use bytes::Bytes;
use qos::Class;
use std::collections::BTreeMap;
use std::rc::Rc;
use store::{ReadFlags, ReadId};
use types::map::PgPool;
use types::msg::BufList;
use types::msg::internal_osd::PgTotals;
use types::msg::osd::{MOsdOp, MOsdOpReply, OpResult, osd_flag};
use types::msg::osd_op::{Op, OsdOp};
use types::pg::{LogOp, OpReturn, PgLogEntry};
use types::{EVersion, Errno, HObject, Mono, ObjectLocator, OsdId, ReqId, Snap};

/// Who sent an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpSource {
    Session(SessionId),
    /// Another OSD, on behalf of a client.
    Osd(OsdId),
    /// This OSD itself; nobody waits for the answer.
    Own,
}

impl OpSource {
    fn peer(self) -> Option<Peer> {
        match self {
            OpSource::Session(s) => Some(Peer::Session(s)),
            OpSource::Osd(o) => Some(Peer::Osd(o)),
            OpSource::Own => None,
        }
    }
}

/// An operation and everything learned about it.
#[derive(Debug, Clone)]
pub(crate) struct ClientOp {
    pub id: u64,
    pub source: OpSource,
    pub tid: u64,
    pub msg: Box<MOsdOp>,
    /// The request's id with the sender's name filled in.
    pub reqid: ReqId,
    pub origin: Origin,
    pub object: HObject,
    pub access: Access,
    pub fetched: Fetched,
    pub received: Mono,
    pub marks: Marks,
    /// It waited for its object to be whole, and the more recovery does, the shorter that is.
    pub waited: bool,
    /// It is our own, and takes removed snapshots from this clone of the object.
    pub trims: Option<Snap>,
    /// What it has of the intake, if a client asks.
    pub share: Option<Rc<Share>>,
}

/// Who an operation came from, when its effects on watches are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sender {
    pub source: OpSource,
    pub origin: Origin,
    pub user_version: u64,
}

/// An answer that may have to wait.
#[derive(Debug)]
pub(super) struct Reply {
    to: Option<Peer>,
    tid: u64,
    msg: MOsdOpReply,
    cost: OpCost,
    waited: bool,
    reqid: ReqId,
}

impl ClientOp {
    /// It has reached a stage.
    pub fn mark(&mut self, mark: Mark, now: Mono) {
        self.marks.note(mark, now - self.received);
    }

    /// One line as `dump_ops_in_flight` shows it.
    pub fn describe(&self) -> String {
        let m = &self.msg;
        let ops: Vec<String> = m.ops.iter().map(|o| o.op.to_string()).collect();
        let snaps: Vec<String> = m.snaps.iter().map(|s| format!("{:x}", s.0)).collect();
        let retry = if m.retry > 0 { format!(" RETRY={}", m.retry) } else { String::new() };
        let (ops, snaps, flags) = (ops.join(","), snaps.join(","), osd_flag::words(m.flags));
        format!("osd_op({} {} {} [{ops}] snapc {:x}=[{snaps}]{retry} {flags} e{})", self.reqid, m.pgid.pg, self.object, m.snap_seq.0, m.epoch)
    }
}

impl Pg {
    /// A client's operation for this PG; the session's rights have been checked.
    pub fn handle_op(&mut self, cx: &mut Cx<'_>, op: ClientOp) {
        // A client that sent before we became primary sends again when it hears of it.
        if op.msg.epoch < self.walk.primary_since || !self.is_primary(cx.sh.whoami) || self.backoffs.is_unheard_by(op.source) {
            return;
        }
        match &self.stage {
            Stage::Active if self.takes_ops() => {
                self.waiting.push_back(op);
                self.start_waiting(cx);
            }
            Stage::Active if !self.serves() => self.back_off(cx, op),
            Stage::Peering(p) if p.is_stuck() => self.back_off(cx, op),
            Stage::Removing => {}
            _ => self.waiting.push_back(op),
        }
        self.pump(cx);
    }

    /// Everything that waited for the PG, if it may be read.
    pub(super) fn start_waiting(&mut self, cx: &mut Cx<'_>) {
        self.laggy = !self.waiting.is_empty() && !self.is_readable(cx);
        if self.laggy {
            cx.sh.leases.wanted = true;
            return;
        }
        for op in std::mem::take(&mut self.waiting) {
            self.start_op(cx, op);
        }
    }

    /// An operation of our own on an object.
    pub(super) fn own_op(&self, cx: &mut Cx<'_>, object: HObject, ops: Vec<OsdOp>, access: Access) -> ClientOp {
        cx.sh.next_op += 1;
        let msg = MOsdOp {
            pgid: self.coll,
            hash: object.hash,
            epoch: cx.sh.map.epoch,
            flags: osd_flag::WRITE | osd_flag::ONDISK,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: types::Utime::ZERO,
            locator: ObjectLocator { pool: object.pool, key: object.key.clone(), nspace: object.nspace.clone(), hash: -1 },
            oid: object.name.clone(),
            ops,
            snap: Snap::HEAD,
            snap_seq: Snap(0),
            snaps: Vec::new(),
            retry: -1,
            features: types::features::SUPPORTED,
        };
        ClientOp {
            id: cx.sh.next_op,
            source: OpSource::Own,
            tid: 0,
            msg: Box::new(msg),
            reqid: ReqId::default(),
            origin: Origin::default(),
            object,
            access,
            fetched: Fetched::default(),
            received: cx.now.mono,
            marks: Default::default(),
            waited: false,
            trims: None,
            share: None,
        }
    }

    fn start_op(&mut self, cx: &mut Cx<'_>, mut op: ClientOp) {
        op.mark(Mark::ReachedPg, cx.now.mono);
        if op.access.pg {
            return self.run_listing(cx, op);
        }
        if let Err(e) = check_names(cx, &op) {
            let reply = self.error_reply(cx, &op, e);
            return self.send_reply(cx, reply, &op);
        }
        self.queue.arrive(op);
    }

    /// Leases were renewed.
    pub fn handle_leases(&mut self, cx: &mut Cx<'_>) {
        if self.laggy {
            self.start_waiting(cx);
            self.pump(cx);
        }
    }

    /// Runs what may run. Whoever changes the queue calls this at its end.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>) {
        loop {
            while let Some(op) = self.queue.pop_ready() {
                self.run(cx, op);
            }
            if self.trims.ended {
                self.trim(cx);
                continue;
            }
            if !self.drive_scrub(cx) {
                break;
            }
        }
        cx.sh.perf.set_op_wip(self.repops.len() as u64);
    }

    fn run(&mut self, cx: &mut Cx<'_>, mut op: ClientOp) {
        // Also one that waited: whoever fenced the client off relies on it that nothing of it happens any more.
        if is_fenced(cx, &op) {
            return self.refuse(cx, op, Errno::ESHUTDOWN);
        }
        if self.must_recover(cx.sh.whoami, &op.object, op.access) {
            op.mark(Mark::WaitsForObject, cx.now.mono);
            let object = op.object.clone();
            return self.wait_for_recovery(cx, op, object);
        }
        if self.is_held_for_scrub(&op.object, op.access) {
            op.mark(Mark::WaitsForScrub, cx.now.mono);
            return self.wait_for_scrub(op);
        }
        op.marks.note_once(Mark::Started, cx.now.mono - op.received);
        if let Some(clone) = op.trims {
            return self.run_trim(cx, op, clone);
        }
        if op.access.writes && !is_watch(&op) && self.answer_duplicate(cx, &op) {
            return self.queue.leave(&op.object, op.access);
        }
        let (head, snaps) = match self.load_head(cx, &op.object) {
            Ok(loaded) => loaded,
            Err(e) => return self.refuse(cx, op, e),
        };
        let target = match self.target_of(cx, &op, &snaps) {
            Target::Object(object) => object,
            Target::Nothing => return self.refuse(cx, op, Errno::ENOENT),
            Target::Lacking(object) => {
                op.mark(Mark::WaitsForObject, cx.now.mono);
                return self.wait_for_recovery(cx, op, object);
            }
        };
        let context = self.context_of(cx, &op, &snaps);
        if op.access.writes && op.msg.has_flag(osd_flag::ORDERSNAP) && context.seq < snaps.set.seq {
            return self.refuse(cx, op, Errno::EOLDSNAPC);
        }
        let beyond = self.is_coded() && context.seq > undo::SNAP_MAX;
        if op.access.writes && (beyond || !context.is_valid()) {
            return self.refuse(cx, op, Errno::EINVAL);
        }
        let live = head.clone().filter(|info| !info.is_whiteout());
        let stored = match target.snap {
            Snap::HEAD => live,
            _ => match self.load_info(cx, &target) {
                Ok(info) => info,
                Err(e) => return self.refuse(cx, op, e),
            },
        };
        if stored.is_none() && !op.access.writes && op.msg.snap != Snap::DIR {
            return self.refuse(cx, op, Errno::ENOENT);
        }
        if target.snap == Snap::HEAD {
            self.load_watches(cx, &op.object, stored.as_ref());
        }
        self.execute(cx, op, Box::new(Before { head, snaps, context, target, stored }));
    }

    /// Runs an operation whose object is known, as far as the data at hand goes.
    fn execute(&mut self, cx: &mut Cx<'_>, mut op: ClientOp, before: Box<Before>) {
        loop {
            match self.outcome(cx, &op, &before) {
                Outcome::Plan(plan) => return self.finish(cx, op, *plan, *before),
                Outcome::NeedCopy(source) => return self.start_copy(cx, op, source),
                Outcome::NeedReads(keys) if self.is_coded() => {
                    let (object, before) = (before.target.clone(), (!op.access.writes).then_some(before));
                    return self.start_gathering(cx, op, object, keys, before);
                }
                Outcome::NeedReads(keys) => {
                    let reads = self.start_reads(cx, &mut op, &before.target, keys);
                    if !reads.is_empty() {
                        let (object, before) = (before.target.clone(), (!op.access.writes).then_some(before));
                        self.running.insert(op.id, Running { op, object, reads, before });
                        return;
                    }
                }
            }
        }
    }

    fn outcome(&self, cx: &mut Cx<'_>, op: &ClientOp, before: &Before) -> Outcome {
        let notify_id = (u64::from(cx.sh.map.epoch.0) << 32) | u64::from(cx.sh.next_notify);
        let (watches, source) = (&self.watches, op.source);
        let connected = |cookie| watches.is_connected(&op.object, cookie, op.origin.inst, source);
        let env = Env {
            disk: cx.disk,
            coll: self.coll,
            obj: &before.target,
            now: cx.now,
            origin: op.origin,
            limits: &cx.sh.limits,
            rng: &mut cx.sh.rng,
            fetched: &op.fetched,
            notify_id,
            snaps: &before.snaps,
            watch_connected: &connected,
        };
        ops::execute(env, &op.msg.ops, before.stored.clone(), op.msg.has_flag(osd_flag::RETURNVEC))
    }

    /// Gives an operation the data that is at hand. What is not is on its way then.
    fn start_reads(&mut self, cx: &mut Cx<'_>, op: &mut ClientOp, object: &HObject, keys: Vec<ReadKey>) -> BTreeMap<ReadId, ReadKey> {
        let mut reads = BTreeMap::new();
        for key in keys {
            let route = ReadRoute { pgid: self.id, interval: self.walk.since, what: ReadFor::Op(op.id) };
            let flags = ReadFlags { sparse: key.sparse, ..ReadFlags::default() };
            match cx.read_now(self.coll, object, key.off, key.len, flags, route) {
                Ok(data) => drop(op.fetched.reads.insert(key, Ok(data))),
                Err(id) => drop(reads.insert(id, key)),
            }
        }
        reads
    }

    /// The same where bytes lie on shards.
    fn start_gathering(&mut self, cx: &mut Cx<'_>, op: ClientOp, object: HObject, keys: Vec<ReadKey>, before: Option<Box<Before>>) {
        let Some(version) = self.version_of(cx, &object) else { return self.refuse(cx, op, Errno::EIO) };
        let id = op.id;
        // All are known before the first ends: one may at once.
        let reads: BTreeMap<ReadId, ReadKey> = keys.into_iter().map(|key| (cx.next_read(), key)).collect();
        self.running.insert(id, Running { op, object: object.clone(), reads: reads.clone(), before });
        for (read, key) in reads {
            let ReadKey { off, len, .. } = key;
            let want = Want::Bytes { off, len };
            let ask = Ask { object: object.clone(), version, want, class: Class::Client, what: ReadFor::Op(id) };
            self.gather(cx, read, ask);
        }
    }

    /// What was read does not count any more: the operation runs again, and waits if it has to.
    pub(super) fn read_again(&mut self, cx: &mut Cx<'_>, id: u64) {
        if let Some(running) = self.running.get_mut(&id).filter(|r| !r.reads.is_empty()) {
            running.reads.clear();
            running.op.fetched = Default::default();
            self.resume(cx, id);
        }
    }

    /// A read of a running operation has ended; with the last one it goes on.
    pub(super) fn op_read(&mut self, cx: &mut Cx<'_>, id: u64, read: ReadId, result: ReadResult) {
        let is_coded = self.is_coded();
        let Some(running) = self.running.get_mut(&id) else { return };
        // A read that nobody waits for: the object is being recovered.
        if !running.reads.contains_key(&read) {
            return;
        }
        if result.is_err() && !is_coded {
            let object = running.object.clone();
            if self.replace_bad_copy(cx, object) {
                return;
            }
        }
        let Some(running) = self.running.get_mut(&id) else { return };
        if let Some(key) = running.reads.remove(&read) {
            running.op.fetched.reads.insert(key, result);
        }
        if running.reads.is_empty() {
            self.go_on(cx, id);
        }
    }

    /// All that an operation waited for has been read. Nobody has changed its object meanwhile, so one that only reads need not look again.
    fn go_on(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(Running { op, object, before, .. }) = self.running.remove(&id) else { return };
        match before {
            Some(before) if !is_fenced(cx, &op) && !self.must_recover(cx.sh.whoami, &op.object, op.access) && !self.must_recover(cx.sh.whoami, &object, op.access) => {
                self.execute(cx, op, before);
            }
            _ => self.run(cx, op),
        }
    }

    /// Parks an operation that waits for something other than reads.
    pub(super) fn park(&mut self, op: ClientOp) {
        self.running.insert(op.id, Running { object: op.object.clone(), op, reads: BTreeMap::new(), before: None });
    }

    /// Runs a parked operation again.
    pub(super) fn resume(&mut self, cx: &mut Cx<'_>, id: u64) {
        if let Some(running) = self.running.remove(&id) {
            self.run(cx, running.op);
        }
    }

    /// Lets a parked operation learn something.
    pub(super) fn parked(&mut self, id: u64) -> Option<&mut ClientOp> {
        self.running.get_mut(&id).map(|r| &mut r.op)
    }

    fn finish(&mut self, cx: &mut Cx<'_>, mut op: ClientOp, mut plan: Plan, before: Before) {
        if plan.watch.iter().any(|w| matches!(w, WatchAction::Notify { .. })) {
            cx.sh.next_notify = cx.sh.next_notify.wrapping_add(1);
        }
        if plan.mutation.is_empty() {
            let prior_user = before.head.map_or(0, |info| info.user_version);
            return self.finish_without_change(cx, op, plan, prior_user);
        }
        let coded = match self.encode(cx, &op, &plan, before.head.as_ref()) {
            Ok(Some(Encoded::Need(keys))) => {
                let object = op.object.clone();
                return self.start_gathering(cx, op, object, keys, None);
            }
            Ok(Some(Encoded::Shards(shards))) => Some(shards),
            Ok(None) => None,
            Err(e) => return self.refuse(cx, op, e),
        };
        let kept = snaps::preserve(&before.snaps.set, &before.context, before.head.as_ref(), &mut plan);
        match super::full::judge(cx, self, &op, &plan) {
            Verdict::Go => self.finish_write(cx, op, plan, kept, before.head, coded),
            Verdict::Fail(e) => self.refuse(cx, op, e),
            // The client holds back until the map says there is room, then sends again.
            Verdict::Drop => self.queue.leave(&op.object, op.access),
            Verdict::Wait => {
                op.marks.note_once(Mark::WaitsForRoom, cx.now.mono - op.received);
                self.wait_for_room(op);
            }
        }
    }

    /// What a write is for each shard, where there are shards.
    fn encode(&self, cx: &Cx<'_>, op: &ClientOp, plan: &Plan, head: Option<&ObjectInfo>) -> Result<Option<Encoded>, Errno> {
        let Some(striping) = cx.sh.striping.get(&self.id.pool) else { return Ok(None) };
        let size = head.filter(|info| !info.is_whiteout()).map_or(0, |info| info.size);
        if !cx.sh.map.pool_by_id(self.id.pool).is_some_and(|pool| pool.has_flag(PgPool::FLAG_EC_OVERWRITES)) {
            check_appends(&op.msg.ops, size, striping.width())?;
        }
        striping.encode(&plan.mutation, (size, self.own_shard(&op.object)), &op.fetched, &mut |len| cx.disk.buffer(len)).map(Some)
    }

    fn finish_without_change(&mut self, cx: &mut Cx<'_>, op: ClientOp, plan: Plan, prior_user: u64) {
        if plan.result >= 0 {
            self.figures.sums.num_rd += 1;
            self.figures.sums.num_rd_kb += plan.bytes_read.div_ceil(1024) as i64;
        }
        if is_remembered(&op, &plan, cx.sh.limits.write_reply_max) {
            return self.log_answer(cx, op, plan, prior_user);
        }
        let user_version = if plan.exists { plan.info.user_version } else { self.last_user_version };
        let sender = Sender { source: op.source, origin: op.origin, user_version: plan.info.user_version };
        self.apply_watch_actions(cx, &sender, &op.object, plan.watch);
        let version = if plan.exists { EVersion::default() } else { self.log.head() };
        let reply = self.reply(cx, &op, plan.result, plan.results, version, user_version);
        self.queue.leave(&op.object, op.access);
        self.send_after_writes(cx, op, reply);
    }

    /// A write that failed, or found nothing to change, is logged like one that did something: sent again later, when
    /// the object is another, it is answered the same. Upstream: PrimaryLogPG::record_write_error.
    fn log_answer(&mut self, cx: &mut Cx<'_>, op: ClientOp, plan: Plan, prior_user: u64) {
        let version = self.next_version(cx);
        let (told, user_version) = match plan.result == Errno::ENOENT.wire() {
            true => (self.log.head(), self.last_user_version),
            false => (version, prior_user),
        };
        let mut entry = log_entry(&op, &plan, LogOp::Error, version, EVersion::default(), user_version);
        // Of a failure that it was one is enough: logs are no place for what was read on the way.
        entry.op_returns.iter_mut().filter(|r| r.output.len() > cx.sh.limits.write_reply_max).for_each(|r| r.output.clear());
        let mut reply = self.reply(cx, &op, plan.result, plan.results, told, user_version);
        reply.msg.flags |= osd_flag::ACK;
        let watch = watch_of(&op, user_version, plan.watch);
        let (mutation, totals) = (Mutation::default(), self.totals);
        self.submit(cx, Write { before: Vec::new(), entry, mutation, shards: None, totals, answer: Some((reply, op)), watch });
    }

    fn finish_write(
        &mut self,
        cx: &mut Cx<'_>,
        op: ClientOp,
        mut plan: Plan,
        kept: Preserved,
        head: Option<ObjectInfo>,
        coded: Option<Vec<Mutation>>,
    ) {
        if coded.is_some() {
            // What is left to add is the same for every shard.
            plan.mutation = Mutation::default();
        }
        let mut version = self.next_version(cx);
        let prior = head.as_ref().map_or(EVersion::default(), |info| info.version);
        let made = match (&kept.clone, head) {
            (Some((clone, snaps)), Some(head)) => {
                let made = make_clone(&op, &mut plan, version, (*clone, snaps), head);
                version.version += 1;
                Some(made)
            }
            _ => None,
        };
        let user_version = match plan.copied_version {
            Some(copied) => copied,
            None if plan.user_modify => self.last_user_version.max(plan.info.user_version) + 1,
            None => plan.info.user_version,
        };
        let info = &mut plan.info;
        (info.version, info.prior_version, info.last_reqid) = (version, prior, op.reqid);
        info.user_version = user_version;
        if plan.copied_version.is_none() && op.msg.mtime != types::Utime::ZERO {
            info.mtime = op.msg.mtime;
        }
        if kept.whiteout {
            info.flags |= ObjectInfo::WHITEOUT;
            plan.mutation.push(Step::Touch);
        }
        if plan.exists || kept.whiteout {
            let value = denc::to_bytes(info, types::features::SUPPORTED);
            plan.mutation.push(Step::SetAttr { name: INFO_ATTR.into(), value });
        }
        kept.store_set(&mut plan.mutation);
        let kind = if plan.exists || kept.whiteout { LogOp::Modify } else { LogOp::Delete };
        let entry = log_entry(&op, &plan, kind, version, prior, user_version);
        let totals = PgTotals {
            objects: self.totals.objects + plan.delta.objects,
            bytes: self.totals.bytes + plan.delta.bytes,
            clones: self.totals.clones + kept.clones,
        };
        self.figures.sums.num_wr += 1;
        self.figures.sums.num_wr_kb += plan.bytes_written.div_ceil(1024) as i64;
        let reply = self.reply(cx, &op, plan.result, plan.results, version, user_version);
        let watch = watch_of(&op, user_version, plan.watch);
        let before = made.into_iter().collect();
        let shards = coded.map(|coded| coded.into_iter().map(|shard| shard.within(&plan.mutation)).collect());
        self.submit(cx, Write { before, entry, mutation: plan.mutation, shards, totals, answer: Some((reply, op)), watch });
    }

    pub(super) fn submit(&mut self, cx: &mut Cx<'_>, write: Write) {
        let (object, version, reqid) = (write.entry.object.clone(), write.entry.version, write.entry.reqid);
        tracing::trace!(osd = %cx.sh.whoami, pg = %self.id, %version, %reqid, object = ?object.name, "write");
        self.start_write(cx, write);
        self.queue.submitted(&object, version.version);
    }

    /// Answers a request that was done before, when that is durable.
    fn answer_duplicate(&mut self, cx: &mut Cx<'_>, op: &ClientOp) -> bool {
        let Some(known) = self.log.find(&op.reqid) else { return false };
        tracing::trace!(osd = %cx.sh.whoami, pg = %self.id, reqid = %op.reqid, version = %known.version, "duplicate");
        let mut returns = known.op_returns.into_iter();
        let result = |o: &types::msg::osd_op::OsdOp| {
            let OpReturn { rval, output } = returns.next().unwrap_or_default();
            OpResult { op: o.op, flags: o.flags, rval, outdata: output.into() }
        };
        let results = op.msg.ops.iter().map(result).collect();
        let reply = self.reply(cx, op, known.result, results, known.version, known.user_version);
        if let Some((reply, op)) = self.repops.hold(known.version.version, reply, op.clone()) {
            self.send_reply(cx, reply, &op);
        }
        true
    }

    /// Ends an operation that was let in with an error.
    pub(super) fn refuse(&mut self, cx: &mut Cx<'_>, op: ClientOp, e: Errno) {
        let reply = self.error_reply(cx, &op, e);
        self.queue.leave(&op.object, op.access);
        self.send_after_writes(cx, op, reply);
    }

    /// An answer that rests on writes in flight waits for them.
    fn send_after_writes(&mut self, cx: &mut Cx<'_>, op: ClientOp, reply: Reply) {
        let now = match self.queue.last_write(&op.object) {
            Some(version) => self.repops.hold(version, reply, op),
            None => Some((reply, op)),
        };
        if let Some((reply, op)) = now {
            self.send_reply(cx, reply, &op);
        }
    }

    fn error_reply(&self, cx: &Cx<'_>, op: &ClientOp, e: Errno) -> Reply {
        let mut reply = self.reply(cx, op, e.wire(), Vec::new(), self.log.head(), self.last_user_version);
        let blank = |o: &types::msg::osd_op::OsdOp| OpResult { op: o.op, flags: o.flags, rval: 0, outdata: BufList::default() };
        reply.msg.ops = op.msg.ops.iter().map(blank).collect();
        reply
    }

    pub(super) fn reply(
        &self,
        cx: &Cx<'_>,
        op: &ClientOp,
        result: i32,
        results: Vec<OpResult>,
        version: EVersion,
        user_version: u64,
    ) -> Reply {
        let success = if result >= 0 { osd_flag::ACK } else { 0 };
        let bytes_out = results.iter().map(|r| r.outdata.len() as u64).sum();
        Reply {
            to: op.source.peer(),
            tid: op.tid,
            msg: MOsdOpReply {
                oid: op.msg.oid.clone(),
                pgid: op.msg.pgid.pg,
                flags: op.msg.flags | osd_flag::ONDISK | success,
                result,
                bad_replay_version: version,
                epoch: cx.sh.map.epoch,
                ops: results,
                retry: op.msg.retry,
                replay_version: version,
                user_version,
                redirect: None,
            },
            cost: OpCost {
                reads: op.access.reads,
                writes: op.access.writes,
                bytes_in: if op.access.writes { op.msg.ops.iter().map(|o| o.indata.len() as u64).sum() } else { 0 },
                bytes_out,
                ..OpCost::default()
            },
            waited: op.waited,
            reqid: op.reqid,
        }
    }

    pub(super) fn send_reply(&mut self, cx: &mut Cx<'_>, reply: Reply, op: &ClientOp) {
        let Some(to) = reply.to else { return };
        let latency = cx.now.mono - op.received;
        cx.sh.client_seen = cx.now.mono;
        tracing::trace!(osd = %cx.sh.whoami, pg = %self.id, reqid = %reply.reqid, result = reply.msg.result, "reply");
        if !reply.waited {
            cx.sh.felt.note(latency);
        }
        cx.sh.perf.op_done(OpCost { latency, ..reply.cost.with_stages(&op.marks, latency) });
        let whoami = cx.sh.whoami;
        cx.sh.history.note(cx.now.mono, latency, || {
            let mut marks = op.marks;
            if op.access.writes {
                marks.note(Mark::CommitSent, latency);
            }
            let events = stages::events(&marks, &self.peers_line(whoami), Some(latency));
            Finished { description: op.describe(), client: Some((op.origin, op.tid)), flag_point: stages::flag_point(&marks), events }
        });
        cx.send(to, reply.tid, reply.msg, Durable::Now);
    }

    pub(super) fn run_listing(&mut self, cx: &mut Cx<'_>, op: ClientOp) {
        let snaps = self.pool_has_snaps(cx);
        if !self.missing.is_empty() && (ops::is_filtered(&op.msg.ops) || snaps) {
            // What the filter looks at may be in what we lack, and whether there is a live object.
            return self.recovery.listings.push(op);
        }
        let (mut results, mut result) = (Vec::new(), 0);
        for o in &op.msg.ops {
            let page = match o.op {
                Op::ScrubLs => self.list_inconsistent(cx, &o.input()).map(|out| (0, out)),
                _ => ops::list_page(cx.disk, self.coll, &self.missing, self.walk.mapping.bits, &op.msg, o, snaps),
            };
            let (rval, out) = match page {
                Ok(page) => page,
                Err(e) => (e.wire(), Bytes::new()),
            };
            results.push(OpResult { op: o.op, flags: o.flags, rval, outdata: out.into() });
            result = rval;
            if rval < 0 {
                break;
            }
        }
        let reply = self.reply(cx, &op, result, results, EVersion::default(), self.last_user_version);
        self.send_reply(cx, reply, &op);
    }

    /// The replicas, as `waiting for subops from` names them.
    pub(super) fn peers_line(&self, whoami: OsdId) -> String {
        let mut peers: Vec<OsdId> = self.replicas(whoami).collect();
        peers.sort_unstable();
        peers.iter().map(OsdId::to_string).collect::<Vec<_>>().join(",")
    }

    /// For each operation in the PG: what it waits for.
    pub fn ops_in_flight(&self) -> impl Iterator<Item = (&ClientOp, &'static str)> {
        let waiting = self.waiting.iter().map(|op| (op, "waiting for peered"));
        let queued = self.queue.waiting().map(|op| (op, "waiting for rw locks"));
        let running = self.running.values().map(|r| match self.recovery.is_waited_for_by(&r.op) {
            true if self.missing.contains_key(&r.op.object) => (&r.op, "waiting for missing object"),
            true => (&r.op, "waiting for degraded object"),
            false if self.short_of_room.contains(&r.op.id) => (&r.op, "waiting for room on a disk"),
            false => (&r.op, "started"),
        });
        let listings = self.recovery.listings.iter().map(|op| (op, "waiting for missing object"));
        waiting.chain(queued).chain(running).chain(listings)
    }
}

/// True if the answer to what changed nothing is logged: not that of a watch, which is run again, nor one with more data than a
/// duplicate could be told.
fn is_remembered(op: &ClientOp, plan: &Plan, most: usize) -> bool {
    let most = if op.msg.has_flag(osd_flag::RETURNVEC) { most } else { 0 };
    let tellable = plan.result < 0 || plan.results.iter().all(|r| r.outdata.len() <= most);
    op.access.writes && !is_watch(op) && op.reqid != ReqId::default() && tellable
}

/// True if the client was shut out.
fn is_fenced(cx: &Cx<'_>, op: &ClientOp) -> bool {
    matches!(op.source, OpSource::Session(_)) && cx.sh.map.is_blocklisted(&op.origin.addr)
}

fn watch_of(op: &ClientOp, user_version: u64, actions: Vec<WatchAction>) -> Option<(Sender, Vec<WatchAction>)> {
    let sender = Sender { source: op.source, origin: op.origin, user_version };
    (!actions.is_empty()).then_some((sender, actions))
}

fn log_entry(op: &ClientOp, plan: &Plan, kind: LogOp, version: EVersion, prior_version: EVersion, user_version: u64) -> PgLogEntry {
    let returns = op.msg.has_flag(osd_flag::RETURNVEC);
    PgLogEntry {
        op: kind,
        object: op.object.clone(),
        version,
        prior_version,
        user_version,
        reqid: op.reqid,
        mtime: op.msg.mtime,
        result: plan.result,
        op_returns: if returns { plan.results.iter().map(op_return).collect() } else { Vec::new() },
    }
}

/// Adds the making of a clone in front of what a write does. Says what the log says of it.
fn make_clone(op: &ClientOp, plan: &mut Plan, version: EVersion, (clone, snaps): (Snap, &[Snap]), head: ObjectInfo) -> PgLogEntry {
    let user_version = head.user_version;
    let info = ObjectInfo { version, prior_version: head.version, snaps: snaps.to_vec(), watchers: BTreeMap::new(), ..head };
    let info = denc::to_bytes(&info, types::features::SUPPORTED);
    plan.mutation.steps.insert(0, Step::Clone { clone, info, snaps: snaps.to_vec() });
    PgLogEntry {
        op: LogOp::Clone,
        object: HObject { snap: clone, ..op.object.clone() },
        version,
        // It was not there before.
        prior_version: EVersion::default(),
        user_version,
        reqid: ReqId::default(),
        mtime: op.msg.mtime,
        result: 0,
        op_returns: Vec::new(),
    }
}

fn op_return(r: &OpResult) -> OpReturn {
    OpReturn { rval: r.rval, output: r.outdata.contiguous() }
}

/// A watch is run again when it is sent again: that it is recorded does not connect it.
fn is_watch(op: &ClientOp) -> bool {
    matches!(op.msg.ops.as_slice(), [only] if matches!(only.op, types::msg::Op::Watch(_)))
}

fn check_names(cx: &Cx<'_>, op: &ClientOp) -> Result<(), Errno> {
    const EMSGSIZE: Errno = Errno(90);
    let (limits, m) = (&cx.sh.limits, &op.msg);
    if m.oid.is_empty() {
        return Err(Errno::EINVAL);
    }
    let too_long = m.oid.len() > limits.name_len_max
        || m.locator.key.len() > limits.name_len_max
        || m.locator.nspace.len() > limits.nspace_len_max;
    if too_long {
        return Err(Errno::ENAMETOOLONG);
    }
    if op.access.writes && m.ops.iter().map(|o| o.indata.len()).sum::<usize>() > limits.write_size_max {
        return Err(EMSGSIZE);
    }
    // Clones are listed by their directory, and by nothing else.
    let misplaced = m.ops.iter().any(|o| matches!(o.op, Op::ListSnaps) != (m.snap == Snap::DIR));
    match op.access.writes && m.snap != Snap::HEAD || misplaced {
        true => Err(Errno::EINVAL),
        false => Ok(()),
    }
}
