//! Help with an unfinished line: what may follow (`?`, `help`), and how its last word may be
//! completed (Tab).
//!
//! An unfinished line is command words, each possibly abbreviated, then arguments. Its last word is
//! unfinished unless blank space follows it. What an argument's value may be is either known here,
//! or is asked of the node: [`live`] says which `show` has it.

use crate::commands::catalogue::COMMANDS;
use crate::grammar::{Command, Parameter, parameter};

/// A line as far as it goes.
struct PartialLine<'l> {
    /// Commands whose words begin as the line does.
    candidates: Vec<&'static Command>,
    /// The command that the words name in full, if arguments may follow.
    command: Option<&'static Command>,
    /// Number of command words before the last word.
    depth: usize,
    /// Words behind the command, the last one left out.
    arguments: Vec<&'l str>,
    /// The unfinished word; empty behind blank space.
    last: &'l str,
}

impl<'l> PartialLine<'l> {
    /// Reads an unfinished line; `None` if it begins like no command.
    fn read(line: &'l str) -> Option<PartialLine<'l>> {
        let ends = line.ends_with(char::is_whitespace) || line.is_empty();
        let mut all: Vec<&str> = line.split_whitespace().collect();
        let last = match ends {
            true => "",
            false => all.pop().unwrap_or_default(),
        };
        let mut candidates: Vec<&'static Command> = COMMANDS.iter().collect();
        let mut depth = 0;
        for word in &all {
            if word.starts_with('-') {
                break;
            }
            let exact = candidates.iter().any(|c| c.path.get(depth) == Some(word));
            let fits = |c: &&'static Command| {
                c.path.get(depth).is_some_and(|name| match exact {
                    true => name == word,
                    false => name.starts_with(word),
                })
            };
            if !candidates.iter().any(fits) {
                // A value without its name.
                match candidates.iter().any(|c| c.path.len() == depth) && depth > 0 {
                    true => break,
                    false => return None,
                }
            }
            candidates.retain(fits);
            depth += 1;
        }
        let command = candidates.iter().copied().find(|c| c.path.len() == depth);
        Some(PartialLine {
            candidates,
            command,
            depth,
            arguments: all.split_off(depth),
            last,
        })
    }

    /// Returns the argument whose value the last word is.
    fn value_of(&self) -> Option<&'static Parameter> {
        let name = self.arguments.last()?.strip_prefix('-')?;
        let parameter = parameter(self.command?, name).ok()?;
        (!self.last.starts_with('-') && !parameter.value.is_empty()).then_some(parameter)
    }

    /// Returns the arguments that are not there yet.
    fn open(&self) -> impl Iterator<Item = &'static Parameter> {
        let command = self.command;
        let used: Vec<&'static str> = self
            .arguments
            .iter()
            .filter_map(|word| parameter(command?, word.strip_prefix('-')?).ok())
            .map(|p| p.name)
            .collect();
        let all = command.map_or(&[][..], |c| c.parameters).iter();
        all.filter(move |p| !p.aside && !used.contains(&p.name))
    }

    /// Returns the names that may take the place of the last word, among commands.
    fn words(&self) -> impl Iterator<Item = &'static str> {
        let (depth, last) = (self.depth, self.last);
        let names = self
            .candidates
            .iter()
            .filter_map(move |c| c.path.get(depth).copied());
        names.filter(move |name| name.starts_with(last))
    }
}

/// Returns a value's part before the last comma, and the part that is being written.
fn listed(value: &str) -> (&str, &str) {
    match value.rfind(',') {
        Some(at) => value.split_at(at + 1),
        None => ("", value),
    }
}

/// Values that are the same at every node.
fn known(command: &'static Command, parameter: &'static Parameter) -> Vec<&'static str> {
    match (parameter.name, parameter.value) {
        ("fields", _) => {
            let all = command.parameters.iter().filter(|p| !p.aside);
            let all = all.map(|p| p.name);
            all.filter(|name| !matches!(*name, "fields" | "instance"))
                .collect()
        }
        ("option-name", _) => crate::commands::OPTION_NAMES.to_vec(),
        ("type", "XDP") => vec!["XDP"],
        ("healthy", _) => vec!["true", "false"],
        (_, choices) if choices.contains('|') => choices.split('|').collect(),
        _ => Vec::new(),
    }
}

/// Source of an argument's values at a node: a command's `show`, and the fields of which a value is
/// made, joined by `:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// The command without `show`.
    pub command: &'static [&'static str],
    /// The fields of which a value is made.
    pub fields: &'static [&'static str],
}

/// Returns the source of the values that the last word of an unfinished line may become, if only
/// the node knows.
pub fn live(line: &str) -> Option<Live> {
    let unfinished = PartialLine::read(line)?;
    let parameter = unfinished.value_of()?;
    let command = unfinished.command?;
    let of = |command: &'static [&'static str], fields: &'static [&'static str]| {
        Some(Live { command, fields })
    };
    match (command.path, parameter.name) {
        (["snapmirror", "create" | "initialize"], "destination-path") | (_, "source-path") => {
            of(&["volume"], &["vserver", "volume"])
        }
        (_, "destination-path") => of(&["snapmirror"], &["destination-path"]),
        (["job", "schedule", ..], "name") | (_, "schedule") => of(&["job", "schedule"], &["name"]),
        (["volume", "snapshot", "policy", ..], "policy") | (_, "snapshot-policy") => {
            of(&["volume", "snapshot", "policy"], &["policy"])
        }
        (["volume", ..], "policy") => None,
        (_, "qos-policy-group") => of(&["qos", "policy-group"], &["policy-group"]),
        (_, "policy") => of(&["snapmirror", "policy"], &["policy"]),
        (["volume", "create"], "volume") => None,
        (_, "volume" | "parent-volume") => of(&["volume"], &["volume"]),
        (_, "vserver") => of(&["volume"], &["vserver"]),
        (["snapshot" | "volume", .., "create"], "snapshot") => None,
        (_, "snapshot" | "source-snapshot" | "parent-snapshot") => of(&["snapshot"], &["snapshot"]),
        (["cluster", "peer", "create"], "cluster") => None,
        (["cluster", "peer", ..], "cluster") => of(&["cluster", "peer"], &["cluster"]),
        _ => None,
    }
}

/// Returns what the last word of an unfinished line may become: words of commands, names of
/// arguments, values. `node` returns the values at the node.
pub fn complete(line: &str, node: impl FnOnce(Live) -> Vec<String>) -> Vec<String> {
    let Some(unfinished) = PartialLine::read(line) else {
        return Vec::new();
    };
    let last = unfinished.last;
    let mut found: Vec<String> = Vec::new();
    if let (Some(command), Some(parameter)) = (unfinished.command, unfinished.value_of()) {
        let (before, part) = listed(last);
        let fixed = known(command, parameter).into_iter().map(str::to_owned);
        let all: Vec<String> = match live(line) {
            Some(live) => fixed.chain(node(live)).collect(),
            None => fixed.collect(),
        };
        let fitting = all.into_iter().filter(|value| value.starts_with(part));
        found.extend(fitting.map(|value| format!("{before}{value}")));
    } else {
        let bare = unfinished.arguments.is_empty();
        if unfinished.command.is_some() && (last.is_empty() || last.starts_with('-')) {
            let names = unfinished.open().map(|p| format!("-{}", p.name));
            found.extend(names.filter(|name| name.starts_with(last)));
        }
        if bare {
            found.extend(unfinished.words().map(str::to_owned));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Returns what a line asks for help about: the part before its `?`, or behind its `help`.
pub fn asked(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let trimmed = line.trim_end();
    if let Some(before) = trimmed.strip_suffix('?') {
        return Some(before.trim_end_matches('?'));
    }
    match trimmed.strip_prefix("help") {
        Some("") => Some(""),
        // `help snapmirror` is `snapmirror ?`, not a word to be completed.
        Some(rest) if rest.starts_with(char::is_whitespace) => Some(rest.trim_start()),
        _ => None,
    }
}

/// Returns what may follow a line, as a table; `Err` if the line begins like no command.
pub fn help(line: &str) -> Result<String, String> {
    let unknown = || {
        let word = line.split_whitespace().next().unwrap_or_default();
        format!("\"{word}\" is not a recognized command")
    };
    let unfinished = PartialLine::read(line).ok_or_else(unknown)?;
    if let (Some(command), Some(parameter)) = (unfinished.command, unfinished.value_of()) {
        let mut out = format!("  <{}>\n", parameter.value);
        for value in known(command, parameter) {
            out.push_str(&format!("  {value}\n"));
        }
        return Ok(out);
    }
    // `snapmirror upd?` names a command as `snapmirror upd ?` does.
    let words: Vec<&'static Command> = unfinished
        .candidates
        .iter()
        .copied()
        .filter(|c| match (c.path.get(unfinished.depth), unfinished.last) {
            (None, last) => last.is_empty() || last.starts_with('-'),
            (Some(name), last) => unfinished.arguments.is_empty() && name.starts_with(last),
        })
        .collect();
    let only = match (unfinished.command, words.as_slice()) {
        (Some(command), [] | [_]) if words.iter().all(|c| c.path == command.path) => Some(command),
        (_, [only]) => Some(*only),
        _ => None,
    };
    let Some(command) = only else {
        if words.is_empty() {
            return Err(unknown());
        }
        let lines = words
            .iter()
            .map(|c| format!("  {:<36} {}\n", c.name(), c.about));
        return Ok(lines.collect());
    };
    let named: Vec<&'static Parameter> = match unfinished.command {
        Some(_) => unfinished.open().collect(),
        None => command.parameters.iter().filter(|p| !p.aside).collect(),
    };
    let prefix = unfinished.last.strip_prefix('-').unwrap_or_default();
    let lines: Vec<String> = named
        .into_iter()
        .filter(|p| p.name.starts_with(prefix))
        .map(|p| {
            let value = match p.value {
                "" => String::new(),
                value => format!(" <{value}>"),
            };
            let must = if p.required { "" } else { "(optional)" };
            let text = format!("-{}{value}", p.name);
            format!("  {text:<44} {must}").trim_end().to_owned() + "\n"
        })
        .collect();
    match lines.is_empty() {
        true => Ok(format!("  {:<36} {}\n", command.name(), command.about)),
        false => Ok(lines.concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(line: &str) -> Vec<String> {
        complete(line, |live| panic!("{line} asks the node for {live:?}"))
    }

    #[test]
    fn values_that_are_known() {
        assert_eq!(fixed("snapmirror show -healthy "), ["false", "true"]);
        assert_eq!(fixed("snapmirror show -fields stat"), ["state", "status"]);
        assert_eq!(
            fixed("snapmirror show -fields state,thr"),
            ["state,throttle"]
        );
        assert_eq!(fixed("volume create -type D"), ["DP"]);
        assert_eq!(
            fixed("options modify -option-name replication.throttle.in"),
            ["replication.throttle.incoming.max_kbs"]
        );
        assert_eq!(fixed("snapmirror update -throttle "), [""; 0]);
    }

    #[test]
    fn values_that_the_node_knows() {
        let node = |live: Live| {
            assert_eq!(live.command, ["snapmirror"]);
            vec!["a:b".to_owned(), "a:c".to_owned(), "x:y".to_owned()]
        };
        assert_eq!(complete("snapmirror upd -dest a:", node), ["a:b", "a:c"]);
        let policy = live("snapmirror create -policy M").unwrap();
        assert_eq!(policy.command, ["snapmirror", "policy"]);
        assert_eq!(
            live("snapshot create -vserver s -volume v -snapshot "),
            None
        );
        assert_eq!(live("snapmirror show -"), None);
    }

    #[test]
    fn what_asks_for_help() {
        assert_eq!(asked("?"), Some(""));
        assert_eq!(asked("help"), Some(""));
        assert_eq!(asked("snapmirror ?"), Some("snapmirror "));
        assert_eq!(asked("help snapmirror update"), Some("snapmirror update"));
        assert_eq!(asked("helpless"), None);
        assert_eq!(asked("snapmirror show"), None);
    }

    #[test]
    fn what_may_follow() {
        assert_eq!(help("").unwrap().lines().count(), COMMANDS.len());
        assert!(
            help("snapm pol")
                .unwrap()
                .contains("snapmirror policy add-rule")
        );
        for line in ["snapmirror quiesce ", "snapmirror quiesce", "snapm qu"] {
            assert_eq!(
                help(line).unwrap(),
                "  -destination-path <SVM:volume>\n  -source-path <SVM:volume>                    (optional)\n",
                "{line}"
            );
        }
        assert_eq!(
            help("snapmirror update -destination-path a:b -thr").unwrap(),
            "  -throttle <throttle>                         (optional)\n"
        );
        assert_eq!(
            help("volume show -type ").unwrap(),
            "  <RW|DP>\n  RW\n  DP\n"
        );
        assert!(help("version ").unwrap().contains("version"));
        assert!(help("options ").unwrap().contains("options modify"));
        assert!(help("nothing").is_err() && help("snapmirror nothing").is_err());
    }
}
