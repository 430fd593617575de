//! The PG log: what each write did, in order; how copies compare, and how a duplicate is known. What is trimmed leaves
//! its request behind (`dups`).
//!
//! Holds: versions rise by one from entry to entry; `tail` is the version before the first entry. Two copies whose logs
//! share an entry agree on everything before it.
//! Why totals sit in each row: a row is written with every operation anyway, so that the PG's size costs no row of its
//! own and is exact after a crash.
//! Upstream: doc/dev/osd_internals/log_based_pg.rst.

use super::dups::{Dups, Remembered};
use bytes::Bytes;
use denc::{BString, Decode, Encode};
use foldhash::fast::FixedState;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use store::Transaction;
use types::msg::internal_osd::PgTotals;
use types::pg::{LogOp, PgLogDup, PgLogEntry};
use types::{EVersion, HObject, ReqId};

/// First byte of a row's key: the store keeps such rows in memory.
pub(crate) const ROW: u8 = store::LOG_ROW;

/// An entry as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[denc(v = 3, compat = 2)]
pub(crate) struct LogRow {
    pub entry: PgLogEntry,
    /// The PG's totals after the write: objects, bytes.
    sums: (i64, i64),
    #[denc(since = 3)]
    clones: i64,
}

impl LogRow {
    pub fn new(entry: PgLogEntry, totals: PgTotals) -> Self {
        LogRow { entry, sums: (totals.objects, totals.bytes), clones: totals.clones }
    }

    /// The PG's totals after the write.
    pub fn totals(&self) -> PgTotals {
        PgTotals { objects: self.sums.0, bytes: self.sums.1, clones: self.clones }
    }
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
    entries: VecDeque<Kept>,
    /// Of all rows.
    bytes: usize,
    /// Never walked through: its order is nobody's.
    by_reqid: HashMap<ReqId, u64, FixedState>,
    /// Requests of writes up to the tail.
    pub dups: Dups,
}

/// An entry as it is kept: encoded, for that takes a third of the memory, and hardly any is ever looked at again. The engine has the same memory.
#[derive(Debug, Clone, PartialEq)]
struct Kept {
    version: EVersion,
    /// Of a [`LogRow`].
    row: Bytes,
}

impl Kept {
    /// Panics if it was not encoded by us: nobody else fills a log.
    fn entry(&self) -> PgLogEntry {
        denc::from_slice::<LogRow>(&self.row).expect("a row of our own").entry
    }
}

/// What trimming changed, for the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trimmed {
    /// Number of the old tail and of the new one.
    pub tail: Range<u64>,
    /// Requests that are remembered without their entries from now on.
    pub dups: Vec<PgLogDup>,
    /// Number of the oldest write that is to be remembered.
    pub earliest: u64,
}

impl PgLog {
    /// The newest version.
    pub fn head(&self) -> EVersion {
        self.entries.back().map_or(self.tail, |e| e.version)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Entries, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = PgLogEntry> {
        self.entries.iter().map(Kept::entry)
    }

    /// Bytes that its entries take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The version of the entry at a place, the oldest at 0.
    pub fn version_at(&self, place: usize) -> Option<EVersion> {
        self.entries.get(place).map(|e| e.version)
    }

    /// Appends the next entry. Panics if it is not newer than the head: a log that goes back is a bug of ours.
    pub fn push(&mut self, entry: PgLogEntry) {
        let row = LogRow::new(entry, PgTotals::default());
        self.push_row(&row.entry, denc::to_bytes(&row, 0));
    }

    /// The same with the entry's row, as it is stored. In memory of its own: a piece of a message would keep a whole receive buffer alive as long as the log.
    pub fn push_row(&mut self, entry: &PgLogEntry, row: Bytes) {
        assert!(entry.version > self.head(), "log entry {} after {}", entry.version, self.head());
        if entry.reqid != ReqId::default() {
            self.by_reqid.insert(entry.reqid, entry.version.version);
        }
        self.bytes += row.len();
        self.entries.push_back(Kept { version: entry.version, row });
    }

    /// The same, and stores the row: copied once for both, for it may be a piece of a message.
    pub fn write_row(&mut self, txn: &mut Transaction, entry: &PgLogEntry, row: &[u8]) {
        let row = Bytes::copy_from_slice(row);
        self.push_row(entry, row.clone());
        txn.coll_set(row_key(entry.version.version), row);
    }

    /// What a request was answered, if it is still known.
    pub fn find(&self, reqid: &ReqId) -> Option<Remembered> {
        let Some(version) = self.by_reqid.get(reqid) else { return self.dups.find(reqid) };
        let at = self.entries.partition_point(|e| e.version.version < *version);
        self.entries.get(at).map(Kept::entry).filter(|e| e.reqid == *reqid).map(|e| Remembered {
            version: e.version,
            user_version: e.user_version,
            result: e.result,
            op_returns: e.op_returns,
        })
    }

    /// The write that made an object what it is, if the log reaches back to it.
    pub fn version_of(&self, obj: &HObject) -> Option<EVersion> {
        self.iter().rev().find(|e| e.op != LogOp::Error && e.object == *obj).map(|e| e.version)
    }

    /// Number of the oldest write whose request is known.
    pub fn remembers_from(&self) -> u64 {
        self.dups.first().unwrap_or(self.tail.version + 1)
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
        let at = self.entries.partition_point(|e| e.version <= version);
        Some(at.checked_sub(1).and_then(|i| self.entries.get(i)).map_or(self.tail, |e| e.version))
    }

    /// Entries after `version`, oldest first.
    pub fn after(&self, version: EVersion) -> Vec<PgLogEntry> {
        let at = self.entries.partition_point(|e| e.version <= version);
        self.entries.iter().skip(at).map(Kept::entry).collect()
    }

    /// Forgets entries up to `version`; of the newest `tracked` writes the requests stay known. `None` if nothing goes.
    pub fn trim_to(&mut self, version: EVersion, tracked: u64) -> Option<Trimmed> {
        let (before, earliest) = (self.tail.version, (self.head().version + 1).saturating_sub(tracked));
        let mut dups = Vec::new();
        while self.entries.front().is_some_and(|e| e.version <= version) {
            let Some(old) = self.entries.pop_front().map(|e| self.taken(e)) else { break };
            self.forget(&old);
            self.tail = old.version;
            if old.version.version >= earliest && old.reqid != ReqId::default() {
                dups.push(PgLogDup::from(old));
            }
        }
        if self.tail.version == before {
            return None;
        }
        dups.iter().for_each(|d| self.dups.push(d.clone()));
        Some(Trimmed { tail: before..self.tail.version, dups, earliest })
    }

    /// What is left of the log for a part of the PG's objects, after a split. Entries of others stay as gaps, so that copies of
    /// the part compare as copies of the whole did, and numbers go on as they were. Requests beyond the log do not say
    /// which object they were about: every part remembers all of them.
    pub fn part(&self, holds: impl Fn(&HObject) -> bool) -> PgLog {
        let mut part = PgLog { tail: self.tail, dups: self.dups.clone(), ..PgLog::default() };
        let entries = self.iter().map(|e| if is_gap(&e) || holds(&e.object) { e } else { gap(&e) });
        entries.for_each(|e| part.push(e));
        part
    }

    /// Every request that is known, oldest first.
    pub fn requests(&self) -> Vec<PgLogDup> {
        let mut all = self.dups.before(u64::MAX);
        all.extend(self.iter().filter(|e| e.reqid != ReqId::default()).map(PgLogDup::from));
        all
    }

    /// Drops what is newer than `base` and returns it, newest first.
    pub fn rewind(&mut self, base: EVersion) -> Vec<PgLogEntry> {
        let mut gone = Vec::new();
        while self.entries.back().is_some_and(|e| e.version > base) {
            let Some(last) = self.entries.pop_back().map(|e| self.taken(e)) else { break };
            self.forget(&last);
            gone.push(last);
        }
        gone
    }

    /// Starts anew behind `tail`.
    pub fn reset(&mut self, tail: EVersion) {
        *self = PgLog { tail, ..PgLog::default() };
    }

    fn taken(&mut self, kept: Kept) -> PgLogEntry {
        self.bytes -= kept.row.len();
        kept.entry()
    }

    fn forget(&mut self, entry: &PgLogEntry) {
        if self.by_reqid.get(&entry.reqid) == Some(&entry.version.version) {
            self.by_reqid.remove(&entry.reqid);
        }
    }
}

/// In the place of an entry that went to another PG: it has its number and says nothing.
fn gap(entry: &PgLogEntry) -> PgLogEntry {
    PgLogEntry {
        op: LogOp::Error,
        object: HObject::min(),
        version: entry.version,
        prior_version: EVersion::default(),
        user_version: entry.user_version,
        reqid: ReqId::default(),
        mtime: entry.mtime,
        result: 0,
        op_returns: Vec::new(),
    }
}

fn is_gap(entry: &PgLogEntry) -> bool {
    entry.op == LogOp::Error && entry.reqid == ReqId::default()
}

/// What objects become, absent or at a version, when a copy drops `divergent` entries (newest first) and follows new ones.
pub(crate) fn consequences(divergent: &[PgLogEntry], entries: &[PgLogEntry]) -> BTreeMap<HObject, Option<EVersion>> {
    let effective = |e: &&PgLogEntry| e.op != LogOp::Error;
    let before = |e: &PgLogEntry| (e.prior_version != EVersion::default()).then_some(e.prior_version);
    let after = |e: &PgLogEntry| (!matches!(e.op, LogOp::Delete | LogOp::LostDelete)).then_some(e.version);
    let back = divergent.iter().filter(effective).map(|e| (e.object.clone(), before(e)));
    let forth = entries.iter().filter(effective).map(|e| (e.object.clone(), after(e)));
    back.chain(forth).collect()
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
            op_returns: vec![],
        }
    }

    fn log(versions: &[(u32, u64)]) -> PgLog {
        let mut log = PgLog::default();
        versions.iter().for_each(|&(e, v)| log.push(entry(e, v)));
        log
    }

    #[test]
    fn a_request_is_known_beyond_its_entry() {
        let mut log = log(&[(1, 1), (1, 2), (1, 3)]);
        let reqid = entry(1, 1).reqid;
        let known = log.find(&reqid).unwrap();
        assert_eq!(known.version, ev(1, 1));
        let trimmed = log.trim_to(ev(1, 1), 3).unwrap();
        assert_eq!(trimmed, Trimmed { tail: 0..1, dups: vec![entry(1, 1).into()], earliest: 1 });
        assert_eq!((log.tail, log.head(), log.len()), (ev(1, 1), ev(1, 3), 2));
        assert_eq!(log.find(&reqid), Some(known));
        assert_eq!(log.remembers_from(), 1);
    }

    #[test]
    fn as_many_writes_are_remembered_as_configured_counting_those_in_the_log() {
        let versions: Vec<(u32, u64)> = (1..=10).map(|v| (1, v)).collect();
        let mut log = log(&versions);
        assert_eq!(log.trim_to(ev(1, 5), 7).unwrap().dups.len(), 2);
        let known: Vec<u64> = (1..=10).filter(|v| log.find(&entry(1, *v).reqid).is_some()).collect();
        assert_eq!(known, [4, 5, 6, 7, 8, 9, 10]);
        let trimmed = log.trim_to(ev(1, 8), 4).unwrap();
        assert_eq!((trimmed.earliest, trimmed.dups.len()), (7, 2));
    }

    #[test]
    fn with_none_tracked_a_request_is_known_by_its_entry_only() {
        let mut log = log(&[(1, 1), (1, 2), (1, 3)]);
        assert!(log.trim_to(ev(1, 2), 0).unwrap().dups.is_empty());
        assert!(log.find(&entry(1, 2).reqid).is_none() && log.find(&entry(1, 3).reqid).is_some());
        assert_eq!(log.remembers_from(), 3);
    }

    #[test]
    fn trimming_stops_at_what_is_not_durable_everywhere() {
        let mut log = log(&[(1, 1), (1, 2), (1, 3)]);
        assert_eq!(log.trim_to(ev(1, 1), 0).unwrap().tail, 0..1);
        assert_eq!(log.trim_to(ev(1, 1), 0), None);
        assert_eq!(log.len(), 2);
        assert!(log.bytes() > 0);
        log.rewind(ev(1, 2));
        log.trim_to(ev(1, 2), 0);
        assert_eq!((log.len(), log.bytes()), (0, 0));
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
        log.trim_to(ev(1, 2), 0);
        assert_eq!(log.base_for(ev(1, 1)), None);
        assert_eq!(log.base_for(ev(1, 2)), Some(ev(1, 2)));
    }

    #[test]
    fn rewinding_forgets_requests_too() {
        let mut log = log(&[(1, 1), (1, 2), (1, 3)]);
        let gone: Vec<_> = log.rewind(ev(1, 1)).iter().map(|e| e.version).collect();
        assert_eq!(gone, [ev(1, 3), ev(1, 2)]);
        assert!(log.find(&entry(1, 3).reqid).is_none());
        log.push(entry(2, 2));
        assert_eq!(log.head(), ev(2, 2));
    }

    #[test]
    fn the_last_word_on_an_object_counts_and_before_a_dropped_entry_the_state_it_found() {
        let obj = |name: &str| HObject { name: name.into(), ..HObject::min() };
        let of = |name: &str, epoch, version, prior: EVersion, op| PgLogEntry {
            op,
            object: obj(name),
            prior_version: prior,
            ..entry(epoch, version)
        };
        let (zero, modify, delete) = (EVersion::default(), LogOp::Modify, LogOp::Delete);
        let divergent = [
            of("twice", 1, 9, ev(1, 8), modify),
            of("twice", 1, 8, ev(1, 3), modify),
            of("made", 1, 7, zero, modify),
            of("gone", 1, 6, ev(1, 2), delete),
            of("again", 1, 5, ev(1, 1), modify),
        ];
        let entries = [of("again", 2, 5, ev(1, 1), modify), of("new", 2, 6, zero, modify), of("new", 2, 7, ev(2, 6), delete)];
        let found = consequences(&divergent, &entries);
        let expected = [
            ("twice", Some(ev(1, 3))),
            ("made", None),
            ("gone", Some(ev(1, 2))),
            ("again", Some(ev(2, 5))),
            ("new", None),
        ];
        assert_eq!(found, expected.into_iter().map(|(name, v)| (obj(name), v)).collect());
    }

    #[test]
    fn a_part_of_a_log_has_the_number_of_every_entry_and_speaks_of_its_own_objects_only() {
        let mut whole = log(&[(1, 1), (1, 2), (2, 3), (2, 4)]);
        whole.trim_to(ev(1, 1), 4);
        let name = |e: &PgLogEntry| e.object.name.to_string();
        let part = whole.part(|o| o.name == "o3");
        assert_eq!((part.tail, part.head(), part.len()), (ev(1, 1), ev(2, 4), 3));
        assert_eq!(part.iter().map(|e| name(&e)).collect::<Vec<_>>(), ["", "o3", ""]);
        assert!(part.contains(ev(1, 2)) && part.contains(ev(2, 4)));
        assert!(part.find(&entry(2, 3).reqid).is_some() && part.find(&entry(2, 4).reqid).is_none());
        // What the whole remembered beyond its log all parts do.
        assert!(part.find(&entry(1, 1).reqid).is_some());
        let entries: Vec<PgLogEntry> = part.iter().collect();
        assert_eq!(consequences(&[], &entries).len(), 1, "gaps change nothing");
        assert_eq!(part.part(|_| false).part(|_| true).iter().map(|e| name(&e)).collect::<Vec<_>>(), ["", "", ""]);
    }

    #[test]
    fn parts_of_logs_part_where_the_logs_did() {
        let (ours, theirs) = (log(&[(1, 1), (1, 2), (1, 3)]), log(&[(1, 1), (2, 2)]));
        let part = |log: &PgLog| log.part(|o| o.name == "o3");
        assert_eq!(part(&ours).base_for(part(&theirs).head()), Some(ev(1, 3)));
        assert_eq!(part(&theirs).base_for(part(&ours).head()), Some(ev(1, 1)));
    }

    #[test]
    fn rows_sort_by_version() {
        assert!(row_key(255) < row_key(256));
    }
}
