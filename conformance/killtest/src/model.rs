//! Model of one lane's files.
//!
//! A lane has at most one request in flight, and no other lane touches its names. So after a crash
//! its part of the volume must equal one of two states: before that request, or after it. Many
//! lanes in the same directories, over several connections, make the server's work concurrent all
//! the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_testclient::nfs3::{DIR, Fattr, Fh, LNK, Name, REG};

use crate::content::Content;
use crate::fault::Fault;

/// A lane's own number for an object.
pub type Id = u32;

/// Folder of a name: one that all lanes share, or one of the lane's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParentFolder {
    Shared(usize),
    Own(Id),
}

pub type QualifiedName = (ParentFolder, Name);

#[derive(Clone, Debug)]
pub enum Kind {
    File(Content),
    Dir,
    Symlink(Vec<u8>),
    /// FIFO or socket, by its ftype3.
    Special(u32),
}

/// `None` in an attribute: the server's choice, not checked.
#[derive(Clone, Debug)]
pub struct Object {
    pub kind: Kind,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mtime: Option<(u32, u32)>,
    pub fh: Fh,
    /// 0 until a reply told it.
    pub fileid: u64,
}

impl Object {
    fn ftype(&self) -> u32 {
        match self.kind {
            Kind::File(_) => REG,
            Kind::Dir => DIR,
            Kind::Symlink(_) => LNK,
            Kind::Special(t) => t,
        }
    }
}

/// Cheap to copy before a change: objects are shared until they are written to.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub names: BTreeMap<QualifiedName, Id>,
    pub objects: BTreeMap<Id, Arc<Object>>,
}

/// Object that a walk of the server found under one name.
#[derive(Clone, Debug)]
pub struct ServerObject {
    pub fh: Fh,
    pub attr: Fattr,
    pub content: Vec<u8>,
    pub target: Vec<u8>,
    /// For a folder of the lane's own.
    pub children: BTreeMap<Name, ServerObject>,
}

impl State {
    pub fn object(&self, id: Id) -> Result<&Object, Fault> {
        self.objects
            .get(&id)
            .map(Arc::as_ref)
            .ok_or_else(|| format!("the model lost object {id}"))
    }

    pub fn change(&mut self, id: Id) -> Result<&mut Object, Fault> {
        self.objects
            .get_mut(&id)
            .map(Arc::make_mut)
            .ok_or_else(|| format!("the model lost object {id}"))
    }

    pub fn content(&mut self, id: Id) -> Result<&mut Content, Fault> {
        match &mut self.change(id)?.kind {
            Kind::File(c) => Ok(c),
            _ => Err(format!("the model has no file {id}")),
        }
    }

    pub fn links(&self, id: Id) -> usize {
        self.names.values().filter(|i| **i == id).count()
    }

    /// The names in one of the lane's folders.
    pub fn inside(&self, dir: Id) -> impl Iterator<Item = (&QualifiedName, Id)> {
        self.names
            .iter()
            .filter(move |(w, _)| w.0 == ParentFolder::Own(dir))
            .map(|(w, id)| (w, *id))
    }

    /// Takes a name away; says whether that was the object's last.
    pub fn unname(&mut self, at: &QualifiedName) -> Option<Id> {
        let id = self.names.remove(at)?;
        (self.links(id) == 0).then(|| {
            self.objects.remove(&id);
            id
        })
    }

    fn expected_nlink(&self, id: Id, object: &Object) -> usize {
        if !matches!(object.kind, Kind::Dir) {
            return self.links(id);
        }
        let is_dir = |i: &Id| {
            self.objects
                .get(i)
                .is_some_and(|o| matches!(o.kind, Kind::Dir))
        };
        2 + self.inside(id).filter(|(_, i)| is_dir(i)).count()
    }

    /// Checks that a crash may leave `found` (by shared folder) of this state; returns the first
    /// difference.
    pub fn admits(&self, found: &[BTreeMap<Name, ServerObject>]) -> Result<(), Fault> {
        let mut ids = BTreeMap::new();
        for (index, folder) in found.iter().enumerate() {
            self.admits_folder(ParentFolder::Shared(index), folder, &mut ids)?;
        }
        let distinct: BTreeSet<u64> = ids.values().copied().collect();
        if distinct.len() != ids.len() {
            return Err("two objects have one fileid".into());
        }
        Ok(())
    }

    fn admits_folder(
        &self,
        place: ParentFolder,
        found: &BTreeMap<Name, ServerObject>,
        ids: &mut BTreeMap<Id, u64>,
    ) -> Result<(), Fault> {
        let wanted: BTreeMap<&Name, Id> = self
            .names
            .iter()
            .filter(|(w, _)| w.0 == place)
            .map(|(w, id)| (&w.1, *id))
            .collect();
        if let Some(n) = found.keys().find(|n| !wanted.contains_key(n)) {
            return Err(format!("{} should not be in {place:?}", show(n)));
        }
        for (name, id) in wanted {
            let say = |what: String| format!("{} in {place:?}: {what}", show(name));
            let f = found.get(name).ok_or_else(|| say("is missing".into()))?;
            let object = self.object(id)?;
            self.admits_object(id, object, f).map_err(say)?;
            if *ids.entry(id).or_insert(f.attr.fileid) != f.attr.fileid {
                return Err(say("two names of one object lead to two".into()));
            }
            if matches!(object.kind, Kind::Dir) {
                self.admits_folder(ParentFolder::Own(id), &f.children, ids)?;
            }
        }
        Ok(())
    }

    fn admits_object(&self, id: Id, object: &Object, f: &ServerObject) -> Result<(), Fault> {
        if f.attr.kind != object.ftype() {
            return Err(format!("type {}, not {}", f.attr.kind, object.ftype()));
        }
        for (what, got, want) in [
            ("mode", f.attr.mode, object.mode),
            ("uid", f.attr.uid, object.uid),
            ("gid", f.attr.gid, object.gid),
        ] {
            if want.is_some_and(|w| w != got) {
                return Err(format!(
                    "{what} {got:o}, not {:o} (octal)",
                    want.unwrap_or(0)
                ));
            }
        }
        if object.mtime.is_some_and(|t| t != f.attr.mtime) {
            return Err(format!("mtime {:?}, not {:?}", f.attr.mtime, object.mtime));
        }
        let nlink = self.expected_nlink(id, object);
        if f.attr.nlink as usize != nlink {
            return Err(format!("{} links, not {nlink}", f.attr.nlink));
        }
        if object.fileid != 0 && f.attr.fileid != object.fileid {
            return Err(format!(
                "fileid {}, {} before the crash",
                f.attr.fileid, object.fileid
            ));
        }
        match &object.kind {
            Kind::File(c) if f.attr.size != f.content.len() as u64 => Err(format!(
                "attributes give {} bytes, {} can be read; {:?}",
                f.attr.size,
                f.content.len(),
                c.admits(&f.content)
            )),
            Kind::File(c) => c.admits(&f.content),
            Kind::Symlink(target) if *target != f.target => Err(format!(
                "points to {}, not {}",
                show(&f.target),
                show(target)
            )),
            _ => Ok(()),
        }
    }

    /// After a crash, and after [`State::admits`]: what was found is the state from now on.
    pub fn adopt(&mut self, found: &[BTreeMap<Name, ServerObject>]) -> Result<(), Fault> {
        for (index, folder) in found.iter().enumerate() {
            self.adopt_folder(ParentFolder::Shared(index), folder)?;
        }
        Ok(())
    }

    fn adopt_folder(
        &mut self,
        place: ParentFolder,
        found: &BTreeMap<Name, ServerObject>,
    ) -> Result<(), Fault> {
        for (name, f) in found {
            let Some(id) = self.names.get(&(place, name.clone())).copied() else {
                continue;
            };
            let object = self.change(id)?;
            object.fh.clone_from(&f.fh);
            object.fileid = f.attr.fileid;
            if let Kind::File(c) = &mut object.kind {
                c.adopt(f.content.clone());
            }
            self.adopt_folder(ParentFolder::Own(id), &f.children)?;
        }
        Ok(())
    }
}

/// A name for a person to read.
pub fn show(name: &[u8]) -> String {
    match name.get(..40) {
        Some(head) => format!("{}… ({} bytes)", head.escape_ascii(), name.len()),
        None => name.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(id: Id) -> Object {
        Object {
            kind: Kind::File(Content::default()),
            mode: Some(0o644),
            uid: None,
            gid: None,
            mtime: None,
            fh: vec![id as u8],
            fileid: u64::from(id),
        }
    }

    fn found(id: Id, nlink: u32) -> ServerObject {
        let attr = Fattr {
            kind: REG,
            mode: 0o644,
            nlink,
            fileid: u64::from(id),
            ..Fattr::default()
        };
        ServerObject {
            fh: vec![id as u8],
            attr,
            content: Vec::new(),
            target: Vec::new(),
            children: BTreeMap::new(),
        }
    }

    fn name(n: &str) -> QualifiedName {
        (ParentFolder::Shared(0), n.as_bytes().to_vec())
    }

    fn folder(entries: &[(&str, ServerObject)]) -> Vec<BTreeMap<Name, ServerObject>> {
        vec![
            entries
                .iter()
                .map(|(n, f)| (n.as_bytes().to_vec(), f.clone()))
                .collect(),
        ]
    }

    /// Two names of file 1, one of file 2.
    fn state() -> State {
        let mut s = State::default();
        s.objects.insert(1, Arc::new(file(1)));
        s.objects.insert(2, Arc::new(file(2)));
        s.names
            .extend([(name("a"), 1), (name("b"), 1), (name("c"), 2)]);
        s
    }

    #[test]
    fn the_same_is_admitted() {
        assert_eq!(
            state().admits(&folder(&[
                ("a", found(1, 2)),
                ("b", found(1, 2)),
                ("c", found(2, 1))
            ])),
            Ok(())
        );
    }

    #[test]
    fn every_difference_is_refused() {
        let s = state();
        let wrong_mode = ServerObject {
            attr: Fattr {
                mode: 0,
                ..found(2, 1).attr
            },
            ..found(2, 1)
        };
        for (why, f) in [
            (
                "a lost name",
                folder(&[("a", found(1, 2)), ("c", found(2, 1))]),
            ),
            (
                "a name too many",
                folder(&[
                    ("a", found(1, 2)),
                    ("b", found(1, 2)),
                    ("c", found(2, 1)),
                    ("d", found(3, 1)),
                ]),
            ),
            (
                "a broken link",
                folder(&[("a", found(1, 2)), ("b", found(3, 2)), ("c", found(2, 1))]),
            ),
            (
                "a link count",
                folder(&[("a", found(1, 1)), ("b", found(1, 1)), ("c", found(2, 1))]),
            ),
            (
                "an exchanged object",
                folder(&[("a", found(2, 2)), ("b", found(2, 2)), ("c", found(1, 1))]),
            ),
            (
                "a mode",
                folder(&[("a", found(1, 2)), ("b", found(1, 2)), ("c", wrong_mode)]),
            ),
        ] {
            assert!(s.admits(&f).is_err(), "{why} passed");
        }
    }

    #[test]
    fn the_last_name_takes_the_object_with_it() {
        let mut s = state();
        assert_eq!(s.unname(&name("a")), None);
        assert_eq!(s.unname(&name("b")), Some(1));
        assert_eq!(s.admits(&folder(&[("c", found(2, 1))])), Ok(()));
    }
}
