//! The device by io_uring.
//!
//! Holds: memory the kernel may touch stays in `flying`, boxed, until its completion has been taken; the ring is
//! drained before it goes.

use super::{Completion, Files, Request, perform};
use bytes::Bytes;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use store::IoId;
use types::Errno;

const ENTRIES: u32 = 256;
/// Bytes of writes, and of large reads, given to the kernel at a time: enough to keep a disk busy, few enough for their
/// buffers to be used again.
const LANE_BYTES_MAX: usize = 8 << 20;
/// Reads from this size on are large.
const LARGE_READ_BYTES: usize = 256 << 10;

pub(super) struct Ring {
    ring: IoUring,
    files: Arc<Files>,
    /// What the kernel has, by the number it will say; `None` is a free place.
    flying: Vec<Option<Flying>>,
    free: Vec<usize>,
    in_flight: usize,
    /// What found no room in the ring; what has much to carry apart, for it may have to wait where others need not.
    backlog: VecDeque<(IoId, Request)>,
    large_reads: Lane,
    writes: Lane,
    unsubmitted: bool,
}

/// Requests that go as far as there is room for their bytes.
#[derive(Default)]
struct Lane {
    backlog: VecDeque<(IoId, Request)>,
    /// Bytes in flight.
    bytes: usize,
}

impl Lane {
    fn next(&mut self) -> Option<(IoId, Request)> {
        let (_, first) = self.backlog.front()?;
        let fits = self.bytes == 0 || self.bytes + first.bytes() <= LANE_BYTES_MAX;
        if fits { self.backlog.pop_front() } else { None }
    }
}

struct Flying {
    id: IoId,
    request: Request,
    /// What the kernel's entry points at.
    iovecs: Vec<libc::iovec>,
}

// SAFETY: the pointers in `iovecs` point into `request`'s memory, which is owned here and not tied to a thread.
unsafe impl Send for Flying {}

impl Ring {
    pub fn new(files: &Arc<Files>, wake: &Arc<OwnedFd>) -> io::Result<Self> {
        let ring = IoUring::new(ENTRIES)?;
        ring.submitter().register_eventfd(wake.as_raw_fd())?;
        Ok(Ring {
            ring,
            files: files.clone(),
            flying: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            backlog: VecDeque::new(),
            large_reads: Lane::default(),
            writes: Lane::default(),
            unsubmitted: false,
        })
    }

    pub fn push(&mut self, id: IoId, request: Request) {
        self.backlog_of(&request).push_back((id, request));
        self.fill();
    }

    fn lane(&mut self, request: &Request) -> Option<&mut Lane> {
        match request {
            Request::Write { .. } => Some(&mut self.writes),
            Request::Read { buffer, .. } if buffer.len() >= LARGE_READ_BYTES => Some(&mut self.large_reads),
            Request::Read { .. } | Request::Flush => None,
        }
    }

    fn backlog_of(&mut self, request: &Request) -> &mut VecDeque<(IoId, Request)> {
        match request {
            Request::Write { .. } => &mut self.writes.backlog,
            Request::Read { buffer, .. } if buffer.len() >= LARGE_READ_BYTES => &mut self.large_reads.backlog,
            Request::Read { .. } | Request::Flush => &mut self.backlog,
        }
    }

    /// The next request that may go, if there is one.
    fn next(&mut self) -> Option<(IoId, Request)> {
        if self.in_flight >= ENTRIES as usize {
            return None;
        }
        self.backlog.pop_front().or_else(|| self.large_reads.next()).or_else(|| self.writes.next())
    }

    fn put_back(&mut self, id: IoId, request: Request) {
        self.backlog_of(&request).push_front((id, request));
    }

    /// Moves the backlog into the ring as far as there is room. Never more in flight than the completion queue holds.
    fn fill(&mut self) {
        while let Some((id, mut request)) = self.next() {
            request.prepare();
            let bytes = request.bytes();
            if let Some(lane) = self.lane(&request) {
                lane.bytes += bytes;
            }
            let slot = self.free.pop().unwrap_or_else(|| {
                self.flying.push(None);
                self.flying.len() - 1
            });
            let file = Fd(self.files.of(&request).as_raw_fd());
            let mut flying = Flying { id, request, iovecs: Vec::new() };
            let entry = entry(&mut flying, file).user_data(slot as u64);
            self.flying[slot] = Some(flying);
            // SAFETY: everything the entry points at is in `flying[slot]`, on the heap, until it completes.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_err() {
                // Room for as many as may be in flight: only entries not yet submitted can be in the way.
                self.take_back(slot);
                self.submit();
                continue;
            }
            self.in_flight += 1;
            self.unsubmitted = true;
        }
    }

    fn leave_lane(&mut self, request: &Request) {
        let bytes = request.bytes();
        if let Some(lane) = self.lane(request) {
            lane.bytes -= bytes;
        }
    }

    fn take_back(&mut self, slot: usize) {
        if let Some(flying) = self.flying[slot].take() {
            self.free.push(slot);
            self.leave_lane(&flying.request);
            self.put_back(flying.id, flying.request);
        }
    }

    /// Tells the kernel of what is new.
    pub fn submit(&mut self) {
        while self.unsubmitted {
            match self.ring.submit() {
                Ok(_) => self.unsubmitted = !self.ring.submission().is_empty(),
                // Interrupted, or short of memory for a moment.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(e) => panic!("io_uring_enter: {e}"),
            }
        }
    }

    pub fn take(&mut self, out: &mut Vec<Completion>) {
        if self.in_flight == 0 {
            return;
        }
        let done: Vec<(usize, i32)> =
            self.ring.completion().map(|c| (c.user_data() as usize, c.result())).collect();
        for (slot, result) in done {
            let Some(flying) = self.flying.get_mut(slot).and_then(Option::take) else { continue };
            self.free.push(slot);
            self.in_flight -= 1;
            self.leave_lane(&flying.request);
            self.finish(flying, result, out);
        }
        self.fill();
        self.submit();
    }

    fn finish(&mut self, flying: Flying, result: i32, out: &mut Vec<Completion>) {
        let Flying { id, request, .. } = flying;
        let wanted = request.bytes();
        let answer = match usize::try_from(result) {
            Ok(n) if n >= wanted => Ok(match request {
                Request::Read { buffer, .. } => buffer.freeze(),
                Request::Write { .. } | Request::Flush => Bytes::new(),
            }),
            // Short: rare enough to wait for the rest.
            Ok(n) => perform(&self.files, request, n),
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => return self.put_back(id, request),
            Err(_) => Err(Errno(-result)),
        };
        out.push((id, answer));
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel must have let go of the memory before it is freed.
        self.backlog.clear();
        self.large_reads.backlog.clear();
        self.writes.backlog.clear();
        let mut ignored = Vec::new();
        while self.in_flight > 0 {
            if self.ring.submit_and_wait(1).is_err_and(|e| e.raw_os_error() != Some(libc::EINTR)) {
                std::mem::forget(std::mem::take(&mut self.flying));
                return;
            }
            self.take(&mut ignored);
        }
    }
}

fn entry(flying: &mut Flying, file: Fd) -> squeue::Entry {
    match &mut flying.request {
        Request::Read { off, buffer, .. } => {
            let memory = buffer.as_mut();
            opcode::Read::new(file, memory.as_mut_ptr(), memory.len() as u32).offset(*off).build()
        }
        Request::Write { off, pieces, .. } => match &pieces[..] {
            [one] => opcode::Write::new(file, one.as_ptr(), one.len() as u32).offset(*off).build(),
            many => {
                let iovec = |p: &Bytes| libc::iovec { iov_base: p.as_ptr().cast_mut().cast(), iov_len: p.len() };
                flying.iovecs = many.iter().map(iovec).collect();
                opcode::Writev::new(file, flying.iovecs.as_ptr(), flying.iovecs.len() as u32).offset(*off).build()
            }
        },
        Request::Flush => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
    }
}
