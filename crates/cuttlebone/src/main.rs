//! The front door: `cuttlebone up|down|status|mon|osd|rados`, and `ceph-mon`, `ceph-osd`, `ceph-mgr`, `ceph-volume` by the name it is called with.

#![allow(clippy::disallowed_methods, reason = "the front door touches the world")]

mod admin_client;
mod ceph_volume;
mod config;
mod daemon;
mod flags;
mod log;
mod measure;
mod memory;
mod metadata;
mod mgr;
mod mon;
mod network;
mod osd;
mod out;
mod process;
mod rados;
mod recover;
mod room;
mod session;
mod up;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A storage cluster that stock Ceph clients cannot tell from Ceph.
#[derive(Parser)]
#[command(name = "cuttlebone", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make and start a cluster on this machine, or what of it is not running
    Up(up::UpArgs),
    /// Stop every daemon of a cluster's directory
    Down {
        #[arg(long)]
        dir: PathBuf,
    },
    /// Which daemons run, and what the cluster says of itself
    Status {
        /// A directory made by `up`
        #[arg(long, required_unless_present = "conf")]
        dir: Option<PathBuf>,
        /// Or any cluster's ceph.conf, stock Ceph's too
        #[arg(short, long)]
        conf: Option<PathBuf>,
    },
    /// Objects of a cluster, in the words of the stock rados command
    Rados(rados::RadosArgs),
    /// Run a monitor (with the manager role); takes ceph-mon's flags, `cuttlebone mon --help` lists them.
    /// `cuttlebone mon recover` rebuilds one from the OSDs when all are lost
    #[command(disable_help_flag = true)]
    Mon {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
        flags: Vec<String>,
    },
    /// Run an OSD; takes ceph-osd's flags, `cuttlebone osd --help` lists them.
    /// `cuttlebone osd create|list|zap|migrate|fsck` makes, moves and checks them
    #[command(disable_help_flag = true)]
    Osd {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
        flags: Vec<String>,
    },
    /// Deploy OSDs in the words of stock's ceph-volume: `cuttlebone ceph-volume lvm --help`
    #[command(disable_help_flag = true)]
    CephVolume {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let called = args.first().map(|a| Path::new(a).file_name().unwrap_or_default().to_string_lossy().into_owned()).unwrap_or_default();
    let done = match called.as_str() {
        "ceph-mon" => mon::main(&called, &args[1..]),
        "ceph-osd" => osd::main(&called, &args[1..]),
        "ceph-volume" => ceph_volume::main(&called, &args[1..]),
        "ceph-mgr" => mgr::main(&called, &args[1..]),
        _ => run(Cli::parse()),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{called}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Up(args) => up::up(&args)?,
        Command::Down { dir } => up::down(&dir)?,
        Command::Status { dir: Some(dir), .. } => up::status(&dir)?,
        Command::Status { conf, .. } => up::status_of_conf(&conf.unwrap_or_else(|| config::DEFAULT_CONF.into()))?,
        Command::Rados(args) => rados::main(&args).or_else(out::unheard)?,
        Command::Mon { flags } if flags.first().is_some_and(|f| f == "recover") => recover::main(&flags[1..])?,
        Command::Mon { flags } => return mon::main("cuttlebone mon", &flags),
        Command::Osd { flags } => return osd::main("cuttlebone osd", &flags),
        Command::CephVolume { words } => return ceph_volume::main("cuttlebone ceph-volume", &words),
    }
    Ok(ExitCode::SUCCESS)
}
