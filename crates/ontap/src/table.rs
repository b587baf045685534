//! Tables in ONTAP's form.
//!
//! A column has a place where it starts and a width. A cell that is wider than its column stays
//! whole, and the next cell begins a new line at its own place. A value that repeats from the row
//! above, in columns that group, is left out. With `-fields` a column is as wide as its heading or
//! its first row, whichever is wider: later rows wrap where they do not fit. Blanks at a line's end
//! are left out.

use std::fmt::Write;

/// A column of a fixed table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading, a line each, bottom-aligned.
    pub heading: &'static [&'static str],
    /// Width in characters; behind a wider cell, the row continues on a new line.
    pub width: usize,
    /// Left out where it repeats the row above.
    pub groups: bool,
    /// The field that it shows, where it shows one.
    pub field: &'static str,
    /// Its cells end at its right edge.
    pub right: bool,
}

impl Column {
    /// Creates a column with this heading and width.
    pub const fn new(heading: &'static [&'static str], width: usize) -> Column {
        Column {
            heading,
            width,
            groups: false,
            field: "",
            right: false,
        }
    }

    /// Creates a column in which a value that repeats from the row above is left out.
    pub const fn grouping(heading: &'static [&'static str], width: usize) -> Column {
        Column {
            groups: true,
            ..Column::new(heading, width)
        }
    }

    /// Returns the column as one that shows a field.
    pub const fn with_field(mut self, field: &'static str) -> Column {
        self.field = field;
        self
    }

    /// Returns the column with cells that end at its right edge.
    pub const fn right(mut self) -> Column {
        self.right = true;
        self
    }
}

/// Starts of columns one blank apart.
fn starts(widths: &[usize]) -> Vec<usize> {
    widths
        .iter()
        .scan(0, |next, width| {
            let start = *next;
            *next += width + 1;
            Some(start)
        })
        .collect()
}

/// Appends a row; empty cells are left out.
fn row(out: &mut String, widths: &[usize], cells: &[Option<String>]) {
    let mut position = 0;
    let mut overflowed = false;
    for ((start, width), cell) in starts(widths).into_iter().zip(widths).zip(cells) {
        let Some(cell) = cell else { continue };
        if overflowed || position > start {
            out.push('\n');
            position = 0;
        }
        let length = cell.chars().count();
        let _ = write!(out, "{:indent$}{cell}", "", indent = start - position);
        position = start + length;
        overflowed = length > *width;
    }
    out.push('\n');
}

fn trimmed(text: &str) -> String {
    let lines = text.lines().map(str::trim_end);
    lines.fold(String::with_capacity(text.len()), |out, line| {
        out + line + "\n"
    })
}

/// Writes `2 entries were displayed.` for more than one.
fn counted(out: &mut String, rows: usize) {
    if rows > 1 {
        let _ = writeln!(out, "{rows} entries were displayed.");
    }
}

/// Returns a table of fixed columns.
pub fn fixed(columns: &[Column], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = columns.iter().map(|c| c.width).collect();
    let mut out = String::new();
    let height = columns.iter().map(|c| c.heading.len()).max().unwrap_or(0);
    for line in 0..height {
        let cells: Vec<Option<String>> = columns
            .iter()
            .map(|c| {
                let above = height - c.heading.len();
                Some(
                    line.checked_sub(above)
                        .and_then(|at| c.heading.get(at))
                        .unwrap_or(&"")
                        .to_string(),
                )
            })
            .collect();
        row(&mut out, &widths, &cells);
    }
    let rules: Vec<Option<String>> = widths
        .iter()
        .map(|width| Some("-".repeat(*width)))
        .collect();
    row(&mut out, &widths, &rules);
    trimmed(&out) + &plain(columns, rows)
}

/// Returns a table without the line below its headings, as `df` prints it.
pub fn unruled(columns: &[Column], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = columns.iter().map(|c| c.width).collect();
    let heading = |c: &Column| Some(c.heading.concat());
    let mut out = String::new();
    row(
        &mut out,
        &widths,
        &columns.iter().map(heading).collect::<Vec<_>>(),
    );
    trimmed(&out) + &plain(columns, rows)
}

/// Returns the rows of a table without its headings.
pub fn plain(columns: &[Column], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = columns.iter().map(|c| c.width).collect();
    let mut out = String::new();
    let mut above: Option<&Vec<String>> = None;
    for cells in rows {
        let mut same = true;
        let shown: Vec<Option<String>> = columns
            .iter()
            .zip(cells)
            .enumerate()
            .map(|(index, (column, cell))| {
                same = same
                    && column.groups
                    && above.is_some_and(|above| above.get(index) == Some(cell));
                (!same).then(|| cell.clone())
            })
            .collect();
        row(&mut out, &widths, &shown);
        above = Some(cells);
    }
    let mut out = trimmed(&out);
    counted(&mut out, rows.len());
    out
}

/// Returns the table that `-fields` prints.
pub fn fields(names: &[&str], rows: &[Vec<String>]) -> String {
    let first = rows.first();
    let widths: Vec<usize> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let cell = first
                .and_then(|row| row.get(index))
                .map_or(0, |cell| cell.chars().count());
            name.len().max(cell)
        })
        .collect();
    let mut out = String::new();
    row(
        &mut out,
        &widths,
        &names
            .iter()
            .map(|name| Some((*name).to_owned()))
            .collect::<Vec<_>>(),
    );
    row(
        &mut out,
        &widths,
        &widths
            .iter()
            .map(|width| Some("-".repeat(*width)))
            .collect::<Vec<_>>(),
    );
    for cells in rows {
        row(
            &mut out,
            &widths,
            &cells.iter().cloned().map(Some).collect::<Vec<_>>(),
        );
    }
    let mut out = trimmed(&out);
    counted(&mut out, rows.len());
    out
}

/// Returns what `-instance` prints: a line a field, headings to the right.
pub fn instances(rows: &[Vec<(&str, String)>]) -> String {
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let width = row.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in row {
            let _ = writeln!(out, "{name:>width$}: {value}");
        }
    }
    counted(&mut out, rows.len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_rows_wrap_where_the_first_row_set_the_width() {
        let rows = [
            vec![
                "SVM:vol_test".to_owned(),
                "SVM:vol_test_dst".to_owned(),
                "unlimited".to_owned(),
            ],
            vec![
                "SVM:vol_test".to_owned(),
                "SVM:vol_test_1_dst".to_owned(),
                "unlimited".to_owned(),
            ],
        ];
        assert_eq!(
            fields(&["source-path", "destination-path", "throttle"], &rows),
            "source-path  destination-path throttle\n\
             ------------ ---------------- ---------\n\
             SVM:vol_test SVM:vol_test_dst unlimited\n\
             SVM:vol_test SVM:vol_test_1_dst\n\
             \x20                             unlimited\n\
             2 entries were displayed.\n"
        );
        assert_eq!(
            fields(&["source-path", "destination-path", "throttle"], &rows[1..]),
            "source-path  destination-path   throttle\n\
             ------------ ------------------ ---------\n\
             SVM:vol_test SVM:vol_test_1_dst unlimited\n"
        );
    }
}
