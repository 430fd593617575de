//! The cluster's clients: what they ask for, wait for, and send again, as stock clients do.

use super::{Cluster, POOL};
use auth::OsdCaps;
use osd::{Peer, SessionId, SessionInfo};
use types::map::OsdMap;
use types::msg::osd::{MOsdBackoff, MOsdOp, MOsdOpReply, osd_flag};
use types::msg::{Message, OsdOp};
use types::*;

/// `pg_nls_response_t`.
#[derive(denc::Decode)]
#[denc(v = 1, compat = 1)]
struct Page {
    handle: HObject,
    /// Namespace, name, locator.
    entries: Vec<(denc::BString, denc::BString, denc::BString)>,
}

pub struct Pending {
    pub tid: u64,
    pub op: MOsdOp,
    /// The primary it was last sent to, and since when that has been up.
    sent_to: (OsdId, Epoch),
    /// What its PG's objects shared of their hashes then.
    bits: u32,
    /// Its client hears of no newer map.
    stale: bool,
    pub reply: Option<MOsdOpReply>,
}

impl Cluster {
    pub(super) fn at_client(&mut self, from: OsdId, session: SessionId, tid: u64, msg: Message) {
        match msg {
            Message::MOsdOpReply(m) => {
                if let Some(p) = self.pending.get_mut(&tid) {
                    p.reply.get_or_insert(m);
                }
            }
            Message::MOsdBackoff(m) if m.op == MOsdBackoff::BLOCK => {
                self.blocks += 1;
                let ack = MOsdBackoff { op: MOsdBackoff::ACK_BLOCK, ..m };
                self.net.entry((Peer::Session(session), from)).or_default().push_back((0, ack.into()));
            }
            Message::MOsdBackoff(m) if m.op == MOsdBackoff::UNBLOCK => {
                let held = |p: &&Pending| p.reply.is_none() && p.op.pgid == m.pgid && p.op.reqid.name.num as u64 - 100 == session.0;
                let again: Vec<u64> = self.pending.values().filter(held).map(|p| p.tid).collect();
                again.into_iter().for_each(|tid| self.send_op(tid));
            }
            Message::MWatchNotify(m) => self.notifications.push((session, m)),
            Message::MOsdMap(m) => self.maps_given.extend(m.full.keys().chain(m.incremental.keys()).map(|epoch| (session, *epoch))),
            _ => {}
        }
    }

    /// The PG of an object.
    pub fn pg_of(&self, name: &str) -> PgId {
        let raw = self.map.object_to_pg(&ObjectLocator::pool(POOL), name.as_bytes()).unwrap();
        self.map.raw_pg_to_pg(raw).unwrap()
    }

    /// Sends an operation; `step` until it is answered.
    pub fn submit(&mut self, client: u64, name: &str, flags: u32, ops: Vec<OsdOp>) -> u64 {
        let raw = self.map.object_to_pg(&ObjectLocator::pool(POOL), name.as_bytes()).unwrap();
        self.submit_to(raw, client, name, flags, ops)
    }

    fn submit_to(&mut self, raw: PgId, client: u64, name: &str, flags: u32, ops: Vec<OsdOp>) -> u64 {
        self.next_tid += 1;
        let tid = self.next_tid;
        let loc = ObjectLocator::pool(POOL);
        let pg = self.map.raw_pg_to_pg(raw).unwrap();
        let op = MOsdOp {
            pgid: ShardPgId::whole(pg),
            hash: raw.seed,
            epoch: self.map.epoch,
            flags: flags | osd_flag::ONDISK,
            reqid: ReqId { name: session(client).inst, tid, inc: 1 },
            client_inc: 1,
            mtime: self.now.wall,
            locator: loc,
            oid: name.into(),
            ops,
            snap: if flags & osd_flag::WRITE == 0 { self.at } else { Snap::HEAD },
            snap_seq: self.kept.0,
            snaps: self.kept.1.clone(),
            retry: -1,
            features: types::features::SUPPORTED,
        };
        self.pending.insert(tid, Pending { tid, op, sent_to: (OsdId::NONE, Epoch(0)), bits: 0, stale: false, reply: None });
        self.send_op(tid);
        tid
    }

    /// Reads an object whole, from an OSD that was the primary in that epoch, by a client that knows no newer map.
    pub fn read_stale(&mut self, osd: OsdId, epoch: Epoch, name: &str) -> u64 {
        let tid = self.submit(1, name, osd_flag::READ, vec![OsdOp::read(0, 0)]);
        self.net.iter_mut().filter(|((from, _), _)| matches!(from, Peer::Session(_))).for_each(|(_, q)| q.retain(|(t, _)| *t != tid));
        let p = self.pending.get_mut(&tid).unwrap();
        (p.stale, p.op.epoch) = (true, epoch);
        let op = p.op.clone();
        self.net.entry((Peer::Session(SessionId(1)), osd)).or_default().push_back((tid, op.into()));
        tid
    }

    /// Sends an operation that was answered once more, as a client does that never got the answer.
    pub fn send_again(&mut self, op: MOsdOp) -> MOsdOpReply {
        let tid = op.reqid.tid;
        self.pending.insert(tid, Pending { tid, op, sent_to: (OsdId::NONE, Epoch(0)), bits: 0, stale: false, reply: None });
        self.send_op(tid);
        self.wait(tid)
    }

    pub(super) fn send_op(&mut self, tid: u64) {
        let p = self.pending.get_mut(&tid).unwrap();
        let raw = PgId { pool: POOL, seed: p.op.hash };
        p.op.pgid = ShardPgId::whole(self.published_map.raw_pg_to_pg(raw).unwrap());
        p.bits = bits(&self.published_map, p.op.pgid.pg);
        p.op.epoch = self.published_map.epoch;
        p.op.retry += 1;
        let primary = self.published_map.pg_to_up_acting(p.op.pgid.pg).acting_primary;
        p.sent_to = (primary, self.published_map.info(primary).map(|i| i.up_from).unwrap_or_default());
        let (client, op) = (p.op.reqid.name.num as u64 - 100, p.op.clone());
        if primary.0 >= 0 && self.is_running(primary) {
            self.net.entry((Peer::Session(SessionId(client)), primary)).or_default().push_back((tid, op.into()));
        }
    }

    /// Sends an operation that was answered once more, as a client does that never heard the answer.
    pub fn repeat(&mut self, op: &MOsdOp) -> MOsdOpReply {
        let tid = op.reqid.tid;
        self.pending.insert(tid, Pending { tid, op: op.clone(), sent_to: (OsdId::NONE, Epoch(0)), bits: 0, stale: false, reply: None });
        self.send_op(tid);
        self.wait(tid)
    }

    /// Sends an operation that is still unanswered once more, and nobody knows why.
    pub fn stutter(&mut self, tid: u64) {
        self.send_op(tid);
    }

    /// Runs until an operation is answered.
    pub fn wait(&mut self, tid: u64) -> MOsdOpReply {
        for _ in 0..200_000 {
            if let Some(reply) = self.pending.get_mut(&tid).and_then(|p| p.reply.take()) {
                self.pending.remove(&tid);
                return reply;
            }
            self.step();
        }
        panic!("operation {tid} is never answered: {}", self.status());
    }

    pub fn call(&mut self, name: &str, flags: u32, ops: Vec<OsdOp>) -> MOsdOpReply {
        let tid = self.submit(0, name, flags, ops);
        self.wait(tid)
    }

    pub fn write(&mut self, name: &str, ops: Vec<OsdOp>) -> MOsdOpReply {
        self.call(name, osd_flag::WRITE, ops)
    }

    /// Appends to the objects of these numbers, one after the other.
    pub fn append_to(&mut self, numbers: std::ops::Range<usize>, text: &str) {
        for n in numbers {
            let append = OsdOp::append(text.as_bytes().to_vec().into());
            assert_eq!(self.write(&format!("o{n}"), vec![append]).result, 0);
        }
    }

    pub fn read(&mut self, name: &str) -> Vec<u8> {
        let reply = self.call(name, osd_flag::READ, vec![OsdOp::read(0, 0)]);
        match reply.result {
            -2 => Vec::new(),
            0 => reply.ops[0].outdata.contiguous().to_vec(),
            e => panic!("reading {name}: {e}"),
        }
    }

    /// Clients send again what has another primary now, or the same one in another life, and what was sent to a PG that is split:
    /// as stock clients do.
    pub(super) fn resend(&mut self) {
        let map = self.published_map.clone();
        let moved = |p: &&Pending| {
            let primary = map.pg_to_up_acting(p.op.pgid.pg).acting_primary;
            let split = bits(&map, p.op.pgid.pg) != p.bits;
            p.reply.is_none() && !p.stale && (split || p.sent_to != (primary, map.info(primary).map(|i| i.up_from).unwrap_or_default()))
        };
        let open: Vec<u64> = self.pending.values().filter(moved).map(|p| p.tid).collect();
        open.into_iter().for_each(|tid| self.send_op(tid));
    }

    /// The names of a PG's objects, as `rados ls` gets them.
    pub fn list(&mut self, pg: PgId) -> Vec<String> {
        let mut cursor = HObject::min();
        let mut names = Vec::new();
        loop {
            let mut op = OsdOp::from(types::msg::Op::Pgnls(types::msg::osd_op::Pgls { count: 7, start_epoch: 0 }));
            op.indata = denc::to_bytes(&cursor, 0).into();
            let tid = self.submit_to(pg, 0, "", osd_flag::READ | osd_flag::PGOP, vec![op]);
            let reply = self.wait(tid);
            assert!(reply.result >= 0, "{}", reply.result);
            let page: Page = denc::from_bytes(&reply.ops[0].outdata.contiguous()).unwrap();
            names.extend(page.entries.into_iter().map(|(_, name, _)| name.to_string()));
            if reply.result == 1 {
                return names;
            }
            assert!(page.handle > cursor);
            cursor = page.handle;
        }
    }
}

/// How many low bits of the hash a PG's objects share.
fn bits(map: &OsdMap, pg: PgId) -> u32 {
    let n = map.pools[&pg.pool].pg_num;
    (0..32).find(|bits| (0..n).filter(|seed| *seed % (1 << bits) == pg.seed % (1 << bits)).count() == 1).unwrap_or(32)
}

/// A client, as OSDs know it.
pub fn session(n: u64) -> SessionInfo {
    SessionInfo {
        name: EntityName::new(EntityKind::CLIENT, "admin"),
        inst: EntityInst { kind: EntityKind::CLIENT, num: 100 + n as i64 },
        addr: EntityAddr::msgr2(format!("127.0.0.1:{}", 10_000 + n).parse().unwrap(), n as u32 + 1),
        caps: OsdCaps::allow_all(),
    }
}
