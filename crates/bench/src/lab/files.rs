//! The files of a run: read whole, written atomically, never over existing files
//! unless that is allowed.

use super::outcome::{FORMAT, Run};
use crate::error::BenchError;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// File of the results, JSON.
pub const RUN: &str = "run.json";
/// The report for browsers.
pub const HTML: &str = "report.html";
/// The report as Markdown.
pub const MARKDOWN: &str = "report.md";
/// The results in short, JSON, for a server that shows them.
pub const SUMMARY: &str = "summary.json";
/// Files that a run leaves in its folder.
pub const ALL: [&str; 4] = [RUN, HTML, MARKDOWN, SUMMARY];

/// Reads a run from its folder or file.
pub fn read(path: &Path) -> Result<Run, BenchError> {
    let file = if path.is_dir() {
        path.join(RUN)
    } else {
        path.to_owned()
    };
    let shown = file.display();
    let text = fs::read_to_string(&file).map_err(BenchError::io(format!("read {shown}")))?;
    let bad =
        |what: String| BenchError::Usage(format!("{shown} is no run of this program: {what}"));
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(f) if f == u64::from(FORMAT) => {}
        Some(f) => return Err(bad(format!("format {f}, where {FORMAT} is known"))),
        None => return Err(bad("no format number".into())),
    }
    serde_json::from_value(value).map_err(|e| bad(e.to_string()))
}

/// Refuses a file that exists, unless it may be replaced.
pub fn refuse_existing(path: &Path, force: bool) -> Result<(), BenchError> {
    if !force && path.exists() {
        return Err(BenchError::Usage(format!(
            "{} exists; choose another place, or --force to replace it",
            path.display()
        )));
    }
    Ok(())
}

/// Prepares the folder of a new run.
pub fn folder(path: &Path, force: bool) -> Result<PathBuf, BenchError> {
    for name in ALL {
        refuse_existing(&path.join(name), force)?;
    }
    fs::create_dir_all(path).map_err(BenchError::io(format!("make {}", path.display())))?;
    Ok(path.to_owned())
}

/// Writes a file so that a reader, or a crash, sees the old or the new one.
pub fn write(path: &Path, content: &str) -> Result<(), BenchError> {
    let failed = || BenchError::io(format!("write {}", path.display()));
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut file = fs::File::create(&new).map_err(failed())?;
    file.write_all(content.as_bytes())
        .and_then(|()| file.sync_data())
        .and_then(|()| fs::rename(&new, path))
        .map_err(failed())
}

/// Writes the results, atomically, to [`RUN`].
pub fn save(folder: &Path, run: &Run) -> Result<(), BenchError> {
    let text = serde_json::to_string_pretty(run)
        .map_err(|e| BenchError::Io("write the results".into(), std::io::Error::other(e)))?;
    write(&folder.join(RUN), &text)
}
