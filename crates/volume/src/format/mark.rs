//! Marks: states that both sides of a pair have in common, so that a difference from one of them
//! brings the other side up to date.
//!
//! A mark is a snapshot of each volume, made at one place in the order of all changes. For space
//! accounting such snapshots are ordinary ones. But they have names that no client can give, and
//! clients do not see them.

use std::fmt;

/// Identifies a mark among all that an aggregate has ever had; later ones are greater. 0: there has
/// been none.
///
/// A reused number would name two states. A mark is removed by a revert to before it, or with its
/// volumes, while an unreachable copy still has it. The copy would then take a difference from the
/// second mark for one from its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct MarkId(pub u64);

/// Number of marks in one term.
const IN_TERM: u64 = 1 << 24;

impl MarkId {
    /// Returns the mark after `last`, in this term.
    pub(crate) fn after(last: MarkId, term: u64) -> MarkId {
        let least = term.wrapping_mul(IN_TERM) & (u64::MAX >> 1);
        MarkId(least.max(last.0 + 1))
    }

    /// Returns the name of its snapshots.
    pub(crate) fn name(self) -> String {
        format!("\0{:016x}", self.0)
    }

    /// Returns the mark whose snapshots have this name; `None` for a snapshot that clients see.
    pub(crate) fn from_name(name: &str) -> Option<MarkId> {
        let digits = name.strip_prefix('\0')?;
        u64::from_str_radix(digits, 16).ok().map(MarkId)
    }
}

impl fmt::Display for MarkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / IN_TERM, self.0 % IN_TERM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::catalog::check_name;
    use crate::types::FsError;

    #[test]
    fn no_client_can_call_a_snapshot_as_a_mark_is_called() {
        let first = MarkId::after(MarkId::default(), 3);
        let next = MarkId::after(first, 3);
        let later = MarkId::after(next, 4);
        assert!(first < next && next < later);
        assert_eq!(MarkId::after(later, 3), MarkId(later.0 + 1));
        assert_ne!(MarkId::after(MarkId::default(), 0), MarkId::default());
        for mark in [first, next, later] {
            assert_eq!(MarkId::from_name(&mark.name()), Some(mark));
            assert_eq!(check_name(&mark.name()), Err(FsError::Invalid));
        }
        assert_eq!(MarkId::from_name("0000000003000000"), None);
    }
}
