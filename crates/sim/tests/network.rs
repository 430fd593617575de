//! The simulated network itself: two endpoints that keep a lossless session through everything it does to them.

use bytes::Bytes;
use msgr::{Config, Endpoint, Event, Policy};
use node::messenger::{network_actions, network_input, network_timers};
use node::{Input, Node, World};
use rand::Rng;
use sim::{Boot, Sim, SimWorld, Tunables};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use types::msg::RawMessage;
use types::{AddrVec, EntityAddr, EntityKind, Mono};

const MESSAGES: u64 = 50;

/// Sends numbered messages to its peer now and then, and notes what it receives.
struct Chatter {
    endpoint: Endpoint,
    peer: AddrVec,
    sent: u64,
    next_at: Mono,
    received: Rc<RefCell<Vec<u64>>>,
}

impl Chatter {
    fn own(&mut self) {
        let none = Bytes::new;
        while let Some(event) = self.endpoint.poll_event() {
            let e = &mut self.endpoint;
            match event {
                Event::AuthStart { conn } => e.auth_request(conn, 1, vec![1], none()),
                Event::AuthDone { conn, .. } => e.auth_client_done(conn, none(), none()),
                Event::AuthRequest { conn, .. } => e.auth_server_done(conn, 1, 1, none(), none(), none()),
                Event::Message { msg, .. } => self.received.borrow_mut().push(msg.tid),
                _ => {}
            }
        }
    }
}

impl<W: World> Node<W> for Chatter {
    fn handle(&mut self, world: &mut W, input: Input) {
        network_input(&mut self.endpoint, world, input);
        network_timers(&mut self.endpoint, world);
        let now = world.now();
        if now.mono >= self.next_at && self.sent < MESSAGES {
            self.sent += 1;
            self.next_at = now.mono + std::time::Duration::from_millis(200);
            let conn = self.endpoint.connect(now, EntityKind::OSD, &self.peer, Policy::LosslessPeer);
            let front = Bytes::from(vec![self.sent as u8; 3000]);
            self.endpoint.send(now, conn, RawMessage { tid: self.sent, front, ..RawMessage::default() });
        }
        if self.sent < MESSAGES {
            world.wake_at(self.next_at);
        }
        self.own();
    }

    fn settle(&mut self, world: &mut W) {
        network_actions(&mut self.endpoint, world);
        self.own();
    }

    fn stopped(&self) -> Option<i32> {
        None
    }
}

fn addrs(host: u8) -> AddrVec {
    AddrVec(vec![EntityAddr::msgr2(SocketAddr::from(([10, 0, 0, host], 6800)), 7)])
}

/// Two chatters through cuts and partitions; what each received, and the run's hash.
fn run(seed: u64) -> (Vec<Vec<u64>>, u64) {
    let mut sim = Sim::new(seed, Tunables::default());
    sim.log.verbose = std::env::var("SEED").is_ok();
    let logs: Vec<Rc<RefCell<Vec<u64>>>> = (0..2).map(|_| Rc::default()).collect();
    let hosts: Vec<_> = (1..=2u8)
        .map(|n| {
            let received = logs[usize::from(n) - 1].clone();
            sim.add(&format!("chatter {n}"), 6800, 0, move |boot: Boot<'_>| -> Box<dyn Node<SimWorld>> {
                let mut config = Config::new(EntityKind::OSD, n.into(), addrs(n), 1 << 59);
                config.accept = vec![(EntityKind::OSD, Policy::LosslessPeer)];
                let endpoint = Endpoint::new(config, boot.seed);
                let (peer, received) = (addrs(3 - n), received.clone());
                Box::new(Chatter { endpoint, peer, sent: 0, next_at: boot.now.mono, received })
            })
        })
        .collect();
    hosts.iter().for_each(|h| sim.start(*h));
    for _ in 0..20 {
        let until = sim.now_ns() + sim.rng().random_range(1..2_000_000_000);
        sim.run_until(until);
        match sim.rng().random_range(0..4) {
            0 => sim.partition(hosts[0], hosts[1]),
            1 => sim.cut_connections(1),
            _ => sim.heal(),
        }
    }
    sim.heal();
    sim.run_until(sim.now_ns() + 60_000_000_000);
    (logs.iter().map(|l| l.borrow().clone()).collect(), sim.log.hash())
}

#[test]
fn lossless_sessions_deliver_once_and_in_order_through_cuts_and_partitions() {
    let one = std::env::var("SEED").ok().and_then(|s| s.parse::<u64>().ok());
    for seed in one.map_or(0..100, |s| s..s + 1) {
        let (received, _) = run(seed);
        for got in received {
            assert_eq!(got, (1..=MESSAGES).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_run_and_another_seed_another() {
    let hashes: Vec<u64> = (0..20).map(|seed| run(seed).1).collect();
    assert_eq!(hashes, (0..20).map(|seed| run(seed).1).collect::<Vec<_>>());
    assert!(hashes.windows(2).all(|w| w[0] != w[1]));
}
