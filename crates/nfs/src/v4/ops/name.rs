//! Operations on names: LOOKUP, LOOKUPP, CREATE, REMOVE, RENAME, LINK.

use crate::v4::args::{Attrs, Make};
use crate::v4::cursor::{Access, Fh, Operand, OperationResult, Run};
use crate::v4::pseudo;
use crate::v4::status::Status;
use crate::v4::types::{StateId, put_change};
use weir_base::limits::MAX_NAME;
use weir_vfs::volume::{Attr, Change, CreateOut, Done, FileKind, SetAttr};
use weir_vfs::{ChargeProof, Error, FileId, FileRef, MetadataRead, MetadataWrite, OpContext, Stop};

/// Checks that an entry can have this name (§14.5). The directory checks the length.
pub(in crate::v4) fn check_name(name: &[u8]) -> Result<(), Status> {
    match name {
        [] => Err(Status::Inval),
        b"." | b".." => Err(Status::BadName),
        name if name.contains(&0) => Err(Status::BadChar),
        name if name.contains(&b'/') => Err(Status::BadName),
        name if name.len() > MAX_NAME => Err(Status::NameTooLong),
        _ => Ok(()),
    }
}

/// Looks up a name in a directory. Fails with NFS4ERR_SYMLINK in a link (§18.13.3).
fn found(
    dir: &Operand<'_, '_>,
    cx: &mut OpContext,
    charged: ChargeProof<MetadataRead>,
    name: &[u8],
) -> Result<(Attr, FileRef), Stop<Status>> {
    match dir.lookup(cx, charged, name) {
        Err(Stop::Failed(Error::NotDir)) => match dir.attr_at_hand(cx) {
            Some(attr) if attr.kind == FileKind::Symlink => Err(Status::Symlink.into()),
            _ => Err(Status::NotDir.into()),
        },
        found => {
            let (found, file) = found?;
            Ok((found.attr, file))
        }
    }
}

impl Run<'_> {
    /// Makes a file the current one.
    pub(in crate::v4) fn goes_to(&mut self, file: FileId) {
        self.c.current = Fh::File(file);
        self.c.state = StateId::ANONYMOUS;
    }

    /// LOOKUP (§18.13): a name in the current directory.
    pub(in crate::v4) fn lookup(&mut self, name: &[u8]) -> OperationResult {
        let before = (self.c.current, self.c.state);
        self.step_to(name)?;
        let outcome = match before.0 {
            Fh::Pseudo(_) => self.right_flavour(),
            // All files of a volume have the same rule.
            _ => Ok(Status::Ok),
        };
        if outcome.is_err() {
            // A suspended operation is run again from where it began.
            (self.c.current, self.c.state) = before;
        }
        outcome
    }

    /// Looks up a name in the current directory and makes the result the current file, whatever
    /// flavour it requires.
    pub(in crate::v4) fn step_to(&mut self, name: &[u8]) -> OperationResult {
        let here = self.here()?;
        check_name(name)?;
        match here {
            Fh::Pseudo(number) => {
                let pseudo = self.pseudo();
                let node = pseudo.node(number).ok_or(Status::Stale)?;
                let below = node.children.get(name).copied().ok_or(Status::NoEnt)?;
                if !self.sees(&pseudo, below) {
                    return Err(Status::NoEnt.into());
                }
                self.c.current = self.crossed(&pseudo, below);
                self.c.state = StateId::ANONYMOUS;
            }
            Fh::File(dir) => {
                let (operand, charged) = self.enter(dir, Access::Mode(None), MetadataRead)?;
                let (attr, file) = found(&operand, &mut self.c.cx, charged, name)?;
                let file = FileId {
                    volume: dir.volume,
                    ino: file.ino,
                    namespace: file.namespace,
                };
                self.goes_to(file);
                self.note_seen(file, &attr);
            }
            Fh::None => unreachable!("a handle that was tested"),
        }
        Ok(Status::Ok)
    }

    /// Returns the export that covers a directory of the pseudo file system, or the directory
    /// itself.
    pub(in crate::v4) fn crossed(&self, pseudo: &pseudo::Pseudo, number: u64) -> Fh {
        let export = pseudo.node(number).and_then(|node| node.export);
        let export = export.and_then(|volume| self.table.of_volume(volume));
        export.map_or(Fh::Pseudo(number), |export| Fh::File(export.root()))
    }

    /// LOOKUPP (§18.14). The parent of an export's root is the parent of the directory that the
    /// export covers.
    pub(in crate::v4) fn lookupp(&mut self) -> OperationResult {
        match self.here()? {
            Fh::Pseudo(number) => {
                let pseudo = self.pseudo();
                let node = pseudo.node(number).ok_or(Status::Stale)?;
                if node.parent == number {
                    return Err(Status::NoEnt.into());
                }
                self.c.current = Fh::Pseudo(node.parent);
                self.c.state = StateId::ANONYMOUS;
            }
            Fh::File(file) => {
                let (operand, charged) = self.enter(file, Access::Mode(None), MetadataRead)?;
                if operand.is_live_root() {
                    let pseudo = self.pseudo();
                    let covered = self.covered(file.volume);
                    let above = covered.and_then(|number| pseudo.node(number));
                    let above = above.ok_or(Status::NoEnt)?.parent;
                    self.c.current = Fh::Pseudo(above);
                    self.c.state = StateId::ANONYMOUS;
                    return Ok(Status::Ok);
                }
                let (_, up) = found(&operand, &mut self.c.cx, charged, b"..")?;
                self.goes_to(FileId {
                    volume: file.volume,
                    ino: up.ino,
                    namespace: up.namespace,
                });
            }
            Fh::None => unreachable!("a handle that was tested"),
        }
        Ok(Status::Ok)
    }

    pub(in crate::v4) fn put_dir_change(&mut self, change: &Change) {
        put_change(&mut self.c.out, change.before.change, change.after.change);
    }

    /// CREATE (§18.4): creates anything but a regular file.
    pub(in crate::v4) fn create(
        &mut self,
        make: &Make<'_>,
        name: &[u8],
        a: &Attrs<'_>,
    ) -> OperationResult {
        let here = self.here()?;
        if matches!(make, Make::Other(_)) {
            return Err(Status::BadType.into());
        }
        check_name(name)?;
        let new = self.new_attrs(a, true)?;
        let Fh::File(dir) = here else {
            return Err(Status::RoFs.into());
        };
        if new.set.size.is_some() {
            return Err(Status::Inval.into());
        }
        let list = self.new_list(&new, a)?;
        let mut attrs: SetAttr = new.combine_with((0, 0));
        if matches!(make, Make::Link(_)) {
            // Linux sends the umask with every CREATE; it does not apply to a link, whose mode is
            // 0777 on every local file system.
            attrs.mode = None;
        }
        let client = self.client();
        let (operand, charged) = self.enter(dir, client.outside(), MetadataWrite)?;
        let operand = operand.with_list(list);
        let cx = &mut self.c.cx;
        let mknod = |cx, charged, kind, rdev| operand.mknod(cx, charged, name, kind, rdev, &attrs);
        let done: Done<CreateOut> = match *make {
            Make::Directory => operand.mkdir(cx, charged, name, &attrs)?,
            Make::Link(target) => operand.symlink(cx, charged, name, target, &attrs)?,
            Make::Block(major, minor) => mknod(cx, charged, FileKind::Block, (major, minor))?,
            Make::Char(major, minor) => mknod(cx, charged, FileKind::Char, (major, minor))?,
            Make::Socket => mknod(cx, charged, FileKind::Socket, (0, 0))?,
            Make::Fifo => mknod(cx, charged, FileKind::Fifo, (0, 0))?,
            Make::Other(_) => unreachable!("refused before"),
        };
        self.c.wait_for(done.lsn);
        let file = operand.near(done.value.ino);
        self.put_dir_change(&done.value.dir);
        new.mask.put(&mut self.c.out);
        let file = FileId {
            volume: dir.volume,
            ino: file.ino,
            namespace: file.namespace,
        };
        self.goes_to(file);
        self.note_seen(file, &done.value.attr);
        Ok(Status::Ok)
    }

    /// REMOVE (§18.25): removes files and directories.
    pub(in crate::v4) fn remove(&mut self, name: &[u8]) -> OperationResult {
        let here = self.here()?;
        check_name(name)?;
        let Fh::File(dir) = here else {
            return Err(Status::RoFs.into());
        };
        let client = self.client();
        let (operand, charged) = self.enter(dir, client.outside(), MetadataWrite)?;
        let done = operand.remove_any(&mut self.c.cx, charged, name)?;
        self.c.wait_for(done.lsn);
        self.put_dir_change(&done.value.dir);
        Ok(Status::Ok)
    }

    /// Returns the two files of an operation: the saved one and the current one.
    fn both(&self) -> Result<(FileId, FileId), Status> {
        let here = self.here()?;
        match (self.c.saved, here) {
            (Fh::None, _) => Err(Status::NoFileHandle),
            (Fh::File(saved), Fh::File(current)) => Ok((saved, current)),
            (Fh::Pseudo(_), Fh::Pseudo(_)) => Err(Status::RoFs),
            _ => Err(Status::XDev),
        }
    }

    /// RENAME (§18.26): moves from the saved directory into the current one.
    pub(in crate::v4) fn rename(&mut self, from: &[u8], to: &[u8]) -> OperationResult {
        let (source, target) = self.both()?;
        check_name(from)?;
        check_name(to)?;
        let client = self.client();
        let access = client.outside();
        let admitted = self.admit(target, access)?;
        let (operand, charged) = self.enter(source, access, MetadataWrite)?;
        let target = operand.beside(&mut self.c.cx, admitted)?;
        let done = operand.rename(&mut self.c.cx, charged, from, &target, to)?;
        self.c.wait_for(done.lsn);
        self.put_dir_change(&done.value.from);
        self.put_dir_change(&done.value.to);
        Ok(Status::Ok)
    }

    /// LINK (§18.9): links the saved file into the current directory.
    pub(in crate::v4) fn link(&mut self, name: &[u8]) -> OperationResult {
        let (file, dir) = self.both()?;
        check_name(name)?;
        let client = self.client();
        let access = client.outside();
        let admitted = self.admit(dir, access)?;
        let (operand, charged) = self.enter(file, access, MetadataWrite)?;
        let dir = operand.beside(&mut self.c.cx, admitted)?;
        let done = operand.link(&mut self.c.cx, charged, &dir, name)?;
        self.c.wait_for(done.lsn);
        self.put_dir_change(&done.value.dir);
        Ok(Status::Ok)
    }
}
