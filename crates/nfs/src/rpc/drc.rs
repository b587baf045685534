//! The duplicate-request cache: at-most-once for calls that must not run twice.
//!
//! A client that loses its connection sends its calls again, with the same transaction ids. REMOVE
//! run twice returns NOENT to a client whose file was there; so replies of such calls are kept and
//! sent again. (Juszczak, "Improving the Performance and Correctness of an NFS Server", 1989.)
//!
//! A call is identified by its procedure and a keyed hash of 120 bits over the client's address,
//! transaction id, procedure, credential and arguments. So nobody can forge a call that is taken
//! for another's, and a client that restarts its transaction ids is not given another call's reply.
//! A repetition of a call that is still running is dropped, since its first copy will be answered.
//!
//! **The port.** knfsd and NFS-Ganesha make the client's port part of the key. That suits Linux
//! clients, which come back from the same port. Others (libnfs, most libraries) take any port, and
//! their repetitions would never be recognised. Without the port, on the other hand, two clients
//! behind one address with the same ids could get each other's replies. So a call from another port
//! is a repetition only if the connection of the first has ended, as it has when a client comes
//! back. While that connection is open, the call is another client's. After a restart all
//! connections have ended.
//!
//! Replies are kept with the log position that makes them true, so that a replay waits for the disk
//! exactly as the first reply did. Only successes are kept: a failed call changed nothing and can
//! run again. The kept replies are bounded in bytes and in age, the oldest leave first. The running
//! calls are bounded by the connections.
//!
//! **Restarts.** The key is part of the log record of the call's change, and is kept over
//! checkpoints (`weir_volume::DoneCall`). So after a crash the cache knows exactly the calls that
//! were done. Of their replies it knows what a client needs: the success, and the handle of a new
//! file. Attributes are optional in NFSv3 (RFC 1813 §2.6) and are left out. The secret of the hash
//! is derived from that of file handles, which is persistent.

mod replies;

use crate::rpc::failure::Failure;
use crate::rpc::message::Call;
use crate::rpc::reply::ReplyBuf;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use replies::{Origin, Replies};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::limits::protocol::{REPLY_AGE as MAX_AGE, REPLY_AGE_RECOVERED as MAX_AGE_RECOVERED};
use weir_base::{Ino, Lsn, SipKey, Time, VolumeId, invariant};
use weir_conn::{ConnInfo, Line};
use weir_vfs::volume::{CallKey, DoneCall};

/// Number of locks that the cache is split into; a power of two. Estimated: several times the cores
/// of the machines this runs on.
const SHARDS: usize = 16;

/// Returns the key that identifies a call: its procedure (1 byte), then 120 bits of a keyed hash
/// over the client's address in IPv6 form, transaction id, procedure, flavour, length of the
/// credential, credential, and arguments.
///
/// The key does not repeat the hashed fields, to be short: it is part of each record of the log and
/// of each kept reply.
fn key_of(secret: SipKey, client: IpAddr, call: &Call<'_>) -> CallKey {
    let client = match client.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let cred = call.stable_cred();
    let mut head = [0; 32];
    head[..16].copy_from_slice(&client.octets());
    let words = [call.xid, call.procedure, call.flavour, cred.len() as u32];
    for (to, word) in head[16..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *to = word.to_be_bytes();
    }
    let mut key = secret.hash128(&[&head, cred, call.args]).to_le_bytes();
    // NFSv3 has 22 procedures; others are refused before.
    invariant!(
        call.procedure <= u32::from(u8::MAX),
        "procedure {} is repeated",
        call.procedure
    );
    key[0] = call.procedure as u8;
    CallKey(key)
}

fn procedure(key: &CallKey) -> u32 {
    let [procedure, ..] = key.0;
    u32::from(procedure)
}

/// Returns the bits of the key's own hash that tables use.
fn hash(key: &CallKey) -> u64 {
    u64::from_le_bytes(*key.0.last_chunk::<8>().unwrap_or(&[0; 8]))
}

#[derive(Default)]
struct Shard {
    /// Running calls, with the connections that they came over. The keys end in a keyed hash, and
    /// no client sees the table's own hash: folded multiplication by a random secret is enough.
    running: HashMap<CallKey, Line, RandomState>,
    kept: Replies,
}

/// State of a call in the cache.
pub(crate) enum ReplyLookup {
    /// Unknown: run it, and give the ticket the reply.
    New(Ticket),
    /// A call with the same key is running for another open connection. Run this one; its reply is
    /// not kept.
    Twin,
    /// A repetition of a running call: drop it.
    Running,
    /// Answered with this reply.
    Answered(ReplyBuf, Option<Lsn>),
    /// Done before the server's last start, to this inode.
    Recovered(VolumeId, Ino),
}

/// The duplicate request cache, split into shards that are locked one by one.
pub(crate) struct Drc {
    shards: [Mutex<Shard>; SHARDS],
    secret: SipKey,
    /// Maximum number of bytes kept per shard.
    limit: usize,
}

impl Drc {
    /// Creates a cache that keeps at most `bytes` of replies, with keys made by `secret`.
    pub(crate) fn new(bytes: usize, secret: SipKey) -> Arc<Drc> {
        Arc::new(Drc {
            shards: Default::default(),
            secret,
            limit: bytes / SHARDS,
        })
    }

    /// Adds the calls that were done before the start.
    pub(crate) fn recover(&self, mut calls: Vec<DoneCall>, now: Time) {
        // The time between stop and start does not count as age.
        let newest = calls.iter().map(|call| call.secs).max();
        calls.retain(|call| newest.is_some_and(|newest| newest - call.secs <= MAX_AGE));
        calls.sort_by_key(|call| call.secs);
        let at = now.secs + (MAX_AGE_RECOVERED - MAX_AGE);
        for call in calls {
            let mut shard = self.shard(&call.key).lock();
            let origin = Origin::Recovered(call.volume, call.ino);
            shard.kept.push(call.key, at, &[], (None, origin));
            shard.kept.trim(self.limit, now.secs);
        }
    }

    fn shard(&self, key: &CallKey) -> &Mutex<Shard> {
        // Uses other bits than the tables do.
        let [.., a, _, _, _, _, _, _, _, _] = key.0;
        &self.shards[usize::from(a) % SHARDS]
    }

    /// Finds a call, or marks it as running if it is new.
    pub(crate) fn begin<S>(
        self: &Arc<Self>,
        conn: &ConnInfo<S>,
        call: &Call<'_>,
        now: Time,
    ) -> ReplyLookup {
        let key = key_of(self.secret, conn.peer.ip(), call);
        let mut shard = self.shard(&key).lock();
        shard.kept.trim(self.limit, now.secs);
        if let Some(found) = shard.kept.get(&key) {
            match found.origin {
                Origin::Recovered(volume, ino) => return ReplyLookup::Recovered(*volume, *ino),
                Origin::Connection(first) if first.may_repeat_on(conn) => {
                    let failure = Failure::from_procedure(procedure(&key));
                    let reply = ReplyBuf::whole(found.reply.to_vec(), Some(failure));
                    return ReplyLookup::Answered(reply, found.lsn);
                }
                Origin::Connection(_) => {}
            }
        }
        if let Some(first) = shard.running.get(&key) {
            return match first.may_repeat_on(conn) {
                true => ReplyLookup::Running,
                false => ReplyLookup::Twin,
            };
        }
        shard.running.insert(key, conn.line());
        drop(shard);
        ReplyLookup::New(Ticket {
            drc: Arc::clone(self),
            key,
            now: now.secs,
            kept: false,
        })
    }

    /// Bytes kept in all.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.shards.iter().map(|s| s.lock().kept.bytes()).sum()
    }
}

/// Right and duty to run a call. If it is dropped without a reply, the call counts as never seen.
pub(crate) struct Ticket {
    drc: Arc<Drc>,
    key: CallKey,
    now: i64,
    kept: bool,
}

impl Ticket {
    /// Returns the key that identifies the call.
    pub(crate) fn key(&self) -> CallKey {
        self.key
    }

    /// Keeps the reply of a call that was done.
    pub(crate) fn keep(mut self, reply: &[u8], lsn: Option<Lsn>) {
        self.kept = true;
        let mut shard = self.drc.shard(&self.key).lock();
        if let Some(line) = shard.running.remove(&self.key) {
            let origin = Origin::Connection(line);
            shard.kept.push(self.key, self.now, reply, (lsn, origin));
            shard.kept.trim(self.drc.limit, self.now);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.kept {
            self.drc.shard(&self.key).lock().running.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::message::AUTH_NONE;

    fn call<'a>(xid: u32, cred: &'a [u8], args: &'a [u8]) -> Call<'a> {
        Call {
            xid,
            program: 100_003,
            version: 3,
            procedure: 12,
            flavour: AUTH_NONE,
            cred,
            args,
        }
    }

    fn from(n: u8, port: u16) -> ConnInfo {
        let local = ([10, 0, 0, 99], 2049).into();
        ConnInfo::new(1, ([10, 0, 0, n], port).into(), local)
    }

    fn client(n: u8) -> ConnInfo {
        from(n, 900)
    }

    fn cache(bytes: usize) -> Arc<Drc> {
        Drc::new(bytes, SipKey(1, 2))
    }

    fn time_at(secs: i64) -> Time {
        Time { secs, nanos: 0 }
    }

    fn reply(text: &[u8]) -> Vec<u8> {
        let mut v = ReplyBuf::start(64);
        v.extend_from_slice(text);
        v
    }

    fn ticket(s: ReplyLookup) -> Ticket {
        let ReplyLookup::New(t) = s else {
            panic!("not new")
        };
        t
    }

    #[test]
    fn running_calls_are_dropped_and_done_ones_replayed() {
        let d = cache(1 << 20);
        let c = call(1, b"", b"args");
        let t = ticket(d.begin(&client(1), &c, time_at(0)));
        assert!(matches!(
            d.begin(&client(1), &c, time_at(0)),
            ReplyLookup::Running
        ));
        t.keep(&reply(b"\0\0\0\x01done"), Some(Lsn(9)));
        let ReplyLookup::Answered(r, lsn) = d.begin(&client(1), &c, time_at(1)) else {
            panic!()
        };
        assert_eq!(
            (r.message().as_slice(), lsn),
            (&b"\0\0\0\x01done"[..], Some(Lsn(9)))
        );
    }

    #[test]
    fn whatever_differs_is_another_call() {
        let d = cache(1 << 20);
        ticket(d.begin(&client(1), &call(1, b"me", b"args"), time_at(0)))
            .keep(&reply(b"done"), None);
        for (n, c) in [
            (2, call(1, b"me", b"args")),
            (1, call(2, b"me", b"args")),
            (1, call(1, b"you", b"args")),
            (1, call(1, b"me", b"argh")),
            (
                1,
                Call {
                    procedure: 13,
                    ..call(1, b"me", b"args")
                },
            ),
            (
                1,
                Call {
                    flavour: 7,
                    ..call(1, b"me", b"args")
                },
            ),
        ] {
            assert!(
                matches!(d.begin(&client(n), &c, time_at(0)), ReplyLookup::New(_)),
                "{c:?}"
            );
        }
        let mapped = "[::ffff:10.0.0.1]:900".parse().unwrap();
        let mapped = ConnInfo::<()>::new(2, mapped, mapped);
        assert!(matches!(
            d.begin(&mapped, &call(1, b"me", b"args"), time_at(0)),
            ReplyLookup::Answered(..)
        ));
    }

    #[test]
    fn the_hash_is_over_fields_and_keyed() {
        let key = |secret, cred, args| key_of(secret, [10, 0, 0, 1].into(), &call(1, cred, args));
        let (one, other) = (SipKey(1, 2), SipKey(1, 3));
        assert_eq!(key(one, b"a", b"b"), key(one, b"a", b"b"));
        assert_ne!(key(one, b"ab", b"c"), key(one, b"a", b"bc"));
        assert_ne!(key(one, b"a", b"b"), key(other, b"a", b"b"));
        assert_eq!(procedure(&key(one, b"", b"")), 12);
    }

    /// From another port it is the same call only once the first connection has ended.
    #[test]
    fn a_client_may_come_back_from_any_port() {
        let d = cache(1 << 20);
        let c = call(1, b"me", b"args");
        let (first, second) = (from(1, 900), from(1, 50_000));
        let running = ticket(d.begin(&first, &c, time_at(0)));
        assert!(matches!(
            d.begin(&second, &c, time_at(0)),
            ReplyLookup::Twin
        ));
        first.end();
        assert!(matches!(
            d.begin(&second, &c, time_at(0)),
            ReplyLookup::Running
        ));
        running.keep(&reply(b"done"), None);
        assert!(matches!(
            d.begin(&second, &c, time_at(0)),
            ReplyLookup::Answered(..)
        ));

        let c = call(2, b"me", b"args");
        let (first, again) = (from(1, 900), from(1, 900));
        ticket(d.begin(&first, &c, time_at(0))).keep(&reply(b"done"), None);
        assert!(matches!(
            d.begin(&again, &c, time_at(0)),
            ReplyLookup::Answered(..)
        ));
        let own = ticket(d.begin(&second, &c, time_at(0)));
        own.keep(&reply(b"another's"), None);
        let ReplyLookup::Answered(r, _) = d.begin(&second, &c, time_at(0)) else {
            panic!()
        };
        assert_eq!(r.message(), b"another's");
    }

    #[test]
    fn calls_of_before_the_start_are_known() {
        let d = cache(1 << 20);
        let key = |xid| key_of(d.secret, [10, 0, 0, 1].into(), &call(xid, b"me", b"args"));
        let done = |xid, secs| DoneCall {
            key: key(xid),
            volume: VolumeId(7),
            ino: Ino(u64::from(xid)),
            secs,
        };
        // The server was away for a day.
        let now = 86_400;
        d.recover(vec![done(3, 150), done(1, 29), done(2, 30)], time_at(now));
        let seen = |xid, now| d.begin(&client(1), &call(xid, b"me", b"args"), time_at(now));
        assert!(matches!(
            seen(3, now),
            ReplyLookup::Recovered(VolumeId(7), Ino(3))
        ));
        assert!(matches!(
            seen(2, now + MAX_AGE_RECOVERED),
            ReplyLookup::Recovered(_, Ino(2))
        ));
        assert!(
            matches!(seen(1, now), ReplyLookup::New(_)),
            "too old when it went"
        );
        assert!(matches!(
            seen(3, now + MAX_AGE_RECOVERED + 1),
            ReplyLookup::New(_)
        ));
    }

    #[test]
    fn an_abandoned_call_may_run_again() {
        let d = cache(1 << 20);
        let c = call(1, b"", b"args");
        drop(ticket(d.begin(&client(1), &c, time_at(0))));
        assert!(matches!(
            d.begin(&client(1), &c, time_at(0)),
            ReplyLookup::New(_)
        ));
    }

    #[test]
    fn bounded_in_bytes_and_age() {
        let limit = 64 << 10;
        let d = cache(limit);
        for xid in 0..10_000 {
            ticket(d.begin(&client(1), &call(xid, b"", b"a"), time_at(0)))
                .keep(&reply(&[7; 100]), None);
            assert!(d.bytes() <= limit);
        }
        let known = |xid, now| {
            matches!(
                d.begin(&client(1), &call(xid, b"", b"a"), time_at(now)),
                ReplyLookup::Answered(..)
            )
        };
        assert!(known(9_999, 0));
        assert!(!known(0, 0));
        assert!(known(9_998, MAX_AGE));
        assert!(!known(9_998, MAX_AGE + 1));
        // A running call survives any shortage of memory.
        let running = ticket(d.begin(&client(2), &call(1, b"", b"a"), time_at(0)));
        for xid in 0..10_000 {
            ticket(d.begin(&client(3), &call(xid, b"", b"b"), time_at(0)))
                .keep(&reply(&[7; 100]), None);
        }
        assert!(matches!(
            d.begin(&client(2), &call(1, b"", b"a"), time_at(0)),
            ReplyLookup::Running
        ));
        drop(running);
    }
}
