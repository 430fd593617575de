//! Digests, for which what was read lately need not be read again; and rot that must be found all the same.

use crate::harness::*;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use std::time::Duration;
use store::mem::MemIo;
use store::*;
use types::{Errno, HObject, ShardPgId};

const COLL: ShardPgId = COLLS[0];

/// As a scrub reads: what was verified in the last `trust_s` seconds is right.
fn scrub(d: &mut Driver, rng: &mut ChaCha8Rng, coll: ShardPgId, obj: &HObject, trust_s: Option<u32>) -> Result<Digest, Errno> {
    let trust = trust_s.map(|age_s| Trust { now: d.now.mono, age_s });
    let flags = ReadFlags { nocache: true, bypass: true, digest: true, trust, ..ReadFlags::default() };
    d.read(rng, coll, obj, 0, u64::MAX, flags).map(|r| r.digest)
}

fn rot(d: &Driver) {
    d.disk.pages_in_use().into_iter().filter(|p| *p > 0).for_each(|p| d.disk.rot(p, 77));
}

/// Everything reaches its place.
fn write_back(d: &mut Driver, rng: &mut ChaCha8Rng) {
    d.store.write_deferred();
    d.run(rng);
}

const DAY: Option<u32> = Some(86400);

#[test]
fn what_was_read_and_right_need_not_be_read_again_for_a_while() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    let (large, small) = (object(COLL, 1), object(COLL, 2));
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i * 7 % 251) as u8).collect();
    d.commit(&mut rng, write(&large, 0, data.clone()));
    d.commit(&mut rng, write(&small, 0, data[..5000].to_vec()));
    write_back(&mut d, &mut rng);
    let (all, some) = (1_000_000u64.next_multiple_of(4096), 8192);
    d.now.mono = d.now.mono + Duration::from_secs(100);
    // Both are in memory still, which says nothing of the device.
    d.read_all(&mut rng, COLL, &small).unwrap();
    for (obj, len, read) in [(&large, 1_000_000, all), (&small, 5000, some)] {
        let crc = denc::crc32c(&data[..len]);
        assert_eq!(scrub(&mut d, &mut rng, COLL, obj, DAY), Ok(Digest { crc, read, trusted: 0 }));
        assert_eq!(scrub(&mut d, &mut rng, COLL, obj, DAY), Ok(Digest { crc, read: 0, trusted: read }));
        assert_eq!(scrub(&mut d, &mut rng, COLL, obj, None), Ok(Digest { crc, read, trusted: 0 }));
    }
    d.now.mono = d.now.mono + Duration::from_secs(50);
    assert_eq!(scrub(&mut d, &mut rng, COLL, &small, Some(50)).unwrap().trusted, some);
    assert_eq!(scrub(&mut d, &mut rng, COLL, &small, Some(49)).unwrap().read, some);
    // A client's read counts, as far as it went.
    d.now.mono = d.now.mono + Duration::from_secs(1000);
    d.read(&mut rng, COLL, &large, 100_000, 300_000, ReadFlags::default()).unwrap();
    let trusted = 400_000u64.next_multiple_of(4096) - 98_304;
    let crc = denc::crc32c(&data);
    assert_eq!(scrub(&mut d, &mut rng, COLL, &large, Some(10)), Ok(Digest { crc, read: all - trusted, trusted }));
    let config = StoreConfig::default();
    let mut d = Driver::mount(&d.disk, config);
    assert_eq!(scrub(&mut d, &mut rng, COLL, &large, DAY).unwrap().trusted, 0, "after a restart nothing is known");
}

#[test]
fn what_rots_after_it_was_read_is_found_by_who_reads_it_and_then_by_all() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    let obj = object(COLL, 1);
    d.commit(&mut rng, write(&obj, 0, vec![7; 100_000]));
    let good = scrub(&mut d, &mut rng, COLL, &obj, None).unwrap();
    rot(&d);
    assert_eq!(scrub(&mut d, &mut rng, COLL, &obj, DAY).unwrap().crc, good.crc);
    assert_eq!(scrub(&mut d, &mut rng, COLL, &obj, None), Err(Errno::EIO));
    assert_eq!(scrub(&mut d, &mut rng, COLL, &obj, DAY), Err(Errno::EIO), "it is known to be bad");
}

#[test]
fn what_is_written_anew_is_read_again() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    let obj = object(COLL, 1);
    d.commit(&mut rng, write(&obj, 0, vec![7; 100_000]));
    write_back(&mut d, &mut rng);
    let before = scrub(&mut d, &mut rng, COLL, &obj, None).unwrap();
    // In place, through the log; elsewhere, directly.
    for (off, len) in [(9000, 10), (20_480, 40_960)] {
        d.commit(&mut rng, write(&obj, off, vec![8; len]));
        write_back(&mut d, &mut rng);
    }
    let after = scrub(&mut d, &mut rng, COLL, &obj, DAY).unwrap();
    assert_eq!((after.read, after.trusted), (11 * 4096, before.read - 11 * 4096));
    d.commit(&mut rng, write(&obj, 9000, vec![9; 10]));
    write_back(&mut d, &mut rng);
    rot(&d);
    assert_eq!(scrub(&mut d, &mut rng, COLL, &obj, DAY), Err(Errno::EIO));
}

#[test]
fn a_bad_block_that_a_write_meets_is_known_to_be_bad_for_clones_too() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig { data_cache_bytes: 0, ..StoreConfig::default() });
    let (obj, clone) = (object(COLL, 1), object(COLL, 2));
    d.commit(&mut rng, write(&obj, 0, vec![7; 100_000]));
    let mut t = Transaction::new(COLL);
    t.clone_obj(&obj, &clone);
    d.commit(&mut rng, t);
    scrub(&mut d, &mut rng, COLL, &clone, None).unwrap();
    rot(&d);
    d.commit(&mut rng, write(&obj, 5, vec![8; 10]));
    assert_eq!(scrub(&mut d, &mut rng, COLL, &clone, DAY), Err(Errno::EIO));
}

#[test]
fn a_block_that_another_object_gets_is_read_again() {
    for len in [3 << 20, 20_000] {
        let (mut d, mut rng) = mounted(8 << 20, StoreConfig::default());
        let places = (6 << 20) / len as u32;
        for n in 0..places {
            d.commit(&mut rng, write(&object(COLL, n), 0, vec![7; len]));
        }
        write_back(&mut d, &mut rng);
        for n in 0..places {
            scrub(&mut d, &mut rng, COLL, &object(COLL, n), None).unwrap();
            let mut t = Transaction::new(COLL);
            t.remove(&object(COLL, n));
            d.commit(&mut rng, t);
        }
        for n in 0..places {
            d.commit(&mut rng, write(&object(COLL, n), 0, vec![8; len]));
        }
        write_back(&mut d, &mut rng);
        rot(&d);
        for n in 0..places {
            assert_eq!(scrub(&mut d, &mut rng, COLL, &object(COLL, n), DAY), Err(Errno::EIO));
        }
    }
}

#[test]
fn what_is_read_from_the_device_brings_the_checksums_of_its_blocks() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    let obj = object(COLL, 1);
    let data: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
    d.commit(&mut rng, write(&obj, 0, data.clone()));
    d.commit(&mut rng, write(&obj, 400_000, vec![1; 9]));
    write_back(&mut d, &mut rng);
    let bypass = ReadFlags { bypass: true, nocache: true, ..ReadFlags::default() };
    // Of a block that is read in part there is none, nor of what is behind a hole.
    for (off, len, known) in [(0, 196_608, 48), (4096, 81_920, 20), (8192, 10_000, 2), (100, 81_920, 0), (0, u64::MAX, 49)] {
        let got = d.read(&mut rng, COLL, &obj, off, len, bypass).unwrap().data;
        let bytes = got.contiguous();
        let crcs: Vec<u32> = bytes.chunks_exact(4096).take(known).map(denc::crc32c).collect();
        assert_eq!((got.block_crcs(), crcs.len()), (&crcs[..], known), "{len} from {off}");
    }
}

#[test]
fn a_read_from_before_an_overwrite_says_nothing_of_what_was_written() {
    // What is in the log goes to its place though the device has something else to do.
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig { deferred_bytes_max: 1, ..StoreConfig::default() });
    let obj = object(COLL, 1);
    d.commit(&mut rng, write(&obj, 0, vec![7; 4096]));
    write_back(&mut d, &mut rng);
    let bypass = ReadFlags { bypass: true, ..ReadFlags::default() };
    let id = d.start_read(COLL, &obj, 0, 4096, bypass);
    d.settle();
    let [(io, MemIo::Read(4096))] = d.disk.pending()[..] else { panic!("one read is under way") };
    // The device has answered; that it has, the store hears last. The same bytes are written, so that no checksum tells.
    let answer = d.disk.complete(io);
    d.commit(&mut rng, write(&obj, 0, vec![7; 4096]));
    write_back(&mut d, &mut rng);
    d.store.handle_io(d.now, io, answer);
    d.settle();
    assert_eq!(d.reads[&id].as_ref().unwrap().data.contiguous(), vec![7; 4096]);
    rot(&d);
    assert_eq!(scrub(&mut d, &mut rng, COLL, &obj, DAY), Err(Errno::EIO));
}

/// With everything at once: what goes bad before it was ever read back is found by whoever trusts.
#[test]
fn rot_in_what_was_never_read_back_is_always_found() {
    let (mut found, mut trusted) = (0, 0);
    for seed in 0..120 {
        let mut rng = rng(seed);
        let mut config = tight_config(&mut rng);
        // Shorter ones, and none, do not find everything.
        if matches!(config.policy.csum, Csum::None | Csum::Crc32c8 | Csum::Crc32c16) {
            config.policy.csum = Csum::Crc32c;
        }
        let mut d = Driver::mount(&Driver::format(16 << 20), config);
        d.bulk_every = 3;
        create_colls(&mut d, &mut rng);
        let mut models = [Model::default(), Model::default()];
        for _ in 0..60 {
            let which = rng.random_range(0..2);
            let (coll, model) = (COLLS[which], &mut models[which]);
            let t = random_txn(&mut rng, coll, model);
            if d.submit(t.clone()).is_ok() {
                model.apply(&t);
            }
            for _ in 0..rng.random_range(0..4) {
                let names: Vec<HObject> = model.objects.keys().cloned().collect();
                let Some(name) = names.choose(&mut rng) else { continue };
                let trust = rng.random::<bool>().then_some(Trust { now: d.now.mono, age_s: 9 });
                let flags = ReadFlags { bypass: rng.random(), digest: rng.random(), trust, ..ReadFlags::default() };
                d.start_read(coll, name, rng.random_range(0..20) * 4096, rng.random_range(1..40) * 4096, flags);
            }
            for _ in 0..rng.random_range(0..30) {
                d.step(&mut rng);
            }
            if rng.random_ratio(1, 8) {
                d.store.write_deferred();
            }
        }
        for _ in 0..2 {
            d.run(&mut rng);
            write_back(&mut d, &mut rng);
        }
        assert!(d.reads.values().all(|r| r.is_ok() || *r == Err(Errno::ENOENT)), "seed {seed}");
        d.disk.pages_unread().into_iter().filter(|p| *p > 0).for_each(|p| d.disk.rot(p, 5));
        for (coll, model) in COLLS.into_iter().zip(&models) {
            for (name, object) in &model.objects {
                let trusting = scrub(&mut d, &mut rng, coll, name, DAY);
                let whole = scrub(&mut d, &mut rng, coll, name, None);
                assert_eq!(trusting.map(|d| d.crc), whole.map(|d| d.crc), "seed {seed} {name:?}");
                assert!(whole.is_err() || whole.is_ok_and(|d| d.crc == denc::crc32c(&object.data)));
                found += usize::from(whole.is_err());
                trusted += trusting.map_or(0, |d| d.trusted);
            }
        }
    }
    assert!(found > 100 && trusted > 1 << 20, "{found} objects bad, {trusted} bytes not read");
}
