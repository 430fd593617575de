//! A PG's figures, as its primary reports them.

use super::peering::Step;
use super::{Pg, Stage};
use types::map::OsdMap;
use types::pg::{ObjectStatCollection, ObjectStatSum, PgShard, PgStat, PgState};
use types::{Epoch, Now, OsdId, ShardPgId, Utime};

/// Counts and moments that are kept in memory only.
#[derive(Debug, Clone, Default)]
pub(crate) struct PgFigures {
    /// Reads and writes so far.
    pub sums: ObjectStatSum,
    reported: u64,
    state: PgState,
    last_change: Utime,
    last_active: Utime,
    last_clean: Utime,
    last_peered: Utime,
    last_fullsized: Utime,
    last_undegraded: Utime,
    pub became_active: Utime,
    /// When the interval began.
    pub interval_began: Utime,
    mapping_epoch: Epoch,
}

impl PgFigures {
    pub fn note_interval(&mut self, now: Now, since: Epoch) {
        self.mapping_epoch = since;
        (self.last_change, self.interval_began) = (now.wall, now.wall);
    }

    pub fn note_active(&mut self, now: Now) {
        self.became_active = now.wall;
    }

    fn note_state(&mut self, now: Utime, state: PgState) {
        if self.state != state {
            (self.state, self.last_change) = (state, now);
        }
        let marks = [
            (state.has(PgState::ACTIVE), &mut self.last_active),
            (state.has(PgState::CLEAN), &mut self.last_clean),
            (state.has(PgState::ACTIVE) || state.has(PgState::PEERED), &mut self.last_peered),
            (!state.has(PgState::UNDERSIZED), &mut self.last_fullsized),
            (!state.has(PgState::DEGRADED), &mut self.last_undegraded),
        ];
        for (holds, moment) in marks {
            if holds {
                *moment = now;
            }
        }
    }
}

impl Pg {
    /// The PG's state under upstream's names.
    pub fn state(&self) -> PgState {
        let m = &self.walk.mapping;
        let mut state = match &self.stage {
            Stage::Active if self.is_clean() => PgState::ACTIVE | PgState::CLEAN,
            Stage::Active if self.recovery.done => PgState::ACTIVE,
            Stage::Active => PgState::ACTIVE | self.recovery_state(),
            Stage::Peering(p) => match &p.step {
                Step::Down { .. } => PgState::DOWN,
                Step::Incomplete => PgState::INCOMPLETE,
                Step::Activating { .. } => PgState::ACTIVATING,
                Step::WaitUnread { .. } => PgState::PEERING | PgState::WAIT,
                _ => PgState::PEERING,
            },
            Stage::Removing if self.anew.is_some() => PgState::CREATING,
            Stage::Follower { .. } | Stage::Removing => PgState::UNKNOWN,
        };
        if matches!(self.stage, Stage::Active) && !self.serves() {
            state = PgState(state.0 & !PgState::ACTIVE.0) | PgState::PEERED;
        }
        if matches!(self.stage, Stage::Active) && m.premerge {
            state = PgState(state.0 & !PgState::ACTIVE.0) | PgState::PEERED | PgState::PREMERGE;
        }
        if state != PgState::UNKNOWN && m.acting.len() < usize::from(m.size) {
            state |= PgState::UNDERSIZED;
        }
        if matches!(self.stage, Stage::Active) && self.lacks_objects() || state.has(PgState::UNDERSIZED) && self.totals.objects > 0 {
            state |= PgState::DEGRADED;
        }
        if m.up != m.acting {
            state |= PgState::REMAPPED;
        }
        if self.laggy {
            state |= PgState::LAGGY;
        }
        if matches!(self.stage, Stage::Active | Stage::Peering(_)) {
            state |= self.scrub_state() | self.forced_state() | self.trim_state();
        }
        state
    }

    /// The newest epoch up to `now` in which the PG is known to have been clean.
    pub fn last_epoch_clean(&self, now: Epoch) -> Epoch {
        if self.state().has(PgState::CLEAN) { now } else { self.history.last_epoch_clean }
    }

    /// What becomes of objects that acting copies lack.
    fn recovery_state(&self) -> PgState {
        let r = &self.recovery;
        if r.waits_for_space() {
            return if r.is_backfill() { PgState::BACKFILL_TOOFULL } else { PgState::RECOVERY_TOOFULL };
        }
        match (r.is_stuck(), r.in_flight() > 0 || self.slots.are_held(), r.is_backfill()) {
            (true, _, true) => PgState::BACKFILL_UNFOUND,
            (true, _, false) => PgState::RECOVERY_UNFOUND,
            (_, true, true) => PgState::BACKFILLING,
            (_, true, false) => PgState::RECOVERING,
            (_, false, true) => PgState::BACKFILL_WAIT,
            (_, false, false) => PgState::RECOVERY_WAIT,
        }
    }

    /// Copies of objects that are not there, and copies that are not where CRUSH wants them. What a copy under backfill
    /// lacks is misplaced as long as another one outside the up set acts in its stead, and degraded if none does.
    fn troubles(&self) -> (i64, i64) {
        let (m, r, objects) = (&self.walk.mapping, &self.recovery, self.totals.objects);
        let lacking = |osd: &OsdId| match (*osd == m.primary, r.backfills.get(osd)) {
            (true, _) => self.missing.len() as i64,
            (false, Some(b)) => r.lacks(*osd) as i64 + if b.cursor.max { 0 } else { (objects - b.objects).max(0) },
            (false, None) => r.lacks(*osd) as i64,
        };
        let by_log: i64 = m.acting.iter().map(lacking).sum();
        let mut filled: Vec<i64> = match &self.stage {
            Stage::Active => m.up.iter().filter(|o| !m.acting.contains(o)).map(lacking).collect(),
            _ => m.up.iter().filter(|o| !m.acting.contains(o)).map(|_| objects).collect(),
        };
        filled.resize(filled.len() + usize::from(m.size).saturating_sub(m.up.len()), objects);
        // Those outside the up set stand in for the emptiest.
        filled.sort_unstable_by_key(|n| std::cmp::Reverse(*n));
        let standing_in = m.acting.iter().filter(|o| !m.up.contains(o)).count().min(filled.len());
        let (stood_in, alone) = filled.split_at(standing_in);
        (by_log + alone.iter().sum::<i64>(), stood_in.iter().sum())
    }

    /// True if the state is not the one last reported.
    pub fn has_news(&self) -> bool {
        self.state() != self.figures.state || self.scrubs.news
    }

    /// What the manager is told.
    pub fn report(&mut self, now: Now, map: &OsdMap) -> PgStat {
        let state = self.state();
        self.figures.note_state(now.wall, state);
        self.figures.reported += 1;
        self.scrubs.news = false;
        self.stats(now, map)
    }

    /// Its figures as they are.
    pub(super) fn stats(&self, now: Now, map: &OsdMap) -> PgStat {
        let (state, scrubs) = (self.state(), self.history.scrubs);
        let (m, f) = (&self.walk.mapping, &self.figures);
        let (degraded, misplaced) = self.troubles();
        let sum = ObjectStatSum {
            num_bytes: self.totals.bytes,
            num_objects: self.totals.objects,
            num_object_clones: self.totals.clones,
            num_object_copies: self.totals.objects * i64::from(m.size),
            num_objects_degraded: degraded,
            num_objects_misplaced: misplaced,
            num_objects_missing_on_primary: self.missing.len() as i64,
            num_objects_unfound: self.recovery.unfound().len() as i64,
            num_objects_dirty: self.totals.objects,
            num_scrub_errors: scrubs.errors().into(),
            num_shallow_scrub_errors: scrubs.shallow_errors.into(),
            num_deep_scrub_errors: scrubs.deep_errors.into(),
            ..f.sums
        };
        let lacks = |osd: OsdId| if osd == m.primary { !self.missing.is_empty() } else { self.recovery.lacks(osd) > 0 };
        let shard = |osd: &OsdId| PgShard { osd: *osd, shard: ShardPgId::NO_SHARD };
        let (up, acting) = match self.is_coded() {
            false => (m.up.clone(), m.acting.clone()),
            true => {
                // With their holes.
                let places = map.pg_to_up_acting(self.id);
                (places.up, places.acting)
            }
        };
        PgStat {
            version: self.log.head(),
            reported_seq: f.reported,
            reported_epoch: map.epoch,
            state,
            log_start: self.log.tail,
            ondisk_log_start: self.log.tail,
            created: self.history.epoch_created,
            last_epoch_clean: self.history.last_epoch_clean,
            stats: ObjectStatCollection { sum },
            log_size: self.log.len() as i64,
            ondisk_log_size: self.log.len() as i64,
            up,
            acting,
            last_fresh: now.wall,
            last_change: f.last_change,
            last_active: f.last_active,
            last_clean: f.last_clean,
            last_unstale: now.wall,
            mapping_epoch: f.mapping_epoch,
            last_scrub: scrubs.last_scrub,
            last_scrub_stamp: scrubs.last_scrub_stamp,
            last_deep_scrub: scrubs.last_deep_scrub,
            last_deep_scrub_stamp: scrubs.last_deep_scrub_stamp,
            last_clean_scrub_stamp: scrubs.last_clean_scrub_stamp,
            last_became_active: f.became_active,
            up_primary: m.up_primary,
            acting_primary: m.primary,
            blocked_by: match &self.stage {
                Stage::Peering(p) => p.blocked_by(),
                _ => Vec::new(),
            },
            last_undegraded: f.last_undegraded,
            last_fullsized: f.last_fullsized,
            last_peered: f.last_peered,
            snaptrimq_len: u32::try_from(self.trims.left).unwrap_or(u32::MAX),
            purged_snaps: self.trims.purged.clone(),
            avail_no_missing: match self.stage {
                Stage::Active => m.acting.iter().filter(|o| !lacks(**o)).map(shard).collect(),
                _ => Vec::new(),
            },
            ..PgStat::default()
        }
    }
}
