//! Class `lock`: advisory locks on an object, shared or exclusive, with cookies, tags and expiry.
//!
//! Holds: a lock lives in the attribute `lock.<name>`; lockers with another tag, or of another type, exclude each
//! other as long as one unexpired locker is left. An ephemeral lock's object goes with its last locker.
//! Upstream: src/cls/lock/.

use super::{Call, Class, Method, MethodResult, RD, WR, answer, args};
use crate::ops::Halt;
use denc::{BString, Decode, Encode};
use std::collections::BTreeMap;
use types::{AddrKind, EntityAddr, EntityInst, Errno, Utime};

const PREFIX: &[u8] = b"lock.";
const MAY_RENEW: u8 = 1;
const MUST_RENEW: u8 = 2;

pub(super) const CLASS: Class = Class {
    name: "lock",
    methods: &[
        Method { name: "lock", flags: RD | WR, run: lock },
        Method { name: "unlock", flags: RD | WR, run: unlock },
        Method { name: "break_lock", flags: RD | WR, run: break_lock },
        Method { name: "get_info", flags: RD, run: get_info },
        Method { name: "list_locks", flags: RD, run: list_locks },
        Method { name: "assert_locked", flags: RD, run: assert_locked },
        Method { name: "set_cookie", flags: RD | WR, run: set_cookie },
    ],
};

/// `ClsLockType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
struct LockType(u8);
impl LockType {
    fn is_valid(self) -> bool {
        (1..=3).contains(&self.0)
    }
    fn is_exclusive(self) -> bool {
        self.0 == 1 || self.0 == 3
    }
    fn is_ephemeral(self) -> bool {
        self.0 == 3
    }
}

/// `locker_id_t`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct LockerId {
    locker: EntityInst,
    cookie: BString,
}

/// `locker_info_t`.
#[derive(Debug, Clone, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Locker {
    /// Zero: never.
    expiration: Utime,
    addr: EntityAddr,
    description: BString,
}

/// `lock_info_t`, and `cls_lock_get_info_reply`, which looks the same.
#[derive(Debug, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct LockInfo {
    lockers: BTreeMap<LockerId, Locker>,
    kind: LockType,
    tag: BString,
}

#[derive(Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct LockOp {
    name: BString,
    kind: LockType,
    cookie: BString,
    tag: BString,
    description: BString,
    duration: Utime,
    flags: u8,
}

#[derive(Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct UnlockOp {
    name: BString,
    cookie: BString,
}

#[derive(Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct BreakOp {
    name: BString,
    locker: EntityInst,
    cookie: BString,
}

#[derive(Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct GetInfoOp {
    name: BString,
}

#[derive(Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct ListReply {
    locks: Vec<BString>,
}

#[derive(Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct AssertOp {
    name: BString,
    kind: LockType,
    cookie: BString,
    tag: BString,
}

#[derive(Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct SetCookieOp {
    name: BString,
    kind: LockType,
    cookie: BString,
    tag: BString,
    new_cookie: BString,
}

fn attr(name: &BString) -> Vec<u8> {
    [PREFIX, name.as_slice()].concat()
}

/// The lock without its expired lockers; a lock never taken is the empty lock.
fn load(call: &mut Call<'_, '_>, name: &BString) -> Result<LockInfo, Halt> {
    let raw = match call.getxattr(&attr(name)) {
        Ok(raw) => raw,
        Err(Halt::Errno(Errno::ENODATA)) => return Ok(LockInfo::default()),
        Err(e) => return Err(e),
    };
    let mut info: LockInfo = denc::from_slice(&raw).map_err(|_| Halt::from(Errno::EIO))?;
    let now = call.now();
    info.lockers.retain(|_, l| l.expiration.is_zero() || l.expiration >= now);
    if info.lockers.is_empty() && info.kind.is_ephemeral() && call.may_write() {
        call.remove()?;
    }
    Ok(info)
}

fn save(call: &mut Call<'_, '_>, name: &BString, info: &LockInfo) -> MethodResult {
    call.setxattr(&attr(name), denc::to_bytes(info, types::features::SUPPORTED))?;
    Ok(0)
}

fn lock(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    let op: LockOp = args(input)?;
    let (may_renew, must_renew) = (op.flags & MAY_RENEW != 0, op.flags & MUST_RENEW != 0);
    if !op.kind.is_valid() || op.name.is_empty() || (may_renew && must_renew) {
        return Err(Errno::EINVAL.into());
    }
    let mut info = match load(call, &op.name) {
        Err(Halt::Errno(Errno::ENOENT)) => LockInfo::default(),
        other => other?,
    };
    let id = LockerId { locker: call.origin().inst, cookie: op.cookie };
    if !info.lockers.is_empty() && info.tag != op.tag {
        return Err(Errno::EBUSY.into());
    }
    let held = info.lockers.contains_key(&id);
    match (held, may_renew || must_renew) {
        (true, false) => return Err(Errno::EEXIST.into()),
        (false, _) if must_renew => return Err(Errno::ENOENT.into()),
        _ => info.lockers.remove(&id),
    };
    if !info.lockers.is_empty() && (op.kind.is_exclusive() || info.kind != op.kind) {
        return Err(Errno::EBUSY.into());
    }
    info.kind = op.kind;
    info.tag = op.tag;
    let expiration = match op.duration.is_zero() {
        true => Utime::ZERO,
        false => Utime::from_duration(call.now().to_duration() + op.duration.to_duration()),
    };
    // Stored as a legacy address whatever was spoken: clients compare address and nonce, older ones know no other.
    let addr = EntityAddr { kind: AddrKind::LEGACY, ..call.origin().addr };
    info.lockers.insert(id, Locker { expiration, addr, description: op.description });
    save(call, &op.name, &info)
}

fn unlock(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    let op: UnlockOp = args(input)?;
    let locker = call.origin().inst;
    drop_locker(call, &op.name, LockerId { locker, cookie: op.cookie })
}

fn break_lock(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    let op: BreakOp = args(input)?;
    drop_locker(call, &op.name, LockerId { locker: op.locker, cookie: op.cookie })
}

fn drop_locker(call: &mut Call<'_, '_>, name: &BString, id: LockerId) -> MethodResult {
    let mut info = load(call, name)?;
    if info.lockers.remove(&id).is_none() {
        return Err(Errno::ENOENT.into());
    }
    match info.kind.is_ephemeral() {
        true => call.remove().map(|()| 0),
        false => save(call, name, &info),
    }
}

fn get_info(call: &mut Call<'_, '_>, input: &[u8], out: &mut Vec<u8>) -> MethodResult {
    let op: GetInfoOp = args(input)?;
    let info = load(call, &op.name)?;
    answer(out, &info)
}

fn list_locks(call: &mut Call<'_, '_>, _: &[u8], out: &mut Vec<u8>) -> MethodResult {
    let attrs = call.getxattrs()?;
    let locks = attrs.keys().filter_map(|name| name.strip_prefix(PREFIX)).map(BString::from).collect();
    answer(out, &ListReply { locks })
}

/// The lock, if the caller holds it under this name, type, tag and cookie; EBUSY otherwise.
fn held_by_caller(call: &mut Call<'_, '_>, op: &AssertOp) -> Result<(LockInfo, LockerId), Halt> {
    if !op.kind.is_valid() || op.name.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let info = load(call, &op.name)?;
    let id = LockerId { locker: call.origin().inst, cookie: op.cookie.clone() };
    match info.kind == op.kind && info.tag == op.tag && info.lockers.contains_key(&id) {
        true => Ok((info, id)),
        false => Err(Errno::EBUSY.into()),
    }
}

fn assert_locked(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    let op: AssertOp = args(input)?;
    held_by_caller(call, &op).map(|_| 0)
}

fn set_cookie(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    let SetCookieOp { name, kind, cookie, tag, new_cookie } = args(input)?;
    let op = AssertOp { name, kind, cookie, tag };
    let (mut info, id) = held_by_caller(call, &op)?;
    let renamed = LockerId { cookie: new_cookie, ..id.clone() };
    if info.lockers.contains_key(&renamed) {
        return Err(Errno::EBUSY.into());
    }
    if let Some(locker) = info.lockers.remove(&id) {
        info.lockers.insert(renamed, locker);
    }
    save(call, &op.name, &info)
}
