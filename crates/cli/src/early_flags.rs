//! Flags before the command: `weir --server=URL volumes list`, as in `gcloud --project=p netapp
//! volumes list`.
//!
//! Flags of every command belong to each command, where its other flags are. A flag that comes
//! earlier is moved behind the command's last word before anything is parsed. A command that has no
//! such flag refuses it then.

use std::ffi::OsString;

use clap::{Args as _, Command};

use crate::args::Common;

/// Returns the arguments with early flags behind the command.
pub fn put_behind(given: Vec<OsString>, whole: &Command) -> Vec<OsString> {
    let flags = Common::augment_args(Command::new("flags"));
    let mut command = whole;
    let mut out: Vec<OsString> = Vec::new();
    let mut early: Vec<OsString> = Vec::new();
    let mut given = given.into_iter().peekable();
    out.extend(given.next());
    while command.has_subcommands() {
        let Some(word) = given.next() else {
            break;
        };
        let text = word.to_str().unwrap_or_default().to_owned();
        if let Some(below) = command.find_subcommand(&text) {
            command = below;
            out.push(word);
            continue;
        }
        let name = text.split('=').next().unwrap_or_default();
        let known = |all: &Command| {
            let mut all = all.get_arguments();
            all.find(|arg| match name.strip_prefix("--") {
                Some(long) => !long.is_empty() && arg.get_long() == Some(long),
                None => {
                    let mut short = name.chars();
                    short.next() == Some('-') && arg.get_short() == short.next() && name.len() == 2
                }
            })
            .map(|arg| arg.get_action().takes_values())
        };
        // A group may have a flag of this name of its own.
        match known(&flags).filter(|_| known(command).is_none()) {
            Some(takes_value) => {
                early.push(word);
                if takes_value && !text.contains('=') {
                    early.extend(given.next());
                }
            }
            None => {
                out.push(word);
                break;
            }
        }
    }
    out.extend(early);
    out.extend(given);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Subcommand as _;

    fn moved(line: &str) -> String {
        let whole = crate::Command::augment_subcommands(Command::new("weir"));
        let words = line.split(' ').map(OsString::from).collect();
        let out = put_behind(words, &whole);
        let out: Vec<&str> = out.iter().map(|word| word.to_str().unwrap()).collect();
        out.join(" ")
    }

    #[test]
    fn early_flags_come_behind_the_command() {
        for (line, want) in [
            (
                "weir --server http://x -q volumes --project=p list --limit=1",
                "weir volumes list --server http://x -q --project=p --limit=1",
            ),
            (
                "weir --server=http://x ontap snapmirror show --format json",
                "weir ontap --server=http://x snapmirror show --format json",
            ),
            (
                "weir filestore --quiet instances describe i",
                "weir filestore instances describe --quiet i",
            ),
            (
                "weir volumes list --server x",
                "weir volumes list --server x",
            ),
            // A flag that no command has stays for the parser to refuse.
            ("weir --nothing volumes list", "weir --nothing volumes list"),
            ("weir --server", "weir --server"),
            ("weir --help", "weir --help"),
        ] {
            assert_eq!(moved(line), want);
        }
    }
}
