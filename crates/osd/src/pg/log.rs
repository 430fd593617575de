//! The PG log: what each write did, in order; how copies compare, and how a duplicate is known.
//!
//! Holds: versions rise by one from entry to entry; `tail` is the version before the first entry. Two copies whose logs
//! share an entry agree on everything before it.
//! Why totals sit in each row: a row is written with every operation anyway, so that the PG's size costs no row of its
//! own and is exact after a crash.
//! Upstream: doc/dev/osd_internals/log_based_pg.rst.

use bytes::Bytes;
use denc::{BString, Decode, Encode};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::msg::internal_osd::PgTotals;
use types::pg::{LogOp, PgLogEntry};
use types::{EVersion, HObject, ReqId};

/// First byte of a row's key.
pub(crate) const ROW: u8 = b'l';

/// An entry as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub(crate) struct LogRow {
    pub entry: PgLogEntry,
    /// Outputs a duplicate must be told.
    pub outputs: Vec<Bytes>,
    /// The PG's totals after the write.
    pub totals: PgTotals,
}

/// A row's key: rows sort by version.
pub(crate) fn row_key(version: u64) -> BString {
    let mut key = Vec::with_capacity(9);
    key.push(ROW);
    key.extend_from_slice(&version.to_be_bytes());
    key.into()
}

/// A log in memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PgLog {
    /// The version before the first entry.
    pub tail: EVersion,
    entries: VecDeque<Logged>,
    by_reqid: BTreeMap<ReqId, u64>,
}

/// An entry with what a duplicate is answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Logged {
    pub entry: PgLogEntry,
    pub outputs: Vec<Bytes>,
}

impl PgLog {
    /// The newest version.
    pub fn head(&self) -> EVersion {
        self.entries.back().map_or(self.tail, |l| l.entry.version)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Entries, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &PgLogEntry> {
        self.entries.iter().map(|l| &l.entry)
    }

    /// Appends the next entry. Panics if it is not newer than the head: a log that goes back is a bug of ours.
    pub fn push(&mut self, entry: PgLogEntry, outputs: Vec<Bytes>) {
        assert!(entry.version > self.head(), "log entry {} after {}", entry.version, self.head());
        if entry.reqid != ReqId::default() {
            self.by_reqid.insert(entry.reqid, entry.version.version);
        }
        self.entries.push_back(Logged { entry, outputs });
    }

    /// The write a request did, if it is still known.
    pub fn find(&self, reqid: &ReqId) -> Option<&Logged> {
        let version = *self.by_reqid.get(reqid)?;
        let at = self.entries.partition_point(|l| l.entry.version.version < version);
        self.entries.get(at).filter(|l| l.entry.reqid == *reqid)
    }

    /// True if the log reaches back to `version`: it is an entry here, or the tail.
    pub fn contains(&self, version: EVersion) -> bool {
        version == self.tail || self.base_for(version) == Some(version)
    }

    /// The newest version here that is not after `version`; `None` if the log does not reach back so far.
    pub fn base_for(&self, version: EVersion) -> Option<EVersion> {
        if version < self.tail {
            return None;
        }
        let at = self.entries.partition_point(|l| l.entry.version <= version);
        Some(at.checked_sub(1).and_then(|i| self.entries.get(i)).map_or(self.tail, |l| l.entry.version))
    }

    /// Entries after `version`, oldest first.
    pub fn after(&self, version: EVersion) -> Vec<PgLogEntry> {
        let at = self.entries.partition_point(|l| l.entry.version <= version);
        self.entries.iter().skip(at).map(|l| l.entry.clone()).collect()
    }

    /// Forgets the oldest entries until `keep` are left, but nothing newer than `limit`. Returns the new tail's version
    /// number if anything went.
    pub fn trim(&mut self, keep: usize, limit: EVersion) -> Option<u64> {
        let before = self.entries.len();
        while self.entries.len() > keep && self.entries.front().is_some_and(|l| l.entry.version <= limit) {
            let Some(old) = self.entries.pop_front() else { break };
            self.forget(&old.entry);
            self.tail = old.entry.version;
        }
        (self.entries.len() < before).then_some(self.tail.version)
    }

    /// Forgets everything up to `version`.
    pub fn trim_to(&mut self, version: EVersion) -> Option<u64> {
        self.trim(0, version)
    }

    /// Drops what is newer than `base` and returns it, newest first.
    pub fn rewind(&mut self, base: EVersion) -> Vec<PgLogEntry> {
        let mut gone = Vec::new();
        while self.entries.back().is_some_and(|l| l.entry.version > base) {
            let Some(last) = self.entries.pop_back() else { break };
            self.forget(&last.entry);
            gone.push(last.entry);
        }
        gone
    }

    /// Starts anew behind `tail`.
    pub fn reset(&mut self, tail: EVersion) {
        *self = PgLog { tail, ..PgLog::default() };
    }

    fn forget(&mut self, entry: &PgLogEntry) {
        if self.by_reqid.get(&entry.reqid) == Some(&entry.version.version) {
            self.by_reqid.remove(&entry.reqid);
        }
    }
}

/// What has to happen to objects for a copy to follow new entries: the last entry of each object decides.
pub(crate) fn latest_by_object(entries: &[PgLogEntry]) -> BTreeMap<&HObject, &PgLogEntry> {
    entries.iter().filter(|e| e.op != LogOp::Error).map(|e| (&e.object, e)).collect()
}

/// Objects that entries speak of.
pub(crate) fn objects_of(entries: &[PgLogEntry]) -> BTreeSet<HObject> {
    entries.iter().filter(|e| e.op != LogOp::Error).map(|e| e.object.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{EntityInst, Epoch, EntityKind, Utime};

    fn ev(epoch: u32, version: u64) -> EVersion {
        EVersion { epoch: Epoch(epoch), version }
    }

    fn entry(epoch: u32, version: u64) -> PgLogEntry {
        PgLogEntry {
            op: LogOp::Modify,
            object: HObject { name: format!("o{version}").into(), ..HObject::min() },
            version: ev(epoch, version),
            prior_version: EVersion::default(),
            user_version: version,
            reqid: ReqId { name: EntityInst { kind: EntityKind::CLIENT, num: 1 }, tid: version, inc: 0 },
            mtime: Utime::ZERO,
            result: 0,
            op_results: vec![],
        }
    }

    fn log(versions: &[(u32, u64)]) -> PgLog {
        let mut log = PgLog::default();
        versions.iter().for_each(|&(e, v)| log.push(entry(e, v), vec![]));
        log
    }

    #[test]
    fn a_request_is_known_until_its_entry_is_trimmed() {
        let mut log = log(&[(1, 1), (1, 2), (1, 3)]);
        let reqid = entry(1, 1).reqid;
        assert_eq!(log.find(&reqid).unwrap().entry.version, ev(1, 1));
        assert_eq!(log.trim(2, ev(1, 3)), Some(1));
        assert!(log.find(&reqid).is_none());
        assert_eq!((log.tail, log.head(), log.len()), (ev(1, 1), ev(1, 3), 2));
    }

    #[test]
    fn trimming_stops_at_what_is_not_durable_everywhere() {
        let mut log = log(&[(1, 1), (1, 2), (1, 3)]);
        assert_eq!(log.trim(0, ev(1, 1)), Some(1));
        assert_eq!(log.trim(0, ev(1, 1)), None);
        assert_eq!(log.len(), 2);
    }

    #[test]
    fn the_base_of_a_divergent_log_is_the_newest_common_entry() {
        // The other copy went on to 1'5 while this one took 2'4 from another primary.
        let log = log(&[(1, 1), (1, 2), (1, 3), (2, 4)]);
        assert_eq!(log.base_for(ev(1, 5)), Some(ev(1, 3)));
        assert_eq!(log.base_for(ev(1, 2)), Some(ev(1, 2)));
        assert!(log.contains(ev(1, 2)) && !log.contains(ev(1, 5)));
        assert_eq!(log.after(ev(1, 3)), [entry(2, 4)]);
    }

    #[test]
    fn a_log_that_was_trimmed_past_a_version_has_no_base_for_it() {
        let mut log = log(&[(1, 1), (1, 2), (1, 3)]);
        log.trim(1, ev(1, 3));
        assert_eq!(log.base_for(ev(1, 1)), None);
        assert_eq!(log.base_for(ev(1, 2)), Some(ev(1, 2)));
    }

    #[test]
    fn rewinding_forgets_requests_too() {
        let mut log = log(&[(1, 1), (1, 2), (1, 3)]);
        let gone: Vec<_> = log.rewind(ev(1, 1)).iter().map(|e| e.version).collect();
        assert_eq!(gone, [ev(1, 3), ev(1, 2)]);
        assert!(log.find(&entry(1, 3).reqid).is_none());
        log.push(entry(2, 2), vec![]);
        assert_eq!(log.head(), ev(2, 2));
    }

    #[test]
    fn rows_sort_by_version() {
        assert!(row_key(255) < row_key(256));
    }
}
