//! Operations that have ended: the slowest of the last while, and those that took too long; and whose operations are shown.
//!
//! Upstream: OpHistory in src/common/TrackedOp.cc; OpRequest::filter_out, src/osd/OpRequest.cc.

use crate::cls::Origin;
use crate::stages;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use types::{EntityAddr, Mono, Now};

/// The slowest operations of the last while, and slow ones for longer.
#[derive(Debug)]
pub(crate) struct History {
    /// How many of the slowest are kept (`osd_op_history_size`), and how long (`osd_op_history_duration`).
    pub size: usize,
    pub kept: Duration,
    /// How many slow ones are kept (`osd_op_history_slow_op_size`), and what is slow (`osd_op_history_slow_op_threshold`).
    pub slow_size: usize,
    pub slow_from: Duration,
    /// Slowest first.
    slowest: Vec<Past>,
    /// Oldest first.
    slow: VecDeque<Past>,
}

/// An operation that has ended, as it is shown.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    pub description: String,
    /// Who wanted it; nobody, of what one OSD does for another.
    pub client: Option<(Origin, u64)>,
    pub flag_point: &'static str,
    /// Its stages, each with the time since it came.
    pub events: Vec<(String, Duration)>,
}

#[derive(Debug, Clone)]
struct Past {
    op: Finished,
    ended: Mono,
    took: Duration,
}

impl Past {
    fn show(&self, now: Now) -> Value {
        let age = now.mono - self.ended + self.took;
        let since = stages::began(now, age);
        let client = self.op.client.as_ref().map(|(origin, tid)| (origin, *tid));
        json!({
            "description": self.op.description,
            "initiated_at": since.to_string(),
            "age": age.as_secs_f64(),
            "duration": self.took.as_secs_f64(),
            "type_data": stages::type_data(self.op.flag_point, client, since, &self.op.events),
        })
    }

    fn is_wanted(&self, senders: &Senders) -> bool {
        senders.want(self.op.client.as_ref().map(|(origin, _)| origin))
    }
}

impl Default for History {
    fn default() -> Self {
        History {
            size: 20,
            kept: Duration::from_secs(600),
            slow_size: 20,
            slow_from: Duration::from_secs(10),
            slowest: Vec::new(),
            slow: VecDeque::new(),
        }
    }
}

impl History {
    /// An operation has ended. It is only described if it is among the slowest, or slow.
    pub fn note(&mut self, now: Mono, took: Duration, describe: impl FnOnce() -> Finished) {
        let is_slow = took >= self.slow_from && self.slow_size > 0;
        let is_faster = self.slowest.len() >= self.size && self.slowest.last().is_none_or(|p| p.took >= took);
        if is_faster && !is_slow {
            return;
        }
        let past = Past { op: describe(), ended: now, took };
        if is_slow {
            self.slow.push_back(past.clone());
            let gone = self.slow.len().saturating_sub(self.slow_size);
            self.slow.drain(..gone);
        }
        self.slowest.retain(|p| now - p.ended < self.kept);
        let at = self.slowest.partition_point(|p| p.took >= took);
        self.slowest.insert(at, past);
        self.slowest.truncate(self.size);
    }

    /// As `dump_historic_ops` prints them: by end, or the slowest first.
    pub fn dump(&self, now: Now, by_duration: bool, senders: &Senders) -> Value {
        let mut list: Vec<&Past> = self.slowest.iter().filter(|p| now.mono - p.ended < self.kept).collect();
        if !by_duration {
            list.sort_by_key(|p| p.ended);
        }
        let ops: Vec<Value> = list.into_iter().filter(|p| p.is_wanted(senders)).map(|p| p.show(now)).collect();
        json!({"size": self.size, "duration": self.kept.as_secs(), "ops": ops})
    }

    /// As `dump_historic_slow_ops` prints them.
    pub fn dump_slow(&self, now: Now, senders: &Senders) -> Value {
        let ops: Vec<Value> = self.slow.iter().filter(|p| p.is_wanted(senders)).map(|p| p.show(now)).collect();
        json!({"num to keep": self.slow_size, "threshold to keep": self.slow_from.as_secs(), "Ops": ops})
    }
}

/// Whose operations are shown (`filterstr`): those of clients at one of these addresses, or everybody's.
#[derive(Debug)]
pub(crate) struct Senders(Vec<Sender>);

/// An address: a port or nonce of 0 stands for any.
#[derive(Debug, PartialEq)]
struct Sender {
    sock: SocketAddr,
    nonce: u32,
}

impl Senders {
    /// Words that are no address count for nothing, as in stock.
    pub fn new(words: &[&str]) -> Self {
        Senders(words.iter().filter_map(|word| Sender::parse(word)).collect())
    }

    /// True if an operation of this client is to be shown.
    pub fn want(&self, client: Option<&Origin>) -> bool {
        self.0.is_empty() || client.is_some_and(|c| self.0.iter().any(|s| s.is(&c.addr)))
    }
}

impl Sender {
    /// `IP`, `IP:PORT` or `IP:PORT/NONCE`, perhaps behind the kind of address.
    fn parse(word: &str) -> Option<Sender> {
        let word = ["v1:", "v2:", "any:"].iter().find_map(|kind| word.strip_prefix(kind)).unwrap_or(word);
        let (sock, nonce) = word.split_once('/').unwrap_or((word, "0"));
        let alone = || Some(SocketAddr::new(sock.trim_matches(['[', ']']).parse::<IpAddr>().ok()?, 0));
        Some(Sender { sock: sock.parse().ok().or_else(alone)?, nonce: nonce.parse().ok()? })
    }

    fn is(&self, addr: &EntityAddr) -> bool {
        let same = |sock: SocketAddr| sock.ip() == self.sock.ip() && (self.sock.port() == 0 || sock.port() == self.sock.port());
        addr.sock.is_some_and(same) && (self.nonce == 0 || self.nonce == addr.nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{EntityInst, EntityKind};

    fn origin(addr: &str, nonce: u32) -> Origin {
        Origin { inst: EntityInst { kind: EntityKind::CLIENT, num: 7 }, addr: EntityAddr::msgr2(addr.parse().unwrap(), nonce) }
    }

    #[test]
    fn whose_operations_are_shown_is_said_by_address() {
        let client = origin("10.0.0.1:5000", 33);
        let want = |words: &[&str]| Senders::new(words).want(Some(&client));
        assert!(want(&[]) && want(&["10.0.0.1"]) && want(&["10.0.0.1:5000"]) && want(&["v2:10.0.0.1:5000/33"]));
        assert!(want(&["10.0.0.2", "10.0.0.1"]) && want(&["10.0.0.1:0/0"]));
        assert!(!want(&["10.0.0.2"]) && !want(&["10.0.0.1:5001"]) && !want(&["10.0.0.1:5000/34"]) && !want(&["::1"]));
        assert!(want(&["osd_op"]), "no address at all");
        assert!(Senders::new(&["[::1]"]).want(Some(&origin("[::1]:5000", 1))));
        assert!(!Senders::new(&["::1"]).want(None), "nobody's");
    }

    #[test]
    fn slow_ones_are_kept_apart_and_for_longer() {
        let mut h = History { size: 2, kept: Duration::from_secs(60), slow_size: 2, slow_from: Duration::from_secs(10), ..History::default() };
        let client = origin("10.0.0.1:5000", 33);
        let end = |h: &mut History, at_s: u64, took_s: u64| {
            let op = Finished { description: format!("took {took_s}"), client: Some((client, took_s)), flag_point: "started", events: Vec::new() };
            h.note(Mono(at_s * 1_000_000_000), Duration::from_secs(took_s), || op);
        };
        [1, 11, 2, 12, 3, 13].into_iter().for_each(|took| end(&mut h, 100, took));
        let names = |ops: &Value| ops.as_array().unwrap().iter().map(|o| o["description"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        let at = |s: u64| Now { mono: Mono(s * 1_000_000_000), ..Now::default() };
        let all = Senders::new(&[]);
        assert_eq!(names(&h.dump(at(100), true, &all)["ops"]), ["took 13", "took 12"]);
        assert_eq!(names(&h.dump_slow(at(100), &all)["Ops"]), ["took 12", "took 13"], "the newest two, and none that is not slow");
        assert_eq!(names(&h.dump(at(200), true, &all)["ops"]), Vec::<String>::new());
        assert_eq!(names(&h.dump_slow(at(200), &all)["Ops"]).len(), 2);
        let shown = &h.dump_slow(at(200), &all)["Ops"][0];
        assert_eq!((shown["age"].as_f64(), shown["duration"].as_f64()), (Some(112.0), Some(12.0)));
        assert_eq!(shown["type_data"]["client_info"]["tid"], 12);
    }
}
