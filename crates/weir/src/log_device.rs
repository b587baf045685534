//! Where the intent log is kept: what is acknowledged as stable is there, so its disk must not be lost with its machine, unless another machine
//! has all of it.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use weir_base::Placement;
use weir_store::folder::Folder;

use crate::cli::Serve;
use weir_pair_node::note_lost_log;

/// Whether nothing is in the log's folder any more and there is to be another one; the node has noted then that it lacks what was in there.
///
/// # Errors
/// The log is on a disk that is known to be lost with its machine, and that is not said or the node is not one of a pair.
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
