//! Marks: states that both sides of a mirror have in common, so that a difference to one of them brings the other side up to date.
//!
//! A mark is a snapshot of each volume, made at one place in the order of all changes. Such snapshots are snapshots like
//! others to everything that has to do with space, but have names that no client can give, and no client sees them.

use std::fmt;

/// Identifies a mark among all that an aggregate has ever had; later ones are greater. 0: there has been none.
///
/// A number that came again would name two states. A mark goes away with a revert to before it, or with its volumes, while
/// a copy that was not reached still has it, and takes a difference to the second one for one to its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct MarkId(pub u64);

/// Marks of one term.
const IN_TERM: u64 = 1 << 24;

impl MarkId {
    /// The one after `last`, in this term.
    pub(crate) fn after(last: MarkId, term: u64) -> MarkId {
        let least = term.wrapping_mul(IN_TERM) & (u64::MAX >> 1);
        MarkId(least.max(last.0 + 1))
    }

    /// What its snapshots are called.
    pub(crate) fn name(self) -> String {
        format!("\0{:016x}", self.0)
    }

    /// The mark whose snapshots are called so; `None`: it is a snapshot that clients see.
    pub(crate) fn of(name: &str) -> Option<MarkId> {
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
            assert_eq!(MarkId::of(&mark.name()), Some(mark));
            assert_eq!(check_name(&mark.name()), Err(FsError::Invalid));
        }
        assert_eq!(MarkId::of("0000000003000000"), None);
    }
}
