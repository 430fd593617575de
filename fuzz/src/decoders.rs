//! Maps and messages as strangers may send them, and what is computed from them at once.

use bytes::Bytes;
use crush::CrushMap;
use denc::{Decode, Encode, to_bytes};
use types::map::{FsMap, FsMapUser, MdsMap, MgrMap, MonMap, OsdMap, OsdMapIncremental};
use types::msg::{MOsdOp, Message, RawMessage, WireMessage};
use types::{ObjectLocator, PoolId, features};

fn decode<T: Decode>(data: &[u8]) -> Option<T> {
    denc::from_bytes(&Bytes::copy_from_slice(data)).ok()
}

fn seed<T: Encode>(value: &T) -> Vec<u8> {
    to_bytes(value, features::SUPPORTED).to_vec()
}

pub fn osdmap(data: &[u8]) {
    let Some(map) = decode::<OsdMap>(data) else { return };
    for pool in map.pools.keys().take(3) {
        if let Some(pg) = map.object_to_pg(&ObjectLocator::pool(*pool), b"object") {
            map.pg_to_up_acting(pg);
        }
    }
    to_bytes(&map, features::SUPPORTED);
}

pub fn osdmap_seeds() -> Vec<Vec<u8>> {
    vec![seed(&OsdMap::default())]
}

pub fn osdmap_incremental(data: &[u8]) {
    let Some(inc) = decode::<OsdMapIncremental>(data) else { return };
    let mut map = OsdMap::default();
    if map.apply_incremental(&inc).is_ok() {
        map.object_to_pg(&ObjectLocator::pool(PoolId(1)), b"object").map(|pg| map.pg_to_up_acting(pg));
    }
}

pub fn incremental_seeds() -> Vec<Vec<u8>> {
    vec![seed(&OsdMapIncremental::default())]
}

pub fn monmap(data: &[u8]) {
    if let Some(map) = decode::<MonMap>(data) {
        to_bytes(&map, features::SUPPORTED);
    }
}

pub fn monmap_seeds() -> Vec<Vec<u8>> {
    vec![seed(&MonMap::default())]
}

pub fn mgrmap(data: &[u8]) {
    if let Some(map) = decode::<MgrMap>(data) {
        to_bytes(&map, features::SUPPORTED);
    }
}

pub fn mgrmap_seeds() -> Vec<Vec<u8>> {
    vec![seed(&MgrMap::default())]
}

pub fn fsmap(data: &[u8]) {
    decode::<FsMap>(data);
    decode::<FsMapUser>(data);
    decode::<MdsMap>(data);
}

pub fn fsmap_seeds() -> Vec<Vec<u8>> {
    vec![seed(&FsMap::default()), seed(&FsMapUser::default())]
}

pub fn crush(data: &[u8]) {
    let Some(map) = decode::<CrushMap>(data) else { return };
    for rule in 0..3 {
        map.do_rule(rule, 42, 3, &[0x10000; 8], None);
    }
    to_bytes(&map, features::SUPPORTED);
}

pub fn crush_seeds() -> Vec<Vec<u8>> {
    vec![seed(&CrushMap::default())]
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
