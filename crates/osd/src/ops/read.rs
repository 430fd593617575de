//! Operations that return data or facts of the object.

use super::exec::{Exec, Output};
use super::{Halt, compare};
use denc::{Encode, Encoder};
use types::msg::BufList;
use types::msg::osd_op::{Checksum, Extent, Op, OsdOp};
use types::{Errno, Snap};

/// Upstream's largest errno: results below it tell where two extents differ.
const MAX_ERRNO: i32 = 4095;

/// A `truncate_size` of all ones under sequence 1 means "no truncation".
fn munged(e: Extent) -> Extent {
    match e.truncate_seq == 1 && e.truncate_size == u64::MAX {
        true => Extent { truncate_seq: 0, truncate_size: 0, ..e },
        false => e,
    }
}

impl Exec<'_> {
    /// The part of an extent that has data: zero length asks for everything.
    pub(super) fn visible(&self, e: Extent) -> (u64, u64) {
        let e = munged(e);
        let size = self.info.size_seen_by(e.truncate_seq, e.truncate_size, e.offset.saturating_add(e.length));
        let wanted = if e.length == 0 { size } else { e.length };
        (e.offset, wanted.min(size.saturating_sub(e.offset)))
    }

    pub(super) fn op_read(&mut self, _: &OsdOp, e: Extent, out: &mut Output) -> Result<(), Halt> {
        self.must_exist()?;
        let (off, len) = self.visible(e);
        out.data = self.fetch(off, len, false)?.data;
        out.op = Some(Op::Read(Extent { length: out.data.len() as u64, ..e }));
        Ok(())
    }

    pub(super) fn op_sparse_read(&mut self, _: &OsdOp, e: Extent, out: &mut Output) -> Result<(), Halt> {
        self.must_exist()?;
        if munged(e).truncate_seq != 0 {
            return Err(Errno::EINVAL.into());
        }
        let (off, len) = self.visible(e);
        let got = self.fetch(off, len, true)?;
        let mut front = Encoder::with_capacity(0, 16 + got.extents.len() * 16);
        front.put(&got.extents).count(got.data.len());
        out.data = front.finish().into();
        out.data.append(got.data);
        Ok(())
    }

    /// Which parts hold data; everything, as far as we tell.
    pub(super) fn op_mapext(&mut self, e: Extent, out: &mut Output) -> Result<(), Halt> {
        self.must_exist()?;
        let (off, len) = self.visible(e);
        let runs: Vec<(u64, u64)> = (len > 0).then_some((off, len)).into_iter().collect();
        emit(out, &runs);
        Ok(())
    }

    pub(super) fn op_stat(&mut self, out: &mut Output) -> Result<(), Halt> {
        let facts = self.stat()?;
        emit(out, &facts);
        Ok(())
    }

    pub(super) fn op_assert_ver(&mut self, ver: u64) -> Result<(), Halt> {
        match ver.cmp(&self.info.user_version) {
            _ if ver == 0 => Err(Errno::EINVAL.into()),
            std::cmp::Ordering::Less => Err(Errno::ERANGE.into()),
            std::cmp::Ordering::Greater => Err(Errno::EOVERFLOW.into()),
            std::cmp::Ordering::Equal => Ok(()),
        }
    }

    /// Every object is dirty: nothing is ever flushed to another tier.
    pub(super) fn op_isdirty(&mut self, out: &mut Output) -> Result<(), Halt> {
        emit(out, &self.exists);
        Ok(())
    }

    /// The clones and the live object, as `obj_list_snap_response_t`.
    pub(super) fn op_list_snaps(&mut self, out: &mut Output) -> Result<(), Halt> {
        let set = &self.env.snaps.set;
        if set.clones.is_empty() {
            self.must_exist()?;
        }
        let mut e = Encoder::new(0);
        e.envelope(2, 1, |e| {
            e.count(set.clones.len() + usize::from(self.exists));
            for clone in &set.clones {
                let snaps: Vec<Snap> = set.snaps_of(*clone).iter().rev().copied().collect();
                let overlap: Vec<(u64, u64)> = set.clone_overlap.get(clone).into_iter().flat_map(|o| &o.0).map(|(o, l)| (*o, *l)).collect();
                let size = set.clone_size.get(clone).copied().unwrap_or(0);
                e.envelope(1, 1, |e| {
                    e.put(clone).put(&snaps).put(&overlap).put(&size);
                });
            }
            if self.exists {
                e.envelope(1, 1, |e| {
                    e.put(&Snap::HEAD).count(0).count(0).put(&self.info.size);
                });
            }
            e.put(&set.seq);
        });
        out.data = e.finish().into();
        Ok(())
    }

    pub(super) fn op_cmpext(&mut self, op: &OsdOp, e: Extent) -> Result<(), Halt> {
        let e = munged(e);
        let end = e.offset.saturating_add(e.length);
        let size = match self.info.truncate_seq < e.truncate_seq && end > e.truncate_size {
            true => e.truncate_size,
            false => self.info.size,
        };
        let len = e.length.min(size.saturating_sub(e.offset));
        let have = self.fetch(e.offset, len, false)?.data.contiguous();
        // Where the object ends it reads as zeros.
        let differs = |(i, want): (usize, &u8)| have.get(i).copied().unwrap_or(0) != *want;
        match op.input().iter().enumerate().position(differs) {
            None => Ok(()),
            Some(at) => Err(Halt::Code(-MAX_ERRNO - at as i32)),
        }
    }

    pub(super) fn op_checksum(&mut self, op: &OsdOp, c: Checksum, out: &mut Output) -> Result<(), Halt> {
        self.must_exist()?;
        let chunk = u64::from(c.chunk_size);
        if chunk > 0 && (c.length == 0 || !c.length.is_multiple_of(chunk)) {
            return Err(Errno::EINVAL.into());
        }
        let size = self.info.size;
        let len = match (c.offset, c.length) {
            (0, 0) => size,
            (off, _) if off >= size => return Ok(()),
            (off, len) => len.min(size - off),
        };
        if chunk > 0 && len % chunk != 0 {
            return Err(Errno::EINVAL.into());
        }
        let sums = compare::Checksummer::new(c.kind, &op.input())?;
        let data = match len {
            0 => BufList::default(),
            _ => self.fetch(c.offset, len, false)?.data,
        };
        if data.len() as u64 != len {
            return Err(Errno::EINVAL.into());
        }
        out.data = sums.run(&data.contiguous(), c.chunk_size as usize).into();
        Ok(())
    }

    /// Data for a class method.
    pub(crate) fn read(&mut self, off: u64, len: u64) -> Result<BufList, Halt> {
        self.must_exist()?;
        let (off, len) = self.visible(Extent { offset: off, length: len, ..Extent::default() });
        Ok(self.fetch(off, len, false)?.data)
    }
}

/// Makes `value`'s encoding the output.
pub(super) fn emit<T: Encode + ?Sized>(out: &mut Output, value: &T) {
    out.data = denc::to_bytes(value, types::features::SUPPORTED).into();
}
