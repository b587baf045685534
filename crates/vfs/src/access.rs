//! Permission checks: POSIX mode bits, or the access control list where a file has one
//! ([`acl`](crate::acl)). What a protocol allows beyond them, and when they count, is its own
//! ([`AccessModel`](crate::AccessModel)).

use crate::acl::mask;
use crate::error::Error;
use crate::identity::Creds;
use weir_base::invariant;
use weir_volume::{Attr, FileKind, Guard, SetAttr, SetTime, without_set_ids};

/// Set-group-ID bit of a mode; on a directory it makes new entries inherit the group.
pub const S_ISGID: u32 = 0o2000;
/// Sticky bit of a mode; in such a directory only root and the owners of entry or directory remove
/// or rename entries.
pub const S_ISVTX: u32 = 0o1000;
const S_IXGRP: u32 = 0o010;

/// Permission to read: 4, as in each octal digit of a mode.
pub const R: u32 = 4;
/// Permission to write: 2, as in each octal digit of a mode.
pub const W: u32 = 2;
/// Permission to execute a file or search a directory.
pub const X: u32 = 1;

/// Returns true if `who` has all of the permissions `want` (an OR of [`R`], [`W`], [`X`]). Exactly
/// one class of bits applies: owner, else group, else other. Root may do everything, but executes
/// only a file that some class of users may execute.
pub fn permits(attr: &Attr, who: &Creds, want: u32) -> bool {
    if who.is_root() {
        return want & X == 0 || attr.kind == FileKind::Directory || attr.mode & 0o111 != 0;
    }
    match attr.guard {
        Guard::Mode => {}
        Guard::Granted(granted) => {
            let on = |bit: u32, mask: u32| if want & bit != 0 { mask } else { 0 };
            let wants =
                on(R, mask::READ) | on(W, mask::WRITE | mask::APPEND) | on(X, mask::EXECUTE);
            return granted & wants == wants;
        }
        Guard::Acl => {
            invariant!(false, "a list that was not read");
            return false;
        }
    }
    let class = if who.uid == attr.uid {
        attr.mode >> 6
    } else if who.in_group(attr.gid) {
        attr.mode >> 3
    } else {
        attr.mode
    };
    class & 7 & want == want
}

/// Returns true if the file's list grants all of `wanted`, bits of an access mask; false if it has
/// none.
pub fn grants(attr: &Attr, wanted: u32) -> bool {
    matches!(attr.guard, Guard::Granted(granted) if granted & wanted == wanted)
}

/// Checks that `who` may make something in `dir`.
pub fn may_make(dir: &Attr, who: &Creds, kind: FileKind) -> Result<(), Error> {
    match dir.guard {
        Guard::Granted(_) if !who.is_root() => {
            let adds = match kind {
                FileKind::Directory => mask::APPEND,
                _ => mask::WRITE,
            };
            let may = grants(dir, adds | mask::EXECUTE);
            may.then_some(()).ok_or(Error::Access)
        }
        _ => require(dir, who, W | X),
    }
}

/// Checks [`permits`], as an operation's result.
pub fn require(attr: &Attr, who: &Creds, want: u32) -> Result<(), Error> {
    if permits(attr, who, want) {
        Ok(())
    } else {
        Err(Error::Access)
    }
}

/// Returns true if `who` owns the file, as far as permissions go: root owns everything.
pub fn owns(attr: &Attr, who: &Creds) -> bool {
    who.is_root() || who.uid == attr.uid
}

/// Checks that `who` may take the entry `child` out of `dir` (or replace it). That takes write and
/// search permission on the directory and, if it is sticky, ownership of either.
pub fn may_unlink(dir: &Attr, child: &Attr, who: &Creds) -> Result<(), Error> {
    require(dir, who, W | X)?;
    may_take(dir, child, who)
}

/// Returns true if `who` may remove the entry `child` of `dir`: by the rule of [`may_unlink`]. If
/// the directory has a list, it also may if that list lets entries be deleted, or if the entry's
/// own list lets it be (RFC 8881 §6.2.1.3.2).
pub fn may_remove(dir: &Attr, child: &Attr, who: &Creds) -> Result<(), Error> {
    if dir.guard == Guard::Mode || who.is_root() {
        return may_unlink(dir, child, who);
    }
    require(dir, who, X)?;
    if !grants(dir, mask::DELETE_CHILD) && !grants(child, mask::DELETE) {
        return Err(Error::Access);
    }
    may_take(dir, child, who)
}

/// Returns the part of [`may_unlink`] that concerns sticky directories.
fn may_take(dir: &Attr, child: &Attr, who: &Creds) -> Result<(), Error> {
    if dir.mode & S_ISVTX != 0 && !who.is_root() && who.uid != child.uid && who.uid != dir.uid {
        return Err(Error::Perm);
    }
    Ok(())
}

/// Returns the mode that is left of `attr` when an unprivileged user changes the content, or any
/// user the owner of the file; `None` if nothing changes.
fn mode_after_change(attr: &Attr) -> Option<u32> {
    let mode = without_set_ids(attr.mode);
    (attr.kind == FileKind::Regular && mode != attr.mode).then_some(mode)
}

/// Checks a SETATTR by `who` (`may_write`: whether that identity may write the content) and
/// completes it: what must be cleared along with what was asked is added. Rules of POSIX chmod,
/// chown, utimensat and truncate.
pub fn check_setattr(
    attr: &Attr,
    who: &Creds,
    set: &SetAttr,
    may_write: impl FnOnce() -> Result<(), Error>,
) -> Result<SetAttr, Error> {
    let mut out = *set;
    let root = who.is_root();
    if let Some(uid) = set.uid {
        let same = who.uid == attr.uid && uid == attr.uid;
        if !root && !same {
            return Err(Error::Perm);
        }
    }
    if let Some(gid) = set.gid {
        let may = who.uid == attr.uid && (gid == attr.gid || who.in_group(gid));
        if !root && !may {
            return Err(Error::Perm);
        }
    }
    if let Some(mode) = set.mode {
        let mut mode = mode & 0o7777;
        if !owns(attr, who) {
            if !grants(attr, mask::WRITE_ACL) {
                return Err(Error::Perm);
            }
            mode = attr.mode & 0o7000 | mode & 0o777;
        }
        let group = set.gid.unwrap_or(attr.gid);
        if !root && !who.in_group(group) {
            mode &= !S_ISGID;
        }
        out.mode = Some(mode);
    }
    if set.size.is_some() {
        may_write()?;
    }
    if (set.ctime.or(set.btime).is_some() || set.dos.is_some()) && !owns(attr, who) {
        return Err(Error::Perm);
    }
    let sets_times = owns(attr, who) || grants(attr, mask::WRITE_ATTRIBUTES);
    for time in [set.atime, set.mtime] {
        match time {
            SetTime::Keep => {}
            SetTime::Client(_) if !sets_times => return Err(Error::Perm),
            SetTime::Server if !sets_times => require(attr, who, W)?,
            SetTime::Client(_) | SetTime::Server => {}
        }
    }
    let chown = set.uid.is_some() || set.gid.is_some();
    if attr.kind != FileKind::Directory && (chown || (set.size.is_some() && !root)) {
        let base = Attr {
            mode: out.mode.unwrap_or(attr.mode),
            kind: FileKind::Regular,
            ..*attr
        };
        out.mode = mode_after_change(&base).or(out.mode);
    }
    Ok(out)
}

/// Returns the attributes of an object that `who` creates in `dir`, with owner and group as System
/// V and Linux give them. The group of a set-group-ID directory is inherited, and so is its bit by
/// directories. Only root may ask for another owner or group.
pub fn for_creation(dir: &Attr, who: &Creds, kind: FileKind, asked: &SetAttr) -> SetAttr {
    let inherit = dir.mode & S_ISGID != 0;
    let mut out = *asked;
    if !who.is_root() {
        out.uid = None;
        out.gid = None;
    }
    let gid = out.gid.unwrap_or(if inherit { dir.gid } else { who.gid });
    let mut mode = asked.mode.unwrap_or(default_mode(kind)) & 0o7777;
    if kind == FileKind::Directory {
        if inherit {
            mode |= S_ISGID;
        }
    } else if mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP
        && !who.is_root()
        && !who.in_group(gid)
    {
        mode &= !S_ISGID;
    }
    out.uid = Some(out.uid.unwrap_or(who.uid));
    out.gid = Some(gid);
    out.mode = Some(mode);
    out
}

/// Returns the mode of what is created without one. Clients always send it; these grant nothing to
/// others.
fn default_mode(kind: FileKind) -> u32 {
    match kind {
        FileKind::Directory => 0o700,
        FileKind::Symlink => 0o777,
        _ => 0o600,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use weir_base::{Ino, Time};

    pub(crate) fn attr(kind: FileKind, mode: u32, uid: u32, gid: u32) -> Attr {
        Attr {
            kind,
            mode,
            nlink: 1,
            uid,
            gid,
            size: 0,
            used: 0,
            rdev: (0, 0),
            fsid: 1,
            tree: 0,
            constituent: 0,
            ino: Ino(9),
            atime: Time::EPOCH,
            mtime: Time::EPOCH,
            ctime: Time::EPOCH,
            btime: Time::EPOCH,
            dos: 0,
            change: 0,
            guard: Guard::Mode,
        }
    }

    fn check_setattr(attr: &Attr, who: &Creds, set: &SetAttr) -> Result<SetAttr, Error> {
        super::check_setattr(attr, who, set, || require(attr, who, W))
    }

    fn who(uid: u32, gid: u32, gids: &[u32]) -> Creds {
        Creds {
            uid,
            gid,
            gids: gids.into(),
        }
    }

    /// Every mode against every class of caller and every wish, against the
    /// definition written out.
    #[test]
    fn access_matrix() {
        let callers = [
            who(10, 99, &[]),
            who(11, 20, &[]),
            who(11, 99, &[5, 20]),
            who(11, 99, &[5]),
        ];
        for mode in 0..0o1000 {
            let file = attr(FileKind::Regular, mode, 10, 20);
            for (i, c) in callers.iter().enumerate() {
                let shift = [6, 3, 3, 0][i];
                for want in 0..8 {
                    let expected =
                        (0..3).all(|b| want >> b & 1 == 0 || mode >> (shift + b) & 1 == 1);
                    assert_eq!(permits(&file, c, want), expected, "{mode:o} {i} {want}");
                }
            }
            let root = who(0, 0, &[]);
            assert!(permits(&file, &root, R | W));
            assert_eq!(permits(&file, &root, X), mode & 0o111 != 0);
            assert!(permits(
                &attr(FileKind::Directory, mode, 10, 20),
                &root,
                R | W | X
            ));
        }
    }

    #[test]
    fn sticky_directories_protect_entries() {
        let dir = attr(FileKind::Directory, 0o1777, 1, 1);
        let file = attr(FileKind::Regular, 0o666, 2, 2);
        for (uid, ok) in [(0, true), (1, true), (2, true), (3, false)] {
            for removed in [may_unlink, may_remove] {
                let r = removed(&dir, &file, &who(uid, 9, &[]));
                assert_eq!(r, if ok { Ok(()) } else { Err(Error::Perm) }, "{uid}");
            }
        }
        let closed = attr(FileKind::Directory, 0o1755, 1, 1);
        assert_eq!(
            may_unlink(&closed, &file, &who(2, 9, &[])),
            Err(Error::Access)
        );
    }

    #[test]
    fn chmod_and_chown_rules() {
        let f = attr(FileKind::Regular, 0o6755, 10, 20);
        let set = |mode, uid, gid| SetAttr {
            mode,
            uid,
            gid,
            ..SetAttr::default()
        };
        let owner = who(10, 20, &[30]);
        let check = |c: &Creds, s: SetAttr| check_setattr(&f, c, &s);
        assert_eq!(
            check(&who(11, 20, &[]), set(Some(0o777), None, None)),
            Err(Error::Perm)
        );
        assert_eq!(check(&owner, set(None, Some(11), None)), Err(Error::Perm));
        assert_eq!(check(&owner, set(None, None, Some(40))), Err(Error::Perm));
        assert_eq!(
            check(&who(11, 30, &[]), set(None, None, Some(30))),
            Err(Error::Perm)
        );
        // A permitted chown clears both bits, also for root.
        assert_eq!(
            check(&owner, set(None, None, Some(30))).unwrap().mode,
            Some(0o755)
        );
        assert_eq!(
            check(&who(0, 0, &[]), set(None, Some(5), None))
                .unwrap()
                .mode,
            Some(0o755)
        );
        // Set-group-ID without group execution is mandatory locking: it stays.
        let locking = attr(FileKind::Regular, 0o2644, 10, 20);
        let s = check_setattr(&locking, &owner, &set(None, None, Some(30))).unwrap();
        assert_eq!(s.mode, None);
        // Directories keep theirs.
        let d = attr(FileKind::Directory, 0o2755, 10, 20);
        assert_eq!(
            check_setattr(&d, &owner, &set(None, None, Some(30)))
                .unwrap()
                .mode,
            None
        );
        // The owner may not set set-group-ID for a group that is not his.
        let foreign = attr(FileKind::Regular, 0o755, 10, 77);
        let s = check_setattr(&foreign, &owner, &set(Some(0o2755), None, None)).unwrap();
        assert_eq!(s.mode, Some(0o755));
    }

    #[test]
    fn times_and_size_rules() {
        let f = attr(FileKind::Regular, 0o4722, 10, 20);
        let other = who(11, 21, &[]);
        let client = SetAttr {
            mtime: SetTime::Client(Time::EPOCH),
            ..SetAttr::default()
        };
        let server = SetAttr {
            mtime: SetTime::Server,
            ..SetAttr::default()
        };
        assert_eq!(check_setattr(&f, &other, &client), Err(Error::Perm));
        assert!(check_setattr(&f, &other, &server).is_ok());
        let closed = Attr { mode: 0o700, ..f };
        assert_eq!(check_setattr(&closed, &other, &server), Err(Error::Access));
        let size = SetAttr {
            size: Some(0),
            ..SetAttr::default()
        };
        assert_eq!(check_setattr(&closed, &other, &size), Err(Error::Access));
        assert_eq!(check_setattr(&f, &other, &size).unwrap().mode, Some(0o722));
        assert_eq!(
            check_setattr(&f, &who(0, 0, &[]), &size).unwrap().mode,
            None
        );
    }

    #[test]
    fn creation_inherits_from_set_group_id_directories() {
        let plain = attr(FileKind::Directory, 0o755, 1, 50);
        let setgid = attr(FileKind::Directory, 0o2755, 1, 50);
        let me = who(10, 20, &[]);
        let asked = SetAttr {
            mode: Some(0o2755),
            uid: Some(3),
            gid: Some(4),
            ..SetAttr::default()
        };
        let a = for_creation(&plain, &me, FileKind::Regular, &asked);
        assert_eq!((a.uid, a.gid, a.mode), (Some(10), Some(20), Some(0o2755)));
        let a = for_creation(&setgid, &me, FileKind::Regular, &asked);
        assert_eq!((a.uid, a.gid, a.mode), (Some(10), Some(50), Some(0o755)));
        let plain_mode = SetAttr {
            mode: Some(0o755),
            ..SetAttr::default()
        };
        let a = for_creation(&setgid, &me, FileKind::Directory, &plain_mode);
        assert_eq!((a.gid, a.mode), (Some(50), Some(0o2755)));
        let a = for_creation(&plain, &who(0, 0, &[]), FileKind::Regular, &asked);
        assert_eq!((a.uid, a.gid, a.mode), (Some(3), Some(4), Some(0o2755)));
    }
}
