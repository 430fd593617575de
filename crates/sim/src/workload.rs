//! What simulated clients do: write, change and remove objects of their own, and check what they read.

use crate::program::Clock;
use crate::model::Model;
use bytes::Bytes;
use client::{Handle, IoCtx};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use types::Errno;

/// How much a client does.
#[derive(Debug, Clone)]
pub struct Workload {
    pub pool: String,
    /// Writers at once, each with objects of its own.
    pub tasks: usize,
    pub objects_per_task: usize,
    /// At most; `Model::stop` ends them earlier.
    pub ops_per_task: usize,
    /// Contents are up to this long.
    pub bytes_max: usize,
    pub pause_ms_max: u64,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

impl Workload {
    /// The tasks of the program called `name`.
    pub fn tasks(&self, name: &str, seed: u64, model: &Rc<RefCell<Model>>, handle: &Handle, clock: &Clock) -> Vec<Task> {
        (0..self.tasks)
            .map(|n| {
                let writer = Writer {
                    work: self.clone(),
                    name: format!("{name}.{n}"),
                    rng: ChaCha8Rng::seed_from_u64(seed ^ (n as u64 + 1)),
                    model: model.clone(),
                    clock: clock.clone(),
                };
                let handle = handle.clone();
                Box::pin(writer.run(handle)) as Task
            })
            .collect()
    }
}

struct Writer {
    work: Workload,
    name: String,
    rng: ChaCha8Rng,
    model: Rc<RefCell<Model>>,
    clock: Clock,
}

impl Writer {
    async fn run(mut self, handle: Handle) {
        let pool = self.pool(&handle).await;
        for _ in 0..self.work.ops_per_task {
            if self.model.borrow().stop {
                break;
            }
            let object = format!("{}.{}", self.name, self.rng.random_range(0..self.work.objects_per_task));
            self.step(&pool, &object).await;
            let pause = self.rng.random_range(0..=self.work.pause_ms_max);
            self.clock.sleep(Duration::from_millis(pause)).await;
        }
        self.model.borrow_mut().finished += 1;
    }

    /// Waits for the pool to be there.
    async fn pool(&self, handle: &Handle) -> IoCtx {
        loop {
            if handle.connect().await.is_ok()
                && let Ok(pool) = handle.pool(&self.work.pool).await
            {
                return pool;
            }
            self.clock.sleep(Duration::from_millis(500)).await;
        }
    }

    async fn step(&mut self, pool: &IoCtx, object: &str) {
        let now = self.model.borrow().content(object);
        match (self.rng.random_range(0..10), now) {
            (0..=2, _) => self.read(pool, object).await,
            (3, Some(_)) => self.remove(pool, object).await,
            (4..=6, Some(content)) => self.overwrite(pool, object, content).await,
            (7, Some(content)) => self.append(pool, object, content).await,
            _ => self.write_full(pool, object).await,
        }
    }

    /// Bytes that no other write of the run has.
    fn fresh(&mut self, len: usize) -> Bytes {
        let mut data = vec![0; len];
        self.rng.fill(&mut data[..]);
        data.into()
    }

    async fn write_full(&mut self, pool: &IoCtx, object: &str) {
        let len = self.rng.random_range(1..=self.work.bytes_max);
        let data = self.fresh(len);
        self.model.borrow_mut().begin(object, Some(data.to_vec()));
        let result = pool.write_full(object.as_bytes(), data).await;
        self.wrote(object, "write_full", result);
    }

    async fn overwrite(&mut self, pool: &IoCtx, object: &str, mut content: Vec<u8>) {
        let offset = self.rng.random_range(0..=content.len());
        let len = self.rng.random_range(1..=self.work.bytes_max / 2);
        let data = self.fresh(len);
        content.resize(content.len().max(offset + data.len()), 0);
        content[offset..offset + data.len()].copy_from_slice(&data);
        self.model.borrow_mut().begin(object, Some(content));
        let result = pool.write(object.as_bytes(), offset as u64, data).await;
        self.wrote(object, "write", result);
    }

    async fn append(&mut self, pool: &IoCtx, object: &str, mut content: Vec<u8>) {
        let len = self.rng.random_range(1..=512);
        let data = self.fresh(len);
        content.extend_from_slice(&data);
        self.model.borrow_mut().begin(object, Some(content));
        let result = pool.append(object.as_bytes(), data).await;
        self.wrote(object, "append", result);
    }

    async fn remove(&mut self, pool: &IoCtx, object: &str) {
        self.model.borrow_mut().begin(object, None);
        let result = pool.remove(object.as_bytes()).await;
        self.wrote(object, "remove", result);
    }

    fn wrote(&self, object: &str, what: &str, result: Result<(), Errno>) {
        let mut model = self.model.borrow_mut();
        match result {
            Ok(()) => model.acknowledged(object),
            Err(errno) => model.fault(format!("{what} of {object}: {errno}")),
        }
    }

    async fn read(&mut self, pool: &IoCtx, object: &str) {
        read_and_check(pool, object, &self.model).await;
    }
}

async fn read_and_check(pool: &IoCtx, object: &str, model: &Rc<RefCell<Model>>) {
    let result = pool.read(object.as_bytes(), 0, 0).await;
    let mut model = model.borrow_mut();
    match result {
        Ok(found) => model.check(object, Some(&found)),
        Err(Errno::ENOENT) => model.check(object, None),
        Err(errno) => model.fault(format!("read of {object}: {errno}")),
    }
}

/// A task that reads every object there ever was and checks it.
pub fn read_everything(pool: String, model: Rc<RefCell<Model>>, handle: Handle, clock: Clock) -> Task {
    Box::pin(async move {
        let io = loop {
            if handle.connect().await.is_ok()
                && let Ok(io) = handle.pool(&pool).await
            {
                break io;
            }
            clock.sleep(Duration::from_millis(500)).await;
        };
        let names = model.borrow().names();
        for name in names {
            read_and_check(&io, &name, &model).await;
        }
        model.borrow_mut().finished += 1;
    })
}
