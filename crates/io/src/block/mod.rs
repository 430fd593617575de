//! Block devices: files and raw disks, through io_uring or threads; written past the page cache, and read past it or through it, as the store wants.
//!
//! Room: io.   Owns: `FileDev`, the store's side, and `DevEvents`, the event loop's side of the same device.
//! Holds: submissions of one turn of the loop cost one system call; completions cost none when the loop is awake.

mod buffer;
mod page_cache;
mod ring;
mod threads;

use crate::patience::until_free;
pub(crate) use buffer::{BufferPool, Filling, HUGE_PAGE};
use bytes::Bytes;
use page_cache::PageCache;
use ring::Ring;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use store::{BlockDev, IoId, WriteBuffer};
use threads::Threads;
use types::Errno;
use types::msg::BufList;

/// Memory of direct I/O must be aligned to this; every disk of the last twenty years is content with it.
const DMA_ALIGN: usize = 512;
/// Pieces of one vectored write.
const PIECES_MAX: usize = 512;

/// How I/O reaches the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// io_uring where the kernel allows it, else threads.
    #[default]
    Auto,
    Uring,
    /// This many threads with pread and pwrite.
    Threads(usize),
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0}: another process uses it (is the daemon running already?)")]
    InUse(PathBuf),
    #[error("{0}: neither a file nor a block device")]
    NotADevice(PathBuf),
    #[error("{path}: setting up io_uring: {source}")]
    Uring { path: PathBuf, source: io::Error },
}

/// A finished I/O.
pub type Completion = (IoId, Result<Bytes, Errno>);

/// What is to be done; memory stays here until it is.
enum Request {
    /// The buffer gets its memory as late as possible. `cached`: through the page cache.
    Read { off: u64, buffer: buffer::Buffer, cached: bool },
    /// With `align` those pieces are copied, as late as possible, that do not lie as the device wants them.
    Write { off: u64, pieces: Vec<Bytes>, align: Option<BufferPool> },
    Flush,
}

impl Request {
    /// Bytes to move.
    fn bytes(&self) -> usize {
        match self {
            Request::Read { buffer, .. } => buffer.len(),
            Request::Write { pieces, .. } => pieces.iter().map(Bytes::len).sum(),
            Request::Flush => 0,
        }
    }

    /// Makes it one the kernel takes.
    fn prepare(&mut self) {
        match self {
            Request::Read { buffer, .. } => buffer.provide(),
            Request::Write { pieces, align, .. } => {
                if let Some(pool) = align.take() {
                    *pieces = pool.align(pieces, DMA_ALIGN);
                    if pieces.len() > PIECES_MAX {
                        *pieces = vec![pool.gather(pieces).freeze()];
                    }
                }
            }
            Request::Flush => {}
        }
    }
}

/// One device, opened twice.
struct Files {
    /// Past the page cache, where the file system has that.
    direct: File,
    /// Through it, for reading; `None` where `direct` goes through it anyway, or nobody tells what is there.
    cached: Option<PageCache>,
}

impl Files {
    fn of(&self, request: &Request) -> &File {
        match request {
            Request::Read { cached: true, .. } => self.cached.as_ref().map_or(&self.direct, PageCache::file),
            _ => &self.direct,
        }
    }
}

enum Engine {
    Ring(Box<Ring>),
    Threads(Threads),
}

/// A device as the store sees it.
pub struct FileDev {
    files: Arc<Files>,
    size: u64,
    rotational: bool,
    direct: bool,
    /// A file that does not have all its blocks yet.
    sparse: bool,
    pool: BufferPool,
    engine: Arc<Mutex<Engine>>,
}

/// A device as the event loop sees it: a descriptor that becomes readable when something has completed.
pub struct DevEvents {
    engine: Arc<Mutex<Engine>>,
    wake: Arc<OwnedFd>,
    pool: BufferPool,
}

/// Creates a file of `size` bytes that takes space as it is written. Fails if it exists.
pub fn create_sparse(path: &Path, size: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.set_len(size)?;
    file.sync_all()
}

/// Opens a file or a block device for one user at a time.
pub fn open(path: &Path, backend: Backend) -> Result<(FileDev, DevEvents), OpenError> {
    let io = |source| OpenError::Io { path: path.into(), source };
    let (mut file, direct) = open_direct(path).map_err(io)?;
    let meta = file.metadata().map_err(io)?;
    let is_disk = meta.file_type().is_block_device();
    if !is_disk && !meta.is_file() {
        return Err(OpenError::NotADevice(path.into()));
    }
    lock(&file).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => OpenError::InUse(path.into()),
        _ => io(source),
    })?;
    let size = file.seek(SeekFrom::End(0)).map_err(io)? / 4096 * 4096;
    if is_disk && is_buffered_loop(meta.rdev()) {
        tracing::warn!(
            "{}: a loop device without direct I/O says of writes that they are done when its file had no room for them: losetup --direct-io=on",
            path.display()
        );
    }
    let rotational = rotational(if is_disk { meta.rdev() } else { meta.dev() });
    let cached = if direct { PageCache::open(path, size) } else { None };
    if direct && cached.is_none() {
        tracing::info!("{}: reads ask the device, never the page cache: it does not say what it has, or has larger pages than 4 KiB", path.display());
    }
    let files = Arc::new(Files { direct: file, cached });
    let wake = Arc::new(eventfd().map_err(io)?);
    let engine = match backend {
        Backend::Threads(n) => Engine::Threads(Threads::new(&files, &wake, n).map_err(io)?),
        _ => match Ring::new(&files, &wake) {
            Ok(ring) => Engine::Ring(Box::new(ring)),
            Err(e) if backend == Backend::Auto => {
                tracing::info!("{}: no io_uring ({e}), using threads", path.display());
                Engine::Threads(Threads::new(&files, &wake, 16).map_err(io)?)
            }
            Err(source) => return Err(OpenError::Uring { path: path.into(), source }),
        },
    };
    let engine = Arc::new(Mutex::new(engine));
    let sparse = !is_disk && meta.blocks() * 512 < size;
    let pool = BufferPool::default();
    let dev = FileDev { files, size, rotational, direct, sparse, pool: pool.clone(), engine: engine.clone() };
    Ok((dev, DevEvents { engine, wake, pool }))
}

/// With O_DIRECT where the file system has it.
pub(crate) fn open_direct(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.clone().custom_flags(libc::O_DIRECT).open(path) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok((options.open(path)?, false)),
        other => Ok((other?, true)),
    }
}

/// Locks the device for us.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    until_free(|e: &io::Error| e.kind() == io::ErrorKind::WouldBlock, || {
        // SAFETY: the descriptor is open for as long as `file` is borrowed.
        match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    })
}

fn eventfd() -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// True for a loop device through the page cache. On a full file system its driver (seen with Linux 6.18) takes a write of
/// which only the beginning had room for one that is whole.
fn is_buffered_loop(dev: u64) -> bool {
    said_of(dev, "loop/dio").is_ok_and(|s| s.trim() == "0")
}

/// What the kernel says of a disk.
fn said_of(dev: u64, file: &str) -> io::Result<String> {
    std::fs::read_to_string(format!("/sys/dev/block/{}:{}/{file}", libc::major(dev), libc::minor(dev)))
}

/// True if the kernel says that the disk's head moves; flash if it says nothing.
fn rotational(dev: u64) -> bool {
    // A partition has no queue of its own.
    said_of(dev, "queue/rotational").or_else(|_| said_of(dev, "../queue/rotational")).is_ok_and(|s| s.trim() == "1")
}

impl FileDev {
    fn start(&mut self, id: IoId, request: Request) {
        match &mut *self.engine.lock().expect("no holder panics") {
            Engine::Ring(ring) => ring.push(id, request),
            Engine::Threads(threads) => threads.push(id, request),
        }
    }

    /// True if writing these pieces needs no copy.
    fn writable_as_is(&self, pieces: &[Bytes]) -> bool {
        let aligned = |p: &Bytes| (p.as_ptr() as usize).is_multiple_of(DMA_ALIGN) && p.len().is_multiple_of(DMA_ALIGN);
        pieces.len() <= PIECES_MAX && (!self.direct || pieces.iter().all(aligned))
    }
}

/// Bytes that are left on the file system of a directory; 0 if it cannot be opened.
pub(crate) fn room_of(dir: &Path) -> u64 {
    File::open(dir).ok().and_then(|dir| room_on(&dir)).unwrap_or(0)
}

/// Bytes that are left on the file system of a file.
fn room_on(file: &File) -> Option<u64> {
    let mut fs = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the descriptor is ours, and the kernel writes one statvfs where there is room for one.
    let done = unsafe { libc::fstatvfs(file.as_raw_fd(), fs.as_mut_ptr()) };
    // SAFETY: zeroed before, and plain numbers.
    let fs = unsafe { fs.assume_init() };
    (done == 0).then(|| fs.f_bavail.saturating_mul(fs.f_frsize))
}

impl BlockDev for FileDev {
    fn size(&self) -> u64 {
        self.size
    }

    fn block_size(&self) -> u32 {
        4096
    }

    fn rotational(&self) -> bool {
        self.rotational
    }

    fn room_beneath(&self) -> Option<u64> {
        if !self.sparse {
            return None;
        }
        room_on(&self.files.direct)
    }

    fn read(&mut self, id: IoId, off: u64, len: usize) {
        let buffer = self.pool.promise(len);
        self.start(id, Request::Read { off, buffer, cached: false });
    }

    fn read_cached(&mut self, id: IoId, off: u64, len: usize) {
        let buffer = self.pool.promise(len);
        self.start(id, Request::Read { off, buffer, cached: true });
    }

    fn cached(&mut self, off: u64, len: usize) -> Option<Bytes> {
        self.files.cached.as_ref()?.get(off, len)
    }

    fn uncache(&mut self, off: u64, len: u64) {
        if let Some(cache) = &self.files.cached {
            cache.forget(off, len as usize);
        }
    }

    fn write(&mut self, id: IoId, off: u64, data: BufList) {
        let align = if self.writable_as_is(data.pieces()) { None } else { Some(self.pool.clone()) };
        self.start(id, Request::Write { off, pieces: data.into_pieces(), align });
    }

    fn buffer(&self, len: usize) -> Box<dyn WriteBuffer> {
        Box::new(self.pool.get(len))
    }

    fn flush(&mut self, id: IoId) {
        self.start(id, Request::Flush);
    }

    fn discard(&mut self, off: u64, len: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: no pointers are passed; the descriptor is ours. A hint: where it is not supported nothing happens.
        let _ = unsafe { libc::fallocate(self.files.direct.as_raw_fd(), mode, off as i64, len as i64) };
    }

    fn read_sync(&mut self, off: u64, len: usize) -> Result<Bytes, Errno> {
        let mut buffer = self.pool.get(len);
        self.files.direct.read_exact_at(buffer.as_mut(), off).map_err(|e| errno(&e))?;
        Ok(buffer.freeze())
    }

    fn write_sync(&mut self, off: u64, data: &[u8]) -> Result<(), Errno> {
        let buffer = self.pool.gather(&[Bytes::copy_from_slice(data)]);
        self.files.direct.write_all_at(buffer.as_ref(), off).map_err(|e| errno(&e))?;
        self.files.direct.sync_data().map_err(|e| errno(&e))
    }
}

impl Drop for FileDev {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours. Whoever still refers to the file only waits for its end.
        let _ = unsafe { libc::flock(self.files.direct.as_raw_fd(), libc::LOCK_UN) };
    }
}

impl DevEvents {
    /// Hands what was started since the last call to the kernel: call at the end of every turn.
    pub fn submit(&self) {
        if let Engine::Ring(ring) = &mut *self.engine.lock().expect("no holder panics") {
            ring.submit();
        }
    }

    /// Takes what has completed. Cheap when there is nothing.
    pub fn take(&self, out: &mut Vec<Completion>) {
        match &mut *self.engine.lock().expect("no holder panics") {
            Engine::Ring(ring) => ring.take(out),
            Engine::Threads(threads) => threads.take(out),
        }
    }

    /// Gives memory back that no request has used since the last call.
    pub fn give_back_unused(&self) {
        self.pool.give_back_unused();
    }

    /// Makes the descriptor unreadable again, for whoever waits by level and not by edge: call before `take`.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: reads eight bytes into eight bytes of ours. Nothing to read is fine.
        let _ = unsafe { libc::read(self.wake.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for DevEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// The errno of an error; EIO for one that has none (a read past the end of a file).
fn errno(e: &io::Error) -> Errno {
    e.raw_os_error().map_or(Errno::EIO, Errno)
}

/// Does a request, or the rest of one, waiting for the disk.
fn perform(files: &Files, request: Request, done: usize) -> Result<Bytes, Errno> {
    let file = files.of(&request);
    match request {
        Request::Read { off, mut buffer, .. } => {
            let rest = buffer.as_mut().get_mut(done..).unwrap_or_default();
            file.read_exact_at(rest, off + done as u64).map_err(|e| errno(&e))?;
            Ok(buffer.freeze())
        }
        Request::Write { off, pieces, .. } => {
            let (mut at, mut skip) = (off, done);
            for piece in pieces {
                let now = piece.get(skip..).unwrap_or_default();
                let from = at + (piece.len() - now.len()) as u64;
                file.write_all_at(now, from).map_err(|e| errno(&e))?;
                at += piece.len() as u64;
                skip = skip.saturating_sub(piece.len());
            }
            Ok(Bytes::new())
        }
        Request::Flush => file.sync_data().map(|()| Bytes::new()).map_err(|e| errno(&e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    fn wait(events: &DevEvents, n: usize) -> BTreeMap<u64, Result<Bytes, Errno>> {
        let mut out = Vec::new();
        let start = Instant::now();
        while out.len() < n {
            events.submit();
            events.clear();
            events.take(&mut out);
            assert!(start.elapsed() < Duration::from_secs(20), "{} of {n} completed", out.len());
            std::thread::yield_now();
        }
        out.into_iter().map(|(id, r)| (id.0, r)).collect()
    }

    fn exercise(backend: Backend) {
        let dir = crate::TempDir::new(&format!("block-{backend:?}"));
        let path = dir.path().join("block");
        create_sparse(&path, 8 << 20).unwrap();
        let (mut dev, events) = open(&path, backend).unwrap();
        assert_eq!(dev.size(), 8 << 20);
        assert!(matches!(open(&path, backend), Err(OpenError::InUse(_))));
        for i in 0..200u64 {
            let odd = Bytes::from(vec![i as u8; 4097]).slice(1..);
            dev.write(IoId(i), i * 8192, BufList::from(vec![odd.slice(..100), odd.slice(100..)]));
        }
        assert!(wait(&events, 200).values().all(Result::is_ok));
        dev.flush(IoId(1000));
        assert_eq!(wait(&events, 1)[&1000], Ok(Bytes::new()));
        for i in 0..200u64 {
            dev.read(IoId(i), i * 8192, 8192);
        }
        for (i, data) in wait(&events, 200) {
            let data = data.unwrap();
            assert!(data[..4096].iter().all(|b| *b == i as u8) && data[4096..].iter().all(|b| *b == 0));
        }
        // Through the page cache: what was written last, whatever was read before.
        for content in [1, 2, 3] {
            dev.write(IoId(1), 4 << 20, Bytes::from(vec![content; 8192]).into());
            assert_eq!(wait(&events, 1)[&1], Ok(Bytes::new()));
            assert!(dev.cached(4 << 20, 8192).is_none_or(|found| found == vec![content; 8192]));
            dev.read_cached(IoId(2), 4 << 20, 8192);
            assert_eq!(wait(&events, 1)[&2].as_deref(), Ok(&[content; 8192][..]));
            // Some file systems never tell.
            assert!(dev.cached((4 << 20) + 4096, 4096).is_none_or(|found| found == vec![content; 4096]));
            dev.uncache(4 << 20, 8192);
        }
        assert!(dev.cached((8 << 20) - 4096, 8192).is_none(), "beyond the end");
        let mut own = dev.buffer(8192);
        own.bytes().fill(7);
        assert!(dev.writable_as_is(&[own.freeze()]), "what it lends is copied");
        // As it comes from a socket: the beginning somewhere, the rest where its blocks are aligned.
        let bytes: Vec<u8> = (0..300 << 10).map(|i| (i * 7 % 251) as u8).collect();
        let mut rest = BufferPool::default().get(bytes.len());
        rest.as_mut().copy_from_slice(&bytes);
        let (rest, head) = (rest.freeze(), Bytes::from([&[0][..], &bytes[..1000]].concat()));
        dev.write(IoId(6), 2 << 20, BufList::from(vec![head.slice(1..), rest.slice(1000..100_000), rest.slice(100_000..)]));
        assert_eq!(wait(&events, 1)[&6], Ok(Bytes::new()));
        assert!(dev.read_sync(2 << 20, bytes.len()).unwrap() == bytes);
        dev.read(IoId(5), (8 << 20) - 4096, 8192);
        assert_eq!(wait(&events, 1)[&5], Err(Errno::EIO), "past the end");
        assert_eq!(dev.read_sync(8192, 4096).unwrap()[..], [1; 4096]);
    }

    #[test]
    fn threads_read_what_was_written() {
        exercise(Backend::Threads(4));
    }

    #[test]
    fn whatever_the_kernel_has_reads_what_was_written() {
        exercise(Backend::Auto);
    }
}
