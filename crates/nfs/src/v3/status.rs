//! `nfsstat3` (RFC 1813 §2.6).

use crate::rpc::operation::statuses;
use weir_vfs::{BadName, Error};

statuses! {
    /// Status of an NFSv3 call.
    Ok = 0, "OK";
    Perm = 1, "PERM";
    NoEnt = 2, "NOENT";
    Io = 5, "IO";
    Acces = 13, "ACCES";
    Exist = 17, "EXIST";
    XDev = 18, "XDEV";
    NotDir = 20, "NOTDIR";
    IsDir = 21, "ISDIR";
    Inval = 22, "INVAL";
    FBig = 27, "FBIG";
    NoSpc = 28, "NOSPC";
    RoFs = 30, "ROFS";
    MLink = 31, "MLINK";
    NameTooLong = 63, "NAMETOOLONG";
    NotEmpty = 66, "NOTEMPTY";
    DQuot = 69, "DQUOT";
    Stale = 70, "STALE";
    BadHandle = 10001, "BADHANDLE";
    NotSync = 10002, "NOT_SYNC";
    BadCookie = 10003, "BAD_COOKIE";
    NotSupp = 10004, "NOTSUPP";
    TooSmall = 10005, "TOOSMALL";
    BadType = 10007, "BADTYPE";
    Jukebox = 10008, "JUKEBOX";
}

impl Status {
    /// Returns the status that a client gets for `error` of `procedure`.
    pub fn from_error(procedure: u32, error: Error) -> Status {
        match error {
            // For READ, WRITE and others, every object but a regular file is INVAL in NFSv3, also a
            // directory: §3.3.2, §3.3.5, §3.3.6, §3.3.7, §3.3.21 have no ISDIR.
            Error::IsDir if matches!(procedure, 2 | 5..=7 | 21) => Status::Inval,
            // A poisoned aggregate refuses every change. COMMIT has no ROFS for that, and the
            // uncommitted data is lost.
            Error::ReadOnly if procedure == 21 => Status::Io,
            Error::Name(name) => Status::of_name(procedure, name),
            Error::NotFound => Status::NoEnt,
            Error::Exists => Status::Exist,
            Error::NotDir => Status::NotDir,
            Error::IsDir => Status::IsDir,
            Error::NotEmpty => Status::NotEmpty,
            Error::NameTooLong => Status::NameTooLong,
            Error::NoSpace => Status::NoSpc,
            Error::Quota => Status::DQuot,
            Error::FileTooBig => Status::FBig,
            Error::ReadOnly => Status::RoFs,
            Error::Stale => Status::Stale,
            Error::Invalid => Status::Inval,
            Error::TooManyLinks => Status::MLink,
            Error::CrossDevice => Status::XDev,
            Error::Io => Status::Io,
            Error::NotSync => Status::NotSync,
            Error::BadCookie => Status::BadCookie,
            Error::Perm => Status::Perm,
            Error::Access
            | Error::Locked
            | Error::Denied
            | Error::WrongFlavour
            | Error::Unprotected => Status::Acces,
            Error::NotSupported => Status::NotSupp,
            Error::Delay | Error::Busy => Status::Jukebox,
            Error::BadHandle => Status::BadHandle,
        }
    }

    /// Returns the status for a name that no object can have: ACCES, which is allowed for every
    /// procedure with a name. "." and ".." exist (§3.3.8 to §3.3.11, §3.3.15). Each procedure has
    /// its own status for the attempt to remove or rename them (§3.3.12 to §3.3.14).
    fn of_name(procedure: u32, name: BadName) -> Status {
        match (name, procedure) {
            (BadName::Empty | BadName::Character, _) => Status::Acces,
            (_, 12) => Status::Acces,
            (BadName::Dot, 13) | (_, 14) => Status::Inval,
            _ => Status::Exist,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_procedure_has_its_own_word_for_a_bad_name() {
        use BadName::{Character, Dot, DotDot, Empty};
        for procedure in [3, 8, 9, 10, 11, 12, 13, 14, 15] {
            for name in [Empty, Character] {
                assert_eq!(
                    Status::from_error(procedure, Error::Name(name)),
                    Status::Acces
                );
            }
        }
        let dots =
            |procedure| [Dot, DotDot].map(|name| Status::from_error(procedure, Error::Name(name)));
        for procedure in [8, 9, 10, 11, 15] {
            assert_eq!(dots(procedure), [Status::Exist; 2]);
        }
        assert_eq!(dots(12), [Status::Acces; 2]);
        assert_eq!(dots(13), [Status::Inval, Status::Exist]);
        assert_eq!(dots(14), [Status::Inval; 2]);
    }

    #[test]
    fn directories_and_failed_aggregates_are_told_as_the_procedure_can() {
        for procedure in [2, 5, 6, 7, 21] {
            assert_eq!(Status::from_error(procedure, Error::IsDir), Status::Inval);
        }
        assert_eq!(Status::from_error(12, Error::IsDir), Status::IsDir);
        assert_eq!(Status::from_error(21, Error::ReadOnly), Status::Io);
        assert_eq!(Status::from_error(7, Error::ReadOnly), Status::RoFs);
    }
}
