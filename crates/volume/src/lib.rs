//! Volumes: file semantics on top of the store.

mod types;

pub use types::{
    Attr, Change, CreateHow, Created, DirEntry, Done, FileKind, Found, FsError, Linked, Pressure,
    ReadDirLimit, ReadDirOut, ReadOut, Removed, Renamed, SetAttr, SetTime, Stability, StatFs, Stop,
    Written,
};
