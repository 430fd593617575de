//! Performance counters: declared once, bumped by index, printed as `perf dump` and `perf schema` print them.
//!
//! A core owns a `PerfCounters` per logger and gives its table of counters as a constant; nothing is shared and nothing
//! is atomic, for a daemon's cores run on one thread.
//! Upstream: src/common/perf_counters.{h,cc}.

mod histogram;

pub use histogram::Histogram;

use crate::json::JsonWriter;
use std::collections::BTreeMap;
use types::msg::internal::PerfValue;

/// What a counter holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A count that only grows.
    Counter,
    /// A time in nanoseconds, printed in seconds.
    Time,
    /// Count and sum of values.
    Avg,
    /// Count and sum of times.
    TimeAvg,
}

impl Kind {
    /// Upstream's bits: 1 time, 2 u64, 4 average, 8 counter.
    fn bits(self) -> u32 {
        match self {
            Kind::Gauge => 2,
            Kind::Counter => 2 | 8,
            Kind::Time => 1,
            Kind::Avg => 2 | 4,
            Kind::TimeAvg => 1 | 4,
        }
    }

    fn averages(self) -> bool {
        matches!(self, Kind::Avg | Kind::TimeAvg)
    }
}

/// What a counter counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    None,
    Bytes,
}

/// How much a counter matters; a manager asks for those of at least some priority.
pub mod prio {
    pub const CRITICAL: u8 = 10;
    pub const INTERESTING: u8 = 8;
    pub const USEFUL: u8 = 5;
    pub const UNINTERESTING: u8 = 2;
    pub const DEBUG: u8 = 0;
}

/// A counter's description.
#[derive(Debug, Clone, Copy)]
pub struct CounterSpec {
    pub name: &'static str,
    pub kind: Kind,
    pub description: &'static str,
    /// Up to four letters for `daemonperf`; may be empty.
    pub nick: &'static str,
    pub priority: u8,
    pub unit: Unit,
}

impl CounterSpec {
    /// A counter without nick or unit.
    pub const fn new(name: &'static str, kind: Kind, description: &'static str) -> Self {
        CounterSpec { name, kind, description, nick: "", priority: prio::USEFUL, unit: Unit::None }
    }

    /// The same in bytes.
    pub const fn bytes(self) -> Self {
        CounterSpec { unit: Unit::Bytes, ..self }
    }

    /// The same with a nick and a priority.
    pub const fn nick(self, nick: &'static str, priority: u8) -> Self {
        CounterSpec { nick, priority, ..self }
    }
}

/// A table of counters with an enum of their indexes: `counters! { Index SPECS: OpWip "op_wip" Gauge "what it counts"; ... }`.
#[macro_export]
macro_rules! counters {
    ($enum:ident $specs:ident: $($index:ident $name:literal $kind:ident $text:literal $(, $more:ident($($arg:expr),*))*;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy)]
        enum $enum { $($index),* }
        const $specs: &[$crate::perf::CounterSpec] =
            &[$($crate::perf::CounterSpec::new($name, $crate::perf::Kind::$kind, $text)$(.$more($($arg),*))*),*];
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cell {
    value: u64,
    count: u64,
    /// Of what is kept elsewhere: value and count at the last reset.
    base: (u64, u64),
}

/// The counters of one logger.
#[derive(Debug, Clone)]
pub struct PerfCounters {
    name: String,
    specs: &'static [CounterSpec],
    cells: Vec<Cell>,
    histograms: Vec<Histogram>,
}

impl PerfCounters {
    /// A logger `name` with counters all zero; `specs`' order is that of the indexes below.
    pub fn new(name: &str, specs: &'static [CounterSpec]) -> Self {
        PerfCounters { name: name.into(), specs, cells: vec![Cell::default(); specs.len()], histograms: Vec::new() }
    }

    /// The same with histograms.
    pub fn with_histograms(self, histograms: Vec<Histogram>) -> Self {
        PerfCounters { histograms, ..self }
    }

    /// The histogram with this index.
    pub fn histogram(&mut self, index: usize) -> Option<&mut Histogram> {
        self.histograms.get_mut(index)
    }

    /// Sets a count that is kept elsewhere, where no reset is known: what it was at the last one is taken off.
    pub fn mirror(&mut self, index: usize, total: u64) {
        if let Some(cell) = self.cells.get_mut(index) {
            cell.value = total.saturating_sub(cell.base.0);
        }
    }

    /// Sets a mean that is kept elsewhere: how many and their sum, since the start.
    pub fn mirror_mean(&mut self, index: usize, count: u64, sum: u64) {
        if let Some(cell) = self.cells.get_mut(index) {
            (cell.count, cell.value) = (count.saturating_sub(cell.base.1), sum.saturating_sub(cell.base.0));
        }
    }

    /// Adds one.
    pub fn inc(&mut self, index: usize) {
        self.add(index, 1);
    }

    /// Adds to a count, or one value to an average.
    pub fn add(&mut self, index: usize, by: u64) {
        if let Some(cell) = self.cells.get_mut(index) {
            cell.value = cell.value.wrapping_add(by);
            cell.count += 1;
        }
    }

    /// Takes away from a gauge.
    pub fn sub(&mut self, index: usize, by: u64) {
        if let Some(cell) = self.cells.get_mut(index) {
            cell.value = cell.value.saturating_sub(by);
        }
    }

    /// Sets a gauge.
    pub fn set(&mut self, index: usize, value: u64) {
        if let Some(cell) = self.cells.get_mut(index) {
            cell.value = value;
        }
    }

    /// Adds a time.
    pub fn time(&mut self, index: usize, took: std::time::Duration) {
        self.add(index, took.as_nanos() as u64);
    }

    /// A counter's value, or an average's sum.
    pub fn get(&self, index: usize) -> u64 {
        self.cells.get(index).map_or(0, |c| c.value)
    }

    /// The logger's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets everything back to zero, gauges excepted.
    pub fn reset(&mut self) {
        for (spec, cell) in self.specs.iter().zip(&mut self.cells) {
            if spec.kind != Kind::Gauge {
                *cell = Cell { base: (cell.base.0 + cell.value, cell.base.1 + cell.count), ..Cell::default() };
            }
        }
        self.histograms.iter_mut().for_each(Histogram::reset);
    }

    /// Values for the manager, as `logger.counter`.
    pub fn report(&self, out: &mut BTreeMap<String, PerfValue>) {
        for (spec, cell) in self.specs.iter().zip(&self.cells) {
            let value = match spec.kind.averages() {
                true => PerfValue::Avg { count: cell.count, sum: cell.value },
                false => PerfValue::Int(cell.value),
            };
            out.insert(format!("{}.{}", self.name, spec.name), value);
        }
    }

    fn dump(&self, w: &mut JsonWriter, only: Option<&str>) {
        w.object(&self.name);
        for (spec, cell) in self.specs.iter().zip(&self.cells).filter(|(s, _)| only.is_none_or(|o| o.is_empty() || o == s.name)) {
            dump_one(w, spec, *cell);
        }
        w.end();
    }

    fn histograms(&self, w: &mut JsonWriter, only: Option<&str>, each: impl Fn(&Histogram, &mut JsonWriter)) {
        w.object(&self.name);
        self.histograms.iter().filter(|h| only.is_none_or(|o| o.is_empty() || o == h.name)).for_each(|h| each(h, w));
        w.end();
    }

    fn schema(&self, w: &mut JsonWriter, only: Option<&str>) {
        w.object(&self.name);
        for spec in self.specs.iter().filter(|s| only.is_none_or(|o| o.is_empty() || o == s.name)) {
            w.object(spec.name).raw("type", &spec.kind.bits().to_string());
            w.string("metric_type", if spec.kind == Kind::Counter { "counter" } else { "gauge" });
            w.string("value_type", value_type(spec.kind)).string("description", spec.description);
            w.string("nick", spec.nick).raw("priority", &spec.priority.to_string());
            w.string("units", if spec.unit == Unit::Bytes { "bytes" } else { "none" }).end();
        }
        w.end();
    }
}

fn dump_one(w: &mut JsonWriter, spec: &CounterSpec, cell: Cell) {
    match spec.kind {
        Kind::Gauge | Kind::Counter => w.raw(spec.name, &cell.value.to_string()),
        Kind::Time => w.raw(spec.name, &seconds(cell.value)),
        Kind::Avg => {
            w.object(spec.name).raw("avgcount", &cell.count.to_string()).raw("sum", &cell.value.to_string()).end()
        }
        Kind::TimeAvg => {
            let average = cell.value.checked_div(cell.count).unwrap_or(0);
            w.object(spec.name).raw("avgcount", &cell.count.to_string()).raw("sum", &seconds(cell.value));
            w.raw("avgtime", &seconds(average)).end()
        }
    };
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

fn value_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Gauge | Kind::Counter => "integer",
        Kind::Time => "real",
        Kind::Avg => "integer-integer-pair",
        Kind::TimeAvg => "real-integer-pair",
    }
}

/// One of the ways to print loggers, below: all of them, or one logger, or one counter of it; pretty or compact.
pub type Print = fn(&[&PerfCounters], Option<&str>, Option<&str>, bool) -> String;

/// `perf dump [logger] [counter]` over loggers in the order given, pretty or compact.
pub fn dump(loggers: &[&PerfCounters], logger: Option<&str>, counter: Option<&str>, pretty: bool) -> String {
    print(loggers, logger, pretty, |l, w| l.dump(w, counter))
}

/// `perf schema [logger] [counter]`.
pub fn schema(loggers: &[&PerfCounters], logger: Option<&str>, counter: Option<&str>, pretty: bool) -> String {
    print(loggers, logger, pretty, |l, w| l.schema(w, counter))
}

/// `perf histogram dump [logger] [counter]`: loggers without histograms are there, and empty.
pub fn histogram_dump(loggers: &[&PerfCounters], logger: Option<&str>, counter: Option<&str>, pretty: bool) -> String {
    print(loggers, logger, pretty, |l, w| l.histograms(w, counter, Histogram::dump))
}

/// `perf histogram schema [logger] [counter]`.
pub fn histogram_schema(loggers: &[&PerfCounters], logger: Option<&str>, counter: Option<&str>, pretty: bool) -> String {
    print(loggers, logger, pretty, |l, w| l.histograms(w, counter, Histogram::schema))
}

/// In the order of the loggers' names.
fn print(loggers: &[&PerfCounters], only: Option<&str>, pretty: bool, each: impl Fn(&PerfCounters, &mut JsonWriter)) -> String {
    let mut w = JsonWriter::new(pretty);
    w.object("");
    let mut loggers = loggers.to_vec();
    loggers.sort_by_key(|l| l.name.clone());
    for l in loggers.iter().filter(|l| only.is_none_or(|o| o.is_empty() || o == l.name)) {
        each(l, &mut w);
    }
    w.end();
    w.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SPECS: &[CounterSpec] = &[
        CounterSpec::new("op", Kind::Counter, "operations").nick("ops", prio::CRITICAL),
        CounterSpec::new("op_latency", Kind::TimeAvg, "latency"),
        CounterSpec::new("stored", Kind::Gauge, "bytes held").bytes(),
        CounterSpec::new("sizes", Kind::Avg, "sizes"),
    ];

    fn counters() -> PerfCounters {
        let mut c = PerfCounters::new("osd", SPECS);
        c.inc(0);
        c.time(1, Duration::from_millis(1500));
        c.time(1, Duration::from_millis(500));
        c.set(2, 7);
        c.add(3, 10);
        c
    }

    #[test]
    fn averages_print_count_sum_and_mean() {
        let wanted = concat!(
            r#"{"osd":{"op":1,"op_latency":{"avgcount":2,"sum":2.000000000,"avgtime":1.000000000},"#,
            r#""stored":7,"sizes":{"avgcount":1,"sum":10}}}"#
        );
        assert_eq!(dump(&[&counters()], None, None, false), wanted);
        assert_eq!(dump(&[&counters()], Some("osd"), Some("op"), false), r#"{"osd":{"op":1}}"#);
        assert_eq!(dump(&[&counters()], Some("other"), None, false), "{}");
    }

    #[test]
    fn the_schema_tells_types_apart() {
        let text = schema(&[&counters()], None, Some("op_latency"), false);
        let wanted = concat!(
            r#"{"osd":{"op_latency":{"type":5,"metric_type":"gauge","value_type":"real-integer-pair","#,
            r#""description":"latency","nick":"","priority":5,"units":"none"}}}"#
        );
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_reset_keeps_gauges() {
        let mut c = counters();
        c.reset();
        assert_eq!((c.get(0), c.get(2)), (0, 7));
    }

    #[test]
    fn what_is_counted_elsewhere_is_counted_from_the_last_reset_on() {
        let mut c = counters();
        c.mirror(0, 10);
        assert_eq!(c.get(0), 10);
        c.reset();
        c.mirror(0, 15);
        assert_eq!(c.get(0), 5);
        c.reset();
        c.mirror(0, 16);
        assert_eq!(c.get(0), 1);
    }

    #[test]
    fn loggers_are_in_the_order_of_their_names() {
        let (a, b) = (PerfCounters::new("b", SPECS), PerfCounters::new("a", SPECS));
        assert_eq!(histogram_dump(&[&a, &b], None, None, false), r#"{"a":{},"b":{}}"#);
    }
}
