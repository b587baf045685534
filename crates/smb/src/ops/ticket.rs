//! SESSION_SETUP with a ticket of Kerberos. See [`weir_auth::tickets`].

use crate::conn::connection::{Setup, SetupSubject, Stage};
use crate::context::run::{CommandResult, Run};
use crate::context::step::{Step, TicketWait};
use crate::ops::setup::{AuthMessage, AuthenticatedUser, CHANGED};
use crate::proto::status::Status;
use std::sync::Arc;
use weir_auth::spnego::{self, State};
use weir_auth::tickets::{Logon, MAX_TOKEN, TicketOutcome};
use weir_vfs::{Stop, Suspend};

impl Run<'_> {
    /// Hands a client's ticket over.
    pub(crate) fn accept(
        &mut self,
        asked: SetupSubject,
        setup: Setup,
        client: &AuthMessage<'_>,
        mut waiting: TicketWait,
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

    /// Resumes a SESSION_SETUP with the result of its ticket.
    pub(crate) fn accepted(&mut self, waiting: TicketWait) -> CommandResult {
        let accepted = waiting.accepted.lock().take();
        let (Some(accepted), Some((asked, mut setup))) = (accepted, waiting.about) else {
            weir_base::invariant!(false, "a ticket that nothing has become of");
            return Err(Status::INTERNAL_ERROR.into());
        };
        self.c.named_session = Some(asked.id);
        let (token, mut logon) = match accepted {
            TicketOutcome::Logon(token, logon) => (token, logon),
            TicketOutcome::Refused(user, why) => return Err(self.refuse(&asked, &user, &why)),
            TicketOutcome::Busy => return Err(Status::INSUFFICIENT_RESOURCES.into()),
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
        asked: SetupSubject,
        setup: Setup,
        mut logon: Logon,
        client: &AuthMessage<'_>,
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

impl From<Logon> for AuthenticatedUser {
    fn from(logon: Logon) -> AuthenticatedUser {
        AuthenticatedUser {
            user: logon.user,
            identity: logon.identity,
            key: logon.key,
            lifetime: Some(logon.lifetime),
            kerberos: true,
        }
    }
}
