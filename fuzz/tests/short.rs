//! Every target on its seeds, on seeded changes of them, and on what once failed. The same inputs every time.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::{Duration, Instant};
use targets::{TARGETS, Target};

// What is built for libFuzzer counts what it runs through, and its runtime has the counters.
#[cfg(feature = "libfuzzer")]
libfuzzer_sys::fuzz_target!(|_data: &[u8]| ());

const ROUNDS: usize = 2000;
const INPUT_BYTES_MAX: usize = 1 << 16;

fn changed(seeds: &[Vec<u8>], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut data = seeds[rng.random_range(0..seeds.len())].clone();
    for _ in 0..rng.random_range(0..6) {
        if data.is_empty() {
            data.push(rng.random());
        }
        let (a, b) = (rng.random_range(0..data.len()), rng.random_range(0..data.len()));
        match rng.random_range(0..6) {
            0 => data[a] = rng.random(),
            1 => data[a] ^= 1 << rng.random_range(0..8),
            2 => data.truncate(a),
            3 => data.extend_from_within(a.min(b)..a.max(b)),
            4 => drop(data.drain(a.min(b)..a.max(b))),
            // Lengths and counts: where bytes are few, large numbers hurt most.
            _ => data[a] = [0xff, 0x7f, 0x80, 0][rng.random_range(0..4)],
        }
        data.truncate(INPUT_BYTES_MAX);
    }
    data
}

#[expect(clippy::disallowed_methods, reason = "hangs are told by the clock")]
fn run(target: &Target, data: &[u8]) {
    let start = Instant::now();
    let outcome = std::panic::catch_unwind(|| (target.run)(data));
    assert!(outcome.is_ok(), "{} panics on {data:02x?}", target.name);
    assert!(start.elapsed() < Duration::from_secs(2), "{} takes too long on {data:02x?}", target.name);
}

#[test]
fn no_target_panics_or_hangs_on_seeded_inputs() {
    for (number, target) in TARGETS.iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(number as u64);
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        seeds.iter().for_each(|seed| run(target, seed));
        (0..ROUNDS).for_each(|_| run(target, &changed(&seeds, &mut rng)));
    }
}

#[test]
fn nothing_that_once_failed_fails_again() {
    for entry in std::fs::read_dir("regressions").expect("regressions") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        let target = TARGETS.iter().find(|t| name.split('.').next() == Some(t.name));
        if let Some(target) = target {
            run(target, &std::fs::read(&path).expect("an input"));
        }
    }
}
