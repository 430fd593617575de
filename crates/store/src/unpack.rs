//! Compressed runs in motion: written, shared, let go of, and read for blocks that are written in part.
//!
//! Holds: a run never changes. A block of it that is written anew goes elsewhere; when so few of its blocks are left in a segment that they
//! would take less room by themselves, they are written by themselves. So an object never takes more room than without compression, and
//! what was compressed is written once more at most.

use crate::buf::{Cutter, zeros};
use crate::csum::blocks_of;
use crate::onode::{BLOCK, Block, Onode, SEG_BLOCKS};
use crate::packed::Packed;
use crate::queue::Job;
use crate::store::IoKind;
use crate::txc::{Content, DeferredWrite, Piece, Source, Txc};
use crate::write::{Extent, covers};
use crate::*;
use bytes::Bytes;
use qos::Class;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::msg::BufList;
use types::{Errno, PoolId};

/// What is compressed of a pool, in bytes; see `StatFs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compressed {
    /// What blocks in compressed runs hold, those of clones each for itself.
    pub original: u64,
    /// What runs were compressed to.
    pub stored: u64,
    /// The blocks that they take.
    pub allocated: u64,
}

impl Compressed {
    pub fn add(&mut self, o: &Self) {
        self.original += o.original;
        self.stored += o.stored;
        self.allocated += o.allocated;
    }
}

/// What is compressed, by pool.
#[derive(Default)]
pub(crate) struct CompressedOf(pub BTreeMap<PoolId, Compressed>);

impl CompressedOf {
    pub fn run(&mut self, pool: PoolId, run: &Packed, comes: bool) {
        let c = self.0.entry(pool).or_default();
        let (stored, allocated) = (u64::from(run.len), run.blocks.len() as u64 * BLOCK);
        if comes {
            (c.stored, c.allocated) = (c.stored + stored, c.allocated + allocated);
        } else {
            // Damaged records may have runs that overlap.
            (c.stored, c.allocated) = (c.stored.saturating_sub(stored), c.allocated.saturating_sub(allocated));
        }
    }

    pub fn blocks_come(&mut self, pool: PoolId, blocks: u64) {
        if blocks > 0 {
            self.0.entry(pool).or_default().original += blocks * BLOCK;
        }
    }

    pub fn blocks_go(&mut self, pool: PoolId, blocks: u64) {
        if blocks > 0 {
            let c = self.0.entry(pool).or_default();
            c.original = c.original.saturating_sub(blocks * BLOCK);
            if *c == Compressed::default() {
                self.0.remove(&pool);
            }
        }
    }
}

/// A run that is being read for blocks that are written in part.
pub(crate) struct Unpack {
    run: Arc<Packed>,
    class: Class,
    /// Its blocks; empty while they are on their way.
    pieces: Vec<Bytes>,
    missing: u32,
    attempts: u32,
    /// One that is not what it should be, or could not be read.
    bad: Option<(Block, Option<u32>)>,
    /// Who waits: the pending block, which of its pieces, and which block of the run that is.
    waiting: Vec<(u64, usize, u8)>,
}

/// A run that has no place yet.
struct NewRun {
    lblk: u64,
    of: u8,
    len: u32,
}

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// Writes what may be worth compressing: runs that are go to free space, the rest where it would go anyway.
    pub(crate) fn write_compressing(
        &mut self,
        number: u64,
        txc: &mut Txc,
        o: &mut Onode,
        off: u64,
        data: BufList,
        old_size: u64,
    ) -> Result<(), Errno> {
        let end = off + data.len() as u64;
        let small = self.is_small(txc, data.len() as u64);
        let most = txc.policy.compression.run_blocks(&o.hint);
        let mut cutter = Cutter::new(data);
        let (mut runs, mut packed) = (Vec::new(), BufList::default());
        let (mut plain_off, mut plain) = (off, BufList::default());
        let mut at = off;
        while at < end {
            let boundary = if at.is_multiple_of(BLOCK) { (at / BLOCK / most + 1) * most * BLOCK } else { at.next_multiple_of(BLOCK) };
            let chunk_end = end.min(boundary);
            let tail = chunk_end % BLOCK;
            // With its last block, if nothing stays of what that held.
            let whole = if covers(0, tail, chunk_end / BLOCK, old_size) { chunk_end } else { chunk_end - tail };
            let chunk = cutter.take((chunk_end - at) as usize);
            let blocks = whole.saturating_sub(at).div_ceil(BLOCK);
            match (at.is_multiple_of(BLOCK) && blocks >= 2).then(|| pack(txc, &chunk, (whole - at) as usize, blocks)).flatten() {
                None => plain.append(chunk),
                Some(bytes) => {
                    let to = Extent { off: plain_off, old_size, small, placed: Placed::default() };
                    self.write_plain(number, txc, o, to, std::mem::take(&mut plain))?;
                    runs.push(NewRun { lblk: at / BLOCK, of: blocks as u8, len: bytes.len() as u32 });
                    packed.push(bytes.into());
                    packed_pad(&mut packed);
                    // What is left of the chunk is part of a block.
                    let mut rest = Cutter::new(chunk);
                    rest.take((whole - at) as usize);
                    plain_off = whole;
                    plain = rest.take((chunk_end - whole) as usize);
                }
            }
            at = chunk_end;
        }
        self.write_plain(number, txc, o, Extent { off: plain_off, old_size, small, placed: Placed::default() }, plain)?;
        if runs.is_empty() { Ok(()) } else { self.place_runs(number, txc, o, runs, packed, small) }
    }

    /// Gives runs their place, one behind the other.
    fn place_runs(&mut self, number: u64, txc: &mut Txc, o: &mut Onode, runs: Vec<NewRun>, data: BufList, small: bool) -> Result<(), Errno> {
        let places = self.alloc.allocate(data.len() as u64 / BLOCK);
        let mut cutter = Cutter::new(data);
        let mut blocks = Vec::new();
        for (first, n) in places {
            let part = cutter.take((n * BLOCK) as usize);
            blocks_of(&part, txc.policy.csum, first, |block| blocks.push(block));
            if !small {
                self.send_direct(number, txc, first, part);
                continue;
            }
            let mut part = Cutter::new(part);
            for phys in first..first + n {
                let data = part.take(BLOCK as usize).contiguous();
                self.unverify(phys);
                let write = self.deferred.expect(phys, Some(data.clone()));
                txc.deferred.push(DeferredWrite { phys, write, content: Content::Ready(data) });
            }
        }
        let mut blocks = blocks.into_iter();
        for NewRun { lblk, of, len } in runs {
            let own = blocks.by_ref().take(u64::from(len).div_ceil(BLOCK) as usize).collect();
            let run = Arc::new(Packed::new(txc.policy.compression.algorithm, of, len, own));
            self.compressed.run(txc.coll.pg.pool, &run, true);
            for at in 0..of {
                self.set_packed(txc, o, lblk + u64::from(at), &run, at)?;
            }
            // It has been counted for each segment, and once for being made.
            self.free_run(txc, &run);
        }
        txc.extended = true;
        Ok(())
    }

    /// Maps a block of the object to one of a run.
    pub(crate) fn set_packed(&mut self, txc: &mut Txc, o: &mut Onode, lblk: u64, run: &Arc<Packed>, at: u8) -> Result<(), Errno> {
        let seg_no = (lblk / SEG_BLOCKS) as u32;
        if self.seg(o, seg_no)?.count_in(run.head()) == 0 {
            self.share_run(run);
            self.seg(o, seg_no)?.add_run(run.clone());
        }
        o.packed = true;
        self.compressed.blocks_come(txc.coll.pg.pool, 1);
        let seg = self.seg(o, seg_no)?;
        let i = lblk % SEG_BLOCKS;
        let old = seg.get(i);
        seg.set(i, run.block(at));
        o.mapped += u64::from(old.phys == 0);
        o.dirty = true;
        o.dirty_segs.insert(seg_no);
        match old {
            Block { phys: 0, .. } => Ok(()),
            Block { at: 0, .. } => {
                self.free(txc, old.phys);
                Ok(())
            }
            _ => self.left_run(txc, o, seg_no, old),
        }
    }

    /// A block of a run is not mapped there any more.
    pub(crate) fn left_run(&mut self, txc: &mut Txc, o: &mut Onode, seg_no: u32, old: Block) -> Result<(), Errno> {
        let gone = self.seg(o, seg_no)?.drop_run(old);
        if let Some(run) = gone {
            self.free_run(txc, &run);
        }
        self.compressed.blocks_go(txc.coll.pg.pool, 1);
        Ok(())
    }

    /// One segment more refers to a run.
    pub(crate) fn share_run(&mut self, run: &Packed) {
        self.share(run.blocks.iter().map(|b| b.phys));
    }

    /// One segment less refers to it.
    pub(crate) fn free_run(&mut self, txc: &mut Txc, run: &Packed) {
        if !self.shared.contains(run.head()) {
            self.compressed.run(txc.coll.pg.pool, run, false);
        }
        run.blocks.iter().for_each(|b| self.free(txc, b.phys));
    }

    /// The run that a mapped block is in.
    pub(crate) fn run_of(&mut self, o: &mut Onode, lblk: u64, block: Block) -> Result<Arc<Packed>, Errno> {
        let run = self.seg(o, (lblk / SEG_BLOCKS) as u32)?.run_of(block).cloned();
        run.ok_or(Errno::EIO)
    }

    /// What is left of runs that take more room than it would by itself is written by itself.
    pub(crate) fn unpack_sparse(&mut self, number: u64, txc: &mut Txc, key: &Bytes, o: &mut Onode) -> Result<(), Errno> {
        if !o.packed || !o.exists {
            return Ok(());
        }
        for seg_no in o.dirty_segs.clone() {
            let Some(seg) = o.segs.get(seg_no) else { continue };
            let sparse = |run: &&Arc<Packed>| seg.count_in(run.head()) < run.blocks.len() && !self.shared.contains(run.head());
            let runs: Vec<Arc<Packed>> = seg.runs().filter(sparse).cloned().collect();
            for run in runs {
                let Some(seg) = o.segs.get(seg_no) else { continue };
                let first = u64::from(seg_no) * SEG_BLOCKS;
                let left = |(lblk, b): (u64, &Block)| (b.at > 0 && b.phys == run.head()).then_some((lblk, *b));
                let left: Vec<(u64, Block)> = (first..).zip(&seg.blocks).filter_map(left).collect();
                if left.len() as u64 > self.alloc.free() {
                    return Ok(());
                }
                txc.planning = key.clone();
                for (lblk, block) in left {
                    let from = self.packed_source(&run, block);
                    let piece = Piece { at: 0, len: BLOCK as usize, from_at: 0, from, xor: false };
                    self.write_block(number, txc, o, lblk, vec![piece], false)?;
                }
            }
        }
        Ok(())
    }

    /// The blocks of a run that are in memory; the others are empty.
    pub(crate) fn pieces_in_memory(&mut self, run: &Packed, cached: bool) -> Vec<Bytes> {
        let piece = |b: &Block| {
            let found = self.deferred.content(b.phys).or_else(|| self.direct_content(b.phys)).filter(|data| b.is(data));
            found.or_else(|| if cached { self.cache.get(*b) } else { None }).unwrap_or_default()
        };
        run.blocks.iter().map(piece).collect()
    }

    /// Where the content of a block in a run can be had.
    pub(crate) fn packed_source(&mut self, run: &Arc<Packed>, block: Block) -> Source {
        if let Some(data) = self.cache.get(block) {
            return Source::Bytes(data);
        }
        let pieces = self.pieces_in_memory(run, true);
        if pieces.iter().any(Bytes::is_empty) {
            return Source::Packed(run.clone(), block.at - 1);
        }
        match run.unpack(&pieces) {
            Some(all) => Source::Bytes(part(&all, block.at - 1)),
            None => Source::Bad(zeros(BLOCK as usize)),
        }
    }

    /// A piece of a pending block is in a run: reads that, once for all who wait.
    pub(crate) fn want_unpacked(&mut self, class: Class, pend: u64, piece: usize, run: Arc<Packed>, at: u8) {
        let head = run.head();
        if let Some(unpack) = self.unpacks.get_mut(&head) {
            return unpack.waiting.push((pend, piece, at));
        }
        let pieces = self.pieces_in_memory(&run, true);
        let waiting = vec![(pend, piece, at)];
        let unpack = Unpack { run, class, pieces, missing: 0, attempts: 0, bad: None, waiting };
        self.unpacks.insert(head, unpack);
        self.read_run(head);
    }

    fn read_run(&mut self, head: u64) {
        let Some(unpack) = self.unpacks.get(&head) else { return };
        let lacks = |(at, _, n): &(usize, u64, usize)| unpack.pieces[*at..at + n].iter().any(Bytes::is_empty);
        let extents: Vec<_> = unpack.run.extents().filter(lacks).collect();
        let class = unpack.class;
        for (at, first, n) in &extents {
            let id = self.io(IoKind::Unpack { head, at: *at, n: *n });
            self.want(class, id, Job::Read { off: first * BLOCK, len: n * BLOCK as usize, cached: false });
        }
        if let Some(unpack) = self.unpacks.get_mut(&head) {
            unpack.missing = extents.len() as u32;
        }
    }

    pub(crate) fn handle_unpack_read(&mut self, head: u64, at: usize, n: usize, result: Result<Bytes, Errno>) {
        let Some(unpack) = self.unpacks.get_mut(&head) else { return };
        unpack.missing -= 1;
        for i in 0..n {
            let (block, piece) = (unpack.run.blocks[at + i], &mut unpack.pieces[at + i]);
            if piece.is_empty() {
                match result.as_ref().ok().filter(|data| data.len() == n * BLOCK as usize).map(|data| part(data, i as u8)) {
                    Some(data) if block.is(&data) => *piece = data,
                    other => unpack.bad = Some((block, other.map(|data| block.sum_if(&data)))),
                }
            }
        }
        if unpack.missing > 0 {
            return;
        }
        if unpack.bad.is_some() && unpack.attempts < self.config.retry_disk_reads {
            unpack.attempts += 1;
            unpack.bad = None;
            return self.read_run(head);
        }
        self.finish_unpack(head);
    }

    fn finish_unpack(&mut self, head: u64) {
        let Some(unpack) = self.unpacks.remove(&head) else { return };
        let all = if unpack.bad.is_some() { None } else { unpack.run.unpack(&unpack.pieces) };
        if let Some((block, actual)) = unpack.bad {
            self.unverify(block.phys);
            if let (Some(actual), Some((pend, ..))) = (actual, unpack.waiting.first()) {
                self.report_pend_checksum(*pend, block, actual);
            }
        }
        for (pend, piece, at) in unpack.waiting {
            let from = match &all {
                Some(all) => Source::Bytes(part(all, at)),
                None => Source::Bad(zeros(BLOCK as usize)),
            };
            self.piece_is_here(pend, piece, from);
        }
    }

    /// What is compressed of each pool.
    pub fn compressed(&self) -> &BTreeMap<PoolId, Compressed> {
        &self.compressed.0
    }
}

/// One block of many.
pub(crate) fn part(data: &Bytes, at: u8) -> Bytes {
    let from = usize::from(at) * BLOCK as usize;
    data.slice(from..from + BLOCK as usize)
}

/// The first `len` bytes of a chunk in fewer blocks than it has, if that is worth it.
fn pack(txc: &Txc, chunk: &BufList, len: usize, blocks: u64) -> Option<Vec<u8>> {
    let whole = (blocks * BLOCK) as usize;
    match chunk.pieces() {
        [one] if one.len() >= whole => txc.policy.compression.pack(&one[..whole]),
        _ => {
            let mut data = Cutter::new(chunk.clone()).take(len).contiguous().to_vec();
            data.resize(whole, 0);
            txc.policy.compression.pack(&data)
        }
    }
}

fn packed_pad(list: &mut BufList) {
    let beyond = list.len() as u64 % BLOCK;
    if beyond > 0 {
        list.push(zeros((BLOCK - beyond) as usize));
    }
}
