//! Which stages an operation has passed, and when, as `dump_historic_ops` shows them.
//!
//! Owns: [`Marks`], a few words in each operation.   Holds: to note a stage costs a store or two and no memory.
//! Upstream: TrackedOp::mark_event in src/common/TrackedOp.h; OpRequest in src/osd/OpRequest.h, whose words these are.

use crate::cls::Origin;
use serde_json::{Value, json};
use std::time::Duration;
use types::msg::internal_osd::RepOpReply;
use types::{EVersion, HObject, Mono, Now, ReqId, Utime};

/// A stage that an operation reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The PG has begun to look at it.
    ReachedPg,
    /// A copy lacks its object.
    WaitsForObject,
    WaitsForScrub,
    WaitsForRoom,
    /// It runs.
    Started,
    /// Its write is on its way to all copies.
    WaitsForSubops,
    /// The write is durable here.
    Committed,
    /// The write is durable on a replica.
    SubopCommitted,
    /// It is answered.
    CommitSent,
}

impl Mark {
    fn words(self, peers: &str) -> String {
        match self {
            Mark::ReachedPg => "reached_pg",
            Mark::WaitsForObject => "waiting for missing object",
            Mark::WaitsForScrub => "waiting for scrub",
            Mark::WaitsForRoom => "waiting for room on a disk",
            Mark::Started => "started",
            Mark::WaitsForSubops => return format!("waiting for subops from {peers}"),
            Mark::Committed => "op_commit",
            Mark::SubopCommitted => "sub_op_commit_rec",
            Mark::CommitSent => "commit_sent",
        }
        .into()
    }
}

/// Stages that are kept of an operation: those of a write with five copies, and a wait.
const KEPT: usize = 11;
/// From here on times are kept in milliseconds.
const COARSE: u32 = 1 << 31;

/// The stages an operation has passed, each with the time since it came. What is beyond `KEPT` is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    len: u8,
    what: [Mark; KEPT],
    at: [u32; KEPT],
}

impl Default for Marks {
    fn default() -> Self {
        Marks { len: 0, what: [Mark::ReachedPg; KEPT], at: [0; KEPT] }
    }
}

impl Marks {
    /// It has reached a stage, so long after it came.
    pub fn note(&mut self, mark: Mark, after: Duration) {
        let at = usize::from(self.len);
        if at < KEPT {
            let us = after.as_micros() as u64;
            self.what[at] = mark;
            self.at[at] = if us < COARSE.into() { us as u32 } else { COARSE | (us / 1000).min((COARSE - 1).into()) as u32 };
            self.len += 1;
        }
    }

    /// The same, unless it has been there before.
    pub fn note_once(&mut self, mark: Mark, after: Duration) {
        if self.when(mark).is_none() {
            self.note(mark, after);
        }
    }

    /// When it first reached a stage, since it came.
    pub fn when(&self, mark: Mark) -> Option<Duration> {
        self.iter().find(|(m, _)| *m == mark).map(|(_, after)| after)
    }

    fn iter(&self) -> impl Iterator<Item = (Mark, Duration)> {
        let time = |at: u32| if at < COARSE { Duration::from_micros(at.into()) } else { Duration::from_millis((at & !COARSE).into()) };
        self.what.into_iter().zip(self.at).take(self.len.into()).map(move |(mark, at)| (mark, time(at)))
    }
}

/// Steps of one turn: a message is read whole, and its PG told of it, before time goes on.
const ARRIVAL: [&str; 6] = ["initiated", "throttled", "header_read", "all_read", "dispatched", "queued_for_pg"];

/// The stages of an operation in words, with the time since it came; `took` if it has ended.
pub(crate) fn events(marks: &Marks, peers: &str, took: Option<Duration>) -> Vec<(String, Duration)> {
    let arrival = ARRIVAL.iter().map(|name| ((*name).to_owned(), Duration::ZERO));
    let passed = marks.iter().map(|(mark, after)| (mark.words(peers), after));
    arrival.chain(passed).chain(took.map(|took| ("done".to_owned(), took))).collect()
}

/// How far an operation has come, in upstream's words.
pub(crate) fn flag_point(marks: &Marks) -> &'static str {
    match marks.iter().last().map(|(mark, _)| mark) {
        None => "queued for pg",
        Some(Mark::ReachedPg) => "reached pg",
        Some(Mark::WaitsForObject | Mark::WaitsForScrub | Mark::WaitsForRoom) => "delayed",
        Some(Mark::Started) => "started",
        Some(Mark::WaitsForSubops | Mark::Committed | Mark::SubopCommitted) => "waiting for sub ops",
        Some(Mark::CommitSent) => "commit sent; apply or cleanup",
    }
}

/// `type_data` of an operation: how far it has come, who wants it, and its stages, the first of which was at `since`.
pub(crate) fn type_data(flag_point: &str, client: Option<(&Origin, u64)>, since: Utime, events: &[(String, Duration)]) -> Value {
    let mut data = json!({"flag_point": flag_point});
    if let Some((origin, tid)) = client {
        data["client_info"] = json!({"client": origin.inst.to_string(), "client_addr": origin.addr.legacy_string(), "tid": tid});
    }
    let next = events.iter().skip(1).map(|(_, at)| Some(*at)).chain([None]);
    let show = |((event, at), next): (&(String, Duration), Option<Duration>)| {
        // The last one shows how long all of it took.
        let lasted = next.map_or(*at, |next| next.saturating_sub(*at));
        json!({"event": event, "time": Utime::from_duration(since.to_duration() + *at).to_string(), "duration": lasted.as_secs_f64()})
    };
    data["events"] = events.iter().zip(next).map(show).collect();
    data
}

/// When something that has lasted until now began.
pub(crate) fn began(now: Now, age: Duration) -> Utime {
    Utime::from_duration(now.wall.to_duration().saturating_sub(age))
}

/// The primary's write on a replica, until it is durable there and the primary hears of that.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Subop {
    pub reply: RepOpReply,
    pub primary: types::OsdId,
    /// Up to where everything is durable everywhere, as the primary said.
    pub committed_to: EVersion,
    /// The log's row, which says what it is: read when somebody asks.
    pub row: bytes::Bytes,
    pub received: Mono,
    pub marks: Marks,
}

impl Subop {
    /// One line as `dump_ops_in_flight` shows it.
    pub fn describe(&self) -> String {
        let r = &self.reply;
        let (reqid, object) = crate::pg::write_of_row(&self.row).unwrap_or((ReqId::default(), HObject::min()));
        format!("osd_repop({reqid} {} e{}/{} {object} v {}, mlcod={})", r.pgid, r.epoch, r.interval, r.version, self.committed_to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn an_operation_is_shown_with_the_stages_it_has_passed() {
        let mut marks = Marks::default();
        assert_eq!(flag_point(&marks), "queued for pg");
        marks.note(Mark::ReachedPg, us(10));
        marks.note_once(Mark::Started, us(20));
        marks.note_once(Mark::Started, us(25));
        marks.note(Mark::WaitsForSubops, us(30));
        assert_eq!(flag_point(&marks), "waiting for sub ops");
        marks.note(Mark::SubopCommitted, us(530));
        marks.note(Mark::CommitSent, us(600));
        let since = Utime { sec: 1_600_000_000, nsec: 0 };
        let shown = type_data(flag_point(&marks), None, since, &events(&marks, "1,2", Some(us(600))));
        assert_eq!(shown["flag_point"], "commit sent; apply or cleanup");
        let names: Vec<&str> = shown["events"].as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap()).collect();
        let wanted = ["initiated", "throttled", "header_read", "all_read", "dispatched", "queued_for_pg", "reached_pg", "started"];
        assert_eq!(names[..8], wanted);
        assert_eq!(names[8..], ["waiting for subops from 1,2", "sub_op_commit_rec", "commit_sent", "done"]);
        let waited = &shown["events"][8];
        assert_eq!((waited["time"].as_str(), waited["duration"].as_f64()), (Some("2020-09-13T12:26:40.000030+0000"), Some(0.0005)));
        assert_eq!(shown["events"][11]["duration"], 0.0006, "all of it");
    }

    #[test]
    fn what_is_beyond_is_not_kept_and_long_times_are_kept_coarsely() {
        let mut marks = Marks::default();
        (0..20).for_each(|n| marks.note(Mark::SubopCommitted, us(n)));
        assert_eq!(marks.iter().count(), KEPT);
        let mut marks = Marks::default();
        marks.note(Mark::Started, Duration::from_secs(3 * 86_400) + us(5));
        assert_eq!(marks.when(Mark::Started), Some(Duration::from_secs(3 * 86_400)));
    }
}
