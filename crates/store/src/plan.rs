//! A transaction becomes changes: onodes in memory are changed at once, data is assigned to blocks, and what the
//! database will be told is written down.
//!
//! Holds: nothing here waits. A block that must be read before it can be written is left pending.

use crate::onode::{BLOCK, Onode, Segs};
use crate::txc::{Change, Piece, Txc};
use crate::write::covers;
use crate::*;
use bytes::Bytes;
use std::collections::BTreeSet;
use types::{Errno, HObject, ShardPgId};

/// As many objects as most transactions have at most.
const FEW: usize = 8;
/// Largest object in bytes.
const OBJECT_SIZE_MAX: u64 = 1 << 40;

/// An object of the transaction being planned.
struct Slot {
    key: Bytes,
    onode: Box<Onode>,
    /// The cache's ring has its key.
    known: bool,
    stored_before: u64,
}

/// The transaction being planned.
struct Planner {
    number: u64,
    /// Whose own keys the steps change.
    coll: ShardPgId,
    txc: Txc,
    slots: Vec<Slot>,
}

/// True if the collection is where the object belongs.
pub(crate) fn belongs(coll: ShardPgId, bits: u32, obj: &HObject) -> bool {
    let mask = if bits >= 32 { u32::MAX } else { (1 << bits) - 1 };
    let pool = coll.pg.pool.0;
    !obj.max && (obj.pool.0 == pool || obj.pool.0 == -2 - pool) && obj.hash & mask == coll.pg.seed & mask
}

/// True if none is there twice.
fn are_distinct(objects: &[HObject]) -> bool {
    match objects.len() {
        // Most transactions: a look at each pair takes less than a set.
        ..=FEW => objects.iter().enumerate().all(|(i, o)| !objects[..i].contains(o)),
        many => objects.iter().collect::<BTreeSet<_>>().len() == many,
    }
}

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// Looks for every reason to refuse, before anything is changed.
    pub(crate) fn validate(&mut self, txn: &Transaction) -> Result<(), Errno> {
        let own = txn.ops.iter().position(|op| matches!(op, Op::On { .. })).unwrap_or(txn.ops.len());
        let (own, others) = txn.ops.split_at(own);
        self.validate_others(txn.coll, others)?;
        let mut bits = self.colls.get(&txn.coll).copied();
        let mut need = 0u64;
        let mut clones = false;
        for op in own {
            let Some(_) = bits else {
                let Op::CreateColl { bits: b } = op else { return Err(Errno::ENOENT) };
                bits = Some(*b);
                continue;
            };
            match op {
                Op::CreateColl { .. } => return Err(Errno::EEXIST),
                Op::SetCollBits { bits: b } => bits = Some(*b),
                Op::MergeColl { from } if *from == txn.coll => return Err(Errno::EINVAL),
                Op::MergeColl { from } if !self.colls.contains_key(from) => return Err(Errno::ENOENT),
                Op::RemoveColl => {
                    self.check_empty(txn)?;
                    bits = None;
                }
                Op::Write { off, data, .. } | Op::Xor { off, data, .. } => {
                    let len = data.len() as u64;
                    check_range(*off, len)?;
                    need += len.div_ceil(BLOCK) + 1;
                }
                // Zeroing part of a block takes a new one only if the old one is shared.
                Op::Zero { off, len, .. } => {
                    check_range(*off, *len)?;
                    need += if self.shared.is_empty() && self.compressed.0.is_empty() { 0 } else { 2 };
                }
                Op::Truncate { size, .. } => {
                    check_range(*size, 0)?;
                    need += u64::from(!(self.shared.is_empty() && self.compressed.0.is_empty()) && size % BLOCK != 0);
                }
                Op::CloneRange { from_off, len, to_off, .. } => {
                    check_range(*from_off, *len)?;
                    check_range(*to_off, *len)?;
                    need += len.div_ceil(BLOCK) + 1;
                    clones = true;
                }
                Op::Clone { .. } | Op::Rename { .. } => clones = true,
                _ => {}
            }
        }
        if need > self.alloc.free() {
            return Err(Errno::ENOSPC);
        }
        let bits = bits.or(self.colls.get(&txn.coll).copied()).unwrap_or(0);
        if !txn.objects.iter().all(|o| belongs(txn.coll, bits, o)) || !are_distinct(&txn.objects) {
            return Err(Errno::EINVAL);
        }
        if clones { self.check_sources(txn) } else { Ok(()) }
    }

    /// Steps on other collections: each is made first, and no objects are touched.
    fn validate_others(&self, home: ShardPgId, ops: &[Op]) -> Result<(), Errno> {
        let mut made = BTreeSet::from([home]);
        let mut exists = false;
        for op in ops {
            match op {
                Op::On { coll } if self.colls.contains_key(coll) || !made.insert(*coll) => return Err(Errno::EEXIST),
                Op::On { .. } => exists = false,
                Op::CreateColl { .. } if exists => return Err(Errno::EEXIST),
                Op::CreateColl { .. } => exists = true,
                Op::CollSet { .. } | Op::CollRm { .. } | Op::CollRmRange { .. } if exists => {}
                Op::CollSet { .. } | Op::CollRm { .. } | Op::CollRmRange { .. } => return Err(Errno::ENOENT),
                _ => return Err(Errno::EINVAL),
            }
        }
        Ok(())
    }

    fn check_empty(&mut self, txn: &Transaction) -> Result<(), Errno> {
        let removed = |o: &HObject| txn.ops.iter().any(|op| matches!(op, Op::Remove(i) if txn.objects[i.0 as usize] == *o));
        let (found, _) = self.list(txn.coll, &HObject::min(), &HObject::max(), txn.objects.len() + 1)?;
        if found.iter().all(removed) { Ok(()) } else { Err(Errno::ENOTEMPTY) }
    }

    /// Follows which objects exist through the steps, to find clones of nothing.
    fn check_sources(&mut self, txn: &Transaction) -> Result<(), Errno> {
        // By what the steps so far did to it; of others it is looked up.
        let mut exists = vec![None; txn.objects.len()];
        for op in &txn.ops {
            match op {
                Op::Clone { from, to } | Op::CloneRange { from, to, .. } | Op::Rename { from, to } => {
                    let at = from.0 as usize;
                    if !exists[at].map_or_else(|| self.exists(txn.coll, &txn.objects[at]), Ok)? {
                        return Err(Errno::ENOENT);
                    }
                    exists[to.0 as usize] = Some(true);
                    if matches!(op, Op::Rename { .. }) && from != to {
                        exists[at] = Some(false);
                    }
                }
                Op::Remove(obj) => exists[obj.0 as usize] = Some(false),
                Op::Touch(obj)
                | Op::Create(obj)
                | Op::Write { obj, .. }
                | Op::Xor { obj, .. }
                | Op::Zero { obj, .. }
                | Op::Truncate { obj, .. }
                | Op::SetAttrs { obj, .. }
                | Op::OmapSet { obj, .. }
                | Op::OmapSetHeader { obj, .. }
                | Op::SetAllocHint { obj, .. } => exists[obj.0 as usize] = Some(true),
                _ => {}
            }
        }
        Ok(())
    }

    /// Carries a validated transaction out in memory. Fails only if the database cannot be read.
    pub(crate) fn plan(&mut self, number: u64, txc: Txc, txn: Transaction) -> Result<Txc, Errno> {
        let mut p = Planner { number, coll: txn.coll, txc, slots: Vec::with_capacity(txn.objects.len()) };
        for (i, obj) in txn.objects.iter().enumerate() {
            let key = Bytes::from(key::object(txn.coll.shard, obj));
            let is_new = || matches!(txn.ops.first(), Some(Op::Create(new)) if new.0 as usize == i);
            let (key, onode, known) = match self.onodes.take(&key) {
                Some((key, onode)) => {
                    self.perf.onode_hit();
                    (key, onode, true)
                }
                None if is_new() => (key, Box::new(Onode { complete: true, ..Onode::default() }), false),
                None => match self.load_onode(&key) {
                    Ok(onode) => (key, onode, false),
                    Err(e) => {
                        p.slots.into_iter().for_each(|s| self.return_slot(s));
                        return Err(e);
                    }
                },
            };
            let stored_before = onode.stored_bytes();
            p.slots.push(Slot { key, onode, known, stored_before });
        }
        p.txc.policy = self.policy_of(txn.coll.pg.pool);
        let mut result = txn.ops.into_iter().try_for_each(|op| self.plan_op(&mut p, op));
        let Planner { mut txc, slots, .. } = p;
        for mut slot in slots {
            if slot.onode.packed && result.is_ok() {
                result = self.unpack_sparse(number, &mut txc, &slot.key, &mut slot.onode);
            }
            self.finish_slot(&mut txc, slot);
        }
        result.map(|()| txc)
    }

    fn return_slot(&mut self, slot: Slot) {
        if slot.known {
            self.onodes.put_back_changed(slot.key, slot.onode);
        } else {
            self.onodes.insert(slot.key, slot.onode);
        }
    }

    /// Writes down what the database will be told of an onode.
    fn finish_slot(&mut self, txc: &mut Txc, mut slot: Slot) {
        let o = &mut slot.onode;
        if o.dirty {
            self.stored = self.stored + if o.exists { o.stored_bytes() } else { 0 } - slot.stored_before;
            if o.exists {
                if !o.stored {
                    self.names.note(&slot.key);
                }
                finish_existing(txc, &slot.key, o);
            } else if o.stored {
                txc.changes.push(Change::delete(slot.key.clone()));
                o.stored = false;
            }
            o.dirty = false;
            o.pins += 1;
            txc.keys.push(slot.key.clone());
        }
        self.return_slot(slot);
    }

    fn plan_op(&mut self, p: &mut Planner, op: Op) -> Result<(), Errno> {
        let Planner { number, coll, txc, slots } = p;
        let at = |o: ObjIdx| o.0 as usize;
        match op {
            Op::Touch(obj) | Op::Create(obj) => self.create(&mut slots[at(obj)].onode),
            Op::Write { obj, off, data } => {
                txc.planning = slots[at(obj)].key.clone();
                let o = &mut slots[at(obj)].onode;
                self.create(o);
                self.write(*number, txc, o, off, data)?;
            }
            Op::Xor { obj, off, data } => {
                txc.planning = slots[at(obj)].key.clone();
                let o = &mut slots[at(obj)].onode;
                self.create(o);
                self.xor(*number, txc, o, off, data)?;
            }
            Op::Zero { obj, off, len } => {
                txc.planning = slots[at(obj)].key.clone();
                let o = &mut slots[at(obj)].onode;
                self.create(o);
                if len > 0 {
                    self.zero(*number, txc, o, off, len)?;
                    o.size = o.size.max(off + len);
                }
            }
            Op::Truncate { obj, size } => {
                txc.planning = slots[at(obj)].key.clone();
                let o = &mut slots[at(obj)].onode;
                self.create(o);
                let cut = o.size.saturating_sub(size);
                self.zero(*number, txc, o, size, cut)?;
                o.size = size;
            }
            Op::Remove(obj) => self.remove(txc, &mut slots[at(obj)].onode)?,
            Op::SetAttrs { obj, attrs } => {
                let o = &mut slots[at(obj)].onode;
                self.create(o);
                o.attrs.set(&attrs);
            }
            Op::RmAttr { obj, name } => {
                let o = &mut slots[at(obj)].onode;
                o.dirty |= o.attrs.remove(&name);
            }
            Op::RmAttrs(obj) => {
                let o = &mut slots[at(obj)].onode;
                o.dirty |= !o.attrs.is_empty();
                o.attrs.clear();
            }
            Op::Clone { from, to } if from != to => self.clone_object(txc, slots, at(from), at(to))?,
            Op::Rename { from, to } if from != to => self.rename(txc, slots, at(from), at(to))?,
            Op::Clone { .. } | Op::Rename { .. } => {}
            Op::CloneRange { from, to, from_off, len, to_off } => {
                txc.planning = slots[at(to)].key.clone();
                self.clone_range(*number, txc, slots, (at(from), from_off), (at(to), to_off), len)?;
            }
            Op::SetAllocHint { obj, hint } => {
                let o = &mut slots[at(obj)].onode;
                self.create(o);
                o.hint = hint;
            }
            Op::OmapSet { .. }
            | Op::OmapRm { .. }
            | Op::OmapRmRange { .. }
            | Op::OmapClear(_)
            | Op::OmapSetHeader { .. } => self.plan_omap(txc, slots, op),
            Op::CreateColl { .. }
            | Op::RemoveColl
            | Op::SetCollBits { .. }
            | Op::CollSet { .. }
            | Op::CollRm { .. }
            | Op::CollRmRange { .. } => self.plan_coll(txc, *coll, op),
            Op::On { coll: other } => {
                *coll = other;
                txc.others.push(other);
            }
            Op::MergeColl { from } => {
                self.plan_coll(txc, from, Op::RemoveColl);
                txc.others.push(from);
            }
        }
        Ok(())
    }

    fn plan_omap(&mut self, txc: &mut Txc, slots: &mut [Slot], op: Op) {
        match op {
            Op::OmapSet { obj, pairs } => {
                let o = &mut slots[obj.0 as usize].onode;
                self.create(o);
                o.has_omap |= !pairs.is_empty();
                txc.changes.extend(pairs.into_iter().map(|(k, v)| Change::put(key::omap(o.nid, &k), v)));
            }
            Op::OmapSetHeader { obj, header } => {
                let o = &mut slots[obj.0 as usize].onode;
                self.create(o);
                o.has_omap = true;
                txc.changes.push(Change::put(key::omap_header(o.nid), header));
            }
            Op::OmapRm { obj, keys } => {
                let o = &slots[obj.0 as usize].onode;
                if o.has_omap {
                    txc.changes.extend(keys.iter().map(|k| Change::delete(key::omap(o.nid, k))));
                }
            }
            Op::OmapRmRange { obj, from, to } => {
                let o = &slots[obj.0 as usize].onode;
                if o.has_omap && from < to {
                    txc.changes.push(Change::delete_range(key::omap(o.nid, &from), key::omap(o.nid, &to)));
                }
            }
            Op::OmapClear(obj) => clear_omap(txc, &mut slots[obj.0 as usize].onode),
            _ => unreachable!("not an omap step"),
        }
    }

    fn plan_coll(&mut self, txc: &mut Txc, coll: ShardPgId, op: Op) {
        match op {
            Op::CreateColl { bits } | Op::SetCollBits { bits } => {
                self.colls.insert(coll, bits);
                txc.changes.push(Change::put(key::coll(coll), denc::to_bytes(&mount::CollRecord { bits }, 0)));
            }
            Op::RemoveColl => {
                self.colls.remove(&coll);
                txc.changes.push(Change::delete(key::coll(coll)));
                txc.changes.push(Change::delete_range(key::coll_key(coll, b""), key::coll_keys_end(coll)));
            }
            Op::CollSet { pairs } => {
                txc.changes.extend(pairs.into_iter().map(|(k, v)| Change::put(key::coll_key(coll, &k), v)));
            }
            Op::CollRm { keys } => {
                txc.changes.extend(keys.iter().map(|k| Change::delete(key::coll_key(coll, k))));
            }
            Op::CollRmRange { from, to } if from < to => {
                txc.changes.push(Change::delete_range(key::coll_key(coll, &from), key::coll_key(coll, &to)));
            }
            _ => {}
        }
    }

    /// Makes the object exist, and its onode part of the transaction.
    fn create(&mut self, o: &mut Onode) {
        if !o.exists {
            o.exists = true;
            o.complete = true;
            o.nid = self.nid_next;
            self.nid_next += 1;
        }
        o.dirty = true;
    }

    fn remove(&mut self, txc: &mut Txc, o: &mut Onode) -> Result<(), Errno> {
        if !o.exists {
            return Ok(());
        }
        self.load_segs(o, 0)?;
        for (seg, s) in std::mem::take(&mut o.segs).iter() {
            s.blocks.iter().filter(|b| b.phys != 0 && b.at == 0).for_each(|b| self.free(txc, b.phys));
            s.runs().for_each(|run| self.free_run(txc, run));
            self.compressed.blocks_go(txc.coll.pg.pool, s.packed_blocks());
            if seg > 0 {
                txc.changes.push(Change::delete(key::segment(o.nid, seg)));
            }
        }
        clear_omap(txc, o);
        *o = Onode { complete: true, stored: o.stored, pins: o.pins, dirty: true, ..Onode::default() };
        Ok(())
    }

    fn clone_object(&mut self, txc: &mut Txc, slots: &mut [Slot], from: usize, to: usize) -> Result<(), Errno> {
        self.remove(txc, &mut slots[to].onode)?;
        self.load_segs(&mut slots[from].onode, 0)?;
        let [src, dst] = slots.get_disjoint_mut([from, to]).expect("two objects");
        let (src, dst) = (&mut src.onode, &mut dst.onode);
        self.create(dst);
        (dst.size, dst.mapped, dst.hint, dst.has_omap, dst.packed) = (src.size, src.mapped, src.hint, src.has_omap, src.packed);
        dst.attrs = src.attrs.clone();
        dst.segs = src.segs.clone();
        dst.dirty_segs = dst.segs.iter().map(|(seg, _)| seg).collect();
        self.share(dst.segs.iter().flat_map(|(_, s)| s.on_device()).map(|b| b.phys));
        self.compressed.blocks_come(txc.coll.pg.pool, dst.segs.iter().map(|(_, s)| s.packed_blocks()).sum());
        if src.has_omap {
            txc.changes.push(Change::CopyOmap { from: src.nid, to: dst.nid });
        }
        Ok(())
    }

    fn rename(&mut self, txc: &mut Txc, slots: &mut [Slot], from: usize, to: usize) -> Result<(), Errno> {
        self.remove(txc, &mut slots[to].onode)?;
        let [a, b] = slots.get_disjoint_mut([from, to]).expect("two objects");
        std::mem::swap(&mut a.onode, &mut b.onode);
        // What belongs to the name stays with the name.
        std::mem::swap(&mut a.onode.stored, &mut b.onode.stored);
        std::mem::swap(&mut a.onode.pins, &mut b.onode.pins);
        (a.onode.dirty, b.onode.dirty) = (true, true);
        Ok(())
    }

    /// Copies a range of data: whole blocks are shared where source and target agree in alignment, the rest is copied,
    /// read first if need be.
    fn clone_range(
        &mut self,
        number: u64,
        txc: &mut Txc,
        slots: &mut [Slot],
        (from, from_off): (usize, u64),
        (to, to_off): (usize, u64),
        len: u64,
    ) -> Result<(), Errno> {
        self.create(&mut slots[to].onode);
        let len = len.min(slots[from].onode.size.saturating_sub(from_off));
        if len == 0 {
            return Ok(());
        }
        // The source as it is before the first byte is copied: it may be the target too. Held meanwhile, so that it
        // is neither freed nor overwritten in place.
        let (first, last) = (from_off / BLOCK, (from_off + len - 1) / BLOCK);
        let mut source = Vec::new();
        for lblk in first..=last {
            let (block, pend) = self.mapping(&mut slots[from].onode, lblk)?;
            let run = if block.at == 0 { None } else { Some(self.run_of(&mut slots[from].onode, lblk, block)?) };
            match &run {
                None => self.share([block.phys]),
                Some(run) => self.share_run(run),
            }
            source.push((block, pend, run));
        }
        let o = &mut slots[to].onode;
        let old_size = o.size;
        o.size = o.size.max(to_off + len);
        let mut done = 0;
        while done < len {
            let (lblk, start) = ((to_off + done) / BLOCK, (to_off + done) % BLOCK);
            let n = (BLOCK - start).min(len - done);
            let at = from_off + done;
            if n == BLOCK && at % BLOCK == 0 {
                let (block, pend, run) = source[(at / BLOCK - first) as usize].clone();
                if let Some(run) = run {
                    self.set_packed(txc, o, lblk, &run, block.at - 1)?;
                } else {
                    self.share([block.phys]);
                    self.set_block(txc, o, lblk, block, pend)?;
                }
            } else {
                let mut pieces = Vec::new();
                let mut got = 0;
                while got < n {
                    let (sblk, sat) = ((at + got) / BLOCK, (at + got) % BLOCK);
                    let m = (BLOCK - sat).min(n - got);
                    let (block, pend, run) = source[(sblk - first) as usize].clone();
                    let from = match run {
                        None => self.source(block, pend),
                        Some(run) => self.packed_source(&run, block),
                    };
                    pieces.push(Piece { at: (start + got) as usize, len: m as usize, from_at: sat as usize, from, xor: false });
                    got += m;
                }
                let whole = covers(start, n, lblk, old_size);
                self.write_block(number, txc, o, lblk, pieces, !whole)?;
            }
            done += n;
        }
        for (block, _, run) in source.iter().filter(|(b, ..)| b.phys != 0) {
            match run {
                None => self.free(txc, block.phys),
                Some(run) => self.free_run(txc, run),
            }
        }
        Ok(())
    }
}

fn finish_existing(txc: &mut Txc, key: &Bytes, o: &mut Onode) {
    for seg_no in std::mem::take(&mut o.dirty_segs) {
        let Some(seg) = o.segs.get(seg_no).filter(|_| seg_no > 0) else { continue };
        let seg_key = key::segment(o.nid, seg_no);
        txc.changes.push(match (seg.blocks.is_empty(), seg.pend.is_empty()) {
            (true, _) => Change::delete(seg_key),
            (false, true) => Change::put(seg_key, seg.to_value()),
            (false, false) => Change::LateSegment(seg_key.into(), seg.clone()),
        });
    }
    txc.changes.push(match o.segs.get(0).filter(|s| !s.pend.is_empty()) {
        None => Change::put(key.clone(), o.to_value()),
        Some(seg) => {
            let record = Onode {
                nid: o.nid,
                size: o.size,
                mapped: o.mapped,
                hint: o.hint,
                has_omap: o.has_omap,
                packed: o.packed,
                attrs: o.attrs.clone(),
                segs: Segs::new(seg.clone()),
                ..Onode::default()
            };
            Change::LateOnode(key.clone(), Box::new(record))
        }
    });
    o.stored = true;
}

fn clear_omap(txc: &mut Txc, o: &mut Onode) {
    if o.has_omap {
        txc.changes.push(Change::delete_range(key::omap_header(o.nid), key::omap_end(o.nid)));
        o.has_omap = false;
        o.dirty = true;
    }
}

fn check_range(off: u64, len: u64) -> Result<(), Errno> {
    match off.checked_add(len) {
        Some(end) if end <= OBJECT_SIZE_MAX => Ok(()),
        _ => Err(Errno::EFBIG),
    }
}
