//! Daemons as processes: going to the background, pid files, being ready.
//!
//! A daemon in the background is this program run again with `-f` in a process group of its own. It says "ready" on
//! its standard output once it serves, and closes it; the parent waits for that word, so that a script knows.

use crate::log::LogFile;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Set in a daemon whose parent waits for "ready".
const AWAITED: &str = "CUTTLEBONE_AWAITED";

/// What glibc's allocator is told when a process starts, for there is no other time.
///
/// - To keep that many freed pieces of each small size per thread, instead of 7. A write frees its pieces when it is durable,
///   dozens after those of its time; with 7, 8% of an OSD's CPU goes into sorting them back. Not more memory: measured.
/// - To map pieces of 128 KiB and more for themselves, always: left alone it stops doing so when the first is freed, for
///   all that are not larger. RocksDB's memtables are made of such, and what they leave in the heap has holes.
/// - To keep 8 MiB at the heap's end. It would be 128 KiB with the former set, and the kernel asked all the time.
/// - To ask for huge pages: maps and caches are looked up all over the heap. 10% of a small write's CPU.
const MALLOC: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.malloc.tcache_count=127:glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=8388608:glibc.malloc.hugetlb=1",
);

/// The above, unless the operator has said what he wants.
fn malloc_setting() -> Option<(&'static str, &'static str)> {
    std::env::var_os(MALLOC.0).is_none().then_some(MALLOC)
}

/// Goes on as the same process with the allocator as daemons want it. Where that fails, things are as they were, and a
/// little slower.
pub fn tune_allocator() {
    if let Some((name, value)) = malloc_setting()
        && let Ok(exe) = std::env::current_exe()
    {
        let mut args = std::env::args_os();
        let argv0 = args.next().unwrap_or_default();
        let _ = Command::new(exe).arg0(argv0).args(args).env(name, value).exec();
    }
}

/// Runs this program again in the background with `args`, under the name `argv0`, and waits until it serves.
/// Errors: what the daemon said before it ended.
pub fn spawn_daemon(argv0: &str, args: &[String]) -> Result<()> {
    let exe = std::env::current_exe().context("finding this program")?;
    let mut child = Command::new(exe)
        .arg0(argv0)
        .args(args)
        .arg("-f")
        .env(AWAITED, "1")
        .envs(malloc_setting())
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting the daemon")?;
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut said).context("waiting for the daemon")?;
    }
    if said.contains("ready") {
        return Ok(());
    }
    let mut why = String::new();
    if let Some(mut err) = child.stderr.take() {
        let _ = err.read_to_string(&mut why);
    }
    let status = child.wait()?;
    bail!("{}", if why.is_empty() { format!("the daemon ended with {status}") } else { why.trim().to_owned() })
}

/// Tells the waiting parent that this daemon serves, and lets go of its terminal: what a panic says goes to the log.
pub fn announce_ready(log: Option<&LogFile>) {
    if std::env::var_os(AWAITED).is_none() {
        return;
    }
    let mut out = std::io::stdout();
    let _ = out.write_all(b"ready\n").and_then(|()| out.flush());
    if let Ok(null) = fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        // The parent reads until end of file: the descriptors themselves must go.
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    if let Some(log) = log {
        log.take_stderr();
    }
}

/// A pid file; removed on drop.
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes our pid. Errors: a living process has written its own, or the directory is missing.
    pub fn create(path: &Path) -> Result<Self> {
        if let Some(pid) = read_pid(path).filter(|pid| *pid != std::process::id()) {
            bail!("{} says that process {pid} is this daemon, and it is alive", path.display());
        }
        fs::write(path, format!("{}\n", std::process::id())).with_context(|| format!("writing {}", path.display()))?;
        Ok(PidFile(path.to_owned()))
    }
}
impl Drop for PidFile {
    fn drop(&mut self) {
        // Another daemon may have made the directory anew meanwhile: its file stays.
        if fs::read_to_string(&self.0).is_ok_and(|t| t.trim() == std::process::id().to_string()) {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// The pid in a file, if that process is alive and one of our daemons.
pub fn read_pid(path: &Path) -> Option<u32> {
    let pid: u32 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    (is_ours(pid) && alive(pid)).then_some(pid)
}

/// Pids are used again: only a process that was started under one of our names, or runs this very program, counts.
fn is_ours(pid: u32) -> bool {
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let called = cmdline.split(|b| *b == 0).next().and_then(|a| a.rsplit(|b| *b == b'/').next()).unwrap_or_default();
    let same = || fs::read_link(format!("/proc/{pid}/exe")).ok().is_some_and(|exe| std::env::current_exe().is_ok_and(|me| me == exe));
    called.starts_with(b"cuttlebone") || called.starts_with(b"ceph-") || same()
}

/// Ends a process in order, by force after `patience`. True if it is gone.
pub fn stop_pid(pid: u32, patience: Duration) -> bool {
    use rustix::process::{Pid, Signal, kill_process};
    let Some(raw) = Pid::from_raw(pid as i32) else { return true };
    for (signal, wait) in [(Signal::TERM, patience), (Signal::KILL, Duration::from_secs(5))] {
        let _ = kill_process(raw, signal);
        let end = Instant::now() + wait;
        while Instant::now() < end {
            if !alive(pid) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    !alive(pid)
}

/// False also for a process that is ending: after `kill -9` it is there for some milliseconds more.
fn alive(pid: u32) -> bool {
    const EXITING: u64 = 0x4;
    const SIGKILL: u64 = 1 << 8;
    let read = |what: &str| fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let (stat, status) = (read("stat"), read("status"));
    // Behind the name: state, ppid, pgrp, session, tty, tpgid, flags. A zombie of ours has ended too.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let Some((state, flags)) = fields.first().zip(fields.get(6)) else { return false };
    let pending = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")).map(str::trim);
        mask.and_then(|m| u64::from_str_radix(m, 16).ok()).is_some_and(|m| m & SIGKILL != 0)
    };
    !matches!(*state, "Z" | "X") && flags.parse().is_ok_and(|f: u64| f & EXITING == 0) && !status.lines().any(pending)
}
