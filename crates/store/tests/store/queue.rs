//! Who is next at the device.

use crate::harness::*;
use qos::{Class, Share};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use store::*;
use types::ShardPgId;

const COLL: ShardPgId = COLLS[0];
const MS: u64 = 1_000_000;

/// A store with so many objects of a block each, on the device and nowhere else.
fn filled(objects: u32) -> (Driver, ChaCha8Rng) {
    filled_with(objects, StoreConfig::default())
}

fn filled_with(objects: u32, config: StoreConfig) -> (Driver, ChaCha8Rng) {
    let (mut d, mut rng) = mounted(64 << 20, StoreConfig { data_cache_bytes: 0, joined_read_bytes: 0, ..config });
    for n in 0..objects {
        d.commit(&mut rng, write(&object(COLL, n), 0, vec![n as u8; 4096]));
    }
    d.store.write_deferred();
    d.run(&mut rng);
    (d, rng)
}

fn read(d: &mut Driver, n: u32, class: Class) -> ReadId {
    d.start_read(COLL, &object(COLL, n), 0, 4096, ReadFlags { bypass: true, class, ..ReadFlags::default() })
}

/// Completes I/Os one after the other, each taking `each` nanoseconds, as the device has been given them, until nothing is left; the order in which
/// reads were answered.
fn answers(d: &mut Driver, each: u64, most: usize) -> Vec<ReadId> {
    let mut order = Vec::new();
    loop {
        d.settle();
        while let Some((id, result)) = d.reads.pop_first() {
            assert!(result.is_ok());
            order.push(id);
        }
        assert!(d.disk.pending().len() <= most, "{} at the device", d.disk.pending().len());
        let Some((io, _)) = d.disk.pending().first().copied() else {
            let Some(at) = d.store.next_timeout() else { return order };
            d.now.mono = at;
            d.store.handle_timeout(d.now);
            continue;
        };
        d.now.mono.0 += each;
        d.complete(io);
    }
}

/// Lets the store see what the device can do: a block in a millisecond.
fn learn(d: &mut Driver, rng: &mut ChaCha8Rng) {
    for n in 0..3000 {
        d.store.handle_timeout(d.now);
        // Several at a time, or it would not be known whether it could do more.
        for i in 0..if n == 0 { 8 } else { 1 } {
            read(d, (n + i) % 400, Class::Client);
        }
        d.settle();
        d.reads.clear();
        d.now.mono.0 += MS;
        let io = d.disk.pending()[0].0;
        d.complete(io);
    }
    d.run(rng);
    d.reads.clear();
}

#[test]
fn a_client_does_not_wait_for_all_that_recovery_wants() {
    let (mut d, _) = filled(200);
    d.now.mono.0 = 1000 * MS;
    let recovery: Vec<ReadId> = (0..200).map(|n| read(&mut d, n, Class::Recovery)).collect();
    d.settle();
    let client = read(&mut d, 7, Class::Client);
    let order = answers(&mut d, MS, 32);
    assert_eq!(order.len(), 201);
    let place = order.iter().position(|id| *id == client).unwrap();
    assert!(place <= 34, "{place} were answered before it");
    assert_eq!(order.into_iter().filter(|id| *id != client).collect::<Vec<_>>(), recovery);
}

#[test]
fn shares_are_of_the_device_s_time() {
    let (mut d, mut rng) = filled(400);
    d.now.mono.0 = 1000 * MS;
    learn(&mut d, &mut rng);
    assert!(d.store.device().is_learned());
    let each = d.store.device().per_second(qos::Io::Read, 4096);
    assert!(each > 900.0 && each < 1100.0, "{each}");
    d.store.set_share(d.now, Class::Client, Share { reservation: 0, weight: 3, limit: None });
    d.store.set_share(d.now, Class::Recovery, Share { reservation: 0, weight: 1, limit: None });
    d.store.set_share(d.now, Class::BestEffort, Share { reservation: 0, weight: 1, limit: Some(100) });
    let classes = [Class::Client, Class::Recovery, Class::BestEffort];
    let mut of = BTreeMap::new();
    for n in 0..390 {
        for class in classes {
            of.insert(read(&mut d, n, class), class);
        }
    }
    let begin = d.now.mono;
    let order = answers(&mut d, MS, 4);
    let first = |n: usize, class| order[..n].iter().filter(|id| of[id] == class).count();
    let counts = classes.map(|class| first(400, class));
    // A tenth is the most for the last, and three quarters of the rest the first's. It may have begun with what 50 ms of its limit are worth.
    assert!((255..=285).contains(&counts[0]) && (80..=100).contains(&counts[1]) && (38..=52).contains(&counts[2]), "{counts:?}");
    // When nobody else wants anything, the limit holds all the same.
    assert_eq!(order.len(), 3 * 390);
    let took = (d.now.mono - begin).as_millis();
    assert!((3600..4200).contains(&took), "{took} ms");
}

#[test]
fn a_limit_leaves_no_quick_device_idle_that_is_taken_for_a_slow_one() {
    let (mut d, _) = filled(400);
    d.now.mono.0 = 1000 * MS;
    d.store.set_share(d.now, Class::BestEffort, Share { reservation: 0, weight: 1, limit: Some(900) });
    let begin = d.now.mono;
    // One at a time, as a scrub reads: nothing shows that the device could do more than it is asked for.
    for n in 0..20_000 {
        read(&mut d, n % 400, Class::BestEffort);
        answers(&mut d, 50_000, 1);
    }
    let took = (d.now.mono - begin).as_millis();
    assert!((1000..3000).contains(&took), "{took} ms");
}

#[test]
fn deferred_writes_wait_for_an_idle_device_while_the_log_has_room() {
    // 100 blocks wait for their places, and sixteen reads are always wanted: writes that were done with the first 64 reads, and in the end.
    let beside_reads = |deferred_bytes_max| {
        let (mut d, mut rng) = filled_with(400, StoreConfig { deferred_window_bytes: 128 << 10, deferred_bytes_max, ..StoreConfig::default() });
        d.now.mono.0 = 1000 * MS;
        learn(&mut d, &mut rng);
        for n in (0..400).step_by(4) {
            d.commit(&mut rng, write(&object(COLL, n), 0, vec![!n as u8; 4096]));
        }
        let mut wanted = (1..400).step_by(4);
        for n in wanted.by_ref().take(16) {
            read(&mut d, n, Class::Recovery);
        }
        d.store.write_deferred();
        let (mut writes, mut beside, mut answered) = (0, 0, 0);
        loop {
            d.settle();
            let done = std::mem::take(&mut d.reads).len();
            answered += done;
            for n in wanted.by_ref().take(done) {
                read(&mut d, n, Class::Recovery);
            }
            d.settle();
            let Some((io, kind)) = d.disk.pending().first().copied() else { return (beside, writes) };
            writes += u32::from(matches!(kind, store::mem::MemIo::Write(_)));
            if answered <= 64 {
                beside = writes;
            }
            d.now.mono.0 += MS;
            d.complete(io);
        }
    };
    assert_eq!(beside_reads(500 << 10), (0, 100));
    let (beside, writes) = beside_reads(420 << 10);
    assert!(beside >= 20 && writes == 100, "{beside} of {writes} writes beside the reads where there is hardly any room");
}

#[test]
fn reads_that_lie_near_each_other_are_one() {
    let (mut d, mut rng) = mounted(64 << 20, StoreConfig { data_cache_bytes: 0, ..StoreConfig::default() });
    let all: Vec<u32> = (0..64).collect();
    for n in &all {
        d.commit(&mut rng, write(&object(COLL, *n), 0, vec![*n as u8; 4096]));
    }
    d.store.write_deferred();
    d.run(&mut rng);
    d.now.mono.0 = 1000 * MS;
    let ids: BTreeMap<ReadId, u32> = all.iter().map(|n| (read(&mut d, *n, Class::Recovery), *n)).collect();
    read(&mut d, 64, Class::BestEffort);
    d.settle();
    let reads = d.disk.pending().iter().filter(|(_, kind)| matches!(kind, store::mem::MemIo::Read(_))).count();
    assert!(reads <= 2, "{reads} reads of one run of blocks");
    assert_eq!(d.store.device_use().ios[Class::Recovery as usize], 1);
    d.run(&mut rng);
    for (id, n) in ids {
        assert_eq!(d.reads.remove(&id).unwrap().unwrap().data.contiguous(), vec![n as u8; 4096]);
    }
}

#[test]
fn a_neighbour_that_cannot_be_read_is_nobody_else_s_trouble() {
    let (mut d, mut rng) = mounted(64 << 20, StoreConfig { data_cache_bytes: 0, retry_disk_reads: 0, ..StoreConfig::default() });
    for n in 0..8 {
        d.commit(&mut rng, write(&object(COLL, n), 0, vec![n as u8; 4096]));
    }
    d.store.write_deferred();
    d.run(&mut rng);
    let ids: Vec<ReadId> = (0..8).map(|n| read(&mut d, n, Class::Client)).collect();
    d.settle();
    d.disk.fail_next(store::mem::MemIo::Read(0), types::Errno::EIO, 1);
    d.run(&mut rng);
    // The device's one error was of all of them together; each by itself is fine.
    assert!(ids.iter().all(|id| d.reads[id].is_ok()) && d.poisoned.is_none());
}
