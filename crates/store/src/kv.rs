//! What the store (and the monitor) ask of a key-value engine.

use crate::IoId;
use bytes::Bytes;
use std::ops::Bound;
use types::Errno;

/// Why the engine could not serve. Whoever sees one from `apply` or `flush` must treat the engine as lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {detail}")]
pub struct KvError {
    /// Which call failed.
    pub what: &'static str,
    /// The engine's own words.
    pub detail: String,
    /// The nearest errno: EIO, ENOSPC, EBUSY...
    pub errno: Errno,
}

/// One change of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvOp {
    Put(Bytes, Bytes),
    Delete(Bytes),
    /// Every key from the first (included) to the second (excluded).
    DeleteRange(Bytes, Bytes),
}

impl KvOp {
    /// The key, or the first of the range.
    pub fn key(&self) -> &Bytes {
        let (KvOp::Put(key, _) | KvOp::Delete(key) | KvOp::DeleteRange(key, _)) = self;
        key
    }
}

/// Changes that become visible, and durable, together and in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KvBatch {
    pub ops: Vec<KvOp>,
}

impl KvBatch {
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.ops.push(KvOp::Put(key.into(), value.into()));
    }

    pub fn delete(&mut self, key: impl Into<Bytes>) {
        self.ops.push(KvOp::Delete(key.into()));
    }

    /// Deletes `[from, to)`.
    pub fn delete_range(&mut self, from: impl Into<Bytes>, to: impl Into<Bytes>) {
        self.ops.push(KvOp::DeleteRange(from.into(), to.into()));
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Moves the other batch's changes behind this one's.
    pub fn append(&mut self, mut other: KvBatch) {
        self.ops.append(&mut other.ops);
    }
}

/// How an engine's own device fills; all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvSpace {
    /// In its own place, and what it may take there.
    pub used: u64,
    pub total: u64,
    /// Where there was no room for it: beside the data.
    pub spilled: u64,
}

/// What an engine has done, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvFigures {
    /// Look-ups of single keys that reached the engine, and the nanoseconds they took.
    pub gets: (u64, u64),
    /// Batches applied, and the nanoseconds that took.
    pub submits: (u64, u64),
    /// Memory in memtables and in what waits to get there.
    pub memtable_bytes: u64,
    /// Memory in the block cache, and how much it may be.
    pub cache_bytes: u64,
    pub cache_bytes_max: u64,
    /// Bytes of tables on disk, and how many may be there.
    pub table_bytes: u64,
    pub table_bytes_max: u64,
    /// Bytes of the log that are in use, and all of it.
    pub log_bytes: u64,
    pub log_bytes_max: u64,
    /// Files on disk.
    pub files: u64,
    /// What compaction has still to rewrite, about.
    pub pending_compaction_bytes: u64,
}

/// An ordered map of byte strings with batches and a log.
///
/// Promised by an implementation: after a crash the state is that of some prefix of the applied batches, and the
/// prefix contains every batch applied before the last flush that was answered `Ok`.
///
/// A scan must stay among keys that share their first byte: engines may keep those apart (column families).
pub trait Kv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError>;

    /// Up to `limit` pairs in ascending order.
    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>, KvError>;

    /// Up to `limit` pairs in descending order, starting from the end of the range.
    fn scan_reverse(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>, KvError>;

    /// Takes effect for readers at once; durable with the next flush.
    fn apply(&mut self, batch: KvBatch) -> Result<(), KvError>;

    /// Makes every batch applied so far durable; answered later through `handle_io` with empty bytes.
    fn flush(&mut self, id: IoId);

    /// The same, waiting for it: for mkfs and for stopping.
    fn flush_sync(&mut self) -> Result<(), KvError>;

    /// How the engine's own device fills; `None` if it has none of its own, or cannot fill it.
    fn space(&self) -> Option<KvSpace> {
        None
    }

    /// What the engine has done and holds; zeros if it does not count.
    fn figures(&self) -> KvFigures {
        KvFigures::default()
    }

    /// From now on so many bytes for blocks of tables, and for what is not in tables yet.
    fn set_memory(&mut self, _cache_bytes: u64, _memtable_bytes: u64) {}

    /// Bytes on disk between two keys, roughly; 0 if the engine cannot tell.
    fn approximate_size(&self, _from: &[u8], _to: &[u8]) -> u64 {
        0
    }
}
