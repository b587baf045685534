//! Reads and changes of access control lists.
//!
//! Attributes that a volume returns say whether the inode has a list, not what is in it. Before
//! they are checked, [`Operand::guard`] reads the list and puts what it grants the caller in the
//! attributes; without a list that costs one comparison.
//!
//! **NTFS style.** The permissions of such a volume are those of Windows. Only clients of SMB set
//! them, and they are the list's; NFS is shown the mode that they come to. Everything has a list
//! from the beginning, but for the root of a new volume, which is treated as if it had one by which
//! everyone may do everything and passes that on. Its mode says the same (0777).

use crate::EngineContext;
use crate::access::{self, S_ISVTX, W, X, grants, owns};
use crate::acl::{Acl, Principal, mask};
use crate::claims::{Actor, Style};
use crate::conflict;
use crate::error::{Error, Halt, OpResult};
use crate::handle::Namespace;
use crate::pipeline::{ChargeProof, MetadataWrite, OpContext, Operand};
use crate::session::AccessModel;
use crate::snapshot_dir::ReadSource;
use weir_base::Ino;
use weir_volume::{Attr, Change, Done, FileKind, Guard, SetAttr, SetTime};

impl<A: AccessModel> Operand<'_, A> {
    /// Returns true if the volume's permissions are those of Windows.
    pub(crate) fn is_ntfs(&self) -> bool {
        self.export.style == Style::Ntfs
    }

    /// Returns true if it is the root of a volume of NTFS style that has no list yet.
    fn is_new_root(&self, attr: &Attr) -> bool {
        self.is_ntfs() && attr.guard == Guard::Mode && attr.ino == self.export.volume.root()
    }

    /// Refuses to change owner and permissions where only clients of SMB do.
    pub(crate) fn may_set_permissions(&self) -> Result<(), Error> {
        let over_smb = matches!(self.access.actor(), Actor::Mandatory { .. });
        match self.is_ntfs() && !over_smb {
            true => Err(Error::Perm),
            false => Ok(()),
        }
    }

    /// Checks a SETATTR, and returns the part that is to be set. What is there already may be asked
    /// for. The mode that comes with both times is the one that a file is made with, behind an
    /// exclusive CREATE of NFSv3 (RFC 1813 §3.3.8), and is passed over.
    pub(crate) fn settable(&self, attr: &Attr, set: &SetAttr) -> Result<SetAttr, Error> {
        let mut set = *set;
        if self.may_set_permissions().is_ok() {
            return Ok(set);
        }
        if !matches!(set.atime, SetTime::Keep) && !matches!(set.mtime, SetTime::Keep) {
            set.mode = None;
        }
        let mode = set.mode.is_some_and(|mode| mode & 0o7777 != attr.mode);
        let owner = set.uid.is_some_and(|uid| uid != attr.uid);
        let group = set.gid.is_some_and(|gid| gid != attr.gid);
        match mode || owner || group {
            true => Err(Error::Perm),
            false => Ok(set),
        }
    }

    /// Puts what the inode's list grants the caller in its attributes, if it has one.
    #[inline]
    pub(crate) fn guard(&self, cx: &mut EngineContext, attr: &mut Attr) -> Result<(), Halt> {
        match attr.guard {
            Guard::Mode if self.is_new_root(attr) => self.guard_by_list(cx, attr),
            Guard::Mode | Guard::Granted(_) => Ok(()),
            Guard::Acl => self.guard_by_list(cx, attr),
        }
    }

    #[cold]
    fn guard_by_list(&self, cx: &mut EngineContext, attr: &mut Attr) -> Result<(), Halt> {
        let acl = self.list(cx, attr)?;
        attr.guard = Guard::Granted(acl.granted(attr, &self.who.unix));
        Ok(())
    }

    /// Returns the inode's list, or what its mode says if it has none (any more).
    pub(crate) fn list(&self, cx: &mut EngineContext, attr: &Attr) -> Result<Acl, Halt> {
        let stored = match (attr.guard, self.file.namespace) {
            (Guard::Mode, _) | (_, Namespace::Snapshots) => None,
            (_, namespace) => ReadSource::new(&self.export.volume, namespace)?.acl(cx, attr.ino)?,
        };
        match stored {
            None if self.is_ntfs() && attr.ino == self.export.volume.root() => {
                Ok(Acl::full(Principal::Everyone, true))
            }
            None => Ok(Acl::from_mode(attr.mode, attr.kind == FileKind::Directory)),
            Some(bytes) => Acl::decode(&bytes).ok_or(Error::Io.into()),
        }
    }

    /// Checks that the entry may be taken out of the directory.
    pub(crate) fn check_unlink(
        &self,
        cx: &mut EngineContext,
        dir: &Attr,
        name: &[u8],
    ) -> Result<(), Halt> {
        let who = &self.who.unix;
        let mut child = *dir;
        let by_mode = dir.guard == Guard::Mode || who.is_root();
        // A caller who may not search learns nothing of the name.
        access::require(dir, who, if by_mode { W | X } else { X })?;
        if !by_mode || dir.mode & S_ISVTX != 0 {
            child = self.export.volume.lookup(cx, dir.ino, name)?.attr;
        }
        if !by_mode {
            self.guard(cx, &mut child)?;
        }
        Ok(access::may_remove(dir, &child, who)?)
    }

    /// Returns true if an operation would take the entry `child` out of `dir` for the caller, with
    /// the attributes as a lookup returned them.
    pub fn removes(&self, dir: &Attr, child: &Attr) -> bool {
        self.may_change() && access::may_remove(dir, child, &self.who.unix).is_ok()
    }

    /// Returns the list that an inode is to have when its mode becomes `mode`, encoded; `None` if
    /// it has none or nothing changes.
    pub(crate) fn list_under(
        &self,
        cx: &mut EngineContext,
        attr: &Attr,
        mode: Option<u32>,
    ) -> Result<Option<Vec<u8>>, Halt> {
        match mode {
            Some(mode) if attr.guard != Guard::Mode && (mode ^ attr.mode) & 0o777 != 0 => {
                let list = self.list(cx, attr)?;
                let directory = attr.kind == FileKind::Directory;
                Ok(Some(list.under(mode, directory).encode()))
            }
            _ => Ok(None),
        }
    }

    /// Returns the permissions of what is made in the directory `parent` with these attributes: the
    /// mode under the umask. If the directory's list has entries that are passed on, it is the list
    /// that the object is made with, and the mode that this comes to. A list that the caller gives
    /// it has precedence over both.
    pub(crate) fn inherit(
        &self,
        cx: &mut EngineContext,
        parent: &Attr,
        kind: FileKind,
        attrs: SetAttr,
    ) -> Result<SetAttr, Halt> {
        let mode = attrs.mode.unwrap_or(0);
        if kind == FileKind::Symlink {
            // Its mode says nothing.
            return match &self.list {
                Some(_) => Err(Error::Invalid.into()),
                None => Ok(attrs),
            };
        }
        let directory = kind == FileKind::Directory;
        if self.is_ntfs() {
            let list = match &self.list {
                Some(list) => {
                    self.may_set_permissions()?;
                    list.clone()
                }
                None => {
                    let list = self.list(cx, parent)?.passed_on(directory);
                    list.unwrap_or_else(|| Acl::full(Principal::Owner, directory))
                }
            };
            cx.list = Some(list.encode().into());
            return Ok(SetAttr {
                mode: Some(list.mode()),
                ..attrs
            });
        }
        let list = match (&self.list, parent.guard) {
            (Some(list), _) if list.is_inheritable() && !directory => {
                return Err(Error::Invalid.into());
            }
            (Some(list), _) => Some(list.clone()),
            (None, Guard::Mode) => None,
            (None, Guard::Acl | Guard::Granted(_)) => {
                let list = self.list(cx, parent)?;
                list.inherited(directory, mode & 0o777, attrs.umask)
            }
        };
        let mode = match &list {
            Some(list) => mode & 0o7000 | list.mode(),
            None => mode & !attrs.umask,
        };
        cx.list = list.map(|list| list.encode().into());
        Ok(SetAttr {
            mode: Some(mode),
            ..attrs
        })
    }

    /// Sets list and mode of an inode together, unless others' claims forbid it.
    pub(crate) fn put_list(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        list: &[u8],
        mode: u32,
    ) -> Result<Done<Change>, Halt> {
        conflict::with_claims_check(
            cx,
            |cx, version| {
                let allowed = || self.check_claims_version(ino, version);
                let volume = &self.export.volume;
                volume.set_acl_if(cx, ino, Some(list), Some(mode), allowed)
            },
            |_| self.check_attribute_claims(),
        )
    }

    /// Puts the list as the first of two changes of one call, which is carried out when the second
    /// one is.
    pub(crate) fn put_list_first(
        &self,
        cx: &mut EngineContext,
        ino: Ino,
        list: &[u8],
        mode: u32,
    ) -> Result<(), Halt> {
        let call = cx.call.take();
        let put = self.put_list(cx, ino, list, mode);
        cx.call = call;
        put.map(drop)
    }

    /// The access control list; of a file without one what its mode says.
    pub fn acl(&self, cx: &mut OpContext) -> OpResult<Acl> {
        self.run(cx, |cx| {
            let attr = self.attr(cx)?;
            self.list(cx, &attr)
        })
    }

    /// Sets the access control list, and the mode to what it comes to. For the owner, and for those
    /// that the list lets.
    pub fn set_acl(
        &self,
        cx: &mut OpContext,
        _: ChargeProof<MetadataWrite>,
        acl: &Acl,
    ) -> OpResult<Done<Change>> {
        self.run(cx, |cx| {
            self.writable()?;
            self.may_set_permissions()?;
            let attr = self.attr(cx)?;
            let passes_on = acl.is_inheritable() && attr.kind != FileKind::Directory;
            if attr.kind == FileKind::Symlink || passes_on {
                return Err(Error::Invalid.into());
            }
            if !owns(&attr, &self.who.unix) && !grants(&attr, mask::WRITE_ACL) {
                return Err(Error::Perm.into());
            }
            let mode = attr.mode & 0o7000 | acl.mode();
            self.put_list(cx, self.file.ino, &acl.encode(), mode)
        })
    }
}
