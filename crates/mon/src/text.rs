//! How figures, times and tables look to operators.
//!
//! Upstream: src/include/types.h (byte_u_t, si_u_t), src/common/TextTable.h, src/include/utime.h.

use std::time::Duration;
use types::Utime;

/// Bytes in binary units: `871 MiB`, `3.5 GiB`, `0 B`.
pub fn bytes(v: u64) -> String {
    scaled(v, 1024, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// A count in decimal units: `999`, `1.23k`.
pub fn si(v: u64) -> String {
    scaled(v, 1000, &["", "k", "M", "G", "T", "P", "E"])
}

fn scaled(v: u64, step: u64, units: &[&str]) -> String {
    let (mut n, mut at, mut factor) = (v, 0, 1u64);
    while n >= step && at + 1 < units.len() {
        n /= step;
        at += 1;
        factor *= step;
    }
    let unit = units.get(at).copied().unwrap_or_default();
    if v % factor == 0 {
        return format!("{n}{unit}");
    }
    let exact = v as f64 / factor as f64;
    let short = (0..=2).rev().map(|digits| format!("{exact:.digits$}{unit}")).find(|s| s.len() <= 7);
    short.unwrap_or_else(|| format!("{exact:.0}{unit}"))
}

/// A moment as upstream prints it: `2026-11-20T17:55:34.309581+0000`, or seconds when it is only an interval.
pub fn stamp(t: Utime) -> String {
    t.to_string()
}

/// How long ago, in one unit: `45s`, `2m`, `3h`, `9d`, `5w`, `4M`, `2y`.
pub fn age(d: Duration) -> String {
    let s = d.as_secs();
    let (m, h) = (s / 60, s / 3600);
    let (days, weeks) = (h / 24, h / 24 / 7);
    match () {
        () if s < 120 => format!("{s}s"),
        () if m < 120 => format!("{m}m"),
        () if h < 48 => format!("{h}h"),
        () if days < 14 => format!("{days}d"),
        () if weeks < 12 => format!("{weeks}w"),
        () if days < 365 * 2 => format!("{}M", days / 30),
        () => format!("{}y", days / 365),
    }
}

/// Six significant digits at most, as C++ streams print a number: `0.95`, `1`, `0.87251`.
pub fn short_float(v: f64) -> String {
    if v == 0.0 || !v.is_finite() {
        return if v == 0.0 { "0".into() } else { v.to_string() };
    }
    let magnitude = v.abs().log10().floor() as i32;
    if !(-5..6).contains(&magnitude) {
        let text = format!("{v:.5e}");
        let (mantissa, exp) = text.split_once('e').unwrap_or((&text, "0"));
        let exp: i32 = exp.parse().unwrap_or(0);
        return format!("{}e{}{:02}", trim_zeros(mantissa), if exp < 0 { '-' } else { '+' }, exp.abs());
    }
    let digits = usize::try_from(5 - magnitude).unwrap_or(0);
    trim_zeros(&format!("{v:.digits$}")).to_owned()
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Which side of its column a cell keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}
pub use Align::{Left, Right};

/// A table with aligned columns, two blanks apart. Every row is padded to the full width.
#[derive(Debug, Default)]
pub struct Table {
    columns: Vec<(String, Align, Align)>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    /// Columns as (heading, alignment of the heading, alignment of the cells).
    pub fn new(columns: &[(&str, Align, Align)]) -> Self {
        let columns = columns.iter().map(|(name, head, cell)| ((*name).to_owned(), *head, *cell)).collect();
        Table { columns, rows: Vec::new(), indent: 0 }
    }

    /// Adds a row; missing cells are blank.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The text, one line per row, heading first (unless every heading is empty).
    pub fn render(&self) -> String {
        let width = |i: usize| {
            let cells = self.rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
            cells.max(self.columns[i].0.chars().count())
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut out = String::new();
        let heads: Vec<&str> = self.columns.iter().map(|c| c.0.as_str()).collect();
        if heads.iter().any(|h| !h.is_empty()) {
            self.line(&mut out, &heads, &widths, |c| c.1);
        }
        for row in &self.rows {
            let cells: Vec<&str> = (0..self.columns.len()).map(|i| row.get(i).map_or("", String::as_str)).collect();
            self.line(&mut out, &cells, &widths, |c| c.2);
        }
        out
    }

    fn line(&self, out: &mut String, cells: &[&str], widths: &[usize], side: impl Fn(&(String, Align, Align)) -> Align) {
        out.extend(std::iter::repeat_n(' ', self.indent));
        for (i, ((cell, width), column)) in cells.iter().zip(widths).zip(&self.columns).enumerate() {
            let sep = if i == 0 { "" } else { "  " };
            match side(column) {
                Left => *out += &format!("{sep}{cell:<width$}"),
                Right => *out += &format!("{sep}{cell:>width$}"),
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_short_as_upstreams() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(913_092_608), "871 MiB");
        assert_eq!(bytes(3_775_853_312), "3.5 GiB");
        assert_eq!(bytes(12 << 30), "12 GiB");
        assert_eq!(si(999), "999");
        assert_eq!(si(1234), "1.23k");
    }

    #[test]
    fn moments_are_utc_with_microseconds() {
        assert_eq!(stamp(Utime { sec: 1_795_197_353, nsec: 839_466_000 }), "2026-11-20T17:55:53.839466+0000");
        assert_eq!(stamp(Utime::ZERO), "0.000000");
    }

    #[test]
    fn numbers_have_six_digits() {
        assert_eq!(short_float(0.95), "0.95");
        assert_eq!(short_float(1.0), "1");
        assert_eq!(short_float(f64::from(0.85f32)), "0.85");
        assert_eq!(short_float(83.666_666_67), "83.6667");
        assert_eq!(short_float(1e-7), "1e-07");
    }

    #[test]
    fn tables_pad_every_cell() {
        let mut t = Table::new(&[("ID", Left, Right), ("NAME", Left, Left)]);
        t.row(["-1", "root"]);
        t.row(["0", "a"]);
        assert_eq!(t.render(), "ID  NAME\n-1  root\n 0  a   \n");
    }
}
