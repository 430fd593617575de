//! How figures, times and tables look to operators, in the short names this crate uses.

pub use admin::Align::{self, Left, Right};
use admin::{TextTable, human};
pub use human::{bytes, percent, si, timestamp as stamp};
use std::time::Duration;

/// How long ago, in one unit: `45s`, `2m`, `3h`.
pub fn age(d: Duration) -> String {
    human::age(d.as_nanos())
}

/// Six significant digits at most, as C++ streams print a number: `0.95`, `1`, `0.87251`.
pub fn short_float(v: f64) -> String {
    human::general(v, 6)
}

/// A table of columns: (heading, alignment of the heading, alignment of the cells).
pub fn table(columns: &[(&str, Align, Align)]) -> TextTable {
    columns.iter().fold(TextTable::new(), |t, (name, head, cell)| t.column(name, *head, *cell))
}
