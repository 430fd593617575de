//! The manager role: a node of its own on a thread of its own, in the process of a monitor.
//!
//! Scripts for stock daemons start a `ceph-mgr` too: called by that name this program says where the role is, and with
//! `-f` waits to be stopped, as whoever supervises it expects.

use crate::out::say;
use crate::config::DaemonConfig;
use crate::flags::DaemonFlags;
use crate::session::random_seed;
use anyhow::{Context, Result};
use auth::Keyring;
use client::MonClientConfig;
use io::{EventLoop, EventLoopConfig, Stopper};
use node::{MgrNode, MgrNodeConfig};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::thread::JoinHandle;
use types::{AddrVec, EntityAddr, EntityName};

/// Runs `ceph-mgr` with these flags: there is nothing for it to do.
pub fn main(called: &str, args: &[String]) -> Result<ExitCode> {
    let flags = DaemonFlags::parse(args)?;
    if flags.help {
        say!("usage: {called} -i ID [-f]\n\n{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    if flags.version {
        say!("{}", crate::daemon::version());
        return Ok(ExitCode::SUCCESS);
    }
    let id = flags.id.context("which one? Give -i ID (ceph-mgr -i x)")?;
    eprintln!("mgr.{id}: the manager role runs inside the monitor's process; there is nothing to start");
    if flags.foreground {
        // SIGHUP comes from logrotate, to every daemon there is.
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        signals.forever().find(|signal| *signal != SIGHUP);
    }
    Ok(ExitCode::SUCCESS)
}

const HELP: &str = "The manager role runs inside the monitor's process. This command exists so that scripts which start
a manager go on: it says so and ends, or with -f or -d waits until it is stopped.";

/// A running manager.
pub struct Manager {
    pub stopper: Stopper,
    thread: JoinHandle<()>,
}

impl Manager {
    /// Ends it and waits.
    pub fn end(self) {
        self.stopper.stop();
        // A panic of the manager has been logged by its thread; the monitor ends in order all the same.
        let _ = self.thread.join();
    }
}

/// Starts the manager `name` beside the monitor at `addrs`, on the same `ip`; its key is `mgr.keyring` in the monitor's directory.
pub fn start(config: &DaemonConfig, name: EntityName, dir: &Path, addrs: AddrVec, ip: std::net::IpAddr) -> Result<Manager> {
    let file = dir.join("mgr.keyring");
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let keyring: Keyring = text.parse().with_context(|| file.display().to_string())?;
    let key = keyring.key(&name).with_context(|| format!("{} has no key for {name}", file.display()))?.clone();
    let mut events = EventLoop::new(EventLoopConfig::default()).context("the manager's event loop")?;
    let bound = events.listen(SocketAddr::new(ip, 0)).context("the manager's port")?;
    let mut options = admin::option::ConfigValues::new(name.clone(), "ceph", config.host());
    for ignored in options.load_file(config.file())? {
        tracing::warn!("ceph.conf: {ignored}");
    }
    let node = MgrNodeConfig {
        addrs: AddrVec(vec![EntityAddr::msgr2(bound, std::process::id())]),
        // The others may not know a newcomer's manager yet, and refuse it.
        mon: MonClientConfig { near: Some(addrs.clone()), ..MonClientConfig::new(name, key, vec![addrs]) },
        options,
        metadata: crate::metadata::of_host(config.host()),
    };
    let stopper = events.stopper();
    let thread = std::thread::Builder::new().name("mgr".into()).spawn(move || {
        let mut node = MgrNode::new(node, events.clock().now(), random_seed());
        if let Err(error) = events.run(&mut node) {
            tracing::error!("the manager's event loop: {error}");
        }
    })?;
    Ok(Manager { stopper, thread })
}
