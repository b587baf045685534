//! A page in the Prometheus text format, made piece by piece as its reader takes it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use weir_base::limits::api::METRICS_PIECE;

/// Name, type and meaning of a family of samples.
pub type Family = (&'static str, &'static str, &'static str);

/// A step: adds some lines, and returns false when it has no more.
type Step = Box<dyn FnMut(&mut Page) -> bool + Send>;

/// A page as the steps that are left of it. Only one piece of its text is in memory.
#[derive(Default)]
pub struct Pieces(VecDeque<Step>);

impl Pieces {
    /// Adds lines that are few, however many volumes there are.
    pub fn then(&mut self, write: impl FnOnce(&mut Page) + Send + 'static) {
        let mut write = Some(write);
        self.0.push_back(Box::new(move |page| {
            if let Some(write) = write.take() {
                write(page);
            }
            false
        }));
    }

    /// Adds the lines of each item, one item a step.
    pub fn each<T: Send + Sync + 'static>(
        &mut self,
        items: &Arc<[T]>,
        write: impl Fn(&mut Page, &T) + Send + 'static,
    ) {
        let (items, mut next) = (Arc::clone(items), 0);
        self.0.push_back(Box::new(move |page| {
            let Some(item) = items.get(next) else {
                return false;
            };
            write(page, item);
            next += 1;
            true
        }));
    }

    /// Adds the head of a family.
    pub fn family(&mut self, (name, kind, help): Family) {
        self.then(move |page| page.family(name, kind, help));
    }
}

impl Iterator for Pieces {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut page = Page::default();
        while page.text.len() < METRICS_PIECE
            && let Some(step) = self.0.front_mut()
        {
            if !step(&mut page) {
                self.0.pop_front();
            }
        }
        Some(page.text).filter(|text| !text.is_empty())
    }
}

/// A piece of a page under construction.
#[derive(Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// Begins a family of samples.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample to the family begun last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
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
