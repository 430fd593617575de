//! What a class method may do to its object.

use super::{RD, WR};
use crate::ops::{Exec, Halt};
use bytes::Bytes;
use denc::BString;
use std::collections::BTreeMap;
use types::{EntityAddr, EntityInst, Utime};

/// Who sent the message (`cls_get_request_origin`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    pub inst: EntityInst,
    pub addr: EntityAddr,
}

/// A running method. Reads see the object as it was before the message; `stat` sees the message's own changes.
pub struct Call<'e, 'a> {
    exec: &'e mut Exec<'a>,
    flags: u8,
    used: u8,
}

impl<'e, 'a> Call<'e, 'a> {
    pub(crate) fn new(exec: &'e mut Exec<'a>, flags: u8) -> Self {
        Call { exec, flags, used: 0 }
    }

    /// True if the method did something it is not registered for.
    pub(crate) fn overstepped(&self) -> bool {
        self.used & !self.flags != 0
    }

    /// True if the method is registered as one that writes.
    pub fn may_write(&self) -> bool {
        self.flags & WR != 0
    }

    pub fn origin(&self) -> Origin {
        self.exec.origin()
    }

    /// Wall time of this OSD.
    pub fn now(&self) -> Utime {
        self.exec.now().wall
    }

    /// `len` random characters of base64.
    pub fn random_base64(&mut self, len: usize) -> String {
        self.exec.random_base64(len)
    }

    /// Size in bytes and mtime; ENOENT.
    pub fn stat(&mut self) -> Result<(u64, Utime), Halt> {
        self.exec.stat()
    }

    /// Up to `len` bytes from `off`; fewer at the end; `len` 0 means to the end.
    pub fn read(&mut self, off: u64, len: u64) -> Result<Bytes, Halt> {
        self.used |= RD;
        Ok(self.exec.read(off, len)?.contiguous())
    }

    /// ENODATA if there is no such attribute, ENOENT if there is no object.
    pub fn getxattr(&mut self, name: &[u8]) -> Result<Bytes, Halt> {
        self.used |= RD;
        self.exec.getxattr(name)
    }

    pub fn getxattrs(&mut self) -> Result<BTreeMap<BString, Bytes>, Halt> {
        self.used |= RD;
        self.exec.getxattrs()
    }

    pub fn setxattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Halt> {
        self.used |= WR;
        self.exec.setxattr(name, value)
    }

    /// One omap value; ENODATA if there is no such key.
    pub fn omap_get(&mut self, key: &[u8]) -> Result<Bytes, Halt> {
        self.used |= RD;
        self.exec.omap_value(key)
    }

    pub fn omap_set(&mut self, key: &[u8], value: Bytes) -> Result<(), Halt> {
        self.used |= WR;
        self.exec.omap_set(vec![(BString::from(key), value)])
    }

    /// Replaces the whole content.
    pub fn write_full(&mut self, data: Bytes) -> Result<(), Halt> {
        self.used |= WR;
        self.exec.write_full(data.into())
    }

    /// Deletes the object; ENOENT.
    pub fn remove(&mut self) -> Result<(), Halt> {
        self.used |= WR;
        self.exec.delete()
    }
}
