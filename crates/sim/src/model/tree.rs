//! The reference model: the state of a POSIX-like file tree with NFSv3's rules after a sequence of
//! operations.
//!
//! Plain maps and no concurrency: slow, obvious, and therefore believable. [`Model::apply`]
//! predicts the result of an operation and performs it. Where RFC 1813 leaves a choice of error the
//! prediction is a set.
//!
//! For crash tests the model also knows what may be lost: contents keep unsettled predecessors (see
//! [`super::content`]) and attributes that an UNSTABLE write moved keep the earlier triple of size,
//! mtime and ctime.

mod beyond;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::Time;
use weir_base::limits::{MAX_FILE_SIZE, MAX_NAME, MAX_SYMLINK};

use super::content::Content;
use super::errors::{
    Answer, DOT_EXISTS, DOT_GONE, EXISTS, NAME_TOO_LONG, NOT_DIR, NOT_FOUND, STALE, TOO_BIG,
    check_name, none_of, not_a_file,
};
use super::op::{
    CreateMode, Data, Errno, Errors, Guard, Kind, Name, Op, ROOT, Set, SetTo, Slot, Stable,
};

pub use beyond::listed_xattrs;

/// Kind of a node, with the data that only that kind has.
#[derive(Clone, Debug)]
pub enum Body {
    /// Regular file with its content.
    File(Content),
    /// Directory: entries and parent.
    Dir {
        /// Entries, by name, to the object.
        entries: BTreeMap<Name, Slot>,
        /// The directory it is entered in; the root's parent is the root.
        parent: Slot,
    },
    /// Symbolic link with its target.
    Symlink(Vec<u8>),
    /// Device node, FIFO or socket.
    Special(Kind),
}

/// Size, mtime and ctime: what an UNSTABLE write changes besides data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteAttr {
    /// Length of the content in bytes.
    pub size: u64,
    /// Modification time of the content.
    pub mtime: Time,
    /// Change time of the attributes.
    pub ctime: Time,
}

/// An object of the tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// Kind of the object, and its content.
    pub body: Body,
    /// Permission bits, set-ID and sticky bits included.
    pub mode: u32,
    /// Numeric id of the owner.
    pub uid: u32,
    /// Numeric id of the group.
    pub gid: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Device numbers: major and minor.
    pub rdev: (u32, u32),
    /// Size, mtime, ctime. The size means something only for files and symbolic links.
    pub moved: WriteAttr,
    /// Earlier values of `moved` that a crash may bring back.
    pub unsettled: Vec<WriteAttr>,
    /// Access time, while it is known exactly.
    pub atime: Option<Time>,
    /// Verifier of an exclusive creation.
    pub verifier: Option<[u8; 8]>,
    /// Extended attributes by name.
    pub xattrs: BTreeMap<Name, Data>,
    /// True if the object is open, and so lives on without a name.
    pub open: bool,
    /// True for a link that was made of a directory.
    pub of_directory: bool,
}

impl Node {
    /// The kind, derived from the body.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) => Kind::File,
            Body::Dir { .. } => Kind::Dir,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(kind) => *kind,
        }
    }

    fn touch(&mut self, now: Time) {
        self.moved.mtime = now;
        self.moved.ctime = now;
    }

    /// The attributes are in the log from now on.
    fn mark_logged(&mut self) {
        self.unsettled.clear();
    }

    /// Number of entries, if it is a directory.
    #[must_use]
    pub fn entries(&self) -> Option<&BTreeMap<Name, Slot>> {
        match &self.body {
            Body::Dir { entries, .. } => Some(entries),
            _ => None,
        }
    }
}

/// Expected results of a successful operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// The object that was created or found.
    pub object: Option<Slot>,
    /// Objects with attributes before and after in the reply (weak cache consistency data), in the
    /// order of the protocol's reply. The state after is the model's present one.
    pub changed: Vec<Slot>,
    /// Bytes read, or a link's target.
    pub data: Option<Vec<u8>>,
    /// End of file reached by a READ.
    pub eof: Option<bool>,
    /// Whole directory listing, `.` and `..` excluded.
    pub listing: Option<BTreeMap<Name, Slot>>,
}

/// Rules that a layer adds to the engine's plain semantics.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Mode of a new file, directory and symbolic link created without one.
    pub modes: [u32; 3],
    /// True if set-group-ID directories pass their group on, and a change of owner clears
    /// set-user-ID and set-group-ID.
    pub unix: bool,
}

/// The model of one volume.
#[derive(Clone, Debug)]
pub struct Model {
    nodes: BTreeMap<Slot, Arc<Node>>,
    rules: Rules,
}

impl Rules {
    /// The rules of the engine.
    pub const ENGINE: Rules = Rules {
        modes: [0, 0, 0o777],
        unix: false,
    };

    /// The rules of the protocols' common layer.
    pub const VFS: Rules = Rules {
        modes: [0o600, 0o700, 0o777],
        unix: true,
    };
}

/// Attributes that the root directory is created with.
#[derive(Clone, Copy, Debug)]
pub struct RootAttr {
    /// Permission bits of the root.
    pub mode: u32,
    /// Numeric id of the owner.
    pub uid: u32,
    /// Numeric id of the group.
    pub gid: u32,
    /// Access, modification and change time.
    pub time: Time,
}

impl Model {
    /// An empty volume: the root directory only.
    #[must_use]
    pub fn new(root: RootAttr, rules: Rules) -> Model {
        let node = Node {
            body: Body::Dir {
                entries: BTreeMap::new(),
                parent: ROOT,
            },
            mode: root.mode,
            uid: root.uid,
            gid: root.gid,
            nlink: 2,
            rdev: (0, 0),
            moved: WriteAttr {
                size: 0,
                mtime: root.time,
                ctime: root.time,
            },
            unsettled: Vec::new(),
            atime: None,
            verifier: None,
            xattrs: BTreeMap::new(),
            open: false,
            of_directory: false,
        };
        Model {
            nodes: BTreeMap::from([(ROOT, Arc::new(node))]),
            rules,
        }
    }

    /// The object, if it lives.
    #[must_use]
    pub fn node(&self, slot: Slot) -> Option<&Node> {
        self.nodes.get(&slot).map(|node| &**node)
    }

    /// Every living object with its slot.
    pub fn nodes(&self) -> impl Iterator<Item = (Slot, &Node)> {
        self.nodes.iter().map(|(slot, node)| (*slot, &**node))
    }

    /// Number of living objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// A model always has its root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn live(&self, slot: Slot) -> Answer<&Node> {
        self.node(slot).ok_or(STALE)
    }

    fn dir(&self, slot: Slot) -> Answer<&BTreeMap<Name, Slot>> {
        self.live(slot)?.entries().ok_or(NOT_DIR)
    }

    fn node_mut(&mut self, slot: Slot) -> &mut Node {
        let node = self.nodes.get_mut(&slot);
        // Callers validated the slot; a model that contradicts itself must stop the test.
        Arc::make_mut(node.unwrap_or_else(|| unreachable!("slot {slot:?} was checked")))
    }

    fn entries_mut(&mut self, slot: Slot) -> &mut BTreeMap<Name, Slot> {
        match &mut self.node_mut(slot).body {
            Body::Dir { entries, .. } => entries,
            _ => unreachable!("slot {slot:?} was checked to be a directory"),
        }
    }

    fn lookup(&self, dir: Slot, name: &[u8]) -> Answer<Slot> {
        let node = self.live(dir)?;
        let Body::Dir { entries, parent } = &node.body else {
            return Err(NOT_DIR);
        };
        if name == b"." {
            return Ok(dir);
        }
        if name == b".." {
            return Ok(*parent);
        }
        if name.len() > MAX_NAME {
            return Err(NAME_TOO_LONG);
        }
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Err(Errors::from_list(&[
                Errno::NotFound,
                Errno::Invalid,
                Errno::Access,
            ]));
        }
        entries.get(name).copied().ok_or(NOT_FOUND)
    }

    /// Predicts what `op` returns at time `now`, and performs it. `id` becomes the slot of a
    /// created object.
    ///
    /// # Errors
    /// The set of acceptable errors, if the operation must fail; nothing is changed then.
    pub fn apply(&mut self, op: &Op, now: Time, id: Slot) -> Answer<Expect> {
        match op {
            Op::Lookup { dir, name } => Ok(Expect {
                object: Some(self.lookup(*dir, name)?),
                ..Expect::default()
            }),
            Op::Getattr { object } => {
                self.live(*object)?;
                Ok(Expect {
                    object: Some(*object),
                    ..Expect::default()
                })
            }
            Op::Setattr { object, set, guard } => self.setattr(*object, set, *guard, now),
            Op::Readlink { object } => {
                let Body::Symlink(target) = &self.live(*object)?.body else {
                    return Err(Errors::from_list(&[Errno::Invalid]));
                };
                let data = Some(target.clone());
                self.node_mut(*object).atime = None;
                Ok(Expect {
                    data,
                    ..Expect::default()
                })
            }
            Op::Read {
                object,
                offset,
                len,
            } => self.read(*object, *offset, *len),
            Op::Write {
                object,
                offset,
                data,
                stable,
            } => {
                let bytes = data.bytes();
                self.write(*object, *offset, &bytes, *stable, now)
            }
            Op::Commit {
                object,
                offset,
                len,
            } => self.commit(*object, *offset, *len),
            Op::Create {
                dir,
                name,
                how,
                set,
            } => self.create(*dir, name, *how, set, now, id),
            Op::Mkdir { dir, name, set } => {
                let body = Body::Dir {
                    entries: BTreeMap::new(),
                    parent: *dir,
                };
                self.make(*dir, name, body, (0, 0), set, now, id)
            }
            Op::Symlink {
                dir,
                name,
                target,
                set,
            } => {
                let length = match target.len() {
                    0 => Some(Errors::from_list(&[Errno::Invalid, Errno::NotFound])),
                    1..=MAX_SYMLINK => None,
                    _ => Some(Errors::from_list(&[Errno::NameTooLong, Errno::Invalid])),
                };
                let exists = self.lookup(*dir, name).is_ok().then_some(EXISTS);
                none_of(&[self.room_for(*dir, name).err(), exists, length])?;
                self.make(
                    *dir,
                    name,
                    Body::Symlink(target.to_vec()),
                    (0, 0),
                    set,
                    now,
                    id,
                )
            }
            Op::Mknod {
                dir,
                name,
                kind,
                rdev,
                set,
            } => self.make(*dir, name, Body::Special(*kind), *rdev, set, now, id),
            Op::Remove { dir, name } => self.remove(*dir, name, now),
            Op::Rmdir { dir, name } => self.rmdir(*dir, name, now),
            Op::Rename {
                from_dir,
                from,
                to_dir,
                to,
            } => self.rename(*from_dir, from, *to_dir, to, now),
            Op::Link { object, dir, name } => self.link(*object, *dir, name, now),
            Op::Punch { .. }
            | Op::Clone { .. }
            | Op::Convert { .. }
            | Op::SetXattr { .. }
            | Op::Xattrs { .. }
            | Op::Open { .. } => self.beyond(op, now),
            Op::Readdir { dir, .. } => {
                let listing = Some(self.dir(*dir)?.clone());
                self.node_mut(*dir).atime = None;
                Ok(Expect {
                    listing,
                    ..Expect::default()
                })
            }
        }
    }

    fn setattr(&mut self, slot: Slot, set: &Set, guard: Guard, now: Time) -> Answer<Expect> {
        let node = self.live(slot);
        let too_big = set.size.is_some_and(|size| size > MAX_FILE_SIZE);
        none_of(&[
            node.err(),
            set.size.and_then(|_| not_a_file(node.ok()?)),
            too_big.then_some(TOO_BIG),
            (guard == Guard::Wrong).then_some(Errors::from_list(&[Errno::NotSync])),
        ])?;
        let expect = Expect {
            changed: vec![slot],
            ..Expect::default()
        };
        let clears = self.rules.unix && (set.uid.is_some() || set.gid.is_some());
        let node = self.node_mut(slot);
        assign(node, set, now);
        if clears && node.kind() != Kind::Dir {
            let group = if node.mode & 0o010 != 0 { 0o2000 } else { 0 };
            node.mode &= !(0o4000 | group);
        }
        node.moved.ctime = now;
        node.mark_logged();
        Ok(expect)
    }

    /// Returns the rules, which differ from protocol to protocol.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Forgets all opens, as a stopped machine does.
    pub fn forget_opens(&mut self) {
        for node in self.nodes.values_mut().filter(|node| node.open) {
            Arc::make_mut(node).open = false;
        }
    }

    fn read(&mut self, slot: Slot, offset: u64, len: u32) -> Answer<Expect> {
        let node = self.live(slot)?;
        let size = node.moved.size;
        none_of(&[not_a_file(node)])?;
        let Body::File(content) = &node.body else {
            return Err(STALE);
        };
        let end = offset.saturating_add(u64::from(len)).min(size);
        let len = end.saturating_sub(offset) as usize;
        let data = content.read(offset.min(size), len);
        self.node_mut(slot).atime = None;
        Ok(Expect {
            data: Some(data),
            eof: Some(end >= size || offset >= size),
            ..Expect::default()
        })
    }

    fn write(
        &mut self,
        slot: Slot,
        offset: u64,
        data: &[u8],
        stable: Stable,
        now: Time,
    ) -> Answer<Expect> {
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= MAX_FILE_SIZE);
        none_of(&[
            self.live(slot).err(),
            self.live(slot).ok().and_then(not_a_file),
            end.is_none().then_some(TOO_BIG),
        ])?;
        let end = end.unwrap_or(0);
        let expect = Expect {
            changed: vec![slot],
            ..Expect::default()
        };
        if data.is_empty() {
            return Ok(expect);
        }
        let node = self.node_mut(slot);
        let before = node.moved;
        node.moved.size = before.size.max(end);
        node.touch(now);
        if stable == Stable::Unstable {
            node.unsettled.push(before);
        } else {
            node.mark_logged();
        }
        if let Body::File(content) = &mut node.body {
            content.write(offset, data, stable != Stable::Unstable);
        }
        Ok(expect)
    }

    fn commit(&mut self, slot: Slot, offset: u64, len: u32) -> Answer<Expect> {
        none_of(&[not_a_file(self.live(slot)?)])?;
        let node = self.node_mut(slot);
        // "If count is 0, a flush from offset to the end of the file is done" (RFC 1813 §3.3.21).
        let end = if len == 0 {
            u64::MAX
        } else {
            offset.saturating_add(u64::from(len))
        };
        if let Body::File(content) = &mut node.body {
            content.mark_stable(offset, end);
            if content.is_settled() {
                node.mark_logged();
            }
        }
        Ok(Expect {
            changed: vec![slot],
            ..Expect::default()
        })
    }

    fn create(
        &mut self,
        dir: Slot,
        name: &[u8],
        how: CreateMode,
        set: &Set,
        now: Time,
        id: Slot,
    ) -> Answer<Expect> {
        self.room_for(dir, name)?;
        if let Ok(existing) = self.lookup(dir, name) {
            let node = self.live(existing)?;
            let found = Expect {
                object: Some(existing),
                changed: vec![dir],
                ..Expect::default()
            };
            return match how {
                CreateMode::Guarded => Err(EXISTS),
                CreateMode::Exclusive(verifier) if node.verifier == Some(verifier) => Ok(found),
                CreateMode::Exclusive(_) => Err(EXISTS),
                CreateMode::Unchecked if node.kind() != Kind::File => {
                    Err(Errors::from_list(&[Errno::Exists, Errno::IsDir]))
                }
                CreateMode::Unchecked => {
                    // Of the attributes only a length is applied to a file that was there already,
                    // as open(O_TRUNC) does and as other servers do.
                    if let Some(size) = set.size {
                        if size > MAX_FILE_SIZE {
                            return Err(Errors::from_list(&[Errno::FileTooBig, Errno::Invalid]));
                        }
                        let only_size = Set {
                            size: Some(size),
                            ..Set::default()
                        };
                        let node = self.node_mut(existing);
                        assign(node, &only_size, now);
                        node.moved.ctime = now;
                        node.mark_logged();
                    }
                    Ok(found)
                }
            };
        }
        if set.size.is_some_and(|size| size > MAX_FILE_SIZE) {
            return Err(Errors::from_list(&[Errno::FileTooBig, Errno::Invalid]));
        }
        let set = match how {
            // RFC 1813 §3.3.8: no attributes come with an exclusive creation.
            CreateMode::Exclusive(_) => Set::default(),
            _ => *set,
        };
        let expect = self.make(
            dir,
            name,
            Body::File(Content::default()),
            (0, 0),
            &set,
            now,
            id,
        )?;
        if let CreateMode::Exclusive(verifier) = how {
            self.node_mut(id).verifier = Some(verifier);
        }
        Ok(expect)
    }

    /// Checks that an entry of this name could be made in `dir`, if it does not exist yet.
    fn room_for(&self, dir: Slot, name: &[u8]) -> Answer<()> {
        none_of(&[self.dir(dir).err(), check_name(name, DOT_EXISTS).err()])
    }

    #[allow(clippy::too_many_arguments)] // The fields of the creating calls of RFC 1813, one to one.
    fn make(
        &mut self,
        dir: Slot,
        name: &[u8],
        body: Body,
        rdev: (u32, u32),
        set: &Set,
        now: Time,
        id: Slot,
    ) -> Answer<Expect> {
        self.room_for(dir, name)?;
        if self.lookup(dir, name).is_ok() {
            return Err(EXISTS);
        }
        let is_dir = matches!(body, Body::Dir { .. });
        let size = match &body {
            Body::Symlink(target) => target.len() as u64,
            _ => 0,
        };
        let mut node = Node {
            mode: self.default_mode(&body),
            body,
            uid: 0,
            gid: 0,
            nlink: if is_dir { 2 } else { 1 },
            rdev,
            moved: WriteAttr {
                size,
                mtime: now,
                ctime: now,
            },
            unsettled: Vec::new(),
            atime: Some(now),
            verifier: None,
            xattrs: BTreeMap::new(),
            open: false,
            of_directory: false,
        };
        let parent = self.live(dir)?;
        let mut set = *set;
        if self.rules.unix && parent.mode & 0o2000 != 0 {
            node.gid = parent.gid;
            if is_dir {
                set.mode = Some(set.mode.unwrap_or(node.mode) | 0o2000);
            }
        }
        if node.kind() != Kind::File {
            set.size = None;
        }
        assign(&mut node, &set, now);
        if set.mtime == SetTo::Keep {
            node.moved.mtime = now;
        }
        self.nodes.insert(id, Arc::new(node));
        self.entries_mut(dir).insert(name.into(), id);
        let parent = self.node_mut(dir);
        parent.touch(now);
        if is_dir {
            parent.nlink += 1;
        }
        Ok(Expect {
            object: Some(id),
            changed: vec![dir],
            ..Expect::default()
        })
    }

    fn default_mode(&self, body: &Body) -> u32 {
        let [file, dir, link] = self.rules.modes;
        match body {
            Body::Dir { .. } => dir,
            Body::Symlink(_) => link,
            _ => file,
        }
    }

    /// Removes a link to `slot`, and the object with its last link unless it is open.
    fn unlink(&mut self, slot: Slot, now: Time) {
        let node = self.node_mut(slot);
        if node.kind() == Kind::Dir || node.nlink == 1 && !node.open {
            self.nodes.remove(&slot);
        } else {
            node.nlink -= 1;
            node.moved.ctime = now;
            node.mark_logged();
        }
    }

    fn remove(&mut self, dir: Slot, name: &[u8], now: Time) -> Answer<Expect> {
        none_of(&[self.dir(dir).err(), check_name(name, DOT_GONE).err()])?;
        let slot = self.lookup(dir, name)?;
        if self.live(slot)?.kind() == Kind::Dir {
            return Err(Errors::from_list(&[Errno::IsDir, Errno::Perm]));
        }
        self.entries_mut(dir).remove(name);
        self.node_mut(dir).touch(now);
        self.unlink(slot, now);
        Ok(Expect {
            changed: vec![dir],
            ..Expect::default()
        })
    }

    fn rmdir(&mut self, dir: Slot, name: &[u8], now: Time) -> Answer<Expect> {
        none_of(&[self.dir(dir).err(), check_name(name, DOT_GONE).err()])?;
        let slot = self.lookup(dir, name)?;
        if !self.dir(slot)?.is_empty() {
            return Err(Errors::from_list(&[Errno::NotEmpty]));
        }
        self.entries_mut(dir).remove(name);
        let parent = self.node_mut(dir);
        parent.touch(now);
        parent.nlink -= 1;
        self.unlink(slot, now);
        Ok(Expect {
            changed: vec![dir],
            ..Expect::default()
        })
    }

    /// Returns true if `dir` is `ancestor` or below it.
    fn is_below(&self, mut dir: Slot, ancestor: Slot) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            match self.node(dir).map(|node| &node.body) {
                Some(Body::Dir { parent, .. }) if *parent != dir => dir = *parent,
                _ => return false,
            }
        }
    }

    /// Returns the errors for which `slot` cannot become `to` in `to_dir`.
    fn rename_fault(&self, slot: Slot, to_dir: Slot, to: &[u8]) -> Option<Errors> {
        let moved_dir = self.node(slot)?.kind() == Kind::Dir;
        let below = moved_dir && self.is_below(to_dir, slot);
        let target = self
            .dir(to_dir)
            .ok()?
            .get(to)
            .filter(|target| **target != slot);
        let over = match target
            .and_then(|target| self.node(*target))
            .map(Node::entries)
        {
            Some(None) if moved_dir => Errors::from_list(&[Errno::NotDir, Errno::Exists]),
            Some(Some(_)) if !moved_dir => Errors::from_list(&[Errno::IsDir, Errno::Exists]),
            Some(Some(entries)) if !entries.is_empty() => {
                Errors::from_list(&[Errno::NotEmpty, Errno::Exists])
            }
            _ => Errors::NONE,
        };
        let below = if below {
            Errors::from_list(&[Errno::Invalid])
        } else {
            Errors::NONE
        };
        let bits = over.bits() | below.bits();
        (bits != 0).then_some(Errors::from_bits(bits))
    }

    fn rename(
        &mut self,
        from_dir: Slot,
        from: &[u8],
        to_dir: Slot,
        to: &[u8],
        now: Time,
    ) -> Answer<Expect> {
        let mut faults = vec![
            self.dir(from_dir).err(),
            self.dir(to_dir).err(),
            check_name(from, DOT_GONE).err(),
            check_name(to, DOT_GONE).err(),
            self.lookup(from_dir, from).err(),
        ];
        if let Ok(slot) = self.lookup(from_dir, from) {
            faults.push(self.rename_fault(slot, to_dir, to));
        }
        none_of(&faults)?;
        let slot = self.lookup(from_dir, from)?;
        let moved_dir = self.live(slot)?.kind() == Kind::Dir;
        let changed = vec![from_dir, to_dir];
        let target = self.dir(to_dir)?.get(to).copied();
        if let Some(target) = target {
            if target == slot {
                // Two names of one file: "rename should perform no action and return NFS3_OK" (RFC
                // 1813 §3.3.14).
                return Ok(Expect {
                    changed,
                    ..Expect::default()
                });
            }
            self.entries_mut(to_dir).remove(to);
            if moved_dir {
                self.node_mut(to_dir).nlink -= 1;
            }
            self.unlink(target, now);
        }
        self.entries_mut(from_dir).remove(from);
        self.entries_mut(to_dir).insert(to.into(), slot);
        if moved_dir {
            self.node_mut(from_dir).nlink -= 1;
            self.node_mut(to_dir).nlink += 1;
            if let Body::Dir { parent, .. } = &mut self.node_mut(slot).body {
                *parent = to_dir;
            }
        }
        self.node_mut(from_dir).touch(now);
        self.node_mut(to_dir).touch(now);
        let node = self.node_mut(slot);
        node.moved.ctime = now;
        node.mark_logged();
        Ok(Expect {
            changed,
            ..Expect::default()
        })
    }

    fn link(&mut self, slot: Slot, dir: Slot, name: &[u8], now: Time) -> Answer<Expect> {
        let faults = [
            self.live(slot).err(),
            self.dir(dir).err(),
            check_name(name, DOT_EXISTS).err(),
            self.live(slot)
                .is_ok_and(|node| node.kind() == Kind::Dir)
                .then(|| Errors::from_list(&[Errno::IsDir, Errno::Perm, Errno::Invalid])),
            self.lookup(dir, name).is_ok().then_some(EXISTS),
            self.live(slot)
                .is_ok_and(|node| node.nlink == 0)
                .then_some(STALE),
        ];
        none_of(&faults)?;
        self.entries_mut(dir).insert(name.into(), slot);
        self.node_mut(dir).touch(now);
        let node = self.node_mut(slot);
        node.nlink += 1;
        node.moved.ctime = now;
        node.mark_logged();
        Ok(Expect {
            object: Some(slot),
            changed: vec![dir],
            ..Expect::default()
        })
    }

    /// Forgets all access times, which may have moved when everything was read.
    pub fn forget_access_times(&mut self) {
        for node in self.nodes.values_mut() {
            Arc::make_mut(node).atime = None;
        }
    }

    /// A crash came and went: `slot` was found with this size, mtime and ctime, which are stable
    /// now.
    pub fn adopt_moved(&mut self, slot: Slot, found: WriteAttr) {
        let node = self.node_mut(slot);
        node.moved = found;
        node.mark_logged();
        node.atime = None;
        if let Body::File(content) = &mut node.body {
            content.truncate(found.size);
        }
    }

    /// A crash came and went: page `index` of file `slot` holds `found`.
    pub fn adopt_page(&mut self, slot: Slot, index: u64, found: &[u8]) {
        if let Body::File(content) = &mut self.node_mut(slot).body {
            content.adopt(index, found);
        }
    }
}

/// Applies settable attributes; the caller moves ctime.
fn assign(node: &mut Node, set: &Set, now: Time) {
    if let Some(mode) = set.mode {
        node.mode = mode & 0o7777;
    }
    if let Some(uid) = set.uid {
        node.uid = uid;
    }
    if let Some(gid) = set.gid {
        node.gid = gid;
    }
    if let Some(size) = set.size {
        if let Body::File(content) = &mut node.body {
            content.truncate(size);
        }
        // POSIX leaves it open whether a truncation to the present size moves the time; this and
        // Linux' server do not.
        if size != node.moved.size {
            node.moved.size = size;
            node.moved.mtime = now;
        }
    }
    match set.atime {
        SetTo::Keep => {}
        SetTo::Server => node.atime = Some(now),
        SetTo::Client(time) => node.atime = Some(time),
    }
    match set.mtime {
        SetTo::Keep => {}
        SetTo::Server => node.moved.mtime = now,
        SetTo::Client(time) => node.moved.mtime = time,
    }
}
