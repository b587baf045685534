//! One lane: makes a request that fits its model ([`crate::ask`]), and learns from the reply.
//!
//! Every request is one that must succeed, so any error but NFS3ERR_JUKEBOX is a finding. Replies
//! to reads are compared with the model while the server lives; the crash is judged by
//! [`Lane::judge`].

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::SeededRng;
use weir_testclient::nfs3::{Call, FILE_SYNC, Fh, JUKEBOX, Name, Reply, STALE, UNSTABLE, Verifier};

use crate::fault::Fault;
use crate::model::{Id, Kind, Object, ServerObject, State, show};

/// Handles of removed objects that are kept, to see that they stay stale.
const MAX_GONE: usize = 24;

/// Effect on the model of an acknowledgement of the request in flight.
pub enum Effect {
    Read {
        id: Id,
        offset: u64,
        count: u32,
    },
    Getattr(Id),
    GoneIsStale,
    Lookup(Id),
    Write {
        id: Id,
        sync: bool,
    },
    Commit {
        id: Id,
        offset: u64,
        count: u32,
    },
    /// `set` is the object whose attributes the request gives, `made` when it is new.
    Change {
        after: State,
        made: bool,
        set: Option<Id>,
        gone: Option<Fh>,
    },
}

/// Outcome of the request that was in flight at the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    NothingInFlight,
    Happened,
    DidNot,
    /// A request that leaves no trace, or one whose trace is any mix (a write).
    Either,
}

pub struct Lane {
    /// Prefix of all names of this lane.
    pub tag: String,
    pub rng: SeededRng,
    pub state: State,
    flight: Option<(Call, Effect)>,
    pub next_id: Id,
    pub gone: Vec<Fh>,
    pub folders: Arc<Vec<Fh>>,
    /// The write verifier of the server's present life, once seen.
    pub verifier: Option<Verifier>,
    pub acknowledged: u64,
    /// See `--reference`.
    pub lenient: bool,
}

impl Lane {
    pub fn new(tag: String, seed: u64, folders: Arc<Vec<Fh>>, lenient: bool) -> Self {
        let rng = SeededRng::new(seed);
        Lane {
            lenient,
            tag,
            rng,
            state: State::default(),
            flight: None,
            next_id: 1,
            gone: Vec::new(),
            folders,
            verifier: None,
            acknowledged: 0,
        }
    }

    /// The next request. Called with none in flight.
    pub fn next(&mut self) -> Result<&Call, Fault> {
        let flight = self.generate()?;
        Ok(&self.flight.insert(flight).0)
    }

    /// The request again, after NFS3ERR_JUKEBOX.
    pub fn again(&self) -> Option<&Call> {
        self.flight.as_ref().map(|f| &f.0)
    }

    fn see_verifier(&mut self, v: Verifier) -> Result<(), Fault> {
        match self.verifier.replace(v) {
            Some(old) if old != v => Err(format!(
                "the write verifier changed from {old:x?} to {v:x?} while the server ran"
            )),
            _ => Ok(()),
        }
    }

    /// Takes the reply in; false when the request has to be made again.
    pub fn done(&mut self, reply: Reply) -> Result<bool, Fault> {
        if matches!(reply, Reply::Error(JUKEBOX)) {
            return Ok(false);
        }
        let Some((call, effect)) = self.flight.take() else {
            return Err("a reply to nothing".into());
        };
        self.acknowledge(&call, effect, reply)
            .map_err(|f| format!("lane {}: {} {f}", self.tag, describe(&call)))?;
        self.acknowledged += 1;
        Ok(true)
    }

    fn acknowledge(&mut self, call: &Call, effect: Effect, reply: Reply) -> Result<(), Fault> {
        match (effect, reply) {
            (Effect::GoneIsStale, Reply::Error(STALE)) => {}
            (Effect::GoneIsStale, r) => {
                return Err(format!(
                    "on the handle of a removed object: {r:?}, not NFS3ERR_STALE"
                ));
            }
            (_, Reply::Error(status)) => return Err(format!("answered status {status}")),
            (Effect::Read { id, offset, count }, Reply::Data { data, eof }) => {
                let view = self.state.content(id)?.view();
                let from = view.len().min(offset as usize);
                let to = view.len().min(offset as usize + count as usize);
                if view.get(from..to) != Some(&data) || eof != (to == view.len()) {
                    return Err(format!(
                        "{} bytes, eof {eof}; {} bytes were due and they differ or end differently",
                        data.len(),
                        to - from
                    ));
                }
            }
            (Effect::Getattr(id), Reply::Attr(attr)) => {
                let found = ServerObject {
                    fh: Vec::new(),
                    attr,
                    content: Vec::new(),
                    target: Vec::new(),
                    children: BTreeMap::new(),
                };
                self.attributes_agree(id, &found)?;
            }
            (Effect::Lookup(id), Reply::Found(fh, attr)) => {
                if self.state.object(id)?.fh != fh {
                    return Err("leads to another handle".into());
                }
                if let Some(attr) = attr {
                    let found = ServerObject {
                        fh,
                        attr,
                        content: Vec::new(),
                        target: Vec::new(),
                        children: BTreeMap::new(),
                    };
                    self.attributes_agree(id, &found)?;
                }
            }
            (
                Effect::Write { id, sync },
                Reply::Written {
                    count,
                    committed,
                    verifier,
                    ..
                },
            ) => {
                let Call::Write { data, .. } = call else {
                    return Err("the model forgot its call".into());
                };
                if count as usize != data.len() {
                    return Err(format!("wrote {count} of {} bytes", data.len()));
                }
                if sync && committed != FILE_SYNC {
                    return Err(format!("asked for FILE_SYNC, was given {committed}"));
                }
                if committed != UNSTABLE {
                    self.state.content(id)?.settle_last();
                }
                self.see_verifier(verifier)?;
            }
            (Effect::Commit { id, offset, count }, Reply::Committed(verifier, _)) => {
                self.see_verifier(verifier)?;
                self.state.content(id)?.commit(offset, count);
            }
            (
                Effect::Change {
                    mut after,
                    made,
                    set,
                    gone,
                },
                reply,
            ) => {
                if let (true, Some(id)) = (made, set) {
                    let Reply::Made(Some(fh), attr, _) = reply else {
                        return Err(format!("gave no handle: {reply:?}"));
                    };
                    let object = after.change(id)?;
                    object.fh = fh;
                    object.fileid = attr.map_or(0, |a| a.fileid);
                }
                self.state = after;
                if let Some(fh) = gone {
                    self.gone.push(fh);
                    if self.gone.len() > MAX_GONE {
                        self.gone.remove(0);
                    }
                }
            }
            (_, r) => return Err(format!("answered {r:?}")),
        }
        Ok(())
    }

    fn attributes_agree(&self, id: Id, found: &ServerObject) -> Result<(), Fault> {
        let object = self.state.object(id)?;
        let a = &found.attr;
        let size = match &object.kind {
            Kind::File(c) => c.size() as u64,
            _ => a.size,
        };
        let differs = a.size != size
            || object.mode.is_some_and(|m| m != a.mode)
            || object.uid.is_some_and(|m| m != a.uid)
            || object.gid.is_some_and(|m| m != a.gid)
            || object.mtime.is_some_and(|m| m != a.mtime)
            || object.fileid != 0 && object.fileid != a.fileid
            || !matches!(object.kind, Kind::Dir) && a.nlink as usize != self.state.links(id);
        if differs {
            return Err(format!(
                "attributes {a:?}; the model has {:?} {:?}:{:?} size {size} mtime {:?} links {}",
                object.mode,
                object.uid,
                object.gid,
                object.mtime,
                self.state.links(id)
            ));
        }
        Ok(())
    }

    /// Compares what a walk found after a crash with what may be there, and goes on from it.
    pub fn judge(&mut self, found: &[BTreeMap<Name, ServerObject>]) -> Result<Outcome, Fault> {
        self.verifier = None;
        let mut flight = self.flight.take();
        match &mut flight {
            Some((_, Effect::Write { id, .. })) if self.lenient => {
                self.state.content(*id)?.may_be_torn()
            }
            Some((
                _,
                Effect::Change {
                    after,
                    set: Some(id),
                    ..
                },
            )) if self.lenient => {
                let object = after.change(*id)?;
                (object.mode, object.uid, object.gid) = (None, None, None);
            }
            _ => {}
        }
        let before = self.state.admits(found);
        let outcome = match (before, flight) {
            (Ok(()), None) => Outcome::NothingInFlight,
            (Ok(()), Some((_, Effect::Change { after, .. }))) => match after.admits(found) {
                Ok(()) => Outcome::Either,
                Err(_) => Outcome::DidNot,
            },
            (Ok(()), Some(_)) => Outcome::Either,
            (Err(b), Some((call, Effect::Change { after, gone, .. }))) => match after.admits(found)
            {
                Ok(()) => {
                    self.state = after;
                    self.gone.extend(gone);
                    Outcome::Happened
                }
                Err(a) => {
                    let call = describe(&call);
                    return Err(format!(
                        "lane {}: {call} was in flight; without it: {b}; with it: {a}",
                        self.tag
                    ));
                }
            },
            (Err(b), flight) => {
                let call = flight.map_or("nothing".into(), |f| describe(&f.0));
                return Err(format!("lane {}: {call} was in flight: {b}", self.tag));
            }
        };
        self.state.adopt(found)?;
        Ok(outcome)
    }

    /// Handles that must be stale.
    pub fn gone(&self) -> &[Fh] {
        &self.gone
    }

    /// Objects and files with uncommitted data, for the report.
    pub fn counts(&self) -> (usize, usize) {
        let pending = |o: &&Arc<Object>| matches!(&o.kind, Kind::File(c) if c.has_pending());
        (
            self.state.objects.len(),
            self.state.objects.values().filter(pending).count(),
        )
    }
}

/// A call for a person to read.
fn describe(call: &Call) -> String {
    match call {
        Call::Write {
            offset,
            stable,
            data,
            ..
        } => format!("WRITE {}+{} stable_how {stable}", offset, data.len()),
        Call::Read { offset, count, .. } => format!("READ {offset}+{count}"),
        Call::Commit { offset, count, .. } => format!("COMMIT {offset}+{count}"),
        Call::Setattr(_, a, _) => format!("SETATTR {a:?}"),
        Call::Getattr(_) => "GETATTR".into(),
        Call::Lookup(_, n) => format!("LOOKUP {}", show(n)),
        Call::Create(_, n, how) => format!("CREATE {} {how:?}", show(n)),
        Call::Mkdir(_, n, _) => format!("MKDIR {}", show(n)),
        Call::Symlink(_, n, _, t) => format!("SYMLINK {} to {} bytes", show(n), t.len()),
        Call::Mknod { name, kind, .. } => format!("MKNOD {} type {kind}", show(name)),
        Call::Remove(_, n) => format!("REMOVE {}", show(n)),
        Call::Rmdir(_, n) => format!("RMDIR {}", show(n)),
        Call::Rename { from, to } => format!("RENAME {} to {}", show(&from.1), show(&to.1)),
        Call::Link { to, .. } => format!("LINK to {}", show(&to.1)),
        other => format!("{other:?}"),
    }
}
