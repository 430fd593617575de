//! Operations on objects as strangers may ask for them, run on a small store; and a store whose records were damaged.

use bytes::Bytes;
use denc::{BString, to_bytes};
use osd::Snaps;
use osd::cls::{CLASSES, Origin};
use osd::mutation::Step;
use osd::object::INFO_ATTR;
use osd::ops::{Env, Fetched, Limits, Outcome, Plan, execute, list_page};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::ops::Bound;
use store::mem::{MemDev, MemDisk, MemKv};
use store::{Algorithm, Compression, CompressionMode, Csum, Policy};
use store::{Kv, KvBatch, ReadData, ReadFlags, ReadId, Store, StoreConfig, StoreEvent, Transaction, TxcId};
use types::msg::osd_op::{Extent, Op, OsdOp, Pgls, Watch, Xattr};
use types::msg::{MOsdOp, RawMessage, WireMessage};
use types::{EVersion, Epoch, Errno, HObject, Mono, Now, ObjectLocator, PgId, PoolId, ReqId, ShardPgId, Snap, Utime, features};
use uuid::Uuid;

const COLL: ShardPgId = ShardPgId { pg: PgId { pool: PoolId(1), seed: 0 }, shard: -1 };
const NOW: Now = Now { mono: Mono(1), wall: Utime { sec: 1000, nsec: 0 } };
/// Enough for what 64 KiB of operations write; objects end at 1 MiB here.
const DISK_BYTES: u64 = 64 << 20;

/// One object with data, an xattr and an omap, on a store of its own.
struct Bench {
    disk: MemDisk,
    store: Store<MemDev, MemKv>,
    obj: HObject,
    rng: ChaCha8Rng,
    txcs: u64,
}

impl Bench {
    fn new() -> Self {
        Bench::with(StoreConfig::default())
    }

    fn with(config: StoreConfig) -> Self {
        let disk = MemDisk::new(DISK_BYTES);
        Store::mkfs(&mut disk.dev(), &mut disk.kv(), Uuid::nil(), Uuid::nil(), 0).expect("an empty disk");
        let store = Store::mount(disk.dev(), disk.kv(), config, Uuid::nil(), 0).expect("a new store");
        let obj = HObject { pool: PoolId(1), name: "o".into(), snap: Snap::HEAD, ..HObject::min() };
        let mut bench = Bench { disk, store, obj, rng: ChaCha8Rng::seed_from_u64(1), txcs: 0 };
        let mut txn = Transaction::new(COLL);
        txn.create_coll(0);
        bench.commit(txn);
        let data = Bytes::from(vec![7; 10_000]);
        bench.run(&[OsdOp::write_full(data), setxattr(), with(Op::OmapSetVals, &[("k", "v")])]);
        bench
    }

    fn commit(&mut self, txn: Transaction) {
        self.txcs += 1;
        if self.store.submit(NOW, TxcId(self.txcs), txn).is_ok() {
            self.drain();
        }
    }

    /// Lets the disk finish; what was read last.
    fn drain(&mut self) -> Option<Result<ReadData, Errno>> {
        let mut read = None;
        loop {
            while let Some(event) = self.store.poll_event() {
                if let StoreEvent::ReadDone { result, .. } = event {
                    read = Some(result);
                }
            }
            let Some((id, _)) = self.disk.pending().first().copied() else { return read };
            let result = self.disk.complete(id);
            self.store.handle_io(NOW, id, result);
        }
    }

    fn plan(&mut self, ops: &[OsdOp]) -> Option<Plan> {
        let (limits, mut fetched) = (Limits { object_size_max: 1 << 20, ..Limits::default() }, Fetched::default());
        loop {
            let stored = self.store.getattr(COLL, &self.obj, INFO_ATTR).ok();
            let stored = stored.map(|raw| denc::from_bytes(&raw).expect("what we wrote"));
            let env = Env {
                disk: &mut self.store,
                coll: COLL,
                obj: &self.obj,
                now: NOW,
                origin: Origin::default(),
                limits: &limits,
                rng: &mut self.rng,
                fetched: &fetched,
                notify_id: 1,
                snaps: &Snaps::default(),
                watch_connected: &|cookie| cookie == 1,
            };
            match execute(env, ops, stored, true) {
                Outcome::Plan(plan) => return Some(*plan),
                // Copies come from other PGs.
                Outcome::NeedCopy(_) => return None,
                Outcome::NeedReads(keys) => {
                    for key in keys {
                        let flags = ReadFlags { sparse: key.sparse, ..ReadFlags::default() };
                        self.store.read(ReadId(1), COLL, &self.obj, key.off, key.len, flags);
                        let read = self.drain().unwrap_or(Err(Errno::EIO));
                        fetched.reads.insert(key, read);
                    }
                }
            }
        }
    }

    fn run(&mut self, ops: &[OsdOp]) {
        let Some(plan) = self.plan(ops) else { return };
        if plan.mutation.is_empty() {
            return;
        }
        let mut mutation = plan.mutation;
        if plan.exists {
            mutation.push(Step::SetAttr { name: INFO_ATTR.into(), value: to_bytes(&plan.info, 0) });
        }
        let mut txn = Transaction::new(COLL);
        mutation.into_transaction(&mut txn, &self.obj);
        self.commit(txn);
    }
}

fn setxattr() -> OsdOp {
    let args = Xattr { name_len: 1, value_len: 1, ..Xattr::default() };
    OsdOp::with(Op::SetXattr(args), Bytes::from_static(b"av"))
}

fn with(op: Op, pairs: &[(&str, &str)]) -> OsdOp {
    let pairs: Vec<(BString, BString)> = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    OsdOp::with(op, to_bytes(&pairs, 0))
}

/// u16 length of the front, the front, the data.
fn message(data: &[u8]) -> Option<MOsdOp> {
    let (&[a, b], rest) = data.split_first_chunk()?;
    let (front, data) = rest.split_at(usize::from(u16::from_le_bytes([a, b])).min(rest.len()));
    let (front, data) = (Bytes::copy_from_slice(front), Bytes::copy_from_slice(data).into());
    MOsdOp::from_raw(&RawMessage { kind: MOsdOp::KIND, version: 8, front, data, ..RawMessage::default() }).ok()
}

fn seed(ops: Vec<OsdOp>) -> Vec<u8> {
    let m = MOsdOp {
        pgid: COLL,
        hash: 0,
        epoch: Epoch(1),
        flags: 0,
        reqid: ReqId::default(),
        client_inc: 1,
        mtime: Utime::ZERO,
        locator: ObjectLocator::pool(PoolId(1)),
        oid: "o".into(),
        ops,
        snap: Snap::HEAD,
        snap_seq: Snap(0),
        snaps: vec![],
        retry: -1,
        features: features::SUPPORTED,
    };
    let raw = m.to_raw(features::SUPPORTED);
    [&(raw.front.len() as u16).to_le_bytes(), &raw.front[..], &raw.data.contiguous()[..]].concat()
}

pub fn operations(data: &[u8]) {
    let Some(m) = message(data) else { return };
    let mut bench = Bench::new();
    // Twice: the second run meets what the first one left.
    bench.run(&m.ops);
    bench.run(&m.ops);
}

pub fn operation_seeds() -> Vec<Vec<u8>> {
    let extent = Extent { offset: 4000, length: 300, ..Extent::default() };
    let bytes = Bytes::from(vec![1; 300]);
    let mut seeds = vec![
        seed(vec![OsdOp::read(0, 0), Op::Stat.into(), Op::SparseRead(extent).into(), Op::MapExt(extent).into()]),
        seed(vec![OsdOp::with(Op::Write(extent), bytes.clone()), OsdOp::with(Op::Append(extent), bytes.clone())]),
        seed(vec![OsdOp::with(Op::CmpExt(extent), bytes), Op::Zero(extent).into(), Op::Truncate(extent).into()]),
        seed(vec![setxattr(), OsdOp::getxattr(b"a"), Op::GetXattrs.into()]),
        seed(vec![with(Op::OmapSetVals, &[("a", "b")]), with(Op::OmapRmKeys, &[("a", "b")]), Op::OmapClear.into()]),
        seed(vec![OsdOp::with(Op::OmapGetVals, to_bytes(&(BString::from(""), 10u64, BString::from("")), 0))]),
        seed(vec![Op::Watch(Watch { cookie: 1, op: Watch::WATCH, ..Watch::default() }).into(), Op::ListWatchers.into()]),
        seed(vec![Op::Delete.into()]),
    ];
    for class in CLASSES {
        for method in class.methods {
            seeds.push(seed(vec![OsdOp::call(class.name, method.name, &[1; 80])]));
        }
    }
    seeds
}

pub fn listing(data: &[u8]) {
    let Some(m) = message(data) else { return };
    let mut bench = Bench::new();
    let object = HObject { pool: COLL.pg.pool, hash: COLL.pg.seed, name: "missing".into(), ..HObject::min() };
    let missing = BTreeMap::from([(object, EVersion { epoch: Epoch(3), version: 7 })]);
    for op in m.ops.iter().take(4) {
        let _ = list_page(&mut bench.store, COLL, &missing, 8, &m, op, true);
    }
}

pub fn listing_seeds() -> Vec<Vec<u8>> {
    let page = Pgls { count: 10, ..Pgls::default() };
    let cursor = to_bytes(&HObject::min(), 0);
    let filter = [BString::from(""), "".into(), "plain".into(), "_a".into(), "v".into()];
    let filter: Vec<u8> = filter.iter().flat_map(|s| to_bytes(s, 0).to_vec()).collect();
    let filtered = Bytes::from([&filter[..], &cursor[..]].concat());
    vec![
        seed(vec![OsdOp::with(Op::Pgnls(page), cursor.clone()), OsdOp::with(Op::Pgls(page), cursor)]),
        seed(vec![OsdOp::with(Op::PgnlsFilter(page), filtered)]),
    ]
}

/// u8: which of the store's records; then what stands in it instead.
pub fn records(data: &[u8]) {
    changed_record(data, StoreConfig::default());
}

/// The same of a store that compresses.
pub fn packed_records(data: &[u8]) {
    changed_record(data, packing());
}

/// Without checksums of blocks, so that what is in them is believed.
fn packing() -> StoreConfig {
    let compression = Compression { mode: CompressionMode::Force, algorithm: Algorithm::Lz4, min_blob_size: 16 << 10, ..Compression::default() };
    StoreConfig { policy: Policy { csum: Csum::None, compression }, ..StoreConfig::default() }
}

fn changed_record(data: &[u8], config: StoreConfig) {
    let Some((which, value)) = data.split_first() else { return };
    let bench = Bench::with(config.clone());
    let mut kv = bench.disk.kv();
    let keys = kv.scan(Bound::Unbounded, Bound::Unbounded, 1000).expect("memory");
    let Some((key, _)) = keys.get(usize::from(*which) % keys.len().max(1)) else { return };
    let mut batch = KvBatch::default();
    batch.put(key.clone(), Bytes::copy_from_slice(value));
    kv.apply(batch).expect("memory");
    let (disk, obj) = (bench.disk.clone(), bench.obj.clone());
    drop(bench);
    let _ = store::fsck(&mut disk.dev(), &disk.kv(), true);
    let Ok(store) = Store::mount(disk.dev(), disk.kv(), config, Uuid::nil(), 0) else { return };
    let mut bench = Bench { disk, store, obj, rng: ChaCha8Rng::seed_from_u64(1), txcs: 100 };
    bench.store.read(ReadId(1), COLL, &bench.obj.clone(), 0, 10_000, ReadFlags::default());
    bench.drain();
    let _ = bench.store.omap_list(COLL, &bench.obj, Bound::Unbounded, 100);
    let (obj, mut txn) = (bench.obj.clone(), Transaction::new(COLL));
    txn.clone_range(&obj, &HObject { name: "p".into(), ..obj.clone() }, 100, 8000, 4096);
    txn.write(&obj, 4000, Bytes::from_static(&[9; 200]));
    bench.commit(txn);
    let mut txn = Transaction::new(COLL);
    txn.remove(&bench.obj);
    bench.commit(txn);
}

/// Every record as it is.
pub fn record_seeds() -> Vec<Vec<u8>> {
    seeds_of(&Bench::new())
}

pub fn packed_record_seeds() -> Vec<Vec<u8>> {
    seeds_of(&Bench::with(packing()))
}

fn seeds_of(bench: &Bench) -> Vec<Vec<u8>> {
    let kv = bench.disk.kv();
    let keys = kv.scan(Bound::Unbounded, Bound::Unbounded, 1000).expect("memory");
    keys.iter().zip(0u8..).map(|((_, value), at)| [&[at], &value[..]].concat()).collect()
}

/// What a primary sends its replicas: u16 length of the bare part, the bare part, the data.
pub fn transaction(data: &[u8]) {
    let Some((&[a, b], rest)) = data.split_first_chunk() else { return };
    let (bare, data) = rest.split_at(usize::from(u16::from_le_bytes([a, b])).min(rest.len()));
    let Ok(txn) = Transaction::from_wire(&Bytes::copy_from_slice(bare), &Bytes::copy_from_slice(data).into()) else { return };
    txn.to_wire();
}

pub fn transaction_seeds() -> Vec<Vec<u8>> {
    let obj = Bench::new().obj;
    let mut txn = Transaction::new(COLL);
    txn.create_coll(0);
    txn.write(&obj, 0, Bytes::from_static(b"data"));
    txn.set_attr(&obj, "a", Bytes::from_static(b"v"));
    txn.omap_set(&obj, vec![("k".into(), Bytes::from_static(b"v"))]);
    txn.clone_range(&obj, &HObject { name: "p".into(), ..obj.clone() }, 0, 2, 4);
    let (bare, data) = txn.to_wire();
    vec![[&(bare.len() as u16).to_le_bytes(), &bare[..], &data.contiguous()[..]].concat()]
}
