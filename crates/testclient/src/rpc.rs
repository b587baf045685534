//! The heads of calls and replies (RFC 5531) with AUTH_SYS.

use crate::xdr::{DecodeError, In, Out};

/// The identity of the caller (AUTH_SYS).
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// An arbitrary number, which a client may change from call to call.
    pub stamp: u32,
    /// Numeric id of the user.
    pub uid: u32,
    /// Numeric id of the primary group.
    pub gid: u32,
    /// Numeric ids of the supplementary groups.
    pub gids: Vec<u32>,
}

/// The head of a call with AUTH_SYS; arguments follow.
#[must_use]
pub fn call(xid: u32, program: u32, version: u32, procedure: u32, caller: &Caller) -> Out {
    let mut cred = Out::default();
    cred.u32(caller.stamp)
        .opaque(b"test")
        .u32(caller.uid)
        .u32(caller.gid);
    cred.u32(caller.gids.len() as u32);
    for gid in &caller.gids {
        cred.u32(*gid);
    }
    let mut out = Out::default();
    out.u32(xid)
        .u32(0)
        .u32(2)
        .u32(program)
        .u32(version)
        .u32(procedure);
    out.u32(1).opaque(&cred.0).u32(0).u32(0);
    out
}

/// XID and results of an accepted reply.
///
/// # Errors
/// If it is not a reply to a call that was carried out.
pub fn accepted(reply: &[u8]) -> Result<(u32, In<'_>), DecodeError> {
    let mut reader = In(reply);
    let xid = reader.u32()?;
    if reader.u32()? != 1 || reader.u32()? != 0 {
        return Err(DecodeError("call denied"));
    }
    let _flavour = reader.u32()?;
    let _verifier = reader.opaque()?;
    match reader.u32()? {
        0 => Ok((xid, reader)),
        _ => Err(DecodeError("call accepted but not served")),
    }
}

/// The results of the accepted reply to `xid`.
///
/// # Errors
/// As [`accepted`], and if the reply is to another call.
pub fn results(reply: &[u8], xid: u32) -> Result<In<'_>, DecodeError> {
    match accepted(reply)? {
        (found, reader) if found == xid => Ok(reader),
        _ => Err(DecodeError("reply to another transaction")),
    }
}
