//! Messages between monitors. Ours, not Ceph's: kinds from 0x7020.
//!
//! Every member dials every other one and speaks on what it dialled; what is asked for there is answered there.

use super::{RawMessage, message};
use crate::{AddrVec, EntityName, Utime};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::BTreeMap;

message! {
    /// One member says something to another.
    MonPeer = 0x7020, v 1, c 1, p 196 {
        /// The sender's id in consensus; 0 while it has none.
        from: u64,
        says: PeerSays,
    }
}
message! {
    /// What the leader answers a member that speaks for its clients, on the session that asked.
    MonPeerReply = 0x7021, v 1, c 1, p 196 { answer: PeerAnswer, }
}

/// What a member says.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum PeerSays {
    /// A message of consensus.
    #[denc(tag = 1)]
    Consensus { message: Bytes },
    /// Who the sender is: what `mon metadata` shows, and the keys of managers that live with it, as a keyring.
    #[denc(tag = 2)]
    Joined { name: String, metadata: BTreeMap<String, String>, keyring: String },
    /// The leader says who is with it, as ranks, and for how long.
    #[denc(tag = 3)]
    Quorum { term: u64, ranks: Vec<u32>, age_ms: u64 },
    /// A step of the authentication of a client of the sender.
    #[denc(tag = 4)]
    Auth { session: u64, first: bool, method: u32, modes: Vec<u32>, payload: Bytes },
    /// The client's session is open.
    #[denc(tag = 5)]
    Ready { session: u64, kind: u8, addrs: AddrVec, features: u64 },
    /// The client's message.
    #[denc(tag = 6)]
    Message { session: u64, message: RawMessage },
    /// The client is gone.
    #[denc(tag = 7)]
    Reset { session: u64 },
    /// Who the sender is: said first on every session, and again when it changes.
    #[denc(tag = 8)]
    Hello {
        name: String,
        /// Its id in consensus, which belongs to its disk; 0 while it has none.
        id: u64,
        /// It has state of a cluster.
        born: bool,
        addrs: AddrVec,
    },
    /// A part of a message of consensus that is too long for one; the last one completes it.
    #[denc(tag = 9)]
    Part { part: Bytes, last: bool },
    /// What time is it? `asked` comes back.
    #[denc(tag = 10)]
    Clock { asked: u64 },
    /// To the leader: what the sender's store has of room.
    #[denc(tag = 11)]
    Room { name: String, room: MonRoom },
}

/// Room on the file system of a monitor's store, with what that monitor's own file says of when to complain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct MonRoom {
    pub available_percent: u8,
    pub store_bytes: u64,
    /// `mon_data_avail_warn`, `mon_data_avail_crit`, `mon_data_size_warn`.
    pub low_percent: Option<i64>,
    pub critical_percent: Option<i64>,
    pub big_bytes: Option<i64>,
}

/// What the leader answers; `session` is the asker's number for its client.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum PeerAnswer {
    #[denc(tag = 1)]
    Send { session: u64, message: RawMessage },
    #[denc(tag = 2)]
    AuthMore { session: u64, payload: Bytes },
    /// The client has proven who it is: everything needed to open its session.
    #[denc(tag = 3)]
    AuthDone { session: u64, mode: u32, who: Proven },
    /// Refused, with an errno.
    #[denc(tag = 4)]
    AuthBad { session: u64, method: u32, errno: i32 },
    #[denc(tag = 5)]
    Close { session: u64 },
    /// To a monitor without an id: be this one, in a group that `founders` began. No session's.
    #[denc(tag = 6)]
    Welcome { id: u64, founders: Vec<u64> },
    /// The monitor that asks is a member no more. No session's.
    #[denc(tag = 7)]
    Removed,
    #[denc(tag = 8)]
    Clock { asked: u64, wall: Utime },
}

/// A client that has proven who it is.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Proven {
    pub name: EntityName,
    pub global_id: u64,
    pub payload: Bytes,
    pub session_key: Bytes,
    pub connection_secret: Bytes,
    pub mon_caps: String,
}

#[cfg(test)]
mod tests {
    use super::super::tests::round_trip;
    use super::*;
    use crate::EntityKind;

    #[test]
    fn what_members_say_reads_back() {
        let message = RawMessage { kind: 50, tid: 7, front: Bytes::from_static(b"ping"), ..RawMessage::default() };
        let says = [
            PeerSays::Consensus { message: Bytes::from_static(b"x") },
            PeerSays::Joined { name: "b".into(), metadata: [("arch".into(), "x86_64".into())].into(), keyring: String::new() },
            PeerSays::Quorum { term: 4, ranks: vec![0, 2], age_ms: 12 },
            PeerSays::Auth { session: 1, first: true, method: 2, modes: vec![2, 1], payload: Bytes::new() },
            PeerSays::Ready { session: 1, kind: EntityKind::CLIENT.0, addrs: AddrVec::default(), features: 1 },
            PeerSays::Message { session: 1, message },
            PeerSays::Reset { session: 1 },
            PeerSays::Hello { name: "d".into(), id: 0, born: false, addrs: AddrVec::default() },
            PeerSays::Part { part: Bytes::from_static(b"x"), last: true },
            PeerSays::Clock { asked: 5 },
            PeerSays::Room { name: "b".into(), room: MonRoom { available_percent: 12, low_percent: Some(30), ..MonRoom::default() } },
        ];
        for says in says {
            round_trip(&MonPeer { from: 2, says });
        }
    }

    #[test]
    fn what_the_leader_answers_reads_back() {
        let who = Proven {
            name: EntityName::new(EntityKind::CLIENT, "x"),
            global_id: 4101,
            payload: Bytes::from_static(b"p"),
            session_key: Bytes::from_static(b"k"),
            connection_secret: Bytes::new(),
            mon_caps: "allow r".into(),
        };
        let answers = [
            PeerAnswer::Send { session: 1, message: RawMessage::default() },
            PeerAnswer::AuthMore { session: 1, payload: Bytes::new() },
            PeerAnswer::AuthDone { session: 1, mode: 2, who },
            PeerAnswer::AuthBad { session: 1, method: 2, errno: 13 },
            PeerAnswer::Close { session: 1 },
            PeerAnswer::Welcome { id: 4, founders: vec![1, 2, 3] },
            PeerAnswer::Removed,
            PeerAnswer::Clock { asked: 5, wall: Utime { sec: 1, nsec: 2 } },
        ];
        for answer in answers {
            round_trip(&MonPeerReply { answer });
        }
    }
}
