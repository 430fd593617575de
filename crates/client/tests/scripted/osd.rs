//! An OSD that keeps objects in memory, and has moods.

use auth::ChaCha8Rng;
use auth::cephx::{RotatingSecrets, ServiceAuth, ServiceReply};
use bytes::Bytes;
use denc::BString;
use msgr::{Config, ConnId, Endpoint, Event};
use std::collections::BTreeMap;
use types::msg::osd_op::Watch;
use types::msg::{MOsdBackoff, MOsdOp, MOsdOpReply, Message, Op, OpResult, RawMessage, WireMessage};
use types::{AddrVec, EVersion, EntityKind, Epoch, Errno, HObject, Now, features};

/// What it does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Serve,
    /// Hears, and says nothing.
    Silent,
    /// Asks for patience.
    HoldBack,
    /// Lets nobody in.
    Refuse,
}

pub struct Osd {
    pub ep: Endpoint,
    pub mood: Mood,
    pub seen: Vec<MOsdOp>,
    /// How each of them came.
    came: Vec<(ConnId, u64)>,
    /// What the clients called themselves whose sessions it took.
    pub numbers: Vec<i64>,
    /// The global ids that their tickets gave them.
    pub global_ids: Vec<u64>,
    pub watch_ops: Vec<u8>,
    pub backoffs_acked: u32,
    pub refused: u32,
    held: Option<(ConnId, MOsdBackoff)>,
    auth: BTreeMap<ConnId, ServiceAuth>,
    objects: BTreeMap<BString, Vec<u8>>,
}

impl Osd {
    pub fn new(id: i64, addrs: AddrVec) -> Osd {
        Osd {
            ep: Endpoint::new(Config::new(EntityKind::OSD, id, addrs, features::SUPPORTED), id as u64 + 50),
            mood: Mood::Serve,
            seen: Vec::new(),
            came: Vec::new(),
            numbers: Vec::new(),
            global_ids: Vec::new(),
            watch_ops: Vec::new(),
            backoffs_acked: 0,
            refused: 0,
            held: None,
            auth: BTreeMap::new(),
            objects: BTreeMap::new(),
        }
    }

    pub fn turn(&mut self, now: Now, secrets: &RotatingSecrets, rng: &mut ChaCha8Rng) {
        while let Some(event) = self.ep.poll_event() {
            match event {
                Event::AuthRequest { conn, method, modes, payload, .. } => {
                    let auth = self.auth.entry(conn).or_insert_with(|| ServiceAuth::new(EntityKind::OSD));
                    let reply = match self.mood {
                        Mood::Refuse => ServiceReply::Bad(Errno::EACCES),
                        _ => auth.handle(&payload, modes[0], |id| secrets.get(id).cloned(), rng),
                    };
                    match reply {
                        ServiceReply::More(reply) => self.ep.auth_reply_more(conn, reply),
                        ServiceReply::Done(s) => {
                            let (key, secret) = (s.session_key, s.connection_secret);
                            self.ep.auth_server_done(conn, s.global_id, modes[0], s.payload, key, secret);
                        }
                        ServiceReply::Bad(errno) => {
                            self.refused += 1;
                            self.auth.remove(&conn);
                            self.ep.auth_bad_method(conn, method, errno, vec![method], modes);
                        }
                    }
                }
                Event::Ready { peer, .. } => {
                    self.numbers.push(peer.num);
                    self.global_ids.push(peer.global_id);
                }
                Event::Message { conn, msg } => self.hear(now, conn, &msg),
                _ => {}
            }
        }
    }

    /// Lifts the backoff.
    pub fn lift(&mut self, now: Now) {
        let (conn, block) = self.held.take().unwrap();
        let lift = MOsdBackoff { op: MOsdBackoff::UNBLOCK, ..block };
        self.ep.send(now, conn, lift.to_raw(features::SUPPORTED));
    }

    /// Serves the request that it saw as this one.
    pub fn answer(&mut self, now: Now, seen: usize) {
        let (op, (conn, tid)) = (self.seen[seen].clone(), self.came[seen]);
        let reply = self.serve(&op);
        self.ep.send(now, conn, RawMessage { tid, ..reply.to_raw(features::SUPPORTED) });
    }

    fn hear(&mut self, now: Now, conn: ConnId, raw: &RawMessage) {
        match Message::decode(raw).unwrap() {
            Message::MOsdOp(op) => {
                self.seen.push(op.clone());
                self.came.push((conn, raw.tid));
                match self.mood {
                    Mood::Silent | Mood::Refuse => {}
                    Mood::Serve => self.answer(now, self.seen.len() - 1),
                    Mood::HoldBack => {
                        let (begin, end) = (HObject::min(), HObject::max());
                        let block =
                            MOsdBackoff { pgid: op.pgid, epoch: Epoch(1), op: MOsdBackoff::BLOCK, id: 1, begin, end };
                        self.ep.send(now, conn, block.to_raw(features::SUPPORTED));
                        self.held = Some((conn, block));
                    }
                }
            }
            Message::MOsdBackoff(m) => self.backoffs_acked += u32::from(m.op == MOsdBackoff::ACK_BLOCK),
            _ => {}
        }
    }

    fn serve(&mut self, m: &MOsdOp) -> MOsdOpReply {
        let mut result = 0;
        let mut ops = Vec::new();
        for op in &m.ops {
            let mut out = Bytes::new();
            match op.op {
                Op::WriteFull(_) => drop(self.objects.insert(m.oid.clone(), op.input().to_vec())),
                Op::Append(_) => self.objects.entry(m.oid.clone()).or_default().extend_from_slice(&op.input()),
                Op::Read(_) => match self.objects.get(&m.oid) {
                    Some(data) => out = data.clone().into(),
                    None => result = Errno::ENOENT.wire(),
                },
                Op::Watch(Watch { op, .. }) => self.watch_ops.push(op),
                _ => result = Errno::EOPNOTSUPP.wire(),
            }
            ops.push(OpResult { op: op.op, flags: op.flags, rval: result, outdata: out.into() });
        }
        MOsdOpReply {
            oid: m.oid.clone(),
            pgid: m.pgid.pg,
            flags: m.flags,
            result,
            bad_replay_version: EVersion::default(),
            epoch: m.epoch,
            ops,
            retry: m.retry,
            replay_version: EVersion::default(),
            user_version: 1,
            redirect: None,
        }
    }
}
