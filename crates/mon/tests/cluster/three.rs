//! Three monitors over a pretend network: sessions between them are proven as the real ones are.

use crate::lab::{addrs, env};
use auth::cephx::CephxClient;
use auth::{ChaCha8Rng, CryptoKey, EntityAuth, KeyKind, Keyring, method, mode};
use bytes::Bytes;
use mon::{Effect, Env, Mon, SessionId};
use rand::SeedableRng;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;
use store::Kv;
use store::mem::{MemDisk, MemKv};
use types::map::MonMap;
use types::msg::internal_mon::{PeerAnswer, PeerSays};
use types::msg::mon::PaxosHeader;
use types::msg::{MMonCommand, MMonCommandAck, RawMessage, WireMessage};
use types::{AddrVec, EntityKind, EntityName, Mono, Now, Utime, features};
use uuid::Uuid;

const NAMES: [&str; 3] = ["a", "b", "c"];
const FSID: Uuid = Uuid::from_u128(0x1234);
const ADMIN: &str = "client.admin";

enum Wire {
    Says { from: u64, id: u64, to: u64, says: PeerSays },
    Answer { from: u64, to: u64, answer: PeerAnswer },
}

struct Member {
    disk: MemDisk,
    mon: Option<Mon<MemKv>>,
    life: u64,
    /// What clients were sent, and which of them were sent away.
    mail: Vec<(SessionId, RawMessage)>,
    closed: BTreeSet<SessionId>,
    /// Steps of authentication: what the acceptor said.
    auth: VecDeque<Effect>,
}

pub struct Trio {
    members: BTreeMap<u64, Member>,
    wires: VecDeque<Wire>,
    /// Nobody hears these, and they hear nobody.
    pub parted: BTreeSet<u64>,
    /// Removed, and gone.
    pub left: BTreeSet<u64>,
    /// Seconds a member's clock is ahead.
    pub ahead: BTreeMap<u64, u32>,
    /// Bytes of the longest thing one said to another.
    pub longest: usize,
    /// What `mkfs` is given.
    pub map: MonMap,
    keyring: Keyring,
    now: Now,
    rng: ChaCha8Rng,
    next: u64,
}

fn key(n: u64) -> CryptoKey {
    CryptoKey::generate(KeyKind::Aes, Utime { sec: 1, nsec: 0 }, &mut ChaCha8Rng::seed_from_u64(n))
}

fn keyring() -> Keyring {
    let entity = |n, caps: &[(&str, &str)]| EntityAuth { key: key(n), caps: caps.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect() };
    let mon = (EntityName::new(EntityKind::MON, ""), entity(1, &[("mon", "allow *")]));
    Keyring { entries: [mon, (ADMIN.parse().unwrap(), entity(2, &[("mon", "allow *")]))].into() }
}

fn addrs_of(member: u64) -> AddrVec {
    addrs(3299 + member as u16, 0)
}

fn name_of(member: u64) -> String {
    char::from(b'a' + member as u8 - 1).to_string()
}

fn member_of(name: &str) -> u64 {
    u64::from(name.as_bytes()[0] - b'a') + 1
}

/// The session on which member `from` speaks to another.
fn link_of(from: u64) -> SessionId {
    SessionId(1000 + from)
}

impl Trio {
    fn new() -> Self {
        Self::of(3)
    }

    /// So many monitors that found a cluster.
    pub fn of(count: u64) -> Self {
        let wall = Utime { sec: 1_795_000_000, nsec: 0 };
        let mut map = MonMap::new(FSID, wall);
        (1..=count).for_each(|id| map.add(&name_of(id), addrs_of(id)));
        let now = Now { mono: Mono(1), wall };
        let rng = ChaCha8Rng::seed_from_u64(9);
        let (members, parted, left) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let mut trio = Trio { members, wires: VecDeque::new(), parted, left, longest: 0, ahead: BTreeMap::new(), keyring: keyring(), now, rng, next: 1, map };
        (1..=count).for_each(|id| trio.format(id));
        (1..=count).for_each(|id| trio.start(id));
        trio.pass(Duration::from_secs(1));
        trio
    }

    /// Gives a monitor an empty disk, with the first map. Each `mkfs` makes the key of the manager beside it.
    pub fn format(&mut self, id: u64) {
        let disk = MemDisk::new(0);
        let mut keyring = keyring();
        let mgr = EntityAuth { key: key(9 + id), caps: [("mon".into(), "allow profile mgr".into())].into() };
        keyring.entries.insert(EntityName::new(EntityKind::MGR, name_of(id)), mgr);
        mon::mkfs(&mut disk.kv(), &self.map, &keyring).unwrap();
        let member = Member { disk, mon: None, life: 0, mail: Vec::new(), closed: BTreeSet::new(), auth: VecDeque::new() };
        self.members.insert(id, member);
    }

    fn all(&self) -> Vec<u64> {
        self.members.keys().copied().collect()
    }

    pub fn mon(&mut self, id: u64) -> &mut Mon<MemKv> {
        self.members.get_mut(&id).unwrap().mon.as_mut().expect("it runs")
    }

    fn runs(&self, id: u64) -> bool {
        self.members[&id].mon.is_some()
    }

    fn hear_each_other(&self, a: u64, b: u64) -> bool {
        self.runs(a) && self.runs(b) && !self.parted.contains(&a) && !self.parted.contains(&b)
    }

    pub fn start(&mut self, id: u64) {
        self.try_start(id).unwrap();
    }

    pub fn try_start(&mut self, id: u64) -> Result<(), mon::OpenError> {
        let now = self.now;
        let member = self.members.get_mut(&id).unwrap();
        member.life += 1;
        let env = Env { name: name_of(id), addrs: addrs_of(id), boot: id * 100 + member.life, ..env(&[]) };
        member.mon = Some(Mon::open(env, member.disk.kv(), now, id * 31 + member.life)?);
        self.left.remove(&id);
        self.settle();
        for other in self.all().into_iter().filter(|o| *o != id) {
            self.connect(id, other);
            self.connect(other, id);
        }
        Ok(())
    }

    /// Its process is killed, and everybody's sockets to it are reset. With the power gone nobody hears anything.
    pub fn kill(&mut self, id: u64, power: bool) {
        let member = self.members.get_mut(&id).unwrap();
        member.mon = None;
        member.disk.crash(&mut self.rng);
        if !power {
            self.all().into_iter().filter(|o| *o != id).for_each(|other| self.break_links(other, id));
        }
    }

    fn break_links(&mut self, at: u64, to: u64) {
        let now = self.now;
        if self.runs(at) {
            self.mon(at).handle_link(now, &name_of(to), false);
            self.mon(at).handle_reset(link_of(to));
        }
        self.settle();
    }

    /// The network is whole again: what hung on it is reset and made anew.
    pub fn heal(&mut self) {
        self.parted.clear();
        let all = self.all();
        let pairs: Vec<(u64, u64)> = all.iter().flat_map(|a| all.iter().map(|b| (*a, *b))).filter(|(a, b)| a != b).collect();
        pairs.iter().for_each(|(a, b)| self.break_links(*a, *b));
        pairs.iter().for_each(|(a, b)| self.connect(*a, *b));
    }

    fn connect(&mut self, from: u64, to: u64) {
        let mon = EntityName::new(EntityKind::MON, "");
        if self.hear_each_other(from, to) && self.log_in(to, link_of(from), &mon, key(1), true) {
            let now = self.now;
            self.mon(to).handle_ready(now, link_of(from), EntityKind::MON, addrs_of(from), features::SUPPORTED);
            self.mon(from).handle_link(now, &name_of(to), true);
            self.settle();
        }
    }

    /// Goes through authentication at a member; false if it is refused.
    fn log_in(&mut self, at: u64, session: SessionId, name: &EntityName, key: CryptoKey, as_mon: bool) -> bool {
        let mut cephx = CephxClient::new(name.clone(), key, &[EntityKind::MON]);
        let mut payload = cephx.begin();
        for first in [true, false] {
            let now = self.now;
            self.members.get_mut(&at).unwrap().auth.clear();
            match as_mon {
                true => self.mon(at).handle_peer_auth(now, session, first, method::CEPHX, &[mode::SECURE], &payload),
                false => self.mon(at).handle_auth(now, session, first, method::CEPHX, &[mode::SECURE], payload.clone()),
            }
            self.settle();
            match self.members.get_mut(&at).unwrap().auth.pop_front() {
                Some(Effect::AuthMore { payload: more, .. }) => payload = cephx.handle_more(&more, &mut self.rng).unwrap(),
                Some(Effect::AuthDone { granted, .. }) => {
                    let keys = cephx.handle_done(now.mono, granted.global_id, &granted.payload).unwrap();
                    assert_eq!((keys.session_key, keys.connection_secret), (granted.session_key, granted.connection_secret));
                    return true;
                }
                _ => return false,
            }
        }
        false
    }

    /// A client with the administrator's key at a member.
    pub fn client(&mut self, at: u64) -> SessionId {
        self.next += 1;
        let session = SessionId(self.next);
        let name: EntityName = ADMIN.parse().unwrap();
        let key = self.keyring.key(&name).unwrap().clone();
        assert!(self.log_in(at, session, &name, key, false), "the administrator is let in at member {at}");
        let (now, from) = (self.now, addrs(0, self.next as u32));
        self.mon(at).handle_ready(now, session, EntityKind::CLIENT, from, features::SUPPORTED);
        self.settle();
        session
    }

    fn settle(&mut self) {
        loop {
            let mut idle = true;
            let now = self.now;
            for (&id, member) in &mut self.members {
                let Some(mon) = &mut member.mon else { continue };
                while let Some(effect) = mon.poll_effect() {
                    idle = false;
                    match effect {
                        Effect::Peer { to, says } => {
                            self.longest = self.longest.max(denc::to_bytes(&says, 0).len());
                            self.wires.push_back(Wire::Says { from: id, id: mon.id(), to: member_of(&to), says });
                        }
                        Effect::Peers { .. } => {}
                        Effect::Leave => {
                            self.left.insert(id);
                        }
                        Effect::PeerAnswer { link, answer } => {
                            self.wires.push_back(Wire::Answer { from: id, to: link.0 - 1000, answer });
                        }
                        Effect::Send { session, tid, message } => {
                            member.mail.push((session, RawMessage { tid, ..message.to_raw(features::SUPPORTED) }));
                        }
                        Effect::Pass { session, message } => member.mail.push((session, message)),
                        Effect::Close { session } => {
                            member.closed.insert(session);
                        }
                        Effect::Fatal { reason } => panic!("{reason}"),
                        step => member.auth.push_back(step),
                    }
                }
                for (io, _) in member.disk.pending() {
                    idle = false;
                    let result = member.disk.complete(io);
                    mon.handle_io(now, io, result);
                }
            }
            for id in self.left.clone() {
                if self.members.get_mut(&id).and_then(|m| m.mon.take()).is_some() {
                    self.all().into_iter().filter(|o| *o != id).for_each(|other| self.break_links(other, id));
                }
            }
            if let Some(wire) = self.wires.pop_front() {
                idle = false;
                self.deliver(wire);
            }
            if idle {
                return;
            }
        }
    }

    fn now_at(&self, member: u64) -> Now {
        let ahead = self.ahead.get(&member).copied().unwrap_or(0);
        Now { wall: Utime { sec: self.now.wall.sec.wrapping_add(ahead), ..self.now.wall }, ..self.now }
    }

    fn deliver(&mut self, wire: Wire) {
        let (Wire::Says { to, .. } | Wire::Answer { to, .. }) = &wire;
        let now = self.now_at(*to);
        match wire {
            Wire::Says { from, id, to, says } if self.hear_each_other(from, to) => self.mon(to).handle_peer(now, link_of(from), id, says),
            Wire::Answer { from, to, answer } if self.hear_each_other(from, to) => self.mon(to).handle_peer_answer(now, &name_of(from), answer),
            _ => {}
        }
    }

    pub fn pass(&mut self, time: Duration) {
        let end = self.now.mono + time;
        while self.now.mono < end {
            let step = Duration::from_millis(5);
            self.now.mono = self.now.mono + step;
            self.now.wall = Utime::from_duration(self.now.wall.to_duration() + step);
            let all: Vec<u64> = self.members.keys().copied().collect();
            for id in all {
                let now = self.now_at(id);
                let mon = self.members.get_mut(&id).and_then(|m| m.mon.as_mut());
                if let Some(mon) = mon.filter(|m| m.next_timeout() <= now.mono) {
                    mon.handle_timeout(now);
                }
            }
            self.settle();
        }
    }

    pub fn leaders(&self) -> Vec<u64> {
        self.members.iter().filter(|(_, m)| m.mon.as_ref().is_some_and(Mon::is_serving)).map(|(id, _)| *id).collect()
    }

    pub fn leader(&self) -> u64 {
        let leaders = self.leaders();
        assert_eq!(leaders.len(), 1, "one leads: {leaders:?}");
        leaders[0]
    }

    /// How long it takes until one of `among` leads.
    pub fn until_led(&mut self, among: &[u64]) -> Duration {
        let begin = self.now.mono;
        while !self.leaders().iter().any(|id| among.contains(id)) {
            self.pass(Duration::from_millis(5));
            assert!(self.now.mono - begin < Duration::from_secs(30), "nobody leads");
        }
        self.now.mono - begin
    }

    pub fn ask(&mut self, at: u64, session: SessionId, command: serde_json::Value) {
        let (cmd, now) = (vec![command.to_string()], self.now);
        let message = MMonCommand { paxos: PaxosHeader::default(), fsid: FSID, cmd, data: Default::default() };
        self.members.get_mut(&at).unwrap().mail.retain(|(s, _)| *s != session);
        self.mon(at).handle_message(now, session, message.to_raw(features::SUPPORTED));
        self.settle();
    }

    pub fn answer(&self, at: u64, session: SessionId) -> Option<(i32, String)> {
        let mut mail = self.members[&at].mail.iter();
        let raw = &mail.find(|(s, m)| *s == session && m.kind == MMonCommandAck::KIND)?.1;
        let ack = MMonCommandAck::from_raw(raw).unwrap();
        Some((ack.result, String::from_utf8_lossy(&ack.data.contiguous()).into_owned()))
    }

    /// A command at a member, on a new session: what it prints.
    pub fn run(&mut self, at: u64, command: serde_json::Value) -> String {
        let session = self.client(at);
        self.ask(at, session, command.clone());
        let (result, out) = self.answer(at, session).unwrap_or_else(|| panic!("{command} is answered at member {at}"));
        assert_eq!(result, 0, "{command}");
        out
    }

    pub fn set(&mut self, at: u64, value: &str) {
        self.run(at, json!({"prefix": "config-key set", "key": "k", "val": value}));
    }

    pub fn get(&mut self, at: u64) -> String {
        self.run(at, json!({"prefix": "config-key get", "key": "k"}))
    }

    /// Everything replicated that a member has applied.
    pub fn applied(&self, id: u64) -> Vec<(Bytes, Bytes)> {
        self.members[&id].disk.kv().scan(Bound::Included(b"m"), Bound::Excluded(b"n"), usize::MAX).unwrap()
    }
}

fn others(id: u64) -> [u64; 2] {
    [id % 3 + 1, (id + 1) % 3 + 1]
}

#[test]
fn each_monitor_tells_of_its_own_room_and_the_leader_of_all() {
    let mut trio = Trio::new();
    let leader = trio.leader();
    let look = |trio: &mut Trio, percents: [u8; 3]| {
        for (id, percent) in (1..=3).zip(percents) {
            if trio.runs(id) {
                trio.mon(id).handle_room(percent, 1 << 20);
            }
        }
        trio.pass(Duration::from_secs(1));
    };
    let complaints = |trio: &mut Trio, at: u64| {
        let health = trio.run(at, json!({"prefix": "health", "detail": "detail"}));
        health.lines().filter(|line| line.contains("MON_DISK") || line.contains("% avail")).map(|l| l.trim().to_owned()).collect::<Vec<_>>()
    };
    look(&mut trio, [80, 80, 80]);
    assert_eq!(complaints(&mut trio, leader), Vec::<String>::new());
    look(&mut trio, [20, 4, 10]);
    let told = [
        "[ERR] MON_DISK_CRIT: mon b is very low on available space",
        "mon.b has 4% avail",
        "[WRN] MON_DISK_LOW: mons a,c are low on available space",
        "mon.a has 20% avail",
        "mon.c has 10% avail",
    ];
    assert_eq!(complaints(&mut trio, leader), told);
    // Of one that is away nothing is known.
    trio.kill(leader, false);
    trio.until_led(&others(leader));
    look(&mut trio, [20, 4, 10]);
    let now = trio.leader();
    let name = format!("mon.{} has", name_of(leader));
    let left = complaints(&mut trio, now);
    assert!(!left.iter().any(|line| line.starts_with(&name)) && left.len() < told.len(), "{left:?}");
    assert_eq!(left.iter().filter(|line| line.starts_with("mon.")).count(), 2, "{left:?}");
}

#[test]
fn every_member_answers_alike_and_keeps_what_was_decided() {
    let mut trio = Trio::new();
    let leader = trio.leader();
    for at in 1..=3 {
        trio.set(at, &at.to_string());
        for reader in 1..=3 {
            assert_eq!(trio.get(reader), at.to_string(), "set at {at}, read at {reader}");
        }
    }
    let status: serde_json::Value = serde_json::from_str(&trio.run(others(leader)[0], json!({"prefix": "quorum_status"}))).unwrap();
    assert_eq!((&status["quorum_names"], &status["quorum_leader_name"]), (&json!(["a", "b", "c"]), &json!(NAMES[leader as usize - 1])));
    let keys = trio.run(1, json!({"prefix": "auth ls"}));
    assert!(["mgr.a", "mgr.b", "mgr.c"].iter().all(|mgr| keys.contains(mgr)), "managers of all members are let in: {keys}");
    let metadata = trio.run(1, json!({"prefix": "mon metadata", "format": "json"}));
    assert!(["\"a\"", "\"b\"", "\"c\""].iter().all(|name| metadata.contains(name)), "{metadata}");
    trio.pass(Duration::from_millis(500));
    assert!(trio.applied(1) == trio.applied(2) && trio.applied(2) == trio.applied(3));
}

#[test]
fn a_leader_that_is_cut_off_answers_nothing_old() {
    let mut trio = Trio::new();
    let old = trio.leader();
    trio.set(old, "before");
    let (reader, writer, late) = (trio.client(old), trio.client(old), trio.client(old));
    trio.parted.insert(old);
    // It still believes that it leads.
    assert_eq!(trio.leaders(), [old]);
    trio.ask(old, reader, json!({"prefix": "config-key get", "key": "k"}));
    assert!(trio.answer(old, reader).is_none(), "it cannot know whether another one has changed it");
    trio.ask(old, writer, json!({"prefix": "config-key set", "key": "k", "val": "lost"}));
    assert!(trio.answer(old, writer).is_none());
    trio.until_led(&others(old));
    trio.set(others(old)[0], "after");
    if trio.leaders().contains(&old) {
        trio.ask(old, late, json!({"prefix": "config-key get", "key": "k"}));
    }
    trio.pass(Duration::from_secs(4));
    assert!([reader, writer, late].iter().all(|s| trio.answer(old, *s).is_none()), "nothing is answered in the minority");
    assert!([reader, writer, late].iter().all(|s| trio.members[&old].closed.contains(s)), "they are sent away to others");
    trio.heal();
    trio.pass(Duration::from_secs(2));
    assert_eq!(trio.get(old), "after");
    assert!((1..=3).all(|id| trio.get(id) == "after"), "what was not acknowledged is gone");
}

#[test]
fn a_dead_leader_is_followed_by_another_at_once() {
    let mut trio = Trio::new();
    for round in 0..6 {
        let old = trio.leader();
        let client = trio.client(others(old)[0]);
        trio.set(old, &round.to_string());
        trio.kill(old, false);
        assert!(trio.members[&others(old)[0]].closed.contains(&client), "clients of others come again");
        let took = trio.until_led(&others(old));
        assert!(took <= Duration::from_millis(200), "{took:?}");
        assert_eq!(trio.get(others(old)[1]), round.to_string());
        let health = trio.run(others(old)[0], json!({"prefix": "health", "detail": "detail"}));
        let left: Vec<&str> = NAMES.iter().copied().filter(|n| *n != NAMES[old as usize - 1]).collect();
        let name = NAMES[old as usize - 1];
        let text = format!("[WRN] MON_DOWN: 1/3 mons down, quorum {}\n    mon.{name} (rank {}) addr v2:127.0.0.1:{}/0 is down (out of quorum)\n", left.join(","), old - 1, 3299 + old);
        assert!(health.contains(&text), "{health}");
        trio.start(old);
        trio.pass(Duration::from_secs(1));
        assert!(!trio.run(old, json!({"prefix": "health"})).contains("MON_DOWN"));
    }
}

#[test]
fn a_leader_whose_power_is_cut_is_missed_within_two_seconds() {
    let mut trio = Trio::new();
    for _ in 0..5 {
        let old = trio.leader();
        trio.kill(old, true);
        let took = trio.until_led(&others(old));
        assert!(took <= Duration::from_secs(2), "{took:?}");
        trio.start(old);
        trio.heal();
        trio.pass(Duration::from_secs(2));
    }
}

#[test]
fn what_was_answered_survives_the_death_of_all() {
    let mut trio = Trio::new();
    trio.set(2, "kept");
    let before = trio.run(1, json!({"prefix": "auth ls"}));
    (1..=3).for_each(|id| trio.kill(id, true));
    trio.start(3);
    trio.start(1);
    trio.pass(Duration::from_secs(2));
    assert_eq!(trio.get(3), "kept");
    trio.start(2);
    trio.pass(Duration::from_secs(2));
    assert_eq!((trio.get(2), trio.run(2, json!({"prefix": "auth ls"}))), ("kept".into(), before));
}

#[test]
fn a_minority_lets_nobody_in() {
    let mut trio = Trio::new();
    let alone = others(trio.leader())[0];
    (1..=3).filter(|id| *id != alone).for_each(|id| trio.kill(id, false));
    trio.pass(Duration::from_secs(3));
    let name: EntityName = ADMIN.parse().unwrap();
    assert!(!trio.log_in(alone, SessionId(77), &name, key(2), false));
    assert!(trio.members[&alone].auth.is_empty(), "who comes waits");
    // It is let in when there is a majority again.
    trio.start(others(alone)[0]);
    trio.pass(Duration::from_secs(3));
    assert!(matches!(trio.members[&alone].auth.front(), Some(Effect::AuthMore { session: SessionId(77), .. })));
}

#[test]
fn a_member_that_was_away_for_long_gets_everything_at_once() {
    let mut trio = Trio::new();
    let away = others(trio.leader())[0];
    trio.kill(away, false);
    let session = trio.client(trio.leader());
    for n in 0..1200 {
        let at = trio.leader();
        trio.ask(at, session, json!({"prefix": "config-key set", "key": format!("k{}", n % 40), "val": n.to_string()}));
        assert_eq!(trio.answer(at, session).map(|a| a.0), Some(0));
    }
    trio.start(away);
    trio.pass(Duration::from_secs(3));
    let leader = trio.leader();
    assert!(trio.applied(away) == trio.applied(leader), "the log was cut: only a snapshot brings this");
    assert_eq!(trio.run(away, json!({"prefix": "config-key get", "key": "k39"})), "1199");
}

#[test]
fn only_who_knows_the_monitors_key_speaks_as_one() {
    let mut trio = Trio::new();
    let leader = trio.leader();
    let mon = EntityName::new(EntityKind::MON, "");
    assert!(!trio.log_in(leader, SessionId(2000), &mon, key(99), true), "another key is refused");
    let admin: EntityName = ADMIN.parse().unwrap();
    assert!(!trio.log_in(leader, SessionId(2001), &admin, key(2), true), "the administrator is no monitor");
    // A client that says what monitors say is not heard.
    let (session, now) = (trio.client(leader), trio.now);
    let keyring = "[mgr.evil]\n\tkey = AQCj2YpRiAe6CxAA7/ETt7Hcl9IyxyYciVs47w==\n".to_owned();
    trio.mon(leader).handle_peer(now, session, 1, PeerSays::Joined { name: "a".into(), metadata: BTreeMap::new(), keyring });
    trio.settle();
    assert!(!trio.run(leader, json!({"prefix": "auth ls"})).contains("mgr.evil"));
}

#[test]
fn a_member_tells_of_itself_without_the_others() {
    let mut trio = Trio::new();
    let alone = others(trio.leader())[0];
    let ask = |trio: &mut Trio| {
        let now = trio.now;
        let reply = trio.mon(alone).handle_admin(now, br#"{"prefix": "mon_status"}"#);
        serde_json::from_slice::<serde_json::Value>(&reply).unwrap()
    };
    let with = ask(&mut trio);
    assert_eq!((&with["state"], &with["quorum"]), (&json!("peon"), &json!([0, 1, 2])));
    (1..=3).filter(|id| *id != alone).for_each(|id| trio.kill(id, false));
    trio.pass(Duration::from_secs(3));
    let without = ask(&mut trio);
    assert_eq!((&without["state"], &without["quorum"]), (&json!("electing"), &json!([])));
}
