//! What the operating system's page cache has of the device: asked first, never believed without its checksum, and nothing that a scrub would trust.

use crate::harness::*;
use rand_chacha::ChaCha8Rng;
use store::mem::MemIo;
use store::*;
use types::{Errno, HObject, ShardPgId};

const COLL: ShardPgId = COLLS[0];

/// A store that keeps no data itself, with an object of so many bytes on its device.
fn with_object(len: usize, config: StoreConfig) -> (Driver, ChaCha8Rng, HObject, Vec<u8>) {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig { data_cache_bytes: 0, prefer_deferred_size: 0, ..config });
    let data: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
    d.commit(&mut rng, write(&object(COLL, 1), 0, data.clone()));
    (d, rng, object(COLL, 1), data)
}

/// Reads, and returns what of it the device was asked for.
fn reads(d: &mut Driver, rng: &mut ChaCha8Rng, obj: &HObject, len: usize, flags: ReadFlags, wanted: &[u8]) -> Vec<MemIo> {
    let id = d.start_read(COLL, obj, 0, len as u64, flags);
    d.settle();
    let asked = d.disk.pending().into_iter().map(|(_, io)| io).collect();
    d.run(rng);
    let got = d.reads.remove(&id).expect("an answer").map(|r| r.data.contiguous());
    assert_eq!(got.as_deref(), Ok(wanted));
    asked
}

const ALL: ReadFlags = ReadFlags { sparse: false, nocache: false, bypass: false, digest: false, trust: None, class: qos::Class::Client };

#[test]
fn a_short_read_is_done_by_the_device_once() {
    let (mut d, mut rng, obj, data) = with_object(10_000, StoreConfig::default());
    let asked = [MemIo::Read(12_288)];
    assert_eq!(reads(&mut d, &mut rng, &obj, 10_000, ALL, &data), asked);
    assert_eq!(reads(&mut d, &mut rng, &obj, 10_000, ALL, &data), []);
    assert_eq!(reads(&mut d, &mut rng, &obj, 5000, ALL, &data[..5000]), [], "a part of it");
    assert_eq!((d.store.device_use().page_cache_hits, d.store.device_use().page_cache_hit_bytes), (2, 20_480));
    // Those who want the medium, and others for whom it is not worth it.
    for flags in [ReadFlags { bypass: true, ..ALL }, ReadFlags { nocache: true, ..ALL }, ReadFlags { class: qos::Class::Recovery, ..ALL }] {
        assert_eq!(reads(&mut d, &mut rng, &obj, 10_000, flags, &data), asked);
    }
    d.store.drop_caches();
    assert_eq!(reads(&mut d, &mut rng, &obj, 10_000, ALL, &data), asked, "what is to be forgotten");
    d.commit(&mut rng, write(&obj, 0, vec![1; 4096]));
    let data = [vec![1; 4096], data[4096..].to_vec()].concat();
    assert_eq!(reads(&mut d, &mut rng, &obj, 10_000, ALL, &data), [MemIo::Read(4096)], "only what is new");
}

#[test]
fn long_reads_and_all_where_nothing_is_to_be_kept_go_past_it() {
    for (len, config) in [
        (80_000, StoreConfig::default()),
        (10_000, StoreConfig { buffered_read: false, ..StoreConfig::default() }),
        (10_000, StoreConfig { page_cached_bytes_max: 8192, ..StoreConfig::default() }),
        (10_000, StoreConfig { policy: Policy { csum: Csum::Crc32c16, ..Policy::default() }, ..StoreConfig::default() }),
        (10_000, StoreConfig { policy: Policy { csum: Csum::None, ..Policy::default() }, ..StoreConfig::default() }),
    ] {
        let (mut d, mut rng, obj, data) = with_object(len, config);
        let asked = reads(&mut d, &mut rng, &obj, len, ALL, &data);
        assert_eq!(asked.len(), 1);
        assert_eq!(reads(&mut d, &mut rng, &obj, len, ALL, &data), asked);
    }
}

#[test]
fn what_is_wrong_there_is_read_from_the_device_and_no_fault_of_the_disk() {
    let compression = Compression { mode: CompressionMode::Force, algorithm: Algorithm::Lz4, min_blob_size: 64 << 10, ..Compression::default() };
    for (policy, hits) in [(Policy::default(), true), (Policy { compression, ..Policy::default() }, false)] {
        let (mut d, mut rng, obj, data) = with_object(40_000, StoreConfig { retry_disk_reads: 0, policy, ..StoreConfig::default() });
        reads(&mut d, &mut rng, &obj, 40_000, ALL, &data);
        d.disk.spoil_page_cache();
        assert!(!reads(&mut d, &mut rng, &obj, 40_000, ALL, &data).is_empty());
        assert_eq!(reads(&mut d, &mut rng, &obj, 40_000, ALL, &data).is_empty(), hits, "what was wrong is gone from there");
        assert_eq!(d.checksum_errors, 0);
        let counters: Vec<&admin::perf::PerfCounters> = d.store.perf().into_iter().map(|c| &*c).collect();
        let retries = admin::perf::dump(&counters, Some("bluestore"), Some("bluestore_reads_with_retries"), false);
        assert!(retries.contains(r#""bluestore_reads_with_retries":0"#), "{retries}");
        // An error on its way through the page cache is none of the device.
        d.commit(&mut rng, write(&obj, 0, vec![3; 40_000]));
        d.disk.fail_next(MemIo::Read(0), Errno::EIO, 1);
        reads(&mut d, &mut rng, &obj, 40_000, ALL, &[3; 40_000]);
    }
}

#[test]
fn it_hides_no_rot_from_a_scrub() {
    let (mut d, mut rng, obj, data) = with_object(10_000, StoreConfig::default());
    reads(&mut d, &mut rng, &obj, 10_000, ALL, &data);
    d.disk.pages_in_use().into_iter().filter(|p| *p > 0).for_each(|p| d.disk.rot(p, 77));
    reads(&mut d, &mut rng, &obj, 10_000, ALL, &data);
    let trust = Some(Trust { now: d.now.mono, age_s: 86400 });
    let flags = ReadFlags { nocache: true, bypass: true, digest: true, trust, ..ALL };
    assert_eq!(d.read(&mut rng, COLL, &obj, 0, u64::MAX, flags).map(|r| r.digest), Err(Errno::EIO));
}
