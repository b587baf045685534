//! Lists of exceptions, which can only shrink.
//!
//! A list is a file in `crates/xtask/lists`: on each line a label, then figures; then, in a list
//! that needs them, a colon and the reason of the exception. What is on no list is a fault, and so
//! is what is better than its list says: the list is lowered with it (`cargo run -p xtask -- tidy
//! --write-lists`, which keeps the reasons).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folder of the lists, below the root.
const FOLDER: &str = "crates/xtask/lists";

/// Figures by label, each label's from the greatest.
pub type Figures = BTreeMap<String, Vec<usize>>;

/// Comparison of today's figures with the list's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// They have to be equal.
    Exactly,
    /// There have to be as many, none greater than on the list.
    ByNumber,
}

/// Reasons by label.
type Reasons = BTreeMap<String, String>;

/// True if each line of a list has to give a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The list is short-lived, or its label says it.
    Free,
    /// A line without one is a fault.
    Needed,
}

/// A list and what it holds.
#[derive(Debug)]
pub struct List {
    path: PathBuf,
    name: &'static str,
    compare: Compare,
    reason: Reason,
    listed: Figures,
    reasons: Reasons,
}

impl List {
    /// Reads a list; one that does not exist is empty.
    pub fn read(root: &Path, name: &'static str, compare: Compare, reason: Reason) -> Result<List> {
        let path = root.join(FOLDER).join(name);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context(format!("cannot read {FOLDER}/{name}")),
        };
        let (listed, reasons) =
            parse(&text).with_context(|| format!("cannot read {FOLDER}/{name}"))?;
        Ok(List {
            path,
            name,
            compare,
            reason,
            listed,
            reasons,
        })
    }

    /// Writes today's figures with the reasons that there were; `head` says what they are.
    pub fn write(&self, head: &str, today: &Figures) -> Result<()> {
        std::fs::write(&self.path, self.text(head, today))
            .with_context(|| format!("cannot write {}", self.name))
    }

    fn text(&self, head: &str, today: &Figures) -> String {
        let mut text = format!("# {head}\n");
        for (label, figures) in today {
            text.push_str(label);
            for figure in figures {
                text.push_str(&format!(" {figure}"));
            }
            if let Some(reason) = self.reasons.get(label) {
                text.push_str(&format!(": {reason}"));
            }
            text.push('\n');
        }
        text
    }

    /// Returns a line for each label whose figures are not those of the list, or that lacks its
    /// reason; `unit` says what is counted.
    pub fn faults(&self, unit: &str, today: &Figures) -> Vec<String> {
        let labels = today.keys().chain(self.listed.keys());
        let mut faults: Vec<String> = labels
            .filter_map(|label| self.fault(label, unit, today))
            .collect();
        if self.reason == Reason::Needed {
            let labels = self.listed.keys();
            let bare = labels.filter(|label| !self.reasons.contains_key(*label));
            let name = self.name;
            faults.extend(bare.map(|label| format!("{label}: {FOLDER}/{name} gives no reason")));
        }
        faults.sort();
        faults.dedup();
        faults
    }

    fn fault(&self, label: &str, unit: &str, today: &Figures) -> Option<String> {
        let of = |figures: &Figures| figures.get(label).cloned().unwrap_or_default();
        let (now, listed) = (of(today), of(&self.listed));
        let shown = |figures: &[usize]| {
            let words: Vec<String> = figures.iter().map(usize::to_string).collect();
            if words.is_empty() {
                "none".to_owned()
            } else {
                words.join(" ")
            }
        };
        let worse = now.len() > listed.len() || now.iter().zip(&listed).any(|(a, b)| a > b);
        let better = match self.compare {
            Compare::Exactly => now != listed,
            Compare::ByNumber => now.len() < listed.len(),
        };
        let (now, listed) = (shown(&now), shown(&listed));
        if worse {
            Some(format!(
                "{label}: {unit} {now}, {FOLDER}/{} allows {listed}",
                self.name
            ))
        } else if better {
            Some(format!(
                "{label}: {unit} {now}, lower {FOLDER}/{} from {listed} (tidy --write-lists)",
                self.name
            ))
        } else {
            None
        }
    }
}

fn parse(text: &str) -> Result<(Figures, Reasons)> {
    let (mut figures, mut reasons) = (Figures::new(), Reasons::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (line, reason) = line.split_once(':').unwrap_or((line, ""));
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let numbers = words
            .iter()
            .rev()
            .take_while(|w| w.parse::<usize>().is_ok());
        let tail = words.split_off(words.len() - numbers.count());
        let numbers = tail
            .iter()
            .map(|word| word.parse().context("cannot read a number"));
        let label = words.join(" ");
        figures.insert(label.clone(), numbers.collect::<Result<_>>()?);
        let reason = reason.trim();
        if !reason.is_empty() {
            reasons.insert(label, reason.to_owned());
        }
    }
    Ok((figures, reasons))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(compare: Compare, reason: Reason, text: &str) -> List {
        let (listed, reasons) = parse(text).unwrap();
        List {
            path: PathBuf::new(),
            name: "x.txt",
            compare,
            reason,
            listed,
            reasons,
        }
    }

    #[test]
    fn growth_and_shrinkage_are_faults() {
        let listed = "# Circles\nsmb 38 5\nvfs serve 90\n";
        for (compare, today, faults) in [
            (Compare::Exactly, "smb 38 5\nvfs serve 90", 0),
            (Compare::Exactly, "smb 38\nvfs serve 89", 2),
            (Compare::Exactly, "smb 39 5\nnfs 5", 3),
            (Compare::ByNumber, "smb 30 5\nvfs serve 71", 0),
            (Compare::ByNumber, "smb 38\nvfs serve 91", 2),
        ] {
            let (today_figures, _) = parse(today).unwrap();
            let list = list(compare, Reason::Free, listed);
            let found = list.faults("circles of", &today_figures);
            assert_eq!(found.len(), faults, "{today}: {found:?}");
        }
    }

    #[test]
    fn reasons_are_needed_and_kept() {
        let listed = "a one 90: a table: two columns\na two 80\na three 71:\n";
        let (today, _) = parse(listed).unwrap();
        let free = list(Compare::ByNumber, Reason::Free, listed);
        assert_eq!(free.faults("lines", &today), [""; 0]);
        let needed = list(Compare::ByNumber, Reason::Needed, listed);
        assert_eq!(
            needed.faults("lines", &today),
            [
                "a three: crates/xtask/lists/x.txt gives no reason",
                "a two: crates/xtask/lists/x.txt gives no reason"
            ]
        );
        assert_eq!(
            needed.text("Functions", &today),
            "# Functions\na one 90: a table: two columns\na three 71\na two 80\n"
        );
    }
}
