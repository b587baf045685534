//! A session: on whose behalf operations are run, from where, over what security, and by which
//! rules they are checked.

use crate::admission::Admissions;
use crate::claims::Actor;
use crate::error::Error;
use crate::exports::{Flavours, Protocol, Transport};
use crate::identity::Identity;
use crate::throttle::ClientKey;
use std::net::IpAddr;
use weir_volume::Attr;

/// Means by which the caller's identity was established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flavour {
    /// No means: the caller is anonymous.
    None,
    /// The client's word (AUTH_SYS).
    Sys,
    /// Kerberos, with messages unprotected.
    Krb5,
    /// Kerberos, with messages protected against change.
    Krb5Integrity,
    /// Kerberos, with messages encrypted.
    Krb5Privacy,
    /// NTLM, a challenge and response (MS-NLMP).
    Ntlm,
}

impl Flavours {
    /// This flavour alone.
    pub const fn from_flavour(flavour: Flavour) -> Flavours {
        Flavours(1 << flavour as u8)
    }

    /// Returns the weakest of them.
    pub fn first(self) -> Option<Flavour> {
        use Flavour::{Krb5, Krb5Integrity, Krb5Privacy, None as Nobody, Ntlm, Sys};
        let all = [Nobody, Sys, Krb5, Krb5Integrity, Krb5Privacy, Ntlm];
        all.into_iter().find(|flavour| self.contains(*flavour))
    }

    /// Returns true if a flavour is among them.
    pub const fn contains(self, flavour: Flavour) -> bool {
        self.0 >> (flavour as u8) & 1 != 0
    }
}

/// Rule that decides whether a file's content may be read and written.
///
/// Protocols without an open decide at each call, by the file's permissions and what the protocol
/// allows beyond them. Protocols with one decide when a file is opened, and then only by what was
/// granted.
pub trait AccessModel: Copy {
    /// Checks that `who` may read the content.
    ///
    /// # Errors
    /// [`Error::Access`].
    fn may_read(&self, attr: &Attr, who: &Identity) -> Result<(), Error>;

    /// Checks that `who` may write the content.
    ///
    /// # Errors
    /// [`Error::Access`].
    fn may_write(&self, attr: &Attr, who: &Identity) -> Result<(), Error>;

    /// Returns the actor as which others' claims bind it: protocols without an open, and calls
    /// outside of one, have none of their own.
    fn actor(&self) -> Actor<'_> {
        Actor::Stateless
    }

    /// Returns true if this waits for clients that may claim again what they had before a start.
    /// What was opened or claimed since then conflicts with none of that.
    fn awaits_reclaims(&self) -> bool {
        matches!(self.actor(), Actor::Stateless)
    }
}

/// The server's own walks.
impl AccessModel for () {
    fn may_read(&self, _: &Attr, _: &Identity) -> Result<(), Error> {
        Ok(())
    }

    fn may_write(&self, _: &Attr, _: &Identity) -> Result<(), Error> {
        Ok(())
    }
}

/// Access that was granted when the file was opened: permissions that change later take nothing
/// away (POSIX open(2); RFC 8881 §18.16.3; MS-SMB2 §3.3.5.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedAccess {
    /// The open may read data.
    pub read: bool,
    /// The open may write data.
    pub write: bool,
}

impl AccessModel for GrantedAccess {
    fn may_read(&self, _: &Attr, _: &Identity) -> Result<(), Error> {
        self.read.then_some(()).ok_or(Error::Access)
    }

    fn may_write(&self, _: &Attr, _: &Identity) -> Result<(), Error> {
        self.write.then_some(()).ok_or(Error::Access)
    }
}

/// Session of a caller (see the module's head). A protocol makes one for each call, or keeps one.
#[derive(Clone, Copy, Debug)]
pub struct Session<'s, A> {
    /// The client's address, canonical: what export rules admit.
    pub origin: IpAddr,
    /// Protocol of the client.
    pub protocol: Protocol,
    /// Means by which the identity was established.
    pub flavour: Flavour,
    /// Protection of the connection.
    pub transport: Transport,
    /// The caller, before the export's rule is applied; `None` without identity.
    pub identity: Option<&'s Identity>,
    /// Checks of access to contents.
    pub access: A,
    /// The client to which limits charge it.
    pub client: ClientKey,
    /// Earlier admissions of the connection.
    pub admitted: &'s Admissions,
}
