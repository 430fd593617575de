//! Copying one object to another OSD, in parts, and taking one in.
//!
//! Holds: an object under way is marked missing on its receiver until the last part is on stable storage; so parts may
//! be written in place.

use super::meta::missing_key;
use super::{Pg, Stage};
use crate::effects::{Cx, Durable, PgStep, ReadFor, ReadResult, ReadRoute, TxcRoute};
use crate::object::{INFO_ATTR, ObjectInfo};
use bytes::Bytes;
use denc::BString;
use std::collections::BTreeMap;
use std::ops::Bound;
use store::{ReadFlags, Transaction};
use types::msg::internal_osd::{PgBody, PushPart};
use types::{Epoch, Errno, HObject, OsdId};

/// Bytes of data in a part.
const PART_BYTES: u64 = 1 << 20;
/// Omap pairs in a part.
const PART_PAIRS: usize = 512;

/// Objects on their way to other OSDs.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    out: BTreeMap<(OsdId, HObject), PushState>,
}

#[derive(Debug)]
struct PushState {
    interval: Epoch,
    info: ObjectInfo,
    attrs: Vec<(BString, Bytes)>,
    /// The next byte to read.
    off: u64,
    /// The omap key the next part goes on behind.
    after: Option<BString>,
    sent_any: bool,
}

impl Pg {
    /// Sends an object as it is here; its absence, if it is absent.
    pub(super) fn start_push(&mut self, cx: &mut Cx<'_>, to: OsdId, interval: Epoch, object: HObject) {
        let attrs = match cx.disk.getattrs(self.coll, &object) {
            Ok(attrs) => attrs,
            Err(Errno::ENOENT) => return self.push_absence(cx, to, interval, object),
            Err(e) => return tracing::error!(pg = %self.id, object = ?object, "cannot be pushed: {e}"),
        };
        let info = attrs.get(&BString::from(INFO_ATTR)).and_then(|raw| denc::from_bytes::<ObjectInfo>(raw).ok());
        let Some(info) = info else {
            return tracing::error!(pg = %self.id, object = ?object, "has no info and cannot be pushed");
        };
        cx.sh.perf.recovery_op(info.size);
        let state = PushState { interval, info, attrs: attrs.into_iter().collect(), off: 0, after: None, sent_any: false };
        self.pushes.out.insert((to, object.clone()), state);
        self.next_part(cx, to, object);
    }

    fn push_absence(&mut self, cx: &mut Cx<'_>, to: OsdId, interval: Epoch, object: HObject) {
        let part = PushPart { object, exists: false, first: true, last: true, ..PushPart::default() };
        cx.send_pg(to, self.id, interval, PgBody::Push(part), Durable::Now);
    }

    /// Reads the next part's data, or goes on to the omap.
    fn next_part(&mut self, cx: &mut Cx<'_>, to: OsdId, object: HObject) {
        let Some(state) = self.pushes.out.get(&(to, object.clone())) else { return };
        if state.off < state.info.size {
            let len = PART_BYTES.min(state.info.size - state.off);
            let (off, interval) = (state.off, state.interval);
            let route = ReadRoute { pgid: self.id, interval, what: ReadFor::Push { to, object: object.clone() } };
            let flags = ReadFlags { nocache: true, ..ReadFlags::default() };
            cx.read(self.coll, &object, off, len, flags, route);
            return;
        }
        self.send_part(cx, to, object, 0, Bytes::new());
    }

    /// The data of a part was read.
    pub(super) fn push_read(&mut self, cx: &mut Cx<'_>, to: OsdId, object: HObject, result: ReadResult) {
        let Some(state) = self.pushes.out.get_mut(&(to, object.clone())) else { return };
        match result {
            Ok(read) => {
                let data = read.data.contiguous();
                let off = state.off;
                state.off += (data.len() as u64).max(1);
                self.send_part(cx, to, object, off, data);
            }
            Err(e) => {
                tracing::error!(pg = %self.id, object = ?object, "cannot be read to be pushed: {e}");
                self.pushes.out.remove(&(to, object));
            }
        }
    }

    fn send_part(&mut self, cx: &mut Cx<'_>, to: OsdId, object: HObject, data_off: u64, data: Bytes) {
        let coll = self.coll;
        let Some(state) = self.pushes.out.get_mut(&(to, object.clone())) else { return };
        let interval = state.interval;
        let mut part = PushPart {
            exists: true,
            first: !std::mem::replace(&mut state.sent_any, true),
            data_off,
            data,
            size: state.info.size,
            object: object.clone(),
            ..PushPart::default()
        };
        let data_done = state.off >= state.info.size;
        part.last = data_done && add_omap(cx, coll, &mut part, state);
        if part.last {
            part.attrs = std::mem::take(&mut state.attrs);
            self.pushes.out.remove(&(to, object.clone()));
        }
        let more = !part.last;
        cx.send_pg(to, self.id, interval, PgBody::Push(part), Durable::Now);
        if more {
            self.next_part(cx, to, object);
        }
    }

    /// Takes in a part of an object we lack.
    pub(super) fn handle_push(&mut self, cx: &mut Cx<'_>, from: OsdId, part: PushPart) {
        cx.sh.perf.push_received(part.data.len() as u64);
        let (object, last) = (part.object.clone(), part.last);
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
        match self.stage {
            Stage::Peering(_) => {
                let step = PgStep::SelfRecovered(object);
                cx.sh.txcs.insert(txc, TxcRoute::Pg { pgid: self.id, interval: self.walk.since, step });
            }
            _ => cx.send_pg(from, self.id, self.walk.since, PgBody::Pushed { object }, Durable::After(txc)),
        }
    }
}

/// Adds the next omap pairs. True if nothing is left.
fn add_omap(cx: &mut Cx<'_>, coll: types::ShardPgId, part: &mut PushPart, state: &mut PushState) -> bool {
    if !state.info.has_omap() {
        return true;
    }
    let from = match &state.after {
        None => {
            part.omap_header = cx.disk.omap_get_header(coll, &part.object).unwrap_or_default();
            Bound::Unbounded
        }
        Some(after) => Bound::Excluded(after.as_slice()),
    };
    part.omap = cx.disk.omap_list(coll, &part.object, from, PART_PAIRS).unwrap_or_default();
    let done = part.omap.len() < PART_PAIRS;
    state.after = part.omap.last().map(|(k, _)| k.clone()).or(state.after.take());
    done
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
