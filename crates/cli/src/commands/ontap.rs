//! `weir ontap`: a line of ONTAP's command language, a prompt, or a pipe of lines.
//!
//! Lines run at the server, where the words are known whatever this program's age; what the prompt completes is known
//! here.

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

use super::open;
use crate::Environment;
use crate::args::{At, Ontap};
use crate::context;
use crate::error::Error;
use crate::session::{Io, Session};

const PROMPT: &str = "::> ";

/// `weir ontap`
pub fn run(args: &Ontap, environment: &Environment, io: &mut Io<'_>) -> Result<(), Error> {
    let mut s = open(&args.common, &At::default(), environment, io)?;
    match args.line.as_slice() {
        [] if std::io::stdin().is_terminal() => prompt(&mut s, environment),
        [] => pipe(&mut s),
        [line] => one(&mut s, line),
        words => one(&mut s, &joined(words)),
    }
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

fn one(s: &mut Session<'_, '_>, line: &str) -> Result<(), Error> {
    match s.line(line)? {
        Ok(text) => s.put(&text),
        Err(text) => Err(Error::Refused(text)),
    }
}

/// Lines from a pipe: all of them are run, what is refused stands in its place among the answers.
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
        match s.line(line)? {
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

/// What the prompt knows of the words: how to complete them.
struct Words;

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
        let mut found = weir_ontap::complete(before);
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
    editor.set_helper(Some(Words));
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
            line if line.ends_with('?') => s.put(&help(line.trim_end_matches('?')))?,
            line => match s.line(line) {
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

/// What may follow.
fn help(line: &str) -> String {
    let commands = weir_ontap::commands::COMMANDS;
    let words: Vec<&str> = line.split_whitespace().collect();
    let below: Vec<_> = commands
        .iter()
        .filter(|c| {
            words
                .iter()
                .zip(c.path)
                .all(|(word, name)| name.starts_with(word))
                && c.path.len() >= words.len()
        })
        .collect();
    let mut out = String::new();
    if let [only] = below.as_slice() {
        for p in only.parameters {
            let value = match p.value {
                "" => String::new(),
                value => format!(" <{value}>"),
            };
            let text = format!("-{}{value}", p.name);
            let must = if p.required { "" } else { "(optional)" };
            out.push_str(format!("  {text:<44} {must}").trim_end());
            out.push('\n');
        }
        return out;
    }
    for command in below {
        out.push_str(&format!("  {:<36} {}\n", command.name(), command.about));
    }
    out
}

/// Where lines are kept: beside the settings.
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
    fn a_question_mark_shows_what_may_follow() {
        assert!(help("snapm pol").contains("snapmirror policy add-rule"));
        assert!(help("snapmirror quiesce ").contains("-destination-path <SVM:volume>"));
    }
}
