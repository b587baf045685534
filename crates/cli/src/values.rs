//! The kinds of flag values that gcloud has: sizes, booleans, lists, dictionaries, labels.
//!
//! A list is `a,b,c`; a dictionary is `k=v,k=v`. Where an item holds a comma, the value may begin
//! with another delimiter between carets: `^;^k=a,b;k2=c` (`gcloud topic escaping`). In a
//! dictionary an item without `=` continues the one before it, so that
//! `allowed-clients=10.0.0.0/8,10.9.0.1,access-type=READ_ONLY` needs no caret. gcloud refuses that,
//! so nothing that it accepts is read differently. A dictionary may also be JSON, which is what
//! `--flags-file` turns into.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

/// A capacity in whole GiB, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gib(pub u64);

/// A throughput in whole MiB/s, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mibps(pub u64);

/// The items of a comma-separated list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List(pub Vec<String>);

/// A dictionary whose keys have been checked by the command that takes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Dict(pub Map<String, Value>);

/// Exponents of 1024 of the unit letters.
const UNITS: &[(char, u32)] = &[('k', 1), ('m', 2), ('g', 3), ('t', 4), ('p', 5)];

/// Returns the bytes of `DECIMAL[UNIT]`. The unit is any of K, M, G, T, P, with or without `B` or
/// `iB` (all are powers of 1024, as in gcloud). `default` is the exponent of 1024 for when there is
/// none. The result is a whole number of bytes below 2^63.
fn bytes(text: &str, default: u32) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let exponent = match unit.as_str() {
        "" => default,
        "b" => 0,
        unit => {
            let mut chars = unit.chars();
            let letter = chars.next()?;
            if !matches!(chars.as_str(), "" | "b" | "ib") {
                return None;
            }
            UNITS.iter().find(|(l, _)| *l == letter)?.1
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // 18 digits and 10 more bits for each of five units stay within 128 bits.
    if (whole.is_empty() && fraction.is_empty()) || whole.len() > 18 || fraction.len() > 18 {
        return None;
    }
    let digits: u128 = format!("0{whole}{fraction}").parse().ok()?;
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = digits.checked_mul(1u128.checked_shl(exponent.checked_mul(10)?)?)?;
    if scaled.checked_rem(scale)? != 0 {
        return None;
    }
    let bytes = u64::try_from(scaled.checked_div(scale)?).ok()?;
    (bytes <= i64::MAX as u64).then_some(bytes)
}

/// Returns a warning if a capacity was written in units of 1000 bytes, which count as units of 1024
/// as gcloud's do.
pub fn binary_units(text: &str) -> Option<String> {
    let unit = text
        .trim()
        .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let decimal = matches!(
        unit.to_ascii_uppercase().as_str(),
        "KB" | "MB" | "GB" | "TB" | "PB"
    );
    let Gib(taken) = gib(text).ok().filter(|_| decimal)?;
    Some(format!(
        "{text} is taken as {taken} GiB, of 2^30 bytes each (as gcloud does)"
    ))
}

/// A capacity of the command line in GiB, with a warning about its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity(pub u64, pub Option<String>);

/// Reads a capacity as [`gib`] does.
///
/// # Errors
/// As [`gib`].
pub fn capacity(text: &str) -> Result<Capacity, String> {
    Ok(Capacity(gib(text)?.0, binary_units(text)))
}

/// GiB of the largest capacity, which is counted in bytes with 63 bits.
const MOST_GIB: &str = "8589934591";

/// Returns a capacity: GiB without a unit.
///
/// # Errors
/// The text is no size, or no whole number of GiB from 1.
pub fn gib(text: &str) -> Result<Gib, String> {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let bytes = bytes(text, 3).ok_or_else(|| match digits > MOST_GIB.len() {
        true => format!("a capacity is a whole number of GiB, 1 to {MOST_GIB}; received: {text}"),
        false => format!(
            "given value must be of the form DECIMAL[UNITS] where units can be one of GiB, TiB \
             and value must be a whole number of Bytes; received: {text}"
        ),
    })?;
    if bytes == 0 || bytes % (1 << 30) != 0 {
        return Err(format!(
            "a capacity is a whole number of GiB, at least 1; received: {text}"
        ));
    }
    Ok(Gib(bytes >> 30))
}

/// Returns a throughput: MiB/s without a unit; `MiB/s` and `GiB/s` are understood.
///
/// # Errors
/// The text is no throughput, or no whole number of MiB/s from 1.
pub fn mibps(text: &str) -> Result<Mibps, String> {
    let amount = text.strip_suffix("/s").unwrap_or(text);
    let bytes = bytes(amount, 2).ok_or_else(|| {
        format!(
            "given value must be of the form DECIMAL[UNITS] where units can be one of MiB/s, \
             GiB/s; received: {text}"
        )
    })?;
    if bytes == 0 || bytes % (1 << 20) != 0 {
        return Err(format!(
            "a throughput is a whole number of MiB/s, at least 1; received: {text}"
        ));
    }
    Ok(Mibps(bytes >> 20))
}

/// Returns a boolean, in the spellings that gcloud takes.
///
/// # Errors
/// The text is none of these spellings.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "True" | "TRUE" | "on" | "ON" | "yes" | "YES" => Ok(true),
        "false" | "False" | "FALSE" | "off" | "OFF" | "no" | "NO" => Ok(false),
        _ => Err(format!(
            "Invalid flag value [{text}], expected one of [true, True, TRUE, on, ON, yes, YES, \
             false, False, FALSE, off, OFF, no, NO]"
        )),
    }
}

/// Returns the name of an enumeration's value on the wire: `basic-hdd` is `BASIC_HDD`.
///
/// # Errors
/// The text cannot be such a name.
pub fn enumerator(text: &str) -> Result<String, String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || !text.chars().all(valid) {
        return Err(format!("Invalid choice: '{text}'."));
    }
    Ok(text.to_ascii_uppercase().replace('-', "_"))
}

/// Returns a protocol of a volume.
///
/// # Errors
/// One that there is not.
fn protocol(text: &str) -> Result<String, String> {
    let name = enumerator(text)?;
    if matches!(name.as_str(), "NFSV3" | "NFSV4" | "SMB") {
        Ok(name)
    } else {
        Err(format!(
            "Invalid choice: {text}. Valid choices are: [nfsv3, nfsv4, smb]."
        ))
    }
}

/// Returns a list of protocols, separated by commas.
///
/// # Errors
/// Another protocol; see [`protocol`].
pub fn protocols(text: &str) -> Result<List, String> {
    let List(items) = list(text)?;
    items
        .iter()
        .map(|i| protocol(i))
        .collect::<Result<_, _>>()
        .map(List)
}

/// Returns a list of enumerators, separated by commas.
///
/// # Errors
/// See [`enumerator`]; also a list without items.
pub fn enumerators(text: &str) -> Result<List, String> {
    let List(items) = list(text)?;
    items
        .iter()
        .map(|i| enumerator(i))
        .collect::<Result<_, _>>()
        .map(List)
}

/// Splits at the commas, or at the delimiter that is given between carets at the start.
fn split(text: &str) -> Vec<&str> {
    let escaped = text.strip_prefix('^').and_then(|rest| rest.split_once('^'));
    let (delimiter, body) = match escaped {
        Some((delimiter, body)) if !delimiter.is_empty() => (delimiter, body),
        _ => (",", text),
    };
    body.split(delimiter).collect()
}

/// Returns a duration: a number and s, m, h or d.
///
/// # Errors
/// Anything else, and nothing at all.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no duration: a number and a unit, such as 90m, 12h or 30d");
    let (digits, unit) =
        text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
    match count.checked_mul(unit) {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(wrong()),
    }
}

/// Returns a list of at least one item; blank items are dropped.
///
/// # Errors
/// The list has no items.
pub fn list(text: &str) -> Result<List, String> {
    let items: Vec<String> = split(text)
        .into_iter()
        .map(|item| item.trim().to_owned())
        .filter(|item| !item.is_empty())
        .collect();
    if items.is_empty() {
        return Err("not enough args".to_owned());
    }
    Ok(List(items))
}

/// Returns a dictionary with any keys.
///
/// # Errors
/// An item without a key.
pub fn dict(text: &str) -> Result<Dict, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text)
            .map(Dict)
            .map_err(|error| format!("not a JSON object: {error}"));
    }
    let mut map = Map::new();
    let mut last: Option<String> = None;
    for item in split(text) {
        match (item.split_once('='), &last) {
            (Some((key, value)), _) if !key.trim().is_empty() => {
                let key = key.trim().to_owned();
                if map.insert(key.clone(), Value::from(value)).is_some() {
                    return Err(format!("\"{key}\" cannot be specified multiple times"));
                }
                last = Some(key);
            }
            (None, Some(key)) => {
                if let Some(Value::String(value)) = map.get_mut(key) {
                    value.push(',');
                    value.push_str(item);
                }
            }
            _ => {
                return Err(format!(
                    "Bad syntax for dict arg: [{item}]. A value with special characters is \
                     written as ^;^key=value;key=value, or in a file for --flags-file."
                ));
            }
        }
    }
    Ok(Dict(map))
}

/// Reads labels: `KEY=VALUE,…`.
///
/// # Errors
/// See [`dict`], which parses the text.
pub fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let Dict(map) = dict(text)?;
    map.into_iter()
        .map(|(key, value)| match value {
            Value::String(value) => Ok((key, value)),
            other => Ok((key, other.to_string())),
        })
        .collect()
}

impl Dict {
    /// Returns the dictionary, if it has no other keys than `valid`.
    ///
    /// # Errors
    /// It has another key.
    pub fn only(self, valid: &[&str]) -> Result<Self, String> {
        match self.0.keys().find(|key| !valid.contains(&key.as_str())) {
            None => Ok(self),
            Some(key) => Err(format!(
                "valid keys are [{}]; received: {key}",
                valid.join(", ")
            )),
        }
    }

    /// Returns the text behind a key.
    pub fn text(&self, key: &str) -> Option<String> {
        match self.0.get(key)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    /// Returns the text behind a key that must be there.
    ///
    /// # Errors
    /// The key is not there.
    pub fn required(&self, key: &str) -> Result<String, String> {
        self.text(key)
            .ok_or_else(|| format!("Key [{key}] required in dict arg but not provided"))
    }

    /// Returns the whole number behind a key. gcloud takes `7.0` as well.
    ///
    /// # Errors
    /// The value is not a whole number.
    pub fn integer(&self, key: &str) -> Result<Option<i64>, String> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        let whole = text.strip_suffix(".0").unwrap_or(&text);
        whole
            .parse()
            .map(Some)
            .map_err(|_| format!("the value of {key} is a whole number; received: {text}"))
    }

    /// Returns the boolean behind a key.
    ///
    /// # Errors
    /// The text is none; see [`boolean`].
    pub fn boolean(&self, key: &str) -> Result<Option<bool>, String> {
        self.text(key).map(|text| boolean(&text)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_as_gcloud_takes_them() {
        for (text, expected) in [
            ("1024", 1024),
            ("1TiB", 1024),
            ("40TiB", 40960),
            ("40tib", 40960),
            ("1T", 1024),
            ("1024GB", 1024),
            ("1.5TiB", 1536),
            ("1024MiB", 1),
            ("0.5TB", 512),
            ("1PiB", 1 << 20),
            ("2 TiB", 2048),
        ] {
            assert_eq!(gib(text), Ok(Gib(expected)), "{text}");
        }
        for text in [
            "",
            "abc",
            "-1",
            "1.5.1",
            ".",
            "0",
            "1MiB",
            "1.1MiB",
            "1XiB",
            "1TiBs",
            "9999999P",
            "1e3",
            "99999999999999999999",
            "1TiB/s",
        ] {
            assert!(gib(text).is_err(), "{text}");
        }
        let large = gib("99999999999999999999").unwrap_err();
        assert!(large.contains("1 to 8589934591"), "{large}");
    }

    #[test]
    fn throughputs() {
        for (text, expected) in [
            ("128", 128),
            ("5GiB/s", 5120),
            ("64MiB/s", 64),
            ("1GiB", 1024),
        ] {
            assert_eq!(mibps(text), Ok(Mibps(expected)), "{text}");
        }
        assert!(mibps("1KiB/s").is_err());
    }

    #[test]
    fn dictionaries() {
        let text = |t: &str| dict(t).map(|d| Value::Object(d.0).to_string());
        assert_eq!(
            text("allowed-clients=10.0.0.0/8,10.1.0.1,access-type=READ_ONLY").as_deref(),
            Ok(r#"{"access-type":"READ_ONLY","allowed-clients":"10.0.0.0/8,10.1.0.1"}"#)
        );
        assert_eq!(
            text("^;^a=1,2;b=3").as_deref(),
            Ok(r#"{"a":"1,2","b":"3"}"#)
        );
        assert_eq!(text(r#"{"a": [1]}"#).as_deref(), Ok(r#"{"a":[1]}"#));
        for bad in ["allowed-clients", "=1", "a=1,a=2", "{", ""] {
            assert!(dict(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_size_reads_back(amount in 1u64..(1 << 33), unit in 0usize..3) {
            let (suffix, shift) = [("", 0), ("GiB", 0), ("TiB", 10)][unit];
            prop_assert_eq!(gib(&format!("{amount}{suffix}")), Ok(Gib(amount << shift)).and_then(|g: Gib| {
                if g.0 <= (i64::MAX as u64) >> 30 { Ok(g) } else { gib("overflow") }
            }).or_else(|_: String| gib(&format!("{amount}{suffix}"))));
        }

        #[test]
        fn thousandths_are_exact(thousandths in 1u64..10_000_000) {
            let text = format!("{}.{:03}TiB", thousandths / 1000, thousandths % 1000);
            let expected = (thousandths * 1024) % 1000 == 0;
            prop_assert_eq!(gib(&text).is_ok(), expected, "{}", text);
            if let Ok(Gib(gib)) = gib(&text) {
                prop_assert_eq!(gib * 1000, thousandths * 1024);
            }
        }

        #[test]
        fn nothing_makes_it_panic(text in "\\PC{0,24}") {
            let _ = (gib(&text), mibps(&text), dict(&text), list(&text), labels(&text));
        }
    }
}
