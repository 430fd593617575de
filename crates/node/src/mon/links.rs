//! A monitor's sessions to the others, dialled for ever.
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
    Opened(String),
    Lost(String),
    Answer(String, PeerAnswer),
}

/// Sessions to the other monitors, by name.
pub(super) struct Links {
    key: CryptoKey,
    rng: ChaCha8Rng,
    others: BTreeMap<String, Link>,
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
    pub fn new(key: CryptoKey, rng: ChaCha8Rng) -> Self {
        Links { key, rng, others: BTreeMap::new() }
    }

    /// Keeps sessions to these from now on; says to whom there was one that has ended.
    pub fn keep(&mut self, now: Now, ep: &mut Endpoint, all: BTreeMap<String, AddrVec>) -> Vec<String> {
        let gone: Vec<String> = self.others.iter().filter(|(name, link)| all.get(*name) != Some(&link.addrs)).map(|(name, _)| name.clone()).collect();
        let links = gone.into_iter().filter_map(|name| Some((self.others.remove(&name)?, name)));
        let mut ended = Vec::new();
        for (link, name) in links {
            if let Some(conn) = link.conn() {
                ep.close(conn);
            }
            if matches!(link.stage, Stage::Open { .. }) {
                ended.push(name);
            }
        }
        for (name, addrs) in all {
            self.others.entry(name).or_insert(Link { addrs, stage: Stage::Idle { until: now.mono }, wait: WAIT_FIRST });
        }
        ended
    }

    /// Says something as the member `from`, if there is a session.
    pub fn say(&self, now: Now, ep: &mut Endpoint, from: u64, to: &str, says: PeerSays) {
        if let Some(Stage::Open { conn }) = self.others.get(to).map(|l| &l.stage) {
            ep.send(now, *conn, MonPeer { from, says }.to_raw(features::SUPPORTED));
        }
    }

    /// Dials whoever is due.
    pub fn handle_timeout(&mut self, now: Now, ep: &mut Endpoint) {
        for link in self.others.values_mut() {
            if matches!(link.stage, Stage::Idle { until } if until <= now.mono) {
                let conn = ep.connect(now, EntityKind::MON, &link.addrs, Policy::LossyClient);
                let name = EntityName::monitors();
                let cephx = Box::new(CephxClient::new(name, self.key.clone(), &[EntityKind::MON]));
                link.stage = Stage::Dialling { conn, cephx };
            }
        }
    }

    /// When `handle_timeout` is due.
    pub fn next_timeout(&self) -> Option<Mono> {
        let due = |link: &Link| if let Stage::Idle { until } = link.stage { Some(until) } else { None };
        self.others.values().filter_map(due).min()
    }

    /// Takes an event that concerns one of these sessions; gives back any other.
    #[allow(clippy::result_large_err)] // no error: an event that is somebody else's is given back
    pub fn handle_event(&mut self, now: Now, ep: &mut Endpoint, event: Event) -> Result<Option<LinkEvent>, Event> {
        let Some((name, link)) = self.others.iter_mut().find(|(_, l)| l.conn() == Some(event.conn())) else { return Err(event) };
        Ok(link.handle_event(now, ep, name, &mut self.rng, event))
    }
}

impl Link {
    fn conn(&self) -> Option<ConnId> {
        match &self.stage {
            Stage::Idle { .. } => None,
            Stage::Dialling { conn, .. } | Stage::Open { conn } => Some(*conn),
        }
    }

    fn handle_event(&mut self, now: Now, ep: &mut Endpoint, name: &str, rng: &mut ChaCha8Rng, event: Event) -> Option<LinkEvent> {
        match (&mut self.stage, event) {
            (Stage::Dialling { cephx, .. }, Event::AuthStart { conn }) => {
                ep.auth_request(conn, method::CEPHX, vec![mode::SECURE], cephx.begin());
            }
            (Stage::Dialling { cephx, .. }, Event::AuthReplyMore { conn, payload }) => match cephx.handle_more(&payload, rng) {
                Ok(answer) => ep.auth_request_more(conn, answer),
                Err(why) => return self.give_up(now, ep, name, &why),
            },
            (Stage::Dialling { cephx, .. }, Event::AuthDone { conn, global_id, payload, .. }) => {
                match cephx.handle_done(now.mono, global_id, &payload) {
                    Ok(keys) => ep.auth_client_done(conn, keys.session_key, keys.connection_secret),
                    Err(why) => return self.give_up(now, ep, name, &why),
                }
            }
            (_, Event::AuthBad { result, .. }) => {
                let errno = types::Errno(result.saturating_neg());
                return self.give_up(now, ep, name, &format_args!("it refuses our key: {errno}"));
            }
            (_, Event::Ready { conn, .. }) => {
                (self.stage, self.wait) = (Stage::Open { conn }, WAIT_FIRST);
                return Some(LinkEvent::Opened(name.to_owned()));
            }
            (_, Event::Message { msg, .. }) if msg.kind == MonPeerReply::KIND => match MonPeerReply::from_raw(&msg) {
                Ok(reply) => return Some(LinkEvent::Answer(name.to_owned(), reply.answer)),
                Err(why) => return self.give_up(now, ep, name, &why),
            },
            (_, Event::Reset { .. }) => return self.lost(now, name),
            _ => {}
        }
        None
    }

    fn give_up(&mut self, now: Now, ep: &mut Endpoint, name: &str, why: &dyn std::fmt::Display) -> Option<LinkEvent> {
        tracing::warn!("session with mon.{name}: {why}");
        if let Some(conn) = self.conn() {
            ep.close(conn);
        }
        self.lost(now, name)
    }

    fn lost(&mut self, now: Now, name: &str) -> Option<LinkEvent> {
        let was_open = matches!(self.stage, Stage::Open { .. });
        self.stage = Stage::Idle { until: now.mono + self.wait };
        self.wait = (self.wait * 2).min(WAIT_MAX);
        was_open.then_some(LinkEvent::Lost(name.to_owned()))
    }
}
