//! The simulator: one queue of what happens when, one generator of chance, any number of processes.

use crate::disk::{DiskModel, SimDisk};
use crate::host::{Boot, Host, HostId, Start};
use crate::log::Log;
use crate::net::{End, LinkId, Net, NetModel, Packet, Pipe, Way};
use crate::world::{Effect, SimWorld};
use bytes::Bytes;
use msgr::SockId;
use node::{Input, Node};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::IoId;
use store::mem::{MemDisk, MemIo};
use types::{Errno, Mono};

/// What a run may shuffle.
#[derive(Debug, Clone, Default)]
pub struct Tunables {
    pub net: NetModel,
    pub disk: DiskModel,
}

/// What is due.
#[derive(Debug)]
enum Due {
    /// A process looks at its inbox.
    Run { host: HostId, life: u64 },
    Wake { host: HostId, life: u64 },
    Io { host: HostId, life: u64, id: IoId },
    /// A dial arrives.
    Dial { link: LinkId, to: SocketAddr },
    /// The dialler hears that it was accepted.
    Connected { link: LinkId },
    /// The first packet of a pipe arrives.
    Arrive { link: LinkId, side: usize },
}

/// How long one turn of a process takes.
const TURN_NS: std::ops::Range<u64> = 2_000..40_000;
/// How often TCP tries again across a partition.
const RETRY_NS: u64 = 200_000_000;

/// A simulated cluster.
pub struct Sim {
    pub log: Log,
    pub tunables: Tunables,
    /// How often something came to who did not read it then.
    pub held_up: u64,
    ns: u64,
    /// `ns` again, for logs.
    time: Arc<AtomicU64>,
    rng: ChaCha8Rng,
    queue: BTreeMap<(u64, u64), Due>,
    next_due: u64,
    hosts: Vec<Host>,
    net: Net,
    admin_replies: Vec<(HostId, u64, Bytes)>,
    complaints: Vec<Complaint>,
}

/// An error that a daemon told the cluster log, and when.
#[derive(Debug, Clone)]
pub struct Complaint {
    pub ns: u64,
    pub of: HostId,
    pub what: String,
}

impl Sim {
    /// An empty world; `seed` decides all that will happen.
    pub fn new(seed: u64, tunables: Tunables) -> Self {
        Sim {
            log: Log::default(),
            tunables,
            held_up: 0,
            ns: 0,
            time: Arc::default(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            queue: BTreeMap::new(),
            next_due: 0,
            hosts: Vec::new(),
            net: Net::default(),
            admin_replies: Vec::new(),
            complaints: Vec::new(),
        }
    }

    /// Simulated nanoseconds since the beginning.
    pub fn now_ns(&self) -> u64 {
        self.ns
    }

    /// The run's generator of chance, for whoever injects faults.
    pub fn rng(&mut self) -> &mut ChaCha8Rng {
        &mut self.rng
    }

    /// Adds a process that is not running yet. `port` 0: it does not listen. `start` makes its node at every start.
    pub fn add(
        &mut self,
        name: &str,
        port: u16,
        disk_bytes: u64,
        start: impl FnMut(Boot<'_>) -> Box<dyn Node<SimWorld>> + 'static,
    ) -> HostId {
        let id = HostId(self.hosts.len());
        let addr = SocketAddr::from(([10, 0, 0, id.0 as u8 + 1], port));
        let mono_offset = self.rng.random_range(1_000_000_000..1_000_000_000_000);
        let wall_skew = self.rng.random_range(-500_000_000..500_000_000);
        self.hosts.push(Host {
            name: name.to_owned(),
            addr,
            listens: port != 0,
            start: Box::new(start) as Start,
            node: None,
            world: SimWorld::default(),
            disk: SimDisk::new(MemDisk::new(disk_bytes)),
            life: 0,
            inbox: Vec::new(),
            busy_until: 0,
            awake: false,
            wake: None,
            mono_offset,
            wall_skew,
        });
        id
    }

    /// Where a process listens.
    pub fn addr(&self, id: HostId) -> SocketAddr {
        self.hosts[id.0].addr
    }

    pub fn is_running(&self, id: HostId) -> bool {
        self.hosts[id.0].node.is_some()
    }

    /// Whose disk this is; for making file systems and for looking at what is left.
    pub fn disk(&self, id: HostId) -> MemDisk {
        self.hosts[id.0].disk.medium.clone()
    }

    /// Gives a process that is not running an empty disk of `bytes`.
    pub fn replace_disk(&mut self, id: HostId, bytes: u64) {
        assert!(!self.is_running(id), "{} runs", self.hosts[id.0].name);
        self.log.event(self.ns, format_args!("{} gets an empty disk", self.hosts[id.0].name), &[]);
        self.hosts[id.0].disk = SimDisk::new(MemDisk::new(bytes));
    }

    /// Starts a process that is not running.
    pub fn start(&mut self, id: HostId) {
        assert!(!self.is_running(id), "{} runs already", self.hosts[id.0].name);
        // A machine that comes back answers its peers' old connections with resets.
        self.cut_all(id);
        let (seed, ns) = (self.rng.random(), self.ns);
        let host = &mut self.hosts[id.0];
        host.life += 1;
        let nonce = (id.0 as u32 + 1) << 16 | host.life as u32;
        let boot = Boot { nonce, seed, addr: host.addr, cluster_addr: host.cluster_addr(), disk: &host.disk.medium, now: host.now(ns) };
        host.node = Some((host.start)(boot));
        (host.inbox, host.busy_until, host.awake, host.wake) = (vec![Input::Wake], ns, false, None);
        self.log.event(ns, format_args!("{} starts, life {}", host.name, host.life), &[]);
        self.schedule_run(id);
    }

    /// Kills a process; `power`: the machine loses power, and its peers hear nothing of it until it is back.
    pub fn crash(&mut self, id: HostId, power: bool) {
        let host = &mut self.hosts[id.0];
        if host.node.take().is_none() {
            return;
        }
        self.log.event(self.ns, format_args!("{} crashes, power {power}", host.name), &[]);
        host.disk.crash(&mut self.rng);
        host.inbox.clear();
        host.world.effects.clear();
        if !power {
            self.cut_all(id);
        }
    }

    fn cut_all(&mut self, id: HostId) {
        for link in self.net.links_of(id) {
            self.cut(link);
        }
    }

    /// Breaks one connection in every `one_in`, as bad switches do.
    pub fn cut_connections(&mut self, one_in: u32) {
        let all: Vec<LinkId> = self.net.links.keys().copied().collect();
        for link in all {
            if self.rng.random_ratio(1, one_in) {
                self.cut(link);
            }
        }
    }

    /// These two hear nothing of each other until `heal`.
    pub fn partition(&mut self, a: HostId, b: HostId) {
        self.log.event(self.ns, format_args!("{} and {} are parted", self.hosts[a.0].name, self.hosts[b.0].name), &[]);
        self.net.block(a, b);
        self.net.block(b, a);
    }

    /// A process is without one of its networks until `regain` or `heal`.
    pub fn lose_network(&mut self, id: HostId, way: Way) {
        self.log.event(self.ns, format_args!("{} is without its network: {way:?}", self.hosts[id.0].name), &[]);
        self.net.lose(id, way);
    }

    /// It has it again.
    pub fn regain_network(&mut self, id: HostId, way: Way) {
        self.log.event(self.ns, format_args!("{} has its network again: {way:?}", self.hosts[id.0].name), &[]);
        self.net.regain(id, way);
    }

    /// `to` hears nothing of `from` until `rejoin` or `heal`; the other direction works.
    pub fn silence(&mut self, from: HostId, to: HostId) {
        self.log.event(self.ns, format_args!("{} is not heard by {}", self.hosts[from.0].name, self.hosts[to.0].name), &[]);
        self.net.block(from, to);
    }

    /// `to` hears `from` again, unless that had another reason, too.
    pub fn rejoin(&mut self, from: HostId, to: HostId) {
        self.log.event(self.ns, format_args!("{} is heard by {}", self.hosts[from.0].name, self.hosts[to.0].name), &[]);
        self.net.unblock(from, to);
    }

    /// A process does nothing until `ns`, as after SIGSTOP.
    pub fn pause(&mut self, id: HostId, ns: u64) {
        self.log.event(self.ns, format_args!("{} pauses", self.hosts[id.0].name), &[]);
        let host = &mut self.hosts[id.0];
        host.busy_until = host.busy_until.max(ns);
    }

    /// A process's wall clock is set, by so many seconds, to 1970 at the earliest; its monotonic clock goes on.
    pub fn set_clock(&mut self, id: HostId, by_s: i64) {
        self.log.event(self.ns, format_args!("the clock of {} jumps by {by_s} s", self.hosts[id.0].name), &[]);
        let ns = self.ns;
        self.hosts[id.0].set_clock(ns, by_s);
    }

    /// From now on I/O on a process's disk takes so many times as long.
    pub fn slow_disk(&mut self, id: HostId, factor: u64) {
        self.log.event(self.ns, format_args!("the disk of {} takes {factor} times as long", self.hosts[id.0].name), &[]);
        self.hosts[id.0].disk.slow = factor;
    }

    /// The next I/O of that kind on a process's disk fails (EIO).
    pub fn fail_io(&mut self, id: HostId, io: MemIo) {
        self.log.event(self.ns, format_args!("the disk of {} will fail: {io:?}", self.hosts[id.0].name), &[]);
        let seed = self.rng.random();
        self.hosts[id.0].disk.medium.fail_next(io, Errno::EIO, seed);
    }

    pub fn name(&self, id: HostId) -> &str {
        &self.hosts[id.0].name
    }

    /// Simulated time, for those who only tell it.
    pub fn time(&self) -> Arc<AtomicU64> {
        self.time.clone()
    }

    /// Ends every partition.
    pub fn heal(&mut self) {
        self.log.event(self.ns, format_args!("the network is whole"), &[]);
        self.net.heal();
    }

    /// Sends a request to a process's admin socket; the answer appears in `admin_replies`.
    pub fn admin(&mut self, id: HostId, request: u64, json: &str) {
        self.input(id, Input::Admin { id: request, request: Bytes::copy_from_slice(json.as_bytes()) });
    }

    /// What admin sockets have answered since the last call.
    pub fn admin_replies(&mut self) -> Vec<(HostId, u64, Bytes)> {
        std::mem::take(&mut self.admin_replies)
    }

    /// Errors that daemons have told the cluster log so far. Of what a daemon says when its store fails nothing is here.
    pub fn complaints(&self) -> &[Complaint] {
        &self.complaints
    }

    /// Wakes a process, as if the time it asked for had come.
    pub fn wake(&mut self, id: HostId) {
        self.input(id, Input::Wake);
    }

    /// Runs until simulated time reaches `ns`.
    pub fn run_until(&mut self, ns: u64) {
        while let Some(((at, _), due)) = self.pop_before(ns) {
            self.ns = at;
            self.handle(due);
        }
        self.ns = self.ns.max(ns);
    }

    /// Runs until `done`, or until simulated time reaches `ns`; true if done.
    pub fn run_until_done(&mut self, ns: u64, mut done: impl FnMut() -> bool) -> bool {
        while !done() {
            let Some(((at, _), due)) = self.pop_before(ns) else {
                self.ns = self.ns.max(ns);
                return done();
            };
            self.ns = at;
            self.handle(due);
        }
        true
    }

    fn pop_before(&mut self, ns: u64) -> Option<((u64, u64), Due)> {
        let first = self.queue.first_entry().filter(|e| e.key().0 <= ns)?;
        Some(first.remove_entry())
    }

    fn due(&mut self, at: u64, due: Due) {
        self.next_due += 1;
        self.queue.insert((at.max(self.ns), self.next_due), due);
    }

    fn handle(&mut self, due: Due) {
        self.time.store(self.ns, Ordering::Relaxed);
        match due {
            Due::Run { host, life } if self.alive(host, life) && self.hosts[host.0].busy_until > self.ns => {
                self.due(self.hosts[host.0].busy_until, Due::Run { host, life });
            }
            Due::Run { host, life } if self.alive(host, life) => self.run(host),
            Due::Wake { host, life } if self.alive(host, life) => self.wake_due(host),
            Due::Io { host, life, id } if self.alive(host, life) => {
                if let Some(result) = self.hosts[host.0].disk.complete(id) {
                    self.input(host, Input::Io { id: id.0, result });
                }
            }
            Due::Run { .. } | Due::Wake { .. } | Due::Io { .. } => {}
            Due::Dial { link, to } => self.dial_arrives(link, to),
            Due::Connected { link } => self.dial_accepted(link),
            Due::Arrive { link, side } => self.packet_arrives(link, side),
        }
    }

    fn alive(&self, host: HostId, life: u64) -> bool {
        let h = &self.hosts[host.0];
        h.life == life && h.node.is_some()
    }

    fn input(&mut self, id: HostId, input: Input) {
        if self.is_running(id) {
            self.hosts[id.0].inbox.push(input);
            self.schedule_run(id);
        }
    }

    fn schedule_run(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0];
        if !std::mem::replace(&mut host.awake, true) {
            let (at, life) = (host.busy_until.max(self.ns), host.life);
            self.due(at, Due::Run { host: id, life });
        }
    }

    /// One turn of a process: everything in its inbox, then settle, then what it wants.
    fn run(&mut self, id: HostId) {
        let (ns, busy) = (self.ns, self.rng.random_range(TURN_NS));
        let host = &mut self.hosts[id.0];
        (host.awake, host.busy_until) = (false, ns + busy);
        host.world.now = host.now(ns);
        let Some(mut node) = host.node.take() else { return };
        for input in in_any_order(std::mem::take(&mut host.inbox), &mut self.rng) {
            note(&mut self.log, ns, &host.name, &input);
            node.handle(&mut host.world, input);
        }
        node.settle(&mut host.world);
        if node.stopped().is_some() {
            self.log.event(ns, format_args!("{} has stopped", host.name), &[]);
            host.disk.crash(&mut self.rng);
            return self.last_words(id);
        }
        host.node = Some(node);
        let effects = std::mem::take(&mut host.world.effects);
        effects.into_iter().for_each(|effect| self.carry_out(id, effect));
        self.start_io(id);
    }

    /// A process has ended by itself: the system sends what it said before that, or not, and closes its connections.
    fn last_words(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0];
        let (life, effects) = (host.life, std::mem::take(&mut host.world.effects));
        if self.rng.random() {
            return self.cut_all(id);
        }
        for effect in effects.into_iter().filter(|e| matches!(e, Effect::Transmit { .. } | Effect::Close { .. })) {
            self.carry_out(id, effect);
        }
        let ends: Vec<End> = self.net.by_end.keys().filter(|e| e.host == id && e.life == life).copied().collect();
        for end in ends {
            self.send(end, Packet::End);
            self.net.by_end.remove(&end);
        }
    }

    fn start_io(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0];
        let (life, slow) = (host.life, host.disk.slow);
        for (io, kind) in host.disk.start() {
            let at = self.ns + self.tunables.disk.latency(kind, &mut self.rng) * slow;
            self.due(at, Due::Io { host: id, life, id: io });
        }
    }

    fn wake_due(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0];
        // A wake-up that an earlier one replaced finds nothing to do.
        if host.wake.is_some_and(|at| at <= self.ns) {
            host.wake = None;
            self.input(id, Input::Wake);
        }
    }

    fn carry_out(&mut self, id: HostId, effect: Effect) {
        let (life, ns) = (self.hosts[id.0].life, self.ns);
        match effect {
            Effect::Dial { sock, to } => {
                let end = End { host: id, life, sock };
                let link = self.net.add([end, end]);
                let at = ns + self.latency();
                self.due(at, Due::Dial { link, to });
            }
            Effect::Transmit { sock, bufs } => {
                let data = Bytes::from(bufs.concat());
                self.send(End { host: id, life, sock }, Packet::Data(data));
            }
            Effect::Close { sock } => {
                let end = End { host: id, life, sock };
                self.send(end, Packet::End);
                self.net.by_end.remove(&end);
            }
            Effect::SetReading { sock, on } => {
                let end = End { host: id, life, sock };
                match on || !self.net.by_end.contains_key(&end) {
                    true => self.net.unread.remove(&end),
                    false => self.net.unread.insert(end),
                };
            }
            Effect::Wake { at: Mono(at) } => {
                let host = &mut self.hosts[id.0];
                let at = at.saturating_sub(host.mono_offset).max(ns + 1);
                if host.wake.is_none_or(|earlier| earlier > at || earlier <= ns) {
                    host.wake = Some(at);
                    self.due(at, Due::Wake { host: id, life });
                }
            }
            Effect::AdminReply { id: request, reply } => self.admin_replies.push((id, request, reply)),
            Effect::Complain { what } => self.complaints.push(Complaint { ns, of: id, what }),
        }
    }

    fn latency(&mut self) -> u64 {
        let model = &self.tunables.net;
        let mut ns = self.rng.random_range(model.latency_ns.clone());
        if self.rng.random_ratio(1, model.delay_one_in) {
            ns += self.rng.random_range(model.delay_ns.clone());
        }
        ns
    }

    /// Puts a packet on the way to the other end.
    fn send(&mut self, from: End, packet: Packet) {
        let at = self.ns + self.latency();
        let Some(&(id, side)) = self.net.by_end.get(&from) else { return };
        let Some(link) = self.net.links.get_mut(&id) else { return };
        let pipe = &mut link.pipes[1 - side];
        pipe.last_arrival = pipe.last_arrival.max(at);
        let at = pipe.last_arrival;
        pipe.packets.push_back(packet);
        self.due(at, Due::Arrive { link: id, side: 1 - side });
    }

    fn dial_arrives(&mut self, link: LinkId, to: SocketAddr) {
        let Some(from) = self.net.links.get(&link).map(|l| l.ends[0]) else { return };
        let target = self.hosts.iter().position(|h| h.listens && (h.addr == to || h.cluster_addr() == to)).map(HostId);
        let way = if target.is_some_and(|t| self.hosts[t.0].addr == to) { Way::Public } else { Way::Cluster };
        self.net.links.entry(link).and_modify(|l| l.way = way);
        if target.is_some_and(|t| self.net.blocked(from.host, t, way)) {
            let at = self.ns + RETRY_NS;
            return self.due(at, Due::Dial { link, to });
        }
        match target.filter(|t| self.is_running(*t) && self.alive(from.host, from.life)) {
            Some(target) => self.accept(link, from, target),
            None => {
                self.net.remove(link);
                if self.alive(from.host, from.life) {
                    self.input(from.host, Input::Closed { sock: from.sock, refused: true });
                }
            }
        }
    }

    fn accept(&mut self, id: LinkId, from: End, target: HostId) {
        let end = End { host: target, life: self.hosts[target.0].life, sock: SockId(SockId::ACCEPTED | id.0) };
        let Some(link) = self.net.links.get_mut(&id) else { return };
        link.ends[1] = end;
        self.net.by_end.insert(end, (id, 1));
        let port = 40_000 + (id.0 % 20_000) as u16;
        let peer = SocketAddr::new(self.hosts[from.host.0].addr.ip(), port);
        let local = self.hosts[target.0].addr;
        self.input(target, Input::Accepted { sock: end.sock, peer, local });
        let at = self.ns + self.latency();
        if let Some(link) = self.net.links.get_mut(&id) {
            link.pipes[0].last_arrival = at;
        }
        self.due(at, Due::Connected { link: id });
    }

    fn dial_accepted(&mut self, id: LinkId) {
        let Some((ends, way)) = self.net.links.get(&id).map(|l| (l.ends, l.way)) else { return };
        if self.net.blocked(ends[1].host, ends[0].host, way) {
            return self.due(self.ns + RETRY_NS, Due::Connected { link: id });
        }
        let Some(link) = self.net.links.get_mut(&id) else { return };
        link.open = true;
        let end = link.ends[0];
        if self.alive(end.host, end.life) {
            let local = SocketAddr::new(self.hosts[end.host.0].addr.ip(), 40_000 + (id.0 % 20_000) as u16);
            self.input(end.host, Input::Connected { sock: end.sock, local });
        }
    }

    fn packet_arrives(&mut self, id: LinkId, side: usize) {
        let Some((ends, way)) = self.net.links.get(&id).map(|l| (l.ends, l.way)) else { return };
        let end = ends[side];
        let early = side == 0 && self.net.links.get(&id).is_some_and(|l| !l.open);
        if early || self.is_held_up(id, side, end) || self.net.blocked(ends[1 - side].host, end.host, way) {
            let at = self.ns + RETRY_NS;
            return self.due(at, Due::Arrive { link: id, side });
        }
        let pipe = self.net.links.get_mut(&id).map(|l| &mut l.pipes[side]);
        let Some(packet) = pipe.and_then(|p| p.packets.pop_front()) else { return };
        let listening = self.alive(end.host, end.life) && self.net.by_end.contains_key(&end);
        match packet {
            Packet::Data(data) if listening => self.bytes_arrive(end, data),
            Packet::Data(_) => {}
            Packet::End => {
                self.net.remove(id);
                if listening {
                    self.input(end.host, Input::Closed { sock: end.sock, refused: false });
                }
            }
        }
    }

    /// Who does not read from a connection hears of nothing but its end.
    fn is_held_up(&mut self, id: LinkId, side: usize, end: End) -> bool {
        let ends = |p: &Pipe| p.packets.iter().any(|packet| matches!(packet, Packet::End));
        let held_up = self.net.unread.contains(&end) && !self.net.links.get(&id).is_some_and(|l| ends(&l.pipes[side]));
        self.held_up += u64::from(held_up);
        held_up
    }

    /// Hands bytes over, sometimes in two pieces as real reads do.
    fn bytes_arrive(&mut self, end: End, mut data: Bytes) {
        if data.len() > 1 && self.rng.random_ratio(1, 8) {
            let head = data.split_to(self.rng.random_range(1..data.len()));
            self.input(end.host, Input::Bytes { sock: end.sock, data: head });
        }
        self.input(end.host, Input::Bytes { sock: end.sock, data });
    }

    /// A connection breaks: both ends hear of it, what was under way is lost.
    fn cut(&mut self, id: LinkId) {
        let Some(link) = self.net.links.get(&id) else { return };
        let ends = link.ends;
        self.log.event(self.ns, format_args!("connection {} breaks", id.0), &[]);
        let heard: Vec<End> = ends.into_iter().filter(|e| self.net.by_end.contains_key(e)).collect();
        self.net.remove(id);
        for (n, end) in heard.iter().enumerate() {
            if self.alive(end.host, end.life) && !heard[..n].contains(end) {
                self.input(end.host, Input::Closed { sock: end.sock, refused: false });
            }
        }
    }
}

/// What waits for a process, as it may come upon it: each connection in its own order, but one before another at will. A process
/// that stood still finds a client's question before the map that it should have answered it by.
fn in_any_order(mut inbox: Vec<Input>, rng: &mut ChaCha8Rng) -> Vec<Input> {
    if inbox.len() > 1 {
        let mut ranks: BTreeMap<Option<SockId>, u32> = BTreeMap::new();
        for input in &inbox {
            ranks.entry(input.sock()).or_insert_with(|| rng.random());
        }
        inbox.sort_by_key(|input| ranks.get(&input.sock()).copied());
    }
    inbox
}

/// Notes what a process is about to hear.
fn note(log: &mut Log, ns: u64, name: &str, input: &Input) {
    match input {
        Input::Accepted { sock, peer, .. } => log.event(ns, format_args!("{name} accepts {:x} from {peer}", sock.0), &[]),
        Input::Connected { sock, .. } => log.event(ns, format_args!("{name} is connected as {:x}", sock.0), &[]),
        Input::Bytes { sock, data } => log.event(ns, format_args!("{name} reads {} on {:x}", data.len(), sock.0), data),
        Input::Closed { sock, refused } => {
            log.event(ns, format_args!("{name} loses {:x}, refused {refused}", sock.0), &[]);
        }
        Input::Io { id, result } => {
            let data = result.as_ref().map_or(&[][..], |b| b);
            log.event(ns, format_args!("{name} ends I/O {id}, ok {}", result.is_ok()), data);
        }
        Input::Admin { id, request } => log.event(ns, format_args!("{name} is asked {id}"), request),
        Input::Wake => log.event(ns, format_args!("{name} wakes"), &[]),
        Input::Stop => log.event(ns, format_args!("{name} is to stop"), &[]),
    }
}
