//! `Handle`: what programs hold. Each method is a future that a driven `Client` completes; no runtime is implied.

use crate::io::IoCtx;
use crate::objecter::{OpReply, OpRequest, WatchEvent};
use bytes::Bytes;
use futures_channel::{mpsc, oneshot};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::map::OsdMap;
use types::msg::pool::pool_op;
use types::pg::PoolStat;
use types::{AddrVec, Errno, OsdId, PoolId, Snap};

/// What a command said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandReply {
    /// 0 or positive, or a negative errno.
    pub result: i32,
    /// For standard error.
    pub status: String,
    /// For standard output.
    pub output: Bytes,
}

/// How full the cluster, or a pool, is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub kb: u64,
    pub kb_used: u64,
    pub kb_avail: u64,
    pub objects: u64,
}

/// What a handle asks of its client.
pub(crate) enum Call {
    Connect(oneshot::Sender<Result<Arc<OsdMap>, Errno>>),
    Op { request: OpRequest, reply: oneshot::Sender<OpReply> },
    Watch {
        request: OpRequest,
        timeout_s: u32,
        events: mpsc::UnboundedSender<WatchEvent>,
        cookie: oneshot::Sender<u64>,
    },
    Notify { request: OpRequest, payload: Bytes, timeout_s: u32, events: mpsc::UnboundedSender<WatchEvent> },
    NotifyAck { cookie: u64, notify_id: u64, payload: Bytes },
    Unwatch { cookie: u64, reply: oneshot::Sender<OpReply> },
    MonCommand { json: String, input: Bytes, reply: oneshot::Sender<CommandReply> },
    OsdCommand { osd: OsdId, json: String, input: Bytes, reply: oneshot::Sender<CommandReply> },
    MgrCommand { json: String, input: Bytes, tell: bool, reply: oneshot::Sender<CommandReply> },
    PoolOp { pool: PoolId, op: u32, name: String, snap: Snap, reply: oneshot::Sender<(i32, Bytes)> },
    Usage { pool: Option<PoolId>, reply: oneshot::Sender<Usage> },
    PoolStats { pools: Vec<String>, reply: oneshot::Sender<BTreeMap<String, PoolStat>> },
    LatestMap(oneshot::Sender<Arc<OsdMap>>),
    Map(oneshot::Sender<Arc<OsdMap>>),
    Identity(oneshot::Sender<(u64, AddrVec)>),
}

/// Who waits for the answer to a question.
pub(crate) enum Answer {
    Command(oneshot::Sender<CommandReply>),
    PoolOp(oneshot::Sender<(i32, Bytes)>),
    Usage(oneshot::Sender<Usage>),
    PoolStats(oneshot::Sender<BTreeMap<String, PoolStat>>),
    Map(oneshot::Sender<Arc<OsdMap>>),
}

/// A way to a client. Dropping a future gives up on its answer, not on what was asked. A client that is gone answers
/// ESHUTDOWN.
#[derive(Clone)]
pub struct Handle {
    calls: mpsc::UnboundedSender<Call>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Handle {
    pub(crate) fn new(calls: mpsc::UnboundedSender<Call>, wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        Handle { calls, wake }
    }

    /// Waits for a session and the first OSD map; fails if a monitor refuses us.
    pub async fn connect(&self) -> Result<Arc<OsdMap>, Errno> {
        self.ask(Call::Connect).await?
    }

    /// The map in force.
    pub async fn map(&self) -> Result<Arc<OsdMap>, Errno> {
        self.ask(Call::Map).await
    }

    /// A map at least as new as the monitors' when they were asked.
    pub async fn latest_map(&self) -> Result<Arc<OsdMap>, Errno> {
        self.ask(Call::LatestMap).await
    }

    /// Our global id and addresses, as watchers and locks show us.
    pub async fn identity(&self) -> Result<(u64, AddrVec), Errno> {
        self.ask(Call::Identity).await
    }

    /// Objects of the pool called `name`; ENOENT if there is none, in the newest map.
    pub async fn pool(&self, name: &str) -> Result<IoCtx, Errno> {
        let known = self.map().await?.pool_id(name);
        let id = match known {
            Some(id) => id,
            None => self.latest_map().await?.pool_id(name).ok_or(Errno::ENOENT)?,
        };
        Ok(IoCtx::new(self.clone(), id))
    }

    /// Objects of a pool by its number.
    pub fn pool_by_id(&self, id: PoolId) -> IoCtx {
        IoCtx::new(self.clone(), id)
    }

    /// Names and numbers of all pools.
    pub async fn pools(&self) -> Result<BTreeMap<PoolId, String>, Errno> {
        Ok(self.map().await?.pool_name.clone())
    }

    /// Creates a pool with the cluster's defaults; EEXIST if there is one.
    pub async fn create_pool(&self, name: &str) -> Result<(), Errno> {
        self.pool_op(PoolId(0), pool_op::CREATE, name, Snap(0)).await.map(drop)
    }

    /// Deletes a pool. EPERM unless the monitors allow it (`mon_allow_pool_delete`).
    pub async fn delete_pool(&self, name: &str) -> Result<(), Errno> {
        let id = self.pool(name).await?.pool();
        self.pool_op(id, pool_op::DELETE, "delete", Snap(0)).await.map(drop)
    }

    /// Any operation of `pool_op`; returns its data.
    pub async fn pool_op(&self, pool: PoolId, op: u32, name: &str, snap: Snap) -> Result<Bytes, Errno> {
        let name = name.to_owned();
        let (result, data) = self.ask(|reply| Call::PoolOp { pool, op, name, snap, reply }).await?;
        check(result).map(|_| data)
    }

    /// Sends a request to an object.
    pub async fn submit(&self, request: OpRequest) -> Result<OpReply, Errno> {
        self.ask(|reply| Call::Op { request, reply }).await
    }

    /// Runs a command, given as JSON text, on the monitors.
    pub async fn mon_command(&self, json: impl Into<String>, input: Bytes) -> Result<CommandReply, Errno> {
        let json = json.into();
        self.ask(|reply| Call::MonCommand { json, input, reply }).await
    }

    /// Runs a command on an OSD.
    pub async fn osd_command(&self, osd: OsdId, json: impl Into<String>, input: Bytes) -> Result<CommandReply, Errno> {
        let json = json.into();
        self.ask(|reply| Call::OsdCommand { osd, json, input, reply }).await
    }

    /// Runs a command on the active manager; `tell` addresses the daemon itself instead of its modules.
    pub async fn mgr_command(&self, json: impl Into<String>, input: Bytes, tell: bool) -> Result<CommandReply, Errno> {
        let json = json.into();
        self.ask(|reply| Call::MgrCommand { json, input, tell, reply }).await
    }

    /// How full the cluster, or one pool, is.
    pub async fn usage(&self, pool: Option<PoolId>) -> Result<Usage, Errno> {
        self.ask(|reply| Call::Usage { pool, reply }).await
    }

    /// What pools hold.
    pub async fn pool_stats(&self, pools: Vec<String>) -> Result<BTreeMap<String, PoolStat>, Errno> {
        self.ask(|reply| Call::PoolStats { pools, reply }).await
    }

    pub(crate) async fn watch(&self, request: OpRequest, timeout_s: u32) -> Result<Watch, Errno> {
        let (events, mut rx) = mpsc::unbounded();
        let cookie = self.ask(|cookie| Call::Watch { request, timeout_s, events, cookie }).await?;
        match next(&mut rx).await {
            Some(WatchEvent::Watching) => Ok(Watch { handle: self.clone(), cookie, events: rx }),
            Some(WatchEvent::Failed { errno }) => Err(errno),
            _ => Err(Errno::ESHUTDOWN),
        }
    }

    pub(crate) async fn notify(&self, request: OpRequest, payload: Bytes, timeout_s: u32) -> Result<WatchEvent, Errno> {
        let (events, mut rx) = mpsc::unbounded();
        self.call(Call::Notify { request, payload, timeout_s, events })?;
        next(&mut rx).await.ok_or(Errno::ESHUTDOWN)
    }

    fn call(&self, call: Call) -> Result<(), Errno> {
        self.calls.unbounded_send(call).map_err(|_| Errno::ESHUTDOWN)?;
        (self.wake)();
        Ok(())
    }

    async fn ask<T>(&self, call: impl FnOnce(oneshot::Sender<T>) -> Call) -> Result<T, Errno> {
        let (tx, rx) = oneshot::channel();
        self.call(call(tx))?;
        rx.await.map_err(|_| Errno::ESHUTDOWN)
    }
}

/// A watch on an object. Dropping it does not end it: `unwatch` does.
pub struct Watch {
    handle: Handle,
    cookie: u64,
    events: mpsc::UnboundedReceiver<WatchEvent>,
}

impl Watch {
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// What happens next; `None` after the watch failed.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        next(&mut self.events).await
    }

    /// Answers a notification.
    pub fn ack(&self, notify_id: u64, payload: Bytes) -> Result<(), Errno> {
        self.handle.call(Call::NotifyAck { cookie: self.cookie, notify_id, payload })
    }

    /// Ends the watch.
    pub async fn unwatch(self) -> Result<(), Errno> {
        let cookie = self.cookie;
        let reply = self.handle.ask(|reply| Call::Unwatch { cookie, reply }).await?;
        check(reply.result).map(drop)
    }
}

/// The next value of a channel, without the `futures` crate's stream extensions.
async fn next<T>(rx: &mut mpsc::UnboundedReceiver<T>) -> Option<T> {
    rx.recv().await.ok()
}

/// A result as the wire has it: negative is an errno.
pub(crate) fn check(result: i32) -> Result<i32, Errno> {
    match result {
        0.. => Ok(result),
        _ => Err(Errno(result.saturating_neg())),
    }
}
