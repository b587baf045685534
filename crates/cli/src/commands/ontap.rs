//! `weir ontap`: a line of ONTAP's command language, a prompt, or a pipe of lines.
//!
//! Lines run at the server, where the words are known whatever this program's age; what the prompt
//! completes is known here.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use rustyline::completion::Completer;
use rustyline::config::CompletionType;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};
use serde_json::{Value, json};
use weir_ontap::help::Live;

use super::steps::open;
use crate::Environment;
use crate::args::{At, Common, Ontap};
use crate::context;
use crate::error::Error;
use crate::http::{Client, Method};
use crate::session::{Io, Session};

const PROMPT: &str = "::> ";

/// Runs `weir ontap`: a line, or lines from a terminal or a pipe.
pub fn run(args: &Ontap, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    let mut common = args.common.clone();
    let words = own(&args.line, &mut common, None)?;
    let line = match words.as_slice() {
        [line] => line.clone(),
        words => joined(words),
    };
    if let Some(before) = asked_for_help(&line) {
        return show_help(&before, io);
    }
    let mut s = open(&common, &At::default(), environment, io)?;
    let json = common.is_json();
    match words.is_empty() {
        true if json => Err(Error::Usage(
            "--json needs a line: weir ontap --json volume show".to_owned(),
        )),
        true if std::io::stdin().is_terminal() => prompt(&mut s, environment),
        true => pipe(&mut s),
        false if json => {
            let reply = data(&s, &line)?;
            s.put_json(&reply)
        }
        false => one(&mut s, &line),
    }
}

/// Returns what a line asks help about, in ONTAP's way or in this program's.
pub(super) fn asked_for_help(line: &str) -> Option<String> {
    let about = weir_ontap::help::asked(line).map(str::to_owned);
    about.or_else(|| line.trim_end().strip_suffix("--help").map(str::to_owned))
}

/// Prints help, which needs no server.
pub(super) fn show_help(before: &str, io: &mut Io<'_>) -> Result<(), Error> {
    match weir_ontap::help(before) {
        Ok(text) => Ok(io.out.write_all(text.as_bytes())?),
        Err(message) => Err(Error::Refused(weir_ontap::commands::error(&message))),
    }
}

/// Takes this program's flags, which begin with two dashes, out of the words of a line, wherever
/// they are. `wait` is set by `--wait` where it is one of them. ONTAP's arguments may come with two
/// dashes as well. What is neither is refused: a flag that was taken for a part of the line would
/// have the line run at another server.
pub(super) fn own(
    given: &[String],
    common: &mut Common,
    mut wait: Option<&mut bool>,
) -> Result<Vec<String>, Error> {
    let mut words = Vec::new();
    let mut given = given.iter();
    while let Some(word) = given.next() {
        // A whole line is one word; what resembles a flag in it is ONTAP's to refuse.
        let Some(rest) = word.strip_prefix("--").filter(|rest| *rest != "help") else {
            words.push(word.clone());
            continue;
        };
        if rest.is_empty() {
            words.extend(given.by_ref().cloned());
            break;
        }
        let (name, value) = match rest.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (rest, None),
        };
        let place = match (name, &mut wait) {
            ("wait", Some(wait)) if value.is_none() => {
                **wait = true;
                continue;
            }
            ("quiet", _) if value.is_none() => {
                common.quiet = true;
                continue;
            }
            ("json", _) if value.is_none() => {
                common.json = true;
                continue;
            }
            ("server", _) => &mut common.server,
            ("ca-cert", _) => &mut common.ca_cert,
            ("access-token-file", _) => &mut common.access_token_file,
            ("project", _) => &mut common.project,
            ("format", _) => &mut common.format,
            _ => {
                let argument = name.replace('_', "-");
                let mut all = weir_ontap::commands::COMMANDS
                    .iter()
                    .flat_map(|c| c.parameters);
                if !all.any(|p| p.name.starts_with(&argument)) {
                    return Err(Error::Usage(format!(
                        "--{name} is neither a flag of this command nor an argument of ONTAP's"
                    )));
                }
                words.push(format!("-{name}"));
                words.extend(value);
                continue;
            }
        };
        let value = value.or_else(|| given.next().cloned());
        *place = Some(value.ok_or_else(|| format!("--{name} takes a value"))?);
    }
    Ok(words)
}

/// Words as a line that is split into them again.
pub fn joined(words: &[String]) -> String {
    let quoted = |word: &String| match word {
        w if w.is_empty() || w.contains(char::is_whitespace) => match w.contains('"') {
            true => format!("'{w}'"),
            false => format!("\"{w}\""),
        },
        w => w.clone(),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Runs a line for a program: the records of a `show`, and the text of every other command as
/// `output`.
pub(super) fn data(s: &Session<'_, '_>, line: &str) -> Result<Value, Error> {
    let parsed = weir_ontap::grammar::parse(line, weir_ontap::commands::COMMANDS)
        .map_err(|message| Error::Refused(weir_ontap::commands::error(&message)))?;
    if let Some(("show", words)) = parsed.command.path.split_last().map(|(v, w)| (*v, w)) {
        let arguments = parsed.arguments.iter();
        let mut query: Vec<(&str, String)> = arguments
            .map(|(name, value)| (*name, value.clone()))
            .collect();
        let has_fields = parsed.command.parameters.iter().any(|p| p.name == "fields");
        if has_fields && parsed.get("fields").is_none() {
            query.push(("fields", "*".to_owned()));
        }
        let path = format!("private/cli/{}", words.join("/"));
        let reply = s.ontap(Method::Get, &path, &query, None)?;
        return Ok(reply.get("records").cloned().unwrap_or(reply));
    }
    match s.line(line)? {
        Ok(text) => Ok(json!({"output": text})),
        Err(text) => Err(Error::Refused(text)),
    }
}

pub(super) fn one(s: &mut Session<'_, '_>, line: &str) -> Result<(), Error> {
    match s.line(line)? {
        Ok(text) => s.put(&text),
        Err(text) => Err(Error::Refused(text)),
    }
}

/// Lines from a pipe: all of them are run, and each refusal is printed in place of the line's
/// output.
fn pipe(s: &mut Session<'_, '_>) -> Result<(), Error> {
    let mut refused = false;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let line = line.trim();
        // As copied from a terminal.
        let line = line.strip_prefix("::>").unwrap_or(line).trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if matches!(line, "exit" | "quit") {
            break;
        }
        match answered(s, line)? {
            Ok(text) => s.put(&text)?,
            Err(text) => {
                refused = true;
                s.put(&text)?;
            }
        }
    }
    match refused {
        true => Err(Error::Refused(String::new())),
        false => Ok(()),
    }
}

/// Completion of words at the prompt.
struct Words {
    /// Client for values that only the node knows.
    client: Client,
}

impl Words {
    /// Returns the values that a `show` has at the node; none if it does not reply.
    fn values(&self, live: Live) -> Vec<String> {
        let path = format!("private/cli/{}", live.command.join("/"));
        let query = [("fields", live.fields.join(","))];
        let Ok((_, answer)) = self.client.ontap(Method::Get, &path, &query, None) else {
            return Vec::new();
        };
        let records = answer.get("records").and_then(Value::as_array);
        let value = |record: &Value| -> Option<String> {
            let part = |field: &&str| record.get(field.replace('-', "_"))?.as_str();
            let parts: Option<Vec<&str>> = live.fields.iter().map(part).collect();
            Some(parts?.join(":"))
        };
        records.into_iter().flatten().filter_map(value).collect()
    }
}

impl Helper for Words {}
impl Highlighter for Words {}
impl Validator for Words {}

impl Hinter for Words {
    type Hint = String;
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = line.get(..at).unwrap_or(line);
        let start = before.rfind(char::is_whitespace).map_or(0, |i| i + 1);
        let mut found = weir_ontap::complete(before, |live| self.values(live));
        if let [only] = found.as_mut_slice() {
            only.push(' ');
        }
        Ok((start, found))
    }
}

/// Lines from a person.
fn prompt(s: &mut Session<'_, '_>, environment: &Environment) -> Result<(), Error> {
    let failed = |error: ReadlineError| Error::Other(format!("the terminal failed: {error}"));
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .auto_add_history(true)
        .build();
    let mut editor: Editor<Words, FileHistory> = Editor::with_config(config).map_err(failed)?;
    editor.set_helper(Some(Words { client: s.client() }));
    let history = history(environment);
    if let Some(history) = &history {
        // The first time there is none.
        drop(editor.load_history(history));
    }
    loop {
        let line = match editor.readline(PROMPT) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        };
        match line.trim() {
            "" => continue,
            "exit" | "quit" | "logout" => break,
            "top" => {}
            "history" => {
                let past: Vec<String> = editor
                    .history()
                    .iter()
                    .enumerate()
                    .map(|(i, line)| format!("{:>5}  {line}\n", i + 1))
                    .collect();
                s.put(&past.concat())?;
            }
            line => match answered(s, line) {
                Ok(Ok(text) | Err(text)) => s.put(&format!("{text}\n"))?,
                // The server may be back for the next line.
                Err(error) => s.say(error.lines("ontap").trim_end())?,
            },
        }
    }
    if let Some(history) = &history {
        if let Err(error) = editor.save_history(history) {
            s.say(&format!(
                "WARNING: the history was not kept in {}: {error}",
                history.display()
            ))?;
        }
    }
    Ok(())
}

/// Returns what a line prints; help is found here, whatever the server's age.
fn answered(s: &mut Session<'_, '_>, line: &str) -> Result<Result<String, String>, Error> {
    match weir_ontap::help::asked(line) {
        Some(before) => {
            Ok(weir_ontap::help(before).map_err(|message| weir_ontap::commands::error(&message)))
        }
        None => s.line(line),
    }
}

/// Returns the path of the file in which lines are kept: beside the settings.
fn history(environment: &Environment) -> Option<PathBuf> {
    let folder = context::place(environment)?;
    let folder = folder.parent().map(Path::to_owned)?;
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("ontap_history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_a_line() {
        let words: Vec<String> = ["snapshot", "create", "-comment", "two words", ""]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(
            joined(&words),
            "snapshot create -comment \"two words\" \"\""
        );
        assert_eq!(weir_ontap::words::split(&joined(&words)).unwrap(), words);
    }

    #[test]
    fn flags_are_known_wherever_they_stand() {
        let words = |all: &[&str]| -> Vec<String> { all.iter().map(|w| (*w).to_owned()).collect() };
        let mut common = Common::default();
        let mut wait = false;
        let given = words(&[
            "update",
            "--destination-path=a:b",
            "--wait",
            "--server",
            "http://x",
            "-throttle",
            "8192",
            "--ca-cert=c.pem",
            "--quiet",
        ]);
        let line = own(&given, &mut common, Some(&mut wait)).unwrap();
        assert_eq!(
            line,
            words(&["update", "-destination-path", "a:b", "-throttle", "8192"])
        );
        assert!(wait && common.quiet);
        assert_eq!(common.server.as_deref(), Some("http://x"));
        assert_eq!(common.ca_cert.as_deref(), Some("c.pem"));
        for refused in [
            &["--server"][..],
            &["show", "--srever", "x"],
            &["--wait"],
            &["--quiet=x"],
        ] {
            assert!(
                own(&words(refused), &mut common, None).is_err(),
                "{refused:?}"
            );
        }
        let kept = words(&["show", "--", "--server"]);
        assert_eq!(
            own(&kept, &mut common, None).unwrap(),
            words(&["show", "--server"])
        );
    }
}
