//! What holds for every map: it survives its encoding, and damaged bytes end in an error, never in a panic.

#[path = "common/random.rs"]
mod random;

use denc::{Bytes, Decode, Encode};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use types::Epoch;
use types::map::osdmap::MAP_FEATURES;
use types::map::{FsMap, MdsMap, MgrMap, MonMap, OsdMap, OsdMapIncremental};

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

#[test]
fn every_map_survives_its_encoding() {
    for seed in 0..100 {
        let mut map = random::osdmap(&mut rng(seed));
        let bytes = map.publish();
        let again: OsdMap = denc::from_bytes(&bytes).expect("our own encoding");
        assert_eq!(again, map, "seed {seed}");
    }
}

#[test]
fn a_step_that_carries_a_whole_map_replaces_everything() {
    let mut next = random::osdmap(&mut rng(1));
    let mut map = random::osdmap(&mut rng(2));
    map.fsid = next.fsid;
    next.epoch = Epoch(map.epoch.0 + 1);
    let mut inc = OsdMapIncremental::new(map.fsid, next.epoch, next.modified);
    inc.fullmap = Some(next.publish());
    map.apply_incremental(&inc).expect("applies");
    assert_eq!(map, next);
}

/// Writes the checksum that the damaged bytes should have, so that the reader looks further than that.
fn reseal(bytes: &mut [u8], behind: usize) {
    let Some(at) = bytes.len().checked_sub(4 + behind) else { return };
    let run = |seed: u32, bytes: &[u8]| !denc::crc32c_append(!seed, bytes);
    let crc = run(run(u32::MAX, &bytes[..at]), &bytes[at + 4..]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Damages `bytes` in every way we know.
fn damage(rng: &mut ChaCha8Rng, bytes: &Bytes) -> Vec<u8> {
    let mut bad = bytes.to_vec();
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..bad.len());
        match rng.random_range(0..4) {
            0 => bad[at] ^= 1 << rng.random_range(0..8),
            1 => bad[at] = *[0, 1, 0x7f, 0x80, 0xff].get(rng.random_range(0..5)).unwrap(),
            2 => bad[at..].iter_mut().take(4).for_each(|b| *b = 0xff),
            _ => bad[at..].iter_mut().take(4).for_each(|b| *b = 0),
        }
    }
    bad
}

/// Asks a map that a stranger made for everything there is.
fn exercise(map: &OsdMap) {
    map.dump_json();
    map.print_plain();
    for id in map.pools.keys() {
        map.pgs(*id).take(2).for_each(|pg| drop(map.pg_to_up_acting(pg)));
    }
    assert_eq!(map.clone().publish(), map.clone().publish());
}

#[test]
fn a_damaged_map_is_an_error_or_another_map() {
    let mut rng = rng(3);
    let (mut read, mut refused) = (0, 0);
    for seed in 0..20 {
        let bytes = random::osdmap(&mut ChaCha8Rng::seed_from_u64(seed)).publish();
        for _ in 0..25 {
            let mut bad = damage(&mut rng, &bytes);
            reseal(&mut bad, 0);
            match denc::from_bytes::<OsdMap>(&bad.into()) {
                Ok(map) => {
                    exercise(&map);
                    read += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    println!("{read} damaged maps read, {refused} refused");
    assert!(read > 50 && refused > 50, "the damage should do both");
}

#[test]
fn a_damaged_step_is_an_error_or_another_step() {
    let mut rng = rng(4);
    let base = random::osdmap(&mut rng);
    let next = random::osdmap(&mut rng);
    let mut inc = OsdMapIncremental::new(base.fsid, base.epoch.next(), base.modified);
    inc.new_pools = next.pools.clone();
    inc.new_max_osd = Some(base.max_osd + 2);
    inc.crush = Some(denc::to_bytes(&*next.crush, MAP_FEATURES));
    inc.new_pg_temp = next.pg_temp.clone();
    inc.new_pg_upmap_items = next.pg_upmap_items.clone();
    inc.new_weight = base.osds().map(|osd| (osd, 0x8000)).collect();
    inc.new_state = base.osds().map(|osd| (osd, OsdMap::STATE_UP)).collect();
    inc.new_up_client = base.osds().filter_map(|osd| Some((osd, base.addrs(osd)?.clone()))).collect();
    let bytes = denc::to_bytes(&inc, MAP_FEATURES);
    let mut applied = 0;
    for _ in 0..400 {
        let mut bad = damage(&mut rng, &bytes);
        reseal(&mut bad, 4);
        let Ok(inc) = denc::from_bytes::<OsdMapIncremental>(&bad.into()) else { continue };
        let mut map = base.clone();
        if map.apply_incremental(&inc).is_ok() {
            exercise(&map);
            applied += 1;
        }
    }
    assert!(applied > 20, "{applied} of them applied");
}

/// Every truncation is an error; damage is one, or another value that can be written.
fn survives_damage<T: Encode + Decode>(rng: &mut ChaCha8Rng, bytes: &Bytes) {
    for n in 0..bytes.len() {
        assert!(denc::from_bytes::<T>(&bytes.slice(..n)).is_err(), "{n} bytes of {}", bytes.len());
    }
    for _ in 0..2000 {
        if let Ok(value) = denc::from_bytes::<T>(&damage(rng, bytes).into()) {
            denc::to_bytes(&value, MAP_FEATURES);
        }
    }
}

#[test]
fn small_maps_survive_damage() {
    let mut rng = rng(5);
    let mut mon = MonMap::new(uuid::Uuid::max(), types::Utime { sec: 1, nsec: 2 });
    mon.add("a", types::AddrVec(vec![types::EntityAddr::msgr2(([127, 0, 0, 1], 3300).into(), 0)]));
    survives_damage::<MonMap>(&mut rng, &denc::to_bytes(&mon, MAP_FEATURES));
    let mgr = MgrMap { active_name: "x".into(), clients: vec![("c".into(), Default::default())], ..Default::default() };
    survives_damage::<MgrMap>(&mut rng, &denc::to_bytes(&mgr, MAP_FEATURES));
    survives_damage::<FsMap>(&mut rng, &denc::to_bytes(&FsMap::default(), MAP_FEATURES));
    survives_damage::<MdsMap>(&mut rng, &denc::to_bytes(&MdsMap::default(), MAP_FEATURES));
}

#[test]
fn truncated_maps_are_errors() {
    let bytes = random::osdmap(&mut rng(6)).publish();
    for n in (0..bytes.len()).step_by(13) {
        assert!(denc::from_bytes::<OsdMap>(&bytes.slice(..n)).is_err(), "{n}");
    }
}
