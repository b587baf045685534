//! Percent-encoding (RFC 3986 §2.1): each byte outside of a set is written as `%` and two
//! upper-case hexadecimal digits.

/// ASCII bytes that stand for themselves: letters and digits, and those of the set.
#[derive(Clone, Copy)]
pub struct UnescapedSet(u128);

/// Those that mean the same everywhere in a URL (RFC 3986 §2.3).
pub const UNRESERVED: UnescapedSet = UnescapedSet::alphanumeric().and(b"-._~");
/// Those of a path, with the `/` between its parts (RFC 3986 §3.3).
pub const PATH: UnescapedSet = UNRESERVED.and(b"/:@");
/// Those of a gRPC status text: printable ASCII other than `%`.
pub const STATUS_TEXT: UnescapedSet = UNRESERVED.and(b" !\"#$&'()*+,/:;<=>?@[\\]^`{|}");

impl UnescapedSet {
    const fn alphanumeric() -> UnescapedSet {
        let mut set = 0;
        let mut byte = 0u8;
        while byte < 128 {
            if byte.is_ascii_alphanumeric() {
                set |= 1 << byte;
            }
            byte += 1;
        }
        UnescapedSet(set)
    }

    /// Adds ASCII bytes to the set.
    pub const fn and(self, bytes: &[u8]) -> UnescapedSet {
        let mut set = self.0;
        let mut at = 0;
        while at < bytes.len() {
            assert!(bytes[at] != b'%', "an encoded text would be ambiguous");
            set |= 1 << bytes[at];
            at += 1;
        }
        UnescapedSet(set)
    }

    fn contains(self, byte: u8) -> bool {
        byte.is_ascii() && self.0 & (1 << byte) != 0
    }
}

/// Appends the encoding of `text` to `out`.
pub fn escape(out: &mut String, text: &str, kept: UnescapedSet) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |of: u8| char::from(DIGITS[usize::from(of & 15)]);
    for byte in text.bytes() {
        match kept.contains(byte) {
            true => out.push(char::from(byte)),
            false => out.extend(['%', digit(byte >> 4), digit(byte)]),
        }
    }
}

/// Returns the encoding of `text`.
pub fn escaped(text: &str, kept: UnescapedSet) -> String {
    let mut out = String::with_capacity(text.len());
    escape(&mut out, text, kept);
    out
}

/// Undoes the encoding. `None` if a `%` is not followed by two digits, or the result is not UTF-8.
pub fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        out.push(match byte {
            b'%' => u8::try_from(digit()? * 16 + digit()?).ok()?,
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sets_keep_what_their_place_allows() {
        for (kept, expected) in [
            (UNRESERVED, "a%2FB-._~9%20%25%3F%40%C3%A9%0A"),
            (PATH, "a/B-._~9%20%25%3F@%C3%A9%0A"),
            (STATUS_TEXT, "a/B-._~9 %25?@%C3%A9%0A"),
        ] {
            assert_eq!(escaped("a/B-._~9 %?@é\n", kept), expected);
        }
        let printable = (b' '..=b'~').filter(|byte| *byte != b'%');
        assert!(printable.into_iter().all(|byte| STATUS_TEXT.contains(byte)));
        assert!((0..=u8::MAX).all(|byte| !PATH.contains(byte) || STATUS_TEXT.contains(byte)));
    }

    #[test]
    fn broken_encodings_are_refused() {
        for text in ["%", "a%4", "%zz", "%ff", "%é", "%+1"] {
            assert_eq!(unescape(text), None, "{text}");
        }
        assert_eq!(unescape("%c3%A9").as_deref(), Some("é"));
    }

    proptest! {
        #[test]
        fn any_text_comes_back(text in ".*", more in "\\PC*") {
            for kept in [UNRESERVED, PATH, STATUS_TEXT] {
                let mut out = escaped(&text, kept);
                escape(&mut out, &more, kept);
                prop_assert!(out.bytes().all(|byte| byte == b'%' || kept.contains(byte)));
                prop_assert_eq!(unescape(&out), Some(format!("{text}{more}")));
            }
        }

        #[test]
        fn any_text_decodes_or_is_refused(text in "[%0-9a-fA-Fé]{0,12}") {
            if let Some(decoded) = unescape(&text) {
                prop_assert_eq!(unescape(&escaped(&decoded, UNRESERVED)), Some(decoded));
            }
        }
    }
}
