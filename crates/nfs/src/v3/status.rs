//! `nfsstat3` (RFC 1813 §2.6).

use weir_vfs::NoSubject;
use weir_vfs::volume::FsError;

/// Status of an NFSv3 call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // The names are the protocol's.
pub enum Status {
    Ok = 0,
    Perm = 1,
    NoEnt = 2,
    Io = 5,
    Acces = 13,
    Exist = 17,
    XDev = 18,
    NotDir = 20,
    IsDir = 21,
    Inval = 22,
    FBig = 27,
    NoSpc = 28,
    RoFs = 30,
    MLink = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    DQuot = 69,
    Stale = 70,
    BadHandle = 10001,
    NotSync = 10002,
    BadCookie = 10003,
    NotSupp = 10004,
    TooSmall = 10005,
    BadType = 10007,
    Jukebox = 10008,
}

impl From<FsError> for Status {
    fn from(e: FsError) -> Status {
        match e {
            FsError::NotFound => Status::NoEnt,
            FsError::Exists => Status::Exist,
            FsError::NotDir => Status::NotDir,
            FsError::IsDir => Status::IsDir,
            FsError::NotEmpty => Status::NotEmpty,
            FsError::NameTooLong => Status::NameTooLong,
            FsError::NoSpace => Status::NoSpc,
            FsError::Quota => Status::DQuot,
            FsError::FileTooBig => Status::FBig,
            FsError::ReadOnly => Status::RoFs,
            FsError::Stale => Status::Stale,
            FsError::Invalid => Status::Inval,
            FsError::TooManyLinks => Status::MLink,
            FsError::CrossDevice => Status::XDev,
            FsError::Io => Status::Io,
            FsError::NotSync => Status::NotSync,
            FsError::BadCookie => Status::BadCookie,
            FsError::Perm => Status::Perm,
            FsError::Access => Status::Acces,
            FsError::NotSupported => Status::NotSupp,
            FsError::Delay | FsError::Busy => Status::Jukebox,
        }
    }
}

impl From<NoSubject> for Status {
    fn from(why: NoSubject) -> Status {
        match why {
            NoSubject::BadHandle => Status::BadHandle,
            NoSubject::Stale => Status::Stale,
            NoSubject::Denied => Status::Acces,
            NoSubject::Unknown(_) => Status::Jukebox,
        }
    }
}
