//! The object store: objects with bytes, attributes and omap keys, in transactions, over a block device and a
//! key-value engine.
//!
//! Room: engine.   Owns: `Store`.   Hears: transactions, reads, completions of its I/O.   Says: `StoreEvent`.
//! Holds: nothing is said to be committed that `BlockDev` and `Kv` have not both promised; no byte is handed out whose
//! checksum was not verified; the metadata of a transaction never reaches the disk before its data.
//! Why: docs/formats/store.md, which is also the format.
//! Upstream: src/os/ObjectStore.h, src/os/Transaction.h, src/os/bluestore/.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used))]

mod alloc;
mod attrs;
mod bits;
mod block_cache;
mod buf;
mod budget;
mod commit;
mod compress;
mod config;
mod csum;
mod deferred;
mod dev;
mod event;
mod fsck;
mod key;
mod kv;
mod load;
pub mod mem;
mod meta;
mod mount;
mod names;
mod onode;
mod onode_cache;
mod packed;
mod perf;
mod place;
mod plan;
mod profile;
mod queue;
mod read;
mod refs;
mod shared;
mod store;
mod txc;
mod txn;
mod unpack;
mod verified;
mod write;

pub use budget::{Budgets, MEMORY_LEAST, Memory, Pressure};
pub use compress::{Algorithm, Compression, CompressionMode};
pub use config::{Policy, StoreConfig};
pub use csum::Csum;
pub use dev::{BlockDev, IoId, WriteBuffer};
pub use event::{Digest, MkfsError, MountError, ObjectStat, ReadData, ReadFlags, ReadId, StatFs, StoreEvent, Trust, TxcId};
pub use fsck::{ERRORS_MAX, Fsck, FsckError, FsckReport, fsck};
pub use key::{KEY_PART_MAX, LOG_ROW, key_part, transient};
pub use kv::{Kv, KvBatch, KvError, KvFigures, KvOp, KvSpace};
pub use onode::BLOCK;
pub use perf::StoreMemory;
pub use profile::{DeviceFacts, DeviceProfile, FlushFault, Tuning};
pub use mount::{StoreInfo, coll_row, probe};
pub use place::{PlaceId, Placed};
pub use queue::DeviceUse;
pub use store::{Bulk, META_COLL, Store};
pub use txc::TxcState;
pub use txn::{AllocHint, ObjIdx, Op, Transaction};
pub use unpack::Compressed;
