//! Compressed runs: blocks of an object in fewer blocks of the device.
//!
//! Owns: [`Packed`], shared by the blocks of a segment that are in it.
//! Holds: each segment with a block in a run refers to each of the run's blocks on the device once, however many of its own are in
//! it: it takes them when its first one comes and lets go of them with its last. So a clone shares runs as it shares blocks.
//! Upstream: bluestore_blob_t with FLAG_COMPRESSED.

use crate::compress::Algorithm;
use crate::csum::Csum;
use crate::onode::{BLOCK, Block, SEG_BLOCKS};
use bytes::Bytes;
use denc::{DecodeError, Decoder, put_varint, varint};
use std::sync::Arc;

/// Blocks that were compressed together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub algorithm: Algorithm,
    /// Blocks in it.
    pub of: u8,
    /// Bytes that they were compressed to; what follows up to the end of the last block is zeros.
    pub len: u32,
    /// Where these are.
    pub blocks: Vec<Block>,
    /// Tells runs apart that were in the same place one after the other.
    print: u32,
}

impl Packed {
    pub fn new(algorithm: Algorithm, of: u8, len: u32, blocks: Vec<Block>) -> Packed {
        let mut run = Packed { algorithm, of, len, blocks, print: 0 };
        let mut own = Vec::new();
        run.encode(&mut own);
        run.print = denc::crc32c(&own);
        run
    }

    /// The block of the object that is the run's `at`-th.
    pub fn block(&self, at: u8) -> Block {
        let csum = if self.is_checked() { Csum::Crc32c } else { Csum::None };
        Block { phys: self.head(), crc: self.print, csum, at: at + 1, ..Block::default() }
    }

    /// The number of its first block.
    pub fn head(&self) -> u64 {
        self.blocks[0].phys
    }

    /// False if checksums do not tell what belongs to it.
    pub fn is_checked(&self) -> bool {
        self.blocks.iter().all(|b| b.csum != Csum::None)
    }

    /// Its blocks side by side on the device: the place of the first of them in `blocks`, its number, and how many.
    pub fn extents(&self) -> impl Iterator<Item = (usize, u64, usize)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = self.blocks.get(at)?.phys;
            let side_by_side = |(i, b): &(usize, &Block)| b.phys == first + *i as u64;
            let n = self.blocks[at..].iter().enumerate().take_while(side_by_side).count();
            at += n;
            Some((at - n, first, n))
        })
    }

    /// What is in it: `of` blocks. `None` if that is not what was written.
    pub fn unpack(&self, pieces: &[Bytes]) -> Option<Bytes> {
        let data: Vec<u8> = pieces.concat();
        let packed = data.get(..self.len as usize)?;
        self.algorithm.decompress(packed, usize::from(self.of) * BLOCK as usize).map(Bytes::from)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.algorithm as u8, self.of]);
        put_varint(out, self.len.into());
        for (at, first, n) in self.extents() {
            put_varint(out, n as u64);
            put_varint(out, first);
            encode_sums(out, &self.blocks[at..at + n]);
        }
    }

    pub fn decode(d: &mut Decoder<'_>) -> Result<Packed, DecodeError> {
        let algorithm = Algorithm::from_number(d.get()?).ok_or(DecodeError::Invalid("segment: compression algorithm"))?;
        let of: u8 = d.get()?;
        let len = varint(d)?;
        let count = len.div_ceil(BLOCK);
        if len == 0 || count >= u64::from(of) || u64::from(of) > SEG_BLOCKS {
            return Err(DecodeError::Invalid("segment: compressed run"));
        }
        let mut blocks = Vec::with_capacity(count as usize);
        while (blocks.len() as u64) < count {
            let (n, first) = (varint(d)?, varint(d)?);
            if n == 0 || n > count - blocks.len() as u64 || first == 0 {
                return Err(DecodeError::Invalid("segment: place of a compressed run"));
            }
            decode_sums(d, n, first, &mut blocks)?;
        }
        Ok(Packed::new(algorithm, of, len as u32, blocks))
    }

    /// Bytes of memory, roughly.
    pub fn memory(&self) -> usize {
        size_of::<Packed>() + 16 + self.blocks.len() * size_of::<Block>()
    }
}

/// The checksums of blocks by runs of the same type: type, how many, checksums.
fn encode_sums(out: &mut Vec<u8>, blocks: &[Block]) {
    for same in blocks.chunk_by(|a, b| a.csum == b.csum) {
        let csum = same[0].csum;
        out.extend_from_slice(&[csum as u8, same.len() as u8]);
        same.iter().for_each(|b| out.extend_from_slice(&b.sum().to_le_bytes()[..csum.len()]));
    }
}

/// Those of `n` blocks whose numbers begin with `first`.
fn decode_sums(d: &mut Decoder<'_>, n: u64, first: u64, blocks: &mut Vec<Block>) -> Result<(), DecodeError> {
    let mut done = 0;
    while done < n {
        let csum = Csum::from_number(d.get::<u8>()?.into()).ok_or(DecodeError::Invalid("segment: checksum type"))?;
        let same = u64::from(d.get::<u8>()?);
        if same == 0 || same > n - done {
            return Err(DecodeError::Invalid("segment: number of checksums"));
        }
        for i in done..done + same {
            let mut sum = [0; 8];
            sum[..csum.len()].copy_from_slice(&d.bytes(csum.len())?);
            blocks.push(Block::with_sum(first.saturating_add(i), csum, u64::from_le_bytes(sum)));
        }
        done += same;
    }
    Ok(())
}

/// The runs of a segment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runs(Vec<Arc<Packed>>);

impl Runs {
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Packed>> {
        self.0.iter()
    }

    /// The one that a block is in.
    pub fn of(&self, block: Block) -> Option<&Arc<Packed>> {
        self.0.iter().find(|run| run.head() == block.phys)
    }

    pub fn push(&mut self, run: Arc<Packed>) {
        self.0.push(run);
    }

    pub fn remove(&mut self, head: u64) -> Option<Arc<Packed>> {
        let at = self.0.iter().position(|run| run.head() == head)?;
        Some(self.0.remove(at))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn memory(&self) -> usize {
        self.0.iter().map(|run| run.memory() + size_of::<Arc<Packed>>()).sum()
    }
}

/// The tags of runs that format 1 does not have; each stands behind a run length of 0.
const CHECKED: u8 = 1;
const COMPRESSED: u8 = 2;
const WITHIN: u8 = 3;

/// Appends a plain run of blocks that have another checksum than crc32c.
pub(crate) fn encode_checked(out: &mut Vec<u8>, blocks: &[Block]) {
    out.extend_from_slice(&[0, CHECKED]);
    put_varint(out, blocks.len() as u64);
    put_varint(out, blocks[0].phys);
    encode_sums(out, blocks);
}

/// Appends what a compressed run is; it is known by its place among these then.
pub(crate) fn encode_run(out: &mut Vec<u8>, run: &Packed) {
    out.extend_from_slice(&[0, COMPRESSED]);
    run.encode(out);
}

/// Appends blocks that follow one another in the `run`-th compressed run, too.
pub(crate) fn encode_within(out: &mut Vec<u8>, run: usize, blocks: &[Block]) {
    out.extend_from_slice(&[0, WITHIN]);
    put_varint(out, run as u64);
    out.extend_from_slice(&[blocks[0].at - 1, blocks.len() as u8]);
}

/// Reads what stands behind a run length of 0.
pub(crate) fn decode_tagged(d: &mut Decoder<'_>, blocks: &mut Vec<Block>, runs: &mut Runs) -> Result<(), DecodeError> {
    let left = SEG_BLOCKS - blocks.len() as u64;
    match d.get::<u8>()? {
        CHECKED => {
            let (n, first) = (varint(d)?, varint(d)?);
            if n == 0 || n > left || first == 0 {
                return Err(DecodeError::Invalid("segment: run length"));
            }
            decode_sums(d, n, first, blocks)
        }
        COMPRESSED => {
            let run = Packed::decode(d)?;
            if runs.0.len() as u64 >= SEG_BLOCKS || runs.0.iter().any(|other| other.head() == run.head()) {
                return Err(DecodeError::Invalid("segment: compressed runs"));
            }
            runs.push(Arc::new(run));
            Ok(())
        }
        WITHIN => {
            let run = usize::try_from(varint(d)?).ok().and_then(|i| runs.0.get(i)).ok_or(DecodeError::Invalid("segment: which run"))?;
            let (at, n) = (d.get::<u8>()?, d.get::<u8>()?);
            if n == 0 || u64::from(n) > left || at.checked_add(n).is_none_or(|end| end > run.of) {
                return Err(DecodeError::Invalid("segment: place in a compressed run"));
            }
            blocks.extend((at..at + n).map(|i| run.block(i)));
            Ok(())
        }
        other => Err(DecodeError::BadTag { what: "segment", tag: other.into() }),
    }
}
