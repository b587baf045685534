//! A client that repeats its calls after every power failure: each must have been carried out exactly once.
//!
//! The calls change names and attributes in a fixed directory. What survives of a life is a beginning of what its log
//! took: calls that are in it are recognised and get their reply; calls that are not are carried out now. Either way, all
//! that succeeded before succeed again in the same order, those with durable log records made the same objects, and in
//! the end the state is that before the power failed.
//!
//! Over NFSv4 the calls are COMPOUNDs of a persistent session. Those that the log does not have are refused with the session that
//! has ended, and are sent over the client's new one.

use std::collections::BTreeMap;

use weir_nfs::Handled;

use super::client::{Caller, call, proc3, results};
use super::persistent::{Compound, Session};
use super::server::Server;
use super::xdr::{In, Out};
use crate::machine::{Machine, Sizes};
use crate::rand::Choices;
use crate::subject::Subject;

pub(super) type Checked<T = ()> = Result<T, String>;

pub(super) const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A call that succeeded.
struct Done {
    message: Vec<u8>,
    /// What it is over NFSv4.
    compound: Option<Compound>,
    /// The handle of what it made.
    handle: Option<Vec<u8>>,
    lsn: u64,
}

/// Status, handle of what was made, and what the reply waits for.
pub(super) type Sent = (u32, Option<Vec<u8>>, u64);

fn send(server: &Server, machine: &Machine, message: &[u8]) -> Checked<Sent> {
    let xid = u32::from_be_bytes([message[0], message[1], message[2], message[3]]);
    let procedure = u32::from_be_bytes([message[20], message[21], message[22], message[23]]);
    let Handled::Reply(reply, lsn) = server.handle(message, machine.now()) else {
        return Err("no reply".into());
    };
    let bytes = reply.message();
    let decode = || {
        let mut r: In<'_> = results(&bytes, xid)?;
        let status = r.u32()?;
        let makes = matches!(procedure, proc3::CREATE..=proc3::MKNOD);
        let handle = match makes && status == 0 && r.bool()? {
            true => Some(r.opaque()?.to_vec()),
            false => None,
        };
        Ok((status, handle))
    };
    let (status, handle) = decode().map_err(|e: super::xdr::Malformed| e.0.to_owned())?;
    Ok((status, handle, lsn.map_or(0, |lsn| lsn.0)))
}

fn attributes(out: &mut Out, mode: u32) {
    out.u32(1).u32(mode);
    (0..5).for_each(|_| {
        out.u32(0);
    });
}

/// Any call, on `root` and on the file `target`, which is never removed.
fn random(choices: &Choices, xid: u32, root: &[u8], target: &[u8]) -> Vec<u8> {
    let name = || choices.pick(&NAMES).as_bytes();
    let mode = choices.below(0o1000) as u32;
    let at = |procedure: u32| {
        let mut out = call(xid, weir_nfs::NFS_PROGRAM, 3, procedure, &Caller::default());
        out.opaque(root).opaque(name());
        out
    };
    match choices.below(9) {
        0 => {
            let mut out = at(proc3::CREATE);
            // GUARDED: a second execution would fail.
            attributes(out.u32(1), mode);
            out.0
        }
        1 => {
            let mut out = at(proc3::CREATE);
            out.u32(2).u64(u64::from(xid));
            out.0
        }
        2 => {
            let mut out = at(proc3::MKDIR);
            attributes(&mut out, mode);
            out.0
        }
        3 => {
            let mut out = at(proc3::SYMLINK);
            attributes(&mut out, mode);
            out.opaque(b"target");
            out.0
        }
        4 => at(proc3::REMOVE).0,
        5 => at(proc3::RMDIR).0,
        6 => {
            let mut out = at(proc3::RENAME);
            out.opaque(root).opaque(name());
            out.0
        }
        7 => {
            let mut out = call(
                xid,
                weir_nfs::NFS_PROGRAM,
                3,
                proc3::LINK,
                &Caller::default(),
            );
            out.opaque(target).opaque(root).opaque(name());
            out.0
        }
        _ => {
            let mut out = call(
                xid,
                weir_nfs::NFS_PROGRAM,
                3,
                proc3::SETATTR,
                &Caller::default(),
            );
            attributes(out.opaque(target), mode);
            out.u32(0);
            out.0
        }
    }
}

/// What names there are, as what, and the target's mode and links.
fn observe(
    server: &Server,
    machine: &Machine,
    xid: &mut u32,
    root: &[u8],
    target: &[u8],
) -> Checked<BTreeMap<String, Vec<u32>>> {
    let mut seen = BTreeMap::new();
    let mut ask = |procedure: u32, args: &dyn Fn(&mut Out)| -> Checked<Vec<u32>> {
        *xid += 1;
        let mut out = call(
            *xid,
            weir_nfs::NFS_PROGRAM,
            3,
            procedure,
            &Caller::default(),
        );
        args(&mut out);
        let Handled::Reply(reply, _) = server.handle(&out.0, machine.now()) else {
            return Err("no reply".into());
        };
        let bytes = reply.message();
        let rest = results(&bytes, *xid).map_err(|e| e.0.to_owned())?;
        let words = rest
            .0
            .chunks(4)
            .map(|w| w.iter().fold(0, |n, b| n << 8 | u32::from(*b)));
        Ok(words.collect())
    };
    for name in NAMES {
        let words = ask(proc3::LOOKUP, &|out| {
            out.opaque(root).opaque(name.as_bytes());
        })?;
        // Status; type, mode and links of the object. Without power, what has to be read is not known.
        let found = match words.first() {
            Some(0) => words.get(11..14).unwrap_or_default().to_vec(),
            Some(2) => Vec::new(),
            _ => continue,
        };
        seen.insert(name.to_owned(), found);
    }
    let words = ask(proc3::GETATTR, &|out| {
        out.opaque(target);
    })?;
    if words.first() == Some(&0) {
        let attributes = words.get(1..4).unwrap_or_default();
        seen.insert("the target".to_owned(), attributes.to_vec());
    }
    Ok(seen)
}

/// Random calls of NFSv3, repeated after power failures.
///
/// # Errors
/// What was carried out twice or not at all.
pub fn story(seed: u64) -> Checked {
    lives(seed, false)
}

/// The same of COMPOUNDs of NFSv4.
///
/// # Errors
/// What was carried out twice or not at all.
pub fn story4(seed: u64) -> Checked {
    lives(seed, true)
}

/// Sends a call of an earlier life again; over another session if it is refused with that of then.
fn repeat(
    server: &Server,
    machine: &Machine,
    session: Option<&mut Session>,
    done: &Done,
) -> Checked<Sent> {
    let (Some(session), Some(compound)) = (session, &done.compound) else {
        return send(server, machine, &done.message);
    };
    match session.send(server, machine, &done.message, compound)? {
        (Session::ENDED, ..) => {
            let message = session.message(compound);
            session.send(server, machine, &message, compound)
        }
        sent => Ok(sent),
    }
}

fn lives(seed: u64, v4: bool) -> Checked {
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
            let mut out = call(
                xid,
                weir_nfs::NFS_PROGRAM,
                3,
                proc3::CREATE,
                &Caller::default(),
            );
            out.opaque(&root).opaque(b"target");
            attributes(out.u32(1), 0o644);
            let (_, handle, lsn) = send(&server, &machine, &out.0)?;
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
        // A client repeats what it has no reply to; the replies to all of these have come once they are durable.
        let last = weir_base::Lsn(last);
        let waited = running.engine.wait_durable(Some(last));
        waited.map_err(|e| at_life(e.to_string()))?;
        done.clear();
        machine
            .world
            .crash_at(machine.world.counts().events + choices.between(5, 400));
        for _ in 0..choices.between(20, 300) {
            xid += 1;
            let (message, compound, sent) = match &mut session {
                Some(session) => {
                    let compound = Compound::random(&choices, xid, &root, &target);
                    let message = session.message(&compound);
                    let sent = session.send(&server, &machine, &message, &compound)?;
                    (message, Some(compound), sent)
                }
                None => {
                    let message = random(&choices, xid, &root, &target);
                    let sent = send(&server, &machine, &message)?;
                    (message, None, sent)
                }
            };
            let (status, handle, lsn) = sent;
            if status == 0 {
                done.push(Done {
                    message,
                    compound,
                    handle,
                    lsn,
                });
            }
            if machine.world.crashed() {
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
        before = observe(&server, &machine, &mut xid, &root, &target)?;
        durable = durable.max(server.durable());
        drop(server);
        machine.world.crash();
        drop(running);
        machine.reboot(&choices);
        machine.check().map_err(at_life)?;
    }
    Ok(())
}
