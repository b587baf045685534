//! Lists the files of `console/dist` for embedding, if `make console` has made them.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let built = root.join("../../console/dist");
    println!("cargo::rerun-if-changed=build.rs");
    // It is in the repository, empty; so its absence does not make every build begin anew.
    println!("cargo::rerun-if-changed={}", built.display());
    let mut files = Vec::new();
    if built.join("index.html").is_file() {
        collect(&built, &built, &mut files)?;
    } else {
        files.push(("index.html".to_owned(), root.join("src/unbuilt.html")));
    }
    files.sort();
    let mut text = String::from("&[\n");
    for (name, path) in &files {
        let plain = fs::read(path)?;
        let packed = PathBuf::from(format!("{}.gz", path.display()));
        let gzip = match packed.is_file() {
            true => format!("Some(include_bytes!({:?}))", packed.canonicalize()?),
            false => "None".to_owned(),
        };
        writeln!(
            text,
            "File {{ name: {name:?}, kind: {:?}, plain: include_bytes!({:?}), gzip: {gzip}, \
             etag: \"\\\"{:016x}\\\"\" }},",
            kind(name),
            path.canonicalize()?,
            hash(&plain),
        )?;
    }
    text.push(']');
    fs::write(Path::new(&env::var("OUT_DIR")?).join("files.rs"), text)?;
    Ok(())
}

fn collect(
    root: &Path,
    folder: &Path,
    files: &mut Vec<(String, PathBuf)>,
) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else if !name.starts_with('.') && !name.ends_with(".gz") {
            files.push((name, path));
        }
    }
    Ok(())
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Returns FNV-1a of the contents: it tells versions apart, and nothing depends on more.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
