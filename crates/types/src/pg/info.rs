//! What an OSD knows of a PG it holds, and of the PG's past.

use super::stat::PgStat;
use crate::map::SnapIntervals;
use crate::{EVersion, Epoch, HObject, OsdId, ShardPgId, Utime};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::fmt;

/// An OSD holding a shard of a PG (`pg_shard_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct PgShard {
    pub osd: OsdId,
    /// -1 in replicated pools.
    pub shard: i8,
}

impl fmt::Display for PgShard {
    /// `3`, or `3(1)` where places count.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shard {
            ..0 => self.osd.fmt(f),
            shard => write!(f, "{}({shard})", self.osd),
        }
    }
}

/// What became of a PG over time (`pg_history_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 10, compat = 4)]
pub struct PgHistory {
    pub epoch_created: Epoch,
    /// A lower bound on when it last went active, anywhere.
    pub last_epoch_started: Epoch,
    pub last_epoch_clean: Epoch,
    pub last_epoch_split: Epoch,
    pub same_interval_since: Epoch,
    pub same_up_since: Epoch,
    pub same_primary_since: Epoch,
    pub last_scrub: EVersion,
    pub last_scrub_stamp: Utime,
    #[denc(since = 5)]
    pub last_deep_scrub: EVersion,
    #[denc(since = 5)]
    pub last_deep_scrub_stamp: Utime,
    #[denc(since = 6)]
    pub last_clean_scrub_stamp: Utime,
    #[denc(since = 7)]
    pub last_epoch_marked_full: Epoch,
    #[denc(since = 8)]
    pub last_interval_started: Epoch,
    #[denc(since = 8)]
    pub last_interval_clean: Epoch,
    #[denc(since = 9)]
    pub epoch_pool_created: Epoch,
    /// How long, as a time span, prior intervals may still be read.
    #[denc(since = 10)]
    pub prior_readable_until_ub: Utime,
}

/// A stretch of a cache pool's past (`pg_hit_set_info_t`); kept for the format's sake.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct HitSetInfo {
    pub begin: Utime,
    pub end: Utime,
    pub version: EVersion,
    #[denc(since = 2)]
    pub using_gmt: bool,
}

/// All of them (`pg_hit_set_history_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HitSetHistory {
    pub current_last_update: EVersion,
    pub history: Vec<HitSetInfo>,
}
impl Encode for HitSetHistory {
    fn encode(&self, e: &mut Encoder) {
        // Between the two stand a time and a stretch that are always blank.
        e.envelope(1, 1, |e| {
            e.put(&self.current_last_update).put(&Utime::ZERO);
            e.put(&HitSetInfo { using_gmt: true, ..HitSetInfo::default() }).put(&self.history);
        });
    }
}
impl Decode for HitSetHistory {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("pg_hit_set_history_t", 1, |_, d| {
            let current_last_update = d.get()?;
            let (_, _): (Utime, HitSetInfo) = d.get()?;
            Ok(HitSetHistory { current_last_update, history: d.get()? })
        })
    }
}

/// A PG as one of its holders sees it (`pg_info_t`).
#[derive(Debug, Clone, PartialEq)]
pub struct PgInfo {
    pub pgid: ShardPgId,
    /// The newest entry of its log.
    pub last_update: EVersion,
    /// Up to here nothing is missing.
    pub last_complete: EVersion,
    /// Where the log begins, not included.
    pub log_tail: EVersion,
    pub stats: PgStat,
    pub history: PgHistory,
    pub purged_snaps: SnapIntervals,
    pub last_epoch_started: Epoch,
    pub last_user_version: u64,
    pub hit_set: HitSetHistory,
    /// Objects before it are here; `HObject::max()` when all are.
    pub last_backfill: HObject,
    pub last_interval_started: Epoch,
}

impl PgInfo {
    /// Of a PG that holds nothing yet.
    pub fn new(pgid: ShardPgId) -> Self {
        PgInfo {
            pgid,
            last_update: EVersion::default(),
            last_complete: EVersion::default(),
            log_tail: EVersion::default(),
            stats: PgStat::default(),
            history: PgHistory::default(),
            purged_snaps: SnapIntervals::default(),
            last_epoch_started: Epoch(0),
            last_user_version: 0,
            hit_set: HitSetHistory::default(),
            last_backfill: HObject::max(),
            last_interval_started: Epoch(0),
        }
    }

    /// True while a backfill has not reached the end.
    pub fn is_incomplete(&self) -> bool {
        !self.last_backfill.max
    }
}
impl Encode for PgInfo {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(32, 26, |e| {
            e.put(&self.pgid.pg).put(&self.last_update).put(&self.last_complete).put(&self.log_tail);
            // An order of objects nobody uses any more.
            e.put(&HObject::min());
            e.put(&self.stats).put(&self.history).put(&self.purged_snaps).put(&self.last_epoch_started);
            e.put(&self.last_user_version).put(&self.hit_set).put(&self.pgid.shard).put(&self.last_backfill);
            e.put(&true).put(&self.last_interval_started);
        });
    }
}
impl Decode for PgInfo {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("pg_info_t", 32, |v, d| {
            let pg = d.get()?;
            let (last_update, last_complete, log_tail) = (d.get()?, d.get()?, d.get()?);
            let _old_backfill: HObject = d.get()?;
            let (stats, history, purged_snaps) = (d.get()?, d.get()?, d.get()?);
            let (last_epoch_started, last_user_version, hit_set) = (d.get()?, d.get()?, d.get()?);
            let shard = d.get()?;
            let last_backfill = d.get()?;
            let _bitwise: bool = d.get()?;
            let last_interval_started = if v >= 32 { d.get()? } else { last_epoch_started };
            Ok(PgInfo {
                pgid: ShardPgId { pg, shard },
                last_update,
                last_complete,
                log_tail,
                stats,
                history,
                purged_snaps,
                last_epoch_started,
                last_user_version,
                hit_set,
                last_backfill,
                last_interval_started,
            })
        })
    }
}
