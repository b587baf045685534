//! Security contexts (RFC 2743), as protocols and mechanisms share them: establishing one from a
//! client's token, and protecting messages under it.

use smallvec::SmallVec;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;
use weir_vfs::Identity;

/// Longest token that establishes a context: a Kerberos ticket with the groups of an Active
/// Directory user is up to 64 KiB.
pub const MAX_TOKEN: usize = 64 << 10;
/// Maximum number of contexts that are being established at once.
pub const ESTABLISHING: usize = 64;

/// The user behind a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user's name in the mechanism, such as `alice@EXAMPLE.COM`.
    pub principal: String,
    /// The identity that the user acts as.
    pub identity: Identity,
}

/// A checksum of a message, with its header.
pub type Mic = SmallVec<[u8; 40]>;

/// A message that was decrypted.
pub struct UnwrappedMessage {
    /// The message, among bytes without meaning.
    pub bytes: Vec<u8>,
    /// Position of the message in `bytes`.
    pub message: Range<usize>,
}

/// Protects the messages of one context. A message to the peer comes in parts.
pub trait Protection: Send + Sync {
    /// Returns true if `mic` is the peer's checksum of `message`.
    fn verify(&self, message: &[u8], mic: &[u8]) -> bool;
    /// Returns the checksum of a message; `None` if the context is no longer valid.
    fn mic(&self, parts: &[&[u8]]) -> Option<Mic>;
    /// Appends the encrypted message to `out`; returns false if the context is no longer valid.
    fn wrap(&self, parts: &[&[u8]], out: &mut Vec<u8>) -> bool;
    /// Decrypts a message of the peer; `None` if it was not encrypted under this context.
    fn unwrap(&self, sealed: &[u8]) -> Option<UnwrappedMessage>;
}

/// A context that is established.
pub struct SecurityContext {
    /// The user.
    pub peer: Peer,
    /// Time until it expires.
    pub lifetime: Duration,
    /// At least one copy, for as many threads at once. If several threads can use one at once, one
    /// is enough.
    pub protections: Vec<Box<dyn Protection>>,
}

/// Result of establishing a context.
#[derive(Default)]
pub struct AcceptOutcome {
    /// GSS-API's major status (RFC 2744 §3.9.1): 0 is success.
    pub major: u32,
    /// The mechanism's minor status.
    pub minor: u32,
    /// The token for the peer.
    pub token: Vec<u8>,
    /// The context, with success.
    pub established: Option<SecurityContext>,
}

/// A security mechanism, as the accepting side.
pub trait Acceptor: Send + Sync {
    /// Takes the first token of a client. The future must not block.
    fn accept(&self, token: Vec<u8>) -> Pin<Box<dyn Future<Output = AcceptOutcome> + Send>>;
}
