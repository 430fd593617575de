//! A store on a disk in memory, a model of what it should hold, and random transactions for both.

use bytes::Bytes;
use denc::BString;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use store::mem::{MemDev, MemDisk, MemKv};
use store::*;
use types::{Errno, HObject, Now, PgId, PoolId, ShardPgId, Snap};
use uuid::Uuid;

pub const FSID: Uuid = Uuid::from_u128(7);
pub const COLLS: [ShardPgId; 2] = [
    ShardPgId { pg: PgId { pool: PoolId(1), seed: 0 }, shard: ShardPgId::NO_SHARD },
    ShardPgId { pg: PgId { pool: PoolId(1), seed: 1 }, shard: ShardPgId::NO_SHARD },
];

pub type MemStore = Store<MemDev, MemKv>;

/// Small enough that everything happens: direct and deferred writes, batches, evictions.
pub fn tight_config(rng: &mut ChaCha8Rng) -> StoreConfig {
    StoreConfig {
        prefer_deferred_size: *[0, 4096, 8192, 32768].choose(rng).unwrap(),
        joined_read_bytes: *[0, 8192, 1 << 20].choose(rng).unwrap(),
        deferred_batch_bytes: *[1, 32 << 10, 1 << 20].choose(rng).unwrap(),
        deferred_window_bytes: *[1, 8192, 1 << 20].choose(rng).unwrap(),
        deferred_bytes_max: *[1, 40 << 10, 1 << 20].choose(rng).unwrap(),
        onode_cache_bytes: *[0, 4000, 1 << 20].choose(rng).unwrap(),
        data_cache_bytes: *[0, 16 << 10, 1 << 20].choose(rng).unwrap(),
        buffered_read: rng.random_ratio(3, 4),
        page_cached_bytes_max: *[0, 4096, 64 << 10].choose(rng).unwrap(),
        verified_regions: *[0, 1, 3, 100].choose(rng).unwrap(),
        retry_disk_reads: 1,
        policy: random_policy(rng),
        ..StoreConfig::default()
    }
}

/// Often nothing special; else any checksum, any algorithm, runs of any length.
pub fn random_policy(rng: &mut ChaCha8Rng) -> Policy {
    if rng.random_ratio(1, 3) {
        return Policy::default();
    }
    let compression = Compression {
        mode: *[CompressionMode::None, CompressionMode::Force, CompressionMode::Force].choose(rng).unwrap(),
        algorithm: *Algorithm::ALL.choose(rng).unwrap(),
        required_ratio_ppm: *[500_000, 875_000, 1_000_000].choose(rng).unwrap(),
        min_blob_size: *[0, 8 << 10, 12 << 10, 64 << 10, 256 << 10].choose(rng).unwrap(),
        ..Compression::default()
    };
    Policy { csum: *Csum::ALL.choose(rng).unwrap(), compression }
}

pub struct Driver {
    pub disk: MemDisk,
    pub store: MemStore,
    pub committed: Vec<TxcId>,
    pub reads: BTreeMap<ReadId, Result<ReadData, Errno>>,
    pub placed: BTreeMap<PlaceId, Placed>,
    pub checksum_errors: usize,
    pub poisoned: Option<Errno>,
    pub now: Now,
    /// One transaction in so many is a bulk one.
    pub bulk_every: u64,
    next: u64,
}

impl Driver {
    pub fn format(size: u64) -> MemDisk {
        let disk = MemDisk::new(size);
        MemStore::mkfs(&mut disk.dev(), &mut disk.kv(), FSID, Uuid::from_u128(8), 3).unwrap();
        disk
    }

    pub fn mount(disk: &MemDisk, config: StoreConfig) -> Driver {
        let store = MemStore::mount(disk.dev(), disk.kv(), config, FSID, 3).unwrap();
        Driver {
            disk: disk.clone(),
            store,
            committed: Vec::new(),
            reads: BTreeMap::new(),
            placed: BTreeMap::new(),
            checksum_errors: 0,
            poisoned: None,
            now: Now::default(),
            bulk_every: u64::MAX,
            next: 0,
        }
    }

    pub fn submit(&mut self, txn: Transaction) -> Result<TxcId, Errno> {
        self.next += 1;
        let id = TxcId(self.next);
        let done = match self.next.is_multiple_of(self.bulk_every) {
            true => self.store.submit_bulk(self.now, id, txn, Bulk::default()),
            false => self.store.submit(self.now, id, txn),
        };
        done.map(|()| id)
    }

    /// The same, with the data of every write brought to its place before; sometimes of some of them only. Other I/Os go on meanwhile.
    pub fn submit_placed(&mut self, rng: &mut ChaCha8Rng, txn: Transaction) -> Result<TxcId, Errno> {
        self.next += 1;
        let (place, id) = (PlaceId(self.next), TxcId(self.next));
        let pieces: Vec<_> = txn.ops.iter().filter_map(|op| if let Op::Write { data, .. } = op { Some(data.clone()) } else { None }).collect();
        let sizes: Vec<u64> = pieces.iter().map(|data| data.len() as u64).collect();
        let mut placed = Vec::new();
        if self.store.place(self.now, place, Default::default(), COLLS[0].pg.pool, pieces) {
            while !self.placed.contains_key(&place) && self.step(rng) {}
            self.settle();
            let mut all = self.placed.remove(&place).unwrap_or_default();
            placed.extend(sizes.into_iter().map(|n| all.split_to(n)));
            if rng.random_bool(0.2) && let Some(unwanted) = placed.pop() {
                self.store.give_back(unwanted);
            }
        }
        self.store.submit_bulk(self.now, id, txn, Bulk { placed, ..Bulk::default() }).map(|()| id)
    }

    /// Takes everything the store has to say.
    pub fn settle(&mut self) {
        while let Some(event) = self.store.poll_event() {
            match event {
                StoreEvent::Committed(txc) => {
                    assert!(self.poisoned.is_none(), "committed after poisoning");
                    self.committed.push(txc);
                }
                StoreEvent::ReadDone { id, result } => drop(self.reads.insert(id, result)),
                StoreEvent::Placed { id, placed } => drop(self.placed.insert(id, placed)),
                StoreEvent::ChecksumError { .. } => self.checksum_errors += 1,
                StoreEvent::Poisoned(errno) => self.poisoned = Some(errno),
            }
        }
    }

    /// One I/O of those in flight completes; false if there is none.
    pub fn step(&mut self, rng: &mut ChaCha8Rng) -> bool {
        self.settle();
        let pending = self.disk.pending();
        let Some((id, _)) = pending.choose(rng) else { return false };
        self.complete(*id);
        true
    }

    /// This one completes.
    pub fn complete(&mut self, id: IoId) {
        let result = self.disk.complete(id);
        self.store.handle_io(self.now, id, result);
    }

    /// Until nothing is in flight.
    pub fn run(&mut self, rng: &mut ChaCha8Rng) {
        while self.step(rng) {}
        self.settle();
    }

    pub fn commit(&mut self, rng: &mut ChaCha8Rng, txn: Transaction) {
        let id = self.submit(txn).unwrap();
        self.run(rng);
        assert!(self.committed.contains(&id));
    }

    pub fn start_read(&mut self, coll: ShardPgId, obj: &HObject, off: u64, len: u64, flags: ReadFlags) -> ReadId {
        self.next += 1;
        self.store.read(ReadId(self.next), coll, obj, off, len, flags);
        ReadId(self.next)
    }

    pub fn read(&mut self, rng: &mut ChaCha8Rng, coll: ShardPgId, obj: &HObject, off: u64, len: u64, flags: ReadFlags) -> Result<ReadData, Errno> {
        let id = self.start_read(coll, obj, off, len, flags);
        self.run(rng);
        self.reads.remove(&id).expect("every read is answered")
    }

    pub fn read_all(&mut self, rng: &mut ChaCha8Rng, coll: ShardPgId, obj: &HObject) -> Result<Bytes, Errno> {
        self.read(rng, coll, obj, 0, u64::MAX, ReadFlags::default()).map(|r| r.data.contiguous())
    }

    /// Checks what is on the disk. The same comes of it however little is known at a time.
    pub fn fsck(&self) -> FsckReport {
        let check = |how: Fsck<'_>| {
            let mut report = how.run(&mut self.disk.dev(), &self.disk.kv()).unwrap();
            report.errors.sort_by_key(|e| format!("{e:?}"));
            report
        };
        let report = check(Fsck::new(true));
        if report.more_errors == 0 {
            assert_eq!(check(Fsck::new(true).limits(3, 300)), report);
        }
        report
    }
}

#[derive(Clone, Default, Debug, PartialEq)]
pub struct ModelObject {
    pub data: Vec<u8>,
    pub attrs: BTreeMap<BString, Bytes>,
    pub omap: BTreeMap<BString, Bytes>,
    pub header: Bytes,
}

/// What one collection should hold.
#[derive(Clone, Default, Debug)]
pub struct Model {
    pub objects: BTreeMap<HObject, ModelObject>,
    pub keys: BTreeMap<BString, Bytes>,
}

impl Model {
    pub fn apply(&mut self, txn: &Transaction) {
        for op in &txn.ops {
            self.apply_op(txn, op);
        }
    }

    fn apply_op(&mut self, txn: &Transaction, op: &Op) {
        let name = |o: &ObjIdx| txn.objects[o.0 as usize].clone();
        match op {
            Op::Touch(o) | Op::Create(o) | Op::SetAllocHint { obj: o, .. } => drop(self.objects.entry(name(o)).or_default()),
            Op::Write { obj, off, data } => self.write(name(obj), *off, &data.contiguous()),
            Op::Xor { obj, off, data } => {
                let (off, mut data) = (*off as usize, data.contiguous().to_vec());
                let before = self.objects.get(&name(obj)).map_or(&[][..], |o| o.data.get(off..).unwrap_or_default());
                data.iter_mut().zip(before).for_each(|(new, old)| *new ^= old);
                self.write(name(obj), off as u64, &data);
            }
            Op::Zero { obj, off, len } => self.write(name(obj), *off, &vec![0; *len as usize]),
            Op::Truncate { obj, size } => self.objects.entry(name(obj)).or_default().data.resize(*size as usize, 0),
            Op::Remove(o) => drop(self.objects.remove(&name(o))),
            Op::SetAttrs { obj, attrs } => self.objects.entry(name(obj)).or_default().attrs.extend(attrs.clone()),
            Op::RmAttr { obj, name: attr } => {
                if let Some(o) = self.objects.get_mut(&name(obj)) {
                    o.attrs.remove(attr);
                }
            }
            Op::RmAttrs(o) => {
                if let Some(o) = self.objects.get_mut(&name(o)) {
                    o.attrs.clear();
                }
            }
            Op::Clone { from, to } => {
                let copy = self.objects[&name(from)].clone();
                self.objects.insert(name(to), copy);
            }
            Op::CloneRange { from, to, from_off, len, to_off } => {
                let src = &self.objects[&name(from)].data;
                let start = (*from_off as usize).min(src.len());
                let end = ((from_off + len) as usize).min(src.len());
                let part = src[start..end].to_vec();
                self.write(name(to), *to_off, &part);
            }
            Op::Rename { from, to } => {
                let o = self.objects.remove(&name(from)).unwrap();
                self.objects.insert(name(to), o);
            }
            Op::OmapSet { obj, pairs } => self.objects.entry(name(obj)).or_default().omap.extend(pairs.clone()),
            Op::OmapRm { obj, keys } => {
                if let Some(o) = self.objects.get_mut(&name(obj)) {
                    o.omap.retain(|k, _| !keys.contains(k));
                }
            }
            Op::OmapRmRange { obj, from, to } => {
                if let Some(o) = self.objects.get_mut(&name(obj)) {
                    o.omap.retain(|k, _| k < from || k >= to);
                }
            }
            Op::OmapClear(obj) => {
                if let Some(o) = self.objects.get_mut(&name(obj)) {
                    (o.omap, o.header) = Default::default();
                }
            }
            Op::OmapSetHeader { obj, header } => self.objects.entry(name(obj)).or_default().header = header.clone(),
            Op::CollSet { pairs } => self.keys.extend(pairs.clone()),
            Op::CollRm { keys } => self.keys.retain(|k, _| !keys.contains(k)),
            Op::CollRmRange { from, to } => self.keys.retain(|k, _| k < from || k >= to),
            Op::CreateColl { .. } | Op::RemoveColl | Op::SetCollBits { .. } | Op::On { .. } | Op::MergeColl { .. } => {}
        }
    }

    fn write(&mut self, name: HObject, off: u64, data: &[u8]) {
        let o = &mut self.objects.entry(name).or_default().data;
        let end = off as usize + data.len();
        if !data.is_empty() && o.len() < end {
            o.resize(end, 0);
        }
        if !data.is_empty() {
            o[off as usize..end].copy_from_slice(data);
        }
    }

    /// Everything but data, which may be asked while writes are in flight.
    pub fn check_meta(&self, d: &mut Driver, coll: ShardPgId, obj: &HObject) {
        match self.objects.get(obj) {
            None => assert_eq!(d.store.stat(coll, obj), Err(Errno::ENOENT)),
            Some(o) => {
                assert_eq!(d.store.stat(coll, obj).unwrap().size, o.data.len() as u64, "{obj:?}");
                assert_eq!(d.store.getattrs(coll, obj).unwrap(), o.attrs);
            }
        }
    }

    pub fn check_listing(&self, d: &mut Driver, coll: ShardPgId, page: usize) {
        let (mut at, end) = (HObject::min(), HObject::max());
        let mut found = Vec::new();
        while at != end {
            let (some, next) = d.store.list(coll, &at, &end, page).unwrap();
            assert!(some.len() == page || next == end);
            found.extend(some);
            at = next;
        }
        assert!(found.iter().eq(self.objects.keys()), "{found:?} {:?}", self.objects.keys());
        let keys = d.store.coll_scan(coll, Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap();
        assert_eq!(keys.into_iter().collect::<BTreeMap<_, _>>(), self.keys);
    }

    pub fn check_all(&self, d: &mut Driver, rng: &mut ChaCha8Rng, coll: ShardPgId) {
        self.check_listing(d, coll, 3);
        for (name, o) in &self.objects {
            self.check_meta(d, coll, name);
            assert_eq!(d.read_all(rng, coll, name).unwrap(), o.data, "{name:?}");
            let omap = d.store.omap_list(coll, name, Bound::Unbounded, usize::MAX).unwrap();
            assert_eq!(omap.into_iter().collect::<BTreeMap<_, _>>(), o.omap, "{name:?}");
            assert_eq!(d.store.omap_get_header(coll, name).unwrap(), o.header);
        }
    }
}

pub fn object(coll: ShardPgId, n: u32) -> HObject {
    HObject {
        pool: coll.pg.pool,
        hash: coll.pg.seed | n << 1,
        nspace: if n.is_multiple_of(3) { "ns".into() } else { "".into() },
        key: "".into(),
        name: format!("object{n}").into(),
        snap: Snap::HEAD,
        max: false,
    }
}

/// Noise, or something that can be compressed, or one after the other.
fn bytes(rng: &mut ChaCha8Rng, n: usize) -> Bytes {
    let mut v = vec![0; n];
    rng.fill(&mut v[..]);
    for part in v.chunks_mut(10_000) {
        if rng.random() {
            let (seed, noisy) = (rng.random_range(1..u8::MAX), part.len() / 8);
            part.iter_mut().skip(noisy).enumerate().for_each(|(i, b)| *b = seed.wrapping_add((i / 100) as u8));
        }
    }
    v.into()
}

/// An offset or a length: often at or beside a block's edge.
fn extent(rng: &mut ChaCha8Rng) -> u64 {
    match rng.random_range(0..4) {
        0 => rng.random_range(0..20) * 4096,
        1 => rng.random_range(0..20_000),
        2 => rng.random_range(1..12) * 4096 + rng.random_range(0..3) - 1,
        _ => rng.random_range(0..400_000),
    }
}

/// A random transaction that the model says is possible.
pub fn random_txn(rng: &mut ChaCha8Rng, coll: ShardPgId, model: &Model) -> Transaction {
    let mut t = Transaction::new(coll);
    let mut m = model.clone();
    for _ in 0..rng.random_range(1..4) {
        let mut one = Transaction::new(coll);
        random_op(rng, coll, &m, &mut one);
        m.apply(&one);
        t.append(one);
    }
    t
}

fn random_op(rng: &mut ChaCha8Rng, coll: ShardPgId, m: &Model, t: &mut Transaction) {
    let words = ["a", "b", "c", "d"];
    let obj = object(coll, rng.random_range(0..6));
    let other = object(coll, rng.random_range(0..6));
    let exists = m.objects.contains_key(&obj);
    let word = *words.choose(rng).unwrap();
    let word2 = *words.choose(rng).unwrap();
    match rng.random_range(0..26) {
        0..=7 => {
            let (off, len) = (extent(rng), extent(rng).min(150_000));
            let data = bytes(rng, len as usize);
            if rng.random_ratio(1, 5) { t.xor(&obj, off, data) } else { t.write(&obj, off, data) }
        }
        8 => t.zero(&obj, extent(rng), extent(rng)),
        9..=10 => t.truncate(&obj, extent(rng)),
        11 => t.remove(&obj),
        12 => t.set_attr(&obj, word, bytes(rng, 30)),
        13 => t.rm_attr(&obj, word),
        14 if rng.random_bool(0.2) => t.rm_attrs(&obj),
        14 | 15 if exists => t.clone_obj(&obj, &other),
        16 | 17 if exists => {
            let aligned = rng.random_bool(0.4);
            let (mut from, mut to) = (extent(rng), extent(rng));
            if aligned {
                (from, to) = (from / 4096 * 4096, to / 4096 * 4096);
            }
            t.clone_range(&obj, &other, from, extent(rng).min(60_000), to);
        }
        18 if exists => t.rename(&obj, &other),
        19 => t.omap_set(&obj, vec![(word.into(), bytes(rng, 20)), (word2.into(), bytes(rng, 5))]),
        20 => t.omap_rm(&obj, vec![word.into()]),
        21 if rng.random_bool(0.5) => t.omap_rm_range(&obj, word, word2),
        21 => t.omap_clear(&obj),
        22 => t.omap_set_header(&obj, bytes(rng, 9)),
        23 => t.coll_rm_range(word, word2),
        24 | 25 if !exists => t.create(&obj),
        _ => t.coll_set(word, bytes(rng, 50)),
    }
}

/// Both collections, empty.
pub fn create_colls(d: &mut Driver, rng: &mut ChaCha8Rng) {
    for coll in COLLS {
        let mut t = Transaction::new(coll);
        t.create_coll(1);
        d.commit(rng, t);
    }
}

pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

pub fn touched(t: &Transaction) -> BTreeSet<HObject> {
    t.objects.iter().cloned().collect()
}

/// A new store with all collections, mounted.
pub fn mounted(size: u64, config: StoreConfig) -> (Driver, ChaCha8Rng) {
    let mut rng = rng(1);
    let mut d = Driver::mount(&Driver::format(size), config);
    create_colls(&mut d, &mut rng);
    (d, rng)
}

/// A write to an object of the first collection.
pub fn write(obj: &HObject, off: u64, data: Vec<u8>) -> Transaction {
    let mut t = Transaction::new(COLLS[0]);
    t.write(obj, off, Bytes::from(data));
    t
}
