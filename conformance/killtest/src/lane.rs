//! One lane: makes a request that fits its model, and learns from the reply.
//!
//! Every request is one that must succeed, so any error but NFS3ERR_JUKEBOX is a finding. Replies to
//! reads are compared with the model while the server lives; the crash is judged by [`Lane::judge`].

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::{Rng, SeededRng};

use crate::content::Content;
use crate::model::{Found, Id, Kind, Object, Place, State, Where, show};
use crate::nfs3::{
    Call, FIFO, FILE_SYNC, Fh, How, JUKEBOX, Name, Reply, SOCK, STALE, Sattr, UNSTABLE, Verifier,
};
use crate::xdr::Fault;

/// A lane stops creating at this many objects. Small, so that names are used again and again.
const MAX_OBJECTS: usize = 14;
/// No file grows beyond this.
const MAX_FILE: u64 = 640 << 10;
/// Handles of removed objects that are kept, to see that they stay stale.
const MAX_GONE: usize = 24;

/// What an acknowledgement of the request in flight means for the model.
enum Effect {
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

/// How the request that was in flight at the crash came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    NothingInFlight,
    Happened,
    DidNot,
    /// A request that leaves no trace, or one whose trace is any mix (a write).
    Either,
}

pub struct Lane {
    /// What all names of this lane begin with.
    pub tag: String,
    rng: SeededRng,
    state: State,
    flight: Option<(Call, Effect)>,
    next_id: Id,
    gone: Vec<Fh>,
    folders: Arc<Vec<Fh>>,
    /// The write verifier of the server's present life, once seen.
    pub verifier: Option<Verifier>,
    pub acknowledged: u64,
    /// See `--reference`.
    lenient: bool,
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

    fn below(&self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    fn pick<T: Clone>(&self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len())).cloned()
    }

    fn ids(&self, wanted: impl Fn(&Object) -> bool) -> Vec<Id> {
        self.state
            .objects
            .iter()
            .filter(|(_, o)| wanted(o))
            .map(|(id, _)| *id)
            .collect()
    }

    fn folder(&self, place: Place) -> Result<Fh, Fault> {
        match place {
            Place::Shared(i) => self
                .folders
                .get(i)
                .cloned()
                .ok_or_else(|| "no such folder".into()),
            Place::Own(id) => Ok(self.state.object(id)?.fh.clone()),
        }
    }

    fn target(&self, at: &Where) -> Result<(Fh, Name), Fault> {
        Ok((self.folder(at.0)?, at.1.clone()))
    }

    /// A name that is not in use; one in eight is as long as names may be.
    fn new_name(&mut self, place: Place) -> Where {
        self.next_id += 1;
        let mut name = format!("{}-{}", self.tag, self.next_id).into_bytes();
        if self.below(8) == 0 {
            name.resize(255, b'\xfe');
        }
        (place, name)
    }

    fn new_place(&self) -> Place {
        let own = self.ids(|o| matches!(o.kind, Kind::Dir));
        match self.pick(&own) {
            Some(id) if self.below(3) == 0 => Place::Own(id),
            _ => Place::Shared(self.below(self.folders.len())),
        }
    }

    fn bytes(&self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.rng.fill(&mut data);
        data
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

    fn generate(&mut self) -> Result<(Call, Effect), Fault> {
        let files = self.ids(|o| matches!(o.kind, Kind::File(_)));
        let roll = self.below(100);
        if self.state.objects.len() < 3 {
            return self.create();
        }
        let some = match (roll, self.pick(&files)) {
            (0..42, Some(id)) => Some(self.write(id, roll < 22)?),
            (42..52, Some(id)) => Some(self.commit(id)?),
            (52..57, Some(id)) => Some(self.read(id)?),
            (57..60, _) => self.look()?,
            (60..70, _) if self.state.objects.len() < MAX_OBJECTS => Some(self.create()?),
            (70..76, _) => self.remove()?,
            (76..82, _) => self.rename()?,
            (82..85, _) if self.state.objects.len() < MAX_OBJECTS => Some(self.make_other(0)?),
            (85..88, _) => self.rmdir()?,
            (88..91, _) => self.link()?,
            (91..94, _) if self.state.objects.len() < MAX_OBJECTS => {
                Some(self.make_other(1 + self.below(3))?)
            }
            (94..97, _) => self.setattr()?,
            (97..100, Some(id)) => Some(self.truncate(id)?),
            _ => self.remove()?,
        };
        match some {
            Some(s) => Ok(s),
            None => self.create(),
        }
    }

    fn write(&mut self, id: Id, sync: bool) -> Result<(Call, Effect), Fault> {
        let len = match self.below(8) {
            0 | 1 => 1 + self.below(512),
            2..=4 => 4096,
            5 => 8192,
            6 => 1 + self.below(20_000),
            _ => 65_536 << self.below(2),
        };
        let size = self.state.content(id)?.size() as u64;
        let mut offset = match self.below(4) {
            0 => size,
            1 => self.rng.below(size + 10_000),
            _ => self.rng.below(size + 1) & !4095,
        };
        if offset + len as u64 > MAX_FILE {
            offset = self.rng.below(4) * 4096;
        }
        let data = self.bytes(len);
        let object = self.state.change(id)?;
        object.mtime = None;
        let fh = object.fh.clone();
        self.state.content(id)?.sent(offset, &data);
        let stable = if sync { FILE_SYNC } else { UNSTABLE };
        Ok((
            Call::Write {
                fh,
                offset,
                stable,
                data,
            },
            Effect::Write { id, sync },
        ))
    }

    fn commit(&mut self, id: Id) -> Result<(Call, Effect), Fault> {
        let size = self.state.content(id)?.size() as u64;
        let (offset, count) = if self.below(3) == 0 {
            (self.rng.below(size + 1), 1 + self.below(100_000) as u32)
        } else {
            (0, 0)
        };
        let fh = self.state.object(id)?.fh.clone();
        Ok((
            Call::Commit { fh, offset, count },
            Effect::Commit { id, offset, count },
        ))
    }

    fn read(&mut self, id: Id) -> Result<(Call, Effect), Fault> {
        let size = self.state.content(id)?.size() as u64;
        let (offset, count) = (self.rng.below(size + 100), 1 + self.below(65_536) as u32);
        let fh = self.state.object(id)?.fh.clone();
        Ok((
            Call::Read { fh, offset, count },
            Effect::Read { id, offset, count },
        ))
    }

    fn look(&mut self) -> Result<Option<(Call, Effect)>, Fault> {
        if let (true, Some(fh)) = (self.below(4) == 0, self.pick(&self.gone)) {
            return Ok(Some((Call::Getattr(fh), Effect::GoneIsStale)));
        }
        let names: Vec<(Where, Id)> = self
            .state
            .names
            .iter()
            .map(|(w, id)| (w.clone(), *id))
            .collect();
        let Some((at, id)) = self.pick(&names) else {
            return Ok(None);
        };
        Ok(Some(if self.below(2) == 0 {
            (
                Call::Getattr(self.state.object(id)?.fh.clone()),
                Effect::Getattr(id),
            )
        } else {
            let (dir, name) = self.target(&at)?;
            (Call::Lookup(dir, name), Effect::Lookup(id))
        }))
    }

    /// The state with a new object under a new name, to be filled from the reply.
    fn with_new(
        &mut self,
        at: &Where,
        kind: Kind,
        mode: Option<u32>,
        owner: Option<(u32, u32)>,
    ) -> (State, Id) {
        self.next_id += 1;
        let id = self.next_id;
        let mut after = self.state.clone();
        let (uid, gid) = owner.unzip();
        let object = Object {
            kind,
            mode,
            uid,
            gid,
            mtime: None,
            fh: Vec::new(),
            fileid: 0,
        };
        after.objects.insert(id, Arc::new(object));
        after.names.insert(at.clone(), id);
        (after, id)
    }

    fn create(&mut self) -> Result<(Call, Effect), Fault> {
        let place = self.new_place();
        let at = self.new_name(place);
        let (dir, name) = self.target(&at)?;
        let mode = 0o600 + self.below(0o200) as u32;
        let owner =
            (self.below(2) == 0).then(|| (self.below(5000) as u32, self.below(5000) as u32));
        let attr = Sattr {
            mode: Some(mode),
            uid: owner.map(|o| o.0),
            gid: owner.map(|o| o.1),
            ..Sattr::default()
        };
        let how = match self.below(3) {
            0 => How::Unchecked(attr),
            1 => How::Guarded(attr),
            _ => How::Exclusive(self.rng.next_u64().to_be_bytes()),
        };
        let exclusive = matches!(how, How::Exclusive(_));
        let (mode, owner) = if exclusive {
            (None, None)
        } else {
            (Some(mode), owner)
        };
        let (after, id) = self.with_new(&at, Kind::File(Content::default()), mode, owner);
        Ok((
            Call::Create(dir, name, how),
            Effect::Change {
                after,
                made: true,
                set: Some(id),
                gone: None,
            },
        ))
    }

    fn make_other(&mut self, which: usize) -> Result<(Call, Effect), Fault> {
        let place = self.new_place();
        let at = self.new_name(place);
        let (dir, name) = self.target(&at)?;
        let mode = 0o700 + self.below(0o100) as u32;
        let attr = Sattr {
            mode: Some(mode),
            ..Sattr::default()
        };
        let (call, kind, mode) = match which {
            0 => (Call::Mkdir(dir, name, attr), Kind::Dir, Some(mode)),
            1 => {
                let target = vec![b'a' + self.below(26) as u8; 1 + self.below(1500)];
                (
                    Call::Symlink(dir, name, target.clone()),
                    Kind::Symlink(target),
                    None,
                )
            }
            n => {
                let ftype = if n == 2 || self.lenient { FIFO } else { SOCK };
                (
                    Call::Mknod(dir, name, ftype, attr),
                    Kind::Special(ftype),
                    Some(mode),
                )
            }
        };
        let (after, id) = self.with_new(&at, kind, mode, None);
        Ok((
            call,
            Effect::Change {
                after,
                made: true,
                set: Some(id),
                gone: None,
            },
        ))
    }

    fn names_of(&self, wanted: impl Fn(&Object) -> bool) -> Vec<(Where, Id)> {
        let fits = |id: &Id| self.state.objects.get(id).is_some_and(|o| wanted(o));
        self.state
            .names
            .iter()
            .filter(|(_, id)| fits(id))
            .map(|(w, id)| (w.clone(), *id))
            .collect()
    }

    fn unname(&self, after: &mut State, at: &Where, id: Id) -> Result<Option<Fh>, Fault> {
        let fh = self.state.object(id)?.fh.clone();
        Ok(after.unname(at).map(|_| fh))
    }

    fn remove(&mut self) -> Result<Option<(Call, Effect)>, Fault> {
        let Some((at, id)) = self.pick(&self.names_of(|o| !matches!(o.kind, Kind::Dir))) else {
            return Ok(None);
        };
        let (dir, name) = self.target(&at)?;
        let mut after = self.state.clone();
        let gone = self.unname(&mut after, &at, id)?;
        Ok(Some((
            Call::Remove(dir, name),
            Effect::Change {
                after,
                made: false,
                set: None,
                gone,
            },
        )))
    }

    fn rmdir(&mut self) -> Result<Option<(Call, Effect)>, Fault> {
        let mut dirs = self.names_of(|o| matches!(o.kind, Kind::Dir));
        dirs.retain(|(_, id)| self.state.inside(*id).next().is_none());
        let Some((at, id)) = self.pick(&dirs) else {
            return Ok(None);
        };
        let (dir, name) = self.target(&at)?;
        let mut after = self.state.clone();
        let gone = self.unname(&mut after, &at, id)?;
        Ok(Some((
            Call::Rmdir(dir, name),
            Effect::Change {
                after,
                made: false,
                set: None,
                gone,
            },
        )))
    }

    /// Folders move only into shared ones, so that none ends up inside itself.
    fn rename(&mut self) -> Result<Option<(Call, Effect)>, Fault> {
        let Some((from, id)) = self.pick(&self.names_of(|_| true)) else {
            return Ok(None);
        };
        let is_dir = matches!(self.state.object(id)?.kind, Kind::Dir);
        let mut over = self.names_of(|o| matches!(o.kind, Kind::Dir) == is_dir);
        over.retain(|(w, other)| {
            *other != id
                && (!is_dir
                    || matches!(w.0, Place::Shared(_))
                        && self.state.inside(*other).next().is_none())
        });
        let onto = if self.below(3) == 0 {
            self.pick(&over)
        } else {
            None
        };
        let to = match &onto {
            Some((w, _)) => w.clone(),
            None => {
                let place = if is_dir {
                    Place::Shared(self.below(self.folders.len()))
                } else {
                    self.new_place()
                };
                self.new_name(place)
            }
        };
        let call = Call::Rename {
            from: self.target(&from)?,
            to: self.target(&to)?,
        };
        let mut after = self.state.clone();
        let gone = match onto {
            Some((w, other)) => self.unname(&mut after, &w, other)?,
            None => None,
        };
        after.names.remove(&from);
        after.names.insert(to, id);
        Ok(Some((
            call,
            Effect::Change {
                after,
                made: false,
                set: None,
                gone,
            },
        )))
    }

    fn link(&mut self) -> Result<Option<(Call, Effect)>, Fault> {
        let files = self.ids(|o| matches!(o.kind, Kind::File(_) | Kind::Special(_)));
        let Some(id) = self.pick(&files) else {
            return Ok(None);
        };
        if self.state.links(id) > 4 {
            return Ok(None);
        }
        let place = self.new_place();
        let at = self.new_name(place);
        let call = Call::Link {
            fh: self.state.object(id)?.fh.clone(),
            to: self.target(&at)?,
        };
        let mut after = self.state.clone();
        after.names.insert(at, id);
        Ok(Some((
            call,
            Effect::Change {
                after,
                made: false,
                set: None,
                gone: None,
            },
        )))
    }

    fn setattr(&mut self) -> Result<Option<(Call, Effect)>, Fault> {
        let ids = self.ids(|o| !matches!(o.kind, Kind::Symlink(_)));
        let Some(id) = self.pick(&ids) else {
            return Ok(None);
        };
        let mut attr = Sattr::default();
        // The modification time only of files: a folder's changes with its entries.
        let what = self.below(7) + 1;
        if what & 1 != 0 {
            attr.mode = Some(0o600 + self.below(0o200) as u32);
        }
        if what & 2 != 0 {
            (attr.uid, attr.gid) = (
                Some(self.below(1 << 20) as u32),
                Some(self.below(1 << 20) as u32),
            );
        }
        let is_file = matches!(self.state.object(id)?.kind, Kind::File(_));
        if what & 4 != 0 && is_file {
            attr.mtime = Some((self.below(1 << 31) as u32, self.below(1_000_000_000) as u32));
        }
        let mut after = self.state.clone();
        let object = after.change(id)?;
        object.mode = attr.mode.or(object.mode);
        object.uid = attr.uid.or(object.uid);
        object.gid = attr.gid.or(object.gid);
        object.mtime = attr.mtime.or(object.mtime);
        let call = Call::Setattr(object.fh.clone(), attr);
        Ok(Some((
            call,
            Effect::Change {
                after,
                made: false,
                set: Some(id),
                gone: None,
            },
        )))
    }

    fn truncate(&mut self, id: Id) -> Result<(Call, Effect), Fault> {
        let size = self
            .rng
            .below(self.state.content(id)?.size() as u64 + 50_000)
            .min(MAX_FILE);
        let mut after = self.state.clone();
        after.content(id)?.truncate(size);
        let object = after.change(id)?;
        object.mtime = None;
        let call = Call::Setattr(
            object.fh.clone(),
            Sattr {
                size: Some(size),
                ..Sattr::default()
            },
        );
        Ok((
            call,
            Effect::Change {
                after,
                made: false,
                set: Some(id),
                gone: None,
            },
        ))
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
                let found = Found {
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
                    let found = Found {
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
            (Effect::Commit { id, offset, count }, Reply::Committed(verifier)) => {
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
                    let Reply::Made(Some(fh), attr) = reply else {
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

    fn attributes_agree(&self, id: Id, found: &Found) -> Result<(), Fault> {
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
    pub fn judge(&mut self, found: &[BTreeMap<Name, Found>]) -> Result<Outcome, Fault> {
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
        Call::Setattr(_, a) => format!("SETATTR {a:?}"),
        Call::Getattr(_) => "GETATTR".into(),
        Call::Lookup(_, n) => format!("LOOKUP {}", show(n)),
        Call::Create(_, n, how) => format!("CREATE {} {how:?}", show(n)),
        Call::Mkdir(_, n, _) => format!("MKDIR {}", show(n)),
        Call::Symlink(_, n, t) => format!("SYMLINK {} to {} bytes", show(n), t.len()),
        Call::Mknod(_, n, t, _) => format!("MKNOD {} type {t}", show(n)),
        Call::Remove(_, n) => format!("REMOVE {}", show(n)),
        Call::Rmdir(_, n) => format!("RMDIR {}", show(n)),
        Call::Rename { from, to } => format!("RENAME {} to {}", show(&from.1), show(&to.1)),
        Call::Link { to, .. } => format!("LINK to {}", show(&to.1)),
        other => format!("{other:?}"),
    }
}
