//! Waits for the server that ran before. A killed process keeps its ports and its folder until the
//! kernel has freed its memory, which takes seconds for many gigabytes.

use std::path::Path;
use std::time::Duration;

use weir_store::folder::holder;

/// Longest time to wait for a predecessor.
const PATIENCE: Duration = Duration::from_secs(5);

/// Polling interval.
const STEP: Duration = Duration::from_millis(50);

/// Waits until no other process has the data folder, for at most [`PATIENCE`]. If one still has it
/// then, opening the folder fails.
pub fn wait(data: &Path) {
    let Some(process) = holder(data) else {
        return;
    };
    tracing::info!(
        "{} is held by the server before this one{}: waiting up to {} s for its end",
        data.display(),
        match process.as_str() {
            "" => String::new(),
            process => format!(" (process {process})"),
        },
        PATIENCE.as_secs()
    );
    for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
        if holder(data).is_none() {
            break;
        }
        std::thread::sleep(STEP);
    }
    // The kernel frees ports and files one after the other.
    std::thread::sleep(STEP);
}
