//! Onodes: what is known of an object, its map from logical to physical blocks, and their encodings.
//!
//! Holds: bytes of the last block past the object's size are zeros.
//! Upstream: bluestore_onode_t, ExtentMap in src/os/bluestore/BlueStore.h.

use crate::AllocHint;
use crate::attrs::Attrs;
use crate::csum::Csum;
use crate::packed::{self, Packed, Runs};
use bytes::Bytes;
use denc::{DecodeError, Decoder, put_varint, varint};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// The unit of allocation, checksums and device I/O, in bytes.
pub const BLOCK: u64 = 4096;
/// Blocks of a segment.
pub(crate) const SEG_BLOCKS: u64 = 64;

const VERSION: u8 = 1;
const FLAG_OMAP: u64 = 1;
const FLAG_HINT: u64 = 2;
/// Some of its blocks may be compressed.
const FLAG_PACKED: u64 = 4;
/// Bytes that a run takes beside its checksums, on devices of up to 128 TiB.
const RUN_HEAD: usize = 6;

/// Where a logical block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Block {
    /// Block number on the device; 0 is a hole. Of a block in a compressed run the number of the run's first.
    pub phys: u64,
    /// Its checksum, or, of a block in a compressed run, something that tells the run apart from others in its place.
    pub crc: u32,
    /// What of the checksum has no room there.
    pub high: u16,
    pub csum: Csum,
    /// 0, or one more than its place among the blocks of a compressed run.
    pub at: u8,
}

/// The content of a block that had to be read before it could be written, once it is known.
#[derive(Debug)]
pub(crate) struct PendCell {
    pub id: u64,
    pub filled: OnceLock<Filled>,
}

/// The checksum is the right one, unless what had to be read was unreadable (`bad`): then it is wrong on purpose.
#[derive(Debug, Clone)]
pub(crate) struct Filled {
    pub data: Bytes,
    pub block: Block,
    pub bad: bool,
}

/// The map of 64 blocks; those past the end of `blocks` are holes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segment {
    pub blocks: Vec<Block>,
    /// Blocks whose checksum is not known yet, by index.
    pub pend: Vec<(u8, Arc<PendCell>)>,
    /// The compressed runs that blocks are in.
    packed: Option<Box<Runs>>,
}

impl Segment {
    pub fn get(&self, i: u64) -> Block {
        self.blocks.get(i as usize).copied().unwrap_or_default()
    }

    pub fn pend(&self, i: u64) -> Option<&Arc<PendCell>> {
        self.pend.iter().find(|(at, _)| u64::from(*at) == i).map(|(_, cell)| cell)
    }

    /// The compressed runs that some block is in.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Packed>> {
        self.packed.iter().flat_map(|runs| runs.iter())
    }

    /// The run that a block of this segment is in.
    pub fn run_of(&self, block: Block) -> Option<&Arc<Packed>> {
        self.packed.as_ref()?.of(block)
    }

    /// Takes a run in; the caller has it refer to the run's blocks, and puts a block of it here.
    pub fn add_run(&mut self, run: Arc<Packed>) {
        self.packed.get_or_insert_default().push(run);
    }

    /// Forgets the run of which `block` was one, if no other is here.
    pub fn drop_run(&mut self, block: Block) -> Option<Arc<Packed>> {
        if self.count_in(block.phys) > 0 {
            return None;
        }
        let runs = self.packed.as_mut()?;
        let run = runs.remove(block.phys);
        if runs.is_empty() {
            self.packed = None;
        }
        run
    }

    /// How many blocks here are in the run whose first block is this one.
    pub fn count_in(&self, head: u64) -> usize {
        self.blocks.iter().filter(|b| b.at > 0 && b.phys == head).count()
    }

    /// Blocks here that are in compressed runs.
    pub fn packed_blocks(&self) -> u64 {
        if self.packed.is_none() { 0 } else { self.blocks.iter().filter(|b| b.at > 0).count() as u64 }
    }

    /// Every block of the device that this segment refers to.
    pub fn on_device(&self) -> impl Iterator<Item = &Block> {
        let plain = self.blocks.iter().filter(|b| b.phys != 0 && b.at == 0);
        plain.chain(self.runs().flat_map(|run| &run.blocks))
    }

    /// True if format 1 cannot say it.
    pub fn is_extended(&self) -> bool {
        self.packed.is_some() || self.blocks.iter().any(|b| b.csum != Csum::Crc32c)
    }

    /// Maps a block, or makes it a hole; forgets what was pending there.
    pub fn set(&mut self, i: u64, block: Block) {
        let i = i as usize;
        if self.blocks.is_empty() {
            // Most objects have one block, or are written from the start in one piece.
            self.blocks.reserve_exact(i + 1);
        }
        if i >= self.blocks.len() {
            self.blocks.resize(i + 1, Block::default());
        }
        self.blocks[i] = block;
        if !self.pend.is_empty() {
            self.pend.retain(|(at, _)| usize::from(*at) != i);
        }
        while self.blocks.last().is_some_and(|b| b.phys == 0) {
            self.blocks.pop();
        }
    }

    /// Takes over the checksums that have become known.
    pub fn settle(&mut self) {
        let blocks = &mut self.blocks;
        self.pend.retain(|(at, cell)| match cell.filled.get() {
            Some(filled) => {
                blocks[usize::from(*at)] = filled.block;
                false
            }
            None => true,
        });
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if self.is_extended() {
            return self.encode_extended(out);
        }
        let goes_on = |a: &Block, b: &Block| b.phys == if a.phys == 0 { 0 } else { a.phys + 1 };
        let count = self.blocks.chunk_by(goes_on).count();
        out.reserve(1 + RUN_HEAD * count + 4 * self.blocks.len());
        put_varint(out, count as u64);
        for run in self.blocks.chunk_by(goes_on) {
            put_varint(out, run.len() as u64);
            put_varint(out, run[0].phys);
            if run[0].phys != 0 {
                run.iter().for_each(|b| out.extend_from_slice(&b.crc.to_le_bytes()));
            }
        }
    }

    /// With compressed runs, or checksums of several types.
    fn encode_extended(&self, out: &mut Vec<u8>) {
        let goes_on = |a: &Block, b: &Block| match (a.phys, a.at) {
            (0, _) => b.phys == 0,
            (phys, 0) => b.phys == phys + 1 && b.at == 0 && (a.csum == Csum::Crc32c) == (b.csum == Csum::Crc32c),
            (phys, at) => b.phys == phys && b.at == at + 1,
        };
        let runs: Vec<&[Block]> = self.blocks.chunk_by(goes_on).collect();
        put_varint(out, (self.runs().count() + runs.len()) as u64);
        self.runs().for_each(|run| packed::encode_run(out, run));
        for run in runs {
            if run[0].at > 0 {
                let of = self.runs().position(|p| p.head() == run[0].phys).expect("a block's run is known to its segment");
                packed::encode_within(out, of, run);
            } else if run[0].phys != 0 && run[0].csum != Csum::Crc32c {
                packed::encode_checked(out, run);
            } else {
                put_varint(out, run.len() as u64);
                put_varint(out, run[0].phys);
                run.iter().filter(|b| b.phys != 0).for_each(|b| out.extend_from_slice(&b.crc.to_le_bytes()));
            }
        }
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut blocks = Vec::new();
        let mut runs = Runs::default();
        for _ in 0..varint(d)? {
            let n = varint(d)?;
            if n == 0 {
                packed::decode_tagged(d, &mut blocks, &mut runs)?;
                continue;
            }
            let phys = varint(d)?;
            if n > SEG_BLOCKS - blocks.len() as u64 {
                return Err(DecodeError::Invalid("segment: run length"));
            }
            // Most segments are one run; in one of many each would move all before it.
            if blocks.is_empty() {
                blocks.reserve_exact(n as usize);
            }
            if phys == 0 {
                blocks.resize(blocks.len() + n as usize, Block::default());
                continue;
            }
            let (sums, _) = d.raw(4 * n as usize)?.as_chunks();
            let block = |(i, sum): (u64, &[u8; 4])| Block { phys: phys.saturating_add(i), crc: u32::from_le_bytes(*sum), ..Block::default() };
            blocks.extend((0..).zip(sums).map(block));
        }
        blocks.shrink_to_fit();
        let mut seg = Segment { blocks, ..Segment::default() };
        if !runs.is_empty() {
            if runs.iter().any(|run| seg.count_in(run.head()) == 0) {
                return Err(DecodeError::Invalid("segment: a run that nothing is in"));
            }
            seg.packed = Some(Box::new(runs));
        }
        Ok(seg)
    }

    /// The value of an `X` key.
    pub fn to_value(&self) -> Bytes {
        let mut out = Vec::new();
        self.encode(&mut out);
        out.into()
    }

    pub fn from_value(value: &Bytes) -> Result<Self, DecodeError> {
        let mut d = Decoder::shared(value);
        let seg = Segment::decode(&mut d)?;
        d.finish()?;
        Ok(seg)
    }
}

/// Segments by number. The first lives in place: a small object has no other, and a map of one costs twelve times as much.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segs {
    first: Segment,
    more: BTreeMap<u32, Segment>,
}

impl Segs {
    pub fn new(first: Segment) -> Self {
        Segs { first, more: BTreeMap::new() }
    }

    /// `None`: it is not in memory.
    pub fn get(&self, seg: u32) -> Option<&Segment> {
        if seg == 0 { Some(&self.first) } else { self.more.get(&seg) }
    }

    pub fn get_mut(&mut self, seg: u32) -> Option<&mut Segment> {
        if seg == 0 { Some(&mut self.first) } else { self.more.get_mut(&seg) }
    }

    pub fn insert(&mut self, seg: u32, segment: Segment) {
        if seg == 0 {
            self.first = segment;
        } else {
            self.more.insert(seg, segment);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        std::iter::once((0, &self.first)).chain(self.more.iter().map(|(i, s)| (*i, s)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        std::iter::once(&mut self.first).chain(self.more.values_mut())
    }

    /// The next one in memory after `seg`.
    pub fn after(&self, seg: u32) -> Option<u32> {
        self.more.range(seg + 1..).next().map(|(next, _)| *next)
    }

    /// Segments in memory.
    pub fn len(&self) -> usize {
        1 + self.more.len()
    }
}

/// No object has a greater number, size or bytes of blocks: what says so is damaged, and its sums might overflow.
const NUMBER_MAX: u64 = 1 << 60;

/// An object in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Onode {
    /// False: there is no such object (remembered, or just removed).
    pub exists: bool,
    pub nid: u64,
    pub size: u64,
    pub attrs: Attrs,
    pub hint: AllocHint,
    pub has_omap: bool,
    /// Blocks that are not holes, over all segments.
    pub mapped: u64,
    /// Some of its blocks may be compressed.
    pub packed: bool,
    /// Segments in memory; when `complete`, all others are empty. Segment 0 always is here.
    pub segs: Segs,
    pub complete: bool,
    /// A record of it is, or will be, in the database.
    pub stored: bool,
    /// Transactions that changed it and are not applied yet: it must stay in memory, and data is not read.
    pub pins: u32,
    /// The block behind what was read last: whoever goes on there reads from front to back.
    pub read_next: u64,
    /// Used, since the cache last looked, in a turn other than the one it came in.
    pub hot: bool,
    /// The turn of the store in which it was used last.
    pub used: u64,
    /// Bytes the cache counts it for.
    pub memory: u64,
    /// Changed by the transaction being planned.
    pub dirty: bool,
    pub dirty_segs: BTreeSet<u32>,
}

impl Onode {
    /// Number of segments an object of this size can have.
    pub fn seg_count(size: u64) -> u32 {
        size.div_ceil(BLOCK * SEG_BLOCKS) as u32
    }

    pub fn use_in(&mut self, turn: u64) {
        self.hot |= self.used != turn;
        self.used = turn;
    }

    /// Bytes of user data.
    pub fn stored_bytes(&self) -> u64 {
        self.size.min(self.mapped * BLOCK)
    }

    /// What it costs to keep, in bytes, roughly.
    pub fn count_memory(&self) -> u64 {
        // A map's first node has room for eleven entries, used or not.
        let node = |n: usize, entry: usize| n.div_ceil(8) * 11 * entry;
        let attrs = if self.attrs.is_empty() { 0 } else { 64 + self.attrs.encoded_len() };
        let segs: usize = self.segs.iter().map(|(_, s)| 16 + 16 * s.blocks.capacity() + s.packed.as_ref().map_or(0, |p| p.memory())).sum();
        // 144: the place in the cache, the key's counter, what the allocator adds.
        (size_of::<Onode>() + 144 + node(self.segs.len() - 1, size_of::<Segment>() + 8) + attrs + segs) as u64
    }

    /// The value of the `O` key, if that is all there is to know: `None` for what the database does not have (yet).
    pub fn pack(&mut self) -> Option<Box<[u8]>> {
        self.segs.iter_mut().for_each(Segment::settle);
        let is_known = self.segs.first.pend.is_empty() && self.pins == 0 && !self.dirty && self.exists && self.stored;
        is_known.then(|| self.encode().into_boxed_slice())
    }

    /// The value of the `O` key.
    pub fn to_value(&self) -> Bytes {
        self.encode().into()
    }

    fn encode(&self) -> Vec<u8> {
        let first = &self.segs.first;
        let mut out = Vec::with_capacity(48 + self.attrs.encoded_len() + 6 * first.blocks.len());
        out.push(VERSION);
        let hinted = self.hint != AllocHint::default();
        let flags = if self.has_omap { FLAG_OMAP } else { 0 } | if hinted { FLAG_HINT } else { 0 } | if self.packed { FLAG_PACKED } else { 0 };
        for v in [self.nid, self.size, self.mapped, flags] {
            put_varint(&mut out, v);
        }
        if hinted {
            for v in [self.hint.expected_object_size, self.hint.expected_write_size, self.hint.flags.into()] {
                put_varint(&mut out, v);
            }
        }
        put_varint(&mut out, self.attrs.len().into());
        self.attrs.encode(&mut out);
        first.encode(&mut out);
        out
    }

    pub fn from_value(value: &Bytes) -> Result<Self, DecodeError> {
        let mut d = Decoder::shared(value);
        let version: u8 = d.get()?;
        if version != VERSION {
            return Err(DecodeError::TooNew { what: "onode", compat: version, supported: VERSION });
        }
        let (nid, size, mapped, flags) = (varint(&mut d)?, varint(&mut d)?, varint(&mut d)?, varint(&mut d)?);
        if nid > NUMBER_MAX || size > NUMBER_MAX || mapped > NUMBER_MAX / BLOCK {
            return Err(DecodeError::Invalid("an onode's numbers"));
        }
        let hint = if flags & FLAG_HINT == 0 {
            AllocHint::default()
        } else {
            AllocHint {
                expected_object_size: varint(&mut d)?,
                expected_write_size: varint(&mut d)?,
                flags: varint(&mut d)? as u32,
            }
        };
        let count = varint(&mut d)?;
        let attrs = Attrs::decode(value, &mut d, count)?;
        let first = Segment::decode(&mut d)?;
        d.finish()?;
        Ok(Onode {
            exists: true,
            nid,
            size,
            attrs,
            hint,
            has_omap: flags & FLAG_OMAP != 0,
            packed: flags & FLAG_PACKED != 0,
            mapped,
            segs: Segs::new(first),
            complete: Self::seg_count(size) <= 1,
            stored: true,
            ..Onode::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Onode {
        let mut seg = Segment::default();
        for (i, phys) in [(0, 7), (1, 8), (2, 9), (5, 3), (63, u64::MAX >> 20)] {
            seg.set(i, Block { phys, crc: phys as u32 ^ 0xdead, ..Block::default() });
        }
        let mut attrs = Attrs::default();
        attrs.set(&[("_".into(), Bytes::from_static(b"info")), ("empty".into(), Bytes::new())]);
        Onode {
            exists: true,
            nid: 300,
            size: 1 << 20,
            mapped: 5,
            attrs,
            hint: AllocHint { expected_object_size: 4 << 20, expected_write_size: 1, flags: 3 },
            has_omap: true,
            segs: Segs::new(seg),
            ..Onode::default()
        }
    }

    #[test]
    fn onodes_read_back() {
        let o = sample();
        let p = Onode::from_value(&o.to_value()).unwrap();
        assert_eq!((p.nid, p.size, p.mapped, p.has_omap, p.hint), (o.nid, o.size, o.mapped, true, o.hint));
        assert_eq!(p.attrs, o.attrs);
        assert_eq!(p.segs.first.blocks, o.segs.first.blocks);
        assert!(!p.complete);
    }

    #[test]
    fn damaged_onodes_are_refused_without_panic() {
        let v = sample().to_value();
        for n in 0..v.len() {
            assert!(Onode::from_value(&v.slice(..n)).is_err());
            for bit in 0..8 {
                let mut w = v.to_vec();
                w[n] ^= 1 << bit;
                let _ = Onode::from_value(&w.into());
            }
        }
    }

    #[test]
    fn a_hole_at_the_end_takes_no_room() {
        let mut seg = Segment::default();
        seg.set(9, Block { phys: 1, crc: 1, ..Block::default() });
        seg.set(9, Block::default());
        assert!(seg.blocks.is_empty());
    }
}
