//! Extended attributes.

use super::exec::{Exec, Output};
use super::read::emit;
use super::{Halt, compare};
use crate::mutation::Step;
use crate::object::{INFO_ATTR, user_attr};
use bytes::Bytes;
use denc::BString;
use std::collections::BTreeMap;
use types::Errno;
use types::msg::osd_op::{OsdOp, Xattr};

const MODE_STRING: u8 = 1;
const MODE_U64: u8 = 2;

impl Exec<'_> {
    pub(super) fn op_getxattr(&mut self, op: &OsdOp, x: Xattr, out: &mut Output) -> Result<(), Halt> {
        let (name, _) = name_value(op, Xattr { value_len: 0, ..x })?;
        out.data = self.getxattr(&name)?.into();
        Ok(())
    }

    pub(super) fn op_getxattrs(&mut self, out: &mut Output) -> Result<(), Halt> {
        let attrs = self.getxattrs()?;
        emit(out, &attrs);
        Ok(())
    }

    /// The client's value on the left: ECANCELED unless it compares as asked. An attribute not there is empty.
    pub(super) fn op_cmpxattr(&mut self, op: &OsdOp, x: Xattr) -> Result<(), Halt> {
        let value_len = if x.cmp_mode == MODE_U64 { 8 } else { x.value_len };
        let (name, value) = name_value(op, Xattr { value_len, ..x })?;
        let have = match self.getxattr(&name) {
            Err(Halt::Errno(Errno::ENODATA)) => Bytes::new(),
            other => other?,
        };
        let order = match x.cmp_mode {
            MODE_STRING => value.cmp(&have),
            MODE_U64 => {
                let value: u64 = denc::from_slice(&value).map_err(|_| Errno::EINVAL)?;
                value.cmp(&compare::leading_u64(&have))
            }
            _ => return Err(Errno::EINVAL.into()),
        };
        match compare::holds(x.cmp_op, order)? {
            true => Ok(()),
            false => Err(Errno::ECANCELED.into()),
        }
    }

    pub(super) fn op_setxattr(&mut self, op: &OsdOp, x: Xattr) -> Result<(), Halt> {
        let limits = self.env.limits;
        if limits.attr_size_max > 0 && x.value_len > limits.attr_size_max {
            return Err(Errno::EFBIG.into());
        }
        if x.name_len > limits.attr_name_len_max {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let (name, value) = name_value(op, x)?;
        self.setxattr(&name, value)
    }

    pub(super) fn op_rmxattr(&mut self, op: &OsdOp, x: Xattr) -> Result<(), Halt> {
        let (name, _) = name_value(op, Xattr { value_len: 0, ..x })?;
        self.must_exist()?;
        self.mutation.push(Step::RmAttr { name: user_attr(&name) });
        Ok(())
    }

    pub(crate) fn getxattr(&mut self, name: &[u8]) -> Result<Bytes, Halt> {
        self.must_exist()?;
        if self.stored_size.is_none() {
            return Err(Errno::ENODATA.into());
        }
        Ok(self.env.disk.getattr(self.env.coll, self.env.obj, &user_attr(name))?)
    }

    /// What clients set, without our prefix.
    pub(crate) fn getxattrs(&mut self) -> Result<BTreeMap<BString, Bytes>, Halt> {
        self.must_exist()?;
        if self.stored_size.is_none() {
            return Ok(BTreeMap::new());
        }
        let all = self.env.disk.getattrs(self.env.coll, self.env.obj)?;
        let user = |(name, value): (BString, Bytes)| match name.strip_prefix(INFO_ATTR) {
            Some(rest) if !rest.is_empty() => Some((BString::from(rest), value)),
            _ => None,
        };
        Ok(all.into_iter().filter_map(user).collect())
    }

    pub(crate) fn setxattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Halt> {
        self.create_if_new();
        self.bytes_written += value.len() as u64;
        self.mutation.push(Step::SetAttr { name: user_attr(name), value });
        Ok(())
    }
}

fn name_value(op: &OsdOp, x: Xattr) -> Result<(Bytes, Bytes), Errno> {
    op.xattr_name_value(&x).map_err(|_| Errno::EINVAL)
}
