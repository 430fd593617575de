//! Advisory locks on objects, through the class `lock`.
//!
//! Upstream: src/cls/lock/cls_lock_ops.h, cls_lock_types.h.

use crate::io::IoCtx;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{EntityAddr, EntityInst, Errno, Utime, features};

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockKind(pub u8);

impl LockKind {
    pub const NONE: LockKind = LockKind(0);
    pub const EXCLUSIVE: LockKind = LockKind(1);
    pub const SHARED: LockKind = LockKind(2);

    /// `exclusive`, `shared`, `none`.
    pub fn name(self) -> &'static str {
        match self {
            LockKind::EXCLUSIVE => "exclusive",
            LockKind::SHARED => "shared",
            _ => "none",
        }
    }
}

/// Who holds a lock: an instance, and its cookie.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockerId {
    pub locker: EntityInst,
    pub cookie: String,
}

/// Until when and from where it is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockerInfo {
    /// Zero: until unlocked.
    pub expiration: Utime,
    pub addr: EntityAddr,
    pub description: String,
}

/// A lock's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    pub lockers: BTreeMap<LockerId, LockerInfo>,
    pub kind: LockKind,
    pub tag: String,
}

/// How to take a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRequest {
    pub name: String,
    pub kind: LockKind,
    pub cookie: String,
    /// Shared holders must agree on it.
    pub tag: String,
    pub description: String,
    /// Zero: until unlocked.
    pub duration: Duration,
    /// 1: renewing what we hold is no error.
    pub flags: u8,
}

impl Encode for LockRequest {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(1, 1, |e| {
            e.put(&self.name).put(&self.kind.0).put(&self.cookie).put(&self.tag).put(&self.description);
            e.put(&Utime::from_duration(self.duration)).put(&self.flags);
        });
    }
}

impl Decode for LockerId {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("locker_id_t", 1, |_, d| Ok(LockerId { locker: d.get()?, cookie: d.get()? }))
    }
}
impl Decode for LockerInfo {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("locker_info_t", 1, |_, d| {
            Ok(LockerInfo { expiration: d.get()?, addr: d.get()?, description: d.get()? })
        })
    }
}
impl Decode for LockInfo {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("cls_lock_get_info_reply", 1, |_, d| {
            Ok(LockInfo { lockers: d.get()?, kind: LockKind(d.get()?), tag: d.get()? })
        })
    }
}

/// One envelope of version 1 around what `body` writes.
fn framed(body: impl FnOnce(&mut Encoder)) -> bytes::Bytes {
    let mut e = Encoder::new(features::SUPPORTED);
    e.envelope(1, 1, body);
    e.finish()
}

impl IoCtx {
    /// Takes a lock; EBUSY if somebody else has it, EEXIST if we do.
    pub async fn lock(&self, oid: &[u8], request: &LockRequest) -> Result<(), Errno> {
        self.exec_write(oid, "lock", "lock", &denc::to_bytes(request, 0)).await
    }

    /// Gives a lock back; ENOENT if we do not have it.
    pub async fn unlock(&self, oid: &[u8], name: &str, cookie: &str) -> Result<(), Errno> {
        let input = framed(|e| {
            e.put(name).put(cookie);
        });
        self.exec_write(oid, "lock", "unlock", &input).await
    }

    /// Takes a lock from its holder.
    pub async fn break_lock(&self, oid: &[u8], name: &str, locker: &LockerId) -> Result<(), Errno> {
        let input = framed(|e| {
            e.put(name).put(&locker.locker).put(&locker.cookie);
        });
        self.exec_write(oid, "lock", "break_lock", &input).await
    }

    /// Who holds a lock.
    pub async fn lock_info(&self, oid: &[u8], name: &str) -> Result<LockInfo, Errno> {
        let input = framed(|e| {
            e.put(name);
        });
        let out = self.exec(oid, "lock", "get_info", &input).await?;
        denc::from_slice(&out).map_err(|_| Errno::EIO)
    }

    /// The names of an object's locks.
    pub async fn locks(&self, oid: &[u8]) -> Result<Vec<String>, Errno> {
        let out = self.exec(oid, "lock", "list_locks", b"").await?;
        let mut d = Decoder::shared(&out);
        d.envelope("cls_lock_list_locks_reply", 1, |_, d| d.get()).map_err(|_| Errno::EIO)
    }
}
