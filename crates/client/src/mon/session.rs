//! Finding a monitor, proving who we are, and what arrives from it.

use super::{MonClient, MonClientEvent};
use auth::cephx::Renewed;
use auth::method;
use bytes::Bytes;
use msgr::{ConnId, Endpoint, Event, Policy};
use rand::seq::IndexedRandom;
use std::time::Duration;
use types::map::{MgrMap, MonMap};
use types::msg::mon::OrAbsent;
use types::msg::{
    MAuth, MAuthReply, MConfig, MFsMapUser, MMdsMap, MMgrMap, MMonCommandAck, MMonGetVersionReply, MMonMap,
    MMonSubscribeAck, MOsdMap, RawMessage, WireMessage,
};
use types::{AddrVec, EntityKind, Epoch, Errno, Mono, Now, features};

/// A MAuth that is not answered is sent again after this.
const AUTH_RETRY: Duration = Duration::from_secs(10);
/// Secrets are fetched at least this often.
const SECRETS_EVERY: Duration = Duration::from_secs(900);
pub(super) const SECRETS_RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before `start`, or between two monitors.
    Idle,
    Connecting(ConnId),
    Open(ConnId),
}

/// The one session with a monitor.
#[derive(Debug)]
pub struct Session {
    stage: Stage,
    interval: Duration,
    /// When to try the next monitor.
    deadline: Option<Mono>,
    /// The one tried last, not to be tried twice in a row.
    last: Option<AddrVec>,
}

impl Session {
    pub fn new(interval: Duration) -> Self {
        Session { stage: Stage::Idle, interval, deadline: None, last: None }
    }

    pub fn conn(&self) -> Option<ConnId> {
        match self.stage {
            Stage::Idle => None,
            Stage::Connecting(conn) | Stage::Open(conn) => Some(conn),
        }
    }

    pub fn ready(&self) -> Option<ConnId> {
        match self.stage {
            Stage::Open(conn) => Some(conn),
            _ => None,
        }
    }

    pub fn deadline(&self) -> Option<Mono> {
        self.deadline
    }
}

impl MonClient {
    /// Drops the session, if any, and dials some monitor.
    pub(super) fn hunt(&mut self, now: Now, ep: &mut Endpoint) {
        if let Some(conn) = self.session.conn() {
            ep.close(conn);
        }
        self.session.deadline = Some(now.mono + self.session.interval);
        self.session.interval = (self.session.interval * 3 / 2).min(self.config.hunt_interval_max);
        let Some(addrs) = self.choose_monitor() else {
            self.session.stage = Stage::Idle;
            return;
        };
        let conn = ep.connect(now, EntityKind::MON, &addrs, Policy::LossyClient);
        self.session.last = Some(addrs);
        self.session.stage = Stage::Connecting(conn);
    }

    fn choose_monitor(&mut self) -> Option<AddrVec> {
        let known: Vec<AddrVec> = match &self.monmap {
            Some(map) if !map.mon_info.is_empty() => map.mon_info.values().map(|m| m.public_addrs.clone()).collect(),
            _ => self.config.mon_addrs.clone(),
        };
        if let Some(near) = self.config.near.as_ref().filter(|near| known.contains(near) && self.session.last.as_ref() != Some(near)) {
            return Some(near.clone());
        }
        let others: Vec<&AddrVec> = known.iter().filter(|a| Some(*a) != self.session.last.as_ref()).collect();
        others.choose(&mut self.rng).copied().or(known.first()).cloned()
    }

    pub(super) fn handle_mon_event(&mut self, now: Now, ep: &mut Endpoint, event: Event) -> Option<Event> {
        match event {
            Event::AuthStart { conn } => {
                let payload = self.cephx.begin();
                ep.auth_request(conn, method::CEPHX, self.config.mon_modes.clone(), payload);
            }
            Event::AuthReplyMore { conn, payload } => match self.cephx.handle_more(&payload, &mut self.rng) {
                Ok(answer) => ep.auth_request_more(conn, answer),
                Err(why) => self.mon_misspoke(now, ep, &why),
            },
            Event::AuthDone { conn, global_id, payload, .. } => {
                match self.cephx.handle_done(now.mono, global_id, &payload) {
                    Ok(keys) => ep.auth_client_done(conn, keys.session_key, keys.connection_secret),
                    Err(why) => self.mon_misspoke(now, ep, &why),
                }
            }
            Event::AuthBad { result, .. } => self.mon_refused(now, ep, Errno(result.saturating_neg())),
            Event::Ready { conn, .. } => self.opened(now, ep, conn),
            Event::Reset { .. } => self.lost(now),
            Event::Message { conn, msg } => {
                return self.handle_message(now, ep, msg).map(|msg| Event::Message { conn, msg });
            }
            Event::KeepaliveAck { .. } => {}
            other => return Some(other),
        }
        None
    }

    fn mon_misspoke(&mut self, now: Now, ep: &mut Endpoint, why: &dyn std::fmt::Display) {
        tracing::warn!("monitor's authentication reply: {why}");
        // With a wrong key of ours its first ticket does not open.
        self.say(MonClientEvent::AuthFailed { errno: Errno::EACCES });
        self.abandon(now, ep);
    }

    fn mon_refused(&mut self, now: Now, ep: &mut Endpoint, errno: Errno) {
        if self.cephx.global_id() != 0 {
            // Perhaps only the old global id was refused: come as someone new.
            self.cephx.forget();
            return self.hunt(now, ep);
        }
        if errno != Errno::EBUSY {
            self.say(MonClientEvent::AuthFailed { errno });
        }
        self.abandon(now, ep);
    }

    /// Closes the session; the next monitor's turn comes with the deadline.
    fn abandon(&mut self, now: Now, ep: &mut Endpoint) {
        if let Some(conn) = self.session.conn() {
            ep.close(conn);
        }
        self.session.stage = Stage::Idle;
        self.session.deadline.get_or_insert(now.mono + self.session.interval);
    }

    fn lost(&mut self, now: Now) {
        if self.session.ready().is_some() {
            self.say(MonClientEvent::SessionLost);
            // The first attempt after a working session comes at once.
            self.session.interval = self.config.hunt_interval;
            self.session.last.take_if(|last| self.config.near.as_ref() == Some(last));
            self.session.deadline = Some(now.mono);
        } else {
            // A dial that was refused leaves time to breathe, not a whole interval: another monitor may be fine.
            let soon = now.mono + Duration::from_millis(200).min(self.session.interval);
            self.session.deadline = Some(self.session.deadline.map_or(soon, |at| at.min(soon)));
        }
        self.session.stage = Stage::Idle;
        self.renew_at = None;
        self.secrets_at = None;
    }

    fn opened(&mut self, now: Now, ep: &mut Endpoint, conn: ConnId) {
        self.session.stage = Stage::Open(conn);
        self.session.deadline = None;
        self.session.interval = self.config.hunt_interval;
        let first = *self.first_global_id.get_or_insert(self.cephx.global_id());
        // OSDs have a number of their own, and a manager goes by the id that it has now.
        if ![EntityKind::OSD, EntityKind::MGR].contains(&self.config.name.kind) {
            ep.set_num(first as i64);
        }
        self.say(MonClientEvent::Authenticated { global_id: self.cephx.global_id() });
        self.send_subscriptions(now, ep);
        for msg in self.requests.for_new_session() {
            ep.send(now, conn, msg);
        }
        self.send_commands(now, ep);
        if self.config.wants_secrets {
            self.ask_for_secrets(now, ep);
        }
        self.renew_at = self.cephx.next_renewal();
        self.resume_dials(ep);
        self.say(MonClientEvent::SessionOpened);
    }

    /// Every command, if it is known which cluster they are for.
    fn send_commands(&mut self, now: Now, ep: &mut Endpoint) {
        let Some(fsid) = self.monmap.as_ref().map(|m| m.fsid) else { return };
        for msg in self.requests.all_commands(fsid) {
            self.send_if_open(now, ep, msg);
        }
    }

    pub(super) fn send_subscriptions(&mut self, now: Now, ep: &mut Endpoint) {
        let msg = self.subs.message(&self.config.hostname);
        self.send_if_open(now, ep, msg.to_raw(features::SUPPORTED));
    }

    /// Renews tickets that are ageing; asks again if an earlier question was not answered.
    pub(super) fn renew(&mut self, now: Now, ep: &mut Endpoint) {
        self.renew_at = None;
        if self.session.ready().is_none() {
            return;
        }
        match self.cephx.renewal(now.mono, &mut self.rng) {
            Some(payload) => {
                self.send_auth(now, ep, payload);
                self.renew_at = Some(now.mono + AUTH_RETRY);
            }
            None => self.renew_at = self.cephx.next_renewal(),
        }
    }

    pub(super) fn ask_for_secrets(&mut self, now: Now, ep: &mut Endpoint) {
        self.secrets_at = None;
        if self.session.ready().is_some() {
            self.secrets_asked = now.mono;
            let payload = self.cephx.rotating_request();
            self.send_auth(now, ep, payload);
            self.secrets_at = Some(now.mono + AUTH_RETRY);
        }
    }

    fn send_auth(&mut self, now: Now, ep: &mut Endpoint, payload: Bytes) {
        let monmap_epoch = OrAbsent(self.monmap.as_ref().map_or(Epoch(0), |m| m.epoch));
        let msg = MAuth { paxos: Default::default(), protocol: method::CEPHX, payload, monmap_epoch };
        self.send_if_open(now, ep, msg.to_raw(features::SUPPORTED));
    }

    /// A message from the monitor; what is for someone else comes back.
    fn handle_message(&mut self, now: Now, ep: &mut Endpoint, msg: RawMessage) -> Option<RawMessage> {
        let done = match msg.kind {
            MMonMap::KIND => MMonMap::from_raw(&msg).and_then(|m| self.take_monmap(now, ep, &m)),
            MConfig::KIND => MConfig::from_raw(&msg).map(|m| self.say(MonClientEvent::Config(m.config))),
            MOsdMap::KIND => MOsdMap::from_raw(&msg).map(|m| self.take_osdmap(m)),
            MMgrMap::KIND => MMgrMap::from_raw(&msg).and_then(|m| self.take_mgrmap(&m)),
            MMdsMap::KIND => MMdsMap::from_raw(&msg).map(|m| {
                self.subs.got("mdsmap", m.epoch.0.into());
                self.say(MonClientEvent::MdsMap(m));
            }),
            MFsMapUser::KIND => MFsMapUser::from_raw(&msg).map(|m| {
                self.subs.got("fsmap.user", m.epoch.0.into());
                self.say(MonClientEvent::FsMapUser(m));
            }),
            MAuthReply::KIND => MAuthReply::from_raw(&msg).map(|m| self.take_auth_reply(now, ep, &m)),
            MMonGetVersionReply::KIND => MMonGetVersionReply::from_raw(&msg).map(|m| self.take_version(&m)),
            MMonCommandAck::KIND => MMonCommandAck::from_raw(&msg).map(|m| self.take_command_reply(msg.tid, &m)),
            MMonSubscribeAck::KIND => Ok(()),
            _ => return Some(msg),
        };
        if let Err(why) = done {
            tracing::warn!("message {} from the monitor: {why}", msg.kind);
        }
        None
    }

    fn take_monmap(&mut self, now: Now, ep: &mut Endpoint, m: &MMonMap) -> Result<(), denc::DecodeError> {
        let map: MonMap = denc::from_slice(&m.map)?;
        self.subs.got("monmap", map.epoch.0.into());
        if self.monmap.replace(map.clone()).is_none() {
            self.send_commands(now, ep);
        }
        self.say(MonClientEvent::MonMap(map));
        Ok(())
    }

    fn take_osdmap(&mut self, m: MOsdMap) {
        let newest = m.incremental.keys().chain(m.full.keys()).max().copied();
        if let Some(epoch) = newest {
            self.subs.got("osdmap", epoch.0.into());
        }
        self.say(MonClientEvent::OsdMap(m));
    }

    fn take_mgrmap(&mut self, m: &MMgrMap) -> Result<(), denc::DecodeError> {
        let map: MgrMap = denc::from_slice(&m.map)?;
        self.subs.got("mgrmap", map.epoch.0.into());
        self.mgrmap = Some(map.clone());
        self.say(MonClientEvent::MgrMap(Box::new(map)));
        Ok(())
    }

    fn take_auth_reply(&mut self, now: Now, ep: &mut Endpoint, m: &MAuthReply) {
        if m.result < 0 {
            tracing::warn!("the monitor refused to renew: {}", Errno(m.result.saturating_neg()));
            if self.cephx.next_renewal().is_some_and(|at| at <= now.mono) {
                // The ticket that renews the others may be under a secret that rotated away: the key gets us new ones.
                self.hunt(now, ep);
            }
            return;
        }
        match self.cephx.handle_reply(now.mono, &m.payload) {
            Ok(Renewed::Tickets) => {
                self.renew_at = self.cephx.next_renewal();
                self.resume_dials(ep);
            }
            Ok(Renewed::Secrets(secrets)) => {
                let wait = secrets.current().map(|c| c.expires.to_duration().saturating_sub(now.wall.to_duration()));
                let wait = wait.unwrap_or_default().clamp(SECRETS_RETRY, SECRETS_EVERY);
                self.secrets_at = Some(now.mono + wait);
                self.secrets = Some(secrets.clone());
                self.say(MonClientEvent::RotatingSecrets(secrets));
            }
            Err(why) => tracing::warn!("the monitor's renewal: {why}"),
        }
    }

    fn take_version(&mut self, m: &MMonGetVersionReply) {
        if self.requests.version_answered(m.handle) {
            self.say(MonClientEvent::Version { handle: m.handle, version: m.version, oldest: m.oldest });
        }
    }

    fn take_command_reply(&mut self, tid: u64, m: &MMonCommandAck) {
        if self.requests.command_answered(tid) {
            let status = m.status.to_string();
            self.say(MonClientEvent::CommandReply { tid, result: m.result, status, output: m.data.contiguous() });
        }
    }
}
