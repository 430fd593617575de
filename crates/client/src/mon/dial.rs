//! The client's side of authentication with OSDs and the manager.

use super::{MonClient, MonClientEvent};
use auth::cephx::Authorizer;
use auth::method;
use bytes::Bytes;
use msgr::{ConnId, Endpoint, Event};
use std::collections::BTreeMap;
use types::{EntityKind, Errno};

/// Refusals in a row before a session is given up: tickets are renewed between them.
const ATTEMPTS_MAX: u32 = 3;

#[derive(Debug)]
struct Dial {
    kind: EntityKind,
    lossy: bool,
    authorizer: Option<Authorizer>,
    /// The endpoint asked, and there was no good ticket.
    waiting: bool,
    refusals: u32,
}

/// Sessions whose authentication is ours.
#[derive(Debug, Default)]
pub struct Dials {
    by_conn: BTreeMap<ConnId, Dial>,
}

impl Dials {
    pub fn add(&mut self, conn: ConnId, kind: EntityKind, lossy: bool) {
        // A lossless session may exist already, in the middle of its handshake.
        self.by_conn.entry(conn).or_insert(Dial { kind, lossy, authorizer: None, waiting: false, refusals: 0 });
    }

    pub fn remove(&mut self, conn: ConnId) {
        self.by_conn.remove(&conn);
    }

    pub fn contains(&self, conn: ConnId) -> bool {
        self.by_conn.contains_key(&conn)
    }

    fn waiting(&self) -> Vec<ConnId> {
        self.by_conn.iter().filter(|(_, d)| d.waiting).map(|(c, _)| *c).collect()
    }
}

impl MonClient {
    pub(super) fn handle_dial_event(&mut self, ep: &mut Endpoint, event: Event) -> Option<Event> {
        match event {
            Event::AuthStart { conn } => self.begin_dial(ep, conn),
            Event::AuthReplyMore { conn, payload } => self.answer_challenge(ep, conn, &payload),
            Event::AuthDone { conn, payload, .. } => self.finish_dial(ep, conn, &payload),
            Event::AuthBad { conn, result, .. } => self.dial_refused(ep, conn, Errno(result.saturating_neg())),
            Event::Ready { conn, .. } => {
                if let Some(dial) = self.dials.by_conn.get_mut(&conn) {
                    dial.refusals = 0;
                }
                return Some(event);
            }
            Event::Reset { conn, .. } => {
                if self.dials.by_conn.get(&conn).is_some_and(|d| d.lossy) {
                    self.dials.remove(conn);
                }
                return Some(event);
            }
            other => return Some(other),
        }
        None
    }

    /// Sends authorizers on the sessions that waited for tickets.
    pub(super) fn resume_dials(&mut self, ep: &mut Endpoint) {
        for conn in self.dials.waiting() {
            self.begin_dial(ep, conn);
        }
    }

    fn begin_dial(&mut self, ep: &mut Endpoint, conn: ConnId) {
        let Some(dial) = self.dials.by_conn.get_mut(&conn) else { return };
        match self.cephx.authorizer(dial.kind, &mut self.rng) {
            Ok(authorizer) => {
                let payload = authorizer.request(&mut self.rng);
                dial.authorizer = Some(authorizer);
                dial.waiting = false;
                let modes = match dial.kind {
                    EntityKind::MGR | EntityKind::MON => self.config.mon_modes.clone(),
                    _ => self.config.service_modes.clone(),
                };
                ep.auth_request(conn, method::CEPHX, modes, payload);
            }
            Err(_) => dial.waiting = true,
        }
    }

    fn answer_challenge(&mut self, ep: &mut Endpoint, conn: ConnId, payload: &Bytes) {
        let authorizer = self.dials.by_conn.get(&conn).and_then(|d| d.authorizer.as_ref());
        match authorizer.map(|a| a.handle_more(payload, &mut self.rng)) {
            Some(Ok(answer)) => ep.auth_request_more(conn, answer),
            _ => self.dial_refused(ep, conn, Errno::EACCES),
        }
    }

    fn finish_dial(&mut self, ep: &mut Endpoint, conn: ConnId, payload: &Bytes) {
        let authorizer = self.dials.by_conn.get(&conn).and_then(|d| d.authorizer.as_ref());
        match authorizer.map(|a| a.handle_done(payload)) {
            Some(Ok(keys)) => ep.auth_client_done(conn, keys.session_key, keys.connection_secret),
            // Whoever it is, it does not know the session key.
            _ => self.give_up_dial(ep, conn, Errno::EACCES),
        }
    }

    /// The ticket may be under a secret that rotated away: get a new one, try again.
    fn dial_refused(&mut self, ep: &mut Endpoint, conn: ConnId, errno: Errno) {
        let Some(dial) = self.dials.by_conn.get_mut(&conn) else { return };
        dial.refusals += 1;
        if dial.refusals >= ATTEMPTS_MAX {
            return self.give_up_dial(ep, conn, errno);
        }
        dial.waiting = true;
        self.renew_at = Some(types::Mono(0));
        self.cephx.distrust_tickets();
    }

    fn give_up_dial(&mut self, ep: &mut Endpoint, conn: ConnId, errno: Errno) {
        let kind = self.dials.by_conn.remove(&conn).map_or(EntityKind(0), |d| d.kind);
        ep.close(conn);
        self.say(MonClientEvent::ServiceRefused { conn, kind, errno });
    }
}
