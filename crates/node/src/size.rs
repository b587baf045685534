//! Sizes as people write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes that reads and prints with binary units: `512M`, `4GiB`, `1048576`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const UNITS: [(&str, u32); 6] = [
    ("K", 10),
    ("M", 20),
    ("G", 30),
    ("T", 40),
    ("P", 50),
    ("E", 60),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let refused = || format!("'{text}' is not a size; write bytes or a number with K, M, G, T");
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = text
            .get(digits.len()..)
            .unwrap_or_default()
            .trim()
            .to_ascii_uppercase();
        let number: u64 = digits.trim().parse().map_err(|_| refused())?;
        let unit = unit.trim_end_matches("IB").trim_end_matches('B');
        let shift = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, shift)) => *shift,
            None if unit.is_empty() => 0,
            None => return Err(refused()),
        };
        match number.checked_mul(1 << shift) {
            Some(bytes) => Ok(Size(bytes)),
            None => Err(format!("'{text}' is beyond 16 EiB")),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().rev().find(|(_, shift)| self.0 >> shift > 0) {
            Some((name, shift)) => {
                let tenths = (u128::from(self.0) * 10) >> shift;
                match tenths % 10 {
                    0 => write!(f, "{} {name}iB", tenths / 10),
                    tenth => write!(f, "{}.{tenth} {name}iB", tenths / 10),
                }
            }
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_printed() {
        for (text, bytes, printed) in [
            ("0", 0, "0 B"),
            ("4096", 4096, "4 KiB"),
            ("64k", 65536, "64 KiB"),
            ("1536M", 1536 << 20, "1.5 GiB"),
            ("2GiB", 2 << 30, "2 GiB"),
            ("3 TB", 3 << 40, "3 TiB"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(
                (size.0, size.to_string().as_str()),
                (bytes, printed),
                "{text}"
            );
        }
        for text in ["", "G", "1.5G", "-1", "1Q", "17E", "99999999999999999999"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
