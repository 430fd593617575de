//! Which copies of an object are bad, and which one is right: a function of what each copy says of itself.
//!
//! Holds: a copy counts as right only if its own checksums and sizes agree. Among those the newest write wins, then what
//! most copies say, then the primary. Without any there is nothing to repair from, and nothing is changed.
//! Upstream: PGBackend::be_select_auth_object, be_compare_scrub_objects; src/include/rados/rados_types.hpp.

use crate::object::{INFO_ATTR, ObjectInfo};
use crate::stripe::Striping;
use std::collections::{BTreeMap, BTreeSet};
use types::msg::internal_osd::ScrubObject;
use types::{EVersion, HObject, OsdId};

/// What is wrong with one copy (`librados::err_t`).
pub(super) mod shard_error {
    use types::msg::internal_osd::ScrubObject;
    pub const MISSING: u64 = 1 << 1;
    pub const STAT: u64 = ScrubObject::STAT_ERROR;
    pub const READ: u64 = ScrubObject::READ_ERROR;
    pub const INFO_MISSING: u64 = 1 << 14;
    pub const INFO_CORRUPTED: u64 = 1 << 15;
    pub const SIZE_INFO_MISMATCH: u64 = 1 << 18;
}

/// How copies differ (`librados::obj_err_t`).
pub(super) mod object_error {
    pub const INFO: u64 = 1 << 1;
    pub const DATA_DIGEST: u64 = 1 << 4;
    pub const OMAP_DIGEST: u64 = 1 << 5;
    pub const SIZE: u64 = 1 << 6;
    pub const ATTR_VALUE: u64 = 1 << 7;
    pub const ATTR_NAME: u64 = 1 << 8;
}

/// An object whose copies are not all right.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::pg) struct Inconsistent {
    pub object: HObject,
    /// How copies differ from the right one.
    pub errors: u64,
    pub shards: BTreeMap<OsdId, Shard>,
    /// The right copy, and the write that made it.
    pub auth: Option<(OsdId, ObjectInfo)>,
    /// Copies that are wrong; all of them if none is right.
    pub bad: BTreeSet<OsdId>,
    pub shallow: u32,
    pub deep: u32,
}

/// One copy, and what is wrong with it by itself.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::pg) struct Shard {
    pub errors: u64,
    pub found: Option<ScrubObject>,
    pub info: Option<ObjectInfo>,
}

impl Inconsistent {
    /// The version that bad copies lack, if there is one to give them.
    pub fn wanted(&self) -> Option<EVersion> {
        self.auth.as_ref().map(|(_, info)| info.version)
    }
}

/// Compares what all copies say of the same range. Shards differ in what they store, and are as long as the object's size says.
pub(in crate::pg) fn compare(primary: OsdId, maps: BTreeMap<OsdId, Vec<ScrubObject>>, striping: Option<&Striping>) -> Vec<Inconsistent> {
    let osds: BTreeSet<OsdId> = maps.keys().copied().collect();
    let mut objects: BTreeMap<HObject, BTreeMap<OsdId, ScrubObject>> = BTreeMap::new();
    for (osd, map) in maps {
        for found in map {
            objects.entry(found.object.clone()).or_default().insert(osd, found);
        }
    }
    objects.into_iter().filter_map(|(object, copies)| compare_one(primary, &osds, object, copies, striping)).collect()
}

fn compare_one(
    primary: OsdId,
    osds: &BTreeSet<OsdId>,
    object: HObject,
    mut copies: BTreeMap<OsdId, ScrubObject>,
    striping: Option<&Striping>,
) -> Option<Inconsistent> {
    let shards: BTreeMap<OsdId, Shard> = osds.iter().map(|osd| (*osd, judge(copies.remove(osd), striping))).collect();
    let auth = choose(primary, &shards);
    let mut out = Inconsistent { object, errors: 0, shards, auth: None, bad: BTreeSet::new(), shallow: 0, deep: 0 };
    for (osd, shard) in &out.shards {
        let differs = match (auth.and_then(|a| out.shards.get(&a)), &shard.found) {
            (Some(right), Some(found)) if shard.errors == 0 => right.found.as_ref().map_or(0, |r| differences(r, found)),
            _ => 0,
        };
        out.errors |= differs;
        if shard.errors == 0 && differs == 0 {
            continue;
        }
        out.bad.insert(*osd);
        let is_deep = shard.errors & shard_error::READ != 0 || differs & (object_error::DATA_DIGEST | object_error::OMAP_DIGEST) != 0;
        *(if is_deep { &mut out.deep } else { &mut out.shallow }) += 1;
    }
    out.auth = auth.and_then(|osd| Some((osd, out.shards.get(&osd)?.info.clone()?)));
    (!out.bad.is_empty()).then_some(out)
}

/// What is wrong with a copy by itself.
fn judge(found: Option<ScrubObject>, striping: Option<&Striping>) -> Shard {
    let Some(found) = found else { return Shard { errors: shard_error::MISSING, found: None, info: None } };
    let mut errors = found.errors;
    let raw = found.attrs.iter().find(|(name, _)| name == INFO_ATTR).map(|(_, raw)| raw);
    let info = raw.map(|raw| denc::from_bytes::<ObjectInfo>(raw).ok());
    match &info {
        None => errors |= shard_error::INFO_MISSING,
        Some(None) => errors |= shard_error::INFO_CORRUPTED,
        Some(Some(info)) if striping.map_or(info.size, |s| s.chunks_len(info.size)) != found.size => errors |= shard_error::SIZE_INFO_MISMATCH,
        Some(Some(_)) => {}
    }
    Shard { errors, found: Some(found), info: info.flatten() }
}

fn choose(primary: OsdId, shards: &BTreeMap<OsdId, Shard>) -> Option<OsdId> {
    let good = || shards.iter().filter(|(_, s)| s.errors == 0);
    let alike = |a: &Shard| good().filter(|(_, b)| same(a, b)).count();
    let rank = |(osd, s): &(&OsdId, &Shard)| (s.info.as_ref().map(|i| i.version), alike(s), **osd == primary, std::cmp::Reverse(**osd));
    good().max_by_key(rank).map(|(osd, _)| *osd)
}

fn same(a: &Shard, b: &Shard) -> bool {
    matches!((&a.found, &b.found), (Some(a), Some(b)) if differences(a, b) == 0)
}

fn differences(right: &ScrubObject, other: &ScrubObject) -> u64 {
    let mut errors = 0;
    let digests = [
        (right.data_digest, other.data_digest, object_error::DATA_DIGEST),
        (right.omap_digest, other.omap_digest, object_error::OMAP_DIGEST),
    ];
    for (a, b, error) in digests {
        errors |= if a.is_some() && b.is_some() && a != b { error } else { 0 };
    }
    if right.size != other.size {
        errors |= object_error::SIZE;
    }
    let (a, b): (BTreeMap<_, _>, BTreeMap<_, _>) = (right.attrs.iter().cloned().collect(), other.attrs.iter().cloned().collect());
    for (name, value) in &a {
        errors |= match b.get(name) {
            None => object_error::ATTR_NAME,
            Some(theirs) if theirs == value => 0,
            Some(_) if *name == INFO_ATTR => object_error::INFO,
            Some(_) => object_error::ATTR_VALUE,
        };
    }
    if b.keys().any(|name| !a.contains_key(name)) {
        errors |= object_error::ATTR_NAME;
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Epoch;

    const ONE: OsdId = OsdId(1);
    const TWO: OsdId = OsdId(2);
    const THREE: OsdId = OsdId(3);

    fn copy(version: u64, size: u64, digest: u32) -> ScrubObject {
        let info = ObjectInfo { version: EVersion { epoch: Epoch(1), version }, size, ..ObjectInfo::default() };
        ScrubObject {
            object: HObject { name: "o".into(), ..HObject::min() },
            size,
            attrs: vec![(INFO_ATTR.into(), denc::to_bytes(&info, 0))],
            data_digest: Some(digest),
            omap_digest: Some(0),
            errors: 0,
        }
    }

    fn found(copies: [Option<ScrubObject>; 3]) -> Option<Inconsistent> {
        let maps = [ONE, TWO, THREE].into_iter().zip(copies).map(|(osd, c)| (osd, c.into_iter().collect())).collect();
        compare(ONE, maps, None).pop()
    }

    fn bad(found: &Inconsistent) -> Vec<i32> {
        found.bad.iter().map(|o| o.0).collect()
    }

    #[test]
    fn copies_that_agree_are_no_news() {
        assert_eq!(found([Some(copy(3, 10, 5)), Some(copy(3, 10, 5)), Some(copy(3, 10, 5))]), None);
    }

    #[test]
    fn a_copy_that_cannot_be_read_is_bad_and_the_primary_is_no_better_than_others() {
        let broken = ScrubObject { errors: ScrubObject::READ_ERROR, data_digest: None, omap_digest: None, ..copy(3, 10, 5) };
        let i = found([Some(broken), Some(copy(3, 10, 5)), Some(copy(3, 10, 5))]).unwrap();
        assert_eq!((bad(&i), i.errors, i.deep, i.shallow), (vec![1], 0, 1, 0));
        assert_eq!(i.auth.as_ref().map(|a| a.0), Some(TWO));
        assert_eq!(i.shards[&ONE].errors, shard_error::READ);
    }

    #[test]
    fn most_copies_are_right_and_of_two_the_primary() {
        let i = found([Some(copy(3, 10, 6)), Some(copy(3, 10, 5)), Some(copy(3, 10, 5))]).unwrap();
        assert_eq!((bad(&i), i.errors, i.deep), (vec![1], object_error::DATA_DIGEST, 1));
        let two = [(ONE, vec![copy(3, 10, 6)]), (TWO, vec![copy(3, 10, 5)])].into_iter().collect();
        assert_eq!(bad(&compare(ONE, two, None)[0]), [2]);
    }

    #[test]
    fn an_old_copy_is_bad_however_many_there_are() {
        let i = found([Some(copy(2, 10, 5)), Some(copy(3, 11, 7)), Some(copy(2, 10, 5))]).unwrap();
        assert_eq!((bad(&i), i.wanted().unwrap().version), (vec![1, 3], 3));
        assert_eq!(i.errors, object_error::INFO | object_error::SIZE | object_error::DATA_DIGEST);
    }

    #[test]
    fn what_a_copy_lacks_or_cut_short_is_found_without_reading() {
        let i = found([Some(copy(3, 10, 5)), None, Some(copy(3, 10, 5))]).unwrap();
        assert_eq!((bad(&i), i.shallow, i.shards[&TWO].errors), (vec![2], 1, shard_error::MISSING));
        let cut = ScrubObject { size: 4, ..copy(3, 10, 5) };
        let i = found([Some(copy(3, 10, 5)), Some(copy(3, 10, 5)), Some(cut)]).unwrap();
        assert_eq!((bad(&i), i.shards[&THREE].errors), (vec![3], shard_error::SIZE_INFO_MISMATCH));
    }

    #[test]
    fn without_a_right_copy_there_is_nothing_to_repair_from() {
        let broken = || Some(ScrubObject { errors: ScrubObject::READ_ERROR, ..copy(3, 10, 5) });
        let i = found([broken(), broken(), broken()]).unwrap();
        assert_eq!((bad(&i), i.wanted()), (vec![1, 2, 3], None));
    }

    #[test]
    fn attributes_count() {
        let with = |value: &'static [u8]| {
            let mut c = copy(3, 10, 5);
            c.attrs.push(("_user".into(), value.into()));
            Some(c)
        };
        let i = found([with(b"a"), with(b"a"), with(b"b")]).unwrap();
        assert_eq!((bad(&i), i.errors), (vec![3], object_error::ATTR_VALUE));
        let i = found([with(b"a"), with(b"a"), Some(copy(3, 10, 5))]).unwrap();
        assert_eq!((bad(&i), i.errors), (vec![3], object_error::ATTR_NAME));
    }
}
