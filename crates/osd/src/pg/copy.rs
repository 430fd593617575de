//! Fetching the source of a copy-from: this OSD asks the source's primary as a client would.

use super::{ClientOp, Pg};
use crate::effects::{Cx, Durable, Peer};
use crate::ops::{CopyCursor, CopyData, CopySource};
use denc::Encoder;
use std::collections::BTreeMap;
use types::msg::osd::{MOsdOp, MOsdOpReply, osd_flag};
use types::msg::osd_op::{Op, OsdOp};
use types::{Errno, EntityInst, EntityKind, OsdId, ReqId, ShardPgId, Snap, Utime};

/// Bytes asked for at a time.
const PART_BYTES: u64 = 8 << 20;

/// Copies being fetched, by the tid of the question that is out.
#[derive(Debug, Default)]
pub(super) struct Copies {
    by_tid: BTreeMap<u64, Fetch>,
}

#[derive(Debug)]
struct Fetch {
    op: u64,
    source: CopySource,
    so_far: Option<CopyData>,
}

impl Pg {
    pub(super) fn start_copy(&mut self, cx: &mut Cx<'_>, op: ClientOp, source: CopySource) {
        let id = op.id;
        cx.sh.perf.copy_from();
        self.park(op);
        self.ask_copy(cx, Fetch { op: id, source, so_far: None });
    }

    fn ask_copy(&mut self, cx: &mut Cx<'_>, fetch: Fetch) {
        let map = cx.sh.map.clone();
        let raw = map.object_to_pg(&fetch.source.locator, &fetch.source.name);
        let Some((raw, pg)) = raw.and_then(|raw| Some((raw, map.raw_pg_to_pg(raw)?))) else {
            return self.end_copy(cx, fetch.op, Err(Errno::ENOENT));
        };
        cx.sh.next_op += 1;
        let tid = cx.sh.next_op;
        let primary = map.pg_to_up_acting(pg).acting_primary;
        let cursor = fetch.so_far.as_ref().map(|c| c.cursor.clone()).unwrap_or_default();
        if primary.0 >= 0 {
            let msg = question(cx.sh.whoami, &map, raw.seed, pg, tid, &fetch.source, &cursor);
            cx.send(Peer::Osd(primary), tid, msg, Durable::Now);
        }
        self.copies.by_tid.insert(tid, fetch);
    }

    /// An OSD has answered one of our questions.
    pub fn handle_copy_reply(&mut self, cx: &mut Cx<'_>, tid: u64, reply: &MOsdOpReply) -> bool {
        let Some(mut fetch) = self.copies.by_tid.remove(&tid) else { return false };
        match part_of(reply, &fetch) {
            Err(e) => self.end_copy(cx, fetch.op, Err(e)),
            Ok(part) => {
                let mut data = fetch.so_far.take().unwrap_or_default();
                data.append(part);
                match data.cursor.is_complete() {
                    true => self.end_copy(cx, fetch.op, Ok(data)),
                    false => self.ask_copy(cx, Fetch { so_far: Some(data), ..fetch }),
                }
            }
        }
        self.pump(cx);
        true
    }

    /// Maps may have moved the sources: what is out is asked again.
    pub fn ask_copies_again(&mut self, cx: &mut Cx<'_>) {
        for (_, fetch) in std::mem::take(&mut self.copies.by_tid) {
            self.ask_copy(cx, fetch);
        }
        self.pump(cx);
    }

    fn end_copy(&mut self, cx: &mut Cx<'_>, op: u64, result: Result<CopyData, Errno>) {
        if let Some(parked) = self.parked(op) {
            parked.fetched.copy = Some(result);
        }
        self.resume(cx, op);
    }
}

/// What an answer brings; the source must not have changed since the first part.
fn part_of(reply: &MOsdOpReply, fetch: &Fetch) -> Result<CopyData, Errno> {
    if reply.result < 0 {
        return Err(Errno(-reply.result));
    }
    let raw = reply.ops.first().map(|r| r.outdata.contiguous()).ok_or(Errno::EIO)?;
    let mut part: CopyData = denc::from_bytes(&raw).map_err(|_| Errno::EIO)?;
    part.user_version = reply.user_version;
    match &fetch.so_far {
        _ if fetch.source.version > part.user_version => Err(Errno::EOVERFLOW),
        _ if fetch.source.version != 0 && fetch.source.version < part.user_version => Err(Errno::ERANGE),
        Some(first) if first.user_version != part.user_version => Err(Errno::ERANGE),
        _ => Ok(part),
    }
}

fn question(
    me: OsdId,
    map: &types::map::OsdMap,
    hash: u32,
    pg: types::PgId,
    tid: u64,
    source: &CopySource,
    cursor: &CopyCursor,
) -> MOsdOp {
    let mut input = Encoder::new(0);
    input.put(cursor).put(&PART_BYTES);
    let name = EntityInst { kind: EntityKind::OSD, num: me.0.into() };
    MOsdOp {
        pgid: ShardPgId::whole(pg),
        hash,
        epoch: map.epoch,
        flags: osd_flag::READ | osd_flag::ONDISK | if source.names_clone { osd_flag::MAP_SNAP_CLONE } else { 0 },
        reqid: ReqId { name, tid, inc: 0 },
        client_inc: 0,
        mtime: Utime::ZERO,
        locator: source.locator.clone(),
        oid: source.name.clone(),
        ops: vec![OsdOp::with(Op::CopyGet(PART_BYTES), input.finish())],
        snap: if source.snap == Snap(0) { Snap::HEAD } else { source.snap },
        snap_seq: Snap(0),
        snaps: Vec::new(),
        retry: -1,
        features: types::features::SUPPORTED,
    }
}
