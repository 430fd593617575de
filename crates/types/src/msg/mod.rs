//! Messages: what travels in a MESSAGE frame, and the typed form of each kind.
//!
//! `RawMessage` is what msgr moves: header fields and byte segments. Each typed message implements `WireMessage` and
//! is named as upstream names it, `M` included, so that `MOsdMap` (the message) and `OsdMap` (what it carries) cannot
//! be confused. One file per family; `Message` is any of them.
//! Upstream: src/msg/Message.h, src/messages/.

pub mod command;
pub mod internal;
pub mod internal_mon;
pub mod internal_osd;
pub mod log;
pub mod mgr;
pub mod mon;
pub mod osd;
pub mod osd_op;
pub mod pool;

mod any;
pub use any::{Message, MessageError};
pub use command::{MCommand, MCommandReply, MMgrCommand, MMgrCommandReply, MMonCommand, MMonCommandAck};
pub use log::{LogEntry, LogPrio, MLog, MLogAck};
pub use mgr::{MMgrClose, MMgrConfigure, MMgrMap, MMgrOpen, MMgrReport};
pub use mon::{
    MAuth, MAuthReply, MConfig, MFsMapUser, MMdsMap, MMonGetMap, MMonGetVersion, MMonGetVersionReply, MMonMap,
    MMonSubscribe, MMonSubscribeAck, MOsdMap, MPing, PaxosHeader, SubscribeItem,
};
pub use osd::{MOsdBackoff, MOsdOp, MOsdOpReply, MWatchNotify, OpResult, Redirect};
pub use osd_op::{Op, OsdOp};
pub use pool::{MGetPoolStats, MGetPoolStatsReply, MPoolOp, MPoolOpReply, MStatfs, MStatfsReply};

use bytes::Bytes;
use denc::DecodeError;

/// Bytes that each checksum of `BufList::block_crcs` is of: those of a store's block.
pub const BLOCK_BYTES: usize = 4096;

/// Bytes in pieces that are sent as one run (`bufferlist`). It carries its checksum, or those of its blocks, where somebody has had to read it all: whoever
/// passes it on or stores it need not read it again, and what went wrong in memory on the way is found out. Two are equal if their pieces are.
#[derive(Debug, Clone, Default)]
pub struct BufList {
    pieces: Vec<Bytes>,
    crc: Option<u32>,
    /// Of as many whole blocks from the beginning on as are known.
    block_crcs: Box<[u32]>,
}

impl PartialEq for BufList {
    fn eq(&self, other: &BufList) -> bool {
        self.pieces == other.pieces
    }
}
impl Eq for BufList {}

impl BufList {
    /// The bytes, none of the pieces empty where they came by `push`.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The bytes, without what is known of them.
    pub fn into_pieces(self) -> Vec<Bytes> {
        self.pieces
    }

    /// crc32c of all of it, if that is known.
    pub fn crc(&self) -> Option<u32> {
        match self.crc {
            None if !self.block_crcs.is_empty() && self.block_crcs.len() * BLOCK_BYTES == self.len() => Some(crc_of_blocks(&self.block_crcs)),
            crc => crc,
        }
    }

    /// crc32c of each `BLOCK_BYTES`, for as many of them from the beginning on as are known.
    pub fn block_crcs(&self) -> &[u32] {
        &self.block_crcs
    }

    /// These are the crc32c of its first blocks. Those of more than it has are dropped.
    pub fn set_block_crcs(&mut self, mut crcs: Vec<u32>) {
        crcs.truncate(self.len() / BLOCK_BYTES);
        self.block_crcs = crcs.into();
    }

    /// `crc` is the crc32c of all of it. A wrong one is found where it is received, or read back from a disk.
    pub fn set_crc(&mut self, crc: u32) {
        self.crc = Some(crc);
    }

    /// Total length in bytes.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// True if there is no byte.
    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(Bytes::is_empty)
    }

    /// Appends a piece without copying it.
    pub fn push(&mut self, piece: Bytes) {
        self.push_summed(piece, None);
    }

    /// The same; `crc` is the piece's crc32c, if that is known.
    pub fn push_summed(&mut self, piece: Bytes, crc: Option<u32>) {
        if !piece.is_empty() {
            self.grows(piece.len(), crc);
            self.pieces.push(piece);
        }
    }

    /// Appends another list without copying its bytes.
    pub fn append(&mut self, other: BufList) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            self.grows(other.len(), other.crc);
            self.pieces.extend(other.pieces);
        }
    }

    /// `len` bytes more come, and `crc` is what is known of them.
    fn grows(&mut self, len: usize, crc: Option<u32>) {
        self.crc = match self.is_empty() {
            true => crc,
            false => self.crc.zip(crc).map(|(first, second)| denc::crc32c_concat(first, second, len as u64)),
        };
    }

    /// Takes the first `n` bytes off without copying them; `None`, and nothing changes, if there are fewer.
    pub fn split_to(&mut self, n: usize) -> Option<BufList> {
        let (mut whole, mut have) = (0, 0);
        while have < n {
            have += self.pieces.get(whole)?.len();
            whole += 1;
        }
        if have == n && whole == self.pieces.len() {
            return Some(std::mem::take(self));
        }
        let mut front: Vec<Bytes> = self.pieces.drain(..whole).collect();
        if have > n
            && let Some(mut last) = front.pop()
        {
            let rest = last.split_off(last.len() - (have - n));
            front.push(last);
            self.pieces.insert(0, rest);
        }
        let mut front = BufList::from(front);
        if n > 0 {
            self.crc = None;
            (front.block_crcs, self.block_crcs) = split_crcs(std::mem::take(&mut self.block_crcs), n);
        }
        Some(front)
    }

    /// The bytes in one piece: shared when there is only one, copied otherwise.
    pub fn contiguous(&self) -> Bytes {
        match self.pieces.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }
}

/// crc32c of blocks of `BLOCK_BYTES`, one behind the other, of theirs.
pub fn crc_of_blocks(crcs: &[u32]) -> u32 {
    crcs.iter().fold(0, |all, crc| denc::crc32c_concat(all, *crc, BLOCK_BYTES as u64))
}

/// The crc32c of a run of bytes that come in pieces, as far as they have come.
#[derive(Debug, Default)]
pub struct Summing {
    pub crc: u32,
    pub len: usize,
}

impl Summing {
    /// The next bytes: `each` is given the checksum of every `run` that ends in them.
    pub fn add(&mut self, mut data: &[u8], run: usize, mut each: impl FnMut(u32)) {
        while !data.is_empty() {
            let (now, later) = data.split_at(data.len().min(run - self.len));
            self.crc = denc::crc32c_append(self.crc, now);
            self.len += now.len();
            if self.len == run {
                each(std::mem::take(self).crc);
            }
            data = later;
        }
    }
}

/// Of the blocks in the first `n` bytes, and of those behind, which are the same blocks only if `n` ends one.
fn split_crcs(crcs: Box<[u32]>, n: usize) -> (Box<[u32]>, Box<[u32]>) {
    let mut front = crcs.into_vec();
    let mut rest = front.split_off(front.len().min(n / BLOCK_BYTES));
    if !n.is_multiple_of(BLOCK_BYTES) {
        rest.clear();
    }
    (front.into(), rest.into())
}
impl denc::Encode for BufList {
    /// As `Bytes`: a length, and the pieces behind each other.
    fn encode(&self, e: &mut denc::Encoder) {
        e.count(self.len());
        for piece in &self.pieces {
            e.raw(piece);
        }
    }
}
impl denc::Decode for BufList {
    fn decode(d: &mut denc::Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(d.blob()?.into())
    }
}
impl From<Vec<Bytes>> for BufList {
    fn from(pieces: Vec<Bytes>) -> Self {
        BufList { pieces, ..BufList::default() }
    }
}
impl From<Bytes> for BufList {
    fn from(b: Bytes) -> Self {
        let mut out = BufList::default();
        out.push(b);
        out
    }
}

/// A message as a session carries it. The sender is a property of the session, not of the message. Its encoding is for
/// messages that carry another one between our daemons (`internal_mon`).
#[derive(Debug, Clone, PartialEq, Eq, Default, denc::Encode, denc::Decode)]
#[denc(v = 1, compat = 1)]
pub struct RawMessage {
    /// `CEPH_MSG_*`, `MSG_*`; ours start at 0x7000.
    pub kind: u16,
    pub version: u16,
    pub compat: u16,
    pub priority: u16,
    /// The request's id; a reply repeats it.
    pub tid: u64,
    pub front: Bytes,
    pub middle: Bytes,
    pub data: BufList,
}

/// A typed message.
pub trait WireMessage: Sized {
    const KIND: u16;
    const VERSION: u16;
    const COMPAT: u16 = 1;
    /// Priority in the header; receivers do not check it.
    const PRIORITY: u16 = 127;

    /// Encodes for a peer with `features`; the caller sets `tid`.
    fn to_raw(&self, features: u64) -> RawMessage;

    /// Decodes; `raw.kind` has been matched by the caller, `raw.version` may be older or newer than `VERSION`.
    fn from_raw(raw: &RawMessage) -> Result<Self, DecodeError>;

    /// A message of this kind with nothing in it yet.
    fn blank() -> RawMessage {
        RawMessage {
            kind: Self::KIND,
            version: Self::VERSION,
            compat: Self::COMPAT,
            priority: Self::PRIORITY,
            ..RawMessage::default()
        }
    }
}

/// Declares a message whose front is its fields in order: `Name = kind, v2/c1, priority { fields }`, a field since a
/// header version as `field: Type = since 2`, and `+ data` when the data segment belongs to it.
macro_rules! message {
    ($(#[$meta:meta])* $name:ident = $kind:literal, v $version:literal, c $compat:literal, p $priority:literal {
        $($(#[$fmeta:meta])* $field:ident: $ty:ty $(= since $since:literal)?,)*
    } $(+ $(#[$dmeta:meta])* $data:ident)?) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$fmeta])* pub $field: $ty,)*
            $($(#[$dmeta])* pub $data: $crate::msg::BufList,)?
        }
        impl $crate::msg::WireMessage for $name {
            const KIND: u16 = $kind;
            const VERSION: u16 = $version;
            const COMPAT: u16 = $compat;
            const PRIORITY: u16 = $priority;

            #[allow(unused_mut, unused_variables)]
            fn to_raw(&self, features: u64) -> $crate::msg::RawMessage {
                // Messages of ours alone need not round latencies to what clients of Pacific read.
                let ours = if $kind >= 0x7000 { $crate::features::OS_PERF_STAT_NS } else { 0 };
                let mut e = ::denc::Encoder::new(features | ours);
                $(e.put(&self.$field);)*
                let mut raw = Self::blank();
                raw.front = e.finish();
                $(raw.data = self.$data.clone();)?
                raw
            }

            #[allow(unused_mut, unused_variables)]
            fn from_raw(raw: &$crate::msg::RawMessage) -> Result<Self, ::denc::DecodeError> {
                let mut d = ::denc::Decoder::shared(&raw.front);
                $(let $field = message!(@field raw, d $(, $since)?);)*
                $(let $data = raw.data.clone();)?
                Ok($name { $($field,)* $($data,)? })
            }
        }
    };
    (@field $raw:ident, $d:ident) => { $d.get()? };
    (@field $raw:ident, $d:ident, $since:literal) => {
        if $raw.version >= $since { $d.get()? } else { Default::default() }
    };
}
use message;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_knows_its_checksum_as_long_as_it_is_of_its_bytes() {
        let list = |text: &'static str| {
            let mut list = BufList::from(Bytes::from_static(text.as_bytes()));
            list.set_crc(denc::crc32c(text.as_bytes()));
            list
        };
        let sum = |list: &BufList| list.crc().is_some_and(|crc| crc == denc::crc32c(&list.contiguous()));
        let mut all = BufList::default();
        all.append(list("first"));
        assert!(sum(&all));
        all.append(list("second"));
        all.append(BufList::default());
        assert!(sum(&all) && all.contiguous() == "firstsecond");
        // Nothing taken, and all of it.
        assert_eq!(all.split_to(0).map(|none| none.len()), Some(0));
        assert!(sum(&all) && all.clone().split_to(11).is_some_and(|whole| sum(&whole)));
        for n in 1..11 {
            let mut rest = all.clone();
            let front = rest.split_to(n).unwrap();
            assert_eq!((front.crc(), rest.crc()), (None, None), "{n}");
            assert_eq!([front.contiguous(), rest.contiguous()].concat(), b"firstsecond");
        }
        let mut longer = all.clone();
        longer.push(Bytes::from_static(b"x"));
        assert_eq!(longer.crc(), None);
        longer.append(list("y"));
        all.append(Bytes::from_static(b"z").into());
        assert_eq!((longer.crc(), all.crc()), (None, None));
        assert_eq!(list("same"), Bytes::from_static(b"same").into(), "equal whatever is known of them");
    }

    #[test]
    fn a_list_knows_the_checksums_of_its_blocks_wherever_it_is_cut_between_them() {
        let bytes: Vec<u8> = (0..5 * BLOCK_BYTES + 100).map(|i| (i * 7 % 251) as u8).collect();
        let crcs: Vec<u32> = bytes.chunks_exact(BLOCK_BYTES).map(denc::crc32c).collect();
        let list = |len: usize| {
            let mut list = BufList::from(bytes[..len].chunks(1500).map(Bytes::copy_from_slice).collect::<Vec<_>>());
            list.set_block_crcs(crcs.clone());
            list
        };
        let whole = list(5 * BLOCK_BYTES);
        assert_eq!((whole.block_crcs(), whole.crc()), (&crcs[..], Some(denc::crc32c(&whole.contiguous()))));
        for (len, known) in [(bytes.len(), 5), (3 * BLOCK_BYTES + 1, 3), (BLOCK_BYTES - 1, 0), (0, 0)] {
            assert_eq!((list(len).block_crcs(), list(len).crc()), (&crcs[..known], None), "{len}");
        }
        for n in [1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES, 4 * BLOCK_BYTES + 7, 5 * BLOCK_BYTES] {
            let (mut rest, blocks) = (list(bytes.len()), n / BLOCK_BYTES);
            let front = rest.split_to(n).unwrap();
            let behind = if n % BLOCK_BYTES == 0 { &crcs[blocks..] } else { &[] };
            assert_eq!((front.block_crcs(), rest.block_crcs()), (&crcs[..blocks], behind), "{n}");
            let crc = (n % BLOCK_BYTES == 0).then(|| denc::crc32c(&bytes[..n]));
            assert_eq!((front.crc(), rest.crc()), (crc, None), "{n}");
        }
        // What comes behind changes no block that is whole.
        let mut longer = whole.clone();
        longer.push(Bytes::from_static(b"x"));
        assert_eq!((longer.block_crcs(), longer.crc()), (&crcs[..], None));
        let mut behind = BufList::from(Bytes::from_static(b"x"));
        behind.append(whole.clone());
        assert!(behind.block_crcs().is_empty());
        let mut taken = BufList::default();
        taken.append(whole);
        assert_eq!(taken.block_crcs(), crcs);
    }

    /// Encodes, decodes, and compares; returns the raw form for a look at the bytes.
    pub(super) fn round_trip<M: WireMessage + PartialEq + std::fmt::Debug>(message: &M) -> RawMessage {
        let raw = message.to_raw(crate::features::SUPPORTED);
        assert_eq!(&M::from_raw(&raw).unwrap(), message);
        raw
    }

    #[test]
    fn a_buffer_list_is_split_within_and_between_its_pieces() {
        let list = || BufList::from(vec![Bytes::from_static(b"abc"), Bytes::from_static(b"de"), Bytes::from_static(b"f")]);
        for n in 0..=6 {
            let mut rest = list();
            let front = rest.split_to(n).unwrap();
            assert_eq!((front.contiguous(), rest.contiguous()), ("abcdef"[..n].into(), "abcdef"[n..].into()));
        }
        let mut short = list();
        assert!(short.split_to(7).is_none() && short == list());
    }

    #[test]
    fn a_buffer_list_of_one_piece_is_not_copied() {
        let piece = Bytes::from_static(b"abc");
        assert_eq!(BufList::from(piece.clone()).contiguous().as_ptr(), piece.as_ptr());
    }
}
