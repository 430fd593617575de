//! `iostat`: one framed line of traffic, under headings now and then.
//!
//! Upstream: src/pybind/mgr/iostat/module.py.

use admin::human::bytes;
use types::pg::IoRates;

const HEADINGS: [&str; 6] = ["Read", "Write", "Total", "Read IOPS", "Write IOPS", "Total IOPS"];

/// A line `width` characters wide, after the headings if `header`.
pub fn line(io: &IoRates, width: usize, header: bool) -> String {
    let cell = (width.saturating_sub(HEADINGS.len() + 1) / HEADINGS.len()).max(12);
    let row = |cells: [String; 6]| {
        let cells: Vec<String> = cells.iter().map(|text| format!("{text:>w$} ", w = cell - 1)).collect();
        format!("|{}|\n", cells.join("|"))
    };
    let per_second = |n: u64| format!("{}/s", bytes(n));
    let mut out = String::new();
    if header {
        let rule = format!("+{}\n", format!("{}+", "-".repeat(cell)).repeat(HEADINGS.len()));
        out += &format!("{rule}{}{rule}", row(HEADINGS.map(str::to_string)));
    }
    out + &row([
        per_second(io.read_bytes),
        per_second(io.write_bytes),
        per_second(io.read_bytes + io.write_bytes),
        io.read_ops.to_string(),
        io.write_ops.to_string(),
        (io.read_ops + io.write_ops).to_string(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_is_as_stock_draws_it() {
        let wanted = "\
+------------+------------+------------+------------+------------+------------+
|       Read |      Write |      Total |  Read IOPS | Write IOPS | Total IOPS |
+------------+------------+------------+------------+------------+------------+
|      0 B/s |   14 KiB/s |   14 KiB/s |          0 |          0 |          0 |
";
        let io = IoRates { write_bytes: 14_107, ..IoRates::default() };
        assert_eq!(line(&io, 80, true), wanted);
        assert_eq!(line(&io, 80, false).lines().count(), 1);
    }
}
