//! Shell completion and manual pages, from the commands of a program themselves.
//!
//! `weir`, `weir-bench`, `weir-csi` and `weir-doctor` call this crate first thing in `main`. A
//! tool's manual pages are named as a command of `weir` is: `weir-bench-nfs3.1` for `weir bench
//! nfs3`.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;

/// Section of programs that every user may run.
const SECTION: &str = "1";

/// Word by which a program is asked for its manual pages: `weir-bench manual DIR`.
const MANUAL: &str = "manual";

/// Answers a shell that asks for completions, and exits; returns if none does.
pub fn complete(command: fn() -> Command) {
    clap_complete::CompleteEnv::with_factory(command).complete();
}

/// Answers what each tool is asked for besides its own commands: completions, and `manual DIR`.
/// Returns `None` if the command line is the tool's own.
pub fn answer(command: fn() -> Command) -> Option<ExitCode> {
    complete(command);
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let [_, word, folder] = arguments.as_slice() else {
        return None;
    };
    if word != MANUAL {
        return None;
    }
    let command = command();
    let name = command.get_name().to_owned();
    match write_manual(command, &name, folder.as_ref(), &[]) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("{name}: {error}");
            Some(ExitCode::FAILURE)
        }
    }
}

/// Writes a page for `command` and each of its subcommands into `folder`. Commands named in
/// `elsewhere` have pages of their own.
///
/// # Errors
/// A page cannot be written.
pub fn write_manual(
    command: Command,
    name: &str,
    folder: &Path,
    elsewhere: &[&str],
) -> io::Result<()> {
    let mut whole = command.disable_help_subcommand(true);
    whole.build();
    write_pages(whole, name, folder, elsewhere)
}

fn write_pages(command: Command, name: &str, folder: &Path, elsewhere: &[&str]) -> io::Result<()> {
    let documented = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set() && !elsewhere.contains(&below.get_name()));
    for below in documented {
        let name = format!("{name}-{}", below.get_name());
        write_pages(below.clone(), &name, folder, &[])?;
    }
    let version = env!("CARGO_PKG_VERSION");
    // clap keeps names for as long as the process lives.
    let page: &'static str = Box::leak(name.to_owned().into());
    let man = Man::new(command.name(page).version(version))
        .section(SECTION)
        .source(format!("weir {version}"))
        .manual("Weir");
    let path = folder.join(format!("{name}.{SECTION}"));
    let mut text = Vec::new();
    man.render(&mut text)?;
    std::fs::write(&path, text).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot write {}: {error}", path.display()),
        )
    })
}
