//! `bench`: writes objects straight into this OSD's store and tells how long that took until they were durable.

use crate::disk::Disk;
use crate::effects::{Cx, Effect, TxcRoute};
use crate::osd::Osd;
use admin::command::Reply;
use admin::{Args, CommandError, json};
use bytes::Bytes;
use denc::BString;
use serde_json::json;
use store::{META_COLL, Transaction};
use types::{HObject, Mono, Now};

/// Bytes that may be written in one command (`osd_bench_max_block_size` and its relatives, taken together).
const TOTAL_MAX: i64 = 4 << 30;
const BLOCK_MAX: i64 = 64 << 20;
/// Blocks on their way at a time.
const WINDOW: u64 = 8;

/// A benchmark under way.
pub(crate) struct Bench {
    id: u64,
    block: Bytes,
    blocks: u64,
    submitted: u64,
    done: u64,
    started: Mono,
}

impl Osd {
    pub(super) fn start_bench(
        &mut self,
        disk: &mut dyn Disk,
        now: Now,
        id: u64,
        args: &Args,
        fx: &mut Vec<Effect>,
    ) -> Result<(), CommandError> {
        let count = args.int("count").unwrap_or(1 << 30);
        let size = args.int("size").unwrap_or(4 << 20);
        if self.commands.bench.is_some() {
            return Err(CommandError::invalid("a benchmark is running"));
        }
        if !(1..=BLOCK_MAX).contains(&size) {
            return Err(CommandError::invalid(format!("block 'size' values are capped at {BLOCK_MAX} bytes, and start at 1")));
        }
        if !(1..=TOTAL_MAX).contains(&count) || count / size > 1 << 20 {
            return Err(CommandError::invalid(format!("'count' values are capped at {TOTAL_MAX} bytes in a million blocks")));
        }
        let block = Bytes::from(vec![0x5a; size as usize]);
        let blocks = (count / size).max(1) as u64;
        let cx = Cx { now, disk: &mut *disk, sh: &mut self.sh, fx: &mut *fx };
        let space = cx.own_space();
        if cx.is_failsafe_full(cx.sh.whoami) || space.available < WINDOW * size as u64 * 2 {
            return Err(CommandError::new(types::Errno::ENOSPC, "the disk is too full for that"));
        }
        self.commands.bench = Some(Bench { id, block, blocks, submitted: 0, done: 0, started: now.mono });
        self.drive_bench(now, disk, fx);
        Ok(())
    }

    /// A block is durable.
    pub(crate) fn bench_committed(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        if let Some(bench) = &mut self.commands.bench {
            bench.done += 1;
        }
        self.drive_bench(now, disk, fx);
    }

    fn drive_bench(&mut self, now: Now, disk: &mut dyn Disk, fx: &mut Vec<Effect>) {
        let Some(bench) = &mut self.commands.bench else { return };
        let mut cx = Cx { now, disk, sh: &mut self.sh, fx };
        while bench.submitted < bench.blocks && bench.submitted - bench.done < WINDOW {
            let mut txn = Transaction::new(META_COLL);
            txn.write(&object(bench.submitted % WINDOW), 0, bench.block.clone());
            cx.submit_routed(txn, TxcRoute::Bench);
            bench.submitted += 1;
        }
        if bench.done < bench.blocks {
            return;
        }
        let took = (now.mono - bench.started).as_secs_f64().max(1e-9);
        let (size, written) = (bench.block.len() as u64, bench.blocks * bench.block.len() as u64);
        let result = json!({
            "bytes_written": written,
            "blocksize": size,
            "elapsed_sec": took,
            "bytes_per_sec": written as f64 / took,
            "iops": bench.blocks as f64 / took,
        });
        let id = bench.id;
        self.commands.bench = None;
        let mut txn = Transaction::new(META_COLL);
        (0..WINDOW).for_each(|n| txn.remove(&object(n)));
        cx.submit(txn);
        cx.fx.push(Effect::CommandReply { id, reply: Reply::output(json::pretty(&result)) });
    }
}

fn object(n: u64) -> HObject {
    HObject { pool: META_COLL.pg.pool, name: BString::from(format!("disk_bw_test_{n}")), ..HObject::min() }
}
