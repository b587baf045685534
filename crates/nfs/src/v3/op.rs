//! Context in which the procedures of an NFSv3 call run. The procedures depend on this module, and
//! not on the one that runs them.

use super::access::EachCall;
use super::status::Status;
use super::types::{put_post_op, put_wcc, put_wcc_failed};
use crate::rpc::failure::Failure;
use crate::rpc::message::Credential;
use crate::rpc::reply::Payload;
use crate::rpc::xdr::Put;
use weir_base::{Lsn, VolumeId};
use weir_conn::ConnInfo;
use weir_vfs::volume::{Change, Done};
use weir_vfs::{
    AdmittedFile, ChargeProof, Cost, Error, ExportTable, OpContext, Protocol, Stop, Suspend, Vfs,
};

/// A session of this protocol.
pub type Session<'s> = weir_vfs::Session<'s, EachCall>;

/// Returns the session of a call with this credential. A client of NFSv3 is its address.
pub(crate) fn session<'s, S>(conn: &'s ConnInfo<S>, credential: &'s Credential) -> Session<'s> {
    let origin = conn.address();
    Session {
        origin,
        protocol: Protocol::Nfsv3,
        flavour: credential.flavour(),
        transport: conn.transport,
        identity: credential.identity(),
        access: EachCall,
        client: origin.into(),
        admitted: &conn.admitted,
    }
}

/// A file that a procedure works on.
pub(crate) type Operand<'s> = weir_vfs::Operand<'s, EachCall>;

/// Log record that the reply to a call waits for.
///
/// # Errors
/// The call has failed, and its results with this status are appended; or it is suspended.
pub type Release = Result<Option<Lsn>, Stop<Status>>;

/// One call being served.
pub struct Op<'a> {
    /// Exports, claims and limits: the way to volumes.
    pub vfs: &'a Vfs,
    /// Exports at the time when the call arrived.
    pub table: &'a ExportTable,
    /// The session on whose behalf it is served.
    pub session: Session<'a>,
    /// Number of the procedure (RFC 1813 §3.3).
    pub procedure: u32,
    /// State that the operation keeps when it is suspended and run again.
    pub cx: &'a mut OpContext,
    /// The results so far.
    pub out: &'a mut Vec<u8>,
    /// Data that follows `out` by reference.
    pub payload: &'a mut Option<Box<Payload>>,
    /// The volume of the first handle, once it is known.
    pub volume: Option<VolumeId>,
    /// Set if the connection lacks the protection that the export requires: the call is refused by
    /// RPC, not by a status.
    pub unprotected: bool,
    /// True if the call may be suspended until another client has reacted to a request; otherwise
    /// its client is to try again.
    pub patient: bool,
}

impl<'a> Op<'a> {
    /// Verifies a handle and admits the session.
    pub(super) fn admit(
        &mut self,
        handle: &[u8],
    ) -> Result<AdmittedFile<'a, EachCall>, Stop<Status>> {
        let admitted = self.vfs.admit(self.table, handle, &self.session);
        let admitted = admitted.map_err(|why| self.refuse(why))?;
        self.volume.get_or_insert(admitted.volume());
        Ok(admitted)
    }

    /// Verifies a handle, admits the session and charges it.
    pub(super) fn enter<C: Cost>(
        &mut self,
        handle: &[u8],
        cost: C,
    ) -> Result<(Operand<'a>, ChargeProof<C>), Stop<Status>> {
        let admitted = self.admit(handle)?;
        let charged = admitted.charge(self.vfs, self.cx, cost);
        charged.map_err(|why| self.refuse(why))
    }

    pub(super) fn status(&mut self, status: Status) {
        self.out.put_u32(status as u32);
    }

    /// Appends a failure that occurred before there was an object whose attributes could be sent.
    #[cold]
    pub(super) fn refuse(&mut self, why: Stop) -> Stop<Status> {
        self.failed(why, |op| {
            Failure::from_procedure(op.procedure).put_absent(op.out)
        })
    }

    /// Appends a failure whose `resfail` is a `post_op_attr`.
    #[cold]
    pub(super) fn fail_attr(&mut self, why: Stop, object: &Operand<'_>) -> Stop<Status> {
        self.failed(why, |op| op.put_attr(object))
    }

    /// Appends a failure whose `resfail` is a `wcc_data` of each of `objects`.
    #[cold]
    pub(super) fn fail_wcc(&mut self, why: Stop, objects: &[&Operand<'_>]) -> Stop<Status> {
        self.failed(why, |op| {
            objects.iter().for_each(|object| op.put_wcc(object))
        })
    }

    /// Appends the results of a failure, with `rest` behind the status. A suspension is returned
    /// unchanged.
    pub(super) fn failed(&mut self, why: Stop, rest: impl FnOnce(&mut Self)) -> Stop<Status> {
        let error = match why {
            Stop::Failed(error) => error,
            Stop::Suspended(Suspend::Recall(_)) if !self.patient => Error::Delay,
            Stop::Suspended(suspend) => return Stop::Suspended(suspend),
        };
        self.unprotected |= error == Error::Unprotected;
        let status = Status::from_error(self.procedure, error);
        self.status(status);
        rest(self);
        Stop::Failed(status)
    }

    /// Appends a `post_op_attr` to a failed reply. The attributes are optional there, and are left
    /// out unless they can be read at once.
    pub(super) fn put_attr(&mut self, object: &Operand<'_>) {
        let attr = object.attr_at_hand(self.cx);
        put_post_op(self.out, attr.as_ref());
    }

    /// Appends the `wcc_data` of an operation that was done: its change of a directory, or the
    /// present attributes if they were not taken with the operation.
    pub(super) fn put_change(&mut self, dir: &Operand<'_>, change: Option<&Change>) {
        match change {
            Some(change) => put_wcc(self.out, change),
            None => self.put_wcc(dir),
        }
    }

    /// Appends a `wcc_data` to a failed reply, as [`Op::put_attr`] does.
    pub(super) fn put_wcc(&mut self, object: &Operand<'_>) {
        let attr = object.attr_at_hand(self.cx);
        put_wcc_failed(self.out, attr.as_ref());
    }
}

/// Splits the result of an operation into its value and the log record that makes it durable.
pub(super) fn split<T>(done: Done<T>) -> (T, Option<Lsn>) {
    (done.value, done.lsn)
}
