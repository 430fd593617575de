//! A daemon's log file: reopened after a rotation, and with room kept for the last words, because a daemon that ends
//! for want of room on the file system that holds its log must still be able to say so.

use anyhow::{Context, Result};
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Room kept beyond the end of the log, in bytes: a panic's backtrace and some lines before it.
const LAST_WORDS: u64 = 64 << 10;

/// The log of this process; clones write to the same file.
#[derive(Clone)]
pub struct LogFile(Arc<Mutex<Open>>);

struct Open {
    path: PathBuf,
    file: File,
    /// Blocks are allocated up to here.
    reserved_to: u64,
    /// Standard error goes here too, so that a panic is found in the log.
    takes_stderr: bool,
}

impl LogFile {
    /// Opens `path` to append to it; fails if it cannot be made.
    pub fn open(path: &Path) -> Result<LogFile> {
        let mut open = Open { path: path.to_owned(), file: open_file(path)?, reserved_to: 0, takes_stderr: false };
        open.reserve();
        Ok(LogFile(Arc::new(Mutex::new(open))))
    }

    /// Opens the path again, as `logrotate` asks with SIGHUP when it has moved the file away.
    pub fn reopen(&self) -> Result<()> {
        let mut open = self.locked();
        open.file = open_file(&open.path)?;
        open.reserved_to = 0;
        open.reserve();
        if open.takes_stderr {
            let _ = rustix::stdio::dup2_stderr(&open.file);
        }
        Ok(())
    }

    /// From here on, standard error is this file.
    pub fn take_stderr(&self) {
        let mut open = self.locked();
        open.takes_stderr = rustix::stdio::dup2_stderr(&open.file).is_ok();
    }

    fn locked(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut open = self.locked();
        let n = open.file.write(bytes)?;
        open.reserve();
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Open {
    /// Keeps at least half of the room allocated. A file system that cannot, or has none left, costs no line of the log.
    fn reserve(&mut self) {
        let Ok(len) = self.file.metadata().map(|m| m.len()) else { return };
        if len + LAST_WORDS / 2 <= self.reserved_to {
            return;
        }
        if rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, len, LAST_WORDS).is_ok() {
            self.reserved_to = len + LAST_WORDS;
        }
    }
}

fn open_file(path: &Path) -> Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.with_context(|| format!("opening the log {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("cuttlebone-log-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir.join("osd.0.log")
    }

    #[test]
    fn room_for_last_words_is_allocated_ahead() {
        let path = scratch("room");
        let mut log = LogFile::open(&path).unwrap();
        for _ in 0..2_000 {
            log.write_all(&[b'x'; 99]).unwrap();
            let meta = std::fs::metadata(&path).unwrap();
            let ahead = (meta.blocks() * 512).saturating_sub(meta.len());
            assert!(ahead >= LAST_WORDS / 2 - 4096, "{ahead} bytes ahead at {}", meta.len());
        }
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_rotated_log_goes_on_in_a_new_file() {
        let path = scratch("rotated");
        let mut log = LogFile::open(&path).unwrap();
        log.write_all(b"before\n").unwrap();
        let moved = path.with_extension("1");
        std::fs::rename(&path, &moved).unwrap();
        log.reopen().unwrap();
        log.write_all(b"after\n").unwrap();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "before\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "after\n");
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
