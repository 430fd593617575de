//! What the operating system keeps of a device that is written past it.
//!
//! Owns: [`PageCache`].   Holds: who asks what is there starts no I/O. A read that must not wait (`RWF_NOWAIT`) does that when it finds nothing, past every
//! queue of ours; so it is done only where `mincore` has seen all pages.
//! The kernel takes out what is written past it. Of a block device it does so before the write only: what is read meanwhile may stay as it was.

use crate::heap::page_size;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

const PAGE: usize = 4096;
/// Longest range that is looked for, in pages: 1 MiB.
const PAGES_MAX: usize = 256;

pub(super) struct PageCache {
    file: File,
    /// The whole device, for `mincore` alone: nobody may look at its memory.
    mapped: *mut libc::c_void,
    len: usize,
}

// SAFETY: the mapping is not tied to a thread, and nobody reads or writes it.
unsafe impl Send for PageCache {}
// SAFETY: as above.
unsafe impl Sync for PageCache {}

impl PageCache {
    /// Of a device of `len` bytes. `None` where it cannot be told what is there, and where the kernel's pages are larger than our blocks.
    pub fn open(path: &Path, len: u64) -> Option<PageCache> {
        let len = usize::try_from(len).ok().filter(|len| *len >= PAGE && page_size() == PAGE as u64)?;
        let file = File::open(path).ok()?;
        // SAFETY: no pointers are passed. Nobody asked for what lies behind.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
        // SAFETY: new addresses, without any right; nothing of ours is touched.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return None;
        }
        let cache = PageCache { file, mapped, len };
        // Who may not know is told that everything is there.
        cache.forget(0, PAGE);
        (cache.pages(0, PAGE) == Some(0)).then_some(cache)
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// How many pages of the range are there; `None` if it is too long or not of the device.
    fn pages(&self, off: u64, len: usize) -> Option<usize> {
        let from = usize::try_from(off).ok()?;
        let n = len.div_ceil(PAGE);
        if from.checked_add(len)? > self.len || n > PAGES_MAX {
            return None;
        }
        let mut present = [0_u8; PAGES_MAX];
        // SAFETY: the range lies in the mapping, and the kernel writes a byte for each of its pages, of which `present` has enough.
        let done = unsafe { libc::mincore(self.mapped.byte_add(from), len, present.as_mut_ptr()) };
        (done == 0).then(|| present[..n].iter().filter(|page| **page & 1 == 1).count())
    }

    /// The range, if all of it is there.
    pub fn get(&self, off: u64, len: usize) -> Option<Bytes> {
        if self.pages(off, len)? * PAGE < len {
            return None;
        }
        let mut data: Vec<u8> = Vec::with_capacity(len);
        let room = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: len };
        // SAFETY: the kernel writes at most `len` bytes, where there is room for them.
        let found = unsafe { libc::preadv2(self.file.as_raw_fd(), &room, 1, off as i64, libc::RWF_NOWAIT) };
        if usize::try_from(found).ok()? < len {
            return None;
        }
        // SAFETY: so many bytes were written from the beginning on.
        unsafe { data.set_len(len) };
        Some(Bytes::from(data))
    }

    /// It need not be kept any longer.
    pub fn forget(&self, off: u64, len: usize) {
        // SAFETY: no pointers are passed.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), off as i64, len as i64, libc::POSIX_FADV_DONTNEED) };
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference into it.
        if unsafe { libc::munmap(self.mapped, self.len) } != 0 {
            tracing::warn!("a mapping of a device stays: {}", io::Error::last_os_error());
        }
    }
}
