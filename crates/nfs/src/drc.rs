//! The duplicate-request cache: at-most-once for calls that must not run twice.
//!
//! A client that loses its connection sends its calls again, with the same
//! transaction ids. REMOVE run twice answers NOENT to a client whose file was
//! there; so replies of such calls are kept and given again. (Juszczak,
//! "Improving the Performance and Correctness of an NFS Server", 1989.)
//!
//! A call is known by the client's address, its transaction id, and checksums
//! over the arguments and over the credential. The port takes no part: a client
//! that comes back may have another. The checksums keep a client that counts
//! its ids from the start again from being given another call's reply. A call
//! that is still running is dropped, since its first copy will be answered.
//!
//! Replies are kept with the log position that makes them true, so that a
//! replay waits for the disk exactly as the first reply did. Only successes are
//! kept: a failed call changed nothing and can run again. What is kept is
//! bounded in bytes and in age, oldest out first; what is running is bounded by
//! the connections.

mod replies;

use crate::failure::Failure;
use crate::keyed::Keyed;
use crate::reply::ReplyBuf;
use crate::rpc::Call;
use parking_lot::Mutex;
use replies::Replies;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use weir_base::{Lsn, Time};

/// Locks that the cache is split into; a power of two. Eyeballed: several times
/// the cores of the machines this runs on.
const SHARDS: usize = 16;

/// Seconds for which a reply is kept. Clients send again after at most a minute
/// or so; knfsd keeps replies for 120 s as well.
const MAX_AGE: i64 = 120;

/// What a call is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    client: IpAddr,
    xid: u32,
    procedure: u32,
    args_len: usize,
    args_crc: u32,
    cred_crc: u32,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.client {
            IpAddr::V4(a) => state.write_u64(u64::from(a.to_bits())),
            IpAddr::V6(a) => {
                let bits = a.to_bits();
                state.write_u64(bits as u64);
                state.write_u64((bits >> 64) as u64);
            }
        }
        state.write_u64(u64::from(self.xid) << 32 | u64::from(self.args_crc));
        state.write_u64(u64::from(self.cred_crc) << 32 | u64::from(self.procedure));
    }
}

impl Key {
    fn of(client: IpAddr, call: &Call<'_>) -> Key {
        Key {
            client: client.to_canonical(),
            xid: call.xid,
            procedure: call.procedure,
            args_len: call.args.len(),
            args_crc: crc32c::crc32c(call.args),
            cred_crc: crc32c::crc32c_append(call.flavour, call.stable_cred()),
        }
    }

    fn shard(&self) -> usize {
        // The low bits of transaction ids count up; mixing in the checksum
        // spreads clients that start at the same one.
        (self.xid ^ self.args_crc.rotate_left(7)) as usize % SHARDS
    }
}

#[derive(Default)]
struct Shard {
    /// Calls that are running: a few.
    running: HashSet<Key, Keyed>,
    kept: Replies,
}

/// What is known of a call.
pub(crate) enum Seen {
    /// Nothing: run it, and give the ticket the reply.
    New(Ticket),
    /// It is running.
    Running,
    /// It was answered with this.
    Answered(ReplyBuf, Option<Lsn>),
}

/// The cache.
pub(crate) struct Drc {
    shards: [Mutex<Shard>; SHARDS],
    hash: Keyed,
    /// Bytes a shard may keep.
    limit: usize,
}

impl Drc {
    /// A cache that keeps at most `bytes` of replies.
    pub(crate) fn new(bytes: usize) -> Arc<Drc> {
        Arc::new(Drc {
            shards: Default::default(),
            hash: Keyed::default(),
            limit: bytes / SHARDS,
        })
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        // `Key::shard` is below SHARDS.
        &self.shards[key.shard()]
    }

    /// Looks a call up and marks it as running if it is new.
    pub(crate) fn begin(self: &Arc<Self>, client: IpAddr, call: &Call<'_>, now: Time) -> Seen {
        let key = Key::of(client, call);
        let hash = self.hash.hash_one(key);
        let mut shard = self.shard(&key).lock();
        shard.kept.trim(self.limit, now.secs);
        if let Some(found) = shard.kept.get(hash, &key) {
            let reply = ReplyBuf::whole(found.reply.to_vec(), Some(found.failure));
            return Seen::Answered(reply, found.lsn);
        }
        if !shard.running.insert(key) {
            return Seen::Running;
        }
        Seen::New(Ticket {
            drc: Arc::clone(self),
            key,
            hash,
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

/// The right and duty to run a call. Dropped without a reply, the call counts
/// as never seen.
pub(crate) struct Ticket {
    drc: Arc<Drc>,
    key: Key,
    hash: u64,
    now: i64,
    kept: bool,
}

impl Ticket {
    /// Keeps the reply of a call that was done.
    pub(crate) fn keep(mut self, reply: &[u8], lsn: Option<Lsn>) {
        self.kept = true;
        let failure = Failure::of(self.key.procedure);
        let mut shard = self.drc.shard(&self.key).lock();
        shard.running.remove(&self.key);
        let key = (self.hash, self.key);
        shard.kept.push(key, self.now, reply, (lsn, failure));
        shard.kept.trim(self.drc.limit, self.now);
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
    use crate::rpc::AUTH_NONE;

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

    fn client(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn at(secs: i64) -> Time {
        Time { secs, nanos: 0 }
    }

    fn reply(text: &[u8]) -> Vec<u8> {
        let mut v = ReplyBuf::start(64);
        v.extend_from_slice(text);
        v
    }

    fn ticket(s: Seen) -> Ticket {
        let Seen::New(t) = s else { panic!("not new") };
        t
    }

    #[test]
    fn running_calls_are_dropped_and_done_ones_replayed() {
        let d = Drc::new(1 << 20);
        let c = call(1, b"", b"args");
        let t = ticket(d.begin(client(1), &c, at(0)));
        assert!(matches!(d.begin(client(1), &c, at(0)), Seen::Running));
        t.keep(&reply(b"\0\0\0\x01done"), Some(Lsn(9)));
        let Seen::Answered(r, lsn) = d.begin(client(1), &c, at(1)) else {
            panic!()
        };
        assert_eq!(
            (r.message().as_slice(), lsn),
            (&b"\0\0\0\x01done"[..], Some(Lsn(9)))
        );
    }

    #[test]
    fn whatever_differs_is_another_call() {
        let d = Drc::new(1 << 20);
        ticket(d.begin(client(1), &call(1, b"me", b"args"), at(0))).keep(&reply(b"done"), None);
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
                matches!(d.begin(client(n), &c, at(0)), Seen::New(_)),
                "{c:?}"
            );
        }
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert!(matches!(
            d.begin(mapped, &call(1, b"me", b"args"), at(0)),
            Seen::Answered(..)
        ));
    }

    #[test]
    fn an_abandoned_call_may_run_again() {
        let d = Drc::new(1 << 20);
        let c = call(1, b"", b"args");
        drop(ticket(d.begin(client(1), &c, at(0))));
        assert!(matches!(d.begin(client(1), &c, at(0)), Seen::New(_)));
    }

    #[test]
    fn bounded_in_bytes_and_age() {
        let limit = 64 << 10;
        let d = Drc::new(limit);
        for xid in 0..10_000 {
            ticket(d.begin(client(1), &call(xid, b"", b"a"), at(0))).keep(&reply(&[7; 100]), None);
            assert!(d.bytes() <= limit);
        }
        let known = |xid, now| {
            matches!(
                d.begin(client(1), &call(xid, b"", b"a"), at(now)),
                Seen::Answered(..)
            )
        };
        assert!(known(9_999, 0));
        assert!(!known(0, 0));
        assert!(known(9_998, MAX_AGE));
        assert!(!known(9_998, MAX_AGE + 1));
        // A running call survives any pressure.
        let running = ticket(d.begin(client(2), &call(1, b"", b"a"), at(0)));
        for xid in 0..10_000 {
            ticket(d.begin(client(3), &call(xid, b"", b"b"), at(0))).keep(&reply(&[7; 100]), None);
        }
        assert!(matches!(
            d.begin(client(2), &call(1, b"", b"a"), at(0)),
            Seen::Running
        ));
        drop(running);
    }
}
