//! Data that is brought to its place before its transaction.

use crate::harness::*;
use qos::Class;
use store::mem::MemIo;
use store::*;
use types::ShardPgId;

const COLL: ShardPgId = COLLS[0];

fn place(d: &mut Driver, data: &[u8]) -> PlaceId {
    let id = PlaceId(1 << 40);
    assert!(d.store.place(d.now, id, Class::Recovery, COLL.pg.pool, vec![bytes::Bytes::copy_from_slice(data).into()]));
    id
}

#[test]
fn who_writes_behind_it_does_not_wait_for_the_device() {
    let (mut d, mut rng) = mounted(64 << 20, StoreConfig::default());
    let data = vec![7; 20_000];
    let id = place(&mut d, &data);
    let client = d.submit(write(&object(COLL, 1), 0, vec![1; 4096])).unwrap();
    d.settle();
    // Nothing but the log is quick.
    while let Some((io, _)) = d.disk.pending().into_iter().find(|(_, kind)| *kind == MemIo::KvFlush) {
        d.complete(io);
        d.settle();
    }
    assert!(d.committed.contains(&client) && !d.placed.contains_key(&id));
    d.run(&mut rng);
    let placed = d.placed.remove(&id).unwrap();
    let t = write(&object(COLL, 2), 0, data.clone());
    d.store.submit_bulk(d.now, TxcId(1 << 41), t, Bulk { class: Class::Recovery, placed: vec![placed] }).unwrap();
    d.settle();
    // The device has what it needs.
    assert_eq!(d.disk.pending().iter().filter(|(_, kind)| matches!(kind, MemIo::Write(_) | MemIo::DevFlush)).count(), 0);
    d.run(&mut rng);
    assert!(d.committed.contains(&TxcId(1 << 41)));
    assert_eq!(d.read_all(&mut rng, COLL, &object(COLL, 2)).unwrap(), data);
    assert_eq!(d.fsck().errors, []);
}

#[test]
fn what_was_placed_is_free_again_after_a_crash_or_when_given_back() {
    let (mut d, mut rng) = mounted(64 << 20, StoreConfig::default());
    let free = d.store.statfs().available;
    let id = place(&mut d, &[9; 100_000]);
    d.run(&mut rng);
    assert_eq!(free - d.store.statfs().available, 25 * 4096);
    let placed = d.placed.remove(&id).unwrap();
    d.store.give_back(placed);
    assert_eq!(d.store.statfs().available, free);
    place(&mut d, &[9; 100_000]);
    d.run(&mut rng);
    d.disk.crash(&mut rng);
    let d = Driver::mount(&d.disk, StoreConfig::default());
    assert_eq!(d.store.statfs().available, free);
}

#[test]
fn there_is_none_where_there_is_no_room() {
    let (mut d, _) = mounted(64 << 20, StoreConfig::default());
    let much: Vec<_> = (0..64).map(|_| bytes::Bytes::from(vec![0; 1 << 20]).into()).collect();
    assert!(!d.store.place(d.now, PlaceId(1), Class::Recovery, COLL.pg.pool, much));
    assert!(!d.store.place(d.now, PlaceId(1), Class::Recovery, COLL.pg.pool, vec![]));
    d.settle();
    assert!(d.disk.pending().is_empty() && d.store.is_idle());
}

#[test]
fn there_is_none_where_data_is_to_be_compressed() {
    let (mut d, mut rng) = mounted(64 << 20, StoreConfig::default());
    let id = place(&mut d, &[9; 100_000]);
    d.run(&mut rng);
    let packs = Policy { compression: Compression { mode: CompressionMode::Force, ..Compression::default() }, ..Policy::default() };
    d.store.set_policies(packs, [].into());
    assert!(!d.store.place(d.now, PlaceId(2), Class::Recovery, COLL.pg.pool, vec![bytes::Bytes::from(vec![9; 100_000]).into()]));
    // What is there already stays as it is.
    let placed = vec![d.placed.remove(&id).unwrap()];
    d.store.submit_bulk(d.now, TxcId(1 << 41), write(&object(COLL, 2), 0, vec![9; 100_000]), Bulk { class: Class::Recovery, placed }).unwrap();
    d.run(&mut rng);
    assert_eq!(d.store.statfs().compressed.original, 0);
    assert_eq!(d.read_all(&mut rng, COLL, &object(COLL, 2)).unwrap(), vec![9; 100_000]);
    assert_eq!(d.fsck().errors, []);
}
