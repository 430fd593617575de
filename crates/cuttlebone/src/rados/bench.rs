//! `rados bench`: writes, sequential and random reads, so many at a time.
//!
//! Objects and the metadata object are named and laid out as by the stock command: either can read what the other
//! wrote.

use crate::out::say;
use super::said;
use crate::session::Session;
use anyhow::{Result, bail};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use client::IoCtx;
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

const METADATA: &[u8] = b"benchmark_last_metadata";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    Write,
    Seq,
    Rand,
}

#[derive(Args)]
pub struct BenchArgs {
    seconds: u64,
    pattern: Pattern,
    /// Bytes per operation, which is an object
    #[arg(short = 'b', long, default_value_t = 4 << 20)]
    block_size: usize,
    /// Operations at a time
    #[arg(short = 't', long, default_value_t = 16)]
    concurrent_ios: usize,
    /// Keep what was written, for read runs
    #[arg(long)]
    no_cleanup: bool,
}

/// What a write run left for read runs.
struct Written {
    object_size: u64,
    count: i32,
    pid: i32,
    op_size: u64,
}

fn object_name(pid: i32, n: u64) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("benchmark_data_{}_{pid}_object{n}", host.trim())
}

/// Runs a benchmark and prints its figures. Errors: an operation failed, or there is nothing to read.
pub fn run(session: &Session, io: &IoCtx, args: &BenchArgs) -> Result<()> {
    if args.block_size == 0 || args.concurrent_ios == 0 {
        bail!("block size and number of operations must be above 0");
    }
    match args.pattern {
        Pattern::Write => write(session, io, args),
        Pattern::Seq | Pattern::Rand => read(session, io, args),
    }
}

fn write(session: &Session, io: &IoCtx, args: &BenchArgs) -> Result<()> {
    let data = Bytes::from((0..args.block_size).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<u8>>());
    let pid = std::process::id() as i32;
    let work = |n: u64| {
        let (io, data) = (io.clone(), data.clone());
        async move { io.write_full(object_name(pid, n).as_bytes(), data).await }
    };
    let figures = measure(session, args, u64::MAX, work)?;
    figures.print("write", args.block_size);
    let written = Written {
        object_size: args.block_size as u64,
        count: i32::try_from(figures.latencies.len()).unwrap_or(i32::MAX),
        pid,
        op_size: args.block_size as u64,
    };
    if args.no_cleanup {
        let meta = denc::to_bytes(&(written.object_size, written.count, written.pid, written.op_size), 0);
        return said(session.block_on(io.write_full(METADATA, meta)), "writing", "the metadata object");
    }
    cleanup(session, io, args, &written)
}

fn cleanup(session: &Session, io: &IoCtx, args: &BenchArgs, written: &Written) -> Result<()> {
    let pid = written.pid;
    let args = BenchArgs { seconds: u64::MAX / 2, ..*args };
    let work = |n: u64| {
        let io = io.clone();
        async move { io.remove(object_name(pid, n).as_bytes()).await }
    };
    measure(session, &args, written.count as u64, work).map(|_| ())
}

fn read(session: &Session, io: &IoCtx, args: &BenchArgs) -> Result<()> {
    let meta = session.block_on(io.read(METADATA, 0, 0));
    let meta = meta.map_err(|_| anyhow::anyhow!("nothing to read: run `bench ... write --no-cleanup` first"))?;
    let (object_size, count, pid, op_size) = denc::from_slice::<(u64, i32, i32, u64)>(&meta)?;
    let written = Written { object_size, count, pid, op_size };
    let count = written.count.max(1) as u64;
    let random = args.pattern == Pattern::Rand;
    let work = |n: u64| {
        // A fixed stride that shares no factor with most counts visits objects in a scattered order.
        let at = if random { n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11 } else { n } % count;
        let io = io.clone();
        async move { io.read(object_name(pid, at).as_bytes(), 0, op_size).await.map(|_| ()) }
    };
    let most = if random { u64::MAX } else { count };
    let figures = measure(session, args, most, work)?;
    figures.print(if random { "rand" } else { "seq" }, written.op_size as usize);
    Ok(())
}

struct Figures {
    latencies: Vec<Duration>,
    elapsed: Duration,
}

/// Keeps so many operations in flight until the time is over or `most` were begun, then waits for the last.
fn measure<F>(session: &Session, args: &BenchArgs, most: u64, work: impl Fn(u64) -> F) -> Result<Figures>
where
    F: Future<Output = Result<(), types::Errno>>,
{
    let begin = Instant::now();
    let end = begin + Duration::from_secs(args.seconds.min(1 << 30));
    let (next, latencies, failed) = (RefCell::new(0u64), RefCell::new(Vec::new()), RefCell::new(None));
    let lane = || async {
        loop {
            let n = *next.borrow();
            if n >= most || Instant::now() >= end || failed.borrow().is_some() {
                return;
            }
            *next.borrow_mut() += 1;
            let start = Instant::now();
            match work(n).await {
                Ok(()) => latencies.borrow_mut().push(start.elapsed()),
                Err(errno) => *failed.borrow_mut() = Some(errno),
            }
        }
    };
    let mut lanes: Vec<Option<Pin<Box<_>>>> = (0..args.concurrent_ios).map(|_| Some(Box::pin(lane()))).collect();
    session.block_on(poll_fn(|cx| {
        for slot in &mut lanes {
            if slot.as_mut().is_some_and(|lane| lane.as_mut().poll(cx).is_ready()) {
                *slot = None;
            }
        }
        if lanes.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    }));
    drop(lanes);
    if let Some(errno) = failed.into_inner() {
        bail!("bench: {errno}");
    }
    Ok(Figures { latencies: latencies.into_inner(), elapsed: begin.elapsed() })
}

impl Figures {
    fn print(&self, what: &str, op_size: usize) {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let count = sorted.len();
        let secs = self.elapsed.as_secs_f64();
        let at = |q: f64| sorted.get(((count as f64 * q) as usize).min(count.saturating_sub(1))).copied().unwrap_or_default();
        let mean = if count == 0 { 0.0 } else { sorted.iter().map(Duration::as_secs_f64).sum::<f64>() / count as f64 };
        say!("Total time run:         {secs:.3}");
        say!("Total {what} operations: {count}");
        say!("Operation size:         {op_size}");
        say!("Bandwidth (MB/sec):     {:.3}", count as f64 * op_size as f64 / secs / f64::from(1 << 20));
        say!("Average IOPS:           {:.0}", count as f64 / secs);
        say!("Average Latency(s):     {mean:.6}");
        say!("p99 Latency(s):         {:.6}", at(0.99).as_secs_f64());
        say!("Max latency(s):         {:.6}", at(1.0).as_secs_f64());
    }
}
