//! Restart of the process, by which a node gives up a role.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::address::guard;

/// Replaces the process by a new one with the same arguments, which serves nothing at first.
pub fn begin_anew(why: &str) -> ! {
    tracing::info!("{why}: starting again");
    guard::end();
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // The running program, even if its file has been replaced meanwhile.
    let error = Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments)
        .exec();
    tracing::error!("cannot start again: {error}");
    std::process::exit(1)
}
