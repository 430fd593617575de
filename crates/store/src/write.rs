//! Data of a transaction is assigned to blocks: straight to free space, or through the log.

use crate::alloc::neighbours;
use crate::buf::{Cutter, zeros};
use crate::csum::{Csum, blocks_of};
use crate::onode::{BLOCK, Block, Onode, PendCell, SEG_BLOCKS};
use crate::queue::Job;
use crate::store::IoKind;
use crate::txc::{Content, DeferredWrite, Pend, Piece, Source, Txc, compose};
use crate::*;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use types::Errno;
use types::msg::BufList;

/// Where data is written: in an object that had `old_size` bytes, as part of something that goes through the log if it is `small`.
pub(crate) struct Extent {
    pub off: u64,
    pub old_size: u64,
    pub small: bool,
    /// Where it is already, if it is.
    pub placed: Placed,
}

impl<D: BlockDev, K: Kv> Store<D, K> {
    pub(crate) fn write(&mut self, number: u64, txc: &mut Txc, o: &mut Onode, off: u64, data: BufList) -> Result<(), Errno> {
        let len = data.len() as u64;
        let (end, old_size) = (off + len, o.size);
        let placed = self.fitting(txc, off, end, old_size);
        if len == 0 {
            return Ok(());
        }
        o.size = o.size.max(end);
        if placed.is_empty() && txc.policy.compression.wants(&o.hint) && len >= 2 * BLOCK {
            return self.write_compressing(number, txc, o, off, data, old_size);
        }
        let small = placed.is_empty() && self.is_small(txc, len);
        self.write_plain(number, txc, o, Extent { off, old_size, small, placed }, data)
    }

    /// True if so much goes through the log.
    pub(crate) fn is_small(&self, txc: &Txc, len: u64) -> bool {
        !txc.bulk && len <= u64::from(self.config.prefer_deferred_size)
    }

    /// Writes data as it is.
    pub(crate) fn write_plain(&mut self, number: u64, txc: &mut Txc, o: &mut Onode, to: Extent, data: BufList) -> Result<(), Errno> {
        let Extent { off, old_size, small, placed } = to;
        let end = off + data.len() as u64;
        let mut cutter = Cutter::new(data);
        let mut at = off;
        while at < end {
            let (lblk, start) = (at / BLOCK, at % BLOCK);
            let n = (BLOCK - start).min(end - at);
            // With its last block, if nothing stays of what that held.
            let tail = (end - at) % BLOCK;
            let direct = if covers(0, tail, end / BLOCK, old_size) { end - at } else { end - at - tail };
            if !small && start == 0 && direct > 0 {
                let mut data = cutter.take(direct as usize);
                let pad = direct.next_multiple_of(BLOCK) - direct;
                if pad > 0 {
                    data.push(zeros(pad as usize));
                }
                self.write_direct(number, txc, o, (lblk, pad), data, &placed)?;
                at += direct;
                continue;
            }
            let from = Source::Bytes(cutter.take(n as usize).contiguous());
            let piece = Piece { at: start as usize, len: n as usize, from_at: 0, from, xor: false };
            let whole = covers(start, n, lblk, old_size);
            self.perf.wrote_small(n, !whole);
            self.write_block(number, txc, o, lblk, vec![piece], !whole)?;
            at += n;
        }
        Ok(())
    }

    /// Adds data to what is there, bit by bit. Through the log, however much it is: what has to be read first is written once it is known.
    pub(crate) fn xor(&mut self, number: u64, txc: &mut Txc, o: &mut Onode, off: u64, data: BufList) -> Result<(), Errno> {
        let end = off + data.len() as u64;
        if !data.is_empty() {
            o.size = o.size.max(end);
        }
        let mut cutter = Cutter::new(data);
        let mut at = off;
        while at < end {
            let (lblk, start) = (at / BLOCK, at % BLOCK);
            let n = (BLOCK - start).min(end - at);
            let from = Source::Bytes(cutter.take(n as usize).contiguous());
            let piece = Piece { at: start as usize, len: n as usize, from_at: 0, from, xor: true };
            self.perf.wrote_small(n, true);
            self.write_block(number, txc, o, lblk, vec![piece], true)?;
            at += n;
        }
        Ok(())
    }

    /// Makes `[off, off + len)` zeros: whole blocks become holes. What lies past the object's end is zeros already.
    pub(crate) fn zero(&mut self, number: u64, txc: &mut Txc, o: &mut Onode, off: u64, len: u64) -> Result<(), Errno> {
        let end = (off + len).min(o.size);
        if off >= end {
            return Ok(());
        }
        if end - off > 4 * SEG_BLOCKS * BLOCK {
            self.load_segs(o, 0)?;
        }
        let to_the_end = end == o.size;
        let mut at = off;
        while at < end {
            let (lblk, start) = (at / BLOCK, at % BLOCK);
            let n = (BLOCK - start).min(end - at);
            let seg = (lblk / SEG_BLOCKS) as u32;
            if o.complete && o.segs.get(seg).is_none_or(|s| s.blocks.is_empty()) {
                // An object may be one huge hole: on to the next segment that holds something.
                let Some(next) = o.segs.after(seg) else { break };
                at = u64::from(next) * SEG_BLOCKS * BLOCK;
                continue;
            }
            at += n;
            let (old, _) = self.mapping(o, lblk)?;
            if old.phys == 0 {
                continue;
            }
            if start == 0 && (n == BLOCK || (at >= end && to_the_end)) {
                self.set_block(txc, o, lblk, Block::default(), None)?;
            } else {
                let piece = Piece { at: start as usize, len: n as usize, from_at: 0, from: Source::Bytes(zeros(n as usize)), xor: false };
                self.write_block(number, txc, o, lblk, vec![piece], true)?;
            }
        }
        o.dirty = true;
        Ok(())
    }

    /// Where the next write's data is already. What is not whole blocks to the object's end has to be put together with what is there: then that is nowhere.
    fn fitting(&mut self, txc: &mut Txc, off: u64, end: u64, old_size: u64) -> Placed {
        let placed = txc.placed.pop_front().unwrap_or_default();
        let whole = off.is_multiple_of(BLOCK) && (end.is_multiple_of(BLOCK) || covers(0, end % BLOCK, end / BLOCK, old_size));
        if whole && placed.blocks() == (end - off).div_ceil(BLOCK) {
            return placed;
        }
        self.give_back(placed);
        Placed::default()
    }

    /// Whole blocks straight to free space, unless they are there already; the last `pad` bytes are nobody's.
    fn write_direct(
        &mut self,
        number: u64,
        txc: &mut Txc,
        o: &mut Onode,
        (lblk, pad): (u64, u64),
        data: BufList,
        placed: &Placed,
    ) -> Result<(), Errno> {
        let runs = match placed.is_empty() {
            true => self.alloc.allocate(data.len() as u64 / BLOCK),
            false => placed.runs().collect(),
        };
        self.perf.wrote_big(data.len() as u64, pad, runs.len() as u64);
        let mut cutter = Cutter::new(data);
        let mut lblk = lblk;
        for (first, n) in runs {
            let part = cutter.take((n * BLOCK) as usize);
            let mut blocks = Vec::with_capacity(n as usize);
            blocks_of(&part, txc.policy.csum, first, |block| blocks.push(block));
            for block in blocks {
                self.set_block(txc, o, lblk, block, None)?;
                lblk += 1;
            }
            if placed.is_empty() {
                self.send_direct(number, txc, first, part);
            }
        }
        Ok(())
    }

    /// Writes blocks to free space.
    pub(crate) fn send_direct(&mut self, number: u64, txc: &mut Txc, first: u64, data: BufList) {
        let id = self.io(IoKind::TxcWrite { txc: number, first });
        txc.ios += 1;
        txc.unflushed = true;
        self.direct.insert(first, data.clone());
        self.want(txc.class, id, Job::Write { off: first * BLOCK, data });
    }

    /// One block through the log: in place if it is the object's alone, over its old content if `merge`.
    pub(crate) fn write_block(
        &mut self,
        number: u64,
        txc: &mut Txc,
        o: &mut Onode,
        lblk: u64,
        mut pieces: Vec<Piece>,
        merge: bool,
    ) -> Result<(), Errno> {
        let (old, pend) = self.mapping(o, lblk)?;
        let in_place = old.phys != 0 && old.at == 0 && !self.shared.contains(old.phys);
        if merge && old.phys != 0 {
            let from = if old.at == 0 {
                self.source(old, pend)
            } else {
                let run = self.run_of(o, lblk, old)?;
                self.packed_source(&run, old)
            };
            pieces.insert(0, Piece { at: 0, len: BLOCK as usize, from_at: 0, from, xor: false });
        }
        let phys = if in_place { old.phys } else { self.alloc.allocate_one() };
        // From here on it is read from memory, until it has reached its place.
        self.unverify(phys);
        if pieces.iter().all(|p| matches!(p.from, Source::Bytes(_) | Source::Bad(_))) {
            let csum = txc.policy.csum;
            let (data, block) = match &pieces[..] {
                [Piece { len, from_at: 0, from: Source::Bytes(data), .. }] if *len as u64 == BLOCK && data.len() == *len => {
                    (data.clone(), Block::of(phys, csum, data))
                }
                _ => {
                    let filled = compose(phys, csum, &pieces);
                    (filled.data, filled.block)
                }
            };
            let write = self.deferred.expect(phys, Some(data.clone()));
            txc.deferred.push(DeferredWrite { phys, write, content: Content::Ready(data) });
            return self.set_block(txc, o, lblk, block, None);
        }
        let cell = Arc::new(PendCell { id: self.pend_next, filled: OnceLock::new() });
        self.pend_next += 1;
        let write = self.deferred.expect(phys, None);
        txc.deferred.push(DeferredWrite { phys, write, content: Content::Pend(cell.clone()) });
        txc.pending += 1;
        self.start_pend(Pend {
            cell: cell.clone(),
            class: txc.class,
            txc: number,
            key: txc.planning.clone(),
            off: lblk * BLOCK,
            phys,
            csum: txc.policy.csum,
            write,
            pieces,
            missing: 0,
            dependents: Vec::new(),
        });
        self.set_block(txc, o, lblk, Block { phys, csum: txc.policy.csum, ..Block::default() }, Some(cell))
    }

    /// Maps a block anew; the one it had is freed, unless it stays.
    pub(crate) fn set_block(
        &mut self,
        txc: &mut Txc,
        o: &mut Onode,
        lblk: u64,
        new: Block,
        pend: Option<Arc<PendCell>>,
    ) -> Result<(), Errno> {
        let seg_no = (lblk / SEG_BLOCKS) as u32;
        let seg = self.seg(o, seg_no)?;
        let i = lblk % SEG_BLOCKS;
        let old = seg.get(i);
        seg.set(i, new);
        if let Some(cell) = pend {
            seg.pend.push((i as u8, cell));
        }
        txc.extended |= new.csum != Csum::Crc32c;
        if old.at != 0 {
            self.left_run(txc, o, seg_no, old)?;
        } else if old.phys != 0 && (old.phys != new.phys || self.shared.contains(old.phys)) {
            // A block cloned onto itself has been counted once too often; one written in place is not shared.
            self.free(txc, old.phys);
        }
        o.mapped = o.mapped + u64::from(new.phys != 0) - u64::from(old.phys != 0);
        o.dirty = true;
        o.dirty_segs.insert(seg_no);
        Ok(())
    }

    /// One object more refers to each of these blocks, holes excepted.
    pub(crate) fn share(&mut self, blocks: impl IntoIterator<Item = u64>) {
        let blocks = blocks.into_iter().filter(|phys| *phys != 0);
        neighbours(blocks).for_each(|(first, count)| self.shared.add(first, count));
    }

    /// One object less refers to the block; the last one's going frees it when the transaction is durable.
    pub(crate) fn free(&mut self, txc: &mut Txc, phys: u64) {
        if !self.shared.remove(phys) {
            txc.freed.push(phys);
        }
    }

    /// Where the content of a block can be had.
    pub(crate) fn source(&mut self, block: Block, pend: Option<Arc<PendCell>>) -> Source {
        if let Some(cell) = pend {
            return match cell.filled.get() {
                Some(filled) => filled.source(),
                None => Source::Cell(cell),
            };
        }
        if block.phys == 0 {
            return Source::Bytes(zeros(BLOCK as usize));
        }
        if let Some(data) = self.deferred.content(block.phys) {
            // Content that was made of something unreadable has the wrong checksum on purpose.
            return if block.is(&data) { Source::Bytes(data) } else { Source::Bad(data) };
        }
        match self.cache.get(block).or_else(|| self.direct_content(block.phys)) {
            Some(data) => Source::Bytes(data),
            None => Source::Device(block),
        }
    }

    /// The content of a block that is on its way to the device.
    pub(crate) fn direct_content(&self, phys: u64) -> Option<Bytes> {
        let (first, list) = self.direct.range(..=phys).next_back()?;
        let skip = ((phys - first) * BLOCK) as usize;
        if skip >= list.len() {
            return None;
        }
        let mut cutter = Cutter::new(list.clone());
        cutter.take(skip);
        Some(cutter.take(BLOCK as usize).contiguous())
    }
}

/// True if `n` bytes at `start` of a block replace all that the object has in it.
pub(crate) fn covers(start: u64, n: u64, lblk: u64, size: u64) -> bool {
    start == 0 && n >= size.saturating_sub(lblk * BLOCK).min(BLOCK)
}
