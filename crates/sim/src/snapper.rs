//! A client that takes snapshots: between other writes to objects of its own it takes and removes snapshots, reads at them, and
//! rolls objects back.
//!
//! Holds: what an object was when a snapshot was taken it is there until the snapshot is removed, whatever is written since.
//! The client's tasks share nothing: each has its own objects and snapshots, so that it knows what an object is when it takes one.

use crate::model::Model;
use crate::program::Clock;
use crate::cluster::POOL;
use crate::workload::{Task, Workload, Writer, await_pool, read_all};
use client::{Handle, IoCtx};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::{Errno, Snap};

/// Snapshots a task has at once, at most.
const SNAPS_MAX: usize = 6;

/// The tasks of the program called `name`; each life of it has objects of its own.
pub(crate) fn tasks(work: &Workload, name: &str, seed: u64, model: &Rc<RefCell<Model>>, handle: &Handle, clock: &Clock) -> Vec<Task> {
    model.borrow_mut().abandon(&format!("{name}."));
    let life = model.borrow_mut().lives();
    let task = |n: usize| {
        let writer = Writer::new(work.clone(), format!("{name}.{n}.{life}"), seed ^ (n as u64 + 1), model, clock);
        let rng = ChaCha8Rng::seed_from_u64(seed ^ (n as u64 + 501));
        let snapper = Snapper { writer, rng, model: model.clone(), clock: clock.clone(), seq: Snap(0), snaps: Vec::new() };
        Box::pin(snapper.run(handle.clone())) as Task
    };
    (0..work.tasks).map(task).collect()
}

struct Snapper {
    writer: Writer,
    rng: ChaCha8Rng,
    model: Rc<RefCell<Model>>,
    clock: Clock,
    /// The newest snapshot there ever was, and those there are, newest first.
    seq: Snap,
    snaps: Vec<Snap>,
}

impl Snapper {
    async fn run(mut self, handle: Handle) {
        let pool = self.writer.pool(&handle).await;
        for _ in 0..self.writer.work.ops_per_task {
            if self.model.borrow().stop {
                break;
            }
            let object = format!("{}.{}", self.writer.name, self.rng.random_range(0..self.writer.work.objects_per_task));
            self.step(&pool, &object).await;
            let pause = self.rng.random_range(0..=self.writer.work.pause_ms_max);
            self.clock.sleep(Duration::from_millis(pause)).await;
        }
        self.model.borrow_mut().ended(&self.writer.name);
    }

    async fn step(&mut self, pool: &IoCtx, object: &str) {
        let one = self.snaps.get(self.rng.random_range(0..SNAPS_MAX)).copied();
        let kept = pool.keeping(self.seq, self.snaps.clone());
        match (self.rng.random_range(0..16), one) {
            (0 | 1, _) if self.snaps.len() < SNAPS_MAX => self.take(pool).await,
            (2, Some(snap)) => self.remove(pool, snap).await,
            (3 | 4, Some(snap)) if !self.model.borrow().is_given_up(object) => self.roll_back(&kept, object, snap).await,
            (5..=8, Some(snap)) => read_at(pool, object, snap, &self.model).await,
            _ => self.writer.step(&kept, object).await,
        }
    }

    async fn take(&mut self, pool: &IoCtx) {
        match pool.create_snap().await {
            Ok(snap) => {
                self.model.borrow_mut().snapshot(snap.0, &format!("{}.", self.writer.name));
                self.seq = snap;
                self.snaps.insert(0, snap);
            }
            Err(errno) => self.model.borrow_mut().failed("", format!("taking a snapshot: {errno}")),
        }
    }

    async fn remove(&mut self, pool: &IoCtx, snap: Snap) {
        self.snaps.retain(|s| *s != snap);
        self.model.borrow_mut().forget_snapshot(snap.0);
        if let Err(errno) = pool.remove_snap(snap).await {
            self.model.borrow_mut().failed("", format!("removing a snapshot: {errno}"));
        }
    }

    async fn roll_back(&mut self, kept: &IoCtx, object: &str, snap: Snap) {
        let then = self.model.borrow().at(object, snap.0);
        let write = self.writer.begin(object, then);
        let result = kept.rollback(object.as_bytes(), snap).await;
        self.writer.wrote(object, write, "rollback of", result);
    }
}

/// Removes whatever snapshots there ever were.
pub(crate) async fn remove_all(handle: &Handle, clock: &Clock, model: &Rc<RefCell<Model>>) {
    let pool = await_pool(POOL, handle, clock).await;
    let taken = model.borrow().taken();
    for snap in taken {
        model.borrow_mut().forget_snapshot(snap);
        if let Err(errno) = pool.remove_snap(Snap(snap)).await {
            model.borrow_mut().failed("", format!("removing snapshot {snap}: {errno}"));
        }
    }
    model.borrow_mut().trimmed = true;
}

/// Reads an object as a snapshot shows it, and checks that.
pub(crate) async fn read_at(pool: &IoCtx, object: &str, snap: Snap, model: &Rc<RefCell<Model>>) {
    let result = read_all(&pool.at_snap(snap), object).await;
    let mut model = model.borrow_mut();
    match result {
        Ok(found) => model.check_at(object, snap.0, Some(&found)),
        Err(Errno::ENOENT) => model.check_at(object, snap.0, None),
        Err(errno) => model.failed("", format!("read of {object} at {}: {errno}", snap.0)),
    }
}
