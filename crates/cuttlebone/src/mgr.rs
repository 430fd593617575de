//! The manager role: a node of its own on a thread of its own, in the process of a monitor.

use crate::config::DaemonConfig;
use crate::session::random_seed;
use anyhow::{Context, Result};
use auth::Keyring;
use client::MonClientConfig;
use io::{EventLoop, EventLoopConfig, Stopper};
use node::{MgrNode, MgrNodeConfig};
use std::net::SocketAddr;
use std::path::Path;
use std::thread::JoinHandle;
use types::map::MonMap;
use types::{AddrVec, EntityAddr, EntityName};

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

/// Starts the manager `name` beside a monitor that listens at `ip`; its key is `mgr.keyring` in the monitor's directory.
pub fn start(config: &DaemonConfig, name: EntityName, dir: &Path, monmap: &MonMap, ip: std::net::IpAddr) -> Result<Manager> {
    let file = dir.join("mgr.keyring");
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let keyring: Keyring = text.parse().with_context(|| file.display().to_string())?;
    let key = keyring.key(&name).with_context(|| format!("{} has no key for {name}", file.display()))?.clone();
    let mut events = EventLoop::new(EventLoopConfig::default()).context("the manager's event loop")?;
    let bound = events.listen(SocketAddr::new(ip, 0)).context("the manager's port")?;
    let addrs = monmap.mon_info.values().map(|m| m.public_addrs.clone()).collect();
    let mut options = admin::option::ConfigValues::new(name.clone(), "ceph", config.host());
    for ignored in options.load_file(config.file())? {
        tracing::warn!("ceph.conf: {ignored}");
    }
    let node = MgrNodeConfig {
        addrs: AddrVec(vec![EntityAddr::msgr2(bound, std::process::id())]),
        mon: MonClientConfig::new(name, key, addrs),
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
