//! Requests under way, and those of late: what stage each is in, and when it came there.
//!
//! Owns: every request from `begin` to `finish`, then the newest and the slowest for a while. A request's stages are a
//! core's enum; here they are words with a time.
//! Upstream: src/common/TrackedOp.{h,cc}, src/osd/OpRequest.cc.

use crate::human::timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{Mono, Now};

/// Names a request within its tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// Who sent a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// `client.4123`.
    pub name: String,
    /// `v1:127.0.0.1:0/123`.
    pub addr: String,
    pub tid: u64,
}

#[derive(Debug, Clone)]
struct Event {
    name: &'static str,
    at: Now,
}

#[derive(Debug, Clone)]
struct TrackedOp {
    description: String,
    initiated: Now,
    client: Option<ClientInfo>,
    events: Vec<Event>,
    done: Option<Mono>,
}

impl TrackedOp {
    fn duration(&self, now: Mono) -> Duration {
        self.done.unwrap_or(now) - self.initiated.mono
    }

    fn dump(&self, now: Now) -> Value {
        let stage = self.events.last().map_or("initiated", |e| e.name);
        let mut data = json!({"flag_point": if self.done.is_some() { "done" } else { stage }});
        if let Some(c) = &self.client {
            data["client_info"] = json!({"client": c.name, "client_addr": c.addr, "tid": c.tid});
        }
        let ends = self.events.iter().skip(1).map(|e| e.at.mono).chain([self.done.unwrap_or(now.mono)]);
        let event = |(e, end): (&Event, Mono)| {
            json!({"event": e.name, "time": timestamp(e.at.wall), "duration": (end - e.at.mono).as_secs_f64()})
        };
        data["events"] = self.events.iter().zip(ends).map(event).collect();
        json!({
            "description": self.description,
            "initiated_at": timestamp(self.initiated.wall),
            "age": (now.mono - self.initiated.mono).as_secs_f64(),
            "duration": self.duration(now.mono).as_secs_f64(),
            "type_data": data,
        })
    }
}

/// How much history is kept, and what is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackerConfig {
    /// `osd_op_history_size`: how many finished requests are kept.
    pub history_size: usize,
    /// `osd_op_history_duration`: and how long.
    pub history_duration: Duration,
    /// `osd_op_complaint_time`: how long a request may take before it is complained of.
    pub complaint_time: Duration,
    /// `osd_op_history_slow_op_size`, `osd_op_history_slow_op_threshold`.
    pub slow_size: usize,
    pub slow_threshold: Duration,
}

impl Default for TrackerConfig {
    fn default() -> Self {
        TrackerConfig {
            history_size: 20,
            history_duration: Duration::from_secs(600),
            complaint_time: Duration::from_secs(30),
            slow_size: 20,
            slow_threshold: Duration::from_secs(10),
        }
    }
}

/// Requests under way and of late.
#[derive(Debug, Default)]
pub struct OpTracker {
    pub config: TrackerConfig,
    next: u64,
    in_flight: BTreeMap<OpId, TrackedOp>,
    history: VecDeque<TrackedOp>,
    slow: VecDeque<TrackedOp>,
}

impl OpTracker {
    /// An empty tracker.
    pub fn new(config: TrackerConfig) -> Self {
        OpTracker { config, ..OpTracker::default() }
    }

    /// Begins to follow a request.
    pub fn begin(&mut self, now: Now, description: String, client: Option<ClientInfo>) -> OpId {
        let id = OpId(self.next);
        self.next += 1;
        let events = vec![Event { name: "initiated", at: now }];
        self.in_flight.insert(id, TrackedOp { description, initiated: now, client, events, done: None });
        id
    }

    /// Notes that a request came to a stage.
    pub fn event(&mut self, now: Now, id: OpId, name: &'static str) {
        if let Some(op) = self.in_flight.get_mut(&id) {
            op.events.push(Event { name, at: now });
        }
    }

    /// Ends a request; it goes into history.
    pub fn finish(&mut self, now: Now, id: OpId) {
        let Some(mut op) = self.in_flight.remove(&id) else { return };
        op.events.push(Event { name: "done", at: now });
        op.done = Some(now.mono);
        if op.duration(now.mono) >= self.config.slow_threshold {
            keep(&mut self.slow, op.clone(), self.config.slow_size);
        }
        keep(&mut self.history, op, self.config.history_size);
        self.forget(now.mono);
    }

    /// Requests that have taken longer than the complaint time: how many, and the age of the oldest.
    pub fn slow_ops(&self, now: Mono) -> (u32, Duration) {
        let ages = self.in_flight.values().map(|op| op.duration(now)).filter(|age| *age > self.config.complaint_time);
        ages.fold((0, Duration::ZERO), |(n, oldest), age| (n + 1, oldest.max(age)))
    }

    /// Requests under way.
    pub fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// True if no request is under way.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// `dump_ops_in_flight`.
    pub fn dump_in_flight(&self, now: Now) -> Value {
        let ops: Vec<Value> = self.in_flight.values().map(|op| op.dump(now)).collect();
        json!({"num_ops": ops.len(), "ops": ops})
    }

    /// `dump_blocked_ops`.
    pub fn dump_blocked(&self, now: Now) -> Value {
        let late = |op: &&TrackedOp| op.duration(now.mono) > self.config.complaint_time;
        let ops: Vec<Value> = self.in_flight.values().filter(late).map(|op| op.dump(now)).collect();
        json!({
            "complaint_time": self.config.complaint_time.as_secs_f64(), "num_blocked_ops": ops.len(), "ops": ops,
        })
    }

    /// `dump_historic_ops`, in order of arrival, or slowest first.
    pub fn dump_historic(&mut self, now: Now, by_duration: bool) -> Value {
        self.forget(now.mono);
        let mut ops: Vec<&TrackedOp> = self.history.iter().collect();
        match by_duration {
            true => ops.sort_by_key(|op| std::cmp::Reverse(op.duration(now.mono))),
            false => ops.sort_by_key(|op| op.initiated.mono),
        }
        json!({
            "size": self.config.history_size,
            "duration": self.config.history_duration.as_secs(),
            "ops": ops.iter().map(|op| op.dump(now)).collect::<Vec<_>>(),
        })
    }

    /// `dump_historic_slow_ops`.
    pub fn dump_historic_slow(&mut self, now: Now) -> Value {
        json!({
            "num to keep": self.config.slow_size,
            "threshold to keep": self.config.slow_threshold.as_secs(),
            "Ops": self.slow.iter().map(|op| op.dump(now)).collect::<Vec<_>>(),
        })
    }

    fn forget(&mut self, now: Mono) {
        let keep = self.config.history_duration;
        self.history.retain(|op| now - op.done.unwrap_or(now) <= keep);
    }
}

fn keep(list: &mut VecDeque<TrackedOp>, op: TrackedOp, most: usize) {
    list.push_back(op);
    while list.len() > most {
        list.pop_front();
    }
}

/// A moment for tests and simulations: `ms` milliseconds after the start, wall clock alike.
#[cfg(test)]
fn at(ms: u64) -> Now {
    Now { mono: Mono(ms * 1_000_000), wall: types::Utime::from_duration(Duration::from_millis(1_700_000_000_000 + ms)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracker() -> (OpTracker, OpId) {
        let mut t = OpTracker::new(TrackerConfig { history_size: 2, ..TrackerConfig::default() });
        let client = ClientInfo { name: "client.4123".into(), addr: "127.0.0.1:0/1".into(), tid: 7 };
        let id = t.begin(at(0), "osd_op(client.4123.0:7 1.0 ...)".into(), Some(client));
        (t, id)
    }

    #[test]
    fn a_request_under_way_shows_its_stage_and_times() {
        let (mut t, id) = tracker();
        t.event(at(1000), id, "wait_repop");
        let dump = t.dump_in_flight(at(3500));
        assert_eq!(dump["num_ops"], 1);
        let op = &dump["ops"][0];
        assert_eq!((op["age"].as_f64(), &op["type_data"]["flag_point"]), (Some(3.5), &json!("wait_repop")));
        assert_eq!(op["type_data"]["client_info"]["tid"], 7);
        assert_eq!(op["type_data"]["events"][0]["duration"], 1.0);
        assert_eq!(op["type_data"]["events"][1]["duration"], 2.5);
    }

    #[test]
    fn history_keeps_the_newest_and_forgets_the_old() {
        let (mut t, id) = tracker();
        t.finish(at(10), id);
        for n in 0..3 {
            let id = t.begin(at(100 + n), "op".into(), None);
            t.finish(at(200), id);
        }
        assert_eq!(t.dump_historic(at(300), false)["ops"].as_array().unwrap().len(), 2);
        assert_eq!(t.dump_historic(at(700_000), false)["ops"], json!([]));
        assert!(t.is_empty());
    }

    #[test]
    fn slow_requests_are_counted_with_the_oldest_age() {
        let (mut t, id) = tracker();
        t.begin(at(5000), "op".into(), None);
        assert_eq!(t.slow_ops(at(34_000).mono), (1, Duration::from_secs(34)));
        assert_eq!(t.dump_blocked(at(34_000))["num_blocked_ops"], 1);
        t.finish(at(40_000), id);
        assert_eq!(t.dump_historic_slow(at(40_000))["Ops"].as_array().unwrap().len(), 1);
    }
}
