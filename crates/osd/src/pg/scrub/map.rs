//! Describing the copies of a range of objects: what a scrub compares.
//!
//! Room: osd core.   Owns: `Build`, one per PG at a time, on primary and replicas alike.   Hears: reads.
//! Holds: nobody changes the range meanwhile, its primary sees to that. Between two reads there is nothing to do, so that
//! clients' requests come in between; metadata is read a page at a time, and an empty read is what lies between pages.

use super::super::{Pg, Stage};
use crate::effects::{Cx, Durable, ReadFor, ReadResult, ReadRoute};
use crate::object::{SHARD_ATTR, undo};
use bytes::Bytes;
use denc::BString;
use qos::Class;
use std::collections::VecDeque;
use std::ops::Bound;
use store::{ReadFlags, ReadId, Trust};
use types::msg::internal_osd::{PgBody, Round, ScrubObject};
use types::{Errno, HObject, OsdId};

/// Omap pairs looked at in a turn.
const PAIRS: usize = 512;

/// A range that is being described.
#[derive(Debug)]
pub(in crate::pg) struct Build {
    /// Who wants to know.
    to: OsdId,
    round: Round,
    pub scrub: u64,
    deep: bool,
    /// What need not be read again.
    trust: Option<Trust>,
    todo: VecDeque<HObject>,
    current: Option<Current>,
    done: Vec<ScrubObject>,
}

/// The object that is being read.
#[derive(Debug)]
struct Current {
    object: ScrubObject,
    off: u64,
    crc: u32,
    omap_crc: u32,
    /// The omap key the next page goes on behind; its header comes first.
    after: Option<BString>,
    /// The read under way.
    reading: Option<ReadId>,
}

impl Pg {
    /// The primary of a scrub, we perhaps, wants to know what we have in a range.
    pub(in crate::pg) fn start_build(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round, chunk: Chunk) {
        if !matches!(self.stage, Stage::Active | Stage::Follower { active: true }) {
            return;
        }
        if self.scrubs.build.as_ref().is_some_and(|b| b.scrub == chunk.scrub && b.round == round) {
            // It asks again; the answer is on its way.
            return;
        }
        let Ok((objects, _)) = cx.disk.list(self.coll, &chunk.begin, &chunk.end, usize::MAX) else { return };
        let (todo, done) = (objects.into_iter().filter(|object| !undo::is(object)).collect(), Vec::new());
        let trust = (chunk.trust_s > 0).then_some(Trust { now: cx.now.mono, age_s: chunk.trust_s });
        self.scrubs.build = Some(Build { to, round, scrub: chunk.scrub, deep: chunk.deep, trust, todo, current: None, done });
        self.go_on_building(cx);
    }

    /// A read of ours has ended.
    pub(in crate::pg) fn build_read(&mut self, cx: &mut Cx<'_>, id: ReadId, result: ReadResult) {
        let Some(current) = self.scrubs.build.as_mut().and_then(|b| b.current.as_mut()) else { return };
        if current.reading.take_if(|reading| *reading == id).is_none() {
            return;
        }
        match result {
            Ok(read) => {
                let len = read.extents.iter().map(|(_, len)| len).sum();
                current.crc = denc::crc32c_concat(current.crc, read.digest.crc, len);
                current.off += len;
                cx.sh.perf.scrub_read(read.digest.read, read.digest.trusted);
                if len == 0 && current.off < current.object.size {
                    // It ends before its size says.
                    current.object.errors |= ScrubObject::READ_ERROR;
                }
            }
            Err(_) => current.object.errors |= ScrubObject::READ_ERROR,
        }
        self.go_on_building(cx);
    }

    fn go_on_building(&mut self, cx: &mut Cx<'_>) {
        let (coll, is_coded) = (self.coll, self.is_coded());
        loop {
            let Some(build) = self.scrubs.build.as_mut() else { return };
            let Some(current) = build.current.as_mut() else {
                let Some(name) = build.todo.pop_front() else { return self.end_build(cx) };
                let shard = self.own_shards.of(name.hash);
                match describe(cx, coll, name, shard) {
                    None => {}
                    Some(object) if build.deep => build.current = Some(Current::new(object)),
                    Some(object) => build.done.push(object),
                }
                continue;
            };
            if current.reading.is_some() {
                return;
            }
            let bad = current.object.errors != 0;
            if !bad && current.off < current.object.size {
                let (off, name, trust) = (current.off, current.object.object.clone(), build.trust);
                let id = self.scrub_read(cx, &name, off, cx.sh.scrub.stride, trust);
                self.note_reading(id);
                return;
            }
            match if bad { Ok(true) } else { current.add_omap(cx, coll) } {
                Ok(false) => {
                    let (off, name) = (current.off, current.object.object.clone());
                    let id = self.scrub_read(cx, &name, off, 0, None);
                    return self.note_reading(id);
                }
                Ok(true) => {}
                Err(_) => current.object.errors |= ScrubObject::READ_ERROR,
            }
            let current = build.current.take();
            build.done.extend(current.map(|current| current.finish(!is_coded)));
        }
    }

    fn note_reading(&mut self, id: ReadId) {
        if let Some(current) = self.scrubs.build.as_mut().and_then(|b| b.current.as_mut()) {
            current.reading = Some(id);
        }
    }

    /// Reads from the device, whatever is cached: the medium is what is judged.
    pub(super) fn scrub_read(&self, cx: &mut Cx<'_>, name: &HObject, off: u64, len: u64, trust: Option<Trust>) -> ReadId {
        let route = ReadRoute { pgid: self.id, interval: self.walk.since, what: ReadFor::Scrub };
        let flags = ReadFlags { nocache: true, bypass: true, digest: true, trust, class: Class::BestEffort, ..ReadFlags::default() };
        cx.read(self.coll, name, off, len, flags, route)
    }

    fn end_build(&mut self, cx: &mut Cx<'_>) {
        let Some(build) = self.scrubs.build.take() else { return };
        if build.to == cx.sh.whoami {
            return self.handle_scrub_map(cx, build.to, build.scrub, build.done);
        }
        let body = PgBody::ScrubMap { scrub: build.scrub, objects: build.done };
        cx.send_pg(build.to, self.id, build.round, body, Durable::Now);
    }
}

/// A part of a PG, as one attempt to compare it names it.
#[derive(Debug, Clone)]
pub(in crate::pg) struct Chunk {
    pub scrub: u64,
    pub begin: HObject,
    pub end: HObject,
    pub deep: bool,
    /// What a copy's OSD has read and found right in so many seconds it need not read again.
    pub trust_s: u32,
}

impl Current {
    fn new(object: ScrubObject) -> Self {
        Current { object, off: 0, crc: 0, omap_crc: 0, after: None, reading: None }
    }

    /// Looks at the next page of the omap. True if nothing is left.
    fn add_omap(&mut self, cx: &mut Cx<'_>, coll: types::ShardPgId) -> Result<bool, Errno> {
        let name = &self.object.object;
        let from = match &self.after {
            None => {
                let header = cx.disk.omap_get_header(coll, name)?;
                self.omap_crc = denc::crc32c_append(self.omap_crc, &header);
                Bound::Unbounded
            }
            Some(after) => Bound::Excluded(after.as_slice()),
        };
        let page = cx.disk.omap_list(coll, name, from, PAIRS)?;
        for pair in &page {
            self.omap_crc = denc::crc32c_append(self.omap_crc, &denc::to_bytes(pair, 0));
        }
        let done = page.len() < PAIRS;
        self.after = page.into_iter().next_back().map(|(key, _)| key).or(self.after.take());
        Ok(done)
    }

    /// `comparable`: other copies have the same data.
    fn finish(mut self, comparable: bool) -> ScrubObject {
        if self.object.errors == 0 {
            // Upstream begins with all ones and does not turn the bits over at the end.
            self.object.data_digest = comparable.then_some(!self.crc);
            self.object.omap_digest = Some(!self.omap_crc);
        }
        self.object
    }
}

/// What can be told of an object without reading it; `None` if it is not there. What belongs to another shard than the copy's is an
/// error.
fn describe(cx: &mut Cx<'_>, coll: types::ShardPgId, object: HObject, shard: Option<u8>) -> Option<ScrubObject> {
    let mut out = ScrubObject { object, ..ScrubObject::default() };
    match cx.disk.stat(coll, &out.object) {
        Ok(stat) => out.size = stat.size,
        Err(Errno::ENOENT) => return None,
        Err(_) => out.errors |= ScrubObject::STAT_ERROR,
    }
    match cx.disk.getattrs(coll, &out.object) {
        // In memory of their own: pieces would keep whole database blocks alive.
        Ok(mut attrs) => {
            let tag = attrs.remove(&BString::from(SHARD_ATTR));
            if shard.is_some_and(|shard| tag.is_none_or(|tag| tag[..] != [shard])) {
                out.errors |= ScrubObject::STAT_ERROR;
            }
            out.attrs = attrs.into_iter().map(|(k, v)| (k, Bytes::copy_from_slice(&v))).collect()
        }
        Err(_) => out.errors |= ScrubObject::STAT_ERROR,
    }
    Some(out)
}
