//! Plain-text tables with Ceph's blanks: two between columns, every cell padded, the last one too.
//!
//! Upstream: src/common/TextTable.{h,cc}.

/// Where a cell's text stands in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Center,
    Right,
}

#[derive(Debug, Clone)]
struct Column {
    heading: String,
    heading_align: Align,
    align: Align,
    width: usize,
}

/// Columns, then rows cell by cell.
#[derive(Debug, Clone, Default)]
pub struct TextTable {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table without columns.
    pub fn new() -> Self {
        TextTable::default()
    }

    /// Adds a column; heading and cells may stand differently.
    pub fn column(mut self, heading: &str, heading_align: Align, align: Align) -> Self {
        self.columns.push(Column { heading: heading.into(), heading_align, align, width: heading.len() });
        self
    }

    /// Adds a column whose heading stands left and whose cells stand left.
    pub fn left(self, heading: &str) -> Self {
        self.column(heading, Align::Left, Align::Left)
    }

    /// Adds a column whose heading stands left and whose cells stand right: the usual one for figures.
    pub fn figures(self, heading: &str) -> Self {
        self.column(heading, Align::Left, Align::Right)
    }

    /// Adds a column with everything to the right.
    pub fn right(self, heading: &str) -> Self {
        self.column(heading, Align::Right, Align::Right)
    }

    /// Adds a row. Cells beyond the columns are dropped, missing ones are blank and unpadded.
    pub fn row<I: IntoIterator<Item = S>, S: Into<String>>(&mut self, cells: I) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).take(self.columns.len()).collect();
        row.resize(self.columns.len(), String::new());
        for (column, cell) in self.columns.iter_mut().zip(&row) {
            column.width = column.width.max(cell.len());
        }
        self.rows.push(row);
    }

    /// True before the first row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The whole table, each line ended.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let heading: Vec<String> =
            self.columns.iter().map(|c| pad(&c.heading, c.width, c.heading_align)).collect();
        out.push_str(&heading.join("  "));
        out.push('\n');
        for row in &self.rows {
            let cells: Vec<String> = row.iter().zip(&self.columns).map(|(s, c)| pad(s, c.width, c.align)).collect();
            out.push_str(&cells.join("  "));
            out.push('\n');
        }
        out
    }
}

/// `text` in `width` bytes.
fn pad(text: &str, width: usize, align: Align) -> String {
    let free = width.saturating_sub(text.len());
    let before = match align {
        Align::Left => 0,
        Align::Center => (width / 2).saturating_sub(text.len() / 2).min(free),
        Align::Right => free,
    };
    format!("{}{text}{}", " ".repeat(before), " ".repeat(free - before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_is_padded_too() {
        let mut t = TextTable::new().left("ID").right("CLASS").left("TYPE NAME");
        t.row(["-1", "", "root default"]);
        t.row(["0", "hdd", "    osd.0"]);
        assert_eq!(t.render(), "ID  CLASS  TYPE NAME   \n-1         root default\n0     hdd      osd.0   \n");
    }

    #[test]
    fn figures_stand_right_under_a_left_heading() {
        let mut t = TextTable::new().figures("osd").figures("commit_latency(ms)");
        t.row(["2", "3"]);
        assert_eq!(t.render(), "osd  commit_latency(ms)\n  2                   3\n");
    }
}
