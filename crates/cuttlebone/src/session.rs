//! A client session of a command-line tool: the event loop on a thread of its own, futures on this one.

use crate::config::DaemonConfig;
use anyhow::{Context, Result};
use bytes::Bytes;
use client::{Client, Handle, MonClientConfig};
use node::ClientNode;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use types::Errno;

/// A running client.
pub struct Session {
    pub handle: Handle,
    stopper: io::event_loop::Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Session {
    /// Connects as the configuration says. Errors name what is missing, who refused, or that nobody answered within
    /// `patience`.
    pub fn open(config: &DaemonConfig, patience: Duration) -> Result<Session> {
        let addrs = config.mon_addrs()?;
        let mut mon = MonClientConfig::new(config.name.clone(), config.key()?, addrs.clone());
        mon.hostname = config.host().to_owned();
        if let Some(modes) = modes(config, "ms_mon_client_mode")? {
            mon.mon_modes = modes;
        }
        if let Some(modes) = modes(config, "ms_client_mode")? {
            mon.service_modes = modes;
        }
        let events = io::EventLoop::new(io::EventLoopConfig::default()).context("making an event loop")?;
        let (completions, stopper) = (events.completions(), events.stopper());
        let wake = Arc::new(move || completions.complete(0, Ok(Bytes::new())));
        let seed = random_seed();
        let nonce = u32::from_le_bytes([seed[0], seed[1], seed[2], seed[3]]);
        let (client, handle) = Client::new(mon, nonce, random_seed(), wake);
        let thread = std::thread::Builder::new()
            .name("client".into())
            .spawn(move || {
                if let Err(error) = events.run(&mut ClientNode::new(client)) {
                    tracing::error!("event loop: {error}");
                }
            })
            .context("starting a thread")?;
        let session = Session { handle, stopper, thread: Some(thread) };
        let connected = session.block_on_for(session.handle.connect(), patience);
        match connected {
            Some(Ok(_)) => Ok(session),
            Some(Err(Errno::EACCES)) => {
                anyhow::bail!("the monitors refuse {}: wrong key, or no such entity", config.name)
            }
            Some(Err(errno)) => anyhow::bail!("the monitors refuse {}: {errno}", config.name),
            None => {
                let addrs: Vec<String> = addrs.iter().map(|a| a.to_string()).collect();
                anyhow::bail!("no monitor at {} answered within {} s", addrs.join(", "), patience.as_secs())
            }
        }
    }

    /// Waits for a future.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.wait(future, None).expect("a wait without end does not end early")
    }

    /// Waits for a future, at most for `patience`.
    pub fn block_on_for<T>(&self, future: impl Future<Output = T>, patience: Duration) -> Option<T> {
        self.wait(future, Some(Instant::now() + patience))
    }

    fn wait<T>(&self, future: impl Future<Output = T>, until: Option<Instant>) -> Option<T> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut cx = std::task::Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(out) = future.as_mut().poll(&mut cx) {
                return Some(out);
            }
            match until {
                None => std::thread::park(),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    std::thread::park_timeout(left);
                }
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// `crc secure`: modes in order of preference.
fn modes(config: &DaemonConfig, option: &str) -> Result<Option<Vec<u32>>> {
    let Some(text) = config.get(option) else { return Ok(None) };
    let modes = auth::mode::parse(&text).map_err(|word| anyhow::anyhow!("{option} = {text:?}: {word:?} is neither crc nor secure"))?;
    Ok((!modes.is_empty()).then_some(modes))
}

/// Secret seeds come from the kernel.
pub fn random_seed() -> [u8; 32] {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).expect("the kernel gives random bytes");
    seed
}
