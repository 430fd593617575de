//! What simulated clients do: write, change and remove objects of their own, and check what they read.

use crate::program::{self, Clock};
use crate::model::{Content, Model};
use crate::snapper;
use bytes::Bytes;
use client::{Handle, IoCtx, Omap};
use denc::BString;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use types::{Errno, Snap};
use types::msg::{Op, OsdOp};

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
    /// Writes that find no room fail, as they may here; else they would wait.
    pub full_try: bool,
    /// The pool has omaps.
    pub omaps: bool,
}

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

impl Workload {
    /// The tasks of the program called `name`.
    pub fn tasks(&self, name: &str, seed: u64, model: &Rc<RefCell<Model>>, handle: &Handle, clock: &Clock) -> Vec<Task> {
        model.borrow_mut().abandon(&format!("{name}."));
        (0..self.tasks)
            .map(|n| {
                let writer = Writer::new(self.clone(), format!("{name}.{n}"), seed ^ (n as u64 + 1), model, clock);
                let handle = handle.clone();
                Box::pin(writer.run(handle)) as Task
            })
            .collect()
    }
}

/// One who writes objects of his own.
pub(crate) struct Writer {
    pub work: Workload,
    pub name: String,
    rng: ChaCha8Rng,
    model: Rc<RefCell<Model>>,
    clock: Clock,
}

impl Writer {
    pub fn new(work: Workload, name: String, seed: u64, model: &Rc<RefCell<Model>>, clock: &Clock) -> Self {
        Writer { work, name, rng: ChaCha8Rng::seed_from_u64(seed), model: model.clone(), clock: clock.clone() }
    }

    async fn run(mut self, handle: Handle) {
        let pool = self.pool(&handle).await;
        for _ in 0..self.work.ops_per_task {
            if self.model.borrow().stop {
                break;
            }
            let mut object = format!("{}.{}", self.name, self.rng.random_range(0..self.work.objects_per_task));
            if let era @ 1.. = self.model.borrow().era {
                object += &format!(".{era}");
            }
            self.step(&pool, &object).await;
            let pause = self.rng.random_range(0..=self.work.pause_ms_max);
            self.clock.sleep(Duration::from_millis(pause)).await;
        }
        self.model.borrow_mut().ended(&self.name);
    }

    /// Waits for the pool to be there.
    pub async fn pool(&self, handle: &Handle) -> IoCtx {
        loop {
            if handle.connect().await.is_ok()
                && let Ok(pool) = handle.pool(&self.work.pool).await
            {
                return if self.work.full_try { pool.full_try() } else { pool };
            }
            self.clock.sleep(Duration::from_millis(500)).await;
        }
    }

    pub async fn step(&mut self, pool: &IoCtx, object: &str) {
        if self.model.borrow().is_given_up(object) {
            return self.read(pool, object).await;
        }
        let now = self.model.borrow().content(object);
        match (self.rng.random_range(0..14), now) {
            (0..=2, _) => self.read(pool, object).await,
            (3, Some(_)) => self.remove(pool, object).await,
            (4..=6, Some(content)) => self.overwrite(pool, object, content).await,
            (7, Some(content)) => self.append(pool, object, content).await,
            (8, Some(content)) => self.cut(pool, object, content).await,
            (9, Some(content)) => self.xattr(pool, object, content).await,
            (10 | 11, Some(content)) if self.work.omaps => self.omap(pool, object, content).await,
            (12, Some(content)) if !self.work.full_try => self.burst(pool, object, content).await,
            (_, content) => self.write_full(pool, object, content.unwrap_or_default()).await,
        }
    }

    /// Bytes that no other write of the run has.
    fn fresh(&mut self, len: usize) -> Bytes {
        let mut data = vec![0; len];
        self.rng.fill(&mut data[..]);
        if data.first().is_some_and(|b| b % 2 == 0) {
            // Some can be compressed, but for the beginning of each piece.
            for piece in data.chunks_mut(20_000) {
                let (first, noise): (u8, usize) = (piece[0], piece.len() / 8);
                piece.iter_mut().enumerate().skip(noise.max(512)).for_each(|(i, b)| *b = first.wrapping_add((i / 300) as u8));
            }
        }
        data.into()
    }

    pub fn begin(&self, object: &str, content: Option<Content>) -> u64 {
        self.model.borrow_mut().begin(object, content)
    }

    async fn write_full(&mut self, pool: &IoCtx, object: &str, mut content: Content) {
        let len = self.rng.random_range(1..=self.work.bytes_max);
        let data = self.fresh(len);
        content.data = data.to_vec();
        let write = self.begin(object, Some(content));
        let result = pool.write_full(object.as_bytes(), data).await;
        self.wrote(object, write, "write_full", result);
    }

    async fn overwrite(&mut self, pool: &IoCtx, object: &str, mut content: Content) {
        let offset = self.rng.random_range(0..=content.data.len());
        let len = self.rng.random_range(1..=self.work.bytes_max / 2);
        let data = self.fresh(len);
        content.data.resize(content.data.len().max(offset + data.len()), 0);
        content.data[offset..offset + data.len()].copy_from_slice(&data);
        let write = self.begin(object, Some(content));
        let result = pool.write(object.as_bytes(), offset as u64, data).await;
        self.wrote(object, write, "write", result);
    }

    async fn append(&mut self, pool: &IoCtx, object: &str, mut content: Content) {
        let len = self.rng.random_range(1..=512);
        let data = self.fresh(len);
        content.data.extend_from_slice(&data);
        let write = self.begin(object, Some(content));
        let result = pool.append(object.as_bytes(), data).await;
        self.wrote(object, write, "append", result);
    }

    /// Some writes at once, none of which waits for the one before: they happen in this order.
    async fn burst(&mut self, pool: &IoCtx, object: &str, mut content: Content) {
        // At one moment, or so far from each other that what the first one meets is over when the next one comes.
        let apart = Duration::from_millis([0, 3, 30, 300][self.rng.random_range(0..4)]);
        let drawn = |this: &mut Self| {
            let len = this.rng.random_range(1..=512);
            (this.fresh(len), this.rng.random_ratio(1, 4))
        };
        let pieces: Vec<(Bytes, bool)> = (0..self.rng.random_range(2..=5)).map(|_| drawn(self)).collect();
        let this = &*self;
        let write = |(n, (data, full)): (usize, (Bytes, bool))| {
            if full {
                content.data.clear();
            }
            content.data.extend_from_slice(&data);
            let write = this.begin(object, Some(content.clone()));
            Box::pin(async move {
                if n > 0 && !apart.is_zero() {
                    this.clock.sleep(apart * n as u32).await;
                }
                let (what, result) = match full {
                    true => ("write_full, with others, of", pool.write_full(object.as_bytes(), data).await),
                    false => ("append, with others, to", pool.append(object.as_bytes(), data).await),
                };
                this.wrote(object, write, what, result);
            })
        };
        let mut writes: Vec<_> = pieces.into_iter().enumerate().map(write).collect();
        program::all(&mut writes).await
    }

    /// Cuts the object short, makes it longer, or makes a hole in it.
    async fn cut(&mut self, pool: &IoCtx, object: &str, mut content: Content) {
        let size = content.data.len();
        let at = self.rng.random_range(0..=size + 5000);
        if self.rng.random() {
            content.data.resize(at, 0);
            let write = self.begin(object, Some(content));
            let result = pool.truncate(object.as_bytes(), at as u64).await;
            return self.wrote(object, write, "truncate", result);
        }
        let (from, len) = (at.min(size), self.rng.random_range(1..=20_000));
        // Zeros to the end and beyond cut the object short (PrimaryLogPG::do_osd_ops makes a truncate of it).
        match content.data.get_mut(from..from + len).filter(|_| from + len < size) {
            Some(hole) => hole.fill(0),
            None => content.data.truncate(from),
        }
        let write = self.begin(object, Some(content));
        let result = pool.zero(object.as_bytes(), from as u64, len as u64).await;
        self.wrote(object, write, "zero", result);
    }

    async fn xattr(&mut self, pool: &IoCtx, object: &str, mut content: Content) {
        let name = BString::from(format!("x{}", self.rng.random_range(0..4)).as_str());
        if self.rng.random_ratio(1, 3) && content.xattrs.remove(&name).is_some() {
            let write = self.begin(object, Some(content));
            let result = pool.rmxattr(object.as_bytes(), &name).await;
            return self.wrote(object, write, "rmxattr", result);
        }
        let len = self.rng.random_range(0..300);
        let value = self.fresh(len);
        content.xattrs.insert(name.clone(), value.clone());
        let write = self.begin(object, Some(content));
        let result = pool.setxattr(object.as_bytes(), &name, &value).await;
        self.wrote(object, write, "setxattr", result);
    }

    async fn omap(&mut self, pool: &IoCtx, object: &str, mut content: Content) {
        match self.rng.random_range(0..8) {
            0 => {
                content.omap.clear();
                let write = self.begin(object, Some(content));
                let result = pool.omap_clear(object.as_bytes()).await;
                self.wrote(object, write, "omap_clear", result);
            }
            1 | 2 => {
                let gone = content.omap.keys().filter(|_| self.rng.random_ratio(1, 3)).cloned().collect();
                content.omap.retain(|k, _| !std::collections::BTreeSet::contains(&gone, k));
                let write = self.begin(object, Some(content));
                let result = pool.omap_rm_keys(object.as_bytes(), &gone).await;
                self.wrote(object, write, "omap_rm_keys", result);
            }
            _ => {
                // Sometimes more than one part of a push holds.
                let n = if self.rng.random_ratio(1, 8) { 700 } else { self.rng.random_range(1..20) };
                let values: Omap = (0..n)
                    .map(|_| {
                        let key = BString::from(format!("k{:04}", self.rng.random_range(0..1000)).as_str());
                        let len = self.rng.random_range(0..40);
                        (key, self.fresh(len))
                    })
                    .collect();
                content.omap.extend(values.clone());
                let write = self.begin(object, Some(content));
                let result = pool.omap_set(object.as_bytes(), &values).await;
                self.wrote(object, write, "omap_set", result);
            }
        }
    }

    async fn remove(&mut self, pool: &IoCtx, object: &str) {
        let write = self.begin(object, None);
        let result = pool.remove(object.as_bytes()).await;
        self.wrote(object, write, "remove", result);
    }

    pub fn wrote(&self, object: &str, write: u64, what: &str, result: Result<(), Errno>) {
        let mut model = self.model.borrow_mut();
        model.tell(|| format!("{what} {object}: {}", result.map_or_else(|e| e.to_string(), |()| "acknowledged".into())));
        match result {
            Ok(()) => model.acknowledged(object, write),
            Err(Errno::ENOSPC) if self.work.full_try => model.refused(object),
            Err(errno) => model.failed(object, format!("{what} of {object}: {errno}")),
        }
    }

    async fn read(&mut self, pool: &IoCtx, object: &str) {
        read_and_check(pool, object, &self.model).await;
    }
}

async fn read_and_check(pool: &IoCtx, object: &str, model: &Rc<RefCell<Model>>) {
    let result = read_all(pool, object).await;
    let mut model = model.borrow_mut();
    match result {
        Ok(found) => model.check(object, Some(&found)),
        Err(Errno::ENOENT) => model.check(object, None),
        Err(errno) => model.failed(object, format!("read of {object}: {errno}")),
    }
}

/// Data, xattrs and omap in one request: as they are at one moment.
pub(crate) async fn read_all(pool: &IoCtx, object: &str) -> Result<Content, Errno> {
    let omap = denc::to_bytes(&(BString::default(), 1_000_000u64, BString::default()), 0);
    let ops = vec![OsdOp::read(0, 0), Op::GetXattrs.into(), OsdOp::with(Op::OmapGetVals, omap)];
    let reply = pool.read_ops(object.as_bytes(), ops, 0).await?;
    if reply.result < 0 {
        return Err(Errno(-reply.result));
    }
    let out = |i: usize| reply.ops.get(i).map(|o| o.outdata.contiguous()).unwrap_or_default();
    let xattrs: Omap = denc::from_bytes(&out(1)).expect("an OSD encodes xattrs");
    let (omap, more): (Omap, bool) = denc::from_bytes(&out(2)).expect("an OSD encodes an omap");
    assert!(!more, "fewer keys than an OSD lists at once");
    Ok(Content { data: out(0).to_vec(), xattrs, omap })
}

/// Tasks that read one object each: none waits for another one's.
pub fn read_each(pool: &str, model: &Rc<RefCell<Model>>, handle: &Handle, clock: &Clock) -> Vec<Task> {
    let names = model.borrow().names();
    let read = |name: String| {
        let (pool, model, handle, clock) = (pool.to_owned(), model.clone(), handle.clone(), clock.clone());
        Box::pin(async move {
            let io = await_pool(&pool, &handle, &clock).await;
            read_and_check(&io, &name, &model).await;
            model.borrow_mut().answered += 1;
        }) as Task
    };
    names.into_iter().map(read).collect()
}

/// Waits for the pool to be there.
pub(crate) async fn await_pool(pool: &str, handle: &Handle, clock: &Clock) -> IoCtx {
    loop {
        if handle.connect().await.is_ok()
            && let Ok(io) = handle.pool(pool).await
        {
            return io;
        }
        clock.sleep(Duration::from_millis(500)).await;
    }
}

/// A task that reads every object there ever was and checks it.
pub fn read_everything(pool: String, model: Rc<RefCell<Model>>, handle: Handle, clock: Clock) -> Task {
    Box::pin(async move {
        let io = await_pool(&pool, &handle, &clock).await;
        let names = model.borrow().names();
        for name in names {
            read_and_check(&io, &name, &model).await;
        }
        let snapshots = model.borrow().snapshots();
        for (snap, name) in snapshots {
            snapper::read_at(&io, &name, Snap(snap), &model).await;
        }
        model.borrow_mut().finished += 1;
    })
}
