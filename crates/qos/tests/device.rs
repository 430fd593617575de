//! A model is shown devices of known speed, and asked what it thinks.
#![allow(clippy::unwrap_used, reason = "a test")]

use qos::{Begun, DeviceModel, Io};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// A device with so many channels: each takes `io` nanoseconds for an I/O by itself and `byte` for each of its bytes. What waits goes to whichever
/// is free first. Up to `cache` nanoseconds of work are swallowed at once.
struct Device {
    channels: Vec<u64>,
    io: f64,
    byte: f64,
    cache: u64,
    noise: ChaCha8Rng,
}

impl Device {
    fn new(channels: usize, io: u64, byte: f64) -> Self {
        Device { channels: vec![0; channels], io: io as f64, byte, cache: 0, noise: ChaCha8Rng::seed_from_u64(1) }
    }

    /// When an I/O that comes now ends.
    fn ends(&mut self, now: u64, bytes: u64) -> u64 {
        let took = (self.io * self.noise.random_range(0.5..1.5) + self.byte * bytes as f64) as u64;
        let first = self.channels.iter_mut().min().unwrap();
        *first = (*first).max(now) + took;
        let end = *first - first.saturating_sub(now).min(self.cache);
        end.max(now + 50_000)
    }
}

struct Bench {
    now: u64,
    device: Device,
    model: DeviceModel,
    ends: BinaryHeap<Reverse<(u64, u64)>>,
    begun: Vec<Option<Begun>>,
}

impl Bench {
    fn new(device: Device) -> Self {
        Bench { now: SECOND, device, model: DeviceModel::default(), ends: BinaryHeap::new(), begun: Vec::new() }
    }

    fn start(&mut self, io: Io, bytes: u64) {
        let end = self.device.ends(self.now, bytes);
        self.ends.push(Reverse((end, self.begun.len() as u64)));
        self.begun.push(Some(self.model.started(self.now, io, bytes)));
    }

    fn end_first(&mut self) {
        let Reverse((end, which)) = self.ends.pop().unwrap();
        self.now = self.now.max(end);
        self.model.ended(self.now, self.begun[which as usize].take().unwrap());
    }

    /// So many I/Os under way for so long.
    fn load(&mut self, seconds: u64, depth: usize, io: Io, bytes: u64) {
        let until = self.now + seconds * SECOND;
        while self.now < until {
            while self.ends.len() < depth {
                self.start(io, bytes);
            }
            self.end_first();
        }
        while !self.ends.is_empty() {
            self.end_first();
        }
    }

    /// One every `gap` nanoseconds, if the one before has ended.
    fn trickle(&mut self, seconds: u64, gap: u64, io: Io, bytes: u64) {
        let until = self.now + seconds * SECOND;
        while self.now < until {
            let next = self.now + gap;
            self.start(io, bytes);
            self.end_first();
            self.now = self.now.max(next);
        }
    }

    #[track_caller]
    fn is(&self, io: Io, bytes: u64, per_second: f64) {
        let learned = self.model.per_second(io, bytes);
        assert!(learned > 0.8 * per_second && learned < 1.2 * per_second, "{io:?} of {bytes}: {learned} a second, not {per_second}");
    }
}

/// 75 I/Os a second, 150 MB/s.
fn disk() -> Device {
    Device::new(1, 13_333_333, 6.67)
}

/// 320,000 I/Os a second, but 10,000 one after the other.
fn flash() -> Device {
    Device::new(32, 100_000, 1.0)
}

#[test]
fn a_disk_is_learned_within_a_minute_whatever_the_depth() {
    for depth in [1, 4, 32] {
        let mut b = Bench::new(disk());
        assert!(!b.model.is_learned());
        b.load(30, depth, Io::Write, 4096);
        b.load(30, depth, Io::Read, 4096);
        assert!(b.model.is_learned());
        b.is(Io::Write, 4096, 75.0);
        b.is(Io::Read, 4096, 75.0);
    }
}

#[test]
fn what_large_ones_cost_is_no_word_on_small_ones() {
    let mut b = Bench::new(disk());
    b.load(30, 8, Io::Write, 256 << 10);
    assert!(b.model.is_learned() && b.model.capacity(None).is_none());
    b.load(30, 8, Io::Read, 4096);
    let capacity = b.model.capacity(None).unwrap();
    assert!((60.0..90.0).contains(&capacity), "{capacity}");
    // Of both the one that it does now.
    b.load(10, 8, Io::Write, 4096);
    assert_eq!(b.model.capacity(None), Some(b.model.per_second(Io::Write, 4096)));
    b.device.io *= 3.0;
    b.load(30, 8, Io::Read, 4096);
    let capacity = b.model.capacity(None).unwrap();
    assert!((20.0..30.0).contains(&capacity), "{capacity}");
}

/// A figure that an OSD has told comes back to it as a setting, also when it has been doing the other kind since.
#[test]
fn who_says_what_was_shown_by_either_kind_is_taken_at_his_word() {
    let mut b = Bench::new(disk());
    let guessed = b.model.per_second(Io::Write, 4096);
    assert_eq!(b.model.exceeds(guessed / 3.0), 3.0);
    b.load(30, 8, Io::Read, 4096);
    b.device.io /= 3.0;
    b.load(30, 8, Io::Write, 4096);
    let [reads, writes] = [Io::Read, Io::Write].map(|io| b.model.per_second(io, 4096));
    assert!(writes > 2.0 * reads, "{reads}, {writes}");
    for said in [reads, writes, reads * 0.85, writes * 1.15] {
        assert_eq!(b.model.exceeds(said), 1.0, "{said} of {reads}, {writes}");
    }
    for (said, nearest) in [(reads / 2.0, reads), (writes * 2.0, writes)] {
        assert_eq!(b.model.exceeds(said), nearest / said, "{said} of {reads}, {writes}");
    }
    // It is no news either, whichever it does now.
    for said in [reads, writes] {
        assert_eq!(b.model.capacity(Some(said)), Some(said));
    }
}

#[test]
fn what_a_device_did_before_it_became_slower_is_no_excuse() {
    let mut b = Bench::new(disk());
    b.load(30, 8, Io::Read, 4096);
    b.load(30, 8, Io::Write, 4096);
    let said = b.model.capacity(Some(75.0)).unwrap();
    b.device.io *= 2.5;
    b.load(30, 8, Io::Read, 4096);
    let reads = b.model.per_second(Io::Read, 4096);
    assert_eq!(b.model.capacity(Some(said)), Some(reads), "{said} was said");
    assert!(said > 2.0 * reads, "{said}, {reads}");
}

#[test]
fn small_and_large_ones_are_told_apart() {
    let mut b = Bench::new(disk());
    for _ in 0..10 {
        b.load(3, 8, Io::Write, 4096);
        b.load(3, 8, Io::Write, 1 << 20);
    }
    b.is(Io::Write, 4096, 75.0);
    b.is(Io::Write, 1 << 20, 1e9 / (13_333_333.0 + 6.67 * 1048576.0));
    b.is(Io::Write, 4 << 20, 1e9 / (13_333_333.0 + 6.67 * 4194304.0));
}

#[test]
fn a_few_at_a_time_do_not_make_flash_look_slow() {
    let mut b = Bench::new(flash());
    b.load(5, 1, Io::Read, 4096);
    b.load(5, 64, Io::Read, 4096);
    let full = 32.0 * 1e9 / (100_000.0 + 4096.0);
    b.is(Io::Read, 4096, full);
    assert!(b.model.depth() > 20.0 && b.model.depth() < 50.0, "{}", b.model.depth());
    for depth in [1, 2, 8] {
        b.load(5, depth, Io::Read, 4096);
        b.is(Io::Read, 4096, full);
    }
    b.trickle(60, 5 * MS, Io::Read, 4096);
    b.is(Io::Read, 4096, full);
}

#[test]
fn a_device_that_becomes_slower_or_faster_is_learned_anew() {
    for depth in [64, 1] {
        let mut b = Bench::new(flash());
        b.load(3, 64, Io::Read, 4096);
        b.device.io *= 10.0;
        b.load(60, depth, Io::Read, 4096);
        b.is(Io::Read, 4096, 32.0 * 1e9 / (1_000_000.0 + 4096.0));
        b.device.io /= 10.0;
        b.load(60, 64, Io::Read, 4096);
        b.is(Io::Read, 4096, 32.0 * 1e9 / (100_000.0 + 4096.0));
    }
}

#[test]
fn a_cache_that_swallows_bursts_is_not_the_disk() {
    let mut b = Bench::new(disk());
    b.device.cache = 2 * SECOND;
    b.load(30, 8, Io::Write, 4096);
    b.is(Io::Write, 4096, 75.0);
    // Quiet times empty the cache, and a burst is quick.
    for _ in 0..20 {
        b.now += 10 * SECOND;
        for _ in 0..60 {
            b.start(Io::Write, 4096);
        }
        while !b.ends.is_empty() {
            b.end_first();
        }
    }
    b.is(Io::Write, 4096, 75.0);
    // A trickle that it never feels says nothing either.
    b.trickle(60, 50 * MS, Io::Write, 4096);
    b.is(Io::Write, 4096, 75.0);
}

#[test]
fn reads_and_writes_together_are_foretold() {
    let mut b = Bench::new(disk());
    b.load(20, 8, Io::Read, 4096);
    b.load(20, 8, Io::Write, 65536);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (begin, mut cost) = (b.now, 0);
    while b.now < begin + 30 * SECOND {
        while b.ends.len() < 8 {
            let (io, bytes) = if rng.random_bool(0.5) { (Io::Read, 4096) } else { (Io::Write, 65536) };
            cost += b.model.cost(io, bytes);
            b.start(io, bytes);
        }
        b.end_first();
    }
    let share = cost as f64 / (b.now - begin) as f64;
    assert!(share > 0.8 && share < 1.2, "a second's costs come to {share} seconds");
}

#[test]
fn what_is_under_way_is_counted_and_forgotten() {
    let mut b = Bench::new(disk());
    b.load(5, 4, Io::Write, 4096);
    assert_eq!((b.model.under_way(), b.model.outstanding()), (0, 0));
    b.start(Io::Flush, 0);
    b.start(Io::Write, 8192);
    assert_eq!(b.model.under_way(), 2);
    assert_eq!(b.model.outstanding(), b.model.cost(Io::Flush, 0) + b.model.cost(Io::Write, 8192));
}

#[test]
fn strange_clocks_and_sizes_do_no_harm() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut model = DeviceModel::default();
    let mut under_way = Vec::new();
    for _ in 0..100_000 {
        let now = rng.random::<u64>() >> rng.random_range(0..64);
        if rng.random() {
            let bytes = rng.random::<u64>() >> rng.random_range(8..64);
            under_way.push(model.started(now, Io::ALL[rng.random_range(0..3)], bytes));
        } else if let Some(begun) = under_way.pop() {
            model.ended(now, begun);
        }
        for io in Io::ALL {
            assert!(model.cost(io, 0) >= 1000 && model.per_second(io, 4096) > 0.0 && model.depth().is_finite(), "{model:?}");
        }
    }
}
