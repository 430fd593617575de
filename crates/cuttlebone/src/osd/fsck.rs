//! Checks of what an OSD has stored: by `cuttlebone osd fsck` while it is stopped, or at its start where options say so.
//!
//! Upstream: bluestore_fsck_on_mount, ceph-bluestore-tool fsck.

use super::list;
use crate::config::DaemonConfig;
use crate::out::say;
use anyhow::{Context, Result, ensure};
use clap::Parser;
use io::block::FileDev;
use io::kv::RocksKv;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use store::{Fsck, FsckReport};

/// How often it says how far it is.
const TELLS: Duration = Duration::from_secs(10);

/// Check what an OSD that is stopped has stored. Nothing is changed. Ends with 1 if something is wrong
#[derive(Parser, Debug)]
#[command(name = "cuttlebone osd fsck", max_term_width = 100)]
struct FsckArgs {
    /// The OSD's number
    #[arg(short, long)]
    id: i32,
    /// Read all data, too, and compare it with its checksums
    #[arg(long)]
    deep: bool,
    /// ceph.conf [default: /etc/ceph/ceph.conf]
    #[arg(short, long)]
    conf: Option<PathBuf>,
}

/// Runs `cuttlebone osd fsck`.
pub fn main(words: &[String]) -> Result<ExitCode> {
    let args = FsckArgs::parse_from([&["cuttlebone osd fsck".to_owned()], words].concat());
    let found = list::one(args.conf.as_deref(), args.id)?;
    let home = found.home;
    ensure!(home.path("ready").exists(), "osd.{} is not formatted: nothing to check", home.id);
    // Held to the end: nobody starts it meanwhile.
    let (mut dev, _events) = home.open_device().with_context(|| format!("osd.{} has to be stopped first", home.id))?;
    let (nobody, _) = std::sync::mpsc::channel();
    let kv = home.open_kv(&found.config, nobody)?;
    let report = check(&mut dev, &kv, args.deep, |so_far| eprintln!("{so_far}"))?;
    report.errors.iter().for_each(|e| say!("{e}"));
    if report.more_errors > 0 {
        say!("and {} errors more", report.more_errors);
    }
    say!("osd.{}: {}", home.id, summary(&report));
    Ok(if report.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks a store before it is mounted, if `bluestore_fsck_on_mount` says so. Errors: it is not as it should be; the log says how.
pub fn on_mount(config: &DaemonConfig, dev: &mut FileDev, kv: &RocksKv) -> Result<()> {
    let is_true = |option: &str, value: String| admin::option::find(option).and_then(|o| o.normalize(&value).ok()).is_some_and(|value| value == "true");
    let is_set = |option: &str| config.get(option).is_some_and(|value| is_true(option, value));
    if !is_set("bluestore_fsck_on_mount") {
        return Ok(());
    }
    let report = check(dev, kv, is_set("bluestore_fsck_on_mount_deep"), |so_far| tracing::info!("fsck: {so_far}"))?;
    report.errors.iter().for_each(|e| tracing::error!("fsck: {e}"));
    tracing::info!("fsck: {}", summary(&report));
    ensure!(report.errors.is_empty(), "the store has errors, which the log names; bluestore_fsck_on_mount is set");
    Ok(())
}

/// `tell` hears how far it is.
fn check(dev: &mut FileDev, kv: &RocksKv, deep: bool, tell: impl Fn(&str)) -> Result<FsckReport> {
    let mut told = Instant::now();
    let telling = |so_far: &FsckReport| {
        if told.elapsed() >= TELLS {
            told = Instant::now();
            tell(&format!("{} objects, {} blocks read", so_far.objects, so_far.read_blocks));
        }
    };
    Ok(Fsck::new(deep).telling(telling).run(dev, kv)?)
}

fn summary(report: &FsckReport) -> String {
    let FsckReport { collections, objects, blocks, shared_blocks, read_blocks, omap_keys, deferred_records, .. } = report;
    let errors = report.errors.len() as u64 + report.more_errors;
    format!("{objects} objects in {collections} collections, {omap_keys} omap keys, {blocks} blocks ({shared_blocks} shared, {read_blocks} read), {deferred_records} writes in the log; errors: {errors}")
}
