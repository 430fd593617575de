//! How fast one core codes.
//!
//! `cargo run --release -p ec --example speed [-- SECONDS]` (0.3 for each figure by itself)
//! For each k + m and chunk size: GB/s (10^9 bytes) of the data that is coded. `encode`: all k chunks to parity, counted k chunks;
//! `rebuild`: one and m lost chunks of data from k others, counted k chunks; `update`: parity for one changed chunk,
//! counted 1 chunk. The stripes worked on in turn are 32 MiB, more than caches of a core hold, unless `hot` is given.

#![allow(clippy::disallowed_methods, reason = "it measures")]

use ec::{Code, Technique};
use std::hint::black_box;
use std::time::{Duration, Instant};

struct Stripe {
    data: Vec<Vec<u8>>,
    parity: Vec<Vec<u8>>,
}

/// Bytes of data in all stripes together.
const ALL: usize = 32 << 20;

fn stripes(code: &Code, chunk: usize, all: usize) -> Vec<Stripe> {
    let fill = |i: usize| (0..chunk).map(|at| (at * 31 + i * 7 + (at >> 8)) as u8).collect();
    let one = |_| Stripe { data: (0..code.k()).map(fill).collect(), parity: vec![vec![0; chunk]; code.m()] };
    (0..(all / chunk / code.k()).max(1)).map(one).collect()
}

/// GB/s of `step`, which works on `bytes` each time.
fn speed(took: Duration, stripes: &mut [Stripe], bytes: usize, mut step: impl FnMut(&mut Stripe)) -> f64 {
    stripes.iter_mut().for_each(&mut step);
    let (mut n, mut done) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < took {
        for _ in 0..16 {
            step(&mut stripes[n]);
            n = (n + 1) % stripes.len();
        }
        done += 16;
    }
    (done * bytes) as f64 / begun.elapsed().as_secs_f64() / 1e9
}

fn encode(code: &Code, s: &mut Stripe) {
    let data: Vec<&[u8]> = s.data.iter().map(Vec::as_slice).collect();
    code.encode(&data, &mut s.parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
}

fn update(code: &Code, s: &mut Stripe) {
    code.update(1, &s.data[1], &mut s.parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
}

/// The first `lost` chunks of data, into `room`.
fn rebuild(code: &Code, s: &Stripe, lost: usize, room: &mut [Vec<u8>]) {
    let chunks = s.data.iter().chain(&s.parity).enumerate();
    let have: Vec<(usize, &[u8])> = chunks.skip(lost).map(|(i, c)| (i, c.as_slice())).collect();
    let mut want: Vec<(usize, &mut [u8])> = room.iter_mut().take(lost).map(Vec::as_mut_slice).enumerate().collect();
    code.rebuild_into(&have, &mut want).expect("enough are there");
    black_box(room);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let took = args.iter().find_map(|a| a.parse().ok()).map_or(Duration::from_millis(300), Duration::from_secs_f64);
    let all = if args.iter().any(|a| a == "hot") { 0 } else { ALL };
    println!("{:<12}{:>6}{:>10}{:>10}{:>12}{:>12}{:>10}", "technique", "k+m", "chunk", "encode", "rebuild 1", "rebuild m", "update");
    for technique in [Technique::Vandermonde, Technique::Cauchy] {
        for (k, m) in [(2, 1), (4, 2), (8, 3)] {
            for chunk in [4 << 10, 1 << 20] {
                let code = Code::new(technique, k, m);
                let (mut stripes, mut room) = (stripes(&code, chunk, all), vec![vec![0; chunk]; m]);
                let encoded = speed(took, &mut stripes, k * chunk, |s| encode(&code, s));
                let one = speed(took, &mut stripes, k * chunk, |s| rebuild(&code, s, 1, &mut room));
                let most = speed(took, &mut stripes, k * chunk, |s| rebuild(&code, s, m, &mut room));
                let updated = speed(took, &mut stripes, chunk, |s| update(&code, s));
                let (name, size) = (format!("{technique:?}"), format!("{} KiB", chunk >> 10));
                println!("{name:<12}{:>6}{size:>10}{encoded:>10.1}{one:>12.1}{most:>12.1}{updated:>10.1}", format!("{k}+{m}"));
            }
        }
    }
}
