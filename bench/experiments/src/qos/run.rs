//! A run under way: its cases, their verdicts, the lines of its table.

use super::plot;
use super::server::Server;
use serde::Serialize;
use std::io::Write;
use weir_bench::error::BenchError;

/// Duration of cases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) quick: bool,
    /// Least seconds of a case.
    pub(crate) least: f64,
    /// Factor of tolerances.
    pub(crate) margin: f64,
}

/// Verdict on a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The target is met.
    Met,
    /// The target is not met.
    Missed,
    /// The load does not offer what it takes.
    NotOffered,
    /// There is no target: a figure to know.
    Stated,
}

impl Verdict {
    /// Returns the verdict on a case that has a target.
    pub(crate) fn from_met(met: bool) -> Verdict {
        match met {
            true => Verdict::Met,
            false => Verdict::Missed,
        }
    }
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the case.
    pub case: String,
    /// The target, in words.
    pub target: String,
    /// Measured value, in words.
    pub achieved: String,
    /// Verdict on it.
    pub verdict: Verdict,
    /// The numbers behind it, for the JSON.
    pub data: serde_json::Value,
}

/// `--only TEXT`: which cases are run. It remembers the names of all that it was asked about, for
/// the message that none is meant.
#[derive(Debug, Default)]
pub(crate) struct Only {
    text: String,
    names: std::cell::RefCell<Vec<String>>,
}

impl Only {
    pub(crate) fn new(text: &str) -> Only {
        Only {
            text: text.to_owned(),
            names: std::cell::RefCell::default(),
        }
    }

    /// Returns true if a case is one of them.
    pub(crate) fn wants(&self, case: &str) -> bool {
        let mut names = self.names.borrow_mut();
        if !names.iter().any(|name| name == case) {
            names.push(case.to_owned());
        }
        case.contains(&self.text)
    }

    /// An error if nothing was run: a run without cases would pass.
    pub(crate) fn found(&self, nothing: bool) -> Result<(), BenchError> {
        let names = self.names.borrow();
        match nothing {
            true => Err(BenchError::Usage(format!(
                "--only '{}' leaves no case to run; there are: {}",
                self.text,
                names.join(", ")
            ))),
            false => Ok(()),
        }
    }
}

/// A run under way.
pub(crate) struct Run {
    pub(crate) server: Server,
    pub(crate) timing: Timing,
    pub(crate) rows: Vec<Row>,
    pub(crate) plots: Vec<plot::Line>,
    pub(crate) changes: Vec<plot::Line>,
    pub(super) asked: Only,
}

impl Run {
    /// Returns true if a case was asked for.
    pub(crate) fn wants(&self, case: &str) -> bool {
        self.asked.wants(case)
    }

    pub(crate) fn row(&mut self, row: Row) {
        let verdict = verdict_name(row.verdict);
        // The reader of a pipe may stop reading.
        let _ = writeln!(
            std::io::stdout(),
            "{verdict:<12} {:<58} {:<34} {}",
            row.case,
            row.target,
            row.achieved
        );
        self.rows.push(row);
    }
}

pub(crate) fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::Missed => "MISSED",
        Verdict::NotOffered => "not offered",
        Verdict::Stated => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_no_case_is_an_error_with_the_names() {
        let only = Only::new("chang");
        assert!(only.wants("change") && !only.wants("weights"));
        assert!(only.found(false).is_ok());
        let only = Only::new("chanqe");
        assert!(!only.wants("change") && !only.wants("weights"));
        let error = only.found(true).unwrap_err().to_string();
        assert!(
            error.contains("chanqe") && error.contains("change, weights"),
            "{error}"
        );
    }
}
