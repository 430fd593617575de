//! Why a socket or a session ended.

use denc::DecodeError;

/// The reason a socket was closed or a session reset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the socket was closed or could not be opened")]
    Closed,
    #[error("no session within the handshake's time")]
    HandshakeTimeout,
    #[error("keepalives remain unanswered")]
    KeepaliveTimeout,
    #[error("idle for too long")]
    Idle,
    #[error("too many handshakes at once, the oldest gives way")]
    TooManyHandshakes,
    #[error("there is no msgr2 address to dial")]
    NoAddress,
    #[error("the peer does not know the session any more")]
    SessionReset,
    #[error("the peer opened a newer socket for the same session")]
    Superseded,
    #[error("not a msgr2 banner")]
    Banner,
    #[error("the peer does not speak msgr 2.1 as we do: supported {supported:#x}, required {required:#x}")]
    Revision { supported: u64, required: u64 },
    #[error("a preamble whose checksum is wrong")]
    PreambleCrc,
    #[error("a segment whose checksum is wrong")]
    SegmentCrc,
    #[error("an authentication tag that does not match")]
    AuthTag,
    #[error("a late status of {0:#x}")]
    LateStatus(u8),
    #[error("a frame of {0} segments")]
    Segments(u8),
    #[error("a last segment that is empty")]
    EmptySegment,
    #[error("unknown frame tag {0}")]
    UnknownTag(u8),
    #[error("frame tag {tag} in phase {phase}")]
    OutOfPlace { tag: u8, phase: &'static str },
    #[error("segment {index} of {len} bytes, {max} are allowed")]
    TooLong { index: usize, len: u32, max: u32 },
    #[error("a message header of {0} bytes")]
    HeaderLength(u32),
    #[error("message {seq} after {last}")]
    OldMessage { seq: u64, last: u64 },
    #[error("more than {0} bytes before the session is open")]
    HandshakeTooLong(usize),
    #[error("a control frame that cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("the peer is of kind {found}, {expected} was dialled")]
    WrongKind { expected: u8, found: u8 },
    #[error("the peer means another address than ours, or is at another than dialled")]
    WrongAddress,
    #[error("required features are missing: {0:#x}")]
    MissingFeatures(u64),
    #[error("connection mode {0} was not offered or is not known")]
    BadMode(u32),
    #[error("a connection secret too short for secure mode")]
    ShortSecret,
    #[error("the signature over the handshake does not match")]
    Signature,
    #[error("too many authentication attempts")]
    TooManyAttempts,
    #[error("an older attempt of a peer that has since connected again")]
    Stale,
    #[error("every nonce of the connection was used")]
    NoncesExhausted,
}
