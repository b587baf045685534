//! A page in the Prometheus text format.

use std::fmt::Write as _;

/// A page under construction.
#[derive(Default)]
pub(super) struct Page {
    pub(super) text: String,
}

impl Page {
    /// Begins a family of samples.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample to the family begun last.
    pub(super) fn sample(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: impl std::fmt::Display,
    ) {
        self.text.push_str(name);
        let mut open = '{';
        for (label, value) in labels {
            let _ = write!(self.text, "{open}{label}=\"");
            for c in value.chars() {
                match c {
                    '"' => self.text.push_str("\\\""),
                    '\\' => self.text.push_str("\\\\"),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
            open = ',';
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}
