//! Export rules of trees (qtrees) that have their own.
//!
//! The rules of a volume admit a client by the handle alone. Which tree a file is in only its inode
//! says, which may have to be read. So the rules of trees are gone through when the operation is
//! charged, where it may suspend, and only in volumes with such rules. A caller needs both. What it
//! may do in the tree, and as whom, the tree's rule says.

use crate::error::{Error, OpResult, Suspend};
use crate::exports::{self, Flavours, Protocol, Rule, Transport};
use crate::identity::Identity;
use crate::names::Names;
use crate::session::{Flavour, Session};
use std::borrow::Cow;
use std::net::IpAddr;

/// A caller of NFS that the volume's rules have admitted.
pub(crate) struct Caller<'t> {
    names: &'t Names,
    origin: IpAddr,
    protocol: Protocol,
    flavour: Flavour,
    transport: Transport,
    identity: Option<&'t Identity>,
    /// True if any flavour of the rule will do.
    pub(crate) any_flavour: bool,
}

/// Rights of a caller by a rule.
pub(crate) struct CallerRights<'t> {
    pub(crate) who: Cow<'t, Identity>,
    pub(crate) writes: bool,
}

impl<'t> Caller<'t> {
    /// Returns the caller; `None` for SMB, whose clients no export policy of a tree is for.
    pub(crate) fn from_session<A>(
        session: &Session<'t, A>,
        names: &'t Names,
    ) -> Option<Box<Caller<'t>>> {
        (session.protocol != Protocol::Smb).then(|| {
            Box::new(Caller {
                names,
                origin: session.origin,
                protocol: session.protocol,
                flavour: session.flavour,
                transport: session.transport,
                identity: session.identity,
                any_flavour: false,
            })
        })
    }

    /// Returns what the caller may do by the rules of its tree.
    ///
    /// # Errors
    /// `Denied`, `WrongFlavour`, `Unprotected`; suspended while the client's name decides and is
    /// not known.
    pub(crate) fn admitted(&self, rules: &'t [Rule]) -> OpResult<CallerRights<'t>> {
        let found = exports::first(rules, self.origin, self.protocol, self.names);
        let Some((_, rule)) = found.map_err(Suspend::NameService)? else {
            return Err(Error::Denied.into());
        };
        if self.transport < rule.transport {
            return Err(Error::Unprotected.into());
        }
        if !self.any_flavour && !rule.flavours.contains(self.flavour) {
            return Err(Error::WrongFlavour.into());
        }
        Ok(CallerRights {
            who: rule.identity(self.identity),
            writes: match self.any_flavour {
                true => rule.writers != Flavours::NONE,
                false => rule.writers.contains(self.flavour),
            },
        })
    }
}
