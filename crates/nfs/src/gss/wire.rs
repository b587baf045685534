//! RPCSEC_GSS on the wire (RFC 2203 §5). Nothing here allocates for what a peer announces.

use super::window;
use crate::rpc::message::{MAX_AUTH_BYTES, REPLY, RPCSEC_GSS};
use crate::rpc::xdr::{Put, Reader, padding};
use weir_auth::gss::MAX_TOKEN;
use weir_base::limits::net::MAX_RECORD;

/// The only version (RFC 2203 §5.1).
const VERSION: u32 = 1;
/// Longest checksum: Kerberos's are below 64 bytes.
const MAX_MIC: usize = MAX_AUTH_BYTES;

/// Procedure of RPCSEC_GSS that a call is for (`rpc_gss_proc_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Procedure {
    /// A call of the program.
    Data,
    /// The first token of a new context.
    Init,
    /// A further token.
    Continue,
    /// The end of a context.
    Destroy,
}

/// Protection of arguments and results (`rpc_gss_service_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// None; only the head is protected (krb5).
    None,
    /// Integrity (krb5i).
    Integrity,
    /// Privacy: integrity and encryption (krb5p).
    Privacy,
}

/// `rpc_gss_cred_vers_1_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credential<'a> {
    /// Procedure of RPCSEC_GSS that the call is for.
    pub procedure: Procedure,
    /// The call's number in its context.
    pub sequence: u32,
    /// Protection of its arguments and results.
    pub service: Service,
    /// The context; empty while it is being established.
    pub handle: &'a [u8],
}

impl<'a> Credential<'a> {
    /// Decodes the body of a credential of this flavour.
    pub fn decode(body: &'a [u8]) -> Option<Credential<'a>> {
        let mut r = Reader::new(body);
        if r.u32().ok()? != VERSION {
            return None;
        }
        let procedure = match r.u32().ok()? {
            0 => Procedure::Data,
            1 => Procedure::Init,
            2 => Procedure::Continue,
            3 => Procedure::Destroy,
            _ => return None,
        };
        let sequence = r.u32().ok()?;
        let service = match r.u32().ok()? {
            // Some clients leave it 0 while they establish a context.
            0 | 1 => Service::None,
            2 => Service::Integrity,
            3 => Service::Privacy,
            _ => return None,
        };
        let handle = r.opaque(MAX_AUTH_BYTES).ok()?;
        r.rest().is_empty().then_some(Credential {
            procedure,
            sequence,
            service,
            handle,
        })
    }
}

/// Returns the token of a call that establishes a context: all of its arguments.
pub(super) fn token(args: &[u8]) -> Option<&[u8]> {
    let mut r = Reader::new(args);
    let token = r.opaque(MAX_TOKEN).ok()?;
    r.rest().is_empty().then_some(token)
}

/// Returns the head of a call up to its credential, and the verifier, which is a checksum of that
/// head (RFC 2203 §5.3.1).
pub(super) fn verifier(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut r = Reader::new(record);
    // Transaction id, CALL, version of RPC, program, version, procedure; the credential's flavour.
    for _ in 0..7 {
        r.u32().ok()?;
    }
    r.opaque(MAX_AUTH_BYTES).ok()?;
    let head = record.get(..record.len() - r.rest().len())?;
    let flavour = r.u32().ok()?;
    let mic = r.opaque(MAX_MIC).ok()?;
    (flavour == RPCSEC_GSS).then_some((head, mic))
}

/// Splits `rpc_gss_integ_data` into the body and its checksum.
pub(super) fn integrity(args: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut r = Reader::new(args);
    let body = r.opaque(MAX_RECORD).ok()?;
    let mic = r.opaque(MAX_MIC).ok()?;
    r.rest().is_empty().then_some((body, mic))
}

/// Returns the encrypted body of `rpc_gss_priv_data`.
pub(super) fn privacy(args: &[u8]) -> Option<&[u8]> {
    let mut r = Reader::new(args);
    let body = r.opaque(MAX_RECORD).ok()?;
    r.rest().is_empty().then_some(body)
}

/// Returns the part of `rpc_gss_data_t` behind the number, which must equal that of the credential.
pub(super) fn numbered(body: &[u8], sequence: u32) -> Option<&[u8]> {
    let mut r = Reader::new(body);
    (r.u32().ok()? == sequence).then(|| r.rest())
}

/// Splits an accepted reply into transaction id, `accept_stat` and results; `None` for a denial.
pub(super) fn accepted(message: &[u8]) -> Option<(u32, u32, &[u8])> {
    const MSG_ACCEPTED: u32 = 0;
    let mut r = Reader::new(message);
    let xid = r.u32().ok()?;
    if r.u32().ok()? != REPLY || r.u32().ok()? != MSG_ACCEPTED {
        return None;
    }
    r.u32().ok()?;
    r.opaque(MAX_AUTH_BYTES).ok()?;
    Some((xid, r.u32().ok()?, r.rest()))
}

/// Appends the head of an accepted reply with this verifier.
pub(super) fn put_head(out: &mut Vec<u8>, (xid, stat): (u32, u32), verifier: &[u8]) {
    for v in [xid, REPLY, 0, RPCSEC_GSS] {
        out.put_u32(v);
    }
    out.put_opaque(verifier);
    out.put_u32(stat);
}

/// Appends the head of a successful reply to a call that establishes a context: without a context
/// there is no verifier.
pub(super) fn put_accepted(out: &mut Vec<u8>, xid: u32, verifier: Option<&[u8]>) {
    match verifier {
        Some(verifier) => put_head(out, (xid, 0), verifier),
        None => crate::rpc::message::put_accepted(out, xid),
    }
}

/// Appends `rpc_gss_init_res` (RFC 2203 §5.2.3.1).
pub(super) fn put_init_result(
    out: &mut Vec<u8>,
    handle: &[u8],
    (major, minor): (u32, u32),
    token: &[u8],
) {
    out.put_opaque(handle);
    for v in [major, minor, window::SIZE] {
        out.put_u32(v);
    }
    out.put_opaque(token);
}

/// Appends encrypted results, `rpc_gss_priv_data`, whose body `seal` appends. Returns `None` if it
/// cannot.
pub(super) fn put_sealed(out: &mut Vec<u8>, seal: impl FnOnce(&mut Vec<u8>) -> bool) -> Option<()> {
    let start = out.len();
    out.put_u32(0);
    if !seal(out) {
        return None;
    }
    let len = out.len() - start - 4;
    out.get_mut(start..start + 4)?
        .copy_from_slice(&(len as u32).to_be_bytes());
    out.extend_from_slice(&[0; 3][..padding(len)]);
    Some(())
}

/// Decodes the front of a record of this flavour, for fuzzing. Returns true if all of it decodes.
pub(crate) fn decode(record: &[u8]) -> bool {
    let Some((head, _)) = verifier(record) else {
        return false;
    };
    let mut r = Reader::new(head.get(28..).unwrap_or_default());
    let credential = r.opaque(MAX_AUTH_BYTES).ok().and_then(Credential::decode);
    let args = match crate::rpc::message::message(record) {
        crate::rpc::message::Message::Call(call) => call.args,
        _ => return false,
    };
    match credential {
        Some(c) => match (c.procedure, c.service) {
            (Procedure::Init | Procedure::Continue, _) => token(args).is_some(),
            (_, Service::None) => true,
            (_, Service::Integrity) => {
                integrity(args).is_some_and(|(body, _)| numbered(body, c.sequence).is_some())
            }
            (_, Service::Privacy) => privacy(args).is_some(),
        },
        None => false,
    }
}
