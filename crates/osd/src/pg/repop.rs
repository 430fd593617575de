//! Writes on their way to every acting copy: the primary's list of them, and the replica's side.

use super::log::{LogRow, row_key};
use super::op::Reply;
use super::{ClientOp, Pg, Stage};
use crate::effects::{Cx, Durable, Peer, TxcRoute};
use crate::mutation::Mutation;
use crate::ops::WatchAction;
use bytes::Bytes;
use denc::{Decoder, Encoder};
use std::collections::{BTreeSet, VecDeque};
use store::Transaction;
use types::msg::BufList;
use types::msg::internal_osd::{PgTotals, RepOp, RepOpReply};
use types::pg::PgLogEntry;
use types::{EVersion, Epoch, HObject, Mono, OsdId};

/// Trimming waits for that many entries, so that it costs little per write.
const TRIM_BATCH: usize = 100;

/// Writes that are not durable everywhere, oldest first.
#[derive(Debug, Default)]
pub(super) struct RepOps {
    list: VecDeque<RepOpState>,
}

#[derive(Debug)]
struct RepOpState {
    version: EVersion,
    object: HObject,
    /// Replicas that have not answered.
    waiting_for: BTreeSet<OsdId>,
    local: bool,
    /// Replies that wait for this write: its own, duplicates', and refusals that rest on it; with what they answer, for
    /// an interval may end before.
    replies: Vec<(Reply, ClientOp)>,
    watch: Option<(super::op::Sender, Vec<WatchAction>)>,
    submitted: Mono,
}

/// A write, decided and numbered.
pub(super) struct Write {
    pub entry: PgLogEntry,
    pub outputs: Vec<Bytes>,
    pub mutation: Mutation,
    pub totals: PgTotals,
    pub reply: Reply,
    pub op: ClientOp,
    pub watch: Option<(super::op::Sender, Vec<WatchAction>)>,
}

impl RepOps {
    fn find(&mut self, version: u64) -> Option<&mut RepOpState> {
        let first = self.list.front()?.version.version;
        // Versions rise by one: the place is known.
        self.list.get_mut(usize::try_from(version.checked_sub(first)?).ok()?)
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

    /// For each write: what it is doing and since when.
    pub fn in_flight(&self) -> impl Iterator<Item = (EVersion, &HObject, Mono, &'static str)> {
        let stage = |o: &RepOpState| if o.waiting_for.is_empty() { "commit_queued" } else { "wait_repop" };
        self.list.iter().map(move |o| (o.version, &o.object, o.submitted, stage(o)))
    }

    /// Every operation that waits for its answer, oldest first.
    pub fn into_ops(self) -> impl Iterator<Item = ClientOp> {
        self.list.into_iter().flat_map(|o| o.replies).map(|(_, op)| op)
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }
}

impl Pg {
    /// Submits a write here and sends it to every replica, in one turn.
    pub(super) fn start_write(&mut self, cx: &mut Cx<'_>, write: Write) {
        let version = write.entry.version;
        let object = write.entry.object.clone();
        let waiting_for: BTreeSet<OsdId> = self.replicas(cx.sh.whoami).collect();
        let trim_to = self.trim_point(cx.sh.log_entries_max);
        if !waiting_for.is_empty() {
            self.send_repops(cx, &waiting_for, &write, trim_to);
        }
        self.totals = write.totals;
        let mut txn = self.transaction();
        write.mutation.into_transaction(&mut txn, &object);
        self.log_write(&mut txn, write.entry, write.outputs, write.totals, trim_to);
        let route = TxcRoute::RepOp { pgid: self.id, interval: self.walk.since, version: version.version };
        cx.submit_routed(txn, route);
        self.repops.list.push_back(RepOpState {
            version,
            object,
            waiting_for,
            local: false,
            replies: vec![(write.reply, write.op)],
            watch: write.watch,
            submitted: cx.now.mono,
        });
    }

    fn send_repops(&self, cx: &mut Cx<'_>, to: &BTreeSet<OsdId>, write: &Write, trim_to: EVersion) {
        let mut steps = Encoder::with_capacity(0, 256);
        let mut payload = BufList::default();
        write.mutation.encode_split(&mut steps, &mut payload);
        let msg = RepOp {
            pgid: self.id,
            epoch: cx.sh.map.epoch,
            interval: self.walk.since,
            entry: write.entry.clone(),
            outputs: write.outputs.clone(),
            totals: write.totals,
            committed_to: self.committed_to,
            trim_to,
            mutation: steps.finish(),
            payload,
        };
        for osd in to {
            cx.send(Peer::Osd(*osd), 0, msg.clone(), Durable::Now);
        }
    }

    /// Appends to the log, in memory and in the transaction.
    fn log_write(&mut self, txn: &mut Transaction, entry: PgLogEntry, outputs: Vec<Bytes>, totals: PgTotals, trim_to: EVersion) {
        let row = LogRow { entry, outputs, totals };
        txn.coll_set(row_key(row.entry.version.version), denc::to_bytes(&row, 0));
        self.last_user_version = self.last_user_version.max(row.entry.user_version);
        self.log.push(row.entry, row.outputs);
        let from = self.log.tail.version;
        if let Some(to) = self.log.trim_to(trim_to) {
            txn.coll_rm_range(row_key(from), row_key(to + 1));
            self.put_meta(txn);
        }
    }

    /// Up to where every copy may forget its log.
    fn trim_point(&self, keep: usize) -> EVersion {
        if self.log.len() < keep + TRIM_BATCH {
            return self.log.tail;
        }
        let newest = self.log.iter().nth(TRIM_BATCH - 1).map_or(self.log.tail, |e| e.version);
        newest.min(self.committed_to)
    }

    /// Our own disk has a write.
    pub fn repop_committed(&mut self, cx: &mut Cx<'_>, interval: Epoch, version: u64) {
        if interval != self.walk.since {
            return;
        }
        if let Some(op) = self.repops.find(version) {
            op.local = true;
        }
        self.finish_repops(cx);
    }

    /// A replica's disk has a write.
    pub fn handle_repop_reply(&mut self, cx: &mut Cx<'_>, m: RepOpReply) {
        if m.interval != self.walk.since {
            return;
        }
        if let Some(op) = self.repops.find(m.version.version) {
            op.waiting_for.remove(&m.osd);
        }
        self.finish_repops(cx);
    }

    /// Answers, in order, what is durable everywhere.
    fn finish_repops(&mut self, cx: &mut Cx<'_>) {
        while self.repops.list.front().is_some_and(|o| o.local && o.waiting_for.is_empty()) {
            let Some(op) = self.repops.list.pop_front() else { break };
            self.committed_to = op.version;
            if let Some((sender, actions)) = op.watch {
                self.apply_watch_actions(cx, &sender, &op.object, actions);
            }
            for (reply, _) in op.replies {
                self.send_reply(cx, reply);
            }
            self.queue.committed(&op.object);
        }
        self.pump(cx);
    }

    /// The primary's write, on a replica.
    pub fn handle_repop(&mut self, cx: &mut Cx<'_>, m: RepOp) {
        if m.interval != self.walk.since || !matches!(self.stage, Stage::Follower { active: true }) {
            return;
        }
        let mut payload = m.payload.contiguous();
        let mutation = match Mutation::decode_split(&mut Decoder::shared(&m.mutation), &mut payload) {
            Ok(mutation) => mutation,
            Err(e) => return tracing::error!(pg = %self.id, "a replica's write that cannot be read: {e}"),
        };
        let version = m.entry.version;
        if version.version != self.log.head().version + 1 {
            return tracing::error!(pg = %self.id, %version, head = %self.log.head(), "a write out of order");
        }
        cx.sh.perf.subop_w(payload_len(&m.payload));
        self.totals = m.totals;
        self.committed_to = m.committed_to;
        let primary = self.walk.mapping.primary;
        let mut txn = self.transaction();
        mutation.into_transaction(&mut txn, &m.entry.object);
        self.log_write(&mut txn, m.entry, m.outputs, m.totals, m.trim_to);
        let txc = cx.submit(txn);
        let reply = RepOpReply {
            pgid: self.id,
            epoch: cx.sh.map.epoch,
            interval: m.interval,
            osd: cx.sh.whoami,
            version,
        };
        cx.send(Peer::Osd(primary), 0, reply, Durable::After(txc));
    }
}

fn payload_len(payload: &BufList) -> u64 {
    payload.len() as u64
}
