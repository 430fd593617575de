//! What stock releases encoded decodes here, and encodes again to the same bytes where the version is the one we write.
//!
//! `testdata/corpus/RELEASE/TYPE/HASH` holds a few objects of the public ceph-object-corpus; `CEPH_CORPUS` may name a
//! directory with all of a release's (`objects/TYPE/HASH` below it).

use bytes::Bytes;
use denc::{Decode, Encode};
use std::fs;
use std::path::PathBuf;
use types::features::SUPPORTED;
use types::msg::{LogEntry, Redirect};
use types::pg::*;

fn objects(kind: &str) -> Vec<(PathBuf, Bytes)> {
    let ours = PathBuf::from("testdata/corpus");
    let mut dirs: Vec<PathBuf> = ["16.2.0", "18.2.0"].map(|r| ours.join(r).join(kind)).into();
    dirs.extend(std::env::var("CEPH_CORPUS").map(|d| PathBuf::from(d).join("objects").join(kind)));
    let files = dirs.iter().filter_map(|d| fs::read_dir(d).ok()).flatten().map(|f| f.unwrap().path());
    let out: Vec<_> = files.map(|p| (p.clone(), Bytes::from(fs::read(p).unwrap()))).collect();
    assert!(!out.is_empty(), "no objects of {kind}");
    out
}

fn judge<T: Decode + Encode>(kind: &str, version: u8) {
    for (path, bytes) in objects(kind) {
        let value: T = denc::from_bytes(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        // Reef writes newer types inside of an unchanged version.
        if bytes[0] == version && !path.to_string_lossy().contains("18.2.0") {
            assert_eq!(denc::to_bytes(&value, SUPPORTED), bytes, "{}", path.display());
        }
    }
}

#[test]
fn pg_and_usage_types_keep_stock_bytes() {
    judge::<PgStat>("pg_stat_t", 26);
    judge::<PoolStat>("pool_stat_t", 7);
    judge::<OsdStat>("osd_stat_t", 14);
    judge::<PgInfo>("pg_info_t", 32);
    judge::<PgHistory>("pg_history_t", 10);
    judge::<ObjectStatSum>("object_stat_sum_t", 20);
    judge::<ObjectStatCollection>("object_stat_collection_t", 2);
    judge::<StoreStatfs>("store_statfs_t", 1);
    judge::<PerfStat>("objectstore_perf_stat_t", 1);
    judge::<HitSetHistory>("pg_hit_set_history_t", 1);
    judge::<PgShard>("pg_shard_t", 1);
    judge::<PgLogDup>("pg_log_dup_t", 2);
    judge::<LogEntry>("LogEntry", 5);
    judge::<Redirect>("request_redirect_t", 1);
    judge::<SnapSet>("SnapSet", 3);
}
