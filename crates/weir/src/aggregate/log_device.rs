//! Check of the disk that holds the intent log. Writes are acknowledged as stable once they are in
//! the log, so this disk must survive its machine, unless the partner of a pair has all of it.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use weir_base::Placement;
use weir_store::folder::Folder;

use crate::cli::Serve;
use weir_pair_node::note_lost_log;

/// Returns true if the log's folder has lost its contents and a new log is to be created. The
/// node's state then records that it lacks the log's changes.
///
/// # Errors
/// The log is on a disk that is known to be lost with its machine, and `--log-ephemeral` is missing
/// or the node is not one of a pair.
pub fn is_lost(args: &Serve, paired: bool) -> Result<bool> {
    let Some(dir) = &args.log_dir else {
        return Ok(false);
    };
    match (args.log_ephemeral, paired) {
        (true, true) => {
            let lost = Folder::log_is_lost(&args.data, dir)?;
            if lost {
                tracing::warn!(
                    "nothing is in {} any more: this node begins at its last checkpoint, and its partner has what it lacks",
                    dir.display()
                );
                note_lost_log(&args.data)?;
            }
            Ok(lost)
        }
        (true, false) => bail!(
            "--log-ephemeral is for a node of a pair, whose partner has what is lost with the log: `weir pair create` makes one"
        ),
        (false, _) => {
            if let Some(model) = Placement::read(&present(dir))?.lost_with_machine() {
                bail!(
                    "{} is on a disk that is lost when its machine stops ({model}), and with it what clients were told is stable: \
                     name a folder on another one; a node of a pair may have its log there with --log-ephemeral",
                    dir.display()
                );
            }
            Ok(false)
        }
    }
}

/// The folder, or the one in which it will be made.
fn present(dir: &Path) -> PathBuf {
    let found = dir.ancestors().find(|dir| dir.is_dir());
    match found {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}
