//! Reads tables of Markdown documents, so that tests can compare documents with the code.

/// Returns the rows of the first table whose header begins with these columns, after the line that
/// contains `after`. Cells are trimmed.
///
/// # Panics
/// If there is no such table: for tests.
#[must_use]
pub fn table<'a>(text: &'a str, after: &str, columns: &[&str]) -> Vec<Vec<&'a str>> {
    let mut lines = text.lines();
    let found = lines.by_ref().any(|line| line.contains(after));
    assert!(found, "the document has no line with {after:?}");
    let header = lines.by_ref().find(|line| {
        let cells = cells(line);
        cells.len() >= columns.len() && cells.iter().zip(columns).all(|(a, b)| a == b)
    });
    assert!(header.is_some(), "no table {columns:?} behind {after:?}");
    lines
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(cells)
        .collect()
}

fn cells(line: &str) -> Vec<&str> {
    let inner = line.strip_prefix('|').and_then(|l| l.strip_suffix('|'));
    inner.map_or_else(Vec::new, |inner| inner.split('|').map(str::trim).collect())
}

/// Checks that the rows of a table of fields (offset, bytes, …) follow one another, from 0 to
/// `end`. A field of `…` bytes is the last one.
///
/// # Panics
/// If they do not: for tests.
pub fn check_offsets(rows: &[Vec<&str>], end: usize) {
    let mut at = 0;
    for row in rows {
        let [offset, bytes, ..] = row.as_slice() else {
            unreachable!("a row of fewer than two cells: {row:?}");
        };
        assert_eq!(offset.parse(), Ok(at), "the offset of {row:?}");
        match bytes.parse::<usize>() {
            Ok(bytes) => at += bytes,
            Err(_) => break,
        }
    }
    assert_eq!(at, end, "the end of {rows:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# A\n| Offset | Bytes | Field |\n|--:|--:|---|\n| 0 | 4 | a |\n| 4 | … | b, 2 |\n\n# B\n";

    #[test]
    fn tables_are_found() {
        let rows = table(TEXT, "# A", &["Offset", "Bytes"]);
        assert_eq!(rows, [vec!["0", "4", "a"], vec!["4", "…", "b, 2"]]);
        check_offsets(&rows, 4);
    }

    #[test]
    #[should_panic(expected = "no table")]
    fn what_is_not_there_is_an_error() {
        let _ = table(TEXT, "# B", &["Offset"]);
    }

    #[test]
    #[should_panic(expected = "the end of")]
    fn wrong_lengths_are_an_error() {
        check_offsets(&table(TEXT, "# A", &["Offset"]), 5);
    }
}
