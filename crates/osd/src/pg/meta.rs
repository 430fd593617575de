//! A PG's rows in its collection: `i`, what it is; `l…`, its log; `d…`, requests it remembers beyond the log; `m…`, what it
//! misses; `s…`, which clones a snapshot shows.

use super::interval::{Interval, Mapping, Walk};
use super::log::{self, LogRow};
use super::{Pg, dups, log::PgLog};
use crate::disk::Disk;
use crate::effects::Cx;
use crate::ops::split_bits;
use bytes::Bytes;
use denc::{BString, Decode, Encode};
use std::ops::Bound;
use store::{Op, Transaction, TxcId};
use types::msg::internal_osd::{PeerHistory, PgTotals};
use types::pg::{PgLogDup, PgLogEntry, Shards};
use types::{EVersion, Epoch, Errno, HObject, OsdId, PgId, ShardPgId, Snap};

const META_ROW: &[u8] = b"i";
const MISSING_ROW: u8 = b'm';
/// Rows read at a time while loading.
const PAGE: usize = 1000;

/// The row `i`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[denc(v = 7, compat = 1)]
struct Meta {
    last_epoch_started: Epoch,
    history: PeerHistory,
    /// No backfill is under way.
    complete: bool,
    log_tail: EVersion,
    /// Objects and bytes: valid while the log is empty; its rows carry newer ones.
    sums: (i64, i64),
    last_user_version: u64,
    created: Epoch,
    since: Epoch,
    past: Vec<Interval>,
    up: Vec<OsdId>,
    up_primary: OsdId,
    acting: Vec<OsdId>,
    primary: OsdId,
    size: u8,
    min_size: u8,
    /// Some number of PGs that gives this one its bits.
    pg_num: u32,
    /// Counts if the copy is not complete.
    #[denc(since = 2)]
    last_backfill: HObject,
    #[denc(since = 2)]
    backfilled: i64,
    #[denc(since = 3)]
    premerge: bool,
    /// `Walk::first`; 0, from before there was such: `since`.
    #[denc(since = 4)]
    first: Epoch,
    #[denc(since = 4)]
    cut: bool,
    /// Clones among the objects; valid while the log is empty.
    #[denc(since = 5)]
    clones: i64,
    /// The index of snapshots lacks objects that came from other PGs.
    #[denc(since = 5)]
    unindexed: bool,
    /// `Mapping::need`; 0, from before there was such: 1.
    #[denc(since = 6)]
    need: u8,
    /// The one shard of every object.
    #[denc(since = 6)]
    shard: Option<u8>,
    /// Where it is not one.
    #[denc(since = 7)]
    shards: Shards,
}

/// The key of an object's row among the missing.
fn missing_key(obj: &HObject) -> BString {
    [&[MISSING_ROW][..], &denc::to_bytes(obj, 0)].concat().into()
}

impl Pg {
    /// A transaction on the PG's collection, which it creates if this is the first.
    pub(super) fn transaction(&mut self) -> Transaction {
        let mut txn = Transaction::new(self.coll);
        if !self.exists_on_disk {
            self.exists_on_disk = true;
            txn.create_coll(self.walk.mapping.bits);
        }
        txn
    }

    /// Adds the row `i` as it is now.
    pub(super) fn put_meta(&self, txn: &mut Transaction) {
        let m = &self.walk.mapping;
        let meta = Meta {
            last_epoch_started: self.last_epoch_started,
            history: self.history,
            complete: self.is_complete(),
            log_tail: self.log.tail,
            sums: (self.totals.objects, self.totals.bytes),
            last_user_version: self.last_user_version,
            created: self.walk.created,
            since: self.walk.since,
            past: self.walk.past.clone(),
            up: m.up.clone(),
            up_primary: m.up_primary,
            acting: m.acting.clone(),
            primary: m.primary,
            size: m.size,
            min_size: m.min_size,
            pg_num: 1 << m.bits,
            last_backfill: self.last_backfill.clone(),
            backfilled: self.backfilled,
            premerge: m.premerge,
            first: self.walk.first,
            cut: self.walk.cut,
            clones: self.totals.clones,
            unindexed: self.trims.unindexed,
            need: m.need,
            shard: self.own_shards.only(),
            shards: if self.own_shards.only().is_some() { Shards::default() } else { self.own_shards.clone() },
        };
        txn.coll_set(META_ROW, denc::to_bytes(&meta, 0));
    }

    /// Stores the row `i`. When that is durable, everything that was done to the PG before is.
    pub(super) fn store_meta(&mut self, cx: &mut Cx<'_>) -> TxcId {
        let mut txn = self.transaction();
        self.put_meta(&mut txn);
        cx.submit(txn)
    }

    /// Reads a PG's rows. `None`: the collection was created but never described, and holds nothing.
    pub fn load(disk: &mut dyn Disk, coll: ShardPgId) -> Result<Option<Pg>, Errno> {
        let Some(raw) = disk.coll_get(coll, META_ROW)? else {
            return Ok(None);
        };
        let meta: Meta = denc::from_bytes(&raw).map_err(|_| Errno::EIO)?;
        let mut pg = Pg::new(coll.pg, meta.walk(coll.pg));
        pg.exists_on_disk = true;
        pg.last_epoch_started = meta.last_epoch_started;
        pg.history = meta.history;
        (pg.last_backfill, pg.backfilled) = match meta.complete {
            true => (HObject::max(), 0),
            // Builds without snapshots let pages end before the live object, where it may have clones since.
            false if meta.last_backfill.snap == Snap::HEAD => (HObject { snap: Snap(0), ..meta.last_backfill.clone() }, meta.backfilled),
            false => (meta.last_backfill.clone(), meta.backfilled),
        };
        pg.totals = PgTotals { objects: meta.sums.0, bytes: meta.sums.1, clones: meta.clones };
        pg.trims.unindexed = meta.unindexed;
        pg.own_shards = meta.shard.map_or(meta.shards, Shards::all);
        pg.last_user_version = meta.last_user_version;
        pg.log.reset(meta.log_tail);
        pg.load_dups(disk)?;
        pg.load_log(disk)?;
        pg.load_missing(disk)?;
        pg.load_undo(disk);
        Ok(Some(pg))
    }

    fn load_log(&mut self, disk: &mut dyn Disk) -> Result<(), Errno> {
        each_row(disk, self.coll, log::ROW, |_, value| {
            let row: LogRow = denc::from_bytes(&value).map_err(|_| Errno::EIO)?;
            // Rows up to the tail are trimmed, even if their deletion was lost.
            if row.entry.version > self.log.head() {
                self.last_user_version = self.last_user_version.max(row.entry.user_version);
                self.totals = row.totals();
                self.log.push_row(&row.entry, value);
            }
            Ok(())
        })
    }

    fn load_dups(&mut self, disk: &mut dyn Disk) -> Result<(), Errno> {
        each_row(disk, self.coll, dups::ROW, |_, value| {
            let run: Vec<PgLogDup> = denc::from_bytes(&value).map_err(|_| Errno::EIO)?;
            self.log.dups.load_row(run);
            Ok(())
        })
    }

    fn load_missing(&mut self, disk: &mut dyn Disk) -> Result<(), Errno> {
        each_row(disk, self.coll, MISSING_ROW, |key, value| {
            let obj: HObject = key.get(1..).and_then(|raw| denc::from_slice(raw).ok()).ok_or(Errno::EIO)?;
            let version = match value.is_empty() {
                // Rows once carried no version: the log knows it, or everything is to be compared.
                true => self.log.version_of(&obj).unwrap_or_default(),
                false => denc::from_bytes(&value).map_err(|_| Errno::EIO)?,
            };
            if version == EVersion::default() {
                self.last_backfill = HObject::min();
            }
            self.missing.insert(obj, version);
            Ok(())
        })
    }
}

impl Meta {
    fn walk(&self, id: PgId) -> Walk {
        Walk {
            created: self.created,
            since: self.since,
            // An OSD that starts becomes primary anew.
            primary_since: self.since,
            up_since: self.since,
            past: self.past.clone(),
            first: self.first.max(self.since),
            cut: self.cut,
            mapping: Mapping {
                up: self.up.clone(),
                up_primary: self.up_primary,
                acting: self.acting.clone(),
                primary: self.primary,
                size: self.size,
                min_size: self.min_size,
                need: self.need.max(1),
                bits: split_bits(id, self.pg_num),
                premerge: self.premerge,
            },
        }
    }
}

/// Shows every row whose key starts with `kind` to `f`.
fn each_row(
    disk: &mut dyn Disk,
    coll: ShardPgId,
    kind: u8,
    mut f: impl FnMut(&[u8], Bytes) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let end = [kind + 1];
    let mut from = Bound::Included(BString::from(vec![kind]));
    loop {
        let page = disk.coll_scan(coll, from.as_ref().map(|k| k.as_slice()), Bound::Excluded(&end), PAGE)?;
        let full = page.len() == PAGE;
        for (key, value) in page {
            f(&key, value)?;
            from = Bound::Excluded(key);
        }
        if !full {
            return Ok(());
        }
    }
}

impl Pg {
    /// Empties the log, and what is remembered beyond it: the rows go with the transaction.
    pub(super) fn reset_log(&mut self, txn: &mut Transaction, tail: EVersion) {
        self.log = PgLog::default();
        self.log.reset(tail);
        self.undo.drain(..).for_each(|(_, kept)| txn.remove(&kept));
        txn.coll_rm_range(vec![log::ROW], vec![log::ROW + 1]);
        txn.coll_rm_range(vec![dups::ROW], vec![dups::ROW + 1]);
    }

    /// Writes the whole log down, with the totals in each row.
    pub(super) fn put_log(&self, txn: &mut Transaction) {
        let row = |entry: PgLogEntry| {
            let key = log::row_key(entry.version.version);
            (key, denc::to_bytes(&LogRow::new(entry, self.totals), 0))
        };
        txn.ops.push(Op::CollSet { pairs: self.log.iter().map(row).collect() });
    }

    /// Writes totals down that no write brought: those in the last row of the log count.
    pub(super) fn put_totals(&self, txn: &mut Transaction) {
        if let Some(entry) = self.log.iter().next_back() {
            txn.coll_set(log::row_key(entry.version.version), denc::to_bytes(&LogRow::new(entry, self.totals), 0));
        }
    }

    /// Writes down what is missing.
    pub(super) fn put_missing(&self, txn: &mut Transaction) {
        let row = |(obj, version): (&HObject, &EVersion)| (missing_key(obj), denc::to_bytes(version, 0));
        txn.ops.push(Op::CollSet { pairs: self.missing.iter().map(row).collect() });
    }

    /// Nothing is known to be missing any more.
    pub(super) fn clear_missing(&mut self, txn: &mut Transaction) {
        self.missing.clear();
        txn.coll_rm_range("m", "n");
    }

    /// Marks an object as missing, for good until it is recovered; `version` is the write it should be at.
    pub(super) fn add_missing(&mut self, txn: &mut Transaction, obj: HObject, version: EVersion) {
        txn.coll_set(missing_key(&obj), denc::to_bytes(&version, 0));
        self.missing.insert(obj, version);
    }

    /// An object is whole, or gone.
    pub(super) fn drop_missing(&mut self, txn: &mut Transaction, obj: &HObject) {
        if self.missing.remove(obj).is_some() {
            txn.coll_rm(missing_key(obj));
        }
    }
}

/// Everything an OSD keeps of PGs that do not exist any more is told by this.
pub(crate) fn pg_of(coll: ShardPgId) -> Option<PgId> {
    (coll.pg.pool.0 >= 0 && coll.shard == ShardPgId::NO_SHARD).then_some(coll.pg)
}
