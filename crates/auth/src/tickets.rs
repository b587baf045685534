//! Kerberos (RFC 4121, MS-SMB2 §3.3.5.5.3): logon by a ticket. Tickets are verified outside of this
//! crate.
//!
//! **Blocking.** To accept a ticket, keys are read from a file, a replay cache is written, and the
//! user's groups may come from a directory server. So the [acceptor](Tickets) works on threads of
//! its own. The SESSION_SETUP waits meanwhile, and resumes with the result. From then on the
//! session needs only memory.
//!
//! **The mechanisms** that a client offers are not protected when it sends them. If the client
//! guessed a mechanism and was asked for another, its ticket may be good although the list was
//! changed on the way. Then both sides put an integrity code over the list (RFC 4178 §5), and there
//! is no session before the client's code has arrived. If it guessed Kerberos and Kerberos was
//! taken, nothing was negotiated, and the code is checked only if there is one.
//!
//! **Expiry.** When a ticket expires, its session accepts only commands that free something. A
//! client that has another ticket renews the session (§3.3.5.5.2).

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use weir_vfs::Identity;

/// Longest token: a ticket with the groups of an Active Directory user is up to 64 KiB.
pub const MAX_TOKEN: usize = 64 << 10;

/// Makes and verifies the integrity code over a list of mechanisms, with the key of a ticket.
pub trait Code: Send {
    /// Returns true if `code` is the client's code over `message`.
    fn verify(&mut self, message: &[u8], code: &[u8]) -> bool;
    /// Returns the server's code over `message`; `None` if the ticket has expired.
    fn make(&mut self, message: &[u8]) -> Option<Vec<u8>>;
}

/// A user whose ticket is good.
pub struct Logon {
    /// The user's name, as the realm has it: `alice@EXAMPLE.COM`.
    pub user: String,
    /// The identity that the session acts as.
    pub identity: Identity,
    /// The session's key: the subkey that the two sides agreed on.
    pub key: Vec<u8>,
    /// Remaining validity of the ticket.
    pub lifetime: Duration,
    /// See [`Code`].
    pub code: Box<dyn Code>,
}

/// Result of accepting a ticket.
pub enum TicketOutcome {
    /// It is good. The token for the client, empty if it asks for none.
    Logon(Vec<u8>, Box<Logon>),
    /// It is not good, or its user is unknown here: the user as far as it is known, and the reason.
    Refused(String, String),
    /// Too many tickets wait.
    Busy,
}

/// Acceptor of tickets.
pub trait Tickets: Send + Sync {
    /// Takes a client's token (RFC 2743 §3.1, with an AP-REQ in it). The future must not block.
    fn accept(&self, token: Vec<u8>) -> Pin<Box<dyn Future<Output = TicketOutcome> + Send>>;
}
