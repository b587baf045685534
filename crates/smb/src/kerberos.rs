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

use crate::chain::{CommandResult, Run, Step};
use crate::connection::{Setup, Stage};
use crate::setup::{Asked, Authenticated, CHANGED, Unwrapped};
use crate::spnego::{self, Mechanism, State};
use crate::status::Status;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use weir_vfs::{Identity, Stop, Suspend};

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

/// A SESSION_SETUP that waits for what becomes of a ticket.
pub(crate) struct Waiting {
    mechanism: Mechanism,
    /// The client has to prove which mechanisms it offered.
    proves: bool,
    /// What is being set up.
    about: Option<(Asked, Setup)>,
    /// The client's integrity code over its mechanisms.
    code: Option<Vec<u8>>,
    accepted: Arc<Mutex<Option<Accepted>>>,
}

impl Waiting {
    /// For a client that has chosen `mechanism` itself.
    pub fn believed(mechanism: Mechanism) -> Waiting {
        Waiting {
            mechanism,
            proves: false,
            about: None,
            code: None,
            accepted: Arc::default(),
        }
    }

    /// For one that was asked for it.
    pub fn proves(mechanism: Mechanism) -> Waiting {
        Waiting {
            proves: true,
            ..Waiting::believed(mechanism)
        }
    }
}

impl Run<'_> {
    /// Hands a client's ticket over.
    pub(crate) fn accept(
        &mut self,
        asked: Asked,
        setup: Setup,
        client: &Unwrapped<'_>,
        mut waiting: Waiting,
    ) -> CommandResult {
        // It is not offered any more.
        let tickets = self.s.tickets().ok_or(Status::LOGON_FAILURE)?;
        if client.message.len() > MAX_TOKEN {
            return Err(Status::INVALID_PARAMETER.into());
        }
        waiting.about = Some((asked, setup));
        waiting.code = client.token.mic.map(<[u8]>::to_vec);
        let place = Arc::clone(&waiting.accepted);
        let work = tickets.accept(client.message.to_vec());
        self.c.step = Step::Authenticates(Box::new(waiting));
        Err(Stop::Suspended(Suspend::Thread(Box::pin(async move {
            *place.lock() = Some(work.await);
        }))))
    }

    /// Goes on with what has become of it.
    pub(crate) fn accepted(&mut self, waiting: Waiting) -> CommandResult {
        let accepted = waiting.accepted.lock().take();
        let (Some(accepted), Some((asked, mut setup))) = (accepted, waiting.about) else {
            weir_base::invariant!(false, "a ticket that nothing has become of");
            return Err(Status::INTERNAL_ERROR.into());
        };
        self.c.named_session = Some(asked.id);
        let (token, mut logon) = match accepted {
            Accepted::Logon(token, logon) => (token, logon),
            Accepted::Refused(user, why) => return Err(self.refuse(&asked, &user, &why)),
            Accepted::Busy => return Err(Status::INSUFFICIENT_RESOURCES.into()),
        };
        let mechanisms = setup.mechanisms.take().unwrap_or_default();
        let proven = match &waiting.code {
            Some(code) if logon.code.verify(&mechanisms, code) => true,
            Some(_) => return Err(self.refuse(&asked, &logon.user, CHANGED)),
            None => false,
        };
        let needs = waiting.proves && !proven;
        let code = match needs || proven {
            true => Some(logon.code.make(&mechanisms).ok_or(Status::LOGON_FAILURE)?),
            false => None,
        };
        let chosen = Some(waiting.mechanism);
        if needs {
            let message = spnego::reply(State::Incomplete, chosen, &token, code.as_deref());
            setup.mechanisms = Some(mechanisms);
            setup.stage = Stage::WantsProof(logon);
            return self.goes_on(asked.id, setup, &message);
        }
        let message = spnego::reply(State::Completed, chosen, &token, code.as_deref());
        self.complete(asked, setup, (*logon).into(), &message)
    }

    /// The client's integrity code over its mechanisms.
    pub(crate) fn prove(
        &mut self,
        asked: Asked,
        setup: Setup,
        mut logon: Logon,
        client: &Unwrapped<'_>,
    ) -> CommandResult {
        let mechanisms = setup.mechanisms.as_deref().unwrap_or_default();
        let proven = client.token.mic;
        if !proven.is_some_and(|code| logon.code.verify(mechanisms, code)) {
            return Err(self.refuse(&asked, &logon.user, CHANGED));
        }
        let message = spnego::reply(State::Completed, None, &[], None);
        self.complete(asked, setup, logon.into(), &message)
    }
}

impl From<Logon> for Authenticated {
    fn from(logon: Logon) -> Authenticated {
        Authenticated {
            user: logon.user,
            identity: logon.identity,
            key: logon.key,
            lifetime: Some(logon.lifetime),
            kerberos: true,
        }
    }
}
