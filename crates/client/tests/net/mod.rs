//! A plain world for tests against real clusters: blocking sockets, one reader thread each.

use bytes::Bytes;
use msgr::{Action, Endpoint, SockId};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};
use types::{Mono, Now, Utime};

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
    pub fn act(&mut self, ep: &mut Endpoint) {
        while let Some(action) = ep.poll_action() {
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

    fn dial(&mut self, ep: &mut Endpoint, sock: SockId, addr: SocketAddr) {
        let Ok(stream) = TcpStream::connect(addr) else { return ep.handle_closed(self.now(), sock) };
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
        ep.handle_connected(self.now(), sock, local);
    }

    /// Waits for something to happen, at most until `deadline`.
    pub fn wait(&mut self, ep: &mut Endpoint, deadline: Option<Mono>) {
        let cap = Duration::from_millis(200);
        let timeout = deadline.map_or(cap, |at| (at - self.now().mono).min(cap));
        let mut first = self.rx.recv_timeout(timeout).ok();
        while let Some(input) = first.take().or_else(|| self.rx.try_recv().ok()) {
            match input {
                Input::Bytes(sock, bytes) => ep.handle_bytes(self.now(), sock, bytes),
                Input::Closed(sock) => {
                    if self.socks.remove(&sock).is_some() {
                        ep.handle_closed(self.now(), sock);
                    }
                }
            }
        }
    }
}
