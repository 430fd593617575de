//! A monitor's sessions to the other members, dialled for ever.
//!
//! Room: node.   Owns: `Links`.   Hears: events of the endpoint, time.   Says: dials, proofs, `LinkEvent`s.
//! Holds: a session is used only once the other side has shown that it knows the monitors' key, and is encrypted.
//! Why lossy: consensus copes with lost messages, and must not find a backlog for a member that was away; whoever
//! relies on an answer learns that the session is gone.

use auth::cephx::CephxClient;
use auth::{CryptoKey, method, mode};
use msgr::{ConnId, Endpoint, Event, Policy};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::time::Duration;
use types::msg::internal_mon::{MonPeer, MonPeerReply, PeerAnswer, PeerSays};
use types::msg::WireMessage;
use types::{AddrVec, EntityKind, EntityName, Mono, Now, features};

/// The wait before a member is dialled again; doubles up to `WAIT_MAX`.
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// What became of a session, or came over it.
pub(super) enum LinkEvent {
    Opened(u64),
    Lost(u64),
    Answer(u64, PeerAnswer),
}

/// Sessions to the other members.
pub(super) struct Links {
    own: u64,
    key: CryptoKey,
    rng: ChaCha8Rng,
    members: BTreeMap<u64, Link>,
}

struct Link {
    addrs: AddrVec,
    stage: Stage,
    wait: Duration,
}

enum Stage {
    Idle { until: Mono },
    Dialling { conn: ConnId, cephx: Box<CephxClient> },
    Open { conn: ConnId },
}

impl Links {
    /// Links of the member `own` to the others.
    pub fn new(own: u64, others: Vec<(u64, AddrVec)>, key: CryptoKey, now: Now, rng: ChaCha8Rng) -> Self {
        let link = |addrs| Link { addrs, stage: Stage::Idle { until: now.mono }, wait: WAIT_FIRST };
        Links { own, key, rng, members: others.into_iter().map(|(id, addrs)| (id, link(addrs))).collect() }
    }

    /// Says something to a member, if there is a session.
    pub fn say(&self, now: Now, ep: &mut Endpoint, to: u64, says: PeerSays) {
        if let Some(Stage::Open { conn }) = self.members.get(&to).map(|l| &l.stage) {
            ep.send(now, *conn, MonPeer { from: self.own, says }.to_raw(features::SUPPORTED));
        }
    }

    /// Dials whoever is due.
    pub fn handle_timeout(&mut self, now: Now, ep: &mut Endpoint) {
        for link in self.members.values_mut() {
            if matches!(link.stage, Stage::Idle { until } if until <= now.mono) {
                let conn = ep.connect(now, EntityKind::MON, &link.addrs, Policy::LossyClient);
                let name = EntityName::new(EntityKind::MON, "");
                let cephx = Box::new(CephxClient::new(name, self.key.clone(), &[EntityKind::MON]));
                link.stage = Stage::Dialling { conn, cephx };
            }
        }
    }

    /// When `handle_timeout` is due.
    pub fn next_timeout(&self) -> Option<Mono> {
        let due = |link: &Link| if let Stage::Idle { until } = link.stage { Some(until) } else { None };
        self.members.values().filter_map(due).min()
    }

    /// Takes an event that concerns one of these sessions; gives back any other.
    pub fn handle_event(&mut self, now: Now, ep: &mut Endpoint, event: Event) -> Result<Option<LinkEvent>, Event> {
        let Some((&id, link)) = self.members.iter_mut().find(|(_, l)| l.conn() == Some(event.conn())) else { return Err(event) };
        Ok(link.handle_event(now, ep, id, &mut self.rng, event))
    }
}

impl Link {
    fn conn(&self) -> Option<ConnId> {
        match &self.stage {
            Stage::Idle { .. } => None,
            Stage::Dialling { conn, .. } | Stage::Open { conn } => Some(*conn),
        }
    }

    fn handle_event(&mut self, now: Now, ep: &mut Endpoint, id: u64, rng: &mut ChaCha8Rng, event: Event) -> Option<LinkEvent> {
        match (&mut self.stage, event) {
            (Stage::Dialling { cephx, .. }, Event::AuthStart { conn }) => {
                ep.auth_request(conn, method::CEPHX, vec![mode::SECURE], cephx.begin());
            }
            (Stage::Dialling { cephx, .. }, Event::AuthReplyMore { conn, payload }) => match cephx.handle_more(&payload, rng) {
                Ok(answer) => ep.auth_request_more(conn, answer),
                Err(why) => return self.give_up(now, ep, id, &why),
            },
            (Stage::Dialling { cephx, .. }, Event::AuthDone { conn, global_id, payload, .. }) => {
                match cephx.handle_done(now.mono, global_id, &payload) {
                    Ok(keys) => ep.auth_client_done(conn, keys.session_key, keys.connection_secret),
                    Err(why) => return self.give_up(now, ep, id, &why),
                }
            }
            (_, Event::AuthBad { result, .. }) => {
                let errno = types::Errno(result.saturating_neg());
                return self.give_up(now, ep, id, &format_args!("it refuses our key: {errno}"));
            }
            (_, Event::Ready { conn, .. }) => {
                (self.stage, self.wait) = (Stage::Open { conn }, WAIT_FIRST);
                return Some(LinkEvent::Opened(id));
            }
            (_, Event::Message { msg, .. }) if msg.kind == MonPeerReply::KIND => match MonPeerReply::from_raw(&msg) {
                Ok(reply) => return Some(LinkEvent::Answer(id, reply.answer)),
                Err(why) => return self.give_up(now, ep, id, &why),
            },
            (_, Event::Reset { .. }) => return self.lost(now, id),
            _ => {}
        }
        None
    }

    fn give_up(&mut self, now: Now, ep: &mut Endpoint, id: u64, why: &dyn std::fmt::Display) -> Option<LinkEvent> {
        tracing::warn!("session with the monitor of rank {}: {why}", id - 1);
        if let Some(conn) = self.conn() {
            ep.close(conn);
        }
        self.lost(now, id)
    }

    fn lost(&mut self, now: Now, id: u64) -> Option<LinkEvent> {
        let was_open = matches!(self.stage, Stage::Open { .. });
        self.stage = Stage::Idle { until: now.mono + self.wait };
        self.wait = (self.wait * 2).min(WAIT_MAX);
        was_open.then_some(LinkEvent::Lost(id))
    }
}
