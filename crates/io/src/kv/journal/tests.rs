//! The ring under power failures, and a database with its journal under crashes.

use super::super::{Layout, RocksConfig, RocksKv};
use super::ring::{Medium, PAGE, fit, frame_len};
use super::*;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::RangeBounds;
use std::sync::mpsc::channel;
use store::Kv;

const SECTOR: usize = 512;

/// Power can fail: what was written since the last sync is kept or lost by sector.
#[derive(Clone)]
struct Mem {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<usize>,
    /// Sectors that were ever written.
    written: BTreeSet<usize>,
    sync_fails: bool,
}

impl Mem {
    fn new(size: u64) -> Self {
        Mem { bytes: vec![0; size as usize], durable: vec![0; size as usize], unsynced: Vec::new(), written: BTreeSet::new(), sync_fails: false }
    }

    fn crash(&mut self, rng: &mut ChaCha8Rng) {
        let share = *[0.0, 0.5, 0.9, 1.0].choose(rng).unwrap();
        for at in std::mem::take(&mut self.unsynced) {
            if rng.random_bool(share) {
                self.durable[at..at + SECTOR].copy_from_slice(&self.bytes[at..at + SECTOR]);
            }
        }
        self.bytes.clone_from(&self.durable);
    }
}

impl Medium for Mem {
    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()> {
        into.copy_from_slice(&self.bytes[off as usize..off as usize + into.len()]);
        Ok(())
    }

    fn written_from(&self, off: u64) -> u64 {
        // In the middle of a page if it so happens.
        self.written.range(off as usize..).next().map_or(self.bytes.len(), |at| *at) as u64
    }

    fn write(&mut self, off: u64, data: &[u8], behind_is_free: bool) -> io::Result<()> {
        assert!(off.is_multiple_of(PAGE) && data.len().is_multiple_of(PAGE as usize));
        if behind_is_free {
            self.bytes[off as usize..].fill(0);
            self.durable[off as usize..].fill(0);
        }
        self.bytes[off as usize..off as usize + data.len()].copy_from_slice(data);
        let sectors = (off as usize..off as usize + data.len()).step_by(SECTOR);
        self.unsynced.extend(sectors.clone());
        self.written.extend(sectors.filter(|at| data[at - off as usize..][..SECTOR].iter().any(|b| *b != 0)));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.sync_fails) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.unsynced.clear();
        self.durable.clone_from(&self.bytes);
        Ok(())
    }
}

impl Medium for &mut Mem {
    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read(off, into)
    }
    fn written_from(&self, off: u64) -> u64 {
        (**self).written_from(off)
    }
    fn write(&mut self, off: u64, data: &[u8], behind_is_free: bool) -> io::Result<()> {
        (**self).write(off, data, behind_is_free)
    }
    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }
}

fn append(w: &mut Writer<Mem>, payload: &[u8]) {
    w.append(Kind::Batches, &mut [&[0; HEADER], payload].concat()).unwrap();
}

/// Payloads from a place on, and the end.
fn read(medium: &Mem, size: u64, start: Place) -> (Vec<Vec<u8>>, Reader<Mem>) {
    let mut reader = Reader::new(medium.clone(), size, start);
    let mut out = Vec::new();
    while let Some(frame) = reader.read().unwrap() {
        if frame.kind == Kind::Batches {
            out.push(frame.payload.to_vec());
        }
    }
    (out, reader)
}

#[test]
fn whatever_power_leaves_a_prefix_with_all_that_was_synced_is_found() {
    for seed in 0..300 {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let size = PAGE * rng.random_range(8..40);
        let first = Place { pos: 0, seq: 1, run: rng.random() };
        let mut w = Writer::start(Mem::new(size), size, first, rng.random()).unwrap();
        // Frames from `start` on, and how many of them are durable.
        let (mut start, mut frames, mut durable) = (first, Vec::<(Place, Vec<u8>)>::new(), 0);
        for _ in 0..200 {
            match rng.random_range(0..10) {
                0..6 => {
                    // Content that looks like an old frame must not be taken for one.
                    let len = rng.random_range(0..3 * PAGE as usize);
                    let from = rng.random_range(0..=size as usize - len);
                    let payload = w.medium.bytes[from..from + len].to_vec();
                    let len = frame_len(payload.len());
                    if fit(w.next.pos, len, size) + len <= start.pos + size {
                        append(&mut w, &payload);
                        frames.push((w.last, payload));
                    }
                }
                6..8 => {
                    w.sync().unwrap();
                    durable = frames.len();
                }
                8 if durable > 0 => {
                    let n = rng.random_range(0..durable);
                    start = frames[n].0;
                    frames.drain(..n);
                    durable -= n;
                }
                _ => {
                    let mut medium = w.medium.clone();
                    if rng.random_bool(0.3) {
                        // Killed, and then power goes while the next one starts.
                        let reader = read(&medium, size, start).1;
                        if fit(reader.next.pos, PAGE, size) + PAGE <= start.pos + size {
                            medium.sync_fails = true;
                            assert!(Writer::start(&mut medium, size, reader.next, rng.random()).is_err());
                        }
                    }
                    medium.crash(rng);
                    let (found, reader) = read(&medium, size, start);
                    assert!((durable..=frames.len()).contains(&found.len()), "seed {seed}: {} of {durable}", found.len());
                    assert!(found.iter().zip(&frames).all(|(a, (_, b))| a == b), "seed {seed}");
                    assert_eq!(reader.durable_beyond().unwrap(), None, "seed {seed}: a power failure is no damage");
                    if fit(reader.next.pos, PAGE, size) + PAGE > start.pos + size {
                        break;
                    }
                    frames.truncate(found.len());
                    durable = frames.len();
                    w = Writer::start(medium, size, reader.next, rng.random()).unwrap();
                }
            }
        }
    }
}

#[test]
fn what_was_durable_and_is_gone_is_noticed() {
    let size = 64 * PAGE;
    let first = Place { pos: 0, seq: 1, run: 7 };
    let mut w = Writer::start(Mem::new(size), size, first, 8).unwrap();
    for n in 0..20u8 {
        append(&mut w, &[n; 100]);
        w.sync().unwrap();
    }
    let mut rotten = w.medium.clone();
    rotten.bytes[5 * PAGE as usize + 60] ^= 1;
    let (found, reader) = read(&rotten, size, first);
    assert_eq!(found.len(), 4);
    assert!(reader.durable_beyond().unwrap().is_some());
    // The last one may as well never have been written.
    let mut rotten = w.medium.clone();
    rotten.bytes[20 * PAGE as usize + 60] ^= 1;
    let (found, reader) = read(&rotten, size, first);
    assert_eq!((found.len(), reader.durable_beyond().unwrap()), (19, None));
}

/// However much is gone in between, and where the ring begins anew.
#[test]
fn what_is_left_of_it_is_found_far_behind() {
    let size = 600 * PAGE;
    for (frames, from, gone) in [(550u64, 0, 4..400u64), (1000, 450, 460..990)] {
        let mut w = Writer::start(Mem::new(size), size, Place { pos: 0, seq: 1, run: 7 }, 8).unwrap();
        let mut places = Vec::new();
        for n in 0..frames {
            append(&mut w, &[n as u8; 100]);
            places.push(w.last);
            w.sync().unwrap();
        }
        let mut rotten = w.medium.clone();
        gone.clone().for_each(|n| rotten.bytes[(places[n as usize].pos % size) as usize + 60] ^= 1);
        // As damage, or as if it had never been written.
        let mut never = rotten.clone();
        for page in gone.clone().map(|n| (places[n as usize].pos % size) as usize) {
            never.bytes[page..page + PAGE as usize].fill(0);
            never.written.retain(|at| !(page..page + PAGE as usize).contains(at));
        }
        for medium in [rotten, never] {
            let (found, reader) = read(&medium, size, places[from as usize]);
            assert_eq!(found.len() as u64, gone.start - from);
            assert_eq!(reader.durable_beyond().unwrap(), Some(places[gone.end as usize]));
        }
    }
}

#[test]
fn after_a_failed_flush_nothing_is_promised_any_more() {
    let first = Place { pos: 0, seq: 1, run: 7 };
    let mut w = Writer::start(Mem::new(1 << 20), 1 << 20, first, 8).unwrap();
    w.medium.sync_fails = true;
    w.append(Kind::Batches, &mut vec![0; 50]).unwrap();
    assert_eq!(w.sync().unwrap_err().raw_os_error(), Some(5));
    assert!(w.sync().is_err() && w.append(Kind::Batches, &mut vec![0; 50]).is_err());
}

fn config(dir: &Path) -> RocksConfig {
    RocksConfig { journal_bytes: 2 << 20, ..RocksConfig::new(dir, Layout::ObjectStore) }
}

fn open(dir: &Path) -> Result<RocksKv, OpenError> {
    RocksKv::open(&config(dir), channel().0)
}

/// What a killed process leaves: the files as they are. Checkpoints are waited for, so that none is copied in the middle
/// of one; the copies of files that were being written are of no more interest.
pub(super) fn image(kv: &mut RocksKv, from: &Path, to: &Path) {
    let journal = kv.journal.as_mut().unwrap();
    while journal.checkpoint.is_some_and(|root| kv.tables.root_on_disk().unwrap() != Some(root)) {
        std::thread::sleep(PAUSE);
    }
    kv.tables.db.cancel_all_background_work(true);
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap).filter(|e| e.file_name() != "LOCK") {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn all(kv: &RocksKv) -> BTreeMap<Bytes, Bytes> {
    let of = |prefix: &[u8], end: &[u8]| kv.scan(Bound::Included(prefix), Bound::Excluded(end), usize::MAX).unwrap();
    [(b"D", b"E"), (b"M", b"N"), (b"O", b"P"), (b"P", b"Q")].into_iter().flat_map(|(a, b)| of(a, b)).collect()
}

/// A key of a collection: a row of its log.
fn log_row(coll: u8, n: u64) -> String {
    format!("P{coll:013}l{n:08}")
}

/// Batches as a store makes them: objects, omap with ranges deleted, deferred rows and logs that go from the front, a
/// collection that goes altogether, and now and then a batch too large for the ring.
fn some_batch(rng: &mut ChaCha8Rng, seq: &mut (u64, u64)) -> KvBatch {
    let mut b = KvBatch::default();
    let coll = rng.random_range(0..4);
    b.put(log_row(coll, seq.1), vec![coll; 200]);
    b.put(format!("P{coll:013}i"), vec![coll; 50]);
    b.delete(log_row(coll, seq.1.saturating_sub(rng.random_range(1..90))));
    b.put(log_row(coll, seq.1.saturating_sub(rng.random_range(1..90))), vec![coll + 1; 100]);
    if rng.random_ratio(1, 80) {
        b.delete_range(format!("P{coll:013}"), format!("P{coll:013}~"));
        b.put(log_row(coll, seq.1), vec![coll; 200]);
    }
    for _ in 0..rng.random_range(1..6) {
        let n = rng.random_range(0..300);
        let value = vec![rng.random::<u8>(); rng.random_range(0..6000)];
        match rng.random_range(0..8) {
            0..3 => b.put(format!("O{n}"), value),
            3 => b.delete(format!("O{n}")),
            4 => b.put(format!("M{n}"), value),
            5 => b.delete_range(format!("M{n}"), format!("M{n}5")),
            6 => {
                b.put(format!("D{:08}", seq.1), value);
                seq.1 += 1;
            }
            _ => {
                let to = rng.random_range(seq.0..=seq.1);
                b.delete_range(format!("D{:08}", seq.0), format!("D{to:08}"));
                seq.0 = to;
            }
        }
    }
    if rng.random_ratio(1, 60) {
        (0..60).for_each(|n| b.put(format!("M{n}"), vec![n; 6000]));
    }
    b
}

/// A page somewhere, from either end, of what the database has and of what it has not.
fn page_is_as_in(kv: &RocksKv, model: &BTreeMap<Bytes, Bytes>, rng: &mut ChaCha8Rng) {
    let kind = rng.random_range(b'D'..=b'P') as char;
    let end = |rng: &mut ChaCha8Rng| match kind {
        'P' => format!("P{:013}{}", rng.random_range(0..4), ["", "i", "l", "~"].choose(rng).unwrap()),
        _ => format!("{kind}{}", rng.random_range(0..300)),
    };
    let bound = |rng: &mut ChaCha8Rng, key| if rng.random_bool(0.5) { Bound::Included(key) } else { Bound::Excluded(key) };
    let (a, b) = (end(rng).into_bytes(), end(rng).into_bytes());
    let (from, to) = if a < b { (a, b) } else { (b, a) };
    let (from, to, limit) = (bound(rng, &from[..]), bound(rng, &to[..]), rng.random_range(1..40));
    let inside = |k: &[u8]| RangeBounds::<[u8]>::contains(&(from, to), k);
    let wanted: Vec<_> = model.iter().filter(|(k, _)| inside(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
    let first: Vec<_> = wanted.iter().take(limit).cloned().collect();
    let last: Vec<_> = wanted.iter().rev().take(limit).cloned().collect();
    assert_eq!(kv.scan(from, to, limit).unwrap(), first, "{from:?} {to:?} {limit}");
    assert_eq!(kv.scan_reverse(from, to, limit).unwrap(), last, "{from:?} {to:?} {limit}");
}

fn same(found: &BTreeMap<Bytes, Bytes>, wanted: &BTreeMap<Bytes, Bytes>, when: &str) {
    let differs = |k: &&Bytes| found.get(*k) != wanted.get(*k);
    let keys: Vec<_> = found.keys().chain(wanted.keys()).filter(differs).collect();
    let missing: Vec<_> = keys.iter().filter(|k| !found.contains_key(**k)).collect();
    assert!(keys.is_empty(), "{when}: {keys:?}, of them missing {missing:?}");
}

#[test]
fn a_killed_database_is_found_as_it_was() {
    for seed in 0..4 {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let (a, b) = (crate::TempDir::new("journal-a"), crate::TempDir::new("journal-b"));
        let mut dirs = [a.path(), b.path()];
        let mut model = BTreeMap::new();
        let mut seq = (0, 0);
        let mut kv = open(dirs[0]).unwrap();
        for _ in 0..12 {
            for _ in 0..rng.random_range(1..300) {
                let batch = some_batch(rng, &mut seq);
                let (keys, to) = (batch.clone(), &mut model);
                for op in keys.ops {
                    match op {
                        KvOp::Put(k, v) => drop(to.insert(k, v)),
                        KvOp::Delete(k) => drop(to.remove(&k)),
                        KvOp::DeleteRange(from, end) => to.retain(|k, _| *k < from || *k >= end),
                    }
                }
                kv.apply(batch).unwrap();
                page_is_as_in(&kv, &model, rng);
                if rng.random_ratio(1, 5) {
                    kv.flush_sync().unwrap();
                }
            }
            kv.flush_sync().unwrap();
            same(&all(&kv), &model, "before");
            if rng.random_bool(0.7) {
                image(&mut kv, dirs[0], dirs[1]);
                dirs.swap(0, 1);
            }
            drop(kv);
            kv = open(dirs[0]).unwrap();
            same(&all(&kv), &model, "after");
        }
    }
}

#[test]
fn a_journal_that_is_missing_or_damaged_is_refused() {
    let (a, b) = (crate::TempDir::new("journal-gone"), crate::TempDir::new("journal-rot"));
    let mut kv = open(a.path()).unwrap();
    for n in 0..50u8 {
        let mut batch = KvBatch::default();
        batch.put(format!("O{n}"), vec![n; 100]);
        kv.apply(batch).unwrap();
        kv.flush_sync().unwrap();
    }
    image(&mut kv, a.path(), b.path());
    let journal = b.path().join("journal");
    let whole = std::fs::read(&journal).unwrap();
    let mut rotten = whole.clone();
    rotten[20 * PAGE as usize + 70] ^= 1;
    std::fs::write(&journal, rotten).unwrap();
    assert!(matches!(open(b.path()), Err(OpenError::JournalDamaged { frame: 21, .. })));
    std::fs::write(&journal, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(open(b.path()), Err(OpenError::Journal { .. })));
    std::fs::remove_file(&journal).unwrap();
    assert!(matches!(open(b.path()), Err(OpenError::Journal { .. })));
    std::fs::write(&journal, vec![0; whole.len()]).unwrap();
    assert!(matches!(open(b.path()), Err(OpenError::JournalDamaged { .. })));
    std::fs::write(&journal, whole).unwrap();
    assert_eq!(all(&open(b.path()).unwrap()).len(), 50);
}

#[test]
fn killed_at_every_start_it_still_starts() {
    let (a, b) = (crate::TempDir::new("journal-start-a"), crate::TempDir::new("journal-start-b"));
    let mut dirs = [a.path(), b.path()];
    let mut kv = open(dirs[0]).unwrap();
    let mut batch = KvBatch::default();
    batch.put("D00000001", vec![1; 4096]);
    batch.put("O1", vec![1; 4096]);
    kv.apply(batch).unwrap();
    kv.flush_sync().unwrap();
    let before = all(&kv);
    for _ in 0..300 {
        image(&mut kv, dirs[0], dirs[1]);
        dirs.swap(0, 1);
        kv = open(dirs[0]).unwrap();
    }
    assert_eq!(all(&kv), before);
}

#[test]
fn a_database_of_an_earlier_build_is_taken_over() {
    let dir = crate::TempDir::new("journal-older");
    let row = log_row(1, 1);
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let older = rocksdb::DB::open_cf(&options, dir.path(), ["default", "omap", "deferred"]).unwrap();
    older.put_cf(older.cf_handle("deferred").unwrap(), b"D00000001", b"old").unwrap();
    older.put(&row, b"old").unwrap();
    older.put(b"O1", b"old").unwrap();
    drop(older);
    let run = RocksConfig { create: false, ..config(dir.path()) };
    let open = || RocksKv::open(&run, channel().0).unwrap();
    let mut kv = open();
    for key in [&b"D00000001"[..], row.as_bytes(), b"O1"] {
        assert_eq!(kv.get(key).unwrap(), Some(Bytes::from_static(b"old")));
    }
    assert_eq!(kv.tables.db.get(&row).unwrap(), None, "moved");
    let mut batch = KvBatch::default();
    batch.delete_range("D00000001", "D00000002");
    batch.delete(row.clone());
    kv.apply(batch).unwrap();
    drop(kv);
    kv = open();
    assert_eq!((kv.get(b"D00000001").unwrap(), kv.get(row.as_bytes()).unwrap()), (None, None));
    drop(kv);
    options.create_missing_column_families(false);
    let back = rocksdb::DB::open_cf(&options, dir.path(), ["default", "omap", "deferred"]);
    assert!(back.is_err_and(|e| e.to_string().contains("journal")), "the earlier build does not open it any more");
}
