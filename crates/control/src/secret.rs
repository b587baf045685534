//! Secrets: a password on its way to its use.

use std::fmt;
use std::sync::Arc;

/// A password. It is never written anywhere, including the log and the catalog.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Creates a secret.
    pub fn new(text: &str) -> Secret {
        Secret(text.into())
    }

    /// Returns the password, for the server that checks it.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new("correct horse");
        assert_eq!(secret.text(), "correct horse");
        assert!(!format!("{secret:?}").contains("horse"));
    }
}
