//! Onodes and their segments, brought into memory from the database.

use crate::onode::{Block, Onode, PendCell, SEG_BLOCKS, Segment};
use crate::*;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use types::Errno;

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// The onode as the database has it; one that does not exist if it has none.
    pub(crate) fn load_onode(&mut self, key: &[u8]) -> Result<Box<Onode>, Errno> {
        self.perf.onode_missed();
        let absent = || Box::new(Onode { complete: true, ..Onode::default() });
        if self.names.lacks(key) {
            return Ok(absent());
        }
        let value = self.kv.get(key);
        match self.kv_ok(value)? {
            None => Ok(absent()),
            Some(value) => match Onode::from_value(&value) {
                Ok(onode) => Ok(Box::new(onode)),
                Err(_) => Err(Errno::EIO),
            },
        }
    }

    /// Where a logical block is, and what is pending there.
    pub(crate) fn mapping(&mut self, o: &mut Onode, lblk: u64) -> Result<(Block, Option<Arc<PendCell>>), Errno> {
        let seg = self.seg(o, (lblk / SEG_BLOCKS) as u32)?;
        let i = lblk % SEG_BLOCKS;
        Ok((seg.get(i), seg.pend(i).cloned()))
    }

    /// A segment, read from the database if need be.
    pub(crate) fn seg<'a>(&mut self, o: &'a mut Onode, seg: u32) -> Result<&'a mut Segment, Errno> {
        if o.segs.get(seg).is_none() {
            let loaded = if o.complete { Segment::default() } else { self.load_seg(o.nid, seg)? };
            o.segs.insert(seg, loaded);
        }
        let s = o.segs.get_mut(seg).expect("it is in memory");
        s.settle();
        Ok(s)
    }

    fn load_seg(&mut self, nid: u64, seg: u32) -> Result<Segment, Errno> {
        let value = self.kv.get(&key::segment(nid, seg));
        match self.kv_ok(value)? {
            None => Ok(Segment::default()),
            Some(value) => self.decode_seg(&value),
        }
    }

    /// A segment that cannot be decoded is found in the middle of planning: there is no way back.
    fn decode_seg(&mut self, value: &Bytes) -> Result<Segment, Errno> {
        Segment::from_value(value).map_err(|_| {
            self.poison(Errno::EIO);
            Errno::EIO
        })
    }

    /// All segments from one on.
    pub(crate) fn load_segs(&mut self, o: &mut Onode, from: u32) -> Result<(), Errno> {
        if !o.complete {
            let (first, last) = (key::segment(o.nid, from), key::segment(o.nid, u32::MAX));
            let found = self.kv.scan(Bound::Included(&first), Bound::Included(&last), usize::MAX);
            for (key, value) in self.kv_ok(found)? {
                let Some((_, seg)) = key::parse_segment(&key) else { continue };
                if o.segs.get(seg).is_none() {
                    o.segs.insert(seg, self.decode_seg(&value)?);
                }
            }
            o.complete = from <= 1;
        }
        o.segs.iter_mut().for_each(Segment::settle);
        Ok(())
    }
}
