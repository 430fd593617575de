//! `make sim`: seeds by the minute, or one seed with everything that happened in it.
//!
//! Environment: `SEED=n` replays one, prints faults, what clients do and what becomes of PGs, and shrinks it if it fails; `LESS=...` as
//! that prints replays the shrunk one. `MINUTES=n` (10) runs new seeds from `FIRST` on (the time, unless given) on `JOBS` cores;
//! `SEEDS=n` runs so many, with both set as many at least and as long at least; `STOP=1` runs none after one that fails, `BEYOND=1` of
//! them those beyond redundancy only, `FULL=1` those that fill disks, `CODED=1` those with an erasure-coded pool. `CHECKER` is the
//! program of tests/linearizability. `SIM_LOG` filters what daemons log in a replay.

use sim::{Less, Outcome, Scenario, Trial, shrink};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

fn env<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().filter(|s| !s.is_empty()).and_then(|s| s.parse().ok())
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|info| PANIC.with(|p| *p.borrow_mut() = info.to_string())));
    match env("SEED") {
        Some(seed) => replay(seed),
        None => run_many(),
    }
}

/// Runs a scenario, and has its history checked.
fn judge(scenario: &Scenario, tell: bool) -> Outcome {
    let run = || {
        let trial = Trial::new(scenario.clone(), tell);
        match tell {
            true => tracing::subscriber::with_default(log_at(trial.time()), || trial.run()),
            false => trial.run(),
        }
    };
    let mut outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let what = PANIC.with(|p| p.borrow().clone());
        Outcome { faults: vec![what], ..Outcome::default() }
    });
    if let Some(checker) = env::<String>("CHECKER")
        && outcome.history_ops > 0
        && let Err(what) = check_history(&checker, scenario.seed, &outcome.history)
    {
        outcome.faults.push(what);
    }
    outcome
}

fn check_history(checker: &str, seed: u64, history: &str) -> Result<(), String> {
    let file = std::env::temp_dir().join(format!("cuttlebone-sim-{}-{seed}", std::process::id()));
    std::fs::write(&file, history).map_err(|e| e.to_string())?;
    let out = Command::new(checker).arg(&file).output().map_err(|e| format!("{checker}: {e}"))?;
    let _ = std::fs::remove_file(&file);
    if out.status.success() {
        return Ok(());
    }
    Err(format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)))
}

/// What daemons log, with the simulated time.
fn log_at(time: std::sync::Arc<AtomicU64>) -> impl tracing::Subscriber {
    struct At(std::sync::Arc<AtomicU64>);
    impl tracing_subscriber::fmt::time::FormatTime for At {
        fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
            write!(w, "{:>11.6}", Duration::from_nanos(self.0.load(Ordering::Relaxed)).as_secs_f64())
        }
    }
    let filter = env("SIM_LOG").unwrap_or_else(|| "info,osd::pg=debug".to_owned());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_timer(At(time)).with_writer(std::io::stderr).finish()
}

fn replay(seed: u64) -> ExitCode {
    let whole = Scenario::of_seed(seed);
    let less: Option<Less> = env("LESS");
    let scenario = less.as_ref().map_or(whole.clone(), |less| less.of(&whole));
    eprintln!("seed {seed}, beyond redundancy: {}, {:?}", scenario.beyond, scenario.plan);
    let outcome = judge(&scenario, true);
    let (w, r, f, h) = (outcome.writes, outcome.reads, outcome.failed, outcome.history_ops);
    println!("seed {seed}: {} s simulated, {w} writes, {r} reads, {f} failed as they may, {h} racing operations", outcome.seconds);
    if scenario.beyond {
        println!("seed {seed}: {} objects given up, {} reads found them absent and {} older, {} objects cannot be read",
            outcome.lost, outcome.absent, outcome.older, outcome.blocked);
    }
    if outcome.faults.is_empty() {
        println!("seed {seed}: nothing is wrong");
        return ExitCode::SUCCESS;
    }
    println!("seed {seed} FAILS: {:#?}", outcome.faults);
    if less.is_none() {
        let least = shrink(&whole, 150, |s| !judge(s, false).faults.is_empty());
        println!("the least that fails:");
        for n in &least.faults {
            let p = &whole.faults[*n];
            let s = |ns| Duration::from_nanos(ns).as_secs_f64();
            println!("  {n}: {:.3} s later {:?} for {:.3} s", s(p.pause), p.fault, s(p.lasts));
        }
        println!("make sim SEED={seed} LESS=\"{least}\"");
    }
    ExitCode::FAILURE
}

/// Sums over all runs.
#[derive(Default)]
struct Total {
    seeds: u64,
    beyond: u64,
    seconds: u64,
    events: u64,
    writes: u64,
    reads: u64,
    failed: u64,
    refused: u64,
    lost: u64,
    absent: u64,
    older: u64,
    blocked: u64,
    racing: usize,
    kinds: BTreeMap<&'static str, u64>,
    bad: Vec<u64>,
}

impl Total {
    fn add(&mut self, scenario: &Scenario, outcome: Outcome) {
        self.seeds += 1;
        self.beyond += u64::from(scenario.beyond);
        self.seconds += outcome.seconds;
        self.events += outcome.events;
        self.writes += outcome.writes;
        self.reads += outcome.reads;
        self.failed += outcome.failed;
        self.refused += outcome.refused;
        self.lost += outcome.lost;
        self.absent += outcome.absent;
        self.older += outcome.older;
        self.blocked += outcome.blocked;
        self.racing += outcome.history_ops;
        for (kind, n) in outcome.kinds {
            *self.kinds.entry(kind).or_default() += n;
        }
        if !outcome.faults.is_empty() {
            println!("seed {} FAILS: {:#?}", scenario.seed, outcome.faults);
            self.bad.push(scenario.seed);
        }
    }

    fn print(&self, took: Duration) {
        let hours = self.seconds as f64 / 3600.0;
        println!("{} seeds ({} of them beyond redundancy), {hours:.1} simulated hours in {:.0} s", self.seeds, self.beyond, took.as_secs_f64());
        println!("{} writes acknowledged, {} reads compared, {} racing operations checked, {} writes found no room, {} operations failed as they may, {} events",
            self.writes, self.reads, self.racing, self.refused, self.failed, self.events);
        println!("beyond redundancy: {} objects given up, {} reads found them absent and {} older, {} objects could not be read in the end",
            self.lost, self.absent, self.older, self.blocked);
        let kinds: Vec<String> = self.kinds.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
        println!("faults: {}", kinds.join(", "));
    }
}

#[expect(clippy::disallowed_methods, reason = "counts real minutes")]
fn run_many() -> ExitCode {
    let begin = Instant::now();
    let first: u64 = env("FIRST").unwrap_or_else(|| std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs() << 8));
    let count: Option<u64> = env("SEEDS");
    let minutes = env("MINUTES").unwrap_or(if count.is_some() { 0.0 } else { 10.0 });
    let (count, until) = (count.unwrap_or(0), begin + Duration::from_secs_f64(60.0 * minutes));
    let jobs = env("JOBS").unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    if env::<String>("CHECKER").is_none() {
        println!("CHECKER is not set: histories of racing operations are not checked");
    }
    println!("seeds from {first} on, {jobs} at a time");
    let (next, total) = (AtomicU64::new(0), Mutex::new(Total::default()));
    let is_set = |name: &str| env::<String>(name).is_some();
    let (only_beyond, only_full, only_coded) = (is_set("BEYOND"), is_set("FULL"), is_set("CODED"));
    let (stop, failed) = (is_set("STOP"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count && Instant::now() >= until || stop && failed.load(Ordering::Relaxed) {
                    return;
                }
                let scenario = Scenario::of_seed(first + n);
                if only_beyond && !scenario.beyond || only_full && !scenario.work.full_try || only_coded && scenario.plan.coded.is_none() {
                    continue;
                }
                let outcome = judge(&scenario, false);
                failed.fetch_or(!outcome.faults.is_empty(), Ordering::Relaxed);
                total.lock().expect("no thread panics with it").add(&scenario, outcome);
            });
        }
    });
    let total = total.into_inner().expect("no thread panics with it");
    total.print(begin.elapsed());
    match total.bad.first() {
        None => ExitCode::SUCCESS,
        Some(seed) => {
            println!("{} seeds fail: {:?}; `make sim SEED={seed}` replays and shrinks one", total.bad.len(), total.bad);
            ExitCode::FAILURE
        }
    }
}
