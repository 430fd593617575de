//! Copying one object to another OSD, in parts, and taking one in.
//!
//! Holds: an object under way is marked missing on its receiver until the last part is on stable storage; so parts may
//! be written in place. A part counts only behind the one before it, of the same push: when a session is lost, parts in
//! the middle are.

use super::meta::missing_key;
use super::peering::Step;
use super::{Pg, Stage};
use crate::effects::{Cx, Durable, PgStep, ReadFor, ReadResult, ReadRoute, TxcRoute};
use crate::object::{INFO_ATTR, ObjectInfo};
use bytes::Bytes;
use denc::BString;
use std::collections::BTreeMap;
use std::ops::Bound;
use store::{ReadFlags, ReadId, Transaction};
use types::msg::internal_osd::{PgBody, PushPart, Round};
use types::{Errno, HObject, OsdId};

/// Bytes of data in a part.
const PART_BYTES: u64 = 1 << 20;
/// Omap pairs in a part.
const PART_PAIRS: usize = 512;

/// Objects on their way to other OSDs.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    out: BTreeMap<(OsdId, HObject), PushState>,
    /// Objects being taken in: from whom, which push, and the number of its next part.
    incoming: BTreeMap<HObject, (OsdId, u64, u32)>,
}

#[derive(Debug)]
struct PushState {
    round: Round,
    push: u64,
    /// Parts sent.
    seq: u32,
    info: ObjectInfo,
    attrs: Vec<(BString, Bytes)>,
    /// The next byte to read.
    off: u64,
    /// The read under way. The answer to any other belongs to a push that was given up, perhaps of another content.
    reading: Option<ReadId>,
    /// The omap key the next part goes on behind.
    after: Option<BString>,
}

impl Pg {
    /// Sends an object as it is here; its absence, if it is absent. Returns the push's number.
    pub(super) fn start_push(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round, object: HObject) -> u64 {
        cx.sh.next_push += 1;
        let push = cx.sh.next_push;
        self.begin_push(cx, to, round, push, object);
        push
    }

    fn begin_push(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round, push: u64, object: HObject) {
        let attrs = match cx.disk.getattrs(self.coll, &object) {
            Ok(attrs) => attrs,
            Err(Errno::ENOENT) => return self.push_absence(cx, to, round, push, object),
            Err(e) => return self.push_failed(cx, to, round, object, e),
        };
        let info = attrs.get(&BString::from(INFO_ATTR)).and_then(|raw| denc::from_bytes::<ObjectInfo>(raw).ok());
        let Some(info) = info else {
            return self.push_failed(cx, to, round, object, Errno::EIO);
        };
        cx.sh.perf.recovery_op(info.size);
        let attrs = attrs.into_iter().collect();
        let state = PushState { round, push, seq: 0, info, attrs, off: 0, reading: None, after: None };
        self.pushes.out.insert((to, object.clone()), state);
        self.next_part(cx, to, object);
    }

    fn push_absence(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round, push: u64, object: HObject) {
        let part = PushPart { object, exists: false, first: true, last: true, push, ..PushPart::default() };
        cx.send_pg(to, self.id, round, PgBody::Push(part), Durable::Now);
    }

    /// Reads the next part's data, or goes on to the omap.
    fn next_part(&mut self, cx: &mut Cx<'_>, to: OsdId, object: HObject) {
        let Some(state) = self.pushes.out.get_mut(&(to, object.clone())) else { return };
        if state.off < state.info.size {
            let len = PART_BYTES.min(state.info.size - state.off);
            let (off, interval) = (state.off, state.round.interval);
            let route = ReadRoute { pgid: self.id, interval, what: ReadFor::Push { to, object: object.clone() } };
            let flags = ReadFlags { nocache: true, ..ReadFlags::default() };
            state.reading = Some(cx.read(self.coll, &object, off, len, flags, route));
            return;
        }
        self.send_part(cx, to, object, 0, Bytes::new());
    }

    /// The data of a part was read.
    pub(super) fn push_read(&mut self, cx: &mut Cx<'_>, id: ReadId, to: OsdId, object: HObject, result: ReadResult) {
        let Some(state) = self.pushes.out.get_mut(&(to, object.clone())).filter(|s| s.reading == Some(id)) else { return };
        state.reading = None;
        match result {
            Ok(read) => {
                let data = read.data.contiguous();
                let off = state.off;
                state.off += (data.len() as u64).max(1);
                self.send_part(cx, to, object, off, data);
            }
            Err(e) => {
                let round = state.round;
                self.push_failed(cx, to, round, object, e);
            }
        }
    }

    fn send_part(&mut self, cx: &mut Cx<'_>, to: OsdId, object: HObject, data_off: u64, data: Bytes) {
        let coll = self.coll;
        let Some(state) = self.pushes.out.get_mut(&(to, object.clone())) else { return };
        let round = state.round;
        let mut part = PushPart {
            exists: true,
            first: state.seq == 0,
            push: state.push,
            seq: state.seq,
            data_off,
            data,
            size: state.info.size,
            object: object.clone(),
            ..PushPart::default()
        };
        state.seq += 1;
        let data_done = state.off >= state.info.size;
        part.last = match data_done.then(|| add_omap(cx, coll, &mut part, state)) {
            Some(Ok(done)) => done,
            Some(Err(e)) => return self.push_failed(cx, to, round, object, e),
            None => false,
        };
        if part.last {
            part.attrs = std::mem::take(&mut state.attrs);
            self.pushes.out.remove(&(to, object.clone()));
        }
        let more = !part.last;
        cx.send_pg(to, self.id, round, PgBody::Push(part), Durable::Now);
        if more {
            self.next_part(cx, to, object);
        }
    }

    /// An object cannot be read here. Whoever pulls it is told; what we were to push ourselves we lack from now on.
    fn push_failed(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round, object: HObject, e: Errno) {
        tracing::error!(pg = %self.id, %to, object = ?object, "cannot be read to be pushed: {e}");
        self.pushes.out.remove(&(to, object.clone()));
        match self.target(to) {
            Some(_) => self.object_unreadable(cx, cx.sh.whoami, object),
            None => cx.send_pg(to, self.id, round, PgBody::PullFailed { object }, Durable::Now),
        }
    }

    /// Takes in a part of an object we lack.
    pub(super) fn handle_push(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, part: PushPart) {
        if !self.expects_part(from, &part) {
            return tracing::debug!(pg = %self.id, %from, object = ?part.object, seq = part.seq, "a part nobody waits for");
        }
        cx.sh.perf.push_received(part.data.len() as u64);
        let (object, last, push) = (part.object.clone(), part.last, part.push);
        match last {
            true => self.pushes.incoming.remove(&object),
            false => self.pushes.incoming.insert(object.clone(), (from, push, part.seq + 1)),
        };
        let mut txn = self.transaction();
        if self.complete && !self.missing.contains(&object) {
            self.add_missing(&mut txn, object.clone());
        }
        put_part(&mut txn, part);
        if last {
            self.missing.remove(&object);
            txn.coll_rm(missing_key(&object));
        }
        let txc = cx.submit(txn);
        if !last {
            return;
        }
        match &mut self.stage {
            Stage::Peering(p) => {
                if let Step::RecoverSelf(r) = &mut p.step {
                    r.landed(&object);
                }
                let step = PgStep::SelfRecovered(object);
                cx.sh.txcs.insert(txc, TxcRoute::Pg { pgid: self.id, round: self.round(), step });
            }
            _ => cx.send_pg(from, self.id, round, PgBody::Pushed { object, push }, Durable::After(txc)),
        }
    }

    /// True for a part of an object we asked for, or that the primary brings us before we serve, in its place.
    fn expects_part(&self, from: OsdId, part: &PushPart) -> bool {
        let wanted = match &self.stage {
            Stage::Peering(p) => matches!(&p.step, Step::RecoverSelf(r) if r.in_flight.contains_key(&part.object)),
            Stage::Follower { active } => !active && from == self.walk.mapping.primary,
            _ => false,
        };
        let next = match self.pushes.incoming.get(&part.object) {
            _ if part.first => 0,
            Some((whom, push, next)) if (*whom, *push) == (from, part.push) => *next,
            _ => return false,
        };
        wanted && part.seq == next
    }
}

/// Adds the next omap pairs. True if nothing is left.
fn add_omap(cx: &mut Cx<'_>, coll: types::ShardPgId, part: &mut PushPart, state: &mut PushState) -> Result<bool, Errno> {
    if !state.info.has_omap() {
        return Ok(true);
    }
    let from = match &state.after {
        None => {
            part.omap_header = cx.disk.omap_get_header(coll, &part.object)?;
            Bound::Unbounded
        }
        Some(after) => Bound::Excluded(after.as_slice()),
    };
    part.omap = cx.disk.omap_list(coll, &part.object, from, PART_PAIRS)?;
    let done = part.omap.len() < PART_PAIRS;
    state.after = part.omap.last().map(|(k, _)| k.clone()).or(state.after.take());
    Ok(done)
}

fn put_part(txn: &mut Transaction, part: PushPart) {
    let obj = &part.object;
    if part.first {
        txn.remove(obj);
    }
    if !part.exists {
        return;
    }
    if part.first {
        txn.touch(obj);
    }
    if !part.data.is_empty() {
        txn.write(obj, part.data_off, part.data);
    }
    if !part.omap_header.is_empty() {
        txn.omap_set_header(obj, part.omap_header);
    }
    if !part.omap.is_empty() {
        txn.omap_set(obj, part.omap);
    }
    if part.last {
        txn.truncate(obj, part.size);
        txn.set_attrs(obj, part.attrs);
    }
}
