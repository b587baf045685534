//! Forwarding of NFSv3 calls between the servers of a cluster.
//!
//! NFSv3 has no referrals. A call whose handle names an aggregate of another server is carried to
//! that server as a whole, and its reply is passed back as a whole. For each connection of a client
//! the forwarder has one of its own to the owner, over which it first says whose calls will come:
//! the owner serves them as if the client had connected itself. Export policy, limits and the
//! duplicate-request cache therefore see the real client, its address and its port.
//!
//! Only servers of the cluster can say so. They share a secret; the owner sends a challenge that no
//! other connection has, and the forwarder answers with a keyed hash over it and the client's
//! address. The bytes that follow are as much protected as those of the client's own connection.
//!
//! A forwarded call is forwarded again only by a server that had the volume before: it knows where
//! that has gone, and the server that asks has not heard of it yet. Where directories differ in
//! another way, the client is to try again later.

use crate::rpc::message::{CALL, MOUNT_PROGRAM, NFS_PROGRAM, REPLY, RPC_VERSION};
use crate::rpc::outcome::{Outcome, refuse};
use crate::rpc::reply::ReplyBuf;
use crate::rpc::xdr::{Put, Reader};
use crate::rpc::{self, Call, Refusal};
use crate::v3::{procedure, types};
use crate::v4::ConnInfo;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use weir_base::SipKey;
use weir_base::limits::cluster::LARGE_FRAME_BYTES;
use weir_conn::{Framing as _, RecordMarks};
use weir_vfs::directory::{Directory, Membership};
use weir_vfs::{Error, Redirect, Scope, Transport, Vfs};

/// Program of the introduction, in the range that users define (RFC 5531 §8.1).
pub(crate) const PROGRAM: u32 = 0x2057_4952;
const VERSION: u32 = 1;
/// Asks for a challenge: the aggregate's identity. The reply is a word that is 0 if the server owns
/// it, and the challenge.
const HELLO: u32 = 1;
/// Says whose calls will come: the client's address and port as text, and the answer to the
/// challenge. The reply is a word that is 0 if it was accepted.
const SPEAK_FOR: u32 = 2;
/// Brings a message of a large volume's constituents: the answer to the challenge over the message,
/// and the message. It has no reply: messages may be lost.
const MESSAGE: u32 = 3;
/// Transaction id of the introduction, whose replies are the only ones under way.
const XID: u32 = 1;
/// Longest text of an address and a port.
const MAX_ADDRESS: usize = 64;
const MNT: u32 = 1;
const UMNT: u32 = 3;
/// Longest path of a mount.
const MAX_PATH: usize = weir_base::limits::MAX_MOUNT_PATH;

/// Future of the reply to a forwarded call: room for the record mark, and the message. `None` if
/// the call is not carried any more.
pub type ForwardFuture = Pin<Box<dyn Future<Output = Option<Vec<u8>>>>>;

/// Carries calls to other servers of the cluster.
pub trait Forward: Send + Sync {
    /// Carries a call, with its record mark, that came over `conn`, to the owner of the aggregate
    /// with this identity. Waits for as long as nobody owns it.
    fn forward(&self, conn: &ConnInfo, owner: [u8; 16], record: Vec<u8>) -> ForwardFuture;

    /// Ends what is done for a connection that is over.
    fn ended(&self, connection: u64);
}

/// Returns the server that is to be asked in place of this one; `None` if this one serves the call.
pub(crate) fn owner_of(
    vfs: &Vfs,
    directory: &Directory,
    conn: &ConnInfo,
    call: &Call<'_>,
) -> Option<Redirect> {
    match (call.program, call.version, call.procedure) {
        (NFS_PROGRAM, 3, number) if number != 0 => {
            // Every procedure's arguments begin with a handle.
            let mut args = Reader::new(call.args);
            let handle = types::handle(&mut args).ok()?;
            // In a large volume the server of the new entry's directory decides.
            let decider = match number {
                _ if !Vfs::is_of_large_volume(handle) => handle,
                procedure::RENAME => {
                    args.string().ok()?;
                    types::handle(&mut args).ok()?
                }
                procedure::LINK => types::handle(&mut args).ok()?,
                _ => handle,
            };
            vfs.remote_of(decider)
        }
        (MOUNT_PROGRAM, 3, MNT | UMNT) => {
            let table = vfs.exports();
            let path = Reader::new(call.args).opaque(MAX_PATH).ok()?;
            let path = String::from_utf8_lossy(path);
            if let Some((export, rest)) = table.of_path_at(conn.local.ip(), &path)
                && !rest.trim_matches('/').is_empty()
                && let Some(server) = vfs.constituents.root_server(directory, export.volume())
            {
                return Some(Redirect {
                    server,
                    left: false,
                });
            }
            if let Some(server) = vfs.departed_path(&path) {
                return Some(Redirect { server, left: true });
            }
            let all = matches!(table.scope(conn.local.ip()), Scope::All);
            let elsewhere = all && table.of_path(&path).is_none();
            let server = directory.of_path(&path).filter(|_| elsewhere)?;
            Some(Redirect {
                server: Arc::clone(server),
                left: false,
            })
        }
        _ => None,
    }
}

/// Purpose of answers that introduce a client.
const CLIENTS: &[u8] = b"weir forward";
/// Purpose of answers over messages of constituents.
const MESSAGES: &[u8] = b"weir constituents";

/// Returns the answer to a challenge over `content`.
fn answer(
    membership: &Membership,
    purpose: &[u8],
    challenge: &[u8],
    identity: &[u8],
    content: &[u8],
) -> u64 {
    let key = SipKey::new(membership.secret).derive(purpose);
    // All parts but the last have fixed lengths.
    key.hash(&[challenge, identity, content].concat())
}

fn call(number: u32, args: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [XID, CALL, RPC_VERSION, PROGRAM, VERSION, number, 0, 0, 0, 0] {
        out.put_u32(word);
    }
    out.extend_from_slice(args);
    marked(&out)
}

/// Returns a message with its record mark.
pub(crate) fn marked(message: &[u8]) -> Vec<u8> {
    [&RecordMarks::mark(message.len()), message].concat()
}

/// Returns the first call of an introduction, with its record mark.
pub fn hello(owner: [u8; 16]) -> Vec<u8> {
    call(HELLO, &owner)
}

/// Returns the second call of an introduction, with its record mark, if `reply` to the first one is
/// that of the owner.
pub fn speak_for(
    membership: &Membership,
    owner: [u8; 16],
    reply: &[u8],
    client: SocketAddr,
) -> Option<Vec<u8>> {
    let challenge: &[u8; 8] = results(reply)?.try_into().ok()?;
    let text = client.to_string();
    let mac = answer(membership, CLIENTS, challenge, &owner, text.as_bytes());
    let mut args = Vec::new();
    args.put_opaque(text.as_bytes());
    args.put_u64(mac);
    Some(call(SPEAK_FOR, &args))
}

/// Returns a call with a message for a constituent of a large volume, with its record mark, if
/// `reply` to the first call is that of the owner.
pub fn message(
    membership: &Membership,
    owner: [u8; 16],
    reply: &[u8],
    frame: &[u8],
) -> Option<Vec<u8>> {
    let challenge: &[u8; 8] = results(reply)?.try_into().ok()?;
    let mut args = Vec::new();
    args.put_u64(answer(membership, MESSAGES, challenge, &owner, frame));
    args.put_opaque(frame);
    Some(call(MESSAGE, &args))
}

/// Returns true if `reply` accepts the introduction.
pub fn is_accepted(reply: &[u8]) -> bool {
    results(reply).is_some()
}

/// Returns the results of a reply after the word that says that it is a success.
fn results(reply: &[u8]) -> Option<&[u8]> {
    let mut r = Reader::new(reply);
    // The transaction, REPLY, MSG_ACCEPTED, an empty verifier, SUCCESS, and the word.
    for expected in [XID, REPLY, 0, 0, 0, 0, 0] {
        if r.u32().ok()? != expected {
            return None;
        }
    }
    Some(r.rest())
}

/// Serves a call of the introduction.
pub(crate) fn introduce(
    vfs: &Vfs,
    challenges: SipKey,
    conn: &ConnInfo,
    call: &Call<'_>,
) -> Outcome {
    let directory = vfs.directory();
    let Some(membership) = directory.membership() else {
        return refuse(call.xid, Refusal::ProgUnavail);
    };
    if call.version != VERSION {
        let (low, high) = (VERSION, VERSION);
        return refuse(call.xid, Refusal::ProgMismatch { low, high });
    }
    // A number that no other connection of this start has.
    let challenge = challenges.hash(&conn.id.to_be_bytes()).to_be_bytes();
    let mut out = ReplyBuf::start(64);
    rpc::put_accepted(&mut out, call.xid);
    let mut client = None;
    match call.procedure {
        0 => {}
        HELLO if call.args == membership.own => {
            out.put_u32(0);
            out.put_fixed(&challenge);
        }
        SPEAK_FOR => {
            client = accepted(membership, &challenge, call.args);
            let client = client.filter(|_| !conn.forwarded && conn.transport == Transport::Clear);
            out.put_u32(u32::from(client.is_none()));
        }
        MESSAGE => {
            if let Some(frame) = authentic(membership, &challenge, call.args) {
                vfs.constituents.deliver(frame);
            }
            return Outcome::Drop;
        }
        HELLO => out.put_u32(1),
        _ => return refuse(call.xid, Refusal::ProcUnavail),
    }
    let reply = ReplyBuf::whole(out, None);
    match client {
        Some(client) => Outcome::SpeaksFor(reply, client),
        None => Outcome::Reply(reply, None),
    }
}

/// Returns the client whose calls will come, if the forwarder is a server of the cluster.
fn accepted(membership: &Membership, challenge: &[u8], args: &[u8]) -> Option<SocketAddr> {
    let mut r = Reader::new(args);
    let text = r.opaque(MAX_ADDRESS).ok()?;
    let mac = r.u64().ok()?;
    if mac != answer(membership, CLIENTS, challenge, &membership.own, text) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns the message of a constituent, if a server of the cluster has sent it.
fn authentic<'a>(membership: &Membership, challenge: &[u8], args: &'a [u8]) -> Option<&'a [u8]> {
    let mut r = Reader::new(args);
    let mac = r.u64().ok()?;
    let frame = r.opaque(LARGE_FRAME_BYTES).ok()?;
    let right = answer(membership, MESSAGES, challenge, &membership.own, frame);
    (mac == right).then_some(frame)
}

/// Returns the error of a call about another server's aggregate that is not forwarded.
pub(crate) const NOT_FORWARDED: Error = Error::NotSupported;
