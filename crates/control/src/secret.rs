//! What nobody is to see: a password on its way to where it is used.

use std::fmt;
use std::sync::Arc;

/// A password. It is never written anywhere, the log and the catalog among them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Of a password.
    pub fn new(text: &str) -> Secret {
        Secret(text.into())
    }

    /// The password itself, for the server that checks it.
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
