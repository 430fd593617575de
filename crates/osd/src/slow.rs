//! Operations that have not ended: what each waits for, and who is told when one takes long.
//!
//! Room: osd core.   Owns: `Slow`.   Says: figures for the manager, lines for the cluster log, tables for operators.
//! Upstream: OSD::get_health_metrics in src/osd/OSD.cc; TrackedOp in src/common/TrackedOp.h.

use crate::command::{Finished, Senders};
use crate::disk::Disk;
use crate::effects::{Cx, Effect, Peer, TxcRoute};
use crate::osd::Osd;
use crate::pg::ClientOp;
use crate::stages::{self, Mark, Marks, Subop};
use serde_json::{Value, json};
use std::time::Duration;
use types::msg::LogPrio;
use types::msg::internal::SlowOps;
use types::{EVersion, HObject, Mono, Now};

/// What counts as slow.
#[derive(Debug)]
pub(crate) struct Slow {
    /// `osd_op_complaint_time`.
    pub complaint: Duration,
    /// Lines of the cluster log at a time (`osd_op_log_threshold`).
    pub lines_max: usize,
    /// Who arrived up to then has been told of.
    told: Mono,
}

impl Default for Slow {
    fn default() -> Self {
        Slow { complaint: Duration::from_secs(30), lines_max: 5, told: Mono::default() }
    }
}

/// An operation that has not ended.
pub(crate) struct Unfinished<'a> {
    /// As the client sent it. Of a write that a copy finishes for nobody only its version is known.
    pub op: Option<&'a ClientOp>,
    pub write: Option<(EVersion, &'a HObject)>,
    /// A replica's part in another OSD's write.
    pub subop: Option<&'a Subop>,
    /// Who has to have the write, as they are named.
    pub peers: String,
    pub since: Mono,
    /// What it waits for, in upstream's words where it has some.
    pub stage: &'static str,
}

impl<'a> Unfinished<'a> {
    /// A client's, that waits for this.
    pub fn of_client(op: &'a ClientOp, stage: &'static str) -> Self {
        Unfinished { op: Some(op), write: None, subop: None, peers: String::new(), since: op.received, stage }
    }

    fn of_subop(subop: &'a Subop) -> Self {
        Unfinished { op: None, write: None, subop: Some(subop), peers: String::new(), since: subop.received, stage: "started" }
    }

    fn describe(&self) -> String {
        match (self.op, self.write) {
            (Some(op), _) => op.describe(),
            (None, Some((version, object))) => format!("write {version} {}", object.name),
            (None, None) => self.subop.map(Subop::describe).unwrap_or_default(),
        }
    }

    /// Where it stands in upstream's words: what waits behind others has reached no stage of its own.
    fn flag_point(&self, marks: &Marks) -> &'static str {
        if self.stage.starts_with("waiting for") { "delayed" } else { stages::flag_point(marks) }
    }

    fn show(&self, now: Now) -> Value {
        let age = now.mono - self.since;
        let since = stages::began(now, age);
        let marks = self.op.map(|op| op.marks).or(self.subop.map(|subop| subop.marks)).unwrap_or_default();
        let events = stages::events(&marks, &self.peers, None);
        let data = stages::type_data(self.flag_point(&marks), self.op.map(|op| (&op.origin, op.tid)), since, &events);
        let age = age.as_secs_f64();
        json!({"description": self.describe(), "initiated_at": since.to_string(), "age": age, "duration": age, "type_data": data})
    }

    fn is_from(&self, senders: &Senders) -> bool {
        senders.want(self.op.map(|op| &op.origin))
    }
}

/// A replica's part in a write is durable: its primary hears of it.
pub(crate) fn subop_committed(cx: &mut Cx<'_>, mut subop: Subop) {
    let took = cx.now.mono - subop.received;
    cx.sh.perf.subop_done(took);
    subop.marks.note(Mark::CommitSent, took);
    cx.sh.history.note(cx.now.mono, took, || {
        let events = stages::events(&subop.marks, "", Some(took));
        Finished { description: subop.describe(), client: None, flag_point: stages::flag_point(&subop.marks), events }
    });
    cx.fx.push(Effect::Send { to: Peer::Osd(subop.primary), tid: 0, msg: subop.reply.into() });
}

impl Osd {
    fn unfinished(&self) -> impl Iterator<Item = Unfinished<'_>> {
        let subops = self.sh.txcs.values().filter_map(|route| match route {
            TxcRoute::Subop(subop) => Some(&**subop),
            _ => None,
        });
        self.pgs.values().flat_map(|pg| pg.unfinished(self.sh.whoami)).chain(subops.map(Unfinished::of_subop))
    }

    fn slow(&self, now: Now) -> impl Iterator<Item = Unfinished<'_>> {
        self.unfinished().filter(move |u| now.mono - u.since > self.slow.complaint)
    }

    /// `dump_ops_in_flight`
    pub(crate) fn ops_in_flight(&self, now: Now, senders: &Senders) -> Value {
        let ops: Vec<Value> = self.unfinished().filter(|u| u.is_from(senders)).map(|u| u.show(now)).collect();
        json!({"ops": ops, "num_ops": ops.len()})
    }

    /// `dump_blocked_ops`
    pub(crate) fn blocked_ops(&self, now: Now, senders: &Senders) -> Value {
        let ops: Vec<Value> = self.slow(now).filter(|u| u.is_from(senders)).map(|u| u.show(now)).collect();
        json!({"ops": ops, "complaint_time": self.slow.complaint.as_secs(), "num_blocked_ops": ops.len()})
    }

    /// For the manager, who makes SLOW_OPS of it.
    pub(crate) fn slow_ops(&self, now: Now) -> SlowOps {
        self.slow(now).fold(SlowOps::default(), |mut all, u| {
            all.count += 1;
            all.oldest_ms = all.oldest_ms.max((now.mono - u.since).as_millis() as u64);
            *all.stages.entry(u.stage.to_string()).or_default() += 1;
            all
        })
    }

    /// Tells operators of each that has become slow, once, and of no more than a few at a time.
    pub(crate) fn complain(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        let mut new: Vec<(Mono, String)> = Vec::new();
        for u in self.slow(now).filter(|u| u.since > self.slow.told) {
            let waited = (now.mono - u.since).as_secs();
            new.push((u.since, format!("slow request {} has taken {waited} seconds, currently {}", u.describe(), u.stage)));
        }
        new.sort();
        if let Some((newest, _)) = new.last() {
            self.slow.told = *newest;
        }
        let more = new.len().saturating_sub(self.slow.lines_max);
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        for (_, line) in new.into_iter().take(self.slow.lines_max) {
            cx.clog(LogPrio::WARN, line);
        }
        if more > 0 {
            cx.clog(LogPrio::WARN, format!("{more} more slow requests"));
        }
    }
}
