//! Requests that are not operations on objects: pools and usage (to the monitors), commands (to OSDs and the manager).

use super::{Link, Objecter, ObjecterEvent};
use bytes::Bytes;
use msgr::Policy;
use types::msg::pool::pool_op;
use types::msg::{
    MCommand, MCommandReply, MGetPoolStats, MGetPoolStatsReply, MMgrCommand, MMgrCommandReply, MPoolOp, MPoolOpReply,
    MStatfs, MStatfsReply, RawMessage, WireMessage,
};
use types::{EntityKind, Epoch, Errno, OsdId, PoolId, Snap, features};
use uuid::Uuid;

/// Who is asked, and where the question stands.
#[derive(Debug)]
pub(super) enum Question {
    /// A message to the monitor, sent again over every new session.
    Monitor(RawMessage),
    /// Answered; the map must show it first.
    PoolOpDone { epoch: Epoch, result: i32, data: Option<Bytes> },
    Osd { osd: OsdId, msg: RawMessage, sent: bool },
    Manager { msg: RawMessage, sent: bool },
    /// Waits for the monitor to say which map is the latest, then for that map.
    Latest(Option<u64>),
}

impl Objecter {
    /// Any operation of `pool_op`.
    pub fn pool_op(&mut self, link: &mut Link<'_>, pool: PoolId, op: u32, name: &str, snap: Snap) -> u64 {
        // To the monitors, making a pool that exists is no error: it is for clients to notice.
        if op == pool_op::CREATE && self.map.as_ref().is_some_and(|m| m.pool_id(name).is_some()) {
            let tid = self.next_tid();
            self.say(ObjecterEvent::PoolOp { tid, result: Errno::EEXIST.wire(), data: None });
            return tid;
        }
        let epoch = self.map.as_ref().map_or(0, |m| m.epoch.0.into());
        let message = MPoolOp {
            paxos: types::msg::PaxosHeader { version: epoch, ..Default::default() },
            fsid: self.fsid(link),
            pool: u32::try_from(pool.0).unwrap_or(0),
            op,
            snap,
            name: name.to_owned(),
            crush_rule: -1,
        };
        self.ask_monitor(link, message.to_raw(features::SUPPORTED))
    }

    /// How full the cluster, or one pool, is.
    pub fn statfs(&mut self, link: &mut Link<'_>, pool: Option<PoolId>) -> u64 {
        let message = MStatfs { paxos: Default::default(), fsid: self.fsid(link), pool };
        self.ask_monitor(link, message.to_raw(features::SUPPORTED))
    }

    /// What pools hold.
    pub fn pool_stats(&mut self, link: &mut Link<'_>, pools: Vec<String>) -> u64 {
        let message = MGetPoolStats { paxos: Default::default(), fsid: self.fsid(link), pools };
        self.ask_monitor(link, message.to_raw(features::SUPPORTED))
    }

    /// Runs a command on an OSD (`ceph tell osd.N`).
    pub fn osd_command(&mut self, link: &mut Link<'_>, osd: OsdId, json: String, input: Bytes) -> u64 {
        let tid = self.next_tid();
        let message = MCommand { fsid: self.fsid(link), cmd: vec![json], data: input.into() };
        let msg = RawMessage { tid, ..message.to_raw(features::SUPPORTED) };
        self.questions.insert(tid, Question::Osd { osd, msg, sent: false });
        self.ask_osds_again(link);
        tid
    }

    /// Runs a command on the active manager; `tell` addresses the daemon itself instead of its modules.
    pub fn mgr_command(&mut self, link: &mut Link<'_>, json: String, input: Bytes, tell: bool) -> u64 {
        let tid = self.next_tid();
        let (fsid, cmd, data) = (self.fsid(link), vec![json], input.into());
        let msg = match tell {
            true => MCommand { fsid, cmd, data }.to_raw(features::SUPPORTED),
            false => MMgrCommand { fsid, cmd, data }.to_raw(features::SUPPORTED),
        };
        self.questions.insert(tid, Question::Manager { msg: RawMessage { tid, ..msg }, sent: false });
        self.ask_manager_again(link);
        tid
    }

    /// Waits until our map is at least what the monitor's is now.
    pub fn wait_for_latest_map(&mut self, link: &mut Link<'_>) -> u64 {
        let tid = self.next_tid();
        self.questions.insert(tid, Question::Latest(None));
        let handle = link.mon.get_version(link.now, link.ep, "osdmap");
        self.versions.insert(handle, tid);
        tid
    }

    fn fsid(&self, link: &Link<'_>) -> Uuid {
        link.mon.monmap().map(|m| m.fsid).unwrap_or_default()
    }

    fn ask_monitor(&mut self, link: &mut Link<'_>, msg: RawMessage) -> u64 {
        let tid = self.next_tid();
        let msg = RawMessage { tid, ..msg };
        if link.mon.is_open() {
            link.mon.send(link.now, link.ep, msg.clone());
        }
        self.questions.insert(tid, Question::Monitor(msg));
        tid
    }

    /// A new session with the monitor: everything asked over the old one.
    pub(super) fn ask_again(&mut self, link: &mut Link<'_>) {
        for question in self.questions.values() {
            if let Question::Monitor(msg) = question {
                link.mon.send(link.now, link.ep, msg.clone());
            }
        }
    }

    /// An answer from the monitor.
    pub(super) fn handle_answer(&mut self, link: &mut Link<'_>, msg: RawMessage) -> Option<RawMessage> {
        let tid = msg.tid;
        if !matches!(self.questions.get(&tid), Some(Question::Monitor(_))) {
            return Some(msg);
        }
        let event = match msg.kind {
            MPoolOpReply::KIND => MPoolOpReply::from_raw(&msg).map(|m| {
                let done = Question::PoolOpDone { epoch: m.epoch, result: m.result, data: m.data };
                self.questions.insert(tid, done);
                None
            }),
            MStatfsReply::KIND => MStatfsReply::from_raw(&msg).map(|m| {
                let (kb, kb_used, kb_avail, objects) = (m.kb, m.kb_used, m.kb_avail, m.objects);
                Some(ObjecterEvent::Statfs { tid, kb, kb_used, kb_avail, objects })
            }),
            MGetPoolStatsReply::KIND => MGetPoolStatsReply::from_raw(&msg)
                .map(|m| Some(ObjecterEvent::PoolStats { tid, stats: m.stats, per_pool: m.per_pool })),
            _ => return Some(msg),
        };
        match event {
            Ok(Some(event)) => {
                self.questions.remove(&tid);
                self.say(event);
            }
            Ok(None) => {
                self.questions_by_map(link);
                if self.questions.contains_key(&tid) {
                    self.want_next_map(link);
                }
            }
            Err(why) => tracing::warn!("message {} from the monitor: {why}", msg.kind),
        }
        None
    }

    /// Answers what waited for this map.
    pub(super) fn questions_by_map(&mut self, link: &mut Link<'_>) {
        let have = self.map.as_ref().map_or(Epoch(0), |m| m.epoch);
        let done = |q: &Question| match q {
            Question::PoolOpDone { epoch, .. } => *epoch <= have,
            Question::Latest(Some(version)) => *version <= u64::from(have.0),
            _ => false,
        };
        let (mut answered, mut waiting) = (Vec::new(), false);
        for (tid, question) in &self.questions {
            match question {
                q if done(q) => answered.push(*tid),
                Question::PoolOpDone { .. } | Question::Latest(Some(_)) => waiting = true,
                _ => {}
            }
        }
        for tid in answered {
            match self.questions.remove(&tid) {
                Some(Question::PoolOpDone { result, data, .. }) => self.say(ObjecterEvent::PoolOp { tid, result, data }),
                _ => self.say(ObjecterEvent::Latest { tid }),
            }
        }
        if waiting {
            self.want_next_map(link);
        }
    }

    pub(super) fn question_version(&mut self, link: &mut Link<'_>, tid: u64, version: u64) {
        if let Some(Question::Latest(want)) = self.questions.get_mut(&tid) {
            *want = Some(version);
            self.questions_by_map(link);
        }
    }

    /// Sends commands to OSDs that were not sent, and refuses those to OSDs that are not there.
    pub(super) fn ask_osds_again(&mut self, link: &mut Link<'_>) {
        let unsent: Vec<(u64, OsdId)> = self
            .questions
            .iter()
            .filter_map(|(tid, q)| match q {
                Question::Osd { osd, sent: false, .. } => Some((*tid, *osd)),
                _ => None,
            })
            .collect();
        for (tid, osd) in unsent {
            let Some(map) = self.map.clone() else { return };
            if !map.exists(osd) || !map.is_up(osd) {
                let errno = if map.exists(osd) { Errno::ENXIO } else { Errno::ENOENT };
                self.questions.remove(&tid);
                self.say(command_failed(tid, errno, &format!("osd.{osd} is not up")));
                continue;
            }
            let Some(conn) = self.open_session(link, osd) else { continue };
            if let Some(Question::Osd { msg, sent, .. }) = self.questions.get_mut(&tid) {
                *sent = true;
                link.ep.send(link.now, conn, msg.clone());
            }
        }
    }

    pub(super) fn questions_lost(&mut self, lost: OsdId) {
        for question in self.questions.values_mut() {
            if let Question::Osd { osd, sent, .. } = question {
                *sent &= *osd != lost;
            }
        }
    }

    /// The manager's map changed: a session with another manager is closed.
    pub(super) fn follow_manager(&mut self, link: &mut Link<'_>) {
        if let Some(conn) = self.mgr.take() {
            link.mon.forget_service(conn);
            link.ep.close(conn);
        }
        self.mgr_unsend();
        self.ask_manager_again(link);
    }

    pub(super) fn mgr_lost(&mut self, link: &mut Link<'_>) {
        self.mgr = None;
        self.mgr_unsend();
        // The next map, or the next tick's question, tries again.
        self.arm_tick(link.now.mono);
    }

    fn mgr_unsend(&mut self) {
        for question in self.questions.values_mut() {
            if let Question::Manager { sent, .. } = question {
                *sent = false;
            }
        }
    }

    /// Sends commands to the manager that were not sent, if there is one.
    pub(super) fn ask_manager_again(&mut self, link: &mut Link<'_>) {
        let any = self.questions.values().any(|q| matches!(q, Question::Manager { sent: false, .. }));
        let Some(addrs) = link.mon.mgrmap().filter(|m| any && m.available).map(|m| m.active_addrs.clone()) else { return };
        let conn = *self.mgr.get_or_insert_with(|| {
            link.mon.dial_service(link.now, link.ep, EntityKind::MGR, &addrs, Policy::LossyClient)
        });
        for question in self.questions.values_mut() {
            if let Question::Manager { msg, sent } = question
                && !*sent
            {
                *sent = true;
                link.ep.send(link.now, conn, msg.clone());
            }
        }
    }

    /// An OSD's or the manager's reply to a command.
    pub(super) fn handle_command_reply(&mut self, msg: RawMessage) -> Option<RawMessage> {
        let reply = match msg.kind {
            MCommandReply::KIND => MCommandReply::from_raw(&msg).map(|m| (m.result, m.status, m.data)),
            MMgrCommandReply::KIND => MMgrCommandReply::from_raw(&msg).map(|m| (m.result, m.status, m.data)),
            _ => return Some(msg),
        };
        let Ok((result, status, data)) = reply.inspect_err(|why| tracing::warn!("command reply: {why}")) else {
            return None;
        };
        if self.questions.remove(&msg.tid).is_some() {
            let (status, output) = (status.to_string(), data.contiguous());
            self.say(ObjecterEvent::Command { tid: msg.tid, result, status, output });
        }
        None
    }
}

fn command_failed(tid: u64, errno: Errno, status: &str) -> ObjecterEvent {
    ObjecterEvent::Command { tid, result: errno.wire(), status: status.to_owned(), output: Bytes::new() }
}
