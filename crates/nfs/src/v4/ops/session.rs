//! Operations on clients and sessions.

use crate::rpc;
use crate::rpc::message::ACCEPTED_BYTES;
use crate::rpc::reply::ReplyBuf;
use crate::rpc::xdr::Put;
use crate::v4::args::{
    BIND_CONN_TO_SESSION, CreateSession, ExchangeId, Security, Sequence, StateIds,
};
use crate::v4::backchannel::flag;
use crate::v4::client::Caller;
use crate::v4::cursor::{Fh, Hold, OperationResult, Run};
use crate::v4::persistent::Request;
use crate::v4::session::Session;
use crate::v4::slot::{Results, SlotOutcome};
use crate::v4::status::Status;
use crate::v4::types::{SessionId, StateId};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_base::Lsn;
use weir_vfs::{Flavours, Scope};

/// Number of bytes at the front of a request that distinguish it from another in its slot:
/// everything but long data, names and attributes.
const CHECKED: usize = 512;

/// The object identifier of Kerberos 5, 1.2.840.113554.1.2.2, without tag and length (RFC 1964 §1).
const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];

/// Directions in BIND_CONN_TO_SESSION: `channel_dir_from_client4`, `channel_dir_from_server4`
/// (§18.34.1).
mod direction {
    pub const FORE: u32 = 1;
    pub const BACK: u32 = 2;
    pub const BOTH: u32 = 3;
    pub const FORE_OR_BOTH: u32 = 3;
    pub const BACK_OR_BOTH: u32 = 7;
}

impl Run<'_> {
    /// SEQUENCE (§18.46). Returns the reply if the request is a retransmission.
    pub(in crate::v4) fn sequence(
        &mut self,
        a: &Sequence,
    ) -> Result<Option<(ReplyBuf, Option<Lsn>)>, Status> {
        // The checksum is over the length, and the first bytes behind the transaction id and the
        // stamp.
        let head = self.args.get(..CHECKED).unwrap_or(self.args);
        let length = self.args.len() + self.unread.map_or(0, |unread| unread.bytes);
        let checksum = crc32c::crc32c_append(length as u32, head);
        let request = Request {
            slot: a.slot,
            sequence: a.sequence,
            checksum,
        };
        let Some((session, moved)) = self.s.registry.take_session(self.conn, &a.session) else {
            let (session, repeated) = self.session_before(&a.session, &request)?;
            self.c.repeated = Some(Box::new(repeated));
            self.begun(a, (session, 0), request, flag::RESTART_RECLAIM_NEEDED);
            return Ok(None);
        };
        if session.client.is_expired() {
            return Err(Status::BadSession);
        }
        if moved {
            self.s.record_addresses(&session.client);
        }
        if session.client.machine.is_some() && !session.is_bound(self.conn.id) {
            return Err(Status::ConnNotBound);
        }
        if a.slot >= session.slots.count() {
            return Err(Status::BadSlot);
        }
        if self.bytes > session.fore.max_request as usize {
            return Err(Status::ReqTooBig);
        }
        if self.c.count > session.fore.max_operations {
            return Err(Status::TooManyOps);
        }
        let begun = || session.slots.begin(a.slot, a.sequence, checksum);
        match self.with_room(|| begun().ok_or(Status::Delay))? {
            SlotOutcome::Refused(status) => return Err(status),
            SlotOutcome::Answered(kept) => {
                session.client.renew(self.s.monotonic());
                let Results { bytes, lsn, cut } = &kept.results;
                let mut out = ReplyBuf::start(ACCEPTED_BYTES + bytes.len() + 4);
                rpc::put_accepted(&mut out, self.xid());
                out.extend_from_slice(bytes);
                return Ok(Some((ReplyBuf::compound(out, None, *cut), *lsn)));
            }
            SlotOutcome::New => session.slots.follows(a.highest),
        }
        let client = &session.client;
        let now = self.c.arrived().unwrap_or_else(|| self.s.monotonic());
        client.renew(now);
        if client.comes_back() {
            self.s.vfs.claims.unpark(&client.claims);
        }
        let status = session.back.status() | client.status.load(Ordering::Relaxed);
        self.begun(a, (session, a.slot), request, status);
        Ok(None)
    }

    /// Appends the result of SEQUENCE for a request that has its slot, and sets the limits of the
    /// request.
    fn begun(
        &mut self,
        a: &Sequence,
        (session, slot): (Arc<Session>, u32),
        request: Request,
        status: u32,
    ) {
        let most = session.fore.max_response;
        let most = match a.cache {
            true => most.min(session.fore.max_cached),
            false => most,
        };
        let highest = (session.slots.count() - 1).max(a.slot);
        let target = session.slots.target() - 1;
        let words = [a.sequence, a.slot, highest, target, status];
        let mut result = [0; 36];
        result[..16].copy_from_slice(&session.id);
        result[16..].copy_from_slice(words.map(u32::to_be_bytes).as_flattened());
        self.c.out.extend_from_slice(&result);
        self.c.hold = Some(Hold {
            session,
            slot,
            request,
            cache: a.cache,
            most: (most as usize).saturating_sub(ACCEPTED_BYTES),
        });
    }

    fn xid(&self) -> u32 {
        let xid = self.c.out.get(4..8).and_then(|b| b.try_into().ok());
        xid.map_or(0, u32::from_be_bytes)
    }

    /// Runs `change`. While it is refused for lack of memory, removes another client that may give
    /// way, and tries again.
    fn with_room<T>(&self, change: impl Fn() -> Result<T, Status>) -> Result<T, Status> {
        loop {
            let changed = change();
            if changed.as_ref().err() != Some(&Status::Delay) {
                return changed;
            }
            let Some(gone) = self.s.registry.give_way(self.conn.address()) else {
                return changed;
            };
            self.s.end(&gone);
        }
    }

    fn speaker(&self) -> Caller<'_> {
        Caller {
            conn: self.conn,
            credential: self.credential,
            now: self.s.monotonic(),
        }
    }

    /// Returns the server's identity (`so_major_id` and scope). At an address with a root of its
    /// own it differs: clients use one session for all addresses of a server (§2.10.5), and would
    /// find the root of the first address at each.
    fn server_at_address(&self) -> Vec<u8> {
        let mut name = self.s.identity.to_vec();
        if let Some(own) = self.own_address() {
            name.extend_from_slice(own.to_string().as_bytes());
        }
        name
    }

    /// Returns the arguments with the owner's name in `owner`. At an address with a root of its own
    /// the address is put in front of it, since the client sees such addresses as different
    /// servers.
    fn at_address<'o>(&self, a: &ExchangeId<'o>, owner: &'o mut Vec<u8>) -> ExchangeId<'o> {
        let Some(own) = self.own_address() else {
            return *a;
        };
        owner.extend_from_slice(own.to_string().as_bytes());
        owner.push(b'/');
        owner.extend_from_slice(a.owner);
        ExchangeId { owner, ..*a }
    }

    /// Returns the address that the client called, if that has a root of its own.
    fn own_address(&self) -> Option<IpAddr> {
        let local = self.conn.local.ip().to_canonical();
        matches!(self.table.scope(local), Scope::Own(_)).then_some(local)
    }

    /// EXCHANGE_ID (§18.35): introduces a client.
    pub(in crate::v4) fn exchange_id(&mut self, a: &ExchangeId<'_>) -> OperationResult {
        let registry = &self.s.registry;
        let minor = self.c.minor;
        let caller = self.speaker();
        let mut owner = Vec::new();
        let a = &self.at_address(a, &mut owner);
        if self.s.is_recorded_elsewhere(a.owner, &caller) {
            return Err(Status::ClidInUse.into());
        }
        let made = self.with_room(|| registry.exchange_id(minor, a, &caller))?;
        if let Some(old) = made.replaced {
            registry.remove(&old);
            self.s.end(&old);
        }
        let out = &mut self.c.out;
        out.put_u64(made.client);
        out.put_u32(made.sequence);
        out.put_u32(made.flags);
        match &made.machine {
            // SP4_NONE.
            None => out.put_u32(0),
            // SP4_MACH_CRED.
            Some(ops) => {
                out.put_u32(1);
                ops.must.put(out);
                ops.may.put(out);
            }
        }
        // server_owner: minor id, major id; scope; no implementation id.
        let server = self.server_at_address();
        let out = &mut self.c.out;
        out.put_u64(0);
        out.put_opaque(&server);
        out.put_opaque(&server);
        out.put_u32(0);
        Ok(Status::Ok)
    }

    /// CREATE_SESSION (§18.36): creates a session, and confirms its client.
    pub(in crate::v4) fn create_session(&mut self, a: &CreateSession<'_>) -> OperationResult {
        let encode = |session: &Session| {
            let mut out = Vec::with_capacity(96);
            out.put_fixed(&session.id);
            out.put_u32(a.sequence);
            out.put_u32(session.flags);
            for channel in [&session.fore, &session.back.limits] {
                for value in [
                    channel.header_pad,
                    channel.max_request,
                    channel.max_response,
                    channel.max_cached,
                    channel.max_operations,
                    channel.max_requests,
                    // No RDMA.
                    0,
                ] {
                    out.put_u32(value);
                }
            }
            out
        };
        let minor = self.c.minor;
        let registry = &self.s.registry;
        let caller = self.speaker();
        let created = self.with_room(|| registry.create_session(a, &caller, minor, encode))?;
        self.c.out.extend_from_slice(&created.reply);
        if let Some(session) = &created.session {
            session.bind(self.conn.id);
            self.s.bind_back(session, self.conn);
        }
        if let Some(old) = created.replaced {
            self.s.end(&old);
        }
        Ok(Status::Ok)
    }

    /// DESTROY_SESSION (§18.37). The session that the request came over ends last.
    pub(in crate::v4) fn destroy_session(&mut self, session: &SessionId) -> OperationResult {
        let own = self.c.hold.as_ref().filter(|h| h.session.id == *session);
        let slot = own.map(|h| h.slot);
        if slot.is_some() && self.c.index + 1 != self.c.count {
            return Err(Status::NotOnlyOp.into());
        }
        let registry = &self.s.registry;
        let ended = registry.destroy_session(session, slot, &self.speaker())?;
        if ended.back.is_asked() {
            self.s.session_ended(&ended);
        }
        Ok(Status::Ok)
    }

    /// DESTROY_CLIENTID (§18.50): forgets a client without state.
    pub(in crate::v4) fn destroy_client(&mut self, client: u64) -> OperationResult {
        let client = self.s.registry.destroy_client(client, &self.speaker())?;
        self.s.end(&client);
        Ok(Status::Ok)
    }

    /// BIND_CONN_TO_SESSION (§18.34). Over TCP there is no RDMA mode.
    pub(in crate::v4) fn bind_conn(&mut self, id: &SessionId, asked: u32) -> OperationResult {
        let session = self.s.registry.session(self.conn, id);
        let session = session.ok_or(Status::BadSession)?;
        let client = &session.client;
        client.may_ask(BIND_CONN_TO_SESSION, self.credential)?;
        let bound = match asked {
            direction::FORE => direction::FORE,
            direction::BACK => direction::BACK,
            direction::FORE_OR_BOTH | direction::BACK_OR_BOTH => direction::BOTH,
            _ => return Err(Status::Inval.into()),
        };
        if client.reach.lock().add(self.conn) {
            self.s.record_addresses(client);
        }
        if bound & direction::FORE != 0 {
            session.bind(self.conn.id);
        }
        if bound & direction::BACK != 0 {
            self.s.bind_back(&session, self.conn);
        }
        let out = &mut self.c.out;
        out.put_fixed(id);
        out.put_u32(bound);
        out.put_bool(false);
        Ok(Status::Ok)
    }

    /// BACKCHANNEL_CTL (§18.33): changes program and credential of this session's callbacks.
    pub(in crate::v4) fn backchannel_ctl(
        &mut self,
        program: u32,
        security: &Security<'_>,
    ) -> OperationResult {
        let Some(hold) = &self.c.hold else {
            unreachable!("an operation of a session has a slot");
        };
        match hold.session.back.change(program, security) {
            true => Ok(Status::Ok),
            // NFS4ERR_NOENT: no such context of RPCSEC_GSS (§18.33.3).
            false => Err(Status::NoEnt.into()),
        }
    }

    /// RECLAIM_COMPLETE (§18.51): the client has reclaimed all that it wants.
    pub(in crate::v4) fn reclaim_complete(&mut self, one_fs: bool) -> OperationResult {
        if one_fs {
            // File systems do not move between servers, so nothing is reclaimed for one.
            self.here()?;
            return Ok(Status::Ok);
        }
        let client = self.client();
        if client.reclaimed.swap(true, Ordering::AcqRel) {
            return Err(Status::CompleteAlready.into());
        }
        self.s.vfs.grace.finished(&client.claimant());
        Ok(Status::Ok)
    }

    /// TEST_STATEID (§18.48): returns the status of each stateid.
    pub(in crate::v4) fn test_stateids(&mut self, states: &StateIds<'_>) -> OperationResult {
        if self.c.room() < 4 * states.len() + 8 {
            return Err(Status::RepTooBig.into());
        }
        let client = self.client();
        let all = client.states.read();
        self.c.out.put_u32(states.len() as u32);
        for id in states.iter() {
            let status = match id {
                StateId::ANONYMOUS | StateId::BYPASS | StateId::CURRENT => Status::BadStateId,
                id => all.find(&id).err().unwrap_or(Status::Ok),
            };
            self.c.out.put_u32(status as u32);
        }
        Ok(Status::Ok)
    }

    /// SECINFO (§18.29): returns the flavours for a name in the current directory.
    pub(in crate::v4) fn secinfo(&mut self, name: &[u8]) -> OperationResult {
        if self.right_flavour().is_err() {
            // A directory's entries require the same flavours, and cannot be looked up by this one.
            return self.put_flavours();
        }
        let before = (self.c.current, self.c.state);
        let outcome = self.step_to(name);
        if outcome.is_err() {
            (self.c.current, self.c.state) = before;
        }
        outcome?;
        self.put_flavours()
    }

    /// SECINFO_NO_NAME (§18.45): returns the flavours for the current handle, or for the directory
    /// above.
    pub(in crate::v4) fn secinfo_no_name(&mut self, style: u32) -> OperationResult {
        match style {
            0 => drop(self.here()?),
            1 if self.right_flavour().is_err() => {}
            1 => drop(self.lookupp()?),
            _ => return Err(Status::BadXdr.into()),
        }
        self.put_flavours()
    }

    /// Appends the security flavours by which the rule of the current handle admits this client,
    /// the strongest first, and removes the current handle (§2.6.3.1.1.8). Above all exports, every
    /// flavour is admitted.
    fn put_flavours(&mut self) -> OperationResult {
        let flavours = self.flavours()?.unwrap_or(Flavours::SYS.or(Flavours::KRB5));
        let kerberos = self.s.kerberos.load(Ordering::Relaxed);
        let out = &mut self.c.out;
        out.put_u32(rpc::offered(flavours, kerberos).count() as u32);
        for (number, service) in rpc::offered(flavours, kerberos) {
            let Some(service) = service else {
                out.put_u32(number);
                continue;
            };
            // `rpcsec_gss_info` (§18.29.1): mechanism, quality of protection, service.
            out.put_u32(rpc::RPCSEC_GSS);
            out.put_opaque(KERBEROS);
            out.put_u32(0);
            out.put_u32(service);
        }
        self.c.current = Fh::None;
        Ok(Status::Ok)
    }
}
