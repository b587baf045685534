//! What a rule says.

use serde::Serialize;

/// How much it matters, rising.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// May help, depending on the load.
    Hint,
    /// Costs speed.
    Slow,
    /// Costs data, or correct answers.
    Unsafe,
}

impl Severity {
    /// In capital letters, for people.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Hint => "HINT",
            Severity::Slow => "SLOW",
            Severity::Unsafe => "UNSAFE",
        }
    }
}

/// A file as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileFix {
    /// With its leading slash.
    pub path: String,
    /// What the file holds afterwards.
    pub content: String,
}

/// A change of a mount's options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What is mounted.
    pub what: String,
    /// Where.
    pub point: String,
    /// Words that are to stand there, such as `nconnect=16`.
    pub set: Vec<String>,
    /// Names of words that are to go.
    pub drop: Vec<String>,
}

/// All changes of one mount's options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Together {
    /// Which mount.
    pub subject: String,
    /// The options afterwards.
    pub options: String,
    /// How to make it so.
    pub fix: Fix,
}

/// What to do about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// Files that `--fix` writes.
    pub files: Vec<FileFix>,
    /// A change of mount options; those of one mount are put together before they are written.
    pub change: Option<Change>,
    /// Commands for a person to run, in order; the doctor runs none.
    pub commands: Vec<String>,
    /// When it takes effect.
    pub effective: String,
}

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule's name, stable: `nconnect`.
    pub rule: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What it is about: a mount point, a server, a file.
    pub subject: String,
    /// What was seen, with its number.
    pub seen: String,
    /// Why it matters.
    pub why: String,
    /// What to do.
    pub fix: Fix,
    /// What to expect of the fix.
    pub gain: String,
}
