//! Judging a store that is not mounted: every key, every reference, and on request every block.
//!
//! Holds: memory does not grow with what is stored, but for a few bytes for each object and bits for each block. What a block belongs to is known for a batch
//! at a time, which is read in the order of the device; what several objects say of the same block is compared window by window (`refs`).

use crate::deferred::Record;
use crate::mount::for_each;
use crate::onode::{BLOCK, Block, Onode, SEG_BLOCKS, Segment};
use crate::packed::Packed;
use crate::plan::belongs;
use crate::refs::Refs;
use crate::*;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{HObject, ShardPgId};

/// Blocks read at a time by a deep check.
const RUN_BLOCKS_MAX: usize = 256;

/// Something that is not as docs/formats/store.md says it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FsckError {
    #[error("key {0:?} is not of any kind we know")]
    UnknownKey(Bytes),
    #[error("the value of key {0:?} cannot be decoded: {1}")]
    BadValue(Bytes, denc::DecodeError),
    #[error("object {0} belongs to no collection")]
    NoCollection(HObject),
    #[error("objects {0} and {1} have the same nid {2}")]
    SameNid(HObject, HObject, u64),
    #[error("object {0} has a block at {1}, which is not on the device")]
    OffDevice(HObject, u64),
    #[error("object {0} has a block behind its end, at {1}")]
    BehindEnd(HObject, u64),
    #[error("object {obj}: {counted} blocks, its onode says {recorded}")]
    Mapped { obj: HObject, counted: u64, recorded: u64 },
    #[error("block {0} belongs to more than one, with different checksums")]
    Overlap(u64),
    #[error("object {0} has compressed runs, or checksums, that the store's format does not have")]
    Format(HObject),
    #[error("object {0}: the compressed run at {1} cannot be read: its checksums are right, and it is not what was compressed")]
    Undecodable(HObject, u64),
    #[error("segment {1} of nid {0} belongs to no object")]
    OrphanSegment(u64, u32),
    #[error("omap keys of nid {0} belong to no object, or to one without the flag")]
    OrphanOmap(u64),
    #[error("keys of collection {0}, which does not exist")]
    OrphanCollKeys(ShardPgId),
    #[error("object {obj}: the block at {off} has checksum {actual:#x}, not {expected:#x}")]
    Checksum { obj: HObject, off: u64, expected: u32, actual: u32 },
    #[error("object {obj}: the block at {off} cannot be read: {errno}")]
    Unreadable { obj: HObject, off: u64, errno: types::Errno },
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FsckReport {
    /// The first [`ERRORS_MAX`] of them.
    pub errors: Vec<FsckError>,
    /// How many more there are.
    pub more_errors: u64,
    pub collections: u64,
    pub objects: u64,
    /// Device blocks referred to; shared ones once.
    pub blocks: u64,
    pub shared_blocks: u64,
    /// Those of `blocks` that hold compressed runs.
    pub packed_blocks: u64,
    /// Those of `blocks` that were read.
    pub read_blocks: u64,
    pub omap_keys: u64,
    /// Writes still in the log.
    pub deferred_records: u64,
}

/// So many errors are told one by one.
pub const ERRORS_MAX: usize = 10_000;
/// Blocks that are read in the order of the device before the next ones are looked up: 4 GiB, for 56 MB of memory.
const BATCH_BLOCKS: usize = 1 << 20;
/// Blocks of which at a time it is known what was said of them: 128 GiB, for 128 MB.
const WINDOW_BLOCKS: u64 = 32 << 20;

/// It is told how far it is after so many objects, and after each batch.
const TELLS: u64 = 1 << 18;

/// How a store is checked. Memory: for each object 40 bytes, for each TB of the device 64 MB at most, and what the limits say.
pub struct Fsck<'a> {
    deep: bool,
    batch_blocks: usize,
    window_blocks: u64,
    tell: Box<dyn FnMut(&FsckReport) + 'a>,
}

impl<'a> Fsck<'a> {
    /// Of all metadata; `deep` also reads all data and verifies it.
    pub fn new(deep: bool) -> Self {
        Fsck { deep, batch_blocks: BATCH_BLOCKS, window_blocks: WINDOW_BLOCKS, tell: Box::new(|_| ()) }
    }

    /// With so many blocks known at a time of what is read, and of what several objects refer to; each at least 1.
    pub fn limits(self, batch_blocks: usize, window_blocks: u64) -> Self {
        Fsck { batch_blocks, window_blocks, ..self }
    }

    /// Hears how far it is, now and then.
    pub fn telling(self, tell: impl FnMut(&FsckReport) + 'a) -> Self {
        Fsck { tell: Box::new(tell), ..self }
    }

    /// Checks a store that is not mounted. Nothing is repaired. `MountError` as for mounting.
    pub fn run<D: BlockDev, K: Kv>(self, dev: &mut D, kv: &K) -> Result<FsckReport, MountError> {
        let info = probe(kv)?.ok_or(MountError::NotAStore)?;
        mount::check(&info, dev, info.fsid, info.whoami)?;
        let mut check = Check {
            dev,
            blocks: info.device_size / BLOCK,
            extended: mount::is_extended(kv)?,
            report: FsckReport::default(),
            found: Vec::new(),
            colls: BTreeMap::new(),
            objects: Vec::new(),
            refs: Refs::new(self.window_blocks),
            batch: Vec::new(),
            runs: Vec::new(),
            deferred: BTreeMap::new(),
            how: self,
        };
        check.collections(kv)?;
        check.deferred(kv)?;
        check.objects(kv)?;
        check.segments(kv)?;
        check.read_batch();
        check.shared(kv)?;
        check.omap(kv)?;
        check.coll_keys(kv)?;
        check.judge_objects();
        check.finish(kv)
    }
}

/// Checks all metadata; `deep` also reads all data and verifies it. Nothing is repaired. `MountError` as for mounting.
pub fn fsck<D: BlockDev, K: Kv>(dev: &mut D, kv: &K, deep: bool) -> Result<FsckReport, MountError> {
    Fsck::new(deep).run(dev, kv)
}

/// A check under way.
struct Check<'a, D> {
    how: Fsck<'a>,
    dev: &'a mut D,
    blocks: u64,
    extended: bool,
    report: FsckReport,
    /// Errors; those of an object wait for its name.
    found: Vec<Found>,
    colls: BTreeMap<ShardPgId, u32>,
    /// By nid, once all are known.
    objects: Vec<Object>,
    refs: Refs,
    /// What is to be read next.
    batch: Vec<Owned>,
    /// Compressed runs with a block among them, and one object's (nid, logical block) in each.
    runs: Vec<(Arc<Packed>, u64, u64)>,
    deferred: BTreeMap<u64, Bytes>,
}

enum Found {
    Error(FsckError),
    Of(u64, Box<dyn FnOnce(HObject) -> FsckError>),
    SameNid(u64),
}

/// A block in use, and one object's (nid, logical block) that has it.
#[derive(Clone, Copy)]
struct Owned {
    block: Block,
    nid: u64,
    lblk: u64,
}

#[derive(Clone, Copy)]
struct Object {
    nid: u64,
    size: u64,
    recorded: u64,
    counted: u64,
    has_omap: bool,
}

impl<D: BlockDev> Check<'_, D> {
    fn note(&mut self, found: Found) {
        if self.found.len() < ERRORS_MAX {
            self.found.push(found);
        } else {
            self.report.more_errors += 1;
        }
    }

    fn error(&mut self, e: FsckError) {
        self.note(Found::Error(e));
    }

    /// About the object with this nid.
    fn error_of(&mut self, nid: u64, error: impl FnOnce(HObject) -> FsckError + 'static) {
        self.note(Found::Of(nid, Box::new(error)));
    }

    fn object(&mut self, nid: u64) -> Option<&mut Object> {
        let at = self.objects.binary_search_by_key(&nid, |o| o.nid).ok()?;
        self.objects.get_mut(at)
    }

    fn collections(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        for_each(kv, key::COLL, |k, v| {
            match (key::parse_coll(&k), denc::from_bytes::<mount::CollRecord>(&v)) {
                (None, _) => self.error(FsckError::UnknownKey(k)),
                (_, Err(e)) => self.error(FsckError::BadValue(k, e)),
                (Some(coll), Ok(record)) => {
                    self.colls.insert(coll, record.bits);
                    self.report.collections += 1;
                }
            }
            Ok(())
        })
    }

    fn deferred(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        for_each(kv, key::DEFERRED, |k, v| {
            match key::parse_deferred(&k).map(|seq| Record::parse(seq, &v)) {
                None => self.error(FsckError::UnknownKey(k)),
                Some(Ok(record)) => self.deferred.extend(record.blocks),
                Some(Err(e)) => self.error(FsckError::BadValue(k, e)),
            }
            self.report.deferred_records += 1;
            Ok(())
        })
    }

    fn objects(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        for_each(kv, key::OBJECT, |k, v| {
            match (key::parse_object(&k), Onode::from_value(&v)) {
                (None, _) => self.error(FsckError::UnknownKey(k)),
                (_, Err(e)) => self.error(FsckError::BadValue(k, e)),
                (Some((shard, name)), Ok(onode)) => {
                    self.report.objects += 1;
                    if !self.colls.iter().any(|(c, bits)| c.shard == shard && belongs(*c, *bits, &name)) {
                        self.error(FsckError::NoCollection(name));
                    }
                    let mut object = Object { nid: onode.nid, size: onode.size, recorded: onode.mapped, counted: 0, has_omap: onode.has_omap };
                    onode.segs.iter().for_each(|(i, seg)| self.segment(&mut object, i, seg));
                    self.objects.push(object);
                    if self.report.objects.is_multiple_of(TELLS) {
                        (self.how.tell)(&self.report);
                    }
                }
            }
            Ok::<_, MountError>(())
        })?;
        self.objects.sort_by_key(|o| o.nid);
        let same: Vec<u64> = self.objects.windows(2).filter(|pair| pair[0].nid == pair[1].nid).map(|pair| pair[0].nid).collect();
        same.into_iter().for_each(|nid| self.note(Found::SameNid(nid)));
        Ok(())
    }

    fn segments(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        for_each(kv, key::SEGMENT, |k, v| {
            match (key::parse_segment(&k), Segment::from_value(&v)) {
                (None, _) => self.error(FsckError::UnknownKey(k)),
                (_, Err(e)) => self.error(FsckError::BadValue(k, e)),
                (Some((nid, i)), Ok(seg)) => match self.object(nid).copied().filter(|_| i > 0) {
                    None => self.error(FsckError::OrphanSegment(nid, i)),
                    Some(mut object) => {
                        self.segment(&mut object, i, &seg);
                        self.object(nid).into_iter().for_each(|o| *o = object);
                    }
                },
            }
            Ok(())
        })
    }

    fn segment(&mut self, object: &mut Object, i: u32, seg: &Segment) {
        let (nid, first) = (object.nid, u64::from(i) * SEG_BLOCKS);
        for (at, b) in seg.blocks.iter().enumerate().filter(|(_, b)| b.phys != 0) {
            let lblk = first + at as u64;
            object.counted += 1;
            if lblk * BLOCK >= object.size {
                self.error_of(nid, move |name| FsckError::BehindEnd(name, lblk * BLOCK));
            }
            if b.at == 0 {
                self.refer(Owned { block: *b, nid, lblk });
            }
        }
        for run in seg.runs() {
            let at = seg.blocks.iter().position(|b| b.at > 0 && b.phys == run.head()).unwrap_or(0);
            let lblk = first + at as u64;
            let new = run.blocks.iter().map(|block| u64::from(self.refer(Owned { block: *block, nid, lblk }))).sum::<u64>();
            self.report.packed_blocks += new;
            if new > 0 && self.how.deep {
                self.runs.push((run.clone(), nid, lblk));
            }
        }
        if seg.is_extended() && !self.extended {
            self.error_of(nid, FsckError::Format);
        }
        if self.batch.len() >= self.how.batch_blocks {
            self.read_batch();
        }
    }

    /// True if nobody has referred to the block before.
    fn refer(&mut self, owned: Owned) -> bool {
        let phys = owned.block.phys;
        if phys >= self.blocks {
            self.error_of(owned.nid, move |name| FsckError::OffDevice(name, phys));
            return false;
        }
        let new = self.refs.note(phys);
        if new && self.how.deep {
            self.batch.push(owned);
        }
        new
    }

    /// That all who refer to a block say the same of it.
    fn shared(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        let refs = std::mem::take(&mut self.refs);
        (self.report.blocks, self.report.shared_blocks) = (refs.blocks, refs.shared);
        for mut window in refs.windows(self.blocks) {
            let mut look = |seg: &Segment| {
                let plain = seg.blocks.iter().filter(|b| b.phys != 0 && b.at == 0).map(|b| (b, 0));
                for (block, run) in plain.chain(seg.runs().flat_map(|run| run.blocks.iter().map(|b| (b, run.head())))) {
                    if !window.agrees(block, run) {
                        self.error(FsckError::Overlap(block.phys));
                    }
                }
            };
            for_each(kv, key::OBJECT, |_, v| {
                Onode::from_value(&v).iter().for_each(|onode| onode.segs.iter().for_each(|(_, seg)| look(seg)));
                Ok::<_, MountError>(())
            })?;
            for_each(kv, key::SEGMENT, |_, v| {
                Segment::from_value(&v).iter().for_each(&mut look);
                Ok::<_, MountError>(())
            })?;
        }
        Ok(())
    }

    fn omap(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        let mut last = None;
        for_each(kv, key::OMAP, |k, _| {
            self.report.omap_keys += 1;
            match key::parse_omap(&k) {
                None => self.error(FsckError::UnknownKey(k)),
                Some(nid) if last.replace(nid) != Some(nid) && !self.object(nid).is_some_and(|o| o.has_omap) => self.error(FsckError::OrphanOmap(nid)),
                Some(_) => {}
            }
            Ok(())
        })
    }

    fn coll_keys(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        let mut last = None;
        for_each(kv, key::COLL_KEYS, |k, _| {
            let head = k.get(1..key::COLL_KEY_PREFIX).map(|coll| [&[key::COLL], coll].concat());
            match head.and_then(|h| key::parse_coll(&h)) {
                None => self.error(FsckError::UnknownKey(k)),
                Some(coll) if last.replace(coll) != Some(coll) && !self.colls.contains_key(&coll) => self.error(FsckError::OrphanCollKeys(coll)),
                Some(_) => {}
            }
            Ok(())
        })
    }

    fn judge_objects(&mut self) {
        for Object { nid, counted, recorded, .. } in std::mem::take(&mut self.objects) {
            if counted != recorded {
                self.error_of(nid, move |obj| FsckError::Mapped { obj, counted, recorded });
            }
        }
    }

    /// Reads the blocks of a batch in the order of the device, neighbours together.
    fn read_batch(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.sort_unstable_by_key(|o| o.block.phys);
        let mut rest = &batch[..];
        while let Some(first) = rest.first().map(|o| o.block.phys) {
            let next_to = |(i, o): &(usize, &Owned)| o.block.phys == first + *i as u64;
            let n = rest.iter().take(RUN_BLOCKS_MAX).enumerate().take_while(next_to).count();
            let (run, later) = rest.split_at(n);
            rest = later;
            let read = self.dev.read_sync(first * BLOCK, n * BLOCK as usize);
            for (i, owned) in run.iter().enumerate() {
                let at = i * BLOCK as usize;
                let on_disk = read.as_ref().map(|data| data.slice(at..at + BLOCK as usize)).map_err(|e| *e);
                self.judge_block(*owned, self.deferred.get(&owned.block.phys).cloned().map_or(on_disk, Ok));
            }
        }
        for (run, nid, lblk) in std::mem::take(&mut self.runs) {
            self.judge_run(&run, nid, lblk);
        }
        self.report.read_blocks += batch.len() as u64;
        (self.report.blocks, self.report.shared_blocks) = (self.refs.blocks, self.refs.shared);
        (self.how.tell)(&self.report);
        batch.clear();
        self.batch = batch;
    }

    fn judge_block(&mut self, owned: Owned, data: Result<Bytes, types::Errno>) {
        let (off, block) = (owned.lblk * BLOCK, owned.block);
        match data {
            Ok(data) if block.is(&data) => {}
            Ok(data) => {
                let (expected, actual) = (block.crc, block.sum_if(&data));
                self.error_of(owned.nid, move |obj| FsckError::Checksum { obj, off, expected, actual });
            }
            Err(errno) => self.error_of(owned.nid, move |obj| FsckError::Unreadable { obj, off, errno }),
        }
    }

    /// A run whose blocks are right has to be what was compressed.
    fn judge_run(&mut self, run: &Packed, nid: u64, lblk: u64) {
        let mut pieces = Vec::new();
        for block in &run.blocks {
            let data = self.deferred.get(&block.phys).cloned().map_or_else(|| self.dev.read_sync(block.phys * BLOCK, BLOCK as usize), Ok);
            pieces.extend(data.ok().filter(|data| block.is(data)));
        }
        if pieces.len() == run.blocks.len() && run.unpack(&pieces).is_none() {
            self.error_of(nid, move |name| FsckError::Undecodable(name, lblk * BLOCK));
        }
    }

    /// Gives errors the names of their objects.
    fn finish(mut self, kv: &impl Kv) -> Result<FsckReport, MountError> {
        let wanted = |found: &Found| if let Found::Of(nid, _) | Found::SameNid(nid) = found { Some((*nid, Vec::new())) } else { None };
        let mut names: BTreeMap<u64, Vec<HObject>> = self.found.iter().filter_map(wanted).collect();
        if !names.is_empty() {
            for_each(kv, key::OBJECT, |k, v| {
                let (Some((_, name)), Ok(onode)) = (key::parse_object(&k), Onode::from_value(&v)) else { return Ok(()) };
                names.get_mut(&onode.nid).into_iter().for_each(|of| of.push(name.clone()));
                Ok::<_, MountError>(())
            })?;
        }
        let name = |nid, at| names.get(&nid).and_then(|of: &Vec<HObject>| of.get(at).or(of.first())).cloned().unwrap_or_else(HObject::min);
        self.report.errors = std::mem::take(&mut self.found)
            .into_iter()
            .map(|found| match found {
                Found::Error(e) => e,
                Found::Of(nid, error) => error(name(nid, 0)),
                Found::SameNid(nid) => FsckError::SameNid(name(nid, 0), name(nid, 1), nid),
            })
            .collect();
        Ok(self.report)
    }
}
