//! Identifiers, labels and the client's own fields: valid contents and sizes.

use crate::model::{Extra, Labels};
use crate::mutation::DescriptionChange;
use crate::name::{LocationName, SnapshotName};
use crate::policies::{NamedKind, PolicyName};
use crate::refusal::{Refusal, Status};
use std::sync::Arc;

fn refuse<T>(reason: &'static str, message: String) -> Result<T, Refusal> {
    Err(Refusal::new(Status::InvalidArgument, reason, message))
}

/// Returns true for a letter followed by letters, digits, `-` and `_`, the last one a letter or
/// digit; at most 63.
fn is_id(id: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    id.len() <= 63
        && id.starts_with(|c: char| c.is_ascii_alphabetic())
        && id.ends_with(|c: char| c.is_ascii_alphanumeric())
        && id.chars().all(good)
}

fn check_place(part: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    (1..=100).contains(&part.len()) && part != "-" && part.chars().all(good)
}

/// Checks the name of a new resource.
pub fn check(place: &LocationName, id: &str) -> Result<(), Refusal> {
    if !check_place(&place.project) || !check_place(&place.location) {
        return refuse(
            "NAME_INVALID",
            format!(
                "{place} is no place: projects and locations have 1 to 100 letters, digits and -_.:"
            ),
        );
    }
    if !is_id(id) {
        return refuse(
            "NAME_INVALID",
            format!(
                "{:?} is no identifier: a letter, then letters, digits, - and _, the last a letter or digit, 63 in all at most",
                clipped(id)
            ),
        );
    }
    Ok(())
}

/// Checks the name of a new snapshot, which appears as a folder. ONTAP's users begin names with the
/// date.
pub fn check_snapshot(name: &SnapshotName) -> Result<(), Refusal> {
    let begins = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let ends = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.:+@".contains(c);
    let id = &*name.id;
    if id.len() <= 63 && id.starts_with(begins) && id.ends_with(ends) && id.chars().all(good) {
        return Ok(());
    }
    refuse(
        "NAME_INVALID",
        format!(
            "{:?} is no snapshot name: a letter, digit or _, then letters, digits and -_.:+@, the last a letter, digit or _, 63 in all at most",
            clipped(&name.id)
        ),
    )
}

/// Checks a share's name, which becomes a path.
pub fn check_share(share: &str) -> Result<(), Refusal> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=80).contains(&share.len())
        && share.starts_with(|c: char| c.is_ascii_alphabetic())
        && share.chars().all(good)
    {
        return Ok(());
    }
    refuse(
        "SHARE_NAME_INVALID",
        format!(
            "Invalid share name {:?}: it must be a letter, then letters, digits, - and _, 80 characters at most",
            clipped(share)
        ),
    )
}

/// Checks the name of a policy, or of a project that has nothing yet.
pub fn check_policy(name: &PolicyName) -> Result<(), Refusal> {
    let projects =
        (name.project.is_empty() && name.kind != NamedKind::Project) || check_place(&name.project);
    let good = |c: char| c.is_ascii_graphic() && c != '/';
    let named = (1..=256).contains(&name.id.len()) && &*name.id != "-" && name.id.chars().all(good);
    if projects && named {
        return Ok(());
    }
    refuse(
        "NAME_INVALID",
        format!(
            "{:?} is no name of a policy: 1 to 256 letters, digits and signs, without blanks and slashes",
            clipped(&name.id)
        ),
    )
}

/// Checks an export path without its leading slash: share names, one below the other.
pub fn check_path(path: &str) -> Result<(), Refusal> {
    const DEEPEST: usize = 8;
    let parts = path.split('/');
    if parts.clone().count() > DEEPEST {
        return refuse(
            "SHARE_NAME_INVALID",
            format!("a path has {DEEPEST} parts at most"),
        );
    }
    parts.into_iter().try_for_each(check_share)
}

/// Checks the descriptive fields of a resource.
pub fn check_words(description: &str, labels: &Labels, extra: &Extra) -> Result<(), Refusal> {
    const DESCRIPTION: usize = 2048;
    const LABELS: usize = 64;
    const LABEL: usize = 63;
    const EXTRA: usize = 64 << 10;
    if description.len() > DESCRIPTION {
        return refuse(
            "DESCRIPTION_TOO_LONG",
            format!(
                "the description has {} bytes; {DESCRIPTION} fit",
                description.len()
            ),
        );
    }
    if labels.len() > LABELS {
        return refuse(
            "TOO_MANY_LABELS",
            format!("{} labels; {LABELS} fit", labels.len()),
        );
    }
    for (key, value) in labels {
        if key.is_empty() || key.chars().count() > LABEL || value.chars().count() > LABEL {
            return refuse(
                "LABEL_INVALID",
                format!(
                    "label {:?}: keys have 1 to {LABEL} characters, values up to {LABEL}",
                    clipped(key)
                ),
            );
        }
    }
    let size = serde_json::to_string(extra).map_or(usize::MAX, |text| text.len());
    if size > EXTRA {
        return refuse(
            "RESOURCE_TOO_LARGE",
            format!("the fields kept for the client have {size} bytes; {EXTRA} fit"),
        );
    }
    Ok(())
}

/// Sets each key, or removes it if the value is null.
pub fn merge(into: &mut Extra, change: Extra) {
    for (key, value) in change {
        if value.is_null() {
            into.remove(&key);
        } else {
            into.insert(key, value);
        }
    }
}

/// Changes a description, labels and the client's own fields.
pub fn describe(
    description: &mut String,
    labels: &mut Labels,
    extra: &mut Extra,
    change: &DescriptionChange,
) -> Result<(), Refusal> {
    if let Some(text) = &change.description {
        description.clone_from(text);
    }
    if let Some(new) = &change.labels {
        labels.clone_from(new);
    }
    merge(extra, change.extra.clone());
    check_words(description, labels, extra)
}

/// Returns the refusal for a taken name.
pub fn taken(what: &str, id: &Arc<str>) -> Refusal {
    Refusal::new(
        Status::AlreadyExists,
        "NAME_TAKEN",
        format!("{what} {id} already exists"),
    )
}

fn clipped(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers() {
        let place = LocationName::new("p1", "us-central1");
        for good in ["a", "vol1", "my-vol_2", "V"] {
            assert!(check(&place, good).is_ok(), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "1a", "a-", "a/b", "a.b", "ä", "a b", &long, ".."] {
            let refusal = check(&place, bad).unwrap_err();
            assert_eq!(refusal.reason, "NAME_INVALID", "{bad}");
        }
        assert!(check(&LocationName::new("", "l"), "a").is_err());
        assert!(check(&LocationName::new("p", "-"), "a").is_err());
        assert!(check(&LocationName::new("example.com:p", "europe-west1-b"), "a").is_ok());
        let volume = place.volume("v");
        assert!(check_snapshot(&volume.snapshot("daily.2026-01-01")).is_ok());
        for good in [
            "20261128T212948Z8xc1ja",
            "20261128_backup",
            "_x",
            "a:b+c@d_",
        ] {
            assert!(check_snapshot(&volume.snapshot(good)).is_ok(), "{good}");
        }
        for bad in ["", "..", ".a", "-a", "a/b", "a b", "a.", &long] {
            assert!(check_snapshot(&volume.snapshot(bad)).is_err(), "{bad}");
        }
        assert!(check_share("share_1").is_ok());
        assert!(check_share("a/b").is_err());
    }

    #[test]
    fn words_are_bounded() {
        let extra = |size: usize| Extra::from_iter([("a".to_owned(), "x".repeat(size).into())]);
        assert!(check_words("", &Labels::new(), &extra(60_000)).is_ok());
        let reason = |r: Result<(), Refusal>| r.unwrap_err().reason;
        assert_eq!(
            reason(check_words("", &Labels::new(), &extra(70_000))),
            "RESOURCE_TOO_LARGE"
        );
        assert_eq!(
            reason(check_words(
                &"d".repeat(2049),
                &Labels::new(),
                &Extra::new()
            )),
            "DESCRIPTION_TOO_LONG"
        );
        let many = (0..65).map(|n| (format!("l{n}"), String::new())).collect();
        assert_eq!(
            reason(check_words("", &many, &Extra::new())),
            "TOO_MANY_LABELS"
        );
        let label = Labels::from([("k".to_owned(), "v".repeat(64))]);
        assert_eq!(
            reason(check_words("", &label, &Extra::new())),
            "LABEL_INVALID"
        );
    }

    #[test]
    fn merging_removes_what_is_null() {
        let mut extra = Extra::from_iter([("a".to_owned(), 1.into()), ("b".to_owned(), 2.into())]);
        merge(
            &mut extra,
            Extra::from_iter([
                ("a".to_owned(), serde_json::Value::Null),
                ("c".to_owned(), 3.into()),
            ]),
        );
        let text = serde_json::to_string(&extra).unwrap();
        assert_eq!(text, r#"{"b":2,"c":3}"#);
    }
}
