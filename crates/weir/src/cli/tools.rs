//! Commands that are programs of their own: `weir bench` runs `weir-bench`, `weir csi` runs
//! `weir-csi`, `weir doctor` runs `weir-doctor`.
//!
//! A tool is searched beside the running binary, then in PATH, as git and cargo find subcommands.
//! It replaces this process, so exit codes, signals and the terminal are the tool's.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Commands that tools carry out.
pub const TOOLS: [&str; 3] = ["bench", "csi", "doctor"];

/// Variable by which a shell asks for completions, and the one with the number of the word to
/// complete.
const COMPLETE: &str = "COMPLETE";
const COMPLETE_INDEX: &str = "_CLAP_COMPLETE_INDEX";

/// Exit code of a shell for a command that is not found.
const NOT_FOUND: u8 = 127;

/// A tool and the arguments that it gets.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    tool: &'static str,
    arguments: Vec<OsString>,
    /// Number of the word that is to be completed, if a shell says it.
    complete_index: Option<usize>,
}

/// Runs the tool that the command line names, or for which a shell asks for completions. Returns
/// `None` if there is none.
pub fn run_named() -> Option<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if std::env::var_os(COMPLETE).is_none() {
        return parse_call(&arguments).map(|call| run(call.tool, &call.arguments));
    }
    let index = std::env::var(COMPLETE_INDEX).ok();
    let call = completed(&arguments, index.and_then(|index| index.parse().ok()))?;
    let mut command = Command::new(program(call.tool));
    command.args(&call.arguments);
    if let Some(index) = call.complete_index {
        command.env(COMPLETE_INDEX, index.to_string());
    }
    // A tool that is not installed has no completions.
    let _ = command.exec();
    None
}

/// Runs a tool in place of this process; returns only if that fails.
pub fn run(tool: &str, arguments: &[OsString]) -> ExitCode {
    let program = program(tool);
    let error = Command::new(&program).args(arguments).exec();
    let cause = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "it is neither beside this program nor in PATH (install the package weir, or build it: make tools)".to_owned()
        }
        _ => error.to_string(),
    };
    eprintln!("weir: cannot run {}: {cause}", program.display());
    ExitCode::from(NOT_FOUND)
}

/// Path of a tool beside this program, or else its name, which is looked for in PATH.
fn program(tool: &str) -> PathBuf {
    let name = format!("weir-{tool}");
    let beside = std::env::current_exe().map(|program| program.with_file_name(&name));
    match beside {
        Ok(path) if path.is_file() => path,
        _ => name.into(),
    }
}

fn tool(word: Option<&OsString>) -> Option<&'static str> {
    let word = word?;
    TOOLS.into_iter().find(|tool| word == tool)
}

/// The call in a command line without the program: `bench …`, or `help bench …`.
fn parse_call(arguments: &[OsString]) -> Option<Call> {
    let (tool, arguments) = match arguments.first() {
        Some(word) if word == "help" => {
            let help = std::iter::once(OsStr::new("help").to_owned());
            let rest = arguments.iter().skip(2).cloned();
            (tool(arguments.get(1))?, help.chain(rest).collect())
        }
        word => (tool(word)?, arguments.get(1..)?.to_vec()),
    };
    Some(Call {
        tool,
        arguments,
        complete_index: None,
    })
}

/// The call in a shell's request, `-- weir bench …`. Word number `index` is to be completed, or the
/// last one without a number.
fn completed(arguments: &[OsString], index: Option<usize>) -> Option<Call> {
    let escape = arguments.iter().position(|word| word == "--")?;
    let words = arguments.get(escape + 1..)?;
    let tool = tool(words.get(1))?;
    // The tool's own name is completed here.
    if index.unwrap_or(words.len() - 1) < 2 {
        return None;
    }
    let before = [OsString::from("--"), format!("weir-{tool}").into()];
    Some(Call {
        tool,
        arguments: before
            .into_iter()
            .chain(words.iter().skip(2).cloned())
            .collect(),
        complete_index: index.map(|index| index - 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn command_lines_of_tools_are_recognised() {
        for (line, call) in [
            ("bench nfs3 --help", Some(("bench", "nfs3 --help"))),
            ("doctor -x --", Some(("doctor", "-x --"))),
            ("help bench nfs3", Some(("bench", "help nfs3"))),
            ("help volumes", None),
            ("volumes list bench", None),
        ] {
            let found = parse_call(&words(line));
            let found = found.map(|call| (call.tool, call.arguments));
            assert_eq!(
                found,
                call.map(|(tool, rest)| (tool, words(rest))),
                "{line}"
            );
        }
    }

    #[test]
    fn completions_are_asked_of_the_tool() {
        let call = completed(&words("-- weir bench nfs3 wr"), Some(3)).unwrap();
        assert_eq!(call.arguments, words("-- weir-bench nfs3 wr"));
        assert_eq!(call.complete_index, Some(2));
        let call = completed(&words("-- weir doctor p"), None).unwrap();
        assert_eq!((call.tool, call.complete_index), ("doctor", None));
        assert_eq!(completed(&words("-- weir bench"), Some(1)), None);
        assert_eq!(completed(&words("-- weir bench"), None), None);
        assert_eq!(completed(&words("-- weir volumes li"), Some(2)), None);
    }
}
