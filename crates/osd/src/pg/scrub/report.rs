//! What a scrub found, for the log and for `rados list-inconsistent-obj`.
//!
//! Holds: the client decodes the attribute `_` of copies as upstream's object info, and ends if it cannot: copies whose
//! info we can read carry it in that format.
//! Upstream: src/common/scrub_types.cc, src/include/rados/rados_types.hpp; object_info_t in src/osd/osd_types.cc.

use super::snapsets::BadSnapSet;
use super::{Scrubs, Step};
use super::compare::{Inconsistent, Shard, object_error, shard_error};
use crate::object::{INFO_ATTR, ObjectInfo};
use bytes::Bytes;
use denc::{BString, Decode, DecodeError, Decoder, Encoder};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::{EVersion, Epoch, Errno, HObject, ObjectLocator, OsdId, ReqId, ShardPgId, Snap};

/// Objects in one answer, at most.
const PAGE_MAX: u64 = 1000;

/// The scrub under way, as `ceph pg <pgid> query` shows it (PgScrubber::dump).
pub(super) fn under_way(scrubs: &Scrubs, since: Epoch) -> Value {
    let Some(run) = &scrubs.run else { return json!({"epoch_start": since.to_string(), "active": false}) };
    let (next, w) = (scrubs.wanted.unwrap_or_default(), run.wanted);
    let (start, end) = run.chunk.as_ref().map_or((&run.at, &run.at), |(start, end)| (start, end));
    let waiting: Vec<String> = match &run.step {
        Step::Reserve { waiting_for } => waiting_for.iter().map(OsdId::to_string).collect(),
        Step::Distrust { waiting_for } => waiting_for.keys().map(OsdId::to_string).collect(),
        _ => Vec::new(),
    };
    json!({
        "epoch_start": since.to_string(), "active": true, "start": start.to_string(), "end": end.to_string(),
        "m_max_end": run.end.to_string(), "deep": w.deep, "must_scrub": w.requested, "must_deep_scrub": next.requested && next.deep,
        "must_repair": next.repair, "req_scrub": w.requested, "auto_repair": w.repair, "check_repair": w.verifies,
        "shallow_errors": run.shallow, "deep_errors": run.deep, "fixed": run.fixed_shallow + run.fixed_deep, "waiting_on_whom": waiting,
    })
}

/// For each copy what is wrong with it, in words.
pub(super) fn lines(found: &Inconsistent) -> Vec<String> {
    let words = [
        (shard_error::MISSING, "is missing"),
        (shard_error::STAT, "has no readable metadata"),
        (shard_error::READ, "cannot be read"),
        (shard_error::INFO_MISSING, "has no object info"),
        (shard_error::INFO_CORRUPTED, "has an object info that says nothing"),
        (shard_error::SIZE_INFO_MISMATCH, "is not as long as its object info says"),
    ];
    let by_itself = found.shards.iter().filter(|(_, s)| s.errors != 0).map(|(osd, s)| {
        let what: Vec<&str> = words.iter().filter(|(bit, _)| s.errors & bit != 0).map(|(_, text)| *text).collect();
        format!("osd.{osd}: its copy of {} {}", found.object, what.join(", "))
    });
    let differ = [
        (object_error::INFO, "object info"),
        (object_error::DATA_DIGEST, "data"),
        (object_error::OMAP_DIGEST, "omap"),
        (object_error::SIZE, "size"),
        (object_error::ATTR_VALUE, "attributes"),
        (object_error::ATTR_NAME, "names of attributes"),
    ];
    let differ: Vec<&str> = differ.iter().filter(|(bit, _)| found.errors & bit != 0).map(|(_, text)| *text).collect();
    let together = (!differ.is_empty()).then(|| format!("copies of {} differ in {}", found.object, differ.join(", ")));
    by_itself.chain(together).collect()
}

/// `scrub_ls_arg_t`.
struct Question {
    interval: Epoch,
    snapsets: bool,
    /// Name, namespace and snapshot.
    after: (BString, BString, Snap),
    max: u64,
}

impl Decode for Question {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("scrub_ls_arg_t", 1, |_, d| {
            let (interval, snapsets): (Epoch, u32) = (d.get()?, d.get()?);
            let (name, nspace, snap) = (d.get()?, d.get()?, d.get()?);
            Ok(Question { interval, snapsets: snapsets != 0, after: (name, nspace, snap), max: d.get()? })
        })
    }
}

/// Answers `CEPH_OSD_OP_SCRUBLS`. ENOENT before the first scrub.
pub(super) fn list(
    found: Option<&BTreeMap<HObject, Inconsistent>>,
    bad_sets: &BTreeMap<HObject, BadSnapSet>,
    since: Epoch,
    primary: OsdId,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let q: Question = denc::from_bytes(input).map_err(|_| Errno::EINVAL)?;
    if q.interval != Epoch(0) && q.interval != since {
        return Err(Errno::EAGAIN);
    }
    let found = found.ok_or(Errno::ENOENT)?;
    let chosen: Vec<Bytes> = match q.snapsets {
        true => page(&q, bad_sets).into_iter().map(BadSnapSet::encode).collect(),
        false => page(&q, found).into_iter().map(|i| encode(i, primary)).collect(),
    };
    let mut e = Encoder::new(types::features::SUPPORTED);
    e.envelope(1, 1, |e| {
        e.put(&since).put(&chosen);
    });
    Ok(e.finish())
}

/// What comes behind what the question names, in order.
fn page<'a, T>(q: &Question, of: &'a BTreeMap<HObject, T>) -> Vec<&'a T> {
    let (name, nspace, snap) = q.after.clone();
    let key = |o: &HObject| (o.nspace.clone(), o.name.clone(), o.snap);
    // The first page is asked for by an empty name.
    let after = (!name.is_empty()).then_some((nspace, name, snap));
    let mut chosen: Vec<(&HObject, &T)> = of.iter().collect();
    chosen.sort_by_key(|(object, _)| key(object));
    chosen.retain(|(object, _)| after.as_ref().is_none_or(|after| key(object) > *after));
    chosen.truncate(q.max.min(PAGE_MAX) as usize);
    chosen.into_iter().map(|(_, value)| value).collect()
}

/// `inconsistent_obj_t`.
fn encode(i: &Inconsistent, primary: OsdId) -> Bytes {
    let mut e = Encoder::new(types::features::SUPPORTED);
    e.envelope(2, 2, |e| {
        e.put(&i.errors);
        e.envelope(1, 1, |e| {
            let o = &i.object;
            e.put(&o.name).put(&o.nspace).put(&o.key).put(&o.snap);
        });
        e.put(&i.auth.as_ref().map_or(0, |(_, info)| info.user_version)).count(i.shards.len());
        for (osd, shard) in &i.shards {
            e.envelope(1, 1, |e| {
                e.put(&osd.0).put(&ShardPgId::NO_SHARD);
            });
            let selected = i.auth.as_ref().is_some_and(|(auth, _)| auth == osd);
            encode_shard(e, &i.object, shard, *osd == primary, selected);
        }
        e.put(&i.shards.values().fold(0u64, |all, s| all | s.errors));
    });
    e.finish()
}

/// `shard_info_t`.
fn encode_shard(e: &mut Encoder, object: &HObject, shard: &Shard, primary: bool, selected: bool) {
    e.envelope(3, 3, |e| {
        e.put(&shard.errors).put(&primary);
        let Some(found) = &shard.found else { return };
        let attrs: BTreeMap<&BString, Bytes> = found.attrs.iter().map(|(name, value)| match (&shard.info, name == INFO_ATTR) {
            (Some(info), true) => (name, object_info(object, info)),
            _ => (name, value.clone()),
        }).collect();
        e.count(attrs.len());
        for (name, value) in attrs {
            e.put(name).put(&value);
        }
        e.put(&found.size);
        for digest in [found.omap_digest, found.data_digest] {
            e.put(&digest.is_some()).put(&digest.unwrap_or(0));
        }
        e.put(&selected);
    });
}

/// `object_info_t` as upstream stores it.
fn object_info(object: &HObject, info: &ObjectInfo) -> Bytes {
    let mut e = Encoder::new(types::features::SUPPORTED);
    let locator = ObjectLocator { key: object.key.clone(), nspace: object.nspace.clone(), ..ObjectLocator::pool(object.pool) };
    e.envelope(17, 8, |e| {
        // Zeros and empty fields stand where older releases had a category, a lock, and watchers by name.
        e.put(object).put(&locator).put(&0u32).put(&info.version).put(&info.prior_version).put(&info.last_reqid);
        e.put(&info.size).put(&info.mtime);
        match object.snap {
            Snap::HEAD => e.put(&ReqId::default()),
            // Where clones had their snapshots.
            _ => e.count(0),
        };
        e.put(&u64::from(info.truncate_seq)).put(&info.truncate_size);
        e.put(&false).put(&0u32);
        e.put(&EVersion { epoch: Epoch(0), version: info.user_version }).put(&false).count(info.watchers.len());
        for (key, watch) in &info.watchers {
            e.put(&key.cookie).put(&key.who);
            e.envelope(4, 3, |e| {
                e.put(&key.cookie).put(&watch.timeout_s).put(&watch.addr);
            });
        }
        e.put(&info.flags).put(&info.mtime).put(&u32::MAX).put(&u32::MAX);
        e.put(&info.expected_object_size).put(&info.expected_write_size).put(&info.alloc_hint_flags);
    });
    e.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(interval: u32, after: &str, max: u64) -> Bytes {
        let mut e = Encoder::new(0);
        e.envelope(1, 1, |e| {
            e.put(&Epoch(interval)).put(&0u32).put(&BString::from(after)).put(&BString::default()).put(&Snap::HEAD).put(&max);
        });
        e.finish()
    }

    fn found() -> BTreeMap<HObject, Inconsistent> {
        let one = |name: &str| {
            let object = HObject { name: name.into(), snap: Snap::HEAD, ..HObject::min() };
            let missing = Shard { errors: shard_error::MISSING, found: None, info: None };
            let shards = [(OsdId(0), missing)].into_iter().collect();
            let i = Inconsistent { object: object.clone(), errors: 0, shards, auth: None, bad: Default::default(), shallow: 1, deep: 0 };
            (object, i)
        };
        [one("a"), one("b"), one("c")].into_iter().collect()
    }

    #[test]
    fn an_object_info_is_laid_out_as_upstream_reads_it() {
        let object = HObject { name: "obj1".into(), snap: Snap::HEAD, ..HObject::min() };
        let info = ObjectInfo { truncate_seq: 7, truncate_size: 9, alloc_hint_flags: 5, ..ObjectInfo::default() };
        let raw = object_info(&object, &info);
        // Its own head, the object, its place, a category.
        let place = 6 + (6 + 4 + 8 + 8 + 4 + 1 + 4 + 8) + (6 + 8 + 4 + 4 + 4 + 8) + 4;
        // Two versions, a request, size and time, another request; then both halves of the truncation in 64 bits.
        let truncation = place + 12 + 12 + 27 + 8 + 8 + 27;
        assert_eq!(raw[truncation..truncation + 16], [7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        let end = truncation + 16 + (1 + 4 + 12 + 1 + 4 + 4 + 8 + 4 + 4 + 8 + 8);
        assert_eq!((raw.len(), &raw[end..]), (end + 4, &[5, 0, 0, 0][..]));
    }

    #[derive(denc::Decode)]
    #[denc(v = 1, compat = 1)]
    struct Answer {
        interval: Epoch,
        vals: Vec<Bytes>,
    }

    fn ask(found: Option<&BTreeMap<HObject, Inconsistent>>, question: &Bytes) -> Result<(u32, usize), Errno> {
        let answer: Answer = denc::from_bytes(&list(found, &BTreeMap::new(), Epoch(7), OsdId(0), question)?).unwrap();
        Ok((answer.interval.0, answer.vals.len()))
    }

    #[test]
    fn pages_follow_each_other_and_an_interval_that_is_over_is_told() {
        let all = found();
        assert_eq!(ask(Some(&all), &question(0, "", 2)), Ok((7, 2)));
        assert_eq!(ask(Some(&all), &question(7, "b", 2)), Ok((7, 1)));
        assert_eq!(ask(Some(&all), &question(6, "b", 2)), Err(Errno::EAGAIN));
        assert_eq!(ask(None, &question(0, "", 2)), Err(Errno::ENOENT));
        assert_eq!(ask(Some(&all), &Bytes::from_static(b"what")), Err(Errno::EINVAL));
    }
}
