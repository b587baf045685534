//! The place of a volume in a large volume of a cluster.
//!
//! A large volume has a volume of the same name in each of several aggregates. The node of the
//! cluster that creates them chooses the identity and the secret, and hands each server the place
//! of its volume as a label of the creation, which is not kept among the labels.

use serde::{Deserialize, Serialize};
use std::fmt;
use weir_base::hex;

/// Label of a creation by which a node of the cluster says that the volume is a constituent.
pub const CONSTITUENT_LABEL: &str = "weir-constituent";

/// Maximum number of constituents of a large volume.
const MEMBERS_MAX: u8 = 48;

/// The place of a volume in a large volume.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Constituent {
    /// Identity of the large volume.
    pub large: u64,
    /// Secret of its file handles.
    pub secret: [u8; 16],
    /// Number of the constituent; 0 has the root.
    pub number: u8,
    /// Number of constituents.
    pub members: u8,
}

impl Constituent {
    /// Reads a place as it was written.
    #[must_use]
    pub fn parse(text: &str) -> Option<Constituent> {
        let mut words = text.split('-');
        let mut word = || words.next();
        let constituent = Constituent {
            large: u64::from_be_bytes(hex::decode(word()?)?),
            secret: hex::decode(word()?)?,
            number: word()?.parse().ok()?,
            members: word()?.parse().ok()?,
        };
        let possible =
            constituent.members <= MEMBERS_MAX && constituent.number < constituent.members;
        (possible && word().is_none()).then_some(constituent)
    }
}

impl fmt::Display for Constituent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (large, secret) = (self.large.to_be_bytes(), self.secret);
        let (number, members) = (self.number, self.members);
        let (large, secret) = (hex::encode(&large), hex::encode(&secret));
        write!(f, "{large}-{secret}-{number}-{members}")
    }
}

// The secret is not for logs.
impl fmt::Debug for Constituent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} of {:x}", self.number, self.members, self.large)
    }
}

impl From<Constituent> for String {
    fn from(constituent: Constituent) -> String {
        constituent.to_string()
    }
}

impl TryFrom<String> for Constituent {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Constituent, &'static str> {
        Constituent::parse(&text).ok_or("no place in a large volume")
    }
}

/// Label of a creation by which a node of the cluster says that the pool spans aggregates. A reply
/// has it as well.
pub const SPAN_LABEL: &str = "weir-span";

/// The place of a pool among pools of the same name in other aggregates, which have one throughput
/// together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span {
    /// Identity of the whole.
    pub id: u64,
    /// Number of the part.
    pub number: u8,
    /// Number of parts.
    pub parts: u8,
}

impl Span {
    /// Reads a place as it was written.
    #[must_use]
    pub fn parse(text: &str) -> Option<Span> {
        let mut words = text.split('-');
        let mut word = || words.next();
        let span = Span {
            id: u64::from_be_bytes(hex::decode(word()?)?),
            number: word()?.parse().ok()?,
            parts: word()?.parse().ok()?,
        };
        let possible = span.parts <= MEMBERS_MAX && span.number < span.parts;
        (possible && word().is_none()).then_some(span)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = hex::encode(&self.id.to_be_bytes());
        write!(f, "{id}-{}-{}", self.number, self.parts)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        span.to_string()
    }
}

impl TryFrom<String> for Span {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Span, &'static str> {
        Span::parse(&text).ok_or("no place in a pool that spans aggregates")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_label() {
        let span = Span {
            id: 7,
            number: 1,
            parts: 3,
        };
        assert_eq!(Span::parse(&span.to_string()), Some(span));
        assert_eq!(Span::parse("0000000000000007-3-3"), None);
        assert_eq!(Span::parse("7-1-3"), None);
    }

    #[test]
    fn a_place_has_one_form_that_a_label_can_have() {
        let place = Constituent {
            large: u64::MAX,
            secret: [0xab; 16],
            number: 46,
            members: 48,
        };
        let text = place.to_string();
        assert!(text.len() <= 63, "{text}");
        assert_eq!(Constituent::parse(&text), Some(place));
        assert!(!format!("{place:?}").contains("abab"));
        for bad in [
            "",
            "x",
            "00-00-0-1",
            &text.replace("46-48", "48-48"),
            &format!("{text}-1"),
        ] {
            assert_eq!(Constituent::parse(bad), None, "{bad}");
        }
    }
}
