//! Sizes as people write them, and numbers as the published tables print them.

use crate::args::parse_size;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// Bytes in a MiB.
pub const MIB: f64 = 1_048_576.0;

/// A number of bytes; in files `"64KiB"` (powers of two) or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    /// The greatest unit of two that leaves few digits: `64 KiB`, `1.5 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let name = UNITS.get(unit).copied().unwrap_or("B");
        if value.fract() == 0.0 {
            write!(f, "{value:.0} {name}")
        } else {
            write!(f, "{value:.1} {name}")
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64KiB\", or a number of bytes")
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Size, E> {
                Ok(Size(v))
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Size, E> {
                u64::try_from(v).map(Size).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Size, E> {
                parse_size(v).map(Size).map_err(E::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}

/// A number with its thousands apart, as the published tables print them: `4,304`.
/// Numbers below 10 that are not whole keep two digits, below 100 one.
pub fn thousands(value: f64) -> String {
    let digits = match value.abs() {
        v if v == 0.0 || v.fract() == 0.0 => 0,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = match text.split_once('.') {
        Some((w, f)) => (w, Some(f)),
        None => (text.as_str(), None),
    };
    let (sign, whole) = match whole.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", whole),
    };
    let mut out = String::from(sign);
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    if let Some(f) = fraction {
        out.push('.');
        out.push_str(f);
    }
    out
}

/// A latency given in microseconds, in the unit that reads best.
pub fn latency(us: f64) -> String {
    if us < 1000.0 {
        format!("{us:.0} µs")
    } else if us < 10_000.0 {
        format!("{:.2} ms", us / 1000.0)
    } else if us < 1_000_000.0 {
        format!("{:.1} ms", us / 1000.0)
    } else {
        format!("{:.2} s", us / 1e6)
    }
}

/// Seconds as people say them: `45 s`, `3 min 20 s`, `2 h 05 min`.
pub fn duration(seconds: f64) -> String {
    if seconds > 0.0 && seconds < 10.0 && seconds.fract() > 0.0 {
        return format!("{seconds:.1} s");
    }
    let s = seconds.max(0.0).round() as u64;
    match s {
        0..=99 => format!("{s} s"),
        100..=5999 => format!("{} min {:02} s", s / 60, s % 60),
        _ => format!("{} h {:02} min", s / 3600, s % 3600 / 60),
    }
}

fn moment(unix_s: u64, format: &str) -> String {
    let second = i64::try_from(unix_s).ok();
    let at = second.and_then(|s| jiff::Timestamp::from_second(s).ok());
    at.unwrap_or_default().strftime(format).to_string()
}

/// A moment as `2026-11-22 01:30:00 UTC`.
pub fn utc(unix_s: u64) -> String {
    moment(unix_s, "%Y-%m-%d %H:%M:%S UTC")
}

/// A moment as part of a file name: `2026-11-22-0130`.
pub fn stamp(unix_s: u64) -> String {
    moment(unix_s, "%Y-%m-%d-%H%M")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_in_the_published_tables() {
        for (value, text) in [
            (4304.0, "4,304"),
            (0.0, "0"),
            (390_900.4, "390,900"),
            (1_350_000.0, "1,350,000"),
            (96.8, "96.8"),
            (5.831, "5.83"),
            (999.6, "1,000"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(thousands(value), text);
        }
        assert_eq!(Size(65536).to_string(), "64 KiB");
        assert_eq!(Size(6 << 40).to_string(), "6 TiB");
        assert_eq!(Size((3 << 30) / 2).to_string(), "1.5 GiB");
        assert_eq!(latency(250.4), "250 µs");
        assert_eq!(latency(6248.0), "6.25 ms");
        assert_eq!(duration(0.6), "0.6 s");
        assert_eq!(duration(61.0), "61 s");
        assert_eq!(duration(200.0), "3 min 20 s");
        assert_eq!(duration(7500.0), "2 h 05 min");
    }

    #[test]
    fn moments_are_printed_in_utc() {
        for (unix, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
        ] {
            assert_eq!(utc(unix), text);
        }
        assert_eq!(stamp(951_782_400 + 3661), "2000-02-29-0101");
    }
}
