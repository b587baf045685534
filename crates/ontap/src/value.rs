//! Values as ONTAP writes and reads them.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use weir_relations::model::{THROTTLE_LEAST, THROTTLE_MOST};

/// Returns a number, with a size's suffix if it has one.
pub fn number(text: &str) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 11] = [
        ("PB", 1125899906842624.0),
        ("TB", 1099511627776.0),
        ("GB", 1073741824.0),
        ("MB", 1048576.0),
        ("KB", 1024.0),
        ("P", 1125899906842624.0),
        ("T", 1099511627776.0),
        ("G", 1073741824.0),
        ("M", 1048576.0),
        ("K", 1024.0),
        ("B", 1.0),
    ];
    let upper = text.to_ascii_uppercase();
    let (digits, factor) = SUFFIXES
        .iter()
        .find_map(|(suffix, factor)| Some((upper.strip_suffix(suffix)?.to_owned(), *factor)))
        .unwrap_or((upper, 1.0));
    let plain = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    plain
        .then(|| digits.parse::<f64>().ok())
        .flatten()
        .map(|n| n * factor)
}

/// Returns the bytes of a size that is one at least.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let bytes = number(text)?;
    (1.0..9.0e18).contains(&bytes).then_some(bytes as u64)
}

/// Returns `524.9MB`, `61.14MB`, `9.93MB`, `512B`: four characters of digits and point at most, two
/// places at most.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let places = match (unit, value) {
        (0, _) => 0,
        (_, v) if v < 99.995 => 2,
        _ => 1,
    };
    format!("{value:.places$}{}", UNITS.get(unit).unwrap_or(&""))
}

/// Returns a size as it was given: `16GB` where it is a whole number of units, else as [`size`].
pub fn tidy_size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 5] = [(50, "PB"), (40, "TB"), (30, "GB"), (20, "MB"), (10, "KB")];
    let whole = UNITS
        .iter()
        .find(|(bits, _)| bytes >> bits > 0 && bytes.trailing_zeros() >= *bits);
    match whole {
        Some((bits, unit)) if bytes >> bits < 1024 => format!("{}{unit}", bytes >> bits),
        _ => size(bytes),
    }
}

/// Returns a time as `5/4/2023 10:41:30`, UTC.
pub fn event_time(seconds: i64) -> String {
    Timestamp::from_second(seconds)
        .map(|t| {
            t.to_zoned(TimeZone::UTC)
                .strftime("%-m/%-d/%Y %H:%M:%S")
                .to_string()
        })
        .unwrap_or_else(|_| "-".to_owned())
}

/// Returns `0:4:41`: hours, minutes, seconds, without leading noughts.
pub fn duration(seconds: u64) -> String {
    format!("{}:{}:{}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Returns a duration as ISO 8601 has it: `PT4M41S`.
pub fn iso_duration(seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut out = "PT".to_owned();
    for (n, unit) in [(hours, 'H'), (minutes, 'M')] {
        if n > 0 {
            out.push_str(&format!("{n}{unit}"));
        }
    }
    if rest > 0 || out.len() == 2 {
        out.push_str(&format!("{rest}S"));
    }
    out
}

/// Returns a time as RFC 3339 has it: `2023-05-04T10:41:30+00:00`. `-` is outside of the calendar.
pub fn iso_timestamp(seconds: i64) -> String {
    let at = Timestamp::from_second(seconds);
    at.map_or_else(
        |_| "-".to_owned(),
        |at| at.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string(),
    )
}

/// Returns an identity for what is known by its name alone: a UUID of version 8 (RFC 9562 §5.8),
/// from FNV-1a of 128 bits.
pub fn identity(kind: &str, name: &str) -> String {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in kind.bytes().chain([0]).chain(name.bytes()) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    }
    uuid::Builder::from_custom_bytes(hash.to_be_bytes())
        .into_uuid()
        .to_string()
}

/// Returns a time as `05/04 10:41:30`, UTC.
pub fn timestamp(seconds: i64) -> String {
    Timestamp::from_second(seconds)
        .map(|t| {
            t.to_zoned(TimeZone::UTC)
                .strftime("%m/%d %H:%M:%S")
                .to_string()
        })
        .unwrap_or_else(|_| "-".to_owned())
}

/// Returns `Thu May  4 10:41:30 2023`, UTC.
pub fn long_timestamp(seconds: i64) -> String {
    Timestamp::from_second(seconds)
        .map(|t| {
            t.to_zoned(TimeZone::UTC)
                .strftime("%a %b %e %H:%M:%S %Y")
                .to_string()
        })
        .unwrap_or_else(|_| "-".to_owned())
}

/// Reads a throughput: `100MB/s`, `500iops`, `500iops,100MB/s` or `INF`. Returns operations and
/// bytes a second.
pub fn throughput(text: &str) -> Option<(Option<u64>, Option<u64>)> {
    if text.eq_ignore_ascii_case("inf") {
        return Some((None, None));
    }
    let mut out = (None, None);
    for part in text.split(',').map(str::trim) {
        let lower = part.to_ascii_lowercase();
        match (lower.strip_suffix("iops"), lower.strip_suffix("/s")) {
            (Some(digits), _) => out.0 = Some(digits.parse().ok().filter(|n| *n > 0)?),
            (None, Some(size)) => {
                let bytes = number(size)?;
                out.1 = Some(bytes as u64).filter(|n| *n > 0);
                out.1?;
            }
            (None, None) => out.0 = Some(lower.parse().ok().filter(|n| *n > 0)?),
        }
    }
    Some(out)
}

/// Returns a part of a whole in percent; 0 of nothing.
pub fn part(used: u64, of: u64) -> u64 {
    let percent = (u128::from(used) * 100).checked_div(u128::from(of));
    u64::try_from(percent.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Returns permission bits as ONTAP shows them: `---rwxr-xr-x`.
pub fn signs(mode: u32) -> String {
    let bit = |(at, sign): (usize, char)| match mode >> (8 - at) & 1 {
        1 => sign,
        _ => '-',
    };
    let nine: String = "rwxrwxrwx".chars().enumerate().map(bit).collect();
    format!("---{nine}")
}

/// Reads permission bits: octal digits, or `---rwxr-xr-x`.
///
/// `None`: neither.
pub fn mode(text: &str) -> Option<u32> {
    let signs = text.strip_prefix("---").unwrap_or(text);
    let symbolic = || {
        let mut bits = signs.bytes().zip(b"rwxrwxrwx".iter());
        bits.try_fold(0_u32, |mode, (given, sign)| match given {
            b'-' => Some(mode << 1),
            given if given == *sign => Some(mode << 1 | 1),
            _ => None,
        })
    };
    let found = match signs.len() {
        9 => symbolic(),
        _ => u32::from_str_radix(text, 8).ok(),
    };
    found.filter(|mode| *mode <= 0o7777)
}

/// Returns the number of tries in ONTAP's words.
pub fn tries(tries: u32) -> String {
    match tries {
        u32::MAX => "unlimited".to_owned(),
        tries => tries.to_string(),
    }
}

/// Returns a throttle: `unlimited`, or KB/s.
pub fn throttle(kbs: Option<u64>) -> String {
    kbs.map_or("unlimited".to_owned(), |kbs| kbs.to_string())
}

/// Reads a throttle: KB/s from 4 to 2 TB/s, or 0 or `unlimited` for none.
pub fn parse_throttle(text: &str) -> Option<Option<u64>> {
    match text {
        "unlimited" | "0" => Some(None),
        digits => {
            let kbs: u64 = digits.parse().ok()?;
            (THROTTLE_LEAST..=THROTTLE_MOST)
                .contains(&kbs)
                .then_some(Some(kbs))
        }
    }
}

/// Returns the range of throttles for an error message.
pub fn throttles() -> String {
    format!("0 or unlimited, or {THROTTLE_LEAST} to {THROTTLE_MOST} KB/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_printed() {
        for (bytes, text) in [
            (550_292_684, "524.8MB"),
            (10_412_360, "9.93MB"),
            (64_109_937, "61.14MB"),
            (113_980_211, "108.7MB"),
            (512, "512B"),
            (1024, "1.00KB"),
            (0, "0B"),
            (1_073_741_824, "1.00GB"),
            (1_073_741_823, "1.00GB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        for (bytes, text) in [
            (16 << 30, "16GB"),
            (1 << 40, "1TB"),
            (1536 << 30, "1.50TB"),
            (20 << 20, "20MB"),
            (1_000_000_000, "953.7MB"),
            (0, "0B"),
        ] {
            assert_eq!(tidy_size(bytes), text);
        }
        assert_eq!(number("20g"), Some(f64::from(20 << 10) * 1_048_576.0));
    }

    #[test]
    fn durations_and_times_as_printed() {
        assert_eq!(duration(281), "0:4:41");
        assert_eq!(duration(90), "0:1:30");
        assert_eq!(duration(3_661), "1:1:1");
        assert_eq!(timestamp(1_683_197_153), "05/04 10:45:53");
        assert_eq!(long_timestamp(1_683_196_890), "Thu May  4 10:41:30 2023");
    }

    #[test]
    fn throttles() {
        assert_eq!(parse_throttle("8192"), Some(Some(8192)));
        assert_eq!(parse_throttle("unlimited"), Some(None));
        assert_eq!(parse_throttle("0"), Some(None));
        assert_eq!(parse_throttle("4"), Some(Some(4)));
        assert_eq!(parse_throttle("2147483648"), Some(Some(THROTTLE_MOST)));
        for refused in ["3", "2147483649", "-1", "8MB", "", "99999999999999999999"] {
            assert_eq!(parse_throttle(refused), None, "{refused}");
        }
    }

    #[test]
    fn throughputs_as_written() {
        const MIB: u64 = 1 << 20;
        for (text, wanted) in [
            ("100MB/s", Some((None, Some(100 * MIB)))),
            ("500iops", Some((Some(500), None))),
            ("500IOPS,2GB/s", Some((Some(500), Some(2048 * MIB)))),
            ("500", Some((Some(500), None))),
            ("INF", Some((None, None))),
            ("0iops", None),
            ("fast", None),
            ("MB/s", None),
        ] {
            assert_eq!(throughput(text), wanted, "{text}");
        }
    }
}
