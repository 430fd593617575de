//! A simulated program over the native client: its tasks are plain futures over `client::Handle`.

use crate::world::SimWorld;
use client::{Client, Handle, MonClientConfig};
use node::messenger::carry_out;
use node::{Input, Node, World};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use types::Mono;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What tasks tell the time by.
#[derive(Clone, Default)]
pub struct Clock(Rc<RefCell<Times>>);

#[derive(Default)]
struct Times {
    now: Mono,
    wanted: BTreeSet<Mono>,
}

impl Clock {
    /// The process's monotonic time.
    pub fn now(&self) -> Mono {
        self.0.borrow().now
    }

    /// Waits.
    pub async fn sleep(&self, how_long: Duration) {
        let at = self.now() + how_long;
        self.0.borrow_mut().wanted.insert(at);
        std::future::poll_fn(|_| if self.now() >= at { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn set(&self, now: Mono) {
        let mut times = self.0.borrow_mut();
        times.now = now;
        times.wanted = times.wanted.split_off(&Mono(now.0 + 1));
    }

    fn next(&self) -> Option<Mono> {
        self.0.borrow().wanted.first().copied()
    }
}

/// Ends when all of `tasks` have.
pub async fn all<F: Future<Output = ()> + ?Sized>(tasks: &mut Vec<Pin<Box<F>>>) {
    std::future::poll_fn(|cx| {
        tasks.retain_mut(|task| task.as_mut().poll(cx).is_pending());
        if tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await
}

/// A process that runs tasks over one client.
pub struct Program {
    client: Client,
    called: Arc<AtomicBool>,
    clock: Clock,
    tasks: Vec<Task>,
    started: bool,
}

impl Program {
    /// `tasks` makes what the program does.
    pub fn new(config: MonClientConfig, nonce: u32, seed: u64, tasks: impl FnOnce(Handle, Clock) -> Vec<Task>) -> Self {
        let called = Arc::new(AtomicBool::new(false));
        let wake = called.clone();
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let (client, handle) = Client::new(config, nonce, bytes, Arc::new(move || wake.store(true, Ordering::Relaxed)));
        let clock = Clock::default();
        let tasks = tasks(handle, clock.clone());
        Program { client, called, clock, tasks, started: false }
    }

    /// Lets tasks and client answer each other until neither has more to say.
    fn run_tasks(&mut self, world: &SimWorld) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            self.tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
            if !self.called.swap(false, Ordering::Relaxed) {
                return;
            }
            self.client.handle_calls(world.now());
        }
    }
}

impl Node<SimWorld> for Program {
    fn handle(&mut self, world: &mut SimWorld, input: Input) {
        let now = world.now();
        self.clock.set(now.mono);
        if !std::mem::replace(&mut self.started, true) {
            self.client.start(now);
        }
        match input {
            Input::Connected { sock, local } => self.client.handle_connected(now, sock, local),
            Input::Bytes { sock, data } => self.client.handle_bytes(now, sock, data),
            Input::Closed { sock, .. } => self.client.handle_closed(now, sock),
            _ => {}
        }
        if self.client.next_timeout().is_some_and(|at| at <= now.mono) {
            self.client.handle_timeout(now);
        }
        self.run_tasks(world);
    }

    fn settle(&mut self, world: &mut SimWorld) {
        while let Some(action) = self.client.poll_action() {
            carry_out(world, action);
        }
        if let Some(at) = [self.client.next_timeout(), self.clock.next()].into_iter().flatten().min() {
            world.wake_at(at);
        }
    }

    fn stopped(&self) -> Option<i32> {
        None
    }
}
