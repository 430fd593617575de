//! Watch and notify: what the operations check and record; who is told is the PG's business.

use super::Halt;
use super::exec::{Exec, Output};
use super::read::emit;
use crate::mutation::Step;
use crate::object::{WatchInfo, WatcherKey};
use bytes::Bytes;
use denc::{Decoder, Encoder};
use types::Errno;
use types::msg::osd_op::{OsdOp, Watch};

/// What happens to watches when the message has succeeded (and, if it changed anything, is durable).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchAction {
    /// The client's session now carries this watch.
    Connect { cookie: u64, info: WatchInfo, pings: bool },
    Disconnect { cookie: u64 },
    Ping { cookie: u64 },
    Notify { id: u64, cookie: u64, timeout_s: u32, payload: Bytes },
    Ack { notify_id: u64, cookie: Option<u64>, reply: Bytes },
    /// Every watcher is told that its object is gone.
    ObjectDeleted,
}

impl Exec<'_> {
    pub(super) fn op_watch(&mut self, w: Watch) -> Result<(), Halt> {
        self.must_exist()?;
        let key = WatcherKey { cookie: w.cookie, who: self.env.origin.inst };
        let known = self.info.watchers.contains_key(&key);
        let timeout_s = if w.timeout_s > 0 { w.timeout_s } else { self.env.limits.watch_timeout_s };
        let info = WatchInfo { timeout_s, addr: self.env.origin.addr };
        match w.op {
            Watch::WATCH | Watch::LEGACY_WATCH => {
                if !known {
                    self.info.watchers.insert(key, info);
                    self.mutation.push(Step::Touch);
                }
                self.watch.push(WatchAction::Connect { cookie: w.cookie, info, pings: w.op == Watch::WATCH });
                Ok(())
            }
            Watch::RECONNECT | Watch::PING if !known => Err(Errno::ENOTCONN.into()),
            Watch::RECONNECT => {
                self.watch.push(WatchAction::Connect { cookie: w.cookie, info, pings: true });
                Ok(())
            }
            // The client has to reconnect: this session does not carry the watch.
            Watch::PING if !(self.env.watch_connected)(w.cookie) => Err(Errno::ETIMEDOUT.into()),
            Watch::PING => {
                self.watch.push(WatchAction::Ping { cookie: w.cookie });
                Ok(())
            }
            Watch::UNWATCH => {
                if known {
                    self.info.watchers.remove(&key);
                    self.mutation.push(Step::Touch);
                    self.watch.push(WatchAction::Disconnect { cookie: w.cookie });
                }
                Ok(())
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn op_notify(&mut self, op: &OsdOp, cookie: u64, out: &mut Output) -> Result<(), Halt> {
        self.must_exist()?;
        // An obsolete version comes first; what does not decode is a notification without payload.
        let parsed = Decoder::shared(&op.input()).get::<(u32, u32, Bytes)>();
        let (_, timeout_s, payload) = parsed.unwrap_or_default();
        let timeout_s = if timeout_s > 0 { timeout_s } else { self.env.limits.notify_timeout_s };
        let id = self.env.notify_id;
        self.watch.push(WatchAction::Notify { id, cookie, timeout_s, payload });
        emit(out, &id);
        Ok(())
    }

    pub(super) fn op_notify_ack(&mut self, op: &OsdOp, id: u64) -> Result<(), Halt> {
        let input = op.input();
        let mut d = Decoder::shared(&input);
        let ack = match d.get::<(u64, u64)>() {
            Ok((notify_id, cookie)) => {
                WatchAction::Ack { notify_id, cookie: Some(cookie), reply: d.blob().unwrap_or_default() }
            }
            // Very old clients only name the notification.
            Err(_) => WatchAction::Ack { notify_id: id, cookie: None, reply: Bytes::new() },
        };
        self.watch.push(ack);
        Ok(())
    }

    /// As `obj_list_watch_response_t`.
    pub(super) fn op_list_watchers(&mut self, out: &mut Output) -> Result<(), Halt> {
        self.must_exist()?;
        let mut e = Encoder::new(types::features::SUPPORTED);
        e.envelope(1, 1, |e| {
            e.count(self.info.watchers.len());
            for (key, info) in &self.info.watchers {
                e.envelope(2, 1, |e| {
                    e.put(&key.who).put(&key.cookie).put(&info.timeout_s).put(&info.addr.as_any());
                });
            }
        });
        out.data = e.finish().into();
        Ok(())
    }
}
