//! Messages between clients and the monitor: maps, subscriptions, versions, authentication.
//!
//! Maps travel here as the bytes they were encoded to: they are encoded once per epoch and sent to many.
//! Upstream: src/messages/MMon*.h, MOSDMap.h, MMDSMap.h, MFSMapUser.h, MConfig.h, MAuth.h, MAuthReply.h.

use super::{RawMessage, WireMessage, message};
use crate::{Epoch, features};
use bytes::Bytes;
use denc::{BString, Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;
use uuid::Uuid;

/// What requests to a monitor's services begin with (`PaxosServiceMessage`): 18 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct PaxosHeader {
    /// The oldest map version that will do.
    pub version: u64,
    /// Once a forwarding monitor's rank; -1.
    pub session_mon: i16,
    pub session_tid: u64,
}
impl Default for PaxosHeader {
    fn default() -> Self {
        PaxosHeader { version: 0, session_mon: -1, session_tid: 0 }
    }
}

message! {
    /// Asks for the MonMap.
    #[derive(Default)]
    MMonGetMap = 5, v 1, c 1, p 127 {}
}
message! {
    /// The MonMap, encoded.
    MMonMap = 4, v 1, c 1, p 196 { map: Bytes, }
}
message! {
    /// "Still here": no answer is expected.
    #[derive(Default)]
    MPing = 2, v 1, c 1, p 127 {}
}
message! {
    /// Options in force for the receiver, as the config subscription brings them.
    #[derive(Default)]
    MConfig = 62, v 1, c 1, p 196 { config: BTreeMap<String, String>, }
}
message! {
    /// Osd maps: incrementals and full ones by epoch, each encoded.
    MOsdMap = 41, v 4, c 3, p 196 {
        fsid: Uuid,
        incremental: BTreeMap<Epoch, Bytes>,
        full: BTreeMap<Epoch, Bytes>,
        /// The oldest epoch the sender could still give.
        oldest: Epoch = since 2,
        newest: Epoch = since 2,
        /// Snaps removed in epochs left out, per pool, as (start, length); nobody writes any more.
        gap_removed_snaps: BTreeMap<i64, Vec<(u64, u64)>> = since 4,
    }
}
message! {
    /// The MDSMap of one file system, encoded.
    MMdsMap = 21, v 2, c 1, p 196 { fsid: Uuid, epoch: Epoch, map: Bytes, fs_name: String = since 2, }
}
message! {
    /// Asks for a map's newest version: `osdmap`, `mdsmap`, `fsmap`, ... Its header tid is 0; match by handle.
    MMonGetVersion = 19, v 1, c 1, p 127 { handle: u64, what: String, }
}
message! {
    MMonGetVersionReply = 20, v 2, c 2, p 196 { handle: u64, version: u64, oldest: u64 = since 2, }
}
message! {
    /// An authentication step outside the handshake: renewals and rotating keys.
    MAuth = 17, v 1, c 1, p 127 { paxos: PaxosHeader, protocol: u32, payload: Bytes, monmap_epoch: OrAbsent<Epoch>, }
}
message! {
    MAuthReply = 18, v 1, c 1, p 196 {
        protocol: u32,
        /// 0 or a negative errno.
        result: i32,
        global_id: u64,
        payload: Bytes,
        text: BString,
    }
}
message! {
    /// How long a subscription lasts, for clients from before they lasted as long as their session.
    MMonSubscribeAck = 16, v 1, c 1, p 196 { interval_s: u32, fsid: Uuid, }
}

/// A trailing field that old senders leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OrAbsent<T>(pub T);
impl<T: Encode> Encode for OrAbsent<T> {
    fn encode(&self, e: &mut Encoder) {
        self.0.encode(e);
    }
}
impl<T: Decode + Default> Decode for OrAbsent<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(OrAbsent(if d.is_empty() { T::default() } else { d.get()? }))
    }
}

/// Which versions of one thing a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct SubscribeItem {
    /// The first version wanted; 0 for "whatever is newest".
    pub start: u64,
    pub flags: u8,
}
impl SubscribeItem {
    /// Flag: one answer, then no more.
    pub const ONETIME: u8 = 1;

    /// True if one answer is enough.
    pub fn onetime(&self) -> bool {
        self.flags & Self::ONETIME != 0
    }
}

/// Subscribes to maps, `config`, `log-info`, ... by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MMonSubscribe {
    pub what: BTreeMap<String, SubscribeItem>,
    pub hostname: String,
}

impl WireMessage for MMonSubscribe {
    const KIND: u16 = 15;
    const VERSION: u16 = 3;

    fn to_raw(&self, features: u64) -> RawMessage {
        let mut e = Encoder::new(features);
        let mut raw = Self::blank();
        if e.has(features::SUBSCRIBE2) {
            e.put(&self.what).put(&self.hostname);
        } else {
            raw.version = 0;
            e.count(self.what.len());
            for (name, item) in &self.what {
                e.put(name).put(&0u64).put(&item.start.saturating_sub(1)).put(&item.onetime());
            }
        }
        raw.front = e.finish();
        raw
    }

    fn from_raw(raw: &RawMessage) -> Result<Self, DecodeError> {
        let mut d = Decoder::shared(&raw.front);
        if raw.version < 2 {
            let old: BTreeMap<String, (u64, u64, bool)> = d.get()?;
            // "have" 0 was ambiguous between "nothing" and "version 0"; upstream reads it as nothing.
            let item = |(_, have, onetime): (u64, u64, bool)| SubscribeItem {
                start: if have == 0 { 0 } else { have.saturating_add(1) },
                flags: u8::from(onetime),
            };
            let what = old.into_iter().map(|(name, old)| (name, item(old))).collect();
            return Ok(MMonSubscribe { what, hostname: String::new() });
        }
        let what = d.get()?;
        Ok(MMonSubscribe { what, hostname: if raw.version >= 3 { d.get()? } else { String::new() } })
    }
}

/// The FSMap as clients need it: epoch, then the encoded `FSMapUser`, without a length.
#[derive(Debug, Clone, PartialEq)]
pub struct MFsMapUser {
    pub epoch: Epoch,
    pub map: Bytes,
}

impl WireMessage for MFsMapUser {
    const KIND: u16 = 103;
    const VERSION: u16 = 1;
    const PRIORITY: u16 = 196;

    fn to_raw(&self, features: u64) -> RawMessage {
        let mut e = Encoder::new(features);
        e.put(&self.epoch).raw(&self.map);
        RawMessage { front: e.finish(), ..Self::blank() }
    }

    fn from_raw(raw: &RawMessage) -> Result<Self, DecodeError> {
        let mut d = Decoder::shared(&raw.front);
        let epoch = d.get()?;
        let n = d.remaining();
        Ok(MFsMapUser { epoch, map: d.bytes(n)? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::round_trip;
    use super::*;

    #[test]
    fn a_subscription_is_read_in_its_old_layout_too() {
        let what = BTreeMap::from([("osdmap".to_string(), SubscribeItem { start: 8, flags: 1 })]);
        let message = MMonSubscribe { what, hostname: String::new() };
        let old = message.to_raw(0);
        assert_eq!(old.version, 0);
        assert_eq!(MMonSubscribe::from_raw(&old).unwrap(), message);
        round_trip(&message);
    }

    #[test]
    fn auth_without_a_monmap_epoch_is_from_an_old_client() {
        let full = MAuth { paxos: PaxosHeader::default(), protocol: 2, payload: Bytes::from_static(b"x"), monmap_epoch: OrAbsent(Epoch(0)) };
        let mut raw = round_trip(&full);
        raw.front.truncate(raw.front.len() - 4);
        assert_eq!(MAuth::from_raw(&raw).unwrap(), full);
    }

    #[test]
    fn an_osd_map_message_ends_in_an_empty_count() {
        let raw = round_trip(&MOsdMap {
            fsid: Uuid::nil(),
            incremental: BTreeMap::new(),
            full: BTreeMap::from([(Epoch(3), Bytes::from_static(b"map"))]),
            oldest: Epoch(1),
            newest: Epoch(3),
            gap_removed_snaps: BTreeMap::new(),
        });
        assert_eq!(raw.front.len(), 16 + 4 + (4 + 4 + 4 + 3) + 4 + 4 + 4);
    }
}
