//! Conflicts between the claims of all protocols, in tables.
//!
//! **Opens.** Two opens of different owners conflict if one uses what the other denies. The third
//! mode is deletion. An SMB open that does not share it keeps others from opening for deletion, and
//! NFS from unlinking on volumes of NTFS or mixed style. On UNIX style NFS ignores it (ONTAP, "file
//! locking between protocols").
//!
//! **Reads and writes** against what another holds:
//!
//! | by | denying open | exclusive mandatory range | shared mandatory range | advisory range |
//! |---|---|---|---|---|
//! | NFS read | stopped, if the denial is enforced | – | – | – |
//! | NFS write, cut | stopped, likewise | stopped | – | – |
//! | SMB read | the open was tested | stopped | – | stopped if exclusive |
//! | SMB write | the open was tested | stopped | stopped, by one's own as well | stopped |
//!
//! NFS's locks are advisory: they bind no NFS read or write, but SMB, which knows no advisory
//! locks, is bound by them. SMB's exclusive ranges stop NFS writes. NFSv4 under an open of its own
//! was tested against denials at OPEN.
//!
//! **Ranges against ranges** of other owners: they conflict if one is exclusive, whatever protocol
//! either is of. Among an owner's own: advisory ones replace each other (fcntl); mandatory ones
//! stack. A new exclusive one conflicts with every one of its own open's, while a shared one may be
//! put over its own exclusive one (MS-FSA §2.1.4.10).
//!
//! **Caching** is taken away by what others do ([`Event::takes`]): a *lease* (SMB) loses the bits
//! concerned, a *delegation* (NFSv4) is returned whole. It is also recalled by an open for writing
//! or one that denies reading, since its holder opens and locks without asking. The holder of a
//! read delegation does so for reading alone, beside which others may deny writing (RFC 8881
//! §10.4). Caching is granted beside an open by the same rule: as far as that open would leave it.

use super::types::{CacheRights, Modes};

/// Kind of a grant of caching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Each bit by itself (SMB lease, directory lease).
    Lease,
    /// All bits as a whole (NFSv4 delegation).
    Delegation,
}

/// Security style of a volume: the protocols that may ignore SMB's state in its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// NFS ignores denials of deletion.
    Unix,
    /// NFS respects them: NTFS and mixed style.
    Ntfs,
}

/// Act of a client on a file, as far as others' caches of it are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Opens it for reading or deletion, or denies others to write it.
    OpenRead,
    /// Opens it for writing, or denies others to read it.
    OpenWrite,
    /// Opens it and cuts it.
    Overwrite,
    /// Was refused an open because of a denial, which a cached close may end.
    ShareConflict,
    /// Reads data of it.
    Read,
    /// Writes or cuts it.
    Write,
    /// Locks bytes of it, shared.
    LockShared,
    /// Locks bytes of it.
    LockExclusive,
    /// Renames it or removes a name of it.
    Name,
    /// Changes attributes or adds a name.
    Attributes,
    /// Changes an entry of it, a directory.
    Entries,
}

impl Event {
    /// Returns the event that an open is, if it concerns others' caches: one for attributes alone
    /// does not.
    pub fn of_open(access: Modes, deny: Modes, overwrite: bool) -> Option<Event> {
        if overwrite {
            return Some(Event::Overwrite);
        }
        if access.any(Modes::WRITE) || deny.any(Modes::READ) {
            return Some(Event::OpenWrite);
        }
        let reads = !access.is_none() || deny.any(Modes::WRITE);
        reads.then_some(Event::OpenRead)
    }

    /// Returns the cached state that holders of `kind` lose by it.
    pub fn takes(self, kind: Kind) -> CacheRights {
        const W: CacheRights = CacheRights::WRITE;
        const H: CacheRights = CacheRights::HANDLE;
        const RW: CacheRights = CacheRights::READ.with(CacheRights::WRITE);
        const ALL: CacheRights = CacheRights::ALL;
        const NONE: CacheRights = CacheRights::NONE;
        let (lease, delegation) = match self {
            Event::OpenRead => (W, W),
            Event::OpenWrite => (W, ALL),
            Event::Overwrite => (RW, ALL),
            Event::ShareConflict => (H, ALL),
            Event::Read => (W, W),
            Event::Write => (RW, ALL),
            Event::LockShared => (RW, W),
            Event::LockExclusive => (RW, ALL),
            Event::Name => (H, ALL),
            Event::Attributes => (NONE, ALL),
            Event::Entries => (ALL, ALL),
        };
        match kind {
            Kind::Lease => lease,
            Kind::Delegation => delegation,
        }
    }
}

impl Kind {
    /// Returns `caching` without `taken`. Without R there is no lease (MS-SMB2 §2.2.13.2.8), and a
    /// delegation that loses something is returned.
    pub fn left(self, caching: CacheRights, taken: CacheRights) -> CacheRights {
        let rest = caching & !taken;
        match self {
            Kind::Delegation if caching.any(taken) => CacheRights::NONE,
            _ if !rest.any(CacheRights::READ) => CacheRights::NONE,
            _ => rest,
        }
    }

    /// Returns true if a holder of `caching` must answer a break before others go on: one that may
    /// have unsent data or closes, and one that opens without asking. Data that was only read is
    /// discarded at once.
    pub fn must_answer(self, caching: CacheRights) -> bool {
        self == Kind::Delegation || caching.any(CacheRights::WRITE | CacheRights::HANDLE)
    }
}
