//! Callbacks of the tests' server to clients of NFSv4: takes them apart, and replies to them.

use super::compound::{Client, OK, Ops, Results};
use super::{R, Server, X};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use weir_nfs::{Later, Outcome};

pub const RECALL: u32 = 4;
pub const GETATTR: u32 = 3;
pub const NOTIFY_LOCK: u32 = 13;

/// A message with the number of its connection.
type SentMessage = (u64, Vec<u8>);

/// Queue of the messages sent to clients.
#[derive(Clone, Default)]
pub struct Callbacks(Arc<Mutex<Vec<SentMessage>>>);

/// A call with its CB_SEQUENCE taken apart.
pub struct Callback {
    pub connection: u64,
    pub xid: u32,
    pub program: u32,
    /// Flavour and body of the credential.
    pub credential: (u32, Vec<u8>),
    pub session: Vec<u8>,
    pub sequence: u32,
    pub slot: u32,
    pub operation: u32,
    /// The operation's arguments.
    pub r: R,
}

impl Callbacks {
    /// Lets the server call clients, which delegations need.
    pub fn attach_to(s: &Server) -> Callbacks {
        let calls = Callbacks::default();
        let sent = calls.clone();
        s.service.on_callback(Arc::new(move |connection, message| {
            sent.0.lock().unwrap().push((connection, message.into()));
            true
        }));
        calls
    }

    /// The only call since the last time, if there was one.
    pub fn next(&self) -> Option<Callback> {
        let mut all = self.take_calls();
        assert!(all.len() <= 1, "{} calls", all.len());
        all.pop()
    }

    /// All calls since the last time.
    pub fn take_calls(&self) -> Vec<Callback> {
        let all = std::mem::take(&mut *self.0.lock().unwrap());
        all.into_iter().map(Callback::from_message).collect()
    }

    /// Returns the only call since the last time, which must be of this operation.
    pub fn expect(&self, operation: u32) -> Callback {
        let call = self.next().expect("a call");
        assert_eq!(call.operation, operation);
        call
    }
}

impl Callback {
    fn from_message((connection, message): SentMessage) -> Callback {
        let mut r = R(message, 0);
        let xid = r.u();
        assert_eq!((r.u(), r.u()), (0, 2), "a call");
        let program = r.u();
        assert_eq!((r.u(), r.u()), (1, 1), "CB_COMPOUND");
        let credential = (r.u(), r.o());
        assert_eq!((r.u(), r.u()), (0, 0), "no verifier");
        assert_eq!((r.u(), r.u(), r.u(), r.u()), (0, 2, 0, 2), "two operations");
        assert_eq!(r.u(), 11, "CB_SEQUENCE");
        let session = r.raw(16);
        let (sequence, slot) = (r.u(), r.u());
        r.raw(12);
        let operation = r.u();
        Callback {
            connection,
            xid,
            program,
            credential,
            session,
            sequence,
            slot,
            operation,
            r,
        }
    }

    fn send(&self, s: &Server, x: X) {
        let message = X::new().u(self.xid).u(1).u(0).u(0).u(0).u(0).raw(&x.0);
        let handled = s.service.handle(&s.conn(), &message.0, s.current_time());
        assert!(matches!(handled, Outcome::Drop));
    }

    /// The client's reply: the operation's status, and what follows.
    pub fn reply(&self, s: &Server, status: u32, body: X) {
        let x = X::new().u(status).o(b"").u(2).u(11).u(OK);
        let x = x.raw(&self.session).u(self.sequence).u(self.slot);
        let x = x.u(15).u(15).u(self.operation).u(status);
        self.send(s, x.raw(&body.0));
    }

    /// A reply whose CB_SEQUENCE has failed.
    pub fn refuse(&self, s: &Server, status: u32) {
        self.send(s, X::new().u(status).o(b"").u(1).u(11).u(status));
    }
}

/// Delegation granted with an OPEN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DelegationGrant {
    None,
    Read(Vec<u8>),
    Write(Vec<u8>),
    /// A read delegation whose holder keeps the file's times.
    ReadTimes(Vec<u8>),
    WriteTimes(Vec<u8>),
    /// `why_no_delegation4`.
    Not(u32),
}

impl DelegationGrant {
    pub fn id(self) -> Vec<u8> {
        match self {
            DelegationGrant::Read(id)
            | DelegationGrant::Write(id)
            | DelegationGrant::ReadTimes(id)
            | DelegationGrant::WriteTimes(id) => id,
            other => panic!("{other:?}"),
        }
    }
}

/// The stateid and the delegation of an OPEN.
pub fn opened(results: &mut Results) -> (Vec<u8>, DelegationGrant) {
    let r = results.ok(18);
    let state = r.raw(16);
    r.raw(20);
    let _flags = r.u();
    let words = r.u() as usize;
    r.raw(4 * words);
    (state, given(r))
}

/// A delegation, of an OPEN or a WANT_DELEGATION.
pub fn given(r: &mut R) -> DelegationGrant {
    match r.u() {
        0 => DelegationGrant::None,
        kind @ (1 | 2 | 4 | 5) => {
            let id = r.raw(16);
            assert_eq!(r.u(), 0, "recalled");
            if matches!(kind, 2 | 5) {
                assert_eq!((r.u(), r.h()), (1, 0), "the limit");
            }
            assert_eq!((r.u(), r.u(), r.u(), r.o()), (0, 0, 0, Vec::new()));
            match kind {
                1 => DelegationGrant::Read(id),
                2 => DelegationGrant::Write(id),
                4 => DelegationGrant::ReadTimes(id),
                _ => DelegationGrant::WriteTimes(id),
            }
        }
        3 => {
            let why = r.u();
            if matches!(why, 1 | 2) {
                assert_eq!(r.u(), 0);
            }
            DelegationGrant::Not(why)
        }
        kind => panic!("delegation {kind}"),
    }
}

/// DELEGRETURN.
pub fn give_back(file: &[u8], state: &[u8]) -> Ops {
    Ops::new().fh(file).op(8, X::new().raw(state))
}

/// Returns the results of a request that waits for another client, once it is answered.
pub fn poll(waiting: &mut Later) -> Option<Results> {
    let mut cx = Context::from_waker(Waker::noop());
    match waiting.as_mut().poll(&mut cx) {
        Poll::Pending => None,
        Poll::Ready(Outcome::Reply(reply, _)) => {
            let mut r = R(reply.message(), 24);
            let (status, _) = (r.u(), r.o());
            let count = r.u();
            let mut results = Results { status, count, r };
            results.sequence();
            Some(results)
        }
        Poll::Ready(_) => panic!("no reply"),
    }
}

/// Opens the file `name`, which is made if it is not there: its handle, the open, the delegation.
pub fn delegated(c: &Client<'_>, name: &[u8], access: u32) -> (Vec<u8>, Vec<u8>, DelegationGrant) {
    let root = c.volume();
    let ops = Ops::new().fh(&root).open(name, b"o", (access, 0), Some(0));
    let mut r = c.run(&ops.getfh());
    r.ok(22);
    let (state, given) = opened(&mut r);
    (r.handle(), state, given)
}

/// Sends operations that have to wait for another client.
pub fn parked(c: &Client<'_>, ops: &Ops) -> Later {
    waits(c, &c.next_args(ops, true))
}

/// Sends an encoded COMPOUND that has to wait for another client.
pub fn waits(c: &Client<'_>, args: &X) -> Later {
    match c.begin(args) {
        Outcome::Parked(mut waiting, ..) => {
            assert!(poll(&mut waiting).is_none());
            waiting
        }
        _ => panic!("it does not wait"),
    }
}
