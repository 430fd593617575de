//! Power failures, and I/O that fails before them: whatever was committed is there, whatever was not is there in full or not at all.

use crate::harness::*;
use rand::Rng;
use store::mem::MemIo;
use store::*;
use types::Errno;

/// What may fail.
const IO: [MemIo; 4] = [MemIo::Write(0), MemIo::DevFlush, MemIo::KvFlush, MemIo::KvRead];

/// Runs, crashes at a random step, and judges what is left; several times on the same disk. `fails`: before most crashes some I/O fails.
fn run(seed: u64, fails: bool) {
    let rng = &mut rng(seed);
    let disk = Driver::format(64 << 20);
    let mut d = Driver::mount(&disk, tight_config(rng));
    d.bulk_every = 3;
    create_colls(&mut d, rng);
    // Version n of a collection is the model after its n-th transaction.
    let mut history = [vec![Model::default()], vec![Model::default()]];
    for _round in 0..4 {
        let mut submitted: Vec<(TxcId, usize, usize)> = Vec::new();
        let fails_after = if fails { rng.random_range(0..50) } else { usize::MAX };
        for n in 0..rng.random_range(1..40) {
            if n == fails_after {
                disk.fail_next(IO[rng.random_range(0..4)], Errno::EIO, rng.random());
            }
            let which = rng.random_range(0..2);
            let versions = &mut history[which];
            let mut t = random_txn(rng, COLLS[which], versions.last().unwrap());
            t.coll_set("version", versions.len().to_string());
            let mut next = versions.last().unwrap().clone();
            next.apply(&t);
            let submitted_now = if rng.random_bool(0.2) { d.submit_placed(rng, t) } else { d.submit(t) };
            let Ok(txc) = submitted_now else {
                d.settle();
                assert_eq!((fails, d.poisoned), (true, Some(Errno::EIO)));
                break;
            };
            submitted.push((txc, which, versions.len()));
            versions.push(next);
            for _ in 0..rng.random_range(0..8) {
                d.step(rng);
            }
        }
        for _ in 0..rng.random_range(0..60) {
            d.step(rng);
        }
        let committed = std::mem::take(&mut d.committed);
        disk.crash(rng);
        assert_eq!(fsck(&mut disk.dev(), &disk.kv(), true).unwrap().errors, []);
        d = Driver::mount(&disk, tight_config(rng));
        d.bulk_every = 3;
        for which in 0..2 {
            let found = d.store.coll_get(COLLS[which], b"version").unwrap();
            let version = found.map_or(0, |v| std::str::from_utf8(&v).unwrap().parse::<usize>().unwrap());
            for (txc, w, v) in &submitted {
                assert!(*w != which || *v <= version || !committed.contains(txc), "version {v} was committed, {version} is there");
            }
            history[which][version].check_all(&mut d, rng, COLLS[which]);
            history[which].truncate(version + 1);
        }
        assert_eq!(d.checksum_errors, 0);
    }
}

fn run_seeds(io_fails: bool) {
    let seeds = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(30);
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds {
        eprintln!("seed {seed}");
        run(seed, io_fails);
    }
}

#[test]
fn committed_transactions_survive_power_failures() {
    run_seeds(false);
}

#[test]
fn committed_transactions_survive_io_that_fails() {
    run_seeds(true);
}
