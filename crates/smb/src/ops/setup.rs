//! NEGOTIATE, SESSION_SETUP, LOGOFF, TREE_CONNECT and TREE_DISCONNECT (MS-SMB2 §3.3.5.4 to
//! §3.3.5.8).

use crate::conn::connection::{Connection, MAX_MECHANISMS, Setup, SetupSubject, Stage};
use crate::conn::reply::{self, Part, Reply};
use crate::conn::server::{Service, SessionEndCause};
use crate::context::run::{Chain, CommandResult, Failure, Hash, Run};
use crate::context::step::{Step, TicketWait};
use crate::open::channel::Channel;
use crate::open::session::{Keys, Session, Target};
use crate::open::shares;
use crate::proto::dialect::Dialect;
use crate::proto::encryption::Sealing;
use crate::proto::header::{Header, command, flag};
use crate::proto::keys::{self, Signer, Signing};
use crate::proto::mask;
use crate::proto::negotiate::{self, Negotiation, Protection, SessionSetup};
use crate::proto::status::Status;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_auth::ntlm::{Challenge, ClaimedUser};
use weir_auth::spnego::{self, Mechanism, State};
use weir_auth::wire::{Put, Reader, from_utf16, part};
use weir_base::Lsn;
use weir_conn::Outcome;
use weir_vfs::{Identity, Stop};

/// SMB2_SESSION_FLAG_BINDING (§2.2.5).
const BINDING: u8 = 1;
/// SMB2_SESSION_FLAG_ENCRYPT_DATA (§2.2.6).
const ENCRYPT_DATA: u16 = 4;
/// ShareFlags of a tree connect (§2.2.10).
mod share_flag {
    /// The share is in a namespace of DFS, as its root.
    pub const DFS_ROOT: u32 = 3;
    /// Files are not to be cached offline.
    pub const NO_CACHING: u32 = 0x30;
    pub const ACCESS_BASED_DIRECTORY_ENUM: u32 = 0x800;
    pub const ENCRYPT_DATA: u32 = 0x8000;
}
/// SMB2_SHARE_CAP_CONTINUOUS_AVAILABILITY (§2.2.10): opens may outlive the server.
const CONTINUOUS_AVAILABILITY: u32 = 0x10;
/// SMB2_SHARE_CAP_DFS (§2.2.10): paths in the share may be referred.
const DFS: u32 = 8;
/// Cause of a refused logon: the integrity code over the list of mechanisms is wrong.
pub(crate) const CHANGED: &str = "its list of mechanisms was changed on the way";
/// First bytes of every NTLM message.
const NTLM: &[u8] = b"NTLMSSP\0";

impl Service {
    /// Replies to an SMB1 NEGOTIATE (§3.3.5.3).
    pub(crate) fn began_as_smb1(&self, conn: &Connection, record: &[u8]) -> Outcome<Reply> {
        if conn.negotiated.get().is_some() || conn.began_as_smb1.get() {
            return Outcome::Close("SMB1 after SMB2");
        }
        if !negotiate::offers_smb2(record) {
            return Outcome::Close("a client that speaks nothing later than SMB 2.0");
        }
        if !conn.take_numbers(0, 1) {
            return Outcome::Close("a message number that may not be used");
        }
        let header = Header {
            charge: 0,
            sequence: 0,
            command: command::NEGOTIATE,
            credits: 0,
            flags: 0,
            next: 0,
            message: 0,
            process: 0,
            tree: 0,
            session: 0,
        };
        conn.began_as_smb1.set(true);
        let credits = conn.grant(1);
        let mut out = reply::start();
        let at = out.len();
        header.put_response(&mut out, 0, credits);
        let offer = spnego::offer(self.tickets().is_some());
        negotiate::put_again(&mut out, &self.server(), &offer);
        let part = Part {
            at,
            header,
            credits,
            signer: None,
            promises: false,
            async_id: None,
        };
        Outcome::Reply(Reply::new(out, None, vec![part], None), None)
    }

    /// The server's first name, as NTLM shows it.
    fn short_name(&self) -> &str {
        self.name.split('.').next().unwrap_or("weir")
    }
}

/// A client's message to authenticate with, taken out of its wrapping.
pub(crate) struct AuthMessage<'t> {
    pub message: &'t [u8],
    wrapped: bool,
    pub token: spnego::Token<'t>,
}

/// An authenticated user.
pub(crate) struct AuthenticatedUser {
    /// The user's name.
    pub user: String,
    /// The identity that the session acts as.
    pub identity: Identity,
    /// The key that the authentication ended with (§3.3.1.8, FullSessionKey).
    pub key: Vec<u8>,
    /// Validity of the authentication; `None`: unlimited.
    pub lifetime: Option<Duration>,
    /// True for Kerberos, false for NTLM.
    pub kerberos: bool,
}

fn unwrap(token: &[u8]) -> Result<AuthMessage<'_>, Stop<Failure>> {
    if token.starts_with(NTLM) {
        return Ok(AuthMessage {
            message: token,
            wrapped: false,
            token: spnego::Token::default(),
        });
    }
    let token = spnego::decode(token)?;
    Ok(AuthMessage {
        message: token.message,
        wrapped: true,
        token,
    })
}

impl Run<'_> {
    /// NEGOTIATE (§3.3.5.4).
    pub(crate) fn negotiate(&mut self) -> CommandResult {
        let mut offer = negotiate::decode(self.message)?;
        offer.dfs = self.s.vfs.directory().generation() != 0;
        let dialect = offer.dialect.ok_or(Status::NOT_SUPPORTED)?;
        let server = self.s.server();
        let token = spnego::offer(self.s.tickets().is_some());
        negotiate::put_response(&mut self.c.out, &server, dialect, &offer, &token);
        if dialect == Dialect::Smb311 {
            self.conn.add_to_preauth(self.message);
            self.c.hash = Some(Hash::Connection);
        }
        tracing::debug!(peer = %self.conn.peer, ?dialect, "negotiated");
        let negotiated = Negotiation { dialect, offer };
        if self.conn.negotiated.set(negotiated).is_err() {
            return Err(Stop::Failed(Failure::Close("a second NEGOTIATE")));
        }
        Ok(Status::SUCCESS)
    }

    /// SESSION_SETUP (§3.3.5.5): NTLM in two steps, Kerberos in one, or more if the client has
    /// guessed another mechanism.
    pub(crate) fn session_setup(&mut self) -> CommandResult {
        if let Step::Authenticates(waiting) = std::mem::take(&mut self.c.step) {
            return self.accepted(*waiting);
        }
        let SessionSetup {
            flags,
            mode,
            previous,
            token,
        } = negotiate::session_setup(self.message)?;
        let dialect = self.conn.dialect().ok_or(Status::INVALID_PARAMETER)?;
        let binds = match flags & BINDING != 0 {
            true => Some(self.binds_to()?),
            false => None,
        };
        let id = match self.header.session {
            0 => self.s.number(),
            id => id,
        };
        let renews = self.conn.session(id);
        let mut setup = match self.conn.take_setup(id) {
            Some(setup) if setup.binds.is_some() == binds.is_some() => setup,
            _ if self.header.session != 0 && renews.is_none() && binds.is_none() => {
                return Err(Status::USER_SESSION_DELETED.into());
            }
            _ if !self.conn.has_room_for_setup() => {
                return Err(Status::INSUFFICIENT_RESOURCES.into());
            }
            _ => Setup {
                preauth: self.conn.preauth(),
                binds,
                ..Setup::default()
            },
        };
        if dialect == Dialect::Smb311 {
            setup.preauth.add(self.message);
        }
        self.c.named_session = Some(id);
        let unwrapped = unwrap(token)?;
        let asked = SetupSubject {
            id,
            previous,
            mode,
            renews,
        };
        match std::mem::take(&mut setup.stage) {
            Stage::Begins => self.first(asked, setup, &unwrapped),
            Stage::Challenged(challenge) => self.authenticate(asked, setup, &challenge, &unwrapped),
            Stage::WantsTicket(mechanism) => {
                self.accept(asked, setup, &unwrapped, TicketWait::proves(mechanism))
            }
            Stage::WantsProof(logon) => self.prove(asked, setup, *logon, &unwrapped),
        }
    }

    /// The first message of a client.
    fn first(
        &mut self,
        asked: SetupSubject,
        mut setup: Setup,
        client: &AuthMessage<'_>,
    ) -> CommandResult {
        let kerberos = self.s.tickets().is_some();
        let (mechanism, sent) = match client.wrapped {
            false => (Mechanism::Ntlm, true),
            true => client.token.chosen(kerberos).ok_or(Status::LOGON_FAILURE)?,
        };
        if let Some(mechanisms) = client.token.mechanisms {
            if mechanisms.len() > MAX_MECHANISMS {
                return Err(Status::INVALID_PARAMETER.into());
            }
            setup.mechanisms = Some(mechanisms.to_vec());
        }
        let sent = sent && !client.message.is_empty();
        let message = match mechanism {
            Mechanism::Ntlm if sent => {
                let nonce = self.s.rng.next_u64().to_le_bytes();
                let now = self.s.clock.current_time();
                let name = self.s.short_name();
                let challenge = Challenge::new(client.message, name, nonce, now)?;
                let message = match client.wrapped {
                    true => {
                        let chosen = Some(Mechanism::Ntlm);
                        spnego::reply(State::Incomplete, chosen, challenge.message(), None)
                    }
                    false => challenge.message().to_vec(),
                };
                setup.stage = Stage::Challenged(challenge);
                message
            }
            Mechanism::Kerberos | Mechanism::WindowsKerberos if sent => {
                let waiting = TicketWait::believed(mechanism);
                return self.accept(asked, setup, client, waiting);
            }
            // It guessed another mechanism; it is asked for this one, and sends that in a second
            // first message.
            chosen => {
                if chosen != Mechanism::Ntlm {
                    setup.stage = Stage::WantsTicket(chosen);
                }
                spnego::reply(State::RequestMic, Some(chosen), &[], None)
            }
        };
        self.goes_on(asked.id, setup, &message)
    }

    /// Asks the client for another message.
    pub(crate) fn goes_on(&mut self, id: u64, setup: Setup, message: &[u8]) -> CommandResult {
        self.conn.add_setup(id, setup);
        self.c.hash = Some(Hash::Setup(id));
        put_setup(self.c, 0, message);
        Ok(Status::MORE_PROCESSING_REQUIRED)
    }

    /// The session that the connection is to be bound to, once it is sure that its client asks for
    /// it (§3.3.5.5).
    fn binds_to(&mut self) -> Result<Arc<Session>, Status> {
        let session = self.s.session(self.header.session);
        let session = session.ok_or(Status::USER_SESSION_DELETED)?;
        // Also what is refused is signed, so that the client can believe it.
        self.c.signs = Some(Arc::clone(&session.signer));
        let (old, new) = (&session.negotiated, self.conn.negotiated.get());
        let Some(new) = new.filter(|new| new.dialect >= Dialect::Smb300) else {
            return Err(Status::REQUEST_NOT_ACCEPTED);
        };
        // As Windows has it: GMAC is bound to GMAC alone, the others to each other.
        match (old.offer.signing, new.offer.signing) {
            (Signing::Gmac, Signing::Gmac) => {}
            (Signing::Gmac, _) => return Err(Status::REQUEST_OUT_OF_SEQUENCE),
            (_, Signing::Gmac) => return Err(Status::NOT_SUPPORTED),
            _ => {}
        }
        if old.dialect != new.dialect || !self.header.has_flag(flag::SIGNED) {
            return Err(Status::INVALID_PARAMETER);
        }
        if old.offer.cipher != new.offer.cipher {
            return Err(Status::INVALID_PARAMETER);
        }
        if old.offer.guid != new.offer.guid {
            return Err(Status::USER_SESSION_DELETED);
        }
        if self.conn.session(session.id).is_some() {
            return Err(Status::REQUEST_NOT_ACCEPTED);
        }
        if !session.signer.verify(self.message) {
            tracing::warn!(peer = %self.conn.peer, user = session.user, "refused channel: not signed with the session's key");
            return Err(Status::ACCESS_DENIED);
        }
        Ok(session)
    }

    /// Makes the connection a channel of a session that another one set up (§3.3.5.5.3).
    fn bind(
        &mut self,
        session: Arc<Session>,
        signer: Signer,
        (user, kerberos): (&str, bool),
    ) -> CommandResult {
        if session.user != user {
            return Err(Status::ACCESS_DENIED.into());
        }
        if !self.conn.has_room() {
            return Err(Status::INSUFFICIENT_RESOURCES.into());
        }
        let number = session.channels.lock().add(&self.conn.line);
        let number = number.ok_or(match session.has_ended() {
            true => Status::USER_SESSION_DELETED,
            false => Status::INSUFFICIENT_RESOURCES,
        })?;
        let signer = Arc::new(signer);
        self.c.signs = Some(Arc::clone(&signer));
        let channel = Channel::new(session, signer, number, kerberos);
        self.conn.add(channel);
        tracing::debug!(peer = %self.conn.peer, user, number, "a channel was added over SMB");
        Ok(Status::SUCCESS)
    }

    /// The response to a challenge of NTLM.
    fn authenticate(
        &mut self,
        asked: SetupSubject,
        setup: Setup,
        challenge: &Challenge,
        client: &AuthMessage<'_>,
    ) -> CommandResult {
        let users = &self.s.users;
        let mut user = None;
        let verified = challenge.verify(client.message, |claimed: &ClaimedUser| {
            user = users.find(&claimed.user);
            user.as_ref().map(|user| user.nt_hash)
        });
        let (user, established) = match (verified, user) {
            (Ok((_, established)), Some(user)) => (user, established),
            // No response to the challenge, so no guess either.
            (Err(None), _) => return Err(Status::INVALID_PARAMETER.into()),
            (refused, _) => {
                let claimed = refused.err().flatten();
                let user = claimed.map_or(String::new(), |c| c.user);
                return Err(self.refuse(&asked, &user, "a wrong password, or no such user"));
            }
        };
        // Detects a list of mechanisms that was changed on the way (RFC 4178 §5).
        let mechanisms = setup.mechanisms.as_deref();
        if let (Some(mic), Some(list)) = (client.token.mic, mechanisms)
            && !weir_auth::legacy::equal(&established.mic(false, list), mic)
        {
            return Err(self.refuse(&asked, &user.name, CHANGED));
        }
        let mic = client.token.mic.and(mechanisms);
        let mic = mic.map(|list| established.mic(true, list));
        let message = match client.wrapped {
            true => spnego::reply(State::Completed, None, &[], mic.as_ref().map(|m| &m[..])),
            false => Vec::new(),
        };
        let who = AuthenticatedUser {
            user: user.name.clone(),
            identity: user.identity.clone(),
            key: established.key.to_vec(),
            lifetime: None,
            kerberos: false,
        };
        self.complete(asked, setup, who, &message)
    }

    /// Sets the session up, or renews it, or binds the connection to it, for a user who was
    /// authenticated.
    pub(crate) fn complete(
        &mut self,
        asked: SetupSubject,
        setup: Setup,
        who: AuthenticatedUser,
        message: &[u8],
    ) -> CommandResult {
        let AuthenticatedUser {
            user,
            identity,
            key,
            lifetime,
            kerberos,
        } = who;
        let negotiated = self.conn.negotiated.get();
        let negotiated = negotiated.ok_or(Status::INVALID_PARAMETER)?.clone();
        let cipher = negotiated.offer.cipher;
        let encrypted = self.s.protection == Protection::Encrypted;
        if encrypted && cipher.is_none() {
            tracing::warn!(peer = %self.conn.peer, user, "SMB client refused: it cannot encrypt");
            return Err(Status::ACCESS_DENIED.into());
        }
        let flags = if encrypted { ENCRYPT_DATA } else { 0 };
        put_setup(self.c, flags, message);
        let until = lifetime.map(|lifetime| self.s.clock.monotonic() + lifetime);
        if let Some(session) = asked.renews {
            // Its keys stay (§3.3.5.5.3), and so does its user.
            if session.user != user {
                return Err(Status::ACCESS_DENIED.into());
            }
            session.expires.set(until);
            session
                .session
                .kerberos
                .fetch_and(kerberos, Ordering::Relaxed);
            return Ok(Status::SUCCESS);
        }
        let dialect = negotiated.dialect;
        let how = (dialect, negotiated.offer.signing);
        let signer = Signer::new(how, &keys::short(&key), &setup.preauth);
        if let Some(session) = setup.binds {
            return self.bind(session, signer, (&user, kerberos));
        }
        let sealing = cipher.map(|cipher| Sealing::new(cipher, dialect, &key, &setup.preauth));
        let mode = asked.mode | negotiated.offer.mode;
        let keys = Keys {
            signer: Arc::new(signer),
            sealing,
            protection: self.s.protection.agreed(mode),
        };
        let id = asked.id;
        let session = (user.clone(), Arc::new(identity));
        let session = Session::new(id, session, negotiated, keys, self.conn.peer);
        session.expires.set(until);
        session.kerberos.store(kerberos, Ordering::Relaxed);
        let session = Arc::new(session);
        let number = session.channels.lock().add(&self.conn.line);
        let number = number.ok_or(Status::INSUFFICIENT_RESOURCES)?;
        let signer = Arc::clone(&session.signer);
        self.c.signs = Some(Arc::clone(&signer));
        let channel = Channel::new(Arc::clone(&session), signer, number, kerberos);
        self.conn.add(channel);
        tracing::debug!(peer = %self.conn.peer, user, "logged on over SMB");
        self.s.enter(&session, asked.previous);
        Ok(Status::SUCCESS)
    }

    /// Refuses a logon, with a delayed answer and a line in the log. If this was a
    /// reauthentication, the session ends (§3.3.5.5.3).
    pub(crate) fn refuse(&mut self, asked: &SetupSubject, user: &str, why: &str) -> Stop<Failure> {
        if let Some(session) = &asked.renews {
            self.s.end(session, SessionEndCause::Over);
        }
        let peer = self.conn.peer;
        tracing::warn!(%peer, user, "SMB logon refused: {why}");
        match self.s.penalties.add(peer, self.s.clock.monotonic()) {
            Some(delay) => {
                self.c.delay = Some(delay);
                Status::LOGON_FAILURE.into()
            }
            None => Stop::Failed(Failure::Close("too many wrong passwords")),
        }
    }

    /// LOGOFF (§3.3.5.6).
    pub(crate) fn logoff(&mut self) -> CommandResult {
        let session = self.session()?;
        self.s.end(&session, SessionEndCause::Lost);
        self.c.out.put_u16(4);
        self.c.out.put_u16(0);
        Ok(Status::SUCCESS)
    }

    /// TREE_CONNECT (§3.3.5.7).
    pub(crate) fn tree_connect(&mut self) -> CommandResult {
        let session = self.session()?;
        let mut r = Reader::new(self.body());
        if r.u16()? != 9 {
            return Err(Status::INVALID_PARAMETER.into());
        }
        r.u16()?;
        let (offset, len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let path = from_utf16(part(self.message, offset, len)?)?;
        let mut parts = path.strip_prefix("\\\\").unwrap_or_default().split('\\');
        let (Some(_), Some(name), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(Status::BAD_NETWORK_NAME.into());
        };
        let ends = (self.conn.peer, self.conn.local);
        let found = shares::find(&self.s.vfs, self.table, ends, &session, name)?;
        let (target, share, encrypted) = (found.target, found.name, found.encrypted);
        let tree = session.connect(target, share);
        let tree = tree.ok_or(Status::INSUFFICIENT_RESOURCES)?;
        self.c.connected = Some(tree.id);
        let access_based = match target {
            Target::Volume(root) => self.is_access_based(root),
            Target::Pipes | Target::Referred => false,
        };
        let out = &mut self.c.out;
        out.put_u16(16);
        out.put_u8(match target {
            Target::Volume(_) | Target::Referred => 1,
            Target::Pipes => 2,
        });
        out.put_u8(0);
        let flags = [
            (share_flag::NO_CACHING, matches!(target, Target::Volume(_))),
            (share_flag::ACCESS_BASED_DIRECTORY_ENUM, access_based),
            (share_flag::ENCRYPT_DATA, encrypted),
            (share_flag::DFS_ROOT, target == Target::Referred),
        ];
        let flags = flags.into_iter().filter(|(_, has)| *has);
        out.put_u32(flags.fold(0, |all, (flag, _)| all | flag));
        let capabilities = [
            (
                CONTINUOUS_AVAILABILITY,
                shares::is_continuous(self.table, target),
            ),
            (DFS, target == Target::Referred),
        ];
        let capabilities = capabilities.into_iter().filter(|(_, has)| *has);
        out.put_u32(capabilities.fold(0, |all, (one, _)| all | one));
        out.put_u32(mask::ALL);
        Ok(Status::SUCCESS)
    }

    /// TREE_DISCONNECT (§3.3.5.8).
    pub(crate) fn tree_disconnect(&mut self) -> CommandResult {
        let session = self.session()?;
        let erased = match std::mem::take(&mut self.c.step) {
            Step::Disconnects(erased) => erased,
            _ => Some(None),
        };
        if let Some(erased) = erased {
            self.erase_under(&session, erased)?;
        }
        if !session.disconnect(self.header.tree, &self.s.vfs, &self.s.leases) {
            return Err(Status::NETWORK_NAME_DELETED.into());
        }
        self.c.out.put_u16(4);
        self.c.out.put_u16(0);
        Ok(Status::SUCCESS)
    }
}

impl Run<'_> {
    /// Removes the records of the persistent opens under the tree connect, and has the request wait
    /// until that is durable: what others gain by the disconnect, they keep over a crash, and no
    /// open is there again that its client has given up. `erased` is how far it has come, if it has
    /// waited for room in the log.
    fn erase_under(
        &mut self,
        session: &Session,
        mut erased: Option<Lsn>,
    ) -> Result<(), Stop<Failure>> {
        for open in session.opens_under(self.header.tree) {
            let Some(persistent) = open.persistent.get() else {
                continue;
            };
            match persistent.erase() {
                Ok(lsn) => erased = erased.max(lsn),
                Err(Stop::Suspended(suspend)) => {
                    self.c.step = Step::Disconnects(Some(erased));
                    return Err(suspend.into());
                }
                // Nothing is recorded any more, whatever is asked for: the disconnect goes on.
                Err(Stop::Failed(error)) => {
                    tracing::debug!(?error, "the record of a persistent open stays");
                }
            }
        }
        match erased {
            Some(lsn) => {
                self.c.step = Step::Disconnects(None);
                Err(self.recorded(lsn))
            }
            None => Ok(()),
        }
    }
}

/// The body of the response to SESSION_SETUP (§2.2.6).
fn put_setup(chain: &mut Chain, flags: u16, token: &[u8]) {
    let out = &mut chain.out;
    out.put_u16(9);
    out.put_u16(flags);
    out.put_u16(72);
    out.put_u16(token.len() as u16);
    out.put(token);
}
