//! An endpoint in its world: inputs of the network go in, its actions go out.
//!
//! Room: node.   Hears: socket inputs.   Says: dials, bytes, closes.

use crate::world::{Input, World};
use msgr::{Action, Endpoint};

/// Gives `input` to the endpoint if it is the network's; returns it if it is not.
pub fn network_input<W: World>(endpoint: &mut Endpoint, world: &W, input: Input) -> Option<Input> {
    let now = world.now();
    match input {
        Input::Accepted { sock, peer, local } => endpoint.handle_accepted(now, sock, peer, local),
        Input::Connected { sock, local } => endpoint.handle_connected(now, sock, local),
        Input::Bytes { sock, data } => endpoint.handle_bytes(now, sock, data),
        Input::Closed { sock, .. } => endpoint.handle_closed(now, sock),
        other => return Some(other),
    }
    None
}

/// Lets the endpoint's timers run if they are due.
pub fn network_timers<W: World>(endpoint: &mut Endpoint, world: &W) {
    let now = world.now();
    if endpoint.next_timeout().is_some_and(|at| at <= now.mono) {
        endpoint.handle_timeout(now);
    }
}

/// Carries out everything the endpoint wants done, and asks for the wake-up it needs.
pub fn network_actions<W: World>(endpoint: &mut Endpoint, world: &mut W) {
    while let Some(action) = endpoint.poll_action() {
        carry_out(world, action);
    }
    if let Some(at) = endpoint.next_timeout() {
        world.wake_at(at);
    }
}

/// Carries out what an endpoint wants done.
pub fn carry_out<W: World>(world: &mut W, action: Action) {
    match action {
        Action::Dial { sock, addr } => world.dial(sock, addr),
        Action::Transmit { sock, bufs } => world.transmit(sock, bufs),
        Action::Close { sock } => world.close(sock),
    }
}
