//! Requests encoded, responses taken apart (MS-SMB2 §2.2), as far as the loads need them.

use super::crypto::utf16;
use crate::error::BenchError;

/// A FileId, both halves.
pub type FileId = [u8; 16];
/// The file that the request before in the same chain opened (MS-SMB2 §3.3.5.2.7.2).
pub const SAME: FileId = [0xff; 16];
/// Bytes of the header of a message.
pub const HEADER: usize = 64;
/// Bytes of the header of an encrypted message (§2.2.41).
pub const TRANSFORM: usize = 52;
/// Beginning of a message, and of an encrypted one.
pub const PROTOCOL: [u8; 4] = [0xfe, b'S', b'M', b'B'];
/// See [`PROTOCOL`].
pub const SEALED: [u8; 4] = [0xfd, b'S', b'M', b'B'];
/// Bytes of data that one credit is for (§3.1.5.2).
const CREDIT: u64 = 64 << 10;

macro_rules! statuses {
    ($($name:ident = $value:literal,)*) => {
        /// Statuses (MS-ERREF §2.3.1) that loads tell apart or users may meet.
        pub mod status {
            #![allow(missing_docs)] // The names are the protocol's.
            $(pub const $name: u32 = $value;)*
        }

        /// A status in words, or its number.
        pub fn status_name(status: u32) -> String {
            match status {
                $(status::$name => concat!("STATUS_", stringify!($name)).to_owned(),)*
                _ => format!("STATUS {status:#010x}"),
            }
        }
    };
}

statuses! {
    PENDING = 0x0000_0103,
    NO_MORE_FILES = 0x8000_0006,
    UNSUCCESSFUL = 0xc000_0001,
    INVALID_HANDLE = 0xc000_0008,
    INVALID_PARAMETER = 0xc000_000d,
    END_OF_FILE = 0xc000_0011,
    MORE_PROCESSING_REQUIRED = 0xc000_0016,
    ACCESS_DENIED = 0xc000_0022,
    OBJECT_NAME_NOT_FOUND = 0xc000_0034,
    OBJECT_NAME_COLLISION = 0xc000_0035,
    OBJECT_PATH_NOT_FOUND = 0xc000_003a,
    SHARING_VIOLATION = 0xc000_0043,
    LOGON_FAILURE = 0xc000_006d,
    DISK_FULL = 0xc000_007f,
    INSUFFICIENT_RESOURCES = 0xc000_009a,
    NOT_SUPPORTED = 0xc000_00bb,
    BAD_NETWORK_NAME = 0xc000_00cc,
    DIRECTORY_NOT_EMPTY = 0xc000_0101,
    USER_SESSION_DELETED = 0xc000_0203,
}

/// Flags of a header.
pub mod flag {
    #![allow(missing_docs)]
    pub const RESPONSE: u32 = 1;
    pub const ASYNC: u32 = 2;
    pub const RELATED: u32 = 4;
    pub const SIGNED: u32 = 8;
}

/// Parameters of a CREATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// Access that is asked for (§2.2.13.1).
    pub access: u32,
    /// Disposition: the action if it exists, and if not.
    pub disposition: u32,
    /// Options.
    pub options: u32,
}

impl Open {
    const ALL: u32 = 0x1f_01ff;
    const DIRECTORY: u32 = 1;
    const ON_CLOSE: u32 = 0x1000;
    const NOT_DIRECTORY: u32 = 0x40;

    const fn new(access: u32, disposition: u32, options: u32) -> Self {
        Self {
            access,
            disposition,
            options,
        }
    }

    /// A new file, which must not exist: generic read and write, as an application asks for.
    pub const NEW: Self = Self::new(0x12_019f, 2, Self::NOT_DIRECTORY);
    /// A file of the working set, made if it is missing.
    pub const DATA: Self = Self::new(0x12_019f, 3, Self::NOT_DIRECTORY);
    /// A file for its attributes.
    pub const STAT: Self = Self::new(0x80, 1, 0);
    /// A directory, made if it is missing.
    pub const DIRECTORY_IF: Self = Self::new(Self::ALL, 3, Self::DIRECTORY);
    /// A new directory.
    pub const DIRECTORY_NEW: Self = Self::new(Self::ALL, 2, Self::DIRECTORY);
    /// A directory for its entries.
    pub const LISTING: Self = Self::new(0x81, 1, Self::DIRECTORY);
    /// A file or directory that goes with its last close.
    pub const DELETE: Self = Self::new(0x1_0080, 1, Self::ON_CLOSE);
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// NEGOTIATE, SESSION_SETUP or TREE_CONNECT: command and body, made by hand.
    Plain(u16, &'a [u8]),
    /// ECHO.
    Echo,
    /// CREATE by a path below the share's root.
    Create(&'a str, Open),
    /// CLOSE.
    Close(FileId),
    /// FLUSH.
    Flush(FileId),
    /// READ.
    Read {
        /// The file.
        file: FileId,
        /// In bytes.
        offset: u64,
        /// In bytes.
        len: u32,
    },
    /// WRITE.
    Write {
        /// The file.
        file: FileId,
        /// In bytes.
        offset: u64,
        /// Data to write.
        data: &'a [u8],
        /// True if the data has to be durable before the response.
        through: bool,
    },
    /// QUERY_INFO of all that a file has (FileAllInformation).
    Query(FileId),
    /// QUERY_DIRECTORY, with attributes (FileIdBothDirectoryInformation).
    List {
        /// The directory.
        file: FileId,
        /// From its first entry on.
        restart: bool,
        /// Longest response in bytes.
        len: u32,
    },
}

impl Request<'_> {
    /// Credits that it costs.
    pub fn charge(&self) -> u16 {
        let bytes = match self {
            Self::Read { len, .. } | Self::List { len, .. } => u64::from(*len),
            Self::Write { data, .. } => data.len() as u64,
            _ => 1,
        };
        bytes.max(1).div_ceil(CREDIT) as u16
    }

    /// Its number in the protocol.
    pub fn command(&self) -> u16 {
        match self {
            Self::Plain(command, _) => *command,
            Self::Create(..) => 5,
            Self::Close(_) => 6,
            Self::Flush(_) => 7,
            Self::Read { .. } => 8,
            Self::Write { .. } => 9,
            Self::Echo => 13,
            Self::List { .. } => 14,
            Self::Query(_) => 16,
        }
    }

    /// Appends the body, which stands behind a header.
    pub fn put(&self, o: &mut Vec<u8>) {
        match *self {
            Self::Plain(_, body) => o.extend_from_slice(body),
            Self::Echo => put16(o, [4, 0]),
            Self::Create(path, open) => {
                put16(o, [57, 0]);
                // Impersonation.
                put32(o, [2]);
                o.resize(o.len() + 16, 0);
                put32(o, [open.access, 0, 7, open.disposition, open.options]);
                let at = o.len();
                put16(o, [HEADER as u16 + 56, 0]);
                put32(o, [0, 0]);
                let start = o.len();
                for unit in path.encode_utf16() {
                    put16(o, [unit]);
                }
                let len = (o.len() - start) as u16;
                o[at + 2..at + 4].copy_from_slice(&len.to_le_bytes());
                if len == 0 {
                    o.push(0);
                }
            }
            Self::Close(file) => {
                put16(o, [24, 0]);
                put32(o, [0]);
                o.extend_from_slice(&file);
            }
            Self::Flush(file) => {
                put16(o, [24, 0]);
                put32(o, [0]);
                o.extend_from_slice(&file);
            }
            Self::Read { file, offset, len } => {
                put16(o, [49, 0]);
                put32(o, [len]);
                o.extend_from_slice(&offset.to_le_bytes());
                o.extend_from_slice(&file);
                o.resize(o.len() + 17, 0);
            }
            Self::Write {
                file,
                offset,
                data,
                through,
            } => {
                put16(o, [49, HEADER as u16 + 48]);
                put32(o, [data.len() as u32]);
                o.extend_from_slice(&offset.to_le_bytes());
                o.extend_from_slice(&file);
                put32(o, [0, 0, 0, u32::from(through)]);
                o.extend_from_slice(data);
            }
            Self::Query(file) => {
                // A file's information, class 18.
                put16(o, [41, 0x1201]);
                put32(o, [4096, 0, 0, 0, 0]);
                o.extend_from_slice(&file);
                o.push(0);
            }
            Self::List { file, restart, len } => {
                put16(o, [33]);
                // Class 37.
                o.extend_from_slice(&[37, u8::from(restart)]);
                put32(o, [0]);
                o.extend_from_slice(&file);
                put16(o, [HEADER as u16 + 32, 2]);
                put32(o, [len]);
                o.extend_from_slice(&utf16("*"));
            }
        }
    }
}

/// Appends numbers of 16 bits.
pub fn put16<const N: usize>(o: &mut Vec<u8>, values: [u16; N]) {
    values
        .iter()
        .for_each(|v| o.extend_from_slice(&v.to_le_bytes()));
}

/// Appends numbers of 32 bits.
pub fn put32<const N: usize>(o: &mut Vec<u8>, values: [u32; N]) {
    values
        .iter()
        .for_each(|v| o.extend_from_slice(&v.to_le_bytes()));
}

/// A message of which some part is missing or impossible.
pub fn malformed(what: &str) -> BenchError {
    BenchError::Protocol(format!("malformed {what}"))
}

/// Bytes of a message, taken by their place.
#[derive(Clone, Copy)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// So many bytes from a place on.
    pub fn slice_at(self, at: usize, len: usize) -> Result<&'a [u8], BenchError> {
        let end = at.checked_add(len);
        let part = end.and_then(|end| self.0.get(at..end));
        part.ok_or_else(|| malformed("response: too short"))
    }

    /// An array of bytes.
    pub fn array<const N: usize>(self, at: usize) -> Result<[u8; N], BenchError> {
        let mut out = [0; N];
        out.copy_from_slice(self.slice_at(at, N)?);
        Ok(out)
    }

    /// A number of 16 bits.
    pub fn u16(self, at: usize) -> Result<u16, BenchError> {
        Ok(u16::from_le_bytes(self.array(at)?))
    }

    /// A number of 32 bits.
    pub fn u32(self, at: usize) -> Result<u32, BenchError> {
        Ok(u32::from_le_bytes(self.array(at)?))
    }

    /// A number of 64 bits.
    pub fn u64(self, at: usize) -> Result<u64, BenchError> {
        Ok(u64::from_le_bytes(self.array(at)?))
    }
}

/// A response, with its header.
#[derive(Clone, Copy)]
pub struct Response<'a> {
    /// Its status.
    pub status: u32,
    /// The number of the request.
    pub message: u64,
    /// See [`flag`].
    pub flags: u32,
    /// The tree connect.
    pub tree: u32,
    /// The session.
    pub session: u64,
    /// Credits that it grants.
    pub credits: u16,
    /// All of it.
    pub bytes: Bytes<'a>,
}

impl<'a> Response<'a> {
    /// Takes the first response of a chain; it, and the offset of the next, 0 for none.
    pub fn take(chain: &'a [u8]) -> Result<(Self, usize), BenchError> {
        let whole = Bytes(chain);
        if whole.array::<4>(0)? != PROTOCOL || whole.u16(4)? != HEADER as u16 {
            return Err(malformed("response: no header of SMB2"));
        }
        let next = whole.u32(20)? as usize;
        let len = if next == 0 { chain.len() } else { next };
        let bytes = Bytes(whole.slice_at(0, len)?);
        let flags = bytes.u32(16)?;
        if len < HEADER || flags & flag::RESPONSE == 0 {
            return Err(malformed("response: no response"));
        }
        let response = Self {
            status: bytes.u32(8)?,
            message: bytes.u64(24)?,
            flags,
            tree: bytes.u32(36)?,
            session: bytes.u64(40)?,
            credits: bytes.u16(14)?,
            bytes,
        };
        Ok((response, next))
    }

    /// Returns true if the request continues and another response follows (§3.3.4.2).
    pub fn is_interim(&self) -> bool {
        self.status == status::PENDING && self.flags & flag::ASYNC != 0
    }

    /// Fails unless the body is of this kind: its StructureSize.
    fn of_kind(&self, size: u16) -> Result<(), BenchError> {
        match self.bytes.u16(HEADER)? {
            found if found == size => Ok(()),
            found => Err(malformed(&format!(
                "response: StructureSize {found} instead of {size}"
            ))),
        }
    }

    /// CREATE's: the file, and its size in bytes.
    pub fn created(&self) -> Result<(FileId, u64), BenchError> {
        self.of_kind(89)?;
        Ok((self.bytes.array(HEADER + 64)?, self.bytes.u64(HEADER + 48)?))
    }

    /// READ's: the data.
    pub fn read(&self) -> Result<&'a [u8], BenchError> {
        self.of_kind(17)?;
        let at = self.bytes.slice_at(HEADER + 2, 1)?[0];
        let len = self.bytes.u32(HEADER + 4)?;
        self.bytes.slice_at(usize::from(at), len as usize)
    }

    /// WRITE's: the bytes written.
    pub fn written(&self) -> Result<u32, BenchError> {
        self.of_kind(17)?;
        self.bytes.u32(HEADER + 4)
    }

    /// QUERY_INFO's and QUERY_DIRECTORY's: what was asked for.
    pub fn output(&self) -> Result<&'a [u8], BenchError> {
        self.of_kind(9)?;
        let at = self.bytes.u16(HEADER + 2)?;
        let len = self.bytes.u32(HEADER + 4)?;
        self.bytes.slice_at(usize::from(at), len as usize)
    }

    /// QUERY_DIRECTORY's: the number of entries.
    pub fn listed(&self) -> Result<u64, BenchError> {
        let output = Bytes(self.output()?);
        let (mut at, mut count) = (0, 0);
        loop {
            // The name's length is in the entry's fixed part.
            let name = output.u32(at + 60)?;
            output.slice_at(at + 104, name as usize)?;
            count += 1;
            match output.u32(at)? as usize {
                0 => return Ok(count),
                next => at += next,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_counted_and_one_that_is_cut_off_is_refused() {
        let mut entries = Vec::new();
        for (n, next) in [(4u32, 112u32), (2, 0)] {
            let start = entries.len();
            entries.resize(start + 104, 0);
            entries[start..start + 4].copy_from_slice(&next.to_le_bytes());
            entries[start + 60..start + 64].copy_from_slice(&n.to_le_bytes());
            entries.resize(start + 104 + n as usize, b'x');
            if next > 0 {
                entries.resize(start + next as usize, 0);
            }
        }
        let mut message = PROTOCOL.to_vec();
        message.extend_from_slice(&64u16.to_le_bytes());
        message.resize(HEADER, 0);
        message[16] = 1;
        put16(&mut message, [9, HEADER as u16 + 8]);
        put32(&mut message, [entries.len() as u32]);
        message.extend_from_slice(&entries);
        assert_eq!(Response::take(&message).unwrap().0.listed().unwrap(), 2);
        for len in 0..message.len() {
            let cut = Response::take(&message[..len]);
            assert!(cut.and_then(|(r, _)| r.listed()).is_err(), "{len}");
        }
    }
}
