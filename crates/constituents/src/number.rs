//! Inode numbers of a large volume: the constituent in the top byte, the number that the
//! constituent has given in the others.

use std::fmt;

use weir_base::Ino;

/// Number of a constituent within its large volume, below [`CONSTITUENTS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Constituent(pub u8);

/// Maximum number of constituents of a large volume: the decision of a snapshot, which names them
/// all, fits into one token.
pub const CONSTITUENTS_MAX: usize = 48;

/// Bits of an inode number that its constituent gives.
const LOCAL_BITS: u32 = 56;

/// The root directory of a large volume: that of its constituent 0.
pub const ROOT: Ino = Ino(2);

impl fmt::Display for Constituent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Constituent {
    /// Returns the constituent that has the inode.
    #[must_use]
    pub fn of_inode(ino: Ino) -> Constituent {
        Constituent((ino.0 >> LOCAL_BITS) as u8)
    }

    /// Returns the number in the large volume of the inode that has `local` in this constituent;
    /// `None` if `local` does not fit.
    #[must_use]
    pub fn inode(self, local: u64) -> Option<Ino> {
        (local >> LOCAL_BITS == 0).then(|| Ino(u64::from(self.0) << LOCAL_BITS | local))
    }
}

/// Returns the number that the inode has in its constituent.
#[must_use]
pub fn local_number(ino: Ino) -> u64 {
    ino.0 & ((1 << LOCAL_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_its_constituent() {
        for constituent in [0, 1, 7, 47] {
            for local in [0, 2, 16, (1 << LOCAL_BITS) - 1] {
                let ino = Constituent(constituent).inode(local).unwrap();
                assert_eq!(Constituent::of_inode(ino), Constituent(constituent));
                assert_eq!(local_number(ino), local);
            }
        }
        assert_eq!(Constituent(0).inode(2), Some(ROOT));
        assert_eq!(Constituent(1).inode(1 << LOCAL_BITS), None);
    }
}
