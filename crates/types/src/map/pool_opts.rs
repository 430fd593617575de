//! A pool's optional settings (`pool_opts_t`).
//!
//! Upstream: src/osd/osd_types.{h,cc}.

use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;

/// Which setting; the numbers are on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolOptKey(pub i32);

/// What kind of value a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolOptKind {
    Str,
    Int,
    Double,
}

/// A setting's value.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolOptValue {
    Str(String),
    Int(i64),
    Double(f64),
}

macro_rules! keys {
    ($($id:literal $constant:ident $name:literal $kind:ident;)*) => {
        impl PoolOptKey {
            $(pub const $constant: PoolOptKey = PoolOptKey($id);)*

            /// Every setting 16.2 knows, with its name and the kind of its value, by number.
            pub const ALL: &[(PoolOptKey, &str, PoolOptKind)] =
                &[$((PoolOptKey($id), $name, PoolOptKind::$kind)),*];
        }
    };
}
keys! {
    0 SCRUB_MIN_INTERVAL "scrub_min_interval" Double;
    1 SCRUB_MAX_INTERVAL "scrub_max_interval" Double;
    2 DEEP_SCRUB_INTERVAL "deep_scrub_interval" Double;
    3 RECOVERY_PRIORITY "recovery_priority" Int;
    4 RECOVERY_OP_PRIORITY "recovery_op_priority" Int;
    5 SCRUB_PRIORITY "scrub_priority" Int;
    6 COMPRESSION_MODE "compression_mode" Str;
    7 COMPRESSION_ALGORITHM "compression_algorithm" Str;
    8 COMPRESSION_REQUIRED_RATIO "compression_required_ratio" Double;
    9 COMPRESSION_MAX_BLOB_SIZE "compression_max_blob_size" Int;
    10 COMPRESSION_MIN_BLOB_SIZE "compression_min_blob_size" Int;
    11 CSUM_TYPE "csum_type" Int;
    12 CSUM_MAX_BLOCK "csum_max_block" Int;
    13 CSUM_MIN_BLOCK "csum_min_block" Int;
    14 FINGERPRINT_ALGORITHM "fingerprint_algorithm" Str;
    15 PG_NUM_MIN "pg_num_min" Int;
    16 TARGET_SIZE_BYTES "target_size_bytes" Int;
    17 TARGET_SIZE_RATIO "target_size_ratio" Double;
    18 PG_AUTOSCALE_BIAS "pg_autoscale_bias" Double;
    19 READ_LEASE_INTERVAL "read_lease_interval" Double;
    20 DEDUP_TIER "dedup_tier" Int;
    21 DEDUP_CHUNK_ALGORITHM "dedup_chunk_algorithm" Str;
    22 DEDUP_CDC_CHUNK_SIZE "dedup_cdc_chunk_size" Int;
    23 PG_NUM_MAX "pg_num_max" Int;
}

impl PoolOptKey {
    /// The setting called `name`, and the kind of its value.
    pub fn from_name(name: &str) -> Option<(PoolOptKey, PoolOptKind)> {
        Self::ALL.iter().find(|(_, n, _)| *n == name).map(|(key, _, kind)| (*key, *kind))
    }
}

/// The settings that were given for a pool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolOpts(pub BTreeMap<PoolOptKey, PoolOptValue>);

impl PoolOpts {
    /// The value, if the setting was given.
    pub fn get(&self, key: PoolOptKey) -> Option<&PoolOptValue> {
        self.0.get(&key)
    }

    /// Given settings in the order their names sort, which is the order dumps print.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, &PoolOptValue)> {
        let mut named: Vec<_> = PoolOptKey::ALL.iter().map(|(key, name, _)| (*name, *key)).collect();
        named.sort();
        named.into_iter().filter_map(|(name, key)| Some((name, self.0.get(&key)?)))
    }
}

impl Encode for PoolOpts {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(2, 1, |e| {
            e.count(self.0.len());
            for (key, value) in &self.0 {
                e.put(&key.0);
                match value {
                    PoolOptValue::Str(s) => e.put(&0i32).put(s),
                    PoolOptValue::Int(i) => e.put(&1i32).put(i),
                    PoolOptValue::Double(d) => e.put(&2i32).put(d),
                };
            }
        });
    }
}
impl Decode for PoolOpts {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("pool_opts_t", 2, |v, d| {
            let mut out = BTreeMap::new();
            for _ in 0..d.count()? {
                let key = PoolOptKey(d.get()?);
                let value = match d.get::<i32>()? {
                    0 => PoolOptValue::Str(d.get()?),
                    1 if v >= 2 => PoolOptValue::Int(d.get()?),
                    1 => PoolOptValue::Int(d.get::<i32>()?.into()),
                    2 => PoolOptValue::Double(d.get()?),
                    other => return Err(DecodeError::BadTag { what: "pool_opts_t", tag: other as u64 }),
                };
                out.insert(key, value);
            }
            Ok(PoolOpts(out))
        })
    }
}
