//! The map of OSDs: its history, and the step being prepared.
//!
//! Upstream: src/mon/OSDMonitor.cc.

use super::fences::Fences;
use super::{prime, upmaps};
use crate::txn::{self, StateError, Txn, state_key};
use bytes::Bytes;
use crush::CrushMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::Kv;
use types::map::{OsdMap, OsdMapIncremental, OsdXInfo, PgPool};
use types::{EntityAddr, Epoch, Mono, Now, OsdId, PgId, PoolId, Utime, features};

const NAME: &str = "osdmap";

/// Epochs that are dropped at a time, at least (`paxos_service_trim_min`); half of those that are kept, if these are fewer.
const TRIM_MIN: u32 = 250;

/// Steps and full maps kept in memory: an epoch is told to subscribers while it may not be in the kv yet.
const RECENT_STEPS: usize = 512;
const RECENT_FULLS: usize = 8;

/// The newest map and the changes that will make the next.
pub struct OsdMapService {
    pub map: Arc<OsdMap>,
    /// The oldest epoch kept.
    pub first: Epoch,
    /// What `ceph osd metadata` shows.
    pub metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
    fences: Fences,
    pending: OsdMapIncremental,
    /// PGs whose acting set in the next epoch is what an OSD asked for.
    asked: BTreeSet<PgId>,
    dirty: bool,
    fulls: VecDeque<(Epoch, Bytes)>,
    steps: VecDeque<(Epoch, Bytes)>,
}

/// Which epochs are not to be dropped.
#[derive(Debug, Clone, Copy)]
pub struct Trim {
    /// From this one on.
    pub needed: Epoch,
    /// So many of the newest (`mon_min_osdmap_epochs`).
    pub kept: u32,
}

/// How an epoch is published.
#[derive(Debug, Clone, Copy)]
pub struct Publishing {
    pub trim: Trim,
    /// Who has data that is to move goes on acting in the same epoch (`mon_osd_prime_pg_temp`).
    pub primes: bool,
}

impl OsdMapService {
    pub fn load(kv: &impl Kv) -> Result<Self, StateError> {
        let last: Epoch = txn::get(kv, NAME, "last")?.ok_or(StateError::Missing("osdmap"))?;
        let first = txn::get(kv, NAME, "first")?.unwrap_or(last);
        let map: OsdMap = txn::get(kv, NAME, key("full", last))?.ok_or(StateError::Missing("the newest osdmap"))?;
        let metadata = txn::get(kv, NAME, "metadata")?.unwrap_or_default();
        Ok(OsdMapService { fences: Fences::load(kv)?, ..Self::with_map(Arc::new(map), first, metadata) })
    }

    /// Publishes epoch 1.
    pub fn create(mut map: OsdMap, txn: &mut Txn) -> Self {
        map.epoch = Epoch(1);
        let full = map.publish();
        let inc = OsdMapIncremental { fullmap: Some(full.clone()), ..OsdMapIncremental::new(map.fsid, map.epoch, map.modified) };
        let mut service = Self::with_map(Arc::new(map), Epoch(1), BTreeMap::new());
        service.keep(full, denc::to_bytes(&inc, features::SUPPORTED), txn);
        txn.put_encoded(NAME, "first", &service.first);
        service
    }

    fn with_map(map: Arc<OsdMap>, first: Epoch, metadata: BTreeMap<OsdId, BTreeMap<String, String>>) -> Self {
        let pending = OsdMapIncremental::new(map.fsid, map.epoch.next(), map.modified);
        OsdMapService { map, first, metadata, fences: Fences::default(), pending, asked: BTreeSet::new(), dirty: false, fulls: VecDeque::new(), steps: VecDeque::new() }
    }

    /// The step to the next epoch, to add changes to.
    pub fn change(&mut self) -> &mut OsdMapIncremental {
        self.dirty = true;
        &mut self.pending
    }

    /// The step as it stands.
    pub fn pending(&self) -> &OsdMapIncremental {
        &self.pending
    }

    /// True if there are changes to publish.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Gives a PG the acting set that an OSD of it asks for, in the next epoch; CRUSH's if it is empty.
    pub fn set_acting(&mut self, pg: PgId, osds: Vec<OsdId>) {
        self.change().new_pg_temp.insert(pg, osds);
        self.asked.insert(pg);
    }

    /// The pool as the next epoch will have it, to be changed.
    pub fn change_pool(&mut self, id: PoolId) -> Option<&mut PgPool> {
        let current = self.map.pools.get(&id)?.clone();
        let epoch = self.pending.epoch;
        self.dirty = true;
        let pool = self.pending.new_pools.entry(id).or_insert(current);
        pool.last_change = epoch;
        Some(pool)
    }

    /// A pool as it will be, if it changes in the next epoch.
    pub fn pending_pool(&self, id: PoolId) -> Option<&PgPool> {
        self.pending.new_pools.get(&id)
    }

    /// Replaces the CRUSH map in the next epoch.
    pub fn set_crush(&mut self, crush: &CrushMap) {
        self.change().crush = Some(denc::to_bytes(crush, features::SUPPORTED));
    }

    /// Blocklists an address in the next epoch; the map will say until when, by the wall clock.
    pub fn blocklist(&mut self, now: Now, addr: EntityAddr, lasts: Duration, txn: &mut Txn) -> Utime {
        let until = Utime::from_duration(now.wall.to_duration() + lasts);
        let change = self.change();
        change.new_blocklist.insert(addr, until);
        // Removals come after additions when a step is applied.
        change.old_blocklist.retain(|a| *a != addr);
        self.fences.set(now.mono, addr, lasts, txn);
        until
    }

    /// The blocklist of the next epoch.
    pub fn blocklisted(&self) -> BTreeSet<EntityAddr> {
        let all = self.map.blocklist.keys().chain(self.pending.new_blocklist.keys());
        all.filter(|addr| !self.pending.old_blocklist.contains(addr)).copied().collect()
    }

    /// Takes an address off the blocklist in the next epoch.
    pub fn unblocklist(&mut self, addr: EntityAddr) {
        let change = self.change();
        change.new_blocklist.remove(&addr);
        change.old_blocklist.push(addr);
    }

    /// Takes those off the blocklist whose time is over.
    pub fn expire_blocklist(&mut self, now: Mono, otherwise: Duration, txn: &mut Txn) {
        let by_map = |until: &Utime| until.to_duration().saturating_sub(self.map.modified.to_duration());
        let lasts = |addr: &EntityAddr| self.map.blocklist.get(addr).map_or(Duration::ZERO, by_map).max(otherwise);
        let there_are = self.blocklisted().into_iter().map(|addr| (addr, lasts(&addr))).collect();
        let over = self.fences.over(now, &there_are, txn);
        over.into_iter().for_each(|addr| self.unblocklist(addr));
    }

    /// What else is known of an OSD, as the next epoch will have it.
    pub fn pending_xinfo(&self, osd: OsdId) -> OsdXInfo {
        self.pending.new_xinfo.get(&osd).or_else(|| self.map.xinfo(osd)).cloned().unwrap_or_default()
    }

    /// The flags of an OSD as the next epoch will have them.
    pub fn pending_state(&self, osd: OsdId) -> u32 {
        self.map.state(osd) ^ self.pending.new_state.get(&osd).copied().unwrap_or(0)
    }

    /// Turns flags of an OSD on and off in the next epoch.
    pub fn change_state(&mut self, osd: OsdId, set: u32, clear: u32) {
        let old = self.map.state(osd);
        let wanted = (self.pending_state(osd) | set) & !clear;
        if old == wanted {
            self.pending.new_state.remove(&osd);
        } else {
            self.change().new_state.insert(osd, old ^ wanted);
        }
    }

    /// Remembers what an OSD says of itself; `None` forgets it.
    pub fn set_metadata(&mut self, osd: OsdId, metadata: Option<BTreeMap<String, String>>, txn: &mut Txn) {
        if self.metadata.get(&osd) == metadata.as_ref() {
            return;
        }
        match metadata {
            Some(metadata) => self.metadata.insert(osd, metadata),
            None => self.metadata.remove(&osd),
        };
        txn.put_encoded(NAME, "metadata", &self.metadata);
    }

    /// Publishes the changes as the next epoch, and drops old ones. Panics if the changes do not fit the map: that is a mistake
    /// of ours.
    pub fn publish(&mut self, now: Now, how: Publishing, txn: &mut Txn) {
        if !self.dirty {
            return;
        }
        let mut inc = std::mem::take(&mut self.pending);
        inc.modified = now.wall;
        let ups = !inc.new_up_client.is_empty();
        let state_flips = inc.new_state.values().any(|s| s & OsdMap::STATE_UP != 0);
        if ups || state_flips {
            inc.new_last_up_change = now.wall;
        }
        let fallen = |(osd, flip): (&OsdId, &u32)| (flip & OsdMap::STATE_UP != 0 && self.map.is_up(*osd)).then_some(*osd);
        for osd in inc.new_state.iter().filter_map(fallen) {
            let known = || self.map.xinfo(osd).cloned().unwrap_or_default();
            inc.new_xinfo.entry(osd).or_insert_with(known).down_stamp = now.wall;
        }
        let turned = |(osd, w): (&OsdId, &u32)| (self.map.weight(*osd) == 0) != (*w == 0);
        if inc.new_weight.iter().any(turned) {
            inc.new_last_in_change = now.wall;
        }
        let apply = |inc: &OsdMapIncremental| {
            let mut next = OsdMap::clone(&self.map);
            next.apply_unchecked(inc).expect("a step of ours fits our map");
            next
        };
        let mut next = apply(&inc);
        if upmaps::may_matter(&inc) && upmaps::clean(&self.map, &next, &mut inc) {
            next = apply(&inc);
        }
        let mut serve_on = std::mem::take(&mut self.asked);
        if how.primes && prime::may_matter(&inc) {
            let kept = prime::keep_acting(&self.map, &next, &mut inc);
            if !kept.is_empty() {
                next = apply(&inc);
            }
            // They acted before, too: what is said of their primaries adds nobody to whom it matters who was there. Where others die it may.
            let any_falls = inc.new_state.iter().any(|(osd, flip)| fallen((osd, flip)).is_some());
            serve_on.extend(kept.into_iter().filter(|_| !any_falls));
        }
        if note_alive(&serve_on, &next, &mut inc) {
            next = apply(&inc);
        }
        let (full, step) = inc.publish(&mut next);
        self.map = Arc::new(next);
        self.keep(full, step, txn);
        self.pending = OsdMapIncremental::new(self.map.fsid, self.map.epoch.next(), now.wall);
        self.dirty = false;
        self.trim(how.trim, txn);
    }

    /// The full map of an epoch made lately.
    pub fn recent_full(&self, epoch: Epoch) -> Option<Bytes> {
        find(&self.fulls, epoch)
    }

    /// The step to an epoch made lately.
    pub fn recent_inc(&self, epoch: Epoch) -> Option<Bytes> {
        find(&self.steps, epoch)
    }

    fn keep(&mut self, full: Bytes, step: Bytes, txn: &mut Txn) {
        let epoch = self.map.epoch;
        txn.put(NAME, key("full", epoch), full.clone());
        txn.put(NAME, key("inc", epoch), step.clone());
        txn.put_encoded(NAME, "last", &epoch);
        self.fulls.push_back((epoch, full));
        self.steps.push_back((epoch, step));
        if self.fulls.len() > RECENT_FULLS {
            self.fulls.pop_front();
        }
        if self.steps.len() > RECENT_STEPS {
            self.steps.pop_front();
        }
    }

    fn trim(&mut self, trim: Trim, txn: &mut Txn) {
        let keep_from = trim.needed.min(Epoch(self.map.epoch.0.saturating_sub(trim.kept)));
        if keep_from.0 < self.first.0 + TRIM_MIN.min(trim.kept / 2).max(1) {
            return;
        }
        for kind in ["full", "inc"] {
            txn.delete_range(NAME, key(kind, self.first), key(kind, keep_from));
        }
        self.first = keep_from;
        txn.put_encoded(NAME, "first", &self.first);
    }
}

/// Puts an epoch back that OSDs kept.
pub(crate) fn restore(epoch: Epoch, full: &Bytes, step: Option<&Bytes>, txn: &mut Txn) {
    txn.put(NAME, key("full", epoch), full.clone());
    if let Some(step) = step {
        txn.put(NAME, key("inc", epoch), step.clone());
    }
}

/// Says which epochs there are.
pub(crate) fn restore_range(first: Epoch, last: Epoch, txn: &mut Txn) {
    txn.put_encoded(NAME, "first", &first);
    txn.put_encoded(NAME, "last", &last);
}

/// Whoever is to act because one of the PG's OSDs asked for it is alive as the next epoch begins: with that said in it, the PG need not wait for one
/// more. True if it was not said before. It is too much if the primary dies at this moment: then the interval counts, though nothing was written in it.
fn note_alive(asked: &BTreeSet<PgId>, next: &OsdMap, inc: &mut OsdMapIncremental) -> bool {
    let primaries = asked.iter().filter(|pg| next.pools.contains_key(&pg.pool)).map(|pg| next.pg_to_up_acting(*pg).acting_primary);
    let unseen = |osd: &OsdId| next.is_up(*osd) && next.info(*osd).is_some_and(|info| info.up_thru < next.epoch);
    let alive: BTreeSet<OsdId> = primaries.filter(unseen).collect();
    inc.new_up_thru.extend(alive.iter().map(|osd| (*osd, next.epoch)));
    !alive.is_empty()
}

fn find(recent: &VecDeque<(Epoch, Bytes)>, epoch: Epoch) -> Option<Bytes> {
    recent.iter().rev().find(|(e, _)| *e == epoch).map(|(_, raw)| raw.clone())
}

/// The kv key of a full map.
pub fn full_key(epoch: Epoch) -> Vec<u8> {
    state_key(NAME, key("full", epoch))
}

/// The kv key of an incremental.
pub fn inc_key(epoch: Epoch) -> Vec<u8> {
    state_key(NAME, key("inc", epoch))
}

fn key(kind: &str, epoch: Epoch) -> Vec<u8> {
    [kind.as_bytes(), b"/", &epoch.0.to_be_bytes()].concat()
}

/// The full map of an epoch, read from `kv`.
pub fn read_full(kv: &impl Kv, epoch: Epoch) -> Result<Option<Bytes>, StateError> {
    Ok(kv.get(&full_key(epoch))?)
}

/// The step to an epoch, read from `kv`.
pub fn read_inc(kv: &impl Kv, epoch: Epoch) -> Result<Option<Bytes>, StateError> {
    Ok(kv.get(&inc_key(epoch))?)
}
