//! Writes on their way to every acting copy: the primary's list of them, and the replica's side.

use super::log::{LogRow, row_key};
use super::op::Reply;
use super::{ClientOp, Pg, Stage};
use crate::effects::{Cx, Durable, Peer, TxcRoute};
use crate::intake::Share;
use crate::slow::Unfinished;
use crate::stages::{Mark, Marks, Subop};
use crate::mutation::{Mutation, Step};
use crate::ops::WatchAction;
use bytes::Bytes;
use denc::{Decoder, Encoder};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use store::{Op, Transaction};
use types::msg::BufList;
use types::msg::internal_osd::{PgBody, PgTotals, RepOp, RepOpReply};
use types::pg::{LogOp, PgLogEntry};
use types::{EVersion, Epoch, HObject, Mono, OsdId, ReqId};

/// Trimming waits for that many entries, or for as many as a short log keeps, so that it costs little per write.
const TRIM_BATCH: usize = 100;
/// Entries that go at a time while nobody writes.
const SHORTEN_BATCH: usize = 1000;
/// A log of more than so many bytes is not made longer for whoever is away: it travels in one message.
const LONG_LOG_BYTES: usize = 4 << 20;

/// So many writes of a PG, or bytes, may be durable for all who act and not where the PG is only being filled.
const BEHIND_MAX: usize = 64;
const BEHIND_BYTES: u64 = 1 << 20;

/// Writes that are not durable everywhere, oldest first.
#[derive(Debug, Default)]
pub(super) struct RepOps {
    list: VecDeque<RepOpState>,
    /// Those that are answered: copies that are being filled have yet to confirm them.
    behind: VecDeque<RepOpState>,
}

#[derive(Debug)]
struct RepOpState {
    version: EVersion,
    object: HObject,
    /// Replicas that have not answered.
    waiting_for: BTreeSet<OsdId>,
    /// The same of copies that are only being filled, where enough act without them: the write does not wait for these.
    filled: BTreeSet<OsdId>,
    /// Copies among both whose backfill has not come to the object.
    log_only: BTreeSet<OsdId>,
    /// What they were sent, as long as one has not answered.
    sent: Sent,
    local: bool,
    /// Replies that wait for this write: its own, duplicates', and refusals that rest on it; with what they answer, for
    /// an interval may end before.
    replies: Vec<(Reply, ClientOp)>,
    /// The PG's own.
    own: bool,
    watch: Option<(super::op::Sender, Vec<WatchAction>)>,
    submitted: Mono,
    /// What it has of the intake when it is answered, for it is still in memory.
    share: Option<Rc<Share>>,
}

/// What replicas were sent of a write.
#[derive(Debug)]
enum Sent {
    Nothing,
    /// All of them the same.
    Same(Box<RepOp>),
    /// Each what its shard is to be.
    Each(BTreeMap<OsdId, RepOp>),
}

impl Sent {
    fn to(&self, osd: OsdId) -> Option<&RepOp> {
        match self {
            Sent::Nothing => None,
            Sent::Same(msg) => Some(msg),
            Sent::Each(msgs) => msgs.get(&osd),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Sent::Nothing => 0,
            Sent::Same(msg) => msg.payload.len() as u64,
            Sent::Each(msgs) => msgs.values().map(|msg| msg.payload.len() as u64).sum(),
        }
    }

    /// Forgets what none of these copies would be sent again.
    fn keep_for(&mut self, osds: &BTreeSet<OsdId>, log_only: &BTreeSet<OsdId>) {
        let strip = |msg: &mut RepOp| (msg.mutation, msg.payload) = Default::default();
        match self {
            Sent::Nothing => {}
            Sent::Same(msg) if osds.is_subset(log_only) => strip(msg),
            Sent::Same(_) => {}
            Sent::Each(msgs) => {
                msgs.retain(|osd, _| osds.contains(osd));
                msgs.iter_mut().filter(|(osd, _)| log_only.contains(osd)).for_each(|(_, msg)| strip(msg));
            }
        }
    }
}

/// A write, decided and numbered.
pub(super) struct Write {
    /// What the log says of clones that are made or removed with it, numbered before the write's own entry.
    pub before: Vec<PgLogEntry>,
    pub entry: PgLogEntry,
    pub mutation: Mutation,
    /// What it does to each shard of an object whose bytes change; without, `mutation` is for every copy.
    pub shards: Option<Vec<Mutation>>,
    pub totals: PgTotals,
    /// What is to be answered, and to what, when it is durable. Without, it is a write of the PG itself, past the queue.
    pub answer: Option<(Reply, ClientOp)>,
    pub watch: Option<(super::op::Sender, Vec<WatchAction>)>,
}

impl RepOps {
    /// A write has reached a stage.
    fn mark(&mut self, version: u64, mark: Mark, now: Mono) {
        if let Some((_, op)) = self.find(version).and_then(|write| write.replies.first_mut()) {
            op.mark(mark, now);
        }
    }

    fn find(&mut self, version: u64) -> Option<&mut RepOpState> {
        numbered(&mut self.list, version)
    }

    /// Lets a reply wait for a write; gives it back if the write is durable.
    pub fn hold(&mut self, version: u64, reply: Reply, op: ClientOp) -> Option<(Reply, ClientOp)> {
        match self.find(version) {
            Some(write) => {
                write.replies.push((reply, op));
                None
            }
            None => Some((reply, op)),
        }
    }

    /// Each write with the operation it belongs to, if somebody waits for it here.
    pub fn in_flight(&self) -> impl Iterator<Item = Unfinished<'_>> {
        let stage = |o: &RepOpState| if o.waiting_for.is_empty() { "commit_queued" } else { "wait_repop" };
        self.list.iter().map(move |o| {
            let op = o.replies.first().map(|(_, op)| op);
            let since = op.map_or(o.submitted, |op| op.received);
            Unfinished { op, write: Some((o.version, &o.object)), subop: None, peers: String::new(), since, stage: stage(o) }
        })
    }

    /// What is being written.
    pub fn objects(&self) -> impl Iterator<Item = &HObject> {
        self.list.iter().map(|o| &o.object)
    }

    /// Every operation that waits for its answer, oldest first.
    pub fn into_ops(self) -> impl Iterator<Item = ClientOp> {
        self.list.into_iter().flat_map(|o| o.replies).map(|(_, op)| op)
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if a copy that is being filled has not confirmed what others have.
    pub fn is_anybody_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Whoever is being filled has everything but what is on its way: writes wait for it, too.
    pub fn wait_for_all(&mut self) {
        self.list.iter_mut().for_each(|o| o.waiting_for.append(&mut o.filled));
    }

    /// The oldest write, if it is durable wherever it has to be, and copies that are being filled have not fallen far behind.
    fn pop_durable(&mut self) -> Option<RepOpState> {
        let bytes = || self.behind.iter().map(|o| o.sent.bytes()).sum::<u64>();
        let room = || self.behind.len() < BEHIND_MAX && bytes() < BEHIND_BYTES;
        let durable = |o: &RepOpState| o.local && o.waiting_for.is_empty() && (o.filled.is_empty() || room());
        self.list.front().is_some_and(durable).then(|| self.list.pop_front()).flatten()
    }

    /// It has been answered. Whoever has not confirmed it may have to be sent it again.
    fn leave_behind(&mut self, mut write: RepOpState) {
        if !write.filled.is_empty() {
            write.sent.keep_for(&write.filled, &write.log_only);
            self.behind.push_back(write);
        }
    }

    /// A copy's disk has a write.
    fn confirmed(&mut self, version: u64, osd: OsdId) {
        if let Some(write) = numbered(&mut self.list, version).or_else(|| numbered(&mut self.behind, version)) {
            write.waiting_for.remove(&osd);
            write.filled.remove(&osd);
            if write.waiting_for.is_empty() && write.filled.is_empty() {
                write.sent = Sent::Nothing;
            }
        }
        while self.behind.front().is_some_and(|o| o.filled.is_empty()) {
            self.behind.pop_front();
        }
    }
}

/// The write of this number. One that has several goes by its last.
fn numbered(writes: &mut VecDeque<RepOpState>, version: u64) -> Option<&mut RepOpState> {
    let at = writes.partition_point(|o| o.version.version < version);
    writes.get_mut(at).filter(|o| o.version.version == version)
}

impl Pg {
    /// Submits a write here and sends it to every replica, in one turn.
    pub(super) fn start_write(&mut self, cx: &mut Cx<'_>, mut write: Write) {
        assert!(!self.walk.mapping.premerge, "{}: a write to a PG that waits to be merged", self.id);
        let (version, object) = (write.entry.version, write.entry.object.clone());
        let totals = write.totals;
        let row = |entry: PgLogEntry| {
            let row = LogRow::new(entry, totals);
            let bytes = denc::to_bytes(&row, 0);
            (row.entry, bytes)
        };
        let before: Vec<(PgLogEntry, Bytes)> = std::mem::take(&mut write.before).into_iter().map(row).collect();
        let (entry, bytes) = row(write.entry);
        let to: BTreeSet<OsdId> = self.replicas(cx.sh.whoami).collect();
        let all = self.recovery.whole || self.told_whole == self.walk.since;
        let is_waited_for = |osd: &OsdId| all || !self.is_outrun(*osd);
        let (waiting_for, filled): (BTreeSet<OsdId>, BTreeSet<OsdId>) = to.iter().copied().partition(is_waited_for);
        let log_only = self.recovery.note_write(&object, totals.objects - self.totals.objects);
        let trim_to = self.trim_point(self.log_entries_kept(cx), TRIM_BATCH);
        let sent = match &write.shards {
            _ if to.is_empty() => Sent::Nothing,
            None => Sent::Same(Box::new(self.send_repops(cx, &to, &log_only, (&before, &bytes), &write.mutation, trim_to))),
            Some(shards) => Sent::Each(self.send_shards(cx, &to, &log_only, (&before, &bytes), (&object, shards), trim_to)),
        };
        if let Some(mut shards) = write.shards.take() {
            let own = self.own_shard(&object).and_then(|own| shards.get_mut(usize::from(own)));
            write.mutation = own.map(std::mem::take).unwrap_or_default();
        }
        if !log_only.is_empty() && !write.mutation.is_empty() && !is_lost(&entry) {
            self.sift_write(cx, &log_only, &object);
        }
        self.recount_write(&object, &totals);
        self.totals = totals;
        let mut txn = self.transaction();
        self.settle(&mut txn, self.committed_to);
        self.keep_undo(cx, &mut txn, before.iter().map(|(entry, _)| entry), (&entry, &write.mutation));
        match is_lost(&entry) {
            true => self.put_lost(cx, &mut txn, &entry, write.mutation),
            false => self.put_write(&mut txn, &entry, write.mutation),
        }
        before.into_iter().for_each(|(entry, bytes)| self.log_write(&mut txn, entry, bytes));
        self.log_write(&mut txn, entry, bytes);
        self.trim_log(cx, &mut txn, trim_to);
        if let Some((_, op)) = write.answer.as_mut().filter(|_| !waiting_for.is_empty()) {
            op.mark(Mark::WaitsForSubops, cx.now.mono);
        }
        let route = TxcRoute::RepOp { pgid: self.id, interval: self.walk.since, version: version.version };
        cx.submit_routed(txn, route);
        self.repops.list.push_back(RepOpState {
            version,
            object,
            waiting_for,
            filled,
            log_only,
            sent,
            local: false,
            own: write.answer.is_none(),
            replies: write.answer.into_iter().collect(),
            watch: write.watch,
            submitted: cx.now.mono,
            share: None,
        });
    }

    /// Sends each replica what its shard is to be.
    fn send_shards(
        &self,
        cx: &mut Cx<'_>,
        to: &BTreeSet<OsdId>,
        log_only: &BTreeSet<OsdId>,
        rows: (&[(PgLogEntry, Bytes)], &Bytes),
        (object, shards): (&HObject, &[Mutation]),
        trim_to: EVersion,
    ) -> BTreeMap<OsdId, RepOp> {
        let nothing = Mutation::default();
        let of = |osd: &OsdId| self.shard_at(*osd, object).and_then(|shard| shards.get(usize::from(shard))).unwrap_or(&nothing);
        to.iter().map(|osd| (*osd, self.send_repops(cx, &BTreeSet::from([*osd]), log_only, rows, of(osd), trim_to))).collect()
    }

    /// What a write does here.
    fn put_write(&self, txn: &mut Transaction, entry: &PgLogEntry, mutation: Mutation) {
        let is_new = |step: &Step| matches!(step, Step::Remove | Step::BecomeClone { .. });
        let tags = entry.op == LogOp::Modify && (entry.prior_version == EVersion::default() || mutation.steps.iter().any(is_new));
        mutation.into_transaction(txn, &entry.object);
        if tags {
            self.tag(txn, &entry.object);
        }
    }

    /// All copies store the same row: it is encoded once.
    fn send_repops(
        &self,
        cx: &mut Cx<'_>,
        to: &BTreeSet<OsdId>,
        log_only: &BTreeSet<OsdId>,
        (before, row): (&[(PgLogEntry, Bytes)], &Bytes),
        mutation: &Mutation,
        trim_to: EVersion,
    ) -> RepOp {
        let mut steps = Encoder::with_capacity(0, 256);
        let mut payload = BufList::default();
        mutation.encode_split(&mut steps, &mut payload);
        let msg = RepOp {
            pgid: self.id,
            epoch: cx.sh.map.epoch,
            interval: self.walk.since,
            row: row.clone(),
            before: before.iter().map(|(_, row)| row.clone()).collect(),
            committed_to: self.committed_to,
            trim_to,
            mutation: steps.finish(),
            log_only: false,
            payload,
        };
        for osd in to {
            send_repop(cx, *osd, &msg, log_only.contains(osd));
        }
        msg
    }

    /// Sends a replica again what it has not confirmed.
    pub(super) fn resend_repops(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        let lacking = |o: &&RepOpState| o.waiting_for.contains(&osd) || o.filled.contains(&osd);
        for write in self.repops.behind.iter().chain(&self.repops.list).filter(lacking) {
            if let Some(msg) = write.sent.to(osd) {
                send_repop(cx, osd, msg, write.log_only.contains(&osd));
            }
        }
    }

    /// Appends to the log, in memory and in the transaction. `row` is what is stored of the entry.
    fn log_write(&mut self, txn: &mut Transaction, entry: PgLogEntry, row: Bytes) {
        if is_lost(&entry) {
            // How large the object was nobody knows.
            (self.history.approximate, self.recounting) = (true, None);
            self.put_meta(txn);
        }
        self.last_user_version = self.last_user_version.max(entry.user_version);
        self.log.write_row(txn, &entry, &row);
    }

    fn trim_log(&mut self, cx: &Cx<'_>, txn: &mut Transaction, trim_to: EVersion) {
        // What waits beside objects is found by the log.
        self.settle(txn, trim_to);
        if let Some(trimmed) = self.log.trim_to(trim_to, cx.sh.log_dups_tracked) {
            // By name: a range would have the engine read what it is about to delete.
            let gone = trimmed.tail.start..=trimmed.tail.end;
            txn.ops.push(Op::CollRm { keys: gone.map(row_key).collect() });
            self.log.dups.put_rows(txn, &trimmed.dups);
            self.log.dups.trim(txn, trimmed.earliest);
            self.put_meta(txn);
        }
    }

    /// Entries the log keeps. Whoever is away needs every one since it went, or has to be filled by scan.
    fn log_entries_kept(&self, cx: &Cx<'_>) -> usize {
        let m = &self.walk.mapping;
        let degraded = m.acting.len() < usize::from(m.size) && self.log.bytes() < LONG_LOG_BYTES;
        if degraded { cx.sh.log_entries_degraded } else { cx.sh.log_entries_max }
    }

    /// Up to where every copy may forget its log.
    fn trim_point(&self, keep: usize, batch: usize) -> EVersion {
        let over = self.log.len().saturating_sub(keep);
        if over < TRIM_BATCH.min(keep).max(1) {
            return self.log.tail;
        }
        let newest = self.log.version_at(over.min(batch) - 1).unwrap_or(self.log.tail);
        newest.min(self.committed_to)
    }

    /// A log that grew while a copy was away gives its memory back once every copy has everything, whether or not somebody writes.
    pub(super) fn shorten_log(&mut self, cx: &mut Cx<'_>) {
        let to = self.trim_point(cx.sh.log_entries_max, SHORTEN_BATCH);
        if to <= self.log.tail || !self.is_clean() || !self.repops.list.is_empty() {
            return;
        }
        for osd in self.replicas(cx.sh.whoami) {
            cx.send_pg(osd, self.id, self.round(), PgBody::Trim { to }, Durable::Now);
        }
        self.trim_log_alone(cx, to);
    }

    pub(super) fn handle_trim(&mut self, cx: &mut Cx<'_>, to: EVersion) {
        if matches!(self.stage, Stage::Follower { active: true }) {
            self.trim_log_alone(cx, to);
        }
    }

    fn trim_log_alone(&mut self, cx: &mut Cx<'_>, to: EVersion) {
        let mut txn = self.transaction();
        self.trim_log(cx, &mut txn, to);
        cx.submit(txn);
    }

    /// Our own disk has a write.
    pub fn repop_committed(&mut self, cx: &mut Cx<'_>, interval: Epoch, version: u64) {
        if interval != self.walk.since {
            return;
        }
        if let Some(op) = self.repops.find(version) {
            op.local = true;
        }
        self.repops.mark(version, Mark::Committed, cx.now.mono);
        self.finish_repops(cx);
    }

    /// A replica's disk has a write.
    pub fn handle_repop_reply(&mut self, cx: &mut Cx<'_>, m: RepOpReply) {
        if m.interval != self.walk.since {
            return;
        }
        self.repops.mark(m.version.version, Mark::SubopCommitted, cx.now.mono);
        self.repops.confirmed(m.version.version, m.osd);
        if self.recovery.whole && !self.repops.is_anybody_behind() {
            self.recover(cx);
        }
        self.finish_repops(cx);
    }

    /// Answers, in order, what is durable wherever it has to be.
    fn finish_repops(&mut self, cx: &mut Cx<'_>) {
        let mut released = false;
        while let Some(mut write) = self.repops.pop_durable() {
            self.committed_to = write.version;
            if let Some((sender, actions)) = write.watch.take() {
                self.apply_watch_actions(cx, &sender, &write.object, actions);
            }
            for (reply, mut op) in std::mem::take(&mut write.replies) {
                self.send_reply(cx, reply, &op);
                self.trimmed(&op);
                write.share = write.share.or(op.share.take());
            }
            if write.own {
                self.lost_committed(cx, &write.object, write.version);
                released = true;
            } else {
                self.queue.committed(&write.object);
                released |= self.release_held(&write.object);
            }
            self.repops.leave_behind(write);
        }
        if released {
            self.recover(cx);
        }
        self.pump(cx);
    }

    /// The primary's write, on a replica.
    pub fn handle_repop(&mut self, cx: &mut Cx<'_>, mut m: RepOp) {
        if m.interval != self.walk.since || !matches!(self.stage, Stage::Follower { active: true }) {
            return;
        }
        let payload_len = m.payload.len() as u64;
        let rows = m.before.iter().chain([&m.row]).map(denc::from_bytes::<LogRow>).collect::<Result<Vec<_>, _>>();
        let mut rows = match rows {
            Ok(rows) => rows,
            Err(e) => return tracing::error!(pg = %self.id, "a replica's write whose log entry cannot be read: {e}"),
        };
        let first = rows.first().map_or(0, |row| row.entry.version.version);
        let Some((totals, entry)) = rows.pop().map(|row| (row.totals(), row.entry)) else { return };
        let version = entry.version;
        if version <= self.log.head() && self.log.contains(version) {
            return self.confirm_again(cx, m.interval, version);
        }
        let mutation = match take_mutation(&mut m) {
            Ok(mutation) => mutation,
            Err(e) => return tracing::error!(pg = %self.id, "a replica's write that cannot be read: {e}"),
        };
        if first != self.log.head().version + 1 {
            // With a lost session some are lost; the primary sends all of them again, in order.
            return tracing::warn!(pg = %self.id, %version, head = %self.log.head(), "a write out of order");
        }
        let lost = is_lost(&entry);
        let lacked = |e: &PgLogEntry| e.op != LogOp::Error && self.missing.contains_key(&e.object);
        if !m.log_only && !lost && (lacked(&entry) || rows.iter().any(|row| lacked(&row.entry))) {
            return tracing::error!(pg = %self.id, %version, object = ?entry.object, "a write to what is missing here");
        }
        cx.sh.perf.subop_w(payload_len);
        self.totals = totals;
        self.committed_to = m.committed_to;
        let mut txn = self.transaction();
        self.settle(&mut txn, m.committed_to);
        if !m.log_only {
            self.keep_undo(cx, &mut txn, rows.iter().map(|row| &row.entry), (&entry, &mutation));
        }
        if !m.log_only && entry.prior_version == EVersion::default() && entry.op == LogOp::Modify {
            // The primary has looked for the object; copies that go the same way need not.
            txn.create(&entry.object);
        }
        match lost && !m.log_only {
            true => self.put_lost(cx, &mut txn, &entry, mutation),
            false if m.log_only => {}
            false => self.put_write(&mut txn, &entry, mutation),
        }
        let row = m.row.clone();
        rows.into_iter().zip(m.before).for_each(|(row, bytes)| self.log_write(&mut txn, row.entry, bytes));
        self.log_write(&mut txn, entry, m.row);
        self.trim_log(cx, &mut txn, m.trim_to);
        let reply = self.confirmation(cx, m.interval, version);
        let mut marks = Marks::default();
        [Mark::ReachedPg, Mark::Started].into_iter().for_each(|mark| marks.note(mark, Default::default()));
        let primary = self.walk.mapping.primary;
        let subop = Subop { reply, primary, committed_to: m.committed_to, row, received: cx.now.mono, marks };
        cx.submit_routed(txn, TxcRoute::Subop(Box::new(subop)));
    }

    fn confirmation(&self, cx: &Cx<'_>, interval: Epoch, version: EVersion) -> RepOpReply {
        let (epoch, osd, space) = (cx.sh.map.epoch, cx.sh.whoami, cx.own_space());
        RepOpReply { pgid: self.id, epoch, interval, osd, version, space }
    }

    /// The primary has not heard that we have a write, or not yet: it is durable when what is submitted now is.
    fn confirm_again(&mut self, cx: &mut Cx<'_>, interval: Epoch, version: EVersion) {
        let mut txn = self.transaction();
        self.put_meta(&mut txn);
        let txc = cx.submit(txn);
        let reply = self.confirmation(cx, interval, version);
        cx.send(Peer::Osd(self.walk.mapping.primary), 0, reply, Durable::After(txc));
    }
}

/// Whose write of which object a row of the log tells of.
pub(crate) fn write_of_row(row: &[u8]) -> Option<(ReqId, HObject)> {
    denc::from_slice::<LogRow>(row).ok().map(|row| (row.entry.reqid, row.entry.object))
}

/// True if the entry gives up an object's newest content.
fn is_lost(entry: &PgLogEntry) -> bool {
    matches!(entry.op, LogOp::LostDelete | LogOp::LostRevert)
}

/// To a copy whose backfill has not come to the object only the entry is of use.
fn send_repop(cx: &mut Cx<'_>, osd: OsdId, msg: &RepOp, log_only: bool) {
    let msg = match log_only {
        true => RepOp { log_only, mutation: Default::default(), payload: BufList::default(), ..msg.clone() },
        false => msg.clone(),
    };
    cx.send(Peer::Osd(osd), 0, msg, Durable::Now);
}

/// What a write does to the object; nothing, where the object is not there yet.
fn take_mutation(m: &mut RepOp) -> Result<Mutation, denc::DecodeError> {
    if m.log_only {
        return Ok(Mutation::default());
    }
    Mutation::decode_split(&mut Decoder::shared(&m.mutation), &mut m.payload)
}
