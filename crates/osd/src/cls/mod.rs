//! Object classes: named methods that run where the object is, inside the message's one transaction.
//!
//! Room: osd core. A method reads and changes its object through `Call` and nothing else.
//! Holds: whether a message reads or writes follows from the *registered* flags of its methods, not from what the
//! client put into the message; a method that goes beyond its flags fails with EIO.
//! Why compiled in: a registry of functions can be listed, tested and simulated; loading shared objects cannot.
//! Upstream: src/objclass/, src/cls/, src/osd/ClassHandler.cc.

mod call;
mod hello;
mod lock;
mod numops;
mod refcount;
mod version;

pub use call::{Call, Origin};

use crate::ops::Halt;
use types::Errno;

/// The method looks at the object.
pub const RD: u8 = 1;
/// The method may change the object.
pub const WR: u8 = 2;

/// What a method answers; output goes into the buffer it is given, also when it fails.
pub type MethodResult = Result<i32, Halt>;

/// A registered method.
pub struct Method {
    pub name: &'static str,
    /// `RD` and `WR`.
    pub flags: u8,
    pub run: fn(&mut Call<'_, '_>, input: &[u8], out: &mut Vec<u8>) -> MethodResult,
}

/// A class and its methods.
pub struct Class {
    pub name: &'static str,
    pub methods: &'static [Method],
}

/// Every class this OSD knows.
pub static CLASSES: &[Class] = &[hello::CLASS, lock::CLASS, numops::CLASS, refcount::CLASS, version::CLASS];

/// Classes that an OSD may have (`osd_class_load_list`): what is not among them is forbidden.
const ALLOWED: &[&str] = &[
    "2pc_queue", "cas", "cephfs", "cmpomap", "fifo", "hello", "journal", "lock", "log", "numops", "otp", "queue", "rbd",
    "refcount", "rgw", "rgw_gc", "timeindex", "user", "version",
];

/// The method `class.method`. EPERM for a class nobody may load, EOPNOTSUPP for one or for a method that is not here:
/// on that clients fall back to older ways.
pub fn find(class: &[u8], method: &[u8]) -> Result<&'static Method, Errno> {
    if !ALLOWED.iter().any(|c| c.as_bytes() == class) {
        return Err(Errno::EPERM);
    }
    let class = CLASSES.iter().find(|c| c.name.as_bytes() == class).ok_or(Errno::EOPNOTSUPP)?;
    class.methods.iter().find(|m| m.name.as_bytes() == method).ok_or(Errno::EOPNOTSUPP)
}

/// A method's arguments; whatever does not decode is EINVAL.
fn args<T: denc::Decode>(input: &[u8]) -> Result<T, Halt> {
    denc::from_slice(input).map_err(|_| Errno::EINVAL.into())
}

/// Appends the encoding of a method's answer.
fn answer<T: denc::Encode>(out: &mut Vec<u8>, value: &T) -> MethodResult {
    out.extend_from_slice(&denc::to_bytes(value, types::features::SUPPORTED));
    Ok(0)
}
