//! The object store's journal: RocksDB without its own log.
//!
//! Room: io.   Owns: the ring of frames in a preallocated file, the rows that come and go (deferred writes, PG logs), and
//! the checkpoints that let the ring forget. Why not RocksDB's log: docs/decisions/2026-11-22-a-journal-of-our-own.md.
//!
//! Holds:
//! - Memtables are flushed by nobody but `checkpoint`, and only when every batch in them is durable in the journal. So the
//!   database on disk never knows of something that the journal does not: what it says of deferred blocks is true.
//! - All families are flushed together, and with them the root, which says how far the journal has been applied and from
//!   where it has to be read. Behind the root's frame, every batch is applied again.
//! - Objects' and collections' pairs stay out of the database until a checkpoint begins (`gathered`), which takes them over a few
//!   with every batch, lest anybody wait for all of them. Until then a scan walks through both.
//! - Transient rows (`store::transient`) live in the journal and in memory, and most never reach the database. They hold
//!   the ring's tail; those that would hold it for too long are spilled into a family of their own by a checkpoint.

mod file;
mod gathered;
mod ops;
mod ring;
mod root;
mod rows;

use super::tables::Tables;
use super::{OpenError, RocksConfig, kv_error_io, locked};
use bytes::Bytes;
pub use file::Label;
pub(super) use file::device_room;
pub(super) use ring::PAGE;
use file::RingFile;
use gathered::Gathered;
pub use gathered::{Walk, in_order_of_walk};
use ring::{HEADER, Kind, Place, Reader, Writer};
use rocksdb::WriteBatch;
pub use root::{KEY as ROOT_KEY, Root};
use rows::Rows;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{KvBatch, KvError, KvOp, transient};

/// A frame that has grown to this is written without waiting for a flush.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// What an operation takes in a memtable beside its bytes, roughly.
const ROW_OVERHEAD: usize = 64;
/// At least so many pairs a checkpoint takes over with every batch.
const TAKEN_OVER_MIN: u64 = 16;
/// How often to look whether the ring has got room.
const PAUSE: Duration = Duration::from_millis(1);

/// A row that is older than so many eighths of the ring is spilled; when so many are in use, a checkpoint is due. In between
/// a row may go by itself, as a PG's log does after some hundred writes.
const SPILLED_FROM: u64 = 3;
const DUE_FROM: u64 = 7;

/// The first checkpoint comes early by less than so many 1024ths.
const EARLY_MAX: u64 = 512;

/// The loop's side.
pub struct Journal {
    shared: Arc<Shared>,
    /// All transient rows.
    rows: Rows,
    /// Pairs that the database gets with the next checkpoint.
    gathered: Gathered,
    size: u64,
    /// What lies before this may be overwritten.
    tail: u64,
    /// A checkpoint after this many bytes in memtables.
    pub memtable_bytes_max: u64,
    /// Bytes in them, roughly.
    memtable_bytes: u64,
    /// A checkpoint has begun, and the database takes over what was gathered.
    taking_over: Option<TakingOver>,
    /// Written, and not yet known to be on disk.
    checkpoint: Option<Root>,
    /// By so many 1024ths the next checkpoint comes early. OSDs that hold copies of the same fill their journals alike:
    /// each begins at a point of its own, lest all make checkpoints at the same moment and clients see it.
    early: u64,
}

/// A checkpoint whose pairs the database gets a few at a time.
#[derive(Clone, Copy)]
struct TakingOver {
    /// The last frame before it began.
    last: Place,
    /// Where the ring ended at the last step, and where it may end at the last one of all: halfway from where the checkpoint
    /// began to where the ring is full, for the database still has to write it all to disk then.
    end: u64,
    goal: u64,
}

/// What the flushing thread needs too.
pub struct Shared {
    log: Mutex<Log>,
    /// Locked for moments only, and after `log`.
    pending: Mutex<Pending>,
}

struct Log {
    writer: Writer<RingFile>,
    /// Memory for the next `Pending`.
    spare: Vec<u8>,
}

/// The frame that is being filled.
struct Pending {
    /// Room for a header, then the payload.
    bytes: Vec<u8>,
    /// Where it will be, or at the start of the lap behind.
    place: Place,
}

impl Journal {
    /// Opens the journal of a database, and applies what the database does not have yet; makes one for a database that has
    /// none. Errors: see `OpenError`; one that is damaged where it was durable is refused.
    pub fn open(tables: &Tables, config: &RocksConfig) -> Result<Self, OpenError> {
        let path = config.journal_path();
        let io = |source| OpenError::Journal { path: path.clone(), source };
        let kv = |source| OpenError::Kv { dir: config.dir.clone(), source };
        let root = tables.root().map_err(kv)?;
        if root.is_none() {
            tables.spill_all().map_err(kv)?;
        }
        let mut rows = Rows::new(root.map_or(config.journal_bytes, |r| r.size));
        for (key, value) in tables.spilled().map_err(kv)? {
            rows.put(&key, &value, None);
        }
        let run = || getrandom::u64().map_err(|e| io(e.into()));
        let memtable_bytes_max = config.memtable_bytes_max();
        let Some(root) = root else {
            let first = Place { pos: 0, seq: 1, run: run()? };
            let medium = RingFile::create(&path, config.journal_bytes, config.owner).map_err(io)?;
            let writer = Writer::start(medium, config.journal_bytes, first, run()?).map_err(io)?;
            let mut this = Journal::new(writer, rows, 0, memtable_bytes_max);
            this.checkpoint(tables, Spill::Old, true).map_err(kv)?;
            return Ok(this);
        };
        let mut gathered = Gathered::default();
        let mut replay =
            Replay { tables, rows: &mut rows, gathered: &mut gathered, applied: root.applied, bytes: 0, last: root.start };
        let next = replay.run(&path, &root, config.owner)?;
        let (last, replayed) = (replay.last, replay.bytes);
        let medium = RingFile::open(&path, root.size, config.owner).map_err(io)?;
        let mut tail = root.start.pos;
        if next.pos - tail > root.size / 8 * DUE_FROM {
            // Whoever is killed again and again as he starts must not fill the ring with beginnings.
            gathered.take_over_all(tables).map_err(kv)?;
            let root = next_root(tables, &mut rows, Spill::Old.before(next.pos, root.size), last, root.size, true).map_err(kv)?;
            tail = root.start.pos;
        }
        let writer = Writer::start(medium, root.size, next, run()?).map_err(io)?;
        let mut this = Journal::new(writer, rows, tail, memtable_bytes_max);
        this.gathered = gathered;
        this.memtable_bytes = replayed;
        Ok(this)
    }

    fn new(writer: Writer<RingFile>, rows: Rows, tail: u64, memtable_bytes_max: u64) -> Self {
        let (size, place, early) = (writer.size, writer.next, writer.next.run % EARLY_MAX);
        let log = Log { writer, spare: Vec::new() };
        let pending = Pending { bytes: vec![0; HEADER], place };
        let shared = Arc::new(Shared { log: Mutex::new(log), pending: Mutex::new(pending) });
        Journal {
            shared,
            rows,
            gathered: Gathered::default(),
            size,
            tail,
            memtable_bytes_max,
            memtable_bytes: 0,
            taking_over: None,
            checkpoint: None,
            early,
        }
    }

    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Applies a batch: readers see it; durable with the next `sync`.
    pub fn apply(&mut self, tables: &Tables, batch: &KvBatch) -> Result<(), KvError> {
        let bytes = ops::size(&batch.ops);
        if bytes as u64 > self.size / 8 {
            return self.apply_beside(tables, batch);
        }
        self.make_room(tables, bytes as u64)?;
        let place = self.shared.add(&batch.ops, bytes)?;
        self.memtable_bytes += apply(tables, &mut self.rows, &mut self.gathered, batch, Some(place))?;
        Ok(())
    }

    /// A batch that is too large for the ring goes into the database at once, and is durable when this returns. So that
    /// reading never comes past rows that it deletes, all go there, and an empty frame is the last that has been applied.
    fn apply_beside(&mut self, tables: &Tables, batch: &KvBatch) -> Result<(), KvError> {
        self.make_room(tables, 2 * ring::PAGE)?;
        self.shared.sync()?;
        self.shared.add(&[], ops::size(&[]))?;
        self.shared.sync()?;
        apply(tables, &mut self.rows, &mut self.gathered, batch, None)?;
        self.checkpoint(tables, Spill::All, true)
    }

    /// Begins a checkpoint if one is due, goes on with the one that has begun, and waits for its end if there is no room without it.
    fn make_room(&mut self, tables: &Tables, bytes: u64) -> Result<(), KvError> {
        loop {
            if let Some(root) = self.checkpoint
                && tables.root_on_disk()? == Some(root)
            {
                self.end_checkpoint(root);
            }
            let end = self.shared.end_at_most(bytes);
            let used = end - self.tail;
            let part = |whole: u64| whole / 1024 * (1024 - self.early);
            let in_memory = self.memtable_bytes + self.gathered.recent_bytes();
            let due = used > part(self.size / 8 * DUE_FROM) || in_memory > part(self.memtable_bytes_max);
            let full = used > self.size;
            if self.checkpoint.is_none() && (due || self.taking_over.is_some()) {
                match full {
                    true => self.checkpoint(tables, Spill::Old, false)?,
                    false => self.take_over(tables, end)?,
                }
            }
            if !full {
                return Ok(());
            }
            tables.check_background()?;
            std::thread::sleep(PAUSE);
        }
    }

    /// One step of a checkpoint, as large as the part of the way to its goal that the ring came since the last one. `end`:
    /// where the ring will end.
    fn take_over(&mut self, tables: &Tables, end: u64) -> Result<(), KvError> {
        let Some(TakingOver { last, end: before, goal }) = self.taking_over else {
            let last = self.shared.sync()?.0;
            self.taking_over = Some(TakingOver { last, end, goal: end.midpoint(self.tail + self.size) });
            self.gathered.freeze();
            (self.memtable_bytes, self.early) = (0, 0);
            return Ok(());
        };
        let left = self.gathered.left();
        let due = match goal.checked_sub(before) {
            Some(way @ 1..) => left.saturating_mul(end.saturating_sub(before)).div_ceil(way),
            _ => left,
        };
        self.taking_over = Some(TakingOver { last, end, goal });
        if self.gathered.take_over(tables, due.max(TAKEN_OVER_MIN) as usize)? {
            // Families that nothing is gathered of have newer batches, too.
            let (_, head) = self.shared.sync()?;
            self.end_taking_over(tables, last, Spill::Old.before(head, self.size), false)?;
        }
        Ok(())
    }

    /// Has the database keep everything applied so far, at once, so that the ring may forget it.
    fn checkpoint(&mut self, tables: &Tables, spill: Spill, wait: bool) -> Result<(), KvError> {
        let (last, head) = self.shared.sync()?;
        self.gathered.take_over_all(tables)?;
        (self.memtable_bytes, self.early) = (0, 0);
        self.end_taking_over(tables, last, spill.before(head, self.size), wait)
    }

    /// The database has been given everything up to the frame `last`, and the journal has everything: it can be flushed.
    fn end_taking_over(&mut self, tables: &Tables, last: Place, spilled: u64, wait: bool) -> Result<(), KvError> {
        let root = next_root(tables, &mut self.rows, spilled, last, self.size, wait)?;
        self.taking_over = None;
        self.checkpoint = Some(root);
        if wait {
            self.end_checkpoint(root);
        }
        Ok(())
    }

    /// The database has it on disk.
    fn end_checkpoint(&mut self, root: Root) {
        self.tail = root.start.pos;
        self.checkpoint = None;
    }

    /// Leaves the database as it is to be opened next. False if it must not be closed, for it would keep what the
    /// journal has not.
    pub fn close(&mut self, tables: &Tables) -> bool {
        // An error is told by the next opening if it matters.
        let _ = self.checkpoint(tables, Spill::Old, true);
        !locked(&self.shared.log).writer.has_failed()
    }

    /// The value of a key, `Some(None)` if there is none; `None` if the database knows.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        match transient(key) {
            Some(_) => Some(self.rows.get(key)),
            None => self.gathered.get(key),
        }
    }

    /// Pairs of the range that the database does not have, `None` for what is deleted, but for rows; from the range's lower end or its upper.
    pub fn walk(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, ascending: bool) -> Walk<'_> {
        self.gathered.walk(from, to, ascending)
    }

    /// Bytes of memory in pairs that the database does not have.
    pub fn memory(&self) -> u64 {
        self.gathered.bytes()
    }

    /// Bytes of the ring that may not be overwritten, and all of it.
    pub fn used(&self) -> (u64, u64) {
        (self.shared.end_at_most(0).saturating_sub(self.tail), self.size)
    }

    /// Rows of the range, in ascending order.
    pub fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> impl DoubleEndedIterator<Item = (Bytes, Bytes)> {
        self.rows.range(from, to)
    }
}

impl Shared {
    /// Adds a batch to the frame; returns from where on it can be read.
    fn add(&self, batch: &[KvOp], bytes: usize) -> Result<Place, KvError> {
        let mut pending = locked(&self.pending);
        if pending.bytes.len() > HEADER && pending.bytes.len() + bytes > FRAME_BYTES_MAX {
            drop(pending);
            self.write_out(&mut locked(&self.log))?;
            pending = locked(&self.pending);
        }
        ops::put(&mut pending.bytes, batch);
        Ok(pending.place)
    }

    /// Where the ring will end if so many bytes are added: however they come to be cut into frames, of which each may
    /// have to skip the rest of a lap that is shorter than itself.
    fn end_at_most(&self, bytes: u64) -> u64 {
        let pending = locked(&self.pending);
        pending.place.pos + 2 * (pending.bytes.len() as u64 + bytes) + 8 * ring::PAGE
    }

    /// Bytes that have been added and not written.
    pub fn waiting(&self) -> usize {
        locked(&self.pending).bytes.len() - HEADER
    }

    /// Makes everything added so far durable. Returns the last frame, and where the next will begin.
    pub fn sync(&self) -> Result<(Place, u64), KvError> {
        let mut log = locked(&self.log);
        self.write_out(&mut log)?;
        log.writer.sync().map_err(|e| kv_error_io("journal flush", &e))?;
        Ok((log.writer.last, log.writer.next.pos))
    }

    /// Writes the frame that is being filled, if there is anything in it.
    fn write_out(&self, log: &mut Log) -> Result<(), KvError> {
        let mut bytes = {
            let mut pending = locked(&self.pending);
            if pending.bytes.len() == HEADER {
                return Ok(());
            }
            pending.place = log.writer.places(pending.bytes.len() - HEADER).1;
            let mut next = std::mem::take(&mut log.spare);
            next.resize(HEADER, 0);
            std::mem::replace(&mut pending.bytes, next)
        };
        let written = log.writer.append(Kind::Batches, &mut bytes);
        if bytes.capacity() <= 2 * FRAME_BYTES_MAX {
            bytes.clear();
            log.spare = bytes;
        }
        written.map_err(|e| kv_error_io("journal write", &e))
    }
}

/// Makes an empty ring, of which nothing is to be read.
pub(super) fn make(path: &Path, size: u64, owner: [u8; 16]) -> std::io::Result<()> {
    RingFile::create(path, size, owner).map(drop)
}

/// Applies a batch to rows, what is gathered, and memtables, and returns what it takes in these. `place`: from where on the
/// journal has it; if `None`, the database takes its rows too.
fn apply(
    tables: &Tables,
    rows: &mut Rows,
    gathered: &mut Gathered,
    batch: &KvBatch,
    place: Option<Place>,
) -> Result<u64, KvError> {
    let mut bytes = 0;
    let mut out = WriteBatch::default();
    for (i, op) in batch.ops.iter().enumerate() {
        let stays = transient(op.key()).is_none();
        if !stays || matches!(op, KvOp::DeleteRange(..)) {
            change_rows(tables, rows, op, place, Some(&mut out));
        }
        match op {
            _ if !stays => {}
            KvOp::Put(key, value) if tables.layout.gathers(key) => gathered.put(key, Some(value)),
            KvOp::Delete(key) if tables.layout.gathers(key) => gathered.put(key, None),
            KvOp::DeleteRange(key, _) if tables.layout.gathers(key) => {
                // As of its place among everything: what comes before is in the database, what comes behind is not.
                tables.write(std::mem::take(&mut out))?;
                gathered.take_over_all(tables)?;
                tables.add(&mut out, op, &[])?;
                tables.write(std::mem::take(&mut out))?;
            }
            _ => {
                bytes += ROW_OVERHEAD + ops::size_of(op);
                tables.add(&mut out, op, &batch.ops[..i])?;
            }
        }
    }
    if !out.is_empty() {
        tables.write(out)?;
    }
    Ok(bytes as u64)
}

/// What an operation does to rows. `out`: the batch for the database; `None` if the database is beyond it: then a row that
/// it has is as it is to be.
fn change_rows(tables: &Tables, rows: &mut Rows, op: &KvOp, place: Option<Place>, mut out: Option<&mut WriteBatch>) {
    let mut goes = |key: &[u8], spilled: bool| match &mut out {
        _ if !spilled => true,
        None => false,
        Some(out) => {
            out.delete_cf(tables.rows(), key);
            true
        }
    };
    match op {
        KvOp::Put(key, value) if transient(key).is_some() => {
            if goes(key, rows.is_spilled(key)) {
                rows.put(key, value, place);
            }
            if place.is_none() && let Some(out) = out {
                out.put_cf(tables.rows(), key, value);
            }
        }
        KvOp::Delete(key) => rows.remove_if(key, |spilled| goes(key, spilled)),
        KvOp::DeleteRange(from, to) if from < to => rows.remove_range(from, to, goes),
        KvOp::Put(..) | KvOp::DeleteRange(..) => {}
    }
}

/// Which rows a checkpoint spills.
#[derive(Clone, Copy)]
enum Spill {
    Old,
    All,
}

impl Spill {
    /// The position before which rows are spilled, if the ring has come to `head`.
    fn before(self, head: u64, size: u64) -> u64 {
        match self {
            Spill::Old => head.saturating_sub(size / 8 * SPILLED_FROM),
            Spill::All => u64::MAX,
        }
    }
}

/// Writes the root of a checkpoint, and the rows from before `spilled`, and begins the flush of all families. Every batch
/// applied has to be durable in the journal, and the database to have everything up to its frame `last`.
fn next_root(
    tables: &Tables,
    rows: &mut Rows,
    spilled: u64,
    last: Place,
    size: u64,
    wait: bool,
) -> Result<Root, KvError> {
    let mut out = WriteBatch::default();
    let oldest = rows.spill_before(spilled, last, |key, value| out.put_cf(tables.rows(), key, value));
    let start = if oldest.seq < last.seq { oldest } else { last };
    let root = Root { start, applied: last.seq, size };
    tables.put_root(&mut out, &root);
    tables.write(out)?;
    tables.flush(wait)?;
    Ok(root)
}

/// Reads a journal at opening.
struct Replay<'a> {
    tables: &'a Tables,
    rows: &'a mut Rows,
    gathered: &'a mut Gathered,
    /// The database has everything up to this frame, but for rows.
    applied: u64,
    /// Put into memtables.
    bytes: u64,
    /// The last frame.
    last: Place,
}

impl Replay<'_> {
    /// Applies what is missing; returns where the next frame goes.
    fn run(&mut self, path: &Path, root: &Root, owner: [u8; 16]) -> Result<Place, OpenError> {
        let io = |source| OpenError::Journal { path: path.into(), source };
        let damaged = |frame, why| OpenError::JournalDamaged { path: path.into(), frame, why };
        let medium = RingFile::open_to_read(path, root.size, owner).map_err(io)?;
        let mut reader = Reader::new(medium, root.size, root.start);
        while let Some(frame) = reader.read().map_err(io)? {
            self.last = frame.place;
            if frame.kind != Kind::Batches {
                continue;
            }
            let batches = ops::parse(&frame.payload).map_err(|_| damaged(frame.place.seq, "it cannot be understood"))?;
            for batch in batches {
                self.apply(&batch, frame.place).map_err(|source| OpenError::Kv { dir: path.into(), source })?;
            }
        }
        let next = reader.next;
        if next.seq <= root.applied {
            return Err(damaged(next.seq, "the database was there before"));
        }
        match reader.durable_beyond().map_err(io)? {
            Some(_) => Err(damaged(next.seq, "later ones are whole")),
            None => Ok(next),
        }
    }

    fn apply(&mut self, batch: &KvBatch, place: Place) -> Result<(), KvError> {
        if place.seq > self.applied {
            self.bytes += apply(self.tables, self.rows, self.gathered, batch, Some(place))?;
            return Ok(());
        }
        batch.ops.iter().for_each(|op| change_rows(self.tables, self.rows, op, Some(place), None));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod place_tests;

/// The same database in another place.
#[cfg(test)]
fn config_at(config: &RocksConfig, dir: std::path::PathBuf, journal: Option<std::path::PathBuf>) -> RocksConfig {
    RocksConfig { dir, journal, ..config.clone() }
}
