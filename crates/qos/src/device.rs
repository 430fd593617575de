//! What a device can do, learned from what it does.
//!
//! Owns: [`DeviceModel`].   Hears: every I/O as it starts and as it ends.   Says: what an I/O costs in the device's time.
//! Holds: costs are such that a device kept busy ends as much cost a second as a second has. One that is not busy teaches nothing, or a
//! disk behind a cache that swallows bursts would be taken for the cache; one that is busy with little teaches that it can do no less.

/// What is asked of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Io {
    Read,
    Write,
    Flush,
}

impl Io {
    pub const ALL: [Io; 3] = [Io::Read, Io::Write, Io::Flush];
}

/// An I/O under way: hand it back when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    io: Io,
    bytes: u64,
    cost: u64,
    at: u64,
    /// How many had been started before it, if nothing else was under way.
    alone: Option<u64>,
}

impl Begun {
    /// What is under way.
    pub fn io(&self) -> Io {
        self.io
    }

    /// Device time that it was expected to take when it began, nanoseconds.
    pub fn cost(&self) -> u64 {
        self.cost
    }
}

/// Judged are spans of at least this long, nanoseconds: drives and throttles deal in tenths of seconds.
const SPAN: u64 = 250_000_000;
/// And of this many I/Os, or of `SPAN_LONG` and a quarter of them.
const SPAN_IOS: u32 = 32;
const SPAN_LONG: u64 = 1_000_000_000;
/// How much of a span something must be under way for the device to count as busy.
const BUSY: f64 = 0.8;
/// How far costs go at once towards what a span says, and at most by which factor.
const GAIN: f64 = 0.4;
const STEP: f64 = 2.0;
/// Less doubt than this there never is: devices change.
const DOUBT: f64 = 0.05;
/// I/Os of so many bytes in the mean tell what small ones cost; longer ones mostly what bytes do.
const SMALL: u64 = 16 << 10;
/// So many spans in a row must be foretold to within a quarter for costs to count as learned.
const AGREED: u32 = 4;
/// Figures that differ by no more than this factor are taken for the same.
pub const NEAR: f64 = 1.25;
/// Who costs so many times as much as before, or as little, is at another device.
const CHANGED: f64 = 2.0;
/// Costs are at least a microsecond an I/O and at most a minute; a byte costs at least what it does at 100 GB/s.
const PER_IO: (f64, f64) = (1e3, 6e10);
const PER_BYTE: (f64, f64) = (0.01, 1e6);

/// By what factor two figures differ, at least 1.
pub fn factor(a: f64, b: f64) -> f64 {
    let ratio = a.max(1e-9) / b.max(1e-9);
    ratio.max(1.0 / ratio)
}

/// A device's costs. Times are nanoseconds of one clock that only goes on.
#[derive(Debug, Clone)]
pub struct DeviceModel {
    /// Nanoseconds of the device's time for each I/O, and for each of its bytes, by `Io`.
    per_io: [f64; 3],
    per_byte: [f64; 3],
    /// How little each is known, the latter after the former: who is known best is corrected least.
    doubt: [f64; 6],
    /// How many I/Os the device works on at once: what one takes by itself, in its costs. Below 1: bursts are swallowed.
    depth: f64,
    agreed: u32,
    /// Reads or writes, whichever last kept it busy with small ones, as was foreseen.
    small: Option<Io>,
    /// What one cost when small ones first kept the device that busy, nanoseconds, by `Io`.
    shown: [Option<f64>; 3],
    under_way: u64,
    outstanding: u64,
    started: u64,
    busy: u16,
    span: Span,
}

/// What happened since it began.
#[derive(Debug, Clone, Default)]
struct Span {
    since: u64,
    /// When time was last accounted for.
    at: u64,
    busy: u64,
    /// I/Os under way, summed over time.
    queued: f64,
    ios: [u32; 3],
    bytes: [u64; 3],
    /// What those took that had the device to themselves, in their costs, and how many.
    alone: (f64, u32),
    quickest: f64,
}

impl Default for DeviceModel {
    /// Knows nothing: a guess between a disk and flash.
    fn default() -> Self {
        DeviceModel {
            per_io: [1e6, 1e6, 1e6],
            per_byte: [4.0, 4.0, 0.01],
            depth: 1.0,
            doubt: [1.0; 6],
            agreed: 0,
            small: None,
            shown: [None; 3],
            under_way: 0,
            outstanding: 0,
            started: 0,
            busy: 1000,
            span: Span::default(),
        }
    }
}

fn index(io: Io) -> usize {
    match io {
        Io::Read => 0,
        Io::Write => 1,
        Io::Flush => 2,
    }
}

impl DeviceModel {
    /// An I/O goes to the device.
    pub fn started(&mut self, now: u64, io: Io, bytes: u64) -> Begun {
        self.account(now);
        self.started += 1;
        let alone = (self.under_way == 0).then_some(self.started);
        let begun = Begun { io, bytes, cost: self.cost(io, bytes), at: now, alone };
        self.under_way += 1;
        self.outstanding += begun.cost;
        begun
    }

    /// It has ended, well or not.
    pub fn ended(&mut self, now: u64, begun: Begun) {
        self.account(now);
        self.under_way = self.under_way.saturating_sub(1);
        self.outstanding = self.outstanding.saturating_sub(begun.cost);
        let took = now.saturating_sub(begun.at) as f64 / self.cost(begun.io, begun.bytes) as f64;
        let span = &mut self.span;
        span.ios[index(begun.io)] += 1;
        span.bytes[index(begun.io)] += begun.bytes;
        span.quickest = if span.quickest == 0.0 { took } else { span.quickest.min(took) };
        if begun.alone == Some(self.started) {
            span.alone = (span.alone.0 + took, span.alone.1 + 1);
        }
        let (long, ios) = (now.saturating_sub(span.since), span.ios.iter().sum::<u32>());
        if long >= SPAN && ios >= SPAN_IOS || long >= SPAN_LONG {
            let span = std::mem::replace(&mut self.span, Span { since: now, at: now, ..Span::default() });
            self.busy = (span.busy.saturating_mul(1000) / long.max(1)).min(1000) as u16;
            if ios >= SPAN_IOS / 4 {
                self.judge(&span, long);
            }
        }
    }

    /// What an I/O costs, nanoseconds of the device's time.
    pub fn cost(&self, io: Io, bytes: u64) -> u64 {
        let i = index(io);
        (self.per_io[i] + self.per_byte[i] * bytes as f64) as u64
    }

    /// I/Os of this many bytes that the device does in a second.
    pub fn per_second(&self, io: Io, bytes: u64) -> f64 {
        1e9 / self.cost(io, bytes).max(1) as f64
    }

    /// So many bytes cost no more than half of an I/O: to read over them is cheaper than to read on both sides of them. At most `most`.
    pub fn worth_reading(&self, most: u64) -> u64 {
        let read = index(Io::Read);
        (self.per_io[read] / 2.0 / self.per_byte[read]).min(most as f64) as u64
    }

    /// I/Os of 4 KiB that it does in a second, reads or writes: which of them is nearer to what somebody `said`, or which kept it busy last. `None`
    /// while small ones have not.
    pub fn capacity(&self, said: Option<f64>) -> Option<f64> {
        let figure = match said {
            Some(said) => self.nearest(said),
            None => self.small.map(|io| self.per_second(io, 4096)),
        };
        figure.filter(|_| self.is_learned())
    }

    /// How many times as many I/Os of 4 KiB it does as somebody says; 1 if he says what small reads or small writes have shown, to within a quarter: he
    /// has it from there. By the guess for writes while nothing has been shown.
    pub fn exceeds(&self, said: f64) -> f64 {
        match self.nearest(said) {
            Some(figure) if factor(figure, said) <= NEAR => 1.0,
            shown => shown.unwrap_or_else(|| self.per_second(Io::Write, 4096)) / said,
        }
    }

    /// Of what small reads and small writes have shown the figure that is nearest to this one.
    fn nearest(&self, said: f64) -> Option<f64> {
        let shown = Io::ALL.into_iter().filter(|io| self.shown[index(*io)].is_some());
        shown.map(|io| self.per_second(io, 4096)).min_by(|a, b| factor(*a, said).total_cmp(&factor(*b, said)))
    }

    /// How many it works on at once. Below 1 it is quicker with one than with many in a row.
    pub fn depth(&self) -> f64 {
        self.depth
    }

    /// Device time that what is under way was expected to take, nanoseconds.
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// I/Os under way.
    pub fn under_way(&self) -> u64 {
        self.under_way
    }

    /// Thousandths of the last span in which something was under way; 1000 until there was one.
    pub fn busy(&self) -> u16 {
        self.busy
    }

    /// False while costs are guesses.
    pub fn is_learned(&self) -> bool {
        self.agreed >= AGREED
    }

    fn account(&mut self, now: u64) {
        let span = &mut self.span;
        if span.since == 0 {
            (span.since, span.at) = (now, now);
        }
        let passed = now.saturating_sub(span.at);
        span.at = span.at.max(now);
        if self.under_way > 0 {
            span.busy += passed;
            span.queued += self.under_way as f64 * passed as f64;
        }
    }

    fn judge(&mut self, span: &Span, long: u64) {
        let foretold: f64 = (0..3).map(|i| self.part(span, i).0 + self.part(span, i).1).sum();
        let is_busy = span.busy as f64 >= BUSY * long as f64;
        let took = span.busy as f64;
        let depth = span.queued / took.max(1.0);
        self.learn_depth(span, depth, is_busy);
        // Slower than it can, but by whose doing? Only who keeps it busy to its depth knows.
        let is_full = is_busy && depth >= 0.9 * self.depth;
        if is_full {
            let foreseen = factor(took, foretold) < NEAR;
            let small = |io: &Io| span.ios[index(*io)] >= SPAN_IOS / 4 && span.bytes[index(*io)] / u64::from(span.ios[index(*io)]) <= SMALL;
            if let Some(io) = [Io::Write, Io::Read].into_iter().find(|io| foreseen && small(io)) {
                self.show(io);
            }
            self.agreed = if foreseen { self.agreed.saturating_add(1) } else if self.is_learned() { self.agreed } else { 0 };
        }
        if is_full || is_busy && took < foretold {
            self.correct(span, took, foretold);
        }
    }

    /// Small ones have kept the device busy for as long as was foreseen.
    fn show(&mut self, io: Io) {
        let (i, cost) = (index(io), self.cost(io, 4096) as f64);
        if self.shown[i].is_some_and(|before| factor(cost, before) > CHANGED) {
            // The other kind would not do now what it did.
            self.shown = [None; 3];
        }
        self.shown[i].get_or_insert(cost);
        self.small = Some(io);
    }

    /// What I/Os of a kind, and their bytes, cost in this span.
    fn part(&self, span: &Span, i: usize) -> (f64, f64) {
        (f64::from(span.ios[i]) * self.per_io[i], span.bytes[i] as f64 * self.per_byte[i])
    }

    /// Costs go some of the way to where they would have foretold the span, each as much as it had to do with it.
    fn correct(&mut self, span: &Span, took: f64, foretold: f64) {
        let parts = |m: &Self| -> [f64; 6] { std::array::from_fn(|i| if i < 3 { m.part(span, i).0 } else { m.part(span, i - 3).1 }) };
        let before = parts(self);
        let squares: f64 = before.iter().zip(&self.doubt).map(|(part, doubt)| part * part * doubt).sum();
        if squares <= 0.0 {
            return;
        }
        for (i, part) in before.into_iter().enumerate() {
            let step = (1.0 + GAIN * (took - foretold) * part * self.doubt[i] / squares).clamp(1.0 / STEP, STEP);
            let share = part * part * self.doubt[i] / squares;
            self.doubt[i] = (self.doubt[i] * (1.0 - share / 4.0)).max(DOUBT);
            match i {
                0..3 => self.per_io[i] = (self.per_io[i] * step).clamp(PER_IO.0, PER_IO.1),
                _ => self.per_byte[i - 3] = (self.per_byte[i - 3] * step).clamp(PER_BYTE.0, PER_BYTE.1),
            }
        }
        let now_foretold: f64 = parts(self).iter().sum();
        // What one takes by itself has not changed, what it costs has.
        self.depth *= foretold / now_foretold;
    }

    fn learn_depth(&mut self, span: &Span, depth: f64, is_busy: bool) {
        let alone = if span.alone.1 >= SPAN_IOS / 4 { span.alone.0 / f64::from(span.alone.1) } else { span.quickest };
        if alone > self.depth && self.depth > 1.5 && is_busy && depth < 1.5 {
            // One at a time, and each takes longer than it did: the device is slower, not broader.
            let factor = (1.0 + GAIN * (alone / self.depth - 1.0)).min(STEP);
            for i in 0..3 {
                if span.ios[i] > 0 {
                    self.per_io[i] = (self.per_io[i] * factor).min(PER_IO.1);
                    self.per_byte[i] = (self.per_byte[i] * factor).min(PER_BYTE.1);
                }
            }
            return;
        }
        self.depth = if alone < self.depth { self.depth + (alone - self.depth) / 8.0 } else { alone.min(self.depth * 1.02) };
    }
}
