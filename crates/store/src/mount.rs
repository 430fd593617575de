//! Making a store, and opening one.

use crate::alloc::{Allocator, neighbours};
use crate::block_cache::BlockCache;
use crate::onode_cache::OnodeCache;
use crate::deferred::{Deferred, Record};
use crate::names::Names;
use crate::onode::{BLOCK, Onode, SEG_BLOCKS, Segment};
use crate::packed::Packed;
use crate::queue::DeviceQueue;
use crate::shared::Shared;
use crate::store::{ById, Typical};
use crate::unpack::CompressedOf;
use crate::verified::Verified;
use crate::*;
use bytes::Bytes;
use denc::{Decode, DecodeError, Encode};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use types::{Mono, PoolId};
use uuid::Uuid;

/// What a store begins with, and the newest this build reads. The latter has compressed runs, and blocks with checksums other than crc32c: a store
/// is of it from the first of them on.
const FORMAT: u32 = 1;
const FORMAT_EXTENDED: u32 = 2;
const MAGIC: &[u8; 8] = b"cuttlebn";
const LABEL_LEN: usize = 40;
/// A device with less than this many bytes is not worth a store.
const SIZE_MIN: u64 = 4 << 20;
/// Pairs asked of the engine at a time.
const SCAN_CHUNK: usize = 1024;

/// The value of `S super`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub(crate) struct Super {
    pub format: u32,
    fsid: Uuid,
    uuid: Uuid,
    whoami: i32,
    device_size: u64,
    seg_blocks: u32,
}

/// The value of a `C` key.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub(crate) struct CollRecord {
    pub bits: u32,
}

/// What a store says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreInfo {
    /// The cluster it belongs to.
    pub fsid: Uuid,
    pub osd_uuid: Uuid,
    pub whoami: i32,
    /// Bytes of the data device at mkfs.
    pub device_size: u64,
}

/// Reads whose store this is, without mounting it. `None`: there is none.
pub fn probe<K: Kv>(kv: &K) -> Result<Option<StoreInfo>, MountError> {
    Ok(superblock(kv)?.map(|s| s.info()))
}

fn superblock<K: Kv>(kv: &K) -> Result<Option<Super>, MountError> {
    let Some(value) = kv.get(key::SUPER)? else { return Ok(None) };
    let s: Super = denc::from_bytes(&value).map_err(|why| corrupt(key::SUPER, why))?;
    if s.format > FORMAT_EXTENDED {
        return Err(MountError::TooNew { found: s.format, supported: FORMAT_EXTENDED });
    }
    Ok(Some(s))
}

/// True if segments may be what format 1 does not have.
pub(crate) fn is_extended<K: Kv>(kv: &K) -> Result<bool, MountError> {
    Ok(superblock(kv)?.is_some_and(|s| s.format >= FORMAT_EXTENDED))
}

impl Super {
    fn info(&self) -> StoreInfo {
        StoreInfo { fsid: self.fsid, osd_uuid: self.uuid, whoami: self.whoami, device_size: self.device_size }
    }
}

/// A key of a collection itself, read from a store that is not mounted.
pub fn coll_row<K: Kv>(kv: &K, coll: types::ShardPgId, name: &[u8]) -> Result<Option<bytes::Bytes>, KvError> {
    kv.get(&key::coll_key(coll, name))
}

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// Makes an empty store. Fails if there is one; what an interrupted mkfs left is overwritten.
    pub fn mkfs(dev: &mut D, kv: &mut K, fsid: Uuid, osd_uuid: Uuid, whoami: i32) -> Result<(), MkfsError> {
        if let Some(value) = kv.get(key::SUPER)? {
            let (whoami, fsid) = denc::from_bytes::<Super>(&value).map_or((-1, Uuid::nil()), |s| (s.whoami, s.fsid));
            return Err(MkfsError::Exists { whoami, fsid });
        }
        let size = dev.size();
        if size < SIZE_MIN {
            return Err(MkfsError::TooSmall { size, needed: SIZE_MIN });
        }
        dev.write_sync(0, &label(osd_uuid, size)).map_err(MkfsError::Device)?;
        let record =
            Super { format: FORMAT, fsid, uuid: osd_uuid, whoami, device_size: size, seg_blocks: SEG_BLOCKS as u32 };
        let mut batch = KvBatch::default();
        batch.put(key::SUPER, denc::to_bytes(&record, 0));
        kv.apply(batch)?;
        Ok(kv.flush_sync()?)
    }

    /// What is being queued is what format 1 does not have: with it the database is told, for builds that do not know better.
    pub(crate) fn note_format(&mut self) {
        if self.superblock.format < FORMAT_EXTENDED {
            self.superblock.format = FORMAT_EXTENDED;
            self.batch.put(key::SUPER, denc::to_bytes(&self.superblock, 0));
        }
    }

    /// Opens a store, reading all its metadata once. `fsid` and `whoami`: what the caller believes to open.
    pub fn mount(mut dev: D, kv: K, config: StoreConfig, fsid: Uuid, whoami: i32) -> Result<Self, MountError> {
        let superblock = superblock(&kv)?.ok_or(MountError::NotAStore)?;
        let info = superblock.info();
        check(&info, &mut dev, fsid, whoami)?;
        let mut scan = MountScan::new(info.device_size / BLOCK);
        scan.colls(&kv)?;
        scan.onodes(&kv)?;
        scan.segments(&kv)?;
        scan.deferred(&kv)?;
        Ok(Store {
            dev,
            kv,
            poisoned: None,
            events: VecDeque::new(),
            alloc: scan.alloc,
            shared: scan.shared,
            compressed: scan.compressed,
            superblock,
            policies: BTreeMap::new(),
            colls: scan.colls,
            onodes: OnodeCache::default(),
            names: scan.names,
            cache: BlockCache::default(),
            budget: Default::default(),
            verified: Verified::new(config.verified_regions),
            facts: DeviceFacts::default(),
            flush_took: Typical::default(),
            nid_next: scan.nid_max + 1,
            stored: scan.stored,
            txcs: ById::default(),
            txc_next: 1,
            queues: BTreeMap::new(),
            lanes: BTreeMap::new(),
            direct: BTreeMap::new(),
            pends: BTreeMap::new(),
            pend_next: 1,
            unpacks: BTreeMap::new(),
            batch: KvBatch::default(),
            queued: Vec::new(),
            applied: Vec::new(),
            flushing: VecDeque::new(),
            now: Mono::default(),
            deferred: scan.deferred,
            deferred_most: u64::MAX,
            placing: BTreeMap::new(),
            queue: DeviceQueue::new(config.queue_depth_max),
            tight_beneath: None,
            io_next: 0,
            ios: ById::default(),
            dev_waiting: Vec::new(),
            dev_flushing: None,
            dev_flush_since: Mono::default(),
            perf: Default::default(),
            resident: 0,
            reads: ById::default(),
            read_next: 1,
            reads_blocked: Vec::new(),
            config,
        })
    }
}

/// What mount collects.
struct MountScan {
    alloc: Allocator,
    shared: Shared,
    compressed: CompressedOf,
    /// Pools of objects of several segments with something compressed, by nid.
    packed: BTreeMap<u64, PoolId>,
    colls: BTreeMap<types::ShardPgId, u32>,
    nid_max: u64,
    stored: u64,
    names: Names,
    deferred: Deferred,
}

impl MountScan {
    fn new(blocks: u64) -> Self {
        MountScan {
            alloc: Allocator::new(blocks),
            shared: Shared::default(),
            compressed: CompressedOf::default(),
            packed: BTreeMap::new(),
            colls: BTreeMap::new(),
            nid_max: 0,
            stored: 0,
            names: Names::empty(),
            deferred: Deferred { next_seq: 1, ..Deferred::default() },
        }
    }

    fn colls(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        for_each(kv, key::COLL, |k, v| {
            let coll = key::parse_coll(&k).ok_or_else(|| corrupt(&k, DecodeError::Invalid("collection key")))?;
            let record: CollRecord = denc::from_bytes(&v).map_err(|why| corrupt(&k, why))?;
            self.colls.insert(coll, record.bits);
            Ok(())
        })
    }

    fn onodes(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        for_each(kv, key::OBJECT, |k, v| {
            let onode = Onode::from_value(&v).map_err(|why| corrupt(&k, why))?;
            self.nid_max = self.nid_max.max(onode.nid);
            self.names.note(&k);
            self.stored = self.stored.checked_add(onode.stored_bytes()).ok_or_else(|| corrupt(&k, DecodeError::Invalid("sum of sizes")))?;
            let pool = if onode.packed { key::object_pool(&k) } else { None };
            if let Some(pool) = pool.filter(|_| !onode.complete) {
                self.packed.insert(onode.nid, pool);
            }
            onode.segs.iter().try_for_each(|(_, seg)| self.mark(&k, pool, seg))
        })
    }

    fn segments(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        for_each(kv, key::SEGMENT, |k, v| {
            let seg = Segment::from_value(&v).map_err(|why| corrupt(&k, why))?;
            let pool = key::parse_segment(&k).and_then(|(nid, _)| self.packed.get(&nid).copied());
            self.mark(&k, pool, &seg)
        })
    }

    /// What a segment refers to is in use. `pool`: whose it is, if that matters.
    fn mark(&mut self, key: &Bytes, pool: Option<PoolId>, seg: &Segment) -> Result<(), MountError> {
        if let Some(pool) = pool {
            let new = |run: &&Arc<Packed>| !self.alloc.is_used(run.head());
            seg.runs().filter(new).for_each(|run| self.compressed.run(pool, run, true));
            self.compressed.blocks_come(pool, seg.packed_blocks());
        } else if seg.runs().next().is_some() {
            return Err(corrupt(key, DecodeError::Invalid("a compressed run of an object that has none")));
        }
        for (first, count) in neighbours(seg.on_device().map(|b| b.phys)) {
            if first + count > self.alloc.blocks() {
                return Err(MountError::BadExtent(key.clone()));
            }
            self.alloc.mark_run(first, count, |first, count| self.shared.add(first, count));
        }
        Ok(())
    }

    /// Takes the records back into memory as they were when they had just been committed.
    fn deferred(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        for_each(kv, key::DEFERRED, |k, v| {
            let seq = key::parse_deferred(&k).ok_or_else(|| corrupt(&k, DecodeError::Invalid("deferred key")))?;
            let record = Record::parse(seq, &v).map_err(|why| corrupt(&k, why))?;
            for (phys, data) in &record.blocks {
                if *phys == 0 || *phys >= self.alloc.blocks() {
                    return Err(MountError::BadExtent(k.clone()));
                }
                self.deferred.expect(*phys, Some(data.clone()));
            }
            self.deferred.committed = seq;
            self.deferred.next_seq = seq + 1;
            self.deferred.push(record);
            Ok(())
        })?;
        // A block of a record that nobody refers to any more is free as soon as the record is gone.
        let unreferenced: Vec<u64> = self.deferred.blocks.keys().copied().filter(|phys| self.alloc.mark(*phys)).collect();
        for phys in unreferenced {
            self.deferred.free(phys);
        }
        Ok(())
    }
}

/// Shows every pair whose key starts with `prefix` to `f`.
pub(crate) fn for_each<E: From<KvError>>(
    kv: &impl Kv,
    prefix: u8,
    mut f: impl FnMut(Bytes, Bytes) -> Result<(), E>,
) -> Result<(), E> {
    let end = [prefix + 1];
    let mut from = Bound::Included(Bytes::copy_from_slice(&[prefix]));
    loop {
        let found = kv.scan(from.as_ref().map(|k| &k[..]), Bound::Excluded(&end), SCAN_CHUNK)?;
        let full = found.len() == SCAN_CHUNK;
        if let Some((last, _)) = found.last() {
            from = Bound::Excluded(last.clone());
        }
        found.into_iter().try_for_each(|(k, v)| f(k, v))?;
        if !full {
            return Ok(());
        }
    }
}

/// Is it the store the caller means, and do device and database belong together?
pub(crate) fn check<D: BlockDev>(info: &StoreInfo, dev: &mut D, fsid: Uuid, whoami: i32) -> Result<(), MountError> {
    if info.fsid != fsid {
        return Err(MountError::WrongCluster { found: info.fsid, expected: fsid });
    }
    if info.whoami != whoami {
        return Err(MountError::WrongOsd { found: info.whoami, expected: whoami });
    }
    let block = dev.read_sync(0, BLOCK as usize).map_err(MountError::Device)?;
    let device = parse_label(&block).ok_or(MountError::NoLabel)?;
    if device != info.osd_uuid {
        return Err(MountError::WrongDevice { device, database: info.osd_uuid });
    }
    if dev.size() < info.device_size {
        return Err(MountError::DeviceShrunk { found: dev.size(), expected: info.device_size });
    }
    Ok(())
}

fn label(uuid: Uuid, size: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(BLOCK as usize);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(uuid.as_bytes());
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(&denc::crc32c(&out).to_le_bytes());
    out.resize(BLOCK as usize, 0);
    out
}

/// The store's uuid, if this is a label.
fn parse_label(block: &[u8]) -> Option<Uuid> {
    let label = block.get(..LABEL_LEN)?;
    let (body, crc) = label.split_last_chunk::<4>()?;
    if denc::crc32c(body) != u32::from_le_bytes(*crc) || !body.starts_with(MAGIC) {
        return None;
    }
    Uuid::from_slice(body.get(12..28)?).ok()
}

pub(crate) fn corrupt(key: &[u8], why: DecodeError) -> MountError {
    MountError::Corrupt { key: Bytes::copy_from_slice(key), why }
}
