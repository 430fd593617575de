//! The fixed parts of a frame: preamble, message header, lengths and checksums.
//!
//! Preamble, 32 bytes: u8 tag, u8 segments (1..=4), 4 x {u32 length, u16 alignment}, 2 reserved, u32 crc of the 28
//! bytes before (seed 0). Message header, 41 bytes: u64 seq, u64 tid, u16 type, u16 priority, u16 version,
//! u32 padding, u16 offset, u64 ack_seq, u8 flags, u16 compat, u16 reserved.
//! Upstream: src/msg/async/frames_v2.h, src/include/msgr.h (ceph_msg_header2).

use crate::{Fault, Limits};
use types::msg::BufList;

pub(crate) const BANNER: &[u8; 8] = b"ceph v2\n";
/// msgr features: revision 1 is msgr 2.1. We have it and need it.
pub(crate) const REVISION_1: u64 = 1;
pub(crate) const PREAMBLE: usize = 32;
pub(crate) const HEADER: usize = 41;
pub(crate) const CRC: usize = 4;
pub(crate) const EPILOGUE_CRC: usize = 13;
pub(crate) const EPILOGUE_SECURE: usize = 16;
/// What of the first segment rides with the preamble in secure mode.
pub(crate) const INLINE: usize = 48;
pub(crate) const BLOCK: usize = 16;
pub(crate) const LATE_COMPLETE: u8 = 0x0e;
pub(crate) const LATE_ABORTED: u8 = 0x01;
/// COMPLETE and NOCRC, as every release sends.
const FOOTER_FLAGS: u8 = 3;
pub(crate) const PAGE_ALIGN: u16 = 4096;
pub(crate) const WORD_ALIGN: u16 = 8;

/// What a frame is (`Tag`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    Hello = 1,
    AuthRequest = 2,
    AuthBadMethod = 3,
    AuthReplyMore = 4,
    AuthRequestMore = 5,
    AuthDone = 6,
    AuthSignature = 7,
    ClientIdent = 8,
    ServerIdent = 9,
    IdentMissingFeatures = 10,
    SessionReconnect = 11,
    SessionReset = 12,
    SessionRetry = 13,
    SessionRetryGlobal = 14,
    SessionReconnectOk = 15,
    Wait = 16,
    Message = 17,
    Keepalive2 = 18,
    Keepalive2Ack = 19,
    Ack = 20,
}

impl Tag {
    const ALL: [Tag; 20] = [
        Tag::Hello,
        Tag::AuthRequest,
        Tag::AuthBadMethod,
        Tag::AuthReplyMore,
        Tag::AuthRequestMore,
        Tag::AuthDone,
        Tag::AuthSignature,
        Tag::ClientIdent,
        Tag::ServerIdent,
        Tag::IdentMissingFeatures,
        Tag::SessionReconnect,
        Tag::SessionReset,
        Tag::SessionRetry,
        Tag::SessionRetryGlobal,
        Tag::SessionReconnectOk,
        Tag::Wait,
        Tag::Message,
        Tag::Keepalive2,
        Tag::Keepalive2Ack,
        Tag::Ack,
    ];

    fn from_wire(tag: u8) -> Result<Tag, Fault> {
        let at = usize::from(tag).wrapping_sub(1);
        Self::ALL.get(at).copied().ok_or(Fault::UnknownTag(tag))
    }
}

/// Ceph's crc32c of `data` continuing from `seed`: not inverted, neither before nor after.
pub(crate) fn crc(seed: u32, data: &[u8]) -> u32 {
    !denc::crc32c_append(!seed, data)
}

/// Ceph's crc32c of a segment in pieces: as the list has it, or as its bytes are.
pub(crate) fn list_crc(list: &BufList) -> u32 {
    list.crc().map_or_else(|| list.pieces().iter().fold(u32::MAX, |sum, piece| crc(sum, piece)), |crc| !crc)
}

/// `n` rounded up to a cipher block.
pub(crate) fn padded(n: usize) -> usize {
    n.next_multiple_of(BLOCK)
}

/// What a preamble says of its frame, checked against the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub tag: Tag,
    pub segments: u8,
    pub lens: [u32; 4],
}

impl Preamble {
    pub fn new(tag: Tag, lens: [u32; 4]) -> Self {
        let segments = lens.iter().rposition(|&l| l > 0).map_or(1, |last| last as u8 + 1);
        Preamble { tag, segments, lens }
    }

    pub fn to_wire(self) -> [u8; PREAMBLE] {
        let mut out = [0; PREAMBLE];
        let (body, sum) = out.split_at_mut(PREAMBLE - CRC);
        if let Some((head, descs)) = body.split_at_mut_checked(2) {
            head.copy_from_slice(&[self.tag as u8, self.segments]);
            let used = self.lens.iter().take(self.segments.into());
            for (i, (slot, len)) in descs.chunks_exact_mut(6).zip(used).enumerate() {
                let align = if i == 3 { PAGE_ALIGN } else { WORD_ALIGN };
                let (l, a) = slot.split_at_mut(4);
                l.copy_from_slice(&len.to_le_bytes());
                a.copy_from_slice(&align.to_le_bytes());
            }
        }
        sum.copy_from_slice(&crc(0, body).to_le_bytes());
        out
    }

    pub fn from_wire(raw: &[u8; PREAMBLE], limits: &Limits) -> Result<Self, Fault> {
        let (body, sum) = raw.split_at(PREAMBLE - CRC);
        if sum != crc(0, body).to_le_bytes() {
            return Err(Fault::PreambleCrc);
        }
        let [tag, segments, descs @ ..] = raw;
        let mut lens = [0; 4];
        for (len, slot) in lens.iter_mut().zip(descs.chunks_exact(6)).take((*segments).into()) {
            *len = slot.first_chunk().map_or(0, |l| u32::from_le_bytes(*l));
        }
        let preamble = Preamble { tag: Tag::from_wire(*tag)?, segments: *segments, lens };
        preamble.check(limits)?;
        Ok(preamble)
    }

    fn check(&self, limits: &Limits) -> Result<(), Fault> {
        let last = match self.segments {
            n @ 1..=4 => usize::from(n) - 1,
            n => return Err(Fault::Segments(n)),
        };
        if last > 0 && self.lens.get(last) == Some(&0) {
            return Err(Fault::EmptySegment);
        }
        let [head, ..] = self.lens;
        let maxima = match self.tag {
            Tag::Message if head as usize != HEADER => return Err(Fault::HeaderLength(head)),
            Tag::Message => [head, limits.front_bytes_max, limits.middle_bytes_max, limits.data_bytes_max],
            _ if last > 0 => return Err(Fault::Segments(self.segments)),
            _ => [limits.control_bytes_max, 0, 0, 0],
        };
        match self.lens.iter().zip(maxima).position(|(&len, max)| len > max) {
            None => Ok(()),
            Some(index) => {
                let pick = |of: &[u32; 4]| of.get(index).copied().unwrap_or_default();
                Err(Fault::TooLong { index, len: pick(&self.lens), max: pick(&maxima) })
            }
        }
    }

    /// Bytes between the preamble and the data in crc mode.
    pub fn head_crc(&self) -> usize {
        let [first, front, middle, _] = self.lens.map(|l| l as usize);
        let first = if first > 0 { first + CRC } else { 0 };
        first + front + middle
    }

    /// Bytes that follow the first sealed block in secure mode: what the inline part has no room for, then the rest.
    pub fn body_secure(&self) -> (usize, usize) {
        let [first, rest @ ..] = self.lens.map(|l| padded(l as usize));
        let first = if first > INLINE { first - INLINE + crate::secure::TAG } else { 0 };
        let rest = match self.segments {
            0 | 1 => 0,
            _ => rest.iter().sum::<usize>() + EPILOGUE_SECURE + crate::secure::TAG,
        };
        (first, rest)
    }
}

/// The first segment of a MESSAGE frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Header {
    pub seq: u64,
    pub tid: u64,
    pub kind: u16,
    pub priority: u16,
    pub version: u16,
    pub ack_seq: u64,
    pub compat: u16,
}

impl Header {
    pub fn to_wire(self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        let mut rest = out.as_mut_slice();
        let fields: [&[u8]; 10] = [
            &self.seq.to_le_bytes(),
            &self.tid.to_le_bytes(),
            &self.kind.to_le_bytes(),
            &self.priority.to_le_bytes(),
            &self.version.to_le_bytes(),
            &[0; 4 + 2],
            &self.ack_seq.to_le_bytes(),
            &[FOOTER_FLAGS],
            &self.compat.to_le_bytes(),
            &[0; 2],
        ];
        for field in fields {
            let Some((slot, after)) = rest.split_at_mut_checked(field.len()) else { break };
            slot.copy_from_slice(field);
            rest = after;
        }
        out
    }

    pub fn from_wire(raw: &[u8; HEADER]) -> Self {
        Header {
            seq: u64::from_le_bytes(field(raw, 0)),
            tid: u64::from_le_bytes(field(raw, 8)),
            kind: u16::from_le_bytes(field(raw, 16)),
            priority: u16::from_le_bytes(field(raw, 18)),
            version: u16::from_le_bytes(field(raw, 20)),
            ack_seq: u64::from_le_bytes(field(raw, 28)),
            compat: u16::from_le_bytes(field(raw, 37)),
        }
    }
}

/// `N` bytes at `at`; zeros past the end, which the callers' constants never reach.
fn field<const N: usize>(raw: &[u8; HEADER], at: usize) -> [u8; N] {
    raw.get(at..).and_then(|r| r.first_chunk()).copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preamble_and_a_header_read_back_as_written() {
        let p = Preamble::new(Tag::Message, [41, 7, 0, 9]);
        assert_eq!((p.segments, Preamble::from_wire(&p.to_wire(), &Limits::default())), (4, Ok(p)));
        let h = Header { seq: 1, tid: 2, kind: 3, priority: 4, version: 5, ack_seq: 6, compat: 7 };
        assert_eq!(Header::from_wire(&h.to_wire()), h);
    }

    #[test]
    fn trailing_empty_segments_are_dropped() {
        assert_eq!(Preamble::new(Tag::Message, [41, 0, 0, 0]).segments, 1);
        assert_eq!(Preamble::new(Tag::Ack, [0; 4]).segments, 1);
        assert_eq!(Preamble::new(Tag::Message, [41, 5, 0, 0]).segments, 2);
    }

    #[test]
    fn lengths_over_the_limits_are_refused_before_any_byte_of_them() {
        let limits = Limits { front_bytes_max: 10, ..Limits::default() };
        let err = Preamble::from_wire(&Preamble::new(Tag::Message, [41, 11, 0, 0]).to_wire(), &limits);
        assert_eq!(err, Err(Fault::TooLong { index: 1, len: 11, max: 10 }));
        let err = Preamble::from_wire(&Preamble::new(Tag::Message, [40, 1, 0, 0]).to_wire(), &limits);
        assert_eq!(err, Err(Fault::HeaderLength(40)));
        let err = Preamble::from_wire(&Preamble::new(Tag::Ack, [8, 1, 0, 0]).to_wire(), &limits);
        assert_eq!(err, Err(Fault::Segments(2)));
    }

    #[test]
    fn secure_lengths_match_those_measured_on_the_wire() {
        // AUTH_SIGNATURE of 32 bytes takes 96, an ident of 123 bytes 192.
        let sealed = 32 + INLINE + crate::secure::TAG;
        assert_eq!(sealed + Preamble::new(Tag::AuthSignature, [32, 0, 0, 0]).body_secure().0, 96);
        assert_eq!(sealed + Preamble::new(Tag::ClientIdent, [123, 0, 0, 0]).body_secure().0, 192);
    }
}
