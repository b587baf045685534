//! Words into a command with arguments, by a table of commands.

use crate::words;

/// An argument that a command takes.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name, without the dash.
    pub name: &'static str,
    /// Kind of its value, for messages and help: `text`, `throttle`, …; empty for a switch that
    /// takes none.
    pub value: &'static str,
    /// True if it has to be there.
    pub required: bool,
    /// Not shown in help, and never abbreviated.
    pub aside: bool,
}

/// Creates an argument that has to be there.
pub(crate) const fn must(name: &'static str, value: &'static str) -> Parameter {
    Parameter {
        name,
        value,
        required: true,
        aside: false,
    }
}

/// Creates an argument that may be there.
pub(crate) const fn may(name: &'static str, value: &'static str) -> Parameter {
    Parameter {
        required: false,
        ..must(name, value)
    }
}

/// Creates an argument that takes no value.
pub(crate) const fn switch(name: &'static str) -> Parameter {
    may(name, "")
}

/// A command of the table.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its words, such as `snapmirror` and `modify`.
    pub path: &'static [&'static str],
    /// Purpose, in a few words.
    pub about: &'static str,
    /// The arguments that it takes.
    pub parameters: &'static [Parameter],
}

impl Command {
    /// Returns its words joined, such as `snapmirror modify`.
    pub fn name(&self) -> String {
        self.path.join(" ")
    }
}

/// A command as it was meant.
#[derive(Clone, Debug)]
pub struct ParsedCommand {
    /// The command that the words name.
    pub command: &'static Command,
    /// True if its words were given in full.
    pub in_full: bool,
    /// Names in full, and values, in the order given.
    pub arguments: Vec<(&'static str, String)>,
    /// The caller is a program: `show` returns records in place of a table.
    pub for_programs: bool,
    /// Fields and arguments that the command does not have are passed over.
    pub lenient: bool,
}

impl ParsedCommand {
    /// Returns the value of an argument, by its full name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.arguments
            .iter()
            .find(|(given, _)| *given == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Returns the message for an argument that a command does not have.
fn no_argument(name: &str) -> String {
    format!("invalid argument \"-{name}\"")
}

/// First words that stand for two, as ONTAP has them.
const SHORT: &[(&str, &[&str])] = &[
    ("aggr", &["storage", "aggregate"]),
    ("node", &["system", "node"]),
    ("quota", &["volume", "quota"]),
];

/// Returns the words of a command with a short first word written out.
pub fn written_out<'w>(words: &[&'w str]) -> Vec<&'w str> {
    let short = SHORT.iter().find(|(short, _)| words.first() == Some(short));
    let (whole, rest) = match short {
        Some((_, whole)) => (*whole, words.get(1..).unwrap_or_default()),
        None => (&[][..], words),
    };
    whole.iter().chain(rest).copied().collect()
}

/// Returns true if a list of values goes on behind this word: `status,` and `,`.
fn goes_on(value: &str) -> bool {
    value.ends_with(',')
}

/// Splits a line into words, a short first word written out; false: there was one.
fn whole_words(line: &str) -> Result<(Vec<String>, bool), String> {
    let mut all = words::split(line)?;
    let Some(first) = all.first() else {
        return Ok((all, true));
    };
    let whole: Vec<String> = written_out(&[first.as_str()])
        .into_iter()
        .map(str::to_owned)
        .collect();
    let in_full = whole.len() == 1;
    all.splice(..1, whole);
    Ok((all, in_full))
}

/// Parses a line; `Err` is a message for the user.
pub fn parse(line: &str, commands: &'static [Command]) -> Result<ParsedCommand, String> {
    let (all, mut in_full) = whole_words(line)?;
    let mut all = all.into_iter().peekable();
    let mut candidates: Vec<&'static Command> = commands.iter().collect();
    let mut depth = 0;
    while let Some(word) = all
        .next_if(|word| !word.starts_with('-') && candidates.iter().any(|c| c.path.len() > depth))
    {
        let at = |c: &&'static Command| c.path.get(depth).copied();
        let mut names: Vec<&str> = candidates
            .iter()
            .filter_map(at)
            .filter(|name| name.starts_with(word.as_str()))
            .collect();
        names.dedup();
        names.sort_unstable();
        names.dedup();
        let name = match names.as_slice() {
            _ if names.contains(&word.as_str()) => word.as_str(),
            [one] => one,
            // `options` and its like are commands of one word that takes its first value without a
            // name.
            [] if candidates.iter().any(|c| c.path.len() == depth) => {
                candidates.retain(|c| c.path.len() == depth);
                break;
            }
            [] => return Err(format!("\"{word}\" is not a recognized command")),
            _ => {
                return Err(format!(
                    "\"{word}\" is ambiguous: it may be {}",
                    names.join(", ")
                ));
            }
        };
        in_full = in_full && name == word;
        let name = name.to_owned();
        candidates.retain(|c| at(c) == Some(name.as_str()));
        depth += 1;
    }
    let Some(command) = candidates.iter().find(|c| c.path.len() == depth) else {
        let said: Vec<&str> = candidates
            .first()
            .and_then(|c| c.path.get(..depth))
            .unwrap_or_default()
            .to_vec();
        let next: Vec<&str> = candidates
            .iter()
            .filter_map(|c| c.path.get(depth).copied())
            .collect();
        return Err(match said.is_empty() {
            true => "no command was given".to_owned(),
            false => format!(
                "\"{}\" is not a complete command; it may go on with {}",
                said.join(" "),
                listed(next)
            ),
        });
    };
    let arguments = arguments(command, all)?;
    complete_enough(command, &arguments)?;
    Ok(ParsedCommand {
        command,
        in_full,
        arguments,
        for_programs: false,
        lenient: false,
    })
}

/// Returns true if a word is a value, not an argument's name: permission bits (`---rwxr-xr-x`) are
/// one as well.
fn is_value(word: &str) -> bool {
    !word.starts_with('-') || negative(word) || word == "-" || word.starts_with("---")
}

/// Returns a command with arguments that a program gives as names and values. `lenient`: arguments
/// that it does not have are passed over.
pub fn parse_arguments(
    command: &'static Command,
    given: Vec<(String, String)>,
    lenient: bool,
) -> Result<ParsedCommand, String> {
    let mut arguments: Vec<(&'static str, String)> = Vec::new();
    for (name, value) in given {
        let name = match parameter(command, &name) {
            Ok(parameter) => parameter.name,
            Err(_) if lenient => continue,
            Err(why) => return Err(why),
        };
        // The argument is the same in the query and in the body.
        if arguments.contains(&(name, value.clone())) {
            continue;
        }
        if arguments.iter().any(|(there, _)| *there == name) {
            return Err(format!("argument \"-{name}\" is there twice"));
        }
        arguments.push((name, value));
    }
    complete_enough(command, &arguments)?;
    Ok(ParsedCommand {
        command,
        in_full: true,
        arguments,
        for_programs: true,
        lenient,
    })
}

fn complete_enough(command: &Command, arguments: &[(&'static str, String)]) -> Result<(), String> {
    if let Some(missing) = command
        .parameters
        .iter()
        .find(|p| p.required && !arguments.iter().any(|(name, _)| *name == p.name))
    {
        return Err(format!(
            "missing required argument \"-{}\" (a {})",
            missing.name, missing.value
        ));
    }
    Ok(())
}

fn listed(mut names: Vec<&str>) -> String {
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

fn arguments(
    command: &'static Command,
    mut words: std::iter::Peekable<impl Iterator<Item = String>>,
) -> Result<Vec<(&'static str, String)>, String> {
    let mut arguments: Vec<(&'static str, String)> = Vec::new();
    while let Some(word) = words.next() {
        let parameter = match word.strip_prefix('-') {
            Some(short) => parameter(command, short)?,
            // A value without its name belongs to the first argument that is still open.
            None => {
                let open = command.parameters.iter().find(|p| {
                    !p.value.is_empty() && !arguments.iter().any(|(name, _)| *name == p.name)
                });
                let open = open.ok_or_else(|| format!("invalid argument \"{word}\""))?;
                arguments.push((open.name, word));
                continue;
            }
        };
        let mut value = match words.next_if(|next| is_value(next)) {
            Some(value) => value,
            None if parameter.value.is_empty() => "true".to_owned(),
            None => {
                return Err(format!(
                    "missing value for \"-{}\" (a {})",
                    parameter.name, parameter.value
                ));
            }
        };
        while goes_on(&value) {
            let Some(more) = words.next_if(|next| !next.starts_with('-')) else {
                break;
            };
            value.push_str(&more);
        }
        if arguments.iter().any(|(name, _)| *name == parameter.name) {
            return Err(format!("argument \"-{}\" is there twice", parameter.name));
        }
        arguments.push((parameter.name, value));
    }
    Ok(arguments)
}

fn negative(word: &str) -> bool {
    word.len() > 1 && word.bytes().skip(1).all(|b| b.is_ascii_digit())
}

pub(crate) fn parameter(command: &Command, short: &str) -> Result<&'static Parameter, String> {
    // The private REST passthrough writes underscores.
    let short = short.replace('_', "-");
    if let Some(exact) = command.parameters.iter().find(|p| p.name == short) {
        return Ok(exact);
    }
    let found: Vec<&'static Parameter> = command
        .parameters
        .iter()
        .filter(|p| !p.aside && p.name.starts_with(&short))
        .collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(no_argument(&short)),
        many => Err(format!(
            "argument \"-{short}\" is ambiguous: it may be {}",
            many.iter()
                .map(|p| format!("-{}", p.name))
                .collect::<Vec<_>>()
                .join(", ")
        )),
    }
}
