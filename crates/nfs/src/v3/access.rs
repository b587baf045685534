//! Access rules of NFSv3 beyond a file's mode.
//!
//! The protocol has no open call, so each READ and WRITE is checked by itself. Every NFSv3 server
//! makes two exceptions (RFC 1813 §4.4):
//!
//! - the owner of a file may always read and write it, since a local process that had it open
//!   could;
//! - a caller that may execute a file may read it, since that is how it is executed.
//!
//! ACCESS replies without them, so that the client's own check at open matches that of a local file
//! system.

use weir_vfs::access::{R, W, X, owns, permits};
use weir_vfs::volume::Attr;
use weir_vfs::{AccessModel, Error, Identity};

/// See the module's head.
#[derive(Clone, Copy, Debug)]
pub struct EachCall;

impl AccessModel for EachCall {
    fn may_read(&self, attr: &Attr, who: &Identity) -> Result<(), Error> {
        let who = &who.unix;
        match owns(attr, who) || permits(attr, who, R) || permits(attr, who, X) {
            true => Ok(()),
            false => Err(Error::Access),
        }
    }

    fn may_write(&self, attr: &Attr, who: &Identity) -> Result<(), Error> {
        let who = &who.unix;
        match owns(attr, who) || permits(attr, who, W) {
            true => Ok(()),
            false => Err(Error::Access),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::{Ino, Time};
    use weir_vfs::Groups;
    use weir_vfs::volume::{FileKind, Guard};

    #[test]
    fn owners_and_who_may_execute() {
        let file = |mode| Attr {
            kind: FileKind::Regular,
            mode,
            nlink: 1,
            uid: 10,
            gid: 20,
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
            change: 0,
            guard: Guard::Mode,
            dos: 0,
        };
        let who = |uid, gid| Identity::unix(uid, gid, Groups::default());
        let read = |mode, who| EachCall.may_read(&file(mode), &who);
        let write = |mode, who| EachCall.may_write(&file(mode), &who);
        assert_eq!(read(0, who(10, 1)), Ok(()));
        assert_eq!(write(0, who(10, 1)), Ok(()));
        assert_eq!(write(0, who(0, 0)), Ok(()));
        assert_eq!(read(0o001, who(11, 1)), Ok(()));
        assert_eq!(read(0o770, who(11, 1)), Err(Error::Access));
        assert_eq!(write(0o775, who(11, 1)), Err(Error::Access));
        assert_eq!(write(0o775, who(11, 20)), Ok(()));
    }
}
