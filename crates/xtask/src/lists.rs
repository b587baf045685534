//! Lists of exceptions, which can only shrink.
//!
//! A list is a file in `crates/xtask/lists`: on each line a label, then figures. What is on no list
//! is a fault, and so is what is better than its list says: the list is lowered with it (`cargo run
//! -p xtask -- tidy --write-lists`).

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

/// A list and what it holds.
#[derive(Debug)]
pub struct List {
    path: PathBuf,
    name: &'static str,
    compare: Compare,
    listed: Figures,
}

impl List {
    /// Reads a list; one that does not exist is empty.
    pub fn read(root: &Path, name: &'static str, compare: Compare) -> Result<List> {
        let path = root.join(FOLDER).join(name);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context(format!("cannot read {FOLDER}/{name}")),
        };
        let listed = parse(&text).with_context(|| format!("cannot read {FOLDER}/{name}"))?;
        Ok(List {
            path,
            name,
            compare,
            listed,
        })
    }

    /// Writes today's figures; `head` says what they are.
    pub fn write(&self, head: &str, today: &Figures) -> Result<()> {
        let mut text = format!("# {head}\n");
        for (label, figures) in today {
            text.push_str(label);
            for figure in figures {
                text.push_str(&format!(" {figure}"));
            }
            text.push('\n');
        }
        std::fs::write(&self.path, text).with_context(|| format!("cannot write {}", self.name))
    }

    /// Returns a line for each label whose figures are not those of the list; `unit` says what is
    /// counted.
    pub fn faults(&self, unit: &str, today: &Figures) -> Vec<String> {
        let labels = today.keys().chain(self.listed.keys());
        let mut faults: Vec<String> = labels
            .filter_map(|label| self.fault(label, unit, today))
            .collect();
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

fn parse(text: &str) -> Result<Figures> {
    let mut figures = Figures::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let numbers = words
            .iter()
            .rev()
            .take_while(|w| w.parse::<usize>().is_ok());
        let tail = words.split_off(words.len() - numbers.count());
        let numbers = tail
            .iter()
            .map(|word| word.parse().context("cannot read a number"));
        figures.insert(words.join(" "), numbers.collect::<Result<_>>()?);
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(compare: Compare, text: &str) -> List {
        List {
            path: PathBuf::new(),
            name: "x.txt",
            compare,
            listed: parse(text).unwrap(),
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
            let found = list(compare, listed).faults("circles of", &parse(today).unwrap());
            assert_eq!(found.len(), faults, "{today}: {found:?}");
        }
    }
}
