//! Users and groups that clients name.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::callbacks::poll;
use support::compound::*;
use support::{Server, X};
use weir_nfs::idmap::{Accounts, Answer, PATIENCE, Query, QueryOutcome};
use weir_nfs::{Later, Outcome};

const HOST: &str = "10.0.0.1";
const BADOWNER: u32 = 10_039;
const OWNER: u32 = 36;

/// A name service that answers when the test lets it.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<Vec<(Query, Answer)>>>);

impl Accounts for Slow {
    fn look_up(&self, query: Query, done: Answer) {
        self.0.lock().unwrap().push((query, done));
    }
}

impl Slow {
    /// The only question since the last time.
    fn asked(&self) -> (Query, Answer) {
        let mut all = std::mem::take(&mut *self.0.lock().unwrap());
        assert_eq!(all.len(), 1);
        all.pop().unwrap()
    }
}

/// SETATTR of the owner.
fn chown(file: &[u8], owner: &[u8]) -> Ops {
    let values = X::new().o(owner);
    let set = bitmap(X::new().raw(&[0; 16]), &[OWNER]).o(&values.0);
    Ops::new().fh(file).op(34, set)
}

fn waits(c: &Client<'_>, ops: &Ops) -> Later {
    match c.begin(&c.next_args(ops, true)) {
        Outcome::Later(later) => later,
        _ => panic!("it does not wait for the name service"),
    }
}

#[test]
fn owners_are_looked_up_without_holding_up_others() {
    let s = Server::new();
    s.as_user(0, 0);
    let names = Slow::default();
    s.service.map_names("example.org", Arc::new(names.clone()));
    let c = Client::new(&s, HOST, b"client");
    let file = s.create(&s.root(), b"f", 0o644);
    let owner = || s.getattr(&file).uid;
    assert_eq!(
        c.status(&chown(&file, b"4711")),
        OK,
        "a number needs nobody"
    );
    assert_eq!(owner(), 4711);
    let mut waiting = waits(&c, &chown(&file, b"alice@example.org"));
    assert!(poll(&mut waiting).is_none());
    assert_eq!(owner(), 4711, "nothing has changed");
    let (query, answer) = names.asked();
    assert_eq!(query, Query::User(Box::from(&b"alice"[..])));
    answer.found(QueryOutcome::Number(1000));
    assert_eq!(poll(&mut waiting).expect("a reply").status, OK);
    assert_eq!(owner(), 1000);
    // It is known now, in any case of the domain.
    assert_eq!(c.status(&chown(&file, b"4711")), OK);
    assert_eq!(c.status(&chown(&file, b"alice@Example.ORG")), OK);
    assert_eq!(owner(), 1000);
    assert_eq!(c.status(&chown(&file, b"alice@elsewhere.org")), BADOWNER);
    // Under AUTH_SYS a number is sent.
    let mut r = c.run(&Ops::new().fh(&file).getattr(&[OWNER]));
    r.ok(22);
    assert_eq!(r.attrs().o(), b"1000");
    let mut waiting = waits(&c, &chown(&file, b"bob@example.org"));
    assert!(poll(&mut waiting).is_none());
    drop(names.asked());
    assert_eq!(poll(&mut waiting).expect("a reply").status, BADOWNER);
    // A name service that says nothing.
    let mut waiting = waits(&c, &chown(&file, b"carol@example.org"));
    assert!(poll(&mut waiting).is_none());
    let (_, late) = names.asked();
    s.clock.advance(PATIENCE - Duration::from_secs(1));
    s.service.tick();
    assert!(poll(&mut waiting).is_none());
    s.clock.advance(Duration::from_secs(1));
    s.service.tick();
    assert_eq!(poll(&mut waiting).expect("a reply").status, BADOWNER);
    late.found(QueryOutcome::Number(1002));
    assert_eq!(c.status(&chown(&file, b"carol@example.org")), OK);
    assert_eq!(owner(), 1002);
}
