//! What the store says, and the small types its answers are made of.

use bytes::Bytes;
use qos::Class;
use types::msg::BufList;
use types::{Errno, HObject, Mono, ShardPgId};
use uuid::Uuid;

use crate::{AllocHint, Compressed, KvError, PlaceId, Placed};

/// A transaction, numbered by the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxcId(pub u64);

/// A read, numbered by the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// How to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadFlags {
    /// Return only what was written: `ReadData::extents` lists the runs, `data` holds just their bytes.
    pub sparse: bool,
    /// Do not keep what was read in the cache (`FADVISE_DONTNEED`, `NOCACHE`); scrub reads so.
    pub nocache: bool,
    /// Read from the device even what is cached: deep scrub judges the medium.
    pub bypass: bool,
    /// Only its checksum is wanted: `ReadData::digest`, and no bytes. The range is of whole blocks, except at the object's end.
    pub digest: bool,
    /// With `digest`: what need not be read again.
    pub trust: Option<Trust>,
    /// On whose account the device is read.
    pub class: Class,
}

/// What the device has returned lately, to whomever, with the right checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    pub now: Mono,
    /// Not longer ago than that, in seconds.
    pub age_s: u32,
}

/// What a read found: nothing past the end of the object, so possibly fewer bytes than asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadData {
    /// (offset in the object, length) of each run in `data`; without `sparse` one run (none if nothing was read),
    /// holes filled with zeros.
    pub extents: Vec<(u64, u64)>,
    pub data: BufList,
    pub digest: Digest,
}

/// The checksum of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest {
    /// crc32c, holes being zeros.
    pub crc: u32,
    /// Bytes that were read from the device for it, and that need not be read again.
    pub read: u64,
    pub trusted: u64,
}

/// What the store tells its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreEvent {
    /// The transaction is on stable storage, with every earlier one of its collection.
    Committed(TxcId),
    /// EIO: unreadable or wrong checksum (a `ChecksumError` precedes it). ENOENT: no such object.
    ReadDone { id: ReadId, result: Result<ReadData, Errno> },
    /// The device returned something else than was written: `off` is the block's offset in the object.
    ChecksumError { coll: ShardPgId, obj: HObject, off: u64, device_off: u64, expected: u32, actual: u32 },
    /// What was to be placed is in its place, for good as soon as a transaction says so. Whoever hears this answers for the blocks.
    Placed { id: PlaceId, placed: Placed },
    /// A write or a flush failed. Nothing is committed any more, every later submit and read is refused with EIO.
    /// Said once. The daemon must stop.
    Poisoned(Errno),
}

/// What is known of an object without reading its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectStat {
    /// Bytes.
    pub size: u64,
    /// Bytes of device space its blocks take; blocks shared with clones count for each.
    pub allocated: u64,
    pub has_omap: bool,
    pub hint: AllocHint,
}

/// How full the store is; all in bytes (`store_statfs_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatFs {
    pub total: u64,
    /// Free and usable for data now; what freeing transactions in flight give back is not in it yet.
    pub available: u64,
    /// User data in objects, holes excluded.
    pub stored: u64,
    /// Device space in use by objects.
    pub allocated: u64,
    /// What of that is compressed.
    pub compressed: Compressed,
    /// Omap keys and values, roughly.
    pub omap: u64,
    /// Other metadata in the key-value engine, roughly.
    pub internal: u64,
    /// The key-value engine's own device, if it has one.
    pub kv: Option<crate::KvSpace>,
}

/// Why a store could not be created.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    #[error("there is a store already: osd.{whoami} of cluster {fsid}")]
    Exists { whoami: i32, fsid: Uuid },
    #[error("the device has {size} bytes, at least {needed} are needed")]
    TooSmall { size: u64, needed: u64 },
    #[error("writing the device's label: {0}")]
    Device(types::Errno),
    #[error(transparent)]
    Kv(#[from] KvError),
}

/// Why a store could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("no store here, or mkfs did not finish: run mkfs")]
    NotAStore,
    #[error("format {found}, this build reads up to {supported}: run a newer cuttlebone")]
    TooNew { found: u32, supported: u32 },
    #[error("the store belongs to cluster {found}, not to {expected}")]
    WrongCluster { found: Uuid, expected: Uuid },
    #[error("the store belongs to osd.{found}, not to osd.{expected}")]
    WrongOsd { found: i32, expected: i32 },
    #[error("the data device belongs to store {device}, the database to store {database}: they are not a pair")]
    WrongDevice { device: Uuid, database: Uuid },
    #[error("the data device has no label: it is not this store's, or its first block was overwritten")]
    NoLabel,
    #[error("the data device has {found} bytes, mkfs saw {expected}: it was cut short")]
    DeviceShrunk { found: u64, expected: u64 },
    #[error("the key {key:?} cannot be read: {why}")]
    Corrupt { key: Bytes, why: denc::DecodeError },
    #[error("the record of {0:?} uses device space that cannot be its own")]
    BadExtent(Bytes),
    #[error("reading the data device: {0}")]
    Device(types::Errno),
    #[error(transparent)]
    Kv(#[from] KvError),
}
