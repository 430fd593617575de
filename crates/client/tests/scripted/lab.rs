//! Two monitors, three OSDs, clients, and wires without length between them; time passes when nothing else does.

use crate::osd::Osd;
use auth::cephx::{KeyStore, MonAuth, Reply, RotatingSecrets, TicketPolicy};
use auth::{ChaCha8Rng, CryptoKey, EntityAuth, KeyKind};
use bytes::Bytes;
use client::{Client, Handle, MonClientConfig};
use msgr::{Action, Config, ConnId, Endpoint, Event, SockId};
use rand::SeedableRng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use types::map::{MgrMap, MonMap, OsdMap, OsdMapIncremental, PgPool};
use types::msg::{
    MAuthReply, MConfig, MMgrMap, MMonCommandAck, MMonGetVersionReply, MMonMap, MOsdMap, Message, RawMessage,
    SubscribeItem, WireMessage,
};
use types::{AddrVec, EntityAddr, EntityKind, EntityName, Epoch, Mono, Now, OsdId, PoolId, Utime, features};
use uuid::Uuid;

const FSID: Uuid = Uuid::from_u128(77);

pub struct Keys {
    entities: BTreeMap<EntityName, EntityAuth>,
    secrets: BTreeMap<EntityKind, RotatingSecrets>,
}

impl KeyStore for Keys {
    fn entity(&self, name: &EntityName) -> Option<EntityAuth> {
        self.entities.get(name).cloned()
    }
    fn secrets(&self, service: EntityKind) -> Option<&RotatingSecrets> {
        self.secrets.get(&service)
    }
}

/// The published maps: incremental and full, encoded, by epoch.
struct Maps {
    newest: OsdMap,
    published: BTreeMap<Epoch, (Bytes, Bytes)>,
}

pub struct Mon {
    pub ep: Endpoint,
    pub alive: bool,
    pub full_maps_given: u32,
    auth: BTreeMap<ConnId, MonAuth>,
    subs: BTreeMap<ConnId, BTreeMap<String, SubscribeItem>>,
}

impl Mon {
    /// Open sessions.
    pub fn sessions(&self) -> usize {
        self.subs.len()
    }
}

/// Who is at the other end of a client's socket.
#[derive(Clone, Copy)]
enum Peer {
    Mon(usize),
    Osd(usize),
}

pub struct Lab {
    pub now: Now,
    pub mons: Vec<Mon>,
    pub osds: Vec<Osd>,
    keys: Keys,
    maps: Maps,
    monmap: MonMap,
    rng: ChaCha8Rng,
    next_id: u64,
    wires: BTreeMap<SockId, (Peer, SockId)>,
}

fn addrs(port: u16) -> AddrVec {
    AddrVec(vec![EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], port)), 1)])
}

fn wall(sec: u32) -> Utime {
    Utime { sec: 1_795_000_000 + sec, nsec: 0 }
}

impl Lab {
    pub fn new() -> Lab {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let caps = [("mon", "allow *"), ("osd", "allow *")].map(|(k, v)| (k.to_string(), v.to_string()));
        let admin = EntityAuth { key: CryptoKey::generate(KeyKind::Aes, wall(0), &mut rng), caps: caps.into() };
        let mut secrets = BTreeMap::new();
        for service in [EntityKind::AUTH, EntityKind::MON, EntityKind::OSD, EntityKind::MGR] {
            let mut s = RotatingSecrets::default();
            s.rotate(wall(0), TicketPolicy::default().service_ttl, KeyKind::Aes, &mut rng);
            secrets.insert(service, s);
        }
        let keys = Keys { entities: [("client.admin".parse().unwrap(), admin)].into(), secrets };
        let mut monmap = MonMap::new(FSID, wall(0));
        monmap.epoch = Epoch(1);
        monmap.add("a", addrs(3300));
        monmap.add("b", addrs(3301));
        let mon = |rank: i64, port| Mon {
            ep: Endpoint::new(Config::new(EntityKind::MON, rank, addrs(port), features::SUPPORTED), rank as u64 + 9),
            alive: true,
            full_maps_given: 0,
            auth: BTreeMap::new(),
            subs: BTreeMap::new(),
        };
        Lab {
            now: Now { mono: Mono(1_000_000_000), wall: wall(1) },
            mons: vec![mon(0, 3300), mon(1, 3301)],
            osds: (0..3).map(|id| Osd::new(id, addrs(6800 + id as u16))).collect(),
            keys,
            maps: first_map(),
            monmap,
            rng,
            next_id: 4100,
            wires: BTreeMap::new(),
        }
    }

    /// A client that has started.
    pub fn client(&mut self, edit: impl FnOnce(&mut MonClientConfig)) -> (Client, Handle) {
        let name: EntityName = "client.admin".parse().unwrap();
        let key = self.keys.entities[&name].key.clone();
        let mut config = MonClientConfig::new(name, key, vec![addrs(3300), addrs(3301)]);
        edit(&mut config);
        self.wires.clear();
        let (mut client, handle) = Client::new(config, 3, [self.next_id as u8; 32], Arc::new(|| {}));
        client.start(self.now);
        (client, handle)
    }

    pub fn epoch(&self) -> Epoch {
        self.maps.newest.epoch
    }

    /// The number of the OSD that serves an object of pool `p`.
    pub fn primary_of(&self, oid: &str) -> usize {
        let map = &self.maps.newest;
        let raw = map.object_to_pg(&types::ObjectLocator::pool(PoolId(1)), oid.as_bytes()).unwrap();
        map.pg_to_up_acting(map.raw_pg_to_pg(raw).unwrap()).acting_primary.0 as usize
    }

    /// Publishes the next epoch.
    pub fn change_map(&mut self, edit: impl FnOnce(&mut OsdMapIncremental)) {
        let mut inc = OsdMapIncremental::new(FSID, self.epoch().next(), self.now.wall);
        edit(&mut inc);
        let mut next = self.maps.newest.clone();
        next.apply_unchecked(&inc).unwrap();
        let (full, inc) = inc.publish(&mut next);
        self.maps.published.insert(next.epoch, (inc, full));
        self.maps.newest = next;
        for i in 0..self.mons.len() {
            self.push_maps(i);
        }
    }

    pub fn add_pool(&mut self, id: i64, name: &str) {
        self.change_map(|inc| {
            inc.new_pools.insert(PoolId(id), PgPool::replicated(3, 8, 0));
            inc.new_pool_names.insert(PoolId(id), name.into());
            inc.new_pool_max = Some(id);
        });
    }

    /// The newest incremental now leads to another map than its checksum says.
    pub fn damage_newest_incremental(&mut self) {
        let epoch = self.epoch();
        let (bytes, full) = self.maps.published[&epoch].clone();
        let mut inc: OsdMapIncremental = denc::from_slice(&bytes).unwrap();
        inc.new_flags = Some(0);
        let mut other = self.maps.published[&Epoch(epoch.0 - 1)].1.clone();
        let mut wrong: OsdMap = denc::from_slice(&other).unwrap();
        wrong.apply_unchecked(&OsdMapIncremental::new(FSID, epoch, wall(9))).unwrap();
        wrong.pool_max = 1234;
        let (_, bytes) = inc.publish(&mut wrong);
        other = full;
        self.maps.published.insert(epoch, (bytes, other));
    }

    /// Rotates a service's secrets until none that tickets were made with is left.
    pub fn rotate_away(&mut self, service: EntityKind) {
        let secrets = self.keys.secrets.get_mut(&service).unwrap();
        for _ in 0..3 {
            let later = secrets.current().unwrap().expires;
            secrets.rotate(later, TicketPolicy::default().service_ttl, KeyKind::Aes, &mut self.rng);
        }
    }

    /// Every connection of the client ends.
    pub fn cut(&mut self, client: &mut Client) {
        for (sock, (peer, far)) in std::mem::take(&mut self.wires) {
            let now = self.now;
            self.endpoint(peer).handle_closed(now, far);
            client.handle_closed(self.now, sock);
        }
        self.settle(client);
    }

    /// Lets seconds pass.
    pub fn pass(&mut self, client: &mut Client, secs: u32) {
        let end = self.now.mono + Duration::from_secs(secs.into());
        while self.now.mono < end {
            self.settle(client);
            self.sleep(client, end);
        }
    }

    /// Runs until nothing happens any more without time passing; the futures are polled, and must not end.
    pub fn idle<F: Future>(&mut self, client: &mut Client, futures: &mut [Pin<Box<F>>]) {
        for _ in 0..3 {
            for future in futures.iter_mut() {
                assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            self.settle(client);
        }
        self.pass(client, 1);
    }

    /// Drives everything until the future is done.
    pub fn run<T>(&mut self, client: &mut Client, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let limit = self.now.mono + Duration::from_secs(120);
        loop {
            if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return out;
            }
            if !self.settle(client) {
                assert!(self.now.mono < limit, "no answer in two minutes");
                self.sleep(client, limit + Duration::from_secs(1));
            }
        }
    }

    /// Time passes until the client wants to be woken.
    fn sleep(&mut self, client: &mut Client, until: Mono) {
        let wake = client.next_timeout().unwrap_or(until).min(until).max(self.now.mono + Duration::from_millis(1));
        self.now.mono = wake;
        self.now.wall = wall((wake.0 / 1_000_000_000) as u32);
        client.handle_timeout(self.now);
    }

    fn endpoint(&mut self, peer: Peer) -> &mut Endpoint {
        match peer {
            Peer::Mon(i) => &mut self.mons[i].ep,
            Peer::Osd(i) => &mut self.osds[i].ep,
        }
    }

    /// Carries bytes until there are none; false if nothing happened.
    fn settle(&mut self, client: &mut Client) -> bool {
        let mut any = false;
        loop {
            client.handle_calls(self.now);
            let mut more = self.client_acts(client);
            self.servers_think();
            more |= self.servers_act(client);
            if !more {
                return any;
            }
            any = true;
        }
    }

    fn client_acts(&mut self, client: &mut Client) -> bool {
        let mut any = false;
        while let Some(action) = client.poll_action() {
            any = true;
            match action {
                Action::Dial { sock, addr } => self.dial(client, sock, addr),
                Action::Transmit { sock, bufs } => {
                    if let Some((peer, far)) = self.wires.get(&sock).copied() {
                        let now = self.now;
                        self.endpoint(peer).handle_bytes(now, far, bufs.concat().into());
                    }
                }
                Action::Close { sock } => {
                    if let Some((peer, far)) = self.wires.remove(&sock) {
                        let now = self.now;
                        self.endpoint(peer).handle_closed(now, far);
                    }
                }
            }
        }
        any
    }

    fn dial(&mut self, client: &mut Client, sock: SockId, addr: SocketAddr) {
        let peer = match addr.port() {
            port @ 3300..=3301 if self.mons[usize::from(port - 3300)].alive => Peer::Mon(usize::from(port - 3300)),
            port @ 6800..=6802 => Peer::Osd(usize::from(port - 6800)),
            _ => return client.handle_closed(self.now, sock),
        };
        let far = SockId(SockId::ACCEPTED | sock.0);
        let (ours, now) = (SocketAddr::from(([127, 0, 0, 1], 40_000)), self.now);
        self.endpoint(peer).handle_accepted(now, far, ours, addr);
        self.wires.insert(sock, (peer, far));
        client.handle_connected(self.now, sock, ours);
    }

    fn servers_act(&mut self, client: &mut Client) -> bool {
        let mut any = false;
        let peers: Vec<Peer> = (0..2).map(Peer::Mon).chain((0..3).map(Peer::Osd)).collect();
        for peer in peers {
            while let Some(action) = self.endpoint(peer).poll_action() {
                any = true;
                let (Action::Transmit { sock: far, .. } | Action::Close { sock: far } | Action::Dial { sock: far, .. }) = action;
                let Some(sock) = self.wires.iter().find(|(_, (_, f))| *f == far).map(|(s, _)| *s) else { continue };
                match action {
                    Action::Transmit { bufs, .. } => client.handle_bytes(self.now, sock, bufs.concat().into()),
                    _ => {
                        self.wires.remove(&sock);
                        client.handle_closed(self.now, sock);
                    }
                }
            }
        }
        any
    }

    fn servers_think(&mut self) {
        let secrets = self.keys.secrets[&EntityKind::OSD].clone();
        for osd in &mut self.osds {
            osd.turn(self.now, &secrets, &mut self.rng);
        }
        for i in 0..self.mons.len() {
            while let Some(event) = self.mons[i].ep.poll_event() {
                self.mon_event(i, event);
            }
        }
    }

    fn mon_event(&mut self, i: usize, event: Event) {
        let policy = TicketPolicy::default();
        match event {
            Event::AuthRequest { conn, first: true, method, modes, payload, .. } => {
                self.next_id += 1;
                let id = self.next_id;
                match MonAuth::begin(&payload, || Some(id), &mut self.rng) {
                    Ok((auth, reply)) => {
                        self.mons[i].auth.insert(conn, auth);
                        self.mons[i].ep.auth_reply_more(conn, reply);
                    }
                    Err(errno) => self.mons[i].ep.auth_bad_method(conn, method, errno, vec![method], modes),
                }
            }
            Event::AuthRequest { conn, method, modes, payload, .. } => {
                let mon = &mut self.mons[i];
                let auth = mon.auth.get_mut(&conn).unwrap();
                match auth.proceed(&payload, modes[0], &self.keys, &policy, self.now.wall, &mut self.rng) {
                    Reply::Done(g) => {
                        let (key, secret) = (g.session_key, g.connection_secret);
                        mon.ep.auth_server_done(conn, g.global_id, modes[0], g.payload, key, secret);
                    }
                    Reply::Bad(errno) => mon.ep.auth_bad_method(conn, method, errno, vec![method], modes),
                    Reply::More(_) => panic!("cephx has two rounds"),
                }
            }
            Event::Ready { conn, .. } => drop(self.mons[i].subs.insert(conn, BTreeMap::new())),
            Event::Reset { conn, .. } => {
                self.mons[i].subs.remove(&conn);
                self.mons[i].auth.remove(&conn);
            }
            Event::Message { conn, msg } => self.mon_message(i, conn, &msg),
            _ => {}
        }
    }

    fn mon_message(&mut self, i: usize, conn: ConnId, raw: &RawMessage) {
        let features = features::SUPPORTED;
        let reply = match Message::decode(raw).unwrap() {
            Message::MMonSubscribe(m) => {
                for (what, item) in m.what {
                    self.mons[i].subs.get_mut(&conn).unwrap().insert(what, item);
                }
                return self.push(i, conn);
            }
            Message::MMonGetVersion(m) => {
                let version = self.epoch().0.into();
                MMonGetVersionReply { handle: m.handle, version, oldest: 1 }.to_raw(features)
            }
            Message::MMonCommand(m) => {
                assert_eq!(m.fsid, FSID);
                let status = "".into();
                MMonCommandAck { paxos: m.paxos, result: 0, status, cmd: m.cmd, data: m.data }.to_raw(features)
            }
            Message::MAuth(m) => {
                let policy = TicketPolicy::default();
                let auth = self.mons[i].auth.get_mut(&conn).unwrap();
                let done = auth.handle_message(&m.payload, &self.keys, &policy, self.now.wall, &mut self.rng);
                let (result, payload) = done.map_or_else(|e| (e.wire(), Bytes::new()), |p| (0, p));
                MAuthReply { protocol: 2, result, global_id: auth.global_id(), payload, text: "".into() }.to_raw(features)
            }
            other => panic!("the monitors do not know {}", other.name()),
        };
        self.mons[i].ep.send(self.now, conn, RawMessage { tid: raw.tid, ..reply });
    }

    fn push_maps(&mut self, i: usize) {
        let conns: Vec<ConnId> = self.mons[i].subs.keys().copied().collect();
        for conn in conns {
            self.push(i, conn);
        }
    }

    /// Gives a session what it subscribed to and does not have.
    fn push(&mut self, i: usize, conn: ConnId) {
        let newest = u64::from(self.epoch().0);
        let wanted = self.mons[i].subs[&conn].clone();
        for (what, item) in wanted {
            let (msg, version) = match what.as_str() {
                "monmap" if item.start <= 1 => (MMonMap { map: denc::to_bytes(&self.monmap, features::SUPPORTED) }.to_raw(features::SUPPORTED), 1),
                "config" if item.start == 0 => (MConfig::default().to_raw(features::SUPPORTED), 1),
                "mgrmap" if item.start == 0 => {
                    let map = MgrMap { epoch: Epoch(1), ..MgrMap::default() };
                    (MMgrMap { map: denc::to_bytes(&map, features::SUPPORTED) }.to_raw(features::SUPPORTED), 1)
                }
                "osdmap" if item.start <= newest => (self.maps_from(i, item.start), newest),
                _ => continue,
            };
            let subs = self.mons[i].subs.get_mut(&conn).unwrap();
            match item.onetime() {
                true => drop(subs.remove(&what)),
                false => drop(subs.insert(what, SubscribeItem { start: version + 1, ..item })),
            }
            self.mons[i].ep.send(self.now, conn, msg);
        }
    }

    fn maps_from(&mut self, i: usize, start: u64) -> RawMessage {
        let newest = self.epoch();
        let (mut incremental, mut full) = (BTreeMap::new(), BTreeMap::new());
        if start == 0 {
            self.mons[i].full_maps_given += 1;
            full.insert(newest, self.maps.published[&newest].1.clone());
        } else {
            for (epoch, (inc, _)) in self.maps.published.range(Epoch(start as u32)..) {
                incremental.insert(*epoch, inc.clone());
            }
        }
        let gap_removed_snaps = BTreeMap::new();
        MOsdMap { fsid: FSID, incremental, full, oldest: Epoch(1), newest, gap_removed_snaps }.to_raw(features::SUPPORTED)
    }
}

fn first_map() -> Maps {
    let mut map = OsdMap::new(FSID, wall(0));
    map.epoch = Epoch(1);
    map.set_max_osd(3);
    map.crush = Arc::new(crush::CrushMap::build_default(&[(0, "h", 100), (1, "h", 100), (2, "h", 100)], "osd").unwrap());
    for osd in 0..3 {
        map.osd_state[osd] = OsdMap::STATE_EXISTS | OsdMap::STATE_UP;
        map.osd_weight[osd] = OsdMap::WEIGHT_IN;
        map.client_addrs[osd] = addrs(6800 + osd as u16);
    }
    map.pools.insert(PoolId(1), PgPool::replicated(3, 8, 0));
    map.pool_name.insert(PoolId(1), "p".into());
    let full = map.publish();
    debug_assert!(map.is_up(OsdId(0)));
    Maps { newest: map, published: [(Epoch(1), (Bytes::new(), full))].into() }
}
