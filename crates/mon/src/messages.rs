//! What clients and daemons say, and who takes it.

use crate::cmd::Cmd;
use crate::commands::{self, Ctx};
use crate::mon::{Effect, Mon};
use crate::publish;
use crate::reply::{Outcome, Reply};
use crate::services::log::AUDIT;
use crate::session::SessionId;
use crate::txn::Txn;
use admin::socket::{self, Request};
use bytes::Bytes;
use denc::BString;
use store::Kv;
use types::msg::mon::{MMonGetVersion, MMonGetVersionReply, MMonMap, MMonSubscribe};
use types::msg::pool::{MGetPoolStats, MGetPoolStatsReply, MStatfs, MStatfsReply};
use types::msg::{LogPrio, MCommand, MCommandReply, MLog, MLogAck, MMonCommand, MMonCommandAck, Message, RawMessage};
use types::{EntityKind, Errno, Now, OsdId};

impl<K: Kv> Mon<K> {
    /// Reads a message and gives it to whoever it is for. What cannot be read, or comes from someone who may not say
    /// it, is dropped and logged; the session goes on.
    pub(crate) fn dispatch(&mut self, now: Now, session: SessionId, raw: &RawMessage) {
        if !self.sessions.contains_key(&session) {
            return;
        }
        let message = match Message::decode(raw) {
            Ok(message) => message,
            Err(e) => return tracing::warn!("session {}: {e}", session.0),
        };
        match message {
            Message::MMonGetMap(_) => self.send_monmap(session, raw.tid),
            Message::MMonSubscribe(m) => self.handle_subscribe(session, m),
            Message::MMonGetVersion(m) => self.handle_get_version(session, &m),
            Message::MMonCommand(m) => self.handle_command(now, session, raw, m),
            Message::MCommand(m) => self.handle_tell(now, session, raw, m),
            Message::MPoolOp(m) => self.handle_pool_op(now, session, raw, &m),
            Message::MStatfs(m) => self.handle_statfs(session, raw, &m),
            Message::MGetPoolStats(m) => self.handle_pool_stats(session, raw, &m),
            Message::MAuth(m) => self.handle_auth_message(now, session, raw, &m),
            Message::MLog(m) => self.handle_log(session, raw, m),
            Message::MPing(_) => {}
            other => self.handle_daemon(now, session, raw, other),
        }
    }

    /// Messages that only daemons of ours send.
    fn handle_daemon(&mut self, now: Now, session: SessionId, raw: &RawMessage, message: Message) {
        let Some(peer) = self.sessions.get(&session) else { return };
        let (is_osd, is_mgr) = (peer.peer.name.kind == EntityKind::OSD, peer.peer.name.kind == EntityKind::MGR);
        let osd_ok = is_osd && peer.may("osd", "rwx");
        let mgr_ok = is_mgr && peer.may("mgr", "rwx");
        // Nobody speaks for another.
        let own = |osd: OsdId| osd_ok && peer.peer.name.id == osd.to_string();
        match message {
            Message::OsdBoot(m) if own(m.osd) => self.handle_osd_boot(now, session, m),
            Message::OsdAlive(m) if own(m.osd) => self.handle_osd_alive(now, &m),
            Message::OsdFailure(m) if own(m.reporter) => self.handle_osd_failure(now, &m),
            Message::OsdMarkMeDown(m) if own(m.osd) => self.handle_mark_me_down(now, session, raw.tid, &m),
            Message::OsdBeacon(m) if own(m.osd) => self.handle_osd_beacon(now, &m),
            Message::OsdCapacity(m) if own(m.osd) => self.handle_osd_capacity(now, &m),
            Message::PgTempRequest(m) if own(m.osd) => self.handle_pg_temp(now, &m),
            Message::PgReadyToMerge(m) if own(m.osd) => self.handle_ready_to_merge(now, &m),
            Message::MgrBeacon(m) if mgr_ok && peer.peer.name.id == m.name => self.handle_mgr_beacon(now, m),
            Message::MgrDigest(m) if mgr_ok => self.handle_mgr_digest(session, m),
            Message::MMgrCommandReply(m) if mgr_ok => self.handle_mgr_reply(session, raw.tid, m),
            other => tracing::warn!("session {}: {} is not for {}", session.0, other.name(), peer.peer.name),
        }
    }

    fn send_monmap(&mut self, session: SessionId, tid: u64) {
        let Some(state) = &self.state else { return };
        let map = state.monmap.encoded();
        self.send(session, tid, MMonMap { map });
    }

    fn handle_subscribe(&mut self, id: SessionId, message: MMonSubscribe) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.hostname = message.hostname;
        for (what, item) in message.what {
            // `mdsmap.3` asks for file system 3 alone: there is none, and the empty map says so.
            let what = what.split_once('.').filter(|(w, _)| *w == "mdsmap").map_or(what.clone(), |(w, _)| w.to_owned());
            session.subscribe(&what, item);
            if what == "config" {
                session.last_config = None;
            }
        }
        publish::serve(self, id, false);
    }

    fn handle_get_version(&mut self, session: SessionId, message: &MMonGetVersion) {
        let Some(state) = &self.state else { return };
        let (version, oldest) = match message.what.as_str() {
            "osdmap" => (state.osdmap.map.epoch.0, state.osdmap.first.0),
            "monmap" => (state.monmap.map.epoch.0, 1),
            "mgrmap" => (state.mgr.map.epoch.0, 1),
            "fsmap" | "mdsmap" => (state.fsmap.map.epoch.0, 1),
            _ => return,
        };
        let reply = MMonGetVersionReply { handle: message.handle, version: version.into(), oldest: oldest.into() };
        self.send(session, 0, reply);
    }

    fn handle_command(&mut self, now: Now, session: SessionId, raw: &RawMessage, message: MMonCommand) {
        let Some(state) = &self.state else { return };
        let ours = message.fsid == state.monmap.map.fsid || message.fsid.is_nil();
        if ours && self.pass_on(session, raw.tid, &message) {
            return;
        }
        let reply = match ours {
            true => self.run_command(now, session, &message.cmd, message.data.contiguous(), false),
            false => Reply::err(Errno::EPERM, "wrong fsid"),
        };
        let version = self.state.as_ref().map_or(0, |s| s.osdmap.map.epoch.0.into());
        let paxos = types::msg::mon::PaxosHeader { version, ..message.paxos };
        let status = BString::from(reply.status);
        let ack = MMonCommandAck { paxos, result: reply.result, status, cmd: message.cmd, data: reply.data.into() };
        self.send(session, raw.tid, ack);
    }

    fn handle_tell(&mut self, now: Now, session: SessionId, raw: &RawMessage, message: MCommand) {
        let reply = self.run_command(now, session, &message.cmd, message.data.contiguous(), true);
        let status = BString::from(reply.status);
        let reply = MCommandReply { result: reply.result, status, data: reply.data.into() };
        match self.state {
            Some(_) => self.send(session, raw.tid, reply),
            // What one monitor says of itself rests on nothing the others could contradict.
            None => self.effects.push_back(Effect::Send { session, tid: raw.tid, message: reply.into() }),
        }
    }

    /// Runs a command for a session. `tell`: it is for this monitor alone, from its own table.
    fn run_command(&mut self, now: Now, session: SessionId, cmd: &[String], input: bytes::Bytes, tell: bool) -> Reply {
        let cmd = match Cmd::parse(cmd, input) {
            Ok(cmd) => cmd,
            Err(reply) => return reply,
        };
        let table = if tell { commands::tell_table() } else { commands::table() };
        let Some(entry) = commands::find(table, &cmd.prefix) else {
            return commands::unknown(&cmd, tell);
        };
        let allowed = self.sessions.get(&session).is_some_and(|s| s.may_command(entry, &cmd));
        if !allowed {
            return Reply::err(Errno::EACCES, "access denied");
        }
        let audit = entry.writes().then(|| self.sessions.get(&session).map(|s| s.audit_name())).flatten();
        let outcome = self.with_ctx(now, Some(session), |ctx| (entry.run)(ctx, &cmd));
        let reply = outcome.unwrap_or_else(|refused| refused);
        // Commands see each other's effects: each is its own epoch.
        self.publish_osdmap(now);
        if let Some(who) = audit {
            self.log(now, AUDIT, LogPrio::INFO, format!("{who} cmd={}: {}", audit_text(&cmd), finished(&reply)));
        }
        reply
    }

    /// Answers one request of the admin socket, with or without its terminator: the reply without its length,
    /// which whoever holds the socket writes. Whoever can open the socket may do everything.
    pub fn handle_admin(&mut self, now: Now, request: &[u8]) -> Bytes {
        let whole = [request, b"\0"].concat();
        let reply = match socket::request(&whole) {
            Request::Version => return Bytes::from_static(socket::VERSION.as_bytes()),
            Request::Command(Err(e)) => Reply::err(e.errno, e.status),
            Request::Incomplete => Reply::err(Errno::EINVAL, "invalid json"),
            Request::Command(Ok(command)) => {
                let end = whole.iter().position(|b| *b == 0 || *b == b'\n').unwrap_or(0);
                let text = String::from_utf8_lossy(whole.get(..end).unwrap_or_default()).into_owned();
                match (commands::find(commands::tell_table(), &command.prefix), Cmd::parse(&[text], Default::default())) {
                    (Some(entry), Ok(cmd)) => self.with_ctx(now, None, |ctx| (entry.run)(ctx, &cmd)).unwrap_or_else(|refused| refused),
                    (None, _) => Reply::err(Errno::EINVAL, format!("unknown command prefix {}", command.prefix)),
                    (_, Err(refused)) => refused,
                }
            }
        };
        self.settle(now);
        let reply = admin::command::Reply { result: reply.result, status: reply.status, output: reply.data.to_vec() };
        Bytes::from(socket::reply(&reply)).slice(4..)
    }

    /// Runs `f` with everything a command may use. Changes waiting for the osdmap become an epoch first.
    pub(crate) fn with_ctx(&mut self, now: Now, session: Option<SessionId>, f: impl FnOnce(&mut Ctx<'_>) -> Outcome) -> Outcome {
        self.publish_osdmap(now);
        // A member that does not lead shows what it has applied; what is changed there is thrown away.
        let mut applied = match self.state {
            Some(_) => None,
            None => Some(self.applied_state(now).map_err(|e| Reply::err(Errno::EIO, e.to_string()))?),
        };
        let mut unused = Txn::default();
        let (state, txn) = match (self.state.as_mut(), applied.as_mut()) {
            (Some(state), _) => (state, &mut self.txn),
            (None, Some(state)) => (state, &mut unused),
            (None, None) => return Err(Reply::err(Errno::EAGAIN, "no quorum")),
        };
        let kv = &self.kv;
        let read = |key: &[u8]| kv.get(key).ok().flatten();
        let mut ctx = Ctx {
            now,
            state,
            txn,
            env: &mut self.env,
            quorum: self.quorum.clone(),
            rng: &mut self.rng,
            sessions: &self.sessions,
            who: session.and_then(|id| self.sessions.get(&id)),
            read: &read,
            log_range: self.raft.log_range(),
        };
        f(&mut ctx)
    }

    fn handle_log(&mut self, id: SessionId, raw: &RawMessage, message: MLog) {
        let Some(state) = self.state.as_mut() else { return };
        let Some(session) = self.sessions.get(&id).filter(|s| s.may("log", "w") || s.may("mon", "w")) else { return };
        let (fsid, mut last) = (state.monmap.map.fsid, None);
        for entry in message.entries {
            // Nobody speaks in another's name.
            if entry.name == session.peer.name {
                last = Some((entry.seq, entry.channel.clone()));
                state.log.append(entry, &mut self.txn);
            }
        }
        if let Some((last, channel)) = last {
            self.send(id, raw.tid, MLogAck { fsid, last, channel });
        }
    }

    fn handle_statfs(&mut self, session: SessionId, raw: &RawMessage, message: &MStatfs) {
        let Some(state) = self.state.as_ref().filter(|s| s.monmap.map.fsid == message.fsid) else { return };
        let digest = state.mgr.digest.as_ref();
        let version = state.osdmap.map.epoch.0.into();
        let mut reply = MStatfsReply { fsid: message.fsid, version, kb: 0, kb_used: 0, kb_avail: 0, objects: 0 };
        match (message.pool, digest) {
            (Some(pool), Some(digest)) => {
                if let Some(pool) = digest.pools.get(&pool) {
                    let used = commands::usage::stored_bytes(pool) / 1024;
                    reply.kb_used = used;
                    reply.kb_avail = pool.max_avail / 1024;
                    reply.kb = reply.kb_used + reply.kb_avail;
                    reply.objects = pool.stat.stats.sum.num_objects.max(0) as u64;
                }
            }
            (None, Some(digest)) => {
                reply.kb = digest.total.total / 1024;
                reply.kb_used = digest.total.used_raw() / 1024;
                reply.kb_avail = digest.total.available / 1024;
                reply.objects = digest.pools.values().map(|p| p.stat.stats.sum.num_objects.max(0) as u64).sum();
            }
            _ => {}
        }
        self.send(session, raw.tid, reply);
    }

    fn handle_pool_stats(&mut self, session: SessionId, raw: &RawMessage, message: &MGetPoolStats) {
        let Some(state) = self.state.as_ref().filter(|s| s.monmap.map.fsid == message.fsid) else { return };
        let digest = state.mgr.digest.as_ref();
        let stat = |name: &String| {
            let id = state.osdmap.map.pool_id(name)?;
            let stat = digest.and_then(|d| d.pools.get(&id)).map(|p| p.stat).unwrap_or_default();
            Some((name.clone(), stat))
        };
        let stats = message.pools.iter().filter_map(stat).collect();
        self.send(session, raw.tid, MGetPoolStatsReply { paxos: message.paxos, fsid: message.fsid, stats, per_pool: true });
    }
}

/// The command as the audit log shows it: keys and values given as arguments stay out of it.
fn audit_text(cmd: &Cmd) -> String {
    match cmd.prefix.as_str() {
        "config-key set" | "config-key put" => format!("[{{\"prefix\": \"{}\"}}]", cmd.prefix),
        _ => format!("[{}]", cmd.text),
    }
}

fn finished(reply: &Reply) -> String {
    if reply.result == 0 { "finished".to_owned() } else { format!("refused ({})", reply.result) }
}
