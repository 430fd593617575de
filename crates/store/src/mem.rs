//! A disk and a key-value engine in memory that crash as real ones may: for tests and for the simulation.
//!
//! Holds: nothing happens by itself. Whoever drives it looks at `pending`, and decides which I/O completes next, which
//! fails, and when power goes.

use crate::{BlockDev, IoId, Kv, KvBatch, KvError, KvOp};
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use types::Errno;
use types::msg::BufList;

const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// Pages that the page cache has at most.
const PAGE_CACHE_MAX: usize = 256;

/// What an I/O in flight is; writes and reads with their length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemIo {
    Read(usize),
    Write(usize),
    DevFlush,
    KvFlush,
    /// Of the database; never in flight, for it is answered at once.
    KvRead,
}

/// The medium: one disk and one database that lose power together. Clones are handles to the same.
#[derive(Clone)]
pub struct MemDisk(Arc<Mutex<Inner>>);

/// The disk's side, for a store.
pub struct MemDev(MemDisk);

/// The database's side, for a store or a monitor.
pub struct MemKv(MemDisk);

#[derive(Default)]
struct Inner {
    size: u64,
    pending: Vec<(IoId, Pending)>,
    /// What readers see.
    pages: BTreeMap<u64, Vec<u8>>,
    /// What survives.
    durable: BTreeMap<u64, Vec<u8>>,
    /// Pages that were not read since they were last written.
    unread: BTreeSet<u64>,
    /// Writes answered since the last flush that covered them.
    unflushed: Vec<(u64, Bytes)>,
    kv: BTreeMap<Bytes, Bytes>,
    kv_durable: BTreeMap<Bytes, Bytes>,
    /// Batches applied that no flush has covered.
    kv_tail: Vec<KvBatch>,
    /// Batches and writes that the crash must keep, counted over all time.
    kv_dropped: usize,
    dev_dropped: usize,
    /// A flush of the database has failed: its log has a hole, and what was applied since is behind that.
    kv_lost: bool,
    fail: Option<(MemIo, Errno, u64)>,
    /// As Linux keeps what was read of a block device: a write takes it out as it begins, and a read before its end brings the former content back for good.
    page_cache: BTreeMap<u64, Vec<u8>>,
}

enum Pending {
    Read { off: u64, len: usize, cached: bool },
    Write { off: u64, data: Bytes },
    /// Covers unflushed writes up to this count.
    DevFlush(usize),
    KvFlush(usize),
}

impl MemDisk {
    /// An empty disk of `size` bytes.
    pub fn new(size: u64) -> Self {
        MemDisk(Arc::new(Mutex::new(Inner { size, ..Inner::default() })))
    }

    pub fn dev(&self) -> MemDev {
        MemDev(self.clone())
    }

    pub fn kv(&self) -> MemKv {
        MemKv(self.clone())
    }

    /// What is in flight, oldest first.
    pub fn pending(&self) -> Vec<(IoId, MemIo)> {
        self.lock().pending.iter().map(|(id, p)| (*id, p.kind())).collect()
    }

    /// Lets an I/O happen, and returns what to tell the store. Panics if it is not pending.
    pub fn complete(&self, id: IoId) -> Result<Bytes, Errno> {
        let inner = &mut *self.lock();
        let at = inner.pending.iter().position(|(i, _)| *i == id).expect("an I/O that is pending");
        let (_, io) = inner.pending.remove(at);
        if let Some((_, errno, seed)) = inner.fail.take_if(|(kind, ..)| kind.same(io.kind())) {
            inner.spoil(io, &mut ChaCha8Rng::seed_from_u64(seed));
            return Err(errno);
        }
        inner.perform(io)
    }

    /// The next I/O of this kind to complete (lengths do not matter) fails. What it leaves behind is drawn: of a write some sectors, of a
    /// flush some of what it should have made durable; no later flush makes up for that.
    pub fn fail_next(&self, kind: MemIo, errno: Errno, seed: u64) {
        self.lock().fail = Some((kind, errno, seed));
    }

    /// Power goes and comes back. Of what no flush has promised, disk sectors are kept or lost, in any order; batches
    /// of the database are kept up to some point.
    pub fn crash(&self, rng: &mut ChaCha8Rng) {
        let inner = &mut *self.lock();
        let mut writes: Vec<(u64, Bytes)> = std::mem::take(&mut inner.unflushed);
        for (_, io) in std::mem::take(&mut inner.pending) {
            if let Pending::Write { off, data } = io {
                writes.push((off, data));
            }
        }
        if rng.random_bool(0.5) {
            writes.shuffle(rng);
        }
        for (off, data) in writes {
            tear(&mut inner.durable, off, &data, rng);
        }
        inner.pages = inner.durable.clone();
        let tail = std::mem::take(&mut inner.kv_tail);
        let kept = rng.random_range(0..=tail.len());
        for batch in tail.into_iter().take(kept).filter(|_| !inner.kv_lost) {
            apply(&mut inner.kv_durable, batch);
        }
        inner.kv = inner.kv_durable.clone();
        inner.page_cache.clear();
        (inner.kv_dropped, inner.dev_dropped, inner.kv_lost, inner.fail) = (0, 0, false, None);
    }

    /// Another medium, with what is left of this one if power goes now and nothing is kept that no flush has promised.
    pub fn promised(&self) -> MemDisk {
        let inner = self.lock();
        MemDisk::at_rest(inner.size, inner.durable.clone(), inner.kv_durable.clone())
    }

    /// Every medium that may be left of this one if power goes now. A sector holds what is durable, or what any write has for it that
    /// no flush has covered: that is any choice of these writes, in any order, torn anywhere. Of the batches any first ones are kept.
    pub fn crashes(&self) -> impl ExactSizeIterator<Item = MemDisk> + use<> {
        let inner = self.lock();
        let (size, durable) = (inner.size, inner.durable.clone());
        let sectors = inner.sectors_at_stake();
        let mut kvs = vec![inner.kv_durable.clone()];
        for batch in &inner.kv_tail {
            let mut longer = kvs[kvs.len() - 1].clone();
            apply(&mut longer, batch.clone());
            kvs.push(longer);
        }
        let count = sectors.values().fold(kvs.len(), |n, contents| n.saturating_mul(contents.len()));
        (0..count).map(move |mut rest| {
            let mut choose = |of: usize| {
                let choice = rest % of;
                rest /= of;
                choice
            };
            let kv = kvs[choose(kvs.len())].clone();
            let mut pages = durable.clone();
            for (off, contents) in &sectors {
                let choice = choose(contents.len());
                if choice > 0 {
                    let page = pages.entry(off / PAGE as u64).or_insert_with(|| vec![0; PAGE]);
                    let at = (off % PAGE as u64) as usize;
                    page[at..at + SECTOR].copy_from_slice(&contents[choice]);
                }
            }
            MemDisk::at_rest(size, pages, kv)
        })
    }

    /// Tells media apart by what is durable on them, as the store does: by checksums.
    pub fn digest(&self) -> u64 {
        let inner = self.lock();
        let mut hasher = DefaultHasher::new();
        inner.durable.iter().for_each(|(page, data)| (page, denc::crc32c(data)).hash(&mut hasher));
        inner.kv_durable.iter().for_each(|(k, v)| (k, v.len(), denc::crc32c(v)).hash(&mut hasher));
        hasher.finish()
    }

    /// A medium that nobody has used since power came back.
    fn at_rest(size: u64, pages: BTreeMap<u64, Vec<u8>>, kv: BTreeMap<Bytes, Bytes>) -> MemDisk {
        let inner = Inner { size, durable: pages.clone(), pages, kv_durable: kv.clone(), kv, ..Inner::default() };
        MemDisk(Arc::new(Mutex::new(inner)))
    }

    /// Turns one bit of the medium over.
    pub fn flip_bit(&self, off: u64, bit: u8) {
        let inner = &mut *self.lock();
        for pages in [&mut inner.pages, &mut inner.durable] {
            let page = pages.entry(off / PAGE as u64).or_insert_with(|| vec![0; PAGE]);
            page[(off % PAGE as u64) as usize] ^= 1 << (bit % 8);
        }
    }

    /// Every page that was ever written, by number (of 4096 bytes).
    pub fn pages_in_use(&self) -> Vec<u64> {
        self.lock().pages.keys().copied().collect()
    }

    /// Pages that no I/O has read since it wrote them.
    pub fn pages_unread(&self) -> Vec<u64> {
        self.lock().unread.iter().copied().collect()
    }

    /// A page comes to hold something else, as if the medium had aged: no I/O tells.
    pub fn rot(&self, page: u64, at: usize) {
        let inner = &mut *self.lock();
        for pages in [&mut inner.pages, &mut inner.durable] {
            if let Some(byte) = pages.get_mut(&page).and_then(|p| p.get_mut(at % PAGE)) {
                *byte ^= 0x10;
            }
        }
    }

    /// What the page cache has is another content, as if a read had met a write.
    pub fn spoil_page_cache(&self) {
        self.lock().page_cache.values_mut().for_each(|content| content[9] ^= 0x10);
    }

    /// For a read of the database, which may fail.
    fn readable(&self) -> Result<MutexGuard<'_, Inner>, KvError> {
        let mut inner = self.lock();
        match inner.fail.take_if(|(kind, ..)| *kind == MemIo::KvRead) {
            None => Ok(inner),
            Some((_, errno, _)) => Err(KvError { what: "read", detail: "as the test wants it".into(), errno }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no holder has panicked")
    }
}

impl MemIo {
    fn same(self, other: MemIo) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

impl Pending {
    fn kind(&self) -> MemIo {
        match self {
            Pending::Read { len, .. } => MemIo::Read(*len),
            Pending::Write { data, .. } => MemIo::Write(data.len()),
            Pending::DevFlush(_) => MemIo::DevFlush,
            Pending::KvFlush(_) => MemIo::KvFlush,
        }
    }
}

impl Inner {
    fn perform(&mut self, io: Pending) -> Result<Bytes, Errno> {
        match io {
            Pending::Read { off, len, cached: false } => {
                for page in pages(off, len) {
                    self.unread.remove(&page);
                }
                return Ok(read(&self.pages, off, len));
            }
            Pending::Read { off, len, cached: true } => {
                for page in pages(off, len) {
                    if !self.page_cache.contains_key(&page) {
                        self.unread.remove(&page);
                        let content = read(&self.pages, page * PAGE as u64, PAGE).to_vec();
                        self.page_cache.insert(page, content);
                    }
                }
                let found = read(&self.page_cache, off, len);
                while self.page_cache.len() > PAGE_CACHE_MAX {
                    self.page_cache.pop_first();
                }
                return Ok(found);
            }
            Pending::Write { off, data } => {
                write(&mut self.pages, off, &data);
                self.unread.extend(pages(off, data.len()));
                self.unflushed.push((off, data));
            }
            Pending::DevFlush(upto) => {
                let n = upto.saturating_sub(self.dev_dropped);
                for (off, data) in self.unflushed.drain(..n) {
                    write(&mut self.durable, off, &data);
                }
                self.dev_dropped += n;
            }
            Pending::KvFlush(upto) => {
                let n = upto.saturating_sub(self.kv_dropped);
                for batch in self.kv_tail.drain(..n).filter(|_| !self.kv_lost) {
                    apply(&mut self.kv_durable, batch);
                }
                self.kv_dropped += n;
            }
        }
        Ok(Bytes::new())
    }

    /// An I/O fails. Linux takes pages for clean whose flush has failed: they are what they were, or what was written, until they are read
    /// from the disk again, and no flush finds them any more.
    fn spoil(&mut self, io: Pending, rng: &mut ChaCha8Rng) {
        match io {
            Pending::Read { .. } => {}
            Pending::Write { off, data } => {
                tear(&mut self.pages, off, &data, rng);
                let torn = read(&self.pages, off, data.len());
                self.unflushed.push((off, torn));
            }
            Pending::DevFlush(upto) => {
                let n = upto.saturating_sub(self.dev_dropped);
                let (kept, evicted) = (rng.random_range(0..=10), rng.random_ratio(1, 2));
                for (off, data) in self.unflushed.drain(..n) {
                    if rng.random_ratio(kept, 10) {
                        tear(&mut self.durable, off, &data, rng);
                    }
                    if evicted {
                        write(&mut self.pages, off, &read(&self.durable, off, data.len()));
                    }
                }
                // What was written since is where readers look for it.
                self.unflushed.iter().for_each(|(off, data)| write(&mut self.pages, *off, data));
                self.dev_dropped += n;
            }
            Pending::KvFlush(upto) => {
                let n = upto.saturating_sub(self.kv_dropped);
                let kept = rng.random_range(0..=n);
                for batch in self.kv_tail.drain(..n).take(kept).filter(|_| !self.kv_lost) {
                    apply(&mut self.kv_durable, batch);
                }
                self.kv_dropped += n;
                self.kv_lost = true;
            }
        }
    }

    /// By offset, every sector that a crash may leave with one content or another; what is durable comes first.
    fn sectors_at_stake(&self) -> BTreeMap<u64, Vec<Bytes>> {
        let on_the_way = self.pending.iter().filter_map(|(_, io)| match io {
            Pending::Write { off, data } => Some((*off, data)),
            _ => None,
        });
        let answered = self.unflushed.iter().map(|(off, data)| (*off, data));
        let mut sectors: BTreeMap<u64, Vec<Bytes>> = BTreeMap::new();
        for (off, data) in answered.chain(on_the_way) {
            let old = read(&self.durable, off, data.len());
            for at in (0..data.len()).step_by(SECTOR) {
                let contents = sectors.entry(off + at as u64).or_insert_with(|| vec![old.slice(at..at + SECTOR)]);
                let new = data.slice(at..at + SECTOR);
                if !contents.contains(&new) {
                    contents.push(new);
                }
            }
        }
        sectors.retain(|_, contents| contents.len() > 1);
        sectors
    }
}

fn pages(off: u64, len: usize) -> std::ops::Range<u64> {
    off / PAGE as u64..(off + len as u64) / PAGE as u64
}

fn read(pages: &BTreeMap<u64, Vec<u8>>, off: u64, len: usize) -> Bytes {
    let mut out = Vec::with_capacity(len);
    for page in self::pages(off, len) {
        match pages.get(&page) {
            Some(data) => out.extend_from_slice(data),
            None => out.resize(out.len() + PAGE, 0),
        }
    }
    out.into()
}

fn write(pages: &mut BTreeMap<u64, Vec<u8>>, off: u64, data: &[u8]) {
    for (i, page) in data.chunks(PAGE).enumerate() {
        pages.insert(off / PAGE as u64 + i as u64, page.to_vec());
    }
}

/// All, nothing, or a random choice of sectors of a write.
fn tear(pages: &mut BTreeMap<u64, Vec<u8>>, off: u64, data: &[u8], rng: &mut ChaCha8Rng) {
    let keep = match rng.random_range(0..3) {
        0 => return,
        1 => 1.0,
        _ => 0.5,
    };
    for (i, new) in data.chunks(PAGE).enumerate() {
        let page = pages.entry(off / PAGE as u64 + i as u64).or_insert_with(|| vec![0; PAGE]);
        for (old, new) in page.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
            if rng.random_bool(keep) {
                old.copy_from_slice(new);
            }
        }
    }
}

fn apply(map: &mut BTreeMap<Bytes, Bytes>, batch: KvBatch) {
    for op in batch.ops {
        match op {
            KvOp::Put(k, v) => {
                map.insert(k, v);
            }
            KvOp::Delete(k) => {
                map.remove(&k);
            }
            KvOp::DeleteRange(from, to) => {
                let gone: Vec<Bytes> = map.range(from..to).map(|(k, _)| k.clone()).collect();
                gone.iter().for_each(|k| drop(map.remove(k)));
            }
        }
    }
}

impl MemDev {
    fn start(&mut self, id: IoId, io: impl FnOnce(&Inner) -> Pending) {
        let inner = &mut *self.0.lock();
        let io = io(inner);
        inner.pending.push((id, io));
    }

    fn check(&self, off: u64, len: usize) {
        let whole = off.is_multiple_of(PAGE as u64) && len.is_multiple_of(PAGE);
        assert!(whole && len > 0 && off + len as u64 <= self.size(), "I/O at {off}, {len} bytes");
    }
}

impl BlockDev for MemDev {
    fn size(&self) -> u64 {
        self.0.lock().size
    }
    fn block_size(&self) -> u32 {
        SECTOR as u32
    }
    fn read(&mut self, id: IoId, off: u64, len: usize) {
        self.check(off, len);
        self.start(id, |_| Pending::Read { off, len, cached: false });
    }
    fn read_cached(&mut self, id: IoId, off: u64, len: usize) {
        self.check(off, len);
        self.start(id, |_| Pending::Read { off, len, cached: true });
    }
    fn cached(&mut self, off: u64, len: usize) -> Option<Bytes> {
        let inner = self.0.lock();
        pages(off, len).all(|page| inner.page_cache.contains_key(&page)).then(|| read(&inner.page_cache, off, len))
    }
    fn uncache(&mut self, off: u64, len: u64) {
        let gone = pages(off, len as usize);
        self.0.lock().page_cache.retain(|page, _| !gone.contains(page));
    }
    fn write(&mut self, id: IoId, off: u64, data: BufList) {
        self.check(off, data.len());
        self.uncache(off, data.len() as u64);
        self.start(id, |_| Pending::Write { off, data: data.contiguous() });
    }
    fn flush(&mut self, id: IoId) {
        self.start(id, |inner| Pending::DevFlush(inner.dev_dropped + inner.unflushed.len()));
    }
    fn discard(&mut self, _off: u64, _len: u64) {}
    fn read_sync(&mut self, off: u64, len: usize) -> Result<Bytes, Errno> {
        Ok(read(&self.0.lock().pages, off, len))
    }
    fn write_sync(&mut self, off: u64, data: &[u8]) -> Result<(), Errno> {
        let inner = &mut *self.0.lock();
        write(&mut inner.pages, off, data);
        write(&mut inner.durable, off, data);
        Ok(())
    }
}

impl Kv for MemKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        Ok(self.0.readable()?.kv.get(key).cloned())
    }
    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>, KvError> {
        Ok(scan(&self.0.readable()?.kv, from, to).map_or_else(Vec::new, |r| r.take(limit).collect()))
    }
    fn scan_reverse(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>, KvError> {
        Ok(scan(&self.0.readable()?.kv, from, to).map_or_else(Vec::new, |r| r.rev().take(limit).collect()))
    }
    fn apply(&mut self, batch: KvBatch) -> Result<(), KvError> {
        let inner = &mut *self.0.lock();
        apply(&mut inner.kv, batch.clone());
        inner.kv_tail.push(batch);
        Ok(())
    }
    fn flush(&mut self, id: IoId) {
        let inner = &mut *self.0.lock();
        let upto = inner.kv_dropped + inner.kv_tail.len();
        inner.pending.push((id, Pending::KvFlush(upto)));
    }
    fn flush_sync(&mut self) -> Result<(), KvError> {
        let inner = &mut *self.0.lock();
        for batch in std::mem::take(&mut inner.kv_tail) {
            inner.kv_dropped += 1;
            if inner.kv_lost {
                continue;
            }
            apply(&mut inner.kv_durable, batch);
        }
        Ok(())
    }
}

/// The pairs of a range; `None` for one that ends before it begins.
fn scan<'a>(
    map: &'a BTreeMap<Bytes, Bytes>,
    from: Bound<&'a [u8]>,
    to: Bound<&'a [u8]>,
) -> Option<impl DoubleEndedIterator<Item = (Bytes, Bytes)> + 'a> {
    if let (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) = (from, to)
        && (a > b || (a == b && (from, to) != (Bound::Included(a), Bound::Included(b))))
    {
        return None;
    }
    Some(map.range::<[u8], _>((from, to)).map(|(k, v)| (k.clone(), v.clone())))
}
