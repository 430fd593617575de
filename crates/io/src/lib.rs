//! The real world: sockets, clocks, signals, block devices and RocksDB.
//!
//! Room: io. I move bytes and report completions; I know no protocol.
#![allow(clippy::disallowed_methods, reason = "this is the outside that the others must not touch")]

pub mod block;
pub mod clock;
pub mod event_loop;
mod heap;
pub mod kv;
mod patience;
mod sink;
pub mod sockets;

pub use clock::Clock;
pub use event_loop::{Completions, EventLoop, EventLoopConfig, RealWorld, Stopper};
pub use sink::IoSink;

/// A directory for a test, removed when it is over.
#[cfg(test)]
pub(crate) struct TempDir(std::path::PathBuf);

#[cfg(test)]
impl TempDir {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cuttlebone-io-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a temporary directory");
        TempDir(path)
    }

    pub fn path(&self) -> &std::path::Path {
        &self.0
    }
}

#[cfg(test)]
impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
