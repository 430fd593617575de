//! The cluster log: entries on their way to the monitor and to those who watch.
//!
//! Upstream: src/common/LogEntry.{h,cc}, src/messages/MLog.h, MLogAck.h.

use super::message;
use super::mon::PaxosHeader;
use crate::{AddrVec, EntityInst, EntityName, Utime};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::fmt;
use uuid::Uuid;

/// How grave an entry is (`clog_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPrio(pub u16);

impl LogPrio {
    pub const DEBUG: Self = LogPrio(0);
    pub const INFO: Self = LogPrio(1);
    pub const SEC: Self = LogPrio(2);
    pub const WARN: Self = LogPrio(3);
    pub const ERROR: Self = LogPrio(4);

    /// The priority named as in `ceph log last` and `log-<name>` subscriptions.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "debug" => Some(Self::DEBUG),
            "info" => Some(Self::INFO),
            "sec" => Some(Self::SEC),
            "warn" => Some(Self::WARN),
            "error" => Some(Self::ERROR),
            _ => None,
        }
    }
}
impl fmt::Display for LogPrio {
    /// As lines of the log show it: `[INF]` without the brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::DEBUG => "DBG",
            Self::INFO => "INF",
            Self::SEC => "SEC",
            Self::WARN => "WRN",
            Self::ERROR => "ERR",
            _ => "???",
        })
    }
}

/// One line of the cluster log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    pub name: EntityName,
    pub rank: EntityInst,
    pub addrs: AddrVec,
    pub stamp: Utime,
    /// Counts up per sender, so that resent entries are known.
    pub seq: u64,
    pub prio: LogPrio,
    pub msg: String,
    /// `cluster` or `audit`.
    pub channel: String,
}

impl Encode for LogEntry {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(5, 5, |e| {
            e.put(&self.name).put(&self.rank).put(&self.addrs).put(&self.stamp).put(&self.seq);
            e.put(&self.prio.0).put(&self.msg).put(&self.channel);
        });
    }
}
impl Decode for LogEntry {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("LogEntry", 5, |v, d| {
            if v < 5 {
                return Err(DecodeError::Invalid("LogEntry from before Nautilus"));
            }
            Ok(LogEntry {
                name: d.get()?,
                rank: d.get()?,
                addrs: d.get()?,
                stamp: d.get()?,
                seq: d.get()?,
                prio: LogPrio(d.get()?),
                msg: d.get()?,
                channel: d.get()?,
            })
        })
    }
}

message! {
    MLog = 52, v 1, c 1, p 196 { paxos: PaxosHeader, fsid: Uuid, entries: Vec<LogEntry>, }
}
message! {
    /// The newest sequence number that is kept safe.
    MLogAck = 53, v 1, c 1, p 196 { fsid: Uuid, last: u64, channel: String, }
}
