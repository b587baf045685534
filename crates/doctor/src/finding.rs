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

/// A change of a configuration file. It names what is to be so, not how the file reads afterwards: the edits of all
/// findings are put into one draft of each file ([`crate::draft`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Edit {
    /// A line goes.
    DropLine {
        /// The file, with its leading slash.
        file: String,
        /// Counted from 1.
        line: usize,
    },
    /// A word of an `options` line goes, the line with its last word.
    DropOption {
        /// The file, with its leading slash.
        file: String,
        /// Counted from 1.
        line: usize,
        /// The parameter without its module.
        name: String,
    },
    /// Quotation marks around a line go.
    Unquote {
        /// The file, with its leading slash.
        file: String,
        /// Counted from 1.
        line: usize,
    },
    /// An option of a kernel module has this value, in every line that sets it, or else in a new one.
    ModuleOption {
        /// The module.
        module: &'static str,
        /// The parameter.
        name: String,
        /// Its value.
        value: String,
    },
    /// A sysctl has this value in every line that sets it, or else, if `or_add`, in a new one.
    Sysctl {
        /// The name, with dots.
        name: &'static str,
        /// Its value.
        value: String,
        /// Whether a line is added where there is none.
        or_add: bool,
    },
    /// A key of a section has this value.
    Ini {
        /// The file, with its leading slash.
        file: &'static str,
        /// The section.
        section: &'static str,
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

impl Edit {
    /// For people.
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
    /// What is mounted.
    pub what: String,
    /// The mount point.
    pub point: String,
    /// Words that are to be in force, such as `nconnect=16`.
    pub set: Vec<String>,
    /// Names of words that are to go.
    pub drop: Vec<String>,
    /// Whether the mount in force needs it; else only its line of fstab does.
    pub remount: bool,
}

/// The options of one mount, or of a line of fstab, once all changes are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MountFix {
    /// Which mount.
    pub subject: String,
    /// The options afterwards.
    pub options: String,
    /// When they take effect.
    pub effective: String,
}

/// When a command is run, in this order: after the files, and around mounting anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Settings of the running kernel, before anything is mounted.
    Kernel,
    /// What belongs to a mount and is lost when it is mounted anew.
    Mounted,
}

/// A command that makes a fix take effect now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// When.
    pub phase: Phase,
    /// For a shell of root.
    pub command: String,
}

/// What to do about a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// Changes of files, which `--fix` makes.
    pub edits: Vec<Edit>,
    /// Changes of mount options; those of one mount are put together.
    pub changes: Vec<Change>,
    /// Commands for what runs now; the doctor runs none.
    pub steps: Vec<Step>,
    /// What a person has to find out or decide. A finding with nothing else has no fix that is right everywhere.
    pub advice: Vec<String>,
    /// When it takes effect.
    pub effective: String,
}

/// A file as all fixes together leave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileFix {
    /// The file behind all links, with its leading slash.
    pub path: String,
    /// What it holds afterwards.
    pub content: String,
    /// The same change as commands. Run after it was made, they change nothing.
    pub commands: Vec<String>,
    /// Lines that go.
    pub removed: Vec<String>,
    /// Lines that come.
    pub added: Vec<String>,
}

/// All fixes together, each file and each mount once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Files that change.
    pub files: Vec<FileFix>,
    /// Mounts and lines of fstab whose options change.
    pub mounts: Vec<MountFix>,
    /// Commands for what runs now, in order, once the files are written.
    pub commands: Vec<String>,
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
