//! The monitor in its world: one endpoint, the core, its store, sessions to the other members.
//!
//! Room: node.   Owns: `MonNode`.   Hears: `Input`.   Says: bytes, wake-ups.
//! Holds: nothing is decided here; sessions of the core are connections of the endpoint, number for number.

mod links;

use self::links::{LinkEvent, Links};
use crate::messenger::{network_actions, network_input, network_timers};
use crate::world::{Input, Node, World};
use auth::method;
use mon::{Effect, Env, Mon, OpenError, SessionId};
use msgr::{Config, ConnId, Endpoint, Event};
use store::{IoId, Kv};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::time::Duration;
use types::msg::internal_mon::{MonPeer, MonPeerReply};
use types::msg::{RawMessage, WireMessage};
use types::{EntityKind, Mono, Now, features};

/// One monitor daemon.
pub struct MonNode<K: Kv> {
    endpoint: Endpoint,
    mon: Mon<K>,
    links: Links,
    stopped: Option<i32>,
    /// Looks at the room that the store has, and when it does so next.
    look: Option<Look>,
    look_at: Mono,
}

/// Tells how many percent of the store's file system are available, and how large the store is; nothing if it cannot.
type Look = Box<dyn FnMut() -> Option<(u8, u64)>>;

/// `mon_tick_interval`.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl<K: Kv> MonNode<K> {
    /// Opens the monitor of `env` on its formatted `kv`; it listens where `env.addrs` says, which the caller binds.
    pub fn new(env: Env, kv: K, now: Now, seed: u64) -> Result<Self, OpenError> {
        let addrs = env.addrs.clone();
        let mon = Mon::open(env, kv, now, seed)?;
        // As it is now: it may change, and nobody asks a session for it.
        let config = Config::new(EntityKind::MON, mon.rank().map_or(-1, |rank| rank as i64), addrs, features::SUPPORTED);
        let rng = ChaCha8Rng::seed_from_u64(seed.rotate_left(32));
        let links = Links::new(mon.peer_key(), rng);
        Ok(MonNode { endpoint: Endpoint::new(config, seed), mon, links, stopped: None, look: None, look_at: Mono(0) })
    }

    /// From here on `look` is asked every few seconds.
    pub fn watch_room(&mut self, look: impl FnMut() -> Option<(u8, u64)> + 'static) {
        self.look = Some(Box::new(look));
    }

    /// The core, for tools and tests that look at its state.
    pub fn mon(&self) -> &Mon<K> {
        &self.mon
    }

    fn on_event(&mut self, now: Now, event: Event) {
        match self.links.handle_event(now, &mut self.endpoint, event) {
            Ok(Some(LinkEvent::Opened(member))) => self.mon.handle_link(now, &member, true),
            Ok(Some(LinkEvent::Lost(member))) => self.mon.handle_link(now, &member, false),
            Ok(Some(LinkEvent::Answer(member, answer))) => self.mon.handle_peer_answer(now, &member, answer),
            Ok(None) => {}
            Err(event) => self.on_accepted(now, event),
        }
    }

    /// Events of sessions that others opened.
    fn on_accepted(&mut self, now: Now, event: Event) {
        match event {
            Event::AuthRequest { conn, first, method, modes, payload, peer_kind } if peer_kind == EntityKind::MON => {
                self.mon.handle_peer_auth(now, session(conn), first, method, &modes, &payload);
            }
            Event::AuthRequest { conn, first, method, modes, payload, .. } => {
                self.mon.handle_auth(now, session(conn), first, method, &modes, payload);
            }
            Event::Ready { conn, peer } => self.mon.handle_ready(now, session(conn), peer.kind, peer.addrs, peer.features),
            Event::Message { conn, msg } if msg.kind == MonPeer::KIND => self.on_peer(now, conn, &msg),
            Event::Message { conn, msg } => self.mon.handle_message(now, session(conn), msg),
            Event::Reset { conn, .. } => self.mon.handle_reset(session(conn)),
            // Keepalives are the endpoint's.
            _ => {}
        }
    }

    fn on_peer(&mut self, now: Now, conn: ConnId, msg: &RawMessage) {
        match MonPeer::from_raw(msg) {
            Ok(m) => self.mon.handle_peer(now, session(conn), m.from, m.says),
            Err(why) => tracing::warn!(?conn, "a message of another monitor: {why}"),
        }
    }

    fn on_effect(&mut self, now: Now, effect: Effect) {
        let ep = &mut self.endpoint;
        match effect {
            Effect::Send { session, tid, message } => {
                let mut raw = message.to_raw(features::SUPPORTED);
                raw.tid = tid;
                ep.send(now, ConnId(session.0), raw);
            }
            Effect::AuthMore { session, payload } => ep.auth_reply_more(ConnId(session.0), payload),
            Effect::AuthDone { session, mode, granted } => {
                let g = *granted;
                ep.auth_server_done(ConnId(session.0), g.global_id, mode, g.payload, g.session_key, g.connection_secret);
            }
            Effect::AuthBad { session, method: asked, errno } => {
                ep.auth_bad_method(ConnId(session.0), asked, errno, vec![method::CEPHX], self.mon.service_modes());
            }
            Effect::Close { session } => ep.close(ConnId(session.0)),
            Effect::Pass { session, message } => ep.send(now, ConnId(session.0), message),
            Effect::Peer { to, says } => self.links.say(now, ep, self.mon.id(), &to, says),
            Effect::Peers { all } => {
                for gone in self.links.keep(now, ep, all) {
                    self.mon.handle_link(now, &gone, false);
                }
            }
            Effect::Leave => self.stopped = Some(0),
            Effect::PeerAnswer { link, answer } => {
                ep.send(now, ConnId(link.0), MonPeerReply { answer }.to_raw(features::SUPPORTED));
            }
            Effect::Fatal { reason } => {
                tracing::error!("ending: {reason}");
                self.stopped = Some(1);
            }
        }
    }

    fn pump(&mut self, now: Now) {
        loop {
            let mut idle = true;
            while let Some(event) = self.endpoint.poll_event() {
                idle = false;
                self.on_event(now, event);
            }
            while let Some(effect) = self.mon.poll_effect() {
                idle = false;
                self.on_effect(now, effect);
            }
            if idle {
                return;
            }
        }
    }
}

fn session(conn: ConnId) -> SessionId {
    SessionId(conn.0)
}

impl<W: World, K: Kv> Node<W> for MonNode<K> {
    fn handle(&mut self, world: &mut W, input: Input) {
        let now = world.now();
        match network_input(&mut self.endpoint, world, input) {
            Some(Input::Io { id, result }) => self.mon.handle_io(now, IoId(id), result),
            // Everything that was answered is flushed; what is not may be lost, as in a crash.
            Some(Input::Stop) => self.stopped = Some(0),
            Some(Input::Admin { id, request }) => {
                let reply = self.mon.handle_admin(now, &request);
                world.admin_reply(id, reply);
            }
            _ => {}
        }
        network_timers(&mut self.endpoint, world);
        if self.mon.next_timeout() <= now.mono {
            self.mon.handle_timeout(now);
        }
        if let Some(look) = self.look.as_mut().filter(|_| self.look_at <= now.mono) {
            self.look_at = now.mono + LOOK_EVERY;
            if let Some((available_percent, store_bytes)) = look() {
                self.mon.handle_room(available_percent, store_bytes);
            }
        }
        if self.links.next_timeout().is_some_and(|at| at <= now.mono) {
            self.links.handle_timeout(now, &mut self.endpoint);
        }
        self.pump(now);
    }

    fn settle(&mut self, world: &mut W) {
        self.pump(world.now());
        if self.stopped.is_some_and(|code| code != 0) {
            // The database failed, perhaps in the middle of this turn: nobody is to rely on what was said since.
            return;
        }
        network_actions(&mut self.endpoint, world);
        world.wake_at(self.mon.next_timeout());
        if let Some(at) = self.links.next_timeout() {
            world.wake_at(at);
        }
    }

    fn stopped(&self) -> Option<i32> {
        self.stopped
    }
}
