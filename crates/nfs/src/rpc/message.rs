//! ONC RPC version 2 (RFC 5531): call and reply headers, credentials.
//!
//! A message that cannot be answered ends the connection: it is too short to have a transaction id,
//! or a reply that nobody waits for. A message that is answered with an error does not disturb the
//! other calls on the connection.

use crate::rpc::xdr::{Put, Reader, padding};
use std::ops::RangeInclusive;
use weir_vfs::{Flavour, Flavours, Groups, Identity};

/// Program number of NFS (RFC 1813 §3).
pub const NFS_PROGRAM: u32 = 100_003;
/// Program number of MOUNT (RFC 1813 Appendix I).
pub const MOUNT_PROGRAM: u32 = 100_005;
/// Program number of the network lock manager (RFC 1813 Appendix II).
pub const NLM_PROGRAM: u32 = 100_021;
/// Program number of the network status monitor (X/Open XNFS, SM).
pub const NSM_PROGRAM: u32 = 100_024;
/// RPC program number of RQUOTA.
pub const RQUOTA_PROGRAM: u32 = 100_011;

/// `msg_type` CALL (RFC 5531 §9).
pub const CALL: u32 = 0;
/// `msg_type` REPLY (RFC 5531 §9).
pub const REPLY: u32 = 1;
/// The only RPC protocol version there is.
pub const RPC_VERSION: u32 = 2;

/// Longest body of a credential or verifier (RFC 5531 §8.2).
pub const MAX_AUTH_BYTES: usize = 400;
/// AUTH_NONE (RFC 5531 §10.1).
pub const AUTH_NONE: u32 = 0;
/// AUTH_SYS (RFC 5531 Appendix A).
pub const AUTH_SYS: u32 = 1;
/// RPCSEC_GSS (RFC 2203 §4).
pub const RPCSEC_GSS: u32 = 6;
/// AUTH_TLS: a probe for whether the connection can be protected by TLS (RFC 9289 §4.1).
pub const AUTH_TLS: u32 = 7;
/// The pseudo flavours of Kerberos: RPCSEC_GSS with its three services (RFC 2623 §2.2.2). Here also
/// the flavour of a call whose caller was established by it ([`Call::established`]); off the wire
/// it is refused.
pub const AUTH_KRB5: u32 = 390_003;
/// See [`AUTH_KRB5`]; with integrity.
pub const AUTH_KRB5I: u32 = 390_004;
/// See [`AUTH_KRB5`]; with privacy.
pub const AUTH_KRB5P: u32 = 390_005;
/// Internal flavour: AUTH_SYS with more groups than a credential has room for. The number is
/// unassigned, and off the wire it is refused.
const AUTH_SYS_COMPLETED: u32 = 390_002;
const ESTABLISHED: RangeInclusive<u32> = AUTH_SYS_COMPLETED..=AUTH_KRB5P;
/// Longest body of an established credential, which includes the user's groups.
const MAX_ESTABLISHED: usize = 28 + 4 * MAX_ESTABLISHED_GIDS as usize;
/// Maximum number of groups of a user; further groups from a name service are ignored.
const MAX_ESTABLISHED_GIDS: u32 = 4096;
/// Maximum number of supplementary groups in an AUTH_SYS credential (RFC 5531 Appendix A).
const MAX_GIDS: u32 = 16;
/// Longest machine name in an AUTH_SYS credential (RFC 5531 Appendix A).
const MAX_MACHINE_NAME: usize = 255;

/// Number of bytes in front of the results of a successful reply: xid, REPLY, MSG_ACCEPTED, an
/// empty verifier, SUCCESS.
pub const ACCEPTED_BYTES: usize = 24;

/// `auth_stat`: reason for refusing a call before it is decoded (RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AuthStat {
    /// AUTH_BADCRED: the credential cannot be decoded, or its flavour is not supported.
    BadCred = 1,
    /// AUTH_TOOWEAK: the procedure requires a stronger credential.
    TooWeak = 5,
    /// RPCSEC_GSS_CREDPROBLEM: no such context, or the caller is not its owner (RFC 2203 §5.3.3.3).
    GssCred = 13,
    /// RPCSEC_GSS_CTXPROBLEM: the context is used up.
    GssCtx = 14,
}

/// Refusal of a call at the RPC level (`accept_stat` and `reject_stat`, RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// PROG_UNAVAIL: no such program here.
    ProgUnavail,
    /// PROG_MISMATCH: the program has versions `low` to `high` only.
    ProgMismatch {
        /// Lowest version of the program that is served.
        low: u32,
        /// Highest version of the program that is served.
        high: u32,
    },
    /// PROC_UNAVAIL: the program has no such procedure.
    ProcUnavail,
    /// GARBAGE_ARGS: the arguments do not decode.
    GarbageArgs,
    /// SYSTEM_ERR: the server could not serve the call.
    SystemErr,
    /// RPC_MISMATCH: not RPC version 2.
    RpcMismatch,
    /// AUTH_ERROR: the credential is refused, for this reason.
    Auth(AuthStat),
}

/// First number of refusals that are no `accept_stat`, see [`Refusal::number_in`].
const MISMATCH: u32 = 100;
/// Number of `AUTH_OK`, which is no refusal; the others follow by their `auth_stat`.
const AUTH: u32 = 200;

impl Refusal {
    /// Returns the number under which a reply, without its record mark, is counted as a refusal;
    /// `None` if the call was accepted and carried out. Replies with a verifier are not examined.
    pub(crate) fn number_in(reply: &[u8]) -> Option<u32> {
        let word = |at: usize| {
            let bytes = reply.get(4 * at..)?.first_chunk()?;
            Some(u32::from_be_bytes(*bytes))
        };
        // The transaction, REPLY, `reply_stat`, and the verifier's flavour and length.
        match (word(2)?, word(3)?, word(4)?) {
            (0, _, 0) => word(5).filter(|accept_stat| *accept_stat != 0),
            (0, ..) => None,
            (_, 0, _) => Some(MISMATCH),
            (.., auth_stat) => Some(AUTH.saturating_add(auth_stat)),
        }
    }

    /// Returns the name of a refusal by its number, for metrics (RFC 5531 §9).
    pub fn name(number: u32) -> Option<&'static str> {
        const TOO_WEAK: u32 = AUTH + AuthStat::TooWeak as u32;
        const BAD_CRED: u32 = AUTH + AuthStat::BadCred as u32;
        const GSS_CRED: u32 = AUTH + AuthStat::GssCred as u32;
        const GSS_CTX: u32 = AUTH + AuthStat::GssCtx as u32;
        Some(match number {
            1 => "PROG_UNAVAIL",
            2 => "PROG_MISMATCH",
            3 => "PROC_UNAVAIL",
            4 => "GARBAGE_ARGS",
            5 => "SYSTEM_ERR",
            MISMATCH => "RPC_MISMATCH",
            BAD_CRED => "AUTH_BADCRED",
            TOO_WEAK => "AUTH_TOOWEAK",
            GSS_CRED => "RPCSEC_GSS_CREDPROBLEM",
            GSS_CTX => "RPCSEC_GSS_CTXPROBLEM",
            _ => return None,
        })
    }
}

/// A credential, as far as the server distinguishes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// AUTH_NONE: anonymous.
    None,
    /// AUTH_SYS: the caller's identity according to the client's kernel.
    Sys(Identity),
    /// A caller established by a security mechanism of this flavour. The last field is a hash of
    /// the caller's name in the mechanism, 0 if it has none.
    Established(Flavour, Identity, u64),
}

impl Credential {
    /// Returns the caller, if one is named.
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Credential::None => None,
            Credential::Sys(identity) | Credential::Established(_, identity, _) => Some(identity),
        }
    }

    /// Returns the flavour that established the caller.
    pub fn flavour(&self) -> Flavour {
        match self {
            Credential::None => Flavour::None,
            Credential::Sys(_) => Flavour::Sys,
            Credential::Established(flavour, ..) => *flavour,
        }
    }

    /// Returns a hash of the caller's name in its mechanism; 0 if there is none.
    pub fn name(&self) -> u64 {
        match self {
            Credential::None | Credential::Sys(_) => 0,
            Credential::Established(.., name) => *name,
        }
    }
}

/// Returns the flavours of `rule` that a client may use here, the strongest first (§2.7). Each
/// comes as the pseudo-flavour by which MOUNT names it (RFC 2623 §2.2.3) and, for Kerberos, with
/// the service of RPCSEC_GSS (RFC 2203 §5.3.2.2).
pub fn offered(rule: Flavours, kerberos: bool) -> impl Iterator<Item = (u32, Option<u32>)> {
    let known = [
        (Flavour::Krb5Privacy, AUTH_KRB5P, Some(3)),
        (Flavour::Krb5Integrity, AUTH_KRB5I, Some(2)),
        (Flavour::Krb5, AUTH_KRB5, Some(1)),
        (Flavour::Sys, AUTH_SYS, None),
    ];
    let common = match kerberos {
        true => rule,
        false => rule.and(Flavours::SYS),
    };
    known
        .into_iter()
        .filter_map(move |(flavour, number, service)| {
            common.contains(flavour).then_some((number, service))
        })
}

/// The head of a call.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// Transaction id, chosen by the client to match the reply.
    pub xid: u32,
    /// Number of the remote program (`prog`, RFC 5531 §9).
    pub program: u32,
    /// Version of the remote program.
    pub version: u32,
    /// Number of the procedure within the program.
    pub procedure: u32,
    /// Flavour of the credential.
    pub flavour: u32,
    /// Undecoded body of the credential.
    pub cred: &'a [u8],
    /// Arguments, still encoded in XDR.
    pub args: &'a [u8],
}

/// Kind of message at the front of a record.
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// A call to be served.
    Call(Call<'a>),
    /// A call that is answered with an error at once.
    Refuse(u32, Refusal),
    /// A reply to a call by this server: its transaction id, and everything after the message type.
    Reply(u32, &'a [u8]),
    /// Not RPC: the connection is to be closed.
    Nonsense,
}

/// Reads the head of a message (RFC 5531 §9, `rpc_msg`).
pub fn message(record: &[u8]) -> Message<'_> {
    let mut r = Reader::new(record);
    let (Ok(xid), Ok(kind)) = (r.u32(), r.u32()) else {
        return Message::Nonsense;
    };
    match kind {
        CALL => call_body(xid, r),
        REPLY => Message::Reply(xid, r.rest()),
        _ => Message::Nonsense,
    }
}

fn call_body(xid: u32, mut r: Reader<'_>) -> Message<'_> {
    match r.u32() {
        Ok(RPC_VERSION) => {}
        Ok(_) => return Message::Refuse(xid, Refusal::RpcMismatch),
        Err(_) => return Message::Nonsense,
    }
    let (Ok(program), Ok(version), Ok(procedure)) = (r.u32(), r.u32(), r.u32()) else {
        return Message::Nonsense;
    };
    let bad = Message::Refuse(xid, Refusal::Auth(AuthStat::BadCred));
    let Ok(flavour) = r.u32() else {
        return bad;
    };
    let most = match ESTABLISHED.contains(&flavour) {
        true => MAX_ESTABLISHED,
        false => MAX_AUTH_BYTES,
    };
    let Ok(cred) = r.opaque(most) else {
        return bad;
    };
    let (Ok(_), Ok(_)) = (r.u32(), r.opaque(MAX_AUTH_BYTES)) else {
        return Message::Refuse(xid, Refusal::Auth(AuthStat::BadCred));
    };
    Message::Call(Call {
        xid,
        program,
        version,
        procedure,
        flavour,
        cred,
        args: r.rest(),
    })
}

impl<'a> Call<'a> {
    /// Returns the call with an established caller, to be served as one with any other credential.
    /// `credential` is made by [`established`].
    pub fn established<'b>(
        &self,
        flavour: Flavour,
        credential: &'b [u8],
        args: &'b [u8],
    ) -> Call<'b> {
        let flavour = match flavour {
            Flavour::Sys => AUTH_SYS_COMPLETED,
            Flavour::Krb5 => AUTH_KRB5,
            Flavour::Krb5Integrity => AUTH_KRB5I,
            _ => AUTH_KRB5P,
        };
        Call {
            flavour,
            cred: credential,
            args,
            ..*self
        }
    }

    /// Returns the length in bytes of the record of the call, with an empty verifier.
    pub fn bytes(&self) -> usize {
        // Seven words, the length of the credential, and the verifier's flavour and length.
        4 * (7 + 1 + 2) + self.cred.len() + padding(self.cred.len()) + self.args.len()
    }

    /// Returns the record of the call with these arguments, from which [`message`] reads it.
    pub fn record(&self, args: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes() - self.args.len() + args.len());
        for v in [
            self.xid,
            CALL,
            RPC_VERSION,
            self.program,
            self.version,
            self.procedure,
            self.flavour,
        ] {
            out.put_u32(v);
        }
        out.put_opaque(self.cred);
        out.put_u32(AUTH_NONE);
        out.put_u32(0);
        out.extend_from_slice(args);
        out
    }

    /// Decodes the credential: AUTH_NONE or AUTH_SYS (RFC 5531 Appendix A,
    /// `authsys_parms`).
    pub fn credential(&self) -> Result<Credential, Refusal> {
        match self.flavour {
            AUTH_NONE => Ok(Credential::None),
            AUTH_SYS => auth_sys(self.cred)
                .map(Credential::Sys)
                .ok_or(Refusal::Auth(AuthStat::BadCred)),
            flavour if self.is_established() => {
                let flavour = match flavour {
                    AUTH_SYS_COMPLETED => Flavour::Sys,
                    AUTH_KRB5 => Flavour::Krb5,
                    AUTH_KRB5I => Flavour::Krb5Integrity,
                    _ => Flavour::Krb5Privacy,
                };
                auth_unix(self.cred, MAX_ESTABLISHED_GIDS)
                    .map(|(identity, machine)| {
                        let name = machine.try_into().map_or(0, u64::from_be_bytes);
                        Credential::Established(flavour, identity, name)
                    })
                    .ok_or(Refusal::Auth(AuthStat::BadCred))
            }
            _ => Err(Refusal::Auth(AuthStat::BadCred)),
        }
    }

    /// Returns true if the credential has an internal flavour: such a call must not come off the
    /// wire.
    pub fn is_established(&self) -> bool {
        ESTABLISHED.contains(&self.flavour)
    }

    /// Returns the credential without the part that may change between retransmissions: AUTH_SYS
    /// starts with a `stamp` of the client's choice.
    pub fn stable_cred(&self) -> &'a [u8] {
        match self.flavour {
            AUTH_SYS => self.cred.get(4..).unwrap_or(&[]),
            _ => self.cred,
        }
    }
}

fn auth_sys(body: &[u8]) -> Option<Identity> {
    auth_unix(body, MAX_GIDS).map(|(identity, _)| identity)
}

/// Returns the body of the credential of an established caller ([`Call::established`]). It has the
/// form of AUTH_SYS's. `name`, a hash of the caller's name in its mechanism, replaces the machine
/// name.
pub fn established(who: &Identity, name: u64) -> Vec<u8> {
    let groups = who.unix.gids.as_slice();
    let groups = groups
        .get(..MAX_ESTABLISHED_GIDS as usize)
        .unwrap_or(groups);
    let mut out = Vec::with_capacity(28 + 4 * groups.len());
    // No stamp.
    out.put_u32(0);
    out.put_opaque(&name.to_be_bytes());
    for v in [who.unix.uid, who.unix.gid, groups.len() as u32] {
        out.put_u32(v);
    }
    groups.iter().for_each(|gid| out.put_u32(*gid));
    out
}

fn auth_unix(body: &[u8], most: u32) -> Option<(Identity, &[u8])> {
    let mut r = Reader::new(body);
    let _stamp = r.u32().ok()?;
    let machine = r.opaque(MAX_MACHINE_NAME).ok()?;
    let uid = r.u32().ok()?;
    let gid = r.u32().ok()?;
    let count = r.u32().ok()?;
    if count > most {
        return None;
    }
    let groups: Option<Groups> = (0..count).map(|_| r.u32().ok()).collect();
    Some((Identity::unix(uid, gid, groups?), machine))
}

/// Appends the head of a successful reply (RFC 5531 §9, `accepted_reply` with
/// SUCCESS); the results follow. The verifier of AUTH_SYS and AUTH_NONE is empty.
pub fn put_accepted(out: &mut Vec<u8>, xid: u32) {
    let mut head = [0u8; ACCEPTED_BYTES];
    head[..4].copy_from_slice(&xid.to_be_bytes());
    head[4..8].copy_from_slice(&REPLY.to_be_bytes());
    out.extend_from_slice(&head);
}

/// Appends the reply to a probe for TLS, after which TLS begins (RFC 9289 §4.1).
pub fn put_start_tls(out: &mut Vec<u8>, xid: u32) {
    const ACCEPTED: u32 = 0;
    const SUCCESS: u32 = 0;
    for word in [xid, REPLY, ACCEPTED, AUTH_NONE] {
        out.put_u32(word);
    }
    out.put_opaque(b"STARTTLS");
    out.put_u32(SUCCESS);
}

/// Appends a whole refusal (RFC 5531 §9, `accepted_reply`, `rejected_reply`).
pub fn put_refusal(out: &mut Vec<u8>, xid: u32, why: Refusal) {
    const MSG_ACCEPTED: u32 = 0;
    const MSG_DENIED: u32 = 1;
    const RPC_MISMATCH: u32 = 0;
    const AUTH_ERROR: u32 = 1;
    out.put_u32(xid);
    out.put_u32(REPLY);
    let accept_stat = match why {
        Refusal::RpcMismatch => {
            for v in [MSG_DENIED, RPC_MISMATCH, RPC_VERSION, RPC_VERSION] {
                out.put_u32(v);
            }
            return;
        }
        Refusal::Auth(stat) => {
            for v in [MSG_DENIED, AUTH_ERROR, stat as u32] {
                out.put_u32(v);
            }
            return;
        }
        Refusal::ProgUnavail => 1,
        Refusal::ProgMismatch { .. } => 2,
        Refusal::ProcUnavail => 3,
        Refusal::GarbageArgs => 4,
        Refusal::SystemErr => 5,
    };
    for v in [MSG_ACCEPTED, AUTH_NONE, 0, accept_stat] {
        out.put_u32(v);
    }
    if let Refusal::ProgMismatch { low, high } = why {
        out.put_u32(low);
        out.put_u32(high);
    }
}

/// Appends the head of a call by this server with AUTH_NONE (RFC 5531 §9, `call_body`); the
/// arguments follow. Nobody checks an identity in callbacks of the lock protocols.
pub fn put_call(out: &mut Vec<u8>, xid: u32, program: u32, version: u32, procedure: u32) {
    for v in [
        xid,
        CALL,
        RPC_VERSION,
        program,
        version,
        procedure,
        AUTH_NONE,
        0,
        AUTH_NONE,
        0,
    ] {
        out.put_u32(v);
    }
}

/// Returns the results in the body of a reply to a call by this server ([`Message::Reply`]); `None`
/// if the call was refused.
pub fn accepted_results(body: &[u8]) -> Option<&[u8]> {
    let mut r = Reader::new(body);
    if r.u32().ok()? != 0 {
        return None;
    }
    let _flavour = r.u32().ok()?;
    let _verifier = r.opaque(MAX_AUTH_BYTES).ok()?;
    (r.u32().ok()? == 0).then(|| r.rest())
}

/// Returns true for calls of the programs that are served over UDP as well: the lock manager, the
/// status monitor and RQUOTA (RFC 5531 §9: the program is the fourth word of a call).
pub fn is_for_datagrams(message: &[u8]) -> bool {
    let program = message
        .get(12..16)
        .and_then(|word| word.try_into().ok())
        .map(u32::from_be_bytes);
    program.is_some_and(|program| [NLM_PROGRAM, NSM_PROGRAM, RQUOTA_PROGRAM].contains(&program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_programs_are_served_over_udp() {
        let call = |program| {
            let mut out = Vec::new();
            put_call(&mut out, 1, program, 3, 0);
            out
        };
        assert!(is_for_datagrams(&call(NLM_PROGRAM)));
        assert!(is_for_datagrams(&call(NSM_PROGRAM)));
        assert!(is_for_datagrams(&call(RQUOTA_PROGRAM)));
        assert!(!is_for_datagrams(&call(NFS_PROGRAM)));
        assert!(!is_for_datagrams(&[]));
    }
}
