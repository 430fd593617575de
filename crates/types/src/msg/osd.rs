//! Messages between clients and OSDs.
//!
//! Upstream: src/messages/MOSDOp.h, MOSDOpReply.h, MOSDBackoff.h, MWatchNotify.h.

use super::osd_op::{Op, OsdOp, decode_op, encode_op};
use super::{BufList, RawMessage, WireMessage, message};
use crate::{EVersion, Epoch, HObject, ObjectLocator, PgId, ReqId, ShardPgId, Snap, Utime};
use bytes::Bytes;
use denc::{BString, Decode, DecodeError, Decoder, Encode, Encoder};

/// Length of the trace context in requests and replies; always zero here.
const TRACE_LEN: usize = 24;

/// Flags of a request, most of them repeated in the reply (`CEPH_OSD_FLAG_*`).
pub mod osd_flag {
    pub const ACK: u32 = 0x1;
    pub const ONNVRAM: u32 = 0x2;
    pub const ONDISK: u32 = 0x4;
    pub const RETRY: u32 = 0x8;
    pub const READ: u32 = 0x10;
    pub const WRITE: u32 = 0x20;
    pub const ORDERSNAP: u32 = 0x40;
    pub const BALANCE_READS: u32 = 0x100;
    pub const PARALLELEXEC: u32 = 0x200;
    pub const PGOP: u32 = 0x400;
    pub const EXEC: u32 = 0x800;
    pub const LOCALIZE_READS: u32 = 0x2000;
    pub const RWORDERED: u32 = 0x4000;
    pub const IGNORE_CACHE: u32 = 0x8000;
    pub const SKIPRWLOCKS: u32 = 0x1_0000;
    pub const IGNORE_OVERLAY: u32 = 0x2_0000;
    pub const MAP_SNAP_CLONE: u32 = 0x8_0000;
    pub const ENFORCE_SNAPC: u32 = 0x10_0000;
    pub const REDIRECTED: u32 = 0x20_0000;
    pub const KNOWN_REDIR: u32 = 0x40_0000;
    pub const FULL_TRY: u32 = 0x80_0000;
    pub const FULL_FORCE: u32 = 0x100_0000;
    pub const IGNORE_REDIRECT: u32 = 0x200_0000;
    pub const RETURNVEC: u32 = 0x400_0000;
    pub const SUPPORTSPOOLEIO: u32 = 0x800_0000;

    /// By bit, as upstream names them (`ceph_osd_flag_name`).
    const WORDS: [&str; 28] = [
        "ack", "onnvram", "ondisk", "retry", "read", "write", "ordersnap", "peerstat_old", "balance_reads", "parallelexec", "pgop", "exec", "???",
        "localize_reads", "rwordered", "ignore_cache", "skiprwlocks", "ignore_overlay", "flush", "map_snap_clone", "enforce_snapc", "redirected",
        "known_if_redirected", "full_try", "full_force", "ignore_redirect", "returnvec", "supports_pool_eio",
    ];

    /// `ondisk+write+known_if_redirected`; `-` without any.
    pub fn words(flags: u32) -> String {
        let set: Vec<&str> = (0..32).filter(|bit| flags & 1 << bit != 0).map(|bit| WORDS.get(bit).copied().unwrap_or("???")).collect();
        if set.is_empty() { "-".into() } else { set.join("+") }
    }
}

/// A request to the primary of an object's PG.
#[derive(Debug, Clone, PartialEq)]
pub struct MOsdOp {
    /// The PG by the client's map: seed reduced, shard -1 in replicated pools.
    pub pgid: ShardPgId,
    /// The object's full placement hash.
    pub hash: u32,
    /// The client's map.
    pub epoch: Epoch,
    /// `osd_flag`s; unknown ones are to be ignored.
    pub flags: u32,
    /// The same in every resend. Clients may leave name and tid zero: the session and the header's tid hold then.
    pub reqid: ReqId,
    pub client_inc: u32,
    pub mtime: Utime,
    pub locator: ObjectLocator,
    pub oid: BString,
    /// All of them are one atomic transaction.
    pub ops: Vec<OsdOp>,
    /// What to read.
    pub snap: Snap,
    /// The writer's snapshot context: newest snapshot, and all of them newest first.
    pub snap_seq: Snap,
    pub snaps: Vec<Snap>,
    /// -1, or how often this was sent before.
    pub retry: i32,
    /// The client's features.
    pub features: u64,
}

impl MOsdOp {
    /// The object named: its snap is the one to read.
    pub fn hobject(&self) -> HObject {
        HObject {
            pool: self.pgid.pg.pool,
            hash: self.hash,
            nspace: self.locator.nspace.clone(),
            key: if self.locator.key == self.oid { BString::default() } else { self.locator.key.clone() },
            name: self.oid.clone(),
            snap: self.snap,
            max: false,
        }
    }

    /// True if every flag of `mask` is set.
    pub fn has_flag(&self, mask: u32) -> bool {
        self.flags & mask == mask
    }
}

impl WireMessage for MOsdOp {
    const KIND: u16 = 42;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 3;
    const PRIORITY: u16 = 63;

    fn to_raw(&self, features: u64) -> RawMessage {
        let mut e = Encoder::with_capacity(features, 256);
        e.put(&self.pgid).put(&self.hash).put(&self.epoch).put(&self.flags).put(&self.reqid);
        e.raw(&[0; TRACE_LEN]);
        e.put(&self.client_inc).put(&self.mtime).put(&self.locator).put(&self.oid);
        e.put(&(self.ops.len() as u16));
        let mut data = BufList::default();
        for op in &self.ops {
            encode_op(&mut e, &op.op, op.flags, op.indata.len());
            data.append(op.indata.clone());
        }
        e.put(&self.snap).put(&self.snap_seq).put(&self.snaps).put(&self.retry).put(&self.features);
        RawMessage { front: e.finish(), data, ..Self::blank() }
    }

    fn from_raw(raw: &RawMessage) -> Result<Self, DecodeError> {
        match raw.version {
            8 => decode_v8(raw),
            0..8 => Err(DecodeError::Invalid("OSD_OP older than version 8: the client lacks features of Luminous")),
            _ => Err(DecodeError::Invalid("OSD_OP newer than version 8")),
        }
    }
}

fn decode_v8(raw: &RawMessage) -> Result<MOsdOp, DecodeError> {
    let mut d = Decoder::shared(&raw.front);
    let (pgid, hash, epoch, flags, reqid) = (d.get()?, d.get()?, d.get()?, d.get()?, d.get()?);
    d.raw(TRACE_LEN)?;
    let (client_inc, mtime, locator, oid) = (d.get()?, d.get()?, d.get()?, d.get()?);
    let count: u16 = d.get()?;
    let mut ops = Vec::with_capacity(d.capacity_for(count.into(), 38));
    let mut payload = raw.data.clone();
    for _ in 0..count {
        let (op, flags, len) = decode_op(&mut d)?;
        let short = DecodeError::Short { wanted: len, left: payload.len() };
        ops.push(OsdOp { op, flags, indata: payload.split_to(len).ok_or(short)? });
    }
    Ok(MOsdOp {
        pgid,
        hash,
        epoch,
        flags,
        reqid,
        client_inc,
        mtime,
        locator,
        oid,
        ops,
        snap: d.get()?,
        snap_seq: d.get()?,
        snaps: d.get()?,
        retry: d.get()?,
        features: d.get()?,
    })
}

/// What became of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpResult {
    pub op: Op,
    pub flags: u32,
    /// 0, a negative errno, or what the operation defines.
    pub rval: i32,
    pub outdata: BufList,
}

/// Where else to ask (`request_redirect_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub locator: ObjectLocator,
    pub object: BString,
}
impl Encode for Redirect {
    fn encode(&self, e: &mut Encoder) {
        // The count is of instructions that no release uses.
        e.envelope(1, 1, |e| {
            e.put(&self.locator).put(&self.object).put(&0u32);
        });
    }
}
impl Decode for Redirect {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("request_redirect_t", 1, |_, d| Ok(Redirect { locator: d.get()?, object: d.get()? }))
    }
}

/// The one reply to a request.
#[derive(Debug, Clone, PartialEq)]
pub struct MOsdOpReply {
    pub oid: BString,
    pub pgid: PgId,
    /// The request's flags; ACK and ONDISK say success, ONDISK alone an error.
    pub flags: u32,
    /// 0, a negative errno, or what a single operation returned.
    pub result: i32,
    pub bad_replay_version: EVersion,
    /// The OSD's map.
    pub epoch: Epoch,
    pub ops: Vec<OpResult>,
    /// The request's.
    pub retry: i32,
    pub replay_version: EVersion,
    /// The object's version as users see it.
    pub user_version: u64,
    pub redirect: Option<Redirect>,
}

impl WireMessage for MOsdOpReply {
    const KIND: u16 = 43;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 2;

    fn to_raw(&self, features: u64) -> RawMessage {
        let mut e = Encoder::with_capacity(features, 256);
        e.put(&self.oid).put(&self.pgid).put(&u64::from(self.flags)).put(&self.result);
        e.put(&self.bad_replay_version).put(&self.epoch).count(self.ops.len());
        let mut data = BufList::default();
        for op in &self.ops {
            encode_op(&mut e, &op.op, op.flags, op.outdata.len());
            data.append(op.outdata.clone());
        }
        e.put(&self.retry);
        for op in &self.ops {
            e.put(&op.rval);
        }
        e.put(&self.replay_version).put(&self.user_version).put(&self.redirect).raw(&[0; TRACE_LEN]);
        RawMessage { front: e.finish(), data, ..Self::blank() }
    }

    fn from_raw(raw: &RawMessage) -> Result<Self, DecodeError> {
        if raw.version < 7 {
            return Err(DecodeError::Invalid("OSD_OPREPLY older than version 7"));
        }
        let mut d = Decoder::shared(&raw.front);
        let (oid, pgid) = (d.get()?, d.get()?);
        let flags = d.get::<u64>()? as u32;
        let (result, bad_replay_version, epoch) = (d.get()?, d.get()?, d.get()?);
        let mut ops = decode_results(&mut d, &raw.data.contiguous())?;
        let retry = d.get()?;
        for op in &mut ops {
            op.rval = d.get()?;
        }
        let (replay_version, user_version, redirect) = (d.get()?, d.get()?, d.get()?);
        Ok(MOsdOpReply {
            oid,
            pgid,
            flags,
            result,
            bad_replay_version,
            epoch,
            ops,
            retry,
            replay_version,
            user_version,
            redirect,
        })
    }
}

/// The operations of a reply with their outputs; return values come later.
fn decode_results(d: &mut Decoder<'_>, data: &Bytes) -> Result<Vec<OpResult>, DecodeError> {
    let count = d.count()?;
    let mut ops = Vec::with_capacity(d.capacity_for(count, 38));
    let mut output = Decoder::shared(data);
    for _ in 0..count {
        let (op, flags, len) = decode_op(d)?;
        ops.push(OpResult { op, flags, rval: 0, outdata: output.bytes(len)?.into() });
    }
    Ok(ops)
}

message! {
    /// "Send nothing for these objects until told otherwise", and its answers.
    MOsdBackoff = 61, v 1, c 1, p 127 {
        pgid: ShardPgId,
        epoch: Epoch,
        /// One of the constants below.
        op: u8,
        id: u64,
        begin: HObject,
        /// Not included.
        end: HObject,
    }
}
impl MOsdBackoff {
    pub const BLOCK: u8 = 1;
    pub const ACK_BLOCK: u8 = 2;
    pub const UNBLOCK: u8 = 3;
}

/// A notification to a watcher, or its completion to who notified.
#[derive(Debug, Clone, PartialEq)]
pub struct MWatchNotify {
    /// One of the constants below.
    pub opcode: u8,
    pub cookie: u64,
    pub version: u64,
    pub notify_id: u64,
    pub payload: Bytes,
    /// Of a completion: 0 or a negative errno.
    pub result: i32,
    pub notifier_gid: u64,
    /// Of a completion: the replies.
    pub data: BufList,
}
impl MWatchNotify {
    pub const NOTIFY: u8 = 1;
    pub const COMPLETE: u8 = 2;
    pub const DISCONNECT: u8 = 3;
}
impl WireMessage for MWatchNotify {
    const KIND: u16 = 44;
    const VERSION: u16 = 3;

    fn to_raw(&self, features: u64) -> RawMessage {
        let mut e = Encoder::new(features);
        e.put(&1u8).put(&self.opcode).put(&self.cookie).put(&self.version).put(&self.notify_id);
        e.put(&self.payload).put(&self.result).put(&self.notifier_gid);
        RawMessage { front: e.finish(), data: self.data.clone(), ..Self::blank() }
    }

    fn from_raw(raw: &RawMessage) -> Result<Self, DecodeError> {
        let mut d = Decoder::shared(&raw.front);
        let body: u8 = d.get()?;
        Ok(MWatchNotify {
            opcode: d.get()?,
            cookie: d.get()?,
            version: d.get()?,
            notify_id: d.get()?,
            payload: if body >= 1 { d.get()? } else { Bytes::new() },
            result: if raw.version >= 2 { d.get()? } else { 0 },
            notifier_gid: if raw.version >= 3 { d.get()? } else { 0 },
            data: raw.data.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::round_trip;
    use super::*;
    use crate::{PoolId, features};

    fn request() -> MOsdOp {
        MOsdOp {
            pgid: ShardPgId::whole(PgId { pool: PoolId(1), seed: 5 }),
            hash: 0x7fc1_f405,
            epoch: Epoch(12),
            flags: osd_flag::WRITE | osd_flag::ONDISK,
            reqid: ReqId::default(),
            client_inc: 1,
            mtime: Utime { sec: 5, nsec: 6 },
            locator: ObjectLocator::pool(PoolId(1)),
            oid: "foo".into(),
            ops: vec![OsdOp::create(true), OsdOp::write(0, Bytes::from_static(b"data")), OsdOp::setxattr(b"a", b"b")],
            snap: Snap::HEAD,
            snap_seq: Snap(0),
            snaps: vec![],
            retry: -1,
            features: features::SUPPORTED,
        }
    }

    #[test]
    fn a_request_reads_back_with_its_payloads_shared() {
        let raw = round_trip(&request());
        assert_eq!((raw.version, raw.compat), (8, 3));
        let data = raw.data.contiguous();
        let read = MOsdOp::from_raw(&RawMessage { data: data.clone().into(), ..raw }).unwrap();
        assert_eq!(read.ops[1].input().as_ptr(), data.as_ptr());
    }

    #[test]
    fn payload_lengths_beyond_the_data_are_refused() {
        let mut raw = request().to_raw(features::SUPPORTED);
        raw.data = raw.data.split_to(raw.data.len() - 1).unwrap();
        assert!(MOsdOp::from_raw(&raw).is_err());
    }

    #[test]
    fn requests_in_older_layouts_are_refused_by_name() {
        let raw = RawMessage { version: 7, ..request().to_raw(0) };
        assert!(matches!(MOsdOp::from_raw(&raw), Err(DecodeError::Invalid(_))));
    }

    #[test]
    fn a_reply_reads_back_with_outputs_and_return_values() {
        let op = |op, rval, out: &'static [u8]| OpResult { op, flags: 0, rval, outdata: Bytes::from_static(out).into() };
        let mut reply = MOsdOpReply {
            oid: "foo".into(),
            pgid: PgId { pool: PoolId(1), seed: 5 },
            flags: osd_flag::ACK | osd_flag::ONDISK,
            result: 0,
            bad_replay_version: EVersion::default(),
            epoch: Epoch(12),
            ops: vec![op(OsdOp::read(0, 4).op, 0, b"data"), op(Op::Stat, -2, b"")],
            retry: 0,
            replay_version: EVersion { epoch: Epoch(12), version: 3 },
            user_version: 3,
            redirect: None,
        };
        round_trip(&reply);
        reply.redirect = Some(Redirect { locator: ObjectLocator::pool(PoolId(2)), object: "bar".into() });
        round_trip(&reply);
    }

    #[test]
    fn a_notification_reads_back() {
        let message = MWatchNotify {
            opcode: MWatchNotify::NOTIFY,
            cookie: 1,
            version: 2,
            notify_id: 3,
            payload: Bytes::from_static(b"hello"),
            result: 0,
            notifier_gid: 4123,
            data: BufList::default(),
        };
        assert_eq!(round_trip(&message).front.len(), 1 + 1 + 24 + 9 + 4 + 8);
    }
}
