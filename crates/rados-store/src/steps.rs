//! The operations by which an owner takes and keeps an aggregate.

use weir_rados::{Comparison, Step};

use crate::record::{ALONE, EPOCH, Epoch, HEIR, HOLDER, TOUCH};

/// Prefix of the cookie under which an owner holds the lock; its epoch follows.
const COOKIE: &str = "epoch-";

fn set(attribute: &'static str, value: Vec<u8>) -> Step {
    Step::Set { attribute, value }
}

/// Returns the step that refuses an operation of an earlier owner.
#[must_use]
pub fn guard(epoch: Epoch) -> Step {
    Step::Compare {
        attribute: EPOCH,
        comparison: Comparison::Equal,
        value: epoch.text(),
    }
}

/// Returns the operation that creates the record's object, if it is missing.
#[must_use]
pub fn make_record() -> Vec<Step> {
    vec![Step::Create { exclusive: false }]
}

/// Returns the operation on the record that makes the process `holder` the owner, if the epoch is
/// still `before`.
#[must_use]
pub fn take_epoch(before: Option<Epoch>, epoch: Epoch, holder: Vec<u8>) -> Vec<Step> {
    let compare = Step::Compare {
        attribute: EPOCH,
        comparison: Comparison::Equal,
        value: before.map_or_else(Vec::new, Epoch::text),
    };
    vec![
        compare,
        set(EPOCH, epoch.text()),
        set(HOLDER, holder),
        set(HEIR, Vec::new()),
    ]
}

/// Returns the operation that seals a guarded object which exists. `ECANCELED`: a later owner has
/// sealed it.
#[must_use]
pub fn seal(epoch: Epoch) -> Vec<Step> {
    let older = Step::Compare {
        attribute: EPOCH,
        comparison: Comparison::GreaterOrEqual,
        value: epoch.text(),
    };
    vec![older, set(EPOCH, epoch.text())]
}

/// Returns the operation that creates a guarded object.
#[must_use]
pub fn create(epoch: Epoch) -> Vec<Step> {
    vec![Step::Create { exclusive: true }, set(EPOCH, epoch.text())]
}

/// Returns the operation that touches the record for the `count`th time. `alone`: no earlier owner
/// replies any more.
#[must_use]
pub fn touch(epoch: Epoch, count: u64, alone: bool) -> Vec<Step> {
    let mut steps = vec![guard(epoch), set(TOUCH, count.to_string().into_bytes())];
    if alone {
        steps.push(set(ALONE, epoch.text()));
    }
    steps
}

/// Returns the operation on the record that compares the epoch after the lock was taken.
#[must_use]
pub fn confirm(epoch: Epoch) -> Vec<Step> {
    vec![guard(epoch), set(EPOCH, epoch.text())]
}

/// Returns the operation by which an owner whose work is complete ends, in favour of the process
/// `heir` if it is not empty.
#[must_use]
pub fn release(epoch: Epoch, heir: Vec<u8>) -> Vec<Step> {
    vec![guard(epoch), set(HOLDER, Vec::new()), set(HEIR, heir)]
}

/// Returns the cookie under which an owner holds the lock.
#[must_use]
pub fn cookie(epoch: Epoch) -> String {
    format!("{COOKIE}{}", epoch.0)
}

/// Returns the epoch of a cookie; 0, which no owner has, if it is none of an owner's.
#[must_use]
pub fn cookie_epoch(cookie: &str) -> u64 {
    let number = cookie.strip_prefix(COOKIE).map(str::parse);
    number.and_then(Result::ok).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_tells_its_epoch() {
        assert_eq!(cookie_epoch(&cookie(Epoch(12))), 12);
        assert_eq!(cookie_epoch("another program's"), 0);
    }
}
