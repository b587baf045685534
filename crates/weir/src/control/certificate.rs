//! Reads the validity of a certificate: the two times of X.509 (RFC 5280 §4.1.2.5), and nothing
//! else of it.

use std::path::Path;

use anyhow::Context as _;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// The time in which a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: i64,
    /// The last second.
    pub not_after: i64,
}

/// Returns the first certificate of a PEM file.
///
/// # Errors
/// The file cannot be read, or has none.
pub fn first_of(path: &Path) -> anyhow::Result<CertificateDer<'static>> {
    let found = CertificateDer::from_pem_file(path);
    found.with_context(|| path.display().to_string())
}

/// Returns the validity of the first certificate of a PEM file; `None` if there is none in it.
pub fn validity_of(path: &Path) -> Option<Validity> {
    let certificate = CertificateDer::from_pem_file(path).ok()?;
    validity(&certificate)
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the tag and the contents of the element that begins here, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        short @ 0..0x80 => (usize::from(*short), rest),
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            if digits.len() > 4 {
                return None;
            }
            let length = digits
                .iter()
                .fold(0, |n, digit| n << 8 | usize::from(*digit));
            (length, rest)
        }
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((*tag, contents, rest))
}

fn sequence(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, contents, rest) = element(bytes)?;
    (tag == SEQUENCE).then_some((contents, rest))
}

fn validity(der: &[u8]) -> Option<Validity> {
    let (certificate, _) = sequence(der)?;
    let (mut rest, _) = sequence(certificate)?;
    let (tag, _, behind) = element(rest)?;
    if tag == VERSION {
        rest = behind;
    }
    // The serial number, the algorithm of the signature, the issuer.
    for _ in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    let (times, _) = sequence(rest)?;
    let (tag, begins, rest) = element(times)?;
    let not_before = time(tag, begins)?;
    let (tag, ends, _) = element(rest)?;
    Some(Validity {
        not_before,
        not_after: time(tag, ends)?,
    })
}

/// Returns a time of the forms that certificates have: `YYMMDDHHMMSSZ` and `YYYYMMDDHHMMSSZ`.
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (tag, text.len()) {
        (UTC_TIME, 12) => {
            let year: i64 = text[..2].parse().ok()?;
            (
                if year < 50 { 2000 + year } else { 1900 + year },
                &text[2..],
            )
        }
        (GENERALIZED_TIME, 14) => (text[..4].parse().ok()?, &text[4..]),
        _ => return None,
    };
    let two = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day) = (two(0)?, two(2)?);
    let (hour, minute, second) = (two(4)?, two(6)?, two(8)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970 of a date of the Gregorian calendar, with years that begin in March.
    let (y, m) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(time(UTC_TIME, b"700101000000Z"), Some(0));
        assert_eq!(time(UTC_TIME, b"260301120000Z"), Some(1_772_366_400));
        assert_eq!(
            time(GENERALIZED_TIME, b"20000229235959Z"),
            Some(951_868_799)
        );
        for wrong in [
            &b"260301120000"[..],
            b"26030112000Z",
            b"x60301120000Z",
            b"261301120000Z",
        ] {
            assert_eq!(time(UTC_TIME, wrong), None);
        }
    }

    #[test]
    fn a_certificate_has_its_times_and_anything_else_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 3, 1);
        params.not_after = rcgen::date_time_ymd(2051, 3, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let path = folder.path().join("cert.pem");
        std::fs::write(&path, made.pem()).unwrap();
        let validity_of_file = validity_of(&path).unwrap();
        assert_eq!(validity_of_file.not_before, 1_772_323_200);
        assert_eq!(validity_of_file.not_after, 2_561_241_600);
        let der = made.der();
        for end in 0..der.len().min(200) {
            validity(&der[..end]);
        }
        for at in 0..der.len().min(200) {
            let mut broken = der.to_vec();
            broken[at] ^= 0xff;
            validity(&broken);
        }
        assert_eq!(validity_of(&folder.path().join("nothing")), None);
    }
}
