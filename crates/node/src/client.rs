//! A native client in its world.
//!
//! Room: node.   Owns: `Client`.   Hears: socket inputs; `Input::Io`, which here means that a handle has called.

use crate::messenger::carry_out;
use crate::world::{Input, Node, World};
use client::Client;

/// Drives a client until it is told to stop.
pub struct ClientNode {
    client: Client,
    started: bool,
    stopped: bool,
}

impl ClientNode {
    /// A node of a client that has not started.
    pub fn new(client: Client) -> Self {
        ClientNode { client, started: false, stopped: false }
    }
}

impl<W: World> Node<W> for ClientNode {
    fn handle(&mut self, world: &mut W, input: Input) {
        let now = world.now();
        if !self.started {
            self.started = true;
            self.client.start(now);
        }
        match input {
            Input::Connected { sock, local } => self.client.handle_connected(now, sock, local),
            Input::Bytes { sock, data } => self.client.handle_bytes(now, sock, data),
            Input::Closed { sock, .. } => self.client.handle_closed(now, sock),
            Input::Stop => {
                self.client.stop();
                self.stopped = true;
            }
            // Nobody connects to a client, and it has no admin socket.
            Input::Io { .. } | Input::Accepted { .. } | Input::Admin { .. } | Input::Wake => {}
        }
    }

    fn settle(&mut self, world: &mut W) {
        let now = world.now();
        self.client.handle_calls(now);
        if self.client.next_timeout().is_some_and(|at| at <= now.mono) {
            self.client.handle_timeout(now);
        }
        while let Some(action) = self.client.poll_action() {
            carry_out(world, action);
        }
        if let Some(at) = self.client.next_timeout() {
            world.wake_at(at);
        }
    }

    fn stopped(&self) -> Option<i32> {
        self.stopped.then_some(0)
    }
}
