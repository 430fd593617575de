//! Requests remembered beyond the log: a client that was cut off for long sends again what was done long ago.
//!
//! Room: osd core.   Owns: `Dups`, one per log.
//! Holds: everything here is older than the log's first entry, so durable in every acting copy; together with the log it
//! covers the newest `osd_pg_log_dups_tracked` writes.
//! Why so packed: three thousand of them in each of a hundred PGs are most of what an idle OSD remembers.
//! Upstream: src/osd/PGLog.h (the picture above `struct PGLog`), IndexedLog::trim in PGLog.cc.

use super::dup_run::DupRun;
use bytes::Bytes;
use denc::BString;
use std::collections::VecDeque;
use store::{Op, Transaction};
use types::pg::{OpReturn, PgLogDup};
use types::{EVersion, ReqId};

/// First byte of a row's key. A row holds a run of requests, oldest first; its key has the newest one's version.
pub(crate) const ROW: u8 = b'd';
/// Requests in a row, at most.
const ROW_DUPS: usize = 512;

/// What a duplicate of a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub version: EVersion,
    pub user_version: u64,
    pub result: i32,
    pub op_returns: Vec<OpReturn>,
}

/// Requests by age and by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dups {
    /// The oldest ones, about to be forgotten.
    oldest: VecDeque<PgLogDup>,
    runs: VecDeque<DupRun>,
    /// The newest ones, less than `RUN`.
    newest: VecDeque<PgLogDup>,
    /// A fingerprint of each, all gone through for each request: three thousand take 0.2 us. A tree of them took 45 KB instead of 8, and more time in all.
    prints: VecDeque<u16>,
    /// Each row's newest version, ascending.
    rows: VecDeque<u64>,
}

/// Requests that are packed together.
const RUN: usize = 32;
/// Fingerprints that are looked through together.
const CHUNK: usize = 512;

/// A row's key: rows sort by version.
fn row_key(version: u64) -> BString {
    [&[ROW][..], &version.to_be_bytes()].concat().into()
}

impl Dups {
    /// Number of requests.
    pub fn len(&self) -> usize {
        self.prints.len()
    }

    /// Bytes of memory that they take, about.
    pub fn memory(&self) -> usize {
        let plain = (self.oldest.capacity() + self.newest.capacity()) * size_of::<PgLogDup>();
        plain + self.runs.iter().map(DupRun::memory).sum::<usize>() + self.prints.capacity() * size_of::<u16>()
    }

    /// Requests, oldest first.
    fn iter(&self) -> impl Iterator<Item = PgLogDup> {
        self.oldest.iter().cloned().chain(self.runs.iter().flat_map(DupRun::unpack)).chain(self.newest.iter().cloned())
    }

    /// The oldest one's version number.
    pub fn first(&self) -> Option<u64> {
        self.oldest.front().map(number).or_else(|| self.runs.front().map(|run| run.first)).or_else(|| self.newest.front().map(number))
    }

    /// Adds the newest request. One without a name, or that is not newer than the rest, stays out.
    pub fn push(&mut self, dup: PgLogDup) {
        let newer = self.last().is_none_or(|last| last < dup.version.version);
        if newer && dup.reqid != ReqId::default() {
            self.prints.push_back(fingerprint(&dup.reqid));
            self.newest.push_back(PgLogDup { op_returns: owned(dup.op_returns), ..dup });
            if self.newest.len() == RUN {
                self.runs.push_back(DupRun::pack(self.newest.iter()));
                self.newest.clear();
            }
        }
    }

    /// The newest one's version number.
    fn last(&self) -> Option<u64> {
        let packed = || self.runs.back().and_then(|run| run.unpack().last()).map(|dup| number(&dup));
        self.newest.back().map(number).or_else(packed).or_else(|| self.oldest.back().map(number))
    }

    /// Adds requests from before the oldest one, and before `limit`; gives back what was added.
    pub fn push_older(&mut self, mut dups: Vec<PgLogDup>, limit: u64) -> Vec<PgLogDup> {
        let limit = self.first().unwrap_or(limit).min(limit);
        dups.retain(|d| d.version.version < limit && d.reqid != ReqId::default());
        if !dups.is_empty() {
            let mut mine = std::mem::take(self);
            self.rows = std::mem::take(&mut mine.rows);
            dups.iter().cloned().chain(mine.iter()).for_each(|dup| self.push(dup));
        }
        dups
    }

    /// What the request is answered, if it is known.
    pub fn find(&self, reqid: &ReqId) -> Option<Remembered> {
        let print = fingerprint(reqid);
        let (older, newer) = self.prints.as_slices();
        let mut places = places(newer, print).map(|i| older.len() + i).chain(places(older, print));
        places.find_map(|i| self.at(i).filter(|dup| dup.reqid == *reqid)).map(Remembered::from)
    }

    /// The request at a place, the oldest at 0.
    fn at(&self, i: usize) -> Option<PgLogDup> {
        let Some(i) = i.checked_sub(self.oldest.len()) else { return self.oldest.get(i).cloned() };
        match self.runs.get(i / RUN) {
            Some(run) => run.unpack().nth(i % RUN),
            None => self.newest.get(i - self.runs.len() * RUN).cloned(),
        }
    }

    /// Stores requests that were added, oldest first.
    pub fn put_rows(&mut self, txn: &mut Transaction, dups: &[PgLogDup]) {
        for run in dups.chunks(ROW_DUPS) {
            let newest = run.last().map_or(0, |d| d.version.version);
            txn.coll_set(row_key(newest), denc::to_bytes(&run.to_vec(), 0));
            self.rows.insert(self.rows.partition_point(|row| *row < newest), newest);
        }
    }

    /// Stores all of them, in another collection.
    pub fn put_all(&mut self, txn: &mut Transaction) {
        self.rows.clear();
        let all = self.before(u64::MAX);
        self.put_rows(txn, &all);
    }

    /// Takes in a stored row.
    pub fn load_row(&mut self, run: Vec<PgLogDup>) {
        self.rows.extend(run.last().map(|d| d.version.version));
        run.into_iter().for_each(|dup| self.push(dup));
    }

    /// Forgets what is older than `earliest`, and deletes the rows of which nothing is left.
    pub fn trim(&mut self, txn: &mut Transaction, earliest: u64) {
        while self.first().is_some_and(|first| first < earliest) {
            if self.oldest.is_empty() {
                match self.runs.pop_front() {
                    Some(run) => self.oldest.extend(run.unpack()),
                    None => std::mem::swap(&mut self.oldest, &mut self.newest),
                }
            }
            if self.oldest.pop_front().is_none() {
                break;
            }
            self.prints.pop_front();
        }
        let gone = self.rows.partition_point(|newest| *newest < earliest);
        if gone > 0 {
            txn.ops.push(Op::CollRm { keys: self.rows.drain(..gone).map(row_key).collect() });
        }
    }

    /// Requests from before `version`, oldest first.
    pub fn before(&self, version: u64) -> Vec<PgLogDup> {
        self.iter().take_while(|d| d.version.version < version).collect()
    }
}

/// However they are packed.
impl PartialEq for Dups {
    fn eq(&self, other: &Dups) -> bool {
        self.rows == other.rows && self.iter().eq(other.iter())
    }
}

fn number(dup: &PgLogDup) -> u64 {
    dup.version.version
}

fn fingerprint(reqid: &ReqId) -> u16 {
    let mixed = (reqid.name.num as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ reqid.tid.wrapping_add((reqid.inc as u64) << 40);
    (mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 48) as u16
}

/// Where a fingerprint stands, the last place first.
fn places(prints: &[u16], print: u16) -> impl Iterator<Item = usize> {
    let chunks = prints.chunks(CHUNK).enumerate().rev().filter(move |(_, chunk)| chunk.contains(&print));
    chunks.flat_map(move |(n, chunk)| {
        let inside = (0..chunk.len()).rev().filter(move |i| chunk.get(*i) == Some(&print));
        inside.map(move |i| n * CHUNK + i)
    })
}

/// In memory of their own: pieces of messages would keep whole receive buffers alive.
fn owned(mut returns: Vec<OpReturn>) -> Vec<OpReturn> {
    returns.iter_mut().for_each(|r| r.output = Bytes::copy_from_slice(&r.output));
    returns
}

impl From<PgLogDup> for Remembered {
    fn from(dup: PgLogDup) -> Remembered {
        let PgLogDup { version, user_version, result, op_returns, .. } = dup;
        Remembered { version, user_version, result, op_returns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use types::{EntityInst, EntityKind, Epoch};

    fn reqid(tid: u64) -> ReqId {
        ReqId { name: EntityInst { kind: EntityKind::CLIENT, num: 4100 + tid as i64 % 3 }, tid, inc: 0 }
    }

    fn dup(version: u64) -> PgLogDup {
        PgLogDup {
            reqid: reqid(version),
            version: EVersion { epoch: Epoch(2), version },
            user_version: version + 100,
            result: -(version as i32),
            op_returns: vec![OpReturn { rval: 7, output: format!("out {version}").into() }],
        }
    }

    fn txn() -> Transaction {
        Transaction::new(store::META_COLL)
    }

    fn dups(range: std::ops::Range<u64>) -> Dups {
        let mut dups = Dups::default();
        range.for_each(|v| dups.push(dup(v)));
        dups
    }

    #[test]
    fn a_request_is_known_with_everything_it_was_answered() {
        let dups = dups(5..3000);
        let found = dups.find(&reqid(1234)).unwrap();
        assert_eq!((found.version.version, found.user_version, found.result), (1234, 1334, -1234));
        assert_eq!(found.op_returns, [OpReturn { rval: 7, output: "out 1234".into() }]);
        assert!(dups.find(&reqid(4)).is_none() && dups.find(&reqid(3000)).is_none());
        assert!(dups.find(&ReqId { inc: 1, ..reqid(1234) }).is_none());
    }

    #[test]
    fn versions_beyond_32_bits_are_found() {
        let from = u64::from(u32::MAX) - 10;
        let dups = dups(from..from + 20);
        (from..from + 20).for_each(|v| assert_eq!(dups.find(&reqid(v)).unwrap().version.version, v));
    }

    #[test]
    fn what_is_too_old_is_forgotten() {
        let mut dups = dups(5..20);
        dups.trim(&mut txn(), 12);
        assert!(dups.find(&reqid(11)).is_none() && dups.find(&reqid(12)).is_some());
        assert_eq!((dups.len(), dups.iter().count()), (8, 8));
        dups.trim(&mut txn(), 1000);
        assert_eq!((dups.len(), dups.iter().count()), (0, 0));
    }

    #[test]
    fn they_are_what_a_plain_list_would_be() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        for _ in 0..30 {
            let (mut dups, mut plain, mut head) = (Dups::default(), VecDeque::new(), 500);
            for _ in 0..60 {
                match rng.random_range(0..10) {
                    0..7 => (0..rng.random_range(1..40)).for_each(|_| {
                        head += rng.random_range(1..3);
                        dups.push(dup(head));
                        plain.push_back(dup(head));
                    }),
                    7..9 => {
                        let earliest = dups.first().unwrap_or(head) + rng.random_range(0..70);
                        dups.trim(&mut txn(), earliest);
                        plain.retain(|d| d.version.version >= earliest);
                    }
                    _ => {
                        let limit = dups.first().unwrap_or(head);
                        let older: Vec<_> = (limit.saturating_sub(rng.random_range(1..70)).max(1)..limit + 5).map(dup).collect();
                        let added = dups.push_older(older, head + 1);
                        added.into_iter().rev().for_each(|d| plain.push_front(d));
                    }
                }
                assert!(dups.iter().eq(plain.iter().cloned()));
                assert_eq!((dups.len(), dups.first()), (plain.len(), plain.front().map(number)));
                let from = plain.front().map_or(head, number);
                for version in (from.saturating_sub(5)..head + 5).filter(|_| rng.random_ratio(1, 9)) {
                    let wanted = plain.iter().find(|d| number(d) == version).cloned().map(Remembered::from);
                    assert_eq!(dups.find(&reqid(version)), wanted, "{version}");
                }
            }
        }
    }

    #[test]
    fn a_row_goes_with_the_last_of_its_requests() {
        let mut dups = dups(1..1301);
        let mut all = txn();
        let run: Vec<PgLogDup> = (1..1301).map(dup).collect();
        dups.put_rows(&mut all, &run);
        let keys = |txn: Transaction| -> Vec<BString> {
            let key = |op: Op| match op {
                Op::CollSet { pairs } => pairs.into_iter().map(|(key, _)| key).collect(),
                Op::CollRm { keys } => keys,
                other => panic!("{other:?}"),
            };
            txn.ops.into_iter().flat_map(key).collect()
        };
        assert_eq!(keys(all), [row_key(512), row_key(1024), row_key(1300)]);
        for (earliest, gone) in [(512, vec![]), (513, vec![row_key(512)]), (1300, vec![row_key(1024)]), (2000, vec![row_key(1300)])] {
            let mut txn = txn();
            dups.trim(&mut txn, earliest);
            assert_eq!(keys(txn), gone, "{earliest}");
        }
    }

    #[test]
    fn what_another_copy_remembers_extends_the_past_and_nothing_else() {
        let mut mine = dups(8..12);
        let added = mine.push_older((3..15).map(dup).collect(), 12);
        assert_eq!(added.iter().map(|d| d.version.version).collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
        assert_eq!(mine, dups(3..12));
        // With nothing of one's own, everything before the log is taken.
        let mut none = Dups::default();
        none.push_older((3..15).map(dup).collect(), 12);
        assert_eq!(none, dups(3..12));
    }

    #[test]
    fn a_request_without_a_name_is_not_remembered() {
        let mut dups = Dups::default();
        dups.push(PgLogDup { reqid: ReqId::default(), ..dup(3) });
        assert_eq!(dups.len(), 0);
    }
}
