//! A pool (`pg_pool_t`): how its objects are kept and where.
//!
//! Holds: `pg_num` and `pgp_num` are at least 1 in any map we make; masks are derived, never stored.
//! Upstream: src/osd/osd_types.{h,cc}.

use super::interval::SnapIntervals;
use super::pool_opts::PoolOpts;
use crate::{EVersion, Epoch, PgId, PoolId, Snap, Utime};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::{BTreeMap, BTreeSet};

/// Replicated or erasure-coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct PoolType(pub u8);

impl PoolType {
    pub const REPLICATED: Self = PoolType(1);
    pub const ERASURE: Self = PoolType(3);

    /// `replicated`, `erasure`, or `???`.
    pub fn name(self) -> &'static str {
        match self {
            Self::REPLICATED => "replicated",
            Self::ERASURE => "erasure",
            _ => "???",
        }
    }
}

/// What the pg autoscaler may do to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub struct AutoscaleMode(pub u8);

impl AutoscaleMode {
    pub const OFF: Self = AutoscaleMode(0);
    pub const WARN: Self = AutoscaleMode(1);
    pub const ON: Self = AutoscaleMode(2);

    /// `off`, `warn`, `on`, or `???`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OFF => "off",
            Self::WARN => "warn",
            Self::ON => "on",
            _ => "???",
        }
    }

    /// The mode called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::OFF, Self::WARN, Self::ON].into_iter().find(|m| m.name() == name)
    }
}

/// `none`, `writeback`, ... by number; cache tiers are shown, not served.
pub const CACHE_MODES: [&str; 7] =
    ["none", "writeback", "forward", "readonly", "readforward", "readproxy", "proxy"];

/// Names of the pool flags, by bit.
pub const POOL_FLAGS: [(u64, &str); 18] = [
    (PgPool::FLAG_HASHPSPOOL, "hashpspool"),
    (PgPool::FLAG_FULL, "full"),
    (PgPool::FLAG_EC_OVERWRITES, "ec_overwrites"),
    (PgPool::FLAG_INCOMPLETE_CLONES, "incomplete_clones"),
    (PgPool::FLAG_NODELETE, "nodelete"),
    (PgPool::FLAG_NOPGCHANGE, "nopgchange"),
    (PgPool::FLAG_NOSIZECHANGE, "nosizechange"),
    (PgPool::FLAG_WRITE_FADVISE_DONTNEED, "write_fadvise_dontneed"),
    (PgPool::FLAG_NOSCRUB, "noscrub"),
    (PgPool::FLAG_NODEEP_SCRUB, "nodeep-scrub"),
    (PgPool::FLAG_FULL_QUOTA, "full_quota"),
    (PgPool::FLAG_NEARFULL, "nearfull"),
    (PgPool::FLAG_BACKFILLFULL, "backfillfull"),
    (PgPool::FLAG_SELFMANAGED_SNAPS, "selfmanaged_snaps"),
    (PgPool::FLAG_POOL_SNAPS, "pool_snaps"),
    (PgPool::FLAG_CREATING, "creating"),
    (PgPool::FLAG_EIO, "eio"),
    (PgPool::FLAG_BULK, "bulk"),
];

/// A snapshot of a whole pool (`pool_snap_info_t`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[denc(v = 2, compat = 2)]
pub struct PoolSnap {
    pub snapid: Snap,
    pub stamp: Utime,
    pub name: String,
}

/// The last merge of two placement groups (`pg_merge_meta_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct MergeMeta {
    pub source_pgid: PgId,
    pub ready_epoch: Epoch,
    pub last_epoch_started: Epoch,
    pub last_epoch_clean: Epoch,
    pub source_version: EVersion,
    pub target_version: EVersion,
}

/// How a cache tier remembers what was read (`HitSet::Params`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HitSetParams {
    #[default]
    None,
    ExplicitHash,
    ExplicitObject,
    /// False positives per million, objects, seed.
    Bloom { fpp_micro: u32, target_size: u64, seed: u64 },
}

impl Encode for HitSetParams {
    fn encode(&self, e: &mut Encoder) {
        let kind: u8 = match self {
            HitSetParams::None => 0,
            HitSetParams::ExplicitHash => 1,
            HitSetParams::ExplicitObject => 2,
            HitSetParams::Bloom { .. } => 3,
        };
        e.envelope(1, 1, |e| {
            e.put(&kind);
            if let HitSetParams::Bloom { fpp_micro, target_size, seed } = self {
                e.envelope(1, 1, |e| (fpp_micro, target_size, seed).encode(e));
            }
        });
    }
}
impl Decode for HitSetParams {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("HitSet::Params", 1, |_, d| match d.get::<u8>()? {
            0 => Ok(HitSetParams::None),
            1 => Ok(HitSetParams::ExplicitHash),
            2 => Ok(HitSetParams::ExplicitObject),
            3 => d.envelope("BloomHitSet::Params", 1, |_, d| {
                Ok(HitSetParams::Bloom { fpp_micro: d.get()?, target_size: d.get()?, seed: d.get()? })
            }),
            other => Err(DecodeError::BadTag { what: "HitSet::Params", tag: other.into() }),
        })
    }
}

/// A pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PgPool {
    pub create_time: Utime,
    /// `FLAG_*`.
    pub flags: u64,
    pub pool_type: PoolType,
    /// Copies, or data and coding chunks together.
    pub size: u8,
    /// With fewer copies than this a placement group serves nothing.
    pub min_size: u8,
    pub crush_rule: u8,
    /// 2: rjenkins, the only one in use; 1: linux dcache.
    pub object_hash: u8,
    pub pg_autoscale_mode: AutoscaleMode,
    pub pg_num: u32,
    /// Placement groups as placement sees them; at most `pg_num`.
    pub pgp_num: u32,
    /// `pg_num` we are about to merge down to.
    pub pg_num_pending: u32,
    pub pg_num_target: u32,
    pub pgp_num_target: u32,
    /// Obsolete, always empty.
    pub properties: BTreeMap<String, String>,
    pub erasure_code_profile: String,
    /// Last epoch that changed the pool, snapshots aside.
    pub last_change: Epoch,
    /// Stretch mode: at least this many buckets of kind `peering_crush_bucket_barrier`; 0 outside stretch mode.
    pub peering_crush_bucket_count: u32,
    pub peering_crush_bucket_target: u32,
    pub peering_crush_bucket_barrier: u32,
    pub peering_crush_mandatory_member: i32,
    /// Clients resend everything that is older than this epoch.
    pub last_force_op_resend: Epoch,
    pub last_force_op_resend_prenautilus: Epoch,
    pub last_force_op_resend_preluminous: Epoch,
    pub last_pg_merge_meta: MergeMeta,
    pub snap_seq: Snap,
    pub snap_epoch: Epoch,
    /// Obsolete owner id.
    pub auid: u64,
    /// 0: no quota.
    pub quota_max_bytes: u64,
    /// 0: no quota.
    pub quota_max_objects: u64,
    pub snaps: BTreeMap<Snap, PoolSnap>,
    pub removed_snaps: SnapIntervals,
    pub tiers: BTreeSet<u64>,
    pub tier_of: PoolId,
    pub read_tier: PoolId,
    pub write_tier: PoolId,
    /// Index into `CACHE_MODES`.
    pub cache_mode: u8,
    pub target_max_bytes: u64,
    pub target_max_objects: u64,
    pub cache_target_dirty_ratio_micro: u32,
    pub cache_target_dirty_high_ratio_micro: u32,
    pub cache_target_full_ratio_micro: u32,
    pub cache_min_flush_age: u32,
    pub cache_min_evict_age: u32,
    pub hit_set_params: HitSetParams,
    pub hit_set_period: u32,
    pub hit_set_count: u32,
    pub use_gmt_hitset: bool,
    pub min_read_recency_for_promote: u32,
    pub min_write_recency_for_promote: u32,
    pub hit_set_grade_decay_rate: u32,
    pub hit_set_search_last_n: u32,
    /// Bytes of a stripe of an erasure-coded pool; 0 for replicated ones.
    pub stripe_width: u32,
    pub expected_num_objects: u64,
    pub fast_read: bool,
    pub opts: PoolOpts,
    /// Application name to its settings.
    pub application_metadata: BTreeMap<String, BTreeMap<String, String>>,
}

impl Default for PgPool {
    /// What upstream's constructor leaves: an empty pool of no type.
    fn default() -> Self {
        PgPool {
            create_time: Utime::ZERO,
            flags: 0,
            pool_type: PoolType(0),
            size: 0,
            min_size: 0,
            crush_rule: 0,
            object_hash: 0,
            pg_autoscale_mode: AutoscaleMode(u8::MAX),
            pg_num: 0,
            pgp_num: 0,
            pg_num_pending: 0,
            pg_num_target: 0,
            pgp_num_target: 0,
            properties: BTreeMap::new(),
            erasure_code_profile: String::new(),
            last_change: Epoch(0),
            peering_crush_bucket_count: 0,
            peering_crush_bucket_target: 0,
            peering_crush_bucket_barrier: 0,
            peering_crush_mandatory_member: 0x7fff_ffff,
            last_force_op_resend: Epoch(0),
            last_force_op_resend_prenautilus: Epoch(0),
            last_force_op_resend_preluminous: Epoch(0),
            last_pg_merge_meta: MergeMeta::default(),
            snap_seq: Snap(0),
            snap_epoch: Epoch(0),
            auid: 0,
            quota_max_bytes: 0,
            quota_max_objects: 0,
            snaps: BTreeMap::new(),
            removed_snaps: SnapIntervals::default(),
            tiers: BTreeSet::new(),
            tier_of: PoolId(-1),
            read_tier: PoolId(-1),
            write_tier: PoolId(-1),
            cache_mode: 0,
            target_max_bytes: 0,
            target_max_objects: 0,
            cache_target_dirty_ratio_micro: 0,
            cache_target_dirty_high_ratio_micro: 0,
            cache_target_full_ratio_micro: 0,
            cache_min_flush_age: 0,
            cache_min_evict_age: 0,
            hit_set_params: HitSetParams::None,
            hit_set_period: 0,
            hit_set_count: 0,
            use_gmt_hitset: true,
            min_read_recency_for_promote: 0,
            min_write_recency_for_promote: 0,
            hit_set_grade_decay_rate: 0,
            hit_set_search_last_n: 0,
            stripe_width: 0,
            expected_num_objects: 0,
            fast_read: false,
            opts: PoolOpts::default(),
            application_metadata: BTreeMap::new(),
        }
    }
}

impl PgPool {
    pub const FLAG_HASHPSPOOL: u64 = 1 << 0;
    pub const FLAG_FULL: u64 = 1 << 1;
    pub const FLAG_EC_OVERWRITES: u64 = 1 << 2;
    pub const FLAG_INCOMPLETE_CLONES: u64 = 1 << 3;
    pub const FLAG_NODELETE: u64 = 1 << 4;
    pub const FLAG_NOPGCHANGE: u64 = 1 << 5;
    pub const FLAG_NOSIZECHANGE: u64 = 1 << 6;
    pub const FLAG_WRITE_FADVISE_DONTNEED: u64 = 1 << 7;
    pub const FLAG_NOSCRUB: u64 = 1 << 8;
    pub const FLAG_NODEEP_SCRUB: u64 = 1 << 9;
    pub const FLAG_FULL_QUOTA: u64 = 1 << 10;
    pub const FLAG_NEARFULL: u64 = 1 << 11;
    pub const FLAG_BACKFILLFULL: u64 = 1 << 12;
    pub const FLAG_SELFMANAGED_SNAPS: u64 = 1 << 13;
    pub const FLAG_POOL_SNAPS: u64 = 1 << 14;
    pub const FLAG_CREATING: u64 = 1 << 15;
    /// Clients get EIO for whatever they ask of it. Since 17.
    pub const FLAG_EIO: u64 = 1 << 16;
    /// Expected to be large: the autoscaler starts it with its full share of groups. Since 16.2.8.
    pub const FLAG_BULK: u64 = 1 << 17;

    /// `object_hash` of every pool made since 2010.
    pub const HASH_RJENKINS: u8 = 2;

    /// A replicated pool as `osd pool create` makes it: hashed by pool, `min_size` a majority of `size`.
    pub fn replicated(size: u8, pg_num: u32, crush_rule: u8) -> Self {
        PgPool {
            pool_type: PoolType::REPLICATED,
            size,
            min_size: size - size / 2,
            crush_rule,
            object_hash: Self::HASH_RJENKINS,
            flags: Self::FLAG_HASHPSPOOL,
            pg_autoscale_mode: AutoscaleMode::ON,
            pg_num,
            pgp_num: pg_num,
            pg_num_pending: pg_num,
            pg_num_target: pg_num,
            pgp_num_target: pg_num,
            ..Self::default()
        }
    }

    /// The PG that is about to end and the one it becomes part of (`pg_num_pending`): neither takes operations.
    pub fn merging(&self) -> Option<(u32, u32)> {
        let source = self.pg_num.checked_sub(1).filter(|s| *s > 0 && *s == self.pg_num_pending)?;
        Some((source, parent(source)))
    }

    /// True if every bit of `flag` is set.
    pub fn has_flag(&self, flag: u64) -> bool {
        self.flags & flag == flag
    }

    /// `hashpspool,nodelete`.
    pub fn flags_string(&self) -> String {
        let names: Vec<&str> = (0..64)
            .map(|bit| self.flags & (1 << bit))
            .filter(|flag| *flag != 0)
            .map(|flag| POOL_FLAGS.iter().find(|(f, _)| *f == flag).map_or("???", |(_, name)| *name))
            .collect();
        names.join(",")
    }

    /// The flag called `name`.
    pub fn flag_by_name(name: &str) -> Option<u64> {
        POOL_FLAGS.iter().find(|(_, n)| *n == name).map(|(flag, _)| *flag)
    }

    /// True for erasure-coded pools.
    pub fn is_erasure(&self) -> bool {
        self.pool_type == PoolType::ERASURE
    }

    /// True if an OSD that is gone shifts the others forward; erasure-coded pools keep a hole instead.
    pub fn can_shift_osds(&self) -> bool {
        !self.is_erasure()
    }

    /// All ones up to the top bit of `pg_num - 1`.
    pub fn pg_num_mask(&self) -> u32 {
        mask(self.pg_num)
    }

    /// All ones up to the top bit of `pgp_num - 1`.
    pub fn pgp_num_mask(&self) -> u32 {
        mask(self.pgp_num)
    }

    /// True if the pool is in stretch mode, which is encoded in a newer frame.
    pub fn is_stretch_pool(&self) -> bool {
        self.peering_crush_bucket_count != 0
    }

    /// True if snapshots are the operator's, of the whole pool; false if clients manage their own.
    pub fn is_pool_snaps_mode(&self) -> bool {
        self.flags & Self::FLAG_POOL_SNAPS != 0
    }

    /// `none` unless the pool is a cache tier.
    pub fn cache_mode_name(&self) -> &'static str {
        CACHE_MODES.get(usize::from(self.cache_mode)).copied().unwrap_or("unknown")
    }
}

/// The PG that another one is a part of with one PG less in the pool (`pg_t::get_parent`): without the top bit.
fn parent(seed: u32) -> u32 {
    seed & !(seed.checked_ilog2().map_or(0, |bit| 1 << bit))
}

fn mask(num: u32) -> u32 {
    match num.saturating_sub(1) {
        0 => 0,
        n => u32::MAX >> n.leading_zeros(),
    }
}

impl Encode for PgPool {
    fn encode(&self, e: &mut Encoder) {
        let v = if self.is_stretch_pool() { 30 } else { 29 };
        e.envelope(v, 5, |e| {
            self.encode_placement(e);
            self.encode_tiering(e);
            e.put(&self.fast_read).put(&self.hit_set_grade_decay_rate).put(&self.hit_set_search_last_n);
            e.put(&self.opts).put(&self.last_force_op_resend_prenautilus);
            e.put(&self.application_metadata).put(&self.create_time);
            e.put(&self.pg_num_target).put(&self.pgp_num_target).put(&self.pg_num_pending);
            // Two epochs that only the first release candidates of 14 used.
            e.put(&0u32).put(&0u32).put(&self.last_force_op_resend).put(&self.pg_autoscale_mode);
            e.put(&self.last_pg_merge_meta);
            if v >= 30 {
                e.put(&self.peering_crush_bucket_count).put(&self.peering_crush_bucket_target);
                e.put(&self.peering_crush_bucket_barrier).put(&self.peering_crush_mandatory_member);
            }
        });
    }
}

impl PgPool {
    fn encode_placement(&self, e: &mut Encoder) {
        e.put(&self.pool_type).put(&self.size).put(&self.crush_rule).put(&self.object_hash);
        // Between pgp_num and last_change: numbers of "localized" placement groups, long gone.
        e.put(&self.pg_num).put(&self.pgp_num).put(&0u32).put(&0u32).put(&self.last_change);
        e.put(&self.snap_seq).put(&self.snap_epoch).put(&self.snaps).put(&self.removed_snaps).put(&self.auid);
        // After the flags: crash_replay_interval, gone too.
        e.put(&self.flags).put(&0u32).put(&self.min_size).put(&self.quota_max_bytes).put(&self.quota_max_objects);
    }

    fn encode_tiering(&self, e: &mut Encoder) {
        e.put(&self.tiers).put(&self.tier_of).put(&self.cache_mode).put(&self.read_tier).put(&self.write_tier);
        e.put(&self.properties).put(&self.hit_set_params).put(&self.hit_set_period).put(&self.hit_set_count);
        e.put(&self.stripe_width).put(&self.target_max_bytes).put(&self.target_max_objects);
        e.put(&self.cache_target_dirty_ratio_micro).put(&self.cache_target_full_ratio_micro);
        e.put(&self.cache_min_flush_age).put(&self.cache_min_evict_age).put(&self.erasure_code_profile);
        e.put(&self.last_force_op_resend_preluminous).put(&self.min_read_recency_for_promote);
        e.put(&self.expected_num_objects).put(&self.cache_target_dirty_high_ratio_micro);
        e.put(&self.min_write_recency_for_promote).put(&self.use_gmt_hitset);
    }

    fn decode_placement(&mut self, d: &mut Decoder<'_>) -> Result<(), DecodeError> {
        (self.pool_type, self.size, self.crush_rule, self.object_hash) = d.get()?;
        (self.pg_num, self.pgp_num) = d.get()?;
        let _localized: (u32, u32) = d.get()?;
        (self.last_change, self.snap_seq, self.snap_epoch) = d.get()?;
        (self.snaps, self.removed_snaps, self.auid) = d.get()?;
        self.flags = d.get()?;
        let _crash_replay_interval: u32 = d.get()?;
        (self.min_size, self.quota_max_bytes, self.quota_max_objects) = d.get()?;
        let snaps = Self::FLAG_SELFMANAGED_SNAPS | Self::FLAG_POOL_SNAPS;
        if self.snap_seq > Snap(0) && self.flags & snaps == 0 {
            // Before 14 the mode was only implied.
            let removed = !self.removed_snaps.is_empty();
            self.flags |= if removed { Self::FLAG_SELFMANAGED_SNAPS } else { Self::FLAG_POOL_SNAPS };
        }
        Ok(())
    }

    fn decode_tiering(&mut self, d: &mut Decoder<'_>) -> Result<(), DecodeError> {
        (self.tiers, self.tier_of, self.cache_mode) = d.get()?;
        (self.read_tier, self.write_tier, self.properties) = d.get()?;
        (self.hit_set_params, self.hit_set_period, self.hit_set_count) = d.get()?;
        (self.stripe_width, self.target_max_bytes, self.target_max_objects) = d.get()?;
        (self.cache_target_dirty_ratio_micro, self.cache_target_full_ratio_micro) = d.get()?;
        (self.cache_min_flush_age, self.cache_min_evict_age) = d.get()?;
        (self.erasure_code_profile, self.last_force_op_resend_preluminous) = d.get()?;
        (self.min_read_recency_for_promote, self.expected_num_objects) = d.get()?;
        self.cache_target_dirty_high_ratio_micro = d.get()?;
        (self.min_write_recency_for_promote, self.use_gmt_hitset, self.fast_read) = d.get()?;
        (self.hit_set_grade_decay_rate, self.hit_set_search_last_n) = d.get()?;
        Ok(())
    }

    fn decode_targets(&mut self, v: u8, d: &mut Decoder<'_>) -> Result<(), DecodeError> {
        (self.pg_num_target, self.pgp_num_target, self.pg_num_pending) = d.get()?;
        let (started, clean): (Epoch, Epoch) = d.get()?;
        (self.last_force_op_resend, self.pg_autoscale_mode) = d.get()?;
        self.last_pg_merge_meta = match v {
            28 => MergeMeta { last_epoch_started: started, last_epoch_clean: clean, ..MergeMeta::default() },
            _ => d.get()?,
        };
        Ok(())
    }
}

impl Decode for PgPool {
    /// Frames of 12.2 (version 24) and newer; older clusters cannot be peers of ours.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("pg_pool_t", 30, |v, d| {
            if v < 24 {
                return Err(DecodeError::Invalid("pg_pool_t from before 12.2"));
            }
            let mut p = PgPool::default();
            p.decode_placement(d)?;
            p.decode_tiering(d)?;
            p.opts = d.get()?;
            p.last_force_op_resend_prenautilus =
                if v >= 25 { d.get()? } else { p.last_force_op_resend_preluminous };
            if v >= 26 {
                p.application_metadata = d.get()?;
            }
            if v >= 27 {
                p.create_time = d.get()?;
            }
            if v >= 28 {
                p.decode_targets(v, d)?;
            } else {
                (p.pg_num_target, p.pgp_num_target, p.pg_num_pending) = (p.pg_num, p.pgp_num, p.pg_num);
                p.last_force_op_resend = p.last_force_op_resend_prenautilus;
                p.pg_autoscale_mode = AutoscaleMode::WARN;
            }
            // 19.2 made the stretch fields optional.
            if v == 30 || v > 30 && d.get()? {
                (p.peering_crush_bucket_count, p.peering_crush_bucket_target) = d.get()?;
                (p.peering_crush_bucket_barrier, p.peering_crush_mandatory_member) = d.get()?;
            }
            Ok(p)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_cover_the_top_bit_of_the_highest_seed() {
        let pool = |n| PgPool { pg_num: n, ..PgPool::default() };
        for (n, expected) in [(0, 0), (1, 0), (2, 1), (3, 3), (8, 7), (9, 15), (1 << 31, 0x7fff_ffff)] {
            assert_eq!(pool(n).pg_num_mask(), expected, "pg_num {n}");
        }
    }

    #[test]
    fn a_pg_ends_in_the_one_that_its_objects_go_to() {
        for n in 2..70 {
            let pool = |n| PgPool { pg_num_pending: n - 1, ..PgPool::replicated(3, n, 0) };
            let (source, target) = pool(n).merging().unwrap();
            let pg = |seed| PgId { pool: PoolId(1), seed };
            assert_eq!((source, pg(target)), (n - 1, pool(n - 1).raw_pg_to_pg(pg(source))));
            assert_eq!(PgPool::replicated(3, n, 0).merging(), None);
        }
        assert_eq!(PgPool { pg_num_pending: 0, ..PgPool::replicated(3, 1, 0) }.merging(), None);
    }

    #[test]
    fn flags_have_their_names() {
        let mut pool = PgPool::replicated(3, 8, 0);
        pool.flags |= PgPool::FLAG_NODELETE;
        assert_eq!(pool.flags_string(), "hashpspool,nodelete");
        assert_eq!(PgPool::flag_by_name("nodeep-scrub"), Some(PgPool::FLAG_NODEEP_SCRUB));
    }
}
