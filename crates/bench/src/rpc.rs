//! ONC RPC version 2 (RFC 5531): calls out, replies in, record marking.
//!
//! All calls of one procedure by one user begin with the same bytes but for the
//! record mark and the XID, so that beginning is encoded once
//! ([`CallPrefix`]) and a call is a copy of it with eight bytes patched.

use crate::xdr::{Reader, XdrError, put_opaque, put_u32};
use std::fmt;

/// Set in a record mark when the fragment is the record's last (RFC 5531 §11).
pub const LAST_FRAGMENT: u32 = 0x8000_0000;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
/// Greatest body of a credential or verifier (RFC 5531 §8.2).
const MAX_AUTH_BYTES: u32 = 400;

/// The AUTH_SYS identity of the calls (RFC 5531, appendix A).
#[derive(Debug, Clone)]
pub struct Credential {
    /// Effective user id of the caller.
    pub uid: u32,
    /// Effective group id of the caller.
    pub gid: u32,
}

/// Fault of a reply that does not accept a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcError {
    /// The bytes are not XDR of the expected type.
    Xdr(XdrError),
    /// The message is not a reply: its message type is this.
    NotAReply(u32),
    /// MSG_DENIED with this reject_stat and detail.
    Denied(u32, u32),
    /// MSG_ACCEPTED with an accept_stat other than SUCCESS (RFC 5531 §9).
    NotSuccess(u32),
    /// reply_stat is neither accepted nor denied.
    BadReplyStat(u32),
}

impl From<XdrError> for RpcError {
    fn from(e: XdrError) -> Self {
        Self::Xdr(e)
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xdr(e) => write!(f, "malformed reply: {e}"),
            Self::NotAReply(t) => write!(f, "message type {t} instead of a reply"),
            Self::Denied(stat, detail) => {
                write!(f, "call denied (reject_stat {stat}, detail {detail})")
            }
            Self::NotSuccess(stat) => {
                let name = match stat {
                    1 => "PROG_UNAVAIL",
                    2 => "PROG_MISMATCH",
                    3 => "PROC_UNAVAIL",
                    4 => "GARBAGE_ARGS",
                    5 => "SYSTEM_ERR",
                    _ => "unknown accept_stat",
                };
                write!(f, "call not executed: {name} ({stat})")
            }
            Self::BadReplyStat(v) => write!(f, "reply_stat {v}"),
        }
    }
}

impl std::error::Error for RpcError {}

/// The unchanging beginning of one procedure's calls, record mark included.
#[derive(Debug, Clone)]
pub struct CallPrefix {
    bytes: Vec<u8>,
}

impl CallPrefix {
    /// Encodes the beginning of a call; `None` as credential means AUTH_NONE.
    pub fn new(program: u32, version: u32, procedure: u32, cred: Option<&Credential>) -> Self {
        let mut bytes = vec![0; 8];
        for v in [CALL, RPC_VERSION, program, version, procedure] {
            put_u32(&mut bytes, v);
        }
        match cred {
            None => {
                put_u32(&mut bytes, AUTH_NONE);
                put_u32(&mut bytes, 0);
            }
            Some(c) => {
                let mut body = Vec::new();
                put_u32(&mut body, 0);
                put_opaque(&mut body, b"weir-bench");
                put_u32(&mut body, c.uid);
                put_u32(&mut body, c.gid);
                put_u32(&mut body, 0);
                put_u32(&mut bytes, AUTH_SYS);
                put_opaque(&mut bytes, &body);
            }
        }
        put_u32(&mut bytes, AUTH_NONE);
        put_u32(&mut bytes, 0);
        Self { bytes }
    }

    /// Appends these bytes of the arguments to the beginning.
    #[must_use]
    pub fn followed_by(mut self, arguments: &[u8]) -> Self {
        self.bytes.extend_from_slice(arguments);
        self
    }

    /// Appends the beginning with this XID; returns where the call starts in `out`.
    pub fn begin(&self, out: &mut Vec<u8>, xid: u32) -> usize {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        if let Some(field) = out.get_mut(start + 4..start + 8) {
            field.copy_from_slice(&xid.to_be_bytes());
        }
        start
    }
}

/// Writes the record mark of the call that began at `start`, counting `detached`
/// bytes that follow on the wire without being in `out` (a WRITE's payload).
pub fn finish(out: &mut [u8], start: usize, detached: usize) {
    let len = out.len().saturating_sub(start + 4) + detached;
    let mark = LAST_FRAGMENT | u32::try_from(len).unwrap_or(u32::MAX);
    if let Some(field) = out.get_mut(start..start + 4) {
        field.copy_from_slice(&mark.to_be_bytes());
    }
}

/// Checks the reply header up to accept_stat and leaves `r` at the results.
/// The XID must have been taken from `r` before.
pub fn accept(r: &mut Reader<'_>) -> Result<(), RpcError> {
    match r.u32()? {
        REPLY => {}
        other => return Err(RpcError::NotAReply(other)),
    }
    match r.u32()? {
        0 => {
            r.u32()?;
            r.opaque(MAX_AUTH_BYTES)?;
            match r.u32()? {
                0 => Ok(()),
                stat => Err(RpcError::NotSuccess(stat)),
            }
        }
        1 => Err(RpcError::Denied(r.u32()?, r.u32()?)),
        other => Err(RpcError::BadReplyStat(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_laid_out_as_rfc_5531_says() {
        let p = CallPrefix::new(100_003, 3, 6, Some(&Credential { uid: 7, gid: 8 }));
        let mut out = vec![0xee];
        let start = p.begin(&mut out, 0xdead_beef);
        put_u32(&mut out, 42);
        finish(&mut out, start, 100);
        let mut r = Reader::new(&out[1..]);
        let mark = r.u32().unwrap();
        assert_eq!(mark & LAST_FRAGMENT, LAST_FRAGMENT);
        assert_eq!(
            (mark & !LAST_FRAGMENT) as usize,
            out.len() - 1 - 4 + 100,
            "the mark counts neither itself nor what stood before"
        );
        let fields: Vec<u32> = (0..6).map(|_| r.u32().unwrap()).collect();
        assert_eq!(fields, [0xdead_beef, 0, 2, 100_003, 3, 6]);
        assert_eq!(r.u32(), Ok(1), "AUTH_SYS");
        let mut body = Reader::new(r.opaque(400).unwrap());
        body.u32().unwrap();
        assert_eq!(body.opaque(255), Ok(&b"weir-bench"[..]));
        assert_eq!((body.u32(), body.u32()), (Ok(7), Ok(8)));
        assert_eq!(body.u32(), Ok(0), "no further groups");
        assert!(body.rest().is_empty());
        assert_eq!((r.u32(), r.u32()), (Ok(0), Ok(0)), "AUTH_NONE verifier");
        assert_eq!(r.u32(), Ok(42));
    }

    #[test]
    fn refusals_are_told_apart() {
        let words = |w: &[u32]| w.iter().flat_map(|v| v.to_be_bytes()).collect::<Vec<u8>>();
        let check = |w: &[u32]| accept(&mut Reader::new(&words(w)));
        assert_eq!(check(&[1, 0, 0, 0, 0]), Ok(()));
        assert_eq!(check(&[1, 0, 0, 0, 4]), Err(RpcError::NotSuccess(4)));
        assert_eq!(check(&[1, 1, 1, 5]), Err(RpcError::Denied(1, 5)));
        assert_eq!(check(&[0, 0]), Err(RpcError::NotAReply(0)));
        assert_eq!(check(&[1, 2]), Err(RpcError::BadReplyStat(2)));
        assert_eq!(check(&[1, 0, 0]), Err(RpcError::Xdr(XdrError::Truncated)));
    }
}
