//! Reads that need no device: existence, size, attributes, omap, listings, the collection's own keys.

use crate::commit::overlay;
use crate::*;
use bytes::Bytes;
use denc::BString;
use std::collections::BTreeMap;
use std::ops::Bound;
use types::{Errno, HObject, ShardPgId};

/// Pairs asked of the engine at a time when a scan has to be merged with changes in flight.
const SCAN_CHUNK: usize = 256;

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// True if the object exists; EIO if the database cannot be read (here and below).
    pub fn exists(&mut self, coll: ShardPgId, obj: &HObject) -> Result<bool, Errno> {
        self.with_onode(coll, obj, |o| o.exists)
    }

    /// ENOENT if there is no such object (here and below).
    pub fn stat(&mut self, coll: ShardPgId, obj: &HObject) -> Result<ObjectStat, Errno> {
        self.with_existing(coll, obj, |o| {
            let allocated = o.mapped * onode::BLOCK;
            Ok(ObjectStat { size: o.size, allocated, has_omap: o.has_omap, hint: o.hint })
        })
    }

    /// ENODATA if the object has no such attribute.
    pub fn getattr(&mut self, coll: ShardPgId, obj: &HObject, name: &[u8]) -> Result<Bytes, Errno> {
        self.with_existing(coll, obj, |o| o.attrs.get(name).ok_or(Errno::ENODATA))
    }

    /// Two attributes at once, in the order asked; `None` for one that the object has not.
    pub fn getattr_pair(&mut self, coll: ShardPgId, obj: &HObject, names: [&[u8]; 2]) -> Result<[Option<Bytes>; 2], Errno> {
        self.with_existing(coll, obj, |o| Ok(names.map(|name| o.attrs.get(name))))
    }

    pub fn getattrs(&mut self, coll: ShardPgId, obj: &HObject) -> Result<BTreeMap<BString, Bytes>, Errno> {
        self.with_existing(coll, obj, |o| Ok(o.attrs.to_map()))
    }

    /// Empty if none was set.
    pub fn omap_get_header(&mut self, coll: ShardPgId, obj: &HObject) -> Result<Bytes, Errno> {
        let Some(nid) = self.omap_nid(coll, obj)? else { return Ok(Bytes::new()) };
        let value = self.kv.get(&key::omap_header(nid));
        Ok(self.kv_ok(value)?.unwrap_or_default())
    }

    /// The pairs that exist among `keys`, in the order asked.
    pub fn omap_get_values(
        &mut self,
        coll: ShardPgId,
        obj: &HObject,
        keys: &[BString],
    ) -> Result<Vec<(BString, Bytes)>, Errno> {
        let Some(nid) = self.omap_nid(coll, obj)? else { return Ok(Vec::new()) };
        let mut out = Vec::new();
        for k in keys {
            let value = self.kv.get(&key::omap(nid, k));
            out.extend(self.kv_ok(value)?.map(|v| (k.clone(), v)));
        }
        Ok(out)
    }

    /// Up to `limit` pairs from `from` on, ascending.
    pub fn omap_list(
        &mut self,
        coll: ShardPgId,
        obj: &HObject,
        from: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(BString, Bytes)>, Errno> {
        let Some(nid) = self.omap_nid(coll, obj)? else { return Ok(Vec::new()) };
        let first = match from {
            Bound::Included(k) => Bound::Included(key::omap(nid, k)),
            Bound::Excluded(k) => Bound::Excluded(key::omap(nid, k)),
            Bound::Unbounded => Bound::Included(key::omap(nid, b"")),
        };
        let end = key::omap_end(nid);
        let found = self.kv.scan(first.as_ref().map(|k| &k[..]), Bound::Excluded(&end), limit);
        let user = |k: Bytes| BString::from(&k[key::OMAP_KEY_PREFIX..]);
        Ok(self.kv_ok(found)?.into_iter().map(|(k, v)| (user(k), v)).collect())
    }

    /// Up to `limit` objects of the collection from `from` (included) to `to` (excluded), sorted, and where to go on:
    /// `to` itself when nothing is left.
    pub fn list(
        &mut self,
        coll: ShardPgId,
        from: &HObject,
        to: &HObject,
        limit: usize,
    ) -> Result<(Vec<HObject>, HObject), Errno> {
        let bits = *self.colls.get(&coll).ok_or(Errno::ENOENT)?;
        let (from, to_key) = (key::object(coll.shard, from), key::object(coll.shard, to));
        let mut out = Vec::new();
        for (first, end) in object_ranges(coll, bits) {
            let (first, end) = (first.max(from.clone()), end.min(to_key.clone()));
            if first >= end || out.len() > limit {
                continue;
            }
            // One more than asked for: it is where to go on.
            for (k, _) in self.scan_in_flight(coll, &first, &end, limit.saturating_add(1) - out.len())? {
                let (_, obj) = key::parse_object(&k).ok_or(Errno::EIO)?;
                out.push(obj);
            }
        }
        let next = if out.len() > limit { out.pop() } else { None };
        Ok((out, next.unwrap_or_else(|| to.clone())))
    }

    /// Every collection with its bits.
    pub fn collections(&self) -> Vec<(ShardPgId, u32)> {
        self.colls.iter().map(|(c, bits)| (*c, *bits)).collect()
    }

    /// A key of the collection itself; what is in flight is visible.
    pub fn coll_get(&mut self, coll: ShardPgId, key: &[u8]) -> Result<Option<Bytes>, Errno> {
        self.check_alive()?;
        self.apply_batch()?;
        let key = key::coll_key(coll, key);
        let newest_first = self.queues.get(&self.lane(coll)).into_iter().flatten().rev().filter_map(|n| self.txcs.get(n));
        if let Some(value) = newest_first.flat_map(|t| t.changes.iter().rev()).find_map(|change| change.row(&key)) {
            return Ok(value.cloned());
        }
        // Not a scan: for that an engine may have to put much in order first.
        let value = self.kv.get(&key);
        self.kv_ok(value)
    }

    /// Up to `limit` keys of the collection itself, ascending; what is in flight is visible.
    pub fn coll_scan(
        &mut self,
        coll: ShardPgId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(BString, Bytes)>, Errno> {
        // The successor of a key is the key with a zero byte behind it.
        let after = |k: &[u8]| [&key::coll_key(coll, k)[..], &[0]].concat();
        let first = match from {
            Bound::Included(k) => key::coll_key(coll, k),
            Bound::Excluded(k) => after(k),
            Bound::Unbounded => key::coll_key(coll, b""),
        };
        let end = match to {
            Bound::Included(k) => after(k),
            Bound::Excluded(k) => key::coll_key(coll, k),
            Bound::Unbounded => key::coll_keys_end(coll),
        };
        let found = self.scan_in_flight(coll, &first, &end, limit)?;
        let user = |k: Bytes| BString::from(&k[key::COLL_KEY_PREFIX..]);
        Ok(found.into_iter().map(|(k, v)| (user(k), v)).collect())
    }

    fn with_onode<T>(
        &mut self,
        coll: ShardPgId,
        obj: &HObject,
        f: impl FnOnce(&onode::Onode) -> T,
    ) -> Result<T, Errno> {
        let key = key::object(coll.shard, obj);
        if let Some(o) = self.onodes.get_mut(&key) {
            self.perf.onode_hit();
            return Ok(f(o));
        }
        self.check_alive()?;
        let onode = self.load_onode(&key)?;
        let answer = f(&onode);
        self.onodes.insert(key.into(), onode);
        Ok(answer)
    }

    fn with_existing<T>(
        &mut self,
        coll: ShardPgId,
        obj: &HObject,
        f: impl FnOnce(&onode::Onode) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.with_onode(coll, obj, |o| if o.exists { f(o) } else { Err(Errno::ENOENT) })?
    }

    /// The nid to look under, if the object has an omap; what is queued has been applied.
    fn omap_nid(&mut self, coll: ShardPgId, obj: &HObject) -> Result<Option<u64>, Errno> {
        self.apply_batch()?;
        self.with_existing(coll, obj, |o| Ok(o.has_omap.then_some(o.nid)))
    }

    /// Pairs of `[first, end)` as they will be when the collection's transactions in flight are applied.
    fn scan_in_flight(
        &mut self,
        coll: ShardPgId,
        first: &[u8],
        end: &[u8],
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, Errno> {
        self.check_alive()?;
        self.apply_batch()?;
        let lane = self.lane(coll);
        if !self.queues.contains_key(&lane) {
            let found = self.kv.scan(Bound::Included(first), Bound::Excluded(end), limit);
            return self.kv_ok(found);
        }
        let ops: Vec<KvOp> = self.ops_in_flight(lane);
        let mut out = Vec::new();
        let mut from = first.to_vec();
        while out.len() < limit {
            let found = self.kv.scan(Bound::Included(&from), Bound::Excluded(end), SCAN_CHUNK);
            let found = self.kv_ok(found)?;
            // The last chunk reaches to the end, the others to behind their last key.
            let upto = match found.last() {
                Some((k, _)) if found.len() == SCAN_CHUNK => [&k[..], &[0]].concat(),
                _ => end.to_vec(),
            };
            let mut pairs: BTreeMap<Bytes, Bytes> = found.into_iter().collect();
            ops.iter().for_each(|op| overlay(&mut pairs, op, &from, &upto));
            out.extend(pairs);
            if upto == end {
                break;
            }
            from = upto;
        }
        out.truncate(limit);
        Ok(out)
    }

    fn ops_in_flight(&self, lane: ShardPgId) -> Vec<KvOp> {
        let numbers = self.queues.get(&lane).into_iter().flatten();
        numbers.filter_map(|n| self.txcs.get(n)).flat_map(|t| &t.changes).filter_map(|c| c.peek()).collect()
    }
}

/// The ranges of `O` keys that are the collection's: the temporary twin of its pool, then the pool.
pub(crate) fn object_ranges(coll: ShardPgId, bits: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bits = bits.min(32);
    let mask = ((1u64 << bits) - 1) as u32;
    let first = u64::from((coll.pg.seed & mask).reverse_bits());
    let end = first + (1u64 << (32 - bits));
    let pool = coll.pg.pool.0;
    let mut pools = vec![-2 - pool, pool];
    pools.sort_unstable();
    pools.dedup();
    pools.into_iter().map(|p| (key::object_bound(coll.shard, p, first), key::object_bound(coll.shard, p, end))).collect()
}
