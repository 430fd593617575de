//! How fast the object store is by itself, and what an operation costs.
//!
//! `cargo run --release -p io --example store-bench -- DIR [depth=16] [seconds=10] [size=4096] [objects=20000] [batch=... window=...]`
//! Others: rocksdb=OPTIONS, as for `bluestore_rocksdb_options`; journal=MIB; only=overwrites,omap (after as many new objects as `objects`
//! says); count=1 adds what RocksDB wrote and compacted, and its part of the loop's CPU: `bench/rocksdb.py` reads that.
//! In DIR a store is made and removed: new objects of `size` with an attribute and two collection keys each, as an OSD
//! writes them; random overwrites; random reads, cached and not. Prints operations, latency and CPU time of this
//! process, all threads, for each.

#![allow(clippy::disallowed_methods, reason = "it measures")]

use bytes::Bytes;
use io::IoSink;
use io::block::{self, Backend, DevEvents, FileDev};
use io::kv::{Layout, RocksConfig, RocksKv, Tuning};
use mio::unix::SourceFd;
use qos::Io;
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use store::*;
use types::{Errno, HObject, Mono, Now, PgId, PoolId, ShardPgId};
use uuid::Uuid;

type BenchStore = Store<FileDev, RocksKv>;
type Error = Box<dyn std::error::Error>;

const FSID: Uuid = Uuid::from_u128(1);
const PGS: u32 = 32;

struct Sink(Sender<(IoId, Result<Bytes, Errno>)>, Arc<Waker>);

impl IoSink for Sink {
    fn complete(&self, id: IoId, result: Result<Bytes, Errno>) {
        let _ = self.0.send((id, result));
        let _ = self.1.wake();
    }
}

struct Args {
    dir: PathBuf,
    depth: usize,
    seconds: u64,
    size: usize,
    objects: u64,
    options: String,
    journal: Option<u64>,
    only: Vec<String>,
    count: bool,
    memtables: Option<usize>,
    backend: Backend,
    config: StoreConfig,
}

fn args() -> Result<Args, Error> {
    let mut it = std::env::args().skip(1);
    let dir = it.next().ok_or("usage: store-bench DIR [name=value ...]")?.into();
    let mut a = Args {
        dir,
        depth: 16,
        seconds: 10,
        size: 4096,
        objects: 20_000,
        options: String::new(),
        journal: None,
        only: Vec::new(),
        count: false,
        memtables: None,
        backend: Backend::Auto,
        config: StoreConfig::default(),
    };
    for arg in it {
        let (name, value) = arg.split_once('=').ok_or("name=value, please")?;
        match name {
            "depth" => a.depth = value.parse()?,
            "seconds" => a.seconds = value.parse()?,
            "size" => a.size = value.parse()?,
            "objects" => a.objects = value.parse()?,
            "rocksdb" => a.options = value.into(),
            "journal" => a.journal = Some(value.parse::<u64>()? << 20),
            "only" => a.only = value.split(',').map(str::to_owned).collect(),
            "count" => a.count = value == "1",
            "memtables" => a.memtables = Some(value.parse()?),
            "threads" => a.backend = Backend::Threads(value.parse()?),
            "deferred" => a.config.prefer_deferred_size = value.parse()?,
            "window" => a.config.deferred_window_bytes = value.parse()?,
            "batch" => a.config.deferred_batch_bytes = value.parse()?,
            "data_cache" => a.config.data_cache_bytes = value.parse()?,
            "onode_cache" => a.config.onode_cache_bytes = value.parse()?,
            _ => return Err(format!("{name}: no such parameter").into()),
        }
    }
    Ok(a)
}

struct Bench {
    store: BenchStore,
    events: DevEvents,
    poll: Poll,
    completed: Receiver<(IoId, Result<Bytes, Errno>)>,
    started: HashMap<u64, Instant>,
    latencies: Vec<Duration>,
    begun: Instant,
    next: u64,
    flushes: u64,
    /// First and last row of each PG's log.
    logs: Vec<(u64, u64)>,
}

impl Bench {
    fn open(a: &Args) -> Result<Self, Error> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), Token(0))?);
        let (tx, completed) = channel();
        let path = a.dir.join("block");
        if !path.exists() {
            block::create_sparse(&path, 32 << 30)?;
        }
        let (mut dev, events) = block::open(&path, a.backend)?;
        poll.registry().register(&mut SourceFd(&events.as_fd().as_raw_fd()), Token(1), Interest::READABLE)?;
        let mut config = RocksConfig::new(a.dir.join("db"), Layout::ObjectStore);
        config.tuning = Tuning::parse(&a.options, "", "")?;
        config.memtable_bytes = a.memtables.unwrap_or(config.memtable_bytes);
        config.journal_bytes = a.journal.unwrap_or(config.journal_bytes);
        config.statistics = a.count;
        if a.count {
            rocksdb::perf::set_perf_stats(rocksdb::perf::PerfStatsLevel::EnableTime);
        }
        let mut kv = RocksKv::open(&config, Sink(tx, waker))?;
        if probe(&kv)?.is_none() {
            BenchStore::mkfs(&mut dev, &mut kv, FSID, Uuid::from_u128(2), 0)?;
        }
        let started = Instant::now();
        let store = Store::mount(dev, kv, a.config.clone(), FSID, 0)?;
        println!("mounted in {:.0} ms", started.elapsed().as_secs_f64() * 1e3);
        Ok(Bench {
            store,
            events,
            poll,
            completed,
            started: HashMap::new(),
            latencies: Vec::new(),
            begun: Instant::now(),
            next: 0,
            flushes: 0,
            logs: vec![(1, 0); PGS as usize],
        })
    }

    /// Keeps `depth` operations going for some time, or `count` of them; prints what came of it.
    fn run(&mut self, name: &str, a: &Args, count: u64, mut start: impl FnMut(&mut Self, u64)) -> Result<(), Error> {
        let (begin, cpu, me) = (Instant::now(), cpu_time(), thread_time());
        let end = begin + Duration::from_secs(a.seconds);
        let mut n = 0;
        let mut ready = Events::with_capacity(64);
        self.latencies.clear();
        self.flushes = 0;
        let before = self.counted();
        loop {
            while self.started.len() < a.depth && n < count && Instant::now() < end {
                n += 1;
                self.next += 1;
                self.started.insert(self.next, Instant::now());
                start(self, n - 1);
            }
            if self.started.is_empty() {
                break;
            }
            self.settle()?;
            self.events.submit();
            // What was in memory has been answered by now: maybe nothing is left to wait for.
            if self.started.is_empty() || (self.started.len() < a.depth && n < count && Instant::now() < end) {
                continue;
            }
            match self.poll.poll(&mut ready, None) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                other => other?,
            }
            self.deliver();
            self.settle()?;
        }
        self.report(name, begin.elapsed(), cpu_time() - cpu, thread_time() - me);
        if let (true, Some(before)) = (a.count, before) {
            let (after, n) = (self.counted().unwrap_or_default(), self.latencies.len().max(1) as f64);
            let of = |i: usize| (after[i] - before[i]) as f64;
            println!(
                "    rocksdb: {:.0} bytes written per op, {:.2} s of compaction, memtables {:.1}% of the loop's CPU",
                (of(0) + of(1)) / n,
                of(2) / 1e6,
                of(3) / 1e9 / (thread_time() - me).as_secs_f64() * 100.0,
            );
        }
        Ok(())
    }

    /// Bytes flushed and compacted, microseconds of compaction, nanoseconds of inserts into memtables by this thread.
    fn counted(&mut self) -> Option<[u64; 4]> {
        let text = self.store.kv_mut().statistics()?;
        let of = |name: &str, word: &str| -> u64 {
            let line = text.lines().find(|l| l.split(' ').next() == Some(name)).unwrap_or_default();
            line.split(' ').skip_while(|w| *w != word).nth(2).and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        let memtables = rocksdb::perf::PerfContext::default().metric(rocksdb::perf::PerfMetric::WriteMemtableTime);
        let (flushed, compacted) = (of("rocksdb.flush.write.bytes", "COUNT"), of("rocksdb.compact.write.bytes", "COUNT"));
        Some([flushed, compacted, of("rocksdb.compaction.times.micros", "SUM"), memtables])
    }

    /// Is this part of the bench wanted?
    fn wanted(a: &Args, name: &str) -> bool {
        a.only.is_empty() || a.only.iter().any(|o| o == name)
    }

    /// A clock that began with the bench.
    fn now(&self) -> Now {
        Now { mono: Mono(self.begun.elapsed().as_nanos() as u64 + 1), ..Now::default() }
    }

    fn deliver(&mut self) {
        let mut done = Vec::new();
        self.events.take(&mut done);
        let before = done.len();
        done.extend(self.completed.try_iter());
        self.flushes += (done.len() - before) as u64;
        for (id, result) in done {
            self.store.handle_io(self.now(), id, result);
        }
    }

    fn settle(&mut self) -> Result<(), Error> {
        while let Some(event) = self.store.poll_event() {
            let id = match event {
                StoreEvent::Committed(txc) => txc.0,
                StoreEvent::ReadDone { id, result } => {
                    result?;
                    id.0
                }
                other => return Err(format!("{other:?}").into()),
            };
            if let Some(at) = self.started.remove(&id) {
                self.latencies.push(at.elapsed());
            }
        }
        Ok(())
    }

    fn report(&mut self, name: &str, took: Duration, cpu: Duration, me: Duration) {
        let n = self.latencies.len().max(1);
        self.latencies.sort_unstable();
        let mean = self.latencies.iter().sum::<Duration>() / n as u32;
        let us = |d: Duration| d.as_secs_f64() * 1e6;
        println!(
            "{name:<28} {:>8.0} op/s  mean {:>7.0} us  p99 {:>7.0} us  max {:>8.0} us  cpu {:>6.1} us/op ({:.1} in the loop)  {:.1} op/flush  rss {} MB",
            n as f64 / took.as_secs_f64(),
            us(mean),
            us(self.latencies[(n * 99 / 100).min(self.latencies.len().saturating_sub(1))]),
            us(*self.latencies.last().unwrap_or(&Duration::ZERO)),
            us(cpu) / n as f64,
            us(me) / n as f64,
            n as f64 / self.flushes.max(1) as f64,
            rss_mb(),
        );
        let device = self.store.device();
        let known = if device.is_learned() { "" } else { ", not learned" };
        println!(
            "    device: {:.0} reads and {:.0} writes of 4 KiB a second, {:.0} and {:.0} MB/s, flush {:.0} us, depth {:.1}{known}",
            device.per_second(Io::Read, 4096),
            device.per_second(Io::Write, 4096),
            device.per_second(Io::Read, 4 << 20) * 4.194304,
            device.per_second(Io::Write, 4 << 20) * 4.194304,
            device.cost(Io::Flush, 0) as f64 / 1e3,
            device.depth(),
        );
    }

    fn write(&mut self, obj: &HObject, off: u64, data: Bytes) {
        let coll = coll_of(obj);
        let mut t = Transaction::new(coll);
        t.write(obj, off, data);
        // As an OSD does: object info, a row of the PG's log, and now and then the oldest rows go.
        t.set_attr(obj, "_", vec![7u8; 250]);
        let row = |n: u64| [b"l", &n.to_be_bytes()[..]].concat();
        let log = &mut self.logs[(obj.hash % PGS) as usize];
        log.1 += 1;
        t.coll_set(row(log.1), vec![5u8; 220]);
        if log.1 - log.0 > 600 {
            t.ops.push(Op::CollRm { keys: (log.0..log.0 + 100).map(|n| row(n).into()).collect() });
            log.0 += 100;
        }
        self.store.submit(self.now(), TxcId(self.next), t).expect("accepted");
    }
}

fn coll_of(obj: &HObject) -> ShardPgId {
    ShardPgId::whole(PgId { pool: PoolId(1), seed: obj.hash % PGS })
}

fn object(n: u64) -> HObject {
    let hash = (n as u32).wrapping_mul(2_654_435_761).rotate_left(7);
    HObject { pool: PoolId(1), hash, name: format!("benchmark_data_host_1234_object{n}").into(), ..HObject::min() }
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure we own.
    unsafe { libc::clock_gettime(id, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn cpu_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn thread_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn rss_mb() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
    (pages * 4096) >> 20
}

fn main() -> Result<(), Error> {
    let a = args()?;
    if a.dir.exists() && !dir_is_ours(&a.dir) {
        return Err(format!("{} exists and is not a bench's", a.dir.display()).into());
    }
    let _ = std::fs::remove_dir_all(&a.dir);
    std::fs::create_dir_all(&a.dir)?;
    let result = bench(&a);
    std::fs::remove_dir_all(&a.dir)?;
    result
}

fn dir_is_ours(dir: &Path) -> bool {
    dir.read_dir().is_ok_and(|mut d| d.all(|e| e.is_ok_and(|e| e.file_name() == "block" || e.file_name() == "db")))
}

fn bench(a: &Args) -> Result<(), Error> {
    let mut b = Bench::open(a)?;
    b.run("(collections)", a, PGS.into(), |b, n| {
        let mut t = Transaction::new(ShardPgId::whole(PgId { pool: PoolId(1), seed: n as u32 }));
        t.create_coll(PGS.ilog2());
        b.store.submit(b.now(), TxcId(b.next), t).expect("accepted");
    })?;
    let payload = Bytes::from(vec![0x5a; a.size]);
    let one = Args { depth: 1, seconds: 2, ..args()? };
    if a.only.is_empty() {
        b.run("new objects, depth 1", &one, u64::MAX, |b, n| b.write(&object((1 << 40) + n), 0, payload.clone()))?;
    }
    let mut written = 0;
    let count = if a.only.is_empty() { u64::MAX } else { a.objects };
    b.run("new objects", a, count, |b, n| {
        written = n + 1;
        b.write(&object(n), 0, payload.clone());
    })?;
    let some = written.min(a.objects);
    let mut x = 1u64;
    let mut random = move || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % some
    };
    if Bench::wanted(a, "overwrites") {
        b.run("overwrites", a, u64::MAX, |b, _| b.write(&object(random()), 0, payload.clone()))?;
    }
    if Bench::wanted(a, "omap") {
        // As an index does: a key of 40 bytes and a value of 160 in one of a few objects, and every fourth time another one goes.
        b.run("omap", a, u64::MAX, |b, n| {
            let obj = object(random() % 64);
            let name = |n: u64| format!("{:016x}.entry-of-an-index-{n:08}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut t = Transaction::new(coll_of(&obj));
            let mut value = vec![0u8; 160];
            value.chunks_mut(8).enumerate().for_each(|(i, c)| c.copy_from_slice(&(n + i as u64 % 3).wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()));
            t.omap_set(&obj, vec![(name(n).into(), value.into())]);
            if n % 4 == 3 {
                t.omap_rm(&obj, vec![name(n / 2).into()]);
            }
            b.store.submit(b.now(), TxcId(b.next), t).expect("accepted");
        })?;
    }
    if !a.only.is_empty() {
        return Ok(());
    }
    let read = |b: &mut Bench, n: u64, flags: ReadFlags| {
        let obj = object(n);
        b.store.handle_timeout(b.now());
        b.store.read(ReadId(b.next), coll_of(&obj), &obj, 0, 1 << 30, flags);
    };
    b.run("random reads", a, u64::MAX, |b, _| read(b, random(), ReadFlags::default()))?;
    let bypass = ReadFlags { bypass: true, ..ReadFlags::default() };
    b.run("random reads, uncached", a, u64::MAX, |b, _| read(b, random(), bypass))?;
    if std::env::var_os("STATS").is_some() {
        println!("{}", b.store.kv_mut().property("rocksdb.cfstats-no-file-histogram"));
        println!("memory of the engine: {} MB", b.store.kv_mut().memory() >> 20);
    }
    drop(b);
    Bench::open(a).map(drop)
}
