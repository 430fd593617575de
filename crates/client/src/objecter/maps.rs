//! Following the OSD map.

use super::ops::OpReply;
use super::target::is_paused;
use super::{Link, Objecter, ObjecterEvent};
use std::sync::Arc;
use types::map::{OsdMap, OsdMapIncremental};
use types::msg::MOsdMap;
use types::{Epoch, Errno};

impl Objecter {
    /// Applies what leads on from our map: incrementals one by one, or a newer full map where they do not reach.
    pub(super) fn take_maps(&mut self, link: &mut Link<'_>, m: &MOsdMap) {
        let before = self.map.as_ref().map(|map| map.epoch);
        while let Some(next) = self.next_map(m) {
            let skips = self.map.as_ref().is_some_and(|have| have.epoch.next() != next.epoch);
            self.map = Some(Arc::new(next));
            // Every epoch counts: an interval may begin and end within one message.
            self.retarget(skips);
        }
        let now = self.map.as_ref().map(|map| map.epoch);
        let Some(epoch) = now.filter(|_| now != before) else {
            // Nothing of it could be used, yet it is newer. An incremental that does not lead to the map its checksum
            // tells of calls for a full map, a gap for what lies in it.
            if now.is_none_or(|have| m.newest > have) {
                let next = now.map_or(Epoch(0), Epoch::next);
                let start = if m.incremental.contains_key(&next) { 0 } else { next.0.into() };
                link.mon.subscribe(link.now, link.ep, "osdmap", start, true);
            }
            return;
        };
        self.say(ObjecterEvent::Map { epoch });
        self.close_dead_sessions(link);
        self.advance_all(link);
        self.register_lingers(link);
        self.questions_by_map(link);
        if m.newest > epoch {
            self.want_next_map(link);
        }
    }

    /// The map that follows ours, from this message.
    fn next_map(&self, m: &MOsdMap) -> Option<OsdMap> {
        let newest_full = || {
            let have = self.map.as_ref().map_or(Epoch(0), |map| map.epoch);
            m.full.iter().rev().find(|(epoch, _)| **epoch > have).and_then(|(_, bytes)| full_map(bytes))
        };
        let Some(have) = &self.map else { return newest_full() };
        let next = have.epoch.next();
        if let Some(bytes) = m.incremental.get(&next) {
            match denc::from_slice::<OsdMapIncremental>(bytes) {
                Ok(inc) => {
                    let mut map = OsdMap::clone(have);
                    match map.apply_incremental(&inc) {
                        Ok(()) => return Some(map),
                        Err(why) => tracing::warn!("osdmap {next}: {why}"),
                    }
                }
                Err(why) => tracing::warn!("osdmap incremental {next}: {why}"),
            }
        }
        m.full.get(&next).and_then(full_map).or_else(newest_full)
    }

    /// Marks what the new map sends elsewhere, and what may have been dropped where it went: by an OSD that knew before us that
    /// the request was to be held back, and, if there were maps in between that we have not seen, by anybody.
    /// Upstream: Objecter::handle_osd_map, _scan_requests.
    fn retarget(&mut self, skips: bool) {
        let Some(map) = self.map.clone() else { return };
        self.placed.clear();
        for op in self.ops.values_mut() {
            let target = super::target::target_of(&map, &op.req, &mut self.placed);
            let paused = is_paused(&map, &op.req);
            if op.target != target || skips || op.halted && !paused {
                op.sent = false;
            }
            op.halted = op.sent && paused;
            op.target = target;
        }
        self.retarget_lingers(&map, skips);
    }

    /// Sends everything that can be sent and was not.
    pub(super) fn advance_all(&mut self, link: &mut Link<'_>) {
        let waiting: Vec<u64> = self.ops.iter().filter(|(_, op)| !op.sent).map(|(tid, _)| *tid).collect();
        for tid in waiting {
            self.advance(link, tid);
        }
    }

    /// Asks the monitors for the map after ours, when there is one.
    pub(super) fn want_next_map(&mut self, link: &mut Link<'_>) {
        let start = self.map.as_ref().map_or(0, |map| map.epoch.next().0.into());
        link.mon.subscribe(link.now, link.ep, "osdmap", start, true);
    }

    /// The pool is not in our map: it may be in a newer one, or never have been.
    pub(super) fn ask_whether_pool_exists(&mut self, link: &mut Link<'_>, tid: u64) {
        if self.versions.values().any(|waiting| *waiting == tid) {
            return;
        }
        let handle = link.mon.get_version(link.now, link.ep, "osdmap");
        self.versions.insert(handle, tid);
    }

    pub(super) fn take_version(&mut self, link: &mut Link<'_>, handle: u64, version: u64) {
        let Some(tid) = self.versions.remove(&handle) else { return };
        let have = self.map.as_ref().map_or(0, |map| map.epoch.0.into());
        if self.ops.contains_key(&tid) {
            if version <= have {
                return self.pool_is_gone(link, tid);
            }
            self.want_next_map(link);
        } else {
            self.question_version(link, tid, version);
        }
    }

    fn pool_is_gone(&mut self, link: &mut Link<'_>, tid: u64) {
        let Some(map) = self.map.clone() else { return };
        match self.ops.get(&tid) {
            Some(op) if map.pool_by_id(op.req.pool).is_none() => self.finish_op(tid, OpReply::failed(Errno::ENOENT)),
            _ => self.advance(link, tid),
        }
    }
}

fn full_map(bytes: &bytes::Bytes) -> Option<OsdMap> {
    denc::from_slice(bytes).inspect_err(|why| tracing::warn!("osdmap: {why}")).ok()
}
