//! Choice of a lane's next request: one that must succeed, with what its acknowledgement will mean.
//!
//! The mix leans on writes, because most crashes should find some uncommitted and some in flight;
//! the rest spreads over every procedure that changes something.

use std::sync::Arc;

use weir_base::Rng;
use weir_testclient::nfs3::{
    Call, CreateHow3, FIFO, FILE_SYNC, Fh, Name, SOCK, Sattr, SetTime, UNSTABLE,
};

use crate::content::Content;
use crate::fault::Fault;
use crate::lane::{Effect, Lane};
use crate::model::{Id, Kind, Object, ParentFolder, QualifiedName, State};

/// A lane stops creating at this many objects. Small, so that names are used again and again.
const MAX_OBJECTS: usize = 14;
/// No file grows beyond this.
const MAX_FILE: u64 = 640 << 10;

impl Lane {
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

    fn folder(&self, place: ParentFolder) -> Result<Fh, Fault> {
        match place {
            ParentFolder::Shared(i) => self
                .folders
                .get(i)
                .cloned()
                .ok_or_else(|| "no such folder".into()),
            ParentFolder::Own(id) => Ok(self.state.object(id)?.fh.clone()),
        }
    }

    fn target(&self, at: &QualifiedName) -> Result<(Fh, Name), Fault> {
        Ok((self.folder(at.0)?, at.1.clone()))
    }

    /// A name that is not in use; one in eight is as long as names may be.
    fn new_name(&mut self, place: ParentFolder) -> QualifiedName {
        self.next_id += 1;
        let mut name = format!("{}-{}", self.tag, self.next_id).into_bytes();
        if self.below(8) == 0 {
            name.resize(255, b'\xfe');
        }
        (place, name)
    }

    fn new_place(&self) -> ParentFolder {
        let own = self.ids(|o| matches!(o.kind, Kind::Dir));
        match self.pick(&own) {
            Some(id) if self.below(3) == 0 => ParentFolder::Own(id),
            _ => ParentFolder::Shared(self.below(self.folders.len())),
        }
    }

    fn bytes(&self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.rng.fill(&mut data);
        data
    }

    /// One request.
    pub fn generate(&mut self) -> Result<(Call, Effect), Fault> {
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
        let names: Vec<(QualifiedName, Id)> = self
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
        at: &QualifiedName,
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
            0 => CreateHow3::Unchecked(attr),
            1 => CreateHow3::Guarded(attr),
            _ => CreateHow3::Exclusive(self.rng.next_u64().to_be_bytes()),
        };
        let exclusive = matches!(how, CreateHow3::Exclusive(_));
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
        let attr = Sattr::mode(mode);
        let (call, kind, mode) = match which {
            0 => (Call::Mkdir(dir, name, attr), Kind::Dir, Some(mode)),
            1 => {
                let target = vec![b'a' + self.below(26) as u8; 1 + self.below(1500)];
                (
                    Call::Symlink(dir, name, Sattr::default(), target.clone()),
                    Kind::Symlink(target),
                    None,
                )
            }
            n => {
                let kind = if n == 2 || self.lenient { FIFO } else { SOCK };
                (
                    Call::Mknod {
                        dir,
                        name,
                        kind,
                        attr,
                        rdev: (0, 0),
                    },
                    Kind::Special(kind),
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

    fn names_of(&self, wanted: impl Fn(&Object) -> bool) -> Vec<(QualifiedName, Id)> {
        let fits = |id: &Id| self.state.objects.get(id).is_some_and(|o| wanted(o));
        self.state
            .names
            .iter()
            .filter(|(_, id)| fits(id))
            .map(|(w, id)| (w.clone(), *id))
            .collect()
    }

    fn unname(&self, after: &mut State, at: &QualifiedName, id: Id) -> Result<Option<Fh>, Fault> {
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
                    || matches!(w.0, ParentFolder::Shared(_))
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
                    ParentFolder::Shared(self.below(self.folders.len()))
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
        let (mut attr, mut mtime) = (Sattr::default(), None);
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
            mtime = Some((self.below(1 << 31) as u32, self.below(1_000_000_000) as u32));
            attr.mtime = mtime.map_or(SetTime::Keep, SetTime::Client);
        }
        let mut after = self.state.clone();
        let object = after.change(id)?;
        object.mtime = mtime.or(object.mtime);
        object.mode = attr.mode.or(object.mode);
        object.uid = attr.uid.or(object.uid);
        object.gid = attr.gid.or(object.gid);
        let call = Call::Setattr(object.fh.clone(), attr, None);
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
            None,
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
}
