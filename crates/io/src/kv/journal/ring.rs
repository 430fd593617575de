//! Frames on a ring: what is on the medium, written and found again.
//!
//! Holds: a frame is found only if everything before it is, back to where reading starts. Bytes of earlier laps, earlier
//! runs and torn frames are never taken for one: a frame names its position, its number, and a number that was drawn at
//! random when its writer started, and the sum is over all of them.
//! On the medium: docs/formats/store.md.

use bytes::Bytes;
use denc::Decoder;
use std::io;

/// Frames start at multiples of this, the unit of direct I/O.
pub const PAGE: u64 = 4096;
/// Bytes of a frame before its payload.
pub const HEADER: usize = 48;
/// Read at a time where it is not known what there is.
const SCANNED_BYTES: usize = 1 << 20;
const MAGIC: u32 = u32::from_le_bytes(*b"cbj1");

/// Where the bytes are. Frames begin at multiples of `PAGE`, and are written in multiples of it.
pub trait Medium {
    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()>;
    /// The first byte from `off` on that may ever have been written, as far as the medium can tell.
    fn written_from(&self, off: u64) -> u64 {
        off
    }
    /// Durable with the next `sync`; until then kept, lost or torn. `behind_is_free`: nothing from there to the end of the
    /// ring is of use to anybody.
    fn write(&mut self, off: u64, data: &[u8], behind_is_free: bool) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
}

/// Where a frame is, or will be, and what it says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Bytes since the ring was made, over all laps. A frame that does not fit into what is left of a lap is at the next
    /// one's start.
    pub pos: u64,
    /// Frames are numbered without a gap.
    pub seq: u64,
    /// Drawn at random by the writer.
    pub run: u64,
}

/// What is in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Batches of changes.
    Batches,
    /// A writer has started; the payload is the number it has drawn, which all further frames carry.
    Run,
}

impl Kind {
    fn code(self) -> u32 {
        match self {
            Kind::Batches => 0,
            Kind::Run => 1,
        }
    }

    fn of(code: u32) -> Option<Kind> {
        [Kind::Batches, Kind::Run].into_iter().find(|k| k.code() == code)
    }
}

/// A frame that was found.
#[derive(Debug)]
pub struct Frame {
    pub place: Place,
    pub kind: Kind,
    pub payload: Bytes,
}

struct Header {
    sum: u32,
    place: Place,
    synced: u64,
    len: usize,
    kind: Kind,
}

impl Header {
    fn parse(bytes: &[u8]) -> Option<Header> {
        let mut d = Decoder::new(bytes);
        let (magic, sum) = (d.get::<u32>().ok()?, d.get().ok()?);
        let (run, pos, seq, synced) = (d.get().ok()?, d.get().ok()?, d.get().ok()?, d.get().ok()?);
        let (len, kind) = (d.get::<u32>().ok()?, Kind::of(d.get().ok()?)?);
        (magic == MAGIC).then_some(Header { sum, place: Place { pos, seq, run }, synced, len: len as usize, kind })
    }

    /// Writes it into the first bytes of its frame, behind which the payload is already.
    fn seal(place: Place, synced: u64, kind: Kind, frame: &mut [u8]) {
        let len = (frame.len() - HEADER) as u32;
        let mut out = Vec::with_capacity(HEADER);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for n in [place.run, place.pos, place.seq, synced] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&kind.code().to_le_bytes());
        frame[..HEADER].copy_from_slice(&out);
        let sum = denc::crc32c(&frame[8..]);
        frame[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Bytes a frame takes, its padding included.
pub fn frame_len(payload: usize) -> u64 {
    ((HEADER + payload) as u64).next_multiple_of(PAGE)
}

/// Where a frame of this length goes if `pos` is free.
pub fn fit(pos: u64, len: u64, size: u64) -> u64 {
    if pos % size + len <= size { pos } else { pos.next_multiple_of(size) }
}

/// The end of the ring where frames are added.
pub struct Writer<M> {
    pub medium: M,
    /// Bytes of the ring.
    pub size: u64,
    /// Of the next frame, which may have to skip the rest of the lap.
    pub next: Place,
    /// Of the last frame.
    pub last: Place,
    /// Frames up to this number are durable.
    synced: u64,
    /// After an error nobody knows what the medium holds.
    failed: bool,
}

impl<M: Medium> Writer<M> {
    /// Goes on at `next` as run `run`. Everything is durable when it returns: what was found there need not have been.
    pub fn start(medium: M, size: u64, next: Place, run: u64) -> io::Result<Self> {
        let mut this = Writer { medium, size, next, last: next, synced: 0, failed: false };
        let mut frame = vec![0; HEADER];
        frame.extend_from_slice(&run.to_le_bytes());
        this.append(Kind::Run, &mut frame)?;
        this.next.run = run;
        this.sync()?;
        Ok(this)
    }

    /// Where a frame with this payload will be, and the place after it.
    pub fn places(&self, payload: usize) -> (Place, Place) {
        let len = frame_len(payload);
        let at = Place { pos: fit(self.next.pos, len, self.size), ..self.next };
        (at, Place { pos: at.pos + len, seq: at.seq + 1, ..at })
    }

    /// Writes a frame: `frame` has room for the header, then the payload; it is padded here. The caller sees to it that
    /// it fits.
    pub fn append(&mut self, kind: Kind, frame: &mut Vec<u8>) -> io::Result<()> {
        self.check()?;
        let (at, next) = self.places(frame.len() - HEADER);
        Header::seal(at, self.synced, kind, frame);
        frame.resize(frame.len().next_multiple_of(PAGE as usize), 0);
        let written = self.medium.write(at.pos % self.size, frame, at.pos < self.size);
        self.failed |= written.is_err();
        (self.last, self.next) = (at, next);
        written
    }

    /// Makes every frame durable.
    pub fn sync(&mut self) -> io::Result<()> {
        self.check()?;
        if self.synced == self.last.seq {
            return Ok(());
        }
        let synced = self.medium.sync();
        self.failed |= synced.is_err();
        if synced.is_ok() {
            self.synced = self.last.seq;
        }
        synced
    }

    pub fn has_failed(&self) -> bool {
        self.failed
    }

    fn check(&self) -> io::Result<()> {
        if self.failed { Err(io::Error::other("a write or flush of the journal has failed before")) } else { Ok(()) }
    }
}

/// Reads frames from a place on, until there is no next one.
pub struct Reader<M> {
    pub medium: M,
    size: u64,
    /// Of the next frame.
    pub next: Place,
    start: u64,
}

impl<M: Medium> Reader<M> {
    pub fn new(medium: M, size: u64, start: Place) -> Self {
        Reader { medium, size, next: start, start: start.pos }
    }

    /// The next frame; `None` at the end. Errors: the medium's.
    pub fn read(&mut self) -> io::Result<Option<Frame>> {
        for pos in [self.next.pos, self.next.pos.next_multiple_of(self.size)] {
            let found = self.frame_at(pos)?.filter(|(h, _)| (h.place.run, h.place.seq) == (self.next.run, self.next.seq));
            let Some((header, payload)) = found else { continue };
            let run = match (header.kind, payload.first_chunk::<8>()) {
                (Kind::Run, Some(run)) => u64::from_le_bytes(*run),
                _ => header.place.run,
            };
            self.next = Place { pos: pos + frame_len(payload.len()), seq: header.place.seq + 1, run };
            return Ok(Some(Frame { place: header.place, kind: header.kind, payload }));
        }
        Ok(None)
    }

    /// At the end: the first frame behind it that was written when the missing one had been durable for long. Then the
    /// medium has lost something that it had promised.
    pub fn durable_beyond(&self) -> io::Result<Option<Place>> {
        let is_such = |h: &Header| h.place.run == self.next.run && h.place.seq > self.next.seq && h.synced >= self.next.seq;
        let (mut pos, end) = (self.next.pos, self.start + self.size);
        let mut chunk = vec![0; SCANNED_BYTES];
        while pos < end {
            let off = pos % self.size;
            // Reading what has never been written takes as long as reading anything else.
            let written = (self.medium.written_from(off) / PAGE * PAGE).clamp(off, self.size);
            if written > off {
                pos += written - off;
                continue;
            }
            let n = (end - pos).min(self.size - off).min(SCANNED_BYTES as u64) as usize;
            self.medium.read(off, &mut chunk[..n])?;
            for page in chunk[..n].chunks(PAGE as usize) {
                // A head is enough to know most of them that are something else.
                let is_likely = Header::parse(page).is_some_and(|h| is_such(&h));
                if is_likely && let Some((h, _)) = self.frame_at(pos)?.filter(|(h, _)| is_such(h)) {
                    return Ok(Some(h.place));
                }
                pos += PAGE;
            }
        }
        Ok(None)
    }

    /// A whole frame that belongs to this position.
    fn frame_at(&self, pos: u64) -> io::Result<Option<(Header, Bytes)>> {
        let off = pos % self.size;
        let mut head = [0; HEADER];
        self.medium.read(off, &mut head)?;
        let Some(header) = Header::parse(&head).filter(|h| h.place.pos == pos) else { return Ok(None) };
        if frame_len(header.len) > self.size - off {
            return Ok(None);
        }
        let mut bytes = vec![0; HEADER + header.len];
        self.medium.read(off, &mut bytes)?;
        if denc::crc32c(&bytes[8..]) != header.sum {
            return Ok(None);
        }
        Ok(Some((header, Bytes::from(bytes).slice(HEADER..))))
    }
}
