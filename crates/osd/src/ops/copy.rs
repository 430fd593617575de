//! copy-from: an object becomes a copy of another, which its OSD fetches itself; and copy-get, which serves that.
//!
//! Upstream: object_copy_cursor_t, object_copy_data_t (src/osd/osd_types.cc).

use super::Halt;
use super::exec::{Exec, Output};
use super::read::emit;
use crate::mutation::Step;
use crate::object::ObjectInfo;
use bytes::Bytes;
use denc::{BString, Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;
use std::ops::Bound;
use types::msg::BufList;
use types::msg::osd_op::{CopyFrom, OsdOp};
use types::{Errno, ObjectLocator, ReqId, Snap, Utime};

/// `CEPH_OSD_COPY_FROM_FLAG_MAP_SNAP_CLONE`.
const FLAG_MAP_SNAP_CLONE: u8 = 8;
/// `CEPH_OSD_COPY_FROM_FLAG_TRUNCATE_SEQ`: the truncation of the copy comes with the request.
const FLAG_TRUNCATE_SEQ: u8 = 32;
const FLAGS_KNOWN: u8 = 63;
/// Omap pairs a single answer carries at most.
const OMAP_PAGE: usize = 1024;

/// What to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopySource {
    pub name: BString,
    pub locator: ObjectLocator,
    pub snap: Snap,
    /// `snap` is the name of a clone.
    pub names_clone: bool,
    /// The user version it must have; 0 is any.
    pub version: u64,
}

/// How far a copy has come (`object_copy_cursor_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct CopyCursor {
    pub attr_complete: bool,
    pub data_offset: u64,
    pub data_complete: bool,
    pub omap_offset: BString,
    pub omap_complete: bool,
}

impl CopyCursor {
    /// True when everything was copied.
    pub fn is_complete(&self) -> bool {
        self.attr_complete && self.data_complete && self.omap_complete
    }
}

/// A part of a copy, or all of it (`object_copy_data_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopyData {
    pub size: u64,
    pub mtime: Utime,
    pub attrs: BTreeMap<BString, Bytes>,
    pub data: BufList,
    pub omap: Vec<(BString, Bytes)>,
    pub omap_header: Bytes,
    pub cursor: CopyCursor,
    pub truncate_seq: u32,
    pub truncate_size: u64,
    /// Travels in the reply's header.
    pub user_version: u64,
}

impl CopyData {
    /// Adds the next part.
    pub fn append(&mut self, next: CopyData) {
        self.attrs.extend(next.attrs);
        self.data.append(next.data);
        self.omap.extend(next.omap);
        if !next.omap_header.is_empty() {
            self.omap_header = next.omap_header;
        }
        (self.size, self.mtime, self.cursor) = (next.size, next.mtime, next.cursor);
        (self.truncate_seq, self.truncate_size) = (next.truncate_seq, next.truncate_size);
        self.user_version = next.user_version;
    }
}

impl Encode for CopyData {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(8, 5, |e| {
            e.put(&self.size).put(&self.mtime).put(&self.attrs).count(self.data.len());
            self.data.pieces().iter().for_each(|piece| {
                e.raw(piece);
            });
            match self.omap.is_empty() {
                true => {
                    e.count(0);
                }
                false => e.nested(|e| {
                    e.put(&self.omap);
                }),
            }
            e.put(&self.cursor).put(&self.omap_header);
            // Snapshots, their sequence, flags, two digests, request ids.
            e.count(0).put(&Snap(0)).put(&0u32).put(&0u32).put(&0u32).count(0);
            e.put(&self.truncate_seq).put(&self.truncate_size).count(0);
        });
    }
}
impl Decode for CopyData {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("object_copy_data_t", 8, |v, d| {
            if v < 7 {
                return Err(DecodeError::Invalid("object_copy_data_t older than version 7"));
            }
            let (size, mtime, attrs) = (d.get()?, d.get()?, d.get()?);
            let data = d.blob()?.into();
            let omap = d.nested(|d| if d.is_empty() { Ok(Vec::new()) } else { d.get() })?;
            let (cursor, omap_header) = (d.get()?, d.get()?);
            let _: (Vec<u64>, u64) = d.get()?;
            let _: (u32, u32, u32) = d.get()?;
            let _: Vec<(ReqId, u64)> = d.get()?;
            let (truncate_seq, truncate_size) = (d.get()?, d.get()?);
            Ok(CopyData { size, mtime, attrs, data, omap, omap_header, cursor, truncate_seq, truncate_size, user_version: 0 })
        })
    }
}

impl Exec<'_> {
    pub(super) fn op_copy_get(&mut self, op: &OsdOp, _: u64, out: &mut Output) -> Result<(), Halt> {
        self.must_exist()?;
        let (mut cursor, max): (CopyCursor, u64) =
            Decode::decode(&mut Decoder::shared(&op.input())).map_err(|_| Errno::EINVAL)?;
        let info = &self.info;
        let mut part = CopyData {
            size: info.size,
            mtime: info.mtime,
            truncate_seq: info.truncate_seq,
            truncate_size: info.truncate_size,
            ..CopyData::default()
        };
        if !cursor.data_complete {
            let len = max.min(info.size.saturating_sub(cursor.data_offset));
            part.data = self.fetch(cursor.data_offset, len, false)?.data;
            cursor.data_offset += part.data.len() as u64;
            cursor.data_complete = cursor.data_offset >= self.info.size;
        }
        if !cursor.attr_complete {
            part.attrs = self.getxattrs()?;
            cursor.attr_complete = true;
        }
        if cursor.data_complete && !cursor.omap_complete {
            self.copy_omap(&mut cursor, &mut part)?;
        }
        part.cursor = cursor;
        emit(out, &part);
        Ok(())
    }

    fn copy_omap(&mut self, cursor: &mut CopyCursor, part: &mut CopyData) -> Result<(), Halt> {
        if !self.info.has_omap() || self.stored_size.is_none() {
            cursor.omap_complete = true;
            return Ok(());
        }
        let (disk, coll, obj) = (&mut self.env.disk, self.env.coll, self.env.obj);
        let from = match cursor.omap_offset.is_empty() {
            true => {
                part.omap_header = disk.omap_get_header(coll, obj)?;
                Bound::Unbounded
            }
            false => Bound::Excluded(cursor.omap_offset.as_slice()),
        };
        part.omap = disk.omap_list(coll, obj, from, OMAP_PAGE)?;
        cursor.omap_complete = part.omap.len() < OMAP_PAGE;
        if let Some((last, _)) = part.omap.last() {
            cursor.omap_offset = last.clone();
        }
        Ok(())
    }

    pub(super) fn op_copy_from(&mut self, op: &OsdOp, c: CopyFrom, second: bool) -> Result<(), Halt> {
        if second && c.flags & !FLAGS_KNOWN != 0 {
            return Err(Errno::EINVAL.into());
        }
        let input = op.input();
        let mut d = Decoder::shared(&input);
        let (name, locator): (BString, ObjectLocator) = d.get().map_err(|_| Errno::EINVAL)?;
        let truncation: Option<(u32, u64)> = match second && c.flags & FLAG_TRUNCATE_SEQ != 0 {
            true => Some(d.get().map_err(|_| Errno::EINVAL)?),
            false => None,
        };
        let obj = self.env.obj;
        if locator.pool == obj.pool && name == obj.name && locator.nspace == obj.nspace && locator.key == obj.key {
            // Its own clone is in the same queue, behind this very operation.
            let own_clone = c.snap != Snap::HEAD && c.snap != Snap(0);
            return Err(if own_clone { Errno::EOPNOTSUPP } else { Errno::EINVAL }.into());
        }
        let copy = match &self.env.fetched.copy {
            None => {
                let names_clone = c.flags & FLAG_MAP_SNAP_CLONE != 0;
                return Err(Halt::Copy(CopySource { name, locator, snap: c.snap, names_clone, version: c.src_version }));
            }
            Some(copy) => copy.clone()?,
        };
        self.become_copy(copy, truncation);
        Ok(())
    }

    fn become_copy(&mut self, copy: CopyData, truncation: Option<(u32, u64)>) {
        if self.exists {
            self.mutation.push(Step::Remove);
        }
        self.mutation.push(Step::Touch);
        let watchers = std::mem::take(&mut self.info.watchers);
        let (truncate_seq, truncate_size) = truncation.unwrap_or((copy.truncate_seq, copy.truncate_size));
        let mut flags = 0;
        self.bytes_written += copy.data.len() as u64;
        if !copy.data.is_empty() {
            self.mutation.push(Step::Write { off: 0, data: copy.data });
        }
        if !copy.omap.is_empty() || !copy.omap_header.is_empty() {
            flags |= ObjectInfo::OMAP;
            self.mutation.push(Step::OmapSetHeader { header: copy.omap_header });
            self.mutation.push(Step::OmapSet { pairs: copy.omap });
        }
        for (name, value) in copy.attrs {
            self.mutation.push(Step::SetAttr { name: crate::object::user_attr(&name), value });
        }
        self.info = ObjectInfo {
            size: copy.size,
            mtime: copy.mtime,
            user_version: copy.user_version,
            truncate_seq,
            truncate_size,
            flags,
            watchers,
            ..ObjectInfo::default()
        };
        self.exists = true;
        self.copied_version = Some(copy.user_version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_survives_the_wire_with_and_without_omap() {
        let mut data = CopyData { size: 3, data: Bytes::from_static(b"abc").into(), ..CopyData::default() };
        data.attrs.insert("a".into(), "v".into());
        assert_eq!(denc::from_bytes::<CopyData>(&denc::to_bytes(&data, 0)).unwrap(), data);
        data.omap = vec![("k".into(), "v".into())];
        data.cursor = CopyCursor { attr_complete: true, omap_offset: "k".into(), ..CopyCursor::default() };
        assert_eq!(denc::from_bytes::<CopyData>(&denc::to_bytes(&data, 0)).unwrap(), data);
    }
}
