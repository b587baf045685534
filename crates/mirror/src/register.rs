//! The register that the witness keeps for an aggregate: its primary, and whether the partner is in
//! sync.
//!
//! No request waits for it: while both nodes are up nobody reads it. It decides when the nodes
//! cannot, since neither can distinguish a dead partner from an unreachable one.

use std::collections::BTreeMap;
use std::fmt;

/// One of the two nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The node that created the pair.
    A,
    /// The other node.
    B,
}

impl Side {
    /// Returns the partner.
    #[must_use]
    pub fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// The state of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Register {
    /// Number of changes so far. A change is made from one version to the next or not at all.
    pub version: u64,
    /// Term, which rises whenever one side becomes primary by itself. Positions in the stream of
    /// changes begin with it, so of two copies the one with the greater position has the later
    /// history.
    pub term: u64,
    /// The side that serves clients.
    pub primary: Side,
    /// True if the partner has everything that clients were told, and may take over. If not, the
    /// primary is alone.
    pub mirrored: bool,
}

impl Register {
    /// Creates the register of a pair with equal sides.
    #[must_use]
    pub fn new(primary: Side) -> Register {
        Register {
            version: 1,
            term: 1,
            primary,
            mirrored: true,
        }
    }

    /// Creates the register of a new pair: the second side has nothing yet.
    #[must_use]
    pub fn first(primary: Side) -> Register {
        Register {
            mirrored: false,
            ..Register::new(primary)
        }
    }

    /// Returns its contents besides the numbers, as two bytes.
    #[must_use]
    pub fn sides(&self) -> [u8; 2] {
        [u8::from(self.primary == Side::B), u8::from(self.mirrored)]
    }

    /// Creates a register from its numbers and [`Register::sides`].
    #[must_use]
    pub fn of_sides(version: u64, term: u64, sides: [u8; 2]) -> Option<Register> {
        Some(Register {
            version,
            term,
            primary: match sides[0] {
                0 => Side::A,
                1 => Side::B,
                _ => return None,
            },
            mirrored: match sides[1] {
                0 => false,
                1 => true,
                _ => return None,
            },
        })
    }

    /// Returns the register in which `side` serves from now on, alone, in a term of its own.
    #[must_use]
    pub fn alone(self, side: Side) -> Register {
        Register {
            version: self.version + 1,
            term: self.term + 1,
            primary: side,
            mirrored: false,
        }
    }

    /// Returns the register in which the partner is in sync.
    #[must_use]
    pub fn joined(self) -> Register {
        Register {
            version: self.version + 1,
            mirrored: true,
            ..self
        }
    }

    /// Returns true if `side` has everything that clients were told.
    #[must_use]
    pub fn has_all(self, side: Side) -> bool {
        self.mirrored || self.primary == side
    }
}

/// Result of a compare-and-swap, with the current register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swap {
    /// The swap was done.
    Done(Register),
    /// The version did not match: nothing was done.
    Lost(Register),
}

/// Reason why a witness does not reply. A change may have been made, or may be made later, all the
/// same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreachable(pub String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the witness does not reply: {}", self.0)
    }
}

impl std::error::Error for Unreachable {}

/// A durable store of registers, by an aggregate's identity.
pub trait Witness {
    /// Returns the register, if it exists.
    ///
    /// # Errors
    /// [`Unreachable`].
    fn read(&mut self, aggregate: [u8; 16]) -> Result<Option<Register>, Unreachable>;

    /// Replaces a register of the version before `to`'s (none, if that is 0) with `to`.
    ///
    /// # Errors
    /// [`Unreachable`]: the swap may have been done.
    fn swap(&mut self, aggregate: [u8; 16], to: Register) -> Result<Swap, Unreachable>;
}

/// Registers in memory, for simulations.
#[derive(Clone, Default, Debug)]
pub struct MemoryWitness(BTreeMap<[u8; 16], Register>);

impl Witness for MemoryWitness {
    fn read(&mut self, aggregate: [u8; 16]) -> Result<Option<Register>, Unreachable> {
        Ok(self.0.get(&aggregate).copied())
    }

    fn swap(&mut self, aggregate: [u8; 16], to: Register) -> Result<Swap, Unreachable> {
        match self.0.get(&aggregate) {
            Some(now) if now.version + 1 != to.version => Ok(Swap::Lost(*now)),
            None if to.version != 1 => Err(Unreachable("the register does not exist".into())),
            _ => {
                self.0.insert(aggregate, to);
                Ok(Swap::Done(to))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_changes_from_one_version_one_is_made() {
        let mut witness = MemoryWitness::default();
        let id = [7; 16];
        assert_eq!(witness.read(id), Ok(None));
        let first = Register::new(Side::A);
        assert_eq!(witness.swap(id, first), Ok(Swap::Done(first)));
        let (a, b) = (first.alone(Side::A), first.alone(Side::B));
        assert_eq!(witness.swap(id, a), Ok(Swap::Done(a)));
        assert_eq!(witness.swap(id, b), Ok(Swap::Lost(a)));
        assert_eq!(witness.read(id), Ok(Some(a)));
        assert!(witness.swap([8; 16], a).is_err());
        assert!(a.has_all(Side::A) && !a.has_all(Side::B) && a.joined().has_all(Side::B));
        assert_eq!((a.term, a.joined().term), (2, 2));
    }
}
