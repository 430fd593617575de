//! A plain world for tests against real clusters: blocking sockets, one reader thread each.

use bytes::Bytes;
use client::Client;
use msgr::{Action, Endpoint, SockId};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};
use types::{Mono, Now, Utime};

/// What sockets are reported to.
pub trait Hears {
    fn connected(&mut self, now: Now, sock: SockId, local: SocketAddr);
    fn bytes(&mut self, now: Now, sock: SockId, bytes: Bytes);
    fn closed(&mut self, now: Now, sock: SockId);
    fn action(&mut self) -> Option<Action>;
}

macro_rules! hears {
    ($($t:ty),*) => {$(
        impl Hears for $t {
            fn connected(&mut self, now: Now, sock: SockId, local: SocketAddr) {
                self.handle_connected(now, sock, local);
            }
            fn bytes(&mut self, now: Now, sock: SockId, bytes: Bytes) {
                self.handle_bytes(now, sock, bytes);
            }
            fn closed(&mut self, now: Now, sock: SockId) {
                self.handle_closed(now, sock);
            }
            fn action(&mut self) -> Option<Action> {
                self.poll_action()
            }
        }
    )*};
}
hears!(Endpoint, Client);

enum Input {
    Bytes(SockId, Bytes),
    Closed(SockId),
}

/// Sockets and a clock.
pub struct Net {
    begin: Instant,
    socks: BTreeMap<SockId, TcpStream>,
    tx: Sender<Input>,
    rx: Receiver<Input>,
}

impl Net {
    pub fn new() -> Net {
        let (tx, rx) = channel();
        Net { begin: Instant::now(), socks: BTreeMap::new(), tx, rx }
    }

    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Now { mono: Mono(self.begin.elapsed().as_nanos() as u64 + 1), wall: Utime::from_duration(wall) }
    }

    /// Does what the endpoint wants done.
    pub fn act(&mut self, ep: &mut impl Hears) {
        while let Some(action) = ep.action() {
            match action {
                Action::Dial { sock, addr } => self.dial(ep, sock, addr),
                Action::Transmit { sock, bufs } => {
                    if let Some(stream) = self.socks.get_mut(&sock) {
                        let _ = stream.write_all(&bufs.concat());
                    }
                }
                Action::Close { sock } => {
                    if let Some(stream) = self.socks.remove(&sock) {
                        let _ = stream.shutdown(std::net::Shutdown::Both);
                    }
                }
            }
        }
    }

    fn dial(&mut self, ep: &mut impl Hears, sock: SockId, addr: SocketAddr) {
        let Ok(stream) = TcpStream::connect(addr) else { return ep.closed(self.now(), sock) };
        stream.set_nodelay(true).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let local = stream.local_addr().unwrap();
        self.socks.insert(sock, stream);
        let tx = self.tx.clone();
        std::thread::spawn(move || {
            let mut buf = vec![0; 1 << 16];
            while let Ok(n @ 1..) = reader.read(&mut buf) {
                if tx.send(Input::Bytes(sock, Bytes::copy_from_slice(&buf[..n]))).is_err() {
                    return;
                }
            }
            let _ = tx.send(Input::Closed(sock));
        });
        ep.connected(self.now(), sock, local);
    }

    /// One turn of a client: acts, waits a little, tells it the time.
    pub fn drive(&mut self, client: &mut Client) {
        self.act(client);
        self.wait(client, client.next_timeout());
        client.handle_timeout(self.now());
        self.act(client);
    }

    /// Waits for something to happen, at most until `deadline`.
    pub fn wait(&mut self, ep: &mut impl Hears, deadline: Option<Mono>) {
        let cap = Duration::from_millis(2);
        let timeout = deadline.map_or(cap, |at| (at - self.now().mono).min(cap));
        let mut first = self.rx.recv_timeout(timeout).ok();
        while let Some(input) = first.take().or_else(|| self.rx.try_recv().ok()) {
            match input {
                Input::Bytes(sock, bytes) => ep.bytes(self.now(), sock, bytes),
                Input::Closed(sock) => {
                    if self.socks.remove(&sock).is_some() {
                        ep.closed(self.now(), sock);
                    }
                }
            }
        }
    }
}
