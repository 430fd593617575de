//! A monitor with an operator at its side: commands go in as a client's, answers come out.

use auth::{ChaCha8Rng, CryptoKey, EntityAuth, KeyKind, Keyring};
use bytes::Bytes;
use mon::{Effect, Env, Mon, Peer, SessionId};
use rand::SeedableRng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use store::mem::{MemDisk, MemKv};
use types::map::MonMap;
use types::msg::mon::{MMonSubscribe, PaxosHeader, SubscribeItem};
use types::msg::{MCommand, MMonCommand, Message};
use types::{AddrVec, EntityAddr, EntityKind, EntityName, Mono, Now, Utime, features};
use uuid::Uuid;

pub const ADMIN: SessionId = SessionId(1);

pub struct Lab {
    pub mon: Mon<MemKv>,
    pub disk: MemDisk,
    pub now: Now,
    pub fsid: Uuid,
    pub mail: VecDeque<(SessionId, u64, Message)>,
    /// Every effect as text, to compare runs.
    pub trace: Vec<String>,
    next: u64,
    /// What OSDs say of themselves when they boot: host, device class, bytes.
    pub osds: (&'static str, &'static str, u64),
}

pub struct Answer {
    pub result: i32,
    pub status: String,
    pub out: String,
}

pub fn addrs(port: u16, nonce: u32) -> AddrVec {
    AddrVec(vec![EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], port)), nonce)])
}

pub fn env(options: &[(&str, &str)]) -> Env {
    // All OSDs of these tests stand on one host.
    let options = [("osd_crush_chooseleaf_type", "0")].iter().chain(options).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Env { name: "a".into(), addrs: addrs(3300, 0), hostname: "h1".into(), options, metadata: BTreeMap::new(), boot: 7 }
}

pub fn entity(caps: &[(&str, &str)]) -> EntityAuth {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let key = CryptoKey::generate(KeyKind::Aes, Utime { sec: 1, nsec: 0 }, &mut rng);
    EntityAuth { key, caps: caps.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect() }
}

impl Lab {
    pub fn new(options: &[(&str, &str)]) -> Self {
        let disk = MemDisk::new(0);
        let fsid = Uuid::from_u128(0x1234);
        let wall = Utime { sec: 1_795_000_000, nsec: 0 };
        let mut monmap = MonMap::new(fsid, wall);
        monmap.add("a", addrs(3300, 0));
        let admin: EntityName = "client.admin".parse().unwrap();
        let entries = [(EntityName::new(EntityKind::MON, ""), entity(&[("mon", "allow *")])), (admin, entity(&[("mon", "allow *"), ("osd", "allow *")]))];
        let keyring = Keyring { entries: entries.into() };
        mon::mkfs(&mut disk.kv(), &monmap, &keyring).unwrap();
        Self::open(disk, fsid, options, wall)
    }

    fn open(disk: MemDisk, fsid: Uuid, options: &[(&str, &str)], wall: Utime) -> Self {
        let now = Now { mono: Mono(1), wall };
        let mon = Mon::open(env(options), disk.kv(), now, 5).unwrap();
        let mut lab = Lab { mon, disk, now, fsid, mail: VecDeque::new(), trace: Vec::new(), next: 1, osds: ("h1", "ssd", 10 << 30) };
        lab.settle();
        lab.join(ADMIN, "client.admin", "allow *");
        lab
    }

    /// A monitor on what somebody else has put on this disk.
    pub fn on(disk: MemDisk, fsid: Uuid, options: &[(&str, &str)]) -> Self {
        Self::open(disk, fsid, options, Utime { sec: 1_795_900_000, nsec: 0 })
    }

    /// The process is killed and started again.
    pub fn restart(self, options: &[(&str, &str)]) -> Self {
        let (disk, fsid, wall) = (self.disk, self.fsid, self.now.wall);
        drop(self.mon);
        Self::open(disk, fsid, options, wall)
    }

    /// A session of somebody who has proven who it is.
    pub fn join(&mut self, id: SessionId, name: &str, caps: &str) {
        let name: EntityName = name.parse().unwrap();
        let peer = Peer {
            kind: name.kind,
            name,
            global_id: 4000 + id.0,
            addrs: addrs(0, id.0 as u32),
            features: features::SUPPORTED,
            caps: caps.into(),
        };
        self.mon.handle_proven(self.now, id, peer);
    }

    pub fn settle(&mut self) {
        loop {
            let mut idle = true;
            while let Some(effect) = self.mon.poll_effect() {
                idle = false;
                self.trace.push(format!("{effect:?}"));
                match effect {
                    Effect::Send { session, tid, message } => self.mail.push_back((session, tid, message)),
                    Effect::Fatal { reason } => panic!("{reason}"),
                    _ => {}
                }
            }
            for (io, _) in self.disk.pending() {
                idle = false;
                let result = self.disk.complete(io);
                self.mon.handle_io(self.now, io, result);
            }
            if idle {
                return;
            }
        }
    }

    pub fn pass(&mut self, time: Duration) {
        let end = self.now.mono + time;
        while self.now.mono < end {
            let step = Duration::from_millis(25);
            self.now.mono = self.now.mono + step;
            self.now.wall = Utime::from_duration(self.now.wall.to_duration() + step);
            if self.mon.next_timeout() <= self.now.mono {
                self.mon.handle_timeout(self.now);
            }
            self.settle();
        }
    }

    pub fn say(&mut self, id: SessionId, message: impl Into<Message>) {
        self.next += 1;
        let mut raw = message.into().to_raw(features::SUPPORTED);
        raw.tid = self.next;
        self.mon.handle_message(self.now, id, raw);
        self.settle();
    }

    pub fn subscribe(&mut self, id: SessionId, what: &str, start: u64, flags: u8) {
        let what = [(what.to_owned(), SubscribeItem { start, flags })].into();
        self.say(id, MMonSubscribe { what, hostname: "h".into() });
    }

    pub fn raw_command(&mut self, id: SessionId, text: &str, input: &[u8]) -> Answer {
        self.mail.clear();
        let message = MMonCommand { paxos: PaxosHeader::default(), fsid: self.fsid, cmd: vec![text.into()], data: Bytes::copy_from_slice(input).into() };
        self.say(id, message);
        let found = self.mail.iter().find_map(|(s, _, m)| match m {
            Message::MMonCommandAck(ack) if *s == id => Some(Answer {
                result: ack.result,
                status: String::from_utf8_lossy(&ack.status).into_owned(),
                out: String::from_utf8_lossy(&ack.data.contiguous()).into_owned(),
            }),
            _ => None,
        });
        found.expect("an answer")
    }

    pub fn cmd(&mut self, command: Value) -> Answer {
        self.raw_command(ADMIN, &command.to_string(), b"")
    }

    /// A command that must succeed; its output.
    pub fn ok(&mut self, command: Value) -> Answer {
        let answer = self.cmd(command.clone());
        assert_eq!(answer.result, 0, "{command}: {}", answer.status);
        answer
    }

    /// A command's output as JSON.
    pub fn json(&mut self, mut command: Value) -> Value {
        command["format"] = json!("json");
        let answer = self.ok(command);
        serde_json::from_str(&answer.out).unwrap_or_else(|e| panic!("{e}: {}", answer.out))
    }

    pub fn tell(&mut self, command: Value) -> Answer {
        self.mail.clear();
        self.say(ADMIN, MCommand { fsid: self.fsid, cmd: vec![command.to_string()], data: Default::default() });
        let found = self.mail.iter().find_map(|(_, _, m)| match m {
            Message::MCommandReply(r) => Some(Answer {
                result: r.result,
                status: String::from_utf8_lossy(&r.status).into_owned(),
                out: String::from_utf8_lossy(&r.data.contiguous()).into_owned(),
            }),
            _ => None,
        });
        found.expect("an answer")
    }

    /// Makes an OSD and lets it boot from session 100 + its number.
    pub fn add_osd(&mut self, id: i32) -> SessionId {
        let uuid = Uuid::from_u128(0x5000 + id as u128);
        self.ok(json!({"prefix": "osd new", "uuid": uuid.to_string(), "id": id}));
        self.boot_osd(id, 1)
    }

    pub fn boot_osd(&mut self, id: i32, nonce: u32) -> SessionId {
        use types::msg::internal::OsdBoot;
        let session = SessionId(100 + id as u64);
        self.join(session, &format!("osd.{id}"), "allow profile osd");
        let port = 6800 + id as u16 * 4;
        let boot = OsdBoot {
            osd: types::OsdId(id),
            fsid: self.fsid,
            uuid: Uuid::from_u128(0x5000 + id as u128),
            public_addrs: addrs(port, nonce),
            cluster_addrs: addrs(port + 1, nonce),
            hb_back_addrs: addrs(port + 2, nonce),
            hb_front_addrs: addrs(port + 3, nonce),
            boot_epoch: types::Epoch(1),
            metadata: [("hostname".to_owned(), self.osds.0.to_owned())].into(),
            size_bytes: self.osds.2,
            device_class: self.osds.1.into(),
            crush_location: [("host".to_owned(), self.osds.0.to_owned()), ("root".to_owned(), "default".to_owned())].into(),
        };
        self.say(session, boot);
        self.pass(Duration::from_millis(100));
        session
    }
}
