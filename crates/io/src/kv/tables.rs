//! RocksDB's families, and which key is in which.

use super::journal::{ROOT_KEY, Root};
use super::{Layout, SINGLE_DELETES_MAX, kv_error};
use bytes::Bytes;
use rocksdb::{ColumnFamily, DB, DBRawIterator, FlushOptions, ReadOptions, ReadTier, WriteBatch, WriteOptions};
use std::ops::Bound;
use std::sync::Arc;
use store::{KvError, KvOp, transient};
use types::Errno;

/// A database and how it is laid out.
pub struct Tables {
    pub db: Arc<DB>,
    pub layout: Layout,
    write_options: WriteOptions,
}

impl Tables {
    pub fn new(db: Arc<DB>, layout: Layout) -> Self {
        let mut write_options = WriteOptions::default();
        write_options.set_sync(false);
        write_options.disable_wal(layout.has_journal());
        Tables { db, layout, write_options }
    }

    pub fn family(&self, key: &[u8]) -> &ColumnFamily {
        self.named(self.layout.family(key.first().copied()))
    }

    fn named(&self, name: &str) -> &ColumnFamily {
        self.db.cf_handle(name).expect("every family was opened")
    }

    pub fn families(&self) -> Vec<&ColumnFamily> {
        self.layout.families().iter().map(|name| self.named(name)).collect()
    }

    /// A cursor over a range, not yet placed.
    pub fn cursor(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> DBRawIterator<'_> {
        let mut o = ReadOptions::default();
        match from {
            Bound::Included(k) => o.set_iterate_lower_bound(k),
            Bound::Excluded(k) => o.set_iterate_lower_bound(after(k)),
            Bound::Unbounded => {}
        }
        match to {
            Bound::Included(k) => o.set_iterate_upper_bound(after(k)),
            Bound::Excluded(k) => o.set_iterate_upper_bound(k),
            Bound::Unbounded => {}
        }
        self.db.raw_iterator_cf_opt(self.family(super::prefix_of(from, to)), o)
    }

    /// Adds a change as of this place in the batch; `earlier` are the batch's operations before it.
    pub fn add(&self, out: &mut WriteBatch, op: &KvOp, earlier: &[KvOp]) -> Result<(), KvError> {
        match op {
            KvOp::Put(k, v) => out.put_cf(self.family(k), k, v),
            KvOp::Delete(k) => out.delete_cf(self.family(k), k),
            KvOp::DeleteRange(from, to) => self.delete_range(out, from, to, earlier)?,
        }
        Ok(())
    }

    fn delete_range(&self, out: &mut WriteBatch, from: &[u8], to: &[u8], earlier: &[KvOp]) -> Result<(), KvError> {
        let family = self.family(from);
        if from >= to {
            return Ok(());
        }
        let mut cursor = self.cursor(Bound::Included(from), Bound::Excluded(to));
        cursor.seek_to_first();
        let mut n = 0;
        while let Some(key) = cursor.key() {
            if n == SINGLE_DELETES_MAX {
                out.delete_range_cf(family, from, to);
                return Ok(());
            }
            out.delete_cf(family, key);
            n += 1;
            cursor.next();
        }
        cursor.status().map_err(|e| kv_error("scan", e))?;
        for op in earlier {
            if let KvOp::Put(k, _) = op
                && &k[..] >= from
                && &k[..] < to
                && !(self.layout.has_journal() && transient(k).is_some())
            {
                out.delete_cf(family, k);
            }
        }
        Ok(())
    }

    /// Applies a batch: readers see it.
    pub fn write(&self, batch: WriteBatch) -> Result<(), KvError> {
        self.db.write_opt(batch, &self.write_options).map_err(|e| kv_error("write", e))
    }

    /// Flushes the memtables of all families together; waits for it only if told to.
    pub fn flush(&self, wait: bool) -> Result<(), KvError> {
        let mut options = FlushOptions::default();
        options.set_wait(wait);
        let families = self.families();
        let families: Vec<_> = families.iter().collect();
        self.db.flush_cfs_opt(&families, &options).map_err(|e| kv_error("flush of memtables", e))
    }

    /// Errors: the engine has failed in the background and will not go on.
    pub fn check_background(&self) -> Result<(), KvError> {
        let errors = self.db.property_int_value("rocksdb.background-errors").map_err(|e| kv_error("property", e))?;
        match errors.unwrap_or(0) {
            0 => Ok(()),
            // A write says which.
            _ => self.write(WriteBatch::default()).and(Err(KvError {
                what: "flush of memtables",
                detail: "failed in the background".into(),
                errno: Errno::EIO,
            })),
        }
    }

    /// The family of the rows that the journal has spilled.
    pub fn rows(&self) -> &ColumnFamily {
        self.named("deferred")
    }

    pub fn spilled(&self) -> Result<Vec<(Bytes, Bytes)>, KvError> {
        let cursor = self.db.raw_iterator_cf(self.rows());
        super::collect(cursor, Box::new(std::iter::empty()), usize::MAX, true)
    }

    /// In a database that has had no journal, rows are among the other keys: moves them to where a journal spills them.
    pub fn spill_all(&self) -> Result<(), KvError> {
        let mut cursor = self.cursor(Bound::Included(b"P"), Bound::Excluded(b"Q"));
        cursor.seek_to_first();
        let mut out = WriteBatch::default();
        while let Some((key, value)) = cursor.item() {
            if transient(key).is_some() {
                out.put_cf(self.rows(), key, value);
                out.delete_cf(self.family(key), key);
            }
            cursor.next();
        }
        cursor.status().map_err(|e| kv_error("scan", e))?;
        self.write(out)
    }

    pub fn put_root(&self, out: &mut WriteBatch, root: &Root) {
        out.put_cf(self.named("journal"), ROOT_KEY, root.to_bytes());
    }

    /// The journal's root as readers see it.
    pub fn root(&self) -> Result<Option<Root>, KvError> {
        self.root_in(ReadTier::All)
    }

    /// The one that a crash would leave.
    pub fn root_on_disk(&self) -> Result<Option<Root>, KvError> {
        self.root_in(ReadTier::Persisted)
    }

    fn root_in(&self, tier: ReadTier) -> Result<Option<Root>, KvError> {
        let mut options = ReadOptions::default();
        options.set_read_tier(tier);
        let found = self.db.get_pinned_cf_opt(self.named("journal"), ROOT_KEY, &options).map_err(|e| kv_error("get", e))?;
        let bad = |e| KvError { what: "root of the journal", detail: format!("{e}"), errno: Errno::EIO };
        found.map(|v| Root::parse(&v).map_err(bad)).transpose()
    }
}

/// The smallest key behind this one.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
