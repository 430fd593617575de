//! The event loop of one daemon: waits once, hands every input to the node, lets it settle, then sends.
//!
//! Room: io.   Hears: sockets, completions of other threads, signals, the admin socket.   Says: `node::Input`.
//! Why one loop per daemon: a node is a run-to-completion machine; batches make one send and one flush serve many.

use crate::patience::until_free;
use crate::IoSink;
use crate::block::DevEvents;
use crate::clock::Clock;
use crate::heap::Heap;
use crate::kv::{Flushed, Flusher};
use crate::sockets::{SocketEvent, Sockets};
use bytes::{BufMut, Bytes, BytesMut};
use mio::unix::SourceFd;
use mio::net::{TcpListener, UnixListener, UnixStream};
use mio::{Events, Interest, Poll, Token, Waker};
use msgr::SockId;
use node::{Input, Node, World};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::Arc;
use std::time::Duration;
use store::IoId;
use types::{Errno, Mono, Now};

const WAKER: Token = Token(0);
const ADMIN: Token = Token(1);
const FIRST_LISTENER: usize = 2;
const FIRST_DEVICE: usize = 1 << 19;
const FIRST_SOCKET: usize = 1 << 20;
const ADMIN_CLIENT_BASE: usize = 1 << 40;
/// How long a flush waits for the loop to have nothing else to do.
const GATHER_MAX: Duration = Duration::from_micros(500);
/// An admin request is one line of JSON; more is a mistake.
const ADMIN_REQUEST_BYTES_MAX: usize = 1 << 20;

/// Where other threads report finished I/O; cheap to clone, wakes the loop.
#[derive(Clone)]
pub struct Completions {
    queue: Sender<(u64, Result<Bytes, Errno>)>,
    waker: Arc<Waker>,
    /// Set between a wake-up and its handling, so that a burst of completions costs one system call.
    pending: Arc<AtomicBool>,
}

impl Completions {
    /// Reports that the operation `id` has ended. Never blocks.
    pub fn complete(&self, id: u64, result: Result<Bytes, Errno>) {
        if self.queue.send((id, result)).is_ok() {
            self.wake();
        }
    }

    fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            // The waker only fails when the loop is gone; then nobody is left to hear.
            let _ = self.waker.wake();
        }
    }
}

impl IoSink for Completions {
    fn complete(&self, id: IoId, result: Result<Bytes, Errno>) {
        Completions::complete(self, id.0, result);
    }
}

/// Ends the loop in order from a signal handler's thread.
#[derive(Clone)]
pub struct Stopper {
    flag: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl Stopper {
    /// Asks the node to end; it may take a moment.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Release);
        let _ = self.waker.wake();
    }
}

/// What the loop listens on.
#[derive(Debug, Default, Clone)]
pub struct EventLoopConfig {
    /// Path of the admin socket; replaced if a dead daemon left it behind.
    pub admin_socket: Option<PathBuf>,
}

/// One daemon's loop, before and while it runs.
pub struct EventLoop {
    poll: Poll,
    listeners: Vec<TcpListener>,
    admin: Option<UnixListener>,
    admin_path: Option<PathBuf>,
    completions: Completions,
    completed: Receiver<(u64, Result<Bytes, Errno>)>,
    devices: Vec<DevEvents>,
    flushers: Vec<Flusher>,
    /// Flushes done and not delivered.
    flushed: Vec<Flushed>,
    /// Since when there is something to flush as soon as nothing else is to be done.
    to_flush_since: Option<Mono>,
    stop: Stopper,
    world: RealWorld,
}

/// The world as the node sees it.
pub struct RealWorld {
    clock: Clock,
    now: Now,
    sockets: Sockets,
    wake_at: Option<Mono>,
    admin_clients: HashMap<Token, AdminClient>,
    next_admin: usize,
}

struct AdminClient {
    stream: UnixStream,
    request: BytesMut,
}

impl EventLoop {
    /// A loop that listens on nothing yet. Errors: out of file descriptors; the admin socket is served by a living
    /// daemon (`AddrInUse`) or its directory is missing.
    pub fn new(config: EventLoopConfig) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let (queue, completed) = channel();
        let completions = Completions { queue, waker: waker.clone(), pending: Arc::default() };
        let admin = config.admin_socket.as_deref().map(|path| until_free(in_use, || bind_admin(path))).transpose()?;
        let clock = Clock::new();
        let mut this = EventLoop {
            world: RealWorld {
                clock,
                now: clock.now(),
                sockets: Sockets::new(poll.registry().try_clone()?, FIRST_SOCKET),
                wake_at: None,
                admin_clients: HashMap::new(),
                next_admin: ADMIN_CLIENT_BASE,
            },
            poll,
            listeners: Vec::new(),
            admin,
            admin_path: config.admin_socket,
            completions,
            completed,
            devices: Vec::new(),
            flushers: Vec::new(),
            flushed: Vec::new(),
            to_flush_since: None,
            stop: Stopper { flag: Arc::default(), waker },
        };
        if let Some(admin) = &mut this.admin {
            this.poll.registry().register(admin, ADMIN, Interest::READABLE)?;
        }
        Ok(this)
    }

    /// Binds a port (0: any) and returns the address in use.
    pub fn listen(&mut self, addr: SocketAddr) -> io::Result<SocketAddr> {
        let mut listener = until_free(in_use, || TcpListener::bind(addr))?;
        let token = Token(FIRST_LISTENER + self.listeners.len());
        self.poll.registry().register(&mut listener, token, Interest::READABLE)?;
        let bound = listener.local_addr()?;
        self.listeners.push(listener);
        Ok(bound)
    }

    /// Where devices and RocksDB report.
    pub fn completions(&self) -> Completions {
        self.completions.clone()
    }

    /// Has a device's completions delivered as `Input::Io`, and its submissions sent at the end of every turn.
    pub fn watch_device(&mut self, device: DevEvents) -> io::Result<()> {
        let token = Token(FIRST_DEVICE + self.devices.len());
        self.poll.registry().register(&mut SourceFd(&device.as_fd().as_raw_fd()), token, Interest::READABLE)?;
        self.devices.push(device);
        Ok(())
    }

    /// Has the loop see to a database's flushes, once everything else of a turn has been started.
    pub fn watch_flushes(&mut self, flusher: Flusher) {
        flusher.run_by_loop();
        self.flushers.push(flusher);
    }

    /// How a signal handler ends the loop.
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// The clock that `World::now` shows.
    pub fn clock(&self) -> Clock {
        self.world.clock
    }

    /// Runs until the node has stopped; returns its exit code. Errors: the kernel's poll failed.
    pub fn run(mut self, node: &mut impl Node<RealWorld>) -> io::Result<i32> {
        let mut events = Events::with_capacity(1024);
        let mut inputs = Vec::new();
        let mut heap = Heap::default();
        let mut stop_said = false;
        node.handle(&mut self.world, Input::Wake);
        self.settle(node, &mut inputs);
        loop {
            if let Some(code) = node.stopped() {
                self.remove_admin_socket();
                return Ok(code);
            }
            let idle = inputs.is_empty() && self.to_flush_since.is_none();
            let timeout = if idle { self.timeout() } else { Some(Duration::ZERO) };
            match self.poll.poll(&mut events, timeout) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => other?,
            }
            self.world.now = self.world.clock.now();
            self.flush_if_due(events.is_empty());
            for input in std::mem::take(&mut inputs) {
                node.handle(&mut self.world, input_of(input));
            }
            self.dispatch(&events, node);
            self.deliver_completions(node);
            if self.stop.flag.load(Ordering::Acquire) && !stop_said {
                stop_said = true;
                node.handle(&mut self.world, Input::Stop);
            }
            self.wake_if_due(node);
            self.settle(node, &mut inputs);
            let Some(resident) = heap.glance(self.world.now.mono) else { continue };
            node.lend_memory(resident);
            if heap.is_time(self.world.now.mono) {
                self.world.sockets.give_back_unused();
                self.devices.iter().for_each(DevEvents::give_back_unused);
                let pressure = node.fit_memory(resident);
                if heap.is_due(self.world.sockets.traffic()) || heap.may_hurry(self.world.now.mono, pressure) {
                    Heap::trim();
                }
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        self.world.wake_at.map(|at| at - self.world.clock.now().mono)
    }

    fn dispatch(&mut self, events: &Events, node: &mut impl Node<RealWorld>) {
        let mut inputs = Vec::new();
        for event in events {
            match event.token() {
                WAKER => {}
                ADMIN => self.accept_admin(),
                // Edge-triggered: every completion is announced anew, whether or not the counter was read.
                Token(t) if (FIRST_DEVICE..FIRST_SOCKET).contains(&t) => {}
                Token(t) if t < FIRST_SOCKET => self.accept(t - FIRST_LISTENER, node),
                Token(t) if t >= ADMIN_CLIENT_BASE => self.read_admin(Token(t), node),
                _ => self.world.sockets.ready(event, &mut inputs),
            }
            // No input is younger than what its handler takes for now: a process that was stopped may wake here, with a lease
            // that is over and a question that came meanwhile.
            self.world.now = self.world.clock.now();
            for input in inputs.drain(..) {
                node.handle(&mut self.world, input_of(input));
            }
        }
    }

    fn deliver_completions(&mut self, node: &mut impl Node<RealWorld>) {
        // Cleared before draining: a completion that arrives meanwhile wakes the loop again.
        self.completions.pending.store(false, Ordering::Release);
        while let Ok((id, result)) = self.completed.try_recv() {
            node.handle(&mut self.world, Input::Io { id, result });
        }
        let mut done = std::mem::take(&mut self.flushed);
        self.devices.iter().for_each(|d| d.take(&mut done));
        for (id, result) in done {
            node.handle(&mut self.world, Input::Io { id: id.0, result });
        }
    }

    fn wake_if_due(&mut self, node: &mut impl Node<RealWorld>) {
        if self.world.wake_at.is_some_and(|at| at <= self.world.now.mono) {
            self.world.wake_at = None;
            node.handle(&mut self.world, Input::Wake);
        }
    }

    fn settle(&mut self, node: &mut impl Node<RealWorld>, inputs: &mut Vec<SocketEvent>) {
        node.settle(&mut self.world);
        self.devices.iter().for_each(DevEvents::submit);
        self.world.sockets.flush(inputs);
        self.world.sockets.failures(inputs);
        if self.flushers.iter().filter(|f| f.end_turn()).count() > 0 {
            self.to_flush_since.get_or_insert(self.world.now.mono);
        }
    }

    /// One flush serves everything that could be done before it.
    fn flush_if_due(&mut self, idle: bool) {
        let patience = |since: Mono| self.world.now.mono - since >= GATHER_MAX;
        if self.to_flush_since.is_some_and(|since| idle || patience(since)) {
            self.to_flush_since = None;
            self.flushers.iter().for_each(|f| f.flush(&mut self.flushed));
        }
    }

    fn accept(&mut self, listener: usize, node: &mut impl Node<RealWorld>) {
        while let Some(listener) = self.listeners.get(listener) {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => {
                    // Out of descriptors, or the peer left while queued: the others go on.
                    tracing::warn!("accept: {e}");
                    return;
                }
            };
            let Ok(local) = stream.local_addr() else { continue };
            if let Ok(sock) = self.world.sockets.accept(stream) {
                node.handle(&mut self.world, Input::Accepted { sock, peer, local });
            }
        }
    }

    fn accept_admin(&mut self) {
        while let Some(Ok((mut stream, _))) = self.admin.as_ref().map(UnixListener::accept) {
            let token = Token(self.world.next_admin);
            self.world.next_admin += 1;
            if self.poll.registry().register(&mut stream, token, Interest::READABLE).is_ok() {
                self.world.admin_clients.insert(token, AdminClient { stream, request: BytesMut::new() });
            }
        }
    }

    fn read_admin(&mut self, token: Token, node: &mut impl Node<RealWorld>) {
        let Some(client) = self.world.admin_clients.get_mut(&token) else { return };
        match client.read_request() {
            Ok(None) => {}
            Ok(Some(request)) => node.handle(&mut self.world, Input::Admin { id: token.0 as u64, request }),
            Err(_) => {
                self.world.admin_clients.remove(&token);
            }
        }
    }

    fn remove_admin_socket(&self) {
        if let Some(path) = &self.admin_path {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn input_of(event: SocketEvent) -> Input {
    match event {
        SocketEvent::Connected { sock, local } => Input::Connected { sock, local },
        SocketEvent::Bytes { sock, data } => Input::Bytes { sock, data },
        SocketEvent::Closed { sock, refused } => Input::Closed { sock, refused },
    }
}

fn in_use(e: &io::Error) -> bool {
    e.kind() == ErrorKind::AddrInUse
}

fn bind_admin(path: &Path) -> io::Result<UnixListener> {
    if path.exists() {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(ErrorKind::AddrInUse, format!("{} is served by a running daemon", path.display())));
        }
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

impl AdminClient {
    /// A whole request if there is one: text up to a NUL or newline, or one of the four-byte legacy requests, which
    /// start with a NUL. Errors end the connection.
    fn read_request(&mut self) -> io::Result<Option<Bytes>> {
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.request.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
            if self.request.len() > ADMIN_REQUEST_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        if self.request.first() == Some(&0) {
            return Ok((self.request.len() >= 4).then(|| self.request.split().freeze()));
        }
        let end = self.request.iter().position(|b| matches!(b, 0 | b'\n'));
        Ok(end.map(|n| self.request.split_to(n).freeze()))
    }
}

impl World for RealWorld {
    fn now(&self) -> Now {
        self.now
    }

    fn dial(&mut self, sock: SockId, to: SocketAddr) {
        self.sockets.dial(sock, to);
    }

    fn transmit(&mut self, sock: SockId, bufs: Vec<Bytes>) {
        self.sockets.transmit(sock, bufs);
    }

    fn close(&mut self, sock: SockId) {
        self.sockets.close(sock);
    }

    fn set_reading(&mut self, sock: SockId, on: bool) {
        self.sockets.set_reading(sock, on);
    }

    fn expect(&mut self, sock: SockId, data: Range<u64>) {
        self.sockets.expect(sock, data);
    }

    fn wake_at(&mut self, at: Mono) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn admin_reply(&mut self, id: u64, reply: Bytes) {
        let Some(client) = self.admin_clients.remove(&Token(id as usize)) else { return };
        let mut out = BytesMut::with_capacity(4 + reply.len());
        out.put_u32(reply.len() as u32);
        out.put_slice(&reply);
        // Replies are small next to a socket's buffer; a client that does not read loses its answer, not our time.
        let stream: std::os::unix::net::UnixStream = client.stream.into();
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
        let _ = (&stream).write_all(&out);
    }
}
