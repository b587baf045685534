//! Delegations (RFC 8881 §10.2, §10.4): grants with OPEN, WANT_DELEGATION, DELEGRETURN, recall and
//! revocation.
//!
//! A delegation is granted on three conditions. The client can be called. Nobody else has the file
//! open in a conflicting way, which the table of claims decides. The file was not recalled lately:
//! a file that several clients use in turn is better off without. A new file is delegated only if
//! the client asks for it, since most new files are written once.
//!
//! The size limit in the reply for a write delegation is 0. Clients therefore write their data when
//! they close the file, so that an error of space or quota reaches the program, and clients of
//! NFSv3 see the closed file.
//!
//! If the client asked to keep the file's times with a delegation (RFC 9754 §5), its times are
//! valid. It is asked for them (CB_GETATTR), and sets them before it returns the delegation.

use super::open::{Claiming, WISHES};
use crate::rpc::xdr::Put;
use crate::v4::args::{Claim, Open as OpenArgs};
use crate::v4::backchannel::flag;
use crate::v4::callback::Callback;
use crate::v4::client::Client;
use crate::v4::cursor::{Access, Fh, OpenProgress, Operand, OperationResult, Run};
use crate::v4::server::Nfs4;
use crate::v4::state::{DELEGATION_BYTES, Delegation, State, WRITE, delegation_kinds};
use crate::v4::status::Status;
use crate::v4::types::StateId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_vfs::claims::{CacheRights, Kind, Owner};
use weir_vfs::grace::Kinds;
use weir_vfs::volume::FileKind;
use weir_vfs::{FileId, MetadataWrite, Namespace, Stop};

/// Bits of `share_access` for the wanted delegation (`OPEN4_SHARE_ACCESS_WANT_DELEG_MASK`).
pub(in crate::v4) const WANTED: u32 = 0xff00;
/// OPEN4_SHARE_ACCESS_WANT_READ_DELEG, WANT_WRITE_DELEG, WANT_ANY_DELEG, WANT_NO_DELEG, WANT_CANCEL
/// (§18.16.1).
const WANT_READ: u32 = 0x0100;
const WANT_WRITE: u32 = 0x0200;
const WANT_ANY: u32 = 0x0300;
const WANT_NONE: u32 = 0x0400;
const WANT_CANCEL: u32 = 0x0500;
/// OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS (RFC 9754 §5).
const WANT_TIMES: u32 = 0x0010_0000;
/// OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION (RFC 9754 §4).
const WANT_XOR: u32 = 0x0020_0000;
/// Values of `open_delegation_type4`: OPEN_DELEGATE_NONE, _READ, _WRITE, _NONE_EXT,
/// _READ_ATTRS_DELEG, _WRITE_ATTRS_DELEG.
const NONE: u32 = 0;
const READ_DELEGATION: u32 = 1;
const WRITE_DELEGATION: u32 = 2;
const NONE_EXT: u32 = 3;
const READ_WITH_TIMES: u32 = 4;
const WRITE_WITH_TIMES: u32 = 5;
/// Values of `why_no_delegation4`: WND4_NOT_WANTED, _CONTENTION, _RESOURCE, _NOT_SUPP_FTYPE,
/// _NOT_SUPP_UPGRADE, _CANCELLED, _IS_DIR.
const NOT_WANTED: u32 = 0;
const CONTENTION: u32 = 1;
const RESOURCE: u32 = 2;
const NOT_SUPP_FTYPE: u32 = 3;
const NOT_SUPP_UPGRADE: u32 = 5;
const CANCELLED: u32 = 7;
const IS_DIR: u32 = 8;
/// `limit_by4` NFS_LIMIT_SIZE.
const LIMIT_SIZE: u32 = 1;

/// The delegation that a client is to get.
#[derive(Clone, Copy)]
struct Wish {
    write: bool,
    /// True if the client keeps the file's times.
    times: bool,
    /// True if the client had it before a restart.
    reclaims: bool,
    /// True if one for reading will do as well.
    or_less: bool,
}

impl Wish {
    /// Returns the reclaimed delegation by its `open_delegation_type4`; `None` if there was none.
    fn before(kind: u32) -> Option<Wish> {
        let (write, times) = match kind {
            READ_DELEGATION => (false, false),
            WRITE_DELEGATION => (true, false),
            READ_WITH_TIMES => (false, true),
            WRITE_WITH_TIMES => (true, true),
            _ => return None,
        };
        Some(Wish {
            write,
            times,
            reclaims: true,
            or_less: false,
        })
    }

    /// Returns a new delegation. Its client may ask to keep the times from minor version 2 on,
    /// which has attributes for them.
    fn new(write: bool, share_access: u32, minor: u32) -> Wish {
        Wish {
            write,
            times: share_access & WANT_TIMES != 0 && minor > 1,
            reclaims: false,
            or_less: false,
        }
    }
}

/// The delegation granted with an OPEN.
pub(in crate::v4) enum Given {
    Delegation {
        id: StateId,
        write: bool,
        times: bool,
    },
    /// None, for this reason.
    Not(u32),
}

impl Given {
    /// No delegation, as when none was wanted.
    pub(in crate::v4) const NONE: Given = Given::Not(NOT_WANTED);

    /// Returns the stateid of the delegation if it replaces the open of the client (RFC 9754 §4).
    pub(in crate::v4) fn instead_of_open(&self, a: &OpenArgs<'_>) -> Option<StateId> {
        match *self {
            Given::Delegation { id, write, .. } => {
                let enough = write || a.access & WRITE == 0;
                (a.access & WANT_XOR != 0 && a.deny == 0 && enough).then_some(id)
            }
            Given::Not(_) => None,
        }
    }

    /// Appends an `open_delegation4`. A client without a wish gets no reason.
    pub(in crate::v4) fn put(&self, wanted: u32, out: &mut Vec<u8>) {
        match self {
            Given::Delegation { id, write, times } => {
                out.put_u32(match (write, times) {
                    (false, false) => READ_DELEGATION,
                    (true, false) => WRITE_DELEGATION,
                    (false, true) => READ_WITH_TIMES,
                    (true, true) => WRITE_WITH_TIMES,
                });
                id.put(out);
                // Not being recalled.
                out.put_bool(false);
                if *write {
                    out.put_u32(LIMIT_SIZE);
                    out.put_u64(0);
                }
                // `nfsace4` that allows nobody anything: the client asks with ACCESS.
                for word in [0, 0, 0, 0] {
                    out.put_u32(word);
                }
            }
            Given::Not(_) if wanted & WANTED == 0 => out.put_u32(NONE),
            Given::Not(why) => {
                out.put_u32(NONE_EXT);
                out.put_u32(*why);
                if matches!(*why, CONTENTION | RESOURCE) {
                    // The delegation will not be offered later.
                    out.put_bool(false);
                }
            }
        }
    }
}

impl Run<'_> {
    /// Returns true if the client can be called, as far as is known.
    pub(in crate::v4) fn is_callable(&self) -> bool {
        let hold = self.c.hold.as_ref();
        self.s.callbacks.can_send() && hold.is_some_and(|h| h.session.client.is_callable())
    }

    /// Grants a delegation with an OPEN, if possible. Never suspends the OPEN, and never makes it
    /// fail.
    pub(in crate::v4) fn delegate(
        &mut self,
        client: &Client,
        operand: &Operand<'_, '_>,
        found: &OpenProgress,
        a: &OpenArgs<'_>,
    ) -> Given {
        let new = |write| Wish::new(write, a.access, self.c.minor);
        let wish = match (a.claim, a.access & WANTED) {
            (Claim::Previous(kind), _) => match Wish::before(kind) {
                Some(wish) => wish,
                None => return Given::Not(NOT_WANTED),
            },
            (_, WANT_NONE) => return Given::Not(NOT_WANTED),
            (_, WANT_CANCEL) => return Given::Not(CANCELLED),
            (Claim::DelegateCur(..) | Claim::DelegCurFh(_), _) => return Given::Not(NOT_WANTED),
            (_, 0) if found.made => return Given::Not(NOT_WANTED),
            (_, WANT_READ) => new(false),
            (_, _) => new(a.access & WRITE != 0),
        };
        // The holder of a delegation opens the file without asking the server: for reading, and
        // under a reclaimed write delegation for writing. So the caller needs permission for that.
        let may = found.made || {
            let cx = &mut self.c.cx;
            let write = wish.reclaims && wish.write;
            operand.may_open(cx, true, write).is_ok()
        };
        match may {
            true => self.give(client, operand, found.file, wish),
            false => Given::Not(RESOURCE),
        }
    }

    /// Grants the wanted delegation to the client, whose caller may open the file in this way.
    fn give(
        &mut self,
        client: &Client,
        operand: &Operand<'_, '_>,
        file: FileId,
        wish: Wish,
    ) -> Given {
        if file.namespace != Namespace::Live || (!wish.reclaims && !self.is_callable()) {
            return Given::Not(RESOURCE);
        }
        let now = self.s.monotonic().as_secs();
        if !wish.reclaims && self.s.recalled.lately(file, now) {
            return Given::Not(CONTENTION);
        }
        let cx = &mut self.c.cx;
        let (Ok(attr), Ok(pin)) = (operand.getattr(cx), operand.pin(cx)) else {
            return Given::Not(RESOURCE);
        };
        let wanted = match wish.write {
            true => CacheRights::ALL,
            false => CacheRights::READ_HANDLE,
        };
        let kinds = delegation_kinds(wish.write);
        let (grace, now) = (&self.s.vfs.grace, self.s.monotonic());
        let admitted = if wish.reclaims {
            grace.admit_again(&client.claimant(), kinds, file, now)
        } else {
            grace.admit_new(Kinds::ALL, file, now)
        };
        // Breaks are processed once the states are unlocked, so they find the delegation.
        let (Ok(()), Ok(mut states)) = (admitted, client.claiming()) else {
            return Given::Not(RESOURCE);
        };
        if self.record(client, kinds, file).is_err() {
            return Given::Not(RESOURCE);
        }
        if let Some(had) = states.delegation_of(file) {
            return Given::Not(match wish.write && !had.write {
                true => NOT_SUPP_UPGRADE,
                false => NOT_WANTED,
            });
        }
        if !client.memory.lock().grow(DELEGATION_BYTES) {
            return Given::Not(RESOURCE);
        }
        let claims = &self.s.vfs.claims;
        let given = claims.grant(file, &client.own, Kind::Delegation, wanted);
        let write = given.has(CacheRights::WRITE);
        if given.is_none() || (wish.write && !write && !wish.or_less) {
            let none = claims.acknowledge(file, &client.own, CacheRights::NONE);
            assert!(none, "a holder that keeps nothing keeps too much");
            drop(states);
            release(client);
            return Given::Not(CONTENTION);
        }
        let (own, times) = (client.own.clone(), wish.times);
        let id = states.add_delegation(file, own, write, &attr, times, pin);
        Given::Delegation { id, write, times }
    }

    /// WANT_DELEGATION (§18.49). A delegation that is refused now is not offered later.
    pub(in crate::v4) fn want_delegation(
        &mut self,
        want: u32,
        claim: &Claim<'_>,
    ) -> OperationResult {
        let Fh::File(file) = self.here()? else {
            return Ok(self.put_wanted(&Given::Not(IS_DIR)));
        };
        // The access bits are ignored (§18.49.3).
        if want & !(3 | WISHES) != 0 {
            return Err(Status::Inval.into());
        }
        let wish = match (claim, want & WANTED) {
            (Claim::Previous(kind), _) => Some(Wish::before(*kind).ok_or(Status::Inval)?),
            (Claim::Fh, WANT_CANCEL) => return Ok(self.put_wanted(&Given::Not(CANCELLED))),
            (Claim::Fh, WANT_READ) => Some(Wish::new(false, want, self.c.minor)),
            (Claim::Fh, WANT_WRITE) => Some(Wish::new(true, want, self.c.minor)),
            (Claim::Fh, WANT_ANY) => None,
            (Claim::Fh, _) => return Err(Status::Inval.into()),
            _ => return Err(Status::NotSupp.into()),
        };
        let client = self.client();
        let reclaims = wish.is_some_and(|wish| wish.reclaims);
        let claim = Claiming {
            reclaim: reclaims,
            file,
            kinds: delegation_kinds(wish.is_some_and(|wish| wish.write)),
            against: Kinds::ALL,
        };
        self.may_claim(&client, &claim)?;
        let access = match reclaims {
            true => Access::Reclaim(&client.own),
            false => client.outside(),
        };
        let (operand, _) = self.enter(file, access, MetadataWrite)?;
        match operand.getattr(&mut self.c.cx)?.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Ok(self.put_wanted(&Given::Not(IS_DIR))),
            _ => return Ok(self.put_wanted(&Given::Not(NOT_SUPP_FTYPE))),
        }
        let wish = match wish {
            Some(wish) => wish,
            // As much as the caller is permitted.
            None => match operand.may_open(&mut self.c.cx, true, true) {
                Ok(_) => Wish {
                    or_less: true,
                    ..Wish::new(true, want, self.c.minor)
                },
                Err(Stop::Failed(_)) => Wish::new(false, want, self.c.minor),
                Err(why) => return Err(why.into()),
            },
        };
        operand.may_open(&mut self.c.cx, true, wish.write)?;
        let given = self.give(&client, &operand, file, wish);
        Ok(self.put_wanted(&given))
    }

    fn put_wanted(&mut self, given: &Given) -> Status {
        given.put(WANTED, &mut self.c.out);
        if let Given::Delegation { id, .. } = given {
            self.c.state = *id;
        }
        Status::Ok
    }

    /// DELEGRETURN (§18.6).
    pub(in crate::v4) fn delegreturn(&mut self, id: &StateId) -> OperationResult {
        let file = self.file(Status::BadStateId)?;
        let id = self.resolved(id)?;
        let client = self.client();
        let found = client.states.read().find(&id)?;
        match found {
            State::Delegation(delegation) if delegation.file == file => {
                self.s.end_delegation(&client, &delegation);
                Ok(Status::Ok)
            }
            _ => Err(Status::BadStateId.into()),
        }
    }

    /// Checks that a stateid is that of a delegation of the file, under which it may be opened
    /// (CLAIM_DELEGATE_CUR).
    pub(in crate::v4) fn delegated(&self, id: &StateId, file: FileId) -> Result<(), Status> {
        let id = self.resolved(id)?;
        match self.client_ref().states.read().find(&id)? {
            State::Delegation(delegation) if delegation.file == file => Ok(()),
            _ => Err(Status::BadStateId),
        }
    }
}

/// Refunds the memory of a delegation to the client's account.
fn release(client: &Client) {
    let mut memory = client.memory.lock();
    let left = memory.bytes() - DELEGATION_BYTES;
    memory.shrink_to(left);
}

impl Nfs4 {
    /// Ends a delegation that the client has returned, or does not know.
    pub(in crate::v4) fn end_delegation(&self, client: &Client, delegation: &Delegation) {
        let mut states = client.states.write();
        if !states.end_delegation(delegation) {
            return;
        }
        let (file, none) = (delegation.file, CacheRights::NONE);
        let kept = self.vfs.claims.acknowledge(file, &client.own, none);
        assert!(kept, "a holder that keeps nothing keeps too much");
        drop(states);
        release(client);
    }

    /// Recalls a delegation that conflicts with another client.
    pub(in crate::v4) fn recall(&self, client: &Client, file: FileId) {
        self.recalled.note(file, self.monotonic().as_secs());
        let delegation = client.states.read().delegation_of(file);
        if let Some(delegation) = delegation {
            self.call_back(client, Callback::Recall(delegation));
        }
    }

    /// Asks the holder of a write delegation for the file's attributes.
    pub(in crate::v4) fn ask(&self, client: &Client, file: FileId) {
        let delegation = client.states.read().delegation_of(file);
        if let Some(delegation) = delegation {
            self.call_back(client, Callback::GetAttr(delegation));
        }
    }

    /// Revokes a delegation whose holder did not answer in time.
    pub(in crate::v4) fn revoked(&self, client: &Client, file: FileId) {
        let lost = client
            .states
            .write()
            .revoke_delegation(file, Status::DelegRevoked);
        if lost.is_some() {
            let status = &client.status;
            status.fetch_or(flag::RECALLABLE_REVOKED, Ordering::Relaxed);
        }
        // Its pin is dropped without any lock.
        drop(lost);
    }

    /// Revokes the state of an owner in a file whose volume is gone or was replaced.
    pub(in crate::v4) fn lost(&self, client: &Client, file: FileId, owner: &Owner) {
        let mut states = client.states.write();
        let lost = match owner.who == client.own.who {
            true => states.revoke_delegation(file, Status::AdminRevoked),
            false => states.revoke_owner(file, owner),
        };
        drop(states);
        if lost.is_some() {
            let status = &client.status;
            status.fetch_or(flag::ADMIN_REVOKED, Ordering::Relaxed);
        }
        drop(lost);
        self.not_waiting(file, owner);
    }

    /// FREE_STATEID of a revoked state; returns false if it is not revoked.
    pub(in crate::v4) fn free_revoked(&self, client: &Client, id: &StateId) -> bool {
        let mut states = client.states.write();
        let Some(freed) = states.free_revoked(id) else {
            return false;
        };
        if !freed.others {
            let bit = match freed.status {
                Status::DelegRevoked => flag::RECALLABLE_REVOKED,
                _ => flag::ADMIN_REVOKED,
            };
            client.status.fetch_and(!bit, Ordering::Relaxed);
        }
        drop(states);
        let mut memory = client.memory.lock();
        let left = memory.bytes() - freed.bytes;
        memory.shrink_to(left);
        true
    }

    /// Asks clients to return half of their delegations, when memory is short.
    pub(in crate::v4) fn recall_any(&self) {
        for client in self.registry.clients() {
            let count = client.states.read().delegations();
            if count > 0 {
                let keep = u32::try_from(count / 2).unwrap_or(u32::MAX);
                self.call_back(&client, Callback::RecallAny(keep));
            }
        }
    }

    /// Returns the client of an owner in the table of claims.
    pub(in crate::v4) fn client_of(&self, owner: &Owner) -> Option<Arc<Client>> {
        let id = owner.client.name.as_ref().try_into().ok()?;
        self.registry.client(u64::from_be_bytes(id))
    }
}
