//! `nfsstat4` (RFC 8881 §15.1, RFC 7862 §11, RFC 8276 §8.2).

use crate::rpc::operation::statuses;
use weir_vfs::{BadName, Error};

statuses! {
    /// Status of an operation, and of its COMPOUND.
    Ok = 0, "OK";
    Perm = 1, "PERM";
    NoEnt = 2, "NOENT";
    Io = 5, "IO";
    NxIo = 6, "NXIO";
    Access = 13, "ACCESS";
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
    BadCookie = 10003, "BAD_COOKIE";
    NotSupp = 10004, "NOTSUPP";
    TooSmall = 10005, "TOOSMALL";
    ServerFault = 10006, "SERVERFAULT";
    BadType = 10007, "BADTYPE";
    Delay = 10008, "DELAY";
    Same = 10009, "SAME";
    Denied = 10010, "DENIED";
    Expired = 10011, "EXPIRED";
    Locked = 10012, "LOCKED";
    Grace = 10013, "GRACE";
    ShareDenied = 10015, "SHARE_DENIED";
    WrongSec = 10016, "WRONGSEC";
    ClidInUse = 10017, "CLID_INUSE";
    Moved = 10019, "MOVED";
    NoFileHandle = 10020, "NOFILEHANDLE";
    MinorVersMismatch = 10021, "MINOR_VERS_MISMATCH";
    StaleClientId = 10022, "STALE_CLIENTID";
    OldStateId = 10024, "OLD_STATEID";
    BadStateId = 10025, "BAD_STATEID";
    NotSame = 10027, "NOT_SAME";
    LockRange = 10028, "LOCK_RANGE";
    Symlink = 10029, "SYMLINK";
    AttrNotSupp = 10032, "ATTRNOTSUPP";
    NoGrace = 10033, "NO_GRACE";
    ReclaimBad = 10034, "RECLAIM_BAD";
    BadXdr = 10036, "BADXDR";
    LocksHeld = 10037, "LOCKS_HELD";
    OpenMode = 10038, "OPENMODE";
    BadOwner = 10039, "BADOWNER";
    BadChar = 10040, "BADCHAR";
    BadName = 10041, "BADNAME";
    OpIllegal = 10044, "OP_ILLEGAL";
    Deadlock = 10045, "DEADLOCK";
    AdminRevoked = 10047, "ADMIN_REVOKED";
    BadSession = 10052, "BADSESSION";
    BadSlot = 10053, "BADSLOT";
    CompleteAlready = 10054, "COMPLETE_ALREADY";
    ConnNotBound = 10055, "CONN_NOT_BOUND_TO_SESSION";
    SeqMisordered = 10063, "SEQ_MISORDERED";
    SequencePos = 10064, "SEQUENCE_POS";
    ReqTooBig = 10065, "REQ_TOO_BIG";
    RepTooBig = 10066, "REP_TOO_BIG";
    RepTooBigToCache = 10067, "REP_TOO_BIG_TO_CACHE";
    RetryUncachedRep = 10068, "RETRY_UNCACHED_REP";
    TooManyOps = 10070, "TOO_MANY_OPS";
    OpNotInSession = 10071, "OP_NOT_IN_SESSION";
    ClientIdBusy = 10074, "CLIENTID_BUSY";
    SeqFalseRetry = 10076, "SEQ_FALSE_RETRY";
    DeadSession = 10078, "DEADSESSION";
    EncrAlgUnsupp = 10079, "ENCR_ALG_UNSUPP";
    NotOnlyOp = 10081, "NOT_ONLY_OP";
    WrongCred = 10082, "WRONG_CRED";
    WrongType = 10083, "WRONG_TYPE";
    DirDelegUnavail = 10084, "DIRDELEG_UNAVAIL";
    DelegRevoked = 10087, "DELEG_REVOKED";
    OffloadDenied = 10091, "OFFLOAD_DENIED";
    UnionNotSupp = 10090, "UNION_NOTSUPP";
    NoXattr = 10095, "NOXATTR";
    Xattr2Big = 10096, "XATTR2BIG";
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        match error {
            Error::BadHandle => Status::BadHandle,
            Error::Denied | Error::Access => Status::Access,
            Error::WrongFlavour | Error::Unprotected => Status::WrongSec,
            Error::Locked => Status::Locked,
            Error::Name(BadName::Empty) => Status::Inval,
            Error::Name(BadName::Dot | BadName::DotDot) => Status::BadName,
            Error::Name(BadName::Character) => Status::BadChar,
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
            Error::NotSync => Status::NotSame,
            Error::BadCookie => Status::BadCookie,
            Error::Perm => Status::Perm,
            Error::NotSupported => Status::NotSupp,
            Error::Delay | Error::Busy => Status::Delay,
        }
    }
}
