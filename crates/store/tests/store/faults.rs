//! What goes wrong and must be said: rotten bits, full devices, failed flushes, stores that are not ours.

use bytes::Bytes;
use crate::harness::*;
use std::time::Duration;
use store::mem::MemIo;
use store::*;
use types::{Errno, ShardPgId};
use uuid::Uuid;

const COLL: ShardPgId = COLLS[0];

/// Turns a bit in every page with data.
fn rot(d: &Driver) {
    d.disk.pages_in_use().into_iter().filter(|p| *p > 0).for_each(|p| d.disk.flip_bit(p * 4096 + 77, 3));
}

#[test]
fn a_flipped_bit_is_an_error_and_news_and_never_data() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    let obj = object(COLL, 1);
    d.commit(&mut rng, write(&obj, 0, vec![7; 100_000]));
    rot(&d);
    assert_eq!(d.read_all(&mut rng, COLL, &obj), Err(Errno::EIO));
    assert!(d.checksum_errors > 0);
    assert!(matches!(d.fsck().errors[0], FsckError::Checksum { .. }));
}

#[test]
fn writing_part_of_a_rotten_block_keeps_it_unreadable_until_it_is_whole_again() {
    let config = StoreConfig { data_cache_bytes: 0, deferred_batch_bytes: 1, ..StoreConfig::default() };
    let (mut d, mut rng) = mounted(16 << 20, config.clone());
    let obj = object(COLL, 1);
    d.commit(&mut rng, write(&obj, 0, vec![7; 100_000]));
    rot(&d);
    d.commit(&mut rng, write(&obj, 10, vec![8; 100]));
    assert!(d.checksum_errors > 0);
    let block = |d: &mut Driver, rng: &mut _| d.read(rng, COLL, &obj, 0, 4096, ReadFlags::default());
    assert_eq!(block(&mut d, &mut rng), Err(Errno::EIO));
    let mut d = Driver::mount(&d.disk, config);
    assert_eq!(block(&mut d, &mut rng), Err(Errno::EIO));
    d.commit(&mut rng, write(&obj, 0, vec![9; 4096]));
    assert_eq!(block(&mut d, &mut rng).unwrap().data.contiguous(), vec![9; 4096]);
}

#[test]
fn what_is_added_to_a_rotten_block_keeps_it_unreadable() {
    let config = StoreConfig { data_cache_bytes: 0, deferred_batch_bytes: 1, ..StoreConfig::default() };
    let (mut d, mut rng) = mounted(16 << 20, config);
    let obj = object(COLL, 1);
    d.commit(&mut rng, write(&obj, 0, vec![7; 8192]));
    let add = |at: u64| {
        let mut txn = Transaction::new(COLL);
        txn.xor(&obj, at, Bytes::from(vec![5; 4096]));
        txn
    };
    d.commit(&mut rng, add(4096));
    assert_eq!(d.read_all(&mut rng, COLL, &obj).unwrap(), [vec![7; 4096], vec![7 ^ 5; 4096]].concat());
    rot(&d);
    d.commit(&mut rng, add(0));
    assert!(d.checksum_errors > 0);
    assert_eq!(d.read(&mut rng, COLL, &obj, 0, 4096, ReadFlags::default()), Err(Errno::EIO));
    d.commit(&mut rng, write(&obj, 0, vec![9; 8192]));
    assert_eq!(d.read_all(&mut rng, COLL, &obj).unwrap(), vec![9; 8192]);
}

/// Every I/O of this kind that is in flight completes, and the store goes on.
fn complete(d: &mut Driver, which: fn(MemIo) -> bool) {
    d.settle();
    for (id, _) in d.disk.pending().into_iter().filter(|(_, io)| which(*io)) {
        let result = d.disk.complete(id);
        d.store.handle_io(Default::default(), id, result);
    }
    d.settle();
}

#[test]
fn a_block_that_reached_its_place_while_its_object_was_going_is_not_served_as_the_next_ones() {
    let config = StoreConfig { deferred_batch_bytes: 1, ..StoreConfig::default() };
    let (mut d, mut rng) = mounted(16 << 20, config);
    let old = object(COLL, 1);
    d.submit(write(&old, 0, vec![7; 4096])).unwrap();
    complete(&mut d, |io| io == MemIo::KvFlush);
    assert!(matches!(d.disk.pending()[..], [(_, MemIo::Write(4096))]), "the block is on its way to its place");
    let mut gone = Transaction::new(COLL);
    gone.remove(&old);
    d.submit(gone).unwrap();
    complete(&mut d, |io| matches!(io, MemIo::Write(_)));
    complete(&mut d, |io| io == MemIo::DevFlush);
    d.run(&mut rng);
    // Whoever gets the block finds his own content there.
    for n in 2.. {
        match d.submit(write(&object(COLL, n), 0, vec![n as u8; 1 << 20])) {
            Ok(_) => d.run(&mut rng),
            Err(_) => break,
        }
        assert_eq!(d.read_all(&mut rng, COLL, &object(COLL, n)).unwrap(), vec![n as u8; 1 << 20]);
    }
}

/// A replacement by something shorter cuts the block first, for which it is read, and then writes it whole. The cut block was taken for
/// the newest content for a while, and what was written on top of that stayed unreadable.
#[test]
fn of_two_writes_of_a_block_in_one_transaction_the_second_counts_whenever_the_first_is_ready() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig { deferred_batch_bytes: 1, ..StoreConfig::default() });
    let [first, obj] = [1, 2].map(|n| object(COLL, n));
    for obj in [&first, &obj] {
        d.commit(&mut rng, write(obj, 0, vec![1; 3000]));
    }
    let mut d = Driver::mount(&d.disk, StoreConfig { deferred_batch_bytes: 1, joined_read_bytes: 0, ..StoreConfig::default() });
    // Those of a collection go one after the other: the second waits for the first, whose block is still being read.
    d.submit(write(&first, 100, vec![2; 10])).unwrap();
    let mut replaced = Transaction::new(COLL);
    replaced.truncate(&obj, 600);
    replaced.write(&obj, 0, Bytes::from(vec![3; 600]));
    d.submit(replaced).unwrap();
    d.settle();
    let reads: Vec<_> = d.disk.pending().into_iter().filter(|(_, io)| matches!(io, MemIo::Read(_))).collect();
    assert_eq!(reads.len(), 2);
    let result = d.disk.complete(reads[1].0);
    d.store.handle_io(Default::default(), reads[1].0, result);
    d.submit(write(&obj, 600, vec![4; 100])).unwrap();
    d.run(&mut rng);
    let data = d.read_all(&mut rng, COLL, &obj).unwrap();
    assert_eq!(data, [vec![3; 600], vec![4; 100]].concat());
    assert!(d.fsck().errors.is_empty(), "{:?}", d.fsck());
}

#[test]
fn a_full_device_refuses_growth_and_still_removes() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    let mut n = 0;
    let refused = loop {
        n += 1;
        match d.submit(write(&object(COLL, n), 0, vec![1; 1 << 20])) {
            Ok(_) => d.run(&mut rng),
            Err(e) => break e,
        }
    };
    assert_eq!((refused, d.store.exists(COLL, &object(COLL, n))), (Errno::ENOSPC, Ok(false)));
    assert!(n >= 14);
    for i in 1..n {
        let mut t = Transaction::new(COLL);
        t.truncate(&object(COLL, i), 5000);
        t.remove(&object(COLL, i));
        d.commit(&mut rng, t);
    }
    d.commit(&mut rng, write(&object(COLL, n), 0, vec![1; 1 << 20]));
    assert_eq!(d.fsck().errors, []);
}

#[test]
fn what_the_log_holds_of_a_full_device_is_written_so_that_it_becomes_free() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    // Less than is worth a flush, and no object refers to it any more.
    (0..200).for_each(|n| d.commit(&mut rng, write(&object(COLL, n), 0, vec![1; 8192])));
    let rewrite = |n| write(&object(COLL, n), 0, vec![2; 8192]);
    (0..200).for_each(|n| d.commit(&mut rng, rewrite(n)));
    let mut n = 1000;
    while d.submit(write(&object(COLL, n), 0, vec![3; 256 << 10])).is_ok() {
        d.run(&mut rng);
        n += 1;
    }
    for n in 0..200 {
        let mut t = Transaction::new(COLL);
        t.remove(&object(COLL, n));
        d.commit(&mut rng, t);
    }
    // What they had there is room for six more.
    (n..n + 6).for_each(|n| d.commit(&mut rng, write(&object(COLL, n), 0, vec![3; 256 << 10])));
    assert_eq!(d.fsck().errors, []);
}

#[test]
fn freed_space_is_not_reused_before_the_freeing_is_durable() {
    let (mut d, mut rng) = mounted(8 << 20, StoreConfig::default());
    d.commit(&mut rng, write(&object(COLL, 1), 0, vec![1; 5 << 20]));
    let mut t = Transaction::new(COLL);
    t.remove(&object(COLL, 1));
    d.submit(t).unwrap();
    d.settle();
    assert_eq!(d.submit(write(&object(COLL, 2), 0, vec![1; 5 << 20])), Err(Errno::ENOSPC));
    d.run(&mut rng);
    d.commit(&mut rng, write(&object(COLL, 2), 0, vec![1; 5 << 20]));
}

#[test]
fn a_failed_flush_or_write_poisons_and_nothing_is_committed_after_it() {
    for kind in [MemIo::KvFlush, MemIo::DevFlush, MemIo::Write(0)] {
        let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
        d.committed.clear();
        d.disk.fail_next(kind, Errno::EIO, 1);
        d.submit(write(&object(COLL, 1), 0, vec![1; 100_000])).unwrap();
        d.submit(write(&object(COLL, 2), 0, vec![1; 100])).unwrap();
        d.run(&mut rng);
        assert_eq!((d.poisoned, &d.committed[..]), (Some(Errno::EIO), &[][..]), "{kind:?}");
        assert_eq!(d.submit(write(&object(COLL, 3), 0, vec![1; 100])), Err(Errno::EIO));
        assert_eq!(d.read_all(&mut rng, COLL, &object(COLL, 1)), Err(Errno::EIO));
        assert!(d.committed.is_empty());
    }
}

#[test]
fn what_cannot_be_done_is_refused_as_a_whole() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    let (a, b) = (object(COLL, 1), object(COLL, 2));
    let refused = |d: &mut Driver, build: &dyn Fn(&mut Transaction)| {
        let mut t = Transaction::new(COLL);
        t.touch(&a);
        build(&mut t);
        let e = d.submit(t).unwrap_err();
        assert_eq!(d.store.exists(COLL, &a), Ok(false));
        e
    };
    assert_eq!(refused(&mut d, &|t| t.clone_obj(&b, &a)), Errno::ENOENT);
    assert_eq!(refused(&mut d, &|t| t.rename(&b, &a)), Errno::ENOENT);
    assert_eq!(refused(&mut d, &|t| t.create_coll(3)), Errno::EEXIST);
    assert_eq!(refused(&mut d, &|t| t.truncate(&a, u64::MAX)), Errno::EFBIG);
    assert_eq!(refused(&mut d, &|t| t.write(&a, u64::MAX, Bytes::from_static(b"x"))), Errno::EFBIG);
    assert_eq!(refused(&mut d, &|t| t.touch(&object(COLLS[1], 1))), Errno::EINVAL);
    let mut nowhere = Transaction::new(META_COLL);
    nowhere.coll_set("k", "v");
    assert_eq!(d.submit(nowhere), Err(Errno::ENOENT));
    d.commit(&mut rng, write(&a, 0, vec![1]));
    let mut t = Transaction::new(COLL);
    t.remove_coll();
    assert_eq!(d.submit(t), Err(Errno::ENOTEMPTY));
}

#[test]
fn stores_of_others_and_halves_of_stores_are_named() {
    let disk = mem::MemDisk::new(16 << 20);
    let mount = |disk: &mem::MemDisk, fsid, whoami| MemStore::mount(disk.dev(), disk.kv(), StoreConfig::default(), fsid, whoami);
    assert!(matches!(mount(&disk, FSID, 3), Err(MountError::NotAStore)));
    let disk = Driver::format(16 << 20);
    let again = MemStore::mkfs(&mut disk.dev(), &mut disk.kv(), FSID, Uuid::from_u128(9), 3);
    assert!(matches!(again, Err(MkfsError::Exists { whoami: 3, fsid: FSID })));
    assert!(matches!(mount(&disk, Uuid::from_u128(1), 3), Err(MountError::WrongCluster { .. })));
    assert!(matches!(mount(&disk, FSID, 4), Err(MountError::WrongOsd { found: 3, expected: 4 })));
    let other = Driver::format(8 << 20);
    let mixed = |dev: &mem::MemDisk, kv: &mem::MemDisk| MemStore::mount(dev.dev(), kv.kv(), StoreConfig::default(), FSID, 3);
    assert!(matches!(mixed(&other, &disk), Err(MountError::DeviceShrunk { .. })));
    assert!(matches!(mixed(&mem::MemDisk::new(16 << 20), &disk), Err(MountError::NoLabel)));
    let stranger = mem::MemDisk::new(16 << 20);
    MemStore::mkfs(&mut stranger.dev(), &mut stranger.kv(), FSID, Uuid::from_u128(99), 3).unwrap();
    assert!(matches!(mixed(&stranger, &disk), Err(MountError::WrongDevice { .. })));
}

#[test]
fn one_turn_shares_one_flush_and_one_write_needs_one() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    for n in 0..10 {
        d.submit(write(&object(COLL, n), 0, vec![1; 4096])).unwrap();
    }
    d.settle();
    let kinds: Vec<MemIo> = d.disk.pending().into_iter().map(|(_, k)| k).collect();
    assert_eq!(kinds, [MemIo::KvFlush]);
    d.run(&mut rng);
    assert!(d.store.is_idle());
}

#[test]
fn bulk_goes_to_its_place_at_once_with_its_last_block() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    d.bulk_every = 1;
    let obj = object(COLL, 1);
    d.submit(write(&obj, 0, vec![1; 10_000])).unwrap();
    d.settle();
    let kinds = |d: &Driver| d.disk.pending().into_iter().map(|(_, k)| k).collect::<Vec<_>>();
    assert_eq!(kinds(&d), [MemIo::Write(12288)]);
    d.run(&mut rng);
    // What the last block has beside it stays: that block goes through the log.
    d.submit(write(&obj, 4096, vec![2; 5000])).unwrap();
    d.settle();
    assert!(kinds(&d).contains(&MemIo::Write(4096)), "{:?}", kinds(&d));
    d.run(&mut rng);
    assert_eq!(kinds(&d), []);
    let expected = [vec![1; 4096], vec![2; 5000], vec![1; 904]].concat();
    assert!(d.read_all(&mut rng, COLL, &obj).unwrap() == expected);
    assert!(d.store.is_idle());
}

#[test]
fn where_flushes_are_slow_bulk_goes_through_the_log() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    // Whether ten thousand bytes go straight to their place after flushes that took so long.
    let mut is_direct = |took_ms: u64, flushes: u32| {
        for n in 0..flushes {
            d.bulk_every = u64::MAX;
            d.submit(write(&object(COLL, n), 0, vec![1; 100])).unwrap();
            d.settle();
            d.now.mono = d.now.mono + Duration::from_millis(took_ms);
            d.run(&mut rng);
        }
        d.bulk_every = 1;
        d.submit(write(&object(COLL, 100), 0, vec![2; 10_000])).unwrap();
        d.settle();
        let kinds: Vec<MemIo> = d.disk.pending().into_iter().map(|(_, kind)| kind).collect();
        d.run(&mut rng);
        assert!(d.store.is_idle());
        kinds == [MemIo::Write(12288)]
    };
    assert!(is_direct(0, 1));
    assert!(is_direct(100, 1), "one is an accident");
    assert!(!is_direct(20, 20), "twenty are what the disk is like");
    assert!(is_direct(1, 20));
}

#[test]
fn a_large_write_waits_for_the_device_and_then_for_the_database() {
    let (mut d, _) = mounted(16 << 20, StoreConfig::default());
    let t = d.submit(write(&object(COLL, 1), 0, vec![1; 1 << 20])).unwrap();
    for expected in [MemIo::Write(1 << 20), MemIo::DevFlush, MemIo::KvFlush] {
        d.settle();
        assert!(!d.committed.contains(&t));
        let [(id, kind)] = d.disk.pending()[..] else { panic!("one I/O at a time") };
        assert_eq!(kind, expected);
        let result = d.disk.complete(id);
        d.store.handle_io(types::Now::default(), id, result);
    }
    d.settle();
    assert!(d.committed.contains(&t));
}

#[test]
fn a_slow_disk_slows_commits_down_not_memory_up() {
    let config = StoreConfig { deferred_batch_bytes: 64 << 10, deferred_bytes_max: 256 << 10, ..StoreConfig::default() };
    let (mut d, mut rng) = mounted(16 << 20, config);
    d.committed.clear();
    // Everything but the data device answers.
    for n in 0..500 {
        d.submit(write(&object(COLL, n), 0, vec![1; 4096])).unwrap();
        d.settle();
        for (id, kind) in d.disk.pending() {
            if kind == MemIo::KvFlush {
                let result = d.disk.complete(id);
                d.store.handle_io(types::Now::default(), id, result);
            }
        }
    }
    d.settle();
    assert!((64..80).contains(&d.committed.len()), "{}", d.committed.len());
    d.run(&mut rng);
    assert_eq!(d.committed.len(), 500);
}

#[test]
fn of_those_who_wait_for_a_slow_disk_the_longest_goes_first() {
    let config = StoreConfig { deferred_batch_bytes: 64 << 10, deferred_bytes_max: 64 << 10, ..StoreConfig::default() };
    let (mut d, mut rng) = mounted(16 << 20, config);
    let flush = |d: &mut Driver| {
        d.settle();
        for (id, kind) in d.disk.pending() {
            if kind == MemIo::KvFlush {
                d.complete(id);
            }
        }
        d.settle();
    };
    for n in 0..16 {
        d.submit(write(&object(COLL, n), 0, vec![1; 4096])).unwrap();
    }
    flush(&mut d);
    d.committed.clear();
    let mut other = Transaction::new(COLLS[1]);
    other.write(&object(COLLS[1], 0), 0, Bytes::from(vec![1; 4096]));
    let first = d.submit(other).unwrap();
    let later: Vec<_> = (16..20).map(|n| d.submit(write(&object(COLL, n), 0, vec![1; 4096])).unwrap()).collect();
    flush(&mut d);
    assert!(d.committed.is_empty());
    // Room for one.
    let (id, _) = *d.disk.pending().iter().find(|(_, kind)| matches!(kind, MemIo::Write(_))).unwrap();
    d.complete(id);
    flush(&mut d);
    assert!(d.committed.contains(&first));
    d.run(&mut rng);
    assert!(later.iter().all(|t| d.committed.contains(t)));
}

#[test]
fn a_collection_split_off_another_comes_after_what_the_other_did_to_its_objects() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    let whole = ShardPgId::whole(types::PgId { pool: types::PoolId(9), seed: 0 });
    let half = ShardPgId::whole(types::PgId { pool: types::PoolId(9), seed: 1 });
    let obj = |name: &str, hash| types::HObject { pool: types::PoolId(9), hash, name: name.into(), ..types::HObject::min() };
    let (stays, goes) = (obj("stays", 2), obj("goes", 3));
    let mut t = Transaction::new(whole);
    t.create_coll(0);
    d.commit(&mut rng, t);
    // Data that is on its way to the device, and no turn of it: nothing of this is in the database yet.
    let mut t = Transaction::new(whole);
    t.write(&stays, 0, Bytes::from(vec![1u8; 1 << 20]));
    t.write(&goes, 0, Bytes::from(vec![2u8; 1 << 20]));
    d.submit(t).unwrap();
    let mut t = Transaction::new(whole);
    t.set_coll_bits(1);
    t.on(half);
    t.create_coll(1);
    t.coll_set("k", "v");
    d.submit(t).unwrap();
    assert_eq!(d.store.list(half, &types::HObject::min(), &types::HObject::max(), 9).unwrap().0, std::slice::from_ref(&goes));
    assert_eq!(d.store.list(whole, &types::HObject::min(), &types::HObject::max(), 9).unwrap().0, std::slice::from_ref(&stays));
    assert_eq!(d.store.coll_get(half, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    let mut t = Transaction::new(half);
    t.set_attr(&goes, "a", "new");
    let last = d.submit(t).unwrap();
    d.run(&mut rng);
    assert!(d.committed.contains(&last));
    assert_eq!(d.fsck().errors, []);
    let mut d = Driver::mount(&d.disk, StoreConfig::default());
    assert_eq!(d.store.getattr(half, &goes, b"a").as_deref(), Ok(&b"new"[..]));
    assert_eq!((d.store.stat(half, &goes).unwrap().size, d.store.stat(whole, &stays).unwrap().size), (1 << 20, 1 << 20));
    // What is not a split is refused.
    let mut t = Transaction::new(whole);
    t.on(half);
    t.create_coll(1);
    assert_eq!(d.submit(t), Err(Errno::EEXIST));
    let mut t = Transaction::new(whole);
    t.on(ShardPgId::whole(types::PgId { pool: types::PoolId(9), seed: 2 }));
    t.coll_set("k", "v");
    assert_eq!(d.submit(t), Err(Errno::ENOENT));
}

#[test]
fn a_collection_that_takes_another_over_comes_after_what_that_did_to_its_objects() {
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    let coll = |seed| ShardPgId::whole(types::PgId { pool: types::PoolId(9), seed });
    let obj = |name: &str, hash| types::HObject { pool: types::PoolId(9), hash, name: name.into(), ..types::HObject::min() };
    let (whole, half, mine, theirs) = (coll(0), coll(1), obj("mine", 2), obj("theirs", 3));
    for coll in [whole, half] {
        let mut t = Transaction::new(coll);
        t.create_coll(1);
        t.coll_set("k", format!("{coll}"));
        d.commit(&mut rng, t);
    }
    // Data that is on its way to the device, and no turn of it: nothing of this is in the database yet.
    for (coll, obj) in [(half, &theirs), (whole, &mine)] {
        let mut t = Transaction::new(coll);
        t.write(obj, 0, Bytes::from(vec![1u8; 1 << 20]));
        d.submit(t).unwrap();
    }
    let mut t = Transaction::new(whole);
    t.set_coll_bits(0);
    t.merge_coll(half);
    d.submit(t).unwrap();
    let all = |d: &mut Driver| d.store.list(whole, &types::HObject::min(), &types::HObject::max(), 9).unwrap().0;
    assert_eq!(all(&mut d), [mine.clone(), theirs.clone()]);
    let mut t = Transaction::new(whole);
    t.set_attr(&theirs, "a", "new");
    let last = d.submit(t).unwrap();
    // Its name may come again, for another part of what it was merged into.
    let mut t = Transaction::new(whole);
    t.set_coll_bits(1);
    t.on(half);
    t.create_coll(1);
    d.submit(t).unwrap();
    assert_eq!(d.store.coll_get(half, b"k").unwrap(), None);
    let mut t = Transaction::new(half);
    t.set_attr(&theirs, "b", "newer");
    d.submit(t).unwrap();
    let mut t = Transaction::new(whole);
    t.set_coll_bits(0);
    t.merge_coll(half);
    d.submit(t).unwrap();
    d.run(&mut rng);
    assert!(d.committed.contains(&last));
    assert_eq!(d.fsck().errors, []);
    let mut d = Driver::mount(&d.disk, StoreConfig::default());
    assert_eq!(d.store.collections().into_iter().filter(|(c, _)| c.pg.pool.0 == 9).collect::<Vec<_>>(), [(whole, 0)]);
    assert_eq!(all(&mut d), [mine.clone(), theirs.clone()]);
    assert_eq!(d.store.getattr(whole, &theirs, b"a").as_deref(), Ok(&b"new"[..]));
    assert_eq!(d.store.getattr(whole, &theirs, b"b").as_deref(), Ok(&b"newer"[..]));
    assert_eq!((d.store.stat(whole, &theirs).unwrap().size, d.store.stat(whole, &mine).unwrap().size), (1 << 20, 1 << 20));
    assert_eq!(d.store.coll_get(whole, b"k").unwrap().as_deref(), Some(format!("{whole}").as_bytes()));
    // What is not there cannot be taken over, nor a collection by itself.
    for (from, errno) in [(half, Errno::ENOENT), (whole, Errno::EINVAL)] {
        let mut t = Transaction::new(whole);
        t.merge_coll(from);
        assert_eq!(d.submit(t), Err(errno));
    }
}

#[test]
fn a_batch_of_which_nothing_is_left_to_be_written_does_not_hold_up_the_next() {
    let (mut d, _) = mounted(16 << 20, StoreConfig { deferred_batch_bytes: 1, ..StoreConfig::default() });
    let log_only = |d: &mut Driver| {
        d.settle();
        while let Some((id, _)) = d.disk.pending().into_iter().find(|(_, io)| *io == MemIo::KvFlush) {
            d.complete(id);
            d.settle();
        }
    };
    // The first is on its way to its place; the second goes while it waits, before the third.
    for n in 1..=3 {
        d.submit(write(&object(COLL, n), 0, vec![n as u8; 4096])).unwrap();
        log_only(&mut d);
        if n == 2 {
            let mut t = Transaction::new(COLL);
            t.remove(&object(COLL, n));
            d.submit(t).unwrap();
            log_only(&mut d);
        }
    }
    for wanted in [MemIo::Write(4096), MemIo::DevFlush] {
        let [(id, io)] = d.disk.pending()[..] else { panic!("{:?}", d.disk.pending()) };
        assert_eq!(io, wanted);
        d.complete(id);
        d.settle();
    }
    assert!(d.disk.pending().iter().any(|(_, io)| *io == MemIo::Write(4096)), "{:?}", d.disk.pending());
}

#[test]
fn who_reads_on_finds_what_lies_behind_in_memory_and_nobody_else_waits_for_it() {
    let config = StoreConfig { readahead_bytes: 32 << 10, page_cached_bytes_max: 0, ..StoreConfig::default() };
    let (mut d, mut rng) = mounted(16 << 20, config.clone());
    let obj = object(COLL, 1);
    let data: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
    d.commit(&mut rng, write(&obj, 0, data.clone()));
    let mut d = Driver::mount(&d.disk, config.clone());
    let mut read = |d: &mut Driver, off: usize| {
        let id = d.start_read(COLL, &obj, off as u64, 4096, ReadFlags::default());
        d.settle();
        let asked: Vec<MemIo> = d.disk.pending().into_iter().map(|(_, io)| io).collect();
        d.run(&mut rng);
        (asked, d.reads.remove(&id).unwrap().map(|r| r.data.contiguous() == data[off..off + 4096]))
    };
    // Here and there: what was asked for.
    for off in [81_920, 20_480] {
        assert_eq!(read(&mut d, off), (vec![MemIo::Read(4096)], Ok(true)));
    }
    // From the front, and on: as far as something is known already, or as far as it may.
    for block in 0..24 {
        let expected = match block {
            0 => vec![MemIo::Read(4096)],
            1 => vec![MemIo::Read(16 << 10)],
            15 => vec![MemIo::Read(20 << 10)],
            6 | 21 => vec![MemIo::Read(36 << 10)],
            _ => vec![],
        };
        assert_eq!(read(&mut d, block * 4096), (expected, Ok(true)), "{block}");
    }
    // A block that is bad fails who asks for it.
    let mut d = Driver::mount(&d.disk, config);
    let pages: Vec<u64> = d.disk.pages_in_use().into_iter().filter(|p| *p > 0).collect();
    d.disk.rot(pages[3], 5);
    assert_eq!(read(&mut d, 0).1, Ok(true));
    assert_eq!(read(&mut d, 3 * 4096).1, Err(Errno::EIO));
}
