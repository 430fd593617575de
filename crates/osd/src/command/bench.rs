//! `bench`: writes objects straight into this OSD's store and tells how long that took until all of it was durable.
//!
//! Holds: what it writes is on the account of work that may wait, so that clients are served before it; what it has under way is
//! bounded; its objects are gone before it answers.
//! Upstream: OSD::asok_command "bench", src/osd/OSD.cc, whose limits and words these are.

use crate::disk::Disk;
use crate::effects::{Cx, Effect, TxcRoute};
use crate::osd::Osd;
use admin::command::Reply;
use admin::human::bytes as human;
use admin::option::ConfigValues;
use admin::{Args, CommandError, json};
use bytes::Bytes;
use denc::BString;
use qos::Class;
use rand::Rng;
use serde_json::json;
use std::time::Duration;
use store::{META_COLL, Transaction};
use types::{HObject, Mono, Now};

/// Bytes of blocks under way at a time, and blocks.
const WINDOW_BYTES: u64 = 16 << 20;
const WINDOW_BLOCKS: u64 = 256;
/// Objects removed with one transaction.
const REMOVED_AT_ONCE: u64 = 256;
/// From here on a block counts as large.
const LARGE: u64 = 1 << 20;

/// What is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Job {
    count: u64,
    block: u64,
    /// Blocks go to places of so many objects of so many bytes, which are written whole before; without, each is an object of its own.
    objects: Option<(u64, u64)>,
}

impl Job {
    fn new(args: &Args, c: &ConfigValues) -> Result<Self, CommandError> {
        let number = |name: &str, default: u64| match args.int(name) {
            None => Ok(default),
            Some(n) => u64::try_from(n).map_err(|_| CommandError::invalid(format!("'{name}' must not be negative"))),
        };
        let (count, mut block) = (number("count", 1 << 30)?, number("size", 4 << 20)?);
        let (size, objects) = (number("object_size", 0)?, number("object_num", 0)?);
        if block == 0 {
            return Err(CommandError::invalid("block 'size' must not be 0"));
        }
        if size > 0 && block > size {
            block = size;
        }
        check(count, block, c)?;
        Ok(Job { count, block, objects: (size > 0 && objects > 0).then_some((objects, size)) })
    }

    /// At least one, if anything is to be written: stock measures nothing then.
    fn blocks(&self) -> u64 {
        (self.count / self.block).max(self.count.min(1))
    }

    /// Objects that there are while it runs.
    fn all_objects(&self) -> u64 {
        self.objects.map_or(self.blocks(), |(objects, _)| objects)
    }

    /// Bytes that they take.
    fn space(&self) -> u64 {
        self.objects.map_or(self.blocks() * self.block, |(objects, size)| objects.saturating_mul(size))
    }

    fn window(&self) -> u64 {
        (WINDOW_BYTES / self.block).clamp(2, WINDOW_BLOCKS)
    }
}

/// No more than a slow device could do within `osd_bench_duration`.
fn check(count: u64, block: u64, c: &ConfigValues) -> Result<(), CommandError> {
    let (duration, block_max) = (c.u64("osd_bench_duration"), c.u64("osd_bench_max_block_size"));
    if block > block_max {
        let why = format!("block 'size' values are capped at {}. If you wish to use a higher value, please adjust 'osd_bench_max_block_size'", human(block_max));
        return Err(CommandError::invalid(why));
    }
    let (most, assumed, option) = if block < LARGE {
        let iops = c.u64("osd_bench_small_size_max_iops");
        (block.saturating_mul(duration).saturating_mul(iops), format!("{iops} IOPS"), "osd_bench_small_size_max_iops")
    } else {
        let rate = c.u64("osd_bench_large_size_max_throughput");
        (rate.saturating_mul(duration), format!("{}/s", human(rate)), "osd_bench_large_size_max_throughput")
    };
    if count <= most {
        return Ok(());
    }
    let block = human(block);
    Err(CommandError::invalid(format!(
        "'count' values greater than {most} for a block size of {block}, assuming {assumed}, for {duration} seconds, can cause ill effects on osd. \
         \u{20}Please adjust '{option}' with a higher value if you wish to use a higher 'count'."
    )))
}

/// A benchmark under way.
pub(crate) struct Bench {
    id: u64,
    job: Job,
    data: Bytes,
    step: Step,
    /// Of the step: begun and ended.
    submitted: u64,
    done: u64,
    started: Mono,
    took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Objects are made that blocks go to.
    Fill,
    /// What is measured.
    Write,
    Remove,
}

impl Bench {
    /// Transactions of a step.
    fn transactions(&self) -> u64 {
        match self.step {
            Step::Fill => self.job.objects.map_or(0, |(objects, size)| objects * size.div_ceil(self.job.block)),
            Step::Write => self.job.blocks(),
            Step::Remove => self.job.all_objects().div_ceil(REMOVED_AT_ONCE),
        }
    }

    fn next(&self, rng: &mut impl Rng) -> Transaction {
        let mut txn = Transaction::new(META_COLL);
        let (n, block) = (self.submitted, self.job.block);
        match (self.step, self.job.objects) {
            (Step::Fill, Some((_, size))) => {
                let each = size.div_ceil(block);
                let off = n % each * block;
                txn.write(&object(n / each), off, self.data.slice(..block.min(size - off) as usize));
            }
            (Step::Write, Some((objects, size))) => {
                let (which, place) = (rng.random_range(0..objects), rng.random_range(0..(size / block).max(1)));
                txn.write(&object(which), place * block, self.data.clone());
            }
            (Step::Write, None) => txn.write(&object(n), 0, self.data.clone()),
            _ => (n * REMOVED_AT_ONCE..self.job.all_objects().min((n + 1) * REMOVED_AT_ONCE)).for_each(|n| txn.remove(&object(n))),
        }
        txn
    }

    fn result(&self) -> Reply {
        let took = self.took.as_secs_f64().max(1e-9);
        let rate = self.job.count as f64 / took;
        Reply::output(json::pretty(&json!({
            "bytes_written": self.job.count,
            "blocksize": self.job.block,
            "elapsed_sec": took,
            "bytes_per_sec": rate,
            "iops": rate / self.job.block as f64,
        })))
    }
}

impl Osd {
    pub(super) fn start_bench(&mut self, disk: &mut dyn Disk, now: Now, id: u64, args: &Args, fx: &mut Vec<Effect>) -> Result<(), CommandError> {
        if self.commands.bench.is_some() {
            return Err(CommandError::new(types::Errno::EBUSY, "a benchmark is running"));
        }
        let job = Job::new(args, &self.commands.config)?;
        let cx = Cx { now, disk: &mut *disk, sh: &mut self.sh, fx: &mut *fx };
        if cx.is_failsafe_full(cx.sh.whoami) || cx.own_space().available < job.space().saturating_add(2 * WINDOW_BYTES) {
            return Err(CommandError::new(types::Errno::ENOSPC, "the disk is too full for that"));
        }
        let data = Bytes::from(vec![0x5a; job.block as usize]);
        let step = if job.objects.is_some() { Step::Fill } else { Step::Write };
        let bench = Bench { id, job, data, step, submitted: 0, done: 0, started: now.mono, took: Duration::ZERO };
        self.commands.bench = Some(bench);
        self.drive_bench(now, disk, fx);
        Ok(())
    }

    /// A transaction of it is durable.
    pub(crate) fn bench_committed(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        if let Some(bench) = &mut self.commands.bench {
            bench.done += 1;
        }
        self.drive_bench(now, disk, fx);
    }

    fn drive_bench(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        while let Some(bench) = &mut self.commands.bench {
            let all = bench.transactions();
            while bench.submitted < all && bench.submitted - bench.done < bench.job.window() {
                let txn = bench.next(&mut cx.sh.rng);
                cx.submit_as(Class::BestEffort, txn, TxcRoute::Bench);
                bench.submitted += 1;
            }
            if bench.done < all {
                return;
            }
            (bench.submitted, bench.done) = (0, 0);
            match bench.step {
                Step::Fill => (bench.step, bench.started) = (Step::Write, now.mono),
                Step::Write => (bench.step, bench.took) = (Step::Remove, now.mono - bench.started),
                Step::Remove => {
                    cx.fx.push(Effect::CommandReply { id: bench.id, reply: bench.result() });
                    self.commands.bench = None;
                }
            }
        }
    }
}

fn object(n: u64) -> HObject {
    HObject { pool: META_COLL.pg.pool, name: BString::from(format!("disk_bw_test_{n}")), ..HObject::min() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{EntityKind, EntityName};

    #[test]
    fn limits_are_told_of_in_stock_s_words() {
        let c = ConfigValues::new(EntityName::new(EntityKind::OSD, "0"), "ceph", "host");
        let why = |count, block| check(count, block, &c).unwrap_err().status;
        assert_eq!(
            why(4 << 20, 1),
            "'count' values greater than 3000 for a block size of 1 B, assuming 100 IOPS, for 30 seconds, can cause ill effects on osd.  \
             Please adjust 'osd_bench_small_size_max_iops' with a higher value if you wish to use a higher 'count'."
        );
        assert_eq!(
            why(1_000_000_000_000, 4 << 20),
            "'count' values greater than 3145728000 for a block size of 4 MiB, assuming 100 MiB/s, for 30 seconds, can cause ill effects on \
             osd.  Please adjust 'osd_bench_large_size_max_throughput' with a higher value if you wish to use a higher 'count'."
        );
        assert_eq!(
            why(1, 128 << 20),
            "block 'size' values are capped at 64 MiB. If you wish to use a higher value, please adjust 'osd_bench_max_block_size'"
        );
        assert!(check(12_288_000, 4096, &c).is_ok() && check(12_288_001, 4096, &c).is_err());
        assert!(check(1 << 30, 4 << 20, &c).is_ok(), "what it does by itself");
    }
}
