//! Any message, by its kind.

use super::{RawMessage, WireMessage, command, internal, internal_mon, internal_osd, log, mgr, mon, osd, pool};
use denc::DecodeError;

/// Why a message could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A kind nobody here knows: the session goes on without it.
    #[error("unknown message type {0}")]
    UnknownKind(u16),
    /// Only newer software can read it.
    #[error("message type {kind} needs a reader of version {compat}, this one is {supported}")]
    TooNew { kind: u16, compat: u16, supported: u16 },
    /// Its bytes are not what its type says.
    #[error("message type {kind} version {version}: {source}")]
    Malformed { kind: u16, version: u16, source: DecodeError },
}

macro_rules! messages {
    ($($module:ident::$name:ident,)*) => {
        /// Any message that is spoken here.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(clippy::large_enum_variant)]
        pub enum Message {
            $($name($module::$name),)*
        }

        $(impl From<$module::$name> for Message {
            fn from(m: $module::$name) -> Message {
                Message::$name(m)
            }
        })*

        impl Message {
            /// Reads the typed form of `raw`; its tid and priority stay there.
            pub fn decode(raw: &RawMessage) -> Result<Message, MessageError> {
                match raw.kind {
                    $($module::$name::KIND => typed::<$module::$name>(raw).map(Message::$name),)*
                    other => Err(MessageError::UnknownKind(other)),
                }
            }

            /// Encodes for a peer with `features`; the caller sets the tid.
            pub fn to_raw(&self, features: u64) -> RawMessage {
                match self { $(Message::$name(m) => m.to_raw(features),)* }
            }

            /// The kind in the header.
            pub fn kind(&self) -> u16 {
                match self { $(Message::$name(_) => $module::$name::KIND,)* }
            }

            /// The name, for logs.
            pub fn name(&self) -> &'static str {
                match self { $(Message::$name(_) => stringify!($name),)* }
            }
        }
    };
}

messages! {
    mon::MPing, mon::MMonMap, mon::MMonGetMap, mon::MMonSubscribe, mon::MMonSubscribeAck, mon::MConfig, mon::MOsdMap,
    mon::MMdsMap, mon::MFsMapUser, mon::MMonGetVersion, mon::MMonGetVersionReply, mon::MAuth, mon::MAuthReply,
    command::MMonCommand, command::MMonCommandAck, command::MCommand, command::MCommandReply, command::MMgrCommand,
    command::MMgrCommandReply,
    pool::MPoolOp, pool::MPoolOpReply, pool::MStatfs, pool::MStatfsReply, pool::MGetPoolStats, pool::MGetPoolStatsReply,
    log::MLog, log::MLogAck,
    mgr::MMgrMap, mgr::MMgrOpen, mgr::MMgrConfigure, mgr::MMgrReport, mgr::MMgrClose,
    osd::MOsdOp, osd::MOsdOpReply, osd::MOsdBackoff, osd::MWatchNotify,
    internal::OsdBoot, internal::OsdAlive, internal::OsdFailure, internal::OsdMarkMeDown,
    internal::OsdMarkMeDownAck, internal::OsdBeacon, internal::OsdCapacity,
    internal::PgTempRequest, internal::PgReadyToMerge, internal::MgrStats, internal::MgrDigest, internal::MgrBeacon,
    internal::OsdScrub, internal::MonCopy, internal::OsdForceRecovery, internal::OsdForceCreate, internal::OsdYield,
    internal_mon::MonPeer, internal_mon::MonPeerReply,
    internal_osd::RepOp, internal_osd::RepOpReply, internal_osd::PgMessage, internal_osd::OsdHeartbeat, internal_osd::OsdPing, internal_osd::OsdSessionLost,
    internal_osd::ShardRead, internal_osd::ShardReadReply,
}

fn typed<M: WireMessage>(raw: &RawMessage) -> Result<M, MessageError> {
    if raw.compat > M::VERSION {
        return Err(MessageError::TooNew { kind: raw.kind, compat: raw.compat, supported: M::VERSION });
    }
    M::from_raw(raw).map_err(|source| MessageError::Malformed { kind: raw.kind, version: raw.version, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_by_its_kind() {
        let message = Message::from(mon::MPing {});
        let raw = message.to_raw(0);
        assert_eq!((raw.kind, message.kind(), message.name()), (2, 2, "MPing"));
        assert_eq!(Message::decode(&raw).unwrap(), message);
    }

    #[test]
    fn unknown_kinds_and_future_layouts_are_told_apart() {
        let raw = RawMessage { kind: 999, ..RawMessage::default() };
        assert_eq!(Message::decode(&raw), Err(MessageError::UnknownKind(999)));
        let raw = RawMessage { kind: 2, compat: 9, ..RawMessage::default() };
        assert_eq!(Message::decode(&raw), Err(MessageError::TooNew { kind: 2, compat: 9, supported: 1 }));
    }

    #[test]
    fn no_kind_panics_on_short_or_random_fronts() {
        for kind in (0..2000).chain(0x7000..0x7020) {
            for len in [0usize, 3, 17, 40, 200] {
                for fill in [0u8, 1, 0x7f, 0xff] {
                    let front = vec![fill; len].into();
                    let raw = RawMessage { kind, version: 8, front, ..RawMessage::default() };
                    let _ = Message::decode(&raw);
                }
            }
        }
    }
}
