//! A new beginning of the process, by which a node gives up a role.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::address::guard;

/// The process begins anew, with its arguments: what it was serving it serves no more from that
/// moment on.
pub fn begin_anew(why: &str) -> ! {
    tracing::info!("{why}: starting again");
    guard::end();
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // What runs now, also if its file has been replaced meanwhile.
    let error = Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments)
        .exec();
    tracing::error!("starting again failed: {error}");
    std::process::exit(1)
}
