//! The device by threads that wait for the disk, where io_uring is not to be had.

use super::{Completion, Files, Request, perform};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use store::IoId;

pub(super) struct Threads {
    requests: Sender<(IoId, Request)>,
    done: Arc<Mutex<Vec<Completion>>>,
}

impl Threads {
    pub fn new(files: &Arc<Files>, wake: &Arc<OwnedFd>, n: usize) -> io::Result<Self> {
        let (requests, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let done = Arc::default();
        for _ in 0..n.max(1) {
            let worker = Worker { files: files.clone(), wake: wake.clone(), queue: queue.clone(), done: Arc::clone(&done) };
            std::thread::Builder::new().name("block_io".into()).spawn(move || worker.run())?;
        }
        Ok(Threads { requests, done })
    }

    pub fn push(&mut self, id: IoId, request: Request) {
        // The threads live as long as the sender does.
        let _ = self.requests.send((id, request));
    }

    pub fn take(&mut self, out: &mut Vec<Completion>) {
        out.append(&mut self.done.lock().expect("no holder panics"));
    }
}

struct Worker {
    files: Arc<Files>,
    wake: Arc<OwnedFd>,
    queue: Arc<Mutex<Receiver<(IoId, Request)>>>,
    done: Arc<Mutex<Vec<Completion>>>,
}

impl Worker {
    fn run(self) {
        loop {
            let next = self.queue.lock().expect("no holder panics").recv();
            let Ok((id, mut request)) = next else { return };
            request.prepare();
            let result = perform(&self.files, request, 0);
            self.done.lock().expect("no holder panics").push((id, result));
            let one = 1u64.to_ne_bytes();
            // SAFETY: writes eight bytes from eight bytes of ours. A full counter means the loop is awake anyway.
            let _ = unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }
}
