//! The cluster log: what happened, for people.
//!
//! Upstream: src/mon/LogMonitor.cc, src/common/LogEntry.cc.

use crate::txn::{self, StateError, Txn};
use std::collections::{BTreeMap, VecDeque};
use store::Kv;
use types::msg::{LogEntry, LogPrio};
use types::{AddrVec, EntityInst, EntityName, Utime};

const NAME: &str = "log";

/// Entries kept per channel.
const KEPT: usize = 1000;

/// The channel of health and daemons.
pub const CLUSTER: &str = "cluster";
/// The channel of who ordered what.
pub const AUDIT: &str = "audit";

/// The last entries of every channel.
pub struct LogService {
    channels: BTreeMap<String, VecDeque<(u64, LogEntry)>>,
    /// The version of the newest entry of all channels.
    pub version: u64,
    own_seq: u64,
}

impl LogService {
    pub fn load(kv: &impl Kv) -> Result<Self, StateError> {
        let mut log = LogService { channels: BTreeMap::new(), version: 0, own_seq: 0 };
        for (key, raw) in txn::scan(kv, NAME, b"")? {
            let (version, channel) = parse_key(&key).ok_or(StateError::Missing("a log entry's key"))?;
            let source = |source| StateError::Corrupt { what: format!("log entry {version}"), source };
            let entry: LogEntry = denc::from_bytes(&raw).map_err(source)?;
            log.version = log.version.max(version);
            log.own_seq = log.own_seq.max(if entry.rank.kind == types::EntityKind::MON { entry.seq } else { 0 });
            log.channels.entry(channel).or_default().push_back((version, entry));
        }
        Ok(log)
    }

    /// Nothing yet.
    pub fn empty() -> Self {
        LogService { channels: BTreeMap::new(), version: 0, own_seq: 0 }
    }

    /// Keeps an entry, and forgets the oldest of its channel when there are too many.
    pub fn append(&mut self, entry: LogEntry, txn: &mut Txn) {
        self.version += 1;
        txn.put_encoded(NAME, key(&entry.channel, self.version), &entry);
        let channel = self.channels.entry(entry.channel.clone()).or_default();
        channel.push_back((self.version, entry));
        while channel.len() > KEPT {
            if let Some((version, old)) = channel.pop_front() {
                txn.delete(NAME, key(&old.channel, version));
            }
        }
    }

    /// Entries of `channel` (`*`: all) at or above `level`, oldest first, with their versions, after version `after`.
    pub fn entries(&self, channel: &str, level: LogPrio, after: u64) -> Vec<(u64, &LogEntry)> {
        let wanted = self.channels.iter().filter(|(name, _)| channel == "*" || *name == channel);
        let mut out: Vec<(u64, &LogEntry)> = wanted
            .flat_map(|(_, all)| all.iter().rev().take_while(|(v, _)| *v > after))
            .filter(|(_, e)| e.prio >= level)
            .map(|(v, e)| (*v, e))
            .collect();
        out.sort_by_key(|(version, _)| *version);
        out
    }
}

/// The monitor that makes an entry itself.
pub struct Author<'a> {
    pub name: &'a str,
    pub rank: usize,
    pub addrs: &'a AddrVec,
}

impl LogService {
    /// Keeps a line of the monitor's own.
    pub fn say(&mut self, author: &Author<'_>, stamp: Utime, channel: &str, prio: LogPrio, msg: String, txn: &mut Txn) {
        self.own_seq += 1;
        let entry = LogEntry {
            name: EntityName::new(types::EntityKind::MON, author.name),
            rank: EntityInst { kind: types::EntityKind::MON, num: author.rank as i64 },
            addrs: author.addrs.clone(),
            stamp,
            seq: self.own_seq,
            prio,
            msg,
            channel: channel.to_owned(),
        };
        self.append(entry, txn);
    }
}

fn key(channel: &str, version: u64) -> Vec<u8> {
    [&version.to_be_bytes()[..], channel.as_bytes()].concat()
}

fn parse_key(key: &[u8]) -> Option<(u64, String)> {
    let (version, channel) = key.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*version), String::from_utf8_lossy(channel).into_owned()))
}
