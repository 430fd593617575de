//! Class `version`: a counter with a tag on the object, and conditions on it. Used by radosgw's metadata.
//!
//! Upstream: src/cls/version/.

use super::{Call, Class, Method, MethodResult, RD, WR, answer, args};
use crate::ops::Halt;
use denc::{BString, Decode, DecodeError, Decoder, Encode};
use types::Errno;

const ATTR: &[u8] = b"ceph.objclass.version";
const TAG_LEN: usize = 24;

pub(super) const CLASS: Class = Class {
    name: "version",
    methods: &[
        Method { name: "set", flags: RD | WR, run: set },
        Method { name: "inc", flags: RD | WR, run: inc },
        Method { name: "inc_conds", flags: RD | WR, run: inc },
        Method { name: "read", flags: RD, run: read },
        Method { name: "check_conds", flags: RD, run: check_conds },
    ],
};

/// `obj_version`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Version {
    ver: u64,
    tag: BString,
}

/// `obj_version_cond`; `cond` is one of `VER_COND_*`, unknown ones hold as upstream's switch lets them.
#[derive(Debug, Clone, Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Cond {
    ver: Version,
    cond: u32,
}

/// `cls_version_set_op`, and `cls_version_read_ret`, which looks the same.
#[derive(Encode, Decode)]
#[denc(v = 1, compat = 1)]
struct Wrapped {
    objv: Version,
}

/// `cls_version_inc_op` and `cls_version_check_op`.
struct Conds(Vec<Cond>);
impl Decode for Conds {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("cls_version_inc_op", 1, |_, d| {
            let _unused: Version = d.get()?;
            Ok(Conds(d.get()?))
        })
    }
}

impl Cond {
    fn holds(&self, have: &Version) -> bool {
        let want = &self.ver;
        match self.cond {
            1 => have == want,
            2 => have.ver > want.ver,
            3 => have.ver >= want.ver,
            4 => have.ver < want.ver,
            5 => have.ver <= want.ver,
            6 => have.tag == want.tag,
            7 => have.tag != want.tag,
            _ => true,
        }
    }
}

fn load(call: &mut Call<'_, '_>) -> Result<Option<Version>, Halt> {
    match call.getxattr(ATTR) {
        Ok(raw) => denc::from_slice(&raw).map(Some).map_err(|_| Errno::EIO.into()),
        Err(Halt::Errno(Errno::ENOENT | Errno::ENODATA)) => Ok(None),
        Err(e) => Err(e),
    }
}

fn save(call: &mut Call<'_, '_>, version: &Version) -> MethodResult {
    call.setxattr(ATTR, denc::to_bytes(version, 0))?;
    Ok(0)
}

fn set(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    let Wrapped { objv } = args(input)?;
    save(call, &objv)
}

fn inc(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    let Conds(conds) = args(input)?;
    let mut version = match load(call)? {
        Some(version) => version,
        None => Version { ver: 1, tag: call.random_base64(TAG_LEN).into() },
    };
    if !conds.iter().all(|c| c.holds(&version)) {
        return Err(Errno::ECANCELED.into());
    }
    version.ver = version.ver.wrapping_add(1);
    save(call, &version)
}

fn read(call: &mut Call<'_, '_>, _: &[u8], out: &mut Vec<u8>) -> MethodResult {
    let objv = load(call)?.unwrap_or_default();
    answer(out, &Wrapped { objv })
}

fn check_conds(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    let Conds(conds) = args(input)?;
    let version = load(call)?.unwrap_or_default();
    match conds.iter().all(|c| c.holds(&version)) {
        true => Ok(0),
        false => Err(Errno::ECANCELED.into()),
    }
}
