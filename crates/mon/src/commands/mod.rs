//! Commands: a table of what can be ordered, by whom, and the functions that do it.
//!
//! Upstream: src/mon/MonCommands.h, src/mon/Monitor.cc (handle_command).

pub mod auth;
pub mod config;
pub mod config_key;
pub mod crush;
pub mod crush_rule;
pub mod ec_profile;
pub mod fs;
pub mod general;
pub mod health;
pub mod log;
mod loggers;
pub mod mgr;
pub mod mon;
mod not_built;
pub mod osd;
pub mod osd_dump;
pub mod osd_life;
pub mod osd_set;
pub mod osd_tree;
pub mod pg;
pub mod pool;
pub mod pool_app;
pub mod pool_erasure;
pub mod pool_get;
pub mod pool_set;
pub mod pool_snap;
pub mod specs;
pub mod tell;
pub mod upmap;
pub mod usage;

use crate::cmd::Cmd;
use crate::env::{Env, Quorum};
use crate::reply::{Outcome, Reply};
use crate::services::State;
use crate::session::{Session, SessionId};
use crate::txn::Txn;
use ::auth::ChaCha8Rng;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use types::map::{OsdMap, PgPool};
use types::{Errno, Now, PoolId};

/// What a command may use and change.
pub struct Ctx<'a> {
    pub now: Now,
    pub state: &'a mut State,
    pub txn: &'a mut Txn,
    pub env: &'a mut Env,
    pub quorum: Quorum,
    pub rng: &'a mut ChaCha8Rng,
    pub sessions: &'a BTreeMap<SessionId, Session>,
    /// Who ordered it; none for what the monitor does by itself.
    pub who: Option<&'a Session>,
    /// Reads a key of the kv.
    pub read: &'a dyn Fn(&[u8]) -> Option<Bytes>,
    /// (first, last applied) entry of the replicated log.
    pub log_range: (u64, u64),
}

impl Ctx<'_> {
    /// The newest osdmap.
    pub fn osdmap(&self) -> Arc<OsdMap> {
        self.state.osdmap.map.clone()
    }

    /// The pool called `name`, or the refusal that says there is none.
    pub fn pool(&self, name: &str) -> Result<(PoolId, PgPool), Reply> {
        match self.state.osdmap.map.pool(name) {
            Some((id, pool)) => Ok((id, pool.clone())),
            None => Err(Reply::err(Errno::ENOENT, format!("unrecognized pool '{name}'"))),
        }
    }

    /// A switch of the monitor's configuration.
    pub fn bool_option(&self, name: &str, default: bool) -> bool {
        self.env.bool(self.state, name, default)
    }

    /// A whole number of the monitor's configuration.
    pub fn int_option(&self, name: &str, default: i64) -> i64 {
        self.env.int(self.state, name, default)
    }
}

/// One command.
pub struct Entry {
    pub prefix: &'static str,
    /// The service whose capability is asked for: `mon`, `osd`, `auth`, ...
    pub module: &'static str,
    /// Of `r`, `w`, `x`.
    pub perm: &'static str,
    pub run: fn(&mut Ctx<'_>, &Cmd) -> Outcome,
}

impl Entry {
    /// True if it may change something.
    pub fn writes(&self) -> bool {
        self.perm.contains('w')
    }
}

/// Shorthand for tables.
pub(crate) const fn entry(
    prefix: &'static str,
    module: &'static str,
    perm: &'static str,
    run: fn(&mut Ctx<'_>, &Cmd) -> Outcome,
) -> Entry {
    Entry { prefix, module, perm, run }
}

type Table = BTreeMap<&'static str, &'static Entry>;

/// Commands for the monitors.
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let all: [&'static [Entry]; 26] = [
            auth::COMMANDS, config::COMMANDS, config_key::COMMANDS, crush::COMMANDS, crush_rule::COMMANDS,
            ec_profile::COMMANDS, fs::COMMANDS, general::COMMANDS, health::COMMANDS, log::COMMANDS, mgr::COMMANDS,
            mon::COMMANDS, not_built::COMMANDS, osd::COMMANDS, osd_dump::COMMANDS, osd_life::COMMANDS, osd_set::COMMANDS,
            osd_tree::COMMANDS, pg::COMMANDS, pool::COMMANDS, pool_app::COMMANDS, pool_get::COMMANDS, pool_set::COMMANDS,
            pool_snap::COMMANDS, upmap::COMMANDS, usage::COMMANDS,
        ];
        all.into_iter().flatten().map(|e| (e.prefix, e)).collect()
    });
    &TABLE
}

/// Commands for one monitor, by `tell` or its admin socket.
pub fn tell_table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| tell::COMMANDS.iter().map(|e| (e.prefix, e)).collect());
    &TABLE
}

/// The command called `prefix`.
pub fn find(table: &'static Table, prefix: &str) -> Option<&'static Entry> {
    table.get(prefix).copied()
}

/// Families of commands of stock Ceph that have nothing behind them here yet.
const NOT_YET: [&str; 2] = ["fs", "mds"];

/// What to say of a command that is not in the table: commands of stock Ceph that are yet to be built say so.
pub fn unknown(cmd: &Cmd, tell: bool) -> Reply {
    match !tell && NOT_YET.iter().any(|p| cmd.prefix == *p || cmd.prefix.starts_with(&format!("{p} "))) {
        true => Reply::err(Errno::EOPNOTSUPP, format!("'{}' is not available in this cluster yet", cmd.prefix)),
        // A stock monitor passes these on; ours is no client of the manager, and stock tools go there by themselves.
        false if !tell && specs::is_manager_s(&cmd.prefix) => {
            Reply::err(Errno::EOPNOTSUPP, format!("'{}' is the manager's command: send it there (see `ceph mgr dump`)", cmd.prefix))
        }
        // The monitor's own commands are known, but only by `tell`.
        false if !tell && find(tell_table(), &cmd.prefix).is_some() => Reply::err(Errno::EINVAL, "unrecognized command"),
        false => Reply::err(Errno::EINVAL, "command not known"),
    }
}
