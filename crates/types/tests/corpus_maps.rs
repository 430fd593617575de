//! What stock releases encoded decodes; what 16.2 encoded encodes again to the same bytes.
//!
//! Newer releases append fields that we skip, so for them identity is only required where the frame has our version.

mod common;

use denc::{Bytes, Decode, Encode};
use std::path::Path;
use types::map::*;

/// How a type fared in one release.
#[derive(Default)]
struct Tally {
    decoded: usize,
    identical: usize,
    /// Frames of another version than we write.
    other_version: usize,
    problems: Vec<String>,
}

/// An object whose recorder kept bytes behind its frame.
const OVERLONG: &str = "f97d85482139c3de61f9ec00522b6bd6";

fn judge<T: Encode + Decode>(dir: &Path, name: &str, same_version: impl Fn(&[u8], &[u8]) -> bool) -> Tally {
    let mut tally = Tally::default();
    let Ok(entries) = std::fs::read_dir(dir.join("objects").join(name)) else { return tally };
    for path in entries.map(|e| e.expect("entry").path()) {
        let mut bytes = Bytes::from(std::fs::read(&path).expect("object"));
        if path.ends_with(OVERLONG) {
            bytes.truncate(94);
        }
        let value: T = match denc::from_bytes(&bytes) {
            Ok(value) => value,
            Err(why) => {
                tally.problems.push(format!("{}: {why}", path.display()));
                continue;
            }
        };
        tally.decoded += 1;
        let again = denc::to_bytes(&value, osdmap::MAP_FEATURES);
        if again == bytes {
            tally.identical += 1;
        } else if !same_version(&bytes, &again) {
            tally.other_version += 1;
        } else {
            let at = bytes.iter().zip(&again).position(|(a, b)| a != b);
            tally.problems.push(format!("{}: differs at {at:?} ({} and {} bytes)", path.display(), bytes.len(), again.len()));
        }
    }
    tally
}

/// Frames whose first byte is the version.
fn first_byte(a: &[u8], b: &[u8]) -> bool {
    a.first() == b.first()
}

/// Types whose newer fields hide in a version that is not the frame's own: only 16.2 wrote what we write.
fn only_in(release: &str) -> impl Fn(&[u8], &[u8]) -> bool {
    let ours = release == common::RELEASES[0];
    move |_, _| ours
}

/// Maps of OSDs: the versions of the part for clients and of the part for OSDs count, and of the pools inside.
fn osdmap_parts(a: &[u8], b: &[u8]) -> bool {
    let versions = |bytes: &[u8]| -> Option<(u8, u8)> {
        let len = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
        Some((*bytes.get(6)?, *bytes.get(12 + len)?))
    };
    versions(a) == versions(b)
}

#[test]
fn stock_maps_decode_and_ours_encode_alike() {
    let corpus = common::corpus();
    let (mut problems, mut decoded) = (Vec::new(), 0);
    println!("{:<10}{:<26}{:>8}{:>10}{:>15}", "release", "type", "decoded", "identical", "other version");
    for release in common::RELEASES {
        let dir = corpus.join(release);
        let rows = [
            ("OSDMap", judge::<OsdMap>(&dir, "OSDMap", osdmap_parts)),
            ("OSDMap::Incremental", judge::<OsdMapIncremental>(&dir, "OSDMap::Incremental", osdmap_parts)),
            ("pg_pool_t", judge::<PgPool>(&dir, "pg_pool_t", first_byte)),
            ("pool_opts_t", judge::<PoolOpts>(&dir, "pool_opts_t", first_byte)),
            ("pool_snap_info_t", judge::<PoolSnap>(&dir, "pool_snap_info_t", first_byte)),
            ("pg_merge_meta_t", judge::<MergeMeta>(&dir, "pg_merge_meta_t", first_byte)),
            ("osd_info_t", judge::<OsdInfo>(&dir, "osd_info_t", first_byte)),
            ("osd_xinfo_t", judge::<OsdXInfo>(&dir, "osd_xinfo_t", first_byte)),
            ("MonMap", judge::<MonMap>(&dir, "MonMap", first_byte)),
            ("mon_info_t", judge::<MonInfo>(&dir, "mon_info_t", only_in(release))),
            ("MgrMap", judge::<MgrMap>(&dir, "MgrMap", first_byte)),
            ("MgrMap::ModuleInfo", judge::<ModuleInfo>(&dir, "MgrMap::ModuleInfo", first_byte)),
            ("MgrMap::ModuleOption", judge::<ModuleOption>(&dir, "MgrMap::ModuleOption", first_byte)),
            ("MgrMap::StandbyInfo", judge::<StandbyInfo>(&dir, "MgrMap::StandbyInfo", first_byte)),
            ("FSMap", judge::<FsMap>(&dir, "FSMap", only_in(release))),
            ("MDSMap", judge::<MdsMap>(&dir, "MDSMap", only_in(release))),
            ("MDSMap::mds_info_t", judge::<MdsInfo>(&dir, "MDSMap::mds_info_t", first_byte)),
            ("FSMapUser", judge::<FsMapUser>(&dir, "FSMapUser", first_byte)),
            ("FSMapUser::fs_info_t", judge::<FsInfo>(&dir, "FSMapUser::fs_info_t", first_byte)),
            ("CompatSet", judge::<CompatSet>(&dir, "CompatSet", |_, _| true)),
            ("entity_addr_t", judge::<types::EntityAddr>(&dir, "entity_addr_t", first_byte)),
            ("entity_addrvec_t", judge::<types::AddrVec>(&dir, "entity_addrvec_t", first_byte)),
            ("pg_t", judge::<types::PgId>(&dir, "pg_t", first_byte)),
        ];
        for (name, tally) in rows {
            println!("{release:<10}{name:<26}{:>8}{:>10}{:>15}", tally.decoded, tally.identical, tally.other_version);
            decoded += tally.decoded;
            problems.extend(tally.problems);
        }
    }
    assert!(decoded > 400, "only {decoded} objects");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
