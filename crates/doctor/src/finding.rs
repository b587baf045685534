//! Findings of rules, and the plan made of them.

use serde::Serialize;

/// Severity of a finding, rising.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// May help, depending on the load.
    Hint,
    /// Costs throughput or latency.
    Slow,
    /// Costs data, or correct results.
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

/// A change of a configuration file. It names the state that is wanted, not the text of the file
/// afterwards: the edits of all findings are put into one draft of each file ([`crate::draft`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Edit {
    /// A line is deleted.
    DropLine {
        /// The file, with its leading slash.
        file: String,
        /// Number of the line, from 1.
        line: usize,
    },
    /// A word of an `options` line is deleted, and the line with its last word.
    DropOption {
        /// The file, with its leading slash.
        file: String,
        /// Number of the line, from 1.
        line: usize,
        /// The parameter without its module.
        name: String,
    },
    /// Quotation marks around a line are deleted.
    Unquote {
        /// The file, with its leading slash.
        file: String,
        /// Number of the line, from 1.
        line: usize,
    },
    /// An option of a kernel module has this value, in every line that sets it, or else in a new
    /// one.
    ModuleOption {
        /// The module's name, such as `sunrpc`.
        module: &'static str,
        /// The parameter without its module.
        name: String,
        /// The value that it gets.
        value: String,
    },
    /// A sysctl has this value in every line that sets it, or else, if `or_add`, in a new one.
    Sysctl {
        /// The name, with dots.
        name: &'static str,
        /// The value that it gets.
        value: String,
        /// True if a line is added where there is none.
        or_add: bool,
    },
    /// A key of a section has this value.
    Ini {
        /// The file, with its leading slash.
        file: &'static str,
        /// The section's name, without brackets.
        section: &'static str,
        /// The key in that section.
        key: &'static str,
        /// The value that it gets.
        value: String,
    },
}

impl Edit {
    /// The edit in a sentence, for people.
    pub fn words(&self) -> String {
        match self {
            Edit::DropLine { file, line } => format!("delete {file}:{line}"),
            Edit::DropOption { file, line, name } => format!("delete {name} from {file}:{line}"),
            Edit::Unquote { file, line } => format!("{file}:{line} without quotation marks"),
            Edit::ModuleOption {
                module,
                name,
                value,
            } => format!("in /etc/modprobe.d: options {module} {name}={value}"),
            Edit::Sysctl { name, value, .. } => format!("in sysctl's files: {name} = {value}"),
            Edit::Ini {
                file,
                section,
                key,
                value,
            } => format!("in {file}: [{section}] {key}={value}"),
        }
    }
}

/// A change of a mount's options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Source of the mount: `server:/share` or `//server/share`.
    pub what: String,
    /// Path of the mount point.
    pub point: String,
    /// Words that are to be effective, such as `nconnect=16`.
    pub set: Vec<String>,
    /// Names of words that are deleted.
    pub drop: Vec<String>,
    /// True if the effective mount needs it; else only its line of fstab does.
    pub remount: bool,
}

/// The options of one mount, or of a line of fstab, once all changes are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MountFix {
    /// The mount or the line of fstab, as findings name it.
    pub subject: String,
    /// All options afterwards, separated by commas.
    pub options: String,
    /// Time at which they take effect, in words.
    pub effective: String,
}

/// Order of commands: after the files are written, and around mounting anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Settings of the running kernel, before anything is mounted.
    Kernel,
    /// Belongs to a mount and is lost when it is mounted anew.
    Mounted,
}

/// A command that makes a fix take effect now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Phase in which the command is run.
    pub phase: Phase,
    /// For a shell of root.
    pub command: String,
}

/// Remedy of a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// Changes of files, which `--fix` makes.
    pub edits: Vec<Edit>,
    /// Changes of mount options; those of one mount are put together.
    pub changes: Vec<Change>,
    /// Commands for what runs now; the doctor runs none.
    pub steps: Vec<Step>,
    /// Advice on what a person has to find out or decide. A finding with nothing else has no fix
    /// that is right everywhere.
    pub advice: Vec<String>,
    /// Time at which the fix takes effect, in words.
    pub effective: String,
}

/// A file as all fixes together leave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileFix {
    /// The file behind all links, with its leading slash.
    pub path: String,
    /// Content of the file afterwards.
    pub content: String,
    /// Commands that make this change. Run after it was made, they change nothing.
    pub commands: Vec<String>,
    /// Lines that the fixes delete.
    pub removed: Vec<String>,
    /// Lines that the fixes add.
    pub added: Vec<String>,
}

/// All fixes together, each file and each mount once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Files that change, sorted by path.
    pub files: Vec<FileFix>,
    /// Mounts and lines of fstab with changed options.
    pub mounts: Vec<MountFix>,
    /// Commands for what runs now, in order, once the files are written.
    pub commands: Vec<String>,
}

/// Finding of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule's name, stable: `nconnect`.
    pub rule: &'static str,
    /// Severity.
    pub severity: Severity,
    /// Subject: a mount point, a server, a file.
    pub subject: String,
    /// Observation, with its number.
    pub seen: String,
    /// Reason for which it matters, in a sentence.
    pub why: String,
    /// Remedy.
    pub fix: Fix,
    /// Gain to expect of the fix.
    pub gain: String,
}
