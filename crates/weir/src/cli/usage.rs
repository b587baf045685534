//! Errors of the command line that its parser does not find. The process exits with the parser's
//! exit code.

use std::fmt;

/// Exit code of a wrong command line, as clap's.
pub const EXIT: u8 = 2;

/// A wrong value of an option, or options that exclude each other.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Returns an error that makes the process exit with [`EXIT`].
pub fn error(words: impl fmt::Display) -> anyhow::Error {
    // With the causes, where the words are an error.
    anyhow::Error::new(Usage(format!("{words:#}")))
}
