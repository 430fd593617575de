//! Operations that change data, or the object as a whole.

use super::Halt;
use super::exec::Exec;
use crate::mutation::Step;
use crate::object::{INFO_ATTR, ObjectInfo};
use denc::BString;
use types::pg::SeenAt;
use types::{Errno, HObject, Snap};
use types::msg::BufList;
use types::msg::osd_op::{AllocHint, Extent, OsdOp, WriteSame, op_flag};

impl Exec<'_> {
    pub(super) fn op_write(&mut self, op: &OsdOp, e: Extent) -> Result<(), Halt> {
        if e.length != op.indata.len() as u64 {
            return Err(Errno::EINVAL.into());
        }
        self.write_at(e, op.indata.clone())
    }

    /// A write that may have met a truncation on its way: `truncate_seq` tells which came first.
    fn write_at(&mut self, e: Extent, mut data: BufList) -> Result<(), Halt> {
        let seq = self.info.truncate_seq;
        let no_truncation = e.truncate_seq == 1 && e.truncate_size == u64::MAX;
        let truncate_seq = if no_truncation { 0 } else { e.truncate_seq };
        let mut len = data.len() as u64;
        let end = e.offset.checked_add(len).ok_or(Errno::EFBIG)?;
        if seq > 0 && seq > truncate_seq && end > self.info.size {
            // Sent before the truncation we already did: it must not make the object longer again.
            len = self.info.size.saturating_sub(e.offset);
            data = data.contiguous().slice(..len as usize).into();
        }
        self.check_extent(e.offset, len)?;
        if truncate_seq > seq {
            if self.exists {
                self.set_size(e.truncate_size);
            }
            (self.info.truncate_seq, self.info.truncate_size) = (truncate_seq, e.truncate_size);
        }
        self.create_if_new();
        if len == 0 {
            match e.offset > self.info.size {
                true => self.set_size(e.offset),
                false => self.mutation.push(Step::Touch),
            }
            return Ok(());
        }
        self.bytes_written += len;
        self.mutation.push(Step::Write { off: e.offset, data });
        self.info.size = self.info.size.max(e.offset + len);
        Ok(())
    }

    pub(super) fn op_append(&mut self, op: &OsdOp, e: Extent) -> Result<(), Halt> {
        if e.length != op.indata.len() as u64 {
            return Err(Errno::EINVAL.into());
        }
        let offset = if self.exists { self.info.size } else { 0 };
        let extent = Extent { offset, length: e.length, truncate_seq: self.info.truncate_seq, truncate_size: 0 };
        self.write_at(extent, op.indata.clone())
    }

    pub(super) fn op_writefull(&mut self, op: &OsdOp, e: Extent) -> Result<(), Halt> {
        if e.length != op.indata.len() as u64 {
            return Err(Errno::EINVAL.into());
        }
        self.write_full(op.indata.clone())
    }

    pub(crate) fn write_full(&mut self, data: BufList) -> Result<(), Halt> {
        let len = data.len() as u64;
        self.check_extent(0, len)?;
        self.create_if_new();
        if len < self.info.size {
            self.mutation.push(Step::Truncate { size: len });
        }
        self.mutation.push(match len {
            0 => Step::Touch,
            _ => Step::Write { off: 0, data },
        });
        self.bytes_written += len;
        self.info.size = len;
        Ok(())
    }

    pub(super) fn op_writesame(&mut self, op: &OsdOp, w: WriteSame) -> Result<(), Halt> {
        if w.length == 0 {
            return Ok(());
        }
        let piece = op.indata.len() as u64;
        if w.data_length == 0 || !w.length.is_multiple_of(w.data_length) || w.data_length != piece {
            return Err(Errno::EINVAL.into());
        }
        self.check_extent(w.offset, w.length)?;
        let data = BufList::from(vec![op.input(); (w.length / piece) as usize]);
        self.write_at(Extent { offset: w.offset, length: w.length, ..Extent::default() }, data)
    }

    /// Zeros up to the end are a truncation; beyond the end they are nothing.
    pub(super) fn op_zero(&mut self, e: Extent) -> Result<(), Halt> {
        let max = self.env.limits.object_size_max;
        let end = e.offset.saturating_add(e.length);
        if self.exists && e.offset < max && (1..=max).contains(&e.length) && end >= self.info.size {
            return match e.offset >= self.info.size {
                true => Ok(()),
                false => self.op_truncate(Extent { length: 0, ..e }),
            };
        }
        self.check_extent(e.offset, e.length)?;
        if self.exists && e.length > 0 {
            self.mutation.push(Step::Zero { off: e.offset, len: e.length });
        }
        Ok(())
    }

    pub(super) fn op_truncate(&mut self, e: Extent) -> Result<(), Halt> {
        if !self.exists {
            return Ok(());
        }
        self.check_extent(e.offset, 0)?;
        if e.truncate_seq != 0 && !(e.truncate_seq == 1 && e.truncate_size == u64::MAX) {
            if e.offset != e.truncate_size {
                return Err(Errno::EINVAL.into());
            }
            if e.truncate_seq <= self.info.truncate_seq {
                return Ok(());
            }
            (self.info.truncate_seq, self.info.truncate_size) = (e.truncate_seq, e.truncate_size);
        }
        self.set_size(e.offset);
        Ok(())
    }

    pub(super) fn op_create(&mut self, op: &OsdOp) -> Result<(), Halt> {
        if self.exists && op.flags & op_flag::EXCL != 0 {
            return Err(Errno::EEXIST.into());
        }
        if !op.indata.is_empty() {
            // A category, which nothing uses any more.
            denc::from_slice::<BString>(&op.input()).map_err(|_| Errno::EINVAL)?;
        }
        self.create_if_new();
        self.mutation.push(Step::Touch);
        Ok(())
    }

    pub(crate) fn delete(&mut self) -> Result<(), Halt> {
        self.must_exist()?;
        self.mutation.push(Step::Remove);
        self.watch.push(super::WatchAction::ObjectDeleted);
        self.exists = false;
        self.stored_size = None;
        self.info = ObjectInfo { user_version: self.info.user_version, ..ObjectInfo::default() };
        Ok(())
    }

    /// The object becomes what it was at a snapshot. One that was not there then goes, unless it is watched.
    pub(super) fn op_rollback(&mut self, snap: Snap) -> Result<(), Halt> {
        match self.env.snaps.seen_at(snap) {
            SeenAt::Nothing if !self.info.watchers.is_empty() => Err(Errno::EBUSY.into()),
            SeenAt::Nothing if self.exists => self.delete(),
            SeenAt::Head if self.exists => {
                // Nothing was written since; yet it is a write, before which a newer snapshot is kept.
                self.mutation.push(Step::Touch);
                Ok(())
            }
            SeenAt::Nothing | SeenAt::Head => Ok(()),
            SeenAt::Clone(clone) => self.become_clone(clone),
        }
    }

    fn become_clone(&mut self, clone: Snap) -> Result<(), Halt> {
        let object = HObject { snap: clone, ..self.env.obj.clone() };
        let raw = self.env.disk.getattr(self.env.coll, &object, INFO_ATTR)?;
        let of: ObjectInfo = denc::from_bytes(&raw).map_err(|_| Errno::EIO)?;
        self.mutation.push(Step::BecomeClone { clone });
        if !self.exists {
            self.info = ObjectInfo { user_version: self.info.user_version, ..ObjectInfo::default() };
            self.exists = true;
        }
        self.stored_size = None;
        self.info = ObjectInfo {
            size: of.size,
            flags: of.flags & ObjectInfo::OMAP,
            expected_object_size: of.expected_object_size,
            expected_write_size: of.expected_write_size,
            alloc_hint_flags: of.alloc_hint_flags,
            ..std::mem::take(&mut self.info)
        };
        Ok(())
    }

    /// A hint never fails and creates the object, as upstream's does.
    pub(super) fn op_alloc_hint(&mut self, h: AllocHint) -> Result<(), Halt> {
        self.create_if_new();
        self.info.expected_object_size = h.object_size;
        self.info.expected_write_size = h.write_size;
        self.info.alloc_hint_flags = h.flags;
        let step = Step::AllocHint { object_size: h.object_size, write_size: h.write_size, flags: h.flags };
        self.mutation.push(step);
        Ok(())
    }

    pub(super) fn set_size(&mut self, size: u64) {
        self.mutation.push(Step::Truncate { size });
        self.info.size = size;
    }

    /// EFBIG beyond the largest object.
    pub(super) fn check_extent(&self, off: u64, len: u64) -> Result<(), Errno> {
        let max = self.env.limits.object_size_max;
        match off < max && len <= max && off + len <= max {
            true => Ok(()),
            false => Err(Errno::EFBIG),
        }
    }
}
