//! Users with more groups than AUTH_SYS has room for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails loudly.

mod support;

use std::sync::Arc;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use support::callbacks::{Callbacks, DelegationGrant, RECALL, delegated, give_back};
use support::compound::{Client, OK};
use support::{NFS, R, Server, X};
use weir_nfs::Outcome;
use weir_nfs::groups::{Answer, Directory, FULL, KEPT, PATIENCE};
use weir_vfs::Groups;

/// Keeps what it is asked until the test answers.
#[derive(Default)]
struct Slow(Mutex<Vec<(u32, Answer)>>);

impl Directory for Slow {
    fn look_up(&self, uid: u32, answer: Answer) {
        self.0.lock().unwrap().push((uid, answer));
    }
}

impl Slow {
    fn answer(&self, groups: Option<Groups>) -> u32 {
        let (uid, answer) = self.0.lock().unwrap().remove(0);
        answer.found(groups);
        uid
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// ACCESS of a file by user 100 with `count` groups, 1000 and after.
fn access(s: &Server, file: &[u8], count: u32) -> Vec<u8> {
    by_user(s, count, 4, &X::new().o(file).u(1))
}

/// A call of NFSv3 by the same user.
fn by_user(s: &Server, count: u32, procedure: u32, args: &X) -> Vec<u8> {
    let cred = X::new().u(0).o(b"host").u(100).u(500).u(count);
    let cred = (0..count).fold(cred, |x, n| x.u(1000 + n));
    let xid = s.xid.replace(s.xid.get() + 1);
    let x = X::new().u(xid).u(0).u(2).u(NFS.0).u(3).u(procedure);
    x.u(1).o(&cred.0).u(0).u(0).raw(&args.0).0
}

fn readable(handled: Outcome) -> bool {
    let Outcome::Reply(reply, _) = handled else {
        panic!("no reply")
    };
    let mut r = R(reply.message(), 24);
    assert_eq!(r.u(), 0);
    r.post_op();
    r.u() == 1
}

fn poll(handled: &mut Outcome) -> Option<Outcome> {
    let Outcome::Later(later) = handled else {
        panic!("it does not wait")
    };
    match later.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(handled) => Some(handled),
        Poll::Pending => None,
    }
}

/// A server, and a file that only members of group 1040 may read.
fn server() -> (Server, Arc<Slow>, Vec<u8>) {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o040);
    let chown = X::new().o(&file).u(0).u(0).u(1).u(1040);
    assert_eq!(s.nfs(2, &chown.u(0).u(0).u(0).u(0)).u(), 0);
    let slow = Arc::new(Slow::default());
    s.service.look_groups_up(slow.clone());
    (s, slow, file)
}

fn many() -> Option<Groups> {
    Some((1000..1100).collect())
}

#[test]
fn a_full_credential_is_completed_and_others_are_left_alone() {
    let (s, slow, file) = server();
    let begin = |count| {
        let record = access(&s, &file, count);
        s.service.handle(&s.conn(), &record, s.current_time())
    };
    assert!(
        !readable(begin(FULL as u32 - 1)),
        "not all of them, but it says so"
    );
    assert_eq!(slow.asked(), 0);
    let (mut first, mut second) = (begin(16), begin(16));
    assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
    assert_eq!(slow.asked(), 1, "one look-up for both");
    assert_eq!(slow.answer(many()), 100);
    assert!(readable(poll(&mut first).unwrap()) && readable(poll(&mut second).unwrap()));
    // It is known now, for a while.
    assert!(readable(begin(16)));
    s.clock.advance(KEPT);
    assert!(poll(&mut begin(16)).is_none());
    // A result that is no longer than what the client sent changes nothing.
    slow.answer(Some((1000..1005).collect()));
    assert!(!readable(begin(16)));
}

#[test]
fn a_name_service_that_does_not_answer_costs_patience() {
    let (s, slow, file) = server();
    let record = access(&s, &file, 16);
    let begin = || s.service.handle(&s.conn(), &record, s.current_time());
    let mut call = begin();
    assert!(poll(&mut call).is_none());
    s.clock.advance(PATIENCE - Duration::from_secs(1));
    s.service.tick();
    assert!(poll(&mut call).is_none());
    s.clock.advance(Duration::from_secs(1));
    s.service.tick();
    assert!(
        !readable(poll(&mut call).unwrap()),
        "by what the client sent"
    );
    // It says that there is no such user.
    slow.answer(None);
    assert!(!readable(begin()));
    assert_eq!(slow.asked(), 0);
}

/// The call waits twice: for the directory, then for the holder of a delegation.
#[test]
fn a_completed_call_that_waits_for_another_client_is_answered() {
    const WANT_WRITE: u32 = 0x200;
    let (s, slow, _) = server();
    let calls = Callbacks::attach_to(&s);
    let holder = Client::new(&s, "10.0.0.1", b"holder");
    let (file, _, given) = delegated(&holder, b"held", 3 | WANT_WRITE);
    assert!(matches!(given, DelegationGrant::Write(_)), "{given:?}");
    let read = by_user(&s, 16, 6, &X::new().o(&file).h(0).u(9));
    s.from("10.0.0.2");
    let mut call = s.service.handle(&s.conn(), &read, s.current_time());
    assert!(poll(&mut call).is_none(), "it waits for the directory");
    assert!(calls.next().is_none());
    assert_eq!(slow.answer(many()), 100);
    assert!(poll(&mut call).is_none(), "it waits for the holder");
    calls.expect(RECALL).reply(&s, OK, X::new());
    assert_eq!(holder.status(&give_back(&file, &given.id())), OK);
    let Some(Outcome::Reply(reply, _)) = poll(&mut call) else {
        panic!("no reply");
    };
    assert_eq!(R(reply.message(), 24).u(), OK, "READ");
}

/// Without the directory nothing is different.
#[test]
fn it_has_to_be_asked_for() {
    let s = Server::new();
    let root = s.root();
    let file = s.create(&root, b"file", 0o040);
    let record = access(&s, &file, 16);
    assert!(!readable(s.service.handle(
        &s.conn(),
        &record,
        s.current_time()
    )));
}
