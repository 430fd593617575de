//! What every daemon process does around its node: flags, log, pid file, going to the background, signals.

use crate::out::say;
use crate::config::DaemonConfig;
use crate::flags::DaemonFlags;
use crate::log::LogFile;
use crate::process::{PidFile, announce_ready, spawn_daemon, tune_allocator};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::ExitCode;
use types::EntityKind;

/// A daemon's two deeds.
pub trait Daemon {
    /// Makes the daemon's store.
    fn mkfs(config: &DaemonConfig, flags: &DaemonFlags) -> Result<()>;
    /// Runs until stopped; calls `ready` once it serves.
    fn run(config: &DaemonConfig, flags: &DaemonFlags, ready: impl FnOnce() -> Result<()>) -> Result<i32>;
    /// What the flags mean.
    fn help() -> &'static str;
}

/// The life of a daemon's process, from its flags to its exit code.
pub fn run<D: Daemon>(called: &str, kind: EntityKind, args: &[String]) -> Result<ExitCode> {
    let flags = DaemonFlags::parse(args)?;
    if flags.help {
        say!("usage: {called} -i ID [-c CONF] [FLAGS]\n\n{}{}", D::help(), FLAGS_HELP);
        return Ok(ExitCode::SUCCESS);
    }
    if flags.version {
        say!("{}", version());
        return Ok(ExitCode::SUCCESS);
    }
    let Some(id) = &flags.id else { bail!("which one? Give -i ID (ceph-mon -i a, ceph-osd -i 0)") };
    if flags.foreground && !flags.mkfs {
        // Before anything is read or said: this program begins anew.
        tune_allocator();
    }
    let keyring = flags.keyring.iter().map(|path| ("keyring".to_owned(), path.display().to_string()));
    let overrides: Vec<(String, String)> = flags.overrides.iter().cloned().chain(keyring).collect();
    let config = DaemonConfig::load(kind, id, flags.conf.as_deref(), &overrides)?;
    if let Some((option, _)) = overrides.iter().find(|(option, _)| matches!(option.as_str(), "setuser" | "setgroup")) {
        eprintln!("--{option} changes nothing here: the daemon runs as whoever starts it");
    }
    if flags.mkfs {
        D::mkfs(&config, &flags)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !flags.foreground {
        let argv0 = called.split_whitespace().next().unwrap_or("cuttlebone");
        let kind_word = called.split_whitespace().nth(1).map(str::to_owned);
        let args: Vec<String> = kind_word.into_iter().chain(absolute(args)?).collect();
        spawn_daemon(argv0, &args)?;
        return Ok(ExitCode::SUCCESS);
    }
    let log = start_log(&config, &flags)?;
    tracing::info!("{} starts: {}, process {}", config.name, version(), std::process::id());
    let mut pid_file = None;
    let code = D::run(&config, &flags, || {
        pid_file = config.path("pid_file")?.map(|p| PidFile::create(&p)).transpose()?;
        announce_ready(log.as_ref());
        Ok(())
    });
    let code = code.inspect_err(|error| tracing::error!("ending: {error:#}"))?;
    tracing::info!("{} ends with {code}", config.name);
    Ok(ExitCode::from(code.clamp(0, 255) as u8))
}

/// What `--version` says.
pub fn version() -> String {
    format!("cuttlebone version {} (answers clients as Ceph pacific 16.2)", env!("CARGO_PKG_VERSION"))
}

/// A daemon in the background runs in `/`: what was said relative to here is made absolute.
fn absolute(args: &[String]) -> Result<Vec<String>> {
    let here = std::env::current_dir().context("where are we?")?;
    let path_flags = ["-c", "--conf", "-k", "--keyring", "--monmap"];
    let mut out: Vec<String> = Vec::new();
    for arg in args {
        let after_path_flag = out.last().is_some_and(|f| path_flags.contains(&f.as_str()));
        let relative = after_path_flag && Path::new(arg).is_relative();
        out.push(if relative { here.join(arg).display().to_string() } else { arg.clone() });
    }
    Ok(out)
}

/// The log goes to `log_file`, which SIGHUP opens anew; or to standard error with `-d`.
fn start_log(config: &DaemonConfig, flags: &DaemonFlags) -> Result<Option<LogFile>> {
    let filter = std::env::var("CUTTLEBONE_LOG").unwrap_or_else(|_| "info".into());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    let path = config.path("log_file")?.filter(|_| !flags.log_to_stderr);
    let log = path.map(|path| LogFile::open(&path)).transpose()?;
    match log.clone() {
        Some(log) => builder.with_writer(move || log.clone()).init(),
        None => builder.with_writer(std::io::stderr).init(),
    }
    let mut rotations = signal_hook::iterator::Signals::new([signal_hook::consts::SIGHUP])?;
    let rotated = log.clone();
    std::thread::Builder::new().name("log".into()).spawn(move || {
        for _ in rotations.forever() {
            if let Some(Err(error)) = rotated.as_ref().map(LogFile::reopen) {
                tracing::error!("after SIGHUP: {error:#}");
            }
        }
    })?;
    Ok(log)
}

/// Ends the loop in order on SIGTERM and SIGINT.
pub fn stop_on_signals(stoppers: Vec<io::Stopper>) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            stoppers.iter().for_each(io::Stopper::stop);
        }
    })?;
    Ok(())
}

const FLAGS_HELP: &str = "
  -i ID, --id ID         which daemon: a for mon.a, 0 for osd.0
  -c FILE, --conf FILE   ceph.conf [default: /etc/ceph/ceph.conf]
  -k FILE, --keyring FILE
  -f                     stay in the foreground
  -d                     stay in the foreground and log to standard error
  --OPTION VALUE         any option of ceph.conf
  -v, --version
";
