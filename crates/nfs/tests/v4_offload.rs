//! Copies in the background: COPY, OFFLOAD_STATUS, OFFLOAD_CANCEL, CB_OFFLOAD.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use support::callbacks::Callbacks;
use support::compound::*;
use support::{Server, X};
use weir_nfs::v4::Background;

const HOST: &str = "10.0.0.1";
const BOTH: (u32, u32) = (3, 0);
const OFFLOAD: u32 = 15;
const MIB: u64 = 1 << 20;

/// Background work of the server, which runs when the test lets it.
#[derive(Clone, Default)]
struct Works(Arc<Mutex<Vec<Background>>>);

impl Works {
    fn attach_to(s: &Server) -> Works {
        let works = Works::default();
        let taken = works.clone();
        let run = move |work| taken.0.lock().unwrap().push(work);
        s.service.run_in_background(Arc::new(run));
        works
    }

    /// Runs each once, which copies a piece. Returns the number of copies left.
    fn step(&self) -> usize {
        let mut cx = Context::from_waker(Waker::noop());
        let mut works = std::mem::take(&mut *self.0.lock().unwrap());
        works.retain_mut(|work| work.as_mut().poll(&mut cx).is_pending());
        self.0.lock().unwrap().extend(works);
        self.0.lock().unwrap().len()
    }

    fn finish(&self) {
        // Each has more pieces than it needs turns.
        for _ in 0..100 {
            if self.step() == 0 {
                return;
            }
        }
        panic!("a copy does not end");
    }
}

/// Source and destination of a copy, each with handle and stateid. The source is full of data.
struct Files {
    from: (Vec<u8>, Vec<u8>),
    to: (Vec<u8>, Vec<u8>),
}

const SIZE: u64 = 10 * MIB;

impl Files {
    fn new(s: &Server, c: &Client<'_>) -> Files {
        let (from, to) = (c.open(b"from", b"o", BOTH), c.open(b"to", b"o", BOTH));
        // Data throughout: what a copy does with holes counts for less than a piece.
        for at in (0..SIZE).step_by(1 << 16) {
            s.write(&from.0, at, &vec![7; 1 << 16]);
        }
        s.from(HOST).write(&from.0, 0, b"begin");
        s.write(&from.0, SIZE - 3, b"end");
        Files { from, to }
    }

    /// COPY of all but the first byte: its stateid, if it goes on in the background.
    fn copy(&self, c: &Client<'_>, synchronous: bool) -> (Option<Vec<u8>>, u64) {
        let x = X::new().raw(&self.from.1).raw(&self.to.1);
        let x = x.h(1).h(0).h(SIZE - 1).u(1).u(synchronous.into()).u(0);
        let ops = Ops::new().fh(&self.from.0).save().fh(&self.to.0);
        let mut r = c.run(&ops.op(60, x));
        for operation in [22, 32, 22] {
            r.ok(operation);
        }
        let r = r.ok(60);
        let id = (r.u() == 1).then(|| r.raw(16));
        let (count, stable) = (r.h(), r.u());
        assert_eq!(stable, 0, "UNSTABLE");
        r.raw(8);
        assert_eq!((r.u(), r.u() == 1), (1, id.is_none()));
        r.end();
        (id, count)
    }

    fn is_copied(&self, s: &Server) {
        assert_eq!(s.getattr(&self.to.0).size, SIZE - 1);
        assert_eq!(s.read(&self.to.0, 0, 5).0, b"egin\x07");
        assert_eq!(s.read(&self.to.0, SIZE - 5, 5).0, b"\x07end");
    }

    /// OFFLOAD_STATUS: bytes, and the status if it has ended.
    fn progress(&self, c: &Client<'_>, id: &[u8]) -> Result<(u64, Option<u32>), u32> {
        let mut r = c.run(&Ops::new().fh(&self.to.0).op(67, X::new().raw(id)));
        r.ok(22);
        match r.next(67) {
            OK => {
                let copied = r.r.h();
                let ended = (r.r.u() == 1).then(|| r.r.u());
                r.r.end();
                Ok((copied, ended))
            }
            status => Err(status),
        }
    }
}

#[test]
fn a_long_copy_goes_on_after_its_reply() {
    let s = Server::new();
    let (calls, works) = (Callbacks::attach_to(&s), Works::attach_to(&s));
    let c = Client::new(&s, HOST, b"client");
    let files = Files::new(&s, &c);
    assert_eq!(files.copy(&c, true), (None, 4 * MIB), "as much as one does");
    let (id, count) = files.copy(&c, false);
    let id = id.expect("a stateid");
    assert_eq!(count, 0);
    assert_eq!(files.progress(&c, &id), Ok((0, None)));
    assert_eq!(works.step(), 1);
    assert_eq!(files.progress(&c, &id), Ok((MIB, None)));
    assert_eq!(
        c.status(&Ops::new().fh(&files.from.0).op(67, X::new().raw(&id))),
        BAD_STATEID
    );
    works.finish();
    files.is_copied(&s);
    assert_eq!(files.progress(&c, &id), Ok((SIZE - 1, Some(OK))));
    let mut call = calls.expect(OFFLOAD);
    assert_eq!(
        (call.r.o(), call.r.raw(16)),
        (files.to.0.clone(), id.clone())
    );
    assert_eq!((call.r.u(), call.r.u()), (OK, 0));
    assert_eq!((call.r.h(), call.r.u()), (SIZE - 1, 0));
    call.r.raw(8);
    call.r.end();
    call.reply(&s, OK, X::new());
    assert_eq!(files.progress(&c, &id), Err(BAD_STATEID), "acknowledged");
}

#[test]
fn a_copy_outlives_its_connection() {
    let s = Server::new();
    let (calls, works) = (Callbacks::attach_to(&s), Works::attach_to(&s));
    let c = Client::new(&s, HOST, b"client");
    let files = Files::new(&s, &c);
    let id = files.copy(&c, false).0.expect("a stateid");
    works.step();
    s.service.connection_ended(&s.conn());
    works.finish();
    files.is_copied(&s);
    assert!(calls.next().is_none(), "there is no way to the client");
    // BIND_CONN_TO_SESSION of another one.
    let bind = X::new().raw(&c.session).u(7).u(0);
    assert_eq!(c.alone(41, bind).status, OK);
    let mut call = calls.expect(OFFLOAD);
    call.r.o();
    assert_eq!((call.r.raw(16), call.r.u()), (id.clone(), OK));
    assert_eq!(files.progress(&c, &id), Ok((SIZE - 1, Some(OK))));
}

#[test]
fn a_copy_ends_when_it_is_cancelled_or_its_open_is_closed() {
    let s = Server::new();
    let (calls, works) = (Callbacks::attach_to(&s), Works::attach_to(&s));
    let c = Client::new(&s, HOST, b"client");
    let files = Files::new(&s, &c);
    let id = files.copy(&c, false).0.expect("a stateid");
    works.step();
    let cancel = Ops::new().fh(&files.to.0).op(66, X::new().raw(&id));
    assert_eq!(c.status(&cancel), OK);
    assert_eq!(c.status(&cancel), BAD_STATEID);
    assert_eq!(works.step(), 0);
    assert!(calls.next().is_none(), "nothing is reported");
    assert_eq!(s.getattr(&files.to.0).size, MIB);
    let id = files.copy(&c, false).0.expect("a stateid");
    works.step();
    assert_eq!(
        c.status(&Ops::new().fh(&files.from.0).close(&files.from.1)),
        OK
    );
    assert_eq!(works.step(), 0);
    let mut call = calls.expect(OFFLOAD);
    call.r.o();
    assert_eq!((call.r.raw(16), call.r.u()), (id, BAD_STATEID));
    assert_eq!(call.r.h(), MIB, "so much was copied");
}

#[test]
fn copies_in_the_background_are_bounded_and_need_a_way_to_report() {
    let s = Server::new();
    let works = Works::attach_to(&s);
    let c = Client::new(&s, HOST, b"client");
    let files = Files::new(&s, &c);
    assert_eq!(
        files.copy(&c, false),
        (None, 4 * MIB),
        "it cannot be called"
    );
    let _calls = Callbacks::attach_to(&s);
    for _ in 0..16 {
        assert!(files.copy(&c, false).0.is_some());
    }
    assert_eq!(files.copy(&c, false), (None, 4 * MIB));
    // A client that has gone takes its copies along.
    s.vfs.publish(Vec::new());
    assert_eq!(works.step(), 0);
}
