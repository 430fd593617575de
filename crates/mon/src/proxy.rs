//! Commands of the manager that a client gives to a monitor: passed on, and the answer passed back.
//!
//! Clients of librados that know nothing of the manager's own address do so, and those from before there was one.
//! Holds: a command passed on is answered, if only with EAGAIN when its manager goes away.
//! Upstream: Monitor::handle_command in src/mon/Monitor.cc (the proxied part).

use crate::commands;
use crate::mon::Mon;
use crate::reply::Reply;
use crate::session::SessionId;
use admin::Command;
use admin::command::{CommandTable, MGR_COMMANDS};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use store::Kv;
use types::msg::mon::PaxosHeader;
use types::msg::{MMgrCommand, MMgrCommandReply, MMonCommand, MMonCommandAck};
use types::{EntityKind, Errno};

static MGR_TABLE: LazyLock<CommandTable> = LazyLock::new(|| CommandTable::new(MGR_COMMANDS));

/// A command that the manager has.
struct Passed {
    asker: SessionId,
    tid: u64,
    paxos: PaxosHeader,
    cmd: Vec<String>,
    /// The manager's session.
    via: SessionId,
}

/// Commands that the manager has.
#[derive(Default)]
pub(crate) struct Proxy {
    last: u64,
    passed: BTreeMap<u64, Passed>,
}

impl<K: Kv> Mon<K> {
    /// Passes a command on if it is the manager's and not ours; what is refused is answered at once. True if the
    /// command needs nothing more.
    pub(crate) fn pass_on(&mut self, asker: SessionId, tid: u64, m: &MMonCommand) -> bool {
        let Ok(command) = Command::parse(&m.cmd) else { return false };
        if commands::find(commands::table(), &command.prefix).is_some() || !MGR_TABLE.knows(&command.prefix) {
            return false;
        }
        let refused = match MGR_TABLE.check(&command) {
            Err(e) => Some(Reply::err(e.errno, e.status)),
            Ok((spec, _)) => {
                let allowed = self.sessions.get(&asker).is_some_and(|s| s.may(spec.module, spec.perm));
                (!allowed).then(|| Reply::err(Errno::EACCES, "access denied"))
            }
        };
        let passed = Passed { asker, tid, paxos: m.paxos, cmd: m.cmd.clone(), via: asker };
        match (refused, self.manager()) {
            (Some(reply), _) => self.answer_passed(passed, reply.result, reply.status.into_bytes(), Default::default()),
            (None, None) => self.answer_passed(passed, Errno::EAGAIN.wire(), b"no manager is active".to_vec(), Default::default()),
            (None, Some(via)) => {
                self.proxy.last += 1;
                let id = self.proxy.last;
                self.proxy.passed.insert(id, Passed { via, ..passed });
                self.send(via, id, MMgrCommand { fsid: m.fsid, cmd: m.cmd.clone(), data: m.data.clone() });
            }
        }
        true
    }

    /// The manager's answer.
    pub(crate) fn handle_mgr_reply(&mut self, from: SessionId, tid: u64, m: MMgrCommandReply) {
        if self.proxy.passed.get(&tid).is_some_and(|p| p.via == from)
            && let Some(passed) = self.proxy.passed.remove(&tid)
        {
            self.answer_passed(passed, m.result, m.status.into(), m.data);
        }
    }

    /// A session is gone: nobody waits for its answers, and what it was to answer is given up.
    pub(crate) fn drop_passed(&mut self, session: SessionId) {
        self.proxy.passed.retain(|_, p| p.asker != session);
        let lost: Vec<u64> = self.proxy.passed.iter().filter(|(_, p)| p.via == session).map(|(id, _)| *id).collect();
        for passed in lost.into_iter().filter_map(|id| self.proxy.passed.remove(&id)).collect::<Vec<_>>() {
            self.answer_passed(passed, Errno::EAGAIN.wire(), b"the manager went away".to_vec(), Default::default());
        }
    }

    fn answer_passed(&mut self, to: Passed, result: i32, status: Vec<u8>, data: types::msg::BufList) {
        let ack = MMonCommandAck { paxos: to.paxos, result, status: status.into(), cmd: to.cmd, data };
        self.send(to.asker, to.tid, ack);
    }

    /// The session of the active manager, once it serves.
    fn manager(&self) -> Option<SessionId> {
        let map = self.state.as_ref().map(|s| &s.mgr.map).filter(|m| m.available)?;
        let is_it = |name: &types::EntityName| name.kind == EntityKind::MGR && name.id == map.active_name;
        self.sessions.iter().rev().find(|(_, s)| is_it(&s.peer.name)).map(|(id, _)| *id)
    }
}
