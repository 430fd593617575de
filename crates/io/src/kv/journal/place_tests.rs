//! A journal and a database in other places: moved, killed, and spilling over.

use super::super::{Layout, RocksConfig, RocksKv, Slow, copy_database, copy_journal};
use super::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Instant;
use store::Kv;

fn config(dir: &Path, journal: Option<PathBuf>) -> RocksConfig {
    RocksConfig { journal_bytes: 2 << 20, journal, ..RocksConfig::new(dir, Layout::ObjectStore) }
}

fn open(config: &RocksConfig) -> RocksKv {
    RocksKv::open(config, channel().0).unwrap()
}

/// Omap pairs that do not compress, made durable every few.
fn fill(kv: &mut RocksKv, seed: u64, pairs: u64) -> BTreeMap<Bytes, Bytes> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut model = BTreeMap::new();
    for n in 0..pairs {
        let mut value = vec![0; 10_000];
        rng.fill(&mut value[..]);
        let (key, value) = (Bytes::from(format!("M{:08}", rng.random_range(0..1_000_000))), Bytes::from(value));
        model.insert(key.clone(), value.clone());
        let mut batch = KvBatch::default();
        batch.put(key, value);
        batch.put(format!("O{n}"), vec![1; 50]);
        kv.apply(batch).unwrap();
        if n % 50 == 0 {
            kv.flush_sync().unwrap();
        }
    }
    kv.flush_sync().unwrap();
    model
}

fn omap(kv: &RocksKv) -> BTreeMap<Bytes, Bytes> {
    kv.scan(Bound::Included(b"M"), Bound::Excluded(b"N"), usize::MAX).unwrap().into_iter().collect()
}

/// What a killed process leaves of the two.
fn image(kv: &mut RocksKv, config: &RocksConfig, to: &Path) -> RocksConfig {
    super::tests::image(kv, &config.dir, &to.join("db"));
    let ring = to.join("ring");
    std::fs::copy(config.journal_path(), &ring).unwrap();
    super::config_at(config, to.join("db"), Some(ring))
}

#[test]
fn a_journal_elsewhere_is_read_after_a_kill_and_wherever_it_is_moved() {
    let dir = crate::TempDir::new("journal-elsewhere");
    let at = |name: &str| dir.path().join(name);
    let first = config(&at("first"), Some(at("ring")));
    let mut kv = open(&first);
    let model = fill(&mut kv, 1, 40);
    assert!(!at("first").join("journal").exists());
    let killed = image(&mut kv, &first, &at("killed"));
    drop(kv);
    // A move that was interrupted left half a copy; the next one begins anew.
    std::fs::write(at("moved"), vec![7; 100_000]).unwrap();
    let bytes = copy_journal(&killed.journal_path(), &at("moved"), [0; 16]).unwrap();
    assert_eq!(bytes, 2 << 20);
    // Until somebody points to the copy, the old one counts, and is as it was.
    assert_eq!(std::fs::read(killed.journal_path()).unwrap(), std::fs::read(at("moved")).unwrap());
    let moved = super::config_at(&killed, killed.dir.clone(), Some(at("moved")));
    std::fs::remove_file(killed.journal_path()).unwrap();
    let mut kv = open(&moved);
    assert_eq!(omap(&kv), model);
    let more = fill(&mut kv, 2, 300);
    drop(kv);
    assert_eq!(omap(&open(&moved)), model.into_iter().chain(more).collect());
}

#[test]
fn a_database_that_is_moved_is_whole_in_one_place_or_the_other() {
    let dir = crate::TempDir::new("kv-moved");
    let at = |name: &str| dir.path().join(name);
    let first = config(&at("first"), None);
    let mut kv = open(&first);
    let model = fill(&mut kv, 3, 600);
    super::tests::image(&mut kv, &first.dir, &at("killed"));
    drop(kv);
    // Half a copy, with something that the database does not have any more.
    std::fs::create_dir(at("new")).unwrap();
    std::fs::write(at("new").join("CURRENT"), "MANIFEST-999999\n").unwrap();
    std::fs::write(at("new").join("999999.sst"), "half").unwrap();
    copy_database(&at("killed"), &at("new")).unwrap();
    assert!(!at("new").join("999999.sst").exists());
    for place in ["killed", "new"] {
        assert_eq!(omap(&open(&config(&at(place), None))), model, "{place}");
    }
    assert!(copy_database(&at("nowhere"), &at("other")).is_err());
}

/// Until background work has put something where it belongs.
fn spilled(kv: &RocksKv) -> u64 {
    let start = Instant::now();
    loop {
        let space = kv.space().unwrap();
        if space.spilled > 0 || start.elapsed() > Duration::from_secs(20) {
            return space.spilled;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_has_no_room_spills_and_comes_back() {
    let dir = crate::TempDir::new("kv-spill");
    let at = |name: &str| dir.path().join(name);
    let mut small = config(&at("db"), None);
    small.slow = Some(Slow { dir: at("slow"), room: 40 << 20 });
    let mut kv = open(&small);
    let model = fill(&mut kv, 4, 4000);
    assert!(spilled(&kv) > 0, "40 MB of pairs in a place of 40 MB");
    assert_eq!(omap(&kv), model);
    drop(kv);
    let kv = open(&small);
    assert_eq!(omap(&kv), model);
    drop(kv);
    // All of it to one place.
    copy_database(&at("db"), &at("whole")).unwrap();
    copy_database(&at("slow"), &at("rest")).unwrap();
    let mut whole = config(&at("whole"), None);
    whole.slow = Some(Slow { dir: at("rest"), room: 1 << 40 });
    let kv = open(&whole);
    kv.fit_levels(true).unwrap();
    drop(kv);
    assert_eq!(super::super::bytes_in(&at("rest")).unwrap(), 0);
    whole.slow = None;
    let kv = open(&whole);
    assert!(kv.space().is_none());
    assert_eq!(omap(&kv), model);
}

#[test]
fn a_database_that_fits_does_not_spill_after_it_has_moved() {
    let dir = crate::TempDir::new("kv-fits");
    let at = |name: &str| dir.path().join(name);
    let mut first = config(&at("db"), None);
    let mut model = fill(&mut open(&first), 5, 3000);
    // As one that is old: everything in the last level.
    first.tuning = super::super::Tuning::parse("compact_on_mount=true", "", "").unwrap();
    drop(open(&first));
    first.tuning = Default::default();
    first.slow = Some(Slow { dir: at("slow"), room: 1 << 30 });
    let kv = open(&first);
    kv.fit_levels(false).unwrap();
    drop(kv);
    let mut kv = open(&first);
    model.extend(fill(&mut kv, 6, 3000));
    let work = |kv: &RocksKv| kv.property("rocksdb.num-running-compactions").chars().any(|c| c.is_ascii_digit() && c != '0');
    let start = Instant::now();
    while work(&kv) && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let space = kv.space().unwrap();
    assert_eq!(space.spilled, 0, "{space:?}");
    assert_eq!(omap(&kv), model);
}
