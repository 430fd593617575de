//! Sessions with OSDs: opened when there is something to send, opened again when lost, and held back where an OSD
//! asks for it.

use super::{Link, Objecter};
use msgr::{ConnId, Policy};
use std::collections::BTreeMap;
use std::time::Duration;
use types::msg::{MCommandReply, MOsdBackoff, MOsdMap, MOsdOpReply, MWatchNotify, RawMessage, WireMessage};
use types::{AddrVec, EntityKind, HObject, Mono, OsdId, Snap, ShardPgId, features};

/// First and longest wait before a lost session is opened again.
const REOPEN_FIRST: Duration = Duration::from_millis(100);
const REOPEN_MAX: Duration = Duration::from_secs(5);

/// A session with an OSD, open or to be.
#[derive(Debug)]
pub(super) struct OsdSession {
    conn: Option<ConnId>,
    addrs: AddrVec,
    pub reopen_at: Option<Mono>,
    failures: u32,
    backoffs: BTreeMap<u64, Backoff>,
}

#[derive(Debug)]
struct Backoff {
    pg: ShardPgId,
    begin: HObject,
    end: HObject,
}

impl Backoff {
    fn holds(&self, pg: ShardPgId, object: &HObject) -> bool {
        self.pg == pg && (*object == self.begin || (*object >= self.begin && *object < self.end))
    }
}

impl Objecter {
    /// The session with `osd`, opened now if there is none; `None` while it is too early to try again.
    pub(super) fn open_session(&mut self, link: &mut Link<'_>, osd: OsdId) -> Option<ConnId> {
        let addrs = self.map.as_ref()?.addrs(osd)?.clone();
        let session = self.sessions.entry(osd).or_insert_with(|| OsdSession {
            conn: None,
            addrs: addrs.clone(),
            reopen_at: None,
            failures: 0,
            backoffs: BTreeMap::new(),
        });
        if session.conn.is_none() && session.reopen_at.is_none() {
            session.addrs = addrs.clone();
            let conn = link.mon.dial_service(link.now, link.ep, EntityKind::OSD, &addrs, Policy::LossyClient);
            session.conn = Some(conn);
            self.conns.insert(conn, osd);
        }
        self.sessions.get(&osd).and_then(|s| s.conn)
    }

    pub(super) fn osd_ready(&mut self, conn: ConnId) {
        let osd = self.conns.get(&conn).copied();
        if let Some(session) = osd.and_then(|osd| self.sessions.get_mut(&osd)) {
            session.failures = 0;
        }
    }

    pub(super) fn osd_lost(&mut self, link: &mut Link<'_>, conn: ConnId) {
        let Some(osd) = self.conns.remove(&conn) else { return };
        link.mon.forget_service(conn);
        if let Some(session) = self.sessions.get_mut(&osd).filter(|s| s.conn == Some(conn)) {
            session.conn = None;
            session.backoffs.clear();
            let wait = REOPEN_FIRST.saturating_mul(1 << session.failures.min(8)).min(REOPEN_MAX);
            session.failures += 1;
            session.reopen_at = Some(link.now.mono + wait);
        }
        self.unsend(osd);
        // Perhaps it died: the monitors may know more.
        self.want_next_map(link);
    }

    /// Sessions whose OSD is down, gone, or has moved are closed; their requests go by the new map.
    pub(super) fn close_dead_sessions(&mut self, link: &mut Link<'_>) {
        let Some(map) = self.map.clone() else { return };
        let dead: Vec<OsdId> = self
            .sessions
            .iter()
            .filter(|(osd, s)| !map.is_up(**osd) || map.addrs(**osd) != Some(&s.addrs))
            .map(|(osd, _)| *osd)
            .collect();
        for osd in dead {
            if let Some(conn) = self.sessions.remove(&osd).and_then(|s| s.conn) {
                self.conns.remove(&conn);
                link.mon.forget_service(conn);
                link.ep.close(conn);
            }
            self.unsend(osd);
        }
    }

    pub(super) fn reopen_sessions(&mut self, link: &mut Link<'_>) {
        let due = |s: &OsdSession| s.reopen_at.is_some_and(|at| at <= link.now.mono);
        let osds: Vec<OsdId> = self.sessions.iter().filter(|(_, s)| due(s)).map(|(osd, _)| *osd).collect();
        for osd in &osds {
            if let Some(session) = self.sessions.get_mut(osd) {
                session.reopen_at = None;
            }
        }
        if !osds.is_empty() {
            self.advance_all(link);
            self.register_lingers(link);
            self.ask_osds_again(link);
        }
    }

    /// Everything sent to `osd` must be sent again, there or elsewhere.
    fn unsend(&mut self, osd: OsdId) {
        for op in self.ops.values_mut().filter(|op| op.osd == Some(osd)) {
            op.sent = false;
            op.osd = None;
        }
        self.lingers_lost(osd);
        self.questions_lost(osd);
    }

    /// True if the OSD asked not to be sent this.
    pub(super) fn is_held_back(&self, osd: OsdId, tid: u64) -> bool {
        let (Some(session), Some(op)) = (self.sessions.get(&osd), self.ops.get(&tid)) else { return false };
        let Some(target) = &op.target else { return false };
        if session.backoffs.is_empty() {
            return false;
        }
        let object = HObject {
            pool: op.req.pool,
            hash: target.hash,
            nspace: op.req.nspace.clone(),
            key: op.req.key.clone(),
            name: op.req.oid.clone(),
            snap: Snap::HEAD,
            max: false,
        };
        session.backoffs.values().any(|b| b.holds(target.pg, &object))
    }

    pub(super) fn handle_osd_message(&mut self, link: &mut Link<'_>, osd: OsdId, msg: RawMessage) -> Option<RawMessage> {
        let done = match msg.kind {
            MOsdOpReply::KIND => {
                MOsdOpReply::from_raw(&msg).map(|reply| self.handle_op_reply(link, osd, msg.tid, reply))
            }
            MOsdMap::KIND => MOsdMap::from_raw(&msg).map(|m| self.take_maps(link, &m)),
            MOsdBackoff::KIND => MOsdBackoff::from_raw(&msg).map(|m| self.handle_backoff(link, osd, m)),
            MWatchNotify::KIND => MWatchNotify::from_raw(&msg).map(|m| self.handle_watch_notify(m)),
            MCommandReply::KIND => return self.handle_command_reply(msg),
            _ => return Some(msg),
        };
        if let Err(why) = done {
            tracing::warn!("message {} from osd.{osd}: {why}", msg.kind);
        }
        None
    }

    fn handle_backoff(&mut self, link: &mut Link<'_>, osd: OsdId, m: MOsdBackoff) {
        let epoch = self.map.as_ref().map(|m| m.epoch).unwrap_or_default();
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        let Some(conn) = session.conn else { return };
        match m.op {
            MOsdBackoff::BLOCK => {
                let backoff = Backoff { pg: m.pgid, begin: m.begin.clone(), end: m.end.clone() };
                session.backoffs.insert(m.id, backoff);
                let ack = MOsdBackoff { op: MOsdBackoff::ACK_BLOCK, epoch, ..m };
                link.ep.send(link.now, conn, ack.to_raw(features::SUPPORTED));
            }
            MOsdBackoff::UNBLOCK => {
                session.backoffs.remove(&m.id);
                // What lay in the range was dropped there; what else of the PG comes twice is known by its number.
                for op in self.ops.values_mut().filter(|op| op.osd == Some(osd)) {
                    op.sent &= op.target.as_ref().is_none_or(|t| t.pg != m.pgid);
                }
                self.advance_all(link);
            }
            other => tracing::warn!("backoff of unknown kind {other} from osd.{osd}"),
        }
    }

    /// The session's connection, if there is one now.
    pub(super) fn conn_to(&self, osd: OsdId) -> Option<ConnId> {
        self.sessions.get(&osd).and_then(|s| s.conn)
    }
}
