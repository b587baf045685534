//! Execution of a chain of requests (MS-SMB2 §3.3.5.2), one after the other, with the responses in
//! one message.
//!
//! Each request is prepared once: its message numbers are used up, its session is found, its
//! signature is verified, and its tree connect is found. Then its command runs. Related requests
//! take session, tree connect and file from the earlier ones, and fail if those failed. A command
//! that has to wait suspends the chain, which resumes at that command and repeats nothing that was
//! done ([`Step`]).

use crate::conn::connection::Connection;
use crate::conn::operation;
use crate::conn::reply::{self, Part, Reply};
use crate::conn::server::Service;
use crate::context::run::{Chain, CommandResult, CurrentRequest, Failure, Hash, Run};
use crate::context::step::Step;
use crate::open::shares;
use crate::proto::dialect::Dialect;
use crate::proto::header::{Header, command, flag, link};
use crate::proto::negotiate::Protection;
use crate::proto::status::Status;
use std::rc::Rc;
use std::sync::Arc;
use weir_auth::wire::Put;
use weir_base::Lsn;
use weir_vfs::signal::Signal;
use weir_vfs::{Admissions, ExportTable, OpContext, Stop};

/// Requests of one chain at most.
const MOST: usize = 256;

/// Reason why a chain ends without a response: the connection is to be closed.
pub(crate) struct Close(pub &'static str);

/// A chain at its end.
pub(crate) struct ChainReply {
    pub reply: Reply,
    pub lsn: Option<Lsn>,
    pub delay: Option<Arc<Signal<()>>>,
}

/// Commands that need no session, and those that need no tree connect.
fn needs(command: u16) -> (bool, bool) {
    match command {
        command::NEGOTIATE | command::SESSION_SETUP => (false, false),
        command::LOGOFF | command::TREE_CONNECT | command::ECHO => (true, false),
        _ => (true, true),
    }
}

/// Returns true if a session may send this command although its user's ticket has expired
/// (§3.3.5.2.9): commands that free something, and reauthentication. As Windows does, an ECHO is
/// answered, and a LOCK that does not unlock is refused (smbtorture's smb2.session.expire2s).
fn outlives_a_ticket(command: u16, message: &[u8]) -> bool {
    /// The flags of the first lock, and the bit by which it is unlocked (§2.2.26).
    const FLAGS: usize = crate::proto::header::HEADER + 40;
    const UNLOCK: u8 = 4;
    match command {
        command::SESSION_SETUP | command::LOGOFF | command::CLOSE | command::ECHO => true,
        command::LOCK => message.get(FLAGS).is_some_and(|flags| flags & UNLOCK != 0),
        _ => false,
    }
}

impl Run<'_> {
    fn command(&mut self) -> CommandResult {
        match self.header.command {
            command::NEGOTIATE => self.negotiate(),
            command::SESSION_SETUP => self.session_setup(),
            command::LOGOFF => self.logoff(),
            command::TREE_CONNECT => self.tree_connect(),
            command::TREE_DISCONNECT => self.tree_disconnect(),
            command::CREATE => self.create(),
            command::CLOSE => self.close(),
            command::FLUSH => self.flush(),
            command::READ => self.read(),
            command::WRITE => self.write(),
            command::LOCK => self.lock(),
            command::IOCTL => self.ioctl(),
            command::ECHO => {
                self.c.out.put_u16(4);
                self.c.out.put_u16(0);
                Ok(Status::SUCCESS)
            }
            command::QUERY_DIRECTORY => self.query_directory(),
            command::CHANGE_NOTIFY => self.change_notify(),
            command::QUERY_INFO => self.query_info(),
            command::SET_INFO => self.set_info(),
            command::OPLOCK_BREAK => self.oplock_break(),
            _ => Err(Status::INVALID_PARAMETER.into()),
        }
    }
}

impl Service {
    /// Runs a chain from where it is.
    pub(crate) fn run(
        self: &Arc<Self>,
        conn: &Rc<Connection>,
        admitted: &Admissions,
        chain: &mut Chain,
        record: &[u8],
    ) -> Result<ChainReply, Stop<Close>> {
        let table = self.vfs.exports();
        loop {
            let Ok((header, message)) = link(record, chain.at) else {
                return Err(Stop::Failed(Close("a message that is none of SMB2")));
            };
            let begun = match chain.begun.take() {
                Some(begun) => begun,
                None => self.begin((conn, &table), chain, header, message)?,
            };
            let mut credits = begun.credits;
            let at = chain.out.len();
            begun.header.put_response(&mut chain.out, 0, credits);
            let body = chain.out.len();
            let failed = chain.failed.take().or(begun.refused);
            let mut run = Run {
                s: self,
                conn,
                admitted,
                table: &table,
                c: chain,
                header: begun.header,
                message,
            };
            let outcome = match failed {
                Some(status) => Err(Stop::Failed(Failure::Status(status))),
                None => run.command(),
            };
            let status = match outcome {
                Ok(status) => status,
                Err(Stop::Failed(Failure::Status(status))) => {
                    chain.fails(body);
                    reply::put_error(&mut chain.out);
                    status
                }
                Err(Stop::Failed(Failure::With(status, contexts, data))) => {
                    chain.fails(body);
                    reply::put_error_with(&mut chain.out, contexts, &data);
                    status
                }
                Err(Stop::Suspended(suspend)) => {
                    chain.out.truncate(at);
                    chain.payload = None;
                    chain.begun = Some(begun);
                    return Err(Stop::Suspended(suspend));
                }
                Err(Stop::Failed(Failure::Close(why))) => return Err(Stop::Failed(Close(why))),
            };
            chain.cx.settle_charge(&self.vfs.throttle);
            chain.creating = None;
            let mut header = begun.header;
            header.tree = chain.connected.take().unwrap_or(header.tree);
            header.session = chain.named_session.take().unwrap_or(header.session);
            if header.command == command::SESSION_SETUP && status == Status::SUCCESS {
                // The first request on a new channel may be a chain, and Linux fails with EDEADLK
                // where it has too few for it.
                credits += conn.grant(begun.withheld);
                chain.out[at + 14..at + 16].copy_from_slice(&credits.to_le_bytes());
            }
            chain.out.set_u32(at + 8, status.0);
            chain.out.set_u32(at + 36, header.tree);
            chain.out[at + 40..at + 48].copy_from_slice(&header.session.to_le_bytes());
            let async_id = chain.async_id.take();
            if let Some(id) = async_id {
                reply::put_async(&mut chain.out[at..], id);
            }
            self.count(chain, &begun, status, async_id.is_some());
            let depends = chain.depends.take();
            chain.lsn = chain.lsn.max(depends);
            chain.parts.push(Part {
                at,
                header,
                credits,
                signer: chain.signs.take().or(begun.signer),
                promises: depends.is_some(),
                async_id,
            });
            chain.last = status;
            if header.next == 0 {
                return Ok(self.finish(conn, chain));
            }
            if chain.parts.len() == MOST {
                return Err(Stop::Failed(Close("a chain that is too long")));
            }
            if let Some(payload) = chain.payload.take() {
                // Only the last one's data leaves by reference.
                payload.slices().for_each(|slice| chain.out.put(slice));
                chain.compresses = None;
            }
            // The mark in front is no part of the message, but half as long as what it is aligned
            // to.
            chain.out.align(4, 8);
            chain.at += header.next as usize;
            chain.step = Step::Nothing;
            chain.cx = OpContext::new(chain.now, chain.flow, chain.arrived);
        }
    }

    /// Counts a request that has been answered, and that it failed. `waited`: after an interim
    /// response.
    fn count(&self, chain: &mut Chain, begun: &CurrentRequest, status: Status, waited: bool) {
        let command = begun.header.command;
        if status.is_error() {
            let operation = operation::number(command);
            self.vfs.count_failure(chain.flow, operation, status.0);
        }
        if begun.refused.is_none() {
            chain.count(command, waited);
        }
    }

    fn finish(&self, conn: &Connection, chain: &mut Chain) -> ChainReply {
        let out = std::mem::take(&mut chain.out);
        let parts = std::mem::take(&mut chain.parts);
        let sealed = chain.sealed.take();
        let hash = chain.hash.take().filter(|_| sealed.is_none());
        let payload = chain.payload.take();
        let mut reply = Reply::compressed(out, payload, parts, sealed, chain.compresses.take());
        reply.count_as(std::mem::take(&mut chain.done));
        match hash {
            Some(Hash::Connection) => conn.add_to_preauth(reply.message()),
            Some(Hash::Setup(id)) => conn.add_to_setup(id, reply.message()),
            None => {}
        }
        ChainReply {
            reply,
            lsn: chain.lsn.take(),
            delay: chain.delay.take(),
        }
    }

    /// Prepares a request before its command runs: message numbers, session, signature, tree
    /// connect.
    fn begin(
        &self,
        (conn, table): (&Connection, &ExportTable),
        chain: &mut Chain,
        mut header: Header,
        message: &[u8],
    ) -> Result<CurrentRequest, Stop<Close>> {
        if header.has_flag(flag::RESPONSE) {
            return Err(Stop::Failed(Close("a response that nothing asked for")));
        }
        match (conn.negotiated.get(), header.command) {
            (None, command::NEGOTIATE) => header.charge = header.charge.min(1),
            (None, _) => return Err(Stop::Failed(Close("a request before NEGOTIATE"))),
            (Some(_), command::NEGOTIATE) => return Err(Stop::Failed(Close("a second NEGOTIATE"))),
            (Some(_), command::CANCEL) => return Err(Stop::Failed(Close("CANCEL in a chain"))),
            (Some(_), _) => {}
        }
        if !conn.take_numbers(header.message, header.charge) {
            return Err(Stop::Failed(Close("a message number that may not be used")));
        }
        let (wanted, withheld) = match (conn.has_users(), header.credits) {
            (false, asked) => (asked.min(1), asked - asked.min(1)),
            (true, asked) => (asked.max(1), 0),
        };
        let mut begun = CurrentRequest {
            header,
            refused: None,
            credits: conn.grant(wanted),
            withheld,
            signer: None,
        };
        let related = header.has_flag(flag::RELATED);
        if related && chain.parts.is_empty() {
            begun.refused = Some(Status::INVALID_PARAMETER);
            return Ok(begun);
        }
        let (session, tree) = needs(header.command);
        if !related {
            (chain.session, chain.tree, chain.file) = (None, None, None);
            chain.last = Status::SUCCESS;
            chain.session = conn.session(header.session);
        }
        let alone = header.command == command::ECHO && header.session == 0;
        let Some(found) = chain.session.clone().filter(|s| !s.has_ended()) else {
            if session && !alone {
                if header.command != command::ECHO {
                    tracing::debug!(peer = %conn.peer, "a request without a session");
                }
                begun.refused = Some(Status::USER_SESSION_DELETED);
            }
            return Ok(begun);
        };
        begun.header.session = found.id;
        if header.command == command::NEGOTIATE {
            return Ok(begun);
        }
        let signed = header.has_flag(flag::SIGNED);
        // A request that need not be signed is answered as it came (§3.3.4.1.1).
        if signed || found.protection != Protection::Offered {
            begun.signer = Some(Arc::clone(&found.signer));
        }
        let protected = match (&chain.sealed, found.protection) {
            // A message encrypted for one session proves nothing for another (§3.3.5.2.1.1).
            (Some(sealed), _) => sealed.id == found.id,
            (None, Protection::Encrypted) if header.command != command::SESSION_SETUP => false,
            (None, Protection::Offered) if !signed => {
                // Or the preauthentication hash would protect nothing (§3.3.5.7).
                if header.command == command::TREE_CONNECT
                    && found.negotiated.dialect == Dialect::Smb311
                {
                    return Err(Stop::Failed(Close(
                        "a TREE_CONNECT of 3.1.1 without a signature",
                    )));
                }
                true
            }
            (None, _) => signed && found.signer.verify(message),
        };
        if !protected {
            // Also of a SESSION_SETUP that renews the session (§3.3.5.2.4).
            tracing::warn!(peer = %conn.peer, user = found.user, "refused request: signature wrong or missing, or not encrypted");
            begun.refused = Some(Status::ACCESS_DENIED);
            return Ok(begun);
        }
        if found.expires.has_passed(&*self.clock) && !outlives_a_ticket(header.command, message) {
            begun.refused = Some(Status::NETWORK_SESSION_EXPIRED);
            return Ok(begun);
        }
        if tree {
            if !related {
                chain.tree = found.tree(header.tree);
            }
            match &chain.tree {
                Some(tree) => {
                    begun.header.tree = tree.id;
                    // §3.3.5.2.11.
                    if chain.sealed.is_none() && shares::must_seal(table, tree.target) {
                        tracing::warn!(peer = %conn.peer, user = found.user, share = tree.share, "refused request: not encrypted, but its share has ENCRYPT_DATA");
                        begun.refused = Some(Status::ACCESS_DENIED);
                    }
                }
                None => begun.refused = Some(Status::NETWORK_NAME_DELETED),
            }
        }
        Ok(begun)
    }
}
