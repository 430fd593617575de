//! The ring in a file that has its space from the beginning.
//!
//! Why zeros are written ahead of the first lap: space that is only reserved has to be marked as written with each flush,
//! which is a commit of the file system's own log. And not all at once: a new store is to be there at once.

use super::ring::Medium;
use crate::block::{BufferPool, open_direct};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Zeros written ahead at a time.
const AHEAD_BYTES: u64 = 1 << 20;

pub struct RingFile {
    file: File,
    size: u64,
    /// In the first lap: zeros have been written up to here.
    ahead: u64,
    pool: BufferPool,
}

impl RingFile {
    /// Makes the file, or makes it anew. Errors: no space; then there is no file.
    pub fn create(path: &Path, size: u64) -> io::Result<Self> {
        let make = || {
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
            reserve(&file, size)?;
            file.sync_all()?;
            File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
        };
        if let Err(e) = make() {
            let _ = std::fs::remove_file(path);
            return Err(e);
        }
        Self::open(path)
    }

    /// For writing, past the page cache where the file system has that.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = open_direct(path)?.0;
        let size = file.metadata()?.len();
        Ok(RingFile { file, size, ahead: 0, pool: BufferPool::default() })
    }

    /// For reading at opening. Errors: it is missing, or not as long as the ring.
    pub fn open_to_read(path: &Path, size: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        // All of it will be read: the disk may begin.
        // SAFETY: no pointers are passed; the descriptor is ours. A hint: whatever comes of it.
        let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_WILLNEED) };
        match file.metadata()?.len() {
            len if len == size => Ok(RingFile { file, size, ahead: 0, pool: BufferPool::default() }),
            len => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{len} bytes long instead of {size}"))),
        }
    }

    /// Writes zeros from `off` to `end` and beyond, unless it has been done.
    fn write_ahead(&mut self, off: u64, end: u64) -> io::Result<()> {
        if end <= self.ahead {
            return Ok(());
        }
        let from = self.ahead.max(off);
        let to = (from + AHEAD_BYTES).max(end).min(self.size);
        let mut zeros = self.pool.get((to - from) as usize);
        zeros.as_mut().fill(0);
        self.file.write_all_at(zeros.as_ref(), from)?;
        self.ahead = to;
        Ok(())
    }
}

/// Space for the whole file, or where the file system cannot reserve, its length.
fn reserve(file: &File, size: u64) -> io::Result<()> {
    // SAFETY: no pointers are passed; the descriptor is ours.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size as i64) } {
        0 => Ok(()),
        libc::EOPNOTSUPP | libc::EINVAL => file.set_len(size),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

impl Medium for RingFile {
    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, off)
    }

    fn write(&mut self, off: u64, data: &[u8], behind_is_free: bool) -> io::Result<()> {
        if behind_is_free {
            self.write_ahead(off, off + data.len() as u64)?;
        }
        // Direct I/O wants aligned memory; what is copied here has been put together in small pieces.
        let mut aligned = self.pool.get(data.len());
        aligned.as_mut().copy_from_slice(data);
        self.file.write_all_at(aligned.as_ref(), off)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}
