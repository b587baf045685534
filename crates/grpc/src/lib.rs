//! Framing of gRPC over HTTP/2 (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>):
//! messages, the timeout, the text of a status.
//!
//! Every method served here is unary, so the body of a request is one message: a byte that says
//! whether it is compressed, its length in four bytes, and the message.

use std::time::Duration;
use weir_base::percent;

/// Bytes in front of a message.
const PREFIX: usize = 5;

/// Returns the message of a unary call's body.
///
/// # Errors
/// Why the body is not one message, or that it is compressed although the call names no
/// compression: for the protocol's own libraries that is INTERNAL.
pub fn message(body: &[u8]) -> Result<&[u8], String> {
    let broken = |why: &str| why.to_owned();
    let Some(([flag, length @ ..], message)) = body.split_first_chunk::<PREFIX>() else {
        return Err(broken(
            "The call has no message: its body is shorter than the prefix of one",
        ));
    };
    match *flag {
        0 => {}
        1 => {
            return Err(broken(
                "The message is compressed, and the call names no grpc-encoding",
            ));
        }
        _ => return Err(broken("Invalid compressed-flag of a message")),
    }
    let length = u32::from_be_bytes(*length) as usize;
    if message.len() == length {
        return Ok(message);
    }
    Err(format!(
        "The body holds {} bytes behind the prefix of a message of {length} bytes; a unary call has one message",
        message.len()
    ))
}

/// Returns a message with its prefix.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(PREFIX + message.len());
    out.push(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
    out
}

/// Reads `grpc-timeout`: at most eight digits and a unit, such as `20S` or `100m` (milliseconds).
pub fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let n: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(n * 3600),
        "M" => Duration::from_secs(n * 60),
        "S" => Duration::from_secs(n),
        "m" => Duration::from_millis(n),
        "u" => Duration::from_micros(n),
        "n" => Duration::from_nanos(n),
        _ => return None,
    })
}

/// Returns `grpc-message`: text with everything percent-encoded that a header may not hold, cut off
/// behind `most` bytes.
pub fn status_text(text: &str, most: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let before = out.len();
        percent::escape(&mut out, c.encode_utf8(&mut [0; 4]), percent::STATUS_TEXT);
        if out.len() > most {
            out.truncate(before);
            break;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_message() {
        for text in [&b""[..], b"x", &[7; 1000]] {
            assert_eq!(message(&framed(text)).unwrap(), text);
        }
        for body in [
            &b""[..],
            b"\0\0\0\0",
            b"\0\0\0\0\x01",
            b"\0\0\0\0\0x",
            b"\0\0\0\0\0\0\0\0\0\0",
            b"\0\xff\xff\xff\xff",
            b"\x01\0\0\0\0",
            b"\x02\0\0\0\0",
        ] {
            message(body).unwrap_err();
        }
    }

    #[test]
    fn timeouts_have_at_most_eight_digits_and_a_unit() {
        for (text, expected) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("99999999m", Some(Duration::from_millis(99_999_999))),
            ("5u", Some(Duration::from_micros(5))),
            ("6n", Some(Duration::from_nanos(6))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("100000000n", None),
            ("S", None),
            ("", None),
            ("1", None),
            ("-1S", None),
            ("1s", None),
            ("1é", None),
        ] {
            assert_eq!(timeout(text), expected, "{text}");
        }
    }

    #[test]
    fn texts_are_percent_encoded_and_cut_between_characters() {
        assert_eq!(
            status_text("100 % of ä\n\"x\"~", 99),
            "100 %25 of %C3%A4%0A\"x\"~"
        );
        assert_eq!(status_text("abä", 7), "ab");
        assert_eq!(status_text("abä", 8), "ab%C3%A4");
    }
}
