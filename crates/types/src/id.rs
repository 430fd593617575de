//! Small identifiers, each a type of its own so that two integers cannot swap.

use crate::entity::EntityInst;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::fmt;
use std::str::FromStr;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident $inner:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
id!(/** A version of a cluster map (`epoch_t`); 0 is "none yet". */ Epoch u32);
id!(/** An OSD's number, its CRUSH device id; negative means none. */ OsdId i32);
id!(/** A pool's number; pools start at 1, -1 means none. */ PoolId i64);

impl OsdId {
    /// No OSD: the primary of a placement group that nobody serves.
    pub const NONE: OsdId = OsdId(-1);
    /// An empty place in an up or acting set (`CRUSH_ITEM_NONE`); erasure-coded pools keep positions.
    pub const HOLE: OsdId = OsdId(0x7fff_ffff);
}

impl Epoch {
    /// The epoch after this one.
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// (epoch, version) of a write: ordered by epoch, then version; encoded version first (`eversion_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EVersion {
    pub epoch: Epoch,
    pub version: u64,
}

impl Encode for EVersion {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.version).put(&self.epoch);
    }
}
impl Decode for EVersion {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(EVersion { version: d.get()?, epoch: d.get()? })
    }
}
impl fmt::Display for EVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}

/// A placement group (`pg_t`): pool and seed, printed `1.2f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PgId {
    pub pool: PoolId,
    pub seed: u32,
}

impl Encode for PgId {
    fn encode(&self, e: &mut Encoder) {
        // The last field was once a preferred OSD; every release writes -1.
        e.put(&1u8).put(&self.pool.0).put(&self.seed).put(&-1i32);
    }
}
impl Decode for PgId {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let _version: u8 = d.get()?;
        let pg = PgId { pool: d.get()?, seed: d.get()? };
        let _preferred: i32 = d.get()?;
        Ok(pg)
    }
}
impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.seed)
    }
}
impl FromStr for PgId {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        let (pool, seed) = s.split_once('.').ok_or(())?;
        Ok(PgId { pool: PoolId(pool.parse().map_err(|_| ())?), seed: u32::from_str_radix(seed, 16).map_err(|_| ())? })
    }
}

/// A placement group and the shard of it (`spg_t`); -1 for replicated pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ShardPgId {
    pub pg: PgId,
    pub shard: i8,
}

impl ShardPgId {
    pub const NO_SHARD: i8 = -1;

    /// A replicated pool's.
    pub fn whole(pg: PgId) -> Self {
        ShardPgId { pg, shard: Self::NO_SHARD }
    }
}
impl fmt::Display for ShardPgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shard {
            Self::NO_SHARD => self.pg.fmt(f),
            shard => write!(f, "{}s{shard}", self.pg),
        }
    }
}

/// A client's request (`osd_reqid_t`): the same in every resend, so duplicates are known by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
#[denc(v = 2, compat = 2)]
pub struct ReqId {
    pub name: EntityInst,
    pub tid: u64,
    pub inc: i32,
}
impl fmt::Display for ReqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}:{}", self.name, self.inc, self.tid)
    }
}
