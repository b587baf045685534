//! Bytes as hexadecimal digits, two lower-case ones each.

/// Returns the digits of bytes.
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |of: u8| char::from(DIGITS[usize::from(of & 15)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect()
}

/// Returns the `N` bytes of twice as many digits. `None` for other lengths, and for anything but
/// lower-case digits.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "0", "000", "0g", "AB", "+1", "é"] {
            assert_eq!(decode::<1>(text), None, "{text}");
        }
        assert_eq!(decode::<0>(""), Some([]));
    }

    proptest! {
        #[test]
        fn digits_are_read_back(bytes: [u8; 5]) {
            let text = encode(&bytes);
            prop_assert_eq!(&text, &bytes.map(|byte| format!("{byte:02x}")).concat());
            prop_assert_eq!(decode(&text), Some(bytes));
        }
    }
}
