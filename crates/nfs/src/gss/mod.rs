//! RPCSEC_GSS (RFC 2203): calls whose caller is established by a security mechanism, Kerberos in
//! practice.
//!
//! **Place.** In front of the service. A call under a security context is verified and decrypted,
//! and is an ordinary one then. Its credential has a flavour of our own in place of the sealed one
//! ([`mod@crate::rpc::message`], `AUTH_KRB5` and after). The reply is sealed on its way out. So
//! programs, suspended calls and the cache of replies for retransmissions need not know of
//! RPCSEC_GSS, and calls without it pay one comparison. A call off the wire that already has such a
//! flavour is refused.
//!
//! **Copies.** Arguments that are not encrypted are served where they arrived, and results that are
//! not encrypted are sent where they are, except few. The credential is encoded once per context.
//! Decryption and encryption move the bytes from one place to another, since a record is read and
//! pages of the cache are shared; nothing is copied besides.
//!
//! **Blocking.** Establishing a context reads the keytab and writes the replay cache, and finding
//! the user's groups may ask a directory server. The [`Acceptor`] does both on threads of its own,
//! and the call is suspended as for a device. At most [`ESTABLISHING`] contexts are established at
//! once; beyond that a client gets an error after which it tries again. An established context is
//! in memory only.
//!
//! **The window.** See [`window`].
//!
//! **Memory.** A context is charged to the budget of client state. If that has no room, the least
//! recently used context is removed, and its client establishes another (RPCSEC_GSS_CREDPROBLEM). A
//! context ends with the ticket that established it, and after [`IDLE`] without a call.
//!
//! **One context on several cores.** A user on a mount with `nconnect=16` is one context. Messages
//! under Kerberos' common types of keys are protected without the system's library
//! ([`weir_auth::krb5`]), by any number of threads at once. A mechanism that needs exclusive use of
//! a context for each message may supply several copies of it
//! ([`weir_auth::gss::SecurityContext::protections`]); a connection always uses the same one.

// An outcome is returned by value once per refused call, and boxing it would allocate.
#![allow(clippy::result_large_err)]

mod contexts;
pub mod window;
mod wire;

use crate::rpc;
use crate::rpc::message::{AuthStat, Call, Refusal};
use crate::rpc::outcome::{Later, Outcome, refuse as refuse_call};
use crate::rpc::reply::ReplyBuf;
use crate::rpc::xdr::Put;
use contexts::{Context, Contexts};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use weir_auth::gss::{
    AcceptOutcome, Acceptor, ESTABLISHING, MAX_TOKEN, Protection, UnwrappedMessage,
};
use weir_base::limits::net::MAX_CALL_HEADER;
use weir_base::{Budget, Clock, Rng};
use weir_vfs::Flavour;
use wire::Procedure;

pub(crate) use wire::decode;
pub use wire::{Credential, Service as Protect};

/// Time without a call after which a context is forgotten.
pub const IDLE: Duration = Duration::from_secs(3600);

/// See the module's head.
pub struct Gss {
    acceptor: Arc<dyn Acceptor>,
    contexts: Contexts,
    establishing: AtomicUsize,
}

/// Seal of the reply to a call.
pub(crate) struct Seal {
    context: Arc<Context>,
    copy: usize,
    sequence: u32,
    protect: Protect,
}

impl Gss {
    /// Creates a table of contexts that `acceptor` establishes, charged to `budget`.
    pub fn new(
        acceptor: Arc<dyn Acceptor>,
        budget: Arc<Budget>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Gss {
        Gss {
            acceptor,
            contexts: Contexts::new(budget, clock, rng),
            establishing: AtomicUsize::new(0),
        }
    }

    /// Returns the number of contexts.
    pub fn contexts(&self) -> usize {
        self.contexts.len()
    }

    /// Forgets contexts that have ended; about once a second.
    pub fn tick(&self) {
        self.contexts.tick();
    }

    /// Opens a call with this flavour that arrived on the connection `conn`.
    ///
    /// # Errors
    /// The outcome of a call that is not for a program, or that is refused.
    pub(crate) fn open<'a>(
        self: &Arc<Self>,
        conn: u64,
        call: &Call<'a>,
        record: &[u8],
    ) -> Result<AuthenticatedCall<'a>, Outcome> {
        let Some(credential) = Credential::decode(call.cred) else {
            return Err(refuse(call.xid, AuthStat::BadCred));
        };
        match credential.procedure {
            Procedure::Init if call.procedure == 0 => Err(self.establish(call)),
            // No mechanism that is served takes more than one step.
            Procedure::Init | Procedure::Continue => Err(refuse(call.xid, AuthStat::GssCred)),
            Procedure::Data | Procedure::Destroy => self.data(conn, (call, record), &credential),
        }
    }

    /// Returns true if a record of `bytes`, more than most have, may be read: its context exists
    /// here, or it is the token of a new one. This bounds the memory that a stranger can claim to
    /// [`MAX_TOKEN`].
    pub(crate) fn takes(&self, call: &Call<'_>, bytes: usize) -> bool {
        match Credential::decode(call.cred) {
            Some(c) if c.procedure == Procedure::Init => bytes <= MAX_TOKEN + MAX_CALL_HEADER,
            Some(c) => self.contexts.get(c.handle).is_some(),
            None => false,
        }
    }

    fn establish(self: &Arc<Self>, call: &Call<'_>) -> Outcome {
        let Some(token) = wire::token(call.args) else {
            return refuse_call(call.xid, Refusal::GarbageArgs);
        };
        let begun = self.establishing.fetch_add(1, Ordering::Relaxed);
        let turn = Turn(Arc::clone(self));
        if begun >= ESTABLISHING {
            return refuse_call(call.xid, Refusal::SystemErr);
        }
        let xid = call.xid;
        let accepted = self.acceptor.accept(token.to_vec());
        Outcome::Later(Box::pin(async move {
            let accepted = accepted.await;
            turn.0.established(xid, accepted)
        }))
    }

    fn established(&self, xid: u32, accepted: AcceptOutcome) -> Outcome {
        let AcceptOutcome {
            mut major,
            minor,
            token,
            established,
        } = accepted;
        let mut made = None;
        if let Some(established) = established {
            made = self.contexts.add(established);
            if made.is_none() {
                /// `GSS_S_UNAVAILABLE` (RFC 2744 §3.9.1).
                const UNAVAILABLE: u32 = 16 << 16;
                major = UNAVAILABLE;
            }
        }
        let handle = made.as_ref().map_or(&[][..], |(handle, _)| handle);
        // The verifier is the checksum of the window (RFC 2203 §5.2.3.1).
        let mic = match &made {
            Some((_, context)) => context.copy(0).mic(&[&window::SIZE.to_be_bytes()]),
            None => None,
        };
        let mut out = ReplyBuf::start(128 + token.len());
        wire::put_accepted(&mut out, xid, mic.as_deref());
        wire::put_init_result(&mut out, handle, (major, minor), &token);
        Outcome::Reply(ReplyBuf::whole(out, None), None)
    }

    fn data<'a>(
        &self,
        conn: u64,
        (call, record): (&Call<'a>, &[u8]),
        credential: &Credential<'_>,
    ) -> Result<AuthenticatedCall<'a>, Outcome> {
        let refuse = |why| Err(refuse(call.xid, why));
        let Some(context) = self.contexts.get(credential.handle) else {
            return refuse(AuthStat::GssCred);
        };
        let Some((head, mic)) = wire::verifier(record) else {
            return refuse(AuthStat::GssCred);
        };
        let copy = conn as usize;
        if !context.copy(copy).verify(head, mic) {
            return refuse(AuthStat::GssCred);
        }
        if credential.sequence >= window::MAX_SEQUENCE {
            return refuse(AuthStat::GssCtx);
        }
        // Only after the verifier has been checked, so that nobody else moves the window.
        match context.see(credential.sequence, self.contexts.current_time()) {
            window::WindowOutcome::New => {}
            // RFC 2203 §5.3.3.1: a replay is discarded without a word.
            window::WindowOutcome::Again => return Err(Outcome::Drop),
            // Without an error the client would wait for a minute; it sends again at once.
            window::WindowOutcome::Below => {
                return Err(Outcome::Close("a call below the window of its context"));
            }
        }
        let seal = Seal {
            context,
            copy,
            sequence: credential.sequence,
            protect: credential.service,
        };
        if credential.procedure == Procedure::Destroy {
            self.contexts.remove(credential.handle);
            let mut out = ReplyBuf::start(64);
            rpc::put_accepted(&mut out, call.xid);
            return Err(seal.outcome(Outcome::Reply(ReplyBuf::whole(out, None), None)));
        }
        match seal.open(call.args) {
            Some(args) => Ok(AuthenticatedCall { seal, args }),
            None => Err(refuse_call(call.xid, Refusal::GarbageArgs)),
        }
    }
}

/// A call whose caller is established.
pub(crate) struct AuthenticatedCall<'a> {
    /// Seals the reply.
    pub(crate) seal: Seal,
    args: Args<'a>,
}

/// Arguments of a call.
enum Args<'a> {
    /// A part of the record that arrived.
    Arrived(&'a [u8]),
    /// A decrypted message, which begins with the call's number.
    Decrypted(UnwrappedMessage),
}

/// Length in bytes of a call's number in front of its arguments (RFC 2203 §5.3.2.2).
const NUMBER: usize = 4;

impl AuthenticatedCall<'_> {
    /// Returns the call as if its caller had been established otherwise; `call` is the one that
    /// arrived.
    pub(crate) fn call<'b>(&'b self, call: &Call<'_>) -> Call<'b> {
        let args = match &self.args {
            Args::Arrived(args) => args,
            Args::Decrypted(UnwrappedMessage { bytes, message }) => bytes
                .get(message.start + NUMBER..message.end)
                .unwrap_or_default(),
        };
        let flavour = match self.seal.protect {
            Protect::None => Flavour::Krb5,
            Protect::Integrity => Flavour::Krb5Integrity,
            Protect::Privacy => Flavour::Krb5Privacy,
        };
        call.established(flavour, &self.seal.context.credential, args)
    }
}

/// One of the contexts that are being established.
struct Turn(Arc<Gss>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.establishing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Seal {
    /// Verifies or decrypts the arguments of the call.
    fn open<'a>(&self, args: &'a [u8]) -> Option<Args<'a>> {
        match self.protect {
            Protect::None => Some(Args::Arrived(args)),
            Protect::Integrity => {
                let (body, mic) = wire::integrity(args)?;
                if !self.protection().verify(body, mic) {
                    return None;
                }
                wire::numbered(body, self.sequence).map(Args::Arrived)
            }
            Protect::Privacy => {
                let opened = self.protection().unwrap(wire::privacy(args)?)?;
                wire::numbered(opened.bytes.get(opened.message.clone())?, self.sequence)?;
                Some(Args::Decrypted(opened))
            }
        }
    }

    fn protection(&self) -> &dyn Protection {
        self.context.copy(self.copy)
    }

    /// Returns the outcome of the call with its reply sealed.
    pub(crate) fn outcome(self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Reply(reply, lsn) => match self.seal(reply) {
                Some(sealed) => Outcome::Reply(sealed, lsn),
                None => Outcome::Close(GONE),
            },
            Outcome::Parked(later, refusal, _) => match self.seal(refusal) {
                Some(sealed) => Outcome::Parked(self.sealing(later), sealed, None),
                None => Outcome::Close(GONE),
            },
            Outcome::Later(later) => Outcome::Later(self.sealing(later)),
            Outcome::Held(later) => Outcome::Held(self.sealing(later)),
            Outcome::Larger(outcome, more) => {
                Outcome::Larger(Box::new(self.outcome(*outcome)), more)
            }
            other @ (Outcome::Drop
            | Outcome::Close(_)
            | Outcome::StartTls(_)
            | Outcome::SpeaksFor(..)) => other,
        }
    }

    fn sealing(self, later: Later) -> Later {
        Box::pin(async move { self.outcome(later.await) })
    }

    /// Returns the reply with a verifier. Its results are protected as the call's arguments were
    /// (RFC 2203 §5.3.3.2).
    fn seal(&self, reply: ReplyBuf) -> Option<ReplyBuf> {
        let (head, payload) = reply.parts();
        let Some((xid, stat, results)) = wire::accepted(head) else {
            return Some(reply);
        };
        let number = self.sequence.to_be_bytes();
        let protection = self.protection();
        let verifier = protection.mic(&[&number])?;
        let mut out = ReplyBuf::start(256);
        wire::put_head(&mut out, (xid, stat), &verifier);
        let at = head.len() - results.len();
        if stat != 0 || self.protect == Protect::None {
            return Some(reply.reheaded(out, at, Vec::new()));
        }
        let parts: SmallVec<[&[u8]; 8]> = [&number[..], results]
            .into_iter()
            .chain(payload.iter().flat_map(|p| p.parts()))
            .collect();
        if self.protect == Protect::Privacy {
            wire::put_sealed(&mut out, |out| protection.wrap(&parts, out))?;
            drop(parts);
            return Some(reply.replaced(out));
        }
        let mic = protection.mic(&parts)?;
        drop(parts);
        let data = payload.map_or(0, |p| p.encoded_len());
        out.put_u32((number.len() + results.len() + data) as u32);
        out.extend_from_slice(&number);
        // The checksum comes behind the data.
        let mut tail = Vec::new();
        tail.put_opaque(&mic);
        Some(reply.reheaded(out, at, tail))
    }
}

/// Reason for closing a connection whose replies can no longer be sealed.
const GONE: &str = "the security context is no longer good";

fn refuse(xid: u32, why: AuthStat) -> Outcome {
    refuse_call(xid, Refusal::Auth(why))
}
