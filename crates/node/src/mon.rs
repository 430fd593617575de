//! The monitor in its world: one endpoint, the core, its store.
//!
//! Room: node.   Owns: `MonNode`.   Hears: `Input`.   Says: bytes, wake-ups.
//! Holds: nothing is decided here; sessions of the core are connections of the endpoint, number for number.

use crate::messenger::{network_actions, network_input, network_timers};
use crate::world::{Input, Node, World};
use auth::{method, mode};
use mon::{Effect, Env, Mon, OpenError, SessionId};
use msgr::{Config, ConnId, Endpoint, Event};
use store::{IoId, Kv};
use types::{EntityKind, Now, features};

/// One monitor daemon.
pub struct MonNode<K: Kv> {
    endpoint: Endpoint,
    mon: Mon<K>,
    stopped: Option<i32>,
}

impl<K: Kv> MonNode<K> {
    /// Opens the monitor of `env` on its formatted `kv`; it listens where `env.addrs` says, which the caller binds.
    pub fn new(env: Env, kv: K, now: Now, seed: u64) -> Result<Self, OpenError> {
        let addrs = env.addrs.clone();
        let mon = Mon::open(env, kv, now, seed)?;
        let config = Config::new(EntityKind::MON, 0, addrs, features::SUPPORTED);
        Ok(MonNode { endpoint: Endpoint::new(config, seed), mon, stopped: None })
    }

    /// The core, for tools and tests that look at its state.
    pub fn mon(&self) -> &Mon<K> {
        &self.mon
    }

    fn on_event(&mut self, now: Now, event: Event) {
        match event {
            Event::AuthRequest { conn, first, method, modes, payload, .. } => {
                self.mon.handle_auth(now, session(conn), first, method, &modes, payload);
            }
            Event::Ready { conn, peer } => self.mon.handle_ready(now, session(conn), peer.kind, peer.addrs, peer.features),
            Event::Message { conn, msg } => self.mon.handle_message(now, session(conn), msg),
            Event::Reset { conn, .. } => self.mon.handle_reset(session(conn)),
            // Dialled sessions come with the second monitor; keepalives are the endpoint's.
            _ => {}
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
                let modes = vec![mode::SECURE, mode::CRC];
                ep.auth_bad_method(ConnId(session.0), asked, errno, vec![method::CEPHX], modes);
            }
            Effect::Close { session } => ep.close(ConnId(session.0)),
            Effect::Peer { to, .. } => tracing::error!("consensus with member {to}: monitors beyond the first are not built yet"),
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
        self.pump(now);
    }

    fn settle(&mut self, world: &mut W) {
        self.pump(world.now());
        network_actions(&mut self.endpoint, world);
        world.wake_at(self.mon.next_timeout());
    }

    fn stopped(&self) -> Option<i32> {
        self.stopped
    }
}
