//! Reading objects of erasure-coded pools: bytes of an object, or a shard of it, out of what other copies have.
//!
//! Room: osd core.   Owns: `Gathers`, on the primary.   Hears: own reads, other OSDs' answers, their end.
//! Holds: everything that is put together is of one write, whose version is asked for. Shards that have the bytes are asked for just these; where
//! one of them cannot be had, as many others as there are data chunks are, and what is lacking is computed. Whoever cannot give what it
//! should have lacks it from then on. The end of a gathering is the end of a read to whoever wanted it.
//! Upstream: ECBackend::objects_read_and_reconstruct, get_min_avail_to_read_shards.

use super::recovery::turn_of;
use super::{Pg, Stage};
use crate::effects::{Cx, Durable, Peer, ReadFor, ReadResult, ReadRoute};
use bytes::Bytes;
use denc::BString;
use qos::Class;
use std::collections::{BTreeMap, BTreeSet};
use store::{ReadData, ReadFlags, ReadId};
use types::msg::internal_osd::{ShardRead, ShardReadReply};
use types::msg::{BufList, LogPrio};
use types::{EVersion, Errno, HObject, OsdId, PgId};

/// What is wanted of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Bytes of the object.
    Bytes { off: u64, len: u64 },
    /// A part of a shard.
    Shard { shard: u8, off: u64, len: u64 },
    /// What describes it.
    Attrs,
}

/// A reading of an object as a write left it.
#[derive(Debug)]
pub(super) struct Ask {
    pub object: HObject,
    pub version: EVersion,
    pub want: Want,
    pub class: Class,
    /// Whom its end is for.
    pub what: ReadFor,
}

/// Readings under way.
#[derive(Debug, Default)]
pub(super) struct Gathers {
    list: BTreeMap<ReadId, Gather>,
}

#[derive(Debug)]
struct Gather {
    what: ReadFor,
    object: HObject,
    version: EVersion,
    want: Want,
    /// Shards that have it as it is wanted.
    direct: BTreeSet<u8>,
    /// What is read of each shard.
    off: u64,
    len: u64,
    class: Class,
    /// Who could be asked, best first.
    sources: Vec<(OsdId, u8)>,
    asked: BTreeMap<OsdId, u8>,
    have: BTreeMap<u8, BufList>,
    attrs: Option<Vec<(BString, Bytes)>>,
}

impl Gather {
    fn is_known(&self, shard: u8) -> bool {
        self.have.contains_key(&shard) || self.asked.values().any(|s| *s == shard)
    }

    /// True if the shard is there, on its way, or could be.
    fn is_within_reach(&self, shard: u8) -> bool {
        self.is_known(shard) || self.sources.iter().any(|(_, s)| *s == shard)
    }

    /// Whom to ask now; they are asked from now on.
    fn next(&mut self, k: usize, all: bool) -> Vec<(OsdId, u8)> {
        let mut next = Vec::new();
        let mut ask = |g: &mut Gather, fits: &dyn Fn(u8) -> bool| {
            let at = g.sources.iter().position(|(_, shard)| fits(*shard) && !g.is_known(*shard));
            let Some(source) = at.map(|at| g.sources.remove(at)) else { return false };
            g.asked.insert(source.0, source.1);
            next.push(source);
            true
        };
        if self.want == Want::Attrs {
            if self.attrs.is_none() && self.asked.is_empty() {
                ask(self, &|_| true);
            }
            return next;
        }
        if self.direct.iter().all(|shard| self.is_within_reach(*shard)) {
            for shard in self.direct.clone() {
                ask(self, &|s| s == shard);
            }
        } else {
            while self.have.len() + self.asked.len() < k && ask(self, &|_| true) {}
        }
        while all && ask(self, &|_| true) {}
        next
    }

    /// What whoever has a shard is asked.
    fn question(&self, cx: &Cx<'_>, pgid: PgId, id: ReadId, shard: u8) -> ShardRead {
        ShardRead {
            pgid,
            epoch: cx.sh.map.epoch,
            osd: cx.sh.whoami,
            tid: id.0,
            object: self.object.clone(),
            version: self.version,
            shard,
            off: self.off,
            len: self.len,
            attrs: self.want == Want::Attrs,
            class: self.class as u8,
        }
    }

    fn is_whole(&self, k: usize) -> bool {
        match self.want {
            Want::Attrs => self.attrs.is_some(),
            _ => self.direct.iter().all(|shard| self.have.contains_key(shard)) || self.have.len() >= k,
        }
    }
}

impl Pg {
    /// Copies that have an object as it should be, or may, with their shards: ours first, then acting ones.
    pub(super) fn shard_sources(&self, whoami: OsdId, object: &HObject) -> Vec<(OsdId, u8)> {
        let own = (!self.missing.contains_key(object)).then_some(whoami);
        let shard = |osd: OsdId| self.shard_at(osd, object).map(|shard| (osd, shard));
        own.into_iter().chain(self.recovery.givers_of(object)).filter_map(shard).collect()
    }

    /// True if there are too few shards of an object for it to be read.
    pub(super) fn is_short_of_shards(&self, whoami: OsdId, object: &HObject) -> bool {
        if !self.is_coded() {
            return false;
        }
        let need = usize::from(self.walk.mapping.need);
        let distinct: BTreeSet<u8> = self.shard_sources(whoami, object).into_iter().map(|(_, shard)| shard).collect();
        distinct.len() < need
    }

    /// Acting copies take turns, object by object, for a shard is computed of as many as come first: the others' disks would have nothing to do.
    fn take_turns(&self, whoami: OsdId, object: &HObject, sources: &mut [(OsdId, u8)]) {
        let own = usize::from(sources.first().is_some_and(|(osd, _)| *osd == whoami));
        let others = &mut sources[own..];
        let acting = others.iter().take_while(|(osd, _)| self.recovery.is_whole_at(*osd, object)).count();
        if acting > 0 {
            others[..acting].rotate_left(turn_of(object, acting));
        }
    }

    /// Reads what is wanted. Its end is that of the read with this id.
    pub(super) fn gather(&mut self, cx: &mut Cx<'_>, id: ReadId, ask: Ask) {
        let Some(striping) = cx.sh.striping.get(&self.id.pool).cloned() else { return };
        let (direct, off, len) = match ask.want {
            Want::Bytes { off, len } => {
                let span = striping.span(off, len);
                (span.shards.map(|s| s as u8).collect(), span.off, span.len)
            }
            Want::Shard { shard, off, len } => (BTreeSet::from([shard]), off, len),
            Want::Attrs => (BTreeSet::new(), 0, 0),
        };
        let mut sources = self.shard_sources(cx.sh.whoami, &ask.object);
        if let Want::Shard { .. } = ask.want {
            self.take_turns(cx.sh.whoami, &ask.object, &mut sources);
        }
        let (asked, have) = (BTreeMap::new(), BTreeMap::new());
        let Ask { object, version, want, class, what } = ask;
        let gather = Gather { what, object, version, want, direct, off, len, class, sources, asked, have, attrs: None };
        self.gathers.list.insert(id, gather);
        self.ask_shards(cx, id);
    }

    /// Asks whom it takes; without anybody left it has failed.
    fn ask_shards(&mut self, cx: &mut Cx<'_>, id: ReadId) {
        let (k, all) = (usize::from(self.walk.mapping.need), self.reads_all(cx));
        loop {
            let Some(gather) = self.gathers.list.get_mut(&id) else { return };
            let next = gather.next(k, all);
            if next.is_empty() {
                if gather.asked.is_empty() && !gather.is_whole(k) {
                    self.gather_failed(cx, id);
                }
                return;
            }
            let me = cx.sh.whoami;
            let (own, others): (Vec<_>, Vec<_>) = next.into_iter().partition(|(osd, _)| *osd == me);
            for (osd, shard) in others {
                let msg = gather.question(cx, self.id, id, shard);
                cx.send(Peer::Osd(osd), 0, msg, Durable::Now);
            }
            if own.is_empty() {
                return;
            }
            let (object, version, off, len, class) = (gather.object.clone(), gather.version, gather.off, gather.len, gather.class);
            if self.version_of(cx, &object) == Some(version) {
                let route = ReadRoute { pgid: self.id, interval: self.walk.since, what: ReadFor::Shard(id) };
                cx.read(self.coll, &object, off, len, flags_for(class), route);
                return;
            }
            self.source_failed(cx, id, me);
        }
    }

    /// `fast_read`: whoever has something is asked, and the first answers count.
    fn reads_all(&self, cx: &Cx<'_>) -> bool {
        cx.sh.map.pool_by_id(self.id.pool).is_some_and(|pool| pool.fast_read)
    }

    /// Our own shard was read.
    pub(super) fn own_shard_read(&mut self, cx: &mut Cx<'_>, id: ReadId, result: ReadResult) {
        let me = cx.sh.whoami;
        self.shard_came(cx, id, me, result.map(|read| (read.data, Vec::new())));
    }

    /// Another OSD has answered.
    pub fn handle_shard_read_reply(&mut self, cx: &mut Cx<'_>, m: ShardReadReply) {
        let result = match m.result {
            0 => Ok((m.data, m.attrs)),
            e => Err(Errno(e.saturating_neg())),
        };
        self.shard_came(cx, ReadId(m.tid), m.osd, result);
        self.pump(cx);
    }

    fn shard_came(&mut self, cx: &mut Cx<'_>, id: ReadId, from: OsdId, result: Result<(BufList, Vec<(BString, Bytes)>), Errno>) {
        let k = usize::from(self.walk.mapping.need);
        let Some(gather) = self.gathers.list.get_mut(&id) else { return };
        let Some(shard) = gather.asked.get(&from).copied() else { return };
        match result {
            Ok((data, attrs)) if data.len() as u64 == gather.len => {
                gather.asked.remove(&from);
                gather.have.insert(shard, data);
                if gather.want == Want::Attrs {
                    gather.attrs = Some(attrs);
                }
                if gather.is_whole(k) {
                    self.gathered(cx, id);
                }
            }
            _ => {
                self.source_failed(cx, id, from);
                self.ask_shards(cx, id);
                self.recover(cx);
            }
        }
    }

    /// Somebody cannot give what it should have: it lacks the object from now on.
    fn source_failed(&mut self, cx: &mut Cx<'_>, id: ReadId, osd: OsdId) {
        let Some(gather) = self.gathers.list.get_mut(&id) else { return };
        gather.asked.remove(&osd);
        let (object, version) = (gather.object.clone(), gather.version);
        if !matches!(self.stage, Stage::Active) {
            return;
        }
        if osd != cx.sh.whoami {
            tracing::debug!(pg = %self.id, %osd, object = ?object, %version, "cannot give its shard");
            return self.recovery.note_failed(osd, &object, version);
        }
        if !self.missing.contains_key(&object) {
            cx.clog(LogPrio::ERROR, format!("{}: {object} cannot be read here: it is computed anew", self.id));
            self.expect_repair(object.clone());
            self.lose_own_copy(cx, object, version);
        }
    }

    fn gathered(&mut self, cx: &mut Cx<'_>, id: ReadId) {
        let Some(gather) = self.gathers.list.remove(&id) else { return };
        let Some(striping) = cx.sh.striping.get(&self.id.pool).cloned() else { return };
        if let (Some(attrs), ReadFor::Rebuild { object }) = (gather.attrs, &gather.what) {
            return self.rebuild_described(cx, object.clone(), attrs);
        }
        let lacking: Vec<usize> = gather.direct.iter().filter(|s| !gather.have.contains_key(s)).map(|s| usize::from(*s)).collect();
        let mut pieces = gather.have;
        if !lacking.is_empty() {
            let have: Vec<(usize, Bytes)> = pieces.iter().map(|(shard, data)| (usize::from(*shard), data.contiguous())).collect();
            let have: Vec<(usize, &[u8])> = have.iter().map(|(shard, data)| (*shard, &data[..])).collect();
            let Some(computed) = striping.rebuild(&have, &lacking) else { return };
            pieces.extend(lacking.iter().map(|s| *s as u8).zip(computed.into_iter().map(|data| Bytes::from(data).into())));
        }
        let mut wanted: Vec<BufList> = gather.direct.iter().filter_map(|shard| pieces.remove(shard)).collect();
        let (off, data) = match (gather.want, wanted.len()) {
            (Want::Bytes { off, len }, _) => (off, striping.join(off, len, wanted)),
            (Want::Shard { off, .. }, 1) => (off, wanted.remove(0)),
            _ => return,
        };
        let read = ReadData { extents: vec![(off, data.len() as u64)], data, ..ReadData::default() };
        self.gather_ended(cx, id, gather.what, Ok(read));
    }

    fn gather_ended(&mut self, cx: &mut Cx<'_>, id: ReadId, what: ReadFor, result: ReadResult) {
        match what {
            ReadFor::Op(op) => self.op_read(cx, op, id, result),
            ReadFor::Push { to, object } => self.push_read(cx, id, to, object, result),
            _ => {}
        }
    }

    /// There are too few shards: whoever wants it waits for more of them.
    fn gather_failed(&mut self, cx: &mut Cx<'_>, id: ReadId) {
        let Some(gather) = self.gathers.list.remove(&id) else { return };
        tracing::warn!(pg = %self.id, object = ?gather.object, version = %gather.version, "too few shards can be read");
        match gather.what {
            ReadFor::Op(op) if self.is_short_of_shards(cx.sh.whoami, &gather.object) || self.missing.contains_key(&gather.object) => {
                self.read_again(cx, op)
            }
            ReadFor::Rebuild { object } => self.rebuild_failed(cx, object),
            what => self.gather_ended(cx, id, what, Err(Errno::EIO)),
        }
    }

    /// A session was lost: what was asked over it is asked again.
    pub(super) fn gather_reset(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        for (id, g) in &self.gathers.list {
            let Some(shard) = g.asked.get(&osd).copied() else { continue };
            let msg = g.question(cx, self.id, *id, shard);
            cx.send(Peer::Osd(osd), 0, msg, Durable::Now);
        }
    }

    /// A new map of the same interval: whoever is gone does not answer.
    pub(super) fn gather_map(&mut self, cx: &mut Cx<'_>) {
        let gone = |osd: &OsdId| !cx.sh.map.is_up(*osd);
        let short: Vec<ReadId> = self.gathers.list.iter().filter(|(_, g)| g.asked.keys().any(gone)).map(|(id, _)| *id).collect();
        for id in short {
            if let Some(gather) = self.gathers.list.get_mut(&id) {
                gather.asked.retain(|osd, _| cx.sh.map.is_up(*osd));
                gather.sources.retain(|(osd, _)| cx.sh.map.is_up(*osd));
            }
            self.ask_shards(cx, id);
        }
    }

    /// The primary reads our shard.
    pub fn handle_shard_read(&mut self, cx: &mut Cx<'_>, m: ShardRead) {
        let is_here = self.own_shard(&m.object) == Some(m.shard)
            && !matches!(self.stage, Stage::Removing)
            && !self.missing.contains_key(&m.object)
            && self.version_of(cx, &m.object) == Some(m.version);
        let attrs = match is_here && m.attrs {
            true => self.attrs_of(cx, &m.object),
            false => Ok(Vec::new()),
        };
        match attrs {
            _ if !is_here => shard_reply(cx, &m, Errno::ENOENT.wire(), Vec::new(), BufList::default()),
            Err(_) => self.cannot_give(cx, &m),
            Ok(attrs) if m.len == 0 => shard_reply(cx, &m, 0, attrs, BufList::default()),
            Ok(_) => {
                let class = Class::ALL.get(usize::from(m.class)).copied().unwrap_or_default();
                let (object, off, len) = (m.object.clone(), m.off, m.len);
                let route = ReadRoute { pgid: self.id, interval: self.walk.since, what: ReadFor::Peer(Box::new(m)) };
                cx.read(self.coll, &object, off, len, flags_for(class), route);
            }
        }
    }

    /// A read for another OSD has ended.
    pub(super) fn peer_read(&mut self, cx: &mut Cx<'_>, m: ShardRead, result: ReadResult) {
        match result {
            Ok(read) if read.data.len() as u64 == m.len => shard_reply(cx, &m, 0, Vec::new(), read.data),
            _ => self.cannot_give(cx, &m),
        }
    }

    fn cannot_give(&mut self, cx: &mut Cx<'_>, m: &ShardRead) {
        self.lack_unreadable(cx, &m.object, m.version);
        shard_reply(cx, m, Errno::EIO.wire(), Vec::new(), BufList::default());
    }
}

/// What is not read for a client is not kept in memory.
fn flags_for(class: Class) -> ReadFlags {
    ReadFlags { nocache: class != Class::Client, class, ..ReadFlags::default() }
}

/// Answers who wants a shard that is not here.
pub(crate) fn refuse_shard_read(cx: &mut Cx<'_>, m: &ShardRead) {
    shard_reply(cx, m, Errno::ENOENT.wire(), Vec::new(), BufList::default());
}

fn shard_reply(cx: &mut Cx<'_>, m: &ShardRead, result: i32, attrs: Vec<(BString, Bytes)>, data: BufList) {
    let (pgid, epoch, osd, tid) = (m.pgid, cx.sh.map.epoch, cx.sh.whoami, m.tid);
    cx.send(Peer::Osd(m.osd), 0, ShardReadReply { pgid, epoch, osd, tid, result, attrs, data }, Durable::Now);
}
