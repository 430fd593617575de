//! Objects of erasure-coded pools: which bytes lie on which shard, and what a write is for each of them.
//!
//! An object is a row of stripes, each of `k` data chunks and `m` coding chunks of `stripe_unit` bytes. Shard `i` stores the i-th chunk of
//! every stripe, one behind the other; the last stripe is filled up with zeros. All that is not data (attributes, clones) every shard has.
//!
//! Room: osd core; pure.
//! Holds: all shards of an object are equally long, `chunks_len` of its size, and what lies behind its end is zero: so a hole on all
//! shards is a run of whole stripes of zeros. Of a stripe that is changed in part the rest has to be known, or what is changed, whichever
//! lies on fewer other OSDs: who encodes says what it lacks, and is called again with it. By what changes coding shards are told what to add.
//! Upstream: ECUtil::stripe_info_t, ECTransaction.

use crate::mutation::{Mutation, Step};
use crate::ops::{Fetched, ReadKey};
use bytes::Bytes;
use ec::Code;
use std::ops::Range;
use store::WriteBuffer;
use types::Errno;
use types::map::{OsdMap, PgPool};
use types::msg::{BLOCK_BYTES, BufList};
use types::msg::osd_op::{Op, OsdOp};
use types::PoolId;

/// Bytes that a coding shard is told to add at most: they go through its log, where more than that had better not (`Tuning::prefer_deferred_size`).
const ADDED_MAX: u64 = 64 << 10;

/// How objects of a pool lie on shards.
#[derive(Debug)]
pub struct Striping {
    code: Code,
    unit: u64,
}

/// What has to be read of shards for some bytes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Data shards that have them.
    pub shards: Range<usize>,
    /// Of each of these: from where, and how many bytes.
    pub off: u64,
    pub len: u64,
}

/// What came of encoding a write.
#[derive(Debug, PartialEq)]
pub enum Encoded {
    /// Bytes of the object or its shards as they are, that have to be known.
    Need(Vec<ReadKey>),
    /// One for each shard.
    Shards(Vec<Mutation>),
}

impl Striping {
    /// Chunks of `unit` bytes, at least 1.
    pub fn new(code: Code, unit: u32) -> Self {
        Striping { code, unit: u64::from(unit.max(1)) }
    }

    /// That of a pool; `None` if it is not erasure-coded, or its profile cannot be read.
    pub fn of_pool(map: &OsdMap, pool: PoolId) -> Option<Self> {
        let pool = map.pool_by_id(pool).filter(|pool| pool.is_erasure())?;
        let profile = profile_of(map, pool)?;
        // The pool's own word: the profile's default may have changed since.
        let unit = pool.stripe_width / profile.k.max(1) as u32;
        Some(Striping::new(Code::new(profile.technique, profile.k, profile.m), unit))
    }

    /// Data shards.
    pub fn k(&self) -> usize {
        self.code.k()
    }

    /// All shards.
    pub fn shards(&self) -> usize {
        self.code.k() + self.code.m()
    }

    /// Bytes of data in a stripe.
    pub fn width(&self) -> u64 {
        self.unit * self.k() as u64
    }

    /// How long each shard of an object of `size` bytes is.
    pub fn chunks_len(&self, size: u64) -> u64 {
        size.div_ceil(self.width()) * self.unit
    }

    /// Where `len` bytes from `off` on lie; `len` is not 0.
    pub fn span(&self, off: u64, len: u64) -> Span {
        let (first, last) = (off / self.width(), (off + len - 1) / self.width());
        let chunk = |at: u64| (at % self.width() / self.unit) as usize;
        let (from, to) = (chunk(off), chunk(off + len - 1));
        match first == last {
            true if from == to => Span { shards: from..from + 1, off: first * self.unit + off % self.unit, len },
            true => Span { shards: from..to + 1, off: first * self.unit, len: self.unit },
            false => Span { shards: 0..self.k(), off: first * self.unit, len: (last + 1 - first) * self.unit },
        }
    }

    /// Bytes of the object out of what was read by its span: one piece per shard of the span. Nothing is copied.
    pub fn join(&self, off: u64, len: u64, pieces: Vec<BufList>) -> BufList {
        let span = self.span(off, len);
        if span.len < self.unit {
            // Part of one chunk.
            return pieces.into_iter().next().unwrap_or_default();
        }
        let block_crcs = self.joined_crcs(off, len, &span, &pieces);
        let mut cuts: Vec<Cuts> = pieces.into_iter().map(Cuts::new).collect();
        let mut out = BufList::default();
        // Each shard's bytes are needed in their order; of the first and the last stripe perhaps not all.
        let (mut at, end) = (off / self.width() * self.width(), off + len);
        while at < end {
            let shard = (at % self.width() / self.unit) as usize;
            if let Some(cuts) = shard.checked_sub(span.shards.start).and_then(|shard| cuts.get_mut(shard)) {
                let chunk = cuts.take(self.unit as usize);
                let (from, to) = (off.saturating_sub(at).min(self.unit), (end - at).min(self.unit));
                if from < to {
                    out.push(chunk.slice(from as usize..to as usize));
                }
            }
            at += self.unit;
        }
        out.set_block_crcs(block_crcs);
        out
    }

    /// crc32c of the blocks of what `join` makes, if chunks are whole blocks and those of all shards are known; else none.
    fn joined_crcs(&self, off: u64, len: u64, span: &Span, pieces: &[BufList]) -> Vec<u32> {
        let block = BLOCK_BYTES as u64;
        let is_known = off.is_multiple_of(block) && self.unit.is_multiple_of(block) && pieces.iter().all(|p| p.block_crcs().len() as u64 * block >= span.len);
        if !is_known {
            return Vec::new();
        }
        let crc = |at: u64| {
            let shard = (at % self.width() / self.unit) as usize - span.shards.start;
            let within = at / self.width() * self.unit + at % self.unit - span.off;
            pieces.get(shard)?.block_crcs().get((within / block) as usize).copied()
        };
        (off..off + len).step_by(BLOCK_BYTES).map_while(crc).collect()
    }

    /// Any shards out of `k` others, of the same range of each. `None` if there are too few.
    pub fn rebuild(&self, have: &[(usize, &[u8])], want: &[usize]) -> Option<Vec<Vec<u8>>> {
        self.code.rebuild(have, want).ok()
    }

    /// What a write to an object of `size` bytes is on each shard, for somebody who has the shard `own` of it. EOPNOTSUPP for omaps, and for
    /// changing part of a stripe in the same message that made the object what a clone is.
    /// `buffers` has memory for coding chunks.
    pub fn encode(&self, mutation: &Mutation, (size, own): (u64, Option<u8>), fetched: &Fetched, buffers: Buffers<'_>) -> Result<Encoded, Errno> {
        let mut run = Encoding::new(self, size, fetched, buffers);
        run.own = own.map(usize::from);
        let changes_data = |s: &Step| matches!(s, Step::Write { .. } | Step::Zero { .. } | Step::Truncate { .. } | Step::Remove | Step::BecomeClone { .. });
        let (first, last) = (mutation.steps.iter().position(changes_data), mutation.steps.iter().rposition(changes_data));
        run.is_alone = first == last;
        for (at, step) in mutation.steps.iter().enumerate() {
            run.is_looked_at = last.is_some_and(|last| at < last);
            run.step(step)?;
        }
        match run.needs.is_empty() {
            true => Ok(Encoded::Shards(run.shards)),
            false => Ok(Encoded::Need(run.needs)),
        }
    }
}

/// How many copies of a PG make its objects whole: one, or as many as there are data chunks. More than there can be, where nobody knows.
pub(crate) fn copies_needed(map: &OsdMap, pool: &PgPool) -> u8 {
    match pool.is_erasure() {
        false => 1,
        true => profile_of(map, pool).map_or(u8::MAX, |profile| profile.k as u8),
    }
}

fn profile_of(map: &OsdMap, pool: &PgPool) -> Option<ec::Profile> {
    ec::Profile::parse(map.erasure_code_profiles.get(&pool.erasure_code_profile)?).ok()
}

/// Cuts bytes into pieces, which are copied only where they lie apart.
struct Cuts {
    rest: std::vec::IntoIter<Bytes>,
    current: Bytes,
}

impl Cuts {
    fn new(data: BufList) -> Self {
        Cuts { rest: data.into_pieces().into_iter(), current: Bytes::new() }
    }

    /// The next so many bytes; fewer at the end.
    fn take(&mut self, len: usize) -> Bytes {
        while self.current.is_empty() {
            let Some(next) = self.rest.next() else { return Bytes::new() };
            self.current = next;
        }
        if self.current.len() >= len {
            return self.current.split_to(len);
        }
        let mut whole = Vec::with_capacity(len);
        while whole.len() < len {
            if self.current.is_empty() {
                let Some(next) = self.rest.next() else { break };
                self.current = next;
            }
            whole.extend_from_slice(&self.current.split_to(self.current.len().min(len - whole.len())));
        }
        whole.into()
    }
}

/// Memory for so many bytes.
pub type Buffers<'a> = &'a mut dyn FnMut(usize) -> Box<dyn WriteBuffer>;

/// Whole stripes: their data chunks, in the object's order.
#[derive(Debug, Clone)]
struct Stripes {
    first: u64,
    chunks: Vec<Bytes>,
    /// crc32c of each block of all chunks, where they are known and chunks are whole blocks.
    block_crcs: Vec<u32>,
}

/// A mutation on its way to the shards.
struct Encoding<'a> {
    s: &'a Striping,
    fetched: &'a Fetched,
    buffers: Buffers<'a>,
    shards: Vec<Mutation>,
    needs: Vec<ReadKey>,
    /// As it is after the steps so far.
    size: u64,
    /// What is stored counts up to here; behind it are zeros, and what the steps wrote. `None`: it is a clone's now.
    stored: Option<u64>,
    /// What steps wrote, as far as later ones may look at it.
    written: Vec<Stripes>,
    is_looked_at: bool,
    /// No more than one step changes data.
    is_alone: bool,
    /// The shard that is here.
    own: Option<usize>,
}

impl<'a> Encoding<'a> {
    fn new(s: &'a Striping, size: u64, fetched: &'a Fetched, buffers: Buffers<'a>) -> Self {
        let shards = vec![Mutation::default(); s.shards()];
        Encoding { s, fetched, buffers, shards, needs: Vec::new(), size, stored: Some(size), written: Vec::new(), is_looked_at: false, is_alone: false, own: None }
    }

    fn step(&mut self, step: &Step) -> Result<(), Errno> {
        match step {
            Step::Write { off, data } => return self.write(*off, data),
            Step::Zero { off, len } => return self.zero(*off, *len),
            Step::Truncate { size } => return self.truncate(*size),
            Step::Remove => self.begin_anew(0, Some(0)),
            Step::BecomeClone { .. } => self.begin_anew(u64::MAX, None),
            Step::OmapSet { .. } | Step::OmapRm { .. } | Step::OmapRmRange { .. } | Step::OmapClear | Step::OmapSetHeader { .. } => {
                return Err(Errno::EOPNOTSUPP);
            }
            _ => {}
        }
        self.shards.iter_mut().for_each(|shard| shard.push(step.clone()));
        Ok(())
    }

    /// Nothing of what was there counts.
    fn begin_anew(&mut self, size: u64, stored: Option<u64>) {
        (self.size, self.stored) = (size, stored);
        self.written.clear();
    }

    fn write(&mut self, off: u64, data: &BufList) -> Result<(), Errno> {
        let (width, end) = (self.s.width(), off + data.len() as u64);
        let (first, last) = (off / width, end.div_ceil(width));
        // Of a stripe that is there, shards whose chunk does not change need not be written.
        let is_there = self.stored.is_some() && last - first == 1 && last * self.s.unit <= self.s.chunks_len(self.size);
        let touched = is_there.then(|| self.s.span(off, end - off).shards);
        if self.is_alone && touched.as_ref().is_some_and(|chunks| chunks.len() == 1) {
            return self.write_in_chunk(off, data);
        }
        let mut whole = BufList::default();
        whole.push(self.kept(first * width, off)?);
        whole.append(data.clone());
        whole.push(self.kept(end, last * width)?);
        self.size = if self.stored.is_some() { self.size.max(end) } else { self.size };
        self.emit(Stripes::cut(self.s, first, whole), touched);
        Ok(())
    }

    /// The same within one chunk of a stripe that is there: what lies beside these bytes in the chunk has nothing to do with it.
    fn write_in_chunk(&mut self, off: u64, data: &BufList) -> Result<(), Errno> {
        let (s, len, new) = (self.s, data.len() as u64, data.contiguous());
        let (k, m) = (s.k(), s.shards() - s.k());
        let Span { shards, off: at, .. } = s.span(off, len);
        let chunk = shards.start;
        let mut coding = vec![vec![0; len as usize]; m];
        let is_elsewhere = |shard: usize| self.own != Some(shard);
        let is_small = len <= ADDED_MAX;
        let by_difference = is_small && usize::from(is_elsewhere(chunk)) < (0..k).filter(|other| *other != chunk && is_elsewhere(*other)).count();
        if by_difference {
            let old = self.kept(off, off + len)?;
            if !self.needs.is_empty() {
                return Ok(());
            }
            let delta: Vec<u8> = old.iter().zip(&new[..]).map(|(old, new)| old ^ new).collect();
            s.code.update(chunk, &delta, &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        } else {
            let beside = |other: usize| off - off % s.width() + other as u64 * s.unit + off % s.unit;
            let mut chunks = vec![new; k];
            for other in (0..k).filter(|other| *other != chunk) {
                chunks[other] = self.kept(beside(other), beside(other) + len)?;
            }
            if !self.needs.is_empty() {
                return Ok(());
            }
            let data: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[..]).collect();
            s.code.encode(&data, &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        }
        self.size = self.size.max(off + len);
        self.shards[chunk].push(Step::Write { off: at, data: data.clone() });
        for (shard, data) in (k..).zip(coding) {
            let data = Bytes::from(data).into();
            self.shards[shard].push(if by_difference { Step::Xor { off: at, data } } else { Step::Write { off: at, data } });
        }
        Ok(())
    }

    fn zero(&mut self, off: u64, len: u64) -> Result<(), Errno> {
        let width = self.s.width();
        let (end, whole) = (off + len, off.div_ceil(width) * width..(off + len) / width * width);
        if whole.start >= whole.end {
            return self.write(off, &Bytes::from(vec![0; len as usize]).into());
        }
        if off < whole.start {
            self.write(off, &Bytes::from(vec![0; (whole.start - off) as usize]).into())?;
        }
        let (from, run) = (whole.start / width * self.s.unit, (whole.end - whole.start) / width * self.s.unit);
        self.shards.iter_mut().for_each(|shard| shard.push(Step::Zero { off: from, len: run }));
        if self.is_looked_at {
            let zeros = Bytes::from(vec![0; (whole.end - whole.start) as usize]);
            self.written.push(Stripes::cut(self.s, whole.start / width, zeros.into()));
        }
        if whole.end < end {
            self.write(whole.end, &Bytes::from(vec![0; (end - whole.end) as usize]).into())?;
        }
        Ok(())
    }

    fn truncate(&mut self, size: u64) -> Result<(), Errno> {
        let width = self.s.width();
        let is_cut = size < self.size;
        let chunks = self.s.chunks_len(size);
        self.shards.iter_mut().for_each(|shard| shard.push(Step::Truncate { size: chunks }));
        if is_cut && !size.is_multiple_of(width) {
            let first = size / width;
            let mut whole = BufList::default();
            whole.push(self.kept(first * width, size)?);
            whole.push(vec![0; ((first + 1) * width - size) as usize].into());
            self.cut(size);
            self.emit(Stripes::cut(self.s, first, whole), None);
        } else if is_cut {
            self.cut(size);
        }
        self.size = size;
        self.stored = self.stored.map(|stored| stored.min(size));
        Ok(())
    }

    /// What was written behind `size` is gone.
    fn cut(&mut self, size: u64) {
        let (width, k) = (self.s.width(), self.s.k());
        for stripes in &mut self.written {
            let left = size.saturating_sub(stripes.first * width).div_ceil(width);
            stripes.chunks.truncate(left as usize * k);
        }
    }

    /// The bytes of a range as they are now.
    fn kept(&mut self, from: u64, to: u64) -> Result<Bytes, Errno> {
        if from >= to {
            return Ok(Bytes::new());
        }
        let stored = self.stored.ok_or(Errno::EOPNOTSUPP)?.min(to);
        let mut out = vec![0; (to - from) as usize];
        // What steps wrote over all of it need not be read.
        let is_written = self.written.iter().any(|w| w.covers(self.s, from, to));
        if stored > from && !is_written {
            self.fetch(ReadKey { off: from, len: stored - from, sparse: false }, &mut out)?;
        }
        for written in &self.written {
            written.show(self.s, from, to, |at, bytes| out[at..at + bytes.len()].copy_from_slice(bytes));
        }
        Ok(out.into())
    }

    /// What is stored, to the front of `out`; it is needed, if it was not fetched.
    fn fetch(&mut self, key: ReadKey, out: &mut [u8]) -> Result<(), Errno> {
        match self.fetched.reads.get(&key) {
            None => self.needs.push(key),
            Some(Err(e)) => return Err(*e),
            Some(Ok(read)) => {
                let data = read.data.contiguous();
                out.get_mut(..data.len()).ok_or(Errno::EIO)?.copy_from_slice(&data);
            }
        }
        Ok(())
    }

    fn emit(&mut self, stripes: Stripes, touched: Option<Range<usize>>) {
        let (k, unit) = (self.s.k(), self.s.unit as usize);
        let off = stripes.first * self.s.unit;
        // While something has to be known first, nothing of it counts.
        let coded = if self.needs.is_empty() { self.s.shards() - k } else { 0 };
        let mut coding: Vec<Box<dyn WriteBuffer>> = (0..coded).map(|_| (self.buffers)(stripes.chunks.len() / k * unit)).collect();
        let mut coding_crcs = vec![Vec::new(); coded];
        for (stripe, chunks) in stripes.chunks.chunks(k).enumerate().filter(|_| coded > 0) {
            let data: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[..]).collect();
            let mut out: Vec<&mut [u8]> = coding.iter_mut().map(|shard| &mut shard.bytes()[stripe * unit..][..unit]).collect();
            self.s.code.encode(&data, &mut out);
            if !stripes.block_crcs.is_empty() {
                // Now, while the processor has them at hand.
                for (crcs, chunk) in coding_crcs.iter_mut().zip(out) {
                    crcs.extend(chunk.chunks(BLOCK_BYTES).map(denc::crc32c));
                }
            }
        }
        for shard in (0..k).filter(|shard| touched.as_ref().is_none_or(|touched| touched.contains(shard))) {
            let mut data = BufList::from(stripes.chunks.iter().skip(shard).step_by(k).cloned().collect::<Vec<_>>());
            let blocks = stripes.block_crcs.chunks((unit / BLOCK_BYTES).max(1));
            data.set_block_crcs(blocks.skip(shard).step_by(k).flatten().copied().collect());
            self.shards[shard].push(Step::Write { off, data });
        }
        for ((shard, data), crcs) in (k..).zip(coding).zip(coding_crcs) {
            let mut data = BufList::from(data.freeze());
            data.set_block_crcs(crcs);
            self.shards[shard].push(Step::Write { off, data });
        }
        if self.is_looked_at {
            self.written.push(stripes);
        }
    }
}

impl Stripes {
    /// Stripes from `first` on out of all their bytes.
    fn cut(s: &Striping, first: u64, whole: BufList) -> Self {
        let count = whole.len() as u64 / s.unit;
        let is_known = s.unit.is_multiple_of(BLOCK_BYTES as u64) && whole.block_crcs().len() * BLOCK_BYTES == whole.len();
        let block_crcs = if is_known { whole.block_crcs().to_vec() } else { Vec::new() };
        let mut cuts = Cuts::new(whole);
        Stripes { first, chunks: (0..count).map(|_| cuts.take(s.unit as usize)).collect(), block_crcs }
    }

    fn covers(&self, s: &Striping, from: u64, to: u64) -> bool {
        let begin = self.first * s.width();
        begin <= from && to <= begin + self.chunks.len() as u64 * s.unit
    }

    /// Shows what it has of a range, piece by piece, each with its place in the range.
    fn show(&self, s: &Striping, from: u64, to: u64, mut f: impl FnMut(usize, &[u8])) {
        for (n, chunk) in self.chunks.iter().enumerate() {
            let begin = self.first * s.width() + n as u64 * s.unit;
            let (at, end) = (from.max(begin), to.min(begin + s.unit));
            if at < end {
                f((at - from) as usize, &chunk[(at - begin) as usize..(end - begin) as usize]);
            }
        }
    }
}

/// Fails where operations do more than append whole stripes or replace the object, which is all that a pool without `allow_ec_overwrites`
/// allows: EOPNOTSUPP. `size` is the object's, `width` the pool's `stripe_width`. Upstream: pg_pool_t::requires_aligned_append.
pub fn check_appends(ops: &[OsdOp], mut size: u64, width: u64) -> Result<(), Errno> {
    for op in ops {
        let grows_from = match op.op {
            Op::Write(e) => Some((e.offset, e.length)),
            Op::WriteSame(w) => Some((w.offset, w.length)),
            Op::Append(e) => Some((size, e.length)),
            _ => None,
        };
        match (op.op, grows_from) {
            (_, Some((off, len))) if off == size && off.is_multiple_of(width) => size += len,
            (_, Some(_)) | (Op::Zero(_) | Op::Truncate(_) | Op::TrimTrunc(_), _) => return Err(Errno::EOPNOTSUPP),
            (Op::WriteFull(e), _) => size = e.length,
            (Op::Delete, _) => size = 0,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ec::Technique;
    use types::Snap;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use store::ReadData;

    /// What is not written to is seen.
    fn dirty(len: usize) -> Box<dyn WriteBuffer> {
        Box::new(vec![0xa5; len])
    }

    /// Shards as a store would have them, and the object as it should be.
    struct Model {
        s: Striping,
        shards: Vec<Vec<u8>>,
        object: Vec<u8>,
    }

    impl Model {
        fn new(k: usize, m: usize, unit: u32) -> Self {
            let s = Striping::new(Code::new(Technique::Vandermonde, k, m), unit);
            Model { shards: vec![Vec::new(); k + m], s, object: Vec::new() }
        }

        /// Reads by some `k` shards, the data shards not among them if there are others.
        fn read(&self, off: u64, len: u64, without: &[usize]) -> Vec<u8> {
            let span = self.s.span(off, len);
            let piece = |shard: &Vec<u8>| shard[span.off as usize..(span.off + span.len) as usize].to_vec();
            let have: Vec<(usize, Vec<u8>)> = (0..self.s.shards()).filter(|i| !without.contains(i)).map(|i| (i, piece(&self.shards[i]))).collect();
            let have: Vec<(usize, &[u8])> = have.iter().map(|(i, p)| (*i, p.as_slice())).take(self.s.k()).collect();
            let want: Vec<usize> = span.shards.clone().collect();
            let pieces = self.s.rebuild(&have, &want).unwrap().into_iter().map(|piece| Bytes::from(piece).into()).collect();
            self.s.join(off, len, pieces).contiguous().to_vec()
        }

        fn apply(&mut self, mutation: &Mutation, own: Option<u8>) {
            let mut fetched = Fetched::default();
            let shards = loop {
                match self.s.encode(mutation, (self.object.len() as u64, own), &fetched, &mut dirty).unwrap() {
                    Encoded::Shards(shards) => break shards,
                    Encoded::Need(keys) => {
                        for key in keys {
                            let data = Bytes::from(self.read(key.off, key.len, &[]));
                            let read = ReadData { data: data.into(), ..ReadData::default() };
                            assert!(fetched.reads.insert(key, Ok(read)).is_none(), "asked for twice");
                        }
                    }
                }
            };
            for (shard, m) in self.shards.iter_mut().zip(&shards) {
                m.steps.iter().for_each(|step| run(shard, step));
            }
            mutation.steps.iter().for_each(|step| run(&mut self.object, step));
        }

        fn check(&self, rng: &mut ChaCha8Rng) {
            let len = self.s.chunks_len(self.object.len() as u64) as usize;
            assert!(self.shards.iter().all(|s| s.len() == len), "{len} {:?}", self.shards.iter().map(Vec::len).collect::<Vec<_>>());
            if self.object.is_empty() {
                return;
            }
            let lost: Vec<usize> = (0..self.s.shards() - self.s.k()).map(|_| rng.random_range(0..self.s.shards())).collect();
            assert!(self.read(0, self.object.len() as u64, &lost) == self.object, "without {lost:?}");
            let off = rng.random_range(0..self.object.len());
            let len = rng.random_range(1..=self.object.len() - off);
            assert!(self.read(off as u64, len as u64, &lost) == self.object[off..off + len]);
        }
    }

    fn run(object: &mut Vec<u8>, step: &Step) {
        match step {
            Step::Write { off, data } => {
                let (off, data) = (*off as usize, data.contiguous());
                object.resize(object.len().max(off + data.len()), 0);
                object[off..off + data.len()].copy_from_slice(&data);
            }
            Step::Xor { off, data } => object[*off as usize..].iter_mut().zip(&data.contiguous()[..]).for_each(|(old, new)| *old ^= new),
            Step::Zero { off, len } => object[*off as usize..(*off + *len) as usize].fill(0),
            Step::Truncate { size } => object.resize(*size as usize, 0),
            Step::Remove => object.clear(),
            Step::Touch => {}
            other => panic!("{other:?}"),
        }
    }

    fn any_step(rng: &mut ChaCha8Rng, size: usize, max: usize) -> Step {
        let aligned = |rng: &mut ChaCha8Rng, n: usize| if rng.random_bool(0.3) { n / 16 * 16 } else { n };
        let off = rng.random_range(0..max);
        let off = aligned(rng, off);
        let most = if rng.random_bool(0.3) { 4 } else { max };
        let len = rng.random_range(1..most);
        let len = aligned(rng, len).max(1);
        match rng.random_range(0..10) {
            0 => Step::Remove,
            1 | 2 => Step::Truncate { size: off as u64 },
            3 if off < size => Step::Zero { off: off as u64, len: len.min(size - off) as u64 },
            _ => Step::Write { off: off as u64, data: BufList::from(vec![Bytes::from((0..len).map(|_| rng.random()).collect::<Vec<u8>>())]) },
        }
    }

    #[test]
    fn whatever_is_done_any_k_shards_have_it() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (k, m, unit) in [(2, 1, 8), (1, 1, 4), (2, 2, 16), (4, 2, 8), (3, 2, 5), (8, 3, 4)] {
            for _ in 0..60 {
                let mut model = Model::new(k, m, unit);
                for _ in 0..12 {
                    let mut mutation = Mutation::default();
                    let mut size = model.object.len();
                    for _ in 0..rng.random_range(1..4) {
                        let step = any_step(&mut rng, size, k * unit as usize * 4);
                        let mut grown = vec![0; size];
                        run(&mut grown, &step);
                        size = grown.len();
                        mutation.push(step);
                    }
                    // Whoever encodes has any shard, or none.
                    let own = rng.random_range(0..=k + m);
                    model.apply(&mutation, (own < k + m).then_some(own as u8));
                    model.check(&mut rng);
                }
            }
        }
    }

    /// Offsets that a write of some bytes to the second chunk of the second stripe has to know, for whoever has this shard; and what each shard does then.
    fn small_overwrite(k: usize, m: usize, own: Option<u8>) -> (Vec<u64>, Vec<Vec<Step>>) {
        let s = Striping::new(Code::new(Technique::Vandermonde, k, m), 16);
        let data = |byte| BufList::from(Bytes::from(vec![byte; 10]));
        let write = Mutation { steps: vec![Step::Write { off: s.width() + 16 + 2, data: data(9) }] };
        let size = (640, own);
        let Ok(Encoded::Need(keys)) = s.encode(&write, size, &Fetched::default(), &mut dirty) else { panic!("nothing is needed") };
        assert!(keys.iter().all(|key| key.len == 10 && !key.sparse));
        let offs = keys.iter().map(|key| key.off - s.width()).collect();
        let read = || Ok(ReadData { data: data(7), ..ReadData::default() });
        let fetched = Fetched { reads: keys.into_iter().map(|key| (key, read())).collect(), copy: None };
        let Ok(Encoded::Shards(shards)) = s.encode(&write, size, &fetched, &mut dirty) else { panic!("more is needed") };
        (offs, shards.into_iter().map(|m| m.steps).collect())
    }

    #[test]
    fn a_small_overwrite_reads_what_it_changes_and_tells_coding_shards_what_to_add() {
        for (k, m, own) in [(2, 1, 1), (4, 2, 1), (4, 2, 0), (4, 2, 5), (8, 3, 3)] {
            let (offs, shards) = small_overwrite(k, m, Some(own));
            assert_eq!(offs, [16 + 2], "{k}+{m} by {own}");
            for (shard, steps) in shards.iter().enumerate() {
                match &steps[..] {
                    [Step::Write { off: 18, data }] if shard == 1 => assert_eq!(data.contiguous(), vec![9; 10]),
                    // Vandermonde's first row is a plain sum.
                    [Step::Xor { off: 18, data }] if shard == k => assert_eq!(data.contiguous(), vec![7 ^ 9; 10]),
                    [Step::Xor { off: 18, data }] if shard > k => assert_eq!(data.len(), 10),
                    [] if shard != 1 && shard < k => {}
                    other => panic!("{k}+{m}, shard {shard}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn what_is_too_much_for_a_log_is_not_added() {
        let s = Striping::new(Code::new(Technique::Vandermonde, 2, 1), 2 * ADDED_MAX as u32);
        let needs = |len| {
            let write = Mutation { steps: vec![Step::Write { off: 0, data: Bytes::from(vec![1; len as usize]).into() }] };
            match s.encode(&write, (s.width(), Some(0)), &Fetched::default(), &mut dirty) {
                Ok(Encoded::Need(keys)) => keys,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(needs(ADDED_MAX), [ReadKey { off: 0, len: ADDED_MAX, sparse: false }]);
        assert_eq!(needs(ADDED_MAX + 1), [ReadKey { off: 2 * ADDED_MAX, len: ADDED_MAX + 1, sparse: false }]);
    }

    #[test]
    fn where_the_rest_of_the_stripe_is_nearer_that_is_read_and_coding_shards_need_not_look() {
        for own in [Some(0), Some(2), None] {
            let (offs, shards) = small_overwrite(2, 1, own);
            assert_eq!(offs, [2], "{own:?}");
            assert!(matches!(&shards[2][..], [Step::Write { off: 18, data }] if data.contiguous() == vec![7 ^ 9; 10]), "{own:?}");
        }
    }

    #[test]
    fn whole_stripes_need_nothing() {
        let s = Striping::new(Code::new(Technique::Vandermonde, 2, 1), 16);
        let data = BufList::from(Bytes::from(vec![1; 64]));
        let write = Mutation { steps: vec![Step::Write { off: 32, data }] };
        assert!(matches!(s.encode(&write, (640, None), &Fetched::default(), &mut dirty), Ok(Encoded::Shards(_))));
    }

    #[test]
    fn blocks_are_summed_once_on_their_way_to_shards_and_back() {
        let block = BLOCK_BYTES as u64;
        for (k, m, unit) in [(2, 1, block), (4, 2, 2 * block), (3, 2, block / 2)] {
            let s = Striping::new(Code::new(Technique::Vandermonde, k, m), unit as u32);
            let bytes: Vec<u8> = (0..3 * s.width()).map(|i| (i * 7 % 251) as u8).collect();
            let sums = |bytes: &[u8]| bytes.chunks_exact(BLOCK_BYTES).map(denc::crc32c).collect::<Vec<_>>();
            let mut data = BufList::from(Bytes::from(bytes.clone()));
            data.set_block_crcs(sums(&bytes));
            let write = |data| Mutation { steps: vec![Step::Write { off: s.width(), data }] };
            let Ok(Encoded::Shards(shards)) = s.encode(&write(data), (0, None), &Fetched::default(), &mut dirty) else { panic!("more is needed") };
            let written = |m: &Mutation| m.steps.iter().find_map(|s| if let Step::Write { data, .. } = s { Some(data.clone()) } else { None }).unwrap();
            let pieces: Vec<BufList> = shards.iter().map(written).collect();
            let is_whole = unit.is_multiple_of(block);
            for piece in &pieces {
                assert_eq!(piece.block_crcs(), if is_whole { sums(&piece.contiguous()) } else { vec![] });
            }
            for (from, to) in [(0, 3 * s.width()), (s.width(), 2 * s.width()), (block, s.width() + 9), (1, s.width()), (s.width() - block, s.width() + block)] {
                let span = s.span(from, to - from);
                let part = |piece: &BufList| {
                    let mut piece = piece.clone();
                    piece.split_to(span.off as usize);
                    piece.split_to(span.len as usize).unwrap()
                };
                let joined = s.join(from, to - from, pieces.get(span.shards.clone()).unwrap().iter().map(part).collect());
                let expected = bytes.get(from as usize..to as usize).unwrap();
                assert_eq!(joined.contiguous(), expected);
                assert_eq!(joined.block_crcs(), if is_whole && from.is_multiple_of(block) { sums(expected) } else { vec![] }, "{from}..{to} of {k}+{m}");
            }
        }
    }

    #[test]
    fn a_few_bytes_touch_one_shard() {
        let s = Striping::new(Code::new(Technique::Vandermonde, 2, 1), 16);
        assert_eq!(s.span(16 + 3, 5), Span { shards: 1..2, off: 3, len: 5 });
        assert_eq!(s.span(32 + 8, 16), Span { shards: 0..2, off: 16, len: 16 });
        assert_eq!(s.span(8, 64), Span { shards: 0..2, off: 0, len: 48 });
        assert_eq!((s.chunks_len(0), s.chunks_len(1), s.chunks_len(33)), (0, 16, 32));
    }

    #[test]
    fn omaps_and_parts_of_what_was_rolled_back_are_refused() {
        let s = Striping::new(Code::new(Technique::Vandermonde, 2, 1), 16);
        let refused = |steps| s.encode(&Mutation { steps }, (10, None), &Fetched::default(), &mut dirty) == Err(Errno::EOPNOTSUPP);
        assert!(refused(vec![Step::OmapClear]));
        let write = Step::Write { off: 3, data: Bytes::from_static(b"x").into() };
        assert!(refused(vec![Step::BecomeClone { clone: Snap(3) }, write]));
    }

    #[test]
    fn without_overwrites_only_whole_stripes_are_appended() {
        use types::msg::osd_op::Extent;
        let write = |off, len| OsdOp::from(Op::Write(Extent { offset: off, length: len, ..Extent::default() }));
        let check = |ops: &[OsdOp], size| check_appends(ops, size, 32).is_ok();
        assert!(check(&[write(0, 10)], 0) && check(&[write(32, 10)], 32) && check(&[write(0, 32), write(32, 5)], 0));
        assert!(!check(&[write(0, 10)], 32) && !check(&[write(10, 10)], 10) && !check(&[write(32, 1)], 0));
        let full = OsdOp::from(Op::WriteFull(Extent { length: 64, ..Extent::default() }));
        assert!(check(&[full.clone(), write(64, 1)], 5) && !check(&[full, write(32, 1)], 5));
        assert!(!check(&[Op::Truncate(Extent::default()).into()], 5) && check(&[Op::Delete.into()], 5));
    }
}
