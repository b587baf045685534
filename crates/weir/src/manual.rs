//! Manual pages, from the commands themselves.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap_mangen::Man;

/// The section of programs that every user may run.
const SECTION: &str = "1";

/// Writes a page for each command and its subcommands into `folder`.
///
/// # Errors
/// If a page cannot be written.
pub fn write(folder: &Path) -> Result<()> {
    let mut whole = crate::settings::command().disable_help_subcommand(true);
    whole.build();
    pages(whole, folder, "weir")
}

fn pages(command: clap::Command, folder: &Path, name: &str) -> Result<()> {
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        let name = format!("{name}-{}", below.get_name());
        pages(below.clone(), folder, &name)?;
    }
    let version = format!("weir {}", env!("CARGO_PKG_VERSION"));
    // clap keeps names for as long as the process lives.
    let page: &'static str = Box::leak(name.to_owned().into());
    let man = Man::new(command.name(page).version(env!("CARGO_PKG_VERSION")))
        .section(SECTION)
        .source(version)
        .manual("Weir");
    let path = folder.join(format!("{name}.{SECTION}"));
    let mut text = Vec::new();
    man.render(&mut text)?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
