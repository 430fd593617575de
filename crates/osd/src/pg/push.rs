//! Copying objects to another OSD, and taking them in: large ones in parts, small ones in company.
//!
//! Of a large object one part is on its way at a time, so that what is on its way is bounded whatever objects are like. Small
//! ones are read at the same time and go in one message, whose receiver has one transaction and one answer for all.
//! Holds: an object under way is missing on its receiver until the last part is on stable storage; so parts may be written
//! in place, and what is whole is never overwritten. Only the version that is missing is taken in. A part counts only
//! behind the one before it, of the same push: when a session is lost, parts in the middle are.
//! Upstream: PrimaryLogPG::on_failed_pull, PGBackend::on_local_recover_fail.

use super::gather::{Ask, Want};
use super::{Pg, Stage};
use crate::effects::{Cx, Durable, PgStep, ReadFor, ReadResult, ReadRoute, TxcRoute};
use crate::object::{INFO_ATTR, ObjectInfo};
use crate::snaps::index_arrived;
use bytes::Bytes;
use denc::BString;
use qos::Class;
use std::collections::BTreeMap;
use std::ops::Bound;
use store::{AllocHint, Bulk, Placed, ReadFlags, ReadId, Transaction};
use types::msg::{BufList, LogPrio};
use types::msg::internal_osd::{PgBody, PgMessage, PushPart, Round};
use types::{EVersion, Errno, HObject, OsdId};

/// Bytes of data in a part.
pub(super) const PART_BYTES: u64 = 1 << 20;
/// A message that has so many bytes of data, or parts, is sent: several on their way keep both disks and the way between them busy.
const COMPANY_BYTES: usize = 256 << 10;
const COMPANY: usize = 16;
/// What a part may take of a disk beyond its data: the rest of its last block.
const ROUNDING: u64 = 4096;
/// Omap pairs in a part.
const PART_PAIRS: usize = 512;

/// Objects on their way to other OSDs.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    out: BTreeMap<(OsdId, HObject), PushState>,
    /// Parts that wait for company.
    ready: BTreeMap<OsdId, Ready>,
    /// Objects being taken in: from whom, which push, and the number of its next part.
    incoming: BTreeMap<HObject, (OsdId, u64, u32)>,
}

/// The next message to an OSD.
#[derive(Debug)]
struct Ready {
    round: Round,
    parts: Vec<PushPart>,
    data: BufList,
}

/// What a message brought.
struct Taken {
    txn: Transaction,
    /// Where the data of each of its writes is already.
    placed: Vec<Placed>,
    /// Objects that are whole with it, each with its push.
    whole: Vec<(HObject, u64)>,
}

#[derive(Debug)]
struct PushState {
    round: Round,
    push: u64,
    /// Parts sent.
    seq: u32,
    info: ObjectInfo,
    /// How many bytes go: the object's size, or a shard's.
    len: u64,
    /// Which shard of the object it is, where copies are shards.
    shard: Option<u8>,
    attrs: Vec<(BString, Bytes)>,
    /// The next byte to read.
    off: u64,
    /// The read under way. The answer to any other belongs to a push that was given up, perhaps of another content.
    reading: Option<ReadId>,
    /// On whose account it is read.
    class: Class,
    /// The omap key the next part goes on behind.
    after: Option<BString>,
}

impl Pushes {
    /// True if an object is being read for this OSD.
    fn is_reading_for(&self, to: OsdId) -> bool {
        self.out.range((to, HObject::min())..).take_while(|((osd, _), _)| *osd == to).any(|(_, s)| s.reading.is_some())
    }
}

impl Pg {
    /// Another OSD wants an object of us.
    pub(super) fn handle_pull(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, object: HObject, version: EVersion) {
        cx.sh.perf.pull_received();
        let held = self.version_of(cx, &object);
        if self.missing.contains_key(&object) || held != Some(version) {
            return self.refuse_pull(cx, from, round, object, version);
        }
        if self.start_push(cx, from, round, object.clone()).is_err() {
            self.refuse_pull(cx, from, round, object, version);
        }
    }

    /// What cannot be read here we lack from now on, in the acting set.
    pub(super) fn lack_unreadable(&mut self, cx: &mut Cx<'_>, object: &HObject, version: EVersion) {
        let covered = *object < self.last_backfill && !self.missing.contains_key(object);
        if matches!(self.stage, Stage::Follower { active: true }) && covered {
            cx.clog(LogPrio::ERROR, format!("{}: {object} {version} cannot be read here to be copied", self.id));
            let mut txn = self.transaction();
            self.add_missing(&mut txn, object.clone(), version);
            cx.submit(txn);
        }
    }

    /// We cannot give an object. In the acting set we lack it ourselves from now on.
    fn refuse_pull(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round, object: HObject, version: EVersion) {
        self.lack_unreadable(cx, &object, version);
        cx.send_pg(to, self.id, round, PgBody::PullFailed { object }, Durable::Now);
    }

    /// Sends an object as it is here. Returns the push's number, and how large the object is.
    pub(super) fn start_push(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round, object: HObject) -> Result<(u64, u64), Errno> {
        let attrs = self.attrs_of(cx, &object).inspect_err(|e| {
            tracing::error!(pg = %self.id, %to, object = ?object, "cannot be read to be pushed: {e}");
        })?;
        self.push_described(cx, to, round, object, attrs)
    }

    /// Sends an object of which the attributes are known. Returns the push's number, and how many bytes it has.
    pub(super) fn push_described(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round, object: HObject, attrs: Vec<(BString, Bytes)>) -> Result<(u64, u64), Errno> {
        cx.sh.next_push += 1;
        let push = cx.sh.next_push;
        let info = info_of(&attrs).ok_or(Errno::EIO)?;
        let striping = cx.sh.striping.get(&self.id.pool);
        let shard = striping.and_then(|_| self.shard_at(to, &object));
        let size = striping.map_or(info.size, |striping| striping.chunks_len(info.size));
        cx.sh.perf.recovery_op(size);
        let class = match self.recovery.is_waited_for(&object) {
            true => Class::Client,
            // Copies that only move to another place can wait.
            false if !self.walk.mapping.acting.contains(&to) && !self.is_degraded() => Class::BestEffort,
            false => Class::Recovery,
        };
        let state = PushState { round, push, seq: 0, info, len: size, shard, attrs, off: 0, reading: None, class, after: None };
        self.pushes.out.insert((to, object.clone()), state);
        self.next_part(cx, to, object);
        Ok((push, size))
    }

    /// Gives up sending an object to one OSD.
    pub(super) fn drop_push(&mut self, to: OsdId, object: &HObject) {
        self.pushes.out.remove(&(to, object.clone()));
    }

    /// Gives up sending an object.
    pub(super) fn drop_pushes(&mut self, object: &HObject) {
        self.pushes.out.retain(|(_, o), _| o != object);
    }

    /// Gives up everything that goes to one OSD: the session is gone, and who wants it asks again.
    pub(super) fn drop_pushes_to(&mut self, to: OsdId) {
        self.pushes.out.retain(|(osd, _), _| *osd != to);
        self.pushes.ready.remove(&to);
    }

    /// Reads the next part's data, or goes on to the omap.
    fn next_part(&mut self, cx: &mut Cx<'_>, to: OsdId, object: HObject) {
        let Some(state) = self.pushes.out.get_mut(&(to, object.clone())) else { return };
        if state.off < state.len {
            let len = PART_BYTES.min(state.len - state.off);
            if let Some(shard) = state.shard {
                let read = cx.next_read();
                state.reading = Some(read);
                let (want, class, version) = (Want::Shard { shard, off: state.off, len }, state.class, state.info.version);
                let what = ReadFor::Push { to, object: object.clone() };
                return self.gather(cx, read, Ask { object, version, want, class, what });
            }
            let (off, interval, class) = (state.off, state.round.interval, state.class);
            let route = ReadRoute { pgid: self.id, interval, what: ReadFor::Push { to, object: object.clone() } };
            let flags = ReadFlags { nocache: true, class, ..ReadFlags::default() };
            state.reading = Some(cx.read(self.coll, &object, off, len, flags, route));
            return;
        }
        self.send_part(cx, to, object, 0, BufList::default());
    }

    /// The data of a part was read.
    pub(super) fn push_read(&mut self, cx: &mut Cx<'_>, id: ReadId, to: OsdId, object: HObject, result: ReadResult) {
        self.part_read(cx, id, to, object, result);
        // Whatever became of this read, nothing else may be coming that ready parts wait for.
        self.send_ready(cx, to);
    }

    fn part_read(&mut self, cx: &mut Cx<'_>, id: ReadId, to: OsdId, object: HObject, result: ReadResult) {
        let Some(state) = self.pushes.out.get_mut(&(to, object.clone())).filter(|s| s.reading == Some(id)) else { return };
        state.reading = None;
        match result {
            Ok(read) => {
                let off = state.off;
                state.off += (read.data.len() as u64).max(1);
                self.send_part(cx, to, object, off, read.data);
            }
            Err(e) => {
                let round = state.round;
                self.push_failed(cx, to, round, object, e);
            }
        }
    }

    fn send_part(&mut self, cx: &mut Cx<'_>, to: OsdId, object: HObject, data_off: u64, data: BufList) {
        let coll = self.coll;
        let Some(state) = self.pushes.out.get_mut(&(to, object.clone())) else { return };
        let round = state.round;
        let mut part = PushPart {
            first: state.seq == 0,
            push: state.push,
            seq: state.seq,
            version: state.info.version,
            data_off,
            data_len: data.len() as u32,
            size: state.len,
            object: object.clone(),
            ..PushPart::default()
        };
        state.seq += 1;
        let data_done = state.off >= state.len;
        part.last = match data_done.then(|| add_omap(cx, coll, &mut part, state)) {
            Some(Ok(done)) => done,
            Some(Err(e)) => return self.push_failed(cx, to, round, object, e),
            None => false,
        };
        if part.first && !part.last && state.info.alloc_hint_flags != 0 {
            // How the object will be used decides how its data is stored.
            part.attrs = state.attrs.iter().filter(|(name, _)| *name == INFO_ATTR).cloned().collect();
        }
        if part.last {
            part.attrs = std::mem::take(&mut state.attrs);
            self.pushes.out.remove(&(to, object));
        }
        let fresh = Ready { round, parts: Vec::new(), data: BufList::default() };
        let ready = self.pushes.ready.entry(to).or_insert(fresh);
        ready.round = round;
        ready.data.append(data);
        ready.parts.push(part);
        self.send_ready(cx, to);
    }

    /// Sends what is ready for an OSD if it is enough, or nothing more is being read that could go with it.
    fn send_ready(&mut self, cx: &mut Cx<'_>, to: OsdId) {
        let Some(ready) = self.pushes.ready.get(&to) else { return };
        let enough = ready.data.len() >= COMPANY_BYTES || ready.parts.len() >= COMPANY;
        if !enough && self.pushes.is_reading_for(to) {
            return;
        }
        if let Some(Ready { round, parts, data }) = self.pushes.ready.remove(&to) {
            cx.sh.perf.push_sent(data.len() as u64);
            cx.send_pg_data(to, self.id, round, PgBody::Push(parts), data, Durable::Now);
        }
    }

    /// A part is durable at its receiver.
    pub(super) fn handle_part_taken(&mut self, cx: &mut Cx<'_>, from: OsdId, object: HObject, push: u64, seq: u32) {
        let key = (from, object);
        if self.pushes.out.get(&key).is_some_and(|s| s.push == push && s.seq == seq + 1 && s.reading.is_none()) {
            self.next_part(cx, from, key.1);
        }
    }

    /// An object turns out not to be readable here. Whoever pulls it is told; what we were to push ourselves we lack from
    /// now on.
    fn push_failed(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round, object: HObject, e: Errno) {
        tracing::error!(pg = %self.id, %to, object = ?object, "cannot be read to be pushed: {e}");
        let push = self.pushes.out.remove(&(to, object.clone()));
        if self.is_coded() {
            // Whoever could not give its shard is known to lack it.
            self.drop_pushes(&object);
            self.move_again(cx, object);
            return self.recover(cx);
        }
        match self.stage {
            Stage::Active => {
                self.own_copy_unreadable(cx, object);
                self.recover(cx);
            }
            _ => {
                let version = push.map(|p| p.info.version).unwrap_or_default();
                self.refuse_pull(cx, to, round, object, version)
            }
        }
    }

    /// On whose account the device takes in what we lack: data is at risk, or only moves to us.
    fn push_class(&self, cx: &Cx<'_>) -> Class {
        let m = &self.walk.mapping;
        let moves = !m.acting.contains(&cx.sh.whoami) && m.acting.len() >= usize::from(m.size);
        if moves { Class::BestEffort } else { Class::Recovery }
    }

    /// Objects that came are brought to their places before anything is said of them: whatever is said waits for all that was said of the PG before, and a
    /// client's write would wait behind them for a slow device. True if they are on their way.
    pub fn places_first(&self, cx: &mut Cx<'_>, m: &PgMessage) -> bool {
        let PgBody::Push(parts) = &m.body else { return false };
        if m.data.is_empty() || m.round.interval != self.walk.since || cx.is_failsafe_full(cx.sh.whoami) {
            return false;
        }
        let mut data = m.data.clone();
        let pieces: Option<Vec<BufList>> = parts.iter().map(|part| data.split_to(part.data_len as usize)).collect();
        pieces.is_some_and(|pieces| cx.place(self.push_class(cx), pieces, m))
    }

    /// Takes in parts of objects we lack, in one transaction.
    pub(super) fn handle_push(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, parts: Vec<PushPart>, mut data: BufList) {
        let mut taken = Taken { txn: self.transaction(), whole: Vec::new(), placed: Vec::new() };
        for part in parts {
            let Some(data) = data.split_to(part.data_len as usize) else {
                tracing::warn!(pg = %self.id, %from, object = ?part.object, "a part with less data than it says");
                break;
            };
            let mut placed = cx.sh.placed.split_to(data.len() as u64);
            self.take_part(cx, from, round, (part, data, &mut placed), &mut taken);
            cx.disk.give_back(placed);
        }
        if !data.is_empty() {
            tracing::warn!(pg = %self.id, %from, bytes = data.len(), "a push with more data than its parts");
        }
        let Taken { mut txn, whole, placed } = taken;
        if whole.is_empty() {
            return;
        }
        if txn.is_empty() {
            // All of it was here: it is durable when what is submitted now is.
            self.put_meta(&mut txn);
        }
        let txc = cx.submit_bulk(txn, Bulk { class: self.push_class(cx), placed });
        match self.stage {
            Stage::Active => {
                let step = PgStep::SelfRecovered(whole.into_iter().map(|(object, _)| object).collect());
                cx.route(txc, TxcRoute::Pg { pgid: self.id, round: self.round(), step });
            }
            _ => cx.send_pg(from, self.id, round, PgBody::Pushed(whole), Durable::After(txc)),
        }
    }

    fn take_part(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, (part, data, placed): (PushPart, BufList, &mut Placed), taken: &mut Taken) {
        if let Stage::Follower { .. } = self.stage
            && part.object < self.last_backfill
            && from == self.walk.mapping.primary
            && !self.missing.contains_key(&part.object)
        {
            // The primary has not heard that we have it.
            return taken.whole.push((part.object, part.push));
        }
        if !self.expects_part(from, &part) {
            return tracing::debug!(pg = %self.id, %from, object = ?part.object, seq = part.seq, "a part nobody waits for");
        }
        if (!data.is_empty() || !part.omap.is_empty()) && cx.is_failsafe_full(cx.sh.whoami) {
            return self.refuse_part(cx, from, round, part);
        }
        let pairs = part.omap.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        cx.take_space((data.len() + pairs) as u64 + ROUNDING);
        cx.sh.perf.push_received(data.len() as u64);
        let (object, push, seq, size) = (part.object.clone(), part.push, part.seq, part.size);
        if !part.last {
            self.pushes.incoming.insert(object.clone(), (from, push, seq + 1));
            let mut txn = self.transaction();
            put_part(&mut txn, part, data);
            let how = Bulk { class: self.push_class(cx), placed: vec![std::mem::take(placed)] };
            let txc = cx.submit_bulk(txn, how);
            return cx.send_pg(from, self.id, round, PgBody::PartTaken { object, push, seq }, Durable::After(txc));
        }
        self.pushes.incoming.remove(&object);
        if !data.is_empty() {
            taken.placed.push(std::mem::take(placed));
        }
        put_part(&mut taken.txn, part, data);
        self.tag(&mut taken.txn, &object);
        self.drop_missing(&mut taken.txn, &object);
        match self.stage {
            Stage::Active => self.recovery.landed(&object, size),
            _ => self.note_repaired(cx, &object),
        }
        taken.whole.push((object, push));
    }

    /// Parts of an object that came are gone: those behind them are void.
    pub(super) fn forget_incoming(&mut self, object: &HObject) {
        self.pushes.incoming.remove(object);
    }

    /// There is no room for a part; what came before it gives its own back.
    fn refuse_part(&mut self, cx: &mut Cx<'_>, from: OsdId, round: Round, part: PushPart) {
        if self.pushes.incoming.remove(&part.object).is_some() {
            let mut txn = self.transaction();
            txn.remove(&part.object);
            cx.submit(txn);
        }
        match self.stage {
            Stage::Active => self.no_room_for_pull(cx, part.object),
            _ => cx.send_pg(from, self.id, round, PgBody::TooFull { object: part.object, push: part.push }, Durable::Now),
        }
    }

    /// True for a part of an object we lack, in the version we lack, that we asked for or that the primary brings us; in
    /// its place.
    fn expects_part(&self, from: OsdId, part: &PushPart) -> bool {
        let wanted = match &self.stage {
            Stage::Active => self.recovery.expects(&part.object, from),
            Stage::Follower { .. } => from == self.walk.mapping.primary,
            _ => false,
        };
        let next = match self.pushes.incoming.get(&part.object) {
            _ if part.first => 0,
            Some((whom, push, next)) if (*whom, *push) == (from, part.push) => *next,
            _ => return false,
        };
        wanted && part.seq == next && self.missing.get(&part.object) == Some(&part.version)
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

/// What describes an object, among its attributes.
fn info_of(attrs: &[(BString, Bytes)]) -> Option<ObjectInfo> {
    let (_, raw) = attrs.iter().find(|(name, _)| *name == INFO_ATTR)?;
    denc::from_bytes(raw).ok()
}

/// What clients said of an object's use.
fn hint_of(attrs: &[(BString, Bytes)]) -> Option<AllocHint> {
    let info = info_of(attrs)?;
    let hint = AllocHint {
        expected_object_size: info.expected_object_size,
        expected_write_size: info.expected_write_size,
        flags: info.alloc_hint_flags,
    };
    (hint != AllocHint::default()).then_some(hint)
}

fn put_part(txn: &mut Transaction, part: PushPart, data: BufList) {
    let obj = &part.object;
    if part.first {
        txn.remove(obj);
        txn.touch(obj);
        if let Some(hint) = hint_of(&part.attrs) {
            txn.set_alloc_hint(obj, hint);
        }
    }
    if !data.is_empty() {
        txn.write(obj, part.data_off, data);
    }
    if !part.omap_header.is_empty() {
        txn.omap_set_header(obj, part.omap_header);
    }
    if !part.omap.is_empty() {
        txn.omap_set(obj, part.omap);
    }
    if part.last {
        txn.truncate(obj, part.size);
        if let Some(info) = info_of(&part.attrs) {
            index_arrived(txn, obj, &info);
        }
        txn.set_attrs(obj, part.attrs);
    }
}
