//! From bytes to frames: a reader per socket.
//!
//! Holds: a frame is handed out when all of it is there, and only then; its payload is sliced out of the chunks it
//! arrived in. Small chunks are gathered, so that a trickle does not pin a large buffer per byte. Data is summed as it
//! comes, while the processor still has it at hand, and block by block, for that is how it will be stored.

use crate::frame::{self, Header, Preamble, Tag};
use crate::secure::{self, Cipher};
use crate::{Fault, Limits};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::ops::Range;
use types::msg::{BLOCK_BYTES, BufList, RawMessage, Summing, crc_of_blocks};

/// Chunks below this size are copied together while a frame is incomplete.
const GATHER_BYTES_MAX: usize = 2048;
/// Of data that is not all there so much is summed at once, at least.
const SUMMED_BYTES_MIN: usize = 64 << 10;
/// From so many bytes of data on that have not come yet, it is worth while to say where they had better lie: with messages of 512 KiB it cost more than it saved.
const EXPECTED_BYTES_MIN: usize = 1 << 20;
const BANNER_HEAD: usize = 8 + 2;
const BANNER_BYTES_MAX: u16 = 256;

/// What the peer said next.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming {
    Banner { supported: u64, required: u64 },
    Control(Tag, Bytes),
    Message { seq: u64, ack_seq: u64, msg: RawMessage },
    /// A frame its sender gave up half way.
    Aborted,
}

#[derive(Debug)]
enum Step {
    BannerHead,
    Banner { len: usize },
    Preamble,
    Body { preamble: Preamble, inline: [u8; frame::INLINE] },
}

/// The receiving half of a socket.
#[derive(Debug)]
pub(crate) struct Reader {
    buf: RxBuf,
    /// Bytes since the start.
    pushed: u64,
    step: Step,
    /// What has come of a plain frame's segments.
    coming: Coming,
    cipher: Option<Cipher>,
}

impl Reader {
    /// Starts at the banner, recording what is read.
    pub fn new() -> Self {
        let buf = RxBuf { record: Some(Vec::new()), ..RxBuf::default() };
        Reader { buf, pushed: 0, step: Step::BannerHead, coming: Coming::default(), cipher: None }
    }

    pub fn push(&mut self, chunk: Bytes) {
        self.pushed += chunk.len() as u64;
        self.buf.push(chunk);
    }

    /// Bytes received, not yet part of a frame handed out.
    pub fn buffered(&self) -> usize {
        self.buf.len + self.coming.taken
    }

    /// Said once for each frame with much data under way: where in everything that is pushed it begins and ends.
    pub fn expected(&mut self) -> Option<Range<u64>> {
        let Step::Body { preamble, .. } = &self.step else { return None };
        let [.., data] = preamble.lens.map(|l| l as usize);
        let come = self.buffered().checked_sub(preamble.head_crc())?;
        data.checked_sub(come).filter(|left| *left >= EXPECTED_BYTES_MIN)?;
        let is_new = self.cipher.is_none() && !std::mem::replace(&mut self.coming.is_expected, true);
        let start = self.pushed - come as u64;
        is_new.then_some(start..start + data as u64)
    }

    /// Bytes handed out since the start, while they are recorded.
    pub fn recorded(&self) -> usize {
        self.buf.record.as_ref().map_or(0, Vec::len)
    }

    /// Ends recording and returns every raw byte read so far; frames from here on are opened with `cipher`.
    pub fn authenticated(&mut self, cipher: Option<Cipher>) -> Vec<u8> {
        self.cipher = cipher;
        self.buf.record.take().unwrap_or_default()
    }

    /// The next whole frame, `None` until more bytes come.
    pub fn next(&mut self, limits: &Limits) -> Result<Option<Incoming>, Fault> {
        loop {
            match self.step {
                Step::BannerHead => {
                    let Some(head) = self.buf.array::<BANNER_HEAD>() else { return self.early_mismatch() };
                    self.step = Step::Banner { len: banner_len(&head)? };
                }
                Step::Banner { len } => {
                    if self.buf.len < len {
                        return Ok(None);
                    }
                    let body = self.buf.take(len);
                    self.step = Step::Preamble;
                    let (supported, required) = denc::from_slice(&body)?;
                    return Ok(Some(Incoming::Banner { supported, required }));
                }
                Step::Preamble => match self.preamble(limits)? {
                    None => return Ok(None),
                    Some((preamble, inline)) => self.step = Step::Body { preamble, inline },
                },
                Step::Body { preamble, inline } => return self.body(preamble, &inline),
            }
        }
    }

    /// Half a banner that already differs is no reason to wait for the rest.
    fn early_mismatch(&self) -> Result<Option<Incoming>, Fault> {
        match self.buf.differs_from(frame::BANNER) {
            true => Err(Fault::Banner),
            false => Ok(None),
        }
    }

    fn preamble(&mut self, limits: &Limits) -> Result<Option<(Preamble, [u8; frame::INLINE])>, Fault> {
        let Some(cipher) = &mut self.cipher else {
            let Some(raw) = self.buf.array() else { return Ok(None) };
            return Ok(Some((Preamble::from_wire(&raw, limits)?, [0; frame::INLINE])));
        };
        let Some(mut block) = self.buf.array::<{ frame::PREAMBLE + frame::INLINE + secure::TAG }>() else {
            return Ok(None);
        };
        cipher.open(&mut block)?;
        let (raw, rest) = block.split_first_chunk().ok_or(Fault::AuthTag)?;
        let inline = rest.first_chunk().ok_or(Fault::AuthTag)?;
        Ok(Some((Preamble::from_wire(raw, limits)?, *inline)))
    }

    fn body(&mut self, preamble: Preamble, inline: &[u8; frame::INLINE]) -> Result<Option<Incoming>, Fault> {
        let segments = match self.cipher.is_some() {
            false => match self.plain_segments(&preamble)? {
                None => return Ok(None),
                Some(segments) => segments,
            },
            true => {
                let (first, rest) = preamble.body_secure();
                if self.buf.len < first + rest {
                    return Ok(None);
                }
                self.sealed_segments(&preamble, inline)?
            }
        };
        self.step = Step::Preamble;
        Ok(Some(match segments {
            None => Incoming::Aborted,
            Some(segments) if preamble.tag == Tag::Message => segments.into_message()?,
            Some(segments) => Incoming::Control(preamble.tag, segments.first),
        }))
    }

    /// Takes what there is of a frame; its segments once it is whole, of which there are none if its sender gave it up.
    fn plain_segments(&mut self, preamble: &Preamble) -> Result<Option<Option<Segments>>, Fault> {
        let [first, front, middle, data] = preamble.lens.map(|l| l as usize);
        let head = preamble.head_crc();
        let coming = &mut self.coming;
        if !coming.has_head {
            if self.buf.len < head {
                return Ok(None);
            }
            if first > 0 {
                coming.segments.first = self.buf.take(first);
                let sum = self.buf.array().unwrap_or_default();
                check_crc(frame::crc(u32::MAX, &coming.segments.first), sum)?;
            }
            (coming.segments.front, coming.segments.middle) = (self.buf.take(front), self.buf.take(middle));
            (coming.has_head, coming.taken) = (true, head);
        }
        if preamble.segments == 1 {
            return Ok(Some(Some(std::mem::take(coming).segments)));
        }
        let left = head + data - coming.taken;
        if self.buf.len < left + frame::EPILOGUE_CRC {
            if self.buf.len >= SUMMED_BYTES_MIN {
                coming.take_data(self.buf.take_list(left), data);
            }
            return Ok(None);
        }
        coming.take_data(self.buf.take_list(left), data);
        let Coming { segments: mut out, sums: data_sums, .. } = std::mem::take(coming);
        let epilogue: [u8; frame::EPILOGUE_CRC] = self.buf.array().unwrap_or_default();
        let [status, sums @ ..] = epilogue;
        let data_crc = data_sums.all();
        let found = [frame::crc(u32::MAX, &out.front), frame::crc(u32::MAX, &out.middle), !data_crc];
        let used = usize::from(preamble.segments) - 1;
        for (sum, expected) in found.into_iter().zip(sums.as_chunks().0).take(used) {
            check_crc(sum, *expected)?;
        }
        out.data.set_crc(data_crc);
        out.data.set_block_crcs(data_sums.blocks);
        late_status(status, out).map(Some)
    }

    fn sealed_segments(&mut self, preamble: &Preamble, inline: &[u8]) -> Result<Option<Segments>, Fault> {
        let (first_rest, rest) = preamble.body_secure();
        let [first, front, middle, data] = preamble.lens.map(|l| l as usize);
        let mut out = Segments::default();
        let head = self.open(first_rest)?;
        out.first = match first_rest {
            0 => Bytes::copy_from_slice(inline.get(..first).unwrap_or_default()),
            _ => {
                let mut whole = Vec::with_capacity(inline.len() + head.len());
                whole.extend_from_slice(inline);
                whole.extend_from_slice(&head);
                whole.truncate(first);
                whole.into()
            }
        };
        if preamble.segments == 1 {
            return Ok(Some(out));
        }
        let mut plain = self.open(rest)?;
        let mut segment = |len: usize| {
            let mut padded = plain.split_to(frame::padded(len).min(plain.len()));
            padded.truncate(len);
            padded
        };
        (out.front, out.middle) = (segment(front), segment(middle));
        out.data = segment(data).into();
        late_status(plain.first().copied().unwrap_or_default(), out)
    }

    /// The next `n` bytes, tag included, opened in a buffer of their own.
    fn open(&mut self, n: usize) -> Result<Bytes, Fault> {
        let Some(cipher) = self.cipher.as_mut().filter(|_| n > 0) else { return Ok(Bytes::new()) };
        let mut run = vec![0; n];
        self.buf.copy_to(&mut run);
        let plain = cipher.open(&mut run)?;
        run.truncate(plain);
        Ok(run.into())
    }
}

fn banner_len(head: &[u8; BANNER_HEAD]) -> Result<usize, Fault> {
    let (word, len) = head.split_first_chunk().ok_or(Fault::Banner)?;
    let len = len.first_chunk().map_or(0, |l| u16::from_le_bytes(*l));
    match word == frame::BANNER && (16..=BANNER_BYTES_MAX).contains(&len) {
        true => Ok(len.into()),
        false => Err(Fault::Banner),
    }
}

fn check_crc(found: u32, expected: [u8; 4]) -> Result<(), Fault> {
    match found == u32::from_le_bytes(expected) {
        true => Ok(()),
        false => Err(Fault::SegmentCrc),
    }
}

fn late_status(status: u8, segments: Segments) -> Result<Option<Segments>, Fault> {
    match status {
        frame::LATE_COMPLETE => Ok(Some(segments)),
        frame::LATE_ABORTED => Ok(None),
        other => Err(Fault::LateStatus(other)),
    }
}

/// A plain frame under way.
#[derive(Debug, Default)]
struct Coming {
    /// All but the data has been taken.
    has_head: bool,
    /// What is missing has been told.
    is_expected: bool,
    /// Bytes of the frame in `segments`.
    taken: usize,
    segments: Segments,
    sums: Sums,
}

impl Coming {
    /// The next data, out of `of` bytes.
    fn take_data(&mut self, list: BufList, of: usize) {
        self.taken += list.len();
        for piece in list.pieces() {
            self.sums.add(piece, of);
        }
        self.segments.data.append(list);
    }
}

/// crc32c of each whole block of data, and of what is behind the last; data of less than two blocks is summed in one run.
#[derive(Debug, Default)]
struct Sums {
    blocks: Vec<u32>,
    last: Summing,
}

impl Sums {
    /// The next bytes, out of `of`.
    fn add(&mut self, data: &[u8], of: usize) {
        let run = if of < 2 * BLOCK_BYTES { usize::MAX } else { BLOCK_BYTES };
        self.last.add(data, run, |crc| self.blocks.push(crc));
    }

    fn all(&self) -> u32 {
        denc::crc32c_concat(crc_of_blocks(&self.blocks), self.last.crc, self.last.len as u64)
    }
}

#[derive(Debug, Default)]
struct Segments {
    first: Bytes,
    front: Bytes,
    middle: Bytes,
    data: BufList,
}

impl Segments {
    fn into_message(self) -> Result<Incoming, Fault> {
        let raw = self.first.first_chunk().ok_or(Fault::HeaderLength(self.first.len() as u32))?;
        let h = Header::from_wire(raw);
        let Segments { front, middle, data, .. } = self;
        let (kind, version, compat, priority, tid) = (h.kind, h.version, h.compat, h.priority, h.tid);
        let msg = RawMessage { kind, version, compat, priority, tid, front, middle, data };
        Ok(Incoming::Message { seq: h.seq, ack_seq: h.ack_seq, msg })
    }
}

/// A queue of chunks read as one run.
#[derive(Debug, Default)]
struct RxBuf {
    chunks: VecDeque<Bytes>,
    /// Small chunks, gathered; they come after `chunks`.
    tail: BytesMut,
    len: usize,
    /// Every byte taken, for the signature over the handshake.
    record: Option<Vec<u8>>,
}

impl RxBuf {
    fn push(&mut self, chunk: Bytes) {
        if chunk.is_empty() {
            return;
        }
        let waiting = self.len > 0;
        self.len += chunk.len();
        if waiting && chunk.len() < GATHER_BYTES_MAX {
            self.tail.extend_from_slice(&chunk);
        } else {
            self.settle();
            self.chunks.push_back(chunk);
        }
    }

    fn settle(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push_back(self.tail.split().freeze());
        }
    }

    /// Up to `n` bytes of the first chunk, without a copy; empty at the end.
    fn piece(&mut self, n: usize) -> Bytes {
        if self.chunks.is_empty() {
            self.settle();
        }
        let Some(front) = self.chunks.front_mut() else { return Bytes::new() };
        let piece = match front.len() <= n {
            true => self.chunks.pop_front().unwrap_or_default(),
            false => front.split_to(n),
        };
        self.len -= piece.len();
        if let Some(record) = &mut self.record {
            record.extend_from_slice(&piece);
        }
        piece
    }

    /// The next `n` bytes in the pieces they came in; fewer at the end.
    fn take_list(&mut self, n: usize) -> BufList {
        let mut out = BufList::default();
        let mut left = n.min(self.len);
        while left > 0 {
            let piece = self.piece(left);
            left -= piece.len();
            out.push(piece);
        }
        out
    }

    /// The next `n` bytes as one piece: copied only if they came in several.
    fn take(&mut self, n: usize) -> Bytes {
        match n {
            0 => Bytes::new(),
            _ => self.take_list(n).contiguous(),
        }
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.len < N {
            return None;
        }
        let mut out = [0; N];
        self.copy_to(&mut out);
        Some(out)
    }

    fn copy_to(&mut self, mut out: &mut [u8]) {
        while !out.is_empty() && self.len > 0 {
            let piece = self.piece(out.len());
            let Some((slot, rest)) = out.split_at_mut_checked(piece.len()) else { break };
            slot.copy_from_slice(&piece);
            out = rest;
        }
    }

    fn differs_from(&self, expected: &[u8]) -> bool {
        let there = self.chunks.iter().flatten().chain(self.tail.iter());
        there.zip(expected).any(|(a, b)| a != b)
    }
}
