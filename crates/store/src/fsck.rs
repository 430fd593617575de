//! Judging a store that is not mounted: every key, every reference, and on request every block.

use crate::deferred::Record;
use crate::mount::for_each;
use crate::onode::{BLOCK, Block, Onode, SEG_BLOCKS, Segment};
use crate::packed::Packed;
use crate::plan::belongs;
use crate::shared::Shared;
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
    #[error("object {0:?} belongs to no collection")]
    NoCollection(HObject),
    #[error("objects {0:?} and {1:?} have the same nid {2}")]
    SameNid(HObject, HObject, u64),
    #[error("object {0:?} has a block at {1}, which is not on the device")]
    OffDevice(HObject, u64),
    #[error("object {0:?} has a block behind its end, at {1}")]
    BehindEnd(HObject, u64),
    #[error("object {obj:?}: {counted} blocks, its onode says {recorded}")]
    Mapped { obj: HObject, counted: u64, recorded: u64 },
    #[error("block {0} belongs to more than one, with different checksums")]
    Overlap(u64),
    #[error("object {0:?} has compressed runs, or checksums, that the store's format does not have")]
    Format(HObject),
    #[error("object {0:?}: the compressed run at {1} cannot be read: its checksums are right, and it is not what was compressed")]
    Undecodable(HObject, u64),
    #[error("segment {1} of nid {0} belongs to no object")]
    OrphanSegment(u64, u32),
    #[error("omap keys of nid {0} belong to no object, or to one without the flag")]
    OrphanOmap(u64),
    #[error("keys of collection {0}, which does not exist")]
    OrphanCollKeys(ShardPgId),
    #[error("object {obj:?}: the block at {off} has checksum {actual:#x}, not {expected:#x}")]
    Checksum { obj: HObject, off: u64, expected: u32, actual: u32 },
    #[error("object {obj:?}: the block at {off} cannot be read: {errno}")]
    Unreadable { obj: HObject, off: u64, errno: types::Errno },
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FsckReport {
    pub errors: Vec<FsckError>,
    pub collections: u64,
    pub objects: u64,
    /// Device blocks referred to; shared ones once.
    pub blocks: u64,
    pub shared_blocks: u64,
    /// Those of `blocks` that hold compressed runs.
    pub packed_blocks: u64,
    pub omap_keys: u64,
    /// Writes still in the log.
    pub deferred_records: u64,
}

/// Checks all metadata; `deep` also reads all data and verifies it. Nothing is repaired. `MountError` as for mounting.
pub fn fsck<D: BlockDev, K: Kv>(dev: &mut D, kv: &K, deep: bool) -> Result<FsckReport, MountError> {
    let info = probe(kv)?.ok_or(MountError::NotAStore)?;
    mount::check(&info, dev, info.fsid, info.whoami)?;
    let extended = mount::is_extended(kv)?;
    let mut f = Fsck { report: FsckReport::default(), blocks: info.device_size / BLOCK, extended, ..Fsck::default() };
    f.collections(kv)?;
    f.objects(kv)?;
    f.segments(kv)?;
    f.omap(kv)?;
    f.coll_keys(kv)?;
    f.deferred(kv)?;
    f.judge_objects();
    if deep {
        f.read_all(dev);
    }
    f.report.blocks = f.owners.len() as u64;
    f.report.packed_blocks = f.owners.values().filter(|o| o.run != 0).count() as u64;
    Ok(f.report)
}

#[derive(Default)]
struct Fsck {
    report: FsckReport,
    blocks: u64,
    extended: bool,
    colls: BTreeMap<ShardPgId, u32>,
    /// By nid.
    objects: BTreeMap<u64, Object>,
    owners: BTreeMap<u64, Owner>,
    /// Compressed runs by first block, and one object's (nid, logical block) in each.
    runs: BTreeMap<u64, (Arc<Packed>, u64, u64)>,
    shared: Shared,
    deferred: BTreeMap<u64, Bytes>,
}

/// A block in use, and one object's (nid, logical block) that has it.
#[derive(Clone, Copy)]
struct Owner {
    block: Block,
    /// The first block of the compressed run that it is part of, or 0.
    run: u64,
    nid: u64,
    lblk: u64,
}

struct Object {
    name: HObject,
    size: u64,
    recorded: u64,
    counted: u64,
    has_omap: bool,
}

impl Fsck {
    fn error(&mut self, e: FsckError) {
        self.report.errors.push(e);
    }

    /// For closures that go on with the next key.
    fn note(&mut self, e: FsckError) -> Result<(), MountError> {
        self.error(e);
        Ok(())
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

    fn objects(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        for_each(kv, key::OBJECT, |k, v| {
            let (shard, name) = match key::parse_object(&k) {
                Some(parsed) => parsed,
                None => return self.note(FsckError::UnknownKey(k)),
            };
            let onode = match Onode::from_value(&v) {
                Ok(onode) => onode,
                Err(e) => return self.note(FsckError::BadValue(k, e)),
            };
            self.report.objects += 1;
            if !self.colls.iter().any(|(c, bits)| c.shard == shard && belongs(*c, *bits, &name)) {
                self.error(FsckError::NoCollection(name.clone()));
            }
            let object = Object {
                name: name.clone(),
                size: onode.size,
                recorded: onode.mapped,
                counted: 0,
                has_omap: onode.has_omap,
            };
            if let Some(other) = self.objects.insert(onode.nid, object) {
                self.error(FsckError::SameNid(other.name, name, onode.nid));
            }
            onode.segs.iter().for_each(|(i, seg)| self.segment(onode.nid, i, seg));
            Ok(())
        })
    }

    fn segments(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        for_each(kv, key::SEGMENT, |k, v| {
            match (key::parse_segment(&k), Segment::from_value(&v)) {
                (None, _) => self.error(FsckError::UnknownKey(k)),
                (_, Err(e)) => self.error(FsckError::BadValue(k, e)),
                (Some((nid, i)), Ok(_)) if i == 0 || !self.objects.contains_key(&nid) => {
                    self.error(FsckError::OrphanSegment(nid, i));
                }
                (Some((nid, i)), Ok(seg)) => self.segment(nid, i, &seg),
            }
            Ok(())
        })
    }

    fn segment(&mut self, nid: u64, i: u32, seg: &Segment) {
        for (at, b) in seg.blocks.iter().enumerate().filter(|(_, b)| b.phys != 0) {
            let lblk = u64::from(i) * SEG_BLOCKS + at as u64;
            let Some(object) = self.objects.get_mut(&nid) else { return };
            object.counted += 1;
            let name = object.name.clone();
            if lblk * BLOCK >= object.size {
                self.error(FsckError::BehindEnd(name.clone(), lblk * BLOCK));
            }
            if b.at == 0 {
                self.own(name, Owner { block: *b, run: 0, nid, lblk });
            }
        }
        let first = u64::from(i) * SEG_BLOCKS;
        for run in seg.runs() {
            let at = seg.blocks.iter().position(|b| b.at > 0 && b.phys == run.head()).unwrap_or(0);
            let Some(name) = self.objects.get(&nid).map(|o| o.name.clone()) else { return };
            for block in &run.blocks {
                self.own(name.clone(), Owner { block: *block, run: run.head(), nid, lblk: first + at as u64 });
            }
            self.runs.insert(run.head(), (run.clone(), nid, first + at as u64));
        }
        if seg.is_extended()
            && !self.extended
            && let Some(object) = self.objects.get(&nid)
        {
            self.error(FsckError::Format(object.name.clone()));
        }
    }

    fn own(&mut self, name: HObject, owner: Owner) {
        let phys = owner.block.phys;
        if phys >= self.blocks {
            return self.error(FsckError::OffDevice(name, phys));
        }
        match self.owners.insert(phys, owner) {
            None => {}
            Some(other) if (other.block, other.run) == (owner.block, owner.run) => {
                self.report.shared_blocks += u64::from(!self.shared.contains(phys));
                self.shared.add(phys, 1);
            }
            Some(_) => self.error(FsckError::Overlap(phys)),
        }
    }

    fn omap(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        let mut last = None;
        for_each(kv, key::OMAP, |k, _| {
            self.report.omap_keys += 1;
            let Some(nid) = key::parse_omap(&k) else { return self.note(FsckError::UnknownKey(k)) };
            if last.replace(nid) != Some(nid) && !self.objects.get(&nid).is_some_and(|o| o.has_omap) {
                self.error(FsckError::OrphanOmap(nid));
            }
            Ok(())
        })
    }

    fn coll_keys(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        let mut last = None;
        for_each(kv, key::COLL_KEYS, |k, _| {
            let head = k.get(1..key::COLL_KEY_PREFIX).map(|coll| [&[key::COLL], coll].concat());
            let Some(coll) = head.and_then(|h| key::parse_coll(&h)) else {
                return self.note(FsckError::UnknownKey(k));
            };
            if last.replace(coll) != Some(coll) && !self.colls.contains_key(&coll) {
                self.error(FsckError::OrphanCollKeys(coll));
            }
            Ok(())
        })
    }

    fn deferred(&mut self, kv: &impl Kv) -> Result<(), MountError> {
        for_each(kv, key::DEFERRED, |k, v| {
            let Some(seq) = key::parse_deferred(&k) else { return self.note(FsckError::UnknownKey(k)) };
            match Record::parse(seq, &v) {
                Ok(record) => self.deferred.extend(record.blocks),
                Err(e) => self.error(FsckError::BadValue(k, e)),
            }
            self.report.deferred_records += 1;
            Ok(())
        })
    }

    fn judge_objects(&mut self) {
        for o in self.objects.values().filter(|o| o.counted != o.recorded) {
            let (counted, recorded) = (o.counted, o.recorded);
            self.report.errors.push(FsckError::Mapped { obj: o.name.clone(), counted, recorded });
        }
    }

    /// Reads every block in use in the order of the device, neighbours together.
    fn read_all(&mut self, dev: &mut impl BlockDev) {
        let all: Vec<(u64, Owner)> = self.owners.iter().map(|(b, o)| (*b, *o)).collect();
        let mut rest = &all[..];
        while let Some((first, _)) = rest.first() {
            let next_to = |(i, (b, _)): &(usize, &(u64, _))| *b == first + *i as u64;
            let n = rest.iter().take(RUN_BLOCKS_MAX).enumerate().take_while(next_to).count();
            let (run, later) = rest.split_at(n);
            rest = later;
            let read = dev.read_sync(first * BLOCK, n * BLOCK as usize);
            for (i, (phys, owner)) in run.iter().enumerate() {
                let at = i * BLOCK as usize;
                let on_disk = read.as_ref().map(|data| data.slice(at..at + BLOCK as usize)).map_err(|e| *e);
                self.judge_block(*owner, self.deferred.get(phys).cloned().map_or(on_disk, Ok));
            }
        }
        for (run, nid, lblk) in std::mem::take(&mut self.runs).into_values() {
            self.judge_run(dev, &run, nid, lblk);
        }
    }

    fn judge_block(&mut self, owner: Owner, data: Result<Bytes, types::Errno>) {
        let (obj, off, block) = (self.objects[&owner.nid].name.clone(), owner.lblk * BLOCK, owner.block);
        match data {
            Ok(data) if block.is(&data) => {}
            Ok(data) => self.error(FsckError::Checksum { obj, off, expected: block.crc, actual: block.sum_if(&data) }),
            Err(errno) => self.error(FsckError::Unreadable { obj, off, errno }),
        }
    }

    /// A run whose blocks are right has to be what was compressed.
    fn judge_run(&mut self, dev: &mut impl BlockDev, run: &Packed, nid: u64, lblk: u64) {
        let mut pieces = Vec::new();
        for block in &run.blocks {
            let data = self.deferred.get(&block.phys).cloned().map_or_else(|| dev.read_sync(block.phys * BLOCK, BLOCK as usize), Ok);
            pieces.extend(data.ok().filter(|data| block.is(data)));
        }
        if pieces.len() == run.blocks.len() && run.unpack(&pieces).is_none() {
            self.error(FsckError::Undecodable(self.objects[&nid].name.clone(), lblk * BLOCK));
        }
    }
}
