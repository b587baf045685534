//! The web console's files, embedded in the binary.
//!
//! `make console` builds them from `console/`, with Node. A build without them needs no Node, and
//! has one page that says so.

/// A file of the console.
#[derive(Debug)]
pub struct File {
    /// The path below `/console/`.
    pub name: &'static str,
    /// The media type.
    pub kind: &'static str,
    /// The contents.
    pub plain: &'static [u8],
    /// The contents, compressed by gzip.
    pub gzip: Option<&'static [u8]>,
    /// A tag that changes with the contents, in quotes.
    pub etag: &'static str,
}

impl File {
    /// True if the name changes with the contents, so that a copy stays good for ever.
    pub fn is_hashed(&self) -> bool {
        self.name.starts_with("assets/")
    }
}

/// All files of the console.
pub static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Returns a file by its path below `/console/`; the empty path is the page itself.
pub fn find(path: &str) -> Option<&'static File> {
    let name = if path.is_empty() { "index.html" } else { path };
    FILES.iter().find(|file| file.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_a_page_and_it_fits_the_budget() {
        let page = find("").unwrap_or(&FILES[0]);
        assert_eq!((page.name, page.is_hashed()), ("index.html", false));
        assert!(page.kind.starts_with("text/html"));
        assert!(find("../Cargo.toml").is_none());
        let sent = |file: &File| file.gzip.unwrap_or(file.plain).len();
        assert!(FILES.iter().map(sent).sum::<usize>() <= 120 << 10);
    }
}
