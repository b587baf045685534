//! NTSTATUS values (MS-ERREF §2.3.1) that this server uses, and their relation to errors of the
//! VFS.

use weir_vfs::{BadName, Error};

/// An NTSTATUS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($name:ident = $value:literal,)*) => {
        impl Status {
            $(
                #[doc = concat!("STATUS_", stringify!($name), ".")]
                pub const $name: Status = Status($value);
            )*

            /// Returns the name of a status by its number, as metrics call it.
            pub fn name(number: u32) -> Option<&'static str> {
                match number {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0,
    PENDING = 0x0000_0103,
    MORE_ENTRIES = 0x0000_0105,
    SOME_NOT_MAPPED = 0x0000_0107,
    NOTIFY_CLEANUP = 0x0000_010b,
    NOTIFY_ENUM_DIR = 0x0000_010c,
    BUFFER_OVERFLOW = 0x8000_0005,
    NO_MORE_FILES = 0x8000_0006,
    NO_MORE_ENTRIES = 0x8000_001a,
    STOPPED_ON_SYMLINK = 0x8000_002d,
    INVALID_EA_NAME = 0x8000_0013,
    EA_LIST_INCONSISTENT = 0x8000_0014,
    UNSUCCESSFUL = 0xc000_0001,
    NOT_IMPLEMENTED = 0xc000_0002,
    INVALID_INFO_CLASS = 0xc000_0003,
    INFO_LENGTH_MISMATCH = 0xc000_0004,
    INVALID_HANDLE = 0xc000_0008,
    INVALID_PARAMETER = 0xc000_000d,
    NO_SUCH_FILE = 0xc000_000f,
    INVALID_DEVICE_REQUEST = 0xc000_0010,
    END_OF_FILE = 0xc000_0011,
    MORE_PROCESSING_REQUIRED = 0xc000_0016,
    INVALID_VIEW_SIZE = 0xc000_001f,
    ACCESS_DENIED = 0xc000_0022,
    BUFFER_TOO_SMALL = 0xc000_0023,
    OBJECT_NAME_INVALID = 0xc000_0033,
    OBJECT_NAME_NOT_FOUND = 0xc000_0034,
    OBJECT_NAME_COLLISION = 0xc000_0035,
    OBJECT_PATH_NOT_FOUND = 0xc000_003a,
    OBJECT_PATH_SYNTAX_BAD = 0xc000_003b,
    SHARING_VIOLATION = 0xc000_0043,
    EA_TOO_LARGE = 0xc000_0050,
    NO_EAS_ON_FILE = 0xc000_0052,
    FILE_LOCK_CONFLICT = 0xc000_0054,
    LOCK_NOT_GRANTED = 0xc000_0055,
    DELETE_PENDING = 0xc000_0056,
    INVALID_OWNER = 0xc000_005a,
    INVALID_PRIMARY_GROUP = 0xc000_005b,
    NO_SUCH_USER = 0xc000_0064,
    NO_SUCH_GROUP = 0xc000_0066,
    LOGON_FAILURE = 0xc000_006d,
    NONE_MAPPED = 0xc000_0073,
    INVALID_SECURITY_DESCR = 0xc000_0079,
    RANGE_NOT_LOCKED = 0xc000_007e,
    DISK_FULL = 0xc000_007f,
    INSUFFICIENT_RESOURCES = 0xc000_009a,
    MEDIA_WRITE_PROTECTED = 0xc000_00a2,
    BAD_IMPERSONATION_LEVEL = 0xc000_00a5,
    FILE_IS_A_DIRECTORY = 0xc000_00ba,
    NOT_SUPPORTED = 0xc000_00bb,
    NETWORK_NAME_DELETED = 0xc000_00c9,
    BAD_NETWORK_NAME = 0xc000_00cc,
    REQUEST_NOT_ACCEPTED = 0xc000_00d0,
    NOT_SAME_DEVICE = 0xc000_00d4,
    NO_SUCH_DOMAIN = 0xc000_00df,
    INTERNAL_ERROR = 0xc000_00e5,
    UNEXPECTED_IO_ERROR = 0xc000_00e9,
    DIRECTORY_NOT_EMPTY = 0xc000_0101,
    NOT_A_DIRECTORY = 0xc000_0103,
    NAME_TOO_LONG = 0xc000_0106,
    CANCELLED = 0xc000_0120,
    CANNOT_DELETE = 0xc000_0121,
    FILE_CLOSED = 0xc000_0128,
    NO_SUCH_ALIAS = 0xc000_0151,
    INVALID_LOCK_RANGE = 0xc000_01a1,
    IO_DEVICE_ERROR = 0xc000_0185,
    USER_SESSION_DELETED = 0xc000_0203,
    REQUEST_OUT_OF_SEQUENCE = 0xc000_042a,
    INVALID_DEVICE_STATE = 0xc000_0184,
    INVALID_OPLOCK_PROTOCOL = 0xc000_00e3,
    NOT_FOUND = 0xc000_0225,
    PATH_NOT_COVERED = 0xc000_0257,
    NETWORK_SESSION_EXPIRED = 0xc000_035c,
    FILE_NOT_AVAILABLE = 0xc000_0467,
    DUPLICATE_OBJECTID = 0xc000_022a,
    TOO_MANY_LINKS = 0xc000_0265,
    NOT_A_REPARSE_POINT = 0xc000_0275,
    IO_REPARSE_TAG_INVALID = 0xc000_0276,
    IO_REPARSE_TAG_MISMATCH = 0xc000_0277,
    IO_REPARSE_DATA_INVALID = 0xc000_0278,
    FS_DRIVER_REQUIRED = 0xc000_019c,
    RETRY = 0xc000_022d,
    NO_PREAUTH_INTEGRITY_HASH_OVERLAP = 0xc05d_0000,
}

impl Status {
    /// Returns true if the request failed, so that the response has an error body. A warning has
    /// the body of its command, except STOPPED_ON_SYMLINK.
    pub fn is_error(self) -> bool {
        self == Status::STOPPED_ON_SYMLINK
            || self.0 >> 30 == 3 && self != Status::MORE_PROCESSING_REQUIRED
    }
}

impl From<weir_auth::wire::DecodeError> for Status {
    fn from(_: weir_auth::wire::DecodeError) -> Status {
        Status::INVALID_PARAMETER
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        match error {
            Error::NotFound => Status::OBJECT_NAME_NOT_FOUND,
            Error::Exists => Status::OBJECT_NAME_COLLISION,
            Error::Name(BadName::Empty | BadName::Dot | BadName::DotDot | BadName::Character) => {
                Status::OBJECT_NAME_INVALID
            }
            Error::NotDir => Status::NOT_A_DIRECTORY,
            Error::IsDir => Status::FILE_IS_A_DIRECTORY,
            Error::NotEmpty => Status::DIRECTORY_NOT_EMPTY,
            Error::NameTooLong => Status::OBJECT_NAME_INVALID,
            Error::NoSpace | Error::Quota => Status::DISK_FULL,
            Error::FileTooBig | Error::Invalid | Error::BadCookie | Error::NotSync => {
                Status::INVALID_PARAMETER
            }
            Error::ReadOnly => Status::MEDIA_WRITE_PROTECTED,
            Error::Stale | Error::BadHandle => Status::FILE_CLOSED,
            Error::TooManyLinks => Status::TOO_MANY_LINKS,
            Error::CrossDevice => Status::NOT_SAME_DEVICE,
            Error::Io => Status::IO_DEVICE_ERROR,
            Error::Perm
            | Error::Access
            | Error::Denied
            | Error::WrongFlavour
            | Error::Unprotected => Status::ACCESS_DENIED,
            Error::Locked => Status::FILE_LOCK_CONFLICT,
            Error::NotSupported => Status::NOT_SUPPORTED,
            // The grace period after a start ends within a minute, and clients have no other word
            // for it.
            Error::Delay | Error::Busy => Status::SHARING_VIOLATION,
        }
    }
}
