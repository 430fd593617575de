//! A PG's figures: how many objects and bytes, in what condition, since when.

use super::info::PgShard;
use super::state::PgState;
use crate::map::SnapIntervals;
use crate::{EVersion, Epoch, OsdId, PgId, Utime};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::{BTreeMap, BTreeSet};

macro_rules! sums {
    ($($name:ident: $ty:ty $(= since $since:literal)?,)*) => {
        /// Counts over a set of objects (`object_stat_sum_t`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct ObjectStatSum { $(pub $name: $ty,)* }

        impl ObjectStatSum {
            /// Adds another set's counts.
            pub fn add(&mut self, o: &Self) {
                $(self.$name = self.$name.saturating_add(o.$name);)*
            }

            /// Takes another set's counts away.
            pub fn sub(&mut self, o: &Self) {
                $(self.$name = self.$name.saturating_sub(o.$name);)*
            }

            /// Every count with its name, in upstream's order.
            pub fn fields(&self) -> Vec<(&'static str, i64)> {
                vec![$((stringify!($name), i64::from(self.$name)),)*]
            }
        }
        impl Encode for ObjectStatSum {
            fn encode(&self, e: &mut Encoder) {
                e.envelope(20, 14, |e| { $(e.put(&self.$name);)* });
            }
        }
        impl Decode for ObjectStatSum {
            fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                d.envelope("object_stat_sum_t", 20, |v, d| {
                    let mut out = Self::default();
                    $(if true $(&& v >= $since)? { out.$name = d.get()?; })*
                    let _ = v;
                    Ok(out)
                })
            }
        }
    };
}
sums! {
    num_bytes: i64,
    num_objects: i64,
    num_object_clones: i64,
    num_object_copies: i64,
    num_objects_missing_on_primary: i64,
    num_objects_degraded: i64,
    num_objects_unfound: i64,
    num_rd: i64,
    num_rd_kb: i64,
    num_wr: i64,
    num_wr_kb: i64,
    num_scrub_errors: i64,
    num_objects_recovered: i64,
    num_bytes_recovered: i64,
    num_keys_recovered: i64,
    num_shallow_scrub_errors: i64,
    num_deep_scrub_errors: i64,
    num_objects_dirty: i64,
    num_whiteouts: i64,
    num_objects_omap: i64,
    num_objects_hit_set_archive: i64,
    num_objects_misplaced: i64,
    num_bytes_hit_set_archive: i64,
    num_flush: i64,
    num_flush_kb: i64,
    num_evict: i64,
    num_evict_kb: i64,
    num_promote: i64,
    num_flush_mode_high: i32,
    num_flush_mode_low: i32,
    num_evict_mode_some: i32,
    num_evict_mode_full: i32,
    num_objects_pinned: i64,
    num_objects_missing: i64,
    num_legacy_snapsets: i64 = since 16,
    num_large_omap_objects: i64 = since 17,
    num_objects_manifest: i64 = since 18,
    num_omap_bytes: i64 = since 19,
    num_omap_keys: i64 = since 19,
    num_objects_repaired: i64 = since 20,
}

/// The sum, and once sums by category (`object_stat_collection_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectStatCollection {
    pub sum: ObjectStatSum,
}
impl Encode for ObjectStatCollection {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(2, 2, |e| {
            e.put(&self.sum).put(&0u32);
        });
    }
}
impl Decode for ObjectStatCollection {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("object_stat_collection_t", 2, |_, d| Ok(ObjectStatCollection { sum: d.get()? }))
    }
}

/// A PG as its primary reports it (`pg_stat_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgStat {
    /// The newest write.
    pub version: EVersion,
    /// Counts reports, so that an old one is known.
    pub reported_seq: u64,
    pub reported_epoch: Epoch,
    pub state: PgState,
    pub log_start: EVersion,
    pub ondisk_log_start: EVersion,
    pub created: Epoch,
    pub last_epoch_clean: Epoch,
    pub parent: PgId,
    pub parent_split_bits: u32,
    pub last_scrub: EVersion,
    pub last_scrub_stamp: Utime,
    pub stats: ObjectStatCollection,
    pub log_size: i64,
    pub ondisk_log_size: i64,
    pub up: Vec<OsdId>,
    pub acting: Vec<OsdId>,
    pub last_fresh: Utime,
    pub last_change: Utime,
    pub last_active: Utime,
    pub last_clean: Utime,
    pub last_unstale: Utime,
    pub mapping_epoch: Epoch,
    pub last_deep_scrub: EVersion,
    pub last_deep_scrub_stamp: Utime,
    pub stats_invalid: bool,
    pub last_clean_scrub_stamp: Utime,
    pub last_became_active: Utime,
    pub dirty_stats_invalid: bool,
    pub up_primary: OsdId,
    pub acting_primary: OsdId,
    pub omap_stats_invalid: bool,
    pub hitset_stats_invalid: bool,
    /// OSDs that hold up peering.
    pub blocked_by: Vec<OsdId>,
    pub last_undegraded: Utime,
    pub last_fullsized: Utime,
    pub hitset_bytes_stats_invalid: bool,
    pub last_peered: Utime,
    pub last_became_peered: Utime,
    pub pin_stats_invalid: bool,
    pub snaptrimq_len: u32,
    pub purged_snaps: SnapIntervals,
    pub manifest_stats_invalid: bool,
    /// Shards that miss nothing.
    pub avail_no_missing: Vec<PgShard>,
    /// How many objects are on which set of shards.
    pub object_location_counts: BTreeMap<BTreeSet<PgShard>, i32>,
}

impl Encode for PgStat {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(26, 22, |e| {
            e.put(&self.version).put(&self.reported_seq).put(&self.reported_epoch).put(&(self.state.0 as u32));
            e.put(&self.log_start).put(&self.ondisk_log_start).put(&self.created).put(&self.last_epoch_clean);
            e.put(&self.parent).put(&self.parent_split_bits).put(&self.last_scrub).put(&self.last_scrub_stamp);
            e.put(&self.stats).put(&self.log_size).put(&self.ondisk_log_size).put(&self.up).put(&self.acting);
            e.put(&self.last_fresh).put(&self.last_change).put(&self.last_active).put(&self.last_clean);
            e.put(&self.last_unstale).put(&self.mapping_epoch).put(&self.last_deep_scrub);
            e.put(&self.last_deep_scrub_stamp).put(&self.stats_invalid).put(&self.last_clean_scrub_stamp);
            e.put(&self.last_became_active).put(&self.dirty_stats_invalid).put(&self.up_primary);
            e.put(&self.acting_primary).put(&self.omap_stats_invalid).put(&self.hitset_stats_invalid);
            e.put(&self.blocked_by).put(&self.last_undegraded).put(&self.last_fullsized);
            e.put(&self.hitset_bytes_stats_invalid).put(&self.last_peered).put(&self.last_became_peered);
            e.put(&self.pin_stats_invalid).put(&self.snaptrimq_len).put(&((self.state.0 >> 32) as u32));
            e.put(&self.purged_snaps).put(&self.manifest_stats_invalid).put(&self.avail_no_missing);
            e.put(&self.object_location_counts);
        });
    }
}
impl Decode for PgStat {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("pg_stat_t", 26, |v, d| {
            let mut out = first_fields(d)?;
            if v >= 23 {
                out.snaptrimq_len = d.get()?;
            }
            if v >= 24 {
                out.state.0 |= u64::from(d.get::<u32>()?) << 32;
                out.purged_snaps = d.get()?;
            }
            out.manifest_stats_invalid = if v >= 25 { d.get()? } else { true };
            if v >= 26 {
                (out.avail_no_missing, out.object_location_counts) = (d.get()?, d.get()?);
            }
            Ok(out)
        })
    }
}

/// The fields that every version this reader meets has.
fn first_fields(d: &mut Decoder<'_>) -> Result<PgStat, DecodeError> {
    Ok(PgStat {
        version: d.get()?,
        reported_seq: d.get()?,
        reported_epoch: d.get()?,
        state: PgState(d.get::<u32>()?.into()),
        log_start: d.get()?,
        ondisk_log_start: d.get()?,
        created: d.get()?,
        last_epoch_clean: d.get()?,
        parent: d.get()?,
        parent_split_bits: d.get()?,
        last_scrub: d.get()?,
        last_scrub_stamp: d.get()?,
        stats: d.get()?,
        log_size: d.get()?,
        ondisk_log_size: d.get()?,
        up: d.get()?,
        acting: d.get()?,
        last_fresh: d.get()?,
        last_change: d.get()?,
        last_active: d.get()?,
        last_clean: d.get()?,
        last_unstale: d.get()?,
        mapping_epoch: d.get()?,
        last_deep_scrub: d.get()?,
        last_deep_scrub_stamp: d.get()?,
        stats_invalid: d.get()?,
        last_clean_scrub_stamp: d.get()?,
        last_became_active: d.get()?,
        dirty_stats_invalid: d.get()?,
        up_primary: d.get()?,
        acting_primary: d.get()?,
        omap_stats_invalid: d.get()?,
        hitset_stats_invalid: d.get()?,
        blocked_by: d.get()?,
        last_undegraded: d.get()?,
        last_fullsized: d.get()?,
        hitset_bytes_stats_invalid: d.get()?,
        last_peered: d.get()?,
        last_became_peered: d.get()?,
        pin_stats_invalid: d.get()?,
        ..PgStat::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_state_bits_survive_the_split_encoding() {
        let stat = PgStat { state: PgState::ACTIVE | PgState::LAGGY, ..PgStat::default() };
        assert_eq!(denc::from_bytes::<PgStat>(&denc::to_bytes(&stat, 0)).unwrap(), stat);
    }

    #[test]
    fn sums_add_and_take_away() {
        let mut a = ObjectStatSum { num_bytes: 5, num_rd: 1, ..Default::default() };
        let b = a;
        a.add(&b);
        assert_eq!((a.num_bytes, a.num_rd), (10, 2));
        a.sub(&b);
        assert_eq!(a, b);
    }
}
