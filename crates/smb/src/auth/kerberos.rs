//! Kerberos (RFC 4121, MS-SMB2 §3.3.5.5.3): a logon by a ticket, which others look into.
//!
//! **What blocks.** A ticket is decrypted with keys of a file, a replay cache is written, and the user's groups may be a directory
//! server away. So who [accepts tickets](Tickets) does that on threads of their own; the SESSION_SETUP waits meanwhile, with what
//! is being set up, and goes on with what has become of the ticket. Nothing that the session needs is anywhere but in memory from
//! then on.
//!
//! **The mechanisms** that a client offers are not protected when it sends them. Where it guessed one and was asked for another,
//! its ticket may be good and the list still be changed on the way: then both sides put an integrity code over the list (RFC 4178 §5),
//! and the client's has to come before there is a session. Where it guessed Kerberos and Kerberos was taken, nothing was
//! negotiated, and the code is checked only if it is there.
//!
//! **The end.** A ticket ends, and the session with it, but for what frees something; a client that has another ticket renews
//! it (§3.3.5.5.2).

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use weir_vfs::Identity;

/// Longest token: a ticket with the groups of an Active Directory user is up to 64 KiB.
pub const MAX_TOKEN: usize = 64 << 10;

/// What signs and verifies the list of mechanisms, by the key of a ticket.
pub trait Code: Send {
    /// Whether `code` is the client's over `message`.
    fn verify(&mut self, message: &[u8], code: &[u8]) -> bool;
    /// The server's over `message`; `None` if the ticket is over.
    fn make(&mut self, message: &[u8]) -> Option<Vec<u8>>;
}

/// A user whose ticket is good.
pub struct Logon {
    /// The user's name, as the realm has it: `alice@EXAMPLE.COM`.
    pub user: String,
    /// On whose behalf the session acts.
    pub identity: Identity,
    /// The session's key: the subkey that the two sides agreed on.
    pub key: Vec<u8>,
    /// How long the ticket is good for.
    pub lifetime: Duration,
    /// See [`Code`].
    pub code: Box<dyn Code>,
}

/// What becomes of a ticket.
pub enum Accepted {
    /// It is good. The token for the client, empty if it asks for none.
    Logon(Vec<u8>, Box<Logon>),
    /// It is not, or its user is nobody here: the user as far as that is known, and why.
    Refused(String, String),
    /// Too many wait.
    Busy,
}

/// Who accepts tickets.
pub trait Tickets: Send + Sync {
    /// Takes a client's token (RFC 2743 §3.1, with an AP-REQ in it). The future must not block.
    fn accept(&self, token: Vec<u8>) -> Pin<Box<dyn Future<Output = Accepted> + Send>>;
}
