//! A stock cluster's life, epoch by epoch: every incremental applies, and leads to the map whose checksum it carries.

use denc::{Bytes, Decode, Decoder, Encode};
use std::path::Path;
use std::sync::Arc;
use types::Epoch;
use types::map::osdmap::{ApplyError, MAP_FEATURES};
use types::map::{FsMap, MgrMap, MonMap, OsdMap, OsdMapIncremental};

fn read(name: &str) -> Bytes {
    read_of("stock-16.2.15", name)
}

fn read_of(cluster: &str, name: &str) -> Bytes {
    let path = Path::new("testdata").join(cluster).join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).into()
}

fn text(name: &str) -> String {
    String::from_utf8(read(name).to_vec()).expect("text")
}

fn incrementals() -> Vec<Bytes> {
    incrementals_of("stock-16.2.15")
}

fn incrementals_of(cluster: &str) -> Vec<Bytes> {
    let all = read_of(cluster, "osdmap_incrementals.bin");
    let mut d = Decoder::shared(&all);
    let mut out = Vec::new();
    while !d.is_empty() {
        out.push(d.blob().expect("a length and an incremental"));
    }
    out
}

/// Decodes, and checks that encoding again gives the same bytes.
fn identical<T: Encode + Decode>(bytes: &Bytes) -> T {
    let value: T = denc::from_bytes(bytes).expect("stock's encoding");
    assert!(denc::to_bytes(&value, MAP_FEATURES) == *bytes, "encodes to other bytes");
    value
}

fn last_map() -> OsdMap {
    let mut map = OsdMap::default();
    for bytes in incrementals() {
        map.apply_unchecked(&denc::from_bytes(&bytes).expect("decodes")).expect("applies");
    }
    map
}

#[test]
fn every_step_leads_to_the_map_it_promises() {
    let mut map = OsdMap::default();
    for bytes in incrementals() {
        let inc: OsdMapIncremental = identical(&bytes);
        assert!(inc.is_verifiable() || inc.fullmap.is_some(), "epoch {}: nothing would be verified", inc.epoch);
        map.apply_incremental(&inc).unwrap_or_else(|e| panic!("epoch {}: {e}", inc.epoch));
        if inc.fullmap.is_none() {
            assert_eq!(map.crc, Some(inc.full_crc), "epoch {}", inc.epoch);
        }
    }
    assert_eq!(map.epoch, Epoch(83));
}

#[test]
fn a_tentacle_cluster_can_be_followed() {
    let (mut map, mut primaries) = (OsdMap::default(), 0);
    for bytes in incrementals_of("stock-20.2.4") {
        let inc: OsdMapIncremental = denc::from_bytes(&bytes).expect("decodes");
        map.apply_incremental(&inc).unwrap_or_else(|e| panic!("epoch {}: {e}", inc.epoch));
        primaries = primaries.max(map.pg_upmap_primaries.len());
    }
    // Stock leaves these two tunables out of a full map that no rule of it needs them for.
    Arc::make_mut(&mut map.crush).tunables.msr = None;
    assert_eq!(map, denc::from_bytes(&read_of("stock-20.2.4", "osdmap_last.bin")).expect("decodes"));
    assert!(primaries > 0, "what 18.2 added was there");
}

#[test]
fn a_step_out_of_order_or_of_another_cluster_is_refused() {
    let all: Vec<OsdMapIncremental> = incrementals().iter().map(|b| denc::from_bytes(b).unwrap()).collect();
    let mut map = OsdMap::default();
    map.apply_incremental(&all[0]).unwrap();
    let before = map.clone();
    assert!(matches!(map.apply_incremental(&all[2]), Err(ApplyError::OtherEpoch { .. })));
    let stranger = OsdMapIncremental { fsid: uuid::Uuid::max(), ..all[1].clone() };
    assert!(matches!(map.apply_incremental(&stranger), Err(ApplyError::OtherCluster { .. })));
    assert_eq!(map, before);
    let damaged = OsdMapIncremental { full_crc: all[1].full_crc ^ 1, ..all[1].clone() };
    assert!(matches!(map.apply_incremental(&damaged), Err(ApplyError::Crc { .. })));
}

#[test]
fn a_published_step_carries_both_checksums() {
    let mut map = last_map();
    let mut inc = OsdMapIncremental::new(map.fsid, map.epoch.next(), map.modified);
    inc.new_flags = Some(map.flags | OsdMap::FLAG_NOIN);
    let mut next = map.clone();
    next.apply_unchecked(&inc).unwrap();
    let (full, step) = inc.publish(&mut next);
    let heard: OsdMapIncremental = denc::from_bytes(&step).unwrap();
    map.apply_incremental(&heard).unwrap();
    assert_eq!(map, denc::from_bytes(&full).unwrap());
    assert_eq!(map.crc, next.crc);
}

#[test]
fn a_flipped_bit_does_not_pass_the_checksum() {
    let bytes = last_map().publish();
    for at in (0..bytes.len()).step_by(97) {
        let mut bad = bytes.to_vec();
        bad[at] ^= 4;
        assert!(denc::from_bytes::<OsdMap>(&bad.into()).is_err(), "byte {at}");
    }
}

/// Shows the first difference.
fn assert_same(ours: &str, stock: &str) {
    let same = ours.bytes().zip(stock.bytes()).take_while(|(a, b)| a == b).count();
    let from = same.saturating_sub(60);
    let end = |s: &str| s.len().min(same + 60);
    assert!(ours == stock, "ours:  {}\nstock: {}", &ours[from..end(ours)], &stock[from..end(stock)]);
}

#[test]
fn osd_dump_prints_what_stock_printed() {
    let map = last_map();
    assert_same(&(admin::json::compact(&map.dump_json()) + "\n"), &text("osd_dump.json"));
    assert_same(&map.print_plain(), &text("osd_dump.txt"));
    assert_eq!(map.print_pools().trim_end(), text("pools.txt").trim_end());
}

#[test]
fn mgr_dump_prints_what_stock_printed() {
    let map: MgrMap = identical(&read("mgrmap.bin"));
    assert_eq!(admin::json::compact(&map.dump_json()) + "\n", text("mgr_dump.json"));
}

#[test]
fn mon_dump_prints_what_stock_printed() {
    let map: MonMap = identical(&read("monmap.bin"));
    // The monitor adds who is in the quorum.
    let ours = admin::json::compact(&map.dump_json());
    let stock = text("mon_dump.json");
    assert_eq!(ours.strip_suffix('}'), stock.trim_end().strip_suffix(",\"quorum\":[0]}"));
    assert_eq!(map.print_plain(), text("mon_dump.txt"));
}

#[test]
fn fs_dump_prints_what_stock_printed() {
    let map: FsMap = identical(&read("fsmap.bin"));
    assert_eq!(admin::json::compact(&map.dump_json()) + "\n", text("fs_dump.json"));
    assert_eq!(map.print_plain().trim_end(), text("fs_dump.txt").trim_end());
}
