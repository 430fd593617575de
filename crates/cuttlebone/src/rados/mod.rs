//! `cuttlebone rados`: objects of a cluster, ours or stock Ceph's, in the words of the stock `rados` command.

mod bench;
mod check;
mod keys;
mod objects;
mod pools;
mod watch;

use crate::config::DaemonConfig;
use crate::session::Session;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use client::IoCtx;
use std::path::PathBuf;
use std::time::Duration;
use types::{EntityKind, Errno};

/// How long a cluster is given to answer when connecting.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which cluster, as whom, where in it.
#[derive(Args)]
pub struct RadosArgs {
    /// The cluster's ceph.conf (default: /etc/ceph/ceph.conf)
    #[arg(short, long, global = true)]
    conf: Option<PathBuf>,
    /// Our name, without `client.`
    #[arg(long, default_value = "admin", global = true)]
    id: String,
    /// The file with our key, instead of what ceph.conf says
    #[arg(short, long, global = true)]
    keyring: Option<PathBuf>,
    #[arg(short, long, global = true)]
    pool: Option<String>,
    /// Namespace within the pool
    #[arg(short = 'N', long, default_value = "", global = true)]
    namespace: String,
    /// All namespaces, for `ls`
    #[arg(long, global = true)]
    all: bool,
    /// Place objects by this key instead of their names
    #[arg(long, default_value = "", global = true)]
    object_locator: String,
    #[command(subcommand)]
    command: RadosCommand,
}

#[derive(Subcommand)]
enum RadosCommand {
    /// Names of all pools
    Lspools,
    /// Create a pool with the cluster's defaults
    Mkpool { name: String },
    /// Delete a pool: its name twice, and that you mean it
    Rmpool {
        name: String,
        again: String,
        #[arg(long)]
        yes_i_really_really_mean_it: bool,
    },
    /// Use of the pools and of the cluster
    Df,
    /// Names of a pool's objects
    Ls,
    /// Store a file (`-`: standard input)
    Put { object: String, file: PathBuf },
    /// Fetch an object into a file (`-`: standard output)
    Get { object: String, file: PathBuf },
    /// Append a file to an object
    Append { object: String, file: PathBuf },
    /// Size and time of change
    Stat { object: String },
    /// Remove objects
    Rm {
        #[arg(required = true)]
        objects: Vec<String>,
    },
    /// Remove every object of the pool, in all namespaces
    Purge {
        name: String,
        #[arg(long)]
        yes_i_really_really_mean_it: bool,
    },
    /// Create an empty object
    Create { object: String },
    /// Create an object unless it is there
    Touch { object: String },
    /// Cut or extend to a size in bytes
    Truncate { object: String, size: u64 },
    Setxattr { object: String, name: String, value: String },
    Getxattr { object: String, name: String },
    Listxattr { object: String },
    Rmxattr { object: String, name: String },
    Setomapval { object: String, key: String, value: String },
    Getomapval { object: String, key: String },
    Listomapkeys { object: String },
    Listomapvals { object: String },
    Rmomapkey { object: String, key: String },
    Clearomap { object: String },
    Getomapheader { object: String },
    Setomapheader { object: String, value: String },
    /// Advisory locks
    #[command(subcommand)]
    Lock(keys::LockCommand),
    /// Wait for notifications of an object; a line on standard input ends it
    Watch { object: String },
    /// Notify the watchers of an object
    Notify {
        object: String,
        message: String,
        /// Seconds to wait for their answers
        #[arg(long, default_value_t = 30)]
        timeout: u32,
    },
    Listwatchers { object: String },
    /// Measure writes, or reads of what a write run with --no-cleanup left
    Bench(bench::BenchArgs),
    /// Ask whether the cluster does what RADOS must do
    Check(check::CheckArgs),
}

/// Runs one command. Errors: the cluster cannot be reached, or the operation's own errno in words.
pub fn main(args: &RadosArgs) -> Result<()> {
    let mut overrides = Vec::new();
    if let Some(keyring) = &args.keyring {
        overrides.push(("keyring".to_owned(), keyring.display().to_string()));
    }
    let config = DaemonConfig::load(EntityKind::CLIENT, &args.id, args.conf.as_deref(), &overrides)?;
    let session = Session::open(&config, PATIENCE)?;
    match &args.command {
        RadosCommand::Lspools => return pools::list(&session),
        RadosCommand::Mkpool { name } => return pools::create(&session, name),
        RadosCommand::Rmpool { name, again, yes_i_really_really_mean_it } => {
            return pools::remove(&session, name, again, *yes_i_really_really_mean_it);
        }
        RadosCommand::Df => return pools::usage(&session),
        _ => {}
    }
    let io = match &args.command {
        RadosCommand::Purge { name, yes_i_really_really_mean_it: true } => open_pool(&session, Some(name.as_str()), args)?,
        RadosCommand::Purge { name, .. } => {
            bail!("this removes every object of pool {name}: give --yes-i-really-really-mean-it if you are certain");
        }
        _ => open_pool(&session, args.pool.as_deref(), args)?,
    };
    match &args.command {
        RadosCommand::Watch { object } => watch::watch(&session, &io, object),
        RadosCommand::Bench(bench) => bench::run(&session, &io, bench),
        RadosCommand::Check(check) => check::run(&session, &io, check),
        command => session.block_on(on_object(&io, args.all, command)),
    }
}

fn open_pool(session: &Session, name: Option<&str>, args: &RadosArgs) -> Result<IoCtx> {
    let name = name.context("which pool? (-p NAME)")?;
    match session.block_on(session.handle.pool(name)) {
        Ok(io) => Ok(io.namespace(args.namespace.as_str()).locator_key(args.object_locator.as_str())),
        Err(errno) => bail!("error opening pool {name}: {errno}"),
    }
}

async fn on_object(io: &IoCtx, all: bool, command: &RadosCommand) -> Result<()> {
    use RadosCommand as C;
    match command {
        C::Ls => objects::list(io, all).await,
        C::Put { object, file } => objects::put(io, object, file).await,
        C::Get { object, file } => objects::get(io, object, file).await,
        C::Append { object, file } => objects::append(io, object, file).await,
        C::Stat { object } => objects::stat(io, object).await,
        C::Rm { objects } => objects::remove(io, objects).await,
        C::Purge { name, .. } => objects::purge(io).await.with_context(|| format!("purging pool {name}")),
        C::Create { object } => said(io.create(object.as_bytes(), true).await, "creating", object),
        C::Touch { object } => said(io.create(object.as_bytes(), false).await, "touching", object),
        C::Truncate { object, size } => said(io.truncate(object.as_bytes(), *size).await, "truncating", object),
        C::Setxattr { object, name, value } => {
            said(io.setxattr(object.as_bytes(), name.as_bytes(), value.as_bytes()).await, "setting xattr on", object)
        }
        C::Getxattr { object, name } => keys::getxattr(io, object, name).await,
        C::Listxattr { object } => keys::listxattr(io, object).await,
        C::Rmxattr { object, name } => {
            said(io.rmxattr(object.as_bytes(), name.as_bytes()).await, "removing xattr of", object)
        }
        C::Setomapval { object, key, value } => keys::setomapval(io, object, key, value).await,
        C::Getomapval { object, key } => keys::getomapval(io, object, key).await,
        C::Listomapkeys { object } => keys::listomapkeys(io, object).await,
        C::Listomapvals { object } => keys::listomapvals(io, object).await,
        C::Rmomapkey { object, key } => keys::rmomapkey(io, object, key).await,
        C::Clearomap { object } => said(io.omap_clear(object.as_bytes()).await, "clearing omap of", object),
        C::Getomapheader { object } => keys::getomapheader(io, object).await,
        C::Setomapheader { object, value } => {
            let value = value.clone().into_bytes().into();
            said(io.omap_set_header(object.as_bytes(), value).await, "setting omap header of", object)
        }
        C::Lock(lock) => keys::lock(io, lock).await,
        C::Notify { object, message, timeout } => watch::notify(io, object, message, *timeout).await,
        C::Listwatchers { object } => watch::list(io, object).await,
        C::Lspools | C::Mkpool { .. } | C::Rmpool { .. } | C::Df | C::Watch { .. } | C::Bench(_) | C::Check(_) => {
            unreachable!("handled before a pool's objects")
        }
    }
}

/// An errno in a sentence: `error stat-ing o: (2) No such file or directory`.
fn said<T>(result: Result<T, Errno>, doing: &str, object: &str) -> Result<T> {
    result.map_err(|errno| anyhow::anyhow!("error {doing} {object}: {errno}"))
}
