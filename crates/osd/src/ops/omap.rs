//! Omap: sorted keys with values, and one header.

use super::Halt;
use super::exec::{Exec, Output};
use super::read::emit;
use crate::disk::Pairs;
use crate::mutation::Step;
use crate::object::ObjectInfo;
use bytes::Bytes;
use denc::{BString, Decode, Decoder, Encoder};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use types::Errno;
use types::msg::osd_op::OsdOp;

/// Keys fetched at a time while listing.
const PAGE: usize = 256;

impl Exec<'_> {
    pub(super) fn op_omap_get_keys(&mut self, op: &OsdOp, out: &mut Output) -> Result<(), Halt> {
        let (after, max): (BString, u64) = args(op)?;
        self.must_exist()?;
        self.list(&after, max, b"", out, |e, key, _| {
            e.put(key);
        })
    }

    pub(super) fn op_omap_get_vals(&mut self, op: &OsdOp, out: &mut Output) -> Result<(), Halt> {
        let (after, max, prefix): (BString, u64, BString) = args(op)?;
        self.must_exist()?;
        self.list(&after, max, &prefix, out, |e, key, value| {
            e.put(key).put(value);
        })
    }

    /// Writes count, items and "more" of the keys behind `after` that start with `prefix`.
    fn list(
        &mut self,
        after: &BString,
        max: u64,
        prefix: &[u8],
        out: &mut Output,
        item: fn(&mut Encoder, &BString, &Bytes),
    ) -> Result<(), Halt> {
        let max = max.min(self.env.limits.omap_entries_max) as usize;
        let bytes_max = self.env.limits.omap_bytes_max;
        let mut e = Encoder::new(0);
        e.count(0);
        let (mut count, mut more) = (0usize, false);
        let mut from = match prefix > after.as_slice() {
            true => Bound::Included(BString::from(prefix)),
            false => Bound::Excluded(after.clone()),
        };
        'pages: loop {
            let wanted = (max - count + 1).min(PAGE);
            let page = self.omap_page(&from, wanted)?;
            let full = page.len() == wanted;
            for (key, value) in &page {
                if !key.starts_with(prefix) {
                    break 'pages;
                }
                if count >= max || e.len() >= bytes_max {
                    more = true;
                    break 'pages;
                }
                item(&mut e, key, value);
                count += 1;
            }
            match page.into_iter().next_back() {
                Some((last, _)) if full => from = Bound::Excluded(last),
                _ => break,
            }
        }
        e.patch_u32(0, count as u32);
        e.put(&more);
        self.bytes_read += e.len() as u64;
        out.data = e.finish().into();
        Ok(())
    }

    fn omap_page(&mut self, from: &Bound<BString>, limit: usize) -> Result<Pairs, Halt> {
        if !self.omap_stored() {
            return Ok(Vec::new());
        }
        let from = from.as_ref().map(|k| k.as_slice());
        Ok(self.env.disk.omap_list(self.env.coll, self.env.obj, from, limit)?)
    }

    fn omap_values(&mut self, keys: &[BString]) -> Result<Pairs, Halt> {
        if !self.omap_stored() {
            return Ok(Vec::new());
        }
        Ok(self.env.disk.omap_get_values(self.env.coll, self.env.obj, keys)?)
    }

    /// True if the stored object may have keys.
    fn omap_stored(&self) -> bool {
        self.stored_size.is_some() && self.info.has_omap()
    }

    pub(super) fn op_omap_get_header(&mut self, out: &mut Output) -> Result<(), Halt> {
        self.must_exist()?;
        if self.omap_stored() {
            out.data = self.env.disk.omap_get_header(self.env.coll, self.env.obj)?.into();
        }
        Ok(())
    }

    pub(super) fn op_omap_get_by_keys(&mut self, op: &OsdOp, out: &mut Output) -> Result<(), Halt> {
        let keys: BTreeSet<BString> = args(op)?;
        self.must_exist()?;
        let keys: Vec<BString> = keys.into_iter().collect();
        let found = self.omap_values(&keys)?;
        emit(out, &found);
        Ok(())
    }

    /// Values must compare as asked (1 eq, 3 gt, 5 lt); a key not there is empty.
    pub(super) fn op_omap_cmp(&mut self, op: &OsdOp) -> Result<(), Halt> {
        self.must_exist()?;
        let wanted: BTreeMap<BString, (Bytes, i32)> = args(op)?;
        let keys: Vec<BString> = wanted.keys().cloned().collect();
        let have: BTreeMap<BString, Bytes> = self.omap_values(&keys)?.into_iter().collect();
        for (key, (value, cmp)) in &wanted {
            let have = have.get(key).cloned().unwrap_or_default();
            let holds = match cmp {
                1 => have == *value,
                3 => have > *value,
                5 => have < *value,
                _ => return Err(Errno::EINVAL.into()),
            };
            if !holds {
                return Err(Errno::ECANCELED.into());
            }
        }
        Ok(())
    }

    pub(super) fn op_omap_set(&mut self, op: &OsdOp) -> Result<(), Halt> {
        // A map: the last of equal keys wins.
        let pairs: BTreeMap<BString, Bytes> = args(op)?;
        self.bytes_written += op.indata.len() as u64;
        self.omap_set(pairs.into_iter().collect())
    }

    pub(crate) fn omap_set(&mut self, pairs: Pairs) -> Result<(), Halt> {
        self.create_if_new();
        self.info.flags |= ObjectInfo::OMAP;
        // Nothing to set still marks the object as changed.
        self.mutation.push(if pairs.is_empty() { Step::Touch } else { Step::OmapSet { pairs } });
        Ok(())
    }

    pub(super) fn op_omap_set_header(&mut self, op: &OsdOp) -> Result<(), Halt> {
        self.create_if_new();
        self.info.flags |= ObjectInfo::OMAP;
        self.mutation.push(Step::OmapSetHeader { header: op.input() });
        Ok(())
    }

    pub(super) fn op_omap_clear(&mut self) -> Result<(), Halt> {
        self.must_exist()?;
        if self.info.has_omap() {
            self.info.flags &= !ObjectInfo::OMAP;
            self.mutation.push(Step::OmapClear);
        }
        Ok(())
    }

    pub(super) fn op_omap_rm(&mut self, op: &OsdOp) -> Result<(), Halt> {
        self.must_exist()?;
        let keys: BTreeSet<BString> = args(op)?;
        self.mutation.push(Step::OmapRm { keys: keys.into_iter().collect() });
        Ok(())
    }

    pub(super) fn op_omap_rm_range(&mut self, op: &OsdOp) -> Result<(), Halt> {
        self.must_exist()?;
        let (from, to) = args(op)?;
        self.mutation.push(Step::OmapRmRange { from, to });
        Ok(())
    }

    /// One value for a class method; ENODATA if there is no such key.
    pub(crate) fn omap_value(&mut self, key: &[u8]) -> Result<Bytes, Halt> {
        self.must_exist()?;
        let found = self.omap_values(&[BString::from(key)])?;
        found.into_iter().next().map(|(_, value)| value).ok_or(Errno::ENODATA.into())
    }
}

/// The payload's value; EINVAL if it is not one.
fn args<T: Decode>(op: &OsdOp) -> Result<T, Errno> {
    T::decode(&mut Decoder::shared(&op.input())).map_err(|_| Errno::EINVAL)
}
