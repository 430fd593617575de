//! Page-aligned memory for direct I/O, used again when its last reader lets go.
//!
//! Why large buffers are mapped for themselves: on huge pages the kernel has two pages to find, clear and pin for a
//! whole RBD object instead of a thousand, and memory that is not kept goes back to it at once.

use bytes::Bytes;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

const ALIGN: usize = 4096;
/// Larger buffers are not kept. A whole RBD object fits: fresh memory of that size costs three times the copy.
const KEPT_LEN_MAX: usize = 4 << 20;
/// Buffers of this capacity and more are mapped, at multiples of this: the size of a huge page.
const MAPPED_LEN_MIN: usize = 2 << 20;
/// Bytes kept for reuse.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Where buffers come from and go back to.
#[derive(Clone, Default)]
pub(crate) struct BufferPool(Arc<Mutex<Free>>);

#[derive(Default)]
struct Free {
    /// By log2 of their capacity.
    by_size: Vec<Vec<Memory>>,
    bytes: usize,
}

/// A buffer of `len` bytes whose address is a multiple of 4096.
pub(crate) struct Buffer {
    /// `None` until `provide`.
    memory: Option<Memory>,
    len: usize,
    pool: BufferPool,
}

/// Raw aligned memory; its capacity is a power of two.
struct Memory {
    at: NonNull<u8>,
    capacity: usize,
}

// SAFETY: `Memory` owns its allocation alone; nothing in it is tied to a thread.
unsafe impl Send for Memory {}
// SAFETY: shared references only allow reading.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(capacity: usize) -> Self {
        if capacity >= MAPPED_LEN_MIN {
            return Self::map(capacity);
        }
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a size greater than zero. Zeroed, so that it can be lent out as a slice.
        let at = unsafe { alloc_zeroed(layout) };
        match NonNull::new(at) {
            Some(at) => Memory { at, capacity },
            None => handle_alloc_error(layout),
        }
    }

    /// Anonymous memory at a multiple of a huge page. Panics if there is none, as allocating does.
    fn map(capacity: usize) -> Self {
        let room = capacity + MAPPED_LEN_MIN;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory anywhere; nothing of ours is touched.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), room, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            handle_alloc_error(Self::layout(capacity));
        }
        let before = (start as usize).next_multiple_of(MAPPED_LEN_MIN) - start as usize;
        // SAFETY: `before <= MAPPED_LEN_MIN`, so that `capacity` bytes from there on, and what is unmapped around them,
        // lie in the mapping just made.
        unsafe {
            let at = start.cast::<u8>().add(before);
            if before > 0 {
                libc::munmap(start, before);
            }
            if before < MAPPED_LEN_MIN {
                libc::munmap(at.add(capacity).cast(), MAPPED_LEN_MIN - before);
            }
            // A wish: without huge pages it is as good as any memory.
            libc::madvise(at.cast(), capacity, libc::MADV_HUGEPAGE);
            Memory { at: NonNull::new_unchecked(at), capacity }
        }
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGN).expect("a power of two, far below isize::MAX")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.capacity >= MAPPED_LEN_MIN {
            // SAFETY: the mapping that `map` left, and nobody has a reference into it any more.
            unsafe { libc::munmap(self.at.as_ptr().cast(), self.capacity) };
            return;
        }
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.at.as_ptr(), Self::layout(self.capacity)) }
    }
}

impl BufferPool {
    /// A buffer with arbitrary content.
    pub fn get(&self, len: usize) -> Buffer {
        let mut buffer = self.promise(len);
        buffer.provide();
        buffer
    }

    /// A buffer that has no memory before `provide`.
    pub fn promise(&self, len: usize) -> Buffer {
        Buffer { memory: None, len, pool: self.clone() }
    }

    fn take(&self, capacity: usize) -> Memory {
        let mut free = self.0.lock().expect("no holder panics");
        let kept = free.by_size.get_mut(capacity.ilog2() as usize).and_then(Vec::pop);
        if kept.is_some() {
            free.bytes -= capacity;
        }
        drop(free);
        kept.unwrap_or_else(|| Memory::new(capacity))
    }

    /// A buffer with the pieces behind each other.
    pub fn gather(&self, pieces: &[Bytes]) -> Buffer {
        let mut buffer = self.get(pieces.iter().map(Bytes::len).sum());
        let mut rest = buffer.as_mut();
        for piece in pieces {
            let (now, later) = rest.split_at_mut(piece.len());
            now.copy_from_slice(piece);
            rest = later;
        }
        buffer
    }

    fn put(&self, memory: Memory) {
        let mut free = self.0.lock().expect("no holder panics");
        if memory.capacity > KEPT_LEN_MAX || free.bytes + memory.capacity > KEPT_BYTES_MAX {
            return;
        }
        let class = memory.capacity.ilog2() as usize;
        if free.by_size.len() <= class {
            free.by_size.resize_with(class + 1, Vec::new);
        }
        free.bytes += memory.capacity;
        free.by_size[class].push(memory);
    }
}

impl Buffer {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Gives it memory, if it has none.
    pub fn provide(&mut self) {
        if self.memory.is_none() {
            self.memory = Some(self.pool.take(self.len.max(ALIGN).next_power_of_two()));
        }
    }

    /// Panics before `provide`, as everything below does.
    pub fn as_mut(&mut self) -> &mut [u8] {
        let memory = self.memory.as_mut().expect("memory was provided");
        // SAFETY: `len <= capacity`, the memory is initialised, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(memory.at.as_ptr(), self.len) }
    }

    /// Shares it; the memory goes back to the pool with the last handle.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        let memory = self.memory.as_ref().expect("memory was provided");
        // SAFETY: `len <= capacity`, and the memory is initialised.
        unsafe { std::slice::from_raw_parts(memory.at.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.put(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let pool = BufferPool::default();
        let a = pool.gather(&[Bytes::from_static(b"ab"), Bytes::from_static(b"c")]);
        let at = a.as_ref().as_ptr();
        assert_eq!((a.as_ref(), at as usize % 4096), (&b"abc"[..], 0));
        let shared = a.freeze();
        let other = pool.get(4096);
        assert_ne!(other.as_ref().as_ptr(), at);
        drop(shared);
        assert_eq!(pool.get(100).as_ref().as_ptr(), at);
    }

    #[test]
    fn large_buffers_are_whole_and_kept_within_the_budget() {
        let pool = BufferPool::default();
        let mut all: Vec<Buffer> = (0..6).map(|_| pool.get(KEPT_LEN_MAX)).collect();
        for buffer in &mut all {
            assert_eq!(buffer.as_mut().as_ptr() as usize % MAPPED_LEN_MIN, 0);
            buffer.as_mut().fill(7);
        }
        drop(all);
        assert_eq!(pool.0.lock().unwrap().bytes, KEPT_BYTES_MAX);
        assert!(pool.get(KEPT_LEN_MAX + 1).as_mut().iter().all(|b| *b == 0), "more than is kept is fresh");
    }
}
