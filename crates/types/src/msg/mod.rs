//! Messages: what travels in a MESSAGE frame, and the typed form of each kind.
//!
//! `RawMessage` is what msgr moves: header fields and byte segments. Each typed message implements `WireMessage`;
//! one file per family.

use bytes::Bytes;
use denc::DecodeError;

/// Bytes in pieces that are sent as one run (`bufferlist`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BufList(pub Vec<Bytes>);

impl BufList {
    /// Total length in bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// True if there is no byte.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    /// Appends a piece without copying it.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.0.push(piece);
        }
    }

    /// The bytes in one piece: shared when there is only one, copied otherwise.
    pub fn contiguous(&self) -> Bytes {
        match self.0.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }
}
impl From<Bytes> for BufList {
    fn from(b: Bytes) -> Self {
        let mut out = BufList::default();
        out.push(b);
        out
    }
}

/// A message as a session carries it. The sender is a property of the session, not of the message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
}
