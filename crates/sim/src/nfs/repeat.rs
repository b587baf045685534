//! A client that repeats its calls after every power failure: each must have been carried out
//! exactly once.
//!
//! The calls change names and attributes in a fixed directory. What survives of a life is a
//! beginning of what its log took: calls that are in it are recognised and get their reply; calls
//! that are not are carried out now. Either way, all that succeeded before succeed again in the
//! same order, those with durable log records made the same objects, and in the end the state is
//! that before the power failed.
//!
//! Over NFSv4 the calls are COMPOUNDs of a persistent session. Those that the log does not have are
//! refused with the session that has ended, and are sent over the client's new one.

use std::collections::BTreeMap;

use weir_nfs::Outcome;
use weir_testclient::nfs3::{Call, CreateHow3, Fattr, Reply, Sattr};
use weir_testclient::rpc::{Caller, results};

use super::persistent::{Compound, Session};
use super::server::Server;
use crate::machine::{Machine, Sizes};
use crate::rand::Choices;
use crate::subject::Subject;

pub(super) type CheckResult<T = ()> = Result<T, String>;

pub(super) const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A call as it was sent.
enum Request {
    V3(u32, Call),
    V4(Vec<u8>, Compound),
}

/// A call that succeeded.
struct Done {
    request: Request,
    /// The handle of what it made.
    handle: Option<Vec<u8>>,
    lsn: u64,
}

/// Status, handle of what was made, and what the reply waits for.
pub(super) type CallOutcome = (u32, Option<Vec<u8>>, u64);

/// The reply, and what it waits for.
fn exchange(
    server: &Server,
    machine: &Machine,
    xid: u32,
    call: &Call,
) -> CheckResult<(Reply, u64)> {
    let message = call.message(xid, &Caller::default());
    let Outcome::Reply(reply, lsn) = server.handle(&message, machine.current_time()) else {
        return Err("no reply".into());
    };
    let decoded = results(&reply.message(), xid).and_then(|results| call.decode(results));
    let reply = decoded.map_err(|what| format!("{call:?}: {}", what.0))?;
    Ok((reply, lsn.map_or(0, |lsn| lsn.0)))
}

fn send(server: &Server, machine: &Machine, xid: u32, call: &Call) -> CheckResult<CallOutcome> {
    let (reply, lsn) = exchange(server, machine, xid, call)?;
    Ok(match reply {
        Reply::Error(status) => (status, None, lsn),
        Reply::Made(handle, ..) => (0, handle, lsn),
        _ => (0, None, lsn),
    })
}

/// Any call, on `root` and on the file `target`, which is never removed.
fn random(choices: &Choices, xid: u32, root: &[u8], target: &[u8]) -> Call {
    let name = || choices.pick(&NAMES).as_bytes().to_vec();
    let attr = Sattr::mode(choices.below(0o1000) as u32);
    let dir = || root.to_vec();
    match choices.below(9) {
        // A second execution would fail.
        0 => Call::Create(dir(), name(), CreateHow3::Guarded(attr)),
        1 => Call::Create(
            dir(),
            name(),
            CreateHow3::Exclusive(u64::from(xid).to_be_bytes()),
        ),
        2 => Call::Mkdir(dir(), name(), attr),
        3 => Call::Symlink(dir(), name(), attr, b"target".to_vec()),
        4 => Call::Remove(dir(), name()),
        5 => Call::Rmdir(dir(), name()),
        6 => Call::Rename {
            from: (dir(), name()),
            to: (dir(), name()),
        },
        7 => Call::Link {
            fh: target.to_vec(),
            to: (dir(), name()),
        },
        _ => Call::Setattr(target.to_vec(), attr, None),
    }
}

/// Returns kind, mode and link count of each name, and of the target.
fn observe(
    server: &Server,
    machine: &Machine,
    xid: &mut u32,
    root: &[u8],
    target: &[u8],
) -> CheckResult<BTreeMap<String, Vec<u32>>> {
    let mut seen = BTreeMap::new();
    let mut ask = |call: Call| {
        *xid += 1;
        exchange(server, machine, *xid, &call).map(|(reply, _)| reply)
    };
    let short = |attr: Fattr| vec![attr.kind, attr.mode, attr.nlink];
    for name in NAMES {
        // Without power, a name that has to be read from disk is left out.
        let found = match ask(Call::Lookup(root.to_vec(), name.into()))? {
            Reply::Found(_, Some(attr)) => short(attr),
            Reply::Error(2) => Vec::new(),
            _ => continue,
        };
        seen.insert(name.to_owned(), found);
    }
    if let Reply::Attr(attr) = ask(Call::Getattr(target.to_vec()))? {
        seen.insert("the target".to_owned(), short(attr));
    }
    Ok(seen)
}

/// Random calls of NFSv3, repeated after power failures.
///
/// # Errors
/// A call was carried out twice or not at all.
pub fn story(seed: u64) -> CheckResult {
    lives(seed, false)
}

/// Random COMPOUNDs of NFSv4, repeated after power failures.
///
/// # Errors
/// A call was carried out twice or not at all.
pub fn story4(seed: u64) -> CheckResult {
    lives(seed, true)
}

/// Sends a call of an earlier life again; over another session if it is refused with that of then.
fn repeat(
    server: &Server,
    machine: &Machine,
    session: Option<&mut Session>,
    done: &Done,
) -> CheckResult<CallOutcome> {
    let (session, message, compound) = match (session, &done.request) {
        (Some(session), Request::V4(message, compound)) => (session, message, compound),
        (_, Request::V3(xid, call)) => return send(server, machine, *xid, call),
        (None, Request::V4(..)) => return Err("a COMPOUND without a session".into()),
    };
    match session.send(server, machine, message, compound)? {
        (Session::ENDED, ..) => {
            let message = session.message(compound);
            session.send(server, machine, &message, compound)
        }
        sent => Ok(sent),
    }
}

fn lives(seed: u64, v4: bool) -> CheckResult {
    let choices = Choices::new(seed);
    let sizes = Sizes {
        background: true,
        ..Sizes::small()
    };
    let mut machine = Machine::new(sizes, &choices)?;
    let mut xid = choices.bits() as u32;
    let (mut done, mut target, mut before) = (Vec::<Done>::new(), Vec::new(), BTreeMap::new());
    let (mut durable, mut lived) = (0, false);
    for life in 0..=choices.between(1, 3) {
        let at_life = |what: String| format!("life {life}: {what}");
        let running = machine.boot().map_err(at_life)?;
        let mut server = Server::new(&machine, &running)?;
        let root = server.root();
        if !lived {
            lived = true;
            xid += 1;
            let how = CreateHow3::Guarded(Sattr::mode(0o644));
            let create = Call::Create(root.clone(), b"target".to_vec(), how);
            let (_, handle, lsn) = send(&server, &machine, xid, &create)?;
            target = handle.ok_or("no target")?;
            running
                .engine
                .wait_durable(Some(weir_base::Lsn(lsn)))
                .map_err(|e| e.to_string())?;
        }
        let mut session = match v4 {
            true => Some(Session::begin(&server, &machine).map_err(at_life)?),
            false => None,
        };
        let mut last = 0;
        for (index, call) in done.iter().enumerate() {
            let sent = repeat(&server, &machine, session.as_mut(), call);
            let (status, handle, lsn) = sent.map_err(at_life)?;
            last = lsn.max(last);
            if status != 0 || (call.lsn <= durable && handle != call.handle) {
                let certain = call.lsn <= durable;
                return Err(format!(
                    "life {life}: call {index} of {} (durable: {certain}) repeated: status {status}, {handle:?} for {:?}",
                    durable, call.handle
                ));
            }
        }
        let now = observe(&server, &machine, &mut xid, &root, &target)?;
        let same = before.iter().all(|(name, was)| now.get(name) == Some(was));
        if !same {
            return Err(format!("life {life}: {now:?} where {before:?} was"));
        }
        // A client repeats what it has no reply to; the replies to all of these have come once they
        // are durable.
        let last = weir_base::Lsn(last);
        let waited = running.engine.wait_durable(Some(last));
        waited.map_err(|e| at_life(e.to_string()))?;
        done.clear();
        machine
            .world
            .crash_at(machine.world.counts().events + choices.between(5, 400));
        let mut cut_short = false;
        for _ in 0..choices.between(20, 300) {
            xid += 1;
            let (request, sent) = match &mut session {
                Some(session) => {
                    let compound = Compound::random(&choices, xid, &root, &target);
                    let message = session.message(&compound);
                    let sent = session.send(&server, &machine, &message, &compound)?;
                    (Request::V4(message, compound), sent)
                }
                None => {
                    let call = random(&choices, xid, &root, &target);
                    let sent = send(&server, &machine, xid, &call)?;
                    (Request::V3(xid, call), sent)
                }
            };
            let (status, handle, lsn) = sent;
            if status == 0 {
                done.push(Done {
                    request,
                    handle,
                    lsn,
                });
            }
            if machine.world.crashed() {
                // Its first operations may have been carried out, and one after them refused
                // because the power was gone: nobody repeats it.
                cut_short = status != 0;
                break;
            }
            if choices.chance(1, 40) {
                let _ = running.engine.cp_now();
            }
            if choices.chance(1, 4) {
                let _ = running.engine.wait_durable(Some(weir_base::Lsn(lsn)));
            }
            durable = server.durable();
        }
        before = match cut_short {
            true => BTreeMap::new(),
            false => observe(&server, &machine, &mut xid, &root, &target)?,
        };
        durable = durable.max(server.durable());
        drop(server);
        machine.world.crash();
        drop(running);
        machine.reboot(&choices);
        machine.check().map_err(at_life)?;
    }
    Ok(())
}
