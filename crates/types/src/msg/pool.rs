//! Pool operations and usage questions to the monitor.
//!
//! Upstream: src/messages/MPoolOp.h, MPoolOpReply.h, MStatfs.h, MStatfsReply.h, MGetPoolStats.h, MGetPoolStatsReply.h.

use super::mon::PaxosHeader;
use super::{RawMessage, WireMessage, message};
use crate::pg::PoolStat;
use crate::{Epoch, PoolId, Snap};
use bytes::Bytes;
use denc::{DecodeError, Decoder, Encoder};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Operation codes of `MPoolOp` (`POOL_OP_*`).
pub mod pool_op {
    pub const CREATE: u32 = 0x01;
    pub const DELETE: u32 = 0x02;
    pub const AUID_CHANGE: u32 = 0x03;
    pub const CREATE_SNAP: u32 = 0x11;
    pub const DELETE_SNAP: u32 = 0x12;
    pub const CREATE_UNMANAGED_SNAP: u32 = 0x21;
    pub const DELETE_UNMANAGED_SNAP: u32 = 0x22;
}

/// Creates or deletes a pool or one of its snapshots.
#[derive(Debug, Clone, PartialEq)]
pub struct MPoolOp {
    pub paxos: PaxosHeader,
    pub fsid: Uuid,
    /// The pool's number; 0 when it is yet to be created.
    pub pool: u32,
    /// One of `pool_op`.
    pub op: u32,
    pub snap: Snap,
    /// The new pool's or the snapshot's name.
    pub name: String,
    /// -1 for the default rule.
    pub crush_rule: i16,
}

impl WireMessage for MPoolOp {
    const KIND: u16 = 49;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 2;

    fn to_raw(&self, features: u64) -> RawMessage {
        let mut e = Encoder::new(features);
        e.put(&self.paxos).put(&self.fsid).put(&self.pool).put(&self.op).put(&0u64).put(&self.snap);
        e.put(&self.name).put(&0u8).put(&self.crush_rule);
        RawMessage { front: e.finish(), ..Self::blank() }
    }

    fn from_raw(raw: &RawMessage) -> Result<Self, DecodeError> {
        if raw.version < 2 {
            return Err(DecodeError::Invalid("POOLOP older than version 2"));
        }
        let mut d = Decoder::shared(&raw.front);
        let (paxos, fsid, pool, op) = (d.get()?, d.get()?, d.get()?, d.get()?);
        let _auid: u64 = d.get()?;
        let (snap, name) = (d.get()?, d.get()?);
        let old_rule: i8 = if raw.version >= 3 { d.get()? } else { -1 };
        let crush_rule = if raw.version >= 4 { d.get()? } else { old_rule.into() };
        Ok(MPoolOp { paxos, fsid, pool, op, snap, name, crush_rule })
    }
}

message! {
    MPoolOpReply = 48, v 1, c 1, p 196 {
        paxos: PaxosHeader,
        fsid: Uuid,
        /// 0 or a negative errno.
        result: i32,
        /// The osdmap epoch in which the change is visible: the client waits for it.
        epoch: Epoch,
        /// A new snapshot's id, encoded.
        data: Option<Bytes>,
    }
}
message! {
    /// How full the cluster, or one pool, is.
    MStatfs = 13, v 2, c 1, p 127 { paxos: PaxosHeader, fsid: Uuid, pool: Option<PoolId> = since 2, }
}
message! {
    MStatfsReply = 14, v 1, c 1, p 196 { fsid: Uuid, version: u64, kb: u64, kb_used: u64, kb_avail: u64, objects: u64, }
}
message! {
    MGetPoolStats = 58, v 1, c 1, p 127 { paxos: PaxosHeader, fsid: Uuid, pools: Vec<String>, }
}
message! {
    MGetPoolStatsReply = 59, v 2, c 1, p 196 {
        paxos: PaxosHeader,
        fsid: Uuid,
        /// Pools that do not exist are left out.
        stats: BTreeMap<String, PoolStat>,
        /// True when OSDs count usage per pool, so that `stored` needs no guess.
        per_pool: bool = since 2,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::round_trip;
    use super::*;

    #[test]
    fn a_pool_creation_reads_back() {
        let raw = round_trip(&MPoolOp {
            paxos: PaxosHeader::default(),
            fsid: Uuid::nil(),
            pool: 0,
            op: pool_op::CREATE,
            snap: Snap(0),
            name: "p".into(),
            crush_rule: -1,
        });
        assert_eq!(raw.front.len(), 18 + 16 + 4 + 4 + 8 + 8 + 5 + 1 + 2);
    }

    #[test]
    fn statfs_replies_carry_no_paxos_header() {
        let reply = MStatfsReply { fsid: Uuid::nil(), version: 1, kb: 2, kb_used: 3, kb_avail: 4, objects: 5 };
        assert_eq!(round_trip(&reply).front.len(), 16 + 8 + 32);
        round_trip(&MStatfs { paxos: PaxosHeader::default(), fsid: Uuid::nil(), pool: Some(PoolId(3)) });
    }
}
