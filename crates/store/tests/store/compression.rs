//! Compressed runs, and checksums of other types: room, content, damage.

use crate::harness::*;
use bytes::Bytes;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use store::mem::MemIo;
use store::*;
use types::{Errno, HObject, ShardPgId};

const COLL: ShardPgId = COLLS[0];

fn compressing(algorithm: Algorithm, run: u32) -> StoreConfig {
    let compression = Compression { mode: CompressionMode::Force, algorithm, min_blob_size: run, ..Compression::default() };
    StoreConfig { policy: Policy { compression, ..Policy::default() }, data_cache_bytes: 0, ..StoreConfig::default() }
}

fn checking(csum: Csum) -> StoreConfig {
    StoreConfig { policy: Policy { csum, ..Policy::default() }, data_cache_bytes: 0, ..StoreConfig::default() }
}

/// Every block shrinks to about a sixth, and is like no other.
fn text(n: usize) -> Vec<u8> {
    (0..n).map(|i| ((i / 4096) as u8).wrapping_mul(7) ^ ((i / 97) % 13) as u8).collect()
}

fn noise(rng: &mut ChaCha8Rng, n: usize) -> Vec<u8> {
    let mut v = vec![0; n];
    rng.fill(&mut v[..]);
    v
}

fn write_back(d: &mut Driver, rng: &mut ChaCha8Rng) {
    for _ in 0..2 {
        d.store.write_deferred();
        d.run(rng);
    }
}

fn rot(d: &Driver) {
    d.disk.pages_in_use().into_iter().filter(|p| *p > 0).for_each(|p| d.disk.flip_bit(p * 4096 + 30, 3));
}

fn read(d: &mut Driver, rng: &mut ChaCha8Rng, obj: &HObject, off: usize, len: usize) -> Result<Bytes, Errno> {
    d.read(rng, COLL, obj, off as u64, len as u64, ReadFlags::default()).map(|r| r.data.contiguous())
}

fn remove(obj: &HObject) -> Transaction {
    let mut t = Transaction::new(COLL);
    t.remove(obj);
    t
}

#[test]
fn what_is_compressed_takes_less_room_and_reads_back_in_parts_and_after_a_restart() {
    for algorithm in Algorithm::ALL {
        for run in [8 << 10, 64 << 10] {
            let config = compressing(algorithm, run);
            let (mut d, mut rng) = mounted(64 << 20, config.clone());
            let (large, small) = (object(COLL, 1), object(COLL, 2));
            let data = text(1_007_000);
            d.commit(&mut rng, write(&large, 0, data.clone()));
            d.commit(&mut rng, write(&small, 0, data[..22_000].to_vec()));
            let blocks = |bytes: usize| bytes.next_multiple_of(4096) as u64;
            let fs = d.store.statfs();
            assert_eq!((fs.stored, fs.compressed.original), (1_029_000, blocks(1_007_000) + blocks(22_000)));
            assert!(fs.allocated * 19 / 10 < fs.stored && fs.compressed.allocated == fs.allocated, "{algorithm:?} {run}: {fs:?}");
            assert!(fs.compressed.stored < fs.compressed.allocated);
            assert_eq!(d.store.compressed()[&COLL.pg.pool], fs.compressed);
            for _ in 0..2 {
                assert_eq!(read(&mut d, &mut rng, &large, 0, 2_000_000).unwrap(), data);
                for (off, len) in [(0, 1), (4095, 2), (65_536, 4096), (70_001, 100_000), (1_006_999, 5)] {
                    assert_eq!(read(&mut d, &mut rng, &large, off, len).unwrap(), data[off..(off + len).min(1_007_000)]);
                }
                write_back(&mut d, &mut rng);
                let report = d.fsck();
                assert_eq!((report.errors.len(), report.packed_blocks * 4096), (0, fs.allocated));
                d = Driver::mount(&d.disk, config.clone());
                assert_eq!((d.store.statfs().compressed, d.store.statfs().allocated), (fs.compressed, fs.allocated));
            }
            d.commit(&mut rng, remove(&large));
            d.commit(&mut rng, remove(&small));
            write_back(&mut d, &mut rng);
            assert_eq!((d.store.statfs().allocated, d.store.statfs().compressed), (0, Compressed::default()));
        }
    }
}

#[test]
fn what_is_compressed_is_written_at_once() {
    let (mut d, mut rng) = mounted(16 << 20, compressing(Algorithm::Lz4, 8 << 10));
    d.submit(write(&object(COLL, 1), 0, text(1 << 20))).unwrap();
    d.settle();
    let kinds: Vec<MemIo> = d.disk.pending().into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds, [MemIo::Write(512 << 10)]);
    d.run(&mut rng);
    // Little goes through the log, as ever: one flush.
    d.submit(write(&object(COLL, 2), 0, text(16 << 10))).unwrap();
    d.settle();
    let kinds: Vec<MemIo> = d.disk.pending().into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds, [MemIo::KvFlush]);
}

#[test]
fn hints_decide_in_the_modes_between_and_noise_stays_as_it_is() {
    let (mut d, mut rng) = mounted(64 << 20, StoreConfig::default());
    let flags = [(CompressionMode::Passive, AllocHint::COMPRESSIBLE), (CompressionMode::Aggressive, AllocHint::INCOMPRESSIBLE)];
    for (n, (mode, flag)) in flags.into_iter().enumerate() {
        let compression = Compression { mode, ..Compression::default() };
        d.store.set_policies(Policy::default(), [(COLL.pg.pool, Policy { compression, ..Policy::default() })].into());
        for hinted in [false, true] {
            let obj = object(COLL, (n * 2) as u32 + u32::from(hinted));
            let mut t = Transaction::new(COLL);
            t.set_alloc_hint(&obj, AllocHint { flags: if hinted { flag } else { 0 }, ..AllocHint::default() });
            t.write(&obj, 0, Bytes::from(text(100_000)));
            let before = d.store.statfs().compressed.original;
            d.commit(&mut rng, t);
            let compressed = d.store.statfs().compressed.original > before;
            assert_eq!(compressed, hinted == (mode == CompressionMode::Passive), "{mode:?} {hinted}");
        }
    }
    d.store.set_policies(compressing(Algorithm::Zstd, 64 << 10).policy, [].into());
    let before = d.store.statfs();
    let data = noise(&mut rng, 300_000);
    d.commit(&mut rng, write(&object(COLL, 9), 0, data.clone()));
    assert_eq!(d.store.statfs().compressed, before.compressed);
    assert_eq!(read(&mut d, &mut rng, &object(COLL, 9), 0, 300_000).unwrap(), data);
}

#[test]
fn objects_written_in_small_parts_never_take_more_room_than_without_compression() {
    for run in [8 << 10, 32 << 10, 256 << 10] {
        let (mut d, mut rng) = mounted(16 << 20, compressing(Algorithm::Zlib, run));
        let obj = object(COLL, 1);
        let mut data = text(1 << 20);
        d.commit(&mut rng, write(&obj, 0, data.clone()));
        let mut deferred = 0;
        for n in 0..600 {
            let len = *[100, 4096, 5000].get(n % 3).unwrap();
            let off = rng.random_range(0..data.len() - len);
            let new = noise(&mut rng, len);
            data[off..off + len].copy_from_slice(&new);
            d.commit(&mut rng, write(&obj, off as u64, new));
            if n % 20 == 0 {
                write_back(&mut d, &mut rng);
                assert!(d.store.statfs().allocated <= 1 << 20, "{run} {n}: {:?}", d.store.statfs());
                assert_eq!(read(&mut d, &mut rng, &obj, 0, 1 << 20).unwrap(), data);
                deferred += 1;
            }
        }
        assert!(deferred > 0);
        assert_eq!(d.fsck().errors, []);
        // Written over as a whole, nothing is compressed any more.
        let all = noise(&mut rng, 1 << 20);
        d.commit(&mut rng, write(&obj, 0, all.clone()));
        write_back(&mut d, &mut rng);
        assert_eq!((d.store.statfs().allocated, d.store.statfs().compressed), (1 << 20, Compressed::default()));
        assert_eq!(read(&mut d, &mut rng, &obj, 0, 1 << 20).unwrap(), all);
    }
}

#[test]
fn a_run_of_which_little_is_left_is_read_once_and_written_by_itself() {
    let (mut d, mut rng) = mounted(16 << 20, compressing(Algorithm::Snappy, 64 << 10));
    let obj = object(COLL, 1);
    // Sixteen blocks in nine or so: half of it is noise.
    let data = [noise(&mut rng, 32 << 10), text(32 << 10)].concat();
    d.commit(&mut rng, write(&obj, 0, data.clone()));
    write_back(&mut d, &mut rng);
    let taken = d.store.statfs().compressed.allocated / 4096;
    assert!((8..12).contains(&taken), "{taken}");
    for n in 0..16 - taken {
        d.commit(&mut rng, write(&obj, n * 4096, vec![1; 4096]));
    }
    assert_eq!(d.store.statfs().compressed.allocated / 4096, taken, "what is left takes as much as it would by itself");
    write_back(&mut d, &mut rng);
    d.submit(write(&obj, (16 - taken) * 4096, vec![1; 4096])).unwrap();
    d.settle();
    let read_bytes: usize = d.disk.pending().iter().map(|(_, io)| if let MemIo::Read(n) = io { *n } else { 0 }).sum();
    assert_eq!(read_bytes as u64, taken * 4096, "once for all");
    d.run(&mut rng);
    write_back(&mut d, &mut rng);
    assert_eq!((d.store.statfs().compressed, d.store.statfs().allocated), (Compressed::default(), 64 << 10));
    let start = (16 - taken + 1) as usize * 4096;
    assert_eq!(read(&mut d, &mut rng, &obj, start, 1 << 20).unwrap(), data[start..]);
}

#[test]
fn clones_share_compressed_runs_and_outlive_each_other() {
    let config = compressing(Algorithm::Lz4, 32 << 10);
    let (mut d, mut rng) = mounted(16 << 20, config.clone());
    let [obj, clone, piece] = [1, 2, 3].map(|n| object(COLL, n));
    let data = text(600_000);
    d.commit(&mut rng, write(&obj, 0, data.clone()));
    let before = d.store.statfs();
    let mut t = Transaction::new(COLL);
    t.clone_obj(&obj, &clone);
    // Across the ends of runs and of a segment, elsewhere than it was.
    t.clone_range(&obj, &piece, 12_288, 290_816, 65_536);
    d.commit(&mut rng, t);
    let after = d.store.statfs();
    assert_eq!((after.allocated, after.compressed.allocated, after.compressed.stored), (before.allocated, before.compressed.allocated, before.compressed.stored));
    assert_eq!(after.compressed.original, 2 * before.compressed.original + 290_816);
    d.commit(&mut rng, write(&obj, 0, vec![9; 300_000]));
    d.commit(&mut rng, write(&clone, 599_000, vec![8; 5000]));
    let mut d = Driver::mount(&d.disk, config);
    let cloned = [&data[..599_000], &[8; 5000]].concat();
    assert_eq!(d.read_all(&mut rng, COLL, &clone).unwrap(), cloned);
    assert_eq!(read(&mut d, &mut rng, &piece, 65_536, 400_000).unwrap(), data[12_288..303_104]);
    d.commit(&mut rng, remove(&clone));
    d.commit(&mut rng, remove(&obj));
    assert_eq!(read(&mut d, &mut rng, &piece, 65_536, 400_000).unwrap(), data[12_288..303_104]);
    assert_eq!(d.fsck().errors, []);
    d.commit(&mut rng, remove(&piece));
    write_back(&mut d, &mut rng);
    assert_eq!((d.store.statfs().allocated, d.store.compressed().len()), (0, 0));
}

#[test]
fn a_flipped_bit_in_a_compressed_run_is_an_error_and_news_and_stays_one_when_part_of_it_is_written() {
    for algorithm in Algorithm::ALL {
        let config = compressing(algorithm, 64 << 10);
        let (mut d, mut rng) = mounted(16 << 20, config.clone());
        let obj = object(COLL, 1);
        d.commit(&mut rng, write(&obj, 0, text(256 << 10)));
        write_back(&mut d, &mut rng);
        rot(&d);
        assert_eq!(read(&mut d, &mut rng, &obj, 70_000, 10), Err(Errno::EIO));
        assert!(d.checksum_errors > 0);
        assert!(d.fsck().errors.iter().all(|e| matches!(e, FsckError::Checksum { .. })) && !d.fsck().errors.is_empty());
        d.checksum_errors = 0;
        d.commit(&mut rng, write(&obj, 10, vec![8; 100]));
        assert!(d.checksum_errors > 0);
        let mut d = Driver::mount(&d.disk, config);
        for (off, len) in [(0, 4096), (200, 10), (4096, 4096)] {
            assert_eq!(read(&mut d, &mut rng, &obj, off, len), Err(Errno::EIO), "{off}");
        }
        d.commit(&mut rng, write(&obj, 0, vec![9; 256 << 10]));
        assert_eq!(read(&mut d, &mut rng, &obj, 0, 1 << 20).unwrap(), vec![9; 256 << 10]);
    }
}

#[test]
fn digests_of_what_is_compressed_or_checked_otherwise_are_of_its_bytes() {
    for config in [compressing(Algorithm::Zstd, 16 << 10), checking(Csum::Xxhash64), checking(Csum::None), checking(Csum::Crc32c8)] {
        let (mut d, mut rng) = mounted(16 << 20, config);
        let obj = object(COLL, 1);
        let data = text(300_000);
        d.commit(&mut rng, write(&obj, 0, data.clone()));
        write_back(&mut d, &mut rng);
        for trust in [None, Some(Trust { now: d.now.mono, age_s: 1000 })] {
            let flags = ReadFlags { digest: true, bypass: true, trust, ..ReadFlags::default() };
            for (off, len) in [(0, 400_000), (8192, 40_960)] {
                let digest = d.read(&mut rng, COLL, &obj, off, len, flags).unwrap().digest;
                let end = data.len().min((off + len) as usize);
                assert_eq!((digest.crc, digest.trusted), (denc::crc32c(&data[off as usize..end]), 0));
                assert!(digest.read > 0);
            }
        }
    }
}

#[test]
fn every_type_finds_a_flipped_bit_but_none_and_data_keeps_the_type_it_was_written_with() {
    let (mut d, mut rng) = mounted(64 << 20, StoreConfig { data_cache_bytes: 0, ..StoreConfig::default() });
    for (n, csum) in Csum::ALL.into_iter().enumerate() {
        d.store.set_policies(Policy { csum, ..Policy::default() }, [].into());
        d.commit(&mut rng, write(&object(COLL, n as u32), 0, text(100_000)));
    }
    let config = StoreConfig { data_cache_bytes: 0, ..StoreConfig::default() };
    let mut d = Driver::mount(&d.disk, config.clone());
    // Part of a block is written: it is the new type's then, and the others are what they were.
    for n in 0..Csum::ALL.len() {
        d.commit(&mut rng, write(&object(COLL, n as u32), 5000, vec![9; 10]));
        let data = [&text(100_000)[..5000], &[9; 10], &text(100_000)[5010..]].concat();
        assert_eq!(d.read_all(&mut rng, COLL, &object(COLL, n as u32)).unwrap(), data);
    }
    write_back(&mut d, &mut rng);
    assert_eq!(d.fsck().errors, []);
    rot(&d);
    let mut d = Driver::mount(&d.disk, config);
    for (n, csum) in Csum::ALL.into_iter().enumerate() {
        let obj = object(COLL, n as u32);
        let found = read(&mut d, &mut rng, &obj, 8192, 4096);
        assert_eq!(found.is_err(), csum != Csum::None, "{csum:?}");
        assert_eq!(read(&mut d, &mut rng, &obj, 4096, 4096), Err(Errno::EIO), "{csum:?}");
    }
}

/// Nothing tells that what a late read brings is another object's: it has to be read again.
#[test]
fn without_checksums_a_block_that_was_given_away_while_it_was_read_is_not_served() {
    let mut config = checking(Csum::None);
    config.prefer_deferred_size = 0;
    let (mut d, mut rng) = mounted(8 << 20, config);
    let obj = object(COLL, 1);
    d.commit(&mut rng, write(&obj, 0, vec![7; 1 << 20]));
    let id = d.start_read(COLL, &obj, 0, 4096, ReadFlags::default());
    d.settle();
    let [(late, MemIo::Read(4096))] = d.disk.pending()[..] else { panic!("one read is under way") };
    // Written elsewhere; and its old place is given to others.
    let complete_others = |d: &mut Driver| {
        loop {
            d.settle();
            let Some((io, _)) = d.disk.pending().into_iter().find(|(io, _)| *io != late) else { return };
            d.complete(io);
        }
    };
    d.submit(write(&obj, 0, vec![8; 1 << 20])).unwrap();
    complete_others(&mut d);
    for n in 2..8 {
        d.submit(write(&object(COLL, n), 0, vec![n as u8 + 100; 1 << 20])).unwrap();
        complete_others(&mut d);
    }
    d.complete(late);
    d.run(&mut rng);
    assert_eq!(d.reads[&id].as_ref().unwrap().data.contiguous(), vec![8; 4096]);
}

#[test]
fn a_store_is_of_the_old_format_until_it_has_what_that_cannot_say() {
    let format = |d: &Driver| d.disk.kv().get(b"Ssuper").unwrap().unwrap()[6];
    let (mut d, mut rng) = mounted(16 << 20, StoreConfig::default());
    d.commit(&mut rng, write(&object(COLL, 1), 0, text(100_000)));
    assert_eq!(format(&d), 1);
    d.store.set_policies(compressing(Algorithm::Zstd, 8 << 10).policy, [].into());
    let random = noise(&mut rng, 8192);
    d.commit(&mut rng, write(&object(COLL, 2), 0, random));
    assert_eq!(format(&d), 1, "nothing was worth it");
    d.commit(&mut rng, write(&object(COLL, 2), 0, text(100_000)));
    assert_eq!(format(&d), 2);
    let mut d = Driver::mount(&d.disk, StoreConfig::default());
    assert_eq!(read(&mut d, &mut rng, &object(COLL, 2), 0, 100_000).unwrap(), text(100_000));
    // Who says that it is older is wrong.
    let mut old = d.disk.kv().get(b"Ssuper").unwrap().unwrap().to_vec();
    old[6] = 1;
    let mut batch = KvBatch::default();
    batch.put(&b"Ssuper"[..], old);
    d.disk.kv().apply(batch).unwrap();
    assert!(d.fsck().errors.iter().any(|e| matches!(e, FsckError::Format(_))));
}
