//! PGs that are to be merged: the monitors are told when both of a pair are ready, or that they will not be soon.
//!
//! Room: osd core.   Owns: `Merging`.   Hears: that a PG is clean, time, sessions with monitors.
//! Holds: "ready" is said only while both PGs are clean here, with the same copies, each of which has everything on stable
//! storage. From then on neither changes until the pool does, and what is said is void as soon as the pool has changed: the
//! versions told are those in which the PGs end.
//! Why patience: what was on its way when the PGs stopped taking operations is recovered in a moment, and then they are clean; but
//! clients must not wait for a copy that is being filled.
//! Upstream: OSDService::set_ready_to_merge_source, set_ready_to_merge_target, set_not_ready_to_merge_source.

use crate::disk::Disk;
use crate::effects::{Cx, Durable, Effect, Peer};
use crate::osd::Osd;
use std::collections::BTreeMap;
use std::time::Duration;
use types::map::PgPool;
use types::msg::internal::PgReadyToMerge;
use types::{Epoch, Mono, Now, PgId, PoolId};

/// How long operations may wait for PGs to become clean.
const PATIENCE: Duration = Duration::from_secs(5);
/// Until the monitors are told again.
const AGAIN: Duration = Duration::from_secs(2);

/// What is under way, by pool.
pub(crate) type Merging = BTreeMap<PoolId, Pair>;

/// A pair of PGs at least one of which is ours.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The pool as it last changed, since when we know it, and when the monitors were told last.
    pool_changed: Epoch,
    began: Mono,
    told: Option<Mono>,
}

impl Osd {
    /// A session with a monitor is open: what the last one was told may be lost.
    pub(crate) fn tell_merges_again(&mut self) {
        self.merging.values_mut().for_each(|pair| pair.told = None);
    }

    /// Tells the monitors of pairs that are ready, or that keep clients waiting.
    pub(crate) fn tell_merges(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        let map = self.sh.map.clone();
        let merging = map.pools.iter().filter_map(|(id, pool)| Some((*id, pool, pool.merging()?)));
        let pairs: Vec<(PoolId, &PgPool, (u32, u32))> = if self.sh.booted { merging.collect() } else { Vec::new() };
        self.merging.retain(|id, _| pairs.iter().any(|(pool, ..)| pool == id));
        for (id, pool, (source, target)) in pairs {
            self.tell_merge(now, disk, pool, PgId { pool: id, seed: source }, PgId { pool: id, seed: target }, fx);
        }
    }

    fn tell_merge(&mut self, now: Now, disk: &mut dyn Disk, pool: &PgPool, source: PgId, target: PgId, fx: &mut Vec<Effect>) {
        let me = self.sh.whoami;
        let ours = |id: &PgId| self.pgs.get(id).filter(|pg| pg.is_primary(me));
        let (s, t) = (ours(&source), ours(&target));
        if s.is_none() && t.is_none() {
            self.merging.remove(&source.pool);
            return;
        }
        let fresh = || Pair { pool_changed: pool.last_change, began: now.mono, told: None };
        let pair = self.merging.entry(source.pool).or_insert_with(fresh);
        if pair.pool_changed != pool.last_change {
            *pair = fresh();
        }
        let ready = match (s, t) {
            (Some(s), Some(t)) if s.is_ready_to_merge(me) && t.is_ready_to_merge(me) && s.walk.mapping.acting == t.walk.mapping.acting => Some((s, t)),
            _ => None,
        };
        let due = pair.told.is_none_or(|at| now.mono - at >= AGAIN);
        if !due || ready.is_none() && now.mono - pair.began < PATIENCE {
            return;
        }
        pair.told = Some(now.mono);
        let mut msg = PgReadyToMerge {
            osd: me,
            epoch: self.sh.map.epoch,
            source,
            pool_changed: pool.last_change,
            ready: ready.is_some(),
            source_version: Default::default(),
            target_version: Default::default(),
            last_epoch_started: Epoch(0),
            last_epoch_clean: Epoch(0),
            acting: Vec::new(),
        };
        if let Some((s, t)) = ready {
            (msg.source_version, msg.target_version) = (s.log.head(), t.log.head());
            (msg.last_epoch_started, msg.last_epoch_clean) = (t.history.last_epoch_started, t.history.last_epoch_clean);
            msg.acting = s.walk.mapping.acting.clone();
        }
        tracing::debug!(osd = %me, %source, %target, ready = msg.ready, source_version = %msg.source_version, target_version = %msg.target_version, "merge");
        Cx { now, disk, sh: &mut self.sh, fx }.send(Peer::Mon, 0, msg, Durable::Now);
    }
}
