//! Flushes of the engine's log: by a thread of their own, or by the event loop where the disk is quick and little waits.
//!
//! Why: to hand a flush to a thread and its end back takes two switches of threads and three system calls. For a lone write
//! that is a sixth of its CPU, and there is nothing else to do. Where many are on their way, the loop has better to do than
//! to wait; and with a slow disk it may not wait, for readers would wait with it. Figures: docs/benchmarks-log.md.

use super::{journal, kv_error, locked};
use crate::sink::IoSink;
use bytes::Bytes;
use rocksdb::DB;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::{IoId, KvError};
use types::Errno;

/// A disk whose flushes take longer than this, on average, is not waited for.
const QUICK: Duration = Duration::from_micros(400);
/// More bytes than this are of more than one small write.
const ALONE_BYTES: usize = 8 << 10;
/// The average is over about this many flushes.
const AVERAGED_OVER: u64 = 16;

/// How a flush ended.
pub type Flushed = (IoId, Result<Bytes, Errno>);

/// Hands out the flushes of one database; clones speak of the same one.
#[derive(Clone)]
pub struct Flusher(Arc<Shared>);

/// What is flushed.
pub(super) enum Log {
    /// RocksDB's own.
    Engine(Arc<DB>),
    Journal(Arc<journal::Shared>),
}

struct Shared {
    log: Log,
    /// An event loop calls `end_turn`.
    by_loop: AtomicBool,
    /// What the loop has to see to at the end of its turn.
    requested: Mutex<Vec<IoId>>,
    /// Flushes that the thread has to see to, or sees to.
    handed_over: AtomicUsize,
    /// `None` when the database is being closed.
    to_thread: Mutex<Option<Sender<IoId>>>,
    mean_ns: AtomicU64,
}

impl Flusher {
    /// Starts the thread, which answers through `sink` until `close`.
    pub(super) fn start(log: Log, sink: impl IoSink + 'static) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (to_thread, queue) = channel();
        let shared = Shared {
            log,
            by_loop: AtomicBool::new(false),
            requested: Mutex::default(),
            handed_over: AtomicUsize::new(0),
            to_thread: Mutex::new(Some(to_thread)),
            mean_ns: AtomicU64::new(0),
        };
        let flusher = Flusher(Arc::new(shared));
        let shared = flusher.0.clone();
        let thread = std::thread::Builder::new().name("kv_sync".into()).spawn(move || shared.serve(&queue, &sink))?;
        Ok((flusher, thread))
    }

    /// Asks for a flush of everything applied so far.
    pub(super) fn request(&self, id: IoId) {
        match self.0.by_loop.load(Ordering::Relaxed) {
            true => locked(&self.0.requested).push(id),
            false => self.0.hand_over(id),
        }
    }

    /// Flushes everything applied so far, and waits for it.
    pub(super) fn flush_now(&self) -> Result<(), KvError> {
        self.0.log.flush()
    }

    pub(super) fn close(&self) {
        *locked(&self.0.to_thread) = None;
    }

    /// From now on the caller promises `end_turn` after every turn.
    pub fn run_by_loop(&self) {
        self.0.by_loop.store(true, Ordering::Relaxed);
    }

    /// The loop has sent everything it had to send. True if it is to call `flush` when it has nothing else to do; else
    /// there is nothing to flush, or the thread sees to it.
    pub fn end_turn(&self) -> bool {
        let mut requested = locked(&self.0.requested);
        if !self.0.is_for_the_loop() {
            requested.drain(..).for_each(|id| self.0.hand_over(id));
        }
        !requested.is_empty()
    }

    /// Flushes what was asked for.
    pub fn flush(&self, done: &mut Vec<Flushed>) {
        let ids = std::mem::take(&mut *locked(&self.0.requested));
        if !ids.is_empty() {
            let result = self.0.flush();
            done.extend(ids.into_iter().map(|id| (id, result.clone())));
        }
    }
}

impl Log {
    /// Bytes that a flush would write, where they can be told.
    fn waiting(&self) -> usize {
        match self {
            Log::Engine(_) => 0,
            Log::Journal(journal) => journal.waiting(),
        }
    }

    fn flush(&self) -> Result<(), KvError> {
        match self {
            Log::Engine(db) => db.flush_wal(true).map_err(|e| kv_error("flush", e)),
            Log::Journal(journal) => journal.sync().map(drop),
        }
    }
}

impl Shared {
    fn is_for_the_loop(&self) -> bool {
        self.mean_ns.load(Ordering::Relaxed) <= QUICK.as_nanos() as u64
            && self.handed_over.load(Ordering::Relaxed) == 0
            && self.log.waiting() <= ALONE_BYTES
    }

    fn hand_over(&self, id: IoId) {
        self.handed_over.fetch_add(1, Ordering::Relaxed);
        if let Some(to_thread) = &*locked(&self.to_thread) {
            // The thread lives as long as the sender does.
            let _ = to_thread.send(id);
        }
    }

    /// The thread: takes every request that waits, syncs once, answers them all.
    fn serve(&self, queue: &Receiver<IoId>, sink: &impl IoSink) {
        while let Ok(first) = queue.recv() {
            let mut ids = vec![first];
            ids.extend(queue.try_iter());
            let result = self.flush();
            self.handed_over.fetch_sub(ids.len(), Ordering::Relaxed);
            for id in ids {
                sink.complete(id, result.clone());
            }
        }
    }

    fn flush(&self) -> Result<Bytes, Errno> {
        let started = Instant::now();
        let result = self.log.flush();
        self.learn(started.elapsed());
        result.map(|()| Bytes::new()).map_err(|e| e.errno)
    }

    /// Takes a flush's duration into the average.
    fn learn(&self, took: Duration) {
        let mean = self.mean_ns.load(Ordering::Relaxed);
        self.mean_ns.store(mean - mean / AVERAGED_OVER + took.as_nanos() as u64 / AVERAGED_OVER, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Layout, RocksConfig, RocksKv};
    use super::*;
    use store::Kv;

    #[test]
    fn the_loop_flushes_at_the_end_of_its_turn_and_leaves_slow_disks_to_the_thread() {
        let dir = crate::TempDir::new("kv-loop");
        let (tx, answers) = channel();
        let mut kv = RocksKv::open(&RocksConfig::new(dir.path(), Layout::ObjectStore), tx).unwrap();
        let flusher = kv.flusher();
        flusher.run_by_loop();
        kv.flush(IoId(1));
        kv.flush(IoId(2));
        let mut done = Vec::new();
        assert!(flusher.end_turn());
        flusher.flush(&mut done);
        assert_eq!(done, [(IoId(1), Ok(Bytes::new())), (IoId(2), Ok(Bytes::new()))]);
        assert!(answers.try_recv().is_err(), "answered once");
        flusher.0.mean_ns.store(u64::from(u32::MAX), Ordering::Relaxed);
        kv.flush(IoId(3));
        assert!(answers.recv_timeout(Duration::from_millis(20)).is_err(), "not before the turn has ended");
        done.clear();
        assert!(!flusher.end_turn());
        flusher.flush(&mut done);
        assert_eq!(answers.recv_timeout(Duration::from_secs(9)).unwrap(), (IoId(3), Ok(Bytes::new())));
        assert!(done.is_empty());
        drop(kv);
    }

    #[test]
    fn a_disk_that_becomes_quick_again_is_waited_for_again() {
        let dir = crate::TempDir::new("kv-mean");
        let (tx, answers) = channel();
        let mut kv = RocksKv::open(&RocksConfig::new(dir.path(), Layout::ObjectStore), tx).unwrap();
        let flusher = kv.flusher();
        flusher.run_by_loop();
        (0..10 * AVERAGED_OVER).for_each(|_| flusher.0.learn(2 * QUICK));
        kv.flush(IoId(1));
        assert!(!flusher.end_turn(), "left to the thread");
        answers.recv_timeout(Duration::from_secs(9)).unwrap().1.unwrap();
        (0..10 * AVERAGED_OVER).for_each(|_| flusher.0.learn(QUICK / 2));
        kv.flush(IoId(2));
        assert!(flusher.end_turn(), "waited for again");
    }
}
