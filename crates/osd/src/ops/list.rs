//! Listing the objects of a PG: pgnls and pgls, with namespaces and filters.
//!
//! Upstream: PrimaryLogPG::do_pg_op; pg_nls_response_t, pg_ls_response_t (src/osd/osd_types.h).

use crate::disk::Disk;
use crate::object::{INFO_ATTR, ObjectInfo};
use denc::{BString, Bytes, Decoder, Encoder};
use std::collections::BTreeMap;
use types::msg::osd::MOsdOp;
use types::msg::osd_op::{Op, OsdOp};
use types::{EVersion, Errno, HObject, PgId, ShardPgId, Snap};

/// Entries of one answer at most (`osd_max_pgls`).
const PAGE_MAX: u64 = 1024;
/// The namespace that means all of them.
const ALL_NAMESPACES: &[u8] = b"\x01";
/// Where cache tiers kept their hit sets; never listed.
const HIT_SET_NAMESPACE: &[u8] = b".ceph-internal";

/// A listed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    pub nspace: BString,
    pub name: BString,
    pub locator: BString,
}

/// Where a PG's objects begin and end, in sort order. `bits`: how many of the hash they share.
pub fn pg_range(pg: PgId, bits: u32) -> (HObject, HObject) {
    let start = HObject { pool: pg.pool, hash: pg.seed, snap: Snap::HEAD, ..HObject::min() };
    let rev_end = (u64::from(pg.seed.reverse_bits()) | (0xffff_ffffu64 >> bits)) + 1;
    let end = match u32::try_from(rev_end) {
        Ok(rev) => HObject { hash: rev.reverse_bits(), ..start.clone() },
        Err(_) => HObject::max(),
    };
    (start, end)
}

/// How many low bits of the hash all objects of the PG share.
pub fn split_bits(pg: PgId, pg_num: u32) -> u32 {
    if pg_num <= 1 {
        return 0;
    }
    let p = 32 - pg_num.leading_zeros();
    let half = 1u32 << (p - 1);
    if pg.seed % half < pg_num % half { p } else { p - 1 }
}

/// True if a listing looks into the objects.
pub fn is_filtered(ops: &[OsdOp]) -> bool {
    ops.iter().any(|o| matches!(o.op, Op::PgnlsFilter(_) | Op::PglsFilter(_)))
}

/// True for a live object: not for a clone, nor for what only says that clones have none. (Stock shows the latter.)
fn is_live(disk: &mut dyn Disk, coll: ShardPgId, pool_has_snaps: bool, o: &HObject) -> bool {
    let is_whiteout = |raw: Bytes| denc::from_bytes::<ObjectInfo>(&raw).is_ok_and(|info| info.is_whiteout());
    o.snap == Snap::HEAD && !(pool_has_snaps && disk.getattr(coll, o, INFO_ATTR).is_ok_and(is_whiteout))
}

/// One operation of a listing message: its output and result, 1 at the end of the PG. Objects that are missing here
/// exist, too.
pub fn list_page(
    disk: &mut dyn Disk,
    coll: ShardPgId,
    missing: &BTreeMap<HObject, EVersion>,
    bits: u32,
    m: &MOsdOp,
    op: &OsdOp,
    pool_has_snaps: bool,
) -> Result<(i32, Bytes), Errno> {
    let (count, named, filtered) = match op.op {
        Op::Pgnls(p) => (p.count, true, false),
        Op::PgnlsFilter(p) => (p.count, true, true),
        Op::Pgls(p) => (p.count, false, false),
        Op::PglsFilter(p) => (p.count, false, true),
        _ => return Err(Errno::EOPNOTSUPP),
    };
    if m.snap != Snap::HEAD {
        return Err(Errno::EINVAL);
    }
    let input = op.input();
    let mut d = Decoder::shared(&input);
    let filter = if filtered { Some(Filter::decode(&mut d)?) } else { None };
    let cursor: HObject = d.get().map_err(|_| Errno::EINVAL)?;
    let (start, end) = pg_range(coll.pg, bits);
    if !cursor.max && !cursor.is_min() && (cursor < start || cursor >= end) {
        return Err(Errno::EINVAL);
    }
    let all = named && m.locator.nspace == ALL_NAMESPACES;
    let wanted = |o: &HObject| {
        o.nspace != HIT_SET_NAMESPACE && (all || o.nspace == m.locator.nspace)
    };
    let mut at = if cursor < start { start } else { cursor };
    let mut entries = Vec::new();
    let limit = count.min(PAGE_MAX) as usize;
    while at < end && entries.len() < limit {
        let (objects, next) = page(disk, coll, missing, (&at, &end), limit - entries.len())?;
        for o in objects.into_iter().filter(wanted) {
            if is_live(disk, coll, pool_has_snaps, &o) && filter.as_ref().is_none_or(|f| f.accepts(disk, coll, &o)) {
                entries.push(ListEntry { nspace: o.nspace, name: o.name, locator: o.key });
            }
        }
        at = next;
    }
    let done = at >= end;
    let handle = if done && !named { HObject::max() } else if done { end } else { at };
    Ok((i32::from(done), encode(named, &handle, &entries)))
}

/// Objects of a range, stored or missing, as many as are wanted; and where the next page begins.
fn page(
    disk: &mut dyn Disk,
    coll: ShardPgId,
    missing: &BTreeMap<HObject, EVersion>,
    (at, end): (&HObject, &HObject),
    limit: usize,
) -> Result<(Vec<HObject>, HObject), Errno> {
    let (mut objects, mut next) = disk.list(coll, at, end, limit)?;
    if missing.is_empty() || *at >= next {
        return Ok((objects, next));
    }
    objects.extend(missing.range(at..&next).take(limit + 1).map(|(o, _)| o.clone()));
    objects.sort();
    objects.dedup();
    if let Some(beyond) = objects.get(limit).cloned() {
        objects.truncate(limit);
        next = beyond;
    }
    Ok((objects, next))
}

fn encode(named: bool, handle: &HObject, entries: &[ListEntry]) -> Bytes {
    let mut e = Encoder::with_capacity(0, 64 + entries.len() * 48);
    let body = |e: &mut Encoder| {
        e.put(handle).count(entries.len());
        for entry in entries {
            if named {
                e.put(&entry.nspace);
            }
            e.put(&entry.name).put(&entry.locator);
        }
    };
    match named {
        true => e.envelope(1, 1, body),
        false => {
            e.put(&1u8);
            body(&mut e);
        }
    }
    e.finish()
}

/// Only objects with an attribute of this value.
struct Filter {
    attr: BString,
    value: BString,
}

impl Filter {
    /// Two obsolete names, the filter's type, and its arguments; `plain` and the class filter `hello.hello` are known.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, Errno> {
        let (_, _, kind): (BString, BString, BString) = d.get().map_err(|_| Errno::EINVAL)?;
        if kind != "plain" && kind != "hello.hello" {
            return Err(Errno::EINVAL);
        }
        let (attr, value) = d.get().map_err(|_| Errno::EINVAL)?;
        Ok(Filter { attr, value })
    }

    fn accepts(&self, disk: &mut dyn Disk, coll: ShardPgId, obj: &HObject) -> bool {
        disk.getattr(coll, obj, &self.attr).is_ok_and(|v| self.value == v[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PoolId;

    #[test]
    fn the_pgs_of_a_pool_cover_every_hash_once_and_in_order() {
        for pg_num in [1u32, 2, 3, 5, 8, 12] {
            let pg = |seed| PgId { pool: PoolId(1), seed };
            let mut ranges: Vec<_> = (0..pg_num).map(|s| pg_range(pg(s), split_bits(pg(s), pg_num))).collect();
            ranges.sort();
            assert_eq!(ranges[0].0.hash, 0);
            assert!(ranges[ranges.len() - 1].1.max);
            for pair in ranges.windows(2) {
                assert_eq!(pair[0].1, pair[1].0, "pg_num {pg_num}");
            }
        }
    }
}
