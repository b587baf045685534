//! The Prometheus text format, as far as Weir writes it.

use std::collections::BTreeMap;

/// One sample: a line of the text.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The metric's name, such as `weir_uptime_seconds`.
    pub name: String,
    /// Its labels, by their names.
    pub labels: BTreeMap<String, String>,
    /// Its value, as the server wrote it.
    pub value: f64,
}

impl Sample {
    /// Returns a label's value, empty without it.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// Returns the samples of a page; lines that are none are passed over.
pub fn parse(page: &str) -> Vec<Sample> {
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(sample)
        .collect()
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, quoted) = rest.trim_start_matches(',').split_once("=\"")?;
            let mut value = String::new();
            let mut chars = quoted.char_indices();
            let end = loop {
                match chars.next()? {
                    (at, '"') => break at + 1,
                    (_, '\\') => match chars.next()?.1 {
                        'n' => value.push('\n'),
                        other => value.push(other),
                    },
                    (_, other) => value.push(other),
                }
            };
            labels.insert(label.to_owned(), value);
            rest = quoted.get(end..)?;
        }
    }
    Some(Sample {
        name: name.to_owned(),
        labels,
        value: rest.trim().parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_escapes() {
        let page = "# HELP a b\na 1\nb{x=\"p,\\\"}q\",y=\"\\\\\"} 2.5\nnonsense\nc{x=\"\n";
        let read = parse(page);
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].name.as_str(), read[0].value), ("a", 1.0));
        assert_eq!(
            (read[1].label("x"), read[1].label("y"), read[1].value),
            ("p,\"}q", "\\", 2.5)
        );
        assert_eq!(read[1].label("z"), "");
    }
}
