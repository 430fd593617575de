//! What a check says of stores that were damaged on purpose.

use crate::harness::*;
use bytes::Bytes;
use rand_chacha::ChaCha8Rng;
use std::ops::Bound;
use store::*;
use types::{HObject, ShardPgId};

const COLL: ShardPgId = COLLS[0];
/// Larger than what an object's own row describes.
const LARGE: usize = 600_000;

fn rows(d: &Driver, prefix: u8) -> Vec<(Bytes, Bytes)> {
    d.disk.kv().scan(Bound::Included(&[prefix]), Bound::Excluded(&[prefix + 1]), usize::MAX).unwrap()
}

fn change(d: &Driver, change: impl FnOnce(&mut KvBatch)) {
    let mut batch = KvBatch::default();
    change(&mut batch);
    d.disk.kv().apply(batch).unwrap();
}

/// The row of an object.
fn row(d: &Driver, of: &HObject) -> (Bytes, Bytes) {
    let is_of = |key: &Bytes| key.windows(of.name.len()).any(|part| part == &of.name[..]);
    rows(d, b'O').into_iter().find(|(key, _)| is_of(key)).unwrap()
}

/// Two small objects, one of them with an omap, and a large one.
fn three() -> (Driver, ChaCha8Rng, [HObject; 3]) {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    let objects = [object(COLL, 1), object(COLL, 2), object(COLL, 4)];
    d.commit(&mut rng, write(&objects[0], 0, vec![1; 5000]));
    d.commit(&mut rng, write(&objects[1], 0, vec![2; 9000]));
    d.commit(&mut rng, write(&objects[2], 0, vec![3; LARGE]));
    let mut omap = Transaction::new(COLL);
    omap.omap_set(&objects[0], vec![("k".into(), Bytes::from_static(b"v"))]);
    d.commit(&mut rng, omap);
    assert_eq!(d.fsck().errors, []);
    (d, rng, objects)
}

#[test]
fn it_counts_what_is_there() {
    let (mut d, mut rng, objects) = three();
    let mut clone = Transaction::new(COLL);
    clone.clone_obj(&objects[2], &object(COLL, 8));
    d.commit(&mut rng, clone);
    let report = d.fsck();
    let large = LARGE.div_ceil(4096) as u64;
    assert_eq!((report.collections, report.objects, report.omap_keys), (2, 4, 1));
    assert_eq!((report.blocks, report.shared_blocks, report.read_blocks), (2 + 3 + large, large, 2 + 3 + large));
    assert_eq!(fsck(&mut d.disk.dev(), &d.disk.kv(), false).unwrap().read_blocks, 0);
}

#[test]
fn an_object_without_its_row_leaves_orphans() {
    let (d, _, objects) = three();
    let (large, small) = (row(&d, &objects[2]).0, row(&d, &objects[0]).0);
    change(&d, |b| {
        b.delete(large);
        b.delete(small);
    });
    let errors = d.fsck().errors;
    let segments = LARGE.div_ceil(64 * 4096) - 1;
    assert_eq!(errors.iter().filter(|e| matches!(e, FsckError::OrphanSegment(..))).count(), segments, "{errors:?}");
    assert_eq!(errors.iter().filter(|e| matches!(e, FsckError::OrphanOmap(_))).count(), 1, "{errors:?}");
    assert_eq!(errors.len(), segments + 1, "{errors:?}");
}

#[test]
fn what_an_object_has_too_little_is_told_with_its_name() {
    let (d, _, objects) = three();
    let (segment, _) = rows(&d, b'X').remove(0);
    change(&d, |b| b.delete(segment));
    let all = LARGE.div_ceil(4096) as u64;
    assert_eq!(d.fsck().errors, [FsckError::Mapped { obj: objects[2].clone(), counted: all - 64, recorded: all }]);
}

#[test]
fn two_objects_with_one_number_or_one_block_are_told() {
    let (mut d, mut rng, objects) = three();
    let ((_, first), (other, second)) = (row(&d, &objects[0]), row(&d, &objects[1]));
    // What the first one was, as another object with its blocks: what is in them has changed since.
    let nid = second[1];
    d.commit(&mut rng, write(&objects[0], 0, vec![7; 4096]));
    let moved = [&first[..1], &[nid], &first[2..]].concat();
    change(&d, |b| b.put(other.clone(), moved));
    let errors = d.fsck().errors;
    assert_eq!(errors.iter().filter(|e| matches!(e, FsckError::Overlap(_))).count(), 1, "{errors:?}");
    assert!(!errors.iter().any(|e| matches!(e, FsckError::SameNid(..))), "{errors:?}");
    let now = row(&d, &objects[0]).1;
    change(&d, |b| b.put(other, now));
    let errors = d.fsck().errors;
    assert!(matches!(&errors[0], FsckError::SameNid(a, b, _) if [a, b] == [&objects[0], &objects[1]] || [a, b] == [&objects[1], &objects[0]]), "{errors:?}");
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_goes_on() {
    let (d, _, objects) = three();
    let (key, value) = row(&d, &objects[1]);
    change(&d, |b| {
        b.put(key.clone(), value.slice(..value.len() - 1));
        b.put(&b"Cnothing"[..], &b""[..]);
    });
    let report = d.fsck();
    assert!(matches!(&report.errors[..], [FsckError::BadValue(bad, _), FsckError::UnknownKey(k)] if k == &b"Cnothing"[..] && *bad == key), "{:?}", report.errors);
    assert_eq!((report.objects, report.omap_keys), (2, 1));
}

#[test]
fn a_collection_that_is_gone_is_told_by_each_of_its_objects() {
    let (d, _, _) = three();
    let (coll, _) = rows(&d, b'C').remove(0);
    change(&d, |b| b.delete(coll));
    let errors = d.fsck().errors;
    assert_eq!(errors.iter().filter(|e| matches!(e, FsckError::NoCollection(_))).count(), 3, "{errors:?}");
}

#[test]
fn of_very_many_errors_the_first_are_told_and_the_others_counted() {
    let (d, _, _) = three();
    change(&d, |b| (0..ERRORS_MAX + 10).for_each(|n| b.put(format!("C{n}"), &b""[..])));
    let report = d.fsck();
    assert_eq!((report.errors.len(), report.more_errors), (ERRORS_MAX, 10));
}

#[test]
fn who_waits_hears_how_far_it_is() {
    let (d, _, _) = three();
    let mut heard = Vec::new();
    let report = Fsck::new(true).limits(50, 1000).telling(|so_far| heard.push(so_far.read_blocks)).run(&mut d.disk.dev(), &d.disk.kv()).unwrap();
    assert!(heard.len() >= 3 && heard.is_sorted() && heard.last() == Some(&report.read_blocks), "{heard:?}");
}
