//! Class `refcount`: tags that keep an object alive; the last one put removes it. Used by radosgw's tail objects.
//!
//! Upstream: src/cls/refcount/.

use super::{Call, Class, Method, MethodResult, RD, WR, answer, args};
use crate::ops::Halt;
use denc::{BString, Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use types::Errno;

const ATTR: &[u8] = b"refcount";

pub(super) const CLASS: Class = Class {
    name: "refcount",
    methods: &[
        Method { name: "get", flags: RD | WR, run: get },
        Method { name: "put", flags: RD | WR, run: put },
        Method { name: "set", flags: RD | WR, run: set },
        Method { name: "read", flags: RD, run: read },
    ],
};

/// `obj_refcount`. An object nobody counted yet has one reference under the empty tag, if the caller says so.
#[derive(Debug, Default, Encode, Decode)]
#[denc(v = 2, compat = 1)]
struct Refs {
    refs: BTreeMap<BString, bool>,
    /// Tags already put: putting one twice, as retries do, must not count twice.
    #[denc(since = 2)]
    retired: BTreeSet<BString>,
}

/// `cls_refcount_get_op` and `cls_refcount_put_op`.
#[derive(Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct TagOp {
    tag: BString,
    implicit_ref: bool,
}

/// `cls_refcount_set_op` and `cls_refcount_read_ret`.
#[derive(Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Tags {
    refs: Vec<BString>,
}

#[derive(Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct ReadOp {
    implicit_ref: bool,
}

fn load(call: &mut Call<'_, '_>, implicit_ref: bool) -> Result<Refs, Halt> {
    match call.getxattr(ATTR) {
        Ok(raw) => denc::from_slice(&raw).map_err(|_| Errno::EIO.into()),
        Err(Halt::Errno(Errno::ENODATA)) => {
            let refs = implicit_ref.then(|| (BString::default(), true)).into_iter().collect();
            Ok(Refs { refs, ..Default::default() })
        }
        Err(e) => Err(e),
    }
}

fn save(call: &mut Call<'_, '_>, refs: &Refs) -> MethodResult {
    call.setxattr(ATTR, denc::to_bytes(refs, 0))?;
    Ok(0)
}

fn get(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    let op: TagOp = args(input)?;
    let mut refs = load(call, op.implicit_ref)?;
    refs.refs.insert(op.tag, true);
    save(call, &refs)
}

fn put(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    let op: TagOp = args(input)?;
    let mut refs = load(call, op.implicit_ref)?;
    if refs.refs.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let wildcard = BString::default();
    let held = match refs.refs.contains_key(&op.tag) {
        true => Some(&op.tag),
        false => Some(&wildcard).filter(|w| op.implicit_ref && refs.refs.contains_key(*w)),
    };
    let Some(held) = held.filter(|_| !refs.retired.contains(&op.tag)).cloned() else {
        return Ok(0);
    };
    refs.refs.remove(&held);
    refs.retired.insert(op.tag);
    if refs.refs.is_empty() {
        call.remove()?;
        return Ok(0);
    }
    save(call, &refs)
}

fn set(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    let Tags { refs } = args(input)?;
    if refs.is_empty() {
        call.remove()?;
        return Ok(0);
    }
    save(call, &Refs { refs: refs.into_iter().map(|t| (t, true)).collect(), retired: BTreeSet::new() })
}

fn read(call: &mut Call<'_, '_>, input: &[u8], out: &mut Vec<u8>) -> MethodResult {
    let op: ReadOp = args(input)?;
    let refs = load(call, op.implicit_ref)?;
    answer(out, &Tags { refs: refs.refs.into_keys().collect() })
}
