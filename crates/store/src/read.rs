//! Reading data: from memory where it is, else from the device, never without its checksum.
//!
//! Holds: bytes are handed out only if they match the onode's checksum for them, whatever happened to the object while
//! the device was reading: if the map has changed since, the read starts again.

use crate::buf::zeros;
use crate::csum::{self, Csum};
use crate::onode::{BLOCK, Block, SEG_BLOCKS};
use crate::packed::Packed;
use crate::queue::Job;
use crate::store::IoKind;
use crate::unpack;
use crate::*;
use bytes::Bytes;
use qos::Class;
use std::sync::Arc;
use types::msg::BufList;
use types::{Errno, Mono, Now, ShardPgId};

/// Longest single device read, in blocks.
const RUN_BLOCKS_MAX: usize = 1024;
/// Reads of up to this many blocks leave them in the cache; longer ones would only flush it.
const CACHED_BLOCKS_MAX: u64 = 16;

/// A read under way.
pub(crate) struct ReadOp {
    id: ReadId,
    coll: ShardPgId,
    key: Bytes,
    off: u64,
    len: u64,
    flags: ReadFlags,
    since: Mono,
    /// The device was asked.
    device: bool,
    /// The page cache was.
    cached: bool,
    /// It had something else, or an error: it is not asked again.
    uncached: bool,
    /// How often the device has been wrong.
    attempts: u32,
    /// Device reads not answered.
    ios: u32,
    /// Consecutive pieces of the range, in whole blocks.
    parts: Vec<Part>,
    /// Blocks that failed.
    bad: Vec<Bad>,
}

enum Part {
    Hole(u64),
    Memory(Bytes),
    /// A block that need not be read again: its checksum.
    Trusted(u32),
    /// Consecutive blocks: the first's logical number, and what is expected.
    Device {
        lblk: u64,
        blocks: Vec<Block>,
        data: Bytes,
        /// crc32c of all that was read, if that is known.
        crc: Option<u32>,
        /// The page cache had it.
        hit: bool,
    },
    /// Consecutive blocks of a compressed run.
    Packed(Box<PackedPart>),
}

struct PackedPart {
    lblk: u64,
    run: Arc<Packed>,
    /// The first one's place in the run, and how many.
    at: u8,
    n: u8,
    /// The run's blocks; empty while they are on their way.
    pieces: Vec<Bytes>,
    /// All that is in the run, once that is known.
    data: Bytes,
}

/// A block that is not what it should be; without `actual` the device could not read it at all.
struct Bad {
    lblk: u64,
    /// What is mapped there.
    block: Block,
    /// The block on the device: another one if that is compressed.
    on_device: Block,
    actual: Option<u32>,
}

impl Bad {
    fn plain(lblk: u64, block: Block, actual: Option<u32>) -> Bad {
        Bad { lblk, block, on_device: block, actual }
    }
}

impl ReadOp {
    pub fn new(since: Mono, id: ReadId, coll: ShardPgId, key: Bytes, off: u64, len: u64, flags: ReadFlags) -> Self {
        ReadOp { id, coll, key, off, len, flags, since, device: false, cached: false, uncached: false, attempts: 0, ios: 0, parts: Vec::new(), bad: Vec::new() }
    }
}

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// Plans a read, or plans it anew, and sends it off.
    pub(crate) fn start_read(&mut self, mut op: ReadOp) {
        (op.parts, op.bad, op.ios) = (Vec::new(), Vec::new(), 0);
        if let Err(errno) = self.check_alive() {
            return self.answer(&op, Err(errno));
        }
        let Ok((key, mut onode)) = self.take_onode(&op.key) else {
            return self.answer(&op, Err(Errno::EIO));
        };
        let ready = onode.pins == 0;
        let segs = onode.segs.len();
        let planned = if ready { self.plan_read(&mut op, &mut onode) } else { Ok(()) };
        // Planning may have read segments from the database.
        match onode.segs.len() == segs {
            true => self.onodes.put_back(key, onode),
            false => self.onodes.put_back_changed(key, onode),
        }
        match planned {
            Err(errno) => self.answer(&op, Err(errno)),
            Ok(()) if !ready => self.reads_blocked.push(op),
            Ok(()) => self.send_read(op),
        }
    }

    /// Takes an onode out of the cache, having loaded it if need be. It must be put back.
    pub(crate) fn take_onode(&mut self, key: &Bytes) -> Result<(Bytes, Box<onode::Onode>), Errno> {
        if let Some(found) = self.onodes.take(key) {
            self.perf.onode_hit();
            return Ok(found);
        }
        let onode = self.load_onode(key)?;
        self.onodes.insert(key.clone(), onode);
        Ok(self.onodes.take(key).expect("it is in the cache"))
    }

    fn plan_read(&mut self, op: &mut ReadOp, o: &mut onode::Onode) -> Result<(), Errno> {
        if !o.exists {
            return Err(Errno::ENOENT);
        }
        let end = op.off.saturating_add(op.len).min(o.size);
        op.len = end.saturating_sub(op.off);
        if op.len == 0 {
            return Ok(());
        }
        if op.flags.digest && !(op.off.is_multiple_of(BLOCK) && (end.is_multiple_of(BLOCK) || end == o.size)) {
            return Err(Errno::EINVAL);
        }
        let trust = op.flags.trust.filter(|_| op.flags.digest);
        for lblk in op.off / BLOCK..end.div_ceil(BLOCK) {
            let (block, _) = self.mapping(o, lblk)?;
            if block.phys == 0 {
                match op.parts.last_mut() {
                    Some(Part::Hole(n)) => *n += 1,
                    _ => op.parts.push(Part::Hole(1)),
                }
                continue;
            }
            if block.at > 0 {
                self.plan_packed(op, o, lblk, block)?;
                continue;
            }
            match self.in_memory(op, lblk, block) {
                Some(data) => op.parts.push(Part::Memory(data)),
                None if block.csum == Csum::Crc32c && trust.is_some_and(|trust| self.verified.is_known(block.phys, trust)) => op.parts.push(Part::Trusted(block.crc)),
                None => push_device(&mut op.parts, lblk, block),
            }
        }
        if op.may_be_cached(&self.config) {
            self.look_in_page_cache(op);
        }
        if self.config.readahead_bytes > 0 {
            self.read_ahead(op, o, end.div_ceil(BLOCK));
        }
        Ok(())
    }

    /// Takes what the page cache has. What is wrong there may be right on the device, which is asked then.
    fn look_in_page_cache(&mut self, op: &mut ReadOp) {
        for part in &mut op.parts {
            let Part::Device { blocks, data, crc, hit, .. } = part else { continue };
            let (off, len) = (blocks[0].phys * BLOCK, blocks.len() * BLOCK as usize);
            if !are_cacheable(blocks) {
                continue;
            }
            let Some(found) = self.dev.cached(off, len) else { continue };
            *crc = csum::sum_if_right(blocks, &found);
            *hit = crc.is_some();
            match hit {
                true => {
                    self.queue.spared(len as u64);
                    *data = found;
                }
                false => self.dev.uncache(off, len as u64),
            }
        }
    }

    /// Has what lies behind the last run of blocks read with it, for who reads on. Not when the device was wrong: what nobody asked for
    /// must not be what fails.
    fn read_ahead(&mut self, op: &mut ReadOp, o: &mut onode::Onode, next: u64) {
        let goes_on = std::mem::replace(&mut o.read_next, next) == op.off / BLOCK;
        if !goes_on || op.attempts > 0 || op.flags.digest || op.flags.nocache || op.flags.bypass || next.is_multiple_of(SEG_BLOCKS) {
            return;
        }
        let Some(Part::Device { blocks, hit: false, .. }) = op.parts.last_mut() else { return };
        let most = u64::from(self.config.readahead_bytes) / BLOCK;
        let Some(seg) = o.segs.get((next / SEG_BLOCKS) as u32) else { return };
        for i in next % SEG_BLOCKS..SEG_BLOCKS.min(next % SEG_BLOCKS + most) {
            let block = seg.get(i);
            let follows = blocks.last().is_some_and(|last| last.phys + 1 == block.phys) && block.at == 0 && seg.pend(i).is_none();
            if !follows || self.deferred.blocks.contains_key(&block.phys) || self.cache.has(block) {
                return;
            }
            blocks.push(block);
        }
    }

    fn plan_packed(&mut self, op: &mut ReadOp, o: &mut onode::Onode, lblk: u64, block: Block) -> Result<(), Errno> {
        if let Some(Part::Packed(part)) = op.parts.last_mut()
            && part.at + part.n == block.at - 1
            && part.run.block(block.at - 1) == block
        {
            part.n += 1;
            return Ok(());
        }
        if let Some(data) = self.cache.get(block).filter(|_| !op.flags.bypass) {
            op.parts.push(Part::Memory(data));
            return Ok(());
        }
        let run = self.run_of(o, lblk, block)?;
        let pieces = self.pieces_in_memory(&run, !op.flags.bypass);
        op.parts.push(Part::Packed(Box::new(PackedPart { lblk, run, at: block.at - 1, n: 1, pieces, data: Bytes::new() })));
        Ok(())
    }

    fn in_memory(&mut self, op: &mut ReadOp, lblk: u64, block: Block) -> Option<Bytes> {
        if let Some(data) = self.deferred.content(block.phys) {
            if !block.is(&data) {
                op.bad.push(Bad::plain(lblk, block, Some(block.sum_if(&data))));
            }
            return Some(data);
        }
        if op.flags.bypass { None } else { self.cache.get(block) }
    }

    fn send_read(&mut self, mut op: ReadOp) {
        let number = self.read_next;
        self.read_next += 1;
        let may_be_cached = op.may_be_cached(&self.config);
        for (i, part) in op.parts.iter().enumerate() {
            if let Part::Device { blocks, hit: false, .. } = part {
                let id = self.io(IoKind::Read { read: number, part: i, at: 0 });
                let cached = may_be_cached && are_cacheable(blocks);
                self.want(op.flags.class, id, Job::Read { off: blocks[0].phys * BLOCK, len: blocks.len() * BLOCK as usize, cached });
                op.cached |= cached;
                op.ios += 1;
            }
            if let Part::Packed(packed) = part {
                let cached = may_be_cached && are_cacheable(&packed.run.blocks);
                op.cached |= cached;
                for (at, first, n) in packed.run.extents().filter(|(at, _, n)| packed.pieces[*at..at + n].iter().any(Bytes::is_empty)) {
                    let id = self.io(IoKind::Read { read: number, part: i, at });
                    self.want(op.flags.class, id, Job::Read { off: first * BLOCK, len: n * BLOCK as usize, cached });
                    op.ios += 1;
                }
            }
        }
        op.device |= op.ios > 0;
        self.perf.read_planned(op.bytes(true), op.bytes(false));
        if op.ios == 0 { self.finish_read(op) } else { drop(self.reads.insert(number, op)) }
    }

    pub(crate) fn handle_read(&mut self, now: Now, number: u64, (part, at): (usize, usize), result: Result<Bytes, Errno>) {
        let Some(op) = self.reads.get_mut(&number) else { return };
        op.ios -= 1;
        if let Some(Part::Packed(packed)) = op.parts.get_mut(part) {
            packed.take(at, result, &mut op.bad);
        } else if let Some(Part::Device { lblk, blocks, data, crc, .. }) = op.parts.get_mut(part) {
            match result {
                Ok(bytes) if bytes.len() == blocks.len() * BLOCK as usize => {
                    *crc = csum::sum_if_right(blocks, &bytes);
                    let read = bytes.chunks(BLOCK as usize).zip(blocks.iter()).enumerate();
                    for (i, (found, block)) in read.filter(|(_, (found, block))| crc.is_none() && !block.is(found)) {
                        op.bad.push(Bad::plain(*lblk + i as u64, *block, Some(block.sum_if(found))));
                    }
                    // Where that is known a digest needs no more.
                    *data = if op.flags.digest && crc.is_some() { Bytes::new() } else { bytes };
                }
                _ => op.bad.extend(blocks.iter().enumerate().map(|(i, b)| Bad::plain(*lblk + i as u64, *b, None))),
            }
        }
        if op.ios == 0
            && let Some(op) = self.reads.remove(&number)
        {
            if self.may_be_stale(number, &op) {
                return self.start_read(op);
            }
            self.note_verified(now, number, &op);
            self.finish_read(op);
        }
    }

    /// True if something was read that has no checksum, and may have been written anew or given to another object meanwhile.
    fn may_be_stale(&self, number: u64, op: &ReadOp) -> bool {
        let lost = |b: &Block| b.csum == Csum::None && self.verified.is_lost(number, b.phys);
        op.parts.iter().any(|part| match part {
            Part::Device { blocks, .. } => blocks.iter().any(lost),
            Part::Packed(packed) => packed.run.blocks.iter().any(lost),
            _ => false,
        })
    }

    fn note_verified(&mut self, now: Now, number: u64, op: &ReadOp) {
        op.bad.iter().for_each(|bad| self.unverify(bad.on_device.phys));
        // What came through the page cache says nothing of the medium.
        for part in op.parts.iter().filter(|_| op.bad.is_empty() && !op.cached) {
            if let Part::Device { blocks, hit: false, .. } = part {
                self.verified.note(number, now.mono, blocks[0].phys, blocks.len() as u64);
            }
        }
    }

    fn finish_read(&mut self, mut op: ReadOp) {
        op.unpack();
        if op.bad.is_empty() {
            self.keep_read(&op);
            let data = op.assemble();
            return self.answer(&op, Ok(data));
        }
        if op.cached {
            for bad in &op.bad {
                self.dev.uncache(bad.on_device.phys * BLOCK, BLOCK);
            }
            (op.cached, op.uncached) = (false, true);
            return self.start_read(op);
        }
        // What was read may have been freed and reused meanwhile; only a block that is still there is bad.
        if self.map_changed(&op) {
            return self.start_read(op);
        }
        if op.attempts < self.config.retry_disk_reads {
            op.attempts += 1;
            return self.start_read(op);
        }
        let named = key::parse_object(&op.key);
        for bad in &op.bad {
            let (Some((_, obj)), Some(actual)) = (&named, bad.actual) else { continue };
            self.events.push_back(StoreEvent::ChecksumError {
                coll: op.coll,
                obj: obj.clone(),
                off: bad.lblk * BLOCK,
                device_off: bad.on_device.phys * BLOCK,
                expected: bad.on_device.crc,
                actual,
            });
        }
        self.answer(&op, Err(Errno::EIO));
    }

    fn map_changed(&mut self, op: &ReadOp) -> bool {
        let Ok((key, mut onode)) = self.take_onode(&op.key) else { return false };
        let changed = onode.pins > 0
            || !onode.exists
            || op.bad.iter().any(|b| self.mapping(&mut onode, b.lblk).is_ok_and(|(block, _)| block != b.block));
        self.onodes.put_back(key, onode);
        changed
    }

    /// Leaves the blocks of a short read in the cache.
    fn keep_read(&mut self, op: &ReadOp) {
        if op.flags.nocache || !self.config.buffered_read || op.len.div_ceil(BLOCK) > CACHED_BLOCKS_MAX {
            return;
        }
        for part in &op.parts {
            if let Part::Packed(part) = part {
                // What lies beside what was asked for had to be read, too.
                for at in 0..part.run.of {
                    self.cache.put(part.run.block(at), &unpack::part(&part.data, at));
                }
            }
            // What the page cache has it goes on having.
            let Part::Device { blocks, data, hit: false, .. } = part else { continue };
            for (block, content) in blocks.iter().zip(data.chunks(BLOCK as usize)) {
                // What is being written anew, or freed, would only take room.
                if self.alloc.is_used(block.phys) && !self.deferred.blocks.contains_key(&block.phys) {
                    self.cache.put(*block, content);
                }
            }
        }
    }

    fn answer(&mut self, op: &ReadOp, result: Result<ReadData, Errno>) {
        self.perf.read_done(self.now - op.since, op.device, op.attempts > 0, matches!(result, Err(Errno::EIO)));
        self.events.push_back(StoreEvent::ReadDone { id: op.id, result });
    }

    /// Tries reads again that had to wait for transactions.
    pub(crate) fn unblock_reads(&mut self) {
        for op in std::mem::take(&mut self.reads_blocked) {
            self.start_read(op);
        }
    }
}

impl PackedPart {
    /// Blocks of the run have been read, from the `at`-th on.
    fn take(&mut self, at: usize, result: Result<Bytes, Errno>, bad: &mut Vec<Bad>) {
        let Some((_, _, n)) = self.run.extents().find(|(first, ..)| *first == at) else { return };
        let bytes = result.ok().filter(|bytes| bytes.len() == n * BLOCK as usize);
        for i in 0..n {
            let (on_device, piece) = (self.run.blocks[at + i], &mut self.pieces[at + i]);
            if !piece.is_empty() {
                continue;
            }
            match bytes.as_ref().map(|bytes| unpack::part(bytes, i as u8)) {
                Some(found) if on_device.is(&found) => *piece = found,
                other => {
                    let actual = other.map(|found| on_device.sum_if(&found));
                    bad.push(Bad { lblk: self.lblk, block: self.run.block(self.at), on_device, actual });
                }
            }
        }
    }

    /// The bytes of the blocks that are wanted.
    fn wanted(&self) -> Bytes {
        let from = usize::from(self.at) * BLOCK as usize;
        self.data.slice(from..from + usize::from(self.n) * BLOCK as usize)
    }
}

impl ReadOp {
    /// All pieces are here: what was compressed is what it was before.
    fn unpack(&mut self) {
        if !self.bad.is_empty() {
            return;
        }
        for part in &mut self.parts {
            let Part::Packed(part) = part else { continue };
            match part.run.unpack(&part.pieces) {
                Some(data) => part.data = data,
                None => self.bad.push(Bad::plain(part.lblk, part.run.block(part.at), None)),
            }
        }
    }

    /// True if the page cache may be asked, and keep what was not there: short reads of clients, who do not ask for the medium's sake.
    fn may_be_cached(&self, config: &StoreConfig) -> bool {
        let ReadFlags { nocache, bypass, digest, class, .. } = self.flags;
        let wanted = class == Class::Client && !nocache && !bypass && !digest && !self.uncached;
        wanted && config.buffered_read && self.len <= config.page_cached_bytes_max.into()
    }

    /// Bytes that are in memory, or that the device has to give.
    fn bytes(&self, in_memory: bool) -> u64 {
        let of = |part: &Part| match part {
            Part::Memory(data) if in_memory => data.len() as u64,
            Part::Device { blocks, hit, .. } if *hit == in_memory => blocks.len() as u64 * BLOCK,
            Part::Packed(part) if !in_memory => part.run.blocks.len() as u64 * BLOCK,
            _ => 0,
        };
        self.parts.iter().map(of).sum()
    }

    /// The answer, cut out of whole blocks.
    fn assemble(&mut self) -> ReadData {
        let mut out = ReadData::default();
        if self.len == 0 {
            return out;
        }
        if !self.flags.sparse || self.flags.digest {
            out.extents.push((self.off, self.len));
        }
        if self.flags.digest {
            out.digest = self.digest();
            return out;
        }
        let end = self.off + self.len;
        let mut at = self.off / BLOCK * BLOCK;
        let mut block_crcs = Vec::new();
        for part in std::mem::take(&mut self.parts) {
            // Whole blocks up to here have their checksums.
            let is_summed = at == self.off + block_crcs.len() as u64 * BLOCK;
            let (blocks, data, crc) = match part {
                Part::Hole(n) => (n * BLOCK, None, None),
                Part::Memory(data) => (BLOCK, Some(data), None),
                Part::Trusted(_) => unreachable!("only digests trust"),
                Part::Device { data, crc, blocks, .. } => {
                    if is_summed && crc.is_some() && !self.flags.sparse {
                        block_crcs.extend(blocks.iter().map(|b| b.crc));
                    }
                    (data.len() as u64, Some(data), crc)
                }
                Part::Packed(part) => (u64::from(part.n) * BLOCK, Some(part.wanted()), None),
            };
            let (from, to) = (at.max(self.off), (at + blocks).min(end));
            match data {
                Some(data) => {
                    let piece = data.slice((from - at) as usize..(to - at) as usize);
                    out.data.push_summed(piece, crc.filter(|_| to - from == blocks));
                    if self.flags.sparse {
                        match out.extents.last_mut() {
                            Some((off, len)) if *off + *len == from => *len += to - from,
                            _ => out.extents.push((from, to - from)),
                        }
                    }
                }
                None if self.flags.sparse => {}
                None => push_zeros(&mut out.data, to - from),
            }
            at += blocks;
        }
        out.data.set_block_crcs(block_crcs);
        out
    }

    /// Made of the checksums of blocks, each of which was looked at.
    fn digest(&self) -> Digest {
        let mut d = Digest::default();
        for part in &self.parts {
            match part {
                Part::Hole(n) => d.crc = denc::crc32c_zeros(d.crc, (n * BLOCK) as i64),
                Part::Memory(data) => d.crc = denc::crc32c_append(d.crc, data),
                Part::Trusted(crc) => {
                    d.trusted += BLOCK;
                    d.crc = denc::crc32c_concat(d.crc, *crc, BLOCK);
                }
                Part::Packed(part) => {
                    d.read += part.run.blocks.len() as u64 * BLOCK;
                    d.crc = denc::crc32c_append(d.crc, &part.wanted());
                }
                Part::Device { blocks, data, crc, .. } => {
                    let len = blocks.len() as u64 * BLOCK;
                    d.read += len;
                    d.crc = crc.map_or_else(|| denc::crc32c_append(d.crc, data), |crc| denc::crc32c_concat(d.crc, crc, len));
                }
            }
        }
        // What a block has past the object's end is zeros.
        let beyond = (self.off + self.len).next_multiple_of(BLOCK) - (self.off + self.len);
        d.crc = denc::crc32c_zeros(d.crc, -(beyond as i64));
        d
    }
}

fn push_zeros(list: &mut BufList, mut n: u64) {
    while n > 0 {
        let now = n.min(BLOCK);
        list.push(zeros(now as usize));
        n -= now;
    }
}

/// True if what the page cache has for these blocks can be told from what should be there: a sum of a few bits would take too much for right.
fn are_cacheable(blocks: &[Block]) -> bool {
    blocks.iter().all(|b| b.csum == Csum::Crc32c)
}

/// Adds a block to the last device run if it lies behind it on the device, else starts a new one.
fn push_device(parts: &mut Vec<Part>, lblk: u64, block: Block) {
    match parts.last_mut() {
        Some(Part::Device { blocks, .. })
            if blocks.len() < RUN_BLOCKS_MAX && blocks[0].phys + blocks.len() as u64 == block.phys =>
        {
            blocks.push(block);
        }
        _ => parts.push(Part::Device { lblk, blocks: vec![block], data: Bytes::new(), crc: None, hit: false }),
    }
}
