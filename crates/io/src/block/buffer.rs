//! Page-aligned memory for direct I/O and for what sockets bring, used again when its last reader lets go.
//!
//! Why large buffers are mapped for themselves: what is not kept goes back to the kernel at once, whatever was allocated
//! meanwhile, and on huge pages it has two pages to find, clear and pin for a whole RBD object instead of a thousand.

use bytes::Bytes;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use store::WriteBuffer;

const ALIGN: usize = 4096;
/// Larger buffers are not kept. A whole RBD object fits: fresh memory of that size costs three times the copy.
const KEPT_LEN_MAX: usize = 4 << 20;
/// Buffers of this capacity and more are mapped.
const MAPPED_LEN_MIN: usize = 256 << 10;
/// From this capacity on they lie at multiples of it: the size of a huge page.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// Aligned pieces below this size are copied with what is around them: an entry of its own costs more.
const LEFT_LEN_MIN: usize = 16 << 10;
/// Bytes kept for reuse: what is under way at a time while large objects are written, sixteen at once. They are in use then anyway: less kept is not
/// less memory at the height, but as much of it new from the kernel for each object, page by page (docs/benchmarks-log.md).
const KEPT_BYTES_MAX: usize = 32 << 20;

/// Where buffers come from and go back to.
#[derive(Clone, Default)]
pub(crate) struct BufferPool(Arc<Mutex<Free>>);

#[derive(Default)]
struct Free {
    /// By log2 of their capacity.
    by_size: Vec<Vec<Memory>>,
    bytes: usize,
    /// The least that `bytes` was since unused buffers were last given back.
    unused: usize,
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

    /// Anonymous memory, if it is large on huge pages. Panics if there is none, as allocating does.
    fn map(capacity: usize) -> Self {
        let is_huge = capacity >= HUGE_PAGE;
        let spare = if is_huge { HUGE_PAGE } else { 0 };
        let room = capacity + spare;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory anywhere; nothing of ours is touched.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), room, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            handle_alloc_error(Self::layout(capacity));
        }
        let before = if is_huge { (start as usize).next_multiple_of(HUGE_PAGE) - start as usize } else { 0 };
        // SAFETY: `before <= spare`, so that `capacity` bytes from there on, and what is unmapped around them,
        // lie in the mapping just made.
        unsafe {
            let at = start.cast::<u8>().add(before);
            if before > 0 {
                libc::munmap(start, before);
            }
            if before < spare {
                libc::munmap(at.add(capacity).cast(), spare - before);
            }
            if is_huge {
                // A wish: without huge pages it is as good as any memory.
                libc::madvise(at.cast(), capacity, libc::MADV_HUGEPAGE);
            }
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
            free.unused = free.unused.min(free.bytes);
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

    /// Pieces that direct I/O takes, of the same bytes: whole blocks that lie aligned stay where they are, what is between them is copied. Each but perhaps the
    /// last is of whole blocks.
    pub fn align(&self, pieces: &[Bytes], align: usize) -> Vec<Bytes> {
        let (mut out, mut loose, mut at) = (Vec::new(), Vec::new(), 0_usize);
        let copied = |loose: &mut Vec<Bytes>| loose.iter().any(|p| !p.is_empty()).then(|| self.gather(&std::mem::take(loose)).freeze());
        for piece in pieces {
            let from = at.next_multiple_of(ALIGN) - at;
            let to = ((at + piece.len()) / ALIGN * ALIGN).saturating_sub(at);
            at += piece.len();
            if to < from + LEFT_LEN_MIN || !(piece.as_ptr() as usize + from).is_multiple_of(align) {
                loose.push(piece.clone());
                continue;
            }
            loose.push(piece.slice(..from));
            out.extend(copied(&mut loose));
            out.push(piece.slice(from..to));
            loose = vec![piece.slice(to..)];
        }
        out.extend(copied(&mut loose));
        out
    }

    /// Memory to be filled, all but its first `skip` bytes.
    pub fn fill(&self, len: usize, skip: usize) -> Filling {
        Filling { buffer: Arc::new(self.get(len)), shared: skip, filled: skip }
    }

    /// Gives memory back that has been kept since the last call and not been used.
    pub fn give_back_unused(&self) {
        let mut free = self.0.lock().expect("no holder panics");
        let gone: Vec<Memory> = std::iter::from_fn(|| free.pop_unused()).collect();
        free.unused = free.bytes;
        drop(free);
        drop(gone);
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

impl Free {
    /// The largest kept one that is within what was not used.
    fn pop_unused(&mut self) -> Option<Memory> {
        let classes = self.unused.checked_ilog2().map_or(0, |class| class as usize + 1).min(self.by_size.len());
        let memory = self.by_size[..classes].iter_mut().rev().find_map(Vec::pop)?;
        self.bytes -= memory.capacity;
        self.unused -= memory.capacity;
        Some(memory)
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
    fn start(&self) -> *mut u8 {
        self.memory.as_ref().expect("memory was provided").at.as_ptr()
    }

    pub fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len <= capacity`, the memory is initialised, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }

    /// Shares it; the memory goes back to the pool with the last handle.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl WriteBuffer for Buffer {
    fn bytes(&mut self) -> &mut [u8] {
        self.as_mut()
    }

    fn freeze(self: Box<Self>) -> Bytes {
        Buffer::freeze(*self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `len <= capacity`, and the memory is initialised.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.put(memory);
        }
    }
}

/// A buffer that is filled from its beginning. What has been shared is only read; what follows is still ours to write to.
pub(crate) struct Filling {
    buffer: Arc<Buffer>,
    shared: usize,
    filled: usize,
}

/// A filled part of a buffer.
struct Piece {
    buffer: Arc<Buffer>,
    from: usize,
    len: usize,
}

impl Filling {
    /// Bytes that are filled, or were skipped.
    pub fn filled_len(&self) -> usize {
        self.filled
    }

    /// Bytes that are not filled.
    pub fn room_len(&self) -> usize {
        self.buffer.len - self.filled
    }

    /// What is not filled; its content is arbitrary.
    pub fn room(&mut self) -> &mut [u8] {
        // SAFETY: within the memory, which is initialised; pieces end at `shared` and `filled` is not below, and nobody else writes.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.start().add(self.filled), self.room_len()) }
    }

    /// The next `len` bytes are filled. Panics if there is no room for so many.
    pub fn filled(&mut self, len: usize) {
        assert!(len <= self.room_len(), "filled {len} bytes where {} had room", self.room_len());
        self.filled += len;
    }

    /// Shares what has been filled since the last time.
    pub fn share(&mut self) -> Bytes {
        let piece = Piece { buffer: self.buffer.clone(), from: self.shared, len: self.filled - self.shared };
        self.shared = self.filled;
        Bytes::from_owner(piece)
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: it was filled before this piece was made, and `Filling` does not lend it out again.
        unsafe { std::slice::from_raw_parts(self.buffer.start().add(self.from), self.len) }
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
        let mut all: Vec<Buffer> = (0..=KEPT_BYTES_MAX / KEPT_LEN_MAX).map(|_| pool.get(KEPT_LEN_MAX)).collect();
        for buffer in &mut all {
            assert_eq!(buffer.as_mut().as_ptr() as usize % HUGE_PAGE, 0);
            buffer.as_mut().fill(7);
        }
        drop(all);
        assert_eq!(pool.0.lock().unwrap().bytes, KEPT_BYTES_MAX);
        assert!(pool.get(KEPT_LEN_MAX + 1).as_mut().iter().all(|b| *b == 0), "more than is kept is fresh");
    }

    #[test]
    fn what_is_filled_is_shared_while_the_rest_is_written() {
        let pool = BufferPool::default();
        let mut filling = pool.fill(MAPPED_LEN_MIN, 0);
        let at = filling.room().as_ptr();
        filling.room()[..3].copy_from_slice(b"abc");
        filling.filled(3);
        let first = filling.share();
        filling.room()[..2].copy_from_slice(b"de");
        filling.filled(1);
        filling.filled(1);
        let (second, none) = (filling.share(), filling.share());
        assert_eq!((&first[..], &second[..], none.len(), filling.room_len()), (&b"abc"[..], &b"de"[..], 0, MAPPED_LEN_MIN - 5));
        drop((filling, first, none));
        assert_eq!(pool.0.lock().unwrap().bytes, 0, "a piece of it is still read");
        drop(second);
        let mut later = pool.fill(MAPPED_LEN_MIN, 7);
        assert_eq!((later.room().as_ptr() as usize - at as usize, later.room_len(), later.share().len()), (7, MAPPED_LEN_MIN - 7, 0));
    }

    #[test]
    fn only_what_does_not_lie_well_is_copied() {
        let pool = BufferPool::default();
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut memory = pool.get(bytes.len());
        memory.as_mut().copy_from_slice(&bytes);
        let (well, badly) = (memory.freeze(), Bytes::from([&[0][..], &bytes].concat()).slice(1..));
        for cuts in [vec![], vec![5000], vec![5000, 200_000], vec![100, 90_112, 94_208, 200_001], vec![65_536, 131_072], vec![299_000]] {
            for first_is_well in [true, false] {
                let edges: Vec<usize> = [0].into_iter().chain(cuts.clone()).chain([bytes.len()]).collect();
                let from = |n: usize| if n.is_multiple_of(2) == first_is_well { &well } else { &badly };
                let pieces: Vec<Bytes> = edges.windows(2).enumerate().map(|(n, edge)| from(n).slice(edge[0]..edge[1])).collect();
                let out = pool.align(&pieces, 512);
                assert_eq!(out.concat(), bytes);
                let (last, before) = out.split_last().unwrap();
                let lies_well = |p: &Bytes| (p.as_ptr() as usize).is_multiple_of(512);
                assert!(lies_well(last) && before.iter().all(|p| lies_well(p) && p.len().is_multiple_of(ALIGN)), "{cuts:?}");
                let is_left = |p: &&Bytes| well.as_ptr_range().contains(&p.as_ptr());
                let left: usize = out.iter().filter(is_left).map(Bytes::len).sum();
                let well_len: usize = pieces.iter().filter(is_left).map(|p| p.len().saturating_sub(2 * ALIGN)).filter(|len| *len > LEFT_LEN_MIN).sum();
                assert!(left >= well_len, "{left} of {well_len} at {cuts:?}");
            }
        }
    }

    #[test]
    fn what_nobody_needed_for_a_period_is_given_back() {
        let pool = BufferPool::default();
        let kept = || pool.0.lock().unwrap().bytes;
        let three = || (0..3).map(|_| pool.get(MAPPED_LEN_MIN)).collect::<Vec<_>>();
        drop((three(), pool.get(ALIGN)));
        pool.give_back_unused();
        assert_eq!(kept(), 3 * MAPPED_LEN_MIN + ALIGN, "it came in this period");
        drop((pool.get(MAPPED_LEN_MIN), pool.get(ALIGN)));
        pool.give_back_unused();
        assert_eq!(kept(), MAPPED_LEN_MIN + ALIGN, "one of each size was used");
        pool.give_back_unused();
        pool.give_back_unused();
        assert_eq!(kept(), 0);
    }
}
