//! Maps and messages as strangers may send them, and what is computed from them at once.

use bytes::Bytes;
use crush::CrushMap;
use denc::{Decode, Encode, to_bytes};
use types::map::{FsMap, FsMapUser, MdsMap, MgrMap, MonMap, OsdMap, OsdMapIncremental};
use types::msg::{MOsdOp, Message, RawMessage, WireMessage};
use types::{ObjectLocator, features};

fn decode<T: Decode>(data: &[u8]) -> Option<T> {
    denc::from_bytes(&Bytes::copy_from_slice(data)).ok()
}

fn seed<T: Encode>(value: &T) -> Vec<u8> {
    to_bytes(value, features::SUPPORTED).to_vec()
}

/// A life of a stock cluster: incrementals behind their lengths, the first with a whole map.
const HISTORY: &[u8] = include_bytes!("../../crates/types/testdata/stock-16.2.15/osdmap_incrementals.bin");

fn history() -> Vec<Bytes> {
    let all = Bytes::from_static(HISTORY);
    let mut d = denc::Decoder::shared(&all);
    std::iter::from_fn(|| d.blob().ok()).collect()
}

/// The map that history leads to.
fn last_map() -> &'static OsdMap {
    static MAP: std::sync::OnceLock<OsdMap> = std::sync::OnceLock::new();
    MAP.get_or_init(|| {
        let mut map = OsdMap::default();
        for inc in history() {
            let inc = denc::from_bytes(&inc).expect("recorded");
            map.apply_incremental(&inc).expect("recorded");
        }
        map
    })
}

/// Writes the checksum the bytes should have, or nothing behind it would ever be reached. `behind` bytes follow it.
fn reseal(data: &[u8], behind: usize) -> Vec<u8> {
    let mut data = data.to_vec();
    if let Some(at) = data.len().checked_sub(4 + behind) {
        let run = |seed: u32, bytes: &[u8]| !denc::crc32c_append(!seed, bytes);
        let crc = run(run(u32::MAX, &data[..at]), &data[at + 4..]);
        data[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    data
}

/// Asks a stranger's map for everything that a daemon or a client would.
fn use_map(map: &OsdMap) {
    for pool in map.pools.keys().take(3) {
        if let Some(raw) = map.object_to_pg(&ObjectLocator::pool(*pool), b"object") {
            map.raw_pg_to_pg(raw).map(|pg| map.pg_to_up_acting(pg));
        }
    }
    map.dump_json();
    map.print_plain();
    to_bytes(map, features::SUPPORTED);
}

pub fn osdmap(data: &[u8]) {
    decode::<OsdMap>(data);
    if let Some(map) = decode::<OsdMap>(&reseal(data, 0)) {
        use_map(&map);
    }
}

pub fn osdmap_seeds() -> Vec<Vec<u8>> {
    vec![seed(&OsdMap::default()), seed(last_map())]
}

pub fn osdmap_incremental(data: &[u8]) {
    decode::<OsdMapIncremental>(data);
    let Some(mut inc) = decode::<OsdMapIncremental>(&reseal(data, 4)) else { return };
    // Steps from an empty map, and from one with everything in it.
    for mut map in [OsdMap::default(), last_map().clone()] {
        (inc.epoch, inc.fsid) = (map.epoch.next(), map.fsid);
        if map.apply_unchecked(&inc).is_ok() {
            use_map(&map);
        }
    }
}

pub fn incremental_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = history().iter().map(|inc| inc.to_vec()).collect();
    seeds.push(seed(&OsdMapIncremental::default()));
    seeds
}

pub fn monmap(data: &[u8]) {
    if let Some(map) = decode::<MonMap>(data) {
        map.dump_json();
        map.print_plain();
        to_bytes(&map, features::SUPPORTED);
    }
}

pub fn monmap_seeds() -> Vec<Vec<u8>> {
    vec![seed(&MonMap::default()), include_bytes!("../../crates/types/testdata/stock-16.2.15/monmap.bin").to_vec()]
}

pub fn mgrmap(data: &[u8]) {
    if let Some(map) = decode::<MgrMap>(data) {
        map.dump_json();
        to_bytes(&map, features::SUPPORTED);
    }
}

pub fn mgrmap_seeds() -> Vec<Vec<u8>> {
    vec![seed(&MgrMap::default()), include_bytes!("../../crates/types/testdata/stock-16.2.15/mgrmap.bin").to_vec()]
}

pub fn fsmap(data: &[u8]) {
    if let Some(map) = decode::<FsMap>(data) {
        map.dump_json();
        map.print_plain();
    }
    decode::<FsMapUser>(data);
    decode::<MdsMap>(data);
}

pub fn fsmap_seeds() -> Vec<Vec<u8>> {
    vec![seed(&FsMap::default()), seed(&FsMapUser::default())]
}

pub fn crush(data: &[u8]) {
    let Some(map) = decode::<CrushMap>(data) else { return };
    for (rule, _) in map.iter_rules().take(2) {
        map.do_rule(rule, 42, 3, &[0x10000; 8], map.choose_args_for(0));
    }
    map.dump_json();
    map.tree(&map.roots(), false, &|_| true);
    if let Ok(map) = CrushMap::compile(&map.decompile().to_string()) {
        map.decompile().to_string();
    }
    let mut edited = map.clone();
    let _ = edited.remove_item(0, false);
    let _ = edited.reweight_all();
    to_bytes(&map, features::SUPPORTED);
}

pub fn crush_seeds() -> Vec<Vec<u8>> {
    let mut map = CrushMap::build_default(&[(0, "a", 0x10000), (1, "b", 0x8000), (2, "b", 7)], "host").unwrap();
    map.set_device_class(1, "ssd").unwrap();
    map.create_weight_set(crush::COMPAT_WEIGHT_SET, 2).unwrap();
    map.create_weight_set(1, 1).unwrap();
    vec![seed(&CrushMap::default()), seed(&map)]
}

/// u16 kind, u8 version, u8 length of the data segment in 1/256 of what follows, then data, then front.
pub fn message(data: &[u8]) {
    let Some((&[a, b, version, share], rest)) = data.split_first_chunk() else { return };
    let (tail, front) = rest.split_at(rest.len() * usize::from(share) / 256);
    let raw = RawMessage {
        kind: u16::from_le_bytes([a, b]),
        version: version.into(),
        compat: 1,
        front: Bytes::copy_from_slice(front),
        data: Bytes::copy_from_slice(tail).into(),
        ..RawMessage::default()
    };
    if let Ok(message) = Message::decode(&raw) {
        message.to_raw(features::SUPPORTED);
    }
}

/// One of every kind, empty.
pub fn message_seeds() -> Vec<Vec<u8>> {
    let kinds = (0..200).chain(0x7000..0x7040).chain(1792..1810);
    let seed = |kind: u16| [&kind.to_le_bytes()[..], &[1, 0], &[0; 64]].concat();
    kinds.map(seed).collect()
}

pub fn osd_op(data: &[u8]) {
    let Some((&[version, share], rest)) = data.split_first_chunk() else { return };
    let (tail, front) = rest.split_at(rest.len() * usize::from(share) / 256);
    let raw = RawMessage {
        kind: MOsdOp::KIND,
        version: version.into(),
        front: Bytes::copy_from_slice(front),
        data: Bytes::copy_from_slice(tail).into(),
        ..RawMessage::default()
    };
    if let Ok(op) = MOsdOp::from_raw(&raw) {
        op.to_raw(features::SUPPORTED);
    }
}

pub fn osd_op_seeds() -> Vec<Vec<u8>> {
    vec![[&[8, 0], &[0; 250][..]].concat()]
}
