//! Format features: extensions of the format that an aggregate uses only if it was made with them,
//! or after `weir upgrade` has switched them on.
//!
//! The identity of an aggregate names the features that are on: a file of its folder, or an
//! attribute of its objects. A program that does not know one of them refuses the aggregate before
//! anything else, and changes nothing. So a feature is switched on by an operator and never by a
//! start: until then an earlier program can still serve the aggregate.

use std::collections::BTreeSet;

use crate::superblock::FORMAT_VERSION;

/// A format feature that this program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Name in the identity file: lower-case letters, digits and dashes.
    pub name: &'static str,
    /// Effect, for people.
    pub about: &'static str,
}

/// Checkpoints count the space and the inodes of each user and group, so that quotas can be set.
pub const USAGE: Feature = Feature {
    name: "usage",
    about: "count the space and files of each user and group, so that quotas can be set",
};

/// Files belong to trees (qtrees) within their volume, which are counted and limited like users.
pub const TREES: Feature = Feature {
    name: "trees",
    about: "make qtrees: folders of a volume that are counted and limited by themselves",
};

/// Volumes are constituents of large volumes: entries name inodes of other volumes.
pub const CONSTITUENTS: Feature = Feature {
    name: "constituents",
    about: "make volumes that are constituents of large volumes",
};

/// Features that this program knows. A new one is added here, and read and written only where it is
/// on. An aggregate that this program makes has them all.
pub const FEATURES: &[Feature] = &[USAGE, TREES, CONSTITUENTS];

/// Format of an aggregate, compared with this program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregateFormat {
    /// Format version, which is this program's.
    pub version: u32,
    /// Features that are on.
    pub on: Vec<String>,
    /// Features that this program could switch on.
    pub off: Vec<Feature>,
}

impl AggregateFormat {
    /// Compares an aggregate on which these features are on with this program.
    pub fn from_features(on: Vec<String>) -> AggregateFormat {
        AggregateFormat {
            version: FORMAT_VERSION,
            off: off(&on, FEATURES),
            on,
        }
    }
}

/// Returns the names of the features that a new aggregate has.
pub fn names() -> Vec<String> {
    FEATURES.iter().map(|one| one.name.to_owned()).collect()
}

/// Checks that this program knows all of these features.
///
/// # Errors
/// The reason, for people, why the aggregate is refused.
pub fn admit(on: &[String]) -> Result<(), String> {
    admit_with(on, FEATURES)
}

pub(crate) fn admit_with(on: &[String], known: &[Feature]) -> Result<(), String> {
    match unknown(on, known).as_slice() {
        [] => Ok(()),
        unknown => Err(refusal(unknown)),
    }
}

/// Returns the names in `on` that are not among `known`.
fn unknown<'f>(on: &'f [String], known: &[Feature]) -> Vec<&'f str> {
    let known: BTreeSet<&str> = known.iter().map(|feature| feature.name).collect();
    on.iter()
        .map(String::as_str)
        .filter(|name| !known.contains(name))
        .collect()
}

/// Returns those of `known` that are not on.
pub(crate) fn off(on: &[String], known: &[Feature]) -> Vec<Feature> {
    let is_off = |feature: &&Feature| !on.iter().any(|name| name == feature.name);
    known.iter().filter(is_off).copied().collect()
}

/// Returns the reason, for people, why a folder with these unknown features is refused.
fn refusal(unknown: &[&str]) -> String {
    format!(
        "the aggregate uses format features that this server does not know: {} (use the Weir that \
         switched them on, or a newer one)",
        unknown.join(", ")
    )
}
