//! Ceph 14.2's ceph-dencoder as judge of our encodings: what it prints of a value of ours is what we put in, and, where
//! the format has not changed since, what it encodes again is what we wrote.
//!
//! Needs root and `CUTTLEBONE_DENCODER_ROOT`, a directory made by `scripts/dencoder-root`. Skips without.

#![recursion_limit = "256"]

use denc::{Bytes, Decode, Encode, to_bytes};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use types::map::{MonMap, OsdInfo, OsdMap, OsdXInfo, PgPool};
use types::pg::{ObjectStatCollection, ObjectStatSum, OsdStat, PgHistory, PgInfo, PgStat, PgState, PoolStat};
use types::*;

/// The root directory with ceph-dencoder in it.
struct Dencoder(PathBuf);

impl Dencoder {
    fn find() -> Option<Dencoder> {
        let root = std::env::var_os("CUTTLEBONE_DENCODER_ROOT").map(PathBuf::from);
        if root.is_none() {
            eprintln!("skipped: CUTTLEBONE_DENCODER_ROOT is not set (see scripts/dencoder-root)");
        }
        root.map(Dencoder)
    }

    /// What it prints of `bytes` as a value of type `kind`, and how it encodes that value.
    fn read(&self, kind: &str, bytes: &[u8]) -> (Value, Vec<u8>) {
        let name = format!("tmp/judge-{}-{kind}", std::process::id());
        let (ours, again) = (self.0.join(&name), self.0.join(format!("{name}.again")));
        std::fs::write(&ours, bytes).unwrap();
        let inside = |path: &PathBuf| format!("/{}", path.strip_prefix(&self.0).unwrap().display());
        let features = features::SUPPORTED.to_string();
        let words = ["set_features", &features, "type", kind, "import", &inside(&ours), "decode", "dump_json"];
        let mut command = Command::new("chroot");
        command.arg(&self.0).arg("ceph-dencoder").args(words).args(["encode", "export", &inside(&again)]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{kind}: {e}: {said}"));
        let bytes = std::fs::read(&again).unwrap_or_else(|e| panic!("{kind}: {e}: {said}"));
        std::fs::remove_file(ours).unwrap();
        std::fs::remove_file(again).unwrap();
        (json, bytes)
    }

    /// The values upstream's own tests use of a type, encoded by it.
    fn instances(&self, kind: &str) -> Vec<Vec<u8>> {
        let run = |words: &[&str]| {
            Command::new("chroot").arg(&self.0).arg("ceph-dencoder").args(words).output().unwrap()
        };
        let count = run(&["type", kind, "count_tests"]).stdout;
        let count = String::from_utf8(count).unwrap().trim().parse().unwrap_or_else(|e| panic!("{kind}: {e}"));
        let features = features::SUPPORTED.to_string();
        let name = format!("tmp/instance-{}-{kind}", std::process::id());
        let one = |n: usize| {
            let path = format!("/{name}");
            run(&["set_features", &features, "type", kind, "select_test", &n.to_string(), "encode", "export", &path]);
            std::fs::read(self.0.join(&name)).unwrap()
        };
        let all = (1..=count).map(one).collect();
        let _ = std::fs::remove_file(self.0.join(&name));
        all
    }

    /// Upstream's own test values of a type decode here and encode again to the same bytes.
    fn survive<T: Encode + Decode>(&self, kind: &str) {
        for (n, bytes) in self.instances(kind).into_iter().enumerate() {
            let bytes = Bytes::from(bytes);
            let value: T = denc::from_bytes(&bytes).unwrap_or_else(|e| panic!("{kind} {}: {e}", n + 1));
            assert_eq!(to_bytes(&value, features::SUPPORTED), bytes, "{kind} {}", n + 1);
        }
    }

    /// Judges a type of which stock has newer fields than 14.2: only what it prints counts.
    fn prints(&self, kind: &str, value: &impl Encode, wanted: Value) -> Vec<u8> {
        let (printed, again) = self.read(kind, &to_bytes(value, features::SUPPORTED));
        assert_contains(kind, &printed, &wanted);
        again
    }

    /// Judges a type that is as it was in 14.2.
    fn agrees(&self, kind: &str, value: &impl Encode, wanted: Value) {
        let again = self.prints(kind, value, wanted);
        assert_eq!(to_bytes(value, features::SUPPORTED), Bytes::from(again), "{kind} encoded again");
    }
}

/// Every field of `wanted` is in `printed`, with that value; arrays may go on after what is wanted.
fn assert_contains(at: &str, printed: &Value, wanted: &Value) {
    match (printed, wanted) {
        (Value::Object(printed), Value::Object(wanted)) => {
            for (key, value) in wanted {
                let at = format!("{at}.{key}");
                assert_contains(&at, printed.get(key).unwrap_or_else(|| panic!("{at} is missing")), value);
            }
        }
        (Value::Array(printed), Value::Array(wanted)) if printed.len() >= wanted.len() => {
            for (i, (printed, wanted)) in printed.iter().zip(wanted).enumerate() {
                assert_contains(&format!("{at}[{i}]"), printed, wanted);
            }
        }
        _ => assert_eq!(printed, wanted, "{at}"),
    }
}

fn ev(epoch: u32, version: u64) -> EVersion {
    EVersion { epoch: Epoch(epoch), version }
}

/// A time that prints as its seconds: those before 1980 do.
fn at(sec: u32) -> Utime {
    Utime { sec, nsec: 0 }
}

fn pg() -> PgId {
    PgId { pool: PoolId(5), seed: 0x1f }
}

fn object() -> HObject {
    let (nspace, key, name) = ("ns".into(), "key".into(), "name".into());
    HObject { pool: PoolId(5), hash: 0x1234_5678, nspace, key, name, snap: Snap(7), max: false }
}

#[test]
fn names_of_things_are_read_by_stock() {
    let Some(dencoder) = Dencoder::find() else { return };
    dencoder.agrees("pg_t", &pg(), json!({"pool": 5, "seed": 31}));
    let named = json!({"oid": "name", "key": "key", "snapid": 7, "hash": 0x1234_5678, "max": 0, "pool": 5, "namespace": "ns"});
    dencoder.agrees("hobject_t", &object(), named);
    dencoder.agrees("hobject_t", &HObject::max(), json!({"max": 1}));
    dencoder.agrees("hobject_t", &HObject::min(), json!({"pool": i64::MIN, "max": 0}));
    let locator = ObjectLocator { pool: PoolId(5), key: "key".into(), nspace: "ns".into(), hash: -1 };
    dencoder.agrees("object_locator_t", &locator, json!({"pool": 5, "key": "key", "namespace": "ns", "hash": -1}));
    let hashed = ObjectLocator { key: "".into(), hash: 77, ..locator };
    dencoder.agrees("object_locator_t", &hashed, json!({"key": "", "hash": 77}));
    let client = EntityInst { kind: EntityKind::CLIENT, num: 4100 };
    dencoder.agrees("entity_name_t", &client, json!({"type": "client", "num": 4100}));
    let request = ReqId { name: client, tid: 9, inc: 3 };
    dencoder.agrees("osd_reqid_t", &request, json!({"name": "client.4100", "tid": 9, "inc": 3}));
}

#[test]
fn addresses_are_read_by_stock() {
    let Some(dencoder) = Dencoder::find() else { return };
    let v4 = EntityAddr::msgr2("10.1.2.3:6800".parse().unwrap(), 77);
    let v6 = EntityAddr::msgr2("[fe80::1]:6801".parse().unwrap(), 78);
    let (four, six) = (
        json!({"type": "v2", "addr": "10.1.2.3:6800", "nonce": 77}),
        json!({"type": "v2", "addr": "[fe80::1]:6801", "nonce": 78}),
    );
    dencoder.agrees("entity_addr_t", &v4, four.clone());
    dencoder.agrees("entity_addr_t", &v6, six.clone());
    dencoder.agrees("entity_addrvec_t", &AddrVec(vec![v4, v6]), json!({"addrvec": [four, six]}));
    dencoder.agrees("entity_addrvec_t", &AddrVec::default(), json!({"addrvec": []}));
}

/// Figures of objects, each another number, and as stock prints them.
fn sums() -> (ObjectStatSum, Value) {
    let s = ObjectStatSum {
        num_bytes: 1,
        num_objects: 2,
        num_object_clones: 3,
        num_object_copies: 4,
        num_objects_missing_on_primary: 5,
        num_objects_degraded: 6,
        num_objects_unfound: 7,
        num_rd: 8,
        num_rd_kb: 9,
        num_wr: 10,
        num_wr_kb: 11,
        num_scrub_errors: 12,
        num_objects_recovered: 13,
        num_bytes_recovered: 14,
        num_keys_recovered: 15,
        num_shallow_scrub_errors: 16,
        num_deep_scrub_errors: 17,
        num_objects_dirty: 18,
        num_whiteouts: 19,
        num_objects_omap: 20,
        num_objects_hit_set_archive: 21,
        num_objects_misplaced: 22,
        num_bytes_hit_set_archive: 23,
        num_flush: 24,
        num_flush_kb: 25,
        num_evict: 26,
        num_evict_kb: 27,
        num_promote: 28,
        num_flush_mode_high: 29,
        num_flush_mode_low: 30,
        num_evict_mode_some: 31,
        num_evict_mode_full: 32,
        num_objects_pinned: 33,
        num_objects_missing: 34,
        num_legacy_snapsets: 35,
        num_large_omap_objects: 36,
        num_objects_manifest: 37,
        num_omap_bytes: 38,
        num_omap_keys: 39,
        num_objects_repaired: 40,
    };
    let long = |name: &str| match name {
        "num_rd" => "num_read".to_owned(),
        "num_rd_kb" => "num_read_kb".to_owned(),
        "num_wr" => "num_write".to_owned(),
        "num_wr_kb" => "num_write_kb".to_owned(),
        other => other.to_owned(),
    };
    let fields = s.fields().into_iter().map(|(name, value)| (long(name), value.into()));
    (s, Value::Object(fields.collect()))
}

fn pg_stat() -> (PgStat, Value) {
    let (sum, printed_sum) = sums();
    let stat = PgStat {
        version: ev(1, 2),
        reported_seq: 3,
        reported_epoch: Epoch(4),
        state: PgState(1 << 1 | 1 << 2),
        log_start: ev(5, 6),
        ondisk_log_start: ev(7, 8),
        created: Epoch(9),
        last_epoch_clean: Epoch(10),
        parent: PgId { pool: PoolId(11), seed: 12 },
        parent_split_bits: 13,
        last_scrub: ev(14, 15),
        last_scrub_stamp: at(16),
        stats: ObjectStatCollection { sum },
        log_size: 17,
        ondisk_log_size: 18,
        up: vec![OsdId(1), OsdId(2)],
        acting: vec![OsdId(2), OsdId(3)],
        last_fresh: at(19),
        last_change: at(20),
        last_active: at(21),
        last_clean: at(22),
        last_unstale: at(23),
        mapping_epoch: Epoch(24),
        last_deep_scrub: ev(25, 26),
        last_deep_scrub_stamp: at(27),
        last_clean_scrub_stamp: at(28),
        last_became_active: at(29),
        dirty_stats_invalid: true,
        up_primary: OsdId(1),
        acting_primary: OsdId(2),
        hitset_stats_invalid: true,
        blocked_by: vec![OsdId(6)],
        last_undegraded: at(30),
        last_fullsized: at(31),
        last_peered: at(32),
        last_became_peered: at(33),
        pin_stats_invalid: true,
        snaptrimq_len: 34,
        ..PgStat::default()
    };
    let printed = json!({
        "version": "1'2", "reported_seq": "3", "reported_epoch": "4", "state": "active+clean",
        "log_start": "5'6", "ondisk_log_start": "7'8", "created": 9, "last_epoch_clean": 10, "parent": "11.c",
        "parent_split_bits": 13, "last_scrub": "14'15", "last_scrub_stamp": "16.000000", "stat_sum": printed_sum,
        "log_size": 17, "ondisk_log_size": 18, "up": [1, 2], "acting": [2, 3], "last_fresh": "19.000000",
        "last_change": "20.000000", "last_active": "21.000000", "last_clean": "22.000000",
        "last_unstale": "23.000000", "mapping_epoch": 24, "last_deep_scrub": "25'26",
        "last_deep_scrub_stamp": "27.000000", "last_clean_scrub_stamp": "28.000000",
        "last_became_active": "29.000000", "stats_invalid": false, "dirty_stats_invalid": true,
        "omap_stats_invalid": false, "hitset_stats_invalid": true, "hitset_bytes_stats_invalid": false,
        "pin_stats_invalid": true, "manifest_stats_invalid": false, "up_primary": 1, "acting_primary": 2,
        "blocked_by": [6], "last_undegraded": "30.000000", "last_fullsized": "31.000000",
        "last_peered": "32.000000", "last_became_peered": "33.000000", "snaptrimq_len": 34,
    });
    (stat, printed)
}

#[test]
fn placement_groups_are_read_by_stock() {
    let Some(dencoder) = Dencoder::find() else { return };
    let (sum, printed_sum) = sums();
    dencoder.agrees("object_stat_sum_t", &sum, printed_sum);
    let (stat, printed_stat) = pg_stat();
    dencoder.agrees("pg_stat_t", &stat, printed_stat.clone());
    let history = PgHistory {
        epoch_created: Epoch(1),
        last_epoch_started: Epoch(2),
        last_epoch_clean: Epoch(3),
        last_epoch_split: Epoch(4),
        same_interval_since: Epoch(5),
        same_up_since: Epoch(6),
        same_primary_since: Epoch(7),
        last_scrub: ev(8, 9),
        last_scrub_stamp: at(10),
        last_deep_scrub: ev(11, 12),
        last_deep_scrub_stamp: at(13),
        last_clean_scrub_stamp: at(14),
        last_epoch_marked_full: Epoch(15),
        last_interval_started: Epoch(16),
        last_interval_clean: Epoch(17),
        epoch_pool_created: Epoch(18),
        prior_readable_until_ub: at(19),
    };
    let printed_history = json!({
        "epoch_created": 1, "last_epoch_started": 2, "last_epoch_clean": 3, "last_epoch_split": 4,
        "same_interval_since": 5, "same_up_since": 6, "same_primary_since": 7, "last_scrub": "8'9",
        "last_scrub_stamp": "10.000000", "last_deep_scrub": "11'12", "last_deep_scrub_stamp": "13.000000",
        "last_clean_scrub_stamp": "14.000000", "last_epoch_marked_full": 15, "last_interval_started": 16,
        "last_interval_clean": 17, "epoch_pool_created": 18,
    });
    dencoder.prints("pg_history_t", &history, printed_history.clone());
    let info = PgInfo {
        last_update: ev(20, 21),
        last_complete: ev(22, 23),
        log_tail: ev(24, 25),
        stats: stat,
        history,
        last_epoch_started: Epoch(26),
        last_user_version: 27,
        last_backfill: object(),
        last_interval_started: Epoch(28),
        ..PgInfo::new(ShardPgId { pg: pg(), shard: 2 })
    };
    let printed = json!({
        "pgid": "5.1fs2", "last_update": "20'21", "last_complete": "22'23", "log_tail": "24'25",
        "last_epoch_started": 26, "last_user_version": 27,
        "last_backfill": "5:1e6a2c48:ns:key:name:7", "stats": printed_stat, "history": printed_history, "incomplete": 1,
    });
    dencoder.prints("pg_info_t", &info, printed);
}

#[test]
fn osds_and_pools_are_read_by_stock() {
    let Some(dencoder) = Dencoder::find() else { return };
    let info = OsdInfo {
        last_clean_begin: Epoch(1),
        last_clean_end: Epoch(2),
        up_from: Epoch(3),
        up_thru: Epoch(4),
        down_at: Epoch(5),
        lost_at: Epoch(6),
    };
    let printed = json!({
        "last_clean_begin": 1, "last_clean_end": 2, "up_from": 3, "up_thru": 4, "down_at": 5, "lost_at": 6,
    });
    dencoder.agrees("osd_info_t", &info, printed);
    let more = OsdXInfo {
        down_stamp: at(1),
        laggy_probability: 0xffff_ffff,
        laggy_interval: 2,
        features: 3,
        old_weight: 4,
        ..OsdXInfo::default()
    };
    let printed = json!({"down_stamp": "1.000000", "laggy_interval": 2, "features": 3, "old_weight": 4});
    dencoder.prints("osd_xinfo_t", &more, printed);
    let pool = PgPool { size: 3, min_size: 2, ..PgPool::replicated(3, 32, 1) };
    let printed = json!({
        "type": 1, "size": 3, "min_size": 2, "crush_rule": 1, "object_hash": 2, "pg_num": 32, "pg_placement_num": 32,
    });
    dencoder.agrees("pg_pool_t", &pool, printed);
}

#[test]
fn maps_are_read_by_stock() {
    let Some(dencoder) = Dencoder::find() else { return };
    let mut hierarchy = crush::CrushMap::build_default(&[(0, "a", 0x10000), (1, "b", 0x20000)], "host").unwrap();
    hierarchy.set_device_class(1, "ssd").unwrap();
    hierarchy.create_weight_set(crush::COMPAT_WEIGHT_SET, 2).unwrap();
    dencoder.agrees("CrushWrapper", &hierarchy, hierarchy.dump_json());

    let fsid = uuid::Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    let addrs = AddrVec(vec![EntityAddr::msgr2("10.1.2.3:3300".parse().unwrap(), 0)]);
    let mut mons = MonMap::new(fsid, at(4));
    mons.epoch = Epoch(3);
    mons.add("a", addrs);
    let mon = json!({"rank": 0, "name": "a", "public_addrs": {"addrvec": [
        {"type": "v2", "addr": "10.1.2.3:3300", "nonce": 0},
    ]}});
    let printed = json!({
        "epoch": 3, "fsid": fsid.to_string(), "created": "4.000000", "modified": "4.000000", "mons": [mon],
        "min_mon_release": 16, "features": {"persistent": ["kraken", "luminous", "mimic", "osdmap-prune", "nautilus"]},
    });
    dencoder.prints("MonMap", &mons, printed);

    let mut map = OsdMap::new(fsid, at(5));
    map.epoch = Epoch(7);
    map.set_max_osd(2);
    dencoder.prints("OSDMap", &map, json!({"epoch": 7, "fsid": fsid.to_string(), "created": "5.000000", "max_osd": 2}));
}

#[test]
fn stocks_own_test_values_survive_our_reading() {
    let Some(dencoder) = Dencoder::find() else { return };
    dencoder.survive::<PgId>("pg_t");
    dencoder.survive::<HObject>("hobject_t");
    dencoder.survive::<ObjectLocator>("object_locator_t");
    dencoder.survive::<EntityInst>("entity_name_t");
    dencoder.survive::<EntityAddr>("entity_addr_t");
    dencoder.survive::<AddrVec>("entity_addrvec_t");
    dencoder.survive::<ReqId>("osd_reqid_t");
    dencoder.survive::<ObjectStatSum>("object_stat_sum_t");
    dencoder.survive::<PgStat>("pg_stat_t");
    dencoder.survive::<PoolStat>("pool_stat_t");
    dencoder.survive::<OsdStat>("osd_stat_t");
    dencoder.survive::<OsdInfo>("osd_info_t");
    dencoder.survive::<PgPool>("pg_pool_t");
    dencoder.survive::<crush::CrushMap>("CrushWrapper");
}
