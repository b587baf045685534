//! Attributes of a file in responses (times, sizes and flags), and the response of CREATE.

use crate::info::{apple, entry};
use crate::open::durable::Durable;
use crate::open::leases::{Hold, level};
use crate::open::session::Open;
use crate::proto::negotiate::POSIX_TAG;
use weir_auth::wire::{Put, filetime};
use weir_base::Ino;
use weir_vfs::volume::{Attr, FileKind};

/// Attributes of a file in responses.
pub(crate) struct NetworkOpenInfo {
    /// Creation, last access, last write, change.
    pub times: [u64; 4],
    pub allocated: u64,
    pub size: u64,
    pub attributes: u32,
}

impl NetworkOpenInfo {
    pub fn from_attr(attr: &Attr) -> NetworkOpenInfo {
        let times = [attr.btime, attr.atime, attr.mtime, attr.ctime];
        let directory = attr.kind == FileKind::Directory;
        NetworkOpenInfo {
            times: times.map(filetime),
            allocated: if directory { 0 } else { entry::allocated(attr) },
            size: if directory { 0 } else { attr.size },
            attributes: entry::dos(attr),
        }
    }

    /// Times, sizes and attributes as CREATE and CLOSE have them.
    pub fn put(&self, out: &mut Vec<u8>) {
        self.times.iter().for_each(|time| out.put_u64(*time));
        out.put_u64(self.allocated);
        out.put_u64(self.size);
        out.put_u32(self.attributes);
    }
}

/// Contexts of a response to CREATE.
#[derive(Default)]
pub(crate) struct ResponseContexts<'a> {
    /// Access that the caller could be granted (MxAc).
    pub maximal: Option<u32>,
    /// The file's number, and its volume's (QFid).
    pub disk_id: Option<(Ino, weir_base::VolumeId)>,
    pub lease: Option<&'a [u8]>,
    pub durable: Option<&'a Durable>,
    /// The file's attributes for POSIX extensions.
    pub posix: Option<&'a [u8]>,
    /// The server's capabilities for macOS (AAPL).
    pub apple: Option<&'a [u8]>,
}

/// Appends the response of a CREATE (MS-SMB2 §2.2.14) with the contexts that were asked for.
pub(crate) fn put_response(
    out: &mut Vec<u8>,
    open: &Open,
    action: u32,
    shown: &NetworkOpenInfo,
    said: &ResponseContexts<'_>,
) {
    out.put_u16(89);
    out.put_u8(match &open.hold {
        Hold::Nothing => level::NONE,
        Hold::Oplock(oplock) => oplock.level(),
        Hold::Lease(_) => level::LEASE,
    });
    out.put_u8(0);
    out.put_u32(action);
    shown.put(out);
    out.put_u32(0);
    out.put_u64(open.id);
    out.put_u64(open.id);
    let mut contexts = Vec::new();
    let mut put = |name: &[u8], data: &[u8]| {
        // The one before ends where this one begins.
        if let Some(last) = contexts.last_mut() {
            let last: &mut Vec<u8> = last;
            last.align(0, 8);
            let len = last.len() as u32;
            last.set_u32(0, len);
        }
        let mut context = Vec::new();
        context.put_u32(0);
        context.put_u16(16);
        context.put_u16(name.len() as u16);
        context.put_u16(0);
        context.put_u16((16 + name.len().next_multiple_of(8)) as u16);
        context.put_u32(data.len() as u32);
        context.put(name);
        context.align(0, 8);
        context.put(data);
        contexts.push(context);
    };
    if let Some(access) = said.maximal {
        let data = [0u32.to_le_bytes(), access.to_le_bytes()].concat();
        put(b"MxAc", &data);
    }
    if let Some((ino, volume)) = said.disk_id {
        let mut data = [0; 32];
        data[..8].copy_from_slice(&ino.0.to_le_bytes());
        data[8..16].copy_from_slice(&volume.0.to_le_bytes());
        put(b"QFid", &data);
    }
    if let Some(lease) = said.lease {
        put(b"RqLs", lease);
    }
    if let Some(durable) = said.durable {
        let (name, data) = durable.context();
        put(name, &data);
    }
    if let Some(posix) = said.posix {
        put(&POSIX_TAG, posix);
    }
    if let Some(apple) = said.apple {
        put(apple::TAG, apple);
    }
    let contexts = contexts.concat();
    const FIXED: usize = 88;
    match contexts.len() {
        0 => out.put_u64(0),
        len => {
            out.put_u32((crate::proto::header::HEADER + FIXED) as u32);
            out.put_u32(len as u32);
            out.put(&contexts);
        }
    }
}
