//! Who is asking.

use smallvec::SmallVec;

/// An identity on the wire or after squashing: user, group and supplementary
/// groups, all as the numbers the client sent.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Creds {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary group ids.
    pub gids: SmallVec<[u32; 16]>,
}

impl Creds {
    /// Whether the identity is a member of `gid`.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.gids.contains(&gid)
    }

    /// Whether permission checks do not apply.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }
}
