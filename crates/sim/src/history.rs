//! Operations that race for the same objects, as they were seen from outside: for a checker of linearizability
//! (`tests/linearizability`, which says what a line holds).

use crate::cluster::POOL;
use crate::model::Model;
use crate::program::{self, Clock};
use crate::workload::await_pool;
use bytes::Bytes;
use client::{Handle, IoCtx};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use types::Errno;
use types::msg::osd::osd_flag;
use types::msg::osd_op::Extent;
use types::msg::{Op, OsdOp};

/// So many objects are raced for at once, for so long; then for others, so that no history is long.
const OBJECTS: u64 = 2;
const PERIOD_NS: u64 = 20_000_000_000;
const TOKEN: usize = 16;
/// Who only reads waits so long for an answer.
const READ_PATIENCE: Duration = Duration::from_secs(2);
/// `-(MAX_ERRNO + position)`: contents differ there.
const MAX_ERRNO: i32 = 4095;

/// Every operation of a run. One without a `return` was not answered.
#[derive(Debug, Default)]
pub struct History {
    ops: Vec<Map<String, Value>>,
    /// Objects that were given up, and when first.
    lost: BTreeMap<String, u64>,
    /// Writes, by all lives of all clients.
    tokens: u64,
}

impl History {
    /// One operation a line.
    pub fn lines(&self) -> String {
        self.ops.iter().filter_map(|op| self.what_counts(op)).map(|op| Value::Object(op).to_string() + "\n").collect()
    }

    fn what_counts(&self, op: &Map<String, Value>) -> Option<Map<String, Value>> {
        let mut op = op.clone();
        let lost = op.get("object").and_then(|o| self.lost.get(o.as_str()?));
        let when = |op: &Map<String, Value>, what: &str| op.get(what).and_then(Value::as_u64).unwrap_or_default();
        match lost {
            Some(at) if when(&op, "call") >= *at => return None,
            Some(at) if when(&op, "return") >= *at => ["return", "result", "value"].iter().for_each(|key| drop(op.remove(*key))),
            _ => {}
        }
        Some(op)
    }

    pub fn len(&self) -> usize {
        self.ops.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// An object that is raced for was given up: from here on nothing that happens to it counts, and what is under way may have
    /// happened.
    pub fn lose(&mut self, object: &str, at: u64) {
        self.lost.entry(object.to_owned()).or_insert(at);
    }

    /// Whatever was raced for until now was.
    pub fn lose_all(&mut self, at: u64) {
        let objects: BTreeSet<String> = self.ops.iter().filter_map(|op| op.get("object")?.as_str().map(str::to_owned)).collect();
        objects.iter().for_each(|object| self.lose(object, at));
    }

    fn begin(&mut self, op: Value) -> usize {
        self.ops.extend(op.as_object().cloned());
        self.ops.len() - 1
    }

    fn end(&mut self, n: usize, at: u64, result: &str, value: Option<&str>) {
        let op = &mut self.ops[n];
        op.insert("return".into(), at.into());
        op.insert("result".into(), result.into());
        value.into_iter().for_each(|v| drop(op.insert("value".into(), v.into())));
    }
}

/// One who races, in one life.
pub(crate) struct Racer {
    client: usize,
    rng: ChaCha8Rng,
    model: Rc<RefCell<Model>>,
    history: Rc<RefCell<History>>,
    handle: Handle,
    clock: Clock,
    /// One clock for all, which real clients do not have.
    time: Arc<AtomicU64>,
    /// How objects began when they were last read here.
    seen: RefCell<BTreeMap<String, String>>,
}

/// An operation that has begun, and will be that line of the history.
struct Begun {
    line: usize,
    what: &'static str,
    token: Bytes,
    expect: String,
}

impl Racer {
    pub fn new(
        client: usize,
        seed: u64,
        model: &Rc<RefCell<Model>>,
        history: &Rc<RefCell<History>>,
        handle: &Handle,
        clock: &Clock,
        time: &Arc<AtomicU64>,
    ) -> Self {
        Racer {
            client,
            rng: ChaCha8Rng::seed_from_u64(seed ^ (client as u64 + 77)),
            model: model.clone(),
            history: history.clone(),
            handle: handle.clone(),
            clock: clock.clone(),
            time: time.clone(),
            seen: RefCell::default(),
        }
    }

    /// Races until the model says stop: mostly with one operation after the other, and at times with two on one object at once. (With more
    /// there were histories that no checker decides.)
    pub async fn share(mut self) {
        let pool = await_pool(POOL, &self.handle, &self.clock).await;
        while !self.model.borrow().stop {
            let (object, count) = (self.object(), [1, 1, 1, 2][self.rng.random_range(0..4)]);
            let begun: Vec<Begun> = (0..count).map(|_| self.begin(&object)).collect();
            let this = &self;
            let mut under_way: Vec<_> = begun.into_iter().map(|op| Box::pin(this.run(&pool, &object, op))).collect();
            program::all(&mut under_way).await;
            drop(under_way);
            let pause = self.rng.random_range(0..300);
            self.clock.sleep(Duration::from_millis(pause)).await;
        }
        self.model.borrow_mut().finished += 1;
    }

    /// Reads what others race for, until the model says stop, and waits for no read for long: an OSD that none of the others reaches may
    /// have an old answer, while most give none.
    pub async fn watch(mut self) {
        let pool = await_pool(POOL, &self.handle, &self.clock).await;
        let mut reads: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
        while !self.model.borrow().stop {
            let (client, call, object) = (self.client, self.now(), self.object());
            let (pool, clock, time, history) = (pool.clone(), self.clock.clone(), self.time.clone(), self.history.clone());
            reads.push(Box::pin(async move {
                let read = pool.read(object.as_bytes(), 0, 0);
                let Some(result) = unless(clock.sleep(READ_PATIENCE), read).await else { return };
                let (result, value) = match &result {
                    Ok(data) => ("ok", Some(String::from_utf8_lossy(data))),
                    Err(Errno::ENOENT) => ("absent", None),
                    Err(_) => return,
                };
                let mut history = history.borrow_mut();
                let n = history.begin(json!({"object": object, "client": client, "op": "read", "call": call}));
                history.end(n, time.load(Ordering::Relaxed), result, value.as_deref());
            }));
            let pause = self.rng.random_range(0..500);
            let go_on = async {
                program::all(&mut reads).await;
                std::future::pending::<()>().await
            };
            unless(self.clock.sleep(Duration::from_millis(pause)), go_on).await;
        }
        self.model.borrow_mut().finished += 1;
    }

    fn now(&self) -> u64 {
        self.time.load(Ordering::Relaxed)
    }

    /// One of those that are raced for at this moment.
    fn object(&mut self) -> String {
        format!("shared.{}.{}", self.now() / PERIOD_NS, self.rng.random_range(0..OBJECTS))
    }

    fn begin(&mut self, object: &str) -> Begun {
        let what = ["read", "read", "read", "write", "append", "append", "swap", "swap", "exchange", "remove"][self.rng.random_range(0..10)];
        self.history.borrow_mut().tokens += 1;
        let token = format!("{:02}{:014}", self.client, self.history.borrow().tokens);
        let mut op = json!({"object": object, "client": self.client, "op": what, "call": self.now()});
        if !matches!(what, "read" | "remove") {
            op["arg"] = token.clone().into();
        }
        let expect = self.seen.borrow().get(object).cloned().unwrap_or_else(|| "no such content.".into());
        if what == "swap" {
            op["expect"] = expect.clone().into();
        }
        let line = self.history.borrow_mut().begin(op);
        Begun { line, what, token: Bytes::from(token.into_bytes()), expect }
    }

    async fn run(&self, pool: &IoCtx, object: &str, op: Begun) {
        let (name, data) = (object.as_bytes(), op.token);
        let result = match op.what {
            "read" => pool.read(name, 0, 0).await.map(Some),
            "write" => pool.write_full(name, data).await.map(|()| None),
            "append" => pool.append(name, data).await.map(|()| None),
            "remove" => pool.remove(name).await.map(|()| None),
            "exchange" => exchange(pool, name, data).await.map(Some),
            _ => swap(pool, name, op.expect, data).await.map(|()| None),
        };
        self.end(op.line, object, op.what, result);
    }

    fn end(&self, n: usize, object: &str, what: &str, result: Result<Option<Bytes>, Errno>) {
        let at = self.now();
        let mut model = self.model.borrow_mut();
        let end = |result: &str, value: Option<&str>| {
            model.tell(|| format!("{what} {object}: {result} {}", value.unwrap_or_default()));
            self.history.borrow_mut().end(n, at, result, value);
        };
        match result {
            Ok(None) => end("ok", None),
            Ok(Some(data)) => {
                let value = String::from_utf8_lossy(&data).into_owned();
                end("ok", Some(&value));
                if what == "read" {
                    self.seen.borrow_mut().insert(object.to_owned(), value.get(..TOKEN).unwrap_or_default().to_owned());
                }
            }
            Err(Errno::ENOENT) => end("absent", None),
            Err(Errno(n)) if what == "swap" && n >= MAX_ERRNO => end("differs", None),
            // It may have happened: no answer.
            Err(errno) => model.failed(object, format!("{what} of {object}: {errno}")),
        }
    }
}

/// What comes of `work`; nothing if `end` comes first.
async fn unless<T>(end: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    let (mut end, mut work) = (std::pin::pin!(end), std::pin::pin!(work));
    std::future::poll_fn(|cx| match (work.as_mut().poll(cx), end.as_mut().poll(cx)) {
        (Poll::Ready(value), _) => Poll::Ready(Some(value)),
        (_, Poll::Ready(())) => Poll::Ready(None),
        _ => Poll::Pending,
    })
    .await
}

/// Writes the whole object if it begins with `expect`.
async fn swap(pool: &IoCtx, name: &[u8], expect: String, data: Bytes) -> Result<(), Errno> {
    let extent = Extent { offset: 0, length: expect.len() as u64, ..Extent::default() };
    let ops = vec![OsdOp::with(Op::CmpExt(extent), Bytes::from(expect.into_bytes())), OsdOp::write_full(data)];
    pool.write_ops(name, ops, 0).await.map(drop)
}

/// Writes the whole object, and returns how it began before, if it was there.
async fn exchange(pool: &IoCtx, name: &[u8], data: Bytes) -> Result<Bytes, Errno> {
    let ops = vec![OsdOp::read(0, TOKEN as u64), OsdOp::write_full(data)];
    let reply = pool.write_ops(name, ops, osd_flag::READ | osd_flag::RETURNVEC).await?;
    Ok(reply.ops.into_iter().next().map(|op| op.outdata.contiguous()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_was_given_up_only_counts_what_was_answered_before() {
        let mut h = History::default();
        for (object, call, ends) in [("a", 1, 2), ("a", 3, 9), ("b", 4, 9), ("a", 7, 8)] {
            let n = h.begin(json!({"object": object, "op": "read", "call": call}));
            h.end(n, ends, "ok", Some("x"));
        }
        h.lose("a", 5);
        h.lose("a", 8);
        let lines: Vec<Value> = h.lines().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let seen: Vec<_> = lines.iter().map(|l| (l["object"].as_str().unwrap(), l["call"].as_u64().unwrap(), l["return"].as_u64())).collect();
        assert_eq!(seen, [("a", 1, Some(2)), ("a", 3, None), ("b", 4, Some(9))]);
        h.lose_all(4);
        assert_eq!(h.lines().lines().count(), 2, "b was first lost at 4");
    }
}
