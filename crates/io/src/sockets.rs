//! TCP connections of one event loop: nonblocking, vectored sends, one read buffer for all.
//!
//! Room: io.   Holds: bytes leave in the order they were queued; a socket closed by us reports nothing more.

use crate::block::{BufferPool, Filling, HUGE_PAGE};
use bytes::{Buf, Bytes};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use msgr::SockId;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::time::Duration;
use types::msg::BLOCK_BYTES;

/// Bytes asked from the kernel in one read.
const READ_CHUNK_BYTES: usize = 256 << 10;
/// A read buffer with less room than this is replaced: smaller reads would cost more system calls than they save.
const READ_ROOM_BYTES_MIN: usize = 16 << 10;
/// A read of so much is looked at before there is another one: it may be the beginning of what is to lie elsewhere.
const LOOKED_AT_BYTES_MIN: usize = 128 << 10;
/// Pieces given to one vectored send (the kernel's IOV_MAX).
const SLICES_PER_SEND: usize = 512;
/// What the other side's kernel has not acknowledged, or not made room for, in this time ends the connection. Without it the
/// kernel would wait up to two minutes after a network is whole again until it tries the next time; a session dials at once.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(20);
/// Reads from one socket before the others get their turn.
const READS_PER_TURN: usize = 8;

/// What became of a socket in one turn.
#[derive(Debug)]
pub enum SocketEvent {
    Connected { sock: SockId, local: SocketAddr },
    Bytes { sock: SockId, data: Bytes },
    Closed { sock: SockId, refused: bool },
}

struct Conn {
    stream: TcpStream,
    sock: SockId,
    connected: bool,
    out: VecDeque<Bytes>,
    /// Registered for writability because the kernel's buffer was full.
    blocked: bool,
    /// Close once everything queued has left.
    closing: bool,
    /// What comes is left in the kernel.
    unread: bool,
    /// Bytes since the start.
    received: u64,
    expected: Option<Expected>,
}

/// Data that is about to come over one connection, and where it is to lie. It is passed on chunk by chunk, not as it comes.
struct Expected {
    /// Bytes that have not come.
    left: usize,
    buf: Filling,
}

/// All TCP connections of one event loop.
pub struct Sockets {
    registry: Registry,
    conns: HashMap<Token, Conn>,
    tokens: BTreeMap<SockId, Token>,
    dirty: Vec<Token>,
    /// Dials that failed at once, and whether they were refused.
    failed: Vec<(SockId, bool)>,
    next_token: usize,
    next_accepted: u64,
    /// Read buffers have memory of their own: large messages fill hundreds at a time, and the C library's heap would stay as
    /// large, for the small things that came between them and last.
    pool: BufferPool,
    read_buf: Option<Filling>,
    received: u64,
    sent: u64,
}

impl Sockets {
    /// Tokens below `first_token` belong to the owner's listeners and wakers.
    pub fn new(registry: Registry, first_token: usize) -> Self {
        Sockets {
            registry,
            conns: HashMap::new(),
            tokens: BTreeMap::new(),
            dirty: Vec::new(),
            failed: Vec::new(),
            next_token: first_token,
            next_accepted: 1 << 63,
            pool: BufferPool::default(),
            read_buf: None,
            received: 0,
            sent: 0,
        }
    }

    /// Bytes received, and handed over to be sent, since the start.
    pub fn traffic(&self) -> u64 {
        self.received + self.sent
    }

    /// Gives read buffers back that were not used since the last call.
    pub fn give_back_unused(&self) {
        self.pool.give_back_unused();
    }

    /// Takes over an accepted connection and names it.
    pub fn accept(&mut self, stream: TcpStream) -> io::Result<SockId> {
        let sock = SockId(self.next_accepted);
        self.next_accepted += 1;
        self.insert(sock, stream, true)?;
        Ok(sock)
    }

    /// Starts a connection; a failure is reported by the next `failures`.
    pub fn dial(&mut self, sock: SockId, to: SocketAddr) {
        let opened = TcpStream::connect(to).and_then(|stream| self.insert(sock, stream, false));
        if let Err(e) = opened {
            self.failed.push((sock, is_refusal(&e)));
        }
    }

    /// Queues bytes; they leave with the next `flush`.
    pub fn transmit(&mut self, sock: SockId, bufs: Vec<Bytes>) {
        let Some(token) = self.tokens.get(&sock) else { return };
        let Some(conn) = self.conns.get_mut(token) else { return };
        if conn.out.is_empty() && !conn.closing {
            self.dirty.push(*token);
        }
        self.sent += bufs.iter().map(|b| b.len() as u64).sum::<u64>();
        conn.out.extend(bufs.into_iter().filter(|b| !b.is_empty()));
    }

    /// Closes after what is queued has left.
    pub fn close(&mut self, sock: SockId) {
        let Some(token) = self.tokens.remove(&sock) else { return };
        if let Some(conn) = self.conns.get_mut(&token) {
            conn.closing = true;
            self.dirty.push(token);
        }
    }

    /// Whether to read from a socket; while not, who sends is held up once the kernel's buffers are full. Its end is heard all the same.
    pub fn set_reading(&mut self, sock: SockId, on: bool) {
        let Some(token) = self.tokens.get(&sock) else { return };
        let Some(conn) = self.conns.get_mut(token) else { return };
        if std::mem::replace(&mut conn.unread, !on) && on {
            // Edge-triggered: what came meanwhile is announced again.
            if self.registry.reregister(&mut conn.stream, *token, Interest::READABLE | Interest::WRITABLE).is_err() {
                let token = *token;
                self.tokens.remove(&sock);
                self.failed.push((sock, false));
                self.forget(token);
            }
        }
    }

    /// Of all that a socket brings, from its first byte on, these are data whose blocks of 4 KiB had better be aligned. What has been read of them already, lies as it does.
    pub fn expect(&mut self, sock: SockId, data: Range<u64>) {
        let Some(conn) = self.tokens.get(&sock).and_then(|token| self.conns.get_mut(token)) else { return };
        let (come, left) = (conn.received.checked_sub(data.start), data.end.saturating_sub(conn.received));
        // Bytes of an earlier wish may wait there.
        let may = conn.expected.is_none() && left >= READ_ROOM_BYTES_MIN as u64;
        if let Some(come) = come.filter(|_| may) {
            conn.expected = Some(Expected::new(left as usize, &self.pool, (come % BLOCK_BYTES as u64) as usize));
        }
    }

    /// Dials that failed at once.
    pub fn failures(&mut self, events: &mut Vec<SocketEvent>) {
        events.extend(self.failed.drain(..).map(|(sock, refused)| SocketEvent::Closed { sock, refused }));
    }

    /// Sends what was queued, one vectored send per socket where the kernel takes it all.
    pub fn flush(&mut self, events: &mut Vec<SocketEvent>) {
        for token in std::mem::take(&mut self.dirty) {
            self.write(token, events);
        }
    }

    /// Handles readiness of one socket.
    pub fn ready(&mut self, event: &mio::event::Event, events: &mut Vec<SocketEvent>) {
        let token = event.token();
        if event.is_writable() && !self.finish_connect(token, events) {
            return;
        }
        if event.is_writable() {
            self.write(token, events);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.read(token, event.is_read_closed() || event.is_error(), events);
        }
    }

    fn insert(&mut self, sock: SockId, mut stream: TcpStream, connected: bool) -> io::Result<()> {
        let token = Token(self.next_token);
        self.next_token += 1;
        // Small messages must not wait for each other: every reply is somebody's latency.
        let _ = stream.set_nodelay(true);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MAX.as_millis() as u32);
        self.registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        self.tokens.insert(sock, token);
        self.conns.insert(token, Conn { stream, sock, connected, out: VecDeque::new(), blocked: !connected, closing: false, unread: false, received: 0, expected: None });
        Ok(())
    }

    /// True if the socket is (now) connected.
    fn finish_connect(&mut self, token: Token, events: &mut Vec<SocketEvent>) -> bool {
        let Some(conn) = self.conns.get_mut(&token) else { return false };
        if conn.connected {
            return true;
        }
        let error = conn.stream.take_error().ok().flatten();
        let failed = error.is_some();
        match conn.stream.peer_addr().and_then(|_| conn.stream.local_addr()) {
            Ok(local) if !failed => {
                conn.connected = true;
                conn.blocked = false;
                let _ = conn.stream.set_nodelay(true);
                events.push(SocketEvent::Connected { sock: conn.sock, local });
                true
            }
            Err(e) if !failed && e.kind() == ErrorKind::NotConnected => false,
            _ => {
                self.drop_conn(token, error.as_ref().is_some_and(is_refusal), events);
                false
            }
        }
    }

    fn write(&mut self, token: Token, events: &mut Vec<SocketEvent>) {
        let Some(conn) = self.conns.get_mut(&token) else { return };
        if !conn.connected && !conn.closing {
            return;
        }
        match send_queued(&mut conn.stream, &mut conn.out) {
            Ok(()) if conn.closing && (conn.out.is_empty() || !conn.connected) => self.forget(token),
            Ok(()) => conn.blocked = !conn.out.is_empty(),
            Err(_) if conn.closing => self.forget(token),
            Err(_) => self.drop_conn(token, false, events),
        }
    }

    /// Reads what is there. `ending`: the end of the stream has been announced, and would not be again.
    fn read(&mut self, token: Token, ending: bool, events: &mut Vec<SocketEvent>) {
        for _ in 0..READS_PER_TURN {
            let Some(conn) = self.conns.get_mut(&token) else { return };
            if !conn.connected || (conn.unread && !ending) {
                return;
            }
            let len_max = conn.expected.as_ref().map_or(READ_CHUNK_BYTES, Expected::next_len);
            let buf = match &mut conn.expected {
                Some(expected) => &mut expected.buf,
                None => with_room(&mut self.read_buf, &self.pool),
            };
            let (len, emptied) = match receive(&conn.stream, buf, len_max) {
                Ok((0, _)) => return self.drop_conn(token, false, events),
                Ok(read) => read,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return self.drop_conn(token, is_refusal(&e), events),
            };
            self.received += len as u64;
            conn.received += len as u64;
            let is_looked_at = conn.expected.is_none() && len >= LOOKED_AT_BYTES_MIN;
            let data = match conn.expected.take() {
                None => self.read_buf.as_mut().map(Filling::share).unwrap_or_default(),
                Some(expected) => {
                    let (data, more) = expected.came(len, &self.pool);
                    conn.expected = more;
                    data
                }
            };
            // Of what waits for more the owner hears nothing but that somebody is there.
            if !conn.closing && (emptied || !data.is_empty()) {
                events.push(SocketEvent::Bytes { sock: conn.sock, data });
            }
            if emptied && !ending {
                return;
            }
            if is_looked_at {
                break;
            }
        }
        // Edge-triggered: what is left would never be announced again. Re-registering does.
        if let Some(conn) = self.conns.get_mut(&token) {
            let _ = self.registry.reregister(&mut conn.stream, token, Interest::READABLE | Interest::WRITABLE);
        }
    }

    fn drop_conn(&mut self, token: Token, refused: bool, events: &mut Vec<SocketEvent>) {
        let Some(conn) = self.conns.get(&token) else { return };
        if !conn.closing {
            self.tokens.remove(&conn.sock);
            events.push(SocketEvent::Closed { sock: conn.sock, refused });
        }
        self.forget(token);
    }

    fn forget(&mut self, token: Token) {
        if let Some(mut conn) = self.conns.remove(&token) {
            let _ = self.registry.deregister(&mut conn.stream);
        }
    }
}

impl Expected {
    /// Who expects more than half of a huge page gets one: a device that is given small pages one by one is half as fast.
    fn new(left: usize, pool: &BufferPool, skip: usize) -> Self {
        let len = if left > HUGE_PAGE / 2 { HUGE_PAGE } else { READ_CHUNK_BYTES };
        Expected { left, buf: pool.fill(len, skip) }
    }

    /// What is missing of the chunk that is passed on next.
    fn next_len(&self) -> usize {
        self.left.min(READ_CHUNK_BYTES - self.buf.filled_len() % READ_CHUNK_BYTES)
    }

    /// After so many more bytes: what is passed on, and what is still expected. A small rest is not worth memory of its own.
    fn came(mut self, len: usize, pool: &BufferPool) -> (Bytes, Option<Self>) {
        self.left -= len;
        if self.left > 0 && !self.buf.filled_len().is_multiple_of(READ_CHUNK_BYTES) {
            return (Bytes::new(), Some(self));
        }
        let data = self.buf.share();
        let more = match self.buf.room_len() {
            _ if self.left < READ_ROOM_BYTES_MIN => None,
            0 => Some(Self::new(self.left, pool, 0)),
            _ => Some(self),
        };
        (data, more)
    }
}

/// The buffer that all share, or a new one: if nobody has kept a piece of the full one, that is the next.
fn with_room<'a>(buf: &'a mut Option<Filling>, pool: &BufferPool) -> &'a mut Filling {
    buf.take_if(|b| b.room_len() < READ_ROOM_BYTES_MIN);
    buf.get_or_insert_with(|| pool.fill(READ_CHUNK_BYTES, 0))
}

/// Reads once, up to `len_max` bytes; none is the end of the stream. With their number: true if the kernel has no more, for it gave less than it was asked for;
/// whatever comes later is announced anew.
fn receive(stream: &TcpStream, buf: &mut Filling, len_max: usize) -> io::Result<(usize, bool)> {
    let room = buf.room();
    let len = room.len().min(len_max);
    // SAFETY: the kernel writes at most `len` bytes into memory that is ours alone and has room for them.
    let n = unsafe { libc::recv(stream.as_raw_fd(), room.as_mut_ptr().cast(), len, 0) };
    let Ok(n) = usize::try_from(n) else { return Err(io::Error::last_os_error()) };
    buf.filled(n);
    Ok((n, n < len))
}

/// Somebody is there and says that nobody listens. A network that is away, or a lack of descriptors here, says nothing of the other side.
fn is_refusal(e: &io::Error) -> bool {
    e.kind() == ErrorKind::ConnectionRefused
}

/// Sends until the queue is empty or the kernel will take no more.
fn send_queued(stream: &mut TcpStream, out: &mut VecDeque<Bytes>) -> io::Result<()> {
    while !out.is_empty() {
        let slices: Vec<IoSlice<'_>> = out.iter().take(SLICES_PER_SEND).map(|b| IoSlice::new(b)).collect();
        match stream.write_vectored(&slices) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => advance(out, n),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn advance(out: &mut VecDeque<Bytes>, mut n: usize) {
    while let Some(front) = out.front_mut() {
        if n < front.len() {
            front.advance(n);
            return;
        }
        n -= front.len();
        out.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};
    use std::io::Write;
    use std::net::TcpListener;

    /// How a dial ends that does not succeed.
    fn end_of_dial(to: SocketAddr) -> bool {
        let mut poll = Poll::new().unwrap();
        let mut sockets = Sockets::new(poll.registry().try_clone().unwrap(), 1);
        sockets.dial(SockId(1), to);
        let (mut ready, mut out) = (Events::with_capacity(8), Vec::new());
        loop {
            sockets.failures(&mut out);
            if let Some(SocketEvent::Closed { refused, .. }) = out.first() {
                return *refused;
            }
            poll.poll(&mut ready, Some(Duration::from_secs(5))).unwrap();
            ready.iter().for_each(|event| sockets.ready(event, &mut out));
        }
    }

    /// A socket, and who speaks at its other end.
    fn accepted() -> (Poll, Sockets, std::net::TcpStream, SockId) {
        let poll = Poll::new().unwrap();
        let mut sockets = Sockets::new(poll.registry().try_clone().unwrap(), 1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().0;
        accepted.set_nonblocking(true).unwrap();
        let sock = sockets.accept(TcpStream::from_std(accepted)).unwrap();
        (poll, sockets, from, sock)
    }

    /// One turn's bytes.
    fn turn(poll: &mut Poll, sockets: &mut Sockets) -> Vec<Bytes> {
        let (mut ready, mut out) = (Events::with_capacity(8), Vec::new());
        poll.poll(&mut ready, Some(Duration::from_millis(50))).unwrap();
        ready.iter().for_each(|event| sockets.ready(event, &mut out));
        out.into_iter().filter_map(|e| if let SocketEvent::Bytes { data, .. } = e { Some(data) } else { None }).collect()
    }

    /// Sends over `from` what `to` is to hear, and returns what it heard in a while.
    fn heard(poll: &mut Poll, sockets: &mut Sockets, from: &mut std::net::TcpStream, say: &[u8]) -> Vec<u8> {
        from.write_all(say).unwrap();
        (0..3).flat_map(|_| turn(poll, sockets).concat()).collect()
    }

    #[test]
    fn what_is_expected_lies_as_was_wished_and_is_passed_on_by_the_chunk() {
        const EXPECTED_END: usize = 4_700_000;
        let (mut poll, mut sockets, mut from, sock) = accepted();
        let bytes: Vec<u8> = (0..5_000_000u32).map(|i| (i * 7 % 251) as u8).collect();
        assert_eq!(heard(&mut poll, &mut sockets, &mut from, &bytes[..1000]), bytes[..1000]);
        // What has been read, and what is not next, nobody waits for.
        sockets.expect(sock, 0..900);
        sockets.expect(sock, 5000..9_000_000);
        assert!(sockets.conns.values().all(|conn| conn.expected.is_none()));
        // It began 500 bytes before what has been heard; what came before that does not count.
        sockets.expect(sock, 500..EXPECTED_END as u64);
        from.write_all(&bytes[1000..1010]).unwrap();
        let trickle: Vec<Bytes> = (0..3).flat_map(|_| turn(&mut poll, &mut sockets)).collect();
        assert_eq!(trickle, [Bytes::new()], "somebody is there");
        let rest = bytes[1010..].to_vec();
        let sender = std::thread::spawn(move || from.write_all(&rest).map(|()| from));
        let mut at = 1000;
        while at < bytes.len() {
            for data in turn(&mut poll, &mut sockets).into_iter().filter(|data| !data.is_empty()) {
                assert_eq!(data, bytes[at..at + data.len()]);
                let end = at + data.len();
                if end <= EXPECTED_END - READ_ROOM_BYTES_MIN {
                    assert!((data.as_ptr() as usize - (at - 500)).is_multiple_of(4096) && (end - 500).is_multiple_of(4096), "{at}..{end}");
                }
                at = end;
            }
        }
        sender.join().unwrap().unwrap();
    }

    #[test]
    fn who_is_not_read_from_is_heard_later_and_its_end_at_once() {
        let (mut poll, mut sockets, mut from, sock) = accepted();
        assert_eq!(heard(&mut poll, &mut sockets, &mut from, b"one"), b"one");
        sockets.set_reading(sock, false);
        assert_eq!(heard(&mut poll, &mut sockets, &mut from, b"two"), b"");
        assert_eq!(heard(&mut poll, &mut sockets, &mut from, b"three"), b"");
        sockets.set_reading(sock, true);
        assert_eq!(heard(&mut poll, &mut sockets, &mut from, b""), b"twothree");
        sockets.set_reading(sock, false);
        from.shutdown(std::net::Shutdown::Write).unwrap();
        heard(&mut poll, &mut sockets, &mut from, b"");
        assert!(sockets.tokens.is_empty(), "it has ended");
    }

    /// Who refuses is believed to be dead at once; a network that is away says nothing of anybody.
    #[test]
    fn only_a_refusal_is_a_refusal() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = listener.local_addr().unwrap();
        drop(listener);
        assert!(end_of_dial(nobody));
        // The kernel has no way there for a stream.
        assert!(!end_of_dial("255.255.255.255:1".parse().unwrap()));
    }
}
