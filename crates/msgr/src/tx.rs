//! From frames to bytes: a writer per socket.
//!
//! Holds: in crc mode a payload above [`COPY_BYTES_MAX`] leaves as the slice it came as; what is smaller is gathered
//! with the headers around it, so that a small message is one piece.

use crate::Fault;
use crate::frame::{self, Header, Preamble, Tag};
use crate::secure::{self, Cipher};
use bytes::{Bytes, BytesMut};
use types::msg::RawMessage;

/// Payload pieces up to this size are copied: cheaper than one more piece in a vectored write.
const COPY_BYTES_MAX: usize = 1024;
/// Room made for headers and small messages at a time.
const CHUNK_BYTES: usize = 8192;

/// The transmitting half of a socket.
#[derive(Debug)]
pub(crate) struct Writer {
    bufs: Vec<Bytes>,
    tail: BytesMut,
    cipher: Option<Cipher>,
    /// Every byte written, for the signature over the handshake.
    record: Option<Vec<u8>>,
}

impl Writer {
    /// Writes in the clear and records it.
    pub fn new() -> Self {
        Writer { bufs: Vec::new(), tail: BytesMut::new(), cipher: None, record: Some(Vec::new()) }
    }

    /// Bytes written while they are recorded.
    pub fn recorded(&self) -> usize {
        self.record.as_ref().map_or(0, Vec::len)
    }

    /// Ends recording and returns every byte written so far; frames from here on are sealed with `cipher`.
    pub fn authenticated(&mut self, cipher: Option<Cipher>) -> Vec<u8> {
        self.cipher = cipher;
        self.record.take().unwrap_or_default()
    }

    /// What was written since the last call.
    pub fn take(&mut self) -> Vec<Bytes> {
        self.settle();
        std::mem::take(&mut self.bufs)
    }

    pub fn banner(&mut self, supported: u64, required: u64) {
        self.small(frame::BANNER);
        self.small(&16u16.to_le_bytes());
        self.small(&denc::to_bytes(&(supported, required), 0));
    }

    pub fn control(&mut self, tag: Tag, payload: &[u8]) -> Result<(), Fault> {
        let preamble = Preamble::new(tag, [payload.len() as u32, 0, 0, 0]);
        if self.cipher.is_some() {
            return self.sealed_first(&preamble, payload);
        }
        self.small(&preamble.to_wire());
        if !payload.is_empty() {
            self.small(payload);
            self.small(&frame::crc(u32::MAX, payload).to_le_bytes());
        }
        Ok(())
    }

    /// A message; `seq` and `ack_seq` are the session's.
    pub fn message(&mut self, seq: u64, ack_seq: u64, msg: &RawMessage) -> Result<(), Fault> {
        let RawMessage { kind, version, compat, priority, tid, .. } = *msg;
        let header = Header { seq, tid, kind, priority, version, ack_seq, compat }.to_wire();
        let lens = [frame::HEADER, msg.front.len(), msg.middle.len(), msg.data.len()];
        let preamble = Preamble::new(Tag::Message, lens.map(|l| l as u32));
        match self.cipher {
            None => self.plain_message(&preamble, &header, msg),
            Some(_) => self.sealed_message(&preamble, &header, msg)?,
        }
        Ok(())
    }

    fn plain_message(&mut self, preamble: &Preamble, header: &[u8; frame::HEADER], msg: &RawMessage) {
        self.small(&preamble.to_wire());
        self.small(header);
        self.small(&frame::crc(u32::MAX, header).to_le_bytes());
        if preamble.segments == 1 {
            return;
        }
        self.piece(&msg.front);
        self.piece(&msg.middle);
        msg.data.pieces().iter().for_each(|piece| self.piece(piece));
        let sums = [frame::crc(u32::MAX, &msg.front), frame::crc(u32::MAX, &msg.middle), frame::list_crc(&msg.data)];
        let mut epilogue = [0; frame::EPILOGUE_CRC];
        let [status, slots @ ..] = &mut epilogue;
        *status = frame::LATE_COMPLETE;
        let used = usize::from(preamble.segments) - 1;
        for (slot, sum) in slots.as_chunks_mut().0.iter_mut().zip(sums).take(used) {
            *slot = sum.to_le_bytes();
        }
        self.small(&epilogue);
    }

    fn sealed_message(&mut self, preamble: &Preamble, header: &[u8], msg: &RawMessage) -> Result<(), Fault> {
        self.sealed_first(preamble, header)?;
        if preamble.segments == 1 {
            return Ok(());
        }
        let mut run = Vec::with_capacity(preamble.body_secure().1);
        for segment in [std::slice::from_ref(&msg.front), std::slice::from_ref(&msg.middle), msg.data.pieces()] {
            segment.iter().for_each(|piece| run.extend_from_slice(piece));
            run.resize(frame::padded(run.len()), 0);
        }
        run.push(frame::LATE_COMPLETE);
        run.resize(frame::padded(run.len()), 0);
        self.sealed(run)
    }

    /// The preamble with what fits of the first segment, then the rest of that segment.
    fn sealed_first(&mut self, preamble: &Preamble, segment: &[u8]) -> Result<(), Fault> {
        let (inline, rest) = segment.split_at(segment.len().min(frame::INLINE));
        let mut block = Vec::with_capacity(frame::PREAMBLE + frame::INLINE + secure::TAG);
        block.extend_from_slice(&preamble.to_wire());
        block.extend_from_slice(inline);
        block.resize(frame::PREAMBLE + frame::INLINE, 0);
        self.sealed(block)?;
        if rest.is_empty() {
            return Ok(());
        }
        let mut run = Vec::with_capacity(frame::padded(rest.len()) + secure::TAG);
        run.extend_from_slice(rest);
        run.resize(frame::padded(rest.len()), 0);
        self.sealed(run)
    }

    fn sealed(&mut self, mut run: Vec<u8>) -> Result<(), Fault> {
        let Some(cipher) = &mut self.cipher else { return Ok(()) };
        let tag = cipher.seal(&mut run)?;
        run.extend_from_slice(&tag);
        self.piece(&run.into());
        Ok(())
    }

    fn piece(&mut self, piece: &Bytes) {
        if piece.len() <= COPY_BYTES_MAX {
            return self.small(piece);
        }
        self.settle();
        self.bufs.push(piece.clone());
    }

    fn small(&mut self, bytes: &[u8]) {
        if let Some(record) = &mut self.record {
            record.extend_from_slice(bytes);
        }
        if self.tail.capacity() - self.tail.len() < bytes.len() {
            self.settle();
            self.tail.reserve(CHUNK_BYTES.max(bytes.len()));
        }
        self.tail.extend_from_slice(bytes);
    }

    fn settle(&mut self) {
        if !self.tail.is_empty() {
            self.bufs.push(self.tail.split().freeze());
        }
    }
}
